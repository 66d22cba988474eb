/* The programs and descriptions that every family has: token embeddings, the head's parts, a chunk's callers'
 * view. */
#include <math.h>
#include "arch/blocks.h"
#include "arch/family.h"
#include "format/contract.h"

static const char *number_text(struct mil_model *out, int64_t v)
{
    return arena_printf(out->arena, "%lld", (long long)v);
}

/* A model of one unnamed function, as the caller sees it. */
static struct mil_function_description *describe_single(struct mil_model *out, int n_outputs)
{
    struct mil_function_description *f = ARENA_NEW(out->arena, struct mil_function_description);
    f->n_inputs = 1;
    f->n_outputs = n_outputs;
    f->inputs = ARENA_NEW(out->arena, struct mil_feature);
    f->outputs = ARENA_ARRAY(out->arena, struct mil_feature, n_outputs);
    out->description.has_functions = false;
    out->description.n_functions = 1;
    out->description.functions = f;
    return f;
}

void arch_describe_embeddings(const struct arch_model *m, struct mil_model *out)
{
    int64_t batch = m->settings.batch_size, one[2] = {1, 1}, many[2] = {1, batch};
    bool has_second = m->per_layer_inputs > 0;
    struct mil_function_description *f = describe_single(out, has_second ? 2 : 1);
    const int64_t *const shapes[2] = {one, many};
    f->inputs[0] = arch_enumerated_feature(out, PORT_INPUT_IDS, MIL_INT32, 2, shapes, batch == 1 ? 1 : 2);
    /* A result of flexible length is described without a shape. */
    int64_t hidden[3] = {1, 1, m->hidden_size}, second[3] = {1, 1, m->per_layer_inputs};
    int rank = batch == 1 ? 3 : 0;
    f->outputs[0] = arch_array_feature(out, PORT_HIDDEN_STATES, MIL_FP16, rank, hidden);
    if (has_second)
        f->outputs[1] = arch_array_feature(out, PORT_PER_LAYER_INPUTS, MIL_FP16, rank, second);
    const struct mil_text_pair pairs[] = {
        {"com.anemll.batch_size", number_text(out, batch)},
        {"com.anemll.context_length", number_text(out, m->settings.context_length)},
        {"com.anemll.info", "Converted with milkit"},
    };
    arch_describe(out, "Anemll Model (Embeddings) converted to CoreML", pairs,
                  (int)(sizeof pairs / sizeof pairs[0]));
}

/* A factor as one in the table that is not above it, a power of two, times 5, 6 or 7 quarters where elements
 * have the 8 bits of bf16, and an fp16 number for what is left, so that their product is as near to it as can
 * be (2^-11 at worst). Elements of bf16 and fp16 times the factor are exact in fp16 unless they are subnormal there. */
static void split_factor(double whole, bool is_bf16, double *in_table, double *left)
{
    double best = INFINITY;
    for (int quarters = 4; quarters <= (is_bf16 ? 7 : 4); quarters++) {
        double factor = ldexp(quarters / 4.0, (int)floor(log2(whole / (quarters / 4.0))));
        double number = f16_to_f32(f64_to_f16(whole / factor)), error = fabs(factor * number - whole);
        if (error < best) {
            best = error;
            *in_table = factor;
            *left = number;
        }
    }
}

struct mil_var *arch_scaled_rows(struct mil_builder *b, struct mil_model *out, struct arch_layout l,
                                 double factor, struct mil_var *ids, const char *table_name, const char *name)
{
    int64_t dims[2] = {l.rows, l.columns};
    double left = 1;
    split_factor(factor, l.tensors[0]->dtype == ST_BF16, &l.factor, &left);
    const struct mil_value *table = arch_layout_weight(out, &l, 2, dims);
    if (left == 1)
        return block_gather(b, table, ids, table_name, name);
    return block_scale(b, block_gather(b, table, ids, table_name, NULL), left, name);
}

