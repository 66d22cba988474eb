/* JSON: what is refused and how it is said, typed getters, and output that reads back. */
#include "files.h"
#include <float.h>
#include <locale.h>
#include <math.h>
#include "format/json.h"

static void parse_fails_n(const char *text, size_t n, const char *says)
{
    cJSON *root = NULL;
    struct err e = {0};
    if (json_parse(&root, text, n, "some.json", &e)) {
        cJSON_Delete(root);
        fail_msg("%s: parsed, expected an error", text);
    }
    assert_null(root);
    expect_message(&e, ERR_FORMAT, "some.json", says, NULL);
}

static void parse_fails(const char *text, const char *says)
{
    parse_fails_n(text, strlen(text), says);
}

static cJSON *parse(const char *text)
{
    cJSON *root = NULL;
    ASSERT_OK(json_parse(&root, text, strlen(text), "some.json", e));
    return root;
}

static void test_refused(void **state)
{
    (void)state;
    parse_fails("", "the text is empty");
    parse_fails("{\"a\": 1", "last closing bracket");
    parse_fails("{\"a\": \"b", "within a string");
    parse_fails("{\"a\": [1}", "closing bracket that matches no opening one");
    parse_fails("]", "closing bracket");
    parse_fails("{} x", "more text behind the value");
    parse_fails("{\"a\": 1,\n\"b\": nope}", "line 2");
    parse_fails("[1,]", "not valid JSON");
    parse_fails("{\"a\" 1}", "not valid JSON");
    parse_fails("[\"\\u0000\"]", "\\u0000");
    parse_fails_n("[1,\0 2]", 7, "NUL byte");
    parse_fails_n("[\"a\0b\"]", 7, "NUL byte");
    parse_fails("version https://git-lfs.github.com/spec/v1\n", "LFS pointer");
}

static void test_nesting(void **state)
{
    (void)state;
    char text[500];
    memset(text, '[', 200);
    memset(text + 200, ']', 200);
    cJSON *root = NULL;
    ASSERT_OK(json_parse(&root, text, 400, "deep.json", e));
    cJSON_Delete(root);
    memset(text, '[', 201);
    memset(text + 201, ']', 201);
    parse_fails_n(text, 402, "deeper than 200");
}

static void test_number_of_values(void **state)
{
    (void)state;
    size_t n = ((size_t)17 << 20) + 3;
    char *text = malloc(n);
    struct err e = {0};
    cJSON *root = NULL;
    text[0] = '[';
    for (size_t i = 1; i < n - 1; i++)
        text[i] = i % 2 ? '1' : ',';
    text[n - 1] = ']';
    assert_false(json_parse(&root, text, n, "many.json", &e));
    expect_message(&e, ERR_LIMIT, "many.json", "values", NULL);
    free(text);
}

static void test_getters(void **state)
{
    (void)state;
    cJSON *root = parse(
        "{\"int\": 7, \"big\": 9007199254740993e3, \"half\": 0.5, \"yes\": true, \"text\": \"t\\u00e9\", "
        "\"none\": null, \"list\": [], \"int\": 8}");
    struct err e = {0};
    int64_t i = -1;
    double d = -1.0;
    bool b = false;
    const char *s = "unset";
    assert_true(json_get_int(root, "int", &i, "f", &e));
    assert_int_equal(i, 8); /* the last one */
    assert_true(json_get_double(root, "half", &d, "f", &e) && d == 0.5);
    assert_true(json_get_double(root, "int", &d, "f", &e) && d == 8.0);
    assert_true(json_get_bool(root, "yes", &b, "f", &e) && b);
    assert_true(json_get_string(root, "text", &s, "f", &e));
    assert_string_equal(s, "t\xc3\xa9");
    assert_true(json_get_int(root, "none", &i, "f", &e) && json_get_int(root, "absent", &i, "f", &e));
    assert_true(json_get_string(root, "none", &s, "f", &e) && json_get_bool(root, "absent", &b, "f", &e));
    assert_int_equal(i, 8);
    assert_null(json_get(root, "INT"));
    assert_null(json_get(json_get(root, "list"), "int"));
    assert_null(json_get(NULL, "int"));

    assert_false(json_get_int(root, "half", &i, "f.json", &e));
    expect_message(&e, ERR_FORMAT, "f.json", "\"half\"", "expected integer", "0.5", NULL);
    assert_false(json_get_int(root, "big", &i, "f.json", &e));
    assert_false(json_get_int(root, "text", &i, "f.json", &e));
    expect_message(&e, ERR_FORMAT, "f.json", "\"text\"", "expected integer", "found string", NULL);
    assert_false(json_get_double(root, "list", &d, "f.json", &e));
    expect_message(&e, ERR_FORMAT, "expected number", "found array", NULL);
    assert_false(json_get_bool(root, "int", &b, "f.json", &e));
    assert_false(json_get_string(root, "yes", &s, "f.json", &e));
    expect_message(&e, ERR_FORMAT, "expected string", "found boolean", NULL);
    assert_int_equal(i, 8);
    cJSON_Delete(root);
}

