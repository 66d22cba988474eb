/* The tokens go to all sides at once, so that one row of logits each is enough. */
#include "measure/check.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/vocabulary.h"

#define TOKENS_BEHIND_BATCH 8
#define TOKENS_WITHOUT_PREFILL 24

static const char built_in_text[] =
    "The road leaves the village beside the old mill and follows the river up into the hills. In spring the "
    "water is high and brown, and the people who live along the banks move their boats under the trees. "
    "Nobody "
    "remembers who built the stone bridge, but everyone knows the story of the night when it carried two "
    "hundred sheep, one shepherd and the mayor's piano to the other side. ";

/* ---- the prompt ---- */

bool check_make_prompt(struct check *k, const struct tokenizer *t, struct err *e)
{
    const struct model *m = k->model;
    int64_t wanted = m->has_prefill ? m->batch_size + TOKENS_BEHIND_BATCH : TOKENS_WITHOUT_PREFILL;
    int64_t room = m->context_length - (k->n_more >= 0 ? k->n_more : CHECK_TOKENS_DEFAULT);
    if (wanted > room)
        wanted = room > 1 ? room : 1;
    if (!t) {
        for (int64_t i = 0; i < wanted; i++)
            ids_push(&k->ids, (int32_t)((i * 7919 + 13) % m->vocab_size));
        return true;
    }
    while ((int64_t)k->ids.n < wanted) {
        size_t before = k->ids.n;
        if (!vocabulary_encode(t, m->package->path, m->vocab_size, built_in_text, sizeof built_in_text - 1,
                               &k->ids, e))
            return false;
        if (k->ids.n == before)
            return err_set(e, ERR_FORMAT, "%s: the tokenizer makes no tokens of a text", m->package->path);
    }
    k->ids.n = (size_t)wanted;
    return true;
}

bool check_fit(struct check *k, struct err *e)
{
    int64_t context = k->model->context_length, wanted = k->n_more >= 0 ? k->n_more : CHECK_TOKENS_DEFAULT;
    k->n_prompt = k->ids.n;
    if ((int64_t)k->n_prompt > context)
        return err_set(e, ERR_LIMIT, "the prompt has %zu tokens, the package's context holds %lld",
                       k->n_prompt, (long long)context);
    int64_t room = context - (int64_t)k->n_prompt;
    if (wanted > room && k->n_more >= 0)
        log_warn(k->log, "only %lld of %lld tokens are generated: the package's context holds %lld",
                 (long long)room, (long long)wanted, (long long)context);
    k->n_more = wanted < room ? wanted : room;
    check_limits_choose(&k->limits, k->model);
    return true;
}

/* ---- comparing ---- */

static bool same_size(const struct check *k, const char *what, int64_t package, int64_t checkpoint,
                      struct err *e)
{
    return package == checkpoint ||
           err_set(e, ERR_MISMATCH, "%s is not a package of this checkpoint: %s %lld, but %lld in %s",
                   k->model->package->path, what, (long long)package, (long long)checkpoint,
                   k->reference->checkpoint);
}

bool check_sizes(const struct check *k, struct err *e)
{
    const struct model *m = k->model;
    const struct reference *r = k->reference;
    int64_t n_layers = m->package->meta->num_layers;
    return same_size(k, "vocabulary size", m->vocab_size, r->vocab_size, e) &&
           (m->is_monolithic || same_size(k, "hidden size", m->hidden_size, r->hidden_size, e)) &&
           (n_layers == 0 || same_size(k, "number of layers", n_layers, r->n_layers, e));
}

static bool compare_position(struct check *k, struct reference_session *r, struct session *const *sessions,
                             struct err *e)
{
    bool ok = true;
    for (int i = 0; i < k->n_sides; i++) {
        struct check_position *p = &k->sides[i].positions[k->n_positions];
        p->position = (int64_t)k->ids.n - 1;
        p->token = k->ids.p[k->ids.n - 1];
        logits_compare(reference_logits(r), session_logits(sessions[i]), k->model->vocab_size, &p->d);
        ok = p->d.reference_finite;
    }
    k->n_same += k->n_sides == 2 && memcmp(session_logits(sessions[0]), session_logits(sessions[1]),
                                           sizeof(float) * (size_t)k->model->vocab_size) == 0;
    k->n_positions++;
    return ok || err_set(e, ERR_FORMAT, "%s: the reference's logits at position %zu are not finite numbers",
                         k->reference->checkpoint, k->ids.n - 1);
}

/* The same tokens to all. */
static bool feed(struct check *k, struct reference_session *r, struct session *const *sessions,
                 const int32_t *tokens, size_t n, struct progress *progress, struct err *e)
{
    return check_layers_feed(k->layers, r, sessions[0], tokens, n, progress, e) &&
           (k->n_sides == 1 ||
            session_feed(sessions[1], tokens, n, SESSION_CONTRACT, NULL, NULL, progress, e));
}

/* All side by side, so that one row of logits each is enough. */
static bool compare(struct check *k, struct reference_session *r, struct session *const *sessions,
                    struct err *e)
{
    struct progress progress;
    bool ok = false;
    for (int i = 0; i < k->n_sides; i++)
        k->sides[i].positions = xcalloc((size_t)k->n_more + 1, sizeof *k->sides[i].positions);
    progress_begin(&progress, k->log, "check", "tokens", 1, (double)k->n_prompt + (double)k->n_more);
    if (!feed(k, r, sessions, k->ids.p, k->n_prompt, &progress, e))
        goto done;
    for (;;) {
        progress_update(&progress, (double)k->ids.n, NULL);
        if (!compare_position(k, r, sessions, e) || log_cancelled(k->log, e))
            goto done;
        if (k->n_positions == k->n_more + 1)
            break;
        int32_t id = k->sides[0].positions[k->n_positions - 1].d.reference_top;
        ids_push(&k->ids, id);
        if (!feed(k, r, sessions, &id, 1, NULL, e))
            goto done;
    }
    ok = check_layers_states(k->layers, r, sessions[0], e);
done:
    progress_end(&progress);
    return ok;
}

