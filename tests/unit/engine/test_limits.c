// links: arch
/* What hostile programs may cost: shapes that are declared and not computed, tensors without elements, memory and work
 * over their limits, values that all live at once; and stopping a run inside a step. */
#include <signal.h>
#include <sys/time.h>
#include <time.h>
#include "program.h"
#include "arch/blocks.h"
#include "base/log.h"
#include "mil/infer.h"
#include "mil/text.h"

/* Seconds of processor time, which a busy machine does not lengthen, that no case here comes near; what is cured took minutes. */
#define SECONDS_MAX 20.0

static double processor_seconds(void)
{
    struct timespec t;
    assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t), 0);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static struct mil_var *tile(struct program *p, struct mil_var *x, const int32_t *reps, int n)
{
    return mil_build_op(
        p->b, "tile", NULL,
        ARGS({.name = "x", .var = x}, {.name = "reps", .var = mil_build_ints(p->b, reps, n, NULL)}), 2);
}

static struct mil_var *floats(struct program *p, int rank, const int64_t *dims, const float *data)
{
    return mil_build_const(p->b, mil_value_new(p->m, MIL_FP32, rank, dims, data), NULL);
}

/* Over the first n axes. */
static struct mil_var *reduce_sum(struct program *p, struct mil_var *x, int n)
{
    const int32_t axes[2] = {0, 1};
    struct mil_var *which = mil_build_ints(p->b, axes, n, NULL), *keep = mil_build_bool(p->b, true, NULL);
    return mil_build_op(
        p->b, "reduce_sum", NULL,
        ARGS({.name = "x", .var = x}, {.name = "axes", .var = which}, {.name = "keep_dims", .var = keep}), 3);
}

static bool plan(struct program *p, const struct engine_options *options, struct err *e)
{
    struct engine_plan *made = NULL;
    bool ok = engine_plan_new(&made, p->m, "main", NULL, 0, options, e);
    engine_plan_free(made);
    return ok;
}

static void expect_limit(struct program *p, const struct engine_options *options, const char *word)
{
    struct err e = {0};
    if (plan(p, options, &e))
        fail_msg("planned, expected an error about %s", word);
    assert_int_equal(e.code, ERR_LIMIT);
    if (!strstr(e.msg, word) || !strstr(e.msg, "MILKIT_LIMIT"))
        fail_msg("expected %s and MILKIT_LIMIT in: %s", word, e.msg);
}

/* ---- declared shapes ---- */

/* A result that the operands do not give is not taken from its declaration, whatever the op. */
static void test_declared_shapes(void **state)
{
    static const char *const ops[] = {
        /* k counts what can't be counted; the two results are larger than x */
        "            tensor<int32, []> k = const()[name = string(\"k\"), val = tensor<int32, []>(-3)];\n"
        "            tensor<int32, []> axis = const()[name = string(\"axis\"), val = tensor<int32, []>(1)];\n"
        "            tensor<fp16, [2, 900]> y, tensor<int32, [2, 900]> i = topk(axis = axis, k = k, x = "
        "x)[name = "
        "string(\"y\")];\n",
        /* a shape from numbers that are known only at run time */
        "            tensor<fp16, [512, 512]> y = fill(shape = s, value = v)[name = string(\"y\")];\n",
        "            tensor<fp16, [512, 512]> y = tile(reps = s, x = x)[name = string(\"y\")];\n",
        "            tensor<fp16, [9, 9]> y = pad(constant_val = v, mode = mode, pad = s4, x = x)[name = "
        "string(\"y\")];\n",
        "            tensor<fp16, [9, 9]> y = slice_by_size(begin = s, size = s, x = x)[name = "
        "string(\"y\")];\n",
    };
    (void)state;
    for (size_t k = 0; k < sizeof ops / sizeof *ops; k++) {
        char *text = xasprintf(
            "program(1.3)\n[buildInfo = dict<string, string>({{\"a\", \"b\"}})]\n{\n"
            "    func main<ios18>(tensor<int32, [2]> s, tensor<int32, [4]> s4, tensor<fp16, [2, 8]> x) {\n"
            "            fp16 v = const()[name = string(\"v\"), val = fp16(0x1p+0)];\n"
            "            string mode = const()[name = string(\"mode\"), val = string(\"constant\")];\n"
            "%s        } -> (y);\n}\n",
            ops[k]);
        struct mil_model *m = mil_model_new(9);
        struct err e = {0};
        struct engine_plan *made = NULL;
        m->path = m->root = arena_strdup(m->arena, "text");
        ASSERT_OK(mil_text_read(m, text, strlen(text), "text", e));
        ASSERT_OK(mil_verify(m, e)); /* nothing contradicts the declaration */
        if (engine_plan_new(&made, m, "main", NULL, 0, NULL, &e))
            fail_msg("planned: %s", ops[k]);
        if (e.code != ERR_UNSUPPORTED && e.code != ERR_FORMAT)
            fail_msg("code %d: %s", e.code, e.msg);
        mil_model_close(m);
        free(text);
    }
}

