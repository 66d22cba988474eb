/* Products with palettized and linearly quantized weights in 16-bit fixed point.
 *
 * Weights. An index of `bits` bits picks one of 2^bits entries of its row group's table; an entry is a 16-bit number
 * w = 256 * hi + lo (hi, lo signed bytes, |w| <= 32512) and stands for w * scale. Tables are two byte planes: 2^bits
 * bytes hi, then 2^bits bytes lo. int8 and int4 weights are the identity table (hi = value, lo = 0),
 * one for all rows: only there hi may be -128.
 * Activations. Each row is cut into blocks of 256 columns (the last one shorter); a block has the scale
 * s = max|x| / 32512 (0 when that is below the smallest normal float), q = x / s rounded to nearest, ties to even (0
 * where s is 0), q = 256 * hi + lo with signed bytes. Infinities and NaN in a block make every result of its row NaN
 * (its s is NaN).
 * Product. For block b: S_b = sum over its columns of (w * x.hi + w.hi * x.lo), exact in int32 for any order
 * (|S_b| < 2^31 for 256 columns; w.lo * x.lo is left out, 2^-16 of a full product). Then in float, in the order of b:
 *   acc = fma((float)S_b, s_b, acc) from +0;  y = acc * (256 * weight scale of the row) + bias (one product, one sum)
 * So all levels, blockings and row counts give the same bits.
 */
#ifndef MILKIT_KERNEL_KERNEL_FIXED_H
#define MILKIT_KERNEL_KERNEL_FIXED_H

#include <stddef.h>
#include <stdint.h>

#define FIXED_BLOCK 256
#define FIXED_MAX 32512

struct fixed_weight {
    int bits;               /* 1, 2, 3, 4, 6, 8 */
    const uint8_t *indices; /* [n_out, n_in] packed LSB first without gaps between rows; any alignment */
    int64_t n_out, n_in;
    const int8_t *tables;   /* group g at tables + g * table_stride: 2^bits hi, 2^bits lo */
    int64_t table_stride;   /* bytes; 0: one table for all */
    int64_t rows_per_group; /* of tables: row o belongs to group o / rows_per_group */
    const float *scales;    /* row o: scales[o / rows_per_scale] (blocks == 0) */
    int64_t rows_per_scale;
    int64_t
        scale_block; /* 0, or columns that share a scale (a multiple of 16 that divides 256, or a multiple of
                             * 256): then scales is [n_out, n_in / scale_block], and the sums S of each such
                             * sub-block are scaled by s_b * scale first: acc = fma((float)S, s_b * scale, acc),
                             * y = acc * 256 + bias */
};

#endif
