/* coremldata.bin, the analytics file and the hash in it. */
#include "support.h"

#include "format/mlmodelc.h"

#define APPLE MILKIT_TEST_DATA "/packages/quantized-constexpr/apple.mlmodelc/"

static void hash_is(const void *data, size_t n, const char *expected)
{
    uint8_t digest[32];
    char text[65];
    sha256(digest, data, n);
    for (int i = 0; i < 32; i++)
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
    assert_string_equal(text, expected);
}

/* The examples of FIPS 180-4, and the lengths around the border of a block (checked with another program). */
static void test_sha256(void **state)
{
    (void)state;
    char a[200];
    memset(a, 'a', sizeof a);
    hash_is("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    hash_is("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    hash_is("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    hash_is(a, 55, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
    hash_is(a, 63, "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34");
    hash_is(a, 64, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
    hash_is(a, 119, "31eba51c313a5c08226adf18d4a359cfdfd8d2e816b13f4af952f7ea6584dcfb");
    hash_is(a, 200, "c2a908d98f5df987ade41b5fce213067efbcc21ef2240212a41e54b5e7c28ae5");
}

static void test_base64(void **state)
{
    (void)state;
    static const char *const expected[] = {"", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"};
    struct buf b;
    buf_init(&b, 1000);
    for (size_t n = 1; n <= 6; n++) {
        buf_clear(&b);
        base64_encode(&b, "foobar", n);
        assert_string_equal(b.p, expected[n]);
    }
    buf_clear(&b);
    base64_encode(&b, "\xff\xfe\xfb\xff", 4);
    assert_string_equal(b.p, "//77/w==");
    buf_fini(&b);
}

/* Apple's file: read, and written again byte for byte. */
static void test_apple(void **state)
{
    (void)state;
    struct coremldata c;
    struct map_file *map = NULL;
    struct buf b;
    ASSERT_OK(map_open(&map, APPLE "coremldata.bin", e));
    ASSERT_OK(coremldata_read(&c, map->data, map->bytes, "coremldata.bin", e));
    assert_int_equal(c.specification_version, 9);
    assert_int_equal(c.n_description, map->bytes - 99);
    assert_null(c.tail);
    buf_init(&b, 1000);
    coremldata_write(&b, 9, c.description, c.n_description, 0);
    assert_int_equal(b.n, map->bytes);
    assert_memory_equal(b.p, map->data, b.n);
    buf_fini(&b);
    map_close(map);
}

static void test_versions_and_functions(void **state)
{
    (void)state;
    static const int majors[][2] = {{6, 5}, {7, 5}, {8, 8}, {9, 9}, {10, 9}};
    struct coremldata c;
    struct buf b;
    buf_init(&b, 1000);
    for (size_t i = 0; i < 5; i++) {
        buf_clear(&b);
        coremldata_write(&b, majors[i][0], "xyz", 3, 2);
        assert_int_equal(b.n, 0x53 + 3 + 32);
        assert_int_equal(b.p[4], majors[i][1]);
        ASSERT_OK(coremldata_read(&c, (const uint8_t *)b.p, b.n, "x", e));
        assert_int_equal(c.specification_version, majors[i][0]);
        assert_memory_equal(c.description, "xyz", 3);
    }
    /* a classifier's record is handed out as it is */
    buf_clear(&b);
    coremldata_write(&b, 9, "xyz", 3, 1);
    b.p[0x56] = (char)0x93;
    ASSERT_OK(coremldata_read(&c, (const uint8_t *)b.p, b.n, "x", e));
    assert_int_equal(c.n_tail, 16);
    assert_ptr_equal(c.tail, b.p + 0x56);
    buf_fini(&b);
}

static void test_damage(void **state)
{
    (void)state;
    struct coremldata c;
    struct err e = {0};
    struct buf b;
    buf_init(&b, 1000);
    coremldata_write(&b, 9, "xyz", 3, 1);
    for (size_t n = 0; n < b.n; n++) {
        uint8_t *cut = malloc(n + 1);
        memcpy(cut, b.p, n);
        assert_false(coremldata_read(&c, cut, n, "x", &e));
        assert_int_equal(e.code, ERR_FORMAT);
        free(cut);
    }
    b.p[0x56] = 1; /* the function's record */
    assert_false(coremldata_read(&c, (const uint8_t *)b.p, b.n, "x", &e));
    assert_non_null(strstr(e.msg, "function record 0 is of kind 257"));
    b.p[0x56] = (char)0xf6;
    b.p[0x30 - 0x0c] = 'G'; /* "generic" */
    assert_false(coremldata_read(&c, (const uint8_t *)b.p, b.n, "x", &e));
    buf_fini(&b);
}

static void test_analytics(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 1000);
    coremldata_write_analytics(&b, "0123456789012345678901234567890123456789ABC=", "model");
    assert_int_equal(b.n, 243);
    static const char head[] = "\x19\0\0\0\0\0\0\0NeuralNetworkModelDetails\x02\0\0\0\0\0\0\0"
                               "\x13\0\0\0\0\0\0\0contains";
    assert_memory_equal(b.p, head, sizeof head - 1);
    buf_fini(&b);
}

/* Apple's compiled model carries the hash of the package that it was made from. */
static void test_apple_analytics(void **state)
{
    (void)state;
    SKIP_WITHOUT_SHARED();
    static const char pair[] = MILKIT_SHARED "/corpus/pairs/unified_palette_2bit/";
    char *source_path =
        xasprintf("%sunified_palette_2bit.mlpackage/Data/com.apple.CoreML/model.mlmodel", pair);
    char *analytics_path = xasprintf("%sapple.mlmodelc/analytics/coremldata.bin", pair);
    struct map_file *source = NULL, *analytics = NULL;
    struct buf hash, b;
    uint8_t digest[32];
    ASSERT_OK(map_open(&source, source_path, e));
    ASSERT_OK(map_open(&analytics, analytics_path, e));
    sha256(digest, source->data, source->bytes);
    buf_init(&hash, 100);
    buf_init(&b, 1000);
    base64_encode(&hash, digest, sizeof digest);
    coremldata_write_analytics(&b, hash.p, "model");
    assert_int_equal(b.n, analytics->bytes);
    assert_memory_equal(b.p, analytics->data, b.n);
    buf_fini(&hash);
    buf_fini(&b);
    map_close(source);
    map_close(analytics);
    free(source_path);
    free(analytics_path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sha256),          cmocka_unit_test(test_base64),
        cmocka_unit_test(test_apple),           cmocka_unit_test(test_versions_and_functions),
        cmocka_unit_test(test_damage),          cmocka_unit_test(test_analytics),
        cmocka_unit_test(test_apple_analytics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
