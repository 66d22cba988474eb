/* What the families of the reference share: tensors and settings of the checkpoint, the plain float32 maths,
 * and the session. */
#ifndef MILKIT_REFERENCE_REFERENCE_INTERNAL_H
#define MILKIT_REFERENCE_REFERENCE_INTERNAL_H

#include "base/cpu.h"
#include "base/pool.h"
#include "base/ranges.h"
#include "format/checkpoint_source.h"
#include "format/config.h"
#include "format/decoder.h"
#include "format/safetensors.h"
#include "reference/reference.h"

/* Tokens that share one pass over the weights, but for probes. */
#define REFERENCE_BATCH 128

struct reference_family {
    const char *name;
    const char *const *model_types; /* of config.json; ends with NULL */
    const void *traits;             /* of a plain decoder: decoder.c's; else NULL */
    /* Reads the settings and finds the tensors; fills the public sizes of r and parts->own. */
    bool (*open)(struct reference *r, struct err *e);
    /* Makes s->own (cache and work space) for s->capacity positions and calls of up to s->batch tokens. */
    bool (*session_open)(struct reference_session *s, struct err *e);
    /* The layer forgets all tokens. NULL: what a layer remembers is written before it is read. */
    void (*layer_reset)(struct reference_session *s, int64_t layer);
    /* layer is in range; false: it has no such state. */
    bool (*session_state)(const struct reference_session *s, int64_t layer, enum reference_state_kind kind,
                          struct reference_state *out);
    bool shares_layers; /* a layer may read what another one has remembered of the same text */
    /* n <= s->batch tokens at s->position, in three steps: their embeddings to s->stream (and whatever depends
     * on tokens and positions alone), layer after layer on s->stream, the final norm's rows to s->hidden. */
    void (*embed)(struct reference_session *s, const int32_t *tokens, int64_t n);
    void (*layer)(struct reference_session *s, int64_t i_layer, int64_t n);
    void (*finish)(struct reference_session *s, int64_t n);
};
#define REFERENCE_FAMILY(symbol) extern const struct reference_family reference_##symbol;
#define REFERENCE_DECODER(symbol, types, ...) REFERENCE_FAMILY(symbol)
#include "reference/families.def"
#undef REFERENCE_FAMILY
#undef REFERENCE_DECODER

typedef float (*reference_dot_fn)(const float *a, const float *b, int64_t n);
/* out [REFERENCE_DOTS]: the same of each of the rows a [REFERENCE_DOTS, n] */
typedef void (*reference_dots_fn)(const float *a, const float *b, int64_t n, float *out);

struct reference_parts {
    struct arena *arena;
    struct checkpoint_source *source;
    char *config_path;
    cJSON *config_file;
    struct config config; /* what the file holds */
    struct safetensors *tensors;
    struct checkpoint_names *names; /* of the tensors */
    struct pool *pool;
    reference_dot_fn dot; /* of the instruction set in use */
    reference_dots_fn dots;
    struct log *log;
    const struct reference_family *family;
    struct decoder_ends ends;
    bool fp16_constants;     /* see reference_options */
    float softcap;           /* logits are softcap * tanh(product / softcap); 0: the products */
    int64_t positions_limit; /* of a session: beyond it angles change with the length of the text; 0: none */
    int64_t max_columns;     /* of any weight that reference_linear gets */
    void *own;               /* the family's */
};

struct reference_tape;

/* Memory of a session. */
struct reference_taken {
    float *p, *adjoint; /* [n]; adjoint: with a tape (tape.h), else NULL */
    size_t n;
};

struct reference_session {
    struct reference *reference;
    struct arena *arena;           /* for what the family keeps */
    struct reference_taken *taken; /* [n_taken]: see reference_take */
    size_t n_taken, taken_capacity;
    int64_t capacity, position, batch;
    float *stream, *hidden; /* [batch, hidden_size]: the residual stream, and what the final norm leaves */
    float *rows;            /* [n_threads, REFERENCE_ROWS, max_columns]: weight rows as float32 */
    float *logits;          /* [n_logits_rows, vocab_size] */
    int64_t n_logits_rows;
    const float *last_logits;
    reference_watch_fn watch;
    void *watch_context;
    struct reference_recall *recall;                 /* of a probe; NULL: every product is computed */
    const struct reference_replacement *replacement; /* of a probe; NULL: the checkpoint's numbers */
    reference_input_fn show_input;                   /* of inputs.c; NULL: nobody looks */
    void *show_context;
    struct reference_tape *tape;     /* that primitives write down in; NULL: none does */
    struct reference_tape *own_tape; /* of a session for gradients; NULL: there is none */
    struct reference_input input;    /* of the text, for those who look */
    bool is_stopped;                 /* nobody needs what products give: zeros do */
    void *own;                       /* the family's */
};
/* batch: the most tokens of one call */
bool reference_session_make(struct reference_session **out, struct reference *r, int64_t n_positions,
                            int64_t batch, struct err *e) MUST_CHECK;
