/* Attention over the lanes of lanes_*.h: one text for every vector level.
 *
 * Query rows are taken ATTEND_ROWS at a time; K is converted once per panel and V once per block of positions
 * for all of them. Per row everything is in the order of the positions: what a row gives does not depend on
 * its company. Scores lie at their position minus the block's first position rounded down to a sixteen, so
 * that an index mod 16 is a position mod 16: that is the lane of the weights' sum. */

#define ATTEND_ROWS 16
#define ATTEND_POSITIONS 64   /* of V converted at once */
#define ATTEND_COLUMNS 2      /* sixteens of V's columns at once */
#define ATTEND_PANEL_MAX 8192 /* floats of K's panel on the stack: larger heads take the path of one row */

struct attend_block {
    const float *q;
    int64_t q_stride, n_rows;
    const f16 *k, *v;
    int64_t k_stride, v_stride, d_k, d_v;
    const int32_t *begin, *end;
    int64_t low, last; /* all positions of the rows */
    int64_t first;     /* low rounded down to a sixteen: the position of s[0] */
    float *s;          /* [n_rows, s_stride]: scores, then weights */
    int64_t s_stride;
};

static ALWAYS_INLINE int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static ALWAYS_INLINE int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* s = dot(q, k), row by row straight from memory */
static void attend_scores_by_row(const struct attend_block *b)
{
    for (int64_t r = 0; r < b->n_rows; r++) {
        for (int64_t p = b->begin[r]; p < b->end[r]; p += BLOCK_STREAM) {
            int64_t n_valid = least(b->end[r] - p, BLOCK_STREAM);
            float sums[8];
            stream_dots(sums, b->q + r * b->q_stride, b->k + p * b->k_stride, b->k_stride, b->d_k, n_valid,
                        true);
            for (int64_t j = 0; j < n_valid; j++)
                b->s[r * b->s_stride + p - b->first + j] = sums[j];
        }
    }
}

/* s = dot(q, k) by panels of K; positions outside a row's range may be computed, too, and are not used later
 */
static void attend_scores_by_panel(const struct attend_block *b)
{
    float panel[ATTEND_PANEL_MAX];
    for (int64_t p = b->low; p < b->last; p += BLOCK_ROWS) {
        int64_t n_valid = least(b->last - p, BLOCK_ROWS);
        bool is_filled = false;
        for (int64_t t = 0; t < b->n_rows; t += BLOCK_TOKENS) {
            const float *q_rows[BLOCK_TOKENS];
            float sums[BLOCK_SUMS];
            bool is_wanted = false;
            for (int64_t j = 0; j < BLOCK_TOKENS; j++) {
                int64_t r = least(t + j, b->n_rows - 1);
                q_rows[j] = b->q + r * b->q_stride;
                is_wanted = is_wanted || (p < b->end[r] && p + n_valid > b->begin[r]);
            }
            if (!is_wanted)
                continue;
            if (!is_filled)
                panel_fill(panel, b->k + p * b->k_stride, b->k_stride, b->d_k, n_valid, true);
            is_filled = true;
            panel_dots(sums, panel, q_rows, b->d_k);
            for (int64_t j = 0; j < BLOCK_TOKENS && t + j < b->n_rows; j++) {
                for (int64_t i = 0; i < n_valid; i++)
                    b->s[(t + j) * b->s_stride + p - b->first + i] = sums[j * BLOCK_ROWS + i];
            }
        }
    }
}

/* Sixteen scores from position p on, scaled and masked; -inf where the position is outside begin <= p < end.
 */
static ALWAYS_INLINE vf attend_load(const float *s, int64_t p, int64_t begin, int64_t end, const float *mask,
                                    vf scale)
{
    vf x = v_mul(v_load(s), scale);
    if (p >= begin && p + 16 <= end)
        return mask ? v_add(x, v_load(mask + p)) : x;
    float edge[16], full_mask[16];
    v_store(edge, x);
    for (int64_t j = 0; j < 16; j++) {
        bool is_inside = p + j >= begin && p + j < end;
        edge[j] = is_inside ? edge[j] : -INFINITY;
        full_mask[j] = is_inside && mask ? mask[p + j] : 0.0f;
    }
    return mask ? v_add(v_load(edge), v_load(full_mask)) : v_load(edge);
}

