/* The builder: inferred types, names, shared consts, sticky errors, and programs that pass the verifier. */
#include "support.h"
#include "mil/build.h"

#define ARGS(...) ((const struct mil_build_arg[]){__VA_ARGS__})

static const int64_t dims_1_4[2] = {1, 4};

static struct mil_var *two(struct mil_builder *b, const char *type, const char *name, struct mil_var *x,
                           struct mil_var *y)
{
    return mil_build_op(b, type, name, ARGS({.name = "x", .var = x}, {.name = "y", .var = y}), 2);
}

static void assert_type(const struct mil_var *v, const char *expected)
{
    char text[160];
    assert_non_null(v);
    mil_type_text(text, sizeof text, v->type);
    assert_string_equal(text, expected);
}

static void assert_name_attribute(const struct mil_op *op, const char *expected)
{
    struct str s;
    assert_true(mil_value_string(mil_attribute(op, "name"), &s));
    assert_int_equal(s.n, strlen(expected));
    assert_memory_equal(s.p, expected, s.n);
}

static void test_types_names_and_order(void **state)
{
    (void)state;
    struct mil_model *m = mil_model_new(9);
    struct mil_builder *b = mil_builder_new(m, "main", "CoreML8");
    struct mil_var *x = mil_build_input(b, "x", MIL_FP16, 2, dims_1_4);
    struct mil_var *sum = two(b, "add", "sum", x, mil_build_f16(b, 1.5, NULL));
    struct mil_var *again = two(b, "add", "sum", sum, mil_build_f16(b, 1.5, NULL));
    struct mil_var *third = two(b, "mul", "layer.0/out", again, again);
    struct mil_var *turned =
        mil_build_op(b, "transpose", NULL,
                     ARGS({.name = "x", .var = third}, MIL_ARG_INTS("perm", ((int32_t[]){1, 0}), 2)), 2);
    assert_type(sum, "tensor<fp16, [1, 4]>");
    assert_type(turned, "tensor<fp16, [4, 1]>");
    assert_string_equal(sum->name, "sum");
    assert_string_equal(again->name, "sum_1");
    assert_string_equal(third->name, "layer_0_out");
    assert_string_equal(turned->name, "transpose_0");
    mil_build_rename(b, turned, "result");
    ASSERT_OK(mil_builder_finish(b, &turned, 1, e));

    const struct mil_function *f = mil_function_find(m, "main");
    assert_non_null(f);
    assert_string_equal(f->opset, "CoreML8");
    /* 1.5 is one const, named after its first use; the const of perm stands before the transpose. */
    static const char *const expected[] = {"const", "add", "add", "mul", "const", "transpose"};
    assert_int_equal(f->block->n_ops, 6);
    assert_int_equal(f->n_vars, 7);
    for (int i = 0; i < 6; i++) {
        assert_string_equal(f->block->ops[i]->type, expected[i]);
        assert_name_attribute(f->block->ops[i], f->block->ops[i]->outputs[0]->name);
        assert_ptr_equal(f->block->ops[i]->info, mil_op_info_find(expected[i]));
    }
    assert_string_equal(f->block->ops[0]->outputs[0]->name, "sum_y_0");
    assert_string_equal(f->block->ops[4]->outputs[0]->name, "transpose_0_perm_0");
    assert_string_equal(f->block->outputs[0]->name, "result");
    double v;
    assert_true(mil_value_float(mil_arg_value(f->block->ops[1], "y"), &v));
    assert_true(v == 1.5);
    ASSERT_OK(mil_verify(m, e));
    mil_model_close(m);
}

