/* The wish that a long computation ends before its time: a flag that a signal handler sets, or an hour that has come. */
#ifndef MILKIT_BASE_STOP_H
#define MILKIT_BASE_STOP_H

#include <signal.h>
#include "base/err.h"

struct stop {
    const volatile sig_atomic_t *flag; /* not 0: stop; may be NULL */
    double deadline;                   /* of clock_seconds; 0: none */
};

/* Should the work stop? s may be NULL. Thread safe. */
bool stop_requested(const struct stop *s);
/* The error of work that stopped for it: ERR_CANCELLED, "interrupted" or "out of time". Returns false. */
bool stop_error(const struct stop *s, struct err *e);

#endif
