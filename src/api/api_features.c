#include "api/api_features.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "api/api_tensor.h"

void shape_text(char *dst, size_t room, int rank, const int64_t *dims)
{
    size_t n = (size_t)snprintf(dst, room, "[");
    for (int i = 0; i < rank && n < room; i++)
        n += (size_t)snprintf(dst + n, room - n, i ? ", %lld" : "%lld", (long long)dims[i]);
    if (n < room)
        snprintf(dst + n, room - n, "]");
}

/* ---- images ---- */

int32_t feature_color(const struct mil_feature *f, const struct mil_type *t)
{
    static const int32_t numbers[] = {0, MK_GRAY, MK_RGB, MK_BGR, MK_GRAY_F16};
    if (!f || f->kind != MIL_FEATURE_IMAGE || t->kind != MIL_TYPE_TENSOR || t->rank != 4)
        return 0;
    int64_t n_channels = f->color == MIL_COLOR_RGB || f->color == MIL_COLOR_BGR ? 3 : 1;
    return t->dims[0] == 1 && t->dims[1] == n_channels ? numbers[f->color] : 0;
}

void feature_view_pixels(mk_tensor *t, int32_t color)
{
    bool has_colors = color == MK_RGB || color == MK_BGR;
    int64_t bytes = (int64_t)tensor_type_bytes(t->type);
    if (t->rank != (has_colors ? 3 : 2) || (has_colors && t->dims[2] != 3 && t->dims[2] != 4))
        return;
    bool is_dense = true;
    for (int i = 0; i < t->rank; i++)
        is_dense = is_dense && t->strides[i] == 0;
    int64_t pixel = has_colors ? t->dims[2] * bytes : bytes;
    int64_t row = is_dense ? pixel * t->dims[1] : t->strides[0], column = is_dense ? pixel : t->strides[1],
            channel = !has_colors ? 0
                      : is_dense  ? bytes
                                  : t->strides[2];
    const int64_t planes[4] = {1, has_colors ? 3 : 1, t->dims[0], t->dims[1]};
    /* An axis of one element has any stride; all zeros would mean dense. */
    const int64_t apart[4] = {bytes, has_colors ? channel : bytes, row, column};
    t->rank = 4;
    memcpy(t->dims, planes, sizeof planes);
    memcpy(t->strides, apart, sizeof apart);
    if (color == MK_BGR) {
        t->data = t->data ? (char *)t->data + 2 * channel : NULL;
        t->strides[1] = -channel;
    }
}

bool feature_pixels(mk_tensor *t, int32_t color, const int64_t *dims, const float *src, struct err *e)
{
    int64_t n_channels = dims[1], n = dims[2] * dims[3];
    *t = (mk_tensor){.size = sizeof *t, .rank = n_channels == 3 ? 3 : 2, .dims = {dims[2], dims[3], 3}};
    if (n_channels != 3)
        t->dims[2] = 0;
    t->type = color == MK_GRAY_F16 ? MK_F16 : MK_U8;
    t->data = mem_try_alloc((size_t)(n * n_channels) * 2 + 1, e);
    for (int64_t i = 0; t->data && i < n * n_channels; i++) {
        int64_t pixel = i / n_channels, channel = i % n_channels;
        float v = src[(color == MK_BGR ? 2 - channel : channel) * n + pixel];
        if (color == MK_GRAY_F16)
            ((f16 *)t->data)[i] = f32_to_f16(v);
        else
            ((uint8_t *)t->data)[i] = !(v > 0) ? 0 : v >= 255 ? 255 : (uint8_t)lrintf(v);
    }
    return t->data != NULL;
}

/* ---- optional inputs, shapes ---- */

bool feature_default(mk_tensor *t, const struct mil_feature *f, const struct mil_type *type, struct err *e)
{
    int64_t n = 1;
    *t = (mk_tensor){.size = sizeof *t, .type = MK_F64, .rank = type->rank};
    for (int i = 0; i < type->rank; i++) {
        bool is_open = type->dims[i] == MIL_DIM_UNKNOWN;
        if (is_open && (!f->shape || f->rank != type->rank))
            return err_set(e, ERR_USAGE, "the optional input %s has no default shape", f->name);
        t->dims[i] = is_open ? f->shape[i] : type->dims[i];
        if (t->dims[i] > 0 && n > ((int64_t)1 << 32) / t->dims[i])
            return err_set(e, ERR_LIMIT, "the optional input %s has too many elements", f->name);
        n *= t->dims[i];
    }
    double *data = t->data = mem_try_alloc((size_t)n * sizeof *data + 1, e);
    for (int64_t i = 0; data && i < n; i++)
        data[i] = f->default_value;
    return data != NULL;
}

