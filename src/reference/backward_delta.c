/* Backwards of Qwen3.5's linear attention, but for products: convolution, lengths, the delta rule. In the comments d. is an
 * adjoint. */
#include <math.h>
#include <string.h>
#include "reference/qwen3_5.h"
#include "reference/tape.h"

/* ---- convolution ---- */

/* mixed = silu(sum of taps rows) */
static void convolve_back(struct reference_session *s, const struct reference_record *r)
{
    const struct qwen3_5 *q = s->reference->parts->own;
    const float *taps = r->kept_other;
    float *d_rows = reference_adjoint(s, r->in), *d_mixed = reference_adjoint(s, r->out);
    int64_t c = q->conv_dim, kept = q->kernel - 1;
    for (int64_t t = 0; t < r->n; t++)
        for (int64_t i = 0; i < c; i++) {
            float sum = 0;
            for (int64_t j = 0; j < q->kernel; j++)
                sum += taps[i * q->kernel + j] * r->kept[(t + j) * c + i];
            double d = (double)d_mixed[t * c + i] * reference_slope(REFERENCE_SILU, (double)sum);
            d_mixed[t * c + i] = 0;
            for (int64_t j = 0; j < q->kernel; j++)
                d_rows[(t + j) * c + i] += (float)(d * (double)taps[i * q->kernel + j]);
        }
    /* The window was there before the text. */
    memset(d_rows, 0, (size_t)(kept * c) * sizeof *d_rows);
}

void reference_qwen3_5_record_convolve(struct reference_session *s, const struct linear_attention *l,
                                       int64_t n)
{
    const struct qwen3_5 *q = s->reference->parts->own;
    const struct qwen3_5_work *w = s->own;
    struct reference_record *r = reference_record_add(s, convolve_back);
    r->in = w->rows;
    r->out = w->mixed;
    r->n = n;
    r->kept = reference_keep(s, w->rows, (q->kernel - 1 + n) * q->conv_dim);
    r->kept_other = l->conv;
}

/* ---- lengths ---- */

/* y = x f with f = (sum of x^2 + eps)^(-1/2): dx = f dy - x f^3 (x dy) */
static void lengths_back(struct reference_session *s, const struct reference_record *r)
{
    const struct qwen3_5 *q = s->reference->parts->own;
    for (int64_t t = 0; t < r->n; t++)
        for (int64_t head = 0; head < 2 * q->n_k; head++) {
            int64_t at = t * q->conv_dim + head * q->d_k;
            const float *x = r->kept + at;
            float *d = reference_adjoint(s, r->out) + at;
            double squares = (double)(float)QWEN3_5_LENGTH_EPSILON, product = 0;
            for (int64_t i = 0; i < q->d_k; i++) {
                squares += (double)x[i] * (double)x[i];
                product += (double)x[i] * (double)d[i];
            }
            double factor = 1.0 / sqrt(squares), share = factor * factor * factor * product;
            for (int64_t i = 0; i < q->d_k; i++)
                d[i] = (float)(factor * (double)d[i] - share * (double)x[i]);
        }
}

void reference_qwen3_5_record_lengths(struct reference_session *s, int64_t n)
{
    const struct qwen3_5 *q = s->reference->parts->own;
    const struct qwen3_5_work *w = s->own;
    struct reference_record *r = reference_record_add(s, lengths_back);
    r->out = w->mixed;
    r->n = n;
    r->kept = reference_keep(s, w->mixed, n * q->conv_dim);
}

/* ---- the delta rule ---- */

/* What the recurrence was run on, and room for one head of each thread. */
struct recurrence_back {
    struct reference_session *s;
    const struct linear_attention *l;
    int64_t n;
    const float *mixed, *a, *b; /* as they were */
    float *room;                /* [threads, room_per_thread] */
    int64_t room_per_thread;
    float *d_mixed, *d_a, *d_b, *d_o;
};

