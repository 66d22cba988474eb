/* The list of mappings and temporary output, and removal that a signal handler may do.
 *
 * An entry goes from FREE to TAKEN (one thread fills it) to LIVE (a handler may read it) and back to FREE.
 */
#include "base/salvage.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/mem.h"

/* Deeper than any output; a handler has only the rest of a thread's stack. */
#define DEPTH_MAX 16
#define LIST_BYTES 2048

enum { FREE, TAKEN, LIVE };

struct salvage {
    struct salvage *next;
    atomic_int state;
    atomic_uint version; /* grows with each use of the entry, before the rest of it changes */
    atomic_bool is_kept;
    _Atomic(const char *) path;
    atomic_uintptr_t begin, end; /* both 0: an output */
};

static _Atomic(struct salvage *) entries;

static struct salvage *take(void)
{
    for (struct salvage *s = atomic_load(&entries); s; s = s->next) {
        int expected = FREE;
        if (atomic_compare_exchange_strong(&s->state, &expected, TAKEN))
            return s;
    }
    struct salvage *s = xcalloc(1, sizeof *s);
    atomic_init(&s->state, TAKEN);
    s->next = atomic_load(&entries);
    while (!atomic_compare_exchange_weak(&entries, &s->next, s))
        continue;
    return s;
}

static struct salvage *add(const char *path, uintptr_t begin, uintptr_t end)
{
    struct salvage *s = take();
    atomic_fetch_add(&s->version, 1);
    atomic_store(&s->path, path);
    atomic_store(&s->begin, begin);
    atomic_store(&s->end, end);
    atomic_store(&s->is_kept, false);
    atomic_store(&s->state, LIVE);
    return s;
}

struct salvage *salvage_add_mapping(const char *path, const void *begin, size_t bytes)
{
    return add(path, (uintptr_t)begin, (uintptr_t)begin + bytes);
}

struct salvage *salvage_add_output(const char *path)
{
    return add(path, 0, 0);
}

void salvage_set_kept(struct salvage *s, bool is_kept)
{
    atomic_store(&s->is_kept, is_kept);
}

void salvage_drop(struct salvage *s)
{
    if (s)
        atomic_store(&s->state, FREE);
}

const char *salvage_mapping_at(const void *address)
{
    uintptr_t at = (uintptr_t)address;
    for (const struct salvage *s = atomic_load(&entries); s; s = s->next) {
        /* Whoever reads a mapping has not closed it, so its own entry does not change meanwhile; others may, and what was read of
         * them is only believed when nothing has. */
        unsigned version = atomic_load(&s->version);
        if (atomic_load(&s->state) != LIVE || at < atomic_load(&s->begin) || at >= atomic_load(&s->end))
            continue;
        const char *path = atomic_load(&s->path);
        if (atomic_load(&s->state) == LIVE && atomic_load(&s->version) == version)
            return path;
    }
    return NULL;
}

/* What the kernel writes for getdents64. */
struct listed {
    uint64_t inode;
    int64_t offset;
    unsigned short bytes;
    unsigned char type;
    char name[];
};

static void remove_tree(int parent, const char *name, int depth);

/* opendir allocates, which a handler must not do. Returns whether there was anything to remove. */
static bool remove_entries(int folder, int depth)
{
    bool any = false;
#ifdef SYS_getdents64
    alignas(struct listed) char list[LIST_BYTES];
    long n;
    while ((n = syscall(SYS_getdents64, folder, list, sizeof list)) > 0) {
        for (long at = 0; at < n;) {
            const struct listed *entry = (const struct listed *)(const void *)(list + at);
            at += entry->bytes;
            if (strcmp(entry->name, ".") == 0 || strcmp(entry->name, "..") == 0)
                continue;
            remove_tree(folder, entry->name, depth + 1);
            any = true;
        }
    }
#else
    (void)folder;
    (void)depth;
#endif
    return any;
}

static void remove_tree(int parent, const char *name, int depth)
{
    if (unlinkat(parent, name, 0) == 0 || (errno != EISDIR && errno != EPERM) || depth > DEPTH_MAX)
        return;
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return;
    /* Some file systems skip entries while others are removed: again, until a list has none, or removing fails. */
    for (int i = 0; i < 100 && remove_entries(fd, depth); i++)
        (void)lseek(fd, 0, SEEK_SET);
    close(fd);
    (void)unlinkat(parent, name, AT_REMOVEDIR);
}

bool salvage_discard_outputs(void)
{
    bool any_kept = false;
    for (struct salvage *s = atomic_load(&entries); s; s = s->next) {
        if (atomic_load(&s->state) != LIVE || s->end != 0)
            continue;
        if (atomic_load(&s->is_kept))
            any_kept = true;
        else
            remove_tree(AT_FDCWD, s->path, 0);
    }
    return any_kept;
}
