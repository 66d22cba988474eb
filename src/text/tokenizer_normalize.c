/* Normalizers: NFC and replacement of a string.
 *
 * NFC looks for characters that may change and normalises only the stretch around each, from the last starter
 * before to the next safe starter; text without such characters is not copied. Marks are sorted by a merge
 * sort, so that a megabyte of marks is no attack.
 *
 * Known bound: the tables are those of utf8proc's Unicode version (15.0 in 2.8.0). The library's are 9.0: it
 * neither composes nor reorders what was assigned later (a few hundred code points of rare scripts).
 */
#include <string.h>
#include <utf8proc.h>

#include "text/tokenizer_parts.h"
#include "text/utf8.h"

/* True when a boundary of normalisation lies before cp and cp stays itself whatever follows, but for
 * composing with a mark after it. May say false too often. */
static bool is_safe(uint32_t cp)
{
    if (cp < 0x300)
        return true;
    if ((cp >= 0x3400 && cp <= 0x9fff) || (cp >= 0xac00 && cp <= 0xd7a3))
        return true;
    if ((cp >= 0x1160 && cp <= 0x11ff) || (cp >= 0xd7b0 && cp <= 0xd7ff)) /* vowels and finals of Hangul */
        return false;
    const utf8proc_property_t *p = utf8proc_get_property((utf8proc_int32_t)cp);
    if (p->combining_class != 0 || p->category == UTF8PROC_CATEGORY_MN ||
        p->category == UTF8PROC_CATEGORY_MC || p->category == UTF8PROC_CATEGORY_ME)
        return false;
    if (p->decomp_seqindex == UINT16_MAX || p->decomp_type != 0)
        return true;
    /* these are all composed of two and compose back: Cyrillic, kana, Latin Additional */
    return (cp >= 0x400 && cp <= 0x4ff) || (cp >= 0x3041 && cp <= 0x30ff) || (cp >= 0x1e00 && cp <= 0x1eff);
}

/* Finds the next character that is not safe, at or after i; n when there is none. */
static size_t next_unsafe(const char *text, size_t n, size_t i)
{
    while (i < n) {
        uint8_t lead = (uint8_t)text[i];
        if (lead < 0x80) {
            uint64_t eight;
            i++;
            while (n - i >= 8 && (memcpy(&eight, text + i, 8), (eight & 0x8080808080808080u) == 0))
                i += 8;
        } else if (lead < 0xcc) { /* below U+0300 */
            i += 2;
        } else if (lead >= 0xe5 && lead <= 0xe9) { /* U+5000 .. U+9FFF */
            i += 3;
        } else {
            uint32_t cp;
            size_t length = utf8_next(text + i, &cp);
            if (!is_safe(cp))
                return i;
            i += length;
        }
    }
    return n;
}

bool nfc_is_stable(const char *text, size_t n)
{
    return next_unsafe(text, n, 0) == n;
}

struct mark {
    utf8proc_int32_t cp;
    int combining_class;
};

static void sort_marks(struct mark *p, struct mark *scratch, size_t n)
{
    if (n <= 8) {
        for (size_t i = 1; i < n; i++) {
            struct mark m = p[i];
            size_t j = i;
            for (; j > 0 && p[j - 1].combining_class > m.combining_class; j--)
                p[j] = p[j - 1];
            p[j] = m;
        }
        return;
    }
    size_t half = n / 2;
    sort_marks(p, scratch, half);
    sort_marks(p + half, scratch, n - half);
    memcpy(scratch, p, half * sizeof *p);
    for (size_t i = 0, j = half, k = 0; i < half; k++)
        p[k] = j < n && p[j].combining_class < scratch[i].combining_class ? p[j++] : scratch[i++];
}

