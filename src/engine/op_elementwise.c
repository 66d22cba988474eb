/* Elementwise ops: one or two operands with broadcasting, comparisons, logic, select.
 *
 * The result keeps the memory order of its first full-size operand, so a chain of elementwise ops on a
 * transposed tensor never transposes. Walked in the result's memory order with as few loops as the strides
 * allow. */
#include <math.h>
#include <string.h>
#include "engine/compiler.h"

struct elementwise {
    int id; /* enum mil_op_id */
    int n_operands;
    int rank;
    int64_t dims[MIL_RANK_MAX];
    int64_t strides[4][MIL_RANK_MAX]; /* result, then operands */
    float alpha, beta;
    const struct ane_model *ane; /* NULL: float32 */
};

static void unary_row(const struct kernels *k, const struct elementwise *p, float *y, const float *x,
                      int64_t n)
{
    const float alpha = p->alpha, beta = p->beta;
    switch (p->id) {
    case MIL_OP_EXP:
        k->exp(y, x, n);
        return;
    case MIL_OP_TANH:
        k->tanh(y, x, n);
        return;
    case MIL_OP_SIGMOID:
        k->sigmoid(y, x, n);
        return;
    case MIL_OP_SILU:
        k->silu_mul(y, x, NULL, n);
        return;
    case MIL_OP_ABS:
        for (int64_t i = 0; i < n; i++)
            y[i] = fabsf(x[i]);
        return;
    case MIL_OP_LOG:
        for (int64_t i = 0; i < n; i++)
            y[i] = (float)log((double)x[i] + (double)alpha);
        return;
    case MIL_OP_SQRT:
        for (int64_t i = 0; i < n; i++)
            y[i] = sqrtf(x[i]);
        return;
    case MIL_OP_RSQRT:
        for (int64_t i = 0; i < n; i++)
            y[i] = 1.0f / sqrtf(x[i] + alpha);
        return;
    case MIL_OP_SQUARE:
        for (int64_t i = 0; i < n; i++)
            y[i] = x[i] * x[i];
        return;
    case MIL_OP_RELU:
        for (int64_t i = 0; i < n; i++)
            y[i] = x[i] > 0 ? x[i] : 0;
        return;
    case MIL_OP_CLIP:
        for (int64_t i = 0; i < n; i++)
            y[i] = x[i] < alpha ? alpha : x[i] > beta ? beta : x[i]; /* NaN stays */
        return;
    case MIL_OP_SOFTPLUS: /* log1p(exp(x)) without overflow, in double: one rounding */
        for (int64_t i = 0; i < n; i++)
            y[i] = (float)(x[i] > 0 ? (double)x[i] + log1p(exp(-(double)x[i])) : log1p(exp((double)x[i])));
        return;
    default:
        for (int64_t i = 0; i < n; i++)
            y[i] = scalar_function(p->id, x[i], alpha, beta);
        return;
    }
}

static float float_op(int id, float a, float b)
{
    switch (id) {
    case MIL_OP_ADD:
        return a + b;
    case MIL_OP_SUB:
        return a - b;
    case MIL_OP_MUL:
        return a * b;
    case MIL_OP_REAL_DIV:
        return a / b;
    case MIL_OP_FLOOR_DIV:
        return floorf(a / b);
    case MIL_OP_MOD:
        return a - b * floorf(a / b);
    case MIL_OP_MAXIMUM:
        return a > b || a != a ? a : b;
    case MIL_OP_MINIMUM:
        return a < b || a != a ? a : b;
    case MIL_OP_POW:
        return (float)pow((double)a, (double)b);
    case MIL_OP_PRELU:
        return a >= 0 ? a : a * b;
    default:
        return 0;
    }
}

static int32_t compare_op(int id, double a, double b)
{
    switch (id) {
    case MIL_OP_EQUAL:
        return a == b;
    case MIL_OP_NOT_EQUAL:
        return a != b;
    case MIL_OP_GREATER:
        return a > b;
    case MIL_OP_GREATER_EQUAL:
        return a >= b;
    case MIL_OP_LESS:
        return a < b;
    case MIL_OP_LESS_EQUAL:
        return a <= b;
    case MIL_OP_LOGICAL_AND:
        return a != 0 && b != 0;
    case MIL_OP_LOGICAL_OR:
        return a != 0 || b != 0;
    case MIL_OP_LOGICAL_XOR:
        return (a != 0) != (b != 0);
    default:
        return 0;
    }
}