static void test_constants_are_shared_by_content(void **state)
{
    (void)state;
    struct mil_model *m = mil_model_new(9);
    struct mil_builder *b = mil_builder_new(m, "main", "CoreML8");
    int32_t two_ints[2] = {1, 2}, other_ints[2] = {1, 3};
    const struct mil_var *first;
    first = mil_build_ints(b, two_ints, 2, NULL);
    assert_ptr_equal(first, mil_build_ints(b, two_ints, 2, "axes"));
    first = mil_build_ints(b, two_ints, 2, NULL);
    assert_ptr_not_equal(first, mil_build_ints(b, other_ints, 2, NULL));
    assert_string_equal(mil_build_ints(b, two_ints, 2, NULL)->name, "axes");
    first = mil_build_ints(b, two_ints, 1, NULL);
    assert_ptr_not_equal(first, mil_build_int(b, 1, NULL));
    first = mil_build_bool(b, true, NULL);
    assert_ptr_equal(first, mil_build_bool(b, true, NULL));
    first = mil_build_bool(b, true, NULL);
    assert_ptr_not_equal(first, mil_build_bool(b, false, NULL));
    first = mil_build_bools(b, (bool[]){true}, 1, NULL);
    assert_ptr_not_equal(first, mil_build_bool(b, true, NULL));
    first = mil_build_string(b, "same", NULL);
    assert_ptr_equal(first, mil_build_string(b, "same", NULL));
    first = mil_build_f16(b, 0.0, NULL);
    assert_ptr_not_equal(first, mil_build_f16(b, -0.0, NULL));
    assert_type(mil_build_int(b, 1, NULL), "int32");
    assert_type(mil_build_bools(b, (bool[]){true, false}, 2, NULL), "tensor<bool, [2]>");
    const struct mil_value *v = mil_value_new(m, MIL_FP16, 2, dims_1_4, (f16[]){1, 2, 3, 4});
    first = mil_build_const(b, v, "w");
    assert_ptr_equal(first, mil_build_const(b, v, NULL));
    struct mil_var *out = mil_build_const(b, v, NULL);
    ASSERT_OK(mil_builder_finish(b, &out, 1, e));
    /* What nothing uses still has a name in the end. */
    const struct mil_function *f = mil_function_find(m, "main");
    for (int i = 0; i < f->block->n_ops; i++)
        assert_non_null(f->block->ops[i]->outputs[0]->name);
    ASSERT_OK(mil_verify(m, e));
    mil_model_close(m);
}

static void test_functions_share_values(void **state)
{
    (void)state;
    struct mil_model *m = mil_model_new(9);
    const struct mil_value *w = mil_value_new(m, MIL_FP16, 2, dims_1_4, (f16[]){1, 2, 3, 4});
    static const char *const names[2] = {"infer", "prefill"};
    for (int i = 0; i < 2; i++) {
        struct mil_builder *b = mil_builder_new(m, names[i], "CoreML8");
        struct mil_var *x = mil_build_input(b, "x", MIL_FP16, 2, dims_1_4);
        struct mil_var *y = two(b, "add", "y", x, mil_build_const(b, w, "w"));
        ASSERT_OK(mil_builder_finish(b, &y, 1, e));
    }
    assert_int_equal(m->program->n_functions, 2);
    for (int i = 0; i < 2; i++)
        assert_ptr_equal(mil_attribute(mil_function_find(m, names[i])->block->ops[0], "val"), w);
    ASSERT_OK(mil_verify(m, e));
    mil_model_close(m);
}

static void test_states_and_several_results(void **state)
{
    (void)state;
    struct mil_model *m = mil_model_new(9);
    struct mil_builder *b = mil_builder_new(m, "main", "CoreML8");
    struct mil_var *s = mil_build_state(b, "cache", MIL_FP16, 2, dims_1_4);
    struct mil_var *read = mil_build_op(b, "read_state", "read", ARGS({.name = "input", .var = s}), 1);
    struct mil_var *twice = two(b, "add", "twice", read, read);
    assert_true(mil_build_op_n(b, "write_state", "write",
                               ARGS({.name = "input", .var = s}, {.name = "data", .var = twice}), 2, NULL,
                               0));
    struct mil_var *parts[2];
    assert_true(mil_build_op_n(
        b, "split", "part",
        ARGS({.name = "x", .var = twice}, MIL_ARG_INT("num_splits", 2), MIL_ARG_INT("axis", 1)), 3, parts,
        2));
    assert_type(read, "tensor<fp16, [1, 4]>");
    assert_type(parts[1], "tensor<fp16, [1, 2]>");
    assert_string_equal(parts[0]->name, "part");
    assert_string_equal(parts[1]->name, "part_1");
    struct mil_var *joined =
        mil_build_op(b, "concat", "joined",
                     ARGS({.name = "values", .vars = parts, .n_vars = 2}, MIL_ARG_INT("axis", 0)), 2);
    assert_type(joined, "tensor<fp16, [2, 2]>");
    ASSERT_OK(mil_builder_finish(b, &joined, 1, e));
    ASSERT_OK(mil_verify(m, e));
    mil_model_close(m);
}

