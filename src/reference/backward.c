/* Records and backwards of the primitives, but for products, attention, experts and the delta rule, which have files of their
 * own. In the comments d. is an adjoint. */
#include <math.h>
#include <string.h>
#include "reference/tape.h"

/* ---- rows of a table ---- */

static void gather_back(struct reference_session *s, const struct reference_record *r)
{
    const struct reference_gradient_sink *sink = s->tape->sink;
    const struct st_tensor *table = r->own;
    float *d = reference_adjoint(s, r->out), *sum = reference_tape_scratch(s, 0);
    int64_t handle = sink && sink->find ? sink->find(sink->context, table->name, 0, table->n_elems) : -1;
    for (int64_t t = 0; t < r->n && handle >= 0; t++) {
        bool is_first = true;
        for (int64_t k = 0; k < t; k++)
            is_first = is_first && r->indices[k] != r->indices[t];
        if (!is_first)
            continue;
        memset(sum, 0, (size_t)r->width * sizeof *sum);
        for (int64_t k = t; k < r->n; k++)
            for (int64_t i = 0; i < r->width && r->indices[k] == r->indices[t]; i++)
                sum[i] += d[k * r->width + i];
        sink->give(sink->context, handle, r->indices[t] * r->width, r->width, sum);
    }
    memset(d, 0, (size_t)(r->n * r->width) * sizeof *d);
}

void reference_record_gather(struct reference_session *s, const struct st_tensor *table, const int32_t *ids,
                             int64_t n, float *to)
{
    struct reference_record *r = reference_record_add(s, gather_back);
    r->out = to;
    r->own = table;
    r->indices = reference_keep_indices(s, ids, n);
    r->n = n;
    r->width = table->shape[1];
}

/* ---- RMS norm ---- */

/* y = w x f with f = (mean(x^2) + eps)^(-1/2): dx = f (w dy) - x f^3 mean(w dy x) */
static void norm_back(struct reference_session *s, const struct reference_record *r)
{
    const float *x = r->kept, *weight = r->kept_other;
    float *dy = reference_adjoint(s, r->out), *dx = reference_adjoint(s, r->in);
    for (int64_t t = 0; t < r->n; t++, x += r->width, dy += r->width, dx += r->width) {
        double squares = 0, product = 0;
        for (int64_t i = 0; i < r->width; i++) {
            squares += (double)x[i] * (double)x[i];
            product += (double)(weight ? weight[i] : 1.0f) * (double)dy[i] * (double)x[i];
        }
        double factor = 1.0 / sqrt(squares / (double)r->width + (double)r->number);
        double share = factor * factor * factor * product / (double)r->width;
        for (int64_t i = 0; i < r->width; i++) {
            double d = (double)(weight ? weight[i] : 1.0f) * (double)dy[i];
            dy[i] = 0;
            dx[i] += (float)(factor * d - share * (double)x[i]);
        }
    }
}

void reference_record_norm(struct reference_session *s, const float *x, const float *weight, int64_t n,
                           int64_t dim, float eps, float *y)
{
    struct reference_record *r = reference_record_add(s, norm_back);
    r->in = x;
    r->out = y;
    r->kept = reference_keep(s, x, n * dim);
    r->kept_other = weight;
    r->n = n;
    r->width = dim;
    r->number = eps;
}

/* ---- rotary embedding ---- */

static void turn_back(struct reference_session *s, const struct reference_record *r)
{
    float *d = reference_adjoint(s, r->out);
    for (int64_t i = 0; i < r->n * r->count; i++, d += r->width) {
        const float *cosines = r->kept + i / r->count * r->stride;
        const float *sines = r->kept_other + i / r->count * r->stride;
        for (int64_t k = 0; k < r->stride; k++) {
            float a = d[k], b = d[k + r->stride];
            d[k] = a * cosines[k] + b * sines[k];
            d[k + r->stride] = b * cosines[k] - a * sines[k];
        }
    }
}

void reference_record_turn(struct reference_session *s, float *rows, int64_t n, int64_t n_heads,
                           int64_t head_dim, int64_t n_pairs, const float *cosines, const float *sines)
{
    struct reference_record *r = reference_record_add(s, turn_back);
    r->out = rows;
    r->n = n;
    r->count = n_heads;
    r->width = head_dim;
    r->stride = n_pairs;
    /* of the text's positions: nothing writes over them while its layer is walked */
    r->kept = cosines;
    r->kept_other = sines;
}

/* ---- sums, copies ---- */

static void add_back(struct reference_session *s, const struct reference_record *r)
{
    const float *dx = reference_adjoint(s, r->out);
    float *dy = reference_adjoint(s, r->in);
    for (int64_t i = 0; i < r->n; i++)
        dy[i] += dx[i];
}

void reference_record_add_rows(struct reference_session *s, float *x, const float *y, int64_t n)
{
    struct reference_record *r = reference_record_add(s, add_back);
    r->in = y;
    r->out = x;
    r->n = n;
}

