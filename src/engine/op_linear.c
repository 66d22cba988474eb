/* Products with constant weights: 1x1 convolutions and linear, as rows times a weight matrix; neighbouring
 * ones with the same input become one step. Also the general convolution, in plain loops. */
#include <string.h>
#include "engine/window.h"

/* One weight matrix of a linear step. */
struct linear_part {
    struct weight_ref w;
    const float *bias; /* [n_out] or NULL */
    int64_t n_out;
    struct value y; /* [n_rows, n_out] with row stride strides[0] */
};

struct linear {
    int64_t n_rows, n_in, x_stride;
    int n_parts;
    struct linear_part *parts;
};

/* Threads split the output features of all parts put together, so every thread streams its own range of
 * weights. */
static void run_linear(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct linear *p = s->params;
    const void *x = value_pointer(r, &s->in[0]);
    void *scratch = run_scratch(r, i_thread);
    int64_t total = 0, begin, end;
    for (int i = 0; i < p->n_parts; i++)
        total += p->parts[i].n_out;
    pool_split(total, 16, i_thread, n_threads, &begin, &end);
    for (int i = 0; i < p->n_parts; i++) {
        const struct linear_part *part = &p->parts[i];
        int64_t from = begin < 0 ? 0 : begin, to = end < part->n_out ? end : part->n_out;
        if (from < to) {
            float *y = value_pointer(r, &part->y);
            weight_product(&part->w, r->k, y, part->y.strides[0], x, p->x_stride, part->bias, p->n_rows,
                           p->n_in, from, to, scratch);
        }
        begin -= part->n_out;
        end -= part->n_out;
    }
}

/* Elements from an operand of one run to the same operand of the next; false: they do not lie at equal distances. */
static bool rows_apart(struct engine_run *const *runs, int n, const struct value *v, int64_t *stride)
{
    const char *first = value_pointer(runs[0], v), *second = n > 1 ? value_pointer(runs[1], v) : first;
    ptrdiff_t bytes = second - first;
    *stride = bytes / 4;
    bool ok = bytes % 4 == 0;
    for (int i = 2; ok && i < n; i++)
        ok = (char *)value_pointer(runs[i], v) - first == i * bytes;
    return ok;
}

/* One row of each run. */
static void run_linear_rows(const struct step *s, struct engine_run *const *runs, int n, int i_thread,
                            int n_threads)
{
    const struct linear *p = s->params;
    void *scratch = run_scratch(runs[0], i_thread);
    int64_t total = 0, begin, end, x_stride = 0, y_stride = 0;
    /* Prepared rows are dense, and do not lie where each run's own would. */
    bool is_fixed = p->parts[0].w.fixed != NULL, ok = is_fixed || rows_apart(runs, n, &s->in[0], &x_stride);
    for (int i = 0; ok && i < p->n_parts; i++)
        ok = rows_apart(runs, n, &p->parts[i].y, &y_stride);
    if (!ok) {
        INVARIANT(!is_fixed, "prepared rows of runs that do not lie side by side");
        for (int i = 0; i < n; i++)
            run_linear(s, runs[i], i_thread, n_threads);
        return;
    }
    for (int i = 0; i < p->n_parts; i++)
        total += p->parts[i].n_out;
    pool_split(total, 16, i_thread, n_threads, &begin, &end);
    for (int i = 0; i < p->n_parts; i++) {
        const struct linear_part *part = &p->parts[i];
        int64_t from = begin < 0 ? 0 : begin, to = end < part->n_out ? end : part->n_out;
        (void)rows_apart(runs, n, &part->y, &y_stride);
        if (from < to)
            weight_product(&part->w, runs[0]->k, value_pointer(runs[0], &part->y), y_stride,
                           value_pointer(runs[0], &s->in[0]), x_stride, part->bias, n, p->n_in, from, to,
                           scratch);
        begin -= part->n_out;
        end -= part->n_out;
    }
}

