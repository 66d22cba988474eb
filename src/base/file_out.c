/* Output that appears complete or not at all: a temporary sibling, synced to disk, then renamed. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/log.h"
#include "base/salvage.h"

/* Folders above an output that were not there. */
struct parents {
    char *last;  /* the output's own folder */
    char *first; /* the uppermost that was made; NULL: all were there */
};

struct out_file {
    char *path, *temporary;
    struct parents parents;
    int fd;
    bool replace;
    uint64_t position;
    atomic_bool failed; /* a write failed: there is nothing to commit */
    struct salvage *salvage;
};

#define LOCK_NAME ".lock"

struct out_folder {
    char *path, *temporary;
    struct parents parents;
    bool replace;
    bool is_over_empty; /* the target is an empty folder, which is taken */
    char *lock; /* a file in the temporary folder that is locked while this process works there, or NULL */
    int lock_fd;
    struct salvage *salvage;
};

/* Six letters or digits for a temporary name. Uniqueness comes from O_EXCL and mkdir, not from here. */
static void random_suffix(char out[7])
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    uint64_t r;
    if (getrandom(&r, sizeof r, GRND_NONBLOCK) != (ssize_t)sizeof r)
        r = (uint64_t)(clock_seconds() * 1e9) * 0x9e3779b97f4a7c15u ^ (uint64_t)getpid();
    for (int i = 0; i < 6; i++) {
        out[i] = letters[r % 36];
        r /= 36;
    }
    out[6] = '\0';
}

/* Makes the name of path durable. Some file systems can't sync a folder; the data is safe there all the same.
 */
static bool sync_parent(const char *path, struct err *e)
{
    char *folder = path_folder(path);
    bool ok = true;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        if (fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP && errno != EROFS)
            ok = err_set_errno(e, "%s: can't sync the folder", folder);
        close(fd);
    }
    free(folder);
    return ok;
}

/* The uppermost folder of path that is not there, a heap string; NULL: all are. */
static char *first_missing(const char *path)
{
    struct stat st;
    char *missing = NULL, *p = xstrdup(path);
    while (lstat(p, &st) != 0 && errno == ENOENT) {
        free(missing);
        missing = p;
        p = path_folder(p);
    }
    free(p);
    return missing;
}

static bool parents_make(struct parents *p, const char *path, struct err *e)
{
    p->last = path_folder(path);
    p->first = first_missing(p->last);
    return !p->first || folder_make(p->last, e);
}

/* What was made goes again, as far as it is empty. */
static void parents_remove(struct parents *p)
{
    char *folder = p->first ? xstrdup(p->last) : NULL;
    while (folder && rmdir(folder) == 0 && strcmp(folder, p->first) != 0) {
        char *above = path_folder(folder);
        free(folder);
        folder = above;
    }
    free(folder);
}

static bool parents_sync(const struct parents *p, const char *path, struct err *e)
{
    if (!sync_parent(path, e))
        return false;
    char *folder = p->first ? xstrdup(p->last) : NULL;
    bool ok = true;
    while (folder && ok) {
        ok = sync_parent(folder, e);
        char *above = strcmp(folder, p->first) != 0 ? path_folder(folder) : NULL;
        free(folder);
        folder = above;
    }
    free(folder);
    return ok;
}

static void parents_free(struct parents *p)
{
    free(p->first);
    free(p->last);
}

/* Renames without replacing, where the system can promise that; a plain check and rename elsewhere. */
static bool rename_new(const char *from, const char *to, struct err *e)
{
#ifdef RENAME_NOREPLACE
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
        return true;
    if (errno == EEXIST)
        return err_set(e, ERR_IO, "%s: exists already", to);
    if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP)
        return err_set_errno(e, "%s: can't rename to this name", to);
#endif
    struct stat st;
    if (lstat(to, &st) == 0)
        return err_set(e, ERR_IO, "%s: exists already", to);
    if (rename(from, to) != 0)
        return err_set_errno(e, "%s: can't rename to this name", to);
    return true;
}

static void file_free(struct out_file *f)
{
    salvage_drop(f->salvage);
    parents_free(&f->parents);
    free(f->temporary);
    free(f->path);
    free(f);
}

