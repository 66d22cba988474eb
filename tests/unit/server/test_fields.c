/* Fields of requests: types, ranges, paths in messages, slices of the text. */
#include "support.h"
#include <string.h>
#include "server/fields.h"

static struct problem problem;
static cJSON *root;

static struct fields parse(const char *text)
{
    cJSON_Delete(root);
    root = NULL;
    problem = (struct problem){0};
    assert_true(body_parse(&root, (struct str){text, strlen(text)}, &problem));
    return (struct fields){root, "", &problem};
}

static void assert_refused(const char *text)
{
    cJSON *out = NULL;
    struct problem p = {0};
    assert_false(body_parse(&out, (struct str){text, strlen(text)}, &p));
    assert_null(out);
    assert_int_equal(p.status, 400);
    assert_string_equal(p.code, "invalid_json");
}

static void test_bodies(void **state)
{
    (void)state;
    assert_refused("");
    assert_refused("{");
    assert_refused("{} x");
    assert_refused("[1]");
    assert_refused("{\"a\":\"\xff\"}");
    assert_refused("{\"a\":\"\\u0000\"}");
    char deep[200];
    memset(deep, '[', sizeof deep);
    memcpy(deep, "{\"a\":", 5);
    deep[150] = '\0';
    assert_refused(deep);
    struct fields f =
        parse("{\"a\": \"[[[\\\"[[\", \"a\": 2}"); /* brackets in a string; of equal keys the last counts */
    int64_t value = 0;
    assert_true(fields_int(&f, "a", &value, 0, 10));
    assert_int_equal(value, 2);
}

static void test_types(void **state)
{
    (void)state;
    struct fields f = parse("{\"i\": 8.0, \"h\": 8.5, \"s\": \"x\", \"n\": null, \"b\": true, \"big\": "
                            "1e300, \"o\": {\"k\": [1]}}");
    int64_t i = -7;
    double d = -7;
    bool b = false;
    const char *s = "kept";
    const cJSON *item = NULL;
    assert_true(fields_int(&f, "i", &i, 0, 8));
    assert_int_equal(i, 8);
    assert_true(fields_int(&f, "n", &i, 0, 8) && fields_int(&f, "absent", &i, 0, 8));
    assert_int_equal(i, 8);
    assert_false(fields_int(&f, "i", &i, 0, 7));
    assert_non_null(strstr(problem.message, "i: expected a whole number from 0 to 7, found 8"));
    assert_string_equal(problem.param, "i");
    assert_false(fields_int(&f, "h", &i, 0, 9));
    assert_false(fields_int(&f, "s", &i, 0, 9));
    assert_false(fields_int(&f, "big", &i, 0, INT64_MAX));
    assert_true(fields_number(&f, "h", &d, 0, 9));
    assert_true(d == 8.5);
    assert_false(fields_number(&f, "h", &d, 0, 8));
    assert_false(fields_number(&f, "b", &d, 0, 8));
    assert_true(fields_bool(&f, "b", &b) && b);
    assert_false(fields_bool(&f, "i", &b));
    assert_true(fields_string(&f, "n", &s));
    assert_string_equal(s, "kept");
    assert_false(fields_string(&f, "i", &s));
    assert_true(fields_item(&f, "o", cJSON_Object, &item));
    const struct fields sub = {item, "o", &problem};
    assert_false(fields_bool(&sub, "k", &b));
    assert_string_equal(problem.param, "o.k");
    assert_false(fields_item(&f, "o", cJSON_Array, &item));
}

static void test_slices(void **state)
{
    (void)state;
    static const char text[] = " {\"a\" : [1.0, \"}\\\"]\"] , \"b\":{\"a\":2},\"a2\":3, \"c\": \"x\"}";
    struct str object = {text, strlen(text)}, value;
    assert_true(json_slice(object, "a", &value));
    assert_memory_equal(value.p, "[1.0, \"}\\\"]\"]", strlen("[1.0, \"}\\\"]\"]"));
    assert_true(json_slice(object, "b", &value));
    assert_int_equal(value.n, strlen("{\"a\":2}"));
    assert_true(json_slice(object, "a2", &value));
    assert_int_equal(value.n, 1);
    assert_false(json_slice(object, "d", &value));
    assert_false(json_slice((struct str){"[1]", 3}, "a", &value));
    assert_false(json_slice((struct str){"{", 1}, "a", &value));
}

static int teardown(void **state)
{
    (void)state;
    cJSON_Delete(root);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bodies), cmocka_unit_test(test_types),
                                       cmocka_unit_test(test_slices)};
    return cmocka_run_group_tests(tests, NULL, teardown);
}
