/* The plain float32 maths of the reference. Sums over long rows run in sixteen lanes, which compilers turn
 * into vectors and which round less than one running sum; everything short sums in double. */
#include <math.h>
#include <string.h>
#include "reference/tape.h"

#define LANES 16

/* The same products and sums in the same order whatever registers the compiler may use, so the same result. */
static inline __attribute__((always_inline)) PLAIN_LOOPS float dot_body(const float *a, const float *b,
                                                                        int64_t n)
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
__attribute__((target("avx2"))) static PLAIN_LOOPS float dot_avx2(const float *a, const float *b, int64_t n)
{
    return dot_body(a, b, n);
}
#endif

static PLAIN_LOOPS float dot_plain(const float *a, const float *b, int64_t n)
{
    return dot_body(a, b, n);
}

/* y += a * x */
static PLAIN_LOOPS void add_scaled(float *y, float a, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += a * x[i];
}

typedef float v8f __attribute__((vector_size(32)));

static inline __attribute__((always_inline)) void add_products(v8f sum[2], const float *a, const v8f b[2])
{
    v8f a0, a1;
    memcpy(&a0, a, sizeof a0);
    memcpy(&a1, a + 8, sizeof a1);
    sum[0] += a0 * b[0];
    sum[1] += a1 * b[1];
}

/* Four rows share what is loaded of b; each sum as in dot_body. */
static inline __attribute__((always_inline)) void dots_body(const float *a, const float *b, int64_t n,
                                                            float *out)
{
    v8f sums[REFERENCE_DOTS][2] = {{{0}}}, lanes_of_b[2];
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        memcpy(lanes_of_b, b + i, sizeof lanes_of_b);
        add_products(sums[0], a + i, lanes_of_b);
        add_products(sums[1], a + n + i, lanes_of_b);
        add_products(sums[2], a + 2 * n + i, lanes_of_b);
        add_products(sums[3], a + 3 * n + i, lanes_of_b);
    }
    for (int r = 0; r < REFERENCE_DOTS; r++) {
        float lanes[LANES];
        memcpy(lanes, sums[r], sizeof lanes);
        for (int k = 0; i + k < n; k++)
            lanes[k] += a[r * n + i + k] * b[i + k];
        for (int width = LANES / 2; width > 0; width /= 2)
            for (int k = 0; k < width; k++)
                lanes[k] += lanes[k + width];
        out[r] = lanes[0];
    }
}

#if defined(__x86_64__) && defined(__GNUC__)
__attribute__((target("avx2"))) static void dots_avx2(const float *a, const float *b, int64_t n, float *out)
{
    dots_body(a, b, n, out);
}
#endif

static void dots_plain(const float *a, const float *b, int64_t n, float *out)
{
    dots_body(a, b, n, out);
}

reference_dots_fn reference_dots_for(enum cpu_level level)
{
#if defined(__x86_64__) && defined(__GNUC__)
    if (level >= CPU_AVX2)
        return dots_avx2;
#endif
    (void)level;
    return dots_plain;
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
    reference_dots_fn dots;
    const float *bias, *x;
    float *y, *rows;
    int64_t n, n_rows;                               /* rows of x, and of the weight that are taken */
    const struct reference_replacement *replacement; /* NULL: none of this weight's numbers */
    int64_t handle, first; /* of the replacement; where the rows begin in their tensor */
};

static void linear_part(void *context, int i_thread, int n_threads)
{
    const struct linear *l = context;
    int64_t n_rows = l->n_rows, columns = l->weight->shape[1], begin, end;
    float *rows = l->rows + (int64_t)i_thread * REFERENCE_ROWS * columns;
    pool_split(n_rows, REFERENCE_ROWS, i_thread, n_threads, &begin, &end);
    for (int64_t row = begin; row < end; row += REFERENCE_ROWS) {
        int64_t n = end - row < REFERENCE_ROWS ? end - row : REFERENCE_ROWS;
        reference_read_elements(l->whole, l->first + row * columns, n * columns, rows);
        if (l->replacement)
            l->replacement->replace(l->replacement->context, l->handle, l->first + row * columns, n * columns,
                                    rows);
        range_read(rows, (size_t)(n * columns) * sizeof *rows);
        range_read(l->x, (size_t)(l->n * columns) * sizeof *l->x);
        for (int64_t t = 0; t < l->n; t++) {
            const float *x = l->x + t * columns;
            float out[REFERENCE_ROWS];
            int64_t done = 0;
            for (; done + REFERENCE_DOTS <= n; done += REFERENCE_DOTS)
                l->dots(rows + done * columns, x, columns, out + done);
            for (; done < n; done++)
                out[done] = l->dot(rows + done * columns, x, columns);
            for (int64_t i = 0; i < n; i++)
                l->y[t * n_rows + row + i] = out[i] + (l->bias ? l->bias[row + i] : 0.0f);
        }
    }
}

