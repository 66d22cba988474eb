/* The loop of milkit chat: read a message or a command, answer, again.
 *
 * Ctrl-C (SIGINT) at a terminal stops the answer and keeps the chat; the next one, with nothing said in between, leaves.
 * Anything else that asks to stop, and any SIGINT away from a terminal, ends the program.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>
#include "cli/chat.h"

#define QUOTES "\"\"\""

enum read_result { READ_LINE, READ_END, READ_INTERRUPTED, READ_FAILED };

static void prompt(const struct chat *chat, const char *text)
{
    if (chat->is_interactive) {
        fputs(text, stderr);
        fflush(stderr);
    }
}

/* One line without its end, appended to out. */
static enum read_result read_line(struct chat *chat, const char *prompt_text, struct buf *out, struct err *e)
{
    char *line = NULL;
    size_t capacity = 0;
    enum read_result result = READ_LINE;
    prompt(chat, prompt_text);
    errno = 0;
    ssize_t n = getline(&line, &capacity, stdin);
    if (n < 0 && log_cancelled(&chat->conversation.cli->log, e)) {
        clearerr(stdin);
        result = READ_INTERRUPTED;
    } else if (n < 0 && ferror(stdin)) {
        err_set_errno(e, "stdin: can't read");
        result = READ_FAILED;
    } else if (n < 0) {
        result = READ_END;
    } else {
        if (n > 0 && line[n - 1] == '\n')
            n--;
        if (n > 0 && line[n - 1] == '\r')
            n--;
        buf_append(out, line, (size_t)n);
        if (out->failed) {
            err_set(e, ERR_LIMIT, "a message of more than %zu bytes", MESSAGE_BYTES_MAX);
            result = READ_FAILED;
        }
    }
    free(line);
    return result;
}

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
static enum read_result read_entry(struct chat *chat, struct buf *out, bool *is_quoted, struct err *e)
{
    buf_clear(out);
    *is_quoted = false;
    enum read_result result = read_line(chat, "> ", out, e);
    if (result != READ_LINE || !out->p)
        return result;
    if (strncmp(out->p, QUOTES, strlen(QUOTES)) == 0) {
        size_t n = strlen(QUOTES), from = n;
        while (result == READ_LINE && !ends_with(out, from, QUOTES)) {
            buf_puts(out, "\n");
            from = out->n;
            result = read_line(chat, ". ", out, e);
        }
        if (result == READ_LINE)
            cut(out, n);
        if (result == READ_LINE || result == READ_END) {
            memmove(out->p, out->p + n, out->n - n + 1);
            cut(out, n);
            *is_quoted = true;
            result = READ_LINE;
        }
        return result;
    }
    while (result == READ_LINE && ends_with(out, 0, "\\")) {
        cut(out, 1);
        buf_puts(out, "\n");
        result = read_line(chat, ". ", out, e);
    }
    return result == READ_END ? READ_LINE : result;
}

static void show_status(struct chat *chat)
{
    bool is_terminal = isatty(STDERR_FILENO) == 1 && isatty(STDOUT_FILENO) == 1;
    const struct conversation *c = &chat->conversation;
    if (!chat->stats && !(is_terminal && c->cli->log.level >= LOG_INFO))
        return;
    struct buf line;
    buf_init(&line, 1024);
    conversation_put_stats(c, &line);
    bool dim = is_terminal && c->printer.has_color;
    fprintf(stderr, "%s[%s]%s\n", dim ? "\033[2m" : "", line.p, dim ? "\033[0m" : "");
    buf_fini(&line);
}

/* After an answer, or none: was it the user at the terminal who stopped it? */
static bool after_answer(struct chat *chat, bool ok, struct err *e)
{
    struct cli *cli = chat->conversation.cli;
    bool stopped = log_cancelled(&cli->log, NULL);
    if (ok)
        show_status(chat);
    if (stopped && !(chat->is_interactive && *cli->stop_signal == SIGINT))
        return err_set(e, ERR_CANCELLED, "interrupted");
    return ok;
}

bool chat_say(struct chat *chat, const char *text, size_t bytes, struct err *e)
{
    return after_answer(chat, conversation_say(&chat->conversation, text, bytes, e), e);
}

bool chat_again(struct chat *chat, struct err *e)
{
    return after_answer(chat, conversation_answer_again(&chat->conversation, e), e);
}

static bool handle_entry(struct chat *chat, struct buf *entry, bool is_quoted, bool *leaves, struct err *e)
{
    const char *text = entry->p ? entry->p : "";
    if (memchr(text, '\0', entry->n))
        return err_set(e, ERR_FORMAT, "stdin: a message with a NUL byte in it");
    if (!is_quoted && text[strspn(text, " \t")] == '\0')
        return true;
    if (chat->is_interactive)
        chat_history_add(chat, text, entry->n);
    if (!is_quoted && text[0] == '/' && text[1] != '/')
        return chat_command(chat, text, leaves, e);
    size_t skip = !is_quoted && text[0] == '/' ? 1 : 0; /* "//text" is the message "/text" */
    return chat_say(chat, text + skip, entry->n - skip, e);
}

bool chat_repl(struct chat *chat, struct err *e)
{
    struct cli *cli = chat->conversation.cli;
    struct buf entry;
    bool ok = true, leaves = false, was_stopped = false;
    buf_init(&entry, MESSAGE_BYTES_MAX);
    while (ok && !leaves) {
        bool is_quoted;
        struct err problem = {0};
        enum read_result result = read_entry(chat, &entry, &is_quoted, &problem);
        if (result == READ_END) {
            prompt(chat, "\n");
            break;
        }
        ok = result == READ_LINE && handle_entry(chat, &entry, is_quoted, &leaves, &problem);
        bool stopped = log_cancelled(&cli->log, NULL);
        bool is_last = *cli->stop_signal == SIGTERM || (was_stopped && result == READ_INTERRUPTED) ||
                       (result == READ_FAILED && !entry.failed) || problem.code == ERR_IO;
        if (!chat->is_interactive || is_last) {
            if (!ok)
                *e = problem;
            if (!chat->is_interactive || !ok)
                continue;
        }
        if (stopped) {
            if (result == READ_INTERRUPTED)
                prompt(chat, "\n");
            prompt(chat, result == READ_INTERRUPTED ? "(Ctrl-C again leaves)\n"
                         : ok                       ? "(stopped; Ctrl-C again leaves)\n"
                              : "(stopped before the answer began; the message is gone)\n");
        } else if (!ok) {
            fprintf(stderr, "%s: error: %s\n", cli->program, problem.msg);
        }
        *cli->stop_signal = 0;
        was_stopped = stopped;
        ok = true;
    }
    buf_fini(&entry);
    return ok;
}
