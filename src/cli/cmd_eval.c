/* milkit eval: perplexity of a text, in windows that start with an empty context. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "cli/package_options.h"

#define SYNOPSIS "DIR --text FILE [OPTIONS]"
#define TEXT_BYTES_MAX ((size_t)1 << 30)

struct eval {
    const int32_t *ids; /* of the window */
    size_t n;
    int64_t vocab_size;
    double nll, nll_squared; /* sums over predicted tokens, nats */
    int64_t n_predicted;
};

/* Negative log likelihood of token `next` under logits, in double. */
static double token_nll(const float *logits, int64_t n, int32_t next)
{
    float best = -INFINITY;
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        best = logits[i] > best ? logits[i] : best;
    for (int64_t i = 0; i < n; i++)
        sum += exp((double)logits[i] - (double)best);
    return log(sum) + (double)best - (double)logits[next];
}

static bool score(void *context, int64_t position, const float *logits, struct err *e)
{
    struct eval *v = context;
    if ((size_t)position + 1 >= v->n)
        return true;
    double nll = token_nll(logits, v->vocab_size, v->ids[position + 1]);
    if (!isfinite(nll))
        return err_set(
            e, ERR_MISMATCH,
            "token %d at position %lld of a window has no finite likelihood: the package's logits are not "
            "numbers, or rule the token out",
            v->ids[position + 1], (long long)position + 1);
    v->nll += nll;
    v->nll_squared += nll * nll;
    v->n_predicted++;
    return true;
}

static bool evaluate(struct cli *c, struct model *m, const char *file, int64_t window, int64_t n_max,
                     bool json, struct err *e)
{
    struct session *s = NULL;
    struct tokenizer *t = NULL;
    struct ids ids = {0};
    struct progress progress;
    char *text = NULL;
    size_t bytes;
    bool ok = false;
    if (!cli_read_text(file, &text, &bytes, TEXT_BYTES_MAX, e) || !package_tokenizer(m->package, &t, e) ||
        !package_encode(m, t, text, bytes, &ids, e) || !session_new(&s, m, e))
        goto done;
    size_t n = n_max > 0 && (size_t)n_max < ids.n ? (size_t)n_max : ids.n;
    if (window == 0)
        window = m->context_length < 256 ? m->context_length : 256;
    if (window < 2 || window > m->context_length) {
        err_set(e, ERR_USAGE, "--window: expected 2 to %lld (the context), found %lld",
                (long long)m->context_length, (long long)window);
        goto done;
    }
    if (n < 2) {
        err_set(e, ERR_USAGE, "%s: expected at least two tokens, found %zu", file, n);
        goto done;
    }
    struct eval v = {.vocab_size = m->vocab_size};
    double start = clock_seconds();
    progress_begin(&progress, &c->log, "eval", "tokens", 1, (double)n);
    for (size_t at = 0; at < n; at += (size_t)window) {
        v.ids = ids.p + at;
        v.n = n - at < (size_t)window ? n - at : (size_t)window;
        session_reset(s);
        /* every position's logits are needed, which infer gives for every token */
        if (v.n >= 2 && !session_feed(s, v.ids, v.n - 1, SESSION_INFER_ONLY, score, &v, NULL, e))
            goto stop;
        progress_update(&progress, (double)(at + v.n), NULL);
        if (log_cancelled(&c->log, e))
            goto stop;
    }
    ok = true;
stop:
    progress_end(&progress);
    if (!ok)
        goto done;
    double mean = v.nll / (double)v.n_predicted;
    double variance = v.nll_squared / (double)v.n_predicted - mean * mean;
    double error = sqrt(variance > 0 ? variance / (double)v.n_predicted : 0);
    double perplexity = exp(mean), seconds = clock_seconds() - start;
    if (json)
        printf("{\"schema\": 1, \"perplexity\": %.6f, \"perplexity_standard_error\": %.6f, \"nll\": %.9f, "
               "\"predicted_tokens\": %lld, \"tokens\": %zu, \"window\": %lld, \"seconds\": %.3f}\n",
               perplexity, perplexity * error, mean, (long long)v.n_predicted, n, (long long)window, seconds);
    else
        printf("perplexity %.4f +- %.4f (%lld tokens predicted, windows of %lld, %.4f nats a token)\n",
               perplexity, perplexity * error, (long long)v.n_predicted, (long long)window, mean);
    ok = cli_flush(e);
done:
    session_free(s);
    tokenizer_free(t);
    ids_free(&ids);
    free(text);
    return ok;
}

int cmd_eval(struct cli *c, int argc, char **argv)
{
    struct package_options package = {0};
    struct err e = {0};
    struct model *m = NULL;
    const char *positional[1], *text = NULL;
    int64_t window = 0, n_max = 0;
    int n_positional = 0;
    bool help = false, json = false;
    const struct cli_option options[] = {
        {"--text,-f,--file", CLI_STRING, &text, "FILE", "the text (- reads stdin)"},
        {"--window", CLI_INT, &window, "N", "tokens of a window (256, or the context when that is smaller)"},
        {"--tokens", CLI_INT, &n_max, "N", "use only the first N tokens (0: all)"},
        {"--json", CLI_FLAG, &json, NULL, "one JSON object"},
        PACKAGE_OPTION_ROWS(package),
    };
    if (!cli_parse(c, argc, argv, options, (int)(sizeof options / sizeof *options), positional, 1,
                   &n_positional, SYNOPSIS, &help, &e))
        return cli_fail(c, &e, NULL);
    if (help)
        return 0;
    if (n_positional)
        package.path = positional[0];
    bool ok = text || err_set(&e, ERR_USAGE, "expected --text FILE");
    ok = ok &&
         (n_max >= 0 || err_set(&e, ERR_USAGE, "--tokens: expected 0 or more, found %lld", (long long)n_max));
    ok = ok && package_options_open(c, &package, &m, &e) && evaluate(c, m, text, window, n_max, json, &e);
    model_close(m);
    return ok ? 0 : cli_fail(c, &e, NULL);
}
