/* milkit plan: the steps that the engine makes of a package or of one model. */
#include <stdlib.h>
#include <string.h>
#include "cli/package_options.h"
#include "format/mlpackage.h"

#define SYNOPSIS "DIR|MODEL [--function F] [--measure]"

/* Runs a few calls so that the listing can show shares of the time. */
static bool measure(struct session *s, const struct model *m, struct err *e)
{
    int64_t n = m->batch_size + 8 < m->context_length ? m->batch_size + 8 : m->context_length;
    int32_t *ids = xcalloc((size_t)n, sizeof *ids);
    bool ok;
    session_measure(s);
    for (int64_t i = 0; i < n; i++)
        ids[i] = (int32_t)(i % m->vocab_size);
    ok = session_feed(s, ids, (size_t)n, SESSION_CONTRACT, NULL, NULL, NULL, e);
    free(ids);
    return ok;
}

static bool plan_package(struct cli *c, const struct package_options *o, bool with_times, struct err *e)
{
    struct model *m = NULL;
    struct session *s = NULL;
    bool ok = package_options_open(c, o, &m, e) && session_new(&s, m, e) && (!with_times || measure(s, m, e));
    if (ok) {
        printf("engine plan (%s, %d thread%s); Linux runs no Neural Engine, so no devices are shown\n",
               m->kernels->name, pool_threads(m->pool), pool_threads(m->pool) == 1 ? "" : "s");
        session_print_plans(s, stdout, false);
        if (m->has_prefill)
            session_print_plans(s, stdout, true);
    }
    session_free(s);
    model_close(m);
    return ok && cli_flush(e);
}

static bool plan_model(struct cli *c, const char *path, const char *function, const struct package_options *o,
                       struct err *e)
{
    struct mil_model *m = NULL;
    struct stop stop = {.flag = c->log.cancel};
    struct engine_options options = {.stop = &stop};
    bool ok = package_precision(o->precision, &options.precision, e) && mil_model_open(&m, path, 0, e),
         found = false;
    for (int i = 0; ok && i < m->program->n_functions; i++) {
        const struct mil_function *f = m->program->functions[i];
        const struct mil_function_description *d = mil_function_description_find(m, f->name);
        struct engine_shape shapes[16];
        struct engine_plan *p = NULL;
        int n = 0;
        if (function && strcmp(function, f->name) != 0)
            continue;
        found = true;
        for (int k = 0; d && k < d->n_inputs && n < 16; k++) { /* flexible inputs: their default shape */
            const struct mil_feature *in = &d->inputs[k];
            if (in->kind != MIL_FEATURE_ARRAY || in->rank > MIL_RANK_MAX ||
                (in->n_enumerated == 0 && in->n_ranges == 0))
                continue;
            shapes[n] = (struct engine_shape){.input = in->name, .rank = in->rank};
            memcpy(shapes[n++].dims, in->shape, sizeof(int64_t) * (size_t)in->rank);
        }
        ok = engine_plan_new(&p, m, f->name, shapes, n, &options, e);
        if (ok)
            engine_plan_print(p, NULL, stdout);
        engine_plan_free(p);
    }
    if (ok && !found)
        ok = err_set(e, ERR_USAGE, "%s: no function %s", path, function ? function : "at all");
    mil_model_close(m);
    return ok && cli_flush(e);
}

int cmd_plan(struct cli *c, int argc, char **argv)
{
    struct package_options package = {0};
    struct err e = {0};
    const char *positional[1], *function = NULL;
    int n_positional = 0;
    bool help = false, with_times = false;
    const struct cli_option options[] = {
        {"--function", CLI_STRING, &function, "F", "of one model: only this function"},
        {"--measure", CLI_FLAG, &with_times, NULL,
         "of a package: run it and show each step's share of the time"},
        PACKAGE_OPTION_ROWS(package),
    };
    if (!cli_parse(c, argc, argv, options, (int)(sizeof options / sizeof *options), positional, 1,
                   &n_positional, SYNOPSIS, &help, &e))
        return cli_fail(c, &e, NULL);
    if (help)
        return 0;
    if (n_positional)
        package.path = positional[0];
    bool ok = package.path || err_set(&e, ERR_USAGE, "expected a package folder or a model");
    if (ok) {
        enum model_path_kind kind = model_path_kind(package.path);
        if (kind == MODEL_PATH_MLPACKAGE || kind == MODEL_PATH_MLMODELC || kind == MODEL_PATH_MLMODEL)
            ok = plan_model(c, package.path, function, &package, &e);
        else
            ok = (!function ||
                  err_set(&e, ERR_USAGE, "--function: expected one model, found %s", package.path)) &&
                 plan_package(c, &package, with_times, &e);
    }
    return ok ? 0 : cli_fail(c, &e, NULL);
}
