/* What the emitters of ops (op_*.c) share: values and storages, steps, copies, operands and arguments, results. */
#include <stdlib.h>
#include <string.h>
#include "engine/compiler.h"

/* What an op makes; of one that makes nothing (write_state) the first variable that it is about. */
static const char *op_label(const struct mil_op *op)
{
    if (op->n_outputs > 0)
        return op->outputs[0]->name;
    for (int i = 0; i < op->n_args; i++)
        if (op->args[i].n > 0 && op->args[i].bindings[0].var && strcmp(op->args[i].name, "data") != 0)
            return op->args[i].bindings[0].var->name;
    return op->type;
}

bool compile_fail(struct compiler *c, enum err_code code, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (!c->op)
        return err_set(c->e, code, "function %s: %s", c->g.f->name, text);
    return err_set(c->e, code, "function %s: op %s (%s): %s", c->g.f->name, c->op->type, op_label(c->op),
                   text);
}

bool compile_take_memory(struct compiler *c, int64_t n, int64_t bytes)
{
    struct engine_plan *p = c->plan;
    double taken, most;
    budget_memory(c->budget, &taken, &most);
    double total = taken + (double)p->memory + (double)n * (double)bytes;
    if (total > most)
        return compile_fail(c, ERR_LIMIT, "needs %.0f MB of memory%s, the limit is %.0f MB (" LIMIT_HINT ")",
                            total * 1e-6, taken > 0 ? " beside the functions before it" : "", most * 1e-6);
    p->memory += (uint64_t)n * (uint64_t)bytes;
    return true;
}

bool compile_goes_on(struct compiler *c, int64_t i)
{
    return (i & 0xffff) != 0xffff || !stop_requested(c->plan->stop) || stop_error(c->plan->stop, c->e);
}

bool compile_floats(struct compiler *c, float *dst, const struct mil_value *v, int64_t n)
{
    const int64_t at_a_time = 0x10000;
    for (int64_t i = 0; i < n; i += at_a_time) {
        mil_value_floats(dst + i, v, i, n - i < at_a_time ? n - i : at_a_time);
        if (!compile_goes_on(c, i + at_a_time - 1))
            return false;
    }
    return true;
}

/* The most steps that a plan may have; real models stay far below. */
#define STEPS_MAX 1000000

bool compile_take_steps(struct compiler *c, int n)
{
    return (n <= STEPS_MAX && c->plan->n_steps <= STEPS_MAX - n) ||
           compile_fail(c, ERR_LIMIT, "more than %d steps", STEPS_MAX);
}

enum repr dtype_repr(enum mil_dtype d)
{
    return mil_dtype_is_float(d) ? REPR_F32 : REPR_I32;
}

const struct mil_type *var_type(const struct compiler *c, const struct mil_var *v)
{
    return c->g.types[v->id];
}

/* ---- storages and values ---- */

int storage_new(struct compiler *c, enum storage_kind kind, enum repr repr, int64_t n_elems)
{
    struct engine_plan *p = c->plan;
    p->storages = mem_grow(p->storages, (size_t)p->n_storages, &c->cap_storages, sizeof *p->storages);
    p->storages[p->n_storages] = (struct storage){
        .kind = kind, .repr = repr, .n_elems = n_elems, .index = -1, .first_step = -1, .last_step = -1};
    return p->n_storages++;
}

struct value value_new(struct compiler *c, enum repr repr, int rank, const int64_t *dims)
{
    struct value v = {.repr = repr, .rank = rank};
    for (int i = 0; i < rank; i++)
        v.dims[i] = dims[i];
    dense_strides(rank, dims, v.strides);
    v.storage = storage_new(c, STORAGE_ARENA, repr, value_elems(&v));
    return v;
}

