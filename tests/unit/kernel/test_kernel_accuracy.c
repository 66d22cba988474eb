/* The plain C kernels against double and long double arithmetic: what is promised about exp and tanh, and
 * that every formula is the one it says. The other levels have the same bits (test_kernels), so this covers
 * them, too. */
// links: base
#include <float.h>
#include "kernel_test.h"

static const struct kernels *k;

static float one(void (*f)(float *, const float *, int64_t), float x)
{
    float y;
    f(&y, &x, 1);
    return y;
}

/* |a - b| in units of the last place of b as a float */
static double ulps(float a, long double b)
{
    int exponent;
    frexpl(b, &exponent);
    return (double)(fabsl((long double)a - b) / ldexpl(1, exponent - 24));
}

static void test_exp(void **state)
{
    (void)state;
    double worst = 0;
    for (int i = 0; i <= 400000; i++) {
        float x = -87.3365f + (float)i * (88.72283f + 87.3365f) / 400000.0f;
        double u = ulps(one(k->exp, x), expl((long double)x));
        worst = u > worst ? u : worst;
    }
    for (int i = -2000; i <= 2000; i++) {
        float x = ldexpf((float)i, -16);
        double u = ulps(one(k->exp, x), expl((long double)x));
        worst = u > worst ? u : worst;
    }
    printf("exp: at most %.3f units of the last place\n", worst);
    assert_true(worst < 1.2);
    assert_int_equal(float_bits(one(k->exp, 0.0f)), 0x3f800000);
    assert_int_equal(float_bits(one(k->exp, -0.0f)), 0x3f800000);
    assert_int_equal(float_bits(one(k->exp, -INFINITY)), 0);
    assert_true(one(k->exp, INFINITY) == INFINITY);
    assert_true(isnan(one(k->exp, NAN)));
    assert_true(isfinite(one(k->exp, bits_float(0x42b17217))));
    assert_true(one(k->exp, bits_float(0x42b17218)) == INFINITY);
    assert_true(one(k->exp, 3e38f) == INFINITY);
    /* what would be subnormal is zero, and nothing else is */
    for (float x = -87.5f; x < -87.2f; x = nextafterf(x, 0.0f)) {
        float y = one(k->exp, x);
        assert_true(y == 0.0f || y >= FLT_MIN);
        assert_true(expl((long double)x) < (long double)FLT_MIN * 1.00001L || y >= FLT_MIN);
    }
    assert_int_equal(float_bits(one(k->exp, -104.0f)), 0);
    assert_int_equal(float_bits(one(k->exp, -3e38f)), 0);
}

static void test_tanh(void **state)
{
    (void)state;
    double worst = 0;
    for (int i = 0; i < 400000; i++) {
        float x =
            i % 2 ? (float)i * (12.0f / 400000.0f) : ldexpf(1.0f + (float)(i % 1000) / 1000.0f, -(i / 4000));
        long double t = tanhl((long double)x);
        double relative = (double)(fabsl((long double)one(k->tanh, x) - t) / t);
        if (x >= FLT_MIN * 4)
            worst = relative > worst ? relative : worst;
        assert_int_equal(float_bits(one(k->tanh, -x)), float_bits(one(k->tanh, x)) ^ 0x80000000);
    }
    printf("tanh: relative error at most %.3g\n", worst);
    assert_true(worst < 3e-7);
    assert_int_equal(float_bits(one(k->tanh, 0.0f)), 0);
    assert_int_equal(float_bits(one(k->tanh, -0.0f)), 0x80000000);
    assert_true(one(k->tanh, INFINITY) == 1.0f && one(k->tanh, -INFINITY) == -1.0f);
    assert_true(one(k->tanh, 3e38f) == 1.0f && one(k->tanh, -3e38f) == -1.0f);
    assert_true(isnan(one(k->tanh, NAN)));
    assert_int_equal(float_bits(one(k->tanh, bits_float(1))), 1);
}

