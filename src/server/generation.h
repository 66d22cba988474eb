/* One choice of a job on its way: the next token from logits, its text, and the events that come of it. */
#ifndef MILKIT_SERVER_GENERATION_H
#define MILKIT_SERVER_GENERATION_H

#include "server/job.h"
#include "server/vocabulary_bytes.h"

struct generation;
/* NULL on failure, with an event that says so. */
struct generation *generation_new(struct job *j, int choice, const mk_package *p,
                                  const struct vocabulary_bytes *v, const struct grammar_vocabulary *sorted);
void generation_free(struct generation *g); /* accepts NULL */
/* The prompt has been computed; of its tokens `reused` were known. */
void generation_begin(struct generation *g, size_t reused, double prompt_seconds, double wait_seconds);
/* Chooses a token. True: *id comes next. False: the choice has ended (or failed), the events are out. */
bool generation_step(struct generation *g, const float *logits, int32_t *id);
/* The context has no room for the token that was chosen last. */
void generation_end_context(struct generation *g);
void generation_fail(struct generation *g, mk_error *error);
long long generation_count(const struct generation *g);

#endif