/* Turns the scores of one row into weights, 0 where it has no position, and gives their sum; 0 when all is
 * masked. */
static float attend_weights(float *s, int64_t first, int64_t begin, int64_t end, const float *mask,
                            float scale)
{
    vf factor = v_set1(scale), largest = v_set1(-INFINITY), acc = v_set1(0.0f);
    int64_t p0 = begin / 16 * 16;
    if (begin >= end)
        return 0.0f;
    for (int64_t p = p0; p < end; p += 16) {
        vf x = attend_load(s + p - first, p, begin, end, mask, factor);
        largest = v_max(x, largest);
        v_store(s + p - first, x);
    }
    float max = v_largest(largest);
    if (max == -INFINITY)
        return 0.0f;
    for (int64_t p = p0; p < end; p += 16) {
        vf e = v_exp(v_sub(v_load(s + p - first), v_set1(max)));
        acc = v_add(acc, e);
        v_store(s + p - first, e);
    }
    return v_tree(acc);
}

/* acc[r][c] = fma(w[r][p], v[p][c], acc[r][c]) for n_p positions in order; v is a converted block. */
static ALWAYS_INLINE void attend_add(float *const *acc, const float *const *w, int n_w, const float *v,
                                     int64_t n_p, int64_t n_sixteens_stride, int64_t n_tail)
{
    vf a[ATTEND_TOGETHER];
    const float *weights[ATTEND_TOGETHER];
    UNROLL_ALL
    for (int r = 0; r < n_w; r++) {
        weights[r] = w[r];
        a[r] = n_tail ? v_load_part(acc[r], n_tail) : v_load(acc[r]);
    }
    for (int64_t p = 0; p < n_p; p++, v += n_sixteens_stride) {
        UNROLL_ALL
        for (int h = 0; h < V_PARTS; h++) {
            part x = part_load(v + h * PART_LANES);
            UNROLL_ALL
            for (int r = 0; r < n_w; r++)
                a[r].p[h] = part_fma(part_set1(weights[r][p]), x, a[r].p[h]);
        }
    }
    UNROLL_ALL
    for (int r = 0; r < n_w; r++) {
        if (n_tail)
            v_store_part(acc[r], a[r], n_tail);
        else
            v_store(acc[r], a[r]);
    }
}

/* The rows' contributions of positions p0 <= p < p1 to the columns of one sixteen (n_tail of them when not
 * 0). */
static ALWAYS_INLINE void attend_columns(const struct attend_block *b, float *out, int64_t out_stride,
                                         const float *v_block, int64_t p0, int64_t p1, int64_t n_tail)
{
    for (int64_t r = 0; r < b->n_rows; r += ATTEND_TOGETHER) {
        float *acc[ATTEND_TOGETHER];
        const float *w[ATTEND_TOGETHER];
        bool is_whole = r + ATTEND_TOGETHER <= b->n_rows;
        for (int64_t j = 0; is_whole && j < ATTEND_TOGETHER; j++) {
            acc[j] = out + (r + j) * out_stride;
            w[j] = b->s + (r + j) * b->s_stride + p0 - b->first;
            is_whole = b->begin[r + j] <= p0 && b->end[r + j] >= p1;
        }
        if (is_whole) {
            attend_add(acc, w, ATTEND_TOGETHER, v_block, p1 - p0, 16 * ATTEND_COLUMNS, n_tail);
            continue;
        }
        for (int64_t j = 0; j < ATTEND_TOGETHER && r + j < b->n_rows; j++) {
            int64_t from = most(p0, b->begin[r + j]), to = least(p1, b->end[r + j]);
            if (from >= to)
                continue;
            acc[0] = out + (r + j) * out_stride;
            w[0] = b->s + (r + j) * b->s_stride + from - b->first;
            attend_add(acc, w, 1, v_block + (from - p0) * 16 * ATTEND_COLUMNS, to - from, 16 * ATTEND_COLUMNS,
                       n_tail);
        }
    }
}

