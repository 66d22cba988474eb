/* Importance of each weight by Fisher information: squared gradients of a calibration text's loss, summed over its pieces
 * (SqueezeLLM, arXiv 2306.07629).
 *
 * Gradients come from the last layer to the first and packages are written the other way round, so the sums lie in a
 * file without a name between; memory holds one layer's. They are taken down to the first layer that is asked for.
 */
#ifndef MILKIT_MEASURE_FISHER_H
#define MILKIT_MEASURE_FISHER_H

#include "arch/arch.h"
#include "measure/calibration.h"
#include "quant/quant.h"

/* Of a text: tokens that are used, and tokens that see each other. */
#define FISHER_TOKENS 16384
#define FISHER_TEXT_TOKENS 256

struct fisher {
    struct calibration *calibration;
    int64_t n_tokens;   /* at most; 0: FISHER_TOKENS */
    const char *folder; /* for what memory has no room for */
    int n_threads;      /* 0: all */
    struct log *log;
    /* what was found */
    int64_t n_used;               /* tokens */
    int n_weighted, n_unweighted; /* weights */
    double seconds;
    char key[CALIBRATION_KEY_SIZE]; /* for convert_options.guide_key: the text's tokens */
    struct fisher_state *state;
};

/* convert_options.guide_begin: opens the checkpoint and reads the text. context: a struct fisher. */
bool fisher_begin(void *context, const struct arch_model *m, struct err *e);
/* convert_options.guide: quant_weight.each, until the next call. */
bool fisher_layer(void *context, int64_t layer, struct quant_weight *const *weights, int n, struct err *e);
/* After the conversion: what had importance, by how many tokens; a warning for weights that went without. */
void fisher_say(const struct fisher *f);
void fisher_close(struct fisher *f);

#endif
