/* Tensors of the library from and to safetensors files. */
#include "cli/tensor_file.h"
#include <stdlib.h>
#include <string.h>
#include "cli/cli.h"
#include "format/safetensors.h"

struct tensor_file {
    struct safetensors *file;
    mk_tensor *tensors; /* [n_tensors] */
    void **own;         /* [n_tensors]: data that is not the mapping's */
};

/* The MK_ type whose elements lie like those of the file; 0: read as float32. */
static int32_t type_of(enum st_dtype d)
{
    switch (d) {
    case ST_F32:
        return MK_F32;
    case ST_F16:
        return MK_F16;
    case ST_F64:
        return MK_F64;
    case ST_I32:
        return MK_I32;
    case ST_I16:
        return MK_I16;
    case ST_I8:
        return MK_I8;
    case ST_U8:
        return MK_U8;
    case ST_BOOL:
        return MK_BOOL;
    default:
        return 0;
    }
}

static enum st_dtype dtype_of(int32_t type)
{
    static const enum st_dtype dtypes[] = {ST_UNKNOWN, ST_F32, ST_F16, ST_F64, ST_I32,
                                           ST_I16,     ST_I8,  ST_U8,  ST_BOOL};
    return type > 0 && type < (int32_t)(sizeof dtypes / sizeof *dtypes) ? dtypes[type] : ST_UNKNOWN;
}

/* own: what has to be freed, or NULL when the tensor borrows the mapping. */
static bool read_tensor(const struct st_tensor *from, mk_tensor *to, void **own, struct err *e)
{
    int32_t type = type_of(from->dtype);
    *own = NULL;
    *to = (mk_tensor){.size = sizeof *to, .type = type ? type : MK_F32, .rank = from->rank};
    memcpy(to->dims, from->shape, sizeof(int64_t) * (size_t)from->rank);
    to->data = (void *)(uintptr_t)from->data;
    if (type)
        return true;
    size_t bytes;
    if (!size_mul((size_t)from->n_elems, sizeof(float), &bytes) || !(*own = mem_try_alloc(bytes, e)))
        return e->code ? false : err_set(e, ERR_LIMIT, "%s: too many elements", from->name);
    to->data = *own;
    return st_read_f32(from, *own, e);
}

bool tensor_file_open(struct tensor_file **out, const char *path, struct err *e)
{
    struct tensor_file *f = xcalloc(1, sizeof *f);
    bool ok = safetensors_open(&f->file, path, e);
    size_t n = ok ? (size_t)f->file->n_tensors : 0;
    f->tensors = xcalloc(n + 1, sizeof *f->tensors);
    f->own = xcalloc(n + 1, sizeof *f->own);
    for (size_t i = 0; ok && i < n; i++)
        ok = read_tensor(&f->file->tensors[i], &f->tensors[i], &f->own[i], e);
    if (!ok) {
        tensor_file_close(f);
        f = NULL;
    }
    *out = f;
    return ok;
}

void tensor_file_close(struct tensor_file *f)
{
    if (!f)
        return;
    for (int i = 0; f->file && i < f->file->n_tensors; i++)
        mem_free(f->own[i]);
    safetensors_close(f->file);
    free(f->tensors);
    free(f->own);
    free(f);
}

size_t tensor_file_count(const struct tensor_file *f)
{
    return (size_t)f->file->n_tensors;
}

const char *tensor_file_name(const struct tensor_file *f, size_t i)
{
    return f->file->tensors[i].name;
}

const mk_tensor *tensor_file_tensor(const struct tensor_file *f, size_t i)
{
    return &f->tensors[i];
}

const char *tensor_type_name(int32_t type)
{
    return st_dtype_name(dtype_of(type));
}

struct tensor_writer {
    struct st_writer *writer;
};

struct tensor_writer *tensor_writer_new(void)
{
    struct tensor_writer *w = xcalloc(1, sizeof *w);
    w->writer = st_writer_new();
    return w;
}

void tensor_writer_add(struct tensor_writer *w, const char *name, const mk_tensor *t)
{
    st_writer_add(w->writer, name, dtype_of(t->type), t->dims, t->rank, t->data);
}

bool tensor_writer_write(struct tensor_writer *w, const char *path, bool replace, struct err *e)
{
    return strcmp(path, "-") == 0 ? st_writer_print(w->writer, stdout, e) && cli_flush(e)
                                  : st_writer_write(w->writer, path, replace, e);
}

void tensor_writer_free(struct tensor_writer *w)
{
    if (!w)
        return;
    st_writer_free(w->writer);
    free(w);
}