struct gates {
    double beta, decay, rate;
};

static struct gates gates_of(const struct recurrence_back *r, int64_t t, int64_t head)
{
    const struct qwen3_5 *q = r->s->reference->parts->own;
    double x = (double)r->a[t * q->n_v + head] + (double)r->l->dt_bias[head];
    struct gates g = {.rate = -exp((double)r->l->a_log[head])};
    g.decay = exp(g.rate * (x > 20.0 ? x : log1p(exp(x))));
    g.beta = 1.0 / (1.0 + exp(-(double)r->b[t * q->n_v + head]));
    return g;
}

/* r = v - S'^T k for the decayed memory S' [d_k, d_v] */
static void residual(const struct qwen3_5 *q, const float *memory, float decay, const float *key,
                     const float *value, float *out)
{
    for (int64_t j = 0; j < q->d_v; j++)
        out[j] = value[j];
    for (int64_t i = 0; i < q->d_k; i++)
        for (int64_t j = 0; j < q->d_v; j++)
            out[j] -= decay * memory[i * q->d_v + j] * key[i];
}

/* One token: S' = decay S; r = v - S'^T k; u = beta r; S+ = S' + k u^T; o = scale S+^T q. d_memory: the adjoint of S+, then of S.
 * before, after: S and S+. */
static void token_back(const struct recurrence_back *r, int64_t t, int64_t head, const float *before,
                       const float *after, float *d_memory, float *vectors)
{
    const struct qwen3_5 *q = r->s->reference->parts->own;
    int64_t d_k = q->d_k, d_v = q->d_v, keys = q->n_k * d_k, key_head = head / (q->n_v / q->n_k);
    int64_t row = t * q->conv_dim, at = t * q->n_v + head;
    const float *query = r->mixed + row + key_head * d_k, *key = query + keys,
                *value = r->mixed + row + 2 * keys + head * d_v, *d_o = r->d_o + at * d_v;
    float *d_query = r->d_mixed + row + key_head * d_k, *d_key = d_query + keys,
          *d_value = r->d_mixed + row + 2 * keys + head * d_v;
    float *rest = vectors, *d_update = vectors + d_v, scale = (float)(1.0 / sqrt((double)d_k));
    struct gates g = gates_of(r, t, head);
    float beta = (float)g.beta, decay = (float)g.decay;
    double d_beta = 0, d_decay = 0;
    residual(q, before, decay, key, value, rest);
    memset(d_update, 0, (size_t)d_v * sizeof *d_update);
    for (int64_t i = 0; i < d_k; i++) {
        float *d = d_memory + i * d_v;
        double of_query = 0, of_key = 0;
        for (int64_t j = 0; j < d_v; j++) {
            d[j] += scale * query[i] * d_o[j];
            of_query += (double)after[i * d_v + j] * (double)d_o[j];
            of_key += (double)d[j] * (double)(beta * rest[j]);
            d_update[j] += d[j] * key[i];
        }
        d_query[i] += (float)((double)scale * of_query);
        d_key[i] += (float)of_key;
    }
    for (int64_t j = 0; j < d_v; j++) {
        d_beta += (double)d_update[j] * (double)rest[j];
        d_update[j] *= beta; /* the adjoint of r from here on */
        d_value[j] += d_update[j];
    }
    for (int64_t i = 0; i < d_k; i++) {
        float *d = d_memory + i * d_v;
        double of_key = 0;
        for (int64_t j = 0; j < d_v; j++) {
            float old = before[i * d_v + j];
            of_key += (double)(decay * old) * (double)d_update[j];
            d[j] -= key[i] * d_update[j];
            d_decay += (double)d[j] * (double)old;
            d[j] *= decay;
        }
        d_key[i] -= (float)of_key;
    }
    double x = (double)r->a[at] + (double)r->l->dt_bias[head];
    r->d_a[at] += (float)(d_decay * g.decay * g.rate / (1.0 + exp(-x)));
    r->d_b[at] += (float)(d_beta * g.beta * (1.0 - g.beta));
}

