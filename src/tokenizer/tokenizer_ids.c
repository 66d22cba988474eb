/* Lists of ids. */
#include <stdlib.h>

#include "tokenizer/tokenizer.h"

void ids_push(struct ids *l, int32_t id)
{
    l->p = mem_grow(l->p, l->n, &l->capacity, sizeof *l->p);
    l->p[l->n++] = id;
}

void ids_free(struct ids *l)
{
    free(l->p);
    *l = (struct ids){0};
}
