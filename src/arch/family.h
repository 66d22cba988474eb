/* What the family files share: the list of families, tensors as weights, RoPE settings and tables,
 * descriptions. */
#ifndef MILKIT_ARCH_FAMILY_H
#define MILKIT_ARCH_FAMILY_H

#include "arch/arch.h"

extern const struct arch_family arch_qwen3, arch_qwen3_5, arch_gemma4;

/* ---- tensors ---- */

/* Tensors are asked for by their plain names, "model.layers.0....", whatever stands in front in the files. */
/* See checkpoint_has. */
bool arch_has_tensor(const struct arch_model *m, const char *name);
/* The tensor, marked as used; missing, misshapen or of a type that can't become fp16: NULL with a message
 * that names file, tensor, expected and found. */
const struct st_tensor *arch_require_tensor(struct arch_model *m, const char *name, int rank,
                                            const int64_t *shape, struct err *e);
/* An fp16 weight of this shape: elements of the tensor in their order from `begin` on. */
const struct mil_value *arch_weight(struct mil_model *out, const struct st_tensor *t, int64_t begin, int rank,
                                    const int64_t *dims);

enum arch_transform {
    ARCH_KEEP,
    ARCH_KEEP_REST, /* what fp16 loses of x */
    ARCH_HALVE,
    ARCH_ONE_PLUS,
    ARCH_ONE_PLUS_REST, /* what fp16 loses of 1 + x */
    ARCH_MINUS_EXP,     /* -exp(x) */
    ARCH_SCALE
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
    double factor;  /* of ARCH_SCALE */
    bool keep_fp16; /* see struct mil_weight */
};
/* One tensor in its own order. */
struct arch_layout arch_layout_of(const struct st_tensor *const *tensor, int64_t rows, int64_t columns);
const struct mil_value *arch_layout_weight(struct mil_model *out, const struct arch_layout *layout, int rank,
                                           const int64_t *dims); /* copies layout */
/* A whole tensor as [n], kept in fp16; NULL for NULL. */
const struct mil_value *arch_vector(struct mil_model *out, const struct st_tensor *t,
                                    enum arch_transform how);
/* A whole tensor [O, I] as the [O, I, 1, 1] of a convolution. */
const struct mil_value *arch_linear(struct mil_model *out, const struct st_tensor *t,
                                    enum arch_transform how);

/* ---- norms (norms.c) ---- */

/* Gains as they are: m->note says so when the numbers of these norms (of all layers; what: their name) are around 0, where
 * trained gains are not. */
bool arch_check_gains(struct arch_model *m, const char *what, const struct st_tensor *const *norms, int64_t n,
                      struct err *e) MUST_CHECK;
/* Gains minus one. *holds_one: the 1 is in them already, as files for MLX have it, which say so in their metadata or
 * have is_mlx_layout (then m->note does, too). Numbers and file that contradict each other are refused. */
bool arch_read_centred(struct arch_model *m, const struct st_tensor *const *norms, int64_t n,
                       bool is_mlx_layout, bool *holds_one, struct err *e) MUST_CHECK;

/* ---- configuration ---- */

/* A positive size: absent keeps *value; ERR_FORMAT outside 1 .. max. */
bool arch_get_size(const struct arch_model *m, const cJSON *object, const char *key, int64_t max,
                   int64_t *value, struct err *e) MUST_CHECK;
/* "CHECKPOINT/config.json", in the model's arena: where messages point. */
const char *arch_config_path(const struct arch_model *m);

/* ---- rotary embedding ---- */

struct arch_rope {
    int64_t n_pairs;
    float *inverse_frequency; /* [n_pairs] */
    double attention_factor;  /* multiplies cos and sin; 1 but for YaRN */
};
/* Reads both spellings (rope_scaling and rope_theta; rope_parameters), types "default" and "yarn". */
bool arch_read_rope(struct arch_model *m, int64_t head_dim, struct arch_rope *out, struct err *e) MUST_CHECK;
/* The same where the first head_dim * partial_rotary_factor dimensions turn, a factor that is not given being
 * default_factor. *rotary_dim: how many, an even number. */
bool arch_read_partial_rope(struct arch_model *m, int64_t head_dim, double default_factor,
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
void arch_describe_chunk(const struct arch_model *m, int i_chunk, const struct arch_state *states,
                         int n_states, struct mil_model *out);
/* The sizes of the head's parts: vocab_size div n, plus one for the first (vocab_size mod n). */
int64_t arch_head_part(int64_t vocab_size, int n, int i);

/* ---- whole programs ---- */

/* The caller's view of input_ids -> hidden_states (and per_layer_inputs). */
void arch_describe_embeddings(const struct arch_model *m, struct mil_model *out);
/* A plain lookup in [vocab_size, hidden_size]. */
bool arch_build_embeddings(struct arch_model *m, const struct st_tensor *table, struct mil_model *out,
                           struct err *e) MUST_CHECK;
/* split_lm_head products with rows of [vocab_size, hidden_size]. */
bool arch_build_head(struct arch_model *m, const struct st_tensor *weight, struct mil_model *out,
                     struct err *e) MUST_CHECK;
/* The same with cap * tanh(logits / cap); cap 0: none. */
bool arch_build_capped_head(struct arch_model *m, const struct st_tensor *weight, double cap,
                            struct mil_model *out, struct err *e) MUST_CHECK;

#endif
