/* OpenAI's /v1/responses: answers as items, streamed as numbered events. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "server/chat_request.h"
#include "server/openai.h"
#include "server/responses_request.h"
#include "server/server_internal.h"

enum item { ITEM_NONE, ITEM_THOUGHT, ITEM_MESSAGE };

struct response {
    char id[48];
    long long created;
    const char *model;
    const struct vocabulary_bytes *vocabulary; /* NULL: no probabilities */
    bool is_stream, has_begun;
    struct buf request; /* the members that repeat it */
    struct counts counts;
    long long n_events;
    enum item item; /* that is open */
    char item_id[48];
    int n_items;               /* before it */
    struct buf text, logprobs; /* of it */
    struct buf pending;        /* probabilities that the next delta brings */
    struct buf output;         /* the items before it */
    bool is_cut;
};

/* ---- pieces ---- */

static void put_event(struct response *r, const char *type, struct buf *out)
{
    buf_printf(out, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%lld", type, type, r->n_events++);
}

static void end_event(struct buf *out)
{
    buf_puts(out, "}\n\n");
}

/* An event about the open item. */
static void put_item_event(struct response *r, const char *type, bool has_content, struct buf *out)
{
    put_event(r, type, out);
    put_key_string(out, "item_id", r->item_id);
    put_key_int(out, "output_index", r->n_items);
    if (has_content)
        put_key_int(out, "content_index", 0);
}

static void put_list(struct buf *out, const char *key, const struct buf *items)
{
    put_key(out, key);
    buf_puts(out, "[");
    buf_append(out, items->p ? items->p : "", items->n);
    buf_puts(out, "]");
}

static void put_text_part(struct response *r, struct buf *out)
{
    buf_puts(out, "{\"type\":\"output_text\"");
    put_key_text(out, "text", r->text.p ? r->text.p : "", r->text.n);
    put_key_raw(out, "annotations", "[]");
    put_list(out, "logprobs", &r->logprobs);
    buf_puts(out, "}");
}

static void put_item(struct response *r, const char *status, bool has_content, struct buf *out)
{
    bool is_thought = r->item == ITEM_THOUGHT;
    buf_printf(out, "{\"type\":\"%s\"", is_thought ? "reasoning" : "message");
    put_key_string(out, "id", r->item_id);
    put_key_string(out, "status", status);
    put_key_raw(out, is_thought ? "summary" : "role", is_thought ? "[]" : "\"assistant\"");
    put_key(out, "content");
    buf_puts(out, "[");
    if (has_content && is_thought) {
        buf_puts(out, "{\"type\":\"reasoning_text\"");
        put_key_text(out, "text", r->text.p ? r->text.p : "", r->text.n);
        buf_puts(out, "}");
    } else if (has_content) {
        put_text_part(r, out);
    }
    buf_puts(out, "]}");
}

static void put_usage_of(const struct counts *c, struct buf *out)
{
    put_key(out, "usage");
    buf_printf(
        out,
        "{\"input_tokens\":%lld,\"input_tokens_details\":{\"cached_tokens\":%lld},\"output_tokens\":%lld,"
        "\"output_tokens_details\":{\"reasoning_tokens\":%lld},\"total_tokens\":%lld}",
        c->n_prompt, c->n_reused, c->n_generated, c->n_reasoning, c->n_prompt + c->n_generated);
}

static void put_response(struct response *r, const char *status, struct buf *out)
{
    bool is_over = strcmp(status, "in_progress") != 0;
    buf_puts(out, "{");
    put_key_string(out, "id", r->id);
    put_key_string(out, "object", "response");
    put_key_int(out, "created_at", r->created);
    if (is_over)
        put_key_int(out, "completed_at", (long long)time(NULL));
    else
        put_key_raw(out, "completed_at", "null");
    put_key_string(out, "status", status);
    put_key_raw(out, "background", "false");
    put_key_raw(out, "error", "null");
    put_key_raw(out, "incomplete_details",
                is_over && r->is_cut ? "{\"reason\":\"max_output_tokens\"}" : "null");
    put_key_string(out, "model", r->model);
    put_list(out, "output", &r->output);
    put_key_raw(out, "previous_response_id", "null");
    put_key_raw(out, "store", "false");
    put_key_raw(out, "truncation", "\"disabled\"");
    buf_append(out, r->request.p, r->request.n);
    if (is_over) {
        put_usage_of(&r->counts, out);
        put_timings(out, &r->counts);
    } else {
        put_key_raw(out, "usage", "null");
    }
    buf_puts(out, "}");
}

static void begin(struct response *r, struct buf *out)
{
    static const char *const types[] = {"response.created", "response.in_progress"};
    for (int i = 0; i < 2 && r->is_stream && !r->has_begun; i++) {
        put_event(r, types[i], out);
        put_key(out, "response");
        put_response(r, "in_progress", out);
        end_event(out);
    }
    r->has_begun = true;
}

static void put_part_event(struct response *r, const char *type, struct buf *out)
{
    put_item_event(r, type, true, out);
    put_key(out, "part");
    put_text_part(r, out);
    end_event(out);
}

static void begin_item(struct response *r, enum item item, struct buf *out)
{
    r->item = item;
    random_id(r->item_id, item == ITEM_THOUGHT ? "rs_" : "msg_", 24);
    buf_clear(&r->text);
    buf_clear(&r->logprobs);
    if (!r->is_stream)
        return;
    put_event(r, "response.output_item.added", out);
    put_key_int(out, "output_index", r->n_items);
    put_key(out, "item");
    put_item(r, "in_progress", false, out);
    end_event(out);
    if (item == ITEM_MESSAGE)
        put_part_event(r, "response.content_part.added", out);
}

/* The open item is among the output; what it is stands in `item` JSON. */
static void keep_item(struct response *r, const char *item, size_t n, struct buf *out)
{
    if (r->output.n > 0)
        buf_putc(&r->output, ',');
    buf_append(&r->output, item, n);
    if (r->is_stream) {
        put_event(r, "response.output_item.done", out);
        put_key_int(out, "output_index", r->n_items);
        put_key(out, "item");
        buf_append(out, item, n);
        end_event(out);
    }
    r->n_items++;
    r->item = ITEM_NONE;
}

static void end_item(struct response *r, bool is_cut, struct buf *out)
{
    struct buf item;
    bool is_thought = r->item == ITEM_THOUGHT;
    if (r->item == ITEM_NONE)
        return;
    if (r->is_stream) {
        put_item_event(r, is_thought ? "response.reasoning_text.done" : "response.output_text.done", true,
                       out);
        put_key_text(out, "text", r->text.p ? r->text.p : "", r->text.n);
        if (!is_thought)
            put_list(out, "logprobs", &r->logprobs);
        end_event(out);
        if (!is_thought)
            put_part_event(r, "response.content_part.done", out);
    }
    buf_init(&item, ANSWER_BYTES_MAX);
    put_item(r, is_cut ? "incomplete" : "completed", true, &item);
    keep_item(r, item.p, item.n, out);
    buf_fini(&item);
}

static void take_text(struct response *r, const struct event *e, struct buf *out)
{
    enum item item = e->part == PART_REASONING ? ITEM_THOUGHT : ITEM_MESSAGE;
    if (r->item != item) {
        end_item(r, false, out);
        begin_item(r, item, out);
    }
    buf_append(&r->text, e->text, e->n);
    if (r->pending.n > 0 && item == ITEM_MESSAGE) {
        if (r->logprobs.n > 0)
            buf_putc(&r->logprobs, ',');
        buf_append(&r->logprobs, r->pending.p, r->pending.n);
    }
    if (r->is_stream) {
        put_item_event(r,
                       item == ITEM_THOUGHT ? "response.reasoning_text.delta" : "response.output_text.delta",
                       true, out);
        put_key_text(out, "delta", e->text, e->n);
        if (item == ITEM_MESSAGE)
            put_list(out, "logprobs", &r->pending);
        end_event(out);
    }
    buf_clear(&r->pending);
}

static void put_call(const struct response *r, const char *call_id, const struct event *e, const char *status,
                     bool is_whole, struct buf *out)
{
    buf_puts(out, "{\"type\":\"function_call\"");
    put_key_string(out, "id", r->item_id);
    put_key_string(out, "call_id", call_id);
    put_key_string(out, "name", e->name);
    put_key_text(out, "arguments", e->text, is_whole ? e->n : 0);
    put_key_string(out, "status", status);
    buf_puts(out, "}");
}

static void take_call(struct response *r, const struct event *e, struct buf *out)
{
    char call_id[48];
    struct buf item;
    end_item(r, false, out);
    random_id(r->item_id, "fc_", 24);
    random_id(call_id, "call_", 24);
    if (r->is_stream) {
        put_event(r, "response.output_item.added", out);
        put_key_int(out, "output_index", r->n_items);
        put_key(out, "item");
        put_call(r, call_id, e, "in_progress", false, out);
        end_event(out);
        put_item_event(r, "response.function_call_arguments.delta", false, out);
        put_key_text(out, "delta", e->text, e->n);
        end_event(out);
        put_item_event(r, "response.function_call_arguments.done", false, out);
        put_key_string(out, "name", e->name);
        put_key_text(out, "arguments", e->text, e->n);
        end_event(out);
    }
    buf_init(&item, ANSWER_BYTES_MAX);
    put_call(r, call_id, e, "completed", true, &item);
    keep_item(r, item.p, item.n, out);
    buf_fini(&item);
    buf_clear(&r->pending);
}

/* ---- events of the job ---- */

static void on_event(void *context, const struct event *e, struct buf *out)
{
    struct response *r = context;
    counts_add(&r->counts, e);
    if (e->kind == EVENT_BEGIN || e->kind == EVENT_PROGRESS)
        return;
    begin(r, out);
    if (r->vocabulary && e->kind == EVENT_TOKEN && e->n > 0 && e->part == PART_CONTENT)
        put_chat_logprobs(&r->pending, r->vocabulary, e);
    if (e->kind == EVENT_CALL)
        take_call(r, e, out);
    else if (e->n > 0 && e->kind == EVENT_TOKEN)
        take_text(r, e, out);
    if (e->kind != EVENT_END)
        return;
    r->is_cut = e->reason == END_LENGTH || e->reason == END_CONTEXT;
    if (r->item == ITEM_NONE && r->n_items == 0) /* it said nothing */
        begin_item(r, ITEM_MESSAGE, out);
    end_item(r, r->is_cut, out);
}

static void on_end(void *context, struct buf *out)
{
    struct response *r = context;
    const char *status = r->is_cut ? "incomplete" : "completed";
    if (!r->is_stream) {
        put_response(r, status, out);
        return;
    }
    put_event(r, r->is_cut ? "response.incomplete" : "response.completed", out);
    put_key(out, "response");
    put_response(r, status, out);
    end_event(out);
}

static void on_problem(void *context, const struct problem *p, struct buf *out)
{
    struct response *r = context;
    put_event(r, "error", out);
    put_key_string(out, "code", p->code ? p->code : p->type);
    put_key_string(out, "message", p->message);
    put_key_raw(out, "param", "null");
    end_event(out);
}

/* ---- requests ---- */

static bool read_request(struct server *s, struct exchange *x, struct ask *a, struct buf *request,
                         struct problem *p)
{
    cJSON *root = NULL;
    if (!body_parse(&root, exchange_body(x), p))
        return false;
    cJSON *chat = responses_request_convert(root, p);
    if (chat && request)
        responses_request_put(request, root);
    cJSON_Delete(root);
    bool ok = chat && chat_request_read_made(s, chat, a, p);
    cJSON_Delete(chat);
    return ok;
}

void post_responses(struct server *s, struct exchange *x)
{
    struct problem p = {0};
    struct ask a = {0};
    struct response r = {0};
    struct buf *bufs[] = {&r.request, &r.text, &r.logprobs, &r.pending, &r.output};
    for (size_t i = 0; i < sizeof bufs / sizeof *bufs; i++)
        buf_init(bufs[i], ANSWER_BYTES_MAX);
    if (read_request(s, x, &a, &r.request, &p)) {
        r.is_stream = a.is_stream;
        r.model = model_name(a.model);
        r.created = (long long)time(NULL);
        r.vocabulary = a.job.n_top >= 0 ? scheduler_vocabulary(model_scheduler(a.model)) : NULL;
        random_id(r.id, "resp_", 24);
        struct follower f = openai_follower(&a, a.is_stream, on_event, on_end, &r);
        f.problem = on_problem;
        follow(s, x, &a, &f);
    } else {
        reply_problem(s, x, API_OPENAI, &p);
    }
    for (size_t i = 0; i < sizeof bufs / sizeof *bufs; i++)
        buf_fini(bufs[i]);
    ask_end(&a, s->models);
}

void post_responses_input_tokens(struct server *s, struct exchange *x)
{
    struct problem p = {0};
    struct ask a = {0};
    struct buf b;
    buf_init(&b, ANSWER_BYTES_MAX);
    if (read_request(s, x, &a, NULL, &p) || p.n_context > 0) {
        buf_printf(&b, "{\"object\":\"response.input_tokens\",\"input_tokens\":%zu}",
                   p.n_context > 0 ? (size_t)p.n_prompt : a.job.n_prompt);
        reply_json(x, 200, &b);
    } else {
        reply_problem(s, x, API_OPENAI, &p);
    }
    buf_fini(&b);
    ask_end(&a, s->models);
}