static void scale_back(struct reference_session *s, const struct reference_record *r)
{
    float *d = reference_adjoint(s, r->out);
    for (int64_t i = 0; i < r->n; i++)
        d[i] *= r->number;
}

void reference_record_scale(struct reference_session *s, float *x, int64_t n, float factor)
{
    struct reference_record *r = reference_record_add(s, scale_back);
    r->out = x;
    r->n = n;
    r->number = factor;
}

static void clear_back(struct reference_session *s, const struct reference_record *r)
{
    memset(reference_adjoint(s, r->out), 0, (size_t)r->n * sizeof(float));
}

void reference_record_clear(struct reference_session *s, float *x, int64_t n)
{
    struct reference_record *r = reference_record_add(s, clear_back);
    r->out = x;
    r->n = n;
}

static void copy_back(struct reference_session *s, const struct reference_record *r)
{
    float *to = reference_adjoint(s, r->out), *from = reference_adjoint(s, r->in);
    for (int64_t t = 0; t < r->n; t++)
        for (int64_t i = 0; i < r->width; i++) {
            float d = to[t * r->width + i];
            to[t * r->width + i] = 0;
            from[t * r->stride + i] += d;
        }
}

void reference_record_copy(struct reference_session *s, const float *from, int64_t n, int64_t width,
                           int64_t stride, float *to)
{
    struct reference_record *r = reference_record_add(s, copy_back);
    r->in = from;
    r->out = to;
    r->n = n;
    r->width = width;
    r->stride = stride;
}

/* Rows [n, n_heads, width] to positions of a cache [n_heads, capacity, width]. */
static void store_back(struct reference_session *s, const struct reference_record *r)
{
    float *rows = reference_adjoint(s, r->in), *cache = reference_adjoint(s, r->out);
    for (int64_t t = 0; t < r->n; t++)
        for (int64_t head = 0; head < r->count; head++) {
            float *to = cache + (head * s->capacity + s->position + t) * r->width;
            float *from = rows + (t * r->count + head) * r->width;
            for (int64_t i = 0; i < r->width; i++) {
                from[i] += to[i];
                to[i] = 0;
            }
        }
}

void reference_record_store(struct reference_session *s, const float *rows, int64_t n, int64_t n_heads,
                            int64_t head_dim, float *cache)
{
    struct reference_record *r = reference_record_add(s, store_back);
    r->in = rows;
    r->out = cache;
    r->n = n;
    r->count = n_heads;
    r->width = head_dim;
}

/* ---- gates ---- */

static double activation(enum reference_activation a, double x)
{
    double cubic = sqrt(2.0 / M_PI) * (x + (double)0.044715f * x * x * x);
    return a == REFERENCE_GELU      ? 0.5 * x * (1.0 + tanh(cubic))
           : a == REFERENCE_SIGMOID ? 1.0 / (1.0 + exp(-x))
                                    : x / (1.0 + exp(-x));
}

double reference_slope(enum reference_activation a, double x)
{
    if (a == REFERENCE_GELU) {
        double root = sqrt(2.0 / M_PI), cube = (double)0.044715f, t = tanh(root * (x + cube * x * x * x));
        return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * root * (1.0 + 3.0 * cube * x * x);
    }
    double sigmoid = 1.0 / (1.0 + exp(-x));
    return a == REFERENCE_SIGMOID ? sigmoid * (1.0 - sigmoid) : sigmoid * (1.0 + x * (1.0 - sigmoid));
}

/* out = act(g) x: dg = x act'(g) dout, dx = act(g) dout */
static void gate_back(struct reference_session *s, const struct reference_record *r)
{
    const struct reference_gate *g = r->own;
    float *d_out = reference_adjoint(s, r->out), *d_gate = reference_adjoint(s, r->in),
          *d_x = g->x ? reference_adjoint(s, g->x) : NULL;
    for (int64_t t = 0; t < r->n; t++)
        for (int64_t i = 0; i < r->width; i++) {
            double gate = (double)r->kept[t * r->width + i];
            double x = g->x ? (double)r->kept_other[t * r->width + i] : 1.0;
            double d = (double)d_out[t * r->width + i];
            d_out[t * r->width + i] = 0;
            d_gate[t * g->gate_stride + i] += (float)(d * x * reference_slope(g->act, gate));
            if (d_x)
                d_x[t * g->x_stride + i] += (float)(d * activation(g->act, gate));
        }
}

static const float *keep_rows(struct reference_session *s, const float *rows, int64_t n, int64_t width,
                              int64_t stride)
{
    float *copy = reference_keep_room(s, (size_t)(n * width) * sizeof *copy);
    for (int64_t t = 0; copy && t < n; t++)
        memcpy(copy + t * width, rows + t * stride, (size_t)width * sizeof *copy);
    return copy;
}

