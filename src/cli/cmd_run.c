/* milkit run: continue a prompt, token by token, on stdout. */
#include <stdlib.h>
#include <string.h>
#include "base/json_text.h"
#include "cli/client.h"
#include "cli/download.h"
#include "cli/prompt_cache.h"
#include "cli/sampling.h"

#define SYNOPSIS "DIR -p PROMPT [OPTIONS]"
/* Prompts longer than this get a progress line. */
#define PROGRESS_TOKENS 256
#define JSON_BYTES_MAX ((size_t)256 << 20)

struct run {
    struct package_options options;
    struct prompt_options prompt;
    int64_t n;
    bool stats, ignore_eos, echo, ids, json;
    struct prompt_cache cache;
    struct sampling sampling;
    /* made on the way */
    mk_library *library;
    mk_package *package;
    mk_session *session;
    mk_sampler *sampler;
    mk_decoder *decoder; /* NULL: ids alone */
    int32_t *prompt_ids; /* [n_prompt] */
    size_t n_prompt, n_reused;
    int32_t *generated; /* [n_generated] */
    size_t n_generated, capacity;
    int32_t end; /* MK_END_.. */
    double prompt_seconds, seconds;
    /* printing */
    struct buf all; /* --json: all text, to be printed at the end */
    bool is_first;
    struct err problem; /* of printing inside a call */
};

static bool put_text(struct run *r, const char *text, size_t n, struct err *e)
{
    if (r->json) {
        buf_append(&r->all, text, n);
        return !r->all.failed || err_set(e, ERR_LIMIT, "a text of more than %zu bytes", JSON_BYTES_MAX);
    }
    if (n > 0)
        cli_put_text(text, n);
    return cli_flush(e);
}

static bool print_token(struct run *r, int32_t id, struct err *e)
{
    char number[16];
    const char *text = number;
    size_t n;
    mk_error *error = NULL;
    if (r->json && !r->decoder)
        return true;
    if (r->ids && !r->json)
        n = (size_t)snprintf(number, sizeof number, r->is_first ? "%d" : ",%d", id);
    else if (!client_take(mk_decoder_add(r->decoder, id, &text, &n, &error), &error, e))
        return false;
    r->is_first = false;
    return put_text(r, text, n, e);
}

static bool on_token(void *context, int32_t id)
{
    struct run *r = context;
    r->generated = mem_grow(r->generated, r->n_generated, &r->capacity, sizeof *r->generated);
    r->generated[r->n_generated++] = id;
    return print_token(r, id, &r->problem);
}

/* ---- --json ---- */

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

static bool put_sampling(const struct run *r, struct buf *b, struct err *e)
{
    mk_sampling o = {.size = sizeof o};
    mk_error *error = NULL;
    if (!client_take(mk_sampler_settings(r->sampler, &o, &error), &error, e))
        return false;
    bool is_greedy = o.greedy || o.temperature <= 0;
    json_put_key(b, "sampling");
    buf_printf(b, "{\"greedy\": %s", is_greedy ? "true" : "false");
    if (!is_greedy) {
        buf_printf(b, ", \"seed\": %llu, \"top_k\": %lld", (unsigned long long)o.seed, (long long)o.top_k);
        put_number(b, "temperature", o.temperature);
        put_number(b, "top_p", o.top_p);
        put_number(b, "min_p", o.min_p);
    }
    put_number(b, "repetition_penalty", o.repetition_penalty);
    put_number(b, "presence_penalty", o.presence_penalty);
    put_number(b, "frequency_penalty", o.frequency_penalty);
    buf_putc(b, '}');
    return true;
}

static bool print_json(const struct run *r, struct err *e)
{
    const char *path = mk_package_path(r->package), *end = mk_end_name(r->end);
    struct buf b;
    buf_init(&b, 2 * JSON_BYTES_MAX);
    buf_puts(&b, "{\"schema\": 1");
    put_string(&b, "package", path, strlen(path));
    put_ids(&b, "prompt", r->prompt_ids, r->n_prompt);
    put_ids(&b, "generated", r->generated, r->n_generated);
    if (r->decoder)
        put_string(&b, "text", r->all.p ? r->all.p : "", r->all.n);
    put_string(&b, "stopped", end, strlen(end));
    bool ok = put_sampling(r, &b, e);
    put_number(&b, "prompt_seconds", r->prompt_seconds);
    put_number(&b, "generated_seconds", r->seconds);
    buf_puts(&b, "}\n");
    if (ok && b.failed)
        ok = err_set(e, ERR_LIMIT, "a report of more than %zu bytes", 2 * JSON_BYTES_MAX);
    if (ok)
        cli_put_json(b.p, b.n);
    buf_fini(&b);
    return ok && cli_flush(e);
}

/* ---- the run ---- */