/* ---- tensors without elements ---- */

/* Axes of 2^31 beside one of 0: each op ends at once. */
static void test_nothing_of_huge_axes(void **state)
{
    static const char *const unary[] = {"exp",       "identity",  "softmax",    "cumsum",
                                        "transpose", "cast",      "reverse",    "add",
                                        "concat",    "band_part", "layer_norm", "select"};
    (void)state;
    double start = processor_seconds();
    for (size_t k = 0; k < sizeof unary / sizeof *unary; k++) {
        for (int empty = 0; empty < 3; empty++) {
            const int32_t zero[3] = {0, 0, 0};
            int32_t end[3] = {1, 1, 1}, reps[3] = {INT32_MAX, INT32_MAX, INT32_MAX};
            const int32_t perm[3] = {2, 0, 1};
            end[empty] = 0;
            reps[empty] = 1;
            struct program p = program_begin();
            struct mil_var *x = mil_build_input(p.b, "x", MIL_FP16, 3, SHAPE(1, 1, 1)), *y;
            struct mil_var *from = mil_build_ints(p.b, zero, 3, NULL),
                           *to = mil_build_ints(p.b, end, 3, NULL);
            struct mil_var *none = mil_build_op(
                p.b, "slice_by_index", NULL,
                ARGS({.name = "x", .var = x}, {.name = "begin", .var = from}, {.name = "end", .var = to}), 3);
            struct mil_var *wide = tile(&p, none, reps, 3), *two[2] = {wide, wide};
            if (strcmp(unary[k], "transpose") == 0)
                y = block_transpose(p.b, wide, 3, perm, NULL);
            else if (strcmp(unary[k], "add") == 0)
                y = op2(&p, "add", wide, wide);
            else if (strcmp(unary[k], "select") == 0)
                y = mil_build_op(p.b, "select", NULL,
                                 ARGS({.name = "cond", .var = op2(&p, "less", wide, wide)},
                                      {.name = "a", .var = wide}, {.name = "b", .var = wide}),
                                 3);
            else if (strcmp(unary[k], "concat") == 0)
                y = block_concat(p.b, two, 2, empty, NULL);
            else if (strcmp(unary[k], "cast") == 0)
                y = mil_build_op(p.b, "cast", NULL,
                                 ARGS({.name = "x", .var = wide},
                                      {.name = "dtype", .var = mil_build_string(p.b, "int32", NULL)}),
                                 2);
            else if (strcmp(unary[k], "cumsum") == 0)
                y = mil_build_op(
                    p.b, "cumsum", NULL,
                    ARGS({.name = "x", .var = wide}, {.name = "axis", .var = mil_build_int(p.b, 2, NULL)}),
                    2);
            else
                y = op1(&p, unary[k], wide);
            program_end(&p, &y, 1);
            for (int precision = 0; precision < 3; precision++) {
                struct machine m;
                machine_open(&m, p.m, (enum engine_precision)precision, 2);
                machine_execute(&m, NULL, 0);
                assert_int_equal(engine_plan_output(m.plan, 0)->n_elems, 0);
                machine_close(&m);
            }
            program_free(&p);
        }
    }
    assert_true(processor_seconds() - start < SECONDS_MAX);
}

/* ---- memory and work ---- */

