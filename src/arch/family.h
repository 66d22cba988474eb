/* What the family files share: the list of families, tensors as weights, RoPE settings and tables,
 * descriptions. */
#ifndef MILKIT_ARCH_FAMILY_H
#define MILKIT_ARCH_FAMILY_H

#include "arch/arch.h"

extern const struct arch_family arch_qwen3;

/* ---- tensors ---- */

/* NULL when the checkpoint has no such tensor. */
const struct st_tensor *arch_find_tensor(struct arch_model *m, const char *name);
/* The tensor, marked as used; missing, misshapen or of a type that can't become fp16: NULL with a message
 * that names file, tensor, expected and found. */
const struct st_tensor *arch_require_tensor(struct arch_model *m, const char *name, int rank,
                                            const int64_t *shape, struct err *e);
/* An fp16 weight of this shape: elements of the tensor in their order from `begin` on. */
const struct mil_value *arch_weight(struct mil_model *out, const struct st_tensor *t, int64_t begin, int rank,
                                    const int64_t *dims);

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
/* The sizes of the head's parts: vocab_size div n, plus one for the first (vocab_size mod n). */
int64_t arch_head_part(int64_t vocab_size, int n, int i);

#endif
