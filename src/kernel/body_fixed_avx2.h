/* Products in fixed point over AVX2 integer registers; also the AVX-512 level of processors without VNNI.
 *
 * Weights are decoded a unit of packed bytes at a time straight from the package's bytes into slots of 32 weights. A
 * slot's weights are not neighbours: slot s, byte p of a block is the column that slot_column says, and
 * activations are prepared in that order, so that decoding needs as few shuffles as possible. For integers a unit is 32
 * bytes, and its 128-bit lane h holds the unit's h-th half of neighbouring columns, whence scales for blocks of
 * columns can be applied to halves of a unit.
 *
 * A slot's table entries are two byte planes, hi and lo + 128, whose bytes interleaved are the 16-bit w + 128. For one
 * activation row the sum of 128 * x.hi is taken off at the end of the block; for several, where weights are
 * decoded once into 16-bit planes, it is taken off the weights. Identity tables (lo = 0) have S = sum w.hi * q.
 *
 * A block of prepared activations is X_BLOCK bytes: per slot X_SLOT bytes, in the order that interleaving gives
 * (positions 0-7 and 16-23, then the others): 32 x.hi as 16 bits; then for one row x.lo and |x.lo| as
 * bytes in the order of positions, for several rows x.lo as 16 bits. Then q, 64 bytes a slot; then struct x_block. */

#define X_SLOT 128
#define X_Q 1024
#define X_TAIL 1536
#define X_BLOCK 1600
#define SLOTS (FIXED_BLOCK / 32)

struct x_block {
    float scale;
    int32_t correction; /* 128 * sum of x.hi */
};

/* Weight rows whose sums are finished together, and rows decoded at once for several activation rows. */
#define TOGETHER 8
#define LANES_BYTES 32
#define PANEL_DECODED 16
#define PANEL_X 128        /* activation rows that share a decoding */
#define DECODED_BLOCK 1024 /* bytes: per slot 32 w, then 32 w.hi, 16 bits each */

_Static_assert(PANEL_DECODED *DECODED_BLOCK + PANEL_DECODED * PANEL_X * 4 <= KERNEL_FIXED_SCRATCH(0, 2),
               "scratch holds a decoded block and unfinished sums");

static ALWAYS_INLINE int64_t blocks_of(int64_t n_in)
{
    return (n_in + FIXED_BLOCK - 1) / FIXED_BLOCK;
}

/* Units of a block: what is decoded at once. */
static ALWAYS_INLINE int units_of(int bits, bool is_identity)
{
    return bits == 3 || bits == 6 ? 1 : bits == 8 && !is_identity ? 4 : bits;
}

