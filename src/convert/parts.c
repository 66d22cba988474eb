/* Writes one part: weights first, in slices over the threads, then the files that refer to them.
 *
 * All records get their places before data is written, so offsets (and with them every byte of the output) do
 * not depend on the number of threads. A thread holds one slice at a time; that bounds the memory.
 */
#include "convert/parts.h"
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "format/blob.h"
#include "mil/compiled.h"

#define SLICE_BYTES ((size_t)4 << 20)
#define SMALL_BYTES ((size_t)64 << 10) /* written whole, so that equal ones are found */
#define IMMEDIATE_ELEMS_MAX 9          /* constants with more elements go to the blob file */
#define WEIGHT_FILE "@model_path/weights/weight.bin"

static bool blob_type_of(enum mil_dtype d, enum blob_type *type)
{
    switch (d) {
    case MIL_FP16:
        *type = BLOB_FLOAT16;
        return true;
    case MIL_FP32:
        *type = BLOB_FLOAT32;
        return true;
    case MIL_INT4:
        *type = BLOB_INT4;
        return true;
    case MIL_INT8:
        *type = BLOB_INT8;
        return true;
    case MIL_INT16:
        *type = BLOB_INT16;
        return true;
    case MIL_INT32:
        *type = BLOB_INT32;
        return true;
    case MIL_UINT1:
        *type = BLOB_UINT1;
        return true;
    case MIL_UINT2:
        *type = BLOB_UINT2;
        return true;
    case MIL_UINT3:
        *type = BLOB_UINT3;
        return true;
    case MIL_UINT4:
        *type = BLOB_UINT4;
        return true;
    case MIL_UINT6:
        *type = BLOB_UINT6;
        return true;
    case MIL_UINT8:
        *type = BLOB_UINT8;
        return true;
    case MIL_UINT16:
        *type = BLOB_UINT16;
        return true;
    default:
        return false;
    }
}

/* ---- collecting ---- */

struct collector {
    struct convert_part *part;
    struct table *seen; /* values by address */
    int capacity;
};

static bool make_immediate(struct convert_part *p, struct mil_value *v, struct err *e)
{
    void *data = arena_alloc(p->model->arena, v->bytes + 1);
    if (!v->weight->produce(v->weight, 0, v->n_elems, data, e))
        return false;
    v->kind = MIL_VALUE_TENSOR;
    v->data = data;
    v->weight = NULL;
    return true;
}

static bool collect_value(struct collector *c, const struct mil_value *value, struct err *e)
{
    enum blob_type type;
    bool is_weight = value->kind == MIL_VALUE_WEIGHT;
    bool is_large = value->kind == MIL_VALUE_TENSOR && !value->strings &&
                    value->n_elems > IMMEDIATE_ELEMS_MAX && blob_type_of(value->type->dtype, &type);
    if (!is_weight && !is_large)
        return true;
    char key[32];
    snprintf(key, sizeof key, "%p", (const void *)value);
    /* The model owns its values and is ours; ops only promise not to change them. */
    struct mil_value *v = (struct mil_value *)value;
    if (!table_put(c->seen, key, v))
        return true;
    if (is_weight && v->n_elems <= IMMEDIATE_ELEMS_MAX)
        return make_immediate(c->part, v, e);
    if (is_weight && !blob_type_of(v->type->dtype, &type))
        return err_set(e, ERR_BUG, "weight %s: type %s can't be in a weight file", v->weight->name,
                       mil_dtype_name(v->type->dtype));
    struct convert_part *p = c->part;
    if (p->n_weights == c->capacity) {
        c->capacity = c->capacity ? 2 * c->capacity : 64;
        p->weights = xrealloc(p->weights, (size_t)c->capacity * sizeof *p->weights);
    }
    p->weights[p->n_weights++] = v;
    p->weight_bytes += v->bytes;
    return true;
}

static bool collect_block(struct collector *c, const struct mil_block *block, struct err *e)
{
    for (int i = 0; i < block->n_ops; i++) {
        const struct mil_op *op = block->ops[i];
        for (int a = 0; a < op->n_args; a++) {
            for (int k = 0; k < op->args[a].n; k++) {
                const struct mil_value *v = op->args[a].bindings[k].value;
                if (v && !collect_value(c, v, e))
                    return false;
            }
        }
        for (int a = 0; a < op->n_attributes; a++) {
            if (!collect_value(c, op->attributes[a].value, e))
                return false;
        }
    }
    return true;
}

