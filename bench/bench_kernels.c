/* Speed of every kernel of kernel.def at every level of this machine, beside a plain read of the same bytes
 * and the fused multiply-adds that its registers can do, all in one run: ratios hold on a busy machine,
 * absolute numbers don't.
 *
 * bench_kernels [threads [rounds [name filter]]]. Each figure is the best of the rounds; levels, reads and
 * peak take turns within a round. GB/s counts weights or inputs once. */
// links: kernel
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/log.h"
#include "base/pool.h"
#include "kernel/kernel.h"

struct job {
    const struct kernels *k;
    const char *name;
    float *x, *y, *mask, *scratch; /* scratch [threads, scratch_floats] */
    size_t scratch_floats;
    void *w;
    f16 *keys, *values;
    int32_t *begin, *end;
    int64_t n_rows, n_in, n_out, n_heads;
    double bytes, flops; /* of one run */
    struct fixed_weight fixed;
    void *prepared;
    void (*before)(struct job *j); /* NULL or what a level needs before it is timed */
    uint64_t read_sum[64];
};

#if defined(__x86_64__)
#include <immintrin.h>
#define TARGET_AVX2 __attribute__((target("avx2,fma")))
#endif

/* Sums the bytes in four streams with prefetch: about what memory gives at most. */
#if defined(__x86_64__)
TARGET_AVX2 static void run_read(void *ctx, int i_thread, int n_threads)
{
    struct job *j = ctx;
    int64_t begin, end;
    pool_split((int64_t)j->bytes / 8, 64, i_thread, n_threads, &begin, &end);
    int64_t quarter = (end - begin) / 4 / 8 * 8;
    const uint64_t *p = (const uint64_t *)j->w + begin;
    __m256i s[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
                    _mm256_setzero_si256()};
    for (int64_t i = 0; i + 8 <= quarter; i += 8) {
        for (int q = 0; q < 4; q++) {
            const uint64_t *at = p + q * quarter + i;
            _mm_prefetch((const char *)(at + 256), _MM_HINT_T0);
            s[q] = _mm256_xor_si256(s[q], _mm256_loadu_si256((const __m256i *)(const void *)at));
            s[q] = _mm256_xor_si256(s[q], _mm256_loadu_si256((const __m256i *)(const void *)(at + 4)));
        }
    }
    for (int q = 0; q < 4; q++)
        j->read_sum[i_thread] +=
            (uint64_t)_mm256_extract_epi64(s[q], 0) ^ (uint64_t)_mm256_extract_epi64(s[q], 2);
}
#else
static void run_read(void *ctx, int i_thread, int n_threads)
{
    struct job *j = ctx;
    int64_t begin, end;
    pool_split((int64_t)j->bytes / 8, 64, i_thread, n_threads, &begin, &end);
    const uint64_t *p = j->w;
    uint64_t s[8] = {0};
    for (int64_t i = begin; i + 8 <= end; i += 8) {
        for (int u = 0; u < 8; u++)
            s[u] += p[i + u];
    }
    for (int u = 0; u < 8; u++)
        j->read_sum[i_thread] += s[u];
}
#endif

#if defined(__x86_64__)
enum { PEAK_STEPS = 4000000 };
TARGET_AVX2 static void run_peak_avx2(void *ctx, int i_thread, int n_threads)
{
    (void)n_threads;
    struct job *j = ctx;
    __m256 a[12], b = _mm256_set1_ps(0.999f), c = _mm256_set1_ps(1e-3f);
    for (int u = 0; u < 12; u++)
        a[u] = _mm256_set1_ps((float)u);
    for (int i = 0; i < PEAK_STEPS; i++) {
        for (int u = 0; u < 12; u++)
            a[u] = _mm256_fmadd_ps(a[u], b, c);
    }
    for (int u = 1; u < 12; u++)
        a[0] = _mm256_add_ps(a[0], a[u]);
    _mm256_storeu_ps(j->scratch + 16 * i_thread, a[0]);
}
#endif