static size_t linear_rows_scratch(const struct step *s, int n)
{
    const struct linear *p = s->params;
    size_t most = 0;
    for (int i = 0; i < p->n_parts; i++) {
        size_t bytes = weight_scratch_bytes(&p->parts[i].w, p->n_in, n);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static const struct step_rows linear_rows = {run_linear_rows, linear_rows_scratch, NULL};

static bool same_place(const struct value *a, const struct value *b)
{
    return a->storage == b->storage && a->offset == b->offset;
}

/* The parts of steps first .. end - 1, which read the same rows, as one step. */
static struct step join_steps(struct compiler *c, const struct step *steps, int first, int end)
{
    struct step s = steps[first];
    struct linear *joined = ARENA_NEW(c->arena, struct linear);
    *joined = *(const struct linear *)s.params;
    joined->n_parts = end - first; /* a step that was emitted has one */
    joined->parts = ARENA_ARRAY(c->arena, struct linear_part, joined->n_parts);
    struct value *more = ARENA_ARRAY(c->arena, struct value, joined->n_parts);
    for (int i = first; i < end; i++) {
        joined->parts[i - first] = ((const struct linear *)steps[i].params)->parts[0];
        more[i - first] = joined->parts[i - first].y;
        if (i > first && s.n_out < STEP_OPERANDS)
            s.out[s.n_out++] = steps[i].out[0];
        if (i > first) {
            s.weight_bytes += steps[i].weight_bytes;
            s.work += steps[i].work;
        }
    }
    s.params = joined;
    s.more = more;
    s.n_more = joined->n_parts;
    s.more_written = true;
    return s;
}

void group_linear(struct compiler *c)
{
    struct engine_plan *p = c->plan;
    int n = 0;
    for (int i = 0, end; i < p->n_steps; i = end) {
        const struct step *s = &p->steps[i];
        const struct linear *a = s->params;
        for (end = i + 1; end < p->n_steps && s->run == run_linear && p->steps[end].run == run_linear;
             end++) {
            const struct linear *b = p->steps[end].params;
            if (!same_place(&s->in[0], &p->steps[end].in[0]) || a->n_rows != b->n_rows ||
                a->n_in != b->n_in || a->x_stride != b->x_stride)
                break;
        }
        struct step joined = end > i + 1 ? join_steps(c, p->steps, i, end) : *s;
        p->steps[n++] = joined;
    }
    p->n_steps = n;
}

/* A weight [n_out, n_in] as the program gives it: a constant, or a constexpr op that packs it. */
struct weight {
    const struct mil_value *constant;
    const struct mil_op *packed;
    const struct mil_type *type;
};

static bool find_weight(const struct compiler *c, const struct mil_op *op, struct weight *w)
{
    const struct mil_arg *a = mil_arg_find(op, "weight");
    if (!a || a->n != 1)
        return false;
    w->constant = mil_binding_value(&a->bindings[0]);
    w->packed = w->constant ? NULL : constexpr_of(c, a->bindings[0].var);
    w->type = w->constant ? w->constant->type : var_type(c, a->bindings[0].var);
    return w->type->kind == MIL_TYPE_TENSOR &&
           (mil_dtype_is_float(w->type->dtype) || (w->constant && w->type->dtype != MIL_STRING));
}

static bool weight_ref_new(struct compiler *c, const struct weight *w, int64_t n_out, int64_t n_in,
                           struct weight_ref *out)
{
    static const char *const names[] = {
        "", "linear 1 bit", "linear 2 bit", "linear 3 bit", "linear 4 bit", "", "linear 6 bit",
        "", "linear 8 bit"};
    struct value v;
    *out = (struct weight_ref){.fixed = w->packed ? constexpr_fixed(c, w->packed, n_out, n_in) : NULL};
    uint64_t elems = (uint64_t)n_out * (uint64_t)n_in;
    if (out->fixed) {
        out->name = names[out->fixed->bits];
        out->bytes = (elems * (uint64_t)out->fixed->bits + 7) / 8;
        return true;
    }
    if (w->packed) {
        if (!constexpr_dense(c, w->packed, 0, &v))
            return false;
        out->is_f16 = v.repr == REPR_F16;
    } else {
        out->is_f16 = w->type->dtype == MIL_FP16 && (uintptr_t)w->constant->data % 2 == 0;
        if (!const_value(c, w->constant, out->is_f16 ? REPR_F16 : REPR_F32, &v))
            return false;
    }
    out->dense = c->plan->storages[v.storage].data;
    out->name = out->is_f16 ? "linear f16" : "linear f32";
    out->bytes = elems * (out->is_f16 ? 2 : 4);
    return true;
}

bool weight_ref_of(struct compiler *c, const struct mil_op *op, int64_t n_out, int64_t n_in,
                   struct weight_ref *out)
{
    struct weight w;
    if (!find_weight(c, op, &w) || !(w.constant || w.packed))
        return compile_fail(c, ERR_BUG, "a weight that is not a constant");
    return weight_ref_new(c, &w, n_out, n_in, out);
}

struct prepare {
    int bits;
};

static void run_prepare(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct prepare *p = s->params;
    int64_t begin, end;
    pool_split(s->in[0].dims[0], 1, i_thread, n_threads, &begin, &end);
    if (begin < end)
        r->k->fixed_prepare(value_pointer(r, &s->out[0]), value_pointer(r, &s->in[0]), s->in[0].strides[0],
                            s->in[0].dims[0], s->in[0].dims[1], begin, end, p->bits);
}

/* The rows of all runs as one form, in the memory that the runs' own forms would have. */
static void run_prepare_rows(const struct step *s, struct engine_run *const *runs, int n, int i_thread,
                             int n_threads)
{
    const struct prepare *p = s->params;
    void *form = value_pointer(runs[0], &s->out[0]);
    int64_t begin, end;
    pool_split(n, 1, i_thread, n_threads, &begin, &end);
    for (int64_t i = begin; i < end; i++)
        runs[0]->k->fixed_prepare(form, value_pointer(runs[i], &s->in[0]), 0, n, s->in[0].dims[1], i, i + 1,
                                  p->bits);
}

static size_t no_scratch(const struct step *s, int n)
{
    (void)s;
    (void)n;
    return 0;
}

static size_t prepare_rows_bytes(const struct step *s, const struct kernels *k, int n)
{
    return k->fixed_bytes(n, s->in[0].dims[1]);
}

static const struct step_rows prepare_rows = {run_prepare_rows, no_scratch, prepare_rows_bytes};

/* The fixed-point form of x [n_rows, n_in]; made once for all products that read the same x with the same
 * width. */
static struct value prepared(struct compiler *c, const struct value *x, int bits)
{
    struct prepared **seen = &c->prepared[x->storage % 256];
    for (const struct prepared *p = *seen; p; p = p->next)
        if (p->bits == bits && same_place(&p->x, x) && p->x.dims[0] == x->dims[0] &&
            p->x.dims[1] == x->dims[1] && p->x.strides[0] == x->strides[0])
            return p->form;
    int64_t words = (int64_t)((c->plan->kernels->fixed_bytes(x->dims[0], x->dims[1]) + 3) / 4);
    struct prepared *p = ARENA_NEW(c->scratch, struct prepared);
    *p = (struct prepared){.x = *x, .bits = bits, .form = value_new(c, REPR_I32, 1, &words), .next = *seen};
    *seen = p;
    struct prepare *params = ARENA_NEW(c->arena, struct prepare);
    params->bits = bits;
    struct step *s = step_make(c, "fixed point", run_prepare, params, x, 1, p->form);
    s->serial = x->dims[0] == 1;
    s->rows = x->dims[0] == 1 ? &prepare_rows : NULL;
    return p->form;
}

/* y[row][o] for all rows of x. x: [n_rows, n_in] as rank 2, y likewise. */
static bool emit_product(struct compiler *c, const struct mil_op *op, struct value x, const struct weight *w,
                         int64_t n_out, struct value y)
{
    struct linear *p = ARENA_NEW(c->arena, struct linear);
    struct linear_part *part = ARENA_NEW(c->arena, struct linear_part);
    struct value bias;
    bool has_bias;
    if (!operand_optional(c, op, "bias", &bias, &has_bias))
        return false;
    if (has_bias) {
        const struct mil_value *constant = mil_arg_value(op, "bias");
        if (bias.repr == REPR_I32 && constant && !const_value(c, constant, REPR_F32, &bias))
            return false;
        if (!to_f32(c, &bias) || c->plan->storages[bias.storage].kind != STORAGE_CONST ||
            value_elems(&bias) != n_out || !is_dense(&bias))
            return compile_fail(c, ERR_UNSUPPORTED, "a bias that is not a constant of %lld numbers",
                                (long long)n_out);
        part->bias = (const float *)c->plan->storages[bias.storage].data + bias.offset;
    }
    p->n_rows = x.dims[0];
    p->n_in = x.dims[1];
    p->x_stride = x.strides[0];
    p->n_parts = 1;
    p->parts = part;
    part->n_out = n_out;
    part->y = y;
    if (!weight_ref_new(c, w, n_out, p->n_in, &part->w))
        return false;
    if (c->plan->precision == ENGINE_ANE)
        return ane_emit_product(c, w->packed, &x, &part->w, part->bias, n_out, &y);
    if (part->w.fixed)
        x = prepared(c, &x, part->w.fixed->bits);
    struct step *s = step_make(c, part->w.name, run_linear, p, &x, 1, y);
    s->serial = false;
    s->work = (double)p->n_rows * (double)p->n_in * (double)n_out;
    s->weight_bytes = part->w.bytes;
    s->scratch_bytes = weight_scratch_bytes(&part->w, p->n_in, p->n_rows);
    s->rows = p->n_rows == 1 ? &linear_rows : NULL;
    return true;
}

bool as_rows(struct compiler *c, struct value *x, int feature_axis)
{
    struct value t = *x;
    int k = 0;
    for (int i = 0; i < x->rank; i++) {
        if (i == feature_axis)
            continue;
        t.dims[k] = x->dims[i];
        t.strides[k++] = x->strides[i];
    }
    t.dims[k] = x->dims[feature_axis];
    t.strides[k] = x->strides[feature_axis];
    int64_t n_in = t.dims[k], rows[2] = {value_elems(x) / (n_in > 0 ? n_in : 1), n_in};
    struct value flat;
    bool unit = n_in == 1 || t.strides[k] == 1;
    if (!unit || !view_reshape(&t, 2, rows, &flat)) {
        struct value y = value_new(c, t.repr, t.rank, t.dims);
        emit_copy(c, &t, &y);
        if (!view_reshape(&y, 2, rows, &flat))
            return compile_fail(c, ERR_BUG, "a dense value that can't be reshaped");
    }
    if (flat.dims[0] == 1)
        flat.strides[0] = n_in;
    *x = flat;
    return true;
}

/* ---- the general convolution ---- */

/* First and last (behind) output place along axis d whose input lies inside for kernel element k. */
static void conv_range(const struct window *p, int d, int64_t k, int64_t *first, int64_t *last)
{
    int64_t shift = k * p->dilation[d] - p->pad[d], stride = p->stride[d];
    *first = shift >= 0 ? 0 : (-shift + stride - 1) / stride;
    *last = p->in[d] - shift > 0 ? (p->in[d] - shift + stride - 1) / stride : 0;
    if (*last > p->out[d])
        *last = p->out[d];
}

/* One output plane [out[0], out[1], out[2]], rows of the innermost axis at a time: each element's products are added input by input, tap by
 * tap, whatever the order of the rows. */
static void conv_plane(const struct window *p, const struct engine_run *r, float *y, const int64_t *y_strides,
                       const float *x, const int64_t *x_strides, int64_t channel_stride, const float *w,
                       const int64_t *w_strides, int64_t input_stride)
{
    int inner = p->n_spatial - 1;
    int64_t n_taps = dims_product(p->kernel, p->n_spatial);
    for (int64_t i = 0; i < p->in_group && !run_stops(r, i * n_taps); i++) {
        for (int64_t tap = 0; tap < n_taps; tap++) {
            int64_t at[3] = {0}, first[3] = {0}, last[3] = {1, 1, 1}, left = tap, w_at = i * input_stride,
                    x_at = i * channel_stride, y_at = 0;
            for (int d = inner; d >= 0; d--) {
                at[d] = left % p->kernel[d];
                left /= p->kernel[d];
                w_at += at[d] * w_strides[d];
                x_at += (at[d] * p->dilation[d] - p->pad[d]) * x_strides[d];
                conv_range(p, d, at[d], &first[d], &last[d]);
            }
            const float factor = w[w_at];
            int64_t n = last[inner] - first[inner], x_step = x_strides[inner] * p->stride[inner],
                    y_step = y_strides[inner];
            x_at += first[inner] * x_step;
            y_at += first[inner] * y_step;
            /* The outer axes, of which there are none to two. */
            int64_t n_outer[2] = {inner > 0 ? last[0] : 1, inner > 1 ? last[1] : 1};
            for (int64_t a = inner > 0 ? first[0] : 0; a < n_outer[0]; a++) {
                for (int64_t b = inner > 1 ? first[1] : 0; b < n_outer[1]; b++) {
                    int64_t to = y_at, from = x_at;
                    if (inner > 0) {
                        to += a * y_strides[0];
                        from += a * p->stride[0] * x_strides[0];
                    }
                    if (inner > 1) {
                        to += b * y_strides[1];
                        from += b * p->stride[1] * x_strides[1];
                    }
                    if (x_step == 1 && y_step == 1) {
                        float *row = y + to;
                        const float *source = x + from;
                        for (int64_t k = 0; k < n; k++)
                            row[k] += source[k] * factor;
                    } else {
                        for (int64_t k = 0; k < n; k++)
                            y[to + k * y_step] += x[from + k * x_step] * factor;
                    }
                }
            }
        }
    }
}

/* The same product by product, by the emulation. */
static void run_conv_emulated(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct window *p = s->params;
    const float *x = value_pointer(r, &s->in[0]), *w = value_pointer(r, &s->in[1]);
    const float *bias = p->has_bias ? value_pointer(r, &s->in[2]) : NULL;
    const struct ane_model *ane = &r->plan->ane;
    float *y = value_pointer(r, &s->out[0]);
    int64_t n_out = p->groups * p->out_group, n_places = dims_product(p->out, p->n_spatial),
            n_taps = dims_product(p->kernel, p->n_spatial), begin, end;
    pool_split(p->n_images * n_out, 1, i_thread, n_threads, &begin, &end);
    for (int64_t item = begin; item < end; item++) {
        int64_t n = item / n_out, o = item % n_out, group = o / p->out_group;
        for (int64_t place = 0; place < n_places; place++) {
            int64_t at[3] = {0}, y_at = n * s->out[0].strides[0] + o * s->out[0].strides[1], rest = place;
            struct ane_sum sum = {0};
            for (int d = p->n_spatial - 1; d >= 0; d--) {
                at[d] = rest % p->out[d];
                rest /= p->out[d];
                y_at += at[d] * s->out[0].strides[2 + d];
            }
            for (int64_t i = 0; i < p->in_group && !run_stops(r, i * n_taps); i++) {
                for (int64_t tap = 0; tap < n_taps; tap++) {
                    int64_t left = tap;
                    int64_t x_at = n * s->in[0].strides[0] + (group * p->in_group + i) * s->in[0].strides[1];
                    int64_t w_at = o * s->in[1].strides[0] + i * s->in[1].strides[1];
                    bool inside = true;
                    for (int d = p->n_spatial - 1; d >= 0; d--) {
                        int64_t k = left % p->kernel[d],
                                pos = at[d] * p->stride[d] + k * p->dilation[d] - p->pad[d];
                        left /= p->kernel[d];
                        inside = inside && pos >= 0 && pos < p->in[d];
                        x_at += pos * s->in[0].strides[2 + d];
                        w_at += k * s->in[1].strides[2 + d];
                    }
                    if (inside)
                        ane_sum_add(ane, &sum, x[x_at], w[w_at]);
                }
            }
            y[y_at] = ane_sum_end(ane, &sum, bias ? bias[o * s->in[2].strides[0]] : 0);
        }
    }
}

static void run_conv(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct window *p = s->params;
    const float *x = value_pointer(r, &s->in[0]), *w = value_pointer(r, &s->in[1]);
    const float *bias = p->has_bias ? value_pointer(r, &s->in[2]) : NULL;
    float *y = value_pointer(r, &s->out[0]); /* dense */
    int64_t n_out = p->groups * p->out_group, n_places = dims_product(p->out, p->n_spatial), begin, end;
    const int64_t *x_strides = s->in[0].strides, *w_strides = s->in[1].strides;
    pool_split(p->n_images * n_out, 1, i_thread, n_threads, &begin, &end);
    for (int64_t item = begin; item < end; item++) {
        int64_t n = item / n_out, o = item % n_out, group = o / p->out_group;
        float *plane = y + item * n_places;
        memset(plane, 0, (size_t)n_places * sizeof *plane);
        conv_plane(p, r, plane, s->out[0].strides + 2,
                   x + n * x_strides[0] + group * p->in_group * x_strides[1], x_strides + 2, x_strides[1],
                   w + o * w_strides[0], w_strides + 2, w_strides[1]);
        for (int64_t place = 0; bias && place < n_places; place++)
            plane[place] += bias[o * s->in[2].strides[0]];
    }
}

static bool emit_conv_general(struct compiler *c, const struct mil_op *op, struct value x, struct value w,
                              const struct mil_type *t, struct window *p)
{
    bool has_bias;
    struct value bias = {0};
    if (!to_f32(c, &x) || !operand_optional(c, op, "bias", &bias, &has_bias) ||
        (has_bias && !to_f32(c, &bias)))
        return false;
    p->has_bias = has_bias;
    p->n_images = x.dims[0];
    p->in_group = w.dims[1];
    p->out_group = p->groups > 0 ? w.dims[0] / p->groups : 0;
    if (p->groups < 1 || p->out_group * p->groups != w.dims[0] || p->in_group * p->groups != x.dims[1] ||
        t->dims[1] != w.dims[0] || (has_bias && value_elems(&bias) != w.dims[0]))
        return compile_fail(c, ERR_FORMAT, "channels of x, weight, bias and groups do not fit");
    for (int d = 0; d < p->n_spatial; d++) {
        p->in[d] = x.dims[2 + d];
        p->out[d] = t->dims[2 + d];
        p->kernel[d] = w.dims[2 + d];
    }
    bool done = false;
    if (!window_arguments(c, op, p, false))
        return false;
    if (c->plan->precision != ENGINE_ANE && x.repr == REPR_F32 &&
        !emit_conv_places(c, op, p, x, w, has_bias ? &bias : NULL, &done))
        return false;
    if (done)
        return true;
    if (!to_f32(c, &w))
        return false;
    struct value y = value_new(c, REPR_F32, t->rank, t->dims);
    struct step *s = step_new(c, "conv", c->plan->precision == ENGINE_ANE ? run_conv_emulated : run_conv);
    s->params = p;
    s->work = (double)value_elems(&y) * (double)p->in_group;
    for (int d = 0; d < p->n_spatial; d++)
        s->work *= (double)p->kernel[d];
    s->serial = value_elems(&y) < 1024;
    step_in(c, s, x);
    step_in(c, s, w);
    if (has_bias)
        step_in(c, s, bias);
    step_out(c, s, y);
    set_output(c, op, 0, y);
    return true;
}

bool emit_conv(struct compiler *c, const struct mil_op *op)
{
    const struct mil_type *t = var_type(c, op->outputs[0]);
    struct weight source;
    struct window *p = ARENA_NEW(c->arena, struct window);
    struct value x, w;
    int n = SPATIAL_MAX;
    if (!operand_f32(c, op, "x", &x))
        return false;
    p->n_spatial = x.rank - 2;
    for (int d = 0; d < SPATIAL_MAX; d++)
        p->stride[d] = p->dilation[d] = 1;
    if (p->n_spatial < 1 || p->n_spatial > SPATIAL_MAX || !find_weight(c, op, &source))
        return compile_fail(c, ERR_FORMAT, "expected x of rank 3 to 5 and a weight");
    if (!arg_ints(c, op, "strides", p->stride, &n))
        return false;
    n = SPATIAL_MAX;
    if (!arg_ints(c, op, "dilations", p->dilation, &n) || !arg_int(c, op, "groups", 1, &p->groups))
        return false;
    const struct mil_type *wt = source.type;
    if (wt->rank != x.rank)
        return compile_fail(c, ERR_FORMAT, "the weight's rank differs from that of x");
    bool pointwise = (source.constant || source.packed) && p->groups == 1 && x.dims[0] == 1 &&
                     x.dims[1] > 0 && wt->dims[1] == x.dims[1] && t->dims[1] == wt->dims[0];
    for (int d = 0; pointwise && d < p->n_spatial; d++)
        pointwise = wt->dims[2 + d] == 1 && p->stride[d] == 1 && t->dims[2 + d] == x.dims[2 + d];
    if (!pointwise)
        return operand(c, op, "weight", &w) && emit_conv_general(c, op, x, w, t, p);
    /* [1, O, spatial..] stored as [spatial.., O]: the layout that the next product, norm or head split wants.
     */
    struct value y = value_new(c, REPR_F32, t->rank, t->dims), rows;
    int64_t n_out = t->dims[1], n_places = value_elems(&y) / (n_out > 0 ? n_out : 1);
    int64_t stride = n_out;
    for (int i = t->rank - 1; i >= 2; i--) {
        y.strides[i] = stride;
        stride *= t->dims[i];
    }
    y.strides[1] = 1;
    y.strides[0] = stride;
    rows = y;
    rows.rank = 2;
    rows.dims[0] = n_places;
    rows.dims[1] = n_out;
    rows.strides[0] = n_out;
    rows.strides[1] = 1;
    if (!as_rows(c, &x, 1) || !emit_product(c, op, x, &source, n_out, rows))
        return false;
    set_output(c, op, 0, y);
    return true;
}

/* Integers, and a weight that is computed. */
static bool emit_linear_computed(struct compiler *c, const struct mil_op *op, struct value x)
{
    struct value w, bias;
    bool has_bias;
    if (!operand_f32(c, op, "weight", &w) || !operand_optional(c, op, "bias", &bias, &has_bias) ||
        (has_bias && !to_f32(c, &bias)))
        return false;
    if (w.rank != 2 || x.rank < 1)
        return compile_fail(c, ERR_FORMAT, "expected x of rank 1 or more and a weight of rank 2");
    return emit_matrix_product(c, op, x, false, w, true, has_bias ? &bias : NULL);
}

bool emit_linear(struct compiler *c, const struct mil_op *op)
{
    const struct mil_type *t = var_type(c, op->outputs[0]);
    struct weight source;
    struct value x;
    if (!operand_f32(c, op, "x", &x))
        return false;
    if (x.repr != REPR_F32 || !find_weight(c, op, &source) || !(source.constant || source.packed))
        return emit_linear_computed(c, op, x);
    if (source.type->rank != 2 || x.rank < 1 || source.type->dims[1] != x.dims[x.rank - 1])
        return compile_fail(c, ERR_FORMAT, "expected a weight [O, I] that fits x");
    struct value y = value_new(c, REPR_F32, t->rank, t->dims), rows = y;
    int64_t n_out = source.type->dims[0];
    rows.rank = 2;
    rows.dims[0] = value_elems(&y) / (n_out > 0 ? n_out : 1);
    rows.dims[1] = rows.strides[0] = n_out;
    rows.strides[1] = 1;
    if (!as_rows(c, &x, x.rank - 1))
        return false;
    if (x.dims[0] != rows.dims[0])
        return compile_fail(c, ERR_FORMAT, "its result does not fit x and weight");
    if (!emit_product(c, op, x, &source, n_out, rows))
        return false;
    set_output(c, op, 0, y);
    return true;
}
