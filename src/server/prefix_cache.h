/* What sessions have computed, kept when they go on to something else: copies in memory, and files that outlast the server.
 *
 * The scheduler's thread alone calls these functions; a thread of the cache's own writes the files. A file that is damaged, or another
 * package's, is dropped with a warning: the prompt is computed then.
 */
#ifndef MILKIT_SERVER_PREFIX_CACHE_H
#define MILKIT_SERVER_PREFIX_CACHE_H

#include "base/log.h"
#include "milkit.h"

struct prefix_cache;
struct prefix_cache_options {
    mk_package *package;
    bool
        is_sequential; /* a copy serves prompts that begin with all of its tokens; else those with a part of them, too */
    uint64_t memory_bytes;
    const char *folder; /* of files; NULL: none */
    uint64_t file_bytes;
    const char *owner; /* of files: a word that changes with the package */
    struct log *log;
};
bool prefix_cache_new(struct prefix_cache **out, const struct prefix_cache_options *o,
                      struct err *e) MUST_CHECK;
/* What waits is written before. Accepts NULL. */
void prefix_cache_free(struct prefix_cache *c);
/* Keeps what the session holds, unless it is there already. */
void prefix_cache_add(struct prefix_cache *c, const mk_session *s);
/* The longest beginning of ids [n] that is known as a whole to a copy (or in part, where that is enough). 0: none. */
size_t prefix_cache_find(struct prefix_cache *c, const int32_t *ids, size_t n);
/* Brings the session there. False: it can't be done, and the session is as it was. */
bool prefix_cache_restore(struct prefix_cache *c, const int32_t *ids, size_t n, mk_session *s);
/* Of the copies in memory. From any thread. */
uint64_t prefix_cache_bytes(struct prefix_cache *c);

#endif
