/* Result types, rule by rule: each case is an op written in a small notation and the types of its results, or
 * the words of its error.
 *
 * Operands, separated by blanks: x=fp16[2,3] a variable ("?" an unknown size), x=fp16 a scalar variable,
 * axes=#0,1 a constant int32 vector, axis=@1 a constant int32 scalar, keep=%1 a constant bool, mask=%%0,1 a
 * constant bool vector, mode='tanh' a constant string, f=~2.5 a constant fp32, values=fp16[1]|fp16[2] several
 * variables. "-" stands for a result that is not inferred, "!" starts an expected error.
 */
#include "support.h"
#include "mil/infer.h"

struct rule_case {
    const char *type, *operands, *expected;
};

static struct mil_type *parse_type(struct arena *a, const char **at)
{
    size_t n = strcspn(*at, "[ |");
    int64_t dims[16];
    int rank = 0;
    enum mil_dtype d = mil_dtype_find(*at, n);
    assert_int_not_equal(d, MIL_DTYPE_NONE);
    *at += n;
    if (**at == '[') {
        do {
            (*at)++;
            if (**at == '?') {
                dims[rank++] = MIL_DIM_UNKNOWN;
                (*at)++;
            } else {
                dims[rank++] = strtoll(*at, (char **)(uintptr_t)at, 10);
            }
        } while (**at == ',');
        assert_int_equal(**at, ']');
        (*at)++;
    }
    return mil_type_new_tensor(a, d, rank, dims);
}

static struct mil_value *new_value(struct arena *a, enum mil_dtype d, int rank, int n, const void *data,
                                   size_t bytes)
{
    struct mil_value *v = ARENA_NEW(a, struct mil_value);
    int64_t dim = n;
    v->kind = MIL_VALUE_TENSOR;
    v->type = mil_type_new_tensor(a, d, rank, &dim);
    v->n_elems = n;
    v->bytes = bytes;
    v->data = bytes ? arena_copy(a, data, bytes) : NULL;
    return v;
}

static const struct mil_value *parse_constant(struct arena *a, const char **at)
{
    char kind = *(*at)++;
    int32_t ints[32] = {0};
    uint8_t bools[32] = {0};
    int n = 0;
    if (kind == '\'') {
        struct mil_value *v = new_value(a, MIL_STRING, 0, 1, NULL, 0);
        struct str *s = ARENA_NEW(a, struct str);
        *s = (struct str){*at, strcspn(*at, "'")};
        v->strings = s;
        *at += s->n + 1;
        return v;
    }
    if (kind == '~') {
        float f = strtof(*at, (char **)(uintptr_t)at);
        return new_value(a, MIL_FP32, 0, 1, &f, sizeof f);
    }
    bool is_vector = kind == '#';
    if (kind == '%' && **at == '%') {
        is_vector = true;
        (*at)++;
    }
    while (**at && **at != ' ') {
        ints[n] = (int32_t)strtol(*at, (char **)(uintptr_t)at, 10);
        bools[n] = ints[n] != 0;
        n++;
        *at += **at == ',';
    }
    if (kind == '%')
        return new_value(a, MIL_BOOL, is_vector, n, bools, (size_t)n);
    return new_value(a, MIL_INT32, is_vector, n, ints, sizeof ints[0] * (size_t)n);
}

