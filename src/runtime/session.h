/* A session: one timeline of tokens on a model, with its states and workspace. It alone knows the call
 * sequence (full batches through prefill, the rest through infer); callers hand over tokens.
 *
 * Between the programs of a package the residual stream is handed on as float32, so the number of chunks does
 * not change a result. Logits are rounded to fp16 as the package declares.
 */
#ifndef MILKIT_RUNTIME_SESSION_H
#define MILKIT_RUNTIME_SESSION_H

#include "runtime/model.h"

enum session_mode {
    SESSION_CONTRACT,   /* full batches through prefill, the remainder through infer */
    SESSION_INFER_ONLY, /* every token through infer */
    /* As SESSION_CONTRACT, and each token's logits are given, with the bits that infer gives: where the package's programs allow
     * it from the batch, else token by token. */
    SESSION_EACH_TOKEN
};

struct session;
bool session_new(struct session **out, struct model *m, struct err *e) MUST_CHECK;
void session_free(struct session *s); /* accepts NULL */
/* Calls from now on stop for these flags (either may be NULL) instead of the one of the model's log. They must stay valid. */
void session_set_stop(struct session *s, const atomic_int *flag, const atomic_int *also);
/* An empty context. */
void session_reset(struct session *s);
int64_t session_position(const struct session *s); /* tokens in the context */

/* logits [vocab_size] after the token at `position`; borrowed until the next call. false: stop (e filled). */
typedef bool (*session_logits_fn)(void *context, int64_t position, const float *logits, struct err *e);

/* Appends n tokens. on_logits NULL: no logits are computed but for the last token. Otherwise it is called for
 * every position whose logits the mode's call sequence yields: the last of each full batch, and each single
 * token. More tokens than the context holds: ERR_LIMIT with both numbers, nothing is done. After another error
 * session_position says what the context still holds. progress may be NULL.
 * Packages that can't be rewound and whose prefill does not return the last token's row get their last token through
 * infer (its batch is fed one by one), and yield no logits for full batches. */
bool session_feed(struct session *s, const int32_t *tokens, size_t n, enum session_mode mode,
                  session_logits_fn on_logits, void *context, struct progress *progress,
                  struct err *e) MUST_CHECK;
/* Makes the context equal to tokens [n], keeping or restoring the longest common prefix; afterwards session_logits
 * belongs to the last token. n >= 1. *reused: tokens that were not computed again (may be NULL).
 * Packages that can't be rewound go back to a snapshot (kept at the end of each sync, every snapshot_tokens and where
 * prompts part, under the limit of session_limit_snapshots) or start again. Same bits as computing from scratch. */
bool session_sync(struct session *s, const int32_t *tokens, size_t n, struct progress *progress,
                  size_t *reused, struct err *e) MUST_CHECK;
/* The first step of session_sync by itself: the longest known prefix of tokens is kept or restored, and nothing computed. *kept: the tokens
 * that the context then holds; n only with their logits. For callers that feed the rest in pieces. */
bool session_rewind(struct session *s, const int32_t *tokens, size_t n, size_t *kept,
                    struct err *e) MUST_CHECK;
/* Memory for snapshots (default 256 MB, 0: none) and the distance of the regular ones (default 256 tokens). */
void session_limit_snapshots(struct session *s, uint64_t bytes, int64_t every_tokens);
/* The whole state of the session with its snapshots as a file, and back; of a plain cache only the positions in use.
 * A damaged file, or one of another package or of other weights (model_identity.h): ERR_FORMAT, the session is
 * unchanged. Loading forgets what the session held. Snapshots over the limit are left out. */
bool session_save(struct session *s, const char *path, struct err *e) MUST_CHECK;
bool session_load(struct session *s, const char *path, struct err *e) MUST_CHECK;
/* For measuring speed behind a long context: as if tokens [n < context] had been fed, with random numbers in all states and no
 * logits. */
void session_make_up(struct session *s, const int32_t *tokens, size_t n);
/* The tokens in the context, [session_position]; borrowed until the next call. */
const int32_t *session_tokens(const struct session *s);
bool session_has_logits(const struct session *s);
/* [vocab_size] after the last token that was fed. */
const float *session_logits(const struct session *s);
const struct backend_states *session_states(const struct session *s);
/* The state of this name; NULL: the package has none. */
const struct backend_state *session_find_state(const struct session *s, const char *name);
/* The contents of one of session_states as declared, rounded where more is held. dst [n_elems]. */
void session_read_state(const struct session *s, const struct backend_state *state, f16 *dst);
/* What a session holds at one moment, apart from it: any number of sessions of the model can be brought there, in any order. Of
 * plain caches only the positions in use. Immutable; threads may share it. */
struct session_copy;
bool session_copy_new(struct session_copy **out, const struct session *s, struct err *e) MUST_CHECK;
void session_copy_free(struct session_copy *c); /* accepts NULL */
uint64_t session_copy_bytes(const struct session_copy *c);
/* [*n]: the tokens that it stands for. */
const int32_t *session_copy_tokens(const struct session_copy *c, int64_t *n);
/* The session goes on from there, with the same bits as the one that was copied; it must be of the same model. */
void session_copy_restore(const struct session_copy *c, struct session *s);
/* Rows [n, hidden_size] of the residual stream of the tokens from `position` on, in the order of the calls: layer -1 is
 * the embeddings, 0 .. what a layer leaves (of a model opened with watch_layers), SESSION_FINAL_NORM the last
 * token's normed row, where the package returns it. */
#define SESSION_FINAL_NORM INT64_MAX
typedef void (*session_watch_fn)(void *context, int64_t layer, int64_t position, int64_t n,
                                 const float *rows);
/* fn NULL: nobody watches. */
void session_watch(struct session *s, session_watch_fn fn, void *context);
/* Measures the steps of all functions from now on. Only where the backend tells plans. */
void session_measure(struct session *s);
/* Calls f for each function of infer or of prefill, in the order of a call. part: "embeddings", "chunk", "head", or "model" for all of these; i_chunk from 0 on; measured holds the times of session_measure. */
typedef void (*session_function_fn)(void *context, const char *part, int i_chunk, int64_t n_tokens,
                                    const struct backend_function *fn, const struct backend_run *measured);
void session_each_function(const struct session *s, bool prefill, session_function_fn f, void *context);

#endif
