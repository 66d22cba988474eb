/* Errors: one struct, provided by the caller, last parameter of every function that can fail.
 *
 * A function returns false (or NULL) and fills *e once; callers add context on the way up with err_wrap.
 * Messages say what, where, expected and found. Zero-initialised means "no error".
 */
#ifndef MILKIT_BASE_ERR_H
#define MILKIT_BASE_ERR_H

#include <stdbool.h>
#include <stdarg.h>

#define MUST_CHECK __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))

enum err_code {
    ERR_NONE = 0,
    ERR_FAILED,      /* run-time failure without a better name           -> exit status 1 */
    ERR_IO,          /* the system refused: open, read, write, disk full -> 1 */
    ERR_BUG,         /* an invariant of milkit itself does not hold      -> 1 */
    ERR_USAGE,       /* wrong command line or wrong call                 -> 2 */
    ERR_UNSUPPORTED, /* well-formed, but milkit does not do this         -> 3 */
    ERR_FORMAT,      /* a bad input file                                 -> 4 */
    ERR_MISMATCH,    /* checked and outside the limits                   -> 5 */
    ERR_LIMIT,       /* over a stated limit                              -> 6 */
    ERR_NOMEM,       /* out of memory                                    -> 6 */
    ERR_CANCELLED,   /* interrupted by the user                          -> 130 */
    ERR_CLOSED       /* whoever read our output has closed it: no fault  -> 0 */
};

/* What can be done about it, for the caller to put in its own terms: messages name no options. */
enum err_hint {
    HINT_NONE,
#define HINT(name, word) HINT_##name,
#include "base/hints.def"
#undef HINT
    HINT_COUNT
};
/* "force"; NULL for HINT_NONE */
const char *err_hint_word(enum err_hint hint);

struct err {
    enum err_code code;
    enum err_hint hint;
    char msg[1024]; /* one sentence, no newline at the end; cut with "..." when longer */
};

/* Fills *e (which may be NULL) and returns false, so that check and report fit one statement. */
bool err_set(struct err *e, enum err_code code, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* Gives a hint with the error that *e (may be NULL) holds; returns false. A new error has none, a prefix keeps it. */
bool err_set_hint(struct err *e, enum err_hint hint);
/* Prefixes the message of *e with "<fmt>: "; keeps the code; returns false. */
bool err_wrap(struct err *e, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Like err_set(ERR_IO) with ": <strerror(errno)>" appended; ENOSPC, ENOENT etc. stay readable. ENOMEM makes it ERR_NOMEM,
 * EPIPE ERR_CLOSED. */
bool err_set_errno(struct err *e, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* The compiler sees that these return false, and so that what a failed call left unset is never read. */
static inline bool err_false(bool always_false)
{
    (void)always_false;
    return false;
}
#define err_set(...) err_false((err_set)(__VA_ARGS__))
#define err_set_hint(...) err_false((err_set_hint)(__VA_ARGS__))
#define err_wrap(...) err_false((err_wrap)(__VA_ARGS__))
#define err_set_errno(...) err_false((err_set_errno)(__VA_ARGS__))

/* The exit status for a code: 0, 1, 2, 3, 4, 5, 6, 130. */
int err_exit_status(enum err_code code);

#endif