static struct mil_op *parse_op(struct arena *a, const struct rule_case *c, int n_outputs)
{
    struct mil_op *op = ARENA_NEW(a, struct mil_op);
    int id = 0;
    op->type = c->type;
    op->info = mil_op_info_find(c->type);
    assert_non_null(op->info);
    op->args = ARENA_ARRAY(a, struct mil_arg, 16);
    for (const char *at = c->operands; *at; at += *at == ' ') {
        struct mil_arg *arg = &op->args[op->n_args++];
        size_t n = strcspn(at, "=");
        arg->name = arena_strndup(a, at, n);
        arg->bindings = ARENA_ARRAY(a, struct mil_binding, 8);
        at += n + 1;
        if (strchr("#@%'~", *at)) {
            arg->n = 1;
            arg->bindings[0].value = parse_constant(a, &at);
            continue;
        }
        do {
            at += *at == '|';
            struct mil_var *v = ARENA_NEW(a, struct mil_var);
            v->name = "v";
            v->id = id++;
            v->type = parse_type(a, &at);
            arg->bindings[arg->n++].var = v;
        } while (*at == '|');
    }
    op->n_outputs = n_outputs;
    op->outputs = ARENA_ARRAY(a, struct mil_var *, n_outputs + 1);
    for (int i = 0; i < n_outputs; i++) {
        op->outputs[i] = ARENA_NEW(a, struct mil_var);
        op->outputs[i]->name = "result";
        op->outputs[i]->id = id++;
        op->outputs[i]->op = op;
    }
    return op;
}

static void check_case(const struct rule_case *c)
{
    struct arena *a = arena_new(0);
    struct err e = {0};
    char found[400] = "", one[160], expected[400];
    int n_outputs = c->expected[0] ? 1 : 0;
    for (const char *p = c->expected; *p && c->expected[0] != '!'; p++)
        n_outputs += *p == ' ';
    struct mil_op *op = parse_op(a, c, n_outputs);
    const struct mil_type **types = ARENA_ARRAY(a, const struct mil_type *, 32);
    const struct mil_type **out = ARENA_ARRAY(a, const struct mil_type *, n_outputs + 1);
    bool ok = mil_infer_op(op, types, NULL, out, a, &e);
    if (c->expected[0] == '!') {
        if (ok || !strstr(e.msg, c->expected + 1) || !strstr(e.msg, c->type))
            fail_msg("%s %s: expected an error with '%s', got %s", c->type, c->operands, c->expected + 1,
                     ok ? "none" : e.msg);
        assert_int_equal(e.code, ERR_FORMAT);
        arena_free(a);
        return;
    }
    if (!ok)
        fail_msg("%s %s: %s", c->type, c->operands, e.msg);
    const char *at = c->expected;
    for (int i = 0; i < n_outputs; i++, at += *at == ' ') {
        mil_type_text(one, sizeof one, out[i]);
        strcat(strcat(found, " "), out[i] ? one : "-");
        if (*at == '-') {
            snprintf(expected, sizeof expected, "-");
            at++;
        } else {
            mil_type_text(expected, sizeof expected, parse_type(a, &at));
        }
        if (strcmp(expected, out[i] ? one : "-") != 0)
            fail_msg("%s %s: result %d: expected %s, got %s", c->type, c->operands, i, expected, found);
    }
    arena_free(a);
}

static void check_cases(const struct rule_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++)
        check_case(&cases[i]);
}
#define CHECK(cases) check_cases(cases, sizeof cases / sizeof cases[0])

static void test_elementwise(void **state)
{
    (void)state;
    static const struct rule_case cases[] = {
        {"tanh", "x=fp16[1,?]", "fp16[1,?]"},
        {"softmax", "x=fp32[2,3] axis=@1", "fp32[2,3]"},
        {"tanh", "y=fp16[1]", "!argument x is missing"},
        {"add", "x=fp16[2,1,4] y=fp16[3,1]", "fp16[2,3,4]"},
        {"add", "x=fp16[?] y=fp16[4]", "fp16[4]"},
        {"add", "x=fp16[?] y=fp16[1]", "fp16[?]"},
        {"add", "x=int32 y=int32", "int32"},
        {"add", "x=fp16[2] y=fp16[3]", "!do not broadcast: tensor<fp16, [2]> and tensor<fp16, [3]>"},
        {"mul", "x=fp16[2] y=fp32[2]", "!element types differ"},
        {"greater", "x=fp16[2] y=fp16[3,1]", "bool[3,2]"},
        {"logical_and", "x=bool[2] y=bool", "bool[2]"},
        {"logical_not", "x=bool[2]", "bool[2]"},
        {"select", "cond=bool[4] a=fp16 b=fp16", "fp16[4]"},
        {"select", "cond=bool a=fp16[2,1] b=fp16[3]", "fp16[2,3]"},
        {"select", "cond=bool a=fp16[2] b=int32[2]", "!element types differ: a is fp16, b is int32"},
        {"cast", "x=fp16[2] dtype='int32'", "int32[2]"},
        {"cast", "x=fp16[2] dtype='decimal'", "!dtype 'decimal' is not an element type"},
        {"quantize", "input=fp16[2] scale=fp16 output_dtype='int8'", "int8[2]"},
        {"dequantize", "input=int8[2] scale=fp32", "fp32[2]"},
        {"scatter", "data=fp16[4] indices=int32[1] updates=fp16[1]", "fp16[4]"},
    };
    CHECK(cases);
}

