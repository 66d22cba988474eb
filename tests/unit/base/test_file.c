/* Reading: mappings, whole reads, LFS pointers, paths, listings, removal, copies. */
#include "scratch.h"
#include <sys/stat.h>

static const char lfs_pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n";

static void test_map(void **state)
{
    (void)state;
    put_file(scratch("data"), "hello", 5);
    struct map_file *m = NULL;
    ASSERT_OK(map_open(&m, scratch("data"), e));
    assert_int_equal(m->bytes, 5);
    assert_memory_equal(m->data, "hello", 5);
    assert_string_equal(m->path, scratch("data"));
    map_drop_pages(m);
    assert_memory_equal(m->data, "hello", 5);
    map_close(m);

    put_file(scratch("empty"), "", 0);
    ASSERT_OK(map_open(&m, scratch("empty"), e));
    assert_int_equal(m->bytes, 0);
    assert_null(m->data);
    map_drop_pages(m);
    map_close(m);
    map_close(NULL);
}

static void expect_folder(const char *path, const char *member, enum err_code code, const char *text)
{
    struct err e = {0};
    bool ok = folder_check(path, "a box", member, &e);
    assert_int_equal(ok, code == ERR_NONE);
    assert_int_equal(e.code, code);
    assert_non_null(strstr(e.msg, text));
}

static void test_folder_check(void **state)
{
    (void)state;
    ASSERT_OK(folder_make(scratch("checked/empty"), e));
    put_file(scratch("checked/lid"), "x", 1);
    expect_folder(scratch("checked"), NULL, ERR_NONE, "");
    expect_folder(scratch("checked"), "lid", ERR_NONE, "");
    expect_folder(scratch("checked/empty"), "lid", ERR_FORMAT, "expected a box, found no lid in it");
    expect_folder(scratch("checked/lid"), NULL, ERR_FORMAT, "expected a box, found a file");
    expect_folder(scratch("checked/none"), "lid", ERR_IO, "expected a box, found nothing");
    expect_folder(scratch("checked/lid/x"), NULL, ERR_IO, "Not a directory");
    struct err e = {0};
    assert_true(path_check_new(scratch("checked/new"), &e));
    assert_true(path_check_new(scratch("checked/a/b/c"), &e));
    assert_true(path_check_new("relative", &e));
    assert_false(path_check_new(scratch("checked/lid/a/b"), &e));
    assert_int_equal(e.code, ERR_IO);
    assert_non_null(strstr(e.msg, "lid is not a folder"));
}

static void test_map_refusals(void **state)
{
    (void)state;
    struct map_file *m = NULL;
    struct err e = {0};
    assert_false(map_open(&m, scratch("missing"), &e));
    assert_int_equal(e.code, ERR_IO);
    assert_non_null(strstr(e.msg, "missing"));
    assert_non_null(strstr(e.msg, "No such file"));
    assert_false(map_open(&m, scratch_folder, &e));
    assert_non_null(strstr(e.msg, "is a folder"));
    /* A pipe that nobody writes must not block. */
    assert_int_equal(mkfifo(scratch("pipe"), 0600), 0);
    assert_false(map_open(&m, scratch("pipe"), &e));
    assert_non_null(strstr(e.msg, "not a regular file"));
    assert_null(m);
    put_file(scratch("pointer"), lfs_pointer, sizeof lfs_pointer - 1);
    assert_false(map_open(&m, scratch("pointer"), &e));
    assert_int_equal(e.code, ERR_FORMAT);
    assert_non_null(strstr(e.msg, "LFS"));
}

static void test_read(void **state)
{
    (void)state;
    size_t n = 200000;
    char *big = malloc(n);
    for (size_t i = 0; i < n; i++)
        big[i] = (char)(i * 7);
    put_file(scratch("big"), big, n);
    char *text = NULL;
    size_t bytes = 0;
    ASSERT_OK(file_read(&text, &bytes, scratch("big"), n, e)); /* exactly the limit */
    assert_int_equal(bytes, n);
    assert_memory_equal(text, big, n);
    assert_int_equal(text[n], 0);
    free(text);
    struct err e = {0};
    assert_false(file_read(&text, &bytes, scratch("big"), n - 1, &e));
    assert_int_equal(e.code, ERR_LIMIT);
    assert_null(text);
    free(big);

    put_file(scratch("none"), "", 0);
    ASSERT_OK(file_read(&text, NULL, scratch("none"), 0, e));
    assert_string_equal(text, "");
    free(text);
    put_file(scratch("pointer2"), lfs_pointer, sizeof lfs_pointer - 1);
    assert_false(file_read(&text, &bytes, scratch("pointer2"), 1000, &e));
    assert_int_equal(e.code, ERR_FORMAT);
    assert_false(file_read(&text, &bytes, scratch_folder, 1000, &e));
    assert_int_equal(e.code, ERR_FORMAT);
    assert_false(file_read(&text, &bytes, scratch("nowhere/x"), 1000, &e));
    assert_int_equal(e.code, ERR_IO);
    /* A pipe that nobody writes must not block, a device need not end. */
    assert_int_equal(mkfifo(scratch("pipe2"), 0600), 0);
    const char *const others[] = {scratch("pipe2"), "/dev/zero"};
    for (int i = 0; i < 2; i++) {
        assert_false(file_read(&text, &bytes, others[i], 1000, &e));
        assert_int_equal(e.code, ERR_IO);
        assert_non_null(strstr(e.msg, "not a regular file"));
        assert_null(text);
    }
}