/* Integers wrap around; division rounds toward minus infinity, by zero gives zero (no trap on hostile
 * programs). */
static int32_t int_op(int id, int32_t a, int32_t b)
{
    int64_t q;
    switch (id) {
    case MIL_OP_ADD:
        return (int32_t)((uint32_t)a + (uint32_t)b);
    case MIL_OP_SUB:
        return (int32_t)((uint32_t)a - (uint32_t)b);
    case MIL_OP_MUL:
        return (int32_t)((uint32_t)a * (uint32_t)b);
    case MIL_OP_REAL_DIV:
    case MIL_OP_FLOOR_DIV:
    case MIL_OP_MOD:
        if (b == 0)
            return 0;
        q = (int64_t)a / b;
        if ((int64_t)a % b != 0 && (a < 0) != (b < 0))
            q--;
        return id == MIL_OP_MOD ? (int32_t)(a - q * b) : (int32_t)q;
    case MIL_OP_MAXIMUM:
        return a > b ? a : b;
    case MIL_OP_MINIMUM:
        return a < b ? a : b;
    default:
        return 0;
    }
}

static void binary_row(const struct engine_run *r, const struct elementwise *p, const struct step *s, void *y,
                       const void *a, const void *b, int64_t n, int64_t y_step, int64_t a_step,
                       int64_t b_step)
{
    bool compare = s->out[0].repr == REPR_I32 && s->in[0].repr == REPR_F32;
    if (compare) {
        for (int64_t i = 0; i < n; i++)
            ((int32_t *)y)[i * y_step] =
                compare_op(p->id, ((const float *)a)[i * a_step], ((const float *)b)[i * b_step]);
        return;
    }
    if (s->out[0].repr == REPR_I32) {
        for (int64_t i = 0; i < n; i++) {
            int32_t u = ((const int32_t *)a)[i * a_step], v = ((const int32_t *)b)[i * b_step];
            ((int32_t *)y)[i * y_step] = p->alpha != 0 ? compare_op(p->id, u, v) : int_op(p->id, u, v);
        }
        return;
    }
    float *yf = y;
    const float *af = a, *bf = b;
    if (y_step == 1 && a_step == 1 && (b_step == 0 || b_step == 1)) {
        switch (p->id) {
        case MIL_OP_ADD:
            r->k->add(yf, af, bf, n, (int)b_step);
            return;
        case MIL_OP_SUB:
            r->k->sub(yf, af, bf, n, (int)b_step);
            return;
        case MIL_OP_MUL:
            r->k->mul(yf, af, bf, n, (int)b_step);
            return;
        default:
            break;
        }
    }
    for (int64_t i = 0; i < n; i++)
        yf[i * y_step] = float_op(p->id, af[i * a_step], bf[i * b_step]);
}

static void row(const struct step *s, struct engine_run *r, const struct elementwise *p, const int64_t *at,
                int64_t from, int64_t n)
{
    int inner = p->rank - 1;
    const int64_t step[4] = {p->strides[0][inner], p->strides[1][inner], p->strides[2][inner],
                             p->strides[3][inner]};
    int32_t *y = (int32_t *)value_pointer(r, &s->out[0]) + at[0] + from * step[0];
    const int32_t *x[3];
    for (int k = 0; k < p->n_operands; k++)
        x[k] = (const int32_t *)value_pointer(r, &s->in[k]) + at[k + 1] + from * step[k + 1];
    if (p->n_operands == 3) { /* select */
        for (int64_t i = 0; i < n; i++)
            y[i * step[0]] = x[0][i * step[1]] ? x[1][i * step[2]] : x[2][i * step[3]];
    } else if (p->ane && p->n_operands == 2) {
        for (int64_t i = 0; i < n; i++)
            ((float *)y)[i * step[0]] =
                ane_binary(p->id, ((const float *)x[0])[i * step[1]], ((const float *)x[1])[i * step[2]]);
    } else if (p->ane) {
        for (int64_t i = 0; i < n; i++)
            ((float *)y)[i * step[0]] =
                ane_unary(p->ane, p->id, ((const float *)x[0])[i * step[1]], p->alpha, p->beta);
    } else if (p->n_operands == 2) {
        binary_row(r, p, s, y, x[0], x[1], n, step[0], step[1], step[2]);
    } else if (p->id == MIL_OP_LOGICAL_NOT) {
        for (int64_t i = 0; i < n; i++)
            y[i * step[0]] = !x[0][i * step[1]];
    } else if (s->out[0].repr == REPR_I32) { /* abs, square, sign of integers */
        for (int64_t i = 0; i < n; i++) {
            int32_t v = x[0][i * step[1]];
            y[i * step[0]] = p->id == MIL_OP_SQUARE         ? int_op(MIL_OP_MUL, v, v)
                             : p->id == MIL_OP_SIGN         ? (v > 0) - (v < 0)
                             : v < 0 && p->id == MIL_OP_ABS ? int_op(MIL_OP_SUB, 0, v)
                                                            : v;
        }
    } else if (step[0] == 1 && step[1] == 1) {
        unary_row(r->k, p, (float *)y, (const float *)x[0], n);
    } else {
        for (int64_t i = 0; i < n; i++)
            unary_row(r->k, p, (float *)y + i * step[0], (const float *)x[0] + i * step[1], 1);
    }
}

