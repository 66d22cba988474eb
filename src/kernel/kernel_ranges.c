/* Kernels in builds with AddressSanitizer or ThreadSanitizer (base/ranges.h): their own loops are compiled without, so what
 * stands between them and callers are functions that look at the arrays of a call, as kernel.h says what they are, before the
 * kernel runs. */
#include "base/invariant.h"
#include "base/ranges.h"
#include "kernel/kernel_internal.h"

#if defined(RANGES_OF_ADDRESSES) || defined(RANGES_OF_THREADS)

/* What each table of checked functions runs behind the checks: levels and variants. */
enum { SLOTS = 8 };
static struct kernels plain[SLOTS];

static void floats(const float *x, int64_t n)
{
    if (n > 0)
        range_read(x, (size_t)n * sizeof *x);
}

static void halves(const f16 *x, int64_t n)
{
    if (n > 0)
        range_read(x, (size_t)n * sizeof *x);
}

static void to_floats(const float *y, int64_t n)
{
    if (n > 0)
        range_write(y, (size_t)n * sizeof *y);
}

static void to_halves(const f16 *y, int64_t n)
{
    if (n > 0)
        range_write(y, (size_t)n * sizeof *y);
}

/* n numbers of each row: those between rows are not the kernel's. */
static void rows(const float *x, int64_t stride, int64_t n_rows, int64_t n)
{
    for (int64_t i = 0; i < n_rows; i++)
        floats(x + i * stride, n);
}

static void to_rows(const float *y, int64_t stride, int64_t n_rows, int64_t n)
{
    for (int64_t i = 0; i < n_rows; i++)
        to_floats(y + i * stride, n);
}

static void outputs(const float *y, int64_t y_stride, const float *bias, int64_t n_rows, int64_t begin,
                    int64_t end)
{
    to_rows(y + begin, y_stride, n_rows, end - begin);
    if (bias)
        floats(bias + begin, end - begin);
}

static void attention(const float *out, int64_t out_stride, const float *q, int64_t q_stride, int64_t n_rows,
                      const f16 *k, int64_t k_stride, const f16 *v, int64_t v_stride, int64_t d_k,
                      int64_t d_v, const int32_t *begin, const int32_t *end, const float *mask,
                      int64_t mask_stride, const float *scratch)
{
    int64_t first = INT64_MAX, last = 0;
    to_rows(out, out_stride, n_rows, d_v);
    rows(q, q_stride, n_rows, d_k);
    for (int64_t r = 0; r < n_rows; r++) {
        if (begin[r] >= end[r])
            continue;
        first = begin[r] < first ? begin[r] : first;
        last = end[r] > last ? end[r] : last;
        if (mask)
            floats(mask + r * mask_stride + begin[r], end[r] - begin[r]);
    }
    for (int64_t p = first; p < last; p++) {
        halves(k + p * k_stride, d_k);
        halves(v + p * v_stride, d_v);
    }
    range_scratch(scratch, KERNEL_ATTENTION_SCRATCH(last, n_rows, d_k, d_v) * sizeof *scratch);
}

static void gated_delta(const struct gated_delta *p, int64_t begin, int64_t end)
{
    to_rows(p->y + begin, p->y_stride, p->n_tokens, end - begin);
    to_rows(p->state + begin, p->state_stride, p->d_k, end - begin);
    rows(p->q, p->q_stride, p->n_tokens, p->d_k);
    rows(p->k, p->k_stride, p->n_tokens, p->d_k);
    rows(p->v + begin, p->v_stride, p->n_tokens, end - begin);
    rows(p->g, p->g_stride, p->n_tokens, 1);
    rows(p->beta, p->beta_stride, p->n_tokens, 1);
}

static void fixed_weight(const struct fixed_weight *w, int64_t begin, int64_t end)
{
    size_t row_bits = (size_t)w->n_in * (size_t)w->bits, first = (size_t)begin * row_bits / 8,
           behind = ((size_t)end * row_bits + 7) / 8;
    int64_t first_group = begin / w->rows_per_group, last_group = (end - 1) / w->rows_per_group;
    range_read(w->indices + first, behind - first);
    for (int64_t g = first_group; g <= (w->table_stride ? last_group : first_group); g++)
        range_read(w->tables + g * w->table_stride, (size_t)2 << w->bits);
    if (w->scale_block == 0)
        floats(w->scales + begin / w->rows_per_scale,
               (end - 1) / w->rows_per_scale - begin / w->rows_per_scale + 1);
    else
        floats(w->scales + begin * (w->n_in / w->scale_block), (end - begin) * (w->n_in / w->scale_block));
}

