/* Decoding and integer sums of fixed-point products over AVX-512 with VBMI and VNNI, for body_fixed.h.
 *
 * A block is four slots of 64 weights, whose bytes come straight from the package's bytes; slot_column says which column
 * slot s, byte p is, and activations are prepared in that order. A permutation of bytes looks at the low 6 bits
 * of an index only, so that indices need no masks: tables of fewer entries are repeated to 64.
 *
 * The multiplication wants one unsigned factor: table planes are taken as hi + 128 and lo + 128. With
 * high = sum (hi + 128) * x.hi and rest = sum (hi + 128) * x.lo + (lo + 128) * x.hi, S is 256 * high + rest less the
 * correction 128 * (257 * sum x.hi + sum x.lo), all modulo 2^32. Integers have no lo: 256 in place of 257.
 *
 * A block of prepared activations is X_BLOCK bytes: per slot 64 x.hi, then 64 x.lo; then struct x_block. */
#ifndef MILKIT_KERNEL_FIXED_LANES_AVX512_H
#define MILKIT_KERNEL_FIXED_LANES_AVX512_H

#include "kernel/fixed_common.h"

#define ISA(name) name##__vnni
#define X_SLOT 128
#define X_TAIL 512
#define X_BLOCK 576
#define SLOTS (FIXED_BLOCK / 64)
#define STEP_UNITS 2 /* units of which sum_units yields the sums */

static int slot_column(int bits, int slot, int p)
{
    switch (bits) {
    case 1:
        return 8 * (p % 32) + slot + 4 * (p / 32);
    case 2:
        return 4 * p + slot;
    case 4:
        return 128 * (slot / 2) + 2 * p + slot % 2;
    default:
        return 64 * slot + p;
    }
}

static int place_column(int bits, int place, bool is_row)
{
    (void)is_row;
    return slot_column(bits, place / 64, place % 64);
}

static ALWAYS_INLINE __m512i load_z(const void *p)
{
    return _mm512_loadu_si512(p);
}

/* ---- activations ---- */

/* to: one X_BLOCK; column[]: what each place in it holds. */
static void arrange_block(char *to, const int16_t q[FIXED_BLOCK], const uint8_t column[FIXED_BLOCK],
                          float scale, bool is_row)
{
    (void)is_row;
    int16_t ordered[FIXED_BLOCK];
    struct x_block tail = {.scale = scale};
    __m256i half = _mm256_set1_epi16(128), ones = _mm256_set1_epi16(1);
    __m256i sum_hi = _mm256_setzero_si256(), sum_lo = _mm256_setzero_si256();
    for (int i = 0; i < FIXED_BLOCK; i++)
        ordered[i] = q[column[i]];
    for (int i = 0; i < FIXED_BLOCK; i += 32) {
        __m256i a = load_i(ordered + i), b = load_i(ordered + i + 16);
        __m256i a_hi = _mm256_srai_epi16(_mm256_add_epi16(a, half), 8);
        __m256i b_hi = _mm256_srai_epi16(_mm256_add_epi16(b, half), 8);
        __m256i a_lo = _mm256_sub_epi16(a, _mm256_slli_epi16(a_hi, 8));
        __m256i b_lo = _mm256_sub_epi16(b, _mm256_slli_epi16(b_hi, 8));
        char *slot = to + i / 64 * X_SLOT + i % 64;
        store_i(slot, _mm256_permute4x64_epi64(_mm256_packs_epi16(a_hi, b_hi), 0xd8));
        store_i(slot + 64, _mm256_permute4x64_epi64(_mm256_packs_epi16(a_lo, b_lo), 0xd8));
        sum_hi = _mm256_add_epi32(sum_hi, _mm256_madd_epi16(_mm256_add_epi16(a_hi, b_hi), ones));
        sum_lo = _mm256_add_epi32(sum_lo, _mm256_madd_epi16(_mm256_add_epi16(a_lo, b_lo), ones));
    }
    int32_t hi = sum_lanes(sum_hi), lo = sum_lanes(sum_lo);
    tail.correction[0] = 128 * (257 * hi + lo);
    tail.correction[1] = 128 * (256 * hi + lo);
    memcpy(to + X_TAIL, &tail, sizeof tail);
}

