/* Weights behind constexpr ops: palettized, linearly quantized, pruned.
 *
 * A weight of a linear step stays packed and runs in fixed point (constexpr_fixed). Wherever else such a
 * weight is used, and in the op-by-op precisions, it is expanded once while the plan is made
 * (constexpr_dense). */
#include <math.h>
#include <string.h>
#include "engine/compiler.h"

/* The most elements that one weight may expand to. */
#define DENSE_ELEMS_MAX ((int64_t)1 << 32)

struct dense {
    int rank;
    int64_t dims[MIL_RANK_MAX + 2];
    int64_t n_elems;
    float *p;
};

static const struct mil_binding *parameter(const struct mil_op *op, const char *name,
                                           struct mil_binding *attribute)
{
    const struct mil_arg *a = mil_arg_find(op, name);
    if (a && a->n == 1)
        return &a->bindings[0];
    attribute->var = NULL;
    attribute->value = mil_attribute(op, name);
    return attribute->value ? attribute : NULL;
}

static const struct mil_value *parameter_value(const struct mil_op *op, const char *name)
{
    struct mil_binding attribute;
    const struct mil_binding *b = parameter(op, name, &attribute);
    return b ? mil_binding_value(b) : NULL;
}

const struct mil_op *constexpr_of(const struct compiler *c, const struct mil_var *v)
{
    const struct mil_op *op = v ? graph_def(&c->g, v) : NULL;
    return op && strncmp(op->type, "constexpr_", 10) == 0 ? op : NULL;
}

static bool eval_op(struct compiler *c, const struct mil_op *op, int i_output, struct dense *out, int depth);

/* An axis `times` times as long. */
static bool longer_axis(struct compiler *c, int64_t dim, int64_t times, int64_t *out)
{
    return !__builtin_mul_overflow(dim, times, out) ||
           compile_fail(c, ERR_LIMIT, "a weight of more than %lld elements", (long long)DENSE_ELEMS_MAX);
}

static bool dense_new(struct compiler *c, struct dense *d, int rank, const int64_t *dims)
{
    int64_t extent = 1; /* without the axes of 0: products of any axes stay below it */
    d->rank = rank;
    d->n_elems = 1;
    for (int i = 0; i < rank; i++) {
        d->dims[i] = dims[i];
        if (dims[i] < 0 || (dims[i] > 0 && extent > DENSE_ELEMS_MAX / dims[i]))
            return compile_fail(c, ERR_LIMIT, "a weight of more than %lld elements",
                                (long long)DENSE_ELEMS_MAX);
        extent *= dims[i] > 0 ? dims[i] : 1;
        d->n_elems *= dims[i];
    }
    d->p = NULL;
    if (compile_take_memory(c, d->n_elems, sizeof(float)))
        d->p = arena_try_alloc(c->scratch, (size_t)d->n_elems + 1, sizeof(float), c->e);
    return d->p != NULL;
}

/* A parameter as floats: a constant, or the result of another constexpr op. */
static bool eval(struct compiler *c, const struct mil_op *op, const char *name, struct dense *out,
                 bool *present, int depth)
{
    struct mil_binding attribute;
    const struct mil_binding *b = parameter(op, name, &attribute);
    const struct mil_value *v = b ? mil_binding_value(b) : NULL;
    *present = b != NULL;
    if (!b)
        return true;
    if (v) {
        if (v->type->kind != MIL_TYPE_TENSOR || v->type->rank > MIL_RANK_MAX + 2 ||
            (!v->data && v->n_elems > 0))
            return compile_fail(c, ERR_FORMAT, "%s is not a tensor", name);
        if (!dense_new(c, out, v->type->rank, v->type->dims))
            return false;
        return compile_floats(c, out->p, v, out->n_elems);
    }
    const struct mil_op *inner = constexpr_of(c, b->var);
    if (!inner)
        return compile_fail(c, ERR_UNSUPPORTED, "%s is not a constant", name);
    int i_output = 0;
    while (i_output + 1 < inner->n_outputs && inner->outputs[i_output] != b->var)
        i_output++;
    return eval_op(c, inner, i_output, out, depth + 1);
}

