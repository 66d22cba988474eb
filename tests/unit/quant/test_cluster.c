/* Palettes: the exact method against all clusterings there are and against plain dynamic programming, kmeans
 * against exact, importance, tables and codes that fit together, values that are hard. */
#include "support.h"
#include "values.h"

static const int widths[] = {1, 2, 3, 4, 6, 8};
#define N_WIDTHS 6

struct result {
    f16 table[QUANT_ENTRIES_MAX];
    double cost;
    struct quant_stats stats;
};

static struct result cluster(struct quant_scratch *s, const f16 *w, int64_t n, const float *importance,
                             int64_t columns, int bits, enum quant_method method)
{
    struct result r = {.cost = 0};
    quant_collect_begin(s);
    quant_collect(s, w, n, importance, 0, columns);
    ASSERT_OK(quant_cluster(s, bits, method, r.table, &r.stats, e));
    r.cost = quant_cluster_cost(s);
    return r;
}

/* ---- against the obvious ---- */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Squared error of one cluster of sorted points, from the definition. */
static double spread(const double *x, const double *w, int begin, int end)
{
    double sum = 0, weight = 0, cost = 0;
    for (int i = begin; i < end; i++) {
        sum += w[i] * x[i];
        weight += w[i];
    }
    for (int i = begin; i < end; i++)
        cost += w[i] * (x[i] - sum / weight) * (x[i] - sum / weight);
    return cost;
}

/* The least cost of at most k clusters: a table over all last boundaries. */
static double brute_force(const double *x, const double *w, int n, int k)
{
    double *best = calloc((size_t)n + 1, sizeof *best), *next = calloc((size_t)n + 1, sizeof *next);
    for (int j = 1; j <= n; j++)
        best[j] = spread(x, w, 0, j);
    for (int r = 2; r <= k; r++) {
        for (int j = 1; j <= n; j++) {
            next[j] = best[j];
            for (int i = 1; i < j; i++) {
                double c = best[i] + spread(x, w, i, j);
                next[j] = c < next[j] ? c : next[j];
            }
        }
        memcpy(best, next, sizeof *best * ((size_t)n + 1));
    }
    double least = best[n];
    free(best);
    free(next);
    return least;
}

/* Points as the quantizer sees them when every value is another column's. */
static void test_exact_against_brute_force(void **state)
{
    (void)state;
    struct quant_scratch *s = quant_scratch_new();
    for (int trial = 0; trial < 240; trial++) {
        int n = 2 + (int)(next_random() % 60), bits = 1 + trial % 4;
        f16 w[64];
        float importance[64];
        double x[64], weight[64];
        bool is_weighted = trial % 3 == 0;
        fill_values(w, n, (enum values_kind)(trial % VALUES_KINDS));
        struct {
            double x, w;
        } pairs[64];
        for (int i = 0; i < n; i++) {
            /* Powers of two of importance are whole numbers of steps. */
            importance[i] = (float)(1 << next_random() % 8);
            pairs[i].x = (double)f16_to_f32(w[i]);
            pairs[i].w = is_weighted ? (double)importance[i] : 1.0;
        }
        importance[0] = 128.0f;
        pairs[0].w = is_weighted ? 128.0 : 1.0;
        qsort(pairs, (size_t)n, sizeof pairs[0], compare_doubles);
        for (int i = 0; i < n; i++) {
            x[i] = pairs[i].x;
            weight[i] = pairs[i].w;
        }
        double scale = is_weighted ? 1048576.0 / 128.0 : 1.0;
        double expected = brute_force(x, weight, n, 1 << bits) * scale;
        struct result r = cluster(s, w, n, is_weighted ? importance : NULL, n, bits, QUANT_EXACT);
        double total = spread(x, weight, 0, n) * scale;
        assert_true(fabs(r.cost - expected) <= 1e-9 * expected + 1e-13 * total);
        struct result k = cluster(s, w, n, is_weighted ? importance : NULL, n, bits, QUANT_KMEANS);
        assert_true(k.cost >= expected - 1e-9 * expected - 1e-13 * total);
        assert_true(k.cost <= 1.001 * expected + 1e-13 * total);
    }
    quant_scratch_free(s);
}

/* ---- kmeans against exact ---- */

