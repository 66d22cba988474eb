// links: arch
/* States: the program's order of reads and writes holds, whatever is done in place; writes and lookups outside of a
 * tensor are refused without touching memory. Expected contents are worked out here, not by another plan. */
#include <limits.h>
#include "program.h"
#include "arch/blocks.h"

enum { ROWS = 6, COLUMNS = 4, N = ROWS * COLUMNS };

/* One element of a state, whatever type the engine holds it in. */
static void state_set(struct engine_state_entry *s, int i, float v)
{
    if (s->f16_data)
        s->f16_data[i] = f32_to_f16(v);
    if (s->f32_data)
        s->f32_data[i] = f16_round(v);
}

static f16 state_get(const struct engine_state_entry *s, int i)
{
    return s->f16_data ? s->f16_data[i] : s->f32_data ? f32_to_f16(s->f32_data[i]) : 0;
}

static struct mil_var *make_state(struct program *p, const char *name)
{
    return mil_build_state(p->b, name, MIL_FP16, 2, SHAPE(ROWS, COLUMNS));
}

static struct mil_var *slice_update(struct program *p, struct mil_var *x, struct mil_var *update, int32_t row,
                                    int32_t n_rows)
{
    const int32_t begin[2] = {row, 0}, end[2] = {row + n_rows, COLUMNS};
    return mil_build_op(p->b, "slice_update", NULL,
                        ARGS({.name = "x", .var = x}, {.name = "update", .var = update},
                             MIL_ARG_INTS("begin", begin, 2), MIL_ARG_INTS("end", end, 2)),
                        4);
}

static struct mil_var *rows_of(struct program *p, struct mil_var *x, int64_t begin, int64_t n)
{
    return block_slice(p->b, x, 0, begin, begin + n, NULL);
}

static struct mil_var *plus(struct program *p, struct mil_var *x, double d)
{
    return op2(p, "add", x, mil_build_f16(p->b, d, NULL));
}

/* x + 0 * (one element of a state) */
static struct mil_var *touch(struct program *p, struct mil_var *x, struct mil_var *state)
{
    const int32_t begin[2] = {0, 0}, end[2] = {1, 1};
    struct mil_var *element = mil_build_op(p->b, "slice_by_index", NULL,
                                           ARGS({.name = "x", .var = read_state(p, state)},
                                                MIL_ARG_INTS("begin", begin, 2), MIL_ARG_INTS("end", end, 2)),
                                           3);
    element = block_scale(p->b, block_reshape(p->b, element, 2, SHAPE(1, 1), NULL), 0, NULL);
    return op2(p, "add", x, element);
}

/* What the states hold before a call: small whole numbers, exact in fp16. */
static float start_value(int state, int i)
{
    return (float)(100 * state + i);
}

struct expected {
    const char *what; /* "0", "1": outputs by number; else a state */
    float values[N];
    int n;
};

/* Runs in every precision from the same start; outputs and states must be what is expected. */
static void check(struct program *p, const struct expected *expected, int n_expected)
{
    static const enum engine_precision precisions[] = {ENGINE_DEFAULT, ENGINE_FP32, ENGINE_FP16};
    for (int k = 0; k < 3; k++) {
        struct machine m;
        machine_open(&m, p->m, precisions[k], 1 + k);
        for (int i = 0; i < engine_state_count(m.state); i++) {
            struct engine_state_entry *entry = engine_state_get(m.state, i);
            for (int j = 0; j < N; j++)
                state_set(entry, j, start_value(entry->name[0] - 'a', j));
        }
        machine_execute(&m, NULL, 0);
        for (int i = 0; i < n_expected; i++) {
            const struct expected *x = &expected[i];
            float got[N];
            if (x->what[0] >= '0' && x->what[0] <= '9') {
                memcpy(got, engine_output(m.run, x->what[0] - '0'), sizeof(float) * (size_t)x->n);
            } else {
                const struct engine_state_entry *entry = engine_state_find(m.state, x->what);
                assert_non_null(entry);
                for (int j = 0; j < N; j++)
                    got[j] = f16_to_f32(state_get(entry, j));
            }
            for (int j = 0; j < x->n; j++)
                if (got[j] != x->values[j])
                    fail_msg("precision %d: %s[%d]: expected %g, found %g", k, x->what, j,
                             (double)x->values[j], (double)got[j]);
        }
        machine_close(&m);
    }
    program_free(p);
}