/* The memory of one value head before each token and behind the last, [n + 1, d_k, d_v]. */
static void run_again(const struct recurrence_back *r, int64_t head, float *memories, float *rest)
{
    const struct qwen3_5 *q = r->s->reference->parts->own;
    int64_t size = q->d_k * q->d_v, keys = q->n_k * q->d_k, key_head = head / (q->n_v / q->n_k);
    memset(memories, 0, (size_t)size * sizeof *memories);
    for (int64_t t = 0; t < r->n; t++, memories += size) {
        const float *row = r->mixed + t * q->conv_dim, *key = row + keys + key_head * q->d_k;
        struct gates g = gates_of(r, t, head);
        residual(q, memories, (float)g.decay, key, row + 2 * keys + head * q->d_v, rest);
        for (int64_t i = 0; i < q->d_k; i++)
            for (int64_t j = 0; j < q->d_v; j++)
                memories[size + i * q->d_v + j] =
                    (float)g.decay * memories[i * q->d_v + j] + key[i] * ((float)g.beta * rest[j]);
    }
}

/* A thread has whole key heads, whose adjoints several value heads add to. */
static void recurrence_back_part(void *context, int i_thread, int n_threads)
{
    const struct recurrence_back *r = context;
    const struct qwen3_5 *q = r->s->reference->parts->own;
    int64_t size = q->d_k * q->d_v, per_key = q->n_v / q->n_k;
    float *memories = r->room + i_thread * r->room_per_thread, *d_memory = memories + (r->n + 1) * size,
          *vectors = d_memory + size;
    for (int64_t key_head = i_thread; key_head < q->n_k; key_head += n_threads)
        for (int64_t head = key_head * per_key; head < (key_head + 1) * per_key; head++) {
            run_again(r, head, memories, vectors);
            memset(d_memory, 0, (size_t)size * sizeof *d_memory);
            for (int64_t t = r->n - 1; t >= 0; t--)
                token_back(r, t, head, memories + t * size, memories + (t + 1) * size, d_memory, vectors);
        }
}

static void recurrence_back(struct reference_session *s, const struct reference_record *record)
{
    const struct qwen3_5 *q = s->reference->parts->own;
    const struct qwen3_5_work *w = s->own;
    struct recurrence_back r = *(const struct recurrence_back *)record->own;
    r.d_mixed = reference_adjoint(s, w->mixed);
    r.d_a = reference_adjoint(s, w->a);
    r.d_b = reference_adjoint(s, w->b);
    r.d_o = reference_adjoint(s, w->o);
    pool_run(s->reference->parts->pool, recurrence_back_part, &r);
    memset(r.d_o, 0, (size_t)(r.n * q->n_v * q->d_v) * sizeof *r.d_o);
}

void reference_qwen3_5_record_recurrence(struct reference_session *s, const struct linear_attention *l,
                                         int64_t n)
{
    const struct qwen3_5 *q = s->reference->parts->own;
    const struct qwen3_5_work *w = s->own;
    struct reference_record *record = reference_record_add(s, recurrence_back);
    struct recurrence_back *r = reference_keep_room(s, sizeof *r);
    if (!r)
        return;
    *r = (struct recurrence_back){.s = s, .l = l, .n = n};
    r->room_per_thread = (n + 2) * q->d_k * q->d_v + 2 * q->d_v;
    r->room = reference_keep_room(s, (size_t)(pool_threads(s->reference->parts->pool) * r->room_per_thread) *
                                         sizeof *r->room);
    r->mixed = reference_keep(s, w->mixed, n * q->conv_dim);
    r->a = reference_keep(s, w->a, n * q->n_v);
    r->b = reference_keep(s, w->b, n * q->n_v);
    record->own = r;
}
