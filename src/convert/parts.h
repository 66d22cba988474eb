/* One part of a package (embeddings, a chunk, the head): its program, its weights, its files. Internal to
 * convert. */
#ifndef MILKIT_CONVERT_PARTS_H
#define MILKIT_CONVERT_PARTS_H

#include "base/pool.h"
#include "convert/convert.h"

/* A quantized weight of a part: where its bytes go, what it cost. */
struct convert_quant {
    struct quant_weight *weight;
    uint64_t codes_offset, table_offset;
    struct quant_stats *units; /* [weight->n_units], heap: each by the thread that ran it */
    struct quant_stats stats;  /* their sum in order, once the part is written */
};

struct convert_part {
    struct mil_model *model;
    char *name; /* of the files, without extension */
    struct quant_spec spec;
    const struct quant_choices *choices; /* NULL: spec's width for all */
    /* Weights that go to the blob file, each once, in the order of their first use. Borrowed from the model.
     */
    struct mil_value **weights;
    int n_weights;
    struct convert_quant *quants;
    int n_quants;
    uint64_t weight_bytes; /* of the blob file, about */
    uint64_t work_bytes;   /* that are read for it, which is what progress counts */
    int64_t n_elems;       /* of the weights in the blob file, expanded */
    int n_regrouped;       /* quantized weights whose groups or blocks had to be smaller than asked for */
    double seconds;        /* that writing it took */
    bool is_wanted, is_done;
    char *report; /* heap, JSON object, once it is done */
};

/* Takes model and name (heap) over; both are freed by convert_part_fini whatever happens. Quantizes (which:
 * QUANT_LINEAR, QUANT_TABLES). Constants that are too small for the blob file become immediate here. */
bool convert_part_init(struct convert_part *p, struct mil_model *model, char *name,
                       const struct quant_spec *spec, const struct quant_choices *choices, unsigned which,
                       struct err *e) MUST_CHECK;
void convert_part_fini(struct convert_part *p);
/* The graph of a finished part is not needed any more. */
void convert_part_close_model(struct convert_part *p);

struct convert_job {
    const char *folder; /* that the part's folders go into */
    enum convert_format format;
    struct pool *pool;
    struct log *log;
    struct progress *progress;
    const struct convert_options *options;
    bool is_head; /* the part that is written */
    int64_t n_layers;
    uint64_t done_bytes; /* of work, over all parts so far */
    uint64_t written_bytes, dedup_bytes;
    struct convert_peak *peak;
};
/* Writes <name>.mlpackage and <name>.mlmodelc, then reads them back. In both forms at once the weight file is
 * one file with two names (a hard link) where the file system has links, else a copy. */
bool convert_part_write(struct convert_part *p, struct convert_job *job, struct err *e) MUST_CHECK;
/* Folders of the part inside the package, heap strings; n: 1 or 2. */
int convert_part_folders(const struct convert_part *p, enum convert_format format, char *folders[2]);

/* weights.c: guides of a part that is not written, for what comes behind it. */
bool convert_guide_part(struct convert_part *p, struct convert_job *job, struct err *e) MUST_CHECK;
/* weights.c: the part's blob file; afterwards its values refer to it by file and offset. */
bool convert_write_weights(struct convert_part *p, struct convert_job *job, const char *path,
                           struct err *e) MUST_CHECK;
/* The type of weights of this element type in the file; false when they can't be in one. */
bool convert_blob_type(enum mil_dtype d, int *blob_type);

/* report.c */
struct convert_peak {
    uint64_t anonymous; /* bytes, the most that was seen */
    double last_s;
};
/* Looks at the process's memory, at most a few times a second unless now. */
void convert_peak_look(struct convert_peak *peak, bool now);
/* The part as a JSON object, heap. */
char *convert_report_part(const struct convert_part *p);

#endif
