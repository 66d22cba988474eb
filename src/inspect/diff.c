#include "inspect/diff.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "mil/mil.h"

/* Places that an entry names. */
#define PLACES_MAX 5

struct diff {
    const struct mil_model *m[2];
    cJSON *metadata, *functions, *operations, *weights;
};

static cJSON *add_entry(cJSON *list, const char *key, const char *name)
{
    cJSON *one = cJSON_CreateObject();
    cJSON_AddStringToObject(one, key, name);
    cJSON_AddItemToArray(list, one);
    return one;
}

/* "a" and "b" of an entry; NULL: not there. */
static void add_sides(cJSON *one, const char *a, const char *b)
{
    if (a)
        cJSON_AddStringToObject(one, "a", a);
    if (b)
        cJSON_AddStringToObject(one, "b", b);
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* ---- metadata ---- */

static void compare_text(struct diff *d, const char *key, const char *a, const char *b)
{
    if (!same_text(a, b))
        add_sides(add_entry(d->metadata, "key", key), a, b);
}

static const char *user_defined(const struct mil_description *d, const char *key)
{
    for (int i = 0; i < d->n_user_defined; i++)
        if (strcmp(d->user_defined[i].key, key) == 0)
            return d->user_defined[i].value;
    return NULL;
}

static void compare_metadata(struct diff *d)
{
    const struct mil_description *a = &d->m[0]->description, *b = &d->m[1]->description;
    char versions[2][16];
    for (int i = 0; i < 2; i++)
        snprintf(versions[i], sizeof versions[i], "%d", d->m[i]->specification_version);
    compare_text(d, "specification_version", versions[0], versions[1]);
    compare_text(d, "default_function", mil_default_function_name(d->m[0]),
                 mil_default_function_name(d->m[1]));
    compare_text(d, "short_description", a->short_description, b->short_description);
    compare_text(d, "version", a->version, b->version);
    compare_text(d, "author", a->author, b->author);
    compare_text(d, "license", a->license, b->license);
    for (int side = 0; side < 2; side++) {
        const struct mil_description *of = side ? b : a;
        for (int i = 0; i < of->n_user_defined; i++) {
            const char *key = of->user_defined[i].key, *in_a = user_defined(a, key);
            if (!(side && in_a)) /* once */
                compare_text(d, key, in_a, user_defined(b, key));
        }
    }
}

/* ---- variables and operations by name ---- */

struct named {
    const char *name;
    const struct mil_op *op;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

static int count_ops(const struct mil_block *b)
{
    int n = b->n_ops;
    for (int i = 0; i < b->n_ops; i++)
        for (int k = 0; k < b->ops[i]->n_blocks; k++)
            n += count_ops(b->ops[i]->blocks[k]);
    return n;
}

static int collect_ops(struct named *list, int n, const struct mil_block *b)
{
    for (int i = 0; i < b->n_ops; i++) {
        if (b->ops[i]->n_outputs > 0)
            list[n++] = (struct named){b->ops[i]->outputs[0]->name, b->ops[i]};
        for (int k = 0; k < b->ops[i]->n_blocks; k++)
            n = collect_ops(list, n, b->ops[i]->blocks[k]);
    }
    return n;
}

static struct named *ops_of(const struct mil_function *f, int *n)
{
    struct named *list = xcalloc((size_t)count_ops(f->block) + 1, sizeof *list);
    *n = collect_ops(list, 0, f->block);
    qsort(list, (size_t)*n, sizeof *list, by_name);
    return list;
}

/* ---- values ---- */

static bool same_bytes(const struct mil_value *a, const struct mil_value *b)
{
    if (a == b)
        return true;
    if (!a || !b || a->kind != b->kind || a->n_elems != b->n_elems || a->bytes != b->bytes ||
        a->n_items != b->n_items || !a->strings != !b->strings || !a->data != !b->data)
        return false;
    for (int i = 0; i < a->n_items; i++)
        if (!same_bytes(a->items[i], b->items[i]))
            return false;
    for (int64_t i = 0; a->strings && i < a->n_elems; i++)
        if (a->strings[i].n != b->strings[i].n ||
            memcmp(a->strings[i].p, b->strings[i].p, a->strings[i].n) != 0)
            return false;
    return !a->data || memcmp(a->data, b->data, a->bytes) == 0;
}

static bool same_type(const struct mil_type *a, const struct mil_type *b)
{
    char texts[2][300];
    mil_type_text(texts[0], sizeof texts[0], a);
    mil_type_text(texts[1], sizeof texts[1], b);
    return strcmp(texts[0], texts[1]) == 0;
}

static bool same_binding(const struct mil_binding *a, const struct mil_binding *b)
{
    if (a->var && b->var)
        return strcmp(a->var->name, b->var->name) == 0;
    return !a->var && !b->var && same_type(a->value->type, b->value->type) && same_bytes(a->value, b->value);
}

/* Is it the same operation, with the same operands? Values of weight files are looked at apart. */
static bool same_op(const struct mil_op *a, const struct mil_op *b)
{
    if (strcmp(a->type, b->type) != 0 || a->n_args != b->n_args || a->n_outputs != b->n_outputs)
        return false;
    for (int i = 0; i < a->n_outputs; i++)
        if (!same_type(a->outputs[i]->type, b->outputs[i]->type))
            return false;
    for (int i = 0; i < a->n_args; i++) {
        const struct mil_arg *x = &a->args[i], *y = mil_arg_find(b, x->name);
        if (!y || x->n != y->n)
            return false;
        for (int k = 0; k < x->n; k++)
            if (!same_binding(&x->bindings[k], &y->bindings[k]))
                return false;
    }
    const struct mil_value *v = mil_attribute(a, "val"), *w = mil_attribute(b, "val");
    return !v == !w && (!v || (v->kind == MIL_VALUE_BLOB && w->kind == MIL_VALUE_BLOB) || same_bytes(v, w));
}

/* ---- operations ---- */

enum change { ONLY_A, ONLY_B, CHANGED, N_CHANGES };
static const char *const change_names[N_CHANGES] = {"only_a", "only_b", "changed"};

static void add_place(struct diff *d, const char *function, const char *type, enum change change,
                      const char *name)
{
    cJSON *entry = NULL, *places, *one;
    cJSON_ArrayForEach(one, d->operations)
    {
        const cJSON *f = cJSON_GetObjectItemCaseSensitive(one, "function"),
                    *t = cJSON_GetObjectItemCaseSensitive(one, "type");
        if (strcmp(f->valuestring, function) == 0 && strcmp(t->valuestring, type) == 0)
            entry = one;
    }
    if (!entry) {
        entry = add_entry(d->operations, "function", function);
        cJSON_AddStringToObject(entry, "type", type);
        for (int i = 0; i < N_CHANGES; i++)
            cJSON_AddNumberToObject(entry, change_names[i], 0);
        cJSON_AddArrayToObject(entry, "places");
    }
    cJSON *count = cJSON_GetObjectItemCaseSensitive(entry, change_names[change]);
    cJSON_SetNumberValue(count, count->valuedouble + 1);
    places = cJSON_GetObjectItemCaseSensitive(entry, "places");
    if (cJSON_GetArraySize(places) < PLACES_MAX)
        cJSON_AddItemToArray(places, cJSON_CreateString(name));
}

/* ---- weights ---- */

static bool is_weight(const struct mil_value *v)
{
    return v && v->kind == MIL_VALUE_BLOB;
}

static void add_weight(struct diff *d, const char *function, const char *name, const struct mil_value *a,
                       const struct mil_value *b)
{
    const struct mil_value *v[2] = {a, b};
    cJSON *one = add_entry(d->weights, "function", function);
    cJSON_AddStringToObject(one, "name", name);
    for (int i = 0; i < 2; i++) {
        char text[300];
        if (!is_weight(v[i]))
            continue;
        mil_type_text(text, sizeof text, v[i]->type);
        cJSON_AddStringToObject(one, i ? "b" : "a", text);
        cJSON_AddNumberToObject(one, i ? "b_bytes" : "a_bytes", (double)v[i]->bytes);
    }
    if (!is_weight(a) || !is_weight(b) || a->n_elems != b->n_elems)
        return;
    double most = 0;
    int64_t n = 0;
    for (int64_t i = 0; i < a->n_elems; i++) {
        double x = mil_value_element(a, i), y = mil_value_element(b, i), apart = fabs(x - y);
        n += !(x == y || (x != x && y != y));
        most = apart > most ? apart : most;
    }
    cJSON_AddNumberToObject(one, "elements", (double)a->n_elems);
    cJSON_AddNumberToObject(one, "differ", (double)n);
    cJSON_AddNumberToObject(one, "largest_difference", most);
}

static void compare_weights(struct diff *d, const char *function, const struct mil_op *a,
                            const struct mil_op *b)
{
    const struct mil_op *of = a ? a : b;
    for (int i = 0; i < of->n_attributes; i++) {
        const char *key = of->attributes[i].name;
        const struct mil_value *v = a ? mil_attribute(a, key) : NULL, *w = b ? mil_attribute(b, key) : NULL;
        if ((is_weight(v) || is_weight(w)) && !(v && w && same_type(v->type, w->type) && same_bytes(v, w)))
            add_weight(d, function, of->outputs[0]->name, v, w);
    }
    for (int i = 0; i < of->n_args; i++) { /* immediate operands of constexpr ops */
        const struct mil_arg *x = a ? mil_arg_find(a, of->args[i].name) : NULL,
                             *y = b ? mil_arg_find(b, of->args[i].name) : NULL;
        const struct mil_value *v = x && x->n == 1 ? x->bindings[0].value : NULL,
                               *w = y && y->n == 1 ? y->bindings[0].value : NULL;
        if ((is_weight(v) || is_weight(w)) && !(v && w && same_type(v->type, w->type) && same_bytes(v, w)))
            add_weight(d, function, of->outputs[0]->name, v, w);
    }
}

/* ---- functions ---- */

static void compare_ports(struct diff *d, const char *function, const char *what, struct mil_var *const *a,
                          int n_a, struct mil_var *const *b, int n_b)
{
    for (int side = 0; side < 2; side++) {
        struct mil_var *const *of = side ? b : a, *const *with = side ? a : b;
        for (int i = 0; i < (side ? n_b : n_a); i++) {
            const struct mil_var *found = NULL;
            for (int k = 0; k < (side ? n_a : n_b); k++)
                if (strcmp(of[i]->name, with[k]->name) == 0)
                    found = with[k];
            if (found && (side || same_type(of[i]->type, found->type)))
                continue;
            char texts[2][300];
            mil_type_text(texts[0], sizeof texts[0], of[i]->type);
            if (found)
                mil_type_text(texts[1], sizeof texts[1], found->type);
            cJSON *one = add_entry(d->functions, "function", function);
            cJSON_AddStringToObject(one, "what", what);
            cJSON_AddStringToObject(one, "name", of[i]->name);
            add_sides(one, side ? NULL : texts[0], side ? texts[0] : found ? texts[1] : NULL);
        }
    }
}

static void compare_functions(struct diff *d, const struct mil_function *a, const struct mil_function *b)
{
    int n[2], i = 0, k = 0;
    struct named *ops[2];
    ops[0] = ops_of(a, &n[0]);
    ops[1] = ops_of(b, &n[1]);
    if (strcmp(a->opset, b->opset) != 0) {
        cJSON *one = add_entry(d->functions, "function", a->name);
        cJSON_AddStringToObject(one, "what", "opset");
        add_sides(one, a->opset, b->opset);
    }
    compare_ports(d, a->name, "input", a->inputs, a->n_inputs, b->inputs, b->n_inputs);
    compare_ports(d, a->name, "output", a->block->outputs, a->block->n_outputs, b->block->outputs,
                  b->block->n_outputs);
    while (i < n[0] || k < n[1]) {
        int order = i == n[0] ? 1 : k == n[1] ? -1 : by_name(&ops[0][i], &ops[1][k]);
        const struct mil_op *x = order <= 0 ? ops[0][i].op : NULL, *y = order >= 0 ? ops[1][k].op : NULL;
        const struct mil_op *of = x ? x : y;
        if (order != 0 || !same_op(x, y))
            add_place(d, a->name, of->type,
                      order < 0   ? ONLY_A
                      : order > 0 ? ONLY_B
                                  : CHANGED,
                      of->outputs[0]->name);
        compare_weights(d, a->name, x, y);
        i += order <= 0;
        k += order >= 0;
    }
    free(ops[0]);
    free(ops[1]);
}

static void compare_programs(struct diff *d)
{
    for (int side = 0; side < 2; side++) {
        const struct mil_program *p = d->m[side]->program;
        for (int i = 0; i < p->n_functions; i++) {
            const struct mil_function *other = mil_function_find(d->m[1 - side], p->functions[i]->name);
            if (other && side == 0) {
                compare_functions(d, p->functions[i], other);
            } else if (!other) {
                cJSON *one = add_entry(d->functions, "function", p->functions[i]->name);
                cJSON_AddStringToObject(one, "what", "function");
                add_sides(one, side ? NULL : "there", side ? "there" : NULL);
            }
        }
    }
}

bool inspect_diff(cJSON *o, const char *a, const char *b, struct err *e)
{
    struct mil_model *m[2] = {NULL, NULL};
    bool ok = mil_model_open(&m[0], a, 0, e) && mil_model_open(&m[1], b, 0, e);
    if (ok) {
        cJSON_AddNumberToObject(o, "schema", 1);
        cJSON_AddStringToObject(o, "a", a);
        cJSON_AddStringToObject(o, "b", b);
        cJSON *same = cJSON_AddBoolToObject(o, "same", true);
        struct diff d = {.m = {m[0], m[1]}};
        d.metadata = cJSON_AddArrayToObject(o, "metadata");
        d.functions = cJSON_AddArrayToObject(o, "functions");
        d.operations = cJSON_AddArrayToObject(o, "operations");
        d.weights = cJSON_AddArrayToObject(o, "weights");
        compare_metadata(&d);
        compare_programs(&d);
        if (cJSON_GetArraySize(d.metadata) + cJSON_GetArraySize(d.functions) +
                cJSON_GetArraySize(d.operations) + cJSON_GetArraySize(d.weights) >
            0)
            same->type = cJSON_False;
    }
    mil_model_close(m[0]);
    mil_model_close(m[1]);
    return ok;
}
