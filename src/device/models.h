/* The models of a package, or one model, opened to be looked at. */
#ifndef MILKIT_DEVICE_MODELS_H
#define MILKIT_DEVICE_MODELS_H

#include "mil/mil.h"

struct device_model {
    const char *name; /* of the file, without its folder */
    const struct mil_model *model;
};

struct device_models {
    int n;
    struct device_model *list;
    /* the owner's */
    struct mil_model **models;
    char **names;
};

/* path: a package's folder (of a model in both forms the compiled one, which is what a device loads), a model in any form, or the text
 * of a program. with_weights: constants in weight files are mapped (those of a text never are). */
bool device_models_open(struct device_models *out, const char *path, bool with_weights,
                        struct err *e) MUST_CHECK;
void device_models_close(struct device_models *m);

#endif
