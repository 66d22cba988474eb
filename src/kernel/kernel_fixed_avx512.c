/* Fixed-point products for AVX-512 processors that also have VBMI and VNNI; part of the AVX-512 level. A file of
 * its own, because no other may be compiled for these instructions. */
/* flags: -mavx512vbmi -mavx512vnni */
#include "kernel/kernel_internal.h"

#if defined(__x86_64__)
#define FIXED_PREFETCH 4096
#define FIXED_PAIRS 1
#include "kernel/fixed_lanes_avx512.h"
#include "kernel/body_fixed.h"

const struct kernels_fixed kernels_fixed__vnni = {
    .fixed_bytes = ISA(k_fixed_bytes),
    .fixed_prepare = ISA(k_fixed_prepare),
    .linear_fixed = ISA(k_linear_fixed),
};
#else
typedef int kernel_fixed_avx512_is_empty;
#endif
