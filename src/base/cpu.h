/* What this processor can do, and what of it may be used: the one place that asks, for kernels and for every other loop
 * that is compiled for more than one instruction set.
 */
#ifndef MILKIT_BASE_CPU_H
#define MILKIT_BASE_CPU_H

#include <stdbool.h>

enum cpu_level {
#define CPU_LEVEL(id, name) CPU_##id,
#include "base/cpu.def"
#undef CPU_LEVEL
    CPU_LEVELS
};

/* What only some processors of a level have, as bits. CPU_FAST_PDEP: BMI2 with a pdep of few cycles. CPU_VNNI: AVX-512 VBMI
 * and VNNI. */
enum cpu_feature { CPU_FAST_PDEP = 1 << 0, CPU_VNNI = 1 << 1 };

/* "scalar", ... */
const char *cpu_level_name(enum cpu_level level);
/* This processor, this operating system and this build have the level. */
bool cpu_has(enum cpu_level level);
/* The features beyond the levels that this processor has; each needs its level, too. */
unsigned cpu_features(void);

/* The level to use: the best one, or the one that MILKIT_CPU in the environment names. False when that is unknown or missing
 * here; *why (static text) says which. */
bool cpu_select(enum cpu_level *level, const char **why);
/* The same for loops that have no way to report: what MILKIT_CPU names in vain counts as the best level. Programs ask
 * cpu_select once. */
enum cpu_level cpu_level_in_use(void);

#endif
