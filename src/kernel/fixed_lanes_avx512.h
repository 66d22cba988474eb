/* Decoding and integer sums of fixed-point products over AVX-512 with VBMI and VNNI, for body_fixed.h.
 *
 * A block is four slots of 64 weights, whose bytes come straight from the package's bytes; slot_column says which column
 * slot s, byte p is, and activations are prepared in that order. A permutation of bytes looks at the low 6 bits
 * of an index only, so that indices need no masks: tables of fewer entries are repeated to 64.
 *
 * One activation row is multiplied by planes of bytes, of which one must be unsigned: u = w + 8192 = 256 * hi + lo, where
 * 0 <= hi < 64 (the table's upper byte + 32) and lo the table's lower byte; q = 256 * x.hi + x.lo with signed bytes. Then
 * S = 65536 * sum hi * x.hi + 256 * sum (hi * x.lo + lo * x.hi) + sum lo * x.lo - 8192 * sum q, all modulo 2^32: right
 * because a lane has 16 columns and ends below 16 * 8191^2 < 2^30. Integers are one plane, u = w + 128.
 * An instruction of words does the same with one plane less, but bytes have to be interleaved for it, which costs more
 * than the fourth product.
 *
 * Prepared for one row a block is X_BLOCK bytes: per slot 64 x.hi, then 64 x.lo; by lanes -8192 * sum q and -128 * sum q;
 * struct x_block. Several rows: fixed_panel.h. */
#ifndef MILKIT_KERNEL_FIXED_LANES_AVX512_H
#define MILKIT_KERNEL_FIXED_LANES_AVX512_H

#include "kernel/fixed_common.h"

#define ISA(name) name##__vnni
#define X_SLOT 128
#define X_START 512
#define X_TAIL 640
#define X_BLOCK 704
#define SLOTS (FIXED_BLOCK / 64)
#define STEP_UNITS 2 /* units of which one register holds the sums */

static int slot_column(int bits, int slot, int p)
{
    switch (bits) {
    case 1:
        return 8 * (p % 32) + slot + 4 * (p / 32);
    case 2:
        return 4 * p + slot;
    case 4:
        return 128 * (slot / 2) + 2 * p + slot % 2;
    case 6: /* of four columns 0, 2, 1, 3: panels have pairs of every second one (decode_turned_6) */
        return 64 * slot + p / 4 * 4 + p % 2 * 2 + p % 4 / 2;
    default:
        return 64 * slot + p;
    }
}

/* Where the c-th run of eight numbers of a panel lies in a decoded row, in bytes (decode_block): slots of the same bytes
 * of 4-bit weights take turns by lanes. */
static ALWAYS_INLINE int panel_run_offset(int bits, int c)
{
    const int together = bits == 4 ? 2 : 1, of_unit = c % (8 * together);
    int slot = c / (8 * together) * together + of_unit % (2 * together) / 2;
    return slot * X_SLOT + c % 2 * 64 + of_unit / (2 * together) * 16;
}

/* The column whose number stands at `place` of a block. */
static int place_column(int bits, int place, bool is_row)
{
    if (is_row)
        return slot_column(bits, place / 64, place % 64);
    int at = panel_run_offset(bits, place / 8) + place % 8 * 2;
    return slot_column(bits, at / X_SLOT, at % 64 / 16 * 16 + at % X_SLOT / 64 * 8 + at % 16 / 2);
}

static ALWAYS_INLINE __m512i load_z(const void *p)
{
    return _mm512_loadu_si512(p);
}

static ALWAYS_INLINE __m256i lower_half(__m512i a)
{
    return _mm512_castsi512_si256(a);
}

static ALWAYS_INLINE __m256i upper_half(__m512i a)
{
    return _mm512_extracti64x4_epi64(a, 1);
}

/* ---- activations ---- */

/* Mostly numbers stay among their 64. */
static ALWAYS_INLINE void put_in_order(int16_t to[FIXED_BLOCK], const int16_t q[FIXED_BLOCK],
                                       const uint8_t column[FIXED_BLOCK])
{
    __m512i at[8], strays = _mm512_setzero_si512();
    UNROLL_ALL
    for (int i = 0; i < 8; i++) {
        at[i] = _mm512_cvtepu8_epi16(load_i(column + 32 * i));
        strays = _mm512_or_si512(strays, _mm512_xor_si512(at[i], _mm512_set1_epi16((short)(32 * i & 192))));
    }
    if (_mm512_test_epi16_mask(strays, _mm512_set1_epi16(192))) {
        put_each_in_order(to, q, column);
        return;
    }
    UNROLL_ALL
    for (int i = 0; i < 8; i++) {
        const int16_t *from = q + 32 * i / 64 * 64;
        _mm512_storeu_si512(to + 32 * i, _mm512_permutex2var_epi16(load_z(from), at[i], load_z(from + 32)));
    }
}

