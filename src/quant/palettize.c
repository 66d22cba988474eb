/* Palettes of fp16 groups: count values by their bits, cluster the distinct ones, look codes up by bits. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "quant/cluster_internal.h"

#define N_BITS 65536 /* patterns of an fp16 */
#define BLOCK_BITS 5 /* patterns are counted in blocks of 32, so that a scan skips what was never seen */
#define N_BLOCKS (N_BITS >> BLOCK_BITS)
#define INFINITY_BITS 0x7c00
#define VALUES_AT_A_TIME 1024
/* Importance in whole steps of the largest one: sums of whole numbers do not depend on their order. */
#define IMPORTANCE_STEPS 1048576.0

struct quant_scratch {
    uint32_t count[N_BITS];
    double importance[N_BITS]; /* sums, when weighted */
    uint8_t seen[N_BLOCKS];
    uint8_t code[N_BITS]; /* of the values that were collected */
    bool is_weighted;
    uint16_t bits[CLUSTER_POINTS_MAX]; /* of the distinct values, ascending; +0 for both zeros */
    double value[CLUSTER_POINTS_MAX];
    double weight[CLUSTER_POINTS_MAX + 1], moment[CLUSTER_POINTS_MAX + 1];
    int n_points;
    int boundary[QUANT_ENTRIES_MAX + 1], n_clusters; /* of the last clustering */
    float *column_steps;                             /* importance in steps, of this group */
    int64_t n_column_steps;
    struct cluster_memory memory;
};

struct quant_scratch *quant_scratch_new(void)
{
    struct quant_scratch *s = xcalloc(1, sizeof *s);
    struct cluster_memory *m = &s->memory;
    size_t n = CLUSTER_POINTS_MAX + 1;
    m->best_of_many = cluster_best_for(cpu_level_in_use());
    m->previous = xmalloc(n * sizeof m->previous[0]);
    m->current = xmalloc(n * sizeof m->current[0]);
    m->candidates = xmalloc(n * sizeof m->candidates[0]);
    m->candidate_weight = xmalloc(n * sizeof m->candidate_weight[0]);
    m->candidate_moment = xmalloc(n * sizeof m->candidate_moment[0]);
    m->curve = xmalloc(n * sizeof m->curve[0]);
    return s;
}

void quant_scratch_free(struct quant_scratch *s)
{
    if (!s)
        return;
    free(s->memory.previous);
    free(s->memory.current);
    free(s->memory.from);
    free(s->memory.candidates);
    free(s->memory.candidate_weight);
    free(s->memory.candidate_moment);
    free(s->memory.curve);
    free(s->column_steps);
    free(s);
}

void quant_collect_begin(struct quant_scratch *s)
{
    for (int b = 0; b < N_BLOCKS; b++) {
        if (!s->seen[b])
            continue;
        memset(&s->count[b << BLOCK_BITS], 0, sizeof s->count[0] << BLOCK_BITS);
        if (s->is_weighted)
            memset(&s->importance[b << BLOCK_BITS], 0, sizeof s->importance[0] << BLOCK_BITS);
        s->seen[b] = 0;
    }
    s->is_weighted = false;
    s->n_column_steps = 0;
}

static void scale_importance(struct quant_scratch *s, const float *importance, int64_t n)
{
    if (s->n_column_steps == n)
        return;
    double largest = 0.0;
    for (int64_t i = 0; i < n; i++)
        largest = (double)importance[i] > largest ? (double)importance[i] : largest;
    free(s->column_steps);
    s->column_steps = xmalloc((size_t)n * sizeof s->column_steps[0]);
    s->n_column_steps = n;
    for (int64_t i = 0; i < n; i++) {
        double steps = largest > 0.0 ? floor((double)importance[i] / largest * IMPORTANCE_STEPS + 0.5) : 1.0;
        /* Something for every column, so that no cluster has the weight 0. */
        s->column_steps[i] = steps >= 1.0 ? (float)steps : 1.0f;
    }
}

