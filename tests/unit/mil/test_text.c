// The text form: Apple's files come back byte for byte, numbers are exact, bad text is told by line and
// column.
#include <math.h>
#include "support.h"
#include "base/file.h"
#include "mil/protobuf.h"
#include "mil/text.h"
#include "mil/text_number_internal.h"

#define CORPUS MILKIT_TEST_DATA "/corpus"
#define BYTES_MAX ((size_t)64 << 20)

static char *print(struct mil_model *m, const struct mil_text_options *options)
{
    struct buf out;

    buf_init(&out, BYTES_MAX);
    ASSERT_OK(mil_text_write(m, options, &out, e));
    return buf_take(&out, NULL);
}

static struct mil_model *parse(const char *text)
{
    struct mil_model *m = mil_model_new(0);

    ASSERT_OK(mil_text_read(m, text, strlen(text), "test.mil", e));
    return m;
}

/* The text has no description; protobuf wants one that names the functions. */
static void add_description(struct mil_model *m)
{
    int n = m->program->n_functions;

    m->description.has_functions = true;
    m->description.n_functions = n;
    m->description.functions = ARENA_ARRAY(m->arena, struct mil_function_description, n);
    for (int i = 0; i < n; i++)
        m->description.functions[i].name = m->program->functions[i]->name;
    m->description.default_function_name = m->program->functions[0]->name;
}

/* text -> program -> text, and the same by way of protobuf */
static void check_identity(const char *path)
{
    struct mil_model *m, *again = mil_model_new(0);
    struct buf packed;
    char *text, *printed;
    size_t bytes;

    ASSERT_OK(file_read(&text, &bytes, path, BYTES_MAX, e));
    while (bytes > 0 && text[bytes - 1] == '\n') /* some copies got one at the end */
        text[--bytes] = '\0';
    m = parse(text);
    printed = print(m, NULL);
    if (strcmp(printed, text) != 0)
        fail_msg("%s: printed differently", path);
    free(printed);
    buf_init(&packed, BYTES_MAX);
    add_description(m);
    ASSERT_OK(mil_protobuf_write(m, &packed, e));
    ASSERT_OK(mil_protobuf_read(again, (const uint8_t *)packed.p, packed.n, path, e));
    printed = print(again, NULL);
    if (strcmp(printed, text) != 0)
        fail_msg("%s: printed differently after protobuf", path);
    free(printed);
    free(text);
    buf_fini(&packed);
    mil_model_close(m);
    mil_model_close(again);
}

/* Every model.mil below a folder; returns how many. */
static int check_tree(const char *folder, int depth)
{
    struct path_list list;
    int n = 0;

    ASSERT_OK(path_list_read(&list, folder, e));
    for (size_t i = 0; i < list.n; i++) {
        char *path = path_join(folder, list.names[i]);
        if (path_is_folder(path) && depth < 6) {
            n += check_tree(path, depth + 1);
        } else if (has_suffix(path, "/model.mil")) {
            check_identity(path);
            n++;
        }
        free(path);
    }
    path_list_free(&list);
    return n;
}

static void test_corpus_comes_back(void **state)
{
    (void)state;
    assert_int_equal(check_tree(CORPUS, 0), 13);
}

static void test_shared_corpus_comes_back(void **state)
{
    (void)state;
    SKIP_WITHOUT_SHARED();
    assert_true(check_tree(MILKIT_SHARED "/corpus", 0) >= 15);
}

/* The body of a function of one input x: [4] fp16, its output y. */
static char *program_of(const char *body)
{
    return xasprintf("program(1.3)\n[buildInfo = dict<string, string>({{\"a\", \"b\"}})]\n{\n"
                     "    func main<ios18>(tensor<fp16, [4]> x) {\n            %s\n        } -> (y);\n}",
                     body);
}

static void check_body(const char *body, const char *expected)
{
    char *text = program_of(body), *wanted = program_of(expected ? expected : body);
    struct mil_model *m = parse(text);
    char *printed = print(m, NULL);

    assert_string_equal(printed, wanted);
    mil_model_close(m);
    free(printed);
    free(text);
    free(wanted);
}

