/* Packed weights that cost more than they look: axes without end beside one of 0, and an expansion that is stopped. */
#include <signal.h>
#include <sys/time.h>
#include "program.h"
#include "base/log.h"

#define HUGE_AXIS ((int64_t)1 << 40)

static struct mil_var *constant(struct program *p, enum mil_dtype d, int rank, const int64_t *dims,
                                const void *data)
{
    return mil_build_const(p->b, mil_value_new(p->m, d, rank, dims, data), NULL);
}

/* ---- axes ---- */

static const f16 table[16] = {0};
static const uint8_t none[1];

static struct mil_var *affine(struct program *p)
{
    struct mil_var *data = constant(p, MIL_UINT8, 4, SHAPE(0, HUGE_AXIS, HUGE_AXIS, HUGE_AXIS), none);
    struct mil_var *zero = constant(p, MIL_UINT8, 0, NULL, none),
                   *scale = constant(p, MIL_FP16, 0, NULL, table);
    return mil_build_op(p->b, "constexpr_affine_dequantize", NULL,
                        ARGS({.name = "quantized_data", .var = data}, {.name = "zero_point", .var = zero},
                             {.name = "scale", .var = scale},
                             {.name = "axis", .var = mil_build_int(p->b, 0, NULL)}),
                        4);
}

static struct mil_var *blockwise(struct program *p)
{
    struct mil_var *data = constant(p, MIL_INT8, 3, SHAPE(0, HUGE_AXIS, HUGE_AXIS), none);
    struct mil_var *scale = constant(p, MIL_FP16, 3, SHAPE(1, 1, 1), table);
    return mil_build_op(p->b, "constexpr_blockwise_shift_scale", NULL,
                        ARGS({.name = "data", .var = data}, {.name = "scale", .var = scale}), 2);
}

/* vector: the length of the table's entries. */
static struct mil_var *palette(struct program *p, int64_t vector)
{
    struct mil_var *indices = constant(p, MIL_UINT1, 3, SHAPE(0, HUGE_AXIS, HUGE_AXIS), none);
    struct mil_var *lut = constant(p, MIL_FP16, 5, SHAPE(1, 1, 1, 2, vector), table);
    return mil_build_op(p->b, "constexpr_lut_to_dense", NULL,
                        ARGS({.name = "indices", .var = indices}, {.name = "lut", .var = lut},
                             {.name = "vector_axis", .var = mil_build_int(p->b, 0, NULL)}),
                        3);
}

static struct mil_var *palette_of_scalars(struct program *p)
{
    return palette(p, 1);
}

static struct mil_var *palette_of_vectors(struct program *p)
{
    return palette(p, 4);
}

static struct mil_var *sparse(struct program *p)
{
    struct mil_var *mask = constant(p, MIL_UINT1, 3, SHAPE(0, HUGE_AXIS, HUGE_AXIS), none);
    struct mil_var *kept = constant(p, MIL_FP16, 1, SHAPE(0), table);
    return mil_build_op(p->b, "constexpr_sparse_to_dense", NULL,
                        ARGS({.name = "nonzero_data", .var = kept}, {.name = "mask", .var = mask}), 2);
}

/* The mask's axis is as long as the vectors make it. */
static struct mil_var *sparse_palette(struct program *p)
{
    struct mil_var *outputs[2];
    struct mil_var *mask = constant(p, MIL_UINT1, 3, SHAPE(0, HUGE_AXIS, 1 << 20), none);
    struct mil_var *indices = constant(p, MIL_UINT1, 1, SHAPE(0), none);
    struct mil_var *lut = constant(p, MIL_FP16, 5, SHAPE(1, 1, 1, 2, 8), table);
    struct mil_var *axis = mil_build_int(p->b, 1, NULL);
    if (!mil_build_op_n(p->b, "constexpr_lut_to_sparse", NULL,
                        ARGS({.name = "indices_mask", .var = mask},
                             {.name = "indices_nonzero_data", .var = indices}, {.name = "lut", .var = lut},
                             {.name = "vector_axis", .var = axis}),
                        4, outputs, 2))
        return NULL;
    return mil_build_op(
        p->b, "constexpr_sparse_to_dense", NULL,
        ARGS({.name = "nonzero_data", .var = outputs[1]}, {.name = "mask", .var = outputs[0]}), 2);
}

