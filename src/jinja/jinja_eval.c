/* Expressions: names, operators, attributes and subscripts, by Python's rules. */
#include <math.h>
#include <stdlib.h>

#include "jinja/jinja_internal.h"

static void at_node(struct jinja *j, const struct node *n)
{
    j->line = n->line;
    j->column = n->column;
}

void frame_enter(struct jinja *j)
{
    if (++j->n_frames > JINJA_MAX_FRAMES)
        jinja_fail(j, ERR_LIMIT, "calls and expressions nested more than %d deep", JINJA_MAX_FRAMES);
}

void frame_leave(struct jinja *j)
{
    j->n_frames--;
}

/* --- scopes --- */

struct scope *scope_new(struct jinja *j, struct scope *parent)
{
    struct scope *s = JINJA_NEW(j, struct scope);
    s->parent = parent;
    return s;
}

struct value *scope_find(struct scope *s, const struct text *name)
{
    for (; s; s = s->parent)
        for (size_t i = 0; i < s->n; i++)
            if (s->entries[i].name == name)
                return &s->entries[i].value;
    return NULL;
}

void scope_put(struct jinja *j, struct scope *s, const struct text *name, struct value v)
{
    for (size_t i = 0; i < s->n; i++) {
        if (s->entries[i].name == name) {
            s->entries[i].value = v;
            return;
        }
    }
    s->entries = jinja_grow(j, s->entries, s->n, &s->capacity, sizeof *s->entries);
    s->entries[s->n++] = (struct scope_entry){name, v};
}

void scope_hide(struct jinja *j, struct scope *s, const struct name_list *hidden)
{
    for (size_t i = 0; i < hidden->n; i++)
        scope_put(j, s, hidden->p[i], (struct value){0});
}

void scope_capture(struct scope *s)
{
    for (; s && !s->is_captured; s = s->parent)
        s->is_captured = true;
}

/* --- arithmetic --- */

static const char *operator_text(enum operator op)
{
    static const char *const texts[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};
    return texts[op];
}

static _Noreturn void fail_operands(struct jinja *j, enum operator op, struct value a, struct value b)
{
    if (a.type == VALUE_UNDEFINED)
        fail_undefined(j, a);
    if (b.type == VALUE_UNDEFINED)
        fail_undefined(j, b);
    if (op == OPERATOR_ADD && a.type == VALUE_STRING)
        jinja_type_error(j, "can only concatenate str (not \"%s\") to str", value_type_name(b));
    jinja_type_error(j, "unsupported operand type(s) for %s: '%s' and '%s'", operator_text(op),
                     value_type_name(a), value_type_name(b));
}

static _Noreturn void fail_overflow(struct jinja *j)
{
    jinja_fail(j, ERR_LIMIT, "an integer of more than 64 bits");
}

