/* Products of fp16 and float32 matrices with several activation rows: outputs in lanes. Part of body_linear.h.
 *
 * The sum of an output has sixteen lanes, of which lane j adds up columns j, j + 16, .. (kernel.h). Here the lanes of
 * registers are weight rows. Activations are turned over once, so that columns j, j + 16, .. of a row lie together;
 * CHUNK_ROWS weight rows are converted and turned over CHUNK_WIDTH columns at a time. Then for one lane of the sums after the
 * other activations are broadcast and multiplied; what that takes of both lies in the first cache. The tree over
 * the sixteen lanes is in the end a few sums of registers for CHUNK_ROWS outputs at once. */
#ifndef MILKIT_KERNEL_LINEAR_LANES_H
#define MILKIT_KERNEL_LINEAR_LANES_H

#define CHUNK_PARTS 2 /* registers of rows */
#define CHUNK_ROWS (CHUNK_PARTS * PART_LANES)
#define CHUNK_WIDTH 2048
#define CHUNK_STRIDE                                                                                         \
    (CHUNK_WIDTH / 16 * CHUNK_ROWS + 16) /* of lanes: not a power of 2, which caches like little */
#define CHUNK_FLOATS (16 * CHUNK_STRIDE)
#define LANES_FLOATS (KERNEL_LINEAR_TOKENS * 16 * CHUNK_ROWS)

_Static_assert(CHUNK_FLOATS + LANES_FLOATS <= KERNEL_LINEAR_CHUNK, "scratch holds all but activations");
_Static_assert(TILE_TOKENS > 4 && KERNEL_LINEAR_TOKENS % TILE_TOKENS % 4 == 0, "the last tile is whole");

/* How many rows of a tile with n_rows are multiplied. */
static ALWAYS_INLINE int64_t tile_tokens(int64_t n_rows)
{
    return n_rows > 4 ? TILE_TOKENS : n_rows == 3 ? 4 : n_rows;
}

/* Floats between lanes and between rows of activations that are turned over. */
static ALWAYS_INLINE int64_t turned_row(int64_t n_in)
{
    return (n_in + 255) / 256 * 16;
}

static ALWAYS_INLINE int64_t turned_lane(int64_t n_in, int64_t n_rows)
{
    int64_t left = n_rows % TILE_TOKENS;
    return (n_rows - left + (left > 0 ? tile_tokens(left) : 0)) * turned_row(n_in) + 16;
}

/* [16, n_rows and those that fill the last tile, sixteens]; zeros past n_in and n_rows. */
static void turn_activations(float *to, const float *x, int64_t x_stride, int64_t n_rows, int64_t n_in)
{
    const int64_t row = turned_row(n_in), lane = turned_lane(n_in, n_rows);
    for (int64_t t = 0; t < n_rows; t++, x += x_stride) {
        for (int64_t i = 0; i < n_in; i += 256) {
            float padded[256];
            const float *from = x + i;
            if (n_in - i < 256) {
                memset(padded, 0, sizeof padded);
                memcpy(padded, from, (size_t)(n_in - i) * sizeof *from);
                from = padded;
            }
            for (int k = 0; k < 16; k += PART_LANES) {
                UNROLL_ALL
                for (int j = 0; j < 16; j += 4) {
                    part turned[4];
                    part_turn(turned, from + k * 16 + j, 16);
                    UNROLL_ALL
                    for (int u = 0; u < 4; u++)
                        part_store(to + (j + u) * lane + t * row + i / 16 + k, turned[u]);
                }
            }
        }
    }
    for (int64_t j = 0; j < 16; j++) {
        float *end = to + j * lane + n_rows * row;
        memset(end, 0, (size_t)(lane - 16 - n_rows * row) * sizeof *end);
    }
}

