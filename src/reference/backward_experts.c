/* Backwards of what mixtures of experts are made of, but for products. In the comments d. is an adjoint. */
#include <string.h>
#include "reference/tape.h"

/* p = softmax(logits); w = p of the chosen, divided by their sum where the model does that. Which are chosen is constant. */
static void choose_back(struct reference_session *s, const struct reference_record *r)
{
    const struct config_experts *c = r->own;
    float *d = reference_adjoint(s, r->out);
    for (int64_t t = 0; t < r->n; t++, d += c->n) {
        const float *p = r->kept + t * c->n, *w = r->kept_other + t * c->n;
        double chosen = 0, mean = 0, share = 0;
        for (int64_t i = 0; i < c->n; i++) {
            chosen += w[i] > 0 ? (double)p[i] : 0.0;
            mean += (double)d[i] * (double)w[i];
        }
        /* dp of the chosen, 0 of the others */
        for (int64_t i = 0; i < c->n; i++) {
            double dp = w[i] > 0 ? (double)d[i] : 0.0;
            if (c->normalizes && w[i] > 0)
                dp = (dp - mean) / chosen;
            d[i] = (float)dp;
            share += dp * (double)p[i];
        }
        for (int64_t i = 0; i < c->n; i++)
            d[i] = (float)((double)p[i] * ((double)d[i] - share));
    }
}

void reference_record_choose(struct reference_session *s, const struct config_experts *c,
                             const float *probability, const float *weight, int64_t n)
{
    struct reference_record *r = reference_record_add(s, choose_back);
    r->out = weight;
    r->own = c;
    r->n = n;
    r->kept = reference_keep(s, probability, n * c->n);
    r->kept_other = reference_keep(s, weight, n * c->n);
}

static void pick_back(struct reference_session *s, const struct reference_record *r)
{
    float *to = reference_adjoint(s, r->out), *from = reference_adjoint(s, r->in);
    for (int64_t k = 0; k < r->n; k++)
        for (int64_t i = 0; i < r->width; i++)
            from[r->indices[k] * r->width + i] += to[k * r->width + i];
    memset(to, 0, (size_t)(r->n * r->width) * sizeof *to);
}

void reference_record_pick(struct reference_session *s, const float *from, const int32_t *rows, int64_t n,
                           int64_t width, float *to)
{
    struct reference_record *r = reference_record_add(s, pick_back);
    r->in = from;
    r->out = to;
    r->indices = reference_keep_indices(s, rows, n);
    r->n = n;
    r->width = width;
}

/* to += w from: dfrom += w dto, dw += from dto */
static void add_picked_back(struct reference_session *s, const struct reference_record *r)
{
    const struct reference_picked *p = r->own;
    const float *d_to = reference_adjoint(s, p->to);
    float *d_from = reference_adjoint(s, p->from), *d_weight = reference_adjoint(s, p->weight);
    for (int64_t k = 0; k < p->n; k++) {
        int64_t row = p->rows ? r->indices[k] : k;
        double sum = 0;
        for (int64_t i = 0; i < p->width; i++) {
            float d = d_to[row * p->width + i];
            d_from[k * p->width + i] += r->kept_other[k] * d;
            sum += (double)d * (double)r->kept[k * p->width + i];
        }
        d_weight[row * p->stride] += (float)sum;
    }
}

void reference_record_add_picked(struct reference_session *s, const struct reference_picked *p)
{
    struct reference_record *r = reference_record_add(s, add_picked_back);
    struct reference_picked *copy = reference_keep_room(s, sizeof *copy);
    r->kept = reference_keep(s, p->from, p->n * p->width);
    float *weights = reference_keep_room(s, (size_t)p->n * sizeof *weights);
    r->indices = p->rows ? reference_keep_indices(s, p->rows, p->n) : NULL;
    r->own = copy;
    r->kept_other = weights;
    if (!copy || !weights)
        return;
    *copy = *p;
    for (int64_t k = 0; k < p->n; k++)
        weights[k] = p->weight[(p->rows ? p->rows[k] : k) * p->stride];
}
