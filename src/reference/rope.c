/* Rotary embedding of the reference: settings in both spellings, default and YaRN frequencies, float32
 * angles.
 *
 * Every step that the published code computes in float32 is rounded to float32 here too: more exact angles
 * would be other angles at long contexts.
 */
#include <math.h>
#include <string.h>
#include "base/half.h"
#include "reference/reference_internal.h"

/* Context of reading: where the keys are and how messages call the file. */
struct settings {
    const cJSON *config;
    const cJSON *object; /* rope_scaling or rope_parameters, or NULL */
    const char *where;
};

static bool number_of(const struct settings *s, const char *key, double *value, struct err *e)
{
    return json_get_double(s->object, key, value, s->where, e);
}

static bool check_range(const struct settings *s, const char *key, double v, double above, struct err *e)
{
    return (isfinite(v) && v > above) ||
           err_set(e, ERR_FORMAT, "%s: rope setting %s: expected a number above %g, found %g", s->where, key,
                   above, v);
}

static bool find_object(struct settings *s, struct err *e)
{
    static const char *const names[] = {"rope_scaling", "rope_parameters"};
    for (int i = 0; i < 2; i++) {
        const cJSON *o = json_get(s->config, names[i]);
        if (!o || cJSON_IsNull(o))
            continue;
        if (!cJSON_IsObject(o))
            return err_set(e, ERR_FORMAT, "%s: key %s: expected an object, found %s", s->where, names[i],
                           json_type_name(o));
        if (o->child && !s->object) /* an empty one counts as absent */
            s->object = o;
    }
    return true;
}

/* theta^(2 i / dim), each step rounded as the published code's tensors are. */
static float power_of(double theta, int64_t i, int64_t dim)
{
    float exponent = (float)(2 * i) / (float)dim;
    return (float)pow((double)(float)theta, (double)exponent);
}

/* The attention factor that YaRN's authors recommend for a stretch. */
static double magnitude_of(double stretch, double weight)
{
    return stretch > 1 ? 0.1 * weight * log(stretch) + 1 : 1;
}

/* The index (as a real number) of the pair that makes `turns` full turns in `positions` positions. */
static double pair_with_turns(double turns, double positions, double theta, int64_t dim)
{
    double wave_length = positions / turns;
    return (double)dim * log(wave_length / (2 * M_PI)) / (2 * log(theta));
}

static bool fill_yarn(const struct settings *s, double theta, int64_t dim, struct reference_rope *rope,
                      struct err *e)
{
    double stretch = 0, attention = 0, fast = 0, slow = 0, m = 0, m_all = 0, positions = 32768, trained;
    bool truncate = true;
    const cJSON *given = json_get(s->object, "attention_factor");
    if (!json_get_double(s->config, "max_position_embeddings", &positions, s->where, e))
        return false;
    trained = positions;
    const char *const trained_key = "original_max_position_embeddings";
    if (!number_of(s, trained_key, &trained, e) ||
        !json_get_double(s->config, trained_key, &trained, s->where, e) ||
        !check_range(s, trained_key, trained, 0, e) || !number_of(s, "factor", &stretch, e) ||
        !number_of(s, "attention_factor", &attention, e) || !number_of(s, "beta_fast", &fast, e) ||
        !number_of(s, "beta_slow", &slow, e) || !number_of(s, "mscale", &m, e) ||
        !number_of(s, "mscale_all_dim", &m_all, e) ||
        !json_get_bool(s->object, "truncate", &truncate, s->where, e))
        return false;
    const cJSON *factor = json_get(s->object, "factor");
    if (!factor)
        return err_set(e, ERR_FORMAT, "%s: rope setting factor is missing (rope type yarn)", s->where);
    if (cJSON_IsNull(factor))
        stretch = positions / trained;
    fast = fast != 0 ? fast : 32;
    slow = slow != 0 ? slow : 1;
    if (!given || cJSON_IsNull(given))
        attention = m != 0 && m_all != 0 ? magnitude_of(stretch, m) / magnitude_of(stretch, m_all)
                                         : magnitude_of(stretch, 1);
    if (!check_range(s, "rope_theta", theta, 1, e) || !check_range(s, "factor", stretch, 0, e) ||
        !check_range(s, "attention_factor", attention, 0, e) || !check_range(s, "beta_fast", fast, 0, e) ||
        !check_range(s, "beta_slow", slow, 0, e))
        return false;
    double first = pair_with_turns(fast, trained, theta, dim);
    double last = pair_with_turns(slow, trained, theta, dim);
    if (truncate) {
        first = floor(first);
        last = ceil(last);
    }
    first = first > 0 ? first : 0;
    last = last < (double)(dim - 1) ? last : (double)(dim - 1);
    if (first == last)
        last += 0.001; /* a step instead of a ramp, as published */
    for (int64_t i = 0; i < rope->n_pairs; i++) {
        float power = power_of(theta, i, dim);
        float as_trained = 1.0f / power, interpolated = 1.0f / ((float)stretch * power);
        float ramp = ((float)i - (float)first) / (float)(last - first);
        float kept = 1.0f - fminf(fmaxf(ramp, 0.0f), 1.0f);
        rope->inverse_frequency[i] = interpolated * (1.0f - kept) + as_trained * kept;
    }
    rope->attention_factor = (float)attention;
    return true;
}

