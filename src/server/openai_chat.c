/* /v1/chat/completions. */
#include <stdlib.h>
#include <time.h>
#include "server/chat_request.h"
#include "server/openai.h"
#include "server/server_internal.h"

struct choice {
    struct buf content, reasoning, calls, logprobs; /* streams: what waits for the next piece of text */
    int n_calls;
    bool has_role;
    enum end_reason reason;
};

struct chat {
    struct openai_head head;
    const struct vocabulary_bytes *vocabulary; /* NULL: no probabilities */
    bool is_stream, wants_usage, wants_timings;
    struct counts counts;
    int n_choices;
    struct choice *choices; /* [n_choices] */
};

/* ---- pieces ---- */

static void begin_chunk(struct chat *c, struct buf *out, int choice)
{
    buf_puts(out, "data: ");
    openai_put_head(out, &c->head, "chat.completion.chunk");
    put_key(out, "choices");
    buf_printf(out, "[{\"index\":%d,\"delta\":{", choice);
}

static void end_chunk(struct chat *c, struct buf *out, const char *finish, struct choice *with_logprobs)
{
    buf_puts(out, "}");
    put_key(out, "logprobs");
    if (with_logprobs && with_logprobs->logprobs.n > 0) {
        buf_puts(out, "{\"content\":[");
        buf_append(out, with_logprobs->logprobs.p, with_logprobs->logprobs.n);
        buf_puts(out, "],\"refusal\":null}");
        buf_clear(&with_logprobs->logprobs);
    } else {
        buf_puts(out, "null");
    }
    put_key(out, "finish_reason");
    buf_printf(out, finish ? "\"%s\"}]" : "null}]", finish);
    if (c->wants_usage)
        put_key_raw(out, "usage", "null");
    buf_puts(out, "}\n\n");
}

static void put_role(struct chat *c, struct buf *out, int choice)
{
    if (c->choices[choice].has_role)
        return;
    c->choices[choice].has_role = true;
    begin_chunk(c, out, choice);
    put_key_string(out, "role", "assistant");
    put_key_string(out, "content", "");
    end_chunk(c, out, NULL, NULL);
}

static void put_call_head(struct buf *b, int index, const char *id, const char *name, const char *arguments)
{
    buf_puts(b, "{");
    if (index >= 0)
        put_key_int(b, "index", index);
    put_key_string(b, "id", id);
    put_function(b, name, arguments);
    buf_puts(b, "}");
}

static void stream_call(struct chat *c, const struct event *e, struct buf *out)
{
    struct choice *choice = &c->choices[e->choice];
    char id[40];
    random_id(id, "call_", 24);
    begin_chunk(c, out, e->choice);
    put_key(out, "tool_calls");
    buf_puts(out, "[");
    put_call_head(out, choice->n_calls, id, e->name, "");
    buf_puts(out, "]");
    end_chunk(c, out, NULL, choice);
    begin_chunk(c, out, e->choice);
    put_key(out, "tool_calls");
    buf_printf(out, "[{\"index\":%d,\"function\":{", choice->n_calls++);
    put_key_text(out, "arguments", e->text, e->n);
    buf_puts(out, "}}]");
    end_chunk(c, out, NULL, NULL);
}

static void stream_event(struct chat *c, const struct event *e, struct buf *out)
{
    struct choice *choice = &c->choices[e->choice];
    if (e->kind == EVENT_PROGRESS) {
        put_role(c, out, 0);
        buf_puts(out, "data: ");
        openai_put_head(out, &c->head, "chat.completion.chunk");
        put_key_raw(out, "choices", "[]");
        put_key(out, "prompt_progress");
        buf_printf(out, "{\"total\":%lld,\"cache\":%lld,\"processed\":%lld,\"time_ms\":%lld}}\n\n",
                   e->n_prompt, e->n_reused, e->n_done, (long long)(e->seconds * 1e3));
        return;
    }
    if (e->kind == EVENT_BEGIN)
        return;
    put_role(c, out, e->choice);
    if (c->vocabulary)
        put_chat_logprobs(&choice->logprobs, c->vocabulary, e);
    if (e->kind == EVENT_CALL) {
        stream_call(c, e, out);
    } else if (e->kind == EVENT_TOKEN && e->n > 0) {
        begin_chunk(c, out, e->choice);
        put_key_text(out, e->part == PART_REASONING ? "reasoning_content" : "content", e->text, e->n);
        end_chunk(c, out, NULL, choice);
        if (c->wants_timings) {
            struct counts now = c->counts;
            now.n_generated = e->n_done;
            now.seconds = e->seconds;
            out->n -= 3; /* back before the end of the object */
            put_timings(out, &now);
            buf_puts(out, "}\n\n");
        }
    } else if (e->kind == EVENT_END) {
        begin_chunk(c, out, e->choice);
        end_chunk(c, out, finish_reason(e->reason), choice);
    }
}

