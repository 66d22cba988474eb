/* A scratch folder per test program, made in the working folder and removed at the end. */
#ifndef MILKIT_TESTS_BASE_SCRATCH_H
#define MILKIT_TESTS_BASE_SCRATCH_H

#include "support.h"
#include "base/file.h"

static char scratch_folder[64];

static int scratch_setup(void **state)
{
    (void)state;
    snprintf(scratch_folder, sizeof scratch_folder, "scratch-base-XXXXXX");
    return mkdtemp(scratch_folder) ? 0 : 1;
}

static int scratch_teardown(void **state)
{
    (void)state;
    return path_remove_tree(scratch_folder, NULL) ? 0 : 1;
}

/* A path in the scratch folder; a few may be in use at a time. */
static inline const char *scratch(const char *name)
{
    static char paths[8][400];
    static int next;
    char *p = paths[next++ % 8];
    snprintf(p, sizeof paths[0], "%s/%s", scratch_folder, name);
    return p;
}

/* Writes a file by plain stdio, so that nothing under test is needed to set up a test. */
static inline void put_file(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static inline void expect_file(const char *path, const void *data, size_t n)
{
    char *text = NULL;
    size_t bytes = 0;
    ASSERT_OK(file_read(&text, &bytes, path, 1 << 20, e));
    assert_int_equal(bytes, n);
    assert_memory_equal(text, data, n);
    free(text);
}

static inline size_t count_entries(const char *folder)
{
    struct path_list l;
    ASSERT_OK(path_list_read(&l, folder, e));
    size_t n = l.n;
    path_list_free(&l);
    return n;
}

#endif