static void run_linear_f16(void *ctx, int i_thread, int n_threads)
{
    struct job *j = ctx;
    int64_t begin, end;
    pool_split(j->n_out, 16, i_thread, n_threads, &begin, &end);
    j->k->linear_f16(j->y, j->n_out, j->x, j->n_in, j->w, NULL, j->n_rows, j->n_in, begin, end,
                     j->scratch + (size_t)i_thread * j->scratch_floats);
}

static void run_linear_f32(void *ctx, int i_thread, int n_threads)
{
    struct job *j = ctx;
    int64_t begin, end;
    pool_split(j->n_out, 16, i_thread, n_threads, &begin, &end);
    j->k->linear_f32(j->y, j->n_out, j->x, j->n_in, j->w, NULL, j->n_rows, j->n_in, begin, end,
                     j->scratch + (size_t)i_thread * j->scratch_floats);
}

static void run_linear_fixed(void *ctx, int i_thread, int n_threads)
{
    struct job *j = ctx;
    int64_t begin, end;
    pool_split(j->n_out, 16, i_thread, n_threads, &begin, &end);
    j->k->linear_fixed(j->y, j->n_out, j->prepared, &j->fixed, NULL, j->n_rows, begin, end,
                       j->scratch + (size_t)i_thread * j->scratch_floats);
}

static void run_fixed_prepare(void *ctx, int i_thread, int n_threads)
{
    struct job *j = ctx;
    int64_t begin, end;
    pool_split(j->n_rows, 1, i_thread, n_threads, &begin, &end);
    j->k->fixed_prepare(j->prepared, j->x, j->n_in, j->n_rows, j->n_in, begin, end, j->fixed.bits);
}

/* n_in is the head width, n_out the positions; heads are independent caches [n_heads, n_out, n_in]. */
static void run_attention(void *ctx, int i_thread, int n_threads)
{
    struct job *j = ctx;
    int64_t begin, end;
    pool_split(j->n_heads, 1, i_thread, n_threads, &begin, &end);
    for (int64_t h = begin; h < end; h++)
        j->k->attention_f16(j->y + h * j->n_rows * j->n_in, j->n_in, j->x + h * j->n_rows * j->n_in, j->n_in,
                            j->n_rows, j->keys + h * j->n_out * j->n_in, j->n_in,
                            j->values + h * j->n_out * j->n_in, j->n_in, j->n_in, j->n_in, j->begin, j->end,
                            NULL, 0, 0.1f, j->scratch + (size_t)i_thread * j->scratch_floats);
}

/* The others: rows of n_in floats, n_rows of them, split among the threads. */
#define RUN_ROWS(member, call)                                                                               \
    static void run_##member(void *ctx, int i_thread, int n_threads)                                         \
    {                                                                                                        \
        struct job *j = ctx;                                                                                 \
        int64_t begin, end, n = j->n_in;                                                                     \
        pool_split(j->n_rows, 1, i_thread, n_threads, &begin, &end);                                         \
        for (int64_t r = begin; r < end; r++) {                                                              \
            float *y = j->y + r * n;                                                                         \
            const float *x = j->x + r * n;                                                                   \
            j->k->member call;                                                                               \
        }                                                                                                    \
    }
RUN_ROWS(rms_norm, (y, x, j->mask, n, 1e-6f))
RUN_ROWS(layer_norm, (y, x, j->mask, j->mask, n, 1e-6f))
RUN_ROWS(rope, (y, x, j->mask, j->mask, n / 2, n / 2, n))
RUN_ROWS(softmax, (y, x, n))
RUN_ROWS(exp, (y, x, n))
RUN_ROWS(tanh, (y, x, n))
RUN_ROWS(sigmoid, (y, x, n))
RUN_ROWS(silu_mul, (y, x, j->mask, n))
RUN_ROWS(add, (y, x, j->mask, n, 1))
RUN_ROWS(sub, (y, x, j->mask, n, 1))
RUN_ROWS(mul, (y, x, j->mask, n, 1))
RUN_ROWS(f16_to_f32, (y, (const f16 *)x, n))
RUN_ROWS(f32_to_f16, ((f16 *)y, x, n))
RUN_ROWS(round_f16, (y, x, n))

