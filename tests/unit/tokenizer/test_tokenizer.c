/* The tokenizer's parts and limits: flags of added tokens, split behaviors, decoders, NFC, what is refused
 * and how, texts of a megabyte. Expected ids follow from the small vocabularies given here. */
#include "support.h"

#include "base/file.h"
#include "tokenizer/tokenizer.h"

/* Ids 0..2 are "a", "b", the blank (byte level), 3 is "ab"; added tokens follow. */
#define MODEL                                                                                                \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"\\u0120\":2,\"ab\":3},\"merges\":[[\"a\","     \
    "\"b\"]]}"
#define BYTE_LEVEL "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}"
#define SPLIT(regex, behavior)                                                                               \
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" regex          \
    "\"},\"behavior\":\"" behavior "\",\"invert\":false}," BYTE_LEVEL "]}"

static struct tokenizer *parse(const char *json)
{
    struct tokenizer *t = NULL;
    ASSERT_OK(tokenizer_parse(&t, json, strlen(json), "test.json", e));
    return t;
}

static void assert_refused(const char *json, enum err_code code, const char *words)
{
    struct tokenizer *t = NULL;
    struct err err = {0};
    if (tokenizer_parse(&t, json, strlen(json), "test.json", &err))
        fail_msg("accepted: %s", json);
    assert_null(t);
    if (!strstr(err.msg, words) || !strstr(err.msg, "test.json"))
        fail_msg("expected \"%s\" and the file's name in: %s", words, err.msg);
    assert_int_equal(err.code, code);
}

/* expected: ids as "0 1 2" */
static void assert_ids(const struct tokenizer *t, const char *text, size_t n, bool special,
                       const char *expected)
{
    struct ids ids = {0};
    struct buf got;
    buf_init(&got, 1 << 16);
    ASSERT_OK(tokenizer_encode(t, text, n, special, &ids, e));
    for (size_t i = 0; i < ids.n; i++)
        buf_printf(&got, "%s%d", i ? " " : "", (int)ids.p[i]);
    assert_string_equal(got.p ? got.p : "", expected);
    buf_fini(&got);
    ids_free(&ids);
}

static void assert_text(const struct tokenizer *t, const int32_t *ids, size_t n, bool skip,
                        const char *expected)
{
    struct buf text;
    buf_init(&text, 1 << 16);
    ASSERT_OK(tokenizer_decode(t, ids, n, skip, &text, e));
    assert_string_equal(text.p ? text.p : "", expected);
    buf_fini(&text);
}

static void test_added_tokens(void **state)
{
    (void)state;
    struct tokenizer *t = parse("{\"added_tokens\":["
                                "{\"id\":4,\"content\":\"<x>\",\"normalized\":false,\"special\":true},"
                                "{\"id\":5,\"content\":\"<x>a\",\"normalized\":false},"
                                "{\"id\":6,\"content\":\"<l>\",\"normalized\":false,\"lstrip\":true},"
                                "{\"id\":7,\"content\":\"<r>\",\"normalized\":false,\"rstrip\":true},"
                                "{\"id\":8,\"content\":\"ba\",\"normalized\":false,\"single_word\":true},"
                                "{\"id\":77,\"content\":\"e\\u0301\",\"normalized\":true},"
                                "{\"id\":99,\"content\":\"ab\",\"normalized\":false,\"single_word\":true},"
                                "{\"id\":16,\"content\":\"\"}],"
                                "\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":" BYTE_LEVEL
                                ",\"decoder\":{\"type\":\"ByteLevel\"}," MODEL "}");
    assert_ids(t, "ab<x>b", 6, false, "3 4 1");
    assert_ids(t, "<x>ab", 5, false, "5 1"); /* the longest */
    assert_ids(t, "a  <l>  b", 9, false, "0 6 2 2 1");
    assert_ids(t, "a  <r>  b", 9, false, "0 2 2 7 1");
    assert_ids(t, "<r>  <l>", 8, false, "7 6");
    assert_ids(t, "ba ba", 5, false, "8 2 8");
    assert_ids(t, "bab", 3, false, "1 3"); /* inside a word it does not count */
    assert_ids(t, "\xc3\xa9", 2, false, "9");
    assert_ids(t,
               "e\xcc\x81"
               "b",
               4, false, "9 1"); /* matched after normalisation */
    assert_ids(t, "", 0, false, "");
    assert_int_equal(tokenizer_id(t, "<x>a"), 5);
    assert_int_equal(tokenizer_id(t, "ab"), 3);        /* the model's id wins */
    assert_int_equal(tokenizer_id(t, "e\xcc\x81"), 9); /* numbered on, whatever the file says */
    assert_int_equal(tokenizer_id(t, "nothing"), -1);
    assert_int_equal(tokenizer_vocab_size(t), 10);
    assert_null(tokenizer_token(t, -1));
    assert_null(tokenizer_token(t, 10));
    assert_string_equal(tokenizer_token(t, 2), "\xc4\xa0");
    assert_true(tokenizer_is_special(t, 4));
    assert_false(tokenizer_is_special(t, 5));
    assert_false(tokenizer_is_special(t, 1000000));
    assert_text(t, (const int32_t[]){0, 4, 5, 10, -3, 2, 1}, 7, true, "a<x>a b");
    assert_text(t, (const int32_t[]){0, 4, 1}, 3, false, "a<x>b");
    tokenizer_free(t);
}

