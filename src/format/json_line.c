/* JSON whose strings may hold any text, U+0000 included. */
#include "format/json_line.h"

#include <string.h>

#include "base/utf8.h"

#define NUL_BYTES "\xc0\x80"

bool json_line_parse(cJSON **out, const char *text, size_t bytes, const char *where, struct err *e)
{
    *out = NULL;
    struct buf repaired, line;
    buf_init(&repaired, SIZE_MAX / 4);
    buf_init(&line, SIZE_MAX / 4);
    utf8_append_lossy(&repaired, text, bytes);
    size_t done = 0;
    for (size_t i = 0; i + 1 < repaired.n; i++) {
        if (repaired.p[i] != '\\')
            continue;
        if (repaired.n - i >= 6 && memcmp(repaired.p + i, "\\u0000", 6) == 0) {
            buf_append(&line, repaired.p + done, i - done);
            buf_puts(&line, NUL_BYTES);
            done = i + 6;
            i += 5;
        } else {
            i++; /* what the backslash escapes, which may be another one */
        }
    }
    buf_append(&line, repaired.p ? repaired.p + done : "", repaired.n - done);
    bool ok = json_parse(out, line.p, line.n, where, e);
    buf_fini(&repaired);
    buf_fini(&line);
    return ok;
}

void json_line_string(struct buf *out, const cJSON *item)
{
    const char *p = item->valuestring;
    for (const char *nul; (nul = strstr(p, NUL_BYTES)); p = nul + 2) {
        buf_append(out, p, (size_t)(nul - p));
        buf_putc(out, '\0');
    }
    buf_puts(out, p);
}
