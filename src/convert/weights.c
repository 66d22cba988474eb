/* The blob file of a part: all records get their places first, then threads fill them, in slices of plain
 * weights and units of quantized ones.
 *
 * Offsets, and with them every byte of the output, do not depend on the number of threads. A thread holds one
 * slice or one unit at a time; that bounds the memory.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "convert/parts.h"
#include "format/blob.h"

#define SLICE_BYTES ((size_t)4 << 20)
#define SMALL_BYTES ((size_t)64 << 10) /* written whole, so that equal ones are found */
#define WEIGHT_FILE "@model_path/weights/weight.bin"

bool convert_blob_type(enum mil_dtype d, int *blob_type)
{
    static const int types[MIL_DTYPES] = {
        [MIL_FP16] = BLOB_FLOAT16, [MIL_FP32] = BLOB_FLOAT32, [MIL_INT4] = BLOB_INT4,
        [MIL_INT8] = BLOB_INT8,    [MIL_INT16] = BLOB_INT16,  [MIL_INT32] = BLOB_INT32,
        [MIL_UINT1] = BLOB_UINT1,  [MIL_UINT2] = BLOB_UINT2,  [MIL_UINT3] = BLOB_UINT3,
        [MIL_UINT4] = BLOB_UINT4,  [MIL_UINT6] = BLOB_UINT6,  [MIL_UINT8] = BLOB_UINT8,
        [MIL_UINT16] = BLOB_UINT16};
    *blob_type = types[d];
    return types[d] != 0;
}

/* A slice of a plain weight (elements [begin, begin + n), bytes from `at` on of its record), or a unit of a
 * quantized one. */
struct slice {
    const struct mil_value *value;
    uint64_t offset;
    int64_t begin, n;
    uint64_t at;
    size_t bytes;
    struct convert_quant *quant; /* NULL: plain */
    int64_t unit;
    uint64_t work; /* bytes that are read */
};

struct slice_list {
    struct slice *p;
    size_t n, capacity;
};

struct fill_thread {
    void *buffer; /* SLICE_BYTES, made when first needed */
    struct quant_scratch *scratch;
    struct err error;
    size_t failed; /* slice of the error */
};

struct fill {
    struct blob_writer *writer;
    struct convert_job *job;
    const struct slice *slices;
    size_t n_slices;
    atomic_size_t next;
    atomic_bool stop;
    _Atomic uint64_t done_bytes;
    struct fill_thread *threads;
};

/* ---- filling ---- */

struct quant_target {
    struct blob_writer *writer;
    const struct convert_quant *quant;
};

static bool put_quantized(struct quant_sink *sink, enum quant_output which, uint64_t at, const void *data,
                          size_t n, struct err *e)
{
    const struct quant_target *t = sink->ctx;
    uint64_t offset = which == QUANT_CODES ? t->quant->codes_offset : t->quant->table_offset;
    return blob_writer_fill(t->writer, offset, at, data, n, e);
}

static bool fill_unit(struct fill *f, const struct slice *s, struct fill_thread *t, struct err *e)
{
    struct quant_target target = {.writer = f->writer, .quant = s->quant};
    struct quant_sink sink = {.put = put_quantized, .ctx = &target};
    if (!t->scratch)
        t->scratch = quant_scratch_new();
    return quant_weight_run(s->quant->weight, s->unit, t->scratch, &sink, &s->quant->units[s->unit], e) ||
           err_wrap(e, "%s", s->quant->weight->name);
}

static bool fill_slice(struct fill *f, const struct slice *s, struct fill_thread *t, struct err *e)
{
    const struct mil_value *v = s->value;
    const void *data;
    if (log_cancelled(f->job->log, e))
        return false;
    if (s->quant)
        return fill_unit(f, s, t, e);
    if (v->kind == MIL_VALUE_TENSOR) {
        data = (const uint8_t *)v->data + s->at;
    } else {
        if (!t->buffer)
            t->buffer = mem_try_alloc(SLICE_BYTES, e);
        if (!t->buffer || !v->weight->produce(v->weight, s->begin, s->n, t->buffer, e))
            return false;
        data = t->buffer;
    }
    return blob_writer_fill(f->writer, s->offset, s->at, data, s->bytes, e);
}