static void test_memory_is_counted_before(void **state)
{
    (void)state;
    const int32_t reps[2] = {1 << 16, 1 << 15};
    struct engine_options small = {.limits = {.memory = 1 << 20}};
    struct err e = {0};
    /* 2^31 numbers from a file of some hundred bytes */
    struct program p = program_begin();
    struct mil_var *wide = tile(&p, mil_build_input(p.b, "x", MIL_FP32, 2, SHAPE(1, 1)), reps, 2);
    struct mil_var *y = reduce_sum(&p, op1(&p, "exp", wide), 1);
    program_end(&p, &y, 1);
    expect_limit(&p, &small, "memory");
    expect_limit(&p, NULL, "memory");
    /* The limit can be raised; planning spends nothing of it. */
    assert_int_equal(setenv("MILKIT_LIMIT", "1000", 1), 0);
    ASSERT_OK(plan(&p, NULL, e));
    assert_int_equal(setenv("MILKIT_LIMIT", "0.5", 1), 0);
    assert_false(plan(&p, NULL, &e));
    assert_int_equal(e.code, ERR_USAGE);
    assert_int_equal(unsetenv("MILKIT_LIMIT"), 0);
    program_free(&p);
    /* A constant that is made while planning */
    p = program_begin();
    struct mil_var *zero = mil_build_int(p.b, 0, NULL), *end = mil_build_int(p.b, 1 << 30, NULL),
                   *one = mil_build_int(p.b, 1, NULL);
    y = mil_build_op(
        p.b, "range_1d", NULL,
        ARGS({.name = "start", .var = zero}, {.name = "end", .var = end}, {.name = "step", .var = one}), 3);
    program_end(&p, &y, 1);
    expect_limit(&p, &small, "memory");
    program_free(&p);
}

static void test_work_is_counted_before(void **state)
{
    (void)state;
    struct engine_options small = {.limits = {.work = 1000000}};
    struct program p = program_begin();
    struct mil_var *x = mil_build_input(p.b, "x", MIL_FP32, 2, SHAPE(100, 101));
    struct mil_var *w = mil_build_input(p.b, "w", MIL_FP32, 2, SHAPE(100, 101));
    struct mil_var *y = block_matmul(p.b, x, w, true, NULL);
    program_end(&p, &y, 1);
    expect_limit(&p, &small, "operations");
    small.limits.work = 2000000;
    ASSERT_OK(plan(&p, &small, e));
    program_free(&p);
}

/* Plans of one package share its limits; a state counts once, and what a plan took can be had again after it. */
static void test_plans_share_a_budget(void **state)
{
    (void)state;
    struct program p = program_begin();
    struct mil_var *cache = mil_build_state(p.b, "cache", MIL_FP16, 2, SHAPE(1024, 512)); /* 1 MiB */
    struct mil_var *read = mil_build_op(p.b, "read_state", NULL, ARGS({.name = "input", .var = cache}), 1);
    struct mil_var *x = mil_build_input(p.b, "x", MIL_FP32, 2, SHAPE(1024, 128)); /* 0.5 MiB */
    struct mil_var *sum = reduce_sum(&p, op1(&p, "exp", x), 2),
                   *y[2] = {sum, block_slice(p.b, read, 1, 0, 1, NULL)};
    program_end(&p, y, 2);
    for (int kind = 0; kind < 2; kind++) { /* memory, work */
        struct engine_limits limits = {.memory = (uint64_t)4 << 20, .work = (uint64_t)1 << 40};
        if (kind == 1)
            limits = (struct engine_limits){.memory = (uint64_t)1 << 32, .work = 1 << 20};
        struct engine_budget *budget = engine_budget_new(limits);
        struct engine_options options = {.budget = budget};
        struct engine_plan *plans[8], *after = NULL;
        struct err e = {0};
        int n = 0;
        while (n < 8 && engine_plan_new(&plans[n], p.m, "main", NULL, 0, &options, &e))
            n++;
        /* Each takes 0.5 MiB of input and as much of workspace; 2^17 numbers are looked at some times. */
        assert_in_range(n, 2, 4);
        assert_int_equal(e.code, ERR_LIMIT);
        assert_non_null(strstr(e.msg, "beside the functions before it"));
        assert_non_null(strstr(e.msg, "MILKIT_LIMIT"));
        engine_budget_give_back(budget, plans[0]);
        engine_plan_free(plans[0]);
        ASSERT_OK(engine_plan_new(&after, p.m, "main", NULL, 0, &options, e));
        engine_plan_free(after);
        for (int i = 1; i < n; i++)
            engine_plan_free(plans[i]);
        engine_budget_free(budget);
    }
    program_free(&p);
}

