/* Products of 6-bit palettized weights with one activation row where pdep (BMI2) is fast: integer instructions spread the
 * indices of the next block to a byte each while vectors look up and multiply this one's. A block's slots of 32 weights hold
 * neighbouring columns. Part of body_fixed.h, over AVX2 registers.
 *
 * Eight rows are walked block by block, so that a block of activations stays next to the core and eight rows' sums
 * become one register of results. A block is one piece of assembly: both the four vector units and the six
 * instructions that begin in a cycle are nearly used up, so that registers that move to memory, loads that could be operands
 * and an unlucky order of instructions all show in the time. Any order gives the same sums. */
#ifndef MILKIT_KERNEL_FIXED_SPREAD_H
#define MILKIT_KERNEL_FIXED_SPREAD_H

/* An index of 6 bits in a byte: bits 0-3 stay, 4 and 5 become 6 and 7. A shuffle yields 0 where bit 7 is set. */
#define SPREAD_MASK UINT64_C(0xcfcfcfcfcfcfcfcf)
#define SPREAD_BLOCK_BYTES (FIXED_BLOCK / 8 * 6)
#define SPREAD_OVERREAD 2 /* bytes behind a block that are read with it */

struct spread {
    /* One block's while the next one's are made: bytes read back as part of a vector sooner would make the
     * processor wait for their store. */
    uint8_t indices[2][FIXED_BLOCK];
    __m256i top; /* 0x80 in every byte */
    __m256i sums[TOGETHER];
    __m256i tables[TOGETHER][8];   /* four sixteens of hi, four of lo */
    int64_t same[TOGETHER];        /* rows from this one on that have its table */
    const uint8_t *next[TOGETHER]; /* the block after row r's */
    uint8_t copies[TOGETHER][FIXED_BLOCK];
};

static ALWAYS_INLINE void spread_block(uint8_t *to, const uint8_t *p)
{
    for (int k = 0; k < FIXED_BLOCK / 8; k++) {
        uint64_t eight;
        memcpy(&eight, p + 6 * k, sizeof eight);
        eight = _pdep_u64(eight, SPREAD_MASK);
        memcpy(to + 8 * k, &eight, sizeof eight);
    }
}

static ALWAYS_INLINE void load_spread_tables(__m256i to[8], const uint8_t *table)
{
    for (int k = 0; k < 4; k++) {
        to[k] = load_sixteen(table + 16 * k, 6);
        to[4 + k] = load_sixteen(table + 64 + 16 * k, 6);
    }
}

/* Eight indices of slot s to bytes, in three steps between which vector instructions stand. */
#define SPREAD_LOAD(s, k) "movq 24*" #s "+6*" #k "(%[from]), %[eight]\n\t"
#define SPREAD_BITS "pdepq %[mask], %[eight], %[eight]\n\t"
#define SPREAD_STORE(s, k) "movq %[eight], 32*" #s "+8*" #k "(%[later])\n\t"

/* One slot, of which ymm7 collects the sums. ymm8-11 and 12-15 are the sixteens of the planes hi and lo; of each, 0 and 2
 * or 1 and 3 are joined (a byte of one of them is 0), and bit 4 of the index, in bit 7 of ymm2, chooses between the two.
 * Then as in sink_slot. */