bool arch_build_embeddings(struct arch_model *m, struct mil_model *out, struct err *e)
{
    int64_t any_length[2] = {1, m->settings.batch_size == 1 ? 1 : MIL_DIM_UNKNOWN};
    int64_t dims[2] = {m->vocab_size, m->hidden_size};
    struct mil_builder *b = mil_builder_new(out, "main", "CoreML8");
    struct mil_var *ids = mil_build_input(b, PORT_INPUT_IDS, MIL_INT32, 2, any_length);
    const char *const name = "embed_tokens_weight";
    double factor = (m->embedding_factor > 0 ? m->embedding_factor : 1) * m->settings.residual_scale;
    const struct st_tensor *table = m->ends.embeddings;
    struct mil_var *hidden =
        factor == 1 ? block_gather(b, arch_weight(out, table, 0, 2, dims), ids, name, PORT_HIDDEN_STATES)
                    : arch_scaled_rows(b, out, arch_layout_of(&table, dims[0], dims[1]), factor, ids, name,
                                       PORT_HIDDEN_STATES);
    if (!mil_builder_finish(b, &hidden, 1, e))
        return err_wrap(e, "embeddings");
    arch_describe_embeddings(m, out);
    return true;
}

bool arch_build_head(struct arch_model *m, struct mil_model *out, struct err *e)
{
    const struct st_tensor *weight = m->ends.head;
    double cap = m->softcap;
    int n = m->settings.split_lm_head;
    int64_t hidden_shape[3] = {1, 1, m->hidden_size}, row = 0;
    struct mil_builder *b = mil_builder_new(out, "main", "CoreML8");
    struct mil_var **logits = ARENA_ARRAY(m->arena, struct mil_var *, n);
    struct mil_function_description *f = describe_single(out, n);
    struct buf sizes;
    buf_init(&sizes, (size_t)1 << 20);
    struct mil_var *x = mil_build_input(b, PORT_HIDDEN_STATES, MIL_FP16, 3, hidden_shape);
    /* The division by the cap is done once here: behind the products it would be one for every logit, and
     * compilers would fold it into the weights. A division, because fp16 has 30 and has not 1/30. */
    if (cap > 0)
        x = block_binary(b, "real_div", x, mil_build_f16(b, cap, NULL), NULL);
    x = block_to_channels(b, x);
    for (int i = 0; i < n; i++) {
        int64_t size = arch_head_part(m->vocab_size, n, i);
        int64_t dims[4] = {size, m->hidden_size, 1, 1}, result[3] = {1, 1, size};
        const char *name = arena_printf(out->arena, PORT_LOGITS_FORMAT, i + 1);
        struct mil_var *y = block_linear(b, x, arch_weight(out, weight, row * m->hidden_size, 4, dims), NULL,
                                         arena_printf(out->arena, "lm_head_%d", i + 1));
        y = block_reshape(b, y, 3, result, cap > 0 ? NULL : name);
        logits[i] = cap > 0 ? block_scale(b, block_unary(b, "tanh", y, NULL), cap, name) : y;
        f->outputs[i] = arch_array_feature(out, name, MIL_FP16, 3, result);
        buf_printf(&sizes, "%s%lld", i ? "," : "", (long long)size);
        row += size;
    }
    f->inputs[0] = arch_array_feature(out, PORT_HIDDEN_STATES, MIL_FP16, 3, hidden_shape);
    bool ok = mil_builder_finish(b, logits, n, e) || err_wrap(e, "LM head");
    const struct mil_text_pair pairs[] = {
        {"com.anemll.context_length", number_text(out, m->settings.context_length)},
        {"com.anemll.info", "Converted with milkit"},
        {"com.anemll.lm_head_chunk_sizes", sizes.p},
        {"com.anemll.vocab_size", number_text(out, m->vocab_size)},
    };
    if (ok)
        arch_describe(out, "Anemll Model (LM Head) converted to CoreML", pairs,
                      (int)(sizeof pairs / sizeof pairs[0]));
    buf_fini(&sizes);
    return ok;
}

const char *arch_layer_name(struct mil_builder *b, int64_t layer, const char *what)
{
    return arena_printf(mil_builder_arena(b), "layers_%lld_%s", (long long)layer, what);
}

struct arch_inputs arch_build_inputs(const struct arch_model *m, struct mil_builder *b, int64_t t)
{
    int64_t hidden[3] = {1, t, m->hidden_size}, mask[4] = {1, 1, t, m->settings.context_length};
    int64_t per_layer[3] = {1, t, m->per_layer_inputs}, one = 1;
    struct arch_inputs in = {0};
    in.hidden_states = mil_build_input(b, PORT_HIDDEN_STATES, MIL_FP16, 3, hidden);
    in.position_ids = mil_build_input(b, PORT_POSITION_IDS, MIL_INT32, 1, &t);
    in.causal_mask = mil_build_input(b, PORT_CAUSAL_MASK, MIL_FP16, 4, mask);
    in.current_pos = mil_build_input(b, PORT_CURRENT_POS, MIL_INT32, 1, &one);
    if (m->per_layer_inputs > 0)
        in.per_layer_inputs = mil_build_input(b, PORT_PER_LAYER_INPUTS, MIL_FP16, 3, per_layer);
    return in;
}

