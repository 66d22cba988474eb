/* A conversation as a file: {"messages": [...]}, as programs that talk with models exchange it. */
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "cli/conversation.h"
#include "format/json.h"

#define FILE_BYTES_MAX ((size_t)256 << 20)

static void put_string_member(struct buf *out, const char *key, const char *text, size_t n)
{
    buf_printf(out, ", \"%s\": ", key);
    json_put_string(out, text, n);
}

bool conversation_save(const struct conversation *c, const char *path, struct err *e)
{
    struct buf out;
    buf_init(&out, FILE_BYTES_MAX);
    buf_puts(&out, "{\"messages\": [");
    const char *between = "\n";
    if (c->system) {
        buf_puts(&out, "\n{\"role\": \"system\"");
        put_string_member(&out, "content", c->system, strlen(c->system));
        buf_puts(&out, "}");
        between = ",\n";
    }
    for (size_t i = 0; i < c->n; i++, between = ",\n") {
        const struct message *m = &c->messages[i];
        buf_printf(&out, "%s{\"role\": \"%s\"", between, m->is_answer ? "assistant" : "user");
        put_string_member(&out, "content", m->content, m->bytes);
        if (m->reasoning)
            put_string_member(&out, "reasoning_content", m->reasoning, strlen(m->reasoning));
        if (m->calls) {
            buf_puts(&out, ", \"tool_calls\": ");
            buf_puts(&out, m->calls);
        }
        buf_puts(&out, "}");
    }
    buf_puts(&out, "\n]}\n");
    bool ok = !out.failed ||
              err_set(e, ERR_LIMIT, "%s: a conversation of more than %zu bytes", path, FILE_BYTES_MAX);
    ok = ok && file_write(path, out.p, out.n, e);
    buf_fini(&out);
    return ok;
}

static bool load_message(struct conversation *c, const cJSON *item, size_t i, const char *path, struct err *e)
{
    const char *role = NULL, *content = "", *reasoning = NULL;
    if (!cJSON_IsObject(item))
        return err_set(e, ERR_FORMAT, "%s: message %zu: expected an object, found %s", path, i,
                       json_type_name(item));
    if (!json_get_string(item, "role", &role, path, e) ||
        !json_get_string(item, "content", &content, path, e) ||
        !json_get_string(item, "reasoning_content", &reasoning, path, e))
        return err_wrap(e, "message %zu", i);
    if (role && strcmp(role, "system") == 0 && i == 0) {
        conversation_set_system(c, content);
        return true;
    }
    if (!role || (strcmp(role, "user") != 0 && strcmp(role, "assistant") != 0))
        return err_set(
            e, ERR_FORMAT,
            "%s: message %zu: expected role user or assistant (or system as the first), found \"%.100s\"",
            path, i, role ? role : "");
    const cJSON *calls = json_get(item, "tool_calls");
    struct message m = {.is_answer = role[0] == 'a', .content = xstrdup(content), .bytes = strlen(content)};
    if (m.is_answer && reasoning)
        m.reasoning = xstrdup(reasoning);
    if (m.is_answer && cJSON_IsArray(calls) && calls->child)
        m.calls = cJSON_PrintUnformatted(calls);
    conversation_add(c, &m);
    return true;
}

bool conversation_load(struct conversation *c, const char *path, struct err *e)
{
    /* read into an empty one first: a bad file changes nothing */
    struct conversation loaded = {0};
    cJSON *root = NULL;
    bool ok = json_read_file(&root, path, FILE_BYTES_MAX, e);
    const cJSON *messages = cJSON_IsArray(root) ? root : json_get(root, "messages");
    if (ok && !cJSON_IsArray(messages))
        ok = err_set(e, ERR_FORMAT, "%s: expected an object with \"messages\", a list", path);
    size_t i = 0;
    for (const cJSON *item = ok ? messages->child : NULL; ok && item; item = item->next)
        ok = load_message(&loaded, item, i++, path, e);
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
