/* What /v1/responses is asked, brought into the form of chats: items become messages, flat tools and formats nested ones. */
#include "server/responses_request.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "server/fields.h"
#include "server/put.h"

/* The messages so far. What the assistant said, called and thought in items of their own is one message. */
struct turns {
    cJSON *messages;
    cJSON *parts, *calls; /* of the assistant's message that is open; NULL: none */
    struct buf thought;
};

static void copy(cJSON *to, const char *name, const cJSON *from, const char *key)
{
    const cJSON *item = json_get(from, key);
    if (item && !cJSON_IsNull(item))
        cJSON_AddItemToObject(to, name, cJSON_Duplicate(item, true));
}

static void close_turn(struct turns *t)
{
    if (t->parts && (t->parts->child || t->calls->child)) {
        cJSON *m = cJSON_CreateObject();
        cJSON_AddStringToObject(m, "role", "assistant");
        cJSON_AddItemToObject(m, "content", t->parts->child ? t->parts : cJSON_CreateNull());
        if (!t->parts->child)
            cJSON_Delete(t->parts);
        if (t->thought.n > 0) {
            buf_putc(&t->thought, '\0');
            cJSON_AddStringToObject(m, "reasoning_content", t->thought.p);
        }
        if (t->calls->child)
            cJSON_AddItemToObject(m, "tool_calls", t->calls);
        else
            cJSON_Delete(t->calls);
        cJSON_AddItemToArray(t->messages, m);
    } else {
        cJSON_Delete(t->parts);
        cJSON_Delete(t->calls);
    }
    t->parts = t->calls = NULL;
    buf_clear(&t->thought);
}

static void open_turn(struct turns *t)
{
    if (t->parts)
        return;
    t->parts = cJSON_CreateArray();
    t->calls = cJSON_CreateArray();
}

static cJSON *text_part(const char *text)
{
    cJSON *part = cJSON_CreateObject();
    cJSON_AddStringToObject(part, "type", "text");
    cJSON_AddStringToObject(part, "text", text);
    return part;
}

static bool add_message(struct turns *t, const struct fields *f)
{
    const char *role = NULL;
    const cJSON *content = fields_get(f, "content");
    if (!fields_string(f, "role", &role))
        return false;
    if (!role || !content)
        return problem_bad(f->problem, "missing_required_parameter", f->path,
                           "%s: expected \"role\" and \"content\"", f->path);
    if (strcmp(role, "assistant") != 0) {
        close_turn(t);
        cJSON *m = cJSON_CreateObject();
        cJSON_AddStringToObject(m, "role", role);
        cJSON_AddItemToObject(m, "content", cJSON_Duplicate(content, true));
        cJSON_AddItemToArray(t->messages, m);
        return true;
    }
    if (!cJSON_IsString(content) && !cJSON_IsArray(content))
        return fields_fail(f, "content", "a string or an array of parts", content);
    open_turn(t);
    if (cJSON_IsString(content))
        cJSON_AddItemToArray(t->parts, text_part(content->valuestring));
    for (const cJSON *part = cJSON_IsArray(content) ? content->child : NULL; part; part = part->next)
        cJSON_AddItemToArray(t->parts, cJSON_Duplicate(part, true));
    return true;
}

static bool add_call(struct turns *t, const struct fields *f)
{
    const char *name = NULL;
    if (!fields_string(f, "name", &name))
        return false;
    if (!name)
        return problem_bad(f->problem, "missing_required_parameter", f->path, "%s: expected \"name\"",
                           f->path);
    cJSON *call = cJSON_CreateObject(), *function = cJSON_CreateObject();
    copy(call, "id", f->object, "call_id");
    cJSON_AddStringToObject(call, "type", "function");
    cJSON_AddStringToObject(function, "name", name);
    copy(function, "arguments", f->object, "arguments");
    cJSON_AddItemToObject(call, "function", function);
    open_turn(t);
    cJSON_AddItemToArray(t->calls, call);
    return true;
}

static bool add_output(struct turns *t, const struct fields *f)
{
    const cJSON *output = fields_get(f, "output");
    close_turn(t);
    if (!output)
        return problem_bad(f->problem, "missing_required_parameter", f->path, "%s: expected \"output\"",
                           f->path);
    cJSON *m = cJSON_CreateObject();
    cJSON_AddStringToObject(m, "role", "tool");
    copy(m, "tool_call_id", f->object, "call_id");
    cJSON_AddItemToObject(m, "content", cJSON_Duplicate(output, true));
    cJSON_AddItemToArray(t->messages, m);
    return true;
}

