/* Templates of a model, and from messages to ids. What the model says back is taken apart in chat_parse.c. */
#include "chat/chat.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "format/checkpoint.h"
#include "format/json.h"
#include "base/utf8.h"

#define MAX_CONFIG_BYTES ((size_t)64 << 20)
#define MAX_TEMPLATES 64
#define MAX_REQUEST_BYTES ((size_t)1 << 30)

struct named_template {
    char *name;
    struct jinja_template *parsed; /* NULL: error says why */
    struct err error;
    enum chat_style style;
};

struct chat_template {
    char *where;
    struct named_template *templates;
    size_t n;
    struct buf special; /* JSON object: bos_token, eos_token, ... */
};

/* --- which style a template writes --- */

static bool mentions(struct str text, const char *what)
{
    return memmem(text.p, text.n, what, strlen(what)) != NULL;
}

static enum chat_style style_of(struct str text)
{
    if (mentions(text, "<|tool_call>") || mentions(text, "<|channel>"))
        return CHAT_GEMMA;
    if (mentions(text, "<function="))
        return CHAT_XML;
    if (mentions(text, "<tool_call>") || mentions(text, "<think>") || mentions(text, "</think>"))
        return CHAT_HERMES;
    return CHAT_PLAIN;
}

/* --- reading --- */

static bool add_template(struct chat_template *t, const char *name, struct str text, const char *where,
                         struct err *e)
{
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->templates[i].name, name) == 0)
            return true; /* the first one counts */
    if (t->n == MAX_TEMPLATES)
        return err_set(e, ERR_LIMIT, "%s: more than %d chat templates", t->where, MAX_TEMPLATES);
    t->templates = xrealloc(t->templates, (t->n + 1) * sizeof *t->templates);
    struct named_template *n = &t->templates[t->n++];
    *n = (struct named_template){.name = xstrdup(name), .style = style_of(text)};
    if (!jinja_parse(&n->parsed, text.p, text.n, where, &n->error))
        n->parsed = NULL;
    return true;
}

static struct str str_of(const char *s)
{
    return (struct str){s, strlen(s)};
}

static bool add_config_templates(struct chat_template *t, const cJSON *config, const char *where,
                                 struct err *e)
{
    const cJSON *value = json_get(config, "chat_template");
    if (!value || cJSON_IsNull(value))
        return true;
    if (cJSON_IsString(value))
        return add_template(t, "default", str_of(value->valuestring), where, e);
    if (!cJSON_IsArray(value) && !cJSON_IsObject(value))
        return err_set(e, ERR_FORMAT, "%s: key chat_template: expected a string or a list, found %s", where,
                       json_type_name(value));
    for (const cJSON *item = value->child; item; item = item->next) {
        const cJSON *name = json_get(item, "name"), *text = json_get(item, "template");
        const char *key = cJSON_IsObject(value)  ? item->string
                          : cJSON_IsString(name) ? name->valuestring
                                                 : NULL;
        const cJSON *body = cJSON_IsObject(value) ? item : text;
        if (!key || !cJSON_IsString(body))
            return err_set(e, ERR_FORMAT, "%s: key chat_template: expected items with name and template",
                           where);
        if (!add_template(t, key, str_of(body->valuestring), where, e))
            return false;
    }
    return true;
}

static const char *token_text(const cJSON *item)
{
    if (cJSON_IsObject(item)) /* a serialised AddedToken */
        item = json_get(item, "content");
    return cJSON_IsString(item) ? item->valuestring : NULL;
}

static void put_special(struct chat_template *t, const char *name, const char *token)
{
    if (t->special.n > 1)
        buf_puts(&t->special, ", ");
    json_put_string(&t->special, name, strlen(name));
    buf_puts(&t->special, ": ");
    json_put_string(&t->special, token, strlen(token));
}

