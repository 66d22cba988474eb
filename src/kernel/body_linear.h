/* Products with fp16 and float32 matrices over the parts of lanes_*.h: one text for every vector level.
 *
 * One activation row: BLOCK_STREAM weight rows far apart are walked at once straight from memory, so that
 * each is part of one long run of addresses. Several: linear_lanes.h. Both sum the same lanes in the same order, so their
 * results are the same bits. */

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

/* One step of sixteen of stream_dots. */
static ALWAYS_INLINE void stream_step(vf acc[8], const float *x, const void *const row[BLOCK_STREAM],
                                      int64_t i, bool is_f16)
{
    UNROLL_ALL
    for (int h = 0; h < V_PARTS; h++) {
        part a = part_load(x + i + h * PART_LANES);
        UNROLL_ALL
        for (int r = 0; r < BLOCK_STREAM; r++)
            acc[r].p[h] = part_fma(a, part_load_weight(row[r], i + h * PART_LANES, is_f16), acc[r].p[h]);
    }
}

/* Elements i .. n - 1, the last step of fewer than sixteen with them. */
static ALWAYS_INLINE void stream_rest(vf acc[8], const float *x, const void *const row[BLOCK_STREAM],
                                      int64_t i, int64_t n, bool is_f16)
{
    for (; i + 16 <= n; i += 16)
        stream_step(acc, x, row, i, is_f16);
    if (i < n) {
        vf a = v_load_part(x + i, n - i);
        UNROLL_ALL
        for (int r = 0; r < BLOCK_STREAM; r++)
            acc[r] = v_fma(a, v_load_weight_part(row[r], i, n - i, is_f16), acc[r]);
    }
}

/* sums[r] = dot(x, row[r]) for BLOCK_STREAM rows of n weights; asks memory for what is ahead_bytes further on
 */
static ALWAYS_INLINE void stream_dots(float sums[8], const float *x, const void *const row[BLOCK_STREAM],
                                      int64_t n, int64_t ahead_bytes, bool is_f16)
{
    const int line = is_f16 ? 32 : 16; /* elements of a cache line */
    vf acc[8];
    UNROLL_ALL
    for (int r = 0; r < 8; r++)
        acc[r] = v_set1(0.0f);
    int64_t i = 0;
    for (; i + line <= n; i += line) {
        UNROLL_ALL
        for (int r = 0; r < BLOCK_STREAM; r++)
            _mm_prefetch((const char *)weight_at(row[r], i, is_f16) + ahead_bytes, _MM_HINT_T0);
        UNROLL_ALL
        for (int u = 0; u < line; u += 16)
            stream_step(acc, x, row, i + u, is_f16);
    }
    stream_rest(acc, x, row, i, n, is_f16);
    v_tree_x8(sums, acc);
}

static ALWAYS_INLINE int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static ALWAYS_INLINE int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The stretches of x that are not zero, in blocks of ZERO_BLOCK: an expert that was not chosen leaves its columns zero,
 * and its weights need not be read. Zeros add nothing to a lane, so the sums are the same bits. */
#define ZERO_BLOCK 256
#define RUNS_MAX 128

struct runs {
    int n; /* 0: walk everything */
    int64_t begin[RUNS_MAX], end[RUNS_MAX];
};

static NEVER_INLINE void find_runs(struct runs *r, const float *x, int64_t n)
{
    bool gaps = false;
    r->n = 0;
    for (int64_t i = 0; i < n; i += ZERO_BLOCK) {
        int64_t end = least(n, i + ZERO_BLOCK), k = i;
        while (k < end && x[k] == 0)
            k++;
        if (k == end) {
            gaps = true;
        } else if (r->n > 0 && r->end[r->n - 1] == i) {
            r->end[r->n - 1] = end;
        } else if (r->n == RUNS_MAX) {
            r->n = 0;
            return;
        } else {
            r->begin[r->n] = i;
            r->end[r->n++] = end;
        }
    }
    if (!gaps || r->n == 0)
        r->n = 0;
}

/* stream_dots over the runs alone. */
static ALWAYS_INLINE void stream_dots_runs(float sums[8], const float *x, const void *const row[BLOCK_STREAM],
                                           const struct runs *runs, bool is_f16)
{
    vf acc[8];
    UNROLL_ALL
    for (int r = 0; r < 8; r++)
        acc[r] = v_set1(0.0f);
    for (int k = 0; k < runs->n; k++)
        stream_rest(acc, x, row, runs->begin[k], runs->end[k], is_f16);
    v_tree_x8(sums, acc);
}

/* One activation row. Stream s takes the outputs of the s-th part of the range. */
static ALWAYS_INLINE void linear_row(float *y, const float *x, const void *w, const float *bias, int64_t n_in,
                                     int64_t begin, int64_t end, bool is_f16)
{
    int64_t n = (end - begin + BLOCK_STREAM - 1) / BLOCK_STREAM;
    struct runs runs = {0};
    if (n_in > ZERO_BLOCK)
        find_runs(&runs, x, n_in);
    for (int64_t i = 0; i < n; i++) {
        const void *row[BLOCK_STREAM];
        float sums[8];
        for (int64_t s = 0; s < BLOCK_STREAM; s++)
            row[s] = weight_at(w, least(begin + s * n + i, end - 1) * n_in, is_f16);
        if (runs.n > 0)
            stream_dots_runs(sums, x, row, &runs, is_f16);
        else
            stream_dots(sums, x, row, n_in, PREFETCH_BYTES, is_f16);
        for (int64_t s = 0; s < BLOCK_STREAM && begin + s * n + i < end; s++) {
            int64_t o = begin + s * n + i;
            y[o] = bias ? sums[s] + bias[o] : sums[s];
        }
    }
}

#include "kernel/linear_lanes.h"

static ALWAYS_INLINE void linear_of(float *y, int64_t y_stride, const float *x, int64_t x_stride,
                                    const void *w, const float *bias, int64_t n_rows, int64_t n_in,
                                    int64_t begin, int64_t end, float *scratch, bool is_f16)
{
    if (n_rows == 1) {
        linear_row(y, x, w, bias, n_in, begin, end, is_f16);
        return;
    }
    linear_by_lanes(y, y_stride, x, x_stride, w, bias, n_rows, n_in, begin, end, scratch, is_f16);
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
