/* Packages for tests: the checkpoints of tests/data/models converted in-process into a scratch folder, and golden
 * numbers beside them. */
#ifndef MILKIT_TESTS_PACKAGES_H
#define MILKIT_TESTS_PACKAGES_H

#include <math.h>
#include "support.h"
#include "convert/convert.h"
#include "runtime/session.h"

struct package_shape {
    const char *model;
    int64_t context, batch;
    int n_chunks;
    enum convert_format format;
};

/* What few tests ask for. */
struct package_extra {
    const char *checkpoint; /* its folder; NULL: tests/data/models/MODEL */
    int gdn_chunk;          /* 0: the family's own */
    int lut;                /* bits of the decoder's palettes; 0: fp16 */
    bool exact_norms, exact_topk;
};

static char packages_scratch[64];

static inline int packages_setup(void **state)
{
    (void)state;
    snprintf(packages_scratch, sizeof packages_scratch, "packages.XXXXXX");
    return mkdtemp(packages_scratch) ? 0 : -1;
}

static inline int packages_teardown(void **state)
{
    (void)state;
    return path_remove_tree(packages_scratch, NULL) ? 0 : -1;
}

/* The folder of the converted package, heap; converted once per shape. */
static inline char *package_make_with(const struct package_shape *s, const struct package_extra *x)
{
    char *name =
             xasprintf("%s-%lld-%lld-%d-%d-%d-%d-%d-%d", s->model, (long long)s->context, (long long)s->batch,
                       s->n_chunks, (int)s->format, x->gdn_chunk, x->lut, x->exact_norms, x->exact_topk),
         *path = path_join(packages_scratch, name),
         *checkpoint =
             x->checkpoint ? xstrdup(x->checkpoint) : xasprintf("%s/models/%s", MILKIT_TEST_DATA, s->model);
    if (!path_exists(path)) {
        struct convert_options o = {.checkpoint = checkpoint,
                                    .output = path,
                                    .settings = {.context_length = s->context,
                                                 .batch_size = s->batch,
                                                 .n_chunks = s->n_chunks,
                                                 .gdn_chunk = x->gdn_chunk,
                                                 .exact_norms = x->exact_norms,
                                                 .exact_topk = x->exact_topk},
                                    .format = s->format,
                                    .n_threads = 1};
        struct convert_report report;
        if (x->lut)
            o.ffn = (struct quant_spec){.kind = QUANT_LUT, .bits = x->lut, .group = 8};
        ASSERT_OK(convert_run(&o, &report, e));
        convert_report_fini(&report);
    }
    free(checkpoint);
    free(name);
    return path;
}

static inline struct model *package_load_with(const struct package_shape *s, const struct package_extra *x,
                                              const struct model_options *o)
{
    char *path = package_make_with(s, x);
    struct model *m = NULL;
    ASSERT_OK(model_open(&m, path, o, e));
    free(path);
    return m;
}

static inline char *package_make(const struct package_shape *s)
{
    return package_make_with(s, &(struct package_extra){0});
}

static inline struct model *package_load(const struct package_shape *s, int n_threads)
{
    return package_load_with(s, &(struct package_extra){0}, &(struct model_options){.n_threads = n_threads});
}

/* Logits by position, as a session yields them. */
struct rows {
    int64_t vocab_size;
    size_t n, capacity;
    int64_t *positions;
    float *logits; /* [n, vocab_size] */
};

static inline bool rows_collect(void *context, int64_t position, const float *logits, struct err *e)
{
    struct rows *r = context;
    if (r->n == r->capacity)
        return err_set(e, ERR_BUG, "more rows than tokens");
    r->positions[r->n] = position;
    memcpy(r->logits + r->n * (size_t)r->vocab_size, logits, sizeof *logits * (size_t)r->vocab_size);
    r->n++;
    return true;
}

static inline struct rows rows_feed(struct session *s, const struct model *m, const int32_t *ids, size_t n,
                                    enum session_mode mode)
{
    struct rows r = {.vocab_size = m->vocab_size, .capacity = n};
    r.positions = xcalloc(n, sizeof *r.positions);
    r.logits = xcalloc(n * (size_t)m->vocab_size, sizeof *r.logits);
    ASSERT_OK(session_feed(s, ids, n, mode, rows_collect, &r, NULL, e));
    return r;
}

static inline void rows_free(struct rows *r)
{
    free(r->positions);
    free(r->logits);
}

/* Row of a position, NULL when the session did not yield it. */
static inline const float *rows_at(const struct rows *r, int64_t position)
{
    for (size_t i = 0; i < r->n; i++)
        if (r->positions[i] == position)
            return r->logits + i * (size_t)r->vocab_size;
    return NULL;
}

static inline struct safetensors *golden_open_in(const char *folder, const char *model)
{
    char *path = xasprintf("%s/%s/golden.safetensors", folder, model);
    struct safetensors *s = NULL;
    ASSERT_OK(safetensors_open(&s, path, e));
    free(path);
    return s;
}

static inline struct safetensors *golden_open(const char *model)
{
    return golden_open_in(MILKIT_TEST_DATA "/models", model);
}

static inline int32_t *golden_ints(const struct safetensors *s, const char *prompt, const char *name,
                                   size_t *n)
{
    char *key = xasprintf("%s.%s", prompt, name);
    const struct st_tensor *t = safetensors_find(s, key);
    if (!t || t->dtype != ST_I32)
        fail_msg("no %s", key);
    free(key);
    int32_t *v = xmalloc(t->bytes + 1);
    memcpy(v, t->data, t->bytes);
    if (n)
        *n = (size_t)t->n_elems;
    return v;
}

static inline float *golden_floats(const struct safetensors *s, const char *prompt, const char *name)
{
    char *key = xasprintf("%s.%s", prompt, name);
    const struct st_tensor *t = safetensors_find(s, key);
    if (!t)
        fail_msg("no %s", key);
    free(key);
    float *v = xmalloc(sizeof *v * (size_t)(t->n_elems + 1));
    ASSERT_OK(st_read_f32(t, v, e));
    return v;
}

static inline double row_cosine(const float *a, const float *b, int64_t n)
{
    double ab = 0, aa = 0, bb = 0;
    for (int64_t i = 0; i < n; i++) {
        ab += (double)a[i] * b[i];
        aa += (double)a[i] * a[i];
        bb += (double)b[i] * b[i];
    }
    return ab / sqrt(aa * bb);
}

static inline int32_t row_best(const float *row, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (row[i] > row[best])
            best = i;
    return (int32_t)best;
}

#endif