/* Later members replace earlier ones of the same name when the object is read. */
static void add_special_tokens(struct chat_template *t, const cJSON *config)
{
    const cJSON *extra = json_get(config, "extra_special_tokens");
    for (const cJSON *item = cJSON_IsObject(extra) ? extra->child : NULL; item; item = item->next)
        if (token_text(item))
            put_special(t, item->string, token_text(item));
    for (const cJSON *item = cJSON_IsObject(config) ? config->child : NULL; item; item = item->next)
        if (has_suffix(item->string, "_token") && token_text(item))
            put_special(t, item->string, token_text(item));
}

static struct chat_template *template_new(const char *where)
{
    struct chat_template *t = xcalloc(1, sizeof *t);
    t->where = xstrdup(where);
    buf_init(&t->special, MAX_CONFIG_BYTES);
    buf_puts(&t->special, "{");
    return t;
}

void chat_template_free(struct chat_template *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->n; i++) {
        free(t->templates[i].name);
        jinja_free(t->templates[i].parsed);
    }
    free(t->templates);
    buf_fini(&t->special);
    free(t->where);
    free(t);
}

static bool finish(struct chat_template *t, struct err *e)
{
    buf_puts(&t->special, "}");
    if (t->special.failed)
        return err_set(e, ERR_LIMIT, "%s: special tokens of more than %zu bytes", t->where, MAX_CONFIG_BYTES);
    if (t->n == 0)
        return err_set(e, ERR_FORMAT,
                       "%s: no chat template: expected " CHECKPOINT_TEMPLATE
                       ", or chat_template in " CHECKPOINT_TOKENIZER_CONFIG " or " CHECKPOINT_TEMPLATE_JSON,
                       t->where);
    return true;
}

bool chat_template_parse(struct chat_template **out, struct str config, struct str jinja, const char *where,
                         struct err *e)
{
    struct chat_template *t = template_new(where);
    cJSON *root = NULL;
    bool ok = !jinja.p || add_template(t, "default", jinja, where, e);
    if (ok && config.p)
        ok = json_parse(&root, config.p, config.n, where, e);
    if (ok && root) {
        ok = add_config_templates(t, root, where, e);
        add_special_tokens(t, root);
    }
    ok = ok && finish(t, e);
    cJSON_Delete(root);
    if (!ok) {
        chat_template_free(t);
        t = NULL;
    }
    *out = t;
    return ok;
}

static bool add_file(struct chat_template *t, const char *name, const char *path, struct err *e)
{
    char *text = NULL;
    size_t bytes = 0;
    bool ok = file_read(&text, &bytes, path, JINJA_MAX_TEMPLATE_BYTES, e) &&
              add_template(t, name, (struct str){text, bytes}, path, e);
    free(text);
    return ok;
}

static bool add_folder(struct chat_template *t, const char *folder, struct err *e)
{
    struct path_list names = {0};
    bool ok = path_list_read(&names, folder, e);
    for (size_t i = 0; ok && i < names.n; i++) {
        if (!has_suffix(names.names[i], CHECKPOINT_TEMPLATE_SUFFIX))
            continue;
        char *path = path_join(folder, names.names[i]);
        char *name = xstrdup(names.names[i]);
        name[strlen(name) - strlen(CHECKPOINT_TEMPLATE_SUFFIX)] = '\0';
        ok = add_file(t, name, path, e);
        free(name);
        free(path);
    }
    path_list_free(&names);
    return ok;
}

static bool add_config(struct chat_template *t, const char *path, bool with_template, struct err *e)
{
    cJSON *root = NULL;
    if (!path_exists(path))
        return true;
    if (!json_read_file(&root, path, MAX_CONFIG_BYTES, e))
        return false;
    bool ok = !with_template || add_config_templates(t, root, path, e);
    add_special_tokens(t, root);
    cJSON_Delete(root);
    return ok;
}

