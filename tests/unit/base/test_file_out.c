/* Output that appears whole or not at all: commits, aborts, existing targets, full disks. */
#include "scratch.h"
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

static void test_file_commit(void **state)
{
    (void)state;
    struct out_file *f = NULL;
    ASSERT_OK(out_file_open(&f, scratch("a"), false, e));
    assert_false(path_exists(scratch("a"))); /* not before the commit */
    ASSERT_OK(out_file_write(f, "hello ", 6, e));
    ASSERT_OK(out_file_write(f, "world", 5, e));
    assert_int_equal(out_file_position(f), 11);
    ASSERT_OK(out_file_write_at(f, 0, "J", 1, e));
    ASSERT_OK(out_file_write_at(f, 20, "end", 3, e));
    assert_int_equal(out_file_position(f), 11);
    ASSERT_OK(out_file_write(f, "!", 1, e)); /* write_at moved nothing */
    ASSERT_OK(out_file_commit(f, e));
    expect_file(scratch("a"), "Jello world!\0\0\0\0\0\0\0\0end", 23);
    assert_int_equal(count_entries(scratch_folder), 1);
    mode_t mask = umask(0);
    umask(mask);
    struct stat st;
    assert_int_equal(stat(scratch("a"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0666 & ~mask);
}

static void test_file_abort(void **state)
{
    (void)state;
    ASSERT_OK(folder_make(scratch("abort"), e));
    struct out_file *f = NULL;
    ASSERT_OK(out_file_open(&f, scratch("abort/x"), false, e));
    ASSERT_OK(out_file_write(f, "x", 1, e));
    assert_int_equal(count_entries(scratch("abort")), 1);
    out_file_abort(f);
    out_file_abort(NULL);
    assert_int_equal(count_entries(scratch("abort")), 0);
}

static void test_file_existing(void **state)
{
    (void)state;
    ASSERT_OK(folder_make(scratch("existing/folder"), e));
    put_file(scratch("existing/old"), "old", 3);
    struct out_file *f = NULL;
    struct err e = {0};
    assert_false(out_file_open(&f, scratch("existing/old"), false, &e));
    assert_null(f);
    assert_int_equal(e.code, ERR_IO);
    assert_non_null(strstr(e.msg, "exists"));
    assert_false(out_file_open(&f, scratch("existing/folder"), true, &e));
    assert_false(out_file_open(&f, "/dev/null", true, &e)); /* would replace the device */
    assert_false(out_file_open(&f, scratch("existing/new/"), true, &e));
    assert_false(out_file_open(&f, scratch("existing/old/x"), true, &e)); /* a file is no folder */
    assert_non_null(strstr(e.msg, "Not a directory"));
    assert_false(out_file_open(&f, "", true, &e));
    expect_file(scratch("existing/old"), "old", 3);

    /* Replacing: the old content stays until the commit. */
    ASSERT_OK(out_file_open(&f, scratch("existing/old"), true, e));
    ASSERT_OK(out_file_write(f, "new!", 4, e));
    expect_file(scratch("existing/old"), "old", 3);
    ASSERT_OK(out_file_commit(f, e));
    expect_file(scratch("existing/old"), "new!", 4);

    /* A target that appears in the meantime is not overwritten. */
    ASSERT_OK(out_file_open(&f, scratch("existing/race"), false, e));
    put_file(scratch("existing/race"), "first", 5);
    assert_false(out_file_commit(f, &e));
    assert_non_null(strstr(e.msg, "exists"));
    expect_file(scratch("existing/race"), "first", 5);
    assert_int_equal(count_entries(scratch("existing")), 3);
}

/* The system refuses to let files grow beyond n bytes; SIGXFSZ is ignored so that the write itself fails. */
static struct rlimit limit_file_size(rlim_t n)
{
    struct rlimit old, now;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    now = old;
    now.rlim_cur = n;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &now), 0);
    signal(SIGXFSZ, SIG_IGN);
    return old;
}

static void test_file_full(void **state)
{
    (void)state;
    ASSERT_OK(folder_make(scratch("full"), e));
    static char block[5000];
    struct rlimit old = limit_file_size(4096);
    struct out_file *f = NULL;
    struct err e = {0}, e2 = {0}, e3 = {0};
    bool opened = out_file_open(&f, scratch("full/x"), false, &e);
    bool small = opened && out_file_write(f, block, 4000, &e);
    bool large = opened && out_file_write(f, block, 5000, &e2);
    uint64_t position = opened ? out_file_position(f) : 0;
    bool committed = opened && out_file_commit(f, &e3);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_true(opened && small);
    assert_false(large);
    assert_int_equal(e2.code, ERR_IO);
    assert_non_null(strstr(e2.msg, "File too large"));
    assert_int_equal(position, 4000);
    assert_false(committed); /* whoever overlooked the failed write still gets no half a file */
    assert_int_equal(e3.code, ERR_IO);
    assert_int_equal(count_entries(scratch("full")), 0);
}

