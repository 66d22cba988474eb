/* What a package says of itself against what its models are: the order of chunk files, caches against the context, and
 * meta.yaml. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "format/contract.h"
#include "runtime/model_int.h"
#include "runtime/sampler.h"

static const char *user_defined(const struct mil_model *mil, const char *key)
{
    const struct mil_description *d = &mil->description;
    for (int i = 0; i < d->n_user_defined; i++)
        if (strcmp(d->user_defined[i].key, key) == 0)
            return d->user_defined[i].value;
    return NULL;
}

/* A number of 0 .. INT_MAX at the beginning of text; -1: there is none. *rest: what follows. */
static int number_at(const char *text, const char **rest)
{
    char *end;
    if (!text || *text < '0' || *text > '9')
        return -1;
    long long n = strtoll(text, &end, 10);
    *rest = end;
    return n <= INT_MAX ? (int)n : -1;
}

/* ---- chunks ---- */

/* "4-7" of com.anemll.layers. */
static bool layers_of(const struct mil_model *mil, int *first, int *last)
{
    const char *rest = "";
    *first = number_at(user_defined(mil, "com.anemll.layers"), &rest);
    *last = *first >= 0 && *rest == '-' ? number_at(rest + 1, &rest) : -1;
    return *first >= 0 && *last >= *first && *rest == '\0';
}

bool model_check_chunk_order(const struct model *m, int i, struct err *e)
{
    const char *path = m->package->chunks[i], *rest = "";
    const struct mil_model *mil = m->chunks[i].mil;
    int no = number_at(user_defined(mil, "com.anemll.chunk_no"), &rest),
        of = number_at(user_defined(mil, "com.anemll.num_chunks"), &rest), first, last, first_before,
        last_before;
    if (m->is_monolithic)
        return true;
    if (no >= 0 && no != i + 1)
        return err_set(e, ERR_FORMAT,
                       "%s: expected chunk %d, found chunk %d (com.anemll.chunk_no): swapped files?", path,
                       i + 1, no);
    if (of >= 0 && of != m->n_chunks)
        return err_set(e, ERR_FORMAT,
                       "%s: a chunk of %d (com.anemll.num_chunks), but meta.yaml says num_chunks %d", path,
                       of, m->n_chunks);
    if (!layers_of(mil, &first, &last))
        return true;
    if (i == 0 && first != 0)
        return err_set(e, ERR_FORMAT, "%s: expected the layers from 0 on, found %d-%d (com.anemll.layers)",
                       path, first, last);
    if (i > 0 && layers_of(m->chunks[i - 1].mil, &first_before, &last_before) && first != last_before + 1)
        return err_set(e, ERR_FORMAT,
                       "%s: expected the layers from %d on, found %d-%d (com.anemll.layers): swapped files?",
                       path, last_before + 1, first, last);
    return true;
}

/* ---- caches ---- */

static const struct mil_function *infer_of(const struct model *m, int i)
{
    const struct mil_function *f = mil_function_find(m->chunks[i].mil, FUNCTION_INFER);
    return f || !m->chunks[i].second ? f : mil_function_find(m->chunks[i].second, FUNCTION_INFER);
}

/* The first cache [.., .., rows, ..] of chunk i with less than n rows; NULL: there is none. */
static const struct mil_var *short_cache(const struct model *m, int i, int64_t n)
{
    const struct mil_function *f = infer_of(m, i);
    for (int k = 0; f && k < f->n_inputs; k++) {
        const struct mil_type *t = f->inputs[k]->type;
        if (t->kind == MIL_TYPE_STATE && t->elem->rank == 4 && t->elem->dims[2] < n &&
            !m->backend->state_is_recurrent(m->shared, f->inputs[k]->name))
            return f->inputs[k];
    }
    return NULL;
}

/* One call of chunk i's infer at a position, with zeros for everything else, on states of its own. */
static bool try_position(const struct model *m, int i, const struct mil_var *cache, int64_t position,
                         struct err *e)
{
    const struct backend *b = m->backend;
    const struct backend_function *f = m->chunks[i].functions[MODEL_INFER];
    struct backend_states *states = b->states_new(m->shared);
    struct backend_run *run = NULL;
    struct err why = {0};
    bool ok = b->run_open(&run, f, m->pool, &m->stop, e) && b->states_add(states, f, e);
    for (int k = 0; ok && k < f->n_inputs; k++) {
        const struct mil_port *port = &f->inputs[k];
        bool is_position =
            strcmp(port->name, PORT_POSITION_IDS) == 0 || strcmp(port->name, PORT_CURRENT_POS) == 0;
        memset(b->run_input(run, k), 0, 4 * (size_t)port->n_elems);
        for (int64_t j = 0; is_position && j < port->n_elems; j++)
            ((int32_t *)b->run_input(run, k))[j] = (int32_t)position;
    }
    if (ok && !b->run_execute(run, states, &why)) {
        ok = false;
        if (why.code == ERR_FAILED)
            err_set(e, ERR_FORMAT,
                    "%s: position %lld of a context of %lld can't be computed: state %s holds %lld positions "
                    "(%s)",
                    m->package->chunks[i], (long long)position, (long long)m->context_length, cache->name,
                    (long long)cache->type->elem->dims[2], why.msg);
        else /* stopped: nothing is known of the package */
            *e = why;
    }
    if (run)
        b->run_close(run);
    b->states_free(states);
    return ok;
}