static bool need(struct compiler *c, const struct mil_op *op, const char *name, struct dense *out, int depth)
{
    bool present;
    return eval(c, op, name, out, &present, depth) &&
           (present || compile_fail(c, ERR_FORMAT, "%s is missing", name));
}

static unsigned packed_bits(const uint8_t *p, int64_t i, int bits)
{
    unsigned v = 0;
    for (int k = 0; k < bits; k++) {
        int64_t at = i * bits + k;
        v |= (unsigned)(p[at / 8] >> (at % 8) & 1) << k;
    }
    return v;
}

/* Position of element i of a tensor with `dims` in a tensor of the same rank whose axes are cut into groups.
 */
static int64_t group_of(int64_t i, int rank, const int64_t *dims, const int64_t *groups)
{
    int64_t at[MIL_RANK_MAX + 2], g = 0;
    for (int k = rank - 1; k >= 0; k--) {
        at[k] = i % dims[k];
        i /= dims[k];
    }
    for (int k = 0; k < rank; k++)
        g = g * groups[k] + at[k] / (dims[k] / groups[k]);
    return g;
}

static bool groups_fit(struct compiler *c, int rank, const int64_t *dims, const int64_t *groups)
{
    for (int k = 0; k < rank; k++)
        if (groups[k] < 1 || dims[k] < 1 || dims[k] % groups[k] != 0)
            return compile_fail(c, ERR_FORMAT, "axis %d of %lld can't have %lld groups", k,
                                (long long)dims[k], (long long)groups[k]);
    return true;
}

static int log2_exact(int64_t n)
{
    int bits = 0;
    while (((int64_t)1 << bits) < n && bits < 9)
        bits++;
    return ((int64_t)1 << bits) == n ? bits : -1;
}

/* Integers of a palette: those that are stored, or the scattered ones of a pruned weight. */
struct indices {
    const struct mil_value *stored; /* NULL: dense */
    const float *dense;
    int rank;
    const int64_t *dims;
    int64_t n_elems;
};

/* Indices [dims] into lut [groups of each axis .., entries, vector length]: dims, the vector axis longer by the length. */
static bool look_up(struct compiler *c, const struct mil_op *op, const struct indices *x,
                    const struct dense *lut, struct dense *out)
{
    int64_t dims[MIL_RANK_MAX], axis = 0, entries, vector;
    if (lut->rank != x->rank + 2)
        return compile_fail(c, ERR_FORMAT, "lut has rank %d for indices of rank %d", lut->rank, x->rank);
    entries = lut->dims[lut->rank - 2];
    vector = lut->dims[lut->rank - 1];
    if (!groups_fit(c, x->rank, x->dims, lut->dims) || !arg_int(c, op, "vector_axis", 0, &axis))
        return false;
    if (axis < 0)
        axis += x->rank;
    if (entries < 1 || vector < 1 || (vector > 1 && (axis < 0 || axis >= x->rank)))
        return compile_fail(c, ERR_FORMAT, "a lut that does not fit its indices");
    for (int k = 0; k < x->rank; k++)
        if (!longer_axis(c, x->dims[k], vector > 1 && k == axis ? vector : 1, &dims[k]))
            return false;
    if (!dense_new(c, out, x->rank, dims))
        return false;
    int64_t inner = 1; /* elements behind the vector axis */
    for (int k = (int)axis + 1; k < x->rank; k++)
        inner *= x->dims[k];
    for (int64_t i = 0; i < x->n_elems; i++) {
        double index = x->stored ? mil_value_element(x->stored, i) : (double)x->dense[i];
        if (!compile_goes_on(c, i))
            return false;
        if (!(index >= 0 && index < (double)entries))
            return compile_fail(c, ERR_FORMAT, "index %g into a table of %lld", index, (long long)entries);
        int64_t group = group_of(i, x->rank, x->dims, lut->dims);
        const float *entry = lut->p + (group * entries + (int64_t)index) * vector;
        if (vector == 1) {
            out->p[i] = entry[0];
            continue;
        }
        int64_t outer = i / inner, rest = i % inner;
        for (int64_t k = 0; k < vector; k++)
            out->p[(outer * vector + k) * inner + rest] = entry[k];
    }
    return true;
}

