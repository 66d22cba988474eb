/* F8_E4M3 tensors with their scales, NAME beside NAME_scale_inv: value = element * scale. Published checkpoints have a
 * scale for each block of 128 x 128; others one for a tensor, for each expert of a tensor that packs several, or for
 * each row. The shape of the scales tells which.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/half.h"
#include "format/safetensors_internal.h"

#define SCALE_SUFFIX "_scale_inv"

/* Scales along the three axes of a tensor (matrices, rows, columns), and how many numbers share one. */
struct scale_grid {
    int64_t n[3], block[3];
};

/* A scale for all; for each (matrices and rows); for each block of 128 (rows and columns). */
static bool fit_axis(struct scale_grid *g, int axis, int64_t n, int64_t n_scales)
{
    int64_t n_blocks = n / ST_SCALE_BLOCK + (n % ST_SCALE_BLOCK != 0);
    g->n[axis] = n_scales;
    g->block[axis] = axis > 0 && n_scales == n_blocks ? ST_SCALE_BLOCK : n_scales == 1 ? n : 1;
    return n_scales == 1 || (axis < 2 && n_scales == n) || (axis > 0 && n_scales == n_blocks);
}

static bool fit(struct scale_grid *g, const struct st_tensor *t, const struct st_tensor *scale)
{
    int64_t n_scales[3] = {1, 1, 1}, n[3] = {1, 1, 1};
    int first = 3 - t->rank;
    if (t->rank < 2 || t->rank > 3 || scale->rank > t->rank)
        return false;
    memcpy(n + first, t->shape, (size_t)t->rank * sizeof n[0]);
    /* One scale has any rank; several begin with the first axis. */
    if (scale->n_elems != 1)
        memcpy(n_scales + first, scale->shape, (size_t)scale->rank * sizeof n[0]);
    return fit_axis(g, 0, n[0], n_scales[0]) && fit_axis(g, 1, n[1], n_scales[1]) &&
           fit_axis(g, 2, n[2], n_scales[2]);
}

static bool fits(const struct st_tensor *t, const struct st_tensor *scale)
{
    struct scale_grid g;
    return scale && t->n_elems > 0 && fit(&g, t, scale) &&
           (scale->dtype == ST_BF16 || scale->dtype == ST_F16 || scale->dtype == ST_F32);
}

void st_link_scales(struct safetensors *s)
{
    for (int i = 0; i < s->n_tensors; i++) {
        struct st_tensor *t = &s->tensors[i];
        if (t->dtype != ST_F8_E4M3)
            continue;
        char *name = xasprintf("%s" SCALE_SUFFIX, t->name);
        const struct st_tensor *scale = safetensors_find(s, name);
        if (fits(t, scale))
            t->scale = scale;
        free(name);
    }
}

/* Sign, four bits of exponent (bias 7), three of mantissa; no infinities, all ones are NaN. */
static double f8_value(uint8_t bits)
{
    int exponent = bits >> 3 & 15, mantissa = bits & 7;
    double v = exponent ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);
    if ((bits & 0x7f) == 0x7f)
        v = (double)NAN;
    return bits & 0x80 ? -v : v;
}

static double scale_value(const struct st_tensor *t, int64_t i)
{
    uint16_t half;
    float f;
    if (t->dtype == ST_F32) {
        memcpy(&f, t->data + i * 4, 4);
        return (double)f;
    }
    memcpy(&half, t->data + i * 2, 2);
    return (double)(t->dtype == ST_F16 ? f16_to_f32(half) : bf16_to_f32(half));
}

void st_load_f8(const struct st_tensor *t, int64_t begin, int64_t n, double *dst)
{
    double values[256];
    struct scale_grid g;
    int64_t rows = t->shape[t->rank - 2], columns = t->shape[t->rank - 1];
    (void)fit(&g, t, t->scale); /* only scales that fit are linked */
    for (int i = 0; i < 256; i++)
        values[i] = f8_value((uint8_t)i);
    for (int64_t done = 0; done < n;) {
        int64_t at = begin + done, column = at % columns, row = at / columns % rows,
                matrix = at / columns / rows;
        int64_t run = g.block[2] - column % g.block[2];
        run = run < columns - column ? run : columns - column;
        run = run < n - done ? run : n - done;
        int64_t row_of_scales = matrix / g.block[0] * g.n[1] + row / g.block[1];
        double scale = scale_value(t->scale, row_of_scales * g.n[2] + column / g.block[2]);
        const uint8_t *src = t->data + at;
        for (int64_t i = 0; i < run; i++)
            dst[done + i] = values[src[i]] * scale;
        done += run;
    }
}