static void test_read_file(void **state)
{
    (void)state;
    struct err e = {0};
    cJSON *root = NULL;
    files_put(files_path("a.json"), "\xef\xbb\xbf{\"a\": 1}\n", 12);
    ASSERT_OK(json_read_file(&root, files_path("a.json"), 100, e));
    assert_non_null(json_get(root, "a"));
    cJSON_Delete(root);
    assert_false(json_read_file(&root, files_path("a.json"), 5, &e));
    expect_message(&e, ERR_LIMIT, "a.json", NULL);
    assert_false(json_read_file(&root, files_path("absent.json"), 5, &e));
    expect_message(&e, ERR_IO, "absent.json", NULL);
}

static void test_put_string(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 1000);
    json_put_string(&b, "a\"\\\n\t\x01\x7f\xc3\xa9/", 10);
    assert_string_equal(b.p, "\"a\\\"\\\\\\n\\t\\u0001\x7f\xc3\xa9/\"");
    buf_clear(&b);
    json_put_string(&b, "a\0b", 3);
    assert_string_equal(b.p, "\"a\\u0000b\"");
    buf_clear(&b);
    json_put_string(&b, "", 0);
    assert_string_equal(b.p, "\"\"");
    buf_clear(&b);
    json_put_string(&b, "\xe9\xe2\x82\xc3\xa9\xff\"\xf0\x9f", 9); /* broken: E9, E2 82, FF, F0 9F */
    assert_string_equal(b.p, "\"\xef\xbf\xbd\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd\\\"\xef\xbf\xbd\"");
    buf_clear(&b);
    static const char json[] = "{\"a\": \"\\u001b \x7f\xc2\x9b\xe2\x80\xae\xff\xc3\xa9\"}\n";
    json_append_printable(&b, json, sizeof json - 1);
    assert_string_equal(b.p, "{\"a\": \"\\u001b \\u007f\\u009b\\u202e\xef\xbf\xbd\xc3\xa9\"}\n");
    buf_fini(&b);
}

static void test_put_double(void **state)
{
    (void)state;
    static const struct {
        double d;
        const char *text;
    } cases[] = {{0.1, "0.1"},         {1.0, "1"},
                 {-0.0, "-0"},         {0.30000000000000004, "0.30000000000000004"},
                 {1e300, "1e+300"},    {5e-324, "5e-324"},
                 {NAN, "null"},        {INFINITY, "null"},
                 {123456.0, "123456"}, {1.0 / 3, "0.3333333333333333"}};
    struct buf b;
    buf_init(&b, 1000);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        buf_clear(&b);
        json_put_double(&b, cases[i].d);
        assert_string_equal(b.p, cases[i].text);
    }
    double d = DBL_MIN;
    for (int i = 0; i < 2000; i++, d *= -1.377) {
        buf_clear(&b);
        json_put_double(&b, d);
        assert_true(strtod(b.p, NULL) == d || isinf(d));
    }
    buf_fini(&b);
}

/* JSON has points, whatever the program around the library has set. */
static void test_put_double_in_a_locale(void **state)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE", "fr_FR.UTF-8", "fr_FR", "ps_AF.UTF-8"};
    struct buf b;
    const char *name = NULL;
    (void)state;
    for (size_t i = 0; !name && i < sizeof names / sizeof *names; i++)
        name = setlocale(LC_NUMERIC, names[i]);
    if (!name) {
        print_message("skipped: no locale with another decimal point\n");
        skip();
    }
    buf_init(&b, 100);
    json_put_double(&b, -1.5e-7);
    assert_string_equal(b.p, "-1.5e-07");
    buf_fini(&b);
    setlocale(LC_NUMERIC, "C");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),          cmocka_unit_test(test_nesting),
        cmocka_unit_test(test_number_of_values), cmocka_unit_test(test_getters),
        cmocka_unit_test(test_read_file),        cmocka_unit_test(test_put_string),
        cmocka_unit_test(test_put_double),       cmocka_unit_test(test_put_double_in_a_locale),
    };
    return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
