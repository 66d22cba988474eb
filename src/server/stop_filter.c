/* Stop strings. */
#include "server/stop_filter.h"
#include <string.h>

#define HELD_BYTES_MAX ((size_t)1 << 24)

void stop_filter_init(struct stop_filter *f, char *const *strings, size_t n)
{
    *f = (struct stop_filter){.strings = strings, .n = n};
    buf_init(&f->held, HELD_BYTES_MAX);
}

void stop_filter_fini(struct stop_filter *f)
{
    buf_fini(&f->held);
}

/* The shortest string that stands at p, -1 for none. *is_begun: what is left of the text is the begin of one. */
static int match_at(const struct stop_filter *f, const char *p, size_t n, bool *is_begun)
{
    int found = -1;
    size_t shortest = SIZE_MAX;
    for (size_t i = 0; i < f->n; i++) {
        size_t length = strlen(f->strings[i]);
        if (memcmp(p, f->strings[i], length < n ? length : n) != 0)
            continue;
        if (length > n) {
            *is_begun = true;
        } else if (length < shortest) {
            found = (int)i;
            shortest = length;
        }
    }
    return found;
}

/* waits: what may be the begin of a string stays. */
static int search(struct stop_filter *f, bool waits, struct buf *out)
{
    int found = -1;
    size_t at = 0;
    bool is_begun = false;
    while (at < f->held.n) {
        found = match_at(f, f->held.p + at, f->held.n - at, &is_begun);
        if (found >= 0 || (is_begun && waits))
            break;
        at++;
    }
    buf_append(out, f->held.p, at);
    if (found >= 0) {
        buf_clear(&f->held);
    } else if (at > 0) {
        memmove(f->held.p, f->held.p + at, f->held.n - at);
        f->held.n -= at;
    }
    return found;
}

int stop_filter_push(struct stop_filter *f, const char *text, size_t n, struct buf *out)
{
    buf_append(&f->held, text, n);
    return search(f, true, out);
}

int stop_filter_finish(struct stop_filter *f, struct buf *out)
{
    return search(f, false, out);
}
