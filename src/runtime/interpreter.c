/* Ops one by one: values by variable, blocks, lists, and the functions that are made for single ops. */
#include "runtime/interpreter.h"
#include <stdlib.h>
#include <string.h>
#include "base/invariant.h"
#include "mil/ops.h"

/* Ops that one run takes at most, elements of a list and their bytes: what hostile loops are bounded by. */
#define OPS_MAX 10000000
#define LIST_MAX 1000000
#define LIST_BYTES_MAX (INT64_C(4) << 30)
/* Functions for single ops that are kept; then all are forgotten. */
#define MADE_MAX 4096
/* Operands with more elements than this are not made constants. */
#define KNOWN_MAX 256
#define BUCKETS 1024

/* What a variable holds: a tensor, or a list of tensors (an element not yet written is NULL). */
struct slot {
    bool is_list;
    struct interpreter_tensor *tensor;
    struct interpreter_tensor **items; /* [n] */
    size_t n;
    int64_t bytes; /* that were put into the list */
    struct interpreter_tensor
        *element; /* zeros: what an element is that was not written; NULL: its shape is not known */
};

/* A function of one op, made for the shapes of its inputs; is_known: and for the numbers of its small integers. */
struct made {
    struct made *next;
    const struct mil_op *op;
    bool is_known;
    int64_t *key;
    size_t n_key;
    struct arena *arena;
    struct mil_program program;
    struct mil_model model;
    struct backend_function *function;
    struct backend_run *run;
    int n_inputs;
    struct mil_var **inputs; /* tensors */
};

struct interpreter {
    const struct backend *backend;
    struct backend_package *package;
    struct backend_source source;
    const struct mil_function *f;
    struct pool *pool;
    struct slot *slots; /* [n_vars] */
    struct made *made[BUCKETS];
    int n_made;
    struct stop stop; /* of the run that goes on */
    struct backend_states *states;
    int64_t n_ops;
    struct err *e;
};

/* ---- tensors and slots ---- */

struct interpreter_tensor *interpreter_tensor_new(enum mil_dtype d, int rank, const int64_t *dims,
                                                  struct err *e)
{
    struct interpreter_tensor *t = xcalloc(1, sizeof *t);
    *t = (struct interpreter_tensor){
        .dtype = d, .is_int = !mil_dtype_is_float(d), .rank = rank, .n_elems = 1, .n_references = 1};
    for (int i = 0; i < rank; i++) {
        t->dims[i] = dims[i];
        if (dims[i] < 0 || __builtin_mul_overflow(t->n_elems, dims[i], &t->n_elems) ||
            t->n_elems > INT64_C(1) << 36) {
            err_set(e, ERR_LIMIT, "a tensor with more elements than are supported");
            free(t);
            return NULL;
        }
    }
    t->data = mem_try_alloc(((size_t)t->n_elems + 1) * 4, e);
    if (!t->data) {
        free(t);
        return NULL;
    }
    memset(t->data, 0, ((size_t)t->n_elems + 1) * 4);
    return t;
}

static struct interpreter_tensor *keep(struct interpreter_tensor *t)
{
    if (t)
        t->n_references++;
    return t;
}

void interpreter_tensor_free(struct interpreter_tensor *t)
{
    if (!t || --t->n_references > 0)
        return;
    mem_free(t->data);
    free(t);
}

static void slot_clear(struct slot *s)
{
    interpreter_tensor_free(s->tensor);
    for (size_t i = 0; i < s->n; i++)
        interpreter_tensor_free(s->items[i]);
    free(s->items);
    interpreter_tensor_free(s->element);
    *s = (struct slot){0};
}

/* to takes what `from` holds; both may be one. */
static void slot_copy(struct slot *to, const struct slot *from)
{
    struct slot copy = {.is_list = from->is_list, .n = from->n, .bytes = from->bytes};
    copy.tensor = keep(from->tensor);
    copy.element = keep(from->element);
    if (from->is_list) {
        copy.items = xcalloc(from->n + 1, sizeof(struct interpreter_tensor *));
        for (size_t i = 0; i < from->n; i++)
            copy.items[i] = keep(from->items[i]);
    }
    slot_clear(to);
    *to = copy;
}

static void slot_set(struct interpreter *p, const struct mil_var *v, struct interpreter_tensor *t)
{
    slot_clear(&p->slots[v->id]);
    p->slots[v->id].tensor = t;
}