bool chat_template_open(struct chat_template **out, const char *folder, struct err *e)
{
    struct chat_template *t = template_new(folder);
    char *jinja = path_join(folder, CHECKPOINT_TEMPLATE), *more = path_join(folder, CHECKPOINT_TEMPLATES);
    char *config = path_join(folder, CHECKPOINT_TOKENIZER_CONFIG),
         *map = path_join(folder, CHECKPOINT_SPECIAL_TOKENS);
    char *processor = path_join(folder, CHECKPOINT_TEMPLATE_JSON);
    bool ok = (!path_exists(jinja) || add_file(t, "default", jinja, e)) &&
              (!path_is_folder(more) || add_folder(t, more, e)) && add_config(t, map, false, e) &&
              add_config(t, config, true, e) && add_config(t, processor, true, e) && finish(t, e);
    free(jinja);
    free(more);
    free(config);
    free(map);
    free(processor);
    if (!ok) {
        chat_template_free(t);
        t = NULL;
    }
    *out = t;
    return ok;
}

/* --- rendering --- */

static const struct named_template *find_template(const struct chat_template *t, const char *name)
{
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->templates[i].name, name) == 0)
            return &t->templates[i];
    return NULL;
}

enum chat_style chat_template_style(const struct chat_template *t)
{
    const struct named_template *n = find_template(t, "default");
    return (n ? n : &t->templates[0])->style;
}

static bool is_empty_json(struct str s)
{
    while (s.n > 0 && strchr(" \t\r\n", s.p[0])) {
        s.p++;
        s.n--;
    }
    return s.n == 0 || (s.n >= 4 && memcmp(s.p, "null", 4) == 0);
}

bool chat_render(const struct chat_template *t, const struct chat_request *r, struct jinja_output *out,
                 struct err *e)
{
    *out = (struct jinja_output){0};
    bool has_tools = r->tools.p && !is_empty_json(r->tools);
    const struct named_template *n = r->template_name ? find_template(t, r->template_name) : NULL;
    if (!n && r->template_name)
        return err_set(e, ERR_FORMAT, "%s: no chat template named \"%.100s\"", t->where, r->template_name);
    if (!n && has_tools)
        n = find_template(t, "tool_use");
    if (!n)
        n = find_template(t, "default");
    if (!n && t->n == 1)
        n = &t->templates[0];
    if (!n)
        return err_set(e, ERR_FORMAT,
                       "%s: several chat templates and no default one; name one, as \"%.100s\"", t->where,
                       t->templates[0].name);
    if (!n->parsed) {
        if (e)
            *e = n->error;
        return false;
    }
    if (!r->messages.p)
        return err_set(e, ERR_FORMAT, "no messages: expected a list");
    const struct str none = {"null", 4}, off = {"false", 5};
    const struct jinja_variable variables[] = {
        {.name = NULL, .json = {t->special.p, t->special.n}, .is_user = false},
        {.name = "documents", .json = none},
        {.name = "add_generation_prompt", .json = off},
        {.name = "messages",
         .json = r->messages,
         .is_user = true,
         .decode_path = r->decode_arguments ? "*.tool_calls.*.function.arguments" : NULL},
        {.name = "tools", .json = has_tools ? r->tools : none, .is_user = true},
        {.name = NULL, .json = r->options, .is_user = true},
    };
    size_t n_variables = sizeof variables / sizeof *variables;
    if (!r->options.p || is_empty_json(r->options))
        n_variables--;
    const struct jinja_options options = {.now = r->now};
    return jinja_render(n->parsed, variables, n_variables, &options, out, e);
}

bool chat_encode(const struct tokenizer *tokenizer, const struct jinja_output *text, bool flat,
                 struct ids *out, struct err *e)
{
    if (flat)
        return tokenizer_encode(tokenizer, text->text, text->bytes, false, out, e);
    struct tokenizer_part *parts = xcalloc(text->n_parts, sizeof *parts);
    for (size_t i = 0; i < text->n_parts; i++)
        parts[i] = (struct tokenizer_part){text->parts[i].begin, text->parts[i].end, text->parts[i].is_user};
    bool ok = tokenizer_encode_parts(tokenizer, text->text, text->bytes, parts, text->n_parts, out, e);
    free(parts);
    return ok;
}

/* --- requests as JSON text --- */

