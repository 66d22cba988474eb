/* Files: read-only mappings, small whole reads, and output that appears complete or not at all.
 *
 * out_file writes PATH.tmp-XXXXXX beside its target and renames on commit (after fsync); out_folder does the
 * same with a folder (".<name>.tmp-XXXXXX" beside it; commit syncs every file in it). Abort (or a failed
 * commit) removes everything that was written. Neither replaces an existing target unless told so,
 * but for an empty folder. Missing folders above the target are made, and removed again by an abort.
 */
#ifndef MILKIT_BASE_FILE_H
#define MILKIT_BASE_FILE_H

#include "base/buf.h"

/* A whole file, mapped read-only. A git LFS pointer file is refused (ERR_FORMAT) with a message that says so.
 */
struct map_file {
    char *path;
    const uint8_t *data; /* [bytes], NULL when the file is empty */
    size_t bytes;
    uint64_t device, inode;
    struct salvage *salvage;
};
bool map_open(struct map_file **out, const char *path, struct err *e) MUST_CHECK;
void map_close(struct map_file *m); /* accepts NULL */
/* Has the file become shorter since it was mapped? Then ERR_IO: whole pages that are missing raise SIGBUS, but the rest of
 * the last one reads as zeros. A file of the same name that took its place does no harm. */
bool map_check(const struct map_file *m, struct err *e) MUST_CHECK;
/* The first file for which that was so when its mapping was closed, NULL: none. For the end of a program: what it printed
 * may be wrong. */
const char *map_shortened(void);
/* On Linux, pages that were looked at leave the process's resident memory; what is read again comes back by itself. */
void map_drop_pages(const struct map_file *m);
/* Tells whether the bytes are a git LFS pointer ("version https://git-lfs..."). */
bool file_is_lfs_pointer(const void *data, size_t bytes);

/* Reads a whole regular file of at most max_bytes into a heap string with a 0 byte behind it. Refuses LFS pointers, and at
 * once what is not a file (a FIFO, a device). */
bool file_read(char **out, size_t *bytes, const char *path, size_t max_bytes, struct err *e) MUST_CHECK;

/* A folder for reading that the user named. what: "a checkpoint folder"; member: a file that such a folder has, or NULL.
 * Nothing there, not readable, a FIFO or a device: ERR_IO; a file, or a folder without the member: ERR_FORMAT. */
bool folder_check(const char *path, const char *what, const char *member, struct err *e) MUST_CHECK;
/* Can path be made, as far as the folders above it tell: the nearest one that is there is a folder. ERR_IO. */
bool path_check_new(const char *path, struct err *e) MUST_CHECK;
/* The same of a file that a user named, before work begins: one that is there is replaced only where that was asked for. */
bool path_check_output(const char *path, bool replace, struct err *e) MUST_CHECK;
bool path_exists(const char *path);
/* Is there something of this name, which may be a path, in the folder? */
bool folder_has(const char *folder, const char *name);
bool path_is_folder(const char *path);
bool path_is_empty_folder(const char *path);
int64_t file_bytes(const char *path); /* -1 when it can't be told */
/* Heap strings: "a/b"; the last component; everything before it ("." when there is none). */
char *path_join(const char *a, const char *b);
char *path_base(const char *path);
char *path_folder(const char *path);
/* Does s end with suffix? */
bool has_suffix(const char *s, const char *suffix);

/* Names of the entries of a folder, sorted bytewise, without "." and "..". Free with path_list_free. */
struct path_list {
    char **names;
    size_t n;
};
bool path_list_read(struct path_list *out, const char *folder, struct err *e) MUST_CHECK;
void path_list_free(struct path_list *l);
/* Makes a folder and its missing parents. */
bool folder_make(const char *path, struct err *e) MUST_CHECK;
/* Removes a file or a whole tree; nothing there is no error. Never follows links. */
bool path_remove_tree(const char *path, struct err *e);
bool file_copy(const char *from, const char *to, struct err *e) MUST_CHECK;
/* Free bytes of the file system that holds path (or its nearest existing parent); -1 when it can't be told.
 */
int64_t disk_free_bytes(const char *path);

struct out_file;
/* replace: whether an existing target may be replaced (else ERR_IO "exists"). */
bool out_file_open(struct out_file **out, const char *path, bool replace, struct err *e) MUST_CHECK;
bool out_file_write(struct out_file *f, const void *data, size_t n, struct err *e) MUST_CHECK;
/* Writes at an absolute offset (holes read as zeros); does not move the append position. Thread safe. */
bool out_file_write_at(struct out_file *f, uint64_t offset, const void *data, size_t n,
                       struct err *e) MUST_CHECK;
uint64_t out_file_position(const struct out_file *f); /* bytes appended by out_file_write */
/* fsync, rename. Consumes f in every case. */
bool out_file_commit(struct out_file *f, struct err *e) MUST_CHECK;
void out_file_abort(struct out_file *f); /* accepts NULL */
/* The whole of a small file, atomically. */
bool file_write(const char *path, const void *data, size_t n, struct err *e) MUST_CHECK;

struct out_folder;
bool out_folder_open(struct out_folder **out, const char *path, bool replace, struct err *e) MUST_CHECK;
/* The same under a temporary name that a later call finds again, ".<name>.tmp-<key>", for work that goes on
 * after an interruption. resume: *found tells whether such a folder was there; else it is removed first. One
 * process at a time: ERR_IO while another one works in it. */
bool out_folder_open_keyed(struct out_folder **out, const char *path, const char *key, bool resume,
                           bool replace, bool *found, struct err *e) MUST_CHECK;
/* Removes what is in the folder, but for entries of these names. */
bool out_folder_clear(const struct out_folder *f, const char *const *keep, int n_keep,
                      struct err *e) MUST_CHECK;
/* What is in the folder can be gone on with: a program that must end at once (base/salvage.h) leaves it. */
void out_folder_set_resumable(struct out_folder *f, bool is_resumable);
/* Leaves the temporary folder where it is. Consumes f (which may be NULL). */
void out_folder_keep(struct out_folder *f);
const char *out_folder_path(const struct out_folder *f); /* where to write meanwhile */
bool out_folder_commit(struct out_folder *f, struct err *e) MUST_CHECK;
void out_folder_abort(struct out_folder *f); /* accepts NULL */

/* Does a relative path stay below the folder it is in (not empty, not absolute, no ".." in it)? */
bool path_is_inside(const char *path);

#endif
