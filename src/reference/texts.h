/* Tokens cut into texts, and the sessions that layers are run on text by text (inputs.c, gradients.c). */
#ifndef MILKIT_REFERENCE_TEXTS_H
#define MILKIT_REFERENCE_TEXTS_H

#include "reference/reference_internal.h"

struct reference_texts {
    struct reference *reference;
    int32_t *tokens;   /* [n] */
    int64_t n, n_text; /* tokens, and of a text: the last one may be shorter */
    struct reference_session **sessions;
    int n_sessions; /* 1, or where layers read keys of others one for each text */
};

/* Copies and checks the tokens, then makes the sessions. What a failure leaves is freed by reference_texts_free. */
bool reference_texts_open(struct reference_texts *t, struct reference *r, const int32_t *tokens, size_t n,
                          size_t n_text, struct err *e) MUST_CHECK;
void reference_texts_free(struct reference_texts *t); /* what is in it */
int64_t reference_text_count(const struct reference_texts *t);
/* Tokens of text i. */
int64_t reference_text_length(const struct reference_texts *t, int64_t i);
/* The session of text i at its beginning, with what depends on tokens and positions. */
struct reference_session *reference_text_begin(const struct reference_texts *t, int64_t i);

#endif