static void fill_thread(void *ctx, int i_thread, int n_threads)
{
    (void)n_threads;
    struct fill *f = ctx;
    struct fill_thread *t = &f->threads[i_thread];
    while (!atomic_load(&f->stop)) {
        size_t i = atomic_fetch_add(&f->next, 1);
        if (i >= f->n_slices)
            return;
        const struct slice *s = &f->slices[i];
        if (!fill_slice(f, s, t, &t->error)) {
            t->failed = i;
            atomic_store(&f->stop, true);
            return;
        }
        uint64_t done = atomic_fetch_add(&f->done_bytes, s->work) + s->work;
        if (i_thread == 0) {
            const struct mil_weight *w = s->quant ? s->quant->weight->source->weight : s->value->weight;
            progress_update(f->job->progress, (double)done, w ? w->name : NULL);
            convert_peak_look(f->job->peak, false);
        }
    }
}

static bool fill_slices(struct blob_writer *w, struct convert_job *job, const struct slice *slices, size_t n,
                        struct err *e)
{
    int n_threads = pool_threads(job->pool);
    struct fill f = {.writer = w, .job = job, .slices = slices, .n_slices = n};
    atomic_init(&f.next, 0);
    atomic_init(&f.stop, false);
    atomic_init(&f.done_bytes, job->done_bytes);
    f.threads = xcalloc((size_t)n_threads, sizeof *f.threads);
    pool_run(job->pool, fill_thread, &f);
    convert_peak_look(job->peak, true);
    /* Of several errors the first in the file, which is more often the same one. */
    const struct fill_thread *first = NULL;
    for (int i = 0; i < n_threads; i++) {
        const struct fill_thread *t = &f.threads[i];
        if (t->error.code && (!first || t->failed < first->failed))
            first = t;
    }
    bool ok = !first;
    if (first && e)
        *e = first->error;
    job->done_bytes = atomic_load(&f.done_bytes);
    for (int i = 0; i < n_threads; i++) {
        mem_free(f.threads[i].buffer);
        quant_scratch_free(f.threads[i].scratch);
    }
    free(f.threads);
    return ok;
}

/* ---- layer by layer ---- */

/* The layer that the weight's guide comes with, -1: none. Those of the head come after the last layer. */
static int64_t guided_layer(const struct convert_job *job, const struct quant_weight *w)
{
    const struct convert_options *o = job->options;
    if (!o->guide || w->spec.kind != QUANT_LUT || quant_method_needs(w->spec.method) == QUANT_NEEDS_NOTHING)
        return -1;
    return job->is_head ? job->n_layers : arch_layer_of(w->name);
}

/* The same of a slice. */
static int64_t slice_layer(const struct convert_job *job, const struct slice *s)
{
    return s->quant ? guided_layer(job, s->quant->weight) : -1;
}

/* Asks for the guides of the weights in the slices. */
static bool guide_slices(struct convert_job *job, int64_t layer, const struct slice *slices, size_t n,
                         struct err *e)
{
    struct quant_weight **weights = xcalloc(n + 1, sizeof(struct quant_weight *));
    int n_weights = 0;
    for (size_t i = 0; i < n; i++)
        if (slices[i].quant && slices[i].unit == 0 && slice_layer(job, &slices[i]) >= 0)
            weights[n_weights++] = slices[i].quant->weight;
    bool ok = job->options->guide(job->options->guide_context, layer, weights, n_weights, e);
    free(weights);
    return ok;
}

bool convert_guide_part(struct convert_part *p, struct convert_job *job, struct err *e)
{
    struct quant_weight **weights = xcalloc((size_t)p->n_quants + 1, sizeof(struct quant_weight *));
    bool ok = true;
    for (int begin = 0, end; begin < p->n_quants && ok; begin = end) {
        int64_t layer = guided_layer(job, p->quants[begin].weight);
        int n = 0;
        for (end = begin; end < p->n_quants && guided_layer(job, p->quants[end].weight) == layer; end++)
            weights[n++] = p->quants[end].weight;
        ok = layer < 0 || job->options->guide(job->options->guide_context, layer, weights, n, e);
    }
    free(weights);
    return ok;
}

/* All slices at once, or, where weights need guides, a layer's at a time. */
static bool fill_layers(struct blob_writer *w, struct convert_job *job, const struct slice_list *l,
                        struct err *e)
{
    bool ok = true;
    for (size_t begin = 0, end; begin < l->n && ok; begin = end) {
        int64_t layer = -1;
        for (end = begin; end < l->n; end++) {
            int64_t own = slice_layer(job, &l->p[end]);
            if (own >= 0 && layer >= 0 && own != layer)
                break;
            layer = own >= 0 ? own : layer;
        }
        if (layer >= 0)
            ok = guide_slices(job, layer, l->p + begin, end - begin, e);
        ok = ok && fill_slices(w, job, l->p + begin, end - begin, e);
    }
    return ok;
}

