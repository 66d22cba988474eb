/* UTF-8: strict validation, decoding, and the replacement of broken bytes.
 *
 * "Broken" follows the Unicode standard's maximal subparts (table 3-7), as Python's decode(errors="replace") and
 * Rust's from_utf8_lossy do: each maximal prefix of a well-formed sequence, or else one byte, becomes one U+FFFD.
 */
#ifndef MILKIT_BASE_UTF8_H
#define MILKIT_BASE_UTF8_H

#include "base/buf.h"

#define UTF8_REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* Longest prefix of s that is well-formed. */
size_t utf8_valid_prefix(const char *s, size_t n);
/* One step at s (n > 0). Well-formed: its length (1..4), *cp filled. Broken: minus the length of the maximal
 * subpart (-1..-3). 0: the n bytes are a proper prefix of a well-formed sequence, more bytes could complete it. */
int utf8_step(const char *s, size_t n, uint32_t *cp);
/* Length of the character at s, which must be well-formed, and its code point. */
size_t utf8_next(const char *s, uint32_t *cp);
/* Start of the character that ends at s[at] (at > 0); s must be well-formed. */
size_t utf8_back(const char *s, size_t at);
/* Appends s with every broken part replaced by U+FFFD. */
void utf8_append_lossy(struct buf *out, const char *s, size_t n);
/* Like utf8_append_lossy, but leaves a cut-off last sequence alone: returns the bytes that were consumed. */
size_t utf8_append_lossy_whole(struct buf *out, const char *s, size_t n);
/* Writes cp (a scalar value) to out[4]; returns the length. */
size_t utf8_put(char *out, uint32_t cp);

#endif