/* End of the JSON value at p[at], by brackets and strings alone: the text was checked before. */
static size_t skip_value(struct str s, size_t at)
{
    int depth = 0;
    for (; at < s.n; at++) {
        char c = s.p[at];
        if (c == '"') {
            for (at++; at < s.n && s.p[at] != '"'; at++)
                at += s.p[at] == '\\';
        } else if (c == '[' || c == '{') {
            depth++;
        } else if (c == ']' || c == '}' || c == ',') {
            if (depth == 0)
                return at;
            depth -= c != ',';
        }
    }
    return at < s.n ? at : s.n;
}

static size_t skip_to(struct str s, size_t at, char what)
{
    while (at < s.n && s.p[at] != what)
        at++;
    return at;
}

bool chat_json_member(struct str object, const char *key, struct str *value)
{
    bool found = false;
    for (size_t at = skip_to(object, 0, '{') + 1; at < object.n;) {
        size_t name = skip_to(object, at, '"') + 1, name_end = name;
        while (name_end < object.n && object.p[name_end] != '"')
            name_end += object.p[name_end] == '\\' ? 2 : 1;
        if (name_end >= object.n)
            break;
        size_t begin = skip_to(object, name_end, ':') + 1;
        if (begin > object.n)
            break;
        size_t end = skip_value(object, begin);
        if (name_end - name == strlen(key) && memcmp(object.p + name, key, name_end - name) == 0) {
            *value = (struct str){object.p + begin, end - begin}; /* of a repeated key the last one counts */
            found = true;
        }
        at = end + 1;
    }
    return found;
}

bool chat_json_next(struct str array, size_t *at, struct str *value)
{
    size_t begin = *at == 0 ? skip_to(array, 0, '[') + 1 : *at;
    while (begin < array.n && strchr(" \t\r\n", array.p[begin]))
        begin++;
    if (begin >= array.n || array.p[begin] == ']')
        return false;
    size_t end = skip_value(array, begin);
    *value = (struct str){array.p + begin, end - begin};
    *at = end + (end < array.n && array.p[end] == ','); /* the bracket that ends the array stays */
    return true;
}

bool chat_request_parse(struct chat_request *out, struct str json, const char *where, struct err *e)
{
    cJSON *root = NULL;
    struct buf repaired;
    if (json.n > MAX_REQUEST_BYTES)
        return err_set(e, ERR_LIMIT, "%s: a request of more than %zu bytes", where, MAX_REQUEST_BYTES);
    /* json_parse refuses U+0000, which is no more than a character here: it is checked as another one */
    buf_init(&repaired, MAX_REQUEST_BYTES * 3);
    utf8_append_lossy(&repaired, json.p, json.n);
    for (char *p = repaired.p; p && (p = strstr(p, "\\u0000")); p += 6)
        p[5] = '1';
    bool ok = json_parse(&root, repaired.p ? repaired.p : "", repaired.n, where, e);
    if (ok && !cJSON_IsObject(root))
        ok = err_set(e, ERR_FORMAT, "%s: expected an object with \"messages\", found %s", where,
                     json_type_name(root));
    cJSON_Delete(root);
    buf_fini(&repaired);
    if (!ok)
        return false;
    *out = (struct chat_request){0};
    (void)chat_json_member(json, "tools", &out->tools);
    (void)chat_json_member(json, "options", &out->options);
    return chat_json_member(json, "messages", &out->messages) ||
           err_set(e, ERR_FORMAT, "%s: expected \"messages\", a list", where);
}

void chat_put_message(struct buf *messages, const char *role, const char *content, size_t n,
                      const char *reasoning)
{
    buf_puts(messages, messages->n > 1 ? ", {\"role\": " : "{\"role\": ");
    json_put_string(messages, role, strlen(role));
    buf_puts(messages, ", \"content\": ");
    json_put_string(messages, content, n);
    if (reasoning) {
        buf_puts(messages, ", \"reasoning_content\": ");
        json_put_string(messages, reasoning, strlen(reasoning));
    }
    buf_puts(messages, "}");
}