static void test_file_write_full(void **state)
{
    (void)state;
    ASSERT_OK(folder_make(scratch("full2"), e));
    put_file(scratch("full2/x"), "old", 3);
    static char block[5000];
    struct rlimit old = limit_file_size(1000);
    struct err e = {0};
    bool ok = file_write(scratch("full2/x"), block, sizeof block, &e);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_false(ok);
    expect_file(scratch("full2/x"), "old", 3);
    assert_int_equal(count_entries(scratch("full2")), 1);
}

static void test_offsets_out_of_range(void **state)
{
    (void)state;
    struct out_file *f = NULL;
    struct err e = {0};
    ASSERT_OK(out_file_open(&f, scratch("far"), false, e));
    assert_false(out_file_write_at(f, UINT64_MAX - 1, "abc", 3, &e));
    assert_int_equal(e.code, ERR_LIMIT);
    out_file_abort(f);
    assert_false(path_exists(scratch("far")));
}

static void put_in(const struct out_folder *f, const char *name, const char *text)
{
    char *path = path_join(out_folder_path(f), name);
    ASSERT_OK(file_write(path, text, strlen(text), e));
    free(path);
}

static void test_folder_commit(void **state)
{
    (void)state;
    ASSERT_OK(folder_make(scratch("folders"), e));
    struct out_folder *f = NULL;
    ASSERT_OK(
        out_folder_open(&f, scratch("folders/pack/"), false, e)); /* a slash at the end is no other name */
    assert_non_null(strstr(out_folder_path(f), "/.pack.tmp-"));
    char *sub = path_join(out_folder_path(f), "sub");
    ASSERT_OK(folder_make(sub, e));
    free(sub);
    put_in(f, "sub/one", "1");
    put_in(f, "two", "2");
    assert_false(path_exists(scratch("folders/pack")));
    ASSERT_OK(out_folder_commit(f, e));
    expect_file(scratch("folders/pack/sub/one"), "1", 1);
    expect_file(scratch("folders/pack/two"), "2", 1);
    assert_int_equal(count_entries(scratch("folders")), 1);
}

static void test_folder_abort(void **state)
{
    (void)state;
    ASSERT_OK(folder_make(scratch("aborted"), e));
    struct out_folder *f = NULL;
    ASSERT_OK(out_folder_open(&f, scratch("aborted/pack"), false, e));
    char *sub = path_join(out_folder_path(f), "a/b/c");
    ASSERT_OK(folder_make(sub, e));
    free(sub);
    put_in(f, "a/b/c/file", "x");
    out_folder_abort(f);
    out_folder_abort(NULL);
    assert_int_equal(count_entries(scratch("aborted")), 0);
}

static void test_folder_existing(void **state)
{
    (void)state;
    ASSERT_OK(folder_make(scratch("both/pack"), e));
    put_file(scratch("both/pack/old"), "old", 3);
    put_file(scratch("both/file"), "f", 1);
    struct out_folder *f = NULL;
    struct err e = {0};
    assert_false(out_folder_open(&f, scratch("both/pack"), false, &e));
    assert_int_equal(e.code, ERR_IO);
    assert_non_null(strstr(e.msg, "exists"));
    assert_false(out_folder_open(&f, scratch("both/file"), true, &e));
    assert_false(out_folder_open(&f, scratch("both/file/pack"), true, &e)); /* a file is no folder */
    assert_false(out_folder_open(&f, "/", true, &e));
    assert_false(out_folder_open(&f, ".", true, &e));
    assert_false(out_folder_open(&f, scratch("both/.."), true, &e));
    assert_false(out_folder_open(&f, "", true, &e));
    assert_null(f);
    assert_int_equal(count_entries(scratch("both")), 2);

    ASSERT_OK(out_folder_open(&f, scratch("both/pack"), true, e));
    put_in(f, "new", "new");
    expect_file(scratch("both/pack/old"), "old", 3);
    ASSERT_OK(out_folder_commit(f, e));
    expect_file(scratch("both/pack/new"), "new", 3);
    assert_false(path_exists(scratch("both/pack/old")));
    assert_int_equal(count_entries(scratch("both")), 2);

    /* Replace is leave, not demand: without an old one it is a plain new folder. */
    ASSERT_OK(out_folder_open(&f, scratch("both/fresh"), true, e));
    ASSERT_OK(out_folder_commit(f, e));
    assert_true(path_is_folder(scratch("both/fresh")));

    /* Appeared in the meantime: refused, and nothing of ours stays. */
    ASSERT_OK(out_folder_open(&f, scratch("both/race"), false, e));
    put_in(f, "x", "x");
    ASSERT_OK(folder_make(scratch("both/race"), e));
    assert_false(out_folder_commit(f, &e));
    assert_int_equal(count_entries(scratch("both/race")), 0);
    ASSERT_OK(out_folder_open(&f, scratch("both/race2"), true, e));
    put_file(scratch("both/race2"), "f", 1);
    assert_false(out_folder_commit(f, &e));
    expect_file(scratch("both/race2"), "f", 1);
    assert_int_equal(count_entries(scratch("both")), 5);
}

