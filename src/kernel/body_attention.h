/* Attention over the lanes of lanes_*.h: one text for every vector level.
 *
 * Query rows are taken ATTEND_ROWS at a time; K is converted once per panel and V once per block of positions
 * for all of them. Per row everything is in the order of the positions: what a row gives does not depend on
 * its company. Scores lie at their position minus the block's first position rounded down to a sixteen, so
 * that an index mod 16 is a position mod 16: that is the lane of the weights' sum.
 *
 * Few rows walk K as it lies, with the sixteen partial sums of a product in lanes. For many rows K is turned, so that
 * positions are in lanes: each of the sixteen partial sums is then a register of its own, and the tree at the end
 * adds registers. These are the same sums in the same order, with no shuffles but those that turn K. */

#define ATTEND_ROWS 64
#define ATTEND_POSITIONS 64 /* of V converted at once */
/* Positions of V asked for ahead, where several sixteens of columns are walked at once and where one is: the latter is over
 * with a position sooner. */
#define ATTEND_VALUES_AHEAD 32
#define ATTEND_NARROW_AHEAD 64
#define ATTEND_FEW 8          /* rows up to which K and V are converted in registers, perhaps twice */
#define ATTEND_AHEAD 16       /* positions of K asked for ahead */
#define ATTEND_SUMS 16        /* rows times sixteens of columns in one pass over V */
#define ATTEND_COLUMNS 2      /* sixteens of V's columns at once */
#define ATTEND_PANEL_MAX 8192 /* floats of K's panel on the stack: larger heads take the path of one row */

_Static_assert(ATTEND_TOGETHER *ATTEND_ACROSS <= ATTEND_SUMS && ATTEND_ACROSS <= ATTEND_COLUMNS,
               "rows and columns of one pass over V");

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
 * registers. One part of the lanes after the other. */
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

/* Panels of K, each of sixteen positions from p on, turned: panel[i][j] is element i of position p + j. Positions outside
 * the block's take the nearest one inside: their scores are not used. */
static void attend_turn(float *panel, const struct attend_block *b, int64_t p, int n_panels)
{
    for (int c = 0; c < n_panels; c++, p += 16, panel += 16 * b->d_k) {
        const f16 *rows[16];
        int64_t i = 0;
        for (int64_t j = 0; j < 16; j++)
            rows[j] = b->k + least(most(p + j, b->low), b->last - 1) * b->k_stride;
        for (; i + 8 <= b->d_k; i += 8) {
            for (int64_t j = i / 8 % 4; j < 16; j += 4) /* the line of the panels behind these, once */
                _mm_prefetch((const char *)(rows[j] + 16 * n_panels * b->k_stride + i / 32 * 32),
                             _MM_HINT_T0);
            transpose_f16_8x8(panel + 16 * i, rows, i);
            transpose_f16_8x8(panel + 16 * i + 8, rows + 8, i);
        }
        for (; i < b->d_k; i++)
            for (int64_t j = 0; j < 16; j++)
                panel[16 * i + j] = _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(rows[j][i])));
    }
}

/* acc[t][c] += q[t][0] * panel[c][0 .. 15], which are c_stride apart */
static ALWAYS_INLINE void attend_dots_step(part *acc, const float *q, int64_t q_stride, const float *panel,
                                           int64_t c_stride, int n_q, int n_parts)
{
    part x[ATTEND_SIXTEENS * V_PARTS];
    UNROLL_ALL
    for (int k = 0; k < n_parts; k++)
        x[k] = part_in_register(part_load(panel + (k / V_PARTS) * c_stride + (k % V_PARTS) * PART_LANES));
    UNROLL_ALL
    for (int t = 0; t < n_q; t++) {
        part a = part_in_register(part_set1(q[t * q_stride]));
        UNROLL_ALL
        for (int k = 0; k < n_parts; k++)
            acc[t * n_parts + k] = part_fma(a, x[k], acc[t * n_parts + k]);
    }
}

/* sums[t][16 * c + j] = dot(q[t], position j of panel c). The sixteen partial sums come in an order in which the tree needs
 * what lies on top of a pile: after an odd one two of a height are added, as a counter carries. n_chains of them (1 or 2)
 * are summed side by side: two are the first pair of the tree. */
