// Compiling: Apple's compilation of the same source is reproduced file by file.
#include "support.h"
#include <unistd.h>
#include "base/file.h"
#include "format/json.h"
#include "format/mlmodelc.h"
#include "mil/compiled.h"
#include "mil/text.h"

#define CORPUS MILKIT_TEST_DATA "/corpus/pairs"
#define BYTES_MAX ((size_t)64 << 20)

static char scratch[512];

static int make_scratch(void **state)
{
    (void)state;
    snprintf(scratch, sizeof scratch, "test_compiled-%ld", (long)getpid());
    return mkdir(scratch, 0700);
}

static int remove_scratch(void **state)
{
    struct err e;

    (void)state;
    return path_remove_tree(scratch, &e) ? 0 : 1;
}

/* Not inlined: gcc 12 at -O3 would take the heap text for this function's local variable. */
__attribute__((noinline)) static char *read_below(const char *folder, const char *name, size_t *bytes)
{
    char *path = path_join(folder, name), *text = NULL;
    bool ok = file_read(&text, bytes, path, BYTES_MAX, NULL);

    free(path);
    assert_true(ok);
    return text;
}

static bool exists_below(const char *folder, const char *name)
{
    char *path = path_join(folder, name);
    bool yes = path_exists(path);

    free(path);
    return yes;
}

static void check_same_file(const char *a, const char *b, const char *name)
{
    size_t na, nb;
    char *x = read_below(a, name, &na), *y = read_below(b, name, &nb);

    if (na != nb || memcmp(x, y, na) != 0)
        fail_msg("%s/%s and %s/%s differ", a, name, b, name);
    free(x);
    free(y);
}

/* ---- coremldata.bin with its user-defined map sorted ---- */

struct field {
    const uint8_t *p;
    size_t n;
};

static size_t varint(const uint8_t *p, uint64_t *v)
{
    size_t i = 0;

    for (*v = 0; i < 10; i++) {
        *v |= (uint64_t)(p[i] & 0x7f) << (7 * i);
        if (!(p[i] & 0x80))
            return i + 1;
    }
    fail_msg("a varint of more than 10 bytes");
    return 0;
}

static int compare_fields(const void *a, const void *b)
{
    const struct field *x = a, *y = b;
    int c = memcmp(x->p, y->p, x->n < y->n ? x->n : y->n);

    return c ? c : (x->n > y->n) - (x->n < y->n);
}

/* Copies a message with the entries of field 100 sorted (or, on level 0, done so inside field 100). */
static void put_sorted(struct buf *out, const uint8_t *p, size_t n, int level)
{
    struct field maps[64];
    size_t n_maps = 0;

    for (size_t i = 0; i < n;) {
        size_t begin = i;
        uint64_t tag, length = 0;
        i += varint(p + i, &tag);
        i += varint(p + i, &length);
        const uint8_t *content = p + i;
        if ((tag & 7) == 2)
            i += length;
        assert_true(i <= n);
        if (tag >> 3 != 100) {
            buf_append(out, p + begin, i - begin);
        } else if (level == 0) {
            buf_append(out, p + begin, (size_t)(content - p) - begin);
            put_sorted(out, content, length, 1);
        } else {
            assert_true(n_maps < 64);
            maps[n_maps++] = (struct field){p + begin, i - begin};
        }
    }
    qsort(maps, n_maps, sizeof *maps, compare_fields);
    for (size_t i = 0; i < n_maps; i++)
        buf_append(out, maps[i].p, maps[i].n);
}

static void check_coremldata(const char *a, const char *b)
{
    const char *folders[2] = {a, b};
    struct buf sorted[2];

    for (int i = 0; i < 2; i++) {
        size_t n;
        char *data = read_below(folders[i], "coremldata.bin", &n);
        struct coremldata c;
        ASSERT_OK(coremldata_read(&c, (const uint8_t *)data, n, folders[i], e));
        size_t head = (size_t)(c.description - (const uint8_t *)data);
        buf_init(&sorted[i], BYTES_MAX);
        buf_append(&sorted[i], data, head);
        put_sorted(&sorted[i], c.description, c.n_description, 0);
        buf_append(&sorted[i], data + head + c.n_description, n - head - c.n_description);
        free(data);
    }
    assert_int_equal(sorted[0].n, sorted[1].n);
    assert_memory_equal(sorted[0].p, sorted[1].p, sorted[0].n);
    buf_fini(&sorted[0]);
    buf_fini(&sorted[1]);
}