bool convert_part_init(struct convert_part *p, struct mil_model *model, char *name, struct err *e)
{
    *p = (struct convert_part){.model = model, .name = name};
    struct collector c = {.part = p, .seen = table_new()};
    bool ok = true;
    for (int i = 0; i < model->program->n_functions && ok; i++)
        ok = collect_block(&c, model->program->functions[i]->block, e);
    table_free(c.seen);
    return ok;
}

void convert_part_fini(struct convert_part *p)
{
    mil_model_close(p->model);
    free(p->name);
    free(p->weights);
    *p = (struct convert_part){0};
}

/* ---- weights ---- */

/* A slice of one weight: elements [begin, begin + n), bytes from `at` on of its record. */
struct slice {
    const struct mil_value *value;
    uint64_t offset;
    int64_t begin, n;
    uint64_t at;
    size_t bytes;
};

struct fill {
    struct blob_writer *writer;
    struct convert_job *job;
    const struct slice *slices;
    size_t n_slices;
    atomic_size_t next;
    atomic_bool stop;
    _Atomic uint64_t done_bytes;
    void **buffers;     /* [n_threads], SLICE_BYTES each */
    struct err *errors; /* [n_threads] */
    size_t *failed;     /* [n_threads]: slice of the error */
};

static bool fill_slice(struct fill *f, const struct slice *s, void *buffer, struct err *e)
{
    const struct mil_value *v = s->value;
    const void *data = buffer;
    if (log_cancelled(f->job->log, e))
        return false;
    if (v->kind == MIL_VALUE_TENSOR)
        data = (const uint8_t *)v->data + s->at;
    else if (!v->weight->produce(v->weight, s->begin, s->n, buffer, e))
        return false;
    return blob_writer_fill(f->writer, s->offset, s->at, data, s->bytes, e);
}

static void fill_thread(void *ctx, int i_thread, int n_threads)
{
    (void)n_threads;
    struct fill *f = ctx;
    while (!atomic_load(&f->stop)) {
        size_t i = atomic_fetch_add(&f->next, 1);
        if (i >= f->n_slices)
            return;
        if (!fill_slice(f, &f->slices[i], f->buffers[i_thread], &f->errors[i_thread])) {
            f->failed[i_thread] = i;
            atomic_store(&f->stop, true);
            return;
        }
        uint64_t done = atomic_fetch_add(&f->done_bytes, f->slices[i].bytes) + f->slices[i].bytes;
        if (i_thread == 0)
            progress_update(f->job->progress, (double)done, NULL);
    }
}

static bool fill_slices(struct blob_writer *w, struct convert_job *job, const struct slice *slices, size_t n,
                        struct err *e)
{
    int n_threads = pool_threads(job->pool);
    struct fill f = {.writer = w, .job = job, .slices = slices, .n_slices = n};
    bool ok = true;
    atomic_init(&f.next, 0);
    atomic_init(&f.stop, false);
    atomic_init(&f.done_bytes, job->done_bytes);
    f.buffers = xcalloc((size_t)n_threads, sizeof *f.buffers);
    f.errors = xcalloc((size_t)n_threads, sizeof *f.errors);
    f.failed = xcalloc((size_t)n_threads, sizeof *f.failed);
    for (int i = 0; i < n_threads && ok; i++) {
        f.buffers[i] = mem_try_alloc(SLICE_BYTES, e);
        ok = f.buffers[i] != NULL;
    }
    if (ok) {
        pool_run(job->pool, fill_thread, &f);
        /* Of several errors the first in the file, which is more often the same one. */
        const struct err *first = NULL;
        size_t at = 0;
        for (int i = 0; i < n_threads; i++) {
            if (f.errors[i].code && (!first || f.failed[i] < at)) {
                first = &f.errors[i];
                at = f.failed[i];
            }
        }
        if (first) {
            ok = false;
            if (e)
                *e = *first;
        }
        job->done_bytes = atomic_load(&f.done_bytes);
    }
    for (int i = 0; i < n_threads; i++)
        mem_free(f.buffers[i]);
    free(f.buffers);
    free(f.errors);
    free(f.failed);
    return ok;
}

/* A small weight whole, found again when an equal one was written. */
static bool add_small(struct blob_writer *w, struct mil_value *v, enum blob_type type, uint64_t *offset,
                      struct err *e)
{
    if (v->kind == MIL_VALUE_TENSOR)
        return blob_writer_add(w, type, v->data, v->bytes, (uint64_t)v->n_elems, offset, e);
    void *data = xmalloc(v->bytes);
    bool ok = v->weight->produce(v->weight, 0, v->n_elems, data, e) &&
              blob_writer_add(w, type, data, v->bytes, (uint64_t)v->n_elems, offset, e);
    free(data);
    return ok;
}

