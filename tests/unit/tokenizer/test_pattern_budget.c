/* Patterns of a tokenizer.json have a budget for a whole text: hostile ones end with an error, wherever they stand and on
 * whatever text, and honest ones never meet it. */
#include "support.h"

#include "tokenizer/tokenizer.h"

#define MODEL "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]}"
#define BYTE_LEVEL "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}"

enum place { SPLITTER, NORMALIZER, DECODER };

static struct tokenizer *make(const char *pattern, enum place place)
{
    struct tokenizer *t = NULL;
    struct buf json;
    buf_init(&json, 1 << 16);
    buf_puts(&json, "{" MODEL);
    if (place == SPLITTER) {
        buf_puts(&json, ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","
                        "\"behavior\":\"Isolated\",\"invert\":false,\"pattern\":{\"Regex\":\"");
        buf_printf(&json, "%s\"}}," BYTE_LEVEL "]}", pattern);
    } else {
        buf_printf(&json, ",\"%s\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"%s\"},\"content\":\"a\"}",
                   place == NORMALIZER ? "normalizer" : "decoder", pattern);
    }
    buf_puts(&json, "}");
    ASSERT_OK(tokenizer_parse(&t, json.p, json.n, "test.json", e));
    buf_fini(&json);
    return t;
}

/* n bytes of a unit said again and again, then an end; heap. */
static char *repeat(const char *unit, size_t n, const char *end)
{
    char *text = xmalloc(n + strlen(end) + 1);
    for (size_t i = 0; i < n; i++)
        text[i] = unit[i % strlen(unit)];
    memcpy(text + n, end, strlen(end) + 1);
    return text;
}

static void expect_over_budget(const struct tokenizer *t, const char *pattern, const char *text)
{
    struct ids ids = {0};
    struct err e = {0};
    if (tokenizer_encode(t, text, strlen(text), false, &ids, &e))
        fail_msg("%s: nothing ends it", pattern);
    assert_int_equal(e.code, ERR_LIMIT);
    assert_int_equal(ids.n, 0);
    if (!strstr(e.msg, "pattern"))
        fail_msg("%s: %s", pattern, e.msg);
    ids_free(&ids);
}

/* One call that tries for ever; many calls, each below any limit of its own; repeats that walk over all of the text
 * from each of its bytes without going back. */
static void test_hostile(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *unit, *end;
        size_t n;
    } cases[] = {
        {"(a+)+b", "a", "cb", 5000},
        {"(?:a|a)*b|a", "a", "", 3000},
        {"(?:a?){24}a{24}b|.", "a", "", 200000},
        {"(?=(?:a|b|ab)*c)a|.", "ab", "", 20000},
        {"(?>[^x]*)[xy]|.", "ab", "", 100000},
        {"a*[bc]|.", "a", "", 100000},
        {"a(?=.*[xz])|.", "a", "", 100000},
        {"(?:.*?,){11}P", "a,", "\nP", 3000},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *text = repeat(cases[i].unit, cases[i].n, cases[i].end);
        for (int place = SPLITTER; place <= NORMALIZER; place++) {
            struct tokenizer *t = make(cases[i].pattern, (enum place)place);
            expect_over_budget(t, cases[i].pattern, text);
            /* the tokenizer is as good as before */
            struct ids ids = {0};
            ASSERT_OK(tokenizer_encode(t, "ab", 2, false, &ids, e));
            ids_free(&ids);
            tokenizer_free(t);
        }
        free(text);
    }
}

/* Patterns of well-known models that have no scanner here, on texts that are long runs of one kind. */
static void test_honest(void **state)
{
    (void)state;
    static const char *const patterns[] = {
        /* in the manner of o200k */
        "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]*[\\\\p{Ll}\\\\p{Lm}"
        "\\\\p{Lo}"
        "\\\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}"
        "\\\\p{Lo}"
        "\\\\p{M}]+[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\\\p{N}{1,3}| "
        "?[^\\\\s\\\\p{L}"
        "\\\\p{N}]+[\\\\r\\\\n/]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+",
        "[\\\\r\\\\n]|\\\\s?\\\\p{L}+|\\\\s?\\\\p{P}+|[\\u4e00-\\u9fa5]+|\\\\p{N}",
        "\\\\d{3}|\\\\w+|\\\\s+|.",
        " ",
    };
    static const char *const units[] = {
        "a",     "A",   "aB",   " ",    "\n",           "1",        "!",  ".,",
        " \n\t", "a1 ", "a b ", "It's", "\xe4\xb8\xad", "\xcc\x81", "\r", "Word. "};
    for (size_t p = 0; p < sizeof patterns / sizeof patterns[0]; p++) {
        struct tokenizer *t = make(patterns[p], SPLITTER);
        for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
            char *text = repeat(units[i], 30000 * strlen(units[i]), "");
            struct ids ids = {0};
            ASSERT_OK(tokenizer_encode(t, text, strlen(text), false, &ids, e));
            ids_free(&ids);
            free(text);
        }
        tokenizer_free(t);
    }
}

/* A stream of tokens has one budget, too. */
static void test_decoder(void **state)
{
    (void)state;
    struct tokenizer *t = make("(?:a|b|c)*", DECODER);
    struct buf text;
    buf_init(&text, 1 << 24);
    int32_t ids[1000];
    for (int i = 0; i < 1000; i++)
        ids[i] = i % 2;
    ASSERT_OK(tokenizer_decode(t, ids, 1000, false, &text, e));
    assert_int_equal(text.n, 1000);
    buf_fini(&text);
    tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_honest),
        cmocka_unit_test(test_decoder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
