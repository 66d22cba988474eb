/* Messages and the progress line. */
#include "base/log.h"
#include "base/terminal.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

double clock_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

PRINTF_LIKE(4, 0)
static void say(struct log *l, enum log_level level, enum err_hint hint, const char *fmt, va_list args)
{
    char text[2048];
    if (vsnprintf(text, sizeof text, fmt, args) < 0)
        return;
    terminal_defuse(text, false);
    if (l->sink) {
        l->sink(l->context, level, text);
        return;
    }
    /* A progress line may stand there; it comes back with its next update. */
    const char *clear = isatty(fileno(l->stream)) ? "\r\033[K" : "";
    const char *more = hint != HINT_NONE && l->hint_text ? l->hint_text(hint) : "";
    fprintf(l->stream, "%smilkit: %s%s%s\n", clear, level == LOG_WARN ? "warning: " : "", text, more);
    fflush(l->stream);
}

static bool is_heard(const struct log *l, enum log_level level)
{
    return (l->stream || l->sink) && l->level >= level;
}

PRINTF_LIKE(3, 0) static void warn(struct log *l, enum err_hint hint, const char *fmt, va_list args)
{
    if (!l)
        return;
    __atomic_fetch_add(&l->n_warnings, 1, __ATOMIC_RELAXED);
    if (is_heard(l, LOG_WARN))
        say(l, LOG_WARN, hint, fmt, args);
}

void log_warn(struct log *l, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    warn(l, HINT_NONE, fmt, args);
    va_end(args);
}

void log_warn_hint(struct log *l, enum err_hint hint, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    warn(l, hint, fmt, args);
    va_end(args);
}

void log_info_hint(struct log *l, enum err_hint hint, const char *fmt, ...)
{
    if (!l || !is_heard(l, LOG_INFO))
        return;
    va_list args;
    va_start(args, fmt);
    say(l, LOG_INFO, hint, fmt, args);
    va_end(args);
}

void log_info(struct log *l, const char *fmt, ...)
{
    if (!l || !is_heard(l, LOG_INFO))
        return;
    va_list args;
    va_start(args, fmt);
    say(l, LOG_INFO, HINT_NONE, fmt, args);
    va_end(args);
}

void log_debug(struct log *l, const char *fmt, ...)
{
    if (!l || !is_heard(l, LOG_DEBUG))
        return;
    va_list args;
    va_start(args, fmt);
    say(l, LOG_DEBUG, HINT_NONE, fmt, args);
    va_end(args);
}

void log_stop(struct log *l)
{
    atomic_store_explicit(&l->is_stopped, true, memory_order_relaxed);
}

bool log_cancelled(const struct log *l, struct err *e)
{
    if (!l || !((l->cancel && atomic_load_explicit(l->cancel, memory_order_relaxed)) ||
                (l->cancel_also && atomic_load_explicit(l->cancel_also, memory_order_relaxed)) ||
                atomic_load_explicit(&l->is_stopped, memory_order_relaxed)))
        return false;
    err_set(e, ERR_CANCELLED, "interrupted");
    return true;
}

void progress_begin(struct progress *p, struct log *l, const char *label, const char *unit,
                    double units_per_count, double total_count)
{
    memset(p, 0, sizeof *p);
    p->log = l;
    p->is_shown = l && (l->on_progress || (l->stream && l->level >= LOG_INFO));
    snprintf(p->label, sizeof p->label, "%s", label);
    p->unit = unit;
    p->units_per_count = units_per_count;
    p->total = total_count * units_per_count;
    p->start_s = clock_seconds();
    p->last_s = p->start_s;
    p->is_terminal = p->is_shown && !l->on_progress && isatty(fileno(l->stream));
}

static void format_left(char *out, size_t room, double seconds)
{
    if (seconds < 100)
        snprintf(out, room, "%.0f s", seconds);
    else if (seconds < 100 * 60)
        snprintf(out, room, "%.0f min", seconds / 60);
    else
        snprintf(out, room, "%.1f h", seconds / 3600);
}

void progress_update(struct progress *p, double done_count, const char *detail)
{
    if (!p->is_shown)
        return;
    double now = clock_seconds();
    if (now - p->last_s < (p->is_terminal || p->log->on_progress ? 0.1 : 10.0))
        return;
    p->last_s = now;
    double done = done_count * p->units_per_count;
    if (p->log->on_progress) {
        if (!p->log->on_progress(p->log->context, p, done, detail))
            log_stop(p->log);
        return;
    }
    double seconds = now - p->start_s;
    double rate = seconds > 0 ? done / seconds : 0;
    char line[512];
    int digits = done < 1000 && p->units_per_count != 1 ? 1 : 0;
    if (p->total > 0) {
        char left[32] = "?";
        if (rate > 0)
            format_left(left, sizeof left, p->total > done ? (p->total - done) / rate : 0);
        snprintf(line, sizeof line, "%s: %.*f of %.*f %s (%.0f%%), %.1f %s/s, %s left%s%s", p->label, digits,
                 done, digits, p->total, p->unit, 100 * done / p->total, rate, p->unit, left,
                 detail ? ", " : "", detail ? detail : "");
    } else {
        snprintf(line, sizeof line, "%s: %.*f %s, %.1f %s/s%s%s", p->label, digits, done, p->unit, rate,
                 p->unit, detail ? ", " : "", detail ? detail : "");
    }
    terminal_defuse(line, true);
    if (!p->is_terminal) {
        fprintf(p->log->stream, "milkit: %s\n", line);
    } else {
        /* A line that wraps could not be redrawn. */
        struct winsize size;
        int columns = 80;
        if (ioctl(fileno(p->log->stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 1)
            columns = size.ws_col;
        fprintf(p->log->stream, "\r\033[K%.*s", columns - 1, line);
        p->drawn = true;
    }
    fflush(p->log->stream);
}

void progress_end(struct progress *p)
{
    if (p->is_shown && p->drawn) {
        fputs("\r\033[K", p->log->stream);
        fflush(p->log->stream);
    }
    p->drawn = false;
}
