/* What the description says of inputs and outputs beyond their tensors: images, defaults, shapes that are allowed, the labels of classifiers. */
#ifndef MILKIT_API_API_FEATURES_H
#define MILKIT_API_API_FEATURES_H

#include "mil/mil.h"
#include "milkit.h"

/* The MK_ number of a feature's colours; 0: not an image, or one whose tensor (of type t) is none. */
int32_t feature_color(const struct mil_feature *f, const struct mil_type *t);
/* Pixels [height, width, 3 or 4] or [height, width] become the planes that the function takes; nothing is copied. Other tensors stay. */
void feature_view_pixels(mk_tensor *t, int32_t color);
/* The other way, copied: src holds the planes [1, channels, height, width] of an output. Red, green, blue as bytes, or fp16 gray. */
bool feature_pixels(mk_tensor *t, int32_t color, const int64_t *dims, const float *src,
                    struct err *e) MUST_CHECK;
/* The value of an optional input that is not given; t->data is the caller's to free with mem_free. */
bool feature_default(mk_tensor *t, const struct mil_feature *f, const struct mil_type *type,
                     struct err *e) MUST_CHECK;
/* Is a shape that fits the program one that the description allows? ERR_USAGE names both. f may be NULL. */
bool feature_allows(const struct mil_feature *f, const char *name, int rank, const int64_t *dims,
                    struct err *e) MUST_CHECK;
/* "[1, 2]", cut where there is no room. */
void shape_text(char *dst, size_t room, int rank, const int64_t *dims);

/* A function whose last operation names a class. The program gives the numbers in its place; labels are made of them here. */
struct classifier {
    const struct mil_value *classes; /* texts or integers; NULL: not a classifier */
    int64_t n_classes;
    bool is_text;                         /* classes are texts */
    int i_numbers;                        /* the function's output that the numbers are */
    int n_outputs;                        /* as callers see them */
    const struct mil_var *const *outputs; /* [n_outputs] */
    const struct mil_var *label, *scores; /* among them; NULL: not asked for */
};
/* Class i as a text of the caller's, or as a number. */
char *classifier_text(const struct classifier *c, int64_t i);
int64_t classifier_number(const struct classifier *c, int64_t i);
/* Takes the operation out of the function, whose outputs change. Memory from a. */
bool classifier_split(struct classifier *c, struct mil_function *f, struct arena *a,
                      struct err *e) MUST_CHECK;

#endif
