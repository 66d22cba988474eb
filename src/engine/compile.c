/* Compilation of a function (engine_plan_new): each op or fused pattern, in the program's order, becomes values,
 * views and steps; what it is given and what it gives become ports. */
#include <string.h>
#include "engine/compiler.h"

/* The most elements of one tensor: sums of sizes over all steps stay far from the end of 64 bits. */
#define ELEMS_MAX ((int64_t)1 << 36)

/* Is the type of each result what its operands give? A shape that is declared and not computed is believed in one place
 * alone: where elements keep their number and order (emit_view), which is checked there. empty: all results are tensors
 * without elements. */
static bool results_are_known(struct compiler *c, const struct mil_op *op, bool *empty)
{
    const struct mil_type **found = ARENA_ARRAY(c->scratch, const struct mil_type *, op->n_outputs + 1);
    if (!mil_infer_op(op, c->g.types, c->known, found, c->scratch, c->e))
        return false;
    *empty = op->n_outputs > 0;
    for (int k = 0; k < op->n_outputs; k++) {
        const struct mil_type *t = var_type(c, op->outputs[k]);
        bool known = t->kind == MIL_TYPE_TENSOR && t->rank <= MIL_RANK_MAX && mil_type_elems(t) >= 0 &&
                     (op->info->id == MIL_OP_RESHAPE || (found[k] && mil_type_equal(t, found[k])));
        if (!known)
            return compile_fail(c, ERR_UNSUPPORTED, "the shape of its result is not known before the run");
        if (mil_type_elems(t) > ELEMS_MAX)
            return compile_fail(c, ERR_LIMIT, "its result has %lld elements, the most is %lld",
                                (long long)mil_type_elems(t), (long long)ELEMS_MAX);
        *empty = *empty && mil_type_elems(t) == 0;
    }
    return true;
}

/* Results without elements, whatever the other axes are. */
static bool emit_nothing(struct compiler *c, const struct mil_op *op)
{
    for (int k = 0; k < op->n_outputs; k++) {
        const struct mil_type *t = var_type(c, op->outputs[k]);
        set_var(c, op->outputs[k], value_new(c, dtype_repr(t->dtype), t->rank, t->dims));
    }
    return true;
}

static bool is_as_typed(const struct value *v, const struct mil_type *t)
{
    bool same = v->rank == t->rank && (v->repr == REPR_I32) == (dtype_repr(t->dtype) == REPR_I32);
    for (int i = 0; same && i < v->rank; i++)
        same = v->dims[i] == t->dims[i];
    return same;
}

/* What an emitter made has the shape that others count on. */
static bool results_are_as_typed(struct compiler *c, const struct mil_op *op)
{
    for (int k = 0; k < op->n_outputs; k++) {
        const struct value *v = &c->values[op->outputs[k]->id];
        if (v->storage >= 0 && !is_as_typed(v, var_type(c, op->outputs[k])))
            return compile_fail(c, ERR_FORMAT, "its declared result is not what its operands give");
    }
    return true;
}

/* No result lies in a storage that was there before the op, constants apart; but read_state gives the state. */
static bool results_are_own(const struct compiler *c, const struct mil_op *op, int n_before)
{
    for (int k = 0; k < op->n_outputs; k++) {
        int storage = c->values[op->outputs[k]->id].storage;
        if (storage >= 0 && storage < n_before && c->plan->storages[storage].kind != STORAGE_CONST &&
            !mil_op_is(op, "read_state"))
            return false;
    }
    return true;
}

