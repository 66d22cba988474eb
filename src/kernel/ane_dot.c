/* Which form of the sum runs. */
#include "kernel/ane_dot.h"
#include "base/cpu.h"

ane_dot_fn ane_dot_select(void)
{
#if defined(__x86_64__)
    if (cpu_level_in_use() >= CPU_AVX2)
        return ane_dot_avx2;
#endif
    return ane_dot_scalar;
}