#define LINEAR(slot, member, type, check)                                                                    \
    static void member##_##slot(float *y, int64_t y_stride, const float *x, int64_t x_stride, const type *w, \
                                const float *bias, int64_t n_rows, int64_t n_in, int64_t begin, int64_t end, \
                                float *scratch)                                                              \
    {                                                                                                        \
        rows(x, x_stride, n_rows, n_in);                                                                     \
        outputs(y, y_stride, bias, n_rows, begin, end);                                                      \
        check(w + begin * n_in, (end - begin) * n_in);                                                       \
        range_scratch(scratch, KERNEL_LINEAR_SCRATCH(n_in, n_rows) * sizeof *scratch);                       \
        plain[slot].member(y, y_stride, x, x_stride, w, bias, n_rows, n_in, begin, end, scratch);            \
    }
#define UNARY(slot, member, to, from, check_to, check_from)                                                  \
    static void member##_##slot(to *y, const from *x, int64_t n)                                             \
    {                                                                                                        \
        check_to(y, n);                                                                                      \
        check_from(x, n);                                                                                    \
        plain[slot].member(y, x, n);                                                                         \
    }
#define BINARY(slot, member)                                                                                 \
    static void member##_##slot(float *y, const float *a, const float *b, int64_t n, int b_step)             \
    {                                                                                                        \
        to_floats(y, n);                                                                                     \
        floats(a, n);                                                                                        \
        floats(b, b_step || n == 0 ? n : 1);                                                                 \
        plain[slot].member(y, a, b, n, b_step);                                                              \
    }
#define SLOT(slot)                                                                                           \
    LINEAR(slot, linear_f16, f16, halves)                                                                    \
    LINEAR(slot, linear_f32, float, floats)                                                                  \
    static void attention_f16_##slot(                                                                        \
        float *out, int64_t out_stride, const float *q, int64_t q_stride, int64_t n_rows, const f16 *k,      \
        int64_t k_stride, const f16 *v, int64_t v_stride, int64_t d_k, int64_t d_v, const int32_t *begin,    \
        const int32_t *end, const float *mask, int64_t mask_stride, float scale, float *scratch)             \
    {                                                                                                        \
        attention(out, out_stride, q, q_stride, n_rows, k, k_stride, v, v_stride, d_k, d_v, begin, end,      \
                  mask, mask_stride, scratch);                                                               \
        plain[slot].attention_f16(out, out_stride, q, q_stride, n_rows, k, k_stride, v, v_stride, d_k, d_v,  \
                                  begin, end, mask, mask_stride, scale, scratch);                            \
    }                                                                                                        \
    static void rms_norm_##slot(float *y, const float *x, const float *w, int64_t n, float eps)              \
    {                                                                                                        \
        to_floats(y, n);                                                                                     \
        floats(x, n);                                                                                        \
        floats(w, w ? n : 0);                                                                                \
        plain[slot].rms_norm(y, x, w, n, eps);                                                               \
    }                                                                                                        \
    static void layer_norm_##slot(float *y, const float *x, const float *gamma, const float *beta,           \
                                  int64_t n, float eps)                                                      \
    {                                                                                                        \
        to_floats(y, n);                                                                                     \
        floats(x, n);                                                                                        \
        floats(gamma, gamma ? n : 0);                                                                        \
        floats(beta, beta ? n : 0);                                                                          \
        plain[slot].layer_norm(y, x, gamma, beta, n, eps);                                                   \
    }                                                                                                        \
    static void rope_##slot(float *y, const float *x, const float *cos, const float *sin, int64_t pairs,     \
                            int64_t half, int64_t n)                                                         \
    {                                                                                                        \
        to_floats(y, n);                                                                                     \
        floats(x, n);                                                                                        \
        floats(cos, pairs);                                                                                  \
        floats(sin, pairs);                                                                                  \
        plain[slot].rope(y, x, cos, sin, pairs, half, n);                                                    \
    }                                                                                                        \
    static void silu_mul_##slot(float *y, const float *x, const float *u, int64_t n)                         \
    {                                                                                                        \
        to_floats(y, n);                                                                                     \
        floats(x, n);                                                                                        \
        floats(u, u ? n : 0);                                                                                \
        plain[slot].silu_mul(y, x, u, n);                                                                    \
    }                                                                                                        \
    UNARY(slot, softmax, float, float, to_floats, floats)                                                    \
    UNARY(slot, exp, float, float, to_floats, floats)                                                        \
    UNARY(slot, tanh, float, float, to_floats, floats)                                                       \
    UNARY(slot, sigmoid, float, float, to_floats, floats)                                                    \
    UNARY(slot, f16_to_f32, float, f16, to_floats, halves)                                                   \
    UNARY(slot, f32_to_f16, f16, float, to_halves, floats)                                                   \
    UNARY(slot, round_f16, float, float, to_floats, floats)                                                  \
    BINARY(slot, add)                                                                                        \
    BINARY(slot, sub)                                                                                        \
    BINARY(slot, mul)                                                                                        \
    static void gated_delta_##slot(const struct gated_delta *p, int64_t begin, int64_t end)                  \
    {                                                                                                        \
        gated_delta(p, begin, end);                                                                          \
        plain[slot].gated_delta(p, begin, end);                                                              \
    }                                                                                                        \
    static size_t fixed_bytes_##slot(int64_t n_rows, int64_t n_in)                                           \
    {                                                                                                        \
        return plain[slot].fixed_bytes(n_rows, n_in);                                                        \
    }                                                                                                        \
    static void fixed_prepare_##slot(void *dst, const float *x, int64_t x_stride, int64_t n_rows,            \
                                     int64_t n_in, int64_t row_begin, int64_t row_end, int bits)             \
    {                                                                                                        \
        range_scratch(dst, row_begin == 0 ? plain[slot].fixed_bytes(n_rows, n_in) : 0);                      \
        rows(x + row_begin * x_stride, x_stride, row_end - row_begin, n_in);                                 \
        plain[slot].fixed_prepare(dst, x, x_stride, n_rows, n_in, row_begin, row_end, bits);                 \
    }                                                                                                        \
    static void linear_fixed_##slot(float *y, int64_t y_stride, const void *prepared,                        \
                                    const struct fixed_weight *w, const float *bias, int64_t n_rows,         \
                                    int64_t begin, int64_t end, void *scratch)                               \
    {                                                                                                        \
        outputs(y, y_stride, bias, n_rows, begin, end);                                                      \
        range_read(prepared, plain[slot].fixed_bytes(n_rows, w->n_in));                                      \
        if (begin < end)                                                                                     \
            fixed_weight(w, begin, end);                                                                     \
        range_scratch(scratch, KERNEL_FIXED_SCRATCH(w->n_in, n_rows));                                       \
        plain[slot].linear_fixed(y, y_stride, prepared, w, bias, n_rows, begin, end, scratch);               \
    }                                                                                                        \
    static void take_##slot(struct kernels *k)                                                               \
    {                                                                                                        \
        TAKE(slot)                                                                                           \
    }
