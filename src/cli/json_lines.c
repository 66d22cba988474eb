/* --jsonl: a line in, a line out. */
#include "cli/json_lines.h"
#include <stdlib.h>
#include <string.h>
#include "format/json_line.h"

static bool answer_line(json_line_fn answer, void *context, const char *line, size_t n, size_t i_line,
                        struct buf *out, struct err *e)
{
    buf_clear(out);
    bool ok = answer(context, line, n, out, e);
    if (ok && out->failed)
        ok = err_set(e, ERR_LIMIT, "an answer of more than %zu bytes", JSON_LINE_BYTES_MAX);
    return ok || err_wrap(e, "line %zu", i_line);
}

bool json_lines_answer(struct cli *c, json_line_fn answer, void *context, struct err *e)
{
    char *line = NULL;
    size_t capacity = 0;
    struct buf out;
    buf_init(&out, JSON_LINE_BYTES_MAX);
    bool ok = true;
    ssize_t n;
    for (size_t i_line = 1; ok && (n = getline(&line, &capacity, stdin)) >= 0; i_line++) {
        while (n > 0 && strchr(" \t\r\n", line[n - 1]))
            line[--n] = '\0';
        if (n == 0)
            continue;
        ok = answer_line(answer, context, line, (size_t)n, i_line, &out, e);
        if (ok) {
            cli_put_json(out.p, out.n);
            ok = cli_flush(e) && !log_cancelled(&c->log, e);
        }
    }
    if (ok && ferror(stdin))
        ok = err_set_errno(e, "stdin: can't read");
    free(line);
    buf_fini(&out);
    return ok;
}

struct json_object {
    cJSON *root;
};

bool json_object_read(struct json_object **out, const char *line, size_t n, const char *where, struct err *e)
{
    cJSON *root = NULL;
    *out = NULL;
    if (!json_line_parse(&root, line, n, where, e))
        return false;
    *out = xcalloc(1, sizeof **out);
    (*out)->root = root;
    return true;
}

void json_object_free(struct json_object *o)
{
    if (o)
        cJSON_Delete(o->root);
    free(o);
}

bool json_object_text(const struct json_object *o, const char *key, struct buf *out)
{
    const cJSON *item = json_get(o->root, key);
    if (cJSON_IsString(item))
        json_line_string(out, item);
    return cJSON_IsString(item);
}

bool json_object_has_list(const struct json_object *o, const char *key)
{
    return cJSON_IsArray(json_get(o->root, key));
}

bool json_object_ids(const struct json_object *o, const char *key, int32_t **ids, size_t *n, struct err *e)
{
    const cJSON *list = json_get(o->root, key);
    size_t capacity = (size_t)cJSON_GetArraySize(list);
    *ids = xcalloc(capacity + 1, sizeof **ids);
    *n = 0;
    for (const cJSON *id = list->child; id; id = id->next) {
        if (!cJSON_IsNumber(id) || !(id->valuedouble >= 0 && id->valuedouble <= INT32_MAX) ||
            id->valuedouble != (double)(int32_t)id->valuedouble) {
            free(*ids);
            *ids = NULL;
            return err_set(e, ERR_FORMAT, "\"%s\": expected token ids, found something else as number %zu",
                           key, *n + 1);
        }
        (*ids)[(*n)++] = (int32_t)id->valuedouble;
    }
    return true;
}

const char *json_object_type(const struct json_object *o)
{
    return json_type_name(o->root);
}