/* Sizes of axes whose product is 0 are multiplied nowhere: refused at once, or planned and nothing to do. */
static void test_huge_axes_beside_zero(void **state)
{
    static struct mil_var *(*const weights[])(struct program *) = {
        affine, blockwise, palette_of_scalars, palette_of_vectors, sparse, sparse_palette};
    (void)state;
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
        for (int precision = 0; precision < 3; precision++) {
            struct program p = program_begin();
            struct mil_var *x = mil_build_input(p.b, "x", MIL_FP16, 1, SHAPE(1)), *w = weights[i](&p);
            struct mil_var *y = op2(&p, "mul", w, x);
            struct engine_options options = {.precision = (enum engine_precision)precision};
            struct engine_plan *plan = NULL;
            struct err e = {0};
            program_end(&p, &y, 1);
            if (!engine_plan_new(&plan, p.m, "main", NULL, 0, &options, &e) && e.code != ERR_LIMIT &&
                e.code != ERR_FORMAT)
                fail_msg("weight %zu: code %d: %s", i, e.code, e.msg);
            engine_plan_free(plan);
            program_free(&p);
        }
}

/* ---- stopping ---- */

static atomic_int stop_flag;

static void on_alarm(int signal_number)
{
    stop_flag = signal_number;
}

/* One weight of 2^27 elements that no step takes packed: planning is in it when the signal comes. */
static void test_stop_inside_an_expansion(void **state)
{
    enum { N = 1 << 27 };
    (void)state;
    for (int kind = 0; kind < 3; kind++) { /* a palette, blocks, numbers of another type */
        const struct sigaction action = {.sa_handler = on_alarm};
        const struct itimerval timer = {.it_value = {0, 50000}};
        const f16 entries[2] = {0};
        uint8_t *bits = xcalloc(1, kind == 0 ? N / 8 : N);
        struct program p = program_begin();
        struct mil_var *x = mil_build_input(p.b, "x", MIL_FP16, 1, SHAPE(N)), *w;
        if (kind == 0) {
            struct mil_var *indices = constant(&p, MIL_UINT1, 1, SHAPE(N), bits),
                           *lut = constant(&p, MIL_FP16, 3, SHAPE(1, 2, 1), entries);
            w = mil_build_op(p.b, "constexpr_lut_to_dense", NULL,
                             ARGS({.name = "indices", .var = indices}, {.name = "lut", .var = lut}), 2);
        } else {
            struct mil_var *data = constant(&p, MIL_INT8, 1, SHAPE(N), bits),
                           *scale = constant(&p, MIL_FP16, 1, SHAPE(1), entries);
            w = kind == 1
                    ? mil_build_op(p.b, "constexpr_blockwise_shift_scale", NULL,
                                   ARGS({.name = "data", .var = data}, {.name = "scale", .var = scale}), 2)
                    : mil_build_op(p.b, "cast", NULL,
                                   ARGS({.name = "x", .var = data},
                                        {.name = "dtype", .var = mil_build_string(p.b, "fp16", NULL)}),
                                   2);
        }
        struct mil_var *y = op2(&p, "add", x, w);
        program_end(&p, &y, 1);
        struct stop stop = {.flag = &stop_flag};
        struct engine_options options = {.stop = &stop, .limits = {.memory = UINT64_MAX, .work = UINT64_MAX}};
        struct engine_plan *plan = NULL;
        struct err e = {0};
        stop_flag = 0;
        assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
        assert_int_equal(setitimer(ITIMER_REAL, &timer, NULL), 0);
        bool ok = engine_plan_new(&plan, p.m, "main", NULL, 0, &options, &e);
        if (ok || e.code != ERR_CANCELLED)
            fail_msg("kind %d: expected an interruption, found code %d: %s", kind, e.code, e.msg);
        engine_plan_free(plan);
        program_free(&p);
        free(bits);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_huge_axes_beside_zero),
        cmocka_unit_test(test_stop_inside_an_expansion),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