void quant_collect(struct quant_scratch *s, const f16 *w, int64_t n, const float *importance, int64_t column,
                   int64_t n_columns)
{
    for (int64_t i = 0; i < n; i++) {
        s->count[w[i]]++;
        s->seen[w[i] >> BLOCK_BITS] = 1;
    }
    if (!importance)
        return;
    scale_importance(s, importance, n_columns);
    s->is_weighted = true;
    for (int64_t i = 0; i < n; i++) {
        s->importance[w[i]] += (double)s->column_steps[column];
        column = column + 1 == n_columns ? 0 : column + 1;
    }
}

void quant_collect_each(struct quant_scratch *s, const f16 *w, int64_t n, const float *importance)
{
    s->is_weighted = true;
    for (int64_t i = 0; i < n; i++) {
        s->count[w[i]]++;
        s->importance[w[i]] += (double)importance[i];
        s->seen[w[i] >> BLOCK_BITS] = 1;
    }
}

/* A value is there or not without any pattern, so each is written and only those that are there move the end. */
static int list_block(const struct quant_scratch *s, int b, int step, uint16_t *to)
{
    int n = 0, first = (b << BLOCK_BITS) + (step < 0 ? (1 << BLOCK_BITS) - 1 : 0);
    for (int i = 0; i < 1 << BLOCK_BITS; i++) {
        int bits = first + i * step;
        to[n] = (uint16_t)bits;
        n += s->count[bits] != 0;
    }
    return n;
}

/* Values and sums of the points that were listed. */
static void sum_points(struct quant_scratch *s)
{
    double weight = 0.0, moment = 0.0;
    float values[VALUES_AT_A_TIME];
    s->weight[0] = s->moment[0] = 0.0;
    for (int begin = 0; begin < s->n_points; begin += VALUES_AT_A_TIME) {
        int n = s->n_points - begin < VALUES_AT_A_TIME ? s->n_points - begin : VALUES_AT_A_TIME;
        f16_to_f32_n(values, s->bits + begin, (size_t)n);
        for (int i = 0; i < n; i++) {
            unsigned bits = s->bits[begin + i];
            double x = (double)values[i], w = s->is_weighted ? s->importance[bits] : (double)s->count[bits];
            weight += w;
            moment += w * x;
            s->value[begin + i] = x;
            s->weight[begin + i + 1] = weight;
            s->moment[begin + i + 1] = moment;
        }
    }
}

/* The distinct values with their sums; false when one is infinite or no number. */
static bool list_points(struct quant_scratch *s, struct err *e)
{
    for (int sign = 0; sign <= 0x8000; sign += 0x8000) {
        for (int b = (sign | INFINITY_BITS) >> BLOCK_BITS; b < (sign + 0x8000) >> BLOCK_BITS; b++) {
            if (s->seen[b])
                return err_set(e, ERR_FORMAT, "expected finite values, found infinity or NaN");
        }
    }
    /* Zeros of both signs are one point; the next begin clears both, since both were seen. */
    s->count[0] += s->count[0x8000];
    s->count[0x8000] = 0;
    s->importance[0] += s->importance[0x8000];
    s->importance[0x8000] = 0.0;
    if (s->count[0])
        s->seen[0] = 1;
    s->n_points = 0;
    /* Negative patterns run against the order of their values. */
    for (int b = ((0x8000 | INFINITY_BITS) >> BLOCK_BITS) - 1; b >= 0x8000 >> BLOCK_BITS; b--)
        s->n_points += s->seen[b] ? list_block(s, b, -1, s->bits + s->n_points) : 0;
    for (int b = 0; b < INFINITY_BITS >> BLOCK_BITS; b++)
        s->n_points += s->seen[b] ? list_block(s, b, 1, s->bits + s->n_points) : 0;
    sum_points(s);
    if (s->n_points == 0)
        return err_set(e, ERR_BUG, "a group of no values");
    /* Moments about the mean. */
    int n = s->n_points;
    double mean = s->moment[n] / s->weight[n];
    for (int i = 1; i <= n; i++)
        s->moment[i] -= s->weight[i] * mean;
    return true;
}

/* Means of the clusters, rounded; their order survives rounding. */
static void fill_table(const struct quant_scratch *s, int k, const int *boundary, f16 *table)
{
    for (int r = 0; r < k; r++) {
        double sum = 0.0, w = s->weight[boundary[r + 1]] - s->weight[boundary[r]];
        for (int i = boundary[r]; i < boundary[r + 1]; i++)
            sum += (s->weight[i + 1] - s->weight[i]) * s->value[i];
        f16 h = f64_to_f16(sum / w);
        table[r] = h == 0x8000 ? 0 : h;
    }
}

