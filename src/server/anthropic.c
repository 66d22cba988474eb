/* Anthropic's /v1/messages: its requests become chat requests, its answers blocks. */
#include <stdlib.h>
#include <string.h>
#include "server/chat_request.h"
#include "server/server_internal.h"

/* ---- requests ---- */

static void copy(cJSON *to, const char *name, const cJSON *from, const char *key)
{
    const cJSON *item = json_get(from, key);
    if (item && !cJSON_IsNull(item))
        cJSON_AddItemToObject(to, name, cJSON_Duplicate(item, true));
}

static void add_message(cJSON *messages, const char *role, cJSON *content)
{
    cJSON *m = cJSON_CreateObject();
    cJSON_AddStringToObject(m, "role", role);
    cJSON_AddItemToObject(m, "content", content);
    cJSON_AddItemToArray(messages, m);
}

static void add_text(cJSON *parts, const cJSON *text)
{
    cJSON *part = cJSON_CreateObject();
    cJSON_AddStringToObject(part, "type", "text");
    cJSON_AddItemToObject(part, "text", cJSON_Duplicate(text, true));
    cJSON_AddItemToArray(parts, part);
}

static void add_call(cJSON *calls, const cJSON *block)
{
    cJSON *call = cJSON_CreateObject(), *function = cJSON_CreateObject();
    char *input = cJSON_PrintUnformatted(json_get(block, "input"));
    copy(call, "id", block, "id");
    cJSON_AddStringToObject(call, "type", "function");
    copy(function, "name", block, "name");
    cJSON_AddStringToObject(function, "arguments", input ? input : "{}");
    cJSON_AddItemToObject(call, "function", function);
    cJSON_AddItemToArray(calls, call);
    free(input);
}

/* A tool's result is a message of its own. */
static void add_result(cJSON *messages, const cJSON *block)
{
    const cJSON *content = json_get(block, "content");
    cJSON *m = cJSON_CreateObject();
    cJSON_AddStringToObject(m, "role", "tool");
    copy(m, "tool_call_id", block, "tool_use_id");
    if (content && !cJSON_IsNull(content))
        cJSON_AddItemToObject(m, "content", cJSON_Duplicate(content, true));
    else
        cJSON_AddStringToObject(m, "content", "");
    cJSON_AddItemToArray(messages, m);
}

static bool convert_blocks(cJSON *messages, const char *role, const cJSON *blocks, const char *path,
                           struct problem *p)
{
    cJSON *parts = cJSON_CreateArray(), *calls = cJSON_CreateArray();
    const char *thinking = NULL;
    bool ok = true;
    for (const cJSON *b = blocks->child; b && ok; b = b->next) {
        const cJSON *type = json_get(b, "type");
        const char *name = cJSON_IsString(type) ? type->valuestring : "";
        const cJSON *thought = json_get(b, "thinking");
        if (strcmp(name, "text") == 0)
            add_text(parts, json_get(b, "text"));
        else if (strcmp(name, "thinking") == 0)
            thinking = cJSON_IsString(thought) ? thought->valuestring : NULL;
        else if (strcmp(name, "tool_use") == 0)
            add_call(calls, b);
        else if (strcmp(name, "tool_result") == 0)
            add_result(messages, b);
        else if (strcmp(name, "redacted_thinking") != 0)
            ok = problem_bad(p, "unsupported_value", path, "%s: blocks of type \"%.40s\" are not supported",
                             path, name);
    }
    if (ok && (parts->child || calls->child)) {
        add_message(messages, role, parts);
        cJSON *m = cJSON_GetArrayItem(messages, cJSON_GetArraySize(messages) - 1);
        if (thinking)
            cJSON_AddStringToObject(m, "reasoning_content", thinking);
        if (calls->child) {
            cJSON_AddItemToObject(m, "tool_calls", calls);
            calls = NULL;
        }
    } else {
        cJSON_Delete(parts);
    }
    cJSON_Delete(calls);
    return ok;
}