/* Columns of half a unit of integers. */
static ALWAYS_INLINE int half_columns(int bits)
{
    return 128 / bits;
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

/* The column whose 16-bit number stands at `place` (slot, then the order of interleaved bytes). */
static int place_column(int bits, int place)
{
    int at = place % 32;
    return slot_column(bits, place / 32, at < 8 || at >= 24 ? at : at < 16 ? at + 8 : at - 8);
}

static ALWAYS_INLINE __m256i load_i(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

/* Keeps the compiler from reordering integer sums, which it does until registers run out, and from loading the same
 * bytes again at each use. */
static ALWAYS_INLINE __m256i in_register(__m256i a)
{
    __asm__("" : "+x"(a));
    return a;
}

static ALWAYS_INLINE void store_i(void *p, __m256i a)
{
    _mm256_storeu_si256((__m256i *)p, a);
}

/* ---- activations ---- */

static size_t ISA(k_fixed_bytes)(int64_t n_rows, int64_t n_in)
{
    return (size_t)n_rows * (size_t)blocks_of(n_in) * X_BLOCK;
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

/* to: one X_BLOCK; column[]: what each place in it holds. */
static void arrange_block(char *to, const int16_t q[FIXED_BLOCK], const uint8_t column[FIXED_BLOCK],
                          float scale, bool is_row)
{
    int16_t ordered[FIXED_BLOCK];
    struct x_block tail = {.scale = scale};
    __m256i half = _mm256_set1_epi16(128), ones = _mm256_set1_epi16(1), sum = _mm256_setzero_si256();
    for (int i = 0; i < FIXED_BLOCK; i++)
        ordered[i] = q[column[i]];
    for (int s = 0; s < SLOTS; s++) {
        __m256i a = load_i(ordered + 32 * s), b = load_i(ordered + 32 * s + 16);
        __m256i a_hi = _mm256_srai_epi16(_mm256_add_epi16(a, half), 8);
        __m256i b_hi = _mm256_srai_epi16(_mm256_add_epi16(b, half), 8);
        __m256i a_lo = _mm256_sub_epi16(a, _mm256_slli_epi16(a_hi, 8));
        __m256i b_lo = _mm256_sub_epi16(b, _mm256_slli_epi16(b_hi, 8));
        char *slot = to + s * X_SLOT;
        store_i(slot, a_hi);
        store_i(slot + 32, b_hi);
        if (is_row) {
            __m256i lo = _mm256_packs_epi16(a_lo, b_lo);
            store_i(slot + 64, lo);
            store_i(slot + 96, _mm256_abs_epi8(lo));
        } else {
            store_i(slot + 64, a_lo);
            store_i(slot + 96, b_lo);
        }
        store_i(to + X_Q + s * 64, a);
        store_i(to + X_Q + s * 64 + 32, b);
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_add_epi16(a_hi, b_hi), ones));
    }
    __m128i total = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    total = _mm_add_epi32(total, _mm_shuffle_epi32(total, 0x4e));
    total = _mm_add_epi32(total, _mm_shuffle_epi32(total, 0xb1));
    tail.correction = 128 * _mm_cvtsi128_si32(total);
    memcpy(to + X_TAIL, &tail, sizeof tail);
}

static void ISA(k_fixed_prepare)(void *dst, const float *x, int64_t x_stride, int64_t n_rows, int64_t n_in,
                                 int64_t row_begin, int64_t row_end, int bits)
{
    uint8_t column[FIXED_BLOCK];
    int16_t q[FIXED_BLOCK];
    for (int i = 0; i < FIXED_BLOCK; i++)
        column[i] = (uint8_t)place_column(bits, i);
    for (int64_t t = row_begin; t < row_end; t++) {
        char *to = (char *)dst + (size_t)(t * blocks_of(n_in)) * X_BLOCK;
        for (int64_t i = 0; i < n_in; i += FIXED_BLOCK, to += X_BLOCK) {
            float scale = quantize_block(q, x + t * x_stride + i, least(n_in - i, FIXED_BLOCK));
            arrange_block(to, q, column, scale, n_rows == 1);
        }
    }
}

/* ---- tables ---- */

/* Tables of at most 16 entries: entry 0, repeated to 16. Larger ones: chains of four sixteens, each but the last xor the next
 * (look_up_chains). Of 64 entries: 0-3 the table, 4-7 the table by the index rotated right by 2. Of 256: four
 * chains. */
struct fixed_tables {
    __m256i hi[16], lo[16];
};

static ALWAYS_INLINE __m256i load_sixteen(const int8_t *table, int bits)
{
    if (bits < 4) {
        int8_t repeated[16];
        for (int k = 0; k < 16; k++)
            repeated[k] = table[k & ((1 << bits) - 1)];
        return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)repeated));
    }
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)table));
}

