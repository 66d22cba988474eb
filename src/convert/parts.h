/* One part of a package (embeddings, a chunk, the head): its program, its weights, its files. Internal to
 * convert. */
#ifndef MILKIT_CONVERT_PARTS_H
#define MILKIT_CONVERT_PARTS_H

#include "base/pool.h"
#include "convert/convert.h"

struct convert_part {
    struct mil_model *model;
    char *name; /* of the files, without extension */
    /* Weights that go to the blob file, each once, in the order of their first use. Borrowed from the model.
     */
    struct mil_value **weights;
    int n_weights;
    uint64_t weight_bytes;
};

/* Takes model and name (heap) over; both are freed by convert_part_fini whatever happens. Constants that are
 * too small for the blob file become immediate here. */
bool convert_part_init(struct convert_part *p, struct mil_model *model, char *name, struct err *e) MUST_CHECK;
void convert_part_fini(struct convert_part *p);

struct convert_job {
    const char *folder; /* that the part's folders go into */
    enum convert_format format;
    struct pool *pool;
    struct log *log;
    struct progress *progress;
    uint64_t done_bytes; /* of weights, over all parts so far */
    uint64_t written_bytes, dedup_bytes;
};
/* Writes <name>.mlpackage and <name>.mlmodelc. In both forms at once the weight file is one file with two
 * names (a hard link) where the file system has links, else a copy. */
bool convert_part_write(struct convert_part *p, struct convert_job *job, struct err *e) MUST_CHECK;

#endif
