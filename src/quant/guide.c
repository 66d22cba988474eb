/* Products of inputs, and the triangular factor of their inverse.
 *
 * Loops are written for blocks that stay in the caches and compiled twice, for AVX2 and without. Every number is the
 * result of the same operations in the same order either way, and for any number of threads: those share out
 * rows or columns, never a sum.
 */
#include "quant/guide.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "quant/loops.h"

#define DAMPING 0.01
#define DAMPING_MAX 1e4
#define DESCENT_DAMPING 1e-4 /* more of it biases the search */

/* ---- products of inputs ---- */

#define TILE 32
#define GRAM_ROWS 128

struct gram {
    double *h;
    const float *x, *y;
    float *packed_x, *packed_y; /* [n_tiles, rows, TILE]: columns beyond n are 0; the same where y is x */
    int64_t rows, n, n_tiles;
};

static void pack_rows(const struct gram *g, const float *x, float *packed, int64_t tile)
{
    float *to = packed + tile * g->rows * TILE;
    int64_t width = g->n - tile * TILE < TILE ? g->n - tile * TILE : TILE;
    for (int64_t t = 0; t < g->rows; t++, to += TILE) {
        memcpy(to, x + t * g->n + tile * TILE, (size_t)width * sizeof *to);
        memset(to + width, 0, (size_t)(TILE - width) * sizeof *to);
    }
}

static void pack_part(void *context, int i_thread, int n_threads)
{
    const struct gram *g = context;
    for (int64_t tile = i_thread; tile < g->n_tiles; tile += n_threads) {
        pack_rows(g, g->x, g->packed_x, tile);
        if (g->packed_y != g->packed_x)
            pack_rows(g, g->y, g->packed_y, tile);
    }
}

/* sums [4][16] = sum over rows of a[row][0..3] b[row][0..15]; both of width TILE. */
INLINE void sum_products(const float *a, const float *b, int64_t rows, float sums[4][16])
{
    v8f s00 = {0}, s01 = {0}, s10 = {0}, s11 = {0}, s20 = {0}, s21 = {0}, s30 = {0}, s31 = {0}, b0, b1;
    for (int64_t t = 0; t < rows; t++, a += TILE, b += TILE) {
        memcpy(&b0, b, sizeof b0);
        memcpy(&b1, b + 8, sizeof b1);
        s00 += a[0] * b0;
        s01 += a[0] * b1;
        s10 += a[1] * b0;
        s11 += a[1] * b1;
        s20 += a[2] * b0;
        s21 += a[2] * b1;
        s30 += a[3] * b0;
        s31 += a[3] * b1;
    }
    const v8f all[8] = {s00, s01, s10, s11, s20, s21, s30, s31};
    memcpy(sums, all, sizeof all);
}

INLINE void gram_tiles(const struct gram *g, int64_t tile_i, int64_t tile_j)
{
    const float *a = g->packed_x + tile_i * g->rows * TILE, *b = g->packed_y + tile_j * g->rows * TILE;
    float sums[4][16];
    for (int64_t i = 0; i < TILE; i += 4)
        for (int64_t j = 0; j < TILE; j += 16) {
            sum_products(a + i, b + j, g->rows, sums);
            for (int64_t k = 0; k < 4 && tile_i * TILE + i + k < g->n; k++) {
                double *row = g->h + (tile_i * TILE + i + k) * g->n + tile_j * TILE + j;
                for (int64_t l = 0; l < 16 && tile_j * TILE + j + l < g->n; l++)
                    row[l] += (double)sums[k][l];
            }
        }
}

INLINE void gram_body(const struct gram *g, int i_thread, int n_threads)
{
    bool is_symmetric = g->packed_x == g->packed_y;
    for (int64_t i = 0, pair = 0; i < g->n_tiles; i++)
        for (int64_t j = is_symmetric ? i : 0; j < g->n_tiles; j++, pair++)
            if (pair % n_threads == i_thread)
                gram_tiles(g, i, j);
}

/* ---- the factor ---- */

#define BLOCK 64
#define COLUMNS 256 /* that a thread works on at a time */

