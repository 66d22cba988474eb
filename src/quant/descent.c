/* Least-squares tables and coordinate descent on the entries, both for the error d^T H d of each row.
 *
 * Descent takes the columns in their order and moves an entry to the nearest of q_j - u_j / H_jj, u = H d: the best one while
 * the others stay, so no step makes the error larger. Tables: with P_k the columns that have entry k, the error is a square
 * in the table, whose matrix has the elements sum over rows of P_k^T H P_l and whose slope is sum of P_k^T u.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "quant/guided_internal.h"
#include "quant/loops.h"

#define COLUMNS 256 /* of sums over entries, at a time */
#define SUMS_BYTES ((int64_t)256 << 10)
#define RIDGE                                                                                                \
    1e-5 /* towards the old table, of the mean of the diagonal: an entry that nobody has keeps its value */

struct descent {
    const struct quant_guide *guide;
    const struct guided_rows *rows;
    float *u;
    int64_t n_changed;
};

INLINE void add_row(float *to, const float *row, float factor, int64_t n)
{
    int64_t i = 0;
    for (v8f a, b; i + 8 <= n; i += 8) {
        memcpy(&a, to + i, sizeof a);
        memcpy(&b, row + i, sizeof b);
        a += factor * b;
        memcpy(to + i, &a, sizeof a);
    }
    for (; i < n; i++)
        to[i] += factor * row[i];
}

/* Rows go through a column together, so that a row of H serves all of them. */
INLINE void descent_body(struct descent *d, int i_thread, int n_threads)
{
    const struct guided_rows *rows = d->rows;
    int64_t n = d->guide->n;
    (void)i_thread;
    (void)n_threads;
    for (int64_t j = 0; j < n; j++) {
        const float *h = d->guide->h + j * n;
        float inverse = 1.0f / h[j];
        for (int64_t r = 0; r < rows->n; r++) {
            int64_t table = r / rows->group * rows->n_entries;
            uint8_t *code = rows->codes + r * rows->stride + j;
            float *u = d->u + r * n, value = rows->tables[table + *code];
            int entry = guided_nearest(rows->middles + table, rows->n_entries, value - u[j] * inverse);
            float step = rows->tables[table + entry] - value;
            if (step == 0)
                continue;
            add_row(u, h, step, n);
            *code = (uint8_t)entry;
            d->n_changed++;
        }
    }
}

LOOP_AS(descent, struct descent, plain, )
LOOP_FOR_AVX2(descent, struct descent)

int64_t guided_descend(const struct quant_guide *guide, const struct guided_rows *rows, float *u)
{
    struct descent d = {.guide = guide, .rows = rows, .u = u};
    LOOP_IN_USE(descent)(&d, 0, 1);
    return d.n_changed;
}

static void fill_errors(const struct guided_rows *rows, int64_t n, const float *targets, float *d)
{
    for (int64_t r = 0; r < rows->n; r++) {
        const float *table = rows->tables + r / rows->group * rows->n_entries;
        const uint8_t *codes = rows->codes + r * rows->stride;
        for (int64_t j = 0; j < n; j++)
            d[r * n + j] = table[codes[j]] - targets[r * n + j];
    }
}

void guided_slopes(const struct quant_guide *guide, const struct guided_rows *rows, const float *targets,
                   float *u)
{
    size_t bytes = (size_t)(rows->n * guide->n) * sizeof *u;
    float *d = xmalloc(bytes);
    fill_errors(rows, guide->n, targets, d);
    memset(u, 0, bytes);
    quant_product_add(u, d, rows->n, guide->h, guide->n);
    free(d);
}

double guided_error(const struct quant_guide *guide, const struct guided_rows *rows, const float *targets,
                    const float *u)
{
    double sum = 0;
    float *d = xmalloc((size_t)(rows->n * guide->n) * sizeof *d);
    fill_errors(rows, guide->n, targets, d);
    for (int64_t i = 0; i < rows->n * guide->n; i++)
        sum += (double)d[i] * (double)u[i];
    free(d);
    return sum;
}

/* ---- tables ---- */

struct normal {
    const struct quant_guide *guide;
    const struct guided_rows *rows;
    float *sums; /* [n_rows, n_entries, COLUMNS]: over the columns that have an entry, of H */
    int64_t first_row, n_rows, begin, n_columns;
};