static void test_split_behaviors(void **state)
{
    (void)state;
    /* "ab" merges unless the split comes between; the pattern cuts at "a" */
    static const struct {
        const char *behavior, *ids;
    } cases[] = {
        {"Isolated", "0 1 2 0 1"},   {"Removed", "1 2 1"},        {"MergedWithPrevious", "0 1 2 0 1"},
        {"MergedWithNext", "3 2 3"}, {"Contiguous", "0 1 2 0 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char json[2048];
        snprintf(json, sizeof json, "{\"pre_tokenizer\":" SPLIT("a", "%s") "," MODEL "}", cases[i].behavior);
        struct tokenizer *t = parse(json);
        assert_ids(t, "ab ab", 5, false, cases[i].ids);
        tokenizer_free(t);
    }
}

static void test_regex_dialect(void **state)
{
    (void)state;
    /* \s is White_Space: U+0085 is in it, U+180E is not; both in and outside of a class */
    static const char *const patterns[] = {"\\\\s", "[\\\\s]", "[^\\\\S]"};
    for (size_t i = 0; i < 3; i++) {
        char json[2048];
        snprintf(json, sizeof json, "{\"pre_tokenizer\":" SPLIT("%s", "Removed") "," MODEL "}", patterns[i]);
        struct tokenizer *t = parse(json);
        assert_ids(t,
                   "a\xc2\x85"
                   "b",
                   4, false, "0 1");
        assert_ids(t,
                   "a\xe1\xa0\x8e"
                   "b",
                   5, false, "3"); /* unknown bytes are dropped, then a and b are one word */
        tokenizer_free(t);
    }
    static const char *const refused[] = {"\\\\h",  "\\\\K", "(?x)a", "(*UTF)a",         "[[a]b]",
                                          "[a&&b]", "a{,3}", "a{2}+", "(a)\\\\1",        "\\\\Qa",
                                          "b(?i)a", "[a",    "(a",    "\\\\p{Nonsense}", "\\\\"};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        char json[2048];
        struct tokenizer *t = NULL;
        struct err err = {0};
        snprintf(json, sizeof json, "{\"pre_tokenizer\":" SPLIT("%s", "Isolated") "," MODEL "}", refused[i]);
        if (tokenizer_parse(&t, json, strlen(json), "test.json", &err))
            fail_msg("accepted the pattern %s", refused[i]);
        assert_true(err.code == ERR_UNSUPPORTED || err.code == ERR_FORMAT);
        assert_non_null(strstr(err.msg, "pattern"));
    }
    /* a pattern that would backtrack for ever is an error of the call, not a hang */
    struct tokenizer *t = parse("{\"pre_tokenizer\":" SPLIT("(?:a+a+)+[bc]", "Isolated") "," MODEL "}");
    char text[5000];
    memset(text, 'a', sizeof text);
    struct ids ids = {0};
    struct err err = {0};
    assert_false(tokenizer_encode(t, text, sizeof text, false, &ids, &err));
    assert_int_equal(err.code, ERR_LIMIT);
    assert_int_equal(ids.n, 0);
    ids_free(&ids);
    tokenizer_free(t);
}

static void test_empty_matches(void **state)
{
    (void)state;
    struct tokenizer *t = parse("{\"pre_tokenizer\":" SPLIT("a*", "Isolated") "," MODEL "}");
    assert_ids(t, "abab", 4, false, "0 1 0 1");
    assert_ids(t, "bb", 2, false, "1 1");
    tokenizer_free(t);
}