static void test_kmeans_near_exact(void **state)
{
    (void)state;
    struct quant_scratch *s = quant_scratch_new();
    enum { N = 4096 };
    f16 *w = malloc(N * sizeof *w);
    for (int kind = 0; kind < VALUES_KINDS; kind++) {
        for (int i = 0; i < N_WIDTHS; i++) {
            double sum_exact = 0, sum_kmeans = 0;
            for (int trial = 0; trial < 2; trial++) {
                fill_values(w, N, (enum values_kind)kind);
                double exact = cluster(s, w, N, NULL, 1, widths[i], QUANT_EXACT).cost;
                double kmeans = cluster(s, w, N, NULL, 1, widths[i], QUANT_KMEANS).cost;
                assert_true(kmeans >= exact * (1.0 - 1e-9));
                /* One group may be a little off; a tensor has many. */
                assert_true(kmeans <= exact * (kind == VALUES_CAUCHY ? 1.01 : 1.002));
                sum_exact += exact;
                sum_kmeans += kmeans;
            }
            if (kind != VALUES_CAUCHY)
                assert_true(sum_kmeans <= 1.001 * sum_exact);
        }
    }
    free(w);
    quant_scratch_free(s);
}

/* Trained weights, whose tails and spikes random values lack, in groups of 8 rows of 192. */
static void test_kmeans_trained(void **state)
{
    (void)state;
    enum { N = 8 * 192 };
    FILE *f = fopen(MILKIT_TEST_DATA "/models/qwen3-tiny/model.safetensors", "rb");
    assert_non_null(f);
    struct quant_scratch *s = quant_scratch_new();
    static uint16_t raw[N];
    static f16 w[N];
    double sum_exact = 0, sum_kmeans = 0;
    int n_groups = 0;
    for (long at = 16384; fseek(f, at, SEEK_SET) == 0 && fread(raw, 2, N, f) == N; at += 16 * 2 * (long)N) {
        float x[N];
        bf16_to_f32_n(x, raw, N);
        f32_to_f16_n(w, x, N);
        double exact = cluster(s, w, N, NULL, 1, 4, QUANT_EXACT).cost;
        double kmeans = cluster(s, w, N, NULL, 1, 4, QUANT_KMEANS).cost;
        assert_true(kmeans <= exact * 1.002);
        sum_exact += exact;
        sum_kmeans += kmeans;
        n_groups++;
    }
    assert_true(n_groups > 100 && sum_kmeans <= 1.0001 * sum_exact);
    fclose(f);
    quant_scratch_free(s);
}

/* The fp16 values there are, almost all of them at once. */
static void test_many_distinct(void **state)
{
    (void)state;
    struct quant_scratch *s = quant_scratch_new();
    f16 *w = malloc(65536 * sizeof *w);
    uint8_t *codes = malloc(65536);
    int n = 0;
    for (int bits = 0; bits < 65536; bits++) {
        if ((bits & 0x7c00) != 0x7c00)
            w[n++] = (f16)bits;
    }
    for (int i = 0; i < N_WIDTHS; i++) {
        struct result k = cluster(s, w, n, NULL, 1, widths[i], QUANT_KMEANS);
        quant_assign(s, w, n, codes);
        double error = 0;
        for (int j = 0; j < n; j++) {
            double d = (double)f16_to_f32(w[j]) - (double)f16_to_f32(k.table[codes[j]]);
            error += d * d;
        }
        assert_true(fabs(error - k.stats.error) <= 1e-9 * error);
        assert_int_equal(k.stats.n, n);
        if (widths[i] <= 4) {
            struct result x = cluster(s, w, n, NULL, 1, widths[i], QUANT_EXACT);
            assert_true(k.cost <= 1.001 * x.cost && k.cost >= x.cost * (1 - 1e-9));
        }
    }
    free(codes);
    free(w);
    quant_scratch_free(s);
}

/* ---- tables and codes ---- */