/* The end of a block of one prepared activation row. */
struct x_block {
    float scale;
};

/* to: one X_BLOCK; column[]: what each place in it holds. */
static void arrange_block(char *to, const int16_t q[FIXED_BLOCK], const uint8_t column[FIXED_BLOCK],
                          float scale)
{
    int16_t ordered[FIXED_BLOCK];
    struct x_block tail = {.scale = scale};
    const __m256i half = _mm256_set1_epi16(128);
    const __m512i ones = _mm512_set1_epi8(1);
    __m512i sum_hi = _mm512_setzero_si512(), sum_lo = sum_hi;
    put_in_order(ordered, q, column);
    for (int i = 0; i < FIXED_BLOCK; i += 32) {
        __m256i a = load_i(ordered + i), b = load_i(ordered + i + 16);
        __m256i a_hi = _mm256_srai_epi16(_mm256_add_epi16(a, half), 8);
        __m256i b_hi = _mm256_srai_epi16(_mm256_add_epi16(b, half), 8);
        __m256i a_lo = _mm256_sub_epi16(a, _mm256_slli_epi16(a_hi, 8));
        __m256i b_lo = _mm256_sub_epi16(b, _mm256_slli_epi16(b_hi, 8));
        char *slot = to + i / 64 * X_SLOT + i % 64;
        store_i(slot, _mm256_permute4x64_epi64(_mm256_packs_epi16(a_hi, b_hi), 0xd8));
        store_i(slot + 64, _mm256_permute4x64_epi64(_mm256_packs_epi16(a_lo, b_lo), 0xd8));
    }
    for (int s = 0; s < SLOTS; s++) {
        sum_hi = _mm512_dpbusd_epi32(sum_hi, ones, load_z(to + s * X_SLOT));
        sum_lo = _mm512_dpbusd_epi32(sum_lo, ones, load_z(to + s * X_SLOT + 64));
    }
    __m512i less =
        _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_add_epi32(_mm512_slli_epi32(sum_hi, 8), sum_lo));
    _mm512_storeu_si512(to + X_START, _mm512_slli_epi32(less, 13));
    _mm512_storeu_si512(to + X_START + 64, _mm512_slli_epi32(less, 7));
    memcpy(to + X_TAIL, &tail, sizeof tail);
}

/* The number at `place` of a block of one row. */
static ALWAYS_INLINE int read_place(const char *x, int place)
{
    const int8_t *slot = (const int8_t *)x + place / 64 * X_SLOT + place % 64;
    return 256 * slot[0] + slot[64];
}

/* ---- tables ---- */

/* Of at most 64 entries: entry 0, repeated to 64. Of 256: sixty-fours 0-3. */
struct fixed_tables {
    __m512i hi[4], lo[4];
};

static ALWAYS_INLINE void load_plane(__m512i t[4], const uint8_t *table, int bits)
{
    const int n = bits == 8 ? 4 : 1, period = 1 << bits;
    for (int k = 0; k < n; k++) {
        uint8_t repeated[64];
        if (bits >= 6) {
            t[k] = load_z(table + 64 * k);
        } else if (bits == 4) {
            t[k] = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)table));
        } else {
            for (int i = 0; i < 64; i++)
                repeated[i] = table[i & (period - 1)];
            t[k] = load_z(repeated);
        }
    }
}

static ALWAYS_INLINE void load_tables(struct fixed_tables *t, const uint8_t *table, int bits)
{
    load_plane(t->hi, table, bits);
    load_plane(t->lo, table + (1 << bits), bits);
}

/* For planes of bytes: to what is unsigned. */
static ALWAYS_INLINE void make_unsigned(struct fixed_tables *t, int bits, bool is_identity)
{
    const int n = bits == 8 ? 4 : 1;
    for (int k = 0; k < n; k++) {
        if (is_identity)
            t->lo[k] = _mm512_xor_si512(t->lo[k], _mm512_set1_epi8(-128));
        else
            t->hi[k] = _mm512_add_epi8(t->hi[k], _mm512_set1_epi8(32));
    }
}

