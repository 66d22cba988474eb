/* Attention over the lanes of lanes_*.h: one text for every vector level.
 *
 * Query rows are taken ATTEND_ROWS at a time; K is converted once per panel and V once per block of positions
 * for all of them. Per row everything is in the order of the positions: what a row gives does not depend on
 * its company. Scores lie at their position minus the block's first position rounded down to a sixteen, so
 * that an index mod 16 is a position mod 16: that is the lane of the weights' sum. */

#define ATTEND_ROWS 16
#define ATTEND_POSITIONS 32   /* of V converted at once */
#define ATTEND_FEW 8          /* rows up to which K and V are converted in registers, perhaps twice */
#define ATTEND_AHEAD 16       /* positions of K asked for ahead */
#define ATTEND_SUMS 8         /* rows times sixteens of columns in one pass over V */
#define ATTEND_COLUMNS 2      /* sixteens of V's columns at once */
#define ATTEND_PANEL_MAX 8192 /* floats of K's panel on the stack: larger heads take the path of one row */

_Static_assert(ATTEND_TOGETHER <= ATTEND_SUMS, "rows of one pass over V");

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
    float *nobody; /* [16 * ATTEND_SUMS]: sums of rows that are not there */
};

/* sums[i_k * n_q + i_q] = dot(q[i_q], k[i_k]) for n_q queries and 8 / n_q positions, K converted in
 * registers. One part of the lanes after the other, as in panel_add. */
static ALWAYS_INLINE void attend_dots(float sums[8], const float *const *q, const f16 *const *k, int n_q,
                                      int64_t d, int64_t ahead)
{
    const int n_k = 8 / n_q;
    int64_t whole = d / 16 * 16;
    float lanes[8 * 16];
    vf eight[8];
    for (int h = 0; h < V_PARTS; h++) {
        part acc[8];
        UNROLL_ALL
        for (int j = 0; j < 8; j++)
            acc[j] = part_zero();
        for (int64_t i = h * PART_LANES; i < whole; i += 16) {
            part a[8];
            UNROLL_ALL
            for (int j = 0; j < n_q; j++)
                a[j] = part_in_register(part_load(q[j] + i));
            UNROLL_ALL
            for (int j = 0; j < n_k; j++) {
                _mm_prefetch((const char *)(k[j] + i + ahead), _MM_HINT_T0);
                part x = part_in_register(part_load_f16(k[j] + i));
                UNROLL_ALL
                for (int t = 0; t < n_q; t++)
                    acc[j * n_q + t] = part_fma(a[t], x, acc[j * n_q + t]);
            }
        }
        UNROLL_ALL
        for (int j = 0; j < 8; j++)
            part_store(lanes + j * 16 + h * PART_LANES, acc[j]);
        ahead = 0; /* the lines have been asked for */
    }
    UNROLL_ALL
    for (int j = 0; j < 8; j++)
        eight[j] = v_load(lanes + j * 16);
    for (int j = 0; whole < d && j < n_k; j++) {
        vf x = v_load_f16_part(k[j] + whole, d - whole);
        for (int t = 0; t < n_q; t++)
            eight[j * n_q + t] = v_fma(v_load_part(q[t] + whole, d - whole), x, eight[j * n_q + t]);
    }
    v_tree_x8(sums, eight);
}

/* Functions of their own, so that nothing around their loops takes registers from them. */
typedef void attend_dots_fn(float sums[8], const float *const *q, const f16 *const *k, int64_t d,
                            int64_t ahead);
#define DEFINE_ATTEND_DOTS(n_q)                                                                              \
    static NEVER_INLINE void attend_dots_##n_q(float sums[8], const float *const *q, const f16 *const *k,    \
                                               int64_t d, int64_t ahead)                                     \
    {                                                                                                        \
        attend_dots(sums, q, k, n_q, d, ahead);                                                              \
    }
DEFINE_ATTEND_DOTS(2)
DEFINE_ATTEND_DOTS(4)

