/* Linear integers and packing. */
#include "support.h"
#include "values.h"

static void test_int8(void **state)
{
    (void)state;
    enum { N = 500 };
    f16 w[N];
    uint8_t codes[N];
    for (int kind = 0; kind < VALUES_KINDS; kind++) {
        struct quant_stats stats = {0};
        fill_values(w, N, (enum values_kind)kind);
        float largest = 0.0f;
        for (int i = 0; i < N; i++)
            largest = fmaxf(largest, fabsf(f16_to_f32(w[i])));
        f16 scale = quant_int8_scale(w, N);
        float step = f16_to_f32(scale);
        assert_true(step > 0.0f);
        /* fp16 keeps eleven bits of the step, fewer among subnormals. */
        assert_true(fabsf(step - largest / 127.0f) <= step * 0x1p-10f + 0x1p-25f ||
                    largest / 127.0f < 0x1p-24f);
        quant_int8(w, N, scale, codes, &stats);
        double error = 0;
        for (int i = 0; i < N; i++) {
            int8_t code = (int8_t)codes[i];
            assert_in_range(code + 127, 0, 254);
            double x = (double)f16_to_f32(w[i]), back = (double)f16_round((float)code * step);
            /* Half a step, the rounding of the product, and what a step that was rounded down cuts off. */
            assert_true(fabs(x - back) <= 0.5 * (double)step + fabs(x) * 0x1p-10);
            error += (x - back) * (x - back);
        }
        assert_true(fabs(error - stats.error) <= 1e-12 + 1e-9 * error);
        assert_int_equal(stats.n, N);
    }
}

static void test_int4(void **state)
{
    (void)state;
    enum { N = 32 };
    f16 w[N];
    uint8_t codes[N];
    for (int trial = 0; trial < 200; trial++) {
        struct quant_stats stats = {0};
        fill_values(w, N, (enum values_kind)(trial % VALUES_KINDS));
        float step = f16_to_f32(quant_int4(w, N, codes, &stats));
        double error = 0, plain = 0, largest = 0, energy = 0;
        for (int i = 0; i < N; i++)
            largest = fmax(largest, fabs((double)f16_to_f32(w[i])));
        double plain_step = (double)f16_round((float)largest / 7.0f);
        for (int i = 0; i < N; i++) {
            assert_in_range(codes[i], 0, 15);
            int code = codes[i] < 8 ? codes[i] : codes[i] - 16;
            double x = (double)f16_to_f32(w[i]), back = (double)f16_round((float)code * step);
            error += (x - back) * (x - back);
            back = plain_step > 0 ? fmax(-8.0, fmin(7.0, rint(x / plain_step))) * plain_step : 0.0;
            plain += (x - back) * (x - back);
            energy += x * x;
        }
        assert_true(fabs(error - stats.error) <= 1e-15 + 1e-9 * error);
        /* The search is never worse than the obvious scale, but for the rounding of products. */
        assert_true(error <= plain * 1.02 + energy * 0x1p-22 + N * 0x1p-50);
    }
}

static void test_zeros(void **state)
{
    (void)state;
    f16 w[8] = {0, 0x8000, 0, 0, 0x8000, 0, 0, 0};
    uint8_t codes[8];
    struct quant_stats stats = {0};
    quant_int8(w, 8, quant_int8_scale(w, 8), codes, &stats);
    for (int i = 0; i < 8; i++)
        assert_int_equal(codes[i], 0);
    quant_int4(w, 8, codes, &stats);
    for (int i = 0; i < 8; i++)
        assert_int_equal(codes[i], 0);
    assert_true(stats.error == 0.0 && quant_stats_relative(&stats) == 0.0);
}

/* ---- packing ---- */

