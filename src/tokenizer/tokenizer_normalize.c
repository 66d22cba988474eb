/* Normalizers: normal forms, replacement, and the small ones.
 *
 * A normal form looks for characters that may change and normalises only the stretch around each, from the last
 * starter before to the next one that nothing composes with; text without such characters is not copied. Marks
 * are sorted by a merge sort, so that a megabyte of marks is no attack.
 */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "tokenizer/tokenizer_internal.h"
#include "unicode/unicode.h"
#include "base/utf8.h"

void normalizer_fini(struct normalizer *step)
{
    free(step->from);
    free(step->to);
    regex_free(step->regex);
}

/* True when cp stays itself and no boundary lies inside what it begins. Forms other than NFC look at everything
 * that is not ASCII. */
static bool is_safe(enum normalizer_kind form, uint32_t cp)
{
    return form == NORMALIZE_NFC ? !unicode_nfc_may_change(cp) : cp < 0x80;
}

/* Finds the next character that is not safe, at or after i; n when there is none. */
static size_t next_unsafe(enum normalizer_kind form, const char *text, size_t n, size_t i)
{
    while (i < n) {
        uint8_t lead = (uint8_t)text[i];
        if (lead < 0x80) {
            uint64_t eight;
            i++;
            while (n - i >= 8 && (memcpy(&eight, text + i, 8), (eight & 0x8080808080808080u) == 0))
                i += 8;
        } else if (lead < 0xcc && form == NORMALIZE_NFC) { /* below U+0300 */
            i += 2;
        } else if (lead >= 0xe5 && lead <= 0xe9 && form == NORMALIZE_NFC) { /* U+5000 .. U+9FFF */
            i += 3;
        } else {
            uint32_t cp;
            size_t length = utf8_next(text + i, &cp);
            if (!is_safe(form, cp))
                return i;
            i += length;
        }
    }
    return n;
}

bool nfc_is_stable(const char *text, size_t n)
{
    return next_unsafe(NORMALIZE_NFC, text, n, 0) == n;
}

struct point {
    uint32_t cp, combining_class;
};

/* Code points of a stretch. */
struct points {
    struct point *p; /* small, or on the heap */
    size_t n, capacity;
    struct point small[64];
};

static void push_point(struct points *l, uint32_t cp)
{
    if (l->n == l->capacity) {
        bool is_small = l->p == l->small;
        l->capacity *= 2;
        l->p = xrealloc(is_small ? NULL : l->p, l->capacity * sizeof *l->p);
        if (is_small)
            memcpy(l->p, l->small, sizeof l->small);
    }
    l->p[l->n++] = (struct point){cp, unicode_combining_class(cp)};
}

/* Each step makes a smaller problem: what the tables hold takes at most five. */
static void decompose(struct points *l, uint32_t cp)
{
    uint32_t parts[2];
    int n = unicode_decompose(cp, parts);
    if (n == 0)
        push_point(l, cp);
    for (int i = 0; i < n; i++)
        decompose(l, parts[i]);
}

/* The compatibility decomposition of a character that has one: those never change, so any version's will do. */
static void decompose_compat(struct points *l, uint32_t cp)
{
    utf8proc_int32_t parts[32];
    int boundary = 0;
    utf8proc_ssize_t n = utf8proc_decompose_char(
        (utf8proc_int32_t)cp, parts, 32, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, &boundary);
    for (utf8proc_ssize_t i = 0; i < n && i < 32; i++)
        push_point(l, (uint32_t)parts[i]);
}