bool feature_allows(const struct mil_feature *f, const char *name, int rank, const int64_t *dims,
                    struct err *e)
{
    char found[256], expected[256];
    size_t used = 0;
    if (!f)
        return true;
    for (int i = 0; i < f->n_enumerated; i++)
        if (f->enumerated_ranks[i] == rank &&
            memcmp(f->enumerated[i], dims, sizeof *dims * (size_t)rank) == 0)
            return true;
    shape_text(found, sizeof found, rank, dims);
    if (f->n_enumerated > 0) {
        for (int i = 0; i < f->n_enumerated && used + 4 < sizeof expected; i++) {
            used += (size_t)snprintf(expected + used, sizeof expected - used, i ? " or " : "");
            if (used < sizeof expected)
                shape_text(expected + used, sizeof expected - used, f->enumerated_ranks[i], f->enumerated[i]);
            used = strlen(expected);
        }
        return err_set(e, ERR_USAGE, "input %s: expected %s, found the shape %s", name, expected, found);
    }
    for (int i = 0; i < f->n_ranges && f->n_ranges == rank; i++) {
        const struct mil_range r = f->ranges[i];
        if (dims[i] >= r.lower && (r.upper < 0 || dims[i] <= r.upper))
            continue;
        if (r.upper < 0)
            return err_set(e, ERR_USAGE, "input %s: expected %lld or more on axis %d, found the shape %s",
                           name, (long long)r.lower, i, found);
        return err_set(e, ERR_USAGE, "input %s: expected %lld to %lld on axis %d, found the shape %s", name,
                       (long long)r.lower, (long long)r.upper, i, found);
    }
    return true;
}

/* ---- classifiers ---- */

/* The operation that names a class, when a function ends with one. */
static const struct mil_op *classify_of(const struct mil_block *b, int *at)
{
    for (int i = 0; i < b->n_ops; i++) {
        if (mil_op_is(b->ops[i], "classify")) {
            *at = i;
            return b->ops[i];
        }
    }
    return NULL;
}

/* The value that class *i is in, a list's member or the one of all, and its place there. */
static const struct mil_value *class_value(const struct mil_value *classes, int64_t *i)
{
    if (classes->kind != MIL_VALUE_ITEMS)
        return classes;
    const struct mil_value *v = classes->items[*i];
    *i = 0;
    return v;
}

char *classifier_text(const struct classifier *c, int64_t i)
{
    const struct mil_value *v = class_value(c->classes, &i);
    return xasprintf("%.*s", (int)v->strings[i].n, v->strings[i].p);
}

int64_t classifier_number(const struct classifier *c, int64_t i)
{
    const struct mil_value *v = class_value(c->classes, &i);
    return (int64_t)mil_value_element(v, i);
}

bool classifier_split(struct classifier *c, struct mil_function *f, struct arena *a, struct err *e)
{
    struct mil_block *b = f->block;
    int at, n = 0;
    const struct mil_op *op = classify_of(b, &at);
    *c = (struct classifier){0};
    if (!op)
        return true;
    struct mil_var *numbers = mil_arg_var(op, "probabilities");
    const struct mil_value *classes = mil_arg_value(op, "classes");
    int64_t n_classes = !classes ? 0 : classes->kind == MIL_VALUE_ITEMS ? classes->n_items : classes->n_elems;
    bool is_text = true, is_int = true;
    for (int64_t i = 0; i < n_classes; i++) {
        const struct mil_value *v = class_value(classes, &(int64_t){i});
        is_text = is_text && v->kind == MIL_VALUE_TENSOR && v->strings && v->n_elems > 0;
        is_int = is_int && v->kind == MIL_VALUE_TENSOR && v->data && v->n_elems > 0 &&
                 !mil_dtype_is_float(v->type->dtype);
    }
    if (!numbers || op->n_outputs != 2 || n_classes < 1 || !(is_text || is_int))
        return err_set(e, ERR_UNSUPPORTED, "function %s: classes that are neither texts nor integers",
                       f->name);
    struct mil_var **outputs = ARENA_ARRAY(a, struct mil_var *, b->n_outputs + 1);
    const struct mil_var **seen = ARENA_ARRAY(a, const struct mil_var *, b->n_outputs);
    c->i_numbers = -1;
    for (int i = 0; i < b->n_outputs; i++) {
        seen[i] = b->outputs[i];
        if (b->outputs[i] == op->outputs[0])
            c->label = seen[i];
        else if (b->outputs[i] == op->outputs[1])
            c->scores = seen[i];
        else if ((outputs[n++] = b->outputs[i]) == numbers)
            c->i_numbers = n - 1;
    }
    if (c->i_numbers < 0) {
        c->i_numbers = n;
        outputs[n++] = numbers;
    }
    c->classes = classes;
    c->n_classes = n_classes;
    c->is_text = is_text;
    c->n_outputs = b->n_outputs;
    c->outputs = seen;
    b->outputs = outputs;
    b->n_outputs = n;
    for (int i = at; i + 1 < b->n_ops; i++)
        b->ops[i] = b->ops[i + 1];
    b->n_ops--;
    return true;
}
