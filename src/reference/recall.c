/* What the products of a layer took and gave: see probe.c. */
#include <stdlib.h>
#include <string.h>
#include "reference/reference_internal.h"

void reference_recall_forget(struct reference_recall *k)
{
    for (int i = 0; i < k->n; i++) {
        if (k->list[i].owns_x)
            mem_free(k->list[i].x);
        mem_free(k->list[i].y);
    }
    k->n = 0;
}

static bool same_rows(const struct reference_product *a, const float *x, int64_t n, int64_t columns)
{
    return a->n == n && memcmp(a->x, x, (size_t)(n * columns) * sizeof *x) == 0;
}

bool reference_recall_find(const struct reference_recall *k, const struct st_tensor *weight, const float *x,
                           int64_t n, float *y)
{
    for (int i = 0; i < k->n && !k->is_first_run; i++) {
        const struct reference_product *a = &k->list[i];
        if (a->weight != weight)
            continue;
        if (!same_rows(a, x, n, weight->shape[1]))
            return false;
        memcpy(y, a->y, (size_t)(n * weight->shape[0]) * sizeof *y);
        return true;
    }
    return false;
}

static float *copy_rows(const float *from, int64_t n, int64_t columns)
{
    float *to = mem_try_alloc((size_t)(n * columns) * sizeof *to, NULL);
    if (to)
        memcpy(to, from, (size_t)(n * columns) * sizeof *to);
    return to;
}

void reference_recall_keep(struct reference_recall *k, const struct st_tensor *weight, const float *x,
                           int64_t n, const float *y)
{
    int64_t rows = weight->shape[0], columns = weight->shape[1];
    const struct reference_product *last = k->n > 0 ? &k->list[k->n - 1] : NULL;
    struct reference_product a = {.weight = weight, .n = n};
    if (!k->is_first_run)
        return;
    a.owns_x = !last || last->weight->shape[1] != columns || !same_rows(last, x, n, columns);
    a.x = a.owns_x ? copy_rows(x, n, columns) : last->x;
    a.y = a.x ? copy_rows(y, n, rows) : NULL;
    if (!a.y) {
        if (a.owns_x)
            mem_free(a.x);
        return;
    }
    k->list = mem_grow(k->list, (size_t)k->n, &k->capacity, sizeof *k->list);
    k->list[k->n++] = a;
}

/* ---- who looks ---- */

void reference_show_input(struct reference_session *s, const struct st_tensor *weight, const float *x,
                          int64_t n)
{
    const struct st_tensor *whole = safetensors_find(s->reference->parts->tensors, weight->name);
    struct reference_input *in = &s->input;
    bool is_whole = whole && whole->n_elems == weight->n_elems;
    /* Only plain numbers are seen as parts of a tensor. */
    if (s->is_stopped || !whole || weight->rank != 2 || (!is_whole && weight->packed))
        return;
    in->tensor = weight->name;
    in->first = is_whole ? 0 : (weight->data - whole->data) / (int64_t)st_dtype_bytes(weight->dtype);
    in->rows = weight->shape[0];
    in->columns = weight->shape[1];
    in->x = x;
    in->n = n;
    s->is_stopped = !s->show_input(s->show_context, in);
}