void reference_linear(struct reference_session *s, const struct st_tensor *weight, const float *bias,
                      const float *x, int64_t n, float *y)
{
    struct linear l = {.weight = weight,
                       .whole = weight,
                       .dot = s->reference->parts->dot,
                       .dots = s->reference->parts->dots,
                       .bias = bias,
                       .x = x,
                       .y = y,
                       .rows = s->rows,
                       .n = n,
                       .n_rows = weight->shape[0]};
    if (s->replacement || s->tape || weight->scale)
        reference_locate(s->reference, weight, &l.whole, &l.first);
    if (s->replacement) {
        l.handle = s->replacement->find(s->replacement->context, weight->name, l.first, weight->n_elems);
        l.replacement = l.handle >= 0 ? s->replacement : NULL;
    }
    if (s->show_input)
        reference_show_input(s, weight, x, n);
    if (s->is_stopped) {
        memset(y, 0, (size_t)(n * weight->shape[0]) * sizeof *y);
        return;
    }
    if (s->tape)
        reference_record_linear(s, weight, l.whole, l.first, x, n, y);
    if (s->recall && !l.replacement && reference_recall_find(s->recall, weight, x, n, y))
        return;
    pool_run(s->reference->parts->pool, linear_part, &l);
    if (s->recall && !s->replacement)
        reference_recall_keep(s->recall, weight, x, n, y);
}

void reference_linear_rows(struct reference_session *s, const struct st_tensor *weight, int64_t first_row,
                           int64_t n_rows, const float *x, int64_t n, float *y)
{
    struct linear l = {.weight = weight,
                       .dot = s->reference->parts->dot,
                       .dots = s->reference->parts->dots,
                       .x = x,
                       .y = y,
                       .rows = s->rows,
                       .n = n,
                       .n_rows = n_rows};
    reference_locate(s->reference, weight, &l.whole, &l.first);
    l.first += first_row * weight->shape[1];
    pool_run(s->reference->parts->pool, linear_part, &l);
}

void reference_gather(struct reference_session *s, const struct st_tensor *table, const int32_t *ids,
                      int64_t n, float *dst)
{
    int64_t columns = table->shape[1];
    if (s->tape)
        reference_record_gather(s, table, ids, n, dst);
    for (int64_t t = 0; t < n; t++)
        reference_read_elements(table, ids[t] * columns, columns, dst + t * columns);
}

void reference_add(struct reference_session *s, float *x, const float *y, int64_t n)
{
    if (s->tape)
        reference_record_add_rows(s, x, y, n);
    for (int64_t i = 0; i < n; i++)
        x[i] += y[i];
}

void reference_scale(struct reference_session *s, float *x, int64_t n, float factor)
{
    if (s->tape)
        reference_record_scale(s, x, n, factor);
    for (int64_t i = 0; i < n; i++)
        x[i] *= factor;
}

void reference_clear(struct reference_session *s, float *x, int64_t n)
{
    if (s->tape)
        reference_record_clear(s, x, n);
    memset(x, 0, (size_t)n * sizeof *x);
}

void reference_copy(struct reference_session *s, const float *from, int64_t n, int64_t width, int64_t stride,
                    float *to)
{
    if (s->tape)
        reference_record_copy(s, from, n, width, stride, to);
    for (int64_t t = 0; t < n; t++)
        memcpy(to + t * width, from + t * stride, (size_t)width * sizeof *to);
}

/* Rows [n, n_heads, head_dim] of the newest tokens to their positions in the session's cache [n_heads, capacity, head_dim]. */
static void store(struct reference_session *s, const float *rows, int64_t n, int64_t n_heads,
                  int64_t head_dim, float *cache)
{
    if (s->tape)
        reference_record_store(s, rows, n, n_heads, head_dim, cache);
    for (int64_t t = 0; t < n; t++)
        for (int64_t head = 0; head < n_heads; head++)
            memcpy(cache + (head * s->capacity + s->position + t) * head_dim,
                   rows + (t * n_heads + head) * head_dim, (size_t)head_dim * sizeof *cache);
}

