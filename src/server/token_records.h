/* Which tokens a piece of text is made of, with their probabilities: a token is told of when its text is out. */
#ifndef MILKIT_SERVER_TOKEN_RECORDS_H
#define MILKIT_SERVER_TOKEN_RECORDS_H

#include "server/job.h"
#include "server/vocabulary_bytes.h"

struct token_records {
    const struct vocabulary_bytes *vocabulary;
    int n_top; /* -1: no probabilities */
    bool is_wanted;
    struct token_record *tokens; /* [n], with the ends of their text: SIZE_MAX where it has not come yet */
    size_t *ends;
    size_t n, capacity, ends_capacity;
    size_t n_text, n_released; /* bytes of text that came, and that is out */
};
void token_records_init(struct token_records *r, const struct vocabulary_bytes *v, int n_top, bool wants_ids);
void token_records_fini(struct token_records *r);
/* A token was chosen from logits. */
void token_records_add(struct token_records *r, int32_t id, const float *logits);
/* n bytes of text came of it. */
void token_records_text(struct token_records *r, size_t n);
/* n bytes more are out. */
void token_records_release(struct token_records *r, size_t n);
/* No more text comes; is_cut: what was not released never will be. */
void token_records_finish(struct token_records *r, bool is_cut);
bool token_records_are_ready(const struct token_records *r);
/* Moves those whose text is out to the event. */
void token_records_take(struct token_records *r, struct event *e);

#endif
