/* safetensors: what is read is what was stored, and every kind of damage is refused with a message that names
 * the file, what was expected and what was found. */
#include "files.h"
#include <math.h>
#include "base/half.h"
#include "format/json.h"
#include "format/safetensors.h"

#define MODELS MILKIT_TEST_DATA "/models/"

/* A file of the given header and n_data bytes of data (0, 1, 2, ...). */
static const char *put_file(const char *name, const char *header, size_t n_data)
{
    const char *path = files_path(name);
    size_t n = strlen(header);
    uint8_t *bytes = calloc(1, 8 + n + n_data);
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)((uint64_t)n >> (8 * i));
    memcpy(bytes + 8, header, n);
    for (size_t i = 0; i < n_data; i++)
        bytes[8 + n + i] = (uint8_t)i;
    files_put(path, bytes, 8 + n + n_data);
    free(bytes);
    return path;
}

static struct err open_fails(const char *path)
{
    struct err e = {0};
    struct safetensors *s = NULL;
    if (safetensors_open(&s, path, &e)) {
        safetensors_close(s);
        fail_msg("%s: opened, expected an error", path);
    }
    assert_null(s);
    return e;
}

static struct err header_fails(const char *header, size_t n_data)
{
    struct err e = open_fails(put_file("bad.safetensors", header, n_data));
    assert_non_null(strstr(e.msg, "bad.safetensors"));
    return e;
}

static void test_checkpoint_folders(void **state)
{
    (void)state;
    static const struct {
        const char *name, *opened, *tensor, *file;
        enum st_dtype dtype;
        int n_tensors;
        int64_t rows, columns;
    } cases[] = {
        {"qwen3-tiny", "model.safetensors", "model.embed_tokens.weight", "model.safetensors", ST_BF16, 58,
         2057, 192},
        {"qwen3-gqa8", "model.safetensors", "lm_head.weight", "model.safetensors", ST_F16, 36, 300, 64},
        {"qwen3-bias", "model.safetensors.index.json", "lm_head.weight", ".safetensors", ST_F32, 62, 413, 72},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct safetensors *s = NULL;
        char folder[400];
        snprintf(folder, sizeof folder, MODELS "%s", cases[i].name);
        ASSERT_OK(safetensors_open(&s, folder, e));
        assert_true(has_suffix(s->path, cases[i].opened));
        assert_int_equal(s->n_tensors, cases[i].n_tensors);
        const struct st_tensor *t = safetensors_find(s, cases[i].tensor);
        if (!t)
            t = safetensors_find(s, "model.embed_tokens.weight");
        assert_non_null(t);
        assert_int_equal(t->dtype, cases[i].dtype);
        assert_string_equal(t->dtype_name, st_dtype_name(cases[i].dtype));
        assert_true(has_suffix(t->file, cases[i].file));
        assert_int_equal(t->rank, 2);
        assert_int_equal(t->shape[0], cases[i].rows);
        assert_int_equal(t->bytes, (size_t)t->n_elems * st_dtype_bytes(t->dtype));
        uint64_t total = 0;
        for (int k = 0; k < s->n_tensors; k++) {
            assert_ptr_equal(safetensors_find(s, s->tensors[k].name), &s->tensors[k]);
            total += s->tensors[k].bytes;
        }
        assert_int_equal(total, s->total_bytes);
        assert_null(safetensors_find(s, "no.such.tensor"));
        safetensors_close(s);
    }
}

static void test_shards_share_one_name_space(void **state)
{
    (void)state;
    struct safetensors *s = NULL;
    ASSERT_OK(safetensors_open(&s, MODELS "qwen3-bias/model.safetensors.index.json", e));
    int n_files = 0;
    const char *last = "";
    for (int i = 0; i < s->n_tensors; i++) {
        n_files += strcmp(s->tensors[i].file, last) != 0;
        last = s->tensors[i].file;
    }
    assert_int_equal(n_files, 3);
    safetensors_close(s);
}