/* Sixteen columns of PART_LANES rows, one behind the other, to registers of rows. */
static ALWAYS_INLINE void chunk_turn(float *to, const float *rows)
{
    UNROLL_ALL
    for (int j = 0; j < 16; j += 4) {
        part turned[4];
        part_turn(turned, rows + j, 16);
        UNROLL_ALL
        for (int u = 0; u < 4; u++)
            part_store(to + (j + u) * CHUNK_STRIDE, turned[u]);
    }
}

#if PART_LANES == 8
/* The same of eight rows of fp16, `stride` apart, turned over before they are twice as long. Three rounds, each of which moves
 * the upper bit of a row's number to the lower end of the places and that of the places to the rows' lower end. */
static ALWAYS_INLINE void chunk_turn_f16(float *to, const f16 *rows, int64_t stride)
{
    __m256i turned[8], from[8];
    UNROLL_ALL
    for (int r = 0; r < 8; r++)
        turned[r] = _mm256_loadu_si256((const __m256i *)(const void *)(rows + r * stride));
    UNROLL_ALL
    for (int round = 0; round < 3; round++) {
        UNROLL_ALL
        for (int r = 0; r < 8; r++)
            from[r] = turned[r];
        UNROLL_ALL
        for (int r = 0; r < 4; r++) {
            turned[2 * r] = _mm256_unpacklo_epi16(from[r], from[r + 4]);
            turned[2 * r + 1] = _mm256_unpackhi_epi16(from[r], from[r + 4]);
        }
    }
    UNROLL_ALL
    for (int j = 0; j < 8; j++) { /* columns j and j + 8 */
        part_store(to + j * CHUNK_STRIDE, _mm256_cvtph_ps(_mm256_castsi256_si128(turned[j])));
        part_store(to + (j + 8) * CHUNK_STRIDE, _mm256_cvtph_ps(_mm256_extracti128_si256(turned[j], 1)));
    }
}
#endif

/* n columns of the n_valid weight rows from w on, `stride` elements apart: [16, sixteens, CHUNK_ROWS]; zeros past n and
 * n_valid. */
static ALWAYS_INLINE void chunk_fill(float *chunk, const void *w, int64_t stride, int64_t n, int64_t n_valid,
                                     bool is_f16)
{
    float rows[2][PART_LANES * 16]; /* by turns: what was stored a moment ago would be waited for */
    for (int64_t first = 0; first < CHUNK_ROWS; first += PART_LANES, chunk += PART_LANES) {
        int64_t i = 0, left = n_valid - first;
        float *to = chunk;
#if PART_LANES == 8
        for (; is_f16 && left >= PART_LANES && i + 16 <= n; i += 16, to += CHUNK_ROWS)
            chunk_turn_f16(to, (const f16 *)w + first * stride + i, stride);
#endif
        for (; left >= PART_LANES && i + 16 <= n; i += 16, to += CHUNK_ROWS) {
            float *part_rows = rows[i / 16 % 2];
            UNROLL_ALL
            for (int r = 0; r < PART_LANES; r++)
                v_store(part_rows + r * 16, v_load_weight(w, (first + r) * stride + i, is_f16));
            chunk_turn(to, part_rows);
        }
        for (; i < n; i += 16, to += CHUNK_ROWS) {
            for (int r = 0; r < PART_LANES; r++)
                v_store(rows[0] + r * 16, r >= left ? v_set1(0.0f)
                                                    : v_load_weight_part(w, (first + r) * stride + i,
                                                                         least(n - i, 16), is_f16));
            chunk_turn(to, rows[0]);
        }
    }
}

