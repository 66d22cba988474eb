/* The plain C level: complete, slow, and the definition of every kernel. The other levels must give its bits.
 */
#include <float.h>
#include <math.h>
#include <string.h>
#include "kernel/kernel_internal.h"

#define LANES 16

/* The operations of kernel_math.h on one float. */
typedef float vf;

static ALWAYS_INLINE vf v_set1(float x)
{
    return x;
}

static ALWAYS_INLINE vf v_add(vf a, vf b)
{
    return a + b;
}

static ALWAYS_INLINE vf v_sub(vf a, vf b)
{
    return a - b;
}

static ALWAYS_INLINE vf v_mul(vf a, vf b)
{
    return a * b;
}

static ALWAYS_INLINE vf v_div(vf a, vf b)
{
    return a / b;
}

static ALWAYS_INLINE vf v_fma(vf a, vf b, vf c)
{
    return fmaf(a, b, c);
}

static ALWAYS_INLINE vf v_abs(vf a)
{
    return fabsf(a);
}

static ALWAYS_INLINE vf v_neg(vf a)
{
    return -a;
}

static ALWAYS_INLINE vf v_copysign(vf magnitude, vf sign)
{
    return copysignf(magnitude, sign);
}

/* a < b ? yes : no */
static ALWAYS_INLINE vf v_select_less(vf a, vf b, vf yes, vf no)
{
    return a < b ? yes : no;
}

static ALWAYS_INLINE vf v_select_nan(vf a, vf yes, vf no)
{
    return a != a ? yes : no;
}

/* p * 2^n for the integer n in the low bits of t; p and the product are normal numbers */
static ALWAYS_INLINE vf v_scale(vf p, vf t)
{
    return float_of_bits(bits_of_float(p) + (bits_of_float(t) << 23));
}

#include "kernel/kernel_math.h"

/* The tree at the end of every sum. */
static float sum_lanes(const float *lane)
{
    float s8[8], s4[4], s2[2];
    for (int j = 0; j < 8; j++)
        s8[j] = lane[j] + lane[j + 8];
    for (int j = 0; j < 4; j++)
        s4[j] = s8[j] + s8[j + 4];
    for (int j = 0; j < 2; j++)
        s2[j] = s4[j] + s4[j + 2];
    return s2[0] + s2[1];
}

static int64_t round_up_lanes(int64_t n)
{
    return (n + LANES - 1) / LANES * LANES;
}

/* The three dot products: the tail of the last sixteen is zero on both sides. */
static float dot_f32(const float *a, const float *b, int64_t n)
{
    float lane[LANES] = {0};
    for (int64_t i = 0; i < round_up_lanes(n); i++)
        lane[i % LANES] = fmaf(i < n ? a[i] : 0.0f, i < n ? b[i] : 0.0f, lane[i % LANES]);
    return sum_lanes(lane);
}

static float dot_f16(const float *a, const f16 *b, int64_t n)
{
    float lane[LANES] = {0};
    for (int64_t i = 0; i < round_up_lanes(n); i++)
        lane[i % LANES] = fmaf(i < n ? a[i] : 0.0f, i < n ? f16_to_f32(b[i]) : 0.0f, lane[i % LANES]);
    return sum_lanes(lane);
}

static float sum_f32(const float *a, int64_t n)
{
    float lane[LANES] = {0};
    for (int64_t i = 0; i < round_up_lanes(n); i++)
        lane[i % LANES] = lane[i % LANES] + (i < n ? a[i] : 0.0f);
    return sum_lanes(lane);
}

#define DEFINE_LINEAR(name, type, dot)                                                                       \
    static void name(float *y, int64_t y_stride, const float *x, int64_t x_stride, const type *w,            \
                     const float *bias, int64_t n_rows, int64_t n_in, int64_t begin, int64_t end,            \
                     float *scratch)                                                                         \
    {                                                                                                        \
        (void)scratch;                                                                                       \
        for (int64_t t = 0; t < n_rows; t++) {                                                               \
            for (int64_t o = begin; o < end; o++) {                                                          \
                float s = dot(x + t * x_stride, w + o * n_in, n_in);                                         \
                y[t * y_stride + o] = bias ? s + bias[o] : s;                                                \
            }                                                                                                \
        }                                                                                                    \
    }
DEFINE_LINEAR(k_linear_f16__scalar, f16, dot_f16)
DEFINE_LINEAR(k_linear_f32__scalar, float, dot_f32)

/* One query row; s holds scores, then weights, at their positions. */
static void attend_row(float *out, const float *q, const f16 *k, int64_t k_stride, const f16 *v,
                       int64_t v_stride, int64_t d_k, int64_t d_v, int64_t begin, int64_t end,
                       const float *mask, float scale, float *s)
{
    float max = -INFINITY;
    for (int64_t p = begin; p < end; p++) {
        s[p] = dot_f16(q, k + p * k_stride, d_k) * scale;
        if (mask)
            s[p] = s[p] + mask[p];
        max = s[p] > max ? s[p] : max; /* a NaN is passed over here and comes back through exp */
    }
    float lane[LANES] = {0};
    for (int64_t p = begin; p < end; p++) {
        s[p] = v_exp(s[p] - max);
        lane[p % LANES] = lane[p % LANES] + s[p];
    }
    bool is_masked = max == -INFINITY;
    float sum = sum_lanes(lane);
    for (int64_t c = 0; c < d_v; c++) {
        float a = 0.0f;
        for (int64_t p = begin; p < end; p++)
            a = fmaf(s[p], f16_to_f32(v[p * v_stride + c]), a);
        out[c] = is_masked ? 0.0f : a / sum;
    }
}

