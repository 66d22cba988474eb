/* Decoding and integer sums of fixed-point products over AVX2 registers, for body_fixed.h; also for AVX-512 processors
 * without VNNI.
 *
 * Weights are decoded a unit of packed bytes at a time straight from the package's bytes into slots of 32 weights. A
 * slot's weights are not neighbours: slot s, byte p of a block is the column that slot_column says, and
 * activations are prepared in that order, so that decoding needs as few shuffles as possible. For integers a unit is 32
 * bytes, and its 128-bit lane h holds the unit's h-th half of neighbouring columns, whence scales for blocks of
 * columns can be applied to halves of a unit.
 *
 * With FIXED_SPREAD, products of 6-bit weights with one activation row (is_spread) do otherwise: fixed_spread.h.
 *
 * A slot's table entries are two byte planes, whose bytes interleaved are the 16-bit weights.
 *
 * Prepared for one activation row a block is X_BLOCK bytes: 16-bit q in the order that interleaving gives (of a slot
 * positions 0-7 and 16-23, then the others), then struct x_block. Eight lanes of 32 bits hold 32 products each
 * (kernel_fixed.h). For several rows: fixed_panel.h, where runs of eight positions are put into such an order that
 * halves of units lie together. */

#ifndef MILKIT_KERNEL_FIXED_LANES_AVX2_H
#define MILKIT_KERNEL_FIXED_LANES_AVX2_H

#include "kernel/fixed_common.h"

#define X_SLOT 64
#define X_TAIL 512
#define X_BLOCK 576
#define SLOTS (FIXED_BLOCK / 32)

/* Units of a block: what is decoded at once. */
static ALWAYS_INLINE int units_of(int bits, bool is_identity)
{
    return bits == 3 || bits == 6 ? 1 : bits == 8 && !is_identity ? 4 : bits;
}

static ALWAYS_INLINE bool is_spread(int bits, bool is_row)
{
    return FIXED_SPREAD && bits == 6 && is_row;
}

static int slot_column(int bits, int slot, int p)
{
    int per_byte = 8 / bits;
    switch (bits) {
    case 3: /* byte 3t of 48 lies at p = 3t mod 16 */
        return 128 * (p / 16) + 8 * (p * 11 % 16) + slot;
    case 6:
        return 128 * (slot / 4) + 64 * (p / 16) + 4 * (p * 11 % 16) + slot % 4;
    default:
        return 32 * per_byte * (slot / per_byte) + per_byte * p + slot % per_byte;
    }
}

/* Where the c-th run of eight numbers of a panel lies in a decoded row, in bytes: slots of one unit of 4-bit weights
 * take turns by lanes. */
static ALWAYS_INLINE int panel_run_offset(int bits, int c)
{
    const int together = bits == 4 ? 2 : 1, of_unit = c % (4 * together);
    int slot = c / (4 * together) * together + of_unit % (2 * together) / 2;
    return slot * X_SLOT + c % 2 * 32 + of_unit / (2 * together) * 16;
}

/* The column whose number stands at `place` of a block. */
static int place_column(int bits, int place, bool is_row)
{
    int at = (is_row ? place * 2 : panel_run_offset(bits, place / 8) + place % 8 * 2), slot = at / X_SLOT;
    int p = at % 32 / 16 * 16 + at % X_SLOT / 32 * 8 + at % 16 / 2;
    return is_spread(bits, is_row) ? slot * 32 + p : slot_column(bits, slot, p);
}

/* ---- activations ---- */

static ALWAYS_INLINE void put_in_order(int16_t to[FIXED_BLOCK], const int16_t q[FIXED_BLOCK],
                                       const uint8_t column[FIXED_BLOCK])
{
    put_each_in_order(to, q, column);
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
    put_in_order(ordered, q, column);
    memcpy(to, ordered, sizeof ordered);
    memcpy(to + X_TAIL, &tail, sizeof tail);
}

