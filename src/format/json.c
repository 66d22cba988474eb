/* JSON on top of cJSON: the checks that must hold before cJSON sees a text, and typed getters. */
#include "format/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/file.h"

#define JSON_DEPTH_MAX 200
/* Each value costs cJSON about 64 bytes, so this bounds the tree to some 500 MB whatever the text. */
#define JSON_VALUES_MAX ((size_t)8 << 20)
/* Integers beyond this lose digits in cJSON's doubles. */
#define JSON_INT_MAX 9007199254740992.0

static bool fail_at(const char *text, size_t at, const char *where, struct err *e, const char *what)
{
    size_t line = 1, column = 1;
    for (size_t i = 0; i < at; i++) {
        column = text[i] == '\n' ? 1 : column + 1;
        line += text[i] == '\n';
    }
    return err_set(e, ERR_FORMAT, "%s: not valid JSON: line %zu, column %zu: %s", where, line, column, what);
}

/* Brackets and strings are balanced, nesting and the number of values are bounded, no NUL is in it, escaped
 * or not (cJSON's strings end at it). cJSON relies on a terminator in places, so a text cut short must not
 * reach it. */
static bool check_structure(const char *text, size_t bytes, const char *where, struct err *e)
{
    char open[JSON_DEPTH_MAX];
    size_t depth = 0, n_values = 1;
    bool in_string = false;
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        if (c == '\0')
            return fail_at(text, i, where, e, "found a NUL byte");
        if (in_string) {
            if (c == '"') {
                in_string = false;
            } else if (c == '\\' && i + 1 < bytes) {
                i++;
                if (text[i] == 'u' && bytes - i > 4 && memcmp(text + i + 1, "0000", 4) == 0)
                    return fail_at(text, i, where, e, "found the character \\u0000 in a string");
                if (text[i] == '\0')
                    return fail_at(text, i, where, e, "found a NUL byte");
            }
            continue;
        }
        switch (c) {
        case '"':
            in_string = true;
            break;
        case '{':
        case '[':
            if (depth == JSON_DEPTH_MAX)
                return fail_at(text, i, where, e, "nesting deeper than 200 levels");
            open[depth++] = c;
            n_values++;
            break;
        case '}':
        case ']':
            if (depth == 0 || open[depth - 1] != (c == '}' ? '{' : '['))
                return fail_at(text, i, where, e, "a closing bracket that matches no opening one");
            depth--;
            break;
        case ',':
            n_values++;
            break;
        default:
            break;
        }
        if (n_values > JSON_VALUES_MAX)
            return err_set(e, ERR_LIMIT, "%s: JSON with more than %zu values", where, JSON_VALUES_MAX);
    }
    if (in_string)
        return fail_at(text, bytes, where, e, "the text ends within a string");
    if (depth > 0)
        return fail_at(text, bytes, where, e, "the text ends before its last closing bracket");
    return true;
}

bool json_parse(cJSON **out, const char *text, size_t bytes, const char *where, struct err *e)
{
    *out = NULL;
    if (file_is_lfs_pointer(text, bytes))
        return err_set(e, ERR_FORMAT, "%s: expected JSON, found a git LFS pointer: fetch the real file",
                       where);
    if (!check_structure(text, bytes, where, e))
        return false;
    const char *end = text;
    cJSON *root = bytes ? cJSON_ParseWithLengthOpts(text, bytes, &end, 0) : NULL;
    size_t at = end >= text && (size_t)(end - text) <= bytes ? (size_t)(end - text) : 0;
    if (!root)
        return fail_at(text, at, where, e, bytes ? "unexpected text" : "the text is empty");
    while (at < bytes && (text[at] == ' ' || text[at] == '\t' || text[at] == '\n' || text[at] == '\r'))
        at++;
    if (at < bytes) {
        cJSON_Delete(root);
        return fail_at(text, at, where, e, "more text behind the value");
    }
    *out = root;
    return true;
}

bool json_read_file(cJSON **out, const char *path, size_t max_bytes, struct err *e)
{
    char *text = NULL;
    size_t bytes = 0;
    *out = NULL;
    if (!file_read(&text, &bytes, path, max_bytes, e))
        return false;
    bool ok = json_parse(out, text, bytes, path, e);
    free(text);
    return ok;
}

/* Of two equal keys the last counts, as in Python's reader, for which these files are written. */
const cJSON *json_get(const cJSON *object, const char *key)
{
    const cJSON *found = NULL;
    if (!cJSON_IsObject(object))
        return NULL;
    for (const cJSON *c = object->child; c; c = c->next)
        if (c->string && strcmp(c->string, key) == 0)
            found = c;
    return found;
}

const char *json_type_name(const cJSON *item)
{
    switch (item ? item->type & 0xff : 0) {
    case cJSON_False:
    case cJSON_True:
        return "boolean";
    case cJSON_NULL:
        return "null";
    case cJSON_Number:
        return "number";
    case cJSON_String:
        return "string";
    case cJSON_Array:
        return "array";
    case cJSON_Object:
        return "object";
    default:
        return "nothing";
    }
}

static bool fail_type(const cJSON *item, const char *key, const char *want, const char *where, struct err *e)
{
    if (cJSON_IsNumber(item))
        return err_set(e, ERR_FORMAT, "%s: key \"%s\": expected %s, found number %.17g", where, key, want,
                       item->valuedouble);
    return err_set(e, ERR_FORMAT, "%s: key \"%s\": expected %s, found %s", where, key, want,
                   json_type_name(item));
}

/* The value to read, NULL when absent or null. */
static const cJSON *get_present(const cJSON *object, const char *key)
{
    const cJSON *item = json_get(object, key);
    return item && !cJSON_IsNull(item) ? item : NULL;
}

bool json_get_int(const cJSON *object, const char *key, int64_t *value, const char *where, struct err *e)
{
    const cJSON *item = get_present(object, key);
    if (!item)
        return true;
    double d = item->valuedouble;
    if (!cJSON_IsNumber(item) || !(fabs(d) <= JSON_INT_MAX) || d != floor(d))
        return fail_type(item, key, "integer", where, e);
    *value = (int64_t)d;
    return true;
}

bool json_get_double(const cJSON *object, const char *key, double *value, const char *where, struct err *e)
{
    const cJSON *item = get_present(object, key);
    if (!item)
        return true;
    if (!cJSON_IsNumber(item))
        return fail_type(item, key, "number", where, e);
    *value = item->valuedouble;
    return true;
}

bool json_get_bool(const cJSON *object, const char *key, bool *value, const char *where, struct err *e)
{
    const cJSON *item = get_present(object, key);
    if (!item)
        return true;
    if (!cJSON_IsBool(item))
        return fail_type(item, key, "boolean", where, e);
    *value = cJSON_IsTrue(item);
    return true;
}

bool json_get_string(const cJSON *object, const char *key, const char **value, const char *where,
                     struct err *e)
{
    const cJSON *item = get_present(object, key);
    if (!item)
        return true;
    if (!cJSON_IsString(item))
        return fail_type(item, key, "string", where, e);
    *value = item->valuestring;
    return true;
}
