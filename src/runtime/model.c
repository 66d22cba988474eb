/* Opening the parts of a package and checking them against each other and against the contract. */
#include <stdlib.h>
#include <string.h>
#include "format/contract.h"
#include "runtime/model_int.h"

static const char *const function_names[MODEL_FUNCTIONS] = {FUNCTION_INFER, FUNCTION_PREFILL,
                                                            FUNCTION_INFER_ROTATE, FUNCTION_PREFILL_ROTATE};

static bool plan_part(struct model *m, const struct mil_model *mil, const char *path, const char *function,
                      int64_t tokens, const char *flexible_input, struct backend_function **out,
                      struct err *e)
{
    const struct backend_source source = {.mil = mil, .path = path};
    const struct mil_input_shape shape = {.input = flexible_input, .rank = 2, .dims = {1, tokens}};
    const struct mil_function *f = mil_function_find(mil, function);
    const char *first_input = flexible_input || m->is_monolithic ? PORT_INPUT_IDS : PORT_HIDDEN_STATES;
    bool found = false;
    for (int i = 0; f && i < f->n_inputs; i++)
        found = found || strcmp(f->inputs[i]->name, first_input) == 0;
    if (f && !found)
        return err_set(e, ERR_FORMAT, "%s: function %s has no input %s: another part of the package?", path,
                       function, first_input);
    if (m->backend->function_open(out, m->shared, &source, function, &shape, flexible_input ? 1 : 0, e))
        return true;
    if (e->code == ERR_USAGE) { /* a shape that meta.yaml asks for and the model does not have */
        e->code = ERR_FORMAT;
        if (tokens > 1)
            return err_wrap(e, "%s: batch_size %lld of meta.yaml", m->package->path, (long long)tokens);
    }
    return false;
}

/* An input or output with a dtype and shape that the contract asks for; dims of -1 are free. */
static bool check_port(const struct mil_port *port, const char *what, const char *path, bool is_int, int rank,
                       const int64_t *dims, struct err *e)
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

static bool check_input(const struct backend_function *p, const char *path, const char *name, bool is_int,
                        int rank, const int64_t *dims, struct err *e)
{
    int i = backend_find_input(p, name);
    if (i < 0)
        return err_set(e, ERR_FORMAT, "%s: no input %s", path, name);
    return check_port(&p->inputs[i], "input", path, is_int, rank, dims, e);
}

static bool check_output(const struct backend_function *p, const char *path, const char *name, int64_t tokens,
                         int64_t hidden, struct err *e)
{
    const int64_t dims[3] = {1, tokens, hidden};
    int i = backend_find_output(p, name);
    if (i < 0)
        return err_set(e, ERR_FORMAT, "%s: no output %s", path, name);
    return check_port(&p->outputs[i], "output", path, false, 3, dims, e);
}