static bool fail(struct interpreter *p, const struct mil_op *op, enum err_code code, const char *why)
{
    return err_set(p->e, code, "%s: function %s: op %s (%s): %s", p->source.path ? p->source.path : "model",
                   p->f->name, op->type, op->n_outputs > 0 ? op->outputs[0]->name : "no result", why);
}

/* A compile-time value as a tensor. */
static bool tensor_of_value(struct interpreter *p, const struct mil_op *op, const struct mil_value *v,
                            struct interpreter_tensor **out)
{
    const struct mil_type *t = v->type;
    *out = NULL;
    if (t->kind != MIL_TYPE_TENSOR || t->dtype == MIL_STRING || t->rank > MIL_RANK_MAX || v->n_elems < 0 ||
        (!v->data && v->n_elems > 0))
        return fail(p, op, ERR_UNSUPPORTED, "an operand that is not a tensor of numbers");
    *out = interpreter_tensor_new(t->dtype, t->rank, t->dims, p->e);
    if (!*out)
        return false;
    for (int64_t i = 0; i < v->n_elems; i++) {
        if ((*out)->is_int)
            ((int32_t *)(*out)->data)[i] = (int32_t)mil_value_element(v, i);
        else
            ((float *)(*out)->data)[i] = (float)mil_value_element(v, i);
    }
    return true;
}

/* What an operand holds, as a slot of the caller's (slot_clear). */
static bool slot_of_binding(struct interpreter *p, const struct mil_op *op, const struct mil_binding *b,
                            struct slot *out)
{
    const struct mil_value *v = mil_binding_value(b);
    *out = (struct slot){0};
    if (v)
        return tensor_of_value(p, op, v, &out->tensor);
    const struct slot *from = &p->slots[b->var->id];
    if (!from->tensor && !from->is_list)
        return fail(p, op, ERR_UNSUPPORTED, "an operand that was not computed");
    slot_copy(out, from);
    return true;
}

static bool slot_of(struct interpreter *p, const struct mil_op *op, const char *name, struct slot *out)
{
    const struct mil_arg *a = mil_arg_find(op, name);
    *out = (struct slot){0};
    if (!a || a->n != 1)
        return fail(p, op, ERR_FORMAT, "an argument is missing");
    return slot_of_binding(p, op, &a->bindings[0], out);
}

/* A number that says where or whether. */
static bool whole_of(struct interpreter *p, const struct mil_op *op, const char *name, int64_t otherwise,
                     int64_t *out)
{
    struct slot s;
    *out = otherwise;
    if (!mil_arg_find(op, name))
        return true;
    if (!slot_of(p, op, name, &s))
        return false;
    bool ok = s.tensor && s.tensor->is_int && s.tensor->n_elems == 1;
    if (ok)
        *out = *(const int32_t *)s.tensor->data;
    slot_clear(&s);
    return ok || fail(p, op, ERR_UNSUPPORTED, "expected one whole number");
}

/* ---- functions of one op ---- */

static void made_free(struct interpreter *p, struct made *m)
{
    p->backend->run_close(m->run);
    p->backend->function_close(m->function);
    arena_free(m->arena);
    free(m->key);
    free(m);
}

static void forget_all(struct interpreter *p)
{
    for (int i = 0; i < BUCKETS; i++) {
        while (p->made[i]) {
            struct made *m = p->made[i];
            p->made[i] = m->next;
            made_free(p, m);
        }
    }
    p->n_made = 0;
}

static bool is_constant(const struct mil_var *v)
{
    return v->op && (mil_op_is(v->op, "const") || strncmp(v->op->type, "constexpr_", 10) == 0);
}

/* Variables that op needs: those that hold tensors or states by running, and ops that make constants, in an order that defines before it
 * uses. */
struct needs {
    struct mil_var **inputs;
    int n_inputs;
    struct mil_op **ops;
    int n_ops;
};

static int operand_count(const struct mil_op *op)
{
    int n = 0;
    for (int i = 0; i < op->n_args; i++) {
        n += op->args[i].n;
        for (int k = 0; k < op->args[i].n; k++) {
            const struct mil_var *v = op->args[i].bindings[k].var;
            if (v && is_constant(v) && v->op != op)
                n += 1 + operand_count(v->op);
        }
    }
    return n;
}