/* The number at `place` of a block of one row. */
static ALWAYS_INLINE int read_place(const char *x, int place)
{
    int16_t q;
    memcpy(&q, x + place * 2, sizeof q);
    return q;
}

/* ---- tables ---- */

/* Tables of at most 16 entries: entry 0, repeated to 16. Larger ones: chains of four sixteens, each but the last xor the next
 * (look_up_chains). Of 64 entries: 0-3 the table, 4-7 the table by the index rotated right by 2. Of 256: four
 * chains. */
struct fixed_tables {
    __m256i hi[16], lo[16];
};

static ALWAYS_INLINE __m256i load_sixteen(const uint8_t *table, int bits)
{
    if (bits < 4) {
        uint8_t repeated[16];
        for (int k = 0; k < 16; k++)
            repeated[k] = table[k & ((1 << bits) - 1)];
        return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)repeated));
    }
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)table));
}

/* to[s][k] = from[k * 4 + s] for sixteens to[0..3] of a table of 64 */
static ALWAYS_INLINE void rotate_table(__m256i to[4], const __m256i from[4])
{
    const __m256i fourths =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    __m256i a = _mm256_shuffle_epi8(from[0], fourths), b = _mm256_shuffle_epi8(from[1], fourths);
    __m256i c = _mm256_shuffle_epi8(from[2], fourths), d = _mm256_shuffle_epi8(from[3], fourths);
    __m256i ab01 = _mm256_unpacklo_epi32(a, b), ab23 = _mm256_unpackhi_epi32(a, b);
    __m256i cd01 = _mm256_unpacklo_epi32(c, d), cd23 = _mm256_unpackhi_epi32(c, d);
    to[0] = _mm256_unpacklo_epi64(ab01, cd01);
    to[1] = _mm256_unpackhi_epi64(ab01, cd01);
    to[2] = _mm256_unpacklo_epi64(ab23, cd23);
    to[3] = _mm256_unpackhi_epi64(ab23, cd23);
}

static ALWAYS_INLINE void load_plane(__m256i t[16], const uint8_t *table, int bits)
{
    const int n = bits <= 4 ? 1 : 1 << (bits - 4);
    for (int k = 0; k < n; k++)
        t[k] = load_sixteen(table + 16 * k, bits);
    if (bits == 6)
        rotate_table(t + 4, t);
    for (int k = 0; bits > 4 && k < (bits == 6 ? 8 : 16); k++) {
        if (k % 4 < 3)
            t[k] = _mm256_xor_si256(t[k], t[k + 1]);
    }
}

static ALWAYS_INLINE void load_tables(struct fixed_tables *t, const uint8_t *table, int bits)
{
    load_plane(t->hi, table, bits);
    load_plane(t->lo, table + (1 << bits), bits);
}

/* For sums with one activation row: the same. */
static ALWAYS_INLINE void load_row_tables_of(struct fixed_tables *t, const uint8_t *table, int bits,
                                             bool is_identity)
{
    (void)is_identity;
    load_tables(t, table, bits);
}

/* ---- decoding ---- */

/* Where a decoded slot goes: into sums with the activations of one row, or into 16-bit numbers. */
struct sink {
    bool is_sum;   /* constant wherever these are inlined */
    const char *x; /* X_BLOCK of the row */
    char *decoded;
    __m256i sum; /* eight lanes of 32 bits; lanes 0-3 the first half of a unit */
};