static void sort_marks(struct point *p, struct point *scratch, size_t n)
{
    if (n <= 8) {
        for (size_t i = 1; i < n; i++) {
            struct point m = p[i];
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

static void order_marks(struct points *l)
{
    struct point small[32], *scratch = small;
    if (l->n > 64)
        scratch = xmalloc((l->n / 2 + 1) * sizeof *scratch);
    for (size_t i = 0; i < l->n;) {
        size_t run = 0;
        while (i + run < l->n && l->p[i + run].combining_class != 0)
            run++;
        if (run > 1)
            sort_marks(l->p + i, scratch, run);
        i += run ? run : 1;
    }
    if (scratch != small)
        free(scratch);
}

static void compose(struct points *l)
{
    size_t kept = 0, starter = SIZE_MAX;
    for (size_t i = 0; i < l->n; i++) {
        struct point point = l->p[i];
        if (starter != SIZE_MAX &&
            (kept == starter + 1 || l->p[kept - 1].combining_class < point.combining_class)) {
            uint32_t made = unicode_compose(l->p[starter].cp, point.cp);
            if (made) {
                l->p[starter].cp = made;
                continue;
            }
        }
        if (point.combining_class == 0)
            starter = kept;
        l->p[kept++] = point;
    }
    l->n = kept;
}

static void append_stretch(struct buf *out, enum normalizer_kind form, const char *text, size_t n)
{
    bool is_compat = form == NORMALIZE_NFKC || form == NORMALIZE_NFKD;
    struct points l;
    l.p = l.small;
    l.n = 0;
    l.capacity = sizeof l.small / sizeof l.small[0];
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        i += utf8_next(text + i, &cp);
        if (is_compat && unicode_is_compat(cp))
            decompose_compat(&l, cp);
        else
            decompose(&l, cp);
    }
    order_marks(&l);
    if (form == NORMALIZE_NFC || form == NORMALIZE_NFKC)
        compose(&l);
    for (size_t i = 0; i < l.n; i++) {
        char bytes[4];
        buf_append(out, bytes, utf8_put(bytes, l.p[i].cp));
    }
    if (l.p != l.small)
        free(l.p);
}

void normal_form_append(struct buf *out, enum normalizer_kind form, const char *text, size_t n)
{
    size_t done = 0;
    for (;;) {
        size_t unsafe = next_unsafe(form, text, n, done);
        if (unsafe == n)
            break;
        size_t begin = unsafe > done ? utf8_back(text, unsafe) : unsafe;
        size_t end = unsafe;
        uint32_t cp;
        do
            end += utf8_next(text + end, &cp);
        while (end < n && (utf8_next(text + end, &cp), !is_safe(form, cp)));
        buf_append(out, text + done, begin - done);
        append_stretch(out, form, text + begin, end - begin);
        done = end;
    }
    buf_append(out, text + done, n - done);
}

static void lower_append(struct buf *out, const char *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        char bytes[4];
        uint32_t cp;
        i += utf8_next(text + i, &cp);
        if (cp == 0x130)
            buf_append(out, "i\xcc\x87", 3);
        else
            buf_append(out, bytes, utf8_put(bytes, unicode_lower(cp)));
    }
}

static struct str strip_white(struct str text, bool left, bool right)
{
    uint32_t cp;
    while (left && text.n > 0) {
        size_t length = utf8_next(text.p, &cp);
        if (!unicode_is_white(cp))
            break;
        text.p += length;
        text.n -= length;
    }
    while (right && text.n > 0) {
        size_t back = utf8_back(text.p, text.n);
        (void)utf8_next(text.p + back, &cp);
        if (!unicode_is_white(cp))
            break;
        text.n = back;
    }
    return text;
}

static void replace_byte(struct buf *out, const char *text, size_t n, char from, const char *to)
{
    char chunk[2048];
    size_t used = 0, to_n = strlen(to);
    if (to_n > sizeof chunk / 2) {
        for (size_t i = 0; i < n; i++)
            buf_append(out, text[i] == from ? to : text + i, text[i] == from ? to_n : 1);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        if (used + to_n >= sizeof chunk) {
            buf_append(out, chunk, used);
            used = 0;
        }
        if (text[i] == from) {
            memcpy(chunk + used, to, to_n);
            used += to_n;
        } else {
            chunk[used++] = text[i];
        }
    }
    buf_append(out, chunk, used);
}

void replace_append(struct buf *out, const char *text, size_t n, const char *from, const char *to)
{
    size_t from_n = strlen(from), to_n = strlen(to), done = 0;
    if (from_n == 1) {
        replace_byte(out, text, n, *from, to);
        return;
    }
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

static bool replace_matches(struct buf *out, const struct normalizer *step, struct regex_scratch *scratch,
                            struct str text, struct err *e)
{
    size_t done = 0, not_empty_at = SIZE_MAX, begin, end;
    bool ok = true, found = true;
    while (ok && found) {
        ok = regex_find(step->regex, scratch, text.p, text.n, done, not_empty_at, &found, &begin, &end, e);
        if (ok && found) {
            buf_append(out, text.p + done, begin - done);
            buf_puts(out, step->to);
            done = not_empty_at = end;
        }
    }
    buf_append(out, text.p + done, text.n - done);
    return ok;
}

/* Does the step leave this text alone? May say no though it does. */
static bool changes_nothing(const struct normalizer *step, struct str text)
{
    switch (step->kind) {
    case NORMALIZE_NFC:
    case NORMALIZE_NFD:
    case NORMALIZE_NFKC:
    case NORMALIZE_NFKD:
        return next_unsafe(step->kind, text.p, text.n, 0) == text.n;
    case NORMALIZE_REPLACE:
        return !(step->from[1] ? memmem(text.p, text.n, step->from, strlen(step->from))
                               : memchr(text.p, step->from[0], text.n));
    default:
        return text.n == 0;
    }
}

bool normalize(const struct normalizer *steps, int n_steps, struct regex_scratch *regex, struct str text,
               struct buf scratch[2], struct str *out, struct err *e)
{
    int next = 0;
    for (int i = 0; i < n_steps; i++) {
        const struct normalizer *step = &steps[i];
        if (step->kind == NORMALIZE_STRIP) {
            text = strip_white(text, step->left, step->right);
            continue;
        }
        if (changes_nothing(step, text))
            continue;
        struct buf *to = &scratch[next];
        next = 1 - next;
        buf_clear(to);
        switch (step->kind) {
        case NORMALIZE_REPLACE:
            replace_append(to, text.p, text.n, step->from, step->to);
            break;
        case NORMALIZE_REPLACE_MATCHES:
            if (!replace_matches(to, step, regex, text, e))
                return false;
            break;
        case NORMALIZE_PREPEND:
            buf_puts(to, step->to);
            buf_append(to, text.p, text.n);
            break;
        case NORMALIZE_LOWERCASE:
            lower_append(to, text.p, text.n);
            break;
        default:
            normal_form_append(to, step->kind, text.p, text.n);
            break;
        }
        if (to->failed)
            return err_set(e, ERR_LIMIT, "normalised text of more than %zu bytes", to->max_bytes);
        text = (struct str){to->p ? to->p : "", to->n};
    }
    *out = text;
    return true;
}