bool out_file_open(struct out_file **out, const char *path, bool replace, struct err *e)
{
    *out = NULL;
    struct stat st;
    /* Never replace what is no file: devices, pipes, folders. */
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return err_set(e, ERR_IO, "%s: %s, can't be replaced by a file", path,
                       S_ISDIR(st.st_mode) ? "is a folder" : "not a regular file");
    if (!replace && lstat(path, &st) == 0)
        return err_set(e, ERR_IO, "%s: exists already", path);
    if (!path[0] || path[strlen(path) - 1] == '/')
        return err_set(e, ERR_IO, "\"%s\": not the name of a file", path);
    struct out_file *f = xcalloc(1, sizeof *f);
    f->path = xstrdup(path);
    f->replace = replace;
    atomic_init(&f->failed, false);
    f->fd = -1;
    if (!parents_make(&f->parents, path, e))
        goto failed;
    for (int i = 0; i < 100 && f->fd < 0; i++) {
        char suffix[7];
        random_suffix(suffix);
        free(f->temporary);
        f->temporary = xasprintf("%s.tmp-%s", path, suffix);
        f->fd = open(f->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (f->fd < 0 && errno != EEXIST)
            break;
    }
    if (f->fd < 0) {
        err_set_errno(e, "%s: can't write", path);
        goto failed;
    }
    f->salvage = salvage_add_output(f->temporary);
    *out = f;
    return true;
failed:
    parents_remove(&f->parents);
    file_free(f);
    return false;
}

bool out_file_write_at(struct out_file *f, uint64_t offset, const void *data, size_t n, struct err *e)
{
    const char *p = data;
    if (offset > INT64_MAX || n > (uint64_t)INT64_MAX - offset) {
        atomic_store(&f->failed, true);
        return err_set(e, ERR_LIMIT, "%s: offset %llu is out of range", f->path, (unsigned long long)offset);
    }
    while (n > 0) {
        ssize_t k = pwrite(f->fd, p, n < (1u << 30) ? n : (1u << 30), (off_t)offset);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0) {
            if (k == 0)
                errno = ENOSPC;
            atomic_store(&f->failed, true);
            return err_set_errno(e, "%s: can't write", f->path);
        }
        p += k;
        n -= (size_t)k;
        offset += (uint64_t)k;
    }
    return true;
}

bool out_file_write(struct out_file *f, const void *data, size_t n, struct err *e)
{
    if (!out_file_write_at(f, f->position, data, n, e))
        return false;
    f->position += n;
    return true;
}

uint64_t out_file_position(const struct out_file *f)
{
    return f->position;
}

bool out_file_commit(struct out_file *f, struct err *e)
{
    bool ok = false, renamed = false;
    if (atomic_load(&f->failed)) {
        err_set(e, ERR_IO, "%s: not finished, because writing it failed", f->path);
        goto done;
    }
    if (fsync(f->fd) != 0 && errno != EINVAL) {
        err_set_errno(e, "%s: can't sync", f->path);
        goto done;
    }
    int fd = f->fd;
    f->fd = -1;
    if (close(fd) != 0) {
        err_set_errno(e, "%s: can't close", f->path);
        goto done;
    }
    if (!f->replace) {
        if (!rename_new(f->temporary, f->path, e))
            goto done;
    } else if (rename(f->temporary, f->path) != 0) {
        err_set_errno(e, "%s: can't rename to this name", f->path);
        goto done;
    }
    renamed = true;
    ok = parents_sync(&f->parents, f->path, e);
done:
    if (renamed)
        file_free(f);
    else
        out_file_abort(f);
    return ok;
}

void out_file_abort(struct out_file *f)
{
    if (!f)
        return;
    if (f->fd >= 0)
        close(f->fd);
    unlink(f->temporary);
    parents_remove(&f->parents);
    file_free(f);
}

bool file_write(const char *path, const void *data, size_t n, struct err *e)
{
    struct out_file *f = NULL;
    if (!out_file_open(&f, path, true, e))
        return false;
    if (!out_file_write(f, data, n, e)) {
        out_file_abort(f);
        return false;
    }
    return out_file_commit(f, e);
}

static void folder_free(struct out_folder *f)
{
    salvage_drop(f->salvage);
    if (f->lock)
        close(f->lock_fd);
    free(f->lock);
    parents_free(&f->parents);
    free(f->temporary);
    free(f->path);
    free(f);
}

static bool is_empty_folder(const char *path)
{
    struct path_list list;
    if (!path_list_read(&list, path, NULL))
        return false;
    bool is_empty = list.n == 0;
    path_list_free(&list);
    return is_empty;
}

/* Checks the target and makes the struct; the temporary folder is still to come. */
static bool folder_new(struct out_folder **out, const char *path, bool replace, char **parent, char **base,
                       struct err *e)
{
    struct stat st;
    bool ok = true;
    *base = path_base(path);
    *parent = path_folder(path);
    struct out_folder *f = xcalloc(1, sizeof *f);
    f->path = path_join(*parent, *base);
    f->replace = replace;
    if (!(*base)[0] || strcmp(*base, ".") == 0 || strcmp(*base, "..") == 0 || strcmp(*base, "/") == 0) {
        ok = err_set(e, ERR_IO, "\"%s\": not a name for a new folder", path);
    } else if (lstat(f->path, &st) == 0) {
        f->is_over_empty = !replace && S_ISDIR(st.st_mode) && is_empty_folder(f->path);
        if (!replace && !f->is_over_empty)
            ok = err_set(e, ERR_IO, "%s: exists already", f->path);
        else if (!S_ISDIR(st.st_mode))
            ok = err_set(e, ERR_IO, "%s: not a folder, can't be replaced by one", f->path);
    }
    ok = ok && parents_make(&f->parents, f->path, e);
    if (!ok) {
        parents_remove(&f->parents);
        folder_free(f);
        free(*base);
        free(*parent);
        f = NULL;
    }
    *out = f;
    return ok;
}