static bool convert_messages(cJSON *out, const cJSON *root, struct problem *p)
{
    const cJSON *system = json_get(root, "system"), *list = json_get(root, "messages");
    cJSON *messages = cJSON_AddArrayToObject(out, "messages");
    int i = 0;
    if (system && !cJSON_IsNull(system))
        add_message(messages, "system", cJSON_Duplicate(system, true));
    if (!cJSON_IsArray(list))
        return problem_bad(p, "missing_required_parameter", "messages", "messages: expected an array");
    for (const cJSON *m = list->child; m; m = m->next, i++) {
        const cJSON *role = json_get(m, "role"), *content = json_get(m, "content");
        char path[64];
        snprintf(path, sizeof path, "messages[%d]", i);
        if (!cJSON_IsString(role) || (!cJSON_IsString(content) && !cJSON_IsArray(content)))
            return problem_value(p, path, "%s: expected a role and a content of text or blocks", path);
        if (cJSON_IsString(content))
            add_message(messages, role->valuestring, cJSON_Duplicate(content, true));
        else if (!convert_blocks(messages, role->valuestring, content, path, p))
            return false;
    }
    return true;
}

static void convert_tools(cJSON *out, const cJSON *root)
{
    const cJSON *list = json_get(root, "tools"), *choice = json_get(root, "tool_choice"),
                *type = json_get(choice, "type");
    cJSON *tools = cJSON_IsArray(list) && list->child ? cJSON_AddArrayToObject(out, "tools") : NULL;
    for (const cJSON *t = tools ? list->child : NULL; t; t = t->next) {
        cJSON *tool = cJSON_CreateObject(), *function = cJSON_CreateObject();
        cJSON_AddStringToObject(tool, "type", "function");
        copy(function, "name", t, "name");
        copy(function, "description", t, "description");
        copy(function, "parameters", t, "input_schema");
        cJSON_AddItemToObject(tool, "function", function);
        cJSON_AddItemToArray(tools, tool);
    }
    if (!cJSON_IsString(type) || !tools)
        return;
    if (strcmp(type->valuestring, "tool") == 0) {
        cJSON *named = cJSON_AddObjectToObject(out, "tool_choice"), *function = cJSON_CreateObject();
        cJSON_AddStringToObject(named, "type", "function");
        copy(function, "name", choice, "name");
        cJSON_AddItemToObject(named, "function", function);
    } else {
        cJSON_AddStringToObject(out, "tool_choice",
                                strcmp(type->valuestring, "any") == 0 ? "required" : type->valuestring);
    }
    if (cJSON_IsTrue(json_get(choice, "disable_parallel_tool_use")))
        cJSON_AddFalseToObject(out, "parallel_tool_calls");
}

/* The same as a chat request. NULL: p says why not. */
static cJSON *convert(const cJSON *root, struct problem *p)
{
    static const char *const same[] = {"model", "max_tokens", "temperature", "top_p",
                                       "top_k", "stream",     "seed"};
    cJSON *out = cJSON_CreateObject();
    const cJSON *thinking = json_get(json_get(root, "thinking"), "type");
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        copy(out, same[i], root, same[i]);
    copy(out, "stop", root, "stop_sequences");
    if (!json_get(out, "max_tokens"))
        cJSON_AddNumberToObject(out, "max_tokens", 4096);
    if (cJSON_IsString(thinking)) {
        cJSON *more = cJSON_AddObjectToObject(out, "chat_template_kwargs");
        cJSON_AddBoolToObject(more, "enable_thinking", strcmp(thinking->valuestring, "disabled") != 0);
    }
    convert_tools(out, root);
    if (convert_messages(out, root, p))
        return out;
    cJSON_Delete(out);
    return NULL;
}

/* ---- answers ---- */

enum block { BLOCK_NONE, BLOCK_THINKING, BLOCK_TEXT, BLOCK_TOOL };

struct message {
    char id[40];
    const char *model;
    bool is_stream, has_begun;
    struct counts counts;
    enum block block;   /* that is open */
    int index;          /* of it, or of the next one */
    struct buf content; /* not a stream: the blocks so far */
    const char *reason;
    char *stop;
};

static void put_event(struct buf *out, const char *type)
{
    buf_printf(out, "event: %s\ndata: {\"type\":\"%s\"", type, type);
}

static void put_usage_of(struct buf *out, const struct counts *c, long long n_output)
{
    put_key(out, "usage");
    buf_printf(out,
               "{\"input_tokens\":%lld,\"cache_read_input_tokens\":%lld,\"cache_creation_input_tokens\":0,"
               "\"output_tokens\":%lld}",
               c->n_prompt - c->n_reused, c->n_reused, n_output);
}

static void put_head(struct message *m, struct buf *out)
{
    buf_puts(out, "{");
    put_key_string(out, "id", m->id);
    put_key_string(out, "type", "message");
    put_key_string(out, "role", "assistant");
    put_key_string(out, "model", m->model);
}

