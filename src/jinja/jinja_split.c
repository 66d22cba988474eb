/* String methods that take strings apart. The pieces share the memory of the whole. */
#include "jinja/jinja_internal.h"

#define METHOD(name) static struct value name(struct jinja *j, struct value self, const struct call_args *a)

static void push_slice(struct jinja *j, struct list *l, const struct text *t, size_t begin, size_t end)
{
    list_push(j, l, text_value(text_slice(j, t, begin, end)));
}

static void reverse(struct list *l)
{
    for (size_t i = 0; i < l->n / 2; i++) {
        struct value v = l->items[i];
        l->items[i] = l->items[l->n - 1 - i];
        l->items[l->n - 1 - i] = v;
    }
}

static size_t skip_class(const struct text *t, size_t at, bool spaces)
{
    while (at < t->n) {
        uint32_t cp;
        size_t n = utf8_next(t->p + at, &cp);
        if (char_is_space(cp) != spaces)
            break;
        at += n;
    }
    return at;
}

static size_t skip_class_back(const struct text *t, size_t at, bool spaces)
{
    while (at > 0) {
        uint32_t cp;
        size_t back = utf8_back(t->p, at);
        (void)utf8_next(t->p + back, &cp);
        if (char_is_space(cp) != spaces)
            break;
        at = back;
    }
    return at;
}

static struct list *split_blanks(struct jinja *j, const struct text *t, int64_t max)
{
    struct list *l = list_new(j, 0);
    jinja_charge(j, t->n);
    size_t at = skip_class(t, 0, true);
    for (; at < t->n && max != 0; max--) {
        size_t end = skip_class(t, at, false);
        push_slice(j, l, t, at, end);
        at = skip_class(t, end, true);
    }
    if (at < t->n)
        push_slice(j, l, t, at, t->n);
    return l;
}

static struct list *split_blanks_back(struct jinja *j, const struct text *t, int64_t max)
{
    struct list *l = list_new(j, 0);
    jinja_charge(j, t->n);
    size_t at = skip_class_back(t, t->n, true);
    for (; at > 0 && max != 0; max--) {
        size_t begin = skip_class_back(t, at, false);
        push_slice(j, l, t, begin, at);
        at = skip_class_back(t, begin, true);
    }
    if (at > 0)
        push_slice(j, l, t, 0, at);
    reverse(l);
    return l;
}

static struct list *split_at(struct jinja *j, const struct text *t, const struct text *by, int64_t max)
{
    struct list *l = list_new(j, 0);
    size_t done = 0;
    for (size_t at; max != 0 && (at = text_find(j, t, done, t->n, by)) != SIZE_MAX; max--) {
        push_slice(j, l, t, done, at);
        done = at + by->n;
    }
    push_slice(j, l, t, done, t->n);
    return l;
}

static struct list *split_at_back(struct jinja *j, const struct text *t, const struct text *by, int64_t max)
{
    struct list *l = list_new(j, 0);
    size_t end = t->n;
    for (size_t at; max != 0 && (at = text_find_last(j, t, 0, end, by)) != SIZE_MAX; max--) {
        push_slice(j, l, t, at + by->n, end);
        end = at;
    }
    push_slice(j, l, t, 0, end);
    reverse(l);
    return l;
}

static struct value split(struct jinja *j, struct value self, const struct call_args *a, bool back)
{
    struct value args[2];
    parameters_bind(j, back ? "rsplit" : "split", "sep maxsplit", a, args);
    int64_t max = parameter_int(j, args[1], -1, "split");
    if (args[0].type == VALUE_MISSING || args[0].type == VALUE_NONE)
        return value_list(back ? split_blanks_back(j, self.text, max) : split_blanks(j, self.text, max));
    const struct text *by = parameter_text(j, args[0], "split");
    if (by->n == 0)
        jinja_type_error(j, "empty separator");
    return value_list(back ? split_at_back(j, self.text, by, max) : split_at(j, self.text, by, max));
}

METHOD(string_split)
{
    return split(j, self, a, false);
}

METHOD(string_rsplit)
{
    return split(j, self, a, true);
}

static bool is_line_end(uint32_t cp)
{
    return (cp >= 0x0a && cp <= 0x0d) || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 || cp == 0x2028 ||
           cp == 0x2029;
}

struct list *text_lines(struct jinja *j, const struct text *t, bool keep_ends)
{
    struct list *l = list_new(j, 0);
    jinja_charge(j, t->n);
    for (size_t at = 0, begin = 0; at < t->n; begin = at) {
        size_t end = at;
        while (at < t->n) {
            uint32_t cp;
            size_t n = utf8_next(t->p + at, &cp);
            at += n;
            if (is_line_end(cp)) {
                if (cp == '\r' && at < t->n && t->p[at] == '\n')
                    at++;
                break;
            }
            end = at;
        }
        push_slice(j, l, t, begin, keep_ends ? at : end);
    }
    return l;
}

METHOD(string_splitlines)
{
    struct value keep;
    parameters_bind(j, "splitlines", "keepends", a, &keep);
    return value_list(text_lines(j, self.text, parameter_bool(j, keep, false)));
}

static struct value partition(struct jinja *j, struct value self, const struct call_args *a, bool back)
{
    struct value by;
    parameters_bind(j, back ? "rpartition" : "partition", "sep!", a, &by);
    const struct text *t = self.text, *sep = parameter_text(j, by, "partition");
    if (sep->n == 0)
        jinja_type_error(j, "empty separator");
    size_t at = back ? text_find_last(j, t, 0, t->n, sep) : text_find(j, t, 0, t->n, sep);
    struct list *l = list_new(j, 3);
    if (at == SIZE_MAX) {
        for (int i = 0; i < 3; i++)
            push_slice(j, l, t, 0, i == (back ? 2 : 0) ? t->n : 0);
    } else {
        push_slice(j, l, t, 0, at);
        push_slice(j, l, t, at, at + sep->n);
        push_slice(j, l, t, at + sep->n, t->n);
    }
    return value_tuple(l);
}

METHOD(string_partition)
{
    return partition(j, self, a, false);
}

METHOD(string_rpartition)
{
    return partition(j, self, a, true);
}

const struct builtin *find_split_method(const struct text *name)
{
    static const struct builtin methods[] = {
        {"split", string_split},         {"rsplit", string_rsplit},         {"splitlines", string_splitlines},
        {"partition", string_partition}, {"rpartition", string_rpartition},
    };
    return find_builtin(methods, sizeof methods / sizeof *methods, (struct str){name->p, name->n});
}