static void test_shapes(void **state)
{
    (void)state;
    static const struct rule_case cases[] = {
        {"reshape", "x=fp16[2,6] shape=#3,4", "fp16[3,4]"},
        {"reshape", "x=fp16[2,6] shape=#3,-1,2", "fp16[3,2,2]"},
        {"reshape", "x=fp16[2,6] shape=#0,-1", "fp16[2,6]"},
        {"reshape", "x=fp16[?,6] shape=#-1,3", "fp16[?,3]"},
        {"reshape", "x=fp16[2,6] shape=int32[3]", "fp16[?,?,?]"},
        {"reshape", "x=fp16[2,6] shape=int32[?]", "-"},
        {"reshape", "x=fp16[2,6] shape=#5", "!has 12 elements, the shape has 5"},
        {"reshape", "x=fp16[2,6] shape=#5,-1", "!can't be divided into rows of 5"},
        {"reshape", "x=fp16[2,6] shape=#-1,-1", "!-1 more than once"},
        {"reshape", "x=fp16[2,6] shape=#-2", "!entry -2"},
        {"reshape", "x=fp16[2,6] shape=#0", "!has 12 elements, the shape has 6"},
        {"reshape", "x=fp16[2,6] shape=#1,0,-1,0", "fp16[1,1,2,6]"},
        {"reshape_like", "x=fp16[6] ref_tensors=fp16[2,5]|fp16[3] begins=#0,0 ends=#1,0 end_masks=%%0,1",
         "fp16[2,3]"},
        {"reshape_like", "x=fp16[6] ref_tensors=fp16[2,5] begins=#0 ends=#1 end_masks=%%0",
         "!has 6 elements"},
        {"transpose", "x=fp16[2,3,4] perm=#2,0,-2", "fp16[4,2,3]"},
        {"transpose", "x=fp16[2,3,4] perm=#2,0", "!perm has 2 entries, x has rank 3"},
        {"transpose", "x=fp16[2,3] perm=#1,1", "!names axis 1 twice"},
        {"transpose", "x=fp16[2,3] perm=#0,2", "!outside rank 2"},
        {"expand_dims", "x=fp16[2,3] axes=#0,-1", "fp16[1,2,3,1]"},
        {"expand_dims", "x=fp16 axes=#0", "fp16[1]"},
        {"expand_dims", "x=fp16[2] axes=#2,-1", "!names axis 2 twice"},
        {"expand_dims", "x=fp16[2] axes=#3", "!outside rank 2"},
        {"squeeze", "x=fp16[1,2,1] axes=#0", "fp16[2,1]"},
        {"squeeze", "x=fp16[1,2,1]", "fp16[2]"},
        {"squeeze", "x=fp16[1,?,1] axes=#-1,1", "fp16[1]"},
        {"squeeze", "x=fp16[1,2] axes=#1", "!axis 1 has size 2"},
        {"tile", "x=fp16[2,3] reps=#1,4", "fp16[2,12]"},
        {"tile", "x=fp16[2,3] reps=int32[2]", "fp16[?,?]"},
        {"tile", "x=fp16[2,3] reps=#4", "!reps has 1 entries"},
        {"tile", "x=fp16[2] reps=#0", "!entry 0"},
        {"concat", "values=fp16[2,3]|fp16[2,4] axis=@-1", "fp16[2,7]"},
        {"concat", "values=fp16[2,?]|fp16[?,4] axis=@1", "fp16[2,?]"},
        {"concat", "values=int32|int32|int32 axis=@0", "int32[3]"},
        {"concat", "values=fp16[2,3] axis=@0", "fp16[2,3]"},
        {"concat", "values=fp16[2,3]|fp16[3,3] axis=@1", "!value 1 has size 3 on axis 0, the others have 2"},
        {"concat", "values=fp16[2]|fp32[2] axis=@0", "!value 1 is fp32 of rank 1, value 0 is fp16 of rank 1"},
        {"concat", "values=fp16[2,3]|fp16[2,4] axis=@1 interleave=%1", "!value 1 has size 4"},
        {"concat", "values=fp16[2] axis=@1", "!axis 1 is outside rank 1"},
        {"stack", "values=fp16[2]|fp16[2]|fp16[2] axis=@-1", "fp16[2,3]"},
        {"stack", "values=fp16[2]|fp16[3] axis=@0", "!value 1 has size 3"},
        {"split", "x=fp16[2,6] num_splits=@2 axis=@1", "fp16[2,3] fp16[2,3]"},
        {"split", "x=fp16[2,6] split_sizes=#1,5 axis=@-1", "fp16[2,1] fp16[2,5]"},
        {"split", "x=fp16[2,6] num_splits=@2 axis=@1", "!num_splits is 2, but there are 1 results"},
        {"split", "x=fp16[2,6] split_sizes=#5 axis=@1", "!add up to 5, axis 1 has 6"},
        {"flatten2d", "x=fp16[2,3,4] axis=@-1", "fp16[6,4]"},
        {"shape", "x=fp16[2,3,4]", "int32[3]"},
        {"non_zero", "x=fp16[2,3]", "int32[?,2]"},
        {"identity", "x=fp16[2]", "fp16[2]"},
    };
    CHECK(cases);
}

