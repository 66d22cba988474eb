/* Pruned and packed weights that do not add up: each is refused by a message that says what is wrong. */
#include "program.h"

#define ROWS 2
#define COLUMNS 8

/* What a program's weight is made of; the defaults are right. */
struct parts {
    uint8_t mask[ROWS]; /* a bit for each column */
    int n_kept;
    bool by_hand; /* the linear layer takes the kept elements themselves */
    int n_scales; /* blocks of columns; 0: palettized */
};

static struct mil_var *constant(struct program *p, enum mil_dtype d, int rank, const int64_t *dims,
                                const void *data)
{
    return mil_build_const(p->b, mil_value_new(p->m, d, rank, dims, data), NULL);
}

static void expect(const struct parts *parts, enum err_code code, const char *text)
{
    struct program p = program_begin();
    struct mil_var *outputs[2];
    const int64_t n_kept = parts->n_kept;
    uint8_t two_bits[16] = {0x1b, 0xe4, 0x1b, 0xe4}, bytes[64] = {1, 2, 3, 4, 5, 6, 7, 8};
    const f16 table[4] = {f32_to_f16(-1), f32_to_f16(0.5f), f32_to_f16(2), f32_to_f16(-3)};
    f16 scales[ROWS * COLUMNS];
    for (int i = 0; i < ROWS * COLUMNS; i++)
        scales[i] = f32_to_f16(0.25f);
    struct mil_var *x = mil_build_input(p.b, "x", MIL_FP16, 2, SHAPE(1, COLUMNS));
    struct mil_var *mask = constant(&p, MIL_UINT1, 2, SHAPE(ROWS, COLUMNS), parts->mask);
    if (parts->n_scales == 0) {
        struct mil_var *indices = constant(&p, MIL_UINT2, 1, &n_kept, two_bits);
        struct mil_var *lut = constant(&p, MIL_FP16, 4, SHAPE(1, 1, 4, 1), table);
        assert_true(mil_build_op_n(p.b, "constexpr_lut_to_sparse", NULL,
                                   ARGS({.name = "indices_mask", .var = mask},
                                        {.name = "indices_nonzero_data", .var = indices},
                                        {.name = "lut", .var = lut}),
                                   3, outputs, 2));
    } else {
        struct mil_var *data = constant(&p, MIL_INT8, 1, &n_kept, bytes);
        struct mil_var *scale = constant(&p, MIL_FP16, 2, SHAPE(ROWS, parts->n_scales), scales);
        assert_true(
            mil_build_op_n(p.b, "constexpr_sparse_blockwise_shift_scale", NULL,
                           ARGS({.name = "data_mask", .var = mask}, {.name = "nonzero_data", .var = data},
                                {.name = "scale", .var = scale}),
                           3, outputs, 2));
    }
    struct mil_var *y;
    if (parts->by_hand) {
        struct mil_var *row = mil_build_op(
            p.b, "reshape", NULL,
            ARGS({.name = "x", .var = outputs[1]}, MIL_ARG_INTS("shape", ((int32_t[]){1, COLUMNS}), 2)), 2);
        y = op2(&p, "add", x, row);
    } else {
        struct mil_var *weight = mil_build_op(
            p.b, "constexpr_sparse_to_dense", NULL,
            ARGS({.name = "mask", .var = outputs[0]}, {.name = "nonzero_data", .var = outputs[1]}), 2);
        y = mil_build_op(p.b, "linear", NULL,
                         ARGS({.name = "x", .var = x}, {.name = "weight", .var = weight}), 2);
    }
    program_end(&p, &y, 1);
    struct engine_plan *plan = NULL;
    struct engine_options options = {.precision = ENGINE_DEFAULT};
    struct err e = {0};
    bool ok = engine_plan_new(&plan, p.m, "main", NULL, 0, &options, &e);
    if (!text)
        assert_true(ok);
    else if (ok || e.code != code || !strstr(e.msg, text))
        fail_msg("expected a refusal (%d) with \"%s\", found %d \"%s\"", code, text, e.code, e.msg);
    engine_plan_free(plan);
    program_free(&p);
}

static void test_masks_and_what_they_keep(void **state)
{
    (void)state;
    for (int n_scales = 0; n_scales <= 4; n_scales += 4) {
        const struct parts right = {{0x0f, 0xf0}, 8, false, n_scales};
        struct parts wrong = right;
        expect(&right, ERR_NONE, NULL);
        wrong.n_kept = 7;
        expect(&wrong, ERR_FORMAT, "the mask keeps more than the 7 elements");
        wrong.n_kept = 9;
        expect(&wrong, ERR_FORMAT, "the mask keeps 8 elements, 9 are there");
        wrong = right;
        memset(wrong.mask, 0, sizeof wrong.mask);
        expect(&wrong, ERR_FORMAT, "the mask keeps 0 elements, 8 are there");
    }
}

/* What is kept is an array of its own, which any operation takes; the mask says how many. */
static void test_kept_elements_as_an_operand(void **state)
{
    (void)state;
    for (int n_scales = 0; n_scales <= 4; n_scales += 4) {
        expect(&(struct parts){{0x0f, 0xf0}, 8, true, n_scales}, ERR_NONE, NULL);
        expect(&(struct parts){{0x0f, 0x70}, 8, true, n_scales}, ERR_FORMAT, "op constexpr_");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_masks_and_what_they_keep),
        cmocka_unit_test(test_kept_elements_as_an_operand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
