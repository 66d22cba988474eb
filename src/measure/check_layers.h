/* Where a package leaves its checkpoint: the residual stream behind every layer and the states by name, package against
 * reference. */
#ifndef MILKIT_MEASURE_CHECK_LAYERS_H
#define MILKIT_MEASURE_CHECK_LAYERS_H

#include "base/buf.h"
#include "measure/check_limits.h"
#include "reference/reference.h"
#include "runtime/session.h"

/* One layer over all positions. Of a row: the cosine, the length of the difference relative to the reference's row,
 * and the cosine of what the layer adds to the residual stream, which shows a wrong layer more clearly. */
struct check_layer {
    int64_t n, n_not_finite;
    double min_cosine, sum_cosine, max_error;
    int64_t n_added;
    double min_added, sum_added;
    double added_ab, added_aa; /* of all rows: the package's addition along the reference's */
};

struct check_state {
    char *name; /* of the package's state */
    int64_t layer;
    enum reference_state_kind kind;
    bool is_finite;
    double cosine, error, gain;
};

struct check_layers_found {
    int64_t n_layers;
    struct check_layer *layers; /* [n_layers + 2]: embeddings, layers, final norm */
    char **types;               /* [n_layers] */
    int n_states;
    struct check_state *states;
};

struct check_layers;
/* The model must have been opened with watch_layers. Both are borrowed. */
bool check_layers_new(struct check_layers **out, const struct model *m, struct reference *r,
                      struct err *e) MUST_CHECK;
void check_layers_free(struct check_layers *l); /* accepts NULL */
/* Appends n tokens to both sides; every call of the package is compared as it ends. */
bool check_layers_feed(struct check_layers *l, struct reference_session *r, struct session *s,
                       const int32_t *tokens, size_t n, struct progress *progress, struct err *e) MUST_CHECK;
/* Compares the states as they are now. */
bool check_layers_states(struct check_layers *l, const struct reference_session *r, struct session *s,
                         struct err *e) MUST_CHECK;

const struct check_layers_found *check_layers_found(const struct check_layers *l);
/* Means over the rows; NAN where there are none. The gain is how strong what a layer adds is in the package: 1 where both are
 * the same, 1.5 where the layer is scaled by 1.5, whatever noise coarse weights add to it. */
double check_layer_cosine(const struct check_layer *t);
double check_layer_added(const struct check_layer *t);
double check_layer_gain(const struct check_layer *t);
/* "embeddings" for layer -1, "layer 3 (linear)", "final norm" for n_layers */
void check_layer_name(const struct check_layers_found *l, int64_t layer, char *dst, size_t n);
const char *check_state_name(enum reference_state_kind kind);
/* The layer (-1 .. n_layers) and the state of the lowest cosine; false: no layer was seen. *state NULL: no finite one. */
bool check_layers_worst(const struct check_layers_found *l, int64_t *layer, const struct check_state **state);
/* Sentences (a line each) about what is outside the limits; nothing when all is well. */
void check_layers_judge(const struct check_layers_found *l, const struct check_limits *limits,
                        struct buf *why);

#endif
