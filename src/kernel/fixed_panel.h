/* Products with several activation rows: outputs in lanes. Part of body_fixed.h, over the panel registers of fixed_lanes_*.h.
 *
 * A block of PANEL_ROWS weight rows is decoded to 16-bit numbers, row by row, and turned into a panel: per pair of columns
 * two registers, in whose lanes lie the two numbers of each row. A pair of activations is broadcast and multiplied with
 * both; sums of a lane belong to one output, so that nothing is ever summed over lanes. Panel and activations of
 * some rows lie in the first cache.
 *
 * An int32 lane is sure to hold 32 products (16 pairs). How many more it holds with the activations at hand is
 * seen when these are prepared: as |w| <= 8191, a run of columns whose |q| sum to at most 262168 stays below 2^31 - 2^16
 * (8191 * 262168 = 2147418088). Behind each run of that length the upper half of every lane is added to a sum of its
 * own, and the lower half, less than 2^16, is what the lane goes on with.
 *
 * Prepared activations: for each block all rows, PANEL_X_BLOCK bytes a row: q in the order of the panel, then struct
 * panel_x. */
#ifndef MILKIT_KERNEL_FIXED_PANEL_H
#define MILKIT_KERNEL_FIXED_PANEL_H

#define PANEL_Z 2 /* registers of rows */
#define PANEL_ROWS (PANEL_Z * PANEL_LANES)
#define PANEL_X 128 /* activation rows that share a decoding */
#define PANEL_PAIRS (FIXED_BLOCK / 2)
#define PANEL_BYTES (PANEL_ROWS * FIXED_BLOCK * 2)
#define DECODED_BYTES (PANEL_LANES * FIXED_BLOCK * 2)
#define PANEL_X_TAIL (2 * FIXED_BLOCK)
#define PANEL_X_BLOCK (PANEL_X_TAIL + 64)
#define RUN_SUM_MAX 262168

_Static_assert((int64_t)FIXED_MAX *RUN_SUM_MAX + 65535 < INT64_C(1) << 31, "a run's sum fits a lane");
_Static_assert((int64_t)FIXED_LANE_PRODUCTS *FIXED_MAX *FIXED_MAX + 65535 < INT64_C(1) << 31,
               "so do as many products");
_Static_assert(64 + PANEL_BYTES + DECODED_BYTES + PANEL_X * PANEL_ROWS * 4 +
                       (FIXED_BLOCK / 16) * PANEL_ROWS * 4 <=
                   KERNEL_FIXED_SCRATCH(0, 2),
               "scratch holds a panel, decoded rows, unfinished sums and scales");

struct panel_x {
    float scale;
    int32_t run; /* pairs: 16, 32, 64 or 128 */
};

/* Activation rows are multiplied in pairs at least. */
static ALWAYS_INLINE int64_t panel_x_rows(int64_t n_rows)
{
    return (n_rows + 1) / 2 * 2;
}

/* The longest run of pairs after which sums of q (in the panel's order) are halved. */
static int32_t longest_run(const int16_t q[FIXED_BLOCK])
{
    int32_t sums[FIXED_BLOCK / 32], run = PANEL_PAIRS;
    const __m256i ones = _mm256_set1_epi16(1);
    for (int i = 0; i < FIXED_BLOCK / 32; i++)
        sums[i] =
            sum_lanes(_mm256_add_epi32(_mm256_madd_epi16(_mm256_abs_epi16(load_i(q + 32 * i)), ones),
                                       _mm256_madd_epi16(_mm256_abs_epi16(load_i(q + 32 * i + 16)), ones)));
    for (; run > 16; run /= 2) {
        bool fits = true;
        for (int i = 0; i < FIXED_BLOCK / 32; i += run / 16) {
            int32_t sum = 0;
            for (int k = 0; k < run / 16; k++)
                sum += sums[i + k];
            fits = fits && sum <= RUN_SUM_MAX;
        }
        if (fits)
            break;
    }
    return run;
}

static void arrange_panel_block(char *to, const int16_t q[FIXED_BLOCK], const uint8_t column[FIXED_BLOCK],
                                float scale)
{
    int16_t ordered[FIXED_BLOCK];
    put_in_order(ordered, q, column);
    struct panel_x tail = {.scale = scale, .run = longest_run(ordered)};
    memcpy(to, ordered, sizeof ordered);
    memcpy(to + PANEL_X_TAIL, &tail, sizeof tail);
}

/* The number at `place` of a block of one of several rows. */
static ALWAYS_INLINE int read_panel_place(const char *x, int place)
{
    int16_t q;
    memcpy(&q, x + place * 2, sizeof q);
    return q;
}

/* ---- weights ---- */

