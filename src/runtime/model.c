/* Opening the parts of a package and checking them against each other and against the contract. */
#include <stdlib.h>
#include <string.h>
#include "runtime/model_int.h"

static bool plan_part(struct model *m, struct model_part *part, const char *path, const char *function,
                      int64_t tokens, const char *flexible_input, const struct model_options *o,
                      struct engine_plan **out, struct err *e)
{
    struct engine_shape shape = {.input = flexible_input, .rank = 2, .dims = {1, tokens}};
    struct engine_options options = {
        .kernels = m->kernels, .precision = o->precision, .stop = &m->stop, .state_forms = m->state_forms};
    const struct mil_function *f = mil_function_find(part->mil, function);
    const char *first_input = flexible_input ? flexible_input : "hidden_states";
    bool found = false;
    for (int i = 0; f && i < f->n_inputs; i++)
        found = found || strcmp(f->inputs[i]->name, first_input) == 0;
    if (f && !found)
        return err_set(e, ERR_FORMAT, "%s: function %s has no input %s: another part of the package?", path,
                       function, first_input);
    if (engine_plan_new(out, part->mil, function, &shape, flexible_input ? 1 : 0, &options, e))
        return true;
    if (e->code == ERR_USAGE) /* a shape that meta.yaml asks for and the model does not have */
        e->code = ERR_FORMAT;
    return false;
}

/* An input or output with a dtype and shape that the contract asks for; dims of -1 are free. */
static bool check_port(const struct engine_port *port, const char *what, const char *path, bool is_int,
                       int rank, const int64_t *dims, struct err *e)
{
    char want[96] = "", have[96] = "";
    bool ok = port->is_int == is_int && port->rank == rank;
    for (int i = 0; i < rank; i++) {
        size_t n = strlen(want);
        snprintf(want + n, sizeof want - n, dims[i] < 0 ? "%s?" : "%s%lld", i ? ", " : "",
                 (long long)dims[i]);
    }
    for (int i = 0; i < port->rank; i++) {
        size_t n = strlen(have);
        snprintf(have + n, sizeof have - n, "%s%lld", i ? ", " : "", (long long)port->dims[i]);
        ok = ok && i < rank && (dims[i] < 0 || dims[i] == port->dims[i]);
    }
    return ok || err_set(e, ERR_FORMAT, "%s: %s %s: expected %s [%s], found %s [%s]", path, what, port->name,
                         is_int ? "integers" : "floats", want, mil_dtype_name(port->dtype), have);
}

static bool check_input(const struct engine_plan *p, const char *path, const char *name, bool is_int,
                        int rank, const int64_t *dims, struct err *e)
{
    int i = engine_plan_find_input(p, name);
    if (i < 0)
        return err_set(e, ERR_FORMAT, "%s: no input %s", path, name);
    return check_port(engine_plan_input(p, i), "input", path, is_int, rank, dims, e);
}

static bool check_output(const struct engine_plan *p, const char *path, const char *name, int64_t tokens,
                         int64_t hidden, struct err *e)
{
    const int64_t dims[3] = {1, tokens, hidden};
    int i = engine_plan_find_output(p, name);
    if (i < 0)
        return err_set(e, ERR_FORMAT, "%s: no output %s", path, name);
    return check_port(engine_plan_output(p, i), "output", path, false, 3, dims, e);
}

static bool check_chunk(struct model *m, const struct engine_plan *p, const char *path, int64_t tokens,
                        bool is_last, struct err *e)
{
    const int64_t hidden[3] = {1, tokens, m->hidden_size}, positions[1] = {tokens}, one[1] = {1},
                  mask[4] = {1, 1, tokens, m->mask_length > 0 ? m->mask_length : -1};
    /* The head reads the last chunk's row in place. Where meta.yaml does not promise it, prefill's output is not used. */
    int64_t rows = !is_last || tokens == 1 ? tokens : m->package->meta->prefill_last_token_output ? 1 : -1;
    if (!check_input(p, path, "hidden_states", false, 3, hidden, e) ||
        !check_input(p, path, "position_ids", true, 1, positions, e) ||
        !check_input(p, path, "causal_mask", false, 4, mask, e) ||
        !check_input(p, path, "current_pos", true, 1, one, e) ||
        !check_output(p, path, "output_hidden_states", rows, m->hidden_size, e))
        return false;
    m->mask_length = engine_plan_input(p, engine_plan_find_input(p, "causal_mask"))->dims[3];
    int64_t per_layer[3] = {1, tokens, m->per_layer_width};
    for (int i = 0; i < engine_plan_inputs(p); i++) {
        static const char *const known[] = {"hidden_states", "position_ids", "causal_mask", "current_pos"};
        const struct engine_port *port = engine_plan_input(p, i);
        bool is_known = false;
        for (size_t k = 0; k < 4; k++)
            is_known = is_known || strcmp(port->name, known[k]) == 0;
        if (!is_known && m->per_layer_width > 0 && strcmp(port->name, "per_layer_inputs") == 0) {
            if (!check_port(port, "input", path, false, 3, per_layer, e))
                return false;
            is_known = true;
        }
        if (!is_known)
            return err_set(e, ERR_UNSUPPORTED, "%s: input %s is none that this runtime feeds", path,
                           port->name);
    }
    return true;
}

