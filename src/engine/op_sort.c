/* Ops that order lines along one axis: argsort, topk, and non_maximum_suppression, which begins with it. Equal elements keep their
 * order, NaN come last, so that every result is the only one. */
#include <math.h>
#include <string.h>
#include "engine/lines.h"

struct order {
    struct lines lines; /* x, values (of topk), indices */
    int64_t k;          /* the first of the order that are wanted */
    bool ascending, has_values;
};

/* Does (a, i) stand before (b, k)? */
static bool stands_before(bool ascending, double a, int64_t i, double b, int64_t k)
{
    if (a != a || b != b)
        return a == a || (b != b && i < k);
    if (a != b)
        return ascending ? a < b : a > b;
    return i < k;
}

static double element(const struct order *p, const struct step *s, const int32_t *x, int64_t at, int64_t i)
{
    int64_t k = at + i * p->lines.step[0];
    return s->in[0].repr == REPR_F32 ? (double)((const float *)x)[k] : (double)x[k];
}

struct item {
    double value;
    int64_t index;
};

/* Merges runs of growing length between items [n] and other [n]; the sorted ones are what is returned. */
static struct item *sort_items(const struct engine_run *r, struct item *items, struct item *other, int64_t n,
                               bool ascending)
{
    for (int64_t width = 1; width < n; width *= 2) {
        for (int64_t begin = 0; begin < n && !run_stops(r, begin); begin += 2 * width) {
            int64_t middle = begin + width < n ? begin + width : n,
                    end = begin + 2 * width < n ? begin + 2 * width : n;
            int64_t i = begin, k = middle;
            for (int64_t to = begin; to < end; to++) {
                bool left =
                    k >= end || (i < middle && !stands_before(ascending, items[k].value, items[k].index,
                                                              items[i].value, items[i].index));
                other[to] = items[left ? i++ : k++];
            }
        }
        struct item *sorted = other;
        other = items;
        items = sorted;
    }
    return items;
}

static void sort_line(const struct order *p, const struct step *s, struct engine_run *r, const int32_t *x,
                      const int64_t at[3], struct item *items)
{
    int64_t n = p->lines.n;
    int32_t *values = p->has_values ? value_pointer(r, &s->out[0]) : NULL,
            *indices = value_pointer(r, &s->out[p->has_values]);
    for (int64_t i = 0; i < n; i++)
        items[i] = (struct item){element(p, s, x, at[0], i), i};
    items = sort_items(r, items, items + n, n, p->ascending);
    for (int64_t place = 0; place < p->k; place++) {
        if (values)
            values[at[1] + place * p->lines.step[1]] = x[at[0] + items[place].index * p->lines.step[0]];
        indices[at[2] + place * p->lines.step[2]] = (int32_t)items[place].index;
    }
}

/* The k first of a line, one after another: k passes, for small k. */
static void pick_line(const struct order *p, const struct step *s, struct engine_run *r, const int32_t *x,
                      const int64_t at[3])
{
    int32_t *values = value_pointer(r, &s->out[0]), *indices = value_pointer(r, &s->out[1]);
    int64_t last = -1;
    double last_value = 0;
    for (int64_t place = 0; place < p->k; place++) {
        int64_t best = -1;
        double best_value = 0;
        for (int64_t i = 0; i < p->lines.n && !run_stops(r, i); i++) {
            double v = element(p, s, x, at[0], i);
            if ((last < 0 || stands_before(p->ascending, last_value, last, v, i)) &&
                (best < 0 || stands_before(p->ascending, v, i, best_value, best))) {
                best = i;
                best_value = v;
            }
        }
        if (best < 0) /* stopped */
            return;
        last = best;
        last_value = best_value;
        values[at[1] + place * p->lines.step[1]] = x[at[0] + best * p->lines.step[0]];
        indices[at[2] + place * p->lines.step[2]] = (int32_t)best;
    }
}

/* Up to here passes cost less than sorting. */
#define PICKED_MAX 16

static void run_order(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct order *p = s->params;
    const int32_t *x = value_pointer(r, &s->in[0]);
    int64_t begin, end, at[3];
    pool_split(p->lines.n_lines, 1, i_thread, n_threads, &begin, &end);
    for (int64_t line = begin; line < end; line++) {
        lines_offsets(&p->lines, line, at);
        if (p->has_values && p->k <= PICKED_MAX)
            pick_line(p, s, r, x, at);
        else
            sort_line(p, s, r, x, at, run_scratch(r, i_thread));
    }
}

