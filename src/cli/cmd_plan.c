/* milkit plan: the steps that the engine makes of a package or of one model. */
#include <stdlib.h>
#include <string.h>
#include "cli/package_options.h"
#include "format/json.h"
#include "format/mlpackage.h"

#define SYNOPSIS "DIR|MODEL [--function F] [--measure] [--json]"
#define JSON_BYTES_MAX ((size_t)1 << 30)

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

/* Where plans go: a listing, or the members of a JSON object. */
struct listing {
    const struct backend *backend; /* one that tells plans */
    struct buf *json;              /* NULL: a listing on stdout */
    int n_chunks;
    int n; /* plans so far */
};

/* A session_function_fn; part "": of a single model. */
static void list_plan(void *context, const char *part, int i_chunk, int64_t n_tokens,
                      const struct backend_function *f, const struct backend_run *measured)
{
    struct listing *l = context;
    if (l->json) {
        buf_puts(l->json, l->n++ ? ",\n {" : "\n {");
        if (part[0]) {
            json_put_key(l->json, "part");
            json_put_string(l->json, part, strlen(part));
            buf_printf(l->json, ", \"tokens\": %lld", (long long)n_tokens);
        }
        if (strcmp(part, "chunk") == 0)
            buf_printf(l->json, ", \"chunk\": %d", i_chunk + 1);
        l->backend->put_plan(f, measured, l->json);
        buf_putc(l->json, '}');
        return;
    }
    if (strcmp(part, "chunk") == 0)
        printf("chunk %d of %d, ", i_chunk + 1, l->n_chunks);
    else if (strcmp(part, "embeddings") == 0)
        printf("embeddings, %lld token%s: ", (long long)n_tokens, n_tokens == 1 ? "" : "s");
    else if (strcmp(part, "head") == 0)
        printf("LM head, ");
    l->backend->print_plan(f, measured, stdout);
}

static void begin_json(struct buf *json, const char *path, const char *kernels, int n_threads,
                       const char *precision)
{
    buf_puts(json, "{\"schema\": 1");
    json_put_key(json, "path");
    json_put_string(json, path, strlen(path));
    buf_printf(json, ", \"kernels\": \"%s\"", kernels);
    if (n_threads > 0)
        buf_printf(json, ", \"threads\": %d", n_threads);
    buf_printf(json, ", \"precision\": \"%s\", \"functions\": [", precision ? precision : "default");
}

static bool tells_plans(const struct backend *b, struct err *e)
{
    return b->print_plan || err_set(e, ERR_UNSUPPORTED, "the backend %s does not tell its plans", b->name);
}

static bool plan_package(struct cli *c, const struct package_options *o, bool with_times, struct buf *json,
                         struct err *e)
{
    struct model *m = NULL;
    struct session *s = NULL;
    bool ok = package_options_open(c, o, &m, e) && tells_plans(m->backend, e) && session_new(&s, m, e) &&
              (!with_times || measure(s, m, e));
    if (ok) {
        struct listing l = {.backend = m->backend, .json = json, .n_chunks = m->n_chunks};
        int n_threads = pool_threads(m->pool);
        if (json)
            begin_json(json, m->package->path, m->device, n_threads, o->precision);
        else
            printf("engine plan (%s, %d thread%s); Linux runs no Neural Engine, so no devices are shown\n",
                   m->device, n_threads, n_threads == 1 ? "" : "s");
        session_each_function(s, false, list_plan, &l);
        if (m->has_prefill)
            session_each_function(s, true, list_plan, &l);
    }
    session_free(s);
    model_close(m);
    return ok;
}

