// links: tokenizer
/* Characters: classes, normal forms and words against what the tokenizers library says of every code point, and the
 * scanners of well-known patterns against PCRE2. */
#include "support.h"

#include "base/file.h"
#include "format/json.h"
#include "tokenizer/tokenizer_internal.h"
#include "unicode/unicode.h"
#include "base/utf8.h"

#define DATA MILKIT_TEST_DATA "/unicode/"
#define END 0x110000u
#define BLOCK 0x4000u

static bool is_surrogate(uint32_t cp)
{
    return cp >= 0xd800 && cp < 0xe000;
}

static const char *const category_names[] = {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl",
                                             "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc",
                                             "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cn"};

/* --- classes --------------------------------------------------------------------------------------------------- */

/* Marks the members of a line of classes.txt; returns its name. */
static void read_class(char *line, char name[32], uint8_t *members)
{
    memset(members, 0, END);
    uint32_t at = 0;
    char *save = NULL, *word = strtok_r(line, " ", &save);
    snprintf(name, 32, "%s", word);
    while ((word = strtok_r(NULL, " ", &save))) {
        unsigned skipped, count;
        assert_int_equal(sscanf(word, "%x:%x", &skipped, &count), 2);
        at += skipped;
        assert_true(at + count <= END);
        memset(members + at, 1, count);
        at += count;
    }
}

/* All code points as text; starts[cp]: where it is. */
static char *all_text(size_t *n, uint32_t *cp_at)
{
    char *text = malloc(4 * END);
    assert_non_null(text);
    *n = 0;
    for (uint32_t cp = 0; cp < END; cp++) {
        if (is_surrogate(cp))
            continue;
        cp_at[*n] = cp;
        *n += utf8_put(text + *n, cp);
    }
    cp_at[*n] = END;
    return text;
}

/* What a pattern matches, asked in runs. */
static void check_pattern(const char *name, const uint8_t *members, const char *text, size_t n,
                          const uint32_t *cp_at)
{
    char pattern[64];
    snprintf(pattern, sizeof pattern, name[0] == '\\' ? "%s+" : "\\p{%s}+", name);
    struct regex *regex = NULL;
    struct regex_scratch *scratch = regex_scratch_new(n);
    ASSERT_OK(regex_new(&regex, pattern, e));
    uint8_t *found = calloc(END, 1);
    assert_non_null(found);
    size_t done = 0;
    for (;;) {
        bool is_found;
        size_t begin, end;
        ASSERT_OK(regex_find(regex, scratch, text, n, done, SIZE_MAX, &is_found, &begin, &end, e));
        if (!is_found)
            break;
        for (uint32_t cp = cp_at[begin]; cp < cp_at[end]; cp++)
            found[cp] = !is_surrogate(cp);
        done = end;
    }
    for (uint32_t cp = 0; cp < END; cp++)
        if (found[cp] != members[cp])
            fail_msg("%s: U+%04X is %s", pattern, (unsigned)cp, found[cp] ? "in it" : "not in it");
    free(found);
    regex_scratch_free(scratch);
    regex_free(regex);
}

static void check_function(const char *name, const uint8_t *members)
{
    const bool is_word = strcmp(name, "single_word") == 0;
    const bool is_white = strcmp(name, "rstrip") == 0 || strcmp(name, "\\s") == 0;
    for (uint32_t cp = 0; cp < END; cp++) {
        if (is_surrogate(cp))
            continue;
        const char *category = category_names[unicode_category(cp)];
        bool is_member = is_word    ? unicode_is_word(cp)
                         : is_white ? unicode_is_white(cp)
                                    : category[0] == name[0] && strcmp(category, name) == 0;
        if (is_member != members[cp])
            fail_msg("%s: U+%04X is %s", name, (unsigned)cp, is_member ? "in it" : "not in it");
    }
}

