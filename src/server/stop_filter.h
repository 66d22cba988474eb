/* Stop strings in a text that comes in pieces: what might be the begin of one waits, so that nothing of it is given out. */
#ifndef MILKIT_SERVER_STOP_FILTER_H
#define MILKIT_SERVER_STOP_FILTER_H

#include "base/buf.h"

struct stop_filter {
    char *const *strings; /* [n], not empty; the caller's */
    size_t n;
    struct buf held;
};
void stop_filter_init(struct stop_filter *f, char *const *strings, size_t n);
void stop_filter_fini(struct stop_filter *f);
/* Appends to out what can't be part of a stop string. The index of the string that was found, or -1; behind it nothing more comes. Of
 * several the one that begins first counts, of those that begin together the shortest. */
int stop_filter_push(struct stop_filter *f, const char *text, size_t n, struct buf *out);
/* The text ends: what waited is text, as far as there is no stop string in it. As above. */
int stop_filter_finish(struct stop_filter *f, struct buf *out);

#endif
