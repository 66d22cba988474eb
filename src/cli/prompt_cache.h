/* --prompt-cache FILE: a session's state that outlives the program. */
#ifndef MILKIT_CLI_PROMPT_CACHE_H
#define MILKIT_CLI_PROMPT_CACHE_H

#include "cli/cli.h"

struct prompt_cache {
    const char *path; /* NULL: none */
    bool read_only;
    bool is_open; /* the file may be written */
};
#define PROMPT_CACHE_OPTION_ROWS(p)                                                                          \
    {"--prompt-cache", CLI_STRING, &(p).path, "FILE",                                                        \
     "keep what was computed: read at the start, written at the end"},                                       \
    {                                                                                                        \
        "--prompt-cache-ro", CLI_FLAG, &(p).read_only, NULL, "do not write the file of --prompt-cache"       \
    }

/* Fills a new session from the file; a file that is not there yet leaves it as it is. A file that can't be used, or a
 * folder that can't be written, is an error: nothing is replaced that this program did not write for this package. */
bool prompt_cache_load(struct prompt_cache *p, mk_session *s, struct log *log, struct err *e) MUST_CHECK;
/* Writes the file after any end of a command that leaves a session: done, interrupted or failed. ok, e: that end. A file
 * that can't be written fails a command that has not failed, else it is a warning; the result is the new end. s may be
 * NULL; nothing to do without a successful load. */
bool prompt_cache_finish(const struct prompt_cache *p, mk_session *s, struct log *log, bool ok,
                         struct err *e) MUST_CHECK;

#endif
