/* Forms of answers, as grammars. */
#include "server/answer_format.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "server/schema_grammar.h"

static bool set_grammar(struct ask *a, const char *text, size_t n, const char *code, const char *path,
                        struct problem *p)
{
    struct err e = {0};
    struct grammar *g;
    if (a->job.grammar)
        return problem_value(p, path, "%s: the form of the answer is given twice", path);
    if (!grammar_parse(&g, text, n, &e))
        return problem_bad(p, code, path, "%s: %s", path, e.msg);
    a->job.grammar = g;
    return true;
}

static bool set_schema(struct ask *a, const cJSON *schema, bool is_strict, const char *before,
                       const char *after, const char *path, struct problem *p)
{
    struct err e = {0};
    struct buf text;
    buf_init(&text, GRAMMAR_TEXT_BYTES_MAX);
    bool ok = schema_grammar(&text, schema, is_strict, before, after, &e) ||
              problem_bad(p, "invalid_json_schema", path, "%s: %s", path, e.msg);
    ok = ok && set_grammar(a, text.p, text.n, "invalid_json_schema", path, p);
    buf_fini(&text);
    return ok;
}

bool format_set_schema(struct ask *a, const cJSON *schema, bool is_strict, const char *path,
                       struct problem *p)
{
    return set_schema(a, schema, is_strict, "", "", path, p);
}

static bool read_response_format(struct ask *a, const struct fields *f, const cJSON *format)
{
    const struct fields sub = {format, "response_format", f->problem};
    const char *type = NULL, *name = NULL;
    const cJSON *wrapper = NULL;
    bool is_strict = true;
    if (!fields_string(&sub, "type", &type))
        return false;
    if (!type || strcmp(type, "text") == 0)
        return true;
    if (strcmp(type, "json_object") == 0)
        return format_set_schema(a, fields_get(&sub, "schema"), true, "response_format.schema", f->problem);
    if (strcmp(type, "json_schema") != 0)
        return problem_bad(f->problem, "unsupported_value", "response_format.type",
                           "response_format.type: expected text, json_object or json_schema, found \"%.60s\"",
                           type);
    if (!fields_item(&sub, "json_schema", cJSON_Object, &wrapper))
        return false;
    const struct fields inner = {wrapper, "response_format.json_schema", f->problem};
    const cJSON *schema = wrapper ? fields_get(&inner, "schema") : NULL;
    if (!schema)
        return problem_bad(f->problem, "missing_required_parameter", "response_format.json_schema.schema",
                           "expected response_format.json_schema.schema");
    return fields_bool(&inner, "strict", &is_strict) && fields_string(&inner, "name", &name) &&
           format_set_schema(a, schema, is_strict, "response_format.json_schema.schema", f->problem);
}

bool format_read(struct ask *a, const struct fields *f)
{
    const cJSON *format = NULL, *schema = fields_get(f, "json_schema");
    const char *grammar = NULL;
    if (!fields_item(f, "response_format", cJSON_Object, &format) || !fields_string(f, "grammar", &grammar))
        return false;
    if (format && !read_response_format(a, f, format))
        return false;
    if (schema && !format_set_schema(a, schema, true, "json_schema", f->problem))
        return false;
    return !grammar || !grammar[0] ||
           set_grammar(a, grammar, strlen(grammar), "invalid_grammar", "grammar", f->problem);
}

/* ---- calls ---- */

/* Does the template write calls as JSON between <tool_call> marks? It is shown one. */
static bool writes_json_calls(const struct ask *a)
{
    static const char probe[] =
        "[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{"
        "\"id\":\"1\","
        "\"type\":\"function\",\"function\":{\"name\":\"probe\",\"arguments\":\"{\\\"a\\\":1}\"}}]}]";
    const mk_template_request request = {.size = sizeof request, .messages = probe};
    mk_text *text = NULL;
    if (mk_template(mk_package_tokenizer(model_package(a->model)), &request, &text, NULL) != MK_OK)
        return false;
    const char *call = strstr(mk_text_data(text, NULL), "<tool_call>\n{\"name\": \"probe\"");
    bool is_json = call && strstr(call, "</tool_call>");
    mk_text_free(text);
    return is_json;
}

/* {"anyOf": [a call of each tool]} */
static cJSON *call_schema(const cJSON *tools, const char *only)
{
    cJSON *all = cJSON_CreateObject(), *ways = cJSON_AddArrayToObject(all, "anyOf");
    for (const cJSON *t = tools->child; t; t = t->next) {
        const cJSON *function = json_get(t, "function"), *name = json_get(function, "name"),
                    *parameters = json_get(function, "parameters");
        if (only && strcmp(name->valuestring, only) != 0)
            continue;
        cJSON *way = cJSON_CreateObject(), *members = cJSON_AddObjectToObject(way, "properties"),
              *constant = cJSON_AddObjectToObject(members, "name"),
              *required = cJSON_AddArrayToObject(way, "required");
        cJSON_AddStringToObject(way, "type", "object");
        cJSON_AddStringToObject(constant, "const", name->valuestring);
        cJSON_AddItemToObject(members, "arguments",
                              cJSON_IsObject(parameters) ? cJSON_Duplicate(parameters, true)
                                                         : cJSON_CreateObject());
        if (!json_get(json_get(members, "arguments"), "type"))
            cJSON_AddStringToObject((cJSON *)(uintptr_t)json_get(members, "arguments"), "type", "object");
        cJSON_AddItemToArray(required, cJSON_CreateString("name"));
        cJSON_AddItemToArray(required, cJSON_CreateString("arguments"));
        cJSON_AddItemToArray(ways, way);
    }
    return all;
}

bool format_force_call(struct ask *a, const struct chat_prompt *c, const struct fields *f)
{
    if (!c->must_call)
        return true;
    if (!writes_json_calls(a))
        return problem_bad(
            f->problem, "unsupported_value", "tool_choice",
            "tool_choice: calls of this model's template can't be forced: expected \"auto\" or \"none\"");
    cJSON *tools = NULL;
    struct err e = {0};
    if (!json_parse(&tools, c->tools.p, c->tools.n, "tools", &e))
        return problem_value(f->problem, "tools", "%s", e.msg);
    cJSON *schema = call_schema(tools, c->only);
    bool ok = set_schema(a, schema, false, "<tool_call>\n", "\n</tool_call>", "tools", f->problem);
    cJSON_Delete(schema);
    cJSON_Delete(tools);
    return ok;
}

bool format_begin(struct ask *a, struct problem *p)
{
    static const struct {
        const char *open, *close;
    } marks[] = {{"<think>", "</think>"}, {"<|channel>thought", "<channel|>"}};
    const char *text = a->job.prompt_text ? a->job.prompt_text : "";
    size_t n = strlen(text);
    (void)p;
    while (n > 0 && isspace((unsigned char)text[n - 1]))
        n--;
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        size_t length = strlen(marks[i].open);
        if (n >= length && memcmp(text + n - length, marks[i].open, length) == 0)
            a->job.grammar_after = marks[i].close;
    }
    return true;
}