static bool eval_lut(struct compiler *c, const struct mil_op *op, struct dense *out, int depth)
{
    const struct mil_value *indices = parameter_value(op, "indices"), *shape = parameter_value(op, "shape");
    struct dense lut;
    int64_t dims[MIL_RANK_MAX];
    int n = 0;
    if (!indices || !indices->data)
        return compile_fail(c, ERR_FORMAT, "indices are not a constant");
    if (!need(c, op, "lut", &lut, depth))
        return false;
    if (!shape) {
        const struct mil_type *t = indices->type;
        return look_up(c, op, &(struct indices){indices, NULL, t->rank, t->dims, indices->n_elems}, &lut,
                       out);
    }
    /* ios16: one table, indices packed as bytes */
    int bits = lut.rank == 1 ? log2_exact(lut.n_elems) : -1;
    if (bits < 1 || !mil_value_ints(shape, dims, MIL_RANK_MAX, &n) || !dense_new(c, out, n, dims))
        return compile_fail(c, ERR_FORMAT, "a table or shape that is not understood");
    if ((int64_t)indices->bytes < (out->n_elems * bits + 7) / 8)
        return compile_fail(c, ERR_FORMAT, "%zu bytes of indices for %lld elements of %d bits",
                            indices->bytes, (long long)out->n_elems, bits);
    for (int64_t i = 0; i < out->n_elems; i++) {
        if (!compile_goes_on(c, i))
            return false;
        out->p[i] = lut.p[packed_bits(indices->data, i, bits)];
    }
    return true;
}

/* out = scale * (data - offset), scale and offset by block. */
static bool scale_blocks(struct compiler *c, const struct mil_op *op, const struct dense *data,
                         struct dense *out, int depth)
{
    struct dense scale, offset;
    bool has_offset;
    if (!need(c, op, "scale", &scale, depth) || !eval(c, op, "offset", &offset, &has_offset, depth))
        return false;
    if (scale.rank != data->rank || (has_offset && offset.n_elems != scale.n_elems))
        return compile_fail(c, ERR_FORMAT, "scale or offset do not fit data");
    if (!groups_fit(c, data->rank, data->dims, scale.dims) || !dense_new(c, out, data->rank, data->dims))
        return false;
    for (int64_t i = 0; i < data->n_elems; i++) {
        int64_t g = group_of(i, data->rank, data->dims, scale.dims);
        if (!compile_goes_on(c, i))
            return false;
        out->p[i] = scale.p[g] * (data->p[i] - (has_offset ? offset.p[g] : 0));
    }
    return true;
}

static bool eval_blockwise(struct compiler *c, const struct mil_op *op, struct dense *out, int depth)
{
    struct dense data;
    return need(c, op, "data", &data, depth) && scale_blocks(c, op, &data, out, depth);
}

static bool eval_affine(struct compiler *c, const struct mil_op *op, struct dense *out, int depth)
{
    struct dense data, scale, zero;
    bool has_zero;
    int64_t axis, inner = 1;
    if (!need(c, op, "quantized_data", &data, depth) || !need(c, op, "scale", &scale, depth) ||
        !eval(c, op, "zero_point", &zero, &has_zero, depth) || !arg_int(c, op, "axis", 0, &axis))
        return false;
    if (axis < 0)
        axis += data.rank;
    if (axis < 0 || axis >= data.rank || (scale.n_elems != 1 && scale.n_elems != data.dims[axis]) ||
        (has_zero && zero.n_elems != 1 && zero.n_elems != data.dims[axis]))
        return compile_fail(c, ERR_FORMAT, "scale or zero_point do not fit the axis");
    if (!dense_new(c, out, data.rank, data.dims))
        return false;
    for (int k = (int)axis + 1; k < data.rank; k++)
        inner *= data.dims[k];
    for (int64_t i = 0; i < data.n_elems; i++) {
        int64_t at = i / inner % data.dims[axis];
        float z = has_zero ? zero.p[zero.n_elems == 1 ? 0 : at] : 0;
        if (!compile_goes_on(c, i))
            return false;
        out->p[i] = scale.p[scale.n_elems == 1 ? 0 : at] * (data.p[i] - z);
    }
    return true;
}

