/* Convolutions with constant weights whose results lie with channels together: depthwise ones, tap by tap over the channels of a place, and others
 * as products of patches of x with the weight matrix. Each result is its own sum, so threads split places at will. */
#include <string.h>
#include "engine/window.h"

enum { TAPS_MAX = 128, CHANNELS_TOGETHER = 16, ROWS_TOGETHER = 64 };
/* Numbers of a patch from which patches are not made: they would take more memory than x. */
#define PATCH_MAX 65536

struct conv_places {
    struct window w;
    int64_t n_places, n_taps; /* of an image; of the window */
    const int64_t *tap_at;    /* [n_taps, SPATIAL_MAX], in elements of x from where the window begins */
    const float *taps;        /* depthwise: [n_taps, channels] */
    struct weight_ref weight; /* else [channels of the result, inputs * n_taps] */
    const float *bias;        /* or NULL */
    int64_t n_out, n_patch;
};

/* y [n, channels, spatial..] stored as [n, spatial.., channels]. */
static struct value channels_together(struct compiler *c, int rank, const int64_t *dims)
{
    struct value y = value_new(c, REPR_F32, rank, dims);
    int64_t stride = dims[1];
    for (int i = rank - 1; i >= 2; i--) {
        y.strides[i] = stride;
        stride *= dims[i];
    }
    y.strides[1] = 1;
    y.strides[0] = stride;
    return y;
}

/* Where the window of a place begins along each axis, in elements of x. */
static void window_at(const struct conv_places *p, int64_t place, int64_t first[SPATIAL_MAX])
{
    for (int d = p->w.n_spatial - 1; d >= 0; d--) {
        first[d] = place % p->w.out[d] * p->w.stride[d] - p->w.pad[d];
        place /= p->w.out[d];
    }
}

/* Where tap t of a window reads, as an offset behind an image; -1: outside. */
static inline int64_t source_of(const struct conv_places *p, const int64_t *strides,
                                const int64_t first[SPATIAL_MAX], int64_t t)
{
    int64_t offset = 0;
    for (int d = 0; d < p->w.n_spatial; d++) {
        int64_t at = first[d] + p->tap_at[t * SPATIAL_MAX + d];
        if (at < 0 || at >= p->w.in[d])
            return -1;
        offset += at * strides[d];
    }
    return offset;
}

/* n channels of one place: the products are added tap by tap. */
static inline __attribute__((always_inline)) void sum_taps(float *y, const float *x, const float *w,
                                                           const float *bias, const int64_t *from,
                                                           const int32_t *tap, int n_taps, int64_t n_channels,
                                                           int64_t n)
{
    float sum[CHANNELS_TOGETHER] = {0};
    for (int t = 0; t < n_taps; t++) {
        const float *a = x + from[t], *b = w + tap[t] * n_channels;
        for (int64_t c = 0; c < n; c++)
            sum[c] += a[c] * b[c];
    }
    for (int64_t c = 0; c < n; c++)
        y[c] = bias ? sum[c] + bias[c] : sum[c];
}

static void run_depthwise(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct conv_places *p = s->params;
    const float *x = value_pointer(r, &s->in[0]);
    float *y = value_pointer(r, &s->out[0]);
    int64_t begin, end, from[TAPS_MAX];
    int32_t tap[TAPS_MAX];
    pool_split(p->w.n_images * p->n_places, 1, i_thread, n_threads, &begin, &end);
    for (int64_t item = begin; item < end && !run_stops(r, item * p->n_out); item++) {
        const float *image = x + item / p->n_places * s->in[0].strides[0];
        float *to = y + item * p->n_out;
        int64_t first[SPATIAL_MAX];
        int n = 0;
        window_at(p, item % p->n_places, first);
        for (int32_t t = 0; t < p->n_taps; t++) {
            from[n] = source_of(p, s->in[0].strides + 2, first, t);
            tap[n] = t;
            n += from[n] >= 0;
        }
        int64_t c = 0;
        for (; c + CHANNELS_TOGETHER <= p->n_out; c += CHANNELS_TOGETHER)
            sum_taps(to + c, image + c, p->taps + c, p->bias ? p->bias + c : NULL, from, tap, n, p->n_out,
                     CHANNELS_TOGETHER);
        sum_taps(to + c, image + c, p->taps + c, p->bias ? p->bias + c : NULL, from, tap, n, p->n_out,
                 p->n_out - c);
    }
}

/* Rows of x as the weight's rows have it, input by input and tap by tap; zeros outside. */
static void gather_patch(const struct conv_places *p, float *to, const float *image, const int64_t *strides,
                         int64_t place)
{
    int64_t n_inputs = p->n_patch / p->n_taps, first[SPATIAL_MAX];
    window_at(p, place, first);
    for (int64_t t = 0; t < p->n_taps; t++) {
        int64_t from = source_of(p, strides + 2, first, t);
        for (int64_t i = 0; i < n_inputs; i++)
            to[i * p->n_taps + t] = from < 0 ? 0 : image[from + i * strides[1]];
    }
}

