/* Products in fixed point: preparing activations, walking weight rows, scales and results. Over fixed_lanes_*.h, which
 * decode weights and multiply: every sum there is an exact integer, so that only the few float operations
 * here have an order. */

/* How many distant parts of the rows are walked in turn for one activation row; some memories want several. */
#ifndef FIXED_STREAMS
#define FIXED_STREAMS 1
#endif

/* ---- weights of any alignment ---- */

/* The bytes of block b of row o, moved to begin at a byte. What follows after the last column is any index; the activations
 * there are 0. */
static NEVER_INLINE void copy_block(uint8_t copy[FIXED_BLOCK], const struct fixed_weight *w, int64_t o,
                                    int64_t b, int bits)
{
    int64_t n = fixed_least(w->n_in - b * FIXED_BLOCK, FIXED_BLOCK),
            bit = (o * w->n_in + b * FIXED_BLOCK) * bits;
    const uint8_t *from = w->indices + bit / 8;
    int shift = (int)(bit % 8);
    int64_t n_from = (shift + n * bits + 7) / 8, n_to = (n * bits + 7) / 8;
    memset(copy, 0, FIXED_BLOCK);
    for (int64_t i = 0; i < n_to; i++) {
        unsigned next = i + 1 < n_from ? from[i + 1] : 0;
        copy[i] = (uint8_t)((unsigned)from[i] >> shift | next << (8 - shift));
    }
}

/* The same in place where they begin at a byte and are a whole block. */
static ALWAYS_INLINE const uint8_t *block_bytes(const struct fixed_weight *w, int64_t o, int64_t b,
                                                uint8_t copy[FIXED_BLOCK], int bits)
{
    int64_t bit = (o * w->n_in + b * FIXED_BLOCK) * bits;
    if (w->n_in - b * FIXED_BLOCK >= FIXED_BLOCK && bit % 8 == 0)
        return w->indices + bit / 8;
    copy_block(copy, w, o, b, bits);
    return copy;
}

#include "kernel/fixed_panel.h"

/* ---- activations ---- */

static size_t ISA(k_fixed_bytes)(int64_t n_rows, int64_t n_in)
{
    size_t row_block = n_rows == 1 ? X_BLOCK : (size_t)panel_x_rows(n_rows) * PANEL_X_BLOCK;
    return row_block * (size_t)blocks_of(n_in);
}

/* q of one block of n columns in natural order, zeros after them. Returns the scale. */
static float quantize_block(int16_t q[FIXED_BLOCK], const float *x, int64_t n)
{
    float full[FIXED_BLOCK];
    if (n < FIXED_BLOCK) {
        memset(full, 0, sizeof full);
        memcpy(full, x, (size_t)n * sizeof *x);
        x = full;
    }
    __m256i most = _mm256_setzero_si256(), magnitude = _mm256_set1_epi32(0x7fffffff);
    for (int i = 0; i < FIXED_BLOCK; i += 8)
        most = _mm256_max_epi32(most, _mm256_and_si256(load_i(x + i), magnitude));
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
    float largest = _mm_cvtss_f32(_mm_castsi128_ps(m)), scale = largest / (float)FIXED_MAX;
    if (!(largest <= FLT_MAX))
        scale = NAN;
    else if (scale < FLT_MIN)
        scale = 0.0f;
    if (!(scale > 0.0f)) {
        memset(q, 0, FIXED_BLOCK * sizeof *q);
        return scale;
    }
    __m256 s = _mm256_set1_ps(scale);
    for (int i = 0; i < FIXED_BLOCK; i += 16) {
        __m256i a = _mm256_cvtps_epi32(_mm256_div_ps(_mm256_loadu_ps(x + i), s));
        __m256i b = _mm256_cvtps_epi32(_mm256_div_ps(_mm256_loadu_ps(x + i + 8), s));
        store_i(q + i, _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8));
    }
    return scale;
}

