/* Methods of everything but strings, and the functions that every template can call. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "jinja/jinja_internal.h"

#define METHOD(name) static struct value name(struct jinja *j, struct value self, const struct call_args *a)

const struct builtin *find_builtin(const struct builtin *table, size_t n, struct str name)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(table[i].name) == name.n && memcmp(table[i].name, name.p, name.n) == 0)
            return &table[i];
    return NULL;
}

/* --- dict --- */

METHOD(dict_get)
{
    struct value args[2];
    parameters_bind(j, "get", "key! default", a, args);
    if (!value_is_hashable(args[0]))
        jinja_type_error(j, "unhashable type: '%s'", value_type_name(args[0]));
    const struct value *found = dict_find(j, self.dict, args[0]);
    return found ? *found : args[1].type == VALUE_MISSING ? value_none() : args[1];
}

static struct value dict_view(struct jinja *j, const struct dict *d, const char *name, bool keys, bool values)
{
    struct list *l = list_new(j, d->n);
    l->view_name = name;
    for (size_t i = 0; i < d->n; i++) {
        struct value item = keys ? d->entries[i].key : d->entries[i].value;
        if (keys && values) {
            struct list *pair = list_new(j, 2);
            list_push(j, pair, d->entries[i].key);
            list_push(j, pair, d->entries[i].value);
            item = value_tuple(pair);
        }
        list_push(j, l, item);
    }
    return (struct value){.type = VALUE_VIEW, .list = l};
}

METHOD(dict_items)
{
    parameters_bind(j, "items", "", a, NULL);
    return dict_view(j, self.dict, "dict_items", true, true);
}

METHOD(dict_keys)
{
    parameters_bind(j, "keys", "", a, NULL);
    return dict_view(j, self.dict, "dict_keys", true, false);
}

METHOD(dict_values)
{
    parameters_bind(j, "values", "", a, NULL);
    return dict_view(j, self.dict, "dict_values", false, true);
}

METHOD(dict_copy)
{
    struct dict *d = dict_new(j);
    parameters_bind(j, "copy", "", a, NULL);
    for (size_t i = 0; i < self.dict->n; i++)
        dict_put(j, d, self.dict->entries[i].key, self.dict->entries[i].value);
    return (struct value){.type = VALUE_DICT, .dict = d};
}

/* --- list, tuple, range --- */

METHOD(list_count)
{
    struct value what, item;
    struct iteration it;
    int64_t n = 0;
    parameters_bind(j, "count", "value!", a, &what);
    iterate_begin(j, &it, self);
    while (iterate_next(j, &it, &item))
        n += value_equal(j, item, what);
    return value_int(n);
}

METHOD(list_index)
{
    struct value args[3], item;
    struct iteration it;
    parameters_bind(j, "index", "value! start stop", a, args);
    int64_t length = value_length(self), start = parameter_int(j, args[1], 0, "index");
    int64_t stop = parameter_int(j, args[2], INT64_MAX, "index");
    start = start < 0 ? (start + length < 0 ? 0 : start + length) : start;
    stop = stop < 0 ? stop + length : stop;
    iterate_begin(j, &it, self);
    for (int64_t i = 0; i < stop && iterate_next(j, &it, &item); i++)
        if (i >= start && value_equal(j, item, args[0]))
            return value_int(i);
    jinja_type_error(j, "the value is not in the %s", value_type_name(self));
}

METHOD(list_copy)
{
    parameters_bind(j, "copy", "", a, NULL);
    return value_list(value_to_list(j, self));
}

/* --- numbers --- */

METHOD(int_bit_length)
{
    parameters_bind(j, "bit_length", "", a, NULL);
    int64_t i = value_to_index(j, self, "bit_length");
    uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    return value_int(u ? 64 - __builtin_clzll(u) : 0);
}

METHOD(number_is_integer)
{
    parameters_bind(j, "is_integer", "", a, NULL);
    double d = value_to_double(self);
    return value_bool(d >= -0x1p63 && d < 0x1p63 ? d == (double)(int64_t)d : d - d == 0);
}

/* --- cycler --- */

