/* milkit logits: the logits of given tokens as a safetensors file. */
#include <stdlib.h>
#include <string.h>
#include "cli/package_options.h"
#include "format/safetensors.h"

#define SYNOPSIS "DIR --tokens IDS -o OUT.safetensors [--prefill]"

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

static bool write_logits(struct cli *c, struct model *m, const char *tokens, const char *output, bool prefill,
                         struct err *e)
{
    struct session *s = NULL;
    struct st_writer *w = NULL;
    struct collected collected = {.vocab_size = m->vocab_size};
    struct progress progress;
    struct ids ids = {0};
    size_t bytes;
    bool ok = false;
    if (!package_read_ids(m, tokens, &ids, e))
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
    bool fed = session_feed(s, ids.p, n, prefill ? SESSION_CONTRACT : SESSION_INFER_ONLY, collect, &collected,
                            &progress, e);
    progress_end(&progress);
    if (!fed)
        goto done;
    w = st_writer_new();
    const int64_t shape[2] = {(int64_t)collected.n, m->vocab_size};
    st_writer_add(w, "positions", ST_I32, shape, 1, collected.positions);
    st_writer_add(w, "logits", ST_F32, shape, 2, collected.logits);
    ok = st_writer_write(w, output, e);
done:
    st_writer_free(w);
    session_free(s);
    mem_free(collected.logits);
    free(collected.positions);
    ids_free(&ids);
    return ok;
}

int cmd_logits(struct cli *c, int argc, char **argv)
{
    struct package_options package = {0};
    struct err e = {0};
    struct model *m = NULL;
    const char *positional[1], *tokens = NULL, *output = NULL;
    int n_positional = 0;
    bool help = false, prefill = false;
    const struct cli_option options[] = {
        {"--tokens", CLI_STRING, &tokens, "IDS", "token ids: 1,2,3 or @FILE"},
        {"-o,--output", CLI_STRING, &output, "FILE", "where the tensors `positions` and `logits` go"},
        {"--prefill", CLI_FLAG, &prefill, NULL,
         "the contract's call sequence, only the positions that it yields"},
        PACKAGE_OPTION_ROWS(package),
    };
    if (!cli_parse(c, argc, argv, options, (int)(sizeof options / sizeof *options), positional, 1,
                   &n_positional, SYNOPSIS, &help, &e))
        return cli_fail(c, &e, NULL);
    if (help)
        return 0;
    if (n_positional)
        package.path = positional[0];
    bool ok = (tokens && output) || err_set(&e, ERR_USAGE, "expected --tokens IDS and -o FILE");
    ok = ok && package_options_open(c, &package, &m, &e) && model_need_logits(m, "logits", &e) &&
         write_logits(c, m, tokens, output, prefill, &e);
    model_close(m);
    return ok ? 0 : cli_fail(c, &e, NULL);
}