static void add_needs(struct needs *n, const struct mil_op *op)
{
    for (int i = 0; i < op->n_args; i++) {
        for (int k = 0; k < op->args[i].n; k++) {
            struct mil_var *v = op->args[i].bindings[k].var;
            bool known = false;
            if (!v)
                continue;
            if (is_constant(v)) {
                for (int j = 0; j < n->n_ops; j++)
                    known = known || n->ops[j] == v->op;
                if (!known) {
                    add_needs(n, v->op);
                    n->ops[n->n_ops++] = v->op;
                }
            } else {
                for (int j = 0; j < n->n_inputs; j++)
                    known = known || n->inputs[j] == v;
                if (!known)
                    n->inputs[n->n_inputs++] = v;
            }
        }
    }
}

/* Bytes of an element of the types that can be made constants; 0: of others. */
static size_t known_bytes(enum mil_dtype d)
{
    switch (d) {
    case MIL_BOOL:
    case MIL_INT8:
    case MIL_UINT8:
        return 1;
    case MIL_INT16:
    case MIL_UINT16:
        return 2;
    case MIL_INT32:
    case MIL_UINT32:
        return 4;
    default:
        return 0;
    }
}

/* The numbers of a small integer tensor as a compile-time value. */
static const struct mil_value *known_value(struct arena *a, const struct interpreter_tensor *t)
{
    struct mil_value *v = ARENA_NEW(a, struct mil_value);
    const int32_t *numbers = t->data;
    size_t bytes = known_bytes(t->dtype);
    char *data = ARENA_ARRAY(a, char, ((size_t)t->n_elems + 1) * 4);
    for (int64_t i = 0; i < t->n_elems; i++) {
        uint32_t number = t->dtype == MIL_BOOL ? numbers[i] != 0 : (uint32_t)numbers[i];
        for (size_t k = 0; k < bytes; k++) /* as files hold them: little-endian */
            data[(size_t)i * bytes + k] = (char)(number >> 8 * k);
    }
    *v = (struct mil_value){.kind = MIL_VALUE_TENSOR,
                            .type = mil_type_new_tensor(a, t->dtype, t->rank, t->dims),
                            .data = data,
                            .bytes = (size_t)t->n_elems * bytes,
                            .n_elems = t->n_elems};
    return v;
}

static bool can_be_known(const struct interpreter_tensor *t)
{
    return t && t->is_int && t->n_elems <= KNOWN_MAX && known_bytes(t->dtype) > 0;
}

/* The op with the small integers among its operands as immediate values. */
static struct mil_op *with_known(struct interpreter *p, struct arena *a, const struct mil_op *op)
{
    struct mil_op *copy = ARENA_NEW(a, struct mil_op);
    *copy = *op;
    copy->args = ARENA_ARRAY(a, struct mil_arg, op->n_args + 1);
    for (int i = 0; i < op->n_args; i++) {
        copy->args[i] = op->args[i];
        copy->args[i].bindings = ARENA_ARRAY(a, struct mil_binding, op->args[i].n + 1);
        for (int k = 0; k < op->args[i].n; k++) {
            struct mil_binding *b = &copy->args[i].bindings[k];
            *b = op->args[i].bindings[k];
            if (b->var && !is_constant(b->var) && can_be_known(p->slots[b->var->id].tensor))
                *b = (struct mil_binding){.value = known_value(a, p->slots[b->var->id].tensor)};
        }
    }
    return copy;
}