bool arch_finish_function(struct mil_builder *b, struct mil_var *x, const char *name, struct err *e)
{
    if (x)
        mil_build_rename(b, x, PORT_OUTPUT_HIDDEN_STATES);
    return mil_builder_finish(b, &x, 1, e) || err_wrap(e, "function %s", name);
}

static void describe_function(const struct arch_model *m, bool is_last, const struct arch_state *states,
                              int n_states, struct mil_model *out, struct mil_function_description *f,
                              const char *name, int64_t t)
{
    int64_t hidden[3] = {1, t, m->hidden_size}, mask[4] = {1, 1, t, m->settings.context_length};
    int64_t result[3] = {1, is_last ? 1 : t, m->hidden_size}, one = 1;
    f->name = name;
    f->n_inputs = m->per_layer_inputs > 0 ? 5 : 4;
    f->inputs = ARENA_ARRAY(out->arena, struct mil_feature, f->n_inputs);
    f->inputs[0] = arch_array_feature(out, PORT_HIDDEN_STATES, MIL_FP16, 3, hidden);
    f->inputs[1] = arch_array_feature(out, PORT_POSITION_IDS, MIL_INT32, 1, &t);
    f->inputs[2] = arch_array_feature(out, PORT_CAUSAL_MASK, MIL_FP16, 4, mask);
    f->inputs[3] = arch_array_feature(out, PORT_CURRENT_POS, MIL_INT32, 1, &one);
    int64_t per_layer[3] = {1, t, m->per_layer_inputs};
    if (m->per_layer_inputs > 0)
        f->inputs[4] = arch_array_feature(out, PORT_PER_LAYER_INPUTS, MIL_FP16, 3, per_layer);
    f->n_outputs = 1;
    f->outputs = ARENA_NEW(out->arena, struct mil_feature);
    f->outputs[0] = arch_array_feature(out, PORT_OUTPUT_HIDDEN_STATES, MIL_FP16, 3, result);
    f->n_states = n_states;
    f->states = ARENA_ARRAY(out->arena, struct mil_feature, n_states);
    for (int i = 0; i < n_states; i++)
        f->states[i] = arch_state_feature(out, states[i].name, states[i].rank, states[i].shape);
}

void arch_describe_chunk(const struct arch_model *m, int i_chunk, const struct arch_state *states,
                         int n_states, bool rotates, struct mil_model *out)
{
    static const char *const names[4] = {FUNCTION_INFER, FUNCTION_PREFILL, FUNCTION_INFER_ROTATE,
                                         FUNCTION_PREFILL_ROTATE};
    struct mil_description *d = &out->description;
    bool is_last = i_chunk == m->settings.n_chunks - 1;
    int64_t begin, end;
    arch_chunk_layers(m, i_chunk, &begin, &end);
    d->has_functions = true;
    d->n_functions = rotates ? 4 : 2;
    d->functions = ARENA_ARRAY(out->arena, struct mil_function_description, d->n_functions);
    d->default_function_name = FUNCTION_INFER;
    for (int i = 0; i < d->n_functions; i++)
        describe_function(m, is_last, states, n_states, out, &d->functions[i], names[i],
                          i % 2 == 0 ? 1 : m->settings.batch_size);
    const struct mil_text_pair pairs[] = {
        {"com.anemll.batch_size", number_text(out, m->settings.batch_size)},
        {"com.anemll.chunk_no", number_text(out, i_chunk + 1)},
        {"com.anemll.context_length", number_text(out, m->settings.context_length)},
        {"com.anemll.functions", rotates ? "infer,prefill,infer_rotate,prefill_rotate" : "infer,prefill"},
        {"com.anemll.info", "Converted with milkit"},
        {"com.anemll.layers", arena_printf(out->arena, "%lld-%lld", (long long)begin, (long long)end - 1)},
        {"com.anemll.num_chunks", number_text(out, m->settings.n_chunks)},
    };
    arch_describe(out, "Anemll Model: Multifunction FFN+Prefill", pairs,
                  (int)(sizeof pairs / sizeof pairs[0]));
}
