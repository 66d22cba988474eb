/* Types, values and numbers of the text form, printed. */
#include <inttypes.h>
#include <string.h>
#include "mil/text.h"
#include "mil/text_number_internal.h"
#include "mil/text_writer_internal.h"

/* Types and values nest at most this deep, as in the reader. */
#define NESTING_MAX 64
/* Rows without elements that a value may have. */
#define EMPTY_ROWS_MAX 100000

bool text_put_name(struct text_writer *w, const char *name)
{
    bool ok =
        name && ((name[0] >= 'a' && name[0] <= 'z') || (name[0] >= 'A' && name[0] <= 'Z') || name[0] == '_');

    for (const char *s = name; ok && *s; s++)
        ok = (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || (*s >= '0' && *s <= '9') || *s == '_' ||
             *s == '@';
    if (!ok)
        return err_set(w->e, ERR_UNSUPPORTED, "the name \"%.200s\" can't be written in the text form",
                       name ? name : "");
    buf_puts(w->out, name);
    return true;
}

static void put_unsigned(struct buf *out, uint64_t v)
{
    char s[20];
    size_t i = sizeof s;

    do
        s[--i] = (char)('0' + v % 10);
    while (v /= 10);
    buf_append(out, s + i, sizeof s - i);
}

void text_put_signed(struct buf *out, int64_t v)
{
    if (v < 0)
        buf_putc(out, '-');
    put_unsigned(out, v < 0 ? (uint64_t)0 - (uint64_t)v : (uint64_t)v);
}

void text_put_string(struct buf *out, const char *s, size_t n)
{
    buf_putc(out, '"');
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c == '"' || c == '\\')
            buf_printf(out, "\\%c", c);
        else if (c == '\n')
            buf_puts(out, "\\n");
        else if (c < 0x20 || c == 0x7f)
            buf_printf(out, "\\x%02x", c);
        else
            buf_putc(out, (char)c);
    }
    buf_putc(out, '"');
}

/* ---- types ---- */

static void put_dim(struct buf *out, int64_t dim)
{
    if (dim == MIL_DIM_UNKNOWN)
        buf_putc(out, '?');
    else if (dim == MIL_DIM_VARIADIC)
        buf_puts(out, "...");
    else
        text_put_signed(out, dim);
}

void text_put_scalar(struct text_writer *w, enum mil_dtype d)
{
    buf_printf(w->out, w->bare_scalars ? "%s" : "tensor<%s, []>", mil_dtype_name(d));
}

static bool put_type_items(struct text_writer *w, const char *name, const struct mil_type *const *items,
                           int n)
{
    buf_printf(w->out, "%s<", name);
    for (int i = 0; i < n; i++) {
        if (i > 0)
            buf_puts(w->out, ", ");
        if (!text_put_type(w, items[i]))
            return false;
    }
    return true;
}

static bool put_type_inside(struct text_writer *w, const struct mil_type *t)
{
    switch (t->kind) {
    case MIL_TYPE_TENSOR:
        if (t->dtype == MIL_DTYPE_NONE)
            return err_set(w->e, ERR_UNSUPPORTED, "an element type that the text form does not have");
        if (t->rank == 0) {
            text_put_scalar(w, t->dtype);
            return true;
        }
        buf_printf(w->out, "tensor<%s, [", mil_dtype_name(t->dtype));
        for (int i = 0; i < t->rank; i++) {
            if (i > 0)
                buf_puts(w->out, ", ");
            put_dim(w->out, t->dims[i]);
        }
        buf_puts(w->out, "]>");
        return true;
    case MIL_TYPE_LIST:
        if (!put_type_items(w, "list", &t->elem, 1))
            return false;
        buf_puts(w->out, ", ");
        put_dim(w->out, t->length);
        break;
    case MIL_TYPE_TUPLE:
        if (t->n_items == 0)
            return err_set(w->e, ERR_UNSUPPORTED, "a tuple without items has no text form");
        if (!put_type_items(w, "tuple", t->items, t->n_items))
            return false;
        break;
    case MIL_TYPE_DICT:
        if (!put_type_items(w, "dict", t->items, t->n_items))
            return false;
        break;
    case MIL_TYPE_STATE:
        if (!put_type_items(w, "state", &t->elem, 1))
            return false;
        break;
    }
    buf_putc(w->out, '>');
    return true;
}