/* ---- pruned weights: a mask and the elements that it keeps, in order ---- */

/* The elements that the mask keeps, put into their places in out; zeros elsewhere. */
static bool scatter(struct compiler *c, const struct dense *mask, const struct dense *kept, struct dense *out)
{
    int64_t at = 0;
    if (!dense_new(c, out, mask->rank, mask->dims))
        return false;
    for (int64_t i = 0; i < out->n_elems; i++) {
        if (!compile_goes_on(c, i))
            return false;
        if (mask->p[i] != 0 && at >= kept->n_elems)
            return compile_fail(c, ERR_FORMAT, "the mask keeps more than the %lld elements that there are",
                                (long long)kept->n_elems);
        out->p[i] = mask->p[i] != 0 ? kept->p[at++] : 0;
    }
    return at == kept->n_elems || compile_fail(c, ERR_FORMAT, "the mask keeps %lld elements, %lld are there",
                                               (long long)at, (long long)kept->n_elems);
}

/* The other way: out [kept elements]. */
static bool gather_kept(struct compiler *c, const struct dense *mask, const struct dense *from,
                        struct dense *out)
{
    int64_t n = 0;
    for (int64_t i = 0; i < mask->n_elems; i++) {
        if (!compile_goes_on(c, i))
            return false;
        n += mask->p[i] != 0;
    }
    if (mask->n_elems != from->n_elems || !dense_new(c, out, 1, &n))
        return compile_fail(c, ERR_FORMAT, "a mask that does not fit its weight");
    n = 0;
    for (int64_t i = 0; i < mask->n_elems; i++) {
        if (!compile_goes_on(c, i))
            return false;
        if (mask->p[i] != 0)
            out->p[n++] = from->p[i];
    }
    return true;
}

/* Each element of x `times` times along an axis. */
static bool repeat_axis(struct compiler *c, const struct dense *x, int axis, int64_t times, struct dense *out)
{
    int64_t dims[MIL_RANK_MAX + 2], inner = 1;
    for (int k = 0; k < x->rank; k++)
        if (!longer_axis(c, x->dims[k], k == axis ? times : 1, &dims[k]))
            return false;
    for (int k = axis + 1; k < x->rank; k++)
        inner *= x->dims[k];
    if (!dense_new(c, out, x->rank, dims))
        return false;
    for (int64_t i = 0; i < out->n_elems; i++) {
        if (!compile_goes_on(c, i))
            return false;
        out->p[i] = x->p[i / (inner * times) * inner + i % inner];
    }
    return true;
}

/* constexpr_lut_to_sparse: the mask, longer by the table's vectors, and the kept elements. */
static bool eval_lut_sparse(struct compiler *c, const struct mil_op *op, int i_output, struct dense *out,
                            int depth)
{
    struct dense mask, kept, indices, lut, weight, *wide = &mask, repeated;
    int64_t axis = 0;
    if (!need(c, op, "indices_mask", &mask, depth) || !need(c, op, "lut", &lut, depth))
        return false;
    int64_t vector = lut.rank > 0 ? lut.dims[lut.rank - 1] : 1;
    if (vector > 1) {
        if (!arg_int(c, op, "vector_axis", 0, &axis))
            return false;
        axis += axis < 0 ? mask.rank : 0;
        if (axis < 0 || axis >= mask.rank)
            return compile_fail(c, ERR_FORMAT, "a lut that does not fit its indices");
        if (!repeat_axis(c, &mask, (int)axis, vector, &repeated))
            return false;
        wide = &repeated;
    }
    if (i_output == 0) {
        *out = *wide;
        return true;
    }
    if (!need(c, op, "indices_nonzero_data", &kept, depth) || !scatter(c, &mask, &kept, &indices))
        return false;
    const struct indices x = {NULL, indices.p, indices.rank, indices.dims, indices.n_elems};
    return look_up(c, op, &x, &lut, &weight) && gather_kept(c, wide, &weight, out);
}