static bool order_step(struct compiler *c, const struct mil_op *op, struct order *p, int axis, struct value x,
                       struct value y, struct value i)
{
    p->lines = lines_of(axis, (const struct value *const[3]){&x, p->has_values ? &y : &i, &i});
    struct step *s = step_make(c, op->info->name, run_order, p, &x, 1, p->has_values ? y : i);
    bool picks = p->has_values && p->k <= PICKED_MAX;
    if (!picks) {
        if (!compile_take_memory(c, p->lines.n, 2 * (int64_t)sizeof(struct item)))
            return false;
        s->scratch_bytes = (size_t)p->lines.n * 2 * sizeof(struct item);
    }
    s->work = (double)value_elems(&x) * (picks ? (double)p->k : 32);
    s->serial = value_elems(&x) < 4096;
    if (p->has_values)
        step_out(c, s, i);
    return true;
}

bool emit_topk(struct compiler *c, const struct mil_op *op)
{
    const struct mil_type *t = var_type(c, op->outputs[0]);
    struct order *p = ARENA_NEW(c->arena, struct order);
    struct value x;
    int axis;
    if (!operand_f32(c, op, "x", &x) || !arg_axis(c, op, -1, x.rank, &axis) ||
        !arg_bool(c, op, "ascending", false, &p->ascending))
        return false;
    if (t->rank != x.rank || t->dims[axis] > x.dims[axis])
        return compile_fail(c, ERR_FORMAT, "k: expected at most %lld", (long long)x.dims[axis]);
    struct value y = value_new(c, x.repr, t->rank, t->dims), i = value_new(c, REPR_I32, t->rank, t->dims);
    p->k = t->dims[axis];
    p->has_values = true;
    if (!order_step(c, op, p, axis, x, y, i))
        return false;
    set_output(c, op, 0, y);
    if (op->n_outputs > 1)
        set_output(c, op, 1, i);
    return true;
}

bool emit_argsort(struct compiler *c, const struct mil_op *op)
{
    struct order *p = ARENA_NEW(c->arena, struct order);
    struct value x;
    int axis;
    if (!operand_f32(c, op, "x", &x) || !arg_axis(c, op, -1, x.rank, &axis) ||
        !arg_bool(c, op, "ascending", false, &p->ascending))
        return false;
    struct value i = value_new(c, REPR_I32, x.rank, x.dims);
    p->k = x.dims[axis];
    if (!order_step(c, op, p, axis, x, i, i))
        return false;
    set_output(c, op, 0, i);
    return true;
}

/* ---- non_maximum_suppression ---- */

struct suppression {
    int64_t n_images, n_boxes, n_classes, n_most;
    double overlap_max, score_min;
    bool per_class;
};

static double overlap(const float *a, const float *b)
{
    double size[2], common = 1;
    for (int i = 0; i < 2; i++) { /* centre and size along each axis */
        double low = fmax((double)a[i] - (double)a[i + 2] / 2, (double)b[i] - (double)b[i + 2] / 2);
        double high = fmin((double)a[i] + (double)a[i + 2] / 2, (double)b[i] + (double)b[i + 2] / 2);
        common *= fmax(high - low, 0);
    }
    size[0] = (double)a[2] * (double)a[3];
    size[1] = (double)b[2] * (double)b[3];
    double both = size[0] + size[1] - common;
    return both > 0 ? common / both : 0;
}

/* Boxes by falling score of their best class; one that overlaps a chosen one (of its class, if so asked) is left out. What is left over of the
 * results is 0, of the indices -1. */
