/* A clustering within 0.1 % of the best one in a fraction of the time: the best one over a few candidates for
 * boundaries, improved by dynamic programming that looks at a window around each boundary among all points.
 *
 * Candidates are equally spaced along the integral of density^(1/3), which is how a fine quantizer places its
 * boundaries. For few clusters the exact method runs on them. For many a price for each cluster takes the
 * place of their number: the best clustering at a price needs one row instead of k, the number falls as the
 * price rises, and a number that is nearly right is put right one cluster at a time.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "quant/cluster_internal.h"

#define CANDIDATES_PER_CLUSTER 16
#define CANDIDATES_PER_CLUSTER_OF_FEW 32
#define CANDIDATES_PER_CLUSTER_OF_MANY 10 /* above 64 clusters */
#define CANDIDATES_MIN 128
#define EXACT_CLUSTERS_MAX 8
#define EVEN_CLUSTERS_MAX 16
#define PRICES_MAX 24
#define PRICES_ENOUGH 6 /* then nearly the right number will do */
#define PATIENCE 8
#define ROUNDS_MAX 40
#define CAP_ROUNDS_MAX 4
#define CAP_SETTLED 0.99

/* x^(1/3) within some percent, the same on every machine, which a library's cbrt need not be. */
static float rough_cube_root(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    u = u / 3 + 709921077u;
    memcpy(&x, &u, 4);
    return x;
}

