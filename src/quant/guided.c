/* Palettes of whole weights by what is known of their inputs: nearest entries of weighted tables, error feedback, and
 * rounds of least-squares tables and coordinate descent.
 *
 * All threads take runs of rows. What they add up over the rows of a table is added in the order of rows.
 */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "base/half.h"
#include "quant/guided_internal.h"

#define ROUNDS 2
#define PASSES 4
/* Values of a run's rows: u and targets of both stay in the second-level cache. */
#define RUN_VALUES ((int64_t)32 << 10)
#define RUN_ROWS_MIN 8
#define RUN_ROWS_MAX 64
#define FP16_MAX 65504.0f

struct quant_made *quant_made_new(struct quant_weight *w, struct err *e)
{
    struct quant_made *m = xcalloc(1, sizeof *m);
    m->codes = mem_try_alloc((size_t)(w->rows * w->columns), e);
    m->tables = m->codes ? mem_try_alloc(w->table->bytes, e) : NULL;
    if (!m->tables) {
        quant_made_free(m);
        m = NULL;
    }
    w->made = m;
    return m;
}

void quant_made_free(struct quant_made *m)
{
    if (!m)
        return;
    mem_free(m->codes);
    mem_free(m->tables);
    free(m);
}

/* ---- nearest entries ---- */

struct nearest {
    struct quant_weight *w;
    const float *importance;
    int64_t row, n_rows;
    struct err *errors; /* [n_threads] */
};

static bool make_group(const struct nearest *x, int64_t row, int64_t n_rows, f16 *values,
                       struct quant_scratch *scratch, struct err *e)
{
    const struct quant_weight *w = x->w;
    struct quant_stats stats = {0};
    int64_t at = row * w->columns, n = n_rows * w->columns;
    return w->source->weight->produce(w->source->weight, at, n, values, e) &&
           quant_palettize(scratch, values, n_rows, w->columns, n_rows, w->spec.bits, QUANT_KMEANS,
                           x->importance, w->made->codes + at,
                           w->made->tables + (row / w->spec.group << w->spec.bits), &stats, e);
}

static void nearest_part(void *context, int i_thread, int n_threads)
{
    const struct nearest *x = context;
    int64_t group = x->w->spec.group, end = x->row + x->n_rows;
    if (i_thread * group >= x->n_rows)
        return;
    struct quant_scratch *scratch = quant_scratch_new();
    f16 *values = mem_try_alloc((size_t)(group * x->w->columns) * sizeof *values, &x->errors[i_thread]);
    for (int64_t row = x->row + i_thread * group; values && row < end; row += n_threads * group)
        if (!make_group(x, row, end - row < group ? end - row : group, values, scratch, &x->errors[i_thread]))
            break;
    mem_free(values);
    quant_scratch_free(scratch);
}

static bool first_error(const struct err *errors, int n, const char *name, struct err *e)
{
    for (int i = 0; i < n; i++) {
        if (!errors[i].code)
            continue;
        if (e)
            *e = errors[i];
        return err_wrap(e, "%s", name);
    }
    return true;
}

bool quant_make_nearest(struct quant_weight *w, int64_t row, int64_t n_rows, const float *importance,
                        struct pool *pool, struct err *e)
{
    int n_threads = pool_threads(pool);
    struct nearest x = {.w = w, .importance = importance, .row = row, .n_rows = n_rows};
    x.errors = xcalloc((size_t)n_threads, sizeof *x.errors);
    pool_run(pool, nearest_part, &x);
    bool ok = first_error(x.errors, n_threads, w->name, e);
    free(x.errors);
    return ok;
}

/* ---- pieces ---- */

struct piece {
    struct quant_weight *w;
    const struct quant_piece *at;
    int64_t n, run_rows;     /* n: columns; run_rows: that go together, whole groups or a part of one */
    float *targets, *u;      /* [rows, n] */
    float *tables, *middles; /* of the piece's rows */
    double *a, *slopes;      /* [n_tables] of [n_entries, n_entries], [n_entries] */
    int64_t n_tables;
    int n_entries;
    bool does_descend;
    atomic_llong next;
    struct err *errors; /* [n_threads] */
};

