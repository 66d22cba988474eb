/* What is asked of a conversion, in the words of options, and the conversion that does it: widths of weights, mixed widths
 * measured on a text, a trial run of the new package. For mk_convert and `milkit convert`, which call options by the same names.
 */
#ifndef MILKIT_API_CONVERSION_H
#define MILKIT_API_CONVERSION_H

#include "convert/convert.h"
#include "measure/fisher.h"
#include "measure/guide.h"
#include "measure/mixed.h"
#include "measure/residual.h"
#include "measure/verify_package.h"

#define CONVERSION_NOT_GIVEN INT64_MIN

struct conversion_words {
    const char *before_names; /* how messages call options: "--" before "lut-ffn" */
    const char *checkpoint, *output, *prefix, *only, *report;
    const char *config; /* JSON whose keys replace settings of a GGUF file */
    /* CONVERSION_NOT_GIVEN: the default */
    int64_t context, batch, split_head, threads, gdn_chunk, calibration_tokens;
    const char *chunks;            /* a number or "auto" */
    const char *lut[3], *quant[3]; /* of embeddings, ffn, head */
    const char *lut_method;        /* of quant_method_find */
    const char *lut_ffn_mixed;     /* a mean of bits, or "none" */
    const char *residual_scale;    /* "auto", "off" or a power of two up to 1 */
    const char *calibration; /* of lut_ffn_mixed, methods that need inputs and the measured residual_scale */
    const char *format;      /* "both", "mlmodelc", "mlpackage"; "safetensors": a GGUF file as a checkpoint */
    bool force, resume, anemll_rotate, exact_norms, exact_topk, no_verify;
    /* how a calibration is read (struct calibration) */
    bool (*read_text)(const char *from, char **text, size_t *bytes, size_t max_bytes, struct err *e);
    bool (*read_ids)(const char *from, int32_t **ids, size_t *n, struct err *e);
};
#define CONVERSION_WORDS_INIT                                                                                \
    {                                                                                                        \
        .context = CONVERSION_NOT_GIVEN, .batch = CONVERSION_NOT_GIVEN, .split_head = CONVERSION_NOT_GIVEN,  \
        .threads = CONVERSION_NOT_GIVEN, .gdn_chunk = CONVERSION_NOT_GIVEN,                                  \
        .calibration_tokens = CONVERSION_NOT_GIVEN                                                           \
    }

struct conversion {
    struct convert_options options;
    bool is_plain;                             /* not to a package, but to a checkpoint */
    struct calibration calibration, self_text; /* self_text: that the model writes */
    struct residual residual;
    struct mixed mixed;
    struct guide guide;
    struct fisher fisher; /* of its own method, in place of guide */
    struct verify_package verify;
};

/* Words to options; ERR_USAGE names the word that is wrong. c must not move afterwards, and borrows from the words. Messages go
 * to log. */
bool conversion_read(struct conversion *c, const struct conversion_words *w, struct log *log,
                     struct err *e) MUST_CHECK;
/* Converts, as convert_plain where that was asked for, and warns of a tokenizer that does not fit what was written. */
bool conversion_run(struct conversion *c, struct convert_report *report, struct err *e) MUST_CHECK;
void conversion_fini(struct conversion *c);

#endif
