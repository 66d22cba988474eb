/* Schemas to rules. */
#include "server/schema_grammar.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/utf8.h"
#include "server/grammar.h"

#define DEPTH_MAX 64
#define RULES_MAX 20000
#define DIGITS_MOST 9999999999999999LL /* as many as a number's part has */

/* What every schema may use. Blanks have bounds, or a small model goes on with them for ever. */
static const char basics[] =
    "ws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n"
    "char ::= [^\"\\\\\\x00-\\x1f\\x7f] | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" [0-9a-fA-F]{4})\n"
    "string ::= \"\\\"\" char* \"\\\"\"\n"
    "whole ::= \"0\" | [1-9] [0-9]{0,15}\n"
    "integer ::= \"-\"? whole\n"
    "number ::= integer (\".\" [0-9]{1,16})? ([eE] [-+]? [0-9]{1,3})?\n"
    "boolean ::= \"true\" | \"false\"\n"
    "null ::= \"null\"\n"
    "object ::= \"{\" ws (string ws \":\" ws value (ws \",\" ws string ws \":\" ws value)*)? ws \"}\"\n"
    "array ::= \"[\" ws (value (ws \",\" ws value)*)? ws \"]\"\n"
    "value ::= object | array | string | number | boolean | null\n";

struct maker {
    const cJSON *root;
    struct buf *out;
    bool is_strict;
    struct err *e;
    int n_rules, depth;
    struct {
        const cJSON *schema;
        int rule;
    } * known; /* of $ref: [n_known] */
    int n_known;
    size_t capacity;
    cJSON **merged; /* [n_merged] freed at the end */
    int n_merged;
    size_t merged_capacity;
};

static int add_schema(struct maker *m, const cJSON *schema, const char *path);

static bool refuse(struct maker *m, const char *path, const char *what)
{
    return err_set(m->e, ERR_FORMAT, "%s: %s", path[0] ? path : "schema", what);
}

static char *sub_path(const char *path, const char *key)
{
    return xasprintf("%s%s%.80s", path, path[0] ? "." : "", key);
}

/* ---- literals ---- */

/* Text as a literal of the grammar. */
static void put_literal(struct buf *out, const char *text)
{
    buf_putc(out, '"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            buf_printf(out, "\\%c", *text);
        else if (*text == '\n')
            buf_puts(out, "\\n");
        else
            buf_putc(out, *text);
    }
    buf_putc(out, '"');
}

static void put_json_literal(struct buf *out, const cJSON *value)
{
    char *text = cJSON_PrintUnformatted(value);
    put_literal(out, text ? text : "null");
    free(text);
}

static void put_key_literal(struct buf *out, const char *key)
{
    cJSON *name = cJSON_CreateString(key);
    put_json_literal(out, name);
    cJSON_Delete(name);
}

/* ---- rules ---- */

static int begin_rule(struct maker *m, struct buf *body)
{
    buf_init(body, GRAMMAR_TEXT_BYTES_MAX);
    return m->n_rules++;
}

/* Adds "r<rule> ::= body"; takes the body. -1: the grammar is too large. */
static int end_rule(struct maker *m, int rule, struct buf *body, bool ok)
{
    if (ok) {
        buf_printf(m->out, "r%d ::= ", rule);
        buf_append(m->out, body->p ? body->p : "", body->n);
        buf_putc(m->out, '\n');
        if (m->out->failed || body->failed || m->n_rules > RULES_MAX)
            ok = err_set(m->e, ERR_FORMAT, "schema: it is too large");
    }
    buf_fini(body);
    return ok ? rule : -1;
}

static bool put_rule(struct maker *m, struct buf *body, const cJSON *schema, const char *path)
{
    int rule = add_schema(m, schema, path);
    if (rule >= 0)
        buf_printf(body, "r%d", rule);
    return rule >= 0;
}

/* ---- keywords ---- */

static bool has(const cJSON *schema, const char *key)
{
    return json_get(schema, key) != NULL;
}