static void test_byte_level_options(void **state)
{
    (void)state;
    struct tokenizer *t = parse("{\"pre_tokenizer\":{\"type\":\"ByteLevel\"}," MODEL "}");
    assert_ids(t, "ab b", 4, false, "2 3 2 1"); /* a blank in front, words by GPT-2's pattern */
    assert_ids(t, " ab", 3, false, "2 3");
    tokenizer_free(t);
    t = parse("{\"pre_tokenizer\":" BYTE_LEVEL
              ",\"model\":{\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"],"
              "\"ignore_merges\":true}}");
    assert_ids(t, "ab", 2, false, "2");
    tokenizer_free(t);
    /* a token that no merge makes */
    t = parse("{\"pre_tokenizer\":" BYTE_LEVEL
              ",\"model\":{\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[],"
              "\"ignore_merges\":true}}");
    assert_ids(t, "ab", 2, false, "2");
    assert_ids(t, "aba", 3, false, "0 1 0");
    assert_text(t, (const int32_t[]){0, 2}, 2, false, "a ab"); /* no decoder: blanks between */
    tokenizer_free(t);
}

static void test_characters(void **state)
{
    (void)state;
    struct tokenizer *t =
        parse("{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"_\"},"
              "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{"
              "\"String\":\"_\"},\"content\":"
              "\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}]},"
              "\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\",\"fuse_unk\":true,\"byte_fallback\":true,"
              "\"vocab\":{\"?\":0,"
              "\"_\":1,\"a\":2,\"<0xC3>\":3,\"<0xA9>\":4,\"_a\":5},\"merges\":[\"_ a\"]}}");
    assert_ids(t, "a a", 3, false, "2 5");
    assert_ids(t,
               "\xc3\xa9"
               "a",
               3, false, "3 4 2");
    assert_ids(t, "bcda", 4, false, "0 2"); /* unknown ones are fused */
    assert_text(t, (const int32_t[]){5, 3, 4, 2}, 4, false,
                " a\xc3\xa9"
                "a");
    assert_text(t, (const int32_t[]){3, 2}, 2, false,
                "\xef\xbf\xbd"
                "a");
    assert_text(t, (const int32_t[]){3, 3, 4}, 3, false,
                "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"); /* a run is one */
    tokenizer_free(t);
}

static void test_template(void **state)
{
    (void)state;
    struct tokenizer *t =
        parse("{\"pre_tokenizer\":" BYTE_LEVEL
              ",\"post_processor\":{\"type\":\"Sequence\",\"processors\":[" BYTE_LEVEL
              ",{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"s\",\"type_id\":0}},"
              "{\"Sequence\":{"
              "\"id\":\"A\",\"type_id\":0}},{\"SpecialToken\":{\"id\":\"e\",\"type_id\":0}}],\"pair\":[],"
              "\"special_tokens\":{\"s\":{"
              "\"id\":\"s\",\"ids\":[7]},\"e\":{\"id\":\"e\",\"ids\":[8,9]}}}]}," MODEL "}");
    assert_ids(t, "ab", 2, true, "7 3 8 9");
    assert_ids(t, "ab", 2, false, "3");
    assert_ids(t, "", 0, true, "7 8 9");
    tokenizer_free(t);
}