static void begin_message(struct message *m, struct buf *out)
{
    if (m->has_begun || !m->is_stream)
        return;
    m->has_begun = true;
    put_event(out, "message_start");
    put_key(out, "message");
    put_head(m, out);
    put_key_raw(out, "content", "[]");
    put_key_raw(out, "stop_reason", "null");
    put_key_raw(out, "stop_sequence", "null");
    put_usage_of(out, &m->counts, 0);
    buf_puts(out, "}}\n\n");
}

static void end_block(struct message *m, struct buf *out)
{
    if (m->block == BLOCK_NONE)
        return;
    if (m->is_stream && m->block == BLOCK_THINKING) {
        put_event(out, "content_block_delta");
        buf_printf(out, ",\"index\":%d,\"delta\":{\"type\":\"signature_delta\",\"signature\":\"\"}}\n\n",
                   m->index);
    }
    if (m->is_stream) {
        put_event(out, "content_block_stop");
        buf_printf(out, ",\"index\":%d}\n\n", m->index);
    } else {
        buf_puts(&m->content, m->block == BLOCK_THINKING ? ",\"signature\":\"\"}" : "}");
    }
    m->index++;
    m->block = BLOCK_NONE;
}

static void begin_block(struct message *m, enum block block, const char *start, struct buf *out)
{
    end_block(m, out);
    m->block = block;
    if (!m->is_stream)
        return;
    put_event(out, "content_block_start");
    buf_printf(out, ",\"index\":%d,\"content_block\":%s}\n\n", m->index, start);
}

static void put_delta(struct message *m, const char *type, const char *key, const char *text, size_t n,
                      struct buf *out)
{
    put_event(out, "content_block_delta");
    buf_printf(out, ",\"index\":%d,\"delta\":{\"type\":\"%s\"", m->index, type);
    put_key_text(out, key, text, n);
    buf_puts(out, "}}\n\n");
}

/* Whole answers keep the text of a block until it ends. */
static void take_text(struct message *m, const struct event *e, struct buf *out, struct buf *text)
{
    bool is_thought = e->part == PART_REASONING;
    enum block block = is_thought ? BLOCK_THINKING : BLOCK_TEXT;
    const char *key = is_thought ? "thinking" : "text";
    if (m->block != block)
        begin_block(m, block,
                    is_thought ? "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}"
                               : "{\"type\":\"text\",\"text\":\"\"}",
                    out);
    if (m->is_stream)
        put_delta(m, is_thought ? "thinking_delta" : "text_delta", key, e->text, e->n, out);
    else
        buf_append(text, e->text, e->n);
}

static void take_call(struct message *m, const struct event *e, struct buf *out)
{
    char id[40];
    struct buf start;
    random_id(id, "toolu_", 24);
    buf_init(&start, ANSWER_BYTES_MAX);
    buf_puts(&start, "{");
    put_key_string(&start, "type", "tool_use");
    put_key_string(&start, "id", id);
    put_key_string(&start, "name", e->name);
    put_key(&start, "input");
    if (m->is_stream) {
        buf_puts(&start, "{}}");
        begin_block(m, BLOCK_TOOL, start.p, out);
        put_delta(m, "input_json_delta", "partial_json", e->text, e->n, out);
        end_block(m, out);
    } else {
        buf_append(&start, e->text, e->n);
        buf_puts(&start, "}");
        if (m->content.n > 0)
            buf_putc(&m->content, ',');
        buf_append(&m->content, start.p, start.n);
    }
    buf_fini(&start);
}

struct answer {
    struct message m;
    struct buf text; /* of the open block of a whole answer */
};

/* Puts the open block of a whole answer. */
static void close_text(struct answer *a)
{
    struct message *m = &a->m;
    if (m->is_stream || m->block == BLOCK_NONE)
        return;
    buf_puts(&m->content, m->content.n > 0 ? ",{" : "{");
    put_key_string(&m->content, "type", m->block == BLOCK_THINKING ? "thinking" : "text");
    put_key_text(&m->content, m->block == BLOCK_THINKING ? "thinking" : "text", a->text.p ? a->text.p : "",
                 a->text.n);
    buf_clear(&a->text);
    end_block(m, NULL);
}