static void test_gates(void **state)
{
    (void)state;
    double worst = 0;
    for (int i = 0; i <= 200000; i++) {
        float x = -80.0f + (float)i * 160.0f / 200000.0f, y, half = 0.5f;
        long double s = 1.0L / (1.0L + expl(-(long double)x));
        double relative = (double)(fabsl((long double)one(k->sigmoid, x) - s) / s);
        worst = relative > worst ? relative : worst;
        k->silu_mul(&y, &x, NULL, 1);
        if (x != 0.0f) {
            relative = (double)fabsl(((long double)y - x * s) / (x * s));
            worst = relative > worst ? relative : worst;
        }
        float with_u;
        k->silu_mul(&with_u, &x, &half, 1);
        assert_true(with_u == y * 0.5f);
    }
    printf("sigmoid, silu: relative error at most %.3g\n", worst);
    assert_true(worst < 4e-7);
    assert_true(one(k->sigmoid, INFINITY) == 1.0f && one(k->sigmoid, -INFINITY) == 0.0f);
    assert_true(one(k->sigmoid, -200.0f) == 0.0f && one(k->sigmoid, 200.0f) == 1.0f);
}

static void test_linear(void **state)
{
    (void)state;
    enum { N_IN = 777, N_OUT = 9, N_ROWS = 3 };
    static float x[N_ROWS][N_IN], w32[N_OUT][N_IN], bias[N_OUT], y[N_ROWS][N_OUT], y32[N_ROWS][N_OUT];
    static f16 w[N_OUT][N_IN];
    struct random_state r = {99};
    for (int t = 0; t < N_ROWS; t++) {
        for (int i = 0; i < N_IN; i++)
            x[t][i] = random_float(&r, NUMBERS_PLAIN);
    }
    for (int o = 0; o < N_OUT; o++) {
        bias[o] = random_float(&r, NUMBERS_PLAIN);
        for (int i = 0; i < N_IN; i++) {
            w[o][i] = random_f16(&r, NUMBERS_PLAIN);
            w32[o][i] = random_float(&r, NUMBERS_PLAIN);
        }
    }
    k->linear_f16(y[0], N_OUT, x[0], N_IN, w[0], bias, N_ROWS, N_IN, 0, N_OUT, NULL);
    k->linear_f32(y32[0], N_OUT, x[0], N_IN, w32[0], bias, N_ROWS, N_IN, 0, N_OUT, NULL);
    for (int t = 0; t < N_ROWS; t++) {
        for (int o = 0; o < N_OUT; o++) {
            double s = bias[o], s32 = bias[o], size = fabs((double)bias[o]), size32 = size;
            for (int i = 0; i < N_IN; i++) {
                double a = (double)x[t][i] * (double)f16_to_f32(w[o][i]),
                       b = (double)x[t][i] * (double)w32[o][i];
                s += a;
                s32 += b;
                size += fabs(a);
                size32 += fabs(b);
            }
            /* n / 16 + 5 roundings in a lane's way at most */
            double bound = (N_IN / 16.0 + 5) * 0x1p-24;
            assert_true(fabs(s - (double)y[t][o]) <= bound * size);
            assert_true(fabs(s32 - (double)y32[t][o]) <= bound * size32);
        }
    }
}

static void test_norms_and_softmax(void **state)
{
    (void)state;
    enum { N = 333 };
    float x[N], gamma[N], beta[N], rms[N], layer[N], soft[N];
    double sum = 0, squares = 0, variance = 0, total = 0, max = -INFINITY;
    struct random_state r = {7};
    for (int i = 0; i < N; i++) {
        x[i] = random_float(&r, NUMBERS_PLAIN);
        gamma[i] = random_float(&r, NUMBERS_PLAIN);
        beta[i] = random_float(&r, NUMBERS_PLAIN);
        sum += (double)x[i];
        squares += (double)x[i] * (double)x[i];
        max = fmax(max, (double)x[i]);
    }
    for (int i = 0; i < N; i++) {
        variance += ((double)x[i] - sum / N) * ((double)x[i] - sum / N) / N;
        total += exp((double)x[i] - max);
    }
    k->rms_norm(rms, x, gamma, N, 0.5f);
    k->layer_norm(layer, x, gamma, beta, N, 0.5f);
    k->softmax(soft, x, N);
    for (int i = 0; i < N; i++) {
        double a = (double)x[i] / sqrt(squares / N + 0.5) * (double)gamma[i];
        double b = ((double)x[i] - sum / N) / sqrt(variance + 0.5) * (double)gamma[i] + (double)beta[i];
        double c = exp((double)x[i] - max) / total;
        assert_true(fabs(a - (double)rms[i]) <= 1e-6 * fabs(a));
        assert_true(fabs(b - (double)layer[i]) <= 4e-6);
        assert_true(fabs(c - (double)soft[i]) <= 1e-6 * c);
    }
    /* gamma and beta are each their own option */
    float plain[N], with_gamma[N];
    k->layer_norm(plain, x, NULL, NULL, N, 0.5f);
    k->layer_norm(with_gamma, x, gamma, NULL, N, 0.5f);
    for (int i = 0; i < N; i++) {
        assert_true(with_gamma[i] == plain[i] * gamma[i]);
        assert_true(layer[i] == with_gamma[i] + beta[i]);
    }
}

