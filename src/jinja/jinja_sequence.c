/* Filters on sequences and mappings. What is a generator in Python is made at once here, but is used up by one walk all
 * the same. */
#include <stdlib.h>

#include "jinja/jinja_internal.h"

#define FILTER(name)                                                                                         \
    static struct value filter_##name(struct jinja *j, struct value v, const struct call_args *a)

static bool is_given(struct value v)
{
    return v.type != VALUE_MISSING && v.type != VALUE_NONE;
}

/* --- attributes by name: "a.b.0" --- */

/* otherwise: in the place of each undefined part, unless none. */
static struct value get_path(struct jinja *j, struct value v, struct value path, struct value otherwise)
{
    if (!is_given(path))
        return v;
    if (path.type != VALUE_STRING) {
        v = value_item(j, v, path);
        return v.type == VALUE_UNDEFINED && is_given(otherwise) ? otherwise : v;
    }
    const struct text *t = path.text;
    for (size_t at = 0; at <= t->n;) {
        size_t end = at;
        bool is_number = true;
        while (end < t->n && t->p[end] != '.') {
            is_number &= t->p[end] >= '0' && t->p[end] <= '9';
            end++;
        }
        const struct text *part = text_slice(j, t, at, end);
        int64_t number;
        bool is_index = is_number && part->n > 0 && text_to_int(j, part, 10, &number);
        v = value_item(j, v, is_index ? value_int(number) : text_value(part));
        if (v.type == VALUE_UNDEFINED && is_given(otherwise))
            v = otherwise;
        at = end + 1;
    }
    return v;
}

static struct value fold_case(struct jinja *j, struct value v, bool case_sensitive)
{
    return v.type == VALUE_STRING && !case_sensitive ? text_map(j, v.text, CASE_LOWER) : v;
}

/* The values to sort or compare by. */
static struct list *keys_of(struct jinja *j, const struct list *items, struct value path,
                            struct value otherwise, bool case_sensitive)
{
    struct list *keys = list_new(j, items->n);
    for (size_t i = 0; i < items->n; i++)
        list_push(j, keys, fold_case(j, get_path(j, items->items[i], path, otherwise), case_sensitive));
    return keys;
}

/* --- size and ends --- */

FILTER(length)
{
    parameters_bind(j, "length", "", a, NULL);
    if (v.type == VALUE_LOOP)
        return value_int((int64_t)loop_length(j, v.loop));
    int64_t n = value_length(v);
    if (n < 0)
        jinja_type_error(j, "object of type '%s' has no len()", value_type_name(v));
    return value_int(n);
}

FILTER(first)
{
    struct iteration it;
    struct value item;
    parameters_bind(j, "first", "", a, NULL);
    iterate_begin(j, &it, v);
    return iterate_next(j, &it, &item) ? item : value_undefined_hint(j, "No first item, sequence was empty.");
}

FILTER(last)
{
    parameters_bind(j, "last", "", a, NULL);
    int64_t n = value_length(v);
    if (n < 0)
        jinja_type_error(j, "'%s' object is not reversible", value_type_name(v));
    if (n == 0)
        return value_undefined_hint(j, "No last item, sequence was empty.");
    if (v.type == VALUE_STRING)
        return text_value(text_slice(j, v.text, utf8_back(v.text->p, v.text->n), v.text->n));
    struct list *l = v.type == VALUE_DICT || v.type == VALUE_RANGE ? value_to_list(j, v) : v.list;
    return l->items[n - 1];
}

FILTER(list)
{
    parameters_bind(j, "list", "", a, NULL);
    return value_list(value_to_list(j, v));
}

FILTER(reverse)
{
    parameters_bind(j, "reverse", "", a, NULL);
    if (v.type == VALUE_STRING) {
        struct builder *b = builder_begin(j);
        for (size_t at = v.text->n; at > 0;) {
            size_t back = utf8_back(v.text->p, at);
            builder_put_range(j, b, v.text, back, at);
            at = back;
        }
        return builder_finish(j, b);
    }
    if (!value_is_iterable(v))
        jinja_type_error(j, "argument must be iterable");
    struct list *l = value_to_list(j, v), *reversed = list_new(j, l->n);
    for (size_t i = l->n; i > 0; i--)
        list_push(j, reversed, l->items[i - 1]);
    return v.type == VALUE_ITERATOR ? value_list(reversed)
                                    : value_iterator(j, reversed, "list_reverseiterator");
}

