/* Loops that are compiled twice, for AVX2 and for plain instructions, and run by whichever is in use. Both do the same
 * operations in the same order, so that the numbers are the same. Internal to quant.
 */
#ifndef MILKIT_QUANT_LOOPS_H
#define MILKIT_QUANT_LOOPS_H

#include "base/cpu.h"
#include "base/pool.h"

#define INLINE static inline __attribute__((always_inline))

typedef float v8f __attribute__((vector_size(32)));

#define LOOP_AS(name, type, suffix, attributes)                                                              \
    attributes static void name##_##suffix(void *context, int i_thread, int n_threads)                       \
    {                                                                                                        \
        name##_body((type *)context, i_thread, n_threads);                                                   \
    }
#if defined(__x86_64__) && defined(__GNUC__)
#define LOOP_FOR_AVX2(name, type) LOOP_AS(name, type, avx2, __attribute__((target("avx2"))))
#define LOOP_IN_USE(name) (cpu_level_in_use() >= CPU_AVX2 ? name##_avx2 : name##_plain)
#else
#define LOOP_FOR_AVX2(name, type)
#define LOOP_IN_USE(name) name##_plain
#endif
/* name_run(pool, context): name_body(context, i_thread, n_threads) in every thread of the pool. */
#define LOOPS(name, type)                                                                                    \
    LOOP_AS(name, type, plain, )                                                                             \
    LOOP_FOR_AVX2(name, type)                                                                                \
    static void name##_run(struct pool *pool, type *context)                                                 \
    {                                                                                                        \
        pool_run(pool, LOOP_IN_USE(name), context);                                                          \
    }

#endif
