/* Tokens and their probabilities: the logarithm of the softmax of the logits as the model gives them. */
#include "server/token_records.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

void token_records_init(struct token_records *r, const struct vocabulary_bytes *v, int n_top, bool wants_ids)
{
    *r = (struct token_records){.vocabulary = v, .n_top = n_top, .is_wanted = n_top >= 0 || wants_ids};
}

void token_records_fini(struct token_records *r)
{
    for (size_t i = 0; i < r->n; i++) {
        free(r->tokens[i].bytes);
        free(r->tokens[i].top);
    }
    free(r->tokens);
    free(r->ends);
}

/* The n_top best, best first, the lower id of equals. */
static void find_best(struct token_record *t, const float *logits, int32_t n, int n_top, double log_sum)
{
    t->top = xcalloc((size_t)n_top + 1, sizeof *t->top);
    for (int32_t id = 0; id < n; id++) {
        float v = logits[id];
        if (!(v == v) || (t->n_top == n_top && !(v > t->top[n_top - 1].log_probability)))
            continue;
        int at = t->n_top < n_top ? t->n_top++ : n_top - 1;
        for (; at > 0 && t->top[at - 1].log_probability < v; at--)
            t->top[at] = t->top[at - 1];
        t->top[at] = (struct token_alternative){id, v};
    }
    for (int i = 0; i < t->n_top; i++)
        t->top[i].log_probability = (float)((double)t->top[i].log_probability - log_sum);
}

void token_records_add(struct token_records *r, int32_t id, const float *logits)
{
    if (!r->is_wanted)
        return;
    struct token_record t = {.id = id};
    if (r->n_top >= 0) {
        int32_t n = vocabulary_bytes_count(r->vocabulary);
        double most = -INFINITY, sum = 0;
        for (int32_t i = 0; i < n; i++)
            most = logits[i] > most ? (double)logits[i] : most;
        for (int32_t i = 0; i < n; i++)
            if (logits[i] == logits[i])
                sum += exp((double)logits[i] - most);
        double log_sum = most + log(sum);
        struct str bytes = vocabulary_bytes_of(r->vocabulary, id);
        t.log_probability = (float)((double)logits[id] - log_sum);
        t.bytes = xmalloc(bytes.n + 1);
        memcpy(t.bytes, bytes.p, bytes.n);
        t.n_bytes = bytes.n;
        if (r->n_top > 0)
            find_best(&t, logits, n, r->n_top, log_sum);
    }
    r->tokens = mem_grow(r->tokens, r->n, &r->capacity, sizeof *r->tokens);
    r->ends = mem_grow(r->ends, r->n, &r->ends_capacity, sizeof *r->ends);
    r->ends[r->n] = SIZE_MAX;
    r->tokens[r->n++] = t;
}

void token_records_text(struct token_records *r, size_t n)
{
    r->n_text += n;
    for (size_t i = r->n; n > 0 && i-- > 0 && r->ends[i] == SIZE_MAX;)
        r->ends[i] = r->n_text;
}

void token_records_release(struct token_records *r, size_t n)
{
    r->n_released += n;
}

void token_records_finish(struct token_records *r, bool is_cut)
{
    size_t kept = 0;
    for (size_t i = 0; i < r->n; i++) {
        struct token_record *t = &r->tokens[i];
        size_t end = r->ends[i], begin = end > t->n_bytes ? end - t->n_bytes : 0;
        if (is_cut && end > r->n_released && (begin >= r->n_released || r->n_top < 0)) {
            free(t->bytes);
            free(t->top);
            continue;
        }
        if (is_cut && end > r->n_released) /* the stop string begins inside of it */
            t->n_bytes = r->n_released - begin;
        r->ends[kept] = 0;
        r->tokens[kept++] = *t;
    }
    r->n = kept;
}

bool token_records_are_ready(const struct token_records *r)
{
    return r->n > 0 && r->ends[0] <= r->n_released;
}

void token_records_take(struct token_records *r, struct event *e)
{
    size_t n = 0;
    while (n < r->n && r->ends[n] <= r->n_released)
        n++;
    if (n == 0)
        return;
    e->tokens = xcalloc(n, sizeof *e->tokens);
    memcpy(e->tokens, r->tokens, n * sizeof *e->tokens);
    e->n_tokens = n;
    r->n -= n;
    memmove(r->tokens, r->tokens + n, r->n * sizeof *r->tokens);
    memmove(r->ends, r->ends + n, r->n * sizeof *r->ends);
}
