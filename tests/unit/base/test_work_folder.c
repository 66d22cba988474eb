/* Output folders under a name that a later run finds again: kept, found, cleared, locked, committed. */
#include "scratch.h"
#include "support.h"
#include <sys/wait.h>
#include "base/file.h"

#define KEY "0123456789abcdef"

static char *inside(const struct out_folder *f, const char *name)
{
    return path_join(out_folder_path(f), name);
}

static void put(const struct out_folder *f, const char *name)
{
    char *path = inside(f, name);
    ASSERT_OK(file_write(path, name, strlen(name), e));
    free(path);
}

static bool has(const struct out_folder *f, const char *name)
{
    char *path = inside(f, name);
    bool found = path_exists(path);
    free(path);
    return found;
}

static void test_keep_and_resume(void **state)
{
    (void)state;
    const char *path = scratch("kept");
    struct out_folder *f = NULL;
    bool found = true;
    ASSERT_OK(out_folder_open_keyed(&f, path, KEY, true, false, &found, e));
    assert_false(found);
    put(f, "a");
    out_folder_keep(f);
    assert_false(path_exists(path));
    ASSERT_OK(out_folder_open_keyed(&f, path, KEY, true, false, &found, e));
    assert_true(found && has(f, "a"));
    put(f, "b");
    ASSERT_OK(out_folder_commit(f, e));
    struct path_list list;
    ASSERT_OK(path_list_read(&list, path, e));
    assert_int_equal(list.n, 2); /* and no lock */
    path_list_free(&list);
    /* A target that is there is refused as ever. */
    struct err e = {0};
    assert_false(out_folder_open_keyed(&f, path, KEY, true, false, &found, &e));
    assert_int_equal(e.code, ERR_IO);
    ASSERT_OK(out_folder_open_keyed(&f, path, KEY, true, true, &found, e));
    assert_false(found);
    put(f, "c");
    ASSERT_OK(out_folder_commit(f, e));
    ASSERT_OK(path_list_read(&list, path, e));
    assert_int_equal(list.n, 1);
    path_list_free(&list);
}

static void test_begin_anew(void **state)
{
    (void)state;
    const char *path = scratch("out");
    struct out_folder *f = NULL;
    bool found;
    ASSERT_OK(out_folder_open_keyed(&f, path, KEY, false, false, &found, e));
    put(f, "old");
    out_folder_keep(f);
    ASSERT_OK(out_folder_open_keyed(&f, path, "another", true, false, &found, e));
    assert_false(found || has(f, "old"));
    out_folder_abort(f);
    ASSERT_OK(out_folder_open_keyed(&f, path, KEY, false, false, &found, e));
    assert_false(found || has(f, "old"));
    char *work = xstrdup(out_folder_path(f));
    out_folder_abort(f);
    assert_false(path_exists(work));
    out_folder_keep(NULL);
    free(work);
}

static void test_clear(void **state)
{
    (void)state;
    const char *path = scratch("cleared");
    static const char *const keep[] = {"a", "missing", "c"};
    struct out_folder *f = NULL;
    bool found;
    ASSERT_OK(out_folder_open_keyed(&f, path, KEY, true, false, &found, e));
    put(f, "a");
    put(f, "b");
    put(f, "c.tmp-123456");
    char *folder = inside(f, "c");
    ASSERT_OK(folder_make(folder, e));
    free(folder);
    ASSERT_OK(out_folder_clear(f, keep, 3, e));
    assert_true(has(f, "a") && has(f, "c") && has(f, ".lock"));
    assert_false(has(f, "b") || has(f, "c.tmp-123456"));
    ASSERT_OK(out_folder_clear(f, NULL, 0, e));
    assert_false(has(f, "a") || has(f, "c"));
    out_folder_abort(f);
}

/* A second process is refused while the first one works, and free once that has died. */
static void test_lock(void **state)
{
    (void)state;
    const char *path = scratch("out");
    struct out_folder *f = NULL;
    struct err e = {0};
    bool found;
    int to_parent[2], to_child[2];
    char byte = 0;
    assert_int_equal(pipe(to_parent), 0);
    assert_int_equal(pipe(to_child), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct err unused;
        bool ok = out_folder_open_keyed(&f, path, KEY, false, false, &found, &unused);
        if (write(to_parent[1], ok ? "y" : "n", 1) != 1 || read(to_child[0], &byte, 1) < 0)
            _exit(2);
        _exit(0); /* without letting go of anything */
    }
    assert_int_equal(read(to_parent[0], &byte, 1), 1);
    assert_int_equal(byte, 'y');
    for (int resume = 0; resume < 2; resume++) {
        assert_false(out_folder_open_keyed(&f, path, KEY, resume, false, &found, &e));
        assert_int_equal(e.code, ERR_IO);
        assert_non_null(strstr(e.msg, "another process"));
    }
    assert_int_equal(write(to_child[1], "x", 1), 1);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    ASSERT_OK(out_folder_open_keyed(&f, path, KEY, true, false, &found, e));
    assert_true(found);
    out_folder_abort(f);
    for (int i = 0; i < 2; i++) {
        close(to_parent[i]);
        close(to_child[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keep_and_resume),
        cmocka_unit_test(test_begin_anew),
        cmocka_unit_test(test_clear),
        cmocka_unit_test(test_lock),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
