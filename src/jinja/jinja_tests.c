/* Tests: what may stand behind "is". */
#include "jinja/jinja_internal.h"

#define TEST(name) static struct value test_##name(struct jinja *j, struct value v, const struct call_args *a)

static void no_arguments(struct jinja *j, const char *name, const struct call_args *a)
{
    parameters_bind(j, name, "", a, NULL);
}

/* A test without arguments. */
#define IS(name, condition)                                                                                  \
    static struct value test_##name(struct jinja *j, struct value v, const struct call_args *a)              \
    {                                                                                                        \
        no_arguments(j, #name, a);                                                                           \
        return value_bool(condition);                                                                        \
    }

static struct value one_argument(struct jinja *j, const char *name, const struct call_args *a)
{
    struct value other;
    parameters_bind(j, name, "other!", a, &other);
    return other;
}

static int64_t remainder_of(struct jinja *j, struct value v, struct value by)
{
    struct value rest = eval_binary(j, OPERATOR_MODULO, v, by);
    if (rest.type == VALUE_DOUBLE)
        return rest.number == 0 ? 0 : rest.number == 1 ? 1 : 2;
    return rest.type == VALUE_INT ? rest.integer : 2;
}

/* Names are looked up in a dict, which refuses what can't be its key. */
static void check_hashable(struct jinja *j, struct value v)
{
    if (!value_is_hashable(v))
        jinja_type_error(j, "unhashable type: '%s'", value_type_name(v));
}

IS(odd, remainder_of(j, v, value_int(2)) == 1)
IS(even, remainder_of(j, v, value_int(2)) == 0)

TEST(divisibleby)
{
    struct value by;
    parameters_bind(j, "divisibleby", "num!", a, &by);
    return value_bool(remainder_of(j, v, by) == 0);
}

IS(defined, v.type != VALUE_UNDEFINED)
IS(undefined, v.type == VALUE_UNDEFINED)

TEST(filter)
{
    no_arguments(j, "filter", a);
    check_hashable(j, v);
    return value_bool(v.type == VALUE_STRING && find_filter((struct str){v.text->p, v.text->n}));
}

TEST(test)
{
    no_arguments(j, "test", a);
    check_hashable(j, v);
    return value_bool(v.type == VALUE_STRING && find_test((struct str){v.text->p, v.text->n}));
}

IS(none, v.type == VALUE_NONE)
IS(boolean, v.type == VALUE_BOOL)
IS(false, v.type == VALUE_BOOL && !v.boolean)
IS(true, v.type == VALUE_BOOL && v.boolean)
IS(integer, v.type == VALUE_INT || v.type == VALUE_BIG)
IS(float, v.type == VALUE_DOUBLE)

/* All cased characters are of one case, and there is one at least. */
static bool all_of_case(struct jinja *j, struct value v, bool upper)
{
    const struct text *t = value_to_text(j, v);
    bool any = false;
    jinja_charge(j, t->n);
    for (size_t at = 0; at < t->n;) {
        uint32_t cp;
        at += utf8_next(t->p + at, &cp);
        if (upper ? char_is_lower(cp) || char_is_title(cp) : char_is_upper(cp) || char_is_title(cp))
            return false;
        any |= upper ? char_is_upper(cp) : char_is_lower(cp);
    }
    return any;
}

IS(lower, all_of_case(j, v, false))
IS(upper, all_of_case(j, v, true))
IS(string, v.type == VALUE_STRING)
IS(mapping, v.type == VALUE_DICT)
IS(number, value_is_number(v))
IS(sequence, v.type != VALUE_VIEW && value_length(v) >= 0)
IS(iterable, value_is_iterable(v))
IS(callable, value_is_callable(v))
IS(escaped, v.type == VALUE_STRING && v.text->is_markup)

TEST(sameas)
{
    struct value other = one_argument(j, "sameas", a);
    if (v.type != other.type)
        return value_bool(false);
    if (v.type == VALUE_NONE || v.type == VALUE_BOOL || v.type == VALUE_INT || v.type == VALUE_BIG ||
        v.type == VALUE_STRING)
        return value_bool(value_equal(j, v, other)); /* Python shares small ones; nobody should rely on it */
    return value_bool(v.type != VALUE_DOUBLE && v.address == other.address);
}

#define COMPARE(name, op)                                                                                    \
    TEST(name)                                                                                               \
    {                                                                                                        \
        return value_bool(value_compare(j, v, op, one_argument(j, #name, a)));                               \
    }

COMPARE(eq, OPERATOR_EQUAL)
COMPARE(ne, OPERATOR_NOT_EQUAL)
COMPARE(gt, OPERATOR_GREATER)
COMPARE(ge, OPERATOR_GREATER_EQUAL)
COMPARE(lt, OPERATOR_LESS)
COMPARE(le, OPERATOR_LESS_EQUAL)
COMPARE(in, OPERATOR_IN)

const struct builtin *find_test(struct str name)
{
    static const struct builtin tests[] = {
        {"odd", test_odd},
        {"even", test_even},
        {"divisibleby", test_divisibleby},
        {"defined", test_defined},
        {"undefined", test_undefined},
        {"filter", test_filter},
        {"test", test_test},
        {"none", test_none},
        {"boolean", test_boolean},
        {"false", test_false},
        {"true", test_true},
        {"integer", test_integer},
        {"float", test_float},
        {"lower", test_lower},
        {"upper", test_upper},
        {"string", test_string},
        {"mapping", test_mapping},
        {"number", test_number},
        {"sequence", test_sequence},
        {"iterable", test_iterable},
        {"callable", test_callable},
        {"sameas", test_sameas},
        {"escaped", test_escaped},
        {"in", test_in},
        {"==", test_eq},
        {"eq", test_eq},
        {"equalto", test_eq},
        {"!=", test_ne},
        {"ne", test_ne},
        {">", test_gt},
        {"gt", test_gt},
        {"greaterthan", test_gt},
        {"ge", test_ge},
        {">=", test_ge},
        {"<", test_lt},
        {"lt", test_lt},
        {"lessthan", test_lt},
        {"<=", test_le},
        {"le", test_le},
    };
    return find_builtin(tests, sizeof tests / sizeof *tests, name);
}
