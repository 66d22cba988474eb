/* Windows over spatial axes: avg_pool, l2_pool, max_pool; and the transposed convolution. x [n, channels, spatial..] with 1 to 3
 * spatial axes. */
#include <math.h>
#include <string.h>
#include "engine/window.h"

bool window_arguments(struct compiler *c, const struct mil_op *op, struct window *p, bool is_transposed)
{
    static const char *const types[] = {"valid", "same", "custom", "same_lower"};
    const struct mil_arg *a = mil_arg_find(op, "pad_type");
    int64_t pad[2 * SPATIAL_MAX] = {0};
    int type, n = SPATIAL_MAX, n_pad = 2 * SPATIAL_MAX;
    if (a && !mil_arg_value(op, "pad_type"))
        return compile_fail(c, ERR_UNSUPPORTED, "pad_type must be a constant string");
    for (int d = 0; d < SPATIAL_MAX; d++)
        p->stride[d] = p->dilation[d] = 1;
    if (!arg_ints(c, op, "strides", p->stride, &n))
        return false;
    n = SPATIAL_MAX;
    if (!arg_ints(c, op, "dilations", p->dilation, &n) || !arg_ints(c, op, "pad", pad, &n_pad) ||
        !arg_word(c, op, "pad_type", types, 4, &type))
        return false;
    for (int d = 0; d < p->n_spatial; d++) {
        int64_t reach = (p->kernel[d] - 1) * p->dilation[d] + 1,
                total = is_transposed ? (p->in[d] - 1) * p->stride[d] + reach - p->out[d]
                                      : (p->out[d] - 1) * p->stride[d] + reach - p->in[d];
        total = total > 0 ? total : 0;
        p->pad[d] = type == 1 ? total / 2 : type == 3 ? total - total / 2 : type == 2 ? pad[2 * d] : 0;
        p->pad_behind[d] = type == 1 || type == 3 ? total - p->pad[d] : type == 2 ? pad[2 * d + 1] : 0;
        if (p->kernel[d] < 1 || p->stride[d] < 1 || p->dilation[d] < 1 || p->pad[d] < 0)
            return compile_fail(c, ERR_FORMAT, "sizes, strides or pads of axis %d have no meaning", d + 2);
    }
    return true;
}

/* ---- pools ---- */

static float pooled(const struct window *p, const struct engine_run *r, const float *x,
                    const int64_t *strides, const int64_t *at)
{
    int64_t begin[SPATIAL_MAX] = {0}, n[SPATIAL_MAX] = {1, 1, 1}, all = 1, count = 0, k = 0;
    double sum = 0;
    float best = -INFINITY;
    for (int d = 0; d < p->n_spatial; d++) { /* the part of the window that lies inside */
        int64_t first = at[d] * p->stride[d] - p->pad[d], last = first + p->kernel[d],
                edge = p->in[d] + p->pad_behind[d];
        all *= (last < edge ? last : edge) - first; /* padding counts, what is behind it does not */
        begin[d] = first < 0 ? 0 : first;
        last = last > p->in[d] ? p->in[d] : last;
        n[d] = last > begin[d] ? last - begin[d] : 0;
    }
    for (int64_t a = 0; a < n[0]; a++) {
        for (int64_t b = 0; b < n[1]; b++) {
            const float *row =
                x + (begin[0] + a) * strides[0] + (p->n_spatial > 1 ? (begin[1] + b) * strides[1] : 0);
            for (int64_t e = 0; e < n[2] && !run_stops(r, k); e++, k++) {
                float v = row[p->n_spatial > 2 ? (begin[2] + e) * strides[2] : 0];
                sum += p->id == MIL_OP_L2_POOL ? (double)v * (double)v : (double)v;
                best = v > best || v != v ? v : best;
                count++;
            }
        }
    }
    switch (p->id) {
    case MIL_OP_MAX_POOL:
        return best;
    case MIL_OP_L2_POOL:
        return (float)sqrt(sum);
    default:
        all = p->excludes_padding ? count : all;
        return all > 0 ? (float)(sum / (double)all) : 0;
    }
}

static void run_pool(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct window *p = s->params;
    const struct value *x = &s->in[0];
    const float *from = value_pointer(r, x);
    float *y = value_pointer(r, &s->out[0]);
    int64_t n_places = dims_product(p->out, p->n_spatial), begin, end;
    pool_split(p->n_images * p->n_channels, 1, i_thread, n_threads, &begin, &end);
    for (int64_t item = begin; item < end; item++) {
        const float *image =
            from + item / p->n_channels * x->strides[0] + item % p->n_channels * x->strides[1];
        for (int64_t place = 0; place < n_places; place++) {
            int64_t at[SPATIAL_MAX] = {0}, rest = place;
            for (int d = p->n_spatial - 1; d >= 0; d--) {
                at[d] = rest % p->out[d];
                rest /= p->out[d];
            }
            y[item * n_places + place] = pooled(p, r, image, x->strides + 2, at);
        }
    }
}

