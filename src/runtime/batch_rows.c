/* Parts of programs as programs: ops are copied, weights stay where they are mapped. */
#include "runtime/batch_rows.h"
#include <stdlib.h>
#include <string.h>
#include "format/contract.h"
#include "mil/ops.h"

/* What is copied of a function. */
struct part {
    struct arena *arena;
    const struct mil_function *from;
    struct mil_function *to;
    struct mil_var **vars;       /* [from->n_vars]: the copies; NULL: not copied */
    bool *is_needed;             /* [from->n_vars] */
    const struct mil_var *entry; /* becomes the input; NULL: the function's own inputs */
    int64_t n_rows;              /* of the input in place of one; 0: as it is, and types too */
};

static struct mil_var *new_var(struct part *p, const char *name, const struct mil_type *type,
                               struct mil_op *op)
{
    struct mil_var *v = ARENA_NEW(p->arena, struct mil_var);
    *v = (struct mil_var){.name = name, .type = type, .id = p->to->n_vars++, .op = op};
    return v;
}

static bool is_stored(const struct mil_op *op)
{
    return mil_op_is(op, "const") || strncmp(op->type, "constexpr_", 10) == 0;
}

/* With another number of rows every shape is another one; ranks stay. */
static const struct mil_type *type_in(struct part *p, const struct mil_op *op, const struct mil_type *t)
{
    if (p->n_rows == 0 || is_stored(op) || !t || t->kind != MIL_TYPE_TENSOR)
        return t;
    int64_t dims[MIL_RANK_MAX];
    for (int i = 0; i < MIL_RANK_MAX; i++)
        dims[i] = MIL_DIM_UNKNOWN;
    return t->rank <= MIL_RANK_MAX ? mil_type_new_tensor(p->arena, t->dtype, t->rank, dims) : t;
}

/* An immediate list of integers as an argument. */
static void set_ints(struct part *p, struct mil_arg *arg, const char *name, const int32_t *ints, int n)
{
    const int64_t dims[1] = {n};
    struct mil_value *v = ARENA_NEW(p->arena, struct mil_value);
    *v = (struct mil_value){.kind = MIL_VALUE_TENSOR,
                            .type = mil_type_new_tensor(p->arena, MIL_INT32, 1, dims),
                            .data = arena_copy(p->arena, ints, sizeof *ints * (size_t)n),
                            .bytes = sizeof *ints * (size_t)n,
                            .n_elems = n};
    *arg = (struct mil_arg){.name = name, .n = 1, .bindings = ARENA_NEW(p->arena, struct mil_binding)};
    arg->bindings[0].value = v;
}

/* An op "x, ints" -> one result. */
static struct mil_var *add_view(struct part *p, struct mil_op **ops, int *n, const char *type,
                                const char *ints_name, const int32_t *ints, int n_ints, struct mil_var *x,
                                const char *name, const struct mil_type *t)
{
    struct mil_op *op = ARENA_NEW(p->arena, struct mil_op);
    *op = (struct mil_op){.type = type, .info = mil_op_info_find(type), .n_args = 2, .n_outputs = 1};
    op->args = ARENA_ARRAY(p->arena, struct mil_arg, 2);
    op->outputs = ARENA_ARRAY(p->arena, struct mil_var *, 1);
    op->args[0] = (struct mil_arg){.name = "x", .n = 1, .bindings = ARENA_NEW(p->arena, struct mil_binding)};
    op->args[0].bindings[0].var = x;
    set_ints(p, &op->args[1], ints_name, ints, n_ints);
    op->outputs[0] = new_var(p, name, t, op);
    ops[(*n)++] = op;
    return op->outputs[0];
}

