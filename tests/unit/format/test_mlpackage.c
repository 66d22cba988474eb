/* What a path is, and the manifest of a package. Reading damaged manifests is tested where models are opened.
 */
#include "support.h"

#include "format/json.h"
#include "format/mlpackage.h"

#define PACKAGES MILKIT_TEST_DATA "/packages/"

static void test_kinds(void **state)
{
    (void)state;
    assert_int_equal(model_path_kind(PACKAGES "multi_lut4.mlpackage"), MODEL_PATH_MLPACKAGE);
    assert_int_equal(model_path_kind(PACKAGES "quantized-constexpr/apple.mlmodelc"), MODEL_PATH_MLMODELC);
    assert_int_equal(model_path_kind(PACKAGES "quantized-constexpr/apple.mlmodelc/model.mil"),
                     MODEL_PATH_MIL);
    assert_int_equal(model_path_kind(PACKAGES "quantized-constexpr/input.mlmodel"), MODEL_PATH_MLMODEL);
    assert_int_equal(model_path_kind(PACKAGES), MODEL_PATH_NONE);
    assert_int_equal(model_path_kind(PACKAGES "none.mlpackage"), MODEL_PATH_NONE);
}

static void test_locate(void **state)
{
    (void)state;
    char *file = NULL, *root = NULL;
    struct err e = {0};
    ASSERT_OK(mlpackage_locate(PACKAGES "multi_lut4.mlpackage", &file, &root, e));
    assert_string_equal(file, PACKAGES "multi_lut4.mlpackage/Data/com.apple.CoreML/model.mlmodel");
    assert_string_equal(root, PACKAGES "multi_lut4.mlpackage/Data/com.apple.CoreML");
    free(file);
    free(root);
    assert_false(mlpackage_locate(PACKAGES, &file, &root, &e));
    assert_null(file);
    assert_non_null(strstr(e.msg, "Manifest.json"));
}

/* Another tool's manifest with its random identifiers replaced by ours, entries in our order, is ours. */
static void test_manifest(void **state)
{
    (void)state;
    struct buf b, again, other;
    char *theirs = NULL;
    size_t n = 0;
    cJSON *json = NULL;
    const char *root = NULL, *path = NULL;

    buf_init(&b, 10000);
    buf_init(&again, 10000);
    buf_init(&other, 10000);
    mlpackage_manifest(&b, true, "seed", 4);
    mlpackage_manifest(&again, true, "seed", 4);
    mlpackage_manifest(&other, true, "sead", 4);
    assert_int_equal(b.n, 617);
    assert_string_equal(b.p, again.p);
    assert_string_not_equal(b.p, other.p);
    ASSERT_OK(file_read(&theirs, &n, PACKAGES "multi_lut4.mlpackage/Manifest.json", 10000, e));
    assert_int_equal(n, b.n);
    assert_memory_equal(theirs, b.p,
                        strlen("{\n    \"fileFormatVersion\": \"1.0.0\",\n    \"itemInfoEntries\": {\n"));
    free(theirs);

    ASSERT_OK(json_parse(&json, b.p, b.n, "manifest", e));
    ASSERT_OK(json_get_string(json, "rootModelIdentifier", &root, "manifest", e));
    assert_int_equal(strlen(root), 36);
    assert_int_equal(strspn(root, "0123456789ABCDEF-"), 36);
    const cJSON *entries = json_get(json, "itemInfoEntries"), *entry = json_get(entries, root);
    assert_int_equal(cJSON_GetArraySize(entries), 2);
    assert_true(strcmp(entries->child->string, entries->child->next->string) < 0);
    ASSERT_OK(json_get_string(entry, "path", &path, "manifest", e));
    assert_string_equal(path, "com.apple.CoreML/model.mlmodel");
    cJSON_Delete(json);

    buf_clear(&b);
    mlpackage_manifest(&b, false, "seed", 4);
    ASSERT_OK(json_parse(&json, b.p, b.n, "manifest", e));
    assert_int_equal(cJSON_GetArraySize(json_get(json, "itemInfoEntries")), 1);
    cJSON_Delete(json);
    buf_fini(&b);
    buf_fini(&again);
    buf_fini(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_locate),
        cmocka_unit_test(test_manifest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
