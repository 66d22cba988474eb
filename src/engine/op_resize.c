/* Ops that sample images at points between their elements: upsample_*, resize_*, resize, crop, crop_resize, resample, affine. x [.., height, width].
 *
 * Positions are computed in double, each output by itself. What lies between four elements is their mean by distance. */
#include <math.h>
#include <string.h>
#include "engine/compiler.h"

/* How the points of an axis lie: coremltools' names. */
enum sampling { SAMPLE_DEFAULT, SAMPLE_STRICT_ALIGN, SAMPLE_ALIGN, SAMPLE_OFFSET, SAMPLE_UNALIGN };
static const char *const sampling_names[] = {"DEFAULT", "STRICT_ALIGN_CORNERS", "ALIGN_CORNERS",
                                             "OFFSET_CORNERS", "UNALIGN_CORNERS"};

/* Point i of n_out along an axis of n_in elements. */
static double sample_point(enum sampling mode, int64_t i, double n_in, double n_out)
{
    double at;
    switch (mode) {
    case SAMPLE_STRICT_ALIGN:
    case SAMPLE_ALIGN:
        if (n_out <= 1)
            at = mode == SAMPLE_ALIGN ? (n_in - 1) / 2 : 0;
        else
            at = (double)i * (n_in - 1) / (n_out - 1);
        break;
    case SAMPLE_OFFSET:
        at = (0.5 + (double)i) * (n_in > 2 ? n_in - 1 : 1) / n_out;
        break;
    case SAMPLE_UNALIGN:
        at = ((double)i + 0.5) * n_in / n_out - 0.5;
        break;
    default:
        at = (double)i * n_in / n_out;
        break;
    }
    return at < 0 ? 0 : at > n_in - 1 ? n_in - 1 : at;
}

/* The mean of the four elements around (row, column), which lie inside. */
static float between(const float *x, const int64_t *strides, const int64_t *n, double row, double column)
{
    int64_t r0 = (int64_t)floor(row), c0 = (int64_t)floor(column), r1 = r0 + 1 < n[0] ? r0 + 1 : r0,
            c1 = c0 + 1 < n[1] ? c0 + 1 : c0;
    double v = row - (double)r0, h = column - (double)c0;
    double top = (double)x[r0 * strides[0] + c0 * strides[1]] * (1 - h) +
                 (double)x[r0 * strides[0] + c1 * strides[1]] * h;
    double low = (double)x[r1 * strides[0] + c0 * strides[1]] * (1 - h) +
                 (double)x[r1 * strides[0] + c1 * strides[1]] * h;
    return (float)(top * (1 - v) + low * v);
}

/* ---- a grid over the last two axes ---- */

struct grid {
    int outer_rank;
    int64_t outer[MIL_RANK_MAX], strides[2][MIL_RANK_MAX]; /* of y and x */
    int64_t n_images, in[2], out[2];
    bool is_nearest, is_rounded; /* is_rounded: the element nearest to the point, not the one before it */
    enum sampling mode;
    double scale[2]; /* of nearest neighbours: elements of x for one of y */
};

/* The element along axis 0 or 1 that stands at place i of the result. */
static int64_t nearest(const struct grid *p, int axis, int64_t i)
{
    double at = p->is_rounded ? sample_point(p->mode, i, (double)p->in[axis], (double)p->out[axis]) + 0.5
                              : (double)i * p->scale[axis];
    int64_t element = (int64_t)floor(at);
    return element > p->in[axis] - 1 ? p->in[axis] - 1 : element;
}

static void run_grid(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct grid *p = s->params;
    const struct value *x = &s->in[0];
    const float *from = value_pointer(r, x);
    float *y = value_pointer(r, &s->out[0]);
    const int64_t *strides = x->strides + x->rank - 2;
    int64_t begin, end, at[2];
    pool_split(p->n_images * p->out[0], 1, i_thread, n_threads, &begin, &end);
    for (int64_t line = begin; line < end; line++) {
        int64_t i = line % p->out[0];
        walk_offsets(p->outer_rank, p->outer, 2, p->strides, line / p->out[0], at);
        const float *image = from + at[1];
        float *to = y + line * p->out[1];
        int64_t near_row = nearest(p, 0, i);
        double row = sample_point(p->mode, i, (double)p->in[0], (double)p->out[0]);
        for (int64_t k = 0; k < p->out[1]; k++) {
            if (p->is_nearest) {
                to[k] = image[near_row * strides[0] + nearest(p, 1, k) * strides[1]];
            } else {
                to[k] = between(image, strides, p->in, row,
                                sample_point(p->mode, k, (double)p->in[1], (double)p->out[1]));
            }
        }
    }
}