static bool make(struct interpreter *p, const struct mil_op *op, bool is_known, struct made **out,
                 struct err *e)
{
    struct made *m = xcalloc(1, sizeof *m);
    m->arena = arena_new(0);
    m->op = op;
    m->is_known = is_known;
    struct mil_op *own = is_known ? with_known(p, m->arena, op) : (struct mil_op *)(uintptr_t)op;
    int room = operand_count(own) + 2;
    struct needs n = {.inputs = ARENA_ARRAY(m->arena, struct mil_var *, room),
                      .ops = ARENA_ARRAY(m->arena, struct mil_op *, room)};
    add_needs(&n, own);
    n.ops[n.n_ops++] = own;
    struct mil_block *block = ARENA_NEW(m->arena, struct mil_block);
    *block = (struct mil_block){
        .n_outputs = op->n_outputs, .outputs = op->outputs, .n_ops = n.n_ops, .ops = n.ops};
    struct mil_function *f = ARENA_NEW(m->arena, struct mil_function);
    *f = (struct mil_function){.name = p->f->name,
                               .opset = p->f->opset,
                               .n_inputs = n.n_inputs,
                               .n_vars = p->f->n_vars,
                               .inputs = n.inputs,
                               .block = block};
    struct mil_function **functions = ARENA_ARRAY(m->arena, struct mil_function *, 1);
    functions[0] = f;
    m->program = (struct mil_program){.version = 1, .n_functions = 1, .functions = functions};
    m->model = (struct mil_model){.arena = m->arena,
                                  .path = p->source.mil->path,
                                  .root = p->source.mil->root,
                                  .specification_version = p->source.mil->specification_version,
                                  .program = &m->program};
    struct mil_input_shape *shapes = ARENA_ARRAY(m->arena, struct mil_input_shape, n.n_inputs + 1);
    m->inputs = ARENA_ARRAY(m->arena, struct mil_var *, n.n_inputs + 1);
    for (int i = 0; i < n.n_inputs; i++) {
        const struct interpreter_tensor *t = p->slots[n.inputs[i]->id].tensor;
        if (n.inputs[i]->type->kind == MIL_TYPE_STATE)
            continue;
        struct mil_input_shape *s = &shapes[m->n_inputs];
        s->input = n.inputs[i]->name;
        s->rank = t->rank;
        memcpy(s->dims, t->dims, sizeof s->dims);
        m->inputs[m->n_inputs++] = n.inputs[i];
    }
    const struct backend_source source = {.mil = &m->model, .path = NULL};
    if (!p->backend->function_open(&m->function, p->package, &source, f->name, shapes, m->n_inputs, e) ||
        !p->backend->run_open(&m->run, m->function, p->pool, &p->stop, e)) {
        made_free(p, m);
        return false;
    }
    *out = m;
    return true;
}

/* Shapes of the operands, and the numbers of the small integers where they matter. */
static void key_of(struct interpreter *p, const struct mil_op *op, bool is_known, int64_t **key, size_t *n)
{
    size_t room = 1;
    for (int i = 0; i < op->n_args; i++)
        room += (size_t)op->args[i].n * (MIL_RANK_MAX + 2 + (is_known ? KNOWN_MAX : 0));
    *key = xcalloc(room, sizeof **key);
    *n = 0;
    for (int i = 0; i < op->n_args; i++) {
        for (int k = 0; k < op->args[i].n; k++) {
            const struct mil_var *v = op->args[i].bindings[k].var;
            const struct interpreter_tensor *t = v && !is_constant(v) ? p->slots[v->id].tensor : NULL;
            if (!t)
                continue;
            (*key)[(*n)++] = t->rank;
            for (int d = 0; d < t->rank; d++)
                (*key)[(*n)++] = t->dims[d];
            for (int64_t j = 0; is_known && can_be_known(t) && j < t->n_elems; j++)
                (*key)[(*n)++] = ((const int32_t *)t->data)[j];
        }
    }
}

static struct made *find(struct interpreter *p, struct made *first, const struct mil_op *op, bool is_known)
{
    int64_t *key;
    size_t n;
    key_of(p, op, is_known, &key, &n);
    struct made *m = first;
    while (m && !(m->op == op && m->is_known == is_known && m->n_key == n &&
                  memcmp(m->key, key, n * sizeof *key) == 0))
        m = m->next;
    free(key);
    return m;
}

static bool get_made(struct interpreter *p, const struct mil_op *op, struct made **out)
{
    struct made **bucket = &p->made[((uintptr_t)op >> 4) % BUCKETS];
    struct err first = {0};
    bool was_known = false;
    *out = find(p, *bucket, op, false);
    if (*out)
        return true;
    for (const struct made *m = *bucket; m; m = m->next)
        was_known = was_known || (m->op == op && m->is_known);
    *out = was_known ? find(p, *bucket, op, true) : NULL;
    if (*out)
        return true;
    if (p->n_made >= MADE_MAX)
        forget_all(p);
    struct made *m = NULL;
    bool is_known = was_known;
    if (was_known || !make(p, op, false, &m, &first)) {
        if (!was_known && first.code != ERR_UNSUPPORTED) {
            *p->e = first;
            return false;
        }
        is_known = true;
        if (!make(p, op, true, &m, p->e))
            return false;
    }
    key_of(p, op, is_known, &m->key, &m->n_key);
    m->next = *bucket;
    *bucket = m;
    p->n_made++;
    *out = m;
    return true;
}