/* constexpr_sparse_blockwise_shift_scale: the same mask, and the kept elements. */
static bool eval_blockwise_sparse(struct compiler *c, const struct mil_op *op, int i_output,
                                  struct dense *out, int depth)
{
    struct dense mask, kept, data, weight;
    if (!need(c, op, "data_mask", &mask, depth))
        return false;
    if (i_output == 0) {
        *out = mask;
        return true;
    }
    return need(c, op, "nonzero_data", &kept, depth) && scatter(c, &mask, &kept, &data) &&
           scale_blocks(c, op, &data, &weight, depth) && gather_kept(c, &mask, &weight, out);
}

/* The mask as zeros and ones, packed in bytes (ios16) or a tensor. */
static bool eval_mask(struct compiler *c, const struct mil_op *op, struct dense *out, int depth)
{
    const struct mil_value *mask = parameter_value(op, "mask"), *shape = parameter_value(op, "shape");
    int64_t dims[MIL_RANK_MAX];
    int n = 0;
    if (!shape)
        return need(c, op, "mask", out, depth);
    if (!mask || !mask->data)
        return compile_fail(c, ERR_UNSUPPORTED, "mask is not a constant");
    if (!mil_value_ints(shape, dims, MIL_RANK_MAX, &n))
        return compile_fail(c, ERR_FORMAT, "shape is not a list of integers");
    if (!dense_new(c, out, n, dims))
        return false;
    if ((int64_t)mask->bytes < (out->n_elems + 7) / 8)
        return compile_fail(c, ERR_FORMAT, "the mask is shorter than the weight");
    for (int64_t i = 0; i < out->n_elems; i++) {
        if (!compile_goes_on(c, i))
            return false;
        out->p[i] = (float)packed_bits(mask->data, i, 1);
    }
    return true;
}

static bool eval_sparse(struct compiler *c, const struct mil_op *op, struct dense *out, int depth)
{
    struct dense mask, kept;
    return eval_mask(c, op, &mask, depth) && need(c, op, "nonzero_data", &kept, depth) &&
           scatter(c, &mask, &kept, out);
}

static bool eval_op(struct compiler *c, const struct mil_op *op, int i_output, struct dense *out, int depth)
{
    if (depth > 8)
        return compile_fail(c, ERR_LIMIT, "weights of weights nested too deeply");
    if (stop_requested(c->plan->stop))
        return stop_error(c->plan->stop, c->e);
    switch (op->info ? op->info->id : MIL_OP_NONE) {
    case MIL_OP_CONSTEXPR_LUT_TO_DENSE:
        return eval_lut(c, op, out, depth);
    case MIL_OP_CONSTEXPR_BLOCKWISE_SHIFT_SCALE:
        return eval_blockwise(c, op, out, depth);
    case MIL_OP_CONSTEXPR_AFFINE_DEQUANTIZE:
        return eval_affine(c, op, out, depth);
    case MIL_OP_CONSTEXPR_SPARSE_TO_DENSE:
        return eval_sparse(c, op, out, depth);
    case MIL_OP_CONSTEXPR_LUT_TO_SPARSE:
        return eval_lut_sparse(c, op, i_output, out, depth);
    case MIL_OP_CONSTEXPR_SPARSE_BLOCKWISE_SHIFT_SCALE:
        return eval_blockwise_sparse(c, op, i_output, out, depth);
    case MIL_OP_CONSTEXPR_CAST: {
        bool present;
        return eval(c, op, "source_val", out, &present, depth) &&
               (present || compile_fail(c, ERR_FORMAT, "no source_val"));
    }
    default:
        return compile_fail(c, ERR_UNSUPPORTED, "the engine does not expand %s", op->type);
    }
}