static bool check_chunk(struct model *m, const struct backend_function *p, const char *path,
                        enum model_function f, bool is_last, struct err *e)
{
    int64_t tokens = f == MODEL_PREFILL || f == MODEL_PREFILL_ROTATE ? m->batch_size : 1;
    const int64_t ids[2] = {1, tokens}, hidden[3] = {1, tokens, m->hidden_size}, positions[1] = {tokens},
                  one[1] = {1}, mask[4] = {1, 1, tokens, m->mask_length > 0 ? m->mask_length : -1},
                  per_layer[3] = {1, tokens, m->per_layer_width};
    const char *first = m->is_monolithic ? PORT_INPUT_IDS : PORT_HIDDEN_STATES;
    int i_first = backend_find_input(p, first);
    if (i_first >= 0 && tokens > 1) {
        const struct mil_port *port = &p->inputs[i_first];
        if (port->rank >= 2 && port->dims[1] != tokens)
            return err_set(e, ERR_FORMAT,
                           "%s: function %s takes %lld tokens, but meta.yaml says batch_size %lld", path,
                           function_names[f], (long long)port->dims[1], (long long)tokens);
    }
    if (!check_input(p, path, first, m->is_monolithic, m->is_monolithic ? 2 : 3,
                     m->is_monolithic ? ids : hidden, e) ||
        !check_input(p, path, PORT_POSITION_IDS, true, 1, positions, e) ||
        !check_input(p, path, PORT_CAUSAL_MASK, false, 4, mask, e) ||
        !check_input(p, path, PORT_CURRENT_POS, true, 1, one, e))
        return false;
    m->mask_length = p->inputs[backend_find_input(p, PORT_CAUSAL_MASK)].dims[3];
    /* The head reads the last chunk's row in place. Where meta.yaml does not promise it, prefill's output is not used. */
    int64_t rows = !is_last || tokens == 1 ? tokens : m->prefill_gives_last ? 1 : -1;
    if (!m->is_monolithic && !check_output(p, path, PORT_OUTPUT_HIDDEN_STATES, rows, m->hidden_size, e))
        return false;
    const int64_t update[4] = {1, 1, m->mask_length, tokens};
    for (int i = 0; i < p->n_inputs; i++) {
        static const char *const known[] = {PORT_POSITION_IDS, PORT_CAUSAL_MASK, PORT_CURRENT_POS};
        const struct mil_port *port = &p->inputs[i];
        bool is_known = i == i_first;
        for (size_t k = 0; k < sizeof known / sizeof *known; k++)
            is_known = is_known || strcmp(port->name, known[k]) == 0;
        if (is_known)
            continue;
        if (m->per_layer_width > 0 && strcmp(port->name, PORT_PER_LAYER_INPUTS) == 0)
            is_known = check_port(port, "input", path, false, 3, per_layer, e);
        else if (strcmp(port->name, PORT_UPDATE_MASK) == 0)
            is_known = check_port(port, "input", path, false, 4, update, e);
        else
            err_set(e, ERR_UNSUPPORTED, "%s: function %s: input %s is none that this runtime feeds", path,
                    function_names[f], port->name);
        if (!is_known)
            return false;
    }
    return true;
}

static bool open_embeddings(struct model *m, struct err *e)
{
    struct model_part *part = &m->embeddings;
    const char *path = m->package->embeddings;
    const int64_t ids[2] = {1, 1}, all_ids[2] = {1, m->batch_size}, any_width[3] = {1, 1, -1};
    const char *function = mil_default_function_name(part->mil);
    if (!plan_part(m, part->mil, path, function, 1, PORT_INPUT_IDS, &part->functions[MODEL_INFER], e))
        return false;
    const struct backend_function *one = part->functions[MODEL_INFER];
    if (!check_input(one, path, PORT_INPUT_IDS, true, 2, ids, e) ||
        !check_output(one, path, PORT_HIDDEN_STATES, 1, -1, e))
        return false;
    m->hidden_size = one->outputs[backend_find_output(one, PORT_HIDDEN_STATES)].dims[2];
    int per_layer = backend_find_output(one, PORT_PER_LAYER_INPUTS);
    if (per_layer >= 0) {
        const struct mil_port *port = &one->outputs[per_layer];
        if (!check_port(port, "output", path, false, 3, any_width, e))
            return false;
        m->per_layer_width = port->dims[2];
    }
    if (m->batch_size == 1)
        return true;
    /* The chunks read the outputs in place, so the second plan's must have the rows that they count on, too. */
    if (!plan_part(m, part->mil, path, function, m->batch_size, PORT_INPUT_IDS,
                   &part->functions[MODEL_PREFILL], e))
        return false;
    const struct backend_function *batch = part->functions[MODEL_PREFILL];
    if (!check_input(batch, path, PORT_INPUT_IDS, true, 2, all_ids, e) ||
        !check_output(batch, path, PORT_HIDDEN_STATES, m->batch_size, m->hidden_size, e))
        return false;
    return per_layer < 0 ||
           check_output(batch, path, PORT_PER_LAYER_INPUTS, m->batch_size, m->per_layer_width, e);
}

void model_range(const struct model *m, struct backend_range *out)
{
    *out = (struct backend_range){0};
    if (m->backend->package_range)
        m->backend->package_range(m->shared, out);
}

bool model_is_full_cache(const struct model *m, int rank, const int64_t *dims)
{
    return rank == 4 && dims[2] >= m->mask_length;
}

/* The file of a chunk that holds a function; NULL: neither does. */
static const struct mil_model *file_with(const struct model *m, int i, enum model_function f,
                                         const char **path)
{
    const struct model_part *part = &m->chunks[i];
    *path = m->package->chunks[i];
    if (mil_function_find(part->mil, function_names[f]))
        return part->mil;
    if (!part->second || !mil_function_find(part->second, function_names[f]))
        return NULL;
    *path = m->package->more_chunks[i];
    return part->second;
}

