/* Reading: mappings, small whole files, paths, folder listings, copies and removal. */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "base/salvage.h"

bool file_is_lfs_pointer(const void *data, size_t bytes)
{
    static const char head[] = "version https://git-lfs";
    return bytes >= sizeof head - 1 && memcmp(data, head, sizeof head - 1) == 0;
}

static bool refuse_lfs_pointer(const char *path, struct err *e)
{
    return err_set(e, ERR_FORMAT,
                   "%s: this is a git LFS pointer, not the file itself: fetch the content (\"git lfs pull\")",
                   path);
}

/* The one way to open an input. A FIFO must not block before it is refused, and a device need not end. */
static bool open_regular(int *fd, struct stat *st, const char *path, struct err *e)
{
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0)
        return err_set_errno(e, "%s: can't open", path);
    if (fstat(*fd, st) != 0)
        return err_set_errno(e, "%s: can't read its size", path);
    if (S_ISDIR(st->st_mode))
        return err_set(e, ERR_FORMAT, "%s: is a folder, expected a file", path);
    return S_ISREG(st->st_mode) || err_set(e, ERR_IO, "%s: not a regular file, expected a file", path);
}

bool map_open(struct map_file **out, const char *path, struct err *e)
{
    *out = NULL;
    bool ok = false;
    struct map_file *m = NULL;
    int fd = -1;
    struct stat st;
    if (!open_regular(&fd, &st, path, e))
        goto done;
    if ((uint64_t)st.st_size > SIZE_MAX / 2) {
        err_set(e, ERR_LIMIT, "%s: too large to map", path);
        goto done;
    }
    m = xcalloc(1, sizeof *m);
    m->path = xstrdup(path);
    if (st.st_size > 0) {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED) {
            err_set_errno(e, "%s: can't map %lld bytes", path, (long long)st.st_size);
            goto done;
        }
        m->data = p;
        m->bytes = (size_t)st.st_size;
        m->device = (uint64_t)st.st_dev;
        m->inode = (uint64_t)st.st_ino;
        m->salvage = salvage_add_mapping(m->path, p, m->bytes);
    }
    if (file_is_lfs_pointer(m->data, m->bytes)) {
        refuse_lfs_pointer(path, e);
        goto done;
    }
    *out = m;
    ok = true;
done:
    if (fd >= 0)
        close(fd);
    if (!ok)
        map_close(m);
    return ok;
}

void map_drop_pages(const struct map_file *m)
{
    if (m->data)
        (void)madvise((void *)(uintptr_t)m->data, m->bytes, MADV_DONTNEED);
}

bool map_check(const struct map_file *m, struct err *e)
{
    struct stat st;
    bool is_same = m->data && stat(m->path, &st) == 0 && (uint64_t)st.st_dev == m->device &&
                   (uint64_t)st.st_ino == m->inode;
    return !is_same || (uint64_t)st.st_size >= m->bytes ||
           err_set(e, ERR_IO, "%s: was cut short while it was read: from %zu to %lld bytes", m->path,
                   m->bytes, (long long)st.st_size);
}

/* Of the whole process, like the list of base/salvage. */
static _Atomic(char *) shortened;

const char *map_shortened(void)
{
    return atomic_load(&shortened);
}

void map_close(struct map_file *m)
{
    if (!m)
        return;
    if (!map_check(m, NULL)) {
        char *first = NULL, *path = xstrdup(m->path);
        if (!atomic_compare_exchange_strong(&shortened, &first, path))
            free(path);
    }
    salvage_drop(m->salvage);
    if (m->data)
        munmap((void *)(uintptr_t)m->data, m->bytes);
    free(m->path);
    free(m);
}

