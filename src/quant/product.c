/* Products of rows with a square matrix, in tiles that stay in registers and panels of the matrix that stay in the
 * first-level cache.
 */
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "quant/guide.h"
#include "quant/loops.h"

#define WIDTH 16  /* columns of a panel */
#define DEPTH 256 /* rows of it */
#define ROWS 4
#define ROWS_AT_ONCE 64 /* of a thread */

struct product {
    float *c;
    const float *a, *b;
    int64_t rows, n;
};

/* c [4][16] += a [4][depth] panel [depth][16] */
INLINE void add_tile(float *c, const float *a, const float *panel, int64_t depth, int64_t n)
{
    v8f s00, s01, s10, s11, s20, s21, s30, s31, b0, b1;
    memcpy(&s00, c, sizeof s00);
    memcpy(&s01, c + 8, sizeof s01);
    memcpy(&s10, c + n, sizeof s10);
    memcpy(&s11, c + n + 8, sizeof s11);
    memcpy(&s20, c + 2 * n, sizeof s20);
    memcpy(&s21, c + 2 * n + 8, sizeof s21);
    memcpy(&s30, c + 3 * n, sizeof s30);
    memcpy(&s31, c + 3 * n + 8, sizeof s31);
    for (int64_t k = 0; k < depth; k++, panel += WIDTH) {
        memcpy(&b0, panel, sizeof b0);
        memcpy(&b1, panel + 8, sizeof b1);
        s00 += a[k] * b0;
        s01 += a[k] * b1;
        s10 += a[n + k] * b0;
        s11 += a[n + k] * b1;
        s20 += a[2 * n + k] * b0;
        s21 += a[2 * n + k] * b1;
        s30 += a[3 * n + k] * b0;
        s31 += a[3 * n + k] * b1;
    }
    memcpy(c, &s00, sizeof s00);
    memcpy(c + 8, &s01, sizeof s01);
    memcpy(c + n, &s10, sizeof s10);
    memcpy(c + n + 8, &s11, sizeof s11);
    memcpy(c + 2 * n, &s20, sizeof s20);
    memcpy(c + 2 * n + 8, &s21, sizeof s21);
    memcpy(c + 3 * n, &s30, sizeof s30);
    memcpy(c + 3 * n + 8, &s31, sizeof s31);
}

/* What the tiles leave, by the same operations. */
INLINE void add_rest(float *c, const float *a, const float *panel, int64_t depth, int64_t width)
{
    for (int64_t k = 0; k < depth; k++)
        for (int64_t i = 0; i < width; i++)
            c[i] += a[k] * panel[k * WIDTH + i];
}

INLINE void add_panel(const struct product *p, const float *panel, int64_t column, int64_t width, int64_t k0,
                      int64_t depth)
{
    int64_t r = 0, n = p->n;
    for (; width == WIDTH && r + ROWS <= p->rows; r += ROWS)
        add_tile(p->c + r * n + column, p->a + r * n + k0, panel, depth, n);
    for (; r < p->rows; r++)
        add_rest(p->c + r * n + column, p->a + r * n + k0, panel, depth, width);
}

INLINE void product_body(const struct product *p, int i_thread, int n_threads)
{
    float panel[DEPTH * WIDTH];
    int64_t n = p->n;
    (void)i_thread;
    (void)n_threads;
    for (int64_t k0 = 0; k0 < n; k0 += DEPTH) {
        int64_t depth = n - k0 < DEPTH ? n - k0 : DEPTH;
        for (int64_t column = 0; column < n; column += WIDTH) {
            int64_t width = n - column < WIDTH ? n - column : WIDTH;
            for (int64_t k = 0; k < depth; k++)
                memcpy(panel + k * WIDTH, p->b + (k0 + k) * n + column, (size_t)width * sizeof *panel);
            add_panel(p, panel, column, width, k0, depth);
        }
    }
}

LOOP_AS(product, struct product, plain, )
LOOP_FOR_AVX2(product, struct product)

void quant_product_add(float *c, const float *a, int64_t rows, const float *b, int64_t n)
{
    struct product p = {.c = c, .a = a, .b = b, .rows = rows, .n = n};
    LOOP_IN_USE(product)(&p, 0, 1);
}

static void products_part(void *context, int i_thread, int n_threads)
{
    const struct product *p = context;
    for (int64_t row = i_thread * ROWS_AT_ONCE; row < p->rows; row += (int64_t)n_threads * ROWS_AT_ONCE) {
        int64_t rows = p->rows - row < ROWS_AT_ONCE ? p->rows - row : ROWS_AT_ONCE;
        quant_product_add(p->c + row * p->n, p->a + row * p->n, rows, p->b, p->n);
    }
}

void quant_products_add(float *c, const float *a, int64_t rows, const float *b, int64_t n, struct pool *pool)
{
    struct product p = {.c = c, .a = a, .b = b, .rows = rows, .n = n};
    pool_run(pool, products_part, &p);
}
