/* check --plan: a summary of each function, and the ops that are not expected on the Neural Engine, by published rules or by what
 * Core ML plans. */
#include "cli/check_plan.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "base/terminal.h"
#include "coreml/coreml.h"
#include "device/place.h"

#define REASONS_MAX 16

static const char *string_of(const cJSON *o, const char *key)
{
    const char *s = cJSON_GetStringValue(json_get(o, key));
    return s ? s : "";
}

static int int_of(const cJSON *o, const char *key)
{
    return (int)cJSON_GetNumberValue(json_get(o, key));
}

/* Each reason once, with its number of ops and the first one's name. */
static void print_reasons(const cJSON *part)
{
    struct {
        const char *reason, *type, *first;
        int n;
    } found[REASONS_MAX];
    int n = 0;
    const cJSON *op;
    cJSON_ArrayForEach(op, json_get(part, "operations"))
    {
        int i = 0;
        if (strcmp(string_of(op, "device"), "engine") == 0)
            continue;
        while (i < n && (strcmp(found[i].reason, string_of(op, "reason")) != 0 ||
                         strcmp(found[i].type, string_of(op, "type")) != 0))
            i++;
        if (i == REASONS_MAX)
            continue;
        if (i == n) {
            found[n].reason = string_of(op, "reason");
            found[n].type = string_of(op, "type");
            found[n].first = string_of(op, "operation");
            found[n++].n = 0;
        }
        found[i].n++;
    }
    for (int i = 0; i < n; i++) {
        printf("    %4d %-18s ", found[i].n, found[i].type);
        terminal_put(stdout, found[i].first);
        printf("%s: %s\n", found[i].n > 1 ? ", ..." : "", found[i].reason);
    }
}

static void print(const cJSON *o)
{
    const cJSON *part;
    printf("devices on %s, %s\n", json_get(o, "chip") ? string_of(o, "chip") : "this machine",
           string_of(o, "basis"));
    cJSON_ArrayForEach(part, json_get(o, "parts"))
    {
        terminal_put(stdout, string_of(part, "model"));
        fputs(", ", stdout);
        terminal_put(stdout, string_of(part, "function"));
        printf(": %d ops on the engine, ", int_of(part, "engine"));
        if (json_get(part, "gpu"))
            printf("%d on the GPU, ", int_of(part, "gpu"));
        printf("%d on the processor, %d before the engine begins; %d segment%s", int_of(part, "processor"),
               int_of(part, "prologue"), int_of(part, "segments"), int_of(part, "segments") == 1 ? "" : "s");
        if (json_get(part, "estimated_ms"))
            printf(", about %.2f ms", cJSON_GetNumberValue(json_get(part, "estimated_ms")));
        putchar('\n');
        print_reasons(part);
    }
}

/* ---- what Core ML plans ---- */

/* Rows of one function, with our own reading of the same op beside them. */
struct planned {
    cJSON *operations;
    struct placement expected;
    char before[16]; /* device of the row before, leaving out what comes before the engine begins */
    int n_engine, n_gpu, n_processor, n_prologue, n_segments;
};

static const struct place_op *expected_op(const struct planned *p, const char *output)
{
    for (int i = 0; i < p->expected.n_ops; i++)
        if (p->expected.ops[i].op->n_outputs > 0 &&
            strcmp(p->expected.ops[i].op->outputs[0]->name, output) == 0)
            return &p->expected.ops[i];
    return NULL;
}

static bool add_row(void *context, const struct coreml_plan_op *row, struct err *e)
{
    struct planned *p = context;
    const char *type = strrchr(row->type, '.');
    const struct place_op *expected = expected_op(p, row->output);
    (void)e;
    if (!row->preferred[0]) /* folded when it is loaded */
        return true;
    bool on_engine = strcmp(row->preferred, "engine") == 0, is_prologue = expected && expected->is_prologue;
    p->n_engine += on_engine;
    p->n_gpu += strcmp(row->preferred, "gpu") == 0;
    p->n_prologue += !on_engine && is_prologue;
    p->n_processor += strcmp(row->preferred, "processor") == 0 && !is_prologue;
    if (on_engine || !is_prologue) {
        p->n_segments += strcmp(p->before, row->preferred) != 0;
        snprintf(p->before, sizeof p->before, "%s", row->preferred);
    }
    cJSON *op = cJSON_CreateObject();
    cJSON_AddStringToObject(op, "operation", row->output);
    cJSON_AddStringToObject(op, "type", type ? type + 1 : row->type);
    cJSON_AddStringToObject(op, "device", row->preferred);
    if (!on_engine)
        cJSON_AddStringToObject(op, "reason",
                                row->on_engine                 ? "the engine could, another device is planned"
                                : expected && expected->reason ? expected->reason
                                                               : "not supported there, by Core ML");
    if (!isnan(row->cost))
        cJSON_AddNumberToObject(op, "cost", row->cost);
    cJSON_AddItemToArray(p->operations, op);
    return true;
}

