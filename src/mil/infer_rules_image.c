/* Result rules of ops on images, boxes and random numbers. */
#include <string.h>
#include "mil/infer_rules.h"

/* A size given as an integer argument. */
static bool size_argument(struct infer *in, const char *name, int64_t otherwise, int64_t *out)
{
    infer_int(in, name, otherwise, out);
    if (*out == MIL_INT_UNKNOWN)
        *out = MIL_DIM_UNKNOWN;
    else if (*out < 0)
        return infer_fail(in, "%s is %lld", name, (long long)*out);
    return true;
}

static bool image_tensor(struct infer *in, int rank_min, const struct mil_type **x)
{
    if (!infer_tensor(in, "x", x))
        return false;
    return (*x)->rank >= rank_min ||
           infer_fail(in, "needs x of rank %d or more, found %d", rank_min, (*x)->rank);
}

bool infer_rule_CROP(struct infer *in)
{
    static const char *const names[2] = {"crop_height", "crop_width"};
    const struct mil_type *x;
    int64_t dims[MIL_RANK_MAX], cut[2];
    if (!image_tensor(in, 2, &x))
        return false;
    memcpy(dims, x->dims, sizeof dims[0] * (size_t)x->rank);
    for (int i = 0; i < 2; i++) {
        int n;
        int64_t *d = &dims[x->rank - 2 + i];
        if (!infer_ints(in, names[i], cut, 2, &n) || cut[0] == MIL_INT_UNKNOWN ||
            (n > 1 && cut[1] == MIL_INT_UNKNOWN))
            *d = MIL_DIM_UNKNOWN;
        else if (n != 2 || cut[0] < 0 || cut[1] < 0 || (*d >= 0 && (cut[0] > *d || cut[1] > *d - cut[0])))
            return infer_fail(in, "%s does not fit axis %d", names[i], x->rank - 2 + i);
        else if (*d >= 0)
            *d -= cut[0] + cut[1];
    }
    return infer_out(in, 0, x->dtype, x->rank, dims);
}

/* resize_bilinear and resize_nearest_neighbor have a size for each of the last two axes; resize a list for the last of its resized_dims
 * axes, in which 0 leaves an axis as it is. */
bool infer_rule_RESIZE(struct infer *in)
{
    const struct mil_type *x;
    int64_t dims[MIL_RANK_MAX], sizes[MIL_RANK_MAX], n_resized;
    int n;
    if (!image_tensor(in, 2, &x))
        return false;
    memcpy(dims, x->dims, sizeof dims[0] * (size_t)x->rank);
    if (!mil_arg_find(in->op, "shape"))
        return size_argument(in, "target_size_height", 1, &dims[x->rank - 2]) &&
               size_argument(in, "target_size_width", 1, &dims[x->rank - 1]) &&
               infer_out(in, 0, x->dtype, x->rank, dims);
    if (!infer_ints(in, "shape", sizes, MIL_RANK_MAX, &n))
        return true;
    infer_int(in, "resized_dims", MIL_INT_UNKNOWN, &n_resized);
    if (n_resized == MIL_INT_UNKNOWN)
        return true;
    if (n_resized < 0 || n_resized > n || n_resized > x->rank)
        return infer_fail(in, "resized_dims is %lld, shape has %d entries, x %d axes", (long long)n_resized,
                          n, x->rank);
    for (int i = 1; i <= n_resized; i++) {
        int64_t size = sizes[n - i], *d = &dims[x->rank - i];
        if (size == MIL_INT_UNKNOWN)
            *d = MIL_DIM_UNKNOWN;
        else if (size < 0)
            return infer_fail(in, "shape has the entry %lld", (long long)size);
        else if (size > 0)
            *d = size;
    }
    return infer_out(in, 0, x->dtype, x->rank, dims);
}

/* [boxes, batch, channels, height, width] of roi, whose boxes are for all images; [boxes, 1, ..] where each names its image; boxes [n, 4] give
 * [boxes, channels, height, width]. */
bool infer_rule_CROP_RESIZE(struct infer *in)
{
    const struct mil_type *x, *roi, *boxes;
    int64_t dims[5];
    int rank = 0;
    if (!infer_tensor(in, "x", &x) || !infer_tensor_optional(in, "roi", &roi) ||
        !infer_tensor_optional(in, "boxes", &boxes))
        return false;
    if (x->rank != 4 || (roi && roi->rank != 5) || (boxes && boxes->rank != 2) || !(roi || boxes))
        return infer_fail(in, "needs x of rank 4 and roi of rank 5 or boxes of rank 2");
    dims[rank++] = roi ? roi->dims[0] : boxes->dims[0];
    if (roi)
        dims[rank++] = roi->dims[2] == 4 ? x->dims[0] : roi->dims[2] == 5 ? 1 : MIL_DIM_UNKNOWN;
    dims[rank] = x->dims[1];
    return size_argument(in, "target_height", 1, &dims[rank + 1]) &&
           size_argument(in, "target_width", 1, &dims[rank + 2]) &&
           infer_out(in, 0, x->dtype, rank + 3, dims);
}

bool infer_rule_AFFINE(struct infer *in)
{
    const struct mil_type *x;
    int64_t dims[4];
    if (!infer_tensor(in, "x", &x))
        return false;
    if (x->rank != 4)
        return infer_fail(in, "needs x of rank 4, found %d", x->rank);
    memcpy(dims, x->dims, 2 * sizeof dims[0]);
    return size_argument(in, "output_height", MIL_INT_UNKNOWN, &dims[2]) &&
           size_argument(in, "output_width", MIL_INT_UNKNOWN, &dims[3]) &&
           infer_out(in, 0, x->dtype, 4, dims);
}