static ALWAYS_INLINE void load_row_tables_of(struct fixed_tables *t, const uint8_t *table, int bits,
                                             bool is_identity)
{
    load_tables(t, table, bits);
    make_unsigned(t, bits, is_identity);
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
        bits == 3 ? _mm512_set1_epi64(0x15120f0c09060300) : _mm512_set1_epi64(0x2a1e241812060c00);
    __m512i v = _mm512_permutexvar_epi8(spread_bytes(begin - from, bits), load_z(p + from));
    return _mm512_multishift_epi64_epi8(shifts, v);
}

/* The planes of a slot; integers have no upper one. */
static ALWAYS_INLINE void decode_slot(__m512i *hi, __m512i *lo, const uint8_t *p, int slot,
                                      const struct fixed_tables *t, int bits, bool is_identity)
{
    __m512i index = slot_indices(p, slot, bits);
    if (is_identity && bits == 8)
        *lo = index;
    else
        *lo = look_up(t->lo, index, bits);
    *hi = is_identity ? *lo : look_up(t->hi, index, bits);
}

/* A block of one weight row into 16-bit numbers: per slot bytes 0-7, 16-23, 32-39, 48-55, then the others. Tables as
 * they are. */
static ALWAYS_INLINE void decode_block(char *decoded, const uint8_t *p, const struct fixed_tables *t,
                                       int bits, bool is_identity)
{
    UNROLL_ALL
    for (int s = 0; s < SLOTS; s++) {
        __m512i hi, lo;
        decode_slot(&hi, &lo, p, s, t, bits, is_identity);
        __m512i a = _mm512_unpacklo_epi8(lo, hi), b = _mm512_unpackhi_epi8(lo, hi);
        if (is_identity) {
            a = _mm512_srai_epi16(a, 8);
            b = _mm512_srai_epi16(b, 8);
        }
        _mm512_storeu_si512(decoded + s * X_SLOT, a);
        _mm512_storeu_si512(decoded + s * X_SLOT + 64, b);
    }
}

/* ---- sums ---- */

/* Upper by upper bytes, upper by lower and lower by upper, lower by lower. */
struct slot_sums {
    __m512i high, middle, low;
};

/* Of integers lo is all there is, and is less than 128 too large. */
static ALWAYS_INLINE void add_slot(struct slot_sums *s, __m512i hi, __m512i lo, __m512i x_hi, __m512i x_lo,
                                   bool is_identity)
{
    s->middle = _mm512_dpbusd_epi32(s->middle, lo, x_hi);
    s->low = _mm512_dpbusd_epi32(s->low, lo, x_lo);
    if (!is_identity) {
        s->high = _mm512_dpbusd_epi32(s->high, hi, x_hi);
        s->middle = _mm512_dpbusd_epi32(s->middle, hi, x_lo);
    }
}

static ALWAYS_INLINE __m512i join_sums(const struct slot_sums *s)
{
    __m512i middle = _mm512_add_epi32(_mm512_slli_epi32(s->high, 8), s->middle);
    return _mm512_add_epi32(_mm512_slli_epi32(middle, 8), s->low);
}

static ALWAYS_INLINE struct slot_sums sums_from(__m512i start)
{
    __m512i zero = _mm512_setzero_si512();
    struct slot_sums s = {zero, zero, start};
    return s;
}

/* For a whole block of x: what sums are too large by, taken off. */
static ALWAYS_INLINE struct slot_sums block_start(const char *x, bool is_identity)
{
    return sums_from(load_z(x + X_START + (is_identity ? 64 : 0)));
}