static void check_same_json(const char *a, const char *b, const char *name)
{
    size_t n;
    char *x = read_below(a, name, &n);
    cJSON *jx, *jy;

    ASSERT_OK(json_parse(&jx, x, n, a, e));
    char *y = read_below(b, name, &n);
    ASSERT_OK(json_parse(&jy, y, n, b, e));
    if (!cJSON_Compare(jx, jy, true))
        fail_msg("%s differs:\n%s\n%s", name, x, y);
    cJSON_Delete(jx);
    cJSON_Delete(jy);
    free(x);
    free(y);
}

/* A version out of "{"key", "version"}" in the text. */
static char *version_in(const char *text, const char *key)
{
    char *wanted = xasprintf("{\"%s\", \"", key), *version = NULL;
    const char *p = strstr(text, wanted);

    if (p)
        version = xasprintf("%.*s", (int)strcspn(p + strlen(wanted), "\""), p + strlen(wanted));
    free(wanted);
    assert_non_null(version);
    return version;
}

static void compile_like(const char *source, const char *expected, const char *out)
{
    size_t n;
    char *text = read_below(expected, "model.mil", &n);
    char *component = version_in(text, "coremlc-component-MIL"),
         *version = version_in(text, "coremlc-version");
    struct mil_text_options versions = {.coremlc_component = component, .coremlc_version = version};

    ASSERT_OK(mil_compile_as(source, out, true, &versions, e));
    free(component);
    free(version);
    free(text);
}

static void check_pair(const char *pair, const char *source, const char *expected)
{
    char *src = path_join(pair, source), *exp = path_join(pair, expected),
         *out = path_join(scratch, "out.mlmodelc");

    compile_like(src, exp, out);
    check_same_file(out, exp, "model.mil");
    check_coremldata(out, exp);
    if (exists_below(exp, "analytics"))
        check_same_file(out, exp, "analytics/coremldata.bin");
    if (exists_below(exp, "metadata.json"))
        check_same_json(out, exp, "metadata.json");
    if (exists_below(exp, "weights/weight.bin"))
        check_same_file(out, exp, "weights/weight.bin");
    else if (exists_below(src, "Data/com.apple.CoreML/weights/weight.bin"))
        assert_true(exists_below(out, "weights/weight.bin"));
    if (exists_below(exp, "weights/weights.bin"))
        check_same_file(out, exp, "weights/weights.bin");
    free(src);
    free(exp);
    free(out);
}

static void check_package_pair(const char *pairs, const char *name)
{
    char *pair = path_join(pairs, name), *source = xasprintf("%s.mlpackage", name);

    check_pair(pair, source, "apple.mlmodelc");
    free(pair);
    free(source);
}

static void test_packages_compile_to_apples_bytes(void **state)
{
    (void)state;
    check_package_pair(CORPUS, "unified_palette_2bit");
    check_package_pair(CORPUS, "unified_pruned_int8");
}

static void test_shared_packages_compile_to_apples_bytes(void **state)
{
    static const char *const names[] = {
        "silero-vad-unified-v6.0.0", "unified_int8",         "unified_mixed",        "unified_palette_2bit",
        "unified_palette_4bit",      "unified_palette_6bit", "unified_palette_8bit", "unified_pruned_int8"};

    (void)state;
    SKIP_WITHOUT_SHARED();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        check_package_pair(MILKIT_SHARED "/corpus/pairs", names[i]);
}

