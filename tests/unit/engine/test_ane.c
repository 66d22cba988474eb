/* The emulation of the Neural Engine's arithmetic: bit for bit the numbers of a model in numpy (tests/data/ane), and the published
 * findings that it is meant to give. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/cpu.h"
#include "engine/ane.h"
#include "engine/engine.h"
#include "format/safetensors.h"
#include "mil/ops.h"
#include "support.h"

static struct safetensors *cases;
static const struct ane_model defaults;

static int open_cases(void **state)
{
    (void)state;
    ASSERT_OK(safetensors_open(&cases, MILKIT_TEST_DATA "/ane/cases.safetensors", e));
    return 0;
}

static int close_cases(void **state)
{
    (void)state;
    safetensors_close(cases);
    return 0;
}

/* A tensor as floats (heap); dims as it has them. */
static float *floats_of(const char *name, int64_t dims[2])
{
    const struct st_tensor *t = safetensors_find(cases, name);
    assert_non_null(t);
    float *dst = malloc(sizeof *dst * (size_t)(t->n_elems + 1));
    dims[0] = t->rank > 1 ? t->shape[0] : 1;
    dims[1] = t->shape[t->rank - 1];
    for (int64_t i = 0; i < t->n_elems; i++) {
        if (t->dtype == ST_F16)
            dst[i] = f16_to_f32(((const f16 *)t->data)[i]);
        else
            memcpy(&dst[i], (const char *)t->data + 4 * i, 4);
    }
    return dst;
}

static void same_bits(const char *what, int64_t i, float expected, float found)
{
    if (memcmp(&expected, &found, 4) != 0 && !(expected == 0 && found == 0))
        fail_msg("%s %lld: expected %a, found %a", what, (long long)i, (double)expected, (double)found);
}

/* y [n, m] of x [n, k] and w [m, k], with every form of the loop that this processor has. */
static void check_products(const struct ane_model *m, const char *x_name, const char *w_name,
                           const char *y_name, const char *bias_name, const char *scale_name)
{
    int64_t xd[2], wd[2], yd[2], other[2];
    float *x = floats_of(x_name, xd), *w = floats_of(w_name, wd), *y = floats_of(y_name, yd);
    float *bias = bias_name ? floats_of(bias_name, other) : NULL;
    float *scale = scale_name ? floats_of(scale_name, other) : NULL;
    float *xs = malloc(sizeof *xs * (size_t)xd[1]), *least = malloc(sizeof *xs * (size_t)xd[1]),
          *row = malloc(sizeof *xs * (size_t)xd[1]);
    ane_dot_fn forms[2] = {ane_dot_scalar, NULL};
#if defined(__x86_64__)
    if (cpu_has(CPU_AVX2))
        forms[1] = ane_dot_avx2;
#endif
    assert_int_equal(xd[1], wd[1]);
    for (int64_t i = 0; i < xd[0]; i++) {
        ane_prepare(m, xs, least, x + i * xd[1], 1, xd[1]);
        for (int64_t k = 0; k < wd[0]; k++) {
            ane_copy(row, w + k * wd[1], 1, wd[1]);
            for (int form = 0; form < 2 && forms[form]; form++)
                same_bits(y_name, i * wd[0] + k, y[i * wd[0] + k],
                          ane_product(m, forms[form], xs, least, row, xd[1], bias ? &bias[k] : NULL,
                                      scale ? scale : NULL));
            struct ane_sum sum = {0};
            for (int64_t at = 0; at < xd[1]; at++)
                ane_sum_add(m, &sum, x[i * xd[1] + at], w[k * wd[1] + at]);
            if (!scale)
                same_bits("one by one", k, y[i * wd[0] + k], ane_sum_end(m, &sum, bias ? bias[k] : 0));
        }
    }
    free(x);
    free(w);
    free(y);
    free(bias);
    free(scale);
    free(xs);
    free(least);
    free(row);
}

static void test_products(void **state)
{
    (void)state;
    const struct ane_model keep = {.keeps_small = true};
    check_products(&defaults, "mixed_x", "mixed_w", "mixed_y", NULL, NULL);
    check_products(&defaults, "mixed_x", "mixed_w", "mixed_bias_y", "mixed_bias", NULL);
    check_products(&keep, "mixed_x", "mixed_w", "mixed_keep_y", NULL, NULL);
    check_products(&defaults, "large_x", "large_w", "large_y", NULL, NULL);
    check_products(&defaults, "keys1024_p", "keys1024_v", "keys1024_y", NULL, NULL);
    check_products(&defaults, "keys4096_p", "keys4096_v", "keys4096_y", NULL, NULL);
}

