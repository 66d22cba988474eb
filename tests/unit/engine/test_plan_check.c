// links: arch
/* plan_check finds each kind of fault that is planted into a plan, and none in a plan as it was made. */
#include "program.h"
#include "arch/blocks.h"
#include "base/half.h"
#include "engine/plan.h"

/* A state that is read and written, a weight, a result that is used twice. */
static struct mil_model *model_new(void)
{
    struct program p = program_begin();
    struct mil_var *x = mil_build_input(p.b, "x", MIL_FP16, 4, SHAPE(1, 8, 1, 4)),
                   *s = mil_build_state(p.b, "s", MIL_FP16, 4, SHAPE(1, 8, 1, 4));
    f16 factors[8];
    for (int i = 0; i < 8; i++)
        factors[i] = f32_to_f16((float)i);
    struct mil_var *gain =
        mil_build_const(p.b, mil_value_new(p.m, MIL_FP16, 4, SHAPE(1, 8, 1, 1), factors), NULL);
    struct mil_var *sum = block_binary(p.b, "add", x, read_state(&p, s), NULL);
    struct mil_var *scaled = block_binary(p.b, "mul", sum, gain, NULL);
    struct mil_var *y = block_binary(p.b, "add", op1(&p, "exp", scaled), scaled, NULL);
    write_state(&p, s, sum);
    program_end(&p, &y, 1);
    return p.m;
}

static void plan_new(struct engine_plan **plan, const struct mil_model *m, enum engine_precision precision)
{
    struct engine_options options = {.precision = precision};
    ASSERT_OK(engine_plan_new(plan, m, "main", NULL, 0, &options, e));
}

/* The index of the first step of a name. */
static int step_of(const struct engine_plan *p, const char *name)
{
    for (int i = 0; i < p->n_steps; i++)
        if (strcmp(p->steps[i].name, name) == 0)
            return i;
    fail_msg("no step %s", name);
    return 0;
}

static int storage_of(const struct engine_plan *p, enum storage_kind kind)
{
    for (int i = 0; i < p->n_storages; i++)
        if (p->storages[i].kind == kind)
            return i;
    fail_msg("no storage of kind %d", (int)kind);
    return 0;
}

static struct step *exp_step(struct engine_plan *p)
{
    return &p->steps[step_of(p, "exp")];
}

static struct storage *exp_result(struct engine_plan *p)
{
    return &p->storages[exp_step(p)->out[0].storage];
}

/* ---- faults ---- */

static void plant_offset(struct engine_plan *p)
{
    exp_step(p)->in[0].offset++;
}

static void plant_negative_offset(struct engine_plan *p)
{
    exp_step(p)->in[0].offset--;
}

static void plant_stride(struct engine_plan *p)
{
    exp_step(p)->out[0].strides[1] *= 2;
}

static void plant_overflow(struct engine_plan *p)
{
    exp_step(p)->out[0].strides[1] = INT64_MAX / 2;
}

static void plant_repr(struct engine_plan *p)
{
    exp_step(p)->in[0].repr = REPR_I32;
}

static void plant_storage(struct engine_plan *p)
{
    exp_step(p)->in[0].storage = p->n_storages;
}

static void plant_operands(struct engine_plan *p)
{
    exp_step(p)->n_in = STEP_OPERANDS + 1;
}

static void plant_unwritten(struct engine_plan *p)
{
    exp_step(p)->n_out = 0;
}

static void plant_order(struct engine_plan *p)
{
    int i = step_of(p, "mul");
    struct step first = p->steps[i];
    struct storage *s = &p->storages[first.out[0].storage];
    p->steps[i] = p->steps[i + 1];
    p->steps[i + 1] = first;
    exp_result(p)->first_step = s->first_step;
}

static void plant_written_input(struct engine_plan *p)
{
    exp_step(p)->out[0].storage = storage_of(p, STORAGE_INPUT);
}

static void plant_short_life(struct engine_plan *p)
{
    exp_result(p)->last_step--;
}

static void plant_shared_memory(struct engine_plan *p)
{
    int operand = exp_step(p)->in[0].storage;
    exp_result(p)->offset = p->storages[operand].offset;
}

static void plant_outside_arena(struct engine_plan *p)
{
    exp_result(p)->offset = p->arena_bytes;
}

static void plant_no_data(struct engine_plan *p)
{
    p->storages[storage_of(p, STORAGE_CONST)].data = NULL;
}

static void plant_state_size(struct engine_plan *p)
{
    p->states[0].n_elems--;
}

static void plant_unused_state(struct engine_plan *p)
{
    p->states[0].is_used = false;
}

static void plant_result(struct engine_plan *p)
{
    p->out_values[0].dims[1]--;
}

static void plant_scratch(struct engine_plan *p)
{
    exp_step(p)->scratch_bytes = p->scratch_bytes + 1;
}

static const struct {
    void (*plant)(struct engine_plan *p);
    const char *found;
} faults[] = {
    {plant_offset, "an operand reaches outside"},
    {plant_negative_offset, "an operand reaches outside"},
    {plant_stride, "an operand reaches outside"},
    {plant_overflow, "an operand reaches outside"},
    {plant_repr, "an operand of another representation"},
    {plant_storage, "is not one of the plan"},
    {plant_operands, "an impossible number of operands"},
    {plant_unwritten, "is read before it is written"},
    {plant_order, "is read before it is written"},
    {plant_written_input, "a constant or an input is written"},
    {plant_short_life, "is looked at outside its life"},
    {plant_shared_memory, "shares memory with another that lives"},
    {plant_outside_arena, "reaches outside the arena"},
    {plant_no_data, "a constant without data"},
    {plant_state_size, "is not the state that it names"},
    {plant_unused_state, "a state that is not marked as used"},
    {plant_result, "a result that is not a dense value of the arena"},
    {plant_scratch, "more scratch memory than the plan has"},
};

static void test_a_plan_as_it_was_made(void **state)
{
    (void)state;
    struct mil_model *m = model_new();
    static const enum engine_precision precisions[] = {ENGINE_DEFAULT, ENGINE_FP32, ENGINE_FP16};
    for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++) {
        struct engine_plan *plan;
        plan_new(&plan, m, precisions[i]);
        ASSERT_OK(plan_check(plan, e));
        engine_plan_free(plan);
    }
    mil_model_close(m);
}

static void test_planted_faults(void **state)
{
    (void)state;
    struct mil_model *m = model_new();
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        struct engine_plan *plan;
        struct err e = {0};
        plan_new(&plan, m, ENGINE_DEFAULT);
        faults[i].plant(plan);
        if (plan_check(plan, &e))
            fail_msg("not found: %s", faults[i].found);
        assert_int_equal(e.code, ERR_BUG);
        if (!strstr(e.msg, faults[i].found))
            fail_msg("expected \"%s\", found \"%s\"", faults[i].found, e.msg);
        engine_plan_free(plan);
    }
    mil_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_plan_as_it_was_made),
        cmocka_unit_test(test_planted_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