/* Places every weight in the file; offsets [n_weights] and the slices that are to be filled (heap). */
static bool place_weights(const struct convert_part *p, struct convert_job *job, struct blob_writer *w,
                          uint64_t *offsets, struct slice **out, size_t *n_out, struct err *e)
{
    size_t n = 0, capacity = 0;
    struct slice *slices = NULL;
    for (int i = 0; i < p->n_weights; i++) {
        struct mil_value *v = p->weights[i];
        enum blob_type type = BLOB_FLOAT16;
        bool ok = !log_cancelled(job->log, e);
        blob_type_of(v->type->dtype, &type);
        if (ok && v->bytes < SMALL_BYTES) {
            ok = add_small(w, v, type, &offsets[i], e);
            job->done_bytes += v->bytes;
        } else if (ok) {
            ok = blob_writer_reserve(w, type, v->bytes, (uint64_t)v->n_elems, &offsets[i], e);
            int64_t step = (int64_t)(SLICE_BYTES * 8 / (size_t)mil_dtype_bits(v->type->dtype)) / 64 * 64;
            for (int64_t begin = 0; begin < v->n_elems && ok; begin += step) {
                if (n == capacity) {
                    capacity = capacity ? 2 * capacity : 256;
                    slices = xrealloc(slices, capacity * sizeof *slices);
                }
                struct slice *s = &slices[n++];
                uint64_t bits = (uint64_t)mil_dtype_bits(v->type->dtype);
                s->value = v;
                s->offset = offsets[i];
                s->begin = begin;
                s->n = v->n_elems - begin < step ? v->n_elems - begin : step;
                s->at = (uint64_t)begin * bits / 8;
                s->bytes = (size_t)(((uint64_t)s->n * bits + 7) / 8);
            }
        }
        if (!ok) {
            free(slices);
            return false;
        }
    }
    *out = slices;
    *n_out = n;
    return true;
}

static bool write_weights(struct convert_part *p, struct convert_job *job, const char *path, struct err *e)
{
    struct blob_writer *w = NULL;
    struct slice *slices = NULL;
    size_t n_slices = 0;
    uint64_t *offsets = xcalloc((size_t)p->n_weights + 1, sizeof *offsets);
    bool ok = blob_writer_open(&w, path, e) && place_weights(p, job, w, offsets, &slices, &n_slices, e) &&
              fill_slices(w, job, slices, n_slices, e);
    if (ok) {
        job->written_bytes += blob_writer_bytes(w);
        job->dedup_bytes += blob_writer_dedup_bytes(w);
        ok = blob_writer_commit(w, e);
    } else {
        blob_writer_abort(w);
    }
    for (int i = 0; i < p->n_weights && ok; i++) {
        struct mil_value *v = p->weights[i];
        v->kind = MIL_VALUE_BLOB;
        v->file = WEIGHT_FILE;
        v->offset = offsets[i];
        v->data = NULL;
        v->weight = NULL;
    }
    free(slices);
    free(offsets);
    return ok;
}

/* ---- files ---- */

static bool share_file(const char *from, const char *to, struct err *e)
{
    if (link(from, to) == 0)
        return true;
    return file_copy(from, to, e);
}

static char *weights_path(const char *folder, const char *inside)
{
    return xasprintf("%s%s/weights/weight.bin", folder, inside);
}

static bool make_parent(const char *path, struct err *e)
{
    char *folder = path_folder(path);
    bool ok = folder_make(folder, e);
    free(folder);
    return ok;
}

bool convert_part_write(struct convert_part *p, struct convert_job *job, struct err *e)
{
    bool has_package = job->format != CONVERT_MLMODELC, has_compiled = job->format != CONVERT_MLPACKAGE;
    char *package = xasprintf("%s/%s.mlpackage", job->folder, p->name);
    char *compiled = xasprintf("%s/%s.mlmodelc", job->folder, p->name);
    char *package_weights = weights_path(package, "/Data/com.apple.CoreML");
    char *compiled_weights = weights_path(compiled, "");
    const char *weights = has_package ? package_weights : compiled_weights;
    bool ok = make_parent(weights, e) && write_weights(p, job, weights, e);
    if (ok && has_package)
        ok = mil_write_mlpackage_files(p->model, package, true, e);
    if (ok && has_compiled)
        ok = make_parent(compiled_weights, e) &&
             (!has_package || share_file(package_weights, compiled_weights, e)) &&
             mil_write_mlmodelc_files(p->model, compiled, p->name, NULL, 0, e);
    free(package);
    free(compiled);
    free(package_weights);
    free(compiled_weights);
    return ok || err_wrap(e, "%s", p->name);
}
