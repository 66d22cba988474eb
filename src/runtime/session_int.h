/* Internals of the session, for session*.c, snapshot.c and batch.c. */
#ifndef MILKIT_RUNTIME_SESSION_INT_H
#define MILKIT_RUNTIME_SESSION_INT_H

#include "runtime/model_identity.h"
#include "runtime/batch_rows.h"
#include "runtime/session.h"

/* The chunks' runs of one function, wired from one to the next. */
struct lane_runs {
    struct backend_run **chunks; /* [n_chunks]; NULL: the package has no such function */
    int i_last_output;           /* of the last chunk: output_hidden_states; -1 in a monolithic model */
};

/* What calls of one number of tokens share, and the runs of the functions that take it. */
struct lane {
    int64_t n_tokens;               /* 1 or the batch size */
    struct backend_run *embeddings; /* NULL in a monolithic package */
    struct lane_runs plain, rotating;
    const struct lane_runs *newest; /* those of the newest call */
    int32_t *ids, *positions,
        *current_pos;      /* [n_tokens], [n_tokens], [1]; ids are the embeddings' own where there are any */
    float *mask;           /* [n_tokens, mask_length] */
    int64_t mask_position; /* first row's position that mask stands for; -1: none */
    float *update_mask;    /* [mask_length, n_tokens]: 1 where a token's row is; NULL: nobody asks */
    int64_t update_position; /* the first token's position that it stands for; -1: all zeros */
    const float *hidden;     /* the embeddings' rows */
};

struct session {
    struct model *model;
    struct backend_states *states;
    struct lane infer, prefill;
    struct backend_run *head; /* NULL in a monolithic package */
    int i_head_input;
    /* Batches whose rows all give logits; made when they are first asked for. */
    bool asked_for_rows;
    struct batch_rows *rows;   /* NULL: this package can't */
    struct lane_runs all_rows; /* the prefill's runs, but for the last chunk's */
    struct backend_run *row_norm, *row_head;
    float *normed;    /* [batch_size, hidden_size] */
    struct stop stop; /* the model's, or with the flags of session_set_stop; asked by all runs */
    float *logits;    /* [vocab_size] */
    int32_t *tokens;  /* [context_length]: what the context holds */
    int64_t n;
    bool has_logits;
    struct snapshot *snapshots; /* of the sequential kind: the one used last first */
    uint64_t snapshot_bytes, snapshot_bytes_max;
    int64_t snapshot_tokens;
    bool has_identity; /* of the model, for files; made when the first one is read or written */
    struct model_identity identity;
    session_watch_fn watch;
    void *watch_context;
};

/* session.c, for batch.c. One call of a lane in pieces: its inputs for tokens [n_tokens] at the current position; what the
 * context holds afterwards; and, when chunk i_chunk failed, the way back (false, e with the place). */
void session_fill_lane(struct session *s, struct lane *l, const int32_t *tokens);
void session_advance(struct session *s, const struct lane *l, const int32_t *tokens);
bool session_chunk_failed(struct session *s, int i_chunk, struct err *e);
/* The logits out of a run of the head, or of a monolithic model's (rotating) function. */
bool session_take_logits(struct session *s, struct backend_run *run, bool rotating, struct err *e);

/* What can't be recomputed from the live caches: recurrent states and windowed caches at one position, with the
 * logits there. Rows of full-length caches before that position stay in place as long as the tokens before it are
 * those of the session, which is what makes a snapshot valid. */
struct snapshot {
    struct snapshot *next;
    int64_t n; /* tokens before it: the first n of the session */
    uint64_t bytes;
    bool has_logits;
    float *logits;
    int n_states;
    void **states; /* NULL for full-length caches */
};

/* A cache whose rows before a position stay what they are when later positions are written. */
bool state_is_full_length(const struct session *s, const struct backend_state *state);

/* Parts of a state in each of which the first rows belong to the first positions: planes of a full-length cache, else 1. */
size_t state_planes(const struct session *s, const struct backend_state *state);
/* Bytes that n tokens have of a state in all its parts: all of it, where it is not a full-length cache. */
size_t state_kept_bytes(const struct session *s, const struct backend_state *state, size_t n_tokens);

/* Takes a snapshot at the current position (none when one is there); old ones go when memory is over the limit. */
void snapshot_take(struct session *s);
/* Takes one when a regular place was passed since `before`. */
void snapshot_take_regular(struct session *s, int64_t before);
/* Drops those that a change of the token at position n makes wrong: all with more than n tokens. */
void snapshot_drop_after(struct session *s, int64_t n);
/* Goes to the longest snapshot with more than `above` and at most n tokens (exactly n of them: only with logits, when
 * `with_logits`); false: there is none. An `above` of 0 takes one of 0 tokens too. */
bool snapshot_restore(struct session *s, int64_t above, int64_t n, bool with_logits);
/* Drops those used longest ago until `bytes` more fit under the limit. */
void snapshot_make_room(struct session *s, uint64_t bytes);
void snapshot_drop_all(struct session *s);

#endif
