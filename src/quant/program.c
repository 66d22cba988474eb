/* Turning the weights of a built program into quantized ones: which ones, in what grid, and the ops. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "mil/ops.h"
#include "quant/quant.h"

/* Work of a unit, in values: some milliseconds. */
#define UNIT_VALUES ((int64_t)256 << 10)
#define FEW_INPUTS 256
#define ROWS_OF_FEW_INPUTS 4 /* for each of them */
#define BITS_OF_FEW_INPUTS 6
#define GROUP_VALUES_MAX (((int64_t)1 << 32) - 1) /* values are counted in 32 bits */

int64_t quant_divisor(int64_t n, int64_t wish)
{
    if (wish < 1 || wish >= n)
        return n;
    int64_t best = 1;
    /* Divisors come in pairs, one of which is at most the root of n. */
    for (int64_t d = 1; d * d <= n; d++) {
        if (n % d != 0)
            continue;
        if (d <= wish && d > best)
            best = d;
        if (n / d <= wish && n / d > best)
            best = n / d;
    }
    return best;
}

/* ---- choosing ---- */

struct chooser {
    struct mil_model *model;
    unsigned which;
    struct table *chosen; /* by address of the value: the quant_weight */
    struct quant_weight **list;
    int n;
    size_t capacity;
};

static void key_of(char key[32], const void *p)
{
    snprintf(key, 32, "%p", p);
}

static bool is_plain_conv(const struct mil_op *op)
{
    int64_t groups = 1;
    int n = 1;
    const struct mil_value *v = mil_arg_value(op, "groups");
    return mil_op_is(op, "conv") && (!v || (mil_value_ints(v, &groups, 1, &n) && n == 1 && groups == 1));
}

/* The argument that holds the weight of this op, if any. */
static const char *weight_argument(const struct mil_op *op, unsigned which)
{
    if ((which & QUANT_LINEAR) && (is_plain_conv(op) || mil_op_is(op, "linear")))
        return "weight";
    if ((which & QUANT_TABLES) && mil_op_is(op, "gather"))
        return "x";
    return NULL;
}

static const struct mil_value *chosen_value(const struct mil_op *op, unsigned which)
{
    const char *argument = weight_argument(op, which);
    const struct mil_var *var = argument ? mil_arg_var(op, argument) : NULL;
    if (!var || !var->op || !mil_op_is(var->op, "const"))
        return NULL;
    const struct mil_value *v = mil_attribute(var->op, "val");
    if (!v || v->kind != MIL_VALUE_WEIGHT || v->type->dtype != MIL_FP16 || v->type->rank < 2 ||
        v->weight->keep_fp16)
        return NULL;
    /* A kernel of one position; a row per output channel. */
    for (int i = 2; i < v->type->rank; i++) {
        if (v->type->dims[i] != 1)
            return NULL;
    }
    return v;
}

static void add_weight(struct chooser *c, const struct mil_value *v)
{
    char key[32];
    key_of(key, v);
    if (table_get(c->chosen, key))
        return;
    struct quant_weight *w = ARENA_NEW(c->model->arena, struct quant_weight);
    w->name = v->weight->name;
    for (int i = 0; i < c->n; i++)
        w->ordinal += strcmp(c->list[i]->name, w->name) == 0;
    w->source = v;
    w->rows = v->type->dims[0];
    w->columns = v->type->dims[1];
    (void)table_put(c->chosen, key, w);
    c->list = mem_grow(c->list, (size_t)c->n, &c->capacity, sizeof *c->list);
    c->list[c->n++] = w;
}

/* ---- grid ---- */

static enum mil_dtype index_type(int bits)
{
    switch (bits) {
    case 1:
        return MIL_UINT1;
    case 2:
        return MIL_UINT2;
    case 3:
        return MIL_UINT3;
    case 4:
        return MIL_UINT4;
    case 6:
        return MIL_UINT6;
    case 8:
        return MIL_UINT8;
    default:
        return MIL_DTYPE_NONE;
    }
}

static void place_units(struct quant_weight *w, int64_t rows, int bits)
{
    int64_t step = rows;
    /* Eight groups end at a whole byte, fewer where their codes do. */
    while (step * w->columns % 8 * bits % 8 != 0)
        step += rows;
    int64_t n = UNIT_VALUES / w->columns / step;
    w->rows_per_unit = n > 1 ? n * step : step;
    w->n_units = w->rows / w->rows_per_unit + (w->rows % w->rows_per_unit != 0);
}

static bool unproducible(const struct mil_weight *w, int64_t begin, int64_t n, void *dst, struct err *e)
{
    (void)begin;
    (void)n;
    (void)dst;
    return err_set(e, ERR_BUG, "%s: codes and tables are made together, by units", w->name);
}

const struct quant_weight *quant_weight_of(const struct mil_value *v)
{
    return v->kind == MIL_VALUE_WEIGHT && v->weight->produce == unproducible ? v->weight->context : NULL;
}

static struct mil_value *new_value(struct arena *a, const struct quant_weight *w, enum mil_dtype d, int rank,
                                   const int64_t *dims)
{
    struct mil_value *v = ARENA_NEW(a, struct mil_value);
    struct mil_weight *weight = ARENA_NEW(a, struct mil_weight);
    weight->name = w->name;
    weight->produce = unproducible;
    weight->context = w;
    v->kind = MIL_VALUE_WEIGHT;
    v->type = mil_type_new_tensor(a, d, rank, dims);
    v->n_elems = mil_type_elems(v->type);
    v->bytes = (size_t)mil_type_bytes(v->type);
    v->weight = weight;
    return v;
}