/* Integers of shapes whose branches meet again at every op, each asked for: found once each, however long the chain. */
static void test_shapes_of_meeting_branches(void **state)
{
    enum { N = 20000 };
    (void)state;
    char *text = xmalloc((size_t)N * 400 + 4096), *at = text;
    at += sprintf(at, "program(1.3)\n[buildInfo = dict<string, string>({{\"a\", \"b\"}})]\n{\n"
                      "    func main<ios18>(tensor<fp16, [2, 8]> x) {\n"
                      "            tensor<int32, [2]> s0 = shape(x = x)[name = string(\"s0\")];\n");
    for (int i = 1; i <= N; i++) {
        at += sprintf(
            at, "            tensor<int32, [2]> s%d = maximum(x = s%d, y = s%d)[name = string(\"s%d\")];\n",
            i, i - 1, i - 1, i);
        at += sprintf(
            at,
            "            tensor<fp16, [2, 8]> y%d = reshape(shape = s%d, x = x)[name = string(\"y%d\")];\n",
            i, i, i);
    }
    sprintf(at, "        } -> (y%d);\n}\n", N);
    struct mil_model *m = mil_model_new(9);
    struct engine_plan *made = NULL;
    m->path = m->root = arena_strdup(m->arena, "text");
    ASSERT_OK(mil_text_read(m, text, strlen(text), "text", e));
    double start = processor_seconds();
    ASSERT_OK(mil_verify(m, e));
    ASSERT_OK(engine_plan_new(&made, m, "main", NULL, 0, NULL, e));
    assert_true(processor_seconds() - start < SECONDS_MAX);
    engine_plan_free(made);
    mil_model_close(m);
    free(text);
}

/* Products that share their rows become one step, in memory that grows with their number. */
static void test_many_products_of_one_value(void **state)
{
    enum { N = 3000 };
    (void)state;
    struct program p = program_begin();
    struct mil_var *x = mil_build_input(p.b, "x", MIL_FP32, 2, SHAPE(1, 2)), *all[N];
    const float numbers[2] = {1, 2};
    struct mil_var *w = floats(&p, 2, SHAPE(1, 2), numbers);
    for (int i = 0; i < N; i++)
        all[i] =
            mil_build_op(p.b, "linear", NULL, ARGS({.name = "x", .var = x}, {.name = "weight", .var = w}), 2);
    struct mil_var *y = block_concat(p.b, all, N, 1, NULL);
    program_end(&p, &y, 1);
    struct machine m;
    machine_open(&m, p.m, ENGINE_DEFAULT, 2);
    assert_int_equal(machine_steps(&m, "linear f32"), 1);
    const float given[2] = {3, 5};
    machine_execute(&m, &(struct program_input){"x", given}, 1);
    for (int i = 0; i < N; i++)
        assert_true(((const float *)engine_output(m.run, 0))[i] == 13);
    machine_close(&m);
    program_free(&p);
}

/* Values of many sizes that all live to the end: each has a place of its own, and finding them takes no longer
 * a value than in a small program. */
static void test_all_values_live(void **state)
{
    enum { N = 12000, SIZES = 7 };
    (void)state;
    struct program p = program_begin();
    struct mil_var *x = mil_build_input(p.b, "x", MIL_FP32, 1, SHAPE(SIZES * 16)),
                   **all = xcalloc(N, sizeof *all);
    struct mil_var *parts[SIZES];
    for (int k = 0; k < SIZES; k++)
        parts[k] = block_slice(p.b, x, 0, 0, (k + 1) * 16, NULL);
    for (int i = 0; i < N; i++) {
        const float step = (float)i;
        all[i] = op2(&p, "add", parts[i % SIZES], floats(&p, 0, NULL, &step));
    }
    struct mil_var *y = block_concat(p.b, all, N, 0, NULL);
    program_end(&p, &y, 1);
    double start = processor_seconds();
    struct machine m;
    machine_open(&m, p.m, ENGINE_DEFAULT, 2);
    assert_true(processor_seconds() - start < SECONDS_MAX);
    float given[SIZES * 16];
    for (int i = 0; i < SIZES * 16; i++)
        given[i] = (float)(2 * i);
    machine_execute(&m, &(struct program_input){"x", given}, 1);
    const float *got = engine_output(m.run, 0);
    for (int i = 0; i < N; i++)
        for (int k = 0; k < (i % SIZES + 1) * 16; k++, got++)
            if (*got != (float)(2 * k) + (float)i)
                fail_msg("value %d, element %d: %g", i, k, (double)*got);
    machine_close(&m);
    program_free(&p);
    free(all);
}

/* More free pieces of one size class than are looked at, and behind them a larger one at the end of the arena: what takes
 * its place leaves room for what lay there. */
