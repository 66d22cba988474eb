/* Compares what the commands wrote with reference numbers; for the script tests, which have no other reader of
 * safetensors files. Exit status 0: as expected, 1: not (said on stdout), 2: wrong call.
 *
 *   ids FILE KEY [N]                        the first N ids of a tensor, comma separated
 *   golden OUT GOLDEN PROMPT COSINE MIN     rows of OUT at PROMPT.positions against PROMPT.logits, at least MIN of them
 *   rows OUT GOLDEN KEY FIRST MAX_ABS MIN   row i of GOLDEN's KEY is position FIRST + i: largest difference, and the same
 *                                           best token where the reference's margin is above twice that
 *   quantiles COSINE MEDIAN MARGIN GOLDEN OUT PROMPT [OUT PROMPT ...]
 *                                           the rows of all OUTs at PROMPT.positions together: the cosine that one row in
 *                                           a hundred is below, that of the middle row, and the same best token where the
 *                                           golden's leads by more than MARGIN
 *   same PART WHOLE                         every row of PART stands in WHOLE, bit for bit
 *   near A B MAX_ABS                        the same positions, logits within
 *   greedy IDS GOLDEN PROMPT MARGIN MIN     a file of ids against PROMPT.greedy up to the first margin in doubt
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "format/safetensors.h"

struct table_of {
    int64_t n, width;
    int32_t *positions;
    float *logits;
};

static void die(const char *message)
{
    printf("%s\n", message);
    exit(1);
}

static struct safetensors *open_file(const char *path)
{
    struct safetensors *s = NULL;
    struct err e = {0};
    if (!safetensors_open(&s, path, &e))
        die(e.msg);
    return s;
}

static float *floats(const struct safetensors *s, const char *key, int64_t *n, int64_t *width)
{
    const struct st_tensor *t = safetensors_find(s, key);
    struct err e = {0};
    if (!t || t->rank != 2 || t->dtype != ST_F32) {
        printf("%s: no float tensor %s of rank 2\n", s->path, key);
        exit(1);
    }
    float *v = xmalloc(sizeof *v * (size_t)(t->n_elems + 1));
    if (!st_read_f32(t, v, &e))
        die(e.msg);
    *n = t->shape[0];
    *width = t->shape[1];
    return v;
}

static int32_t *ints(const struct safetensors *s, const char *key, int64_t *n)
{
    const struct st_tensor *t = safetensors_find(s, key);
    if (!t || t->rank != 1 || t->dtype != ST_I32) {
        printf("%s: no int32 tensor %s of rank 1\n", s->path, key);
        exit(1);
    }
    int32_t *v = xmalloc(t->bytes + 4);
    memcpy(v, t->data, t->bytes);
    *n = t->shape[0];
    return v;
}

/* What `milkit logits` writes. */
static struct table_of read_output(const char *path)
{
    struct safetensors *s = open_file(path);
    struct table_of t;
    int64_t n;
    if (s->n_tensors != 2)
        die("expected the tensors positions and logits alone");
    t.positions = ints(s, "positions", &n);
    t.logits = floats(s, "logits", &t.n, &t.width);
    if (n != t.n)
        die("positions and logits of different length");
    for (int64_t i = 1; i < n; i++)
        if (t.positions[i] <= t.positions[i - 1])
            die("positions that do not rise");
    safetensors_close(s);
    return t;
}

static const float *row_at(const struct table_of *t, int64_t position)
{
    for (int64_t i = 0; i < t->n; i++)
        if (t->positions[i] == position)
            return t->logits + i * t->width;
    return NULL;
}

static void free_output(struct table_of *t)
{
    free(t->positions);
    free(t->logits);
}

static int64_t best_of(const float *row, int64_t n, float *margin)
{
    int64_t best = 0;
    float second = -INFINITY;
    for (int64_t i = 1; i < n; i++)
        if (row[i] > row[best]) {
            second = row[best];
            best = i;
        } else if (row[i] > second) {
            second = row[i];
        }
    *margin = row[best] - second;
    return best;
}

static double cosine_of(const float *a, const float *b, int64_t n)
{
    double ab = 0, aa = 0, bb = 0;
    for (int64_t i = 0; i < n; i++) {
        ab += (double)a[i] * b[i];
        aa += (double)a[i] * a[i];
        bb += (double)b[i] * b[i];
    }
    return ab / sqrt(aa * bb);
}

