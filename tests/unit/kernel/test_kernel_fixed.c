/* Products in fixed point: the plain C level against double arithmetic on the weights that its integers stand for, then
 * every level of this processor bit for bit against plain C: all widths, groups, scales, tails and row counts, with
 * arrays that end at an unreadable page; one row at a time and outputs in parts give the same bits. */
// links: base
#include "kernel_test.h"

static const int widths[] = {1, 2, 3, 4, 6, 8};

struct fixed_case {
    struct fixed_weight w;
    float *x, *bias;
    uint8_t *indices;
    uint8_t *tables;
    float *scales;
    int64_t x_stride, y_stride, n_rows, begin, end;
};

enum table_kind { TABLE_RANDOM, TABLE_EXTREME, TABLE_IDENTITY };

static void fill_table(struct random_state *r, uint8_t *table, int bits, enum table_kind kind)
{
    int n = 1 << bits;
    for (int k = 0; k < n; k++) {
        int value = (int)random_between(r, -FIXED_MAX, FIXED_MAX);
        if (kind == TABLE_EXTREME || random_bits(r) % 16 == 0)
            value = random_bits(r) % 2 ? FIXED_MAX : -FIXED_MAX;
        if (kind == TABLE_IDENTITY)
            value = k < n / 2 ? k : k - n;
        table[k] = (uint8_t)((unsigned)value >> 8 & 255);
        table[n + k] = (uint8_t)((unsigned)value & 255);
    }
}

/* group_rows 0: one table for all; scale_rows 0: one scale for all; scale_block 0: no blocks. */
static struct fixed_case make_case(struct guard_pool *pool, struct random_state *r, int bits, int64_t n_out,
                                   int64_t n_in, int64_t n_rows, int64_t group_rows, int64_t scale_rows,
                                   int64_t scale_block, enum table_kind tables, enum numbers numbers)
{
    struct fixed_case c = {.n_rows = n_rows, .x_stride = n_in, .y_stride = n_out, .end = n_out};
    int64_t n_groups = group_rows > 0 ? (n_out + group_rows - 1) / group_rows : 1;
    int64_t n_scales = scale_block > 0  ? n_out * (n_in / scale_block)
                       : scale_rows > 0 ? (n_out + scale_rows - 1) / scale_rows
                                        : 1;
    int64_t n_bytes = (n_out * n_in * bits + 7) / 8, table_bytes = (int64_t)2 << bits;
    c.indices = guard_alloc(pool, (size_t)n_bytes);
    for (int64_t i = 0; i < n_bytes; i++)
        c.indices[i] = (uint8_t)random_bits(r);
    c.tables = guard_alloc(pool, (size_t)(n_groups * table_bytes));
    for (int64_t g = 0; g < n_groups; g++)
        fill_table(r, c.tables + g * table_bytes, bits, tables);
    c.scales = guard_alloc(pool, (size_t)n_scales * sizeof(float));
    for (int64_t i = 0; i < n_scales; i++)
        c.scales[i] = ldexpf(1.0f + random_unit(r) * 0.5f, -18);
    c.w = (struct fixed_weight){.bits = bits,
                                .indices = c.indices,
                                .n_out = n_out,
                                .n_in = n_in,
                                .tables = c.tables,
                                .table_stride = group_rows > 0 ? table_bytes : 0,
                                .rows_per_group = group_rows > 0 ? group_rows : n_out,
                                .scales = c.scales,
                                .rows_per_scale = scale_rows > 0 ? scale_rows : n_out,
                                .scale_block = scale_block};
    c.x = guarded_floats(pool, r, n_rows * n_in, numbers);
    if (random_bits(r) % 2)
        c.bias = guarded_floats(pool, r, n_out, NUMBERS_PLAIN);
    return c;
}

static void *prepare(const struct kernels *k, struct guard_pool *pool, const struct fixed_case *c,
                     int64_t first, int64_t n_rows, int64_t cut)
{
    size_t bytes = k->fixed_bytes(n_rows, c->w.n_in);
    assert_int_equal(bytes % 64, 0);
    char *to = guard_alloc(pool, bytes);
    const float *x = c->x + first * c->x_stride;
    k->fixed_prepare(to, x, c->x_stride, n_rows, c->w.n_in, cut, n_rows, c->w.bits);
    k->fixed_prepare(to, x, c->x_stride, n_rows, c->w.n_in, 0, cut, c->w.bits);
    return to;
}

static void run(const struct kernels *k, const struct fixed_case *c, float *y, const void *prepared,
                int64_t first, int64_t n_rows, int64_t begin, int64_t end, void *scratch)
{
    k->linear_fixed(y + first * c->y_stride, c->y_stride, prepared, &c->w, c->bias, n_rows, begin, end,
                    scratch);
}