static void run_patches(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct conv_places *p = s->params;
    const float *x = value_pointer(r, &s->in[0]);
    float *y = value_pointer(r, &s->out[0]), *patches = run_scratch(r, i_thread),
          *scratch = patches + ROWS_TOGETHER * p->n_patch;
    int64_t begin, end;
    pool_split(p->w.n_images * p->n_places, 1, i_thread, n_threads, &begin, &end);
    for (int64_t item = begin; item < end && !run_stops(r, item * p->n_patch); item += ROWS_TOGETHER) {
        int64_t n = end - item < ROWS_TOGETHER ? end - item : ROWS_TOGETHER;
        for (int64_t i = 0; i < n; i++)
            gather_patch(p, patches + i * p->n_patch, x + (item + i) / p->n_places * s->in[0].strides[0],
                         s->in[0].strides, (item + i) % p->n_places);
        weight_product(&p->weight, r->k, y + item * p->n_out, p->n_out, patches, p->n_patch, p->bias, n,
                       p->n_patch, 0, p->n_out, scratch);
    }
}

static const void *constant_of(const struct compiler *c, const struct value *v)
{
    const struct storage *s = &c->plan->storages[v->storage];
    if (s->kind != STORAGE_CONST || !is_dense(v))
        return NULL;
    return (const char *)s->data + v->offset * (v->repr == REPR_F16 ? 2 : 4);
}

/* [channels, 1, taps..] turned over. */
static const float *turned_taps(struct compiler *c, const float *w, int64_t n_channels, int64_t n_taps)
{
    float *taps = NULL;
    if (!compile_take_memory(c, n_channels * n_taps, 4) ||
        !(taps = arena_try_alloc(c->arena, (size_t)(n_channels * n_taps) + 1, sizeof *taps, c->e)))
        return NULL;
    for (int64_t i = 0; i < n_channels; i++)
        for (int64_t t = 0; t < n_taps; t++)
            taps[t * n_channels + i] = w[i * n_taps + t];
    return taps;
}

bool emit_conv_places(struct compiler *c, const struct mil_op *op, const struct window *w, struct value x,
                      struct value weight, const struct value *bias, bool *done)
{
    const struct mil_type *t = var_type(c, op->outputs[0]);
    struct conv_places *p = ARENA_NEW(c->arena, struct conv_places);
    const float *constant_bias = NULL;
    *done = false;
    if (bias) {
        struct value b = *bias;
        if (b.repr != REPR_F32 || !(constant_bias = constant_of(c, &b)))
            return true;
    }
    p->w = *w;
    p->bias = constant_bias;
    p->n_taps = dims_product(w->kernel, w->n_spatial);
    p->n_places = dims_product(w->out, w->n_spatial);
    p->n_out = t->dims[1];
    p->n_patch = w->in_group * p->n_taps;
    bool is_depthwise = w->in_group == 1 && w->out_group == 1 && w->groups > 1 && p->n_taps <= TAPS_MAX,
         is_dense = w->groups == 1 && p->n_out >= 8 && p->n_patch > 0 && p->n_patch <= PATCH_MAX;
    const void *constant = constant_of(c, &weight);
    if (!constant || p->n_places < 1 || !(is_depthwise || is_dense))
        return true;
    if (is_depthwise) {
        if (!to_f32(c, &weight))
            return false;
        constant = constant_of(c, &weight);
        if (!constant)
            return true;
        if (!(p->taps = turned_taps(c, constant, p->n_out, p->n_taps)))
            return false;
        if (x.strides[1] != 1) {
            struct value together = channels_together(c, x.rank, x.dims);
            emit_copy(c, &x, &together);
            x = together;
        }
    } else {
        p->weight = (struct weight_ref){.dense = constant, .is_f16 = weight.repr == REPR_F16};
    }
    int64_t *tap_at = ARENA_ARRAY(c->arena, int64_t, p->n_taps * SPATIAL_MAX);
    for (int64_t i = 0; i < p->n_taps; i++) {
        int64_t left = i;
        for (int d = w->n_spatial - 1; d >= 0; d--) {
            tap_at[i * SPATIAL_MAX + d] = left % w->kernel[d] * w->dilation[d];
            left /= w->kernel[d];
        }
    }
    p->tap_at = tap_at;
    struct value y = channels_together(c, t->rank, t->dims);
    struct step *s = step_make(c, is_depthwise ? "conv depthwise" : "conv",
                               is_depthwise ? run_depthwise : run_patches, p, &x, 1, y);
    s->work = (double)value_elems(&y) * (double)p->n_patch;
    s->serial = s->work < 16384;
    s->weight_bytes = (uint64_t)(p->n_out * p->n_patch) * (weight.repr == REPR_F16 ? 2 : 4);
    if (!is_depthwise)
        s->scratch_bytes = (size_t)(ROWS_TOGETHER * p->n_patch) * sizeof(float) +
                           weight_scratch_bytes(&p->weight, p->n_patch, ROWS_TOGETHER);
    set_output(c, op, 0, y);
    *done = true;
    return true;
}
