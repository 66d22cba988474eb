/* Words of the split patterns that nearly all byte-level vocabularies use, found by hand-written scanners: in one pass,
 * without backtracking, with the library's own Unicode classes.
 *
 * A scanner stands for exactly one pattern text; whoever writes the pattern differently gets PCRE2, which is the
 * judge of the scanners in the tests.
 */
#include <string.h>

#include "tokenizer/tokenizer_internal.h"
#include "unicode/unicode.h"
#include "base/utf8.h"

enum {
    LETTER = 1,
    MARK = 2,
    NUMBER = 4,
    WHITE = 8,
    NEWLINE = 16, /* CR and LF, which are WHITE, too */
    OTHER = 32
};

struct word_rules {
    const char *pattern;
    bool is_gpt2;
    uint8_t letters;    /* what words consist of */
    uint8_t max_digits; /* of a number */
};

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define BLANKS "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const struct word_rules all_rules[] = {
    {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", true, LETTER, 0},
    {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" BLANKS, false,
     LETTER, 1},
    {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" BLANKS, false,
     LETTER, 3},
    {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" BLANKS,
     false, LETTER | MARK, 1},
};

const struct word_rules *word_rules_find(const char *pattern)
{
    for (size_t i = 0; i < sizeof all_rules / sizeof all_rules[0]; i++)
        if (strcmp(all_rules[i].pattern, pattern) == 0)
            return &all_rules[i];
    return NULL;
}

#define O OTHER
#define L LETTER
#define N NUMBER
static const uint8_t ascii_classes[128] = {
    O,
    O,
    O,
    O,
    O,
    O,
    O,
    O,
    O,
    WHITE,
    WHITE | NEWLINE,
    WHITE,
    WHITE,
    WHITE | NEWLINE,
    O,
    O,
    O,
    O,
    O,
    O,
    O,
    O,
    O,
    O,
    O,
    O,
    O,
    O,
    O,
    O,
    O,
    O,
    WHITE,
    O,
    O,
    O,
    O,
    O,
    O,
    O,
    O,
    O,
    O,
    O,
    O,
    O,
    O,
    O,
    N,
    N,
    N,
    N,
    N,
    N,
    N,
    N,
    N,
    N,
    O,
    O,
    O,
    O,
    O,
    O,
    O,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    O,
    O,
    O,
    O,
    O,
    O,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    O,
    O,
    O,
    O,
    O,
};
#undef O
#undef L
#undef N

static uint8_t class_beyond_ascii(uint32_t cp)
{
    enum unicode_category category = unicode_category(cp);
    if (category <= UNICODE_LO)
        return LETTER;
    if (category <= UNICODE_ME)
        return MARK;
    if (category <= UNICODE_NO)
        return NUMBER;
    /* of the controls beyond ASCII, U+0085 is white */
    return (category >= UNICODE_ZS && category <= UNICODE_ZP) || cp == 0x85 ? WHITE : OTHER;
}

/* Class of the character at p and its length. */
static inline uint8_t class_at(const char *p, size_t *length)
{
    if ((uint8_t)*p < 0x80) {
        *length = 1;
        return ascii_classes[(uint8_t)*p];
    }
    uint32_t cp;
    *length = utf8_next(p, &cp);
    return class_beyond_ascii(cp);
}

static inline size_t skip(const char *text, size_t n, size_t i, uint8_t classes)
{
    size_t length;
    while (i < n && (class_at(text + i, &length) & classes))
        i += length;
    return i;
}

static bool is_letter(const char *text, size_t n, size_t i, char small, bool any_case)
{
    return i < n && (any_case ? (char)(text[i] | 0x20) : text[i]) == small;
}

/* text[i] is an apostrophe. Returns the end of 's, 't, 're, 've, 'm, 'll, 'd, or 0. */
static size_t contraction_end(const char *text, size_t n, size_t i, bool any_case)
{
    i++;
    if (is_letter(text, n, i, 's', any_case) || is_letter(text, n, i, 't', any_case) ||
        is_letter(text, n, i, 'm', any_case) || is_letter(text, n, i, 'd', any_case))
        return i + 1;
    if (any_case && n - i >= 2 && memcmp(text + i, "\xc5\xbf", 2) == 0) /* the long s */
        return i + 2;
    if ((is_letter(text, n, i, 'r', any_case) || is_letter(text, n, i, 'v', any_case)) &&
        is_letter(text, n, i + 1, 'e', any_case))
        return i + 2;
    if (is_letter(text, n, i, 'l', any_case) && is_letter(text, n, i + 1, 'l', any_case))
        return i + 2;
    return 0;
}

/* White space from i on: up to its last line break when breaks end a word, else all but the last character, which
 * goes to the word behind it. */
static size_t white_end(const char *text, size_t n, size_t i, bool breaks_end)
{
    size_t last = i, behind_break = 0, length, at = i;
    uint8_t class;
    while (at < n && ((class = class_at(text + at, &length)) & WHITE)) {
        last = at;
        at += length;
        if (breaks_end && (class & NEWLINE))
            behind_break = at;
    }
    if (behind_break)
        return behind_break;
    return at == n || last == i ? at : last;
}

static size_t gpt2_end(const char *text, size_t n, size_t i)
{
    size_t length, end;
    uint8_t class = class_at(text + i, &length);
    if (text[i] == '\'' && (end = contraction_end(text, n, i, false)) != 0)
        return end;
    size_t first = i;
    if (text[i] == ' ' && i + 1 < n) {
        first = i + 1;
        class = class_at(text + first, &length);
    }
    if (class & WHITE)
        return white_end(text, n, i, false);
    return skip(text, n, first + length, class & (OTHER | MARK) ? OTHER | MARK : class);
}

static size_t split_end(const struct word_rules *r, const char *text, size_t n, size_t i)
{
    const uint8_t others = (OTHER | MARK) & ~r->letters;
    size_t length, end;
    uint8_t class = class_at(text + i, &length);
    if (text[i] == '\'' && (end = contraction_end(text, n, i, true)) != 0)
        return end;
    end = i + length;
    if (class & r->letters)
        return skip(text, n, end, r->letters);
    if (class & NUMBER) {
        for (int digits = 1; digits < r->max_digits && end < n; digits++) {
            if (!(class_at(text + end, &length) & NUMBER))
                break;
            end += length;
        }
        return end;
    }
    /* one character of any other kind may lead a word */
    uint8_t next = end < n ? class_at(text + end, &length) : 0;
    if (!(class & NEWLINE) && (next & r->letters))
        return skip(text, n, end + length, r->letters);
    if (class & WHITE) {
        if (text[i] != ' ' || !(next & others))
            return white_end(text, n, i, true);
        end += length;
    }
    end = skip(text, n, end, others);
    while (end < n && (text[end] == '\r' || text[end] == '\n'))
        end++;
    return end;
}

size_t word_rules_end(const struct word_rules *r, const char *text, size_t n, size_t from)
{
    return r->is_gpt2 ? gpt2_end(text, n, from) : split_end(r, text, n, from);
}