static struct expected expect(const char *what, int n, float (*f)(int))
{
    struct expected x = {.what = what, .n = n};
    for (int i = 0; i < n; i++)
        x.values[i] = f(i);
    return x;
}

static float old_a(int i)
{
    return start_value(0, i);
}

static float old_a_plus_1(int i)
{
    return start_value(0, i) + 1;
}

static float old_a_plus_3(int i)
{
    return start_value(0, i) + 3;
}

/* A value read before a write is the old one, however it is looked at afterwards. */
static void test_old_value_through_views(void **state)
{
    (void)state;
    for (int variant = 0; variant < 12; variant++) {
        struct program p = program_begin();
        struct mil_var *a = make_state(&p, "a"), *before = read_state(&p, a), *view = before;
        const int32_t perm[2] = {1, 0};
        if (variant == 1)
            view = block_transpose(p.b, before, 2, perm, NULL);
        else if (variant == 2)
            view = block_reshape(p.b, before, 3, SHAPE(2, 3, COLUMNS), NULL);
        else if (variant == 3)
            view = op1(&p, "identity", before);
        else if (variant == 4)
            view = rows_of(&p, before, 0, ROWS);
        else if (variant == 6)
            view = mil_build_op(p.b, "cast", NULL,
                                ARGS({.name = "x", .var = before},
                                     {.name = "dtype", .var = mil_build_string(p.b, "fp32", NULL)}),
                                2);
        else if (variant == 7)
            view = mil_build_op(p.b, "reverse", NULL,
                                ARGS({.name = "x", .var = before}, MIL_ARG_INTS("axes", ((int32_t[]){0}), 1)),
                                2);
        else if (variant == 8)
            view =
                mil_build_op(p.b, "slice_by_size", NULL,
                             ARGS({.name = "x", .var = before}, MIL_ARG_INTS("begin", ((int32_t[]){0, 0}), 2),
                                  MIL_ARG_INTS("size", ((int32_t[]){ROWS, -1}), 2)),
                             3);
        else if (variant == 9)
            view = mil_build_op(p.b, "flatten2d", NULL,
                                ARGS({.name = "x", .var = before}, MIL_ARG_INT("axis", 1)), 2);
        else if (variant == 11) /* a pattern whose result is its operand */
            view = touch(&p, before, make_state(&p, "b"));
        write_state(&p, a, plus(&p, before, 1));
        if (variant == 1)
            view = block_transpose(p.b, view, 2, perm, NULL);
        if (variant == 7)
            view =
                mil_build_op(p.b, "reverse", NULL,
                             ARGS({.name = "x", .var = view}, MIL_ARG_INTS("axes", ((int32_t[]){0}), 1)), 2);
        if (variant == 5)
            view = block_scale(p.b, before, 1, NULL);
        if (variant == 10) { /* two looks behind the write */
            struct mil_var *halves[2] = {rows_of(&p, before, 0, 3)};
            halves[1] = rows_of(&p, before, 3, ROWS - 3);
            view = block_concat(p.b, halves, 2, 0, NULL);
        }
        program_end(&p, &view, 1);
        const struct expected expected[] = {expect("0", N, old_a), expect("a", N, old_a_plus_1)};
        check(&p, expected, 2);
    }
}

/* Every read sees what was written last. */
static void test_reads_between_writes(void **state)
{
    (void)state;
    struct program p = program_begin();
    struct mil_var *a = make_state(&p, "a"), *outputs[3];
    outputs[0] = read_state(&p, a);
    write_state(&p, a, plus(&p, outputs[0], 1));
    outputs[1] = read_state(&p, a);
    write_state(&p, a, plus(&p, outputs[1], 2));
    outputs[2] = read_state(&p, a);
    program_end(&p, outputs, 3);
    const struct expected expected[] = {expect("0", N, old_a), expect("1", N, old_a_plus_1),
                                        expect("2", N, old_a_plus_3), expect("a", N, old_a_plus_3)};
    check(&p, expected, 4);
}

static float shifted(int i)
{
    return i < N - COLUMNS ? start_value(0, i + COLUMNS) : start_value(0, i);
}

static float shifted_down(int i)
{
    return i >= COLUMNS ? start_value(0, i - COLUMNS) : start_value(0, i);
}

