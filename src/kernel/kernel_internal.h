/* Shared by the kernel files only: the tables of the levels and of the sets that features replace. */
#ifndef MILKIT_KERNEL_KERNEL_INTERNAL_H
#define MILKIT_KERNEL_KERNEL_INTERNAL_H

#include "kernel/kernel.h"

#define ALWAYS_INLINE inline __attribute__((always_inline))
#define NEVER_INLINE __attribute__((noinline))

/* Loops whose bounds are constants and whose arrays must end up in registers. */
#ifdef __clang__
#define UNROLL_ALL _Pragma("clang loop unroll(full)")
#else
#define UNROLL_ALL _Pragma("GCC unroll 32")
#endif

/* The first whole cache line of a scratch: registers of a line that lie in two are read at half the speed. */
static inline void *whole_line(void *scratch)
{
    return (char *)scratch + (64 - (uintptr_t)scratch % 64) % 64;
}

/* A level's own functions, without any feature. NULL in builds that lack it: see kernel_select.c. */
extern const struct kernels kernels_scalar;
#if defined(__x86_64__)
extern const struct kernels kernels_avx2;
extern const struct kernels kernels_avx512;
#endif

/* In builds with AddressSanitizer or ThreadSanitizer: puts in front of each function one that looks at its arrays (kernel_ranges.c). */
void kernel_check_ranges(struct kernels *k);

/* Products in fixed point: one layout of prepared activations. */
struct kernels_fixed {
    size_t (*fixed_bytes)(int64_t n_rows, int64_t n_in);
    void (*fixed_prepare)(void *dst, const float *x, int64_t x_stride, int64_t n_rows, int64_t n_in,
                          int64_t row_begin, int64_t row_end, int bits);
    void (*linear_fixed)(float *y, int64_t y_stride, const void *prepared, const struct fixed_weight *w,
                         const float *bias, int64_t n_rows, int64_t begin, int64_t end, void *scratch);
};

#define KERNEL_IMPL(set, isa, level, feature) extern const struct kernels_##set kernels_##set##__##isa;
#include "kernel/impls.def"
#undef KERNEL_IMPL

#endif
