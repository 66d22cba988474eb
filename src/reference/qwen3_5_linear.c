/* Qwen3.5's linear attention, token after token.
 *
 * For a token's normed x: row = qkv x; a causal convolution over the last K rows, then SiLU, gives q, k, v. q and k
 * are divided by their length; beta = sigmoid(b x); g = -exp(A) softplus(a x + dt). Per value head:
 *   S *= e^g; S += k (beta (v - S^T k))^T; o = S^T q / sqrt(d_k).
 * The layer gives output(norm(o) * silu(z x)).
 */
#include <math.h>
#include <string.h>
#include "reference/qwen3_5.h"

static float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

static float softplus(float x)
{
    return x > 20.0f ? x : log1pf(expf(x));
}

/* x / sqrt(sum of squares + epsilon), in place */
static void unit_length(float *x, int64_t n)
{
    double squares = 0;
    for (int64_t i = 0; i < n; i++)
        squares += (double)x[i] * (double)x[i];
    float factor = 1.0f / sqrtf((float)squares + (float)QWEN3_5_LENGTH_EPSILON);
    for (int64_t i = 0; i < n; i++)
        x[i] *= factor;
}

/* w->rows: the window, then n new rows; leaves silu of the convolution in w->mixed and the last rows in window.
 */
static void convolve(const struct qwen3_5 *q, struct qwen3_5_work *w, const float *taps, float *window,
                     int64_t n)
{
    int64_t kept = q->kernel - 1, c = q->conv_dim;
    memcpy(w->rows, window, (size_t)(kept * c) * sizeof *window);
    for (int64_t t = 0; t < n; t++) {
        for (int64_t i = 0; i < c; i++) {
            float sum = 0;
            for (int64_t j = 0; j < q->kernel; j++)
                sum += taps[i * q->kernel + j] * w->rows[(t + j) * c + i];
            w->mixed[t * c + i] = reference_silu(sum);
        }
    }
    memcpy(window, w->rows + n * c, (size_t)(kept * c) * sizeof *window);
}

struct recurrence {
    const struct qwen3_5 *q;
    struct qwen3_5_work *w;
    const struct linear_attention *l;
    float *memory;
    int64_t n;
    const struct reference *reference;
};

/* One value head through all tokens. */
static void run_head(const struct recurrence *r, int64_t head)
{
    const struct qwen3_5 *q = r->q;
    struct qwen3_5_work *w = r->w;
    int64_t d_k = q->d_k, d_v = q->d_v, key_head = head / (q->n_v / q->n_k), keys = q->n_k * d_k;
    float *s = r->memory + head * d_k * d_v,
          rate = reference_constant(r->reference, -exp((double)r->l->a_log[head]));
    float scale = (float)(1.0 / sqrt((double)d_k));
    for (int64_t t = 0; t < r->n; t++) {
        const float *row = w->mixed + t * q->conv_dim;
        float *o = w->o + (t * q->n_v + head) * d_v;
        const float *query = row + key_head * d_k, *key = row + keys + key_head * d_k;
        const float *value = row + 2 * keys + head * d_v;
        float beta = sigmoid(w->b[t * q->n_v + head]);
        float decay = expf(rate * softplus(w->a[t * q->n_v + head] + r->l->dt_bias[head]));
        for (int64_t i = 0; i < d_k * d_v; i++)
            s[i] *= decay;
        memset(o, 0, (size_t)d_v * sizeof *o);
        for (int64_t i = 0; i < d_k; i++)
            for (int64_t j = 0; j < d_v; j++)
                o[j] += s[i * d_v + j] * key[i];
        for (int64_t j = 0; j < d_v; j++)
            o[j] = beta * (value[j] - o[j]);
        for (int64_t i = 0; i < d_k; i++)
            for (int64_t j = 0; j < d_v; j++)
                s[i * d_v + j] += key[i] * o[j];
        memset(o, 0, (size_t)d_v * sizeof *o);
        for (int64_t i = 0; i < d_k; i++)
            for (int64_t j = 0; j < d_v; j++)
                o[j] += s[i * d_v + j] * query[i] * scale;
    }
}

static void run_heads(void *context, int i_thread, int n_threads)
{
    const struct recurrence *r = context;
    for (int64_t head = i_thread; head < r->q->n_v; head += n_threads)
        run_head(r, head);
}

void reference_qwen3_5_linear(struct reference_session *s, const struct qwen3_5_layer *layer, int64_t i_layer,
                              int64_t n, float *out)
{
    const struct qwen3_5 *q = s->reference->parts->own;
    const struct linear_attention *l = &layer->linear;
    struct qwen3_5_work *w = s->own;
    int64_t width = q->n_v * q->d_v;
    reference_linear(s, l->qkv, NULL, w->h, n, w->rows + (q->kernel - 1) * q->conv_dim);
    reference_linear(s, l->z, NULL, w->h, n, w->z);
    reference_linear(s, l->a, NULL, w->h, n, w->a);
    reference_linear(s, l->b, NULL, w->h, n, w->b);
    convolve(q, w, l->conv, w->window[i_layer], n);
    if (s->tape) {
        reference_qwen3_5_record_convolve(s, l, n);
        reference_qwen3_5_record_lengths(s, n);
    }
    for (int64_t t = 0; t < n; t++) {
        for (int64_t head = 0; head < 2 * q->n_k; head++)
            unit_length(w->mixed + t * q->conv_dim + head * q->d_k, q->d_k);
    }
    struct recurrence r = {
        .q = q, .w = w, .l = l, .memory = w->memory[i_layer], .n = n, .reference = s->reference};
    pool_run(s->reference->parts->pool, run_heads, &r);
    if (s->tape)
        reference_qwen3_5_record_recurrence(s, l, n);
    reference_rms_norm(s, w->o, l->norm, n * q->n_v, q->d_v, q->eps, w->o);
    reference_gate(s, &(struct reference_gate){.gate = w->z,
                                               .x = w->o,
                                               .gate_stride = width,
                                               .x_stride = width,
                                               .n = n,
                                               .width = width,
                                               .out = w->o});
    reference_linear(s, l->output, NULL, w->o, n, out);
}
