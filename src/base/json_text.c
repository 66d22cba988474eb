/* JSON as text. */
#include "base/json_text.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/terminal.h"
#include "base/utf8.h"

void json_put_key(struct buf *b, const char *key)
{
    buf_printf(b, "%s\"%s\": ", b->n > 0 && b->p[b->n - 1] != '{' ? ", " : "", key);
}

void json_put_string(struct buf *b, const char *s, size_t n)
{
    static const char short_escapes[] = "\b\f\n\r\t\"\\", short_letters[] = "bfnrt\"\\";
    size_t plain = 0; /* start of what is not yet written */
    buf_putc(b, '"');
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c >= 0x80) {
            uint32_t cp;
            int step = utf8_step(s + i, n - i, &cp);
            size_t length = step > 0 ? (size_t)step : step < 0 ? (size_t)-step : n - i;
            if (step <= 0) {
                buf_append(b, s + plain, i - plain);
                buf_puts(b, UTF8_REPLACEMENT);
                plain = i + length;
            }
            i += length - 1;
            continue;
        }
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        buf_append(b, s + plain, i - plain);
        plain = i + 1;
        const char *escape = c ? strchr(short_escapes, c) : NULL;
        if (escape) {
            buf_putc(b, '\\');
            buf_putc(b, short_letters[escape - short_escapes]);
        } else {
            buf_printf(b, "\\u%04x", c);
        }
    }
    buf_append(b, s + plain, n - plain);
    buf_putc(b, '"');
}

void json_append_printable(struct buf *out, const char *json, size_t n)
{
    size_t length;
    for (size_t i = 0; i < n; i += length) {
        uint32_t cp;
        if (terminal_unsafe(json + i, n - i, &length) == 0)
            buf_append(out, json + i, length);
        else if (utf8_step(json + i, n - i, &cp) > 0)
            buf_printf(out, "\\u%04x", (unsigned)cp);
        else
            buf_puts(out, UTF8_REPLACEMENT);
    }
}

void json_put_ids(struct buf *b, const int32_t *ids, size_t n)
{
    buf_putc(b, '[');
    for (size_t i = 0; i < n; i++)
        buf_printf(b, i ? ", %d" : "%d", ids[i]);
    buf_putc(b, ']');
}

void json_put_double(struct buf *b, double d)
{
    char text[40];
    if (!isfinite(d)) {
        buf_puts(b, "null");
        return;
    }
    /* 15 digits without trailing zeros are the shortest form of every normal double that they give back; the
     * others need 16 or 17, subnormals may need fewer. */
    for (int digits = isnormal(d) || d == 0.0 ? 15 : 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, d);
        if (strtod(text, NULL) == d)
            break;
    }
    /* A program around the library may have set a locale with another decimal point. */
    for (const char *p = text; *p; p++)
        if (strchr("0123456789+-e", *p))
            buf_putc(b, *p);
        else if ((*p & 0xc0) != 0x80)
            buf_putc(b, '.');
}