/* clang-format off */
#define SPREAD_SLOT(s)                                                                                       \
    "vmovdqu 32*" #s "(%[now]), %%ymm0\n\t"                                                                  \
    SPREAD_LOAD(s, 0)                                                                                        \
    "vpxor %[top], %%ymm0, %%ymm1\n\t"                                                                       \
    "vpaddb %%ymm0, %%ymm0, %%ymm2\n\t"                                                                      \
    SPREAD_BITS                                                                                              \
    "vpshufb %%ymm0, %%ymm8, %%ymm3\n\t"                                                                     \
    "vpshufb %%ymm0, %%ymm12, %%ymm4\n\t"                                                                    \
    "vpshufb %%ymm1, %%ymm10, %%ymm5\n\t"                                                                    \
    SPREAD_STORE(s, 0)                                                                                       \
    "vpor %%ymm5, %%ymm3, %%ymm3\n\t"                                                                        \
    "vpshufb %%ymm0, %%ymm9, %%ymm5\n\t"                                                                     \
    SPREAD_LOAD(s, 1)                                                                                        \
    "vpshufb %%ymm1, %%ymm14, %%ymm6\n\t"                                                                    \
    "vpor %%ymm6, %%ymm4, %%ymm4\n\t"                                                                        \
    SPREAD_BITS                                                                                              \
    "vpshufb %%ymm0, %%ymm13, %%ymm6\n\t"                                                                    \
    "vpshufb %%ymm1, %%ymm11, %%ymm0\n\t"                                                                    \
    "vpshufb %%ymm1, %%ymm15, %%ymm1\n\t"                                                                    \
    SPREAD_STORE(s, 1)                                                                                       \
    "vpor %%ymm0, %%ymm5, %%ymm5\n\t"                                                                        \
    "vpor %%ymm1, %%ymm6, %%ymm6\n\t"                                                                        \
    SPREAD_LOAD(s, 2)                                                                                        \
    "vpblendvb %%ymm2, %%ymm6, %%ymm4, %%ymm4\n\t"                                                           \
    SPREAD_BITS                                                                                              \
    "vpblendvb %%ymm2, %%ymm5, %%ymm3, %%ymm3\n\t"                                                           \
    "vpunpcklbw %%ymm3, %%ymm4, %%ymm5\n\t"                                                                  \
    SPREAD_STORE(s, 2)                                                                                       \
    "vpunpckhbw %%ymm3, %%ymm4, %%ymm6\n\t"                                                                  \
    SPREAD_LOAD(s, 3)                                                                                        \
    "vpmaddwd 64*" #s "(%[x]), %%ymm5, %%ymm5\n\t"                                                           \
    SPREAD_BITS                                                                                              \
    "vpmaddwd 64*" #s "+32(%[x]), %%ymm6, %%ymm6\n\t"                                                        \
    "vpaddd %%ymm5, %%ymm7, %%ymm7\n\t"                                                                      \
    SPREAD_STORE(s, 3)                                                                                       \
    "vpaddd %%ymm6, %%ymm7, %%ymm7\n\t"
/* clang-format on */

_Static_assert(X_SLOT == 64 && FIXED_BLOCK == 256, "as SPREAD_SLOT has it");

/* sums[r]: of a block of n rows (at least 1) that share tables. The first one's indices are spread at `now`; next[r] is
 * what comes after row r. Returns where the indices of the last of these are spread. */