struct factor {
    double *a; /* [n, n]: the upper triangle */
    int64_t n;
    int64_t begin, end; /* rows and columns of the block */
    double *transposed; /* [BLOCK, n]: the block's columns of the rows above */
    double *rows;       /* [BLOCK, n]: a copy of the block's rows */
};

/* Columns begin .. end of row i, which is above `end`: what later columns of the block leave, by the pivots. */
INLINE void solve_row(const struct factor *f, int64_t i)
{
    double *row = f->a + i * f->n;
    for (int64_t j = f->end - 1; j >= f->begin && j >= i; j--) {
        const double *other = f->a + j * f->n;
        double sum = row[j];
        for (int64_t k = j + 1; k < f->end; k++)
            sum -= row[k] * other[k];
        row[j] = i == j ? sqrt(sum) : sum / other[j];
    }
}

INLINE void panel_body(const struct factor *f, int i_thread, int n_threads)
{
    for (int64_t i = i_thread; i < f->begin; i += n_threads) {
        solve_row(f, i);
        for (int64_t k = f->begin; k < f->end; k++)
            f->transposed[(k - f->begin) * f->n + i] = f->a[i * f->n + k];
    }
}

/* a[i][j] -= sum over the block's columns k of a[i][k] a[j][k], for i <= j above the block */
INLINE void update_body(const struct factor *f, int i_thread, int n_threads)
{
    for (int64_t i = i_thread; i < f->begin; i += n_threads) {
        double *row = f->a + i * f->n;
        for (int64_t j0 = i; j0 < f->begin; j0 += COLUMNS) {
            int64_t j1 = j0 + COLUMNS < f->begin ? j0 + COLUMNS : f->begin;
            for (int64_t k = f->begin; k < f->end; k++) {
                const double *other = f->transposed + (k - f->begin) * f->n;
                double factor = row[k];
                for (int64_t j = j0; j < j1; j++)
                    row[j] -= factor * other[j];
            }
        }
    }
}

/* The block's rows of the inverse, columns that this thread owns: row i of U is (unit row i - sum over k > i of
 * R_ik U_k) / R_ii. */
INLINE void inverse_columns(const struct factor *f, int64_t j0, int64_t j1)
{
    for (int64_t i = f->end - 1; i >= f->begin; i--) {
        double *row = f->a + i * f->n;
        for (int64_t j = j0 > i ? j0 : i; j < j1; j++)
            row[j] = i == j ? 1.0 : 0.0;
    }
    for (int64_t k = f->end; k < j1; k++) {
        const double *other = f->a + k * f->n;
        int64_t first = j0 > k ? j0 : k;
        for (int64_t i = f->begin; i < f->end; i++) {
            double *row = f->a + i * f->n, factor = f->rows[(i - f->begin) * f->n + k];
            for (int64_t j = first; j < j1; j++)
                row[j] -= factor * other[j];
        }
    }
    for (int64_t i = f->end - 1; i >= f->begin; i--) {
        double *row = f->a + i * f->n;
        const double *own = f->rows + (i - f->begin) * f->n;
        for (int64_t k = i + 1; k < f->end; k++) {
            const double *other = f->a + k * f->n;
            int64_t first = j0 > k ? j0 : k;
            for (int64_t j = first; j < j1; j++)
                row[j] -= own[k] * other[j];
        }
        for (int64_t j = j0 > i ? j0 : i; j < j1; j++)
            row[j] /= own[i];
    }
}

INLINE void inverse_body(const struct factor *f, int i_thread, int n_threads)
{
    int64_t tile = 0;
    for (int64_t j0 = f->begin / COLUMNS * COLUMNS; j0 < f->n; j0 += COLUMNS, tile++)
        if (tile % n_threads == i_thread)
            inverse_columns(f, j0 > f->begin ? j0 : f->begin, j0 + COLUMNS < f->n ? j0 + COLUMNS : f->n);
}

LOOPS(gram, struct gram)
LOOPS(panel, struct factor)
LOOPS(update, struct factor)
LOOPS(inverse, struct factor)