/* s = dot(q, k) for a single row */
static NEVER_INLINE void attend_scores_of_row(const struct attend_block *b)
{
    for (int64_t p = b->low; p < b->last; p += BLOCK_STREAM) {
        const void *row[BLOCK_STREAM];
        float sums[8];
        for (int64_t j = 0; j < BLOCK_STREAM; j++)
            row[j] = b->k + least(p + j, b->last - 1) * b->k_stride;
        stream_dots(sums, b->q, row, b->d_k, ATTEND_AHEAD * b->k_stride * (int64_t)sizeof(f16), true);
        for (int64_t j = 0; j < BLOCK_STREAM && p + j < b->last; j++)
            b->s[p - b->first + j] = sums[j];
    }
}

/* s = dot(q, k) straight from memory, for few rows or very wide heads. Positions outside a row's range may be
 * computed, too, here and below; they are not used later. */
static ALWAYS_INLINE void attend_scores_direct(const struct attend_block *b, int n_q, attend_dots_fn *dots)
{
    const int n_k = 8 / n_q;
    for (int64_t p = b->low; p < b->last; p += n_k) {
        const f16 *k[8];
        for (int64_t j = 0; j < n_k; j++)
            k[j] = b->k + least(p + j, b->last - 1) * b->k_stride;
        for (int64_t r = 0; r < b->n_rows; r += n_q) {
            const float *q[8];
            float sums[8];
            for (int64_t t = 0; t < n_q; t++)
                q[t] = b->q + least(r + t, b->n_rows - 1) * b->q_stride;
            dots(sums, q, k, b->d_k, ATTEND_AHEAD * b->k_stride);
            for (int64_t t = 0; t < n_q && r + t < b->n_rows; t++) {
                float *to = b->s + (r + t) * b->s_stride + p - b->first;
                for (int64_t j = 0; j < n_k && p + j < b->last; j++)
                    to[j] = sums[j * n_q + t];
            }
        }
    }
}

/* Asks memory for the K of the next panel. */
static ALWAYS_INLINE void attend_ask(const f16 *k, int64_t k_stride, int64_t d)
{
    for (int64_t r = 0; r < BLOCK_ROWS; r++) {
        for (int64_t i = 0; i < d; i += 32)
            _mm_prefetch((const char *)(k + r * k_stride + i), _MM_HINT_T0);
    }
}

