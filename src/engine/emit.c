/* Emission: the program in its order becomes values, views and steps. Holds what the op_*.c files share and
 * the compilation of a whole function (engine_plan_new). */
#include <stdlib.h>
#include <string.h>
#include "engine/engine_int.h"

/* The most axes, operands and steps that a plan may have; real models stay far below. */
#define STEPS_MAX 1000000
/* The most elements of one tensor: sums of sizes over all steps stay far from the end of 64 bits. */
#define ELEMS_MAX ((int64_t)1 << 36)

bool compile_fail(struct compiler *c, enum err_code code, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const char *out = c->op && c->op->n_outputs > 0 ? c->op->outputs[0]->name : "?";
    return err_set(c->e, code, "function %s: op %s (%s): %s", c->g.f->name, c->op ? c->op->type : "?", out,
                   text);
}

enum repr dtype_repr(enum mil_dtype d)
{
    return mil_dtype_is_float(d) ? REPR_F32 : REPR_I32;
}

const struct mil_type *var_type(const struct compiler *c, const struct mil_var *v)
{
    return c->g.types[v->id];
}

/* ---- storages and values ---- */

int storage_new(struct compiler *c, enum storage_kind kind, enum repr repr, int64_t n_elems)
{
    struct engine_plan *p = c->plan;
    if (p->n_storages == c->cap_storages) {
        c->cap_storages = c->cap_storages ? 2 * c->cap_storages : 256;
        p->storages = xrealloc(p->storages, sizeof *p->storages * (size_t)c->cap_storages);
    }
    p->storages[p->n_storages] = (struct storage){
        .kind = kind, .repr = repr, .n_elems = n_elems, .index = -1, .first_step = -1, .last_step = -1};
    return p->n_storages++;
}

struct value value_new(struct compiler *c, enum repr repr, int rank, const int64_t *dims)
{
    struct value v = {.repr = repr, .rank = rank};
    for (int i = 0; i < rank; i++)
        v.dims[i] = dims[i];
    dense_strides(rank, dims, v.strides);
    v.storage = storage_new(c, STORAGE_ARENA, repr, value_elems(&v));
    return v;
}