static void test_slices(void **state)
{
    (void)state;
    static const struct rule_case cases[] = {
        {"slice_by_index", "x=fp16[10,4] begin=#1,0 end=#9,4", "fp16[8,4]"},
        {"slice_by_index", "x=fp16[10] begin=#-3 end=#-1", "fp16[2]"},
        {"slice_by_index", "x=fp16[10] begin=#0 end=#10 stride=#3", "fp16[4]"},
        {"slice_by_index", "x=fp16[10] begin=#9 end=#0 stride=#-2", "fp16[5]"},
        {"slice_by_index", "x=fp16[10] begin=#0 end=#0 stride=#-1 begin_mask=%%1 end_mask=%%1", "fp16[10]"},
        {"slice_by_index", "x=fp16[10] begin=#0 end=#99", "fp16[10]"},
        {"slice_by_index",
         "x=fp16[10,4] begin=#3,0 end=#0,0 begin_mask=%%0,1 end_mask=%%0,1 squeeze_mask=%%1,0", "fp16[4]"},
        {"slice_by_index", "x=fp16[?,4] begin=#0,1 end=#0,3 begin_mask=%%1,0 end_mask=%%1,0", "fp16[?,2]"},
        {"slice_by_index", "x=fp16[8,4] begin=int32[2] end=int32[2] begin_mask=%%0,1 end_mask=%%0,1",
         "fp16[?,4]"},
        {"slice_by_index", "x=fp16[8,4] begin=#0 end=#0,0", "!begin has 1 entries, x has rank 2"},
        {"slice_by_index", "x=fp16[8] begin=#0 end=#1 stride=#0", "!stride has a 0"},
        {"slice_by_index", "x=fp16[8] begin=#8 end=#9 squeeze_mask=%%1",
         "!begin 8 is outside axis 0 of size 8"},
        {"slice_by_size", "x=fp16[8,4] begin=#1,2 size=#3,-1", "fp16[3,2]"},
        {"slice_by_size", "x=fp16[8] begin=int32[1] size=#3", "fp16[3]"},
        {"slice_by_size", "x=fp16[8] begin=int32[1] size=#-1", "fp16[?]"},
        {"slice_by_size", "x=fp16[8] begin=#-2 size=#-1", "fp16[2]"},
        {"slice_by_size", "x=fp16[8] begin=#6 size=#3", "!3 elements from 6 are outside axis 0 of size 8"},
        {"slice_update", "x=fp16[8,4] update=fp16[2,4] begin=#1,0 end=#3,4", "fp16[8,4]"},
        {"slice_update", "x=fp16[8,4] update=fp16[2,4] begin=int32[2] end=int32[2] end_mask=%%0,1",
         "fp16[8,4]"},
        {"slice_update", "x=fp16[8,4] update=fp16[3,4] begin=#1,0 end=#3,4",
         "!the slice is tensor<fp16, [2, 4]>, the update is tensor<fp16, [3, 4]>"},
        {"slice_update", "x=fp16[8,4] update=fp32[2,4] begin=#1,0 end=#3,4", "!the update is tensor<fp32"},
        {"sliding_windows", "x=fp16[2,9] axis=@1 size=@3 stride=@2", "fp16[2,4,3]"},
        {"sliding_windows", "x=fp16[2] axis=@0 size=@3", "!do not fit axis 0"},
    };
    CHECK(cases);
}