bool emit_resize(struct compiler *c, const struct mil_op *op)
{
    static const char *const interpolations[] = {"LINEAR", "NEAREST_NEIGHBOR"};
    const struct mil_type *t = var_type(c, op->outputs[0]);
    struct grid *p = ARENA_NEW(c->arena, struct grid);
    struct value x;
    int id = op->info->id, mode = SAMPLE_DEFAULT, interpolation = 0;
    bool align, half;
    if (!operand_f32(c, op, "x", &x))
        return false;
    if (x.repr != REPR_F32 || x.rank < 2 || t->rank != x.rank)
        return compile_fail(c, ERR_UNSUPPORTED, "expected floats of rank 2 or more");
    if (id == MIL_OP_UPSAMPLE_BILINEAR) {
        if (!arg_bool(c, op, "align_corners", true, &align) ||
            !arg_bool(c, op, "half_pixel_centers", !align, &half))
            return false;
        if (align && half)
            return compile_fail(c, ERR_FORMAT, "align_corners and half_pixel_centers exclude each other");
        mode = align ? SAMPLE_STRICT_ALIGN : half ? SAMPLE_UNALIGN : SAMPLE_DEFAULT;
    } else if (id == MIL_OP_RESIZE_BILINEAR || id == MIL_OP_RESIZE) {
        if (!arg_word(c, op, "sampling_mode", sampling_names, 5, &mode) ||
            !arg_word(c, op, "interpolation_mode", interpolations, 2, &interpolation))
            return false;
    }
    p->is_nearest =
        interpolation == 1 || id == MIL_OP_UPSAMPLE_NEAREST_NEIGHBOR || id == MIL_OP_RESIZE_NEAREST_NEIGHBOR;
    p->is_rounded = id == MIL_OP_RESIZE;
    p->mode = (enum sampling)mode;
    for (int i = 0; i < 2; i++) {
        int axis = x.rank - 2 + i;
        p->in[i] = x.dims[axis];
        p->out[i] = t->dims[axis];
        if (p->in[i] < 1 && p->out[i] > 0)
            return compile_fail(c, ERR_FORMAT, "axis %d has no elements", axis);
        p->scale[i] = p->out[i] > 0 ? (double)p->in[i] / (double)p->out[i] : 1;
    }
    struct value y = value_new(c, REPR_F32, t->rank, t->dims);
    p->outer_rank = x.rank - 2;
    memcpy(p->outer, x.dims, sizeof p->outer);
    memcpy(p->strides[0], y.strides, sizeof p->strides[0]);
    memcpy(p->strides[1], x.strides, sizeof p->strides[1]);
    p->n_images = dims_product(x.dims, p->outer_rank);
    if (p->n_images * p->out[0] * p->out[1] != value_elems(&y))
        return compile_fail(c, ERR_FORMAT, "its declared shape differs before the last two axes");
    return emit_step(c, op, op->info->name, run_grid, p, &x, 1, y);
}

/* x without rows at the top and bottom and columns at the sides: a view. */
bool emit_crop(struct compiler *c, const struct mil_op *op)
{
    static const char *const names[2] = {"crop_height", "crop_width"};
    struct value x;
    if (!operand(c, op, "x", &x))
        return false;
    if (x.rank < 2)
        return compile_fail(c, ERR_FORMAT, "expected rank 2 or more");
    for (int i = 0; i < 2; i++) {
        int64_t cut[2] = {0, 0};
        int n = 2, axis = x.rank - 2 + i;
        if (!arg_ints(c, op, names[i], cut, &n))
            return false;
        if (n != 2 || cut[0] < 0 || cut[1] < 0 || cut[0] > x.dims[axis] || cut[1] > x.dims[axis] - cut[0])
            return compile_fail(c, ERR_FORMAT, "%s does not fit axis %d", names[i], axis);
        x.offset += cut[0] * x.strides[axis];
        x.dims[axis] -= cut[0] + cut[1];
    }
    set_var(c, op->outputs[0], x);
    return true;
}

/* ---- crop_resize: boxes of images, each sampled as a grid ---- */

enum box_form { BOX_CORNERS_HEIGHT, BOX_CORNERS_WIDTH, BOX_CENTER_HEIGHT, BOX_CENTER_WIDTH };

struct crop_resize {
    enum box_form form;
    enum sampling mode;
    bool is_normalized, has_pad, has_index, all_images; /* all_images: each box of every image */
    int64_t n_boxes, n_images, n_channels, in[2], out[2], box_step;
    double spatial_scale;
    float pad;
};