bool infer_rule_RESAMPLE(struct infer *in)
{
    const struct mil_type *x, *points;
    int64_t dims[4];
    if (!infer_tensor(in, "x", &x) || !infer_tensor(in, "coordinates", &points))
        return false;
    if (x->rank != 4 || points->rank != 4)
        return infer_fail(in, "needs x and coordinates of rank 4, found %d and %d", x->rank, points->rank);
    memcpy(dims, x->dims, 2 * sizeof dims[0]);
    memcpy(dims + 2, points->dims + 1, 2 * sizeof dims[0]);
    return infer_out(in, 0, x->dtype, 4, dims);
}

/* Blocks between the batch and the last two axes of [n, channels, height, width]; edges: padded before or cut after. */
static bool batch_blocks(struct infer *in, const char *edges_name, bool to_batch)
{
    const struct mil_type *x;
    int64_t dims[4], block[2], edges[4], by;
    int n_block, n_edges;
    if (!infer_tensor(in, "x", &x))
        return false;
    if (x->rank != 4)
        return infer_fail(in, "needs x of rank 4, found %d", x->rank);
    if (!infer_ints(in, "block_shape", block, 2, &n_block) || !infer_ints(in, edges_name, edges, 4, &n_edges))
        return true;
    if (n_block != 2 || n_edges != 4)
        return infer_fail(in, "block_shape has %d entries and %s %d, expected 2 and 4", n_block, edges_name,
                          n_edges);
    memcpy(dims, x->dims, sizeof dims);
    for (int i = 0; i < 2; i++) {
        int64_t *d = &dims[2 + i];
        if (block[i] == MIL_INT_UNKNOWN || edges[2 * i] == MIL_INT_UNKNOWN ||
            edges[2 * i + 1] == MIL_INT_UNKNOWN)
            return true;
        if (block[i] < 1 || edges[2 * i] < 0 || edges[2 * i + 1] < 0)
            return infer_fail(in, "block_shape or %s has an entry without meaning", edges_name);
        if (to_batch) {
            if (!infer_dim_add(in, *d, edges[2 * i], d) || !infer_dim_add(in, *d, edges[2 * i + 1], d))
                return false;
            if (*d >= 0 && *d % block[i] != 0)
                return infer_fail(in, "axis %d has size %lld, which %lld does not divide", 2 + i,
                                  (long long)*d, (long long)block[i]);
            *d = *d < 0 ? MIL_DIM_UNKNOWN : *d / block[i];
        } else {
            if (!infer_dim_mul(in, *d, block[i], d))
                return false;
            if (*d >= 0 && (edges[2 * i] > *d || edges[2 * i + 1] > *d - edges[2 * i]))
                return infer_fail(in, "crops do not fit axis %d", 2 + i);
            *d = *d < 0 ? MIL_DIM_UNKNOWN : *d - edges[2 * i] - edges[2 * i + 1];
        }
    }
    if (!infer_dim_mul(in, block[0], block[1], &by))
        return false;
    if (to_batch) {
        if (!infer_dim_mul(in, dims[0], by, &dims[0]))
            return false;
    } else if (dims[0] >= 0) {
        if (dims[0] % by != 0)
            return infer_fail(in, "a batch of %lld is not a whole number of blocks of %lld",
                              (long long)dims[0], (long long)by);
        dims[0] /= by;
    }
    return infer_out(in, 0, x->dtype, 4, dims);
}

bool infer_rule_SPACE_TO_BATCH(struct infer *in)
{
    return batch_blocks(in, "paddings", true);
}

bool infer_rule_BATCH_TO_SPACE(struct infer *in)
{
    return batch_blocks(in, "crops", false);
}

bool infer_rule_SUPPRESSION(struct infer *in)
{
    const struct mil_type *boxes, *scores;
    int64_t dims[3];
    if (!infer_tensor(in, "boxes", &boxes) || !infer_tensor(in, "scores", &scores))
        return false;
    if (boxes->rank != 3 || scores->rank != 3)
        return infer_fail(in, "needs boxes and scores of rank 3, found %d and %d", boxes->rank, scores->rank);
    dims[0] = boxes->dims[0];
    if (!size_argument(in, "max_boxes", MIL_INT_UNKNOWN, &dims[1]))
        return false;
    dims[2] = boxes->dims[2];
    if (!infer_out(in, 0, boxes->dtype, 3, dims))
        return false;
    dims[2] = scores->dims[2];
    return infer_out(in, 1, scores->dtype, 3, dims) && infer_out(in, 2, MIL_INT32, 2, dims) &&
           infer_out(in, 3, MIL_INT32, 1, dims);
}

/* The type is that of the distribution's parameters. */
bool infer_rule_RANDOM(struct infer *in)
{
    static const char *const names[] = {"low", "high", "mean", "stddev", "prob"};
    const struct mil_type *parameter, *type = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!infer_tensor_optional(in, names[i], &parameter))
            return false;
        type = type ? type : parameter;
    }
    return infer_shape_out(in, type ? type->dtype : MIL_FP32);
}

bool infer_rule_RANDOM_CATEGORICAL(struct infer *in)
{
    const struct mil_type *x;
    int64_t dims[MIL_RANK_MAX];
    if (!image_tensor(in, 1, &x))
        return false;
    memcpy(dims, x->dims, sizeof dims[0] * (size_t)x->rank);
    return size_argument(in, "size", 1, &dims[x->rank - 1]) && infer_out(in, 0, x->dtype, x->rank, dims);
}