/* A function that nobody calls holds something that the package needs and this runtime does not know. */
static bool check_functions(const struct mil_model *mil, const char *path, struct err *e)
{
    for (int i = 0; i < mil->program->n_functions; i++) {
        const char *name = mil->program->functions[i]->name;
        bool is_known = false;
        for (int f = 0; f < MODEL_FUNCTIONS; f++)
            is_known = is_known || strcmp(name, function_names[f]) == 0;
        if (!is_known)
            return err_set(e, ERR_UNSUPPORTED,
                           "%s: function %s is none that this runtime calls (infer, prefill, infer_rotate, "
                           "prefill_rotate)",
                           path, name);
    }
    return true;
}

static bool plan_function(struct model *m, int i, enum model_function f, struct err *e)
{
    struct backend_function **out = &m->chunks[i].functions[f];
    const char *path;
    const struct mil_model *mil = file_with(m, i, f, &path);
    if (!mil)
        return err_set(e, ERR_FORMAT, "%s: no function %s", path, function_names[f]);
    return plan_part(m, mil, path, function_names[f], 0, NULL, out, e) &&
           check_chunk(m, *out, path, f, i + 1 == m->n_chunks, e);
}

static bool map_file(struct model *m, struct mil_model **out, const char *path, struct err *e)
{
    if (!mil_model_open(out, path, 0, e))
        return false;
    m->backend->add_program(m->shared, *out);
    return true;
}

/* All files, before a function of one of them is made: how a state is held depends on what each chunk does with it, and
 * what they may cost together on all of them. */
static bool map_files(struct model *m, struct err *e)
{
    if (!m->is_monolithic && (!map_file(m, &m->embeddings.mil, m->package->embeddings, e) ||
                              !map_file(m, &m->head.mil, m->package->lm_head, e)))
        return false;
    for (int i = 0; i < m->n_chunks; i++) {
        struct model_part *part = &m->chunks[i];
        const char *second = m->package->more_chunks[i];
        if (!map_file(m, &part->mil, m->package->chunks[i], e) ||
            (second && !map_file(m, &part->second, second, e)))
            return false;
    }
    return true;
}

static bool open_chunk(struct model *m, int i, const struct model_options *o, struct err *e)
{
    struct model_part *part = &m->chunks[i];
    const char *first = m->package->chunks[i], *second = m->package->more_chunks[i], *path;
    if (!file_with(m, i, MODEL_INFER, &path))
        return err_set(e, ERR_FORMAT, "%s: no function infer", path);
    if (!check_functions(part->mil, first, e) || (second && !check_functions(part->second, second, e)) ||
        !model_check_chunk_order(m, i, e))
        return false;
    if (o->watch_layers && m->backend->reads_programs) {
        model_add_watches(part->mil);
        if (second)
            model_add_watches(part->second);
    }
    m->has_prefill = m->has_prefill && file_with(m, i, MODEL_PREFILL, &path);
    return plan_function(m, i, MODEL_INFER, e);
}

/* From which position on the rotating functions serve: the window's length, as the tools that write them say it. */
static int64_t window_of(const struct model *m)
{
    const struct meta *meta = m->package->meta;
    int64_t window = INT64_MAX;
    if (meta->sliding_window > 0)
        return meta->sliding_window;
    if (meta->model_prefix && strncmp(meta->model_prefix, "gemma3", 6) == 0)
        return 512;
    for (int i = 0; i < m->n_chunks; i++) {
        const char *path;
        const struct mil_function *f = mil_function_find(file_with(m, i, MODEL_INFER, &path), FUNCTION_INFER);
        for (int k = 0; k < f->n_inputs; k++) {
            const struct mil_type *t = f->inputs[k]->type;
            if (t->kind == MIL_TYPE_STATE && t->elem->rank == 4 && t->elem->dims[2] < window)
                window = t->elem->dims[2];
        }
    }
    return window;
}

