/* Strided values: reshaping without moving data, and walking several values as few nested loops as possible.
 */
#include "engine/plan.h"

/* Of tensors without elements other axes may be of any size, so that only products of all axes are taken that are known
 * to be elements. */
int64_t dims_product(const int64_t *dims, int n)
{
    int64_t product = 1;
    for (int i = 0; i < n; i++)
        if (dims[i] == 0)
            return 0;
    for (int i = 0; i < n; i++)
        product *= dims[i];
    return product;
}

void dense_strides(int rank, const int64_t *dims, int64_t *strides)
{
    int64_t stride = dims_product(dims, rank) == 0 ? 0 : 1;
    for (int i = rank - 1; i >= 0; i--) {
        strides[i] = stride;
        stride *= stride ? dims[i] : 1;
    }
}

bool is_dense(const struct value *v)
{
    int64_t stride = 1;
    if (value_elems(v) == 0)
        return true;
    for (int i = v->rank - 1; i >= 0; i--) {
        if (v->dims[i] != 1 && v->strides[i] != stride)
            return false;
        stride *= v->dims[i];
    }
    return true;
}

int64_t value_elems(const struct value *v)
{
    return dims_product(v->dims, v->rank);
}

bool view_reshape(const struct value *v, int rank, const int64_t *dims, struct value *out)
{
    int64_t old_dims[MIL_RANK_MAX], old_strides[MIL_RANK_MAX], strides[MIL_RANK_MAX] = {0};
    int n_old = 0;
    if (value_elems(v) == 0) { /* no element has a place */
        *out = *v;
        out->rank = rank;
        for (int i = 0; i < rank; i++)
            out->dims[i] = dims[i];
        dense_strides(rank, dims, out->strides);
        return true;
    }
    for (int i = 0; i < v->rank; i++) {
        if (v->dims[i] == 1)
            continue;
        old_dims[n_old] = v->dims[i];
        old_strides[n_old++] = v->strides[i];
    }
    /* Walk both lists in groups of equal products; a group can be re-split when its old axes are contiguous.
     */
    int i_old = 0, i_new = 0;
    while (i_old < n_old && i_new < rank) {
        int end_old = i_old + 1, end_new = i_new + 1;
        int64_t p_old = old_dims[i_old], p_new = dims[i_new];
        while (p_old != p_new) {
            if (p_new < p_old) {
                if (end_new >= rank)
                    return false;
                p_new *= dims[end_new++];
            } else {
                if (end_old >= n_old)
                    return false;
                p_old *= old_dims[end_old++];
            }
        }
        for (int i = i_old; i < end_old - 1; i++)
            if (old_strides[i] != old_dims[i + 1] * old_strides[i + 1])
                return false;
        strides[end_new - 1] = old_strides[end_old - 1];
        for (int i = end_new - 1; i > i_new; i--)
            strides[i - 1] = strides[i] * dims[i];
        i_old = end_old;
        i_new = end_new;
    }
    *out = *v;
    out->rank = rank;
    for (int i = 0; i < rank; i++) {
        out->dims[i] = dims[i];
        out->strides[i] = strides[i];
    }
    return true;
}

int coalesce(int rank, int64_t *dims, int n, int64_t strides[][MIL_RANK_MAX])
{
    int out = 0;
    for (int i = 0; i < rank; i++) {
        if (dims[i] == 1)
            continue;
        bool merge = out > 0;
        for (int k = 0; merge && k < n; k++)
            merge = strides[k][out - 1] == dims[i] * strides[k][i];
        if (merge) {
            dims[out - 1] *= dims[i];
        } else {
            dims[out] = dims[i];
            out++;
        }
        for (int k = 0; k < n; k++)
            strides[k][out - 1] = strides[k][i];
    }
    if (out == 0) {
        dims[0] = 1;
        for (int k = 0; k < n; k++)
            strides[k][0] = 1;
        out = 1;
    }
    return out;
}

void axes_by_stride(const struct value *v, int order[MIL_RANK_MAX])
{
    for (int i = 0; i < v->rank; i++) {
        int at = i;
        while (at > 0 && v->strides[order[at - 1]] < v->strides[i]) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = i;
    }
}
