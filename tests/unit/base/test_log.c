/* Messages: levels, the warning count, control characters, cancellation, progress off a terminal. */
#include "support.h"
#include "base/log.h"

static char *text;
static size_t n_text;

static struct log open_log(enum log_level level)
{
    struct log l = {.level = level};
    l.stream = open_memstream(&text, &n_text);
    assert_non_null(l.stream);
    return l;
}

static void expect_and_close(struct log *l, const char *want)
{
    fclose(l->stream);
    assert_string_equal(text, want);
    free(text);
    text = NULL;
}

static void test_levels(void **state)
{
    (void)state;
    static const char *const want[] = {"", "milkit: warning: w 1\n", "milkit: warning: w 1\nmilkit: i\n",
                                       "milkit: warning: w 1\nmilkit: i\nmilkit: d\n"};
    for (int level = LOG_QUIET; level <= LOG_DEBUG; level++) {
        struct log l = open_log((enum log_level)level);
        log_warn(&l, "w %d", 1);
        log_info(&l, "i");
        log_debug(&l, "d");
        assert_int_equal(l.n_warnings, 1); /* counted, heard or not */
        expect_and_close(&l, want[level]);
    }
    log_warn(NULL, "x");
    log_info(NULL, "x");
    log_debug(NULL, "x");
    struct log silent = {.level = LOG_DEBUG};
    log_warn(&silent, "x");
    log_info(&silent, "x");
    assert_int_equal(silent.n_warnings, 1);
}

static const char *as_option(enum err_hint hint)
{
    return hint == HINT_REPLACE ? " (--replace)" : "";
}

/* The owner of the stream words a hint; without that the message stands alone. */
static void test_hint(void **state)
{
    (void)state;
    struct log l = open_log(LOG_WARN);
    log_warn_hint(&l, HINT_REPLACE, "n %d", 1);
    l.hint_text = as_option;
    log_warn_hint(&l, HINT_REPLACE, "n %d", 2);
    log_warn_hint(&l, HINT_NONE, "n %d", 3);
    assert_int_equal(l.n_warnings, 3);
    expect_and_close(&l, "milkit: warning: n 1\nmilkit: warning: n 2 (--replace)\nmilkit: warning: n 3\n");
    log_warn_hint(NULL, HINT_REPLACE, "x");
}

static void test_control_characters(void **state)
{
    (void)state;
    struct log l = open_log(LOG_INFO);
    log_info(&l, "tensor %s", "\033]0;x\007\r\xc2\x9bm");
    expect_and_close(&l, "milkit: tensor ?]0;x???m\n");
}

static void test_cancelled(void **state)
{
    (void)state;
    atomic_int flag = 0;
    struct log l = {.cancel = &flag};
    struct err e = {0};
    assert_false(log_cancelled(&l, &e));
    assert_false(log_cancelled(NULL, &e));
    assert_int_equal(e.code, ERR_NONE);
    flag = 1;
    assert_true(log_cancelled(&l, &e));
    assert_int_equal(e.code, ERR_CANCELLED);
    assert_true(log_cancelled(&l, NULL));
    l.cancel = NULL;
    assert_false(log_cancelled(&l, &e));
}

static void test_progress(void **state)
{
    (void)state;
    struct log l = open_log(LOG_INFO);
    struct progress p;
    progress_begin(&p, &l, "reading", "MB", 1e-6, 50e6);
    progress_update(&p, 1e6, NULL); /* too early for a line off a terminal */
    fflush(l.stream);
    assert_int_equal(n_text, 0);
    p.start_s -= 20; /* as if 20 seconds had passed */
    p.last_s -= 20;
    progress_update(&p, 25e6, "layer \0333");
    progress_update(&p, 26e6, NULL);
    progress_end(&p);
    fflush(l.stream);
    assert_non_null(strstr(text, "milkit: reading: 25.0 of 50.0 MB (50%), "));
    assert_non_null(strstr(text, "20 s left, layer ?3\n"));
    assert_null(strstr(text, "26.0"));
    fclose(l.stream);
    free(text);

    /* Unknown total, no log, quiet log. */
    l = open_log(LOG_INFO);
    progress_begin(&p, &l, "tokens", "tokens", 1, 0);
    p.start_s -= 10.5;
    p.last_s -= 10.5;
    progress_update(&p, 21, NULL);
    fflush(l.stream);
    assert_non_null(strstr(text, "milkit: tokens: 21 tokens, 2.0 tokens/s\n"));
    fclose(l.stream);
    free(text);
    l = open_log(LOG_WARN);
    progress_begin(&p, &l, "x", "MB", 1, 1);
    p.last_s -= 20;
    progress_update(&p, 1, NULL);
    progress_end(&p);
    expect_and_close(&l, "");
    progress_begin(&p, NULL, "x", "MB", 1, 1);
    progress_update(&p, 1, NULL);
    progress_end(&p);
}

static void test_clock(void **state)
{
    (void)state;
    double a = clock_seconds(), b = clock_seconds();
    assert_true(b >= a && a > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_hint),
        cmocka_unit_test(test_control_characters),
        cmocka_unit_test(test_cancelled),
        cmocka_unit_test(test_progress),
        cmocka_unit_test(test_clock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