static ALWAYS_INLINE void attend_dots_in_lanes(float *sums, const float *q, int64_t q_stride,
                                               const float *panel, int64_t d, int n_q, int n_c, int n_chains)
{
    enum { MOST = ATTEND_QUERIES * ATTEND_SIXTEENS * V_PARTS, CHAINS = 2 };
    static const int8_t order[16] = {0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15};
    const int n_parts = n_c * V_PARTS;
    _Alignas(64) float pile[4][MOST * PART_LANES];
    for (int step = 0; step < 16 / n_chains; step++) {
        part acc[CHAINS][MOST];
        /* one of the pair begins 8 elements behind the other: it may have a round less */
        int64_t i = order[step * n_chains];
        UNROLL_ALL
        for (int h = 0; h < n_chains; h++)
            UNROLL_ALL
        for (int k = 0; k < n_q * n_parts; k++)
            acc[h][k] = part_zero();
        for (; i + 8 * (n_chains - 1) < d; i += 16) {
            UNROLL_ALL
            for (int h = 0; h < n_chains; h++)
                attend_dots_step(acc[h], q + i + 8 * h, q_stride, panel + 16 * (i + 8 * h), 16 * d, n_q,
                                 n_parts);
        }
        if (n_chains > 1 && i < d)
            attend_dots_step(acc[0], q + i, q_stride, panel + 16 * i, 16 * d, n_q, n_parts);
        UNROLL_ALL
        for (int k = 0; k < n_q * n_parts; k++)
            acc[0][k] = n_chains > 1 ? part_add(acc[0][k], acc[1][k]) : acc[0][k];
        int height = 0;
        for (; step >> height & 1; height++)
            UNROLL_ALL
        for (int k = 0; k < n_q * n_parts; k++)
            acc[0][k] = part_add(part_load(pile[height] + k * PART_LANES), acc[0][k]);
        float *to = step == 16 / n_chains - 1 ? sums : pile[height];
        UNROLL_ALL
        for (int k = 0; k < n_q * n_parts; k++)
            part_store(to + k * PART_LANES, acc[0][k]);
    }
}

typedef void attend_lanes_fn(float *sums, const float *q, int64_t q_stride, const float *panel, int64_t d);
#define DEFINE_ATTEND_LANES(name, n_c, n_chains)                                                             \
    static NEVER_INLINE void name(float *sums, const float *q, int64_t q_stride, const float *panel,         \
                                  int64_t d)                                                                 \
    {                                                                                                        \
        attend_dots_in_lanes(sums, q, q_stride, panel, d, ATTEND_QUERIES, n_c, n_chains);                    \
    }
DEFINE_ATTEND_LANES(attend_lanes, ATTEND_SIXTEENS, ATTEND_CHAINS)
#if ATTEND_SIXTEENS > 1
DEFINE_ATTEND_LANES(attend_lanes_wide, 1, ATTEND_CHAINS)
#else
#define attend_lanes_wide attend_lanes
#endif

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

/* For many rows scores lie in tiles, one behind the other: [(p - first) / ATTEND_POSITIONS][row][ATTEND_POSITIONS]. */
static ALWAYS_INLINE float *attend_tile(const struct attend_block *b, int64_t p)
{
    return b->s + (p - b->first) / ATTEND_POSITIONS * ATTEND_POSITIONS * b->n_rows;
}