static void *fill(size_t bytes, bool is_f16)
{
    struct err e = {0};
    void *p = mem_try_alloc(bytes ? bytes : 64, &e);
    if (!p) {
        fprintf(stderr, "%s\n", e.msg);
        exit(6);
    }
    uint32_t s = 12345;
    for (size_t i = 0; i < bytes / (is_f16 ? 2 : 4); i++) {
        s = s * 1664525u + 1013904223u;
        if (is_f16)
            ((f16 *)p)[i] = (f16)((s >> 16 & 0x83ff) | 0x3800);
        else
            ((float *)p)[i] = (float)(int32_t)s * 0x1p-31f;
    }
    return p;
}

/* About normally distributed: how often sums in fixed point are taken apart depends on how activations are distributed. */
static void make_normal(float *x, int64_t n)
{
    uint32_t s = 54321;
    for (int64_t i = 0; i < n; i++) {
        x[i] = 0;
        for (int k = 0; k < 8; k++) {
            s = s * 1664525u + 1013904223u;
            x[i] += (float)(int32_t)s * 0x1p-32f;
        }
    }
}

static void prepare_fixed(struct job *j)
{
    mem_free(j->prepared);
    j->prepared = fill(j->k->fixed_bytes(j->n_rows, j->n_in), false);
    j->k->fixed_prepare(j->prepared, j->x, j->n_in, j->n_rows, j->n_in, 0, j->n_rows, j->fixed.bits);
}

/* One thread is timed by its own processor time, which others on the machine disturb less. */
static double seconds(const struct pool *p)
{
    struct timespec t;
    if (pool_threads(p) > 1 || clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) != 0)
        return clock_seconds();
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double timed(struct pool *p, pool_fn fn, struct job *j)
{
    double start = seconds(p);
    pool_run(p, fn, j);
    return seconds(p) - start;
}

static double peak_gflops; /* of AVX2, best seen in this run */

static void measure(struct pool *pool, struct job *j, pool_fn fn, int rounds, bool with_read)
{
    double best[CPU_LEVELS], read = INFINITY;
    for (int level = 0; level < CPU_LEVELS; level++)
        best[level] = INFINITY;
    for (int round = 0; round < rounds; round++) {
        if (with_read)
            read = fmin(read, timed(pool, run_read, j));
#if defined(__x86_64__)
        if (kernel_table(CPU_AVX2))
            peak_gflops = fmax(peak_gflops, pool_threads(pool) * PEAK_STEPS * 12.0 * 16 /
                                                timed(pool, run_peak_avx2, j) * 1e-9);
#endif
        for (int level = 0; level < CPU_LEVELS; level++) {
            j->k = kernel_table((enum cpu_level)level);
            /* plain C is tens of times slower: once is enough, and not for the large ones */
            if (!j->k || (level == CPU_SCALAR && (round > 0 || j->flops >= 2.5e8)))
                continue;
            if (j->before)
                j->before(j);
            best[level] = fmin(best[level], timed(pool, fn, j));
        }
    }
    for (int level = 0; level < CPU_LEVELS; level++) {
        if (best[level] == INFINITY)
            continue;
        printf("%-28s %-7s %8.2f GB/s", j->name, kernel_table((enum cpu_level)level)->name,
               j->bytes / best[level] * 1e-9);
        if (with_read)
            printf("  %5.1f %% of plain read (%.1f)", 100 * read / best[level], j->bytes / read * 1e-9);
        if (j->flops > 0)
            printf("  %8.2f GFLOP/s", j->flops / best[level] * 1e-9);
        if (j->flops > 0 && peak_gflops > 0)
            printf("  %5.1f %% of AVX2 peak (%.0f)", 100 * j->flops / best[level] * 1e-9 / peak_gflops,
                   peak_gflops);
        printf("\n");
    }
    fflush(stdout);
}

