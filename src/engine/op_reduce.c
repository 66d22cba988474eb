/* Reductions over axes, one result element after another: sums in double in the order of the axes, so the number of
 * threads plays no part. */
#include <math.h>
#include <string.h>
#include "engine/compiler.h"

struct reduce {
    int id, kept_rank, rank;
    int64_t kept_dims[MIL_RANK_MAX], kept_strides[MIL_RANK_MAX]; /* of x; y is dense */
    int64_t dims[MIL_RANK_MAX], strides[MIL_RANK_MAX];           /* reduced axes of x */
    int64_t n_kept, n;
};

/* Offset of element k of the reduced axes. */
static int64_t reduced_offset(const struct reduce *p, int64_t k)
{
    return walk_offset(p->rank, p->dims, p->strides, k);
}

static double reduce_floats(const struct engine_run *r, const struct reduce *p, const float *x)
{
    double sum = p->id == MIL_OP_REDUCE_PROD ? 1 : 0,
           best = p->id == MIL_OP_REDUCE_MIN ? INFINITY : -INFINITY;
    for (int64_t k = 0; k < p->n && !run_stops(r, k); k++) {
        double v = x[reduced_offset(p, k)];
        switch (p->id) {
        case MIL_OP_REDUCE_L1_NORM:
            sum += fabs(v);
            break;
        case MIL_OP_REDUCE_L2_NORM:
        case MIL_OP_REDUCE_SUM_SQUARE:
            sum += v * v;
            break;
        case MIL_OP_REDUCE_PROD:
            sum *= v;
            break;
        case MIL_OP_REDUCE_MIN:
            best = v < best ? v : best;
            break;
        case MIL_OP_REDUCE_MAX:
        case MIL_OP_REDUCE_LOG_SUM_EXP:
            best = v > best ? v : best;
            break;
        default:
            sum += v;
            break;
        }
    }
    switch (p->id) {
    case MIL_OP_REDUCE_MEAN:
        return sum / (double)p->n;
    case MIL_OP_REDUCE_L2_NORM:
        return sqrt(sum);
    case MIL_OP_REDUCE_LOG_SUM:
        return log(sum);
    case MIL_OP_REDUCE_MAX:
    case MIL_OP_REDUCE_MIN:
        return best;
    case MIL_OP_REDUCE_LOG_SUM_EXP:
        if (isinf(best))
            return best;
        for (int64_t k = 0; k < p->n && !run_stops(r, k); k++)
            sum += exp((double)x[reduced_offset(p, k)] - best);
        return best + log(sum);
    default:
        return sum;
    }
}

/* Integers wrap around. */
static int32_t reduce_ints(const struct engine_run *r, const struct reduce *p, const int32_t *x)
{
    uint32_t sum = p->id == MIL_OP_REDUCE_PROD ? 1 : 0;
    int32_t best = p->id == MIL_OP_REDUCE_MIN ? INT32_MAX : INT32_MIN;
    for (int64_t k = 0; k < p->n && !run_stops(r, k); k++) {
        int32_t v = x[reduced_offset(p, k)];
        uint32_t u = (uint32_t)v;
        best = (p->id == MIL_OP_REDUCE_MIN ? v < best : v > best) ? v : best;
        switch (p->id) {
        case MIL_OP_REDUCE_L1_NORM:
            sum += v < 0 ? 0u - u : u;
            break;
        case MIL_OP_REDUCE_SUM_SQUARE:
            sum += u * u;
            break;
        case MIL_OP_REDUCE_PROD:
            sum *= u;
            break;
        default:
            sum += u;
            break;
        }
    }
    return p->id == MIL_OP_REDUCE_MAX || p->id == MIL_OP_REDUCE_MIN ? best : (int32_t)sum;
}

/* The first of the best; NaN never is. */
static int32_t reduce_index(const struct engine_run *r, const struct reduce *p, const void *x, bool is_float)
{
    int64_t best = -1;
    double best_value = 0;
    for (int64_t k = 0; k < p->n && !run_stops(r, k); k++) {
        int64_t at = reduced_offset(p, k);
        double v = is_float ? ((const float *)x)[at] : ((const int32_t *)x)[at];
        if (v == v && (best < 0 || (p->id == MIL_OP_REDUCE_ARGMAX ? v > best_value : v < best_value))) {
            best = k;
            best_value = v;
        }
    }
    return best < 0 ? 0 : (int32_t)best;
}

