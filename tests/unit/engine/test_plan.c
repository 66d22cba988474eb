// links: arch
/* Plans: what is refused before anything runs, hostile sizes, empty tensors, inputs and outputs of every kind. */
#include "program.h"
#include "arch/blocks.h"

static struct mil_var *tile(struct program *p, struct mil_var *x, const int32_t *reps, int n)
{
    return mil_build_op(p->b, "tile", NULL, ARGS({.name = "x", .var = x}, MIL_ARG_INTS("reps", reps, n)), 2);
}

/* x without its elements along an axis. */
static struct mil_var *nothing_of(struct program *p, struct mil_var *x, int axis)
{
    int32_t begin[3] = {0, 0, 0}, end[3] = {2, 3, 4};
    begin[axis] = end[axis] = 1;
    return mil_build_op(
        p->b, "slice_by_index", NULL,
        ARGS({.name = "x", .var = x}, MIL_ARG_INTS("begin", begin, 3), MIL_ARG_INTS("end", end, 3)), 3);
}

/* Planning fails with the code, or the program runs as it should. */
static void expect_refusal(struct program *p, struct mil_var *y, enum err_code code)
{
    struct engine_plan *plan = NULL;
    struct err e = {0};
    program_end(p, &y, 1);
    for (int k = 0; k < 2; k++) {
        struct engine_options options = {.precision = k ? ENGINE_FP32 : ENGINE_DEFAULT};
        if (engine_plan_new(&plan, p->m, "main", NULL, 0, &options, &e))
            fail_msg("planned with %llu bytes of workspace",
                     (unsigned long long)engine_plan_arena_bytes(plan));
        assert_null(plan);
        if (e.code != code)
            fail_msg("expected code %d, found %d: %s", code, e.code, e.msg);
    }
    program_free(p);
}

/* ---- sizes that no machine holds ---- */

static void test_huge_broadcast(void **state)
{
    (void)state;
    const int32_t reps[5] = {1 << 16, 1 << 15, 1 << 15, 1 << 15, 1};
    struct program p = program_begin();
    struct mil_var *x = mil_build_input(p.b, "x", MIL_FP32, 5, SHAPE(1, 1, 1, 1, 1));
    struct mil_var *wide = tile(&p, x, reps, 5); /* 2^61 elements, all of them one number */
    expect_refusal(&p, op2(&p, "add", wide, wide), ERR_LIMIT);
}

static void test_sizes_that_wrap_around(void **state)
{
    (void)state;
    const int32_t reps[5] = {1 << 16, 1 << 16, 1 << 15, 1 << 15, 1};
    struct program p = program_begin();
    struct mil_var *x = mil_build_input(p.b, "x", MIL_FP32, 5, SHAPE(1, 1, 1, 1, 1));
    struct mil_var *wide = tile(&p, x, reps, 5); /* 2^62 elements: 2^64 bytes */
    expect_refusal(&p, op2(&p, "add", wide, wide), ERR_LIMIT);
}

static void test_huge_input(void **state)
{
    (void)state;
    struct program p = program_begin();
    struct mil_var *x = mil_build_input(p.b, "x", MIL_FP32, 4, SHAPE(1 << 16, 1 << 16, 1 << 16, 1 << 14));
    expect_refusal(&p, op1(&p, "abs", x), ERR_LIMIT);
}

static void test_huge_state(void **state)
{
    (void)state;
    struct program p = program_begin();
    struct mil_var *s = mil_build_state(p.b, "s", MIL_FP16, 4, SHAPE(1 << 16, 1 << 16, 1 << 16, 1 << 14));
    struct mil_var *y = block_slice(p.b, read_state(&p, s), 0, 0, 1, NULL);
    expect_refusal(&p, y, ERR_LIMIT);
}

