/* Which instruction sets there are: cpuid, what the operating system saves, and what MILKIT_CPU asks for. */
#include "base/cpu.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>

/* The state components that the operating system saves (XCR0); only valid when cpuid reports OSXSAVE. */
static uint64_t read_saved_states(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return ((uint64_t)high << 32) | low;
}

bool cpu_has(enum cpu_level level)
{
    enum { OSXSAVE = 1 << 27, AVX = 1 << 28, FMA = 1 << 12, F16C = 1 << 29 };          /* leaf 1, ecx */
    enum { AVX2 = 1 << 5, AVX512F = 1 << 16, AVX512DQ = 1 << 17, AVX512BW = 1 << 30 }; /* leaf 7, ebx */
    const uint32_t avx512vl = UINT32_C(1) << 31;                                       /* leaf 7, ebx */
    const uint64_t ymm_states = 0x6, zmm_states = 0xe6;
    uint32_t a, b, c, d;
    if (level == CPU_SCALAR)
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
    if (level == CPU_AVX2)
        return true;
    const uint32_t need_7 = AVX512F | AVX512DQ | AVX512BW | avx512vl;
    return level == CPU_AVX512 && (b & need_7) == need_7 && (saved & zmm_states) == zmm_states;
}

/* Before family 25, AMD's (and Hygon's) processors took hundreds of cycles for a pdep. */
static bool has_fast_pdep(void)
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

static bool has_vnni(void)
{
    enum { VBMI = 1 << 1, VNNI = 1 << 11 }; /* leaf 7, ecx */
    uint32_t a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (c & (VBMI | VNNI)) == (VBMI | VNNI);
}

unsigned cpu_features(void)
{
    return (has_fast_pdep() ? CPU_FAST_PDEP : 0u) | (has_vnni() ? CPU_VNNI : 0u);
}
#else
bool cpu_has(enum cpu_level level)
{
    return level == CPU_SCALAR;
}

unsigned cpu_features(void)
{
    return 0;
}
#endif

const char *cpu_level_name(enum cpu_level level)
{
    static const char *const names[CPU_LEVELS] = {
#define CPU_LEVEL(id, name) #name,
#include "base/cpu.def"
#undef CPU_LEVEL
    };
    return names[level];
}

bool cpu_select(enum cpu_level *level, const char **why)
{
    const char *forced = getenv("MILKIT_CPU");
    int i = CPU_LEVELS - 1;
    if (forced && *forced) {
        while (i >= 0 && strcmp(forced, cpu_level_name((enum cpu_level)i)) != 0)
            i--;
        if (i < 0) {
            *why = "MILKIT_CPU must be scalar, avx2 or avx512";
            return false;
        }
        if (!cpu_has((enum cpu_level)i)) {
            *why = "MILKIT_CPU names a level that this processor (or this build) does not have";
            return false;
        }
    } else {
        while (!cpu_has((enum cpu_level)i))
            i--;
    }
    *level = (enum cpu_level)i;
    return true;
}

enum cpu_level cpu_level_in_use(void)
{
    enum cpu_level level;
    const char *why;
    if (cpu_select(&level, &why))
        return level;
    int i = CPU_LEVELS - 1;
    while (!cpu_has((enum cpu_level)i))
        i--;
    return (enum cpu_level)i;
}