bool file_read(char **out, size_t *bytes, const char *path, size_t max_bytes, struct err *e)
{
    *out = NULL;
    if (bytes)
        *bytes = 0;
    bool ok = false;
    struct buf b;
    /* One byte more than allowed, to tell a file of the maximum from a longer one. */
    buf_init(&b, max_bytes < SIZE_MAX ? max_bytes + 1 : max_bytes);
    int fd = -1;
    struct stat st;
    if (!open_regular(&fd, &st, path, e))
        goto done;
    char *chunk = xmalloc(65536);
    for (;;) {
        size_t room = b.max_bytes - b.n;
        ssize_t n = read(fd, chunk, room < 65536 ? room : 65536);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            err_set_errno(e, "%s: can't read", path);
        else if (n > 0)
            buf_append(&b, chunk, (size_t)n);
        ok = n == 0;
        if (n <= 0 || b.failed || b.n > max_bytes)
            break;
    }
    free(chunk);
    if (b.failed)
        ok = err_set(e, ERR_NOMEM, "%s: out of memory", path);
    else if (b.n > max_bytes)
        ok = err_set(e, ERR_LIMIT, "%s: longer than the limit of %zu bytes", path, max_bytes);
    else if (ok && file_is_lfs_pointer(b.p, b.n))
        ok = refuse_lfs_pointer(path, e);
    if (ok)
        *out = buf_take(&b, bytes);
done:
    if (fd >= 0)
        close(fd);
    buf_fini(&b);
    return ok;
}

bool folder_check(const char *path, const char *what, const char *member, struct err *e)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return errno == ENOENT ? err_set(e, ERR_IO, "%s: expected %s, found nothing", path, what)
                               : err_set_errno(e, "%s: can't look at it", path);
    if (S_ISREG(st.st_mode))
        return err_set(e, ERR_FORMAT, "%s: expected %s, found a file", path, what);
    if (!S_ISDIR(st.st_mode))
        return err_set(e, ERR_IO, "%s: not a regular file, expected %s", path, what);
    if (access(path, R_OK | X_OK) != 0)
        return err_set_errno(e, "%s: can't read the folder", path);
    char *inner = member ? path_join(path, member) : NULL;
    bool ok = !inner || path_exists(inner) ||
              err_set(e, ERR_FORMAT, "%s: expected %s, found no %s in it", path, what, member);
    free(inner);
    return ok;
}

bool path_check_new(const char *path, struct err *e)
{
    char *folder = path_folder(path);
    struct stat st;
    while (lstat(folder, &st) != 0 && (errno == ENOENT || errno == ENOTDIR)) {
        char *above = path_folder(folder);
        free(folder);
        folder = above;
    }
    bool ok = path_is_folder(folder) ||
              err_set(e, ERR_IO, "%s: can't be made, because %s is not a folder", path, folder);
    free(folder);
    return ok;
}

bool path_check_output(const char *path, bool replace, struct err *e)
{
    if (!path_exists(path))
        return path_check_new(path, e);
    if (replace || path_is_folder(path)) /* a folder has a message of its own, at the opening */
        return true;
    err_set(e, ERR_IO, "%s: exists", path);
    return err_set_hint(e, HINT_REPLACE);
}

bool path_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

bool folder_has(const char *folder, const char *name)
{
    char *path = path_join(folder, name);
    bool is_there = path_exists(path);
    free(path);
    return is_there;
}

bool path_is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool path_is_empty_folder(const char *path)
{
    struct path_list entries = {0};
    bool is_empty = path_is_folder(path) && path_list_read(&entries, path, NULL) && entries.n == 0;
    path_list_free(&entries);
    return is_empty;
}

int64_t file_bytes(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return -1;
    return (int64_t)st.st_size;
}

char *path_join(const char *a, const char *b)
{
    size_t n = strlen(a);
    while (n > 1 && a[n - 1] == '/')
        n--;
    if (n == 0)
        return xstrdup(b);
    return xasprintf("%.*s%s%s", (int)n, a, a[n - 1] == '/' ? "" : "/", b);
}

/* Where the last component lies, without slashes at the end: [*begin, *end). */
static void last_component(const char *path, size_t *begin, size_t *end)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    *end = n;
    while (n > 0 && path[n - 1] != '/')
        n--;
    *begin = n < *end ? n : 0; /* "/" is its own last component */
}

char *path_base(const char *path)
{
    size_t begin, end;
    last_component(path, &begin, &end);
    return xasprintf("%.*s", (int)(end - begin), path + begin);
}

char *path_folder(const char *path)
{
    size_t begin, end;
    last_component(path, &begin, &end);
    if (begin == 0)
        return xstrdup(path[0] == '/' ? "/" : ".");
    while (begin > 1 && path[begin - 1] == '/')
        begin--;
    return xasprintf("%.*s", (int)begin, path);
}