static bool run_made(struct interpreter *p, const struct mil_op *op)
{
    const struct backend *b = p->backend;
    struct made *m = NULL;
    for (int i = 0; i < op->n_args; i++) {
        for (int k = 0; k < op->args[i].n; k++) {
            const struct mil_var *v = op->args[i].bindings[k].var;
            if (v && !is_constant(v) && v->type->kind != MIL_TYPE_STATE && !p->slots[v->id].tensor)
                return fail(p, op, ERR_UNSUPPORTED, "an operand that was not computed");
        }
    }
    if (!get_made(p, op, &m))
        return false;
    if (p->states && !b->states_add(p->states, m->function, p->e))
        return false;
    for (int i = 0; i < m->n_inputs; i++) {
        const struct interpreter_tensor *t = p->slots[m->inputs[i]->id].tensor;
        int k = backend_find_input(m->function, m->inputs[i]->name);
        INVARIANT(k >= 0 && m->function->inputs[k].n_elems == t->n_elems &&
                      m->function->inputs[k].is_int == t->is_int,
                  "an operand has the shape that its op was made for");
        memcpy(b->run_input(m->run, k), t->data, (size_t)t->n_elems * 4);
    }
    if (!b->run_execute(m->run, p->states, p->e))
        return false;
    for (int i = 0; i < op->n_outputs; i++) {
        const struct mil_port *port = &m->function->outputs[i];
        struct interpreter_tensor *t = interpreter_tensor_new(port->dtype, port->rank, port->dims, p->e);
        if (!t)
            return false;
        memcpy(t->data, b->run_output(m->run, i), (size_t)t->n_elems * 4);
        slot_set(p, op->outputs[i], t);
    }
    return true;
}

/* ---- ops that no function can be made of ---- */

static bool run_block(struct interpreter *p, const struct mil_block *block);

/* The outputs of a block go to variables `to` [block->n_outputs], all at once: a loop may swap them. */
static bool hand_out(struct interpreter *p, const struct mil_op *op, struct mil_var *const *from,
                     struct mil_var *const *to, int n)
{
    struct slot *slots = xcalloc((size_t)n + 1, sizeof *slots);
    bool ok = true;
    for (int i = 0; ok && i < n; i++)
        ok = slot_of_binding(p, op, &(struct mil_binding){.var = from[i]}, &slots[i]);
    for (int i = 0; ok && i < n; i++)
        slot_copy(&p->slots[to[i]->id], &slots[i]);
    for (int i = 0; i < n; i++)
        slot_clear(&slots[i]);
    free(slots);
    return ok;
}

static bool run_cond(struct interpreter *p, const struct mil_op *op)
{
    int64_t pred;
    if (!whole_of(p, op, "pred", 0, &pred))
        return false;
    if (op->n_blocks != 2)
        return fail(p, op, ERR_FORMAT, "expected two blocks");
    const struct mil_block *block = op->blocks[pred ? 0 : 1];
    if (block->n_outputs != op->n_outputs)
        return fail(p, op, ERR_FORMAT, "its block gives another number of results");
    return run_block(p, block) && hand_out(p, op, block->outputs, op->outputs, op->n_outputs);
}

static bool run_while(struct interpreter *p, const struct mil_op *op)
{
    const struct mil_arg *vars = mil_arg_find(op, "loop_vars");
    if (op->n_blocks != 2 || !vars || vars->n != op->n_outputs)
        return fail(p, op, ERR_FORMAT, "expected two blocks, and a result for each of loop_vars");
    const struct mil_block *test = op->blocks[0], *body = op->blocks[1];
    if (test->n_inputs != vars->n || body->n_inputs != vars->n || body->n_outputs != vars->n ||
        test->n_outputs != 1)
        return fail(p, op, ERR_FORMAT, "its blocks do not fit loop_vars");
    for (int i = 0; i < vars->n; i++) {
        struct slot s;
        if (!slot_of_binding(p, op, &vars->bindings[i], &s))
            return false;
        slot_copy(&p->slots[op->outputs[i]->id], &s);
        slot_clear(&s);
    }
    for (;;) {
        struct slot s;
        if (!hand_out(p, op, op->outputs, test->inputs, vars->n) || !run_block(p, test) ||
            !slot_of_binding(p, op, &(struct mil_binding){.var = test->outputs[0]}, &s))
            return false;
        bool fits = s.tensor && s.tensor->is_int && s.tensor->n_elems == 1,
             goes_on = fits && *(int32_t *)s.tensor->data;
        slot_clear(&s);
        if (!fits)
            return fail(p, op, ERR_FORMAT, "its condition is not one bool");
        if (!goes_on)
            return true;
        if (!hand_out(p, op, op->outputs, body->inputs, vars->n) || !run_block(p, body) ||
            !hand_out(p, op, body->outputs, op->outputs, vars->n))
            return false;
    }
}