static void test_classes(void **state)
{
    (void)state;
    char *file, *save = NULL, name[32];
    size_t bytes, n;
    int n_classes = 0;
    uint8_t *members = malloc(END);
    uint32_t *cp_at = malloc((4 * END + 1) * sizeof *cp_at);
    assert_non_null(members);
    assert_non_null(cp_at);
    char *text = all_text(&n, cp_at);
    ASSERT_OK(file_read(&file, &bytes, DATA "classes.txt", 1 << 20, e));
    for (char *line = strtok_r(file, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        if (*line == '#')
            continue;
        n_classes++;
        read_class(line, name, members);
        bool is_category = name[1] && !name[2] && name[0] != '\\';
        bool has_function = is_category || strcmp(name, "\\s") == 0;
        bool has_pattern = strcmp(name, "single_word") != 0 && strcmp(name, "rstrip") != 0;
        if (has_function || !has_pattern)
            check_function(name, members);
        if (has_pattern)
            check_pattern(name, members, text, n, cp_at);
    }
    assert_int_equal(n_classes, 29 + 3 + 3 + 11 + 2);
    free(file);
    free(text);
    free(cp_at);
    free(members);
}

/* --- sweep ------------------------------------------------------------------------------------------------------- */

/* CRC-32 as zlib has it. */
static uint32_t crc_table[256];

static uint32_t crc_of(uint32_t crc, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    if (!crc_table[1]) {
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t c = i;
            for (int k = 0; k < 8; k++)
                c = c & 1 ? 0xedb88320u ^ c >> 1 : c >> 1;
            crc_table[i] = c;
        }
    }
    crc = ~crc;
    for (size_t i = 0; i < n; i++)
        crc = crc_table[(crc ^ p[i]) & 0xff] ^ crc >> 8;
    return ~crc;
}

static bool add_piece(void *ctx, const char *word, size_t n, struct err *e)
{
    (void)e;
    uint32_t *crc = ctx;
    *crc = crc_of(crc_of(*crc, word, n), "\xff", 1);
    return true;
}

/* The template with each code point of a block in place of {}. */
static void block_text(struct buf *out, const char *text, uint32_t start)
{
    buf_clear(out);
    for (uint32_t cp = start; cp < start + BLOCK; cp++) {
        if (is_surrogate(cp))
            continue;
        char bytes[4];
        size_t n = utf8_put(bytes, cp);
        const char *p = text;
        for (const char *hole; (hole = strstr(p, "{}")); p = hole + 2) {
            buf_append(out, p, (size_t)(hole - p));
            buf_append(out, bytes, n);
        }
        buf_puts(out, p);
    }
}

/* A tokenizer with one part. */
static struct tokenizer *tokenizer_with(const char *kind, const cJSON *what)
{
    char *printed = cJSON_PrintUnformatted(what);
    bool is_split = strcmp(kind, "split") == 0;
    char *json =
        xasprintf("{\"%s\":%s%s%s,\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}",
                  is_split ? "pre_tokenizer" : kind,
                  is_split ? "{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":" : "",
                  printed, is_split ? "}}" : "");
    struct tokenizer *t = NULL;
    ASSERT_OK(tokenizer_parse(&t, json, strlen(json), "sweep", e));
    free(json);
    free(printed);
    return t;
}

static uint32_t sum_of_block(const struct tokenizer *t, const cJSON *texts, uint32_t start)
{
    struct buf text, scratch[2], changed[1];
    struct regex_scratch *regex = regex_scratch_new((size_t)1 << 24);
    uint32_t crc = 0;
    buf_init(&text, 1 << 20);
    buf_init(&scratch[0], 1 << 22);
    buf_init(&scratch[1], 1 << 22);
    buf_init(&changed[0], 1 << 22);
    for (const cJSON *item = texts->child; item; item = item->next) {
        block_text(&text, item->valuestring, start);
        struct str normal;
        ASSERT_OK(normalize(t->normalizers, t->n_normalizers, regex, (struct str){text.p, text.n}, scratch,
                            &normal, e));
        if (t->n_normalizers > 0)
            crc = crc_of(crc, normal.p, normal.n);
        else
            ASSERT_OK(pretokenize(t->splitters, t->n_splitters, regex, changed, text.p, text.n, true,
                                  add_piece, &crc, e));
    }
    regex_scratch_free(regex);
    buf_fini(&text);
    buf_fini(&scratch[0]);
    buf_fini(&scratch[1]);
    buf_fini(&changed[0]);
    return crc;
}

static uint32_t block_start(int i)
{
    return i < 13 ? (uint32_t)i * BLOCK : i == 13 ? 0xe0000 : 0x10c000;
}