struct value value_new_like(struct compiler *c, enum repr repr, int rank, const int64_t *dims,
                            const struct value *like)
{
    struct value v = value_new(c, repr, rank, dims);
    int order[MIL_RANK_MAX], n = 0;
    int64_t stride = 1;
    if (!like || like->rank != rank)
        return v;
    /* Axes by falling stride, equal ones in their order; an axis of 1 has no place among them. */
    for (int i = 0; i < rank; i++) {
        int at = n;
        if (dims[i] == 1)
            continue;
        for (; at > 0 && like->strides[order[at - 1]] < like->strides[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
        n++;
    }
    for (int i = n - 1; i >= 0; i--) {
        v.strides[order[i]] = stride;
        stride *= dims[order[i]];
    }
    for (int i = rank - 1; i >= 0; i--)
        if (dims[i] == 1)
            v.strides[i] = i + 1 < rank ? v.strides[i + 1] * dims[i + 1] : 1;
    return v;
}

/* ---- steps ---- */

struct step *step_new(struct compiler *c, const char *name, step_fn run)
{
    struct engine_plan *p = c->plan;
    if (p->n_steps == c->cap_steps) {
        c->cap_steps = c->cap_steps ? 2 * c->cap_steps : 256;
        p->steps = xrealloc(p->steps, sizeof *p->steps * (size_t)c->cap_steps);
    }
    struct step *s = &p->steps[p->n_steps++];
    *s = (struct step){.run = run, .name = name, .serial = true};
    if (c->op && c->op->n_outputs > 0)
        s->label = c->op->outputs[0]->name;
    return s;
}

void step_in(struct compiler *c, struct step *s, struct value v)
{
    (void)c;
    s->in[s->n_in++] = v;
}

void step_out(struct compiler *c, struct step *s, struct value v)
{
    (void)c;
    s->out[s->n_out++] = v;
}

/* ---- copies ---- */

struct copy_params {
    int rank;
    int64_t dims[MIL_RANK_MAX];
    int64_t strides[2][MIL_RANK_MAX]; /* to, from */
};

static void copy_row(const struct engine_run *r, const struct value *to, const struct value *from, int64_t at,
                     int64_t src, int64_t n, int64_t to_step, int64_t from_step)
{
    char *base_to = value_pointer(r, to);
    const char *base_from = value_pointer(r, from);
    if (to->repr == REPR_F16 && from->repr == REPR_F16) {
        f16 *y = (f16 *)base_to + at;
        const f16 *x = (const f16 *)base_from + src;
        for (int64_t i = 0; i < n; i++)
            y[i * to_step] = x[i * from_step];
    } else if (to->repr == REPR_F16) {
        f16 *y = (f16 *)base_to + at;
        const float *x = (const float *)base_from + src;
        if (to_step == 1 && from_step == 1)
            r->k->f32_to_f16(y, x, n);
        else
            for (int64_t i = 0; i < n; i++)
                y[i * to_step] = f32_to_f16(x[i * from_step]);
    } else if (from->repr == REPR_F16) {
        float *y = (float *)base_to + at;
        const f16 *x = (const f16 *)base_from + src;
        if (to_step == 1 && from_step == 1)
            r->k->f16_to_f32(y, x, n);
        else
            for (int64_t i = 0; i < n; i++)
                y[i * to_step] = f16_to_f32(x[i * from_step]);
    } else {
        int32_t *y = (int32_t *)base_to + at; /* both representations of 4 bytes move as they are */
        const int32_t *x = (const int32_t *)base_from + src;
        if (to_step == 1 && from_step == 1)
            memcpy(y, x, (size_t)n * 4);
        else
            for (int64_t i = 0; i < n; i++)
                y[i * to_step] = x[i * from_step];
    }
}

static void run_copy(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct copy_params *p = s->params;
    int inner = p->rank - 1;
    int64_t n_outer = 1, begin, end;
    for (int i = 0; i < inner; i++)
        n_outer *= p->dims[i];
    if (inner == 0) {
        pool_split(p->dims[0], 64, i_thread, n_threads, &begin, &end);
        if (end > begin)
            copy_row(r, &s->out[0], &s->in[0], begin * p->strides[0][0], begin * p->strides[1][0],
                     end - begin, p->strides[0][0], p->strides[1][0]);
        return;
    }
    pool_split(n_outer, 1, i_thread, n_threads, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        int64_t at = 0, src = 0, rest = row;
        for (int i = inner - 1; i >= 0; i--) {
            int64_t k = rest % p->dims[i];
            rest /= p->dims[i];
            at += k * p->strides[0][i];
            src += k * p->strides[1][i];
        }
        copy_row(r, &s->out[0], &s->in[0], at, src, p->dims[inner], p->strides[0][inner],
                 p->strides[1][inner]);
    }
}

/* Elements from which a step is worth more than one thread. */
#define PARALLEL_ELEMS 16384

void emit_copy(struct compiler *c, const struct value *from, const struct value *to)
{
    struct copy_params *p = ARENA_NEW(c->arena, struct copy_params);
    if (value_elems(to) == 0)
        return;
    memcpy(p->dims, to->dims, sizeof p->dims);
    memcpy(p->strides[0], to->strides, sizeof p->strides[0]);
    memcpy(p->strides[1], from->strides, sizeof p->strides[1]);
    p->rank = coalesce(to->rank, p->dims, 2, p->strides);
    struct step *s = step_new(c, "copy", run_copy);
    s->params = p;
    s->serial = value_elems(to) < PARALLEL_ELEMS;
    step_in(c, s, *from);
    step_out(c, s, *to);
}

bool to_f32(struct compiler *c, struct value *v)
{
    if (v->repr != REPR_F16)
        return true;
    struct value y = value_new_like(c, REPR_F32, v->rank, v->dims, v);
    emit_copy(c, v, &y);
    *v = y;
    return true;
}

bool to_dense(struct compiler *c, struct value *v)
{
    if (is_dense(v))
        return true;
    struct value y = value_new(c, v->repr, v->rank, v->dims);
    emit_copy(c, v, &y);
    *v = y;
    return true;
}

/* ---- constants and operands ---- */

bool const_value(struct compiler *c, const struct mil_value *v, enum repr repr, struct value *out)
{
    const struct mil_type *t = v->type;
    size_t slot = ((uintptr_t)v >> 4) % 256;
    struct const_cache *hit = c->const_cache[slot];
    if (t->kind != MIL_TYPE_TENSOR || t->dtype == MIL_STRING || t->rank > MIL_RANK_MAX || v->n_elems < 0)
        return compile_fail(c, ERR_UNSUPPORTED, "a constant that is no tensor of numbers");
    if (v->kind == MIL_VALUE_WEIGHT || (!v->data && v->n_elems > 0))
        return compile_fail(c, ERR_BUG, "a constant without data");
    while (hit && !(hit->v == v && hit->repr == repr))
        hit = hit->next;
    if (!hit) {
        hit = ARENA_NEW(c->scratch, struct const_cache);
        hit->v = v;
        hit->repr = repr;
        hit->storage = storage_new(c, STORAGE_CONST, repr, v->n_elems);
        hit->next = c->const_cache[slot];
        c->const_cache[slot] = hit;
        struct storage *s = &c->plan->storages[hit->storage];
        if (repr == REPR_F16 || (repr == REPR_F32 && t->dtype == MIL_FP32 && (uintptr_t)v->data % 4 == 0) ||
            (repr == REPR_I32 && t->dtype == MIL_INT32 && (uintptr_t)v->data % 4 == 0)) {
            s->data = v->data;
        } else {
            void *data = arena_try_alloc(c->arena, (size_t)v->n_elems + 16, 4, c->e);
            if (!data)
                return false;
            if (repr == REPR_F32 && t->dtype == MIL_FP16 && (uintptr_t)v->data % 2 == 0) {
                f16_to_f32_n(data, v->data, (size_t)v->n_elems);
            } else {
                for (int64_t i = 0; i < v->n_elems; i++) {
                    double d = mil_value_element(v, i);
                    if (repr == REPR_F32)
                        ((float *)data)[i] = (float)d;
                    else
                        ((int32_t *)data)[i] = d > INT32_MAX   ? INT32_MAX
                                               : d < INT32_MIN ? INT32_MIN
                                                               : (int32_t)d;
                }
            }
            s->data = data;
        }
    }
    *out = (struct value){.storage = hit->storage, .repr = repr, .rank = t->rank};
    for (int i = 0; i < t->rank; i++)
        out->dims[i] = t->dims[i];
    dense_strides(out->rank, out->dims, out->strides);
    return true;
}

bool operand_binding(struct compiler *c, const struct mil_binding *b, struct value *out)
{
    const struct mil_value *v = b->value ? b->value : c->consts[b->var->id];
    if (v) {
        const struct mil_type *t = v->type;
        bool large_f16 = t->kind == MIL_TYPE_TENSOR && t->dtype == MIL_FP16 && v->n_elems > 65536;
        return const_value(c, v, large_f16 ? REPR_F16 : dtype_repr(t->dtype), out);
    }
    const struct mil_op *packed = c->values[b->var->id].storage < 0 ? constexpr_of(c, b->var) : NULL;
    if (packed && !constexpr_dense(c, packed, &c->values[b->var->id]))
        return false;
    if (c->values[b->var->id].storage < 0)
        return compile_fail(c, ERR_UNSUPPORTED, "operand %s was not computed (no tensor)", b->var->name);
    *out = c->values[b->var->id];
    return true;
}

bool operand_optional(struct compiler *c, const struct mil_op *op, const char *name, struct value *out,
                      bool *present)
{
    const struct mil_arg *a = mil_arg_find(op, name);
    const struct mil_value *v;
    *present = true;
    if (a && a->n == 1)
        return operand_binding(c, &a->bindings[0], out);
    v = mil_attribute(op, name);
    if (v) {
        struct mil_binding b = {.value = v};
        return operand_binding(c, &b, out);
    }
    *present = false;
    return true;
}

bool operand(struct compiler *c, const struct mil_op *op, const char *name, struct value *out)
{
    bool present;
    if (!operand_optional(c, op, name, out, &present))
        return false;
    return present || compile_fail(c, ERR_FORMAT, "argument %s is missing", name);
}

bool operand_f32(struct compiler *c, const struct mil_op *op, const char *name, struct value *out)
{
    return operand(c, op, name, out) && to_f32(c, out);
}

static const struct mil_value *arg_const(const struct compiler *c, const struct mil_op *op, const char *name)
{
    const struct mil_arg *a = mil_arg_find(op, name);
    if (!a || a->n != 1)
        return mil_attribute(op, name);
    return a->bindings[0].value ? a->bindings[0].value : c->consts[a->bindings[0].var->id];
}

bool arg_ints(struct compiler *c, const struct mil_op *op, const char *name, int64_t *dst, int *n)
{
    int n_max = *n;
    const struct mil_value *v = arg_const(c, op, name);
    *n = 0;
    if (!v && mil_arg_find(op, name)) { /* from shapes alone, else not before the run */
        if (!mil_infer_ints(op, name, c->g.types, dst, n_max, n))
            return compile_fail(c, ERR_UNSUPPORTED, "argument %s is not known before the run", name);
        for (int i = 0; i < *n; i++)
            if (dst[i] == MIL_INT_UNKNOWN)
                return compile_fail(c, ERR_UNSUPPORTED, "argument %s is not known before the run", name);
        return true;
    }
    if (!v)
        return true;
    if (!mil_value_ints(v, dst, n_max, n))
        return compile_fail(c, ERR_UNSUPPORTED, "argument %s: expected at most %d integers", name, n_max);
    return true;
}

bool arg_int(struct compiler *c, const struct mil_op *op, const char *name, int64_t fallback, int64_t *dst)
{
    int n = 1;
    int64_t v[1];
    if (!arg_ints(c, op, name, v, &n))
        return false;
    *dst = n == 1 ? v[0] : fallback;
    return true;
}

bool arg_bool(struct compiler *c, const struct mil_op *op, const char *name, bool fallback, bool *dst)
{
    int64_t v;
    if (!arg_int(c, op, name, fallback, &v))
        return false;
    *dst = v != 0;
    return true;
}

bool arg_float(struct compiler *c, const struct mil_op *op, const char *name, double fallback, double *dst)
{
    const struct mil_value *v = arg_const(c, op, name);
    *dst = fallback;
    if (!v && mil_arg_find(op, name))
        return compile_fail(c, ERR_UNSUPPORTED, "argument %s is not known before the run", name);
    if (v && !mil_value_float(v, dst))
        return compile_fail(c, ERR_UNSUPPORTED, "argument %s: expected one number", name);
    return true;
}

/* ---- results ---- */

static void run_round(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    int64_t begin, end;
    float *p = value_pointer(r, &s->out[0]);
    pool_split(s->i[0], 64, i_thread, n_threads, &begin, &end);
    r->k->round_f16(p + begin, p + begin, end - begin);
}

void set_var(struct compiler *c, const struct mil_var *var, struct value v)
{
    c->values[var->id] = v;
}

void set_output(struct compiler *c, const struct mil_op *op, int i, struct value v)
{
    const struct mil_type *t = var_type(c, op->outputs[i]);
    set_var(c, op->outputs[i], v);
    if (c->plan->precision != ENGINE_FP16 || v.repr != REPR_F32 || t->dtype != MIL_FP16)
        return;
    struct value whole = v; /* a fresh value fills its storage */
    struct step *s = step_new(c, "round f16", run_round);
    whole.offset = 0;
    s->i[0] = c->plan->storages[v.storage].n_elems;
    s->serial = s->i[0] < PARALLEL_ELEMS;
    step_out(c, s, whole);
}

/* ---- dispatch ---- */

static emit_fn emitter_of(enum mil_op_id id)
{
    switch (id) {
    case MIL_OP_IDENTITY:
    case MIL_OP_RESHAPE:
    case MIL_OP_TRANSPOSE:
    case MIL_OP_EXPAND_DIMS:
    case MIL_OP_SQUEEZE:
        return emit_view;
    case MIL_OP_SLICE_BY_INDEX:
        return emit_slice_by_index;
    case MIL_OP_SPLIT:
        return emit_split;
    case MIL_OP_CONCAT:
        return emit_concat;
    case MIL_OP_TILE:
        return emit_tile;
    case MIL_OP_GATHER:
        return emit_gather;
    case MIL_OP_SLICE_UPDATE:
        return emit_slice_update;
    case MIL_OP_READ_STATE:
        return emit_read_state;
    case MIL_OP_WRITE_STATE:
        return emit_write_state;
    case MIL_OP_CAST:
        return emit_cast;
    case MIL_OP_ABS:
    case MIL_OP_EXP:
    case MIL_OP_LOG:
    case MIL_OP_SQRT:
    case MIL_OP_RSQRT:
    case MIL_OP_SQUARE:
    case MIL_OP_TANH:
    case MIL_OP_SIGMOID:
    case MIL_OP_SILU:
    case MIL_OP_RELU:
    case MIL_OP_SOFTPLUS:
    case MIL_OP_LOGICAL_NOT:
        return emit_unary;
    case MIL_OP_ADD:
    case MIL_OP_SUB:
    case MIL_OP_MUL:
    case MIL_OP_REAL_DIV:
    case MIL_OP_FLOOR_DIV:
    case MIL_OP_MOD:
    case MIL_OP_MAXIMUM:
    case MIL_OP_MINIMUM:
    case MIL_OP_EQUAL:
    case MIL_OP_NOT_EQUAL:
    case MIL_OP_GREATER:
    case MIL_OP_GREATER_EQUAL:
    case MIL_OP_LESS:
    case MIL_OP_LESS_EQUAL:
    case MIL_OP_LOGICAL_AND:
    case MIL_OP_LOGICAL_OR:
    case MIL_OP_LOGICAL_XOR:
        return emit_binary;
    case MIL_OP_SELECT:
        return emit_select;
    case MIL_OP_CONV:
        return emit_conv;
    case MIL_OP_LINEAR:
        return emit_linear;
    case MIL_OP_MATMUL:
        return emit_matmul;
    case MIL_OP_LAYER_NORM:
        return emit_layer_norm;
    case MIL_OP_SOFTMAX:
        return emit_softmax;
    case MIL_OP_REDUCE_SUM:
    case MIL_OP_REDUCE_MEAN:
    case MIL_OP_REDUCE_MAX:
    case MIL_OP_REDUCE_MIN:
        return emit_reduce;
    default:
        return emitter_of_more(id);
    }
}

bool emit_fused(struct compiler *c, const struct fused *f)
{
    switch (f->kind) {
    case FUSED_RMS_NORM:
        return emit_rms_norm(c, f);
    case FUSED_ROPE:
        return emit_rope(c, f);
    case FUSED_SILU_MUL:
        return emit_silu_mul(c, f);
    case FUSED_ATTENTION:
        return emit_attention(c, f);
    case FUSED_GATED_DELTA:
        return emit_gated_delta(c, f);
    case FUSED_WINDOW:
        return emit_window(c, f);
    case FUSED_EXPERTS:
        return emit_experts(c, f);
    case FUSED_TOUCH: {
        struct mil_binding x = {.var = f->in[0]};
        struct value v;
        if (!operand_binding(c, &x, &v))
            return false;
        set_var(c, f->out, v);
        return true;
    }
    }
    return compile_fail(c, ERR_BUG, "unknown fused pattern");
}

static bool emit_op(struct compiler *c, int i)
{
    const struct mil_op *op = c->g.ops[i];
    const struct node *node = &c->g.nodes[i];
    c->op = op;
    if (c->plan->n_steps > STEPS_MAX)
        return compile_fail(c, ERR_LIMIT, "more than %d steps", STEPS_MAX);
    if (node->fused)
        return emit_fused(c, node->fused);
    /* Packed weights are taken by their users: as they are by linear steps, expanded by others. */
    if (node->absorbed || mil_op_is(op, "const") || strncmp(op->type, "constexpr_", 10) == 0)
        return true;
    emit_fn emit = op->info ? emitter_of(op->info->id) : NULL;
    if (!emit)
        return compile_fail(c, ERR_UNSUPPORTED, "the engine does not run this op");
    for (int k = 0; k < op->n_outputs; k++) {
        const struct mil_type *t = var_type(c, op->outputs[k]);
        if (t->kind != MIL_TYPE_TENSOR || t->rank > MIL_RANK_MAX || mil_type_elems(t) < 0)
            return compile_fail(c, ERR_UNSUPPORTED, "the shape of its result is not known before the run");
        if (mil_type_elems(t) > ELEMS_MAX)
            return compile_fail(c, ERR_LIMIT, "its result has %lld elements, the most is %lld",
                                (long long)mil_type_elems(t), (long long)ELEMS_MAX);
    }
    return emit(c, op);
}

static bool fill_port(struct compiler *c, struct engine_port *port, const char *name,
                      const struct mil_type *t)
{
    if (t->kind != MIL_TYPE_TENSOR || t->dtype == MIL_STRING || t->rank > MIL_RANK_MAX ||
        mil_type_elems(t) < 0)
        return err_set(c->e, ERR_UNSUPPORTED, "function %s: %s has no fixed tensor shape", c->g.f->name,
                       name);
    if (mil_type_elems(t) > ELEMS_MAX)
        return err_set(c->e, ERR_LIMIT, "function %s: %s has %lld elements, the most is %lld", c->g.f->name,
                       name, (long long)mil_type_elems(t), (long long)ELEMS_MAX);
    *port = (struct engine_port){.name = name,
                                 .dtype = t->dtype,
                                 .is_int = dtype_repr(t->dtype) == REPR_I32,
                                 .rank = t->rank,
                                 .n_elems = mil_type_elems(t)};
    for (int i = 0; i < t->rank; i++)
        port->dims[i] = t->dims[i];
    return true;
}

static struct value port_value(int storage, const struct engine_port *port)
{
    struct value v = {.storage = storage, .repr = port->is_int ? REPR_I32 : REPR_F32, .rank = port->rank};
    memcpy(v.dims, port->dims, sizeof v.dims);
    dense_strides(v.rank, v.dims, v.strides);
    return v;
}

static bool compile_inputs(struct compiler *c)
{
    struct engine_plan *p = c->plan;
    const struct mil_function *f = c->g.f;
    p->inputs = ARENA_ARRAY(c->arena, struct engine_port, f->n_inputs + 1);
    p->states = ARENA_ARRAY(c->arena, struct plan_state, f->n_inputs + 1);
    for (int i = 0; i < f->n_inputs; i++) {
        const struct mil_var *v = f->inputs[i];
        const struct mil_type *t = c->g.types[v->id];
        const char *name = arena_strdup(c->arena, v->name);
        if (t->kind == MIL_TYPE_STATE) {
            struct engine_port port;
            if (!fill_port(c, &port, name, t->elem))
                return false;
            if (port.dtype != MIL_FP16)
                return err_set(c->e, ERR_UNSUPPORTED,
                               "function %s: state %s is %s, only fp16 states are supported", f->name, name,
                               mil_dtype_name(port.dtype));
            struct plan_state *s = &p->states[p->n_states];
            *s = (struct plan_state){
                .name = name, .dtype = port.dtype, .rank = port.rank, .n_elems = port.n_elems};
            memcpy(s->dims, port.dims, sizeof s->dims);
            s->repr = p->precision == ENGINE_FP16 ? REPR_F16 : state_repr(&c->g, v);
            int storage = storage_new(c, STORAGE_STATE, s->repr, port.n_elems);
            p->storages[storage].index = p->n_states++;
            struct value value = port_value(storage, &port);
            value.repr = s->repr;
            set_var(c, v, value);
        } else {
            struct engine_port *port = &p->inputs[p->n_inputs];
            if (!fill_port(c, port, name, t))
                return false;
            int storage = storage_new(c, STORAGE_INPUT, port->is_int ? REPR_I32 : REPR_F32, port->n_elems);
            p->storages[storage].index = p->n_inputs++;
            set_var(c, v, port_value(storage, port));
        }
    }
    return true;
}

static bool compile_outputs(struct compiler *c)
{
    struct engine_plan *p = c->plan;
    const struct mil_block *b = c->g.f->block;
    p->n_outputs = b->n_outputs;
    p->outputs = ARENA_ARRAY(c->arena, struct engine_port, b->n_outputs + 1);
    p->out_values = ARENA_ARRAY(c->arena, struct value, b->n_outputs + 1);
    for (int i = 0; i < b->n_outputs; i++) {
        const struct mil_var *var = b->outputs[i];
        struct mil_binding binding = {.var = b->outputs[i]};
        struct value v;
        if (!fill_port(c, &p->outputs[i], arena_strdup(c->arena, var->name), var_type(c, var)))
            return false;
        c->op = graph_def(&c->g, var);
        if (!operand_binding(c, &binding, &v) || !to_f32(c, &v))
            return false;
        if (p->storages[v.storage].kind != STORAGE_ARENA || !is_dense(&v)) {
            struct value y = value_new(c, v.repr, v.rank, v.dims);
            emit_copy(c, &v, &y);
            v = y;
        }
        p->out_values[i] = v;
    }
    return true;
}

/* Does the description allow the shape? Enumerated shapes and ranges limit what the program leaves open; a
 * model without a description of the input leaves it open. */
static bool shape_is_allowed(const struct mil_model *m, const char *function, const struct engine_shape *s)
{
    const struct mil_function_description *d = mil_function_description_find(m, function);
    const struct mil_feature *in = NULL;
    for (int i = 0; d && i < d->n_inputs && !in; i++)
        if (strcmp(d->inputs[i].name, s->input) == 0)
            in = &d->inputs[i];
    if (!in)
        return true;
    for (int i = 0; i < in->n_enumerated; i++) {
        bool same = in->enumerated_ranks[i] == s->rank;
        for (int k = 0; same && k < s->rank; k++)
            same = in->enumerated[i][k] == s->dims[k];
        if (same)
            return true;
    }
    if (in->n_enumerated > 0)
        return false;
    for (int i = 0; i < in->n_ranges && i < s->rank; i++)
        if (s->dims[i] < in->ranges[i].lower ||
            (in->ranges[i].upper >= 0 && s->dims[i] > in->ranges[i].upper))
            return false;
    return true;
}

static bool input_types(struct compiler *c, const struct mil_function *f, const struct engine_shape *shapes,
                        int n_shapes, const struct mil_type **types)
{
    for (int i = 0; i < n_shapes; i++) {
        int k = 0;
        while (k < f->n_inputs && strcmp(f->inputs[k]->name, shapes[i].input) != 0)
            k++;
        if (k == f->n_inputs || f->inputs[k]->type->kind != MIL_TYPE_TENSOR)
            return err_set(c->e, ERR_USAGE, "function %s has no tensor input %s", f->name, shapes[i].input);
        const struct mil_type *t = f->inputs[k]->type;
        bool fits = t->rank == shapes[i].rank;
        for (int d = 0; fits && d < t->rank; d++)
            fits =
                shapes[i].dims[d] > 0 && (t->dims[d] == MIL_DIM_UNKNOWN || t->dims[d] == shapes[i].dims[d]);
        if (!fits || !shape_is_allowed(c->model, f->name, &shapes[i])) {
            char asked[128] = "";
            for (int d = 0; d < shapes[i].rank && d < MIL_RANK_MAX; d++)
                snprintf(asked + strlen(asked), sizeof asked - strlen(asked), d ? ", %lld" : "%lld",
                         (long long)shapes[i].dims[d]);
            return err_set(c->e, ERR_USAGE,
                           "function %s: the model does not allow the shape [%s] for input %s", f->name,
                           asked, shapes[i].input);
        }
        types[k] = mil_type_new_tensor(c->arena, t->dtype, shapes[i].rank, shapes[i].dims);
    }
    return true;
}

bool engine_plan_new(struct engine_plan **out, const struct mil_model *m, const char *function,
                     const struct engine_shape *shapes, int n_shapes, const struct engine_options *options,
                     struct err *e)
{
    struct compiler c = {.model = m, .e = e};
    const struct mil_function *f = mil_function_find(m, function);
    const char *why = "";
    bool ok = false;
    *out = NULL;
    if (!f)
        return err_set(e, ERR_FORMAT, "%s: no function %s", m->path ? m->path : "model", function);
    c.arena = arena_new(0);
    c.scratch = arena_new(0);
    c.plan = ARENA_NEW(c.arena, struct engine_plan);
    c.plan->arena = c.arena;
    c.plan->function = arena_strdup(c.arena, function);
    c.plan->precision = options ? options->precision : ENGINE_DEFAULT;
    c.plan->kernels = options && options->kernels ? options->kernels : kernel_select(&why);
    if (!c.plan->kernels) {
        err_set(e, ERR_USAGE, "%s", why);
        goto done;
    }
    const struct mil_type **inputs = ARENA_ARRAY(c.arena, const struct mil_type *, f->n_inputs + 1);
    const struct mil_type **types = ARENA_ARRAY(c.arena, const struct mil_type *, f->n_vars + 1);
    if (!input_types(&c, f, shapes, n_shapes, inputs) || !mil_infer_function(f, inputs, types, c.arena, e))
        goto done;
    c.values = ARENA_ARRAY(c.scratch, struct value, f->n_vars + 1);
    c.consts = ARENA_ARRAY(c.scratch, const struct mil_value *, f->n_vars + 1);
    for (int i = 0; i < f->n_vars; i++)
        c.values[i].storage = -1;
    if (!graph_new(&c.g, f, types, c.scratch, e))
        goto done;
    for (int i = 0; i < c.g.n_ops; i++)
        if (mil_op_is(c.g.ops[i], "const") && c.g.ops[i]->n_outputs == 1)
            c.consts[c.g.ops[i]->outputs[0]->id] = mil_attribute(c.g.ops[i], "val");
    if (c.plan->precision != ENGINE_FP16)
        fuse_patterns(&c);
    if (!compile_inputs(&c))
        goto done;
    if (c.plan->precision !=
        ENGINE_DEFAULT) /* the patterns told how to hold the states; each op runs by itself */
        memset(c.g.nodes, 0, sizeof *c.g.nodes * (size_t)c.g.n_ops);
    for (int i = 0; i < c.g.n_ops; i++)
        if (!emit_op(&c, i))
            goto done;
    if (!compile_outputs(&c))
        goto done;
    group_linear(&c);
    if (!plan_memory(&c))
        goto done;
    /* Steps and storages grew on the heap; the finished lists move into the plan's arena. */
    struct engine_plan *p = c.plan;
    struct step *steps = ARENA_ARRAY(c.arena, struct step, p->n_steps + 1);
    struct storage *storages = ARENA_ARRAY(c.arena, struct storage, p->n_storages + 1);
    if (p->n_steps > 0)
        memcpy(steps, p->steps, sizeof *steps * (size_t)p->n_steps);
    if (p->n_storages > 0)
        memcpy(storages, p->storages, sizeof *storages * (size_t)p->n_storages);
    free(p->steps);
    free(p->storages);
    p->steps = steps;
    p->storages = storages;
    for (int i = 0; i < p->n_steps; i++)
        if (p->steps[i].label)
            p->steps[i].label = arena_strdup(c.arena, p->steps[i].label);
    ok = true;
    *out = p;
done:
    if (!ok) {
        free(c.plan->steps);
        free(c.plan->storages);
        arena_free(c.arena);
    }
    arena_free(c.scratch);
    if (!ok)
        err_wrap(e, "%s", m->path ? m->path : "model");
    return ok;
}