static void run_reduce(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct reduce *p = s->params;
    const int32_t *x0 = value_pointer(r, &s->in[0]); /* elements of 4 bytes */
    int32_t *y = value_pointer(r, &s->out[0]);
    bool is_float = s->in[0].repr == REPR_F32;
    int64_t begin, end;
    pool_split(p->n_kept, 1, i_thread, n_threads, &begin, &end);
    for (int64_t item = begin; item < end; item++) {
        int64_t at = walk_offset(p->kept_rank, p->kept_dims, p->kept_strides, item);
        if (p->id == MIL_OP_REDUCE_ARGMAX || p->id == MIL_OP_REDUCE_ARGMIN)
            y[item] = reduce_index(r, p, x0 + at, is_float);
        else if (is_float)
            ((float *)y)[item] = (float)reduce_floats(r, p, (const float *)x0 + at);
        else
            y[item] = reduce_ints(r, p, x0 + at);
    }
}

static bool is_integer_reduction(int id)
{
    switch (id) {
    case MIL_OP_REDUCE_SUM:
    case MIL_OP_REDUCE_MAX:
    case MIL_OP_REDUCE_MIN:
    case MIL_OP_REDUCE_PROD:
    case MIL_OP_REDUCE_L1_NORM:
    case MIL_OP_REDUCE_SUM_SQUARE:
    case MIL_OP_REDUCE_ARGMAX:
    case MIL_OP_REDUCE_ARGMIN:
        return true;
    default:
        return false;
    }
}

bool emit_reduce(struct compiler *c, const struct mil_op *op)
{
    const struct mil_type *t = var_type(c, op->outputs[0]);
    struct reduce *p = ARENA_NEW(c->arena, struct reduce);
    struct value x;
    int64_t axes[MIL_RANK_MAX];
    int n = MIL_RANK_MAX, id = op->info->id;
    bool reduced[MIL_RANK_MAX] = {false}, index = id == MIL_OP_REDUCE_ARGMAX || id == MIL_OP_REDUCE_ARGMIN;
    if (!operand_f32(c, op, "x", &x))
        return false;
    if (index) {
        n = 1;
        if (!arg_int(c, op, "axis", -1, &axes[0]))
            return false;
    } else if (!arg_ints(c, op, "axes", axes, &n)) {
        return false;
    }
    if (x.repr != REPR_F32 && !is_integer_reduction(id))
        return compile_fail(c, ERR_UNSUPPORTED, "integer operand");
    if ((index ? REPR_I32 : x.repr) != dtype_repr(t->dtype))
        return compile_fail(c, ERR_FORMAT, "its operand and its result are of different kinds");
    for (int i = 0; i < x.rank && n == 0; i++)
        reduced[i] = true;
    for (int i = 0; i < n; i++) {
        int axis;
        if (!axis_of(c, axes[i], x.rank, &axis))
            return false;
        reduced[axis] = true;
    }
    p->id = id;
    for (int i = 0; i < x.rank; i++) {
        if (reduced[i]) {
            p->dims[p->rank] = x.dims[i];
            p->strides[p->rank++] = x.strides[i];
        } else {
            p->kept_dims[p->kept_rank] = x.dims[i];
            p->kept_strides[p->kept_rank++] = x.strides[i];
        }
    }
    p->n = dims_product(p->dims, p->rank);
    p->n_kept = dims_product(p->kept_dims, p->kept_rank);
    struct value y = value_new(c, dtype_repr(t->dtype), t->rank, t->dims);
    if (value_elems(&y) != p->n_kept)
        return compile_fail(c, ERR_FORMAT, "its declared result shape is not what the reduction gives");
    struct step *s = step_make(c, op->info->name, run_reduce, p, &x, 1, y);
    s->serial = value_elems(&x) < PARALLEL_ELEMS;
    set_output(c, op, 0, y);
    return true;
}
