/* Numbers between callers' tensors (types, strides) and the buffers of runs (dense float32 or int32). */
#ifndef MILKIT_API_API_TENSOR_H
#define MILKIT_API_API_TENSOR_H

#include "mil/mil.h"
#include "milkit.h"

/* The MK_ type of a declared element type; 0: callers can't see such. */
int32_t tensor_type(enum mil_dtype d);
size_t tensor_type_bytes(int32_t type); /* 0: no such type */
/* Type, rank and data are there, dims are not negative, their product is below 2^40 and strides (all zeros: dense) stay in 63 bits. */
bool tensor_check(const mk_tensor *t, const char *name, struct err *e) MUST_CHECK;
int64_t tensor_elems(const mk_tensor *t);
/* To dst [tensor_elems]: int32 when to_int, else float. Whole numbers beyond int32 and floats on the way to integers that
 * are not whole numbers: ERR_USAGE naming the element. */
bool tensor_load(void *dst, bool to_int, const mk_tensor *from, const char *name, struct err *e) MUST_CHECK;
/* From src, dense int32 when from_int, else float, to the tensor: rounded to nearest, ties to even, for floats; integers that
 * the type can't hold are cut to its range. */
void tensor_store(const mk_tensor *to, const void *src, bool from_int);

#endif
