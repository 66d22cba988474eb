/* What the family files share: the list of families, tensors as weights, RoPE settings and tables,
 * descriptions. */
#ifndef MILKIT_ARCH_FAMILY_H
#define MILKIT_ARCH_FAMILY_H

#include "arch/arch.h"

#define ARCH_FAMILY(symbol) extern const struct arch_family arch_##symbol;
#define ARCH_DECODER(symbol, prefix, split, types, ...) ARCH_FAMILY(symbol)
#include "arch/families.def"
#undef ARCH_FAMILY
#undef ARCH_DECODER

/* ---- tensors ---- */

/* Tensors are asked for by their plain names, "model.layers.0....", whatever stands in front in the files. */
/* See checkpoint_has. */
bool arch_has_tensor(const struct arch_model *m, const char *name);
/* See checkpoint_require; the tensor is marked as used, as those of the next two functions are. */
const struct st_tensor *arch_require_tensor(struct arch_model *m, const char *name, int rank,
                                            const int64_t *shape, struct err *e);
/* See decoder_find_layer. */
bool arch_find_layer(struct arch_model *m, int64_t layer, unsigned parts, const int64_t sizes[DECODER_SIZES],
                     const struct st_tensor *out[DECODER_TENSORS], struct err *e) MUST_CHECK;
/* Finds m->ends, of m's sizes; see decoder_find_ends. */
bool arch_find_ends(struct arch_model *m, bool is_tied, struct err *e) MUST_CHECK;
/* An fp16 weight of this shape: elements of the tensor in their order from `begin` on. */
const struct mil_value *arch_weight(struct mil_model *out, const struct st_tensor *t, int64_t begin, int rank,
                                    const int64_t *dims);

enum arch_transform {
    ARCH_KEEP,
    ARCH_KEEP_REST, /* what fp16 loses of x */
    ARCH_ONE_PLUS,
    ARCH_ONE_PLUS_REST, /* what fp16 loses of 1 + x */
    ARCH_MINUS_EXP      /* -exp(x) */
};

/* Where the numbers of a weight [rows, columns] lie. Rows come in blocks of row_block, columns in blocks of
 * column_block; inside a block, rows are row_stride apart and columns touch. With one tensor, blocks are
 * row_block_stride and column_block_stride apart; with several, each block (of columns where there are
 * several, else of rows) has a tensor of its own. */
struct arch_layout {
    const struct st_tensor *const *tensors;
    int64_t n_tensors, rows, columns;
    int64_t offset; /* of the first number, in every tensor */
    int64_t row_block, row_block_stride, row_stride;
    int64_t column_block, column_block_stride;
    /* Rows [n_replaced] that hold the numbers of row `replacement`. Only of one tensor in its own order. */
    const int64_t *replaced;
    int n_replaced;
    int64_t replacement;
    enum arch_transform transform;
    double factor;  /* of what the transformation gives */
    bool keep_fp16; /* see struct mil_weight */
};
/* One tensor in its own order. */
struct arch_layout arch_layout_of(const struct st_tensor *const *tensor, int64_t rows, int64_t columns);
const struct mil_value *arch_layout_weight(struct mil_model *out, const struct arch_layout *layout, int rank,
                                           const int64_t *dims); /* copies layout */
/* A whole tensor as [n], kept in fp16; NULL for NULL, as in the next two. */
const struct mil_value *arch_vector(struct mil_model *out, const struct st_tensor *t,
                                    enum arch_transform how);
const struct mil_value *arch_scaled_vector(struct mil_model *out, const struct st_tensor *t,
                                           enum arch_transform how, double factor);
/* A whole tensor [O, I] times a factor as the [O, I, 1, 1] of a convolution. */
const struct mil_value *arch_linear(struct mil_model *out, const struct st_tensor *t, double factor);

/* A layer's tensors as weights: vectors and linears, NULL for what is not there; those that stand where the residual stream
 * is left or entered have arch_stream_factor. */
void arch_layer_values(const struct arch_model *m, struct mil_model *out,
                       const struct st_tensor *const tensors[DECODER_TENSORS],
                       const struct mil_value *values[DECODER_TENSORS]);

/* ---- the residual stream's scale (settings.residual_scale) ----
 *
 * Everything that is added to the stream is multiplied by it: the embeddings, and what a half of a layer gives, by the gain
 * of the norm behind it or, without one, by the projection's weight and bias. Norms undo it: they read the stream with
 * arch_stream_epsilon, so heads and the insides of layers know nothing of it. */
/* Of a layer's tensor; tensors: all of the layer. */
double arch_stream_factor(const struct arch_model *m, const struct st_tensor *const tensors[DECODER_TENSORS],
                          enum decoder_tensor t);
/* Of a norm that reads the stream. */
double arch_stream_epsilon(const struct arch_model *m, double epsilon);

/* ---- norms (norms.c) ---- */

/* Gains as they are: m->note says so when the numbers of these norms (of all layers; what: their name) are around 0, where
 * trained gains are not. */
bool arch_check_gains(struct arch_model *m, const char *what, const struct st_tensor *const *norms, int64_t n,
                      struct err *e) MUST_CHECK;
/* The same of the two norms in front of every layer's halves. first: layer 0's tensors [DECODER_TENSORS]; layer_bytes: from one
 * layer's to the next one's. */