bool emit_pool(struct compiler *c, const struct mil_op *op)
{
    const struct mil_type *t = var_type(c, op->outputs[0]);
    struct window *p = ARENA_NEW(c->arena, struct window);
    struct value x;
    int n = SPATIAL_MAX;
    if (!operand_f32(c, op, "x", &x) || !arg_ints(c, op, "kernel_sizes", p->kernel, &n) ||
        !arg_bool(c, op, "exclude_padding_from_average", false, &p->excludes_padding))
        return false;
    p->id = op->info->id;
    p->n_spatial = x.rank - 2;
    if (x.repr != REPR_F32 || p->n_spatial < 1 || p->n_spatial > SPATIAL_MAX || n != p->n_spatial ||
        t->rank != x.rank || t->dims[0] != x.dims[0] || t->dims[1] != x.dims[1])
        return compile_fail(c, ERR_FORMAT, "expected x of rank 3 to 5 and a size for each spatial axis");
    p->n_images = x.dims[0];
    p->n_channels = x.dims[1];
    memcpy(p->in, x.dims + 2, sizeof p->in[0] * (size_t)n);
    memcpy(p->out, t->dims + 2, sizeof p->out[0] * (size_t)n);
    if (!window_arguments(c, op, p, false))
        return false;
    struct value y = value_new(c, REPR_F32, t->rank, t->dims);
    struct step *s = step_make(c, op->info->name, run_pool, p, &x, 1, y);
    s->work = (double)value_elems(&y) * (double)dims_product(p->kernel, n);
    s->serial = s->work < PARALLEL_ELEMS;
    set_output(c, op, 0, y);
    return true;
}

/* ---- conv_transpose: y[o, at * stride + k * dilation - pad] += x[i, at] * weight[i, o, k] ---- */

static void run_conv_transpose(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct window *p = s->params;
    const float *x = value_pointer(r, &s->in[0]), *w = value_pointer(r, &s->in[1]);
    const float *bias = p->has_bias ? value_pointer(r, &s->in[2]) : NULL;
    float *y = value_pointer(r, &s->out[0]);
    int64_t n_in = dims_product(p->in, p->n_spatial), n_taps = dims_product(p->kernel, p->n_spatial),
            n_places = dims_product(p->out, p->n_spatial), begin, end;
    pool_split(p->n_images * p->n_channels, 1, i_thread, n_threads, &begin, &end);
    for (int64_t item = begin; item < end; item++) {
        int64_t image = item / p->n_channels, o = item % p->n_channels, group = o / p->out_group;
        float *to = y + item * n_places;
        for (int64_t i = 0; i < n_places; i++)
            to[i] = bias ? bias[o] : 0;
        for (int64_t i = 0; i < p->in_group; i++) {
            int64_t channel = group * p->in_group + i;
            const float *from = x + (image * p->groups * p->in_group + channel) * n_in;
            const float *taps = w + (channel * p->out_group + o % p->out_group) * n_taps;
            for (int64_t place = 0; place < n_in && !run_stops(r, place * n_taps); place++) {
                int64_t at[SPATIAL_MAX] = {0}, rest = place;
                for (int d = p->n_spatial - 1; d >= 0; d--) {
                    at[d] = rest % p->in[d];
                    rest /= p->in[d];
                }
                for (int64_t tap = 0; tap < n_taps; tap++) {
                    int64_t left = tap, where[SPATIAL_MAX] = {0}, index = 0;
                    bool inside = true;
                    for (int d = p->n_spatial - 1; d >= 0; d--) {
                        where[d] = at[d] * p->stride[d] + left % p->kernel[d] * p->dilation[d] - p->pad[d];
                        left /= p->kernel[d];
                        inside = inside && where[d] >= 0 && where[d] < p->out[d];
                    }
                    for (int d = 0; d < p->n_spatial; d++)
                        index = index * p->out[d] + where[d];
                    if (inside)
                        to[index] += from[place] * taps[tap];
                }
            }
        }
    }
}

bool emit_conv_transpose(struct compiler *c, const struct mil_op *op)
{
    const struct mil_type *t = var_type(c, op->outputs[0]);
    struct window *p = ARENA_NEW(c->arena, struct window);
    struct value x[3];
    if (!operand_f32(c, op, "x", &x[0]) || !operand_f32(c, op, "weight", &x[1]) ||
        !operand_optional(c, op, "bias", &x[2], &p->has_bias) || (p->has_bias && !to_f32(c, &x[2])) ||
        !arg_int(c, op, "groups", 1, &p->groups))
        return false;
    for (int i = 0; i < 2 + p->has_bias; i++)
        if (!to_dense(c, &x[i]))
            return false;
    int n = p->n_spatial = x[0].rank - 2;
    bool fits = n >= 1 && n <= SPATIAL_MAX && x[1].rank == x[0].rank && t->rank == x[0].rank &&
                p->groups >= 1 && x[0].dims[1] % p->groups == 0 && x[1].dims[0] == x[0].dims[1] &&
                t->dims[0] == x[0].dims[0] && t->dims[1] == x[1].dims[1] * p->groups &&
                (!p->has_bias || value_elems(&x[2]) == t->dims[1]);
    if (!fits)
        return compile_fail(c, ERR_FORMAT, "channels of x, weight, bias and groups do not fit");
    p->n_images = x[0].dims[0];
    p->n_channels = t->dims[1];
    p->in_group = x[0].dims[1] / p->groups;
    p->out_group = x[1].dims[1];
    memcpy(p->in, x[0].dims + 2, sizeof p->in[0] * (size_t)n);
    memcpy(p->out, t->dims + 2, sizeof p->out[0] * (size_t)n);
    memcpy(p->kernel, x[1].dims + 2, sizeof p->kernel[0] * (size_t)n);
    if (!window_arguments(c, op, p, true))
        return false;
    struct value y = value_new(c, REPR_F32, t->rank, t->dims);
    struct step *s = step_make(c, "conv transpose", run_conv_transpose, p, x, 2 + p->has_bias, y);
    s->work = (double)value_elems(&x[0]) * (double)p->out_group * (double)dims_product(p->kernel, n);
    s->serial = s->work < PARALLEL_ELEMS;
    set_output(c, op, 0, y);
    return true;
}