/* A dot product that a device gave: exactly this number, if codes are summed and the scale comes behind. */
static void test_published_dot(void **state)
{
    (void)state;
    check_products(&defaults, "codes_x", "codes_w", "codes_y", NULL, "codes_scale");
}

static void test_rounding(void **state)
{
    (void)state;
    const struct st_tensor *t = safetensors_find(cases, "round_x");
    int64_t dims[2];
    float *y = floats_of("round_y", dims);
    assert_int_equal(t->dtype, ST_F64);
    for (int64_t i = 0; i < t->n_elems; i++) {
        double x;
        memcpy(&x, (const char *)t->data + 8 * i, 8);
        same_bits("rounding", i, y[i], ane_round(x));
    }
    free(y);
}

static void test_functions(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int id;
    } rows[] = {{"sigmoid", MIL_OP_SIGMOID}, {"tanh", MIL_OP_TANH},      {"silu", MIL_OP_SILU},
                {"gelu", MIL_OP_GELU},       {"exp", MIL_OP_EXP},        {"exp2", MIL_OP_EXP2},
                {"erf", MIL_OP_ERF},         {"log", MIL_OP_LOG},        {"rsqrt", MIL_OP_RSQRT},
                {"sqrt", MIL_OP_SQRT},       {"inverse", MIL_OP_INVERSE}};
    int64_t dims[2];
    float *x = floats_of("function_x", dims);
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        char name[64];
        bool is_positive = k >= 7 && k <= 9;
        snprintf(name, sizeof name, "function_%s", rows[k].name);
        float *y = floats_of(name, dims);
        for (int64_t i = 0; i < dims[1];
             i++) /* 0 has no exponent: what the engine gives there is not known */
            if (k < 7 || x[i] > 0 || (x[i] < 0 && !is_positive))
                same_bits(name, i, y[i], ane_unary(&defaults, rows[k].id, x[i], 0, 0));
        free(y);
    }
    free(x);
}

static void test_pairs(void **state)
{
    (void)state;
    int64_t dims[2];
    float *x = floats_of("pair_x", dims), *y = floats_of("pair_y", dims), *add = floats_of("pair_add", dims),
          *sub = floats_of("pair_sub", dims), *mul = floats_of("pair_mul", dims);
    for (int64_t i = 0; i < dims[1]; i++) {
        same_bits("add", i, add[i], ane_binary(MIL_OP_ADD, x[i], y[i]));
        same_bits("sub", i, sub[i], ane_binary(MIL_OP_SUB, x[i], y[i]));
        same_bits("mul", i, mul[i], ane_binary(MIL_OP_MUL, x[i], y[i]));
    }
    assert_true(ane_binary(MIL_OP_ADD, NAN, 1) == INFINITY); /* as it was measured */
    assert_true(ane_binary(MIL_OP_ADD, -INFINITY, 5) == -INFINITY);
    free(x);
    free(y);
    free(add);
    free(sub);
    free(mul);
}

/* ---- published findings ---- */

static double worst(int id, bool is_form, bool times_x)
{
    double most = 0;
    for (int i = -8000; i <= 8000; i++) {
        float x = ane_round(i * 0.001), y;
        double exact = 1 / (1 + exp(-(double)x));
        if (is_form) {
            y = ane_unary(&defaults, MIL_OP_TANH, ane_binary(MIL_OP_MUL, x, 0.5f), 0, 0);
            y = ane_binary(MIL_OP_ADD, ane_binary(MIL_OP_MUL, y, 0.5f), 0.5f);
            y = times_x ? ane_binary(MIL_OP_MUL, x, y) : y;
        } else {
            y = ane_unary(&defaults, id, x, 0, 0);
        }
        double error = fabs((double)y - (times_x ? (double)x * exact : exact));
        most = error > most ? error : most;
    }
    return most;
}

static void within(const char *what, double found, double low, double high)
{
    printf("%s: %.5g (expected %.5g to %.5g)\n", what, found, low, high);
    if (!(found >= low && found <= high))
        fail_msg("%s: expected %g to %g, found %g", what, low, high, found);
}