static void print_ids(const char *file, const char *key, int64_t limit)
{
    struct safetensors *s = open_file(file);
    int64_t n;
    int32_t *v = ints(s, key, &n);
    for (int64_t i = 0; i < n && (limit < 0 || i < limit); i++)
        printf(i ? ",%d" : "%d", v[i]);
    printf("\n");
    free(v);
    safetensors_close(s);
}

static void compare_golden(const char *out, const char *golden, const char *prompt, double cosine_min,
                           int64_t n_min)
{
    struct table_of t = read_output(out);
    struct safetensors *s = open_file(golden);
    char key[128];
    int64_t n, n_rows, width, n_compared = 0;
    snprintf(key, sizeof key, "%s.positions", prompt);
    int32_t *positions = ints(s, key, &n);
    snprintf(key, sizeof key, "%s.logits", prompt);
    float *want = floats(s, key, &n_rows, &width);
    if (width != t.width || n_rows != n)
        die("another vocabulary");
    double lowest = 1;
    for (int64_t i = 0; i < n; i++) {
        const float *row = row_at(&t, positions[i]);
        if (!row)
            continue;
        double cosine = cosine_of(row, want + i * width, width);
        lowest = cosine < lowest ? cosine : lowest;
        if (!(cosine >= cosine_min)) {
            printf("position %d: cosine %.9f\n", positions[i], cosine);
            exit(1);
        }
        n_compared++;
    }
    printf("%lld rows, lowest cosine %.9f\n", (long long)n_compared, lowest);
    free(positions);
    free(want);
    safetensors_close(s);
    free_output(&t);
    if (n_compared < n_min)
        die("fewer rows than expected");
}