static bool run_non_zero(struct interpreter *p, const struct mil_op *op)
{
    struct slot s;
    if (!slot_of(p, op, "x", &s))
        return false;
    const struct interpreter_tensor *x = s.tensor;
    struct interpreter_tensor *y = NULL;
    int64_t dims[2] = {0, x ? x->rank : 0};
    for (int64_t i = 0; x && i < x->n_elems; i++)
        dims[0] += x->is_int ? ((const int32_t *)x->data)[i] != 0 : ((const float *)x->data)[i] != 0;
    bool ok = x && (y = interpreter_tensor_new(MIL_INT32, 2, dims, p->e));
    for (int64_t i = 0, row = 0; ok && i < x->n_elems; i++) {
        bool is_set = x->is_int ? ((const int32_t *)x->data)[i] != 0 : ((const float *)x->data)[i] != 0;
        int64_t rest = i;
        for (int d = x->rank - 1; is_set && d >= 0; d--) {
            ((int32_t *)y->data)[row * x->rank + d] = (int32_t)(rest % x->dims[d]);
            rest /= x->dims[d];
        }
        row += is_set;
    }
    slot_clear(&s);
    if (ok)
        slot_set(p, op->outputs[0], y);
    return ok || p->e->code || fail(p, op, ERR_FORMAT, "x is not a tensor");
}

/* Room for element `index`, and what was there goes. */
static bool list_put(struct interpreter *p, const struct mil_op *op, struct slot *s, int64_t index,
                     struct interpreter_tensor *t)
{
    if (index < 0 || index >= LIST_MAX)
        return fail(p, op, ERR_FAILED, "an index lies outside the list");
    if ((size_t)index >= s->n) {
        size_t n = (size_t)index + 1;
        struct interpreter_tensor **items = xcalloc(n + 1, sizeof *items);
        if (s->n > 0)
            memcpy(items, s->items, s->n * sizeof *items);
        free(s->items);
        s->items = items;
        s->n = n;
    }
    s->bytes += (t->n_elems - (s->items[index] ? s->items[index]->n_elems : 0)) * 4;
    interpreter_tensor_free(s->items[index]);
    s->items[index] = keep(t);
    return s->bytes <= LIST_BYTES_MAX || fail(p, op, ERR_LIMIT, "a list of more bytes than are supported");
}

static bool list_get(struct interpreter *p, const struct mil_op *op, const struct slot *s, int64_t index,
                     struct interpreter_tensor **out)
{
    if (index < 0)
        index += (int64_t)s->n;
    *out = index >= 0 && (size_t)index < s->n ? s->items[index] : NULL;
    if (!*out && index >= 0 && (size_t)index < s->n)
        *out = s->element;
    return *out || fail(p, op, ERR_FAILED, "an element of the list that was not written");
}

static bool is_same_shape(const struct interpreter_tensor *a, const struct interpreter_tensor *b)
{
    return a->rank == b->rank && a->dtype == b->dtype &&
           memcmp(a->dims, b->dims, sizeof a->dims[0] * (size_t)a->rank) == 0;
}