static void check_fit(const f16 *w, int64_t n, const f16 *table, int bits, const uint8_t *codes)
{
    int entries = 1 << bits;
    for (int i = 0; i < entries; i++) {
        assert_true(table[i] != 0x8000 && (table[i] & 0x7c00) != 0x7c00);
        if (i > 0)
            assert_true(f16_to_f32(table[i - 1]) <= f16_to_f32(table[i]));
    }
    for (int64_t i = 0; i < n; i++) {
        double x = (double)f16_to_f32(w[i]);
        assert_true(codes[i] < entries);
        double mine = fabs(x - (double)f16_to_f32(table[codes[i]]));
        for (int k = 0; k < entries; k++) {
            double d = fabs(x - (double)f16_to_f32(table[k]));
            assert_true(d >= mine);
            /* The first of equals. */
            if (d == mine)
                assert_true(k >= codes[i] || f16_to_f32(table[k]) != f16_to_f32(table[codes[i]]) ||
                            table[k] == table[codes[i]]);
        }
    }
}

static void test_palettize_groups(void **state)
{
    (void)state;
    struct quant_scratch *s = quant_scratch_new();
    enum { ROWS = 13, COLUMNS = 37 };
    f16 w[ROWS * COLUMNS], tables[ROWS * 256];
    uint8_t codes[ROWS * COLUMNS];
    static const int64_t groups[] = {1, 2, 4, 5, 8, 13, 100, 0};
    for (int g = 0; g < 8; g++) {
        for (int i = 0; i < N_WIDTHS; i++) {
            int64_t group = groups[g] && groups[g] < ROWS ? groups[g] : ROWS;
            struct quant_stats stats = {0};
            fill_values(w, ROWS * COLUMNS, (enum values_kind)((g + i) % VALUES_KINDS));
            ASSERT_OK(quant_palettize(s, w, ROWS, COLUMNS, groups[g], widths[i], QUANT_KMEANS, NULL, codes,
                                      tables, &stats, e));
            assert_int_equal(stats.n, ROWS * COLUMNS);
            double error = 0;
            for (int64_t row = 0; row < ROWS; row += group) {
                int64_t n = (ROWS - row < group ? ROWS - row : group) * COLUMNS;
                const f16 *table = tables + row / group * (1 << widths[i]);
                check_fit(w + row * COLUMNS, n, table, widths[i], codes + row * COLUMNS);
                for (int64_t k = row * COLUMNS; k < row * COLUMNS + n; k++) {
                    double d = (double)f16_to_f32(w[k]) - (double)f16_to_f32(table[codes[k]]);
                    error += d * d;
                }
            }
            assert_true(fabs(error - stats.error) <= 1e-12 + 1e-9 * error);
        }
    }
    quant_scratch_free(s);
}

/* Smaller groups and wider codes never cost more, and exact never more than kmeans. */
static void test_order_of_errors(void **state)
{
    (void)state;
    struct quant_scratch *s = quant_scratch_new();
    enum { ROWS = 32, COLUMNS = 128 };
    static f16 w[ROWS * COLUMNS], tables[ROWS * 256];
    static uint8_t codes[ROWS * COLUMNS];
    fill_values(w, ROWS * COLUMNS, VALUES_HEAVY);
    double last_width = INFINITY;
    for (int i = 0; i < N_WIDTHS; i++) {
        double last_group = INFINITY, exact_8 = 0, kmeans_8 = 0;
        static const int64_t groups[] = {0, 8, 1};
        for (int g = 0; g < 3; g++) {
            struct quant_stats stats = {0};
            ASSERT_OK(quant_palettize(s, w, ROWS, COLUMNS, groups[g], widths[i], QUANT_EXACT, NULL, codes,
                                      tables, &stats, e));
            assert_true(stats.error < last_group);
            last_group = stats.error;
            if (groups[g] == 8)
                exact_8 = stats.error;
        }
        struct quant_stats stats = {0};
        ASSERT_OK(
            quant_palettize(s, w, ROWS, COLUMNS, 8, widths[i], QUANT_KMEANS, NULL, codes, tables, &stats, e));
        kmeans_8 = stats.error;
        assert_true(exact_8 <= kmeans_8 * (1 + 1e-4));
        assert_true(exact_8 < last_width);
        last_width = exact_8;
    }
    quant_scratch_free(s);
}

/* ---- importance ---- */

