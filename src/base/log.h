/* What the user hears beside the product: messages and progress, on one stream (stderr) or through an owner's functions. */
#ifndef MILKIT_BASE_LOG_H
#define MILKIT_BASE_LOG_H

#include <stdatomic.h>
#include <stdio.h>
#include "base/err.h"
#include <stdint.h>

enum log_level { LOG_QUIET = 0, LOG_WARN = 1, LOG_INFO = 2, LOG_DEBUG = 3 };

struct progress;

struct log {
    FILE *stream; /* NULL: silent, unless there is a sink */
    enum log_level level;
    /* Set to ask for a stop: by a signal handler of the owner, or by another thread. Either may be NULL. */
    const atomic_int *cancel, *cancel_also;
    atomic_bool is_stopped; /* log_stop */
    int n_warnings;
    /* Instead of the stream; each may be NULL. text is without a newline; false from on_progress stops the job. */
    void (*sink)(void *context, enum log_level level, const char *text);
    bool (*on_progress)(void *context, const struct progress *p, double done, const char *detail);
    void *context; /* of both */
    /* How the owner of the stream words a hint, behind the message; may be NULL. */
    const char *(*hint_text)(enum err_hint hint);
};

/* All accept NULL for the log. "milkit: warning: <text>", "milkit: <text>". */
void log_warn(struct log *l, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* The same with a hint. */
void log_warn_hint(struct log *l, enum err_hint hint, const char *fmt, ...) PRINTF_LIKE(3, 4);
void log_info(struct log *l, const char *fmt, ...) PRINTF_LIKE(2, 3);
void log_info_hint(struct log *l, enum err_hint hint, const char *fmt, ...) PRINTF_LIKE(3, 4);
void log_debug(struct log *l, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Asks for a stop, as the flags do. */
void log_stop(struct log *l);
/* Did the user ask to stop? Then also sets ERR_CANCELLED ("interrupted") in *e (may be NULL). */
bool log_cancelled(const struct log *l, struct err *e);

/* One line about a long job: redrawn at most 10 times a second on a terminal, else one line every 10 seconds.
 * Shows label, done of total, rate and the estimated time left. */
struct progress {
    struct log *log; /* asked whether to stop; may be NULL */
    bool is_shown;
    char label[64];
    const char *unit;       /* "MB", "tokens" */
    double total;           /* in units; 0: unknown */
    double units_per_count; /* progress_update counts times this are units (1e-6 for bytes shown as MB) */
    double start_s, last_s;
    bool is_terminal, drawn;
};
void progress_begin(struct progress *p, struct log *l, const char *label, const char *unit,
                    double units_per_count, double total_count);
/* detail: what is being worked on now, may be NULL. */
void progress_update(struct progress *p, double done_count, const char *detail);
void progress_end(struct progress *p); /* clears the line */
/* Monotonic clock in seconds. */
double clock_seconds(void);

#endif
