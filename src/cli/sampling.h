/* The sampling options of the commands that generate text. */
#ifndef MILKIT_CLI_SAMPLING_H
#define MILKIT_CLI_SAMPLING_H

#include "base/buf.h"
#include "cli/cli.h"

/* Of an option that was not given: the package's recommendation holds, or greedy where it has none. */
#define SAMPLING_NOT_GIVEN (-1e300)
#define SAMPLING_NOT_GIVEN_INT INT64_MIN

enum sampling_number {
    SAMPLING_TEMPERATURE,
    SAMPLING_TOP_P,
    SAMPLING_MIN_P,
    SAMPLING_REPEAT_PENALTY,
    SAMPLING_PRESENCE_PENALTY,
    SAMPLING_FREQUENCY_PENALTY,
    SAMPLING_NUMBERS
};

struct sampling {
    bool greedy;
    double numbers[SAMPLING_NUMBERS];
    int64_t top_k, repeat_last_n;
    int64_t seed; /* negative: another one each time */
};
/* Nothing given. */
void sampling_clear(struct sampling *s);
/* Rows for a command's option table. */
#define SAMPLING_OPTION_ROWS(s)                                                                              \
    {"--greedy", CLI_FLAG, &(s).greedy, NULL, "always the most likely token (behind the penalties)"},        \
        {"--temp,--temperature", CLI_DOUBLE, &(s).numbers[SAMPLING_TEMPERATURE], "T",                        \
         "temperature (the package's, else greedy)"},                                                        \
        {"--top-k", CLI_INT, &(s).top_k, "K", "choose among the K best"},                                    \
        {"--top-p", CLI_DOUBLE, &(s).numbers[SAMPLING_TOP_P], "P", "choose among the best that make up P"},  \
        {"--min-p", CLI_DOUBLE, &(s).numbers[SAMPLING_MIN_P], "P", "drop tokens below P times the best"},    \
        {"--repeat-penalty", CLI_DOUBLE, &(s).numbers[SAMPLING_REPEAT_PENALTY], "X",                         \
         "penalty on tokens seen before (the package's; 1: none)"},                                          \
        {"--presence-penalty", CLI_DOUBLE, &(s).numbers[SAMPLING_PRESENCE_PENALTY], "X",                     \
         "off the logit of tokens seen before (the package's)"},                                             \
        {"--frequency-penalty", CLI_DOUBLE, &(s).numbers[SAMPLING_FREQUENCY_PENALTY], "X",                   \
         "off the logit for each time a token was seen (the package's)"},                                    \
        {"--repeat-last-n", CLI_INT, &(s).repeat_last_n, "N",                                                \
         "how many tokens count as seen before (0: all)"},                                                   \
    {                                                                                                        \
        "-s,--seed", CLI_INT, &(s).seed, "N", "seed of the random choices"                                   \
    }

/* Appends the settings of mk_sampler_new, an object. ERR_USAGE for what JSON has no number for. */
bool sampling_put(const struct sampling *s, struct buf *out, struct err *e) MUST_CHECK;

#endif
