/* What a user types at milkit chat: lines, commands, and the history of both. */
#ifndef MILKIT_CLI_CHAT_H
#define MILKIT_CLI_CHAT_H

#include "cli/conversation.h"

struct chat {
    struct conversation conversation;
    bool is_interactive; /* stdin is a terminal */
    bool stats;          /* a status line although stderr is no terminal */
    char *history;       /* path; NULL: none is kept */
};

/* Reads stdin to its end, or /exit. Away from a terminal the first error ends it. ERR_CANCELLED when the user left by
 * Ctrl-C. */
bool chat_repl(struct chat *chat, struct err *e) MUST_CHECK;
/* One message and its answer, and the status line. */
bool chat_say(struct chat *chat, const char *text, size_t bytes, struct err *e) MUST_CHECK;
bool chat_again(struct chat *chat, struct err *e) MUST_CHECK;

/* line: "/name arguments". *leaves is set by /exit. */
bool chat_command(struct chat *chat, const char *line, bool *leaves, struct err *e) MUST_CHECK;

/* $XDG_STATE_HOME/milkit/history or ~/.local/state/milkit/history, a heap string; NULL without either. */
char *chat_history_path(void);
/* Appends an entry; the file is the user's alone and stays below a megabyte. Trouble is told once and then history ends. */
void chat_history_add(struct chat *chat, const char *text, size_t bytes);
/* The newest n entries to stderr. */
bool chat_history_show(const struct chat *chat, int64_t n, struct err *e) MUST_CHECK;

#endif
