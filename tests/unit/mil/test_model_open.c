/* Opening models: every form, weights mapped and checked, and a clear word for whatever is not right. */
#include "support.h"

#include "base/file.h"
#include "mil/mil.h"
#include "model_compare.h"

#define PACKAGES MILKIT_TEST_DATA "/packages/"
#define MODEL "Data/com.apple.CoreML/model.mlmodel"
#define WEIGHTS "Data/com.apple.CoreML/weights/weight.bin"

static char scratch_folder[64];

static int scratch_make(void **state)
{
    (void)state;
    snprintf(scratch_folder, sizeof scratch_folder, "scratch-open-XXXXXX");
    return mkdtemp(scratch_folder) ? 0 : 1;
}

static int scratch_remove(void **state)
{
    (void)state;
    return path_remove_tree(scratch_folder, NULL) ? 0 : 1;
}

static void tree_copy(const char *from, const char *to)
{
    struct path_list l = {0};
    if (!path_is_folder(from)) {
        ASSERT_OK(file_copy(from, to, e));
        return;
    }
    ASSERT_OK(folder_make(to, e));
    ASSERT_OK(path_list_read(&l, from, e));
    for (size_t i = 0; i < l.n; i++) {
        char *a = path_join(from, l.names[i]), *b = path_join(to, l.names[i]);
        tree_copy(a, b);
        free(a);
        free(b);
    }
    path_list_free(&l);
}

/* A fresh copy of a package, to be damaged. The caller frees. */
static char *copy_of(const char *name)
{
    char *from = xasprintf(PACKAGES "%s", name), *to = path_join(scratch_folder, "copy");
    ASSERT_OK(path_remove_tree(to, e));
    tree_copy(from, to);
    free(from);
    return to;
}

static void file_put(const char *folder, const char *name, const void *data, size_t n)
{
    char *path = path_join(folder, name);
    unlink(path);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    free(path);
}

static char *file_get(const char *folder, const char *name, size_t *n)
{
    char *path = path_join(folder, name), *bytes = NULL;
    ASSERT_OK(file_read(&bytes, n, path, 1 << 24, e));
    free(path);
    return bytes;
}

static void file_remove(const char *folder, const char *name)
{
    char *path = path_join(folder, name);
    ASSERT_OK(path_remove_tree(path, e));
    free(path);
}

static void refused(const char *path, unsigned flags, enum err_code code, const char *says)
{
    struct err e = {0};
    struct mil_model *m = NULL;
    if (mil_model_open(&m, path, flags, &e))
        fail_msg("%s: opened, expected: %s", path, says);
    assert_null(m);
    if (e.code != code || !strstr(e.msg, says))
        fail_msg("code %d \"%s\", expected %d \"%s\"", (int)e.code, e.msg, (int)code, says);
}

static struct mil_model *opened(const char *path, unsigned flags)
{
    struct mil_model *m = NULL;
    ASSERT_OK(mil_model_open(&m, path, flags, e));
    return m;
}

/* Opens a copy of `package` whose file `name` has `n` bytes at `at` replaced. */
static void changed_refused(const char *package, const char *name, size_t at, const void *bytes, size_t n,
                            enum err_code code, const char *says)
{
    char *copy = copy_of(package);
    size_t size;
    char *data = file_get(copy, name, &size);
    assert_true(at + n <= size);
    memcpy(data + at, bytes, n);
    file_put(copy, name, data, size);
    refused(copy, 0, code, says);
    free(data);
    free(copy);
}

static void test_packages(void **state)
{
    (void)state;
    static const char *const names[] = {"while_loop_fp16", "state_two_shift", "bss_int4_odd_fp16",
                                        "multi_lut4", "spec7_lut4"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char *path = xasprintf(PACKAGES "%s.mlpackage", names[i]);
        struct mil_model *m = opened(path, 0);
        assert_string_equal(m->path, path);
        mil_model_close(m);
        free(path);
    }
}