/* A slice of the state moves within it: source and target overlap. */
static void test_slice_of_the_same_state(void **state)
{
    (void)state;
    for (int down = 0; down < 2; down++) {
        for (int separate_read = 0; separate_read < 2; separate_read++) {
            struct program p = program_begin();
            struct mil_var *a = make_state(&p, "a"), *x = read_state(&p, a);
            struct mil_var *source = separate_read ? read_state(&p, a) : x;
            struct mil_var *rows = rows_of(&p, source, down ? 0 : 1, ROWS - 1);
            write_state(&p, a, slice_update(&p, x, rows, down ? 1 : 0, ROWS - 1));
            struct mil_var *y = read_state(&p, a);
            program_end(&p, &y, 1);
            const struct expected expected[] = {expect("0", N, down ? shifted_down : shifted),
                                                expect("a", N, down ? shifted_down : shifted)};
            check(&p, expected, 2);
        }
    }
}

static float whole_shift(int i)
{
    return start_value(0, (i + 2 * COLUMNS) % N);
}

/* The whole state is written with a concatenation of its own parts. */
static void test_rotation(void **state)
{
    (void)state;
    struct program p = program_begin();
    struct mil_var *a = make_state(&p, "a"), *x = read_state(&p, a);
    struct mil_var *parts[2] = {rows_of(&p, x, 2, ROWS - 2)};
    parts[1] = rows_of(&p, x, 0, 2);
    write_state(&p, a, block_concat(p.b, parts, 2, 0, NULL));
    struct mil_var *y = read_state(&p, a);
    program_end(&p, &y, 1);
    const struct expected expected[] = {expect("0", N, whole_shift), expect("a", N, whole_shift)};
    check(&p, expected, 2);
}

static float transposed(int i)
{
    return start_value(0, i % COLUMNS * ROWS + i / COLUMNS);
}

/* A state written with a view of itself in another order. */
static void test_write_of_a_permutation(void **state)
{
    (void)state;
    const int32_t perm[2] = {1, 0};
    struct program p = program_begin();
    struct mil_var *a = make_state(&p, "a"), *x = read_state(&p, a);
    struct mil_var *turned =
        block_transpose(p.b, block_reshape(p.b, x, 2, SHAPE(COLUMNS, ROWS), NULL), 2, perm, NULL);
    write_state(&p, a, turned);
    struct mil_var *y = read_state(&p, a);
    program_end(&p, &y, 1);
    const struct expected expected[] = {expect("0", N, transposed), expect("a", N, transposed)};
    check(&p, expected, 2);
}

static float rows_of_old_b(int i)
{
    return i < 2 * COLUMNS ? start_value(1, i) : start_value(0, i);
}

static float b_plus_1(int i)
{
    return start_value(1, i) + 1;
}

/* What goes into state a was read from state b before b is written; the write into a comes last. */
static void test_update_from_another_state(void **state)
{
    (void)state;
    for (int order = 0; order < 2; order++) {
        struct program p = program_begin();
        struct mil_var *a = make_state(&p, "a"), *b = make_state(&p, "b");
        struct mil_var *x = read_state(&p, a), *source = read_state(&p, b);
        struct mil_var *updated = slice_update(&p, x, rows_of(&p, source, 0, 2), 0, 2);
        if (order)
            write_state(&p, a, updated);
        write_state(&p, b, plus(&p, read_state(&p, b), 1));
        if (!order)
            write_state(&p, a, updated);
        struct mil_var *y = read_state(&p, a);
        program_end(&p, &y, 1);
        const struct expected expected[] = {expect("0", N, rows_of_old_b), expect("a", N, rows_of_old_b),
                                            expect("b", N, b_plus_1)};
        check(&p, expected, 3);
    }
}

static float swapped_b(int i)
{
    return start_value(1, i);
}

static void test_two_states_change_places(void **state)
{
    (void)state;
    struct program p = program_begin();
    struct mil_var *a = make_state(&p, "a"), *b = make_state(&p, "b");
    struct mil_var *x = read_state(&p, a), *y = read_state(&p, b);
    write_state(&p, a, y);
    write_state(&p, b, x);
    struct mil_var *out = read_state(&p, b);
    program_end(&p, &out, 1);
    const struct expected expected[] = {expect("a", N, swapped_b), expect("b", N, old_a),
                                        expect("0", N, old_a)};
    check(&p, expected, 3);
}