/* Clients send such items back as they got them, also without what was thought. */
static void add_thought(struct turns *t, const cJSON *item)
{
    const cJSON *content = json_get(item, "content");
    open_turn(t);
    for (const cJSON *part = cJSON_IsArray(content) ? content->child : NULL; part; part = part->next)
        if (cJSON_IsString(json_get(part, "text")))
            buf_puts(&t->thought, json_get(part, "text")->valuestring);
}

static bool add_item(struct turns *t, const cJSON *item, int i, struct problem *p)
{
    char path[64];
    const char *type = NULL;
    snprintf(path, sizeof path, "input[%d]", i);
    const struct fields f = {item, path, p};
    if (!cJSON_IsObject(item))
        return problem_value(p, path, "%s: expected an object, found %s", path, json_type_name(item));
    if (!fields_string(&f, "type", &type))
        return false;
    if (!type || strcmp(type, "message") == 0)
        return add_message(t, &f);
    if (strcmp(type, "function_call") == 0)
        return add_call(t, &f);
    if (strcmp(type, "function_call_output") == 0)
        return add_output(t, &f);
    if (strcmp(type, "reasoning") == 0) {
        add_thought(t, item);
        return true;
    }
    return problem_bad(p, "unsupported_value", path, "%s: items of type \"%.60s\" are not supported", path,
                       type);
}

static bool convert_input(cJSON *out, const cJSON *root, struct problem *p)
{
    const struct fields f = {root, "", p};
    const cJSON *input = fields_get(&f, "input");
    const char *instructions = NULL;
    struct turns t = {.messages = cJSON_AddArrayToObject(out, "messages")};
    int i = 0;
    if (!fields_string(&f, "instructions", &instructions))
        return false;
    if (!input)
        return problem_bad(p, "missing_required_parameter", "input", "expected \"input\"");
    if (!cJSON_IsString(input) && !cJSON_IsArray(input))
        return fields_fail(&f, "input", "a string or an array of items", input);
    buf_init(&t.thought, (size_t)1 << 28);
    if (instructions) {
        cJSON *m = cJSON_CreateObject();
        cJSON_AddStringToObject(m, "role", "system");
        cJSON_AddStringToObject(m, "content", instructions);
        cJSON_AddItemToArray(t.messages, m);
    }
    if (cJSON_IsString(input)) {
        cJSON *m = cJSON_CreateObject();
        cJSON_AddStringToObject(m, "role", "user");
        cJSON_AddStringToObject(m, "content", input->valuestring);
        cJSON_AddItemToArray(t.messages, m);
    }
    bool ok = true;
    for (const cJSON *item = cJSON_IsArray(input) ? input->child : NULL; item && ok; item = item->next)
        ok = add_item(&t, item, i++, p);
    close_turn(&t);
    buf_fini(&t.thought);
    return ok;
}

/* ---- the rest ---- */

static cJSON *named_function(const cJSON *from)
{
    cJSON *tool = cJSON_CreateObject(), *function = cJSON_CreateObject();
    cJSON_AddStringToObject(tool, "type", "function");
    copy(function, "name", from, "name");
    cJSON_AddItemToObject(tool, "function", function);
    return tool;
}

static bool is_of_type(const cJSON *item, const char *type)
{
    const cJSON *found = json_get(item, "type");
    return cJSON_IsString(found) && strcmp(found->valuestring, type) == 0;
}

/* Other tools than functions are the original server's own (search, ..), which clients name always: they are left out. */
static void convert_tools(cJSON *out, const cJSON *root)
{
    const cJSON *list = json_get(root, "tools"), *choice = json_get(root, "tool_choice");
    cJSON *tools = cJSON_CreateArray();
    for (const cJSON *t = cJSON_IsArray(list) ? list->child : NULL; t; t = t->next) {
        if (!is_of_type(t, "function"))
            continue;
        cJSON *tool = named_function(t), *function = cJSON_GetObjectItem(tool, "function");
        copy(function, "description", t, "description");
        copy(function, "parameters", t, "parameters");
        cJSON_AddItemToArray(tools, tool);
    }
    if (!tools->child) {
        cJSON_Delete(tools);
        if (cJSON_IsString(choice) && strcmp(choice->valuestring, "required") == 0)
            copy(out, "tool_choice", root, "tool_choice"); /* which then has nothing to choose from */
        return;
    }
    cJSON_AddItemToObject(out, "tools", tools);
    if (is_of_type(choice, "function"))
        cJSON_AddItemToObject(out, "tool_choice", named_function(choice));
    else
        copy(out, "tool_choice", root, "tool_choice");
}