/* Against plain C, then one row at a time, then outputs in two parts; what is outside the range stays. */
static void check_case(struct guard_pool *pool, struct random_state *r, const struct kernels *k,
                       const struct kernels *scalar, const struct fixed_case *c)
{
    int64_t n_y = c->n_rows > 0 ? (c->n_rows - 1) * c->y_stride + c->w.n_out : 0;
    float *y[4], *start = guarded_floats(pool, r, n_y, NUMBERS_PLAIN);
    for (int i = 0; i < 4; i++) {
        y[i] = guard_alloc(pool, (size_t)n_y * sizeof(float));
        if (n_y > 0)
            memcpy(y[i], start, (size_t)n_y * sizeof(float));
    }
    void *scratch = guard_alloc(pool, KERNEL_FIXED_SCRATCH(c->w.n_in, c->n_rows));
    void *row_scratch = guard_alloc(pool, KERNEL_FIXED_SCRATCH(c->w.n_in, 1));
    run(scalar, c, y[0], prepare(scalar, pool, c, 0, c->n_rows, 0), 0, c->n_rows, c->begin, c->end, NULL);
    const void *prepared = prepare(k, pool, c, 0, c->n_rows, random_between(r, 0, c->n_rows));
    run(k, c, y[1], prepared, 0, c->n_rows, c->begin, c->end, scratch);
    char what[160];
    snprintf(what, sizeof what,
             "%s, %d bits, %lld x %lld, %lld rows, groups of %lld, scales of %lld rows, %lld columns",
             k->name, c->w.bits, (long long)c->w.n_out, (long long)c->w.n_in, (long long)c->n_rows,
             (long long)c->w.rows_per_group, (long long)c->w.rows_per_scale, (long long)c->w.scale_block);
    assert_same_floats(what, y[1], y[0], n_y);
    for (int64_t row = 0; row < c->n_rows; row++)
        run(k, c, y[2], prepare(k, pool, c, row, 1, 0), row, 1, c->begin, c->end, row_scratch);
    assert_same_floats("row by row", y[2], y[0], n_y);
    int64_t middle = random_between(r, c->begin, c->end);
    run(k, c, y[3], prepared, 0, c->n_rows, middle, c->end, scratch);
    run(k, c, y[3], prepared, 0, c->n_rows, c->begin, middle, scratch);
    assert_same_floats("outputs in two parts", y[3], y[0], n_y);
}

static void check_level(const struct kernels *k)
{
    static const int64_t columns[] = {0,   1,   2,   3,   5,   7,   8,   16,  31,  32,   33,  64,
                                      100, 128, 144, 255, 256, 257, 300, 512, 513, 1000, 768, 1040};
    static const int64_t groups[] = {0, 1, 2, 3, 8, 16};
    static const int64_t blocks[] = {16, 32, 64, 128, 256, 512};
    const struct kernels *scalar = kernel_table(CPU_SCALAR);
    struct random_state r = {0x452821e638d01377u};
    for (int round = 0; round < 900; round++) {
        struct guard_pool pool = {.n = 0};
        int bits = widths[round % 6];
        int64_t n_in = columns[random_bits(&r) % 24], n_out = random_between(&r, 0, 37), n_rows = 1;
        int64_t group = groups[random_bits(&r) % 6], scale = groups[random_bits(&r) % 6], block = 0;
        enum table_kind tables = TABLE_RANDOM;
        if (round / 6 % 2)
            n_rows = random_between(&r, 0, 11);
        if (round / 6 % 11 == 0)
            tables = TABLE_EXTREME;
        if ((bits == 4 || bits == 8) && random_bits(&r) % 2)
            tables = TABLE_IDENTITY;
        if (tables == TABLE_IDENTITY)
            group = 0;
        if (round / 6 % 5 == 0) {
            block = blocks[random_bits(&r) % 6];
            n_in = block * random_between(&r, 1, 900 / block);
        }
        enum numbers numbers = round / 6 % 7 == 0   ? NUMBERS_SPECIAL
                               : round / 6 % 7 == 1 ? NUMBERS_WIDE
                                                    : NUMBERS_PLAIN;
        struct fixed_case c =
            make_case(&pool, &r, bits, n_out, n_in, n_rows, group, scale, block, tables, numbers);
        if (tables == TABLE_EXTREME) {
            for (int64_t i = 0; i < n_rows * n_in; i++)
                c.x[i] = random_bits(&r) % 32 ? c.x[0] : -c.x[0];
        }
        if (round % 4 == 3) {
            c.begin = random_between(&r, 0, n_out);
            c.end = random_between(&r, c.begin, n_out);
        }
        check_case(&pool, &r, k, scalar, &c);
        guard_free_all(&pool);
    }
}

