/* Opening a checkpoint for the reference, and the part of a session that all families share. */
#include "reference/reference_internal.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/half.h"

#define CONFIG_BYTES_MAX ((size_t)16 << 20)
/* Rows of logits that one pass over the head makes. */
#define LOGITS_ROWS 32

static const struct reference_family *const families[] = {&reference_qwen3, &reference_qwen3_5,
                                                          &reference_gemma4};

/* ---- settings and tensors ---- */

bool reference_get_size(const struct reference *r, const char *key, int64_t max, int64_t *value,
                        struct err *e)
{
    const char *where = r->parts->config_path;
    return json_get_int(r->parts->text, key, value, where, e) &&
           ((*value >= 1 && *value <= max) ||
            err_set(e, ERR_FORMAT, "%s: key %s: expected 1 to %lld, found %lld", where, key, (long long)max,
                    (long long)*value));
}

bool reference_has(const struct reference *r, const char *name)
{
    return checkpoint_has(r->parts->names, name);
}

bool reference_require_shape(struct reference *r, const char *name, int rank, const int64_t *shape,
                             const struct st_tensor **out, struct err *e)
{
    struct reference_parts *p = r->parts;
    const struct st_tensor *t = checkpoint_find(p->names, name);
    char expected[128], found[128];
    *out = NULL;
    if (!t)
        return checkpoint_missing(p->names, name, rank, shape, e);
    bool same = t->rank == rank;
    for (int i = 0; i < rank && same; i++)
        same = t->shape[i] == shape[i];
    if (!same) {
        st_shape_text(expected, shape, rank);
        st_shape_text(found, t->shape, t->rank);
        return err_set(e, ERR_FORMAT, "%s: tensor %s: expected shape %s, found %s", t->file, t->name,
                       expected, found);
    }
    if (t->dtype != ST_F16 && t->dtype != ST_BF16 && t->dtype != ST_F32 && t->dtype != ST_F64 && !t->scale)
        return err_set(e, ERR_UNSUPPORTED,
                       "%s: tensor %s: expected type F16, BF16, F32, F64 or F8_E4M3 with scales, found %s",
                       t->file, t->name, t->dtype_name);
    if (rank > 1 && shape[rank - 1] > p->max_columns)
        p->max_columns = shape[rank - 1];
    *out = t;
    return true;
}

bool reference_require(struct reference *r, const char *name, int64_t rows, int64_t columns,
                       const struct st_tensor **out, struct err *e)
{
    const int64_t shape[2] = {rows, columns};
    return reference_require_shape(r, name, columns > 0 ? 2 : 1, shape, out, e);
}

