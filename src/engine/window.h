/* Windows that move over the spatial axes of x [n, channels, spatial..]: convolutions (op_conv.c, op_linear.c), transposed ones and pools (op_pool.c). */
#ifndef MILKIT_ENGINE_WINDOW_H
#define MILKIT_ENGINE_WINDOW_H

#include "engine/compiler.h"

enum { SPATIAL_MAX = 3 };

struct window {
    int id, n_spatial;            /* 1 .. SPATIAL_MAX */
    int64_t n_images, n_channels; /* n_channels of the result */
    int64_t in[SPATIAL_MAX], out[SPATIAL_MAX], kernel[SPATIAL_MAX], stride[SPATIAL_MAX],
        dilation[SPATIAL_MAX], pad[SPATIAL_MAX], pad_behind[SPATIAL_MAX];
    bool excludes_padding;               /* of a mean */
    int64_t groups, in_group, out_group; /* of convolutions: channels a group */
    bool has_bias;
};

/* strides, dilations and pads of p, whose sizes are known. With `same` padding what is padded in all is split in two, the odd one behind
 * (same_lower: before). For a transposed convolution in and out change places. */
bool window_arguments(struct compiler *c, const struct mil_op *op, struct window *p, bool is_transposed);
/* op_conv.c: the convolution w with constant weights (any of fp16 and float32) and bias (NULL: none), whose result has its channels together. *done
 * false: it is another kind, nothing was emitted. */
bool emit_conv_places(struct compiler *c, const struct mil_op *op, const struct window *w, struct value x,
                      struct value weight, const struct value *bias, bool *done);

#endif
