/* F8_E4M3 with scales: every value, every shape of scales, and what can't be read. */
#include "support.h"
#include <math.h>
#include "base/half.h"
#include "format/safetensors.h"

#define PATH "test_f8.safetensors"

/* From the bits, by the words of the format. */
static double expected_value(unsigned bits)
{
    int exponent = bits >> 3 & 15, mantissa = bits & 7;
    if ((bits & 0x7f) == 0x7f)
        return (double)NAN;
    double v = exponent == 0 ? mantissa / 8.0 * pow(2, -6) : (1 + mantissa / 8.0) * pow(2, exponent - 7);
    return bits & 0x80 ? -v : v;
}

static struct safetensors *write_and_open(int64_t rows, int64_t columns, const uint8_t *data,
                                          enum st_dtype scale_type, int64_t scale_rows, int64_t scale_columns,
                                          const void *scales)
{
    struct safetensors *s = NULL;
    struct st_writer *w = st_writer_new();
    int64_t shape[2] = {rows, columns}, scale_shape[2] = {scale_rows, scale_columns};
    st_writer_add(w, "w", ST_F8_E4M3, shape, 2, data);
    if (scales)
        st_writer_add(w, "w_scale_inv", scale_type, scale_shape, 2, scales);
    ASSERT_OK(st_writer_write(w, PATH, true, e));
    st_writer_free(w);
    ASSERT_OK(safetensors_open(&s, PATH, e));
    unlink(PATH);
    return s;
}

static void test_values(void **state)
{
    (void)state;
    uint8_t data[256];
    const float one = 1.0f, scale = -0.37f;
    double f64[256];
    float f32[256];
    uint16_t rounded[16];
    for (int i = 0; i < 256; i++)
        data[i] = (uint8_t)i;
    assert_true(expected_value(0x7e) == 448.0 && expected_value(1) == 0x1p-9 && expected_value(0x38) == 1.0);
    struct safetensors *s = write_and_open(4, 64, data, ST_F32, 1, 1, &one);
    const struct st_tensor *t = safetensors_find(s, "w");
    ASSERT_OK(st_read_f64(t, 0, 256, f64, e));
    ASSERT_OK(st_read_f32(t, f32, e));
    for (int i = 0; i < 256; i++) {
        double v = expected_value((unsigned)i);
        assert_true(isnan(v) ? isnan(f64[i]) && isnan(f32[i]) : f64[i] == v && f32[i] == (float)v);
        assert_true(isnan(v) || signbit(v) == signbit(f64[i]));
    }
    safetensors_close(s);
    s = write_and_open(4, 64, data, ST_F32, 1, 1, &scale);
    t = safetensors_find(s, "w");
    for (int i = 0; i < 256; i++) {
        double v = expected_value((unsigned)i) * (double)scale;
        struct err e = {0};
        bool ok = st_read_f16(t, i, 1, rounded, &e);
        assert_int_equal(ok, !isnan(v));
        if (ok)
            assert_int_equal(rounded[0], f64_to_f16(v));
        else
            assert_non_null(strstr(e.msg, "found nan"));
    }
    safetensors_close(s);
}

/* Borders of blocks along both axes, ranges that begin anywhere, every type of scale. */
static void test_blocks(void **state)
{
    (void)state;
    enum { ROWS = 130, COLUMNS = 300 };
    static uint8_t data[ROWS * COLUMNS];
    static double all[ROWS * COLUMNS], part[ROWS * COLUMNS];
    static const float scales[6] = {1.0f, 0.5f, 0.25f, 2.0f, 1.5f, 3.0f};
    uint16_t halves[6], brains[6];
    for (int i = 0; i < ROWS * COLUMNS; i++)
        data[i] = (uint8_t)(i * 31 % 120);
    for (int i = 0; i < 6; i++) {
        uint32_t u;
        memcpy(&u, &scales[i], 4);
        halves[i] = f32_to_f16(scales[i]);
        brains[i] = (uint16_t)(u >> 16);
    }
    static const enum st_dtype types[] = {ST_F32, ST_F16, ST_BF16};
    const void *forms[] = {scales, halves, brains};
    for (int form = 0; form < 3; form++) {
        struct safetensors *s = write_and_open(ROWS, COLUMNS, data, types[form], 2, 3, forms[form]);
        const struct st_tensor *t = safetensors_find(s, "w");
        assert_ptr_equal(t->scale, safetensors_find(s, "w_scale_inv"));
        ASSERT_OK(st_read_f64(t, 0, ROWS * COLUMNS, all, e));
        for (int row = 0; row < ROWS; row++) {
            for (int column = 0; column < COLUMNS; column++) {
                int i = row * COLUMNS + column;
                double scale = (double)scales[row / 128 * 3 + column / 128];
                assert_true(all[i] == expected_value(data[i]) * scale);
            }
        }
        for (int begin = 0; begin < ROWS * COLUMNS; begin += 977) {
            int n = (begin * 7 + 1) % (ROWS * COLUMNS - begin) + 1;
            n = n > ROWS * COLUMNS - begin ? ROWS * COLUMNS - begin : n;
            ASSERT_OK(st_read_f64(t, begin, n, part, e));
            assert_memory_equal(part, all + begin, (size_t)n * sizeof part[0]);
        }
        safetensors_close(s);
    }
}