/* The first error stays; what follows is harmless. */
static void expect_failure(struct mil_builder *b, struct mil_var *result, enum err_code code,
                           const char *message)
{
    struct err e = {0};
    assert_null(result);
    assert_true(mil_builder_failed(b));
    struct mil_var *x = mil_build_int(b, 1, NULL);
    assert_null(x);
    assert_null(two(b, "add", "later", x, x));
    mil_build_rename(b, x, "y");
    mil_builder_fail(b, ERR_USAGE, "a later one");
    assert_false(mil_builder_finish(b, &x, 1, &e));
    assert_int_equal(e.code, code);
    if (!strstr(e.msg, message))
        fail_msg("expected '%s' in '%s'", message, e.msg);
    assert_non_null(strstr(e.msg, "function main"));
}

static void test_errors_are_sticky(void **state)
{
    (void)state;
    struct mil_model *m = mil_model_new(9);
    struct mil_builder *b = mil_builder_new(m, "main", "CoreML8");
    struct mil_var *x = mil_build_input(b, "x", MIL_FP16, 2, dims_1_4);
    expect_failure(b, two(b, "add", "sum", x, mil_build_int(b, 1, NULL)), ERR_FORMAT,
                   "op add 'sum': element types differ: x is fp16, y is int32");
    b = mil_builder_new(m, "main", "CoreML8");
    x = mil_build_input(b, "x", MIL_FP16, 2, dims_1_4);
    expect_failure(b, two(b, "no_such_op", "sum", x, x), ERR_BUG, "op no_such_op is not in the table");
    b = mil_builder_new(m, "main", "CoreML7");
    x = mil_build_state(b, "x", MIL_FP16, 2, dims_1_4);
    expect_failure(b, mil_build_op(b, "read_state", NULL, ARGS({.name = "input", .var = x}), 1), ERR_BUG,
                   "op read_state does not exist in opset CoreML7");
    b = mil_builder_new(m, "main", "CoreML8");
    x = mil_build_input(b, "x", MIL_FP16, 2, dims_1_4);
    expect_failure(b, two(b, "add", "sum", x, NULL), ERR_BUG, "op add 'sum': argument y is NULL");
    b = mil_builder_new(m, "main", "CoreML8");
    (void)mil_build_input(b, "x", MIL_FP16, 2, dims_1_4);
    expect_failure(b, mil_build_input(b, "x", MIL_FP16, 2, dims_1_4), ERR_BUG, "input name 'x' is taken");
    b = mil_builder_new(m, "main", "CoreML3");
    expect_failure(b, NULL, ERR_BUG, "opset 'CoreML3' is unknown");
    b = mil_builder_new(m, "main", "CoreML8");
    mil_builder_fail(b, ERR_UNSUPPORTED, "width %d is odd", 3);
    expect_failure(b, NULL, ERR_UNSUPPORTED, "width 3 is odd");
    assert_int_equal(m->program->n_functions, 0);
    mil_model_close(m);
}

static void test_rename_takes_the_name(void **state)
{
    (void)state;
    struct mil_model *m = mil_model_new(9);
    struct mil_builder *b = mil_builder_new(m, "main", "CoreML8");
    struct mil_var *x = mil_build_input(b, "x", MIL_FP16, 2, dims_1_4);
    struct mil_var *helper = two(b, "add", "logits", x, x);
    struct mil_var *out = two(b, "mul", "product", helper, x);
    mil_build_rename(b, out, "logits");
    assert_string_equal(out->name, "logits");
    assert_string_equal(helper->name, "logits_1");
    assert_name_attribute(out->op, "logits");
    assert_name_attribute(helper->op, "logits_1");
    struct mil_var *more = two(b, "sub", "product", out, x);
    assert_string_not_equal(more->name, "logits");
    ASSERT_OK(mil_builder_finish(b, &out, 1, e));
    ASSERT_OK(mil_verify(m, e));

    struct err e = {0};
    b = mil_builder_new(m, "other", "CoreML8");
    x = mil_build_input(b, "x", MIL_FP16, 2, dims_1_4);
    out = two(b, "add", "y", x, x);
    mil_build_rename(b, out, "x");
    assert_false(mil_builder_finish(b, &out, 1, &e));
    assert_non_null(strstr(e.msg, "the name 'x' is taken"));
    mil_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types_names_and_order),  cmocka_unit_test(test_constants_are_shared_by_content),
        cmocka_unit_test(test_functions_share_values), cmocka_unit_test(test_states_and_several_results),
        cmocka_unit_test(test_errors_are_sticky),      cmocka_unit_test(test_rename_takes_the_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
