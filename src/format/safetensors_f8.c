/* F8_E4M3 tensors with a scale for each block of 128 x 128, as published FP8 checkpoints store their linear
 * weights: NAME beside NAME_scale_inv, value = element * scale. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/half.h"
#include "format/safetensors_internal.h"

#define SCALE_SUFFIX "_scale_inv"

static int64_t n_blocks(int64_t n)
{
    return n / ST_SCALE_BLOCK + (n % ST_SCALE_BLOCK != 0);
}

static bool fits(const struct st_tensor *t, const struct st_tensor *scale)
{
    return scale && t->rank == 2 && scale->rank == 2 && scale->shape[0] == n_blocks(t->shape[0]) &&
           scale->shape[1] == n_blocks(t->shape[1]) &&
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
    int64_t columns = t->shape[1];
    for (int i = 0; i < 256; i++)
        values[i] = f8_value((uint8_t)i);
    for (int64_t done = 0; done < n;) {
        int64_t row = (begin + done) / columns, column = (begin + done) % columns;
        int64_t run = ST_SCALE_BLOCK - column % ST_SCALE_BLOCK;
        run = run < columns - column ? run : columns - column;
        run = run < n - done ? run : n - done;
        double scale =
            scale_value(t->scale, row / ST_SCALE_BLOCK * t->scale->shape[1] + column / ST_SCALE_BLOCK);
        const uint8_t *src = t->data + begin + done;
        for (int64_t i = 0; i < run; i++)
            dst[done + i] = values[src[i]] * scale;
        done += run;
    }
}
