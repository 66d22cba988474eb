/* Asking whether to stop. */
#include "base/stop.h"
#include "base/log.h"

bool stop_requested(const struct stop *s)
{
    return s && ((s->flag && *s->flag) || (s->deadline > 0 && clock_seconds() >= s->deadline));
}

bool stop_error(const struct stop *s, struct err *e)
{
    bool interrupted = !s || s->deadline <= 0 || (s->flag && *s->flag);
    return err_set(e, ERR_CANCELLED, "%s", interrupted ? "interrupted" : "out of time");
}