/* The planes of a slot; integers have no upper one. */
static ALWAYS_INLINE void sink_slot(struct sink *to, int slot, __m256i hi, __m256i lo, bool is_identity)
{
    __m256i a = _mm256_unpacklo_epi8(lo, is_identity ? lo : hi);
    __m256i b = _mm256_unpackhi_epi8(lo, is_identity ? lo : hi);
    if (is_identity) {
        a = _mm256_srai_epi16(a, 8);
        b = _mm256_srai_epi16(b, 8);
    }
    if (!to->is_sum) {
        store_i(to->decoded + slot * X_SLOT, a);
        store_i(to->decoded + slot * X_SLOT + 32, b);
        return;
    }
    const char *x = to->x + slot * X_SLOT;
    to->sum = in_register(_mm256_add_epi32(to->sum, _mm256_madd_epi16(a, load_i(x))));
    to->sum = in_register(_mm256_add_epi32(to->sum, _mm256_madd_epi16(b, load_i(x + 32))));
}

/* An index of at most 4 bits in the low bits of every byte; bit 7 is clear. */
static ALWAYS_INLINE void look_up_16(struct sink *to, int slot, const struct fixed_tables *t, __m256i index,
                                     bool is_identity)
{
    __m256i lo = _mm256_shuffle_epi8(t->lo[0], index);
    __m256i hi = is_identity ? lo : _mm256_shuffle_epi8(t->hi[0], index);
    sink_slot(to, slot, hi, lo, is_identity);
}

/* a where bit 7 of the byte is clear, b where it is set. Written out because gcc makes a comparison and a blend of the
 * intrinsic. */
static ALWAYS_INLINE __m256i choose(__m256i a, __m256i b, __m256i bit_7)
{
    __m256i chosen;
    __asm__("vpblendvb %3, %2, %1, %0" : "=x"(chosen) : "x"(a), "xm"(b), "x"(bit_7));
    return chosen;
}

/* Two vectors of clean indices below 64, at[3], and what look_up_chains makes of them. */
struct chain_index {
    __m256i at[4];
};

static ALWAYS_INLINE struct chain_index chain_index(__m256i index)
{
    struct chain_index i = {.at = {[3] = index}};
    UNROLL_ALL
    for (int k = 0; k < 3; k++)
        i.at[k] = _mm256_add_epi8(index, _mm256_set1_epi8((char)(112 - 16 * k)));
    return i;
}

/* Loaded for each use (so `use` says): were large tables kept in registers, sums and indices would not be. */
static ALWAYS_INLINE __m256i load_sixteen_for(const __m256i *sixteen, __m256i use)
{
    __m256i entries;
    __asm__("vmovdqa %1, %0" : "=x"(entries) : "m"(*sixteen), "x"(use));
    return entries;
}

/* 64 entries for two vectors of indices. A shuffle yields 0 where bit 7 is set, so that sixteen k takes part only where
 * index + (128 - 16 * (k + 1)) stays below 128, i.e. where index < 16 * (k + 1); of those that do, the
 * differences of which they are made leave the right one. */
static ALWAYS_INLINE void look_up_chains(__m256i entries[2], const __m256i t[4],
                                         const struct chain_index index[2])
{
    UNROLL_ALL
    for (int k = 3; k >= 0; k--) {
        __m256i sixteen = load_sixteen_for(t + k, index[0].at[k]);
        UNROLL_ALL
        for (int i = 0; i < 2; i++) {
            __m256i found = _mm256_shuffle_epi8(sixteen, index[i].at[k]);
            entries[i] = in_register(k == 3 ? found : _mm256_xor_si256(entries[i], found));
        }
    }
}

static ALWAYS_INLINE void look_up_64(struct sink *to, int slot0, int slot1, const __m256i hi[4],
                                     const __m256i lo[4], __m256i index0, __m256i index1)
{
    __m256i hi_entries[2], lo_entries[2];
    struct chain_index index[2] = {chain_index(index0), chain_index(index1)};
    look_up_chains(hi_entries, hi, index);
    look_up_chains(lo_entries, lo, index);
    sink_slot(to, slot0, hi_entries[0], lo_entries[0], false);
    sink_slot(to, slot1, hi_entries[1], lo_entries[1], false);
}