static void test_refused(void **state)
{
    (void)state;
    assert_refused("", ERR_FORMAT, "empty");
    assert_refused("[]", ERR_FORMAT, "an object");
    assert_refused("{}", ERR_FORMAT, "model");
    assert_refused("{\"model\":{\"vocab\":{\"a\":0}", ERR_FORMAT, "JSON");
    assert_refused("{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", ERR_UNSUPPORTED, "Unigram");
    assert_refused("{\"model\":{\"vocab\":{\"a\":0},\"merges\":{}}}", ERR_FORMAT, "model.merges");
    assert_refused("{\"model\":{\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", ERR_FORMAT, "same id");
    assert_refused("{\"model\":{\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]}}", ERR_FORMAT, "twice");
    assert_refused("{\"model\":{\"vocab\":{\"a\":-1},\"merges\":[]}}", ERR_FORMAT, "an id");
    assert_refused("{\"model\":{\"vocab\":{\"a\":1.5},\"merges\":[]}}", ERR_FORMAT, "an id");
    assert_refused("{\"model\":{\"vocab\":{\"a\":\"1\"},\"merges\":[]}}", ERR_FORMAT, "an id");
    assert_refused("{\"model\":{\"vocab\":{\"a\":99999999999999999999},\"merges\":[]}}", ERR_LIMIT,
                   "at most");
    assert_refused("{\"model\":{\"vocab\":{\"a\":4194304},\"merges\":[]}}", ERR_LIMIT, "at most");
    assert_refused("{\"model\":{\"vocab\":{\"\\ud800\":1},\"merges\":[]}}", ERR_FORMAT, "surrogate");
    assert_refused("{\"model\":{\"vocab\":{\"\\u0000\":1},\"merges\":[]}}", ERR_FORMAT, "U+0000");
    assert_refused("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[[\"a\",\"b\"]]}}", ERR_FORMAT,
                   "not in the vocabulary");
    assert_refused("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"aa\"]}}", ERR_FORMAT, "a pair");
    assert_refused("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]}}", ERR_FORMAT, "a pair");
    assert_refused("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[],\"dropout\":0.1}}", ERR_UNSUPPORTED,
                   "dropout");
    assert_refused("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[],\"unk_token\":\"x\"}}", ERR_FORMAT,
                   "unk_token");
    assert_refused("{\"version\":\"2.0\"," MODEL "}", ERR_UNSUPPORTED, "2.0");
    assert_refused("{\"normalizer\":{\"type\":\"BertNormalizer\"}," MODEL "}", ERR_UNSUPPORTED,
                   "BertNormalizer");
    assert_refused("{\"normalizer\":{\"type\":\"Prepend\"}," MODEL "}", ERR_FORMAT, "Prepend");
    assert_refused(
        "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"\"}," MODEL "}",
        ERR_UNSUPPORTED, "Replace");
    assert_refused(
        "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(\"},\"content\":\"\"}," MODEL "}",
        ERR_UNSUPPORTED, "pattern");
    assert_refused("{\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}," MODEL "}", ERR_UNSUPPORTED,
                   "UnicodeScripts");
    assert_refused("{\"pre_tokenizer\":{\"type\":\"Metaspace\"}," MODEL "}", ERR_FORMAT, "replacement");
    assert_refused("{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"__\"}," MODEL "}",
                   ERR_FORMAT, "one character");
    assert_refused(
        "{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"no\"}," MODEL
        "}",
        ERR_UNSUPPORTED, "prepend_scheme");
    assert_refused(
        "{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"add_prefix_space\":false}," MODEL
        "}",
        ERR_FORMAT, "add_prefix_space");
    assert_refused(
        "{\"normalizer\":{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true},"
        "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"first\"}," MODEL
        "}",
        ERR_UNSUPPORTED, "prepend_scheme");
    assert_refused("{\"decoder\":{\"type\":\"Strip\",\"content\":\"a\",\"start\":100000,\"stop\":0}," MODEL
                   "}",
                   ERR_LIMIT, "Strip");
    assert_refused(
        "{\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":\"Metaspace\","
        "\"replacement\":\"_\"}]}," MODEL "}",
        ERR_UNSUPPORTED, "behind Fuse");
    assert_refused("{\"post_processor\":{\"type\":\"BertProcessing\",\"sep\":[\"a\",0]}," MODEL "}",
                   ERR_FORMAT, "cls");
    assert_refused("{\"pre_tokenizer\":{\"pretokenizers\":[]}," MODEL "}", ERR_FORMAT, "type");
    assert_refused("{\"decoder\":{\"type\":\"WordPiece\"}," MODEL "}", ERR_UNSUPPORTED, "WordPiece");
    assert_refused("{\"post_processor\":{\"type\":\"Nothing\"}," MODEL "}", ERR_UNSUPPORTED, "Nothing");
    assert_refused("{\"added_tokens\":[{\"id\":4194304,\"content\":\"x\"}]," MODEL "}", ERR_FORMAT, "id");
    assert_refused("{\"added_tokens\":[{\"content\":\"x\"}]," MODEL "}", ERR_FORMAT, "id");
    assert_refused("{\"added_tokens\":[7]," MODEL "}", ERR_FORMAT, "added_tokens");
    assert_refused("{\"x\":\"\xff\"," MODEL "}", ERR_FORMAT, "UTF-8");

    struct tokenizer *t = NULL;
    struct err err = {0};
    assert_false(tokenizer_open(&t, MILKIT_TEST_DATA "/tokenizers/nothing-here", &err));
    assert_int_equal(err.code, ERR_IO);
    assert_non_null(strstr(err.msg, "nothing-here"));
}

