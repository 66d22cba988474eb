/* Guides, error feedback, least-squares tables and descent, against plain sums and inverses. */
// labels: threads
#include <math.h>
#include "support.h"
#include "base/half.h"
#include "base/pool.h"
#include "quant/guided_internal.h"

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
    quant_gram_add(h, x, x, rows, n, pool);
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
            ASSERT_OK(quant_guide_make(&guides[threads - 1], h, NULL, n, false, pool, e));
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
    ASSERT_OK(quant_guide_make(&g, zeros, NULL, 3, false, pool, e));
    assert_null(g);
    ASSERT_OK(quant_guide_make(&g, bad, NULL, 2, true, pool, e));
    assert_null(g);
    pool_free(pool);
}

/* d^T H d of all rows of a palette. */
static double loss(const double *h, const struct quant_weight *w, const f16 *values)
{
    int64_t n = w->columns;
    double sum = 0, *d = xmalloc((size_t)n * sizeof *d);
    for (int64_t r = 0; r < w->rows; r++) {
        const f16 *table = w->made->tables + (r / w->spec.group << w->spec.bits);
        for (int64_t j = 0; j < n; j++)
            d[j] =
                (double)f16_to_f32(table[w->made->codes[r * n + j]]) - (double)f16_to_f32(values[r * n + j]);
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

/* A weight of numbers in memory. */
struct subject {
    struct mil_weight source_weight;
    struct mil_value source, table;
    struct quant_weight weight;
    f16 *values;
};

static bool produce(const struct mil_weight *w, int64_t begin, int64_t n, void *dst, struct err *e)
{
    (void)e;
    memcpy(dst, (const f16 *)w->context + begin, (size_t)n * sizeof(f16));
    return true;
}

static void subject_init(struct subject *s, int64_t rows, int64_t columns, int64_t group, int bits)
{
    *s = (struct subject){.values = make_weights(rows * columns)};
    s->source_weight.produce = produce;
    s->source_weight.context = s->values;
    s->source.weight = &s->source_weight;
    s->table.bytes = (size_t)(rows / group << bits) * sizeof(f16);
    s->weight = (struct quant_weight){.name = "w",
                                      .source = &s->source,
                                      .table = &s->table,
                                      .rows = rows,
                                      .columns = columns,
                                      .spec = {.kind = QUANT_LUT, .bits = bits, .group = group}};
}

/* The palette with this guide in w->made; NULL: nearest entries. */
static void make(struct subject *s, const struct quant_guide *g, int n_threads)
{
    struct pool *pool;
    struct quant_piece at = {0, s->weight.rows, 0, s->weight.columns, g};
    quant_made_free(s->weight.made);
    ASSERT_OK(pool_new(&pool, n_threads, e));
    assert_non_null(quant_made_new(&s->weight, NULL));
    ASSERT_OK(quant_make_nearest(&s->weight, 0, s->weight.rows, g ? g->mean_square : NULL, pool, e));
    if (g)
        ASSERT_OK(quant_make_piece(&s->weight, &at, pool, e));
    pool_free(pool);
}

static void subject_fini(struct subject *s)
{
    quant_made_free(s->weight.made);
    free(s->values);
}

/* With related inputs feedback loses less than nearest entries do, and least squares and descent less than feedback; neither
 * the number of threads nor the instruction set changes anything; groups of any size. */
static void test_loss(void **unused)
{
    static const int widths[] = {1, 2, 3, 4, 6, 8};
    static const int64_t groups[] = {1, 8, 24};
    enum { N = 200, ROWS = 24 };
    float *x = make_inputs(500, N);
    struct pool *pool;
    struct quant_guide *feedback, *best;
    (void)unused;
    ASSERT_OK(pool_new(&pool, 2, e));
    double *h = make_gram(x, 500, N, pool);
    ASSERT_OK(quant_guide_make(&feedback, h, NULL, N, false, pool, e));
    ASSERT_OK(quant_guide_make(&best, h, NULL, N, true, pool, e));
    for (size_t i = 0; i < 3 * sizeof widths / sizeof widths[0]; i++) {
        struct subject s;
        int bits = widths[i / 3];
        int64_t group = groups[i % 3];
        if (N < group << bits && group == 1)
            continue; /* a table holds every value */
        subject_init(&s, ROWS, N, group, bits);
        make(&s, NULL, 2);
        double of_nearest = loss(h, &s.weight, s.values);
        make(&s, feedback, 2);
        double of_feedback = loss(h, &s.weight, s.values);
        make(&s, best, 2);
        double of_best = loss(h, &s.weight, s.values);
        if (!(of_feedback < 0.7 * of_nearest && of_best < of_feedback))
            fail_msg("%d bits, %d rows a table: nearest entries lose %g, feedback %g, descent %g", bits,
                     (int)group, of_nearest, of_feedback, of_best);
        uint8_t *codes = xmalloc(ROWS * N);
        f16 tables[ROWS << 8];
        memcpy(codes, s.weight.made->codes, ROWS * N);
        memcpy(tables, s.weight.made->tables, s.table.bytes);
        for (int threads = 1; threads <= 3; threads++) {
            setenv("MILKIT_CPU", threads == 1 ? "scalar" : "", 1);
            make(&s, best, threads);
            assert_memory_equal(codes, s.weight.made->codes, ROWS * N);
            assert_memory_equal(tables, s.weight.made->tables, s.table.bytes);
        }
        for (size_t k = 1; k < s.table.bytes / sizeof(f16); k++)
            assert_true(k % (1u << bits) == 0 || f16_to_f32(tables[k - 1]) <= f16_to_f32(tables[k]));
        free(codes);
        subject_fini(&s);
    }
    quant_guide_free(feedback);
    quant_guide_free(best);
    free(h);
    free(x);
    pool_free(pool);
}

/* With unrelated inputs of equal size every method gives what nearest entries give: tables move by less than k-means' own room. */
static void test_identity(void **unused)
{
    enum { N = 160, ROWS = 16 };
    double *identity = xcalloc((size_t)N * N, sizeof *identity);
    struct pool *pool;
    (void)unused;
    ASSERT_OK(pool_new(&pool, 2, e));
    for (int64_t i = 0; i < N; i++)
        identity[i * N + i] = 3;
    for (int bits = 2; bits <= 4; bits++) {
        struct quant_guide *guides[2];
        struct subject s;
        double losses[3];
        uint8_t nearest[ROWS * N];
        subject_init(&s, ROWS, N, 8, bits);
        make(&s, NULL, 1);
        losses[0] = loss(identity, &s.weight, s.values);
        memcpy(nearest, s.weight.made->codes, sizeof nearest);
        for (int k = 0; k < 2; k++) {
            ASSERT_OK(quant_guide_make(&guides[k], identity, NULL, N, k == 1, pool, e));
            make(&s, guides[k], 2);
            losses[k + 1] = loss(identity, &s.weight, s.values);
            quant_guide_free(guides[k]);
            if (k == 0)
                assert_memory_equal(nearest, s.weight.made->codes, sizeof nearest);
        }
        assert_true(losses[1] == losses[0]);
        assert_true(losses[2] < losses[0] * (1 + 2e-6) && losses[2] > losses[0] * 0.99);
        subject_fini(&s);
    }
    free(identity);
    pool_free(pool);
}

/* Every least-squares table and every pass of descent lowers the error, and what is told of it is true. */
static void test_steps(void **unused)
{
    enum { N = 300, ROWS = 8, BITS = 3, K = 1 << BITS };
    float *x = make_inputs(700, N), targets[ROWS * N], *u = xmalloc(sizeof targets);
    struct quant_guide *g;
    struct pool *pool;
    struct subject s;
    (void)unused;
    ASSERT_OK(pool_new(&pool, 2, e));
    double *h = make_gram(x, 700, N, pool);
    ASSERT_OK(quant_guide_make(&g, h, NULL, N, true, pool, e));
    subject_init(&s, ROWS, N, ROWS, BITS);
    make(&s, NULL, 1);
    float table[K], middles[K];
    struct guided_rows rows = {ROWS, ROWS, K, table, middles, s.weight.made->codes, N};
    for (int64_t i = 0; i < ROWS * N; i++)
        targets[i] = f16_to_f32(s.values[i]);
    for (int k = 0; k < K; k++)
        table[k] = f16_to_f32(s.weight.made->tables[k]);
    guided_slopes(g, &rows, targets, u);
    double last = guided_error(g, &rows, targets, u);
    for (int round = 0; round < 3; round++) {
        double a[K * K] = {0}, slope[K] = {0};
        uint8_t place[K];
        guided_normal(g, &rows, u, a, slope);
        guided_solve(a, slope, K, table, place);
        for (int i = 0; i < ROWS * N; i++)
            rows.codes[i] = place[rows.codes[i]];
        guided_slopes(g, &rows, targets, u);
        double error = guided_error(g, &rows, targets, u);
        if (!(error <= last))
            fail_msg("round %d: tables raise the error from %g to %g", round, last, error);
        last = error;
        for (int k = 0; k < K; k++)
            middles[k] = k == K - 1 ? INFINITY : 0.5f * (table[k] + table[k + 1]);
        for (int pass = 0; pass < 3; pass++) {
            int64_t n_changed = guided_descend(g, &rows, u);
            error = guided_error(g, &rows, targets, u);
            if (!(n_changed == 0 || error < last))
                fail_msg("round %d: descent raises the error from %g to %g", round, last, error);
            last = error;
        }
        float *again = xmalloc(sizeof targets);
        guided_slopes(g, &rows, targets, again);
        for (int i = 0; i < ROWS * N; i++)
            assert_true(fabsf(again[i] - u[i]) < 1e-3f);
        free(again);
    }
    subject_fini(&s);
    quant_guide_free(g);
    free(h);
    free(u);
    free(x);
    pool_free(pool);
}

/* Outputs as with other inputs: the palette's outputs on x are nearer to the weight's on x' than without the shift. */
static void test_shift(void **unused)
{
    enum { N = 64, ROWS = 8, TOKENS = 400 };
    float *x = make_inputs(TOKENS, N), *other = xmalloc(TOKENS * N * sizeof *other);
    float *difference = xmalloc(TOKENS * N * sizeof *difference);
    double *cross = xcalloc((size_t)N * N, sizeof *cross), errors[2] = {0};
    struct quant_guide *guides[2];
    struct pool *pool;
    struct subject s;
    (void)unused;
    ASSERT_OK(pool_new(&pool, 2, e));
    for (int i = 0; i < TOKENS * N; i++) {
        difference[i] = 0.3f * x[i / N * N + (i * 7 + 3) % N];
        other[i] = x[i] + difference[i];
    }
    double *h = make_gram(x, TOKENS, N, pool);
    quant_gram_add(cross, difference, x, TOKENS, N, pool);
    subject_init(&s, ROWS, N, ROWS, 4);
    for (int k = 0; k < 2; k++) {
        ASSERT_OK(quant_guide_make(&guides[k], h, k ? cross : NULL, N, true, pool, e));
        make(&s, guides[k], 2);
        for (int64_t t = 0; t < TOKENS; t++)
            for (int64_t r = 0; r < ROWS; r++) {
                double d = 0;
                for (int64_t j = 0; j < N; j++)
                    d += (double)f16_to_f32(s.weight.made->tables[s.weight.made->codes[r * N + j]]) *
                             (double)x[t * N + j] -
                         (double)f16_to_f32(s.values[r * N + j]) * (double)other[t * N + j];
                errors[k] += d * d;
            }
        quant_guide_free(guides[k]);
    }
    if (!(errors[1] < 0.5 * errors[0]))
        fail_msg("squared error %g without the shift, %g with it", errors[0], errors[1]);
    subject_fini(&s);
    free(h);
    free(cross);
    free(difference);
    free(other);
    free(x);
    pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gram),  cmocka_unit_test(test_factor),   cmocka_unit_test(test_nothing_known),
        cmocka_unit_test(test_loss),  cmocka_unit_test(test_identity), cmocka_unit_test(test_steps),
        cmocka_unit_test(test_shift),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