void quant_gram_add(double *h, const float *x, const float *y, int64_t rows, int64_t n, struct pool *pool)
{
    struct gram g = {.h = h, .n = n, .n_tiles = (n + TILE - 1) / TILE};
    size_t packed = (size_t)(g.n_tiles * TILE * GRAM_ROWS) * sizeof *g.packed_x;
    g.packed_x = xmalloc(packed);
    g.packed_y = y == x ? g.packed_x : xmalloc(packed);
    for (int64_t done = 0; done < rows; done += g.rows) {
        g.x = x + done * n;
        g.y = y + done * n;
        g.rows = rows - done < GRAM_ROWS ? rows - done : GRAM_ROWS;
        pool_run(pool, pack_part, &g);
        gram_run(pool, &g);
    }
    if (y != x)
        free(g.packed_y);
    free(g.packed_x);
}

/* a = R R^T with R upper triangular, in place, block after block from the end. False: not positive. */
static bool factorize(struct factor *f, struct pool *pool)
{
    for (f->end = f->n; f->end > 0; f->end = f->begin) {
        f->begin = f->end > BLOCK ? f->end - BLOCK : 0;
        for (int64_t j = f->end - 1; j >= f->begin; j--) {
            double pivot = f->a[j * f->n + j];
            for (int64_t k = j + 1; k < f->end; k++)
                pivot -= f->a[j * f->n + k] * f->a[j * f->n + k];
            if (!(pivot > 0) || !isfinite(pivot))
                return false;
            f->a[j * f->n + j] = sqrt(pivot);
            for (int64_t i = f->begin; i < j; i++) {
                double sum = f->a[i * f->n + j];
                for (int64_t k = j + 1; k < f->end; k++)
                    sum -= f->a[i * f->n + k] * f->a[j * f->n + k];
                f->a[i * f->n + j] = sum / f->a[j * f->n + j];
            }
        }
        panel_run(pool, f);
        update_run(pool, f);
    }
    return true;
}

/* R to its inverse, in place. */
static void invert(struct factor *f, struct pool *pool)
{
    for (f->end = f->n; f->end > 0; f->end = f->begin) {
        f->begin = f->end > BLOCK ? f->end - BLOCK : 0;
        memcpy(f->rows, f->a + f->begin * f->n, (size_t)((f->end - f->begin) * f->n) * sizeof *f->rows);
        inverse_run(pool, f);
    }
}

/* ---- guides ---- */

struct place {
    double value;
    int32_t column;
};

static int compare_places(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->value != y->value)
        return x->value < y->value ? 1 : -1;
    return x->column < y->column ? -1 : 1;
}

static void choose_order(struct quant_guide *g, const double *h)
{
    struct place *places = xmalloc((size_t)g->n * sizeof *places);
    for (int64_t i = 0; i < g->n; i++)
        places[i] = (struct place){.value = h[i * g->n + i], .column = (int32_t)i};
    qsort(places, (size_t)g->n, sizeof *places, compare_places);
    for (int64_t i = 0; i < g->n; i++)
        g->order[i] = places[i].column;
    free(places);
}

/* The upper triangle in the guide's order, by the mean of the diagonal, damped. */
static void arrange(double *a, const double *h, const struct quant_guide *g, double mean, double damping)
{
    for (int64_t i = 0; i < g->n; i++)
        for (int64_t j = i; j < g->n; j++) {
            int64_t p = g->order[i], q = g->order[j];
            a[i * g->n + j] = (p < q ? h[p * g->n + q] : h[q * g->n + p]) / mean + (i == j ? damping : 0);
        }
}

/* What outputs as with other inputs ask of a row: shift = cross times the inverse of H, both by the mean; the factor f of the
 * inverse is in the guide's order. */
static bool make_shift(struct quant_guide *g, const struct factor *f, const double *cross, double mean,
                       struct pool *pool, struct err *e)
{
    int64_t n = g->n;
    bool ok = false;
    double *sum = mem_try_alloc((size_t)(n * n) * sizeof *sum, e);
    float *u = sum ? mem_try_alloc((size_t)(n * n) * sizeof *u, e) : NULL;
    g->shift = u ? mem_try_alloc((size_t)(n * n) * sizeof *g->shift, e) : NULL;
    if (!g->shift)
        goto done;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            u[i * n + j] = j < i ? 0.0f : (float)f->a[i * n + j];
    memset(sum, 0, (size_t)(n * n) * sizeof *sum);
    quant_gram_add(sum, u, u, n, n, pool);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i; j < n; j++) {
            int64_t p = g->order[i], q = g->order[j];
            u[p * n + q] = u[q * n + p] = (float)sum[i * n + j];
        }
    float *by_mean = (float *)sum;
    for (int64_t i = 0; i < n * n; i++)
        by_mean[i] = (float)(cross[i] / mean);
    memset(g->shift, 0, (size_t)(n * n) * sizeof *g->shift);
    quant_products_add(g->shift, by_mean, n, u, n, pool);
    ok = true;
