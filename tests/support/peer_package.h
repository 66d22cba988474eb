/* Packages in the forms of another tool, with a transformer so small that a test computes it by hand: a table of embeddings
 * x [vocabulary, width]; one or more layers y = x + local(x) + global(x), two attentions whose queries, keys and values are
 * x itself, over the last `window` positions and over all; the logits are y times the table. Their functions and
 * states are those of ANEMLL's Gemma 3: infer and prefill write position p to row p, infer_rotate and
 * prefill_rotate shift the local cache. Link arch. */
#ifndef MILKIT_TESTS_PEER_PACKAGE_H
#define MILKIT_TESTS_PEER_PACKAGE_H

#include "program.h"
#include "arch/blocks.h"
#include "base/file.h"
#include "mil/compiled.h"
#include "runtime/model.h"

enum { PEER_WIDTH = 16, PEER_VOCABULARY = 41, PEER_PARTS = 2 };
#define PEER_SCALE 0.25

struct peer {
    int64_t context, window, batch; /* window 0: no local attention */
    int64_t cache_rows;             /* of the global cache; 0: context */
    int64_t said_batch;             /* what meta.yaml says; 0: batch */
    int n_chunks;                   /* a layer each */
    bool is_monolithic, best_only;
    bool no_rotate, no_prefill_rotate, no_prefill;
    bool split_files;       /* prefill functions in files of their own */
    bool takes_update_mask; /* declared, and used: the rows that it marks must be those of the positions */
    bool has_memory;   /* a recurrent state, as long as the context; peer_reference knows nothing of it */
    const char *extra; /* one more function of this name in the last chunk; NULL: none */
    const char *meta;  /* more lines of meta.yaml, four spaces before each; NULL: none */
};

static inline float peer_embedding(int32_t token, int64_t column)
{
    return f16_to_f32(f32_to_f16(noise((uint32_t)token + 100, (size_t)column)));
}

static inline const struct mil_value *peer_table(struct mil_model *m, int64_t first, int64_t n)
{
    f16 *v = xcalloc((size_t)(n * PEER_WIDTH), sizeof *v);
    for (int64_t i = 0; i < n * PEER_WIDTH; i++)
        v[i] = f32_to_f16(peer_embedding((int32_t)(first + i / PEER_WIDTH), i % PEER_WIDTH));
    const struct mil_value *value = mil_value_new(m, MIL_FP16, 2, (const int64_t[]){n, PEER_WIDTH}, v);
    free(v);
    return value;
}

/* First token of a part of the vocabulary: the first ones are wider by one. */
static inline int64_t peer_part(int k)
{
    int64_t wide = PEER_VOCABULARY % PEER_PARTS;
    return k * (PEER_VOCABULARY / PEER_PARTS) + (k < wide ? k : wide);
}

/* Descriptions of all functions, from their types. Open sizes: 1 or the batch. */
static inline void peer_describe(struct mil_model *m, int64_t batch)
{
    struct arena *a = m->arena;
    struct mil_description *d = &m->description;
    d->n_functions = m->program->n_functions;
    d->has_functions = d->n_functions > 1;
    d->functions = ARENA_ARRAY(a, struct mil_function_description, d->n_functions);
    d->default_function_name = d->has_functions ? m->program->functions[0]->name : NULL;
    d->short_description = d->version = d->author = d->license = "";
    for (int i = 0; i < d->n_functions; i++) {
        const struct mil_function *f = m->program->functions[i];
        struct mil_function_description *fd = &d->functions[i];
        fd->name = d->has_functions ? f->name : NULL;
        fd->inputs = ARENA_ARRAY(a, struct mil_feature, f->n_inputs);
        fd->states = ARENA_ARRAY(a, struct mil_feature, f->n_inputs);
        fd->outputs = ARENA_ARRAY(a, struct mil_feature, f->block->n_outputs);
        for (int k = 0; k < f->n_inputs + f->block->n_outputs; k++) {
            bool is_input = k < f->n_inputs;
            const struct mil_var *v = is_input ? f->inputs[k] : f->block->outputs[k - f->n_inputs];
            bool is_state = v->type->kind == MIL_TYPE_STATE;
            const struct mil_type *t = is_state ? v->type->elem : v->type;
            struct mil_feature *to = is_state   ? &fd->states[fd->n_states++]
                                     : is_input ? &fd->inputs[fd->n_inputs++]
                                                : &fd->outputs[fd->n_outputs++];
            int64_t *one = ARENA_ARRAY(a, int64_t, t->rank + 1), *many = ARENA_ARRAY(a, int64_t, t->rank + 1);
            bool is_open = false;
            for (int j = 0; j < t->rank; j++) {
                is_open = is_open || t->dims[j] < 0;
                one[j] = t->dims[j] < 0 ? 1 : t->dims[j];
                many[j] = t->dims[j] < 0 ? batch : t->dims[j];
            }
            *to = (struct mil_feature){
                .name = v->name, .short_description = "", .dtype = t->dtype, .rank = t->rank, .shape = one};
            to->kind = is_state ? MIL_FEATURE_STATE : MIL_FEATURE_ARRAY;
            if (is_open && !is_input) {
                to->rank = 0; /* a result of flexible length is described without a shape */
            } else if (is_open) {
                const int64_t **shapes = ARENA_ARRAY(a, const int64_t *, 2);
                int *ranks = ARENA_ARRAY(a, int, 2);
                shapes[0] = one;
                shapes[1] = many;
                ranks[0] = ranks[1] = t->rank;
                to->n_enumerated = 2;
                to->enumerated = shapes;
                to->enumerated_ranks = ranks;
            }
        }
    }
}