static ALWAYS_INLINE uint8_t *sum_spread(__m256i *sums, uint8_t *now, const uint8_t *const *next, int64_t n,
                                         const char *x, const __m256i tables[8], int64_t ahead,
                                         struct spread *s)
{
    uint8_t *later = s->indices[now == s->indices[0]];
    const uint8_t *from;
    uint64_t eight;
    /* clang-format off */
    __asm__ volatile("vmovdqa (%[tables]), %%ymm8\n\t"
                     "vmovdqa 32(%[tables]), %%ymm9\n\t"
                     "vmovdqa 64(%[tables]), %%ymm10\n\t"
                     "vmovdqa 96(%[tables]), %%ymm11\n\t"
                     "vmovdqa 128(%[tables]), %%ymm12\n\t"
                     "vmovdqa 160(%[tables]), %%ymm13\n\t"
                     "vmovdqa 192(%[tables]), %%ymm14\n\t"
                     "vmovdqa 224(%[tables]), %%ymm15\n\t"
                     ".p2align 6\n"
                     "1:\n\t"
                     "movq (%[next]), %[from]\n\t"
                     "vpxor %%xmm7, %%xmm7, %%xmm7\n\t"
                     "addq $8, %[next]\n\t"
                     "prefetcht0 (%[from],%[ahead])\n\t"
                     "prefetcht0 64(%[from],%[ahead])\n\t"
                     "prefetcht0 128(%[from],%[ahead])\n\t"
                     SPREAD_SLOT(0) SPREAD_SLOT(1) SPREAD_SLOT(2) SPREAD_SLOT(3)
                     SPREAD_SLOT(4) SPREAD_SLOT(5) SPREAD_SLOT(6) SPREAD_SLOT(7)
                     "vmovdqa %%ymm7, (%[sums])\n\t"
                     "movq %[now], %[eight]\n\t"
                     "movq %[later], %[now]\n\t"
                     "movq %[eight], %[later]\n\t"
                     "addq $32, %[sums]\n\t"
                     "decq %[n]\n\t"
                     "jnz 1b\n\t"
                     : [eight] "=&r"(eight), [from] "=&r"(from), [sums] "+r"(sums), [now] "+r"(now),
                       [later] "+r"(later), [next] "+r"(next), [n] "+r"(n)
                     : [x] "r"(x), [tables] "r"(tables), [mask] "r"(SPREAD_MASK), [ahead] "r"(ahead),
                       [top] "m"(s->top)
                     : "cc", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
                       "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
    /* clang-format on */
    return now;
}

/* Block b of row o where it lies if all that is read with it is there, else a copy. */
static NEVER_INLINE const uint8_t *spread_source(const struct fixed_weight *w, int64_t o, int64_t b,
                                                 uint8_t copy[FIXED_BLOCK])
{
    int64_t row_bits = w->n_in * 6, at = o * row_bits / 8 + b * SPREAD_BLOCK_BYTES;
    if (row_bits % 8 == 0 && b < w->n_in / FIXED_BLOCK &&
        at + SPREAD_BLOCK_BYTES + SPREAD_OVERREAD <= w->n_out * row_bits / 8)
        return w->indices + at;
    copy_block(copy, w, o, b, 6);
    return copy;
}

/* The tables of n rows from `first` on, each where it begins. */
static ALWAYS_INLINE void load_row_tables(struct spread *s, const struct fixed_weight *w, int64_t first,
                                          int64_t n)
{
    int64_t group = first / w->rows_per_group, rows = (group + 1) * w->rows_per_group - first;
    for (int64_t r = 0; r < n; r += s->same[r], group++, rows = w->rows_per_group) {
        s->same[r] = fixed_least(rows, n - r);
        load_spread_tables(s->tables[r], w->tables + group * w->table_stride);
    }
}

/* How many blocks of row o and of those before it can be read where they are, with what is read behind them. */
static ALWAYS_INLINE int64_t blocks_in_place(const struct fixed_weight *w, int64_t o)
{
    int64_t row_bytes = w->n_in * 6 / 8, n = w->n_in % 4 == 0 ? w->n_in / FIXED_BLOCK : 0;
    bool is_over = o + 1 == w->n_out && n * SPREAD_BLOCK_BYTES + SPREAD_OVERREAD > row_bytes;
    return n > 0 && is_over ? n - 1 : n;
}

/* s->next for block b of n rows from `first` on; called for every block in turn. in_place: how many blocks of all
 * rows are in place (0 if there are fewer than TOGETHER rows). after: the row after them, or any. */
static ALWAYS_INLINE void find_next(struct spread *s, const struct fixed_weight *w, int64_t first, int64_t n,
                                    int64_t b, int64_t in_place, int64_t after)
{
    if (b > 0 && b + 1 < in_place) {
        for (int64_t r = 0; r < TOGETHER; r++)
            s->next[r] += SPREAD_BLOCK_BYTES;
        return;
    }
    if (b < in_place) {
        int64_t row_bytes = w->n_in * 6 / 8;
        const uint8_t *p = w->indices + first * row_bytes + b * SPREAD_BLOCK_BYTES;
        for (int64_t r = 0; r < TOGETHER - 1; r++)
            s->next[r] = p + (r + 1) * row_bytes;
    } else {
        for (int64_t r = 1; r < n; r++)
            s->next[r - 1] = spread_source(w, first + r, b, s->copies[r]);
    }
    bool is_last = b + 1 == blocks_of(w->n_in);
    s->next[n - 1] = spread_source(w, is_last ? after : first, is_last ? 0 : b + 1, s->copies[0]);
}

static void fixed_row_spread(float *y, const char *x, const struct fixed_weight *w, const float *bias,
                             int64_t begin, int64_t end)
{
    struct spread s;
    uint8_t *now = s.indices[0];
    const int64_t n_blocks = blocks_of(w->n_in), ahead = w->n_in * 6 / 8 * TOGETHER;
    s.top = _mm256_set1_epi8(-128);
    memset(s.sums, 0, sizeof s.sums);
    if (n_blocks > 0)
        spread_block(s.indices[0], spread_source(w, begin, 0, s.copies[0]));
    for (int64_t first = begin; first < end; first += TOGETHER) {
        const int64_t n = fixed_least(end - first, TOGETHER);
        const char *x_block = x;
        int64_t o[TOGETHER];
        __m256 acc = _mm256_setzero_ps();
        const int64_t in_place = n == TOGETHER ? blocks_in_place(w, first + n - 1) : 0;
        load_row_tables(&s, w, first, n);
        for (int64_t r = 0; r < TOGETHER; r++)
            o[r] = first + fixed_least(r, n - 1);
        for (int64_t b = 0; b < n_blocks; b++, x_block += X_BLOCK) {
            struct x_block tail;
            find_next(&s, w, first, n, b, in_place, first + n < end ? first + n : first);
            for (int64_t r = 0; r < n; r += s.same[r])
                now = sum_spread(s.sums + r, now, s.next + r, s.same[r], x_block, s.tables[r], ahead, &s);
            memcpy(&tail, x_block + X_TAIL, sizeof tail);
            acc = add_block(acc, sum_eight(s.sums, false), b, &tail, w, o);
        }
        write_rows(y, acc, w, bias, o, n);
    }
}

#endif
