/* Tokens and flags that only the files beside a tokenizer.json declare, against the answers of transformers: ids, and the
 * decoded text without special tokens. And what those files can hold that is wrong. */
#include "support.h"

#include "base/file.h"
#include "format/json_line.h"
#include "tokenizer/tokenizer.h"

#define DATA MILKIT_TEST_DATA "/tokenizers/"

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "test_declared.XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return path_remove_tree(folder, NULL) ? 0 : -1;
}

static const char *const files[] = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                                    "added_tokens.json", "config.json"};

/* text NULL: no such file. */
static void put(const char *name, const char *text)
{
    char *path = path_join(folder, name);
    if (text) {
        FILE *f = fopen(path, "w"); /* not synced, as file_write does: there are hundreds of them */
        assert_non_null(f);
        assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
        assert_int_equal(fclose(f), 0);
    } else {
        assert_true(path_remove_tree(path, NULL));
    }
    free(path);
}

static void put_json(const char *name, const cJSON *item)
{
    char *text = item && !cJSON_IsNull(item) ? cJSON_PrintUnformatted(item) : NULL;
    put(name, text);
    cJSON_free(text);
}

/* base: "bytes" or "blanks". */
static cJSON *base_tokenizer(const char *base)
{
    cJSON *root = NULL;
    char *path = xasprintf("%s%s.tokenizer.json", DATA, base);
    ASSERT_OK(json_read_file(&root, path, 1 << 20, e));
    free(path);
    return root;
}

static void check_case(const struct tokenizer *t, const char *name, const cJSON *c)
{
    struct ids got = {0};
    struct buf text, want, decoded;
    buf_init(&text, 1 << 16);
    buf_init(&want, 1 << 16);
    buf_init(&decoded, 1 << 16);
    json_line_string(&text, json_get(c, "text"));
    json_line_string(&want, json_get(c, "decoded"));
    ASSERT_OK(tokenizer_encode(t, text.p, text.n, true, &got, e));
    size_t n = 0;
    bool same = true;
    for (const cJSON *id = json_get(c, "ids")->child; id; id = id->next, n++)
        same = same && n < got.n && got.p[n] == (int32_t)id->valuedouble;
    if (!same || n != got.n) {
        for (size_t i = 0; i < got.n; i++)
            print_error("%d ", got.p[i]);
        fail_msg("%s: \"%.*s\": other ids than transformers", name, (int)text.n, text.p);
    }
    ASSERT_OK(tokenizer_decode(t, got.p, got.n, true, &decoded, e));
    if (decoded.n != want.n || (want.n > 0 && memcmp(decoded.p, want.p, want.n) != 0))
        fail_msg("%s: \"%.*s\": decoded as \"%.*s\", not \"%.*s\"", name, (int)text.n, text.p, (int)decoded.n,
                 decoded.p ? decoded.p : "", (int)want.n, want.p ? want.p : "");
    ids_free(&got);
    buf_fini(&text);
    buf_fini(&want);
    buf_fini(&decoded);
}

static void test_like_transformers(void **state)
{
    (void)state;
    char *text = NULL;
    size_t bytes;
    int n = 0;
    ASSERT_OK(file_read(&text, &bytes, DATA "declared.jsonl", 1 << 24, e));
    for (char *p = text, *end; p < text + bytes; p = end + 1, n++) {
        end = strchr(p, '\n') ? strchr(p, '\n') : text + bytes;
        cJSON *item = NULL;
        struct tokenizer *t = NULL;
        const char *base = "", *model = "";
        ASSERT_OK(json_line_parse(&item, p, (size_t)(end - p), "declared.jsonl", e));
        ASSERT_OK(json_get_string(item, "base", &base, "declared.jsonl", e));
        ASSERT_OK(json_get_string(item, "model", &model, "declared.jsonl", e));
        cJSON *root = base_tokenizer(base);
        char *config = xasprintf("{\"model_type\": \"%s\"}", model);
        for (const cJSON *m = json_get(item, "replace")->child; m; m = m->next) {
            cJSON_DeleteItemFromObjectCaseSensitive(root, m->string);
            cJSON_AddItemToObject(root, m->string, cJSON_Duplicate(m, true));
        }
        put_json("tokenizer.json", root);
        put_json("tokenizer_config.json", json_get(item, "config"));
        put_json("special_tokens_map.json", json_get(item, "map"));
        put_json("added_tokens.json", json_get(item, "added"));
        put("config.json", config);
        free(config);
        const char *name = "";
        ASSERT_OK(json_get_string(item, "name", &name, "declared.jsonl", e));
        ASSERT_OK(tokenizer_open(&t, folder, e));
        for (const cJSON *c = json_get(item, "cases")->child; c; c = c->next)
            check_case(t, name, c);
        tokenizer_free(t);
        cJSON_Delete(item);
        cJSON_Delete(root);
    }
    free(text);
    assert_int_equal(n, 245);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        put(files[i], NULL);
}

