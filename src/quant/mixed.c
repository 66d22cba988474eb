/* The search for mixed widths: which weights get the wider of two widths under a mean of bits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "quant/quant.h"

/* Of the limit: what the decimal of a user and a quotient of counts may differ by. */
#define ROUNDING 1e-9

int quant_wider(int bits)
{
    static const int widths[] = {1, 2, 3, 4, 6, 8};
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        if (widths[i] > bits)
            return widths[i];
    }
    return 0;
}

/* Three decimal digits. */
static double round_error(double v)
{
    char text[32];
    snprintf(text, sizeof text, "%.2e", v);
    return strtod(text, NULL);
}

struct candidate {
    int index;
    double gain; /* error taken away for each element */
};

static int compare(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->gain != y->gain)
        return x->gain > y->gain ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

void quant_choose(struct quant_choices *c)
{
    struct candidate *order = xcalloc((size_t)c->n + 1, sizeof *order);
    double total = 0, bits = 0;
    for (int i = 0; i < c->n; i++) {
        struct quant_choice *w = &c->list[i];
        w->bits = c->narrow;
        total += (double)w->n_elems;
        order[i].index = i;
        order[i].gain = (round_error(w->narrow_error) - round_error(w->wide_error)) / (double)w->n_elems;
    }
    bits = total * c->narrow;
    qsort(order, (size_t)c->n, sizeof *order, compare);
    for (int i = 0; i < c->n; i++) {
        struct quant_choice *w = &c->list[order[i].index];
        double more = (double)w->n_elems * (c->wide - c->narrow);
        /* One that does not fit any more leaves its room to smaller ones. */
        if (!(order[i].gain > 0) || bits + more > c->limit * total * (1 + ROUNDING))
            continue;
        w->bits = c->wide;
        bits += more;
    }
    c->mean = total > 0 ? bits / total : 0;
    free(order);
}

const struct quant_choice *quant_find_choice(const struct quant_choices *c, const char *name, int ordinal)
{
    for (int i = 0; i < c->n; i++) {
        if (c->list[i].ordinal == ordinal && strcmp(c->list[i].name, name) == 0)
            return &c->list[i];
    }
    return NULL;
}