/* Every token is one of the vocabulary, else ERR_USAGE. */
bool reference_check_tokens(const struct reference *r, const int32_t *tokens, size_t n,
                            struct err *e) MUST_CHECK;
void reference_show(struct reference_session *s, int64_t layer, int64_t n, const float *rows);

/* ---- settings and tensors (reference.c) ---- */

/* See config_get_size; of the text settings. */
bool reference_get_size(const struct reference *r, const char *key, int64_t max, int64_t *value,
                        struct err *e) MUST_CHECK;
/* Tensors are asked for by their plain names, "model.layers.0....", whatever stands in front in the files. */
/* A weight of shape [rows, columns], or a vector [rows] when columns is 0. See checkpoint_require. */
bool reference_require(struct reference *r, const char *name, int64_t rows, int64_t columns,
                       const struct st_tensor **out, struct err *e) MUST_CHECK;
/* The same for any shape. */
bool reference_require_shape(struct reference *r, const char *name, int rank, const int64_t *shape,
                             const struct st_tensor **out, struct err *e) MUST_CHECK;
/* The same for a vector, as float32 in the arena. */
bool reference_require_vector(struct reference *r, const char *name, int64_t n, const float **out,
                              struct err *e) MUST_CHECK;
/* Finds parts->ends, of r's sizes; *norm [hidden_size] is the final norm's weight as float32 in the arena. See
 * decoder_find_ends. */
bool reference_find_ends(struct reference *r, bool is_tied, const float **norm, struct err *e) MUST_CHECK;
/* A layer's tensors, see decoder_find_layer: matrices stay where they are, vectors become float32 in the arena. NULL for
 * what the layer does not have. */
struct reference_layer {
    const struct st_tensor *matrix[DECODER_TENSORS];
    const float *vector[DECODER_TENSORS];
};
bool reference_find_layer(struct reference *r, int64_t layer, unsigned parts,
                          const int64_t sizes[DECODER_SIZES], struct reference_layer *out,
                          struct err *e) MUST_CHECK;
/* A constant of the model, rounded to fp16 where the options ask for that. */
float reference_constant(const struct reference *r, double v);
/* Zeroed floats a * b * c, freed with mem_free; sizes are checked. */
bool reference_alloc(float **out, int64_t a, int64_t b, int64_t c, struct err *e) MUST_CHECK;
/* The same, released with the session. */
bool reference_take(struct reference_session *s, float **out, int64_t a, int64_t b, int64_t c,
                    struct err *e) MUST_CHECK;

/* ---- numbers of a weight (elements.c) ---- */

/* Elements begin .. begin + n of a weight as float32. */
void reference_read_elements(const struct st_tensor *t, int64_t begin, int64_t n, float *dst);
/* Where a weight's numbers lie: a tensor of the file, of which the weight may be a view, and its first element there. */
void reference_locate(const struct reference *r, const struct st_tensor *weight,
                      const struct st_tensor **whole, int64_t *first);

/* ---- mixtures of experts (experts.c) ---- */

/* Three matrices of down(silu(gate x) * up x). */
struct reference_gated {
    const struct st_tensor *gate, *up, *down;
};
struct reference_experts {
    const struct st_tensor *router;
    struct reference_gated *each; /* [n]; views of packed tensors when the checkpoint packs them */
};
/* Rows are tokens of a batch. */
struct reference_experts_work {
    float *gate, *up;              /* [batch, the widest gated block] */
    float *probabilities, *weight; /* [batch, n] */
    float *picked, *result;        /* [batch, hidden_size]: the tokens of one expert */
    int32_t *rows;                 /* [batch]: which they are */
};
/* NAME.gate_proj.weight and so on */
bool reference_find_gated(struct reference *r, const char *name, int64_t size, struct reference_gated *g,
                          struct err *e) MUST_CHECK;