static void test_values_of_every_type(void **state)
{
    static const char *const bodies[] = {
        "tensor<uint4, [3]> y = const()[val = tensor<uint4, [3]>([1, 15, 0])];",
        "tensor<uint3, [2, 3]> y = const()[val = tensor<uint3, [2, 3]>([[1, 7, 0], [2, 5, 4]])];",
        "tensor<uint6, [5]> y = const()[val = tensor<uint6, [5]>([63, 0, 1, 32, 33])];",
        "tensor<uint1, [9]> y = const()[val = tensor<uint1, [9]>([1, 0, 1, 1, 0, 0, 0, 1, 1])];",
        "tensor<uint2, [2]> y = const()[val = tensor<uint2, [2]>([3, 2])];",
        "tensor<int4, [3]> y = const()[val = tensor<int4, [3]>([-8, 7, -1])];",
        "int8 y = const()[val = int8(-128)];",
        "uint8 y = const()[val = uint8(255)];",
        "int16 y = const()[val = int16(-32768)];",
        "int64 y = const()[val = int64(-9223372036854775808)];",
        "uint64 y = const()[val = uint64(18446744073709551615)];",
        "tensor<bool, [2]> y = const()[val = tensor<bool, [2]>([true, false])];",
        "fp64 y = const()[val = fp64(0x1p-1074)];",
        "fp64 y = const()[val = fp64(-0x1.fffffffffffffp+1023)];",
        "tensor<fp16, [4]> y = const()[val = tensor<fp16, [4]>([inf, -inf, -0x0p+0, 0x1p-24])];",
        "fp16 y = const()[val = fp16(nan)];",
        "bf16 y = const()[val = bf16(0x1.8p-3)];",
        "fp8e4m3fn y = const()[val = fp8e4m3fn(-0x1.cp+8)];",
        "fp8e5m2 y = const()[val = fp8e5m2(0x1p-16)];",
        "tensor<int32, [0]> y = const()[val = tensor<int32, [0]>([])];",
        "tensor<int32, [2, 0]> y = const()[val = tensor<int32, [2, 0]>([[], []])];",
        "tensor<int32, [?]> y = const()[val = tensor<int32, [?]>([1, 2])];",
        "tensor<string, [2]> y = const()[val = tensor<string, [2]>([\"\", "
        "\"a\\\"b\\\\c\\nd\\x01\xc3\xa9\"])];",
        "list<tensor<int32, [2]>, ?> y = const()[val = list<tensor<int32, [2]>, ?>([[1, 2], [3, 4]])];",
        "tuple<int32, dict<string, fp16>> y = const()[val = tuple<int32, dict<string, fp16>>((1, {{\"k\", "
        "0x1p+0}}))];",
        "dict<string, string> y = const()[val = dict<string, string>({})];",
        "tensor<uint4, [2, 4]> y = const()[val = tensor<uint4, [2, 4]>(BLOBFILE(path = "
        "string(\"@model_path/weights/weight.bin\"), offset = uint64(64)))];",
        "tensor<fp16, [8]> y = concat(axis = int32(0), interleave = bool(false), values = (x, x));",
        "tensor<fp16, [4]> y = concat(axis = int32(0), interleave = bool(false), values = x);",
        "tensor<fp16, [?, ?]> a, int32 y = an_unknown_op(z = x)[name = string(\"n\")];",
    };

    (void)state;
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++)
        check_body(bodies[i], NULL);
}

static void test_order_and_spelling_are_normalised(void **state)
{
    (void)state;
    check_body("tensor<fp16,[4]>y=op(b=x,a=x)[z=int32(-0),b=fp32(0.5)];",
               "tensor<fp16, [4]> y = op(a = x, b = x)[b = fp32(0x1p-1), z = int32(0)];");
    check_body("tensor<fp32, []> y = const()[val = tensor<fp32, []>(0X10.0P-4)];",
               "fp32 y = const()[val = fp32(0x1p+0)];");
}

static void test_states(void **state)
{
    static const char text[] =
        "program(1.3)\n[buildInfo = dict<string, string>({})]\n{\n"
        "    func main<ios18>(state<tensor<fp16, [1, 2]>> kv, tensor<fp16, [1, 2]> x) {\n"
        "            write_state(data = x, input = kv)[name = string(\"w\")];\n"
        "            tensor<fp16, [1, 2]> y = read_state(input = kv);\n"
        "        } -> (y);\n}";
    struct mil_model *m = parse(text);
    char *printed = print(m, NULL);

    (void)state;
    assert_string_equal(printed, text);
    assert_int_equal(m->specification_version, 9);
    assert_int_equal(m->program->functions[0]->inputs[0]->type->kind, MIL_TYPE_STATE);
    assert_int_equal(m->program->functions[0]->block->ops[0]->n_outputs, 0);
    assert_string_equal(m->program->functions[0]->opset, "CoreML8");
    free(printed);
    mil_model_close(m);
}

