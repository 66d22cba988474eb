/* Sampling: sessions that step together, each text with a generator of its own, so that the number of sessions changes
 * nothing. */
#include "measure/self_text.h"
#include <stdlib.h>
#include <string.h>
#include "runtime/batch.h"
#include "runtime/sampler.h"

#define SESSIONS_MAX 16
#define STATES_BYTES_MAX ((uint64_t)512 << 20)
#define SEED 1

struct writer {
    struct model *model;
    struct batch *batch;
    struct session *sessions[SESSIONS_MAX];
    struct sampler *samplers[SESSIONS_MAX];
    struct batch_member members[SESSIONS_MAX];
    int n_sessions;
    int64_t n_text;
    struct progress *progress;
};

static uint64_t states_bytes(const struct session *s)
{
    const struct backend_states *states = session_states(s);
    uint64_t bytes = 0;
    for (int i = 0; i < states->n; i++)
        bytes += backend_state_bytes(&states->list[i]);
    return bytes;
}

static bool open_sessions(struct writer *w, int64_t n_texts, struct err *e)
{
    int n = n_texts < SESSIONS_MAX ? (int)n_texts : SESSIONS_MAX;
    for (w->n_sessions = 0; w->n_sessions < n; w->n_sessions++) {
        if (!session_new(&w->sessions[w->n_sessions], w->model, e))
            return false;
        session_limit_snapshots(w->sessions[w->n_sessions], 0, 0);
        uint64_t bytes = states_bytes(w->sessions[0]), most = bytes ? STATES_BYTES_MAX / bytes : SESSIONS_MAX;
        n = (uint64_t)n > most ? (int)(most > 0 ? most : 1) : n;
    }
    return batch_new(&w->batch, w->model, w->n_sessions, e);
}

/* A few steps of a generator, so that neighbours are far apart. */
static int32_t first_token(int64_t text, int64_t vocab_size)
{
    uint64_t x = (uint64_t)text + SEED;
    for (int i = 0; i < 3; i++) {
        x += 0x9e3779b97f4a7c15u;
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
        x ^= x >> 27;
    }
    return (int32_t)(x % (uint64_t)vocab_size);
}

/* Texts [first, first + n) to ids [n, n_text]. */
static bool write_texts(struct writer *w, int64_t first, int n, int32_t *ids, struct log *log, struct err *e)
{
    const struct sampler_options options = {
        .temperature = 1, .top_p = 1, .repetition_penalty = 1, .seed = SEED};
    int64_t vocab_size = w->model->vocab_size;
    bool ok = true;
    for (int i = 0; i < n && ok; i++) {
        struct sampler_options own = options;
        own.seed += (uint64_t)(first + i);
        sampler_free(w->samplers[i]);
        w->samplers[i] = NULL;
        session_reset(w->sessions[i]);
        ok = sampler_new(&w->samplers[i], &own, vocab_size, NULL, e);
        ids[i * w->n_text] = first_token(first + i, vocab_size);
    }
    for (int64_t t = 0; t + 1 < w->n_text && ok; t++) {
        for (int i = 0; i < n; i++)
            w->members[i] = (struct batch_member){.session = w->sessions[i], .id = ids[i * w->n_text + t]};
        ok = !log_cancelled(log, e) && batch_step(w->batch, w->members, n);
        for (int i = 0; i < n && !ok; i++)
            if (w->members[i].has_failed && e)
                *e = w->members[i].error;
        for (int i = 0; i < n && ok; i++) {
            const float *logits = session_logits(w->sessions[i]);
            ids[i * w->n_text + t + 1] =
                sampler_can_pick(logits, vocab_size)
                    ? sampler_pick(w->samplers[i], logits, ids + i * w->n_text, (size_t)t + 1)
                    : 0;
        }
        progress_update(w->progress, (double)(first * w->n_text + n * t), NULL);
    }
    return ok;
}

bool self_text_write(struct ids *out, const char *package, int64_t n_tokens, int64_t n_text, int n_threads,
                     struct log *log, struct err *e)
{
    struct log quiet = {.cancel = log->cancel};
    struct model_options options = {.n_threads = n_threads, .log = &quiet};
    struct progress progress;
    struct writer w = {.n_text = n_text, .progress = &progress};
    int64_t n_texts = n_tokens / n_text;
    progress_begin(&progress, log, "writing a text", "tokens", 1, (double)(n_texts * n_text));
    bool ok = model_open(&w.model, package, &options, e) && open_sessions(&w, n_texts, e);
    size_t at = out->n;
    for (int64_t i = 0; i < n_texts * n_text; i++)
        ids_push(out, 0);
    for (int64_t text = 0; text < n_texts && ok; text += w.n_sessions) {
        int n = n_texts - text < w.n_sessions ? (int)(n_texts - text) : w.n_sessions;
        ok = write_texts(&w, text, n, out->p + at + text * n_text, log, e);
    }
    progress_end(&progress);
    batch_free(w.batch);
    for (int i = 0; i < SESSIONS_MAX; i++) {
        session_free(w.sessions[i]);
        sampler_free(w.samplers[i]);
    }
    model_close(w.model);
    return ok;
}