void reference_rms_norm(struct reference_session *s, const float *x, const float *weight, int64_t n,
                        int64_t dim, float eps, float *y)
{
    if (s->tape)
        reference_record_norm(s, x, weight, n, dim, eps, y);
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

static float gelu(float x)
{
    float inner = (float)sqrt(2.0 / M_PI) * (x + 0.044715f * (x * x * x));
    return 0.5f * x * (1.0f + tanhf(inner));
}

void reference_gate(struct reference_session *s, const struct reference_gate *g)
{
    if (s->tape)
        reference_record_gate(s, g);
    for (int64_t t = 0; t < g->n; t++)
        for (int64_t i = 0; i < g->width; i++) {
            float a = g->gate[t * g->gate_stride + i], x = g->x ? g->x[t * g->x_stride + i] : 1.0f;
            g->out[t * g->width + i] = g->act == REFERENCE_SILU   ? reference_silu(a) * x
                                       : g->act == REFERENCE_GELU ? gelu(a) * x
                                                                  : x / (1.0f + expf(-a));
        }
}

static inline __attribute__((always_inline)) void
attend_one(const struct reference_attention *a, reference_dot_fn dot, int64_t t, int64_t head, float *scores)
{
    int64_t kv_head = head / (a->n_heads / a->n_kv_heads), n_keys = a->position + t + 1;
    const float *query = a->query + (t * a->n_heads + head) * a->dim;
    const float *keys = a->keys + kv_head * a->capacity * a->dim;
    const float *values = a->values + kv_head * a->capacity * a->dim;
    float *output = a->output + (t * a->n_heads + head) * a->dim;
    float best = -INFINITY;
    double sum = 0;
    int64_t first = a->window > 0 && n_keys > a->window ? n_keys - a->window : 0;
    range_read(query, (size_t)a->dim * sizeof *query);
    range_read(keys + first * a->dim, (size_t)((n_keys - first) * a->dim) * sizeof *keys);
    range_write(output, (size_t)a->dim * sizeof *output);
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
        range_read(values + k * a->dim, (size_t)a->dim * sizeof *values);
        add_scaled(output, weight, values + k * a->dim, a->dim);
    }
}

struct attend {
    const struct reference_attention *a;
    reference_dot_fn dot;
};

static inline __attribute__((always_inline)) void attend_body(void *context, int i_thread, int n_threads)
{
    const struct attend *all = context;
    const struct reference_attention *a = all->a;
    float *scores = a->scores + i_thread * a->capacity;
    /* Later queries see more keys: every n-th one a thread keeps the shares alike. */
    for (int64_t i = i_thread; i < a->n * a->n_heads; i += n_threads)
        attend_one(a, all->dot, i / a->n_heads, i % a->n_heads, scores);
}

#if defined(__x86_64__) && defined(__GNUC__)
__attribute__((target("avx2"))) static void attend_avx2(void *context, int i_thread, int n_threads)
{
    attend_body(context, i_thread, n_threads);
}
#define ATTEND_IN_USE (cpu_level_in_use() >= CPU_AVX2 ? attend_avx2 : attend_plain)
#else
#define ATTEND_IN_USE attend_plain
#endif

static void attend_plain(void *context, int i_thread, int n_threads)
{
    attend_body(context, i_thread, n_threads);
}

bool reference_rows_take(struct reference_session *s, struct reference_rows *rows, int64_t width,
                         int64_t kv_width, struct err *e)
{
    return reference_take(s, &rows->q, s->batch, width, 1, e) &&
           reference_take(s, &rows->output, s->batch, width, 1, e) &&
           reference_take(s, &rows->k, s->batch, kv_width, 1, e) &&
           reference_take(s, &rows->v, s->batch, kv_width, 1, e) &&
           reference_take(s, &rows->scores, pool_threads(s->reference->parts->pool), s->capacity, 1, e);
}

void reference_store_rows(struct reference_session *s, const struct reference_rows *rows,
                          const struct reference_heads *heads, int64_t n, float *keys, float *values)
{
    store(s, rows->k, n, heads->n_kv, heads->dim, keys);
    store(s, rows->v, n, heads->n_kv, heads->dim, values);
}

void reference_attend(struct reference_session *s, const struct reference_rows *rows,
                      const struct reference_heads *heads, int64_t n, float *keys, float *values)
{
    const struct reference_parts *p = s->reference->parts;
    const struct reference_attention a = {.query = rows->q,
                                          .keys = keys,
                                          .values = values,
                                          .scores = rows->scores,
                                          .output = rows->output,
                                          .n = n,
                                          .position = s->position,
                                          .capacity = s->capacity,
                                          .window = heads->window,
                                          .n_heads = heads->n,
                                          .n_kv_heads = heads->n_kv,
                                          .dim = heads->dim,
                                          .scale = heads->scale};
    struct attend all = {.a = &a, .dot = p->dot};
    if (s->tape)
        reference_record_attend(s, &a);
    pool_run(p->pool, ATTEND_IN_USE, &all);
}