static bool emit_op(struct compiler *c, int i)
{
    const struct mil_op *op = c->g.ops[i];
    const struct node *node = &c->g.nodes[i];
    c->op = op;
    if (stop_requested(c->plan->stop))
        return stop_error(c->plan->stop, c->e);
    if (node->fused) {
        const struct mil_var *out = node->fused->out; /* NULL of what only writes */
        if (out && mil_type_elems(var_type(c, out)) == 0)
            return emit_nothing(c, op);
        int n_before = c->plan->n_storages;
        if (!node->fused->emit(c, node->fused) || (out && !results_are_as_typed(c, op)))
            return false;
        INVARIANT(!out || node->fused->is_view || results_are_own(c, op, n_before),
                  "only a pattern marked as a view gives its operand's memory as its result");
        return true;
    }
    if (node->absorbed)
        return true;
    emit_fn emit = op_emitter(op);
    if (emit == emit_none || emit == emit_one_by_one || emit == emit_constant)
        return emit(c, op);
    bool is_empty = false;
    if (!results_are_known(c, op, &is_empty))
        return false;
    if (is_empty)
        return emit_nothing(c, op);
    int n_storages = c->plan->n_storages;
    if (!emit(c, op) || !results_are_as_typed(c, op))
        return false;
    INVARIANT(op_is_view(op) || results_are_own(c, op, n_storages),
              "only an op marked VIEW gives its operand's memory as its result");
    return true;
}

static bool fill_port(struct compiler *c, struct mil_port *port, const char *name, const struct mil_type *t)
{
    if (t->kind != MIL_TYPE_TENSOR || t->dtype == MIL_STRING || t->rank > MIL_RANK_MAX ||
        mil_type_elems(t) < 0)
        return err_set(c->e, ERR_UNSUPPORTED, "function %s: %s has no fixed tensor shape", c->g.f->name,
                       name);
    if (mil_type_elems(t) > ELEMS_MAX)
        return err_set(c->e, ERR_LIMIT, "function %s: %s has %lld elements, the most is %lld", c->g.f->name,
                       name, (long long)mil_type_elems(t), (long long)ELEMS_MAX);
    *port = (struct mil_port){.name = name,
                              .dtype = t->dtype,
                              .is_int = dtype_repr(t->dtype) == REPR_I32,
                              .rank = t->rank,
                              .n_elems = mil_type_elems(t)};
    for (int i = 0; i < t->rank; i++)
        port->dims[i] = t->dims[i];
    return true;
}

static struct value port_value(int storage, const struct mil_port *port)
{
    struct value v = {.storage = storage, .repr = port->is_int ? REPR_I32 : REPR_F32, .rank = port->rank};
    memcpy(v.dims, port->dims, sizeof v.dims);
    dense_strides(v.rank, v.dims, v.strides);
    return v;
}

static bool compile_inputs(struct compiler *c)
{
    struct engine_plan *p = c->plan;
    const struct mil_function *f = c->g.f;
    p->inputs = ARENA_ARRAY(c->arena, struct mil_port, f->n_inputs + 1);
    p->states = ARENA_ARRAY(c->arena, struct plan_state, f->n_inputs + 1);
    for (int i = 0; i < f->n_inputs; i++) {
        const struct mil_var *v = f->inputs[i];
        const struct mil_type *t = c->g.types[v->id];
        const char *name = arena_strdup(c->arena, v->name);
        if (t->kind == MIL_TYPE_STATE) {
            struct mil_port port;
            if (!fill_port(c, &port, name, t->elem))
                return false;
            if (port.dtype != MIL_FP16)
                return err_set(c->e, ERR_UNSUPPORTED,
                               "function %s: state %s is %s, only fp16 states are supported", f->name, name,
                               mil_dtype_name(port.dtype));
            struct plan_state *s = &p->states[p->n_states];
            *s = (struct plan_state){
                .name = name, .dtype = port.dtype, .rank = port.rank, .n_elems = port.n_elems};
            memcpy(s->dims, port.dims, sizeof s->dims);
            s->is_recurrent = engine_state_is_recurrent(c->state_forms, v->name);
            bool is_rounded = p->precision == ENGINE_FP16 || p->precision == ENGINE_ANE;
            bool as_float32 = c->float32_states || (s->is_recurrent && !is_rounded);
            s->repr = as_float32 ? REPR_F32 : REPR_F16;
            int storage = storage_new(c, STORAGE_STATE, s->repr, port.n_elems);
            p->storages[storage].index = p->n_states++;
            struct value value = port_value(storage, &port);
            value.repr = s->repr;
            set_var(c, v, value);
        } else {
            struct mil_port *port = &p->inputs[p->n_inputs];
            if (!fill_port(c, port, name, t))
                return false;
            int storage = storage_new(c, STORAGE_INPUT, port->is_int ? REPR_I32 : REPR_F32, port->n_elems);
            p->storages[storage].index = p->n_inputs++;
            set_var(c, v, port_value(storage, port));
        }
    }
    return true;
}