static void attend_values(const struct attend_block *b, float *out, int64_t out_stride)
{
    float v_block[ATTEND_POSITIONS * ATTEND_COLUMNS * 16];
    for (int64_t p0 = b->low; p0 < b->last; p0 += ATTEND_POSITIONS) {
        int64_t p1 = least(p0 + ATTEND_POSITIONS, b->last);
        for (int64_t c = 0; c < b->d_v; c += 16 * ATTEND_COLUMNS) {
            int64_t width = least(b->d_v - c, 16 * ATTEND_COLUMNS);
            for (int64_t p = p0; p < p1; p++) {
                const f16 *from = b->v + p * b->v_stride + c;
                float *to = v_block + (p - p0) * 16 * ATTEND_COLUMNS;
                int64_t i = 0;
                for (; i + 16 <= width; i += 16)
                    v_store(to + i, v_load_f16(from + i));
                if (i < width)
                    v_store(to + i, v_load_f16_part(from + i, width - i));
            }
            int64_t i = 0;
            for (; i + 16 <= width; i += 16)
                attend_columns(b, out + c + i, out_stride, v_block + i, p0, p1, 0);
            if (i < width)
                attend_columns(b, out + c + i, out_stride, v_block + i, p0, p1, width - i);
        }
    }
}

/* A sum of 0 says that nothing had a weight (else the largest score alone gives 1): zeros then. */
static void attend_divide(float *out, int64_t n, float sum)
{
    vf divisor = v_set1(sum);
    if (sum == 0.0f)
        memset(out, 0, (size_t)n * sizeof *out);
    else
        EACH_SIXTEEN(n, v_store(out + i, v_div(v_load(out + i), divisor)),
                     v_store_part(out + i, v_div(v_load_part(out + i, n_tail), divisor), n_tail));
}

static void ISA(k_attention_f16)(float *out, int64_t out_stride, const float *q, int64_t q_stride,
                                 int64_t n_rows, const f16 *k, int64_t k_stride, const f16 *v,
                                 int64_t v_stride, int64_t d_k, int64_t d_v, const int32_t *begin,
                                 const int32_t *end, const float *mask, int64_t mask_stride, float scale,
                                 float *scratch)
{
    for (int64_t r0 = 0; r0 < n_rows; r0 += ATTEND_ROWS) {
        struct attend_block b = {.q = q + r0 * q_stride,
                                 .q_stride = q_stride,
                                 .n_rows = least(n_rows - r0, ATTEND_ROWS),
                                 .k = k,
                                 .v = v,
                                 .k_stride = k_stride,
                                 .v_stride = v_stride,
                                 .d_k = d_k,
                                 .d_v = d_v,
                                 .begin = begin + r0,
                                 .end = end + r0,
                                 .low = INT64_MAX,
                                 .last = 0,
                                 .s = scratch};
        float *o = out + r0 * out_stride;
        float sum[ATTEND_ROWS];
        for (int64_t r = 0; r < b.n_rows; r++) {
            if (b.begin[r] < b.end[r]) {
                b.low = least(b.low, b.begin[r]);
                b.last = most(b.last, b.end[r]);
            }
        }
        b.low = least(b.low, b.last);
        b.first = b.low / 16 * 16;
        b.s_stride = (b.last - b.first + 15) / 16 * 16;
        if (b.n_rows == 1 || panel_floats(d_k) > ATTEND_PANEL_MAX)
            attend_scores_by_row(&b);
        else
            attend_scores_by_panel(&b);
        for (int64_t r = 0; r < b.n_rows; r++) {
            sum[r] = attend_weights(b.s + r * b.s_stride, b.first, b.begin[r], b.end[r],
                                    mask ? mask + (r0 + r) * mask_stride : NULL, scale);
            memset(o + r * out_stride, 0, (size_t)d_v * sizeof *o);
        }
        attend_values(&b, o, out_stride);
        for (int64_t r = 0; r < b.n_rows; r++) {
            attend_divide(o + r * out_stride, d_v, sum[r]);
        }
    }
}
