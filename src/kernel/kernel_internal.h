/* Shared by the kernel files only: the levels' tables and how a file of one level names its functions. */
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

extern const struct kernels kernels_scalar;
#if defined(__x86_64__)
extern const struct kernels kernels_avx2;
extern const struct kernels kernels_avx2_pdep; /* with fixed-point products that need a fast pdep */
extern const struct kernels kernels_avx512;
extern const struct kernels kernels_avx512_vnni; /* with fixed-point products that need VBMI and VNNI */

/* kernel_fixed_pdep_avx2.c */
size_t k_fixed_bytes__pdep(int64_t n_rows, int64_t n_in);
void k_fixed_prepare__pdep(void *dst, const float *x, int64_t x_stride, int64_t n_rows, int64_t n_in,
                           int64_t row_begin, int64_t row_end, int bits);
void k_linear_fixed__pdep(float *y, int64_t y_stride, const void *prepared, const struct fixed_weight *w,
                          const float *bias, int64_t n_rows, int64_t begin, int64_t end, void *scratch);

/* kernel_fixed_avx512.c */
size_t k_fixed_bytes__vnni(int64_t n_rows, int64_t n_in);
void k_fixed_prepare__vnni(void *dst, const float *x, int64_t x_stride, int64_t n_rows, int64_t n_in,
                           int64_t row_begin, int64_t row_end, int bits);
void k_linear_fixed__vnni(float *y, int64_t y_stride, const void *prepared, const struct fixed_weight *w,
                          const float *bias, int64_t n_rows, int64_t begin, int64_t end, void *scratch);
#endif

#endif