static void ISA(k_fixed_prepare)(void *dst, const float *x, int64_t x_stride, int64_t n_rows, int64_t n_in,
                                 int64_t row_begin, int64_t row_end, int bits)
{
    uint8_t column[FIXED_BLOCK];
    int16_t q[FIXED_BLOCK];
    const bool is_row = n_rows == 1;
    const int64_t rows = panel_x_rows(n_rows);
    for (int i = 0; i < FIXED_BLOCK; i++)
        column[i] = (uint8_t)place_column(bits, i, is_row);
    for (int64_t t = row_begin; t < row_end; t++) {
        for (int64_t b = 0; b < blocks_of(n_in); b++) {
            int64_t i = b * FIXED_BLOCK;
            float scale = quantize_block(q, x + t * x_stride + i, fixed_least(n_in - i, FIXED_BLOCK));
            char *to = (char *)dst + (is_row ? b * X_BLOCK : (b * rows + t) * PANEL_X_BLOCK);
            if (is_row)
                arrange_block(to, q, column, scale);
            else
                arrange_panel_block(to, q, column, scale);
            if (!is_row && t + 1 == n_rows && rows > n_rows)
                memset(to + PANEL_X_BLOCK, 0, PANEL_X_BLOCK);
        }
    }
}

/* ---- one activation row ---- */

static ALWAYS_INLINE __m256i add_neighbours(__m256i a, __m256i b)
{
    return _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
}

/* Lane r of low and of high: the sum of the lower and of the upper four lanes of a[r]. */
static ALWAYS_INLINE void reduce_eight(__m256i *low, __m256i *high, const __m256i a[TOGETHER])
{
    __m256i four[2];
    for (int i = 0; i < 2; i++) {
        __m256i p = add_neighbours(a[4 * i], a[4 * i + 1]), q = add_neighbours(a[4 * i + 2], a[4 * i + 3]);
        four[i] = _mm256_add_epi32(_mm256_unpacklo_epi64(p, q), _mm256_unpackhi_epi64(p, q));
    }
    *low = _mm256_permute2x128_si256(four[0], four[1], 0x20);
    *high = _mm256_permute2x128_si256(four[0], four[1], 0x31);
}

/* Lane r: the sum of all lanes of a[r], exact, as float. Integers are so small that their sums fit 32 bits. */
static ALWAYS_INLINE __m256 sum_eight(const __m256i a[TOGETHER], bool is_identity)
{
    __m256i half[2], upper[TOGETHER];
    reduce_eight(&half[0], &half[1], a);
    __m256i low = _mm256_add_epi32(half[0], half[1]);
    if (is_identity)
        return _mm256_cvtepi32_ps(low);
    for (int r = 0; r < TOGETHER; r++)
        upper[r] = _mm256_srai_epi32(a[r], 16);
    reduce_eight(&half[0], &half[1], upper);
    return float_of_halves(_mm256_add_epi32(half[0], half[1]), low);
}

static ALWAYS_INLINE void sum_row_blocks(char *lanes, const struct fixed_weight *w, int64_t o, const char *x,
                                         const struct fixed_tables *t, int bits, bool is_identity,
                                         bool by_unit)
{
    const int block_bytes = FIXED_BLOCK / 8 * bits;
    int64_t n_blocks = blocks_of(w->n_in), bit = o * w->n_in * bits;
    int64_t n_in_place = bit % 8 == 0 ? w->n_in / FIXED_BLOCK : 0, b = 0;
    const uint8_t *p = w->indices + bit / 8;
    for (; b < n_in_place; b++, x += X_BLOCK, p += block_bytes) {
        lanes = sum_block(lanes, p, x, t, bits, is_identity, by_unit);
        UNROLL_ALL
        for (int ahead = 0; ahead < block_bytes; ahead += 64)
            _mm_prefetch((const char *)p + ahead + FIXED_PREFETCH, _MM_HINT_T0);
    }
    for (; b < n_blocks; b++, x += X_BLOCK) {
        uint8_t copy[FIXED_BLOCK];
        copy_block(copy, w, o, b, bits);
        lanes = sum_block(lanes, copy, x, t, bits, is_identity, by_unit);
    }
}

/* Scales of block `at` for the rows o[]. */
static ALWAYS_INLINE __m256 block_scales(const struct fixed_weight *w, const int64_t o[TOGETHER], int64_t at)
{
    float scales[TOGETHER];
    int64_t per_row = w->n_in / w->scale_block;
    for (int r = 0; r < TOGETHER; r++)
        scales[r] = w->scales[o[r] * per_row + at];
    return _mm256_loadu_ps(scales);
}

/* acc + S * (s_b * scale) for the halves low and high of a piece that begins at `column`; *carry holds the sum of a
 * block of scales that is not complete yet. */
