/* Backward of y = x W^T: dx += dy W, and dW = dy^T x, which is told row by row and not kept.
 *
 * Both are sums of products of columns: four of one matrix by sixteen of another, over the rows of both. Threads share out
 * what is summed for, never a sum; the loops are compiled twice, for AVX2 and without, with the same operations in the same
 * order. */
#include <string.h>
#include "reference/tape.h"

#define INLINE static inline __attribute__((always_inline))
#define QUAD REFERENCE_QUAD
#define TILE REFERENCE_TILE
#define GIVEN_ROWS REFERENCE_GIVEN_ROWS
#define WEIGHT_ROWS REFERENCE_WEIGHT_ROWS
#define WEIGHT_COLUMNS REFERENCE_WEIGHT_COLUMNS

struct product_back {
    struct reference_session *s;
    const struct reference_product_back *p;
    const struct reference_gradient_sink *sink; /* NULL: nobody wants the gradient */
    int64_t handle;
};

typedef float v8f __attribute__((vector_size(32)));

/* sums [QUAD][TILE] = sum over n rows of a[row][QUAD] b[row][TILE] */
INLINE void sum_quad(const float *a, const float *b, int64_t n, float *sums)
{
    v8f low[QUAD] = {{0}}, high[QUAD] = {{0}};
    for (int64_t row = 0; row < n; row++) {
        v8f b_low, b_high;
        memcpy(&b_low, b + row * TILE, sizeof b_low);
        memcpy(&b_high, b + row * TILE + TILE / 2, sizeof b_high);
        for (int k = 0; k < QUAD; k++) {
            low[k] += a[row * QUAD + k] * b_low;
            high[k] += a[row * QUAD + k] * b_high;
        }
    }
    for (int k = 0; k < QUAD; k++) {
        memcpy(sums + k * TILE, &low[k], sizeof low[k]);
        memcpy(sums + k * TILE + TILE / 2, &high[k], sizeof high[k]);
    }
}

/* ---- the matrix ---- */

/* dst [quads, n, QUAD] of columns begin .. begin + width of dy; columns beyond the last one are 0 */
static void pack_quads(const struct reference_product_back *p, int64_t begin, int64_t width, float *dst)
{
    for (int64_t quad = 0; quad < width; quad += QUAD)
        for (int64_t t = 0; t < p->n; t++)
            for (int64_t k = quad; k < quad + QUAD; k++)
                *dst++ = begin + k < p->rows ? p->dy[t * p->rows + begin + k] : 0.0f;
}

INLINE void weight_body(const struct product_back *b, int i_thread, int n_threads)
{
    const struct reference_product_back *p = b->p;
    int64_t begin, end;
    float *quads = reference_tape_scratch(b->s, i_thread), *tile = quads + GIVEN_ROWS * p->n,
          *rows = tile + TILE * p->n, sums[QUAD * TILE];
    pool_split(p->rows, QUAD, i_thread, n_threads, &begin, &end);
    for (int64_t row = begin; row < end; row += GIVEN_ROWS) {
        int64_t n_rows = end - row < GIVEN_ROWS ? end - row : GIVEN_ROWS;
        pack_quads(p, row, n_rows, quads);
        for (int64_t column = 0; column < p->columns; column += TILE) {
            int64_t width = p->columns - column < TILE ? p->columns - column : TILE;
            memset(tile, 0, (size_t)(TILE * p->n) * sizeof *tile);
            for (int64_t t = 0; t < p->n; t++)
                memcpy(tile + t * TILE, p->x + t * p->columns + column, (size_t)width * sizeof *tile);
            for (int64_t i = 0; i < n_rows; i++) {
                if (i % QUAD == 0)
                    sum_quad(quads + i * p->n, tile, p->n, sums);
                memcpy(rows + i * p->columns + column, sums + i % QUAD * TILE, (size_t)width * sizeof *rows);
            }
        }
        b->sink->give(b->sink->context, b->handle, p->first + row * p->columns, n_rows * p->columns, rows);
    }
}

/* ---- the input ---- */

/* quads [n / QUAD, n_rows, QUAD] of rows row .. of W: dy of tokens; tokens beyond the last one are 0 */
static void pack_tokens(const struct reference_product_back *p, int64_t row, int64_t n_rows, float *dst)
{
    for (int64_t token = 0; token < p->n; token += QUAD)
        for (int64_t i = 0; i < n_rows; i++)
            for (int64_t t = token; t < token + QUAD; t++)
                *dst++ = t < p->n ? p->dy[t * p->rows + row + i] : 0.0f;
}

