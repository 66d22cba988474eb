/* What a handler of SIGBUS must know: which file lies at an address, and what half-written output there is.
 *
 * A file that another program cuts short while it is mapped takes its pages with it: the next read of one raises SIGBUS in
 * whichever thread reads. Nothing can be computed any more then, and the program that owns the process (never a library)
 * may install a handler that names the file, discards output and exits. So mappings and temporary output are listed here by
 * base/file and base/file_out, in entries that are never freed and are read without locks. It is the one list of the whole
 * process, since a handler can't be given anything.
 */
#ifndef MILKIT_BASE_SALVAGE_H
#define MILKIT_BASE_SALVAGE_H

#include <stdbool.h>
#include <stddef.h>

struct salvage;
/* path is borrowed until the entry is dropped. Thread safe. */
struct salvage *salvage_add_mapping(const char *path, const void *begin, size_t bytes);
struct salvage *salvage_add_output(const char *path);
/* Whether an output shall stay where it is: what is in it can be gone on with. */
void salvage_set_kept(struct salvage *s, bool is_kept);
void salvage_drop(struct salvage *s); /* accepts NULL */

/* Both async-signal-safe. The path of the mapping around an address, or NULL. */
const char *salvage_mapping_at(const void *address);
/* Removes all temporary output, files and whole folders, but what is kept: returns whether something is. */
bool salvage_discard_outputs(void);

#endif
