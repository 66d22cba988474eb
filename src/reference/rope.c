/* Rotary embedding of the reference: frequencies of all types, float32 angles.
 *
 * Every step that the published code computes in float32 is rounded to float32 here too: more exact angles
 * would be other angles at long contexts.
 */
#include <math.h>
#include "base/half.h"
#include "reference/tape.h"

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

static bool fill_yarn(const struct config *c, const struct config_rope *s, struct reference_rope *rope,
                      struct err *e)
{
    double trained = s->original_positions, attention = s->attention_factor;
    double stretch = isnan(s->factor) ? s->max_positions / trained : s->factor;
    int64_t dim = s->rotary_dim;
    if (isnan(attention))
        attention = s->mscale != 0 && s->mscale_all_dim != 0
                        ? magnitude_of(stretch, s->mscale) / magnitude_of(stretch, s->mscale_all_dim)
                        : magnitude_of(stretch, 1);
    if (!config_check_positive(c, "factor", stretch, e) ||
        !config_check_positive(c, "attention_factor", attention, e))
        return false;
    double first = pair_with_turns(s->beta_fast, trained, s->theta, dim);
    double last = pair_with_turns(s->beta_slow, trained, s->theta, dim);
    if (s->truncate) {
        first = floor(first);
        last = ceil(last);
    }
    first = first > 0 ? first : 0;
    last = last < (double)(dim - 1) ? last : (double)(dim - 1);
    if (first == last)
        last += 0.001; /* a step instead of a ramp, as published */
    for (int64_t i = 0; i < rope->n_pairs; i++) {
        float power = power_of(s->theta, i, dim);
        float as_trained = 1.0f / power, interpolated = 1.0f / ((float)stretch * power);
        float ramp = ((float)i - (float)first) / (float)(last - first);
        float kept = 1.0f - fminf(fmaxf(ramp, 0.0f), 1.0f);
        rope->inverse_frequency[i] = interpolated * (1.0f - kept) + as_trained * kept;
    }
    rope->attention_factor = (float)attention;
    return true;
}

/* Pairs by how often they turn within the length that the model was trained with: seldom, and they are stretched; often,
 * and they stay; between, a mean of both. */
static void fill_llama3(const struct config_rope *s, struct reference_rope *rope)
{
    float trained = (float)s->original_positions, stretch = (float)s->factor;
    float longest = (float)(s->original_positions / s->low_freq_factor),
          shortest = (float)(s->original_positions / s->high_freq_factor);
    for (int64_t i = 0; i < rope->n_pairs; i++) {
        float plain = 1.0f / power_of(s->theta, i, s->rotary_dim);
        float wave_length = (float)(2 * M_PI) / plain;
        float kept = (trained / wave_length - (float)s->low_freq_factor) /
                     (float)(s->high_freq_factor - s->low_freq_factor);
        if (wave_length > longest)
            rope->inverse_frequency[i] = plain / stretch;
        else if (wave_length < shortest)
            rope->inverse_frequency[i] = plain;
        else
            rope->inverse_frequency[i] = (1.0f - kept) * plain / stretch + kept * plain;
    }
}

/* Each pair's frequency divided by a number of its own. */
static bool fill_long(const struct config *c, const struct config_rope *s, struct reference_rope *rope,
                      struct err *e)
{
    double stretch = isnan(s->factor) ? s->max_positions / s->original_positions : s->factor;
    double attention = s->attention_factor;
    if (isnan(attention))
        attention = stretch > 1 ? sqrt(1 + log(stretch) / log(s->original_positions)) : 1;
    for (int64_t i = 0; i < rope->n_pairs; i++) {
        float divisor = (float)cJSON_GetArrayItem(s->short_factor, (int)i)->valuedouble;
        rope->inverse_frequency[i] = 1.0f / (divisor * power_of(s->theta, i, s->rotary_dim));
    }
    rope->attention_factor = (float)attention;
    return config_check_positive(c, "attention_factor", attention, e);
}

