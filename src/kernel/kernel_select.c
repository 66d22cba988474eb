/* Which level runs: what the processor and the operating system allow, and what MILKIT_CPU asks for. */
#include <stdlib.h>
#include <string.h>
#include "kernel/kernel_internal.h"

#if defined(__x86_64__)
#include <cpuid.h>

/* The state components that the operating system saves (XCR0); only valid when cpuid reports OSXSAVE. */
static uint64_t read_saved_states(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return ((uint64_t)high << 32) | low;
}

static bool processor_has(enum kernel_level level)
{
    enum { OSXSAVE = 1 << 27, AVX = 1 << 28, FMA = 1 << 12, F16C = 1 << 29 };          /* leaf 1, ecx */
    enum { AVX2 = 1 << 5, AVX512F = 1 << 16, AVX512DQ = 1 << 17, AVX512BW = 1 << 30 }; /* leaf 7, ebx */
    const uint32_t avx512vl = UINT32_C(1) << 31;                                       /* leaf 7, ebx */
    const uint64_t ymm_states = 0x6, zmm_states = 0xe6;
    uint32_t a, b, c, d;
    if (level == KERNEL_SCALAR)
        return true;
    if (!__get_cpuid(1, &a, &b, &c, &d))
        return false;
    const uint32_t need_1 = OSXSAVE | AVX | FMA | F16C;
    if ((c & need_1) != need_1)
        return false;
    uint64_t saved = read_saved_states();
    if ((saved & ymm_states) != ymm_states)
        return false;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & AVX2))
        return false;
    if (level == KERNEL_AVX2)
        return true;
    const uint32_t need_7 = AVX512F | AVX512DQ | AVX512BW | avx512vl;
    return level == KERNEL_AVX512 && (b & need_7) == need_7 && (saved & zmm_states) == zmm_states;
}

/* Of a processor that has KERNEL_AVX2. Before family 25, AMD's (and Hygon's) took hundreds of cycles for a pdep. */
static bool processor_has_fast_pdep(void)
{
    enum { BMI2 = 1 << 8 }; /* leaf 7, ebx */
    uint32_t a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & BMI2) || !__get_cpuid(0, &a, &b, &c, &d))
        return false;
    bool is_amd = memcmp(&b, "Auth", 4) == 0 || memcmp(&b, "Hygo", 4) == 0;
    if (!is_amd)
        return true;
    if (!__get_cpuid(1, &a, &b, &c, &d))
        return false;
    uint32_t family = (a >> 8 & 15) + (a >> 20 & 255);
    return family >= 25;
}

/* Of a processor that has KERNEL_AVX512. */
static bool processor_has_vnni(void)
{
    enum { VBMI = 1 << 1, VNNI = 1 << 11 }; /* leaf 7, ecx */
    uint32_t a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (c & (VBMI | VNNI)) == (VBMI | VNNI);
}
#endif

const struct kernels *kernel_table(enum kernel_level level)
{
    if (level == KERNEL_SCALAR)
        return &kernels_scalar;
#if defined(__x86_64__)
    if (level == KERNEL_AVX2 && processor_has(level))
        return processor_has_fast_pdep() ? &kernels_avx2_pdep : &kernels_avx2;
    if (level == KERNEL_AVX512 && processor_has(level))
        return processor_has_vnni() ? &kernels_avx512_vnni : &kernels_avx512;
#endif
    return NULL;
}

const struct kernels *kernel_variant(int i)
{
    const struct kernels *all[5] = {&kernels_scalar};
    int n = 1;
#if defined(__x86_64__)
    if (processor_has(KERNEL_AVX2))
        all[n++] = &kernels_avx2;
    if (processor_has(KERNEL_AVX2) && processor_has_fast_pdep())
        all[n++] = &kernels_avx2_pdep;
    if (processor_has(KERNEL_AVX512))
        all[n++] = &kernels_avx512;
    if (processor_has(KERNEL_AVX512) && processor_has_vnni())
        all[n++] = &kernels_avx512_vnni;
#endif
    return i < n ? all[i] : NULL;
}

const struct kernels *kernel_select(const char **why)
{
    static const char *const names[KERNEL_LEVELS] = {"scalar", "avx2", "avx512"};
    const char *forced = getenv("MILKIT_CPU");
    if (forced && *forced) {
        for (int level = 0; level < KERNEL_LEVELS; level++) {
            if (strcmp(forced, names[level]) != 0)
                continue;
            const struct kernels *k = kernel_table((enum kernel_level)level);
            if (!k && why)
                *why = "MILKIT_CPU names a level that this processor (or this build) does not have";
            return k;
        }
        if (why)
            *why = "MILKIT_CPU must be scalar, avx2 or avx512";
        return NULL;
    }
    for (int level = KERNEL_LEVELS - 1; level > KERNEL_SCALAR; level--) {
        const struct kernels *k = kernel_table((enum kernel_level)level);
        if (k)
            return k;
    }
    return &kernels_scalar;
}
