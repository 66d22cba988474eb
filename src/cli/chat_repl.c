/* The loop of milkit chat: read a message or a command, answer, again.
 *
 * Ctrl-C (SIGINT) at a terminal stops the answer and keeps the chat; the next one, with nothing said in between, leaves.
 * Anything else that asks to stop, and any SIGINT away from a terminal, ends the program.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>
#include "cli/chat.h"

#define QUOTES "\"\"\""

static bool ends_with(const struct buf *b, size_t from, const char *end)
{
    size_t n = strlen(end);
    return b->n - from >= n && memcmp(b->p + b->n - n, end, n) == 0;
}

static void cut(struct buf *b, size_t n)
{
    b->n -= n;
    b->p[b->n] = '\0';
}

/* A whole entry: one line; lines that end in a backslash and the one behind them; or everything between """ and """. The
 * end of the input ends an entry too. */
static enum line_result read_entry(struct chat *chat, struct buf *out, bool *is_quoted, struct err *e)
{
    buf_clear(out);
    *is_quoted = false;
    chat->is_cut = false;
    enum line_result result = chat_read_line(chat, "> ", out, e);
    if (result != LINE_READ || !out->p)
        return result;
    if (strncmp(out->p, QUOTES, strlen(QUOTES)) == 0) {
        size_t n = strlen(QUOTES), from = n;
        while (result == LINE_READ && !ends_with(out, from, QUOTES)) {
            buf_puts(out, "\n");
            from = out->n;
            result = chat_read_line(chat, ". ", out, e);
        }
        if (result == LINE_READ)
            cut(out, n);
        if (result == LINE_READ || result == LINE_END) {
            memmove(out->p, out->p + n, out->n - n + 1);
            cut(out, n);
            *is_quoted = out->p[0] != '/';
            if (!*is_quoted) { /* as it can be typed, and so recalled, without quotes */
                buf_puts(out, "/");
                memmove(out->p + 1, out->p, out->n - 1);
            }
            result = LINE_READ;
        }
        return result;
    }
    while (result == LINE_READ && ends_with(out, 0, "\\")) {
        cut(out, 1);
        buf_puts(out, "\n");
        result = chat_read_line(chat, ". ", out, e);
    }
    return result == LINE_END ? LINE_READ : result;
}

static bool handle_entry(struct chat *chat, struct buf *entry, bool is_quoted, bool *leaves, struct err *e)
{
    const char *text = entry->p ? entry->p : "";
    if (memchr(text, '\0', entry->n))
        return err_set(e, ERR_FORMAT, "stdin: a message with a NUL byte in it");
    if (!is_quoted && text[strspn(text, " \t\n")] == '\0')
        return true;
    if (chat->is_cut)
        return err_set(
            e, ERR_LIMIT,
            "a line of %d bytes or more, of which this terminal may have dropped the end, is not taken; "
            "/read FILE says what is in a file",
            TERMINAL_LINE_BYTES);
    if (chat->is_interactive)
        chat_history_add(chat, text, entry->n);
    if (chat->editor)
        line_editor_remember(chat->editor, text, entry->n);
    if (!is_quoted && text[0] == '/' && text[1] != '/')
        return chat_command(chat, text, leaves, e);
    size_t skip = !is_quoted && text[0] == '/' ? 1 : 0; /* "//text" is the message "/text" */
    bool ok = chat_say(chat, text + skip, entry->n - skip, e);
    chat->returns_entry = !ok;
    return ok;
}

/* What became of an entry that was stopped. */
static const char *stopped_text(const struct chat *chat, enum line_result result, bool ok)
{
    if (result == LINE_INTERRUPTED)
        return "(Ctrl-C again leaves)\n";
    if (ok)
        return "(stopped; Ctrl-C again leaves)\n";
    if (!chat->returns_entry)
        return "(stopped before the answer began)\n";
    return chat->editor ? "(stopped before the answer began; the message is back to be edited)\n"
                        : "(stopped before the answer began; the message is gone)\n";
}

bool chat_repl(struct chat *chat, struct err *e)
{
    struct cli *cli = chat->cli;
    struct buf entry;
    bool ok = true, leaves = false, was_stopped = false;
    buf_init(&entry, MESSAGE_BYTES_MAX);
    while (ok && !leaves) {
        bool is_quoted;
        struct err problem = {0};
        chat->returns_entry = false;
        enum line_result result = read_entry(chat, &entry, &is_quoted, &problem);
        if (result == LINE_END) {
            chat_prompt(chat, "\n");
            break;
        }
        bool is_dropped = result == LINE_INTERRUPTED && chat->editor && entry.n > 0;
        if (is_dropped)
            line_editor_remember(chat->editor, entry.p, entry.n);
        ok = result == LINE_READ && handle_entry(chat, &entry, is_quoted, &leaves, &problem);
        bool stopped = log_cancelled(&cli->log, NULL);
        bool is_last = *cli->stop_signal == SIGTERM ||
                       (was_stopped && result == LINE_INTERRUPTED && !is_dropped) ||
                       (result == LINE_FAILED && !entry.failed) || chat->printer.failed;
        if (!chat->is_interactive || is_last) {
            if (!ok)
                *e = problem;
            if (!ok && result == LINE_INTERRUPTED)
                chat_prompt(chat, "\n");
            if (!chat->is_interactive || !ok)
                continue;
        }
        if (stopped) {
            chat_prompt(chat, result == LINE_INTERRUPTED ? "\n" : "");
            chat_prompt(chat, is_dropped ? "(dropped; Up brings it back)\n" : stopped_text(chat, result, ok));
        } else if (!ok) {
            fprintf(stderr, "%s: error: %s\n", cli->program, problem.msg);
        }
        if (chat->returns_entry && chat->editor)
            line_editor_offer(chat->editor, entry.p, entry.n);
        *cli->stop_signal = 0;
        mk_cancel_clear(cli->cancel);
        was_stopped = stopped && !is_dropped;
        ok = true;
    }
    buf_fini(&entry);
    return ok;
}