bool has_suffix(const char *s, const char *suffix)
{
    size_t n = strlen(s), m = strlen(suffix);
    return n >= m && memcmp(s + n - m, suffix, m) == 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

bool path_list_read(struct path_list *out, const char *folder, struct err *e)
{
    memset(out, 0, sizeof *out);
    DIR *d = opendir(folder);
    if (!d)
        return err_set_errno(e, "%s: can't list", folder);
    size_t capacity = 0;
    bool ok = true;
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(d);
        if (!entry) {
            if (errno)
                ok = err_set_errno(e, "%s: can't list", folder);
            break;
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        out->names = mem_grow(out->names, out->n, &capacity, sizeof *out->names);
        out->names[out->n++] = xstrdup(entry->d_name);
    }
    closedir(d);
    if (!ok)
        path_list_free(out);
    else if (out->n)
        qsort(out->names, out->n, sizeof *out->names, compare_names);
    return ok;
}

void path_list_free(struct path_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->names[i]);
    free(l->names);
    memset(l, 0, sizeof *l);
}

bool folder_make(const char *path, struct err *e)
{
    if (!path[0])
        return err_set(e, ERR_IO, "can't make a folder without a name");
    char *p = xstrdup(path);
    bool ok = true;
    for (char *c = p + 1; ok; c++) {
        char old = *c;
        if (old != '/' && old != '\0')
            continue;
        *c = '\0';
        int reason = mkdir(p, 0777) != 0 ? errno : 0;
        if (reason && !path_is_folder(p)) {
            /* A file stands in the way: mkdir's "File exists" alone would mislead. */
            errno = reason == EEXIST ? ENOTDIR : reason;
            ok = err_set_errno(e, "%s: can't make the folder", p);
        }
        *c = old;
        if (old == '\0')
            break;
    }
    free(p);
    return ok;
}

/* Deep enough for anything we write, shallow enough for open descriptors and the stack. */
#define MAX_TREE_DEPTH 200

static bool remove_entry(int parent, const char *name, const char *path, int depth, struct err *e)
{
    struct stat st;
    if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT || errno == ENOTDIR ? true : err_set_errno(e, "%s: can't remove", path);
    if (!S_ISDIR(st.st_mode)) {
        if (unlinkat(parent, name, 0) != 0 && errno != ENOENT)
            return err_set_errno(e, "%s: can't remove", path);
        return true;
    }
    if (depth > MAX_TREE_DEPTH)
        return err_set(e, ERR_LIMIT, "%s: folders nested deeper than %d", path, MAX_TREE_DEPTH);
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d) {
        err_set_errno(e, "%s: can't remove", path);
        if (fd >= 0)
            close(fd);
        return false;
    }
    bool ok = true;
    const struct dirent *entry;
    while (ok && (entry = readdir(d))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        char *child = path_join(path, entry->d_name);
        ok = remove_entry(fd, entry->d_name, child, depth + 1, e);
        free(child);
    }
    closedir(d);
    if (ok && unlinkat(parent, name, AT_REMOVEDIR) != 0 && errno != ENOENT)
        ok = err_set_errno(e, "%s: can't remove", path);
    return ok;
}

bool path_remove_tree(const char *path, struct err *e)
{
    return remove_entry(AT_FDCWD, path, path, 0, e);
}

int64_t disk_free_bytes(const char *path)
{
    char *p = xstrdup(path[0] ? path : ".");
    struct statvfs v;
    int64_t bytes = -1;
    for (;;) {
        if (statvfs(p, &v) == 0) {
            uint64_t total;
            bool fits = !__builtin_mul_overflow((uint64_t)v.f_bavail, (uint64_t)v.f_frsize, &total);
            bytes = fits && total < INT64_MAX ? (int64_t)total : INT64_MAX;
            break;
        }
        if (errno != ENOENT && errno != ENOTDIR)
            break;
        char *parent = path_folder(p);
        bool at_top = strcmp(parent, p) == 0;
        free(p);
        p = parent;
        if (at_top)
            break;
    }
    free(p);
    return bytes;
}

bool path_is_inside(const char *path)
{
    if (path[0] == '\0' || path[0] == '/')
        return false;
    for (const char *p = path; p;) {
        if (strncmp(p, "..", 2) == 0 && (p[2] == '/' || p[2] == '\0'))
            return false;
        p = strchr(p, '/');
        if (p)
            p++;
    }
    return true;
}
