/* The search for mixed widths: the limit, what is taken first, equals, names. */
#include "support.h"
#include <math.h>
#include "quant/quant.h"

#define N 40

static void make(struct quant_choices *c, struct quant_choice *list, int n, double limit)
{
    *c = (struct quant_choices){.list = list, .n = n, .narrow = 4, .wide = 6, .limit = limit};
    for (int i = 0; i < n; i++)
        list[i] = (struct quant_choice){.name = "w", .ordinal = i, .n_elems = 1000};
}

static double mean_of(const struct quant_choices *c)
{
    double bits = 0, total = 0;
    for (int i = 0; i < c->n; i++) {
        bits += (double)c->list[i].bits * (double)c->list[i].n_elems;
        total += (double)c->list[i].n_elems;
    }
    return bits / total;
}

static double error_of(const struct quant_choices *c)
{
    double error = 0;
    for (int i = 0; i < c->n; i++)
        error += c->list[i].bits == c->wide ? c->list[i].wide_error : c->list[i].narrow_error;
    return error;
}

/* The same numbers on every machine. */
static void fill_unevenly(struct quant_choice *list, int n)
{
    uint32_t state = 12345;
    for (int i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        list[i].n_elems = 1000 * (1 + (int64_t)(state >> 24) % 9);
        state = state * 1664525u + 1013904223u;
        list[i].narrow_error = 1e-6 * (1 + state % 100000u);
        list[i].wide_error = list[i].narrow_error / 20;
    }
}

static void test_limit(void **unused)
{
    (void)unused;
    struct quant_choice list[N];
    struct quant_choices c;
    double last = INFINITY;
    for (int step = 0; step <= 40; step++) {
        double limit = 4.0 + 0.05 * step;
        make(&c, list, N, limit);
        fill_unevenly(list, N);
        quant_choose(&c);
        assert_true(fabs(c.mean - mean_of(&c)) < 1e-12);
        assert_true(c.mean <= limit * (1 + 1e-9));
        /* What is left would not take the smallest weight that stayed narrow. */
        double total = 0, smallest = INFINITY;
        for (int i = 0; i < N; i++) {
            total += (double)list[i].n_elems;
            if (list[i].bits == 4 && (double)list[i].n_elems < smallest)
                smallest = (double)list[i].n_elems;
        }
        assert_true((limit - c.mean) * total < 2 * smallest * (1 + 1e-9) + 1e-6);
        /* More room never costs more than the one weight that the last bits may be left for. */
        double error = error_of(&c);
        assert_true(error <= last + 0.1);
        if (step == 0)
            assert_true(c.mean == 4.0);
        if (step == 40)
            assert_true(c.mean == 6.0);
        last = error;
    }
}

static void test_order(void **unused)
{
    (void)unused;
    struct quant_choice list[4];
    struct quant_choices c;
    /* By error for each element: the second weight is ten times as large, its gain only twice. */
    make(&c, list, 4, 4.5);
    for (int i = 0; i < 4; i++)
        list[i].narrow_error = 0.001;
    list[1].narrow_error = 0.002;
    list[1].n_elems = 10000;
    list[3].narrow_error = 0.0015;
    quant_choose(&c);
    assert_int_equal(list[3].bits, 6);
    assert_int_equal(list[0].bits, 6);
    assert_int_equal(list[1].bits, 4); /* does not fit; those behind it still may */
    assert_int_equal(list[2].bits, 6);
    /* Nothing to gain: nothing is spent. */
    make(&c, list, 4, 6.0);
    list[2].narrow_error = 0.1;
    list[2].wide_error = 0.01;
    list[3].narrow_error = 0.01;
    list[3].wide_error = 0.02;
    quant_choose(&c);
    assert_int_equal(list[2].bits, 6);
    assert_true(list[0].bits == 4 && list[1].bits == 4 && list[3].bits == 4);
    assert_true(c.mean == 4.5);
}

static void test_equals(void **unused)
{
    (void)unused;
    struct quant_choice list[8];
    struct quant_choices c;
    /* Differences behind the third digit decide nothing: the first of the list comes first. */
    make(&c, list, 8, 5.0);
    for (int i = 0; i < 8; i++)
        list[i].narrow_error = 0.001234 + 1e-7 * i;
    quant_choose(&c);
    for (int i = 0; i < 8; i++)
        assert_int_equal(list[i].bits, i < 4 ? 6 : 4);
    assert_true(c.mean == 5.0);
    make(&c, list, 0, 5.0);
    quant_choose(&c);
    assert_true(c.mean == 0.0);
}

static void test_names(void **unused)
{
    (void)unused;
    struct quant_choice list[] = {{.name = "a"}, {.name = "b"}, {.name = "a", .ordinal = 1}};
    struct quant_choices c = {.list = list, .n = 3};
    assert_ptr_equal(quant_find_choice(&c, "a", 1), &list[2]);
    assert_ptr_equal(quant_find_choice(&c, "b", 0), &list[1]);
    assert_null(quant_find_choice(&c, "b", 1));
    assert_null(quant_find_choice(&c, "c", 0));
    static const int widths[][2] = {{1, 2}, {2, 3}, {3, 4}, {4, 6}, {6, 8}, {8, 0}};
    for (int i = 0; i < 6; i++)
        assert_int_equal(quant_wider(widths[i][0]), widths[i][1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_limit), cmocka_unit_test(test_order),
                                       cmocka_unit_test(test_equals), cmocka_unit_test(test_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
