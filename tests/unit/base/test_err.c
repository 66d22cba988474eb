/* Error messages: codes, prefixes, cutting, control characters, exit statuses. */
#include "support.h"
#include <errno.h>
#include "base/err.h"

static void test_set(void **state)
{
    (void)state;
    struct err e = {0};
    assert_false(err_set(&e, ERR_FORMAT, "%s: expected %d", "file", 3));
    assert_int_equal(e.code, ERR_FORMAT);
    assert_string_equal(e.msg, "file: expected 3");
    assert_false(err_set(NULL, ERR_FORMAT, "nobody listens"));
    assert_false(err_wrap(NULL, "nobody listens"));
    assert_false(err_set_errno(NULL, "nobody listens"));
}

static void test_wrap_keeps_code(void **state)
{
    (void)state;
    struct err e = {0};
    err_set(&e, ERR_LIMIT, "too long");
    assert_false(err_wrap(&e, "layer %d", 7));
    assert_int_equal(e.code, ERR_LIMIT);
    assert_string_equal(e.msg, "layer 7: too long");
}

/* Words and numbers go together, a prefix keeps the hint, and a new error has none. */
static void test_hints(void **state)
{
    (void)state;
    struct err e = {0};
    assert_null(err_hint_word(HINT_NONE));
    assert_string_equal(err_hint_word(HINT_REPLACE), "force");
    for (int i = HINT_NONE + 1; i < HINT_COUNT; i++) {
        assert_non_null(err_hint_word((enum err_hint)i));
        assert_null(strstr(err_hint_word((enum err_hint)i), "--"));
    }
    err_set(&e, ERR_IO, "exists");
    assert_false(err_set_hint(&e, HINT_REPLACE));
    assert_false(err_set_hint(NULL, HINT_REPLACE));
    err_wrap(&e, "folder");
    assert_int_equal(e.hint, HINT_REPLACE);
    assert_string_equal(e.msg, "folder: exists");
    err_set(&e, ERR_FORMAT, "another");
    assert_int_equal(e.hint, HINT_NONE);
}

static void test_message_as_its_own_argument(void **state)
{
    (void)state;
    struct err e = {0};
    err_set(&e, ERR_IO, "inner");
    err_set(&e, ERR_FAILED, "outer (%s)", e.msg);
    assert_string_equal(e.msg, "outer (inner)");
}

static void test_long_messages_are_cut(void **state)
{
    (void)state;
    struct err e = {0};
    char text[3000];
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = '\0';
    err_set(&e, ERR_FAILED, "%s", text);
    assert_int_equal(strlen(e.msg), sizeof e.msg - 1);
    assert_string_equal(e.msg + sizeof e.msg - 4, "...");
    err_wrap(&e, "%s", text);
    assert_int_equal(strlen(e.msg), sizeof e.msg - 1);
    assert_string_equal(e.msg + sizeof e.msg - 4, "...");

    /* Exactly full: nothing to cut. */
    text[sizeof e.msg - 1] = '\0';
    err_set(&e, ERR_FAILED, "%s", text);
    assert_string_equal(e.msg, text);
}

static void test_cut_respects_utf8(void **state)
{
    (void)state;
    for (int shift = 0; shift < 3; shift++) {
        char text[1600] = "";
        size_t n = 0;
        for (int i = 0; i < shift; i++)
            text[n++] = 'x';
        while (n + 3 < sizeof text) {
            memcpy(text + n, "\xe2\x82\xac", 3);
            n += 3;
        }
        struct err e = {0};
        err_set(&e, ERR_FAILED, "%s", text);
        size_t kept = strlen(e.msg) - 3;
        assert_string_equal(e.msg + kept, "...");
        assert_int_equal((kept - (size_t)shift) % 3, 0);
    }
}

static void test_control_characters(void **state)
{
    (void)state;
    struct err e = {0};
    err_set(&e, ERR_FORMAT, "name \"%s\"", "a\033[2Jb\nc\x7f");
    assert_string_equal(e.msg, "name \"a?[2Jb?c?\"");
    err_set(&e, ERR_FORMAT, "%s", "C1 \xc2\x9b, raw \x9b, bidi \xe2\x80\xae, \xc3\xa9");
    assert_string_equal(e.msg, "C1 ?, raw ?, bidi ?, \xc3\xa9");
}

static void test_errno(void **state)
{
    (void)state;
    struct err e = {0};
    errno = ENOSPC;
    err_set_errno(&e, "%s: can't write", "out");
    assert_int_equal(e.code, ERR_IO);
    assert_string_equal(e.msg, "out: can't write: No space left on device");
    errno = EPIPE;
    err_set_errno(&e, "stdout");
    assert_int_equal(e.code, ERR_CLOSED);
    errno = ENOMEM;
    err_set_errno(&e, "out");
    assert_int_equal(e.code, ERR_NOMEM);

    /* The reason survives a path that is too long for the message. */
    char path[2500];
    memset(path, 'p', sizeof path);
    path[sizeof path - 1] = '\0';
    errno = ENOENT;
    err_set_errno(&e, "%s: can't open", path);
    assert_non_null(strstr(e.msg, "...: No such file or directory"));
}

static void test_exit_statuses(void **state)
{
    (void)state;
    static const struct {
        enum err_code code;
        int status;
    } rows[] = {{ERR_NONE, 0},     {ERR_CLOSED, 0}, {ERR_FAILED, 1},      {ERR_IO, 1},
                {ERR_BUG, 1},      {ERR_USAGE, 2},  {ERR_UNSUPPORTED, 3}, {ERR_FORMAT, 4},
                {ERR_MISMATCH, 5}, {ERR_LIMIT, 6},  {ERR_NOMEM, 6},       {ERR_CANCELLED, 130}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(err_exit_status(rows[i].code), rows[i].status);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_set),
        cmocka_unit_test(test_wrap_keeps_code),
        cmocka_unit_test(test_hints),
        cmocka_unit_test(test_message_as_its_own_argument),
        cmocka_unit_test(test_long_messages_are_cut),
        cmocka_unit_test(test_cut_respects_utf8),
        cmocka_unit_test(test_control_characters),
        cmocka_unit_test(test_errno),
        cmocka_unit_test(test_exit_statuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