/* Adds lane j of n_sixteens columns to lanes [tokens, CHUNK_ROWS]; `row` floats between activation rows. */
static ALWAYS_INLINE void tile_add(float *lanes, const float *w, const float *x, int64_t row,
                                   int64_t n_sixteens, bool is_first, const int tokens)
{
    part acc[TILE_TOKENS][CHUNK_PARTS];
    UNROLL_ALL
    for (int t = 0; t < tokens; t++)
        UNROLL_ALL
    for (int z = 0; z < CHUNK_PARTS; z++)
        acc[t][z] = is_first ? part_zero() : part_load(lanes + (t * CHUNK_PARTS + z) * PART_LANES);
    for (int64_t k = 0; k < n_sixteens; k++, w += CHUNK_ROWS, x++) {
        part v[CHUNK_PARTS];
        UNROLL_ALL
        for (int z = 0; z < CHUNK_PARTS; z++)
            v[z] = part_in_register(part_load(w + z * PART_LANES));
        UNROLL_ALL
        for (int t = 0; t < tokens; t++) {
            part a = part_in_register(part_set1(x[t * row]));
            UNROLL_ALL
            for (int z = 0; z < CHUNK_PARTS; z++)
                acc[t][z] = part_fma(a, v[z], acc[t][z]);
        }
    }
    UNROLL_ALL
    for (int t = 0; t < tokens; t++)
        UNROLL_ALL
    for (int z = 0; z < CHUNK_PARTS; z++)
        part_store(lanes + (t * CHUNK_PARTS + z) * PART_LANES, acc[t][z]);
}

#define TILE_ADD(name, tokens)                                                                               \
    static NEVER_INLINE void name(float *lanes, const float *w, const float *x, int64_t row,                 \
                                  int64_t n_sixteens, bool is_first)                                         \
    {                                                                                                        \
        tile_add(lanes, w, x, row, n_sixteens, is_first, tokens);                                            \
    }
TILE_ADD(tile_add_1, 1)
TILE_ADD(tile_add_2, 2)
TILE_ADD(tile_add_4, 4)
TILE_ADD(tile_add_most, TILE_TOKENS)

/* y of n_rows activation rows and n weight rows: the trees of the lanes [16, lane]. */
static ALWAYS_INLINE void tile_results(float *y, int64_t y_stride, const float *bias, const float *lanes,
                                       int64_t lane, int64_t n_rows, int64_t n)
{
    float offsets[CHUNK_ROWS] = {0}, result[CHUNK_ROWS];
    if (bias)
        memcpy(offsets, bias, (size_t)n * sizeof *bias);
    for (int64_t t = 0; t < n_rows; t++, lanes += CHUNK_ROWS) {
        float *to = n == CHUNK_ROWS ? y + t * y_stride : result;
        UNROLL_ALL
        for (int z = 0; z < CHUNK_PARTS; z++) {
            part s[16];
            UNROLL_ALL
            for (int j = 0; j < 16; j++)
                s[j] = part_load(lanes + j * lane + z * PART_LANES);
            UNROLL_ALL
            for (int j = 0; j < 8; j++)
                s[j] = part_add(s[j], s[j + 8]);
            UNROLL_ALL
            for (int j = 0; j < 4; j++)
                s[j] = part_add(s[j], s[j + 4]);
            UNROLL_ALL
            for (int j = 0; j < 2; j++)
                s[j] = part_add(s[j], s[j + 2]);
            s[0] = part_add(s[0], s[1]);
            if (bias)
                s[0] = part_add(s[0], part_load(offsets + z * PART_LANES));
            part_store(to + z * PART_LANES, s[0]);
        }
        if (n < CHUNK_ROWS)
            memcpy(y + t * y_stride, result, (size_t)n * sizeof *y);
    }
}

/* Memory that will be read soon: n_rows pieces of `bytes` bytes, `stride` bytes apart. It is asked for between products, some
 * lines at a time: as many requests as the processor can wait for would hold up everything else. */
struct ask {
    const char *row;
    int64_t stride, bytes, n_rows;
    int64_t at;
    int64_t n_lines; /* at a time */
};

/* In `times` times. */
static ALWAYS_INLINE struct ask ask_for(const void *p, int64_t stride, int64_t bytes, int64_t n_rows,
                                        int64_t times)
{
    int64_t lines = (bytes + 63) / 64 * n_rows;
    return (struct ask){p, stride, bytes, n_rows, 0, (lines + times - 1) / times};
}

