/* The text on which something of a model is measured while it is converted. */
#ifndef MILKIT_MEASURE_CALIBRATION_H
#define MILKIT_MEASURE_CALIBRATION_H

#include "tokenizer/tokenizer.h"

/* `from` for a text that the model writes itself */
#define CALIBRATION_SELF "self"
#define CALIBRATION_KEY_SIZE 17 /* with the 0 behind it */

struct calibration {
    const char *from; /* file, "-" for stdin, "@FILE" with ids, "self"; NULL: a text of our own */
    /* How the two kinds are read, into heap memory; needed with `from`. */
    bool (*read_text)(const char *from, char **text, size_t *bytes, size_t max_bytes, struct err *e);
    bool (*read_ids)(const char *from, int32_t **ids, size_t *n, struct err *e);
    /* "self": appends tokens that the model itself writes */
    bool (*write_self)(void *context, int64_t n_text, struct ids *ids, struct err *e);
    void *context;
    int64_t n_text; /* of a text of them */
    struct ids ids; /* once read: stdin is there once, and several measurements may want it */
};

/* Appends the ids of the text, by the checkpoint's tokenizer, which ids don't need. ERR_FORMAT for fewer than two. */
bool calibration_read(struct calibration *c, const char *checkpoint, struct ids *ids,
                      struct err *e) MUST_CHECK;
void calibration_fini(struct calibration *c);
/* What tells texts apart: hexadecimal digits of their ids' SHA-256. */
void calibration_key(const struct ids *ids, char key[CALIBRATION_KEY_SIZE]);

/* About 300 words of several kinds of text. */
extern const char calibration_text[];

#endif
