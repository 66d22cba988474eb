/* Error objects and status values. */
#include <stdlib.h>
#include <string.h>
#include "api/api_int.h"

mk_status api_status(enum err_code code)
{
    switch (code) {
    case ERR_NONE:
        return MK_OK;
    case ERR_USAGE:
        return MK_USAGE;
    case ERR_UNSUPPORTED:
        return MK_UNSUPPORTED;
    case ERR_FORMAT:
        return MK_FORMAT;
    case ERR_MISMATCH:
        return MK_OUTSIDE;
    case ERR_LIMIT:
    case ERR_NOMEM:
        return MK_LIMIT;
    case ERR_CANCELLED:
        return MK_CANCELLED;
    case ERR_FAILED:
    case ERR_IO:
    case ERR_BUG:
    case ERR_CLOSED:
        break;
    }
    return MK_FAILED;
}

mk_status api_fail(const struct err *from, mk_error **to)
{
    mk_status status = from->code == ERR_NONE ? MK_FAILED : api_status(from->code);
    if (to) {
        size_t n = strlen(from->msg) + 1;
        *to = xmalloc(sizeof **to + n);
        (*to)->status = status;
        (*to)->hint = from->hint;
        (*to)->detail = NULL;
        memcpy((*to)->message, from->msg, n);
    }
    return status;
}

mk_status api_usage(mk_error **to, const char *fmt, ...)
{
    struct err e = {.code = ERR_USAGE};
    va_list args;
    va_start(args, fmt);
    vsnprintf(e.msg, sizeof e.msg, fmt, args);
    va_end(args);
    return api_fail(&e, to);
}

mk_status api_result(bool ok, const struct err *from, mk_error **to)
{
    if (!ok)
        return api_fail(from, to);
    if (to)
        *to = NULL;
    return MK_OK;
}

bool api_read_struct(void *out, size_t bytes, const void *from)
{
    size_t size = 0;
    memset(out, 0, bytes);
    if (!from)
        return true;
    memcpy(&size, from, sizeof size);
    if (size < sizeof size || size > 65536)
        return false;
    memcpy(out, from, size < bytes ? size : bytes);
    return true;
}

bool api_write_struct(void *out, const void *from, size_t bytes)
{
    size_t size;
    memcpy(&size, out, sizeof size);
    if (size < sizeof size || size > 65536)
        return false;
    memcpy(out, from, size < bytes ? size : bytes);
    return true;
}

const char *mk_status_name(mk_status status)
{
    static const char *const names[] = {"ok",     "failed",  "usage", "unsupported",
                                        "format", "outside", "limit", "cancelled"};
    return status >= 0 && status < (mk_status)(sizeof names / sizeof *names) ? names[status] : "unknown";
}

mk_status mk_error_status(const mk_error *e)
{
    return e ? e->status : MK_OK;
}

const char *mk_error_message(const mk_error *e)
{
    return e ? e->message : "";
}

const char *mk_error_hint(const mk_error *e)
{
    return e && e->hint != HINT_NONE ? err_hint_word(e->hint) : "";
}

const char *mk_error_detail(const mk_error *e)
{
    return e ? e->detail : NULL;
}

void mk_error_free(mk_error *e)
{
    if (e)
        free(e->detail);
    free(e);
}
