/* Text from files and models on its way to a terminal: nothing that a terminal obeys gets through.
 *
 * That is: control characters (C0 but for newline and tab, DEL, C1), characters that embed, override or isolate the
 * direction of text (U+202A to U+202E, U+2066 to U+2069), which make a line read otherwise than it is, and bytes that
 * belong to no well-formed UTF-8 character, which terminals in other encodings take for C1.
 */
#ifndef MILKIT_BASE_TERMINAL_H
#define MILKIT_BASE_TERMINAL_H

#include <stdio.h>
#include "base/buf.h"

/* Looks at s (n > 0): returns the bytes of what must not pass, 0 when s begins with a harmless character. *length: of
 * either. */
size_t terminal_unsafe(const char *s, size_t n, size_t *length);
/* Replaces in place, each by '?'; one_line: newlines and tabs, too. Async-signal-safe. */
void terminal_defuse(char *text, bool one_line);
/* Appends text with each of them replaced by U+FFFD. */
void terminal_append(struct buf *out, const char *text, size_t n);
/* Writes a name within a line, with '?' for each of them, newlines and tabs. text may be NULL. */
void terminal_put(FILE *f, const char *text);

#endif