bool arch_check_layer_norms(struct arch_model *m, const struct st_tensor *const *first, size_t layer_bytes,
                            struct err *e) MUST_CHECK;
/* Gains minus one. *holds_one: the 1 is in them already, as files for MLX have it, which say so in their metadata or
 * have is_mlx_layout (then m->note does, too). Numbers and file that contradict each other are refused. */
bool arch_read_centred(struct arch_model *m, const struct st_tensor *const *norms, int64_t n,
                       bool is_mlx_layout, bool *holds_one, struct err *e) MUST_CHECK;

/* ---- rotary embedding ---- */

struct arch_rope {
    int64_t n_pairs;
    float *inverse_frequency; /* [n_pairs] */
    double attention_factor;  /* multiplies cos and sin; 1 but for yarn and longrope */
};
/* All types of config_get_rope. ERR_UNSUPPORTED where the context is longer than the frequencies hold for. */
bool arch_read_rope(struct arch_model *m, int64_t head_dim, const struct config_rope_keys *keys,
                    struct arch_rope *out, struct err *e) MUST_CHECK;
/* The same where the first head_dim * partial_rotary_factor dimensions turn. *rotary_dim: how many, an even number. */
bool arch_read_partial_rope(struct arch_model *m, int64_t head_dim, const struct config_rope_keys *keys,
                            int64_t *rotary_dim, struct arch_rope *out, struct err *e) MUST_CHECK;
/* Frequencies theta^(-2i / dim) / stretch of the pairs i < n_pairs. */
void arch_set_rope(struct arch_model *m, double theta, double stretch, int64_t dim, int64_t n_pairs,
                   struct arch_rope *out);
/* fp16 [rows, n_pairs]: row p holds cos or sin of p * inverse_frequency. r must outlive the model. */
const struct mil_value *arch_rope_table(struct mil_model *out, const struct arch_rope *r, bool is_sine,
                                        int64_t rows);

/* ---- description ---- */

struct mil_feature arch_array_feature(struct mil_model *out, const char *name, enum mil_dtype d, int rank,
                                      const int64_t *shape);
struct mil_feature arch_state_feature(struct mil_model *out, const char *name, int rank,
                                      const int64_t *shape);
/* One int32 or fp16 array with these shapes to choose from, the first one being the default. */
struct mil_feature arch_enumerated_feature(struct mil_model *out, const char *name, enum mil_dtype d,
                                           int rank, const int64_t *const *shapes, int n_shapes);
/* Texts of the description; pairs are copied and sorted by key. */
void arch_describe(struct mil_model *out, const char *short_description, const struct mil_text_pair *pairs,
                   int n_pairs);
/* A chunk's description and metadata: functions infer and prefill with the four inputs, the fifth one where
 * m->per_layer_inputs says so, and these states. */
struct arch_state {
    const char *name;
    int rank;
    int64_t shape[4];
};
/* rotates: infer_rotate and prefill_rotate as well */
void arch_describe_chunk(const struct arch_model *m, int i_chunk, const struct arch_state *states,
                         int n_states, bool rotates, struct mil_model *out);
/* The sizes of the head's parts: vocab_size div n, plus one for the first (vocab_size mod n). */
int64_t arch_head_part(int64_t vocab_size, int n, int i);

/* ---- whole programs ---- */

/* The caller's view of input_ids -> hidden_states (and per_layer_inputs). */
void arch_describe_embeddings(const struct arch_model *m, struct mil_model *out);
/* Rows [ids] of a table [rows, columns] times a factor; l: its layout, of one tensor. What fp16 loses of the factor is lost
 * for all numbers alike: the table holds what it can of it without rounding, one more factor stands behind the lookup. */
struct mil_var *arch_scaled_rows(struct mil_builder *b, struct mil_model *out, struct arch_layout l,
                                 double factor, struct mil_var *ids, const char *table_name,
                                 const char *name);
/* A lookup in m->ends.embeddings, times m->embedding_factor and the stream's scale. */
bool arch_build_embeddings(struct arch_model *m, struct mil_model *out, struct err *e) MUST_CHECK;
/* split_lm_head products with rows of m->ends.head, capped where m->softcap says so. */
bool arch_build_head(struct arch_model *m, struct mil_model *out, struct err *e) MUST_CHECK;

/* "layers_3_self_attn_q_proj": what ops of a layer are called. */
const char *arch_layer_name(struct mil_builder *b, int64_t layer, const char *what);

/* The inputs of a chunk's function for T tokens. */
struct arch_inputs {
    struct mil_var *hidden_states;    /* fp16 [1, T, hidden_size] */
    struct mil_var *position_ids;     /* int32 [T] */
    struct mil_var *causal_mask;      /* fp16 [1, 1, T, context_length] of 0 and -inf */
    struct mil_var *current_pos;      /* int32 [1]: the first token's position */
    struct mil_var *per_layer_inputs; /* fp16 [1, T, per_layer_inputs]; NULL where the model has none */
};
struct arch_inputs arch_build_inputs(const struct arch_model *m, struct mil_builder *b, int64_t t);
/* Ends a chunk's function, which gives x. */
bool arch_finish_function(struct mil_builder *b, struct mil_var *x, const char *name,
                          struct err *e) MUST_CHECK;

#endif