static bool convert_format(cJSON *out, const cJSON *root, struct problem *p)
{
    const struct fields f = {root, "", p};
    const cJSON *text = NULL, *format = NULL;
    if (!fields_item(&f, "text", cJSON_Object, &text))
        return false;
    const struct fields sub = {text, "text", p};
    if (text && !fields_item(&sub, "format", cJSON_Object, &format))
        return false;
    if (!format)
        return true;
    cJSON *to = cJSON_AddObjectToObject(out, "response_format");
    copy(to, "type", format, "type");
    if (is_of_type(format, "json_schema")) {
        cJSON *schema = cJSON_AddObjectToObject(to, "json_schema");
        copy(schema, "name", format, "name");
        copy(schema, "schema", format, "schema");
        copy(schema, "strict", format, "strict");
    }
    return true;
}

static bool refuse(const cJSON *root, struct problem *p)
{
    static const char *const keys[] = {"previous_response_id", "conversation", "prompt"};
    const struct fields f = {root, "", p};
    const char *truncation = NULL;
    bool is_background = false;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (fields_get(&f, keys[i]))
            return problem_bad(p, "unsupported_parameter", keys[i],
                               "%s: this server keeps nothing: send the whole conversation as \"input\"",
                               keys[i]);
    if (!fields_bool(&f, "background", &is_background) || !fields_string(&f, "truncation", &truncation))
        return false;
    if (is_background)
        return problem_bad(p, "unsupported_value", "background", "background: expected false");
    if (truncation && strcmp(truncation, "disabled") != 0)
        return problem_bad(p, "unsupported_value", "truncation",
                           "truncation: expected \"disabled\", found \"%.40s\"", truncation);
    return true;
}

static bool wants_logprobs(const cJSON *root)
{
    const cJSON *include = json_get(root, "include");
    for (const cJSON *i = cJSON_IsArray(include) ? include->child : NULL; i; i = i->next)
        if (cJSON_IsString(i) && strcmp(i->valuestring, "message.output_text.logprobs") == 0)
            return true;
    return false;
}

cJSON *responses_request_convert(const cJSON *root, struct problem *p)
{
    static const char *const same[] = {"model",
                                       "stream",
                                       "temperature",
                                       "top_p",
                                       "top_k",
                                       "min_p",
                                       "seed",
                                       "stop",
                                       "logit_bias",
                                       "presence_penalty",
                                       "frequency_penalty",
                                       "parallel_tool_calls",
                                       "chat_template_kwargs",
                                       "grammar",
                                       "sse_ping_interval"};
    cJSON *out = cJSON_CreateObject();
    const cJSON *top = json_get(root, "top_logprobs");
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        copy(out, same[i], root, same[i]);
    copy(out, "max_completion_tokens", root, "max_output_tokens");
    copy(out, "reasoning_effort", json_get(root, "reasoning"), "effort");
    if (wants_logprobs(root) || (cJSON_IsNumber(top) && top->valuedouble != 0)) {
        cJSON_AddTrueToObject(out, "logprobs");
        copy(out, "top_logprobs", root, "top_logprobs");
    }
    convert_tools(out, root);
    if (refuse(root, p) && convert_format(out, root, p) && convert_input(out, root, p))
        return out;
    cJSON_Delete(out);
    return NULL;
}

static void put_member(struct buf *out, const cJSON *root, const char *key, const char *absent)
{
    const cJSON *item = json_get(root, key);
    char *text = item && !cJSON_IsNull(item) ? cJSON_PrintUnformatted(item) : NULL;
    put_key_raw(out, key, text ? text : absent);
    free(text);
}

void responses_request_put(struct buf *out, const cJSON *root)
{
    static const char *const rows[][2] = {{"instructions", "null"},
                                          {"max_output_tokens", "null"},
                                          {"metadata", "{}"},
                                          {"parallel_tool_calls", "true"},
                                          {"reasoning", "{\"effort\":null,\"summary\":null}"},
                                          {"temperature", "null"},
                                          {"text", "{\"format\":{\"type\":\"text\"}}"},
                                          {"tool_choice", "\"auto\""},
                                          {"tools", "[]"},
                                          {"top_p", "null"},
                                          {"top_logprobs", "0"}};
    buf_putc(out, ' '); /* so that a comma comes first */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        put_member(out, root, rows[i][0], rows[i][1]);
}