static bool plan_weight(struct arena *a, struct quant_weight *w, const struct quant_spec *spec, struct err *e)
{
    int rank = w->source->type->rank;
    int64_t dims[MIL_RANK_MAX + 2];
    w->spec = *spec;
    for (int i = 0; i < rank + 2; i++)
        dims[i] = 1;
    if (rank + 2 > MIL_RANK_MAX)
        return err_set(e, ERR_BUG, "%s: a weight of rank %d", w->name, rank);
    if (spec->kind == QUANT_LUT) {
        w->spec.group = quant_divisor(w->rows, spec->group);
        if (w->spec.group > GROUP_VALUES_MAX / w->columns)
            return err_set(e, ERR_LIMIT, "%s: %lld rows of %lld values can't share a table", w->name,
                           (long long)w->spec.group, (long long)w->columns);
        dims[0] = w->rows / w->spec.group;
        dims[rank] = (int64_t)1 << spec->bits;
        w->codes = new_value(a, w, index_type(spec->bits), rank, w->source->type->dims);
        w->table = new_value(a, w, MIL_FP16, rank + 2, dims);
        place_units(w, w->spec.group, spec->bits);
    } else if (spec->kind == QUANT_INT8) {
        w->spec.group = quant_divisor(w->rows, spec->group);
        dims[0] = w->rows / w->spec.group;
        w->codes = new_value(a, w, MIL_INT8, rank, w->source->type->dims);
        w->table = new_value(a, w, MIL_FP16, rank, dims);
        place_units(w, w->spec.group, 8);
    } else {
        w->spec.block = quant_divisor(w->columns, spec->block);
        dims[0] = w->rows;
        dims[1] = w->columns / w->spec.block;
        w->codes = new_value(a, w, MIL_INT4, rank, w->source->type->dims);
        w->table = new_value(a, w, MIL_FP16, rank, dims);
        place_units(w, 1, 4);
    }
    return true;
}

/* ---- ops ---- */

/* A const op becomes one that expands: same name, same variable. */
static void replace_op(struct arena *a, struct mil_op *op, const struct quant_weight *w)
{
    bool is_lut = w->spec.kind == QUANT_LUT;
    op->info =
        mil_op_info_by_id(is_lut ? MIL_OP_CONSTEXPR_LUT_TO_DENSE : MIL_OP_CONSTEXPR_BLOCKWISE_SHIFT_SCALE);
    op->type = op->info->name;
    op->n_args = 2;
    op->args = ARENA_ARRAY(a, struct mil_arg, 2);
    const struct mil_value *values[2] = {w->codes, w->table};
    static const char *const names[2][2] = {{"data", "scale"}, {"indices", "lut"}};
    for (int i = 0; i < 2; i++) {
        op->args[i].name = names[is_lut][i];
        op->args[i].n = 1;
        op->args[i].bindings = ARENA_NEW(a, struct mil_binding);
        op->args[i].bindings[0].value = values[i];
    }
    struct mil_named_value *name = ARENA_NEW(a, struct mil_named_value);
    int n = 0;
    for (int i = 0; i < op->n_attributes; i++) {
        if (strcmp(op->attributes[i].name, "name") == 0) {
            *name = op->attributes[i];
            n = 1;
        }
    }
    op->attributes = name;
    op->n_attributes = n;
}

static void choose_in(struct chooser *c, const struct mil_function *f)
{
    for (int i = 0; i < f->block->n_ops; i++) {
        const struct mil_value *v = chosen_value(f->block->ops[i], c->which);
        if (v)
            add_weight(c, v);
    }
}

static void replace_in(struct chooser *c, struct mil_function *f)
{
    char key[32];
    for (int i = 0; i < f->block->n_ops; i++) {
        struct mil_op *op = f->block->ops[i];
        const struct mil_value *v = mil_op_is(op, "const") ? mil_attribute(op, "val") : NULL;
        if (!v)
            continue;
        key_of(key, v);
        struct quant_weight *w = table_get(c->chosen, key);
        if (w)
            replace_op(c->model->arena, op, w);
    }
}

/* With few inputs there is little that errors could be undone with, and little to save. Only of methods that look at inputs, whose
 * palettes of other weights are so good that these would make most of the loss. */
static bool has_few_inputs(const struct quant_weight *w, const struct quant_spec *spec)
{
    return spec->kind == QUANT_LUT && quant_method_needs(spec->method) == QUANT_NEEDS_INPUTS &&
           w->columns <= FEW_INPUTS && w->columns * ROWS_OF_FEW_INPUTS <= w->rows;
}

bool quant_apply(struct mil_model *m, const struct quant_spec *spec, const struct quant_choices *choices,
                 unsigned which, struct quant_weight ***out, int *n, struct err *e)
{
    struct chooser c = {.model = m, .which = which, .chosen = table_new()};
    bool ok = true;
    *out = NULL;
    *n = 0;
    for (int i = 0; i < m->program->n_functions; i++)
        choose_in(&c, m->program->functions[i]);
    for (int i = 0; i < c.n && ok; i++) {
        struct quant_spec own = *spec;
        const struct quant_choice *choice =
            choices ? quant_find_choice(choices, c.list[i]->name, c.list[i]->ordinal) : NULL;
        if (choice)
            own.bits = choice->bits;
        else if (has_few_inputs(c.list[i], spec) && own.bits < BITS_OF_FEW_INPUTS)
            own.bits = BITS_OF_FEW_INPUTS;
        ok = plan_weight(m->arena, c.list[i], &own, e);
    }
    for (int i = 0; i < m->program->n_functions && ok; i++)
        replace_in(&c, m->program->functions[i]);
    if (ok && c.n > 0) {
        *out = arena_copy(m->arena, c.list, (size_t)c.n * sizeof *c.list);
        *n = c.n;
    }
    free(c.list);
    table_free(c.chosen);
    return ok;
}