static bool open_embeddings(struct model *m, const struct model_options *o, struct err *e)
{
    struct model_part *part = &m->embeddings;
    const char *path = m->package->embeddings;
    if (!mil_model_open(&part->mil, path, 0, e))
        return false;
    const char *function = mil_default_function_name(part->mil);
    if (!plan_part(m, part, path, function, 1, "input_ids", o, &part->infer, e))
        return false;
    const int64_t ids[2] = {1, 1};
    if (!check_input(part->infer, path, "input_ids", true, 2, ids, e) ||
        !check_output(part->infer, path, "hidden_states", 1, -1, e))
        return false;
    m->hidden_size =
        engine_plan_output(part->infer, engine_plan_find_output(part->infer, "hidden_states"))->dims[2];
    int per_layer = engine_plan_find_output(part->infer, "per_layer_inputs");
    if (per_layer >= 0) {
        const int64_t dims[3] = {1, 1, -1};
        const struct engine_port *port = engine_plan_output(part->infer, per_layer);
        if (!check_port(port, "output", path, false, 3, dims, e))
            return false;
        m->per_layer_width = port->dims[2];
    }
    if (m->batch_size == 1)
        return true;
    /* The chunks read the outputs in place, so the second plan's must have the rows that they count on, too. */
    const int64_t all_ids[2] = {1, m->batch_size};
    if (!plan_part(m, part, path, function, m->batch_size, "input_ids", o, &part->prefill, e) ||
        !check_input(part->prefill, path, "input_ids", true, 2, all_ids, e) ||
        !check_output(part->prefill, path, "hidden_states", m->batch_size, m->hidden_size, e))
        return false;
    return per_layer < 0 ||
           check_output(part->prefill, path, "per_layer_inputs", m->batch_size, m->per_layer_width, e);
}

/* A state that is no cache of all positions, [.., .., context, ..], is written over as the context grows. */
static bool has_sequential_state(const struct model *m, const struct mil_model *mil)
{
    const struct mil_function *f = mil_function_find(mil, "infer");
    for (int i = 0; f && i < f->n_inputs; i++) {
        const struct mil_type *t = f->inputs[i]->type;
        if (t->kind == MIL_TYPE_STATE && (t->elem->rank != 4 || t->elem->dims[2] != m->mask_length))
            return true;
    }
    return false;
}

/* All chunks, before any of them is planned: how a state is held depends on what each of them does with it. */
static bool map_chunks(struct model *m, struct err *e)
{
    for (int i = 0; i < m->n_chunks; i++) {
        if (!mil_model_open(&m->chunks[i].mil, m->package->chunks[i], 0, e))
            return false;
        engine_state_forms_add(m->state_forms, m->chunks[i].mil);
    }
    return true;
}

static bool open_chunk(struct model *m, int i, const struct model_options *o, struct err *e)
{
    struct model_part *part = &m->chunks[i];
    const char *path = m->package->chunks[i];
    bool is_last = i + 1 == m->n_chunks;
    if (o->watch_layers)
        model_add_watches(part->mil);
    if (!plan_part(m, part, path, "infer", 1, NULL, o, &part->infer, e) ||
        !check_chunk(m, part->infer, path, 1, is_last, e))
        return false;
    m->is_sequential = m->is_sequential || has_sequential_state(m, part->mil);
    if (!mil_function_find(part->mil, "prefill")) {
        m->has_prefill = false;
    } else if (!plan_part(m, part, path, "prefill", 0, NULL, o, &part->prefill, e) ||
               !check_chunk(m, part->prefill, path, m->batch_size, is_last, e)) {
        return false;
    }
    if (o->watch_layers)
        model_find_watches(m, part, is_last);
    return true;
}

