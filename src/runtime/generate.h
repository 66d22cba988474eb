/* What the commands that generate text share: sampling options over the package's defaults, and the loop from logits to
 * the next token.
 */
#ifndef MILKIT_CLI_GENERATE_H
#define MILKIT_CLI_GENERATE_H

#include "cli/cli.h"
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
/* Rows for a command's option table. */
#define SAMPLING_OPTION_ROWS(s)                                                                              \
    {"--greedy", CLI_FLAG, &(s).greedy, NULL, "always the most likely token (behind the penalties)"},        \
        {"--temp,--temperature", CLI_DOUBLE, &(s).temperature, "T",                                          \
         "temperature (the package's, else greedy)"},                                                        \
        {"--top-k", CLI_INT, &(s).top_k, "K", "choose among the K best"},                                    \
        {"--top-p", CLI_DOUBLE, &(s).top_p, "P", "choose among the best that make up P"},                    \
        {"--min-p", CLI_DOUBLE, &(s).min_p, "P", "drop tokens below P times the best"},                      \
        {"--repeat-penalty", CLI_DOUBLE, &(s).repeat_penalty, "X",                                           \
         "penalty on tokens seen before (the package's; 1: none)"},                                          \
        {"--presence-penalty", CLI_DOUBLE, &(s).presence_penalty, "X",                                       \
         "off the logit of tokens seen before (the package's)"},                                             \
        {"--frequency-penalty", CLI_DOUBLE, &(s).frequency_penalty, "X",                                     \
         "off the logit for each time a token was seen (the package's)"},                                    \
        {"--repeat-last-n", CLI_INT, &(s).repeat_last_n, "N",                                                \
         "how many tokens count as seen before (0: all)"},                                                   \
    {                                                                                                        \
        "-s,--seed", CLI_INT, &(s).seed, "N", "seed of the random choices"                                   \
    }

/* The options in force: what was given, then what the package recommends. */
struct sampler_options sampling_resolve(const struct sampling_options *o, const struct model *m);
bool sampling_open(struct sampler **out, const struct sampling_options *o, const struct model *m,
                   struct err *e) MUST_CHECK;

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
    struct log *log; /* its cancel flag ends the loop */
    generate_token_fn on_token;
    void *context;
};
/* Appends what is generated to ids, the stop id left out. *n_generated counts them also when this fails. The session
 * holds all of ids but for the last one when the end is not a stop id. */
bool generate_tokens(const struct generate *g, struct ids *ids, int64_t *n_generated, enum generate_end *end,
                     struct err *e) MUST_CHECK;

#endif