bool text_put_type(struct text_writer *w, const struct mil_type *t)
{
    if (!t)
        return err_set(w->e, ERR_BUG, "a variable or value without a type");
    if (w->depth == NESTING_MAX)
        return err_set(w->e, ERR_LIMIT, "a type of more than %d levels", NESTING_MAX);
    w->depth++;
    bool ok = put_type_inside(w, t);
    w->depth--;
    return ok;
}

/* ---- values ---- */

struct tensor_printing {
    const struct mil_value *v;
    enum mil_dtype dtype;
    int rank;
    int64_t dims[MIL_RANK_MAX];
    bool is_float, is_signed;
    int64_t next;
};

static void put_element(struct buf *out, struct tensor_printing *t)
{
    int64_t i = t->next++;

    if (t->dtype == MIL_STRING) {
        text_put_string(out, t->v->strings[i].p, t->v->strings[i].n);
        return;
    }
    uint64_t bits = text_number_load(t->v->data, t->dtype, i);
    if (t->dtype == MIL_BOOL)
        buf_puts(out, bits ? "true" : "false");
    else if (t->is_float)
        mil_text_put_float(out, text_number_decode_float(t->dtype, bits));
    else if (t->is_signed)
        text_put_signed(out, text_number_sign_extend(t->dtype, bits));
    else
        put_unsigned(out, bits);
}

static void put_rows(struct buf *out, struct tensor_printing *t, int level)
{
    if (level == t->rank) {
        put_element(out, t);
        return;
    }
    buf_putc(out, '[');
    for (int64_t i = 0; i < t->dims[level] && !out->failed; i++) {
        if (i > 0)
            buf_append(out, ", ", 2);
        put_rows(out, t, level + 1);
    }
    buf_putc(out, ']');
}

/* Dimensions of an immediate tensor: a single "?" follows from the elements. */
static bool tensor_dims(struct text_writer *w, const struct mil_type *type, const struct mil_value *v,
                        struct tensor_printing *t)
{
    int unknown = -1;
    int64_t product = 1;

    for (int i = 0; i < type->rank; i++) {
        t->dims[i] = type->dims[i];
        if (t->dims[i] < 0) {
            if (unknown >= 0 || t->dims[i] != MIL_DIM_UNKNOWN)
                return err_set(w->e, ERR_UNSUPPORTED, "a value whose dimensions are not known");
            unknown = i;
        } else if (__builtin_mul_overflow(product, t->dims[i], &product)) {
            return err_set(w->e, ERR_FORMAT, "the dimensions of a value overflow");
        }
    }
    if (unknown >= 0) {
        if (product == 0 || v->n_elems % product != 0)
            return err_set(w->e, ERR_UNSUPPORTED, "a value whose dimensions do not follow from its elements");
        t->dims[unknown] = v->n_elems / product;
        product = v->n_elems;
    }
    if (product != v->n_elems)
        return err_set(w->e, ERR_FORMAT, "a value of %" PRId64 " elements, its type says %" PRId64,
                       v->n_elems, product);
    for (int64_t i = 0, rows = 1; i < type->rank && v->n_elems == 0; i++) {
        if (__builtin_mul_overflow(rows, t->dims[i], &rows) || rows > EMPTY_ROWS_MAX)
            return err_set(w->e, ERR_LIMIT, "a value without elements, but of more than %d rows",
                           EMPTY_ROWS_MAX);
        if (rows == 0)
            break;
    }
    return true;
}

static bool put_tensor(struct text_writer *w, const struct mil_type *type, const struct mil_value *v)
{
    struct tensor_printing t = {.v = v, .dtype = type->dtype, .rank = type->rank};
    int bits = mil_dtype_bits(type->dtype);

    if (type->rank < 0 || type->rank > MIL_RANK_MAX)
        return err_set(w->e, ERR_BUG, "a value of rank %d", type->rank);
    if (!tensor_dims(w, type, v, &t))
        return false;
    if (t.dtype == MIL_STRING ? v->n_elems > 0 && !v->strings
                              : bits == 0 || (v->n_elems > 0 && !v->data) ||
                                    (uint64_t)v->n_elems > (uint64_t)v->bytes * 8 / (uint64_t)bits)
        return err_set(w->e, ERR_FORMAT, "a value of type %s without its data", mil_dtype_name(t.dtype));
    t.is_float = mil_dtype_is_float(t.dtype);
    t.is_signed = text_number_is_signed(t.dtype);
    put_rows(w->out, &t, 0);
    return true;
}

