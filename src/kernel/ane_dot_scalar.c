/* The plain form of the sum. */
#include "kernel/ane_dot.h"

int64_t ane_dot_scalar(const float *x, const float *least, const float *w, int64_t n)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double a = w[i] < 0 ? -(double)w[i] : (double)w[i];
        if ((a < 0x1p-14 ? 0x1p-14 : a) < (double)least[i])
            continue;
        double p = (double)x[i] * (double)w[i]; /* exact: 11 bits each */
        sum += (int64_t)(p < 0 ? p - 0.5 : p + 0.5);
    }
    return sum;
}
