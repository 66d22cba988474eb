/* Loops that do nothing but read, or nothing but multiply. */
#include "measure/machine.h"
#include <math.h>
#include "base/cpu.h"
#include "base/log.h"

struct reading {
    const struct machine_span *spans;
    int n;
    _Atomic uint64_t sum; /* so that nothing of it can be left out */
};

static void read_part(void *context, int i_thread, int n_threads)
{
    struct reading *r = context;
    uint64_t sum[8] = {0};
    for (int f = 0; f < r->n; f++) {
        int64_t n = (int64_t)(r->spans[f].bytes / 64), begin, end;
        const uint64_t *p = r->spans[f].data;
        pool_split(n, 64, i_thread, n_threads, &begin, &end);
        for (int64_t i = begin; i < end; i++)
            for (int k = 0; k < 8; k++)
                sum[k] += p[8 * i + k];
    }
    for (int k = 1; k < 8; k++)
        sum[0] += sum[k];
    r->sum += sum[0];
}

double machine_read(struct pool *pool, const struct machine_span *spans, int n)
{
    struct reading r = {.spans = spans, .n = n};
    double start = clock_seconds();
    pool_run(pool, read_part, &r);
    return clock_seconds() - start;
}

#if defined(__x86_64__)
enum { PEAK_STEPS = 400000, PEAK_SUMS = 12, PEAK_TRIES = 5 };

/* Twelve independent sums in registers 0 to 11, all zeros; in assembly, because no compiler may move or keep them elsewhere. */
#define DEFINE_PEAK(name, step)                                                                              \
    static void name(void *context, int i_thread, int n_threads)                                             \
    {                                                                                                        \
        uint64_t n = PEAK_STEPS;                                                                             \
        (void)context, (void)i_thread, (void)n_threads;                                                      \
        __asm__ volatile("vzeroall\n1:\n\t" step("0") step("1") step("2") step("3") step("4") step("5")      \
                             step("6") step("7") step("8") step("9") step("10")                              \
                                 step("11") "decq %0\n\tjnz 1b"                                              \
                         : "+r"(n)                                                                           \
                         :                                                                                   \
                         : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",     \
                           "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");                    \
    }
#define STEP_FMA_256(i) "vfmadd231ps %%ymm15, %%ymm15, %%ymm" i "\n\t"
#define STEP_FMA_512(i) "vfmadd231ps %%zmm15, %%zmm15, %%zmm" i "\n\t"
#define STEP_MADD_256(i) "vpmaddwd %%ymm15, %%ymm15, %%ymm14\n\tvpaddd %%ymm14, %%ymm" i ", %%ymm" i "\n\t"
#define STEP_MADD_512(i) "vpmaddwd %%zmm15, %%zmm15, %%zmm14\n\tvpaddd %%zmm14, %%zmm" i ", %%zmm" i "\n\t"
#define STEP_VNNI_512(i) "vpdpwssd %%zmm15, %%zmm15, %%zmm" i "\n\t"
DEFINE_PEAK(peak_fma_256, STEP_FMA_256)
DEFINE_PEAK(peak_fma_512, STEP_FMA_512)
DEFINE_PEAK(peak_madd_256, STEP_MADD_256)
DEFINE_PEAK(peak_madd_512, STEP_MADD_512)
DEFINE_PEAK(peak_vnni_512, STEP_VNNI_512)

double machine_peak(struct pool *pool, enum machine_unit unit, const char **instruction)
{
    enum cpu_level level = cpu_level_in_use();
    bool wide = level == CPU_AVX512, vnni = wide && (cpu_features() & CPU_VNNI);
    pool_fn loop = unit == MACHINE_FMA32 ? (wide ? peak_fma_512 : peak_fma_256)
                   : vnni                ? peak_vnni_512
                   : wide                ? peak_madd_512
                                         : peak_madd_256;
    if (instruction)
        *instruction = unit == MACHINE_FMA32 ? "vfmadd231ps" : vnni ? "vpdpwssd" : "vpmaddwd";
    if (level == CPU_SCALAR)
        return 0;
    double per_step = (wide ? 16 : 8) * (unit == MACHINE_FMA32 ? 1 : 2);
    double best = 1e9;
    for (int i = 0; i < PEAK_TRIES;
         i++) { /* what others take of the processor says nothing of the instruction */
        double start = clock_seconds();
        pool_run(pool, loop, NULL);
        best = fmin(best, clock_seconds() - start);
    }
    return per_step * PEAK_STEPS * PEAK_SUMS * pool_threads(pool) / best;
}
#else
double machine_peak(struct pool *pool, enum machine_unit unit, const char **instruction)
{
    (void)pool, (void)unit;
    if (instruction)
        *instruction = "";
    return 0;
}
#endif
