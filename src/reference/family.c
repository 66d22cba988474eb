/* What all families need: settings, tensors, memory of a session. */
#include "reference/reference_internal.h"
#include <stdlib.h>
#include <string.h>
#include "base/half.h"

bool reference_get_size(const struct reference *r, const char *key, int64_t max, int64_t *value,
                        struct err *e)
{
    return config_get_size(&r->parts->config, r->parts->config.text, key, max, value, e);
}

static void note_columns(struct reference_parts *p, const struct st_tensor *t)
{
    if (t->rank > 1 && t->shape[t->rank - 1] > p->max_columns)
        p->max_columns = t->shape[t->rank - 1];
}

bool reference_require_shape(struct reference *r, const char *name, int rank, const int64_t *shape,
                             const struct st_tensor **out, struct err *e)
{
    *out = checkpoint_require(r->parts->names, name, rank, shape, e);
    if (*out)
        note_columns(r->parts, *out);
    return *out != NULL;
}

bool reference_require(struct reference *r, const char *name, int64_t rows, int64_t columns,
                       const struct st_tensor **out, struct err *e)
{
    const int64_t shape[2] = {rows, columns};
    return reference_require_shape(r, name, columns > 0 ? 2 : 1, shape, out, e);
}

static bool read_vector(struct reference *r, const struct st_tensor *t, const float **out, struct err *e)
{
    float *v = arena_try_alloc(r->parts->arena, (size_t)t->n_elems, sizeof *v, e);
    *out = v;
    return v && st_read_f32(t, v, e);
}

bool reference_require_vector(struct reference *r, const char *name, int64_t n, const float **out,
                              struct err *e)
{
    const struct st_tensor *t;
    *out = NULL;
    return reference_require(r, name, n, 0, &t, e) && read_vector(r, t, out, e);
}

bool reference_find_ends(struct reference *r, bool is_tied, const float **norm, struct err *e)
{
    struct reference_parts *p = r->parts;
    if (!decoder_find_ends(p->names, r->vocab_size, r->hidden_size, is_tied, &p->ends, e))
        return false;
    note_columns(p, p->ends.head);
    return read_vector(r, p->ends.norm, norm, e);
}

bool reference_find_layer(struct reference *r, int64_t layer, unsigned parts,
                          const int64_t sizes[DECODER_SIZES], struct reference_layer *out, struct err *e)
{
    if (!decoder_find_layer(r->parts->names, layer, parts, sizes, out->matrix, e))
        return false;
    for (int i = 0; i < DECODER_TENSORS; i++) {
        const struct st_tensor *t = out->matrix[i];
        out->vector[i] = NULL;
        if (!t)
            continue;
        note_columns(r->parts, t);
        if (t->rank == 1) {
            out->matrix[i] = NULL;
            if (!read_vector(r, t, &out->vector[i], e))
                return false;
        }
    }
    return true;
}

float reference_constant(const struct reference *r, double v)
{
    return r->parts->fp16_constants ? f16_to_f32(f64_to_f16(v)) : (float)v;
}

bool reference_alloc(float **out, int64_t a, int64_t b, int64_t c, struct err *e)
{
    size_t bytes;
    if (!size_mul((size_t)a, (size_t)b, &bytes) || !size_mul(bytes, (size_t)c, &bytes) ||
        !size_mul(bytes, sizeof **out, &bytes))
        return err_set(e, ERR_LIMIT, "%lld x %lld x %lld numbers do not fit in memory", (long long)a,
                       (long long)b, (long long)c);
    return (*out = mem_try_alloc(bytes, e)) != NULL;
}

bool reference_take(struct reference_session *s, float **out, int64_t a, int64_t b, int64_t c, struct err *e)
{
    if (!reference_alloc(out, a, b, c, e))
        return false;
    s->taken = mem_grow(s->taken, s->n_taken, &s->taken_capacity, sizeof *s->taken);
    s->taken[s->n_taken++] = (struct reference_taken){.p = *out, .n = (size_t)(a * b * c)};
    return true;
}