static ALWAYS_INLINE __m256 add_halves(__m256 acc, __m256i *carry, const __m256i half[2], int64_t column,
                                       int columns, __m256 x_scale, const struct fixed_weight *w,
                                       const int64_t o[TOGETHER])
{
    for (int h = 0; h < 2; h++) {
        int64_t end = column + (h + 1) * columns;
        *carry = _mm256_add_epi32(*carry, half[h]);
        if (end % w->scale_block == 0 && end <= w->n_in) {
            __m256 factor = _mm256_mul_ps(x_scale, block_scales(w, o, end / w->scale_block - 1));
            acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(*carry), factor, acc);
            *carry = _mm256_setzero_si256();
        }
    }
    return acc;
}

/* acc + S * s_b, or S * (s_b * scale), for the sums of block b of the rows o[]. */
static ALWAYS_INLINE __m256 add_block(__m256 acc, __m256 sums, int64_t b, const struct x_block *tail,
                                      const struct fixed_weight *w, const int64_t o[TOGETHER])
{
    __m256 factor = _mm256_set1_ps(tail->scale);
    if (w->scale_block > 0)
        factor = _mm256_mul_ps(factor, block_scales(w, o, b * FIXED_BLOCK / w->scale_block));
    return _mm256_fmadd_ps(sums, factor, acc);
}

/* The n rows o[] from their sums over all blocks. Eight neighbours of one scale are written at once: divisions and single
 * rows are slow. */
static ALWAYS_INLINE void write_rows(float *y, __m256 acc, const struct fixed_weight *w, const float *bias,
                                     const int64_t o[TOGETHER], int64_t n)
{
    float results[TOGETHER], scale = 1.0f;
    int64_t scale_begin = 0, scale_end = w->n_out; /* rows of `scale` */
    if (w->scale_block == 0) {
        int64_t at = o[0] / w->rows_per_scale;
        scale_begin = at * w->rows_per_scale;
        scale_end = scale_begin + w->rows_per_scale;
        scale = w->scales[at];
    }
    if (n == TOGETHER && o[TOGETHER - 1] == o[0] + TOGETHER - 1 && o[TOGETHER - 1] < scale_end) {
        acc = _mm256_mul_ps(acc, _mm256_set1_ps(scale));
        if (bias)
            acc = _mm256_add_ps(acc, _mm256_loadu_ps(bias + o[0]));
        _mm256_storeu_ps(y + o[0], acc);
        return;
    }
    _mm256_storeu_ps(results, acc);
    for (int64_t r = 0; r < n; r++) {
        if (o[r] < scale_begin || o[r] >= scale_end) {
            int64_t at = o[r] / w->rows_per_scale;
            scale_begin = at * w->rows_per_scale;
            scale_end = scale_begin + w->rows_per_scale;
            scale = w->scales[at];
        }
        float sum = results[r] * scale;
        y[o[r]] = bias ? sum + bias[o[r]] : sum;
    }
}

static void finish_rows(float *y, const char *lanes, const struct fixed_weight *w, const float *bias,
                        const char *x, const int64_t o[TOGETHER], int64_t n, bool is_identity, int columns)
{
    __m256 acc = _mm256_setzero_ps();
    __m256i carry = _mm256_setzero_si256();
    bool by_unit = w->scale_block > 0 && w->scale_block < FIXED_BLOCK;
    int n_pieces = by_unit ? FIXED_BLOCK / (2 * columns) : 1;
    int64_t n_blocks = blocks_of(w->n_in);
    for (int64_t b = 0; b < n_blocks; b++, x += X_BLOCK) {
        struct x_block tail;
        memcpy(&tail, x + X_TAIL, sizeof tail);
        for (int u = 0; u < n_pieces; u++, lanes += TOGETHER * LANES_BYTES) {
            __m256i half[2], sums[TOGETHER];
            for (int r = 0; r < TOGETHER; r++)
                sums[r] = load_i(lanes + r * LANES_BYTES);
            if (by_unit) {
                reduce_eight(&half[0], &half[1], sums);
                acc = add_halves(acc, &carry, half, b * FIXED_BLOCK + u * 2 * columns, columns,
                                 _mm256_set1_ps(tail.scale), w, o);
                continue;
            }
            acc = add_block(acc, sum_eight(sums, is_identity), b, &tail, w, o);
        }
    }
    write_rows(y, acc, w, bias, o, n);
}

/* The rows of [begin, end) in the order of the walk: stream s takes the s-th part of them; streams take turns. Row i of
 * FIXED_STREAMS * per_stream, or -1 for none. */
