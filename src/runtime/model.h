/* A loaded package: mapped models and their plans. Immutable after opening; sessions run on it.
 *
 * Opening maps and plans, nothing is expanded: milliseconds whatever the size.
 */
#ifndef MILKIT_RUNTIME_MODEL_H
#define MILKIT_RUNTIME_MODEL_H

#include "base/log.h"
#include "engine/engine.h"
#include "runtime/package.h"

struct model_options {
    int n_threads; /* 0: all processors */
    enum engine_precision precision;
    /* The chunks also return what each layer leaves, for session_watch. Changes no result. */
    bool watch_layers;
    double
        deadline; /* of clock_seconds: opening and running stop then, as for the log's cancel flag; 0: none */
    struct log *log;
};

/* A layer whose residual stream a chunk returns. */
struct model_watch {
    int64_t layer;
    int i_infer, i_prefill; /* outputs of the chunk's plans; i_prefill -1 without a prefill */
};

struct model_part {
    struct mil_model *mil;
    struct engine_plan *infer, *prefill; /* prefill NULL: the part has none (head) */
    int n_watches;
    struct model_watch *watches; /* of chunks with watch_layers; rising layers */
};

struct model {
    struct package *package;
    struct pool *pool;
    const struct kernels *kernels;
    struct model_part embeddings, head, *chunks;
    int n_chunks;
    struct stop stop;                       /* asked by all plans and runs */
    struct engine_state_forms *state_forms; /* of the states that the chunks share */
    int64_t context_length;                 /* positions that can be used */
    int64_t mask_length;                    /* columns of causal_mask */
    int64_t batch_size;
    int64_t vocab_size;
    int64_t hidden_size;
    int64_t per_layer_width; /* of the embeddings' second output, which every chunk takes; 0: there is none */
    bool has_prefill;
    enum engine_precision precision;
    /* Recurrent states or windowed caches (whatever meta.yaml says: a state that is no cache of the whole context):
     * every position once and in order, never a rewind but by a snapshot. */
    bool is_sequential;
    int n_logits;       /* outputs of the head */
    int *logits_output; /* [n_logits]: output index of logits1 .. logitsN */
};

bool model_open(struct model **out, const char *path, const struct model_options *options,
                struct err *e) MUST_CHECK;
void model_close(struct model *m); /* accepts NULL */

#endif
