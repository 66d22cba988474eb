/* Strict reading of requests. */
#include "server/fields.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/utf8.h"

#define DEPTH_MAX 64
#define INT_MAX_EXACT 9007199254740992.0

static bool is_too_deep(struct str body)
{
    int depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < body.n; i++) {
        char c = body.p[i];
        if (in_string) {
            i += c == '\\';
            in_string = c != '"';
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > DEPTH_MAX)
                return true;
        } else if (c == '}' || c == ']') {
            depth--;
        }
    }
    return false;
}

bool body_parse(cJSON **out, struct str body, struct problem *p)
{
    struct err e = {0};
    *out = NULL;
    if (utf8_valid_prefix(body.p, body.n) != body.n)
        return problem_bad(p, "invalid_json", NULL, "the body is not UTF-8");
    if (is_too_deep(body))
        return problem_bad(p, "invalid_json", NULL, "the body is nested deeper than %d levels", DEPTH_MAX);
    if (!json_parse(out, body.p, body.n, "body", &e))
        return problem_bad(p, "invalid_json", NULL, "%s", e.msg);
    if (!cJSON_IsObject(*out)) {
        problem_bad(p, "invalid_json", NULL, "the body: expected a JSON object, found %s",
                    json_type_name(*out));
        cJSON_Delete(*out);
        *out = NULL;
        return false;
    }
    return true;
}

const cJSON *fields_get(const struct fields *f, const char *key)
{
    const cJSON *item = json_get(f->object, key);
    return item && !cJSON_IsNull(item) ? item : NULL;
}

void fields_path(const struct fields *f, const char *key, char *out, size_t n)
{
    snprintf(out, n, "%s%s%s", f->path, f->path[0] && key[0] ? "." : "", key);
}

bool fields_fail(const struct fields *f, const char *key, const char *expected, const cJSON *found)
{
    char path[160], text[64];
    fields_path(f, key, path, sizeof path);
    snprintf(text, sizeof text, "%s", json_type_name(found));
    if (cJSON_IsNumber(found))
        snprintf(text, sizeof text, "%.17g", found->valuedouble);
    else if (cJSON_IsString(found))
        snprintf(text, sizeof text, "the string \"%.40s\"", found->valuestring);
    size_t n = utf8_valid_prefix(text, strlen(text)); /* a string may have been cut within a character */
    return problem_value(f->problem, path, "%s: expected %s, found %.*s", path, expected, (int)n, text);
}

bool fields_int(const struct fields *f, const char *key, int64_t *value, int64_t least, int64_t most)
{
    const cJSON *item = fields_get(f, key);
    char expected[96];
    if (!item)
        return true;
    double d = item->valuedouble;
    if (cJSON_IsNumber(item) && d == floor(d) && fabs(d) <= INT_MAX_EXACT && d >= (double)least &&
        d <= (double)most) {
        *value = (int64_t)d;
        return true;
    }
    if (most == INT64_MAX)
        snprintf(expected, sizeof expected, "a whole number from %lld on", (long long)least);
    else
        snprintf(expected, sizeof expected, "a whole number from %lld to %lld", (long long)least,
                 (long long)most);
    return fields_fail(f, key, least == INT64_MIN ? "a whole number" : expected, item);
}

bool fields_number(const struct fields *f, const char *key, double *value, double least, double most)
{
    const cJSON *item = fields_get(f, key);
    char expected[96];
    if (!item)
        return true;
    if (cJSON_IsNumber(item) && item->valuedouble >= least && item->valuedouble <= most) {
        *value = item->valuedouble;
        return true;
    }
    snprintf(expected, sizeof expected, "a number from %g to %g", least, most);
    return fields_fail(f, key, expected, item);
}

bool fields_bool(const struct fields *f, const char *key, bool *value)
{
    const cJSON *item = fields_get(f, key);
    if (!item)
        return true;
    if (!cJSON_IsBool(item))
        return fields_fail(f, key, "true or false", item);
    *value = cJSON_IsTrue(item);
    return true;
}

bool fields_string(const struct fields *f, const char *key, const char **value)
{
    const cJSON *item = fields_get(f, key);
    if (!item)
        return true;
    if (!cJSON_IsString(item))
        return fields_fail(f, key, "a string", item);
    *value = item->valuestring;
    return true;
}

bool fields_item(const struct fields *f, const char *key, int type, const cJSON **value)
{
    const cJSON *item = fields_get(f, key);
    if (!item)
        return true;
    if ((item->type & 0xff) != type)
        return fields_fail(f, key, type == cJSON_Array ? "an array" : "an object", item);
    *value = item;
    return true;
}

/* ---- slices ---- */

static size_t skip_blanks(struct str s, size_t at)
{
    while (at < s.n && strchr(" \t\r\n", s.p[at]))
        at++;
    return at;
}

/* Behind the string that begins at s.p[at]. */
static size_t skip_text(struct str s, size_t at)
{
    for (at++; at < s.n && s.p[at] != '"'; at++)
        at += s.p[at] == '\\';
    return at < s.n ? at + 1 : s.n;
}

static size_t skip_item(struct str s, size_t at)
{
    int depth = 0;
    while (at < s.n) {
        char c = s.p[at];
        if (depth == 0 && (c == ',' || c == '}' || c == ']'))
            break;
        depth += (c == '{' || c == '[') - (c == '}' || c == ']');
        at = c == '"' ? skip_text(s, at) : at + 1;
    }
    return at;
}

bool json_slice(struct str object, const char *key, struct str *value)
{
    bool found = false;
    size_t at = skip_blanks(object, 0);
    if (at >= object.n || object.p[at] != '{')
        return false;
    for (at = skip_blanks(object, at + 1); at < object.n && object.p[at] == '"';) {
        size_t name = at + 1, end = skip_text(object, at);
        bool is_it = end - name == strlen(key) + 1 && memcmp(object.p + name, key, strlen(key)) == 0;
        at = skip_blanks(object, skip_blanks(object, end) + 1); /* behind the colon */
        end = skip_item(object, at);
        if (is_it) { /* of equal keys the last one counts */
            *value = (struct str){object.p + at, end - at};
            found = true;
        }
        at = skip_blanks(object, end);
        if (at < object.n && object.p[at] == ',')
            at = skip_blanks(object, at + 1);
    }
    return found;
}
