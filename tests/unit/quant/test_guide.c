/* Guides and error feedback, against plain sums and inverses. */
// labels: threads
#include <math.h>
#include "support.h"
#include "base/half.h"
#include "base/pool.h"
#include "quant/quant.h"

static uint64_t state = 88172645463325252u;

/* Even in -1 .. 1. */
static float draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (float)((double)(int64_t)state / 9.3e18);
}

/* Rows whose columns depend on each other and differ in size. */
static float *make_inputs(int64_t rows, int64_t n)
{
    float *x = xmalloc((size_t)(rows * n) * sizeof *x);
    for (int64_t t = 0; t < rows; t++) {
        float common = draw();
        for (int64_t i = 0; i < n; i++)
            x[t * n + i] = (0.3f * draw() + common) * (float)(1 + i % 7);
    }
    return x;
}

static double *make_gram(const float *x, int64_t rows, int64_t n, struct pool *pool)
{
    double *h = xcalloc((size_t)(n * n), sizeof *h);
    quant_gram_add(h, x, rows, n, pool);
    return h;
}

static void test_gram(void **unused)
{
    static const int64_t sizes[][2] = {{1, 1}, {5, 3}, {300, 33}, {128, 64}, {129, 70}};
    (void)unused;
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        int64_t rows = sizes[s][0], n = sizes[s][1];
        float *x = make_inputs(rows, n);
        struct pool *pool;
        ASSERT_OK(pool_new(&pool, 2, e));
        double *h = make_gram(x, rows, n, pool);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = i; j < n; j++) {
                double sum = 0, scale = 0;
                for (int64_t t = 0; t < rows; t++) {
                    sum += (double)x[t * n + i] * (double)x[t * n + j];
                    scale += fabs((double)x[t * n + i] * (double)x[t * n + j]);
                }
                assert_true(fabs(h[i * n + j] - sum) <= 1e-5 * scale);
            }
        free(h);
        free(x);
        pool_free(pool);
    }
}

/* G^-1 = U^T U: U is found again from the shares by solving for each row what the definition says, U G U^T = 1. */
static void check_factor(const struct quant_guide *g, const double *h, double mean)
{
    int64_t n = g->n;
    double *a = xmalloc((size_t)(n * n) * sizeof *a), *row = xmalloc((size_t)n * sizeof *row);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            int64_t p = g->order[i] < g->order[j] ? g->order[i] : g->order[j],
                    q = g->order[i] < g->order[j] ? g->order[j] : g->order[i];
            a[i * n + j] = h[p * n + q] / mean + (i == j ? 0.01 : 0);
        }
    /* V = U by its diagonal: rows of V G V^T are orthogonal */
    for (int64_t i = 0; i<n; i += n> 20 ? 7 : 1) {
        for (int64_t k = 0; k < n; k++) {
            double sum = a[i * n + k];
            for (int64_t j = i + 1; j < n; j++)
                sum += (double)g->feedback[i * n + j] * a[j * n + k];
            row[k] = sum;
        }
        for (int64_t other = i + 1; other < n; other++) {
            double sum = row[other], scale = fabs(row[other]);
            for (int64_t j = other + 1; j < n; j++) {
                sum += row[j] * (double)g->feedback[other * n + j];
                scale += fabs(row[j] * (double)g->feedback[other * n + j]);
            }
            assert_true(fabs(sum) <= 1e-5 * (scale + 1));
        }
    }
    free(a);
    free(row);
}

static void test_factor(void **unused)
{
    static const int64_t sizes[] = {1, 2, 5, 63, 64, 65, 150};
    (void)unused;
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        int64_t n = sizes[s];
        float *x = make_inputs(2 * n + 3, n);
        struct quant_guide *guides[3] = {NULL};
        for (int threads = 1; threads <= 3; threads++) {
            struct pool *pool;
            setenv("MILKIT_CPU", threads == 2 ? "scalar" : "", 1);
            ASSERT_OK(pool_new(&pool, threads, e));
            double *h = make_gram(x, 2 * n + 3, n, pool), *copy = make_gram(x, 2 * n + 3, n, pool), trace = 0;
            for (int64_t i = 0; i < n; i++)
                trace += h[i * n + i];
            ASSERT_OK(quant_guide_make(&guides[threads - 1], h, n, pool, e));
            assert_non_null(guides[threads - 1]);
            if (threads == 1)
                check_factor(guides[0], copy, trace / (double)n);
            free(h);
            free(copy);
            pool_free(pool);
        }
        setenv("MILKIT_CPU", "", 1);
        for (int k = 1; k < 3; k++) { /* the same numbers for any number of threads and instruction set */
            assert_memory_equal(guides[0]->order, guides[k]->order, (size_t)n * sizeof guides[0]->order[0]);
            for (int64_t i = 0; i < n; i++)
                for (int64_t j = i + 1; j < n; j++)
                    assert_true(guides[0]->feedback[i * n + j] == guides[k]->feedback[i * n + j]);
            quant_guide_free(guides[k]);
        }
        quant_guide_free(guides[0]);
        free(x);
    }
}

