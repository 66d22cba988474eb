/* The plain float32 maths of the reference. Sums over long rows run in sixteen lanes, which compilers turn
 * into vectors and which round less than one running sum; everything short sums in double. */
#include <math.h>
#include <string.h>
#include "base/half.h"
#include "reference/reference_internal.h"

#define LANES 16
#define CONVERT_AT_ONCE 512

/* Types that are wider than float32, or whose numbers need their scales. */
static void read_wide(const struct st_tensor *t, int64_t begin, int64_t n, float *dst)
{
    double block[CONVERT_AT_ONCE];
    for (int64_t done = 0; done < n;) {
        int64_t part = n - done < CONVERT_AT_ONCE ? n - done : CONVERT_AT_ONCE;
        bool ok = st_read_f64(t, begin + done, part, block, NULL);
        for (int64_t i = 0; i < part; i++)
            dst[done + i] = ok ? (float)block[i] : NAN; /* can't fail: the type was looked at on opening */
        done += part;
    }
}

/* Elements begin .. begin + n of a weight. Its bytes need not be aligned in the file. */
static void read_elements(const struct st_tensor *t, int64_t begin, int64_t n, float *dst)
{
    const uint8_t *from = t->data + (size_t)begin * st_dtype_bytes(t->dtype);
    uint16_t halves[CONVERT_AT_ONCE];
    if (t->scale || t->packed || t->dtype == ST_F64) {
        read_wide(t, begin, n, dst);
        return;
    }
    if (t->dtype == ST_F32) {
        memcpy(dst, from, (size_t)n * sizeof *dst);
        return;
    }
    while (n > 0) {
        size_t part = n < CONVERT_AT_ONCE ? (size_t)n : CONVERT_AT_ONCE;
        memcpy(halves, from, part * sizeof *halves);
        if (t->dtype == ST_F16)
            f16_to_f32_n(dst, halves, part);
        else
            bf16_to_f32_n(dst, halves, part);
        from += part * sizeof *halves;
        dst += part;
        n -= (int64_t)part;
    }
}

/* The same products and sums in the same order whatever registers the compiler may use, so the same result. */
static inline __attribute__((always_inline)) float dot_body(const float *a, const float *b, int64_t n)
{
    float lanes[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            lanes[k] += a[i + k] * b[i + k];
    for (int k = 0; i + k < n; k++)
        lanes[k] += a[i + k] * b[i + k];
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int k = 0; k < width; k++)
            lanes[k] += lanes[k + width];
    return lanes[0];
}

#if defined(__x86_64__) && defined(__GNUC__)
__attribute__((target("avx2"))) static float dot_avx2(const float *a, const float *b, int64_t n)
{
    return dot_body(a, b, n);
}
#endif

static float dot_plain(const float *a, const float *b, int64_t n)
{
    return dot_body(a, b, n);
}

reference_dot_fn reference_dot_for(enum cpu_level level)
{
#if defined(__x86_64__) && defined(__GNUC__)
    if (level >= CPU_AVX2)
        return dot_avx2;
#endif
    (void)level;
    return dot_plain;
}

struct linear {
    const struct st_tensor *weight, *whole; /* the weight may be a view of a tensor that packs several */
    reference_dot_fn dot;
    const float *bias, *x;
    float *y, *rows;
    int64_t n;
    const struct reference_replacement *replacement; /* NULL: none of this weight's numbers */
    int64_t handle, first;                           /* of the replacement; of the weight in its tensor */
};

static void linear_part(void *context, int i_thread, int n_threads)
{
    const struct linear *l = context;
    int64_t n_rows = l->weight->shape[0], columns = l->weight->shape[1], begin, end;
    float *rows = l->rows + (int64_t)i_thread * REFERENCE_ROWS * columns;
    pool_split(n_rows, REFERENCE_ROWS, i_thread, n_threads, &begin, &end);
    for (int64_t row = begin; row < end; row += REFERENCE_ROWS) {
        int64_t n = end - row < REFERENCE_ROWS ? end - row : REFERENCE_ROWS;
        read_elements(l->whole, l->first + row * columns, n * columns, rows);
        if (l->replacement)
            l->replacement->replace(l->replacement->context, l->handle, l->first + row * columns, n * columns,
                                    rows);
        for (int64_t t = 0; t < l->n; t++)
            for (int64_t i = 0; i < n; i++)
                l->y[t * n_rows + row + i] = l->dot(rows + i * columns, l->x + t * columns, columns) +
                                             (l->bias ? l->bias[row + i] : 0.0f);
    }
}

