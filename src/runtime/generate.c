/* From logits to tokens, one at a time. */
#include "runtime/generate.h"
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

void sampling_say(struct log *log, const struct sampler_options *o)
{
    const struct {
        const char *name;
        double value, off;
    } numbers[] = {
        {"top-k", (double)o->top_k, 0},
        {"top-p", o->top_p, 1},
        {"min-p", o->min_p, 0},
        {"repeat penalty", o->repetition_penalty, 1},
        {"presence penalty", o->presence_penalty, 0},
        {"frequency penalty", o->frequency_penalty, 0},
    };
    bool is_greedy = o->greedy || o->temperature <= 0;
    struct buf text;
    buf_init(&text, 4096);
    if (is_greedy)
        buf_puts(&text, "greedy");
    else
        buf_printf(&text, "seed %llu, temperature %g", (unsigned long long)o->seed, o->temperature);
    for (size_t i = is_greedy ? 3 : 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (numbers[i].value != numbers[i].off)
            buf_printf(&text, ", %s %g", numbers[i].name, numbers[i].value);
    log_debug(log, "tokens are chosen: %s", text.p);
    buf_fini(&text);
}

bool sampling_open(struct sampler **out, struct sampler_options *chosen, const struct sampling_options *o,
                   const struct model *m, struct log *log, struct err *e)
{
    *chosen = sampling_resolve(o, m);
    *out = NULL;
    if (sampler_looks_beyond_best(chosen) && !model_need_logits(m, "sampling other than greedy", e))
        return false;
    if (!sampler_new(out, chosen, m->vocab_size, NULL, e))
        return false;
    sampling_say(log, chosen);
    return true;
}

const char *generate_end_name(enum generate_end end)
{
    static const char *const names[] = {"length", "end of text", "context full", "interrupted"};
    return names[end];
}

static bool is_end(const struct generate *g, int32_t id)
{
    for (size_t i = 0; i < g->n_stops; i++)
        if (g->stops[i] == id)
            return true;
    return !g->ignore_eos && package_is_eos(g->model->package, id);
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
                       "its values leave the range of its types",
                       (long long)session_position(g->session), (long long)g->model->vocab_size),
                   err_set_hint(e, HINT_CHECK_LAYERS);
        int32_t id = sampler_pick(g->sampler, session_logits(g->session), ids->p, ids->n);
        if (is_end(g, id)) {
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