static void test_nothing_known(void **unused)
{
    double zeros[9] = {0}, bad[4] = {NAN, 0, 0, 1};
    struct quant_guide *g = NULL;
    struct pool *pool;
    (void)unused;
    ASSERT_OK(pool_new(&pool, 1, e));
    ASSERT_OK(quant_guide_make(&g, zeros, 3, pool, e));
    assert_null(g);
    ASSERT_OK(quant_guide_make(&g, bad, 2, pool, e));
    assert_null(g);
    pool_free(pool);
}

/* d^T H d of all rows. */
static double loss(const double *h, int64_t n, const f16 *w, const uint8_t *codes, const f16 *tables,
                   int64_t rows, int64_t group, int bits)
{
    double sum = 0, *d = xmalloc((size_t)n * sizeof *d);
    for (int64_t r = 0; r < rows; r++) {
        const f16 *table = tables + (r / group << bits);
        for (int64_t j = 0; j < n; j++)
            d[j] = (double)f16_to_f32(table[codes[r * n + j]]) - (double)f16_to_f32(w[r * n + j]);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++)
                sum += d[i] * d[j] * (i < j ? h[i * n + j] : h[j * n + i]);
    }
    free(d);
    return sum;
}

static f16 *make_weights(int64_t n_elems)
{
    f16 *w = xmalloc((size_t)n_elems * sizeof *w);
    for (int64_t i = 0; i < n_elems; i++)
        w[i] = f32_to_f16(draw() * draw());
    return w;
}

/* With related inputs feedback loses less than nearest entries do, with unrelated ones of equal size it takes those; and
 * neither the number of rows that go together nor the instruction set changes an entry. */
static void test_feedback(void **unused)
{
    static const int widths[] = {1, 2, 3, 4, 6, 8};
    enum { N = 200, ROWS = 16, GROUP = 8 };
    float *x = make_inputs(500, N);
    struct pool *pool;
    struct quant_guide *related, *unrelated;
    (void)unused;
    ASSERT_OK(pool_new(&pool, 2, e));
    double *h = make_gram(x, 500, N, pool), *copy = make_gram(x, 500, N, pool);
    double *identity = xcalloc((size_t)N * N, sizeof *identity);
    for (int64_t i = 0; i < N; i++)
        identity[i * N + i] = 3;
    ASSERT_OK(quant_guide_make(&related, copy, N, pool, e));
    ASSERT_OK(quant_guide_make(&unrelated, identity, N, pool, e));
    struct quant_scratch *scratch = quant_scratch_new();
    f16 *w = make_weights(ROWS * N);
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        int bits = widths[i];
        f16 tables[(ROWS / GROUP) << 8];
        uint8_t nearest[ROWS * N], codes[ROWS * N], one_by_one[ROWS * N];
        struct quant_stats stats = {0}, of_rows = {0};
        ASSERT_OK(quant_palettize(scratch, w, ROWS, N, GROUP, bits, QUANT_KMEANS, NULL, nearest, tables,
                                  &stats, e));
        stats = (struct quant_stats){0};
        quant_feedback(related, w, ROWS, 0, GROUP, tables, bits, codes, &stats);
        double of_nearest = loss(h, N, w, nearest, tables, ROWS, GROUP, bits),
               of_feedback = loss(h, N, w, codes, tables, ROWS, GROUP, bits);
        if (!(of_feedback < 0.7 * of_nearest))
            fail_msg("%d bits: feedback loses %g, nearest entries %g", bits, of_feedback, of_nearest);
        assert_int_equal(stats.n, ROWS * N);
        setenv("MILKIT_CPU", "scalar", 1);
        for (int64_t r = 0; r < ROWS; r++)
            quant_feedback(related, w + r * N, 1, r, GROUP, tables, bits, one_by_one + r * N, &of_rows);
        setenv("MILKIT_CPU", "", 1);
        assert_memory_equal(codes, one_by_one, sizeof codes);
        quant_feedback(unrelated, w, ROWS, 0, GROUP, tables, bits, codes, &of_rows);
        assert_memory_equal(codes, nearest, sizeof codes);
    }
    free(w);
    quant_scratch_free(scratch);
    quant_guide_free(related);
    quant_guide_free(unrelated);
    free(identity);
    free(copy);
    free(h);
    free(x);
    pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gram),
        cmocka_unit_test(test_factor),
        cmocka_unit_test(test_nothing_known),
        cmocka_unit_test(test_feedback),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
