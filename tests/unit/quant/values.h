/* Random values for the tests of quant: the kinds of distribution that weights have, and worse ones. */
#ifndef MILKIT_TESTS_QUANT_VALUES_H
#define MILKIT_TESTS_QUANT_VALUES_H

#include <math.h>
#include "quant/quant.h"

static uint64_t values_state = 88172645463325252u;

static inline uint64_t next_random(void)
{
    values_state ^= values_state << 13;
    values_state ^= values_state >> 7;
    values_state ^= values_state << 17;
    return values_state;
}

static inline double next_uniform(void)
{
    return (double)(next_random() >> 11) * 0x1p-53 + 0x1p-54;
}

static inline double next_normal(void)
{
    double u = next_uniform(), v = next_uniform();
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

enum values_kind {
    VALUES_NORMAL,
    VALUES_HEAVY,   /* tails as trained weights have them */
    VALUES_CAUCHY,  /* tails without end */
    VALUES_UNIFORM, /* even density */
    VALUES_TWO,     /* two narrow hills */
    VALUES_PRUNED,  /* nine of ten are 0 */
    VALUES_COARSE,  /* few distinct ones */
    VALUES_TINY,    /* subnormal */
    VALUES_KINDS
};

static inline f16 next_value(enum values_kind kind)
{
    double x = 0.03 * next_normal();
    switch (kind) {
    case VALUES_HEAVY:
        x *= exp(0.5 * next_normal());
        break;
    case VALUES_CAUCHY:
        x /= fabs(next_normal()) + 1e-3;
        break;
    case VALUES_UNIFORM:
        x = next_uniform() - 0.5;
        break;
    case VALUES_TWO:
        x = x * 0.1 + (next_random() & 1 ? 0.5 : -0.25);
        break;
    case VALUES_PRUNED:
        x = next_random() % 10 ? 0.0 : x;
        break;
    case VALUES_COARSE:
        x = floor(x * 200.0) / 200.0;
        break;
    case VALUES_TINY:
        x *= 1e-5;
        break;
    default:
        break;
    }
    return f64_to_f16(x);
}

static inline void fill_values(f16 *w, int64_t n, enum values_kind kind)
{
    for (int64_t i = 0; i < n; i++)
        w[i] = next_value(kind);
}

#endif
