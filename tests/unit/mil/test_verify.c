/* The verifier: a sound model passes, and each kind of damage gives the message that names it.
 *
 * The model under test: function main, input x fp16 [1, 4], state cache fp16 [1, 4];
 *   sum = add(x, cache); write cache <- sum; result = concat([sum, x], axis 0)
 */
#include "support.h"
#include "mil/build.h"

#define ARGS(...) ((const struct mil_build_arg[]){__VA_ARGS__})

static int64_t dims_1_4[2] = {1, 4};
static int64_t dims_2_4[2] = {2, 4};
static int64_t dims_1_5[2] = {1, 5};

/* Positions of the ops in the function. */
enum { OP_READ, OP_ADD, OP_WRITE, OP_AXIS, OP_CONCAT };

static struct mil_feature new_feature(const char *name, enum mil_feature_kind kind, const int64_t *shape)
{
    return (struct mil_feature){
        .name = name, .short_description = "", .kind = kind, .dtype = MIL_FP16, .rank = 2, .shape = shape};
}

static struct mil_model *new_model(void)
{
    struct mil_model *m = mil_model_new(9);
    struct mil_builder *b = mil_builder_new(m, "main", "CoreML8");
    struct mil_var *x = mil_build_input(b, "x", MIL_FP16, 2, dims_1_4);
    struct mil_var *cache = mil_build_state(b, "cache", MIL_FP16, 2, dims_1_4);
    struct mil_var *read = mil_build_op(b, "read_state", "read", ARGS({.name = "input", .var = cache}), 1);
    struct mil_var *sum =
        mil_build_op(b, "add", "sum", ARGS({.name = "x", .var = x}, {.name = "y", .var = read}), 2);
    assert_true(mil_build_op_n(b, "write_state", "write",
                               ARGS({.name = "input", .var = cache}, {.name = "data", .var = sum}), 2, NULL,
                               0));
    struct mil_var *parts[2] = {sum, x};
    struct mil_var *result = mil_build_op(b, "concat", "result",
                                          ARGS({.name = "values", .vars = parts, .n_vars = 2},
                                               {.name = "axis", .var = mil_build_int(b, 0, "axis")}),
                                          2);
    ASSERT_OK(mil_builder_finish(b, &result, 1, e));

    struct mil_function_description *d = ARENA_NEW(m->arena, struct mil_function_description);
    d->n_inputs = d->n_outputs = d->n_states = 1;
    d->inputs = ARENA_NEW(m->arena, struct mil_feature);
    d->outputs = ARENA_NEW(m->arena, struct mil_feature);
    d->states = ARENA_NEW(m->arena, struct mil_feature);
    d->inputs[0] = new_feature("x", MIL_FEATURE_ARRAY, dims_1_4);
    d->outputs[0] = new_feature("result", MIL_FEATURE_ARRAY, dims_2_4);
    d->states[0] = new_feature("cache", MIL_FEATURE_STATE, dims_1_4);
    m->description.n_functions = 1;
    m->description.functions = d;
    return m;
}

static struct mil_op *op_at(struct mil_model *m, int i)
{
    return m->program->functions[0]->block->ops[i];
}

static void expect(struct mil_model *m, enum err_code code, const char *message)
{
    struct err e = {0};
    if (mil_verify(m, &e))
        fail_msg("expected '%s', but the model passed", message);
    if (!strstr(e.msg, message))
        fail_msg("expected '%s' in '%s'", message, e.msg);
    assert_int_equal(e.code, code);
    mil_model_close(m);
}

static const struct mil_type *type_of(struct mil_model *m, enum mil_dtype d, const int64_t *dims)
{
    return mil_type_new_tensor(m->arena, d, 2, dims);
}

static void test_sound_model_passes(void **state)
{
    (void)state;
    struct mil_model *m = new_model();
    ASSERT_OK(mil_verify(m, e));
    assert_true(mil_op_is(op_at(m, OP_READ), "read_state") && mil_op_is(op_at(m, OP_CONCAT), "concat"));
    mil_model_close(m);
}

