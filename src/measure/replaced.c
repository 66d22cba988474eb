/* Where a weight's numbers stand in the checkpoint: runs of tensors, each times a factor. */
#include "measure/replaced.h"
#include <stdlib.h>
#include <string.h>
#include "arch/arch.h"
#include "base/half.h"

#define CODES_AT_ONCE 1024

/* The runs of one tensor, in its order. */
struct tensor_runs {
    const char *name;
    const struct arch_run *runs;
    size_t n;
};

struct weight {
    const struct quant_weight *weight;
    const uint8_t *codes;
    bool is_packed;
    const f16 *tables;
    struct arch_run *runs;
    size_t n_runs;
    struct tensor_runs *tensors;
    size_t n_tensors;
};

struct replaced {
    struct weight *list;
    size_t n, capacity;
};

struct replaced *replaced_new(void)
{
    return xcalloc(1, sizeof(struct replaced));
}

void replaced_clear(struct replaced *r)
{
    for (size_t i = 0; i < r->n; i++) {
        free(r->list[i].runs);
        free(r->list[i].tensors);
    }
    r->n = 0;
}

void replaced_free(struct replaced *r)
{
    if (!r)
        return;
    replaced_clear(r);
    free(r->list);
    free(r);
}

static int compare_runs(const void *a, const void *b)
{
    const struct arch_run *x = a, *y = b;
    int order = x->tensor == y->tensor ? 0 : strcmp(x->tensor->name, y->tensor->name);
    return order != 0 ? order : x->at < y->at ? -1 : x->at > y->at;
}

/* Where in the checkpoint the weight's numbers come from. */
static bool find_runs(struct weight *s, struct err *e)
{
    const struct mil_value *source = s->weight->source;
    size_t capacity = 0;
    for (int64_t at = 0; at < source->n_elems;) {
        s->runs = mem_grow(s->runs, s->n_runs, &capacity, sizeof *s->runs);
        struct arch_run *run = &s->runs[s->n_runs++];
        if (!arch_find_run(source->weight, at, source->n_elems - at, run))
            return err_set(e, ERR_BUG, "%s: not made of a tensor's numbers", s->weight->name);
        at += run->n;
    }
    qsort(s->runs, s->n_runs, sizeof *s->runs, compare_runs);
    s->tensors = xcalloc(s->n_runs + 1, sizeof *s->tensors);
    for (size_t i = 0; i < s->n_runs; i++) {
        if (i == 0 || s->runs[i].tensor != s->runs[i - 1].tensor)
            s->tensors[s->n_tensors++] =
                (struct tensor_runs){.name = s->runs[i].tensor->name, .runs = &s->runs[i]};
        s->tensors[s->n_tensors - 1].n++;
    }
    return true;
}

bool replaced_add(struct replaced *r, const struct quant_weight *w, const uint8_t *codes, bool is_packed,
                  const f16 *tables, struct err *e)
{
    r->list = mem_grow(r->list, r->n, &r->capacity, sizeof *r->list);
    r->list[r->n] = (struct weight){.weight = w, .codes = codes, .is_packed = is_packed, .tables = tables};
    return find_runs(&r->list[r->n++], e);
}

/* ---- replacement ---- */

/* The first run that ends behind this element. */
static size_t first_run(const struct tensor_runs *t, int64_t at)
{
    size_t low = 0, high = t->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (t->runs[middle].at + t->runs[middle].n > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static const struct tensor_runs *runs_of(const struct weight *s, const char *tensor)
{
    for (size_t i = 0; i < s->n_tensors; i++)
        if (strcmp(s->tensors[i].name, tensor) == 0)
            return &s->tensors[i];
    return NULL;
}

/* The handle is the first weight that has numbers of the range; others of the same tensor come behind it. */
static int64_t find_tensor(void *context, const char *tensor, int64_t begin, int64_t n)
{
    const struct replaced *r = context;
    for (size_t i = 0; i < r->n; i++) {
        const struct tensor_runs *t = runs_of(&r->list[i], tensor);
        size_t run = t ? first_run(t, begin) : 0;
        if (t && run < t->n && t->runs[run].at < begin + n)
            return (int64_t)i << 32 | (t - r->list[i].tensors);
    }
    return -1;
}

/* Elements [begin, begin + n) of the weight, expanded and divided by the factor. */
static void expand(const struct weight *s, int64_t begin, int64_t n, double factor, float *values)
{
    const struct quant_weight *w = s->weight;
    uint8_t room[CODES_AT_ONCE];
    float inverse = (float)(1.0 / factor);
    for (int64_t done = 0; done < n;) {
        int64_t at = begin + done, row = at / w->columns, part = w->columns - at % w->columns;
        part = part < n - done ? part : n - done;
        part = part < CODES_AT_ONCE ? part : CODES_AT_ONCE;
        const f16 *table = s->tables + (row / w->spec.group << w->spec.bits);
        const uint8_t *codes = s->is_packed ? room : s->codes + at;
        if (s->is_packed)
            quant_unpack(s->codes, at, part, w->spec.bits, room);
        for (int64_t i = 0; i < part; i++)
            values[done + i] = f16_to_f32(table[codes[i]]) * inverse;
        done += part;
    }
}

static void replace(void *context, int64_t handle, int64_t begin, int64_t n, float *values)
{
    const struct replaced *r = context;
    size_t first = (size_t)(handle >> 32);
    const char *tensor = r->list[first].tensors[handle & 0xffffffff].name;
    for (size_t k = first; k < r->n; k++) {
        const struct tensor_runs *t = runs_of(&r->list[k], tensor);
        for (size_t i = t ? first_run(t, begin) : 0; t && i < t->n && t->runs[i].at < begin + n; i++) {
            const struct arch_run *run = &t->runs[i];
            int64_t from = run->at > begin ? run->at : begin;
            int64_t to = run->at + run->n < begin + n ? run->at + run->n : begin + n;
            expand(&r->list[k], run->begin + (from - run->at), to - from, run->factor,
                   values + (from - begin));
        }
    }
}

struct reference_replacement replaced_numbers(struct replaced *r)
{
    return (struct reference_replacement){.context = r, .find = find_tensor, .replace = replace};
}
