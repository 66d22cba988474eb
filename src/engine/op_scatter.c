/* Ops at indices that are known by running: gather_nd, scatter, scatter_along_axis, scatter_nd. An index may count from the end; one outside the
 * tensor ends the run. Scatters that say whether indices are validated (ios17) know none from the end: where they are not validated, updates
 * with such ones are left out. Updates are taken in their order, by one thread, so that what comes last wins and sums have one order. */
#include <string.h>
#include "engine/compiler.h"

enum scatter_mode {
    SCATTER_ADD,
    SCATTER_UPDATE,
    SCATTER_SUB,
    SCATTER_MUL,
    SCATTER_DIV,
    SCATTER_MAX,
    SCATTER_MIN
};

static const char *const mode_names[] = {"add", "update", "sub", "mul", "div", "max", "min"};

/* Indices that count from the end, and what those outside do. */
enum outside { OUTSIDE_FAILS, OUTSIDE_FAILS_BELOW_0, OUTSIDE_IS_LEFT_OUT };

/* Slices of n_inner elements. Place i of an index array of n_places rows of n_index entries names one, by its first axes. */
struct indexed {
    enum scatter_mode mode;
    enum outside outside;
    int n_index;
    int64_t sizes[MIL_RANK_MAX]; /* of the axes that indices name */
    int64_t n_batches, n_places, n_inner;
    int64_t n_slices; /* that there are: the product of sizes */
    int64_t n_outer;  /* of scatter: axes before the one that indices name */
};

/* The slice that an index row names; -1: outside. */
static int64_t slice_of(const struct indexed *p, const int32_t *row)
{
    int64_t slice = 0;
    for (int i = 0; i < p->n_index; i++) {
        int64_t index = row[i];
        if (index < 0 && p->outside == OUTSIDE_FAILS)
            index += p->sizes[i];
        if (index < 0 || index >= p->sizes[i])
            return -1;
        slice = slice * p->sizes[i] + index;
    }
    return slice;
}

static void run_gather_nd(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct indexed *p = s->params;
    const int32_t *x = value_pointer(r, &s->in[0]), *indices = value_pointer(r, &s->in[1]);
    int32_t *y = value_pointer(r, &s->out[0]);
    int64_t begin, end;
    pool_split(p->n_batches * p->n_places, 1, i_thread, n_threads, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int64_t slice = slice_of(p, indices + i * p->n_index);
        if (slice < 0) {
            run_fail(r, s, "an index lies outside the tensor");
            return;
        }
        memcpy(y + i * p->n_inner, x + (i / p->n_places * p->n_slices + slice) * p->n_inner,
               (size_t)p->n_inner * 4);
    }
}

bool emit_gather_nd(struct compiler *c, const struct mil_op *op)
{
    const struct mil_type *t = var_type(c, op->outputs[0]);
    struct indexed *p = ARENA_NEW(c->arena, struct indexed);
    struct value x[2];
    int64_t batch;
    if (!operand_f32(c, op, "x", &x[0]) || !operand(c, op, "indices", &x[1]) ||
        !arg_int(c, op, "batch_dims", 0, &batch) || !to_dense(c, &x[0]) || !to_dense(c, &x[1]))
        return false;
    int last = x[1].rank - 1;
    if (x[1].repr != REPR_I32 || last < 0 || batch < 0 || batch > last || x[1].dims[last] > x[0].rank - batch)
        return compile_fail(c, ERR_FORMAT, "indices do not fit the tensor");
    for (int i = 0; i < batch; i++)
        if (x[0].dims[i] != x[1].dims[i])
            return compile_fail(c, ERR_FORMAT, "batch axes of different size");
    p->n_index = (int)x[1].dims[last];
    memcpy(p->sizes, x[0].dims + batch, sizeof p->sizes[0] * (size_t)p->n_index);
    int from = (int)batch + p->n_index;
    p->n_batches = dims_product(x[1].dims, (int)batch);
    p->n_places = dims_product(x[1].dims + batch, last - (int)batch);
    p->n_slices = dims_product(p->sizes, p->n_index);
    p->n_inner = dims_product(x[0].dims + from, x[0].rank - from);
    struct value y = value_new(c, x[0].repr, t->rank, t->dims);
    if (value_elems(&y) != p->n_batches * p->n_places * p->n_inner)
        return compile_fail(c, ERR_FORMAT, "its declared shape is not what its indices give");
    return emit_step(c, op, "gather nd", run_gather_nd, p, x, 2, y);
}