static bool plan_function(cJSON *parts, const struct device_model *m, const char *compiled, int i,
                          enum coreml_units units, const struct chip *chip, struct err *e)
{
    const struct mil_function *f = m->model->program->functions[i];
    struct planned p = {0};
    cJSON *one = cJSON_CreateObject();
    place_function(&p.expected, f, chip);
    cJSON_AddItemToArray(parts, one);
    cJSON_AddStringToObject(one, "model", m->name);
    cJSON_AddStringToObject(one, "function", f->name);
    p.operations = cJSON_CreateArray();
    bool ok =
        coreml_plan(compiled, m->model->description.has_functions ? f->name : NULL, units, add_row, &p, e);
    cJSON_AddNumberToObject(one, "engine", p.n_engine);
    cJSON_AddNumberToObject(one, "gpu", p.n_gpu);
    cJSON_AddNumberToObject(one, "processor", p.n_processor);
    cJSON_AddNumberToObject(one, "prologue", p.n_prologue);
    cJSON_AddNumberToObject(one, "segments", p.n_segments);
    cJSON_AddItemToObject(one, "operations", p.operations);
    placement_fini(&p.expected);
    return ok;
}

static bool plan_by_coreml(cJSON *o, const char *path, const char *compute_units, struct err *e)
{
    struct device_models m = {0};
    const struct chip *chip;
    enum coreml_units units;
    bool ok = coreml_check(e) && coreml_units_find(compute_units, &units, e) && chip_find(&chip, "M4", e) &&
              device_models_open(&m, path, false, e);
    cJSON_AddNumberToObject(o, "schema", 1);
    cJSON_AddStringToObject(o, "path", path);
    cJSON_AddStringToObject(o, "basis", "as Core ML plans it; what runs can differ");
    cJSON_AddStringToObject(o, "compute_units", compute_units ? compute_units : "cpu-and-ane");
    cJSON *parts = cJSON_AddArrayToObject(o, "parts");
    for (int i = 0; ok && i < m.n; i++) {
        const char *file = m.list[i].model->path;
        char *made = NULL;
        ok = has_suffix(file, ".mlmodelc") || coreml_compile(file, &made, e);
        for (int k = 0; ok && k < m.list[i].model->program->n_functions; k++)
            ok = plan_function(parts, &m.list[i], made ? made : file, k, units, chip, e);
        if (made)
            (void)!path_remove_tree(made, NULL);
        free(made);
    }
    device_models_close(&m);
    return ok;
}

static bool plan_by_rules(cJSON *o, const char *path, const char *name, struct err *e)
{
    const struct chip *chip;
    return chip_find(&chip, name ? name : "M4", e) && place_path(o, path, chip, e);
}

bool check_plan(struct cli *c, const struct package_options *p, const char *chip, bool json, struct err *e)
{
    const char *path = p->path;
    bool by_coreml = p->backend && strcmp(p->backend, "coreml") == 0;
    cJSON *o = cJSON_CreateObject();
    bool ok = path || err_set(e, ERR_USAGE, "expected a package folder or a model");
    ok = ok && package_backend_check(p->backend, p->compute_units, e) &&
         (!by_coreml || !chip ||
          err_set(e, ERR_USAGE, "--chip is of plans by rules: Core ML plans for this machine")) &&
         cli_resolve(c, &path, e) &&
         (by_coreml ? plan_by_coreml(o, path, p->compute_units, e) : plan_by_rules(o, path, chip, e));
    char *text = ok && json ? cJSON_Print(o) : NULL;
    if (text) {
        cli_put_json(text, strlen(text));
        putchar('\n');
    } else if (ok && !json) {
        print(o);
    } else if (ok) {
        ok = err_set(e, ERR_NOMEM, "the report does not fit into memory");
    }
    cJSON_free(text);
    cJSON_Delete(o);
    return ok && cli_flush(e);
}