bool constexpr_dense(struct compiler *c, const struct mil_op *op, int i_output, struct value *out)
{
    const struct mil_type *t = var_type(c, op->outputs[i_output]);
    const struct mil_op *user = c->op;
    struct dense d;
    c->op = op;
    if (!eval_op(c, op, i_output, &d, 0))
        return false;
    bool fits = t->kind == MIL_TYPE_TENSOR && t->rank == d.rank && d.rank <= MIL_RANK_MAX;
    for (int i = 0; fits && i < d.rank; i++)
        fits = t->dims[i] == d.dims[i] || t->dims[i] == MIL_DIM_UNKNOWN;
    if (!fits || !mil_dtype_is_float(t->dtype))
        return compile_fail(c, ERR_FORMAT, "its declared type is not what its parameters give");
    /* Large ones as fp16, which is what the op yields; small ones as float. */
    enum repr repr = t->dtype == MIL_FP16 && d.n_elems > 65536 ? REPR_F16 : REPR_F32;
    void *data = NULL;
    if (!compile_take_memory(c, d.n_elems, repr == REPR_F16 ? 2 : 4) ||
        !(data = arena_try_alloc(c->arena, (size_t)d.n_elems + 16, repr == REPR_F16 ? 2 : 4, c->e)))
        return false;
    if (repr == REPR_F16)
        f32_to_f16_n(data, d.p, (size_t)d.n_elems);
    else if (t->dtype == MIL_FP16)
        for (int64_t i = 0; i < d.n_elems; i++)
            ((float *)data)[i] = f16_round(d.p[i]);
    else
        memcpy(data, d.p, sizeof(float) * (size_t)d.n_elems);
    int storage = storage_new(c, STORAGE_CONST, repr, d.n_elems);
    c->plan->storages[storage].data = data;
    *out = (struct value){.storage = storage, .repr = repr, .rank = d.rank};
    memcpy(out->dims, d.dims, sizeof(int64_t) * (size_t)t->rank);
    dense_strides(out->rank, out->dims, out->strides);
    c->op = user;
    return true;
}

/* ---- packed weights of linear steps ---- */

/* Whole numbers as kernels want them (kernel_fixed.h): the upper bytes, then the lower ones. */
static void put_entry(uint8_t *planes, int64_t entries, int64_t k, int value)
{
    planes[k] = (uint8_t)((unsigned)value >> 8 & 255);
    planes[entries + k] = (uint8_t)((unsigned)value & 255);
}

/* Entries as multiples of scale. */
static void fixed_entries(const float *entry, float scale, int64_t entries, uint8_t *planes)
{
    const double to_whole = 0x1.8p52; /* after adding it a double has no bits below one: ties go to even */
    for (int64_t k = 0; k < entries; k++) {
        double v = scale > 0.0f ? (double)entry[k] / (double)scale : 0.0;
        int q = (int)((v + to_whole) - to_whole);
        q = q > FIXED_MAX ? FIXED_MAX : q < -FIXED_MAX ? -FIXED_MAX : q;
        put_entry(planes, entries, k, q);
    }
}

/* Rows [n_out] of the table's groups: lut [groups, 1, .., 2^bits, 1]; byte planes and scales in the plan's
 * arena. */
static bool fixed_lut(struct compiler *c, const struct mil_op *op, int64_t n_out, int64_t n_in,
                      struct fixed_weight *w)
{
    const struct mil_value *indices = parameter_value(op, "indices"), *lut = parameter_value(op, "lut");
    const struct mil_value *shape = parameter_value(op, "shape");
    if (!indices || !lut || !indices->data || !lut->data || !mil_dtype_is_float(lut->type->dtype) ||
        n_out < 1 || n_in < 1)
        return false;
    int64_t groups = 1, entries;
    if (shape) {
        entries = lut->type->rank == 1 ? lut->n_elems : 0;
    } else {
        const struct mil_type *t = lut->type;
        if (t->rank < 3 || t->rank != indices->type->rank + 2 || t->dims[t->rank - 1] != 1)
            return false;
        groups = t->dims[0];
        entries = t->dims[t->rank - 2];
        for (int k = 1; k < t->rank - 2; k++)
            if (t->dims[k] != 1)
                return false;
    }
    int bits = log2_exact(entries);
    bool known = bits == 1 || bits == 2 || bits == 3 || bits == 4 || bits == 6 || bits == 8;
    if (!known || groups < 1 || n_out % groups != 0 ||
        (!shape && mil_dtype_bits(indices->type->dtype) != bits) ||
        (int64_t)indices->bytes < (n_out * n_in * bits + 7) / 8 || lut->n_elems != groups * entries)
        return false;
    uint8_t *tables = arena_try_alloc(c->arena, (size_t)groups, (size_t)(2 * entries), c->e);
    float *scales = arena_try_alloc(c->arena, (size_t)groups, sizeof(float), c->e);
    if (!tables || !scales)
        return false;
    bool is_aligned_f16 = lut->type->dtype == MIL_FP16 && (uintptr_t)lut->data % sizeof(f16) == 0 &&
                          lut->bytes >= (size_t)lut->n_elems * sizeof(f16);
    for (int64_t g = 0; g < groups; g++) {
        float entry[256], most = 0.0f;
        if (is_aligned_f16)
            c->plan->kernels->f16_to_f32(entry, (const f16 *)(const void *)lut->data + g * entries, entries);
        else
            mil_value_floats(entry, lut, g * entries, entries);
        for (int64_t k = 0; k < entries; k++) {
            if (!isfinite(entry[k]))
                return false;
            most = fabsf(entry[k]) > most ? fabsf(entry[k]) : most;
        }
        scales[g] = (float)((double)most / FIXED_MAX);
        fixed_entries(entry, scales[g], entries, tables + g * 2 * entries);
    }
    w->bits = bits;
    w->indices = indices->data;
    w->tables = tables;
    w->table_stride = 2 * entries;
    w->rows_per_group = w->rows_per_scale = n_out / groups;
    w->scales = scales;
    return true;
}

