/* Names of what the system may choose from. */
#include <string.h>
#include "coreml/coreml.h"

bool coreml_units_find(const char *name, enum coreml_units *out, struct err *e)
{
    static const char *const names[] = {[COREML_CPU_AND_ENGINE] = "cpu-and-ane",
                                        [COREML_CPU_AND_GPU] = "cpu-and-gpu",
                                        [COREML_CPU_ONLY] = "cpu-only",
                                        [COREML_ALL] = "all"};
    *out = COREML_CPU_AND_ENGINE;
    for (size_t i = 0; name && i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (enum coreml_units)i;
            return true;
        }
    return !name ||
           err_set(e, ERR_USAGE,
                   "compute units: expected cpu-and-ane, cpu-and-gpu, cpu-only or all, found '%s'", name);
}
