/* Text that a package writes itself: what its model's inputs are like where nobody gives a text. */
#ifndef MILKIT_MEASURE_SELF_TEXT_H
#define MILKIT_MEASURE_SELF_TEXT_H

#include "base/log.h"
#include "tokenizer/tokenizer.h"

/* Tokens of one text, so long as the package's context is. */
#define SELF_TEXT_TOKENS 512

/* Appends texts of n_text tokens, at most n_tokens together, several at a time: a first token by chance, then sampling at temperature 1
 * from all tokens, ends of text like any other. The same ids for any number of threads and any processor. */
bool self_text_write(struct ids *out, const char *package, int64_t n_tokens, int64_t n_text, int n_threads,
                     struct log *log, struct err *e) MUST_CHECK;

#endif