/* ---- places ---- */

static struct slice *add_slice(struct slice_list *l)
{
    l->p = mem_grow(l->p, l->n, &l->capacity, sizeof *l->p);
    struct slice *s = &l->p[l->n++];
    *s = (struct slice){0};
    return s;
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

static void slice_plain(struct slice_list *l, const struct mil_value *v, uint64_t offset)
{
    uint64_t bits = (uint64_t)mil_dtype_bits(v->type->dtype);
    int64_t step = (int64_t)(SLICE_BYTES * 8 / bits) / 64 * 64;
    for (int64_t begin = 0; begin < v->n_elems; begin += step) {
        struct slice *s = add_slice(l);
        s->value = v;
        s->offset = offset;
        s->begin = begin;
        s->n = v->n_elems - begin < step ? v->n_elems - begin : step;
        s->at = (uint64_t)begin * bits / 8;
        s->bytes = (size_t)(((uint64_t)s->n * bits + 7) / 8);
        s->work = s->bytes;
    }
}

/* Units of a quantized weight, once its codes and its table have their places. */
static void slice_units(struct slice_list *l, struct convert_quant *q)
{
    const struct quant_weight *w = q->weight;
    free(q->units);
    q->units = xcalloc((size_t)w->n_units, sizeof *q->units);
    for (int64_t unit = 0; unit < w->n_units; unit++) {
        struct slice *s = add_slice(l);
        int64_t rows = w->rows - unit * w->rows_per_unit;
        s->quant = q;
        s->unit = unit;
        s->work = (uint64_t)((rows < w->rows_per_unit ? rows : w->rows_per_unit) * w->columns) * 2;
    }
}

static struct convert_quant *find_quant(struct convert_part *p, const struct quant_weight *w)
{
    for (int i = 0; i < p->n_quants; i++) {
        if (p->quants[i].weight == w)
            return &p->quants[i];
    }
    return NULL;
}

/* Places every weight in the file: offsets [n_weights] and the slices that are to be filled. */
static bool place_weights(struct convert_part *p, struct convert_job *job, struct blob_writer *w,
                          uint64_t *offsets, struct slice_list *slices, struct err *e)
{
    for (int i = 0; i < p->n_weights; i++) {
        struct mil_value *v = p->weights[i];
        const struct quant_weight *quant = quant_weight_of(v);
        int type = BLOB_FLOAT16;
        convert_blob_type(v->type->dtype, &type);
        if (log_cancelled(job->log, e))
            return false;
        if (!quant && v->bytes < SMALL_BYTES) {
            if (!add_small(w, v, (enum blob_type)type, &offsets[i], e))
                return false;
            job->done_bytes += v->bytes;
            continue;
        }
        if (!blob_writer_reserve(w, (enum blob_type)type, v->bytes, (uint64_t)v->n_elems, &offsets[i], e))
            return false;
        struct convert_quant *q = quant ? find_quant(p, quant) : NULL;
        if (!q) {
            slice_plain(slices, v, offsets[i]);
        } else if (v == quant->codes) {
            q->codes_offset = offsets[i];
            slice_units(slices, q);
        } else {
            q->table_offset = offsets[i];
        }
    }
    return true;
}

bool convert_write_weights(struct convert_part *p, struct convert_job *job, const char *path, struct err *e)
{
    struct blob_writer *w = NULL;
    struct slice_list slices = {0};
    uint64_t *offsets = xcalloc((size_t)p->n_weights + 1, sizeof *offsets);
    bool ok = blob_writer_open(&w, path, e) && place_weights(p, job, w, offsets, &slices, e) &&
              fill_layers(w, job, &slices, e);
    if (ok) {
        p->weight_bytes = blob_writer_bytes(w);
        job->written_bytes += blob_writer_bytes(w);
        job->dedup_bytes += blob_writer_dedup_bytes(w);
        ok = blob_writer_commit(w, e);
    } else {
        blob_writer_abort(w);
    }
    for (int i = 0; i < p->n_quants && ok; i++) {
        struct convert_quant *q = &p->quants[i];
        for (int64_t unit = 0; unit < q->weight->n_units; unit++)
            quant_stats_add(&q->stats, &q->units[unit]);
    }
    for (int i = 0; i < p->n_weights && ok; i++) {
        struct mil_value *v = p->weights[i];
        v->kind = MIL_VALUE_BLOB;
        v->file = WEIGHT_FILE;
        v->offset = offsets[i];
        v->data = NULL;
        v->weight = NULL;
    }
    free(slices.p);
    free(offsets);
    return ok;
}