bool model_check_positions(const struct model *m, struct err *e)
{
    const struct meta *meta = m->package->meta;
    /* infer's positions: rotating functions take over where their caches are full */
    int64_t n = m->rotate_from < m->context_length ? m->rotate_from : m->context_length;
    for (int i = 0; i < m->n_chunks && meta->local_cache_length == 0; i++) {
        const struct mil_var *cache = short_cache(m, i, n);
        if (cache && !try_position(m, i, cache, n - 1, e))
            return false;
    }
    return true;
}

/* ---- meta.yaml ---- */

static void differs(const struct model *m, struct log *log, const char *key, int64_t says, const char *path,
                    const char *what, int64_t is)
{
    if (meta_has(m->package->meta, key) && says != is)
        log_warn(log, "%s: %s %lld, but %s has %lld %s", m->package->meta->path, key, (long long)says, path,
                 (long long)is, what);
}

/* Of the first n chunks. */
static const struct mil_type *state_type(const struct model *m, int n, const char *name)
{
    for (int i = 0; i < n; i++) {
        const struct mil_function *f = infer_of(m, i);
        for (int k = 0; f && k < f->n_inputs; k++)
            if (f->inputs[k]->type->kind == MIL_TYPE_STATE && strcmp(f->inputs[k]->name, name) == 0)
                return f->inputs[k]->type->elem;
    }
    return NULL;
}

static void check_states(const struct model *m, struct log *log)
{
    const struct meta *meta = m->package->meta;
    for (int i = 0; i < meta->n_states; i++) {
        const struct meta_state *s = &meta->states[i];
        const struct mil_type *t = state_type(m, m->n_chunks, s->name);
        if (!t) {
            log_warn(log, "%s: states: no chunk has %s", meta->path, s->name);
            continue;
        }
        bool same = t->rank == s->rank;
        for (int k = 0; same && k < s->rank; k++)
            same = t->dims[k] == s->shape[k];
        char text[128];
        mil_type_text(text, sizeof text, t);
        if (!same)
            log_warn(log, "%s: states: %s: the chunks have %s", meta->path, s->name, text);
    }
    for (int i = 0; meta->n_states > 0 && i < m->n_chunks; i++) {
        const struct mil_function *f = infer_of(m, i);
        for (int k = 0; f && k < f->n_inputs; k++) {
            const char *name = f->inputs[k]->name;
            bool known = f->inputs[k]->type->kind != MIL_TYPE_STATE || state_type(m, i, name);
            for (int j = 0; j < meta->n_states; j++)
                known = known || strcmp(meta->states[j].name, name) == 0;
            if (!known)
                log_warn(log, "%s: states: %s of %s is not in the list", meta->path, name,
                         m->package->chunks[i]);
        }
    }
}

void model_check_meta(const struct model *m, struct log *log)
{
    const struct meta *meta = m->package->meta;
    const char *head = m->is_monolithic ? m->package->chunks[0] : m->package->lm_head;
    differs(m, log, "context_length", meta->context_length, m->package->chunks[0], "columns in causal_mask",
            m->mask_length);
    differs(m, log, "split_lm_head", meta->split_lm_head, head, "parts of the vocabulary", m->n_logits);
    if (!m->is_monolithic)
        differs(m, log, "hidden_size", meta->hidden_size, m->package->embeddings, "columns in hidden_states",
                m->hidden_size);
    if (meta_has(meta, "argmax_in_model") && meta->argmax_in_model != m->gives_best_only)
        log_warn(log, "%s: argmax_in_model %s, but %s gives %s", meta->path,
                 meta->argmax_in_model ? "true" : "false", head,
                 m->gives_best_only ? PORT_ARGMAX_INDEX : "logits");
    if (meta->n_lm_head_chunk_sizes > 0) {
        int same = meta->n_lm_head_chunk_sizes == m->n_logits ? 0 : -1;
        while (same >= 0 && same < m->n_logits &&
               meta->lm_head_chunk_sizes[same] == m->part_begin[same + 1] - m->part_begin[same])
            same++;
        if (same < 0)
            log_warn(log, "%s: lm_head_chunk_sizes has %d entries, but %s has %d parts of the vocabulary",
                     meta->path, meta->n_lm_head_chunk_sizes, head, m->n_logits);
        else if (same < m->n_logits)
            log_warn(log, "%s: lm_head_chunk_sizes: part %d is %lld, but %s has %lld there", meta->path,
                     same + 1, (long long)meta->lm_head_chunk_sizes[same], head,
                     (long long)(m->part_begin[same + 1] - m->part_begin[same]));
    }
    check_states(m, log);
    const struct sampler_options o = sampler_recommended(&m->package->sampling);
    if (m->gives_best_only && sampler_looks_beyond_best(&o))
        log_warn(
            log,
            "%s: the recommended sampling has no effect: the model names only the best tokens (argmax_idx)",
            m->package->path);
}