static void test_golden_values(void **state)
{
    (void)state;
    struct safetensors *s = NULL;
    ASSERT_OK(safetensors_open(&s, MODELS "qwen3-gqa8/golden.safetensors", e));
    const struct st_tensor *logits = safetensors_find(s, "five.logits"),
                           *margin = safetensors_find(s, "five.margin"),
                           *argmax = safetensors_find(s, "five.argmax");
    assert_non_null(logits);
    assert_non_null(margin);
    assert_non_null(argmax);
    assert_int_equal(logits->shape[0], 5);
    assert_int_equal(logits->shape[1], 300);
    float values[1500], best[5], margins[5];
    ASSERT_OK(st_read_f32(logits, values, e));
    ASSERT_OK(st_read_f32(argmax, best, e));
    ASSERT_OK(st_read_f32(margin, margins, e));
    for (int p = 0; p < 5; p++) {
        int top = 0;
        float second = -INFINITY;
        for (int i = 1; i < 300; i++)
            if (values[p * 300 + i] > values[p * 300 + top])
                top = i;
        for (int i = 0; i < 300; i++)
            if (i != top && values[p * 300 + i] > second)
                second = values[p * 300 + i];
        assert_int_equal(top, (int)best[p]);
        assert_true(fabsf(values[p * 300 + top] - second - margins[p]) < 1e-5f);
    }
    safetensors_close(s);
}

static void test_writer_round_trip(void **state)
{
    (void)state;
    static const uint8_t bytes[3] = {1, 2, 250};
    static const uint16_t halves[2] = {0x3c00, 0xc000};
    static const float floats[6] = {0.f, -1.f, 65504.f, 1e-8f, 3.5f, INFINITY};
    static const double doubles[1] = {-0.1};
    static const int64_t longs[2] = {-5, (int64_t)1 << 40};
    const char *path = files_path("written.safetensors");
    struct st_writer *w = st_writer_new();
    st_writer_add(w, "bytes", ST_U8, (const int64_t[]){3}, 1, bytes);
    st_writer_add(w, "a \"quoted\" \xc3\xa9", ST_F16, (const int64_t[]){1, 2}, 2, halves);
    st_writer_add(w, "floats", ST_F32, (const int64_t[]){2, 3}, 2, floats);
    st_writer_add(w, "scalar", ST_F64, NULL, 0, doubles);
    st_writer_add(w, "empty", ST_BF16, (const int64_t[]){0, 7}, 2, NULL);
    st_writer_add(w, "longs", ST_I64, (const int64_t[]){2}, 1, longs);
    st_writer_metadata(w, "format", "pt");
    st_writer_metadata(w, "note", "two\nlines");
    ASSERT_OK(st_writer_write(w, path, true, e));
    st_writer_free(w);

    struct safetensors *s = NULL;
    ASSERT_OK(safetensors_open(&s, path, e));
    assert_int_equal(s->n_tensors, 6);
    assert_string_equal(safetensors_metadata(s, "format"), "pt");
    assert_string_equal(safetensors_metadata(s, "note"), "two\nlines");
    assert_null(safetensors_metadata(s, "bytes"));
    for (int i = 0; i < s->n_tensors; i++)
        assert_int_equal((uintptr_t)s->tensors[i].data % st_dtype_bytes(s->tensors[i].dtype), 0);
    const struct st_tensor *t = safetensors_find(s, "floats");
    assert_memory_equal(t->data, floats, sizeof floats);
    t = safetensors_find(s, "a \"quoted\" \xc3\xa9");
    assert_non_null(t);
    assert_memory_equal(t->data, halves, sizeof halves);
    t = safetensors_find(s, "scalar");
    assert_int_equal(t->rank, 0);
    assert_int_equal(t->n_elems, 1);
    assert_memory_equal(t->data, doubles, 8);
    t = safetensors_find(s, "empty");
    assert_int_equal(t->n_elems, 0);
    assert_int_equal(t->bytes, 0);
    float read[3];
    ASSERT_OK(st_read_f32(safetensors_find(s, "bytes"), read, e));
    assert_true(read[0] == 1.f && read[1] == 2.f && read[2] == 250.f);
    ASSERT_OK(st_read_f32(safetensors_find(s, "longs"), read, e));
    assert_true(read[0] == -5.f && read[1] == 1099511627776.f);
    safetensors_close(s);
}