#define TAKE(slot)                                                                                           \
    k->linear_f16 = linear_f16_##slot, k->linear_f32 = linear_f32_##slot;                                    \
    k->attention_f16 = attention_f16_##slot, k->rms_norm = rms_norm_##slot;                                  \
    k->layer_norm = layer_norm_##slot, k->rope = rope_##slot, k->softmax = softmax_##slot;                   \
    k->exp = exp_##slot, k->tanh = tanh_##slot, k->sigmoid = sigmoid_##slot;                                 \
    k->silu_mul = silu_mul_##slot, k->add = add_##slot, k->sub = sub_##slot, k->mul = mul_##slot;            \
    k->f16_to_f32 = f16_to_f32_##slot, k->f32_to_f16 = f32_to_f16_##slot;                                    \
    k->round_f16 = round_f16_##slot, k->gated_delta = gated_delta_##slot;                                    \
    k->fixed_bytes = fixed_bytes_##slot, k->fixed_prepare = fixed_prepare_##slot;                            \
    k->linear_fixed = linear_fixed_##slot;
SLOT(0)
SLOT(1)
SLOT(2)
SLOT(3)
SLOT(4)
SLOT(5)
SLOT(6)
SLOT(7)

void kernel_check_ranges(struct kernels *k)
{
    static void (*const take[SLOTS])(struct kernels *) = {take_0, take_1, take_2, take_3,
                                                          take_4, take_5, take_6, take_7};
    int i = 0;
    while (i < SLOTS && plain[i].name && (plain[i].level != k->level || plain[i].features != k->features))
        i++;
    INVARIANT(i < SLOTS, "a slot for each table of kernels");
    plain[i] = *k;
    take[i](k);
    /* A member without a check would be one that nobody looks at. */
#define KERNEL(member, kind) INVARIANT(k->member != plain[i].member, "every kernel is checked");
#include "kernel/kernel.def"
#undef KERNEL
}

#else

void kernel_check_ranges(struct kernels *k)
{
    (void)k;
}

#endif