METHOD(cycler_next)
{
    parameters_bind(j, "next", "", a, NULL);
    struct value v = self.cycler->items->items[self.cycler->at];
    self.cycler->at = (self.cycler->at + 1) % self.cycler->items->n;
    return v;
}

METHOD(cycler_reset)
{
    parameters_bind(j, "reset", "", a, NULL);
    self.cycler->at = 0;
    return value_none();
}

static bool is_one_of(const struct text *name, const char *const *names)
{
    for (; *names; names++)
        if (text_is(name, *names))
            return true;
    return false;
}

const struct builtin *find_method(struct value v, const struct text *name, bool *unsafe)
{
    static const struct builtin dict_methods[] = {{"get", dict_get},
                                                  {"items", dict_items},
                                                  {"keys", dict_keys},
                                                  {"values", dict_values},
                                                  {"copy", dict_copy}};
    static const struct builtin list_methods[] = {
        {"count", list_count}, {"index", list_index}, {"copy", list_copy}};
    static const struct builtin number_methods[] = {{"is_integer", number_is_integer},
                                                    {"bit_length", int_bit_length}};
    static const struct builtin cycler_methods[] = {{"next", cycler_next}, {"reset", cycler_reset}};
    static const char *const dict_unsafe[] = {"clear",  "pop",      "popitem", "setdefault",
                                              "update", "fromkeys", NULL};
    static const char *const list_unsafe[] = {"append", "clear",  "pop",    "reverse", "insert",
                                              "sort",   "extend", "remove", NULL};
    struct str s = {name->p, name->n};
    switch (v.type) {
    case VALUE_DICT:
        *unsafe |= is_one_of(name, dict_unsafe);
        return find_builtin(dict_methods, 5, s);
    case VALUE_LIST:
        *unsafe |= is_one_of(name, list_unsafe);
        return find_builtin(list_methods, 3, s);
    case VALUE_TUPLE:
    case VALUE_RANGE:
        return find_builtin(list_methods, 2, s);
    case VALUE_BOOL:
    case VALUE_INT:
    case VALUE_BIG:
        return find_builtin(number_methods, 2, s);
    case VALUE_DOUBLE:
        return find_builtin(number_methods, 1, s);
    case VALUE_CYCLER:
        return find_builtin(cycler_methods, 2, s);
    default:
        return NULL;
    }
}

/* --- functions --- */

METHOD(call_range)
{
    (void)self;
    if (a->n_named > 0 || a->n < 1 || a->n > 3)
        jinja_type_error(j, "range() takes 1 to 3 arguments (%zu given)", a->n + a->n_named);
    int64_t start = a->n > 1 ? value_to_index(j, a->positional[0], "range()") : 0;
    int64_t stop = value_to_index(j, a->positional[a->n > 1], "range()");
    int64_t step = a->n > 2 ? value_to_index(j, a->positional[2], "range()") : 1;
    if (step == 0)
        jinja_type_error(j, "range() arg 3 must not be zero");
    uint64_t n = 0;
    if (step > 0 && stop > start)
        n = ((uint64_t)stop - (uint64_t)start - 1) / (uint64_t)step + 1;
    else if (step < 0 && stop < start)
        n = ((uint64_t)start - (uint64_t)stop - 1) / (0 - (uint64_t)step) + 1;
    if (n > JINJA_MAX_RANGE)
        jinja_fail(j, ERR_LIMIT, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).",
                   JINJA_MAX_RANGE);
    struct range *r = JINJA_NEW(j, struct range);
    *r = (struct range){.start = start, .stop = stop, .step = step, .n = (size_t)n};
    return (struct value){.type = VALUE_RANGE, .range = r};
}