static void test_writer_refuses(void **state)
{
    (void)state;
    struct err e = {0};
    static const float one[1] = {1.f};
    struct st_writer *w = st_writer_new();
    st_writer_add(w, "x", ST_F32, (const int64_t[]){1}, 1, one);
    st_writer_add(w, "x", ST_F32, (const int64_t[]){1}, 1, one);
    assert_false(st_writer_write(w, files_path("twice.safetensors"), true, &e));
    expect_message(&e, ERR_BUG, "tensor x", NULL);
    assert_false(path_exists(files_path("twice.safetensors")));
    st_writer_free(w);
    w = st_writer_new();
    st_writer_add(w, "y", ST_F32, (const int64_t[]){-1}, 1, one);
    assert_false(st_writer_write(w, files_path("negative.safetensors"), true, &e));
    st_writer_free(w);
}

static void test_read_f16(void **state)
{
    (void)state;
    static const float floats[5] = {1.0f, 65519.0f, -65520.0f, INFINITY, 1.00048828125f};
    static const double doubles[2] = {1.00048828125000001, 1e300};
    const char *path = files_path("f16.safetensors");
    struct st_writer *w = st_writer_new();
    st_writer_add(w, "floats", ST_F32, (const int64_t[]){5}, 1, floats);
    st_writer_add(w, "doubles", ST_F64, (const int64_t[]){2}, 1, doubles);
    ASSERT_OK(st_writer_write(w, path, true, e));
    st_writer_free(w);
    struct safetensors *s = NULL;
    struct err e = {0};
    uint16_t out[5];
    ASSERT_OK(safetensors_open(&s, path, e));
    const struct st_tensor *t = safetensors_find(s, "floats");
    ASSERT_OK(st_read_f16(t, 0, 2, out, e));
    assert_int_equal(out[0], 0x3c00);
    assert_int_equal(out[1], 0x7bff); /* rounds to 65504 */
    assert_false(st_read_f16(t, 0, 5, out, &e));
    expect_message(&e, ERR_FORMAT, "f16.safetensors", "floats", "element 2", "-65520", "65504", NULL);
    double wide[2];
    ASSERT_OK(st_read_f64(t, 1, 2, wide, e));
    assert_true(wide[0] == 65519.0 && wide[1] == -65520.0);
    ASSERT_OK(st_read_f64(safetensors_find(s, "doubles"), 1, 1, wide, e));
    assert_true(wide[0] == 1e300);
    assert_false(st_read_f64(t, 4, 2, wide, &e));
    expect_message(&e, ERR_BUG, "floats", "4 to 6", NULL);
    assert_false(st_read_f16(t, 3, 2, out, &e));
    expect_message(&e, ERR_FORMAT, "floats", "element 3", "inf", "65504", NULL);
    ASSERT_OK(st_read_f16(t, 4, 1, out, e));
    assert_int_equal(out[0], 0x3c00); /* a tie: to even */
    assert_false(st_read_f16(t, 3, 3, out, &e));
    expect_message(&e, ERR_BUG, "floats", NULL);
    t = safetensors_find(s, "doubles");
    ASSERT_OK(st_read_f16(t, 0, 1, out, e));
    assert_int_equal(out[0], f64_to_f16(doubles[0]));
    assert_false(st_read_f16(t, 0, 2, out, &e));
    expect_message(&e, ERR_FORMAT, "doubles", "element 1", "1e+300", NULL);
    safetensors_close(s);
}

