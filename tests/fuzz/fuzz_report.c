// links: device
/* Any bytes as the report of a Mac: points that are taken are of a known chip, with numbers that a fit can use. */
#include <stdlib.h>
#include "device/report.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct report r = {0};
    struct err e = {0};
    struct arena *a = arena_new(0);
    bool ok = report_parse(&r, (const char *)data, size, "fuzz", a, &e);
    if (ok ? r.n == 0 : e.code == ERR_NONE)
        abort();
    for (int i = 0; i < r.n; i++) {
        const struct chip *chip;
        const struct speed_point *p = &r.points[i];
        if (!chip_find(&chip, p->chip, NULL) || !p->model || !p->weights || !p->remark || !p->source)
            abort();
        if (!(p->calls > 0 && p->ops > 0 && p->weight_mb > 0 && p->cache_mb > 0 && p->tokens_per_s > 0))
            abort();
    }
    arena_free(a);
    return 0;
}