static bool compile_outputs(struct compiler *c)
{
    struct engine_plan *p = c->plan;
    const struct mil_block *b = c->g.f->block;
    p->n_outputs = b->n_outputs;
    p->outputs = ARENA_ARRAY(c->arena, struct mil_port, b->n_outputs + 1);
    p->out_values = ARENA_ARRAY(c->arena, struct value, b->n_outputs + 1);
    for (int i = 0; i < b->n_outputs; i++) {
        const struct mil_var *var = b->outputs[i];
        struct mil_binding binding = {.var = b->outputs[i]};
        struct value v;
        if (!fill_port(c, &p->outputs[i], arena_strdup(c->arena, var->name), var_type(c, var)))
            return false;
        c->op = graph_def(&c->g, var);
        if (!operand_binding(c, &binding, &v) || !to_f32(c, &v))
            return false;
        if (!is_as_typed(&v, var_type(c, var)))
            return compile_fail(c, ERR_FORMAT, "the function's output %s has not its declared shape",
                                var->name);
        if (p->storages[v.storage].kind != STORAGE_ARENA || !is_dense(&v)) {
            struct value y = value_new(c, v.repr, v.rank, v.dims);
            emit_copy(c, &v, &y);
            v = y;
        }
        p->out_values[i] = v;
    }
    return true;
}

static double step_work(const struct step *s)
{
    double most = s->work;
    for (int k = 0; k < s->n_in; k++)
        most = (double)value_elems(&s->in[k]) > most ? (double)value_elems(&s->in[k]) : most;
    for (int k = 0; k < s->n_out; k++)
        most = (double)value_elems(&s->out[k]) > most ? (double)value_elems(&s->out[k]) : most;
    return most;
}

/* Adds up what a run will cost, and compares with the limits before anybody spends it. */
static bool check_costs(struct compiler *c)
{
    struct engine_plan *p = c->plan;
    double bytes = (double)p->memory + (double)p->arena_bytes + (double)p->scratch_bytes;
    for (int i = 0; i < p->n_steps; i++) {
        p->steps[i].work = step_work(&p->steps[i]);
        p->work += p->steps[i].work;
    }
    for (int i = 0; i < p->n_inputs; i++)
        bytes += 4.0 * (double)p->inputs[i].n_elems;
    p->memory = bytes < 0x1p63 ? (uint64_t)bytes : UINT64_MAX;
    return budget_take(c->budget, p, c->e);
}

/* The limits of a plan without a budget. */
static bool own_budget(const struct mil_model *m, const struct engine_options *options,
                       struct engine_budget **out, struct err *e)
{
    struct engine_limits limits;
    if (!engine_limits_of(m, &limits, e))
        return false;
    if (options && options->limits.memory)
        limits.memory = options->limits.memory;
    if (options && options->limits.work)
        limits.work = options->limits.work;
    *out = engine_budget_new(limits);
    return true;
}

