/* Values as Python has them: truth, equality, order, hashes, and walking over what can be walked over. */
#include <math.h>
#include <stdlib.h>

#include "jinja/jinja_internal.h"

struct value value_none(void)
{
    return (struct value){.type = VALUE_NONE};
}

struct value value_bool(bool b)
{
    return (struct value){.type = VALUE_BOOL, .boolean = b};
}

struct value value_int(int64_t i)
{
    return (struct value){.type = VALUE_INT, .integer = i};
}

struct value value_double(double d)
{
    return (struct value){.type = VALUE_DOUBLE, .number = d};
}

struct value value_list(struct list *l)
{
    return (struct value){.type = VALUE_LIST, .list = l};
}

struct value value_tuple(struct list *l)
{
    return (struct value){.type = VALUE_TUPLE, .list = l};
}

struct value value_iterator(struct jinja *j, struct list *l, const char *name)
{
    struct iterator *it = JINJA_NEW(j, struct iterator);
    it->list = l;
    it->name = name;
    return (struct value){.type = VALUE_ITERATOR, .iterator = it};
}

struct value value_undefined(struct jinja *j, struct value object, struct value name)
{
    struct undefined *u = JINJA_NEW(j, struct undefined);
    u->object = object;
    u->name = name;
    return (struct value){.type = VALUE_UNDEFINED, .undefined = u};
}

struct value value_undefined_hint(struct jinja *j, const char *hint)
{
    struct undefined *u = JINJA_NEW(j, struct undefined);
    u->hint = hint;
    return (struct value){.type = VALUE_UNDEFINED, .undefined = u};
}

const char *value_type_name(struct value v)
{
    switch (v.type) {
    case VALUE_MISSING:
    case VALUE_UNDEFINED:
        return "Undefined";
    case VALUE_NONE:
        return "NoneType";
    case VALUE_BOOL:
        return "bool";
    case VALUE_INT:
    case VALUE_BIG:
        return "int";
    case VALUE_DOUBLE:
        return "float";
    case VALUE_STRING:
        return "str";
    case VALUE_LIST:
        return "list";
    case VALUE_TUPLE:
        return "tuple";
    case VALUE_VIEW:
        return v.list->view_name;
    case VALUE_RANGE:
        return "range";
    case VALUE_SLICE:
        return "slice";
    case VALUE_DICT:
        return "dict";
    case VALUE_ITERATOR:
        return v.iterator->name;
    case VALUE_NAMESPACE:
        return "Namespace";
    case VALUE_CYCLER:
        return "Cycler";
    case VALUE_JOINER:
        return "Joiner";
    case VALUE_MACRO:
        return "Macro";
    case VALUE_LOOP:
        return "LoopContext";
    case VALUE_FUNCTION:
        return v.function->self.type == VALUE_MISSING ? "function" : "builtin_function_or_method";
    }
    return "?";
}

void fail_undefined(struct jinja *j, struct value v)
{
    const struct undefined *u = v.undefined;
    if (u->hint)
        jinja_fail(j, ERR_FORMAT, "%s", u->hint);
    const struct text *name = value_to_text(j, u->name);
    int n = (int)(name->n < 200 ? name->n : 200);
    if (u->object.type == VALUE_MISSING)
        jinja_fail(j, ERR_FORMAT, "'%.*s' is undefined", n, name->p);
    const char *type = value_type_name(u->object);
    const char *what = u->object.type == VALUE_NONE ? "None" : type;
    const char *suffix = u->object.type == VALUE_NONE ? "" : " object";
    if (u->name.type == VALUE_STRING)
        jinja_fail(j, ERR_FORMAT, "'%s%s' has no attribute '%.*s'", what, suffix, n, name->p);
    jinja_fail(j, ERR_FORMAT, "%s%s has no element %.*s", what, suffix, n, name->p);
}

bool value_is_number(struct value v)
{
    return v.type == VALUE_BOOL || v.type == VALUE_INT || v.type == VALUE_BIG || v.type == VALUE_DOUBLE;
}

bool value_is_callable(struct value v)
{
    return v.type == VALUE_FUNCTION || v.type == VALUE_MACRO || v.type == VALUE_LOOP ||
           v.type == VALUE_JOINER || v.type == VALUE_UNDEFINED;
}

double value_to_double(struct value v)
{
    return v.type == VALUE_DOUBLE ? v.number
           : v.type == VALUE_BIG  ? big_to_double(v.big)
           : v.type == VALUE_BOOL ? (double)v.boolean
                                  : (double)v.integer;
}