/* Packed matrices and scales of every shape that checkpoints have: blocks, rows, matrices, one for all. */
static void test_packed(void **state)
{
    (void)state;
    enum { MATRICES = 3, ROWS = 130, COLUMNS = 140, N = MATRICES * ROWS * COLUMNS };
    static const struct {
        int rank; /* of the tensor: 3, or 2 for one matrix */
        int scale_rank;
        int64_t scale_shape[3];
        int64_t n[3], block[3];
    } cases[] = {
        {3, 3, {3, 2, 2}, {3, 2, 2}, {1, 128, 128}},         {3, 3, {3, 1, 1}, {3, 1, 1}, {1, ROWS, COLUMNS}},
        {3, 1, {3}, {3, 1, 1}, {1, ROWS, COLUMNS}},          {3, 3, {1, 1, 1}, {1, 1, 1}, {3, ROWS, COLUMNS}},
        {3, 1, {1}, {1, 1, 1}, {3, ROWS, COLUMNS}},          {3, 0, {0}, {1, 1, 1}, {3, ROWS, COLUMNS}},
        {3, 3, {3, ROWS, 1}, {3, ROWS, 1}, {1, 1, COLUMNS}}, {3, 2, {3, ROWS}, {3, ROWS, 1}, {1, 1, COLUMNS}},
        {2, 2, {ROWS, 1}, {1, ROWS, 1}, {1, 1, COLUMNS}},    {2, 1, {ROWS}, {1, ROWS, 1}, {1, 1, COLUMNS}},
        {2, 0, {0}, {1, 1, 1}, {1, ROWS, COLUMNS}},
    };
    static const int64_t wrong[][3] = {{2, 1, 1}, {3, 3, 2}, {3, 2, COLUMNS}, {1, 1, 3}};
    static uint8_t data[N];
    static double all[N];
    static float scales[N];
    for (int i = 0; i < N; i++) {
        data[i] = (uint8_t)(i * 31 % 120);
        scales[i] = (float)(1 + i % 61);
    }
    for (size_t k = 0; k < sizeof cases / sizeof cases[0] + sizeof wrong / sizeof wrong[0]; k++) {
        bool fits = k < sizeof cases / sizeof cases[0];
        int rank = fits ? cases[k].rank : 3;
        const int64_t shape[3] = {MATRICES, ROWS, COLUMNS};
        struct safetensors *s = NULL;
        struct st_writer *w = st_writer_new();
        st_writer_add(w, "w", ST_F8_E4M3, shape + 3 - rank, rank, data);
        if (fits)
            st_writer_add(w, "w_scale_inv", ST_F32, cases[k].scale_shape, cases[k].scale_rank, scales);
        else
            st_writer_add(w, "w_scale_inv", ST_F32, wrong[k - sizeof cases / sizeof cases[0]], 3, scales);
        ASSERT_OK(st_writer_write(w, PATH, true, e));
        st_writer_free(w);
        ASSERT_OK(safetensors_open(&s, PATH, e));
        unlink(PATH);
        const struct st_tensor *t = safetensors_find(s, "w");
        assert_int_equal(t->scale != NULL, fits);
        if (fits)
            ASSERT_OK(st_read_f64(t, 0, t->n_elems, all, e));
        for (int64_t i = 0; fits && i < t->n_elems; i++) {
            int64_t at[3] = {i / COLUMNS / ROWS, i / COLUMNS % ROWS, i % COLUMNS}, index = 0;
            for (int axis = 0; axis < 3; axis++)
                index = index * cases[k].n[axis] + at[axis] / cases[k].block[axis];
            assert_true(all[i] == expected_value(data[i]) * (double)scales[index]);
        }
        safetensors_close(s);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    uint8_t data[16] = {0};
    static const float scales[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    static const int64_t shapes[][2] = {{2, 1}, {1, 2}, {1, 0}, {4, 4}};
    uint16_t rounded[16];
    struct err e = {0};
    struct safetensors *s = write_and_open(4, 4, data, ST_F32, 0, 0, NULL);
    assert_false(st_read_f16(safetensors_find(s, "w"), 0, 16, rounded, &e));
    assert_int_equal(e.code, ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "w_scale_inv"));
    safetensors_close(s);
    float wide[16] = {0};
    for (int i = 0; i < 4; i++) {
        s = write_and_open(4, 4, data, ST_F32, shapes[i][0], shapes[i][1], i == 3 ? wide : scales);
        assert_null(safetensors_find(s, "w")->scale);
        assert_false(st_read_f16(safetensors_find(s, "w"), 0, 16, rounded, &e));
        safetensors_close(s);
    }
    /* Scales of a type that is no float. */
    static const int32_t integers[1] = {1};
    s = write_and_open(4, 4, data, ST_I32, 1, 1, integers);
    assert_false(st_read_f16(safetensors_find(s, "w"), 0, 16, rounded, &e));
    safetensors_close(s);
    /* Larger than fp16. */
    static const float large = 1000.0f;
    memset(data, 0x7e, sizeof data);
    s = write_and_open(4, 4, data, ST_F32, 1, 1, &large);
    assert_false(st_read_f16(safetensors_find(s, "w"), 0, 16, rounded, &e));
    assert_int_equal(e.code, ERR_FORMAT);
    safetensors_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_packed),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