/* Elements at indices, stacked along a new first axis. */
static bool list_gather(struct interpreter *p, const struct mil_op *op, const struct slot *s,
                        const struct interpreter_tensor *indices)
{
    struct interpreter_tensor *item = NULL, *first = NULL, *y = NULL;
    if (!indices->is_int || indices->n_elems < 1)
        return fail(p, op, ERR_UNSUPPORTED, "expected at least one index");
    for (int64_t i = 0; i < indices->n_elems; i++) {
        if (!list_get(p, op, s, ((const int32_t *)indices->data)[i], &item))
            goto failed;
        if (!first) {
            int64_t dims[MIL_RANK_MAX];
            first = item;
            if (first->rank >= MIL_RANK_MAX) {
                (void)fail(p, op, ERR_UNSUPPORTED, "elements of too many axes");
                goto failed;
            }
            dims[0] = indices->n_elems;
            memcpy(dims + 1, first->dims, sizeof dims[0] * (size_t)first->rank);
            if (!(y = interpreter_tensor_new(first->dtype, first->rank + 1, dims, p->e)))
                goto failed;
        }
        if (!is_same_shape(item, first)) {
            (void)fail(p, op, ERR_FAILED, "elements of different shapes");
            goto failed;
        }
        memcpy((char *)y->data + i * first->n_elems * 4, item->data, (size_t)first->n_elems * 4);
    }
    slot_set(p, op->outputs[0], y);
    return true;
failed:
    interpreter_tensor_free(y);
    return false;
}

/* The rows of value [n, ..] become elements. */
static bool list_scatter(struct interpreter *p, const struct mil_op *op, struct slot *s,
                         const struct interpreter_tensor *indices, const struct interpreter_tensor *value)
{
    if (!indices->is_int || value->rank < 1 || value->dims[0] != indices->n_elems)
        return fail(p, op, ERR_FORMAT, "value does not fit the indices");
    int64_t n = value->dims[0] > 0 ? value->n_elems / value->dims[0] : 0;
    for (int64_t i = 0; i < indices->n_elems; i++) {
        struct interpreter_tensor *row =
            interpreter_tensor_new(value->dtype, value->rank - 1, value->dims + 1, p->e);
        if (!row)
            return false;
        memcpy(row->data, (const char *)value->data + i * n * 4, (size_t)n * 4);
        bool ok = list_put(p, op, s, ((const int32_t *)indices->data)[i], row);
        interpreter_tensor_free(row);
        if (!ok)
            return false;
    }
    return true;
}

static bool make_list(struct interpreter *p, const struct mil_op *op)
{
    const struct mil_value *shape = mil_arg_value(op, "elem_shape");
    const struct mil_type *t = op->outputs[0]->type;
    int64_t length, dims[MIL_RANK_MAX];
    int rank = 0;
    struct slot list = {.is_list = true};
    if (!whole_of(p, op, "init_length", 1, &length))
        return false;
    if (length < 0 || length > LIST_MAX)
        return fail(p, op, ERR_LIMIT, "a list of more elements than are supported");
    bool has_shape = shape && mil_value_ints(shape, dims, MIL_RANK_MAX, &rank) && t->kind == MIL_TYPE_LIST &&
                     t->elem && t->elem->kind == MIL_TYPE_TENSOR;
    for (int i = 0; has_shape && i < rank; i++)
        has_shape = dims[i] >= 0;
    if (has_shape && !(list.element = interpreter_tensor_new(t->elem->dtype, rank, dims, p->e)))
        return false;
    list.n = (size_t)length;
    list.items = xcalloc(list.n + 1, sizeof(struct interpreter_tensor *));
    slot_clear(&p->slots[op->outputs[0]->id]);
    p->slots[op->outputs[0]->id] = list;
    return true;
}

static bool run_list(struct interpreter *p, const struct mil_op *op)
{
    struct slot list = {0}, index = {0}, value = {0};
    struct interpreter_tensor *item = NULL;
    int64_t at = 0;
    bool ok = true, has_index = op->info->id == MIL_OP_LIST_GATHER || op->info->id == MIL_OP_LIST_SCATTER;
    ok = slot_of(p, op, "ls", &list) && (list.is_list || fail(p, op, ERR_FORMAT, "ls is not a list"));
    if (ok && has_index)
        ok = slot_of(p, op, "indices", &index) &&
             (index.tensor || fail(p, op, ERR_FORMAT, "indices are not a tensor"));
    else if (ok)
        ok = whole_of(p, op, "index", 0, &at);
    if (ok && mil_arg_find(op, "value"))
        ok = slot_of(p, op, "value", &value) &&
             (value.tensor || fail(p, op, ERR_FORMAT, "value is not a tensor"));
    if (!ok)
        goto done;
    switch (op->info->id) {
    case MIL_OP_LIST_LENGTH:
        ok = (item = interpreter_tensor_new(MIL_INT32, 0, NULL, p->e)) != NULL;
        if (ok) {
            *(int32_t *)item->data = (int32_t)list.n;
            slot_set(p, op->outputs[0], item);
        }
        break;
    case MIL_OP_LIST_READ:
        ok = list_get(p, op, &list, at, &item);
        if (ok)
            slot_set(p, op->outputs[0], keep(item));
        break;
    case MIL_OP_LIST_GATHER:
        ok = list_gather(p, op, &list, index.tensor);
        break;
    default:
        ok = op->info->id == MIL_OP_LIST_SCATTER ? list_scatter(p, op, &list, index.tensor, value.tensor)
                                                 : list_put(p, op, &list, at, value.tensor);
        if (ok)
            slot_copy(&p->slots[op->outputs[0]->id], &list);
        break;
    }
done:
    slot_clear(&list);
    slot_clear(&index);
    slot_clear(&value);
    return ok;
}

