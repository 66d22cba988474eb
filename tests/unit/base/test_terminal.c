/* The filter between untrusted text and a terminal, over every code point and every broken sequence of two bytes. */
#include "support.h"
#include "base/terminal.h"
#include "base/utf8.h"

static bool must_not_pass(uint32_t cp)
{
    bool is_control = (cp < 0x20 && cp != '\n' && cp != '\t') || (cp >= 0x7f && cp <= 0x9f);
    return is_control || (cp >= 0x202a && cp <= 0x202e) || (cp >= 0x2066 && cp <= 0x2069);
}

static void test_every_code_point(void **state)
{
    (void)state;
    for (uint32_t cp = 1; cp < 0x110000; cp++) {
        char text[8] = {0};
        if (cp >= 0xd800 && cp < 0xe000)
            continue;
        size_t n = utf8_put(text, cp), length;
        assert_int_equal(terminal_unsafe(text, n, &length), must_not_pass(cp) ? n : 0);
        assert_int_equal(length, n);
        terminal_defuse(text, false);
        if (must_not_pass(cp))
            assert_string_equal(text, "?");
        else
            assert_int_equal(strlen(text), n);
    }
}

/* What passes of any bytes is well-formed and holds nothing that a terminal obeys. */
static void test_broken_bytes(void **state)
{
    (void)state;
    for (int a = 0x80; a < 0x100; a++) {
        for (int b = 1; b < 0x100; b++) {
            char text[8] = {'x', (char)a, (char)b, '[', '\0'};
            terminal_defuse(text, true);
            assert_int_equal(utf8_valid_prefix(text, strlen(text)), strlen(text));
            for (const char *p = text; *p;) {
                uint32_t cp;
                p += utf8_next(p, &cp);
                assert_false(must_not_pass(cp) || cp == '\n' || cp == '\t');
            }
        }
    }
    char raw[] = "\x9b"
                 "31m \xc2";
    terminal_defuse(raw, true);
    assert_string_equal(raw, "?31m ?");
}

static void test_forms(void **state)
{
    (void)state;
    static const char text[] = "a\033[2J\xc2\x9b\n\xe2\x80\xae\xc3\xa9";
    char copy[sizeof text];
    struct buf b;
    buf_init(&b, 100);
    terminal_append(&b, text, sizeof text - 1);
    assert_string_equal(b.p, "a" UTF8_REPLACEMENT "[2J" UTF8_REPLACEMENT "\n" UTF8_REPLACEMENT "\xc3\xa9");
    buf_fini(&b);
    memcpy(copy, text, sizeof text);
    terminal_defuse(copy, false);
    assert_string_equal(copy, "a?[2J?\n?\xc3\xa9");
    memcpy(copy, text, sizeof text);
    terminal_defuse(copy, true);
    assert_string_equal(copy, "a?[2J???\xc3\xa9");
    char *printed = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&printed, &n);
    terminal_put(f, text);
    terminal_put(f, NULL);
    fclose(f);
    assert_string_equal(printed, copy);
    free(printed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code_point),
        cmocka_unit_test(test_broken_bytes),
        cmocka_unit_test(test_forms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