static float two_updates(int i)
{
    int row = i / COLUMNS;
    return row == 1   ? start_value(1, i % COLUMNS)
           : row == 4 ? start_value(1, COLUMNS + i % COLUMNS)
                      : start_value(0, i);
}

/* Updates in a chain before the write; the result of the last one also goes out. */
static void test_chained_updates(void **state)
{
    (void)state;
    for (int returned = 0; returned < 2; returned++) {
        struct program p = program_begin();
        struct mil_var *a = make_state(&p, "a"), *b = make_state(&p, "b"), *source = read_state(&p, b);
        struct mil_var *first = rows_of(&p, source, 0, 1);
        struct mil_var *once = slice_update(&p, read_state(&p, a), first, 1, 1);
        struct mil_var *twice = slice_update(&p, once, rows_of(&p, source, 1, 1), 4, 1);
        write_state(&p, a, twice);
        struct mil_var *y = returned ? twice : read_state(&p, a);
        program_end(&p, &y, 1);
        const struct expected expected[] = {expect("0", N, two_updates), expect("a", N, two_updates)};
        check(&p, expected, 2);
    }
}

static float one_update(int i)
{
    return i / COLUMNS == 1 ? start_value(1, i % COLUMNS) : start_value(0, i);
}

/* An update of a that goes into b, and one that goes nowhere: a stays. */
static void test_update_written_elsewhere(void **state)
{
    (void)state;
    struct program p = program_begin();
    struct mil_var *a = make_state(&p, "a"), *b = make_state(&p, "b"), *source = read_state(&p, b);
    struct mil_var *x = read_state(&p, a);
    struct mil_var *updated = slice_update(&p, x, rows_of(&p, source, 0, 1), 1, 1);
    write_state(&p, b, updated);
    struct mil_var *row = rows_of(&p, x, 5, 1), *outputs[2];
    outputs[0] = slice_update(&p, read_state(&p, b), row, 0, 1);
    outputs[1] = read_state(&p, b);
    program_end(&p, outputs, 2);
    struct expected expected[] = {expect("a", N, old_a), expect("b", N, one_update),
                                  expect("1", N, one_update), expect("0", N, one_update)};
    for (int i = 0; i < COLUMNS; i++)
        expected[3].values[i] = start_value(0, 5 * COLUMNS + i);
    check(&p, expected, 4);
}

static float third_row_twice(int i)
{
    return i / COLUMNS == 3 ? 2 * start_value(0, i) : start_value(0, i);
}

/* A read between the update and its write sees the old content; the update's operand was computed from it. */
static void test_read_between_update_and_write(void **state)
{
    (void)state;
    struct program p = program_begin();
    struct mil_var *a = make_state(&p, "a"), *x = read_state(&p, a), *outputs[2];
    struct mil_var *updated = slice_update(&p, x, block_scale(p.b, rows_of(&p, x, 3, 1), 2, NULL), 3, 1);
    outputs[0] = read_state(&p, a);
    write_state(&p, a, updated);
    outputs[1] = read_state(&p, a);
    program_end(&p, outputs, 2);
    const struct expected expected[] = {expect("0", N, old_a), expect("1", N, third_row_twice),
                                        expect("a", N, third_row_twice)};
    check(&p, expected, 3);
}

/* What is kept in a state is fp16, to nearest and even; in ENGINE_FP32 by itself it stays what it is, until it
 * is read out by name. */
