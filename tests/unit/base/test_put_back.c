// wraps: fsync rename renameat2
/* Replacing a folder where the file system can't swap two names, and its parent can't be synced afterwards: whatever else
 * fails, a whole folder has the name, and the error says which. */
#include <errno.h>
#include "scratch.h"

static struct {
    int n;       /* renames so far: the old folder aside, the new one in its place, and back */
    int fail_at; /* from 1; 0: none */
} renames;

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags);
int __wrap_fsync(int fd);

int __wrap_rename(const char *from, const char *to)
{
    if (++renames.n == renames.fail_at) {
        errno = EIO;
        return -1;
    }
    return __real_rename(from, to);
}

int __wrap_renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
    (void)from_folder, (void)from, (void)to_folder, (void)to, (void)flags;
    errno = EINVAL;
    return -1;
}

int __wrap_fsync(int fd)
{
    (void)fd;
    errno = EIO;
    return renames.n == 2 ? -1 : 0;
}

static void replace(int fail_at, const char *holds, const char *says)
{
    struct out_folder *f = NULL;
    struct err e = {0};
    char *text = NULL;
    size_t n = 0;
    ASSERT_OK(path_remove_tree(scratch("put-back"), e));
    ASSERT_OK(folder_make(scratch("put-back/pack"), e));
    put_file(scratch("put-back/pack/file"), "old", 3);
    ASSERT_OK(out_folder_open(&f, scratch("put-back/pack"), true, e));
    char *path = path_join(out_folder_path(f), "file");
    put_file(path, "new", 3);
    free(path);
    renames.n = 0;
    renames.fail_at = fail_at;
    assert_false(out_folder_commit(f, &e));
    assert_non_null(strstr(e.msg, says));
    ASSERT_OK(file_read(&text, &n, scratch("put-back/pack/file"), 100, e));
    assert_string_equal(text, holds);
    free(text);
}

static void test_put_back(void **state)
{
    (void)state;
    replace(0, "old", "can't sync the folder");
    replace(1, "old", "can't move aside");
    replace(2, "old", "can't rename");
    replace(3, "new", "complete");
    replace(4, "new", "complete");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_put_back)};
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
