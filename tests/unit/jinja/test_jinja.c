// links: chat
/* The template engine against recorded answers of Jinja2 (tests/data/jinja), and what only this engine has: marks,
 * limits, positions in messages. */
#include "support.h"
#include "base/file.h"
#include "chat/chat.h"
#include "format/json_line.h"

#define DATA MILKIT_TEST_DATA "/jinja/"
#define MAX_SHOWN 25

struct run {
    struct jinja_output out;
    struct err e;
    bool ok;
};

static struct run render_with(const char *text, size_t n, struct str variables, bool is_user,
                              const struct jinja_options *options)
{
    struct run r = {0};
    struct jinja_template *t = NULL;
    const struct jinja_variable all = {.json = variables, .is_user = is_user};
    r.ok = jinja_parse(&t, text, n, "test", &r.e) && jinja_render(t, &all, 1, options, &r.out, &r.e);
    jinja_free(t);
    return r;
}

static struct run render(const char *text, const char *variables)
{
    return render_with(text, strlen(text), (struct str){variables, strlen(variables)}, true, NULL);
}

static void assert_renders(const char *text, const char *variables, const char *expected)
{
    struct run r = render(text, variables);
    if (!r.ok)
        fail_msg("%s: %s", text, r.e.msg);
    assert_string_equal(r.out.text, expected);
    jinja_output_free(&r.out);
}

static void assert_fails(const char *text, const char *variables, enum err_code code, const char *words)
{
    struct run r = render(text, variables);
    if (r.ok)
        fail_msg("%.200s: no error", text);
    if (!strstr(r.e.msg, words) || r.e.code != code)
        fail_msg("%.200s: expected \"%s\" (code %d), found \"%s\" (code %d)", text, words, code, r.e.msg,
                 r.e.code);
    jinja_output_free(&r.out);
}

/* --- recorded answers --- */

static bool case_holds(const cJSON *item, struct str variables, char *shown, size_t n_shown)
{
    const cJSON *text = json_get(item, "text"), *raised = json_get(item, "raised");
    struct buf template, expected;
    buf_init(&template, 1 << 20);
    buf_init(&expected, 1 << 20);
    json_line_string(&template, json_get(item, "template"));
    if (text)
        json_line_string(&expected, text);
    struct run r = render_with(template.p ? template.p : "", template.n, variables, true, NULL);
    bool ok = text     ? r.ok && r.out.bytes == expected.n && memcmp(r.out.text, expected.p, expected.n) == 0
              : raised ? !r.ok && r.out.raised && strcmp(r.out.raised, raised->valuestring) == 0
                       : !r.ok;
    if (!ok)
        snprintf(shown, n_shown, "%.400s\n    expected %s %.300s\n    found %s", template.p ? template.p : "",
                 text ? "" : "an error:",
                 text     ? expected.p
                 : raised ? raised->valuestring
                          : json_get(item, "error")->valuestring,
                 r.ok ? r.out.text : r.e.msg);
    jinja_output_free(&r.out);
    buf_fini(&template);
    buf_fini(&expected);
    return ok;
}

static void replay(const char *name)
{
    struct err e = {0};
    char *all = NULL;
    size_t bytes = 0, n = 0, n_bad = 0;
    char *path = path_join(DATA, name);
    if (!file_read(&all, &bytes, path, 64 << 20, &e))
        fail_msg("%s", e.msg);
    for (char *line = all, *end; line < all + bytes; line = end + 1, n++) {
        char shown[2000];
        cJSON *item = NULL;
        end = memchr(line, '\n', (size_t)(all + bytes - line));
        assert_non_null(end);
        struct str text = {line, (size_t)(end - line)}, variables;
        if (!json_line_parse(&item, text.p, text.n, path, &e))
            fail_msg("%s", e.msg);
        assert_true(chat_json_member(text, "variables", &variables));
        if (!case_holds(item, variables, shown, sizeof shown) && n_bad++ < MAX_SHOWN)
            print_error("%s:%zu: %s\n", name, n + 1, shown);
        cJSON_Delete(item);
    }
    free(all);
    free(path);
    assert_true(n > 50);
    if (n_bad > 0)
        fail_msg("%s: %zu of %zu cases differ", name, n_bad, n);
}

