/* Messages, tools and options of a chat, to a prompt. */
#include "server/chat_messages.h"
#include <stdlib.h>
#include <string.h>
#include "server/put.h"

#define MESSAGES_MAX 4096
#define TOOLS_MAX 128
#define NAME_BYTES_MAX 64
#define TEXT_BYTES_MAX ((size_t)1 << 28)

void chat_prompt_init(struct chat_prompt *c)
{
    *c = (struct chat_prompt){0};
    buf_init(&c->messages, TEXT_BYTES_MAX);
    buf_init(&c->tools, TEXT_BYTES_MAX);
    buf_init(&c->options, TEXT_BYTES_MAX);
    buf_puts(&c->options, "{");
}

void chat_prompt_fini(struct chat_prompt *c)
{
    buf_fini(&c->messages);
    buf_fini(&c->tools);
    buf_fini(&c->options);
    free(c->prefill);
    free(c->only);
}

/* ---- messages ---- */

/* Appends the texts of the parts, joined without anything between them. */
static bool read_parts(const struct fields *f, const cJSON *parts, struct buf *text)
{
    int i = 0;
    for (const cJSON *part = parts->child; part; part = part->next, i++) {
        char path[160];
        const char *type = NULL, *piece = NULL;
        snprintf(path, sizeof path, "%s.content[%d]", f->path, i);
        const struct fields sub = {part, path, f->problem};
        if (!cJSON_IsObject(part))
            return problem_value(f->problem, path, "%s: expected an object, found %s", path,
                                 json_type_name(part));
        if (!fields_string(&sub, "type", &type))
            return false;
        bool is_text = type && (strcmp(type, "text") == 0 || strcmp(type, "input_text") == 0 ||
                                strcmp(type, "output_text") == 0);
        bool is_refusal = type && strcmp(type, "refusal") == 0;
        if (!is_text && !is_refusal)
            return problem_bad(f->problem, "unsupported_value", path,
                               "%s: this model takes text only: expected type \"text\", found %.60s", path,
                               type ? type : "none");
        if (!fields_string(&sub, is_text ? "text" : "refusal", &piece))
            return false;
        if (!piece)
            return problem_bad(f->problem, "missing_required_parameter", path,
                               "%s: expected \"%s\", a string", path, is_text ? "text" : "refusal");
        buf_puts(text, piece);
    }
    return true;
}

static bool put_calls(const struct fields *f, const cJSON *calls, struct buf *out)
{
    int i = 0;
    put_key(out, "tool_calls");
    buf_puts(out, "[");
    for (const cJSON *call = calls->child; call; call = call->next, i++) {
        char path[160];
        const char *id = NULL, *name = NULL, *arguments = NULL;
        const cJSON *function = NULL;
        cJSON *parsed = NULL;
        snprintf(path, sizeof path, "%s.tool_calls[%d]", f->path, i);
        const struct fields sub = {call, path, f->problem};
        if (!cJSON_IsObject(call))
            return problem_value(f->problem, path, "%s: expected an object, found %s", path,
                                 json_type_name(call));
        if (!fields_string(&sub, "id", &id) || !fields_item(&sub, "function", cJSON_Object, &function))
            return false;
        snprintf(path, sizeof path, "%s.tool_calls[%d].function", f->path, i);
        const struct fields inner = {function, path, f->problem};
        if (!function || !fields_string(&inner, "name", &name) || !name)
            return problem_bad(f->problem, "missing_required_parameter", path,
                               "%s: expected an object with a name", path);
        if (!fields_string(&inner, "arguments", &arguments))
            return false;
        if (!arguments || arguments[strspn(arguments, " \t\r\n")] == '\0')
            arguments = "{}";
        if (!json_parse(&parsed, arguments, strlen(arguments), "arguments", NULL))
            return problem_value(f->problem, path, "%s.arguments: expected JSON in a string", path);
        cJSON_Delete(parsed);
        buf_puts(out, i ? ",{" : "{");
        if (id)
            put_key_string(out, "id", id);
        put_function(out, name, arguments);
        buf_puts(out, "}");
    }
    buf_puts(out, "]");
    return true;
}

