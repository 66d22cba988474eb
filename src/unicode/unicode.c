/* Lookups in the generated tables of characters. */
#include "unicode/unicode.h"

#include <stdlib.h>
#include <string.h>

#include "unicode/unicode_case_table.h"
#include "unicode/unicode_category_table.h"
#include "unicode/unicode_normal_table.h"

#define N_OF(table) (sizeof(table) / sizeof((table)[0]))
#define FLAG 32u           /* of a run: unicode_nfc_may_change */
#define TURNS_EVEN 30u     /* capital letters at even code points, small ones at odd ones */
#define TURNS_ODD 31u      /* the other way round */
#define INDEX_END 0x20000u /* category_first reaches up to here */
#define END 0x110000u

enum {
    HANGUL_FIRST = 0xac00,
    HANGUL_LEAD = 0x1100,
    HANGUL_VOWEL = 0x1161,
    HANGUL_TAIL = 0x11a7, /* one before the first */
    N_LEADS = 19,
    N_VOWELS = 21,
    N_TAILS = 28,
    N_HANGUL = N_LEADS * N_VOWELS * N_TAILS
};

static uint32_t run_at(uint32_t cp)
{
    size_t low = category_first[INDEX_END >> 8], high = N_OF(category_runs);
    if (cp < INDEX_END) {
        low = category_first[cp >> 8];
        high = category_first[(cp >> 8) + 1] + 1u;
    }
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (category_runs[middle] >> 6 <= cp)
            low = middle;
        else
            high = middle;
    }
    return category_runs[low] & 63;
}

static enum unicode_category category_of_run(uint32_t value, uint32_t cp)
{
    value &= 31;
    if (value >= TURNS_EVEN)
        return cp % 2 == value - TURNS_EVEN ? UNICODE_LU : UNICODE_LL;
    return (enum unicode_category)value;
}

enum unicode_category unicode_category(uint32_t cp)
{
    return category_of_run(run_at(cp), cp);
}

bool unicode_nfc_may_change(uint32_t cp)
{
    return run_at(cp) & FLAG;
}