/* The file beside tokenizer.json asks twice before blanks go: so does transformers for BPE. */
static void test_clean_up(void **state)
{
    (void)state;
    static const struct {
        const char *config, *text;
    } cases[] = {
        {NULL, "a , b"},
        {"{\"clean_up_tokenization_spaces\":true}", "a , b"},
        {"{\"clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output\":true}", "a , b"},
        {"{\"clean_up_tokenization_spaces\":true,"
         "\"clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output\":true}",
         "a, b"},
    };
    static const char json[] =
        "{\"decoder\":{\"type\":\"ByteLevel\"},\"pre_tokenizer\":" BYTE_LEVEL
        ",\"model\":{\"vocab\":{\"a\":0,\"b\":1,\"\\u0120\":2,\",\":3},\"merges\":[]}}";
    const char *folder = "tokenizer_clean_up";
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tokenizer *t = NULL;
        path_remove_tree(folder, NULL);
        ASSERT_OK(folder_make(folder, e));
        ASSERT_OK(file_write("tokenizer_clean_up/tokenizer.json", json, strlen(json), e));
        if (cases[i].config)
            ASSERT_OK(file_write("tokenizer_clean_up/tokenizer_config.json", cases[i].config,
                                 strlen(cases[i].config), e));
        ASSERT_OK(tokenizer_open(&t, folder, e));
        assert_text(t, (const int32_t[]){0, 2, 3, 2, 1}, 5, false, cases[i].text);
        tokenizer_free(t);
    }
    static const char bad[] = "{\"clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output\":";
    struct tokenizer *t = NULL;
    struct err err = {0};
    ASSERT_OK(file_write("tokenizer_clean_up/tokenizer_config.json", bad, strlen(bad), e));
    assert_false(tokenizer_open(&t, folder, &err));
    assert_non_null(strstr(err.msg, "tokenizer_config.json"));
    path_remove_tree(folder, NULL);
}

/* Long texts of characters are cut where no merge joins; that must not show, nor where byte tokens merge. */
static void test_cuts(void **state)
{
    (void)state;
    struct buf json;
    buf_init(&json, 1 << 20);
    for (int with_byte_merge = 0; with_byte_merge < 2; with_byte_merge++) {
        buf_clear(&json);
        buf_puts(&json, "{\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"vocab\":{");
        for (int b = 0; b < 256; b++)
            buf_printf(&json, "\"<0x%02X>\":%d,", (unsigned)b, b);
        buf_puts(&json,
                 "\"a\":256,\"b\":257,\"c\":258,\"ab\":259,\"abc\":260,\"<0xC3><0xA9>\":261,\"bc\":262},"
                 "\"merges\":[\"b c\",\"a b\",\"ab c\"");
        buf_puts(&json, with_byte_merge ? ",\"<0xC3> <0xA9>\"]}}" : "]}}");
        struct tokenizer *t = parse(json.p);
        assert_ids(t, "abcacb", 6, false, "256 262 256 258 257");
        assert_ids(t,
                   "ab\xc3\xa9"
                   "ba",
                   6, false, with_byte_merge ? "259 261 257 256" : "259 195 169 257 256");
        assert_ids(t, "\xc3\xa9\xc3\xa9", 4, false, with_byte_merge ? "261 261" : "195 169 195 169");
        tokenizer_free(t);
    }
    buf_fini(&json);
}

/* Every prefix of a real file is refused, none is read beyond its end. */
static void test_cut_files(void **state)
{
    (void)state;
    char *json;
    size_t n;
    ASSERT_OK(file_read(&json, &n, MILKIT_TEST_DATA "/models/qwen3-tiny/tokenizer.json", 1 << 20, e));
    for (size_t cut = 0; cut + 2 < n; cut += cut < 3000 ? 7 : 991) {
        char *part = malloc(cut + 1);
        assert_non_null(part);
        memcpy(part, json, cut);
        struct tokenizer *t = NULL;
        struct err err = {0};
        assert_false(tokenizer_parse(&t, part, cut, "cut", &err));
        free(part);
    }
    free(json);
}