static void k_attention_f16__scalar(float *out, int64_t out_stride, const float *q, int64_t q_stride,
                                    int64_t n_rows, const f16 *k, int64_t k_stride, const f16 *v,
                                    int64_t v_stride, int64_t d_k, int64_t d_v, const int32_t *begin,
                                    const int32_t *end, const float *mask, int64_t mask_stride, float scale,
                                    float *scratch)
{
    for (int64_t r = 0; r < n_rows; r++)
        attend_row(out + r * out_stride, q + r * q_stride, k, k_stride, v, v_stride, d_k, d_v, begin[r],
                   end[r], mask ? mask + r * mask_stride : NULL, scale, scratch);
}

static void k_rms_norm__scalar(float *y, const float *x, const float *w, int64_t n, float eps)
{
    float r = 1.0f / sqrtf(dot_f32(x, x, n) / (float)n + eps);
    for (int64_t i = 0; i < n; i++) {
        float normed = x[i] * r;
        y[i] = w ? normed * w[i] : normed;
    }
}

static void k_layer_norm__scalar(float *y, const float *x, const float *gamma, const float *beta, int64_t n,
                                 float eps)
{
    float mean = sum_f32(x, n) / (float)n;
    float lane[LANES] = {0};
    for (int64_t i = 0; i < round_up_lanes(n); i++) {
        float centred = i < n ? x[i] - mean : 0.0f;
        lane[i % LANES] = fmaf(centred, centred, lane[i % LANES]);
    }
    float r = 1.0f / sqrtf(sum_lanes(lane) / (float)n + eps);
    for (int64_t i = 0; i < n; i++) {
        float z = (x[i] - mean) * r;
        if (gamma)
            z = z * gamma[i];
        if (beta)
            z = z + beta[i];
        y[i] = z;
    }
}

static void k_rope__scalar(float *y, const float *x, const float *cos, const float *sin, int64_t pairs,
                           int64_t half, int64_t n)
{
    for (int64_t i = 0; i < pairs; i++) {
        float a = x[i], b = x[i + half];
        float ac = a * cos[i], bs = b * sin[i], bc = b * cos[i], as = a * sin[i];
        y[i] = ac - bs;
        y[i + half] = bc + as;
    }
    for (int64_t i = pairs; i < n; i++) {
        if (i < half || i >= half + pairs)
            y[i] = x[i];
    }
}

static void k_softmax__scalar(float *y, const float *x, int64_t n)
{
    float max = -INFINITY;
    for (int64_t i = 0; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (int64_t i = 0; i < n; i++)
        y[i] = v_exp(x[i] - max);
    float sum = sum_f32(y, n);
    for (int64_t i = 0; i < n; i++)
        y[i] = y[i] / sum;
}

#define K_MAP(name)                                                                                          \
    static void k_##name##__scalar(float *y, const float *x, int64_t n)                                      \
    {                                                                                                        \
        for (int64_t i = 0; i < n; i++)                                                                      \
            y[i] = v_##name(x[i]);                                                                           \
    }
K_MAP(exp)
K_MAP(tanh)
K_MAP(sigmoid)
#undef K_MAP

static void k_silu_mul__scalar(float *y, const float *x, const float *u, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float gate = v_silu(x[i]);
        y[i] = u ? gate * u[i] : gate;
    }
}

#define K_BINARY(name, operator)                                                                             \
    static void k_##name##__scalar(float *y, const float *a, const float *b, int64_t n, int b_step)          \
    {                                                                                                        \
        float b0 = n > 0 ? b[0] : 0.0f;                                                                      \
        for (int64_t i = 0; i < n; i++)                                                                      \
            y[i] = a[i] operator(b_step ? b[i] : b0);                                                        \
    }
K_BINARY(add, +)
K_BINARY(sub, -)
K_BINARY(mul, *)
#undef K_BINARY

static void k_f16_to_f32__scalar(float *y, const f16 *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = f16_to_f32(x[i]);
}

static void k_f32_to_f16__scalar(f16 *y, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = f32_to_f16(x[i]);
}

static void k_round_f16__scalar(float *y, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = f16_round(x[i]);
}

static void k_gated_delta__scalar(const struct gated_delta *p, int64_t begin, int64_t end)
{
    for (int64_t t = 0; t < p->n_tokens; t++) {
        const float *q = p->q + t * p->q_stride, *k = p->k + t * p->k_stride;
        float decay = v_exp(p->g[t * p->g_stride]), dot = dot_f32(q, k, p->d_k);
        for (int64_t c = begin; c < end; c++) {
            float m = 0, s = 0;
            for (int64_t r = 0; r < p->d_k; r++) {
                m = fmaf(k[r], p->state[r * p->state_stride + c], m);
                s = fmaf(q[r], p->state[r * p->state_stride + c], s);
            }
            float memory = m * decay * p->inverse_d_k;
            float delta = (p->v[t * p->v_stride + c] - memory) * p->beta[t * p->beta_stride];
            p->y[t * p->y_stride + c] = fmaf(delta, dot, s * decay) * p->scale;
            for (int64_t r = 0; r < p->d_k; r++) {
                float *x = &p->state[r * p->state_stride + c];
                *x = fmaf(k[r], delta, *x * decay);
            }
        }
    }
}

#include "kernel/body_fixed_scalar.h"

const struct kernels kernels_scalar = {
    .level = CPU_SCALAR,
    .name = "scalar",
#define KERNEL(member, kind) .member = k_##member##__scalar,
#include "kernel/kernel.def"
#undef KERNEL
};