/* Many repetitions of more than one element: one step, not one a repetition. */
static void test_many_repetitions(void **state)
{
    (void)state;
    const int32_t reps[2] = {300, 200};
    struct program p = program_begin();
    struct mil_var *x = mil_build_input(p.b, "x", MIL_FP32, 2, SHAPE(2, 3));
    struct mil_var *y = tile(&p, x, reps, 2);
    program_end(&p, &y, 1);
    struct machine m;
    machine_open(&m, p.m, ENGINE_DEFAULT, 2);
    assert_true(strstr(m.listing, "function main: 1 step") != NULL);
    machine_execute(&m, NULL, 0);
    const float *got = engine_output(m.run, 0), *in = engine_input(m.run, 0);
    for (int i = 0; i < 600; i++)
        for (int j = 0; j < 600; j++)
            assert_true(got[i * 600 + j] == in[i % 2 * 3 + j % 3]);
    machine_close(&m);
    program_free(&p);
}

static void test_many_repetitions_of_nothing(void **state)
{
    (void)state;
    const int32_t reps[3] = {1 << 30, 1 << 30, 1};
    struct program p = program_begin();
    struct mil_var *x = mil_build_input(p.b, "x", MIL_FP32, 3, SHAPE(2, 3, 4));
    struct mil_var *none = nothing_of(&p, x, 2);
    struct mil_var *y = none ? tile(&p, none, reps, 3) : NULL;
    if (mil_builder_failed(p.b)) { /* empty tensors may be refused when the program is made */
        struct err e = {0};
        assert_false(mil_builder_finish(p.b, &y, 1, &e));
        program_free(&p);
        return;
    }
    program_end(&p, &y, 1);
    struct engine_plan *plan = NULL;
    struct err e = {0};
    bool planned = engine_plan_new(&plan, p.m, "main", NULL, 0, NULL, &e);
    assert_true(planned || e.code == ERR_UNSUPPORTED || e.code == ERR_LIMIT || e.code == ERR_FORMAT);
    engine_plan_free(plan);
    program_free(&p);
}

/* ---- refusals that name what is wrong ---- */

static void test_unknown_function(void **state)
{
    (void)state;
    struct program p = program_begin();
    struct mil_var *y = op1(&p, "abs", mil_build_input(p.b, "x", MIL_FP32, 1, SHAPE(3)));
    struct engine_plan *plan = NULL;
    struct err e = {0};
    program_end(&p, &y, 1);
    assert_false(engine_plan_new(&plan, p.m, "prefill", NULL, 0, NULL, &e));
    assert_int_equal(e.code, ERR_FORMAT);
    assert_non_null(strstr(e.msg, "prefill"));
    program_free(&p);
}

static void test_open_shapes(void **state)
{
    (void)state;
    struct program p = program_begin();
    struct mil_var *x = mil_build_input(p.b, "x", MIL_FP32, 2, SHAPE(MIL_DIM_UNKNOWN, 4));
    struct mil_var *y = op2(&p, "mul", x, x);
    struct engine_plan *plan = NULL;
    struct err e = {0};
    program_end(&p, &y, 1);
    assert_false(engine_plan_new(&plan, p.m, "main", NULL, 0, NULL, &e));
    assert_int_equal(e.code, ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "x"));
    const struct mil_input_shape wrong[] = {{"x", 2, {3, 5}},  {"x", 1, {12}},   {"x", 2, {0, 4}},
                                            {"x", 2, {-1, 4}}, {"z", 2, {3, 4}}, {"x", 3, {1, 3, 4}}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        e = (struct err){0};
        assert_false(engine_plan_new(&plan, p.m, "main", &wrong[i], 1, NULL, &e));
        assert_int_equal(e.code, ERR_USAGE);
        assert_non_null(strstr(e.msg, wrong[i].input));
    }
    for (int64_t n = 1; n <= 3; n++) {
        const struct mil_input_shape shape = {"x", 2, {n, 4}};
        struct engine_run *r = NULL;
        ASSERT_OK(engine_plan_new(&plan, p.m, "main", &shape, 1, NULL, e));
        assert_int_equal(engine_plan_input(plan, 0)->n_elems, 4 * n);
        assert_int_equal(engine_plan_output(plan, 0)->dims[0], n);
        ASSERT_OK(engine_run_new(&r, plan, 1, e));
        for (int i = 0; i < 4 * n; i++)
            ((float *)engine_input(r, 0))[i] = (float)i;
        ASSERT_OK(engine_execute(r, NULL, NULL, e));
        for (int i = 0; i < 4 * n; i++)
            assert_true(((const float *)engine_output(r, 0))[i] == (float)(i * i));
        engine_run_free(r);
        engine_plan_free(plan);
    }
    program_free(&p);
}