static void test_whitespace(void **state)
{
    (void)state;
    replay("whitespace.jsonl");
}

static void test_expressions(void **state)
{
    (void)state;
    replay("expressions.jsonl");
}

static void test_filters(void **state)
{
    (void)state;
    replay("filters.jsonl");
}

static void test_methods(void **state)
{
    (void)state;
    replay("methods.jsonl");
}

static void test_statements(void **state)
{
    (void)state;
    replay("statements.jsonl");
}

static void test_programs(void **state)
{
    (void)state;
    replay("programs.jsonl");
}

static void test_integers(void **state)
{
    (void)state;
    replay("integers.jsonl");
}

/* --- origin of text --- */

static void assert_parts(const char *text, const char *variables, const char *expected)
{
    struct run r = render(text, variables);
    struct buf b;
    buf_init(&b, 4096);
    buf_puts(&b, "");
    if (!r.ok)
        fail_msg("%s: %s", text, r.e.msg);
    size_t done = 0;
    for (size_t i = 0; i < r.out.n_parts; i++) {
        assert_int_equal(r.out.parts[i].begin, done);
        done = r.out.parts[i].end;
        buf_printf(&b, "%c(%.*s)", r.out.parts[i].is_user ? 'u' : 't', (int)(done - r.out.parts[i].begin),
                   r.out.text + r.out.parts[i].begin);
    }
    assert_int_equal(done, r.out.bytes);
    assert_string_equal(b.p, expected);
    buf_fini(&b);
    jinja_output_free(&r.out);
}

static void test_origin(void **state)
{
    (void)state;
    const char *v =
        "{\"s\": \"User <x>\", \"e\": \"\", \"l\": [\"p\", \"q\"], \"d\": {\"k\": \"v\\n\"}, \"n\": 5}";
    assert_parts("a{{ s }}b", v, "t(a)u(User <x>)t(b)");
    assert_parts("{{ 'a' + s + 'b' }}", v, "t(a)u(User <x>)t(b)");
    assert_parts("{{ ('a' ~ s ~ 'b')|upper }}", v, "t(A)u(USER <X>)t(B)");
    assert_parts("{{ ('a' ~ s ~ 'b')[1:-1] }}", v, "u(User <x>)");
    assert_parts("{{ ('a' ~ s ~ 'b')[::-1] }}", v, "t(b)u(>x< resU)t(a)");
    assert_parts("{{ (' ' ~ s ~ ' ')|trim }}", v, "u(User <x>)");
    assert_parts("{{ ('<' ~ s).split(' ')[0] }}", v, "t(<)u(User)");
    assert_parts("{{ s.replace('x', 'y') }}", v, "u(User <)t(y)u(>)");
    assert_parts("{{ 'x-x'.replace('x', s[:1]) }}", v, "u(U)t(-)u(U)");
    assert_parts("{{ l|join(',') }}", v, "u(p)t(,)u(q)");
    assert_parts("{{ ', '.join(l) }}", v, "u(p)t(, )u(q)");
    assert_parts("{{ '%s=%s' % (s[0], 'c') }}", v, "u(U)t(=c)");
    assert_parts("{{ '{}:{:>3}'.format(s[0], l[0]) }}", v, "u(U)t(:  )u(p)");
    assert_parts("{{ d|tojson }}", v, "t({\")u(k)t(\": \")u(v\\n)t(\"})");
    assert_parts("{{ d }}", v, "t({')u(k)t(': ')u(v\\n)t('})");
    assert_parts("{% for c in s[:2] %}{{ c }}{% endfor %}", v, "u(Us)");
    assert_parts("{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(s) }}", v, "t(<)u(User <x>)t(>)");
    assert_parts("{% set z %}<{{ s }}>{% endset %}{{ z|length }}{{ z }}", v, "t(10<)u(User <x>)t(>)");
    assert_parts("{% filter upper %}a{{ l[0] }}{% endfilter %}", v, "t(A)u(P)");
    assert_parts("{{ s|e }}", v, "u(User &lt;x&gt;)");
    assert_parts("{{ ('<' ~ s)|indent(1, true) }}", v, "t( <)u(User <x>)");
    assert_parts("{{ 'é' ~ s[:0] ~ e }}", v, "t(é)");
    assert_parts("{{ n }}{% for k in d %}{{ k }}{% endfor %}", v, "t(5)u(k)");
    assert_parts("{{ s[0] ~ 1 if s == 'User <x>' and s in [s] and d[l[0]] is undefined }}", v, "u(U)t(1)");
    assert_parts("", v, "");
}

