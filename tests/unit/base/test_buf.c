/* The growable buffer: growth, the 0 behind the end, the maximum, taking the bytes out. */
#include "support.h"
#include "base/buf.h"

static void test_append(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 1000);
    buf_append(&b, "ab\0c", 4);
    buf_puts(&b, "de");
    buf_putc(&b, 'f');
    buf_printf(&b, "%d-%s", 12, "x");
    buf_append(&b, NULL, 0);
    assert_false(b.failed);
    assert_int_equal(b.n, 11);
    assert_memory_equal(b.p, "ab\0cdef12-x", 12);
    buf_clear(&b);
    assert_int_equal(b.n, 0);
    assert_string_equal(b.p, "");
    buf_fini(&b);
    assert_null(b.p);
}

static void test_long_printf(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 100000);
    char text[5000];
    memset(text, 'q', sizeof text);
    text[sizeof text - 1] = '\0';
    for (int i = 0; i < 3; i++)
        buf_printf(&b, "<%s>", text);
    assert_int_equal(b.n, 3 * 5001);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(b.p[i * 5001], '<');
        assert_memory_equal(b.p + i * 5001 + 1, text, 4999);
        assert_int_equal(b.p[i * 5001 + 5000], '>');
    }
    assert_int_equal(b.p[b.n], 0);
    buf_fini(&b);
}

static void test_maximum(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 8);
    buf_puts(&b, "12345678");
    assert_false(b.failed);
    buf_putc(&b, '9');
    assert_true(b.failed);
    assert_string_equal(b.p, "12345678");
    buf_append(&b, "", 0); /* stays failed */
    assert_true(b.failed);
    buf_clear(&b);
    assert_false(b.failed);
    buf_printf(&b, "%09d", 1); /* one too many: nothing of it appears */
    assert_true(b.failed);
    assert_int_equal(b.n, 0);
    buf_fini(&b);

    buf_init(&b, 300);
    buf_printf(&b, "%301s", "");
    assert_true(b.failed);
    assert_int_equal(b.n, 0);
    buf_fini(&b);

    buf_init(&b, SIZE_MAX);
    buf_puts(&b, "x");
    buf_append(&b, "y", SIZE_MAX - 1); /* n + 1 would overflow: refused before any byte is read */
    assert_true(b.failed);
    assert_string_equal(b.p, "x");
    buf_fini(&b);
}

static void test_take(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 10);
    size_t n = 99;
    char *p = buf_take(&b, &n);
    assert_non_null(p);
    assert_int_equal(n, 0);
    assert_string_equal(p, "");
    free(p);
    buf_puts(&b, "again");
    p = buf_take(&b, NULL);
    assert_string_equal(p, "again");
    free(p);
    assert_null(b.p);
    assert_int_equal(b.max_bytes, 10);
    buf_fini(&b);
}

static void test_bytes_one_by_one(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 5000);
    for (int i = 0; i < 5000; i++) {
        buf_putc(&b, (char)('a' + i % 26));
        assert_int_equal(b.p[b.n], 0);
    }
    assert_false(b.failed);
    for (int i = 0; i < 5000; i++)
        assert_int_equal(b.p[i], 'a' + i % 26);
    buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_append),           cmocka_unit_test(test_long_printf),
        cmocka_unit_test(test_maximum),          cmocka_unit_test(test_take),
        cmocka_unit_test(test_bytes_one_by_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