/* A record that has a copy of what was called for; NULL: no memory is left. */
static struct reference_record *record_call(struct reference_session *s,
                                            void (*backward)(struct reference_session *,
                                                             const struct reference_record *),
                                            const void *call, size_t bytes, const float *in, const float *out)
{
    struct reference_record *r = reference_record_add(s, backward);
    void *copy = reference_keep_room(s, bytes);
    if (!copy)
        return NULL;
    r->own = memcpy(copy, call, bytes);
    r->in = in;
    r->out = out;
    return r;
}

void reference_record_gate(struct reference_session *s, const struct reference_gate *g)
{
    struct reference_record *r = record_call(s, gate_back, g, sizeof *g, g->gate, g->out);
    if (!r)
        return;
    r->kept = keep_rows(s, g->gate, g->n, g->width, g->gate_stride);
    r->kept_other = g->x ? keep_rows(s, g->x, g->n, g->width, g->x_stride) : NULL;
    r->n = g->n;
    r->width = g->width;
}

/* ---- attention ---- */

struct attend_back {
    struct reference_session *s;
    const struct reference_attention *a;
    const float *query; /* as it was */
    float *d_query, *d_keys, *d_values;
    const float *d_output;
};

/* One query: p = softmax(scale q k), o = sum of p v. dp_k = do v_k; ds = p (dp - sum of p dp); dq += scale ds k;
 * dk += scale ds q; dv += p do. */
static void attend_one_back(const struct attend_back *b, int64_t t, int64_t head, float *weights,
                            float *slopes)
{
    const struct reference_attention *a = b->a;
    reference_dot_fn dot = b->s->reference->parts->dot;
    int64_t dim = a->dim, kv_head = head / (a->n_heads / a->n_kv_heads), n_keys = a->position + t + 1;
    int64_t first = a->window > 0 && n_keys > a->window ? n_keys - a->window : 0;
    int64_t cache = kv_head * a->capacity * dim, row = (t * a->n_heads + head) * dim;
    const float *query = b->query + row, *d_output = b->d_output + row;
    float best = -INFINITY;
    double sum = 0, mean = 0;
    for (int64_t k = first; k < n_keys; k++) {
        weights[k] = dot(query, a->keys + cache + k * dim, dim) * a->scale;
        slopes[k] = dot(d_output, a->values + cache + k * dim, dim);
        best = weights[k] > best ? weights[k] : best;
    }
    for (int64_t k = first; k < n_keys; k++) {
        weights[k] = expf(weights[k] - best);
        sum += (double)weights[k];
    }
    for (int64_t k = first; k < n_keys; k++) {
        weights[k] = (float)((double)weights[k] / sum);
        mean += (double)weights[k] * (double)slopes[k];
    }
    for (int64_t k = first; k < n_keys; k++) {
        float weight = weights[k], d = (float)((double)weight * ((double)slopes[k] - mean)) * a->scale;
        const float *key = a->keys + cache + k * dim;
        float *d_key = b->d_keys + cache + k * dim, *d_value = b->d_values + cache + k * dim,
              *d_query = b->d_query + row;
        for (int64_t i = 0; i < dim; i++) {
            d_query[i] += d * key[i];
            d_key[i] += d * query[i];
            d_value[i] += weight * d_output[i];
        }
    }
}

/* A thread has whole heads of keys, whose adjoints several heads of queries add to. */
static void attend_back_part(void *context, int i_thread, int n_threads)
{
    const struct attend_back *b = context;
    int64_t per_group = b->a->n_heads / b->a->n_kv_heads;
    float *weights = reference_tape_scratch(b->s, i_thread), *slopes = weights + b->a->capacity;
    for (int64_t kv_head = i_thread; kv_head < b->a->n_kv_heads; kv_head += n_threads)
        for (int64_t t = 0; t < b->a->n; t++)
            for (int64_t head = kv_head * per_group; head < (kv_head + 1) * per_group; head++)
                attend_one_back(b, t, head, weights, slopes);
}

static void attend_back(struct reference_session *s, const struct reference_record *r)
{
    const struct reference_attention *a = r->own;
    float *d_output = reference_adjoint(s, r->out);
    struct attend_back b = {.s = s,
                            .a = a,
                            .query = r->kept,
                            .d_query = reference_adjoint(s, r->in),
                            .d_keys = reference_adjoint(s, a->keys),
                            .d_values = reference_adjoint(s, a->values),
                            .d_output = d_output};
    pool_run(s->reference->parts->pool, attend_back_part, &b);
    memset(d_output, 0, (size_t)(a->n * a->n_heads * a->dim) * sizeof *d_output);
}

void reference_record_attend(struct reference_session *s, const struct reference_attention *a)
{
    /* Keys and values stay where they are as long as the layer does. */
    struct reference_record *r = record_call(s, attend_back, a, sizeof *a, a->query, a->output);
    if (r)
        r->kept = reference_keep(s, a->query, a->n * a->n_heads * a->dim);
}
