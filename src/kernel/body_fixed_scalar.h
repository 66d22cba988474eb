/* Products in fixed point, plain C: the definition (kernel_fixed.h), one number at a time.
 *
 * Prepared activations: rows of prepared_row_bytes(n_in): [n_blocks] float scales, then n_in 16-bit q. */

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
static float fixed_prepare_block(int16_t *q, const float *x, int64_t n)
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
    for (int64_t i = 0; i < n; i++)
        q[i] = (int16_t)(scale > 0.0f ? rintf(x[i] / scale) : 0.0f);
    return scale;
}

static void k_fixed_prepare__scalar(void *dst, const float *x, int64_t x_stride, int64_t n_rows, int64_t n_in,
                                    int64_t row_begin, int64_t row_end, int bits)
{
    (void)n_rows;
    (void)bits;
    for (int64_t t = row_begin; t < row_end; t++) {
        float *scales = (float *)(void *)((char *)dst + (size_t)t * prepared_row_bytes(n_in));
        int16_t *q = (int16_t *)(void *)(scales + fixed_n_blocks(n_in));
        for (int64_t i = 0; i < n_in; i += FIXED_BLOCK)
            scales[i / FIXED_BLOCK] = fixed_prepare_block(q + i, x + t * x_stride + i,
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

static float fixed_dot(const struct fixed_weight *w, int64_t o, const float *scales, const int16_t *q)
{
    const uint8_t *table = w->tables + o / w->rows_per_group * w->table_stride;
    int64_t part = w->scale_block > 0 && w->scale_block < FIXED_BLOCK ? w->scale_block : FIXED_BLOCK;
    float acc = 0.0f;
    for (int64_t begin = 0; begin < w->n_in; begin += part) {
        int64_t end = w->n_in - begin < part ? w->n_in : begin + part, sum = 0;
        for (int64_t i = begin; i < end; i++) {
            unsigned k = fixed_index(w->indices, o * w->n_in + i, w->bits);
            sum += (256 * (int8_t)table[k] + table[(1 << w->bits) + k]) * q[i];
        }
        float scale = scales[begin / FIXED_BLOCK];
        if (w->scale_block > 0)
            scale *= w->scales[o * (w->n_in / w->scale_block) + begin / w->scale_block];
        acc = fmaf((float)sum, scale, acc);
    }
    return w->scale_block > 0 ? acc : acc * w->scales[o / w->rows_per_scale];
}

static void k_linear_fixed__scalar(float *y, int64_t y_stride, const void *prepared,
                                   const struct fixed_weight *w, const float *bias, int64_t n_rows,
                                   int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    for (int64_t t = 0; t < n_rows; t++) {
        const float *scales =
            (const float *)(const void *)((const char *)prepared + (size_t)t * prepared_row_bytes(w->n_in));
        const int16_t *q = (const int16_t *)(const void *)(scales + fixed_n_blocks(w->n_in));
        for (int64_t o = begin; o < end; o++) {
            float sum = fixed_dot(w, o, scales, q);
            y[t * y_stride + o] = bias ? sum + bias[o] : sum;
        }
    }
}
