/* Guides for palettes by error feedback: what the weights of a checkpoint are multiplied with on a calibration text.
 *
 * The float32 reference runs layer by layer over the text, in pieces; for every distinct input of a layer's matrices
 * H = sum of x x^T is taken, and quant/guide.h makes a guide of it. Memory holds one layer's.
 */
#ifndef MILKIT_MEASURE_GUIDE_H
#define MILKIT_MEASURE_GUIDE_H

#include "arch/arch.h"
#include "measure/calibration.h"
#include "quant/quant.h"

/* Of a text: tokens that are used, and tokens that see each other. */
#define GUIDE_TOKENS 16384
#define GUIDE_TEXT_TOKENS 512
/* Fewer say little about a layer's inputs. */
#define GUIDE_TOKENS_FEW 2048

struct guide {
    struct calibration *calibration;
    int64_t n_tokens; /* at most; 0: GUIDE_TOKENS */
    int n_threads;    /* 0: all */
    struct log *log;
    /* what was found */
    int64_t n_used;           /* tokens */
    int n_guided, n_unguided; /* weights */
    char key[17];             /* for convert_options.guide_key: the text's tokens */
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