static void test_functions(void **state)
{
    (void)state;
    struct mil_model *m = new_model();
    m->program->n_functions = 0;
    expect(m, ERR_FORMAT, "the program has no functions");
    m = new_model();
    m->program->functions[0]->opset = "CoreML42";
    expect(m, ERR_UNSUPPORTED, "function main: opset 'CoreML42' is unknown");
    m = new_model();
    m->program->functions[0]->name = "";
    expect(m, ERR_FORMAT, "function name '' is empty or used twice");
    m = new_model();
    struct mil_function *twice[2] = {m->program->functions[0], m->program->functions[0]};
    m->program->functions = twice;
    m->program->n_functions = 2;
    expect(m, ERR_FORMAT, "function name 'main' is empty or used twice");
    m = new_model();
    m->program->functions[0]->opset = "CoreML7";
    expect(m, ERR_FORMAT, "op read_state 'read' exists from opset ios18 on, the function has CoreML7");
    m = new_model();
    m->program->functions[0]->block = NULL;
    expect(m, ERR_FORMAT, "no block");
}

static void test_definitions(void **state)
{
    (void)state;
    struct mil_model *m = new_model();
    op_at(m, OP_ADD)->outputs[0]->name = "x";
    expect(m, ERR_FORMAT, "function main: op add 'x': 'x' is defined twice");
    m = new_model();
    op_at(m, OP_ADD)->outputs[0]->id = 0;
    expect(m, ERR_FORMAT, "shares its id");
    m = new_model();
    op_at(m, OP_ADD)->outputs[0]->id = 99;
    expect(m, ERR_FORMAT, "'sum' has the id 99, the function has 6 variables");
    m = new_model();
    op_at(m, OP_ADD)->outputs[0]->id = -1;
    expect(m, ERR_FORMAT, "'sum' has the id -1");
    m = new_model();
    op_at(m, OP_ADD)->outputs[0]->type = NULL;
    expect(m, ERR_FORMAT, "without a name or a type");
    m = new_model();
    op_at(m, OP_ADD)->outputs[0]->op = op_at(m, OP_READ);
    expect(m, ERR_FORMAT, "'sum' belongs to another op");
    m = new_model();
    struct mil_op **ops = m->program->functions[0]->block->ops;
    ops[OP_READ] = ops[OP_ADD]; /* used before it is defined */
    expect(m, ERR_FORMAT,
           "op add 'sum': argument y: 'read' is neither a function input nor produced by an earlier op");
    m = new_model();
    struct mil_var stranger = *op_at(m, OP_READ)->outputs[0];
    op_at(m, OP_ADD)->args[1].bindings[0].var = &stranger;
    expect(m, ERR_FORMAT, "'read' is neither a function input nor produced");
    m = new_model();
    stranger = *op_at(m, OP_READ)->outputs[0];
    m->program->functions[0]->block->outputs[0] = &stranger;
    expect(m, ERR_FORMAT, "the output 'read' is neither an input nor produced by an op");
    m = new_model();
    op_at(m, OP_ADD)->n_outputs = 0;
    expect(m, ERR_FORMAT, "op add 'sum' has no result");
}

static void test_arguments(void **state)
{
    (void)state;
    struct mil_model *m = new_model();
    op_at(m, OP_ADD)->args[1].name = "z";
    expect(m, ERR_FORMAT, "op add 'sum' has no argument z");
    m = new_model();
    op_at(m, OP_ADD)->n_args = 1;
    expect(m, ERR_FORMAT, "op add 'sum': argument y is missing");
    m = new_model();
    op_at(m, OP_ADD)->args[1].name = "x";
    expect(m, ERR_FORMAT, "op add 'sum': argument x is given twice");
    m = new_model();
    op_at(m, OP_ADD)->args[1].n = 0;
    expect(m, ERR_FORMAT, "op add 'sum': argument y has 0 values, expected one");
    m = new_model();
    struct mil_binding pair[2] = {op_at(m, OP_ADD)->args[1].bindings[0],
                                  op_at(m, OP_ADD)->args[1].bindings[0]};
    op_at(m, OP_ADD)->args[1].bindings = pair;
    op_at(m, OP_ADD)->args[1].n = 2;
    expect(m, ERR_FORMAT, "op add 'sum': argument y has 2 values, expected one");
    m = new_model();
    op_at(m, OP_ADD)->args[1].bindings[0].var = NULL;
    expect(m, ERR_FORMAT, "op add 'sum': argument y must be one variable or one value");
    m = new_model();
    op_at(m, OP_ADD)->args[1].bindings[0].value = mil_attribute(op_at(m, OP_AXIS), "val");
    expect(m, ERR_FORMAT, "op add 'sum': argument y must be one variable or one value");
    m = new_model();
    op_at(m, OP_CONCAT)->args[1].bindings[0].var = op_at(m, OP_ADD)->outputs[0];
    expect(m, ERR_FORMAT,
           "op concat 'result': argument axis must be an integer tensor, found tensor<fp16, [1, 4]>");
    m = new_model();
    m->program->functions[0]->inputs[0]->type = mil_type_new_tensor(m->arena, MIL_INT32, 0, NULL);
    op_at(m, OP_CONCAT)->args[1].bindings[0].var = m->program->functions[0]->inputs[0];
    op_at(m, OP_ADD)->args[0].bindings[0].var = op_at(m, OP_READ)->outputs[0];
    op_at(m, OP_CONCAT)->args[0].bindings[1].var = op_at(m, OP_READ)->outputs[0];
    expect(m, ERR_FORMAT, "op concat 'result': argument axis must be a constant, found the variable 'x'");
}

