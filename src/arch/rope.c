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

/* The tables hold the factor; fp16 ends at 65504. */
static bool check_attention_factor(const struct config *c, double factor, struct err *e)
{
    if (factor > 1000)
        return err_set(e, ERR_FORMAT, "%s: RoPE key attention_factor: expected at most 1000, found %g",
                       c->path, factor);
    return config_check_positive(c, "attention_factor", factor, e);
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
    if (!config_check_positive(c, "factor", factor, e) || !check_attention_factor(c, attention_factor, e))
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

/* The wave of a pair that turns low_freq_factor times or less within the original context is stretched, that of one that
 * turns high_freq_factor times or more stays, those between are blended. */
static void set_llama3(const struct config_rope *y, struct arch_rope *r)
{
    const float two_pi = (float)(2 * 3.14159265358979323846);
    float low_wave = (float)(y->original_positions / y->low_freq_factor);
    float high_wave = (float)(y->original_positions / y->high_freq_factor);
    set_default(r, y->theta, y->rotary_dim);
    for (int64_t i = 0; i < r->n_pairs; i++) {
        float f = r->inverse_frequency[i], wave = two_pi / f;
        float stretched = wave > low_wave ? f / (float)y->factor : f;
        float share = ((float)y->original_positions / wave - (float)y->low_freq_factor) /
                      (float)(y->high_freq_factor - y->low_freq_factor);
        bool is_between = wave >= high_wave && wave <= low_wave;
        r->inverse_frequency[i] =
            is_between ? (1.0f - share) * stretched / (float)y->factor + share * stretched : stretched;
    }
}

static bool set_long(const struct config *c, const struct config_rope *y, struct arch_rope *r, struct err *e)
{
    double stretch = isnan(y->factor) ? y->max_positions / y->original_positions : y->factor;
    const cJSON *factor = y->short_factor->child;
    for (int64_t i = 0; i < r->n_pairs; i++, factor = factor->next)
        r->inverse_frequency[i] =
            1.0f / ((float)factor->valuedouble * rope_power(y->theta, i, y->rotary_dim));
    r->attention_factor = !isnan(y->attention_factor) ? y->attention_factor
                          : stretch <= 1              ? 1
                                                      : sqrt(1 + log(stretch) / log(y->original_positions));
    return check_attention_factor(c, r->attention_factor, e);
}

/* What tables can't hold: frequencies that change with the length of the text. */
static bool check_length(const struct arch_model *m, const struct config_rope *y, struct err *e)
{
    return y->positions_limit == 0 || m->settings.context_length <= y->positions_limit ||
           err_set(e, ERR_UNSUPPORTED,
                   "%s: RoPE type %s: frequencies change with the length of the text beyond %lld positions, "
                   "which a graph does not hold: expected a context of at most %lld, found %lld",
                   m->config.path, y->type == CONFIG_ROPE_LONG ? "longrope" : "dynamic",
                   (long long)y->positions_limit, (long long)y->positions_limit,
                   (long long)m->settings.context_length);
}

bool arch_read_partial_rope(struct arch_model *m, int64_t head_dim, const struct config_rope_keys *keys,
                            int64_t *rotary_dim, struct arch_rope *out, struct err *e)
{
    struct config_rope settings;
    if (!config_get_rope(&m->config, head_dim, keys, &settings, e) || !check_length(m, &settings, e))
        return false;
    *rotary_dim = settings.rotary_dim;
    out->n_pairs = settings.rotary_dim / 2;
    out->inverse_frequency = ARENA_ARRAY(m->arena, float, out->n_pairs);
    out->attention_factor = 1;
    switch (settings.type) {
    case CONFIG_ROPE_LINEAR:
        arch_set_rope(m, settings.theta, settings.factor, settings.rotary_dim, out->n_pairs, out);
        return true;
    case CONFIG_ROPE_LLAMA3:
        set_llama3(&settings, out);
        return true;
    case CONFIG_ROPE_YARN:
        return set_yarn(&m->config, &settings, out, e);
    case CONFIG_ROPE_LONG:
        return set_long(&m->config, &settings, out, e);
    case CONFIG_ROPE_DEFAULT:
    case CONFIG_ROPE_DYNAMIC:
        break;
    }
    set_default(out, settings.theta, settings.rotary_dim);
    return true;
}

bool arch_read_rope(struct arch_model *m, int64_t head_dim, const struct config_rope_keys *keys,
                    struct arch_rope *out, struct err *e)
{
    int64_t rotary_dim;
    if (!arch_read_partial_rope(m, head_dim, keys, &rotary_dim, out, e))
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