/* Four pairs of PANEL_LANES decoded rows at a time: runs of eight numbers into registers, four rows to each (or as many as
 * have lanes), which are then turned over within the lanes. */
static ALWAYS_INLINE void panel_turn(char *panel, const char *decoded, int bits)
{
    for (int c = 0; c < FIXED_BLOCK / 8; c++, panel += 4 * PANEL_Z * sizeof(pint)) {
        const char *from = decoded + panel_run_offset(bits, c);
        pint t[4], u[4];
        UNROLL_ALL
        for (int i = 0; i < 4; i++)
            t[i] = pint_gather(from + i * 2 * FIXED_BLOCK, 4 * 2 * FIXED_BLOCK);
        u[0] = pint_unpack_low_32(t[0], t[1]);
        u[1] = pint_unpack_high_32(t[0], t[1]);
        u[2] = pint_unpack_low_32(t[2], t[3]);
        u[3] = pint_unpack_high_32(t[2], t[3]);
        pint_store(panel, pint_unpack_low_64(u[0], u[2]));
        pint_store(panel + PANEL_Z * sizeof(pint), pint_unpack_high_64(u[0], u[2]));
        pint_store(panel + 2 * PANEL_Z * sizeof(pint), pint_unpack_low_64(u[1], u[3]));
        pint_store(panel + 3 * PANEL_Z * sizeof(pint), pint_unpack_high_64(u[1], u[3]));
    }
}

/* Block b of n rows from `first` on (at most PANEL_ROWS) as a panel; rows past them are zero. */
static ALWAYS_INLINE void panel_decode(char *panel, char *decoded, const struct fixed_weight *w,
                                       int64_t first, int64_t n, int64_t b, int bits, bool is_identity)
{
    uint8_t copy[FIXED_BLOCK];
    struct fixed_tables tables;
    const uint8_t *loaded = table_of(w, first);
    load_tables(&tables, loaded, bits);
    for (int z = 0; z < PANEL_Z; z++) {
        int64_t o = first + z * PANEL_LANES;
        if (can_decode_turned(w, o, n - z * PANEL_LANES, b, bits)) {
            decode_turned(panel + (size_t)z * sizeof(pint), w, o, b, bits);
            continue;
        }
        for (int64_t r = 0; r < PANEL_LANES; r++) {
            char *to = decoded + r * 2 * FIXED_BLOCK;
            if (z * PANEL_LANES + r >= n) {
                memset(to, 0, 2 * FIXED_BLOCK);
                continue;
            }
            const uint8_t *table = table_of(w, o + r), *p = block_bytes(w, o + r, b, copy, bits);
            if (table != loaded)
                load_tables(&tables, table, bits);
            loaded = table;
            decode_block(to, p, &tables, bits, is_identity);
        }
        panel_turn(panel + (size_t)z * sizeof(pint), decoded, bits);
    }
}

/* The weights that are decoded after these: rows [first, end) of block b. */
struct panel_next {
    const struct fixed_weight *w;
    int64_t first, end, b;
};

/* Asks memory for up to n rows of them, some with each of the products: many requests at once would hold up the
 * processor. */
static ALWAYS_INLINE void panel_ask(struct panel_next *next, int64_t n)
{
    const struct fixed_weight *w = next->w;
    for (; n > 0 && next->first < next->end; n--, next->first++) {
        const char *p =
            (const char *)w->indices + (next->first * w->n_in + next->b * FIXED_BLOCK) * w->bits / 8;
        for (int i = 0; i < FIXED_BLOCK / 8 * w->bits; i += 64)
            _mm_prefetch(p + i, _MM_HINT_T1);
    }
}

/* ---- products ---- */

/* Adds pairs [begin, end) to acc. */
static ALWAYS_INLINE void panel_run(pint acc[FIXED_TOKENS][PANEL_Z], const char *panel, const char *x,
                                    int64_t begin, int64_t end, const int tokens)
{
    for (int64_t p = begin; p < end; p++) {
        pint v[PANEL_Z];
        UNROLL_ALL
        for (int z = 0; z < PANEL_Z; z++)
            v[z] = pint_in_register(pint_load(panel + ((size_t)p * PANEL_Z + (size_t)z) * sizeof(pint)));
        UNROLL_ALL
        for (int t = 0; t < tokens; t++) {
            pint a = pint_in_register(pint_broadcast(x + t * PANEL_X_BLOCK + p * 4));
            UNROLL_ALL
            for (int z = 0; z < PANEL_Z; z++)
                acc[t][z] = pint_dot(acc[t][z], v[z], a);
        }
    }
}

/* (t, z): each register of a block of sums. */
#define EACH_PINT(t, z)                                                                                      \
    UNROLL_ALL                                                                                               \
    for (int t = 0; t < tokens; t++)                                                                         \
        UNROLL_ALL                                                                                           \
    for (int z = 0; z < PANEL_Z; z++)