/* The functions for positions behind the window: all chunks have them, or none. */
static bool plan_rotating(struct model *m, struct err *e)
{
    static const enum model_function kinds[2] = {MODEL_INFER_ROTATE, MODEL_PREFILL_ROTATE};
    const char *path;
    int64_t window = window_of(m);
    bool any[2] = {false, false};
    m->rotate_from = INT64_MAX;
    for (int i = 0; i < m->n_chunks; i++)
        for (int k = 0; k < 2; k++)
            any[k] = any[k] || file_with(m, i, kinds[k], &path);
    if (!any[0] || window >= m->context_length)
        return true;
    m->rotate_from = window;
    for (int i = 0; i < m->n_chunks; i++)
        if (!plan_function(m, i, MODEL_INFER_ROTATE, e) ||
            (any[1] && m->has_prefill && !plan_function(m, i, MODEL_PREFILL_ROTATE, e)))
            return false;
    return true;
}

/* From which position on each is computed once and in order. A state that is no cache of all positions is written over as
 * the context grows (a recurrent one can have a cache's shape); one that rotating functions shift holds each position in
 * its own row until they begin. */
static int64_t find_once_from(const struct model *m)
{
    const struct meta *meta = m->package->meta;
    if (meta->recurrent_state || meta->local_cache_length > 0)
        return 0;
    for (int i = 0; i < m->n_chunks; i++) {
        const char *path;
        const struct mil_function *f = mil_function_find(file_with(m, i, MODEL_INFER, &path), FUNCTION_INFER);
        for (int k = 0; k < f->n_inputs; k++) {
            const struct mil_type *t = f->inputs[k]->type;
            if (t->kind != MIL_TYPE_STATE)
                continue;
            bool rotates = t->elem->rank == 4 && t->elem->dims[2] == m->rotate_from;
            if (m->backend->state_is_recurrent(m->shared, f->inputs[k]->name) ||
                !(rotates || model_is_full_cache(m, t->elem->rank, t->elem->dims)))
                return 0;
        }
    }
    return m->rotate_from;
}

static bool open_chunks(struct model *m, const struct model_options *o, struct err *e)
{
    for (int i = 0; i < m->n_chunks; i++)
        if (!open_chunk(m, i, o, e))
            return false;
    for (int i = 0; m->has_prefill && i < m->n_chunks; i++)
        if (!plan_function(m, i, MODEL_PREFILL, e))
            return false;
    m->context_length = m->package->meta->context_length;
    if (m->context_length > m->mask_length)
        m->context_length = m->mask_length;
    if (!plan_rotating(m, e))
        return false;
    m->once_from = find_once_from(m);
    m->is_sequential = m->once_from != INT64_MAX;
    for (int i = 0; i < m->n_chunks; i++)
        if (o->watch_layers && !m->is_monolithic)
            model_find_watches(m, &m->chunks[i], i + 1 == m->n_chunks);
    return true;
}

/* ---- logits ---- */

#define PARTS_MAX 4096
/* Where the models do not show how large the vocabulary is, so that a wrong meta.yaml costs little. */
#define UNSHOWN_VOCABULARY_MAX (1 << 24)

/* Which outputs are logits1 .. logitsN, or the only one. */
static bool find_all_logits(const struct backend_function *p, const char *path, struct model_logits *l,
                            int64_t *sizes, struct err *e)
{
    int n = p->n_outputs;
    l->outputs = xcalloc((size_t)n, sizeof *l->outputs);
    for (int k = 0; k < n; k++) {
        char name[32];
        snprintf(name, sizeof name, PORT_LOGITS_FORMAT, k + 1);
        int i = backend_find_output(p, name);
        if (i < 0 && n == 1 && (i = backend_find_output(p, PORT_LOGITS)) < 0)
            i = backend_find_output(p, PORT_OUTPUT_LOGITS);
        if (i < 0)
            return err_set(e, ERR_FORMAT, "%s: %d outputs, but no %s among them", path, n, name);
        const struct mil_port *port = &p->outputs[i];
        if (port->is_int)
            return err_set(e, ERR_FORMAT, "%s: output %s: expected floats, found %s", path, port->name,
                           mil_dtype_name(port->dtype));
        l->outputs[k] = i;
        sizes[k] = port->n_elems;
    }
    return true;
}

