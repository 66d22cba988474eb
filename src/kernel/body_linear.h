/* Products with fp16 and float32 matrices over the parts of lanes_*.h: one text for every vector level.
 *
 * One activation row: BLOCK_STREAM weight rows are walked at once straight from memory. Several: BLOCK_ROWS
 * weight rows are converted once into an interleaved panel of scratch ([sixteen][row][16]) and every
 * activation row, BLOCK_TOKENS at a time, passes over it. Both sum the same lanes in the same order, so their
 * results are the same bits. */

#define BLOCK_SUMS ((BLOCK_ROWS * BLOCK_TOKENS + 7) / 8 * 8)
_Static_assert(BLOCK_ROWS <= 16, "KERNEL_LINEAR_SCRATCH has room for sixteen rows");
_Static_assert(BLOCK_STREAM <= 8, "stream_dots ends in one v_tree_x8");

/* A weight matrix of either type; is_f16 is a constant wherever these are inlined. */
static ALWAYS_INLINE const void *weight_at(const void *w, int64_t i, bool is_f16)
{
    return is_f16 ? (const void *)((const f16 *)w + i) : (const void *)((const float *)w + i);
}

static ALWAYS_INLINE part part_load_weight(const void *w, int64_t i, bool is_f16)
{
    return is_f16 ? part_load_f16((const f16 *)w + i) : part_load((const float *)w + i);
}

static ALWAYS_INLINE vf v_load_weight(const void *w, int64_t i, bool is_f16)
{
    return is_f16 ? v_load_f16((const f16 *)w + i) : v_load((const float *)w + i);
}

static ALWAYS_INLINE vf v_load_weight_part(const void *w, int64_t i, int64_t n, bool is_f16)
{
    return is_f16 ? v_load_f16_part((const f16 *)w + i, n) : v_load_part((const float *)w + i, n);
}

/* sums[r] = dot(x, row r of w) for BLOCK_STREAM rows of w at `stride` elements; rows past n_valid repeat the
 * last. */
static ALWAYS_INLINE void stream_dots(float sums[8], const float *x, const void *w, int64_t stride, int64_t n,
                                      int64_t n_valid, bool is_f16)
{
    const void *row[BLOCK_STREAM];
    vf acc[8];
    UNROLL_ALL
    for (int r = 0; r < BLOCK_STREAM; r++)
        row[r] = weight_at(w, (r < n_valid ? r : n_valid - 1) * stride, is_f16);
    UNROLL_ALL
    for (int r = 0; r < 8; r++)
        acc[r] = v_set1(0.0f);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        UNROLL_ALL
        for (int r = 0; r < BLOCK_STREAM; r++)
            _mm_prefetch((const char *)weight_at(row[r], i, is_f16) + PREFETCH_BYTES, _MM_HINT_T0);
        UNROLL_ALL
        for (int h = 0; h < V_PARTS; h++) {
            part a = part_load(x + i + h * PART_LANES);
            UNROLL_ALL
            for (int r = 0; r < BLOCK_STREAM; r++)
                acc[r].p[h] = part_fma(a, part_load_weight(row[r], i + h * PART_LANES, is_f16), acc[r].p[h]);
        }
    }
    if (i < n) {
        vf a = v_load_part(x + i, n - i);
        UNROLL_ALL
        for (int r = 0; r < BLOCK_STREAM; r++)
            acc[r] = v_fma(a, v_load_weight_part(row[r], i, n - i, is_f16), acc[r]);
    }
    v_tree_x8(sums, acc);
}

/* Floats of a panel for rows of n elements. */
static ALWAYS_INLINE int64_t panel_floats(int64_t n)
{
    return (n + 15) / 16 * 16 * BLOCK_ROWS;
}

/* Rows past n_valid become zeros; so does the tail of every row. */
static ALWAYS_INLINE void panel_fill(float *panel, const void *w, int64_t stride, int64_t n, int64_t n_valid,
                                     bool is_f16)
{
    for (int64_t r = 0; r < BLOCK_ROWS; r++) {
        const void *row = weight_at(w, (r < n_valid ? r : 0) * stride, is_f16);
        float *to = panel + r * 16;
        int64_t i = 0;
        for (; i + 16 <= n; i += 16, to += BLOCK_ROWS * 16)
            v_store(to, r < n_valid ? v_load_weight(row, i, is_f16) : v_set1(0.0f));
        if (i < n)
            v_store(to, r < n_valid ? v_load_weight_part(row, i, n - i, is_f16) : v_set1(0.0f));
    }
}

static ALWAYS_INLINE void panel_step(part acc[V_PARTS][BLOCK_TOKENS][BLOCK_ROWS], const float *panel,
                                     const float *const x[BLOCK_TOKENS], int64_t i)
{
    UNROLL_ALL
    for (int h = 0; h < V_PARTS; h++) {
        part w[BLOCK_ROWS];
        UNROLL_ALL
        for (int r = 0; r < BLOCK_ROWS; r++)
            w[r] = part_load(panel + r * 16 + h * PART_LANES);
        UNROLL_ALL
        for (int t = 0; t < BLOCK_TOKENS; t++) {
            part a = part_load(x[t] + i + h * PART_LANES);
            UNROLL_ALL
            for (int r = 0; r < BLOCK_ROWS; r++)
                acc[h][t][r] = part_fma(a, w[r], acc[h][t][r]);
        }
    }
}

