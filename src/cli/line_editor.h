/* Lines typed at a terminal, with editing, recall and search of former ones (libedit). A pasted text of several lines is
 * one line with line breaks in it, where the terminal marks what is pasted.
 */
#ifndef MILKIT_CLI_LINE_EDITOR_H
#define MILKIT_CLI_LINE_EDITOR_H

#include "base/buf.h"
#include "base/log.h"

enum line_result { LINE_READ, LINE_END, LINE_INTERRUPTED, LINE_FAILED };

struct line_editor;
/* NULL where stdin and stderr are no terminal, or one that can't move its cursor. log: its cancel flag interrupts a
 * read; borrowed. Takes a UTF-8 LC_CTYPE for the program. */
struct line_editor *line_editor_open(const struct log *log);
void line_editor_close(struct line_editor *l); /* accepts NULL */
/* Appends one line without its end (nor one that ends a paste). LINE_INTERRUPTED: appends what had been
 * typed. */
enum line_result line_editor_read(struct line_editor *l, const char *prompt, struct buf *out, struct err *e);
/* Text that can be recalled from now on; what is not UTF-8 is left out. */
void line_editor_remember(struct line_editor *l, const char *text, size_t bytes);
/* The next line begins with this text, as if it had been typed. */
void line_editor_offer(struct line_editor *l, const char *text, size_t bytes);

#endif