/* tiles [width / TILE, n_rows, TILE] of the matrix; columns beyond its last one are 0 */
static void pack_weight(const struct reference_product_back *p, int64_t row, int64_t n_rows, int64_t column,
                        int64_t width, float *line, float *tiles)
{
    for (int64_t i = 0; i < n_rows; i++) {
        reference_read_elements(p->whole, p->first + (row + i) * p->columns + column, width, line);
        for (int64_t k = 0; k < width; k += TILE) {
            float *to = tiles + (k * n_rows) + i * TILE;
            int64_t n = width - k < TILE ? width - k : TILE;
            memcpy(to, line + k, (size_t)n * sizeof *to);
            memset(to + n, 0, (size_t)(TILE - n) * sizeof *to);
        }
    }
}

INLINE void input_body(const struct product_back *b, int i_thread, int n_threads)
{
    const struct reference_product_back *p = b->p;
    int64_t begin, end;
    float *quads = reference_tape_scratch(b->s, i_thread),
          *line = quads + WEIGHT_ROWS * ((p->n + QUAD - 1) / QUAD * QUAD), *tiles = line + WEIGHT_COLUMNS,
          sums[QUAD * TILE];
    pool_split(p->columns, TILE, i_thread, n_threads, &begin, &end);
    for (int64_t row = 0; row < p->rows && begin < end; row += WEIGHT_ROWS) {
        int64_t n_rows = p->rows - row < WEIGHT_ROWS ? p->rows - row : WEIGHT_ROWS;
        pack_tokens(p, row, n_rows, quads);
        for (int64_t column = begin; column < end; column += WEIGHT_COLUMNS) {
            int64_t width = end - column < WEIGHT_COLUMNS ? end - column : WEIGHT_COLUMNS;
            pack_weight(p, row, n_rows, column, width, line, tiles);
            for (int64_t k = 0; k < width; k += TILE)
                for (int64_t t = 0; t < p->n; t++) {
                    float *to = p->dx + t * p->columns + column + k;
                    if (t % QUAD == 0)
                        sum_quad(quads + t * n_rows, tiles + k * n_rows, n_rows, sums);
                    for (int64_t i = 0; i < TILE && k + i < width; i++)
                        to[i] += sums[t % QUAD * TILE + i];
                }
        }
    }
}

/* ---- for the instruction set ---- */

INLINE void part_body(const struct product_back *b, int i_thread, int n_threads)
{
    if (b->sink)
        weight_body(b, i_thread, n_threads);
    if (b->p->dx)
        input_body(b, i_thread, n_threads);
}

#if defined(__x86_64__) && defined(__GNUC__)
__attribute__((target("avx2"))) static void part_avx2(void *context, int i_thread, int n_threads)
{
    part_body(context, i_thread, n_threads);
}
#else
#define part_avx2 part_plain
#endif

static void part_plain(void *context, int i_thread, int n_threads)
{
    part_body(context, i_thread, n_threads);
}

void reference_linear_back(struct reference_session *s, const struct reference_product_back *p,
                           const char *name)
{
    const struct reference_gradient_sink *sink = s->tape->sink;
    struct product_back b = {.s = s, .p = p, .handle = -1};
    if (sink && sink->find)
        b.handle = sink->find(sink->context, name, p->first, p->rows * p->columns);
    b.sink = b.handle >= 0 ? sink : NULL;
    pool_run(s->reference->parts->pool, cpu_level_in_use() >= CPU_AVX2 ? part_avx2 : part_plain, &b);
}

/* ---- the record ---- */

static void linear_back(struct reference_session *s, const struct reference_record *r)
{
    const struct st_tensor *weight = r->own;
    float *dy = reference_adjoint(s, r->out);
    const struct reference_product_back p = {.whole = r->whole,
                                             .first = r->stride,
                                             .rows = weight->shape[0],
                                             .columns = weight->shape[1],
                                             .x = r->kept,
                                             .dy = dy,
                                             .dx = reference_adjoint(s, r->in),
                                             .n = r->n};
    reference_linear_back(s, &p, weight->name);
    memset(dy, 0, (size_t)(r->n * p.rows) * sizeof *dy);
}

void reference_record_linear(struct reference_session *s, const struct st_tensor *weight,
                             const struct st_tensor *whole, int64_t first, const float *x, int64_t n,
                             float *y)
{
    struct reference_record *r = reference_record_add(s, linear_back);
    r->in = x;
    r->out = y;
    r->kept = reference_keep(s, x, n * weight->shape[1]);
    r->own = weight;
    r->whole = whole;
    r->stride = first;
    r->n = n;
}
