/* Shared by the files that read safetensors; internal to format. */
#ifndef MILKIT_FORMAT_SAFETENSORS_INTERNAL_H
#define MILKIT_FORMAT_SAFETENSORS_INTERNAL_H

#include "format/safetensors.h"

/* Finds the scales of F8_E4M3 tensors among the others. */
void st_link_scales(struct safetensors *s);
/* n elements from `begin` on of an F8_E4M3 tensor with scales, as doubles, exact. */
void st_load_f8(const struct st_tensor *t, int64_t begin, int64_t n, double *dst);

#endif
