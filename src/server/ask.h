/* What a request for text asks for, read from the fields that the APIs share, on the way to a job. */
#ifndef MILKIT_SERVER_ASK_H
#define MILKIT_SERVER_ASK_H

#include "server/fields.h"
#include "server/models.h"

/* How APIs name and limit the same things. */
struct ask_names {
    const char *max_tokens[3]; /* in the order in which they count; NULL behind the last */
    const char *stop;
    double temperature_most;
};

struct ask {
    struct model *model;
    struct job_options job;
    bool is_stream, wants_usage, wants_log, wants_timings;
    double ping_seconds; /* negative: none */
    struct buf sampling; /* the settings so far, without the closing brace */
};

/* Takes the model that the request names. */
bool ask_begin(struct ask *a, struct models *m, const struct fields *f) MUST_CHECK;
void ask_end(struct ask *a, struct models *m);
/* "stream" and "stream_options". */
bool ask_read_stream(struct ask *a, const struct fields *f) MUST_CHECK;
/* Sampling, limits, stop strings, biases, seed, n. */
bool ask_read_sampling(struct ask *a, const struct fields *f, const struct ask_names *names) MUST_CHECK;
/* Sets the prompt, which the ask then owns; it must leave room for an answer. */
bool ask_set_prompt(struct ask *a, int32_t *ids, size_t n, struct problem *p) MUST_CHECK;
/* ids of a text on the heap. flags: MK_SPECIAL. */
bool ask_tokenize(const struct ask *a, const char *text, size_t bytes, uint32_t flags, int32_t **ids,
                  size_t *n, struct problem *p) MUST_CHECK;
/* The job, of which the ask no longer owns anything, handed to the scheduler. The caller's reference. NULL: p says why not. */
struct job *ask_submit(struct ask *a, struct problem *p);

#endif
