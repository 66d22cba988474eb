/* Steps of palettes that are made by what inputs say (guided.c): rows that go through them together. Internal to quant. */
#ifndef MILKIT_QUANT_GUIDED_INTERNAL_H
#define MILKIT_QUANT_GUIDED_INTERNAL_H

#include "quant/quant.h"

/* Rows that begin with a table. Those of a weight, or some columns of them. */
struct guided_rows {
    int64_t n, group; /* group: rows that share a table */
    int n_entries;
    const float *tables;  /* [.., n_entries], ascending */
    const float *middles; /* [.., n_entries]: between an entry and the next, the last one infinite */
    uint8_t *codes;       /* row r begins at r * stride */
    int64_t stride;
};

#define GUIDED_SMALL_TABLE 16

/* The nearest entry, the lower one of two. */
static inline __attribute__((always_inline)) int guided_nearest(const float *middles, int n_entries,
                                                                float value)
{
    int low = 0;
    if (n_entries <= GUIDED_SMALL_TABLE) {
        for (int i = 0; i < n_entries - 1; i++)
            low += value > middles[i];
        return low;
    }
    for (int step = n_entries / 2; step > 0; step /= 2)
        if (value > middles[low + step - 1])
            low += step;
    return low;
}

/* Entries for targets [rows->n, n] by error feedback (feedback.c). */
void guided_feedback(const struct quant_guide *guide, const struct guided_rows *rows, const float *targets);

/* With d = entries - targets, and H with a little on its diagonal, the error of a row is d^T H d (descent.c). */

/* u [rows->n, n] = H d */
void guided_slopes(const struct quant_guide *guide, const struct guided_rows *rows, const float *targets,
                   float *u);
/* Entry after entry the one that makes the error smallest while all others stay; u follows. How many changed. */
int64_t guided_descend(const struct quant_guide *guide, const struct guided_rows *rows, float *u);
/* The tables that make the error smallest while all codes stay are old + x with a x = -slope: a [n_entries, n_entries] and slope
 * [n_entries] of one table's rows are added to. Only the rows of one table. */
void guided_normal(const struct quant_guide *guide, const struct guided_rows *rows, const float *u, double *a,
                   double *slope);
/* Adds x to the table, whose entries are sorted afterwards: place[i] is where entry i went. */
void guided_solve(double *a, double *slope, int n_entries, float *table, uint8_t *place);
/* The error of all rows: sum of d u. */
double guided_error(const struct quant_guide *guide, const struct guided_rows *rows, const float *targets,
                    const float *u);

#endif
