/* A conversation as a file: {"messages": [...]}, as programs that talk with models exchange it. */
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "chat/conversation.h"
#include "format/json.h"

#define FILE_BYTES_MAX ((size_t)256 << 20)

void conversation_put(const struct conversation *c, struct buf *out)
{
    const char *between = "\n";
    buf_puts(out, "{\"messages\": [");
    if (c->system) {
        buf_puts(out, "\n{\"role\": \"system\"");
        conversation_put_member(out, "content", c->system, strlen(c->system));
        buf_puts(out, "}");
        between = ",\n";
    }
    for (size_t i = 0; i < c->n; i++, between = ",\n") {
        const struct message *m = &c->messages[i];
        buf_printf(out, "%s{\"role\": \"%s\"", between, conversation_role_name(m->role));
        conversation_put_member(out, "content", m->content, m->bytes);
        if (m->reasoning)
            conversation_put_member(out, "reasoning_content", m->reasoning, strlen(m->reasoning));
        conversation_put_more(m, out);
        buf_puts(out, "}");
    }
    buf_puts(out, "\n]}\n");
}

bool conversation_save(const struct conversation *c, const char *path, bool replace, struct err *e)
{
    struct buf text;
    struct out_file *file = NULL;
    buf_init(&text, FILE_BYTES_MAX);
    conversation_put(c, &text);
    bool ok = !text.failed ||
              err_set(e, ERR_LIMIT, "%s: a conversation of more than %zu bytes", path, FILE_BYTES_MAX);
    ok = ok && out_file_open(&file, path, replace, e);
    if (ok && !out_file_write(file, text.p, text.n, e)) {
        out_file_abort(file);
        ok = false;
    }
    ok = ok && out_file_commit(file, e);
    buf_fini(&text);
    return ok;
}

/* Tool calls as they stand in the file, so that numbers keep all their digits. Where the key stands there in another
 * spelling the text may be of something else; then what was parsed counts. */
static char *calls_text(const cJSON *calls, struct str item)
{
    struct str text;
    struct buf b;
    cJSON *root = NULL;
    if (!chat_json_member(item, "tool_calls", &text))
        return cJSON_PrintUnformatted(calls);
    bool ok = json_parse(&root, text.p, text.n, "", NULL) && cJSON_IsArray(root) && root->child;
    cJSON_Delete(root);
    if (!ok)
        return cJSON_PrintUnformatted(calls);
    while (strchr(" \t\r\n", *text.p)) /* an array stands behind */
        text = (struct str){text.p + 1, text.n - 1};
    while (text.p[text.n - 1] != ']')
        text.n--;
    buf_init(&b, FILE_BYTES_MAX);
    buf_append(&b, text.p, text.n);
    return buf_take(&b, NULL);
}

static bool read_role(const char *text, enum message_role *role)
{
    for (*role = MESSAGE_USER; *role <= MESSAGE_TOOL; ++*role)
        if (text && strcmp(text, conversation_role_name(*role)) == 0)
            return true;
    return false;
}

static char *copy_unless_empty(const char *text)
{
    return text && text[0] ? xstrdup(text) : NULL;
}

/* text: the object as it stands in a file; p NULL: not known. may_be_system: it is the first. */
static bool load_message(struct conversation *c, const cJSON *item, struct str text, bool may_be_system,
                         const char *where, struct err *e)
{
    const char *role = NULL, *content = "", *reasoning = NULL, *name = NULL, *call_id = NULL;
    if (!cJSON_IsObject(item))
        return err_set(e, ERR_FORMAT, "%s: expected an object, found %s", where, json_type_name(item));
    if (!json_get_string(item, "role", &role, where, e) ||
        !json_get_string(item, "content", &content, where, e) ||
        !json_get_string(item, "reasoning_content", &reasoning, where, e) ||
        !json_get_string(item, "name", &name, where, e) ||
        !json_get_string(item, "tool_call_id", &call_id, where, e))
        return false;
    if (role && strcmp(role, "system") == 0 && may_be_system) {
        conversation_set_system(c, content);
        return true;
    }
    struct message m = {0};
    if (!read_role(role, &m.role))
        return err_set(e, ERR_FORMAT,
                       "%s: expected role user, assistant or tool (or system as the first), found \"%.100s\"",
                       where, role ? role : "");
    const cJSON *calls = json_get(item, "tool_calls");
    m.content = xstrdup(content);
    m.bytes = strlen(content);
    if (m.role == MESSAGE_ANSWER) {
        m.reasoning = copy_unless_empty(reasoning);
        m.calls = cJSON_IsArray(calls) && calls->child ? calls_text(calls, text) : NULL;
    } else if (m.role == MESSAGE_TOOL) {
        m.name = copy_unless_empty(name);
        m.call_id = copy_unless_empty(call_id);
    }
    conversation_add(c, &m);
    return true;
}

bool conversation_add_json(struct conversation *c, struct str text, const char *where, struct err *e)
{
    cJSON *root = NULL;
    bool ok = json_parse(&root, text.p, text.n, where, e) &&
              load_message(c, root, text, c->n == 0 && !c->system, where, e);
    cJSON_Delete(root);
    return ok;
}

bool conversation_parse(struct conversation *c, struct str text, const char *where, struct err *e)
{
    /* read into an empty one first: a bad file changes nothing */
    struct conversation loaded = {0};
    struct str list = text, item_text = {NULL, 0};
    cJSON *root = NULL;
    bool ok = json_parse(&root, text.p, text.n, where, e);
    const cJSON *messages = cJSON_IsArray(root) ? root : json_get(root, "messages");
    if (ok && !cJSON_IsArray(messages))
        ok = err_set(e, ERR_FORMAT, "%s: expected an object with \"messages\", a list", where);
    bool has_text = ok && (messages == root || chat_json_member(text, "messages", &list));
    size_t i = 0, at = 0;
    for (const cJSON *item = ok ? messages->child : NULL; ok && item; item = item->next) {
        has_text = has_text && chat_json_next(list, &at, &item_text);
        char *place = xasprintf("%s: message %zu", where, i);
        ok = load_message(&loaded, item, has_text ? item_text : (struct str){NULL, 0}, i++ == 0, place, e);
        free(place);
    }
    if (ok) {
        conversation_clear(c);
        for (size_t k = 0; k < loaded.n; k++)
            conversation_add(c, &loaded.messages[k]);
        loaded.n = 0;
        conversation_set_system(c, loaded.system);
    }
    cJSON_Delete(root);
    conversation_clear(&loaded);
    free(loaded.messages);
    free(loaded.system);
    return ok;
}

bool conversation_load(struct conversation *c, const char *path, struct err *e)
{
    char *text = NULL;
    size_t bytes = 0;
    bool ok = file_read(&text, &bytes, path, FILE_BYTES_MAX, e) &&
              conversation_parse(c, (struct str){text, bytes}, path, e);
    free(text);
    return ok;
}