static ALWAYS_INLINE void ask_some(struct ask *a)
{
    for (int64_t i = 0; i < a->n_lines && a->n_rows > 0; i++) {
        _mm_prefetch(a->row + a->at, _MM_HINT_T1);
        a->at += 64;
        if (a->at >= a->bytes) {
            a->at = 0;
            a->row += a->stride;
            a->n_rows--;
        }
    }
}

/* Weight rows [first, first + n) with the n_rows activation rows that are turned over; end: of the caller's rows. */
static ALWAYS_INLINE void linear_rows(float *y, int64_t y_stride, const float *turned, const void *w,
                                      const float *bias, int64_t n_rows, int64_t n_in, int64_t first,
                                      int64_t n, int64_t end, float *chunk, bool is_f16)
{
    const int64_t element = is_f16 ? (int64_t)sizeof(f16) : (int64_t)sizeof(float);
    const int64_t row = turned_row(n_in), turned_step = turned_lane(n_in, n_rows);
    const int64_t lane = KERNEL_LINEAR_TOKENS * CHUNK_ROWS;
    const int64_t times = (n_rows + TILE_TOKENS - 1) / TILE_TOKENS * 16;
    float *lanes = chunk + CHUNK_FLOATS;
    for (int64_t i = 0; i == 0 || i < n_in; i += CHUNK_WIDTH) {
        bool is_last = i + CHUNK_WIDTH >= n_in;
        int64_t width = least(n_in - i, CHUNK_WIDTH);
        /* the chunk that follows: of these rows, or of the next */
        int64_t next = is_last ? first + n : first, next_i = is_last ? 0 : i + CHUNK_WIDTH;
        struct ask ask =
            ask_for(weight_at(w, next * n_in + next_i, is_f16), n_in * element,
                    least(n_in - next_i, CHUNK_WIDTH) * element, least(CHUNK_ROWS, end - next), times);
        chunk_fill(chunk, weight_at(w, first * n_in + i, is_f16), n_in, width, n, is_f16);
        for (int64_t j = 0; j < 16; j++) {
            for (int64_t t = 0; t < n_rows; t += TILE_TOKENS) {
                int64_t tokens = tile_tokens(n_rows - t);
                ask_some(&ask);
                (tokens == 1   ? tile_add_1
                 : tokens == 2 ? tile_add_2
                 : tokens == 4 ? tile_add_4
                               : tile_add_most)(lanes + j * lane + t * CHUNK_ROWS, chunk + j * CHUNK_STRIDE,
                                                turned + j * turned_step + t * row + i / 16, row,
                                                (width + 15) / 16, i == 0);
            }
        }
    }
    tile_results(y + first, y_stride, bias ? bias + first : NULL, lanes, lane, n_rows, n);
}

static ALWAYS_INLINE void linear_by_lanes(float *y, int64_t y_stride, const float *x, int64_t x_stride,
                                          const void *w, const float *bias, int64_t n_rows, int64_t n_in,
                                          int64_t begin, int64_t end, float *scratch, bool is_f16)
{
    float *chunk = whole_line(scratch), *turned = chunk + KERNEL_LINEAR_CHUNK;
    int64_t together = KERNEL_LINEAR_TOKENS;
    while (together > 8 && together * n_in > KERNEL_LINEAR_TURNED)
        together /= 2;
    for (int64_t t = 0; t < n_rows; t += together) {
        int64_t rows = least(n_rows - t, together);
        turn_activations(turned, x + t * x_stride, x_stride, rows, n_in);
        for (int64_t o = begin; o < end; o += CHUNK_ROWS)
            linear_rows(y + t * y_stride, y_stride, turned, w, bias, rows, n_in, o,
                        least(end - o, CHUNK_ROWS), end, chunk, is_f16);
    }
}

#endif
