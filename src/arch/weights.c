/* Checkpoint tensors as weights: rearranged (strided rows, blocks of rows or columns, one tensor a block) and
 * transformed on the way, with one rounding to fp16.
 *
 * Values that are no finite fp16 are refused by tensor, element and value, whatever the transformation.
 */
#include "arch/family.h"
#include <math.h>

#define BLOCK 512 /* numbers transformed at a time */

static double rest_of(double v)
{
    return v - (double)f16_to_f32(f64_to_f16(v));
}

static double transform(const struct arch_layout *l, double v)
{
    switch (l->transform) {
    case ARCH_KEEP_REST:
        return rest_of(v * l->factor);
    case ARCH_ONE_PLUS:
        return (v + 1.0) * l->factor;
    case ARCH_ONE_PLUS_REST:
        return rest_of((v + 1.0) * l->factor);
    case ARCH_MINUS_EXP:
        return -exp(v) * l->factor;
    default:
        return v * l->factor;
    }
}

/* n elements of a tensor that follow each other. */
static bool read_run(const struct arch_layout *l, const struct st_tensor *t, int64_t begin, int64_t n,
                     f16 *dst, struct err *e)
{
    double block[BLOCK];
    if (l->transform == ARCH_KEEP && l->factor == 1)
        return st_read_f16(t, begin, n, dst, e);
    for (int64_t done = 0; done < n;) {
        int64_t count = n - done < BLOCK ? n - done : BLOCK;
        if (!st_read_f64(t, begin + done, count, block, e))
            return false;
        for (int64_t i = 0; i < count; i++) {
            double v = transform(l, block[i]);
            dst[done + i] = f64_to_f16(v);
            if ((dst[done + i] & 0x7fff) >= 0x7c00)
                return err_set(e, ERR_FORMAT,
                               "%s: tensor %s: element %lld: expected a number within fp16's range (at most "
                               "65504), found %.9g, which becomes %.9g",
                               t->file, t->name, (long long)(begin + done + i), block[i], v);
        }
        done += count;
    }
    return true;
}

/* Where element `begin` of a weight lies, and how many of the n from there on follow it in the tensor too. */
static struct arch_run find_run(const struct arch_layout *l, int64_t begin, int64_t n)
{
    bool several = l->n_tensors > 1, blocks_of_columns = l->column_block < l->columns;
    /* Rows that follow each other in the tensor too. */
    bool rows_touch = l->column_block == l->columns && l->row_stride == l->columns;
    int64_t row = begin / l->columns, column = begin % l->columns, own = n;
    /* A replaced row is a run for itself, and what stands before it ends there. */
    for (int i = 0; i < l->n_replaced; i++) {
        int64_t until = (l->replaced[i] - row) * l->columns - column;
        if (until > 0 && until < own)
            own = until;
    }
    for (int i = 0; i < l->n_replaced; i++) {
        if (l->replaced[i] == begin / l->columns) {
            row = l->replacement;
            own = l->columns - column;
        }
    }
    int64_t row_block = row / l->row_block, row_inside = row % l->row_block;
    int64_t column_block = column / l->column_block, column_inside = column % l->column_block;
    int64_t tensor = !several ? 0 : blocks_of_columns ? column_block : row_block;
    struct arch_run run = {.tensor = l->tensors[tensor], .begin = begin, .factor = 1.0};
    run.at = l->offset + row_inside * l->row_stride + column_inside;
    if (!several)
        run.at += row_block * l->row_block_stride + column_block * l->column_block_stride;
    run.n = rows_touch ? (l->row_block - row_inside) * l->columns - column : l->column_block - column_inside;
    run.n = run.n < n ? run.n : n;
    run.n = run.n < own ? run.n : own;
    return run;
}

static bool produce_layout(const struct mil_weight *w, int64_t begin, int64_t n, void *dst, struct err *e)
{
    const struct arch_layout *l = w->context;
    f16 *to = dst;
    for (int64_t done = 0; done < n;) {
        struct arch_run run = find_run(l, begin + done, n - done);
        if (!read_run(l, run.tensor, run.at, run.n, to + done, e))
            return false;
        done += run.n;
    }
    return true;
}