static bool check_keywords(struct maker *m, const cJSON *schema, const char *path)
{
    static const char *const never[] = {"$anchor", "$dynamicRef", "$dynamicAnchor", NULL};
    static const char *const ignored[] = {"not",
                                          "if",
                                          "then",
                                          "else",
                                          "dependentSchemas",
                                          "dependentRequired",
                                          "dependencies",
                                          "contains",
                                          "minContains",
                                          "maxContains",
                                          "uniqueItems",
                                          "patternProperties",
                                          "propertyNames",
                                          "minProperties",
                                          "maxProperties",
                                          "unevaluatedProperties",
                                          "unevaluatedItems",
                                          "multipleOf",
                                          NULL};
    for (int i = 0; never[i]; i++)
        if (has(schema, never[i])) {
            char *where = sub_path(path, never[i]);
            (void)refuse(m, where, "is not supported");
            free(where);
            return false;
        }
    for (int i = 0; ignored[i] && m->is_strict; i++) {
        const cJSON *item = json_get(schema, ignored[i]);
        bool is_off = cJSON_IsFalse(item) && strcmp(ignored[i], "uniqueItems") == 0;
        if (item && !is_off) {
            char *where = sub_path(path, ignored[i]);
            (void)refuse(m, where, "is not supported (with \"strict\": false it is ignored)");
            free(where);
            return false;
        }
    }
    return true;
}

static bool read_count(struct maker *m, const cJSON *schema, const char *key, const char *path,
                       int64_t *value)
{
    const cJSON *item = json_get(schema, key);
    if (!item)
        return true;
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0 && item->valuedouble <= 2147483647.0) ||
        item->valuedouble != floor(item->valuedouble)) {
        char *where = sub_path(path, key);
        (void)refuse(m, where, "expected a whole number from 0 to 2147483647");
        free(where);
        return false;
    }
    *value = (int64_t)item->valuedouble;
    return true;
}

static void put_counts(struct buf *body, int64_t least, int64_t most)
{
    if (most < 0)
        buf_printf(body, "{%lld,}", (long long)least);
    else
        buf_printf(body, "{%lld,%lld}", (long long)least, (long long)most);
}

/* ---- types ---- */

static bool put_string(struct maker *m, struct buf *body, const cJSON *schema, const char *path)
{
    static const struct {
        const char *name, *inside;
    } formats[] = {
        {"date", "[0-9]{4} \"-\" (\"0\" [1-9] | \"1\" [0-2]) \"-\" (\"0\" [1-9] | [12] [0-9] | \"3\" [01])"},
        {"time",
         "([01] [0-9] | \"2\" [0-3]) \":\" [0-5] [0-9] \":\" [0-5] [0-9] (\".\" [0-9]{3})? (\"Z\" | [-+] "
         "([01] [0-9] | \"2\" [0-3]) \":\" [0-5] [0-9])"},
        {"date-time", "[0-9]{4} \"-\" (\"0\" [1-9] | \"1\" [0-2]) \"-\" (\"0\" [1-9] | [12] [0-9] | \"3\" "
                      "[01]) \"T\" ([01] [0-9] "
                      "| \"2\" [0-3]) \":\" [0-5] [0-9] \":\" [0-5] [0-9] (\".\" [0-9]{3})? (\"Z\" | [-+] "
                      "([01] [0-9] | \"2\" "
                      "[0-3]) \":\" [0-5] [0-9])"},
        {"uuid", "[0-9a-fA-F]{8} \"-\" [0-9a-fA-F]{4} \"-\" [0-9a-fA-F]{4} \"-\" [0-9a-fA-F]{4} \"-\" "
                 "[0-9a-fA-F]{12}"},
        {"email", "[a-zA-Z0-9._+-]{1,64} \"@\" [a-zA-Z0-9] [a-zA-Z0-9-]{0,62} (\".\" [a-zA-Z0-9] "
                  "[a-zA-Z0-9-]{0,62}){1,8}"},
        {"ipv4", "([0-9] | [1-9] [0-9] | \"1\" [0-9]{2} | \"2\" [0-4] [0-9] | \"25\" [0-5]) (\".\" ([0-9] | "
                 "[1-9] [0-9] "
                 "| \"1\" [0-9]{2} | \"2\" [0-4] [0-9] | \"25\" [0-5])){3}"},
        {"uri", "[a-zA-Z] [a-zA-Z0-9+.-]{0,30} \":\" [a-zA-Z0-9._~:/?#@!$&'()*+,;=%-]{1,2000}"},
    };
    const cJSON *pattern = json_get(schema, "pattern"), *format = json_get(schema, "format");
    int64_t least = 0, most = -1;
    if (!read_count(m, schema, "minLength", path, &least) || !read_count(m, schema, "maxLength", path, &most))
        return false;
    if (most >= 0 && most < least)
        return refuse(m, path, "maxLength is below minLength");
    buf_puts(body, "\"\\\"\" ");
    if (pattern) {
        if (!cJSON_IsString(pattern))
            return refuse(m, path, "pattern: expected a string");
        if (m->is_strict && (has(schema, "minLength") || has(schema, "maxLength")))
            return refuse(m, path, "pattern beside a length is not supported");
        if (!schema_pattern(body, pattern->valuestring, path[0] ? path : "schema", m->e))
            return false;
        buf_puts(body, " \"\\\"\"");
        return true;
    }
    for (size_t i = 0; cJSON_IsString(format) && i < sizeof formats / sizeof *formats; i++)
        if (strcmp(format->valuestring, formats[i].name) == 0 ||
            (i == 3 && strncmp(format->valuestring, "uuid", 4) == 0)) {
            buf_puts(body, formats[i].inside);
            buf_puts(body, " \"\\\"\"");
            return true;
        }
    buf_puts(body, "char");
    put_counts(body, least, most);
    buf_puts(body, " \"\\\"\"");
    return true;
}

