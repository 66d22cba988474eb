/* What numbers become: as results and as operands. */
#include <math.h>
#include <string.h>
#include "engine/ane.h"

float ane_round(double v)
{
    double a = fabs(v), step, inverse;
    uint64_t bits;
    if (!(a < 0x1p17))
        return v < 0 ? -INFINITY : INFINITY;
    memcpy(&bits, &a, 8);
    int e = (int)(bits >> 52) - 1023;
    e = e < -14 ? -14 : e;
    bits = (uint64_t)(e - 10 + 1023) << 52;
    memcpy(&step, &bits, 8);
    bits = (uint64_t)(10 - e + 1023) << 52;
    memcpy(&inverse, &bits, 8);
    double y = (double)(int64_t)(a * inverse + 0.5) * step;
    if (y >= 65520)
        y = INFINITY;
    return (float)(v < 0 && y > 0 ? -y : y);
}

double ane_number(float v)
{
    if (isnan(v))
        return 98304;
    return v > 65536 ? 65536 : v < -65536 ? -65536 : (double)v;
}
