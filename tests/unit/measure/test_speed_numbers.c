/* What samples of speeds say: means, deviations, quantiles, ranges of ratios; peaks and reads are numbers above 0. */
#include <math.h>
#include "support.h"
#include "base/cpu.h"
#include "measure/machine.h"
#include "measure/speed.h"

static void test_one_and_none(void **state)
{
    (void)state;
    double one[1] = {4}, low, high;
    assert_true(speed_mean(one, 1) == 4 && speed_deviation(one, 1) == 0 && speed_quantile(one, 1, 0.9) == 4);
    assert_true(isnan(speed_mean(one, 0)) && isnan(speed_deviation(one, 0)) &&
                isnan(speed_quantile(one, 0, 0.5)));
    speed_ratio_range(one, 1, one, 1, &low, &high);
    assert_true(isnan(low) && isnan(high));
}

static void test_several(void **state)
{
    (void)state;
    double x[4] = {7, 1, 3, 5};
    assert_true(speed_mean(x, 4) == 4);
    assert_true(fabs(speed_deviation(x, 4) - sqrt(20.0 / 3)) < 1e-12);
    assert_true(speed_quantile(x, 4, 0) == 1 && speed_quantile(x, 4, 1) == 7);
    assert_true(speed_quantile(x, 4, 0.5) == 4 && fabs(speed_quantile(x, 4, 0.9) - 6.4) < 1e-12);
    assert_true(x[0] == 7 && x[3] == 5); /* they stay as they are */
}

static void test_range(void **state)
{
    (void)state;
    double a[8] = {20, 21, 19, 20, 20.5, 19.5, 20, 20.2}, b[5] = {10, 10.1, 9.9, 10, 10.05}, low, high,
           again[2];
    speed_ratio_range(a, 8, b, 5, &low, &high);
    assert_true(low <= 2 && high >= 2 && low > 1.9 && high < 2.1);
    speed_ratio_range(a, 8, b, 5, &again[0], &again[1]);
    assert_true(again[0] == low && again[1] == high);
}

static void test_machine(void **state)
{
    (void)state;
    struct pool *pool = NULL;
    static uint64_t words[8192];
    struct machine_span span = {words, sizeof words};
    const char *name = NULL;
    ASSERT_OK(pool_new(&pool, 2, e));
    assert_true(machine_read(pool, &span, 1) >= 0);
    for (int unit = MACHINE_FMA32; unit <= MACHINE_PRODUCTS16; unit++) {
        double peak = machine_peak(pool, (enum machine_unit)unit, &name);
        assert_non_null(name);
        assert_true(cpu_level_in_use() == CPU_SCALAR ? peak == 0 : peak > 0);
    }
    pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_and_none), cmocka_unit_test(test_several),
                                       cmocka_unit_test(test_range), cmocka_unit_test(test_machine)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
