/* The AVX2 level (AVX2, FMA and F16C): the bodies over this instruction set's lanes. Same bits as
 * kernel_scalar.c. */
#include "kernel/kernel_internal.h"

#if defined(__x86_64__)
#include "kernel/lanes_avx2.h"
#include "kernel/kernel_math.h"

/* Weight rows walked at once for one activation row, and how far ahead of them memory is asked for. */
#define BLOCK_STREAM 4
#define PREFETCH_BYTES 4096
/* How far ahead of packed indices memory is asked for. */
#define FIXED_PREFETCH 4096
/* Activation rows whose products with sixteen lanes of registers of outputs are in registers at once. */
#define TILE_TOKENS 6
/* Query rows, and sixteens of columns, of one pass over V. */
#define ATTEND_TOGETHER 4
#define ATTEND_ACROSS 1
/* Query rows, sixteens of positions and partial sums of products that are summed at once. */
#define ATTEND_CHAINS 1
#define ATTEND_QUERIES 4
#define ATTEND_SIXTEENS 1

#include "kernel/body_elementwise.h"
#include "kernel/body_linear.h"
#include "kernel/body_attention.h"
#include "kernel/body_recurrent.h"
#include "kernel/fixed_lanes_avx2.h"
#include "kernel/body_fixed.h"

const struct kernels kernels_avx2 = {
    .level = CPU_AVX2,
    .name = "avx2",
#define KERNEL(member, kind) .member = ISA(k_##member),
#include "kernel/kernel.def"
#undef KERNEL
};
#else
typedef int kernel_avx2_is_empty;
#endif