/* A reshape of one row's [1, n, 1, 1] to [1, 1, n], as heads end: of several rows it is two views. */
static bool is_row_reshape(const struct part *p, const struct mil_op *op)
{
    const struct mil_var *x = mil_op_is(op, "reshape") ? mil_arg_var(op, "x") : NULL;
    if (!x || p->n_rows == 0)
        return false;
    const struct mil_type *from = x->type, *to = op->outputs[0]->type;
    return from->rank == 4 && from->dims[0] == 1 && from->dims[2] == 1 && from->dims[3] == 1 &&
           to->rank == 3 && to->dims[0] == 1 && to->dims[1] == 1 && to->dims[2] == from->dims[1];
}

static void copy_row_reshape(struct part *p, const struct mil_op *op, struct mil_op **ops, int *n)
{
    static const int32_t axis[1] = {2}, order[3] = {0, 2, 1};
    const struct mil_var *y = op->outputs[0];
    const struct mil_type *t = type_in(p, op, y->type);
    struct mil_var *x = p->vars[mil_arg_var(op, "x")->id];
    struct mil_var *flat =
        add_view(p, ops, n, "squeeze", "axes", axis, 1, x, arena_printf(p->arena, "%s_columns", y->name), t);
    p->vars[y->id] = add_view(p, ops, n, "transpose", "perm", order, 3, flat, y->name, t);
}

static void copy_op(struct part *p, const struct mil_op *op, struct mil_op **ops, int *n)
{
    struct mil_op *o = ARENA_NEW(p->arena, struct mil_op);
    *o = *op;
    o->args = ARENA_ARRAY(p->arena, struct mil_arg, op->n_args + 1);
    o->outputs = ARENA_ARRAY(p->arena, struct mil_var *, op->n_outputs + 1);
    for (int i = 0; i < op->n_args; i++) {
        o->args[i] = op->args[i];
        o->args[i].bindings = ARENA_ARRAY(p->arena, struct mil_binding, op->args[i].n + 1);
        for (int k = 0; k < op->args[i].n; k++) {
            const struct mil_binding *b = &op->args[i].bindings[k];
            o->args[i].bindings[k] =
                (struct mil_binding){.var = b->var ? p->vars[b->var->id] : NULL, .value = b->value};
        }
    }
    for (int i = 0; i < op->n_outputs; i++)
        o->outputs[i] = p->vars[op->outputs[i]->id] =
            new_var(p, op->outputs[i]->name, type_in(p, op, op->outputs[i]->type), o);
    ops[(*n)++] = o;
}

/* Ops first <= i < end of a function, and what is stored before them, with these results; NULL when they need more than the
 * entry. */