static void test_importance(void **state)
{
    (void)state;
    struct quant_scratch *s = quant_scratch_new();
    enum { N = 2048 };
    static f16 w[N];
    static uint8_t plain_codes[N], codes[N];
    static float importance[N];
    fill_values(w, N, VALUES_NORMAL);
    /* The same importance for all is none. */
    for (int i = 0; i < N; i++)
        importance[i] = 0.25f;
    struct result plain = cluster(s, w, N, NULL, 1, 4, QUANT_EXACT);
    quant_assign(s, w, N, plain_codes);
    struct result same = cluster(s, w, N, importance, N, 4, QUANT_EXACT);
    quant_assign(s, w, N, codes);
    assert_memory_equal(plain.table, same.table, 16 * sizeof(f16));
    assert_memory_equal(plain_codes, codes, N);
    /* A few columns that count more get the entries. */
    for (int i = 0; i < N; i++)
        importance[i] = i % 16 == 3 ? 1000.0f : 1.0f;
    struct result weighted = cluster(s, w, N, importance, N, 4, QUANT_KMEANS);
    quant_assign(s, w, N, codes);
    double error[2] = {0}, important[2] = {0};
    for (int i = 0; i < N; i++) {
        double x = (double)f16_to_f32(w[i]), a = x - (double)f16_to_f32(plain.table[plain_codes[i]]),
               b = x - (double)f16_to_f32(weighted.table[codes[i]]);
        error[0] += a * a;
        error[1] += b * b;
        important[0] += i % 16 == 3 ? a * a : 0;
        important[1] += i % 16 == 3 ? b * b : 0;
    }
    assert_true(important[1] < important[0] * 0.9);
    assert_true(error[1] > error[0]);
    /* Zero and wild importance are taken. */
    for (int i = 0; i < N; i++)
        importance[i] = i % 2 ? 0.0f : (float)exp(20.0 * (next_uniform() - 0.5));
    struct result wild = cluster(s, w, N, importance, N, 3, QUANT_KMEANS);
    struct result wild_exact = cluster(s, w, N, importance, N, 3, QUANT_EXACT);
    assert_true(wild.cost <= 1.001 * wild_exact.cost);
    quant_scratch_free(s);
}

/* ---- hard values ---- */

static void test_few_values(void **state)
{
    (void)state;
    struct quant_scratch *s = quant_scratch_new();
    static const f16 patterns[][5] = {
        {0, 0, 0, 0, 0},                          /* nothing but zeros */
        {0x8000, 0x8000, 0, 0x8000, 0},           /* zeros of both signs */
        {0x0001, 0x8001, 0x0002, 0x8000, 0x03ff}, /* subnormals */
        {0x7bff, 0xfbff, 0x7bff, 0xfbff, 0x7bff}, /* the largest */
        {0x3c00, 0x3c00, 0x3c00, 0x3c00, 0x3c00}, /* one value */
        {0x3c00, 0x3c01, 0x3c02, 0xbc00, 0x0000}, /* neighbours */
    };
    for (size_t p = 0; p < sizeof patterns / sizeof patterns[0]; p++) {
        for (int i = 0; i < N_WIDTHS; i++) {
            for (int method = QUANT_KMEANS; method <= QUANT_EXACT; method++) {
                uint8_t codes[5];
                struct result r = cluster(s, patterns[p], 5, NULL, 1, widths[i], (enum quant_method)method);
                quant_assign(s, patterns[p], 5, codes);
                check_fit(patterns[p], 5, r.table, widths[i], codes);
                /* Eight entries hold five values as they are, -0 as +0. */
                for (int k = 0; k < 5 && widths[i] >= 3; k++)
                    assert_int_equal(r.table[codes[k]], patterns[p][k] == 0x8000 ? 0 : patterns[p][k]);
                if (widths[i] >= 3)
                    assert_true(r.stats.error == 0.0);
            }
        }
    }
    quant_scratch_free(s);
}

static void test_refusals(void **state)
{
    (void)state;
    struct quant_scratch *s = quant_scratch_new();
    static const f16 bad[] = {0x7c00, 0xfc00, 0x7e00, 0xfe01, 0x7c01, 0xffff};
    for (int i = 0; i < 6; i++) {
        f16 w[4] = {0x3c00, 0x1234, bad[i], 0xbc00}, table[16];
        struct quant_stats stats = {0};
        struct err e = {0};
        quant_collect_begin(s);
        quant_collect(s, w, 4, NULL, 0, 1);
        assert_false(quant_cluster(s, 4, QUANT_KMEANS, table, &stats, &e));
        assert_int_equal(e.code, ERR_FORMAT);
    }
    /* The scratch is as good as new. */
    f16 w[2] = {0x3c00, 0xbc00};
    struct result r = cluster(s, w, 2, NULL, 1, 1, QUANT_KMEANS);
    assert_int_equal(r.table[0], 0xbc00);
    assert_int_equal(r.table[1], 0x3c00);
    quant_scratch_free(s);
}

