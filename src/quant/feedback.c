/* Error feedback over the columns of some rows, in blocks of columns: inside a block each column's error goes into the
 * block's later columns at once, behind it all of the block's errors together.
 *
 * A value's sum is taken in the order of columns in either case, so that the size of the blocks changes nothing, nor does the
 * number of rows that go together.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/cpu.h"
#include "base/half.h"
#include "quant/quant.h"

#define INLINE static inline __attribute__((always_inline))
#define BLOCK 128
#define COLUMNS 512 /* behind a block, at a time: a part of the guide that stays in the second-level cache */
#define SMALL_TABLE 16

struct feedback {
    const struct quant_guide *guide;
    int64_t n_rows, first_row, group;
    int n_entries;
    const float *tables;  /* [.., n_entries] */
    const float *middles; /* [.., n_entries]: between an entry and the next, the last one infinite */
    float *values;        /* [n_rows, n], columns in the guide's order */
    float *errors;        /* [n_rows, BLOCK] */
    uint8_t *codes;       /* [n_rows, n], columns as they are */
};

/* The nearest entry, the lower one of two. */
INLINE int nearest(const float *middles, int n_entries, float value)
{
    int low = 0;
    if (n_entries <= SMALL_TABLE) {
        for (int i = 0; i < n_entries - 1; i++)
            low += value > middles[i];
        return low;
    }
    for (int step = n_entries / 2; step > 0; step /= 2)
        if (value > middles[low + step - 1])
            low += step;
    return low;
}

INLINE void block_rows(const struct feedback *f, int64_t begin, int64_t end)
{
    int64_t n = f->guide->n;
    for (int64_t r = 0; r < f->n_rows; r++) {
        int64_t table = (f->first_row + r) / f->group * f->n_entries;
        float *values = f->values + r * n, *errors = f->errors + r * BLOCK;
        for (int64_t j = begin; j < end; j++) {
            const float *share = f->guide->feedback + j * n;
            int entry = nearest(f->middles + table, f->n_entries, values[j]);
            float error = values[j] - f->tables[table + entry];
            f->codes[r * n + f->guide->order[j]] = (uint8_t)entry;
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
        for (int64_t r = 0; r < f->n_rows; r++) {
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

INLINE void feedback_body(const struct feedback *f)
{
    for (int64_t begin = 0; begin < f->guide->n; begin += BLOCK) {
        int64_t end = begin + BLOCK < f->guide->n ? begin + BLOCK : f->guide->n;
        block_rows(f, begin, end);
        behind_block(f, begin, end);
    }
}

#if defined(__x86_64__) && defined(__GNUC__)
__attribute__((target("avx2"))) static void feedback_avx2(const struct feedback *f)
{
    feedback_body(f);
}
#else
#define feedback_avx2 feedback_plain
#endif

static void feedback_plain(const struct feedback *f)
{
    feedback_body(f);
}

static void add_stats(const struct feedback *f, const f16 *rows, struct quant_stats *stats)
{
    int64_t n = f->guide->n;
    for (int64_t r = 0; r < f->n_rows; r++) {
        const float *table = f->tables + (f->first_row + r) / f->group * f->n_entries;
        for (int64_t j = 0; j < n; j++) {
            double value = (double)f16_to_f32(rows[r * n + j]);
            double error = fabs((double)table[f->codes[r * n + j]] - value);
            stats->error += error * error;
            stats->energy += value * value;
            stats->largest = error > stats->largest ? error : stats->largest;
        }
    }
    stats->n += f->n_rows * n;
}

void quant_feedback(const struct quant_guide *guide, const f16 *rows, int64_t n_rows, int64_t first_row,
                    int64_t group, const f16 *tables, int bits, uint8_t *codes, struct quant_stats *stats)
{
    int64_t n = guide->n, first_table = first_row / group;
    int64_t n_tables = (first_row + n_rows - 1) / group + 1 - first_table;
    int n_entries = 1 << bits;
    float *table = xmalloc((size_t)(2 * n_tables * n_entries) * sizeof *table),
          *middles = table + n_tables * n_entries;
    struct feedback f = {.guide = guide,
                         .n_rows = n_rows,
                         .first_row = first_row - first_table * group,
                         .group = group,
                         .n_entries = n_entries,
                         .tables = table,
                         .middles = middles,
                         .codes = codes};
    f.values = xmalloc((size_t)(n_rows * n) * sizeof *f.values);
    f.errors = xmalloc((size_t)(n_rows * BLOCK) * sizeof *f.errors);
    for (int64_t i = 0; i < n_tables * n_entries; i++)
        table[i] = f16_to_f32(tables[first_table * n_entries + i]);
    for (int64_t i = 0; i < n_tables * n_entries; i++)
        middles[i] = i % n_entries == n_entries - 1 ? INFINITY : 0.5f * (table[i] + table[i + 1]);
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t j = 0; j < n; j++)
            f.values[r * n + j] = f16_to_f32(rows[r * n + guide->order[j]]);
    if (cpu_level_in_use() >= CPU_AVX2)
        feedback_avx2(&f);
    else
        feedback_plain(&f);
    add_stats(&f, rows, stats);
    free(f.values);
    free(f.errors);
    free(table);
}
