/* Functions of one number: the rarer elementwise ops, one number at a time in double with one rounding at the end. The
 * ones that language models spend time in are kernels. */
#include <math.h>
#include <string.h>
#include "engine/compiler.h"

enum gelu_mode { GELU_EXACT, GELU_TANH, GELU_SIGMOID };

static double gelu(double x, int mode)
{
    switch (mode) {
    case GELU_TANH:
        return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    case GELU_SIGMOID:
        return x / (1 + exp(-1.702 * x));
    default:
        return 0.5 * x * (1 + erf(x * 0.7071067811865476));
    }
}

static double limited(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x; /* NaN stays */
}

float scalar_function(int id, float v, float alpha, float beta)
{
    const double x = v, a = alpha, b = beta;
    switch (id) {
    case MIL_OP_ACOS:
        return (float)acos(x);
    case MIL_OP_ASIN:
        return (float)asin(x);
    case MIL_OP_ATAN:
        return (float)atan(x);
    case MIL_OP_ATANH:
        return (float)atanh(x);
    case MIL_OP_CEIL:
        return ceilf(v);
    case MIL_OP_CLAMPED_RELU:
        return (float)(x >= 0 ? (x > b ? b : x) : (a * x > b ? b : a * x));
    case MIL_OP_CLIP:
        return (float)limited(x, a, b);
    case MIL_OP_COS:
        return (float)cos(x);
    case MIL_OP_COSH:
        return (float)cosh(x);
    case MIL_OP_ELU:
        return (float)(x > 0 ? x : a * expm1(x));
    case MIL_OP_ERF:
        return (float)erf(x);
    case MIL_OP_EXP2:
        return (float)exp2(x);
    case MIL_OP_FLOOR:
        return floorf(v);
    case MIL_OP_GELU:
        return (float)gelu(x, (int)alpha);
    case MIL_OP_INVERSE:
        return (float)(1 / (x + a));
    case MIL_OP_LEAKY_RELU:
        return (float)(x >= 0 ? x : a * x);
    case MIL_OP_LINEAR_ACTIVATION:
        return (float)(a * x + b);
    case MIL_OP_RELU6:
        return (float)limited(x, 0, 6);
    case MIL_OP_ROUND:
        return rintf(v); /* ties to even: nothing changes the rounding mode */
    case MIL_OP_SCALED_TANH:
        return (float)(a * tanh(b * x));
    case MIL_OP_SIGMOID_HARD:
        return (float)limited(a * x + b, 0, 1);
    case MIL_OP_SIGN:
        return v > 0 ? 1.0f : v < 0 ? -1.0f : v;
    case MIL_OP_SIN:
        return (float)sin(x);
    case MIL_OP_SINH:
        return (float)sinh(x);
    case MIL_OP_SOFTSIGN:
        return (float)(x / (1 + fabs(x)));
    case MIL_OP_TAN:
        return (float)tan(x);
    case MIL_OP_THRESHOLD:
        return (float)(x < a ? a : x);
    case MIL_OP_THRESHOLDED_RELU:
        return v >= alpha ? v : 0;
    default:
        return v;
    }
}

static bool gelu_parameters(struct compiler *c, const struct mil_op *op, float *alpha)
{
    static const char *const modes[] = {"EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION"};
    int mode;
    if (!arg_word(c, op, "mode", modes, 3, &mode))
        return false;
    *alpha = (float)mode;
    return true;
}

bool scalar_parameters(struct compiler *c, const struct mil_op *op, float *alpha, float *beta)
{
    /* Defaults of absent arguments; ops that have none of them take no notice. */
    static const struct {
        int id;
        double alpha, beta;
        bool is_epsilon;
    } defaults[] = {
        {MIL_OP_ELU, 1, 0, false},
        {MIL_OP_INVERSE, 1e-4, 0, true},
        {MIL_OP_LEAKY_RELU, 0.01, 0, false},
        {MIL_OP_LOG, 1e-45, 0, true},
        {MIL_OP_RSQRT, 1e-12, 0, true},
        {MIL_OP_SCALED_TANH, 1, 1, false},
        {MIL_OP_SIGMOID_HARD, 0.2, 0.5, false},
        {MIL_OP_THRESHOLDED_RELU, 1, 0, false},
    };
    double a = 0, b = 0;
    bool is_epsilon = false;
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++)
        if (op->info && (int)op->info->id == defaults[i].id) {
            a = defaults[i].alpha;
            b = defaults[i].beta;
            is_epsilon = defaults[i].is_epsilon;
        }
    if (!arg_float(c, op, is_epsilon ? "epsilon" : "alpha", a, &a) || !arg_float(c, op, "beta", b, &b))
        return false;
    *alpha = (float)a;
    *beta = (float)b;
    return op->info->id != MIL_OP_GELU || gelu_parameters(c, op, alpha);
}