static void test_activations(void **state)
{
    (void)state;
    within("sigmoid, measured 3.4e-3", worst(MIL_OP_SIGMOID, false, false), 3.2e-3, 3.5e-3);
    within("silu, measured 1.5e-2 (our nodes: least squares)", worst(MIL_OP_SILU, false, true), 0.9e-2,
           1.6e-2);
    within("0.5 + 0.5 tanh(x / 2)", worst(0, true, false), 0.8e-3, 1.1e-3);
    within("x times that", worst(0, true, true), 3.3e-3, 4.1e-3);
}

/* Numbers that look random: the same in every run. */
static uint64_t seed;

static double uniform(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return ((double)(seed >> 11) + 0.5) * 0x1p-53;
}

static double normal(void)
{
    double radius = sqrt(-2 * log(uniform()));
    return radius * cos(6.283185307179586 * uniform());
}

/* Relative error of probabilities times values, as a share; p between low and high, times factor. */
static double attention_error(int64_t n_keys, double low, double high, double factor)
{
    const int64_t n = 192;
    float *p = malloc(sizeof *p * (size_t)n_keys), *v = malloc(sizeof *p * (size_t)n_keys),
          *xs = malloc(sizeof *p * (size_t)n_keys), *least = malloc(sizeof *p * (size_t)n_keys);
    double off = 0, size = 0;
    seed = 5;
    for (int64_t k = 0; k < n_keys; k++)
        p[k] = ane_round(low + (high - low) * uniform());
    float *scaled = malloc(sizeof *p * (size_t)n_keys);
    for (int64_t k = 0; k < n_keys; k++)
        scaled[k] = (float)((double)p[k] * factor);
    ane_prepare(&defaults, xs, least, scaled, 1, n_keys);
    for (int64_t i = 0; i < n; i++) {
        double exact = 0;
        for (int64_t k = 0; k < n_keys; k++) {
            v[k] = ane_round(0.5 * normal());
            exact += (double)p[k] * (double)v[k];
        }
        double y =
            (double)ane_product(&defaults, ane_dot_select(), xs, least, v, n_keys, NULL, NULL) / factor;
        off += (y - exact) * (y - exact);
        size += exact * exact;
    }
    free(p);
    free(v);
    free(xs);
    free(least);
    free(scaled);
    return sqrt(off / size);
}

static void test_attention(void **state)
{
    (void)state;
    within("4096 keys, device 3.95 %", attention_error(4096, 0.000244, 0.000248, 1), 0.035, 0.048);
    within("4096 keys, P x 16, device 0.22 %", attention_error(4096, 0.000244, 0.000248, 16), 0.0017, 0.0027);
    within("4096 keys, P x 64, device 0.060 %", attention_error(4096, 0.000244, 0.000248, 64), 0.00045,
           0.00075);
    within("1024 keys, device 1.01 %", attention_error(1024, 1.0 / 1024, 1.0 / 1024, 1), 0.0080, 0.0112);
}

/* Values of 0.0005 and 0.00025 under 4096 probabilities vanish. */
static void test_small_values_vanish(void **state)
{
    (void)state;
    enum { N = 4096 };
    static float p[N], v[N], xs[N], least[N];
    for (int value = 0; value < 2; value++) {
        for (int k = 0; k < N; k++) {
            p[k] = ane_round(0.000246);
            v[k] = ane_round(value ? 0.00025 : 0.0005);
        }
        ane_prepare(&defaults, xs, least, p, 1, N);
        assert_true(ane_product(&defaults, ane_dot_select(), xs, least, v, N, NULL, NULL) == 0);
    }
}

/* ---- the gated delta rule ---- */

enum { HEADS = 4, WIDTH = 128, TOKENS = 48, SKIPPED = 8 };

struct delta_data {
    float q[TOKENS][WIDTH], k[TOKENS][WIDTH], v[TOKENS][WIDTH], g[TOKENS], beta[TOKENS];
};

