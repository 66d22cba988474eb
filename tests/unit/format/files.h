/* Scratch files of the format tests: a folder per test program, made in the working folder and removed at the
 * end. */
#ifndef MILKIT_TESTS_FORMAT_FILES_H
#define MILKIT_TESTS_FORMAT_FILES_H

#include "support.h"
#include "base/file.h"

static char files_folder[64];

static int files_setup(void **state)
{
    (void)state;
    snprintf(files_folder, sizeof files_folder, "scratch-format-XXXXXX");
    return mkdtemp(files_folder) ? 0 : 1;
}

static int files_teardown(void **state)
{
    (void)state;
    return path_remove_tree(files_folder, NULL) ? 0 : 1;
}

/* A path in the scratch folder; a few may be in use at a time. */
static inline const char *files_path(const char *name)
{
    static char paths[8][400];
    static int next;
    char *p = paths[next++ % 8];
    snprintf(p, sizeof paths[0], "%s/%s", files_folder, name);
    return p;
}

static inline void files_put(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* The message names the file and says all of the given parts (NULL ends them). */
static inline void expect_message(const struct err *e, enum err_code code, ...)
{
    va_list parts;
    va_start(parts, code);
    if (e->code != code)
        fail_msg("error code %d, expected %d: %s", (int)e->code, (int)code, e->msg);
    for (const char *part; (part = va_arg(parts, const char *));)
        if (!strstr(e->msg, part))
            fail_msg("\"%s\" is not in the message: %s", part, e->msg);
    va_end(parts);
}

#endif