static void expect_text(char *found, const char *want)
{
    assert_string_equal(found, want);
    free(found);
}

static void test_paths(void **state)
{
    (void)state;
    expect_text(path_join("a", "b"), "a/b");
    expect_text(path_join("a/", "b"), "a/b");
    expect_text(path_join("a//", "b"), "a/b");
    expect_text(path_join("/", "b"), "/b");
    expect_text(path_join("", "b"), "b");
    static const struct {
        const char *path, *base, *folder;
    } rows[] = {{"a/b", "b", "a"},         {"b", "b", "."},         {"/b", "b", "/"},  {"a/b/", "b", "a"},
                {"a//b//", "b", "a"},      {"/", "/", "/"},         {"//", "/", "/"},  {"", "", "."},
                {"./x.tar", "x.tar", "."}, {"/a/b/c", "c", "/a/b"}, {"..", "..", "."}, {"b/", "b", "."}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        expect_text(path_base(rows[i].path), rows[i].base);
        expect_text(path_folder(rows[i].path), rows[i].folder);
    }
    assert_true(has_suffix("x.json", ".json"));
    assert_true(has_suffix("x", ""));
    assert_false(has_suffix("json", ".json"));
}

static void test_questions(void **state)
{
    (void)state;
    put_file(scratch("three"), "abc", 3);
    assert_true(path_exists(scratch("three")));
    assert_false(path_exists(scratch("four")));
    assert_true(path_is_folder(scratch_folder));
    assert_false(path_is_folder(scratch("three")));
    assert_int_equal(file_bytes(scratch("three")), 3);
    assert_int_equal(file_bytes(scratch("four")), -1);
    assert_int_equal(file_bytes(scratch_folder), -1);
    assert_true(disk_free_bytes(scratch_folder) >= 0);
    assert_true(disk_free_bytes(scratch("not/there/yet")) >= 0);
    assert_true(disk_free_bytes("") >= 0);
}

static void test_list(void **state)
{
    (void)state;
    ASSERT_OK(folder_make(scratch("list/deep/er"), e));
    ASSERT_OK(folder_make(scratch("list/deep/er"), e)); /* again: nothing to do */
    put_file(scratch("list/b"), "", 0);
    put_file(scratch("list/B"), "", 0);
    put_file(scratch("list/.a"), "", 0);
    struct path_list l;
    ASSERT_OK(path_list_read(&l, scratch("list"), e));
    assert_int_equal(l.n, 4);
    assert_string_equal(l.names[0], ".a");
    assert_string_equal(l.names[1], "B");
    assert_string_equal(l.names[2], "b");
    assert_string_equal(l.names[3], "deep");
    path_list_free(&l);
    path_list_free(&l);
    struct err e = {0};
    assert_false(path_list_read(&l, scratch("list/b"), &e));
    assert_int_equal(l.n, 0);
    assert_false(folder_make(scratch("list/b/c"), &e));
    assert_non_null(strstr(e.msg, "list/b"));
    assert_false(folder_make(scratch("list/b"), &e));
    assert_false(folder_make("", &e));
}

static void test_remove(void **state)
{
    (void)state;
    ASSERT_OK(folder_make(scratch("tree/x/y"), e));
    ASSERT_OK(folder_make(scratch("kept"), e));
    put_file(scratch("kept/file"), "1", 1);
    put_file(scratch("tree/x/file"), "1", 1);
    char *target = realpath(scratch("kept"), NULL);
    assert_non_null(target);
    assert_int_equal(symlink(target, scratch("tree/x/link")), 0);
    assert_int_equal(symlink("/nonexistent", scratch("tree/dangling")), 0);
    ASSERT_OK(path_remove_tree(scratch("tree"), e));
    assert_false(path_exists(scratch("tree")));
    expect_file(scratch("kept/file"), "1", 1); /* the link went, not what it points to */
    ASSERT_OK(path_remove_tree(scratch("tree"), e));
    ASSERT_OK(path_remove_tree(scratch("kept/file/none"), e));
    ASSERT_OK(path_remove_tree(scratch("kept/file"), e));
    assert_int_equal(symlink(target, scratch("link")), 0);
    ASSERT_OK(path_remove_tree(scratch("link"), e));
    assert_true(path_is_folder(scratch("kept")));
    free(target);
}

static void test_copy(void **state)
{
    (void)state;
    put_file(scratch("from"), "copy me", 7);
    ASSERT_OK(file_copy(scratch("from"), scratch("to"), e));
    expect_file(scratch("to"), "copy me", 7);
    struct err e = {0};
    assert_false(file_copy(scratch("not there"), scratch("to"), &e));
    expect_file(scratch("to"), "copy me", 7);
    assert_false(file_copy(scratch("from"), scratch("from/to"), &e));
    assert_int_equal(e.code, ERR_IO);
}

static void test_inside(void **state)
{
    (void)state;
    static const char *const inside[] = {"a", "a/b", "..a", "a..", "a/..b/c", "a/.", "./a"};
    static const char *const outside[] = {"", "/", "/a", "..", "../a", "a/..", "a/../b", "a/b/../../.."};
    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++)
        assert_true(path_is_inside(inside[i]));
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
        assert_false(path_is_inside(outside[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_map),          cmocka_unit_test(test_map_refusals),
        cmocka_unit_test(test_folder_check), cmocka_unit_test(test_read),
        cmocka_unit_test(test_paths),        cmocka_unit_test(test_questions),
        cmocka_unit_test(test_list),         cmocka_unit_test(test_remove),
        cmocka_unit_test(test_copy),         cmocka_unit_test(test_inside),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