/* NFC of one stretch: decompose, order the marks, compose. */
static bool nfc_stretch(struct buf *out, const char *text, size_t n, struct err *e)
{
    /* a character becomes at most 4; they have at least 1 byte each, so this bounds any stretch */
    size_t capacity = n * 4 + 8;
    utf8proc_int32_t small[64];
    struct mark small_marks[96]; /* a half more: scratch of the sort */
    bool is_small = capacity <= 64;
    utf8proc_int32_t *cps = is_small ? small : xmalloc(capacity * sizeof *cps);
    struct mark *marks = is_small ? small_marks : xmalloc((capacity + capacity / 2) * sizeof *marks);
    size_t n_cps = 0;
    bool ok = true;
    for (size_t i = 0; i < n && ok;) {
        uint32_t cp;
        int boundary = 0;
        i += utf8_next(text + i, &cp);
        utf8proc_ssize_t count =
            utf8proc_decompose_char((utf8proc_int32_t)cp, cps + n_cps, (utf8proc_ssize_t)(capacity - n_cps),
                                    UTF8PROC_STABLE | UTF8PROC_COMPOSE, &boundary);
        ok = count >= 0 && (size_t)count <= capacity - n_cps;
        n_cps += ok ? (size_t)count : 0;
    }
    for (size_t i = 0; i < n_cps && ok;) {
        size_t run = 0;
        int combining_class;
        while (i + run < n_cps &&
               (combining_class = utf8proc_get_property(cps[i + run])->combining_class) != 0) {
            marks[run] = (struct mark){cps[i + run], combining_class};
            run++;
        }
        sort_marks(marks, marks + run, run);
        for (size_t k = 0; k < run; k++)
            cps[i + k] = marks[k].cp;
        i += run ? run : 1;
    }
    if (ok) {
        utf8proc_ssize_t left =
            utf8proc_normalize_utf32(cps, (utf8proc_ssize_t)n_cps, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        ok = left >= 0;
        for (utf8proc_ssize_t i = 0; i < left; i++) {
            char bytes[4];
            buf_append(out, bytes, utf8_put(bytes, (uint32_t)cps[i]));
        }
    }
    if (!is_small) {
        free(cps);
        free(marks);
    }
    return ok || err_set(e, ERR_BUG, "normalising %zu bytes of text failed", n);
}

bool nfc_append(struct buf *out, const char *text, size_t n, struct err *e)
{
    size_t done = 0;
    for (;;) {
        size_t unsafe = next_unsafe(text, n, done);
        if (unsafe == n)
            break;
        size_t begin = unsafe > done ? utf8_back(text, unsafe) : unsafe;
        size_t end = unsafe;
        uint32_t cp;
        do
            end += utf8_next(text + end, &cp);
        while (end < n && (utf8_next(text + end, &cp), !is_safe(cp)));
        buf_append(out, text + done, begin - done);
        if (!nfc_stretch(out, text + begin, end - begin, e))
            return false;
        done = end;
    }
    buf_append(out, text + done, n - done);
    return true;
}

void replace_append(struct buf *out, const char *text, size_t n, const char *from, const char *to)
{
    size_t from_n = strlen(from), to_n = strlen(to), done = 0;
    while (done < n) {
        const char *hit = memmem(text + done, n - done, from, from_n);
        size_t at = hit ? (size_t)(hit - text) : n;
        buf_append(out, text + done, at - done);
        if (!hit)
            break;
        buf_append(out, to, to_n);
        done = at + from_n;
    }
}

bool normalize(const struct normalizer *steps, int n_steps, struct str text, struct buf scratch[2],
               struct str *out, struct err *e)
{
    int next = 0;
    for (int i = 0; i < n_steps; i++) {
        const struct normalizer *step = &steps[i];
        if (step->kind == NORMALIZE_NFC ? nfc_is_stable(text.p, text.n)
                                        : !memmem(text.p, text.n, step->from, strlen(step->from)))
            continue;
        struct buf *to = &scratch[next];
        next = 1 - next;
        buf_clear(to);
        if (step->kind == NORMALIZE_REPLACE)
            replace_append(to, text.p, text.n, step->from, step->to);
        else if (!nfc_append(to, text.p, text.n, e))
            return false;
        if (to->failed)
            return err_set(e, ERR_LIMIT, "normalised text of more than %zu bytes", to->max_bytes);
        text = (struct str){to->p ? to->p : "", to->n};
    }
    *out = text;
    return true;
}
