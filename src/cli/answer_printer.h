/* An answer on its way to stdout: content, thinking set apart, tool calls. */
#ifndef MILKIT_CLI_ANSWER_PRINTER_H
#define MILKIT_CLI_ANSWER_PRINTER_H

#include "base/buf.h"
#include "milkit.h"

struct answer_printer {
    bool is_terminal, has_color, shows_thinking;
    enum { PRINTED_NOTHING, PRINTED_THINKING, PRINTED_CONTENT } state;
    char last; /* byte printed */
    bool failed;
    struct err problem; /* of the first write that failed */
};

/* Looks at stdout and NO_COLOR. */
void answer_printer_init(struct answer_printer *p, bool show_thinking);
void answer_printer_begin(struct answer_printer *p);
void answer_printer_put(struct answer_printer *p, const mk_chat_event *event);
void answer_printer_end(struct answer_printer *p); /* ends the line */
/* Everything, whatever signals come meanwhile. */
bool answer_write(const char *text, size_t n, struct err *e) MUST_CHECK;

#endif