static inline void peer_write(struct mil_model *m, const char *folder, const char *name, int64_t batch)
{
    char *path = path_join(folder, name);
    peer_describe(m, batch);
    ASSERT_OK(folder_make(path, e));
    ASSERT_OK(mil_write_mlpackage_files(m, path, false, e));
    mil_model_close(m);
    free(path);
}

/* Attention of x [1, 1, T, width] over the first rows of a state [2 * layers, 1, rows or more, width]: keys of layer i at i, values behind
 * all keys. shift: rows that go, and the new ones come last; 0: they go where `position` says. */
static inline struct mil_var *peer_attention(struct mil_builder *b, struct mil_var *state, int64_t slots,
                                             int64_t rows, int i_layer, struct mil_var *x, int64_t shift,
                                             struct mil_var *position, struct mil_var *mask)
{
    struct mil_var *kv[2];
    for (int k = 0; k < 2; k++) {
        int64_t slot = i_layer + k * slots / 2;
        const int64_t begin[4] = {slot, 0, 0, 0}, end[4] = {slot + 1, 1, rows, PEER_WIDTH};
        if (shift == 0) {
            block_write_rows(b, state, x, slot, 0, position, false, NULL);
        } else {
            struct mil_var *old = block_read_state(b, state);
            struct mil_var *kept =
                block_slice(b, block_slice(b, old, 0, slot, slot + 1, NULL), 2, shift, rows, NULL);
            struct mil_var *joined = block_concat(b, (struct mil_var *[]){kept, x}, 2, 2, NULL);
            block_write_region(b, state, old, joined, 4, begin, end, NULL);
        }
        kv[k] = block_slice(b, block_slice(b, block_read_state(b, state), 0, slot, slot + 1, NULL), 2, 0,
                            rows, NULL);
    }
    return block_attention(b, x, kv[0], kv[1], block_slice(b, mask, 3, 0, rows, NULL), PEER_SCALE, NULL);
}

static inline void write_memory(struct mil_builder *b, struct mil_var *state, struct mil_var *data)
{
    assert_true(mil_build_op_n(b, "write_state", NULL,
                               ARGS({.name = "input", .var = state}, {.name = "data", .var = data}), 2, NULL,
                               0));
}