static ALWAYS_INLINE int64_t walk_row(int64_t i, int64_t begin, int64_t end, int64_t per_stream)
{
    int64_t o = begin + i % FIXED_STREAMS * per_stream + i / FIXED_STREAMS;
    return i / FIXED_STREAMS < per_stream && o < end ? o : -1;
}

static ALWAYS_INLINE void fixed_row(float *y, const char *x, const struct fixed_weight *w, const float *bias,
                                    int64_t begin, int64_t end, void *scratch, int bits, bool is_identity,
                                    bool by_unit)
{
    int64_t per_stream = (end - begin + FIXED_STREAMS - 1) / FIXED_STREAMS;
    char *lanes = scratch;
    struct fixed_tables tables;
    const uint8_t *loaded = table_of(w, begin);
    load_row_tables_of(&tables, loaded, bits, is_identity);
    for (int64_t i = 0; i < per_stream * FIXED_STREAMS;) {
        int64_t o[TOGETHER], n = 0;
        for (; n < TOGETHER && i < per_stream * FIXED_STREAMS; i++) {
            o[n] = walk_row(i, begin, end, per_stream);
            if (o[n] < 0)
                continue;
            const uint8_t *table = table_of(w, o[n]);
            if (table != loaded)
                load_row_tables_of(&tables, table, bits, is_identity);
            loaded = table;
            sum_row_blocks(lanes + n * LANES_BYTES, w, o[n], x, &tables, bits, is_identity, by_unit);
            n++;
        }
        for (int64_t r = n; r < TOGETHER; r++)
            o[r] = begin;
        finish_rows(y, lanes, w, bias, x, o, n, is_identity, half_columns(bits));
    }
}

#if FIXED_SPREAD
#include "kernel/fixed_spread.h"
#endif
#if FIXED_PAIRS
#include "kernel/fixed_pairs.h"
#endif

static ALWAYS_INLINE void fixed_of(float *y, int64_t y_stride, const char *x, const struct fixed_weight *w,
                                   const float *bias, int64_t n_rows, int64_t begin, int64_t end,
                                   void *scratch, int bits, bool is_identity, bool by_unit)
{
#if FIXED_SPREAD
    if (bits == 6 && n_rows == 1) {
        fixed_row_spread(y, x, w, bias, begin, end);
        return;
    }
#endif
#if FIXED_PAIRS
    if (n_rows == 1 && rows_come_in_pairs(w, begin, bits, is_identity, by_unit)) {
        int64_t left = begin + (end - begin) / TOGETHER * TOGETHER;
        fixed_row_pairs(y, x, w, bias, begin, left, scratch, bits, is_identity);
        begin = left;
        if (begin == end)
            return;
    }
#endif
    if (n_rows == 1) {
        fixed_row(y, x, w, bias, begin, end, scratch, bits, is_identity, by_unit);
        return;
    }
    for (int64_t o = begin; o < end; o += PANEL_ROWS)
        for (int64_t t = 0; t < n_rows; t += PANEL_X)
            fixed_panel(y, y_stride, x, panel_x_rows(n_rows), w, bias, t, fixed_least(n_rows - t, PANEL_X), o,
                        fixed_least(end - o, PANEL_ROWS), scratch, bits, is_identity, by_unit);
}

/* ---- which body ---- */

