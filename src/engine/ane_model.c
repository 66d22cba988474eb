/* The switches of the emulation by name, and its sums of products. */
#include <math.h>
#include <string.h>
#include "engine/ane.h"
#include "engine/engine.h"

const char ane_model_words[] =
    "sums=fixed|m1|exact, small=drop|keep, tables=33|exact, norm=float32|fp16, scales=after|before";

/* A switch's value, 0 for the default; -1: not one of them. */
static int value_of(const char *text, size_t n, const char *const *values)
{
    for (int i = 0; values[i]; i++)
        if (strlen(values[i]) == n && memcmp(values[i], text, n) == 0)
            return i;
    return -1;
}

static bool is_key(const char *text, size_t n, const char *key)
{
    return strlen(key) == n && memcmp(text, key, n) == 0;
}

static bool set_switch(struct ane_model *m, const char *key, size_t n_key, const char *value, size_t n)
{
    static const char *const sums[] = {"fixed", "m1", "exact", NULL}, *const small[] = {"drop", "keep", NULL};
    static const char *const tables[] = {"33", "exact", NULL}, *const norm[] = {"float32", "fp16", NULL};
    static const char *const scales[] = {"after", "before", NULL};
    int found = -1;
    if (is_key(key, n_key, "sums"))
        m->sums = (enum ane_sums)((found = value_of(value, n, sums)) < 0 ? 0 : found);
    else if (is_key(key, n_key, "small"))
        m->keeps_small = (found = value_of(value, n, small)) > 0;
    else if (is_key(key, n_key, "tables"))
        m->exact_functions = (found = value_of(value, n, tables)) > 0;
    else if (is_key(key, n_key, "norm"))
        m->fp16_norms = (found = value_of(value, n, norm)) > 0;
    else if (is_key(key, n_key, "scales"))
        m->scales_in_weights = (found = value_of(value, n, scales)) > 0;
    return found >= 0;
}

bool ane_model_read(struct ane_model *out, const char *text, struct err *e)
{
    struct ane_model m = {0};
    for (const char *at = text; at && *at;) {
        size_t n = strcspn(at, ","), n_key = strcspn(at, "=");
        if (n_key >= n || !set_switch(&m, at, n_key, at + n_key + 1, n - n_key - 1))
            return err_set(e, ERR_USAGE, "expected some of %s; found '%.*s'", ane_model_words,
                           (int)(n < 80 ? n : 80), at);
        at += n + (at[n] == ',');
    }
    *out = m;
    return true;
}

uint64_t ane_model_number(const struct ane_model *m)
{
    return (uint64_t)m->sums | (uint64_t)m->keeps_small << 2 | (uint64_t)m->exact_functions << 3 |
           (uint64_t)m->fp16_norms << 4 | (uint64_t)m->scales_in_weights << 5;
}

/* ---- sums ---- */

/* The exponent of a magnitude as it counts in a product. */
static int exponent_of(double a)
{
    int e = a > 0 ? ilogb(a) : 0;
    return e < -14 ? -14 : e;
}

void ane_prepare(const struct ane_model *m, float *xs, float *least, const float *x, int64_t stride,
                 int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double v = ane_number(x[i * stride]);
        int e = exponent_of(fabs(v));
        xs[i] = (float)(v * 65536);
        least[i] = m->keeps_small ? 0 : ldexpf(1.0f, -16 - e);
    }
}

void ane_copy(float *dst, const float *w, int64_t stride, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = (float)ane_number(w[i * stride]);
}

int64_t ane_bias(float bias)
{
    double p = ane_number(bias) * 65536;
    return (int64_t)(p < 0 ? p - 0.5 : p + 0.5);
}

float ane_sum_result(int64_t sum)
{
    if (sum >= (int64_t)1 << 31)
        return INFINITY;
    if (sum <= -((int64_t)1 << 31))
        return -INFINITY;
    return ane_round((double)sum / 65536);
}

/* Four products at a time in fp16, subnormal ones taken as 0, these in float32; nothing above 32768. */
static float groups_of_four(const float *xs, const float *w, int64_t n, float bias)
{
    float sum = bias;
    for (int64_t i = 0; i < n; i += 4) {
        float four = 0;
        for (int64_t k = i; k < i + 4 && k < n; k++) {
            float p = ane_round((double)xs[k] / 65536 * (double)w[k]);
            four = ane_round((double)four + (fabsf(p) < 0x1p-14f ? 0.0 : (double)p));
        }
        sum += four;
        if (!(fabsf(sum) < 32768))
            return sum < 0 ? -INFINITY : INFINITY;
    }
    return sum;
}

static double all_of_it(const float *xs, const float *w, int64_t n, double bias)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)xs[i] * (double)w[i];
    return sum / 65536 + bias;
}

float ane_product(const struct ane_model *m, ane_dot_fn dot, const float *xs, const float *least,
                  const float *w, int64_t n, const float *bias, const float *scale)
{
    float first = bias && !scale ? *bias : 0, y;
    if (m->sums == ANE_SUMS_M1)
        y = ane_round((double)groups_of_four(xs, w, n, (float)ane_number(first)));
    else if (m->sums == ANE_SUMS_EXACT)
        y = ane_round(all_of_it(xs, w, n, ane_number(first)));
    else
        y = ane_sum_result(dot(xs, least, w, n) + ane_bias(first));
    if (scale)
        y = ane_round(ane_number(y) * (double)*scale + (bias ? ane_number(*bias) : 0));
    return y;
}

void ane_sum_add(const struct ane_model *m, struct ane_sum *s, float x, float w)
{
    float xs, least, copy;
    ane_prepare(m, &xs, &least, &x, 1, 1);
    ane_copy(&copy, &w, 1, 1);
    s->whole += ane_dot_scalar(&xs, &least, &copy, 1);
    s->exact += (double)xs * (double)copy / 65536;
}

float ane_sum_end(const struct ane_model *m, const struct ane_sum *s, float bias)
{
    if (m->sums == ANE_SUMS_FIXED)
        return ane_sum_result(s->whole + ane_bias(bias));
    double y = s->exact + ane_number(bias);
    bool is_over = m->sums == ANE_SUMS_M1 && !(fabs(y) < 32768);
    return is_over ? (y < 0 ? -INFINITY : INFINITY) : ane_round(y);
}

bool engine_emulation_check(const char *switches, uint64_t *number, struct err *e)
{
    struct ane_model m = {0};
    bool ok = ane_model_read(&m, switches, e);
    if (ok && number)
        *number = ane_model_number(&m);
    return ok;
}
