// links: arch
/* How states are held: decided by what all functions and files that share a state do with it, never by which of them an
 * engine's pattern fits. */
#include "program.h"
#include "arch/blocks.h"

enum { ROWS = 6, COLUMNS = 4 };

static struct mil_var *make_state(struct program *p)
{
    return mil_build_state(p->b, "s", MIL_FP16, 2, SHAPE(ROWS, COLUMNS));
}

static struct mil_var *update_at(struct program *p, struct mil_var *x, struct mil_var *rows,
                                 struct mil_var *begin)
{
    const int32_t end[2] = {ROWS, COLUMNS};
    return mil_build_op(p->b, "slice_update", NULL,
                        ARGS({.name = "x", .var = x}, {.name = "update", .var = rows},
                             {.name = "begin", .var = begin},
                             {.name = "end", .var = mil_build_ints(p->b, end, 2, NULL)}),
                        4);
}

/* The new contents are computed from the old ones. */
static struct mil_var *accumulate(struct program *p, struct mil_var *s)
{
    struct mil_var *old = read_state(p, s), *sum = op2(p, "add", old, mil_build_f16(p->b, 1, NULL));
    write_state(p, s, sum);
    return sum;
}

/* Rows enter from behind. */
static struct mil_var *shift(struct program *p, struct mil_var *s, bool looked_at_by_a_product)
{
    struct mil_var *x = mil_build_input(p->b, "x", MIL_FP16, 2, SHAPE(1, COLUMNS)), *old = read_state(p, s);
    struct mil_var *parts[2] = {block_slice(p->b, old, 0, 1, ROWS, NULL), x};
    struct mil_var *joined = block_concat(p->b, parts, 2, 0, NULL);
    write_state(p, s, joined);
    return looked_at_by_a_product ? block_matmul(p->b, x, read_state(p, s), true, NULL) : joined;
}

/* A row goes where an input says. */
static struct mil_var *place(struct program *p, struct mil_var *s)
{
    struct mil_var *x = mil_build_input(p->b, "x", MIL_FP16, 2, SHAPE(1, COLUMNS));
    struct mil_var *at = mil_build_input(p->b, "at", MIL_INT32, 1, SHAPE(2)), *old = read_state(p, s);
    write_state(p, s, update_at(p, old, op2(p, "mul", x, mil_build_f16(p->b, 2, NULL)), at));
    struct mil_var *now = read_state(p, s);
    return op2(p, "add", now, mil_build_f16(p->b, 1, NULL));
}

/* Looks at one element and adds nothing. */
static struct mil_var *touch(struct program *p, struct mil_var *s)
{
    struct mil_var *x = mil_build_input(p->b, "x", MIL_FP16, 2, SHAPE(1, 1));
    struct mil_var *one =
        block_slice(p->b, block_slice(p->b, read_state(p, s), 0, 0, 1, NULL), 1, 0, 1, NULL);
    return op2(p, "add", x, op2(p, "mul", one, mil_build_f16(p->b, 0, NULL)));
}

enum use { ACCUMULATE, SHIFT, SHIFT_PRODUCT, PLACE, TOUCH, USES };

static struct program make(enum use use)
{
    struct program p = program_begin();
    struct mil_var *s = make_state(&p), *out = NULL;
    switch (use) {
    case ACCUMULATE:
        out = accumulate(&p, s);
        break;
    case SHIFT:
    case SHIFT_PRODUCT:
        out = shift(&p, s, use == SHIFT_PRODUCT);
        break;
    case PLACE:
        out = place(&p, s);
        break;
    default:
        out = touch(&p, s);
        break;
    }
    program_end(&p, &out, 1);
    return p;
}

static bool is_recurrent(const struct program *p, const struct engine_state_forms *forms,
                         enum engine_precision precision, bool *as_float32)
{
    struct machine m;
    machine_open_with(
        &m, p->m,
        &(struct engine_options){.precision = precision, .declared_states = true, .state_forms = forms}, 1);
    const struct engine_state_entry *entry = engine_state_get(m.state, 0);
    bool recurrent = entry->is_recurrent;
    *as_float32 = entry->f32_data != NULL;
    machine_close(&m);
    return recurrent;
}

static void test_by_use(void **state)
{
    static const bool expected[USES] = {
        [ACCUMULATE] = true, [SHIFT] = true, [SHIFT_PRODUCT] = false, [PLACE] = false, [TOUCH] = false};
    (void)state;
    for (int use = 0; use < USES; use++) {
        struct program p = make((enum use)use);
        bool as_float32;
        for (int precision = 0; precision < 3; precision++) {
            bool got = is_recurrent(&p, NULL, (enum engine_precision)precision, &as_float32);
            if (got != expected[use])
                fail_msg("use %d, precision %d: recurrent %d", use, precision, got);
            assert_int_equal(as_float32, got && precision != ENGINE_FP16);
        }
        program_free(&p);
    }
}

/* Two files that share a state: whatever the one does alone, both hold it in one type, so a session can run both. */
static void test_shared(void **state)
{
    (void)state;
    for (int a = 0; a < USES; a++)
        for (int b = 0; b < USES; b++) {
            struct program p = make((enum use)a), q = make((enum use)b);
            struct engine_state_forms *forms = engine_state_forms_new();
            engine_state_forms_add(forms, p.m);
            engine_state_forms_add(forms, q.m);
            bool first, second;
            int of_first = is_recurrent(&p, forms, ENGINE_DEFAULT, &first);
            assert_int_equal(of_first, is_recurrent(&q, forms, ENGINE_DEFAULT, &second));
            struct engine_options options = {.state_forms = forms};
            struct engine_plan *plans[2];
            struct engine_state *states = engine_state_new();
            ASSERT_OK(engine_plan_new(&plans[0], p.m, "main", NULL, 0, &options, e));
            ASSERT_OK(engine_plan_new(&plans[1], q.m, "main", NULL, 0, &options, e));
            ASSERT_OK(engine_state_add(states, plans[0], e));
            ASSERT_OK(engine_state_add(states, plans[1], e));
            engine_state_free(states);
            engine_plan_free(plans[0]);
            engine_plan_free(plans[1]);
            engine_state_forms_free(forms);
            program_free(&p);
            program_free(&q);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_use),
        cmocka_unit_test(test_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
