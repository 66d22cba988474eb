/* What palettes cost on top of an earlier quantization: a new package against the numbers of the file it was made of. */
#ifndef MILKIT_MEASURE_REQUANTIZED_H
#define MILKIT_MEASURE_REQUANTIZED_H

#include "base/log.h"

struct requantized {
    int64_t n_tokens;
    double mean_kl; /* nats, of the package's predictions from the file's */
    double top1;    /* share of tokens whose best prediction is the same */
};

/* On one batch of a built-in text and some tokens more. package: with a tokenizer. */
bool requantized_measure(struct requantized *out, const char *package, const char *checkpoint,
                         const char *config_overrides, int n_threads, struct log *log,
                         struct err *e) MUST_CHECK;

#endif
