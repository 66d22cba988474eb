/* A model's life: made, opened from any of its forms, its weights mapped and checked, looked at by function,
 * closed. */
#include "mil/mil.h"

#include <stdlib.h>
#include <string.h>

#include "format/blob.h"

struct mil_model *mil_model_new(int specification_version)
{
    struct mil_model *m = xcalloc(1, sizeof *m);
    m->arena = arena_new(0);
    m->specification_version = specification_version;
    m->description.short_description = "";
    m->description.version = "";
    m->description.author = "";
    m->description.license = "";
    m->program = ARENA_NEW(m->arena, struct mil_program);
    m->program->version = 1;
    m->program->doc = "";
    return m;
}

void mil_model_close(struct mil_model *m)
{
    if (!m)
        return;
    for (int i = 0; i < m->n_files; i++) {
        blob_close(m->files[i]);
        free(m->file_names[i]);
    }
    free(m->files);
    free(m->file_names);
    arena_free(m->arena);
    free(m);
}

/* ---- weights ---- */

static enum blob_type blob_type_of(enum mil_dtype d)
{
    switch (d) {
    case MIL_FP16:
        return BLOB_FLOAT16;
    case MIL_FP32:
        return BLOB_FLOAT32;
    case MIL_BF16:
        return BLOB_BFLOAT16;
    case MIL_FP8E4M3FN:
        return BLOB_FLOAT8E4M3FN;
    case MIL_FP8E5M2:
        return BLOB_FLOAT8E5M2;
    case MIL_INT4:
        return BLOB_INT4;
    case MIL_INT8:
        return BLOB_INT8;
    case MIL_INT16:
        return BLOB_INT16;
    case MIL_INT32:
        return BLOB_INT32;
    case MIL_UINT1:
        return BLOB_UINT1;
    case MIL_UINT2:
        return BLOB_UINT2;
    case MIL_UINT3:
        return BLOB_UINT3;
    case MIL_UINT4:
        return BLOB_UINT4;
    case MIL_UINT6:
        return BLOB_UINT6;
    case MIL_UINT8:
        return BLOB_UINT8;
    case MIL_UINT16:
        return BLOB_UINT16;
    case MIL_UINT32:
        return BLOB_UINT32;
    default:
        return 0;
    }
}

/* A reference must name a file below the model's own folder: nothing else is opened on a model's word. */
static bool blob_file_find(struct blob_file **out, struct mil_model *m, const char *name, struct err *e)
{
    static const char prefix[] = "@model_path/";
    char *path = NULL;
    struct blob_file *file = NULL;
    bool ok = false;

    for (int i = 0; i < m->n_files; i++) {
        if (strcmp(m->file_names[i], name) == 0) {
            *out = m->files[i];
            return true;
        }
    }
    if (strncmp(name, prefix, sizeof prefix - 1) != 0 || !path_is_inside(name + sizeof prefix - 1)) {
        err_set(e, ERR_FORMAT, "weight file name \"%.200s\": expected a path inside the model (\"%s...\")",
                name, prefix);
        goto done;
    }
    if (!m->root) {
        err_set(e, ERR_BUG, "weight file \"%.200s\" of a model that was not opened from a file", name);
        goto done;
    }
    path = path_join(m->root, name + sizeof prefix - 1);
    if (!path_exists(path)) {
        err_set(e, ERR_FORMAT, "the model keeps its weights in %s, which is not there: an incomplete copy?",
                path);
        goto done;
    }
    if (!blob_open(&file, path, e))
        goto done;
    m->files = xrealloc(m->files, sizeof *m->files * (size_t)(m->n_files + 1));
    m->file_names = xrealloc(m->file_names, sizeof *m->file_names * (size_t)(m->n_files + 1));
    m->files[m->n_files] = file;
    m->file_names[m->n_files] = xstrdup(name);
    m->n_files++;
    *out = file;
    ok = true;
done:
    free(path);
    return ok;
}

static bool value_map(struct mil_model *m, const struct mil_value *value, struct err *e)
{
    /* Values belong to the model; "const" is for those who look at them. */
    struct mil_value *v = (struct mil_value *)value;
    struct blob_file *file = NULL;
    struct blob_record record;
    char type[160];

    if (!v)
        return true;
    if (v->kind == MIL_VALUE_ITEMS) {
        for (int i = 0; i < v->n_items; i++)
            if (!value_map(m, v->items[i], e))
                return false;
        return true;
    }
    if (v->kind != MIL_VALUE_BLOB || v->data)
        return true;
    mil_type_text(type, sizeof type, v->type);
    enum blob_type expected = v->type->kind == MIL_TYPE_TENSOR ? blob_type_of(v->type->dtype) : 0;
    int64_t bytes = mil_type_bytes(v->type);
    if (!expected || bytes < 0)
        return err_set(e, ERR_FORMAT, "a value of type %s can't be in a weight file", type);
    if (!blob_file_find(&file, m, v->file, e))
        return false;
    if (!blob_get(file, v->offset, &record, e))
        return false;
    if (record.type != expected) {
        const char *found = blob_type_name(record.type);
        return err_set(e, ERR_FORMAT, "%s at offset %llu: expected %s, found %s", v->file,
                       (unsigned long long)v->offset, blob_type_name(expected),
                       found ? found : "an unknown type");
    }
    if (record.bytes != (uint64_t)bytes)
        return err_set(e, ERR_FORMAT, "%s at offset %llu: %s needs %lld bytes, found %llu", v->file,
                       (unsigned long long)v->offset, type, (long long)bytes,
                       (unsigned long long)record.bytes);
    v->data = record.data;
    v->bytes = (size_t)record.bytes;
    v->n_elems = mil_type_elems(v->type);
    return true;
}

static bool attributes_map(struct mil_model *m, const struct mil_named_value *attributes, int n,
                           struct err *e)
{
    for (int i = 0; i < n; i++)
        if (!value_map(m, attributes[i].value, e))
            return false;
    return true;
}

static bool op_values_map(struct mil_model *m, const struct mil_op *op, struct err *e)
{
    for (int i = 0; i < op->n_args; i++)
        for (int j = 0; j < op->args[i].n; j++)
            if (!value_map(m, op->args[i].bindings[j].value, e))
                return false;
    return attributes_map(m, op->attributes, op->n_attributes, e);
}

static bool block_map(struct mil_model *m, const struct mil_block *b, struct err *e)
{
    if (!attributes_map(m, b->attributes, b->n_attributes, e))
        return false;
    for (int i = 0; i < b->n_ops; i++) {
        const struct mil_op *op = b->ops[i];
        if (!op_values_map(m, op, e))
            return err_wrap(e, "op %d, %s \"%.200s\"", i, op->type,
                            op->n_outputs ? op->outputs[0]->name : "");
        for (int j = 0; j < op->n_blocks; j++)
            if (!block_map(m, op->blocks[j], e))
                return false;
    }
    return true;
}

bool mil_model_map_weights(struct mil_model *m, struct err *e)
{
    const char *where = m->path ? m->path : "model";
    if (!attributes_map(m, m->program->attributes, m->program->n_attributes, e))
        return err_wrap(e, "%s", where);
    for (int i = 0; i < m->program->n_functions; i++) {
        struct mil_function *f = m->program->functions[i];
        if (!attributes_map(m, f->attributes, f->n_attributes, e) || (f->block && !block_map(m, f->block, e)))
            return err_wrap(e, "%s: function %s", where, f->name);
    }
    return true;
}

void mil_model_drop_pages(const struct mil_model *m)
{
    for (int i = 0; i < m->n_files; i++)
        map_drop_pages(m->files[i]->map);
}
