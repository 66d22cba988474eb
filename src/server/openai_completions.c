/* /v1/completions: prompts as text or ids, without a template. */
#include <stdlib.h>
#include "server/answer_format.h"
#include "server/openai.h"
#include "server/prompt_list.h"
#include "server/server_internal.h"

struct text_choice {
    struct buf text;
    struct text_logprobs logprobs;
    enum end_reason reason;
};

struct completion {
    struct openai_head head;
    const struct vocabulary_bytes *vocabulary; /* NULL: no probabilities */
    bool is_stream, wants_usage;
    int i_first; /* choices are counted over all prompts */
    struct counts all, counts;
    int n_choices;
    struct text_choice *choices; /* [n_choices] of the prompt that runs */
};

static void put_choice(struct completion *c, int i, const char *text, size_t n, const char *finish,
                       struct buf *out)
{
    struct text_choice *choice = &c->choices[i];
    buf_puts(out, "{");
    put_key_text(out, "text", text ? text : "", n);
    put_key_int(out, "index", c->i_first + i);
    put_key(out, "logprobs");
    if (c->vocabulary && (!c->is_stream || choice->logprobs.tokens.n > 0))
        text_logprobs_put(&choice->logprobs, out);
    else
        buf_puts(out, "null");
    put_key(out, "finish_reason");
    buf_printf(out, finish ? "\"%s\"}" : "null}", finish);
}

static void put_chunk(struct completion *c, const struct event *e, const char *finish, struct buf *out)
{
    buf_puts(out, "data: ");
    openai_put_head(out, &c->head, "text_completion");
    put_key(out, "choices");
    buf_puts(out, "[");
    put_choice(c, e->choice, e->text, finish ? 0 : e->n, finish, out);
    buf_puts(out, "]");
    if (c->wants_usage)
        put_key_raw(out, "usage", "null");
    buf_puts(out, "}\n\n");
}

static void on_event(void *context, const struct event *e, struct buf *out)
{
    struct completion *c = context;
    struct text_choice *choice = &c->choices[e->choice];
    counts_add(&c->counts, e);
    if (c->vocabulary)
        text_logprobs_add(&choice->logprobs, c->vocabulary, e);
    if (e->kind == EVENT_END)
        choice->reason = e->reason;
    if (c->is_stream && ((e->kind == EVENT_TOKEN && e->n > 0) || e->kind == EVENT_END))
        put_chunk(c, e, e->kind == EVENT_END ? finish_reason(e->reason) : NULL, out);
    else if (!c->is_stream && e->kind == EVENT_TOKEN)
        buf_append(&choice->text, e->text, e->n);
}

static void on_end(void *context, struct buf *out)
{
    struct completion *c = context;
    for (int i = 0; i < c->n_choices && !c->is_stream; i++) {
        if (out->n > 0)
            buf_putc(out, ',');
        put_choice(c, i, c->choices[i].text.p, c->choices[i].text.n, finish_reason(c->choices[i].reason),
                   out);
    }
    c->all.n_prompt += c->counts.n_prompt;
    c->all.n_reused += c->counts.n_reused;
    c->all.n_generated += c->counts.n_generated;
    c->all.prompt_seconds += c->counts.prompt_seconds;
    c->all.seconds += c->counts.seconds;
}

static bool read_request(struct server *s, const struct fields *f, struct ask *a)
{
    static const struct ask_names names = {
        .max_tokens = {"max_tokens", "n_predict"}, .stop = "stop", .temperature_most = 100};
    bool echoes = false;
    const char *suffix = NULL;
    int64_t best = 1, n_top = -1;
    if (!ask_read_stream(a, f) || !ask_read_sampling(a, f, &names) || !fields_bool(f, "echo", &echoes) ||
        !fields_string(f, "suffix", &suffix) || !fields_int(f, "best_of", &best, 1, 128) ||
        !fields_int(f, "logprobs", &n_top, 0, 5))
        return false;
    if (echoes || best > 1 || (suffix && suffix[0]))
        return problem_bad(f->problem, "unsupported_parameter",
                           echoes     ? "echo"
                           : best > 1 ? "best_of"
                                      : "suffix",
                           "echo, best_of above 1 and suffix are not supported");
    a->job.n_top = (int)n_top;
    return format_read(a, f) && openai_apply_defaults(s, a);
}