done:
    mem_free(sum);
    mem_free(u);
    return ok;
}

static bool make_h(struct quant_guide *g, const double *h, double mean, struct err *e)
{
    int64_t n = g->n;
    g->h = mem_try_alloc((size_t)(n * n) * sizeof *g->h, e);
    for (int64_t i = 0; g->h && i < n; i++)
        for (int64_t j = i; j < n; j++)
            g->h[i * n + j] = g->h[j * n + i] = (float)(h[i * n + j] / mean + (i == j ? DESCENT_DAMPING : 0));
    return g->h;
}

static bool make_feedback(struct quant_guide *g, const double *h, const double *cross, double mean,
                          struct pool *pool, struct err *e)
{
    int64_t n = g->n;
    struct factor f = {.n = n};
    bool ok = false;
    double damping = DAMPING;
    f.a = mem_try_alloc((size_t)(n * n) * sizeof *f.a, e);
    f.rows = f.a ? mem_try_alloc((size_t)(n * BLOCK) * sizeof *f.rows, e) : NULL;
    f.transposed = f.rows ? mem_try_alloc((size_t)(n * BLOCK) * sizeof *f.transposed, e) : NULL;
    if (!f.transposed)
        goto done;
    for (;; damping *= 10) {
        arrange(f.a, h, g, mean, damping);
        if (factorize(&f, pool))
            break;
        if (damping > DAMPING_MAX) {
            err_set(e, ERR_FORMAT, "the products of inputs have no factor");
            goto done;
        }
    }
    invert(&f, pool);
    for (int64_t j = 0; j < n; j++)
        for (int64_t k = j + 1; k < n; k++)
            g->feedback[j * n + k] = (float)(f.a[j * n + k] / f.a[j * n + j]);
    ok = !cross || make_shift(g, &f, cross, mean, pool, e);
done:
    mem_free(f.a);
    mem_free(f.rows);
    mem_free(f.transposed);
    return ok;
}

/* mean: of the diagonal */
static bool fill_guide(struct quant_guide *g, const double *h, const double *cross, double mean,
                       bool does_descend, struct pool *pool, struct err *e)
{
    int64_t n = g->n;
    g->mean_square = xmalloc((size_t)n * sizeof *g->mean_square);
    for (int64_t i = 0; i < n; i++) {
        double relative = h[i * n + i] / mean;
        g->mean_square[i] = (float)(relative > 1e-6 ? relative : 1e-6);
    }
    g->order = xmalloc((size_t)n * sizeof *g->order);
    choose_order(g, h);
    g->feedback = mem_try_alloc((size_t)(n * n) * sizeof *g->feedback, e);
    return g->feedback && make_feedback(g, h, cross, mean, pool, e) &&
           (!does_descend || make_h(g, h, mean, e));
}

bool quant_guide_make(struct quant_guide **out, const double *h, const double *cross, int64_t n,
                      bool does_descend, struct pool *pool, struct err *e)
{
    struct quant_guide *g = xcalloc(1, sizeof *g);
    double trace = 0;
    bool ok = true;
    *out = NULL;
    g->n = n;
    for (int64_t i = 0; i < n; i++)
        trace += h[i * n + i];
    if (trace > 0 && isfinite(trace)) {
        ok = fill_guide(g, h, cross, trace / (double)n, does_descend, pool, e);
        if (ok) {
            *out = g;
            g = NULL;
        }
    }
    quant_guide_free(g);
    return ok;
}

void quant_guide_free(struct quant_guide *g)
{
    if (!g)
        return;
    free(g->mean_square);
    free(g->order);
    mem_free(g->feedback);
    mem_free(g->h);
    mem_free(g->shift);
    free(g);
}
