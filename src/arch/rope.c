/* Rotary embedding: settings of config.json in both spellings, frequencies, and the cos and sin tables.
 *
 * The reference computes frequencies and angles in float32; that product is imitated here, because "better"
 * angles move away from it at long contexts. cos and sin are then taken in double and rounded to fp16 once.
 */
#include "arch/family.h"
#include <math.h>
#include <string.h>

/* The settings of type yarn. */
struct yarn {
    double factor, attention_factor, beta_fast, beta_slow, mscale, mscale_all_dim;
    double original_positions;
    bool truncate;
};

static bool check_positive(double v, const char *key, const char *where, struct err *e)
{
    return (isfinite(v) && v > 0) ||
           err_set(e, ERR_FORMAT, "%s: RoPE key %s: expected a positive number, found %g", where, key, v);
}

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

static bool read_yarn(struct yarn *y, const struct arch_model *m, const cJSON *object, const char *where,
                      struct err *e)
{
    int64_t positions = 32768;
    *y = (struct yarn){
        .factor = NAN, .attention_factor = NAN, .beta_fast = 32, .beta_slow = 1, .truncate = true};
    if (!arch_get_size(m, m->text_config, "max_position_embeddings", INT32_MAX, &positions, e) ||
        !json_get_double(object, "factor", &y->factor, where, e) ||
        !json_get_double(object, "attention_factor", &y->attention_factor, where, e) ||
        !json_get_double(object, "beta_fast", &y->beta_fast, where, e) ||
        !json_get_double(object, "beta_slow", &y->beta_slow, where, e) ||
        !json_get_double(object, "mscale", &y->mscale, where, e) ||
        !json_get_double(object, "mscale_all_dim", &y->mscale_all_dim, where, e) ||
        !json_get_bool(object, "truncate", &y->truncate, where, e))
        return false;
    /* The key beside the object wins over the one inside, other than for every other key. */
    const char *const key = "original_max_position_embeddings";
    y->original_positions = (double)positions;
    if (!json_get_double(object, key, &y->original_positions, where, e) ||
        !json_get_double(m->text_config, key, &y->original_positions, where, e) ||
        !check_positive(y->original_positions, key, where, e))
        return false;
    y->beta_fast = y->beta_fast != 0 ? y->beta_fast : 32;
    y->beta_slow = y->beta_slow != 0 ? y->beta_slow : 1;
    if (isnan(y->factor)) {
        if (!json_get(object, "factor"))
            return err_set(e, ERR_FORMAT, "%s: RoPE type yarn: key factor is missing", where);
        y->factor = (double)positions / y->original_positions;
    }
    if (isnan(y->attention_factor)) {
        bool both = y->mscale != 0 && y->mscale_all_dim != 0;
        y->attention_factor =
            both ? yarn_mscale(y->factor, y->mscale) / yarn_mscale(y->factor, y->mscale_all_dim)
                 : yarn_mscale(y->factor, 1.0);
    }
    /* The tables hold the factor; fp16 ends at 65504. */
    if (y->attention_factor > 1000)
        return err_set(e, ERR_FORMAT, "%s: RoPE key attention_factor: expected at most 1000, found %g", where,
                       y->attention_factor);
    return check_positive(y->factor, "factor", where, e) &&
           check_positive(y->attention_factor, "attention_factor", where, e) &&
           check_positive(y->beta_fast, "beta_fast", where, e) &&
           check_positive(y->beta_slow, "beta_slow", where, e);
}

/* Slow pairs are interpolated (stretched by the factor), fast ones stay, those between are blended. */
static void set_yarn(struct arch_rope *r, const struct yarn *y, double theta, int64_t dim)
{
    double low = yarn_pair_of(y->beta_fast, theta, dim, y->original_positions);
    double high = yarn_pair_of(y->beta_slow, theta, dim, y->original_positions);
    if (y->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, (double)(dim - 1));
    if (low == high)
        high += 0.001;
    for (int64_t i = 0; i < r->n_pairs; i++) {
        float power = rope_power(theta, i, dim);
        float kept = 1.0f / power, stretched = 1.0f / ((float)y->factor * power);
        float ramp = ((float)i - (float)low) / (float)(high - low);
        ramp = ramp < 0.0f ? 0.0f : ramp > 1.0f ? 1.0f : ramp;
        float share = 1.0f - ramp;
        r->inverse_frequency[i] = stretched * (1.0f - share) + kept * share;
    }
    r->attention_factor = y->attention_factor;
}

bool arch_read_partial_rope(struct arch_model *m, int64_t head_dim, double default_factor,
                            int64_t *rotary_dim, struct arch_rope *out, struct err *e)
{
    const char *where = arch_config_path(m), *type = "default";
    const cJSON *scaling = json_get(m->text_config, "rope_scaling");
    /* An empty object counts as none. */
    bool has_scaling = cJSON_IsObject(scaling) && scaling->child;
    const cJSON *object = has_scaling ? scaling : json_get(m->text_config, "rope_parameters");
    double theta = 10000.0, partial = default_factor;
    if (scaling && !cJSON_IsObject(scaling) && !cJSON_IsNull(scaling))
        return err_set(e, ERR_FORMAT, "%s: key rope_scaling: expected an object, found %s", where,
                       json_type_name(scaling));
    if (object && !cJSON_IsObject(object) && !cJSON_IsNull(object))
        return err_set(e, ERR_FORMAT, "%s: key rope_parameters: expected an object, found %s", where,
                       json_type_name(object));
    /* What stands inside the object wins over the same key beside it; "type" is the old name of "rope_type".
     */
    if (!json_get_double(m->text_config, "rope_theta", &theta, where, e) ||
        !json_get_double(object, "rope_theta", &theta, where, e) ||
        !json_get_double(m->text_config, "partial_rotary_factor", &partial, where, e) ||
        !json_get_double(object, "partial_rotary_factor", &partial, where, e) ||
        !json_get_string(object, "type", &type, where, e) ||
        !json_get_string(object, "rope_type", &type, where, e) ||
        !check_positive(theta, "rope_theta", where, e))
        return false;
    if (!check_positive(partial, "partial_rotary_factor", where, e))
        return false;
    double turning = floor((double)head_dim * partial);
    if (turning < 2 || turning > (double)head_dim || fmod(turning, 2) != 0)
        return err_set(
            e, ERR_FORMAT,
            "%s: key partial_rotary_factor: expected an even number of dimensions of %lld to turn, "
            "found a factor of %g",
            where, (long long)head_dim, partial);
    int64_t dim = *rotary_dim = (int64_t)turning;
    out->n_pairs = dim / 2;
    out->inverse_frequency = ARENA_ARRAY(m->arena, float, out->n_pairs);
    if (strcmp(type, "default") == 0) {
        set_default(out, theta, dim);
        return true;
    }
    if (strcmp(type, "yarn") != 0)
        return err_set(e, ERR_UNSUPPORTED, "%s: RoPE type: milkit knows default and yarn, found \"%s\"",
                       where, type);
    struct yarn y;
    if (theta <= 1.0)
        return err_set(e, ERR_FORMAT, "%s: key rope_theta: expected more than 1 for yarn, found %g", where,
                       theta);
    if (!read_yarn(&y, m, object, where, e))
        return false;
    set_yarn(out, &y, theta, dim);
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
                   arch_config_path(m), m->family->name, (long long)rotary_dim, (long long)head_dim);
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
