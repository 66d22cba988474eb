/* milkit run: continue a prompt, token by token, on stdout. */
#include <stdlib.h>
#include <string.h>
#include "cli/generate.h"
#include "cli/prompt.h"
#include "cli/prompt_cache.h"
#include "format/json.h"

#define SYNOPSIS "DIR -p PROMPT [OPTIONS]"
/* Prompts longer than this get a progress line. */
#define PROGRESS_TOKENS 256
#define JSON_BYTES_MAX ((size_t)256 << 20)

struct run {
    struct package_options package;
    struct prompt_options prompt;
    int64_t n;
    bool stats, ignore_eos, echo, ids, json;
    struct prompt_cache cache;
    struct sampling_options sampling;
};

/* What printing a token needs. */
struct printer {
    const struct run *run;
    struct token_stream *stream;
    struct buf text;
    struct buf *all; /* --json: where all text goes, to be printed at the end; else NULL */
    bool is_first;
};

static bool put_text(struct printer *p, struct err *e)
{
    if (p->all) {
        buf_append(p->all, p->text.p, p->text.n);
        return !p->all->failed || err_set(e, ERR_LIMIT, "a text of more than %zu bytes", JSON_BYTES_MAX);
    }
    if (p->text.n > 0)
        cli_put_text(p->text.p, p->text.n);
    return cli_flush(e);
}

static bool print_token(void *context, int32_t id, struct err *e)
{
    struct printer *p = context;
    buf_clear(&p->text);
    if (p->run->json && !p->stream)
        return true;
    if (p->run->ids && !p->run->json)
        buf_printf(&p->text, p->is_first ? "%d" : ",%d", id);
    else if (!token_stream_push(p->stream, id, &p->text, e))
        return false;
    p->is_first = false;
    return put_text(p, e);
}

/* What --json tells of a run. */
struct outcome {
    const struct model *model;
    const struct ids *ids;
    size_t n_prompt;
    const struct buf *text; /* NULL: the package has no tokenizer */
    enum generate_end end;
    double prompt_seconds, seconds;
    const struct sampler_options *sampling;
};

static void put_ids(struct buf *b, const char *key, const int32_t *ids, size_t n)
{
    json_put_key(b, key);
    json_put_ids(b, ids, n);
}

static void put_number(struct buf *b, const char *key, double v)
{
    json_put_key(b, key);
    json_put_double(b, v);
}

static void put_string(struct buf *b, const char *key, const char *text, size_t n)
{
    json_put_key(b, key);
    json_put_string(b, text, n);
}

static void put_sampling(struct buf *b, const struct sampler_options *o)
{
    bool is_greedy = o->greedy || o->temperature <= 0;
    json_put_key(b, "sampling");
    buf_printf(b, "{\"greedy\": %s", is_greedy ? "true" : "false");
    if (!is_greedy) {
        buf_printf(b, ", \"seed\": %llu, \"top_k\": %lld", (unsigned long long)o->seed, (long long)o->top_k);
        put_number(b, "temperature", o->temperature);
        put_number(b, "top_p", o->top_p);
        put_number(b, "min_p", o->min_p);
    }
    put_number(b, "repetition_penalty", o->repetition_penalty);
    put_number(b, "presence_penalty", o->presence_penalty);
    put_number(b, "frequency_penalty", o->frequency_penalty);
    buf_putc(b, '}');
}

static bool print_json(const struct outcome *o, struct err *e)
{
    const char *path = o->model->package->path, *end = generate_end_name(o->end);
    size_t n = o->ids->n - o->n_prompt;
    struct buf b;
    buf_init(&b, 2 * JSON_BYTES_MAX);
    buf_puts(&b, "{\"schema\": 1");
    put_string(&b, "package", path, strlen(path));
    put_ids(&b, "prompt", o->ids->p, o->n_prompt);
    put_ids(&b, "generated", o->ids->p + o->n_prompt, n);
    if (o->text)
        put_string(&b, "text", o->text->p ? o->text->p : "", o->text->n);
    put_string(&b, "stopped", end, strlen(end));
    put_sampling(&b, o->sampling);
    put_number(&b, "prompt_seconds", o->prompt_seconds);
    put_number(&b, "generated_seconds", o->seconds);
    buf_puts(&b, "}\n");
    bool ok = !b.failed || err_set(e, ERR_LIMIT, "a report of more than %zu bytes", 2 * JSON_BYTES_MAX);
    if (ok)
        cli_put_json(b.p, b.n);
    buf_fini(&b);
    return ok && cli_flush(e);
}

