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
extern const struct kernels kernels_avx512;
#endif

#endif
