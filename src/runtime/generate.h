/* Generating: sampling options over the package's defaults, and the loop from logits to the next token.
 */
#ifndef MILKIT_RUNTIME_GENERATE_H
#define MILKIT_RUNTIME_GENERATE_H

#include "base/log.h"
#include "runtime/sampler.h"
#include "runtime/session.h"

/* Of options that were not given: the package's recommendation holds, or greedy where it has none. */
#define SAMPLING_UNSET (-1e300)
#define SAMPLING_UNSET_INT INT64_MIN

struct sampling_options {
    bool greedy;
    double temperature, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty;
    int64_t top_k, repeat_last_n;
    int64_t seed; /* negative: another one each time */
};
#define SAMPLING_OPTIONS_INIT                                                                                \
    {                                                                                                        \
        .temperature = SAMPLING_UNSET, .top_p = SAMPLING_UNSET, .min_p = SAMPLING_UNSET,                     \
        .repeat_penalty = SAMPLING_UNSET, .presence_penalty = SAMPLING_UNSET,                                \
        .frequency_penalty = SAMPLING_UNSET, .top_k = SAMPLING_UNSET_INT, .seed = -1                         \
    }
/* The options in force: what was given, then what the package recommends. */
struct sampler_options sampling_resolve(const struct sampling_options *o, const struct model *m);
/* Tells the options and the seed, for -v: with them the same tokens come again. */
void sampling_say(struct log *log, const struct sampler_options *o);
/* *chosen: the options in force, with the seed. */
bool sampling_open(struct sampler **out, struct sampler_options *chosen, const struct sampling_options *o,
                   const struct model *m, struct log *log, struct err *e) MUST_CHECK;

enum generate_end { GENERATE_LENGTH, GENERATE_STOP, GENERATE_CONTEXT, GENERATE_CANCELLED };
/* "length", "end of text", "context full", "interrupted" */
const char *generate_end_name(enum generate_end end);

/* false: stop (e filled). */
typedef bool (*generate_token_fn)(void *context, int32_t id, struct err *e);

struct generate {
    const struct model *model;
    struct session *session; /* holds the tokens of ids, with logits */
    struct sampler *sampler;
    int64_t limit; /* tokens to generate */
    bool ignore_eos;
    const int32_t *stops; /* [n_stops] more ids that end, whatever ignore_eos says */
    size_t n_stops;
    struct log *log; /* its cancel flag ends the loop */
    generate_token_fn on_token;
    void *context;
};
/* Appends what is generated to ids, the stop id left out. *n_generated counts them also when this fails. The session
 * holds all of ids but for the last one when the end is not a stop id. */
bool generate_tokens(const struct generate *g, struct ids *ids, int64_t *n_generated, enum generate_end *end,
                     struct err *e) MUST_CHECK;

#endif
