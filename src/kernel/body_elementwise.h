/* Norms, rope, softmax and the elementwise kernels over the sixteen lanes of lanes_*.h: one text for every
 * vector level. Each loop does whole sixteens and then the tail with partial loads and stores, so nothing
 * outside is touched. */

/* for each sixteen: `whole` with i; then `tail` with i and n_tail. Arguments may hold commas only inside ().
 */
#define EACH_SIXTEEN(n, whole, tail)                                                                         \
    do {                                                                                                     \
        int64_t i = 0;                                                                                       \
        for (; i + 16 <= (n); i += 16) {                                                                     \
            whole;                                                                                           \
        }                                                                                                    \
        if (i < (n)) {                                                                                       \
            int64_t n_tail = (n)-i;                                                                          \
            tail;                                                                                            \
        }                                                                                                    \
    } while (0)

static ALWAYS_INLINE vf inverse_deviation(float sum, int64_t n, float eps)
{
    return v_set1(1.0f / sqrtf(sum / (float)n + eps));
}

static void ISA(k_rms_norm)(float *y, const float *x, const float *w, int64_t n, float eps)
{
    vf acc = v_set1(0.0f);
    EACH_SIXTEEN(
        n,
        {
            vf a = v_load(x + i);
            acc = v_fma(a, a, acc);
        },
        {
            vf a = v_load_part(x + i, n_tail);
            acc = v_fma(a, a, acc);
        });
    vf r = inverse_deviation(v_tree(acc), n, eps);
    if (w) {
        EACH_SIXTEEN(n, v_store(y + i, v_mul(v_mul(v_load(x + i), r), v_load(w + i))),
                     v_store_part(y + i,
                                  v_mul(v_mul(v_load_part(x + i, n_tail), r), v_load_part(w + i, n_tail)),
                                  n_tail));
    } else {
        EACH_SIXTEEN(n, v_store(y + i, v_mul(v_load(x + i), r)),
                     v_store_part(y + i, v_mul(v_load_part(x + i, n_tail), r), n_tail));
    }
}

static ALWAYS_INLINE float sum_of(const float *x, int64_t n)
{
    vf acc = v_set1(0.0f);
    EACH_SIXTEEN(n, acc = v_add(acc, v_load(x + i)), acc = v_add(acc, v_load_part(x + i, n_tail)));
    return v_tree(acc);
}

static void ISA(k_layer_norm)(float *y, const float *x, const float *gamma, const float *beta, int64_t n,
                              float eps)
{
    vf zero = v_set1(0.0f);
    vf mean = v_set1(sum_of(x, n) / (float)n);
    vf acc = zero;
    EACH_SIXTEEN(
        n,
        {
            vf d = v_sub(v_load(x + i), mean);
            acc = v_fma(d, d, acc);
        },
        {
            vf d = v_keep(v_sub(v_load_part(x + i, n_tail), mean), n_tail, zero);
            acc = v_fma(d, d, acc);
        });
    vf r = inverse_deviation(v_tree(acc), n, eps);
    EACH_SIXTEEN(
        n,
        {
            vf z = v_mul(v_sub(v_load(x + i), mean), r);
            if (gamma)
                z = v_mul(z, v_load(gamma + i));
            if (beta)
                z = v_add(z, v_load(beta + i));
            v_store(y + i, z);
        },
        {
            vf z = v_mul(v_sub(v_load_part(x + i, n_tail), mean), r);
            if (gamma)
                z = v_mul(z, v_load_part(gamma + i, n_tail));
            if (beta)
                z = v_add(z, v_load_part(beta + i, n_tail));
            v_store_part(y + i, z, n_tail);
        });
}

static void ISA(k_rope)(float *y, const float *x, const float *cos, const float *sin, int64_t pairs,
                        int64_t half, int64_t n)
{
    EACH_SIXTEEN(
        pairs,
        {
            vf a = v_load(x + i);
            vf b = v_load(x + half + i);
            vf c = v_load(cos + i);
            vf s = v_load(sin + i);
            v_store(y + i, v_sub(v_mul(a, c), v_mul(b, s)));
            v_store(y + half + i, v_add(v_mul(b, c), v_mul(a, s)));
        },
        {
            vf a = v_load_part(x + i, n_tail);
            vf b = v_load_part(x + half + i, n_tail);
            vf c = v_load_part(cos + i, n_tail);
            vf s = v_load_part(sin + i, n_tail);
            v_store_part(y + i, v_sub(v_mul(a, c), v_mul(b, s)), n_tail);
            v_store_part(y + half + i, v_add(v_mul(b, c), v_mul(a, s)), n_tail);
        });
    if (y != x) {
        for (int64_t j = pairs; j < half; j++)
            y[j] = x[j];
        for (int64_t j = half + pairs; j < n; j++)
            y[j] = x[j];
    }
}