/* Adds sums to those [tokens, PANEL_ROWS] that wait. scales: NULL or [PANEL_ROWS]. */
static ALWAYS_INLINE void panel_add_sums(float *sums, pint low[FIXED_TOKENS][PANEL_Z],
                                         pint high[FIXED_TOKENS][PANEL_Z], const char *x, const float *scales,
                                         bool is_first, bool is_halved, const int tokens)
{
    EACH_PINT(t, z)
    {
        const int at = z * PANEL_LANES;
        float scale, *to = sums + t * PANEL_ROWS + at;
        memcpy(&scale, x + t * PANEL_X_BLOCK + PANEL_X_TAIL, sizeof scale);
        pfloat factor = pfloat_set1(scale), sum = pfloat_of(low[t][z]);
        if (is_halved)
            sum = pfloat_fma(pfloat_of(high[t][z]), pfloat_set1(65536.0f), sum);
        if (scales)
            factor = pfloat_mul(factor, pfloat_load(scales + at));
        pfloat_store(to, pfloat_fma(sum, factor, is_first ? pfloat_zero() : pfloat_load(to)));
    }
}

/* Adds a block to the sums [tokens, PANEL_ROWS], in n_runs runs of `run` pairs: is_halved, parts of one sum, with scales
 * NULL or [PANEL_ROWS]; else sums of their own, with scales NULL or [n_runs, PANEL_ROWS]. */
static ALWAYS_INLINE void panel_block(float *sums, const char *panel, const char *x, int64_t run,
                                      int64_t n_runs, const float *scales, bool is_first, bool is_halved,
                                      const int tokens)
{
    pint low[FIXED_TOKENS][PANEL_Z], high[FIXED_TOKENS][PANEL_Z];
#ifdef panel_sums_most
    if (tokens == FIXED_TOKENS && (is_halved || n_runs == 1)) {
        panel_sums_most(low, high, panel, x, run, is_halved ? n_runs : 0);
        panel_add_sums(sums, low, high, x, scales, is_first, is_halved, tokens);
        return;
    }
#endif
    EACH_PINT(t, z) low[t][z] = high[t][z] = pint_zero();
    for (int64_t k = 0; k < n_runs; k++) {
        panel_run(low, panel, x, k * run, (k + 1) * run, tokens);
        if (is_halved) {
            EACH_PINT(t, z)
            {
                high[t][z] = pint_add(high[t][z], pint_upper_half(low[t][z]));
                low[t][z] = pint_lower_half(low[t][z]);
            }
            continue;
        }
        panel_add_sums(sums, low, high, x, scales ? scales + k * PANEL_ROWS : NULL, is_first && k == 0, false,
                       tokens);
        EACH_PINT(t, z) low[t][z] = pint_zero();
    }
    if (is_halved)
        panel_add_sums(sums, low, high, x, scales, is_first, true, tokens);
}

#define PANEL_BLOCK(name, tokens, is_halved)                                                                 \
    static NEVER_INLINE void name(float *sums, const char *panel, const char *x, int64_t run,                \
                                  int64_t n_runs, const float *scales, bool is_first)                        \
    {                                                                                                        \
        panel_block(sums, panel, x, run, n_runs, scales, is_first, is_halved, tokens);                       \
    }
PANEL_BLOCK(panel_block_2, 2, false)
PANEL_BLOCK(panel_block_2_halved, 2, true)
PANEL_BLOCK(panel_block_4, 4, false)
PANEL_BLOCK(panel_block_4_halved, 4, true)
#if FIXED_TOKENS > 4
PANEL_BLOCK(panel_block_most, FIXED_TOKENS, false)
PANEL_BLOCK(panel_block_most_halved, FIXED_TOKENS, true)
#else
#define panel_block_most panel_block_4
#define panel_block_most_halved panel_block_4_halved
#endif

/* The scales of block b of the n rows from `first` on, or of each of its parts of w->scale_block columns; zero past n. */
static void panel_scales(float *to, const struct fixed_weight *w, int64_t first, int64_t n, int64_t b)
{
    int64_t per_row = w->n_in / w->scale_block, at = b * FIXED_BLOCK / w->scale_block;
    int64_t parts = w->scale_block < FIXED_BLOCK ? FIXED_BLOCK / w->scale_block : 1;
    for (int64_t k = 0; k < parts && at + k < per_row; k++)
        for (int64_t r = 0; r < PANEL_ROWS; r++)
            to[k * PANEL_ROWS + r] = r < n ? w->scales[(first + r) * per_row + at + k] : 0.0f;
}

