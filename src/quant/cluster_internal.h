/* Clustering of sorted points in one dimension. Internal to quant.
 *
 * k clusters of n points in order are k - 1 boundaries. With prefix sums a cluster's part of the result is
 * known at once: its squared error is a constant of the points less its gain, (sum of w x)^2 / (sum of w). So
 * the best clustering has the largest sum of gains.
 */
#ifndef MILKIT_QUANT_CLUSTER_INTERNAL_H
#define MILKIT_QUANT_CLUSTER_INTERNAL_H

#include "base/cpu.h"
#include "quant/quant.h"

#define CLUSTER_POINTS_MAX 65536

/* weight and moment [n + 1]: sums of w and w * x over the first points; moments about the mean, which makes
 * sums and differences of like size. */
struct cluster_points;
/* The first i in [low, high] with the largest previous[i] + gain(i, j); its value in *best. */
typedef int (*cluster_best_fn)(const struct cluster_points *p, const double *previous, int low, int high,
                               int j, double *best);
/* For many candidates, in a level's registers; every level gives the same. */
cluster_best_fn cluster_best_for(enum cpu_level level);

struct cluster_points {
    int n;
    const double *weight, *moment;
    cluster_best_fn best_of_many;
};

/* Memory for the dynamic programs. */
struct cluster_memory {
    cluster_best_fn best_of_many; /* of the instruction set in use */
    double *previous, *current;   /* [CLUSTER_POINTS_MAX + 1] */
    uint16_t *from;               /* where the last cluster begins; [from_capacity], grown on demand */
    size_t from_capacity;
    /* candidates of the coarse stage, their sums */
    int *candidates;                             /* [CLUSTER_POINTS_MAX + 1] */
    double *candidate_weight, *candidate_moment; /* likewise */
    double *curve;                               /* likewise */
};

static inline double cluster_gain(const struct cluster_points *p, int begin, int end)
{
    double s = p->moment[end] - p->moment[begin], w = p->weight[end] - p->weight[begin];
    return s * s / w;
}

/* Row of a dynamic program: for j in [j_low, j_high] the largest previous[i] + gain(i, j) over i in [i_low,
 * i_high] below j, and the first such i. The best i never falls as j grows. from is indexed by j - j_low. */
void cluster_row(const struct cluster_points *p, const double *previous, double *current, uint16_t *from,
                 int j_low, int j_high, int i_low, int i_high);
/* Like a cluster_best_fn, for any number of candidates. */
int cluster_best(const struct cluster_points *p, const double *previous, int low, int high, int j,
                 double *best);
void cluster_reserve(struct cluster_memory *m, size_t n);

/* boundary [k + 1]: 0 < ... < n, for k <= n. */
void cluster_exact(const struct cluster_points *p, struct cluster_memory *m, int k, int *boundary);
/* value [n]: the points themselves, ascending. */
void cluster_kmeans(const struct cluster_points *p, const double *value, struct cluster_memory *m, int k,
                    int *boundary);

#endif