static void collect_event(struct chat *c, const struct event *e)
{
    struct choice *choice = &c->choices[e->choice];
    if (c->vocabulary)
        put_chat_logprobs(&choice->logprobs, c->vocabulary, e);
    if (e->kind == EVENT_TOKEN) {
        buf_append(e->part == PART_REASONING ? &choice->reasoning : &choice->content, e->text, e->n);
    } else if (e->kind == EVENT_CALL) {
        char id[40];
        random_id(id, "call_", 24);
        if (choice->n_calls++)
            buf_putc(&choice->calls, ',');
        put_call_head(&choice->calls, -1, id, e->name, e->text);
    } else if (e->kind == EVENT_END) {
        choice->reason = e->reason;
    }
}

static void on_event(void *context, const struct event *e, struct buf *out)
{
    struct chat *c = context;
    counts_add(&c->counts, e);
    if (c->is_stream)
        stream_event(c, e, out);
    else
        collect_event(c, e);
}

/* ---- the end ---- */

static void put_message(struct chat *c, struct choice *choice, int index, struct buf *out)
{
    buf_puts(out, index ? ",{" : "{");
    put_key_int(out, "index", index);
    put_key(out, "message");
    buf_puts(out, "{");
    put_key_string(out, "role", "assistant");
    if (choice->n_calls > 0 && choice->content.n == 0)
        put_key_raw(out, "content", "null");
    else
        put_key_text(out, "content", choice->content.p ? choice->content.p : "", choice->content.n);
    put_key_raw(out, "refusal", "null");
    if (choice->reasoning.n > 0)
        put_key_text(out, "reasoning_content", choice->reasoning.p, choice->reasoning.n);
    if (choice->n_calls > 0) {
        put_key(out, "tool_calls");
        buf_puts(out, "[");
        buf_append(out, choice->calls.p, choice->calls.n);
        buf_puts(out, "]");
    }
    buf_puts(out, "}");
    put_key(out, "logprobs");
    if (c->vocabulary) {
        buf_puts(out, "{\"content\":[");
        buf_append(out, choice->logprobs.p ? choice->logprobs.p : "", choice->logprobs.n);
        buf_puts(out, "],\"refusal\":null}");
    } else {
        buf_puts(out, "null");
    }
    put_key_string(out, "finish_reason", finish_reason(choice->reason));
    buf_puts(out, "}");
}

static void on_end(void *context, struct buf *out)
{
    struct chat *c = context;
    if (c->is_stream) {
        if (c->wants_usage) {
            buf_puts(out, "data: ");
            openai_put_head(out, &c->head, "chat.completion.chunk");
            put_key_raw(out, "choices", "[]");
            put_usage(out, &c->counts);
            put_timings(out, &c->counts);
            buf_puts(out, "}\n\n");
        }
        buf_puts(out, "data: [DONE]\n\n");
        return;
    }
    openai_put_head(out, &c->head, "chat.completion");
    put_key(out, "choices");
    buf_puts(out, "[");
    for (int i = 0; i < c->n_choices; i++)
        put_message(c, &c->choices[i], i, out);
    buf_puts(out, "]");
    put_usage(out, &c->counts);
    put_timings(out, &c->counts);
    buf_puts(out, "}");
}

/* ---- the request ---- */

static void run(struct server *s, struct exchange *x, struct ask *a)
{
    struct chat c = {.is_stream = a->is_stream,
                     .wants_usage = a->wants_usage,
                     .wants_timings = a->wants_timings,
                     .n_choices = a->job.n_choices};
    openai_head_init(&c.head, "chatcmpl-", a->model);
    c.vocabulary = a->job.n_top >= 0 ? scheduler_vocabulary(model_scheduler(a->model)) : NULL;
    c.choices = xcalloc((size_t)c.n_choices, sizeof *c.choices);
    for (int i = 0; i < c.n_choices; i++) {
        struct buf *bufs[] = {&c.choices[i].content, &c.choices[i].reasoning, &c.choices[i].calls,
                              &c.choices[i].logprobs};
        for (int k = 0; k < 4; k++)
            buf_init(bufs[k], ANSWER_BYTES_MAX);
    }
    const struct follower f = openai_follower(a, a->is_stream, on_event, on_end, &c);
    follow(s, x, a, &f);
    for (int i = 0; i < c.n_choices; i++) {
        struct buf *bufs[] = {&c.choices[i].content, &c.choices[i].reasoning, &c.choices[i].calls,
                              &c.choices[i].logprobs};
        for (int k = 0; k < 4; k++)
            buf_fini(bufs[k]);
    }
    free(c.choices);
}

void post_chat(struct server *s, struct exchange *x)
{
    struct problem p = {0};
    struct ask a = {0};
    cJSON *root = NULL;
    bool ok = body_parse(&root, exchange_body(x), &p) && chat_request_read(s, root, exchange_body(x), &a, &p);
    cJSON_Delete(root);
    if (ok)
        run(s, x, &a);
    else
        reply_problem(s, x, API_OPENAI, &p);
    ask_end(&a, s->models);
}