static void test_states(void **state)
{
    (void)state;
    struct mil_model *m = new_model();
    op_at(m, OP_ADD)->args[1].bindings[0].var = m->program->functions[0]->inputs[1];
    expect(m, ERR_FORMAT,
           "op add 'sum': argument y must be a tensor of numbers, found state<tensor<fp16, [1, 4]>>");
    m = new_model();
    op_at(m, OP_READ)->args[0].bindings[0].var = m->program->functions[0]->inputs[0];
    expect(m, ERR_FORMAT, "op read_state 'read': argument input must be a state");
    m = new_model();
    m->program->functions[0]->block->outputs[0] = m->program->functions[0]->inputs[1];
    expect(m, ERR_FORMAT, "the output 'cache' is a state");
    m = new_model();
    op_at(m, OP_READ)->outputs[0]->type = m->program->functions[0]->inputs[1]->type;
    expect(m, ERR_FORMAT, "'read' is a state; only a function input can be one");
    m = new_model();
    int64_t open[2] = {1, MIL_DIM_UNKNOWN};
    m->program->functions[0]->inputs[1]->type = mil_type_new_state(m->arena, type_of(m, MIL_FP16, open));
    expect(m, ERR_FORMAT, "the state 'cache' must be a tensor of known shape");
    m = new_model();
    op_at(m, OP_WRITE)->args[1].bindings[0].var = op_at(m, OP_AXIS)->outputs[0];
    struct mil_op **ops = m->program->functions[0]->block->ops, *write = ops[OP_WRITE];
    ops[OP_WRITE] = ops[OP_AXIS];
    ops[OP_AXIS] = write;
    expect(m, ERR_FORMAT, "op write_state: the state holds tensor<fp16, [1, 4]>, data is int32");
    m = new_model();
    op_at(m, OP_WRITE)->n_outputs = 1;
    op_at(m, OP_WRITE)->outputs = op_at(m, OP_ADD)->outputs;
    expect(m, ERR_FORMAT, "has a result, expected none");
}

static void test_types(void **state)
{
    (void)state;
    struct mil_model *m = new_model();
    op_at(m, OP_ADD)->outputs[0]->type = type_of(m, MIL_FP16, dims_1_5);
    expect(m, ERR_FORMAT,
           "function main: op add 'sum': declared tensor<fp16, [1, 5]>, but its operands give tensor<fp16, "
           "[1, 4]>");
    m = new_model();
    op_at(m, OP_ADD)->outputs[0]->type = type_of(m, MIL_FP32, dims_1_4);
    expect(m, ERR_FORMAT, "op add 'sum': declared tensor<fp32, [1, 4]>");
    m = new_model();
    m->program->functions[0]->inputs[0]->type = type_of(m, MIL_FP16, dims_1_5);
    expect(m, ERR_FORMAT, "op add 'sum': shapes do not broadcast");
}

