/* From rows of a weight to matrices of the checkpoint and their inputs. */
#include "measure/pieces.h"
#include <stdlib.h>
#include <string.h>
#include "arch/arch.h"

/* The blocks of a row; heap. NULL: one of them is not known. */
static struct block *find_blocks(const struct quant_weight *w, int64_t row, const struct inputs *inputs,
                                 int *n)
{
    struct block *list = NULL;
    size_t capacity = 0;
    *n = 0;
    for (int64_t column = 0; column < w->columns;) {
        struct arch_run run;
        int i = arch_find_run(w->source->weight, row * w->columns + column, w->columns - column, &run)
                    ? inputs_find(inputs, run.tensor->name, run.at)
                    : -1;
        const struct input_matrix *m = i >= 0 ? &inputs->matrices[i] : NULL;
        /* Whole rows of the matrix, in their order. */
        if (!m || (run.at - m->first) % m->columns != 0 || run.n < m->columns ||
            m->columns > w->columns - column) {
            free(list);
            return NULL;
        }
        list = mem_grow(list, (size_t)*n, &capacity, sizeof *list);
        list[(*n)++] = (struct block){.input = m->input, .column = column, .n_columns = m->columns};
        column += m->columns;
    }
    return list;
}

static bool same_blocks(const struct band *a, const struct block *b, int n)
{
    bool same = a->n_blocks == n;
    for (int i = 0; i < n && same; i++)
        same = a->blocks[i].input == b[i].input && a->blocks[i].n_columns == b[i].n_columns;
    return same;
}

bool pieces_find(struct pieces *p, struct quant_weight *w, const struct inputs *inputs)
{
    size_t capacity = 0;
    *p = (struct pieces){.weight = w};
    for (int64_t row = 0; row < w->rows; row++) {
        int n;
        struct block *blocks = find_blocks(w, row, inputs, &n);
        struct band *last = p->n_bands > 0 ? &p->bands[p->n_bands - 1] : NULL;
        if (!blocks)
            return false;
        if (last && same_blocks(last, blocks, n)) {
            last->n_rows++;
            free(blocks);
            continue;
        }
        p->bands = mem_grow(p->bands, (size_t)p->n_bands, &capacity, sizeof *p->bands);
        p->bands[p->n_bands++] = (struct band){.row = row, .n_rows = 1, .blocks = blocks, .n_blocks = n};
        if (row % w->spec.group != 0)
            return false;
        for (int i = 0; i < n; i++) {
            int stage = inputs->list[blocks[i].input].stage;
            p->stage = stage > p->stage ? stage : p->stage;
        }
    }
    return true;
}

void pieces_fini(struct pieces *p)
{
    for (int i = 0; i < p->n_bands; i++)
        free(p->bands[i].blocks);
    free(p->bands);
    quant_made_free(p->made);
    *p = (struct pieces){0};
}
