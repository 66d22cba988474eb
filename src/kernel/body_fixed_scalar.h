/* Products in fixed point, plain C: the definition (kernel_fixed.h), one number at a time.
 *
 * Prepared activations: rows of prepared_row_bytes(n_in): [n_blocks] float scales, then n_in signed bytes hi and
 * n_in signed bytes lo. */

static int64_t fixed_n_blocks(int64_t n_in)
{
    return (n_in + FIXED_BLOCK - 1) / FIXED_BLOCK;
}

static size_t prepared_row_bytes(int64_t n_in)
{
    return ((size_t)fixed_n_blocks(n_in) * sizeof(float) + 2 * (size_t)n_in + 63) / 64 * 64;
}

static size_t k_fixed_bytes__scalar(int64_t n_rows, int64_t n_in)
{
    return (size_t)n_rows * prepared_row_bytes(n_in);
}

/* One block of n columns. Returns its scale. */
static float fixed_prepare_block(int8_t *hi, int8_t *lo, const float *x, int64_t n)
{
    float largest = 0.0f, scale;
    bool is_finite = true;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i]))
            is_finite = false;
        else if (fabsf(x[i]) > largest)
            largest = fabsf(x[i]);
    }
    scale = largest / (float)FIXED_MAX;
    if (scale < FLT_MIN)
        scale = 0.0f;
    if (!is_finite)
        scale = NAN;
    for (int64_t i = 0; i < n; i++) {
        int32_t q = scale > 0.0f ? (int32_t)rintf(x[i] / scale) : 0;
        lo[i] = (int8_t)(uint8_t)(q & 255);
        hi[i] = (int8_t)((q - lo[i]) / 256);
    }
    return scale;
}

static void k_fixed_prepare__scalar(void *dst, const float *x, int64_t x_stride, int64_t n_rows, int64_t n_in,
                                    int64_t row_begin, int64_t row_end, int bits)
{
    (void)n_rows;
    (void)bits;
    for (int64_t t = row_begin; t < row_end; t++) {
        float *scales = (float *)(void *)((char *)dst + (size_t)t * prepared_row_bytes(n_in));
        int8_t *hi = (int8_t *)(scales + fixed_n_blocks(n_in)), *lo = hi + n_in;
        for (int64_t i = 0; i < n_in; i += FIXED_BLOCK)
            scales[i / FIXED_BLOCK] = fixed_prepare_block(hi + i, lo + i, x + t * x_stride + i,
                                                          n_in - i < FIXED_BLOCK ? n_in - i : FIXED_BLOCK);
    }
}

/* The i-th index of the packed array. */
static unsigned fixed_index(const uint8_t *indices, int64_t i, int bits)
{
    int64_t bit = i * bits;
    unsigned v = (unsigned)indices[bit / 8] >> (bit % 8);
    if (bit % 8 + bits > 8)
        v |= (unsigned)indices[bit / 8 + 1] << (8 - bit % 8);
    return v & ((1u << bits) - 1);
}

static float fixed_dot(const struct fixed_weight *w, int64_t o, const float *scales, const int8_t *hi,
                       const int8_t *lo)
{
    const int8_t *table = w->tables + o / w->rows_per_group * w->table_stride;
    int64_t part = w->scale_block > 0 && w->scale_block < FIXED_BLOCK ? w->scale_block : FIXED_BLOCK;
    float acc = 0.0f;
    for (int64_t begin = 0; begin < w->n_in; begin += part) {
        int64_t end = w->n_in - begin < part ? w->n_in : begin + part;
        int32_t sum = 0;
        for (int64_t i = begin; i < end; i++) {
            unsigned k = fixed_index(w->indices, o * w->n_in + i, w->bits);
            int32_t w_hi = table[k], w_lo = table[(1 << w->bits) + k];
            sum += (256 * w_hi + w_lo) * hi[i] + w_hi * lo[i];
        }
        float scale = scales[begin / FIXED_BLOCK];
        if (w->scale_block > 0)
            scale *= w->scales[o * (w->n_in / w->scale_block) + begin / w->scale_block];
        acc = fmaf((float)sum, scale, acc);
    }
    return acc * (w->scale_block > 0 ? 256.0f : 256.0f * w->scales[o / w->rows_per_scale]);
}

static void k_linear_fixed__scalar(float *y, int64_t y_stride, const void *prepared,
                                   const struct fixed_weight *w, const float *bias, int64_t n_rows,
                                   int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    for (int64_t t = 0; t < n_rows; t++) {
        const float *scales =
            (const float *)(const void *)((const char *)prepared + (size_t)t * prepared_row_bytes(w->n_in));
        const int8_t *hi = (const int8_t *)(scales + fixed_n_blocks(w->n_in)), *lo = hi + w->n_in;
        for (int64_t o = begin; o < end; o++) {
            float sum = fixed_dot(w, o, scales, hi, lo);
            y[t * y_stride + o] = bias ? sum + bias[o] : sum;
        }
    }
}