/* One file that is broken, or holds something else than it can: an error that names the file. */
static void test_broken(void **state)
{
    (void)state;
    static const struct {
        const char *file, *text;
    } bad[] = {
        {"tokenizer_config.json", "{\"added_tokens_decoder\": {"},
        {"tokenizer_config.json", ""},
        {"tokenizer_config.json", "[]"},
        {"tokenizer_config.json", "{\"added_tokens_decoder\": []}"},
        {"tokenizer_config.json", "{\"added_tokens_decoder\": {\"x\": {\"content\": \"a\"}}}"},
        {"tokenizer_config.json", "{\"added_tokens_decoder\": {\"-1\": {\"content\": \"a\"}}}"},
        {"tokenizer_config.json", "{\"added_tokens_decoder\": {\"1\": \"a\"}}"},
        {"tokenizer_config.json", "{\"added_tokens_decoder\": {\"1\": {\"lstrip\": true}}}"},
        {"tokenizer_config.json", "{\"added_tokens_decoder\": {\"1\": {\"content\": \"a\", \"lstrip\": 1}}}"},
        {"tokenizer_config.json", "{\"additional_special_tokens\": [1]}"},
        {"tokenizer_config.json", "{\"eos_token\": {\"content\": 1}}"},
        {"tokenizer_config.json", "{\"tokenizer_class\": 1}"},
        {"tokenizer_config.json", "{\"x\": \"\xe1\xe1\"}"},
        {"special_tokens_map.json", "{\"eos_token\": \"\xe1\"}"},
        {"added_tokens.json", "{\"<\xe1\": 258}"},
        {"special_tokens_map.json", "{"},
        {"special_tokens_map.json", "3"},
        {"added_tokens.json", "{\"a\": \"b\"}"},
        {"added_tokens.json", "{\"a\": -1}"},
        {"added_tokens.json", "{\"a\": 1e300}"},
        {"added_tokens.json", "[\"a\"]"},
    };
    cJSON *root = base_tokenizer("bytes");
    put_json("tokenizer.json", root);
    cJSON_Delete(root);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct tokenizer *t = NULL;
        struct err e = {0};
        put(bad[i].file, bad[i].text);
        if (tokenizer_open(&t, folder, &e))
            fail_msg("%s %s is accepted", bad[i].file, bad[i].text);
        assert_null(t);
        assert_int_equal(e.code, ERR_FORMAT);
        if (!strstr(e.msg, bad[i].file))
            fail_msg("%s is not named: %s", bad[i].file, e.msg);
        put(bad[i].file, NULL);
    }
}

/* What others write in the place of a token counts as none; older writers leave "__type" out. */
static void test_tolerated(void **state)
{
    (void)state;
    static const char *const texts[] = {"{\"pad_token\": false}", "{\"eos_token\": 3, \"x_token\": [1]}",
                                        "{\"pad_token\": {\"content\": \"<|new|>\", \"lstrip\": false}}"};
    cJSON *root = base_tokenizer("bytes");
    put_json("tokenizer.json", root);
    cJSON_Delete(root);
    for (int i = 0; i < 3; i++) {
        struct tokenizer *t = NULL;
        put("tokenizer_config.json", texts[i]);
        ASSERT_OK(tokenizer_open(&t, folder, e));
        assert_int_equal(tokenizer_id(t, "<|new|>"), i == 2 ? 258 : -1);
        assert_true(i != 2 || tokenizer_is_special(t, 258));
        tokenizer_free(t);
    }
    put("tokenizer_config.json", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_like_transformers),
        cmocka_unit_test(test_broken),
        cmocka_unit_test(test_tolerated),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