/* What is no finite number is found wherever it stands, in every type, and only where it was asked for. */
static void test_read_f16_not_finite(void **state)
{
    (void)state;
    enum { N = 3000, F16S = 0, BF16S, F32S, F64S, TYPES };
    static const enum st_dtype types[TYPES] = {ST_F16, ST_BF16, ST_F32, ST_F64};
    static const int64_t places[] = {0, 1, 1023, 1024, 1031, 2999};
    static const double values[] = {(double)NAN, (double)-NAN, (double)INFINITY, (double)-INFINITY};
    uint8_t *data = xcalloc(N, 8);
    uint16_t *out = xmalloc(N * sizeof *out);
    const char *path = files_path("not_finite.safetensors");
    for (size_t k = 0; k < 6 * 4 * TYPES; k++) {
        int type = (int)(k % TYPES);
        int64_t place = places[k / TYPES % 6];
        double value = values[k / TYPES / 6];
        float single = (float)value;
        uint32_t bits;
        memcpy(&bits, &single, 4);
        uint16_t half = f64_to_f16(value), brain = (uint16_t)(bits >> 16);
        const void *from[TYPES] = {&half, &brain, &single, &value};
        size_t bytes = st_dtype_bytes(types[type]);
        memset(data, 0, N * 8);
        memcpy(data + (size_t)place * bytes, from[type], bytes);
        struct st_writer *w = st_writer_new();
        struct safetensors *s = NULL;
        struct err e = {0};
        char element[32];
        st_writer_add(w, "w", types[type], (const int64_t[]){N}, 1, data);
        ASSERT_OK(st_writer_write(w, path, true, e));
        st_writer_free(w);
        ASSERT_OK(safetensors_open(&s, path, e));
        const struct st_tensor *t = safetensors_find(s, "w");
        snprintf(element, sizeof element, "element %lld:", (long long)place);
        assert_false(st_read_f16(t, 0, N, out, &e));
        expect_message(&e, ERR_FORMAT, "tensor w", element,
                       k / TYPES / 6 < 2    ? "found nan"
                       : k / TYPES / 6 == 2 ? "found inf"
                                            : "found -inf",
                       NULL);
        ASSERT_OK(st_read_f16(t, 0, place, out, e));
        ASSERT_OK(st_read_f16(t, place + 1, N - place - 1, out, e));
        safetensors_close(s);
    }
    free(data);
    free(out);
}

/* Blocks, misaligned data and each type give what element by element conversion gives. */
static void test_read_bf16_misaligned(void **state)
{
    (void)state;
    enum { N = 3000 };
    char header[200];
    snprintf(header, sizeof header,
             "{\"x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
             "\"w\":{\"dtype\":\"BF16\",\"shape\":[%d],\"data_offsets\":[1,%d]}}",
             N, 1 + 2 * N);
    const char *path = put_file("odd.safetensors", header, 1 + 2 * N);
    struct safetensors *s = NULL;
    ASSERT_OK(safetensors_open(&s, path, e));
    const struct st_tensor *t = safetensors_find(s, "w");
    float *out = malloc(N * sizeof *out);
    ASSERT_OK(st_read_f32(t, out, e));
    for (int i = 0; i < N; i++) {
        float want = bf16_to_f32((bf16)(t->data[2 * i] | t->data[2 * i + 1] << 8));
        assert_true(memcmp(&out[i], &want, 4) == 0 || (isnan(want) && isnan(out[i])));
    }
    free(out);
    safetensors_close(s);
}

static void test_unknown_dtype_is_kept(void **state)
{
    (void)state;
    const char *path =
        put_file("f4.safetensors", "{\"w\":{\"dtype\":\"F4\",\"shape\":[8],\"data_offsets\":[0,4]}}  ", 4);
    struct safetensors *s = NULL;
    struct err e = {0};
    float out[8];
    ASSERT_OK(safetensors_open(&s, path, e));
    assert_int_equal(s->tensors[0].dtype, ST_UNKNOWN);
    assert_string_equal(s->tensors[0].dtype_name, "F4");
    assert_false(st_read_f32(&s->tensors[0], out, &e));
    expect_message(&e, ERR_UNSUPPORTED, "f4.safetensors", "tensor w", "F4", NULL);
    safetensors_close(s);
}