static void test_weights(void **state)
{
    (void)state;
    struct mil_model *m = opened(PACKAGES "multi_lut4.mlpackage", 0);
    assert_int_equal(m->n_files, 1);
    const struct mil_op *op = mil_function_find(m, "infer")->block->ops[0];
    const struct mil_value *lut = mil_arg_value(op, "lut"), *indices = mil_arg_value(op, "indices");
    assert_non_null(lut->data);
    assert_int_equal(lut->bytes, 192);
    assert_int_equal(indices->bytes, 48 * 40 / 2);
    assert_int_equal(((uintptr_t)lut->data) % 64, 0);
    mil_model_close(m);

    m = opened(PACKAGES "multi_lut4.mlpackage", MIL_OPEN_NO_WEIGHTS);
    assert_int_equal(m->n_files, 0);
    assert_null(mil_arg_value(mil_function_find(m, "infer")->block->ops[0], "lut")->data);
    /* later, on wish */
    ASSERT_OK(mil_model_map_weights(m, e));
    assert_non_null(mil_arg_value(mil_function_find(m, "infer")->block->ops[0], "lut")->data);
    mil_model_close(m);
}

/* The same model as a bare file and compiled by Apple: one program. */
static void test_three_forms(void **state)
{
    (void)state;
    struct mil_model *bare = opened(PACKAGES "quantized-constexpr/input.mlmodel", 0);
    struct mil_model *compiled = opened(PACKAGES "quantized-constexpr/apple.mlmodelc", 0);
    assert_int_equal(bare->specification_version, compiled->specification_version);
    assert_true(description_equal(&bare->description, &compiled->description));
    assert_int_equal(bare->n_files, 1);
    assert_int_equal(compiled->n_files, 1);
    assert_int_equal(bare->program->functions[0]->block->n_ops,
                     compiled->program->functions[0]->block->n_ops);
    /* the compiler adds to buildInfo, so the functions alone are compared */
    bare->program->n_attributes = compiled->program->n_attributes = 0;
    assert_true(program_equal(bare->program, compiled->program));
    mil_model_close(bare);
    mil_model_close(compiled);
}

static void test_not_models(void **state)
{
    (void)state;
    char *file = path_join(scratch_folder, "some.mil");
    refused("no-such-thing.mlpackage", 0, ERR_IO, "no such file");
    refused(PACKAGES, 0, ERR_FORMAT, "neither a .mlpackage (no Manifest.json) nor a .mlmodelc");
    refused(PACKAGES "neuralnetwork.mlmodel", 0, ERR_UNSUPPORTED, "a neural network");
    refused(PACKAGES "pipeline.mlpackage", 0, ERR_UNSUPPORTED, "a pipeline");
    file_put(scratch_folder, "meta.yaml", "a: b\n", 5);
    refused(scratch_folder, 0, ERR_FORMAT, "folder of several models");
    file_remove(scratch_folder, "meta.yaml");
    file_put(scratch_folder, "some.mil", "program(1.3)\n{\n}", 16);
    refused(file, 0, ERR_UNSUPPORTED, "text of a program alone");
    file_put(scratch_folder, "some.mil", "", 0);
    free(file);
}

static void test_package_damage(void **state)
{
    (void)state;
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n";
    char *copy = copy_of("multi_lut4.mlpackage");
    size_t n;
    char *model = file_get(copy, MODEL, &n), *weights;

    file_put(copy, MODEL, model, n / 2);
    refused(copy, 0, ERR_FORMAT, "damaged");
    file_put(copy, MODEL, "", 0);
    refused(copy, 0, ERR_FORMAT, "empty");
    file_put(copy, MODEL, pointer, sizeof pointer - 1);
    refused(copy, 0, ERR_FORMAT, "LFS pointer");
    file_remove(copy, MODEL);
    refused(copy, 0, ERR_FORMAT, "model.mlmodel is not there");
    file_put(copy, MODEL, model, n);
    free(model);

    weights = file_get(copy, WEIGHTS, &n);
    file_put(copy, WEIGHTS, weights, n / 2);
    refused(copy, 0, ERR_FORMAT, "weight.bin");
    file_put(copy, WEIGHTS, weights, 10);
    refused(copy, 0, ERR_FORMAT, "weight.bin");
    file_put(copy, WEIGHTS, pointer, sizeof pointer - 1);
    refused(copy, 0, ERR_FORMAT, "LFS pointer");
    file_remove(copy, "Data/com.apple.CoreML/weights");
    refused(copy, 0, ERR_FORMAT, "keeps its weights in");
    mil_model_close(opened(copy, MIL_OPEN_NO_WEIGHTS));
    free(weights);

    file_put(copy, "Manifest.json", "{", 1);
    refused(copy, 0, ERR_FORMAT, "Manifest.json");
    file_put(copy, "Manifest.json", "{}", 2);
    refused(copy, 0, ERR_FORMAT, "fileFormatVersion");
    free(copy);
}

