/* Products with palettized and linearly quantized weights in 14-bit fixed point.
 *
 * Weights. An index of `bits` bits picks one of 2^bits entries of its row group's table; an entry is a whole number w,
 * |w| <= 8191, and stands for w * scale. Tables are two byte planes: 2^bits bytes w >> 8, then 2^bits bytes w & 255. int8
 * and int4 weights are the identity table (w = value), one for all rows.
 * Activations. Each row is cut into blocks of 256 columns (the last one shorter); a block has the scale
 * s = max|x| / 8191 (0 when that is below the smallest normal float), q = x / s rounded to nearest, ties to even (0
 * where s is 0), so |q| <= 8191. Infinities and NaN in a block make every result of its row NaN (its s is NaN).
 * Product. For block b: S_b = sum over its columns of w * q, an exact integer: |S_b| <= 256 * 8191^2 < 2^34. Then in float, in
 * the order of b, with S_b rounded once, to nearest, ties to even:
 *   acc = fma((float)S_b, s_b, acc) from +0;  y = acc * (scale of the row) + bias (one product, one sum)
 * So all levels, blockings and row counts give the same bits.
 *
 * How an exact sum is had from 32-bit integers: 32 products are at most 32 * 8191^2 = 2146959392 < 2^31, so a lane holds as
 * many; the sum of several lanes is had as that of their upper 16 bits, H, and that of their lower ones, L:
 * |H| < 2^24 and L < 2^24 are exact in float, and fma(H, 65536, L) rounds once.
 */
#ifndef MILKIT_KERNEL_KERNEL_FIXED_H
#define MILKIT_KERNEL_KERNEL_FIXED_H

#include <stddef.h>
#include <stdint.h>

#define FIXED_BLOCK 256
#define FIXED_MAX 8191         /* of weights and of activations */
#define FIXED_LANE_PRODUCTS 32 /* of which the sum is sure to fit 32 bits */

struct fixed_weight {
    int bits;               /* 1, 2, 3, 4, 6, 8 */
    const uint8_t *indices; /* [n_out, n_in] packed LSB first without gaps between rows; any alignment */
    int64_t n_out, n_in;
    const uint8_t *tables;  /* group g at tables + g * table_stride: 2^bits upper bytes, 2^bits lower ones */
    int64_t table_stride;   /* bytes; 0: one table for all */
    int64_t rows_per_group; /* of tables: row o belongs to group o / rows_per_group */
    const float *scales;    /* row o: scales[o / rows_per_scale] (blocks == 0) */
    int64_t rows_per_scale;
    int64_t
        scale_block; /* 0, or columns that share a scale (a multiple of 16 that divides 256, or a multiple of
                          * 256): then scales is [n_out, n_in / scale_block], and the sums S of each such sub-block
                          * are scaled by s_b * scale first: acc = fma((float)S, s_b * scale, acc), y = acc + bias */
};

#endif
