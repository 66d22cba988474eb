/* Products of packed weights with one activation row, two weight rows at a time: they share the loads of activations and
 * their tables, and what is left of a block's sums is one register a row, which eight rows add up together. Two rows
 * and no more, because reading memory in more places at once is slower than what it saves. Part of body_fixed.h, over
 * AVX-512 registers. */
#ifndef MILKIT_KERNEL_FIXED_PAIRS_H
#define MILKIT_KERNEL_FIXED_PAIRS_H

/* How far ahead of each row memory is asked for, into the second-level cache: the first level's few open misses are
 * needed by the loads themselves. */
#define PAIR_PREFETCH 6144
#define PAIR_LANES_BYTES 64 /* sums of a row and block */
#define PAIR_BLOCK_LANES (TOGETHER * PAIR_LANES_BYTES)
_Static_assert(PAIR_BLOCK_LANES <= KERNEL_FIXED_SCRATCH(FIXED_BLOCK, 1), "scratch holds the lanes");

static ALWAYS_INLINE __m512i join_64(__m512i a, __m512i b)
{
    return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

/* Lane r: the sum of all lanes of row r, exact, as float. A lane is below 2^30 (16 products), so that two are added before
 * halves are taken apart; an instruction of dot products adds up the upper ones. */
static ALWAYS_INLINE __m256 sum_eight_wide(const char *lanes, bool is_identity)
{
    const __m512i upper = _mm512_set1_epi32(1 << 16);
    __m512i two[4], low[2], high[2];
    UNROLL_ALL
    for (int i = 0; i < 4; i++) { /* quarters: two of row i, two of row i + 4 */
        __m512i a = load_z(lanes + i * PAIR_LANES_BYTES), b = load_z(lanes + (i + 4) * PAIR_LANES_BYTES);
        two[i] = _mm512_add_epi32(_mm512_shuffle_i64x2(a, b, 0x44), _mm512_shuffle_i64x2(a, b, 0xee));
    }
    UNROLL_ALL
    for (int i = 0; i < 2; i++) {
        __m512i a = _mm512_unpacklo_epi32(two[2 * i], two[2 * i + 1]);
        __m512i b = _mm512_unpackhi_epi32(two[2 * i], two[2 * i + 1]);
        low[i] = _mm512_add_epi32(a, b);
        high[i] = _mm512_dpwssd_epi32(_mm512_dpwssd_epi32(_mm512_setzero_si512(), a, upper), b, upper);
    }
    __m512i l = join_64(low[0], low[1]), h = is_identity ? l : join_64(high[0], high[1]);
    __m512i all = _mm512_add_epi32(_mm512_shuffle_i64x2(l, h, 0x88), _mm512_shuffle_i64x2(l, h, 0xdd));
    if (is_identity)
        return _mm256_cvtepi32_ps(lower_half(all));
    return float_of_halves(upper_half(all), lower_half(all));
}

/* A block of two weight rows; lanes of the second follow those of the first. */
static ALWAYS_INLINE void sum_pair_block(char *lanes, const uint8_t *const p[2], const char *x,
                                         const struct fixed_tables *t, int bits, bool is_identity)
{
    struct slot_sums sums[2] = {block_start(x, is_identity), block_start(x, is_identity)};
    UNROLL_ALL
    for (int s = 0; s < SLOTS; s++)
        UNROLL_ALL
    for (int r = 0; r < 2; r++)
        add_row_slot(&sums[r], p[r], x, s, t, bits, is_identity);
    UNROLL_ALL
    for (int r = 0; r < 2; r++)
        _mm512_storeu_si512(lanes + r * PAIR_LANES_BYTES, join_sums(&sums[r]));
}

/* Rows o and o + 1, which have one table. */
static ALWAYS_INLINE void sum_pair(char *lanes, const struct fixed_weight *w, int64_t o, int64_t n_blocks,
                                   const char *x, const struct fixed_tables *t, int bits, bool is_identity)
{
    const int block_bytes = FIXED_BLOCK / 8 * bits;
    const uint8_t *p[2] = {w->indices + o * w->n_in * bits / 8, w->indices + (o + 1) * w->n_in * bits / 8};
    for (int64_t b = 0; b < n_blocks; b++, x += X_BLOCK, lanes += PAIR_BLOCK_LANES) {
        sum_pair_block(lanes, p, x, t, bits, is_identity);
        /* Behind the block's own loads, which would wait for these. */
        UNROLL_ALL
        for (int ahead = 0; ahead < block_bytes; ahead += 64) {
            _mm_prefetch((const char *)p[0] + ahead + PAIR_PREFETCH, _MM_HINT_T1);
            _mm_prefetch((const char *)p[1] + ahead + PAIR_PREFETCH, _MM_HINT_T1);
        }
        p[0] += block_bytes;
        p[1] += block_bytes;
    }
}

/* Are rows whole blocks, and do those from `begin` on come in eights of one table, which fits a register a plane, and one
 * scale a block? Other rows go the general way. */
static ALWAYS_INLINE bool rows_come_in_pairs(const struct fixed_weight *w, int64_t begin, int bits,
                                             bool is_identity, bool by_unit)
{
    bool same_table = w->table_stride == 0 || w->rows_per_group >= w->n_out ||
                      (w->rows_per_group % TOGETHER == 0 && begin % TOGETHER == 0);
    return same_table && !by_unit && (bits < 8 || is_identity) && w->n_in % FIXED_BLOCK == 0;
}

/* Rows [begin, end), a multiple of eight. */
static ALWAYS_INLINE void fixed_row_pairs(float *y, const char *x, const struct fixed_weight *w,
                                          const float *bias, int64_t begin, int64_t end, char *lanes,
                                          int bits, bool is_identity)
{
    int64_t n_blocks = w->n_in / FIXED_BLOCK;
    for (int64_t first = begin; first < end; first += TOGETHER) {
        int64_t o[TOGETHER];
        struct fixed_tables tables;
        load_row_tables_of(&tables, table_of(w, first), bits, is_identity);
        for (int64_t r = 0; r < TOGETHER; r++)
            o[r] = first + r;
        for (int64_t r = 0; r < TOGETHER; r += 2)
            sum_pair(lanes + r * PAIR_LANES_BYTES, w, first + r, n_blocks, x, &tables, bits, is_identity);
        __m256 acc = _mm256_setzero_ps();
        for (int64_t b = 0; b < n_blocks; b++) {
            struct x_block tail;
            memcpy(&tail, x + b * X_BLOCK + X_TAIL, sizeof tail);
            __m256 sums = sum_eight_wide(lanes + b * PAIR_BLOCK_LANES, is_identity);
            acc = add_block(acc, sums, b, &tail, w, o);
        }
        write_rows(y, acc, w, bias, o, TOGETHER);
    }
}

#endif
