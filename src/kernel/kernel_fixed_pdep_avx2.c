/* Fixed-point products for AVX2 processors on which pdep (BMI2) is one fast instruction; part of the AVX2 level. A file of
 * its own, because no other may be compiled for that instruction. */
/* flags: -mbmi2 */
#include "kernel/kernel_internal.h"

#if defined(__x86_64__)
#define ISA(name) name##__pdep
#define FIXED_PREFETCH 4096
#define FIXED_SPREAD 1
#include "kernel/fixed_lanes_avx2.h"
#include "kernel/body_fixed.h"

const struct kernels_fixed kernels_fixed__pdep = {
    .fixed_bytes = ISA(k_fixed_bytes),
    .fixed_prepare = ISA(k_fixed_prepare),
    .linear_fixed = ISA(k_linear_fixed),
};
#else
typedef int kernel_fixed_pdep_is_empty;
#endif
