/* Steps of products by the emulation: rows with constant weights, and matmul. */
#include <string.h>
#include "engine/compiler.h"

struct product {
    ane_dot_fn dot;
    int64_t n_rows, n_in, n_out, x_stride, y_stride;
    const void *w; /* [n_out, n_in] */
    bool is_f16;
    const float *bias, *scales; /* [n_out] or NULL */
};

/* A thread's operands: the rows of x prepared, and one row of w. */
struct operands {
    float *xs, *least, *w;
};

size_t ane_scratch_bytes(int64_t n_rows, int64_t n_k)
{
    return sizeof(float) * (size_t)n_k * (2 * (size_t)n_rows + 1);
}

static struct operands operands_of(void *scratch, int64_t n_rows, int64_t n_k)
{
    float *at = scratch;
    return (struct operands){at, at + n_rows * n_k, at + 2 * n_rows * n_k};
}

static void run_product(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct product *p = s->params;
    const struct ane_model *m = &r->plan->ane;
    const float *x = value_pointer(r, &s->in[0]);
    float *y = value_pointer(r, &s->out[0]);
    struct operands o = operands_of(run_scratch(r, i_thread), p->n_rows, p->n_in);
    int64_t begin, end;
    pool_split(p->n_out, 1, i_thread, n_threads, &begin, &end);
    for (int64_t row = 0; row < p->n_rows && begin < end; row++)
        ane_prepare(m, o.xs + row * p->n_in, o.least + row * p->n_in, x + row * p->x_stride, 1, p->n_in);
    for (int64_t out = begin; out < end; out++) {
        if (p->is_f16)
            r->k->f16_to_f32(o.w, (const f16 *)p->w + out * p->n_in, p->n_in);
        else
            memcpy(o.w, (const float *)p->w + out * p->n_in, sizeof(float) * (size_t)p->n_in);
        for (int64_t row = 0; row < p->n_rows; row++)
            y[row * p->y_stride + out] =
                ane_product(m, p->dot, o.xs + row * p->n_in, o.least + row * p->n_in, o.w, p->n_in,
                            p->bias ? &p->bias[out] : NULL, p->scales ? &p->scales[out] : NULL);
    }
}

/* Whole numbers with one scale a row (or one of all): the numbers as floats and the scales; NULL: another form. */
static const float *row_scales(struct compiler *c, const struct mil_op *packed, int64_t n_out, int64_t n_in,
                               const float **codes)
{
    const struct mil_value *data = packed ? mil_arg_value(packed, "data") : NULL;
    const struct mil_value *scale = packed ? mil_arg_value(packed, "scale") : NULL;
    if (!data || !scale || !data->data || !scale->data || mil_arg_find(packed, "offset") ||
        !mil_op_is(packed, "constexpr_blockwise_shift_scale") || !mil_dtype_is_integer(data->type->dtype) ||
        (scale->n_elems != 1 && scale->n_elems != n_out) || scale->type->rank < 1 ||
        (scale->n_elems > 1 && scale->type->dims[0] != n_out) || data->n_elems != n_out * n_in ||
        !compile_take_memory(c, n_out * n_in + n_out, sizeof(float)))
        return NULL;
    float *whole = arena_try_alloc(c->arena, (size_t)data->n_elems, sizeof(float), c->e);
    float *scales = arena_try_alloc(c->arena, (size_t)n_out, sizeof(float), c->e);
    if (!whole || !scales || !compile_floats(c, whole, data, data->n_elems))
        return NULL;
    mil_value_floats(scales, scale, 0, scale->n_elems);
    for (int64_t i = 1; scale->n_elems == 1 && i < n_out; i++)
        scales[i] = scales[0];
    *codes = whole;
    return scales;
}

/* A copy whose numbers are all finite, where some are not. */
static bool finite_weight(struct compiler *c, struct product *p)
{
    int64_t n = p->n_out * p->n_in, i = 0;
    if (p->is_f16)
        while (i < n && (((const f16 *)p->w)[i] & 0x7c00) != 0x7c00)
            i++;
    else
        while (i < n && ((const float *)p->w)[i] - ((const float *)p->w)[i] == 0)
            i++;
    if (i == n)
        return true;
    if (!compile_take_memory(c, n, sizeof(float)))
        return false;
    float *copy = arena_try_alloc(c->arena, (size_t)n, sizeof(float), c->e);
    for (i = 0; copy && i < n; i++) {
        float v = p->is_f16 ? f16_to_f32(((const f16 *)p->w)[i]) : ((const float *)p->w)[i];
        ane_copy(&copy[i], &v, 1, 1);
    }
    p->w = copy;
    p->is_f16 = false;
    return copy != NULL;
}

bool ane_emit_product(struct compiler *c, const struct mil_op *packed, const struct value *x,
                      const struct weight_ref *w, const float *bias, int64_t n_out, const struct value *y)
{
    struct product *p = ARENA_NEW(c->arena, struct product);
    *p = (struct product){.dot = ane_dot_select(),
                          .n_rows = x->dims[0],
                          .n_in = x->dims[1],
                          .n_out = n_out,
                          .x_stride = x->strides[0],
                          .y_stride = y->strides[0],
                          .w = w->dense,
                          .is_f16 = w->is_f16,
                          .bias = bias};
    if (!c->plan->ane.scales_in_weights) {
        const float *codes = NULL;
        c->e->code = ERR_NONE;
        p->scales = row_scales(c, packed, n_out, p->n_in, &codes);
        if (p->scales) {
            p->w = codes;
            p->is_f16 = false;
        } else if (c->e->code != ERR_NONE) {
            return false;
        }
    }
    if (!finite_weight(c, p))
        return false;
    struct step *s = step_make(c, "product, emulated", run_product, p, x, 1, *y);
    s->serial = false;
    s->work = (double)p->n_rows * (double)p->n_in * (double)n_out;
    s->weight_bytes = w->bytes;
    s->scratch_bytes = ane_scratch_bytes(p->n_rows, p->n_in);
    return true;
}

/* Column by column of each batch, so that a column is gathered once for all rows. */
void ane_run_matmul(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct matmul *p = s->params;
    const struct ane_model *m = &r->plan->ane;
    const ane_dot_fn dot = ane_dot_select();
    const float *x = value_pointer(r, &s->in[0]), *w = value_pointer(r, &s->in[1]);
    float *y = value_pointer(r, &s->out[0]);
    struct operands o = operands_of(run_scratch(r, i_thread), p->n_rows, p->n_k);
    int64_t n_batches = 1, begin, end, prepared = -1;
    for (int i = 0; i < p->batch_rank; i++)
        n_batches *= p->batch[i];
    pool_split(n_batches * p->n_columns, 1, i_thread, n_threads, &begin, &end);
    for (int64_t item = begin; item < end && !run_stops(r, item * p->n_k * p->n_rows); item++) {
        int64_t at[3], column = item % p->n_columns, batch = item / p->n_columns;
        walk_offsets(p->batch_rank, p->batch, 3, p->strides, batch, at);
        for (int64_t row = 0; row < p->n_rows && prepared != batch; row++)
            ane_prepare(m, o.xs + row * p->n_k, o.least + row * p->n_k, x + at[1] + row * p->x_row, p->x_k,
                        p->n_k);
        prepared = batch;
        ane_copy(o.w, w + at[2] + column * p->w_column, p->w_k, p->n_k);
        for (int64_t row = 0; row < p->n_rows; row++)
            y[at[0] + row * p->y_row + column * p->y_column] =
                ane_product(m, dot, o.xs + row * p->n_k, o.least + row * p->n_k, o.w, p->n_k, NULL, NULL);
    }
}
