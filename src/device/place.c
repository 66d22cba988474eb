/* Costs of ops on both devices, the cheapest path through them, the report. */
#include "device/place.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "device/cost.h"
#include "device/support.h"

#define SWITCH_MS 0.125
#define OP_MS 0.77e-3           /* the forecast's share of an op */
#define MOVED_GB_PER_S 37.0     /* activations, of one engine */
#define PROCESSOR_GB_PER_S 30.0 /* assumed */
#define PROCESSOR_G_PER_S 100.0 /* assumed: multiplications */

static double elements_bytes(const struct mil_type *t)
{
    int64_t bytes = t ? mil_type_bytes(mil_type_tensor(t)) : 0;
    return bytes > 0 ? (double)bytes : 0;
}

/* What an op reads and writes of activations. */
static double moved_bytes(const struct mil_op *op)
{
    double bytes = 0;
    if (mil_op_is(op, "write_state") || mil_op_is(op, "read_state"))
        return 0;
    for (int k = 0; k < op->n_outputs; k++)
        bytes += elements_bytes(op->outputs[k]->type);
    if (mil_op_is(op, "slice_update")) { /* in place: what is written */
        const struct mil_var *update = mil_arg_var(op, "update");
        return update ? 2 * elements_bytes(update->type) : 0;
    }
    return 2 * bytes;
}

static void estimate(struct place_op *p, const struct chip *chip)
{
    double weights = device_op_weight_bytes(p->op), moved = moved_bytes(p->op),
           multiplies = device_op_multiplies(p->op), tflops = chip->fp16_tflops > 0 ? chip->fp16_tflops : 6;
    double stream = weights / (chip->stream_gb_per_s * 1e6), move = moved / (MOVED_GB_PER_S * 1e6),
           compute = 2 * multiplies / (tflops * 1e9);
    p->ms_on_engine = p->reason ? INFINITY : OP_MS + fmax(stream, fmax(move, compute));
    p->ms_on_processor =
        OP_MS + fmax(multiplies / (PROCESSOR_G_PER_S * 1e6), (weights + moved) / (PROCESSOR_GB_PER_S * 1e6));
}

/* The cheapest way through the ops that are not of the prologue: from the end, the cost of going on from either device. */
static void choose(struct placement *p)
{
    double *rest = xcalloc((size_t)(p->n_ops + 1) * 2, sizeof *rest);
    bool *stays = xcalloc((size_t)(p->n_ops + 1) * 2, sizeof *stays);
    rest[2 * (size_t)p->n_ops + 1] = SWITCH_MS; /* results leave the engine */
    for (int i = p->n_ops - 1; i >= 0; i--) {
        const struct place_op *op = &p->ops[i];
        const double *next = &rest[2 * (size_t)(i + 1)];
        for (int at = 0; at < 2; at++) {
            double here = (at ? op->ms_on_engine : op->ms_on_processor) + next[at];
            double there =
                (at ? op->ms_on_processor : op->ms_on_engine) + next[!at] + SWITCH_MS + (at ? 0 : SWITCH_MS);
            bool is_free = op->is_prologue;
            stays[2 * (size_t)i + (size_t)at] = is_free || here <= there;
            rest[2 * (size_t)i + (size_t)at] = is_free ? next[at] : fmin(here, there);
        }
    }
    /* The first segment is entered, and changes no device. */
    int at = rest[1] + SWITCH_MS < rest[0];
    p->ms = at ? rest[1] + SWITCH_MS : rest[0];
    for (int i = 0; i < p->n_ops; i++) {
        struct place_op *op = &p->ops[i];
        if (op->is_prologue)
            continue;
        bool first = p->n_segments == 0;
        if (!stays[2 * (size_t)i + (size_t)at]) {
            at = !at;
            first = true;
        }
        p->n_segments += first;
        op->on_engine = at;
        p->n_engine += at;
        if (!at && !op->reason)
            op->reason = "a segment of its own would cost more than the engine saves";
    }
    free(rest);
    free(stays);
}

void place_function(struct placement *out, const struct mil_function *f, const struct chip *chip)
{
    bool *is_known = device_prologue(f);
    struct placement p = {.ops = xcalloc((size_t)(f->block ? f->block->n_ops : 0) + 1, sizeof *p.ops)};
    for (int i = 0; f->block && i < f->block->n_ops; i++) {
        struct place_op *x = &p.ops[p.n_ops];
        const struct mil_op *op = f->block->ops[i];
        if (device_is_constant(op))
            continue;
        *x = (struct place_op){.op = op, .reason = device_reason(op)};
        x->is_prologue = op->n_outputs > 0 && is_known[op->outputs[0]->id];
        estimate(x, chip);
        if (x->is_prologue)
            x->reason = "of the call's integer inputs alone: before the engine begins";
        p.n_prologue += x->is_prologue;
        p.n_ops++;
    }
    choose(&p);
    free(is_known);
    *out = p;
}

void placement_fini(struct placement *p)
{
    free(p->ops);
    *p = (struct placement){0};
}

/* ---- report ---- */

static void add_part(cJSON *parts, const char *name, const struct mil_function *f, const struct chip *chip)
{
    struct placement p;
    place_function(&p, f, chip);
    cJSON *one = cJSON_CreateObject();
    cJSON_AddItemToArray(parts, one);
    cJSON_AddStringToObject(one, "model", name);
    cJSON_AddStringToObject(one, "function", f->name);
    cJSON_AddNumberToObject(one, "engine", p.n_engine);
    cJSON_AddNumberToObject(one, "processor", p.n_ops - p.n_engine - p.n_prologue);
    cJSON_AddNumberToObject(one, "prologue", p.n_prologue);
    cJSON_AddNumberToObject(one, "segments", p.n_segments);
    cJSON_AddNumberToObject(one, "estimated_ms", p.ms);
    cJSON *ops = cJSON_AddArrayToObject(one, "operations");
    for (int i = 0; i < p.n_ops; i++) {
        const struct place_op *x = &p.ops[i];
        cJSON *op = cJSON_CreateObject();
        cJSON_AddStringToObject(op, "operation",
                                x->op->n_outputs > 0 ? x->op->outputs[0]->name : x->op->type);
        cJSON_AddStringToObject(op, "type", x->op->type);
        cJSON_AddStringToObject(op, "device", x->on_engine ? "engine" : "processor");
        if (x->reason)
            cJSON_AddStringToObject(op, "reason", x->reason);
        if (isfinite(x->ms_on_engine))
            cJSON_AddNumberToObject(op, "ms_on_engine", x->ms_on_engine);
        cJSON_AddItemToArray(ops, op);
    }
    placement_fini(&p);
}

bool place_path(cJSON *o, const char *path, const struct chip *chip, struct err *e)
{
    struct device_models m = {0};
    bool ok = device_models_open(&m, path, false, e);
    cJSON_AddNumberToObject(o, "schema", 1);
    cJSON_AddStringToObject(o, "path", path);
    cJSON_AddStringToObject(o, "chip", chip->name);
    cJSON_AddStringToObject(o, "basis", "expected from published rules and rates; not measured");
    cJSON *parts = cJSON_AddArrayToObject(o, "parts");
    for (int i = 0; ok && i < m.n; i++)
        for (int k = 0; k < m.list[i].model->program->n_functions; k++)
            add_part(parts, m.list[i].name, m.list[i].model->program->functions[k], chip);
    device_models_close(&m);
    return ok;
}
