/* The tokenizer against the answers of the library: ids, decoded text, and the same text streamed id by id.
 */
#include "support.h"

#include "base/file.h"
#include "format/json_line.h"
#include "tokenizer/tokenizer.h"

#define DATA MILKIT_TEST_DATA "/tokenizers/"
#define GOLDEN MILKIT_SHARED "/tokenizers/golden/"

static int n_bad;

static void complain(const char *file, int line, const char *what)
{
    if (n_bad++ < 20)
        print_error("%s:%d: %s differs\n", file, line, what);
}

static struct ids read_ids(const cJSON *list)
{
    struct ids ids = {0};
    assert_true(cJSON_IsArray(list));
    for (const cJSON *item = list->child; item; item = item->next)
        ids_push(&ids, (int32_t)item->valuedouble);
    return ids;
}

static bool same_ids(const struct ids *a, const struct ids *b)
{
    return a->n == b->n && (a->n == 0 || memcmp(a->p, b->p, a->n * sizeof *a->p) == 0);
}

static bool same_text(const struct buf *a, const struct buf *b)
{
    return a->n == b->n && (a->n == 0 || memcmp(a->p, b->p, a->n) == 0);
}

static void check_decode(const struct tokenizer *t, const struct ids *ids, const cJSON *expected, bool skip,
                         const char *file, int line)
{
    struct buf want, whole, streamed;
    buf_init(&want, 1 << 20);
    buf_init(&whole, 1 << 20);
    buf_init(&streamed, 1 << 20);
    json_line_string(&want, expected);
    ASSERT_OK(tokenizer_decode(t, ids->p, ids->n, skip, &whole, e));
    if (!same_text(&want, &whole))
        complain(file, line, skip ? "decoded_skip" : "decoded");
    struct token_stream *s = token_stream_new(t, skip);
    for (size_t i = 0; i < ids->n; i++) {
        ASSERT_OK(token_stream_push(s, ids->p[i], &streamed, e));
        /* nothing is taken back, and what was given ends with a whole character */
        assert_true(streamed.n <= want.n);
        if (streamed.n < want.n)
            assert_true(((uint8_t)want.p[streamed.n] & 0xc0) != 0x80);
    }
    ASSERT_OK(token_stream_flush(s, &streamed, e));
    if (!same_text(&want, &streamed))
        complain(file, line, "streamed text");
    token_stream_free(s);
    buf_fini(&want);
    buf_fini(&whole);
    buf_fini(&streamed);
}

static void check_encode(const struct tokenizer *t, const cJSON *text, const cJSON *expected, bool special,
                         const char *file, int line)
{
    struct ids want = read_ids(expected), got = {0};
    struct buf bytes;
    buf_init(&bytes, 1 << 20);
    json_line_string(&bytes, text);
    ASSERT_OK(tokenizer_encode(t, bytes.p, bytes.n, special, &got, e));
    if (!same_ids(&want, &got))
        complain(file, line, special ? "ids_special" : "ids");
    ids_free(&want);
    ids_free(&got);
    buf_fini(&bytes);
}

/* Every line of a golden file; returns how many there were. */
static int check_file(const struct tokenizer *t, const char *file)
{
    char *text = NULL;
    size_t bytes;
    int line = 0;
    ASSERT_OK(file_read(&text, &bytes, file, 64 << 20, e));
    for (char *p = text, *end; p < text + bytes; p = end + 1) {
        end = strchr(p, '\n') ? strchr(p, '\n') : text + bytes;
        cJSON *item = NULL;
        line++;
        ASSERT_OK(json_line_parse(&item, p, (size_t)(end - p), file, e));
        const cJSON *source = json_get(item, "text"), *ids = json_get(item, "ids");
        const cJSON *all = json_get(item, "ids_special");
        if (source) {
            check_encode(t, source, ids, false, file, line);
            check_encode(t, source, all, true, file, line);
        }
        struct ids list = read_ids(all ? all : ids);
        check_decode(t, &list, json_get(item, "decoded"), false, file, line);
        check_decode(t, &list, json_get(item, "decoded_skip"), true, file, line);
        ids_free(&list);
        cJSON_Delete(item);
    }
    free(text);
    return line;
}

static void check_tokenizer(const char *path, const char *encode_file, const char *decode_file)
{
    struct tokenizer *t = NULL;
    ASSERT_OK(tokenizer_open(&t, path, e));
    n_bad = 0;
    assert_int_equal(check_file(t, encode_file), 158);
    if (decode_file)
        assert_int_equal(check_file(t, decode_file), 45);
    tokenizer_free(t);
    assert_int_equal(n_bad, 0);
}

static void test_tiny(void **state)
{
    (void)state;
    check_tokenizer(MILKIT_TEST_DATA "/models/qwen3-tiny", DATA "tiny.encode.jsonl",
                    DATA "tiny.decode.jsonl");
}

static void test_tiny35(void **state)
{
    (void)state;
    check_tokenizer(MILKIT_TEST_DATA "/tokenizers/tiny35.tokenizer.json", DATA "tiny35.encode.jsonl", NULL);
}