static void test_values(void **state)
{
    (void)state;
    struct mil_model *m = new_model();
    struct mil_value *v = arena_copy(m->arena, mil_attribute(op_at(m, OP_AXIS), "val"), sizeof *v);
    op_at(m, OP_AXIS)->attributes[1].value = v;
    v->bytes = 3;
    expect(m, ERR_FORMAT, "op const 'axis': attribute val has not the bytes its type announces");
    m = new_model();
    op_at(m, OP_AXIS)->attributes[1].name = "value";
    expect(m, ERR_FORMAT, "op const 'axis': attribute val is missing");
    m = new_model();
    op_at(m, OP_AXIS)->attributes[1].value = NULL;
    expect(m, ERR_FORMAT, "op const 'axis': attribute val has no value");
    m = new_model();
    v = arena_copy(m->arena, mil_attribute(op_at(m, OP_AXIS), "val"), sizeof *v);
    op_at(m, OP_AXIS)->attributes[1].value = v;
    v->kind = MIL_VALUE_BLOB;
    expect(m, ERR_FORMAT, "attribute val names no weight file");
    m = new_model();
    struct mil_weight no_producer = {.name = "w"};
    op_at(m, OP_AXIS)->attributes[1].value = mil_value_new_weight(m, MIL_INT32, 0, NULL, &no_producer);
    expect(m, ERR_FORMAT, "attribute val has no producer");
}

static void test_description(void **state)
{
    (void)state;
    struct mil_model *m = new_model();
    m->description.functions[0].inputs[0].name = "y";
    expect(m, ERR_FORMAT, "function main: the program has the input 'x', the description has not");
    m = new_model();
    m->description.functions[0].n_states = 0;
    expect(m, ERR_FORMAT, "the program has the state 'cache', the description has not");
    m = new_model();
    m->description.functions[0].outputs[0].name = "y";
    expect(m, ERR_FORMAT, "the program has the output 'result', the description has not");
    m = new_model();
    struct mil_feature two[2] = {m->description.functions[0].inputs[0],
                                 m->description.functions[0].inputs[0]};
    two[1].name = "more";
    m->description.functions[0].inputs = two;
    m->description.functions[0].n_inputs = 2;
    expect(m, ERR_FORMAT, "the description has the input 'more', the program has not");
    m = new_model();
    two[1].name = "x";
    m->description.functions[0].inputs = two;
    m->description.functions[0].n_inputs = 2;
    expect(m, ERR_FORMAT, "input 1 has no name, or the name of another one");
    m = new_model();
    struct mil_feature outputs[2] = {m->description.functions[0].outputs[0],
                                     m->description.functions[0].outputs[0]};
    outputs[1].name = "more";
    m->description.functions[0].outputs = outputs;
    m->description.functions[0].n_outputs = 2;
    expect(m, ERR_FORMAT, "the description has the output 'more', the program has not");
    m = new_model();
    m->description.functions[0].inputs[0].dtype = MIL_FP32;
    expect(m, ERR_FORMAT, "input 'x' is described as fp32, the program has fp16");
    m = new_model();
    m->description.functions[0].inputs[0].shape = dims_1_5;
    expect(m, ERR_FORMAT,
           "input 'x' is described as tensor<fp16, [1, 5]>, the program has tensor<fp16, [1, 4]>");
    m = new_model();
    m->description.functions[0].states[0].rank = 1;
    expect(m, ERR_FORMAT, "state 'cache' is described as tensor<fp16, [1]>");
    m = new_model();
    m->description.functions[0].states[0].kind = MIL_FEATURE_ARRAY;
    expect(m, ERR_FORMAT, "'cache' is a state in the program, but not in the description");
    m = new_model();
    m->description.functions[0].name = "other";
    expect(m, ERR_FORMAT, "the description has the function 'other', the program has not");
    m = new_model();
    m->description.default_function_name = "other";
    expect(m, ERR_FORMAT, "the default function 'other' is not in the program");
}

