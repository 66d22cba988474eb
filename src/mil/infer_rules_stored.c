/* Result rules of weights that are stored in a smaller form: integers with scales, palettes, masks.
 *
 * Their operands (attributes, in opset ios16) describe bytes of a file, so every count is held against the
 * others: a weight that does not fit its own description would be read out of bounds later.
 */
#include <string.h>
#include "mil/infer_rules.h"

static bool infer_dtype_arg(struct infer *in, const char *name, enum mil_dtype *d)
{
    struct str s;
    *d = MIL_DTYPE_NONE;
    if (!infer_string(in, name, &s))
        return infer_fail(in, "%s is missing", name);
    *d = mil_dtype_find(s.p, s.n);
    if (!mil_dtype_is_float(*d))
        return infer_fail(in, "%s '%.*s' is not a float type", name, (int)(s.n < 32 ? s.n : 32), s.p);
    return true;
}

bool infer_rule_CONSTEXPR_CAST(struct infer *in)
{
    const struct mil_type *source;
    enum mil_dtype d;
    return infer_tensor(in, "source_val", &source) && infer_dtype_arg(in, "output_dtype", &d) &&
           infer_out(in, 0, d, source->rank, source->dims);
}

/* A scale or zero point: one number, or one for each slice of the axis. */
static bool check_per_axis(struct infer *in, const char *name, const struct mil_type *t, int64_t size)
{
    if (t && (t->rank > 1 || (t->rank == 1 && t->dims[0] >= 0 && size >= 0 && t->dims[0] != size)))
        return infer_fail(
            in, "%s must be a scalar or have one entry for each of the %lld slices, found %lld of rank %d",
            name, (long long)size, (long long)mil_type_elems(t), t->rank);
    return true;
}

bool infer_rule_CONSTEXPR_AFFINE(struct infer *in)
{
    const struct mil_type *data, *scale, *zero_point;
    int64_t at;
    int axis;
    if (!infer_tensor(in, "quantized_data", &data) || !infer_tensor(in, "scale", &scale) ||
        !infer_tensor(in, "zero_point", &zero_point))
        return false;
    infer_int(in, "axis", 0, &at);
    if (at == MIL_INT_UNKNOWN)
        return infer_fail(in, "axis must be a compile-time integer");
    if (data->rank > 0) {
        if (!infer_axis(in, "axis", at, data->rank, &axis) ||
            !check_per_axis(in, "scale", scale, data->dims[axis]) ||
            !check_per_axis(in, "zero_point", zero_point, data->dims[axis]))
            return false;
    }
    return infer_out(in, 0, scale->dtype, data->rank, data->dims);
}

/* The shape argument of the ios16 forms. */
static bool infer_stored_shape(struct infer *in, int *rank, int64_t dims[MIL_RANK_MAX])
{
    if (!infer_ints(in, "shape", dims, MIL_RANK_MAX, rank))
        return infer_fail(in, "shape must be a compile-time list of at most %d sizes", MIL_RANK_MAX);
    for (int i = 0; i < *rank; i++) {
        if (dims[i] < 0)
            return infer_fail(in, "shape has the entry %lld", (long long)dims[i]);
    }
    return true;
}

/* Bytes that n elements of some bits need, packed; the vector that holds them must have just as many. */
static bool check_packed(struct infer *in, const char *name, const struct mil_type *t, int rank,
                         const int64_t *dims, int bits)
{
    int64_t n;
    if (!infer_dim_product(in, dims, 0, rank, &n) || n < 0 || n > INT64_MAX / 16)
        return infer_fail(in, "shape is too large");
    int64_t expected = (n * bits + 7) / 8, found = mil_type_elems(t);
    if (t->rank != 1 || mil_dtype_bits(t->dtype) != 8 || found != expected)
        return infer_fail(in, "%s must be %lld bytes (%lld entries of %d bits), found %lld elements of %s",
                          name, (long long)expected, (long long)n, bits, (long long)found,
                          mil_dtype_name(t->dtype));
    return true;
}

static int bits_of_table(int64_t entries)
{
    for (int bits = 1; bits <= 8; bits++) {
        if (entries == (int64_t)1 << bits)
            return bits;
    }
    return 0;
}

/* dims[vector_axis] times the length of the table's vectors (the last axis of lut). */
static bool widen_by_vectors(struct infer *in, const struct mil_type *lut, int rank, int64_t *dims)
{
    int64_t length = lut->dims[lut->rank - 1], at;
    int axis;
    if (length == 1)
        return true;
    infer_int(in, "vector_axis", MIL_INT_UNKNOWN, &at);
    if (at == MIL_INT_UNKNOWN)
        return infer_fail(in, "vector_axis is missing, which a table of vectors needs");
    return infer_axis(in, "vector_axis", at, rank, &axis) &&
           infer_dim_mul(in, dims[axis], length, &dims[axis]);
}

/* lut [groups of each axis ..., entries, vector length] against indices of this shape. */
static bool check_lut(struct infer *in, const struct mil_type *lut, enum mil_dtype index_dtype, int rank,
                      const int64_t *dims)
{
    if (lut->rank != rank + 2)
        return infer_fail(in, "lut has rank %d, expected the rank of indices plus 2 (%d)", lut->rank,
                          rank + 2);
    int64_t entries = lut->dims[rank];
    if (bits_of_table(entries) == 0 || bits_of_table(entries) != mil_dtype_bits(index_dtype))
        return infer_fail(in, "lut has %lld entries, indices of %s need 2^%d (at most 256)",
                          (long long)entries, mil_dtype_name(index_dtype), mil_dtype_bits(index_dtype));
    for (int i = 0; i < rank; i++) {
        if (lut->dims[i] < 1 || (dims[i] >= 0 && dims[i] % lut->dims[i] != 0))
            return infer_fail(in, "axis %d has size %lld, which %lld groups of the lut do not divide", i,
                              (long long)dims[i], (long long)lut->dims[i]);
    }
    if (lut->dims[rank + 1] < 1)
        return infer_fail(in, "lut has vectors of length %lld", (long long)lut->dims[rank + 1]);
    return true;
}