static bool put_integer(struct maker *m, struct buf *body, const cJSON *schema, const char *path)
{
    static const char *const keys[] = {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"};
    int64_t low = -DIGITS_MOST, high = DIGITS_MOST;
    bool is_bounded = false;
    for (int i = 0; i < 4; i++) {
        const cJSON *item = json_get(schema, keys[i]);
        if (!item)
            continue;
        if (!cJSON_IsNumber(item) || !(fabs(item->valuedouble) <= 9e15))
            return refuse(m, path, "limits of integers: expected numbers up to 9e15");
        double v = item->valuedouble;
        int64_t whole = i < 2 ? (int64_t)ceil(v) : (int64_t)floor(v);
        if (i == 1 && v == floor(v))
            whole++;
        if (i == 3 && v == floor(v))
            whole--;
        if (i < 2 && whole > low)
            low = whole;
        if (i >= 2 && whole < high)
            high = whole;
        is_bounded = true;
    }
    if (low > high)
        return refuse(m, path, "no integer is within the limits");
    if (is_bounded)
        schema_integers(body, low, high);
    else
        buf_puts(body, "integer");
    return true;
}

static bool put_array(struct maker *m, struct buf *body, const cJSON *schema, const char *path)
{
    const cJSON *items = json_get(schema, "items"), *prefix = json_get(schema, "prefixItems");
    const cJSON *tuple = cJSON_IsArray(prefix) ? prefix : cJSON_IsArray(items) ? items : NULL;
    int64_t least = 0, most = -1;
    if (!read_count(m, schema, "minItems", path, &least) || !read_count(m, schema, "maxItems", path, &most))
        return false;
    buf_puts(body, "\"[\" ws ");
    if (tuple) {
        for (const cJSON *item = tuple->child; item; item = item->next) {
            buf_puts(body, item == tuple->child ? "" : " ws \",\" ws ");
            if (!put_rule(m, body, item, path))
                return false;
        }
        buf_puts(body, " ws \"]\"");
        return true;
    }
    if (most >= 0 && most < least)
        return refuse(m, path, "maxItems is below minItems");
    if (most == 0 || cJSON_IsFalse(items)) {
        buf_puts(body, "\"]\"");
        return true;
    }
    int rule = -1;
    char *where = sub_path(path, "items");
    if (items && !cJSON_IsTrue(items))
        rule = add_schema(m, items, where);
    free(where);
    if (items && !cJSON_IsTrue(items) && rule < 0)
        return false;
    char name[24] = "value";
    if (rule >= 0)
        snprintf(name, sizeof name, "r%d", rule);
    buf_printf(body, "(%s (ws \",\" ws %s)", name, name);
    put_counts(body, least > 0 ? least - 1 : 0, most < 0 ? -1 : most - 1);
    buf_puts(body, least > 0 ? ") ws \"]\"" : ")? ws \"]\"");
    return true;
}

/* ---- objects ---- */

/* Rules for keys that are none of the names. Each rule stands behind a prefix of some of them. */
static int add_other_keys(struct maker *m, char **names, int n, size_t depth)
{
    struct buf body;
    int rule = begin_rule(m, &body);
    bool is_name = false, ok = true;
    char seen[256] = {0};
    struct buf firsts;
    buf_init(&firsts, 4096);
    for (int i = 0; i < n; i++)
        is_name = is_name || !names[i][depth];
    if (!is_name)
        buf_puts(&body, "\"\" | ");
    for (int i = 0; i < n && ok; i++) {
        unsigned char c = (unsigned char)names[i][depth];
        char **with = xcalloc((size_t)n, sizeof *with);
        int n_with = 0;
        for (int k = 0; k < n && c && !seen[c]; k++)
            if ((unsigned char)names[k][depth] == c)
                with[n_with++] = names[k];
        if (n_with > 0 && c < 0x80 && c >= 0x20 && c != '"' && c != '\\') {
            int inner = add_other_keys(m, with, n_with, depth + 1);
            ok = inner >= 0;
            buf_printf(&body, "[\\x%02x] r%d | ", c, inner);
        }
        if (n_with > 0 && c < 0x80)
            buf_printf(&firsts, "\\x%02x", c);
        seen[c] = 1;
        free(with);
    }
    /* Keys that begin with other characters than ASCII are told apart by their first one alone. */
    bool has_wide = false;
    for (int c = 0x80; c < 256; c++)
        has_wide = has_wide || seen[c];
    buf_printf(&body, "[^\"\\\\\\x00-\\x1f\\x7f%s%s] [^\"\\\\\\x00-\\x1f\\x7f]*", firsts.p ? firsts.p : "",
               has_wide ? "\\U00000080-\\U0010ffff" : "");
    buf_fini(&firsts);
    return end_rule(m, rule, &body, ok);
}

static int add_member(struct maker *m, const cJSON *property, const char *path)
{
    struct buf body;
    int rule = begin_rule(m, &body);
    char *where = sub_path(path, property->string);
    put_key_literal(&body, property->string);
    buf_puts(&body, " ws \":\" ws ");
    bool ok = put_rule(m, &body, property, where);
    free(where);
    return end_rule(m, rule, &body, ok);
}

/* A member that no property names; -1 with e->code 0: there are none. */
static int add_more(struct maker *m, const cJSON *schema, char **names, int n, const char *path)
{
    const cJSON *more = json_get(schema, "additionalProperties");
    struct buf body;
    if (!more || cJSON_IsFalse(more))
        return -1;
    int key = n > 0 ? add_other_keys(m, names, n, 0) : -1;
    if (m->e->code)
        return -1;
    int rule = begin_rule(m, &body);
    bool ok = true;
    if (key >= 0)
        buf_printf(&body, "\"\\\"\" r%d \"\\\"\" ws \":\" ws ", key);
    else
        buf_puts(&body, "string ws \":\" ws ");
    if (cJSON_IsTrue(more))
        buf_puts(&body, "value");
    else
        ok = put_rule(m, &body, more, path);
    return end_rule(m, rule, &body, ok);
}

static bool is_required(const cJSON *schema, const char *name)
{
    const cJSON *list = json_get(schema, "required");
    for (const cJSON *i = cJSON_IsArray(list) ? list->child : NULL; i; i = i->next)
        if (cJSON_IsString(i) && strcmp(i->valuestring, name) == 0)
            return true;
    return false;
}

struct members {
    int *required, *optional;         /* rules */
    int n_required, n_optional, more; /* more -1: none */
};

/* One after the other, each once at most. */
static bool put_members(struct maker *m, struct buf *body, const struct members *x)
{
    for (int i = 0; i < x->n_required; i++)
        buf_printf(body, i ? " ws \",\" ws r%d" : "r%d", x->required[i]);
    if (x->n_required > 0) {
        for (int i = 0; i < x->n_optional; i++)
            buf_printf(body, " (ws \",\" ws r%d)?", x->optional[i]);
        if (x->more >= 0)
            buf_printf(body, " (ws \",\" ws r%d)*", x->more);
        return true;
    }
    if (x->n_optional == 0 && x->more < 0)
        return true;
    /* Which comes first is open: rest[i] is what may follow behind the first i. */
    struct buf rest;
    int last = begin_rule(m, &rest), first_rest;
    if (x->more >= 0)
        buf_printf(&rest, "(ws \",\" ws r%d)*", x->more);
    if (end_rule(m, last, &rest, true) < 0)
        return false;
    int *rests = xcalloc((size_t)x->n_optional + 1, sizeof *rests);
    rests[x->n_optional] = last;
    bool ok = true;
    for (int i = x->n_optional - 1; i >= 0 && ok; i--) {
        first_rest = begin_rule(m, &rest);
        buf_printf(&rest, "(ws \",\" ws r%d)? r%d", x->optional[i], rests[i + 1]);
        rests[i] = end_rule(m, first_rest, &rest, true);
        ok = rests[i] >= 0;
    }
    buf_puts(body, "(");
    for (int i = 0; i < x->n_optional; i++)
        buf_printf(body, "%sr%d r%d", i ? " | " : "", x->optional[i], rests[i + 1]);
    if (x->more >= 0)
        buf_printf(body, "%sr%d r%d", x->n_optional ? " | " : "", x->more, last);
    buf_puts(body, ")?");
    free(rests);
    return ok;
}

static bool put_object(struct maker *m, struct buf *body, const cJSON *schema, const char *path)
{
    const cJSON *properties = json_get(schema, "properties"), *required = json_get(schema, "required");
    if (!properties && !has(schema, "additionalProperties")) {
        if (cJSON_IsArray(required) && required->child && m->is_strict)
            return refuse(m, path, "required without properties is not supported");
        buf_puts(body, "object");
        return true;
    }
    if (properties && !cJSON_IsObject(properties))
        return refuse(m, path, "properties: expected an object");
    int n = cJSON_GetArraySize(properties), k = 0;
    struct members x = {.required = xcalloc((size_t)n + 1, sizeof(int)),
                        .optional = xcalloc((size_t)n + 1, sizeof(int))};
    char **names = xcalloc((size_t)n + 1, sizeof *names);
    bool ok = true;
    for (const cJSON *r = cJSON_IsArray(required) ? required->child : NULL; r && ok; r = r->next)
        if (!cJSON_IsString(r) || (!json_get(properties, r->valuestring) && m->is_strict))
            ok = refuse(m, path, "required names something that properties does not have");
    for (const cJSON *p = properties ? properties->child : NULL; p && ok; p = p->next) {
        int rule = add_member(m, p, path);
        ok = rule >= 0;
        names[k++] = p->string;
        if (is_required(schema, p->string))
            x.required[x.n_required++] = rule;
        else
            x.optional[x.n_optional++] = rule;
    }
    x.more = ok ? add_more(m, schema, names, k, path) : -1;
    ok = ok && !m->e->code;
    buf_puts(body, "\"{\" ws ");
    ok = ok && put_members(m, body, &x);
    buf_puts(body, " ws \"}\"");
    free(names);
    free(x.required);
    free(x.optional);
    return ok;
}

/* ---- one schema ---- */

static const cJSON *resolve(struct maker *m, const char *ref, const char *path)
{
    const cJSON *at = m->root;
    char part[256];
    if (ref[0] != '#' || (ref[1] && ref[1] != '/')) {
        (void)refuse(m, path, "$ref: only references within the schema (#/..) are followed");
        return NULL;
    }
    for (const char *p = ref + 1; *p == '/' && at;) {
        size_t n = strcspn(p + 1, "/"), k = 0;
        for (size_t i = 0; i < n && k + 1 < sizeof part; i++) {
            char c = p[1 + i];
            if (c == '~' && i + 1 < n) {
                c = p[2 + i] == '1' ? '/' : '~';
                i++;
            }
            part[k++] = c;
        }
        part[k] = '\0';
        at = cJSON_IsArray(at) ? cJSON_GetArrayItem(at, (int)strtol(part, NULL, 10)) : json_get(at, part);
        p += n + 1;
    }
    if (!at)
        (void)refuse(m, path, "$ref: nothing is there");
    return at;
}

/* allOf: members of all parts in one schema. */
static bool merge_into(struct maker *m, cJSON *to, const cJSON *from, const char *path, int depth)
{
    const cJSON *ref = json_get(from, "$ref");
    if (depth > DEPTH_MAX)
        return refuse(m, path, "allOf: nested too deep");
    if (cJSON_IsString(ref)) {
        const cJSON *target = resolve(m, ref->valuestring, path);
        if (!target || !merge_into(m, to, target, path, depth + 1))
            return false;
    }
    for (const cJSON *item = cJSON_IsObject(from) ? from->child : NULL; item; item = item->next) {
        cJSON *old = (cJSON *)(uintptr_t)json_get(to, item->string);
        if (strcmp(item->string, "$ref") == 0)
            continue;
        if (strcmp(item->string, "allOf") == 0) {
            for (const cJSON *part = item->child; part; part = part->next)
                if (!merge_into(m, to, part, path, depth + 1))
                    return false;
        } else if (!old) {
            cJSON_AddItemToObject(to, item->string, cJSON_Duplicate(item, true));
        } else if (strcmp(item->string, "properties") == 0 && cJSON_IsObject(item) && cJSON_IsObject(old)) {
            for (const cJSON *p = item->child; p; p = p->next)
                if (!json_get(old, p->string))
                    cJSON_AddItemToObject(old, p->string, cJSON_Duplicate(p, true));
        } else if (strcmp(item->string, "required") == 0 && cJSON_IsArray(item) && cJSON_IsArray(old)) {
            for (const cJSON *p = item->child; p; p = p->next)
                cJSON_AddItemToArray(old, cJSON_Duplicate(p, true));
        } else if (!cJSON_Compare(old, item, true) && strcmp(item->string, "title") != 0 &&
                   strcmp(item->string, "description") != 0) {
            char *where = sub_path(path, item->string);
            (void)refuse(m, where, "parts of allOf differ in it");
            free(where);
            return false;
        }
    }
    return true;
}

static const cJSON *merge_all(struct maker *m, const cJSON *schema, const char *path)
{
    cJSON *all = cJSON_CreateObject();
    m->merged = mem_grow(m->merged, (size_t)m->n_merged, &m->merged_capacity, sizeof(cJSON *));
    m->merged[m->n_merged++] = all;
    return merge_into(m, all, schema, path, 0) ? all : NULL;
}

/* anyOf, oneOf: each way with what stands beside them. */
static bool put_union(struct maker *m, struct buf *body, const cJSON *schema, const char *key,
                      const char *path)
{
    const cJSON *ways = json_get(schema, key);
    char *where = sub_path(path, key);
    bool ok = (cJSON_IsArray(ways) && ways->child) || refuse(m, where, "expected an array of schemas");
    bool has_beside = has(schema, "properties");
    for (const cJSON *way = ok ? ways->child : NULL; way && ok; way = way->next) {
        const cJSON *one = way;
        if (has_beside) {
            cJSON *beside = cJSON_Duplicate(schema, true), *list = cJSON_CreateArray();
            m->merged = mem_grow(m->merged, (size_t)m->n_merged, &m->merged_capacity, sizeof(cJSON *));
            m->merged[m->n_merged++] = beside;
            cJSON_DeleteItemFromObjectCaseSensitive(beside, key);
            cJSON_AddItemToArray(list, cJSON_Duplicate(way, true));
            cJSON_AddItemToObject(beside, "allOf", list);
            one = beside;
        }
        buf_puts(body, way == ways->child ? "" : " | ");
        ok = put_rule(m, body, one, where);
    }
    free(where);
    return ok;
}

static bool put_type(struct maker *m, struct buf *body, const cJSON *schema, const char *type,
                     const char *path)
{
    if (strcmp(type, "object") == 0)
        return put_object(m, body, schema, path);
    if (strcmp(type, "array") == 0)
        return put_array(m, body, schema, path);
    if (strcmp(type, "string") == 0)
        return put_string(m, body, schema, path);
    if (strcmp(type, "integer") == 0)
        return put_integer(m, body, schema, path);
    if (strcmp(type, "number") == 0) {
        static const char *const limits[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"};
        for (int i = 0; i < 4 && m->is_strict; i++)
            if (has(schema, limits[i]))
                return refuse(
                    m, path,
                    "limits of numbers that are not integers are not supported (with \"strict\": false they "
                    "are ignored)");
    }
    if (strcmp(type, "number") != 0 && strcmp(type, "boolean") != 0 && strcmp(type, "null") != 0)
        return refuse(m, path, "type: not a type of JSON");
    buf_puts(body, type);
    return true;
}

/* Without a type the keywords tell. */
static const char *guess_type(const cJSON *schema)
{
    if (has(schema, "properties") || has(schema, "additionalProperties") || has(schema, "required"))
        return "object";
    if (has(schema, "items") || has(schema, "prefixItems") || has(schema, "minItems") ||
        has(schema, "maxItems"))
        return "array";
    if (has(schema, "pattern") || has(schema, "minLength") || has(schema, "maxLength") ||
        has(schema, "format"))
        return "string";
    if (has(schema, "minimum") || has(schema, "maximum"))
        return "number";
    return NULL;
}

static bool put_schema(struct maker *m, struct buf *body, const cJSON *schema, const char *path)
{
    const cJSON *type = json_get(schema, "type"), *values = json_get(schema, "enum"),
                *ref = json_get(schema, "$ref");
    if (!check_keywords(m, schema, path))
        return false;
    if (has(schema, "allOf") || (cJSON_IsString(ref) && schema->child->next && has(schema, "properties"))) {
        const cJSON *all = merge_all(m, schema, path);
        return all && put_rule(m, body, all, path);
    }
    if (ref) {
        const cJSON *target = cJSON_IsString(ref) ? resolve(m, ref->valuestring, path) : NULL;
        if (!cJSON_IsString(ref))
            return refuse(m, path, "$ref: expected a string");
        return target && put_rule(m, body, target, path);
    }
    if (has(schema, "const")) {
        put_json_literal(body, json_get(schema, "const"));
        return true;
    }
    if (values) {
        if (!cJSON_IsArray(values) || !values->child)
            return refuse(m, path, "enum: expected an array of values");
        for (const cJSON *v = values->child; v; v = v->next) {
            buf_puts(body, v == values->child ? "" : " | ");
            put_json_literal(body, v);
        }
        return true;
    }
    if (has(schema, "anyOf") || has(schema, "oneOf"))
        return put_union(m, body, schema, has(schema, "anyOf") ? "anyOf" : "oneOf", path);
    if (cJSON_IsArray(type) && type->child) {
        for (const cJSON *t = type->child; t; t = t->next) {
            if (!cJSON_IsString(t))
                return refuse(m, path, "type: expected strings");
            buf_puts(body, t == type->child ? "(" : " | (");
            if (!put_type(m, body, schema, t->valuestring, path))
                return false;
            buf_puts(body, ")");
        }
        return true;
    }
    if (type && !cJSON_IsString(type))
        return refuse(m, path, "type: expected a string");
    const char *name = type ? type->valuestring : guess_type(schema);
    if (name)
        return put_type(m, body, schema, name, path);
    buf_puts(body, "value");
    return true;
}

/* The number of the schema's rule; -1: refused. */
static int add_schema(struct maker *m, const cJSON *schema, const char *path)
{
    struct buf body;
    bool ok;
    for (int i = 0; i < m->n_known; i++)
        if (m->known[i].schema == schema)
            return m->known[i].rule;
    if (++m->depth > DEPTH_MAX) {
        (void)refuse(m, path, "nested too deep");
        return -1;
    }
    int rule = begin_rule(m, &body);
    m->known = mem_grow(m->known, (size_t)m->n_known, &m->capacity, sizeof *m->known);
    m->known[m->n_known].schema = schema;
    m->known[m->n_known++].rule = rule;
    if (cJSON_IsTrue(schema)) {
        buf_puts(&body, "value");
        ok = true;
    } else if (!cJSON_IsObject(schema)) {
        ok = refuse(m, path, "expected a schema, an object");
    } else {
        ok = put_schema(m, &body, schema, path);
    }
    m->depth--;
    return end_rule(m, rule, &body, ok);
}

bool schema_grammar(struct buf *out, const cJSON *schema, bool is_strict, const char *before,
                    const char *after, struct err *e)
{
    struct maker m = {.root = schema, .out = out, .is_strict = is_strict, .e = e};
    char name[24] = "object";
    *e = (struct err){0};
    buf_puts(out, basics);
    int rule = schema ? add_schema(&m, schema, "") : -1;
    if (rule >= 0)
        snprintf(name, sizeof name, "r%d", rule);
    buf_puts(out, "root ::= ");
    put_literal(out, before);
    buf_printf(out, " %s ", name);
    put_literal(out, after);
    buf_putc(out, '\n');
    for (int i = 0; i < m.n_merged; i++)
        cJSON_Delete(m.merged[i]);
    free(m.merged);
    free(m.known);
    if (e->code == ERR_NONE && out->failed)
        err_set(e, ERR_FORMAT, "schema: it is too large");
    return e->code == ERR_NONE;
}