/* sums[t * BLOCK_ROWS + r] = dot(x[t], row r of the panel) */
static ALWAYS_INLINE void panel_dots(float sums[BLOCK_SUMS], const float *panel,
                                     const float *const x_rows[BLOCK_TOKENS], int64_t n)
{
    const float *x[BLOCK_TOKENS];
    part acc[V_PARTS][BLOCK_TOKENS][BLOCK_ROWS];
    UNROLL_ALL
    for (int t = 0; t < BLOCK_TOKENS; t++)
        x[t] = x_rows[t];
    UNROLL_ALL
    for (int h = 0; h < V_PARTS; h++) {
        UNROLL_ALL
        for (int t = 0; t < BLOCK_TOKENS; t++) {
            UNROLL_ALL
            for (int r = 0; r < BLOCK_ROWS; r++)
                acc[h][t][r] = part_zero();
        }
    }
    int64_t i = 0;
    for (; i + 16 <= n; i += 16, panel += BLOCK_ROWS * 16)
        panel_step(acc, panel, x, i);
    if (i < n) {
        float tails[BLOCK_TOKENS][16];
        UNROLL_ALL
        for (int t = 0; t < BLOCK_TOKENS; t++) {
            v_store(tails[t], v_load_part(x[t] + i, n - i));
            x[t] = tails[t];
        }
        panel_step(acc, panel, x, 0);
    }
    UNROLL_ALL
    for (int first = 0; first < BLOCK_SUMS; first += 8) {
        vf eight[8];
        UNROLL_ALL
        for (int s = 0; s < 8; s++) {
            int j = first + s;
            UNROLL_ALL
            for (int h = 0; h < V_PARTS; h++)
                eight[s].p[h] = j < BLOCK_ROWS * BLOCK_TOKENS
                                    ? acc[h][j / BLOCK_ROWS % BLOCK_TOKENS][j % BLOCK_ROWS]
                                    : part_zero();
        }
        v_tree_x8(sums + first, eight);
    }
}

static ALWAYS_INLINE void linear_of(float *y, int64_t y_stride, const float *x, int64_t x_stride,
                                    const void *w, const float *bias, int64_t n_rows, int64_t n_in,
                                    int64_t begin, int64_t end, float *scratch, bool is_f16)
{
    if (n_rows == 1) {
        for (int64_t o = begin; o < end; o += BLOCK_STREAM) {
            int64_t n_valid = end - o < BLOCK_STREAM ? end - o : BLOCK_STREAM;
            float sums[8];
            stream_dots(sums, x, weight_at(w, o * n_in, is_f16), n_in, n_in, n_valid, is_f16);
            for (int64_t r = 0; r < n_valid; r++)
                y[o + r] = bias ? sums[r] + bias[o + r] : sums[r];
        }
        return;
    }
    for (int64_t o = begin; o < end; o += BLOCK_ROWS) {
        int64_t n_valid = end - o < BLOCK_ROWS ? end - o : BLOCK_ROWS;
        panel_fill(scratch, weight_at(w, o * n_in, is_f16), n_in, n_in, n_valid, is_f16);
        for (int64_t t = 0; t < n_rows; t += BLOCK_TOKENS) {
            const float *x_rows[BLOCK_TOKENS];
            float sums[BLOCK_SUMS];
            for (int64_t j = 0; j < BLOCK_TOKENS; j++)
                x_rows[j] = x + (t + j < n_rows ? t + j : t) * x_stride;
            panel_dots(sums, scratch, x_rows, n_in);
            for (int64_t j = 0; j < BLOCK_TOKENS && t + j < n_rows; j++) {
                float *to = y + (t + j) * y_stride + o;
                for (int64_t r = 0; r < n_valid; r++)
                    to[r] = bias ? sums[j * BLOCK_ROWS + r] + bias[o + r] : sums[j * BLOCK_ROWS + r];
            }
        }
    }
}

static void ISA(k_linear_f16)(float *y, int64_t y_stride, const float *x, int64_t x_stride, const f16 *w,
                              const float *bias, int64_t n_rows, int64_t n_in, int64_t begin, int64_t end,
                              float *scratch)
{
    linear_of(y, y_stride, x, x_stride, w, bias, n_rows, n_in, begin, end, scratch, true);
}

static void ISA(k_linear_f32)(float *y, int64_t y_stride, const float *x, int64_t x_stride, const float *w,
                              const float *bias, int64_t n_rows, int64_t n_in, int64_t begin, int64_t end,
                              float *scratch)
{
    linear_of(y, y_stride, x, x_stride, w, bias, n_rows, n_in, begin, end, scratch, false);
}