static bool parse(const cJSON *config, const char *where, int64_t head_dim, double default_factor,
                  struct arena *arena, struct reference_rope *out, struct err *e)
{
    struct settings s = {.config = config, .where = where};
    const char *type = "default";
    double theta = 10000, turning = default_factor;
    if (!find_object(&s, e) || !json_get_double(config, "rope_theta", &theta, where, e) ||
        !number_of(&s, "rope_theta", &theta, e) || !check_range(&s, "rope_theta", theta, 0, e) ||
        !json_get_double(config, "partial_rotary_factor", &turning, where, e) ||
        !number_of(&s, "partial_rotary_factor", &turning, e) ||
        !json_get_string(s.object, "type", &type, where, e) ||
        !json_get_string(s.object, "rope_type", &type, where, e))
        return false;
    double turned = floor((double)head_dim * turning);
    if (!(turned >= 2 && turned <= (double)head_dim) || fmod(turned, 2) != 0)
        return err_set(
            e, ERR_FORMAT,
            "%s: rope setting partial_rotary_factor: expected an even number of %lld dimensions to "
            "turn, found a factor of %g",
            where, (long long)head_dim, turning);
    int64_t dim = (int64_t)turned;
    out->n_pairs = dim / 2;
    out->inverse_frequency = ARENA_ARRAY(arena, float, out->n_pairs);
    out->attention_factor = 1;
    if (strcmp(type, "yarn") == 0)
        return fill_yarn(&s, theta, dim, out, e);
    if (strcmp(type, "default") != 0)
        return err_set(e, ERR_UNSUPPORTED,
                       "%s: rope type: the reference knows default and yarn, found \"%s\"", where, type);
    for (int64_t i = 0; i < out->n_pairs; i++)
        out->inverse_frequency[i] = 1.0f / power_of(theta, i, dim);
    return true;
}

bool reference_rope_parse(const cJSON *config, const char *where, int64_t dim, struct arena *arena,
                          struct reference_rope *out, struct err *e)
{
    return parse(config, where, dim, 1, arena, out, e) &&
           (out->n_pairs == dim / 2 ||
            err_set(e, ERR_UNSUPPORTED,
                    "%s: rope setting partial_rotary_factor: only 1 is known for this family", where));
}

bool reference_rope_read(struct reference *r, int64_t dim, struct reference_rope *out, struct err *e)
{
    out->is_fp16 = r->parts->fp16_constants;
    return reference_rope_parse(r->parts->text, r->parts->config_path, dim, r->parts->arena, out, e);
}

bool reference_rope_read_partial(struct reference *r, int64_t dim, double default_factor,
                                 struct reference_rope *out, struct err *e)
{
    out->is_fp16 = r->parts->fp16_constants;
    return parse(r->parts->text, r->parts->config_path, dim, default_factor, r->parts->arena, out, e);
}

void reference_rope_row(const struct reference_rope *rope, int64_t position, float *cosines, float *sines)
{
    for (int64_t i = 0; i < rope->n_pairs; i++) {
        double angle = (double)((float)position * rope->inverse_frequency[i]);
        if (rope->is_fp16) {
            cosines[i] = f16_to_f32(f64_to_f16(cos(angle) * (double)rope->attention_factor));
            sines[i] = f16_to_f32(f64_to_f16(sin(angle) * (double)rope->attention_factor));
            continue;
        }
        cosines[i] = (float)cos(angle) * rope->attention_factor;
        sines[i] = (float)sin(angle) * rope->attention_factor;
    }
}

void reference_rope_turn(float *x, int64_t n_pairs, const float *cosines, const float *sines)
{
    for (int64_t i = 0; i < n_pairs; i++) {
        float a = x[i], b = x[i + n_pairs];
        x[i] = a * cosines[i] - b * sines[i];
        x[i + n_pairs] = b * cosines[i] + a * sines[i];
    }
}

void reference_rope_turn_heads(float *rows, int64_t n, int64_t n_heads, int64_t head_dim, int64_t n_pairs,
                               const float *cosines, const float *sines)
{
    for (int64_t t = 0; t < n; t++)
        for (int64_t head = 0; head < n_heads; head++)
            reference_rope_turn(rows + (t * n_heads + head) * head_dim, n_pairs, cosines + t * n_pairs,
                                sines + t * n_pairs);
}