int64_t value_to_index(struct jinja *j, struct value v, const char *what)
{
    if (v.type == VALUE_BOOL)
        return v.boolean;
    if (v.type == VALUE_UNDEFINED)
        fail_undefined(j, v);
    if (v.type == VALUE_BIG)
        jinja_fail(j, ERR_LIMIT, "%s: an integer of more than 64 bits", what);
    if (v.type != VALUE_INT)
        jinja_type_error(j, "%s: expected an integer, found '%s'", what, value_type_name(v));
    return v.integer;
}

int64_t value_length(struct value v)
{
    switch (v.type) {
    case VALUE_UNDEFINED:
        return 0;
    case VALUE_STRING:
        return v.text->n_chars;
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_VIEW:
        return (int64_t)v.list->n;
    case VALUE_RANGE:
        return (int64_t)v.range->n;
    case VALUE_DICT:
        return (int64_t)v.dict->n;
    default:
        return -1;
    }
}

bool value_is_true(struct jinja *j, struct value v)
{
    switch (v.type) {
    case VALUE_MISSING:
    case VALUE_UNDEFINED:
    case VALUE_NONE:
        return false;
    case VALUE_BOOL:
        return v.boolean;
    case VALUE_INT:
        return v.integer != 0;
    case VALUE_BIG:
        return true;
    case VALUE_DOUBLE:
        return v.number != 0;
    case VALUE_LOOP:
        return loop_length(j, v.loop) > 0;
    default:
        return value_length(v) != 0;
    }
}

/* --- equality and order --- */

static int64_t as_int(struct value v)
{
    return v.type == VALUE_BOOL ? v.boolean : v.integer;
}

/* Exactly, though not every integer is a double. -1, 0, 1; 2: not comparable (NaN). */
static int compare_numbers(struct value a, struct value b)
{
    bool a_double = a.type == VALUE_DOUBLE, b_double = b.type == VALUE_DOUBLE;
    if (a.type == VALUE_BIG)
        return b.type == VALUE_BIG  ? big_compare(a.big, b.big)
               : b_double           ? big_compare_double(a.big, b.number)
               : a.big->is_negative ? -1
                                    : 1;
    if (b.type == VALUE_BIG) {
        int order = compare_numbers(b, a);
        return order == 2 ? 2 : -order;
    }
    if (!a_double && !b_double)
        return (as_int(a) > as_int(b)) - (as_int(a) < as_int(b));
    if (a_double && b_double) {
        if (isnan(a.number) || isnan(b.number))
            return 2;
        return (a.number > b.number) - (a.number < b.number);
    }
    if (a_double) {
        int order = compare_numbers(b, a);
        return order == 2 ? 2 : -order;
    }
    double d = b.number;
    if (isnan(d))
        return 2;
    if (d >= 0x1p63)
        return -1;
    if (d < -0x1p63)
        return 1;
    int64_t whole = (int64_t)d, i = as_int(a);
    if (i != whole)
        return i < whole ? -1 : 1;
    double rest = d - (double)whole;
    return rest > 0 ? -1 : rest < 0 ? 1 : 0;
}

static void check_depth(struct jinja *j, int depth)
{
    if (depth > JINJA_MAX_DATA_DEPTH)
        jinja_fail(j, ERR_LIMIT, "data nested more than %d deep", JINJA_MAX_DATA_DEPTH);
}

static bool equal_at(struct jinja *j, struct value a, struct value b, int depth);

static bool lists_equal(struct jinja *j, const struct list *a, const struct list *b, int depth)
{
    if (a == b)
        return true;
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (!equal_at(j, a->items[i], b->items[i], depth + 1))
            return false;
    return true;
}

static bool dicts_equal(struct jinja *j, const struct dict *a, const struct dict *b, int depth)
{
    if (a == b)
        return true;
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++) {
        const struct value *other = dict_find(j, b, a->entries[i].key);
        if (!other || !equal_at(j, a->entries[i].value, *other, depth + 1))
            return false;
    }
    return true;
}