static bool plan_model(struct cli *c, const char *path, const char *function, const struct package_options *o,
                       struct buf *json, struct err *e)
{
    struct mil_model *m = NULL;
    struct stop stop = {.flag = c->log.cancel};
    struct backend_options options = {
        .stop = &stop, .emulation = o->emulation, .compute_units = o->compute_units};
    struct backend_package *shared = NULL;
    struct listing l = {.json = json};
    struct backend_function **made = NULL; /* all live to the end: so they cost what the package may */
    int n_made = 0;
    bool ok = package_precision(o->precision, &options.precision, e) &&
              backend_find(&l.backend, o->backend, e) && tells_plans(l.backend, e) &&
              l.backend->open(&shared, &options, e) && mil_model_open(&m, path, 0, e),
         found = false;
    if (ok) {
        l.backend->add_program(shared, m);
        made = xcalloc((size_t)m->program->n_functions + 1, sizeof *made);
    }
    if (ok && json)
        begin_json(json, path, shared->device, 0, o->precision);
    for (int i = 0; ok && i < m->program->n_functions; i++) {
        const struct mil_function *f = m->program->functions[i];
        const struct mil_function_description *d = mil_function_description_find(m, f->name);
        const struct backend_source source = {.mil = m, .path = path};
        struct mil_input_shape shapes[16];
        int n = 0;
        if (function && strcmp(function, f->name) != 0)
            continue;
        found = true;
        for (int k = 0; d && k < d->n_inputs && n < 16; k++) { /* flexible inputs: their default shape */
            const struct mil_feature *in = &d->inputs[k];
            if (in->kind != MIL_FEATURE_ARRAY || in->rank > MIL_RANK_MAX ||
                (in->n_enumerated == 0 && in->n_ranges == 0))
                continue;
            shapes[n] = (struct mil_input_shape){.input = in->name, .rank = in->rank};
            memcpy(shapes[n++].dims, in->shape, sizeof(int64_t) * (size_t)in->rank);
        }
        ok = l.backend->function_open(&made[n_made], shared, &source, f->name, shapes, n, e);
        if (ok)
            list_plan(&l, "", 0, 0, made[n_made++], NULL);
    }
    if (ok && !found)
        ok = err_set(e, ERR_USAGE, "%s: no function %s", path, function ? function : "at all");
    for (int i = 0; i < n_made; i++)
        l.backend->function_close(made[i]);
    free(made);
    mil_model_close(m);
    if (shared)
        l.backend->close(shared);
    return ok;
}

static bool plan_path(struct cli *c, const struct package_options *o, const char *function, bool with_times,
                      struct buf *json, struct err *e)
{
    enum model_path_kind kind = model_path_kind(o->path);
    if (kind == MODEL_PATH_MLPACKAGE || kind == MODEL_PATH_MLMODELC || kind == MODEL_PATH_MLMODEL)
        return plan_model(c, o->path, function, o, json, e);
    if (function)
        return err_set(e, ERR_USAGE, "--function: expected one model, found %s", o->path);
    return plan_package(c, o, with_times, json, e);
}

int cmd_plan(struct cli *c, int argc, char **argv)
{
    struct package_options package = {0};
    struct err e = {0};
    const char *function = NULL;
    int status;
    bool with_times = false, with_json = false;
    const struct cli_option options[] = {
        {"--function", CLI_STRING, &function, "F", "of one model: only this function"},
        {"--measure", CLI_FLAG, &with_times, NULL,
         "of a package: run it and show each step's share of the time"},
        {"--json", CLI_FLAG, &with_json, NULL, "one JSON object"},
        PACKAGE_OPTION_ROWS(package),
    };
    if (!package_parse(c, argc, argv, options, (int)(sizeof options / sizeof *options), SYNOPSIS, &package,
                       &status))
        return status;
    bool ok = package.path || err_set(&e, ERR_USAGE, "expected a package folder or a model");
    struct buf json;
    buf_init(&json, JSON_BYTES_MAX);
    ok = ok && plan_path(c, &package, function, with_times, with_json ? &json : NULL, &e);
    if (ok && with_json) {
        buf_puts(&json, "]}\n");
        if (json.failed)
            ok = err_set(&e, ERR_LIMIT, "a plan of more than %zu bytes", JSON_BYTES_MAX);
        else
            cli_put_json(json.p, json.n);
    }
    buf_fini(&json);
    ok = ok && cli_flush(&e);
    return ok ? 0 : cli_fail(c, &e, NULL);
}
