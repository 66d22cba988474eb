/* Any bytes into a buffer as UTF-8. */
#include "base/utf8.h"

size_t utf8_append_lossy_whole(struct buf *out, const char *s, size_t n)
{
    size_t i = 0;
    while (i < n) {
        size_t good = utf8_valid_prefix(s + i, n - i);
        buf_append(out, s + i, good);
        i += good;
        if (i == n)
            break;
        uint32_t cp;
        int step = utf8_step(s + i, n - i, &cp);
        if (step == 0)
            break;
        buf_puts(out, UTF8_REPLACEMENT);
        i += (size_t)-step;
    }
    return i;
}

void utf8_append_lossy(struct buf *out, const char *s, size_t n)
{
    if (utf8_append_lossy_whole(out, s, n) < n)
        buf_puts(out, UTF8_REPLACEMENT);
}