static void test_products(void **state)
{
    (void)state;
    static const struct rule_case cases[] = {
        {"matmul", "x=fp16[5,2,3] y=fp16[1,3,4]", "fp16[5,2,4]"},
        {"matmul", "x=fp16[2,3] y=fp16[4,3] transpose_y=%1", "fp16[2,4]"},
        {"matmul", "x=fp16[3,2] y=fp16[3,4] transpose_x=%1", "fp16[2,4]"},
        {"matmul", "x=fp16[3] y=fp16[3,4]", "fp16[4]"},
        {"matmul", "x=fp16[2,?] y=fp16[3,4]", "fp16[2,4]"},
        {"matmul", "x=fp16[2,3] y=fp16[4,5]", "!inner sizes differ: 3 and 4"},
        {"matmul", "x=fp16 y=fp16[4]", "!at least one axis"},
        {"matmul", "x=fp16[2,1,3] y=fp16[5,3,4]", "!do not broadcast"},
        {"linear", "x=fp16[2,3] weight=fp16[7,3] bias=fp16[7]", "fp16[2,7]"},
        {"linear", "x=fp16[2,3] weight=fp16[7,4]", "!inner sizes of x and weight differ: 3 and 4"},
        {"einsum", "values=fp16[2,3,4]|fp16[4,3,5] equation='nwh,hwu->nwu'", "fp16[2,3,5]"},
        {"einsum", "values=fp16[2,3]|fp16[4,5] equation='ab,bc->ac'", "!does not fit its operands"},
        {"einsum", "values=fp16[2,3]|fp16[3,5] equation='ab,bc'", "!does not fit its operands"},
        {"einsum", "values=fp16[2,3]|fp16[3,5] equation='ab,bc->ad'", "!does not fit its operands"},
        {"einsum", "values=fp16[2,3]|fp16[3,5] equation='abc,bc->a'", "!does not fit its operands"},
        {"einsum", "values=fp16[2,3] equation='ab,bc->ac'", "!does not fit its operands"},
        {"conv", "x=fp16[1,8,1,64] weight=fp16[16,8,1,1] pad_type='valid'", "fp16[1,16,1,64]"},
        {"conv", "x=fp16[1,8,9] weight=fp16[16,1,4] pad_type='custom' pad=#3,0 groups=@8", "fp16[1,16,9]"},
        {"conv", "x=fp16[1,3,9,9] weight=fp16[2,3,3,3] pad_type='same' strides=#2,2", "fp16[1,2,5,5]"},
        {"conv", "x=fp16[1,3,9] weight=fp16[2,3,3] dilations=#2 pad_type='valid'", "fp16[1,2,5]"},
        {"conv", "x=fp16[1,3,?] weight=fp16[2,3,3]", "fp16[1,2,?]"},
        {"conv", "x=fp16[1,4,9] weight=fp16[2,3,3]", "!channels of x and weight differ: 4 and 3"},
        {"conv", "x=fp16[1,3,2] weight=fp16[2,3,3]", "!window (3) is larger than axis 2 (2"},
        {"conv", "x=fp16[1,3] weight=fp16[2,3]", "!rank 3 to 5"},
        {"conv", "x=fp16[1,4,9] weight=fp16[3,2,1] groups=@2", "!can't be divided into 2 groups"},
        {"conv", "x=fp16[1,3,9] weight=fp16[2,3,3] bias=fp16[3]",
         "!output channels of bias and weight differ"},
        {"conv", "x=fp16[1,3,9] weight=fp16[2,3,3] pad_type='full'", "!pad_type 'full' is unknown"},
        {"conv", "x=fp16[1,3,9] weight=fp16[2,3,3] strides=#0", "!strides has the entry 0"},
        {"conv", "x=fp16[1,3,9] weight=fp16[2,3,3] strides=#1,1", "!strides has 2 entries, expected 1"},
        {"conv_transpose", "x=fp16[1,4,5] weight=fp16[4,2,3] strides=#2 pad_type='valid'", "fp16[1,2,11]"},
        {"conv_transpose", "x=fp16[1,4,5] weight=fp16[4,2,3] strides=#2 pad_type='same'", "fp16[1,2,10]"},
        {"conv_transpose", "x=fp16[1,4,5] weight=fp16[4,2,3] strides=#2 pad_type='custom' pad=#1,1",
         "fp16[1,2,9]"},
        {"conv_transpose", "x=fp16[1,4,5] weight=fp16[4,2,3] output_shape=#1,2,12", "fp16[1,2,12]"},
        {"max_pool", "x=fp16[1,2,9] kernel_sizes=#3 strides=#2 pad_type='valid'", "fp16[1,2,4]"},
        {"max_pool", "x=fp16[1,2,10] kernel_sizes=#3 strides=#2 pad_type='custom' pad=#0,0 ceil_mode=%1",
         "fp16[1,2,5]"},
        {"scaled_dot_product_attention", "query=fp16[1,2,5,8] key=fp16[1,2,7,8] value=fp16[1,2,7,9]",
         "fp16[1,2,5,9]"},
        {"scaled_dot_product_attention",
         "query=fp16[1,5,8] key=fp16[1,7,8] value=fp16[1,7,8] attn_mask=fp16[5,7]", "fp16[1,5,8]"},
        {"scaled_dot_product_attention",
         "query=fp16[1,5,8] key=fp16[1,7,8] value=fp16[1,7,8] attn_mask=fp16[5,6]", "!do not broadcast"},
        {"scaled_dot_product_attention", "query=fp16[1,5,8] key=fp16[1,7,8] value=fp16[1,6,8]",
         "!lengths of key and value differ: 7 and 6"},
        {"upsample_nearest_neighbor", "x=fp16[1,2,3,4] scale_factor_width=~1.5 scale_factor_height=@2",
         "fp16[1,2,6,6]"},
    };
    CHECK(cases);
}