/* x.hi and q of the number at `place` of a block. */
static ALWAYS_INLINE void read_place(const char *x, int place, int *hi, int *q)
{
    const int8_t *slot = (const int8_t *)x + place / 64 * X_SLOT + place % 64;
    *hi = slot[0];
    *q = 256 * slot[0] + slot[64];
}

/* ---- tables ---- */

/* Of at most 64 entries: entry 0, repeated to 64. Of 256: sixty-fours 0-3. */
struct fixed_tables {
    __m512i hi[4], lo[4];
};

static ALWAYS_INLINE void load_plane(__m512i t[4], const int8_t *table, int bits)
{
    const int n = bits == 8 ? 4 : 1, period = 1 << bits;
    for (int k = 0; k < n; k++) {
        int8_t repeated[64];
        if (bits >= 6) {
            t[k] = load_z(table + 64 * k);
        } else if (bits == 4) {
            t[k] = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)table));
        } else {
            for (int i = 0; i < 64; i++)
                repeated[i] = table[i & (period - 1)];
            t[k] = load_z(repeated);
        }
        t[k] = _mm512_xor_si512(t[k], _mm512_set1_epi8(-128));
    }
}

static ALWAYS_INLINE void load_tables(struct fixed_tables *t, const int8_t *table, int bits)
{
    load_plane(t->hi, table, bits);
    load_plane(t->lo, table + (1 << bits), bits);
}

/* ---- decoding ---- */

static ALWAYS_INLINE __m512i look_up(const __m512i t[4], __m512i index, int bits)
{
    if (bits < 8)
        return _mm512_permutexvar_epi8(index, t[0]);
    return _mm512_mask_blend_epi8(_mm512_movepi8_mask(index), _mm512_permutex2var_epi8(t[0], index, t[1]),
                                  _mm512_permutex2var_epi8(t[2], index, t[3]));
}

/* Bytes from, from + 1, .. (`bytes` of them) into quadword 0, the next into 1, and so on. */
static ALWAYS_INLINE __m512i spread_bytes(int from, int bytes)
{
    uint8_t at[64];
    UNROLL_ALL
    for (int i = 0; i < 64; i++)
        at[i] = (uint8_t)((from + i / 8 * bytes + (i % 8 < bytes ? i % 8 : 0)) & 63);
    return load_z(at);
}

/* The 64 indices of a slot, one a byte; only the low `bits` bits count. Reads the block's bytes alone. */
static ALWAYS_INLINE __m512i slot_indices(const uint8_t *p, int slot, int bits)
{
    if (bits == 8)
        return load_z(p + slot * 64);
    if (bits == 4) {
        __m512i v = load_z(p + slot / 2 * 64);
        return slot % 2 ? _mm512_srli_epi16(v, 4) : v;
    }
    if (bits == 2) {
        __m512i v = load_z(p);
        return slot > 0 ? _mm512_srli_epi16(v, (unsigned)slot * 2) : v;
    }
    if (bits == 1) {
        __m512i v = _mm512_broadcast_i64x4(load_i(p));
        __m512i by =
            _mm512_inserti64x4(_mm512_set1_epi16((short)slot), _mm256_set1_epi16((short)(slot + 4)), 1);
        return _mm512_srlv_epi16(v, by);
    }
    /* eight indices of 3 or 6 bits lie in as many bytes; the last slots are loaded from before they begin */
    const int begin = slot * 8 * bits, last = 32 * bits - 64, from = begin < last ? begin : last;
    const __m512i shifts =
        bits == 3 ? _mm512_set1_epi64(0x15120f0c09060300) : _mm512_set1_epi64(0x2a241e18120c0600);
    __m512i v = _mm512_permutexvar_epi8(spread_bytes(begin - from, bits), load_z(p + from));
    return _mm512_multishift_epi64_epi8(shifts, v);
}