static void test_weight_records(void **state)
{
    (void)state;
    /* the first record: sentinel, type, size */
    changed_refused("multi_lut4.mlpackage", WEIGHTS, 64, "\0\0\0\0", 4, ERR_FORMAT, "sentinel");
    changed_refused("multi_lut4.mlpackage", WEIGHTS, 68, "\x03\0\0\0", 4, ERR_FORMAT,
                    "expected uint4, found uint8");
    changed_refused("multi_lut4.mlpackage", WEIGHTS, 72, "\x10\0\0\0\0\0\0\0", 8, ERR_FORMAT,
                    "needs 960 bytes");
    changed_refused("multi_lut4.mlpackage", WEIGHTS, 72, "\0\0\0\0\0\0\0\x7f", 8, ERR_FORMAT, "weight.bin");
}

/* Replaces every `from` in the packed model by `to` of the same length. */
static void renamed_refused(const char *from, const char *to, const char *says)
{
    char *copy = copy_of("multi_lut4.mlpackage");
    size_t n, length = strlen(from), hits = 0;
    char *model = file_get(copy, MODEL, &n);
    assert_int_equal(length, strlen(to));
    for (size_t i = 0; i + length <= n; i++) {
        if (memcmp(model + i, from, length) == 0) {
            memcpy(model + i, to, length);
            hits++;
        }
    }
    assert_true(hits > 0);
    file_put(copy, MODEL, model, n);
    refused(copy, 0, ERR_FORMAT, says);
    free(model);
    free(copy);
}

static void test_weight_references(void **state)
{
    (void)state;
    renamed_refused("@model_path/weights/weight.bin", "@model_path/../../../../passwd",
                    "expected a path inside the model");
    renamed_refused("@model_path/weights/weight.bin", "/tmp/weights/weights/weightbin",
                    "expected a path inside");
    renamed_refused("@model_path/weights/weight.bin", "@model_path/weights/weighs.bin",
                    "weighs.bin, which is not there");
    /* the offset of the look-up table: 1088 is c0 08 as a varint, 10 its field number */
    renamed_refused("\x10\xc0\x08", "\x10\xc1\x08", "1089");
    renamed_refused("\x10\xc0\x08", "\x10\xc0\x7f", "16320");
}

static void test_manifests(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"[]", "expected an object"},
        {"{\"fileFormatVersion\": \"1.0.1\", \"rootModelIdentifier\": \"A\"}", "fileFormatVersion 1.0.1"},
        {"{\"fileFormatVersion\": \"x\", \"rootModelIdentifier\": \"A\"}", "fileFormatVersion x"},
        {"{\"fileFormatVersion\": 1, \"rootModelIdentifier\": \"A\"}", "fileFormatVersion"},
        {"{\"fileFormatVersion\": \"1.0.0\"}", "rootModelIdentifier"},
        {"{\"fileFormatVersion\": \"1.0.0\", \"rootModelIdentifier\": \"A\"}", "itemInfoEntries"},
        {"{\"fileFormatVersion\": \"1.0.0\", \"rootModelIdentifier\": \"A\", \"itemInfoEntries\": {\"B\": "
         "{}}}",
         "no entry for the root model A"},
        {"{\"fileFormatVersion\": \"1.0.0\", \"rootModelIdentifier\": \"A\", \"itemInfoEntries\": {\"A\": "
         "{}}}",
         "path of the root model: missing"},
        {"{\"fileFormatVersion\": \"1.0.0\", \"rootModelIdentifier\": \"A\", \"itemInfoEntries\": {\"A\": "
         "{\"path\": \"../x\"}}}",
         "expected one inside the package"},
        {"{\"fileFormatVersion\": \"1.0.0\", \"rootModelIdentifier\": \"A\", \"itemInfoEntries\": {\"A\": "
         "{\"path\": \"/etc/passwd\"}}}",
         "expected one inside the package"},
    };
    char *copy = copy_of("while_loop_fp16.mlpackage");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        file_put(copy, "Manifest.json", cases[i].text, strlen(cases[i].text));
        refused(copy, 0, ERR_FORMAT, cases[i].says);
    }
    free(copy);
}

