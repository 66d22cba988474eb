/* Answers on their way out: JSON, problems, and jobs followed to their end. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include "server/server_internal.h"

void random_id(char *out, const char *prefix, int n)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    unsigned char bytes[64] = {0};
    size_t n_prefix = strlen(prefix);
    memcpy(out, prefix, n_prefix);
    (void)!getrandom(bytes, sizeof bytes, 0);
    for (int i = 0; i < n; i++)
        out[n_prefix + (size_t)i] = letters[bytes[i % 64] % (sizeof letters - 1)];
    out[n_prefix + (size_t)n] = '\0';
}

void reply_json(struct exchange *x, int status, const struct buf *body)
{
    static const char full[] =
        "{\"error\":{\"message\":\"the answer is too large\",\"type\":\"server_error\","
        "\"param\":null,\"code\":null}}";
    if (body->failed)
        exchange_answer(x, 500, JSON_TYPE, full, sizeof full - 1);
    else
        exchange_answer(x, status, JSON_TYPE, body->p ? body->p : "", body->n);
}

static void put_problem(struct buf *out, enum api api, const struct problem *p, const char *id)
{
    if (api == API_ANTHROPIC)
        problem_put_anthropic(out, p, id);
    else if (api == API_OLLAMA)
        problem_put_ollama(out, p);
    else
        problem_put_openai(out, p);
}

void reply_problem(struct server *s, struct exchange *x, enum api api, const struct problem *p)
{
    struct buf body;
    char seconds[16];
    buf_init(&body, 65536);
    put_problem(&body, api, p, exchange_id(x));
    if (p->retry_after_s > 0) {
        snprintf(seconds, sizeof seconds, "%d", p->retry_after_s);
        exchange_set_header(x, "Retry-After", seconds);
    } else {
        exchange_set_header(x, "x-should-retry", "false");
    }
    if (p->status >= 500 && p->retry_after_s == 0)
        log_warn(s->o->log, "request %s: %s", exchange_id(x), p->message);
    reply_json(x, p->status, &body);
    buf_fini(&body);
}

/* ---- counts ---- */

void counts_add(struct counts *c, const struct event *e)
{
    if (e->kind == EVENT_BEGIN) {
        if (e->choice == 0) {
            c->n_prompt = e->n_prompt;
            c->n_reused = e->n_reused;
            c->prompt_seconds = e->prompt_seconds;
        }
    } else if (e->kind == EVENT_END) {
        c->n_generated += e->n_done;
        c->n_reasoning += e->n_reasoning;
        c->seconds = e->seconds > c->seconds ? e->seconds : c->seconds;
    }
}

void put_usage(struct buf *b, const struct counts *c)
{
    put_key(b, "usage");
    buf_printf(b,
               "{\"prompt_tokens\":%lld,\"completion_tokens\":%lld,\"total_tokens\":%lld,"
               "\"prompt_tokens_details\":{\"cached_tokens\":%lld},"
               "\"completion_tokens_details\":{\"reasoning_tokens\":%lld}}",
               c->n_prompt, c->n_generated, c->n_prompt + c->n_generated, c->n_reused, c->n_reasoning);
}

static double rate(double n, double seconds)
{
    return n > 0 && seconds > 0 ? n / seconds : 0;
}

void put_timings(struct buf *b, const struct counts *c)
{
    double n_prompt = (double)(c->n_prompt - c->n_reused), n = (double)c->n_generated;
    put_key(b, "timings");
    buf_puts(b, "{");
    put_key_int(b, "cache_n", c->n_reused);
    put_key_int(b, "prompt_n", c->n_prompt - c->n_reused);
    put_key_number(b, "prompt_ms", c->prompt_seconds * 1e3);
    put_key_number(b, "prompt_per_token_ms", n_prompt > 0 ? c->prompt_seconds * 1e3 / n_prompt : 0);
    put_key_number(b, "prompt_per_second", rate(n_prompt, c->prompt_seconds));
    put_key_int(b, "predicted_n", c->n_generated);
    put_key_number(b, "predicted_ms", c->seconds * 1e3);
    put_key_number(b, "predicted_per_token_ms", n > 0 ? c->seconds * 1e3 / n : 0);
    /* the first token comes of the prompt's logits */
    put_key_number(b, "predicted_per_second", rate(n - 1, c->seconds));
    buf_puts(b, "}");
}

const char *finish_reason(enum end_reason reason)
{
    return reason == END_CALLS ? "tool_calls" : reason == END_STOP || reason == END_WORD ? "stop" : "length";
}

/* ---- following a job ---- */

struct following {
    struct scheduler *scheduler;
    struct job *job;
};

static void leave(void *context)
{
    struct following *f = context;
    scheduler_cancel(f->scheduler, f->job);
}