/* Scores of all rows, scaled and masked, with positions in lanes; the largest of each row. */
static void attend_scores_in_lanes(const struct attend_block *b, const float *mask, int64_t mask_stride,
                                   float scale, float *max)
{
    _Alignas(64) float panel[ATTEND_PANEL_MAX], sums[ATTEND_QUERIES * ATTEND_SIXTEENS * 16];
    vf largest[ATTEND_ROWS], factor = v_set1(scale);
    const bool is_wide = 16 * ATTEND_SIXTEENS * b->d_k > ATTEND_PANEL_MAX;
    const int n_panels = is_wide ? 1 : ATTEND_SIXTEENS;
    attend_lanes_fn *dots = is_wide ? attend_lanes_wide : attend_lanes;
    for (int64_t r = 0; r < b->n_rows; r++)
        largest[r] = v_set1(-INFINITY);
    for (int64_t p = b->first; p < b->last; p += 16 * n_panels) {
        /* panels do not cross tiles */
        float *to = attend_tile(b, p) + (p - b->first) % ATTEND_POSITIONS;
        bool is_filled = false;
        for (int64_t t = 0; t < b->n_rows; t += ATTEND_QUERIES) {
            /* the last rows come twice rather than fewer at once */
            int64_t first = least(t, most(b->n_rows - ATTEND_QUERIES, 0));
            bool is_wanted = false;
            for (int64_t r = t; r < t + ATTEND_QUERIES && r < b->n_rows; r++)
                is_wanted = is_wanted || (p < b->end[r] && p + 16 * n_panels > b->begin[r]);
            if (!is_wanted)
                continue;
            if (!is_filled)
                attend_turn(panel, b, p, n_panels);
            is_filled = true;
            dots(sums, b->q + first * b->q_stride, b->q_stride, panel, b->d_k);
            for (int64_t r = t; r < t + ATTEND_QUERIES && r < b->n_rows; r++)
                for (int64_t c = 0; c < n_panels; c++) {
                    int64_t at = p + 16 * c;
                    if (at + 16 <= b->begin[r] || at >= b->end[r])
                        continue;
                    const float *from = sums + ((r - first) * n_panels + c) * 16;
                    bool is_plain = !mask && at >= b->begin[r] && at + 16 <= b->end[r];
                    vf x = is_plain ? v_mul(v_load(from), factor)
                                    : attend_load(from, at, b->begin[r], b->end[r],
                                                  mask ? mask + r * mask_stride : NULL, factor);
                    largest[r] = v_max(x, largest[r]);
                    v_store(to + r * ATTEND_POSITIONS + 16 * c, x);
                }
        }
    }
    for (int64_t r = 0; r < b->n_rows; r++)
        max[r] = v_largest(largest[r]);
}

/* Turns a row's scores from p0 to p1, which lie in the tile b->s, into weights, and adds them up. */
static ALWAYS_INLINE vf attend_exp(const struct attend_block *b, int64_t r, int64_t p0, int64_t p1, float max,
                                   vf acc)
{
    int64_t from = most(p0, b->begin[r] / 16 * 16), to = least(p1, b->end[r]);
    float *s = b->s + r * b->s_stride - p0;
    for (; from + 48 < to; from += 64) { /* side by side, added in their order */
        vf e[4];
        UNROLL_ALL
        for (int k = 0; k < 4; k++)
            e[k] = v_exp(v_sub(v_load(s + from + 16 * k), v_set1(max)));
        UNROLL_ALL
        for (int k = 0; k < 4; k++) {
            acc = v_add(acc, e[k]);
            v_store(s + from + 16 * k, e[k]);
        }
    }
    for (; from < to; from += 16) {
        vf e = v_exp(v_sub(v_load(s + from), v_set1(max)));
        acc = v_add(acc, e);
        v_store(s + from, e);
    }
    return acc;
}

/* acc[r][c] = fma(w[r][p], v[p][c], acc[r][c]) for n_p positions in order and n_c sixteens of columns; of a
 * single sixteen only n_tail columns when that is not 0. v has rows v_stride elements apart. */