static void make_data(struct delta_data *d, double rate, double value_size)
{
    double base[WIDTH];
    for (int i = 0; i < WIDTH; i++)
        base[i] = normal();
    for (int t = 0; t < TOKENS; t++) {
        for (int i = 0; i < WIDTH; i++) {
            d->q[t][i] = ane_round(sqrt(0.5) * (normal() + base[i]));
            d->k[t][i] = ane_round(sqrt(0.5) * (normal() + base[i]));
            d->v[t][i] = ane_round(value_size * normal());
        }
        d->g[t] = ane_round(-rate * exp(0.5 * normal()));
        d->beta[t] = ane_round(1 / (1 + exp(-1.5 * normal())));
    }
}

static void unit(double *dst, const float *x)
{
    double sum = 1e-6;
    for (int i = 0; i < WIDTH; i++)
        sum += (double)x[i] * (double)x[i];
    for (int i = 0; i < WIDTH; i++)
        dst[i] = (double)x[i] / sqrt(sum);
}

/* As transformers computes it, in double. */
static void exact_delta(const struct delta_data *d, double (*y)[WIDTH])
{
    static double s[WIDTH][WIDTH];
    double q[WIDTH], k[WIDTH];
    memset(s, 0, sizeof s);
    for (int t = 0; t < TOKENS; t++) {
        unit(q, d->q[t]);
        unit(k, d->k[t]);
        for (int j = 0; j < WIDTH; j++) {
            double memory = 0, out = 0;
            for (int i = 0; i < WIDTH; i++) {
                s[i][j] *= exp((double)d->g[t]);
                memory += s[i][j] * k[i];
            }
            double delta = ((double)d->v[t][j] - memory) * (double)d->beta[t];
            for (int i = 0; i < WIDTH; i++) {
                s[i][j] += k[i] * delta;
                out += s[i][j] * q[i];
            }
            y[t][j] = out;
        }
    }
}

static float vector_product(const float *x, const float *w, int64_t stride)
{
    float xs[WIDTH], least[WIDTH], row[WIDTH];
    ane_prepare(&defaults, xs, least, x, 1, WIDTH);
    ane_copy(row, w, stride, WIDTH);
    return ane_product(&defaults, ane_dot_select(), xs, least, row, WIDTH, NULL, NULL);
}

/* The same by the emulation. is_scaled: q, k and the state times sqrt(WIDTH), as packages have them. */
static void emulated_delta(const struct delta_data *d, bool is_scaled, double (*y)[WIDTH])
{
    static float s[WIDTH][WIDTH];
    double exact[WIDTH];
    float q[WIDTH], k[WIDTH], small_k[WIDTH], small_q[WIDTH];
    const double size = is_scaled ? sqrt(WIDTH) : 1;
    memset(s, 0, sizeof s);
    for (int t = 0; t < TOKENS; t++) {
        unit(exact, d->q[t]);
        for (int i = 0; i < WIDTH; i++)
            q[i] = ane_round(exact[i] * size);
        unit(exact, d->k[t]);
        for (int i = 0; i < WIDTH; i++) {
            k[i] = ane_round(exact[i] * size);
            small_k[i] = is_scaled ? ane_binary(MIL_OP_MUL, k[i], 1.0f / WIDTH) : k[i];
            small_q[i] = ane_binary(MIL_OP_MUL, q[i], is_scaled ? 0.125f : ane_round(1 / sqrt(WIDTH)));
        }
        float decay = ane_unary(&defaults, MIL_OP_EXP, d->g[t], 0, 0);
        for (int i = 0; i < WIDTH; i++)
            for (int j = 0; j < WIDTH; j++)
                s[i][j] = ane_binary(MIL_OP_MUL, s[i][j], decay);
        for (int j = 0; j < WIDTH; j++) {
            float memory = vector_product(small_k, &s[0][j], WIDTH);
            float delta = ane_binary(MIL_OP_MUL, ane_binary(MIL_OP_SUB, d->v[t][j], memory), d->beta[t]);
            for (int i = 0; i < WIDTH; i++) {
                struct ane_sum one = {0};
                ane_sum_add(&defaults, &one, k[i], delta);
                s[i][j] = ane_binary(MIL_OP_ADD, s[i][j], ane_sum_end(&defaults, &one, 0));
            }
            y[t][j] = (double)vector_product(small_q, &s[0][j], WIDTH);
        }
    }
}

