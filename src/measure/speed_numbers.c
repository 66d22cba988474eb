/* What samples say. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "measure/speed.h"

#define DRAWS 2000

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

double speed_mean(const double *samples, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += samples[i];
    return n > 0 ? sum / (double)n : NAN;
}

double speed_deviation(const double *samples, int64_t n)
{
    double mean = speed_mean(samples, n), sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (samples[i] - mean) * (samples[i] - mean);
    return n > 1 ? sqrt(sum / (double)(n - 1)) : n == 1 ? 0 : NAN;
}

static double sorted_quantile(const double *sorted, int64_t n, double q)
{
    double at = q * (double)(n - 1);
    int64_t below = (int64_t)at, above = below + 1 < n ? below + 1 : below;
    return sorted[below] + (at - (double)below) * (sorted[above] - sorted[below]);
}

double speed_quantile(const double *samples, int64_t n, double q)
{
    if (n < 1)
        return NAN;
    double *sorted = xcalloc((size_t)n, sizeof *sorted);
    memcpy(sorted, samples, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    double found = sorted_quantile(sorted, n, q);
    free(sorted);
    return found;
}

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static double drawn_median(double *drawn, const double *samples, int64_t n, uint64_t *state)
{
    for (int64_t i = 0; i < n; i++)
        drawn[i] = samples[next_random(state) % (uint64_t)n];
    qsort(drawn, (size_t)n, sizeof *drawn, by_value);
    return sorted_quantile(drawn, n, 0.5);
}

void speed_ratio_range(const double *a, int64_t n_a, const double *b, int64_t n_b, double *low, double *high)
{
    uint64_t state = 0x9e3779b97f4a7c15u;
    *low = *high = NAN;
    if (n_a < 2 || n_b < 2)
        return;
    double *ratios = xcalloc(DRAWS, sizeof *ratios),
           *drawn = xcalloc((size_t)(n_a > n_b ? n_a : n_b), sizeof *drawn);
    for (int i = 0; i < DRAWS; i++) {
        double over = drawn_median(drawn, a, n_a, &state);
        ratios[i] = over / drawn_median(drawn, b, n_b, &state);
    }
    *low = speed_quantile(ratios, DRAWS, 0.025);
    *high = speed_quantile(ratios, DRAWS, 0.975);
    free(ratios);
    free(drawn);
}