/* One function of chunk i (of a monolithic package: of all chunks). */
static inline void peer_function(const struct peer *p, struct mil_model *m, int i, enum model_function f,
                                 const char *name)
{
    bool is_batch = f == MODEL_PREFILL || f == MODEL_PREFILL_ROTATE,
         rotates = f == MODEL_INFER_ROTATE || f == MODEL_PREFILL_ROTATE;
    int64_t t = is_batch ? p->batch : 1, slots = 2 * p->n_chunks,
            rows = p->cache_rows ? p->cache_rows : p->context;
    struct mil_builder *b = mil_builder_new(m, name, "CoreML8");
    struct mil_var *first = p->is_monolithic
                                ? mil_build_input(b, "input_ids", MIL_INT32, 2, SHAPE(1, t))
                                : mil_build_input(b, "hidden_states", MIL_FP16, 3, SHAPE(1, t, PEER_WIDTH));
    mil_build_input(b, "position_ids", MIL_INT32, 1, SHAPE(t));
    struct mil_var *mask = mil_build_input(b, "causal_mask", MIL_FP16, 4, SHAPE(1, 1, t, p->context));
    struct mil_var *position = mil_build_input(b, "current_pos", MIL_INT32, 1, SHAPE(1));
    struct mil_var *update = p->takes_update_mask
                                 ? mil_build_input(b, "update_mask", MIL_FP16, 4, SHAPE(1, 1, p->context, t))
                                 : NULL;
    struct mil_var *local = p->window ? mil_build_state(b, "model_model_kv_cache_local", MIL_FP16, 4,
                                                        SHAPE(slots, 1, p->window, PEER_WIDTH))
                                      : NULL;
    struct mil_var *global =
        mil_build_state(b, "model_model_kv_cache_global", MIL_FP16, 4, SHAPE(slots, 1, rows, PEER_WIDTH));
    struct mil_var *x =
        p->is_monolithic ? block_gather(b, peer_table(m, 0, PEER_VOCABULARY), first, NULL, NULL) : first;
    for (int layer = i; layer < (p->is_monolithic ? p->n_chunks : i + 1); layer++) {
        struct mil_var *head = block_reshape(b, x, 4, SHAPE(1, 1, t, PEER_WIDTH), NULL);
        struct mil_var *all = peer_attention(b, global, slots, rows < p->context ? rows : p->context, layer,
                                             head, 0, position, mask);
        if (update) { /* the marked rows of keys, which are the ones that were just written: their sum less x is nothing */
            struct mil_var *keys = block_slice(b, block_read_state(b, global), 0, layer, layer + 1, NULL);
            keys = block_slice(b, keys, 2, 0, p->context, NULL);
            struct mil_var *marked = block_matmul_transposed(b, update, keys, NULL);
            all = block_binary(b, "add", all, block_binary(b, "sub", marked, head, NULL), NULL);
        }
        if (local)
            all = block_binary(
                b, "add", all,
                peer_attention(b, local, slots, p->window, layer, head, rotates ? t : 0, position, mask),
                NULL);
        x = block_binary(b, "add", x, block_reshape(b, all, 3, SHAPE(1, t, PEER_WIDTH), NULL),
                         p->is_monolithic ? NULL : "output_hidden_states");
    }
    if (p->has_memory) { /* half of what was there, and the sum of the new rows; then it is added */
        struct mil_var *memory =
            mil_build_state(b, "memory", MIL_FP16, 4, SHAPE(1, 1, p->context, PEER_WIDTH));
        struct mil_var *sum =
            block_reduce(b, "reduce_sum", block_reshape(b, x, 4, SHAPE(1, 1, t, PEER_WIDTH), NULL), 2);
        struct mil_var *held =
            block_binary(b, "add", block_scale(b, block_read_state(b, memory), 0.5, NULL), sum, NULL);
        write_memory(b, memory, held);
        x = block_binary(
            b, "add", x,
            block_reshape(b, block_slice(b, held, 2, 0, 1, NULL), 3, SHAPE(1, 1, PEER_WIDTH), NULL), NULL);
    }
    struct mil_var *outputs[2 * PEER_PARTS];
    int n = 0;
    if (!p->is_monolithic) {
        outputs[n++] = x;
    } else {
        struct mil_var *parts[2][PEER_PARTS];
        for (int k = 0; k < PEER_PARTS; k++) {
            char wish[32];
            snprintf(wish, sizeof wish, "logits%d", k + 1);
            int64_t begin = peer_part(k), size = peer_part(k + 1) - begin;
            struct mil_var *y = block_matmul(b, x, mil_build_const(b, peer_table(m, begin, size), NULL), true,
                                             p->best_only ? NULL : wish);
            if (!p->best_only) {
                outputs[n++] = y;
                continue;
            }
            struct mil_var *last =
                block_reshape(b, block_slice(b, y, 1, t - 1, t, NULL), 1, SHAPE(size), NULL);
            struct mil_var *axis = mil_build_int(b, 0, NULL), *keep = mil_build_bool(b, true, NULL);
            parts[0][k] = mil_build_op(b, "reduce_argmax", NULL,
                                       ARGS({.name = "x", .var = last}, {.name = "axis", .var = axis},
                                            {.name = "keep_dims", .var = keep}),
                                       3);
            parts[1][k] = block_reduce(b, "reduce_max", last, 0);
        }
        if (p->best_only) {
            outputs[n++] = block_concat(b, parts[0], PEER_PARTS, 0, "argmax_idx");
            outputs[n++] = block_concat(b, parts[1], PEER_PARTS, 0, "argmax_val");
        }
    }
    ASSERT_OK(mil_builder_finish(b, outputs, n, e));
}

