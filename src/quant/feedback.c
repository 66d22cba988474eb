/* Error feedback over the columns of some rows, in blocks of columns: inside a block each column's error goes into the
 * block's later columns at once, behind it all of the block's errors together.
 *
 * A value's sum is taken in the order of columns in either case, so that the size of the blocks changes nothing, nor does the
 * number of rows that go together.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "quant/guided_internal.h"
#include "quant/loops.h"

#define BLOCK 128
#define COLUMNS 512 /* behind a block, at a time: a part of the guide that stays in the second-level cache */

struct feedback {
    const struct quant_guide *guide;
    const struct guided_rows *rows;
    float *values; /* [rows->n, n], columns in the guide's order */
    float *errors; /* [rows->n, BLOCK] */
};

INLINE void block_rows(const struct feedback *f, int64_t begin, int64_t end)
{
    int64_t n = f->guide->n;
    const struct guided_rows *rows = f->rows;
    for (int64_t r = 0; r < rows->n; r++) {
        int64_t table = r / rows->group * rows->n_entries;
        float *values = f->values + r * n, *errors = f->errors + r * BLOCK;
        for (int64_t j = begin; j < end; j++) {
            const float *share = f->guide->feedback + j * n;
            int entry = guided_nearest(rows->middles + table, rows->n_entries, values[j]);
            float error = values[j] - rows->tables[table + entry];
            rows->codes[r * rows->stride + f->guide->order[j]] = (uint8_t)entry;
            errors[j - begin] = error;
            for (int64_t k = j + 1; k < end; k++)
                values[k] -= error * share[k];
        }
    }
}

INLINE void behind_block(const struct feedback *f, int64_t begin, int64_t end)
{
    int64_t n = f->guide->n;
    for (int64_t k0 = end; k0 < n; k0 += COLUMNS) {
        int64_t k1 = k0 + COLUMNS < n ? k0 + COLUMNS : n;
        for (int64_t r = 0; r < f->rows->n; r++) {
            float *values = f->values + r * n;
            const float *errors = f->errors + r * BLOCK;
            for (int64_t j = begin; j < end; j++) {
                const float *share = f->guide->feedback + j * n;
                float error = errors[j - begin];
                for (int64_t k = k0; k < k1; k++)
                    values[k] -= error * share[k];
            }
        }
    }
}

INLINE void feedback_body(const struct feedback *f, int i_thread, int n_threads)
{
    (void)i_thread;
    (void)n_threads;
    for (int64_t begin = 0; begin < f->guide->n; begin += BLOCK) {
        int64_t end = begin + BLOCK < f->guide->n ? begin + BLOCK : f->guide->n;
        block_rows(f, begin, end);
        behind_block(f, begin, end);
    }
}

LOOP_AS(feedback, struct feedback, plain, )
LOOP_FOR_AVX2(feedback, struct feedback)

void guided_feedback(const struct quant_guide *guide, const struct guided_rows *rows, const float *targets)
{
    int64_t n = guide->n;
    struct feedback f = {.guide = guide, .rows = rows};
    f.values = xmalloc((size_t)(rows->n * n) * sizeof *f.values);
    f.errors = xmalloc((size_t)(rows->n * BLOCK) * sizeof *f.errors);
    for (int64_t r = 0; r < rows->n; r++)
        for (int64_t j = 0; j < n; j++)
            f.values[r * n + j] = targets[r * n + guide->order[j]];
    LOOP_IN_USE(feedback)(&f, 0, 1);
    free(f.values);
    free(f.errors);
}