FILTER(join)
{
    struct value args[2], item;
    struct iteration it;
    parameters_bind(j, "join", "d attribute", a, args);
    const struct text *by = args[0].type == VALUE_MISSING ? NULL : value_to_text(j, args[0]);
    struct builder *b = builder_begin(j);
    iterate_begin(j, &it, v);
    for (size_t i = 0; iterate_next(j, &it, &item); i++) {
        if (i && by)
            builder_put_text(j, b, by);
        builder_put_value(j, b, get_path(j, item, args[1], (struct value){0}));
    }
    return builder_finish(j, b);
}

/* --- mappings --- */

static struct value pair_of(struct jinja *j, struct value a, struct value b)
{
    struct list *pair = list_new(j, 2);
    list_push(j, pair, a);
    list_push(j, pair, b);
    return value_tuple(pair);
}

static struct list *dict_pairs(struct jinja *j, const struct dict *d)
{
    struct list *l = list_new(j, d->n);
    for (size_t i = 0; i < d->n; i++)
        list_push(j, l, pair_of(j, d->entries[i].key, d->entries[i].value));
    return l;
}

FILTER(items)
{
    parameters_bind(j, "items", "", a, NULL);
    if (v.type == VALUE_UNDEFINED)
        return value_iterator(j, list_new(j, 0), "generator");
    if (v.type != VALUE_DICT)
        jinja_type_error(j, "Can only get item pairs from a mapping.");
    return value_iterator(j, dict_pairs(j, v.dict), "generator");
}

FILTER(dictsort)
{
    struct value args[3];
    parameters_bind(j, "dictsort", "case_sensitive by reverse", a, args);
    bool case_sensitive = parameter_bool(j, args[0], false);
    size_t position = 0;
    if (args[1].type != VALUE_MISSING) {
        const struct text *by = parameter_text(j, args[1], "dictsort");
        if (!text_is(by, "key") && !text_is(by, "value"))
            jinja_type_error(j, "You can only sort by either \"key\" or \"value\"");
        position = text_is(by, "value");
    }
    if (v.type == VALUE_UNDEFINED)
        fail_undefined(j, v);
    if (v.type != VALUE_DICT)
        jinja_type_error(j, "dictsort: expected a mapping, found '%s'", value_type_name(v));
    struct list *pairs = dict_pairs(j, v.dict);
    struct list *keys = keys_of(j, pairs, value_int((int64_t)position), (struct value){0}, case_sensitive);
    list_sort(j, pairs, keys, parameter_bool(j, args[2], false));
    return value_list(pairs);
}

/* --- order --- */

FILTER(sort)
{
    struct value args[3];
    parameters_bind(j, "sort", "reverse case_sensitive attribute", a, args);
    struct list *l = value_to_list(j, v);
    bool case_sensitive = parameter_bool(j, args[1], false);
    struct value path = args[2];
    struct list *copy = list_new(j, l->n), *keys;
    for (size_t i = 0; i < l->n; i++)
        list_push(j, copy, l->items[i]);
    if (path.type == VALUE_STRING && memchr(path.text->p, ',', path.text->n)) {
        keys = list_new(j, l->n);
        for (size_t i = 0; i < l->n; i++) {
            struct list *key = list_new(j, 2);
            for (size_t at = 0; at <= path.text->n;) {
                const char *comma = memchr(path.text->p + at, ',', path.text->n - at);
                size_t end = comma ? (size_t)(comma - path.text->p) : path.text->n;
                struct value part = text_value(text_slice(j, path.text, at, end));
                list_push(j, key,
                          fold_case(j, get_path(j, l->items[i], part, (struct value){0}), case_sensitive));
                at = end + 1;
            }
            list_push(j, keys, value_list(key));
        }
    } else {
        /* in lists of one, as Jinja has them: what is equal is not compared further, so undefined ones do no harm */
        keys = keys_of(j, l, path, (struct value){0}, case_sensitive);
        for (size_t i = 0; i < keys->n; i++) {
            struct list *key = list_new(j, 1);
            list_push(j, key, keys->items[i]);
            keys->items[i] = value_list(key);
        }
    }
    list_sort(j, copy, keys, parameter_bool(j, args[0], false));
    return value_list(copy);
}