static struct guided_rows rows_of(const struct piece *p, int64_t row, int64_t n_rows)
{
    const struct quant_weight *w = p->w;
    int64_t table = row / w->spec.group * p->n_entries;
    return (struct guided_rows){.n = n_rows,
                                .group = w->spec.group,
                                .n_entries = p->n_entries,
                                .tables = p->tables + table,
                                .middles = p->middles + table,
                                .codes = w->made->codes + (p->at->row + row) * w->columns + p->at->column,
                                .stride = w->columns};
}

static void fill_middles(const struct piece *p, int64_t table)
{
    const float *from = p->tables + table * p->n_entries;
    float *to = p->middles + table * p->n_entries;
    for (int i = 0; i < p->n_entries; i++)
        to[i] = i == p->n_entries - 1 ? INFINITY : 0.5f * (from[i] + from[i + 1]);
}

/* The numbers of the weight, and what outputs as with other inputs ask of them. */
static bool load_targets(const struct piece *p, int64_t row, int64_t n_rows, struct err *e)
{
    const struct mil_weight *source = p->w->source->weight;
    const struct quant_guide *g = p->at->guide;
    int64_t n = p->n, columns = p->w->columns;
    float *to = p->targets + row * n;
    f16 *values = xmalloc((size_t)n * sizeof *values);
    bool ok = true;
    for (int64_t r = 0; r < n_rows && ok; r++) {
        ok = source->produce(source, (p->at->row + row + r) * columns + p->at->column, n, values, e);
        if (ok)
            f16_to_f32_n(to + r * n, values, (size_t)n);
    }
    free(values);
    if (ok && g->shift) {
        float *own = xmalloc((size_t)(n_rows * n) * sizeof *own);
        memcpy(own, to, (size_t)(n_rows * n) * sizeof *own);
        quant_product_add(to, own, n_rows, g->shift, n);
        free(own);
    }
    return ok;
}

/* The next rows that nobody has taken. */
static bool take_run(struct piece *p, int64_t *row, int64_t *n_rows)
{
    *row = atomic_fetch_add(&p->next, 1) * p->run_rows;
    *n_rows = p->at->n_rows - *row < p->run_rows ? p->at->n_rows - *row : p->run_rows;
    return *n_rows > 0;
}

static void feedback_part(void *context, int i_thread, int n_threads)
{
    struct piece *p = context;
    int64_t row, n_rows;
    (void)n_threads;
    while (take_run(p, &row, &n_rows)) {
        struct guided_rows rows = rows_of(p, row, n_rows);
        if (!load_targets(p, row, n_rows, &p->errors[i_thread]))
            return;
        guided_feedback(p->at->guide, &rows, p->targets + row * p->n);
        if (p->does_descend)
            guided_slopes(p->at->guide, &rows, p->targets + row * p->n, p->u + row * p->n);
    }
}

static void descent_part(void *context, int i_thread, int n_threads)
{
    struct piece *p = context;
    int64_t row, n_rows;
    (void)i_thread;
    (void)n_threads;
    while (take_run(p, &row, &n_rows)) {
        struct guided_rows rows = rows_of(p, row, n_rows);
        float *u = p->u + row * p->n;
        guided_slopes(p->at->guide, &rows, p->targets + row * p->n, u);
        for (int pass = 0; pass < PASSES && guided_descend(p->at->guide, &rows, u) > 0; pass++)
            ;
    }
}

