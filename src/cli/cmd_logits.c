/* milkit logits: the logits of given tokens as a safetensors file or as JSON. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cli/package_options.h"
#include "format/json.h"
#include "format/safetensors.h"

#define SYNOPSIS "DIR --tokens IDS -o OUT.safetensors [--prefill] [--json]"
#define JSON_ROW_BYTES_MAX ((size_t)1 << 30)
#define N_BEST 5

struct logits_options {
    const char *tokens, *output; /* output NULL: --json alone */
    bool prefill, json, force;
};

struct collected {
    int64_t vocab_size;
    size_t n, capacity;
    int32_t *positions; /* [n] */
    float *logits;      /* [n, vocab_size] */
};

static bool collect(void *context, int64_t position, const float *logits, struct err *e)
{
    struct collected *c = context;
    if (c->n == c->capacity)
        return err_set(e, ERR_BUG, "more positions than tokens");
    c->positions[c->n] = (int32_t)position;
    memcpy(c->logits + c->n * (size_t)c->vocab_size, logits, sizeof *logits * (size_t)c->vocab_size);
    c->n++;
    return true;
}

static bool write_file(const struct collected *c, const char *output, bool force, struct err *e)
{
    struct st_writer *w = st_writer_new();
    const int64_t shape[2] = {(int64_t)c->n, c->vocab_size};
    st_writer_add(w, "positions", ST_I32, shape, 1, c->positions);
    st_writer_add(w, "logits", ST_F32, shape, 2, c->logits);
    bool ok = strcmp(output, "-") == 0 ? st_writer_print(w, stdout, e) && cli_flush(e)
                                       : st_writer_write(w, output, force, e);
    st_writer_free(w);
    return ok;
}

/* The best ids of a row, the best first, the lower id among equals. */
static void put_best(struct buf *b, const float *row, int64_t n)
{
    int32_t best[N_BEST];
    int n_best = 0;
    for (int64_t i = 0; i < n; i++) {
        int at = n_best;
        while (at > 0 && row[i] > row[best[at - 1]])
            at--;
        if (at == N_BEST || !isfinite(row[i]))
            continue;
        n_best += n_best < N_BEST;
        memmove(best + at + 1, best + at, sizeof *best * (size_t)(n_best - at - 1));
        best[at] = (int32_t)i;
    }
    buf_putc(b, '[');
    for (int i = 0; i < n_best; i++) {
        buf_printf(b, "%s{\"id\": %d, \"logit\": ", i ? ", " : "", best[i]);
        json_put_double(b, (double)row[best[i]]);
        buf_putc(b, '}');
    }
    buf_putc(b, ']');
}

static void put_row(struct buf *b, const float *row, int64_t n)
{
    buf_putc(b, '[');
    for (int64_t i = 0; i < n; i++) {
        buf_puts(b, i ? ", " : "");
        json_put_double(b, (double)row[i]);
    }
    buf_putc(b, ']');
}

/* Row by row, so that a whole report needs no memory beside the logits. */
static bool print_json(const struct collected *c, const struct model *m, const struct ids *ids,
                       const char *output, struct err *e)
{
    struct buf b;
    bool ok = true;
    buf_init(&b, JSON_ROW_BYTES_MAX);
    buf_puts(&b, "{\"schema\": 1");
    json_put_key(&b, "package");
    json_put_string(&b, m->package->path, strlen(m->package->path));
    if (output) {
        json_put_key(&b, "file");
        json_put_string(&b, output, strlen(output));
    }
    buf_printf(&b, ", \"vocab_size\": %lld, \"tokens\": ", (long long)c->vocab_size);
    json_put_ids(&b, ids->p, ids->n);
    buf_puts(&b, ", \"positions\": [");
    for (size_t i = 0; i < c->n && ok; i++) {
        const float *row = c->logits + i * (size_t)c->vocab_size;
        buf_printf(&b, "%s\n {\"position\": %d, \"best\": ", i ? "," : "", c->positions[i]);
        put_best(&b, row, c->vocab_size);
        if (!output) {
            json_put_key(&b, "logits");
            put_row(&b, row, c->vocab_size);
        }
        buf_putc(&b, '}');
        ok = !b.failed || err_set(e, ERR_LIMIT, "a row of more than %zu bytes", JSON_ROW_BYTES_MAX);
        if (ok)
            cli_put_json(b.p, b.n);
        buf_clear(&b);
        ok = ok && cli_flush(e);
    }
    if (ok)
        fputs("]}\n", stdout);
    buf_fini(&b);
    return ok && cli_flush(e);
}

