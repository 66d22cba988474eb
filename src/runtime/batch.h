/* One token each for several sessions of one model, for less than one session after another costs: weights are read once for
 * all of them. Every session gets the bits that it gets alone. */
#ifndef MILKIT_RUNTIME_BATCH_H
#define MILKIT_RUNTIME_BATCH_H

#include "runtime/session.h"

/* The workspace of up to n_most sessions; one caller at a time. */
struct batch;
bool batch_new(struct batch **out, struct model *m, int n_most, struct err *e) MUST_CHECK;
void batch_free(struct batch *b); /* accepts NULL */
int batch_most(const struct batch *b);

struct batch_member {
    struct session *session; /* of the batch's model; each once */
    int32_t id;
    bool has_failed;  /* out */
    struct err error; /* then: as session_feed's */
};
/* Appends each member's token; logits are those after it. members [n], n <= batch_most. A member that fails or is stopped (by its
 * own session_set_stop) is as after a session_feed that failed, the others go on. False: one of them failed. */
bool batch_step(struct batch *b, struct batch_member *members, int n);

/* A workspace for n sessions that nobody uses, or a new one; and back. The model keeps some; any thread may call. */
bool batch_take(struct batch **out, struct model *m, int n, struct err *e) MUST_CHECK;
void batch_give_back(struct batch *b);

#endif