static void test_unsupported_op_is_named(void **state)
{
    (void)state;
    struct program p = program_begin();
    struct mil_var *x = mil_build_input(p.b, "x", MIL_FP32, 4, SHAPE(1, 4, 3, 3));
    struct mil_var *y = mil_build_op(p.b, "non_zero", "picture", ARGS({.name = "x", .var = x}), 1);
    struct engine_plan *plan = NULL;
    struct err e = {0};
    program_end(&p, &y, 1);
    assert_false(engine_plan_new(&plan, p.m, "main", NULL, 0, NULL, &e));
    assert_int_equal(e.code, ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "non_zero"));
    assert_non_null(strstr(e.msg, "picture"));
    program_free(&p);
}

/* ---- outputs and inputs ---- */

/* An input, a constant, a view and one value twice are all returned; none of them is the caller's memory. */
static void test_outputs_of_every_kind(void **state)
{
    (void)state;
    const float seven[6] = {7, 8, 9, 10, 11, 12};
    const int32_t perm[2] = {1, 0};
    struct program p = program_begin();
    struct mil_var *x = mil_build_input(p.b, "x", MIL_FP32, 2, SHAPE(2, 3));
    struct mil_var *outputs[4];
    outputs[0] = op1(&p, "identity", x);
    outputs[1] = mil_build_const(p.b, mil_value_new(p.m, MIL_FP32, 2, SHAPE(2, 3), seven), "seven");
    outputs[2] = block_transpose(p.b, x, 2, perm, NULL);
    outputs[3] = op2(&p, "add", x, x);
    program_end(&p, outputs, 4);
    for (int k = 0; k < 3; k++) {
        struct machine m;
        machine_open(&m, p.m, (enum engine_precision)k, 1);
        float bound[6] = {1, 2, 3, 4, 5, 6};
        engine_bind_input(m.run, 0, bound);
        ASSERT_OK(engine_execute(m.run, NULL, m.pool, e));
        for (int i = 0; i < 6; i++) {
            assert_true(((const float *)engine_output(m.run, 0))[i] == (float)(i + 1));
            assert_true(((const float *)engine_output(m.run, 1))[i] == seven[i]);
            assert_true(((const float *)engine_output(m.run, 2))[i] == (float)(i % 2 * 3 + i / 2 + 1));
            assert_true(((const float *)engine_output(m.run, 3))[i] == (float)(2 * i + 2));
        }
        for (int i = 0; i < 4; i++)
            assert_ptr_not_equal(engine_output(m.run, i), bound);
        /* Back to the run's own buffer. */
        engine_bind_input(m.run, 0, NULL);
        for (int i = 0; i < 6; i++)
            ((float *)engine_input(m.run, 0))[i] = -1;
        ASSERT_OK(engine_execute(m.run, NULL, m.pool, e));
        assert_true(((const float *)engine_output(m.run, 3))[5] == -2);
        machine_close(&m);
    }
    program_free(&p);
}

static void test_rounding_of_outputs(void **state)
{
    (void)state;
    struct program p = program_begin();
    struct mil_var *x = mil_build_input(p.b, "x", MIL_FP16, 1, SHAPE(3));
    struct mil_var *y = op2(&p, "add", x, mil_build_f16(p.b, 0x1p-12, NULL));
    program_end(&p, &y, 1);
    const float in[3] = {1, 1 + 0x1p-10f, 65504};
    const struct program_input inputs[] = {{"x", in}};
    struct machine m;
    machine_open(&m, p.m, ENGINE_DEFAULT, 1);
    machine_execute(&m, inputs, 1);
    const float *got = engine_output(m.run, 0);
    assert_true(got[0] == 1 + 0x1p-12f); /* float32 until the caller rounds */
    engine_round_output(m.run, 0);
    assert_true(got[0] == 1 && got[1] == 1 + 0x1p-10f && got[2] == 65504);
    machine_close(&m);
    machine_open(&m, p.m, ENGINE_FP16, 1);
    machine_execute(&m, inputs, 1);
    assert_true(((const float *)engine_output(m.run, 0))[0] == 1); /* per op */
    machine_close(&m);
    program_free(&p);
}