static bool open_head(struct model *m, const struct model_options *o, struct err *e)
{
    struct model_part *part = &m->head;
    const char *path = m->package->lm_head;
    const int64_t hidden[3] = {1, 1, m->hidden_size};
    if (!mil_model_open(&part->mil, path, 0, e) ||
        !plan_part(m, part, path, mil_default_function_name(part->mil), 1, NULL, o, &part->infer, e) ||
        !check_input(part->infer, path, "hidden_states", false, 3, hidden, e))
        return false;
    int n = engine_plan_outputs(part->infer);
    if (engine_plan_find_output(part->infer, "argmax_idx") >= 0)
        return err_set(e, ERR_UNSUPPORTED,
                       "%s: the head returns argmax_idx instead of logits, which is not supported", path);
    m->logits_output = xcalloc((size_t)n, sizeof *m->logits_output);
    for (m->n_logits = 0; m->n_logits < n; m->n_logits++) {
        char name[32];
        snprintf(name, sizeof name, "logits%d", m->n_logits + 1);
        int i = engine_plan_find_output(part->infer, name);
        if (i < 0 && n == 1 && (i = engine_plan_find_output(part->infer, "logits")) < 0)
            i = engine_plan_find_output(part->infer, "output_logits");
        if (i < 0)
            return err_set(e, ERR_FORMAT, "%s: %d outputs, but no %s among them", path, n, name);
        if (engine_plan_output(part->infer, i)->is_int)
            return err_set(e, ERR_FORMAT, "%s: output %s: expected floats, found %s", path,
                           engine_plan_output(part->infer, i)->name,
                           mil_dtype_name(engine_plan_output(part->infer, i)->dtype));
        m->logits_output[m->n_logits] = i;
        m->vocab_size += engine_plan_output(part->infer, i)->n_elems;
    }
    int64_t stated = m->package->meta->vocab_size;
    if (stated > 0 && stated != m->vocab_size)
        return err_set(e, ERR_FORMAT, "%s: the head has %lld logits, but meta.yaml says vocab_size %lld",
                       path, (long long)m->vocab_size, (long long)stated);
    return true;
}

/* Programs and plans are built from far more memory than they keep; checks and tables touched pages all over the weight
 * files. */
static void drop_what_loading_used(const struct model *m)
{
    mil_model_drop_pages(m->embeddings.mil);
    for (int i = 0; i < m->n_chunks; i++)
        mil_model_drop_pages(m->chunks[i].mil);
    mil_model_drop_pages(m->head.mil);
    mem_trim();
}

bool model_open(struct model **out, const char *path, const struct model_options *options, struct err *e)
{
    struct model *m = xcalloc(1, sizeof *m);
    const char *why = "";
    bool ok = false;
    *out = NULL;
    if (!(m->kernels = kernel_select(&why))) {
        err_set(e, ERR_USAGE, "%s", why);
        goto done;
    }
    struct engine_limits limits; /* only read here: a wrong one is no fault of the package */
    if (!engine_limits_of(NULL, &limits, e) || !package_open(&m->package, path, e) ||
        !pool_new(&m->pool, options->n_threads, e))
        goto done;
    for (int i = 0; i < m->package->n_warnings; i++)
        log_warn(options->log, "%s", m->package->warnings[i]);
    m->precision = options->precision;
    m->stop =
        (struct stop){.flag = options->log ? options->log->cancel : NULL, .deadline = options->deadline};
    m->is_sequential = m->package->meta->recurrent_state || m->package->meta->local_cache_length > 0;
    m->batch_size = m->package->meta->batch_size;
    m->has_prefill = m->batch_size > 1;
    m->n_chunks = m->package->n_chunks;
    m->chunks = xcalloc((size_t)m->n_chunks, sizeof *m->chunks);
    m->state_forms = engine_state_forms_new();
    if (!open_embeddings(m, options, e) || !map_chunks(m, e))
        goto done;
    for (int i = 0; i < m->n_chunks; i++)
        if (!open_chunk(m, i, options, e))
            goto done;
    if (!open_head(m, options, e))
        goto done;
    m->context_length = m->package->meta->context_length;
    if (m->context_length > m->mask_length)
        m->context_length = m->mask_length;
    drop_what_loading_used(m);
    *out = m;
    m = NULL;
    ok = true;
done:
    model_close(m);
    return ok;
}

static void close_part(struct model_part *p)
{
    engine_plan_free(p->infer);
    engine_plan_free(p->prefill);
    free(p->watches);
    mil_model_close(p->mil);
}

void model_close(struct model *m)
{
    if (!m)
        return;
    close_part(&m->embeddings);
    close_part(&m->head);
    for (int i = 0; m->chunks && i < m->n_chunks; i++)
        close_part(&m->chunks[i]);
    free(m->chunks);
    engine_state_forms_free(m->state_forms);
    free(m->logits_output);
    pool_free(m->pool);
    package_close(m->package);
    free(m);
}