static void test_qwen3(void **state)
{
    (void)state;
    SKIP_WITHOUT_SHARED();
    check_tokenizer(MILKIT_SHARED "/tokenizers/qwen3", GOLDEN "qwen3.encode.jsonl",
                    GOLDEN "qwen3.decode.jsonl");
}

static void test_llama3_1(void **state)
{
    (void)state;
    SKIP_WITHOUT_SHARED();
    check_tokenizer(MILKIT_SHARED "/tokenizers/llama3_1", GOLDEN "llama3_1.encode.jsonl",
                    GOLDEN "llama3_1.decode.jsonl");
}

static void test_gemma3(void **state)
{
    (void)state;
    SKIP_WITHOUT_SHARED();
    check_tokenizer(MILKIT_SHARED "/tokenizers/gemma3", GOLDEN "gemma3.encode.jsonl",
                    GOLDEN "gemma3.decode.jsonl");
}

/* qwen3 with the split pattern of tiny35: both are cut out of their files as text. */
static void test_qwen3_marks(void **state)
{
    (void)state;
    SKIP_WITHOUT_SHARED();
    char *donor, *taker;
    size_t n_donor, n_taker;
    ASSERT_OK(file_read(&donor, &n_donor, MILKIT_TEST_DATA "/tokenizers/tiny35.tokenizer.json", 1 << 20, e));
    ASSERT_OK(file_read(&taker, &n_taker, MILKIT_SHARED "/tokenizers/qwen3/tokenizer.json", 64 << 20, e));
    char *from = strstr(donor, "(?i:"), *to = strstr(taker, "(?i:");
    assert_non_null(from);
    assert_non_null(to);
    size_t n_from = (size_t)(strchr(from, '"') - from), n_to = (size_t)(strchr(to, '"') - to);
    assert_true(n_from > n_to);
    struct buf json;
    buf_init(&json, 64 << 20);
    buf_append(&json, taker, (size_t)(to - taker));
    buf_append(&json, from, n_from);
    buf_puts(&json, to + n_to);
    struct tokenizer *t = NULL;
    ASSERT_OK(tokenizer_parse(&t, json.p, json.n, "qwen3_marks", e));
    n_bad = 0;
    assert_int_equal(check_file(t, GOLDEN "qwen3_marks.encode.jsonl"), 158);
    assert_int_equal(n_bad, 0);
    tokenizer_free(t);
    buf_fini(&json);
    free(donor);
    free(taker);
}

/* A tokenizer with other added tokens, normalizers, pre-tokenizers, decoders and post-processors. */
static void check_variants(const char *base_file, const char *file, int n_expected)
{
    cJSON *base = NULL;
    char *text;
    size_t bytes;
    int n_lines = 0;
    n_bad = 0;
    ASSERT_OK(json_read_file(&base, base_file, 1 << 20, e));
    ASSERT_OK(file_read(&text, &bytes, file, 16 << 20, e));
    for (char *p = text, *end; p < text + bytes; p = end + 1, n_lines++) {
        end = strchr(p, '\n');
        cJSON *line = NULL, *json = cJSON_Duplicate(base, true);
        ASSERT_OK(json_line_parse(&line, p, (size_t)(end - p), file, e));
        const char *name = json_get(line, "name")->valuestring;
        for (const cJSON *part = json_get(line, "replace")->child; part; part = part->next)
            cJSON_ReplaceItemInObjectCaseSensitive(json, part->string, cJSON_Duplicate(part, true));
        char *printed = cJSON_PrintUnformatted(json);
        struct tokenizer *t = NULL;
        ASSERT_OK(tokenizer_parse(&t, printed, strlen(printed), name, e));
        tokenizer_set_clean_up(t, cJSON_IsTrue(json_get(line, "clean_up")));
        for (const cJSON *c = json_get(line, "cases")->child; c; c = c->next) {
            const cJSON *plain = json_get(c, "ids"), *special = json_get(c, "ids_special");
            struct ids ids = read_ids(plain);
            check_encode(t, json_get(c, "text"), plain, false, name, n_lines);
            check_encode(t, json_get(c, "text"), special ? special : plain, true, name, n_lines);
            check_decode(t, &ids, json_get(c, "decoded"), false, name, n_lines);
            ids_free(&ids);
        }
        tokenizer_free(t);
        free(printed);
        cJSON_Delete(json);
        cJSON_Delete(line);
    }
    assert_int_equal(n_lines, n_expected);
    assert_int_equal(n_bad, 0);
    free(text);
    cJSON_Delete(base);
}

static void test_variants(void **state)
{
    (void)state;
    check_variants(MILKIT_TEST_DATA "/models/qwen3-tiny/tokenizer.json", DATA "variants.jsonl", 42);
}

static void test_characters(void **state)
{
    (void)state;
    check_variants(DATA "characters.tokenizer.json", DATA "characters.variants.jsonl", 15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiny),     cmocka_unit_test(test_tiny35),
        cmocka_unit_test(test_qwen3),    cmocka_unit_test(test_llama3_1),
        cmocka_unit_test(test_gemma3),   cmocka_unit_test(test_qwen3_marks),
        cmocka_unit_test(test_variants), cmocka_unit_test(test_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