/* What a scratch did before leaves no trace. */
static void test_scratch_reuse(void **state)
{
    (void)state;
    struct quant_scratch *used = quant_scratch_new();
    enum { N = 1024 };
    f16 w[N];
    for (int trial = 0; trial < 12; trial++) {
        struct quant_scratch *fresh = quant_scratch_new();
        fill_values(w, N, (enum values_kind)(trial % VALUES_KINDS));
        struct result a = cluster(used, w, N, NULL, 1, widths[trial % N_WIDTHS], QUANT_KMEANS);
        struct result b = cluster(fresh, w, N, NULL, 1, widths[trial % N_WIDTHS], QUANT_KMEANS);
        assert_memory_equal(a.table, b.table, sizeof a.table[0] << widths[trial % N_WIDTHS]);
        quant_scratch_free(fresh);
    }
    quant_scratch_free(used);
}

/* An importance for each element, as heavy-tailed as squared gradients: kmeans within 0.1 % of exact, and with the same one in
 * each column what quant_collect gives. */
static void test_importance_of_each(void **unused)
{
    (void)unused;
    enum { COLUMNS = 192, VALUES = 8 * COLUMNS };
    static f16 w[VALUES];
    static float each[VALUES], by_column[COLUMNS];
    struct quant_scratch *s = quant_scratch_new();
    for (int i = 0; i < VALUES; i++) {
        double g = next_normal() * exp(2.0 * next_normal());
        w[i] = f64_to_f16(0.05 * next_normal());
        each[i] = (float)(g * g) + 1e-6f;
    }
    for (int bits = 2; bits <= 6; bits += bits == 4 ? 2 : 1) {
        double cost[2];
        for (int k = 0; k < 2; k++) {
            f16 table[QUANT_ENTRIES_MAX];
            struct quant_stats stats = {0};
            quant_collect_begin(s);
            quant_collect_each(s, w, VALUES, each);
            ASSERT_OK(quant_cluster(s, bits, k == 0 ? QUANT_EXACT : QUANT_KMEANS, table, &stats, e));
            cost[k] = quant_cluster_cost(s);
            /* The cost is that of the definition, tables being the means of their values. */
            static uint8_t codes[VALUES];
            double sum = 0;
            quant_assign(s, w, VALUES, codes);
            for (int i = 0; i < VALUES; i++) {
                double d = (double)f16_to_f32(w[i]) - (double)f16_to_f32(table[codes[i]]);
                sum += (double)each[i] * d * d;
            }
            assert_true(fabs(sum - cost[k]) <= 2e-3 * cost[k]);
        }
        assert_true(cost[1] >= cost[0] * (1 - 1e-9) && cost[1] <= 1.001 * cost[0]);
    }
    f16 tables[2][QUANT_ENTRIES_MAX];
    for (int i = 0; i < COLUMNS; i++)
        by_column[i] = (float)(1 << i % 9);
    for (int i = 0; i < VALUES; i++)
        each[i] = by_column[i % COLUMNS];
    for (int k = 0; k < 2; k++) {
        struct quant_stats stats = {0};
        quant_collect_begin(s);
        if (k == 0)
            quant_collect(s, w, VALUES, by_column, 0, COLUMNS);
        else
            quant_collect_each(s, w, VALUES, each);
        ASSERT_OK(quant_cluster(s, 4, QUANT_EXACT, tables[k], &stats, e));
    }
    assert_memory_equal(tables[0], tables[1], 16 * sizeof(f16));
    quant_scratch_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_importance_of_each), cmocka_unit_test(test_exact_against_brute_force),
        cmocka_unit_test(test_kmeans_near_exact),  cmocka_unit_test(test_kmeans_trained),
        cmocka_unit_test(test_many_distinct),      cmocka_unit_test(test_palettize_groups),
        cmocka_unit_test(test_order_of_errors),    cmocka_unit_test(test_importance),
        cmocka_unit_test(test_few_values),         cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_scratch_reuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