static bool run_prompt(struct server *s, struct exchange *x, struct ask *a, struct completion *c,
                       struct followed *state)
{
    const struct follower f = openai_follower(a, c->is_stream, on_event, on_end, c);
    c->counts = (struct counts){0};
    c->n_choices = a->job.n_choices;
    c->vocabulary = a->job.n_top >= 0 ? scheduler_vocabulary(model_scheduler(a->model)) : NULL;
    c->choices = xcalloc((size_t)c->n_choices, sizeof *c->choices);
    for (int i = 0; i < c->n_choices; i++) {
        buf_init(&c->choices[i].text, ANSWER_BYTES_MAX);
        text_logprobs_init(&c->choices[i].logprobs);
    }
    bool ok = follow_part(s, x, a, &f, state);
    for (int i = 0; i < c->n_choices; i++) {
        buf_fini(&c->choices[i].text);
        text_logprobs_fini(&c->choices[i].logprobs);
    }
    free(c->choices);
    c->i_first += c->n_choices;
    return ok;
}

static void finish(struct exchange *x, struct completion *c, struct followed *state)
{
    struct buf out;
    buf_init(&out, ANSWER_BYTES_MAX);
    if (c->is_stream && c->wants_usage) {
        buf_puts(&out, "data: ");
        openai_put_head(&out, &c->head, "text_completion");
        put_key_raw(&out, "choices", "[]");
        put_usage(&out, &c->all);
        put_timings(&out, &c->all);
        buf_puts(&out, "}\n\n");
    }
    if (c->is_stream) {
        buf_puts(&out, "data: [DONE]\n\n");
        (void)exchange_write(x, out.p, out.n);
    } else {
        openai_put_head(&out, &c->head, "text_completion");
        put_key(&out, "choices");
        buf_puts(&out, "[");
        buf_append(&out, state->out.p ? state->out.p : "", state->out.n);
        buf_puts(&out, "]");
        put_usage(&out, &c->all);
        put_timings(&out, &c->all);
        buf_puts(&out, "}");
        buf_fini(&state->out);
        state->out = out;
        return;
    }
    buf_fini(&out);
}

/* Each prompt is a request of its own, which is read anew; all are checked before the first one runs. */
static bool check_all(struct server *s, const struct fields *f, int n)
{
    bool ok = n > 0;
    for (int i = 0; i < n && ok; i++) {
        struct ask a;
        ok = ask_begin(&a, s->models, f) && read_request(s, f, &a) && prompt_list_set(&a, f, i);
        ask_end(&a, s->models);
    }
    return ok;
}

void post_completions(struct server *s, struct exchange *x)
{
    struct problem p = {0};
    struct completion c = {0};
    struct followed state;
    cJSON *root = NULL;
    bool ok = body_parse(&root, exchange_body(x), &p);
    const struct fields f = {root, "", &p};
    int n = ok ? prompt_list_count(&f) : 0;
    if (!check_all(s, &f, n)) {
        reply_problem(s, x, API_OPENAI, &p);
        cJSON_Delete(root);
        return;
    }
    followed_init(&state);
    for (int i = 0; i < n && ok; i++) {
        struct ask a;
        ok = ask_begin(&a, s->models, &f) && read_request(s, &f, &a) && prompt_list_set(&a, &f, i);
        if (ok) {
            if (i == 0)
                openai_head_init(&c.head, "cmpl-", a.model);
            c.is_stream = a.is_stream;
            c.wants_usage = a.wants_usage;
            ok = run_prompt(s, x, &a, &c, &state);
        } else {
            state.has_failed = true;
            reply_problem(s, x, API_OPENAI, &p);
        }
        ask_end(&a, s->models);
    }
    cJSON_Delete(root);
    if (ok)
        finish(x, &c, &state);
    const struct follower f_end = {.is_stream = c.is_stream, .type = SSE_TYPE};
    follow_finish(x, &f_end, &state);
}