INLINE void normal_body(struct normal *x, int i_thread, int n_threads)
{
    int64_t n = x->guide->n, n_entries = x->rows->n_entries;
    (void)i_thread;
    (void)n_threads;
    for (int64_t j = 0; j < n; j++) {
        const float *h = x->guide->h + j * n + x->begin;
        for (int64_t r = 0; r < x->n_rows; r++) {
            const uint8_t *codes = x->rows->codes + (x->first_row + r) * x->rows->stride;
            add_row(x->sums + (r * n_entries + codes[j]) * COLUMNS, h, 1.0f, x->n_columns);
        }
    }
}

LOOP_AS(normal, struct normal, plain, )
LOOP_FOR_AVX2(normal, struct normal)

static void add_sums(const struct normal *x, double *a)
{
    int n_entries = x->rows->n_entries;
    for (int64_t r = 0; r < x->n_rows; r++) {
        const uint8_t *codes = x->rows->codes + (x->first_row + r) * x->rows->stride + x->begin;
        for (int k = 0; k < n_entries; k++) {
            const float *sums = x->sums + (r * n_entries + k) * COLUMNS;
            for (int64_t i = 0; i < x->n_columns; i++)
                a[k * n_entries + codes[i]] += (double)sums[i];
        }
    }
}

void guided_normal(const struct quant_guide *guide, const struct guided_rows *rows, const float *u, double *a,
                   double *slope)
{
    int64_t n = guide->n, row_bytes = (int64_t)(COLUMNS * sizeof(float)) * rows->n_entries;
    int64_t at_once = SUMS_BYTES / row_bytes > 0 ? SUMS_BYTES / row_bytes : 1;
    struct normal x = {.guide = guide, .rows = rows};
    x.sums = xmalloc((size_t)(at_once * row_bytes));
    for (x.first_row = 0; x.first_row < rows->n; x.first_row += at_once) {
        x.n_rows = rows->n - x.first_row < at_once ? rows->n - x.first_row : at_once;
        for (x.begin = 0; x.begin < n; x.begin += COLUMNS) {
            x.n_columns = n - x.begin < COLUMNS ? n - x.begin : COLUMNS;
            memset(x.sums, 0, (size_t)(x.n_rows * row_bytes));
            LOOP_IN_USE(normal)(&x, 0, 1);
            add_sums(&x, a);
        }
    }
    for (int64_t r = 0; r < rows->n; r++)
        for (int64_t j = 0; j < n; j++)
            slope[rows->codes[r * rows->stride + j]] += (double)u[r * n + j];
    free(x.sums);
}

/* x with (a + ridge) x = -slope in place of slope, by Cholesky's method. */
static bool solve(double *a, double *slope, int n)
{
    double trace = 0;
    for (int i = 0; i < n; i++)
        trace += a[i * n + i];
    if (!(trace > 0) || !isfinite(trace))
        return false;
    for (int i = 0; i < n; i++)
        a[i * n + i] += RIDGE * trace / n;
    for (int i = 0; i < n; i++)
        for (int j = 0; j <= i; j++) {
            double sum = a[i * n + j];
            for (int k = 0; k < j; k++)
                sum -= a[i * n + k] * a[j * n + k];
            if (i == j && !(sum > 0))
                return false;
            a[i * n + j] = i == j ? sqrt(sum) : sum / a[j * n + j];
        }
    for (int i = 0; i < n; i++) {
        double sum = -slope[i];
        for (int k = 0; k < i; k++)
            sum -= a[i * n + k] * slope[k];
        slope[i] = sum / a[i * n + i];
    }
    for (int i = n - 1; i >= 0; i--) {
        for (int k = i + 1; k < n; k++)
            slope[i] -= a[k * n + i] * slope[k];
        slope[i] /= a[i * n + i];
    }
    return true;
}

void guided_solve(double *a, double *slope, int n_entries, float *table, uint8_t *place)
{
    int order[QUANT_ENTRIES_MAX];
    float moved[QUANT_ENTRIES_MAX];
    bool is_solved = solve(a, slope, n_entries);
    for (int k = 0; k < n_entries; k++) {
        int at = k;
        moved[k] = is_solved ? (float)((double)table[k] + slope[k]) : table[k];
        for (; at > 0 && moved[order[at - 1]] > moved[k]; at--)
            order[at] = order[at - 1];
        order[at] = k;
    }
    for (int at = 0; at < n_entries; at++) {
        table[at] = moved[order[at]];
        place[order[at]] = (uint8_t)at;
    }
}