static void test_reductions_and_indices(void **state)
{
    (void)state;
    static const struct rule_case cases[] = {
        {"reduce_sum", "x=fp16[2,3,4] axes=#1 keep_dims=%1", "fp16[2,1,4]"},
        {"reduce_max", "x=fp16[2,3,4] axes=#-1,0", "fp16[3]"},
        {"reduce_mean", "x=fp16[2,3]", "fp16"},
        {"reduce_sum", "x=fp16[2] axes=#1", "!axes 1 is outside rank 1"},
        {"reduce_argmax", "x=fp16[2,3] axis=@-1", "int32[2]"},
        {"reduce_argmax", "x=fp16[2,3] axis=@-1 keep_dims=%1 output_dtype='uint16'", "uint16[2,1]"},
        {"reduce_argmax", "x=fp16[2,3] output_dtype='fp16'", "!not an integer type"},
        {"topk", "x=fp16[2,9] k=@4", "fp16[2,4] int32[2,4]"},
        {"topk", "x=fp16[2,9] k=@4 axis=@0", "!k is 4, axis 0 has size 2"},
        {"topk", "x=fp16[2,9] k=@4 return_indices=%0", "fp16[2,4]"},
        {"argsort", "x=fp16[2,9]", "int32[2,9]"},
        {"gather", "x=fp16[10,4] indices=int32[1,3] axis=@0", "fp16[1,3,4]"},
        {"gather", "x=fp16[10,4] indices=int32 axis=@1", "fp16[10]"},
        {"gather", "x=fp16[2,5,4] indices=int32[2,3] axis=@1 batch_dims=@1", "fp16[2,3,4]"},
        {"gather", "x=fp16[10,4] indices=int32[3] axis=@2", "!axis 2 is outside rank 2"},
        {"gather", "x=fp16[10,4] indices=int32[3] axis=@0 batch_dims=@1", "!batch_dims 1 does not fit"},
        {"gather_along_axis", "x=fp16[2,5] indices=int32[2,3] axis=@1", "fp16[2,3]"},
        {"gather_along_axis", "x=fp16[2,5] indices=int32[3,3] axis=@1",
         "!sizes of x and indices differ: 2 and 3"},
        {"gather_nd", "x=fp16[2,5,7] indices=int32[3,2]", "fp16[3,7]"},
        {"gather_nd", "x=fp16[2,5,7] indices=int32[2,3,1] batch_dims=@1", "fp16[2,3,7]"},
        {"gather_nd", "x=fp16[2] indices=int32[3,2]", "!do not fit rank 1"},
        {"pad", "x=fp16[2,3] pad=#1,2", "fp16[2,6]"},
        {"pad", "x=fp16[2,3] pad=#1,0,0,2", "fp16[3,5]"},
        {"pad", "x=fp16[2,3] pad=#1", "!pad has 1 entries"},
        {"pad", "x=fp16[2,3] pad=#0,-1", "!entry -1"},
        {"one_hot", "indices=int32[3] one_hot_vector_size=@5 on_value=fp16 off_value=fp16", "fp16[3,5]"},
        {"one_hot", "indices=int32[3] one_hot_vector_size=@5 axis=@0", "int32[5,3]"},
        {"range_1d", "start=@2 end=@9 step=@3", "int32[3]"},
        {"range_1d", "start=@9 end=@2 step=@-1", "int32[7]"},
        {"range_1d", "start=~0 end=~1 step=~0.25", "fp32[4]"},
        {"range_1d", "start=@0 end=int32 step=@1", "int32[?]"},
        {"range_1d", "start=@0 end=@5 step=@0", "!step is 0"},
        {"fill", "shape=#2,3 value=fp16", "fp16[2,3]"},
        {"fill", "shape=int32[2] value=fp16", "fp16[?,?]"},
        {"fill", "shape=#-1 value=fp16", "!entry -1"},
        {"fill_like", "ref_tensor=int32[2,3] value=bool", "bool[2,3]"},
        {"depth_to_space", "x=fp16[1,8,2,3] block_size=@2", "fp16[1,2,4,6]"},
        {"space_to_depth", "x=fp16[1,2,4,6] block_size=@2", "fp16[1,8,2,3]"},
        {"pixel_shuffle", "x=fp16[1,8,2,3] upscale_factor=@2", "fp16[1,2,4,6]"},
        {"pixel_unshuffle", "x=fp16[1,2,4,6] downscale_factor=@2", "fp16[1,8,2,3]"},
        {"depth_to_space", "x=fp16[1,7,2,3] block_size=@2", "!which 4 does not divide"},
    };
    CHECK(cases);
}

