/* Tables and elementwise ops of the emulation. */
#include "engine/ane.h"
#include <math.h>
#include "engine/compiler.h"

/* ---- tables ---- */

struct ane_table {
    double first, last, y[33];
};
#define ANE_TABLE(name, first, last, ...)                                                                    \
    static const struct ane_table table_##name = {first, last, {__VA_ARGS__}};
#include "engine/ane_tables.def"
#undef ANE_TABLE

/* Straight lines between the nodes; beyond them the last ones' values. */
static double look_up(const struct ane_table *t, double x)
{
    double width = (t->last - t->first) / 32;
    if (x <= t->first)
        return t->y[0];
    if (x >= t->last)
        return t->y[32];
    int i = (int)((x - t->first) / width);
    double slope = (t->y[i + 1] - t->y[i]) / width;
    return slope * (x - (t->first + i * width)) + t->y[i];
}

static double power_of_two(double n)
{
    return ldexp(1.0, (int)(n < -100 ? -100 : n > 100 ? 100 : n));
}

static double exponential(double u) /* of base 2 */
{
    double n = floor(u);
    return look_up(&table_exp2, u - n) * power_of_two(n);
}

/* |x| as m * 2^e with 1 <= m < 2; of 0 as of 1 */
static double octave(double x, int *e)
{
    int n;
    double m = frexp(x != 0 ? fabs(x) : 1.0, &n);
    *e = n - 1;
    return 2 * m;
}

static double signed_as(double y, double x)
{
    return x < 0 ? -y : y;
}

static double softplus(double x)
{
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

static double reciprocal_root(double x)
{
    int e;
    double m = octave(x, &e);
    int odd = e & 1;
    return look_up(&table_rsqrt, m) * (odd ? sqrt(0.5) : 1.0) * ldexp(1.0, -((e - odd) / 2));
}

static double root(double x)
{
    int e;
    double m = octave(x, &e);
    int odd = e & 1;
    return x == 0 ? 0 : look_up(&table_sqrt, m) * (odd ? sqrt(2.0) : 1.0) * ldexp(1.0, (e - odd) / 2);
}

static double reciprocal(double x)
{
    int e;
    double m = octave(x, &e);
    return x == 0 ? INFINITY : signed_as(look_up(&table_inverse, m) * ldexp(1.0, -e), x);
}

static double logarithm(double x)
{
    int e;
    double m = octave(x, &e);
    return x <= 0 ? -INFINITY : (look_up(&table_log2, m) + e) * 0.6931471805599453;
}

/* Quarter periods of a table of the first one. */
static double sine(double x)
{
    double turns = x / 6.283185307179586, at = 4 * (turns - floor(turns));
    int quarter = (int)at & 3;
    double in = at - floor(at), y = look_up(&table_sine, quarter & 1 ? 1 - in : in);
    return quarter & 2 ? -y : y;
}

/* The functions with tables; false: another one. */
static bool from_table(int id, double x, float alpha, double *y)
{
    double a = fabs(x);
    switch (id) {
    case MIL_OP_SIGMOID:
        *y = look_up(&table_sigmoid, x);
        return true;
    case MIL_OP_TANH:
        *y = signed_as(a > 4 ? 1.0 : look_up(&table_tanh, a), x);
        return true;
    case MIL_OP_SILU:
        *y = a > 8 ? (x > 0 ? x : 0.0) : look_up(&table_silu, x);
        return true;
    case MIL_OP_GELU:
        *y = a > 4 ? (x > 0 ? x : 0.0) : look_up(&table_gelu, x);
        return true;
    case MIL_OP_EXP:
        *y = exponential(x / 0.6931471805599453);
        return true;
    case MIL_OP_EXP2:
        *y = exponential(x);
        return true;
    case MIL_OP_ERF:
        *y = signed_as(a > 2 ? erf(a) : look_up(&table_erf, a), x);
        return true;
    case MIL_OP_LOG:
        *y = logarithm(x + (double)alpha);
        return true;
    case MIL_OP_RSQRT:
        *y = x + (double)alpha == 0 ? INFINITY : reciprocal_root(x + (double)alpha);
        return true;
    case MIL_OP_SQRT:
        *y = root(x);
        return true;
    case MIL_OP_INVERSE:
        *y = reciprocal(x + (double)alpha);
        return true;
    case MIL_OP_SIN:
        *y = sine(x);
        return true;
    case MIL_OP_COS:
        *y = sine(x + 1.5707963267948966);
        return true;
    default:
        return false;
    }
}

/* The same without tables, and what has none. */
static double exactly(int id, double x, float alpha, float beta)
{
    switch (id) {
    case MIL_OP_SIGMOID:
        return 1 / (1 + exp(-x));
    case MIL_OP_TANH:
        return tanh(x);
    case MIL_OP_SILU:
        return x / (1 + exp(-x));
    case MIL_OP_EXP:
        return exp(x);
    case MIL_OP_LOG:
        return log(x + (double)alpha);
    case MIL_OP_RSQRT:
        return 1 / sqrt(x + (double)alpha);
    case MIL_OP_SQRT:
        return sqrt(x);
    case MIL_OP_SQUARE:
        return x * x;
    case MIL_OP_ABS:
        return fabs(x);
    case MIL_OP_RELU:
        return x > 0 ? x : 0;
    case MIL_OP_SOFTPLUS:
        return softplus(x);
    default:
        return (double)scalar_function(id, (float)x, alpha, beta);
    }
}

float ane_unary(const struct ane_model *m, int id, float v, float alpha, float beta)
{
    double x = ane_number(v), y;
    if (m->exact_functions || !from_table(id, x, alpha, &y))
        y = exactly(id, x, alpha, beta);
    return ane_round(isnan(y) ? 98304 : y);
}

float ane_binary(int id, float u, float v)
{
    double a = ane_number(u), b = ane_number(v), y = 0;
    switch (id) {
    case MIL_OP_ADD:
        y = a + b;
        break;
    case MIL_OP_SUB:
        y = a - b;
        break;
    case MIL_OP_MUL:
        y = a * b;
        break;
    case MIL_OP_REAL_DIV:
        y = a / b;
        break;
    case MIL_OP_FLOOR_DIV:
        y = floor(a / b);
        break;
    case MIL_OP_MOD:
        y = a - b * floor(a / b);
        break;
    case MIL_OP_MAXIMUM:
        return u > v || isnan(u) ? u : v; /* a choice: nothing is rounded */
    case MIL_OP_MINIMUM:
        return u < v || isnan(u) ? u : v;
    case MIL_OP_POW:
        y = pow(a, b);
        break;
    case MIL_OP_PRELU:
        y = a >= 0 ? a : a * b;
        break;
    default:
        break;
    }
    return ane_round(isnan(y) ? 98304 : y);
}
