/* A product with a weight matrix of any kind. */
#include "engine/compiler.h"

size_t weight_scratch_bytes(const struct weight_ref *w, int64_t n_in, int64_t n_rows)
{
    size_t dense = KERNEL_LINEAR_SCRATCH(n_in, n_rows) * sizeof(float),
           fixed = KERNEL_FIXED_SCRATCH(n_in, n_rows);
    return w->fixed ? fixed : dense;
}

void weight_product(const struct weight_ref *w, const struct kernels *k, float *y, int64_t y_stride,
                    const void *x, int64_t x_stride, const float *bias, int64_t n_rows, int64_t n_in,
                    int64_t begin, int64_t end, void *scratch)
{
    if (w->fixed)
        k->linear_fixed(y, y_stride, x, w->fixed, bias, n_rows, begin, end, scratch);
    else if (w->is_f16)
        k->linear_f16(y, y_stride, x, x_stride, w->dense, bias, n_rows, n_in, begin, end, scratch);
    else
        k->linear_f32(y, y_stride, x, x_stride, w->dense, bias, n_rows, n_in, begin, end, scratch);
}
