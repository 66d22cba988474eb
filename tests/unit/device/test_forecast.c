/* The fit behind forecasts: the constants that numpy finds, its errors with a point left out, more points, chips by name. */
#include <math.h>
#include <stdlib.h>
#include "device/forecast.h"
#include "support.h"

static void near(double expected, double found, double share)
{
    if (!(fabs(found - expected) <= share * fabs(expected)))
        fail_msg("expected %.10g, found %.10g", expected, found);
}

/* numpy.linalg.lstsq over the same rows, relative errors: 1.43044548, 0.75883386e-3, 0.9737341, 0.04570784. */
static void test_constants(void **state)
{
    (void)state;
    struct forecast_fit f;
    ASSERT_OK(forecast_fit_all(&f, NULL, 0, e));
    assert_int_equal(f.n, 8);
    near(1.43044548, f.terms[FORECAST_CALL], 1e-6);
    near(0.75883386e-3, f.terms[FORECAST_OP], 1e-6);
    near(0.9737341, f.terms[FORECAST_WEIGHT], 1e-6);
    near(0.04570784, f.terms[FORECAST_CACHE], 1e-6);
    near(0.06080048, f.worst_error, 1e-5);
    near(0.0553224, f.median_error_without, 1e-4);
    near(0.2469864, f.worst_error_without, 1e-4);
}

/* Points that follow the formula pull the fit towards themselves; impossible ones are refused. */
static void test_more_points(void **state)
{
    (void)state;
    struct forecast_fit before, after;
    struct speed_point p = {
        .chip = "M4", .calls = 4, .ops = 3000, .weight_mb = 500, .cache_mb = 60, .tokens_per_s = 20};
    const struct chip *chip;
    struct err e = {0};
    ASSERT_OK(forecast_fit_all(&before, NULL, 0, e));
    ASSERT_OK(forecast_fit_all(&after, &p, 1, e));
    ASSERT_OK(chip_find(&chip, "M4", e));
    assert_int_equal(after.n, 9);
    assert_true(fabs(forecast_token_ms(&after, &p, chip) - 50) <
                fabs(forecast_token_ms(&before, &p, chip) - 50));
    p.chip = "M99";
    assert_false(forecast_fit_all(&after, &p, 1, &e));
    assert_int_equal(e.code, ERR_USAGE);
}

static void test_points(void **state)
{
    (void)state;
    const struct chip *chip;
    int n = 0, n_fitted = 0;
    for (; speed_point_at(n); n++) {
        ASSERT_OK(chip_find(&chip, speed_point_at(n)->chip, e));
        assert_true(speed_point_at(n)->tokens_per_s > 0 && speed_point_at(n)->source[0]);
        n_fitted += speed_point_at(n)->is_fitted;
    }
    assert_true(n >= 20);
    assert_int_equal(n_fitted, 8);
    ASSERT_OK(chip_find(&chip, "m5-max", e));
    assert_true(forecast_has_point(chip));
    ASSERT_OK(chip_find(&chip, "M4 Max", e));
    assert_false(forecast_has_point(chip));
}

static void test_chips(void **state)
{
    (void)state;
    const struct chip *a, *b;
    struct device_system s;
    ASSERT_OK(chip_find(&a, "A18 Pro", e));
    ASSERT_OK(chip_find(&b, "a18pro", e));
    assert_ptr_equal(a, b);
    assert_true(a->is_phone);
    assert_int_equal(chip_axis_max(CHIP_H15), 16384);
    assert_int_equal(chip_axis_max(CHIP_H16), 65536);
    for (int i = 0; chip_at(i); i++)
        assert_true(chip_at(i)->stream_gb_per_s > 0 && chip_at(i)->basis[0]);
    ASSERT_OK(device_system_read(&s, "macOS 26", e));
    assert_true(s.kind == SYSTEM_MACOS && s.version == 26);
    ASSERT_OK(device_system_read(&s, "iOS", e));
    assert_true(s.kind == SYSTEM_IOS && s.version == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_constants),
        cmocka_unit_test(test_more_points),
        cmocka_unit_test(test_points),
        cmocka_unit_test(test_chips),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