static void test_state_rounds(void **state)
{
    (void)state;
    struct program p = program_begin();
    struct mil_var *x = mil_build_input(p.b, "x", MIL_FP32, 2, SHAPE(ROWS, COLUMNS)),
                   *a = make_state(&p, "a");
    write_state(&p, a,
                mil_build_op(p.b, "cast", NULL,
                             ARGS({.name = "x", .var = x},
                                  {.name = "dtype", .var = mil_build_string(p.b, "fp16", NULL)}),
                             2));
    struct mil_var *y = read_state(&p, a);
    program_end(&p, &y, 1);
    float in[N] = {1 + 0x1p-11f, 1 + 0x1.8p-10f, 65519, 65520, -65520, 0x1p-25f, 0x1.8p-24f, 0.1f};
    const float want[8] = {1, 1 + 0x1p-9f, 65504, INFINITY, -INFINITY, 0, 0x1p-23f, 0.0999755859375f};
    const struct program_input inputs[] = {{"x", in}};
    for (int k = 0; k < 4; k++) {
        bool float32 = k == 3;
        struct machine m;
        machine_open_with(
            &m, p.m,
            &(struct engine_options){.precision = float32 ? ENGINE_FP32 : (enum engine_precision)k,
                                     .declared_states = !float32},
            1);
        machine_execute(&m, inputs, 1);
        const float *got = engine_output(m.run, 0);
        const struct engine_state_entry *entry = engine_state_get(m.state, 0);
        f16 by_name[N];
        engine_state_read(entry, by_name);
        assert_true(!float32 || entry->f32_data);
        for (int i = 0; i < 8; i++) {
            assert_true(got[i] == (float32 ? in[i] : want[i]));
            assert_true(f16_to_f32(by_name[i]) == want[i]);
        }
        machine_close(&m);
    }
    program_free(&p);
}

/* ---- writes and lookups outside ---- */

/* A cache write at a position that comes with the call; out-of-range positions change nothing. */
static void test_write_out_of_range(void **state)
{
    (void)state;
    enum { T = 3, S = 8, D = 5 };
    struct program p = program_begin();
    struct mil_var *value = mil_build_input(p.b, "value", MIL_FP16, 4, SHAPE(1, 2, T, D));
    struct mil_var *position = mil_build_input(p.b, "position", MIL_INT32, 1, SHAPE(1));
    struct mil_var *cache = mil_build_state(p.b, "cache", MIL_FP16, 4, SHAPE(2, 2, S, D));
    struct mil_var *after = block_write_rows(p.b, cache, value, 1, 0, position, true, NULL);
    struct mil_var *y = block_slice(p.b, after, 0, 1, 2, NULL);
    program_end(&p, &y, 1);
    static const int32_t bad[] = {S - T + 1, S, S + 1, -S - 1, INT32_MIN, INT32_MAX, INT32_MAX - 2, 1 << 20};
    for (int k = 0; k < 3; k++) {
        struct machine m;
        f16 before[2 * 2 * S * D];
        machine_open(&m, p.m, (enum engine_precision)k, 2);
        struct engine_state_entry *entry = engine_state_get(m.state, 0);
        for (int i = 0; i < 2 * 2 * S * D; i++)
            state_set(entry, i, (float)i);
        engine_state_read(entry, before);
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            struct err e = {0};
            const struct program_input inputs[] = {{"position", &bad[i]}};
            machine_fill(&m, inputs, 1);
            assert_false(engine_execute(m.run, m.state, m.pool, &e));
            assert_int_equal(e.code, ERR_FAILED);
            assert_non_null(strstr(e.msg, "outside"));
            {
                f16 held[2 * 2 * S * D];
                engine_state_read(entry, held);
                assert_memory_equal(before, held, sizeof before);
            }
        }
        /* The run is good for further calls: the last place that fits. */
        const int32_t last = S - T;
        const struct program_input inputs[] = {{"position", &last}};
        machine_execute(&m, inputs, 1);
        const float *in = engine_input(
            m.run, mil_port_find(engine_plan_input(m.plan, 0), engine_plan_inputs(m.plan), "value"));
        for (int i = 0; i < 2 * 2 * S * D; i++) {
            int slot = i / (2 * S * D), head = i / (S * D) % 2, row = i / D % S, column = i % D;
            f16 want = before[i];
            if (slot == 1 && row >= last)
                want = f32_to_f16(in[(head * T + row - last) * D + column]);
            assert_int_equal(state_get(entry, i), want);
        }
        machine_close(&m);
    }
    program_free(&p);
}

