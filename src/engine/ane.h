/* The Neural Engine's arithmetic, emulated from published measurements (docs/device.md has the sources): what numbers become in sums
 * of products, in elementwise ops and in its tables. For ENGINE_ANE; nothing here is fast but the sums.
 *
 * What is known is the same for M4 and M6. What is not is a named switch of struct ane_model with a default.
 */
#ifndef MILKIT_ENGINE_ANE_H
#define MILKIT_ENGINE_ANE_H

#include <stdint.h>
#include "base/err.h"
#include "kernel/ane_dot.h"

enum ane_sums {
    ANE_SUMS_FIXED, /* 32 bits with 16 behind the point */
    ANE_SUMS_M1,    /* groups of four in fp16, these in float32 */
    ANE_SUMS_EXACT  /* not rounded before the end */
};

struct ane_model {
    enum ane_sums sums;
    bool keeps_small;     /* products of small exponents are rounded like others */
    bool exact_functions; /* no tables */
    bool fp16_norms;      /* softmax and layer_norm round between their pieces */
    bool
        scales_in_weights; /* a row's scale is in its weights; else it is applied to the sum, on an fp16 number */
};

/* "norm=fp16,tables=exact"; NULL, "": the defaults. ERR_USAGE names keys and values. */
bool ane_model_read(struct ane_model *out, const char *text, struct err *e) MUST_CHECK;
/* A number that tells models apart, 0 for the default. */
uint64_t ane_model_number(const struct ane_model *m);
/* All the switches with their values, the default first: for help. */
extern const char ane_model_words[];

/* fp16, halves away from zero; 65520 and more is infinite. */
float ane_round(double v);
/* What an operand is: infinity reads as 65536, NaN as 98304. */
double ane_number(float v);

/* id: enum mil_op_id. */
float ane_unary(const struct ane_model *m, int id, float x, float alpha, float beta);
float ane_binary(int id, float a, float b);

/* ---- sums of products ---- */

/* An operand of ane_dot: xs and least [n] of x [n], a stride apart. */
void ane_prepare(const struct ane_model *m, float *xs, float *least, const float *x, int64_t stride,
                 int64_t n);
/* w as the other operand: copied, numbers that are not finite replaced. */
void ane_copy(float *dst, const float *w, int64_t stride, int64_t n);
/* The result of a sum of whole numbers of 2^-16. */
float ane_sum_result(int64_t sum);
int64_t ane_bias(float bias);
/* One result by the model. dot: ane_dot_select; xs, least: of ane_prepare; w: of ane_copy. scale: NULL, or of the row. */
float ane_product(const struct ane_model *m, ane_dot_fn dot, const float *xs, const float *least,
                  const float *w, int64_t n, const float *bias, const float *scale);

/* The same product by product, for sums whose operands lie anywhere; groups of four are taken one by one. */
struct ane_sum {
    int64_t whole;
    double exact;
};
void ane_sum_add(const struct ane_model *m, struct ane_sum *s, float x, float w);
float ane_sum_end(const struct ane_model *m, const struct ane_sum *s, float bias);

#endif