/* Where box b begins and ends, in elements: rows, then columns. */
static void box_edges(const struct crop_resize *p, const float *b, double begin[2], double end[2])
{
    bool width_first = p->form == BOX_CORNERS_WIDTH || p->form == BOX_CENTER_WIDTH;
    for (int i = 0; i < 2; i++) {
        int k = width_first ? 1 - i : i;
        double first = b[k], second = b[2 + k];
        if (p->form == BOX_CENTER_HEIGHT || p->form == BOX_CENTER_WIDTH) {
            double size = second;
            second = first + size / 2;
            first -= size / 2;
        }
        /* As the framework does in the form without a padding: a box of shares that ends before it begins, outside, is the whole axis. */
        if (p->is_normalized && !p->has_pad && first > 1 && second < first) {
            first = 0;
            second = 1;
        }
        double scale = p->spatial_scale * (p->is_normalized ? (double)p->in[i] - 1 : 1);
        begin[i] = first * scale;
        end[i] = second * scale;
    }
}

static void run_crop_resize(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct crop_resize *p = s->params;
    const struct value *x = &s->in[0];
    const float *from = value_pointer(r, x), *boxes = value_pointer(r, &s->in[1]);
    const int32_t *indices = s->n_in > 2 ? value_pointer(r, &s->in[2]) : NULL;
    float *y = value_pointer(r, &s->out[0]);
    int64_t n_images = p->all_images ? p->n_images : 1, begin, end, n_places = p->out[0] * p->out[1];
    pool_split(p->n_boxes * n_images * p->n_channels, 1, i_thread, n_threads, &begin, &end);
    for (int64_t item = begin; item < end; item++) {
        int64_t box = item / p->n_channels / n_images;
        const float *b = boxes + box * p->box_step;
        double image = p->all_images  ? (double)(item / p->n_channels % n_images)
                       : indices      ? (double)indices[box]
                       : p->has_index ? (double)b[0]
                                      : (double)box;
        double first[2], last[2];
        if (!(image >= 0 && image < (double)p->n_images)) {
            run_fail(r, s, "a box names an image that is not there");
            return;
        }
        const float *plane = from + (int64_t)image * x->strides[0] + item % p->n_channels * x->strides[1];
        box_edges(p, b + p->has_index, first, last);
        for (int64_t place = 0; place < n_places; place++) {
            double at[2];
            int64_t k[2] = {place / p->out[1], place % p->out[1]};
            for (int i = 0; i < 2; i++) {
                double size = last[i] - first[i], n = (double)p->out[i];
                switch (p->mode) {
                case SAMPLE_ALIGN:
                case SAMPLE_STRICT_ALIGN:
                    at[i] = n > 1                     ? first[i] + (double)k[i] * size / (n - 1)
                            : p->mode == SAMPLE_ALIGN ? first[i] + size / 2
                                                      : first[i];
                    break;
                case SAMPLE_OFFSET:
                    at[i] = first[i] + ((double)k[i] + 0.5) * (size > 1 ? size : 1) / n;
                    break;
                case SAMPLE_UNALIGN:
                    at[i] = first[i] + ((double)k[i] + 0.5) * (size + 1) / n - 0.5;
                    break;
                default:
                    at[i] = first[i] + (double)k[i] * (size + 1) / n;
                    break;
                }
            }
            bool inside =
                at[0] >= 0 && at[0] <= (double)p->in[0] - 1 && at[1] >= 0 && at[1] <= (double)p->in[1] - 1;
            y[item * n_places + place] =
                inside ? between(plane, x->strides + 2, p->in, at[0], at[1]) : p->pad;
        }
    }
}