/* int8 or int4 with one scale per row, per tensor, or per block of columns; no offset. */
static bool fixed_blockwise(struct compiler *c, const struct mil_op *op, int64_t n_out, int64_t n_in,
                            struct fixed_weight *w)
{
    const struct mil_value *data = parameter_value(op, "data"), *scale = parameter_value(op, "scale");
    struct mil_binding attribute;
    if (!data || !scale || !data->data || !scale->data || parameter(op, "offset", &attribute))
        return false;
    const struct mil_type *t = scale->type;
    int bits = data->type->dtype == MIL_INT8 ? 8 : data->type->dtype == MIL_INT4 ? 4 : 0;
    if (bits == 0 || t->rank < 2 || (t->dims[0] != 1 && t->dims[0] != n_out) || n_in % t->dims[1] != 0)
        return false;
    for (int k = 2; k < t->rank; k++)
        if (t->dims[k] != 1)
            return false;
    int64_t block = n_in / t->dims[1];
    if (t->dims[1] > 1 && (t->dims[0] != n_out || block % 16 != 0 || (256 % block != 0 && block % 256 != 0)))
        return false;
    float *scales = arena_try_alloc(c->arena, (size_t)scale->n_elems, sizeof(float), c->e);
    uint8_t *table = arena_alloc(c->arena, (size_t)2 << bits);
    if (!scales)
        return false;
    mil_value_floats(scales, scale, 0, scale->n_elems);
    for (int k = 0; k < 1 << bits; k++)
        put_entry(table, (int64_t)1 << bits, k, k < 1 << (bits - 1) ? k : k - (1 << bits));
    w->bits = bits;
    w->indices = data->data;
    w->tables = table;
    w->table_stride = 0;
    w->rows_per_group = n_out;
    w->scales = scales;
    w->rows_per_scale = t->dims[0] == 1 ? n_out : 1;
    w->scale_block = t->dims[1] > 1 ? block : 0;
    return true;
}

const struct fixed_weight *constexpr_fixed(struct compiler *c, const struct mil_op *op, int64_t n_out,
                                           int64_t n_in)
{
    struct fixed_weight w = {.n_out = n_out, .n_in = n_in};
    enum mil_op_id id = op->info ? op->info->id : MIL_OP_NONE;
    bool ok = false;
    /* A program that computes in float32 asked for more than 14-bit weights give. */
    if (c->plan->precision != ENGINE_DEFAULT || var_type(c, op->outputs[0])->dtype != MIL_FP16)
        return NULL;
    if (id == MIL_OP_CONSTEXPR_LUT_TO_DENSE)
        ok = fixed_lut(c, op, n_out, n_in, &w);
    else if (id == MIL_OP_CONSTEXPR_BLOCKWISE_SHIFT_SCALE)
        ok = fixed_blockwise(c, op, n_out, n_in, &w);
    return ok ? arena_copy(c->arena, &w, sizeof w) : NULL;
}
