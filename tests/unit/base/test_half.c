/* Half floats: every half, and floats and doubles around every rounding border, against a computation from
 * the definition with ldexp, floor and comparisons, which shares nothing with the bit manipulation under
 * test. */
#include "support.h"
#include <math.h>
#include "base/half.h"

static uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static float float_of(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* The value of a finite half by its definition. */
static double value_of(unsigned h)
{
    int exponent = (h >> 10) & 31;
    int mantissa = h & 0x3ff;
    double magnitude = exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, exponent - 25);
    return h & 0x8000 ? -magnitude : magnitude;
}

/* The nearest half by searching the ordered magnitudes; ties go to the even pattern. */
static unsigned nearest(double d)
{
    unsigned sign = signbit(d) ? 0x8000 : 0;
    double m = fabs(d);
    unsigned low = 0, high = 0x7bff;
    if (m >= 65520) /* halfway to the value that would come next */
        return sign | 0x7c00;
    if (m >= 65504)
        return sign | 0x7bff;
    while (high - low > 1) {
        unsigned middle = (low + high) / 2;
        if (value_of(middle) <= m)
            low = middle;
        else
            high = middle;
    }
    double below = m - value_of(low), above = value_of(high) - m;
    if (below != above)
        return sign | (below < above ? low : high);
    return sign | (low % 2 == 0 ? low : high);
}

static void test_every_half(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 65536; h++) {
        float f = f16_to_f32((f16)h);
        if ((h & 0x7c00) == 0x7c00) {
            if (h & 0x3ff) {
                uint32_t want = (h & 0x8000) << 16 | 0x7fc00000u | (h & 0x3ff) << 13;
                if (!isnan(f) || bits_of(f) != want || f32_to_f16(f) != (h | 0x200) ||
                    f64_to_f16((double)f) != (h | 0x200))
                    fail_msg("NaN %04x became %08x", h, bits_of(f));
            } else if (!isinf(f) || !signbit(f) != !(h & 0x8000) || f32_to_f16(f) != h ||
                       f64_to_f16((double)f) != h) {
                fail_msg("infinity %04x became %08x", h, bits_of(f));
            }
            continue;
        }
        if ((double)f != value_of(h) || !signbit(f) != !(h & 0x8000))
            fail_msg("half %04x became %a, expected %a", h, (double)f, value_of(h));
        if (f32_to_f16(f) != h || f64_to_f16((double)f) != h || bits_of(f16_round(f)) != bits_of(f))
            fail_msg("half %04x does not come back", h);
    }
}

static void check_float(uint32_t bits)
{
    float f = float_of(bits);
    if (isnan(f))
        return;
    unsigned want = nearest((double)f), found = f32_to_f16(f);
    if (found != want)
        fail_msg("%a became %04x, expected %04x", (double)f, found, want);
}

static void check_double(double d)
{
    unsigned want = nearest(d), found = f64_to_f16(d);
    if (found != want)
        fail_msg("%a became %04x, expected %04x", d, found, want);
}

/* The middle between neighbours, and the floats and doubles right beside it, for every pair of neighbours. */
static void test_every_border(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 0x7c00; h++) {
        double next = h == 0x7bff ? 65536 : value_of(h + 1);
        double middle = (value_of(h) + next) / 2;
        uint32_t bits = bits_of((float)middle); /* exact: 12 bits */
        assert_true((double)float_of(bits) == middle);
        for (uint32_t sign = 0; sign < 2; sign++) {
            check_float((bits - 1) | sign << 31);
            check_float(bits | sign << 31);
            check_float((bits + 1) | sign << 31);
            double s = sign ? -1 : 1;
            check_double(s * nextafter(middle, 0));
            check_double(s * middle);
            check_double(s * nextafter(middle, 1e9));
        }
    }
}