bool emit_crop_resize(struct compiler *c, const struct mil_op *op)
{
    static const char *const forms[] = {"CORNERS_HEIGHT_FIRST", "CORNERS_WIDTH_FIRST",
                                        "CENTER_SIZE_HEIGHT_FIRST", "CENTER_SIZE_WIDTH_FIRST"};
    const struct mil_type *t = var_type(c, op->outputs[0]);
    struct crop_resize *p = ARENA_NEW(c->arena, struct crop_resize);
    struct value x[3];
    int form, mode, n = 2;
    double pad;
    bool has_indices = false, is_old = mil_arg_find(op, "roi") != NULL;
    if (!operand_f32(c, op, "x", &x[0]) || !operand_f32(c, op, is_old ? "roi" : "boxes", &x[1]) ||
        !arg_word(c, op, "box_coordinate_mode", forms, 4, &form) ||
        !arg_word(c, op, "sampling_mode", sampling_names, 5, &mode) ||
        !arg_bool(c, op, "normalized_coordinates", false, &p->is_normalized) ||
        !arg_float(c, op, "spatial_scale", 1, &p->spatial_scale) || !arg_float(c, op, "pad_value", 0, &pad))
        return false;
    if (!is_old && !operand_optional(c, op, "box_indices", &x[2], &has_indices))
        return false;
    to_number(c, &x[1], MIL_FP32);
    if (!to_dense(c, &x[1]) || (has_indices && !to_dense(c, &x[2])))
        return false;
    bool fits = x[0].repr == REPR_F32 && x[0].rank == 4 && x[1].rank == (is_old ? 5 : 2) && x[1].dims[0] >= 0;
    p->box_step = !fits ? 0 : is_old ? x[1].dims[2] : x[1].dims[1];
    fits = fits && (p->box_step == 4 || (is_old && p->box_step == 5));
    if (!fits || (has_indices && (x[2].repr != REPR_I32 || value_elems(&x[2]) != x[1].dims[0])))
        return compile_fail(c, ERR_FORMAT, "x or the boxes have another shape than is expected");
    p->has_index = p->box_step == 5;
    p->all_images = is_old && !p->has_index;
    p->form = (enum box_form)form;
    p->mode = (enum sampling)mode;
    p->has_pad = mil_arg_find(op, "pad_value") != NULL;
    p->pad = (float)pad;
    p->n_boxes = x[1].dims[0];
    p->n_images = x[0].dims[0];
    p->n_channels = x[0].dims[1];
    for (int i = 0; i < 2; i++) {
        p->in[i] = x[0].dims[2 + i];
        p->out[i] = t->rank >= 2 ? t->dims[t->rank - 2 + i] : 0;
    }
    n = 2 + has_indices;
    struct value y = value_new(c, REPR_F32, t->rank, t->dims);
    if (value_elems(&y) !=
        p->n_boxes * (p->all_images ? p->n_images : 1) * p->n_channels * p->out[0] * p->out[1])
        return compile_fail(c, ERR_FORMAT, "its declared shape is not what its boxes give");
    return emit_step(c, op, "crop resize", run_crop_resize, p, x, n, y);
}

/* ---- resample and affine: points of their own ---- */

enum padding_mode { PADDING_CONSTANT, PADDING_BORDER, PADDING_REFLECTION, PADDING_SYMMETRIC };
enum coordinates { COORDINATES_PLAIN, COORDINATES_MINUS_ONE, COORDINATES_ZERO };

struct resample {
    bool is_affine, is_nearest, aligned;
    enum padding_mode padding;
    enum coordinates coordinates;
    float constant;
    int64_t n_images, n_channels, in[2], out[2], n_matrices;
};

/* A coordinate as the op's user counts it, in elements of an axis of n. */
static double in_elements(const struct resample *p, double v, double n)
{
    switch (p->coordinates) {
    case COORDINATES_MINUS_ONE:
        return p->aligned ? (v + 1) / 2 * (n - 1) : ((v + 1) * n - 1) / 2;
    case COORDINATES_ZERO:
        return p->aligned ? v * (n - 1) : v * n - 0.5;
    default:
        return v;
    }
}

/* Element i of an axis of n, as the padding goes on with it; -1: the constant. */
static int64_t padded_index(enum padding_mode mode, int64_t i, int64_t n)
{
    int64_t period;
    if (i >= 0 && i < n)
        return i;
    switch (mode) {
    case PADDING_BORDER:
        return i < 0 ? 0 : n - 1;
    case PADDING_REFLECTION:
        period = n > 1 ? 2 * (n - 1) : 1;
        i = (i % period + period) % period;
        return i < n ? i : period - i;
    case PADDING_SYMMETRIC:
        period = 2 * n;
        i = (i % period + period) % period;
        return i < n ? i : period - 1 - i;
    default:
        return -1;
    }
}

static double padded_element(const struct resample *p, const float *plane, const int64_t *strides,
                             int64_t row, int64_t column)
{
    int64_t i = padded_index(p->padding, row, p->in[0]), k = padded_index(p->padding, column, p->in[1]);
    return i < 0 || k < 0 ? (double)p->constant : (double)plane[i * strides[0] + k * strides[1]];
}

static float sampled(const struct resample *p, const float *plane, const int64_t *strides, double row,
                     double column)
{
    const double far = 1e9; /* beyond any image: all that matters there is the padding */
    if (!(row > -far && row < far && column > -far && column < far))
        return p->constant;
    if (p->is_nearest)
        return (float)padded_element(p, plane, strides, (int64_t)floor(row + 0.5),
                                     (int64_t)floor(column + 0.5));
    int64_t i = (int64_t)floor(row), k = (int64_t)floor(column);
    double v = row - (double)i, h = column - (double)k;
    double top =
        padded_element(p, plane, strides, i, k) * (1 - h) + padded_element(p, plane, strides, i, k + 1) * h;
    double low = padded_element(p, plane, strides, i + 1, k) * (1 - h) +
                 padded_element(p, plane, strides, i + 1, k + 1) * h;
    return (float)(top * (1 - v) + low * v);
}