/* hi + 128 and lo + 128 of a slot; integers have no lo. */
static ALWAYS_INLINE void decode_slot(__m512i *hi, __m512i *lo, const uint8_t *p, int slot,
                                      const struct fixed_tables *t, int bits, bool is_identity)
{
    __m512i index = slot_indices(p, slot, bits);
    if (is_identity && bits == 8)
        *hi = _mm512_xor_si512(index, _mm512_set1_epi8(-128));
    else
        *hi = look_up(t->hi, index, bits);
    *lo = is_identity ? _mm512_setzero_si512() : look_up(t->lo, index, bits);
}

/* A block of one weight row into planes: per slot 64 hi + 128, then 64 lo + 128. */
static ALWAYS_INLINE void decode_block(char *planes, const uint8_t *p, const struct fixed_tables *t, int bits,
                                       bool is_identity)
{
    UNROLL_ALL
    for (int s = 0; s < SLOTS; s++) {
        __m512i hi, lo;
        decode_slot(&hi, &lo, p, s, t, bits, is_identity);
        _mm512_storeu_si512(planes + s * X_SLOT, hi);
        if (!is_identity)
            _mm512_storeu_si512(planes + s * X_SLOT + 64, lo);
    }
}

/* ---- sums ---- */

struct slot_sums {
    __m512i high, rest, low;
};

static ALWAYS_INLINE void add_slot(struct slot_sums *s, __m512i hi, __m512i lo, __m512i x_hi, __m512i x_lo,
                                   bool is_identity)
{
    s->high = _mm512_dpbusd_epi32(s->high, hi, x_hi);
    s->rest = _mm512_dpbusd_epi32(s->rest, hi, x_lo);
    if (!is_identity)
        s->low = _mm512_dpbusd_epi32(s->low, lo, x_hi);
}

static ALWAYS_INLINE __m512i join_sums(const struct slot_sums *s)
{
    return _mm512_add_epi32(_mm512_slli_epi32(s->high, 8), _mm512_add_epi32(s->rest, s->low));
}

static ALWAYS_INLINE struct slot_sums no_sums(void)
{
    __m512i zero = _mm512_setzero_si512();
    struct slot_sums s = {zero, zero, zero};
    return s;
}

static ALWAYS_INLINE __m256i lower_half(__m512i a)
{
    return _mm512_castsi512_si256(a);
}

static ALWAYS_INLINE __m256i upper_half(__m512i a)
{
    return _mm512_extracti64x4_epi64(a, 1);
}

/* What the sums of integers over slots [first, last) are too large by, lane by lane. */
static ALWAYS_INLINE __m512i lane_correction(const char *x, int first, int last)
{
    struct slot_sums s = no_sums();
    const __m512i zero_weights = _mm512_set1_epi8(-128);
    for (int i = first; i < last; i++)
        add_slot(&s, zero_weights, zero_weights, load_z(x + i * X_SLOT), load_z(x + i * X_SLOT + 64), true);
    return join_sums(&s);
}

/* Slots of STEP_UNITS units of integers. */
static ALWAYS_INLINE int step_slots(int bits)
{
    return STEP_UNITS * 2 * half_columns(bits) / 64;
}

/* A block of one weight row with one activation row: eight lanes of sums for the whole block or for each unit, every
 * TOGETHER * LANES_BYTES. Returns what follows the last. */