/* --- limits --- */

static char *repeated(const char *before, const char *what, size_t n, const char *after)
{
    struct buf b;
    buf_init(&b, 64 << 20);
    buf_puts(&b, before);
    for (size_t i = 0; i < n; i++)
        buf_puts(&b, what);
    buf_puts(&b, after);
    return buf_take(&b, NULL);
}

static void test_limits_of_the_parser(void **state)
{
    (void)state;
    static const struct {
        const char *before, *what, *after;
        enum err_code code;
    } cases[] = {
        {"{{ ", "(", "", ERR_LIMIT},
        {"{{ ", "[", "", ERR_LIMIT},
        {"{{ ", "{1:", "", ERR_LIMIT},
        {"{{ ", "not ", "1 }}", ERR_LIMIT},
        {"{{ ", "-", "1 }}", ERR_LIMIT},
        {"{{ 1", "+1", " }}", ERR_LIMIT},
        {"{{ a", ".b", " }}", ERR_LIMIT},
        {"{{ a", "|e", " }}", ERR_LIMIT},
        {"", "{% if 1 %}", "", ERR_LIMIT},
        {"", "{% macro m() %}", "", ERR_LIMIT},
        {"{{ 1", " if 1", " }}", ERR_LIMIT},
        {"{{ a", "()", " }}", ERR_LIMIT},
        {"{{ 1", " if 1 else 1", " }}", ERR_LIMIT},
        {"{{ 1", " and 1", " }}", ERR_LIMIT},
        {"{{ x", "|string()", "}}", ERR_LIMIT},
        {"{% set ", "(", "", ERR_LIMIT},
        {"{{ 'a'", " ~ a.b", " }}", ERR_FORMAT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = repeated(cases[i].before, cases[i].what, 100000, cases[i].after);
        struct run r = render_with(text, strlen(text), (struct str){"{}", 2}, true, NULL);
        if (r.ok || r.e.code != cases[i].code)
            fail_msg("%s..: expected code %d, found \"%s\"", cases[i].what, cases[i].code, r.e.msg);
        free(text);
    }
    char *big = repeated("", "x", JINJA_MAX_TEMPLATE_BYTES + 1, "");
    assert_fails(big, "{}", ERR_LIMIT, "at most 1048576");
    free(big);
}

static void test_limits_of_the_evaluator(void **state)
{
    (void)state;
    assert_fails("{{ range(10**9) }}", "{}", ERR_LIMIT, "Range too big");
    assert_fails("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{}", ERR_LIMIT, "nested more than");
    assert_fails(
        "{% macro a(n) %}{{ b(n+1) }}{% endmacro %}{% macro b(n) %}{{ a(n+1) }}{% endmacro %}{{ a(0) }}",
        "{}", ERR_LIMIT, "nested more than");
    assert_fails("{% for i in [[]] recursive %}{{ loop([[]]) }}{% endfor %}", "{}", ERR_LIMIT,
                 "nested more than");
    assert_fails("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "{}",
                 ERR_LIMIT, "too many steps");
    assert_fails("{% for i in range(99999) %}{{ 'x' * 2000 }}{% endfor %}", "{}", ERR_LIMIT,
                 "more than 67108864 bytes");
    assert_fails("{{ 'x' * 10**12 }}", "{}", ERR_LIMIT, "more than");
    assert_fails("{{ ([1] * 10**12)|length }}", "{}", ERR_LIMIT, "");
    assert_renders("{{ ('' * 10**15)|length }}{{ ([] * 10**15)|length }}", "{}", "00");
    assert_fails("{{ 'x'.ljust(10**12) }}", "{}", ERR_LIMIT, "");
    assert_fails("{{ '%999999999d' % 1 }}", "{}", ERR_LIMIT, "above");
    assert_fails("{{ '{:999999999}'.format(1) }}", "{}", ERR_LIMIT, "above");
    assert_fails("{{ [1]|tojson(indent=10**12) }}", "{}", ERR_LIMIT, "");
    assert_fails("{{ [1,2]|batch(10**12, 0)|list }}", "{}", ERR_LIMIT, "");
    assert_fails("{{ [1,2]|slice(10**12)|list }}", "{}", ERR_LIMIT, "");
    assert_fails("{{ 9223372036854775807 + 1 }}", "{}", ERR_LIMIT, "64 bits");
    assert_fails("{{ 2 ** 64 }}", "{}", ERR_LIMIT, "64 bits");
    assert_fails("{{ 99999999999999999999 + 1 }}", "{}", ERR_LIMIT, "64 bits");
    assert_fails("{{ x * 2 }}", "{\"x\": 99999999999999999999}", ERR_LIMIT, "64 bits");
    assert_fails("{{ range(x) }}", "{\"x\": 99999999999999999999}", ERR_LIMIT, "64 bits");
    assert_fails("{{ 0x1ffffffffffffffff }}", "{}", ERR_FORMAT, "64 bits");
    assert_fails(
        "{% set n = namespace(x=[]) %}{% for i in range(9999) %}{% set n.x = [n.x] %}{% endfor %}{{ n.x }}",
        "{}", ERR_LIMIT, "data nested");
    assert_fails("{% set n = namespace() %}{% set n.x = n %}{{ n }}", "{}", ERR_LIMIT, "data nested");
    /* 2^60 leaves over a few shared lists */
    assert_fails("{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor "
                 "%}{{ n.x }}",
                 "{}", ERR_LIMIT, "");
    assert_fails("{% set n = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}"
                 "{% set n.y = [n.y, n.y] %}{% endfor %}{{ n.x == n.y }}",
                 "{}", ERR_LIMIT, "too many steps");
    assert_fails("{% set n = namespace(x='x') %}{% for i in range(99999) %}{% set n.x = n.x ~ n.x[:50000] "
                 "%}{% endfor %}",
                 "{}", ERR_LIMIT, "");
}

static void test_given_limits(void **state)
{
    (void)state;
    const struct str none = {"{}", 2};
    const char *text = "{% for i in range(1000) %}0123456789{% endfor %}";
    struct jinja_options o = {.max_output_bytes = 9999};
    struct run r = render_with(text, strlen(text), none, true, &o);
    assert_false(r.ok);
    assert_int_equal(r.e.code, ERR_LIMIT);
    o = (struct jinja_options){.max_output_bytes = 10000};
    r = render_with(text, strlen(text), none, true, &o);
    assert_true(r.ok);
    assert_int_equal(r.out.bytes, 10000);
    jinja_output_free(&r.out);
    o = (struct jinja_options){.max_steps = 500};
    r = render_with(text, strlen(text), none, true, &o);
    assert_false(r.ok);
    o = (struct jinja_options){.now = 86400 * 365};
    const char *clock = "{{ strftime_now('%Y') }}";
    r = render_with(clock, strlen(clock), none, true, &o);
    assert_true(r.ok);
    assert_string_equal(r.out.text, "1971");
    jinja_output_free(&r.out);
}

/* --- messages --- */

static void test_positions(void **state)
{
    (void)state;
    assert_fails("a\n  {{ x.y.z }}", "{}", ERR_FORMAT, "test: line 2, column 8: 'x' is undefined");
    assert_fails("é\r\né{{ 1 + }}", "{}", ERR_FORMAT, "test: line 2, column 9: expected an expression");
    assert_fails("\n\n{{ 1|nosuch }}", "{}", ERR_FORMAT, "test: line 3, column 6: No filter named 'nosuch'.");
    assert_fails("{{ 1 is nosuch }}", "{}", ERR_FORMAT, "No test named 'nosuch'.");
    assert_fails("{{ 'a'.nosuch() }}", "{}", ERR_FORMAT, "'str object' has no attribute 'nosuch'");
    assert_fails("{{ d.a.b }}", "{\"d\": {}}", ERR_FORMAT, "'dict object' has no attribute 'a'");
    assert_fails("{{ none.a.b }}", "{}", ERR_FORMAT, "'None' has no attribute 'a'");
    assert_fails("{{ [1][3].a }}", "{}", ERR_FORMAT, "list object has no element 3");
    assert_fails("{{ [].append(1) }}", "{}", ERR_FORMAT,
                 "access to attribute 'append' of 'list' object is unsafe.");
    assert_fails("{{ 1 + 'a' }}", "{}", ERR_FORMAT, "unsupported operand type(s) for +: 'int' and 'str'");
    assert_fails("{{ f(1) }}", "{}", ERR_FORMAT, "'f' is undefined");
    assert_fails("{% if 1 %}\n", "{}", ERR_FORMAT, "has no end; expected one of: elif else endif");
    assert_fails("{% include 'x' %}", "{}", ERR_UNSUPPORTED, "a chat template stands alone");
    assert_fails("{{ x }}", "{\"x\": ", ERR_FORMAT, "bad JSON at byte 6: expected a value");
    assert_fails("{{ x }}", "[]", ERR_FORMAT, "expected an object");
    assert_fails("\xff", "{}", ERR_FORMAT, "byte 0 is not UTF-8");
    struct run r = render("{{ raise_exception('No \\n system') }}", "{}");
    assert_false(r.ok);
    assert_string_equal(r.out.raised, "No \n system");
    assert_string_equal(r.e.msg, "test: line 1, column 19: No   system");
    jinja_output_free(&r.out);
}

static void test_variables(void **state)
{
    (void)state;
    assert_renders("{{ x }}{{ y is none }}{{ z is defined }}", "{\"x\": 1.0, \"y\": null}", "1.0TrueFalse");
    assert_renders("{{ x|tojson }}", "{\"x\": {\"b\": 1, \"a\": 1e2, \"b\": 2}}", "{\"b\": 2, \"a\": 100.0}");
    assert_renders("{{ x }}", "{\"x\": \"\\ud83d\\ude00\\ud800a\"}",
                   "\xf0\x9f\x98\x80\xef\xbf\xbd"
                   "a");
    assert_renders("{{ x }}", "{\"x\": \"a\xff\xe2\x82\"}", "a\xef\xbf\xbd\xef\xbf\xbd");
    assert_renders("{{ x|length }}", "{\"x\": \"a\\u0000b\"}", "3");
    assert_renders("{{ namespace }}", "{\"namespace\": 1}", "1");
    /* arguments in a string are decoded where that is asked for */
    struct jinja_template *t = NULL;
    struct jinja_output out;
    const char *text =
        "{% for m in m %}{% for c in m.c %}{{ c.a is mapping }}{{ c.a }};{% endfor %}{% endfor %}";
    const char *json =
        "[{\"c\": [{\"a\": \"{\\\"k\\\": 1.0}\"}, {\"a\": \"no\"}, {\"a\": \"{bad\"}, {}]}, {}]";
    const struct jinja_variable v = {"m", {json, strlen(json)}, true, "*.c.*.a"};
    ASSERT_OK(jinja_parse(&t, text, strlen(text), "test", e));
    ASSERT_OK(jinja_render(t, &v, 1, NULL, &out, e));
    assert_string_equal(out.text, "True{'k': 1.0};Falseno;False{bad;False;");
    jinja_output_free(&out);
    jinja_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whitespace),
        cmocka_unit_test(test_expressions),
        cmocka_unit_test(test_filters),
        cmocka_unit_test(test_methods),
        cmocka_unit_test(test_statements),
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_programs),
        cmocka_unit_test(test_origin),
        cmocka_unit_test(test_limits_of_the_parser),
        cmocka_unit_test(test_limits_of_the_evaluator),
        cmocka_unit_test(test_given_limits),
        cmocka_unit_test(test_positions),
        cmocka_unit_test(test_variables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
