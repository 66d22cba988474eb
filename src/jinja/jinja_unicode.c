/* Characters as Python's str methods see them: classes, case mappings (those of one character to several too), and
 * the string operations made of these. */
#include <utf8proc.h>

#include "jinja/jinja_internal.h"

static utf8proc_category_t category(uint32_t cp)
{
    return utf8proc_category((utf8proc_int32_t)cp);
}

bool char_is_space(uint32_t cp)
{
    return (cp >= 9 && cp <= 13) || (cp >= 0x1c && cp <= 0x20) || cp == 0x85 || cp == 0xa0 || cp == 0x1680 ||
           (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 || cp == 0x202f || cp == 0x205f ||
           cp == 0x3000;
}

bool char_is_alpha(uint32_t cp)
{
    utf8proc_category_t c = category(cp);
    return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

bool char_is_decimal(uint32_t cp)
{
    return category(cp) == UTF8PROC_CATEGORY_ND;
}

bool char_is_digit(uint32_t cp)
{
    return char_is_decimal(cp) || cp == 0xb2 || cp == 0xb3 || cp == 0xb9 || cp == 0x2070 ||
           (cp >= 0x2074 && cp <= 0x2079) || (cp >= 0x2080 && cp <= 0x2089) ||
           (cp >= 0x2460 && cp <= 0x2468) || (cp >= 0x2474 && cp <= 0x247c) || (cp >= 0x2488 && cp <= 0x2490);
}

bool char_is_numeric(uint32_t cp)
{
    utf8proc_category_t c = category(cp);
    return c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;
}

bool char_is_upper(uint32_t cp)
{
    return utf8proc_isupper((utf8proc_int32_t)cp) && category(cp) != UTF8PROC_CATEGORY_LT;
}

bool char_is_lower(uint32_t cp)
{
    return utf8proc_islower((utf8proc_int32_t)cp);
}

bool char_is_title(uint32_t cp)
{
    return category(cp) == UTF8PROC_CATEGORY_LT;
}

bool char_is_cased(uint32_t cp)
{
    return char_is_upper(cp) || char_is_lower(cp) || char_is_title(cp);
}

bool char_is_printable(uint32_t cp)
{
    switch (category(cp)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return false;
    case UTF8PROC_CATEGORY_ZS:
        return cp == ' ';
    default:
        return true;
    }
}

bool char_is_name(uint32_t cp)
{
    if (cp < 0x80)
        return (cp >= '0' && cp <= '9') || ((cp | 32) >= 'a' && (cp | 32) <= 'z') || cp == '_';
    utf8proc_category_t c = category(cp);
    return char_is_alpha(cp) || c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_MC ||
           c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_PC;
}

/* What becomes of the characters whose upper or title case is longer than one (Unicode's SpecialCasing). */
static const struct special_case {
    uint32_t cp, upper[3], title[3];
} special_cases[] = {
    {0xdf, {0x53, 0x53}, {0x53, 0x73}},
    {0x149, {0x2bc, 0x4e}, {0x2bc, 0x4e}},
    {0x1f0, {0x4a, 0x30c}, {0x4a, 0x30c}},
    {0x390, {0x399, 0x308, 0x301}, {0x399, 0x308, 0x301}},
    {0x3b0, {0x3a5, 0x308, 0x301}, {0x3a5, 0x308, 0x301}},
    {0x587, {0x535, 0x552}, {0x535, 0x582}},
    {0x1e96, {0x48, 0x331}, {0x48, 0x331}},
    {0x1e97, {0x54, 0x308}, {0x54, 0x308}},
    {0x1e98, {0x57, 0x30a}, {0x57, 0x30a}},
    {0x1e99, {0x59, 0x30a}, {0x59, 0x30a}},
    {0x1e9a, {0x41, 0x2be}, {0x41, 0x2be}},
    {0x1f50, {0x3a5, 0x313}, {0x3a5, 0x313}},
    {0x1f52, {0x3a5, 0x313, 0x300}, {0x3a5, 0x313, 0x300}},
    {0x1f54, {0x3a5, 0x313, 0x301}, {0x3a5, 0x313, 0x301}},
    {0x1f56, {0x3a5, 0x313, 0x342}, {0x3a5, 0x313, 0x342}},
    {0x1f80, {0x1f08, 0x399}, {0x1f88}},
    {0x1f81, {0x1f09, 0x399}, {0x1f89}},
    {0x1f82, {0x1f0a, 0x399}, {0x1f8a}},
    {0x1f83, {0x1f0b, 0x399}, {0x1f8b}},
    {0x1f84, {0x1f0c, 0x399}, {0x1f8c}},
    {0x1f85, {0x1f0d, 0x399}, {0x1f8d}},
    {0x1f86, {0x1f0e, 0x399}, {0x1f8e}},
    {0x1f87, {0x1f0f, 0x399}, {0x1f8f}},
    {0x1f88, {0x1f08, 0x399}, {0x1f88}},
    {0x1f89, {0x1f09, 0x399}, {0x1f89}},
    {0x1f8a, {0x1f0a, 0x399}, {0x1f8a}},
    {0x1f8b, {0x1f0b, 0x399}, {0x1f8b}},
    {0x1f8c, {0x1f0c, 0x399}, {0x1f8c}},
    {0x1f8d, {0x1f0d, 0x399}, {0x1f8d}},
    {0x1f8e, {0x1f0e, 0x399}, {0x1f8e}},
    {0x1f8f, {0x1f0f, 0x399}, {0x1f8f}},
    {0x1f90, {0x1f28, 0x399}, {0x1f98}},
    {0x1f91, {0x1f29, 0x399}, {0x1f99}},
    {0x1f92, {0x1f2a, 0x399}, {0x1f9a}},
    {0x1f93, {0x1f2b, 0x399}, {0x1f9b}},
    {0x1f94, {0x1f2c, 0x399}, {0x1f9c}},
    {0x1f95, {0x1f2d, 0x399}, {0x1f9d}},
    {0x1f96, {0x1f2e, 0x399}, {0x1f9e}},
    {0x1f97, {0x1f2f, 0x399}, {0x1f9f}},
    {0x1f98, {0x1f28, 0x399}, {0x1f98}},
    {0x1f99, {0x1f29, 0x399}, {0x1f99}},
    {0x1f9a, {0x1f2a, 0x399}, {0x1f9a}},
    {0x1f9b, {0x1f2b, 0x399}, {0x1f9b}},
    {0x1f9c, {0x1f2c, 0x399}, {0x1f9c}},
    {0x1f9d, {0x1f2d, 0x399}, {0x1f9d}},
    {0x1f9e, {0x1f2e, 0x399}, {0x1f9e}},
    {0x1f9f, {0x1f2f, 0x399}, {0x1f9f}},
    {0x1fa0, {0x1f68, 0x399}, {0x1fa8}},
    {0x1fa1, {0x1f69, 0x399}, {0x1fa9}},
    {0x1fa2, {0x1f6a, 0x399}, {0x1faa}},
    {0x1fa3, {0x1f6b, 0x399}, {0x1fab}},
    {0x1fa4, {0x1f6c, 0x399}, {0x1fac}},
    {0x1fa5, {0x1f6d, 0x399}, {0x1fad}},
    {0x1fa6, {0x1f6e, 0x399}, {0x1fae}},
    {0x1fa7, {0x1f6f, 0x399}, {0x1faf}},
    {0x1fa8, {0x1f68, 0x399}, {0x1fa8}},
    {0x1fa9, {0x1f69, 0x399}, {0x1fa9}},
    {0x1faa, {0x1f6a, 0x399}, {0x1faa}},
    {0x1fab, {0x1f6b, 0x399}, {0x1fab}},
    {0x1fac, {0x1f6c, 0x399}, {0x1fac}},
    {0x1fad, {0x1f6d, 0x399}, {0x1fad}},
    {0x1fae, {0x1f6e, 0x399}, {0x1fae}},
    {0x1faf, {0x1f6f, 0x399}, {0x1faf}},
    {0x1fb2, {0x1fba, 0x399}, {0x1fba, 0x345}},
    {0x1fb3, {0x391, 0x399}, {0x1fbc}},
    {0x1fb4, {0x386, 0x399}, {0x386, 0x345}},
    {0x1fb6, {0x391, 0x342}, {0x391, 0x342}},
    {0x1fb7, {0x391, 0x342, 0x399}, {0x391, 0x342, 0x345}},
    {0x1fbc, {0x391, 0x399}, {0x1fbc}},
    {0x1fc2, {0x1fca, 0x399}, {0x1fca, 0x345}},
    {0x1fc3, {0x397, 0x399}, {0x1fcc}},
    {0x1fc4, {0x389, 0x399}, {0x389, 0x345}},
    {0x1fc6, {0x397, 0x342}, {0x397, 0x342}},
    {0x1fc7, {0x397, 0x342, 0x399}, {0x397, 0x342, 0x345}},
    {0x1fcc, {0x397, 0x399}, {0x1fcc}},
    {0x1fd2, {0x399, 0x308, 0x300}, {0x399, 0x308, 0x300}},
    {0x1fd3, {0x399, 0x308, 0x301}, {0x399, 0x308, 0x301}},
    {0x1fd6, {0x399, 0x342}, {0x399, 0x342}},
    {0x1fd7, {0x399, 0x308, 0x342}, {0x399, 0x308, 0x342}},
    {0x1fe2, {0x3a5, 0x308, 0x300}, {0x3a5, 0x308, 0x300}},
    {0x1fe3, {0x3a5, 0x308, 0x301}, {0x3a5, 0x308, 0x301}},
    {0x1fe4, {0x3a1, 0x313}, {0x3a1, 0x313}},
    {0x1fe6, {0x3a5, 0x342}, {0x3a5, 0x342}},
    {0x1fe7, {0x3a5, 0x308, 0x342}, {0x3a5, 0x308, 0x342}},
    {0x1ff2, {0x1ffa, 0x399}, {0x1ffa, 0x345}},
    {0x1ff3, {0x3a9, 0x399}, {0x1ffc}},
    {0x1ff4, {0x38f, 0x399}, {0x38f, 0x345}},
    {0x1ff6, {0x3a9, 0x342}, {0x3a9, 0x342}},
    {0x1ff7, {0x3a9, 0x342, 0x399}, {0x3a9, 0x342, 0x345}},
    {0x1ffc, {0x3a9, 0x399}, {0x1ffc}},
    {0xfb00, {0x46, 0x46}, {0x46, 0x66}},
    {0xfb01, {0x46, 0x49}, {0x46, 0x69}},
    {0xfb02, {0x46, 0x4c}, {0x46, 0x6c}},
    {0xfb03, {0x46, 0x46, 0x49}, {0x46, 0x66, 0x69}},
    {0xfb04, {0x46, 0x46, 0x4c}, {0x46, 0x66, 0x6c}},
    {0xfb05, {0x53, 0x54}, {0x53, 0x74}},
    {0xfb06, {0x53, 0x54}, {0x53, 0x74}},
    {0xfb13, {0x544, 0x546}, {0x544, 0x576}},
    {0xfb14, {0x544, 0x535}, {0x544, 0x565}},
    {0xfb15, {0x544, 0x53b}, {0x544, 0x56b}},
    {0xfb16, {0x54e, 0x546}, {0x54e, 0x576}},
    {0xfb17, {0x544, 0x53d}, {0x544, 0x56d}},
};

static const struct special_case *find_special(uint32_t cp)
{
    size_t low = 0, high = sizeof special_cases / sizeof *special_cases;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (special_cases[middle].cp == cp)
            return &special_cases[middle];
        if (special_cases[middle].cp < cp)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

int char_map(uint32_t cp, enum letter_case to, uint32_t out[3])
{
    const struct special_case *s =
        cp >= 0x80 && (to == CASE_UPPER || to == CASE_TITLE) ? find_special(cp) : NULL;
    if (s) {
        const uint32_t *from = to == CASE_UPPER ? s->upper : s->title;
        int n = 0;
        for (; n < 3 && from[n]; n++)
            out[n] = from[n];
        return n;
    }
    if (to == CASE_LOWER && cp == 0x130) {
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    if (to == CASE_FOLD) {
        utf8proc_int32_t folded[8];
        int boundary = 0;
        utf8proc_ssize_t n =
            utf8proc_decompose_char((utf8proc_int32_t)cp, folded, 8, UTF8PROC_CASEFOLD, &boundary);
        if (n > 0 && n <= 3) {
            for (utf8proc_ssize_t i = 0; i < n; i++)
                out[i] = (uint32_t)folded[i];
            return (int)n;
        }
    }
    utf8proc_int32_t c = (utf8proc_int32_t)cp;
    out[0] = (uint32_t)(to == CASE_UPPER   ? utf8proc_toupper(c)
                        : to == CASE_LOWER ? utf8proc_tolower(c)
                        : to == CASE_TITLE ? utf8proc_totitle(c)
                                           : c);
    return 1;
}

static void put_mapped(struct jinja *j, struct builder *b, uint32_t cp, enum letter_case to, bool is_user)
{
    uint32_t out[3];
    int n = char_map(cp, to, out);
    for (int i = 0; i < n; i++)
        builder_put_char(j, b, out[i], is_user);
}

/* A capital sigma behind a letter and before none has a form of its own in lower case. */
static bool is_final_sigma(const struct text *t, size_t word, size_t at)
{
    uint32_t cp;
    if (at <= word)
        return false;
    (void)utf8_next(t->p + utf8_back(t->p, at), &cp);
    if (!char_is_cased(cp))
        return false;
    size_t next = at + 2;
    if (next < t->n) {
        (void)utf8_next(t->p + next, &cp);
        if (char_is_cased(cp))
            return false;
    }
    return true;
}

/* How the character at a byte is to be mapped, by what was before it. */
typedef enum letter_case (*case_fn)(uint32_t cp, bool is_first, bool *state, bool *keep);

static struct value map_chars(struct jinja *j, const struct text *t, case_fn fn, enum letter_case all)
{
    struct builder *b = builder_begin(j);
    bool state = false, is_user = false;
    size_t end = 0, word = 0; /* where the text begins that str.lower() would be called with */
    for (size_t at = 0, run = 0; run < t->n && text_run(t, run, &end, &is_user); run = end) {
        while (at < end) {
            uint32_t cp;
            size_t n = utf8_next(t->p + at, &cp);
            bool keep = false;
            enum letter_case to = fn ? fn(cp, at == 0, &state, &keep) : all;
            if (keep)
                builder_put(j, b, t->p + at, n, is_user);
            else if (cp == 0x3a3 && to == CASE_LOWER && is_final_sigma(t, word, at))
                builder_put_char(j, b, 0x3c2, is_user);
            else
                put_mapped(j, b, cp, to, is_user);
            at += n;
            if (keep || to == CASE_UPPER)
                word = at;
        }
    }
    return builder_finish(j, b);
}

struct value text_map(struct jinja *j, const struct text *t, enum letter_case to)
{
    return map_chars(j, t, NULL, to);
}

static enum letter_case capitalize_char(uint32_t cp, bool is_first, bool *state, bool *keep)
{
    (void)cp, (void)state, (void)keep;
    return is_first ? CASE_TITLE : CASE_LOWER;
}

struct value text_capitalize(struct jinja *j, const struct text *t)
{
    return map_chars(j, t, capitalize_char, CASE_LOWER);
}

static enum letter_case title_char(uint32_t cp, bool is_first, bool *state, bool *keep)
{
    (void)is_first, (void)keep;
    bool was_cased = *state;
    *state = char_is_cased(cp);
    return was_cased ? CASE_LOWER : CASE_TITLE;
}

/* The filter's words begin behind blanks, hyphens and opening brackets. */
static enum letter_case title_filter_char(uint32_t cp, bool is_first, bool *state, bool *keep)
{
    bool is_begin = is_first || *state;
    *state = char_is_space(cp) || cp == '-' || cp == '(' || cp == '{' || cp == '[' || cp == '<';
    *keep = *state;
    return is_begin ? CASE_UPPER : CASE_LOWER;
}

struct value text_title(struct jinja *j, const struct text *t, bool words_by_filter)
{
    return map_chars(j, t, words_by_filter ? title_filter_char : title_char, CASE_LOWER);
}

static enum letter_case swap_char(uint32_t cp, bool is_first, bool *state, bool *keep)
{
    (void)is_first, (void)state;
    *keep = !char_is_upper(cp) && !char_is_lower(cp);
    return char_is_upper(cp) ? CASE_LOWER : CASE_UPPER;
}

struct value text_swap_case(struct jinja *j, const struct text *t)
{
    return map_chars(j, t, swap_char, CASE_LOWER);
}

static bool is_stripped(struct jinja *j, const struct text *t, size_t at, size_t n, uint32_t cp,
                        const struct text *chars)
{
    if (!chars)
        return char_is_space(cp);
    jinja_charge(j, chars->n);
    return chars->n >= n && memmem(chars->p, chars->n, t->p + at, n) != NULL;
}

const struct text *text_strip(struct jinja *j, const struct text *t, const struct text *chars, bool left,
                              bool right)
{
    size_t begin = 0, end = t->n;
    uint32_t cp;
    while (left && begin < end) {
        size_t n = utf8_next(t->p + begin, &cp);
        if (!is_stripped(j, t, begin, n, cp, chars))
            break;
        begin += n;
    }
    while (right && end > begin) {
        size_t back = utf8_back(t->p, end);
        size_t n = utf8_next(t->p + back, &cp);
        if (!is_stripped(j, t, back, n, cp, chars))
            break;
        end = back;
    }
    return text_slice(j, t, begin, end);
}