static int64_t floor_divide(int64_t a, int64_t b)
{
    int64_t q = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

static struct value power_ints(struct jinja *j, int64_t base, int64_t exponent)
{
    if (exponent < 0) {
        if (base == 0)
            jinja_type_error(j, "0.0 cannot be raised to a negative power");
        return value_double(pow((double)base, (double)exponent));
    }
    int64_t result = 1;
    if (base == 0 || base == 1)
        return value_int(exponent == 0 ? 1 : base);
    if (base == -1)
        return value_int(exponent % 2 ? -1 : 1);
    for (; exponent > 0; exponent--)
        if (__builtin_mul_overflow(result, base, &result))
            fail_overflow(j);
    return value_int(result);
}

static struct value operate_ints(struct jinja *j, enum operator op, int64_t a, int64_t b)
{
    int64_t result = 0;
    bool is_over = false;
    if (b == 0 && (op == OPERATOR_DIVIDE || op == OPERATOR_FLOOR_DIVIDE || op == OPERATOR_MODULO))
        jinja_type_error(j,
                         op == OPERATOR_DIVIDE ? "division by zero" : "integer division or modulo by zero");
    switch (op) {
    case OPERATOR_ADD:
        is_over = __builtin_add_overflow(a, b, &result);
        break;
    case OPERATOR_SUBTRACT:
        is_over = __builtin_sub_overflow(a, b, &result);
        break;
    case OPERATOR_MULTIPLY:
        is_over = __builtin_mul_overflow(a, b, &result);
        break;
    case OPERATOR_DIVIDE:
        return value_double((double)a / (double)b);
    case OPERATOR_FLOOR_DIVIDE:
        is_over = a == INT64_MIN && b == -1;
        result = is_over ? 0 : floor_divide(a, b);
        break;
    case OPERATOR_MODULO:
        result = b == -1 ? 0 : a % b; /* then with the sign of b */
        if (result != 0 && (result < 0) != (b < 0))
            result += b;
        break;
    default:
        return power_ints(j, a, b);
    }
    if (is_over)
        fail_overflow(j);
    return value_int(result);
}

static struct value operate_doubles(struct jinja *j, enum operator op, double a, double b)
{
    if (b == 0 && (op == OPERATOR_DIVIDE || op == OPERATOR_FLOOR_DIVIDE || op == OPERATOR_MODULO))
        jinja_type_error(j, "float %s by zero", op == OPERATOR_MODULO ? "modulo" : "division");
    double rest;
    switch (op) {
    case OPERATOR_ADD:
        return value_double(a + b);
    case OPERATOR_SUBTRACT:
        return value_double(a - b);
    case OPERATOR_MULTIPLY:
        return value_double(a * b);
    case OPERATOR_DIVIDE:
        return value_double(a / b);
    case OPERATOR_FLOOR_DIVIDE:
    case OPERATOR_MODULO:
        rest = fmod(a, b);
        if (rest != 0 && (rest < 0) != (b < 0))
            rest += b;
        if (op == OPERATOR_MODULO)
            return value_double(rest == 0 ? copysign(0.0, b) : rest);
        rest = (a - rest) / b; /* nearly whole */
        if (rest == 0)
            return value_double(copysign(0.0, a / b));
        return value_double(rest - floor(rest) > 0.5 ? floor(rest) + 1 : floor(rest));
    default:
        if (a == 0 && b < 0)
            jinja_type_error(j, "0.0 cannot be raised to a negative power");
        rest = pow(a, b);
        if (isnan(rest) && !isnan(a) && !isnan(b))
            jinja_fail(j, ERR_UNSUPPORTED, "complex numbers are not supported");
        if (isinf(rest) && !isinf(a) && !isinf(b))
            jinja_type_error(j, "numerical result out of range");
        return value_double(rest);
    }
}

static struct value join_lists(struct jinja *j, const struct list *a, const struct list *b)
{
    struct list *l = list_new(j, a->n + b->n);
    for (size_t i = 0; i < a->n; i++)
        list_push(j, l, a->items[i]);
    for (size_t i = 0; i < b->n; i++)
        list_push(j, l, b->items[i]);
    return value_list(l);
}

static void put_escaped(struct jinja *j, struct builder *b, const struct text *t)
{
    size_t end;
    bool is_user;
    for (size_t at = 0; text_run(t, at, &end, &is_user); at = end) {
        for (; at < end; at++) {
            const char *escape = t->p[at] == '&'    ? "&amp;"
                                 : t->p[at] == '<'  ? "&lt;"
                                 : t->p[at] == '>'  ? "&gt;"
                                 : t->p[at] == '\'' ? "&#39;"
                                 : t->p[at] == '"'  ? "&#34;"
                                                    : NULL;
            builder_put(j, b, escape ? escape : t->p + at, escape ? strlen(escape) : 1, is_user);
        }
    }
}

struct value text_escape(struct jinja *j, const struct text *t)
{
    if (t->is_markup)
        return text_value(t);
    struct builder *b = builder_begin(j);
    put_escaped(j, b, t);
    return text_markup(j, builder_finish(j, b).text, true);
}

struct value text_markup(struct jinja *j, const struct text *t, bool is_markup)
{
    struct text *copy = JINJA_NEW(j, struct text);
    *copy = *t;
    copy->is_markup = is_markup;
    return text_value(copy);
}

static struct value join_texts(struct jinja *j, const struct text *a, const struct text *b)
{
    bool is_markup = a->is_markup || b->is_markup;
    if (is_markup) {
        a = text_escape(j, a).text;
        b = text_escape(j, b).text;
    }
    struct builder *out = builder_begin(j);
    builder_put_text(j, out, a);
    builder_put_text(j, out, b);
    struct value v = builder_finish(j, out);
    return is_markup ? text_markup(j, v.text, true) : v;
}

/* By doubling, so that the work is that of the result. */
static const struct text *repeat_text(struct jinja *j, const struct text *t, int64_t count)
{
    if (count == 1)
        return t;
    const struct text *half = count > 1 ? repeat_text(j, t, count / 2) : NULL;
    struct builder *b = builder_begin(j);
    if (half) {
        builder_put_text(j, b, half);
        builder_put_text(j, b, half);
    }
    if (count % 2)
        builder_put_text(j, b, t);
    return builder_finish(j, b).text;
}

static struct value repeat(struct jinja *j, struct value v, int64_t count)
{
    if (count < 0)
        count = 0;
    if (v.type == VALUE_STRING) {
        const struct text *whole = repeat_text(j, v.text, v.text->n > 0 ? count : 0);
        return v.text->is_markup ? text_markup(j, whole, true) : text_value(whole);
    }
    struct list *l = list_new(j, 0);
    for (int64_t k = 0; k < count && v.list->n > 0; k++)
        for (size_t i = 0; i < v.list->n; i++)
            list_push(j, l, v.list->items[i]);
    v.list = l;
    return v;
}

static void check_converts(struct jinja *j, struct value v)
{
    if (v.type == VALUE_BIG && isinf(big_to_double(v.big)))
        jinja_type_error(j, "int too large to convert to float");
}

/* What does not need the digits of a large result. */
static struct value operate_bigs(struct jinja *j, enum operator op, struct value a, struct value b)
{
    if (op == OPERATOR_DIVIDE) {
        check_converts(j, a);
        check_converts(j, b);
        return operate_doubles(j, op, value_to_double(a), value_to_double(b));
    }
    if (op == OPERATOR_MODULO && b.type != VALUE_BIG) {
        int64_t by = value_to_index(j, b, "%");
        if (by == 0)
            jinja_type_error(j, "integer modulo by zero");
        return value_int(big_modulo(a.big, by));
    }
    fail_overflow(j);
}

static bool is_integer(struct value v)
{
    return v.type == VALUE_INT || v.type == VALUE_BOOL;
}

static bool is_repeatable(struct value v)
{
    return v.type == VALUE_STRING || v.type == VALUE_LIST || v.type == VALUE_TUPLE;
}

struct value eval_binary(struct jinja *j, enum operator op, struct value a, struct value b)
{
    if (value_is_number(a) && value_is_number(b)) {
        if (a.type == VALUE_DOUBLE || b.type == VALUE_DOUBLE) {
            check_converts(j, a);
            check_converts(j, b);
            return operate_doubles(j, op, value_to_double(a), value_to_double(b));
        }
        if (a.type == VALUE_BIG || b.type == VALUE_BIG)
            return operate_bigs(j, op, a, b);
        return operate_ints(j, op, a.type == VALUE_BOOL ? a.boolean : a.integer,
                            b.type == VALUE_BOOL ? b.boolean : b.integer);
    }
    if (op == OPERATOR_ADD && a.type == VALUE_STRING && b.type == VALUE_STRING)
        return join_texts(j, a.text, b.text);
    if (op == OPERATOR_ADD && a.type == b.type && (a.type == VALUE_LIST || a.type == VALUE_TUPLE)) {
        struct value v = join_lists(j, a.list, b.list);
        v.type = a.type;
        return v;
    }
    if (op == OPERATOR_MULTIPLY && is_repeatable(a) && is_integer(b))
        return repeat(j, a, value_to_index(j, b, "*"));
    if (op == OPERATOR_MULTIPLY && is_repeatable(b) && is_integer(a))
        return repeat(j, b, value_to_index(j, a, "*"));
    if (op == OPERATOR_MODULO && a.type == VALUE_STRING)
        return format_percent(j, a.text, b);
    fail_operands(j, op, a, b);
}

/* --- attributes and subscripts --- */

static bool is_dunder(const struct text *name)
{
    return name->n > 4 && memcmp(name->p, "__", 2) == 0 && memcmp(name->p + name->n - 2, "__", 2) == 0;
}

static struct value attribute_or_missing(struct jinja *j, struct value v, const struct text *name)
{
    bool is_unsafe = false;
    if (is_dunder(name))
        is_unsafe = v.type != VALUE_NAMESPACE;
    const struct builtin *method =
        v.type == VALUE_STRING ? find_string_method(name) : find_method(v, name, &is_unsafe);
    if (is_unsafe)
        return value_undefined_hint(
            j, arena_printf(j->arena, "access to attribute '%.*s' of '%s' object is unsafe.",
                            (int)(name->n < 100 ? name->n : 100), name->p, value_type_name(v)));
    if (method)
        return function_value(j, method, v);
    switch (v.type) {
    case VALUE_NAMESPACE: {
        struct value *found = dict_find_text(j, v.dict, name);
        return found ? *found : (struct value){0};
    }
    case VALUE_LOOP:
        return loop_attribute(j, v.loop, name);
    case VALUE_TUPLE:
        if (v.list->is_group && text_is(name, "grouper"))
            return v.list->items[0];
        if (v.list->is_group && text_is(name, "list"))
            return v.list->items[1];
        break;
    case VALUE_CYCLER:
        if (text_is(name, "current"))
            return v.cycler->items->items[v.cycler->at];
        break;
    case VALUE_MACRO:
        if (text_is(name, "name"))
            return text_value(v.macro->definition->name);
        if (text_is(name, "arguments")) {
            struct list *l = list_new(j, 0);
            for (size_t i = 0; i < v.macro->definition->n_parameters; i++)
                list_push(j, l, text_value(v.macro->definition->parameters[i]));
            return value_tuple(l);
        }
        if (text_is(name, "caller"))
            return value_bool(v.macro->definition->uses_caller);
        break;
    default:
        break;
    }
    return (struct value){0};
}

struct value value_attribute(struct jinja *j, struct value v, const struct text *name)
{
    if (v.type == VALUE_UNDEFINED && !is_dunder(name))
        fail_undefined(j, v);
    struct value found = attribute_or_missing(j, v, name);
    if (found.type != VALUE_MISSING)
        return found;
    struct value *entry = v.type == VALUE_DICT ? dict_find_text(j, v.dict, name) : NULL;
    return entry ? *entry : value_undefined(j, v, text_value(name));
}

struct bounds {
    int64_t start, stop, step, n;
};

static int64_t slice_part(struct jinja *j, struct value v, int64_t otherwise)
{
    if (v.type == VALUE_NONE)
        return otherwise;
    if (v.type == VALUE_BIG)
        return v.big->is_negative ? INT64_MIN : INT64_MAX;
    if (v.type != VALUE_INT && v.type != VALUE_BOOL)
        jinja_type_error(j, "slice indices must be integers or None or have an __index__ method");
    return v.type == VALUE_BOOL ? v.boolean : v.integer;
}

static int64_t clamp_index(int64_t i, int64_t length, bool is_backwards)
{
    if (i < 0)
        i += length;
    if (i < 0)
        return is_backwards ? -1 : 0;
    return i < length ? i : is_backwards ? length - 1 : length;
}

static void slice_bounds(struct jinja *j, const struct slice *s, int64_t length, struct bounds *b)
{
    b->step = slice_part(j, s->step, 1);
    if (b->step == 0)
        jinja_type_error(j, "slice step cannot be zero");
    if (b->step < -INT64_MAX)
        b->step = -INT64_MAX;
    bool is_backwards = b->step < 0;
    b->start = clamp_index(slice_part(j, s->start, is_backwards ? INT64_MAX : 0), length, is_backwards);
    b->stop = s->stop.type == VALUE_NONE && is_backwards
                  ? -1
                  : clamp_index(slice_part(j, s->stop, INT64_MAX), length, is_backwards);
    if (is_backwards)
        b->n = b->start > b->stop ? (b->start - b->stop - 1) / -b->step + 1 : 0;
    else
        b->n = b->stop > b->start ? (b->stop - b->start - 1) / b->step + 1 : 0;
}

static struct value slice_text(struct jinja *j, const struct text *t, const struct bounds *b)
{
    jinja_charge(j, t->n);
    if (b->step == 1) {
        size_t begin = text_offset(t, (size_t)b->start);
        size_t end = t->n == t->n_chars ? begin + (size_t)b->n : text_offset(t, (size_t)(b->start + b->n));
        return text_value(text_slice(j, t, begin, b->n > 0 ? end : begin));
    }
    uint32_t *offsets = jinja_alloc(j, (size_t)t->n_chars + 1, sizeof *offsets);
    size_t at = 0;
    for (uint32_t i = 0; i <= t->n_chars; i++) {
        uint32_t cp;
        offsets[i] = (uint32_t)at;
        at += i < t->n_chars ? utf8_next(t->p + at, &cp) : 0;
    }
    struct builder *out = builder_begin(j);
    for (int64_t k = 0; k < b->n; k++) {
        int64_t i = b->start + k * b->step;
        builder_put_range(j, out, t, offsets[i], offsets[i + 1]);
    }
    return builder_finish(j, out);
}

static struct value slice_value(struct jinja *j, struct value v, struct value key)
{
    struct bounds b;
    int64_t length = value_length(v);
    if (v.type == VALUE_DICT)
        jinja_type_error(j, "unhashable type: 'slice'");
    if (v.type != VALUE_STRING && v.type != VALUE_LIST && v.type != VALUE_TUPLE && v.type != VALUE_RANGE)
        jinja_type_error(j, "'%s' object is not subscriptable", value_type_name(v));
    slice_bounds(j, key.slice, length, &b);
    if (v.type == VALUE_STRING)
        return slice_text(j, v.text, &b);
    if (v.type == VALUE_RANGE) {
        struct range *r = JINJA_NEW(j, struct range);
        r->start = v.range->start + b.start * v.range->step;
        r->n = (size_t)b.n;
        if (__builtin_mul_overflow(v.range->step, b.step, &r->step))
            r->step = 1; /* then it is never taken */
        if (__builtin_mul_overflow(b.stop, v.range->step, &r->stop) ||
            __builtin_add_overflow(r->stop, v.range->start, &r->stop))
            r->stop = v.range->stop;
        return (struct value){.type = VALUE_RANGE, .range = r};
    }
    struct list *l = list_new(j, (size_t)b.n);
    for (int64_t k = 0; k < b.n; k++)
        list_push(j, l, v.list->items[b.start + k * b.step]);
    return (struct value){.type = v.type, .list = l};
}

struct value value_item(struct jinja *j, struct value v, struct value key)
{
    if (v.type == VALUE_UNDEFINED)
        fail_undefined(j, v);
    if (key.type == VALUE_SLICE)
        return slice_value(j, v, key);
    if (v.type == VALUE_DICT) {
        struct value *found = dict_find(j, v.dict, key);
        if (found)
            return *found;
    } else if (is_integer(key)) {
        int64_t i = value_to_index(j, key, "[]"), length = value_length(v);
        if (i < 0)
            i += length;
        if (i >= 0 && i < length) {
            if (v.type == VALUE_LIST || v.type == VALUE_TUPLE)
                return v.list->items[i];
            if (v.type == VALUE_RANGE)
                return value_int(v.range->start + i * v.range->step);
            if (v.type == VALUE_STRING) {
                jinja_charge(j, v.text->n == v.text->n_chars ? 0 : v.text->n);
                size_t at = text_offset(v.text, (size_t)i);
                uint32_t cp;
                return text_value(text_slice(j, v.text, at, at + utf8_next(v.text->p + at, &cp)));
            }
        }
    }
    if (key.type == VALUE_STRING) {
        struct value found = attribute_or_missing(j, v, key.text);
        if (found.type != VALUE_MISSING)
            return found;
    }
    return value_undefined(j, v, key);
}

/* --- evaluation --- */

static struct value eval_condition(struct jinja *j, const struct node *n)
{
    if (value_is_true(j, eval_node(j, n->b)))
        return eval_node(j, n->a);
    if (n->c)
        return eval_node(j, n->c);
    return value_undefined_hint(j,
                                arena_printf(j->arena,
                                             "the inline if-expression on line %d evaluated to false and no "
                                             "else section was defined.",
                                             n->line));
}

static struct value eval_compare(struct jinja *j, const struct node *n)
{
    struct value a = eval_node(j, n->a);
    for (size_t i = 0; i < n->list.n; i++) {
        struct value b = eval_node(j, n->list.p[i]);
        at_node(j, n->list.p[i]);
        if (!value_compare(j, a, n->operators[i], b))
            return value_bool(false);
        a = b;
    }
    return value_bool(true);
}

static struct value eval_concat(struct jinja *j, const struct node *n)
{
    struct list *parts = list_new(j, n->list.n);
    for (size_t i = 0; i < n->list.n; i++)
        list_push(j, parts, eval_node(j, n->list.p[i]));
    at_node(j, n);
    struct builder *b = builder_begin(j);
    for (size_t i = 0; i < parts->n; i++)
        builder_put_value(j, b, parts->items[i]);
    return builder_finish(j, b);
}

static struct value eval_sign(struct jinja *j, const struct node *n)
{
    struct value v = eval_node(j, n->a);
    at_node(j, n);
    if (v.type == VALUE_UNDEFINED)
        fail_undefined(j, v);
    if (!value_is_number(v))
        jinja_type_error(j, "bad operand type for unary %s: '%s'", n->kind == NODE_NEGATE ? "-" : "+",
                         value_type_name(v));
    if (v.type == VALUE_DOUBLE)
        return value_double(n->kind == NODE_NEGATE ? -v.number : v.number);
    if (v.type == VALUE_BIG)
        return n->kind == NODE_NEGATE ? big_negate(j, v.big) : v;
    int64_t i = value_to_index(j, v, "-");
    return n->kind == NODE_NEGATE ? integer_negate(j, i) : value_int(i);
}

static struct value eval_items(struct jinja *j, const struct node *n)
{
    struct list *l = list_new(j, n->list.n);
    for (size_t i = 0; i < n->list.n; i++)
        list_push(j, l, eval_node(j, n->list.p[i]));
    return n->kind == NODE_LIST ? value_list(l) : value_tuple(l);
}

static struct value eval_dict(struct jinja *j, const struct node *n)
{
    struct dict *d = dict_new(j);
    for (size_t i = 0; i + 1 < n->list.n; i += 2) {
        struct value key = eval_node(j, n->list.p[i]);
        struct value value = eval_node(j, n->list.p[i + 1]);
        at_node(j, n->list.p[i]);
        dict_put(j, d, key, value);
    }
    return (struct value){.type = VALUE_DICT, .dict = d};
}

static struct value eval_slice(struct jinja *j, const struct node *n)
{
    struct slice *s = JINJA_NEW(j, struct slice);
    s->start = n->a ? eval_node(j, n->a) : value_none();
    s->stop = n->b ? eval_node(j, n->b) : value_none();
    s->step = n->c ? eval_node(j, n->c) : value_none();
    return (struct value){.type = VALUE_SLICE, .slice = s};
}

static struct value eval_kind(struct jinja *j, const struct node *n)
{
    struct value a, b;
    switch (n->kind) {
    case NODE_CONSTANT:
        return n->constant;
    case NODE_NAME: {
        struct value *found = scope_find(j->scope, n->name);
        return found && found->type != VALUE_MISSING
                   ? *found
                   : value_undefined(j, (struct value){0}, text_value(n->name));
    }
    case NODE_LIST:
    case NODE_TUPLE:
        return eval_items(j, n);
    case NODE_DICT:
        return eval_dict(j, n);
    case NODE_NEGATE:
    case NODE_PLUS:
        return eval_sign(j, n);
    case NODE_NOT:
        return value_bool(!value_is_true(j, eval_node(j, n->a)));
    case NODE_AND:
        a = eval_node(j, n->a);
        return value_is_true(j, a) ? eval_node(j, n->b) : a;
    case NODE_OR:
        a = eval_node(j, n->a);
        return value_is_true(j, a) ? a : eval_node(j, n->b);
    case NODE_BINARY:
        a = eval_node(j, n->a);
        b = eval_node(j, n->b);
        at_node(j, n);
        return eval_binary(j, n->op, a, b);
    case NODE_CONCAT:
        return eval_concat(j, n);
    case NODE_COMPARE:
        return eval_compare(j, n);
    case NODE_CONDITION:
        return eval_condition(j, n);
    case NODE_ATTRIBUTE:
        a = eval_node(j, n->a);
        at_node(j, n);
        return value_attribute(j, a, n->name);
    case NODE_ITEM:
        a = eval_node(j, n->a);
        b = eval_node(j, n->b);
        at_node(j, n);
        return value_item(j, a, b);
    case NODE_SLICE:
        return eval_slice(j, n);
    case NODE_CALL:
        return eval_call(j, n, NULL);
    case NODE_FILTER:
        return eval_filter(j, n, eval_node(j, n->a));
    case NODE_TEST:
        return eval_test(j, n);
    default:
        jinja_fail(j, ERR_BUG, "a statement where an expression should be");
    }
}

struct value eval_node(struct jinja *j, const struct node *n)
{
    at_node(j, n);
    jinja_charge(j, 1);
    frame_enter(j);
    struct value v = eval_kind(j, n);
    frame_leave(j);
    return v;
}
