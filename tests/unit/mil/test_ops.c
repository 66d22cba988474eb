/* The op table: its rows are well formed, its look-ups find them, Apple's names of ops come out, and
 * docs/mil-ops.md is what the table says (MILKIT_WRITE_DOCS=1 writes it anew). */
#include "support.h"
#include "base/buf.h"
#include "mil/ops.h"

static void test_rows_are_well_formed(void **state)
{
    (void)state;
    for (int id = 1; id < MIL_OP_COUNT; id++) {
        const struct mil_op_info *info = mil_op_info_by_id((enum mil_op_id)id);
        struct mil_op_input input;
        assert_non_null(info);
        assert_int_equal(info->id, id);
        assert_ptr_equal(mil_op_info_find(info->name), info);
        assert_in_range(info->opset, 15, 19);
        assert_true(info->rule >= 0 && info->rule < MIL_RULE_COUNT);
        assert_true(strlen(info->doc) > 1 && info->doc[strlen(info->doc) - 1] == '.');
        for (const char *at = info->inputs; mil_op_input_next(&at, &input);) {
            assert_true(input.name.n > 0);
            if (!input.type_class || !strchr("TFINBSVA", input.type_class))
                fail_msg("%s: input %.*s has no type", info->name, (int)input.name.n, input.name.p);
        }
        for (const char *p = info->histogram; *p; p++)
            assert_true((*p >= '0' && *p <= '9') || *p == ' ');
    }
    assert_null(mil_op_info_by_id(MIL_OP_NONE));
    assert_null(mil_op_info_by_id(MIL_OP_COUNT));
    assert_null(mil_op_info_find("no_such_op"));
    assert_null(mil_op_info_find(""));
}

static void test_inputs_are_parsed(void **state)
{
    (void)state;
    const char *at = "x:F values:T* axes:I?!";
    struct mil_op_input input;
    assert_true(mil_op_input_next(&at, &input));
    assert_true(input.name.n == 1 && input.type_class == 'F');
    assert_false(input.is_optional || input.is_variadic || input.is_compile_time);
    assert_true(mil_op_input_next(&at, &input));
    assert_true(input.is_variadic && !input.is_optional);
    assert_true(mil_op_input_next(&at, &input));
    assert_true(memcmp(input.name.p, "axes", 4) == 0 && input.name.n == 4 && input.type_class == 'I');
    assert_true(input.is_optional && input.is_compile_time);
    assert_false(mil_op_input_next(&at, &input));
}

static void test_histogram_keys(void **state)
{
    (void)state;
    static const struct {
        const char *type;
        int opset;
        const char *expected;
    } cases[] = {
        {"add", 15, "Add"},
        {"slice_by_index", 15, "SliceByIndex"},
        {"reduce_l2_norm", 15, "ReduceL2Norm"},
        {"concat", 16, "Concat"},
        {"transpose", 16, "Transpose"},
        {"reduce_l2_norm", 16, "Ios16.reduceL2Norm"},
        {"constexpr_lut_to_dense", 16, "Ios16.constexprLutToDense"},
        {"range_1d", 17, "Range1d"},
        {"tile", 17, "Tile"},
        {"softmax", 17, "Ios16.softmax"},
        {"sigmoid", 17, "Ios16.sigmoid"},
        {"gather_along_axis", 17, "Ios17.gatherAlongAxis"},
        {"logical_not", 17, "Ios17.logicalNot"},
        {"select", 18, "Select"},
        {"reduce_mean", 18, "Ios16.reduceMean"},
        {"softmax", 18, "Ios18.softmax"},
        {"layer_norm", 18, "Ios18.layerNorm"},
        {"read_state", 18, "Ios18.readState"},
        {"constexpr_blockwise_shift_scale", 18, "Ios18.constexprBlockwiseShiftScale"},
        {"matmul", 19, "Ios18.matmul"},
        {"dequantize", 19, "Ios19.dequantize"},
        {"some_new_op", 18, "SomeNewOp"},
    };
    char key[96];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        mil_op_histogram_key(key, cases[i].type, cases[i].opset);
        assert_string_equal(key, cases[i].expected);
    }
    char long_name[300];
    memset(long_name, 'a', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    mil_op_histogram_key(key, long_name, 18);
    assert_int_equal(strlen(key), 95);
}

static void test_opset_numbers(void **state)
{
    (void)state;
    assert_int_equal(mil_opset_number("CoreML5"), 15);
    assert_int_equal(mil_opset_number("CoreML8"), 18);
    assert_int_equal(mil_opset_number("ios18"), 18);
    assert_int_equal(mil_opset_number("ios19"), 19);
    assert_int_equal(mil_opset_number("CoreML4"), 0);
    assert_int_equal(mil_opset_number("ios"), 0);
    assert_int_equal(mil_opset_number(""), 0);
    assert_int_equal(mil_opset_number(NULL), 0);
}

/* ---- docs/mil-ops.md ---- */

static void put_inputs(struct buf *b, const struct mil_op_info *info)
{
    struct mil_op_input input;
    bool first = true;
    for (const char *at = info->inputs; mil_op_input_next(&at, &input); first = false)
        buf_printf(b, "%s%s%.*s: %c%s%s%s", first ? "" : ", ", input.is_compile_time ? "**" : "",
                   (int)input.name.n, input.name.p, input.type_class, input.is_variadic ? "\\*" : "",
                   input.is_compile_time ? "**" : "", input.is_optional ? "?" : "");
}

