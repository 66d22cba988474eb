/* weight.bin: what is written is read back, equal data is stored once, and damaged records are refused. */
#include "files.h"
#include "format/blob.h"

#define DATA MILKIT_TEST_DATA "/blob/"

static void put_u32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}

static void put_u64(uint8_t *p, uint64_t v)
{
    put_u32(p, (uint32_t)v);
    put_u32(p + 4, (uint32_t)(v >> 32));
}

static uint32_t count_records(const char *path)
{
    struct blob_file *b = NULL;
    struct blob_record r;
    bool found = true;
    uint32_t n = 0;
    ASSERT_OK(blob_open(&b, path, e));
    for (uint64_t offset = 0; found; offset = r.offset) {
        ASSERT_OK(blob_next(b, offset, &r, &found, e));
        n += found;
    }
    assert_int_equal(n, b->count);
    blob_close(b);
    return n;
}

/* Files that other tools wrote come out the same, byte for byte. */
static void test_rewrite(void **state)
{
    (void)state;
    struct path_list list;
    int n_files = 0;
    ASSERT_OK(path_list_read(&list, MILKIT_TEST_DATA "/blob", e));
    for (size_t i = 0; i < list.n; i++) {
        if (!has_suffix(list.names[i], ".bin"))
            continue;
        n_files++;
        char *path = path_join(MILKIT_TEST_DATA "/blob", list.names[i]);
        const char *copy = files_path("copy.bin");
        struct blob_file *b = NULL;
        struct blob_writer *w = NULL;
        struct blob_record r;
        bool found = true;
        ASSERT_OK(blob_open(&b, path, e));
        ASSERT_OK(blob_writer_open(&w, copy, e));
        for (uint64_t offset = 0; found; offset = r.offset) {
            ASSERT_OK(blob_next(b, offset, &r, &found, e));
            if (!found)
                break;
            uint64_t n_elems = (r.bytes * 8 - r.padding_bits) / (uint64_t)blob_type_bits(r.type), at;
            ASSERT_OK(blob_writer_add(w, r.type, r.data, r.bytes, n_elems, &at, e));
            assert_int_equal(at, r.offset);
        }
        ASSERT_OK(blob_writer_commit(w, e));
        char *text = NULL;
        size_t n = 0;
        ASSERT_OK(file_read(&text, &n, copy, 1 << 20, e));
        assert_true(n <= b->map->bytes && b->map->bytes - n < 64);
        assert_memory_equal(text, b->map->data, n);
        for (size_t k = n; k < b->map->bytes; k++)
            assert_int_equal(b->map->data[k], 0); /* some writers pad behind the last record */
        free(text);
        blob_close(b);
        free(path);
    }
    path_list_free(&list);
    assert_int_equal(n_files, 7);
}

static void test_known_record(void **state)
{
    (void)state;
    struct blob_file *b = NULL;
    struct blob_record r;
    ASSERT_OK(blob_open(&b, DATA "bss_int4_odd_fp16.bin", e));
    ASSERT_OK(blob_get(b, 64, &r, e));
    assert_int_equal(r.type, BLOB_INT4);
    assert_int_equal(r.bytes, 11);
    assert_int_equal(r.padding_bits, 4);
    assert_ptr_equal(r.data, b->map->data + 128);
    blob_close(b);
}

