// labels: threads
/* What a handler of SIGBUS asks: which file an address belongs to, and that output goes but for what is kept; mappings
 * know when their file was cut short. */
#include "scratch.h"
#include "base/pool.h"
#include "base/salvage.h"
#include <sys/stat.h>
#include <unistd.h>

static void test_addresses(void **state)
{
    (void)state;
    put_file(scratch("data"), "0123456789", 10);
    struct map_file *a = NULL, *b = NULL;
    ASSERT_OK(map_open(&a, scratch("data"), e));
    ASSERT_OK(map_open(&b, scratch("data"), e));
    assert_ptr_equal(salvage_mapping_at(a->data), a->path);
    assert_ptr_equal(salvage_mapping_at(a->data + 9), a->path);
    assert_ptr_equal(salvage_mapping_at(b->data), b->path);
    assert_null(salvage_mapping_at(a->data + 10));
    assert_null(salvage_mapping_at(a->data - 1));
    assert_null(salvage_mapping_at(NULL));
    assert_null(salvage_mapping_at(&a));
    const uint8_t *gone = a->data;
    map_close(a);
    assert_null(salvage_mapping_at(gone));
    assert_ptr_equal(salvage_mapping_at(b->data), b->path);
    map_close(b);
}

static void test_cut_short(void **state)
{
    (void)state;
    put_file(scratch("short"), "0123456789", 10);
    struct map_file *m = NULL;
    struct err e = {0};
    ASSERT_OK(map_open(&m, scratch("short"), e));
    ASSERT_OK(map_check(m, e));
    assert_int_equal(truncate(scratch("short"), 12), 0);
    ASSERT_OK(map_check(m, e)); /* longer does no harm */
    /* another file of that name: the mapping still has the old one */
    put_file(scratch("other"), "x", 1);
    assert_int_equal(rename(scratch("short"), scratch("away")), 0);
    assert_int_equal(rename(scratch("other"), scratch("short")), 0);
    ASSERT_OK(map_check(m, e));
    assert_int_equal(rename(scratch("away"), scratch("short")), 0);
    assert_null(map_shortened());
    assert_int_equal(truncate(scratch("short"), 9), 0);
    assert_false(map_check(m, &e));
    assert_int_equal(e.code, ERR_IO);
    assert_non_null(strstr(e.msg, "short: was cut short while it was read: from 10 to 9 bytes"));
    map_close(m);
    assert_string_equal(map_shortened(), scratch("short"));
}

static bool there(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

static void test_discard(void **state)
{
    (void)state;
    struct out_file *file = NULL;
    struct out_folder *folder = NULL, *kept = NULL;
    bool found;
    assert_int_equal(mkdir(scratch("elsewhere"), 0700), 0);
    put_file(scratch("elsewhere/stays"), "x", 1);
    ASSERT_OK(out_file_open(&file, scratch("out"), false, e));
    ASSERT_OK(out_folder_open(&folder, scratch("folder"), false, e));
    ASSERT_OK(out_folder_open_keyed(&kept, scratch("kept"), "key", false, false, &found, e));
    char *folder_path = xstrdup(out_folder_path(folder)), *kept_path = xstrdup(out_folder_path(kept));
    char *link = path_join(folder_path, "link"), *deep = path_join(folder_path, "a/b/c");
    assert_int_equal(symlink(scratch("elsewhere"), link), 0);
    ASSERT_OK(folder_make(deep, e));
    /* more entries than one list of the kernel holds */
    for (int i = 0; i < 500; i++) {
        char *path = xasprintf("%s/.a long name of an entry %d", deep, i);
        put_file(path, "x", 1);
        free(path);
    }
    out_folder_set_resumable(kept, true);
    assert_true(salvage_discard_outputs());
    assert_false(there(folder_path));
    assert_true(there(kept_path));
    assert_true(there(scratch("elsewhere/stays")));
    struct path_list list;
    ASSERT_OK(path_list_read(&list, scratch_folder, e));
    for (size_t i = 0; i < list.n; i++)
        assert_null(strstr(list.names[i], "out.tmp"));
    path_list_free(&list);
    out_folder_set_resumable(kept, false);
    assert_false(salvage_discard_outputs());
    assert_false(there(kept_path));
    out_file_abort(file);
    out_folder_abort(folder);
    out_folder_abort(kept);
    /* what was finished is none of its business */
    ASSERT_OK(file_write(scratch("finished"), "x", 1, e));
    assert_false(salvage_discard_outputs());
    assert_true(there(scratch("finished")));
    free(folder_path);
    free(kept_path);
    free(link);
    free(deep);
}

static void open_and_look(void *context, int i_thread, int n_threads)
{
    (void)n_threads;
    bool *failed = (bool *)context + i_thread;
    for (int i = 0; i < 500; i++) {
        struct map_file *m = NULL;
        if (!map_open(&m, "data", NULL) || salvage_mapping_at(m->data + i % 10) != m->path)
            *failed = true;
        map_close(m);
    }
}

static void test_threads(void **state)
{
    (void)state;
    struct pool *pool = NULL;
    bool failed[4] = {false};
    char *old = getcwd(NULL, 0);
    put_file(scratch("data"), "0123456789", 10);
    assert_int_equal(chdir(scratch_folder), 0);
    ASSERT_OK(pool_new(&pool, 4, e));
    pool_run(pool, open_and_look, failed);
    pool_free(pool);
    assert_int_equal(chdir(old), 0);
    free(old);
    for (int i = 0; i < 4; i++)
        assert_false(failed[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_cut_short),
        cmocka_unit_test(test_discard),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