static void test_sweep(void **state)
{
    (void)state;
    char *file, *save = NULL;
    size_t bytes;
    int n_lines = 0, n_bad = 0;
    ASSERT_OK(file_read(&file, &bytes, DATA "sweep.jsonl", 1 << 20, e));
    for (char *line = strtok_r(file, "\n", &save); line; line = strtok_r(NULL, "\n", &save), n_lines++) {
        cJSON *item = NULL;
        ASSERT_OK(json_parse(&item, line, strlen(line), "sweep.jsonl", e));
        const cJSON *kind = item->child, *what = kind->next, *texts = what->next, *sums = texts->next;
        struct tokenizer *t = tokenizer_with(kind->valuestring, what);
        int i = 0;
        for (const cJSON *sum = sums->child; sum; sum = sum->next, i++) {
            uint32_t got = sum_of_block(t, texts, block_start(i));
            if (got != (uint32_t)strtoul(sum->valuestring, NULL, 16)) {
                print_error("line %d, %s: block U+%04X\n", n_lines + 1, kind->valuestring,
                            (unsigned)block_start(i));
                n_bad++;
            }
        }
        assert_int_equal(i, 15);
        tokenizer_free(t);
        cJSON_Delete(item);
    }
    free(file);
    assert_int_equal(n_lines, 5 + 6 + 3);
    assert_int_equal(n_bad, 0);
}

/* --- scanners ------------------------------------------------------------------------------------------------------ */

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void check_scanner(const struct word_rules *rules, const struct regex *judge,
                          struct regex_scratch *scratch, const struct buf *text)
{
    char *copy = malloc(text->n); /* not one byte more: reading beyond the end must show */
    assert_non_null(copy);
    memcpy(copy, text->p, text->n);
    for (size_t done = 0, begin = 0, end = 0; done < text->n; done = end) {
        bool found;
        ASSERT_OK(regex_find(judge, scratch, copy, text->n, done, SIZE_MAX, &found, &begin, &end, e));
        assert_true(found);
        assert_int_equal(begin, done);
        size_t got = word_rules_end(rules, copy, text->n, done);
        if (got != end)
            fail_msg("\"%.*s\" at byte %zu: %zu bytes, not %zu", (int)text->n, text->p, done, got - done,
                     end - done);
    }
    free(copy);
}

static void test_scanners(void **state)
{
    (void)state;
    static const char *const patterns[] = {
        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
        "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
        "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
        "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| "
        "?[^\\s\\p{L}\\p{M}\\p{N}]+"
        "[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    };
    static const uint32_t some[] = {' ',    ' ',      ' ',    '\n',    '\r',   '\t',   0x85,   0xa0,   0x3000,
                                    0x2028, '\'',     '\'',   's',     'S',    'T',    'r',    'e',    'L',
                                    'l',    'v',      'M',    'd',     'x',    0x17f,  '1',    '2',    0x661,
                                    0xbd,   0x2167,   '!',    '(',     '_',    0x2014, 0x301,  0x93f,  0x20dd,
                                    0xe9,   0x4e2d,   0xac00, 0x1f600, 0x200d, 0xfe0f, 0xfeff, 0x180e, 0x1c89,
                                    0xe000, 0x10ffff, 0x0,    0x1fbf0, 0x10d40};
    uint32_t seed = 11;
    struct buf text;
    struct regex_scratch *scratch = regex_scratch_new((size_t)1 << 24);
    buf_init(&text, 1 << 16);
    for (size_t p = 0; p < sizeof patterns / sizeof patterns[0]; p++) {
        const struct word_rules *rules = word_rules_find(patterns[p]);
        struct regex *judge = NULL;
        assert_non_null(rules);
        ASSERT_OK(regex_new_compiled(&judge, patterns[p], e));
        assert_null(regex_word_rules(judge));
        for (int round = 0; round < 2000; round++) {
            buf_clear(&text);
            int count = 1 + (int)(next_random(&seed) % 24);
            for (int i = 0; i < count; i++) {
                char bytes[4];
                uint32_t cp = some[next_random(&seed) % (sizeof some / sizeof some[0])];
                if (next_random(&seed) % 8 == 0)
                    cp = next_random(&seed) % 0x20000;
                if (!is_surrogate(cp))
                    buf_append(&text, bytes, utf8_put(bytes, cp));
            }
            if (text.n > 0)
                check_scanner(rules, judge, scratch, &text);
        }
        regex_free(judge);
    }
    regex_scratch_free(scratch);
    buf_fini(&text);
}

static void test_names(void **state)
{
    (void)state;
    struct unicode_set set;
    assert_true(unicode_set_find(&set, "Lu", 2));
    assert_int_equal(set.categories, 1);
    assert_true(unicode_set_find(&set, "Han", 3));
    assert_true(set.n_ranges > 0 && set.categories == 0);
    assert_false(unicode_set_find(&set, "Lx", 2));
    assert_false(unicode_set_find(&set, "", 0));
    assert_false(unicode_set_find(&set, "Hans", 4));
    assert_null(word_rules_find("\\p{L}+"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_classes),
        cmocka_unit_test(test_sweep),
        cmocka_unit_test(test_scanners),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