bool unicode_is_white(uint32_t cp)
{
    return (cp >= 9 && cp <= 13) || cp == 0x20 || cp == 0x85 || cp == 0xa0 || cp == 0x1680 ||
           (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 || cp == 0x202f || cp == 0x205f ||
           cp == 0x3000;
}

#define BIT(category) (1u << UNICODE_##category)
#define LETTERS (BIT(LU) | BIT(LL) | BIT(LT) | BIT(LM) | BIT(LO))
#define MARKS (BIT(MN) | BIT(MC) | BIT(ME))
#define NUMBERS (BIT(ND) | BIT(NL) | BIT(NO))
#define PUNCTUATION (BIT(PC) | BIT(PD) | BIT(PS) | BIT(PE) | BIT(PI) | BIT(PF) | BIT(PO))
#define SYMBOLS (BIT(SM) | BIT(SC) | BIT(SK) | BIT(SO))

bool unicode_is_word(uint32_t cp)
{
    const uint32_t word = LETTERS | MARKS | BIT(ND) | BIT(NL) | BIT(PC);
    return (word >> unicode_category(cp) & 1) != 0 || cp == 0x200c || cp == 0x200d ||
           (cp >= 0x24b6 && cp <= 0x24e9) || (cp >= 0x1f130 && cp <= 0x1f149) ||
           (cp >= 0x1f150 && cp <= 0x1f169) || (cp >= 0x1f170 && cp <= 0x1f189);
}

/* --- sets ----------------------------------------------------------------------------------------------------- */

bool unicode_set_find(struct unicode_set *out, const char *name, size_t n)
{
    static const struct {
        char name[3];
        uint32_t categories;
    } categories[] = {
        {"L", LETTERS},
        {"M", MARKS},
        {"N", NUMBERS},
        {"P", PUNCTUATION},
        {"S", SYMBOLS},
        {"Z", BIT(ZS) | BIT(ZL) | BIT(ZP)},
        {"C", BIT(CC) | BIT(CF) | BIT(CO) | BIT(CN)},
        {"Lu", BIT(LU)},
        {"Ll", BIT(LL)},
        {"Lt", BIT(LT)},
        {"Lm", BIT(LM)},
        {"Lo", BIT(LO)},
        {"Mn", BIT(MN)},
        {"Mc", BIT(MC)},
        {"Me", BIT(ME)},
        {"Nd", BIT(ND)},
        {"Nl", BIT(NL)},
        {"No", BIT(NO)},
        {"Pc", BIT(PC)},
        {"Pd", BIT(PD)},
        {"Ps", BIT(PS)},
        {"Pe", BIT(PE)},
        {"Pi", BIT(PI)},
        {"Pf", BIT(PF)},
        {"Po", BIT(PO)},
        {"Sm", BIT(SM)},
        {"Sc", BIT(SC)},
        {"Sk", BIT(SK)},
        {"So", BIT(SO)},
        {"Zs", BIT(ZS)},
        {"Zl", BIT(ZL)},
        {"Zp", BIT(ZP)},
        {"Cc", BIT(CC)},
        {"Cf", BIT(CF)},
        {"Co", BIT(CO)},
        {"Cn", BIT(CN)},
    };
#define SCRIPT(name, table)                                                                                  \
    {                                                                                                        \
        name, table, N_OF(table) / 2                                                                         \
    }
    static const struct {
        const char *name;
        const uint32_t *ranges;
        size_t n_ranges;
    } scripts[] = {
        SCRIPT("Arabic", script_arabic),
        SCRIPT("Cyrillic", script_cyrillic),
        SCRIPT("Devanagari", script_devanagari),
        SCRIPT("Greek", script_greek),
        SCRIPT("Han", script_han),
        SCRIPT("Hangul", script_hangul),
        SCRIPT("Hebrew", script_hebrew),
        SCRIPT("Hiragana", script_hiragana),
        SCRIPT("Katakana", script_katakana),
        SCRIPT("Latin", script_latin),
        SCRIPT("Thai", script_thai),
    };
    for (size_t i = 0; i < N_OF(categories); i++) {
        if (strlen(categories[i].name) == n && memcmp(categories[i].name, name, n) == 0) {
            *out = (struct unicode_set){.categories = categories[i].categories};
            return true;
        }
    }
    for (size_t i = 0; i < N_OF(scripts); i++) {
        if (strlen(scripts[i].name) == n && memcmp(scripts[i].name, name, n) == 0) {
            *out = (struct unicode_set){.ranges = scripts[i].ranges, .n_ranges = scripts[i].n_ranges};
            return true;
        }
    }
    return false;
}

struct unicode_set unicode_punctuation(void)
{
    return (struct unicode_set){.ranges = punctuation_runs, .n_ranges = N_OF(punctuation_runs) / 2};
}

struct range {
    uint32_t first, last;
};

struct range_list {
    struct range *p;
    size_t n, capacity;
};

/* Ranges come in order; those that touch become one. */
static void add_range(struct range_list *l, uint32_t first, uint32_t last)
{
    if (l->n > 0 && l->p[l->n - 1].last + 1 == first) {
        l->p[l->n - 1].last = last;
        return;
    }
    l->p = mem_grow(l->p, l->n, &l->capacity, sizeof *l->p);
    l->p[l->n++] = (struct range){first, last};
}

static void add_members(struct range_list *l, const struct unicode_set *set)
{
    for (size_t i = 0; i < set->n_ranges; i++)
        add_range(l, set->ranges[2 * i], set->ranges[2 * i + 1]);
    for (size_t i = 0; i < N_OF(category_runs) && set->categories; i++) {
        uint32_t first = category_runs[i] >> 6, value = category_runs[i] & 31;
        uint32_t end = i + 1 < N_OF(category_runs) ? category_runs[i + 1] >> 6 : END;
        uint32_t step = value >= TURNS_EVEN ? 1 : end - first;
        for (uint32_t cp = first; cp < end; cp += step)
            if (set->categories >> category_of_run(value, cp) & 1)
                add_range(l, cp, cp + step - 1);
    }
}

static void complement(struct range_list *l)
{
    struct range_list out = {0};
    uint32_t at = 0;
    for (size_t i = 0; i < l->n; i++) {
        if (l->p[i].first > at)
            add_range(&out, at, l->p[i].first - 1);
        at = l->p[i].last + 1;
    }
    if (at < END)
        add_range(&out, at, END - 1);
    free(l->p);
    *l = out;
}

static void keep_newer(struct range_list *l)
{
    struct range_list out = {0};
    for (size_t i = 0; i < l->n; i++) {
        for (size_t k = 0; k < N_OF(newer_runs); k += 2) {
            uint32_t first = l->p[i].first > newer_runs[k] ? l->p[i].first : newer_runs[k];
            uint32_t last = l->p[i].last < newer_runs[k + 1] ? l->p[i].last : newer_runs[k + 1];
            if (first <= last)
                add_range(&out, first, last);
        }
    }
    free(l->p);
    *l = out;
}

static int compare_ranges(const void *left, const void *right)
{
    const struct range *a = left, *b = right;
    uint32_t n_a = a->last - a->first, n_b = b->last - b->first;
    if (n_a != n_b)
        return n_a > n_b ? -1 : 1;
    return a->first < b->first ? -1 : a->first > b->first;
}

void unicode_set_append(struct buf *out, const struct unicode_set *set, bool negated, bool newer)
{
    struct range_list l = {0};
    add_members(&l, set);
    if (negated)
        complement(&l);
    if (newer)
        keep_newer(&l);
    if (l.n > 0)
        qsort(l.p, l.n, sizeof *l.p, compare_ranges);
    for (size_t i = 0; i < l.n; i++) {
        /* PCRE2 takes no surrogates, and text has none */
        uint32_t first = l.p[i].first, last = l.p[i].last;
        if (first < 0xd800 && last >= 0xd800 && last < 0xe000)
            last = 0xd7ff;
        if (first >= 0xd800 && first < 0xe000 && last >= 0xe000)
            first = 0xe000;
        if (first < 0xd800 || first >= 0xe000)
            buf_printf(out, first == last ? "\\x{%x}" : "\\x{%x}-\\x{%x}", (unsigned)first, (unsigned)last);
    }
    free(l.p);
}

/* --- normal forms ------------------------------------------------------------------------------------------------ */

/* The run of a table of (first, last, ...) with `width` members each that cp lies in, or NULL. */
static const uint32_t *find_run(const uint32_t *runs, size_t n, size_t width, uint32_t cp)
{
    size_t low = 0, high = n / width;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (runs[middle * width + 1] < cp)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n / width && runs[low * width] <= cp ? &runs[low * width] : NULL;
}

uint8_t unicode_combining_class(uint32_t cp)
{
    const uint32_t *run = cp < 0x300 ? NULL : find_run(class_runs, N_OF(class_runs), 3, cp);
    return run ? (uint8_t)run[2] : 0;
}

int unicode_decompose(uint32_t cp, uint32_t out[2])
{
    if (cp - HANGUL_FIRST < N_HANGUL) {
        uint32_t i = cp - HANGUL_FIRST, tail = i % N_TAILS;
        out[0] = tail ? cp - tail : HANGUL_LEAD + i / (N_VOWELS * N_TAILS);
        out[1] = tail ? HANGUL_TAIL + tail : HANGUL_VOWEL + i / N_TAILS % N_VOWELS;
        return 2;
    }
    size_t low = 0, high = N_OF(decompositions) / 3;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (decompositions[middle * 3] < cp)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == N_OF(decompositions) / 3 || decompositions[low * 3] != cp)
        return 0;
    out[0] = decompositions[low * 3 + 1];
    out[1] = decompositions[low * 3 + 2];
    return out[1] ? 2 : 1;
}