static bool parse(const struct config *config, int64_t head_dim, const struct config_rope_keys *keys,
                  struct arena *arena, struct reference_rope *out, struct err *e)
{
    struct config_rope s;
    if (!config_get_rope(config, head_dim, keys, &s, e))
        return false;
    out->n_pairs = s.rotary_dim / 2;
    out->inverse_frequency = ARENA_ARRAY(arena, float, out->n_pairs);
    out->attention_factor = 1;
    out->positions_limit = s.positions_limit;
    if (s.type == CONFIG_ROPE_YARN)
        return fill_yarn(config, &s, out, e);
    if (s.type == CONFIG_ROPE_LONG)
        return fill_long(config, &s, out, e);
    if (s.type == CONFIG_ROPE_LLAMA3) {
        fill_llama3(&s, out);
        return true;
    }
    for (int64_t i = 0; i < out->n_pairs; i++) {
        out->inverse_frequency[i] = 1.0f / power_of(s.theta, i, s.rotary_dim);
        if (s.type == CONFIG_ROPE_LINEAR)
            out->inverse_frequency[i] /= (float)s.factor;
    }
    return true;
}

bool reference_rope_parse(const struct config *config, int64_t dim, const struct config_rope_keys *keys,
                          struct arena *arena, struct reference_rope *out, struct err *e)
{
    return parse(config, dim, keys, arena, out, e) &&
           (out->n_pairs == dim / 2 ||
            err_set(e, ERR_UNSUPPORTED,
                    "%s: rope setting partial_rotary_factor: only 1 is known for this family", config->path));
}

/* What a session may hold, for the rope that lets it hold the least. */
static void limit_positions(struct reference *r, const struct reference_rope *rope)
{
    struct reference_parts *p = r->parts;
    if (rope->positions_limit > 0 && (p->positions_limit == 0 || rope->positions_limit < p->positions_limit))
        p->positions_limit = rope->positions_limit;
}

bool reference_rope_read(struct reference *r, int64_t dim, const struct config_rope_keys *keys,
                         struct reference_rope *out, struct err *e)
{
    out->is_fp16 = r->parts->fp16_constants;
    if (!reference_rope_parse(&r->parts->config, dim, keys, r->parts->arena, out, e))
        return false;
    limit_positions(r, out);
    return true;
}

bool reference_rope_read_partial(struct reference *r, int64_t dim, const struct config_rope_keys *keys,
                                 struct reference_rope *out, struct err *e)
{
    out->is_fp16 = r->parts->fp16_constants;
    if (!parse(&r->parts->config, dim, keys, r->parts->arena, out, e))
        return false;
    limit_positions(r, out);
    return true;
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

void reference_rope_rows(const struct reference_rope *rope, int64_t position, int64_t n, float *cosines,
                         float *sines)
{
    for (int64_t t = 0; t < n; t++)
        reference_rope_row(rope, position + t, cosines + t * rope->n_pairs, sines + t * rope->n_pairs);
}

void reference_rope_turn(float *x, int64_t n_pairs, const float *cosines, const float *sines)
{
    for (int64_t i = 0; i < n_pairs; i++) {
        float a = x[i], b = x[i + n_pairs];
        x[i] = a * cosines[i] - b * sines[i];
        x[i + n_pairs] = b * cosines[i] + a * sines[i];
    }
}

void reference_rope_turn_heads(struct reference_session *s, float *rows, int64_t n, int64_t n_heads,
                               int64_t head_dim, int64_t n_pairs, const float *cosines, const float *sines)
{
    if (s->tape)
        reference_record_turn(s, rows, n, n_heads, head_dim, n_pairs, cosines, sines);
    for (int64_t t = 0; t < n; t++)
        for (int64_t head = 0; head < n_heads; head++)
            reference_rope_turn(rows + (t * n_heads + head) * head_dim, n_pairs, cosines + t * n_pairs,
                                sines + t * n_pairs);
}
