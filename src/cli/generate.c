/* From logits to tokens, one at a time. */
#include "cli/generate.h"
#include <time.h>

static void override(double *value, double given)
{
    if (given != SAMPLING_UNSET)
        *value = given;
}

struct sampler_options sampling_resolve(const struct sampling_options *o, const struct model *m)
{
    struct recommended_sampling nothing;
    sampling_init(&nothing);
    /* Where the best token is all that a model gives, a recommendation can't be heeded (model_open says so). */
    struct sampler_options r = sampler_recommended(m->gives_best_only ? &nothing : &m->package->sampling);
    r.greedy = o->greedy;
    override(&r.temperature, o->temperature);
    override(&r.top_p, o->top_p);
    override(&r.min_p, o->min_p);
    override(&r.repetition_penalty, o->repeat_penalty);
    override(&r.presence_penalty, o->presence_penalty);
    override(&r.frequency_penalty, o->frequency_penalty);
    if (o->top_k != SAMPLING_UNSET_INT)
        r.top_k = o->top_k;
    r.repetition_window = o->repeat_last_n;
    r.seed = o->seed >= 0 ? (uint64_t)o->seed : (uint64_t)time(NULL) * 1000003u + (uint64_t)clock();
    return r;
}

bool sampling_open(struct sampler **out, const struct sampling_options *o, const struct model *m,
                   struct err *e)
{
    struct sampler_options options = sampling_resolve(o, m);
    *out = NULL;
    if (sampler_looks_beyond_best(&options) && !model_need_logits(m, "sampling other than greedy", e))
        return false;
    return sampler_new(out, &options, m->vocab_size, m->kernels, e);
}

const char *generate_end_name(enum generate_end end)
{
    static const char *const names[] = {"length", "end of text", "context full", "interrupted"};
    return names[end];
}

bool generate_tokens(const struct generate *g, struct ids *ids, int64_t *n_generated, enum generate_end *end,
                     struct err *e)
{
    *n_generated = 0;
    *end = GENERATE_LENGTH;
    while (*n_generated < g->limit) {
        /* One poisoned number in a package spreads to all of them; any token would be made up. */
        if (!sampler_can_pick(session_logits(g->session), g->model->vocab_size))
            return err_set(
                e, ERR_MISMATCH,
                "after %lld tokens none of the %lld logits is a number: the package is damaged, or "
                "its values leave the range of its types (milkit check --layers finds where)",
                (long long)session_position(g->session), (long long)g->model->vocab_size);
        int32_t id = sampler_pick(g->sampler, session_logits(g->session), ids->p, ids->n);
        if (!g->ignore_eos && package_is_eos(g->model->package, id)) {
            *end = GENERATE_STOP;
            break;
        }
        ids_push(ids, id);
        ++*n_generated;
        if (!g->on_token(g->context, id, e))
            return false;
        if (log_cancelled(g->log, NULL)) {
            *end = GENERATE_CANCELLED;
            break;
        }
        if (*n_generated >= g->limit)
            break;
        if (session_position(g->session) >= g->model->context_length) {
            *end = GENERATE_CONTEXT;
            break;
        }
        struct err why = {0};
        if (!session_feed(g->session, &id, 1, SESSION_CONTRACT, NULL, NULL, NULL, &why)) {
            if (why.code == ERR_CANCELLED) { /* inside the call: the token stands, its state does not */
                *end = GENERATE_CANCELLED;
                break;
            }
            *e = why;
            return false;
        }
    }
    return true;
}