bool out_folder_open(struct out_folder **out, const char *path, bool replace, struct err *e)
{
    char *base, *parent;
    struct out_folder *f;
    bool ok = false;
    *out = NULL;
    if (!folder_new(&f, path, replace, &parent, &base, e))
        return false;
    for (int i = 0; i < 100 && !ok; i++) {
        char suffix[7];
        random_suffix(suffix);
        free(f->temporary);
        f->temporary = xasprintf("%s/.%s.tmp-%s", parent, base, suffix);
        ok = mkdir(f->temporary, 0777) == 0;
        if (!ok && errno != EEXIST)
            break;
    }
    if (ok) {
        f->salvage = salvage_add_output(f->temporary);
        *out = f;
    } else {
        err_set_errno(e, "%s: can't make the folder", f->path);
        parents_remove(&f->parents);
        folder_free(f);
    }
    free(base);
    free(parent);
    return ok;
}

/* The lock goes with the process, so what a killed one left is free. */
static bool lock_folder(struct out_folder *f, struct err *e)
{
    char *lock = path_join(f->temporary, LOCK_NAME);
    int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    bool ok = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (ok) {
        f->lock = lock;
        f->lock_fd = fd;
        return true;
    }
    if (fd >= 0 && errno == EWOULDBLOCK)
        err_set(e, ERR_IO, "%s: another process writes this just now", f->path);
    else
        err_set_errno(e, "%s: can't lock", lock);
    if (fd >= 0)
        close(fd);
    free(lock);
    return false;
}

bool out_folder_clear(const struct out_folder *f, const char *const *keep, int n_keep, struct err *e)
{
    struct path_list list;
    bool ok = true;
    if (!path_list_read(&list, f->temporary, e))
        return false;
    for (size_t i = 0; i < list.n && ok; i++) {
        bool is_kept = f->lock && strcmp(list.names[i], LOCK_NAME) == 0;
        for (int k = 0; k < n_keep && !is_kept; k++)
            is_kept = strcmp(list.names[i], keep[k]) == 0;
        char *child = path_join(f->temporary, list.names[i]);
        ok = is_kept || path_remove_tree(child, e);
        free(child);
    }
    path_list_free(&list);
    return ok;
}

bool out_folder_open_keyed(struct out_folder **out, const char *path, const char *key, bool resume,
                           bool replace, bool *found, struct err *e)
{
    char *base, *parent;
    struct out_folder *f;
    *out = NULL;
    *found = false;
    if (!folder_new(&f, path, replace, &parent, &base, e))
        return false;
    f->temporary = xasprintf("%s/.%s.tmp-%s", parent, base, key);
    bool is_new = mkdir(f->temporary, 0777) == 0, ok = is_new;
    if (!ok && errno == EEXIST && path_is_folder(f->temporary))
        ok = *found = true;
    if (!ok)
        err_set_errno(e, "%s: can't make the folder", f->path);
    ok = ok && lock_folder(f, e) && (!*found || resume || out_folder_clear(f, NULL, 0, e));
    *found = *found && resume;
    if (!ok && is_new)
        rmdir(f->temporary); /* empty, but for another process that was faster: then it stays */
    if (ok) {
        f->salvage = salvage_add_output(f->temporary);
        *out = f;
    } else {
        parents_remove(&f->parents);
        folder_free(f);
    }
    free(base);
    free(parent);
    return ok;
}

void out_folder_set_resumable(struct out_folder *f, bool is_resumable)
{
    salvage_set_kept(f->salvage, is_resumable);
}

void out_folder_keep(struct out_folder *f)
{
    if (f)
        folder_free(f);
}

const char *out_folder_path(const struct out_folder *f)
{
    return f->temporary;
}

