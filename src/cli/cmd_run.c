/* milkit run: continue a prompt, token by token, on stdout. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "cli/package_options.h"
#include "runtime/sampler.h"

#define SYNOPSIS "DIR -p PROMPT [OPTIONS]"
#define PROMPT_BYTES_MAX ((size_t)64 << 20)
/* Prompts longer than this get a progress line. */
#define PROGRESS_TOKENS 256
/* Of options that were not given. */
#define UNSET (-1e300)
#define UNSET_INT INT64_MIN

struct run {
    struct package_options package;
    const char *prompt, *file, *tokens;
    int64_t n;
    bool stats, ignore_eos, greedy, echo, ids;
    double temperature, top_p, min_p, repeat_penalty;
    int64_t top_k, seed, repeat_last_n;
};

static bool read_prompt(struct run *r, const struct model *m, const struct tokenizer *t, struct ids *ids,
                        struct err *e)
{
    char *text = NULL;
    size_t bytes = 0;
    bool ok;
    if ((r->prompt != NULL) + (r->file != NULL) + (r->tokens != NULL) != 1)
        return err_set(e, ERR_USAGE, "expected one of -p PROMPT, -f FILE and --tokens IDS");
    if (r->tokens) {
        ok = cli_read_ids(r->tokens, &ids->p, &ids->n, e) && package_check_ids(m, ids->p, ids->n, e);
        ids->capacity = ids->n;
    } else if (r->file || strcmp(r->prompt, "-") == 0) {
        ok = cli_read_text(r->file ? r->file : "-", &text, &bytes, PROMPT_BYTES_MAX, e) &&
             package_encode(m, t, text, bytes, ids, e);
    } else {
        ok = package_encode(m, t, r->prompt, strlen(r->prompt), ids, e);
    }
    free(text);
    if (ok && ids->n == 0)
        ok = err_set(e, ERR_USAGE, "the prompt is empty: there is nothing to continue");
    return ok;
}

static bool make_sampler(const struct run *r, const struct model *m, struct sampler **out, struct err *e)
{
    const struct package_sampling *p = &m->package->sampling;
    bool recommended = m->package->has_sampling && p->do_sample;
    struct sampler_options o = {
        .greedy = r->greedy,
        .temperature = r->temperature != UNSET ? r->temperature
                       : recommended           ? p->temperature
                                               : 0,
        .top_k = r->top_k != UNSET_INT ? r->top_k
                 : recommended         ? p->top_k
                                       : 0,
        .top_p = r->top_p != UNSET ? r->top_p
                 : recommended     ? p->top_p
                                   : 1,
        .min_p = r->min_p,
        .repetition_penalty = r->repeat_penalty,
        .repetition_window = r->repeat_last_n,
        .seed = r->seed >= 0 ? (uint64_t)r->seed : (uint64_t)time(NULL) * 1000003u + (uint64_t)clock(),
    };
    return sampler_new(out, &o, m->vocab_size, m->kernels, e);
}

static bool print_token(const struct run *r, struct token_stream *stream, int32_t id, struct buf *text,
                        bool first, struct err *e)
{
    buf_clear(text);
    if (r->ids)
        buf_printf(text, first ? "%d" : ",%d", id);
    else if (!token_stream_push(stream, id, text, e))
        return false;
    if (text->n > 0)
        fwrite(text->p, 1, text->n, stdout);
    return cli_flush(e);
}