static ALWAYS_INLINE char *sum_block(char *lanes, const uint8_t *p, const char *x,
                                     const struct fixed_tables *t, int bits, bool is_identity, bool by_unit)
{
    const int step = by_unit ? step_slots(bits) : SLOTS;
    UNROLL_ALL
    for (int first = 0; first < SLOTS; first += step) {
        struct slot_sums s = no_sums();
        UNROLL_ALL
        for (int i = first; i < first + step; i++) {
            __m512i hi, lo;
            decode_slot(&hi, &lo, p, i, t, bits, is_identity);
            add_slot(&s, hi, lo, load_z(x + i * X_SLOT), load_z(x + i * X_SLOT + 64), is_identity);
        }
        __m512i sum = join_sums(&s);
        if (by_unit) {
            sum = _mm512_sub_epi32(sum, lane_correction(x, first, first + step));
            store_i(lanes, lower_half(sum));
            store_i(lanes + TOGETHER * LANES_BYTES, upper_half(sum));
            lanes += 2 * TOGETHER * LANES_BYTES;
        } else {
            store_i(lanes, _mm256_add_epi32(lower_half(sum), upper_half(sum)));
            lanes += TOGETHER * LANES_BYTES;
        }
    }
    return lanes;
}

/* Over slots [first, last) of four decoded rows with two activation rows. s[r] and s[4 + r]: row r with the first and
 * the second. */
static ALWAYS_INLINE void sum_slots(__m512i sums[8], const char *planes, const char *x0, const char *x1,
                                    int first, int last, bool is_identity)
{
    __m512i high[8], rest[8];
    UNROLL_ALL
    for (int i = 0; i < 8; i++)
        high[i] = rest[i] = _mm512_setzero_si512();
    for (int at = first * X_SLOT; at < last * X_SLOT; at += X_SLOT) {
        __m512i hi0 = load_z(x0 + at), lo0 = load_z(x0 + at + 64);
        __m512i hi1 = load_z(x1 + at), lo1 = load_z(x1 + at + 64);
        UNROLL_ALL
        for (int r = 0; r < 4; r++) {
            __m512i v_hi = load_z(planes + r * DECODED_BLOCK + at);
            high[r] = _mm512_dpbusd_epi32(high[r], v_hi, hi0);
            high[4 + r] = _mm512_dpbusd_epi32(high[4 + r], v_hi, hi1);
            rest[r] = _mm512_dpbusd_epi32(rest[r], v_hi, lo0);
            rest[4 + r] = _mm512_dpbusd_epi32(rest[4 + r], v_hi, lo1);
            if (!is_identity) {
                __m512i v_lo = load_z(planes + r * DECODED_BLOCK + at + 64);
                rest[r] = _mm512_dpbusd_epi32(rest[r], v_lo, hi0);
                rest[4 + r] = _mm512_dpbusd_epi32(rest[4 + r], v_lo, hi1);
            }
        }
    }
    UNROLL_ALL
    for (int i = 0; i < 8; i++)
        sums[i] = _mm512_add_epi32(_mm512_slli_epi32(high[i], 8), rest[i]);
}

/* Of a whole block. */
static ALWAYS_INLINE void sum_quad(__m256i sums[8], const char *planes, const char *x0, const char *x1,
                                   bool is_identity)
{
    __m512i wide[8];
    sum_slots(wide, planes, x0, x1, 0, SLOTS, is_identity);
    UNROLL_ALL
    for (int i = 0; i < 8; i++)
        sums[i] = _mm256_add_epi32(lower_half(wide[i]), upper_half(wide[i]));
}

/* Of the STEP_UNITS units from `unit` on, integers of `bits` bits. */
static ALWAYS_INLINE void sum_units(__m256i sums[STEP_UNITS][8], const char *planes, const char *x0,
                                    const char *x1, int unit, int bits)
{
    const int slots = step_slots(bits), first = unit / STEP_UNITS * slots;
    __m512i wide[8];
    sum_slots(wide, planes, x0, x1, first, first + slots, true);
    __m512i extra[2] = {lane_correction(x0, first, first + slots), lane_correction(x1, first, first + slots)};
    UNROLL_ALL
    for (int i = 0; i < 8; i++) {
        __m512i sum = _mm512_sub_epi32(wide[i], extra[i / 4]);
        sums[0][i] = lower_half(sum);
        sums[1][i] = upper_half(sum);
    }
}

#endif