bool reference_require_vector(struct reference *r, const char *name, int64_t n, const float **out,
                              struct err *e)
{
    const struct st_tensor *t;
    float *v;
    *out = NULL;
    if (!reference_require(r, name, n, 0, &t, e) ||
        !(v = arena_try_alloc(r->parts->arena, (size_t)n, sizeof *v, e)) || !st_read_f32(t, v, e))
        return false;
    *out = v;
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

/* ---- opening ---- */

static bool find_family(struct reference_parts *p, struct err *e)
{
    const char *type = NULL;
    if (!cJSON_IsObject(p->config))
        return err_set(e, ERR_FORMAT, "%s: expected an object, found %s", p->config_path,
                       json_type_name(p->config));
    if (!json_get_string(p->config, "model_type", &type, p->config_path, e))
        return false;
    if (!type)
        return err_set(e, ERR_FORMAT, "%s: key model_type is missing", p->config_path);
    for (size_t i = 0; i < sizeof families / sizeof families[0] && !p->family; i++)
        p->family = families[i]->matches(type) ? families[i] : NULL;
    const cJSON *text = json_get(p->config, "text_config");
    p->text = cJSON_IsObject(text) ? text : p->config;
    return p->family ||
           err_set(e, ERR_UNSUPPORTED,
                   "%s: key model_type: the reference knows qwen3, qwen3_5 and gemma4, found \"%s\"",
                   p->config_path, type);
}

bool reference_open(struct reference **out, const char *checkpoint, const struct reference_options *options,
                    struct err *e)
{
    struct arena *arena = arena_new(0);
    struct reference *r = ARENA_NEW(arena, struct reference);
    struct reference_parts *p = r->parts = ARENA_NEW(arena, struct reference_parts);
    bool ok = false;
    *out = NULL;
    p->arena = arena;
    p->log = options->log;
    p->dot = reference_dot_for(cpu_level_in_use());
    p->fp16_constants = options->fp16_constants;
    r->checkpoint = arena_strdup(arena, checkpoint);
    p->config_path = path_join(checkpoint, "config.json");
    if (!checkpoint_check_folder(checkpoint, e) ||
        !json_read_file(&p->config, p->config_path, CONFIG_BYTES_MAX, e) || !find_family(p, e) ||
        !safetensors_open(&p->tensors, checkpoint, e))
        goto done;
    p->names = checkpoint_names_new(p->tensors);
    r->family = p->family->name;
    if (!checkpoint_check_layout(p->names, p->config, p->config_path, e) || !p->family->open(r, e) ||
        !pool_new(&p->pool, options->n_threads, e))
        goto done;
    *out = r;
    r = NULL;
    ok = true;
done:
    reference_close(r);
    return ok;
}

void reference_close(struct reference *r)
{
    if (!r)
        return;
    struct reference_parts *p = r->parts;
    pool_free(p->pool);
    checkpoint_names_free(p->names);
    safetensors_close(p->tensors);
    cJSON_Delete(p->config);
    free(p->config_path);
    arena_free(p->arena);
}

/* ---- sessions ---- */

bool reference_session_make(struct reference_session **out, struct reference *r, int64_t n_positions,
                            int64_t batch, struct err *e)
{
    struct reference_session *s = xcalloc(1, sizeof *s);
    struct reference_parts *p = r->parts;
    bool ok = false;
    *out = NULL;
    s->reference = r;
    s->capacity = n_positions;
    s->batch = batch;
    if (n_positions < 1 || n_positions > INT32_MAX) {
        err_set(e, ERR_LIMIT, "a reference session: expected room for 1 to %d positions, found %lld",
                INT32_MAX, (long long)n_positions);
        goto done;
    }
    if (!reference_alloc(&s->stream, batch, r->hidden_size, 1, e) ||
        !reference_alloc(&s->hidden, batch, r->hidden_size, 1, e) ||
        !reference_alloc(&s->rows, pool_threads(p->pool), REFERENCE_ROWS, p->max_columns, e) ||
        !p->family->session_open(s, e))
        goto done;
    *out = s;
    s = NULL;
    ok = true;
done:
    reference_session_free(s);
    return ok;
}

bool reference_session_new(struct reference_session **out, struct reference *r, int64_t n_positions,
                           struct err *e)
{
    return reference_session_make(out, r, n_positions, REFERENCE_BATCH, e);
}

void reference_session_free(struct reference_session *s)
{
    if (!s)
        return;
    s->reference->parts->family->session_close(s);
    mem_free(s->stream);
    mem_free(s->hidden);
    mem_free(s->rows);
    mem_free(s->logits);
    free(s);
}

void reference_session_reset(struct reference_session *s)
{
    s->position = 0;
    s->last_logits = NULL;
    const struct reference_family *family = s->reference->parts->family;
    for (int64_t i = 0; family->layer_reset && i < s->reference->n_layers; i++)
        family->layer_reset(s, i);
}

int64_t reference_session_position(const struct reference_session *s)
{
    return s->position;
}

const float *reference_logits(const struct reference_session *s)
{
    return s->last_logits;
}

void reference_watch(struct reference_session *s, reference_watch_fn fn, void *context)
{
    s->watch = fn;
    s->watch_context = context;
}

void reference_show(struct reference_session *s, int64_t layer, int64_t n, const float *rows)
{
    if (s->watch)
        s->watch(s->watch_context, layer, s->position, n, rows);
}

bool reference_state(const struct reference_session *s, int64_t layer, enum reference_state_kind kind,
                     struct reference_state *out)
{
    const struct reference *r = s->reference;
    return layer >= 0 && layer < r->n_layers && r->parts->family->session_state &&
           r->parts->family->session_state(s, layer, kind, out);
}

/* Room for n rows of logits; what was there is lost. */
static bool logits_room(struct reference_session *s, int64_t n, struct err *e)
{
    if (n <= s->n_logits_rows)
        return true;
    mem_free(s->logits);
    s->logits = NULL;
    s->n_logits_rows = 0;
    s->last_logits = NULL;
    if (!reference_alloc(&s->logits, n, s->reference->vocab_size, 1, e))
        return false;
    s->n_logits_rows = n;
    return true;
}

/* Logits of rows begin .. n of s->hidden, which belong to the positions from s->position on. */
static bool give_logits(struct reference_session *s, int64_t begin, int64_t n, reference_logits_fn on_logits,
                        void *context, struct err *e)
{
    const struct reference *r = s->reference;
    for (int64_t at = begin; at < n; at += LOGITS_ROWS) {
        int64_t part = n - at < LOGITS_ROWS ? n - at : LOGITS_ROWS;
        if (!logits_room(s, part, e))
            return false;
        reference_linear(s, r->parts->head, NULL, s->hidden + at * r->hidden_size, part, s->logits);
        for (int64_t i = 0; r->parts->softcap > 0 && i < part * r->vocab_size; i++)
            s->logits[i] = r->parts->softcap * tanhf(s->logits[i] / r->parts->softcap);
        s->last_logits = s->logits + (part - 1) * r->vocab_size;
        for (int64_t i = 0; on_logits && i < part; i++)
            if (!on_logits(context, s->position + at + i, s->logits + i * r->vocab_size, e))
                return false;
    }
    return true;
}

/* n tokens at s->position: their rows of the final norm in s->hidden. */
static bool forward(struct reference_session *s, const int32_t *tokens, int64_t n, struct err *e)
{
    const struct reference *r = s->reference;
    const struct reference_family *family = r->parts->family;
    family->embed(s, tokens, n);
    reference_show(s, -1, n, s->stream);
    for (int64_t i = 0; i < r->n_layers; i++) {
        if (log_cancelled(r->parts->log, e))
            return false;
        family->layer(s, i, n);
        reference_show(s, i, n, s->stream);
    }
    family->finish(s, n);
    reference_show(s, r->n_layers, n, s->hidden);
    return true;
}

bool reference_feed(struct reference_session *s, const int32_t *tokens, size_t n,
                    reference_logits_fn on_logits, void *context, struct err *e)
{
    const struct reference *r = s->reference;
    if (n > (size_t)(s->capacity - s->position))
        return err_set(e, ERR_LIMIT, "%zu tokens at position %lld, but the reference has room for %lld", n,
                       (long long)s->position, (long long)s->capacity);
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= r->vocab_size)
            return err_set(e, ERR_USAGE,
                           "token %zu: expected an id below %lld (the checkpoint's vocabulary), found %d", i,
                           (long long)r->vocab_size, tokens[i]);
    for (size_t at = 0; at < n;) {
        int64_t part = (int64_t)(n - at) < s->batch ? (int64_t)(n - at) : s->batch;
        bool is_last = at + (size_t)part == n;
        if (!forward(s, tokens + at, part, e))
            return false;
        if ((on_logits || is_last) && !give_logits(s, on_logits ? 0 : part - 1, part, on_logits, context, e))
            return false;
        s->position += part;
        at += (size_t)part;
    }
    return true;
}
