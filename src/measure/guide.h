/* Palettes by what weights are multiplied with: the float32 reference runs layer by layer over a calibration text, in pieces,
 * and what it shows says where an error of a weight does least (quant/guide.h).
 *
 * With QUANT_BEST layers come after each other: a second run of the same text goes through the palettes that were made so
 * far, and each weight is to give the outputs that the first one has.
 */
#ifndef MILKIT_MEASURE_GUIDE_H
#define MILKIT_MEASURE_GUIDE_H

#include "arch/arch.h"
#include "measure/calibration.h"
#include "quant/quant.h"

/* Of a text: tokens that are used, and tokens that see each other. */
#define GUIDE_TOKENS 16384
#define GUIDE_TEXT_TOKENS 1024
/* Fewer say little about a layer's inputs. */
#define GUIDE_TOKENS_FEW 2048
/* Sums of products that are in memory at a time; those of one input always are. */
#define GUIDE_MEMORY ((uint64_t)2 << 30)

struct guide {
    struct calibration *calibration;
    int64_t n_tokens; /* at most; 0: GUIDE_TOKENS */
    enum quant_method method;
    uint64_t memory; /* bytes; 0: GUIDE_MEMORY */
    int n_threads;   /* 0: all */
    struct log *log;
    /* what was found */
    int64_t n_used; /* tokens */
    int n_guided, n_unguided,
        n_thin; /* weights; n_thin: of them that had too few tokens for some of their rows */
    double seconds;
    char key[CALIBRATION_KEY_SIZE]; /* for convert_options.guide_key: the text's tokens */
    struct guide_state *state;
};

/* convert_options.guide_begin: opens the checkpoint and reads the text. context: a struct guide. */
bool guide_begin(void *context, const struct arch_model *m, struct err *e);
/* convert_options.guide */
bool guide_layer(void *context, int64_t layer, struct quant_weight *const *weights, int n, struct err *e);
/* After the conversion: what was guided, by how many tokens; a warning where they are few or weights went without. */
void guide_say(const struct guide *g);
void guide_close(struct guide *g);

#endif