static void note(struct server *s, struct exchange *x, const struct event *e, bool *has_first)
{
    static const char *const ends[] = {[END_STOP] = "stop",
                                       [END_WORD] = "stop",
                                       [END_LENGTH] = "length",
                                       [END_CONTEXT] = "length",
                                       [END_CALLS] = "tool_calls"};
    struct exchange_record *r = exchange_record(x);
    if (e->kind == EVENT_BEGIN && e->choice == 0) {
        r->n_prompt = e->n_prompt;
        r->n_reused = e->n_reused;
        r->wait_seconds = e->wait_seconds;
    } else if (e->kind == EVENT_END) {
        r->n_generated += e->n_done;
        r->end = ends[e->reason];
    } else if (e->kind == EVENT_FAILED) {
        r->end = "error";
    }
    if (!*has_first && (e->kind == EVENT_TOKEN || e->kind == EVENT_CALL || e->kind == EVENT_END)) {
        *has_first = true;
        r->first_seconds = exchange_seconds(x);
        metrics_count_times(s->metrics, r->wait_seconds, r->first_seconds);
    }
}

static void count_cancelled(struct server *s, struct exchange *x, bool has_begun, bool has_first)
{
    exchange_record(x)->end = "cancel";
    metrics_count_cancelled(s->metrics, has_first   ? CANCELLED_ANSWER
                                        : has_begun ? CANCELLED_PROMPT
                                                    : CANCELLED_WAITING);
}

static void begin_stream(struct exchange *x, const struct follower *f, bool *has_begun)
{
    if (*has_begun)
        return;
    *has_begun = true;
    exchange_set_header(x, "X-Accel-Buffering", "no");
    exchange_begin_stream(x, 200, f->type);
}

/* One job to its end. */
static void follow_job(struct server *s, struct exchange *x, struct following *j, int n_choices,
                       const struct follower *f, struct followed *state)
{
    int n_open = n_choices;
    bool has_first = false, has_prompt = false, is_read = true;
    double ping = f->is_stream && f->ping_seconds > 0 ? f->ping_seconds : 3600;
    while (n_open > 0 && is_read) {
        struct event *e = job_next(j->job, ping);
        if (!e) {
            is_read = !exchange_is_gone(x);
            if (is_read && f->is_stream && f->ping_seconds > 0) {
                begin_stream(x, f, &state->has_begun);
                is_read = exchange_write(x, f->ping, strlen(f->ping));
            }
            continue;
        }
        has_prompt = has_prompt || e->kind == EVENT_BEGIN || e->kind == EVENT_PROGRESS;
        note(s, x, e, &has_first);
        if (e->kind == EVENT_FAILED) {
            if (state->has_begun)
                f->problem(f->context, &e->problem, &state->out);
            else
                reply_problem(s, x, f->api, &e->problem);
            n_open = -1;
        } else {
            f->event(f->context, e, &state->out);
            n_open -= e->kind == EVENT_END;
        }
        event_free(e);
        if (n_open == 0)
            f->end(f->context, &state->out);
        if (f->is_stream && state->out.n > 0) {
            begin_stream(x, f, &state->has_begun);
            is_read = exchange_write(x, state->out.p, state->out.n);
            buf_clear(&state->out);
        }
    }
    exchange_on_gone(x, NULL, NULL);
    state->has_left = !is_read;
    state->has_failed = n_open < 0;
    if (!is_read || n_open < 0) /* with its other choices */
        scheduler_cancel(j->scheduler, j->job);
    if (!is_read)
        count_cancelled(s, x, has_prompt, has_first);
}

void followed_init(struct followed *state)
{
    *state = (struct followed){0};
    buf_init(&state->out, ANSWER_BYTES_MAX);
}

bool follow_part(struct server *s, struct exchange *x, struct ask *a, const struct follower *f,
                 struct followed *state)
{
    struct problem p = {0};
    char seed[32];
    int n_choices = a->job.n_choices;
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)a->job.seed);
    struct following j = {.scheduler = model_scheduler(a->model)};
    j.job = ask_submit(a, &p);
    if (!j.job) {
        if (!state->has_begun) {
            reply_problem(s, x, f->api, &p);
        } else {
            f->problem(f->context, &p, &state->out);
            (void)exchange_write(x, state->out.p, state->out.n);
        }
        state->has_failed = true;
        return false;
    }
    if (!state->has_seed)
        exchange_set_header(x, "x-milkit-seed", seed);
    state->has_seed = true;
    exchange_on_gone(x, leave, &j);
    follow_job(s, x, &j, n_choices, f, state);
    job_release(j.job);
    return !state->has_failed && !state->has_left;
}

void follow_finish(struct exchange *x, const struct follower *f, struct followed *state)
{
    if (state->has_left && !state->has_begun)
        exchange_answer(x, 499, JSON_TYPE, "", 0); /* nobody sees it, but the log */
    else if (state->has_begun)
        exchange_end_stream(x);
    else if (!state->has_failed && f->is_stream)
        exchange_answer(x, 200, f->type, state->out.p ? state->out.p : "", state->out.n);
    else if (!state->has_failed)
        reply_json(x, 200, &state->out);
    buf_fini(&state->out);
}

void follow(struct server *s, struct exchange *x, struct ask *a, const struct follower *f)
{
    struct followed state;
    followed_init(&state);
    (void)follow_part(s, x, a, f, &state);
    follow_finish(x, f, &state);
}
