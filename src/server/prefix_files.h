/* The cache's files: a session's state as the library writes it, and beside it the tokens that it stands for.
 *
 *     OWNER-NAME.state     OWNER-NAME.tokens: MAGIC, the number of tokens, their SHA-256, the tokens
 */
#ifndef MILKIT_SERVER_PREFIX_FILES_H
#define MILKIT_SERVER_PREFIX_FILES_H

#include "base/log.h"
#include "milkit.h"

/* One of them. */
struct prefix_file {
    char *state, *names; /* paths of the two */
    int32_t *tokens;     /* [n_tokens] */
    size_t n_tokens;
    uint64_t bytes; /* of both */
    double used;    /* seconds since 1970 */
};
void prefix_file_fini(struct prefix_file *f);
/* The folder, which is made where it is missing, for its user's eyes only. */
bool prefix_files_open(const char *folder, struct err *e) MUST_CHECK;
/* Calls found, which takes *f over, with each one of the owner's; damaged ones are removed with a warning. */
void prefix_files_list(const char *folder, const char *owner, struct log *log,
                       void (*found)(void *context, struct prefix_file *f), void *context);
/* Writes what the session holds. */
bool prefix_file_write(struct prefix_file *f, const char *folder, const char *owner, const mk_session *s,
                       struct err *e) MUST_CHECK;
/* Used again: it is the last to be dropped. */
void prefix_file_touch(struct prefix_file *f);
void prefix_file_remove(const struct prefix_file *f);

#endif