/* More activation rows than share one decoding, and rows that lie apart. */
static void check_many_rows(const struct kernels *k)
{
    struct random_state r = {0x3f84d5b5b5470917u};
    for (int i = 0; i < 6; i++) {
        struct guard_pool pool = {.n = 0};
        struct fixed_case c =
            make_case(&pool, &r, widths[i], 21, 264, 131, 8, 8, 0, TABLE_RANDOM, NUMBERS_PLAIN);
        c.x_stride = 300;
        c.y_stride = 23;
        c.x = guarded_floats(&pool, &r, 130 * c.x_stride + c.w.n_in, NUMBERS_PLAIN);
        check_case(&pool, &r, k, kernel_table(CPU_SCALAR), &c);
        guard_free_all(&pool);
    }
}

/* Scales of blocks smaller than any register's half, for every width, with tables too. */
static void check_small_blocks(const struct kernels *k)
{
    struct random_state r = {0x9216d5d98979fb1bu};
    for (int round = 0; round < 60; round++) {
        struct guard_pool pool = {.n = 0};
        int bits = widths[round % 6];
        int64_t block = (int64_t)16 << round % 4, n_in = block * random_between(&r, 1, 640 / block);
        enum table_kind tables = bits % 4 == 0 && round % 5 ? TABLE_IDENTITY : TABLE_RANDOM;
        struct fixed_case c = make_case(&pool, &r, bits, 11, n_in, 1 + round % 5,
                                        tables == TABLE_IDENTITY ? 0 : 4, 1, block, tables, NUMBERS_PLAIN);
        check_case(&pool, &r, k, kernel_table(CPU_SCALAR), &c);
        guard_free_all(&pool);
    }
}

/* Many blocks, of which a walk over several rows at a time meets the first, those between and the last, with tables that
 * change at the walk's steps and between them. */
static void check_long_rows(const struct kernels *k)
{
    static const int64_t columns[] = {1280, 1536, 1540, 1542}, groups[] = {0, 1, 5, 8};
    struct random_state r = {0x2ffd72dbd01adfb7u};
    for (int round = 0; round < 48; round++) {
        struct guard_pool pool = {.n = 0};
        struct fixed_case c = make_case(&pool, &r, widths[round % 6], 29, columns[round / 6 % 4], 1,
                                        groups[random_bits(&r) % 4], 8, 0, TABLE_RANDOM, NUMBERS_PLAIN);
        check_case(&pool, &r, k, kernel_table(CPU_SCALAR), &c);
        guard_free_all(&pool);
    }
}

static void test_levels_agree(void **state)
{
    (void)state;
    struct kernels k;
    for (int level = 0; level < CPU_LEVELS; level++) {
        if (!kernel_table((enum cpu_level)level))
            printf("skipped: level %d is not in this processor or build\n", level);
    }
    for (int i = 0; kernel_variant(i, &k); i++) {
        check_level(&k);
        check_many_rows(&k);
        check_long_rows(&k);
        check_small_blocks(&k);
    }
}

/* What the integers of weight (o, i) stand for. */
static double weight_of(const struct fixed_weight *w, int64_t o, int64_t i)
{
    unsigned index = 0;
    for (int bit = 0; bit < w->bits; bit++) {
        int64_t at = (o * w->n_in + i) * w->bits + bit;
        index |= (unsigned)(w->indices[at / 8] >> (at % 8) & 1) << bit;
    }
    const uint8_t *table = w->tables + o / w->rows_per_group * w->table_stride;
    float scale = w->scale_block > 0 ? w->scales[o * (w->n_in / w->scale_block) + i / w->scale_block]
                                     : w->scales[o / w->rows_per_scale];
    return (256.0 * (int8_t)table[index] + table[(1 << w->bits) + index]) * (double)scale;
}

/* Plain C against double arithmetic: the sum's error is that of 14-bit activations. */
static void test_accuracy(void **state)
{
    (void)state;
    const struct kernels *scalar = kernel_table(CPU_SCALAR);
    struct random_state r = {0xd1310ba698dfb5acu};
    double worst = 0;
    for (int round = 0; round < 48; round++) {
        struct guard_pool pool = {.n = 0};
        enum { N_OUT = 24, N_ROWS = 3 };
        int bits = widths[round % 6];
        int64_t n_in = round % 2 ? 1024 : 512 + 16 * (round % 30),
                block = round % 3 == 2 ? 16 << round % 6 : 0;
        if (block > 0)
            n_in = 1024;
        enum table_kind tables = bits % 4 == 0 && round % 12 > 5 ? TABLE_IDENTITY : TABLE_RANDOM;
        struct fixed_case c =
            make_case(&pool, &r, bits, N_OUT, n_in, N_ROWS, 8, 8, block, tables, NUMBERS_PLAIN);
        float y[N_ROWS * N_OUT];
        if (round % 4 == 1) /* one channel far larger than the others */
            for (int64_t t = 0; t < N_ROWS; t++)
                c.x[t * n_in + 5] *= 50.0f;
        run(scalar, &c, y, prepare(scalar, &pool, &c, 0, N_ROWS, 1), 0, N_ROWS, 0, N_OUT, NULL);
        double error = 0, norm = 0;
        for (int64_t t = 0; t < N_ROWS; t++) {
            for (int64_t o = 0; o < N_OUT; o++) {
                double sum = c.bias ? (double)c.bias[o] : 0;
                for (int64_t i = 0; i < n_in; i++)
                    sum += (double)c.x[t * n_in + i] * weight_of(&c.w, o, i);
                double d = (double)y[t * N_OUT + o] - sum;
                error += d * d;
                norm += sum * sum;
            }
        }
        double relative = sqrt(error / norm);
        worst = relative > worst ? relative : worst;
        guard_free_all(&pool);
    }
    printf("relative error at most %.3g\n", worst);
    assert_true(worst < 1e-3);
    assert_true(worst > 0);
}

