/* Files without names: what was put comes back, nothing is left in the folder, errors name it. */
// wraps: pwrite
#include <dirent.h>
#include <errno.h>
#include "support.h"
#include "base/spill.h"

static int pieces; /* of the next writes, each with a part of what is asked for; -1: the disk is full */

ssize_t __real_pwrite(int fd, const void *data, size_t n, off_t at);
ssize_t __wrap_pwrite(int fd, const void *data, size_t n, off_t at);
ssize_t __wrap_pwrite(int fd, const void *data, size_t n, off_t at)
{
    if (pieces < 0) {
        errno = ENOSPC;
        return -1;
    }
    if (pieces > 0 && n > 1)
        n = n / 2, pieces--;
    return __real_pwrite(fd, data, n, at);
}

static int entries(const char *folder)
{
    int n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static void test_round_trip(void **unused)
{
    (void)unused;
    char folder[] = "spill-test-XXXXXX", *inside;
    assert_non_null(mkdtemp(folder));
    struct spill *s;
    /* A folder that is not there yet stands for the one that it is to be made in. */
    assert_true(asprintf(&inside, "%s/not-yet", folder) > 0);
    ASSERT_OK(spill_open(&s, inside, e));
    assert_int_equal(entries(folder), 2);
    pieces = 3;
    ASSERT_OK(spill_put(s, 100, "abcdefgh", 8, e));
    ASSERT_OK(spill_put(s, 0, "xy", 2, e));
    char back[110];
    ASSERT_OK(spill_get(s, 0, back, 108, e));
    assert_memory_equal(back, "xy\0\0", 4);
    assert_memory_equal(back + 100, "abcdefgh", 8);
    struct err e = {0};
    assert_false(spill_get(s, 0, back, 109, &e));
    assert_int_equal(e.code, ERR_IO);
    e = (struct err){0};
    pieces = -1;
    assert_false(spill_put(s, 0, "x", 1, &e));
    pieces = 0;
    assert_int_equal(e.code, ERR_IO);
    assert_non_null(strstr(e.msg, folder));
    spill_close(s);
    spill_close(NULL);
    assert_int_equal(rmdir(folder), 0);
    e = (struct err){0};
    assert_false(spill_open(&s, inside, &e));
    assert_int_equal(e.code, ERR_IO);
    assert_null(s);
    free(inside);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_round_trip)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