/* Cosine of the normed outputs behind the first tokens: scale falls out. */
static double delta_cosine(bool is_scaled, double value_size)
{
    static struct delta_data d;
    static double exact[TOKENS][WIDTH], found[TOKENS][WIDTH];
    const double rates[HEADS] = {2e-3, 2e-2, 0.2, 4.0};
    double dot = 0, n_exact = 0, n_found = 0;
    seed = 11;
    for (int h = 0; h < HEADS; h++) {
        make_data(&d, rates[h], value_size);
        exact_delta(&d, exact);
        emulated_delta(&d, is_scaled, found);
        for (int t = SKIPPED; t < TOKENS; t++) {
            double a = 1e-30, b = 1e-30;
            for (int i = 0; i < WIDTH; i++) {
                a += exact[t][i] * exact[t][i];
                b += found[t][i] * found[t][i];
            }
            for (int i = 0; i < WIDTH; i++)
                dot += exact[t][i] * found[t][i] / sqrt(a * b);
            n_exact += 1;
            n_found += 1;
        }
    }
    return dot / sqrt(n_exact * n_found);
}

static void test_gated_delta(void **state)
{
    (void)state;
    within("without sqrt(d_k), values of 0.025; a device gave 0.97", delta_cosine(false, 0.025), 0.94, 0.985);
    within("with sqrt(d_k); a device gave 0.9999", delta_cosine(true, 0.025), 0.9999, 1);
    within("without, values of 1", delta_cosine(false, 1.0), 0.9999, 1);
    within("with, values of 0.01", delta_cosine(true, 0.01), 0.9998, 1);
}

/* ---- switches ---- */

static void test_switches(void **state)
{
    (void)state;
    struct ane_model m;
    struct err e = {0};
    uint64_t number = 9;
    ASSERT_OK(ane_model_read(&m, "norm=fp16,tables=exact,sums=m1,small=keep,scales=before", e));
    assert_true(m.fp16_norms && m.exact_functions && m.keeps_small && m.scales_in_weights);
    assert_int_equal(m.sums, ANE_SUMS_M1);
    ASSERT_OK(engine_emulation_check(NULL, &number, e));
    assert_int_equal(number, 0);
    ASSERT_OK(engine_emulation_check("norm=float32", &number, e));
    assert_int_equal(number, 0);
    ASSERT_OK(engine_emulation_check("norm=fp16", &number, e));
    assert_int_not_equal(number, 0);
    static const char *const bad[] = {"norm",        "norm=", "norm=fp32",   "norms=fp16",
                                      "norm=fp16,,", "=",     "sums=fixed,x"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_false(ane_model_read(&m, bad[i], &e));
        assert_int_equal(e.code, ERR_USAGE);
        assert_non_null(strstr(e.msg, "norm=float32|fp16"));
    }
}

/* What each switch does to one product and one function. */
static void test_switches_have_an_effect(void **state)
{
    (void)state;
    const struct ane_model exact = {.sums = ANE_SUMS_EXACT}, old = {.sums = ANE_SUMS_M1},
                           functions = {.exact_functions = true};
    float x[64], w[64], xs[64], least[64];
    for (int i = 0; i < 64; i++) {
        x[i] = ane_round(0x1.8p-9);
        w[i] = ane_round(0x1.8p-8);
    }
    ane_prepare(&defaults, xs, least, x, 1, 64);
    assert_true(ane_product(&defaults, ane_dot_scalar, xs, least, w, 64, NULL, NULL) ==
                0); /* dropped: 2.25 units of 2^-17 */
    assert_true(ane_product(&exact, ane_dot_scalar, xs, least, w, 64, NULL, NULL) ==
                ane_round(64 * 0x1.2p-16));
    assert_true(ane_product(&old, ane_dot_scalar, xs, least, w, 64, NULL, NULL) == 0); /* subnormal in fp16 */
    float table = ane_unary(&defaults, MIL_OP_SILU, 0.5f, 0, 0),
          own = ane_unary(&functions, MIL_OP_SILU, 0.5f, 0, 0);
    assert_true(table < own); /* 0.296 was measured where 0.311 is right */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_published_dot),
        cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_functions),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_activations),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_small_values_vanish),
        cmocka_unit_test(test_gated_delta),
        cmocka_unit_test(test_switches),
        cmocka_unit_test(test_switches_have_an_effect),
    };
    return cmocka_run_group_tests(tests, open_cases, close_cases);
}
