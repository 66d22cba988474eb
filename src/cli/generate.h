/* The sampling options of the commands that generate text. */
#ifndef MILKIT_CLI_GENERATE_H
#define MILKIT_CLI_GENERATE_H

#include "cli/cli.h"
#include "runtime/generate.h"

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

#endif