bool reference_find_experts(struct reference *r, int64_t layer, const struct config_experts *c,
                            struct reference_experts *x, struct err *e) MUST_CHECK;
bool reference_experts_take(struct reference_session *s, const struct config_experts *c, int64_t widest,
                            struct reference_experts_work *w, struct err *e) MUST_CHECK;
/* y [n, hidden_size] of rows x */
void reference_gated_run(struct reference_session *s, const struct reference_gated *g,
                         struct reference_experts_work *w, const float *x, int64_t n, float *y);
/* out [n, hidden_size] of normed rows h */
void reference_experts_run(struct reference_session *s, const struct config_experts *c,
                           const struct reference_experts *x, struct reference_experts_work *w,
                           const float *h, int64_t n, float *out);

/* ---- rotary embedding (rope.c) ---- */

struct reference_rope {
    int64_t n_pairs;
    float *inverse_frequency; /* [n_pairs] */
    float attention_factor;   /* on cos and sin */
    bool is_fp16;             /* cos and sin are rounded to fp16 */
    int64_t positions_limit;  /* beyond it frequencies change with the length of the text; 0: never */
};
/* Settings of config.json for a head of dim numbers, all of which turn. */
bool reference_rope_read(struct reference *r, int64_t dim, const struct config_rope_keys *keys,
                         struct reference_rope *out, struct err *e) MUST_CHECK;
/* The first dim * partial_rotary_factor numbers turn, an even number. */
bool reference_rope_read_partial(struct reference *r, int64_t dim, const struct config_rope_keys *keys,
                                 struct reference_rope *out, struct err *e) MUST_CHECK;
/* The same as reference_rope_read from any config object, for tests; memory of arena. */
bool reference_rope_parse(const struct config *config, int64_t dim, const struct config_rope_keys *keys,
                          struct arena *arena, struct reference_rope *out, struct err *e) MUST_CHECK;
/* cos and sin [n_pairs] of a position. */
void reference_rope_row(const struct reference_rope *rope, int64_t position, float *cosines, float *sines);
/* The same for n positions from `position` on: [n, n_pairs]. */
void reference_rope_rows(const struct reference_rope *rope, int64_t position, int64_t n, float *cosines,
                         float *sines);
/* Turns pair i = (x[i], x[i + n_pairs]) in place. */
void reference_rope_turn(float *x, int64_t n_pairs, const float *cosines, const float *sines);
/* Turns each head of each token: rows [n, n_heads, head_dim]; cosines, sines [n, n_pairs]. */
void reference_rope_turn_heads(struct reference_session *s, float *rows, int64_t n, int64_t n_heads,
                               int64_t head_dim, int64_t n_pairs, const float *cosines, const float *sines);

/* ---- maths (maths.c) ----
 *
 * Functions that get a session are primitives: a tape writes them down, and each has a backward (backward.c and its like). What
 * they write lies in memory of the session. */

#define REFERENCE_ROWS 16 /* of a weight, as float32 in a cache while all tokens go by */
#define REFERENCE_DOTS 4

/* y [n, rows] = x [n, columns] times the transposed weight [rows, columns], plus bias [rows] (may be NULL).
 */
void reference_linear(struct reference_session *s, const struct st_tensor *weight, const float *bias,
                      const float *x, int64_t n, float *y);
/* y [n, n_rows] of some rows of a weight alone; not a primitive. */
void reference_linear_rows(struct reference_session *s, const struct st_tensor *weight, int64_t first_row,
                           int64_t n_rows, const float *x, int64_t n, float *y);

/* ---- who looks (recall.c) ---- */

/* Tells s->show_input of a product, when the weight's numbers stand together in a tensor of the checkpoint. */
void reference_show_input(struct reference_session *s, const struct st_tensor *weight, const float *x,
                          int64_t n);

/* ---- products that are known (recall.c) ---- */

/* A product of the first run. x is shared with the one before when that had the same rows. */
struct reference_product {
    const struct st_tensor *weight;
    float *x, *y;
    int64_t n;
    bool owns_x;
};