static struct value extreme(struct jinja *j, struct value v, const struct call_args *a, const char *name,
                            enum operator better)
{
    struct value args[2];
    parameters_bind(j, name, "case_sensitive attribute", a, args);
    struct list *l = value_to_list(j, v);
    if (l->n == 0)
        return value_undefined_hint(j, "No aggregated item, sequence was empty.");
    struct list *keys = keys_of(j, l, args[1], (struct value){0}, parameter_bool(j, args[0], false));
    size_t best = 0;
    for (size_t i = 1; i < l->n; i++)
        if (value_order(j, keys->items[i], better, keys->items[best]))
            best = i;
    return l->items[best];
}

FILTER(min)
{
    return extreme(j, v, a, "min", OPERATOR_LESS);
}

FILTER(max)
{
    return extreme(j, v, a, "max", OPERATOR_GREATER);
}

FILTER(unique)
{
    struct value args[2];
    parameters_bind(j, "unique", "case_sensitive attribute", a, args);
    struct list *l = value_to_list(j, v), *kept = list_new(j, 0);
    struct list *keys = keys_of(j, l, args[1], (struct value){0}, parameter_bool(j, args[0], false));
    struct dict *seen = dict_new(j);
    for (size_t i = 0; i < l->n; i++) {
        if (dict_find(j, seen, keys->items[i]))
            continue;
        dict_put(j, seen, keys->items[i], value_none());
        list_push(j, kept, l->items[i]);
    }
    return value_iterator(j, kept, "generator");
}

FILTER(groupby)
{
    struct value args[3];
    parameters_bind(j, "groupby", "attribute! default case_sensitive", a, args);
    struct list *l = value_to_list(j, v), *groups = list_new(j, 0);
    bool case_sensitive = parameter_bool(j, args[2], false);
    list_sort(j, l, keys_of(j, l, args[0], args[1], case_sensitive), false);
    struct list *keys = keys_of(j, l, args[0], args[1], case_sensitive);
    for (size_t i = 0; i < l->n;) {
        struct list *members = list_new(j, 0);
        size_t first = i;
        while (i < l->n && value_equal(j, keys->items[i], keys->items[first]))
            list_push(j, members, l->items[i++]);
        struct value key = get_path(j, l->items[first], args[0], args[1]);
        struct value group = pair_of(j, key, value_list(members));
        group.list->is_group = true;
        list_push(j, groups, group);
    }
    return value_list(groups);
}

FILTER(sum)
{
    struct value args[2], item;
    struct iteration it;
    parameters_bind(j, "sum", "attribute start", a, args);
    struct value total = args[1].type == VALUE_MISSING ? value_int(0) : args[1];
    if (total.type == VALUE_STRING)
        jinja_type_error(j, "sum() can't sum strings [use ''.join(seq) instead]");
    iterate_begin(j, &it, v);
    while (iterate_next(j, &it, &item))
        total = eval_binary(j, OPERATOR_ADD, total, get_path(j, item, args[0], (struct value){0}));
    return total;
}

/* --- parts --- */

FILTER(batch)
{
    struct value args[2], item;
    struct iteration it;
    parameters_bind(j, "batch", "linecount! fill_with", a, args);
    int64_t size = value_to_index(j, args[0], "batch");
    struct list *rows = list_new(j, 0), *row = list_new(j, 0);
    iterate_begin(j, &it, v);
    while (iterate_next(j, &it, &item)) {
        if ((int64_t)row->n == size) {
            list_push(j, rows, value_list(row));
            row = list_new(j, 0);
        }
        list_push(j, row, item);
    }
    while (is_given(args[1]) && row->n > 0 && (int64_t)row->n < size)
        list_push(j, row, args[1]);
    if (row->n > 0)
        list_push(j, rows, value_list(row));
    return value_iterator(j, rows, "generator");
}

