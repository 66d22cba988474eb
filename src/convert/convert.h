/* The conversion pipeline: checkpoint folder -> package folder, streamed, atomic, reproducible byte for byte.
 *
 * Weights go one at a time from the mapped checkpoint to the blob files, quantized on the way (in slices or
 * units over the threads); memory is bounded by the slices. The package is assembled under a temporary name
 * and renamed last; a failed run leaves nothing, an interrupted one (by the user, or by a system that refused, like a full
 * disk) its finished parts for a run that resumes.
 */
#ifndef MILKIT_CONVERT_CONVERT_H
#define MILKIT_CONVERT_CONVERT_H

#include "arch/arch.h"
#include "format/checkpoint_source.h"
#include "quant/quant.h"

enum convert_format { CONVERT_BOTH, CONVERT_MLMODELC, CONVERT_MLPACKAGE };

struct convert_options {
    const char *checkpoint; /* a folder, or a GGUF file (format/checkpoint_source.h) */
    /* What `checkpoint` was made from, once it is a folder: convert_run sets it. */
    const struct checkpoint_source *source;
    const char *output;
    const char *config_overrides;  /* a JSON file: keys of the config.json of a GGUF file; NULL: none */
    const char *prefix;            /* NULL: the family's */
    struct arch_settings settings; /* zeros: defaults 512, 64, 1, and the family's */
    bool chunks_auto;              /* as few chunks as keep each weight file below about 950 MB */
    /* Of the parts. Both forms of a part have one weight file under two names (a hard link) where the file
     * system has links, else a copy. */
    enum convert_format format;
    struct quant_spec embeddings, ffn, head; /* zeros: fp16 */
    /* Mixed widths in the layers: ffn is a palette of the narrow one, the mean of bits may reach this. 0: one
     * width. */
    double ffn_mean_bits;
    /* Gives the scale of the residual stream, where the settings have none. Called once everything but space is checked. NULL:
     * it has none. */
    bool (*measure_residual)(void *context, const struct arch_model *m, struct arch_residual *out,
                             struct err *e);
    void *residual_context;
    /* With mixed widths: gives each weight's. Called once everything but space is checked, when chunks are made;
     * *out is the caller's and lives until convert_run ends. */
    bool (*choose)(void *context, struct arch_model *m, const struct quant_choices **out, struct err *e);
    void *choose_context;
    /* Palettes of a method that needs more than weights: makes those of a layer (quant_weight.made, or its importance) before
     * they are written; layers come in ascending order, each once, behind the last one the head. A weight that is left as it is
     * gets k-means. What is made must live until the next call. NULL: all are left. */
    bool (*guide)(void *context, int64_t layer, struct quant_weight *const *weights, int n, struct err *e);
    bool guide_all; /* layers are told of that come before what is written, too */
    /* Called once before, when all but space is checked and chunks are made. */
    bool (*guide_begin)(void *context, const struct arch_model *m, struct err *e);
    void *guide_context;
    const char
        *guide_key; /* what else the guides depend on, known after guide_begin: only the same resumes */
    /* Tries the finished package in its temporary folder before that gets its name; an error keeps it from that. Called
     * when everything was made (no `only`). NULL: nobody tries. */
    bool (*verify)(void *context, const char *folder, struct err *e);
    void *verify_context;
    /* NULL: everything. Else a list with commas of embeddings, ffn, chunk:N, head, and meta for the files
     * beside the models. */
    const char *only;
    int n_threads; /* 0: all */
    bool replace;  /* an existing output folder may be replaced */
    /* Go on with what an interrupted run with the same settings left; finished parts that are whole are kept.
     * A failure after a finished part leaves them again. */
    bool resume;
    const char *version;     /* of the program: only the same one resumes; NULL: "" */
    const char *report_path; /* JSON; NULL: none */
    struct log *log;
};

struct convert_report {
    double seconds;
    uint64_t bytes_read, bytes_written, dedup_bytes;
    uint64_t peak_anonymous; /* bytes */
    int n_tensors_used, n_tensors_left_out;
    char *left_out; /* heap: what is not needed, "a.*, b.* (4) and 3 more"; NULL for nothing */
    bool has_tokenizer;
    char *packed_types;     /* heap: of a GGUF file that was quantized, what it holds; NULL: of none */
    double packed_bits;     /* of a number of its matrices, in the mean */
    int64_t n_numbers;      /* of the tensors that were used */
    int n_parts, n_resumed; /* written or kept */
};

bool convert_run(const struct convert_options *o, struct convert_report *report, struct err *e) MUST_CHECK;
void convert_report_fini(struct convert_report *r);

#endif
