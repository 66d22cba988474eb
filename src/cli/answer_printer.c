/* Thinking is dimmed on a terminal; elsewhere it is shown only when asked for, between <think> and </think>. Bytes are
 * written at once and piece by piece dimmed, so that the terminal is in order whenever the program ends.
 */
#include "cli/answer_printer.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/terminal.h"

#define DIM "\033[2m"
#define PLAIN "\033[0m"
#define PIECE_BYTES_MAX ((size_t)256 << 20)

void answer_printer_init(struct answer_printer *p, bool show_thinking)
{
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    *p = (struct answer_printer){.is_terminal = isatty(STDOUT_FILENO) == 1};
    p->has_color = p->is_terminal && !(no_color && no_color[0]) && !(term && strcmp(term, "dumb") == 0);
    p->shows_thinking = p->is_terminal || show_thinking;
}

bool answer_write(const char *text, size_t n, struct err *e)
{
    while (n > 0) {
        ssize_t written = write(STDOUT_FILENO, text, n);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return err_set_errno(e, "stdout: can't write");
        text += written;
        n -= (size_t)written;
    }
    return true;
}

static void print(struct answer_printer *p, const char *text, size_t n, bool is_dim)
{
    struct buf out;
    if (n == 0 || p->failed)
        return;
    buf_init(&out, PIECE_BYTES_MAX);
    if (is_dim && p->has_color)
        buf_puts(&out, DIM);
    if (p->is_terminal)
        terminal_append(&out, text, n);
    else
        buf_append(&out, text, n);
    if (is_dim && p->has_color)
        buf_puts(&out, PLAIN);
    p->last = text[n - 1];
    if (out.failed)
        p->failed = !err_set(&p->problem, ERR_LIMIT, "a piece of an answer of %zu bytes", n);
    else
        p->failed = !answer_write(out.p, out.n, &p->problem);
    buf_fini(&out);
}

static void print_string(struct answer_printer *p, const char *text, bool is_dim)
{
    print(p, text, strlen(text), is_dim);
}

static void enter(struct answer_printer *p, bool is_thinking)
{
    if (is_thinking && p->state != PRINTED_THINKING) {
        if (p->state == PRINTED_CONTENT && p->last != '\n')
            print_string(p, "\n", false);
        if (!p->has_color)
            print_string(p, "<think>\n", false);
        p->state = PRINTED_THINKING;
    } else if (!is_thinking && p->state != PRINTED_CONTENT) {
        if (p->state == PRINTED_THINKING) {
            if (p->last != '\n')
                print_string(p, "\n", false);
            print_string(p, p->has_color ? "\n" : "</think>\n\n", false);
        }
        p->state = PRINTED_CONTENT;
    }
}

void answer_printer_begin(struct answer_printer *p)
{
    p->state = PRINTED_NOTHING;
    p->last = '\0';
}

void answer_printer_put(struct answer_printer *p, const mk_chat_event *event)
{
    bool is_thinking = event->kind == MK_CHAT_REASONING;
    if (is_thinking && !p->shows_thinking)
        return;
    enter(p, is_thinking);
    if (event->kind == MK_CHAT_TOOL_CALL) {
        if (p->last != '\n' && p->last != '\0')
            print_string(p, "\n", false);
        print_string(p, "[tool call] ", true);
        print_string(p, event->name, true);
        print_string(p, " ", true);
        print(p, event->text, event->n, true);
        print_string(p, "\n", false);
    } else {
        print(p, event->text, event->n, is_thinking);
    }
}

void answer_printer_end(struct answer_printer *p)
{
    if (p->state == PRINTED_THINKING && !p->has_color)
        print_string(p, p->last == '\n' ? "</think>" : "\n</think>", false);
    if (p->last != '\n')
        print_string(p, "\n", false);
}