static inline void peer_chunk(const struct peer *p, const char *folder, int i)
{
    static const char *const names[MODEL_FUNCTIONS] = {"infer", "prefill", "infer_rotate", "prefill_rotate"};
    for (int file = 0; file < (p->split_files ? 2 : 1); file++) {
        struct mil_model *m = mil_model_new(9);
        for (enum model_function f = 0; f < MODEL_FUNCTIONS; f++) {
            bool is_batch = f == MODEL_PREFILL || f == MODEL_PREFILL_ROTATE,
                 rotates = f >= MODEL_INFER_ROTATE;
            if ((p->split_files && is_batch != (file == 1)) || (is_batch && p->no_prefill) ||
                (rotates && (p->no_rotate || !p->window)) ||
                (f == MODEL_PREFILL_ROTATE && p->no_prefill_rotate))
                continue;
            peer_function(p, m, i, f, names[f]);
        }
        if (p->extra && (p->is_monolithic || i + 1 == p->n_chunks))
            peer_function(p, m, i, MODEL_INFER, p->extra);
        char *name = p->is_monolithic ? xstrdup("gemma3_monolithic_full.mlpackage")
                                      : xasprintf("gemma3_%s_chunk_%02dof%02d.mlpackage",
                                                  file ? "PF" : "FFN_PF", i + 1, p->n_chunks);
        peer_write(m, folder, name, p->batch);
        free(name);
    }
}

static inline void peer_embeddings(const struct peer *p, const char *folder)
{
    struct mil_model *m = mil_model_new(9);
    struct mil_builder *b = mil_builder_new(m, "main", "CoreML8");
    struct mil_var *ids = mil_build_input(b, "input_ids", MIL_INT32, 2, SHAPE(1, MIL_DIM_UNKNOWN));
    struct mil_var *y = block_gather(b, peer_table(m, 0, PEER_VOCABULARY), ids, "table", "hidden_states");
    ASSERT_OK(mil_builder_finish(b, &y, 1, e));
    peer_write(m, folder, "gemma3_embeddings.mlpackage", p->batch);
}

static inline void peer_head(const struct peer *p, const char *folder)
{
    struct mil_model *m = mil_model_new(9);
    struct mil_builder *b = mil_builder_new(m, "main", "CoreML8");
    struct mil_var *x = mil_build_input(b, "hidden_states", MIL_FP16, 3, SHAPE(1, 1, PEER_WIDTH)),
                   *y[PEER_PARTS];
    for (int k = 0; k < PEER_PARTS; k++) {
        char name[32];
        snprintf(name, sizeof name, "logits%d", k + 1);
        y[k] = block_matmul(
            b, x, mil_build_const(b, peer_table(m, peer_part(k), peer_part(k + 1) - peer_part(k)), NULL),
            true, name);
    }
    ASSERT_OK(mil_builder_finish(b, y, PEER_PARTS, e));
    peer_write(m, folder, "gemma3_lm_head.mlpackage", p->batch);
}