/* ---- scatter ---- */

static float combined(enum scatter_mode mode, float a, float b)
{
    switch (mode) {
    case SCATTER_ADD:
        return a + b;
    case SCATTER_SUB:
        return a - b;
    case SCATTER_MUL:
        return a * b;
    case SCATTER_DIV:
        return a / b;
    case SCATTER_MAX:
        return a > b ? a : b;
    case SCATTER_MIN:
        return a < b ? a : b;
    default:
        return b;
    }
}

/* Sums wrap around; a quotient by zero is zero. */
static int32_t combined_int(enum scatter_mode mode, int32_t a, int32_t b)
{
    switch (mode) {
    case SCATTER_ADD:
        return (int32_t)((uint32_t)a + (uint32_t)b);
    case SCATTER_SUB:
        return (int32_t)((uint32_t)a - (uint32_t)b);
    case SCATTER_MUL:
        return (int32_t)((uint32_t)a * (uint32_t)b);
    case SCATTER_DIV:
        return b == 0 ? 0 : (int32_t)((int64_t)a / b);
    case SCATTER_MAX:
        return a > b ? a : b;
    case SCATTER_MIN:
        return a < b ? a : b;
    default:
        return b;
    }
}

static void combine(enum scatter_mode mode, bool is_float, int32_t *y, const int32_t *u, int64_t n)
{
    float *yf = (float *)(void *)y;
    const float *uf = (const float *)(const void *)u;
    for (int64_t i = 0; i < n; i++) {
        if (is_float)
            yf[i] = combined(mode, yf[i], uf[i]);
        else
            y[i] = combined_int(mode, y[i], u[i]);
    }
}

/* data and y [n_outer, n_slices, n_inner], updates [n_outer, n_places, n_inner]; y begins as a copy of data. */
struct scatter {
    const int32_t *indices, *updates;
    int32_t *y;
};

static struct scatter begin_scatter(const struct step *s, struct engine_run *r)
{
    const struct indexed *p = s->params;
    const struct scatter x = {.indices = value_pointer(r, &s->in[1]),
                              .updates = value_pointer(r, &s->in[2]),
                              .y = value_pointer(r, &s->out[0])};
    memcpy(x.y, value_pointer(r, &s->in[0]), (size_t)(p->n_outer * p->n_slices * p->n_inner) * 4);
    return x;
}

/* Combines n numbers from `from` on of updates with those of y; false: the index lies outside. */
static bool scatter_at(const struct step *s, struct engine_run *r, const struct scatter *x, int64_t slice,
                       int64_t outer, int64_t inner, int64_t from, int64_t n)
{
    const struct indexed *p = s->params;
    if (slice < 0 && p->outside == OUTSIDE_IS_LEFT_OUT)
        return true;
    if (slice < 0) {
        run_fail(r, s, "an index lies outside the tensor");
        return false;
    }
    combine(p->mode, s->out[0].repr == REPR_F32, x->y + (outer * p->n_slices + slice) * p->n_inner + inner,
            x->updates + from, n);
    return true;
}

/* indices [n_places, n_index]: whole slices. */
static void run_scatter(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct indexed *p = s->params;
    const struct scatter x = begin_scatter(s, r);
    (void)i_thread;
    (void)n_threads;
    for (int64_t outer = 0; outer < p->n_outer; outer++)
        for (int64_t i = 0; i < p->n_places && !run_stops(r, i); i++)
            if (!scatter_at(s, r, &x, slice_of(p, x.indices + i * p->n_index), outer, 0,
                            (outer * p->n_places + i) * p->n_inner, p->n_inner))
                return;
}

