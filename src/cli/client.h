/* What the commands share that work through include/milkit.h alone: the library with this program's log, its errors as ours, calls
 * with a progress line that stop when the user asks to.
 */
#ifndef MILKIT_CLI_CLIENT_H
#define MILKIT_CLI_CLIENT_H

#include "cli/package_rows.h"
#include "cli/prompt.h"
#include "milkit.h"

/* Takes an error of the library over: *from is freed. True when there was none. */
bool client_take(mk_status status, mk_error **from, struct err *e) MUST_CHECK;

/* n_threads 0: all. */
bool client_open(struct cli *c, int64_t n_threads, mk_library **out, struct err *e) MUST_CHECK;
/* The package that the options name. text: MK_TEXT_.. */
bool client_open_package(struct cli *c, const struct package_options *o, int32_t text, mk_library **library,
                         mk_package **out, struct err *e) MUST_CHECK;

/* ---- client_kept.c ---- */

/* Is there a checkpoint, a folder or a GGUF file, where a package is expected? */
bool client_is_checkpoint(const char *path);
/* *path becomes the kept package of the checkpoint *path, which is converted when it is not there. source: what the user named. */
bool client_keep_package(struct cli *c, mk_library *library, const char *source, const char **path,
                         struct err *e) MUST_CHECK;

/* One long call. */
struct client_call {
    mk_call call;
    struct log *log;
    const char *label; /* of the progress line; NULL: the library's own words */
    struct progress progress;
    bool is_begun;
};
/* To be given to the call; without shows_progress there is no line. */
const mk_call *client_call_begin(struct client_call *x, struct cli *c, const char *label,
                                 bool shows_progress);
void client_call_end(struct client_call *x); /* takes the line away */

/* ids of a text on the heap; flags: MK_SPECIAL. */
bool client_tokenize(const mk_tokenizer *t, const char *text, size_t bytes, uint32_t flags, int32_t **ids,
                     size_t *n, struct err *e) MUST_CHECK;
bool client_read_prompt(const mk_package *p, const struct prompt_options *o, int32_t **ids, size_t *n,
                        struct err *e) MUST_CHECK;

#endif