FILTER(slice)
{
    struct value args[2];
    parameters_bind(j, "slice", "slices! fill_with", a, args);
    int64_t slices = value_to_index(j, args[0], "slice");
    struct list *l = value_to_list(j, v), *rows = list_new(j, 0);
    if (slices <= 0) {
        if (slices == 0)
            jinja_type_error(j, "slice: integer division or modulo by zero");
        return value_iterator(j, rows, "generator");
    }
    size_t per_slice = l->n / (size_t)slices, with_extra = l->n % (size_t)slices, at = 0;
    for (int64_t i = 0; i < slices; i++) {
        struct list *row = list_new(j, per_slice + 1);
        bool has_extra = (size_t)i < with_extra;
        for (size_t k = 0; k < per_slice + has_extra; k++)
            list_push(j, row, l->items[at++]);
        if (is_given(args[1]) && !has_extra)
            list_push(j, row, args[1]);
        list_push(j, rows, value_list(row));
    }
    return value_iterator(j, rows, "generator");
}

/* --- map and select --- */

FILTER(map)
{
    struct list *out = list_new(j, 0);
    struct iteration it;
    struct value item, args[2];
    if (!value_is_true(j, v)) /* also what can't be iterated; the arguments are not looked at then */
        return value_iterator(j, out, "generator");
    iterate_begin(j, &it, v);
    if (a->n == 0 && a->n_named > 0) {
        parameters_bind(j, "map", "attribute! default", a, args);
        while (iterate_next(j, &it, &item))
            list_push(j, out, get_path(j, item, args[0], args[1]));
        return value_iterator(j, out, "generator");
    }
    if (a->n == 0)
        jinja_type_error(j, "map requires a filter argument");
    const struct text *name = parameter_text(j, a->positional[0], "map");
    const struct builtin *filter = find_filter((struct str){name->p, name->n});
    if (!filter)
        jinja_type_error(j, "No filter named '%.*s'.", (int)(name->n < 100 ? name->n : 100), name->p);
    struct call_args rest = *a;
    rest.positional++;
    rest.n--;
    frame_enter(j);
    while (iterate_next(j, &it, &item))
        list_push(j, out, filter->fn(j, item, &rest));
    frame_leave(j);
    return value_iterator(j, out, "generator");
}

static struct value choose(struct jinja *j, struct value v, const struct call_args *a, bool wanted,
                           bool by_attribute)
{
    struct list *out = list_new(j, 0);
    struct iteration it;
    struct value item;
    struct call_args rest = *a;
    const struct builtin *test = NULL;
    if (!value_is_true(j, v))
        return value_iterator(j, out, "generator");
    iterate_begin(j, &it, v);
    if (by_attribute) {
        if (rest.n == 0)
            jinja_type_error(j, "Missing parameter for attribute name");
        rest.positional++;
        rest.n--;
    }
    if (rest.n > 0) {
        const struct text *name = parameter_text(j, rest.positional[0], "select");
        test = find_test((struct str){name->p, name->n});
        if (!test)
            jinja_type_error(j, "No test named '%.*s'.", (int)(name->n < 100 ? name->n : 100), name->p);
        rest.positional++;
        rest.n--;
    }
    while (iterate_next(j, &it, &item)) {
        struct value x = by_attribute ? get_path(j, item, a->positional[0], (struct value){0}) : item;
        if (value_is_true(j, test ? test->fn(j, x, &rest) : x) == wanted)
            list_push(j, out, item);
    }
    return value_iterator(j, out, "generator");
}

FILTER(select)
{
    return choose(j, v, a, true, false);
}

FILTER(reject)
{
    return choose(j, v, a, false, false);
}

FILTER(selectattr)
{
    return choose(j, v, a, true, true);
}

FILTER(rejectattr)
{
    return choose(j, v, a, false, true);
}

const struct builtin *find_sequence_filter(struct str name)
{
    static const struct builtin filters[] = {
        {"batch", filter_batch},     {"count", filter_length},    {"dictsort", filter_dictsort},
        {"first", filter_first},     {"groupby", filter_groupby}, {"items", filter_items},
        {"join", filter_join},       {"last", filter_last},       {"length", filter_length},
        {"list", filter_list},       {"map", filter_map},         {"max", filter_max},
        {"min", filter_min},         {"reject", filter_reject},   {"rejectattr", filter_rejectattr},
        {"reverse", filter_reverse}, {"select", filter_select},   {"selectattr", filter_selectattr},
        {"slice", filter_slice},     {"sort", filter_sort},       {"sum", filter_sum},
        {"unique", filter_unique},
    };
    return find_builtin(filters, sizeof filters / sizeof *filters, name);
}