static void bench_linear(struct pool *pool, pool_fn fn, const char *name, bool is_f16, int64_t n_rows,
                         int64_t n_in, int64_t n_out, int rounds)
{
    char label[64];
    snprintf(label, sizeof label, "%s %lldx%lldx%lld", name, (long long)n_rows, (long long)n_in,
             (long long)n_out);
    size_t element = is_f16 ? sizeof(f16) : sizeof(float);
    struct job j = {.name = label, .n_rows = n_rows, .n_in = n_in, .n_out = n_out};
    j.bytes = (double)n_in * (double)n_out * (double)element;
    j.flops = 2.0 * (double)n_in * (double)n_out * (double)n_rows;
    j.scratch_floats = KERNEL_LINEAR_SCRATCH(n_in, n_rows);
    j.x = fill((size_t)(n_rows * n_in) * 4, false);
    j.y = fill((size_t)(n_rows * n_out) * 4, false);
    j.w = fill((size_t)j.bytes, is_f16);
    j.scratch = fill(j.scratch_floats * 4 * 64, false);
    measure(pool, &j, fn, rounds, n_rows == 1);
    mem_free(j.x);
    mem_free(j.y);
    mem_free(j.w);
    mem_free(j.scratch);
}

/* bits < 0: -bits wide integers; block > 0: columns that share a scale */
static void bench_fixed(struct pool *pool, pool_fn fn, const char *name, int bits, int64_t block,
                        int64_t n_rows, int64_t n_in, int64_t n_out, int rounds)
{
    enum { GROUP = 8 };
    char label[64];
    bool is_identity = bits < 0;
    bits = abs(bits);
    snprintf(label, sizeof label, "%s %s%d%s %lldx%lldx%lld", name, is_identity ? "int" : "lut", bits,
             block > 0 ? "/b" : "", (long long)n_rows, (long long)n_in, (long long)n_out);
    struct job j = {.name = label, .n_rows = n_rows, .n_in = n_in, .n_out = n_out, .before = prepare_fixed};
    size_t n_scales = (size_t)(block > 0 ? n_out * (n_in / block) : n_out / GROUP);
    size_t n_entries = (size_t)1 << bits, n_tables = is_identity ? 1 : (size_t)n_out / GROUP;
    j.bytes = fn == run_fixed_prepare ? (double)(n_rows * n_in * 4)
                                      : (double)n_in * (double)n_out * (double)bits / 8;
    j.flops = fn == run_fixed_prepare ? 0 : 2.0 * (double)n_in * (double)n_out * (double)n_rows;
    j.scratch_floats = KERNEL_FIXED_SCRATCH(n_in, n_rows) / 4;
    j.x = fill((size_t)(n_rows * n_in) * 4, false);
    make_normal(j.x, n_rows * n_in);
    j.y = fill((size_t)(n_rows * n_out) * 4, false);
    j.w = fill((size_t)(n_in * n_out * bits / 8), false);
    j.scratch = fill(j.scratch_floats * 4 * 64, false);
    uint8_t *tables = fill(n_tables * 2 * n_entries + 64, false);
    for (size_t k = 0; k < n_tables * 2 * n_entries; k++) { /* upper bytes of numbers of at most 14 bits */
        if (k / n_entries % 2 == 0)
            tables[k] = (uint8_t)((tables[k] & 63) - 32 + (tables[k] % 64 == 0));
    }
    for (size_t k = 0; is_identity && k < n_entries; k++) {
        int value = k < n_entries / 2 ? (int)k : (int)k - (int)n_entries;
        tables[k] = value < 0 ? 255 : 0;
        tables[n_entries + k] = (uint8_t)(value & 255);
    }
    float *scales = fill(n_scales * 4, false);
    j.fixed = (struct fixed_weight){.bits = bits,
                                    .indices = j.w,
                                    .n_out = n_out,
                                    .n_in = n_in,
                                    .tables = tables,
                                    .table_stride = is_identity ? 0 : (int64_t)(2 * n_entries),
                                    .rows_per_group = is_identity ? n_out : GROUP,
                                    .scales = scales,
                                    .rows_per_scale = GROUP,
                                    .scale_block = block};
    measure(pool, &j, fn, rounds, n_rows == 1);
    mem_free(j.x);
    mem_free(j.y);
    mem_free(j.w);
    mem_free(j.scratch);
    mem_free(j.prepared);
    mem_free(tables);
    mem_free(scales);
}