static int compare_doubles(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

static void compare_quantiles(double cosine_min, double median_min, double margin_min, const char *golden,
                              char **pairs, int n_pairs)
{
    struct safetensors *s = open_file(golden);
    double *cosines = xmalloc(sizeof *cosines);
    int64_t n_rows = 0, n_decided = 0;
    for (int p = 0; p < n_pairs; p++) {
        struct table_of t = read_output(pairs[2 * p]);
        char *key = xasprintf("%s.positions", pairs[2 * p + 1]);
        int64_t n, n_want, width;
        int32_t *positions = ints(s, key, &n);
        free(key);
        key = xasprintf("%s.logits", pairs[2 * p + 1]);
        float *want = floats(s, key, &n_want, &width);
        free(key);
        if (width != t.width || n_want != n)
            die("another vocabulary");
        cosines = xrealloc(cosines, sizeof *cosines * (size_t)(n_rows + n + 1));
        for (int64_t i = 0; i < n; i++) {
            const float *row = row_at(&t, positions[i]), *w = want + i * width;
            float margin, unused;
            if (!row)
                die("a position is not there");
            cosines[n_rows] = cosine_of(row, w, width);
            if (!isfinite(cosines[n_rows++]))
                die("logits that are no numbers");
            int64_t best = best_of(w, width, &margin), found = best_of(row, width, &unused);
            n_decided += margin > (float)margin_min;
            if (margin > (float)margin_min && found != best) {
                printf("%s: position %d: expected %lld (ahead by %g), found %lld\n", pairs[2 * p + 1],
                       positions[i], (long long)best, (double)margin, (long long)found);
                exit(1);
            }
        }
        free(positions);
        free(want);
        free_output(&t);
    }
    qsort(cosines, (size_t)n_rows, sizeof *cosines, compare_doubles);
    double low = n_rows > 0 ? cosines[n_rows / 100] : 0, median = n_rows > 0 ? cosines[n_rows / 2] : 0;
    printf("%lld rows: cosine %.9f at the 1 %% quantile, %.9f in the median; %lld best tokens the same\n",
           (long long)n_rows, low, median, (long long)n_decided);
    free(cosines);
    safetensors_close(s);
    if (!(low >= cosine_min) || !(median >= median_min) || n_decided == 0)
        die("outside of the limits");
}

static void compare_rows(const char *out, const char *golden, const char *key, int64_t first, double max_abs,
                         int64_t n_min)
{
    struct table_of t = read_output(out);
    struct safetensors *s = open_file(golden);
    int64_t n, width, n_compared = 0, n_decided = 0;
    float *want = floats(s, key, &n, &width), worst = 0;
    if (width != t.width)
        die("another vocabulary");
    for (int64_t i = 0; i < n; i++) {
        const float *row = row_at(&t, first + i), *w = want + i * width;
        float margin, unused;
        if (!row)
            continue;
        for (int64_t k = 0; k < width; k++) {
            float d = fabsf(row[k] - w[k]);
            worst = d > worst || d != d ? d : worst;
        }
        int64_t best = best_of(w, width, &margin);
        if (margin > 2 * max_abs) {
            n_decided++;
            if (best_of(row, width, &unused) != best)
                die("another best token, although the margin is clear");
        }
        n_compared++;
    }
    printf("%lld rows, largest difference %g, %lld best tokens the same\n", (long long)n_compared,
           (double)worst, (long long)n_decided);
    free(want);
    safetensors_close(s);
    free_output(&t);
    if (!(worst <= max_abs) || n_compared < n_min || n_decided < n_min / 2)
        die("outside of the limits");
}

static void compare_same(const char *part, const char *whole)
{
    struct table_of a = read_output(part), b = read_output(whole);
    if (a.width != b.width || a.n == 0)
        die("another vocabulary, or no rows");
    for (int64_t i = 0; i < a.n; i++) {
        const float *row = row_at(&b, a.positions[i]);
        if (!row || memcmp(row, a.logits + i * a.width, sizeof *row * (size_t)a.width) != 0) {
            printf("position %d differs\n", a.positions[i]);
            exit(1);
        }
    }
    printf("%lld of %lld rows\n", (long long)a.n, (long long)b.n);
    free_output(&a);
    free_output(&b);
}

static void compare_near(const char *one, const char *other, double max_abs)
{
    struct table_of a = read_output(one), b = read_output(other);
    float worst = 0;
    if (a.width != b.width || a.n != b.n ||
        memcmp(a.positions, b.positions, sizeof *a.positions * (size_t)a.n) != 0)
        die("other positions, or another vocabulary");
    for (int64_t i = 0; i < a.n * a.width; i++) {
        float d = fabsf(a.logits[i] - b.logits[i]);
        worst = d > worst || d != d ? d : worst;
    }
    printf("largest difference %g\n", (double)worst);
    free_output(&a);
    free_output(&b);
    if (!(worst <= max_abs))
        die("outside of the limit");
}

static void compare_greedy(const char *file, const char *golden, const char *prompt, double margin_min,
                           int64_t n_min)
{
    struct safetensors *s = open_file(golden);
    struct err e = {0};
    char key[128], *text = NULL, *at;
    int64_t n, i = 0;
    size_t bytes;
    snprintf(key, sizeof key, "%s.greedy", prompt);
    int32_t *want = ints(s, key, &n);
    snprintf(key, sizeof key, "%s.greedy_margin", prompt);
    const struct st_tensor *t = safetensors_find(s, key);
    float *margin = xmalloc(sizeof *margin * (size_t)(n + 1));
    if (!t || t->n_elems != n || !st_read_f32(t, margin, &e) || !file_read(&text, &bytes, file, 1 << 20, &e))
        die("can't read");
    at = text;
    for (; i < n && margin[i] > margin_min; i++) {
        char *end;
        long id = strtol(at, &end, 10);
        if (end == at || id != want[i]) {
            printf("token %lld: expected %d, found '%.*s'\n", (long long)i, want[i], (int)strcspn(at, ",\n"),
                   at);
            exit(1);
        }
        at = end + (*end == ',');
    }
    printf("%lld tokens\n", (long long)i);
    free(text);
    free(want);
    free(margin);
    safetensors_close(s);
    if (i < n_min)
        die("fewer tokens than expected");
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    if (strcmp(mode, "ids") == 0 && (argc == 4 || argc == 5))
        print_ids(argv[2], argv[3], argc == 5 ? atoll(argv[4]) : -1);
    else if (strcmp(mode, "golden") == 0 && argc == 7)
        compare_golden(argv[2], argv[3], argv[4], atof(argv[5]), atoll(argv[6]));
    else if (strcmp(mode, "quantiles") == 0 && argc >= 8 && argc % 2 == 0)
        compare_quantiles(atof(argv[2]), atof(argv[3]), atof(argv[4]), argv[5], argv + 6, (argc - 6) / 2);
    else if (strcmp(mode, "rows") == 0 && argc == 8)
        compare_rows(argv[2], argv[3], argv[4], atoll(argv[5]), atof(argv[6]), atoll(argv[7]));
    else if (strcmp(mode, "same") == 0 && argc == 4)
        compare_same(argv[2], argv[3]);
    else if (strcmp(mode, "near") == 0 && argc == 5)
        compare_near(argv[2], argv[3], atof(argv[4]));
    else if (strcmp(mode, "greedy") == 0 && argc == 7)
        compare_greedy(argv[2], argv[3], argv[4], atof(argv[5]), atoll(argv[6]));
    else
        return 2;
    return 0;
}
