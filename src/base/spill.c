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

bool spill_put(struct spill *s, uint64_t at, const void *data, size_t n, struct err *e)
{
    const char *from = data;
    while (n > 0) {
        ssize_t done = pwrite(s->fd, from, n, (off_t)at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return err_set(e, ERR_IO, "%s: writing a temporary file: %s", s->folder,
                           done < 0 ? strerror(errno) : "nothing was written");
        from += done;
        at += (uint64_t)done;
        n -= (size_t)done;
    }
    return true;
}

bool spill_get(const struct spill *s, uint64_t at, void *data, size_t n, struct err *e)
{
    char *to = data;
    while (n > 0) {
        ssize_t done = pread(s->fd, to, n, (off_t)at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return err_set(e, ERR_IO, "%s: reading a temporary file: %s", s->folder,
                           done < 0 ? strerror(errno) : "it is shorter than what was written");
        to += done;
        at += (uint64_t)done;
        n -= (size_t)done;
    }
    return true;
}
