/* One turn of a chat: a line from the user, a question to the user, a message and its answer. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>
#include "cli/chat.h"

void chat_prompt(const struct chat *chat, const char *text)
{
    if (chat->is_interactive) {
        fputs(text, stderr);
        fflush(stderr);
    }
}

enum line_result chat_read_line(struct chat *chat, const char *prompt_text, struct buf *out, struct err *e)
{
    char *line = NULL;
    size_t capacity = 0;
    enum line_result result = LINE_READ;
    if (chat->editor) {
        result = line_editor_read(chat->editor, prompt_text, out, e);
        goto done;
    }
    chat_prompt(chat, prompt_text);
    errno = 0;
    ssize_t n = getline(&line, &capacity, stdin);
    if (n < 0 && log_cancelled(&chat->cli->log, e)) {
        clearerr(stdin);
        result = LINE_INTERRUPTED;
    } else if (n < 0 && ferror(stdin)) {
        err_set_errno(e, "stdin: can't read");
        result = LINE_FAILED;
    } else if (n < 0) {
        result = LINE_END;
    } else {
        if (chat->is_interactive && n >= TERMINAL_LINE_BYTES)
            chat->is_cut = true;
        if (n > 0 && line[n - 1] == '\n')
            n--;
        if (n > 0 && line[n - 1] == '\r')
            n--;
        buf_append(out, line, (size_t)n);
    }
done:
    if (result == LINE_READ && out->failed) {
        err_set(e, ERR_LIMIT, "a message of more than %zu bytes", MESSAGE_BYTES_MAX);
        result = LINE_FAILED;
    }
    free(line);
    return result;
}

bool chat_ask(struct chat *chat, const char *question, bool *yes, struct err *e)
{
    struct buf line;
    buf_init(&line, 1 << 16);
    enum line_result result = chat_read_line(chat, question, &line, e);
    *yes = result == LINE_READ && line.p && (line.p[0] == 'y' || line.p[0] == 'Y');
    buf_fini(&line);
    if (result != LINE_READ)
        chat_prompt(chat, "\n");
    return result != LINE_FAILED;
}

static void show_status(struct chat *chat)
{
    bool is_terminal = isatty(STDERR_FILENO) == 1 && isatty(STDOUT_FILENO) == 1;
    if (!chat->stats && !(is_terminal && chat->cli->log.level >= LOG_INFO))
        return;
    const mk_chat_stats s = chat_stats(chat);
    struct buf line;
    buf_init(&line, 1024);
    chat_put_stats(chat, &s, &line);
    bool dim = is_terminal && chat->printer.has_color;
    fprintf(stderr, "%s[%s]%s\n", dim ? "\033[2m" : "", line.p, dim ? "\033[0m" : "");
    buf_fini(&line);
}

/* After an answer, or none: was it the user at the terminal who stopped it? */
static bool after_answer(struct chat *chat, bool ok, struct err *e)
{
    struct cli *cli = chat->cli;
    bool stopped = log_cancelled(&cli->log, NULL);
    if (ok)
        show_status(chat);
    if (stopped && !(chat->is_interactive && *cli->stop_signal == SIGINT))
        return err_set(e, ERR_CANCELLED, "interrupted");
    return ok;
}

/* text NULL: another answer to the last message. */
static bool answer(struct chat *chat, const char *text, size_t bytes, struct err *e)
{
    mk_error *error = NULL;
    const mk_call *call = client_call_begin(&chat->call, chat->cli, NULL, true);
    mk_status status = text ? mk_chat_say(chat->chat, text, bytes, chat_on_event, chat, call, &error)
                            : mk_chat_again(chat->chat, chat_on_event, chat, call, &error);
    client_call_end(&chat->call);
    bool ok = client_take(status, &error, e);
    if (!ok && chat->printer.failed)
        *e = chat->printer.problem;
    return after_answer(chat, ok, e);
}

bool chat_say(struct chat *chat, const char *text, size_t bytes, struct err *e)
{
    return answer(chat, text, bytes, e);
}

bool chat_again(struct chat *chat, struct err *e)
{
    return answer(chat, NULL, 0, e);
}