static void test_dedup(void **state)
{
    (void)state;
    struct blob_writer *w = NULL;
    const char *path = files_path("dedup.bin");
    size_t large_n = 600001; /* more than one block of the comparison */
    uint8_t *large = malloc(large_n);
    for (size_t i = 0; i < large_n; i++)
        large[i] = (uint8_t)(i * 7 + i / 256);
    uint64_t a, b, c, d, other, nibbles;
    ASSERT_OK(blob_writer_open(&w, path, e));
    ASSERT_OK(blob_writer_add(w, BLOB_UINT8, large, large_n, large_n, &a, e));
    ASSERT_OK(blob_writer_add(w, BLOB_INT8, large, large_n, large_n, &b, e));
    ASSERT_OK(blob_writer_add(w, BLOB_UINT8, large, large_n, large_n, &c, e));
    large[large_n - 1] ^= 1;
    ASSERT_OK(blob_writer_add(w, BLOB_UINT8, large, large_n, large_n, &other, e));
    ASSERT_OK(blob_writer_add(w, BLOB_UINT4, large, 2, 4, &d, e));
    ASSERT_OK(blob_writer_add(w, BLOB_UINT4, large, 2, 3, &nibbles, e));
    assert_int_equal(a, 64);
    assert_int_equal(c, a);
    assert_true(b != a && other != a && other != b);
    assert_true(nibbles != d); /* another number of elements */
    assert_int_equal(blob_writer_count(w), 5);
    assert_int_equal(blob_writer_dedup_bytes(w), large_n);
    assert_int_equal(blob_writer_bytes(w), nibbles + 64 + 2);
    assert_false(path_exists(path));
    ASSERT_OK(blob_writer_commit(w, e));
    assert_int_equal(file_bytes(path), nibbles + 64 + 2);
    assert_int_equal(count_records(path), 5);

    struct blob_file *f = NULL;
    struct blob_record r;
    ASSERT_OK(blob_open(&f, path, e));
    ASSERT_OK(blob_get(f, other, &r, e));
    assert_int_equal(r.bytes, large_n);
    assert_memory_equal(r.data, large, large_n);
    assert_int_equal((uintptr_t)r.data % 64, 0);
    blob_close(f);
    free(large);
}

static void test_writer_leaves_nothing(void **state)
{
    (void)state;
    struct blob_writer *w = NULL;
    struct path_list list;
    struct err e = {0};
    uint64_t at;
    ASSERT_OK(folder_make(files_path("clean"), e));
    ASSERT_OK(blob_writer_open(&w, files_path("clean/weight.bin"), e));
    assert_false(blob_writer_add(w, BLOB_FLOAT16, "abc", 3, 1, &at, &e));
    expect_message(&e, ERR_BUG, "weight.bin", "3 bytes", NULL);
    blob_writer_abort(w);
    ASSERT_OK(path_list_read(&list, files_path("clean"), e));
    assert_int_equal(list.n, 0);
    path_list_free(&list);
    assert_false(blob_writer_open(&w, files_path("no/such/folder.bin"), &e));
    assert_null(w);
    expect_message(&e, ERR_IO, "folder.bin", NULL);
    blob_writer_abort(NULL);
}

static void test_empty_file_and_record(void **state)
{
    (void)state;
    struct blob_writer *w = NULL;
    uint64_t at, next;
    ASSERT_OK(blob_writer_open(&w, files_path("empty.bin"), e));
    ASSERT_OK(blob_writer_commit(w, e));
    assert_int_equal(count_records(files_path("empty.bin")), 0);
    ASSERT_OK(blob_writer_open(&w, files_path("empty.bin"), e));
    ASSERT_OK(blob_writer_add(w, BLOB_FLOAT32, NULL, 0, 0, &at, e));
    ASSERT_OK(blob_writer_add(w, BLOB_UINT3, "\x01\x00\x00", 3, 7, &next, e));
    ASSERT_OK(blob_writer_commit(w, e));
    assert_int_equal(next, at + 64);
    assert_int_equal(count_records(files_path("empty.bin")), 2);
}

/* A file of one float32 record with 4 elements, to be damaged. */
static void make_record(uint8_t file[144])
{
    memset(file, 0, 144);
    put_u32(file, 1);
    put_u32(file + 4, 2);
    put_u32(file + 64, 0xDEADBEEF);
    put_u32(file + 68, BLOB_FLOAT32);
    put_u64(file + 72, 16);
    put_u64(file + 80, 128);
}

static void get_fails(const uint8_t *file, size_t n, uint64_t offset, const char *expected, const char *found)
{
    struct blob_file *b = NULL;
    struct blob_record r;
    struct err e = {0};
    files_put(files_path("bad.bin"), file, n);
    ASSERT_OK(blob_open(&b, files_path("bad.bin"), e));
    assert_false(blob_get(b, offset, &r, &e));
    expect_message(&e, ERR_FORMAT, "bad.bin", "expected", expected, found, NULL);
    blob_close(b);
}