static void test_ports_and_listing(void **state)
{
    (void)state;
    struct program p = program_begin();
    struct mil_var *x = mil_build_input(p.b, "x", MIL_FP16, 2, SHAPE(3, 8)),
                   *n = mil_build_input(p.b, "n", MIL_INT32, 1, SHAPE(1));
    float weight[16 * 8];
    for (int i = 0; i < 16 * 8; i++)
        weight[i] = noise(3, (size_t)i);
    struct mil_var *w = mil_build_const(p.b, mil_value_new(p.m, MIL_FP32, 2, SHAPE(16, 8), weight), "w");
    struct mil_var *outputs[2] = {mil_build_op(
        p.b, "linear", "projected", ARGS({.name = "x", .var = x}, {.name = "weight", .var = w}), 2)};
    outputs[1] = op2(&p, "add", n, n);
    program_end(&p, outputs, 2);
    struct machine m;
    machine_open(&m, p.m, ENGINE_DEFAULT, 1);
    assert_int_equal(engine_plan_inputs(m.plan), 2);
    assert_int_equal(engine_plan_outputs(m.plan), 2);
    assert_int_equal(mil_port_find(engine_plan_input(m.plan, 0), engine_plan_inputs(m.plan), "n"), 1);
    assert_int_equal(mil_port_find(engine_plan_input(m.plan, 0), engine_plan_inputs(m.plan), "m"), -1);
    assert_int_equal(mil_port_find(engine_plan_output(m.plan, 0), engine_plan_outputs(m.plan), "projected"),
                     0);
    assert_int_equal(mil_port_find(engine_plan_output(m.plan, 0), engine_plan_outputs(m.plan), "x"), -1);
    const struct mil_port *port = engine_plan_input(m.plan, 1);
    assert_true(port->is_int && port->dtype == MIL_INT32 && port->rank == 1 && port->n_elems == 1);
    port = engine_plan_output(m.plan, 0);
    assert_true(!port->is_int && port->rank == 2 && port->dims[0] == 3 && port->dims[1] == 16 &&
                port->n_elems == 48);
    assert_int_equal(engine_plan_weight_bytes(m.plan), sizeof weight);
    assert_non_null(strstr(m.listing, "function main"));
    assert_non_null(strstr(m.listing, "projected"));
    /* Shares of the time only where something was measured; they make a hundred. */
    assert_null(strchr(m.listing, '%'));
    engine_run_measure(m.run, true);
    machine_execute(&m, NULL, 0);
    char *text = NULL;
    size_t bytes;
    double sum = 0;
    FILE *f = open_memstream(&text, &bytes);
    engine_plan_print(m.plan, m.run, f);
    fclose(f);
    for (char *at = text; (at = strchr(at, '%')); at++) {
        char *from = at;
        while (from > text && strchr("0123456789.", from[-1]))
            from--;
        sum += strtod(from, NULL);
    }
    assert_true(fabs(sum - 100) < 1);
    free(text);
    machine_close(&m);
    program_free(&p);
}

/* ---- more values than models have ---- */

