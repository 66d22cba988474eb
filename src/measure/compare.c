/* Cosine, divergence and the largest difference of two rows of logits. */
#include "measure/compare.h"
#include <math.h>

struct row {
    bool is_finite;
    int32_t top;
    double best, second, log_sum;
};

static struct row describe(const float *x, int64_t n)
{
    struct row r = {.is_finite = true, .best = -INFINITY, .second = -INFINITY};
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double v = (double)x[i];
        if (!isfinite(v)) {
            r.is_finite = false;
        } else if (v > r.best) {
            r.second = r.best;
            r.best = v;
            r.top = (int32_t)i;
        } else if (v > r.second) {
            r.second = v;
        }
    }
    for (int64_t i = 0; i < n && r.is_finite; i++)
        sum += exp((double)x[i] - r.best);
    r.log_sum = r.best + log(sum);
    return r;
}

void logits_compare(const float *reference, const float *other, int64_t n, struct logits_difference *out)
{
    struct row a = describe(reference, n), b = describe(other, n);
    double dot = 0, a_squares = 0, b_squares = 0;
    *out = (struct logits_difference){.reference_finite = a.is_finite,
                                      .other_finite = b.is_finite,
                                      .reference_top = a.top,
                                      .other_top = b.top,
                                      .margin = n > 1 ? a.best - a.second : 0,
                                      .cosine = NAN,
                                      .kl = NAN,
                                      .max_difference = NAN};
    if (!a.is_finite || !b.is_finite)
        return;
    out->kl = out->max_difference = 0;
    for (int64_t i = 0; i < n; i++) {
        double x = (double)reference[i], y = (double)other[i], log_p = x - a.log_sum;
        dot += x * y;
        a_squares += x * x;
        b_squares += y * y;
        out->kl += exp(log_p) * (log_p - (y - b.log_sum));
        out->max_difference = fmax(out->max_difference, fabs(x - y));
    }
    /* Rows of zeros have no direction: two of them agree, one does not. */
    if (a_squares > 0 && b_squares > 0)
        out->cosine = dot / (sqrt(a_squares) * sqrt(b_squares));
    else
        out->cosine = a_squares == b_squares ? 1 : 0;
}