/* Broken bytes in, U+FFFD out, as many as Python makes of them. */
static void test_broken_utf8(void **state)
{
    (void)state;
    static const struct {
        const char *bytes, *text;
    } cases[] = {
        {"a\xff"
         "b",
         "a\xef\xbf\xbd"
         "b"},
        {"\xe2\x82", "\xef\xbf\xbd"},
        {"\xe2\x82"
         "a",
         "\xef\xbf\xbd"
         "a"},
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xf0\x9f\x98"
         "x",
         "\xef\xbf\xbd"
         "x"},
        {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xc0\x80", "\xef\xbf\xbd\xef\xbf\xbd"},
    };
    struct tokenizer *t = NULL;
    ASSERT_OK(tokenizer_open(&t, MILKIT_TEST_DATA "/models/qwen3-tiny", e));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ids ids = {0}, same = {0};
        ASSERT_OK(tokenizer_encode(t, cases[i].bytes, strlen(cases[i].bytes), false, &ids, e));
        ASSERT_OK(tokenizer_encode(t, cases[i].text, strlen(cases[i].text), false, &same, e));
        assert_int_equal(ids.n, same.n);
        assert_memory_equal(ids.p, same.p, ids.n * sizeof *ids.p);
        assert_text(t, ids.p, ids.n, false, cases[i].text);
        ids_free(&ids);
        ids_free(&same);
    }
    tokenizer_free(t);
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* A megabyte as one word, and of every kind of trouble. Quadratic time anywhere would show as minutes. */
static void test_long_texts(void **state)
{
    (void)state;
    struct tokenizer *t = NULL;
    ASSERT_OK(tokenizer_open(&t, MILKIT_TEST_DATA "/models/qwen3-tiny", e));
    const size_t n = 1 << 20;
    char *text = malloc(n);
    assert_non_null(text);
    uint32_t seed = 1;
    for (int kind = 0; kind < 8; kind++) {
        if (kind < 5)
            memset(text, "a \n<1"[kind], n);
        for (size_t i = 0; i < n && kind == 5; i++)
            text[i] = (char)next_random(&seed);
        for (size_t i = 0; i < n && kind == 6; i++)
            text[i] = (char)('a' + next_random(&seed) % 26);
        /* marks of two classes: sorting them must not be quadratic either */
        for (size_t i = 0; i < n && kind == 7; i += 2)
            memcpy(text + i, next_random(&seed) % 2 ? "\xcc\x81" : "\xcc\xa3", 2);
        struct ids ids = {0};
        struct buf back;
        buf_init(&back, n * 4);
        ASSERT_OK(tokenizer_encode(t, text, n, false, &ids, e));
        assert_true(ids.n > 0);
        ASSERT_OK(tokenizer_decode(t, ids.p, ids.n, false, &back, e));
        if (kind < 5 || kind == 6) {
            assert_int_equal(back.n, n);
            assert_memory_equal(back.p, text, n);
        }
        if (kind == 7) { /* all marks below come first */
            assert_int_equal(back.n, n);
            assert_memory_equal(back.p, "\xcc\xa3\xcc\xa3", 4);
            assert_memory_equal(back.p + n - 4, "\xcc\x81\xcc\x81", 4);
        }
        buf_fini(&back);
        ids_free(&ids);
    }
    free(text);
    tokenizer_free(t);
}

/* A random vocabulary and the definition of BPE, written down once more: merge the lowest rank, leftmost
 * first. */
struct naive_bpe {
    char tokens[80][16];
    int n_tokens;
    int left[80], right[80], made[80];
    int n_merges;
};

static void naive_make(struct naive_bpe *b, uint32_t *seed, struct buf *json)
{
    *b = (struct naive_bpe){.n_tokens = 4};
    for (int i = 0; i < 4; i++)
        b->tokens[i][0] = (char)('a' + i);
    while (b->n_tokens < 80 && b->n_merges < 80) {
        int left = (int)(next_random(seed) % (uint32_t)b->n_tokens),
            right = (int)(next_random(seed) % (uint32_t)b->n_tokens);
        char joined[32];
        snprintf(joined, sizeof joined, "%s%s", b->tokens[left], b->tokens[right]);
        int made = 0;
        while (made < b->n_tokens && strcmp(b->tokens[made], joined) != 0)
            made++;
        if (strlen(joined) > 12)
            continue;
        if (made == b->n_tokens)
            memcpy(b->tokens[b->n_tokens++], joined, strlen(joined) + 1);
        b->left[b->n_merges] = left;
        b->right[b->n_merges] = right;
        b->made[b->n_merges++] = made;
        for (int i = 0; i + 1 < b->n_merges; i++)
            if (b->left[i] == left && b->right[i] == right) /* a pair has one rank */
                b->n_merges--;
    }
    buf_puts(json, "{\"pre_tokenizer\":" BYTE_LEVEL ",\"model\":{\"vocab\":{");
    for (int i = 0; i < b->n_tokens; i++)
        buf_printf(json, "%s\"%s\":%d", i ? "," : "", b->tokens[i], i);
    buf_puts(json, "},\"merges\":[");
    for (int i = 0; i < b->n_merges; i++)
        buf_printf(json, "%s[\"%s\",\"%s\"]", i ? "," : "", b->tokens[b->left[i]], b->tokens[b->right[i]]);
    buf_puts(json, "]}}");
}