static void run_elementwise(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct elementwise *p = s->params;
    int inner = p->rank - 1;
    int64_t n_rows = 1, begin, end, at[4] = {0, 0, 0, 0};
    for (int i = 0; i < inner; i++)
        n_rows *= p->dims[i];
    if (n_rows == 1) {
        pool_split(p->dims[inner], 64, i_thread, n_threads, &begin, &end);
        if (end > begin)
            row(s, r, p, at, begin, end - begin);
        return;
    }
    pool_split(n_rows, 1, i_thread, n_threads, &begin, &end);
    for (int64_t line = begin; line < end; line++) {
        walk_offsets(inner, p->dims, p->n_operands + 1, p->strides, line, at);
        row(s, r, p, at, 0, p->dims[inner]);
    }
}

/* Strides of x seen with the result's dims: axes of 1 and missing leading axes repeat. */
static bool broadcast_to(struct compiler *c, const struct value *x, int rank, const int64_t *dims,
                         struct value *out)
{
    *out = *x;
    out->rank = rank;
    for (int i = 0; i < rank; i++) {
        int k = i - (rank - x->rank);
        out->dims[i] = dims[i];
        if (k < 0 || x->dims[k] == 1)
            out->strides[i] = 0;
        else if (x->dims[k] == dims[i])
            out->strides[i] = x->strides[k];
        else
            return compile_fail(c, ERR_FORMAT, "operands whose shapes do not broadcast");
    }
    return x->rank <= rank || compile_fail(c, ERR_FORMAT, "operands whose shapes do not broadcast");
}

static bool emit_elementwise(struct compiler *c, const struct mil_op *op, struct value *x, int n, float alpha,
                             float beta)
{
    const struct mil_type *t = var_type(c, op->outputs[0]);
    struct elementwise *p = ARENA_NEW(c->arena, struct elementwise);
    const struct value *like = NULL;
    for (int k = 0; k < n; k++) {
        bool full = x[k].rank == t->rank && c->plan->storages[x[k].storage].kind != STORAGE_CONST;
        for (int i = 0; full && i < t->rank; i++)
            full = x[k].dims[i] == t->dims[i] && (x[k].strides[i] != 0 || t->dims[i] == 1);
        if (full && !like)
            like = &x[k];
    }
    struct value y = value_new_like(c, dtype_repr(t->dtype), t->rank, t->dims, like);
    int order[MIL_RANK_MAX]; /* axes by falling stride of the result */
    axes_by_stride(&y, order);
    p->id = op->info->id;
    p->n_operands = n;
    p->alpha = alpha;
    p->beta = beta;
    p->ane = c->plan->precision == ENGINE_ANE && y.repr == REPR_F32 ? &c->plan->ane : NULL;
    for (int i = 0; i < t->rank; i++) {
        p->dims[i] = t->dims[order[i]];
        p->strides[0][i] = y.strides[order[i]];
    }
    for (int k = 0; k < n; k++) {
        struct value wide;
        if (!broadcast_to(c, &x[k], t->rank, t->dims, &wide))
            return false;
        for (int i = 0; i < t->rank; i++)
            p->strides[k + 1][i] = wide.strides[order[i]];
    }
    p->rank = coalesce(t->rank, p->dims, n + 1, p->strides);
    step_make(c, op->info->name, run_elementwise, p, x, n, y);
    if (value_elems(&y) == 0)
        p->dims[p->rank - 1] = 0;
    set_output(c, op, 0, y);
    return true;
}