/* s = dot(q, k) by panels of K */
static void attend_scores_by_panel(const struct attend_block *b)
{
    float panel[ATTEND_PANEL_MAX], lanes[BLOCK_LANES];
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
                attend_ask(b->k + (p + BLOCK_ROWS) * b->k_stride, b->k_stride, b->d_k);
            if (!is_filled)
                panel_fill(panel, b->k + p * b->k_stride, b->k_stride, b->d_k, n_valid, true);
            is_filled = true;
            panel_add(lanes, panel, q_rows, b->d_k, true, 0);
            panel_sums(sums, lanes);
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

/* acc[r][c] = fma(w[r][p], v[p][c], acc[r][c]) for n_p positions in order and n_c sixteens of columns; of a
 * single sixteen only n_tail columns when that is not 0. v has rows v_stride elements apart. */
static ALWAYS_INLINE void attend_add(float *const *acc, const float *const *w, int n_w, int n_c,
                                     const void *v, int64_t v_stride, bool is_f16, int64_t n_p,
                                     int64_t n_tail)
{
    vf a[ATTEND_SUMS];
    const float *weights[ATTEND_SUMS];
    UNROLL_ALL
    for (int r = 0; r < n_w; r++) {
        weights[r] = w[r];
        UNROLL_ALL
        for (int c = 0; c < n_c; c++)
            a[r * n_c + c] = n_tail ? v_load_part(acc[r], n_tail) : v_load(acc[r] + 16 * c);
    }
    for (int64_t p = 0; p < n_p; p++) {
        UNROLL_ALL
        for (int c = 0; c < n_c; c += 2) { /* a line has two sixteens */
            if (is_f16)
                _mm_prefetch((const char *)((const f16 *)v + (p + ATTEND_POSITIONS) * v_stride + c * 16),
                             _MM_HINT_T0);
        }
        part x[ATTEND_SUMS * V_PARTS];
        UNROLL_ALL
        for (int c = 0; c < n_c * V_PARTS; c++)
            x[c] = part_in_register(part_load_weight(v, p * v_stride + c * PART_LANES, is_f16));
        UNROLL_ALL
        for (int r = 0; r < n_w; r++) {
            part weight = part_in_register(part_set1(weights[r][p]));
            UNROLL_ALL
            for (int c = 0; c < n_c * V_PARTS; c++)
                a[r * n_c + c / V_PARTS].p[c % V_PARTS] =
                    part_fma(weight, x[c], a[r * n_c + c / V_PARTS].p[c % V_PARTS]);
        }
    }
    UNROLL_ALL
    for (int r = 0; r < n_w; r++) {
        UNROLL_ALL
        for (int c = 0; c < n_c; c++) {
            if (n_tail)
                v_store_part(acc[r], a[r * n_c + c], n_tail);
            else
                v_store(acc[r] + 16 * c, a[r * n_c + c]);
        }
    }
}

typedef void attend_add_fn(float *const *acc, const float *const *w, const void *v, int64_t v_stride,
                           int64_t n_p, int64_t n_tail);
#define DEFINE_ATTEND_ADD(name, n_w, n_c, is_f16)                                                            \
    static NEVER_INLINE void name(float *const *acc, const float *const *w, const void *v, int64_t v_stride, \
                                  int64_t n_p, int64_t n_tail)                                               \
    {                                                                                                        \
        attend_add(acc, w, n_w, n_c, v, v_stride, is_f16, n_p, n_tail);                                      \
    }
DEFINE_ATTEND_ADD(attend_add_1x4, 1, 4, true)
DEFINE_ATTEND_ADD(attend_add_1x2, 1, 2, true)
DEFINE_ATTEND_ADD(attend_add_1x1, 1, 1, true)
DEFINE_ATTEND_ADD(attend_add_2x2, 2, 2, true)
DEFINE_ATTEND_ADD(attend_add_4x1, 4, 1, true)
DEFINE_ATTEND_ADD(attend_add_converted, ATTEND_TOGETHER, 1, false)
DEFINE_ATTEND_ADD(attend_add_converted_1, 1, 1, false)

/* How V is passed over: n_w rows and n_c sixteens of columns at once, or one row and as many columns. */
struct attend_way {
    int n_w, n_c;
    bool is_f16;
    attend_add_fn *together, *single;
};

/* What positions p0 <= p < p1 add to the columns that begin at out: rows together where all have all of these
 * positions, else each row with its own. */
static ALWAYS_INLINE void attend_columns(const struct attend_block *b, float *out, int64_t out_stride,
                                         struct attend_way way, const void *v, int64_t v_stride, int64_t p0,
                                         int64_t p1, int64_t n_tail)
{
    for (int64_t r = 0; r < b->n_rows; r += way.n_w) {
        float *acc[ATTEND_SUMS];
        const float *w[ATTEND_SUMS];
        bool is_whole = true;
        for (int64_t j = 0; j < way.n_w; j++) {
            bool is_row = r + j < b->n_rows; /* a group that is not full is filled up with nobody's sums */
            acc[j] = is_row ? out + (r + j) * out_stride : b->nobody;
            w[j] = b->s + (is_row ? r + j : r) * b->s_stride + p0 - b->first;
            is_whole = is_whole && (!is_row || (b->begin[r + j] <= p0 && b->end[r + j] >= p1));
        }
        if (is_whole) {
            way.together(acc, w, v, v_stride, p1 - p0, n_tail);
            continue;
        }
        for (int64_t j = 0; j < way.n_w && r + j < b->n_rows; j++) {
            int64_t from = most(p0, b->begin[r + j]), to = least(p1, b->end[r + j]);
            if (from >= to)
                continue;
            w[0] = b->s + (r + j) * b->s_stride + from - b->first;
            way.single(&acc[j], w, weight_at(v, (from - p0) * v_stride, way.is_f16), v_stride, to - from,
                       n_tail);
        }
    }
}

/* Columns from c on: V is converted once for all rows. */
static void attend_values_converted(const struct attend_block *b, float *out, int64_t out_stride, int64_t c,
                                    int64_t p0, int64_t p1)
{
    enum { WIDTH = 16 * ATTEND_COLUMNS };
    const struct attend_way way = {ATTEND_TOGETHER, 1, false, attend_add_converted, attend_add_converted_1};
    float v_block[ATTEND_POSITIONS * WIDTH];
    for (; c < b->d_v; c += WIDTH) {
        int64_t width = least(b->d_v - c, WIDTH), i;
        for (int64_t p = p0; p < p1; p++) {
            const f16 *from = b->v + p * b->v_stride + c;
            float *to = v_block + (p - p0) * WIDTH;
            _mm_prefetch((const char *)(from + ATTEND_POSITIONS * b->v_stride), _MM_HINT_T0);
            for (i = 0; i + 16 <= width; i += 16)
                v_store(to + i, v_load_f16(from + i));
            if (i < width)
                v_store(to + i, v_load_f16_part(from + i, width - i));
        }
        for (i = 0; i < width; i += 16)
            attend_columns(b, out + c + i, out_stride, way, v_block + i, WIDTH, p0, p1,
                           i + 16 <= width ? 0 : width - i);
    }
}

/* Columns up to the last whole n_c sixteens, V converted in registers; the column where it stops. */
static ALWAYS_INLINE int64_t attend_values_direct(const struct attend_block *b, float *out,
                                                  int64_t out_stride, struct attend_way way, int64_t p0,
                                                  int64_t p1)
{
    int64_t c = 0;
    for (; c + 16 * way.n_c <= b->d_v; c += 16 * way.n_c)
        attend_columns(b, out + c, out_stride, way, b->v + p0 * b->v_stride + c, b->v_stride, p0, p1, 0);
    return c;
}

static void attend_values(const struct attend_block *b, float *out, int64_t out_stride)
{
    const struct attend_way one_row = {1, 4, true, attend_add_1x4, attend_add_1x4};
    const struct attend_way two_rows = {2, 2, true, attend_add_2x2, attend_add_1x2};
    const struct attend_way few_rows = {4, 1, true, attend_add_4x1, attend_add_1x1};
    for (int64_t p0 = b->low; p0 < b->last; p0 += ATTEND_POSITIONS) {
        int64_t p1 = least(p0 + ATTEND_POSITIONS, b->last), c = 0;
        if (b->n_rows == 1)
            c = attend_values_direct(b, out, out_stride, one_row, p0, p1);
        else if (b->n_rows == 2)
            c = attend_values_direct(b, out, out_stride, two_rows, p0, p1);
        else if (b->n_rows <= ATTEND_FEW)
            c = attend_values_direct(b, out, out_stride, few_rows, p0, p1);
        attend_values_converted(b, out, out_stride, c, p0, p1);
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
    float nobody[16 * ATTEND_SUMS] = {0};
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
                                 .s = scratch,
                                 .nobody = nobody};
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
        if (b.n_rows == 1)
            attend_scores_of_row(&b);
        else if (b.n_rows == 2)
            attend_scores_direct(&b, 2, attend_dots_2);
        else if (b.n_rows <= ATTEND_FEW || panel_floats(d_k) > ATTEND_PANEL_MAX)
            attend_scores_direct(&b, 4, attend_dots_4);
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
