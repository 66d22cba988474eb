/* The one filter between untrusted text and a terminal. */
#include "base/terminal.h"

#include <string.h>
#include "base/utf8.h"

static bool is_obeyed(uint32_t cp)
{
    bool is_control = (cp < 0x20 && cp != '\n' && cp != '\t') || (cp >= 0x7f && cp < 0xa0);
    return is_control || (cp >= 0x202a && cp <= 0x202e) || (cp >= 0x2066 && cp <= 0x2069);
}

size_t terminal_unsafe(const char *s, size_t n, size_t *length)
{
    uint32_t cp;
    int step = utf8_step(s, n, &cp);
    *length = step > 0 ? (size_t)step : step < 0 ? (size_t)-step : n;
    return step <= 0 || is_obeyed(cp) ? *length : 0;
}

void terminal_defuse(char *text, bool one_line)
{
    size_t n = strlen(text), length;
    char *out = text;
    for (size_t i = 0; i < n; i += length) {
        if (terminal_unsafe(text + i, n - i, &length) > 0 ||
            (one_line && (text[i] == '\n' || text[i] == '\t'))) {
            *out++ = '?';
            continue;
        }
        for (size_t k = 0; k < length; k++)
            *out++ = text[i + k];
    }
    *out = '\0';
}