static void test_end_of_the_arena(void **state)
{
    enum {
        PIECES = 8,
        SMALL = 16 * 1024,
        LARGE = 16 * 1087,
        BETWEEN = 16 * 1050,
        PAD = 16 * 100,
        FIRST = 640
    };
    (void)state;
    struct program p = program_begin();
    struct mil_var *x = mil_build_input(p.b, "x", MIL_FP32, 1, SHAPE(LARGE)), *pieces[PIECES],
                   *all[2 * PIECES + 3];
    struct mil_var *small = block_slice(p.b, x, 0, 0, SMALL, NULL),
                   *pad = block_slice(p.b, x, 0, 0, PAD, NULL),
                   *between = block_slice(p.b, x, 0, 0, BETWEEN, NULL),
                   *first = op1(&p, "abs", block_slice(p.b, x, 0, 0, FIRST, NULL));
    int n = 0;
    all[n++] = reduce_sum(&p, first, 1); /* from here on there is room for single numbers */
    for (int i = 0; i < PIECES; i++) {
        pieces[i] = op1(&p, "abs", small);
        all[n++] = op1(&p, "abs", pad); /* keeps the pieces apart, to the end */
    }
    struct mil_var *large = op1(&p, "abs", x);
    all[n++] = reduce_sum(&p, large, 1);
    for (int i = 0; i < PIECES; i++)
        all[n++] = reduce_sum(&p, pieces[i], 1);
    all[n++] = op1(&p, "abs", between);
    program_end(&p, all, n);
    struct engine_plan *made = NULL;
    ASSERT_OK(engine_plan_new(&made, p.m, "main", NULL, 0, NULL, e));
    /* All of these are alive together. */
    assert_true(engine_plan_arena_bytes(made) >= sizeof(float) * (FIRST + PIECES * (SMALL + PAD) + LARGE));
    engine_plan_free(made);
    program_free(&p);
}

/* Lives of every length and size, many times: results show that no two values share a place while both live. */
static void test_places_of_random_lives(void **state)
{
    enum { N = 3000, KEPT = 61 };
    (void)state;
    for (uint32_t seed = 0; seed < 3; seed++) {
        struct program p = program_begin();
        struct mil_var *x = mil_build_input(p.b, "x", MIL_FP32, 1, SHAPE(512)), *kept[KEPT], *sum = NULL;
        int64_t sizes[KEPT];
        float expected = 0, value[KEPT];
        for (int i = 0; i < KEPT; i++)
            kept[i] = NULL;
        for (int i = 0; i < N; i++) {
            int slot = (int)((noise(seed, (size_t)(2 * i)) + 2) * KEPT / 4) % KEPT;
            int64_t size = 1 + (int64_t)((noise(seed, (size_t)(2 * i + 1)) + 2) * 127);
            float step = (float)(i % 17);
            if (kept[slot]) { /* the value ends: its last element is looked at */
                struct mil_var *last = block_slice(p.b, kept[slot], 0, sizes[slot] - 1, sizes[slot], NULL);
                sum = sum ? op2(&p, "add", sum, last) : last;
                expected += value[slot];
            }
            struct mil_var *part = block_slice(p.b, x, 0, 0, size, NULL);
            kept[slot] = op2(&p, "add", part, floats(&p, 0, NULL, &step));
            sizes[slot] = size;
            value[slot] = 1 + step;
        }
        program_end(&p, &sum, 1);
        struct machine m;
        machine_open(&m, p.m, ENGINE_DEFAULT, 1);
        float ones[512];
        for (int i = 0; i < 512; i++)
            ones[i] = 1;
        machine_execute(&m, &(struct program_input){"x", ones}, 1);
        assert_true(*(const float *)engine_output(m.run, 0) == expected);
        machine_close(&m);
        program_free(&p);
    }
}

/* ---- stopping ---- */

static atomic_int stop_flag;

static void on_alarm(int signal_number)
{
    stop_flag = signal_number;
}

static void alarm_in(int milliseconds)
{
    const struct sigaction action = {.sa_handler = on_alarm};
    const struct itimerval timer = {.it_value = {milliseconds / 1000, milliseconds % 1000 * 1000}};
    stop_flag = 0;
    assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &timer, NULL), 0);
}

