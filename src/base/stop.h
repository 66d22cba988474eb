/* The wish that a long computation ends before its time: a flag that somebody sets, or an hour that has come. */
#ifndef MILKIT_BASE_STOP_H
#define MILKIT_BASE_STOP_H

#include <stdatomic.h>
#include "base/err.h"

struct stop {
    const atomic_int *flag,
        *also;       /* either not 0: stop; may be NULL. Set by signal handlers or other threads */
    double deadline; /* of clock_seconds; 0: none */
};

/* Should the work stop? s may be NULL. Thread safe. */
bool stop_requested(const struct stop *s);
/* The error of work that stopped for it: ERR_CANCELLED, "interrupted" or "out of time". Returns false. */
bool stop_error(const struct stop *s, struct err *e);

#endif