static void summarize(const struct check *k, struct check_side *side)
{
    struct check_summary *s = &side->summary;
    *s = (struct check_summary){.min_cosine = INFINITY};
    for (int64_t i = 0; i < k->n_positions; i++) {
        const struct logits_difference *d = &side->positions[i].d;
        if (d->margin > k->limits.margin) {
            s->n_counted++;
            s->n_agreed += d->other_finite && d->other_top == d->reference_top;
        }
        if (!d->other_finite) {
            s->n_not_finite++;
            continue;
        }
        s->min_cosine = fmin(s->min_cosine, d->cosine);
        s->mean_cosine += d->cosine;
        s->mean_kl += d->kl;
        s->max_kl = fmax(s->max_kl, d->kl);
        s->max_difference = fmax(s->max_difference, d->max_difference);
    }
    double n = (double)(k->n_positions - s->n_not_finite);
    s->mean_cosine /= n;
    s->mean_kl /= n;
}

static bool find_forms(struct check *k, struct err *e)
{
    k->sides[k->n_sides++].form = package_form(k->model->package);
    if (!k->other_model)
        return true;
    k->sides[k->n_sides++].form = package_form(k->other_model->package);
    return k->other_model->vocab_size == k->model->vocab_size ||
           err_set(e, ERR_MISMATCH, "%s: the two forms have vocabularies of %lld and %lld tokens",
                   k->model->package->path, (long long)k->model->vocab_size,
                   (long long)k->other_model->vocab_size);
}

/* Float32 hides here what a device makes infinite. */
static void say_range(struct check *k)
{
    const struct backend_range *r = &k->range;
    model_range(k->model, &k->range);
    if (r->n_beyond > 0)
        log_warn_hint(k->log, HINT_RESIDUAL_SCALE,
                      "%s: %lld values leave the range of fp16, which the package declares: on a device they "
                      "are infinite (function %s, %s reaches %.0f, fp16 ends at 65504)",
                      k->model->package->path, (long long)r->n_beyond, r->function, r->variable, r->largest);
}

bool check_compare(struct check *k, struct err *e)
{
    struct reference_session *r = NULL;
    struct session *sessions[2] = {NULL, NULL};
    bool ok = reference_session_new(&r, k->reference, (int64_t)k->n_prompt + k->n_more, e) &&
              find_forms(k, e) && session_new(&sessions[0], k->model, e) &&
              (!k->other_model || session_new(&sessions[1], k->other_model, e)) &&
              check_layers_new(&k->layers, k->model, k->reference, e) && compare(k, r, sessions, e);
    for (int i = 0; ok && i < k->n_sides; i++)
        summarize(k, &k->sides[i]);
    if (ok)
        say_range(k);
    reference_session_free(r);
    session_free(sessions[0]);
    session_free(sessions[1]);
    return ok;
}

void check_fini(struct check *k)
{
    free(k->sides[0].positions);
    free(k->sides[1].positions);
    ids_free(&k->ids);
    check_layers_free(k->layers);
}

/* ---- the verdict ---- */

/* Outside a limit; none is NAN. */
static bool is_below(double value, double limit)
{
    return !isnan(limit) && !(value >= limit);
}

static bool is_above(double value, double limit)
{
    return !isnan(limit) && !(value <= limit);
}

static void judge_side(const struct check *k, const struct check_side *side, struct buf *why)
{
    const struct check_summary *s = &side->summary;
    const struct check_limits *l = &k->limits;
    double top1 = s->n_counted ? (double)s->n_agreed / (double)s->n_counted : 1;
    char where[32] = "";
    if (k->n_sides > 1)
        snprintf(where, sizeof where, ".%s: ", side->form);
    if (s->n_not_finite > 0)
        buf_printf(why, "%sthe package's logits are not finite at %lld positions\n", where,
                   (long long)s->n_not_finite);
    if (s->n_not_finite < k->n_positions) {
        if (is_below(s->min_cosine, l->min_cosine))
            buf_printf(why, "%scosine %.10g is below %.10g\n", where, s->min_cosine, l->min_cosine);
        if (is_above(s->mean_kl, l->max_mean_kl))
            buf_printf(why, "%smean KL divergence %.3g is above %g\n", where, s->mean_kl, l->max_mean_kl);
        if (is_above(s->max_difference, l->max_difference))
            buf_printf(why, "%sa logit differs by %.3g, more than %g\n", where, s->max_difference,
                       l->max_difference);
        if (is_below(top1, l->min_top1))
            buf_printf(why, "%stop-1 agreement %.4f (%lld of %lld positions) is below %g\n", where, top1,
                       (long long)s->n_agreed, (long long)s->n_counted, l->min_top1);
    }
    if (side == &k->sides[0])
        check_layers_judge(check_layers_found(k->layers), l, why);
}

enum check_verdict check_judge(const struct check *k, struct buf *why)
{
    /* A second form with the same bits says nothing new. */
    for (int i = 0; i < k->n_sides; i++)
        if (i == 0 || k->n_same < k->n_positions)
            judge_side(k, &k->sides[i], why);
    return why->n ? CHECK_FAIL : k->n_sides > 0 && k->limits.has_verdict ? CHECK_PASS : CHECK_NONE;
}
