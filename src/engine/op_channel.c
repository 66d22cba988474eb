/* Ops with parameters for each channel (axis 1), and norms over parts of a tensor that are no rows: batch_norm, instance_norm, l2_norm,
 * local_response_norm, softplus_parametric; quantize and dequantize. Sums run in double in the order of the axes. */
#include <math.h>
#include <string.h>
#include "engine/compiler.h"

/* ---- one number at a time, with up to four parameters of its channel ---- */

#define CHANNEL_PARAMETERS 4

struct channel {
    int id;
    int64_t n_outer, n_channels, n_inner;       /* a dense x */
    const float *parameter[CHANNEL_PARAMETERS]; /* NULL: not given */
    int64_t step[CHANNEL_PARAMETERS];           /* 0: one number for all channels */
    float eps;
    double low, high; /* of quantized numbers */
};

static double parameter(const struct channel *p, int i, int64_t channel, double otherwise)
{
    return p->parameter[i] ? p->parameter[i][channel * p->step[i]] : otherwise;
}

static void channel_row(const struct channel *p, int64_t channel, void *y, const void *x, int64_t n)
{
    const float *xf = x;
    const int32_t *xi = x;
    float *yf = y;
    int32_t *yi = y;
    double a = parameter(p, 0, channel, 0), b = parameter(p, 1, channel, p->id == MIL_OP_BATCH_NORM);
    switch (p->id) {
    case MIL_OP_BATCH_NORM: { /* mean, variance, gamma, beta */
        double scale = parameter(p, 2, channel, 1) / sqrt(b + (double)p->eps),
               beta = parameter(p, 3, channel, 0);
        for (int64_t i = 0; i < n; i++)
            yf[i] = (float)(((double)xf[i] - a) * scale + beta);
        return;
    }
    case MIL_OP_SOFTPLUS_PARAMETRIC: /* without overflow */
        for (int64_t i = 0; i < n; i++) {
            double v = b * (double)xf[i];
            yf[i] = (float)(a * (v > 0 ? v + log1p(exp(-v)) : log1p(exp(v))));
        }
        return;
    case MIL_OP_QUANTIZE: /* scale, zero_point */
        for (int64_t i = 0; i < n; i++) {
            double v = rint((double)xf[i] / a) + b;
            yi[i] = (int32_t)(v < p->low ? p->low : v > p->high ? p->high : v == v ? v : 0);
        }
        return;
    default: /* dequantize */
        for (int64_t i = 0; i < n; i++)
            yf[i] = (float)(((double)xi[i] - b) * a);
        return;
    }
}

static void run_channel(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct channel *p = s->params;
    const int32_t *x = value_pointer(r, &s->in[0]);
    int32_t *y = value_pointer(r, &s->out[0]);
    int64_t begin, end;
    pool_split(p->n_outer * p->n_channels, 1, i_thread, n_threads, &begin, &end);
    for (int64_t row = begin; row < end; row++)
        channel_row(p, row % p->n_channels, y + row * p->n_inner, x + row * p->n_inner, p->n_inner);
}

/* x's elements by the channels of `axis`; below 0: all are one channel. */
static void channel_sizes(struct channel *p, const struct value *x, int axis)
{
    p->n_channels = axis < 0 ? 1 : x->dims[axis];
    p->n_outer = axis < 0 ? 1 : dims_product(x->dims, axis);
    p->n_inner = axis < 0 ? value_elems(x) : dims_product(x->dims + axis + 1, x->rank - axis - 1);
}

/* Constant `name` as parameter i: one number, or one for each channel. */
static bool channel_parameter(struct compiler *c, const struct mil_op *op, const char *name,
                              struct channel *p, int i)
{
    struct value v;
    bool present;
    if (!operand_optional(c, op, name, &v, &present))
        return false;
    if (!present)
        return true;
    int64_t n = value_elems(&v);
    if (c->plan->storages[v.storage].kind != STORAGE_CONST || (n != 1 && n != p->n_channels) || n < 1)
        return compile_fail(c, ERR_FORMAT, "%s must be a constant of one number or of %lld", name,
                            (long long)p->n_channels);
    if (!to_f32(c, &v) || !to_dense(c, &v))
        return false;
    if (v.repr == REPR_I32) {
        float *numbers = ARENA_ARRAY(c->arena, float, n);
        const int32_t *whole = (const int32_t *)c->plan->storages[v.storage].data + v.offset;
        for (int64_t k = 0; k < n; k++)
            numbers[k] = (float)whole[k];
        p->parameter[i] = numbers;
    } else if (c->plan->storages[v.storage].kind == STORAGE_CONST) {
        p->parameter[i] = const_floats(c, &v);
    } else {
        return compile_fail(c, ERR_LIMIT, "%s has more numbers than are supported", name);
    }
    p->step[i] = n == 1 ? 0 : 1;
    return true;
}