/* One message. content: its text. */
static bool put_message(struct chat_prompt *c, const struct fields *f, const char *role, struct buf *content,
                        bool has_content)
{
    static const char *const copied[] = {"name", "tool_call_id", "reasoning_content"};
    const cJSON *calls = NULL;
    const char *text = NULL;
    if (!fields_item(f, "tool_calls", cJSON_Array, &calls))
        return false;
    bool is_assistant = strcmp(role, "assistant") == 0, has_calls = calls && calls->child;
    if (!has_content && !(is_assistant && has_calls))
        return problem_bad(f->problem, "missing_required_parameter", f->path,
                           is_assistant ? "%s: expected \"content\" or \"tool_calls\""
                                        : "%s: expected \"content\"",
                           f->path);
    buf_puts(&c->messages, c->messages.n > 1 ? ",{" : "{");
    put_key_string(&c->messages, "role", strcmp(role, "developer") == 0 ? "system" : role);
    if (has_content)
        put_key_text(&c->messages, "content", content->p ? content->p : "", content->n);
    else
        put_key_raw(&c->messages, "content", "null");
    for (size_t i = 0; i < sizeof copied / sizeof *copied; i++) {
        text = NULL;
        if (!fields_string(f, copied[i], &text))
            return false;
        if (!text && i == 2 && !fields_string(f, "reasoning", &text))
            return false;
        if (text)
            put_key_string(&c->messages, copied[i], text);
    }
    if (has_calls && !put_calls(f, calls, &c->messages))
        return false;
    buf_puts(&c->messages, "}");
    return true;
}

static bool read_message(struct chat_prompt *c, const struct fields *f, bool is_prefill)
{
    const char *role = NULL;
    const cJSON *content = fields_get(f, "content");
    struct buf text;
    if (!cJSON_IsObject(f->object))
        return problem_value(f->problem, f->path, "%s: expected an object, found %s", f->path,
                             json_type_name(f->object));
    if (!fields_string(f, "role", &role))
        return false;
    if (!role)
        return problem_bad(f->problem, "missing_required_parameter", f->path, "%s: expected \"role\"",
                           f->path);
    if (strcmp(role, "function") == 0)
        return problem_bad(f->problem, "unsupported_value", f->path,
                           "%s.role: \"function\" is \"tool\" today", f->path);
    if (content && !cJSON_IsString(content) && !cJSON_IsArray(content))
        return fields_fail(f, "content", "a string or an array of parts", content);
    buf_init(&text, TEXT_BYTES_MAX);
    bool ok = true;
    if (cJSON_IsString(content))
        buf_puts(&text, content->valuestring);
    else if (content)
        ok = read_parts(f, content, &text);
    if (ok && is_prefill)
        c->prefill = buf_take(&text, NULL);
    else
        ok = ok && put_message(c, f, role, &text, content != NULL);
    buf_fini(&text);
    return ok;
}

static bool is_assistant(const cJSON *message)
{
    const cJSON *role = json_get(message, "role");
    return cJSON_IsString(role) && strcmp(role->valuestring, "assistant") == 0;
}

bool chat_prompt_read_messages(struct chat_prompt *c, const struct fields *f, bool continues)
{
    const cJSON *list = NULL;
    int i = 0, n;
    if (!fields_item(f, "messages", cJSON_Array, &list))
        return false;
    if (!list)
        return problem_bad(f->problem, "missing_required_parameter", "messages",
                           "expected \"messages\", an array");
    n = cJSON_GetArraySize(list);
    if (n < 1 || n > MESSAGES_MAX)
        return problem_value(f->problem, "messages", "messages: expected 1 to %d messages, found %d",
                             MESSAGES_MAX, n);
    buf_puts(&c->messages, "[");
    for (const cJSON *message = list->child; message; message = message->next, i++) {
        char path[64];
        bool is_prefill = continues && !message->next && is_assistant(message) &&
                          !fields_get(&(struct fields){message, "", f->problem}, "tool_calls");
        snprintf(path, sizeof path, "messages[%d]", i);
        const struct fields sub = {message, path, f->problem};
        if (is_prefill && message->prev != message && is_assistant(message->prev))
            return problem_value(f->problem, path, "two messages of the assistant at the end");
        if (is_prefill && n == 1)
            is_prefill = false;
        if (!read_message(c, &sub, is_prefill))
            return false;
    }
    buf_puts(&c->messages, "]");
    return true;
}

/* ---- tools ---- */

static bool is_name(const char *name)
{
    size_t n = strlen(name);
    return n >= 1 && n <= NAME_BYTES_MAX &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == n;
}

static const char *tool_name(const cJSON *tool)
{
    const cJSON *name = json_get(json_get(tool, "function"), "name");
    return cJSON_IsString(name) ? name->valuestring : NULL;
}

static bool has_tool(const cJSON *tools, const char *name)
{
    for (const cJSON *t = tools ? tools->child : NULL; t; t = t->next)
        if (tool_name(t) && strcmp(tool_name(t), name) == 0)
            return true;
    return false;
}