/* Folders above an output are made, and go again when it fails; those of others stay. */
static void test_parents(void **state)
{
    (void)state;
    struct out_file *f = NULL;
    struct out_folder *folder = NULL;
    bool found = false;
    ASSERT_OK(folder_make(scratch("above"), e));
    ASSERT_OK(out_file_open(&f, scratch("above/a/b/x"), false, e));
    out_file_abort(f);
    assert_int_equal(count_entries(scratch("above")), 0);
    ASSERT_OK(out_file_open(&f, scratch("above/a/b/x"), false, e));
    put_file(scratch("above/a/other"), "o", 1);
    out_file_abort(f);
    assert_false(path_exists(scratch("above/a/b")));
    expect_file(scratch("above/a/other"), "o", 1);
    ASSERT_OK(out_file_open(&f, scratch("above/a/b/c/x"), false, e));
    ASSERT_OK(out_file_commit(f, e));
    assert_true(path_exists(scratch("above/a/b/c/x")));

    ASSERT_OK(out_folder_open(&folder, scratch("above/d/e/pack"), false, e));
    out_folder_abort(folder);
    assert_false(path_exists(scratch("above/d")));
    ASSERT_OK(out_folder_open(&folder, scratch("above/d/e/pack/"), false, e));
    put_in(folder, "x", "x");
    ASSERT_OK(out_folder_commit(folder, e));
    expect_file(scratch("above/d/e/pack/x"), "x", 1);
    ASSERT_OK(out_folder_open_keyed(&folder, scratch("above/k/pack"), "key", true, false, &found, e));
    out_folder_keep(folder); /* work that goes on later keeps its place */
    assert_true(path_is_folder(scratch("above/k")));
    ASSERT_OK(out_folder_open_keyed(&folder, scratch("above/k/pack"), "key", true, false, &found, e));
    assert_true(found);
    out_folder_abort(folder);
}

/* An empty folder is taken as if nothing were there, as long as it is empty. */
static void test_empty_folder(void **state)
{
    (void)state;
    struct out_folder *f = NULL;
    struct err e = {0};
    ASSERT_OK(folder_make(scratch("hollow/pack"), e));
    ASSERT_OK(out_folder_open(&f, scratch("hollow/pack"), false, e));
    put_in(f, "x", "x");
    ASSERT_OK(out_folder_commit(f, e));
    expect_file(scratch("hollow/pack/x"), "x", 1);
    ASSERT_OK(folder_make(scratch("hollow/late"), e));
    ASSERT_OK(out_folder_open(&f, scratch("hollow/late"), false, e));
    put_file(scratch("hollow/late/mine"), "m", 1);
    assert_false(out_folder_commit(f, &e));
    assert_int_equal(e.code, ERR_IO);
    expect_file(scratch("hollow/late/mine"), "m", 1);
    assert_int_equal(count_entries(scratch("hollow")), 2);
}

/* A folder that vanished under us is an error at commit, not a crash. */
static void test_folder_removed_meanwhile(void **state)
{
    (void)state;
    struct out_folder *f = NULL;
    struct err e = {0};
    ASSERT_OK(out_folder_open(&f, scratch("vanished"), false, e));
    ASSERT_OK(path_remove_tree(out_folder_path(f), e));
    assert_false(out_folder_commit(f, &e));
    assert_int_equal(e.code, ERR_IO);
    assert_false(path_exists(scratch("vanished")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file_commit),     cmocka_unit_test(test_file_abort),
        cmocka_unit_test(test_file_existing),   cmocka_unit_test(test_file_full),
        cmocka_unit_test(test_file_write_full), cmocka_unit_test(test_offsets_out_of_range),
        cmocka_unit_test(test_folder_commit),   cmocka_unit_test(test_folder_abort),
        cmocka_unit_test(test_folder_existing), cmocka_unit_test(test_parents),
        cmocka_unit_test(test_empty_folder),    cmocka_unit_test(test_folder_removed_meanwhile),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