static bool equal_at(struct jinja *j, struct value a, struct value b, int depth)
{
    check_depth(j, depth);
    jinja_charge(j, 1);
    if (value_is_number(a) && value_is_number(b))
        return compare_numbers(a, b) == 0;
    if (a.type != b.type)
        return false;
    switch (a.type) {
    case VALUE_MISSING:
    case VALUE_UNDEFINED:
    case VALUE_NONE:
        return true;
    case VALUE_STRING:
        jinja_charge(j, a.text->n == b.text->n ? a.text->n : 0);
        return text_equal(a.text, b.text);
    case VALUE_LIST:
    case VALUE_TUPLE:
        return lists_equal(j, a.list, b.list, depth);
    case VALUE_DICT:
        return dicts_equal(j, a.dict, b.dict, depth);
    case VALUE_RANGE:
        return a.range->n == b.range->n &&
               (a.range->n == 0 ||
                (a.range->start == b.range->start && (a.range->n == 1 || a.range->step == b.range->step)));
    case VALUE_FUNCTION:
        return a.function->builtin == b.function->builtin &&
               (a.function->self.type == VALUE_MISSING ||
                a.function->self.address == b.function->self.address);
    default:
        return a.address == b.address;
    }
}

bool value_equal(struct jinja *j, struct value a, struct value b)
{
    return equal_at(j, a, b, 0);
}

static const char *operator_name(enum operator op)
{
    return op == OPERATOR_LESS ? "<" : op == OPERATOR_LESS_EQUAL ? "<=" : op == OPERATOR_GREATER ? ">" : ">=";
}

static bool order_holds(int order, enum operator op)
{
    switch (op) {
    case OPERATOR_LESS:
        return order < 0;
    case OPERATOR_LESS_EQUAL:
        return order <= 0;
    case OPERATOR_GREATER:
        return order == 1;
    default:
        return order == 0 || order == 1;
    }
}

static bool order_at(struct jinja *j, struct value a, enum operator op, struct value b, int depth)
{
    check_depth(j, depth);
    if (value_is_number(a) && value_is_number(b)) {
        int order = compare_numbers(a, b);
        return order != 2 && order_holds(order, op);
    }
    if (a.type == VALUE_STRING && b.type == VALUE_STRING) {
        jinja_charge(j, a.text->n < b.text->n ? a.text->n : b.text->n);
        int order = text_compare(a.text, b.text);
        return order_holds((order > 0) - (order < 0), op);
    }
    if (a.type == b.type && (a.type == VALUE_LIST || a.type == VALUE_TUPLE)) {
        size_t n = a.list->n < b.list->n ? a.list->n : b.list->n;
        for (size_t i = 0; i < n; i++)
            if (!equal_at(j, a.list->items[i], b.list->items[i], depth + 1))
                return order_at(j, a.list->items[i], op, b.list->items[i], depth + 1);
        return order_holds((a.list->n > b.list->n) - (a.list->n < b.list->n), op);
    }
    if (a.type == VALUE_UNDEFINED)
        fail_undefined(j, a);
    if (b.type == VALUE_UNDEFINED)
        fail_undefined(j, b);
    jinja_type_error(j, "'%s' not supported between instances of '%s' and '%s'", operator_name(op),
                     value_type_name(a), value_type_name(b));
}

bool value_order(struct jinja *j, struct value a, enum operator op, struct value b)
{
    return order_at(j, a, op, b, 0);
}

static bool contains(struct jinja *j, struct value where, struct value what)
{
    if (where.type == VALUE_STRING) {
        if (what.type != VALUE_STRING)
            jinja_type_error(j, "'in <string>' requires string as left operand, not %s",
                             value_type_name(what));
        return text_find(j, where.text, 0, where.text->n, what.text) != SIZE_MAX;
    }
    if (where.type == VALUE_DICT) {
        if (!value_is_hashable(what))
            jinja_type_error(j, "unhashable type: '%s'", value_type_name(what));
        return dict_find(j, where.dict, what) != NULL;
    }
    struct iteration it;
    struct value item;
    if (!value_is_iterable(where))
        jinja_type_error(j, "argument of type '%s' is not iterable", value_type_name(where));
    iterate_begin(j, &it, where);
    while (iterate_next(j, &it, &item))
        if (value_equal(j, item, what))
            return true;
    return false;
}

bool value_compare(struct jinja *j, struct value a, enum operator op, struct value b)
{
    switch (op) {
    case OPERATOR_EQUAL:
        return value_equal(j, a, b);
    case OPERATOR_NOT_EQUAL:
        return !value_equal(j, a, b);
    case OPERATOR_IN:
        return contains(j, b, a);
    case OPERATOR_NOT_IN:
        return !contains(j, b, a);
    default:
        return value_order(j, a, op, b);
    }
}