static ALWAYS_INLINE void look_up_four_chains(__m256i entries[2], const __m256i t[16], const __m256i v[2],
                                              const struct chain_index index[2])
{
    __m256i other[2], upper[2];
    look_up_chains(entries, t, index);
    look_up_chains(other, t + 4, index);
    for (int i = 0; i < 2; i++)
        entries[i] = choose(entries[i], other[i], _mm256_slli_epi16(v[i], 1));
    look_up_chains(upper, t + 8, index);
    look_up_chains(other, t + 12, index);
    for (int i = 0; i < 2; i++)
        entries[i] = choose(entries[i], choose(upper[i], other[i], _mm256_slli_epi16(v[i], 1)), v[i]);
}

static ALWAYS_INLINE void look_up_256(struct sink *to, int slot, const struct fixed_tables *t,
                                      const uint8_t *p)
{
    const __m256i six = _mm256_set1_epi8(63);
    __m256i v[2] = {load_i(p), load_i(p + 32)}, hi[2], lo[2];
    struct chain_index index[2] = {chain_index(_mm256_and_si256(v[0], six)),
                                   chain_index(_mm256_and_si256(v[1], six))};
    look_up_four_chains(hi, t->hi, v, index);
    look_up_four_chains(lo, t->lo, v, index);
    sink_slot(to, slot, hi[0], lo[0], false);
    sink_slot(to, slot + 1, hi[1], lo[1], false);
}

/* Twice 48 bytes, in each lane all bytes 3t, 3t + 1, 3t + 2 at p = 3t mod 16. */
static ALWAYS_INLINE void load_thirds(__m256i thirds[3], const uint8_t *p)
{
    const __m256i is_1 =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, -1, 0, 0, -1, 0, 0, -1, 0, 0, -1, 0, 0, -1, 0, 0));
    const __m256i is_2 =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0, -1, 0, 0, -1, 0, 0, -1, 0, 0, -1, 0, 0, -1, 0));
    __m256i c[3];
    UNROLL_ALL
    for (int k = 0; k < 3; k++)
        c[k] = _mm256_inserti128_si256(
            _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)(p + 16 * k))),
            _mm_loadu_si128((const __m128i *)(const void *)(p + 48 + 16 * k)), 1);
    __m256i one = choose(choose(c[1], c[0], is_1), c[2], is_2);
    __m256i two = choose(choose(c[2], c[1], is_1), c[0], is_2);
    thirds[0] = choose(choose(c[0], c[2], is_1), c[1], is_2);
    thirds[1] = _mm256_alignr_epi8(one, one, 1);
    thirds[2] = _mm256_alignr_epi8(two, two, 2);
}