/* Sizes of n parts of the vocabulary, as meta.yaml says: the list, or equal parts, the first ones wider by one. */
static bool part_sizes(const struct model *m, const char *path, int n, int64_t *sizes, struct err *e)
{
    const struct meta *meta = m->package->meta;
    if (meta->n_lm_head_chunk_sizes == 0 && meta->vocab_size < n)
        return err_set(e, ERR_FORMAT,
                       "%s: argmax_idx counts inside of each of its %d parts, but meta.yaml has neither "
                       "lm_head_chunk_sizes nor a vocab_size for them",
                       path, n);
    if (meta->n_lm_head_chunk_sizes > 0 && meta->n_lm_head_chunk_sizes != n)
        return err_set(e, ERR_FORMAT, "%s: argmax_idx has %d entries, but meta.yaml's lm_head_chunk_sizes %d",
                       path, n, meta->n_lm_head_chunk_sizes);
    for (int k = 0; k < n; k++)
        sizes[k] = meta->n_lm_head_chunk_sizes > 0 ? meta->lm_head_chunk_sizes[k]
                                                   : meta->vocab_size / n + (k < meta->vocab_size % n);
    return true;
}

static bool find_logits(struct model *m, enum model_function f, const struct backend_function *p,
                        const char *path, struct err *e)
{
    struct model_logits *l = &m->logits[f];
    int i_index = backend_find_output(p, PORT_ARGMAX_INDEX),
        i_value = backend_find_output(p, PORT_ARGMAX_VALUE);
    bool best_only = i_index >= 0 && i_value >= 0, ok;
    int64_t n = best_only ? p->outputs[i_index].n_elems : p->n_outputs;
    if (n < 1 || n > PARTS_MAX)
        return err_set(e, ERR_FORMAT, "%s: expected 1 to %d parts of the vocabulary, found %lld", path,
                       PARTS_MAX, (long long)n);
    int64_t *sizes = xcalloc((size_t)n, sizeof *sizes), *begin = xcalloc((size_t)n + 1, sizeof *begin);
    if (!best_only) {
        ok = find_all_logits(p, path, l, sizes, e);
    } else {
        const struct mil_port *index = &p->outputs[i_index], *value = &p->outputs[i_value];
        *l = (struct model_logits){.index = i_index, .value = i_value};
        ok = (index->is_int && !value->is_int && value->n_elems == n) ||
             err_set(
                 e, ERR_FORMAT,
                 "%s: expected as many integers in argmax_idx as floats in argmax_val, found %lld of %s and "
                 "%lld of %s",
                 path, (long long)n, mil_dtype_name(index->dtype), (long long)value->n_elems,
                 mil_dtype_name(value->dtype));
        ok = ok && part_sizes(m, path, (int)n, sizes, e);
    }
    for (int64_t k = 0; k < n; k++)
        begin[k + 1] = begin[k] + sizes[k];
    if (ok && best_only && begin[n] > UNSHOWN_VOCABULARY_MAX)
        ok = err_set(e, ERR_LIMIT, "%s: expected at most %d tokens in meta.yaml, found %lld", path,
                     UNSHOWN_VOCABULARY_MAX, (long long)begin[n]);
    if (ok && m->part_begin)
        ok = (m->n_logits == n && m->gives_best_only == best_only &&
              memcmp(m->part_begin, begin, sizeof *begin * ((size_t)n + 1)) == 0) ||
             err_set(e, ERR_FORMAT, "%s: function %s has other logits than infer", path, function_names[f]);
    if (ok && !m->part_begin) {
        m->n_logits = (int)n;
        m->vocab_size = begin[n];
        m->gives_best_only = best_only;
        m->part_begin = begin;
        begin = NULL;
    }
    free(begin);
    free(sizes);
    return ok;
}

static bool open_head(struct model *m, struct err *e)
{
    struct model_part *part = &m->head;
    const char *path = m->is_monolithic ? m->package->chunks[0] : m->package->lm_head;
    const int64_t hidden[3] = {1, 1, m->hidden_size};
    if (m->is_monolithic) {
        struct backend_function *const *functions = m->chunks[0].functions;
        if (!find_logits(m, MODEL_INFER, functions[MODEL_INFER], path, e) ||
            (functions[MODEL_INFER_ROTATE] &&
             !find_logits(m, MODEL_INFER_ROTATE, functions[MODEL_INFER_ROTATE], path, e)))
            return false;
    } else {
        struct backend_function **head = &part->functions[MODEL_INFER];
        if (!plan_part(m, part->mil, path, mil_default_function_name(part->mil), 1, NULL, head, e) ||
            !check_input(*head, path, PORT_HIDDEN_STATES, false, 3, hidden, e) ||
            !find_logits(m, MODEL_INFER, *head, path, e))
            return false;
    }
    int64_t stated = m->package->meta->vocab_size;
    if (stated > 0 && stated != m->vocab_size)
        return err_set(e, ERR_FORMAT, "%s: %lld logits, but meta.yaml says vocab_size %lld", path,
                       (long long)m->vocab_size, (long long)stated);
    return true;
}

