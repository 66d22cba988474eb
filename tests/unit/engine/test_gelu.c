// links: arch
/* GELU and the soft cap of logits as graphs write them, over the whole range of fp16, against the same formulas in
 * double: nothing overflows to a NaN, in no precision and on no level of instructions, which all give the same bits. */
#include "program.h"
#include "arch/blocks.h"

enum { N = 0x10000 };
#define CAP 30.0

/* All finite numbers of fp16; infinities and NaN become 0. */
static void fill(float *x)
{
    for (int i = 0; i < N; i++) {
        float v = f16_to_f32((f16)i);
        x[i] = isfinite(v) ? v : 0;
    }
}

static double rounded(double v)
{
    return f16_to_f32(f64_to_f16(v));
}

/* With the constants that fp16 leaves of the formula's. */
static double gelu(double x, double c1, double c3)
{
    return x * (0.5 + 0.5 * tanh(x * (c1 + c3 * x * x)));
}

static double root(void)
{
    return sqrt(2 / acos(-1));
}

static struct program gelu_program(bool gated)
{
    struct program p = program_begin();
    struct mil_var *x = mil_build_input(p.b, "x", MIL_FP16, 4, SHAPE(1, N / 16, 1, 16)),
                   *y = block_gelu(p.b, x);
    if (gated)
        y = op2(&p, "mul", y, mil_build_input(p.b, "up", MIL_FP16, 4, SHAPE(1, N / 16, 1, 16)));
    program_end(&p, &y, 1);
    return p;
}

static struct program cap_program(void)
{
    struct program p = program_begin();
    struct mil_var *x = mil_build_input(p.b, "x", MIL_FP16, 3, SHAPE(1, 1, N));
    struct mil_var *y = block_scale(p.b, block_unary(p.b, "tanh", x, NULL), CAP, NULL);
    program_end(&p, &y, 1);
    return p;
}

/* Runs p in one precision at one level (NULL: the best). */
static void run(const struct program *p, enum engine_precision precision, const struct kernels *k,
                const float *x, float *y)
{
    struct engine_options options = {.precision = precision, .kernels = k};
    struct engine_plan *plan = NULL;
    struct engine_run *r = NULL;
    ASSERT_OK(engine_plan_new(&plan, p->m, "main", NULL, 0, &options, e));
    ASSERT_OK(engine_run_new(&r, plan, 1, e));
    for (int i = 0; i < engine_plan_inputs(plan); i++)
        engine_bind_input(r, i, x);
    ASSERT_OK(engine_execute(r, NULL, NULL, e));
    memcpy(y, engine_output(r, 0), N * sizeof *y);
    engine_run_free(r);
    engine_plan_free(plan);
}

static void assert_levels_agree(const struct program *p, const float *x, const float *y)
{
    float *other = xmalloc(N * sizeof *other);
    for (int level = CPU_SCALAR; level < CPU_LEVELS; level++) {
        const struct kernels *k = kernel_table((enum cpu_level)level);
        if (!k)
            continue;
        run(p, ENGINE_DEFAULT, k, x, other);
        assert_memory_equal(other, y, N * sizeof *y);
    }
    free(other);
}

static void test_gelu(void **state)
{
    (void)state;
    float *x = xmalloc(N * sizeof *x), *y = xmalloc(N * sizeof *y);
    double worst = 0, worst_true = 0;
    struct program p = gelu_program(false);
    fill(x);
    run(&p, ENGINE_DEFAULT, NULL, x, y);
    for (int i = 0; i < N; i++) {
        double want = gelu(x[i], rounded(root()), rounded(0.044715 * root())),
               exact = gelu(x[i], root(), 0.044715 * root());
        worst = fmax(worst, fabs(y[i] - want) / (1 + fabs((double)x[i])));
        worst_true = fmax(worst_true, fabs(y[i] - exact));
        if (fabsf(x[i]) >= 16 && y[i] != (x[i] > 0 ? x[i] : 0))
            fail_msg("GELU of %g: found %g", (double)x[i], (double)y[i]);
    }
    printf("GELU: at most %.2g (1 + |x|) from the graph's formula, %.2g from the exact one\n", worst,
           worst_true);
    assert_true(worst < 3e-7);
    assert_true(worst_true < 1e-4);
    assert_levels_agree(&p, x, y);
    /* Squares beyond fp16 are infinite where each op rounds, and the result is right. */
    run(&p, ENGINE_FP16, NULL, x, y);
    for (int i = 0; i < N; i++) {
        double exact = gelu(x[i], root(), 0.044715 * root());
        if (!(fabs(y[i] - exact) <= 4e-3 * (1 + fabs(exact))))
            fail_msg("GELU of %g with a rounding after each op: expected %g, found %g", (double)x[i], exact,
                     (double)y[i]);
    }
    program_free(&p);
    free(x);
    free(y);
}

/* The gate's product may leave fp16, as a float it is finite. */
static void test_gated(void **state)
{
    (void)state;
    float *x = xmalloc(N * sizeof *x), *y = xmalloc(N * sizeof *y);
    struct program p = gelu_program(true);
    fill(x);
    run(&p, ENGINE_DEFAULT, NULL, x, y);
    for (int i = 0; i < N; i++) {
        double want = x[i] * gelu(x[i], rounded(root()), rounded(0.044715 * root()));
        if (!(fabs(y[i] - want) <= 3e-7 * (1 + fabs((double)x[i])) * (1 + fabs((double)x[i]))))
            fail_msg("gated GELU of %g: expected %g, found %g", (double)x[i], want, (double)y[i]);
    }
    assert_levels_agree(&p, x, y);
    program_free(&p);
    free(x);
    free(y);
}

static void test_soft_cap(void **state)
{
    (void)state;
    float *x = xmalloc(N * sizeof *x), *y = xmalloc(N * sizeof *y);
    struct program p = cap_program();
    fill(x);
    for (int precision = ENGINE_DEFAULT; precision <= ENGINE_FP16; precision++) {
        double relative = precision == ENGINE_FP16 ? 1e-3 : 4e-7,
               smallest = precision == ENGINE_FP16 ? 2e-6 : 1e-30;
        run(&p, (enum engine_precision)precision, NULL, x, y);
        for (int i = 0; i < N; i++) {
            double want = CAP * tanh((double)x[i]);
            if (!(fabs(y[i] - want) <= relative * fabs(want) + smallest) || fabsf(y[i]) > (float)CAP)
                fail_msg("soft cap of %g: expected %.9g, found %.9g", (double)x[i], want, (double)y[i]);
            if (fabsf(x[i]) >= 16 && fabsf(y[i]) != (float)CAP)
                fail_msg("soft cap of %g: found %.9g", (double)x[i], (double)y[i]);
        }
        if (precision == ENGINE_DEFAULT)
            assert_levels_agree(&p, x, y);
    }
    program_free(&p);
    free(x);
    free(y);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gelu),
        cmocka_unit_test(test_gated),
        cmocka_unit_test(test_soft_cap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
