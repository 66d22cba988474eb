// links: convert
/* The identity of a model: any changed bit of any weight is another one; threads and form are not. */
#include "format/blob.h"
#include "packages.h"
#include "runtime/model_identity.h"

static const struct package_shape shapes[] = {{"qwen3-tiny", 128, 16, 2, CONVERT_MLMODELC},
                                              {"qwen3_5-equal", 128, 16, 1, CONVERT_MLPACKAGE}};

static struct model_identity identity_of(const char *path, int n_threads)
{
    struct model *m = NULL;
    struct model_identity id;
    const struct model_options o = {.n_threads = n_threads};
    ASSERT_OK(model_open(&m, path, &o, e));
    ASSERT_OK(model_identify(m, &id, e));
    model_close(m);
    return id;
}

static void test_threads_and_forms(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct package_shape other = shapes[i];
        other.format = other.format == CONVERT_MLMODELC ? CONVERT_MLPACKAGE : CONVERT_MLMODELC;
        char *path = package_make(&shapes[i]), *second = package_make(&other);
        struct model_identity id = identity_of(path, 1);
        for (int n = 2; n < 5; n++) {
            struct model_identity again = identity_of(n == 4 ? second : path, n);
            assert_memory_equal(&id, &again, sizeof id);
        }
        free(path);
        free(second);
    }
}

/* Contexts, batches and models differ in their programs. */
static void test_programs(void **state)
{
    (void)state;
    static const struct package_shape others[] = {{"qwen3-tiny", 64, 16, 2, CONVERT_MLMODELC},
                                                  {"qwen3-tiny", 128, 32, 2, CONVERT_MLMODELC},
                                                  {"qwen3-tiny", 128, 16, 1, CONVERT_MLMODELC},
                                                  {"qwen3_5-equal", 128, 16, 1, CONVERT_MLMODELC}};
    char *path = package_make(&shapes[0]);
    struct model_identity id = identity_of(path, 1);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char *other = package_make(&others[i]);
        struct model_identity different = identity_of(other, 1);
        assert_memory_not_equal(id.programs, different.programs, sizeof id.programs);
        free(other);
    }
    free(path);
}

/* Flips one bit of a file in place. */
static void flip(const char *path, uint64_t at, int bit)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, (long)at, SEEK_SET), 0);
    int c = fgetc(f);
    assert_true(c != EOF);
    assert_int_equal(fseek(f, (long)at, SEEK_SET), 0);
    assert_true(fputc(c ^ (1 << bit), f) != EOF);
    assert_int_equal(fclose(f), 0);
}

/* One bit in the first, the last and some other byte of every weight of a file that is in use. */
static void flip_each(const char *package, const char *file, const struct model_identity *id, int *n_flips)
{
    struct blob_file *blob = NULL;
    struct blob_record r;
    bool found = true;
    uint64_t offset = 0;
    ASSERT_OK(blob_open(&blob, file, e));
    for (;;) {
        ASSERT_OK(blob_next(blob, offset, &r, &found, e));
        if (!found)
            break;
        offset = r.offset;
        uint64_t begin = (uint64_t)(r.data - blob->map->data);
        const uint64_t at[] = {begin, begin + r.bytes - 1, begin + r.bytes * 5 / 7};
        for (int k = 0; k < 3; k++) {
            int bit = (int)((offset / 64 + (uint64_t)k) % 8);
            if (k == 1 && r.padding_bits > 0)
                bit = 0;
            flip(file, at[k], bit);
            struct model_identity different = identity_of(package, 2);
            assert_memory_equal(different.programs, id->programs, sizeof id->programs);
            if (memcmp(different.weights, id->weights, sizeof id->weights) == 0)
                fail_msg("%s: a changed bit at %llu is not seen", file, (unsigned long long)at[k]);
            flip(file, at[k], bit);
            ++*n_flips;
        }
    }
    blob_close(blob);
}

static void test_every_weight(void **state)
{
    (void)state;
    char *path = package_make_with(&shapes[0], &(struct package_extra){.lut = 6});
    struct model_identity id = identity_of(path, 1);
    struct path_list parts;
    int n_flips = 0;
    ASSERT_OK(path_list_read(&parts, path, e));
    for (size_t i = 0; i < parts.n; i++) {
        char *file = xasprintf("%s/%s/weights/weight.bin", path, parts.names[i]);
        if (path_exists(file))
            flip_each(path, file, &id, &n_flips);
        free(file);
    }
    assert_true(n_flips > 60);
    struct model_identity again = identity_of(path, 1);
    assert_memory_equal(&id, &again, sizeof id);
    path_list_free(&parts);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_and_forms),
        cmocka_unit_test(test_programs),
        cmocka_unit_test(test_every_weight),
    };
    return cmocka_run_group_tests(tests, packages_setup, packages_teardown);
}