static void test_gather_out_of_range(void **state)
{
    (void)state;
    enum { V = 7, H = 3, T = 4 };
    struct program p = program_begin();
    f16 table[V * H];
    for (int i = 0; i < V * H; i++)
        table[i] = f32_to_f16((float)i);
    struct mil_var *ids = mil_build_input(p.b, "ids", MIL_INT32, 2, SHAPE(1, T));
    struct mil_var *y =
        block_gather(p.b, mil_value_new(p.m, MIL_FP16, 2, SHAPE(V, H), table), ids, "table", NULL);
    program_end(&p, &y, 1);
    static const int32_t bad[] = {V, V + 1, -V - 1, INT32_MIN, INT32_MAX};
    for (int k = 0; k < 3; k++) {
        struct machine m;
        machine_open(&m, p.m, (enum engine_precision)k, 2);
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            for (int at = 0; at < T; at++) {
                struct err e = {0};
                int32_t row[T] = {0, 1, V - 1, 2};
                row[at] = bad[i];
                const struct program_input inputs[] = {{"ids", row}};
                machine_fill(&m, inputs, 1);
                assert_false(engine_execute(m.run, m.state, m.pool, &e));
                assert_int_equal(e.code, ERR_FAILED);
                assert_non_null(strstr(e.msg, "outside"));
            }
        }
        const int32_t good[T] = {V - 1, 0, 3, 3};
        const struct program_input inputs[] = {{"ids", good}};
        machine_execute(&m, inputs, 1);
        for (int i = 0; i < T * H; i++)
            assert_true(((const float *)engine_output(m.run, 0))[i] == (float)(good[i / H] * H + i % H));
        machine_close(&m);
    }
    program_free(&p);
}

/* ---- states as objects ---- */

static void test_state_objects(void **state)
{
    (void)state;
    struct program p = program_begin(), q = program_begin();
    struct mil_var *a = make_state(&p, "a"), *x = read_state(&p, a);
    write_state(&p, a, plus(&p, x, 1));
    struct mil_var *y = read_state(&p, a);
    program_end(&p, &y, 1);
    struct mil_var *other = mil_build_state(q.b, "a", MIL_FP16, 2, SHAPE(ROWS + 1, COLUMNS));
    struct mil_var *z = read_state(&q, other);
    program_end(&q, &z, 1);

    struct machine m, n;
    struct err e = {0};
    machine_open(&m, p.m, ENGINE_DEFAULT, 1);
    machine_open(&n, q.m, ENGINE_DEFAULT, 1);
    assert_int_equal(engine_state_count(m.state), 1);
    assert_null(engine_state_find(m.state, "b"));
    const struct engine_state_entry *entry = engine_state_find(m.state, "a");
    assert_true(entry && entry->rank == 2 && entry->dims[0] == ROWS && entry->n_elems == N);
    assert_int_equal(entry->dtype, MIL_FP16);
    for (int i = 0; i < N; i++)
        assert_int_equal(state_get(entry, i), 0);
    ASSERT_OK(engine_state_add(m.state, m.plan, e)); /* again: nothing new */
    assert_int_equal(engine_state_count(m.state), 1);
    machine_execute(&m, NULL, 0);
    machine_execute(&m, NULL, 0);
    assert_true(f16_to_f32(state_get(entry, 0)) == 2);
    engine_state_clear(m.state);
    assert_int_equal(state_get(entry, 0), 0);

    assert_false(engine_state_add(m.state, n.plan, &e));
    assert_int_equal(e.code, ERR_FORMAT);
    assert_non_null(strstr(e.msg, "state a"));
    assert_false(engine_execute(m.run, NULL, NULL, &e));
    assert_int_equal(e.code, ERR_USAGE);
    assert_non_null(strstr(e.msg, "a"));
    /* A state of another shape under the same name is not run over. */
    assert_false(engine_execute(n.run, m.state, NULL, &e));
    assert_int_equal(e.code, ERR_USAGE);
    machine_close(&m);
    machine_close(&n);
    program_free(&p);
    program_free(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_old_value_through_views),
        cmocka_unit_test(test_reads_between_writes),
        cmocka_unit_test(test_slice_of_the_same_state),
        cmocka_unit_test(test_rotation),
        cmocka_unit_test(test_write_of_a_permutation),
        cmocka_unit_test(test_update_from_another_state),
        cmocka_unit_test(test_two_states_change_places),
        cmocka_unit_test(test_chained_updates),
        cmocka_unit_test(test_update_written_elsewhere),
        cmocka_unit_test(test_read_between_update_and_write),
        cmocka_unit_test(test_state_rounds),
        cmocka_unit_test(test_write_out_of_range),
        cmocka_unit_test(test_gather_out_of_range),
        cmocka_unit_test(test_state_objects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