/* Whatever has no body of its own: blocks of scales smaller than half a unit, or with tables. */
static void fixed_plain(float *y, int64_t y_stride, const char *x, const struct fixed_weight *w,
                        const float *bias, int64_t n_rows, int64_t begin, int64_t end)
{
    uint8_t place[FIXED_BLOCK], copy[FIXED_BLOCK + 1];
    int32_t v[FIXED_BLOCK];
    int64_t rows = panel_x_rows(n_rows);
    int64_t n_blocks = blocks_of(w->n_in), block = w->scale_block;
    int bits = w->bits;
    for (int i = 0; i < FIXED_BLOCK; i++)
        place[place_column(bits, i, n_rows == 1)] = (uint8_t)i;
    for (int64_t o = begin; o < end; o++) {
        const uint8_t *table = table_of(w, o);
        for (int64_t t = 0; t < n_rows; t++)
            y[t * y_stride + o] = 0.0f;
        for (int64_t b = 0; b < n_blocks; b++) {
            int64_t n = fixed_least(w->n_in - b * FIXED_BLOCK, FIXED_BLOCK);
            const uint8_t *p = block_bytes(w, o, b, copy, bits);
            for (int64_t i = 0; i < n; i++) {
                unsigned bit = (unsigned)i * (unsigned)bits, index = p[bit / 8] >> bit % 8;
                if (bit % 8 + (unsigned)bits > 8)
                    index |= (unsigned)p[bit / 8 + 1] << (8 - bit % 8);
                index &= (1u << bits) - 1;
                v[i] = 256 * (int8_t)table[index] + table[(1u << bits) + index];
            }
            for (int64_t t = 0; t < n_rows; t++) {
                const char *from = n_rows == 1 ? x + b * X_BLOCK : x + (b * rows + t) * PANEL_X_BLOCK;
                float acc = y[t * y_stride + o], x_scale;
                memcpy(&x_scale, from + (n_rows == 1 ? X_TAIL : PANEL_X_TAIL), sizeof x_scale);
                for (int64_t i = 0; i < n; i += block) {
                    int64_t sum = 0;
                    for (int64_t c = i; c < fixed_least(n, i + block); c++)
                        sum += v[c] *
                               (n_rows == 1 ? read_place(from, place[c]) : read_panel_place(from, place[c]));
                    float scale = w->scales[o * (w->n_in / block) + (b * FIXED_BLOCK + i) / block];
                    acc = fmaf((float)sum, x_scale * scale, acc);
                }
                y[t * y_stride + o] = acc;
            }
        }
        for (int64_t t = 0; t < n_rows; t++) {
            if (bias)
                y[t * y_stride + o] = y[t * y_stride + o] + bias[o];
        }
    }
}

/* The values of the integers themselves for every row: the index as a signed number. */
static bool is_identity_table(const struct fixed_weight *w)
{
    int n = 1 << w->bits;
    if ((w->bits != 4 && w->bits != 8) || (w->table_stride != 0 && w->rows_per_group < w->n_out))
        return false;
    for (int k = 0; k < n; k++) {
        int value = k < n / 2 ? k : k - n;
        if (w->tables[k] != (value < 0 ? 255 : 0) || w->tables[n + k] != (value & 255))
            return false;
    }
    return true;
}

#define FIXED_BODY(name, bits, is_identity, by_unit)                                                         \
    static NEVER_INLINE void name(float *y, int64_t y_stride, const char *x, const struct fixed_weight *w,   \
                                  const float *bias, int64_t n_rows, int64_t begin, int64_t end,             \
                                  void *scratch)                                                             \
    {                                                                                                        \
        fixed_of(y, y_stride, x, w, bias, n_rows, begin, end, scratch, bits, is_identity, by_unit);          \
    }
FIXED_BODY(fixed_table_1, 1, false, false)
FIXED_BODY(fixed_table_2, 2, false, false)
FIXED_BODY(fixed_table_3, 3, false, false)
FIXED_BODY(fixed_table_4, 4, false, false)
FIXED_BODY(fixed_table_6, 6, false, false)
FIXED_BODY(fixed_table_8, 8, false, false)
FIXED_BODY(fixed_int_4, 4, true, false)
FIXED_BODY(fixed_int_8, 8, true, false)
FIXED_BODY(fixed_int_4_units, 4, true, true)
FIXED_BODY(fixed_int_8_units, 8, true, true)

static void ISA(k_linear_fixed)(float *y, int64_t y_stride, const void *prepared,
                                const struct fixed_weight *w, const float *bias, int64_t n_rows,
                                int64_t begin, int64_t end, void *scratch)
{
    if (begin >= end)
        return;
    bool is_identity = is_identity_table(w), by_unit = w->scale_block > 0 && w->scale_block < FIXED_BLOCK;
    if (by_unit && !(is_identity && w->scale_block >= half_columns(w->bits)))
        fixed_plain(y, y_stride, prepared, w, bias, n_rows, begin, end);
    else if (is_identity && w->bits == 4)
        (by_unit ? fixed_int_4_units : fixed_int_4)(y, y_stride, prepared, w, bias, n_rows, begin, end,
                                                    scratch);
    else if (is_identity)
        (by_unit ? fixed_int_8_units : fixed_int_8)(y, y_stride, prepared, w, bias, n_rows, begin, end,
                                                    scratch);
    else
        (w->bits == 1   ? fixed_table_1
         : w->bits == 2 ? fixed_table_2
         : w->bits == 3 ? fixed_table_3
         : w->bits == 4 ? fixed_table_4
         : w->bits == 6 ? fixed_table_6
                        : fixed_table_8)(y, y_stride, prepared, w, bias, n_rows, begin, end, scratch);
}