static void test_content_of_a_program(void **state)
{
    char *text = program_of("tensor<uint4, [3]> c = const()[val = tensor<uint4, [3]>([1, 15, 2])];\n"
                            "tensor<fp16, [4]> y = add(x = x, y = fp16(-0x1.8p+1));");
    struct mil_model *m = parse(text);
    struct mil_function *f = mil_function_find(m, "main");
    const struct mil_value *v = mil_attribute(f->block->ops[0], "val");
    double d = 0;

    (void)state;
    assert_int_equal(f->n_vars, 3);
    assert_int_equal(f->block->n_ops, 2);
    assert_int_equal(v->n_elems, 3);
    assert_int_equal(v->bytes, 2);
    assert_memory_equal(v->data, "\xf1\x02", 2);
    assert_ptr_equal(f->block->ops[1]->args[0].bindings[0].var, f->inputs[0]);
    assert_true(mil_value_float(mil_arg_value(f->block->ops[1], "y"), &d));
    assert_true(d == -3.0);
    assert_ptr_equal(f->block->outputs[0]->op, f->block->ops[1]);
    assert_non_null(f->block->ops[1]->info);
    mil_model_close(m);
    free(text);
}

static void test_compiler_versions_join_build_info(void **state)
{
    const struct mil_text_options options = {.coremlc_component = "1.2", .coremlc_version = "3.4"};
    char *text = program_of("fp16 y = const()[val = fp16(0x1p+0)];");
    struct mil_model *m = parse(text);
    char *printed = print(m, &options);

    (void)state;
    assert_non_null(strstr(printed,
                           "[buildInfo = dict<string, string>({{\"a\", \"b\"}, {\"coremlc-component-MIL\", "
                           "\"1.2\"}, {\"coremlc-version\", \"3.4\"}})]\n"));
    free(printed);
    mil_model_close(m);
    free(text);
}

static const int64_t shape_1[] = {1}, shape_2[] = {2}, shape_4[] = {4};
static const int64_t *const shapes[] = {shape_4, shape_1, shape_2};
static const int ranks[] = {1, 1, 1};
static const struct mil_range open_range[] = {{1, -1}};

static struct mil_model *flexible_model(struct mil_feature *inputs, int n)
{
    struct mil_model *m =
        parse("program(1.3)\n{\n    func main<ios17>(tensor<fp32, [?]> b, tensor<fp32, [?]> a) {\n"
              "            tensor<fp32, [?]> y = add(x = a, y = b);\n        } -> (y);\n}");
    struct mil_function_description *d = ARENA_NEW(m->arena, struct mil_function_description);

    d->inputs = inputs;
    d->n_inputs = n;
    m->description.functions = d;
    m->description.n_functions = 1;
    return m;
}

static void test_flexible_shapes_of_a_description(void **state)
{
    const struct mil_text_options options = {.add_flexible_shapes = true};
    struct mil_feature inputs[2] = {{.name = "b", .kind = MIL_FEATURE_ARRAY, .dtype = MIL_FP32, .rank = 1},
                                    {.name = "a", .kind = MIL_FEATURE_ARRAY, .dtype = MIL_FP32, .rank = 1}};
    struct mil_model *m = flexible_model(inputs, 2);
    struct buf out;
    struct err e = {0};
    char *printed;

    (void)state;
    for (int i = 0; i < 2; i++) {
        inputs[i].shape = shape_4;
        inputs[i].n_enumerated = 3;
        inputs[i].enumerated = shapes;
        inputs[i].enumerated_ranks = ranks;
    }
    printed = print(m, &options);
    assert_non_null(
        strstr(printed, "(\"DefaultShapes\", {{\"a\", [4]}, {\"b\", [4]}}), (\"EnumeratedShapes\", {{\""));
    assert_non_null(strstr(printed, "\", {{\"a\", [1]}, {\"b\", [1]}}}"));
    assert_non_null(strstr(printed, "\", {{\"a\", [2]}, {\"b\", [2]}}}"));
    struct mil_model *again = parse(printed);
    char *second = print(again, &options);
    assert_string_equal(second, printed); /* what is there already is not added again */
    free(second);
    free(printed);
    mil_model_close(again);
    inputs[0].n_enumerated = 2;
    buf_init(&out, BYTES_MAX);
    assert_false(mil_text_write(m, &options, &out, &e));
    assert_int_equal(e.code, ERR_UNSUPPORTED);
    inputs[0].n_enumerated = 0;
    inputs[0].n_ranges = 1;
    inputs[0].ranges = open_range;
    assert_false(mil_text_write(m, &options, &out, &e)); /* ranges together with enumerated shapes */
    assert_int_equal(e.code, ERR_UNSUPPORTED);
    inputs[1].n_enumerated = 0;
    printed = print(m, &options);
    assert_non_null(
        strstr(printed, "((\"DefaultShapes\", {{\"b\", [4]}}), (\"RangeDims\", {{\"b\", [[1, -1]]}})))] {"));
    free(printed);
    buf_fini(&out);
    mil_model_close(m);
}