/* Steps that would take minutes, with one result and with many: a signal ends the run within it. */
static void test_stop_inside_a_step(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        const int32_t reps[2] = {1 << 18, 1 << 17}, rows[2] = {4000, 1};
        struct program p = program_begin();
        struct mil_var *x = mil_build_input(p.b, "x", MIL_FP32, 2, SHAPE(1, 1)), *y;
        if (kind == 0) { /* one number from 2^35 */
            y = reduce_sum(&p, tile(&p, x, reps, 2), 2);
        } else if (kind == 1) { /* a product of 2^36 operations in many rows */
            struct mil_var *a = mil_build_input(p.b, "a", MIL_FP32, 2, SHAPE(1, 4096));
            struct mil_var *wide = tile(&p, a, rows, 2);
            y = reduce_sum(&p, block_matmul(p.b, wide, wide, true, NULL), 1);
        } else { /* and with one result */
            const int32_t long_row[2] = {1, 1 << 30};
            struct mil_var *wide = tile(&p, x, long_row, 2);
            y = block_matmul(p.b, wide, wide, true, NULL);
            for (int i = 0; i < 40; i++)
                y = op2(&p, "add", y, block_matmul(p.b, wide, wide, true, NULL));
        }
        program_end(&p, &y, 1);
        struct stop stop = {.flag = &stop_flag};
        struct engine_options options = {.stop = &stop,
                                         .limits = {.memory = (uint64_t)64 << 30, .work = UINT64_MAX}};
        for (int n_threads = 1; n_threads < 3; n_threads++) {
            struct machine m;
            struct err e = {0};
            stop_flag = 0;
            machine_open_with(&m, p.m, &options, n_threads);
            machine_fill(&m, NULL, 0);
            double start = processor_seconds();
            alarm_in(200);
            assert_false(engine_execute(m.run, m.state, m.pool, &e));
            assert_int_equal(e.code, ERR_CANCELLED);
            assert_non_null(strstr(e.msg, "interrupted"));
            assert_true(processor_seconds() - start < SECONDS_MAX);
            stop.deadline = clock_seconds() + 0.1;
            stop_flag = 0;
            assert_false(engine_execute(m.run, m.state, m.pool, &e));
            assert_non_null(strstr(e.msg, "out of time"));
            stop.deadline = 0;
            machine_close(&m);
        }
        stop_flag = 1; /* planning asks too */
        struct err e = {0};
        assert_false(plan(&p, &options, &e));
        assert_int_equal(e.code, ERR_CANCELLED);
        program_free(&p);
    }
}

/* A long step is done in parts; that it is changes no bit. */
static void test_parts_change_nothing(void **state)
{
    enum { N = 940 };
    (void)state;
    struct program p = program_begin();
    struct mil_var *x = mil_build_input(p.b, "x", MIL_FP32, 2, SHAPE(N, N));
    struct mil_var *w = mil_build_input(p.b, "w", MIL_FP32, 2, SHAPE(N, N));
    struct mil_var *y =
        block_matmul(p.b, x, w, true, NULL); /* three parts for one thread, one for each of two */
    program_end(&p, &y, 1);
    struct machine one, two;
    machine_open(&one, p.m, ENGINE_DEFAULT, 1);
    machine_open(&two, p.m, ENGINE_DEFAULT, 2);
    machine_execute(&one, NULL, 0);
    machine_execute(&two, NULL, 0);
    const float *a = engine_output(one.run, 0), *px = engine_input(one.run, 0),
                *pw = engine_input(one.run, 1);
    assert_memory_equal(a, engine_output(two.run, 0), (size_t)N * N * 4);
    for (int i = 0; i < N; i += 233) {
        double sum = 0;
        for (int k = 0; k < N; k++)
            sum += (double)px[i * N + k] * (double)pw[(N - 1) * N + k];
        assert_true(fabs(sum - (double)a[i * N + N - 1]) < 1e-2);
    }
    machine_close(&one);
    machine_close(&two);
    program_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_declared_shapes),
        cmocka_unit_test(test_nothing_of_huge_axes),
        cmocka_unit_test(test_memory_is_counted_before),
        cmocka_unit_test(test_work_is_counted_before),
        cmocka_unit_test(test_plans_share_a_budget),
        cmocka_unit_test(test_shapes_of_meeting_branches),
        cmocka_unit_test(test_many_products_of_one_value),
        cmocka_unit_test(test_all_values_live),
        cmocka_unit_test(test_end_of_the_arena),
        cmocka_unit_test(test_places_of_random_lives),
        cmocka_unit_test(test_stop_inside_a_step),
        cmocka_unit_test(test_parts_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