static void run_resample(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct resample *p = s->params;
    const struct value *x = &s->in[0];
    const float *from = value_pointer(r, x), *points = value_pointer(r, &s->in[1]);
    float *y = value_pointer(r, &s->out[0]);
    int64_t n_places = p->out[0] * p->out[1], begin, end;
    pool_split(p->n_images * n_places, 1, i_thread, n_threads, &begin, &end);
    for (int64_t item = begin; item < end; item++) {
        int64_t image = item / n_places, place = item % n_places;
        double column, row; /* as the user counts */
        if (p->is_affine) {
            const float *m = points + (p->n_matrices > 1 ? image : 0) * 6;
            int64_t h = place / p->out[1], w = place % p->out[1];
            double u = p->out[1] > 1 ? -1 + 2 * (double)w / (double)(p->out[1] - 1) : 0;
            double v = p->out[0] > 1 ? -1 + 2 * (double)h / (double)(p->out[0] - 1) : 0;
            column = (double)m[0] * u + (double)m[1] * v + (double)m[2];
            row = (double)m[3] * u + (double)m[4] * v + (double)m[5];
        } else {
            column = points[item * 2];
            row = points[item * 2 + 1];
        }
        column = in_elements(p, column, (double)p->in[1]);
        row = in_elements(p, row, (double)p->in[0]);
        for (int64_t channel = 0; channel < p->n_channels; channel++)
            y[(image * p->n_channels + channel) * n_places + place] = sampled(
                p, from + image * x->strides[0] + channel * x->strides[1], x->strides + 2, row, column);
    }
}

bool emit_resample(struct compiler *c, const struct mil_op *op)
{
    static const char *const samplings[] = {"bilinear", "nearest"};
    static const char *const paddings[] = {"constant", "border", "reflection", "symmetric"};
    static const char *const coordinates[] = {"unnormalized", "normalized_minus_one_to_one",
                                              "normalized_zero_to_one"};
    const struct mil_type *t = var_type(c, op->outputs[0]);
    struct resample *p = ARENA_NEW(c->arena, struct resample);
    struct value x[2];
    int sampling, padding, counted;
    double constant;
    p->is_affine = op->info->id == MIL_OP_AFFINE;
    if (!operand_f32(c, op, "x", &x[0]) ||
        !operand_f32(c, op, p->is_affine ? "transform_matrix" : "coordinates", &x[1]) ||
        !arg_word(c, op, "sampling_mode", samplings, 2, &sampling) ||
        !arg_word(c, op, "padding_mode", paddings, 4, &padding) ||
        !arg_word(c, op, "coordinates_mode", coordinates, 3, &counted) ||
        !arg_bool(c, op, "align_corners", false, &p->aligned) ||
        !arg_float(c, op, "padding_value", 0, &constant))
        return false;
    to_number(c, &x[1], MIL_FP32);
    if (!to_dense(c, &x[1]))
        return false;
    bool fits = x[0].repr == REPR_F32 && x[0].rank == 4 && t->rank == 4 && t->dims[0] == x[0].dims[0] &&
                t->dims[1] == x[0].dims[1];
    for (int i = 0; fits && i < 2; i++) {
        p->in[i] = x[0].dims[2 + i];
        p->out[i] = t->dims[2 + i];
        fits = p->in[i] > 0;
    }
    p->n_images = x[0].dims[0];
    p->n_channels = x[0].dims[1];
    p->n_matrices = fits && p->is_affine && x[1].rank == 2 ? x[1].dims[0] : 0;
    fits = fits &&
           (p->is_affine
                ? x[1].rank == 2 && x[1].dims[1] == 6 && (p->n_matrices == 1 || p->n_matrices == p->n_images)
                : x[1].rank == 4 && value_elems(&x[1]) == p->n_images * p->out[0] * p->out[1] * 2);
    if (!fits)
        return compile_fail(c, ERR_FORMAT, "x, its points and the result do not fit each other");
    p->is_nearest = sampling == 1;
    p->padding = (enum padding_mode)padding;
    p->coordinates = (enum coordinates)counted;
    p->constant = (float)constant;
    struct value y = value_new(c, REPR_F32, 4, t->dims);
    return emit_step(c, op, op->info->name, run_resample, p, x, 2, y);
}
