/* Bytes and operations of functions. */
#include "device/cost.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "device/support.h"

static double type_bytes(const struct mil_type *t)
{
    int64_t bytes = t ? mil_type_bytes(mil_type_tensor(t)) : 0;
    return bytes > 0 ? (double)bytes : 0;
}

struct sum {
    struct table *seen;
    double bytes;
};

static void add_value(struct sum *s, const struct mil_value *v)
{
    if (!v || v->kind != MIL_VALUE_BLOB)
        return;
    char *key = xasprintf("%" PRIu64 " in %s", v->offset, v->file ? v->file : "");
    if (table_put(s->seen, key, s))
        s->bytes += type_bytes(v->type);
    free(key);
}

static void add_op_values(struct sum *s, const struct mil_op *op)
{
    for (int k = 0; k < op->n_attributes; k++)
        add_value(s, op->attributes[k].value);
    for (int k = 0; k < op->n_args; k++)
        for (int n = 0; n < op->args[k].n; n++)
            add_value(s, op->args[k].bindings[n].value);
}

double device_op_weight_bytes(const struct mil_op *op)
{
    struct sum s = {.seen = table_new()};
    for (int k = 0; k < op->n_args; k++)
        for (int n = 0; n < op->args[k].n; n++) {
            const struct mil_var *v = op->args[k].bindings[n].var;
            if (v && v->op && device_is_constant(v->op))
                add_op_values(&s, v->op);
        }
    table_free(s.seen);
    return s.bytes;
}

static const struct mil_type *arg_type(const struct mil_op *op, const char *name)
{
    const struct mil_arg *a = mil_arg_find(op, name);
    const struct mil_type *t = NULL;
    if (a && a->n == 1)
        t = a->bindings[0].var ? a->bindings[0].var->type : a->bindings[0].value->type;
    t = t ? mil_type_tensor(t) : NULL;
    return t && t->kind == MIL_TYPE_TENSOR ? t : NULL;
}

double device_op_multiplies(const struct mil_op *op)
{
    const struct mil_type *out = op->n_outputs > 0 ? mil_type_tensor(op->outputs[0]->type) : NULL;
    bool is_product = mil_op_is(op, "conv") || mil_op_is(op, "linear");
    const struct mil_type *w = arg_type(op, is_product ? "weight" : "x");
    if (!out || out->kind != MIL_TYPE_TENSOR || !w || w->rank < 2)
        return 0;
    double n_out = (double)mil_type_elems(out), n_w = (double)mil_type_elems(w);
    if (n_out <= 0 || n_w <= 0)
        return 0;
    if (is_product)
        return n_out * n_w / (double)w->dims[0];
    if (!mil_op_is(op, "matmul"))
        return 0;
    double flag = 0;
    (void)mil_value_float(mil_arg_value(op, "transpose_x"), &flag);
    return n_out * (double)w->dims[w->rank - 1 - (flag != 0)];
}

double device_weight_bytes(const struct mil_model *m)
{
    struct sum s = {.seen = table_new()};
    for (int i = 0; i < m->program->n_functions; i++) {
        const struct mil_block *b = m->program->functions[i]->block;
        for (int k = 0; b && k < b->n_ops; k++)
            add_op_values(&s, b->ops[k]);
    }
    table_free(s.seen);
    return s.bytes;
}

/* Rows that share a table of a palette. */
static int rows_per_table(const struct mil_op *op)
{
    const struct mil_type *data, *lut;
    if (!mil_op_is(op, "constexpr_lut_to_dense"))
        return 0;
    data = arg_type(op, "indices");
    lut = arg_type(op, "lut");
    bool has_groups = data && lut && lut->rank == data->rank + 2 && data->rank > 0 && lut->dims[0] > 1;
    return has_groups ? (int)(data->dims[0] / lut->dims[0]) : 0;
}

struct device_cost device_function_cost(const struct mil_function *f)
{
    struct device_cost c = {0};
    struct sum s = {.seen = table_new()};
    for (int i = 0; i < f->n_inputs; i++)
        if (f->inputs[i]->type->kind == MIL_TYPE_STATE)
            c.state_bytes += type_bytes(f->inputs[i]->type);
    for (int i = 0; f->block && i < f->block->n_ops; i++) {
        const struct mil_op *op = f->block->ops[i];
        int rows = rows_per_table(op);
        add_op_values(&s, op);
        c.n_ops += !device_is_constant(op);
        c.multiplies += device_op_multiplies(op);
        if (rows > 0 && (c.rows_per_table == 0 || rows < c.rows_per_table))
            c.rows_per_table = rows;
    }
    c.weight_bytes = s.bytes;
    table_free(s.seen);
    return c;
}

bool device_looks_up_only(const struct mil_function *f)
{
    bool gathers = false;
    for (int i = 0; f->block && i < f->block->n_ops; i++) {
        const struct mil_op *op = f->block->ops[i];
        gathers = gathers || mil_op_is(op, "gather");
        if (device_op_multiplies(op) > 0)
            return false;
    }
    return gathers;
}