/* From the sums [n_rows, PANEL_ROWS] of the n weight rows from `first` on. */
static void panel_results(float *y, int64_t y_stride, const float *sums, const struct fixed_weight *w,
                          const float *bias, int64_t n_rows, int64_t first, int64_t n)
{
    float scales[PANEL_ROWS], result[PANEL_ROWS], offsets[PANEL_ROWS] = {0};
    for (int64_t r = 0; r < PANEL_ROWS; r++)
        scales[r] = w->scale_block > 0 || r >= n ? 1.0f : w->scales[(first + r) / w->rows_per_scale];
    if (bias)
        memcpy(offsets, bias + first, (size_t)n * sizeof *bias);
    for (int64_t t = 0; t < n_rows; t++, sums += PANEL_ROWS) {
        float *to = n == PANEL_ROWS ? y + t * y_stride + first : result;
        UNROLL_ALL
        for (int z = 0; z < PANEL_Z; z++) {
            const int at = z * PANEL_LANES;
            pfloat sum = pfloat_mul(pfloat_load(sums + at), pfloat_load(scales + at));
            if (bias)
                sum = pfloat_add(sum, pfloat_load(offsets + at));
            pfloat_store(to + at, sum);
        }
        if (n < PANEL_ROWS)
            memcpy(y + t * y_stride + first, result, (size_t)n * sizeof *y);
    }
}

/* A block's products with n_rows activation rows, x the first one's. */
static ALWAYS_INLINE void panel_rows(float *sums, const char *panel, const char *x, const float *scales,
                                     int64_t n_rows, int64_t n_runs, int64_t run, bool is_first,
                                     bool is_identity, struct panel_next *next)
{
    for (int64_t t = 0, step; t < n_rows; t += step) {
        const char *at = x + t * PANEL_X_BLOCK;
        int64_t left = n_rows - t;
        panel_ask(next, (next->end - next->first) * FIXED_TOKENS / left + 1);
        step = left >= FIXED_TOKENS ? FIXED_TOKENS : left >= 3 ? 4 : 2;
        if (!is_identity) {
            run = PANEL_PAIRS;
            for (int64_t i = 0; i < fixed_least(step, left); i++) {
                struct panel_x tail;
                memcpy(&tail, at + i * PANEL_X_BLOCK + PANEL_X_TAIL, sizeof tail);
                run = fixed_least(run, tail.run);
            }
            n_runs = PANEL_PAIRS / run;
        }
        bool is_halved = !is_identity && n_runs > 1;
        (step == 2   ? (is_halved ? panel_block_2_halved : panel_block_2)
         : step == 4 ? (is_halved ? panel_block_4_halved : panel_block_4)
         : is_halved ? panel_block_most_halved
                     : panel_block_most)(sums + t * PANEL_ROWS, panel, at, run, n_runs, scales, is_first);
    }
}

/* The n weight rows from `first` on (at most PANEL_ROWS) with activation rows t .. t + n_rows (at most PANEL_X) of those
 * that are prepared. */
static ALWAYS_INLINE void fixed_panel(float *y, int64_t y_stride, const char *x, int64_t x_rows,
                                      const struct fixed_weight *w, const float *bias, int64_t t,
                                      int64_t n_rows, int64_t first, int64_t n, char *scratch, int bits,
                                      bool is_identity, bool by_unit)
{
    char *panel = whole_line(scratch), *decoded = panel + PANEL_BYTES;
    float *sums = (float *)(void *)(decoded + DECODED_BYTES), *scales = sums + PANEL_X * PANEL_ROWS;
    int64_t n_blocks = blocks_of(w->n_in);
    if (n_blocks == 0)
        memset(sums, 0, (size_t)(n_rows * PANEL_ROWS) * sizeof *sums);
    for (int64_t b = 0; b < n_blocks; b++) {
        int64_t run = PANEL_PAIRS, n_runs = 1;
        if (by_unit) {
            run = w->scale_block / 2;
            n_runs = fixed_least(FIXED_BLOCK, w->n_in - b * FIXED_BLOCK) / w->scale_block;
        }
        panel_decode(panel, decoded, w, first, n, b, bits, is_identity);
        struct panel_next next = {w, first, first + n, b + 1};
        if (b + 1 == n_blocks) {
            next.first = first + n;
            next.end = fixed_least(w->n_out, first + 2 * n);
            next.b = 0;
        }
        if (w->scale_block > 0)
            panel_scales(scales, w, first, n, b);
        panel_rows(sums, panel, x + (b * x_rows + t) * PANEL_X_BLOCK, w->scale_block > 0 ? scales : NULL,
                   n_rows, n_runs, run, b == 0, is_identity, &next);
    }
    panel_results(y + t * y_stride, y_stride, sums, w, bias, n_rows, first, n);
}

#endif
