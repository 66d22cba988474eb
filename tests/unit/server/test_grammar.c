/* Grammars and schemas: texts that they take, texts that they refuse, and what is refused as a grammar or a schema. */
#include "support.h"
#include <string.h>
#include "server/grammar.h"
#include "server/schema_grammar.h"

static struct grammar *parse(const char *text)
{
    struct grammar *g;
    struct err e = {0};
    if (!grammar_parse(&g, text, strlen(text), &e))
        fail_msg("%s: %s", text, e.msg);
    return g;
}

/* Byte by byte: does the grammar take the whole text? */
static bool takes(struct grammar *g, const char *text)
{
    struct grammar_state *s = grammar_state_new(g);
    bool ok = true;
    for (const char *p = text; *p && ok; p++) {
        bool accepts = grammar_accepts(s, p, 1);
        ok = grammar_advance(s, p, 1);
        assert_int_equal(accepts, ok);
    }
    ok = ok && grammar_can_end(s);
    grammar_state_free(s);
    s = grammar_state_new(g); /* the same at once */
    bool at_once = grammar_advance(s, text, strlen(text)) && grammar_can_end(s);
    grammar_state_free(s);
    assert_int_equal(at_once, ok);
    return ok;
}

static void check(struct grammar *g, const char *const *good, const char *const *bad)
{
    for (; *good; good++)
        if (!takes(g, *good))
            fail_msg("refused: %s", *good);
    for (; *bad; bad++)
        if (takes(g, *bad))
            fail_msg("taken: %s", *bad);
    grammar_free(g);
}