static void test_flexible_shapes(void **state)
{
    (void)state;
    int64_t open[2] = {1, MIL_DIM_UNKNOWN};
    struct mil_model *m = mil_model_new(9);
    struct mil_var *x;
    struct mil_range ranges[2] = {{1, 1}, {1, -1}};
    const int64_t *shapes[2] = {dims_1_4, dims_1_5};
    int ranks[2] = {2, 2};
    struct mil_builder *b = mil_builder_new(m, "main", "CoreML8");
    x = mil_build_input(b, "x", MIL_FP16, 2, open);
    struct mil_var *y = mil_build_op(b, "tanh", "y", ARGS({.name = "x", .var = x}), 1);
    ASSERT_OK(mil_builder_finish(b, &y, 1, e));
    struct mil_feature input = new_feature("x", MIL_FEATURE_ARRAY, dims_1_4);
    struct mil_feature output = {.name = "y", .kind = MIL_FEATURE_ARRAY, .dtype = MIL_FP16};
    struct mil_function_description d = {.n_inputs = 1, .n_outputs = 1, .inputs = &input, .outputs = &output};
    m->description.n_functions = 1;
    m->description.functions = &d;
    input.n_ranges = 2;
    input.ranges = ranges;
    ASSERT_OK(mil_verify(m, e));
    struct err e = {0};
    ranges[0].upper = 0;
    assert_false(mil_verify(m, &e));
    assert_non_null(strstr(e.msg, "input 'x': range 1 to 0 of axis 0 does not fit tensor<fp16, [1, ?]>"));
    input.n_ranges = 1;
    assert_false(mil_verify(m, &e));
    assert_non_null(strstr(e.msg, "input 'x' has 1 ranges"));
    input.n_ranges = 0;
    input.n_enumerated = 2;
    input.enumerated = shapes;
    input.enumerated_ranks = ranks;
    ASSERT_OK(mil_verify(m, e));
    shapes[1] = dims_2_4;
    assert_false(mil_verify(m, &e));
    assert_non_null(strstr(e.msg, "input 'x': enumerated shape 1 does not fit"));
    mil_model_close(m);
}

/* A stranger's op is kept: its declared types hold, its references are checked all the same. */
static void test_unknown_ops(void **state)
{
    (void)state;
    struct mil_model *m = new_model();
    op_at(m, OP_ADD)->type = "future_op";
    op_at(m, OP_ADD)->info = NULL;
    op_at(m, OP_ADD)->args[1].name = "whatever";
    ASSERT_OK(mil_verify(m, e));
    struct mil_var stranger = *op_at(m, OP_READ)->outputs[0];
    op_at(m, OP_ADD)->args[1].bindings[0].var = &stranger;
    expect(m, ERR_FORMAT, "op future_op 'sum': argument whatever: 'read' is neither");
}

/* Nested blocks: names of the outside are visible, those of the inside end with the block. */
static void test_nested_blocks(void **state)
{
    (void)state;
    struct mil_model *m = new_model();
    struct mil_function *f = m->program->functions[0];
    struct mil_op *outer = op_at(m, OP_READ), inner = *op_at(m, OP_ADD);
    struct mil_var inner_result = *op_at(m, OP_ADD)->outputs[0], *inner_results[1] = {&inner_result};
    struct mil_op *inner_ops[1] = {&inner};
    struct mil_block block = {.n_ops = 1, .ops = inner_ops, .n_outputs = 1, .outputs = inner_results};
    struct mil_block *blocks[1] = {&block};
    struct mil_binding x = {.var = f->inputs[0]};
    struct mil_arg args[2] = {{"x", 1, &x}, {"y", 1, &x}};
    inner_result.id = f->n_vars++;
    inner_result.op = &inner;
    inner_result.name = "inside";
    inner.outputs = inner_results;
    inner.args = args;
    outer->n_blocks = 1;
    outer->blocks = blocks;
    ASSERT_OK(mil_verify(m, e));

    struct err e = {0};
    struct mil_var *was = op_at(m, OP_ADD)->args[1].bindings[0].var;
    op_at(m, OP_ADD)->args[1].bindings[0].var = &inner_result;
    assert_false(mil_verify(m, &e));
    assert_non_null(strstr(e.msg, "op add 'sum': argument y: 'inside' is neither"));
    op_at(m, OP_ADD)->args[1].bindings[0].var = was;
    inner_result.type = type_of(m, MIL_FP16, dims_1_5);
    expect(m, ERR_FORMAT, "op add 'inside': declared tensor<fp16, [1, 5]>");

    m = new_model();
    struct mil_block endless = {0};
    struct mil_op nested = {.type = "nested", .n_blocks = 1, .blocks = blocks};
    struct mil_op *nested_ops[1] = {&nested};
    blocks[0] = &endless;
    endless.n_ops = 1;
    endless.ops = nested_ops;
    op_at(m, OP_READ)->n_blocks = 1;
    op_at(m, OP_READ)->blocks = blocks;
    expect(m, ERR_FORMAT, "blocks are nested deeper than");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sound_model_passes),
        cmocka_unit_test(test_functions),
        cmocka_unit_test(test_definitions),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_states),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_description),
        cmocka_unit_test(test_flexible_shapes),
        cmocka_unit_test(test_unknown_ops),
        cmocka_unit_test(test_nested_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