bool model_need_logits(const struct model *m, const char *what, struct err *e)
{
    return !m->gives_best_only || err_set(e, ERR_UNSUPPORTED,
                                          "%s: %s needs all logits, but the model names only the best token "
                                          "of each of its %d parts of the "
                                          "vocabulary (argmax_idx)",
                                          m->package->path, what, m->n_logits);
}

/* Programs and plans are built from far more memory than they keep; checks and tables touched pages all over the weight
 * files. */
static void drop_what_loading_used(const struct model *m)
{
    for (int i = -1; i <= m->n_chunks; i++) {
        const struct model_part *part = i < 0 ? &m->embeddings : i == m->n_chunks ? &m->head : &m->chunks[i];
        if (part->mil)
            mil_model_drop_pages(part->mil);
        if (part->second)
            mil_model_drop_pages(part->second);
    }
    mem_trim();
}

bool model_open(struct model **out, const char *path, const struct model_options *options, struct err *e)
{
    struct model *m = xcalloc(1, sizeof *m);
    bool ok = false;
    *out = NULL;
    m->batches = batch_store_new();
    m->backend = options->backend;
    m->precision = options->precision;
    m->emulation = options->emulation ? xstrdup(options->emulation) : NULL;
    m->stop =
        (struct stop){.flag = options->log ? options->log->cancel : NULL, .deadline = options->deadline};
    const struct backend_options shared = {.precision = m->precision,
                                           .emulation = m->emulation,
                                           .compute_units = options->compute_units,
                                           .watch_range = options->watch_layers,
                                           .stop = &m->stop};
    m->pool = options->pool;
    m->owns_pool = !m->pool;
    if ((!m->backend && !backend_find(&m->backend, options->backend_name, e)) ||
        !m->backend->open(&m->shared, &shared, e) || !package_open(&m->package, path, e) ||
        (m->owns_pool && !pool_new(&m->pool, options->n_threads, e)))
        goto done;
    if (options->other_form)
        package_take_other_form(m->package);
    for (int i = 0; i < m->package->n_warnings; i++)
        log_warn(options->log, "%s", m->package->warnings[i]);
    const struct meta *meta = m->package->meta;
    m->device = m->shared->device;
    m->is_monolithic = m->package->is_monolithic;
    m->batch_size = meta->batch_size;
    m->has_prefill = m->batch_size > 1;
    m->prefill_gives_last = meta->prefill_last_token_output && !m->is_monolithic;
    m->n_chunks = m->package->n_chunks;
    m->chunks = xcalloc((size_t)m->n_chunks, sizeof *m->chunks);
    if (!map_files(m, e) || (!m->is_monolithic && !open_embeddings(m, e)) || !open_chunks(m, options, e) ||
        !open_head(m, e) || !model_check_positions(m, e))
        goto done;
    model_check_meta(m, options->log);
    drop_what_loading_used(m);
    *out = m;
    m = NULL;
    ok = true;
done:
    model_close(m);
    return ok;
}

static void close_part(const struct backend *b, struct model_part *p)
{
    for (int f = 0; f < MODEL_FUNCTIONS; f++)
        if (p->functions[f])
            b->function_close(p->functions[f]);
    free(p->watches);
    mil_model_close(p->mil);
    mil_model_close(p->second);
}

void model_close(struct model *m)
{
    if (!m)
        return;
    batch_store_free(m->batches);
    close_part(m->backend, &m->embeddings);
    close_part(m->backend, &m->head);
    for (int i = 0; m->chunks && i < m->n_chunks; i++)
        close_part(m->backend, &m->chunks[i]);
    free(m->chunks);
    if (m->shared)
        m->backend->close(m->shared);
    for (int f = 0; f < MODEL_FUNCTIONS; f++)
        free(m->logits[f].outputs);
    free(m->part_begin);
    if (m->owns_pool)
        pool_free(m->pool);
    package_close(m->package);
    free(m->emulation);
    free(m);
}