static void run_suppression(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct suppression *p = s->params;
    const float *boxes = value_pointer(r, &s->in[0]), *scores = value_pointer(r, &s->in[1]);
    float *boxes_out = value_pointer(r, &s->out[0]), *scores_out = value_pointer(r, &s->out[1]);
    int32_t *indices = value_pointer(r, &s->out[2]), *counts = value_pointer(r, &s->out[3]);
    struct item *items = run_scratch(r, i_thread);
    (void)n_threads;
    memset(boxes_out, 0, (size_t)(p->n_images * p->n_most * 4) * 4);
    memset(scores_out, 0, (size_t)(p->n_images * p->n_most * p->n_classes) * 4);
    for (int64_t image = 0; image < p->n_images; image++) {
        const float *b = boxes + image * p->n_boxes * 4, *score = scores + image * p->n_boxes * p->n_classes;
        int32_t *chosen = indices + image * p->n_most;
        int64_t n = 0, n_chosen = 0;
        for (int64_t i = 0; i < p->n_boxes; i++) {
            float best = score[i * p->n_classes];
            for (int64_t k = 1; k < p->n_classes; k++)
                best = score[i * p->n_classes + k] > best ? score[i * p->n_classes + k] : best;
            if ((double)best >= p->score_min)
                items[n++] = (struct item){(double)best, i};
        }
        struct item *sorted = sort_items(r, items, items + p->n_boxes, n, false);
        for (int64_t i = 0; i < n && n_chosen < p->n_most && !run_stops(r, i * p->n_most); i++) {
            int64_t at = sorted[i].index, class = 0;
            bool keep = true;
            for (int64_t k = 1; k < p->n_classes; k++)
                class = score[at * p->n_classes + k] > score[at * p->n_classes + class] ? k : class;
            for (int64_t k = 0; keep && k < n_chosen; k++) {
                int64_t other = chosen[k], other_class = 0;
                for (int64_t j = 1; j < p->n_classes; j++)
                    other_class = score[other * p->n_classes + j] > score[other * p->n_classes + other_class]
                                      ? j
                                      : other_class;
                keep = (p->per_class && class != other_class) ||
                       overlap(b + at * 4, b + other * 4) <= p->overlap_max;
            }
            if (!keep)
                continue;
            int64_t to = image * p->n_most + n_chosen;
            memcpy(boxes_out + to * 4, b + at * 4, 16);
            memcpy(scores_out + to * p->n_classes, score + at * p->n_classes, (size_t)p->n_classes * 4);
            chosen[n_chosen++] = (int32_t)at;
        }
        for (int64_t k = n_chosen; k < p->n_most; k++)
            chosen[k] = -1;
        counts[image] = (int32_t)n_chosen;
    }
}

bool emit_suppression(struct compiler *c, const struct mil_op *op)
{
    struct suppression *p = ARENA_NEW(c->arena, struct suppression);
    struct value x[2], y[4];
    if (!operand_f32(c, op, "boxes", &x[0]) || !operand_f32(c, op, "scores", &x[1]) ||
        !arg_float(c, op, "iou_threshold", 0, &p->overlap_max) ||
        !arg_float(c, op, "score_threshold", 0, &p->score_min) ||
        !arg_int(c, op, "max_boxes", 0, &p->n_most) ||
        !arg_bool(c, op, "per_class_suppression", false, &p->per_class) || !to_dense(c, &x[0]) ||
        !to_dense(c, &x[1]))
        return false;
    if (x[0].repr != REPR_F32 || x[1].repr != REPR_F32 || x[0].rank != 3 || x[1].rank != 3 ||
        x[0].dims[2] != 4 || x[1].dims[0] != x[0].dims[0] || x[1].dims[1] != x[0].dims[1] ||
        x[1].dims[2] < 1 || p->n_most < 1 || p->n_most > INT32_MAX || x[0].dims[0] > INT32_MAX ||
        x[1].dims[2] > INT32_MAX || op->n_outputs != 4)
        return compile_fail(c, ERR_FORMAT,
                            "expected boxes [n, boxes, 4], scores [n, boxes, classes] and max_boxes above 0");
    p->n_images = x[0].dims[0];
    p->n_boxes = x[0].dims[1];
    p->n_classes = x[1].dims[2];
    int64_t dims[3] = {p->n_images, p->n_most, 4};
    if (!compile_take_memory(c, p->n_boxes, 2 * (int64_t)sizeof(struct item)) ||
        !compile_take_memory(c, p->n_images * p->n_most, 4 * (p->n_classes + 5)))
        return false;
    y[0] = value_new(c, REPR_F32, 3, dims);
    dims[2] = p->n_classes;
    y[1] = value_new(c, REPR_F32, 3, dims);
    y[2] = value_new(c, REPR_I32, 2, dims);
    y[3] = value_new(c, REPR_I32, 1, dims);
    struct step *s = step_make(c, "non maximum suppression", run_suppression, p, x, 2, y[0]);
    for (int i = 1; i < 4; i++)
        step_out(c, s, y[i]);
    s->serial = true;
    s->scratch_bytes = (size_t)p->n_boxes * 2 * sizeof(struct item);
    for (int i = 0; i < 4; i++)
        set_output(c, op, i, y[i]);
    return true;
}