static void test_sampled_floats(void **state)
{
    (void)state;
    uint64_t seed = 12345;
    for (int i = 0; i < 300000; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        check_float((uint32_t)(seed >> 32));
        /* The same bits in the range where halves are normal or subnormal. */
        check_float((((uint32_t)(seed >> 32) & 0x8fffffff) % 0x12000000) + 0x33000000);
    }
    static const uint32_t special[] = {0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007fffff,
                                       0x00800000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000,
                                       0x33000000, 0x33000001, 0x387fffff, 0x38800000, 0x477fefff,
                                       0x477ff000, 0x477fffff, 0x47800000};
    for (size_t i = 0; i < sizeof special / sizeof special[0]; i++)
        check_float(special[i]);
}

/* Where rounding to float first would fall on a border that the double does not lie on. */
static void test_doubles_round_once(void **state)
{
    (void)state;
    double just_above = 1.0 + ldexp(1, -11) + ldexp(1, -40);
    assert_int_equal(f64_to_f16(just_above), 0x3c01);
    assert_int_equal(f32_to_f16((float)just_above), 0x3c00); /* two roundings: the trap exists */
    check_double(65520 - ldexp(1, -30));
    check_double(ldexp(1, -25) + ldexp(1, -70));
    check_double(5e-324);
    check_double(-1.7e308);
    check_double(HUGE_VAL);
    uint64_t seed = 99;
    for (int i = 0; i < 200000; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        check_double(ldexp((double)(int64_t)seed, (int)(seed % 48) - 90));
    }
}

static void test_nan(void **state)
{
    (void)state;
    static const uint32_t nans[] = {0x7f800001, 0x7fc00000, 0xff800001, 0xffffffff, 0x7f802000, 0x7fffe000};
    for (size_t i = 0; i < sizeof nans / sizeof nans[0]; i++) {
        unsigned h = f32_to_f16(float_of(nans[i]));
        assert_true((h & 0x7e00) == 0x7e00); /* a quiet NaN */
        assert_int_equal(h >> 15, nans[i] >> 31);
        assert_int_equal(h & 0x1ff, (nans[i] >> 13) & 0x1ff);
    }
}

static void test_bf16(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        uint32_t want = h << 16;
        if ((h & 0x7fff) > 0x7f80)
            want |= 0x400000;
        assert_int_equal(bits_of(bf16_to_f32((bf16)h)), want);
    }
}

static void test_bulk_equals_scalar(void **state)
{
    (void)state;
    enum { N = 65536 };
    uint16_t *h = malloc(N * sizeof *h), *back = malloc((N + 1) * sizeof *back);
    float *f = malloc((N + 1) * sizeof *f);
    for (unsigned i = 0; i < N; i++)
        h[i] = (uint16_t)i;
    f16_to_f32_n(f, h, N);
    for (unsigned i = 0; i < N; i++)
        assert_int_equal(bits_of(f[i]), bits_of(f16_to_f32((f16)i)));
    bf16_to_f32_n(f, h, N);
    for (unsigned i = 0; i < N; i++)
        assert_int_equal(bits_of(f[i]), bits_of(bf16_to_f32((bf16)i)));

    uint64_t seed = 7;
    for (unsigned i = 0; i < N; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        f[i] = float_of(i % 2 ? (uint32_t)(seed >> 32) : (uint32_t)(seed >> 32) % 0x12000000 + 0x33000000);
    }
    f32_to_f16_n(back, f, N);
    for (unsigned i = 0; i < N; i++)
        assert_int_equal(back[i], f32_to_f16(f[i]));

    /* Odd lengths and offsets touch nothing outside. */
    for (size_t n = 0; n < 40; n++) {
        memset(back, 0xab, 100 * sizeof *back);
        f32_to_f16_n(back + 1, f + 3, n);
        assert_int_equal(back[0], 0xabab);
        assert_int_equal(back[n + 1], 0xabab);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(back[i + 1], f32_to_f16(f[i + 3]));
    }
    free(h);
    free(back);
    free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_half),
        cmocka_unit_test(test_every_border),
        cmocka_unit_test(test_sampled_floats),
        cmocka_unit_test(test_doubles_round_once),
        cmocka_unit_test(test_nan),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_bulk_equals_scalar),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