static ALWAYS_INLINE const int8_t *table_of(const struct fixed_weight *w, int64_t o)
{
    return w->tables + o / w->rows_per_group * w->table_stride;
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

static ALWAYS_INLINE void load_plane(__m256i t[16], const int8_t *table, int bits, __m256i flip)
{
    const int n = bits <= 4 ? 1 : 1 << (bits - 4);
    for (int k = 0; k < n; k++)
        t[k] = _mm256_xor_si256(load_sixteen(table + 16 * k, bits), flip);
    if (bits == 6)
        rotate_table(t + 4, t);
    for (int k = 0; bits > 4 && k < (bits == 6 ? 8 : 16); k++) {
        if (k % 4 < 3)
            t[k] = _mm256_xor_si256(t[k], t[k + 1]);
    }
}

static ALWAYS_INLINE void load_tables(struct fixed_tables *t, const int8_t *table, int bits)
{
    load_plane(t->hi, table, bits, _mm256_setzero_si256());
    load_plane(t->lo, table + (1 << bits), bits, _mm256_set1_epi8(-128));
}

/* ---- decoding ---- */

/* Where a decoded slot goes: into sums with the activations of one row, or into 16-bit planes. */
struct sink {
    bool is_sum;   /* constant wherever these are inlined */
    const char *x; /* X_BLOCK of the row */
    char *planes;
    __m256i sum; /* eight lanes of 32 bits; lanes 0-3 the first half of a unit */
};

static ALWAYS_INLINE void sink_sum(struct sink *to, __m256i a, __m256i b)
{
    to->sum = in_register(_mm256_add_epi32(to->sum, _mm256_add_epi32(a, b)));
}

/* hi and lo + 128 of a slot. |w.hi| <= 127, so that the products of bytes below never saturate. */
static ALWAYS_INLINE void sink_slot(struct sink *to, int slot, __m256i hi, __m256i lo, bool is_identity)
{
    if (is_identity) {
        __m256i a = _mm256_srai_epi16(_mm256_unpacklo_epi8(hi, hi), 8);
        __m256i b = _mm256_srai_epi16(_mm256_unpackhi_epi8(hi, hi), 8);
        if (!to->is_sum) {
            store_i(to->planes + slot * 64, a);
            store_i(to->planes + slot * 64 + 32, b);
        } else {
            const char *q = to->x + X_Q + slot * 64;
            sink_sum(to, _mm256_madd_epi16(a, load_i(q)), _mm256_madd_epi16(b, load_i(q + 32)));
        }
        return;
    }
    __m256i a = _mm256_unpacklo_epi8(lo, hi), b = _mm256_unpackhi_epi8(lo, hi);
    if (!to->is_sum) {
        const __m256i offset = _mm256_set1_epi16(128);
        store_i(to->planes + slot * 128, _mm256_sub_epi16(a, offset));
        store_i(to->planes + slot * 128 + 32, _mm256_sub_epi16(b, offset));
        store_i(to->planes + slot * 128 + 64, _mm256_srai_epi16(a, 8));
        store_i(to->planes + slot * 128 + 96, _mm256_srai_epi16(b, 8));
    } else {
        const char *x = to->x + slot * X_SLOT;
        __m256i low = _mm256_maddubs_epi16(load_i(x + 96), _mm256_sign_epi8(hi, load_i(x + 64)));
        low = _mm256_madd_epi16(low, _mm256_set1_epi16(1));
        a = _mm256_madd_epi16(a, load_i(x));
        b = _mm256_madd_epi16(b, load_i(x + 32));
        sink_sum(to, _mm256_add_epi32(a, b), low);
    }
}

/* An index of at most 4 bits in the low bits of every byte; bit 7 is clear. */
static ALWAYS_INLINE void look_up_16(struct sink *to, int slot, const struct fixed_tables *t, __m256i index,
                                     bool is_identity)
{
    __m256i hi = _mm256_shuffle_epi8(t->hi[0], index);
    __m256i lo = is_identity ? hi : _mm256_shuffle_epi8(t->lo[0], index);
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

/* The bytes of block b of row o, moved to begin at a byte. What follows after the last column is any index; the activations
 * there are 0. */
static NEVER_INLINE void copy_block(uint8_t copy[FIXED_BLOCK], const struct fixed_weight *w, int64_t o,
                                    int64_t b, int bits)
{
    int64_t n = least(w->n_in - b * FIXED_BLOCK, FIXED_BLOCK), bit = (o * w->n_in + b * FIXED_BLOCK) * bits;
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

/* ---- sums ---- */

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

/* One activation row, TOGETHER weight rows: per block (or unit) the lanes of each row are kept, then finished for all
 * rows at once. lanes [pieces][TOGETHER][LANES_BYTES]. */
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

static ALWAYS_INLINE void sum_row_blocks(char *lanes, const struct fixed_weight *w, int64_t o, const char *x,
                                         const struct fixed_tables *t, int bits, bool is_identity,
                                         bool by_unit)
{
    const int block_bytes = FIXED_BLOCK / 8 * bits;
    int64_t n_blocks = blocks_of(w->n_in), bit = o * w->n_in * bits;
    int64_t n_in_place = bit % 8 == 0 ? w->n_in / FIXED_BLOCK : 0, b = 0;
    const uint8_t *p = w->indices + bit / 8;
    for (; b < n_in_place; b++, x += X_BLOCK, p += block_bytes) {
        UNROLL_ALL
        for (int ahead = 0; ahead < block_bytes; ahead += 64)
            _mm_prefetch((const char *)p + ahead + FIXED_PREFETCH, _MM_HINT_T0);
        lanes = sum_block(lanes, p, x, t, bits, is_identity, by_unit);
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

static void finish_rows(float *y, const char *lanes, const struct fixed_weight *w, const float *bias,
                        const char *x, const int64_t o[TOGETHER], int64_t n, bool has_correction, int columns)
{
    __m256 acc = _mm256_setzero_ps();
    __m256i carry = _mm256_setzero_si256();
    bool by_unit = w->scale_block > 0 && w->scale_block < FIXED_BLOCK;
    int n_pieces = by_unit ? FIXED_BLOCK / (2 * columns) : 1;
    int64_t n_blocks = blocks_of(w->n_in);
    for (int64_t b = 0; b < n_blocks; b++, x += X_BLOCK) {
        struct x_block tail;
        memcpy(&tail, x + X_TAIL, sizeof tail);
        __m256 factor = _mm256_set1_ps(tail.scale);
        for (int u = 0; u < n_pieces; u++, lanes += TOGETHER * LANES_BYTES) {
            __m256i half[2], sums[TOGETHER];
            for (int r = 0; r < TOGETHER; r++)
                sums[r] = load_i(lanes + r * LANES_BYTES);
            reduce_eight(&half[0], &half[1], sums);
            if (by_unit) {
                acc = add_halves(acc, &carry, half, b * FIXED_BLOCK + u * 2 * columns, columns, factor, w, o);
                continue;
            }
            __m256i sum = _mm256_add_epi32(half[0], half[1]);
            if (has_correction)
                sum = _mm256_sub_epi32(sum, _mm256_set1_epi32(tail.correction));
            if (w->scale_block > 0)
                factor = _mm256_mul_ps(factor, block_scales(w, o, b * FIXED_BLOCK / w->scale_block));
            acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), factor, acc);
        }
    }
    float results[TOGETHER];
    _mm256_storeu_ps(results, acc);
    for (int64_t r = 0; r < n; r++) {
        float sum = results[r] * (w->scale_block > 0 ? 256.0f : 256.0f * w->scales[o[r] / w->rows_per_scale]);
        y[o[r]] = bias ? sum + bias[o[r]] : sum;
    }
}

static ALWAYS_INLINE void fixed_row(float *y, const char *x, const struct fixed_weight *w, const float *bias,
                                    int64_t begin, int64_t end, void *scratch, int bits, bool is_identity,
                                    bool by_unit)
{
    char *lanes = scratch;
    struct fixed_tables tables;
    const int8_t *loaded = table_of(w, begin);
    load_tables(&tables, loaded, bits);
    for (int64_t i = begin; i < end; i += TOGETHER) {
        int64_t o[TOGETHER], n = least(end - i, TOGETHER);
        for (int64_t r = 0; r < TOGETHER; r++) {
            o[r] = r < n ? i + r : i;
            if (r >= n)
                continue;
            const int8_t *table = table_of(w, o[r]);
            if (table != loaded)
                load_tables(&tables, table, bits);
            loaded = table;
            sum_row_blocks(lanes + r * LANES_BYTES, w, o[r], x, &tables, bits, is_identity, by_unit);
        }
        finish_rows(y, lanes, w, bias, x, o, n, !is_identity, half_columns(bits));
    }
}

/* ---- several activation rows ---- */

/* Sums over slots [first, last) of four decoded rows with two activation rows. sums[r] and sums[4 + r]: row r with the
 * first and the second. */
static ALWAYS_INLINE void sum_quad(__m256i sums[8], const char *planes, const char *x0, const char *x1,
                                   int first, int last, bool is_identity)
{
    UNROLL_ALL
    for (int i = 0; i < 8; i++)
        sums[i] = _mm256_setzero_si256();
    if (is_identity) {
        for (int at = first * 64; at < last * 64; at += 32) {
            __m256i q0 = in_register(load_i(x0 + X_Q + at)), q1 = in_register(load_i(x1 + X_Q + at));
            UNROLL_ALL
            for (int r = 0; r < 4; r++) {
                __m256i v = in_register(load_i(planes + r * DECODED_BLOCK + at));
                sums[r] = _mm256_add_epi32(sums[r], _mm256_madd_epi16(v, q0));
                sums[4 + r] = _mm256_add_epi32(sums[4 + r], _mm256_madd_epi16(v, q1));
            }
        }
        return;
    }
    for (int at = first * X_SLOT; at < last * X_SLOT; at += X_SLOT) {
        UNROLL_ALL
        for (int half = at; half < at + 64; half += 32) {
            __m256i hi0 = in_register(load_i(x0 + half)), lo0 = in_register(load_i(x0 + half + 64));
            __m256i hi1 = in_register(load_i(x1 + half)), lo1 = in_register(load_i(x1 + half + 64));
            UNROLL_ALL
            for (int r = 0; r < 4; r++) {
                __m256i v = in_register(load_i(planes + r * DECODED_BLOCK + half));
                __m256i v_hi = in_register(load_i(planes + r * DECODED_BLOCK + half + 64));
                sums[r] = in_register(_mm256_add_epi32(
                    sums[r], _mm256_add_epi32(_mm256_madd_epi16(v, hi0), _mm256_madd_epi16(v_hi, lo0))));
                sums[4 + r] = in_register(_mm256_add_epi32(
                    sums[4 + r], _mm256_add_epi32(_mm256_madd_epi16(v, hi1), _mm256_madd_epi16(v_hi, lo1))));
            }
        }
    }
}

/* Block b of four decoded rows o[0..3] (o[4 + r] = o[r]) with two activation rows; acc in the order of sum_quad. */
static ALWAYS_INLINE __m256 add_quad(__m256 acc, const char *planes, const char *x0, const char *x1,
                                     int64_t b, const struct fixed_weight *w, const int64_t o[8], int columns,
                                     bool is_identity, bool by_unit)
{
    struct x_block tail0, tail1;
    __m256i sums[8], half[2], carry = _mm256_setzero_si256();
    memcpy(&tail0, x0 + X_TAIL, sizeof tail0);
    memcpy(&tail1, x1 + X_TAIL, sizeof tail1);
    __m256 factor = _mm256_set_m128(_mm_set1_ps(tail1.scale), _mm_set1_ps(tail0.scale));
    if (by_unit) {
        const int slots = 2 * columns / 32;
        for (int s = 0; s < SLOTS; s += slots) {
            sum_quad(sums, planes, x0, x1, s, s + slots, is_identity);
            reduce_eight(&half[0], &half[1], sums);
            acc = add_halves(acc, &carry, half, b * FIXED_BLOCK + s * 32, columns, factor, w, o);
        }
        return acc;
    }
    sum_quad(sums, planes, x0, x1, 0, SLOTS, is_identity);
    reduce_eight(&half[0], &half[1], sums);
    if (w->scale_block > 0)
        factor = _mm256_mul_ps(factor, block_scales(w, o, b * FIXED_BLOCK / w->scale_block));
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_add_epi32(half[0], half[1])), factor, acc);
}

/* Block b of n weight rows from `first` on, decoded. */
static ALWAYS_INLINE void decode_rows(char *planes, const struct fixed_weight *w, int64_t first, int64_t n,
                                      int64_t b, int bits, bool is_identity)
{
    const int n_units = units_of(bits, is_identity);
    uint8_t copy[FIXED_BLOCK];
    struct fixed_tables tables;
    const int8_t *loaded = table_of(w, first);
    load_tables(&tables, loaded, bits);
    for (int64_t r = 0; r < n; r++) {
        const int8_t *table = table_of(w, first + r);
        const uint8_t *p = block_bytes(w, first + r, b, copy, bits);
        struct sink to = {.planes = planes + r * DECODED_BLOCK};
        if (table != loaded)
            load_tables(&tables, table, bits);
        loaded = table;
        for (int u = 0; u < n_units; u++)
            decode_unit(&to, p, u, &tables, bits, is_identity);
    }
}

/* PANEL_DECODED weight rows (n of them valid) with n_rows activation rows, at most PANEL_X. */
static ALWAYS_INLINE void fixed_panel(float *y, int64_t y_stride, const char *x, const struct fixed_weight *w,
                                      const float *bias, int64_t n_rows, int64_t first, int64_t n,
                                      char *planes, int bits, bool is_identity, bool by_unit)
{
    int64_t n_blocks = blocks_of(w->n_in), row_bytes = n_blocks * X_BLOCK, n_quads = (n + 3) / 4;
    float *waiting = (float *)(void *)(planes + PANEL_DECODED * DECODED_BLOCK);
    int64_t o[PANEL_DECODED / 4][8];
    for (int64_t i = 0; i < n_quads * 8; i++)
        o[i / 8][i % 8] = first + least(i / 8 * 4 + i % 4, n - 1);
    for (int64_t b = 0; b < n_blocks; b++) {
        decode_rows(planes, w, first, n, b, bits, is_identity);
        for (int64_t r = n; r < n_quads * 4; r++)
            memcpy(planes + r * DECODED_BLOCK, planes, DECODED_BLOCK);
        for (int64_t t = 0; t < n_rows; t += 2) {
            const char *x0 = x + t * row_bytes + b * X_BLOCK, *x1 = t + 1 < n_rows ? x0 + row_bytes : x0;
            for (int64_t quad = 0; quad < n_quads; quad++) {
                float *at = waiting + (t / 2 * n_quads + quad) * 8;
                __m256 acc = b > 0 ? _mm256_loadu_ps(at) : _mm256_setzero_ps();
                _mm256_storeu_ps(at, add_quad(acc, planes + quad * 4 * DECODED_BLOCK, x0, x1, b, w, o[quad],
                                              half_columns(bits), is_identity, by_unit));
            }
        }
    }
    for (int64_t r = 0; r < n; r++) {
        float scale = w->scale_block > 0 ? 256.0f : 256.0f * w->scales[(first + r) / w->rows_per_scale];
        for (int64_t t = 0; t < n_rows; t++) {
            float sum = waiting[(t / 2 * n_quads + r / 4) * 8 + t % 2 * 4 + r % 4];
            sum = (n_blocks > 0 ? sum : 0.0f) * scale;
            y[t * y_stride + first + r] = bias ? sum + bias[first + r] : sum;
        }
    }
}

static ALWAYS_INLINE void fixed_of(float *y, int64_t y_stride, const char *x, const struct fixed_weight *w,
                                   const float *bias, int64_t n_rows, int64_t begin, int64_t end,
                                   void *scratch, int bits, bool is_identity, bool by_unit)
{
    if (n_rows == 1) {
        fixed_row(y, x, w, bias, begin, end, scratch, bits, is_identity, by_unit);
        return;
    }
    for (int64_t t = 0; t < n_rows; t += PANEL_X) {
        const char *rows = x + t * blocks_of(w->n_in) * X_BLOCK;
        for (int64_t o = begin; o < end; o += PANEL_DECODED)
            fixed_panel(y + t * y_stride, y_stride, rows, w, bias, least(n_rows - t, PANEL_X), o,
                        least(end - o, PANEL_DECODED), scratch, bits, is_identity, by_unit);
    }
}

/* ---- which body ---- */

/* Whatever has no body of its own: blocks of scales smaller than half a unit, or with tables. */
static void fixed_plain(float *y, int64_t y_stride, const char *x, const struct fixed_weight *w,
                        const float *bias, int64_t n_rows, int64_t begin, int64_t end)
{
    uint8_t place[FIXED_BLOCK], copy[FIXED_BLOCK + 1];
    int32_t v[FIXED_BLOCK], v_hi[FIXED_BLOCK];
    int64_t n_blocks = blocks_of(w->n_in), block = w->scale_block;
    int bits = w->bits;
    for (int i = 0; i < FIXED_BLOCK; i++)
        place[place_column(bits, i)] = (uint8_t)i;
    for (int64_t o = begin; o < end; o++) {
        const int8_t *table = table_of(w, o);
        for (int64_t t = 0; t < n_rows; t++)
            y[t * y_stride + o] = 0.0f;
        for (int64_t b = 0; b < n_blocks; b++) {
            int64_t n = least(w->n_in - b * FIXED_BLOCK, FIXED_BLOCK);
            const uint8_t *p = block_bytes(w, o, b, copy, bits);
            for (int64_t i = 0; i < n; i++) {
                unsigned bit = (unsigned)i * (unsigned)bits, index = p[bit / 8] >> bit % 8;
                if (bit % 8 + (unsigned)bits > 8)
                    index |= (unsigned)p[bit / 8 + 1] << (8 - bit % 8);
                index &= (1u << bits) - 1;
                v_hi[i] = table[index];
                v[i] = 256 * v_hi[i] + table[(1u << bits) + index];
            }
            for (int64_t t = 0; t < n_rows; t++) {
                const char *from = x + (t * n_blocks + b) * X_BLOCK;
                struct x_block tail;
                float acc = y[t * y_stride + o];
                memcpy(&tail, from + X_TAIL, sizeof tail);
                for (int64_t i = 0; i < n; i += block) {
                    int32_t sum = 0;
                    for (int64_t c = i; c < least(n, i + block); c++) {
                        int16_t hi, q;
                        memcpy(&hi, from + place[c] / 32 * X_SLOT + place[c] % 32 * 2, sizeof hi);
                        memcpy(&q, from + X_Q + place[c] * 2, sizeof q);
                        sum += v[c] * hi + v_hi[c] * (q - 256 * hi);
                    }
                    float scale = w->scales[o * (w->n_in / block) + (b * FIXED_BLOCK + i) / block];
                    acc = fmaf((float)sum, tail.scale * scale, acc);
                }
                y[t * y_stride + o] = acc;
            }
        }
        for (int64_t t = 0; t < n_rows; t++) {
            float sum = y[t * y_stride + o] * 256.0f;
            y[t * y_stride + o] = bias ? sum + bias[o] : sum;
        }
    }
}

/* The values of the integers themselves for every row: hi the index as a signed number, lo 0. */
static bool is_identity_table(const struct fixed_weight *w)
{
    int n = 1 << w->bits;
    if ((w->bits != 4 && w->bits != 8) || (w->table_stride != 0 && w->rows_per_group < w->n_out))
        return false;
    for (int k = 0; k < n; k++) {
        if (w->tables[k] != (k < n / 2 ? k : k - n) || w->tables[n + k] != 0)
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
