/* Does a tokenizer fit a model? Its ids, and the stop ids that configs name, must be rows of the vocabulary. */
#ifndef MILKIT_RUNTIME_VOCABULARY_H
#define MILKIT_RUNTIME_VOCABULARY_H

#include "base/log.h"
#include "runtime/package.h"

/* Tokens of the model in a folder, by meta.yaml, else config.json; 0 when neither says. */
int64_t vocabulary_of_folder(const char *folder);
/* Warns of a tokenizer with more ids than the vocabulary has. vocab_size 0: unknown. */
void vocabulary_check_tokenizer(struct log *l, const char *where, const struct tokenizer *t,
                                int64_t vocab_size);
/* Warns of stop ids of the package beyond the vocabulary. */
void vocabulary_check_stops(struct log *l, const struct package *p, int64_t vocab_size);
/* Both for a package that was just written, which need not be complete; and whether its tokenizer can be read. */
void vocabulary_check_written(struct log *l, const char *folder);
/* Ids that t gave for a text: each must be one of the model's. */
bool vocabulary_check_ids(const struct tokenizer *t, const char *where, int64_t vocab_size,
                          const int32_t *ids, size_t n, struct err *e) MUST_CHECK;
/* Appends the ids of a text, with the post-processor's tokens (bos); each must be one of the model's. */
bool vocabulary_encode(const struct tokenizer *t, const char *where, int64_t vocab_size, const char *text,
                       size_t bytes, struct ids *out, struct err *e) MUST_CHECK;

#endif