bool unicode_is_compat(uint32_t cp)
{
    return find_run(compat_runs, N_OF(compat_runs), 2, cp) != NULL;
}

uint32_t unicode_compose(uint32_t a, uint32_t b)
{
    if (a - HANGUL_LEAD < N_LEADS && b - HANGUL_VOWEL < N_VOWELS)
        return HANGUL_FIRST + ((a - HANGUL_LEAD) * N_VOWELS + (b - HANGUL_VOWEL)) * N_TAILS;
    if (a - HANGUL_FIRST < N_HANGUL && (a - HANGUL_FIRST) % N_TAILS == 0 && b - HANGUL_TAIL - 1 < N_TAILS - 1)
        return a + (b - HANGUL_TAIL);
    size_t low = 0, high = N_OF(compositions);
    while (low < high) {
        size_t middle = (low + high) / 2;
        const uint32_t *d = &decompositions[compositions[middle] * 3u];
        if (d[1] < a || (d[1] == a && d[2] < b))
            low = middle + 1;
        else
            high = middle;
    }
    if (low == N_OF(compositions))
        return 0;
    const uint32_t *d = &decompositions[compositions[low] * 3u];
    return d[1] == a && d[2] == b ? d[0] : 0;
}

uint32_t unicode_lower(uint32_t cp)
{
    size_t low = 0, high = N_OF(lower_runs) / 4;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if ((uint32_t)lower_runs[middle * 4 + 1] < cp)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == N_OF(lower_runs) / 4)
        return cp;
    const int32_t *run = &lower_runs[low * 4];
    uint32_t offset = cp - (uint32_t)run[0];
    if (cp < (uint32_t)run[0] || (run[2] > 1 && offset % (uint32_t)run[2] != 0))
        return cp;
    return cp + (uint32_t)run[3];
}