static void test_stored_weights(void **state)
{
    (void)state;
    static const struct rule_case cases[] = {
        {"constexpr_affine_dequantize", "quantized_data=int8[8,4] zero_point=int8 scale=fp16[8] axis=@0",
         "fp16[8,4]"},
        {"constexpr_affine_dequantize", "quantized_data=int8[8,4] zero_point=int8 scale=fp16[8] axis=@1",
         "!scale must be a scalar or have one entry for each of the 4 slices"},
        {"constexpr_lut_to_dense", "indices=uint8[6] lut=fp16[16] shape=#3,4", "fp16[3,4]"},
        {"constexpr_lut_to_dense", "indices=uint8[5] lut=fp16[16] shape=#3,4", "!indices must be 6 bytes"},
        {"constexpr_lut_to_dense", "indices=uint8[6] lut=fp16[17] shape=#3,4", "!power of two"},
        {"constexpr_lut_to_dense", "indices=uint4[8,4] lut=fp16[2,1,16,1]", "fp16[8,4]"},
        {"constexpr_lut_to_dense", "indices=uint4[8,4] lut=fp16[2,1,16,2] vector_axis=@0", "fp16[16,4]"},
        {"constexpr_lut_to_dense", "indices=uint4[8,4] lut=fp16[2,1,16,2]", "!vector_axis is missing"},
        {"constexpr_lut_to_dense", "indices=uint4[8,4] lut=fp16[3,1,16,1]",
         "!3 groups of the lut do not divide"},
        {"constexpr_lut_to_dense", "indices=uint6[8,4] lut=fp16[2,1,16,1]", "!indices of uint6 need 2^6"},
        {"constexpr_lut_to_dense", "indices=uint4[8,4] lut=fp16[16]",
         "!lut has rank 1, expected the rank of indices plus 2 (4)"},
        {"constexpr_sparse_to_dense", "nonzero_data=fp16[5] mask=uint8[2] shape=#3,4", "fp16[3,4]"},
        {"constexpr_sparse_to_dense", "nonzero_data=fp16[5] mask=uint8[1] shape=#3,4",
         "!mask must be 2 bytes"},
        {"constexpr_sparse_to_dense", "nonzero_data=fp16[5] mask=uint1[3,4]", "fp16[3,4]"},
        {"constexpr_cast", "source_val=fp16[3] output_dtype='fp32'", "fp32[3]"},
        {"constexpr_blockwise_shift_scale", "data=int4[8,64] scale=fp16[8,2]", "fp16[8,64]"},
        {"constexpr_blockwise_shift_scale", "data=int4[8,64] scale=fp16[8,3]", "!3 blocks do not divide"},
        {"constexpr_blockwise_shift_scale", "data=int4[8,64] scale=fp16[8]",
         "!scale has rank 1, data has rank 2"},
        {"constexpr_blockwise_shift_scale", "data=int4[8,64] scale=fp16[8,2] offset=int4[8,1]",
         "!shapes differ"},
        {"constexpr_lut_to_sparse", "indices_mask=uint1[4,4] indices_nonzero_data=uint2[5] lut=fp16[1,1,4,1]",
         "uint1[4,4] fp16[5]"},
        {"constexpr_sparse_blockwise_shift_scale",
         "data_mask=uint1[4,4] nonzero_data=int8[5] scale=fp16[4,1]", "uint1[4,4] fp16[5]"},
    };
    CHECK(cases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elementwise),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_slices),
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_reductions_and_indices),
        cmocka_unit_test(test_stored_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
