/* The best clustering, by dynamic programming: row k holds for every j the best gain of the first j points in
 * k clusters. Each row is filled by divide and conquer, since the best last boundary moves one way with j
 * (squared errors satisfy the quadrangle inequality). k n log n steps.
 */
#include <math.h>
#include <stdlib.h>
#include "quant/cluster_internal.h"

/* Eight candidates at a time, in whatever registers the machine has; every lane does what one scalar would,
 * so the result is the same everywhere. */
typedef double lanes __attribute__((vector_size(64)));
typedef int64_t lane_ints __attribute__((vector_size(64)));
#define N_LANES 8
#define MANY (3 * N_LANES) /* candidates that are worth a call and its registers */

static inline __attribute__((always_inline)) int
best_body(const struct cluster_points *p, const double *previous, int low, int high, int j, double *best)
{
    const double *weight = p->weight, *moment = p->moment;
    double w_end = weight[j], s_end = moment[j], top = -INFINITY;
    int at = low, i = low;
    if (high - low >= N_LANES) {
        lanes tops;
        lane_ints where, now;
        for (int k = 0; k < N_LANES; k++) {
            tops[k] = -INFINITY;
            where[k] = low;
            now[k] = low + k;
        }
        for (; i + N_LANES <= high + 1; i += N_LANES) {
            lanes w, s, d;
            __builtin_memcpy(&w, weight + i, sizeof w);
            __builtin_memcpy(&s, moment + i, sizeof s);
            __builtin_memcpy(&d, previous + i, sizeof d);
            s = s_end - s;
            w = w_end - w;
            d = d + s * s / w;
            lane_ints is_better = d > tops;
            tops = (lanes)(((lane_ints)d & is_better) | ((lane_ints)tops & ~is_better));
            where = (now & is_better) | (where & ~is_better);
            now += N_LANES;
        }
        for (int k = 0; k < N_LANES; k++) {
            if (tops[k] > top || (tops[k] == top && where[k] < at)) {
                top = tops[k];
                at = (int)where[k];
            }
        }
    }
    for (; i <= high; i++) {
        double s = s_end - moment[i], w = w_end - weight[i], d = previous[i] + s * s / w;
        if (d > top) {
            top = d;
            at = i;
        }
    }
    *best = top;
    return at;
}

#if defined(__x86_64__) && defined(__GNUC__)
#define HAVE_WIDE 1
__attribute__((target("avx2"))) static int best_avx2(const struct cluster_points *p, const double *previous,
                                                     int low, int high, int j, double *best)
{
    return best_body(p, previous, low, high, j, best);
}

__attribute__((target("avx512f,avx512dq"))) static int
best_avx512(const struct cluster_points *p, const double *previous, int low, int high, int j, double *best)
{
    return best_body(p, previous, low, high, j, best);
}
#endif

static int best_plain(const struct cluster_points *p, const double *previous, int low, int high, int j,
                      double *best)
{
    return best_body(p, previous, low, high, j, best);
}

cluster_best_fn cluster_best_for(enum cpu_level level)
{
#ifdef HAVE_WIDE
    if (level >= CPU_AVX512)
        return best_avx512;
    if (level >= CPU_AVX2)
        return best_avx2;
#endif
    (void)level;
    return best_plain;
}

/* Most ranges hold a handful of candidates: those are looked at on the spot. */
static inline __attribute__((always_inline)) int
best_of(const struct cluster_points *p, const double *previous, int low, int high, int j, double *best)
{
    if (high - low >= MANY)
        return p->best_of_many(p, previous, low, high, j, best);
    double w_end = p->weight[j], s_end = p->moment[j], top = -INFINITY;
    int at = low;
    for (int i = low; i <= high; i++) {
        double s = s_end - p->moment[i], w = w_end - p->weight[i], d = previous[i] + s * s / w;
        at = d > top ? i : at;
        top = d > top ? d : top;
    }
    *best = top;
    return at;
}

int cluster_best(const struct cluster_points *p, const double *previous, int low, int high, int j,
                 double *best)
{
    return best_of(p, previous, low, high, j, best);
}

void cluster_row(const struct cluster_points *p, const double *previous, double *current, uint16_t *from,
                 int j_low, int j_high, int i_low, int i_high)
{
    /* Depth first; what is pending halves with each level, so the stack needs one entry a level. */
    struct {
        int j_low, j_high, i_low, i_high;
    } stack[40];
    int n = 0, first = j_low;
    for (;;) {
        while (j_low <= j_high) {
            int j = j_low + (j_high - j_low) / 2, high = i_high < j ? i_high : j - 1;
            int i = best_of(p, previous, i_low, high, j, &current[j]);
            from[j - first] = (uint16_t)i;
            stack[n].j_low = j + 1;
            stack[n].j_high = j_high;
            stack[n].i_low = i;
            stack[n++].i_high = i_high;
            j_high = j - 1;
            i_high = i;
        }
        if (n == 0)
            return;
        n--;
        j_low = stack[n].j_low;
        j_high = stack[n].j_high;
        i_low = stack[n].i_low;
        i_high = stack[n].i_high;
    }
}

void cluster_reserve(struct cluster_memory *m, size_t n)
{
    if (n > m->from_capacity) {
        free(m->from);
        m->from = xmalloc(n * sizeof m->from[0]);
        m->from_capacity = n;
    }
}

void cluster_exact(const struct cluster_points *p, struct cluster_memory *m, int k, int *boundary)
{
    int n = p->n;
    double *previous = m->previous, *current = m->current, unused;
    /* Row r: j from r + 1 (every cluster has a point) to what leaves a point for each of the others. */
    size_t width = (size_t)(n - k + 1);
    cluster_reserve(m, width * (size_t)k);
    for (int j = 1; j <= n - k + 1; j++)
        previous[j] = cluster_gain(p, 0, j);
    for (int r = 1; r < k - 1; r++) {
        cluster_row(p, previous, current, m->from + width * (size_t)r, r + 1, n - k + r + 1, r, n - k + r);
        double *swap = previous;
        previous = current;
        current = swap;
    }
    boundary[0] = 0;
    boundary[k] = n;
    if (k > 1)
        boundary[k - 1] = cluster_best(p, previous, k - 1, n - 1, n, &unused);
    for (int r = k - 2; r >= 1; r--)
        boundary[r] = m->from[width * (size_t)r + (size_t)(boundary[r + 1] - r - 1)];
}
