/* UTF-8: strict validation, decoding, and the replacement of broken bytes. */
#include "base/utf8.h"

#include <string.h>

int utf8_step(const char *s, size_t n, uint32_t *cp)
{
    const uint8_t *u = (const uint8_t *)s;
    uint8_t lead = u[0];
    if (lead < 0x80) {
        *cp = lead;
        return 1;
    }
    if (lead < 0xc2 || lead > 0xf4)
        return -1;
    int length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    /* only the second byte's range depends on the lead: no overlong forms, surrogates, or values over 10FFFF
     */
    uint8_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    uint8_t high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    uint32_t value = lead & (0xffu >> (length + 1));
    for (int i = 1; i < length; i++) {
        if ((size_t)i == n)
            return 0;
        if (u[i] < low || u[i] > high)
            return -i;
        value = value << 6 | (u[i] & 0x3f);
        low = 0x80;
        high = 0xbf;
    }
    *cp = value;
    return length;
}

size_t utf8_valid_prefix(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n) {
        uint64_t eight;
        while (n - i >= 8 && (memcpy(&eight, s + i, 8), (eight & 0x8080808080808080u) == 0))
            i += 8;
        if (i == n)
            break;
        uint32_t cp;
        int step = utf8_step(s + i, n - i, &cp);
        if (step <= 0)
            break;
        i += (size_t)step;
    }
    return i;
}

size_t utf8_next(const char *s, uint32_t *cp)
{
    const uint8_t *u = (const uint8_t *)s;
    if (u[0] < 0x80) {
        *cp = u[0];
        return 1;
    }
    if (u[0] < 0xe0) {
        *cp = (uint32_t)(u[0] & 0x1f) << 6 | (u[1] & 0x3f);
        return 2;
    }
    if (u[0] < 0xf0) {
        *cp = (uint32_t)(u[0] & 0x0f) << 12 | (uint32_t)(u[1] & 0x3f) << 6 | (u[2] & 0x3f);
        return 3;
    }
    *cp = (uint32_t)(u[0] & 0x07) << 18 | (uint32_t)(u[1] & 0x3f) << 12 | (uint32_t)(u[2] & 0x3f) << 6 |
          (u[3] & 0x3f);
    return 4;
}

size_t utf8_back(const char *s, size_t at)
{
    do
        at--;
    while (at > 0 && ((uint8_t)s[at] & 0xc0) == 0x80);
    return at;
}

size_t utf8_put(char *out, uint32_t cp)
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xc0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xe0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
        out[2] = (char)(0x80 | (cp & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3f));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3f));
    out[3] = (char)(0x80 | (cp & 0x3f));
    return 4;
}