static void test_fixtures_compile_byte_for_byte(void **state)
{
    static const char *const names[] = {"flexible-weighted-legacy", "fp16-subnormal-cast",
                                        "quantized-constexpr"};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char *pair = path_join(CORPUS, names[i]), *exp = path_join(pair, "expected-macos.mlmodelc");
        char *out = path_join(scratch, "out.mlmodelc");
        check_pair(pair, "input.mlmodel", "expected-macos.mlmodelc");
        check_same_file(out, exp, "coremldata.bin");
        if (exists_below(exp, "metadata.json"))
            check_same_file(out, exp, "metadata.json");
        free(pair);
        free(exp);
        free(out);
    }
}

/* The converter writes both forms from one program: the package compiled must give the bundle. */
static void test_bundle_and_package_of_one_model_agree(void **state)
{
    char *source = path_join(CORPUS, "unified_palette_2bit/unified_palette_2bit.mlpackage");
    char *package = path_join(scratch, "X.mlpackage"), *direct = path_join(scratch, "direct.mlmodelc");
    char *compiled = path_join(scratch, "compiled.mlmodelc");
    char *weights = path_join(source, "Data/com.apple.CoreML/weights/weight.bin");
    char *copy = path_join(package, "Data/com.apple.CoreML/weights/weight.bin");
    struct mil_model *m;

    (void)state;
    ASSERT_OK(mil_model_open(&m, source, 0, e));
    ASSERT_OK(folder_make(package, e));
    ASSERT_OK(folder_make(direct, e));
    ASSERT_OK(mil_write_mlpackage_files(m, package, true, e));
    ASSERT_OK(file_copy(weights, copy, e));
    ASSERT_OK(mil_write_mlmodelc_files(m, direct, "X", NULL, 0, e));
    ASSERT_OK(mil_compile(package, compiled, false, e));
    check_same_file(direct, compiled, "model.mil");
    check_same_file(direct, compiled, "coremldata.bin");
    check_same_file(direct, compiled, "analytics/coremldata.bin");
    check_same_file(direct, compiled, "metadata.json");
    mil_model_close(m);
    free(source);
    free(package);
    free(direct);
    free(compiled);
    free(weights);
    free(copy);
}

static const char *json_text(const cJSON *o, const char *key)
{
    const char *s = cJSON_GetStringValue(json_get(o, key));

    return s ? s : "(absent)";
}

/* What Apple's pairs do not show: states, several functions, ranges, enumerated shapes, other kinds of
 * features. */