bool engine_plan_new(struct engine_plan **out, const struct mil_model *m, const char *function,
                     const struct mil_input_shape *shapes, int n_shapes, const struct engine_options *options,
                     struct err *e)
{
    struct compiler c = {.model = m, .e = e};
    const struct mil_function *f = mil_function_find(m, function);
    struct engine_state_forms *own_forms = NULL;
    struct engine_budget *own = NULL;
    const char *why = "";
    bool ok = false;
    *out = NULL;
    if (!f)
        return err_set(e, ERR_FORMAT, "%s: no function %s", m->path ? m->path : "model", function);
    c.arena = arena_new(0);
    c.scratch = arena_new(0);
    c.plan = ARENA_NEW(c.arena, struct engine_plan);
    c.plan->arena = c.arena;
    c.plan->function = arena_strdup(c.arena, function);
    c.plan->stop = options ? options->stop : NULL;
    c.plan->precision = options ? options->precision : ENGINE_DEFAULT;
    c.range = options ? options->range : NULL;
    c.float32_states = c.plan->precision == ENGINE_FP32 && !options->declared_states;
    c.plan->kernels = options && options->kernels ? options->kernels : kernel_select(&why);
    if (!c.plan->kernels) {
        err_set(e, ERR_USAGE, "%s", why);
        goto done;
    }
    if (c.plan->precision == ENGINE_ANE && !ane_model_read(&c.plan->ane, options->emulation, e))
        goto done;
    bool has_budget = options && options->budget;
    if (!has_budget && !own_budget(m, options, &own, e))
        goto done;
    c.budget = has_budget ? options->budget : own;
    const struct mil_type **inputs = ARENA_ARRAY(c.arena, const struct mil_type *, f->n_inputs + 1);
    const struct mil_type **types = ARENA_ARRAY(c.arena, const struct mil_type *, f->n_vars + 1);
    c.known = mil_known_ints_new(f->n_vars, c.scratch);
    if (!mil_input_types(inputs, m, f, shapes, n_shapes, c.arena, e) ||
        !mil_infer_function(f, inputs, types, c.known, c.arena, e))
        goto done;
    if (!options || !options->state_forms) {
        own_forms = engine_state_forms_new();
        engine_state_forms_add(own_forms, m);
    }
    c.state_forms = own_forms ? own_forms : options->state_forms;
    c.values = ARENA_ARRAY(c.scratch, struct value, f->n_vars + 1);
    c.consts = ARENA_ARRAY(c.scratch, const struct mil_value *, f->n_vars + 1);
    for (int i = 0; i < f->n_vars; i++)
        c.values[i].storage = -1;
    if (!graph_new(&c.g, f, types, c.scratch, e))
        goto done;
    for (int i = 0; i < c.g.n_ops; i++)
        if (mil_op_is(c.g.ops[i], "const") && c.g.ops[i]->n_outputs == 1)
            c.consts[c.g.ops[i]->outputs[0]->id] = mil_attribute(c.g.ops[i], "val");
    if (c.plan->precision == ENGINE_DEFAULT) /* in the others each op runs by itself */
        patterns_find(&c);
    graph_find_looks(&c.g, c.scratch);
    if (!compile_inputs(&c))
        goto done;
    for (int i = 0; i < c.g.n_ops; i++) {
        int n = c.plan->n_steps;
        if (!emit_op(&c, i) || !range_watch(&c, c.g.ops[i], n) || !compile_take_steps(&c, 0) ||
            !compile_take_memory(&c, c.plan->n_steps - n, sizeof(struct step)))
            goto done;
    }
    if (!compile_outputs(&c))
        goto done;
    group_linear(&c);
    if (!plan_memory(&c) || !check_costs(&c))
        goto done;
    struct engine_plan *p = c.plan;
    p->steps = xrealloc(p->steps, sizeof *p->steps * ((size_t)p->n_steps + 1));
    p->storages = xrealloc(p->storages, sizeof *p->storages * ((size_t)p->n_storages + 1));
    for (int i = 0; i < p->n_steps; i++)
        if (p->steps[i].label)
            p->steps[i].label = arena_strdup(c.arena, p->steps[i].label);
    struct err fault = {0};
    if (INVARIANTS_CHECKED && !plan_check(p, &fault))
        invariant_broken(__FILE__, __LINE__, fault.msg);
    ok = true;
    *out = p;
done:
    if (!ok)
        engine_plan_free(c.plan);
    engine_state_forms_free(own_forms);
    engine_budget_free(own);
    arena_free(c.scratch);
    if (!ok)
        err_wrap(e, "%s", m->path ? m->path : "model");
    return ok;
}