struct reference_recall {
    struct reference_product *list;
    int n;
    size_t capacity;
    bool is_first_run;
};
void reference_recall_forget(struct reference_recall *k);
/* y of the first run, when weight and x are the same as then. */
bool reference_recall_find(const struct reference_recall *k, const struct st_tensor *weight, const float *x,
                           int64_t n, float *y);
/* During the first run: notes y, where memory suffices. */
void reference_recall_keep(struct reference_recall *k, const struct st_tensor *weight, const float *x,
                           int64_t n, const float *y);
/* dst [n, columns] = rows of a table; ids are in range. */
void reference_gather(struct reference_session *s, const struct st_tensor *table, const int32_t *ids,
                      int64_t n, float *dst);
/* x[i] += y[i] */
void reference_add(struct reference_session *s, float *x, const float *y, int64_t n);
/* x[i] *= factor */
void reference_scale(struct reference_session *s, float *x, int64_t n, float factor);
void reference_clear(struct reference_session *s, float *x, int64_t n);
/* to [n, width] = rows that lie `stride` apart */
void reference_copy(struct reference_session *s, const float *from, int64_t n, int64_t width, int64_t stride,
                    float *to);
/* y = x / sqrt(mean(x^2) + eps) * weight (NULL: 1) for each of n rows; y may be x. */
void reference_rms_norm(struct reference_session *s, const float *x, const float *weight, int64_t n,
                        int64_t dim, float eps, float *y);
/* gelu: its tanh form */
enum reference_activation { REFERENCE_SILU, REFERENCE_GELU, REFERENCE_SIGMOID };
float reference_silu(float x);
/* out [n, width] = act(gate) * x, row by row; out may be either where that has no gaps. */
struct reference_gate {
    enum reference_activation act;
    const float *gate, *x;         /* x NULL: ones */
    int64_t gate_stride, x_stride; /* numbers from row to row */
    int64_t n, width;
    float *out;
};
void reference_gate(struct reference_session *s, const struct reference_gate *g);
/* Row rows[k] of to [.., width] += weight[rows[k] * stride] * row k of from [n, width]; rows NULL: the first n. */
struct reference_picked {
    const float *from, *weight;
    const int32_t *rows;
    int64_t n, width, stride;
    float *to;
};
void reference_add_picked(struct reference_session *s, const struct reference_picked *p);
/* to [n, width] = rows of from */
void reference_pick(struct reference_session *s, const float *from, const int32_t *rows, int64_t n,
                    int64_t width, float *to);
reference_dot_fn reference_dot_for(enum cpu_level level);
reference_dots_fn reference_dots_for(enum cpu_level level);

/* Causal attention of n queries at position .. position + n - 1 over keys and values [n_kv, capacity, dim],
 * which hold those positions already. query and output [n, n_heads, dim]; scores [n_threads, capacity]. */
struct reference_attention {
    const float *query, *keys, *values;
    float *scores, *output;
    int64_t n, position, capacity;
    int64_t window; /* keys that a query sees, its own with them; 0: all */
    int64_t n_heads, n_kv_heads, dim;
    float scale;
};

/* A session's rows for the attention of its widest layer; rows are tokens of a batch. */
struct reference_rows {
    float *q, *output; /* [batch, n_heads * head_dim] */
    float *k, *v;      /* [batch, n_kv_heads * head_dim] */
    float *scores;     /* [n_threads, capacity] */
};
/* width: n_heads * head_dim, kv_width: n_kv_heads * head_dim */
bool reference_rows_take(struct reference_session *s, struct reference_rows *rows, int64_t width,
                         int64_t kv_width, struct err *e) MUST_CHECK;

/* The heads of one layer. */
struct reference_heads {
    int64_t n, n_kv, dim;
    int64_t window; /* as in reference_attention */
    float scale;
};
/* Rows k and v of the n newest tokens to their positions in the caches keys and values [n_kv, capacity, dim]. */
void reference_store_rows(struct reference_session *s, const struct reference_rows *rows,
                          const struct reference_heads *heads, int64_t n, float *keys, float *values);
/* output = attention of the queries q of the n newest tokens, whose keys and values the caches hold already. */
void reference_attend(struct reference_session *s, const struct reference_rows *rows,
                      const struct reference_heads *heads, int64_t n, float *keys, float *values);

#endif