static void test_compiled_damage(void **state)
{
    (void)state;
    static const char name[] = "quantized-constexpr/apple.mlmodelc";
    char *copy = copy_of(name);
    size_t n;
    char *data = file_get(copy, "coremldata.bin", &n);
    for (size_t i = 0; i < n; i++) {
        file_put(copy, "coremldata.bin", data, i);
        refused(copy, 0, ERR_FORMAT, "coremldata.bin");
    }
    file_put(copy, "coremldata.bin", data, n);
    mil_model_close(opened(copy, 0));
    file_remove(copy, "model.mil");
    refused(copy, 0, ERR_FORMAT, "without its model.mil");
    free(data);
    free(copy);

    copy = copy_of(name);
    file_remove(copy, "coremldata.bin");
    refused(copy, 0, ERR_FORMAT, "without its coremldata.bin");
    free(copy);
    changed_refused(name, "coremldata.bin", 0, "\xca\0\0\0", 4, ERR_UNSUPPORTED, "a pipeline");
    changed_refused(name, "coremldata.bin", 0, "\0\0\0\x55", 4, ERR_FORMAT, "damaged coremldata.bin");
    changed_refused(name, "coremldata.bin", 0x2b, "\x0b\0\0\0", 4, ERR_UNSUPPORTED,
                    "specification version 11");
    changed_refused(name, "coremldata.bin", 0x4b, "\xff\xff\xff\xff\xff\xff\xff\xff", 8, ERR_FORMAT,
                    "are left");
    changed_refused(name, "coremldata.bin", 0x53, "\xff\xff", 2, ERR_FORMAT, "coremldata.bin");
    changed_refused(name, "model.mil", 0, "xx", 2, ERR_FORMAT, "model.mil");
    changed_refused(name, "weights/weights.bin", 64, "\0", 1, ERR_FORMAT, "sentinel");
}

/* What the peer packages call to be refused is refused (a classifier may be opened, it is the engine's to
 * say). */
static void test_shared_refusals(void **state)
{
    (void)state;
    SKIP_WITHOUT_SHARED();
    static const struct {
        const char *name, *says;
        enum err_code code;
    } cases[] = {
        {"neuralnetwork.mlmodel", "a neural network", ERR_UNSUPPORTED},
        {"neuralnetwork.mlpackage", "a neural network", ERR_UNSUPPORTED},
        {"pipeline.mlpackage", "a pipeline", ERR_UNSUPPORTED},
        {"weights_truncated.mlpackage", "weight.bin", ERR_FORMAT},
        {"weights_missing.mlpackage", "keeps its weights in", ERR_FORMAT},
        {"blob_bad_sentinel.mlpackage", "sentinel", ERR_FORMAT},
        {"model_truncated.mlpackage", "damaged", ERR_FORMAT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *path = xasprintf(MILKIT_SHARED "/peer-packages/refuse/%s", cases[i].name);
        refused(path, 0, cases[i].code, cases[i].says);
        free(path);
    }
}

static int opened_below(const char *folder)
{
    struct path_list l = {0};
    int n = 0;
    ASSERT_OK(path_list_read(&l, folder, e));
    for (size_t i = 0; i < l.n; i++) {
        char *path = path_join(folder, l.names[i]);
        if (has_suffix(path, ".mlpackage") || has_suffix(path, ".mlmodelc")) {
            mil_model_close(opened(path, 0));
            n++;
        } else if (path_is_folder(path) && !has_suffix(path, "refuse")) {
            n += opened_below(path);
        }
        free(path);
    }
    path_list_free(&l);
    return n;
}

static void test_shared_packages(void **state)
{
    (void)state;
    SKIP_WITHOUT_SHARED();
    int n = opened_below(MILKIT_SHARED "/peer-packages") + opened_below(MILKIT_SHARED "/corpus");
    printf("%d models\n", n);
    assert_true(n > 300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packages),          cmocka_unit_test(test_weights),
        cmocka_unit_test(test_three_forms),       cmocka_unit_test(test_not_models),
        cmocka_unit_test(test_package_damage),    cmocka_unit_test(test_weight_records),
        cmocka_unit_test(test_weight_references), cmocka_unit_test(test_manifests),
        cmocka_unit_test(test_compiled_damage),   cmocka_unit_test(test_shared_refusals),
        cmocka_unit_test(test_shared_packages),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
