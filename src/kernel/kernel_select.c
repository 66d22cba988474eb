/* Which functions run: a level's table, in which what the processor's features allow takes its place. */
#include <pthread.h>
#include "kernel/kernel_internal.h"

static const struct kernels *const levels[CPU_LEVELS] = {
    [CPU_SCALAR] = &kernels_scalar,
#if defined(__x86_64__)
    [CPU_AVX2] = &kernels_avx2,
    [CPU_AVX512] = &kernels_avx512,
#endif
};

static struct kernels tables[CPU_LEVELS];
static pthread_once_t made = PTHREAD_ONCE_INIT;

static void put_fixed(struct kernels *k, const struct kernels_fixed *set)
{
    k->fixed_bytes = set->fixed_bytes;
    k->fixed_prepare = set->fixed_prepare;
    k->linear_fixed = set->linear_fixed;
}

static void make_table(struct kernels *k, enum cpu_level of, unsigned features)
{
    *k = *levels[of];
#define KERNEL_IMPL(set, isa, level, feature)                                                                \
    if (of == level && (features & feature)) {                                                               \
        put_##set(k, &kernels_##set##__##isa);                                                               \
        k->features |= feature;                                                                              \
    }
#include "kernel/impls.def"
#undef KERNEL_IMPL
    (void)features;
    (void)put_fixed;
    kernel_check_ranges(k);
}

static bool is_usable(enum cpu_level level)
{
    return levels[level] && cpu_has(level);
}

static void make_tables(void)
{
    for (int i = 0; i < CPU_LEVELS; i++)
        if (is_usable((enum cpu_level)i))
            make_table(&tables[i], (enum cpu_level)i, cpu_features());
}

const struct kernels *kernel_table(enum cpu_level level)
{
    pthread_once(&made, make_tables);
    return level < CPU_LEVELS && is_usable(level) ? &tables[level] : NULL;
}

bool kernel_variant(int i, struct kernels *out)
{
    int n = 0;
    for (int at = 0; at < CPU_LEVELS; at++) {
        if (!is_usable((enum cpu_level)at))
            continue;
        make_table(out, (enum cpu_level)at, 0);
        if (n++ == i)
            return true;
#define KERNEL_IMPL(set, isa, level, feature)                                                                \
    if (at == level && (cpu_features() & feature)) {                                                         \
        make_table(out, level, feature);                                                                     \
        if (n++ == i)                                                                                        \
            return true;                                                                                     \
    }
#include "kernel/impls.def"
#undef KERNEL_IMPL
    }
    return false;
}

const struct kernels *kernel_select(const char **why)
{
    enum cpu_level level;
    return cpu_select(&level, why) ? kernel_table(level) : NULL;
}