static struct mil_function *copy_part(struct part *p, int first, int end, struct mil_var *const *outputs,
                                      int n_outputs)
{
    const struct mil_block *b = p->from->block;
    struct mil_block *to = ARENA_NEW(p->arena, struct mil_block);
    p->to = ARENA_NEW(p->arena, struct mil_function);
    *p->to = (struct mil_function){.name = p->from->name, .opset = p->from->opset, .block = to};
    p->vars = ARENA_ARRAY(p->arena, struct mil_var *, p->from->n_vars + 1);
    p->is_needed = ARENA_ARRAY(p->arena, bool, p->from->n_vars + 1);
    for (int i = 0; i < n_outputs; i++)
        p->is_needed[outputs[i]->id] = true;
    for (int i = end - 1; i >= 0; i--) {
        const struct mil_op *op = b->ops[i];
        bool is_needed = !p->entry; /* a whole beginning: with all that it writes */
        if (op->n_blocks > 0)
            return NULL;
        for (int k = 0; k < op->n_outputs; k++)
            is_needed = is_needed || (op->outputs[k] != p->entry && p->is_needed[op->outputs[k]->id]);
        if (!is_needed)
            continue;
        if (i < first && !is_stored(op))
            return NULL;
        for (int k = 0; k < op->n_outputs; k++)
            p->is_needed[op->outputs[k]->id] = true;
        for (int k = 0; k < op->n_args; k++)
            for (int n = 0; n < op->args[k].n; n++)
                if (op->args[k].bindings[n].var)
                    p->is_needed[op->args[k].bindings[n].var->id] = true;
    }
    const struct mil_type *entry_type = p->entry ? p->entry->type : NULL;
    if (p->entry && p->n_rows > 0) {
        const int64_t dims[3] = {1, p->n_rows, entry_type->dims[2]};
        entry_type = mil_type_new_tensor(p->arena, entry_type->dtype, 3, dims);
    }
    p->to->inputs = ARENA_ARRAY(p->arena, struct mil_var *, p->from->n_inputs + 1);
    if (p->entry)
        p->to->inputs[p->to->n_inputs++] = p->vars[p->entry->id] =
            new_var(p, PORT_HIDDEN_STATES, entry_type, NULL);
    for (int i = 0; i < p->from->n_inputs; i++) {
        const struct mil_var *v = p->from->inputs[i];
        if (p->entry && v != p->entry && p->is_needed[v->id])
            return NULL;
        if (!p->entry)
            p->to->inputs[p->to->n_inputs++] = p->vars[v->id] = new_var(p, v->name, v->type, NULL);
    }
    to->ops = ARENA_ARRAY(p->arena, struct mil_op *, 2 * (size_t)end + 1);
    for (int i = 0; i < end; i++) {
        const struct mil_op *op = b->ops[i];
        bool is_needed = !p->entry;
        for (int k = 0; k < op->n_outputs; k++)
            is_needed = is_needed || (p->is_needed[op->outputs[k]->id] && op->outputs[k] != p->entry);
        if (is_needed && is_row_reshape(p, op))
            copy_row_reshape(p, op, to->ops, &to->n_ops);
        else if (is_needed)
            copy_op(p, op, to->ops, &to->n_ops);
    }
    to->outputs = ARENA_ARRAY(p->arena, struct mil_var *, n_outputs + 1);
    for (int i = 0; i < n_outputs; i++)
        to->outputs[to->n_outputs++] = p->vars[outputs[i]->id];
    return p->to;
}

/* The same file with one function. */
static void set_program(struct mil_model *shell, struct arena *a, const struct mil_model *m,
                        struct mil_function *f)
{
    struct mil_program *program = ARENA_NEW(a, struct mil_program);
    *program = *m->program;
    program->n_functions = 1;
    program->functions = ARENA_ARRAY(a, struct mil_function *, 1);
    program->functions[0] = f;
    *shell = *m;
    shell->program = program;
}

static bool has_dims(const struct mil_type *t, int64_t rows, int64_t width)
{
    return t && t->kind == MIL_TYPE_TENSOR && t->rank == 3 && t->dims[0] == 1 && t->dims[1] == rows &&
           t->dims[2] == width;
}

/* The slice of the residual stream's last row, the last op that makes one row of all rows. -1: there is none. */
static int find_slice(const struct model *m, const struct mil_function *f)
{
    for (int i = f->block->n_ops - 1; i >= 0; i--) {
        const struct mil_op *op = f->block->ops[i];
        const struct mil_var *x = mil_op_is(op, "slice_by_index") ? mil_arg_var(op, "x") : NULL;
        int64_t begin[MIL_RANK_MAX];
        int n = 0;
        if (x && has_dims(x->type, m->batch_size, m->hidden_size) &&
            has_dims(op->outputs[0]->type, 1, m->hidden_size))
            return mil_value_ints(mil_arg_value(op, "begin"), begin, MIL_RANK_MAX, &n) && n == 3 &&
                           begin[1] == m->batch_size - 1
                       ? i
                       : -1;
    }
    return -1;
}

static bool open_function(const struct model *m, const struct mil_model *mil, const char *path,
                          struct backend_function **out, struct err *e)
{
    const struct backend_source source = {.mil = mil, .path = path};
    return m->backend->function_open(out, m->shared, &source, mil->program->functions[0]->name, NULL, 0, e);
}