static void test_damaged_headers(void **state)
{
    (void)state;
    struct err e;
    e = header_fails("{\"w\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", 12);
    expect_message(&e, ERR_FORMAT, "tensor w", "16", "12 bytes", NULL);
    e = header_fails("{\"w\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,16]}}", 16);
    expect_message(&e, ERR_FORMAT, "tensor w", "expected 12 bytes", "F32 [3]", "found 16", NULL);
    e = header_fails("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
                     "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[3,7]}}",
                     7);
    expect_message(&e, ERR_FORMAT, "a and b overlap", "byte 4", "byte 3", NULL);
    e = header_fails("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
                     "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[100,104]}}",
                     104);
    expect_message(&e, ERR_FORMAT, "tensor b", "byte 4", "byte 100", NULL);
    e = header_fails("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 104);
    expect_message(&e, ERR_FORMAT, "byte 4", "100 more bytes", NULL);
    e = header_fails("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,0]}}", 4);
    expect_message(&e, ERR_FORMAT, "tensor a", "[4, 0]", NULL);
    e = header_fails("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4.5]}}", 4);
    expect_message(&e, ERR_FORMAT, "tensor a", "data_offsets", NULL);
    e = header_fails("{\"a\":{\"dtype\":\"U8\",\"shape\":[-4],\"data_offsets\":[0,4]}}", 4);
    expect_message(&e, ERR_FORMAT, "tensor a", "shape[0]", NULL);
    e = header_fails("{\"a\":{\"dtype\":\"F64\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]}}",
                     4);
    expect_message(&e, ERR_FORMAT, "tensor a", "[4294967296, 4294967296]", NULL);
    e = header_fails("{\"a\":{\"dtype\":\"F64\",\"shape\":[2305843009213693952],\"data_offsets\":[0,0]}}", 0);
    expect_message(&e, ERR_FORMAT, "tensor a", "shape[0]", NULL);
    e = header_fails("{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}", 1);
    expect_message(&e, ERR_UNSUPPORTED, "tensor a", "at most 8", "found 9", NULL);
    e = header_fails("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                     "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
                     2);
    expect_message(&e, ERR_FORMAT, "tensor a", "twice", NULL);
    e = header_fails("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"shape\":[2],\"data_offsets\":[0,1]}}", 1);
    expect_message(&e, ERR_FORMAT, "tensor a", "second", "shape", NULL);
    e = header_fails("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"offsets\":[0,1]}}", 1);
    expect_message(&e, ERR_FORMAT, "tensor a", "\"offsets\"", NULL);
    e = header_fails("{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1);
    expect_message(&e, ERR_FORMAT, "tensor a", "dtype", "found nothing", NULL);
    e = header_fails("{\"a\":7}", 0);
    expect_message(&e, ERR_FORMAT, "tensor a", "object", "number", NULL);
    e = header_fails("[1]", 0);
    expect_message(&e, ERR_FORMAT, "header", "object", "array", NULL);
    e = header_fails("{\"a\":{\"dtype\":\"U8\"", 0);
    expect_message(&e, ERR_FORMAT, "header", "not valid JSON", NULL);
    e = header_fails("{\"__metadata__\":{\"a\":1}}", 0);
    expect_message(&e, ERR_FORMAT, "__metadata__", "string", "number", NULL);
}

static void test_damaged_files(void **state)
{
    (void)state;
    struct err e;
    const char *path = files_path("cut.safetensors");
    files_put(path, "\x10\0\0", 3);
    e = open_fails(path);
    expect_message(&e, ERR_FORMAT, "cut.safetensors", "at least 8", "3 bytes", NULL);
    files_put(path, "", 0);
    e = open_fails(path);
    expect_message(&e, ERR_FORMAT, "cut.safetensors", "0 bytes", NULL);
    files_put(path, "\x40\0\0\0\0\0\0\0{}", 10);
    e = open_fails(path);
    expect_message(&e, ERR_FORMAT, "cut.safetensors", "64 bytes of header", "10 bytes", NULL);
    files_put(path, "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10);
    e = open_fails(path);
    expect_message(&e, ERR_FORMAT, "cut.safetensors", "header length", "18446744073709551615", NULL);
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n";
    files_put(path, pointer, sizeof pointer - 1);
    e = open_fails(path);
    expect_message(&e, ERR_FORMAT, "cut.safetensors", "LFS pointer", NULL);
    e = open_fails(files_path("absent.safetensors"));
    expect_message(&e, ERR_IO, "absent.safetensors", NULL);

    /* Cut anywhere, a real file is refused. */
    char *text = NULL;
    size_t n = 0;
    ASSERT_OK(file_read(&text, &n, MODELS "qwen3-gqa8/model.safetensors", 1 << 24, e));
    for (size_t keep = 0; keep < n; keep += 1 + n / 37) {
        files_put(path, text, keep);
        e = open_fails(path);
        expect_message(&e, ERR_FORMAT, "cut.safetensors", NULL);
    }
    free(text);
}

static void test_damaged_indexes(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"{\"weight_map\":{\"w\":\"absent.safetensors\",\"v\":\"cut.safetensors\"}}", "none of the 2 files"},
        {"{\"weight_map\":{\"w\":\"absent.safetensors\"}}", "absent.safetensors is not there"},
        {"{\"weight_map\":{\"w\":\"../part.safetensors\"}}", "beside the index"},
        {"{\"weight_map\":{\"w\":\"/etc/part.safetensors\"}}", "beside the index"},
        {"{\"weight_map\":{\"w\":7}}", "found number"},
        {"{\"weight_map\":{}}", "an empty one"},
        {"{\"weight_map\":[]}", "found array"},
        {"{}", "found nothing"},
        {"{\"weight_map\":", "not valid JSON"},
    };
    put_file("part.safetensors", "{\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1);
    put_file("other.safetensors", "{\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1);
    put_file("third.safetensors", "{\"v\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1);
    const char *path = files_path("x.safetensors.index.json");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        files_put(path, cases[i].text, strlen(cases[i].text));
        struct err e = open_fails(path);
        expect_message(&e, ERR_FORMAT, cases[i].says, NULL);
    }
    struct safetensors *s = NULL;
    static const char good[] = "{\"weight_map\":{\"w\":\"part.safetensors\",\"v\":\"third.safetensors\"}}";
    files_put(path, good, sizeof good - 1);
    ASSERT_OK(safetensors_open(&s, path, e));
    assert_int_equal(s->n_tensors, 2);
    assert_int_equal(s->n_absent, 0);
    safetensors_close(s);
}

/* What an index lists and nobody may need does not keep the rest from being read; it is missed by name. */
static void test_incomplete_indexes(void **state)
{
    (void)state;
    static const struct {
        const char *entries, *absent, *file, *why;
        bool has_file;
    } cases[] = {
        {"\"w\":\"part.safetensors\",\"v\":\"absent.safetensors\"", "v", "absent.safetensors", "is not there",
         false},
        {"\"w\":\"part.safetensors\",\"v\":\"part.safetensors\"", "v", "part.safetensors", "no such tensor",
         true},
        {"\"w\":\"part.safetensors\",\"v\":\"cut.safetensors\"", "v", "cut.safetensors", "cut short", false},
        {"\"w\":\"part.safetensors\",\"v\":\"pointer.safetensors\"", "v", "pointer.safetensors", "git LFS",
         false},
        {"\"w\":\"part.safetensors\",\"x\":\"other.safetensors\"", "w", "part.safetensors", "found it twice",
         true},
        {"\"w\":\"third.safetensors\"", "w", "third.safetensors", "no such tensor", true},
        {"\"v\":\"part.safetensors\",\"t\":\"third.safetensors\"", "v", "part.safetensors", "found it in",
         true},
    };
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n";
    put_file("part.safetensors", "{\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1);
    put_file("other.safetensors",
             "{\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
             "\"x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
             2);
    put_file("third.safetensors",
             "{\"v\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
             "\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
             2);
    put_file("cut.safetensors", "{\"v\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 0);
    files_put(files_path("pointer.safetensors"), pointer, sizeof pointer - 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct safetensors *s = NULL;
        const char *path = files_path("x.safetensors.index.json");
        char *text = xasprintf("{\"weight_map\":{%s}}", cases[i].entries);
        files_put(path, text, strlen(text));
        ASSERT_OK(safetensors_open(&s, path, e));
        assert_int_equal(s->n_absent, 1);
        assert_string_equal(s->absent[0].name, cases[i].absent);
        assert_string_equal(s->absent[0].file, cases[i].file);
        assert_int_equal(s->absent[0].has_file, cases[i].has_file);
        assert_null(safetensors_find(s, cases[i].absent));
        const char *why = safetensors_why_absent(s, cases[i].absent);
        assert_non_null(why);
        if (!strstr(why, cases[i].why))
            fail_msg("\"%s\" is not in: %s", cases[i].why, why);
        assert_null(safetensors_why_absent(s, "no.such.tensor"));
        safetensors_close(s);
        free(text);
    }
}

static void test_folders(void **state)
{
    (void)state;
    struct safetensors *s = NULL;
    struct err e = {0};
    static const char header[] = "{\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}";
    ASSERT_OK(folder_make(files_path("folder"), e));
    e = open_fails(files_path("folder"));
    expect_message(&e, ERR_FORMAT, "folder", "no safetensors file", NULL);
    files_put(files_path("folder/meta.yaml"), "x", 1);
    e = open_fails(files_path("folder"));
    expect_message(&e, ERR_FORMAT, "folder", "found a package", NULL);
    files_put(files_path("folder/pytorch_model.bin"), "x", 1);
    e = open_fails(files_path("folder"));
    expect_message(&e, ERR_UNSUPPORTED, "folder", "PyTorch", NULL);
    put_file("folder/weights.safetensors", header, 1);
    ASSERT_OK(safetensors_open(&s, files_path("folder"), e));
    assert_true(has_suffix(s->path, "folder/weights.safetensors"));
    safetensors_close(s);
    put_file("folder/more.safetensors", header, 1);
    e = open_fails(files_path("folder"));
    expect_message(&e, ERR_FORMAT, "found 2 safetensors files", NULL);
    put_file("folder/model.safetensors", header, 1);
    ASSERT_OK(safetensors_open(&s, files_path("folder"), e));
    assert_true(has_suffix(s->path, "folder/model.safetensors"));
    safetensors_close(s);
}

static void test_shape_text(void **state)
{
    (void)state;
    char text[128];
    st_shape_text(text, (const int64_t[]){2, 3}, 2);
    assert_string_equal(text, "[2, 3]");
    st_shape_text(text, NULL, 0);
    assert_string_equal(text, "[]");
    int64_t large[8];
    for (int i = 0; i < 8; i++)
        large[i] = INT64_MAX;
    st_shape_text(text, large, 8);
    assert_true(has_suffix(text, "...]"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checkpoint_folders),
        cmocka_unit_test(test_shards_share_one_name_space),
        cmocka_unit_test(test_golden_values),
        cmocka_unit_test(test_writer_round_trip),
        cmocka_unit_test(test_writer_refuses),
        cmocka_unit_test(test_read_f16),
        cmocka_unit_test(test_read_f16_not_finite),
        cmocka_unit_test(test_read_bf16_misaligned),
        cmocka_unit_test(test_unknown_dtype_is_kept),
        cmocka_unit_test(test_damaged_headers),
        cmocka_unit_test(test_damaged_files),
        cmocka_unit_test(test_damaged_indexes),
        cmocka_unit_test(test_incomplete_indexes),
        cmocka_unit_test(test_folders),
        cmocka_unit_test(test_shape_text),
    };
    return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