static void check_error(const char *text, const char *message)
{
    struct mil_model *m = mil_model_new(0);
    struct err e = {0};

    if (mil_text_read(m, text, strlen(text), "t", &e))
        fail_msg("no error, expected \"%s\"", message);
    if (!strstr(e.msg, message))
        fail_msg("expected \"%s\", found \"%s\"", message, e.msg);
    mil_model_close(m);
}

static void test_errors_name_the_place(void **state)
{
    static const struct {
        const char *body, *message;
    } bad[] = {
        {"tensor<fp16, [4]> y = relu(x = z);", "t:5:44: \"z\" is neither an input"},
        {"tensor<fp16, [4]> x = relu(x = x);", "t:5:13: \"x\" is defined twice"},
        {"tensor<fp16, [4]> y = relu(x = x, x = x);", "\"x\" is given twice"},
        {"tensor<fp17, [4]> y = relu(x = x);", "t:5:20: unknown element type \"fp17\""},
        {"tensor<fp16, [4]> y = relu(x = x)", "expected ';'"},
        {"int8 y = const()[val = int8(128)];", "does not fit int8"},
        {"int8 y = const()[val = int8(-129)];", "does not fit int8"},
        {"uint4 y = const()[val = uint4(16)];", "does not fit uint4"},
        {"uint4 y = const()[val = uint4(-1)];", "does not fit uint4"},
        {"uint64 y = const()[val = uint64(18446744073709551616)];", "does not fit uint64"},
        {"fp16 y = const()[val = fp16(0x1p+16)];", "does not fit fp16"},
        {"fp64 y = const()[val = fp64(0x1.fffffffffffff8p+0)];", "expected a number that fp64 holds exactly"},
        {"fp64 y = const()[val = fp64(0x1p)];", "expected a number"},
        {"bool y = const()[val = bool(1)];", "expected true or false"},
        {"string y = const()[val = string(\"abc)];", "t:5:45: the string has no end"},
        {"string y = const()[val = string(\"\\q\")];", "unknown escape"},
        {"tensor<int32, [3]> y = const()[val = tensor<int32, [3]>([1, 2])];",
         "expected 3 elements on level 1, found 2"},
        {"tensor<int32, [2, 2]> y = const()[val = tensor<int32, [2, 2]>([[1, 2], [3]])];", "on level 2"},
        {"tensor<int32, [99999999999]> y = const()[val = tensor<int32, [99999999999]>([1])];", "found 1"},
        {"tensor<int32, [99999999999999999999]> y = relu(x = x);", "a dimension is too large"},
        {"tensor<int8, [4611686018427387904, 4]> y = const()[val = tensor<int8, [4611686018427387904, "
         "4]>(BLOBFILE(path = string(\"w\"), offset = uint64(64)))];",
         "a weight's dimensions"},
        {"tensor<fp16, [1, 1, 1, 1, 1, 1, 1, 1, 1]> y = relu(x = x);", "more than 8 dimensions"},
        {"list<int32, 3> y = const()[val = list<int32, 3>([1, 2])];", "expected a list of 3 items, found 2"},
        {"dict<int32> y = relu(x = x);", "a key and a value type"},
        {"state<int32> y = const()[val = state<int32>(1)];", "a state has no value"},
        {"y = relu(x = x);", "unknown type \"y\""},
        {"tensor<bool, []> y = cond(pred = x) { };", "nested block"},
        {"string y = const()[val = string(BLOBFILE(path = string(\"w\"), offset = uint64(64)))];",
         "only tensors of numbers"},
        {"fp16 y = const()[val = fp16(BLOBFILE(path = string(\"w\"), offset = int32(64)))];",
         "offset: expected a value of type uint64"},
        {"tensor<fp16, [4]> y = relu(x = ());", "expected a name or a value"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char *text = program_of(bad[i].body);
        check_error(text, bad[i].message);
        free(text);
    }
    check_error("", "t:1:1: expected \"program(\"");
    check_error("program(2.0)", "a program of version 2");
    check_error("program(1.3) {}", "a program without functions");
    check_error("program(1.3) { func f<ios18>() { } -> (); } x", "more text behind the end");
    check_error("program(1.3) { func f<ios18>() { } -> (); func f<ios18>() { } -> (); }",
                "\"f\" is given twice");
    check_error("program(1.3) { func f<ios18>() {", "found the end of the text");
}

static void test_nesting_is_limited(void **state)
{
    struct buf text;

    (void)state;
    buf_init(&text, BYTES_MAX);
    buf_puts(&text, "program(1.3) { func f<ios18>(");
    for (int i = 0; i < 100000; i++)
        buf_puts(&text, "tuple<");
    check_error(text.p, "more than 64 levels of nesting");
    buf_fini(&text);
}

static void test_every_fp16_comes_back(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 65536; h++) {
        double v = text_number_decode_float(MIL_FP16, h), back = 0;
        uint64_t bits = 0;
        struct buf out;
        if (isnan(v))
            continue;
        buf_init(&out, 64);
        mil_text_put_float(&out, v);
        assert_int_equal(text_number_read_float(out.p, out.n, &back), out.n);
        assert_true(text_number_encode_float(MIL_FP16, back, &bits));
        assert_int_equal(bits, h);
        if (!isinf(v) && (h & 0x7c00) != 0) { /* the C library prints normal numbers the same way */
            char expected[64];
            snprintf(expected, sizeof expected, "%a", v);
            assert_string_equal(out.p, expected);
        }
        buf_fini(&out);
    }
}