/* The head for a batch; where its ops don't go with several rows, there is none. */
static void open_head(struct batch_rows *r, const struct model *m)
{
    const struct mil_model *mil = m->head.mil;
    const struct mil_function *f = mil_function_find(mil, mil_default_function_name(mil));
    const struct model_logits *l = &m->logits[MODEL_INFER];
    struct err ignored = {0};
    if (!f || f->n_inputs != 1 || !l->outputs || !has_dims(f->inputs[0]->type, 1, m->hidden_size))
        return;
    struct part p = {.arena = r->arena, .from = f, .entry = f->inputs[0], .n_rows = m->batch_size};
    struct mil_function *made = copy_part(&p, 0, f->block->n_ops, f->block->outputs, f->block->n_outputs);
    if (!made)
        return;
    set_program(&r->head_mil, r->arena, mil, made);
    if (!open_function(m, &r->head_mil, m->package->lm_head, &r->head, &ignored))
        r->head = NULL;
    for (int i = 0; r->head && i < m->n_logits; i++) {
        const struct mil_port *port = &r->head->outputs[l->outputs[i]];
        int64_t n = m->part_begin[i + 1] - m->part_begin[i];
        if (port->rank == 3 && port->dims[0] == 1 && port->dims[1] == m->batch_size && port->dims[2] == n)
            continue;
        m->backend->function_close(r->head);
        r->head = NULL;
    }
}

bool batch_rows_open(struct batch_rows **out, const struct model *m, struct err *e)
{
    const struct model_part *last = m->n_chunks > 0 ? &m->chunks[m->n_chunks - 1] : NULL;
    const char *path = NULL;
    *out = NULL;
    if (!m->has_prefill || !m->prefill_gives_last || m->precision != PRECISION_DEFAULT ||
        !m->backend->reads_programs || m->is_monolithic || m->gives_best_only || m->batch_size < 2)
        return true;
    const struct mil_model *mil = last->mil;
    const struct mil_function *f = mil_function_find(mil, FUNCTION_PREFILL);
    path = m->package->chunks[m->n_chunks - 1];
    if (!f && last->second) {
        mil = last->second;
        f = mil_function_find(mil, FUNCTION_PREFILL);
        path = m->package->more_chunks[m->n_chunks - 1];
    }
    int at = f && f->block ? find_slice(m, f) : -1;
    for (int i = at + 1; at >= 0 && i < f->block->n_ops; i++)
        if (mil_op_is(f->block->ops[i], "write_state") || f->block->ops[i]->n_outputs == 0)
            at = -1; /* what it does would be left out */
    if (at < 0 || f->block->n_outputs != 1 ||
        strcmp(f->block->outputs[0]->name, PORT_OUTPUT_HIDDEN_STATES) != 0)
        return true;
    struct batch_rows *r = xcalloc(1, sizeof *r);
    r->arena = arena_new(0);
    struct mil_var *all = mil_arg_var(f->block->ops[at], "x");
    struct part batch = {.arena = r->arena, .from = f};
    struct part final = {.arena = r->arena, .from = f, .entry = f->block->ops[at]->outputs[0]};
    struct mil_function *made[2] = {copy_part(&batch, 0, at, &all, 1), NULL};
    made[1] = copy_part(&final, at + 1, f->block->n_ops, f->block->outputs, 1);
    bool ok = true;
    if (made[0] && made[1]) {
        set_program(&r->batch_mil, r->arena, mil, made[0]);
        set_program(&r->final_mil, r->arena, mil, made[1]);
        ok = open_function(m, &r->batch_mil, path, &r->batch, e) &&
             open_function(m, &r->final_mil, path, &r->final, e);
        if (ok) {
            r->i_batch_output = backend_find_output(r->batch, all->name);
            open_head(r, m);
            *out = r;
            return true;
        }
    }
    batch_rows_close(r, m);
    return ok;
}

void batch_rows_close(struct batch_rows *r, const struct model *m)
{
    if (!r)
        return;
    m->backend->function_close(r->batch);
    m->backend->function_close(r->final);
    m->backend->function_close(r->head);
    arena_free(r->arena);
    free(r);
}