static bool check_tool(const struct fields *f, const cJSON *tools, const cJSON *tool)
{
    const char *type = NULL;
    const cJSON *function = NULL, *parameters = NULL;
    if (!cJSON_IsObject(tool))
        return problem_value(f->problem, f->path, "%s: expected an object, found %s", f->path,
                             json_type_name(tool));
    if (!fields_string(f, "type", &type) || !fields_item(f, "function", cJSON_Object, &function))
        return false;
    if (type && strcmp(type, "function") != 0)
        return problem_bad(f->problem, "unsupported_value", f->path,
                           "%s.type: expected \"function\", found \"%.40s\"", f->path, type);
    const char *name = tool_name(tool);
    if (!function || !name || !is_name(name))
        return problem_value(f->problem, f->path,
                             "%s.function.name: expected 1 to %d letters, digits, _ and -", f->path,
                             NAME_BYTES_MAX);
    const struct fields inner = {function, f->path, f->problem};
    if (!fields_item(&inner, "parameters", cJSON_Object, &parameters))
        return false;
    for (const cJSON *t = tools->child; t != tool; t = t->next)
        if (strcmp(tool_name(t), name) == 0)
            return problem_value(f->problem, f->path, "%s: two tools are named %s", f->path, name);
    return true;
}

/* "auto", "none", "required", or a tool's name in *only. */
static bool read_choice(const struct fields *f, const cJSON *tools, const char **mode, const char **only,
                        const cJSON **allowed)
{
    const cJSON *choice = fields_get(f, "tool_choice");
    *mode = "auto";
    *only = NULL;
    if (!choice)
        return true;
    if (cJSON_IsString(choice)) {
        *mode = choice->valuestring;
        if (strcmp(*mode, "auto") != 0 && strcmp(*mode, "none") != 0 && strcmp(*mode, "required") != 0)
            return fields_fail(f, "tool_choice", "\"none\", \"auto\", \"required\" or an object", choice);
        return true;
    }
    const cJSON *type = json_get(choice, "type");
    const cJSON *name = json_get(json_get(choice, "function"), "name");
    const cJSON *subset = json_get(choice, "allowed_tools");
    if (cJSON_IsString(type) && strcmp(type->valuestring, "allowed_tools") == 0 && cJSON_IsObject(subset)) {
        const cJSON *sub_mode = json_get(subset, "mode");
        *allowed = json_get(subset, "tools");
        *mode =
            cJSON_IsString(sub_mode) && strcmp(sub_mode->valuestring, "required") == 0 ? "required" : "auto";
        return cJSON_IsArray(*allowed) || fields_fail(f, "tool_choice", "allowed_tools with tools", subset);
    }
    if (!cJSON_IsString(name))
        return fields_fail(f, "tool_choice", "an object with a function's name", choice);
    if (!has_tool(tools, name->valuestring))
        return problem_value(f->problem, "tool_choice", "tool_choice: no tool is named %.60s",
                             name->valuestring);
    *mode = "required";
    *only = name->valuestring;
    return true;
}

/* The tools that are left, printed anew. */
static bool put_subset(struct chat_prompt *c, const struct fields *f, const cJSON *tools,
                       const cJSON *allowed)
{
    buf_puts(&c->tools, "[");
    for (const cJSON *a = allowed->child; a; a = a->next)
        if (!tool_name(a) || !has_tool(tools, tool_name(a)))
            return problem_value(f->problem, "tool_choice",
                                 "tool_choice: allowed_tools names a tool that is not there");
    for (const cJSON *t = tools->child; t; t = t->next) {
        if (!has_tool(allowed, tool_name(t)))
            continue;
        char *text = cJSON_PrintUnformatted(t);
        buf_puts(&c->tools, c->tools.n > 1 ? "," : "");
        buf_puts(&c->tools, text ? text : "null");
        free(text);
    }
    buf_puts(&c->tools, "]");
    return true;
}

