// links: arch
/* The RMS norm as one step: with no gain, with one, with one in two parts; programs that differ in one place are not
 * taken for it, and are still right. */
#include "program.h"
#include "arch/blocks.h"

/* Sums of a few hundred float32 terms in another order. */
#define CLOSE 1e-5

static const struct mil_value *weights(struct program *p, int64_t n)
{
    f16 *w = xcalloc((size_t)n, sizeof *w);
    for (int64_t i = 0; i < n; i++)
        w[i] = f32_to_f16(noise(77, (size_t)i));
    const struct mil_value *v = mil_value_new(p->m, MIL_FP16, 1, &n, w);
    free(w);
    return v;
}

static void test_rms_norm(void **state)
{
    (void)state;
    static const int64_t shapes[][4] = {{1, 3, 1, 40}, {1, 4, 5, 64}, {2, 1, 1, 17}, {1, 1, 1, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (int weighted = 0; weighted < 2; weighted++) {
            struct program p = program_begin();
            struct mil_var *x = mil_build_input(p.b, "x", MIL_FP16, 4, shapes[i]);
            struct mil_var *y =
                block_rms_norm(p.b, x, weighted ? weights(&p, shapes[i][3]) : NULL, 1e-6, NULL);
            program_end(&p, &y, 1);
            assert_int_equal(agree(&p, NULL, 0, CLOSE, "rms norm"), 1);
            program_free(&p);
        }
    }
}

/* Heads are a transposed view, as behind a convolution. */
static void test_rms_norm_of_heads(void **state)
{
    (void)state;
    struct program p = program_begin();
    struct mil_var *x = mil_build_input(p.b, "x", MIL_FP16, 4, SHAPE(1, 6 * 32, 1, 7));
    const struct mil_value *gain = weights(&p, 32);
    struct mil_var *y = block_rms_norm(p.b, block_to_heads(p.b, x, 6), gain, 1e-6, NULL);
    program_end(&p, &y, 1);
    assert_int_equal(agree(&p, NULL, 0, CLOSE, "rms norm"), 1);
    program_free(&p);
}

/* Rows of zeros and rows whose squares leave fp16. */
static void test_rms_norm_extremes(void **state)
{
    (void)state;
    float x[3][32];
    for (int i = 0; i < 32; i++) {
        x[0][i] = 0;
        x[1][i] = 6e4f * (i % 2 ? 1 : -1);
        x[2][i] = 1e-4f * (float)(i - 16);
    }
    struct program p = program_begin();
    struct mil_var *in = mil_build_input(p.b, "x", MIL_FP16, 3, SHAPE(1, 3, 32));
    struct mil_var *y = block_rms_norm(p.b, in, NULL, 1e-6, NULL);
    program_end(&p, &y, 1);
    const struct program_input inputs[] = {{"x", x}};
    assert_int_equal(agree(&p, inputs, 1, CLOSE, "rms norm"), 1);
    struct machine k;
    machine_open(&k, p.m, ENGINE_DEFAULT, 1);
    machine_execute(&k, inputs, 1);
    const float *got = engine_output(k.run, 0);
    for (int i = 0; i < 32; i++) {
        assert_true(got[i] == 0);
        assert_true(fabsf(got[32 + i] - (i % 2 ? 1.0f : -1.0f)) < 1e-6f);
    }
    machine_close(&k);
    program_free(&p);
}

enum { RMS_N = 24 };

/* The pattern in pieces, with one thing changed. */
static int rms_variant(int variant)
{
    struct program p = program_begin();
    struct mil_var *x = mil_build_input(p.b, "x", MIL_FP16, 3, SHAPE(1, 3, RMS_N)),
                   *outputs[2] = {NULL, NULL};
    struct mil_var *negated = block_scale(p.b, x, variant == 1 ? -1.5 : -1.0, NULL);
    struct mil_var *both[2] = {variant == 2 ? negated : x, variant == 2 ? x : negated};
    if (variant == 3)
        both[0] = op1(&p, "abs", x);
    struct mil_var *joined = block_concat(p.b, both, 2, -1, NULL);
    struct mil_build_arg args[5] = {{.name = "x", .var = joined},
                                    MIL_ARG_INTS("axes", ((int32_t[]){-1}), 1),
                                    MIL_ARG_F16("epsilon", 1e-5)};
    int n_args = 3;
    if (variant == 4)
        args[n_args++] = (struct mil_build_arg){.name = "gamma",
                                                .var = mil_build_const(p.b, weights(&p, 2 * RMS_N), NULL)};
    struct mil_var *norm = mil_build_op(p.b, "layer_norm", NULL, args, n_args);
    int64_t begin = variant == 5   ? RMS_N
                    : variant == 6 ? 1
                                   : 0,
            end = variant == 7 ? RMS_N - 1 : begin + RMS_N;
    struct mil_var *half = block_slice(p.b, norm, 2, begin, end, NULL);
    outputs[0] = variant == 7
                     ? half
                     : block_binary(p.b, "mul", half, mil_build_const(p.b, weights(&p, RMS_N), NULL), NULL);
    outputs[1] = variant == 8    ? negated
                 : variant == 9  ? joined
                 : variant == 10 ? norm
                 : variant == 11 ? half
                 : variant == 12 ? block_slice(p.b, norm, 2, RMS_N, 2 * RMS_N, NULL)
                                 : NULL;
    program_end(&p, outputs, outputs[1] ? 2 : 1);
    int n = agree(&p, NULL, 0, CLOSE, "rms norm");
    program_free(&p);
    return n;
}

static void test_rms_norm_near_misses(void **state)
{
    (void)state;
    assert_int_equal(rms_variant(0), 1);
    for (int variant = 1; variant <= 12; variant++) {
        int expected = variant == 11; /* the norm without its gain is a pattern of its own */
        if (rms_variant(variant) != expected)
            fail_msg("variant %d: expected %d fused steps", variant, expected);
    }
}

/* A gain of two constants, with one thing changed. Multiplications that stay: *products. */
static void split_gain_variant(int variant, int n_fused, int products)
{
    struct program p = program_begin();
    struct mil_var *x = mil_build_input(p.b, "x", MIL_FP16, 3, SHAPE(1, 3, RMS_N)), *outputs[2] = {NULL};
    if (variant == 0) {
        const struct mil_value *gain = weights(&p, RMS_N);
        outputs[0] = block_rms_norm_split(p.b, x, gain, weights(&p, RMS_N), 1e-6, NULL);
    } else {
        struct mil_var *y = block_rms_norm(p.b, x, NULL, 1e-6, NULL);
        struct mil_var *a = block_binary(p.b, "mul", y, mil_build_const(p.b, weights(&p, RMS_N), NULL), NULL);
        struct mil_var *b =
            block_binary(p.b, "mul", variant == 1 ? x : y,
                         variant == 2 ? x : mil_build_const(p.b, weights(&p, RMS_N), NULL), NULL);
        outputs[0] = block_binary(p.b, variant == 3 ? "sub" : "add", a, b, NULL);
        outputs[1] = variant == 4 ? y : variant == 5 ? a : variant == 6 ? op1(&p, "abs", y) : NULL;
    }
    program_end(&p, outputs, outputs[1] ? 2 : 1);
    int found = agree(&p, NULL, 0, CLOSE, "rms norm"), left = agree(&p, NULL, 0, CLOSE, "mul");
    if (found != n_fused || left != products)
        fail_msg("variant %d: %d norms and %d products", variant, found, left);
    program_free(&p);
}

static void test_rms_norm_split_gain(void **state)
{
    (void)state;
    split_gain_variant(0, 1, 0);
    split_gain_variant(1, 1, 1); /* the first product is a gain of its own */
    for (int variant = 2; variant <= 6; variant++)
        split_gain_variant(variant, 1, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rms_norm),
        cmocka_unit_test(test_rms_norm_of_heads),
        cmocka_unit_test(test_rms_norm_extremes),
        cmocka_unit_test(test_rms_norm_near_misses),
        cmocka_unit_test(test_rms_norm_split_gain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
