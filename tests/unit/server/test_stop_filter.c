/* Stop strings in texts that come in pieces of any size. */
#include "support.h"
#include <string.h>
#include "server/stop_filter.h"

/* What is let through of text in pieces of `step` bytes; *found: the index of the string, -1. */
static char *filter(const char *text, char *const *strings, size_t n, size_t step, int *found)
{
    struct stop_filter f;
    struct buf out;
    size_t length = strlen(text);
    stop_filter_init(&f, strings, n);
    buf_init(&out, 1 << 20);
    buf_puts(&out, "");
    *found = -1;
    for (size_t i = 0; i < length && *found < 0; i += step)
        *found = stop_filter_push(&f, text + i, length - i < step ? length - i : step, &out);
    if (*found < 0)
        *found = stop_filter_finish(&f, &out);
    stop_filter_fini(&f);
    return buf_take(&out, NULL);
}

static void check(const char *text, const char *a, const char *b, const char *expected, int index)
{
    char *strings[] = {(char *)(uintptr_t)a, (char *)(uintptr_t)b};
    for (size_t step = 1; step <= strlen(text); step++) {
        int found;
        char *out = filter(text, strings, b ? 2 : 1, step, &found);
        assert_string_equal(out, expected);
        assert_int_equal(found, index);
        free(out);
    }
}

static void test_borders(void **state)
{
    (void)state;
    check("one two three", "two", NULL, "one ", 0);
    check("one two three", "one", NULL, "", 0);
    check("one two three", "three", NULL, "one two ", 0);
    check("one two three", "four", NULL, "one two three", -1);
    check("one two thre", "three", NULL, "one two thre", -1); /* its begin stands at the end: text */
    check("aaab", "aab", NULL, "a", 0);
    check("abababac", "ababac", NULL, "ab", 0);
    check("say \n\nUser: hi", "\n\nUser:", "zzz", "say ", 0);
    check("xabcy", "abc", "ab", "x", 1); /* of those that begin together the shortest */
    check("xbc", "xbcz", "bc", "x", 1);  /* found at the end, behind what might have been another */
    check("xabz", "abc", "ab", "x", 1);
    check("xbcy", "bcy", "xbcz", "x", 0); /* a partial one that begins earlier hides none */
    check("12345", "345", "23", "1", 1);
}

/* Nothing that could be the begin of a stop string is given out before it is known. */
static void test_holds(void **state)
{
    (void)state;
    char *strings[] = {(char *)(uintptr_t) "<stop>"};
    struct stop_filter f;
    struct buf out;
    stop_filter_init(&f, strings, 1);
    buf_init(&out, 1000);
    assert_int_equal(stop_filter_push(&f, "a<sto", 5, &out), -1);
    assert_int_equal(out.n, 1);
    assert_int_equal(stop_filter_push(&f, "<s", 2, &out), -1);
    assert_int_equal(out.n, 5);
    assert_memory_equal(out.p, "a<sto", 5);
    assert_int_equal(stop_filter_finish(&f, &out), -1);
    assert_memory_equal(out.p, "a<sto<s", 7);
    stop_filter_fini(&f);
    buf_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_borders), cmocka_unit_test(test_holds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