static void test_every_small_float_comes_back(void **state)
{
    static const enum mil_dtype types[] = {MIL_FP8E4M3FN, MIL_FP8E5M2, MIL_BF16};

    (void)state;
    for (int t = 0; t < 3; t++) {
        for (unsigned code = 0; code < (t < 2 ? 256u : 65536u); code++) {
            double v = text_number_decode_float(types[t], code);
            uint64_t bits = 0;
            if (isnan(v))
                continue;
            assert_true(text_number_encode_float(types[t], v, &bits));
            assert_int_equal(bits, code);
        }
    }
}

static void test_what_has_no_text_form_is_refused(void **state)
{
    char *text = program_of("fp16 y = const()[val = fp16(0x1p+0)];");
    struct mil_model *m = parse(text);
    struct mil_function *f = m->program->functions[0];
    struct buf out;
    struct err e = {0};

    (void)state;
    f->block->ops[0]->outputs[0]->name = "a.b";
    buf_init(&out, BYTES_MAX);
    assert_false(mil_text_write(m, NULL, &out, &e));
    assert_int_equal(e.code, ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "function main: const \"a.b\""));
    f->block->ops[0]->outputs[0]->name = "y";
    f->block->ops[0]->n_blocks = 1;
    assert_false(mil_text_write(m, NULL, &out, &e));
    assert_int_equal(e.code, ERR_UNSUPPORTED);
    f->block->ops[0]->n_blocks = 0;
    buf_fini(&out);
    buf_init(&out, 100);
    assert_false(mil_text_write(m, NULL, &out, &e));
    assert_int_equal(e.code, ERR_LIMIT);
    buf_fini(&out);
    mil_model_close(m);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_corpus_comes_back),
        cmocka_unit_test(test_shared_corpus_comes_back),
        cmocka_unit_test(test_values_of_every_type),
        cmocka_unit_test(test_order_and_spelling_are_normalised),
        cmocka_unit_test(test_states),
        cmocka_unit_test(test_content_of_a_program),
        cmocka_unit_test(test_compiler_versions_join_build_info),
        cmocka_unit_test(test_flexible_shapes_of_a_description),
        cmocka_unit_test(test_errors_name_the_place),
        cmocka_unit_test(test_nesting_is_limited),
        cmocka_unit_test(test_every_fp16_comes_back),
        cmocka_unit_test(test_every_small_float_comes_back),
        cmocka_unit_test(test_what_has_no_text_form_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
