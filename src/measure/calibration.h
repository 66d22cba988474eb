/* The text on which something of a model is measured while it is converted. */
#ifndef MILKIT_MEASURE_CALIBRATION_H
#define MILKIT_MEASURE_CALIBRATION_H

#include "tokenizer/tokenizer.h"

struct calibration {
    const char *from; /* file, "-" for stdin, "@FILE" with ids; NULL: a text of our own */
    /* How the two kinds are read, into heap memory; needed with `from`. */
    bool (*read_text)(const char *from, char **text, size_t *bytes, size_t max_bytes, struct err *e);
    bool (*read_ids)(const char *from, int32_t **ids, size_t *n, struct err *e);
    struct ids ids; /* once read: stdin is there once, and several measurements may want it */
};

/* Appends the ids of the text, by the checkpoint's tokenizer, which ids don't need. ERR_FORMAT for fewer than two. */
bool calibration_read(struct calibration *c, const char *checkpoint, struct ids *ids,
                      struct err *e) MUST_CHECK;
void calibration_fini(struct calibration *c);

/* About 300 words of several kinds of text. */
extern const char calibration_text[];

#endif