static bool generate(struct cli *c, struct run *r, struct model *m, struct tokenizer *t, struct err *e)
{
    struct session *s = NULL;
    struct sampler *sampler = NULL;
    struct sampler_options chosen;
    struct ids ids = {0};
    struct buf all;
    struct printer printer = {.run = r, .all = r->json ? &all : NULL, .is_first = true};
    struct progress progress;
    bool ok = false;
    buf_init(&all, JSON_BYTES_MAX);
    buf_init(&printer.text, 1 << 20);
    if (!prompt_read(&ids, &r->prompt, m, t, e) ||
        !sampling_open(&sampler, &chosen, &r->sampling, m, &c->log, e) || !session_new(&s, m, e) ||
        !prompt_cache_load(&r->cache, s, &c->log, e))
        goto done;
    size_t n_prompt = ids.n, reused = 0;
    if ((int64_t)n_prompt > m->context_length) {
        err_set(e, ERR_LIMIT, "the prompt has %zu tokens, the package's context holds %lld", n_prompt,
                (long long)m->context_length);
        goto done;
    }
    if (t)
        printer.stream = token_stream_new(t, true);
    if (r->echo)
        for (size_t i = 0; i < n_prompt; i++)
            if (!print_token(&printer, ids.p[i], e))
                goto done;
    progress_begin(&progress, &c->log, "prompt", "tokens", 1, (double)n_prompt);
    progress.is_shown = progress.is_shown && n_prompt > PROGRESS_TOKENS;
    double start = clock_seconds();
    bool fed = session_sync(s, ids.p, n_prompt, &progress, &reused, e);
    progress_end(&progress);
    if (!fed)
        goto done;
    double prompt_seconds = clock_seconds() - start;
    const struct generate g = {.model = m,
                               .session = s,
                               .sampler = sampler,
                               .limit = r->n >= 0 ? r->n : m->context_length,
                               .ignore_eos = r->ignore_eos,
                               .log = &c->log,
                               .on_token = print_token,
                               .context = &printer};
    int64_t n = 0;
    enum generate_end end;
    start = clock_seconds();
    if (!generate_tokens(&g, &ids, &n, &end, e))
        goto done;
    if (end == GENERATE_CANCELLED) {
        (void)log_cancelled(&c->log, e);
        goto done;
    }
    if (end == GENERATE_CONTEXT)
        log_warn(&c->log, "the context of %lld tokens is full", (long long)m->context_length);
    double seconds = clock_seconds() - start;
    buf_clear(&printer.text);
    if (printer.stream && (!r->ids || r->json) && !token_stream_flush(printer.stream, &printer.text, e))
        goto done;
    if (!put_text(&printer, e))
        goto done;
    const struct outcome outcome = {.model = m,
                                    .ids = &ids,
                                    .n_prompt = n_prompt,
                                    .text = printer.stream ? &all : NULL,
                                    .end = end,
                                    .prompt_seconds = prompt_seconds,
                                    .seconds = seconds,
                                    .sampling = &chosen};
    if (!r->json)
        fputc('\n', stdout);
    if (r->json ? !print_json(&outcome, e) : !cli_flush(e))
        goto done;
    if (r->stats) {
        char known[64] = "";
        if (r->cache.path)
            snprintf(known, sizeof known, "%zu reused, ", reused);
        fprintf(stderr,
                "prompt: %zu tokens, %s%.1f tokens/s; generated: %lld tokens, %.1f tokens/s; stopped: %s\n",
                n_prompt, known, (double)(n_prompt - reused) / (prompt_seconds > 0 ? prompt_seconds : 1e-9),
                (long long)n, (double)n / (seconds > 0 ? seconds : 1e-9), generate_end_name(end));
    }
    ok = true;
done:
    if (!ok && e->code == ERR_CANCELLED && !r->json)
        fputc('\n', stdout);
    ok = prompt_cache_finish(&r->cache, s, &c->log, ok, e);
    buf_fini(&all);
    buf_fini(&printer.text);
    token_stream_free(printer.stream);
    sampler_free(sampler);
    session_free(s);
    ids_free(&ids);
    return ok;
}

int cmd_run(struct cli *c, int argc, char **argv)
{
    struct run r = {.n = 128, .sampling = SAMPLING_OPTIONS_INIT};
    struct err e = {0};
    struct model *m = NULL;
    struct tokenizer *t = NULL;
    int status;
    const struct cli_option options[] = {
        PROMPT_OPTION_ROWS(r.prompt, "the prompt (- reads stdin)"),
        {"-n,--max-tokens,--predict,--n-predict", CLI_INT, &r.n, "N",
         "tokens to generate (128; -1: until the context is full)"},
        SAMPLING_OPTION_ROWS(r.sampling),
        {"--ignore-eos", CLI_FLAG, &r.ignore_eos, NULL, "do not stop at the end-of-text token"},
        PROMPT_CACHE_OPTION_ROWS(r.cache),
        {"--echo,--display-prompt", CLI_FLAG, &r.echo, NULL, "print the prompt too"},
        {"--ids", CLI_FLAG, &r.ids, NULL, "print token ids instead of text"},
        {"--json", CLI_FLAG, &r.json, NULL, "one JSON object at the end, instead of text on the way"},
        {"--stats,--show-timings,--perf", CLI_FLAG, &r.stats, NULL, "print rates on stderr"},
        PACKAGE_OPTION_ROWS(r.package),
    };
    if (!package_parse(c, argc, argv, options, (int)(sizeof options / sizeof *options), SYNOPSIS, &r.package,
                       &status))
        return status;
    bool ok = prompt_count(&r.prompt) == 1 ||
              err_set(&e, ERR_USAGE, "expected one of -p PROMPT, -f FILE and --tokens IDS");
    ok = ok && package_options_open(c, &r.package, &m, &e);
    /* A package without tokenizer still runs on ids. */
    if (ok && !(r.prompt.tokens && r.ids))
        ok = package_open_tokenizer(c, m, &t, &e);
    ok = ok && generate(c, &r, m, t, &e);
    tokenizer_free(t);
    model_close(m);
    return ok ? 0 : cli_fail(c, &e, NULL);
}