/* The unit-th unit of a block at p. */
static ALWAYS_INLINE void decode_unit(struct sink *to, const uint8_t *p, int unit,
                                      const struct fixed_tables *t, int bits, bool is_identity)
{
    const __m256i low = _mm256_set1_epi8(15);
    if (bits == 3) {
        const __m256i three = _mm256_set1_epi8(7);
        __m256i b[3];
        load_thirds(b, p);
        __m256i second = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(b[0], 6), _mm256_set1_epi8(3)),
                                         _mm256_and_si256(_mm256_slli_epi16(b[1], 2), _mm256_set1_epi8(4)));
        __m256i fifth = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(b[1], 7), _mm256_set1_epi8(1)),
                                        _mm256_and_si256(_mm256_slli_epi16(b[2], 1), _mm256_set1_epi8(6)));
        look_up_16(to, 0, t, _mm256_and_si256(b[0], three), false);
        look_up_16(to, 1, t, _mm256_and_si256(_mm256_srli_epi16(b[0], 3), three), false);
        look_up_16(to, 2, t, second, false);
        look_up_16(to, 3, t, _mm256_and_si256(_mm256_srli_epi16(b[1], 1), three), false);
        look_up_16(to, 4, t, _mm256_and_si256(_mm256_srli_epi16(b[1], 4), three), false);
        look_up_16(to, 5, t, fifth, false);
        look_up_16(to, 6, t, _mm256_and_si256(_mm256_srli_epi16(b[2], 2), three), false);
        look_up_16(to, 7, t, _mm256_and_si256(_mm256_srli_epi16(b[2], 5), three), false);
    } else if (bits == 6) {
        const __m256i six = _mm256_set1_epi8(63), top = _mm256_set1_epi8(48);
        __m256i b[2][3], second[2], third[2], fourth[2];
        UNROLL_ALL
        for (int i = 0; i < 2; i++) {
            load_thirds(b[i], p + 96 * i);
            second[i] = _mm256_or_si256(_mm256_and_si256(b[i][1], low),
                                        _mm256_and_si256(_mm256_srli_epi16(b[i][0], 2), top));
            third[i] = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(b[i][1], 4), low),
                                       _mm256_and_si256(_mm256_slli_epi16(b[i][2], 4), top));
            fourth[i] = _mm256_and_si256(_mm256_srli_epi16(b[i][2], 2), six);
        }
        look_up_64(to, 0, 4, t->hi, t->lo, _mm256_and_si256(b[0][0], six), _mm256_and_si256(b[1][0], six));
        /* bits 0 and 1 of the second index are the top ones of the first byte, hence the rotated table */
        look_up_64(to, 1, 5, t->hi + 4, t->lo + 4, second[0], second[1]);
        look_up_64(to, 2, 6, t->hi, t->lo, third[0], third[1]);
        look_up_64(to, 3, 7, t->hi, t->lo, fourth[0], fourth[1]);
    } else if (bits == 8 && is_identity) {
        __m256i v = load_i(p + unit * 32);
        sink_slot(to, unit, v, v, true);
    } else if (bits == 8) {
        look_up_256(to, unit * 2, t, p + unit * 64);
    } else {
        const int per_byte = 8 / bits;
        __m256i v = load_i(p + unit * 32);
        UNROLL_ALL
        for (int k = 0; k < per_byte; k++) {
            __m256i index = _mm256_and_si256(k > 0 ? _mm256_srli_epi16(v, k * bits) : v, low);
            look_up_16(to, unit * per_byte + k, t, index, is_identity);
        }
    }
}

/* A block of one weight row into 16-bit numbers, in the order of one prepared activation row. */
static ALWAYS_INLINE void decode_block(char *decoded, const uint8_t *p, const struct fixed_tables *t,
                                       int bits, bool is_identity)
{
    const int n_units = units_of(bits, is_identity);
    struct sink to = {.decoded = decoded};
    for (int u = 0; u < n_units; u++)
        decode_unit(&to, p, u, t, bits, is_identity);
}

/* ---- sums ---- */

/* A block of one weight row with one activation row: eight lanes of sums for the whole block or for each unit, every
 * TOGETHER * LANES_BYTES. Returns what follows the last. */
static ALWAYS_INLINE char *sum_block(char *lanes, const uint8_t *p, const char *x,
                                     const struct fixed_tables *t, int bits, bool is_identity, bool by_unit)
{
    const int n_units = units_of(bits, is_identity);
    struct sink to = {.is_sum = true, .x = x, .sum = _mm256_setzero_si256()};
    UNROLL_ALL
    for (int u = 0; u < n_units; u++) {
        decode_unit(&to, p, u, t, bits, is_identity);
        if (by_unit) {
            store_i(lanes, to.sum);
            lanes += TOGETHER * LANES_BYTES;
            to.sum = _mm256_setzero_si256();
        }
    }
    if (!by_unit) {
        store_i(lanes, to.sum);
        lanes += TOGETHER * LANES_BYTES;
    }
    return lanes;
}

/* ---- registers of a panel (fixed_panel.h) ---- */

typedef __m256i pint;
typedef __m256 pfloat;
#define PANEL_LANES 8
#define FIXED_TOKENS 4 /* activation rows at a time: 8 of 16 registers are sums */