static void on_event(void *context, const struct event *e, struct buf *out)
{
    struct answer *a = context;
    struct message *m = &a->m;
    counts_add(&m->counts, e);
    if (e->kind == EVENT_BEGIN || e->kind == EVENT_PROGRESS)
        return;
    begin_message(m, out);
    if (e->kind == EVENT_TOKEN && e->n > 0) {
        if (!m->is_stream && m->block != BLOCK_NONE &&
            m->block != (e->part == PART_REASONING ? BLOCK_THINKING : BLOCK_TEXT))
            close_text(a);
        take_text(m, e, out, &a->text);
    } else if (e->kind == EVENT_CALL) {
        close_text(a);
        take_call(m, e, out);
    } else if (e->kind == EVENT_END) {
        m->reason = e->stop                  ? "stop_sequence"
                    : e->reason == END_CALLS ? "tool_use"
                    : e->reason == END_STOP  ? "end_turn"
                                             : "max_tokens";
        m->stop = e->stop ? xstrdup(e->stop) : NULL;
    }
}

static void put_reason(const struct message *m, struct buf *out)
{
    put_key_string(out, "stop_reason", m->reason);
    put_key(out, "stop_sequence");
    if (m->stop)
        put_string(out, m->stop);
    else
        buf_puts(out, "null");
}

static void on_end(void *context, struct buf *out)
{
    struct answer *a = context;
    struct message *m = &a->m;
    if (m->is_stream) {
        end_block(m, out);
        put_event(out, "message_delta");
        buf_puts(out, ",\"delta\":{");
        put_reason(m, out);
        buf_puts(out, "}");
        put_usage_of(out, &m->counts, m->counts.n_generated);
        buf_puts(out, "}\n\n");
        put_event(out, "message_stop");
        buf_puts(out, "}\n\n");
        return;
    }
    close_text(a);
    put_head(m, out);
    put_key(out, "content");
    buf_puts(out, "[");
    buf_append(out, m->content.p ? m->content.p : "", m->content.n);
    buf_puts(out, "]");
    put_reason(m, out);
    put_usage_of(out, &m->counts, m->counts.n_generated);
    buf_puts(out, "}");
}

static void on_problem(void *context, const struct problem *p, struct buf *out)
{
    const struct answer *a = context;
    buf_puts(out, "event: error\ndata: ");
    problem_put_anthropic(out, p, a->m.id);
    buf_puts(out, "\n\n");
}

/* ---- */

static bool read_request(struct server *s, struct exchange *x, struct ask *a, struct problem *p)
{
    cJSON *root = NULL;
    if (!body_parse(&root, exchange_body(x), p))
        return false;
    cJSON *chat = convert(root, p);
    cJSON_Delete(root);
    bool ok = chat && chat_request_read_made(s, chat, a, p);
    cJSON_Delete(chat);
    return ok;
}

void post_messages(struct server *s, struct exchange *x)
{
    struct problem p = {0};
    struct ask ask = {0};
    if (read_request(s, x, &ask, &p)) {
        struct answer a = {.m = {.model = model_name(ask.model), .is_stream = ask.is_stream}};
        random_id(a.m.id, "msg_", 24);
        buf_init(&a.m.content, ANSWER_BYTES_MAX);
        buf_init(&a.text, ANSWER_BYTES_MAX);
        const struct follower f = {.api = API_ANTHROPIC,
                                   .is_stream = ask.is_stream,
                                   .type = SSE_TYPE,
                                   .ping = "event: ping\ndata: {\"type\":\"ping\"}\n\n",
                                   .ping_seconds = ask.ping_seconds,
                                   .event = on_event,
                                   .end = on_end,
                                   .problem = on_problem,
                                   .context = &a};
        follow(s, x, &ask, &f);
        buf_fini(&a.m.content);
        buf_fini(&a.text);
        free(a.m.stop);
    } else {
        reply_problem(s, x, API_ANTHROPIC, &p);
    }
    ask_end(&ask, s->models);
}

void post_count_tokens(struct server *s, struct exchange *x)
{
    struct problem p = {0};
    struct ask a = {0};
    struct buf b;
    buf_init(&b, ANSWER_BYTES_MAX);
    if (read_request(s, x, &a, &p) || p.n_context > 0) {
        buf_printf(&b, "{\"input_tokens\":%zu}", p.n_context > 0 ? (size_t)p.n_prompt : a.job.n_prompt);
        reply_json(x, 200, &b);
    } else {
        reply_problem(s, x, API_ANTHROPIC, &p);
    }
    buf_fini(&b);
    ask_end(&a, s->models);
}