/* A row with a NaN or an infinity is NaN throughout; its neighbours don't notice. */
static void test_not_finite(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    struct kernels variant;
    const struct kernels *k = &variant;
    for (int i = 0; kernel_variant(i, &variant); i++) {
        struct random_state r = {0x98dfb5ac2ffd72dbu};
        for (int round = 0; round < 36; round++) {
            struct guard_pool pool = {.n = 0};
            enum { N_OUT = 9, N_ROWS = 3, N_IN = 608 };
            int64_t block = round % 12 > 5 ? 8 * (round % 3 + 1) * 5 : 0;
            enum table_kind tables = TABLE_RANDOM;
            if (block > 0)
                block = 0;
            struct fixed_case c = make_case(&pool, &r, widths[round % 6], N_OUT, N_IN, N_ROWS, 4, 1, block,
                                            tables, NUMBERS_PLAIN);
            float clean[N_ROWS * N_OUT], y[N_ROWS * N_OUT], one[N_ROWS * N_OUT];
            void *scratch = guard_alloc(&pool, KERNEL_FIXED_SCRATCH(N_IN, N_ROWS));
            void *row_scratch = guard_alloc(&pool, KERNEL_FIXED_SCRATCH(N_IN, 1));
            run(k, &c, clean, prepare(k, &pool, &c, 0, N_ROWS, 0), 0, N_ROWS, 0, N_OUT, scratch);
            c.x[N_IN + random_between(&r, 0, N_IN - 1)] = bad[round % 3];
            run(k, &c, y, prepare(k, &pool, &c, 0, N_ROWS, 0), 0, N_ROWS, 0, N_OUT, scratch);
            run(k, &c, one, prepare(k, &pool, &c, 1, 1, 0), 1, 1, 0, N_OUT, row_scratch);
            assert_same_floats("row before", y, clean, N_OUT);
            assert_same_floats("row after", y + 2 * N_OUT, clean + 2 * N_OUT, N_OUT);
            for (int o = N_OUT; o < 2 * N_OUT; o++) {
                assert_true(isnan(y[o]));
                assert_true(isnan(one[o]));
            }
            guard_free_all(&pool);
        }
    }
}

/* One product by hand: 3 columns, int8 weights, activations whose quanta are whole numbers. */
static void test_by_hand(void **state)
{
    (void)state;
    uint8_t table[512];
    struct random_state r = {1};
    const uint8_t indices[6] = {1, 0x80, 0xff, 2, 3, 4}; /* 1, -128, -1; 2, 3, 4 */
    const float x[3] = {8191.0f, 1.0f, -256.0f}, scale = 1.0f, bias[2] = {0.5f, 0.0f};
    const float expected[2] = {8191.0f - 128.0f + 256.0f + 0.5f, 2.0f * 8191.0f + 3.0f - 4.0f * 256.0f};
    fill_table(&r, table, 8, TABLE_IDENTITY);
    struct fixed_weight w = {.bits = 8,
                             .indices = indices,
                             .n_out = 2,
                             .n_in = 3,
                             .tables = table,
                             .rows_per_group = 2,
                             .scales = &scale,
                             .rows_per_scale = 2};
    struct kernels variant;
    const struct kernels *k = &variant;
    for (int i = 0; kernel_variant(i, &variant); i++) {
        float y[2];
        void *prepared = aligned_alloc(64, k->fixed_bytes(1, 3)),
             *scratch = malloc(KERNEL_FIXED_SCRATCH(3, 1));
        k->fixed_prepare(prepared, x, 3, 1, 3, 0, 1, 8);
        k->linear_fixed(y, 2, prepared, &w, bias, 1, 0, 2, scratch);
        assert_same_floats(k->name, y, expected, 2);
        free(prepared);
        free(scratch);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_accuracy),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_levels_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