/* data and indices of one rank, updates of the indices' shape: element by element along one axis. */
static void run_scatter_along(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct indexed *p = s->params;
    const struct scatter x = begin_scatter(s, r);
    (void)i_thread;
    (void)n_threads;
    int64_t n = p->n_outer * p->n_places * p->n_inner;
    for (int64_t i = 0; i < n && !run_stops(r, i); i++)
        if (!scatter_at(s, r, &x, slice_of(p, x.indices + i), i / p->n_inner / p->n_places, i % p->n_inner, i,
                        1))
            return;
}

static bool scatter_operands(struct compiler *c, const struct mil_op *op, struct value x[3], int *mode)
{
    if (!operand_f32(c, op, "data", &x[0]) || !operand(c, op, "indices", &x[1]) ||
        !operand_f32(c, op, "updates", &x[2]) || !arg_word(c, op, "mode", mode_names, 7, mode))
        return false;
    for (int i = 0; i < 3; i++)
        if (!to_dense(c, &x[i]))
            return false;
    if (x[1].repr != REPR_I32 || x[0].repr != x[2].repr)
        return compile_fail(c, ERR_FORMAT, "indices are not integers, or data and updates differ in kind");
    return true;
}

bool emit_scatter(struct compiler *c, const struct mil_op *op)
{
    struct indexed *p = ARENA_NEW(c->arena, struct indexed);
    struct value x[3];
    int mode, axis = 0, id = op->info->id;
    bool fits, validates;
    if (!scatter_operands(c, op, x, &mode) || !arg_bool(c, op, "validate_indices", false, &validates))
        return false;
    if (mil_arg_find(op, "validate_indices"))
        p->outside = validates ? OUTSIDE_FAILS_BELOW_0 : OUTSIDE_IS_LEFT_OUT;
    if (id != MIL_OP_SCATTER_ND && !arg_axis(c, op, 0, x[0].rank, &axis))
        return false;
    p->mode = (enum scatter_mode)mode;
    if (id == MIL_OP_SCATTER_ND) {
        int last = x[1].rank - 1;
        fits = last >= 0 && x[1].dims[last] <= x[0].rank;
        p->n_index = fits ? (int)x[1].dims[last] : 0;
        p->n_places = fits ? dims_product(x[1].dims, last) : 0;
        p->n_outer = 1;
        memcpy(p->sizes, x[0].dims, sizeof p->sizes[0] * (size_t)p->n_index);
        p->n_inner = dims_product(x[0].dims + p->n_index, x[0].rank - p->n_index);
    } else {
        p->n_index = 1;
        p->sizes[0] = x[0].dims[axis];
        p->n_outer = dims_product(x[0].dims, axis);
        p->n_inner = dims_product(x[0].dims + axis + 1, x[0].rank - axis - 1);
        p->n_places = id == MIL_OP_SCATTER     ? value_elems(&x[1])
                      : x[1].rank == x[0].rank ? x[1].dims[axis]
                                               : 0;
        fits = true;
    }
    if (id == MIL_OP_SCATTER_ALONG_AXIS) {
        fits = x[1].rank == x[0].rank && x[2].rank == x[1].rank;
        for (int i = 0; fits && i < x[0].rank; i++)
            fits = x[1].dims[i] == x[2].dims[i] && (i == axis || x[1].dims[i] == x[0].dims[i]);
    }
    p->n_slices = dims_product(p->sizes, p->n_index);
    if (!fits || value_elems(&x[2]) != p->n_outer * p->n_places * p->n_inner)
        return compile_fail(c, ERR_FORMAT, "data, indices and updates do not fit each other");
    struct value y = value_new(c, x[0].repr, x[0].rank, x[0].dims);
    struct step *s = step_make(c, op->info->name,
                               id == MIL_OP_SCATTER_ALONG_AXIS ? run_scatter_along : run_scatter, p, x, 3, y);
    s->serial = true;
    set_output(c, op, 0, y);
    return true;
}