static bool run_op(struct interpreter *p, const struct mil_op *op)
{
    if (stop_requested(&p->stop))
        return stop_error(&p->stop, p->e);
    if (++p->n_ops > OPS_MAX)
        return fail(p, op, ERR_LIMIT, "more ops than one call may take");
    if (!op->info)
        return fail(p, op, ERR_UNSUPPORTED, "an unknown op");
    switch (op->info->id) {
    case MIL_OP_COND:
        return run_cond(p, op);
    case MIL_OP_WHILE_LOOP:
        return run_while(p, op);
    case MIL_OP_NON_ZERO:
        return run_non_zero(p, op);
    case MIL_OP_MAKE_LIST:
        return make_list(p, op);
    case MIL_OP_LIST_LENGTH:
    case MIL_OP_LIST_READ:
    case MIL_OP_LIST_WRITE:
    case MIL_OP_LIST_GATHER:
    case MIL_OP_LIST_SCATTER:
        return run_list(p, op);
    default:
        return run_made(p, op);
    }
}

static bool run_block(struct interpreter *p, const struct mil_block *block)
{
    for (int i = 0; i < block->n_ops; i++) {
        const struct mil_op *op = block->ops[i];
        bool makes_constant = op->n_outputs > 0 && is_constant(op->outputs[0]);
        if (!makes_constant && !run_op(p, op))
            return false;
    }
    return true;
}

/* ---- the whole ---- */

struct interpreter *interpreter_new(const struct backend *b, struct backend_package *package,
                                    const struct backend_source *source, const struct mil_function *f,
                                    struct pool *pool)
{
    struct interpreter *p = xcalloc(1, sizeof *p);
    *p = (struct interpreter){.backend = b, .package = package, .source = *source, .f = f, .pool = pool};
    p->slots = xcalloc((size_t)f->n_vars + 1, sizeof *p->slots);
    return p;
}

static void clear_slots(struct interpreter *p)
{
    for (int i = 0; i < p->f->n_vars; i++)
        slot_clear(&p->slots[i]);
}

void interpreter_free(struct interpreter *p)
{
    if (!p)
        return;
    forget_all(p);
    clear_slots(p);
    free(p->slots);
    free(p);
}

bool interpreter_run(struct interpreter *p, struct interpreter_tensor *const *inputs,
                     struct backend_states *states, const struct stop *stop,
                     struct interpreter_tensor **outputs, struct err *e)
{
    const struct mil_block *block = p->f->block;
    int k = 0;
    p->e = e;
    p->states = states;
    p->n_ops = 0;
    p->stop = stop ? *stop : (struct stop){0};
    for (int i = 0; i < block->n_outputs; i++)
        outputs[i] = NULL;
    for (int i = 0; i < p->f->n_inputs; i++)
        if (p->f->inputs[i]->type->kind != MIL_TYPE_STATE)
            slot_set(p, p->f->inputs[i], keep(inputs[k++]));
    bool ok = run_block(p, block);
    for (int i = 0; ok && i < block->n_outputs; i++) {
        const struct mil_op none = {.type = "output"};
        struct slot s;
        ok = slot_of_binding(p, &none, &(struct mil_binding){.var = block->outputs[i]}, &s);
        outputs[i] = ok ? keep(s.tensor) : NULL;
        slot_clear(&s);
        if (ok && !outputs[i])
            ok = err_set(e, ERR_UNSUPPORTED, "output %s is a list", block->outputs[i]->name);
    }
    for (int i = 0; !ok && i < block->n_outputs; i++) {
        interpreter_tensor_free(outputs[i]);
        outputs[i] = NULL;
    }
    clear_slots(p);
    p->states = NULL;
    return ok;
}