/* Codes of all points: the nearest entry, the lower one of two. Adds up the errors. */
static void fill_codes(struct quant_scratch *s, int k, const f16 *table, struct quant_stats *stats)
{
    int i = 0;
    double low = (double)f16_to_f32(table[0]);
    struct quant_stats sum = {0};
    for (int r = 0; r < k; r++) {
        double high = r + 1 < k ? (double)f16_to_f32(table[r + 1]) : INFINITY;
        for (; i < s->n_points; i++) {
            double x = s->value[i], d = fabs(x - low), n = (double)s->count[s->bits[i]];
            if (high - x < x - low)
                break;
            s->code[s->bits[i]] = (uint8_t)r;
            sum.error += n * d * d;
            sum.energy += n * x * x;
            sum.n += (int64_t)s->count[s->bits[i]];
            sum.largest = d > sum.largest ? d : sum.largest;
        }
        low = high;
    }
    s->code[0x8000] = s->code[0];
    quant_stats_add(stats, &sum);
}

bool quant_cluster(struct quant_scratch *s, int bits, enum quant_method method, f16 *table,
                   struct quant_stats *stats, struct err *e)
{
    int entries = 1 << bits, *boundary = s->boundary;
    if (!list_points(s, e))
        return false;
    int k = s->n_points < entries ? s->n_points : entries;
    struct cluster_points p = {
        .n = s->n_points, .weight = s->weight, .moment = s->moment, .best_of_many = s->memory.best_of_many};
    if (k == s->n_points) {
        for (int r = 0; r <= k; r++)
            boundary[r] = r;
    } else if (method == QUANT_EXACT) {
        cluster_exact(&p, &s->memory, k, boundary);
    } else {
        cluster_kmeans(&p, s->value, &s->memory, k, boundary);
    }
    s->n_clusters = k;
    fill_table(s, k, boundary, table);
    for (int r = k; r < entries; r++)
        table[r] = table[k - 1];
    fill_codes(s, k, table, stats);
    return true;
}

double quant_cluster_cost(const struct quant_scratch *s)
{
    double cost = 0.0;
    for (int r = 0; r < s->n_clusters; r++) {
        int begin = s->boundary[r], end = s->boundary[r + 1];
        double w = s->weight[end] - s->weight[begin], sum = 0.0;
        for (int i = begin; i < end; i++)
            sum += (s->weight[i + 1] - s->weight[i]) * s->value[i];
        for (int i = begin; i < end; i++) {
            double d = s->value[i] - sum / w;
            cost += (s->weight[i + 1] - s->weight[i]) * d * d;
        }
    }
    return cost;
}

void quant_assign(const struct quant_scratch *s, const f16 *w, int64_t n, uint8_t *codes)
{
    for (int64_t i = 0; i < n; i++)
        codes[i] = s->code[w[i]];
}

void quant_stats_add(struct quant_stats *to, const struct quant_stats *s)
{
    to->error += s->error;
    to->energy += s->energy;
    to->n += s->n;
    to->largest = s->largest > to->largest ? s->largest : to->largest;
}

double quant_stats_relative(const struct quant_stats *s)
{
    return s->energy > 0.0 ? s->error / s->energy : 0.0;
}

bool quant_palettize(struct quant_scratch *s, const f16 *w, int64_t rows, int64_t columns, int64_t group,
                     int bits, enum quant_method method, const float *importance, uint8_t *codes, f16 *tables,
                     struct quant_stats *stats, struct err *e)
{
    if (group < 1 || group > rows)
        group = rows;
    for (int64_t row = 0; row < rows; row += group) {
        int64_t n = (rows - row < group ? rows - row : group) * columns;
        quant_collect_begin(s);
        quant_collect(s, w + row * columns, n, importance, 0, columns);
        if (!quant_cluster(s, bits, method, tables + row / group * ((int64_t)1 << bits), stats, e))
            return false;
        quant_assign(s, w + row * columns, n, codes + row * columns);
    }
    return true;
}