static bool emit_channels(struct compiler *c, const struct mil_op *op, struct channel *p, struct value x)
{
    const struct mil_type *t = var_type(c, op->outputs[0]);
    struct value y = value_new(c, dtype_repr(t->dtype), t->rank, t->dims);
    if (value_elems(&y) != value_elems(&x))
        return compile_fail(c, ERR_FORMAT, "its declared shape is not that of its operand");
    p->id = op->info->id;
    if (value_elems(&x) == 0)
        p->n_outer = 0;
    return emit_step(c, op, op->info->name, run_channel, p, &x, 1, y);
}

/* batch_norm and softplus_parametric: parameters for axis 1. */
bool emit_channel(struct compiler *c, const struct mil_op *op)
{
    static const char *const names[2][CHANNEL_PARAMETERS] = {{"mean", "variance", "gamma", "beta"},
                                                             {"alpha", "beta", NULL, NULL}};
    struct channel *p = ARENA_NEW(c->arena, struct channel);
    struct value x;
    double eps;
    if (!operand_f32(c, op, "x", &x) || !arg_float(c, op, "epsilon", 1e-5, &eps) || !to_dense(c, &x))
        return false;
    if (x.repr != REPR_F32 || x.rank < 2)
        return compile_fail(c, ERR_FORMAT, "expected floats of rank 2 or more");
    p->eps = (float)eps;
    channel_sizes(p, &x, 1);
    const char *const *name = names[op->info->id != MIL_OP_BATCH_NORM];
    for (int i = 0; i < CHANNEL_PARAMETERS && name[i]; i++)
        if (!channel_parameter(c, op, name[i], p, i))
            return false;
    return emit_channels(c, op, p, x);
}

bool emit_quantize(struct compiler *c, const struct mil_op *op)
{
    const struct mil_type *t = var_type(c, op->outputs[0]);
    struct channel *p = ARENA_NEW(c->arena, struct channel);
    bool is_quantize = op->info->id == MIL_OP_QUANTIZE, is_signed = t->dtype == MIL_INT8;
    struct value x;
    int axis = -1;
    if (!operand_f32(c, op, "input", &x) || !to_dense(c, &x))
        return false;
    if (mil_arg_find(op, "axis") && !arg_axis(c, op, 0, x.rank, &axis))
        return false;
    if (x.repr != (is_quantize ? REPR_F32 : REPR_I32) ||
        (is_quantize && t->dtype != MIL_INT8 && t->dtype != MIL_UINT8))
        return compile_fail(c, ERR_UNSUPPORTED, "expected floats to 8-bit integers, or integers to floats");
    p->low = is_signed ? -128 : 0;
    p->high = is_signed ? 127 : 255;
    channel_sizes(p, &x, axis);
    if (!channel_parameter(c, op, "scale", p, 0) || !channel_parameter(c, op, "zero_point", p, 1))
        return false;
    return emit_channels(c, op, p, x);
}

/* ---- norms over blocks of a dense tensor ---- */

struct block_norm {
    int id;
    int64_t n_blocks, n, n_channels; /* x [n_blocks, n]; blocks take channels in turns */
    const float *gamma, *beta;
    float eps;
};

static void run_block_norm(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct block_norm *p = s->params;
    const float *x = value_pointer(r, &s->in[0]);
    float *y = value_pointer(r, &s->out[0]);
    int64_t begin, end;
    pool_split(p->n_blocks, 1, i_thread, n_threads, &begin, &end);
    for (int64_t block = begin; block < end; block++) {
        const float *from = x + block * p->n;
        float *to = y + block * p->n;
        int64_t channel = p->n_channels > 0 ? block % p->n_channels : 0;
        double sum = 0, squares = 0, mean = 0, scale, beta = 0;
        if (p->id == MIL_OP_INSTANCE_NORM) {
            for (int64_t i = 0; i < p->n; i++)
                sum += (double)from[i];
            mean = sum / (double)p->n;
        }
        for (int64_t i = 0; i < p->n; i++)
            squares += ((double)from[i] - mean) * ((double)from[i] - mean);
        if (p->id == MIL_OP_INSTANCE_NORM) {
            scale =
                (p->gamma ? (double)p->gamma[channel] : 1) / sqrt(squares / (double)p->n + (double)p->eps);
            beta = p->beta ? (double)p->beta[channel] : 0;
        } else {
            scale = 1 / sqrt(squares + (double)p->eps);
        }
        for (int64_t i = 0; i < p->n; i++)
            to[i] = (float)(((double)from[i] - mean) * scale + beta);
    }
}