/* --- lists and dicts --- */

struct list *list_new(struct jinja *j, size_t capacity)
{
    struct list *l = JINJA_NEW(j, struct list);
    if (capacity > 0)
        l->items = jinja_alloc(j, capacity, sizeof *l->items);
    l->capacity = capacity;
    return l;
}

void list_push(struct jinja *j, struct list *l, struct value v)
{
    l->items = jinja_grow(j, l->items, l->n, &l->capacity, sizeof *l->items);
    jinja_charge(j, 1);
    l->items[l->n++] = v;
}

bool value_is_hashable(struct value v)
{
    if (v.type == VALUE_LIST || v.type == VALUE_DICT || v.type == VALUE_VIEW || v.type == VALUE_SLICE)
        return false;
    for (size_t i = 0; v.type == VALUE_TUPLE && i < v.list->n; i++)
        if (v.list->items[i].type == VALUE_TUPLE || !value_is_hashable(v.list->items[i]))
            return false; /* tuples in tuples are not keys here: nothing recurses */
    return true;
}

static uint64_t mix(uint64_t h)
{
    h ^= h >> 33;
    h *= 0xff51afd7ed558ccdu;
    h ^= h >> 33;
    return h;
}

static uint64_t hash_value(struct jinja *j, struct value v)
{
    uint64_t h = j->seed;
    switch (v.type) {
    case VALUE_STRING:
        jinja_charge(j, v.text->n);
        for (uint32_t i = 0; i < v.text->n; i++)
            h = (h ^ (unsigned char)v.text->p[i]) * 0x100000001b3u;
        return mix(h);
    case VALUE_BOOL:
    case VALUE_INT:
        return mix(h ^ (uint64_t)as_int(v));
    case VALUE_DOUBLE: /* equal numbers have equal hashes */
        if (v.number >= -0x1p63 && v.number < 0x1p63 && v.number == (double)(int64_t)v.number)
            return mix(h ^ (uint64_t)(int64_t)v.number);
        memcpy(&h, &v.number, sizeof h);
        return mix(h);
    case VALUE_BIG:
        return hash_value(j, value_double(big_to_double(v.big)));
    case VALUE_TUPLE:
        for (size_t i = 0; i < v.list->n; i++)
            h = mix(h ^ hash_value(j, v.list->items[i])) + i;
        return h;
    case VALUE_NONE:
    case VALUE_UNDEFINED:
    case VALUE_MISSING:
        return mix(h ^ (uint64_t)v.type);
    default:
        return mix(h ^ (uint64_t)(uintptr_t)v.address);
    }
}

struct dict *dict_new(struct jinja *j)
{
    return JINJA_NEW(j, struct dict);
}

static size_t find_entry(struct jinja *j, const struct dict *d, struct value key, uint64_t hash)
{
    if (d->index) {
        size_t mask = d->n_index - 1;
        for (size_t at = hash & mask; d->index[at]; at = (at + 1) & mask) {
            size_t i = d->index[at] - 1;
            if (d->entries[i].hash == hash && value_equal(j, d->entries[i].key, key))
                return i;
        }
        return SIZE_MAX;
    }
    for (size_t i = 0; i < d->n; i++)
        if (d->entries[i].hash == hash && value_equal(j, d->entries[i].key, key))
            return i;
    return SIZE_MAX;
}

static void index_dict(struct jinja *j, struct dict *d)
{
    size_t n_index = 32;
    while (n_index < d->capacity * 2)
        n_index *= 2;
    d->index = jinja_alloc(j, n_index, sizeof *d->index);
    d->n_index = n_index;
    for (size_t i = 0; i < d->n; i++) {
        size_t at = d->entries[i].hash & (n_index - 1);
        while (d->index[at])
            at = (at + 1) & (n_index - 1);
        d->index[at] = (uint32_t)i + 1;
    }
}

void dict_put(struct jinja *j, struct dict *d, struct value key, struct value value)
{
    if (!value_is_hashable(key))
        jinja_type_error(j, "unhashable type: '%s'", value_type_name(key));
    uint64_t hash = hash_value(j, key);
    size_t i = find_entry(j, d, key, hash);
    if (i != SIZE_MAX) {
        d->entries[i].value = value;
        return;
    }
    size_t before = d->capacity;
    d->entries = jinja_grow(j, d->entries, d->n, &d->capacity, sizeof *d->entries);
    if (d->capacity > before && d->capacity > 8)
        index_dict(j, d);
    d->entries[d->n++] = (struct dict_entry){key, value, hash};
    if (d->index) {
        size_t at = hash & (d->n_index - 1);
        while (d->index[at])
            at = (at + 1) & (d->n_index - 1);
        d->index[at] = (uint32_t)d->n;
    }
}