static void test_metadata_of_other_features(void **state)
{
    static const char text[] =
        "program(1.3)\n{\n    func b<ios18>(state<tensor<fp16, [2, 3]>> kv, tensor<fp16, [?]> x) {\n"
        "            tensor<fp16, [2, 3]> y = read_state(input = kv);\n        } -> (y);\n"
        "    func a<ios18>(tensor<fp16, [?]> x) {\n            tensor<fp16, [?]> y = relu(x = x);\n"
        "        } -> (y);\n}";
    static const int64_t shape_a[] = {4}, shape_b[] = {2, 3}, one[] = {1}, two[] = {2};
    static const int64_t *const shapes[] = {one, two};
    static const int ranks[] = {1, 1};
    static const struct mil_range ranges[] = {{1, 9}};
    struct mil_feature x_b = {.name = "x",
                              .kind = MIL_FEATURE_ARRAY,
                              .dtype = MIL_FP16,
                              .rank = 1,
                              .shape = shape_a,
                              .n_ranges = 1,
                              .ranges = ranges};
    struct mil_feature x_a = {.name = "x",
                              .kind = MIL_FEATURE_ARRAY,
                              .dtype = MIL_FP16,
                              .rank = 1,
                              .shape = shape_a,
                              .n_enumerated = 2,
                              .enumerated = shapes,
                              .enumerated_ranks = ranks};
    struct mil_feature kv = {
        .name = "kv", .kind = MIL_FEATURE_STATE, .dtype = MIL_FP16, .rank = 2, .shape = shape_b};
    struct mil_feature y = {.name = "a/\"\n", .kind = MIL_FEATURE_STRING};
    struct mil_function_description functions[2] = {
        {.name = "b",
         .n_inputs = 1,
         .inputs = &x_b,
         .n_outputs = 1,
         .outputs = &y,
         .n_states = 1,
         .states = &kv},
        {.name = "a", .n_inputs = 1, .inputs = &x_a, .n_outputs = 1, .outputs = &y}};
    struct mil_model *m = mil_model_new(9);
    struct err err = {0};
    struct buf out;
    cJSON *list;

    (void)state;
    buf_init(&out, BYTES_MAX);
    ASSERT_OK(mil_text_read(m, text, strlen(text), "test.mil", e));
    m->description.has_functions = true;
    m->description.n_functions = 2;
    m->description.functions = functions;
    m->description.default_function_name = "a";
    ASSERT_OK(mil_metadata_write(m, "1 model-x", &out, e));
    ASSERT_OK(json_parse(&list, out.p, out.n, "metadata.json", e));
    const cJSON *o = list->child, *fn = json_get(o, "functions"), *b = fn->child;
    assert_string_equal(json_text(o, "generatedClassName"), "1_model_x");
    assert_string_equal(json_text(o, "defaultFunctionName"), "a");
    assert_string_equal(json_text(o, "storagePrecision"), "(absent)");
    assert_string_equal(json_text(json_get(o, "inputSchema")->child, "enumeratedShapes"), "[[1], [2]]");
    assert_string_equal(json_text(json_get(o, "inputSchema")->child, "shapeFlexibility"), "1 | 2");
    assert_string_equal(json_text(json_get(o, "outputSchema")->child, "name"), "a/\"\n");
    assert_string_equal(json_text(json_get(o, "outputSchema")->child, "formattedType"), "String");
    assert_int_equal(cJSON_GetArraySize(json_get(o, "stateSchema")), 0);
    assert_int_equal(cJSON_GetArraySize(fn), 2);
    assert_string_equal(json_text(b, "name"), "b");
    assert_string_equal(json_text(b, "computePrecision"), "Float16");
    assert_string_equal(json_text(json_get(b, "inputSchema")->child, "shapeRange"), "[[1, 9]]");
    assert_string_equal(json_text(json_get(b, "inputSchema")->child, "shapeFlexibility"), "1...9");
    assert_string_equal(json_text(json_get(b, "stateSchema")->child, "formattedType"),
                        "State (Float16 2 × 3)");
    assert_string_equal(json_text(json_get(o, "availability"), "macOS"), "15.0");
    cJSON_Delete(list);
    functions[1].name = "c";
    buf_clear(&out);
    assert_false(mil_metadata_write(m, "x", &out, &err));
    assert_int_equal(err.code, ERR_FORMAT);
    buf_fini(&out);
    mil_model_close(m);
}

static void test_refusals_leave_nothing(void **state)
{
    char *source = path_join(CORPUS, "quantized-constexpr/input.mlmodel");
    char *bundle = path_join(CORPUS, "quantized-constexpr/expected-macos.mlmodelc");
    char *lonely = path_join(scratch, "lonely.mlmodel"), *out = path_join(scratch, "refused.mlmodelc");
    struct err e = {0};

    (void)state;
    assert_false(mil_compile(bundle, out, false, &e));
    assert_int_equal(e.code, ERR_USAGE);
    assert_false(mil_compile("no-such.mlpackage", out, false, &e));
    assert_int_equal(e.code, ERR_IO);
    ASSERT_OK(file_copy(source, lonely, e)); /* its weights stay behind */
    assert_false(mil_compile(lonely, out, false, &e));
    assert_int_equal(e.code, ERR_FORMAT);
    assert_false(path_exists(out));
    ASSERT_OK(mil_compile(source, out, false, e));
    assert_false(mil_compile(source, out, false, &e)); /* exists */
    assert_int_equal(e.code, ERR_IO);
    ASSERT_OK(mil_compile(source, out, true, e));
    free(source);
    free(bundle);
    free(lonely);
    free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packages_compile_to_apples_bytes),
        cmocka_unit_test(test_shared_packages_compile_to_apples_bytes),
        cmocka_unit_test(test_fixtures_compile_byte_for_byte),
        cmocka_unit_test(test_bundle_and_package_of_one_model_agree),
        cmocka_unit_test(test_metadata_of_other_features),
        cmocka_unit_test(test_refusals_leave_nothing),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