/* Bytes that begin a character are taken where one of those that they begin is. */
static void test_begun_characters(void **state)
{
    (void)state;
    struct grammar *g = parse("root ::= [{\xc3\xa9\xf0\x9f\x98\x80] \"x\"");
    struct grammar_state *s = grammar_state_new(g);
    static const char *const good[] = {"{", "\xc3", "\xf0", "\xf0\x9f", "\xf0\x9f\x98", "\xc3\xa9x"};
    static const char *const bad[] = {"\xe0", "\xed",     "\xc2",  "\xf1",         "\x80",
                                      "\xff", "\xf0\x90", "\xc3x", "\xf0\x9f\x98x"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(grammar_accepts(s, good[i], strlen(good[i])));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(grammar_accepts(s, bad[i], strlen(bad[i])));
    assert_true(grammar_advance(s, "\xf0\x9f", 2));
    assert_false(grammar_can_end(s));
    assert_true(grammar_advance(s, "\x98\x80x", 3));
    assert_true(grammar_can_end(s));
    grammar_state_free(s);
    grammar_free(g);
}

#define LIST(...)                                                                                            \
    (const char *const[])                                                                                    \
    {                                                                                                        \
        __VA_ARGS__, NULL                                                                                    \
    }

static void test_gbnf(void **state)
{
    (void)state;
    check(parse("root ::= \"a\"{5,5}"), LIST("aaaaa"), LIST("", "aaaa", "aaaaaa", "b"));
    check(parse("root ::= \"ab\"* # all of it\n"), LIST("", "ab", "abab"), LIST("a", "aba", "abb"));
    check(parse("root ::= a | b\na ::= \"x\" b?\nb ::= [0-9]+ (\",\" [^0-9,])*\n"),
          LIST("x", "x1", "12,a", "1,\xe2\x82\xac,x"), LIST("", "x,", "1,", "1,2"));
    check(parse("root ::=\n  \"a\"\n  | \"b\"\n\nother ::= root\n"), LIST("a", "b"), LIST("", "ab"));
    check(parse("root ::= (\"a\" | \"b\" (\"c\" | \"d\")){2}"), LIST("aa", "abc", "bdbd", "bca"),
          LIST("a", "b", "aaa", "bb"));
    check(parse("root ::= \"\\x41\\u20ac\\U0001F600\\n\\\"\\\\\""),
          LIST("A\xe2\x82\xac\xf0\x9f\x98\x80\n\"\\"), LIST("A", "A\xe2\x82"));
    check(parse("root ::= \"(\" root? \")\""), LIST("()", "((()))"), LIST("(", "(()", "())"));
    check(parse("root ::= [a-z]{0,100000} \"!\""), LIST("!", "abc!"), LIST("abc", "A!"));
    check(parse("root ::= [\xc3\xa0-\xc3\xbf] ."), LIST("\xc3\xa9x", "\xc3\xa0\xe2\x82\xac"),
          LIST("ex", "\xc3\xa9"));
    check(parse("root ::= (\"a\"?){3} \"b\""), LIST("b", "ab", "aaab"), LIST("aaaab", "a"));
    check(parse("root ::= (\"\")* \"b\""), LIST("b"), LIST("", "bb"));
}

static void assert_no_grammar(const char *text, const char *why)
{
    struct grammar *g;
    struct err e = {0};
    assert_false(grammar_parse(&g, text, strlen(text), &e));
    assert_null(g);
    if (!strstr(e.msg, why))
        fail_msg("expected '%s' in: %s", why, e.msg);
}

static void test_bad_gbnf(void **state)
{
    (void)state;
    assert_no_grammar("", "no rule \"root\"");
    assert_no_grammar("%llguidance {}", "expected a rule's name");
    assert_no_grammar("root ::= root \"a\"", "left recursion");
    assert_no_grammar("root ::= a? root \"x\"\na ::= \"y\"", "left recursion");
    assert_no_grammar("root ::= (root)* \"x\"", "left recursion");
    assert_no_grammar("root ::= other", "no rule \"other\"");
    assert_no_grammar("root ::= \"a", "without end");
    assert_no_grammar("root ::= [a", "without end");
    assert_no_grammar("root ::= (\"a\"", "expected )");
    assert_no_grammar("root ::= \"a\")", ") too many");
    assert_no_grammar("root ::= \"a\"{3,2}", "below");
    assert_no_grammar("root ::= \"a\"{99999999999}", "2147483647");
    assert_no_grammar("root ::= \"\\q\"", "escape");
    assert_no_grammar("root ::= [z-a]", "range");
    assert_no_grammar("root ::= (\"a\"?){1000000}", "may be empty");
    assert_no_grammar("root = \"a\"", "::=");
    char deep[3000] = "root ::= ";
    memset(deep + 9, '(', 2000);
    assert_no_grammar(deep, "nested");
}

static struct grammar *schema(const char *text)
{
    struct err e = {0};
    struct buf out;
    cJSON *root;
    assert_true(json_parse(&root, text, strlen(text), "schema", &e));
    buf_init(&out, 1 << 22);
    if (!schema_grammar(&out, root, true, "", "", &e))
        fail_msg("%s: %s", text, e.msg);
    struct grammar *g = parse(out.p);
    buf_fini(&out);
    cJSON_Delete(root);
    return g;
}

static void test_schemas(void **state)
{
    (void)state;
    check(schema("{\"type\":\"string\"}"), LIST("\"\"", "\"a\\n\xe2\x82\xac\\u00e9\""),
          LIST("a", "\"", "\"\n\"", "\"\\q\""));
    check(schema("{\"type\":\"string\",\"minLength\":2,\"maxLength\":70000}"), LIST("\"ab\"", "\"abc\""),
          LIST("\"a\""));
    check(schema("{\"type\":\"number\"}"), LIST("0", "-1.5", "1e-9", "12"),
          LIST("01", ".5", "1.", "+1", "--1"));
    check(schema("{\"type\":[\"integer\",\"null\"]}"), LIST("5", "null", "-7"), LIST("1.5", "true"));
    check(schema("{\"type\":\"integer\",\"minimum\":3,\"maximum\":120}"),
          LIST("3", "9", "10", "99", "100", "120"), LIST("2", "0", "121", "200", "-3", "1000"));
    check(schema("{\"type\":\"integer\",\"minimum\":-12,\"exclusiveMaximum\":7}"),
          LIST("-12", "-9", "-1", "0", "6"), LIST("7", "-13", "-0", "-20"));
    check(schema("{\"type\":\"integer\",\"exclusiveMinimum\":998}"), LIST("999", "1000", "123456"),
          LIST("998", "99"));
    check(schema("{\"enum\":[\"a\\\"b\",1,null,{\"x\":[true]}]}"),
          LIST("\"a\\\"b\"", "1", "null", "{\"x\":[true]}"), LIST("\"a\"", "2"));
    check(schema("{\"const\":\"\xe2\x82\xac\"}"), LIST("\"\xe2\x82\xac\""), LIST("\"x\""));
    check(schema("{\"type\":\"object\",\"properties\":{\"b\":{\"type\":\"integer\"},\"a\":{\"type\":"
                 "\"boolean\"},\"c\":{}},"
                 "\"required\":[\"a\"],\"additionalProperties\":false}"),
          LIST("{\"a\":true}", "{ \"a\": true , \"b\": 1}", "{\"a\":false,\"b\":2,\"c\":[1,{\"x\":null}]}",
               "{\"a\":true,\"c\":1}"),
          LIST("{}", "{\"b\":1}", "{\"b\":1,\"a\":true}", "{\"a\":true,\"d\":1}", "{\"a\":1}",
               "{\"a\":true,}", "{\"a\":  true}"));
    check(schema("{\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{\"type\":\"null\"}}}"),
          LIST("{}", "{\"a\":null}", "{\"b\":null}", "{\"a\":null,\"b\":null}"),
          LIST("{\"b\":null,\"a\":null}", "{,}"));
    check(
        schema("{\"type\":\"object\",\"properties\":{\"ab\":{\"type\":\"null\"}},\"additionalProperties\":{"
               "\"type\":\"integer\"}}"),
        LIST("{}", "{\"ab\":null}", "{\"ab\":null,\"x\":1,\"y\":2}", "{\"a\":1}", "{\"abc\":1}", "{\"\":3}"),
        LIST("{\"ab\":1}", "{\"x\":null}"));
    check(schema("{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"minItems\":1,\"maxItems\":3}"),
          LIST("[true]", "[true, false,true]"), LIST("[]", "[true,true,true,true]", "[1]", "[true,]"));
    check(schema("{\"type\":\"array\",\"minItems\":10,\"maxItems\":100000}"), LIST("[1,1,1,1,1,1,1,1,1,1]"),
          LIST("[1]"));
    check(schema("{\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"string\"}]}"), LIST("[1,\"a\"]"),
          LIST("[1]", "[1,2]"));
    check(schema("{\"anyOf\":[{\"type\":\"null\"},{\"$ref\":\"#/$defs/"
                 "n\"}],\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":"
                 "{\"v\":{\"type\":\"integer\"},\"next\":{\"$ref\":\"#\"}},\"required\":[\"v\",\"next\"]}}}"),
          LIST("null", "{\"v\":1,\"next\":null}", "{\"v\":1,\"next\":{\"v\":2,\"next\":null}}"),
          LIST("{\"v\":1}", "{\"v\":1,\"next\":1}"));
    check(schema("{\"allOf\":[{\"properties\":{\"a\":{\"type\":\"null\"}},\"required\":[\"a\"]},{"
                 "\"properties\":{\"b\":{\"type\":\"null\"}}}]}"),
          LIST("{\"a\":null}", "{\"a\":null,\"b\":null}"), LIST("{}", "{\"b\":null}"));
    check(schema("{\"type\":\"string\",\"pattern\":\"^[a-c]+(-\\\\d{2,3})?\\\\.x$\"}"),
          LIST("\"ab.x\"", "\"c-12.x\""),
          LIST("\"d.x\"", "\"a-1.x\"", "\"a-1234.x\"", "\"a.xy\"", "\"abx\""));
    check(schema("{\"type\":\"string\",\"format\":\"date\"}"), LIST("\"2026-12-01\""),
          LIST("\"2026-13-01\"", "\"x\""));
    check(schema("{}"), LIST("1", "[{}]", "\"x\""), LIST("x", ""));
    struct buf any;
    struct err e = {0};
    buf_init(&any, 1 << 20);
    assert_true(schema_grammar(&any, NULL, true, "<call>\n", "\n</call>", &e));
    check(parse(any.p), LIST("<call>\n{}\n</call>", "<call>\n{\"a\": [1, 2]}\n</call>"),
          LIST("{}", "<call>\n1\n</call>"));
    buf_fini(&any);
}

static void assert_no_schema(const char *text, const char *why)
{
    struct err e = {0};
    struct buf out;
    struct grammar *g = NULL;
    cJSON *root;
    assert_true(json_parse(&root, text, strlen(text), "schema", &e));
    buf_init(&out, GRAMMAR_TEXT_BYTES_MAX);
    bool ok = schema_grammar(&out, root, true, "", "", &e) && grammar_parse(&g, out.p, out.n, &e);
    grammar_free(g);
    buf_fini(&out);
    cJSON_Delete(root);
    if (ok || !strstr(e.msg, why))
        fail_msg("%s: expected '%s', found: %s", text, why, ok ? "nothing wrong" : e.msg);
}

static void test_bad_schemas(void **state)
{
    (void)state;
    assert_no_schema("123", "expected a schema");
    assert_no_schema("{\"type\":123}", "expected a string");
    assert_no_schema("{\"type\":\"hiccup\"}", "not a type");
    assert_no_schema("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"sound\"}}}", "a: type");
    assert_no_schema("{\"$ref\":\"http://x/y\"}", "$ref");
    assert_no_schema("{\"$ref\":\"#/nothing\"}", "nothing is there");
    assert_no_schema("{\"$ref\":\"#\"}", "left recursion");
    assert_no_schema("{\"not\":{}}", "not: is not supported");
    assert_no_schema("{\"type\":\"object\",\"properties\":{\"a\":{\"uniqueItems\":true}}}", "a.uniqueItems");
    assert_no_schema("{\"type\":\"number\",\"minimum\":1}", "limits");
    assert_no_schema("{\"type\":\"integer\",\"minimum\":5,\"maximum\":4}", "no integer");
    assert_no_schema("{\"type\":\"string\",\"minLength\":5,\"maxLength\":4}", "maxLength");
    assert_no_schema("{\"type\":\"string\",\"maxLength\":-1}", "maxLength");
    assert_no_schema("{\"pattern\":\"abc\"}", "from ^ to $");
    assert_no_schema("{\"pattern\":\"^(?=a)b$\"}", "groups");
    assert_no_schema("{\"pattern\":\"^a**$\"}", "count");
    assert_no_schema("{\"pattern\":\"^(a$\"}", "group");
    assert_no_schema("{\"pattern\":\"^a)$\"}", ") too many");
    assert_no_schema("{\"enum\":[]}", "enum");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gbnf), cmocka_unit_test(test_begun_characters),
                                       cmocka_unit_test(test_bad_gbnf), cmocka_unit_test(test_schemas),
                                       cmocka_unit_test(test_bad_schemas)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