/* Four sums at once, in this order on every machine: one would wait for itself. */
static double sum_capped(const double *x, int n, double cap)
{
    double sums[4] = {0.0};
    int i = 0;
    for (; i + 4 <= n; i += 4) {
        for (int k = 0; k < 4; k++)
            sums[k] += x[i + k] < cap ? x[i + k] : cap;
    }
    for (; i < n; i++)
        sums[0] += x[i] < cap ? x[i] : cap;
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/* curve [n + 1]: the integral of density^(1/3) over the points, no point of which counts more than the step
 * between n_wanted candidates: outliers would take the candidates of the others. */
static void fill_curve(const struct cluster_points *p, const double *value, int n_wanted, double *curve)
{
    const double *weight = p->weight;
    int n = p->n;
    curve[0] = 0.0;
    for (int i = 0; i < n; i++) {
        double below = value[i > 0 ? i - 1 : 0], above = value[i + 1 < n ? i + 1 : n - 1];
        double gap = (above - below) * 0.5, mass = weight[i + 1] - weight[i];
        /* Gaps of subnormals would vanish in the float. */
        curve[i + 1] = (double)rough_cube_root((float)(mass * gap * gap * 0x1p60));
    }
    double total = sum_capped(curve + 1, n, INFINITY), cap = INFINITY;
    for (int round = 0; round < CAP_ROUNDS_MAX; round++) {
        double last = total;
        cap = total / n_wanted;
        total = sum_capped(curve + 1, n, cap);
        if (total > last * CAP_SETTLED)
            break;
    }
    for (int i = 1; i <= n; i++)
        curve[i] = curve[i - 1] + (curve[i] < cap ? curve[i] : cap);
}

/* At most n_wanted points, ends included, equally spaced along the curve. Returns how many intervals. */
static int choose_candidates(const double *curve, int n, int n_wanted, int *candidates)
{
    int count = 0, at = 0;
    candidates[0] = 0;
    for (int i = 1; i < n_wanted; i++) {
        double target = curve[n] * i / n_wanted;
        while (at < n && curve[at] < target)
            at++;
        if (at > candidates[count] && at < n)
            candidates[++count] = at;
    }
    candidates[++count] = n;
    return count;
}

struct window {
    int low, high;
};

/* Windows of reach [k] to both sides, cut so that every choice leaves a point for each cluster and borders
 * rise. */
static void place_windows(const int *boundary, int k, int n, const int *reach, struct window *windows)
{
    for (int r = 1; r < k; r++) {
        struct window *w = &windows[r];
        w->low = boundary[r] - reach[r] > r ? boundary[r] - reach[r] : r;
        if (r > 1 && w->low <= windows[r - 1].low)
            w->low = windows[r - 1].low + 1;
        w->high = boundary[r] + reach[r] < n - (k - r) ? boundary[r] + reach[r] : n - (k - r);
    }
    for (int r = k - 2; r >= 1; r--) {
        if (windows[r].high >= windows[r + 1].high)
            windows[r].high = windows[r + 1].high - 1;
    }
}

/* The best boundaries inside the windows; false when one lies at a border that is not the end of its range. */
static bool search_windows(const struct cluster_points *p, struct cluster_memory *m, int k,
                           const struct window *windows, int *boundary)
{
    double *previous = m->previous, *current = m->current, unused;
    size_t at = 0, offsets[QUANT_ENTRIES_MAX + 1], total = 0;
    for (int r = 1; r < k; r++)
        total += (size_t)(windows[r].high - windows[r].low + 1);
    cluster_reserve(m, total);
    for (int j = windows[1].low; j <= windows[1].high; j++)
        previous[j] = cluster_gain(p, 0, j);
    for (int r = 2; r < k; r++) {
        offsets[r] = at;
        cluster_row(p, previous, current, m->from + at, windows[r].low, windows[r].high, windows[r - 1].low,
                    windows[r - 1].high);
        at += (size_t)(windows[r].high - windows[r].low + 1);
        double *swap = previous;
        previous = current;
        current = swap;
    }
    boundary[k - 1] = cluster_best(p, previous, windows[k - 1].low, windows[k - 1].high, p->n, &unused);
    for (int r = k - 1; r >= 2; r--)
        boundary[r - 1] = m->from[offsets[r] + (size_t)(boundary[r] - windows[r].low)];
    bool is_inside = true;
    for (int r = 1; r < k; r++) {
        int least = r, most = p->n - (k - r);
        if ((boundary[r] == windows[r].low && windows[r].low > least) ||
            (boundary[r] == windows[r].high && windows[r].high < most))
            is_inside = false;
    }
    return is_inside;
}

static void improve(const struct cluster_points *p, struct cluster_memory *m, int k, const int *reach,
                    int *boundary)
{
    struct window windows[QUANT_ENTRIES_MAX];
    int last[QUANT_ENTRIES_MAX + 1];
    for (int round = 0; round < ROUNDS_MAX; round++) {
        memcpy(last, boundary, sizeof last[0] * (size_t)(k + 1));
        place_windows(boundary, k, p->n, reach, windows);
        if (search_windows(p, m, k, windows, boundary) ||
            memcmp(last, boundary, sizeof last[0] * (size_t)(k + 1)) == 0)
            return;
    }
}

/* ---- a price for each cluster ---- */

/* The best clustering at this price; boundary [k + 1] for the k that is returned, not filled when that is above
 * k_max. patience: how many worse candidates end the search for a boundary; below p->n what is found may not be
 * the best. */
static int cluster_at_price(const struct cluster_points *p, struct cluster_memory *m, double price,
                            int patience, int k_max, int *boundary)
{
    double *total = m->previous;
    int low = 0, k = 0;
    cluster_reserve(m, (size_t)p->n + 1);
    total[0] = 0.0;
    for (int j = 1; j <= p->n; j++) {
        double w_end = p->weight[j], s_end = p->moment[j], top = -INFINITY;
        /* The best last boundary never falls as j grows, and seldom by much. */
        if (patience >= p->n)
            low = cluster_best(p, total, low, j - 1, j, &top);
        else
            for (int i = low; i < j && i - low <= patience; i++) {
                double s = s_end - p->moment[i], w = w_end - p->weight[i], d = total[i] + s * s / w;
                if (d > top) {
                    top = d;
                    low = i;
                }
            }
        total[j] = top - price;
        m->from[j] = (uint16_t)low;
    }
    for (int j = p->n; j > 0; j = m->from[j])
        k++;
    if (k > k_max)
        return k;
    boundary[k] = p->n;
    for (int r = k; r > 0; r--)
        boundary[r - 1] = m->from[boundary[r]];
    return k;
}

/* Joins the two neighbours whose union loses least. */
static void join_two(const struct cluster_points *p, int k, int *boundary)
{
    int at = 1;
    double least = INFINITY;
    for (int r = 1; r < k; r++) {
        double loss = cluster_gain(p, boundary[r - 1], boundary[r]) +
                      cluster_gain(p, boundary[r], boundary[r + 1]) -
                      cluster_gain(p, boundary[r - 1], boundary[r + 1]);
        if (loss < least) {
            least = loss;
            at = r;
        }
    }
    memmove(&boundary[at], &boundary[at + 1], sizeof boundary[0] * (size_t)(k - at));
}

/* Splits the cluster whose halves gain most. */
static void split_one(const struct cluster_points *p, int k, int *boundary)
{
    int after = -1, at = 0;
    double most = -INFINITY;
    for (int r = 0; r < k; r++) {
        double whole = cluster_gain(p, boundary[r], boundary[r + 1]);
        for (int i = boundary[r] + 1; i < boundary[r + 1]; i++) {
            double gain = cluster_gain(p, boundary[r], i) + cluster_gain(p, i, boundary[r + 1]) - whole;
            if (gain > most) {
                most = gain;
                after = r;
                at = i;
            }
        }
    }
    memmove(&boundary[after + 2], &boundary[after + 1], sizeof boundary[0] * (size_t)(k - after));
    boundary[after + 1] = at;
}

/* A search for the price at which there are k clusters; the nearest number that was seen is kept. */
struct price_search {
    double price, low, high; /* low, high: the bracket, 0 while there is none */
    int k, n_found;
    int found[2 * QUANT_ENTRIES_MAX + 1];
};

static void search_price(const struct cluster_points *p, struct cluster_memory *m, struct price_search *s,
                         int patience, int n_trials)
{
    s->low = s->high = 0.0;
    s->n_found = 0;
    for (int trial = 0; trial < n_trials; trial++) {
        int now[2 * QUANT_ENTRIES_MAX + 1];
        int count = cluster_at_price(p, m, s->price, patience, 2 * s->k, now);
        if (count <= 2 * s->k && (s->n_found == 0 || abs(count - s->k) < abs(s->n_found - s->k))) {
            s->n_found = count;
            memcpy(s->found, now, sizeof now[0] * (size_t)(count + 1));
        }
        if (count == s->k ||
            (trial >= PRICES_ENOUGH && s->n_found > 0 && abs(s->n_found - s->k) <= 1 + s->k / 64))
            return;
        if (count > s->k)
            s->low = s->price;
        else
            s->high = s->price;
        /* By the cube law, inside the bracket. */
        double factor = (double)count / s->k;
        s->price *= factor * factor * factor;
        if (s->low > 0.0 && s->high > 0.0 &&
            (s->price <= s->low || s->price >= s->high || trial >= PRICES_ENOUGH))
            s->price = sqrt(s->low * s->high);
    }
}

/* k clusters of p->n >= 4 k points, the best ones or nearly so. True when they are the best. price: where the
 * search begins, better too low: the fewer clusters, the longer the rows. */
static bool cluster_by_price(const struct cluster_points *p, struct cluster_memory *m, int k, double price,
                             int *boundary)
{
    struct price_search s = {.price = price, .k = k};
    /* Impatiently for the price, then for the clusters. */
    search_price(p, m, &s, PATIENCE, PRICES_ENOUGH);
    search_price(p, m, &s, p->n, PRICES_MAX);
    if (s.n_found == 0) {
        s.n_found = k;
        for (int r = 0; r <= k; r++)
            s.found[r] = (int)((int64_t)p->n * r / k);
    }
    bool is_best = s.n_found == k;
    for (; s.n_found > k; s.n_found--)
        join_two(p, s.n_found, s.found);
    for (; s.n_found < k; s.n_found++)
        split_one(p, s.n_found, s.found);
    memcpy(boundary, s.found, sizeof s.found[0] * (size_t)(k + 1));
    return is_best;
}

/* The best clustering of candidates. Where they suit the density, boundaries lie near even steps of them: what is
 * found in windows of one and a half clusters to both sides is taken when no boundary is further than two
 * thirds of a cluster from its step. Further off it may be best in the windows alone: then everything is searched. */
static void cluster_evenly(const struct cluster_points *p, struct cluster_memory *m, int k, int *boundary)
{
    struct window windows[QUANT_ENTRIES_MAX];
    int reach[QUANT_ENTRIES_MAX], start[QUANT_ENTRIES_MAX + 1];
    for (int r = 0; r <= k; r++)
        boundary[r] = start[r] = (int)((int64_t)p->n * r / k);
    for (int r = 1; r < k; r++)
        reach[r] = 3 * p->n / (2 * k);
    place_windows(boundary, k, p->n, reach, windows);
    bool is_near = search_windows(p, m, k, windows, boundary);
    for (int r = 1; r < k; r++)
        is_near = is_near && abs(boundary[r] - start[r]) <= reach[r] * 4 / 9;
    if (!is_near)
        cluster_exact(p, m, k, boundary);
}

void cluster_kmeans(const struct cluster_points *p, const double *value, struct cluster_memory *m, int k,
                    int *boundary)
{
    bool is_few = k <= EVEN_CLUSTERS_MAX;
    int n = p->n, reach[QUANT_ENTRIES_MAX];
    int wanted = k * (is_few    ? CANDIDATES_PER_CLUSTER_OF_FEW
                      : k <= 64 ? CANDIDATES_PER_CLUSTER
                                : CANDIDATES_PER_CLUSTER_OF_MANY);
    if (k < 3) {
        cluster_exact(p, m, k, boundary);
        return;
    }
    if (wanted < CANDIDATES_MIN)
        wanted = CANDIDATES_MIN;
    if (wanted > n)
        wanted = n;
    fill_curve(p, value, wanted, m->curve);
    /* n points of even density in k clusters cost curve^3 / (12 k^2); the price is what one cluster more saves. */
    double total = m->curve[n] * 0x1p-20, price = total * total * total / (6.0 * k * k * k);
    if (wanted == n) {
        for (int i = 0; i <= n; i++)
            m->candidates[i] = i;
    } else {
        wanted = choose_candidates(m->curve, n, wanted, m->candidates);
    }
    if (wanted < 4 * k) {
        cluster_exact(p, m, k, boundary);
        return;
    }
    for (int i = 0; i <= wanted; i++) {
        m->candidate_weight[i] = p->weight[m->candidates[i]];
        m->candidate_moment[i] = p->moment[m->candidates[i]];
    }
    struct cluster_points coarse = {.n = wanted,
                                    .weight = m->candidate_weight,
                                    .moment = m->candidate_moment,
                                    .best_of_many = m->best_of_many};
    if (k <= EXACT_CLUSTERS_MAX)
        cluster_exact(&coarse, m, k, boundary);
    else if (is_few)
        cluster_evenly(&coarse, m, k, boundary);
    else if (!cluster_by_price(&coarse, m, k, price, boundary)) {
        for (int r = 1; r < k; r++)
            reach[r] = 3 * wanted / (2 * k);
        improve(&coarse, m, k, reach, boundary);
    }
    if (wanted == n)
        return;
    /* The reach among all points is a step of the candidates; for few clusters, of which each boundary matters, three
     * quarters of a cluster. */
    int steps = is_few ? 3 * CANDIDATES_PER_CLUSTER_OF_FEW / 4 : 1;
    for (int r = 1; r < k; r++) {
        int c = boundary[r], below = m->candidates[c] - m->candidates[c - 1],
            above = m->candidates[c + 1] - m->candidates[c];
        reach[r] = steps * (below > above ? below : above);
    }
    for (int r = 1; r <= k; r++)
        boundary[r] = m->candidates[boundary[r]];
    improve(p, m, k, reach, boundary);
}