bool chat_prompt_read_tools(struct chat_prompt *c, const struct fields *f, struct str body, struct ask *a)
{
    const cJSON *tools = NULL, *allowed = NULL;
    const char *mode, *only;
    bool is_parallel = true;
    struct str text;
    int i = 0;
    if (fields_get(f, "functions") || fields_get(f, "function_call"))
        return problem_bad(f->problem, "unsupported_parameter", "functions", "functions is old: use tools");
    if (!fields_item(f, "tools", cJSON_Array, &tools) || !fields_bool(f, "parallel_tool_calls", &is_parallel))
        return false;
    if (tools && cJSON_GetArraySize(tools) > TOOLS_MAX)
        return problem_value(f->problem, "tools", "tools: expected at most %d", TOOLS_MAX);
    for (const cJSON *t = tools ? tools->child : NULL; t; t = t->next, i++) {
        char path[64];
        snprintf(path, sizeof path, "tools[%d]", i);
        const struct fields sub = {t, path, f->problem};
        if (!check_tool(&sub, tools, t))
            return false;
    }
    if (!read_choice(f, tools, &mode, &only, &allowed))
        return false;
    if (i == 0 || strcmp(mode, "none") == 0) {
        if (strcmp(mode, "required") == 0)
            return problem_value(f->problem, "tool_choice", "tool_choice: there are no tools");
        return true;
    }
    if (allowed && !put_subset(c, f, tools, allowed))
        return false;
    if (!allowed && json_slice(body, "tools", &text))
        buf_append(&c->tools, text.p, text.n);
    a->job.takes_calls = true;
    c->must_call = strcmp(mode, "required") == 0;
    c->only = only ? xstrdup(only) : NULL;
    a->job.n_calls_max = is_parallel ? 0 : 1;
    a->job.tools = xstrdup(c->tools.p ? c->tools.p : "[]");
    return true;
}

/* ---- options ---- */

bool chat_prompt_read_options(struct chat_prompt *c, const struct fields *f, struct str body, bool *continues)
{
    const cJSON *more = NULL;
    const char *effort = NULL;
    bool adds = true, asked = false;
    struct str text;
    if (!fields_item(f, "chat_template_kwargs", cJSON_Object, &more) ||
        !fields_string(f, "reasoning_effort", &effort) || !fields_bool(f, "add_generation_prompt", &adds) ||
        !fields_bool(f, "continue_final_message", &asked))
        return false;
    if (asked && fields_get(f, "add_generation_prompt") && adds)
        return problem_value(f->problem, "continue_final_message",
                             "add_generation_prompt and continue_final_message can't both be true");
    const cJSON *thinking = json_get(more, "enable_thinking");
    if (thinking && !cJSON_IsBool(thinking))
        return problem_value(f->problem, "chat_template_kwargs",
                             "chat_template_kwargs.enable_thinking: expected true or false, found %s",
                             json_type_name(thinking));
    if (more && more->child && json_slice(body, "chat_template_kwargs", &text) && text.n > 2) {
        size_t end = text.n;
        while (end > 0 && text.p[end - 1] != '}')
            end--;
        buf_append(&c->options, text.p + 1, end - 2);
    }
    if (effort && strcmp(effort, "none") == 0 && !thinking)
        put_key_raw(&c->options, "enable_thinking", "false");
    else if (effort)
        put_key_string(&c->options, "reasoning_effort", effort);
    *continues = adds || asked;
    return true;
}

/* ---- the template ---- */

bool chat_prompt_render(struct chat_prompt *c, struct ask *a, char **text, struct problem *p)
{
    const mk_tokenizer *t = mk_package_tokenizer(model_package(a->model));
    mk_text *out = NULL;
    mk_error *error = NULL;
    int32_t *ids = NULL, *more = NULL;
    size_t n = 0, n_more = 0;
    if (!strstr(c->options.p, "\"add_generation_prompt\""))
        put_key_raw(&c->options, "add_generation_prompt", "true");
    if (c->prefill && !strstr(c->options.p, "\"enable_thinking\""))
        put_key_raw(&c->options, "enable_thinking", "false");
    buf_puts(&c->options, "}");
    const mk_template_request request = {.size = sizeof request,
                                         .messages = c->messages.p,
                                         .messages_bytes = c->messages.n,
                                         .tools = c->tools.n ? c->tools.p : NULL,
                                         .options = c->options.p};
    if (mk_template(t, &request, &out, &error) != MK_OK) {
        problem_take(p, "messages", error);
        if (p->status < 500)
            p->code = "template_error";
        return false;
    }
    const int32_t *found = mk_text_ids(out, &n);
    bool ok = !c->prefill || ask_tokenize(a, c->prefill, strlen(c->prefill), 0, &more, &n_more, p);
    if (ok) {
        ids = xmalloc((n + n_more + 1) * sizeof *ids);
        memcpy(ids, found ? found : (const int32_t *)"", n * sizeof *ids);
        memcpy(ids + n, more ? more : (const int32_t *)"", n_more * sizeof *ids);
        free(a->job.prompt_text);
        a->job.prompt_text = xasprintf("%s%s", mk_text_data(out, NULL), c->prefill ? c->prefill : "");
        a->job.is_chat = a->job.keeps_special = true;
        if (text)
            *text = xstrdup(a->job.prompt_text);
        ok = ask_set_prompt(a, ids, n + n_more, p);
    }
    mk_text_free(out);
    free(more);
    return ok;
}
