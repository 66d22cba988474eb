#include "base/spill.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/file.h"

struct spill {
    int fd;
    char *folder;
};

/* Where the system has no files without names, one loses its own at once. */
static int open_unnamed(const char *folder)
{
#ifdef O_TMPFILE
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0)
        return fd;
#endif
    char *path = xasprintf("%s/.milkit-spill-XXXXXX", folder);
    int named = mkstemp(path);
    if (named >= 0)
        (void)unlink(path);
    free(path);
    return named;
}

bool spill_open(struct spill **out, const char *folder, struct err *e)
{
    struct spill *s = *out = xcalloc(1, sizeof *s);
    s->folder = path_is_folder(folder) ? xstrdup(folder) : path_folder(folder);
    s->fd = open_unnamed(s->folder);
    if (s->fd >= 0)
        return true;
    err_set(e, ERR_IO, "%s: no temporary file: %s", s->folder, strerror(errno));
    spill_close(s);
    *out = NULL;
    return false;
}

void spill_close(struct spill *s)
{
    if (!s)
        return;
    if (s->fd >= 0)
        (void)close(s->fd);
    free(s->folder);
    free(s);
}

static bool failed(const struct spill *s, ssize_t done, const char *verb, const char *none, struct err *e)
{
    return err_set(e, ERR_IO, "%s: %s a temporary file: %s", s->folder, verb,
                   done < 0 ? strerror(errno) : none);
}

bool spill_put(struct spill *s, uint64_t at, const void *data, size_t n, struct err *e)
{
    for (size_t i = 0; i < n;) {
        ssize_t done = pwrite(s->fd, (const char *)data + i, n - i, (off_t)(at + i));
        if (done <= 0 && !(done < 0 && errno == EINTR))
            return failed(s, done, "writing", "nothing was written", e);
        i += done > 0 ? (size_t)done : 0;
    }
    return true;
}

bool spill_get(const struct spill *s, uint64_t at, void *data, size_t n, struct err *e)
{
    for (size_t i = 0; i < n;) {
        ssize_t done = pread(s->fd, (char *)data + i, n - i, (off_t)(at + i));
        if (done <= 0 && !(done < 0 && errno == EINTR))
            return failed(s, done, "reading", "it is shorter than what was written", e);
        i += done > 0 ? (size_t)done : 0;
    }
    return true;
}
