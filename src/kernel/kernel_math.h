/* exp, tanh and sigmoid, written once over a type `vf` and its operations v_*: one float in kernel_scalar.c,
 * sixteen in the others (lanes_*.h). The same operations in the same order on every lane are what makes all
 * levels give the same bits; so nothing here may be reordered for one of them.
 *
 * exp: relative error below 1.2e-7 where the result is a normal number. A result that would be subnormal is
 * +0 (subnormals are slow on some processors and carry no information that a softmax or a gate needs),
 * overflow is infinity, NaN stays NaN, exp(+-0) = 1 exactly. tanh: relative error below 3e-7 everywhere, odd
 * (also in the sign of zero), +-1 at infinity.
 */

/* The largest x with a finite result, and the smallest one with a normal result. */
#define EXP_MAX 0x1.62e42ep6f
#define EXP_MIN -0x1.5d589ep6f

static ALWAYS_INLINE vf v_exp(vf x)
{
    /* x / ln 2 rounded to an integer: adding 1.5 * 2^23 leaves it in the low bits of t, whence v_scale takes
     * it. */
    const vf magic = v_set1(0x1.8p23f);
    vf t = v_fma(x, v_set1(0x1.715476p0f), magic);
    vf n = v_sub(t, magic);
    /* ln 2 as a sum of two floats: r is within +-0.3466 and exact to far below its own rounding. */
    vf r = v_fma(n, v_set1(-0x1.62e43p-1f), x);
    r = v_fma(n, v_set1(0x1.05c61p-29f), r);
    /* 1 + r + r^2 q(r), q of degree 4 through Chebyshev nodes */
    vf p = v_set1(0x1.6d117cp-10f);
    p = v_fma(p, r, v_set1(0x1.120be2p-7f));
    p = v_fma(p, r, v_set1(0x1.555518p-5f));
    p = v_fma(p, r, v_set1(0x1.5554dcp-3f));
    p = v_fma(p, r, v_set1(0x1p-1f));
    p = v_fma(p, r, v_set1(1.0f));
    p = v_fma(p, r, v_set1(1.0f));
    vf y = v_scale(p, t);
    y = v_select_less(x, v_set1(EXP_MIN), v_set1(0.0f), y);
    y = v_select_less(v_set1(EXP_MAX), x, v_set1(INFINITY), y);
    return v_select_nan(x, x, y);
}

static ALWAYS_INLINE vf v_tanh(vf x)
{
    vf a = v_abs(x);
    /* near zero: a + a^3 q(a^2), q of degree 4 through Chebyshev nodes on [0, 0.625^2] */
    vf s = v_mul(a, a);
    vf q = v_set1(-0x1.8f8de4p-8f);
    q = v_fma(q, s, v_set1(0x1.58048ep-6f));
    q = v_fma(q, s, v_set1(-0x1.b9258ap-5f));
    q = v_fma(q, s, v_set1(0x1.110e1cp-3f));
    q = v_fma(q, s, v_set1(-0x1.555552p-2f));
    vf near_zero = v_fma(v_mul(a, s), q, a);
    /* elsewhere: 1 - 2 / (exp(2a) + 1), which an overflow of exp turns into 1 */
    vf e = v_exp(v_add(a, a));
    vf far = v_sub(v_set1(1.0f), v_div(v_set1(2.0f), v_add(e, v_set1(1.0f))));
    return v_copysign(v_select_less(a, v_set1(0.625f), near_zero, far), x);
}

static ALWAYS_INLINE vf v_sigmoid(vf x)
{
    return v_div(v_set1(1.0f), v_add(v_set1(1.0f), v_exp(v_neg(x))));
}

static ALWAYS_INLINE vf v_silu(vf x)
{
    return v_div(x, v_add(v_set1(1.0f), v_exp(v_neg(x))));
}
