/* The limits of a verdict. docs/contract.md has the measurements that they come from. */
#include "measure/check_limits.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MARGIN 0.05

/* Bits of the coarsest weights of a part: palettes or linear integers; 16: fp16. */
static int part_bits(int lut, const char *quant)
{
    if (lut > 0)
        return lut;
    if (quant)
        return strncmp(quant, "int4", 4) == 0 ? 4 : 8;
    return 16;
}

static int package_bits(const struct meta *m)
{
    const int bits[3] = {part_bits(m->lut_embeddings, m->quant_embeddings),
                         part_bits(m->lut_ffn, m->quant_ffn), part_bits(m->lut_lmhead, m->quant_lmhead)};
    int least = 16;
    for (int i = 0; i < 3; i++)
        least = bits[i] < least ? bits[i] : least;
    return least;
}

/* What check_limits has, in one order. */
enum { COSINE, MEAN_KL, TOP1, LAYER, ADDED, GAIN_LOW, GAIN_HIGH, N_LIMITS };

/* By the width of the weights: wider than the worst of the small trained models of every family, narrower than what a
 * wrong layer, cache, position or expert gives. Below the last row a package that is right is as far from its checkpoint
 * as one that is wrong. Coarse weights make what a layer adds weaker, hardly ever stronger. */
static const struct {
    int bits;
    double limits[N_LIMITS];
} rows[] = {
    {16, {0.9999, 0.001, 1, 0.9999, 0.999, 0.99, 1.01}},
    {8, {0.9995, 0.001, 0.95, 0.9995, 0.998, 0.98, 1.02}},
    {6, {0.998, 0.005, 0.9, 0.996, 0.99, 0.95, 1.03}},
    {4, {0.96, 0.05, 0.75, 0.98, 0.96, 0.85, 1.12}},
    {3, {0.9, 0.2, 0.65, 0.96, 0.92, 0.7, 1.12}},
};
#define N_ROWS ((int)(sizeof rows / sizeof *rows))

/* Where each op rounds to fp16, single positions of random weights are far off. */
static const double of_fp16[N_LIMITS] = {0.99, 0.002, 0.95, 0.999, 0.997, 0.99, 1.01};
/* A near tie of experts that falls the other way moves a position far more than rounding does. */
static const double of_experts[N_LIMITS] = {0.98, 0.001, 0.95, 0.999, 0.97, 0.95, 1.01};

/* Of two limits the one that allows more. */
static double looser(int i, double a, double b)
{
    return i == MEAN_KL || i == GAIN_HIGH ? fmax(a, b) : fmin(a, b);
}

static void choose(double *given, double usual)
{
    if (isnan(*given))
        *given = usual;
}

void check_limits_choose(struct check_limits *l, const struct model *m)
{
    int bits = package_bits(m->package->meta), i = 0;
    while (i < N_ROWS && rows[i].bits > bits)
        i++;
    double *given[N_LIMITS] = {&l->min_cosine,       &l->max_mean_kl, &l->min_top1, &l->min_layer_cosine,
                               &l->min_added_cosine, &l->min_gain,    &l->max_gain};
    bool is_emulated =
        m->precision == PRECISION_ANE; /* its errors are what is asked for: nobody has limits for them */
    if (is_emulated)
        i = N_ROWS;
    l->has_verdict = i < N_ROWS || !isnan(l->max_difference);
    for (int k = 0; k < N_LIMITS; k++) {
        l->has_verdict = l->has_verdict || !isnan(*given[k]);
        if (i == N_ROWS)
            continue;
        double usual = rows[i].limits[k];
        if (m->precision == PRECISION_FP16)
            usual = looser(k, usual, of_fp16[k]);
        if (m->package->meta->moe_experts > 0)
            usual = looser(k, usual, of_experts[k]);
        choose(given[k], usual);
    }
    choose(&l->max_difference, INFINITY);
    choose(&l->margin, MARGIN);
    const char *precision = m->precision == PRECISION_FP16 ? " with fp16 precision"
                            : is_emulated                  ? " with emulated arithmetic"
                                                           : "";
    if (bits == 16)
        snprintf(l->what, sizeof l->what, "fp16 weights%s", precision);
    else
        snprintf(l->what, sizeof l->what, "%d-bit weights%s", bits, precision);
}