static ALWAYS_INLINE pint pint_load(const char *p)
{
    return load_i(p);
}

static ALWAYS_INLINE void pint_store(char *p, pint a)
{
    store_i(p, a);
}

/* 16 bytes from each of `from`, from + step, .. */
static ALWAYS_INLINE pint pint_gather(const char *from, int step)
{
    return _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)from)),
        _mm_loadu_si128((const __m128i *)(const void *)(from + step)), 1);
}

/* No width is decoded to a panel without rows of numbers in between. */
static ALWAYS_INLINE bool can_decode_turned(const struct fixed_weight *w, int64_t o, int64_t n, int64_t b,
                                            int bits)
{
    (void)w, (void)o, (void)n, (void)b, (void)bits;
    return false;
}

static ALWAYS_INLINE void decode_turned(char *panel, const struct fixed_weight *w, int64_t o, int64_t b,
                                        int bits)
{
    (void)panel, (void)w, (void)o, (void)b, (void)bits;
}

static ALWAYS_INLINE pint pint_broadcast(const char *p)
{
    int32_t pair;
    memcpy(&pair, p, sizeof pair);
    return _mm256_set1_epi32(pair);
}

static ALWAYS_INLINE pint pint_zero(void)
{
    return _mm256_setzero_si256();
}

static ALWAYS_INLINE pint pint_in_register(pint a)
{
    return in_register(a);
}

static ALWAYS_INLINE pint pint_add(pint a, pint b)
{
    return _mm256_add_epi32(a, b);
}

/* acc + a.0 * b.0 + a.1 * b.1 in every lane */
static ALWAYS_INLINE pint pint_dot(pint acc, pint a, pint b)
{
    return in_register(_mm256_add_epi32(acc, _mm256_madd_epi16(a, b)));
}

/* a = 65536 * the upper one, rounded down, + the lower one */
static ALWAYS_INLINE pint pint_upper_half(pint a)
{
    return _mm256_srai_epi32(a, 16);
}

static ALWAYS_INLINE pint pint_lower_half(pint a)
{
    return _mm256_blend_epi16(a, _mm256_setzero_si256(), 0xaa);
}

static ALWAYS_INLINE pint pint_unpack_low_32(pint a, pint b)
{
    return _mm256_unpacklo_epi32(a, b);
}

static ALWAYS_INLINE pint pint_unpack_high_32(pint a, pint b)
{
    return _mm256_unpackhi_epi32(a, b);
}

static ALWAYS_INLINE pint pint_unpack_low_64(pint a, pint b)
{
    return _mm256_unpacklo_epi64(a, b);
}

static ALWAYS_INLINE pint pint_unpack_high_64(pint a, pint b)
{
    return _mm256_unpackhi_epi64(a, b);
}

static ALWAYS_INLINE pfloat pfloat_zero(void)
{
    return _mm256_setzero_ps();
}

static ALWAYS_INLINE pfloat pfloat_set1(float x)
{
    return _mm256_set1_ps(x);
}

static ALWAYS_INLINE pfloat pfloat_load(const float *p)
{
    return _mm256_loadu_ps(p);
}

static ALWAYS_INLINE void pfloat_store(float *p, pfloat a)
{
    _mm256_storeu_ps(p, a);
}

static ALWAYS_INLINE pfloat pfloat_add(pfloat a, pfloat b)
{
    return _mm256_add_ps(a, b);
}

static ALWAYS_INLINE pfloat pfloat_mul(pfloat a, pfloat b)
{
    return _mm256_mul_ps(a, b);
}

static ALWAYS_INLINE pfloat pfloat_fma(pfloat a, pfloat b, pfloat c)
{
    return _mm256_fmadd_ps(a, b, c);
}

static ALWAYS_INLINE pfloat pfloat_of(pint a)
{
    return _mm256_cvtepi32_ps(a);
}

#endif
