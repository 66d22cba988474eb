/* What all families need: layers of a chunk, tensors as weights, descriptions. */
#include "arch/family.h"
#include <stdlib.h>
#include <string.h>

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