static void bench_attention(struct pool *pool, const char *name, int64_t n_rows, int64_t width,
                            int64_t n_positions, int64_t n_heads, int rounds)
{
    char label[64];
    snprintf(label, sizeof label, "%s %lldx%lldx%lld", name, (long long)n_rows, (long long)width,
             (long long)n_positions);
    size_t cache = (size_t)(n_heads * n_positions * width);
    struct job j = {.name = label, .n_rows = n_rows, .n_in = width, .n_out = n_positions, .n_heads = n_heads};
    j.bytes = (double)cache * 4;
    j.flops = 4.0 * (double)cache * (double)n_rows;
    j.scratch_floats = KERNEL_ATTENTION_SCRATCH(n_positions, n_rows, width, width);
    j.x = fill((size_t)(n_heads * n_rows * width) * 4, false);
    j.y = fill((size_t)(n_heads * n_rows * width) * 4, false);
    j.w = fill(cache * 4, true);
    j.keys = j.w;
    j.values = j.keys + cache;
    j.begin = xcalloc((size_t)n_rows, sizeof *j.begin);
    j.end = xcalloc((size_t)n_rows, sizeof *j.end);
    for (int64_t r = 0; r < n_rows; r++)
        j.end[r] = (int32_t)n_positions;
    j.scratch = fill(j.scratch_floats * 4 * 64, false);
    measure(pool, &j, run_attention, rounds, n_rows <= 16);
    mem_free(j.x);
    mem_free(j.y);
    mem_free(j.w);
    mem_free(j.scratch);
    free(j.begin);
    free(j.end);
}

static void bench_rows(struct pool *pool, pool_fn fn, const char *name, int rounds)
{
    struct job j = {.name = name, .n_rows = 1024, .n_in = 1024};
    size_t bytes = (size_t)(j.n_rows * j.n_in) * 4;
    j.bytes = (double)bytes;
    j.x = fill(bytes, false);
    j.y = fill(bytes, false);
    j.mask = fill((size_t)j.n_in * 4, false);
    j.scratch = fill(64 * 64, false);
    measure(pool, &j, fn, rounds, false);
    mem_free(j.x);
    mem_free(j.y);
    mem_free(j.mask);
    mem_free(j.scratch);
}

static void bench_linear_shapes(struct pool *pool, pool_fn fn, const char *name, bool is_f16, int rounds)
{
    static const int64_t shapes[][3] = {{1, 1024, 65536}, {1, 4096, 16384}, {4, 2048, 8192},
                                        {64, 1024, 4096}, {64, 2048, 2048}, {64, 8192, 1024}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        bench_linear(pool, fn, name, is_f16, shapes[i][0], shapes[i][1], shapes[i][2], rounds);
}

static void bench_attention_shapes(struct pool *pool, const char *name, int rounds)
{
    static const int64_t shapes[][4] = {
        {1, 128, 4096, 16}, {4, 128, 8192, 8}, {8, 64, 8192, 8}, {256, 128, 1024, 4}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        bench_attention(pool, name, shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3], rounds);
}

/* Heads of 128 x 128 as in the published models, 64 tokens a call and one. */
static void run_gated_delta_heads(void *context, int i_thread, int n_threads)
{
    const struct gated_delta *heads = context;
    const char *why;
    const struct kernels *k = kernel_select(&why);
    int64_t begin, end;
    pool_split(16, 1, i_thread, n_threads, &begin, &end);
    for (int64_t h = begin; h < end; h++)
        k->gated_delta(&heads[h], 0, 128);
}

static void bench_gated_delta(struct pool *pool, const char *name, int rounds)
{
    static struct gated_delta heads[16];
    float *memory = xcalloc(16 * (128 * 128 + 4 * 64 * 128) + 128, sizeof *memory), *at = memory;
    for (int n_tokens = 1; n_tokens <= 64; n_tokens += 63) {
        at = memory + 128;
        for (int h = 0; h < 16; h++) {
            heads[h] = (struct gated_delta){.state = at,
                                            .y = at + 16384,
                                            .q = at + 24576,
                                            .k = at + 32768,
                                            .v = at + 40960,
                                            .g = memory,
                                            .beta = memory + 64,
                                            .y_stride = 128,
                                            .state_stride = 128,
                                            .q_stride = 128,
                                            .k_stride = 128,
                                            .v_stride = 128,
                                            .g_stride = 1,
                                            .beta_stride = 1,
                                            .n_tokens = n_tokens,
                                            .d_k = 128,
                                            .inverse_d_k = 1.0f / 128,
                                            .scale = 0.125f};
            at += 128 * 128 + 4 * 64 * 128;
        }
        double best = INFINITY;
        for (int i = 0; i < rounds; i++) {
            double start = clock_seconds();
            pool_run(pool, run_gated_delta_heads, heads);
            double seconds = clock_seconds() - start;
            best = seconds < best ? seconds : best;
        }
        printf("%-14s 16 heads of 128 x 128, %2d tokens: %8.1f us, %6.2f GFLOP/s\n", name, n_tokens,
               best * 1e6, 16.0 * n_tokens * 128 * 128 * 7 / best * 1e-9);
    }
    free(memory);
}

static void bench_fixed_bytes(struct pool *pool, int rounds)
{
    (void)pool, (void)rounds; /* arithmetic on two numbers */
}

static void bench_fixed_prepare(struct pool *pool, int rounds)
{
    static const int widths[] = {1, 2, 3, 4, 6, 8};
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        bench_fixed(pool, run_fixed_prepare, "prepare", widths[i], 0, 1, 3072, 8, rounds);
        bench_fixed(pool, run_fixed_prepare, "prepare", widths[i], 0, 64, 1024, 8, rounds);
    }
}

