/* softmax and layer_norm as chains of pieces with an fp16 result each: the pessimistic reading, since nobody has published what the
 * engine holds between them. */
#include <math.h>
#include "engine/compiler.h"

static const struct ane_model tables; /* the default: functions by their tables */

/* Largest, difference, exponential, sum, reciprocal, product. */
void ane_softmax_row(const struct rows *p, const struct kernels *k, float *y, const float *x)
{
    float largest = -INFINITY;
    double sum = 0;
    (void)k;
    for (int64_t i = 0; i < p->n; i++)
        largest = x[i] > largest ? x[i] : largest;
    for (int64_t i = 0; i < p->n; i++) {
        float difference = ane_binary(MIL_OP_SUB, x[i], largest);
        y[i] = ane_unary(&tables, MIL_OP_EXP, difference, 0, 0);
        sum += (double)y[i];
    }
    float factor = ane_unary(&tables, MIL_OP_INVERSE, ane_round(sum), 0, 0);
    for (int64_t i = 0; i < p->n; i++)
        y[i] = ane_binary(MIL_OP_MUL, y[i], factor);
}

/* Mean, difference, square, mean, reciprocal root, products. */
void ane_layer_norm_row(const struct rows *p, const struct kernels *k, float *y, const float *x)
{
    double sum = 0, squares = 0;
    (void)k;
    for (int64_t i = 0; i < p->n; i++)
        sum += ane_number(x[i]);
    float mean = ane_round(sum / (double)p->n);
    for (int64_t i = 0; i < p->n; i++) {
        y[i] = ane_binary(MIL_OP_SUB, x[i], mean);
        squares += ane_number(ane_binary(MIL_OP_MUL, y[i], y[i]));
    }
    float factor = ane_unary(&tables, MIL_OP_RSQRT, ane_round(squares / (double)p->n), p->eps, 0);
    for (int64_t i = 0; i < p->n; i++) {
        y[i] = ane_binary(MIL_OP_MUL, y[i], factor);
        if (p->gamma)
            y[i] = ane_binary(MIL_OP_MUL, y[i], p->gamma[i]);
        if (p->beta)
            y[i] = ane_binary(MIL_OP_ADD, y[i], p->beta[i]);
    }
}