static int naive_encode(const struct naive_bpe *b, const char *text, int n, int32_t *ids)
{
    for (int i = 0; i < n; i++)
        ids[i] = text[i] - 'a';
    for (int rank = 0; rank < b->n_merges; rank++) {
        int i = 0;
        while (i + 1 < n && (ids[i] != b->left[rank] || ids[i + 1] != b->right[rank]))
            i++;
        if (i + 1 >= n)
            continue;
        ids[i] = b->made[rank];
        memmove(ids + i + 1, ids + i + 2, (size_t)(n - i - 2) * sizeof *ids);
        n--;
        rank = -1; /* from the lowest again */
    }
    return n;
}

static void test_words_as_defined(void **state)
{
    (void)state;
    uint32_t seed = 7;
    for (int round = 0; round < 60; round++) {
        struct naive_bpe naive;
        struct buf json;
        buf_init(&json, 1 << 20);
        naive_make(&naive, &seed, &json);
        struct tokenizer *t = parse(json.p);
        for (int i = 0; i < 12; i++) {
            char text[300];
            int32_t want[300];
            int n =
                1 + (int)(next_random(&seed) % (i < 6 ? 60 : 300)); /* short and long have their own ways */
            for (int k = 0; k < n; k++)
                text[k] = (char)('a' + next_random(&seed) % (i % 2 ? 4 : 2));
            int n_want = naive_encode(&naive, text, n, want);
            struct ids got = {0};
            ASSERT_OK(tokenizer_encode(t, text, (size_t)n, false, &got, e));
            assert_int_equal(got.n, n_want);
            assert_memory_equal(got.p, want, got.n * sizeof *got.p);
            ids_free(&got);
        }
        tokenizer_free(t);
        buf_fini(&json);
    }
}

/* Texts over some kilobytes remember words; that must not show. */
static void test_word_cache(void **state)
{
    (void)state;
    struct tokenizer *t = NULL;
    ASSERT_OK(tokenizer_open(&t, MILKIT_TEST_DATA "/models/qwen3-tiny", e));
    uint32_t seed = 3;
    struct buf text;
    struct ids all = {0}, parts = {0};
    buf_init(&text, 1 << 20);
    for (int line = 0; line < 4000; line++) {
        char word[32];
        size_t n = 1 + next_random(&seed) % 24;
        for (size_t i = 0; i < n; i++)
            word[i] = "theranious"[next_random(&seed) % 4];
        word[n++] = '\n';
        buf_append(&text, word, n);
        ASSERT_OK(tokenizer_encode(t, word, n, false, &parts, e));
    }
    ASSERT_OK(tokenizer_encode(t, text.p, text.n, false, &all, e));
    assert_int_equal(all.n, parts.n);
    assert_memory_equal(all.p, parts.p, all.n * sizeof *all.p);
    ids_free(&all);
    ids_free(&parts);
    buf_fini(&text);
    tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_added_tokens),       cmocka_unit_test(test_split_behaviors),
        cmocka_unit_test(test_regex_dialect),      cmocka_unit_test(test_empty_matches),
        cmocka_unit_test(test_byte_level_options), cmocka_unit_test(test_characters),
        cmocka_unit_test(test_clean_up),           cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_template),           cmocka_unit_test(test_refused),
        cmocka_unit_test(test_cut_files),          cmocka_unit_test(test_broken_utf8),
        cmocka_unit_test(test_long_texts),         cmocka_unit_test(test_words_as_defined),
        cmocka_unit_test(test_word_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
