/* The published points and the constants fitted to them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "device/forecast.h"

static const struct speed_point points[] = {
#define SPEED(model, weights, chip, calls, ops, weight_mb, cache_mb, speed, is_fitted, cache, source,        \
              remark)                                                                                        \
    {model, weights, chip, calls, ops, weight_mb, cache_mb, speed, is_fitted, cache, source, remark},
#include "device/speeds.def"
#undef SPEED
};
#define N_POINTS ((int)(sizeof points / sizeof points[0]))

const struct speed_point *speed_point_at(int i)
{
    return i >= 0 && i < N_POINTS ? &points[i] : NULL;
}

static void terms_of(double t[FORECAST_TERMS], const struct speed_point *p, const struct chip *chip)
{
    t[FORECAST_CALL] = p->calls;
    t[FORECAST_OP] = p->ops;
    t[FORECAST_WEIGHT] = p->weight_mb / chip->stream_gb_per_s;
    t[FORECAST_CACHE] = p->cache_mb;
}

double forecast_token_ms(const struct forecast_fit *f, const struct speed_point *p, const struct chip *chip)
{
    double t[FORECAST_TERMS], ms = 0;
    terms_of(t, p, chip);
    for (int i = 0; i < FORECAST_TERMS; i++)
        ms += f->terms[i] * t[i];
    return ms;
}

/* One row of the least squares: terms over the measured time, so that errors are relative. */
struct row {
    double t[FORECAST_TERMS];
};

/* Normal equations, by elimination with the largest pivot. Columns are scaled first, for they differ by thousands. */
static bool solve(double x[FORECAST_TERMS], const struct row *rows, int n, int left_out)
{
    enum { N = FORECAST_TERMS };
    double m[N][N + 1] = {{0}}, scale[N];
    for (int k = 0; k < N; k++) {
        scale[k] = 0;
        for (int i = 0; i < n; i++)
            scale[k] = fmax(scale[k], fabs(rows[i].t[k]));
        if (scale[k] <= 0)
            return false;
    }
    for (int i = 0; i < n; i++)
        for (int k = 0; k < N && i != left_out; k++) {
            for (int j = 0; j < N; j++)
                m[k][j] += rows[i].t[k] / scale[k] * (rows[i].t[j] / scale[j]);
            m[k][N] += rows[i].t[k] / scale[k];
        }
    for (int k = 0; k < N; k++) {
        int best = k;
        for (int i = k + 1; i < N; i++)
            best = fabs(m[i][k]) > fabs(m[best][k]) ? i : best;
        for (int j = 0; j <= N; j++) {
            double swapped = m[k][j];
            m[k][j] = m[best][j];
            m[best][j] = swapped;
        }
        if (fabs(m[k][k]) < 1e-9)
            return false;
        for (int i = 0; i < N; i++)
            for (int j = N; j >= k && i != k; j--)
                m[i][j] -= m[i][k] / m[k][k] * m[k][j];
    }
    for (int k = 0; k < N; k++)
        x[k] = m[k][N] / m[k][k] / scale[k];
    return true;
}

static double error_of(const double x[FORECAST_TERMS], const struct row *r)
{
    double sum = -1;
    for (int k = 0; k < FORECAST_TERMS; k++)
        sum += x[k] * r->t[k];
    return fabs(sum);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void middle_and_worst(double *errors, int n, double *median, double *worst)
{
    qsort(errors, (size_t)n, sizeof *errors, compare);
    *median = n % 2 ? errors[n / 2] : (errors[n / 2 - 1] + errors[n / 2]) / 2;
    *worst = errors[n - 1];
}

static bool add_row(struct row *rows, int *n, const struct speed_point *p, struct err *e)
{
    const struct chip *chip;
    if (!chip_find(&chip, p->chip, e))
        return false;
    terms_of(rows[*n].t, p, chip);
    for (int k = 0; k < FORECAST_TERMS; k++)
        rows[*n].t[k] *= p->tokens_per_s / 1000;
    ++*n;
    return true;
}

bool forecast_fit_all(struct forecast_fit *out, const struct speed_point *more, int n_more, struct err *e)
{
    struct row *rows = xcalloc((size_t)(N_POINTS + n_more), sizeof *rows);
    double *errors = xcalloc((size_t)(N_POINTS + n_more), sizeof *errors);
    int n = 0;
    bool ok = true;
    *out = (struct forecast_fit){0};
    for (int i = 0; ok && i < N_POINTS; i++)
        if (points[i].is_fitted)
            ok = add_row(rows, &n, &points[i], e);
    for (int i = 0; ok && i < n_more; i++)
        ok = add_row(rows, &n, &more[i], e);
    if (ok && (n <= FORECAST_TERMS || !solve(out->terms, rows, n, -1)))
        ok = err_set(e, ERR_FORMAT, "%d measured points do not tell %d constants apart", n, FORECAST_TERMS);
    if (ok) {
        out->n = n;
        for (int i = 0; i < n; i++)
            errors[i] = error_of(out->terms, &rows[i]);
        middle_and_worst(errors, n, &out->median_error, &out->worst_error);
    }
    for (int i = 0; ok && i < n; i++) {
        double x[FORECAST_TERMS];
        ok = solve(x, rows, n, i) ||
             err_set(e, ERR_FORMAT, "without point %d the others do not tell the constants apart", i);
        if (ok)
            errors[i] = error_of(x, &rows[i]);
    }
    if (ok)
        middle_and_worst(errors, n, &out->median_error_without, &out->worst_error_without);
    free(rows);
    free(errors);
    return ok;
}

bool forecast_has_point(const struct chip *chip)
{
    for (int i = 0; i < N_POINTS; i++)
        if (points[i].is_fitted && strcmp(points[i].chip, chip->name) == 0)
            return true;
    return false;
}