/* What the sums of integers over slots [first, last) are too large by, lane by lane. */
static ALWAYS_INLINE __m512i lane_correction(const char *x, int first, int last)
{
    struct slot_sums s = sums_from(_mm512_setzero_si512());
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

static ALWAYS_INLINE void add_row_slot(struct slot_sums *s, const uint8_t *p, const char *x, int slot,
                                       const struct fixed_tables *t, int bits, bool is_identity)
{
    __m512i hi, lo;
    decode_slot(&hi, &lo, p, slot, t, bits, is_identity);
    if (is_identity && bits == 8)
        lo = _mm512_xor_si512(lo, _mm512_set1_epi8(-128));
    add_slot(s, hi, lo, load_z(x + slot * X_SLOT), load_z(x + slot * X_SLOT + 64), is_identity);
}

/* A block of one weight row with one activation row: eight lanes of sums for the whole block or for each unit, every
 * TOGETHER * LANES_BYTES. Returns what follows the last. Tables are unsigned ones. */
static ALWAYS_INLINE char *sum_block(char *lanes, const uint8_t *p, const char *x,
                                     const struct fixed_tables *t, int bits, bool is_identity, bool by_unit)
{
    const int step = by_unit ? step_slots(bits) : SLOTS;
    UNROLL_ALL
    for (int first = 0; first < SLOTS; first += step) {
        struct slot_sums s = by_unit ? sums_from(_mm512_setzero_si512()) : block_start(x, is_identity);
        UNROLL_ALL
        for (int i = first; i < first + step; i++)
            add_row_slot(&s, p, x, i, t, bits, is_identity);
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

/* ---- registers of a panel (fixed_panel.h) ---- */

typedef __m512i pint;
typedef __m512 pfloat;
#define PANEL_LANES 16
#define FIXED_TOKENS 8 /* activation rows at a time: 16 of 32 registers are sums */

static ALWAYS_INLINE pint pint_load(const char *p)
{
    return load_z(p);
}

static ALWAYS_INLINE void pint_store(char *p, pint a)
{
    _mm512_storeu_si512(p, a);
}

static ALWAYS_INLINE __m128i load_x(const char *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

/* 16 bytes from each of `from`, from + step, .. */
static ALWAYS_INLINE pint pint_gather(const char *from, int step)
{
    __m512i a = _mm512_castsi128_si512(load_x(from));
    a = _mm512_inserti32x4(a, load_x(from + step), 1);
    a = _mm512_inserti32x4(a, load_x(from + 2 * step), 2);
    return _mm512_inserti32x4(a, load_x(from + 3 * step), 3);
}

/* 4-bit and 6-bit weights, sixteen rows of which eight and eight share a table, whole blocks in place: packed bytes are
 * turned over, and numbers made in the places of a panel. */
static ALWAYS_INLINE bool can_decode_turned(const struct fixed_weight *w, int64_t o, int64_t n, int64_t b,
                                            int bits)
{
    bool eights =
        w->table_stride == 0 || w->rows_per_group >= w->n_out || (w->rows_per_group % 8 == 0 && o % 8 == 0);
    return (bits == 4 || bits == 6) && n >= PANEL_LANES && eights && w->n_in % 4 == 0 &&
           w->n_in - b * FIXED_BLOCK >= FIXED_BLOCK;
}

/* Four registers of double words: r[q] is the q-th of the sixteen bytes at `from` in each of sixteen rows. */
static ALWAYS_INLINE void turn_rows(__m512i r[4], const char *from, int64_t stride)
{
    pint t[4], u[4];
    UNROLL_ALL
    for (int i = 0; i < 4; i++) {
        const char *row = from + i * stride;
        t[i] = _mm512_castsi128_si512(load_x(row));
        t[i] = _mm512_inserti32x4(t[i], load_x(row + 4 * stride), 1);
        t[i] = _mm512_inserti32x4(t[i], load_x(row + 8 * stride), 2);
        t[i] = _mm512_inserti32x4(t[i], load_x(row + 12 * stride), 3);
    }
    u[0] = _mm512_unpacklo_epi32(t[0], t[1]);
    u[1] = _mm512_unpackhi_epi32(t[0], t[1]);
    u[2] = _mm512_unpacklo_epi32(t[2], t[3]);
    u[3] = _mm512_unpackhi_epi32(t[2], t[3]);
    r[0] = _mm512_unpacklo_epi64(u[0], u[2]);
    r[1] = _mm512_unpackhi_epi64(u[0], u[2]);
    r[2] = _mm512_unpacklo_epi64(u[1], u[3]);
    r[3] = _mm512_unpackhi_epi64(u[1], u[3]);
}

/* The sixteen rows from o on to every second register of a panel. Of 32 columns first the even ones. Also integers,
 * whose table they are. */
static ALWAYS_INLINE void decode_turned_4(char *panel, const struct fixed_weight *w, int64_t o, int64_t b)
{
    const int64_t stride = w->n_in / 2;
    const char *from = (const char *)w->indices + o * stride + b * (FIXED_BLOCK / 2);
    const char *t[2] = {(const char *)table_of(w, o), (const char *)table_of(w, o + 8)};
    const size_t step = 2 * sizeof(pint);
    /* sixteens of lower and upper bytes: of the first eight rows, of the others */
    __m512i table = _mm512_castsi128_si512(load_x(t[0] + 16));
    table = _mm512_inserti32x4(table, load_x(t[0]), 1);
    table = _mm512_inserti32x4(table, load_x(t[1] + 16), 2);
    table = _mm512_inserti32x4(table, load_x(t[1]), 3);
    const __m512i sixteen =
        _mm512_inserti64x4(_mm512_set1_epi32(0x10001000), _mm256_set1_epi32(0x30203020), 1);
    const __m512i nibble = _mm512_set1_epi8(15);
    const __m512i first =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 0, 1, 1, 4, 4, 5, 5, 8, 8, 9, 9, 12, 12, 13, 13));
    const __m512i second =
        _mm512_broadcast_i32x4(_mm_setr_epi8(2, 2, 3, 3, 6, 6, 7, 7, 10, 10, 11, 11, 14, 14, 15, 15));
    for (int c = 0; c < FIXED_BLOCK / 32; c++, from += 16, panel += 16 * step) {
        __m512i r[4];
        turn_rows(r, from, stride);
        UNROLL_ALL
        for (int q = 0; q < 4; q++) { /* eight columns */
            __m512i v[2] = {_mm512_shuffle_epi8(r[q], first), _mm512_shuffle_epi8(r[q], second)};
            UNROLL_ALL
            for (int k = 0; k < 2; k++) {
                __m512i even = _mm512_ternarylogic_epi32(v[k], nibble, sixteen, 0xea);
                __m512i odd = _mm512_ternarylogic_epi32(_mm512_srli_epi16(v[k], 4), nibble, sixteen, 0xea);
                char *to = panel + (size_t)(2 * q + k) * step;
                pint_store(to, _mm512_permutexvar_epi8(even, table));
                pint_store(to + 8 * step, _mm512_permutexvar_epi8(odd, table));
            }
        }
    }
}

/* The same of 6-bit weights: of four columns 0 and 2, then 1 and 3. */
static ALWAYS_INLINE void decode_turned_6(char *panel, const struct fixed_weight *w, int64_t o, int64_t b)
{
    const int64_t stride = w->n_in / 4 * 3;
    const char *from = (const char *)w->indices + o * stride + b * (FIXED_BLOCK / 4 * 3);
    const uint8_t *t[2] = {table_of(w, o), table_of(w, o + 8)};
    const __m512i hi[2] = {load_z(t[0]), load_z(t[1])}, lo[2] = {load_z(t[0] + 64), load_z(t[1] + 64)};
    const __mmask64 others = UINT64_C(0xffffffff00000000);
    const __m512i even = _mm512_set1_epi16(255);
    const __m512i shifts = _mm512_set1_epi64(0x322c2620120c0600);
    for (int c = 0; c < FIXED_BLOCK / 64; c++, from += 48) {
        __m512i d[12];
        UNROLL_ALL
        for (int k = 0; k < 3; k++)
            turn_rows(d + 4 * k, from + 16 * k, stride);
        UNROLL_ALL
        for (int k = 0; k < 12; k += 3) { /* sixteen columns in three double words */
            __m512i four[4];
            four[0] = d[k];
            four[1] = _mm512_or_si512(_mm512_srli_epi32(d[k], 24), _mm512_slli_epi32(d[k + 1], 8));
            four[2] = _mm512_or_si512(_mm512_srli_epi32(d[k + 1], 16), _mm512_slli_epi32(d[k + 2], 16));
            four[3] = _mm512_srli_epi32(d[k + 2], 8);
            UNROLL_ALL
            for (int q = 0; q < 4; q++, panel += 4 * sizeof(pint)) {
                __m512i i = _mm512_multishift_epi64_epi8(shifts, four[q]);
                __m512i l = _mm512_permutexvar_epi8(i, lo[0]), h = _mm512_permutexvar_epi8(i, hi[0]);
                l = _mm512_mask_permutexvar_epi8(l, others, i, lo[1]);
                h = _mm512_mask_permutexvar_epi8(h, others, i, hi[1]);
                pint_store(panel, _mm512_ternarylogic_epi32(even, l, _mm512_slli_epi16(h, 8), 0xca));
                pint_store(panel + 2 * sizeof(pint),
                           _mm512_ternarylogic_epi32(even, _mm512_srli_epi16(l, 8), h, 0xca));
            }
        }
    }
}

static ALWAYS_INLINE void decode_turned(char *panel, const struct fixed_weight *w, int64_t o, int64_t b,
                                        int bits)
{
    if (bits == 4)
        decode_turned_4(panel, w, o, b);
    else
        decode_turned_6(panel, w, o, b);
}

static ALWAYS_INLINE pint pint_broadcast(const char *p)
{
    int32_t pair;
    memcpy(&pair, p, sizeof pair);
    return _mm512_set1_epi32(pair);
}

static ALWAYS_INLINE pint pint_zero(void)
{
    return _mm512_setzero_si512();
}

static ALWAYS_INLINE pint pint_in_register(pint a)
{
    __asm__("" : "+v"(a));
    return a;
}

static ALWAYS_INLINE pint pint_add(pint a, pint b)
{
    return _mm512_add_epi32(a, b);
}

/* acc + a.0 * b.0 + a.1 * b.1 in every lane */
static ALWAYS_INLINE pint pint_dot(pint acc, pint a, pint b)
{
    return pint_in_register(_mm512_dpwssd_epi32(acc, a, b));
}

/* a = 65536 * the upper one, rounded down, + the lower one */
static ALWAYS_INLINE pint pint_upper_half(pint a)
{
    return _mm512_srai_epi32(a, 16);
}

static ALWAYS_INLINE pint pint_lower_half(pint a)
{
    return _mm512_and_si512(a, _mm512_set1_epi32(65535));
}

static ALWAYS_INLINE pint pint_unpack_low_32(pint a, pint b)
{
    return _mm512_unpacklo_epi32(a, b);
}

static ALWAYS_INLINE pint pint_unpack_high_32(pint a, pint b)
{
    return _mm512_unpackhi_epi32(a, b);
}

static ALWAYS_INLINE pint pint_unpack_low_64(pint a, pint b)
{
    return _mm512_unpacklo_epi64(a, b);
}

static ALWAYS_INLINE pint pint_unpack_high_64(pint a, pint b)
{
    return _mm512_unpackhi_epi64(a, b);
}

static ALWAYS_INLINE pfloat pfloat_zero(void)
{
    return _mm512_setzero_ps();
}

static ALWAYS_INLINE pfloat pfloat_set1(float x)
{
    return _mm512_set1_ps(x);
}

static ALWAYS_INLINE pfloat pfloat_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

static ALWAYS_INLINE void pfloat_store(float *p, pfloat a)
{
    _mm512_storeu_ps(p, a);
}

static ALWAYS_INLINE pfloat pfloat_add(pfloat a, pfloat b)
{
    return _mm512_add_ps(a, b);
}

static ALWAYS_INLINE pfloat pfloat_mul(pfloat a, pfloat b)
{
    return _mm512_mul_ps(a, b);
}

static ALWAYS_INLINE pfloat pfloat_fma(pfloat a, pfloat b, pfloat c)
{
    return _mm512_fmadd_ps(a, b, c);
}

static ALWAYS_INLINE pfloat pfloat_of(pint a)
{
    return _mm512_cvtepi32_ps(a);
}

/* The loop of fixed_panel.h for FIXED_TOKENS activation rows as one piece of assembly: sums in zmm0-15, the upper halves of
 * twelve of them in zmm20-31. Compilers move some of these to memory and copy all of them. With n_runs 0, one run of
 * `run` pairs whose sums are not halved. */
#define PANEL_ZERO(n) "vpxord %%xmm" #n ", %%xmm" #n ", %%xmm" #n "\n\t"
#define PANEL_TOKEN(t, step, x, a, b)                                                                        \
    "vpbroadcastd 576*" #t "+4*" #step "(%[x]), %%zmm" #x "\n\t"                                             \
    "vpdpwssd %%zmm" #x ", %%zmm16, %%zmm" #a "\n\t"                                                         \
    "vpdpwssd %%zmm" #x ", %%zmm17, %%zmm" #b "\n\t"
#define PANEL_STEP(step)                                                                                     \
    "vmovdqu64 128*" #step "(%[panel]), %%zmm16\n\t"                                                         \
    "vmovdqu64 128*" #step "+64(%[panel]), %%zmm17\n\t" PANEL_TOKEN(0, step, 18, 0, 1)                       \
        PANEL_TOKEN(1, step, 19, 2, 3) PANEL_TOKEN(2, step, 18, 4, 5) PANEL_TOKEN(3, step, 19, 6, 7)         \
            PANEL_TOKEN(4, step, 18, 8, 9) PANEL_TOKEN(5, step, 19, 10, 11) PANEL_TOKEN(6, step, 18, 12, 13) \
                PANEL_TOKEN(7, step, 19, 14, 15)
#define PANEL_HALVE(a, upper)                                                                                \
    "vpsrad $16, %%zmm" #a ", %%zmm18\n\t"                                                                   \
    "vpandd %%zmm16, %%zmm" #a ", %%zmm" #a "\n\t"                                                           \
    "vpaddd %%zmm18, %%zmm" #upper ", %%zmm" #upper "\n\t"
#define PANEL_HALVE_AWAY(a)                                                                                  \
    "vpsrad $16, %%zmm" #a ", %%zmm18\n\t"                                                                   \
    "vpandd %%zmm16, %%zmm" #a ", %%zmm" #a "\n\t"                                                           \
    "vpaddd 64*" #a "(%[high]), %%zmm18, %%zmm18\n\t"                                                        \
    "vmovdqu64 %%zmm18, 64*" #a "(%[high])\n\t"
#define PANEL_STORE(a) "vmovdqu64 %%zmm" #a ", 64*" #a "(%[low])\n\t"
#define PANEL_STORE_UPPER(a, upper) "vmovdqu64 %%zmm" #upper ", 64*" #a "(%[high])\n\t"
/* clang-format off */
#define PANEL_EACH_UPPER(f)                                                                                  \
    f(0, 20) f(1, 21) f(2, 22) f(3, 23) f(4, 24) f(5, 25) f(6, 26) f(7, 27) f(8, 28) f(9, 29) f(10, 30) f(11, 31)
#define PANEL_EACH(f)                                                                                        \
    f(0) f(1) f(2) f(3) f(4) f(5) f(6) f(7) f(8) f(9) f(10) f(11) f(12) f(13) f(14) f(15)

static ALWAYS_INLINE void panel_sums_most(pint low[FIXED_TOKENS][2], pint high[FIXED_TOKENS][2],
                                          const char *panel, const char *x, int64_t run, int64_t n_runs)
{
    const int32_t lower = 65535;
    int64_t left;
    high[6][0] = high[6][1] = high[7][0] = high[7][1] = pint_zero();
    __asm__ volatile(PANEL_EACH(PANEL_ZERO)
                     PANEL_ZERO(20) PANEL_ZERO(21) PANEL_ZERO(22) PANEL_ZERO(23) PANEL_ZERO(24) PANEL_ZERO(25)
                     PANEL_ZERO(26) PANEL_ZERO(27) PANEL_ZERO(28) PANEL_ZERO(29) PANEL_ZERO(30) PANEL_ZERO(31)
                     ".p2align 6\n"
                     "1:\n\t"
                     "movq %[run], %[left]\n"
                     "2:\n\t"
                     PANEL_STEP(0) PANEL_STEP(1)
                     "addq $8, %[x]\n\t"
                     "addq $256, %[panel]\n\t"
                     "subq $2, %[left]\n\t"
                     "jnz 2b\n\t"
                     "testq %[n], %[n]\n\t"
                     "jz 3f\n\t"
                     "vpbroadcastd %[lower], %%zmm16\n\t"
                     PANEL_EACH_UPPER(PANEL_HALVE)
                     PANEL_HALVE_AWAY(12) PANEL_HALVE_AWAY(13) PANEL_HALVE_AWAY(14) PANEL_HALVE_AWAY(15)
                     "decq %[n]\n\t"
                     "jnz 1b\n\t"
                     PANEL_EACH_UPPER(PANEL_STORE_UPPER)
                     "3:\n\t"
                     PANEL_EACH(PANEL_STORE)
                     : [left] "=&r"(left), [x] "+r"(x), [panel] "+r"(panel), [n] "+r"(n_runs)
                     : [run] "r"(run), [low] "r"(low), [high] "r"(high), [lower] "m"(lower)
                     : "cc", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
                       "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "xmm16", "xmm17", "xmm18",
                       "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", "xmm26", "xmm27", "xmm28",
                       "xmm29", "xmm30", "xmm31");
}
#define panel_sums_most panel_sums_most
/* clang-format on */

#endif
