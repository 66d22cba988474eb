/* What metadata.json says of a program's numbers: which types it computes with, and which it stores. */
#include <stdio.h>
#include <string.h>
#include "mil/metadata_internal.h"
#include "mil/ops.h"

/* ---- names of types ---- */

const char *precision_name(enum mil_dtype d)
{
    static const char *const names[MIL_DTYPES] = {
        [MIL_FP16] = "Float16",
        [MIL_FP32] = "Float32",
        [MIL_FP64] = "Float64",
        [MIL_BF16] = "BFloat16",
        [MIL_INT4] = "Int4",
        [MIL_INT8] = "Int8",
        [MIL_INT16] = "Int16",
        [MIL_INT32] = "Int32",
        [MIL_INT64] = "Int64",
        [MIL_UINT1] = "UInt1",
        [MIL_UINT2] = "UInt2",
        [MIL_UINT3] = "UInt3",
        [MIL_UINT4] = "UInt4",
        [MIL_UINT6] = "UInt6",
        [MIL_UINT8] = "UInt8",
        [MIL_UINT16] = "UInt16",
        [MIL_UINT32] = "UInt32",
        [MIL_UINT64] = "UInt64",
        [MIL_FP8E4M3FN] = "Float8E4M3FN",
        [MIL_FP8E5M2] = "Float8E5M2",
    };

    return (int)d > 0 && d < MIL_DTYPES ? names[d] : NULL; /* NULL: bool, string */
}

/* ---- sets of precisions ---- */

static void set_add(struct precision_set *s, const char *name)
{
    int i = 0;

    if (!name || s->n == PRECISION_SET_MAX)
        return;
    while (i < s->n && strcmp(s->names[i], name) < 0)
        i++;
    if (i < s->n && strcmp(s->names[i], name) == 0)
        return;
    memmove(s->names[i + 1], s->names[i], sizeof s->names[0] * (size_t)(s->n - i));
    snprintf(s->names[i], sizeof s->names[i], "%s", name);
    s->n++;
}

static void add_type(struct precision_set *s, const struct mil_type *t)
{
    t = mil_type_tensor(t);
    if (t && t->kind == MIL_TYPE_TENSOR)
        set_add(s, precision_name(t->dtype));
}

/* Element types that operations compute with: results, and operands except those of a cast. */
void precisions_computed(const struct mil_block *b, struct precision_set *s)
{
    for (int i = 0; i < b->n_ops; i++) {
        const struct mil_op *op = b->ops[i];
        if (strcmp(op->type, "const") == 0 || strncmp(op->type, "constexpr_", 10) == 0)
            continue;
        for (int k = 0; k < op->n_outputs; k++)
            add_type(s, op->outputs[k]->type);
        for (int k = 0; k < op->n_args && strcmp(op->type, "cast") != 0; k++) {
            for (int n = 0; n < op->args[k].n; n++) {
                const struct mil_binding *a = &op->args[k].bindings[n];
                add_type(s, a->var ? a->var->type : a->value ? a->value->type : NULL);
            }
        }
        if (strcmp(op->type, "classify") == 0)
            set_add(s, "Float64");
        for (int k = 0; k < op->n_blocks; k++)
            precisions_computed(op->blocks[k], s);
    }
}

/* ---- storage ---- */

static const struct mil_value *parameter(const struct mil_op *op, const char *name)
{
    const struct mil_value *v = mil_attribute(op, name);

    return v ? v : mil_arg_value(op, name);
}

static bool is_stored(const struct mil_value *v)
{
    return v && (v->kind == MIL_VALUE_BLOB || v->kind == MIL_VALUE_WEIGHT);
}

static void add_palette(struct precision_set *s, const struct mil_op *op, const struct mil_value *indices)
{
    const struct mil_value *lut = parameter(op, "lut");
    char name[32];
    int64_t entries = 0;
    int bits = 0;

    /* one axis in iOS 16; since iOS 18 the entries are on the last axis but one */
    if (lut && lut->type && lut->type->kind == MIL_TYPE_TENSOR && lut->type->rank > 0)
        entries = lut->type->dims[lut->type->rank > 1 ? lut->type->rank - 2 : 0];
    while (bits < 16 && (INT64_C(1) << bits) < entries)
        bits++;
    snprintf(name, sizeof name, "Palettized (%d bits)", bits);
    set_add(s, name);
    if (mil_type_tensor(indices->type)->dtype != MIL_UINT8 || (lut && lut->type->rank > 1))
        add_type(s, indices->type);
}

static void storage_of_op(const struct mil_op *op, struct precision_set *s)
{
    static const struct {
        const char *type, *data;
    } compressed[] = {{"constexpr_affine_dequantize", "quantized_data"},
                      {"constexpr_blockwise_shift_scale", "data"},
                      {"constexpr_cast", "source_val"},
                      {"constexpr_lut_to_dense", "indices"},
                      {"constexpr_lut_to_sparse", "indices_nonzero_data"},
                      {"constexpr_sparse_to_dense", "nonzero_data"},
                      {"constexpr_sparse_blockwise_shift_scale", "nonzero_data"}};

    for (size_t i = 0; i < sizeof compressed / sizeof compressed[0]; i++) {
        if (strcmp(op->type, compressed[i].type) != 0)
            continue;
        const struct mil_value *data = parameter(op, compressed[i].data);
        if (!is_stored(data))
            return;
        if (strstr(op->type, "lut"))
            add_palette(s, op, data);
        else if (!strstr(op->type, "sparse"))
            add_type(s, data->type);
        if (strstr(op->type, "sparse"))
            set_add(s, "Sparse");
        return;
    }
    for (int i = 0; i < op->n_attributes; i++)
        if (is_stored(op->attributes[i].value))
            add_type(s, op->attributes[i].value->type);
    for (int i = 0; i < op->n_args; i++)
        for (int k = 0; k < op->args[i].n; k++)
            if (is_stored(op->args[i].bindings[k].value))
                add_type(s, op->args[i].bindings[k].value->type);
}

void precisions_stored(const struct mil_block *b, struct precision_set *s)
{
    for (int i = 0; i < b->n_ops; i++) {
        storage_of_op(b->ops[i], s);
        for (int k = 0; k < b->ops[i]->n_blocks; k++)
            precisions_stored(b->ops[i]->blocks[k], s);
    }
}