static const char *const emitters[MIL_OP_COUNT] = {
#define MIL_OP(id, name, opset, histogram, rule, inputs, emitter, memory, doc) [MIL_OP_##id] = #emitter,
#include "mil/ops.def"
#undef MIL_OP
};

static int compare_rows(const void *a, const void *b)
{
    const struct mil_op_info *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static void write_document(struct buf *b)
{
    const struct mil_op_info *sorted[MIL_OP_COUNT];
    buf_puts(
        b,
        "# MIL operations\n\n"
        "Made from src/mil/ops.def; do not edit (`MILKIT_WRITE_DOCS=1 test_ops` writes it anew).\n\n"
        "An op that is not listed is read, kept and printed back; running it is an error that names it.\n\n"
        "Inputs: `?` optional, `*` one or more; **bold** must be known when the program is compiled (a const "
        "or "
        "the\nresult of a `constexpr_` op). T number or bool, F float, I integer, N float or integer, B "
        "bool, S "
        "string,\nV state, A anything. Opset: the first that has the op; counted as: the opsets in which the "
        "name that\n`metadata.json` counts it under changed. Runs: yes, the engine runs it; one by one: what "
        "it gives is known only by "
        "running it (a shape that\ndepends on values, control flow, a list), so functions with it, and "
        "others whose shapes "
        "depend on values, are run op by op by\n`predict` and mk_predict, and not by sessions of language "
        "models. The others are read, checked and printed, and "
        "running one is an\nerror that names it.\n\n"
        "| op | opset | counted as | runs | inputs | results | what it is |\n"
        "| --- | --- | --- | --- | --- | --- | --- |\n");
    for (int id = 1; id < MIL_OP_COUNT; id++)
        sorted[id - 1] = mil_op_info_by_id((enum mil_op_id)id);
    qsort(sorted, MIL_OP_COUNT - 1, sizeof sorted[0], compare_rows);
    for (int i = 0; i < MIL_OP_COUNT - 1; i++) {
        const struct mil_op_info *info = sorted[i];
        buf_printf(b, "| `%s` | %d | %s | %s | ", info->name, info->opset, info->histogram,
                   strcmp(emitters[info->id], "none") == 0         ? ""
                   : strcmp(emitters[info->id], "one_by_one") == 0 ? "one by one"
                                                                   : "yes");
        put_inputs(b, info);
        buf_printf(b, " | %s | %s |\n", mil_rule_name(info->rule), info->doc);
    }
    buf_puts(b, "\n## Result rules\n\n| rule | the results |\n| --- | --- |\n");
    for (int i = 0; i < MIL_RULE_COUNT; i++)
        buf_printf(b, "| %s | %s |\n", mil_rule_name((enum mil_rule)i), mil_rule_doc((enum mil_rule)i));
    buf_puts(b,
             "\n## Beyond the table\n\n"
             "* `classify` does not run as an operation: mk_predict takes it out of the function that ends "
             "with it, and makes the label and the "
             "numbers by label of what it would get. A compiled classifier gives its numbers alone.\n"
             "* `scatter`, `scatter_along_axis`, `scatter_nd`: where the program says that indices are not "
             "validated (ios17), updates at negative "
             "indices and at ones beyond the axis are left out; the format leaves open what they do.\n"
             "* `random_*`: the numbers of a seed are milkit's own; their distribution is that of the op.\n"
             "* `crop_resize` without `pad_value`: a normalized box that begins beyond 1 and ends before it "
             "begins is the whole axis, as in "
             "coremltools' test of ios15.\n"
             "\nOf coremltools 9.0's own op tests (tests/oracle/coremltools_tests.py), these fail:\n\n"
             "| op | tests | reason |\n| --- | --- | --- |\n"
             "| `fill` | TestFill symbolic (ios14) | the shape that values give does not fit the one that "
             "the result declares by ranges |\n"
             "| `range_1d` | TestRange1d smoke, one of the cases (ios14) | its length depends on inputs, and "
             "what follows needs it before the run |\n"
             "| `conv`, `slice_by_index` | five that convert to a neural network | not an ML Program: "
             "refused by name |\n");
}

static void test_document_is_up_to_date(void **state)
{
    (void)state;
    const char *path = MILKIT_TEST_DATA "/../../docs/mil-ops.md";
    struct buf expected, found;
    char chunk[4096];
    size_t n;
    buf_init(&expected, 1 << 20);
    buf_init(&found, 1 << 20);
    write_document(&expected);
    assert_false(expected.failed);
    if (getenv("MILKIT_WRITE_DOCS")) {
        FILE *out = fopen(path, "wb");
        assert_non_null(out);
        assert_int_equal(fwrite(expected.p, 1, expected.n, out), expected.n);
        assert_int_equal(fclose(out), 0);
    }
    FILE *in = fopen(path, "rb");
    if (!in)
        fail_msg("%s is missing; write it with MILKIT_WRITE_DOCS=1", path);
    while ((n = fread(chunk, 1, sizeof chunk, in)) > 0)
        buf_append(&found, chunk, n);
    fclose(in);
    bool is_equal = found.n == expected.n && memcmp(found.p, expected.p, found.n) == 0;
    buf_fini(&expected);
    buf_fini(&found);
    if (!is_equal)
        fail_msg("docs/mil-ops.md is not what src/mil/ops.def says; write it with MILKIT_WRITE_DOCS=1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_well_formed),   cmocka_unit_test(test_inputs_are_parsed),
        cmocka_unit_test(test_histogram_keys),         cmocka_unit_test(test_opset_numbers),
        cmocka_unit_test(test_document_is_up_to_date),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