/* Inside a value, types come from the outermost one. */
static bool put_raw(struct text_writer *w, const struct mil_type *type, const struct mil_value *v);

static bool put_item(struct text_writer *w, const struct mil_type *type, const struct mil_value *v, int i)
{
    switch (type->kind) {
    case MIL_TYPE_LIST:
        return put_raw(w, type->elem, v->items[i]);
    case MIL_TYPE_TUPLE:
        return put_raw(w, type->items[i], v->items[i]);
    default:
        buf_putc(w->out, '{');
        if (!put_raw(w, type->items[0], v->items[2 * i]))
            return false;
        buf_puts(w->out, ", ");
        if (!put_raw(w, type->items[1], v->items[2 * i + 1]))
            return false;
        buf_putc(w->out, '}');
        return true;
    }
}

static bool put_items(struct text_writer *w, const struct mil_type *type, const struct mil_value *v)
{
    const char *brackets = type->kind == MIL_TYPE_LIST ? "[]" : type->kind == MIL_TYPE_TUPLE ? "()" : "{}";
    bool fits = type->kind == MIL_TYPE_LIST    ? type->length < 0 || type->length == v->n_items
                : type->kind == MIL_TYPE_TUPLE ? type->n_items == v->n_items
                                               : type->n_items == 2 && v->n_items % 2 == 0;
    int n = type->kind == MIL_TYPE_DICT ? v->n_items / 2 : v->n_items;

    if (!fits)
        return err_set(w->e, ERR_FORMAT, "a value of %d items does not fit its type", v->n_items);
    buf_putc(w->out, brackets[0]);
    for (int i = 0; i < n; i++) {
        if (i > 0)
            buf_puts(w->out, ", ");
        if (!put_item(w, type, v, i))
            return false;
    }
    buf_putc(w->out, brackets[1]);
    return true;
}

static bool put_raw(struct text_writer *w, const struct mil_type *type, const struct mil_value *v)
{
    bool ok;

    if (!v || !type)
        return err_set(w->e, ERR_BUG, "a value without content");
    if (w->depth == NESTING_MAX)
        return err_set(w->e, ERR_LIMIT, "a value of more than %d levels", NESTING_MAX);
    w->depth++;
    if (v->kind == MIL_VALUE_TENSOR && type->kind == MIL_TYPE_TENSOR)
        ok = put_tensor(w, type, v);
    else if (v->kind == MIL_VALUE_ITEMS && type->kind != MIL_TYPE_TENSOR && type->kind != MIL_TYPE_STATE)
        ok = put_items(w, type, v);
    else if (v->kind == MIL_VALUE_WEIGHT)
        ok = err_set(w->e, ERR_BUG, "a weight that is in no file yet (%s)",
                     v->weight && v->weight->name ? v->weight->name : "unnamed");
    else
        ok = err_set(w->e, ERR_UNSUPPORTED, "a value that has no text form");
    w->depth--;
    return ok;
}

bool text_put_value(struct text_writer *w, const struct mil_value *v)
{
    if (!v)
        return err_set(w->e, ERR_BUG, "an attribute without a value");
    if (!text_put_type(w, v->type))
        return false;
    buf_putc(w->out, '(');
    if (v->kind == MIL_VALUE_BLOB) {
        buf_puts(w->out, "BLOBFILE(path = ");
        text_put_scalar(w, MIL_STRING);
        buf_putc(w->out, '(');
        text_put_string(w->out, v->file, strlen(v->file));
        buf_puts(w->out, "), offset = ");
        text_put_scalar(w, MIL_UINT64);
        buf_printf(w->out, "(%" PRIu64 ")))", v->offset);
        return true;
    }
    if (!put_raw(w, v->type, v))
        return false;
    buf_putc(w->out, ')');
    return true;
}