static void test_rope(void **state)
{
    (void)state;
    /* by 90 degrees: (a, b) becomes (-b, a); what is behind the pairs stays */
    float x[7] = {1, 2, 30, 3, 4, 50, 60}, cosine[2] = {0, 1}, sine[2] = {1, 0};
    const float expected[7] = {-3, 2, 30, 1, 4, 50, 60};
    k->rope(x, x, cosine, sine, 2, 3, 7);
    assert_memory_equal(x, expected, sizeof x);
}

static void test_attention(void **state)
{
    (void)state;
    enum { S = 50, D_K = 24, D_V = 20, N_ROWS = 4 };
    float q[N_ROWS][D_K], out[N_ROWS][D_V], mask[N_ROWS][S],
        scratch[KERNEL_ATTENTION_SCRATCH(S, N_ROWS, D_K, D_V)];
    f16 keys[S][D_K], values[S][D_V];
    const int32_t begin[N_ROWS] = {0, 10, 5, 0}, end[N_ROWS] = {S, 30, 5, 20};
    struct random_state r = {3};
    for (int p = 0; p < S; p++) {
        for (int i = 0; i < D_K; i++)
            keys[p][i] = random_f16(&r, NUMBERS_PLAIN);
        for (int i = 0; i < D_V; i++)
            values[p][i] = random_f16(&r, NUMBERS_PLAIN);
    }
    for (int t = 0; t < N_ROWS; t++) {
        for (int i = 0; i < D_K; i++)
            q[t][i] = random_float(&r, NUMBERS_PLAIN);
        for (int p = 0; p < S; p++)
            mask[t][p] = t == 3 || p % 5 == 4 ? -INFINITY : random_unit(&r);
    }
    k->attention_f16(out[0], D_V, q[0], D_K, N_ROWS, keys[0], D_K, values[0], D_V, D_K, D_V, begin, end,
                     mask[0], S, 0.3f, scratch);
    for (int t = 0; t < N_ROWS; t++) {
        double total = 0, sums[D_V] = {0};
        for (int p = begin[t]; p < end[t]; p++) {
            double s = 0;
            for (int i = 0; i < D_K; i++)
                s += (double)q[t][i] * (double)f16_to_f32(keys[p][i]);
            double weight = exp(s * (double)0.3f + (double)mask[t][p]);
            total += weight;
            for (int c = 0; c < D_V; c++)
                sums[c] += weight * (double)f16_to_f32(values[p][c]);
        }
        for (int c = 0; c < D_V; c++) {
            if (t >= 2) /* an empty range, and one that is all masked */
                assert_int_equal(float_bits(out[t][c]), 0);
            else
                assert_true(fabs(sums[c] / total - (double)out[t][c]) < 2e-6);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp),       cmocka_unit_test(test_tanh),
        cmocka_unit_test(test_gates),     cmocka_unit_test(test_linear),
        cmocka_unit_test(test_rope),      cmocka_unit_test(test_norms_and_softmax),
        cmocka_unit_test(test_attention),
    };
    k = kernel_table(CPU_SCALAR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