static bool open_all(struct cli *c, struct run *r, struct err *e)
{
    struct buf settings;
    mk_error *error = NULL;
    /* A package without tokenizer still runs on ids. */
    bool needs_text = !(r->prompt.tokens && r->ids);
    if (!client_open_package(c, &r->options, needs_text ? MK_TEXT_DEFAULT : MK_TEXT_NONE, &r->library,
                             &r->package, e))
        return false;
    if (needs_text &&
        !client_take(mk_decoder_new(&r->decoder, mk_package_tokenizer(r->package), 0, &error), &error, e))
        return false;
    if (!client_read_prompt(r->package, &r->prompt, &r->prompt_ids, &r->n_prompt, e))
        return false;
    buf_init(&settings, 4096);
    bool ok = sampling_put(&r->sampling, &settings, e) &&
              client_take(mk_sampler_new(&r->sampler, r->package, settings.p, &error), &error, e) &&
              client_take(mk_session_new(&r->session, r->package, &error), &error, e) &&
              prompt_cache_load(&r->cache, r->session, &c->log, e);
    buf_fini(&settings);
    return ok;
}

static bool feed_prompt(struct cli *c, struct run *r, struct err *e)
{
    struct client_call x;
    mk_error *error = NULL;
    if ((int64_t)r->n_prompt > mk_package_context_length(r->package))
        return err_set(e, ERR_LIMIT, "the prompt has %zu tokens, the package's context holds %lld",
                       r->n_prompt, (long long)mk_package_context_length(r->package));
    for (size_t i = 0; r->echo && i < r->n_prompt; i++)
        if (!print_token(r, r->prompt_ids[i], e))
            return false;
    double start = clock_seconds();
    const mk_call *call = client_call_begin(&x, c, NULL, r->n_prompt > PROGRESS_TOKENS);
    mk_status status = mk_session_sync(r->session, r->prompt_ids, r->n_prompt, call, &r->n_reused, &error);
    client_call_end(&x);
    r->prompt_seconds = clock_seconds() - start;
    return client_take(status, &error, e);
}

static bool generate(struct cli *c, struct run *r, struct err *e)
{
    struct client_call x;
    mk_error *error = NULL;
    const mk_generate what = {.size = sizeof what,
                              .limit = r->n >= 0 ? r->n : 0,
                              .flags = MK_LEAVE_LAST | (r->ignore_eos ? (uint32_t)MK_IGNORE_END : 0),
                              .fn = on_token,
                              .context = r};
    size_t n;
    double start = clock_seconds();
    if (r->n == 0)
        return true;
    mk_status status = mk_session_generate(r->session, r->sampler, &what,
                                           client_call_begin(&x, c, NULL, false), &n, &r->end, &error);
    r->seconds = clock_seconds() - start;
    if (!client_take(status, &error, e))
        return false;
    if (r->problem.code) {
        *e = r->problem;
        return false;
    }
    if (r->end == MK_END_CONTEXT)
        log_warn(&c->log, "the context of %lld tokens is full",
                 (long long)mk_package_context_length(r->package));
    return true;
}

static bool finish_text(struct run *r, struct err *e)
{
    const char *text = "";
    size_t n = 0;
    mk_error *error = NULL;
    if (r->decoder && (!r->ids || r->json) &&
        !client_take(mk_decoder_finish(r->decoder, &text, &n, &error), &error, e))
        return false;
    if (!put_text(r, text, n, e))
        return false;
    if (!r->json)
        fputc('\n', stdout);
    return r->json ? print_json(r, e) : cli_flush(e);
}

static void print_stats(const struct run *r)
{
    char known[64] = "";
    if (r->cache.path)
        snprintf(known, sizeof known, "%zu reused, ", r->n_reused);
    fprintf(
        stderr, "prompt: %zu tokens, %s%.1f tokens/s; generated: %zu tokens, %.1f tokens/s; stopped: %s\n",
        r->n_prompt, known,
        (double)(r->n_prompt - r->n_reused) / (r->prompt_seconds > 0 ? r->prompt_seconds : 1e-9),
        r->n_generated, (double)r->n_generated / (r->seconds > 0 ? r->seconds : 1e-9), mk_end_name(r->end));
}

static bool run(struct cli *c, struct run *r, struct err *e)
{
    bool ok = open_all(c, r, e) && feed_prompt(c, r, e) && generate(c, r, e) && finish_text(r, e);
    if (ok && r->stats)
        print_stats(r);
    if (!ok && e->code == ERR_CANCELLED && !r->json)
        fputc('\n', stdout);
    return prompt_cache_finish(&r->cache, r->session, &c->log, ok, e);
}

int cmd_run(struct cli *c, int argc, char **argv)
{
    struct run r = {.n = 128, .is_first = true, .options.takes_checkpoint = true};
    struct err e = {0};
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
        PACKAGE_OPTION_ROWS(r.options),
        DOWNLOAD_OPTION_ROW(r.options.yes),
    };
    sampling_clear(&r.sampling);
    if (!package_parse(c, argc, argv, options, (int)(sizeof options / sizeof *options), SYNOPSIS, &r.options,
                       &status))
        return status;
    bool ok = prompt_count(&r.prompt) == 1 ||
              err_set(&e, ERR_USAGE, "expected one of -p PROMPT, -f FILE and --tokens IDS");
    buf_init(&r.all, JSON_BYTES_MAX);
    ok = ok && run(c, &r, &e);
    buf_fini(&r.all);
    free(r.prompt_ids);
    free(r.generated);
    mk_decoder_free(r.decoder);
    mk_sampler_free(r.sampler);
    mk_session_free(r.session);
    mk_package_close(r.package);
    mk_library_close(r.library);
    return ok ? 0 : cli_fail(c, &e, NULL);
}
