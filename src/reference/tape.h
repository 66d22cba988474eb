/* Reverse mode: what a layer did is recorded, and walked back.
 *
 * Every number of a session's memory (what reference_take gave) has an adjoint, the derivative of the loss by it at the moment
 * that the walk has reached. A primitive that is taped notes where it read and wrote, and what its backward needs of
 * the values, which later primitives overwrite; its backward turns the adjoints behind it into those before it: what it wrote
 * over has the adjoint zero then, what it read has got its share. So families need no backward of their own: a layer's is
 * that of its primitives in reverse.
 *
 * A layer's tape is made while the layer is computed a second time, for one text, so memory holds one layer of one text.
 * Gradients of matrices are not kept at all: a sink gets them row by row.
 */
#ifndef MILKIT_REFERENCE_TAPE_H
#define MILKIT_REFERENCE_TAPE_H

#include "reference/reference_internal.h"

/* Values go through it backwards; which fields mean what is the business of the functions that fill and read them. */
struct reference_record {
    void (*backward)(struct reference_session *s, const struct reference_record *r);
    const float *in, *out;          /* places in the session's memory */
    const float *kept, *kept_other; /* values as they were */
    const int32_t *indices;
    const struct st_tensor *whole;
    const void *own;
    int64_t n, width, stride, count;
    float number;
};

struct reference_tape {
    struct reference_record *list;
    int n;
    size_t capacity;
    void **blocks; /* [n_blocks]: memory of what is kept */
    size_t n_blocks, blocks_capacity;
    const float *last_from, *last_kept; /* the last copy that was made, and where from */
    size_t last_n;
    float *scratch; /* [threads, scratch_per_thread] */
    int64_t scratch_per_thread;
    const struct reference_gradient_sink *sink;
    struct err error; /* the first one; what is recorded after it is not walked */
};

/* Gives all of the session's memory adjoints, zeros, and the session a tape that is not recording yet. */
bool reference_tape_new(struct reference_session *s, struct err *e) MUST_CHECK;
void reference_tape_free(struct reference_tape *t); /* accepts NULL */
/* From here on primitives are recorded. */
void reference_tape_begin(struct reference_session *s, const struct reference_gradient_sink *sink);
/* Recording ends; all records are walked back and forgotten. */
bool reference_tape_walk(struct reference_session *s, struct err *e) MUST_CHECK;

/* ---- for primitives ---- */

/* The adjoints of memory that begins at p. */
float *reference_adjoint(const struct reference_session *s, const float *p);
struct reference_record *reference_record_add(struct reference_session *s,
                                              void (*backward)(struct reference_session *s,
                                                               const struct reference_record *r));
/* Copies that live as long as the tape; NULL when memory is short, which ends the walk. Numbers that are the same as those of
 * the call before share its copy. */
const float *reference_keep(struct reference_session *s, const float *p, int64_t n);
const int32_t *reference_keep_indices(struct reference_session *s, const int32_t *p, int64_t n);
/* Memory of the tape, not set. */
void *reference_keep_room(struct reference_session *s, size_t bytes);
/* Memory of one thread for a backward. */
static inline float *reference_tape_scratch(const struct reference_session *s, int i_thread)
{
    return s->tape->scratch + i_thread * s->tape->scratch_per_thread;
}

/* ---- products (backward_linear.c) ---- */

#define REFERENCE_QUAD 4
#define REFERENCE_TILE 16
#define REFERENCE_GIVEN_ROWS 64   /* of a gradient, at a time */
#define REFERENCE_WEIGHT_ROWS 128 /* of a matrix, at a time: as many are summed in float32 */
#define REFERENCE_WEIGHT_COLUMNS 256
/* Numbers of scratch: of a gradient's rows, of the tiles and quads of what is multiplied. */
static inline int64_t reference_linear_scratch(int64_t batch, int64_t max_columns)
{
    int64_t for_weight = (REFERENCE_GIVEN_ROWS + REFERENCE_TILE) * batch +
                         REFERENCE_GIVEN_ROWS * (max_columns + REFERENCE_TILE);
    int64_t for_input = REFERENCE_WEIGHT_ROWS * (batch + REFERENCE_QUAD) +
                        (REFERENCE_WEIGHT_ROWS + 1) * REFERENCE_WEIGHT_COLUMNS;
    return for_weight > for_input ? for_weight : for_input;
}

/* y [n, rows] = x [n, columns] times rows first_row .. first_row + n_rows of a matrix, transposed. */
struct reference_product_back {
    const struct st_tensor *whole; /* the tensor of the file, which the matrix may be a part of */
    int64_t first, rows, columns;  /* first: element of the tensor where the rows begin */
    const float *x, *dy;           /* x [n, columns], dy [n, rows] */
    float *dx;                     /* [n, columns], added to; NULL: not wanted */
    int64_t n;
};
/* dx += dy W; tells the tape's sink of dy^T x. */
void reference_linear_back(struct reference_session *s, const struct reference_product_back *p,
                           const char *name);

/* ---- records of the primitives, called where s->tape is recording, before values change ---- */

void reference_record_linear(struct reference_session *s, const struct st_tensor *weight,
                             const struct st_tensor *whole, int64_t first, const float *x, int64_t n,
                             float *y);
void reference_record_gather(struct reference_session *s, const struct st_tensor *table, const int32_t *ids,
                             int64_t n, float *to);
void reference_record_norm(struct reference_session *s, const float *x, const float *weight, int64_t n,
                           int64_t dim, float eps, float *y);
void reference_record_turn(struct reference_session *s, float *rows, int64_t n, int64_t n_heads,
                           int64_t head_dim, int64_t n_pairs, const float *cosines, const float *sines);
void reference_record_add_rows(struct reference_session *s, float *x, const float *y, int64_t n);
void reference_record_scale(struct reference_session *s, float *x, int64_t n, float factor);
void reference_record_store(struct reference_session *s, const float *rows, int64_t n, int64_t n_heads,
                            int64_t head_dim, float *cache);
void reference_record_attend(struct reference_session *s, const struct reference_attention *a);
void reference_record_gate(struct reference_session *s, const struct reference_gate *g);
void reference_record_copy(struct reference_session *s, const float *from, int64_t n, int64_t width,
                           int64_t stride, float *to);
void reference_record_clear(struct reference_session *s, float *x, int64_t n);
void reference_record_pick(struct reference_session *s, const float *from, const int32_t *rows, int64_t n,
                           int64_t width, float *to);
void reference_record_add_picked(struct reference_session *s, const struct reference_picked *p);
/* Afterwards: probability and weight [n, c->n] of the logits that were in place of weight. */
void reference_record_choose(struct reference_session *s, const struct config_experts *c,
                             const float *probability, const float *weight, int64_t n);

/* The derivative of an activation at x. */
double reference_slope(enum reference_activation a, double x);

#endif