/* Writes the package into a folder that does not exist yet. */
static inline void peer_make(const struct peer *p, const char *folder)
{
    struct buf meta;
    buf_init(&meta, 1 << 16);
    ASSERT_OK(folder_make(folder, e));
    buf_printf(&meta,
               "model_info:\n  name: peer\n%s  parameters:\n    context_length: %lld\n    batch_size: %lld\n"
               "    num_chunks: %d\n    model_prefix: gemma3\n    split_lm_head: %d\n    vocab_size: %d\n",
               p->is_monolithic ? "  model_type: monolithic\n" : "", (long long)p->context,
               (long long)(p->said_batch ? p->said_batch : p->batch), p->is_monolithic ? 1 : p->n_chunks,
               PEER_PARTS, PEER_VOCABULARY);
    if (p->window)
        buf_printf(&meta, "    sliding_window: %lld\n", (long long)p->window);
    if (p->split_files)
        buf_printf(&meta, "    split_rotate: true\n    pf: gemma3_PF_chunk_01of%02d.mlmodelc\n", p->n_chunks);
    if (p->meta)
        buf_puts(&meta, p->meta);
    char *path = path_join(folder, "meta.yaml");
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fwrite(meta.p, 1, meta.n, f);
    assert_int_equal(fclose(f), 0);
    free(path);
    buf_fini(&meta);
    for (int i = 0; i < (p->is_monolithic ? 1 : p->n_chunks); i++)
        peer_chunk(p, folder, i);
    if (p->is_monolithic)
        return;
    peer_embeddings(p, folder);
    peer_head(p, folder);
}

/* ---- the same model, computed by hand ---- */

/* One call: tokens `first` .. first + n - 1. See peer_reference. */
struct peer_call {
    int64_t first, n;
};

static inline void peer_attend(const double *q, const double *const *rows, int64_t n, double *y)
{
    double weights[256], most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) {
        weights[i] = 0;
        for (int c = 0; c < PEER_WIDTH; c++)
            weights[i] += q[c] * rows[i][c] * PEER_SCALE;
        most = fmax(most, weights[i]);
    }
    for (int64_t i = 0; i < n; i++)
        sum += weights[i] = exp(weights[i] - most);
    for (int64_t i = 0; i < n; i++)
        for (int c = 0; c < PEER_WIDTH; c++)
            y[c] += weights[i] / sum * rows[i][c];
}

/* logits [n tokens, vocabulary] of tokens that were fed in these calls: by one token, or by a batch. What a token of a call
 * sees of its layer's inputs x: all positions up to its own; and of the local cache the last `window` positions up to its
 * own, but in a batch that begins at or behind the window: the last `window` positions of the whole call. */
static inline void peer_reference(const struct peer *p, const int32_t *tokens, const struct peer_call *calls,
                                  int n_calls, double *logits)
{
    const struct peer_call *end = &calls[n_calls - 1];
    int64_t n = end->first + end->n;
    double *x = xcalloc((size_t)(n * PEER_WIDTH), sizeof *x),
           *kept = xcalloc((size_t)(n * PEER_WIDTH), sizeof *kept);
    const double **rows = xcalloc((size_t)n, sizeof *rows);
    for (int64_t i = 0; i < n * PEER_WIDTH; i++)
        x[i] = peer_embedding(tokens[i / PEER_WIDTH], i % PEER_WIDTH);
    for (int layer = 0; layer < p->n_chunks; layer++) {
        for (int64_t i = 0; i < n * PEER_WIDTH; i++)
            kept[i] = f16_to_f32(f32_to_f16((float)x[i]));
        for (int64_t i = 0; i < n; i++)
            rows[i] = kept + i * PEER_WIDTH;
        for (int k = 0; k < n_calls; k++)
            for (int64_t i = calls[k].first; i < calls[k].first + calls[k].n; i++) {
                double y[PEER_WIDTH] = {0};
                int64_t last = calls[k].first >= p->window ? calls[k].first + calls[k].n : i + 1;
                peer_attend(x + i * PEER_WIDTH, rows, i + 1, y);
                if (p->window)
                    peer_attend(x + i * PEER_WIDTH, rows + (last > p->window ? last - p->window : 0),
                                last < p->window ? last : p->window, y);
                for (int c = 0; c < PEER_WIDTH; c++)
                    x[i * PEER_WIDTH + c] += y[c];
            }
    }
    for (int64_t i = 0; i < n; i++)
        for (int v = 0; v < PEER_VOCABULARY; v++) {
            double sum = 0;
            for (int c = 0; c < PEER_WIDTH; c++)
                sum += x[i * PEER_WIDTH + c] * peer_embedding(v, c);
            logits[i * PEER_VOCABULARY + v] = sum;
        }
    free(x);
    free(kept);
    free(rows);
}

#endif
