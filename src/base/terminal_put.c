/* Text to a terminal and into buffers, without what terminal.c holds back. */
#include "base/terminal.h"

#include <string.h>
#include "base/utf8.h"

void terminal_append(struct buf *out, const char *text, size_t n)
{
    size_t length;
    for (size_t i = 0; i < n; i += length) {
        if (terminal_unsafe(text + i, n - i, &length) > 0)
            buf_puts(out, UTF8_REPLACEMENT);
        else
            buf_append(out, text + i, length);
    }
}

void terminal_put(FILE *f, const char *text)
{
    size_t n = text ? strlen(text) : 0, length;
    for (size_t i = 0; i < n; i += length) {
        if (terminal_unsafe(text + i, n - i, &length) > 0 || text[i] == '\n' || text[i] == '\t')
            fputc('?', f);
        else
            fwrite(text + i, 1, length, f);
    }
}
