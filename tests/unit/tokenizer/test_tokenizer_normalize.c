/* NFC by stretches against utf8proc's NFC of the whole text, over every code point and over random mixtures. What
 * Unicode gained after 9.0 is no business of ours and left out; the sweep of test_unicode holds us to that. */
#include "support.h"

#include <utf8proc.h>

#include "tokenizer/tokenizer_internal.h"
#include "unicode/unicode.h"
#include "base/utf8.h"

static void assert_nfc(const char *text, size_t n)
{
    char *copy = malloc(n + 1); /* not one byte more: reading beyond the end must show */
    assert_non_null(copy);
    memcpy(copy, text, n);
    copy[n] = '\0';
    utf8proc_uint8_t *want = utf8proc_NFC((const utf8proc_uint8_t *)copy);
    assert_non_null(want);
    struct buf got;
    buf_init(&got, 1 << 20);
    normal_form_append(&got, NORMALIZE_NFC, copy, n);
    if (got.n != strlen((char *)want) || memcmp(got.p, want, got.n) != 0)
        fail_msg("NFC of \"%s\" is \"%s\", not \"%s\"", copy, want, got.p);
    if (nfc_is_stable(copy, n))
        assert_string_equal(copy, want);
    buf_fini(&got);
    free(want);
    free(copy);
}

static bool is_newer(uint32_t cp)
{
    utf8proc_int32_t parts[32];
    uint32_t ours[2];
    int boundary = 0, class = utf8proc_get_property((utf8proc_int32_t)cp)->combining_class;
    utf8proc_ssize_t n =
        utf8proc_decompose_char((utf8proc_int32_t)cp, parts, 32, UTF8PROC_DECOMPOSE, &boundary);
    return (class != 0 && unicode_combining_class(cp) == 0) || (n > 1 && unicode_decompose(cp, ours) == 0);
}

static void test_every_code_point(void **state)
{
    (void)state;
    int n_newer = 0;
    for (uint32_t cp = 1; cp < 0xe0200; cp++) {
        /* ideographs, Hangul syllables and private characters are all alike */
        bool is_dull = (cp >= 0x3400 && cp < 0x9f00) || (cp >= 0xac00 && cp < 0xd7a0) ||
                       (cp >= 0xe000 && cp < 0xf900) || (cp >= 0x17000 && cp < 0x18d00) ||
                       (cp >= 0x20000 && cp < 0x2f800) || cp >= 0x2fa20;
        if ((is_dull && cp % 29) || (cp >= 0xd800 && cp < 0xe000) || (cp >= 0x32000 && cp < 0xe0000))
            continue;
        if (is_newer(cp)) {
            n_newer++;
            continue;
        }
        /* alone, behind what it might compose with, and before a mark */
        static const char *const before[] = {"", "A", "\xe1\x84\x80", "e\xcc\xa3", "\xe0\xa7\x87"};
        for (int i = 0; i < 5; i++) {
            char text[32];
            size_t n = strlen(before[i]);
            memcpy(text, before[i], n);
            n += utf8_put(text + n, cp);
            memcpy(text + n, i % 2 ? "\xcc\x81" : "\xcc\xa7\xcc\x81", i % 2 ? 2 : 4);
            assert_nfc(text, n + (i % 2 ? 2 : 4));
        }
    }
    assert_in_range(n_newer, 1, 300);
}

static void test_mixtures(void **state)
{
    (void)state;
    static const uint32_t some[] = {'a',    'e',    'o',    ' ',    0xe9,    0x300,  0x301,  0x302,
                                    0x308,  0x323,  0x327,  0x345,  0x344,   0x37e,  0x1fb3, 0x1100,
                                    0x1161, 0x11a8, 0xac00, 0xac01, 0x212b,  0x9c7,  0x9be,  0x304b,
                                    0x3099, 0x958,  0xfb2a, 0x2adc, 0x1d15e, 0xf900, 0x4e00, 0x1e69,
                                    0x419,  0x306,  0x6c1,  0x654,  0x5d0,   0x5b7,  0xe40,  0xe48};
    uint32_t seed = 5;
    for (int round = 0; round < 20000; round++) {
        char text[256];
        size_t n = 0;
        int count = 1 + round % 40;
        for (int i = 0; i < count; i++) {
            seed = seed * 1664525u + 1013904223u;
            n += utf8_put(text + n, some[(seed >> 8) % (sizeof some / sizeof some[0])]);
        }
        assert_nfc(text, n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_code_point),
                                       cmocka_unit_test(test_mixtures)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
