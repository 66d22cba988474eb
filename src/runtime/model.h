/* A loaded package: mapped models and their plans. Immutable after opening; sessions run on it.
 *
 * Opening maps and plans, nothing is expanded: milliseconds whatever the size.
 */
#ifndef MILKIT_RUNTIME_MODEL_H
#define MILKIT_RUNTIME_MODEL_H

#include "base/log.h"
#include "runtime/backend.h"
#include "runtime/package.h"

struct model_options {
    int n_threads;     /* 0: all processors */
    struct pool *pool; /* to use, and which outlives the model; NULL: one of its own, of n_threads */
    enum model_precision precision;
    const char *emulation;         /* of struct backend_options */
    const char *backend_name;      /* of backends.def; NULL: the first one that there is */
    const char *compute_units;     /* of struct backend_options */
    const struct backend *backend; /* one that is in no list, instead; may be NULL */
    /* The chunks also return what each layer leaves, for session_watch, and how large values get is watched, for model_range.
     * Changes no result. */
    bool watch_layers;
    double
        deadline; /* of clock_seconds: opening and running stop then, as for the log's cancel flag; 0: none */
    /* Parts that lie there in both forms are read in the other one (package_take_other_form). */
    bool other_form;
    struct log *log;
};

/* The functions of a chunk that this runtime calls: one token or a batch; the rotating ones where the position of the
 * call's first token is rotate_from or more. */
enum model_function { MODEL_INFER, MODEL_PREFILL, MODEL_INFER_ROTATE, MODEL_PREFILL_ROTATE, MODEL_FUNCTIONS };

/* A layer whose residual stream a chunk returns. */
struct model_watch {
    int64_t layer;
    int outputs[MODEL_FUNCTIONS]; /* of the chunk's functions; -1: there is no such function */
};

struct model_part {
    struct mil_model *mil;
    struct mil_model *second; /* a chunk's functions can be in two files; NULL: they are in one */
    /* NULL: the part has none. Embeddings: by the number of tokens; head: MODEL_INFER alone. */
    struct backend_function *functions[MODEL_FUNCTIONS];
    int n_watches;
    struct model_watch *watches; /* of chunks with watch_layers; rising layers */
};

/* The outputs of one function that make the logits. */
struct model_logits {
    int *outputs; /* [n_logits]: logits1 .. logitsN; NULL where the best of each part is all that is given */
    int index, value; /* then: argmax_idx and argmax_val [n_logits] */
};

struct model {
    struct package *package;
    struct pool *pool;
    bool owns_pool;
    struct batch_store *batches; /* workspaces for steps of several sessions */
    const struct backend *backend;
    struct backend_package *shared; /* by all functions */
    const char *device;             /* what computes: "avx512" */
    struct model_part embeddings, head, *chunks;
    int n_chunks;
    struct stop stop; /* asked by all functions and runs */
    /* The only chunk takes token ids and gives logits; embeddings and head are empty, hidden_size is 0. */
    bool is_monolithic;
    int64_t context_length; /* positions that can be used */
    int64_t mask_length;    /* columns of causal_mask */
    int64_t batch_size;
    int64_t vocab_size;
    int64_t hidden_size;
    int64_t per_layer_width; /* of the embeddings' second output, which every chunk takes; 0: there is none */
    bool has_prefill;
    bool prefill_gives_last; /* prefill returns the last token's final row */
    /* First position of the rotating functions: what they leave can't be rewound; INT64_MAX: there are none. */
    int64_t rotate_from;
    enum model_precision precision;
    char *emulation; /* NULL: the defaults of the precision */
    /* Recurrent states or windowed caches (whatever meta.yaml says: a state that is no cache of the whole context):
     * positions from once_from on are computed once and in order, never rewound but by a snapshot. 0: all positions;
     * rotate_from with rotating functions; INT64_MAX: plain caches. */
    int64_t once_from;
    bool is_sequential; /* once_from is not INT64_MAX */
    /* The head names the best token of each part of the vocabulary and its value; all other logits are unknown, and
     * given as minus infinity: greedy choice is exact, nothing else is possible. */
    bool gives_best_only;
    int n_logits;        /* parts of the vocabulary */
    int64_t *part_begin; /* [n_logits + 1]: first id of each part; the last is the vocabulary's size */
    struct model_logits logits[MODEL_FUNCTIONS]; /* of the head, or of a monolithic model's infer functions */
};

bool model_open(struct model **out, const char *path, const struct model_options *options,
                struct err *e) MUST_CHECK;
void model_close(struct model *m); /* accepts NULL */
/* What was seen so far of values that the programs declare fp16; zeros where nobody watched. */
void model_range(const struct model *m, struct backend_range *out);
/* A cache [.., .., context or more, ..] whose rows stay what they are when later positions are written. */
bool model_is_full_cache(const struct model *m, int rank, const int64_t *dims);
/* ERR_UNSUPPORTED, with the reason, for packages whose heads give only the best token. what: "sampling". */
bool model_need_logits(const struct model *m, const char *what, struct err *e) MUST_CHECK;

#endif
