/* Sampling. The best candidates are ranked once per token; probabilities in float by the engine's own exponential. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/ranking.h"
#include "runtime/sampler.h"

struct sampler {
    struct sampler_options o;
    const struct kernels *k;
    int64_t vocab_size;
    uint64_t random;
    struct candidate *candidates, *scratch; /* [vocab_size] */
    float *logits, *weights;                /* [vocab_size] */
    int32_t *seen;                          /* [vocab_size] how often; zeros between calls */
};

struct sampler_options sampler_recommended(const struct recommended_sampling *r)
{
    struct sampler_options o = {.top_p = 1,
                                .repetition_penalty = 1,
                                .n_suppressed = r->n_suppressed,
                                .suppressed = r->suppressed,
                                .n_bad_words = r->n_bad_words,
                                .bad_words = r->bad_words};
    if (r->do_sample) {
        o.temperature = isfinite(r->temperature) ? r->temperature : 1;
        o.top_k = r->top_k > 0 ? r->top_k : 0;
        o.top_p = isfinite(r->top_p) ? r->top_p : 1;
        o.min_p = isfinite(r->min_p) ? r->min_p : 0;
    }
    o.repetition_penalty = isfinite(r->repetition_penalty) ? r->repetition_penalty : 1;
    o.presence_penalty = isfinite(r->presence_penalty) ? r->presence_penalty : 0;
    o.frequency_penalty = isfinite(r->frequency_penalty) ? r->frequency_penalty : 0;
    return o;
}

bool sampler_looks_beyond_best(const struct sampler_options *o)
{
    return (!o->greedy && o->temperature != 0) || o->repetition_penalty != 1 || o->presence_penalty != 0 ||
           o->frequency_penalty != 0 || o->n_suppressed > 0 || o->n_bad_words > 0;
}

static bool out_of_range(const char *name, double v, const char *range, struct err *e)
{
    return err_set(e, ERR_USAGE, "%s: expected %s, found %g", name, range, v);
}

bool sampler_new(struct sampler **out, const struct sampler_options *o, int64_t vocab_size,
                 const struct kernels *k, struct err *e)
{
    const char *why = "";
    *out = NULL;
    if (!k && !(k = kernel_select(&why)))
        return err_set(e, ERR_USAGE, "%s", why);
    if (!(o->temperature >= 0 && o->temperature <= SAMPLING_TEMPERATURE_MAX))
        return out_of_range("temperature", o->temperature, "0 to 100", e);
    if (!(o->top_p > 0 && o->top_p <= 1))
        return out_of_range("top-p", o->top_p, "above 0, at most 1", e);
    if (!(o->min_p >= 0 && o->min_p < 1))
        return out_of_range("min-p", o->min_p, "0 to below 1", e);
    if (!(o->repetition_penalty > 0 && o->repetition_penalty <= SAMPLING_PENALTY_MAX))
        return out_of_range("repetition penalty", o->repetition_penalty, "above 0, at most 100", e);
    if (!(fabs(o->presence_penalty) <= SAMPLING_PENALTY_MAX))
        return out_of_range("presence penalty", o->presence_penalty, "-100 to 100", e);
    if (!(fabs(o->frequency_penalty) <= SAMPLING_PENALTY_MAX))
        return out_of_range("frequency penalty", o->frequency_penalty, "-100 to 100", e);
    if (o->repetition_window < 0)
        return out_of_range("repetition window", (double)o->repetition_window, "0 or more", e);
    if (o->top_k < 0)
        return out_of_range("top-k", (double)o->top_k, "0 or more", e);
    struct sampler *s = xcalloc(1, sizeof *s);
    s->o = *o;
    s->k = k;
    s->vocab_size = vocab_size;
    s->random = o->seed;
    s->candidates = xcalloc((size_t)vocab_size + 1, sizeof *s->candidates);
    s->scratch = xcalloc((size_t)vocab_size + 1, sizeof *s->scratch);
    s->logits = xcalloc((size_t)vocab_size + 1, sizeof *s->logits);
    s->weights = xcalloc((size_t)vocab_size + 1, sizeof *s->weights);
    s->seen = xcalloc((size_t)vocab_size + 1, sizeof *s->seen);
    *out = s;
    return true;
}

void sampler_free(struct sampler *s)
{
    if (!s)
        return;
    free(s->candidates);
    free(s->scratch);
    free(s->logits);
    free(s->weights);
    free(s->seen);
    free(s);
}

bool sampler_can_pick(const float *logits, int64_t n)
{
    int64_t i = 0;
    while (i < n && !(logits[i] > -INFINITY))
        i++;
    return i < n;
}

int32_t sampler_argmax(const float *logits, int64_t n)
{
    int64_t best = -1;
    for (int64_t i = 0; i < n; i++)
        if (logits[i] == logits[i] && (best < 0 || logits[i] > logits[best]))
            best = i;
    return best < 0 ? 0 : (int32_t)best;
}

/* SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014), 24 bits as a float
 * in [0, 1). */
static float random_unit(struct sampler *s)
{
    uint64_t z = s->random += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return (float)(z >> 40) * 0x1p-24f;
}

static bool changes_logits(const struct sampler_options *o)
{
    return o->repetition_penalty != 1 || o->presence_penalty != 0 || o->frequency_penalty != 0 ||
           o->n_suppressed > 0 || o->n_bad_words > 0;
}

/* Penalties on what is among the newest tokens. */
static void penalize(struct sampler *s, const int32_t *history, size_t n)
{
    size_t from = s->o.repetition_window > 0 && n > (size_t)s->o.repetition_window
                      ? n - (size_t)s->o.repetition_window
                      : 0;
    float repetition = (float)s->o.repetition_penalty, presence = (float)s->o.presence_penalty,
          frequency = (float)s->o.frequency_penalty;
    for (size_t i = from; i < n; i++)
        if (history[i] >= 0 && history[i] < s->vocab_size)
            s->seen[history[i]]++;
    for (size_t i = from; i < n; i++) {
        int32_t id = history[i];
        if (id < 0 || id >= s->vocab_size || s->seen[id] == 0)
            continue;
        float *l = &s->logits[id];
        *l = *l > 0 ? *l / repetition : *l * repetition;
        *l -= (float)s->seen[id] * frequency + presence;
        s->seen[id] = 0;
    }
}

static bool ends_with(const int32_t *history, size_t n, const int32_t *ids, size_t n_ids)
{
    return n_ids == 0 || (n_ids <= n && memcmp(history + n - n_ids, ids, sizeof *ids * n_ids) == 0);
}

static void suppress(struct sampler *s, int32_t id)
{
    if (id >= 0 && id < s->vocab_size)
        s->logits[id] = -INFINITY;
}

/* The logits behind penalties and suppression. */
static const float *change_logits(struct sampler *s, const float *logits, const int32_t *history, size_t n)
{
    size_t bytes = sizeof *logits * (size_t)s->vocab_size;
    memcpy(s->logits, logits, bytes);
    penalize(s, history, n);
    for (int i = 0; i < s->o.n_suppressed; i++)
        suppress(s, s->o.suppressed[i]);
    for (int i = 0; i < s->o.n_bad_words; i++) {
        const struct token_sequence *w = &s->o.bad_words[i];
        if (w->n > 0 && ends_with(history, n, w->ids, (size_t)w->n - 1))
            suppress(s, w->ids[w->n - 1]);
    }
    if (!sampler_can_pick(s->logits, s->vocab_size)) { /* a list of everything leaves nothing to choose */
        memcpy(s->logits, logits, bytes);
        penalize(s, history, n);
    }
    return s->logits;
}

int32_t sampler_pick(struct sampler *s, const float *logits, const int32_t *history, size_t n)
{
    const float *l = changes_logits(&s->o) ? change_logits(s, logits, history, n) : logits;
    int64_t n_candidates = 0, kept;
    if (s->o.greedy || s->o.temperature == 0)
        return sampler_argmax(l, s->vocab_size);
    for (int64_t i = 0; i < s->vocab_size; i++)
        if (l[i] == l[i] && l[i] != -INFINITY)
            s->candidates[n_candidates++] = (struct candidate){l[i], (int32_t)i};
    if (n_candidates == 0)
        return 0;
    kept = ranking_sort_best(s->candidates, s->scratch, n_candidates,
                             s->o.top_k > 0 && s->o.top_k < n_candidates ? s->o.top_k : n_candidates);
    float best = s->candidates[0].logit, total = 0, sum = 0;
    /* The difference first: its quotient by the smallest temperature is 0 for the best and -infinity for others. */
    for (int64_t i = 0; i < kept; i++) {
        float below = s->candidates[i].logit == best ? 0 : s->candidates[i].logit - best;
        s->weights[i] = below == 0 ? 0 : (float)((double)below / s->o.temperature);
    }
    s->k->exp(s->weights, s->weights, kept);
    for (int64_t i = 0; i < kept; i++)
        total += s->weights[i];
    if (s->o.top_p < 1) { /* the shortest head of the list whose weight reaches top_p */
        int64_t i = 0;
        do
            sum += s->weights[i++];
        while (i < kept && sum < (float)s->o.top_p * total);
        kept = i;
    }
    if (s->o.min_p > 0) /* the best has weight 1 */
        while (kept > 1 && s->weights[kept - 1] < (float)s->o.min_p)
            kept--;
    total = 0;
    for (int64_t i = 0; i < kept; i++)
        total += s->weights[i];
    float at = random_unit(s) * total;
    for (int64_t i = 0; i < kept; i++) {
        at -= s->weights[i];
        if (at < 0)
            return s->candidates[i].id;
    }
    return s->candidates[0].id;
}