static ALWAYS_INLINE void attend_add(float *const *acc, const float *const *w, int n_w, int n_c,
                                     const void *v, int64_t v_stride, bool is_f16, int64_t n_p,
                                     int64_t n_tail)
{
    const int64_t ahead = n_c > 1 ? ATTEND_VALUES_AHEAD : ATTEND_NARROW_AHEAD;
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
                _mm_prefetch((const char *)((const f16 *)v + (p + ahead) * v_stride + c * 16), _MM_HINT_T0);
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
DEFINE_ATTEND_ADD(attend_add_converted, ATTEND_TOGETHER, ATTEND_ACROSS, false)
DEFINE_ATTEND_ADD(attend_add_converted_1, 1, ATTEND_ACROSS, false)
#if ATTEND_ACROSS > 1
DEFINE_ATTEND_ADD(attend_add_narrow, ATTEND_TOGETHER, 1, false)
DEFINE_ATTEND_ADD(attend_add_narrow_1, 1, 1, false)
#else
#define attend_add_narrow attend_add_converted
#define attend_add_narrow_1 attend_add_converted_1
#endif

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
    const struct attend_way way = {ATTEND_TOGETHER, ATTEND_ACROSS, false, attend_add_converted,
                                   attend_add_converted_1},
                            narrow = {ATTEND_TOGETHER, 1, false, attend_add_narrow, attend_add_narrow_1};
    _Alignas(64) float v_block[ATTEND_POSITIONS * WIDTH];
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
        for (i = 0; i + 16 * ATTEND_ACROSS <= width; i += 16 * ATTEND_ACROSS)
            attend_columns(b, out + c + i, out_stride, way, v_block + i, WIDTH, p0, p1, 0);
        for (; i < width; i += 16)
            attend_columns(b, out + c + i, out_stride, narrow, v_block + i, WIDTH, p0, p1,
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

/* More rows than ATTEND_FEW: a block of positions at a time. Queries, sums and scores lie close together, for rows that
 * are far apart take many pages, and the same sets of a cache. */
static NEVER_INLINE void attend_many(struct attend_block b, float *out, int64_t out_stride, const float *mask,
                                     int64_t mask_stride, float scale)
{
    float max[ATTEND_ROWS];
    vf acc[ATTEND_ROWS];
    float *q = attend_tile(&b, b.last + ATTEND_POSITIONS), *sums = q + b.n_rows * b.d_k;
    for (int64_t r = 0; r < b.n_rows; r++) {
        memcpy(q + r * b.d_k, b.q + r * b.q_stride, (size_t)b.d_k * sizeof *q);
        acc[r] = v_set1(0.0f);
    }
    memset(sums, 0, (size_t)(b.n_rows * b.d_v) * sizeof *sums);
    b.q = q;
    b.q_stride = b.d_k;
    attend_scores_in_lanes(&b, mask, mask_stride, scale, max);
    struct attend_block tile = b;
    tile.s_stride = ATTEND_POSITIONS;
    for (int64_t p = b.first; p < b.last; p += ATTEND_POSITIONS) {
        int64_t p1 = least(p + ATTEND_POSITIONS, b.last);
        tile.s = attend_tile(&b, p);
        tile.first = p;
        for (int64_t r = 0; r < b.n_rows; r++)
            if (max[r] != -INFINITY)
                acc[r] = attend_exp(&tile, r, p, p1, max[r], acc[r]);
        attend_values_converted(&tile, sums, b.d_v, 0, most(p, b.low), p1);
    }
    for (int64_t r = 0; r < b.n_rows; r++) {
        memcpy(out + r * out_stride, sums + r * b.d_v, (size_t)b.d_v * sizeof *sums);
        attend_divide(out + r * out_stride, b.d_v, v_tree(acc[r]));
    }
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
        b.s_stride =
            (b.last - b.first + 15) / 16 * 16 | 16; /* so that rows do not meet in the same sets of a cache */
        const float *m = mask ? mask + r0 * mask_stride : NULL;
        if (b.n_rows > ATTEND_FEW && 16 * d_k <= ATTEND_PANEL_MAX) {
            attend_many(b, o, out_stride, m, mask_stride, scale);
            continue;
        }
        if (b.n_rows == 1)
            attend_scores_of_row(&b);
        else if (b.n_rows == 2)
            attend_scores_direct(&b, 2, attend_dots_2);
        else
            attend_scores_direct(&b, 4, attend_dots_4);
        for (int64_t r = 0; r < b.n_rows; r++) {
            sum[r] = attend_weights(b.s + r * b.s_stride, b.first, b.begin[r], b.end[r],
                                    m ? m + r * mask_stride : NULL, scale);
            memset(o + r * out_stride, 0, (size_t)d_v * sizeof *o);
        }
        attend_values(&b, o, out_stride);
        for (int64_t r = 0; r < b.n_rows; r++)
            attend_divide(o + r * out_stride, d_v, sum[r]);
    }
}