void reference_linear(struct reference_session *s, const struct st_tensor *weight, const float *bias,
                      const float *x, int64_t n, float *y)
{
    struct linear l = {.weight = weight,
                       .whole = weight,
                       .dot = s->reference->parts->dot,
                       .bias = bias,
                       .x = x,
                       .y = y,
                       .rows = s->rows,
                       .n = n};
    if (s->replacement || weight->scale) {
        l.whole = safetensors_find(s->reference->parts->tensors, weight->name);
        /* Only plain numbers are seen as parts of a tensor. */
        if (!weight->packed)
            l.first = (weight->data - l.whole->data) / (int64_t)st_dtype_bytes(weight->dtype);
    }
    if (s->replacement) {
        l.handle = s->replacement->find(s->replacement->context, weight->name, l.first, weight->n_elems);
        l.replacement = l.handle >= 0 ? s->replacement : NULL;
    }
    if (s->show_input)
        reference_show_input(s, weight, x, n);
    if (s->recall && !l.replacement && reference_recall_find(s->recall, weight, x, n, y))
        return;
    pool_run(s->reference->parts->pool, linear_part, &l);
    if (s->recall && !s->replacement)
        reference_recall_keep(s->recall, weight, x, n, y);
}

void reference_gather(const struct st_tensor *table, const int32_t *ids, int64_t n, float *dst)
{
    int64_t columns = table->shape[1];
    for (int64_t t = 0; t < n; t++)
        read_elements(table, ids[t] * columns, columns, dst + t * columns);
}

void reference_add(float *x, const float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] += y[i];
}

void reference_store(const struct reference_session *s, const float *rows, int64_t n, int64_t n_heads,
                     int64_t head_dim, float *cache)
{
    for (int64_t t = 0; t < n; t++)
        for (int64_t head = 0; head < n_heads; head++)
            memcpy(cache + (head * s->capacity + s->position + t) * head_dim,
                   rows + (t * n_heads + head) * head_dim, (size_t)head_dim * sizeof *cache);
}

void reference_rms_norm(const float *x, const float *weight, int64_t n, int64_t dim, float eps, float *y)
{
    for (int64_t t = 0; t < n; t++, x += dim, y += dim) {
        double squares = 0;
        for (int64_t i = 0; i < dim; i++)
            squares += (double)x[i] * (double)x[i];
        float factor = 1.0f / sqrtf((float)(squares / (double)dim) + eps);
        for (int64_t i = 0; i < dim; i++)
            y[i] = (weight ? weight[i] : 1.0f) * (x[i] * factor);
    }
}

float reference_silu(float x)
{
    return x / (1.0f + expf(-x));
}

float reference_gelu(float x)
{
    float inner = (float)sqrt(2.0 / M_PI) * (x + 0.044715f * (x * x * x));
    return 0.5f * x * (1.0f + tanhf(inner));
}

static void attend_one(const struct reference_attention *a, reference_dot_fn dot, int64_t t, int64_t head,
                       float *scores)
{
    int64_t kv_head = head / (a->n_heads / a->n_kv_heads), n_keys = a->position + t + 1;
    const float *query = a->query + (t * a->n_heads + head) * a->dim;
    const float *keys = a->keys + kv_head * a->capacity * a->dim;
    const float *values = a->values + kv_head * a->capacity * a->dim;
    float *output = a->output + (t * a->n_heads + head) * a->dim;
    float best = -INFINITY;
    double sum = 0;
    int64_t first = a->window > 0 && n_keys > a->window ? n_keys - a->window : 0;
    for (int64_t k = first; k < n_keys; k++) {
        scores[k] = dot(query, keys + k * a->dim, a->dim) * a->scale;
        best = scores[k] > best ? scores[k] : best;
    }
    for (int64_t k = first; k < n_keys; k++) {
        scores[k] = expf(scores[k] - best);
        sum += (double)scores[k];
    }
    memset(output, 0, (size_t)a->dim * sizeof *output);
    for (int64_t k = first; k < n_keys; k++) {
        float weight = (float)((double)scores[k] / sum);
        for (int64_t i = 0; i < a->dim; i++)
            output[i] += weight * values[k * a->dim + i];
    }
}

struct attend {
    const struct reference_attention *a;
    reference_dot_fn dot;
};

static void attend_part(void *context, int i_thread, int n_threads)
{
    const struct attend *all = context;
    const struct reference_attention *a = all->a;
    float *scores = a->scores + i_thread * a->capacity;
    /* Later queries see more keys: every n-th one a thread keeps the shares alike. */
    for (int64_t i = i_thread; i < a->n * a->n_heads; i += n_threads)
        attend_one(a, all->dot, i / a->n_heads, i % a->n_heads, scores);
}

void reference_attend(const struct reference_parts *p, const struct reference_attention *a)
{
    struct attend all = {.a = a, .dot = p->dot};
    pool_run(p->pool, attend_part, &all);
}