/* Bit b of the stream is bit b % bits of code b / bits. */
static void test_pack(void **state)
{
    (void)state;
    static const int widths[] = {1, 2, 3, 4, 6, 8};
    for (int i = 0; i < 6; i++) {
        int bits = widths[i];
        for (int n = 0; n <= 70; n++) {
            uint8_t codes[80], back[80], packed[96];
            size_t bytes = (size_t)(n * bits + 7) / 8;
            for (int k = 0; k < n; k++)
                codes[k] = (uint8_t)(next_random() & ((1u << bits) - 1));
            memset(packed, 0xa5, sizeof packed);
            quant_pack(codes, n, bits, packed);
            assert_int_equal(packed[bytes], 0xa5);
            for (size_t b = 0; b < 8 * bytes; b++) {
                size_t k = b / (size_t)bits;
                int expected = k < (size_t)n ? codes[k] >> (b % (size_t)bits) & 1 : 0;
                assert_int_equal(packed[b / 8] >> (b % 8) & 1, expected);
            }
            for (int begin = 0; begin <= n; begin += 7) {
                quant_unpack(packed, begin, n - begin, bits, back);
                assert_memory_equal(back, codes + begin, (size_t)(n - begin));
            }
        }
    }
}

/* ---- settings ---- */

static void test_parse(void **state)
{
    (void)state;
    struct quant_spec s;
    char text[64];
    ASSERT_OK(quant_parse_lut(&s, "--lut-ffn", "6,4", e));
    assert_true(s.kind == QUANT_LUT && s.bits == 6 && s.group == 4);
    ASSERT_OK(quant_parse_lut(&s, "--lut-ffn", "4", e));
    assert_true(s.bits == 4 && s.group == 8);
    ASSERT_OK(quant_parse_lut(&s, "--lut-ffn", "4,tensor", e));
    assert_true(s.group == 0);
    ASSERT_OK(quant_parse_lut(&s, "--lut-ffn", "4,0", e));
    assert_true(s.group == 0);
    static const char *const none[] = {"none", ""};
    for (int i = 0; i < 2; i++) {
        ASSERT_OK(quant_parse_lut(&s, "--lut-ffn", none[i], e));
        assert_true(s.kind == QUANT_NONE);
        ASSERT_OK(quant_parse_linear(&s, "--quant-ffn", none[i], e));
        assert_true(s.kind == QUANT_NONE);
    }
    ASSERT_OK(quant_parse_linear(&s, "--quant-ffn", "int8", e));
    assert_true(s.kind == QUANT_INT8 && s.group == 1 && s.bits == 8);
    ASSERT_OK(quant_parse_linear(&s, "--quant-ffn", "int8,tensor", e));
    assert_true(s.kind == QUANT_INT8 && s.group == 0);
    ASSERT_OK(quant_parse_linear(&s, "--quant-ffn", "int4,64", e));
    assert_true(s.kind == QUANT_INT4 && s.block == 64 && s.bits == 4);
    quant_describe(text, &s);
    assert_non_null(strstr(text, "64"));
    static const char *const bad_luts[] = {
        "5", "7", "9", "0", "-4", "4,", "4,-1", "4,x", "4,8,2", "x", "4,99999999999", "44444444444444"};
    for (size_t i = 0; i < sizeof bad_luts / sizeof bad_luts[0]; i++) {
        struct err e = {0};
        assert_false(quant_parse_lut(&s, "--lut-head", bad_luts[i], &e));
        assert_int_equal(e.code, ERR_USAGE);
        assert_non_null(strstr(e.msg, "--lut-head"));
    }
    static const char *const bad_linear[] = {"int5", "int4,0", "int4,", "int4,5000", "int8,8", "4", "int44"};
    for (size_t i = 0; i < sizeof bad_linear / sizeof bad_linear[0]; i++) {
        struct err e = {0};
        assert_false(quant_parse_linear(&s, "--quant-head", bad_linear[i], &e));
        assert_int_equal(e.code, ERR_USAGE);
    }
}

static void test_divisor(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= 200; n++) {
        for (int64_t wish = 0; wish <= n + 1; wish++) {
            int64_t best = wish == 0 ? n : 1;
            for (int64_t d = 1; d <= n && wish > 0; d++)
                best = n % d == 0 && d <= wish ? d : best;
            assert_int_equal(quant_divisor(n, wish), best);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_int8), cmocka_unit_test(test_int4),  cmocka_unit_test(test_zeros),
        cmocka_unit_test(test_pack), cmocka_unit_test(test_parse), cmocka_unit_test(test_divisor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
