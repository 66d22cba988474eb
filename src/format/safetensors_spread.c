/* Where the numbers of tensors lie: what a reader that expects them somewhere else must ask. */
#include <stdlib.h>
#include "format/safetensors.h"

static int compare_numbers(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

bool st_spread(const struct st_tensor *const *tensors, int64_t n_tensors, struct st_spread *out,
               struct err *e)
{
    size_t n = 0, bytes;
    double *numbers = NULL;
    bool ok = true;
    *out = (struct st_spread){0};
    for (int64_t i = 0; i < n_tensors; i++)
        n += (size_t)tensors[i]->n_elems;
    if (n == 0)
        return true;
    if (!size_mul(n, sizeof *numbers, &bytes))
        return err_set(e, ERR_LIMIT, "%zu numbers do not fit in memory", n);
    if (!(numbers = mem_try_alloc(bytes, e)))
        return false;
    for (int64_t i = 0, at = 0; i < n_tensors && ok; at += tensors[i++]->n_elems)
        ok = st_read_f64(tensors[i], 0, tensors[i]->n_elems, numbers + at, e);
    if (ok) {
        size_t n_negative = 0;
        qsort(numbers, n, sizeof *numbers, compare_numbers);
        while (n_negative < n && numbers[n_negative] < 0)
            n_negative++;
        *out = (struct st_spread){(int64_t)n, numbers[n / 2], (double)n_negative / (double)n};
    }
    mem_free(numbers);
    return ok;
}