/* Syncs every file and folder below path, whoever wrote them. */
static bool sync_tree(const char *path, int depth, struct err *e)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        return err_set_errno(e, "%s: can't sync", path);
    bool is_folder = S_ISDIR(st.st_mode);
    if (!is_folder && !S_ISREG(st.st_mode))
        return true;
    if (depth > 200)
        return err_set(e, ERR_LIMIT, "%s: folders nested too deeply", path);
    bool ok = true;
    if (is_folder) {
        struct path_list list;
        if (!path_list_read(&list, path, e))
            return false;
        for (size_t i = 0; i < list.n && ok; i++) {
            char *child = path_join(path, list.names[i]);
            ok = sync_tree(child, depth + 1, e);
            free(child);
        }
        path_list_free(&list);
    }
    if (!ok)
        return false;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return err_set_errno(e, "%s: can't sync", path);
    if (fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP)
        ok = err_set_errno(e, "%s: can't sync", path);
    close(fd);
    return ok;
}

/* Puts the new folder in the place of the old one. On success *old is where the old one lies now; on failure
 * everything is where it was. */
static bool swap_folders(const struct out_folder *f, char **old, struct err *e)
{
#ifdef RENAME_EXCHANGE
    /* In one step, so that there is no moment without a folder of this name. */
    if (renameat2(AT_FDCWD, f->temporary, AT_FDCWD, f->path, RENAME_EXCHANGE) == 0) {
        *old = xstrdup(f->temporary);
        return true;
    }
    if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP)
        return err_set_errno(e, "%s: can't replace", f->path);
#endif
    char *aside = xasprintf("%s.old", f->temporary);
    bool ok = rename(f->path, aside) == 0;
    if (!ok) {
        err_set_errno(e, "%s: can't move aside", f->path);
    } else if (!rename_new(f->temporary, f->path, e)) {
        ok = false;
        if (rename(aside, f->path) != 0)
            err_wrap(e, "the old folder is in %s now", aside);
    }
    if (ok)
        *old = aside;
    else
        free(aside);
    return ok;
}

/* Undoes what made the folder appear; old: where the one that it replaced lies, or NULL. What can't be undone is added
 * to the error. */
static bool put_back(const struct out_folder *f, const char *old, struct err *e)
{
    bool ok;
#ifdef RENAME_EXCHANGE
    if (old && strcmp(old, f->temporary) == 0) {
        ok = renameat2(AT_FDCWD, f->temporary, AT_FDCWD, f->path, RENAME_EXCHANGE) == 0;
        return ok || err_wrap(e, "%s is complete, but may not outlast a crash", f->path);
    }
#endif
    bool is_away = rename(f->path, f->temporary) == 0;
    ok = is_away && (!old || rename(old, f->path) == 0);
    if (!ok && is_away && rename(f->temporary, f->path) != 0)
        return err_wrap(e, "the old folder is in %s now, the new one in %s", old, f->temporary);
    return ok || err_wrap(e, "%s is complete, but may not outlast a crash", f->path);
}

bool out_folder_commit(struct out_folder *f, struct err *e)
{
    bool ok = false, renamed = false;
    char *old = NULL;
    struct stat st;
    if (f->lock && unlink(f->lock) != 0) {
        err_set_errno(e, "%s: can't remove", f->lock);
        goto done;
    }
    if (!sync_tree(f->temporary, 0, e))
        goto done;
    if (f->replace && lstat(f->path, &st) == 0) {
        if (!S_ISDIR(st.st_mode)) {
            err_set(e, ERR_IO, "%s: not a folder, can't be replaced by one", f->path);
            goto done;
        }
        renamed = swap_folders(f, &old, e);
    } else if (f->is_over_empty) {
        /* takes the place of an empty folder, and of nothing else */
        renamed =
            rename(f->temporary, f->path) == 0 || err_set_errno(e, "%s: can't rename to this name", f->path);
    } else {
        renamed = rename_new(f->temporary, f->path, e);
    }
    if (!renamed)
        goto done;
    ok = parents_sync(&f->parents, f->path, e);
    if (!ok && put_back(f, old, e))
        renamed = false;
    if (ok && old)
        ok = path_remove_tree(old, e) ||
             err_wrap(e, "%s is complete, but the folder it replaced remains", f->path);
done:
    if (renamed)
        folder_free(f);
    else
        out_folder_abort(f);
    free(old);
    return ok;
}

void out_folder_abort(struct out_folder *f)
{
    if (!f)
        return;
    path_remove_tree(f->temporary, NULL);
    parents_remove(&f->parents);
    folder_free(f);
}

bool file_copy(const char *from, const char *to, struct err *e)
{
    struct map_file *m = NULL;
    struct out_file *f = NULL;
    if (!map_open(&m, from, e))
        return false;
    bool ok = out_file_open(&f, to, true, e);
    if (ok) {
        ok = out_file_write(f, m->data, m->bytes, e);
        /* Of pages that are missing the write only tells that an address is bad. */
        ok = map_check(m, e) && ok;
        if (ok)
            ok = out_file_commit(f, e);
        else
            out_file_abort(f);
    }
    map_close(m);
    return ok;
}