bool arch_find_run(const struct mil_weight *w, int64_t begin, int64_t n, struct arch_run *out)
{
    const struct arch_layout *l = w->produce == produce_layout ? w->context : NULL;
    if (!l || l->transform != ARCH_KEEP)
        return false;
    *out = find_run(l, begin, n);
    out->factor = l->factor;
    return true;
}

const struct mil_value *arch_layout_weight(struct mil_model *out, const struct arch_layout *layout, int rank,
                                           const int64_t *dims)
{
    struct arch_layout *l = arena_copy(out->arena, layout, sizeof *layout);
    l->tensors =
        arena_copy(out->arena, layout->tensors, sizeof layout->tensors[0] * (size_t)layout->n_tensors);
    if (l->n_replaced > 0)
        l->replaced =
            arena_copy(out->arena, layout->replaced, sizeof layout->replaced[0] * (size_t)layout->n_replaced);
    struct mil_weight w = {.name = l->tensors[0]->name,
                           .produce = produce_layout,
                           .context = l,
                           .factor = 1.0,
                           .keep_fp16 = l->keep_fp16};
    return mil_value_new_weight(out, MIL_FP16, rank, dims, &w);
}

struct arch_layout arch_layout_of(const struct st_tensor *const *tensor, int64_t rows, int64_t columns)
{
    return (struct arch_layout){.tensors = tensor,
                                .n_tensors = 1,
                                .rows = rows,
                                .columns = columns,
                                .row_block = rows,
                                .row_stride = columns,
                                .column_block = columns,
                                .factor = 1};
}

const struct mil_value *arch_scaled_vector(struct mil_model *out, const struct st_tensor *t,
                                           enum arch_transform how, double factor)
{
    if (!t)
        return NULL;
    struct arch_layout l = arch_layout_of(&t, 1, t->n_elems);
    l.transform = how;
    l.factor = factor;
    l.keep_fp16 = true;
    return arch_layout_weight(out, &l, 1, &t->n_elems);
}

const struct mil_value *arch_vector(struct mil_model *out, const struct st_tensor *t, enum arch_transform how)
{
    return arch_scaled_vector(out, t, how, 1);
}

const struct mil_value *arch_linear(struct mil_model *out, const struct st_tensor *t, double factor)
{
    if (!t)
        return NULL;
    int64_t dims[4] = {t->shape[0], t->shape[1], 1, 1};
    struct arch_layout l = arch_layout_of(&t, dims[0], dims[1]);
    l.factor = factor;
    return arch_layout_weight(out, &l, 4, dims);
}

double arch_stream_factor(const struct arch_model *m, const struct st_tensor *const tensors[DECODER_TENSORS],
                          enum decoder_tensor t)
{
    double scale = m->settings.residual_scale;
    switch (t) {
    case DECODER_POST_ATTENTION_NORM:
    case DECODER_POST_MLP_NORM:
    case DECODER_PER_LAYER_NORM:
        return scale;
    case DECODER_O:
    case DECODER_O_BIAS:
    case DECODER_DOWN:
    case DECODER_DOWN_BIAS: /* a norm behind them has the factor */
        return tensors[DECODER_POST_MLP_NORM] ? 1 : scale;
    case DECODER_PER_LAYER_GATE: /* reads the stream without a norm */
        return 1 / scale;
    default:
        return 1;
    }
}

void arch_layer_values(const struct arch_model *m, struct mil_model *out,
                       const struct st_tensor *const tensors[DECODER_TENSORS],
                       const struct mil_value *values[DECODER_TENSORS])
{
    for (int i = 0; i < DECODER_TENSORS; i++) {
        double factor = arch_stream_factor(m, tensors, (enum decoder_tensor)i);
        bool is_linear = tensors[i] && tensors[i]->rank == 2;
        values[i] = is_linear ? arch_linear(out, tensors[i], factor)
                              : arch_scaled_vector(out, tensors[i], ARCH_KEEP, factor);
    }
}

double arch_stream_epsilon(const struct arch_model *m, double epsilon)
{
    return epsilon * m->settings.residual_scale * m->settings.residual_scale;
}