/* Two shapes of a decoded token and two of a batch for every width; negative: plain integers. */
static void bench_linear_fixed(struct pool *pool, int rounds)
{
    static const int widths[] = {1, 2, 3, 4, 6, 8, -4, -8};
    static const int64_t shapes[][3] = {
        {1, 1024, 131072}, {1, 3072, 32768}, {64, 1024, 4096}, {64, 3072, 1024}};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++)
            bench_fixed(pool, run_linear_fixed, "linear", widths[i], 0, shapes[s][0], shapes[s][1],
                        shapes[s][2], rounds);
        bench_fixed(pool, run_linear_fixed, "linear", -4, 32, shapes[s][0], shapes[s][1], shapes[s][2],
                    rounds);
        if (shapes[s][0] > 1)
            bench_linear(pool, run_linear_f16, "linear f16", true, shapes[s][0], shapes[s][1], shapes[s][2],
                         rounds);
    }
}

#define BENCH_FIXED(member) bench_##member(pool, rounds)
#define BENCH_LINEAR_F16(member) bench_linear_shapes(pool, run_##member, #member, true, rounds)
#define BENCH_LINEAR_F32(member) bench_linear_shapes(pool, run_##member, #member, false, rounds)
#define BENCH_GATED_DELTA(member) bench_gated_delta(pool, #member, rounds)
#define BENCH_ATTENTION(member) bench_attention_shapes(pool, #member, rounds)
#define BENCH_RMS_NORM(member) bench_rows(pool, run_##member, #member, rounds)
#define BENCH_LAYER_NORM BENCH_RMS_NORM
#define BENCH_ROPE BENCH_RMS_NORM
#define BENCH_UNARY BENCH_RMS_NORM
#define BENCH_BINARY BENCH_RMS_NORM
#define BENCH_TERNARY BENCH_RMS_NORM
#define BENCH_WIDEN BENCH_RMS_NORM
#define BENCH_NARROW BENCH_RMS_NORM

int main(int argc, char **argv)
{
    struct pool *pool = NULL;
    struct err e = {0};
    int n_threads = argc > 1 ? atoi(argv[1]) : 0, rounds = argc > 2 ? atoi(argv[2]) : 7;
    const char *filter = argc > 3 ? argv[3] : "";
    if (n_threads > 64 || !pool_new(&pool, n_threads, &e)) {
        fprintf(stderr, "bench_kernels: %s\n", n_threads > 64 ? "at most 64 threads" : e.msg);
        return 1;
    }
    printf("%d threads, best of %d\n", pool_threads(pool), rounds);
#define KERNEL(member, kind)                                                                                 \
    if (strstr(#member, filter))                                                                             \
        BENCH_##kind(member);
#include "kernel/kernel.def"
#undef KERNEL
    pool_free(pool);
    return 0;
}