static bool make_logits(struct cli *c, struct model *m, const struct logits_options *o, struct err *e)
{
    struct session *s = NULL;
    struct collected collected = {.vocab_size = m->vocab_size};
    struct progress progress;
    struct ids ids = {0};
    size_t bytes;
    bool ok = false;
    if (!package_read_ids(m, o->tokens, &ids, e))
        goto done;
    size_t n = ids.n;
    if ((int64_t)n > m->context_length) {
        err_set(e, ERR_LIMIT, "%zu tokens, but the package's context holds %lld", n,
                (long long)m->context_length);
        goto done;
    }
    collected.capacity = n;
    collected.positions = xcalloc(n, sizeof *collected.positions);
    if (!size_mul(n * sizeof(float), (size_t)m->vocab_size, &bytes)) {
        err_set(e, ERR_LIMIT, "logits of %zu tokens do not fit in memory", n);
        goto done;
    }
    if (!(collected.logits = mem_try_alloc(bytes, e)) || !session_new(&s, m, e))
        goto done;
    progress_begin(&progress, &c->log, "logits", "tokens", 1, (double)n);
    bool fed = session_feed(s, ids.p, n, o->prefill ? SESSION_CONTRACT : SESSION_INFER_ONLY, collect,
                            &collected, &progress, e);
    progress_end(&progress);
    ok = fed && (!o->output || write_file(&collected, o->output, o->force, e)) &&
         (!o->json || print_json(&collected, m, &ids, o->output, e));
done:
    session_free(s);
    mem_free(collected.logits);
    free(collected.positions);
    ids_free(&ids);
    return ok;
}

static bool check_options(const struct logits_options *o, struct err *e)
{
    bool is_stdout = o->output && strcmp(o->output, "-") == 0;
    if (!o->tokens || !(o->output || o->json))
        return err_set(e, ERR_USAGE, "expected --tokens IDS and -o FILE or --json");
    if (is_stdout && o->json)
        return err_set(e, ERR_USAGE, "-o - and --json: both go to stdout");
    if (is_stdout && isatty(STDOUT_FILENO) == 1)
        return err_set(e, ERR_USAGE, "-o -: stdout is a terminal; expected a file or a pipe");
    return cli_check_output("-o", o->output, true, o->force, e);
}

int cmd_logits(struct cli *c, int argc, char **argv)
{
    struct package_options package = {0};
    struct err e = {0};
    struct model *m = NULL;
    struct logits_options o = {0};
    int status;
    const struct cli_option options[] = {
        {"--tokens", CLI_TEXT, &o.tokens, "IDS", "token ids: 1,2,3 or @FILE"},
        {"-o,--output", CLI_STRING, &o.output, "FILE",
         "where the tensors `positions` and `logits` go (- is stdout)"},
        {"--force", CLI_FLAG, &o.force, NULL, "replace an existing file"},
        {"--prefill", CLI_FLAG, &o.prefill, NULL,
         "the contract's call sequence, only the positions that it yields"},
        {"--json", CLI_FLAG, &o.json, NULL,
         "one JSON object: the best ids, and all logits unless -o takes them"},
        PACKAGE_OPTION_ROWS(package),
    };
    if (!package_parse(c, argc, argv, options, (int)(sizeof options / sizeof *options), SYNOPSIS, &package,
                       &status))
        return status;
    bool ok = check_options(&o, &e) && package_options_open(c, &package, &m, &e) &&
              model_need_logits(m, "logits", &e) && make_logits(c, m, &o, &e);
    model_close(m);
    return ok ? 0 : cli_fail(c, &e, NULL);
}
