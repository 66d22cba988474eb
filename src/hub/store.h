/* Packages that were made from a checkpoint by the way, kept for the next time.
 *
 * They lie in MILKIT_CACHE, else XDG_CACHE_HOME/milkit, else ~/.cache/milkit, each in a folder of its own:
 * <name>-<digest>/package, and beside it source.json, which says what it was made from. The digest is one of the
 * checkpoint's files (names, sizes, times) and of the settings: another checkpoint in the same place makes another package.
 */
#ifndef MILKIT_HUB_STORE_H
#define MILKIT_HUB_STORE_H

#include "base/file.h"

struct store_entry {
    char *name;    /* "tiny-0123abcd...", the folder's */
    char *package; /* path of the package */
    char *source;  /* what the user named: "org/name", a path */
    char *settings;
    int64_t bytes;  /* on disk */
    int64_t used_s; /* when it was used last, seconds since 1970 */
};
struct store_list {
    struct store_entry *entries; /* [n], the one that was used last first */
    size_t n;
};

/* Where the package of a checkpoint is or would be, and whether it is there. path: the checkpoint's folder or file; source: the
 * name for people; settings: a word that tells packages of the same checkpoint apart. *package is heap. */
bool store_find(char **package, bool *is_there, const char *path, const char *source, const char *settings,
                struct err *e) MUST_CHECK;
/* Writes source.json beside a package that was just made, or sets the time of its last use. */
bool store_note_use(const char *package, const char *source, const char *settings, struct err *e) MUST_CHECK;

/* All kept packages. No folder yet: none. */
bool store_read(struct store_list *out, struct err *e) MUST_CHECK;
void store_list_free(struct store_list *l);
/* Removes an entry with all that lies in its folder. */
bool store_remove(const struct store_entry *entry, struct err *e) MUST_CHECK;
char *store_folder(void); /* heap */

#endif
