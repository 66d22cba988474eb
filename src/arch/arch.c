/* Families by model_type, and what all of them need: settings, tensors as weights, descriptions. */
#include "arch/family.h"
#include <stdlib.h>
#include <string.h>
#include "base/file.h"

#define CONTEXT_MAX 1048576
#define CHUNKS_MAX 99 /* the file names have two digits */

#define ARCH_FAMILY(symbol) &arch_##symbol,
#define ARCH_DECODER(symbol, prefix, split, types, ...) ARCH_FAMILY(symbol)
static const struct arch_family *const families[] = {
#include "arch/families.def"
};
#undef ARCH_FAMILY
#undef ARCH_DECODER
#define N_FAMILIES ((int)(sizeof families / sizeof families[0]))

static const struct arch_family *family_find(const char *model_type)
{
    for (int i = 0; i < N_FAMILIES; i++) {
        for (const char *const *t = families[i]->model_types; *t; t++) {
            if (strcmp(*t, model_type) == 0)
                return families[i];
        }
    }
    return NULL;
}

static bool check_settings(const struct arch_model *m, struct err *e)
{
    const struct arch_settings *s = &m->settings;
    if (s->context_length < 1 || s->context_length > CONTEXT_MAX)
        return err_set(e, ERR_USAGE, "context length: expected 1 to %d, found %lld", CONTEXT_MAX,
                       (long long)s->context_length);
    if (s->batch_size < 1 || s->batch_size > s->context_length)
        return err_set(e, ERR_USAGE, "batch size: expected 1 to the context length %lld, found %lld",
                       (long long)s->context_length, (long long)s->batch_size);
    int64_t chunks_max = m->n_layers < CHUNKS_MAX ? m->n_layers : CHUNKS_MAX;
    if (s->n_chunks < 1 || s->n_chunks > chunks_max)
        return err_set(e, ERR_USAGE, "chunks: expected 1 to %lld (the model has %lld layers), found %d",
                       (long long)chunks_max, (long long)m->n_layers, s->n_chunks);
    if (s->split_lm_head < 1 || s->split_lm_head > 1024 || s->split_lm_head > m->vocab_size)
        return err_set(
            e, ERR_USAGE,
            "parts of the LM head: expected 1 to 1024, not more than the vocabulary of %lld, found %d",
            (long long)m->vocab_size, s->split_lm_head);
    return true;
}

static bool find_family(struct arch_model *m, struct err *e)
{
    const char *model_type;
    if (!config_get_model_type(&m->config, &model_type, e))
        return false;
    m->family = family_find(model_type);
    if (m->family) {
        int split = m->family->default_split > 0 ? m->family->default_split : ARCH_SPLIT;
        m->settings.split_lm_head = m->settings.split_lm_head ? m->settings.split_lm_head : split;
        return true;
    }
    char known[256] = "";
    size_t n = 0;
    for (int i = 0; i < N_FAMILIES && n < sizeof known; i++)
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", families[i]->name);
    return err_set(e, ERR_UNSUPPORTED, "%s: model_type: milkit converts %s, found \"%s\"", m->config.path,
                   known, model_type);
}

bool arch_open(struct arch_model **out, const char *checkpoint, const cJSON *config,
               const struct safetensors *tensors, const struct arch_settings *settings, struct err *e)
{
    *out = NULL;
    struct arena *arena = arena_new(0);
    struct arch_model *m = ARENA_NEW(arena, struct arch_model);
    m->arena = arena;
    m->checkpoint = arena_strdup(arena, checkpoint);
    m->tensors = tensors;
    m->settings = *settings;
    m->tensor_used = ARENA_ARRAY(arena, bool, tensors->n_tensors + 1);
    m->names = checkpoint_names_new(tensors);
    bool ok = config_set(&m->config, config, arena_printf(arena, "%s/config.json", checkpoint), e) &&
              find_family(m, e) && checkpoint_check_layout(m->names, config, m->config.path, e) &&
              m->family->open(m, e) && check_settings(m, e);
    if (!ok) {
        arch_close(m);
        return false;
    }
    *out = m;
    return true;
}

void arch_close(struct arch_model *m)
{
    if (!m)
        return;
    checkpoint_names_free(m->names);
    arena_free(m->arena);
}

void arch_chunk_layers(const struct arch_model *m, int i_chunk, int64_t *begin, int64_t *end)
{
    int64_t n = m->settings.n_chunks, each = m->n_layers / n, wider = m->n_layers % n;
    *begin = each * i_chunk + (i_chunk < wider ? i_chunk : wider);
    *end = *begin + each + (i_chunk < wider);
}

int64_t arch_head_part(int64_t vocab_size, int n, int i)
{
    return vocab_size / n + (i < vocab_size % n);
}

/* ---- tensors ---- */

bool arch_has_tensor(const struct arch_model *m, const char *name)
{
    return checkpoint_has(m->names, name);
}

