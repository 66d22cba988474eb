/* Error messages: formatting, prefixing, and the exit status that belongs to a code.
 *
 * Messages often quote names out of untrusted files, so control characters never pass through to a terminal.
 */
#include "base/err.h"
#include "base/terminal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Copies text into the message, cut with "..." and never inside a UTF-8 sequence. */
static void store_message(struct err *e, const char *text, bool cut)
{
    size_t n = strlen(text);
    size_t room = sizeof e->msg - 1;
    if (n > room) {
        n = room;
        cut = true;
    }
    if (cut) {
        if (n > room - 3)
            n = room - 3;
        while (n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80)
            n--;
    }
    memcpy(e->msg, text, n);
    memcpy(e->msg + n, "...", cut ? 4 : 0);
    if (!cut)
        e->msg[n] = '\0';
    terminal_defuse(e->msg, true);
}

/* Room for a prefix and a whole old message; the arguments may point into the message that is replaced. */
#define SCRATCH_BYTES 2200

bool(err_set)(struct err *e, enum err_code code, const char *fmt, ...)
{
    if (!e)
        return false;
    char text[SCRATCH_BYTES];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (n < 0)
        text[0] = '\0';
    e->code = code;
    e->hint = HINT_NONE;
    store_message(e, text, n >= (int)sizeof text);
    return false;
}

bool(err_set_hint)(struct err *e, enum err_hint hint)
{
    if (e)
        e->hint = hint;
    return false;
}

const char *err_hint_word(enum err_hint hint)
{
    static const char *const words[HINT_COUNT] = {
#define HINT(name, word) [HINT_##name] = word,
#include "base/hints.def"
#undef HINT
    };
    return words[hint];
}

bool(err_wrap)(struct err *e, const char *fmt, ...)
{
    if (!e)
        return false;
    char text[SCRATCH_BYTES];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof e->msg, fmt, args);
    va_end(args);
    if (n < 0)
        text[0] = '\0';
    size_t used = strlen(text);
    int m = snprintf(text + used, sizeof text - used, ": %s", e->msg);
    store_message(e, text, m >= (int)(sizeof text - used));
    return false;
}

bool(err_set_errno)(struct err *e, const char *fmt, ...)
{
    int number = errno;
    if (!e)
        return false;
    char text[SCRATCH_BYTES];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, SCRATCH_BYTES - 128, fmt, args);
    va_end(args);
    if (n < 0)
        text[0] = '\0';
    /* The reason is what the user needs most: a long path is cut before it is. */
    char reason[128];
    const char *r = strerror_r(number, reason, sizeof reason);
    size_t room = sizeof e->msg - 1 - strlen(r) - 2;
    size_t used = strlen(text);
    if (used > room) {
        used = room - 3;
        while (used > 0 && ((unsigned char)text[used] & 0xc0) == 0x80)
            used--;
        memcpy(text + used, "...", 3);
        used += 3;
    }
    snprintf(text + used, sizeof text - used, ": %s", r);
    e->hint = HINT_NONE;
    e->code = number == ENOMEM ? ERR_NOMEM : number == EPIPE ? ERR_CLOSED : ERR_IO;
    store_message(e, text, false);
    return false;
}

int err_exit_status(enum err_code code)
{
    switch (code) {
    case ERR_NONE:
    case ERR_CLOSED:
        return 0;
    case ERR_USAGE:
        return 2;
    case ERR_UNSUPPORTED:
        return 3;
    case ERR_FORMAT:
        return 4;
    case ERR_MISMATCH:
        return 5;
    case ERR_LIMIT:
    case ERR_NOMEM:
        return 6;
    case ERR_CANCELLED:
        return 130;
    case ERR_FAILED:
    case ERR_IO:
    case ERR_BUG:
        break;
    }
    return 1;
}