struct value value_new_like(struct compiler *c, enum repr repr, int rank, const int64_t *dims,
                            const struct value *like)
{
    struct value v = value_new(c, repr, rank, dims);
    int order[MIL_RANK_MAX], n = 0;
    int64_t stride = 1;
    if (!like || like->rank != rank)
        return v;
    /* Axes by falling stride, equal ones in their order; an axis of 1 has no place among them. */
    for (int i = 0; i < rank; i++) {
        int at = n;
        if (dims[i] == 1)
            continue;
        for (; at > 0 && like->strides[order[at - 1]] < like->strides[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
        n++;
    }
    for (int i = n - 1; i >= 0; i--) {
        v.strides[order[i]] = stride;
        stride *= dims[order[i]];
    }
    for (int i = rank - 1; i >= 0; i--)
        if (dims[i] == 1)
            v.strides[i] = i + 1 < rank ? v.strides[i + 1] * dims[i + 1] : 1;
    return v;
}

/* ---- steps ---- */

struct step *step_new(struct compiler *c, const char *name, step_fn run)
{
    struct engine_plan *p = c->plan;
    p->steps = mem_grow(p->steps, (size_t)p->n_steps, &c->cap_steps, sizeof *p->steps);
    struct step *s = &p->steps[p->n_steps++];
    *s = (struct step){.run = run, .name = name, .serial = true};
    if (c->op)
        s->label = op_label(c->op);
    return s;
}

void step_in(struct compiler *c, struct step *s, struct value v)
{
    INVARIANT(s->n_in < STEP_OPERANDS, "a step has no more operands than there is room for");
    INVARIANT(v.storage >= 0 && v.storage < c->plan->n_storages, "an operand lies in a storage of the plan");
    s->in[s->n_in++] = v;
}

void step_out(struct compiler *c, struct step *s, struct value v)
{
    INVARIANT(s->n_out < STEP_OPERANDS, "a step has no more results than there is room for");
    INVARIANT(c->plan->storages[v.storage].kind == STORAGE_ARENA ||
                  c->plan->storages[v.storage].kind == STORAGE_STATE,
              "a constant or an input is not a result");
    s->out[s->n_out++] = v;
}

struct step *step_make(struct compiler *c, const char *name, step_fn run, const void *params,
                       const struct value *x, int n, struct value y)
{
    struct step *s = step_new(c, name, run);
    s->params = params;
    s->serial = value_elems(&y) < PARALLEL_ELEMS;
    for (int i = 0; i < n; i++)
        step_in(c, s, x[i]);
    step_out(c, s, y);
    return s;
}

bool emit_step(struct compiler *c, const struct mil_op *op, const char *name, step_fn run, const void *params,
               const struct value *x, int n, struct value y)
{
    step_make(c, name, run, params, x, n, y);
    set_output(c, op, 0, y);
    return true;
}

/* ---- copies ---- */

struct copy_params {
    int rank;
    int64_t dims[MIL_RANK_MAX];
    int64_t strides[2][MIL_RANK_MAX]; /* to, from */
};

enum { GATHERED = 256 }; /* elements that are brought together for one conversion */

/* n elements that lie to_step and from_step apart; convert(y, x, n) takes those without gaps. */
#define CONVERT(to_type, from_type, convert)                                                                 \
    do {                                                                                                     \
        to_type *y = (to_type *)base_to + at, near_to[GATHERED];                                             \
        const from_type *x = (const from_type *)base_from + src;                                             \
        from_type near_from[GATHERED];                                                                       \
        if (to_step == 1 && from_step == 1) {                                                                \
            convert(y, x, n);                                                                                \
            break;                                                                                           \
        }                                                                                                    \
        for (int64_t begin = 0, n_part; begin < n; begin += n_part) {                                        \
            n_part = n - begin < GATHERED ? n - begin : GATHERED;                                            \
            for (int64_t i = 0; i < n_part; i++)                                                             \
                near_from[i] = x[(begin + i) * from_step];                                                   \
            convert(near_to, near_from, n_part);                                                             \
            for (int64_t i = 0; i < n_part; i++)                                                             \
                y[(begin + i) * to_step] = near_to[i];                                                       \
        }                                                                                                    \
    } while (0)

/* The same where nothing is converted. */
#define MOVE(type)                                                                                           \
    do {                                                                                                     \
        type *y = (type *)base_to + at;                                                                      \
        const type *x = (const type *)base_from + src;                                                       \
        if (to_step == 1 && from_step == 1)                                                                  \
            memcpy(y, x, (size_t)n * sizeof *y);                                                             \
        else                                                                                                 \
            for (int64_t i = 0; i < n; i++)                                                                  \
                y[i * to_step] = x[i * from_step];                                                           \
    } while (0)

static void copy_row(const struct engine_run *r, const struct value *to, const struct value *from, int64_t at,
                     int64_t src, int64_t n, int64_t to_step, int64_t from_step)
{
    char *base_to = value_pointer(r, to);
    const char *base_from = value_pointer(r, from);
    if (to->repr == REPR_F16 && from->repr == REPR_F16)
        MOVE(f16);
    else if (to->repr == REPR_F16)
        CONVERT(f16, float, r->k->f32_to_f16);
    else if (from->repr == REPR_F16)
        CONVERT(float, f16, r->k->f16_to_f32);
    else /* both representations of 4 bytes move as they are */
        MOVE(int32_t);
}

static void run_copy(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct copy_params *p = s->params;
    int inner = p->rank - 1;
    int64_t n_outer = 1, begin, end;
    for (int i = 0; i < inner; i++)
        n_outer *= p->dims[i];
    if (inner == 0) {
        pool_split(p->dims[0], 64, i_thread, n_threads, &begin, &end);
        if (end > begin)
            copy_row(r, &s->out[0], &s->in[0], begin * p->strides[0][0], begin * p->strides[1][0],
                     end - begin, p->strides[0][0], p->strides[1][0]);
        return;
    }
    pool_split(n_outer, 1, i_thread, n_threads, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        int64_t at[2]; /* to, from */
        walk_offsets(inner, p->dims, 2, p->strides, row, at);
        copy_row(r, &s->out[0], &s->in[0], at[0], at[1], p->dims[inner], p->strides[0][inner],
                 p->strides[1][inner]);
    }
}

void emit_copy(struct compiler *c, const struct value *from, const struct value *to)
{
    struct copy_params *p = ARENA_NEW(c->arena, struct copy_params);
    if (value_elems(to) == 0)
        return;
    /* Axes in the order in which the target lies, which its source mostly shares (value_new_like). */
    int order[MIL_RANK_MAX];
    axes_by_stride(to, order);
    for (int i = 0; i < to->rank; i++) {
        p->dims[i] = to->dims[order[i]];
        p->strides[0][i] = to->strides[order[i]];
        p->strides[1][i] = from->strides[order[i]];
    }
    p->rank = coalesce(to->rank, p->dims, 2, p->strides);
    struct step *s = step_new(c, "copy", run_copy);
    s->params = p;
    s->serial = value_elems(to) < PARALLEL_ELEMS;
    step_in(c, s, *from);
    step_out(c, s, *to);
}

bool to_f32(struct compiler *c, struct value *v)
{
    if (v->repr != REPR_F16)
        return true;
    struct value once = *v; /* what is repeated along an axis is so behind the copy, too */
    for (int i = 0; i < v->rank; i++)
        once.dims[i] = v->strides[i] == 0 && v->dims[i] > 0 ? 1 : v->dims[i];
    struct value y = value_new_like(c, REPR_F32, v->rank, once.dims, v);
    emit_copy(c, &once, &y);
    for (int i = 0; i < v->rank; i++)
        if (once.dims[i] != v->dims[i]) {
            y.dims[i] = v->dims[i];
            y.strides[i] = 0;
        }
    *v = y;
    return true;
}

bool to_dense(struct compiler *c, struct value *v)
{
    if (is_dense(v))
        return true;
    struct value y = value_new(c, v->repr, v->rank, v->dims);
    emit_copy(c, v, &y);
    *v = y;
    return true;
}

void to_unit_rows(struct compiler *c, struct value *v)
{
    int last = v->rank - 1;
    if (v->dims[last] == 1 || v->strides[last] == 1)
        return;
    struct value y = value_new(c, v->repr, v->rank, v->dims);
    emit_copy(c, v, &y);
    *v = y;
}

/* ---- constants and operands ---- */

bool const_value(struct compiler *c, const struct mil_value *v, enum repr repr, struct value *out)
{
    const struct mil_type *t = v->type;
    size_t slot = ((uintptr_t)v >> 4) % 256;
    struct const_cache *hit = c->const_cache[slot];
    if (t->kind != MIL_TYPE_TENSOR || t->dtype == MIL_STRING || t->rank > MIL_RANK_MAX || v->n_elems < 0)
        return compile_fail(c, ERR_UNSUPPORTED, "a constant that is not a tensor of numbers");
    if (v->kind == MIL_VALUE_WEIGHT || (!v->data && v->n_elems > 0))
        return compile_fail(c, ERR_BUG, "a constant without data");
    while (hit && !(hit->v == v && hit->repr == repr))
        hit = hit->next;
    if (!hit) {
        hit = ARENA_NEW(c->scratch, struct const_cache);
        hit->v = v;
        hit->repr = repr;
        hit->storage = storage_new(c, STORAGE_CONST, repr, v->n_elems);
        hit->next = c->const_cache[slot];
        c->const_cache[slot] = hit;
        struct storage *s = &c->plan->storages[hit->storage];
        if (repr == REPR_F16 || (repr == REPR_F32 && t->dtype == MIL_FP32 && (uintptr_t)v->data % 4 == 0) ||
            (repr == REPR_I32 && t->dtype == MIL_INT32 && (uintptr_t)v->data % 4 == 0)) {
            s->data = v->data;
        } else {
            void *data = NULL;
            if (!compile_take_memory(c, v->n_elems, 4) ||
                !(data = arena_try_alloc(c->arena, (size_t)v->n_elems + 16, 4, c->e)))
                return false;
            if (repr == REPR_F32 && t->dtype == MIL_FP16 && (uintptr_t)v->data % 2 == 0) {
                f16_to_f32_n(data, v->data, (size_t)v->n_elems);
            } else {
                for (int64_t i = 0; i < v->n_elems; i++) {
                    double d = mil_value_element(v, i);
                    if (!compile_goes_on(c, i))
                        return false;
                    if (repr == REPR_F32)
                        ((float *)data)[i] = (float)d;
                    else
                        ((int32_t *)data)[i] = d > INT32_MAX   ? INT32_MAX
                                               : d < INT32_MIN ? INT32_MIN
                                                               : (int32_t)d;
                }
            }
            s->data = data;
        }
    }
    *out = (struct value){.storage = hit->storage, .repr = repr, .rank = t->rank};
    for (int i = 0; i < t->rank; i++)
        out->dims[i] = t->dims[i];
    dense_strides(out->rank, out->dims, out->strides);
    return true;
}

static const struct mil_value *arg_const(const struct compiler *c, const struct mil_op *op, const char *name)
{
    const struct mil_arg *a = mil_arg_find(op, name);
    if (!a || a->n != 1)
        return mil_attribute(op, name);
    return a->bindings[0].value ? a->bindings[0].value : c->consts[a->bindings[0].var->id];
}

bool arg_ints(struct compiler *c, const struct mil_op *op, const char *name, int64_t *dst, int *n)
{
    int n_max = *n;
    const struct mil_value *v = arg_const(c, op, name);
    *n = 0;
    if (!v && mil_arg_find(op, name)) { /* from shapes alone, else not before the run */
        if (!mil_infer_ints(op, name, c->g.types, c->known, dst, n_max, n))
            return compile_fail(c, ERR_UNSUPPORTED, "argument %s is not known before the run", name);
        for (int i = 0; i < *n; i++)
            if (dst[i] == MIL_INT_UNKNOWN)
                return compile_fail(c, ERR_UNSUPPORTED, "argument %s is not known before the run", name);
        return true;
    }
    if (!v)
        return true;
    if (!mil_value_ints(v, dst, n_max, n))
        return compile_fail(c, ERR_UNSUPPORTED, "argument %s: expected at most %d integers", name, n_max);
    return true;
}

bool arg_int(struct compiler *c, const struct mil_op *op, const char *name, int64_t fallback, int64_t *dst)
{
    int n = 1;
    int64_t v[1];
    if (!arg_ints(c, op, name, v, &n))
        return false;
    *dst = n == 1 ? v[0] : fallback;
    return true;
}

bool axis_of(struct compiler *c, int64_t axis, int rank, int *out)
{
    if (axis < 0)
        axis += rank;
    *out = (int)axis;
    return (axis >= 0 && axis < rank) || compile_fail(c, ERR_FORMAT, "axis outside the tensor");
}

bool arg_axis(struct compiler *c, const struct mil_op *op, int64_t fallback, int rank, int *axis)
{
    int64_t a;
    return arg_int(c, op, "axis", fallback, &a) && axis_of(c, a, rank, axis);
}

bool arg_word(struct compiler *c, const struct mil_op *op, const char *name, const char *const *words, int n,
              int *which)
{
    const struct mil_value *v = mil_arg_value(op, name);
    struct str text = {words[0], strlen(words[0])};
    if (v && !mil_value_string(v, &text))
        return compile_fail(c, ERR_FORMAT, "%s is not a string", name);
    for (int i = 0; i < n; i++)
        if (text.n == strlen(words[i]) && memcmp(text.p, words[i], text.n) == 0) {
            *which = i;
            return true;
        }
    return compile_fail(c, ERR_UNSUPPORTED, "%s %.*s", name, (int)text.n, text.p);
}

bool arg_bool(struct compiler *c, const struct mil_op *op, const char *name, bool fallback, bool *dst)
{
    int64_t v;
    if (!arg_int(c, op, name, fallback, &v))
        return false;
    *dst = v != 0;
    return true;
}

bool arg_float(struct compiler *c, const struct mil_op *op, const char *name, double fallback, double *dst)
{
    const struct mil_value *v = arg_const(c, op, name);
    *dst = fallback;
    if (!v && mil_arg_find(op, name))
        return compile_fail(c, ERR_UNSUPPORTED, "argument %s is not known before the run", name);
    if (v && !mil_value_float(v, dst))
        return compile_fail(c, ERR_UNSUPPORTED, "argument %s: expected one number", name);
    return true;
}

/* ---- results ---- */

struct round_f16 {
    int64_t n_elems; /* of the storage */
};

static void run_round(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    int64_t begin, end;
    const struct round_f16 *p = s->params;
    float *x = value_pointer(r, &s->out[0]);
    pool_split(p->n_elems, 64, i_thread, n_threads, &begin, &end);
    if (r->plan->precision != ENGINE_ANE) {
        r->k->round_f16(x + begin, x + begin, end - begin);
        return;
    }
    for (int64_t i = begin; i < end; i++)
        x[i] = ane_round((double)x[i]);
}

/* In the emulation: not what only moves numbers that are rounded, and not the frequent ops that round by themselves. */
static bool rounds_behind(enum mil_op_id id)
{
    switch (id) {
    case MIL_OP_ADD:
    case MIL_OP_CONCAT:
    case MIL_OP_CONV:
    case MIL_OP_EXP:
    case MIL_OP_GATHER:
    case MIL_OP_LINEAR:
    case MIL_OP_MATMUL:
    case MIL_OP_MUL:
    case MIL_OP_READ_STATE:
    case MIL_OP_SELECT:
    case MIL_OP_SLICE_BY_INDEX:
    case MIL_OP_SLICE_BY_SIZE:
    case MIL_OP_SLICE_UPDATE:
    case MIL_OP_SPLIT:
    case MIL_OP_STACK:
    case MIL_OP_SUB:
    case MIL_OP_TANH:
    case MIL_OP_TILE:
        return false;
    default:
        return true;
    }
}

static bool is_rounded(const struct compiler *c, const struct mil_op *op, const struct mil_type *t)
{
    if (c->plan->precision == ENGINE_ANE)
        return rounds_behind(op->info->id);
    return c->plan->precision == ENGINE_FP16 && t->dtype == MIL_FP16;
}

void set_var(struct compiler *c, const struct mil_var *var, struct value v)
{
    c->values[var->id] = v;
}

void set_output(struct compiler *c, const struct mil_op *op, int i, struct value v)
{
    const struct mil_type *t = var_type(c, op->outputs[i]);
    set_var(c, op->outputs[i], v);
    if (v.repr != REPR_F32 || !is_rounded(c, op, t))
        return;
    struct round_f16 *p = ARENA_NEW(c->arena, struct round_f16);
    struct value whole = v; /* a fresh value fills its storage */
    struct step *s = step_new(c, "round f16", run_round);
    whole.offset = 0;
    p->n_elems = c->plan->storages[v.storage].n_elems;
    s->params = p;
    s->serial = p->n_elems < PARALLEL_ELEMS;
    step_out(c, s, whole);
}