static void note_used(struct arch_model *m, const struct st_tensor *t)
{
    if (!t)
        return;
    m->tensor_used[t - m->tensors->tensors] = true;
    if (t->scale)
        m->tensor_used[t->scale - m->tensors->tensors] = true;
}

const struct st_tensor *arch_require_tensor(struct arch_model *m, const char *name, int rank,
                                            const int64_t *shape, struct err *e)
{
    const struct st_tensor *t = checkpoint_require(m->names, name, rank, shape, e);
    note_used(m, t);
    return t;
}

bool arch_find_layer(struct arch_model *m, int64_t layer, unsigned parts, const int64_t sizes[DECODER_SIZES],
                     const struct st_tensor *out[DECODER_TENSORS], struct err *e)
{
    bool ok = decoder_find_layer(m->names, layer, parts, sizes, out, e);
    for (int i = 0; i < DECODER_TENSORS; i++)
        note_used(m, out[i]);
    return ok;
}

bool arch_find_ends(struct arch_model *m, bool is_tied, struct err *e)
{
    if (!decoder_find_ends(m->names, m->vocab_size, m->hidden_size, is_tied, &m->ends, e))
        return false;
    note_used(m, m->ends.embeddings);
    note_used(m, m->ends.norm);
    note_used(m, m->ends.head);
    return true;
}

static bool produce_tensor(const struct mil_weight *w, int64_t begin, int64_t n, void *dst, struct err *e)
{
    return st_read_f16(w->context, w->arg[0] + begin, n, dst, e);
}

const struct mil_value *arch_weight(struct mil_model *out, const struct st_tensor *t, int64_t begin, int rank,
                                    const int64_t *dims)
{
    struct mil_weight w = {.name = t->name, .produce = produce_tensor, .context = t, .factor = 1.0};
    w.arg[0] = begin;
    return mil_value_new_weight(out, MIL_FP16, rank, dims, &w);
}

/* ---- description ---- */

static const int64_t *copy_shape(struct mil_model *out, int rank, const int64_t *shape)
{
    return arena_copy(out->arena, shape, sizeof shape[0] * (size_t)rank);
}

struct mil_feature arch_array_feature(struct mil_model *out, const char *name, enum mil_dtype d, int rank,
                                      const int64_t *shape)
{
    struct mil_feature f = {.name = arena_strdup(out->arena, name), .short_description = ""};
    f.kind = MIL_FEATURE_ARRAY;
    f.dtype = d;
    f.rank = rank;
    f.shape = copy_shape(out, rank, shape);
    return f;
}

struct mil_feature arch_state_feature(struct mil_model *out, const char *name, int rank, const int64_t *shape)
{
    struct mil_feature f = arch_array_feature(out, name, MIL_FP16, rank, shape);
    f.kind = MIL_FEATURE_STATE;
    return f;
}

struct mil_feature arch_enumerated_feature(struct mil_model *out, const char *name, enum mil_dtype d,
                                           int rank, const int64_t *const *shapes, int n_shapes)
{
    struct mil_feature f = arch_array_feature(out, name, d, rank, shapes[0]);
    const int64_t **list = ARENA_ARRAY(out->arena, const int64_t *, n_shapes);
    int *ranks = ARENA_ARRAY(out->arena, int, n_shapes);
    for (int i = 0; i < n_shapes; i++) {
        list[i] = copy_shape(out, rank, shapes[i]);
        ranks[i] = rank;
    }
    f.n_enumerated = n_shapes;
    f.enumerated = list;
    f.enumerated_ranks = ranks;
    return f;
}

static int compare_pairs(const void *a, const void *b)
{
    return strcmp(((const struct mil_text_pair *)a)->key, ((const struct mil_text_pair *)b)->key);
}

void arch_describe(struct mil_model *out, const char *short_description, const struct mil_text_pair *pairs,
                   int n_pairs)
{
    struct mil_description *d = &out->description;
    d->short_description = arena_strdup(out->arena, short_description);
    d->version = "0.3.5"; /* of the package layout */
    d->author = "Converted with milkit";
    d->license = "";
    struct mil_text_pair *list = ARENA_ARRAY(out->arena, struct mil_text_pair, n_pairs + 1);
    for (int i = 0; i < n_pairs; i++) {
        list[i].key = arena_strdup(out->arena, pairs[i].key);
        list[i].value = arena_strdup(out->arena, pairs[i].value);
    }
    qsort(list, (size_t)n_pairs, sizeof list[0], compare_pairs);
    d->n_user_defined = n_pairs;
    d->user_defined = list;
}

int64_t arch_layer_of(const char *tensor)
{
    const char *at = strstr(tensor, "layers.");
    char *end;
    if (!at || at[7] < '0' || at[7] > '9')
        return -1;
    long long layer = strtoll(at + 7, &end, 10);
    return *end == '.' ? layer : -1;
}
