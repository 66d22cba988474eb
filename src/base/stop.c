/* Asking whether to stop. */
#include "base/stop.h"
#include "base/log.h"

static bool is_set(const atomic_int *flag)
{
    return flag && atomic_load_explicit(flag, memory_order_relaxed);
}

static bool is_flagged(const struct stop *s)
{
    return is_set(s->flag) || is_set(s->also);
}

bool stop_requested(const struct stop *s)
{
    return s && (is_flagged(s) || (s->deadline > 0 && clock_seconds() >= s->deadline));
}

bool stop_error(const struct stop *s, struct err *e)
{
    bool interrupted = !s || s->deadline <= 0 || is_flagged(s);
    return err_set(e, ERR_CANCELLED, "%s", interrupted ? "interrupted" : "out of time");
}
