/* Linear integers: value = scale * code, scale in fp16, the product rounded to fp16 as the expanded weight is. */
#include <math.h>
#include "quant/quant.h"

#define LOWEST_SCALE 0x0001 /* the smallest fp16 above 0 */
#define ONE 0x3c00
#define INT4_TRIALS 12

static float largest_magnitude(const f16 *w, int64_t n)
{
    /* The order of magnitudes is that of their bits. */
    unsigned top = 0;
    for (int64_t i = 0; i < n; i++) {
        unsigned bits = w[i] & 0x7fffu;
        top = bits > top ? bits : top;
    }
    return f16_to_f32((f16)top);
}

static f16 scale_for(float largest, float steps)
{
    if (!(largest > 0.0f))
        return ONE;
    f16 scale = f32_to_f16(largest / steps);
    return scale ? scale : LOWEST_SCALE;
}

static int round_to(float x, int low, int high)
{
    if (x <= (float)low)
        return low;
    if (x >= (float)high)
        return high;
    /* To nearest, ties to even: the sum has no bits for a fraction. */
    return (int)((x + 12582912.0f) - 12582912.0f);
}

static void add_stats(struct quant_stats *stats, float x, float restored)
{
    double d = fabs((double)x - (double)restored);
    stats->error += d * d;
    stats->energy += (double)x * (double)x;
    stats->largest = d > stats->largest ? d : stats->largest;
    stats->n++;
}

f16 quant_int8_scale(const f16 *w, int64_t n)
{
    return scale_for(largest_magnitude(w, n), 127.0f);
}

void quant_int8(const f16 *w, int64_t n, f16 scale, uint8_t *codes, struct quant_stats *stats)
{
    float step = f16_to_f32(scale);
    for (int64_t i = 0; i < n; i++) {
        float x = f16_to_f32(w[i]);
        int code = round_to(x / step, -127, 127);
        codes[i] = (uint8_t)code;
        add_stats(stats, x, f16_round((float)code * step));
    }
}

f16 quant_int4(const f16 *w, int64_t n, uint8_t *codes, struct quant_stats *stats)
{
    float largest = largest_magnitude(w, n);
    f16 best = ONE;
    double least = INFINITY;
    /* A smaller scale cuts the largest values and rounds all others better. */
    for (int trial = 0; trial < INT4_TRIALS; trial++) {
        f16 scale = scale_for(largest, 7.0f + 0.25f * (float)trial);
        float step = f16_to_f32(scale);
        double error = 0.0;
        for (int64_t i = 0; i < n; i++) {
            float x = f16_to_f32(w[i]);
            double d = (double)x - (double)round_to(x / step, -8, 7) * (double)step;
            error += d * d;
        }
        if (error < least) {
            least = error;
            best = scale;
        }
    }
    float step = f16_to_f32(best);
    for (int64_t i = 0; i < n; i++) {
        float x = f16_to_f32(w[i]);
        int code = round_to(x / step, -8, 7);
        codes[i] = (uint8_t)(code & 15);
        add_stats(stats, x, f16_round((float)code * step));
    }
    return best;
}