bool infer_rule_CONSTEXPR_LUT(struct infer *in)
{
    const struct mil_type *indices, *lut;
    int64_t dims[MIL_RANK_MAX];
    int rank;
    if (!infer_tensor(in, "indices", &indices) || !infer_tensor(in, "lut", &lut))
        return false;
    if (mil_arg_find(in->op, "shape") || mil_attribute(in->op, "shape")) {
        int bits = lut->rank == 1 ? bits_of_table(lut->dims[0]) : 0;
        if (bits == 0)
            return infer_fail(in, "lut must be a vector of 2 to 256 entries, a power of two");
        return infer_stored_shape(in, &rank, dims) &&
               check_packed(in, "indices", indices, rank, dims, bits) &&
               infer_out(in, 0, lut->dtype, rank, dims);
    }
    rank = indices->rank;
    if (rank > 0)
        memcpy(dims, indices->dims, sizeof dims[0] * (size_t)rank);
    return check_lut(in, lut, indices->dtype, rank, dims) && widen_by_vectors(in, lut, rank, dims) &&
           infer_out(in, 0, lut->dtype, rank, dims);
}

bool infer_rule_CONSTEXPR_SPARSE(struct infer *in)
{
    const struct mil_type *data, *mask;
    int64_t dims[MIL_RANK_MAX];
    int rank;
    if (!infer_tensor(in, "nonzero_data", &data) || !infer_tensor(in, "mask", &mask))
        return false;
    if (data->rank != 1)
        return infer_fail(in, "nonzero_data has rank %d, expected 1", data->rank);
    if (mil_arg_find(in->op, "shape") || mil_attribute(in->op, "shape"))
        return infer_stored_shape(in, &rank, dims) && check_packed(in, "mask", mask, rank, dims, 1) &&
               infer_out(in, 0, data->dtype, rank, dims);
    if (mask->dtype != MIL_UINT1)
        return infer_fail(in, "mask is %s, expected uint1", mil_dtype_name(mask->dtype));
    return infer_out(in, 0, data->dtype, mask->rank, mask->dims);
}

/* scale (and offset) of blocks: same rank as data, each size divides data's. */
static bool check_blocks(struct infer *in, int rank, const int64_t *dims, const struct mil_type **scale)
{
    const struct mil_type *offset;
    char text_scale[128], text_offset[128];
    if (!infer_tensor(in, "scale", scale) || !infer_tensor_optional(in, "offset", &offset))
        return false;
    if ((*scale)->rank != rank)
        return infer_fail(in, "scale has rank %d, data has rank %d", (*scale)->rank, rank);
    for (int i = 0; i < rank; i++) {
        int64_t n = (*scale)->dims[i];
        if (n < 1 || (dims[i] >= 0 && dims[i] % n != 0))
            return infer_fail(in, "axis %d has size %lld, which %lld blocks do not divide", i,
                              (long long)dims[i], (long long)n);
    }
    if (offset && (offset->rank != rank ||
                   (rank > 0 && memcmp(offset->dims, (*scale)->dims, sizeof dims[0] * (size_t)rank) != 0))) {
        mil_type_text(text_scale, sizeof text_scale, *scale);
        mil_type_text(text_offset, sizeof text_offset, offset);
        return infer_fail(in, "scale is %s, offset is %s: their shapes differ", text_scale, text_offset);
    }
    return true;
}

bool infer_rule_CONSTEXPR_BLOCK(struct infer *in)
{
    const struct mil_type *data, *scale;
    return infer_tensor(in, "data", &data) && check_blocks(in, data->rank, data->dims, &scale) &&
           infer_out(in, 0, scale->dtype, data->rank, data->dims);
}

bool infer_rule_CONSTEXPR_LUT_SPARSE(struct infer *in)
{
    const struct mil_type *mask, *indices, *lut;
    int64_t dims[MIL_RANK_MAX], n;
    if (!infer_tensor(in, "indices_mask", &mask) || !infer_tensor(in, "indices_nonzero_data", &indices) ||
        !infer_tensor(in, "lut", &lut))
        return false;
    if (indices->rank != 1)
        return infer_fail(in, "indices_nonzero_data has rank %d, expected 1", indices->rank);
    if (mask->rank > 0)
        memcpy(dims, mask->dims, sizeof dims[0] * (size_t)mask->rank);
    if (!check_lut(in, lut, indices->dtype, mask->rank, dims) ||
        !widen_by_vectors(in, lut, mask->rank, dims) ||
        !infer_dim_mul(in, indices->dims[0], lut->dims[lut->rank - 1], &n))
        return false;
    return infer_out(in, 0, mask->dtype, mask->rank, dims) && infer_out(in, 1, lut->dtype, 1, &n);
}

bool infer_rule_CONSTEXPR_BLOCK_SPARSE(struct infer *in)
{
    const struct mil_type *mask, *data, *scale;
    if (!infer_tensor(in, "data_mask", &mask) || !infer_tensor(in, "nonzero_data", &data))
        return false;
    if (data->rank != 1)
        return infer_fail(in, "nonzero_data has rank %d, expected 1", data->rank);
    return check_blocks(in, mask->rank, mask->dims, &scale) &&
           infer_out(in, 0, mask->dtype, mask->rank, mask->dims) &&
           infer_out(in, 1, scale->dtype, 1, data->dims);
}