bool emit_unary(struct compiler *c, const struct mil_op *op)
{
    struct value x;
    float alpha, beta;
    if (!operand_f32(c, op, "x", &x) || !scalar_parameters(c, op, &alpha, &beta))
        return false;
    bool integer_op = op->info->id == MIL_OP_LOGICAL_NOT || op->info->id == MIL_OP_ABS ||
                      op->info->id == MIL_OP_SQUARE || op->info->id == MIL_OP_SIGN;
    if (x.repr == REPR_I32 && !integer_op)
        return compile_fail(c, ERR_UNSUPPORTED, "integer operand");
    return emit_elementwise(c, op, &x, 1, alpha, beta);
}

/* x where x >= 0, else alpha of its channel (axis 1) times x. */
bool emit_prelu(struct compiler *c, const struct mil_op *op)
{
    struct value x[2];
    if (!operand_f32(c, op, "x", &x[0]) || !operand_f32(c, op, "alpha", &x[1]))
        return false;
    if (x[0].repr != REPR_F32 || x[1].repr != REPR_F32 || x[0].rank < 2 || x[1].rank != 1 ||
        (x[1].dims[0] != x[0].dims[1] && x[1].dims[0] != 1))
        return compile_fail(c, ERR_FORMAT, "alpha does not fit the channels of x");
    for (int i = x[0].rank - 1; i >= 0; i--) {
        int64_t stride = x[1].strides[0], size = x[1].dims[0];
        if (i == 1) {
            x[1].dims[i] = size;
            x[1].strides[i] = stride;
        } else if (i > 1) {
            x[1].dims[i] = 1;
            x[1].strides[i] = 0;
        }
    }
    x[1].dims[0] = 1;
    x[1].rank = x[0].rank;
    return emit_elementwise(c, op, x, 2, 0, 0);
}

static bool is_comparison(int id)
{
    switch (id) {
    case MIL_OP_EQUAL:
    case MIL_OP_NOT_EQUAL:
    case MIL_OP_GREATER:
    case MIL_OP_GREATER_EQUAL:
    case MIL_OP_LESS:
    case MIL_OP_LESS_EQUAL:
    case MIL_OP_LOGICAL_AND:
    case MIL_OP_LOGICAL_OR:
    case MIL_OP_LOGICAL_XOR:
        return true;
    default:
        return false;
    }
}

bool emit_binary(struct compiler *c, const struct mil_op *op)
{
    struct value x[2];
    if (!operand_f32(c, op, "x", &x[0]) || !operand_f32(c, op, "y", &x[1]))
        return false;
    if (x[0].repr != x[1].repr)
        return compile_fail(c, ERR_FORMAT, "one operand is integer, the other float");
    if (!is_comparison(op->info->id) && x[0].repr != dtype_repr(var_type(c, op->outputs[0])->dtype))
        return compile_fail(c, ERR_FORMAT, "its operands and its result are of different kinds");
    if (op->info->id == MIL_OP_POW && x[0].repr != REPR_F32)
        return compile_fail(c, ERR_UNSUPPORTED, "integer operands");
    /* alpha marks comparisons of integers, whose representation equals that of their result */
    return emit_elementwise(c, op, x, 2, is_comparison(op->info->id) ? 1 : 0, 0);
}

bool emit_select(struct compiler *c, const struct mil_op *op)
{
    struct value x[3];
    if (!operand(c, op, "cond", &x[0]) || !operand_f32(c, op, "a", &x[1]) || !operand_f32(c, op, "b", &x[2]))
        return false;
    if (x[0].repr != REPR_I32 || x[1].repr != x[2].repr)
        return compile_fail(c, ERR_FORMAT, "cond is not a bool, or a and b are of different kinds");
    return emit_elementwise(c, op, x, 3, 0, 0);
}
