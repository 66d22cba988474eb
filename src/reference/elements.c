/* The numbers of a weight: where they lie, and as float32. */
#include <math.h>
#include <string.h>
#include "base/half.h"
#include "reference/reference_internal.h"

#define CONVERT_AT_ONCE 512

/* Types that are wider than float32, or whose numbers need their scales. */
static void read_wide(const struct st_tensor *t, int64_t begin, int64_t n, float *dst)
{
    double block[CONVERT_AT_ONCE];
    for (int64_t done = 0; done < n;) {
        int64_t part = n - done < CONVERT_AT_ONCE ? n - done : CONVERT_AT_ONCE;
        bool ok = st_read_f64(t, begin + done, part, block, NULL);
        for (int64_t i = 0; i < part; i++)
            dst[done + i] = ok ? (float)block[i] : NAN; /* can't fail: the type was looked at on opening */
        done += part;
    }
}

/* Elements begin .. begin + n of a weight. Its bytes need not be aligned in the file. */
void reference_read_elements(const struct st_tensor *t, int64_t begin, int64_t n, float *dst)
{
    const uint8_t *from = t->data + (size_t)begin * st_dtype_bytes(t->dtype);
    uint16_t halves[CONVERT_AT_ONCE];
    if (t->scale || t->packed || t->dtype == ST_F64) {
        read_wide(t, begin, n, dst);
        return;
    }
    if (t->dtype == ST_F32) {
        memcpy(dst, from, (size_t)n * sizeof *dst);
        return;
    }
    while (n > 0) {
        size_t part = n < CONVERT_AT_ONCE ? (size_t)n : CONVERT_AT_ONCE;
        memcpy(halves, from, part * sizeof *halves);
        if (t->dtype == ST_F16)
            f16_to_f32_n(dst, halves, part);
        else
            bf16_to_f32_n(dst, halves, part);
        from += part * sizeof *halves;
        dst += part;
        n -= (int64_t)part;
    }
}

void reference_locate(const struct reference *r, const struct st_tensor *weight,
                      const struct st_tensor **whole, int64_t *first)
{
    *whole = safetensors_find(r->parts->tensors, weight->name);
    /* Only plain numbers are seen as parts of a tensor. */
    *first = weight->packed ? 0 : (weight->data - (*whole)->data) / (int64_t)st_dtype_bytes(weight->dtype);
}
