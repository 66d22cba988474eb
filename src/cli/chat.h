/* What a user types at milkit chat: lines, commands, and the history of both. */
#ifndef MILKIT_CLI_CHAT_H
#define MILKIT_CLI_CHAT_H

#include "cli/answer_printer.h"
#include "cli/client.h"
#include "cli/line_editor.h"
#include "cli/sampling.h"

#define MESSAGE_BYTES_MAX ((size_t)64 << 20)

/* What a terminal without an editor hands over of a line; it drops the rest without a word. */
#define TERMINAL_LINE_BYTES 4095

struct chat {
    struct cli *cli;
    const mk_package *package;
    mk_chat *chat;           /* its events go to the printer and the log */
    struct client_call call; /* that is running */
    struct answer_printer printer;
    struct sampling sampling;
    int64_t max_tokens;         /* of an answer; negative: until the context is full */
    const char *think;          /* "auto", "on", "off" */
    bool is_interactive;        /* stdin is a terminal */
    bool stats;                 /* a status line although stderr is no terminal */
    char *history;              /* path; NULL: none is kept */
    struct line_editor *editor; /* NULL: lines come as stdin hands them over */
    /* The entry being handled was not taken: it comes back to be edited, where there is an editor. */
    bool returns_entry;
    bool is_cut; /* the terminal may have dropped the end of the entry */
};

/* Reads stdin to its end, or /exit. Away from a terminal the first error ends it. ERR_CANCELLED when the user left by
 * Ctrl-C. */
bool chat_repl(struct chat *chat, struct err *e) MUST_CHECK;
/* An mk_chat_fn; context: a struct chat. */
bool chat_on_event(void *context, const mk_chat_event *event);
/* "prompt: ..; answer: ..; context: ..", of the last answer, without a newline. */
void chat_put_stats(const struct chat *chat, const mk_chat_stats *s, struct buf *out);
mk_chat_stats chat_stats(const struct chat *chat);
/* One message and its answer, and the status line. */
bool chat_say(struct chat *chat, const char *text, size_t bytes, struct err *e) MUST_CHECK;
bool chat_again(struct chat *chat, struct err *e) MUST_CHECK;

/* Shows the text where stdin is a terminal. */
void chat_prompt(const struct chat *chat, const char *text);
/* One line without its end, appended to out; a pasted text of several lines is one, where there is an editor. */
enum line_result chat_read_line(struct chat *chat, const char *prompt_text, struct buf *out,
                                struct err *e) MUST_CHECK;
/* A question to the user at the terminal; anything but a y, Ctrl-C too, is a no. */
bool chat_ask(struct chat *chat, const char *question, bool *yes, struct err *e) MUST_CHECK;

/* line: "/name arguments". *leaves is set by /exit. What is not a command is an error and returns the entry. */
bool chat_command(struct chat *chat, const char *line, bool *leaves, struct err *e) MUST_CHECK;

/* $XDG_STATE_HOME/milkit/history or ~/.local/state/milkit/history, a heap string; NULL without either. */
char *chat_history_path(void);
/* Appends an entry; the file is the user's alone and stays below a megabyte. Trouble is told once and then history ends. */
void chat_history_add(struct chat *chat, const char *text, size_t bytes);
/* Gives the editor all entries. */
void chat_history_recall(struct chat *chat);
/* The newest n entries to stderr. */
bool chat_history_show(const struct chat *chat, int64_t n, struct err *e) MUST_CHECK;

#endif