static void test_damaged(void **state)
{
    (void)state;
    uint8_t file[144];
    struct blob_file *b = NULL;
    struct blob_record r;
    struct err e = {0};
    make_record(file);
    files_put(files_path("good.bin"), file, sizeof file);
    assert_int_equal(count_records(files_path("good.bin")), 1);

    get_fails(file, sizeof file, 0, "multiple of 64", "found 0");
    get_fails(file, sizeof file, 72, "multiple of 64", "found 72");
    get_fails(file, sizeof file, 128, "64 bytes of metadata", "144");
    get_fails(file, sizeof file, UINT64_MAX - 63, "64 bytes of metadata", "144");
    get_fails(file, 140, 64, "16 bytes", "found 12");
    get_fails(file, 100, 64, "64 bytes of metadata", "100");
    put_u32(file + 64, 0xDEADBEEE);
    get_fails(file, sizeof file, 64, "0xDEADBEEF", "0xDEADBEEE");
    make_record(file);
    put_u32(file + 68, 18);
    get_fails(file, sizeof file, 64, "type from 1 to 17", "found 18");
    put_u32(file + 68, 0);
    get_fails(file, sizeof file, 64, "type from 1 to 17", "found 0");
    make_record(file);
    put_u64(file + 72, UINT64_MAX);
    get_fails(file, sizeof file, 64, "18446744073709551615 bytes", "found 16");
    make_record(file);
    put_u64(file + 72, 15);
    get_fails(file, sizeof file, 64, "whole float32", "15 bytes");
    make_record(file);
    put_u64(file + 80, 64);
    get_fails(file, sizeof file, 64, "data offset", "found 64");
    put_u64(file + 80, UINT64_MAX - 63);
    get_fails(file, sizeof file, 64, "data offset", "found 18446744073709551552");
    make_record(file);
    put_u32(file + 68, BLOB_UINT4);
    put_u64(file + 88, 8);
    get_fails(file, sizeof file, 64, "whole uint4", "8 unused bits");
    put_u32(file + 68, BLOB_UINT3);
    put_u64(file + 88, 1);
    get_fails(file, sizeof file, 64, "whole uint3", "1 unused bits");

    /* Garbage in a field that old writers do not know. */
    make_record(file);
    put_u64(file + 88, 0x1234567890);
    files_put(files_path("old.bin"), file, sizeof file);
    ASSERT_OK(blob_open(&b, files_path("old.bin"), e));
    ASSERT_OK(blob_get(b, 64, &r, e));
    assert_int_equal(r.padding_bits, 0);
    blob_close(b);

    put_u32(file + 4, 1);
    files_put(files_path("bad.bin"), file, sizeof file);
    assert_false(blob_open(&b, files_path("bad.bin"), &e));
    expect_message(&e, ERR_FORMAT, "bad.bin", "expected weight file version 2", "found 1", NULL);
    files_put(files_path("bad.bin"), file, 63);
    assert_false(blob_open(&b, files_path("bad.bin"), &e));
    expect_message(&e, ERR_FORMAT, "bad.bin", "64 bytes", "found 63", NULL);
}

static void test_type_table(void **state)
{
    (void)state;
    assert_string_equal(blob_type_name(BLOB_FLOAT16), "float16");
    assert_string_equal(blob_type_name(BLOB_FLOAT8E5M2), "float8e5m2");
    assert_null(blob_type_name((enum blob_type)0));
    assert_null(blob_type_name((enum blob_type)18));
    assert_int_equal(blob_type_bits(BLOB_UINT3), 3);
    assert_int_equal(blob_type_bits(BLOB_UINT6), 6);
    assert_int_equal(blob_type_bits((enum blob_type)99), 0);
}

static void test_shared_files(void **state)
{
    (void)state;
    SKIP_WITHOUT_SHARED();
    char *path = path_join(MILKIT_SHARED,
                           "corpus/packages/basic-pitch.mlpackage/Data/com.apple.CoreML/weights/weight.bin");
    assert_int_equal(count_records(path), 21);
    free(path);
    struct blob_file *b = NULL;
    struct blob_record r;
    struct err e = {0};
    path = path_join(
        MILKIT_SHARED,
        "peer-packages/refuse/blob_bad_sentinel.mlpackage/Data/com.apple.CoreML/weights/weight.bin");
    ASSERT_OK(blob_open(&b, path, e));
    assert_false(blob_get(b, 64, &r, &e));
    expect_message(&e, ERR_FORMAT, "weight.bin", "sentinel", NULL);
    blob_close(b);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rewrite),
        cmocka_unit_test(test_known_record),
        cmocka_unit_test(test_dedup),
        cmocka_unit_test(test_writer_leaves_nothing),
        cmocka_unit_test(test_empty_file_and_record),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_type_table),
        cmocka_unit_test(test_shared_files),
    };
    return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
