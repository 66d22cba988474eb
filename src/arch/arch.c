/* Families by model_type, and opening a checkpoint with the one that it needs. */
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
    m->settings.residual_scale = settings->residual_scale > 0 ? settings->residual_scale : 1;
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

/* ---- tensors ---- */

int64_t arch_layer_of(const char *tensor)
{
    const char *at = strstr(tensor, "layers.");
    char *end;
    if (!at || at[7] < '0' || at[7] > '9')
        return -1;
    long long layer = strtoll(at + 7, &end, 10);
    return *end == '.' ? layer : -1;
}
