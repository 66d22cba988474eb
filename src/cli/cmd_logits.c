/* milkit logits: the logits of given tokens as a safetensors file or as JSON. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/json_text.h"
#include "cli/client.h"
#include "cli/tensor_file.h"

#define SYNOPSIS "DIR --tokens IDS -o OUT.safetensors [--prefill] [--json]"
#define JSON_ROW_BYTES_MAX ((size_t)1 << 30)
#define N_BEST 5

struct logits_options {
    const char *tokens, *output; /* output NULL: --json alone */
    bool prefill, json, force;
};

struct collected {
    int64_t vocab_size;
    int32_t *tokens; /* [capacity] */
    size_t n, capacity;
    int32_t *positions; /* [n] */
    float *logits;      /* [n, vocab_size] */
};

static bool collect(void *context, int64_t position, const float *logits, size_t n)
{
    struct collected *c = context;
    if (c->n == c->capacity)
        return false; /* more positions than tokens: the library's fault */
    c->positions[c->n] = (int32_t)position;
    memcpy(c->logits + c->n * n, logits, sizeof *logits * n);
    c->n++;
    return true;
}

static bool write_file(struct collected *c, const char *output, bool force, struct err *e)
{
    struct tensor_writer *w = tensor_writer_new();
    const mk_tensor positions = {.size = sizeof positions,
                                 .type = MK_I32,
                                 .rank = 1,
                                 .dims = {(int64_t)c->n},
                                 .data = c->positions},
                    logits = {.size = sizeof logits,
                              .type = MK_F32,
                              .rank = 2,
                              .dims = {(int64_t)c->n, c->vocab_size},
                              .data = c->logits};
    tensor_writer_add(w, "positions", &positions);
    tensor_writer_add(w, "logits", &logits);
    bool ok = tensor_writer_write(w, output, force, e);
    tensor_writer_free(w);
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
static bool print_json(const struct collected *c, const mk_package *p, const char *output, struct err *e)
{
    const char *path = mk_package_path(p);
    struct buf b;
    bool ok = true;
    buf_init(&b, JSON_ROW_BYTES_MAX);
    buf_puts(&b, "{\"schema\": 1");
    json_put_key(&b, "package");
    json_put_string(&b, path, strlen(path));
    if (output) {
        json_put_key(&b, "file");
        json_put_string(&b, output, strlen(output));
    }
    buf_printf(&b, ", \"vocab_size\": %lld, \"tokens\": ", (long long)c->vocab_size);
    json_put_ids(&b, c->tokens, c->capacity);
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

static bool compute(struct cli *c, mk_package *p, const struct logits_options *o, struct collected *x,
                    struct err *e)
{
    mk_session *s = NULL;
    mk_error *error = NULL;
    struct client_call call;
    if (!client_take(mk_session_new(&s, p, &error), &error, e))
        return false;
    mk_status status = mk_session_feed(s, x->tokens, x->capacity, o->prefill ? 0 : MK_FEED_SINGLY, collect, x,
                                       client_call_begin(&call, c, "logits", true), &error);
    client_call_end(&call);
    mk_session_free(s);
    return client_take(status, &error, e);
}

static bool make_logits(struct cli *c, mk_package *p, const struct logits_options *o, struct err *e)
{
    struct collected x = {.vocab_size = mk_package_vocab_size(p)};
    size_t bytes;
    bool ok = cli_read_vocabulary_ids(o->tokens, x.vocab_size, &x.tokens, &x.capacity, e);
    if (ok && (int64_t)x.capacity > mk_package_context_length(p))
        ok = err_set(e, ERR_LIMIT, "%zu tokens, but the package's context holds %lld", x.capacity,
                     (long long)mk_package_context_length(p));
    if (ok && !size_mul(x.capacity * sizeof(float), (size_t)x.vocab_size, &bytes))
        ok = err_set(e, ERR_LIMIT, "logits of %zu tokens do not fit in memory", x.capacity);
    x.positions = xcalloc(ok ? x.capacity : 1, sizeof *x.positions);
    ok = ok && (x.logits = mem_try_alloc(bytes, e)) && compute(c, p, o, &x, e) &&
         (!o->output || write_file(&x, o->output, o->force, e)) &&
         (!o->json || print_json(&x, p, o->output, e));
    mem_free(x.logits);
    free(x.positions);
    free(x.tokens);
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
    mk_library *library = NULL;
    mk_package *p = NULL;
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
    bool ok = check_options(&o, &e) && client_open_package(c, &package, MK_TEXT_NONE, &library, &p, &e) &&
              make_logits(c, p, &o, &e);
    mk_package_close(p);
    mk_library_close(library);
    return ok ? 0 : cli_fail(c, &e, NULL);
}