struct value *dict_find(struct jinja *j, const struct dict *d, struct value key)
{
    if (d->n == 0 || !value_is_hashable(key))
        return NULL;
    size_t i = find_entry(j, d, key, hash_value(j, key));
    return i == SIZE_MAX ? NULL : &d->entries[i].value;
}

struct value *dict_find_text(struct jinja *j, const struct dict *d, const struct text *key)
{
    return dict_find(j, d, text_value(key));
}

/* --- walking --- */

bool value_is_iterable(struct value v)
{
    return v.type == VALUE_ITERATOR || v.type == VALUE_LOOP || value_length(v) >= 0;
}

void iterate_begin(struct jinja *j, struct iteration *it, struct value v)
{
    if (!value_is_iterable(v) || v.type == VALUE_LOOP)
        jinja_type_error(j, "'%s' object is not iterable", value_type_name(v));
    *it = (struct iteration){.source = v};
}

bool iterate_next(struct jinja *j, struct iteration *it, struct value *out)
{
    struct value v = it->source;
    jinja_charge(j, 1);
    switch (v.type) {
    case VALUE_STRING: {
        if (it->at >= v.text->n)
            return false;
        uint32_t cp;
        size_t n = utf8_next(v.text->p + it->at, &cp);
        *out = text_value(text_slice(j, v.text, it->at, it->at + n));
        it->at += n;
        return true;
    }
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_VIEW:
        if (it->at >= v.list->n)
            return false;
        *out = v.list->items[it->at++];
        return true;
    case VALUE_RANGE:
        if (it->at >= v.range->n)
            return false;
        *out = value_int(v.range->start + (int64_t)it->at++ * v.range->step);
        return true;
    case VALUE_DICT:
        if (it->at >= v.dict->n)
            return false;
        *out = v.dict->entries[it->at++].key;
        return true;
    case VALUE_ITERATOR:
        if (v.iterator->at >= v.iterator->list->n)
            return false;
        *out = v.iterator->list->items[v.iterator->at++];
        return true;
    default:
        return false;
    }
}

struct list *value_to_list(struct jinja *j, struct value v)
{
    struct iteration it;
    struct value item;
    iterate_begin(j, &it, v);
    int64_t length = value_length(v);
    struct list *l = list_new(j, length > 0 ? (size_t)length : 0);
    while (iterate_next(j, &it, &item))
        list_push(j, l, item);
    return l;
}

/* Merge sort: stable, and the worst case is n log n comparisons. */
static void sort_range(struct jinja *j, const struct value *keys, uint32_t *order, uint32_t *scratch,
                       size_t n, bool reverse)
{
    if (n < 2)
        return;
    size_t half = n / 2;
    sort_range(j, keys, order, scratch, half, reverse);
    sort_range(j, keys, order + half, scratch, n - half, reverse);
    memcpy(scratch, order, half * sizeof *order);
    for (size_t i = 0, right = half, to = 0; i < half; to++) {
        bool take_right = false;
        if (right < n) {
            struct value a = keys[scratch[i]], b = keys[order[right]];
            jinja_charge(j, 1);
            take_right = reverse ? value_order(j, a, OPERATOR_LESS, b) : value_order(j, b, OPERATOR_LESS, a);
        }
        order[to] = take_right ? order[right++] : scratch[i++];
    }
}

void list_sort(struct jinja *j, struct list *l, struct list *keys, bool reverse)
{
    uint32_t *order = jinja_alloc(j, l->n + 1, sizeof *order);
    uint32_t *scratch = jinja_alloc(j, l->n + 1, sizeof *scratch);
    struct value *sorted = jinja_alloc(j, l->n + 1, sizeof *sorted);
    for (size_t i = 0; i < l->n; i++)
        order[i] = (uint32_t)i;
    sort_range(j, keys->items, order, scratch, l->n, reverse);
    for (size_t i = 0; i < l->n; i++)
        sorted[i] = l->items[order[i]];
    l->items = sorted;
    l->capacity = l->n + 1;
}
