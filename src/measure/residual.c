/* The reference's stream, layer by layer, on one batch of tokens. */
#include "measure/residual.h"
#include <math.h>
#include "reference/reference.h"

struct watched {
    int64_t n_layers, width;
    struct arch_residual *out;
};

static void watch(void *context, int64_t layer, int64_t position, int64_t n, const float *rows)
{
    const struct watched *w = context;
    (void)position;
    for (int64_t i = 0; layer < w->n_layers && i < n * w->width; i++) {
        double v = fabs((double)rows[i]);
        if (v <= w->out->largest)
            continue;
        w->out->largest = isnan(v) ? INFINITY : v;
        w->out->layer = layer;
    }
}

static bool are_known(const struct ids *ids, int64_t vocab_size)
{
    bool ok = true;
    for (size_t i = 0; i < ids->n; i++)
        ok = ok && ids->p[i] < vocab_size;
    return ok;
}

/* The text's. Where the checkpoint has no tokenizer for one of ours, ids spread over the vocabulary, behind the one that begins
 * texts. */
static bool read_tokens(const struct residual *r, const struct arch_model *m, struct ids *ids, struct err *e)
{
    struct err none = {0};
    const cJSON *bos = json_get(m->config.text, "bos_token_id");
    if (r->calibration->from)
        return calibration_read(r->calibration, m->checkpoint, ids, e);
    if (calibration_read(r->calibration, m->checkpoint, ids, &none) && are_known(ids, m->vocab_size))
        return true;
    ids->n = 0;
    if (cJSON_IsNumber(bos) && bos->valuedouble >= 0 && bos->valuedouble < (double)m->vocab_size)
        ids_push(ids, (int32_t)bos->valuedouble);
    for (int64_t i = 0; ids->n < RESIDUAL_TOKENS; i++)
        ids_push(ids, (int32_t)((i * 7919 + 13) % m->vocab_size));
    log_debug(r->log, "the residual stream is measured on ids spread over the vocabulary%s%s",
              none.msg[0] ? ": " : "", none.msg);
    return true;
}

static bool run(const struct residual *r, const struct arch_model *m, const struct ids *ids,
                struct arch_residual *out, struct err *e)
{
    const struct reference_options options = {.n_threads = r->n_threads, .log = r->log};
    struct reference *reference = NULL;
    struct reference_session *s = NULL;
    int64_t n = (int64_t)ids->n < RESIDUAL_TOKENS ? (int64_t)ids->n : RESIDUAL_TOKENS;
    struct watched watched = {.n_layers = m->n_layers, .width = m->hidden_size, .out = out};
    bool ok = reference_open(&reference, m->checkpoint, &options, e);
    if (ok && n > reference->max_positions)
        n = reference->max_positions;
    ok = ok && reference_session_new(&s, reference, n, e);
    if (ok) {
        reference_watch(s, watch, &watched);
        out->n_tokens = n;
        ok = reference_feed(s, ids->p, (size_t)n, NULL, NULL, e);
    }
    reference_session_free(s);
    reference_close(reference);
    return ok;
}

bool residual_measure(void *context, const struct arch_model *m, struct arch_residual *out, struct err *e)
{
    const struct residual *r = context;
    struct ids ids = {0};
    *out = (struct arch_residual){.scale = 1};
    bool ok = read_tokens(r, m, &ids, e) && run(r, m, &ids, out, e);
    ids_free(&ids);
    if (!ok)
        return false;
    if (isinf(out->largest)) {
        log_warn(r->log, "the residual stream of layer %lld is not finite on the calibration text",
                 (long long)out->layer);
        return true;
    }
    while (out->largest * out->scale > RESIDUAL_LIMIT && out->scale > RESIDUAL_SCALE_MIN)
        out->scale /= 2;
    if (out->scale < 1)
        log_info(r->log,
                 "the residual stream reaches %.0f (behind layer %lld; fp16 ends at 65504): the package's is "
                 "scaled by %g",
                 out->largest, (long long)out->layer, out->scale);
    else
        log_debug(r->log, "the residual stream reaches %.0f (behind layer %lld) on %lld tokens", out->largest,
                  (long long)out->layer, (long long)out->n_tokens);
    return true;
}