bool emit_block_norm(struct compiler *c, const struct mil_op *op)
{
    static const char *const names[2] = {"gamma", "beta"};
    bool is_instance = op->info->id == MIL_OP_INSTANCE_NORM;
    struct block_norm *p = ARENA_NEW(c->arena, struct block_norm);
    struct value x, v;
    double eps;
    if (!operand_f32(c, op, "x", &x) || !arg_float(c, op, "epsilon", is_instance ? 1e-5 : 1e-6, &eps) ||
        !to_dense(c, &x))
        return false;
    if (x.repr != REPR_F32 || x.rank < 3)
        return compile_fail(c, ERR_FORMAT, "expected floats of rank 3 or more");
    int n_outer = is_instance ? 2 : x.rank - 3;
    p->id = op->info->id;
    p->eps = (float)eps;
    p->n_blocks = dims_product(x.dims, n_outer);
    p->n = dims_product(x.dims + n_outer, x.rank - n_outer);
    p->n_channels = is_instance ? x.dims[1] : 0;
    for (int i = 0; i < 2 && is_instance; i++) {
        bool present;
        if (!operand_optional(c, op, names[i], &v, &present) || (present && !to_f32(c, &v)))
            return false;
        if (present && (c->plan->storages[v.storage].kind != STORAGE_CONST || !is_dense(&v) ||
                        value_elems(&v) != p->n_channels))
            return compile_fail(c, ERR_FORMAT, "%s must be a constant of %lld numbers", names[i],
                                (long long)p->n_channels);
        if (present)
            *(i == 0 ? &p->gamma : &p->beta) = const_floats(c, &v);
    }
    struct value y = value_new(c, REPR_F32, x.rank, x.dims);
    return emit_step(c, op, op->info->name, run_block_norm, p, &x, 1, y);
}

/* ---- local_response_norm ---- */

struct response_norm {
    int64_t n_images, n_channels, n_places, size; /* x [n_images, n_channels, n_places] */
    double alpha, beta, k;
};

/* The neighbours of channel i are size channels around it, i - size / 2 the first. */
static void run_response_norm(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct response_norm *p = s->params;
    const float *x = value_pointer(r, &s->in[0]);
    float *y = value_pointer(r, &s->out[0]);
    int64_t begin, end;
    pool_split(p->n_images * p->n_channels, 1, i_thread, n_threads, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        int64_t channel = row % p->n_channels, first = channel - p->size / 2, last = first + p->size;
        const float *image = x + (row - channel) * p->n_places;
        first = first < 0 ? 0 : first;
        last = last > p->n_channels ? p->n_channels : last;
        for (int64_t i = 0; i < p->n_places; i++) {
            double squares = 0;
            for (int64_t k = first; k < last && !run_stops(r, k); k++)
                squares += (double)image[k * p->n_places + i] * (double)image[k * p->n_places + i];
            y[row * p->n_places + i] = (float)((double)image[channel * p->n_places + i] /
                                               pow(p->k + p->alpha / (double)p->size * squares, p->beta));
        }
    }
}

bool emit_local_response_norm(struct compiler *c, const struct mil_op *op)
{
    struct response_norm *p = ARENA_NEW(c->arena, struct response_norm);
    struct value x;
    if (!operand_f32(c, op, "x", &x) || !arg_int(c, op, "size", 0, &p->size) ||
        !arg_float(c, op, "alpha", 1e-4, &p->alpha) || !arg_float(c, op, "beta", 0.75, &p->beta) ||
        !arg_float(c, op, "k", 1, &p->k) || !to_dense(c, &x))
        return false;
    if (x.repr != REPR_F32 || x.rank < 3 || p->size < 1)
        return compile_fail(c, ERR_FORMAT, "expected floats of rank 3 or more and a size of at least 1");
    p->n_images = x.dims[0];
    p->n_channels = x.dims[1];
    p->n_places = dims_product(x.dims + 2, x.rank - 2);
    struct value y = value_new(c, REPR_F32, x.rank, x.dims);
    return emit_step(c, op, "local response norm", run_response_norm, p, &x, 1, y);
}
