/* Lines of a tensor along one axis, for ops that walk them (op_along.c, op_sort.c). */
#ifndef MILKIT_ENGINE_LINES_H
#define MILKIT_ENGINE_LINES_H

#include "engine/compiler.h"

struct lines {
    int rank;                                             /* of the other axes */
    int64_t dims[MIL_RANK_MAX], strides[3][MIL_RANK_MAX]; /* of x and two more values */
    int64_t n, step[3], n_lines;
};

/* v[1] and v[2] may be NULL. All have the dims of v[0] beside the axis. */
static inline struct lines lines_of(int axis, const struct value *const v[3])
{
    struct lines lines = {.n_lines = 1}, *p = &lines;
    p->n = v[0]->dims[axis];
    for (int i = 0; i < v[0]->rank; i++) {
        if (i == axis)
            continue;
        p->dims[p->rank] = v[0]->dims[i];
        for (int k = 0; k < 3; k++)
            p->strides[k][p->rank] = v[k] ? v[k]->strides[i] : 0;
        p->rank++;
        p->n_lines *= v[0]->dims[i];
    }
    for (int k = 0; k < 3; k++)
        p->step[k] = v[k] ? v[k]->strides[axis] : 0;
    return lines;
}

static inline void lines_offsets(const struct lines *p, int64_t line, int64_t at[3])
{
    walk_offsets(p->rank, p->dims, 3, p->strides, line, at);
}

#endif