static bool generate(struct cli *c, struct run *r, struct model *m, struct tokenizer *t, struct err *e)
{
    struct session *s = NULL;
    struct sampler *sampler = NULL;
    struct token_stream *stream = NULL;
    struct ids ids = {0};
    struct buf text;
    struct progress progress;
    bool ok = false;
    const char *why = "";
    buf_init(&text, 1 << 20);
    if (!read_prompt(r, m, t, &ids, e) || !make_sampler(r, m, &sampler, e) || !session_new(&s, m, e))
        goto done;
    size_t n_prompt = ids.n;
    if ((int64_t)n_prompt > m->context_length) {
        err_set(e, ERR_LIMIT, "the prompt has %zu tokens, the package's context holds %lld", n_prompt,
                (long long)m->context_length);
        goto done;
    }
    if (t)
        stream = token_stream_new(t, true);
    if (r->echo)
        for (size_t i = 0; i < n_prompt; i++)
            if (!print_token(r, stream, ids.p[i], &text, i == 0, e))
                goto done;
    progress_begin(&progress, n_prompt > PROGRESS_TOKENS ? &c->log : NULL, "prompt", "tokens", 1,
                   (double)n_prompt);
    if (n_prompt <= PROGRESS_TOKENS)
        progress.log = NULL;
    double start = clock_seconds();
    bool fed = session_sync(s, ids.p, n_prompt, &progress, NULL, e);
    progress_end(&progress);
    if (!fed)
        goto done;
    double prompt_seconds = clock_seconds() - start;
    int64_t n = 0, limit = r->n >= 0 ? r->n : m->context_length;
    start = clock_seconds();
    for (;;) {
        if (n >= limit) {
            why = "length";
            break;
        }
        int32_t id = sampler_pick(sampler, session_logits(s), ids.p, ids.n);
        if (!r->ignore_eos && package_is_eos(m->package, id)) {
            why = "end of text";
            break;
        }
        ids_push(&ids, id);
        n++;
        if (!print_token(r, stream, id, &text, n == 1 && !r->echo, e))
            goto done;
        if (log_cancelled(&c->log, e))
            goto done;
        if (n >= limit) {
            why = "length";
            break;
        }
        if (session_position(s) >= m->context_length) {
            why = "context full";
            log_warn(&c->log, "the context of %lld tokens is full", (long long)m->context_length);
            break;
        }
        if (!session_feed(s, &id, 1, SESSION_CONTRACT, NULL, NULL, NULL, e))
            goto done;
    }
    double seconds = clock_seconds() - start;
    buf_clear(&text);
    if (stream && !r->ids && !token_stream_flush(stream, &text, e))
        goto done;
    if (text.n > 0)
        fwrite(text.p, 1, text.n, stdout);
    fputc('\n', stdout);
    if (!cli_flush(e))
        goto done;
    if (r->stats)
        fprintf(stderr,
                "prompt: %zu tokens, %.1f tokens/s; generated: %lld tokens, %.1f tokens/s; stopped: %s\n",
                n_prompt, (double)n_prompt / (prompt_seconds > 0 ? prompt_seconds : 1e-9), (long long)n,
                (double)n / (seconds > 0 ? seconds : 1e-9), why);
    ok = true;
done:
    if (!ok && e->code == ERR_CANCELLED)
        fputc('\n', stdout);
    buf_fini(&text);
    token_stream_free(stream);
    sampler_free(sampler);
    session_free(s);
    ids_free(&ids);
    return ok;
}

int cmd_run(struct cli *c, int argc, char **argv)
{
    struct run r = {
        .n = 128, .temperature = UNSET, .top_p = UNSET, .top_k = UNSET_INT, .seed = -1, .repeat_penalty = 1};
    struct err e = {0};
    struct model *m = NULL;
    struct tokenizer *t = NULL;
    const char *positional[1];
    int n_positional = 0;
    bool help = false;
    const struct cli_option options[] = {
        {"-p,--prompt", CLI_STRING, &r.prompt, "TEXT", "the prompt (- reads stdin)"},
        {"-f,--file", CLI_STRING, &r.file, "FILE", "read the prompt from a file"},
        {"--tokens", CLI_STRING, &r.tokens, "IDS", "the prompt as ids: 1,2,3 or @FILE"},
        {"-n,--max-tokens,--predict", CLI_INT, &r.n, "N",
         "tokens to generate (128; -1: until the context is full)"},
        {"--greedy", CLI_FLAG, &r.greedy, NULL, "always the most likely token"},
        {"--temp,--temperature", CLI_DOUBLE, &r.temperature, "T", "temperature (the package's, else greedy)"},
        {"--top-k", CLI_INT, &r.top_k, "K", "choose among the K best"},
        {"--top-p", CLI_DOUBLE, &r.top_p, "P", "choose among the best that make up P"},
        {"--min-p", CLI_DOUBLE, &r.min_p, "P", "drop tokens below P times the best"},
        {"--repeat-penalty", CLI_DOUBLE, &r.repeat_penalty, "X", "penalty on tokens seen before (1: none)"},
        {"--repeat-last-n", CLI_INT, &r.repeat_last_n, "N", "how many tokens count as seen before (0: all)"},
        {"-s,--seed", CLI_INT, &r.seed, "N", "seed of the random choices"},
        {"--ignore-eos", CLI_FLAG, &r.ignore_eos, NULL, "do not stop at the end-of-text token"},
        {"--echo", CLI_FLAG, &r.echo, NULL, "print the prompt too"},
        {"--ids", CLI_FLAG, &r.ids, NULL, "print token ids instead of text"},
        {"--stats", CLI_FLAG, &r.stats, NULL, "print rates on stderr"},
        PACKAGE_OPTION_ROWS(r.package),
    };
    if (!cli_parse(c, argc, argv, options, (int)(sizeof options / sizeof *options), positional, 1,
                   &n_positional, SYNOPSIS, &help, &e))
        return cli_fail(c, &e, NULL);
    if (help)
        return 0;
    if (n_positional)
        r.package.path = positional[0];
    bool ok = package_options_open(c, &r.package, &m, &e);
    /* A package without tokenizer still runs on ids. */
    if (ok && !(r.tokens && r.ids)) {
        ok = package_tokenizer(m->package, &t, &e);
        if (ok)
            package_add_tokenizer_eos(m->package, t);
    }
    ok = ok && generate(c, &r, m, t, &e);
    tokenizer_free(t);
    model_close(m);
    return ok ? 0 : cli_fail(c, &e, NULL);
}
