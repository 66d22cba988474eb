/* Forms of stored weights. */
#include <string.h>
#include "lint/checks.h"

/* Data of an op that expands weights. */
struct packed {
    const struct mil_type *data, *parameter; /* codes; scale or tables */
    int bits;
};

static bool packed_of(struct packed *p, const struct mil_op *op, const char *data, const char *parameter)
{
    p->data = lint_arg_type(op, data);
    p->parameter = lint_arg_type(op, parameter);
    p->bits = p->data ? mil_dtype_bits(p->data->dtype) : 0;
    return p->data && p->parameter;
}

/* Scales along any axis but the first: blocks of the sum. */
static bool has_inner_scales(const struct packed *p)
{
    for (int i = 1; i < p->parameter->rank && p->parameter->rank == p->data->rank; i++)
        if (p->parameter->dims[i] > 1)
            return true;
    return false;
}

void lint_check_inner_scales(struct lint_scan *s)
{
    for (int i = 0; i < s->function->n_ops; i++) {
        const struct mil_op *op = s->function->ops[i];
        struct packed p;
        if (mil_op_is(op, "constexpr_blockwise_shift_scale") && packed_of(&p, op, "data", "scale") &&
            mil_dtype_is_integer(p.data->dtype) && has_inner_scales(&p))
            lint_add(s, s->rule->severity, op, "%s of %d bits with %lld scales along the sum", op->type,
                     p.bits, (long long)p.parameter->dims[1]);
    }
}

static void check_row_scales(struct lint_scan *s, int bits)
{
    for (int i = 0; i < s->function->n_ops; i++) {
        const struct mil_op *op = s->function->ops[i];
        struct packed p;
        bool is_affine = mil_op_is(op, "constexpr_affine_dequantize");
        bool is_found = is_affine ? packed_of(&p, op, "quantized_data", "scale")
                                  : mil_op_is(op, "constexpr_blockwise_shift_scale") &&
                                        packed_of(&p, op, "data", "scale") && !has_inner_scales(&p);
        if (is_found && p.bits == bits)
            lint_add(s, s->rule->severity, op, "%s of %s, scales per %s", op->type,
                     mil_dtype_name(p.data->dtype), mil_type_elems(p.parameter) > 1 ? "row" : "tensor");
    }
}

void lint_check_int8(struct lint_scan *s)
{
    check_row_scales(s, 8);
}

void lint_check_int4(struct lint_scan *s)
{
    check_row_scales(s, 4);
}

static bool table_of(struct packed *p, const struct mil_op *op)
{
    return mil_op_is(op, "constexpr_lut_to_dense") && packed_of(p, op, "indices", "lut") &&
           p->parameter->rank == p->data->rank + 2;
}

static bool is_made_by(const struct mil_op *op, const char *arg, const char *type)
{
    const struct mil_var *v = mil_arg_var(op, arg);
    return v && v->op && mil_op_is(v->op, type);
}

void lint_check_table_and_scale(struct lint_scan *s)
{
    static const char scale[] = "constexpr_blockwise_shift_scale", table[] = "constexpr_lut_to_dense";
    for (int i = 0; i < s->function->n_ops; i++) {
        const struct mil_op *op = s->function->ops[i];
        if (mil_op_is(op, scale) && is_made_by(op, "data", table))
            lint_add(s, s->rule->severity, op, "a table and a scale behind it");
        else if (mil_op_is(op, table) && is_made_by(op, "lut", scale))
            lint_add(s, s->rule->severity, op, "a table whose entries are scaled");
    }
}

void lint_check_table_rows(struct lint_scan *s)
{
    for (int i = 0; i < s->function->n_ops; i++) {
        const struct mil_op *op = s->function->ops[i];
        struct packed p;
        if (!table_of(&p, op) || p.data->rank < 1 || p.parameter->dims[0] < 2)
            continue;
        int64_t rows = p.data->dims[0] / p.parameter->dims[0];
        if (rows == 1 || rows == 2)
            lint_add(s, s->rule->severity, op, "a table for each %s: about %s of the speed",
                     rows == 1 ? "row" : "2 rows", rows == 1 ? "0.45" : "0.75");
    }
}

void lint_check_table_gathered(struct lint_scan *s)
{
    for (int i = 0; i < s->function->n_ops; i++) {
        const struct mil_op *op = s->function->ops[i];
        const struct mil_op *x = mil_op_is(op, "gather") ? lint_arg_maker(op, "x") : NULL;
        if (x && mil_op_is(x, "constexpr_lut_to_dense"))
            lint_add(s, s->rule->severity, op, "gather reads a palettized table of %lld elements",
                     (long long)mil_type_elems(lint_output_type(x)));
    }
}

void lint_check_three_bits(struct lint_scan *s)
{
    for (int i = 0; i < s->function->n_ops; i++) {
        struct packed p;
        if (table_of(&p, s->function->ops[i]) && p.data->dtype == MIL_UINT3)
            lint_add(s, s->rule->severity, s->function->ops[i], "indices of 3 bits");
    }
}

/* The stream of weights that the first write-up measured: a sixteenth of the rows, rounded up, a core. */
void lint_check_stream_size(struct lint_scan *s)
{
    const int64_t mebi = 1 << 20, near = 16 << 10;
    for (int i = 0; i < s->function->n_ops; i++) {
        const struct mil_op *op = s->function->ops[i];
        bool is_product = mil_op_is(op, "conv") || mil_op_is(op, "linear");
        const struct mil_op *w = is_product ? lint_arg_maker(op, "weight") : NULL;
        const struct mil_type *t = w && mil_op_is(w, "const") ? lint_arg_type(op, "weight") : NULL;
        int64_t n = t ? mil_type_elems(t) : -1;
        if (n <= 0 || t->dtype != MIL_FP16 || t->rank < 2)
            continue;
        int64_t bytes = (t->dims[0] + 15) / 16 * (n / t->dims[0]) * 2, rest = bytes % mebi;
        if (bytes > mebi - near && (rest <= near || mebi - rest <= near))
            lint_add(s, s->rule->severity, op, "fp16 weight [%lld, %lld]: %lld bytes a core",
                     (long long)t->dims[0], (long long)(n / t->dims[0]), (long long)bytes);
    }
}

void lint_check_sparse(struct lint_scan *s)
{
    for (int i = 0; i < s->function->n_ops; i++) {
        const struct mil_op *op = s->function->ops[i];
        struct packed p;
        bool is_vector = table_of(&p, op) && p.parameter->dims[p.parameter->rank - 1] > 1;
        if (is_vector || strncmp(op->type, "constexpr_sparse", 16) == 0 ||
            mil_op_is(op, "constexpr_lut_to_sparse"))
            lint_add(s, s->rule->severity, op, is_vector ? "%s with vectors in its table" : "%s", op->type);
    }
}

void lint_check_table_blocks(struct lint_scan *s)
{
    for (int i = 0; i < s->function->n_ops; i++) {
        const struct mil_op *op = s->function->ops[i];
        struct packed p;
        if (!table_of(&p, op))
            continue;
        int n_axes = 0;
        for (int k = 0; k < p.data->rank; k++)
            n_axes += p.parameter->dims[k] > 1;
        if (n_axes > 1)
            lint_add(s, LINT_ERROR, op, "tables along %d axes", n_axes);
        else if (mil_dtype_is_integer(p.parameter->dtype))
            lint_add(s, LINT_WARNING, op, "a table of %s", mil_dtype_name(p.parameter->dtype));
    }
}