/* v[k] = v[k - 1] - v[k - 2] comes back after six steps; some are kept to the end. Two sizes take turns. */
static void test_very_long_program(void **state)
{
    (void)state;
    enum { N_STEPS = 20000, KEEP_EVERY = 999 };
    static const int64_t lengths[2] = {3, 100};
    struct program p = program_begin();
    struct mil_var *x[2][2], *sums[2] = {NULL};
    float expected[2] = {0}, v[2] = {1, 3};
    for (int i = 0; i < 2; i++) {
        x[i][0] = mil_build_input(p.b, i ? "a" : "b", MIL_FP32, 1, &lengths[i]);
        x[i][1] = op2(&p, "add", op2(&p, "add", x[i][0], x[i][0]), x[i][0]);
    }
    for (int k = 0; k < N_STEPS; k++) {
        float next = v[1] - v[0];
        v[0] = v[1];
        v[1] = next;
        for (int i = 0; i < 2; i++) {
            struct mil_var *y = op2(&p, "sub", x[i][1], x[i][0]);
            x[i][0] = x[i][1];
            x[i][1] = y;
            if (k % KEEP_EVERY == 0) {
                sums[i] = sums[i] ? op2(&p, "add", y, op1(&p, "abs", sums[i])) : y;
                expected[i] = k ? next + fabsf(expected[i]) : next;
            }
        }
    }
    program_end(&p, sums, 2);
    struct machine m;
    machine_open(&m, p.m, ENGINE_DEFAULT, 1);
    float ones[100];
    for (int i = 0; i < 100; i++)
        ones[i] = 1;
    machine_execute(&m, (const struct program_input[]){{"a", ones}, {"b", ones}}, 2);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < lengths[i]; j++)
            assert_true(((const float *)engine_output(m.run, i))[j] == expected[i]);
    assert_true(engine_plan_arena_bytes(m.plan) < 100000);
    machine_close(&m);
    program_free(&p);
}

/* ---- empty tensors ---- */

static void test_empty_tensors(void **state)
{
    (void)state;
    for (int variant = 0; variant < 7; variant++) {
        struct program p = program_begin();
        struct mil_var *x = mil_build_input(p.b, "x", MIL_FP32, 3, SHAPE(2, 3, 4)), *y = NULL;
        struct mil_var *none = nothing_of(&p, x, 1); /* [2, 0, 4] */
        struct mil_var *both[2] = {none, x};
        switch (variant) {
        case 0:
            y = none;
            break;
        case 1:
            y = op2(&p, "add", none, none);
            break;
        case 2:
            y = block_concat(p.b, both, 2, 1, NULL);
            break;
        case 3:
            y = none ? block_reshape(p.b, none, 2, SHAPE(0, 8), NULL) : NULL;
            break;
        case 4:
            y = mil_build_op(p.b, "softmax", NULL, ARGS({.name = "x", .var = none}, MIL_ARG_INT("axis", -1)),
                             2);
            break;
        case 5:
            y = block_matmul(p.b, none, x, true, NULL);
            break;
        default:
            y = op1(&p, "tanh", none);
            break;
        }
        struct engine_plan *plan = NULL;
        struct engine_run *r = NULL;
        struct err e = {0};
        if (mil_builder_finish(p.b, &y, 1, &e) && engine_plan_new(&plan, p.m, "main", NULL, 0, NULL, &e)) {
            ASSERT_OK(engine_run_new(&r, plan, 1, e));
            for (int i = 0; i < 24; i++)
                ((float *)engine_input(r, 0))[i] = (float)i;
            ASSERT_OK(engine_execute(r, NULL, NULL, e));
            if (variant == 2)
                for (int i = 0; i < 24; i++)
                    assert_true(((const float *)engine_output(r, 0))[i] == (float)i);
        } else if (e.code == ERR_BUG || e.code == ERR_NONE) {
            fail_msg("variant %d: %s", variant, e.msg);
        }
        engine_run_free(r);
        engine_plan_free(plan);
        program_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_huge_broadcast),
        cmocka_unit_test(test_sizes_that_wrap_around),
        cmocka_unit_test(test_huge_input),
        cmocka_unit_test(test_huge_state),
        cmocka_unit_test(test_many_repetitions),
        cmocka_unit_test(test_many_repetitions_of_nothing),
        cmocka_unit_test(test_unknown_function),
        cmocka_unit_test(test_open_shapes),
        cmocka_unit_test(test_unsupported_op_is_named),
        cmocka_unit_test(test_outputs_of_every_kind),
        cmocka_unit_test(test_rounding_of_outputs),
        cmocka_unit_test(test_ports_and_listing),
        cmocka_unit_test(test_very_long_program),
        cmocka_unit_test(test_empty_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