/* dict(x, **more) and namespace(x, **more) */
static struct dict *make_dict(struct jinja *j, const char *name, const struct call_args *a)
{
    struct dict *d = dict_new(j);
    if (a->n > 1)
        jinja_type_error(j, "%s expected at most 1 argument, got %zu", name, a->n);
    if (a->n == 1 && a->positional[0].type == VALUE_DICT) {
        const struct dict *from = a->positional[0].dict;
        for (size_t i = 0; i < from->n; i++)
            dict_put(j, d, from->entries[i].key, from->entries[i].value);
    } else if (a->n == 1) {
        struct list *pairs = value_to_list(j, a->positional[0]);
        for (size_t i = 0; i < pairs->n; i++) {
            struct list *pair = value_to_list(j, pairs->items[i]);
            if (pair->n != 2)
                jinja_type_error(j, "dictionary update sequence element #%zu has length %zu; 2 is required",
                                 i, pair->n);
            dict_put(j, d, pair->items[0], pair->items[1]);
        }
    }
    for (size_t i = 0; i < a->n_named; i++)
        dict_put(j, d, text_value(a->names[i]), a->named[i]);
    return d;
}

METHOD(call_dict)
{
    (void)self;
    return (struct value){.type = VALUE_DICT, .dict = make_dict(j, "dict", a)};
}

METHOD(call_namespace)
{
    (void)self;
    return (struct value){.type = VALUE_NAMESPACE, .dict = make_dict(j, "namespace", a)};
}

METHOD(call_cycler)
{
    (void)self;
    if (a->n == 0)
        jinja_type_error(j, "at least one item has to be provided");
    struct cycler *c = JINJA_NEW(j, struct cycler);
    c->items = list_new(j, a->n);
    for (size_t i = 0; i < a->n; i++)
        list_push(j, c->items, a->positional[i]);
    return (struct value){.type = VALUE_CYCLER, .cycler = c};
}

METHOD(call_joiner)
{
    (void)self;
    struct joiner *r = JINJA_NEW(j, struct joiner);
    parameters_bind(j, "joiner", "sep", a, &r->separator);
    if (r->separator.type == VALUE_MISSING)
        r->separator = text_wrap(j, ", ", 2, false);
    return (struct value){.type = VALUE_JOINER, .joiner = r};
}

METHOD(call_raise_exception)
{
    struct value message;
    (void)self;
    parameters_bind(j, "raise_exception", "message!", a, &message);
    const struct text *t = value_to_text(j, message);
    free(j->raised);
    j->raised = xmalloc((size_t)t->n + 1);
    memcpy(j->raised, t->p, t->n);
    j->raised[t->n] = '\0';
    jinja_fail(j, ERR_FORMAT, "%.*s", (int)(t->n < 600 ? t->n : 600), t->p);
}

METHOD(call_strftime_now)
{
    struct value format;
    (void)self;
    parameters_bind(j, "strftime_now", "format!", a, &format);
    const struct text *t = parameter_text(j, format, "strftime_now");
    time_t now = j->now ? (time_t)j->now : time(NULL);
    struct tm tm;
    char pattern[256], text[1024];
    if (t->n >= sizeof pattern || !localtime_r(&now, &tm))
        jinja_fail(j, ERR_LIMIT, "strftime_now: a format of more than %zu bytes", sizeof pattern - 1);
    memcpy(pattern, t->p, t->n);
    pattern[t->n] = '\0';
    /* an empty result and one that does not fit look the same, so one character is kept in front */
    char marked[sizeof pattern + 1];
    snprintf(marked, sizeof marked, " %s", pattern);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    size_t n = strftime(text, sizeof text, marked, &tm);
#pragma GCC diagnostic pop
    if (n == 0 || utf8_valid_prefix(text, n) < n)
        jinja_fail(j, ERR_LIMIT, "strftime_now: a result of more than %zu bytes", sizeof text - 2);
    struct builder *b = builder_begin(j);
    builder_put(j, b, text + 1, n - 1, false);
    return builder_finish(j, b);
}

void define_globals(struct jinja *j)
{
    static const struct builtin functions[] = {
        {"range", call_range},
        {"dict", call_dict},
        {"cycler", call_cycler},
        {"joiner", call_joiner},
        {"namespace", call_namespace},
        {"raise_exception", call_raise_exception},
        {"strftime_now", call_strftime_now},
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        const struct text *name = table_get(j->t->names, functions[i].name);
        if (name)
            scope_put(j, j->root, name, function_value(j, &functions[i], (struct value){0}));
    }
}