/* Tables of the piece, each by one thread. */
static void tables_part(void *context, int i_thread, int n_threads)
{
    struct piece *p = context;
    int k = p->n_entries;
    int64_t group = p->w->spec.group;
    double *a = xmalloc((size_t)(k * k + k) * sizeof *a), *slope = a + k * k;
    for (int64_t table = i_thread; table < p->n_tables; table += n_threads) {
        int64_t row = table * group, n_rows = p->at->n_rows - row < group ? p->at->n_rows - row : group;
        struct guided_rows rows = rows_of(p, row, n_rows);
        uint8_t place[QUANT_ENTRIES_MAX];
        memset(a, 0, (size_t)(k * k + k) * sizeof *a);
        guided_normal(p->at->guide, &rows, p->u + row * p->n, a, slope);
        guided_solve(a, slope, k, p->tables + table * k, place);
        for (int64_t r = 0; r < n_rows; r++)
            for (int64_t j = 0; j < p->n; j++)
                rows.codes[r * rows.stride + j] = place[rows.codes[r * rows.stride + j]];
    }
    free(a);
}

static void run_part(struct piece *p, void (*part)(void *, int, int), struct pool *pool)
{
    atomic_store(&p->next, 0);
    pool_run(pool, part, p);
}

static void round_tables(struct piece *p)
{
    for (int64_t i = 0; i < p->n_tables * p->n_entries; i++) {
        float value = p->tables[i] > FP16_MAX    ? FP16_MAX
                      : p->tables[i] < -FP16_MAX ? -FP16_MAX
                                                 : p->tables[i];
        p->tables[i] = f16_round(value) + 0.0f; /* -0 becomes 0 */
    }
}

static void improve(struct piece *p, struct pool *pool)
{
    for (int round = 0; round < ROUNDS; round++) {
        run_part(p, tables_part, pool);
        if (round == ROUNDS - 1)
            round_tables(p);
        for (int64_t table = 0; table < p->n_tables; table++)
            fill_middles(p, table);
        run_part(p, descent_part, pool);
    }
}

bool quant_make_piece(struct quant_weight *w, const struct quant_piece *at, struct pool *pool, struct err *e)
{
    struct piece p = {.w = w, .at = at, .n = at->n_columns, .n_entries = 1 << w->spec.bits};
    int n_threads = pool_threads(pool);
    int64_t group = w->spec.group, rows = RUN_VALUES / p.n;
    size_t values = (size_t)(at->n_rows * p.n);
    bool ok = false;
    rows = rows < RUN_ROWS_MIN ? RUN_ROWS_MIN : rows > RUN_ROWS_MAX ? RUN_ROWS_MAX : rows;
    p.run_rows = rows > group ? rows / group * group : quant_divisor(group, rows);
    p.n_tables = (at->n_rows + group - 1) / group;
    /* A table whose rows have other columns, too, is not ours alone. */
    p.does_descend = at->guide->h && at->n_columns == w->columns;
    p.errors = xcalloc((size_t)n_threads, sizeof *p.errors);
    p.tables = xmalloc((size_t)(2 * p.n_tables * p.n_entries) * sizeof *p.tables);
    p.middles = p.tables + p.n_tables * p.n_entries;
    p.targets = mem_try_alloc(values * sizeof *p.targets, e);
    p.u = p.does_descend && p.targets ? mem_try_alloc(values * sizeof *p.u, e) : NULL;
    if (!p.targets || (p.does_descend && !p.u))
        goto done;
    f16 *tables = w->made->tables + (at->row / group << w->spec.bits);
    for (int64_t i = 0; i < p.n_tables * p.n_entries; i++)
        p.tables[i] = f16_to_f32(tables[i]);
    for (int64_t table = 0; table < p.n_tables; table++)
        fill_middles(&p, table);
    run_part(&p, feedback_part, pool);
    ok = first_error(p.errors, n_threads, w->name, e);
    if (ok && p.does_descend) {
        improve(&p, pool);
        for (int64_t i = 0; i < p.n_tables * p.n_entries; i++)
            tables[i] = f32_to_f16(p.tables[i]);
    }
done:
    free(p.errors);
    free(p.tables);
    mem_free(p.targets);
    mem_free(p.u);
    return ok;
}