static void ISA(k_softmax)(float *y, const float *x, int64_t n)
{
    vf lowest = v_set1(-INFINITY), zero = v_set1(0.0f);
    vf largest = lowest;
    EACH_SIXTEEN(n, largest = v_max(v_load(x + i), largest),
                 largest = v_max(v_keep(v_load_part(x + i, n_tail), n_tail, lowest), largest));
    vf max = v_set1(v_largest(largest));
    vf acc = zero;
    EACH_SIXTEEN(
        n,
        {
            vf e = v_exp(v_sub(v_load(x + i), max));
            acc = v_add(acc, e);
            v_store(y + i, e);
        },
        {
            vf e = v_keep(v_exp(v_sub(v_load_part(x + i, n_tail), max)), n_tail, zero);
            acc = v_add(acc, e);
            v_store_part(y + i, e, n_tail);
        });
    vf sum = v_set1(v_tree(acc));
    EACH_SIXTEEN(n, v_store(y + i, v_div(v_load(y + i), sum)),
                 v_store_part(y + i, v_div(v_load_part(y + i, n_tail), sum), n_tail));
}

#define DEFINE_UNARY(name, formula)                                                                          \
    static void ISA(k_##name)(float *y, const float *x, int64_t n)                                           \
    {                                                                                                        \
        EACH_SIXTEEN(n, v_store(y + i, formula(v_load(x + i))),                                              \
                     v_store_part(y + i, formula(v_load_part(x + i, n_tail)), n_tail));                      \
    }
DEFINE_UNARY(exp, v_exp)
DEFINE_UNARY(tanh, v_tanh)
DEFINE_UNARY(sigmoid, v_sigmoid)
DEFINE_UNARY(round_f16, v_round_f16)

static void ISA(k_silu_mul)(float *y, const float *x, const float *u, int64_t n)
{
    if (u) {
        EACH_SIXTEEN(n, v_store(y + i, v_mul(v_silu(v_load(x + i)), v_load(u + i))),
                     v_store_part(y + i,
                                  v_mul(v_silu(v_load_part(x + i, n_tail)), v_load_part(u + i, n_tail)),
                                  n_tail));
    } else {
        EACH_SIXTEEN(n, v_store(y + i, v_silu(v_load(x + i))),
                     v_store_part(y + i, v_silu(v_load_part(x + i, n_tail)), n_tail));
    }
}

#define DEFINE_BINARY(name, formula)                                                                         \
    static void ISA(k_##name)(float *y, const float *a, const float *b, int64_t n, int b_step)               \
    {                                                                                                        \
        if (b_step) {                                                                                        \
            EACH_SIXTEEN(n, v_store(y + i, formula(v_load(a + i), v_load(b + i))),                           \
                         v_store_part(y + i,                                                                 \
                                      formula(v_load_part(a + i, n_tail), v_load_part(b + i, n_tail)),       \
                                      n_tail));                                                              \
        } else if (n > 0) {                                                                                  \
            vf b0 = v_set1(b[0]);                                                                            \
            EACH_SIXTEEN(n, v_store(y + i, formula(v_load(a + i), b0)),                                      \
                         v_store_part(y + i, formula(v_load_part(a + i, n_tail), b0), n_tail));              \
        }                                                                                                    \
    }
DEFINE_BINARY(add, v_add)
DEFINE_BINARY(sub, v_sub)
DEFINE_BINARY(mul, v_mul)

static void ISA(k_f16_to_f32)(float *y, const f16 *x, int64_t n)
{
    EACH_SIXTEEN(n, v_store(y + i, v_load_f16(x + i)),
                 v_store_part(y + i, v_load_f16_part(x + i, n_tail), n_tail));
}

static void ISA(k_f32_to_f16)(f16 *y, const float *x, int64_t n)
{
    EACH_SIXTEEN(n, v_store_f16(y + i, v_load(x + i)),
                 v_store_f16_part(y + i, v_load_part(x + i, n_tail), n_tail));
}
