/* Opening a checkpoint for the reference, and the part of a session that all families share. */
#include "reference/tape.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/half.h"

#define CONFIG_BYTES_MAX ((size_t)16 << 20)
/* Rows of logits that one pass over the head makes. */
#define LOGITS_ROWS 32

#define REFERENCE_FAMILY(symbol) &reference_##symbol,
#define REFERENCE_DECODER(symbol, types, ...) REFERENCE_FAMILY(symbol)
static const struct reference_family *const families[] = {
#include "reference/families.def"
};
#undef REFERENCE_FAMILY
#undef REFERENCE_DECODER
#define N_FAMILIES ((int)(sizeof families / sizeof families[0]))

/* ---- settings and tensors ---- */

/* ---- opening ---- */

static bool find_family(struct reference_parts *p, struct err *e)
{
    const char *type;
    if (!config_get_model_type(&p->config, &type, e))
        return false;
    for (int i = 0; i < N_FAMILIES && !p->family; i++)
        for (const char *const *t = families[i]->model_types; *t && !p->family; t++)
            p->family = strcmp(*t, type) == 0 ? families[i] : NULL;
    char known[256] = "";
    size_t n = 0;
    for (int i = 0; i < N_FAMILIES && n < sizeof known; i++)
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", families[i]->name);
    return p->family ||
           err_set(e, ERR_UNSUPPORTED, "%s: key model_type: the reference knows %s, found \"%s\"",
                   p->config.path, known, type);
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
    p->dots = reference_dots_for(cpu_level_in_use());
    p->fp16_constants = options->fp16_constants;
    r->checkpoint = arena_strdup(arena, checkpoint);
    if (!checkpoint_source_open(&p->source, checkpoint, options->config_overrides, e))
        goto done;
    p->config_path = path_join(p->source->folder, "config.json");
    if (!checkpoint_check_folder(p->source->folder, e) ||
        !json_read_file(&p->config_file, p->config_path, CONFIG_BYTES_MAX, e) ||
        !config_set(&p->config, p->config_file, p->config_path, e) || !find_family(p, e) ||
        !safetensors_open(&p->tensors, p->source->folder, e))
        goto done;
    p->names = checkpoint_names_new(p->tensors);
    r->family = p->family->name;
    if (!checkpoint_check_layout(p->names, p->config_file, p->config_path, e) || !p->family->open(r, e) ||
        !pool_new(&p->pool, options->n_threads, e))
        goto done;
    *out = r;
    r = NULL;
    ok = true;
done:
    if (!ok)
        (void)checkpoint_source_fail(p->source, e);
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
    checkpoint_source_close(p->source);
    cJSON_Delete(p->config_file);
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
    s->arena = arena_new(0);
    s->capacity = n_positions;
    s->batch = batch;
    if (n_positions < 1 || n_positions > INT32_MAX) {
        err_set(e, ERR_LIMIT, "a reference session: expected room for 1 to %d positions, found %lld",
                INT32_MAX, (long long)n_positions);
        goto done;
    }
    if (p->positions_limit > 0 && n_positions > p->positions_limit) {
        err_set(
            e, ERR_UNSUPPORTED,
            "%s: beyond %lld positions the frequencies of RoPE change with the length of the text, which the "
            "reference does not compute: expected at most that many, found %lld",
            p->config.path, (long long)p->positions_limit, (long long)n_positions);
        goto done;
    }
    if (!reference_take(s, &s->stream, batch, r->hidden_size, 1, e) ||
        !reference_take(s, &s->hidden, batch, r->hidden_size, 1, e) ||
        !reference_take(s, &s->rows, pool_threads(p->pool), REFERENCE_ROWS, p->max_columns, e) ||
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
    for (size_t i = 0; i < s->n_taken; i++) {
        mem_free(s->taken[i].p);
        mem_free(s->taken[i].adjoint);
    }
    reference_tape_free(s->own_tape);
    free(s->taken);
    mem_free(s->logits);
    arena_free(s->arena);
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
        reference_linear(s, r->parts->ends.head, NULL, s->hidden + at * r->hidden_size, part, s->logits);
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

bool reference_check_tokens(const struct reference *r, const int32_t *tokens, size_t n, struct err *e)
{
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= r->vocab_size)
            return err_set(e, ERR_USAGE,
                           "token %zu: expected an id below %lld (the checkpoint's vocabulary), found %d", i,
                           (long long)r->vocab_size, tokens[i]);
    return true;
}

bool reference_feed(struct reference_session *s, const int32_t *tokens, size_t n,
                    reference_logits_fn on_logits, void *context, struct err *e)
{
    const struct reference *r = s->reference;
    if (n > (size_t)(s->capacity - s->position))
        return err_set(e, ERR_LIMIT, "%zu tokens at position %lld, but the reference has room for %lld", n,
                       (long long)s->position, (long long)s->capacity);
    if (!reference_check_tokens(r, tokens, n, e))
        return false;
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
