/* Rotary embedding: frequencies, and the cos and sin tables.
 *
 * The reference computes frequencies and angles in float32; that product is imitated here, because "better"
 * angles move away from it at long contexts. cos and sin are then taken in double and rounded to fp16 once.
 */
#include "arch/family.h"
#include <math.h>

static float rope_power(double theta, int64_t i, int64_t dim)
{
    return (float)pow((double)(float)theta, (double)((float)(2 * i) / (float)dim));
}

static void set_default(struct arch_rope *r, double theta, int64_t dim)
{
    for (int64_t i = 0; i < r->n_pairs; i++)
        r->inverse_frequency[i] = 1.0f / rope_power(theta, i, dim);
    r->attention_factor = 1.0;
}

void arch_set_rope(struct arch_model *m, double theta, double stretch, int64_t dim, int64_t n_pairs,
                   struct arch_rope *out)
{
    out->n_pairs = n_pairs;
    out->inverse_frequency = ARENA_ARRAY(m->arena, float, n_pairs);
    set_default(out, theta, dim);
    for (int64_t i = 0; i < n_pairs; i++)
        out->inverse_frequency[i] /= (float)stretch;
}

static double yarn_mscale(double scale, double mscale)
{
    return scale <= 1.0 ? 1.0 : 0.1 * mscale * log(scale) + 1.0;
}

/* The pair whose wave turns n_rotations times within the original context. */
static double yarn_pair_of(double n_rotations, double theta, int64_t dim, double original_positions)
{
    const double pi = 3.14159265358979323846;
    return ((double)dim * log(original_positions / (n_rotations * 2 * pi))) / (2 * log(theta));
}

/* Slow pairs are interpolated (stretched by the factor), fast ones stay, those between are blended. */
static bool set_yarn(const struct config *c, const struct config_rope *y, struct arch_rope *r, struct err *e)
{
    int64_t dim = y->rotary_dim;
    double factor = isnan(y->factor) ? y->max_positions / y->original_positions : y->factor;
    double attention_factor = y->attention_factor;
    if (isnan(attention_factor)) {
        bool both = y->mscale != 0 && y->mscale_all_dim != 0;
        attention_factor = both ? yarn_mscale(factor, y->mscale) / yarn_mscale(factor, y->mscale_all_dim)
                                : yarn_mscale(factor, 1.0);
    }
    /* The tables hold the factor; fp16 ends at 65504. */
    if (attention_factor > 1000)
        return err_set(e, ERR_FORMAT, "%s: RoPE key attention_factor: expected at most 1000, found %g",
                       c->path, attention_factor);
    if (!config_check_positive(c, "factor", factor, e) ||
        !config_check_positive(c, "attention_factor", attention_factor, e))
        return false;
    double low = yarn_pair_of(y->beta_fast, y->theta, dim, y->original_positions);
    double high = yarn_pair_of(y->beta_slow, y->theta, dim, y->original_positions);
    if (y->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, (double)(dim - 1));
    if (low == high)
        high += 0.001;
    for (int64_t i = 0; i < r->n_pairs; i++) {
        float power = rope_power(y->theta, i, dim);
        float kept = 1.0f / power, stretched = 1.0f / ((float)factor * power);
        float ramp = ((float)i - (float)low) / (float)(high - low);
        ramp = ramp < 0.0f ? 0.0f : ramp > 1.0f ? 1.0f : ramp;
        float share = 1.0f - ramp;
        r->inverse_frequency[i] = stretched * (1.0f - share) + kept * share;
    }
    r->attention_factor = attention_factor;
    return true;
}

bool arch_read_partial_rope(struct arch_model *m, int64_t head_dim, double default_factor,
                            int64_t *rotary_dim, struct arch_rope *out, struct err *e)
{
    struct config_rope settings;
    if (!config_get_rope(&m->config, head_dim, default_factor, &settings, e))
        return false;
    *rotary_dim = settings.rotary_dim;
    out->n_pairs = settings.rotary_dim / 2;
    out->inverse_frequency = ARENA_ARRAY(m->arena, float, out->n_pairs);
    if (settings.type == CONFIG_ROPE_YARN)
        return set_yarn(&m->config, &settings, out, e);
    set_default(out, settings.theta, settings.rotary_dim);
    return true;
}

bool arch_read_rope(struct arch_model *m, int64_t head_dim, struct arch_rope *out, struct err *e)
{
    int64_t rotary_dim;
    if (!arch_read_partial_rope(m, head_dim, 1.0, &rotary_dim, out, e))
        return false;
    return rotary_dim == head_dim ||
           err_set(e, ERR_UNSUPPORTED,
                   "%s: key partial_rotary_factor: expected 1 for %s, found one that turns %lld of %lld "
                   "dimensions",
                   m->config.path, m->family->name, (long long)rotary_dim, (long long)head_dim);
}

static bool produce_rope(const struct mil_weight *w, int64_t begin, int64_t n, void *dst, struct err *e)
{
    (void)e;
    const struct arch_rope *r = w->context;
    f16 *to = dst;
    bool is_sine = w->arg[0] != 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t position = (begin + i) / r->n_pairs, pair = (begin + i) % r->n_pairs;
        float angle = (float)position * r->inverse_frequency[pair];
        double v = (is_sine ? sin((double)angle) : cos((double)angle)) * r->attention_factor;
        to[i] = f64_to_f16(v);
    }
    return true;
}

const struct mil_value *arch_rope_table(struct mil_model *out, const struct arch_rope *r, bool is_sine,
                                        int64_t rows)
{
    struct mil_weight w = {.name = is_sine ? "rope sin table" : "rope cos table",
                           .produce = produce_rope,
                           .context = r,
                           .factor = 1.0};
    w.arg[0] = is_sine;
    int64_t dims[2] = {rows, r->n_pairs};
    return mil_value_new_weight(out, MIL_FP16, 2, dims, &w);
}
