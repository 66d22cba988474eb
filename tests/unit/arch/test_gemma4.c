/* The programs of Gemma 4: structure, states, weights, the two local caches, meta.yaml, the rules of the Neural
 * Engine; what is refused. */
#include <math.h>
#include "opened.h"
#include "gemma4_checkpoint.h"

/* Window 16, batch 8: full length up to 32 positions. */
static const struct arch_settings full_settings = {
    .context_length = 32, .batch_size = 8, .n_chunks = 1, .split_lm_head = 16};
static const struct arch_settings block_settings = {
    .context_length = 33, .batch_size = 8, .n_chunks = 1, .split_lm_head = 16};

static void assert_feature(const struct mil_feature *f, const char *name, int rank, const int64_t *shape)
{
    assert_string_equal(f->name, name);
    assert_int_equal(f->rank, rank);
    for (int i = 0; i < rank; i++)
        assert_int_equal(f->shape[i], shape[i]);
}

/* ---- embeddings and head ---- */

static void test_embeddings(void **state)
{
    (void)state;
    struct opened o;
    ASSERT_OK(open_edited(&o, "gemma4-window", NULL, &full_settings, e));
    struct mil_model *m = mil_model_new(9);
    ASSERT_OK(o.model->family->build_embeddings(o.model, m, e));
    ASSERT_OK(mil_verify(m, e));
    const struct mil_function *f = m->program->functions[0];
    assert_int_equal(f->block->n_outputs, 2);
    assert_string_equal(f->block->outputs[0]->name, "hidden_states");
    assert_string_equal(f->block->outputs[1]->name, "per_layer_inputs");
    assert_type(f->block->outputs[0]->type, "tensor<fp16, [1, ?, 96]>");
    assert_type(f->block->outputs[1]->type, "tensor<fp16, [1, ?, 112]>");
    assert_int_equal(count_ops(f, "gather"), 2);
    assert_int_equal(count_ops(f, "conv"), 1);
    const struct mil_function_description *d = &m->description.functions[0];
    assert_int_equal(d->n_outputs, 2);
    assert_string_equal(d->outputs[1].name, "per_layer_inputs");
    assert_int_equal(d->inputs[0].n_enumerated, 2);
    /* The norm undoes a division by the root of hidden_size but for its epsilon. */
    bool found = false;
    for (int i = 0; i < f->block->n_ops; i++) {
        const struct mil_op *op = f->block->ops[i];
        if (!mil_op_is(op, "layer_norm"))
            continue;
        const struct mil_var *eps = mil_arg_find(op, "epsilon")->bindings[0].var;
        const f16 *v = mil_attribute(eps->op, "val")->data;
        assert_true(fabs((double)f16_to_f32(*v) - 96e-6) < 1e-7);
        found = true;
    }
    assert_true(found);
    mil_model_close(m);
    opened_close(&o);
}

/* The value of the constant that an op which reads `x` multiplies by, 1 when none does. */
static double factor_behind(const struct mil_function *f, const struct mil_var *x)
{
    for (int i = 0; i < f->block->n_ops; i++) {
        const struct mil_op *op = f->block->ops[i];
        if (!mil_op_is(op, "mul") || mil_arg_var(op, "x") != x)
            continue;
        const struct mil_value *v = mil_attribute(mil_arg_var(op, "y")->op, "val");
        assert_int_equal(v->n_elems, 1);
        return (double)f16_to_f32(*(const f16 *)v->data);
    }
    return 1;
}

static const struct mil_var *gathered(const struct mil_function *f, const char *table)
{
    for (int i = 0; i < f->block->n_ops; i++)
        if (mil_op_is(f->block->ops[i], "gather") &&
            strcmp(mil_arg_var(f->block->ops[i], "x")->name, table) == 0)
            return f->block->ops[i]->outputs[0];
    fail_msg("no gather from %s", table);
    return NULL;
}

/* A table that holds its tensor times a factor exactly, from any element on. Returns the factor. */
static double check_table(const struct opened *o, const struct mil_function *f, const char *value,
                          const char *tensor)
{
    const struct mil_value *v = const_value(f, value);
    const struct st_tensor *t = safetensors_find(o->tensors, tensor);
    assert_non_null(v);
    assert_non_null(t);
    assert_int_equal(v->n_elems, o->model->vocab_size * t->shape[1]);
    int64_t begin = 37 * t->shape[1] + 5, n = 250 * t->shape[1];
    f16 *got = xmalloc((size_t)n * sizeof *got);
    double *stored = xmalloc((size_t)n * sizeof *stored), factor = 0;
    ASSERT_OK(v->weight->produce(v->weight, begin, n, got, e));
    ASSERT_OK(st_read_f64(t, begin, n, stored, e));
    for (int64_t k = 0; k < n && factor == 0; k++)
        factor = stored[k] != 0 ? (double)f16_to_f32(got[k]) / stored[k] : 0;
    for (int64_t k = 0; k < n; k++)
        assert_true((double)f16_to_f32(got[k]) == stored[k] * factor);
    free(got);
    free(stored);
    return factor;
}

/* Is x a power of two times `quarters` quarters? */
static bool is_power_times(double x, int quarters)
{
    int exponent;
    return frexp(x / (quarters / 4.0), &exponent) == 0.5;
}

/* Tables take in of the root of a size what leaves each element exact; one fp16 factor has the rest. Elements of bf16 have
 * room for quarters, those of fp16 have not. A batch of 1 has fixed shapes. */
static void test_tables(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        double sizes[2]; /* of the two tables */
    } models[] = {{"gemma4-window", {96, 16}}, {"gemma4-resaved", {64, 8}}};
    static const char *const values[] = {"embed_tokens_weight", "embed_tokens_per_layer_weight"};
    int n_quarters = 0;
    for (int i = 0; i < 2; i++) {
        struct opened o;
        struct arch_settings s = full_settings;
        s.batch_size = 1;
        ASSERT_OK(open_edited(&o, models[i].model, NULL, &s, e));
        struct mil_model *m = mil_model_new(9);
        ASSERT_OK(o.model->family->build_embeddings(o.model, m, e));
        ASSERT_OK(mil_verify(m, e));
        const struct mil_function *f = m->program->functions[0];
        assert_int_equal(f->block->outputs[1]->type->dims[1], 1);
        const char *prefix = safetensors_find(o.tensors, "model.language_model.embed_tokens.weight")
                                 ? "model.language_model."
                                 : "model.";
        for (int k = 0; k < 2; k++) {
            char tensor[80];
            snprintf(tensor, sizeof tensor, "%sembed_tokens%s.weight", prefix, k ? "_per_layer" : "");
            double root = sqrt(models[i].sizes[k]), factor = check_table(&o, f, values[k], tensor),
                   left = factor_behind(f, gathered(f, values[k]));
            assert_true(fabs(factor * left / root - 1) <= 0x1p-12);
            assert_true(factor <= root && (factor != root || left == 1));
            bool is_plain = is_power_times(factor, 4);
            assert_true(is_plain || is_power_times(factor, 5) || is_power_times(factor, 6) ||
                        is_power_times(factor, 7));
            n_quarters += !is_plain;
        }
        mil_model_close(m);
        /* The same bytes called fp16: the table takes a power of two. */
        for (int k = 0; k < o.tensors->n_tensors; k++)
            ((struct st_tensor *)(uintptr_t)&o.tensors->tensors[k])->dtype = ST_F16;
        m = mil_model_new(9);
        ASSERT_OK(o.model->family->build_embeddings(o.model, m, e));
        for (int k = 0; k < 2; k++) {
            const struct mil_function *g = m->program->functions[0];
            double root = sqrt(models[i].sizes[k]), left = factor_behind(g, gathered(g, values[k]));
            assert_true(fabs(left * ldexp(1, (int)floor(log2(root))) / root - 1) <= 0x1p-11);
        }
        mil_model_close(m);
        opened_close(&o);
    }
    assert_int_equal(n_quarters, 1); /* the root of 8 */
}

static void test_head(void **state)
{
    (void)state;
    struct opened o;
    for (int i = 0; i < 2; i++) {
        const char *edit = i ? "{\"final_logit_softcapping\": null}" : NULL;
        ASSERT_OK(open_edited(&o, "gemma4-window", edit, &full_settings, e));
        struct mil_model *m = mil_model_new(9);
        ASSERT_OK(o.model->family->build_head(o.model, m, e));
        ASSERT_OK(mil_verify(m, e));
        const struct mil_function *f = m->program->functions[0];
        assert_int_equal(count_ops(f, "tanh"), i ? 0 : 16);
        /* Divided by the cap before the products, where fp16 has the cap and not its inverse. */
        assert_int_equal(count_ops(f, "real_div"), i ? 0 : 1);
        assert_int_equal(count_ops(f, "mul"), i ? 0 : 16);
        assert_int_equal(f->block->n_outputs, 16);
        assert_string_equal(f->block->outputs[15]->name, "logits16");
        assert_type(f->block->outputs[0]->type, "tensor<fp16, [1, 1, 19]>");
        assert_type(f->block->outputs[15]->type, "tensor<fp16, [1, 1, 18]>");
        /* the head's rows are not scaled */
        const struct mil_value *v = const_value(f, "lm_head_1_weight");
        const struct st_tensor *t = safetensors_find(o.tensors, "model.embed_tokens.weight");
        f16 got[96], expected[96];
        ASSERT_OK(v->weight->produce(v->weight, 96, 96, got, e));
        ASSERT_OK(st_read_f16(t, 96, 96, expected, e));
        assert_memory_equal(got, expected, sizeof got);
        mil_model_close(m);
        opened_close(&o);
    }
}

/* ---- chunks ---- */

/* Every declared state is read, no op that the Neural Engine lacks or does badly, ranks up to 5. */
static void check_rules(const struct mil_model *m)
{
    static const char *const unwanted[] = {"sigmoid", "silu",     "log",        "topk",     "cumsum",
                                           "rsqrt",   "softplus", "while_loop", "identity", "cast"};
    for (int i = 0; i < m->program->n_functions; i++) {
        const struct mil_function *f = m->program->functions[i];
        for (size_t k = 0; k < sizeof unwanted / sizeof unwanted[0]; k++)
            assert_int_equal(count_ops(f, unwanted[k]), 0);
        for (int k = 0; k < f->n_inputs; k++) {
            const struct mil_var *input = f->inputs[k];
            bool is_state = input->type->kind == MIL_TYPE_STATE, is_read = false;
            if (!is_state)
                continue;
            const struct mil_type *t = mil_type_tensor(input->type);
            assert_true(t->dims[t->rank - 1] != 3);
            for (int j = 0; j < f->block->n_ops; j++) {
                const struct mil_op *op = f->block->ops[j];
                is_read = is_read || (mil_op_is(op, "read_state") &&
                                      mil_arg_find(op, "input")->bindings[0].var == input);
            }
            assert_true(is_read);
        }
        for (int j = 0; j < f->block->n_ops; j++) {
            const struct mil_op *op = f->block->ops[j];
            for (int k = 0; k < op->n_outputs; k++)
                assert_true(mil_type_tensor(op->outputs[k]->type)->rank <= 5);
            /* minus infinity meets nothing but select and add */
            for (int a = 0; a < op->n_args; a++) {
                const struct mil_var *x = op->args[a].bindings[0].var;
                if (x && strcmp(x->name, "causal_mask") == 0)
                    assert_true(mil_op_is(op, "add") || mil_op_is(op, "select"));
            }
        }
    }
}

/* Ops of a layer when a state update counts as the two ops that it is written as: a slice and a write of the
 * state, and the read behind it. */
enum { OPS_LOCAL = 132, OPS_GLOBAL = 136, OPS_SHARED = 101, OPS_SHARED_GLOBAL = 103 };
/* Rope rows of a kind; window mask; final norm. */
enum { OPS_ROPE = 4, OPS_FULL_MASK = 4, OPS_NORM = 5 };

static void test_full_cache(void **state)
{
    (void)state;
    struct opened o;
    ASSERT_OK(open_edited(&o, "gemma4-window", NULL, &full_settings, e));
    struct mil_model *m = build_chunk(&o, 0);
    check_rules(m);
    const struct mil_function *infer = m->program->functions[0], *prefill = m->program->functions[1];
    static const char *const types[] = {"tensor<fp16, [1, 8, 96]>",    "tensor<int32, [8]>",
                                        "tensor<fp16, [1, 1, 8, 32]>", "tensor<int32, [1]>",
                                        "tensor<fp16, [1, 8, 112]>",   "tensor<fp16, [3, 2, 32, 32]>",
                                        "tensor<fp16, [1, 2, 32, 64]>"};
    static const char *const names[] = {"hidden_states",
                                        "position_ids",
                                        "causal_mask",
                                        "current_pos",
                                        "per_layer_inputs",
                                        "model_model_kv_cache_local",
                                        "model_model_kv_cache_global"};
    assert_int_equal(prefill->n_inputs, 7);
    for (int i = 0; i < 7; i++) {
        assert_string_equal(prefill->inputs[i]->name, names[i]);
        assert_type(mil_type_tensor(prefill->inputs[i]->type), types[i]);
    }
    /* layers: local, local, global, local; shared: local, global, global */
    int expected = 3 * OPS_LOCAL + OPS_GLOBAL + OPS_SHARED + 2 * OPS_SHARED_GLOBAL + 2 * OPS_ROPE +
                   OPS_FULL_MASK + OPS_NORM;
    assert_int_equal(count_ops(infer, NULL), expected);
    assert_int_equal(count_ops(prefill, NULL), expected + 1);
    assert_int_equal(count_ops(infer, "write_state"), 4);
    assert_int_equal(count_ops(infer, "conv"), 4 * 9 + 3 * 7);
    assert_int_equal(count_ops(infer, "layer_norm"), 4 * 8 + 3 * 6 + 1);
    /* Every weight of one function is the very same value in the other one. */
    int shared = 0;
    for (int i = 0; i < infer->block->n_ops; i++) {
        const struct mil_op *op = infer->block->ops[i];
        const struct mil_value *v = mil_op_is(op, "const") ? mil_attribute(op, "val") : NULL;
        if (!v || v->kind != MIL_VALUE_WEIGHT)
            continue;
        assert_ptr_equal(v, const_value(prefill, op->outputs[0]->name));
        shared++;
    }
    assert_int_equal(shared, 4 + 4 * 17 + 3 * 14 + 1);
    const struct mil_function_description *d = mil_function_description_find(m, "prefill");
    assert_int_equal(d->n_inputs, 5);
    assert_feature(&d->inputs[4], "per_layer_inputs", 3, (const int64_t[]){1, 8, 112});
    assert_feature(&d->outputs[0], "output_hidden_states", 3, (const int64_t[]){1, 1, 96});
    mil_model_close(m);
    opened_close(&o);
}

static void test_block_cache(void **state)
{
    (void)state;
    struct opened o;
    ASSERT_OK(open_edited(&o, "gemma4-window", NULL, &block_settings, e));
    struct mil_model *m = build_chunk(&o, 0);
    check_rules(m);
    const struct mil_function *infer = m->program->functions[0], *prefill = m->program->functions[1];
    /* one position more than what fits at full length: the cache is window + 2 batches long */
    assert_type(mil_type_tensor(infer->inputs[5]->type), "tensor<fp16, [3, 2, 32, 32]>");
    assert_type(mil_type_tensor(infer->inputs[6]->type), "tensor<fp16, [1, 2, 33, 64]>");
    assert_int_equal(count_ops(prefill, "floor_div"), 1);
    assert_int_equal(count_ops(prefill, "mod"), 0);
    assert_int_equal(count_ops(prefill, "select"), 1);
    /* a single token shifts only when it starts a block */
    assert_int_equal(count_ops(infer, "mod"), 1);
    assert_int_equal(count_ops(infer, "select"), 1 + 3);
    assert_int_equal(count_ops(infer, "write_state"), 4);
    const struct mil_value *keys = const_value(infer, "local_keys");
    assert_non_null(keys);
    assert_int_equal(keys->n_elems, 32);
    for (int i = 0; i < 32; i++)
        assert_int_equal(((const int32_t *)keys->data)[i], i);
    assert_ptr_equal(keys, const_value(prefill, "local_keys"));
    mil_model_close(m);
    opened_close(&o);
}

/* Chunks of one layer each: local, local, global, local, then shared ones. What a chunk does not use is read
 * all the same. */
static void test_chunks_of_one(void **state)
{
    (void)state;
    struct opened o;
    for (int k = 0; k < 2; k++) {
        struct arch_settings s = k ? block_settings : full_settings;
        s.n_chunks = 7;
        ASSERT_OK(open_edited(&o, "gemma4-window", NULL, &s, e));
        for (int i = 0; i < 7; i++) {
            struct mil_model *m = build_chunk(&o, i);
            check_rules(m);
            const struct mil_function *infer = m->program->functions[0], *prefill = m->program->functions[1];
            assert_int_equal(count_ops(infer, "write_state"), i < 4);
            /* the shift only where something is written */
            assert_int_equal(count_ops(infer, "mod"), k == 1 && (i < 2 || i == 3));
            assert_int_equal(count_ops(prefill, "floor_div"), k == 1 && i != 2 && i < 5);
            assert_type(prefill->block->outputs[0]->type,
                        i < 6 ? "tensor<fp16, [1, 8, 96]>" : "tensor<fp16, [1, 1, 96]>");
            mil_model_close(m);
        }
        opened_close(&o);
    }
}

/* ---- the shapes of E2B ---- */

static void check_e2b(struct opened *o, int64_t context, int64_t local)
{
    struct mil_model *m = build_chunk(o, 0);
    check_rules(m);
    const struct mil_function_description *d = mil_function_description_find(m, "infer");
    assert_int_equal(d->n_states, 2);
    assert_feature(&d->states[0], "model_model_kv_cache_local", 4, (const int64_t[]){12, 2, local, 256});
    assert_feature(&d->states[1], "model_model_kv_cache_global", 4, (const int64_t[]){3, 2, context, 512});
    assert_feature(&d->inputs[4], "per_layer_inputs", 3, (const int64_t[]){1, 1, 8960});
    /* 64 of the 256 pairs of a global head turn */
    assert_type(const_value(m->program->functions[0], "rope_cos_global")->type,
                context == 512 ? "tensor<fp16, [512, 64]>" : "tensor<fp16, [8192, 64]>");
    assert_type(const_value(m->program->functions[0], "rope_cos_local")->type,
                context == 512 ? "tensor<fp16, [512, 128]>" : "tensor<fp16, [8192, 128]>");
    assert_type(const_value(m->program->functions[0], "layers_14_mlp_gate_proj_weight")->type,
                "tensor<fp16, [6144, 1536, 1, 1]>");
    assert_type(const_value(m->program->functions[0], "layers_15_mlp_gate_proj_weight")->type,
                "tensor<fp16, [12288, 1536, 1, 1]>");
    assert_null(const_value(m->program->functions[0], "layers_15_self_attn_k_proj_weight"));
    mil_model_close(m);
}

static void check_e2b_meta(const struct opened *o, int64_t context, int64_t local)
{
    static const int local_layers[] = {0, 1, 2, 3, 5, 6, 7, 8, 10, 11, 12, 13}, global_layers[] = {4, 9, 14};
    struct meta *meta = meta_new();
    o->model->family->fill_meta(o->model, meta);
    assert_int_equal(meta->local_attention_window, 512);
    assert_int_equal(meta->local_cache_length, local == context ? 0 : local);
    assert_true(meta->final_logit_softcap == 30.0);
    assert_int_equal(meta->per_layer_inputs, 8960);
    assert_int_equal(meta->n_kv_shared_layers, 20);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(meta->kv_shared_layers[i].key, 15 + i);
        assert_int_equal(meta->kv_shared_layers[i].value, i % 5 == 4 ? 14 : 13);
    }
    assert_int_equal(meta->n_layer_types, 35);
    assert_string_equal(meta->layer_types[3], "sliding");
    assert_string_equal(meta->layer_types[4], "full");
    assert_int_equal(meta->n_states, 2);
    assert_string_equal(meta->states[0].dtype, "float16");
    assert_int_equal(meta->states[0].shape[2], local);
    assert_int_equal(meta->states[0].n_layers, 12);
    assert_memory_equal(meta->states[0].layers, local_layers, sizeof local_layers);
    assert_int_equal(meta->states[1].shape[2], context);
    assert_int_equal(meta->states[1].n_layers, 3);
    assert_memory_equal(meta->states[1].layers, global_layers, sizeof global_layers);
    /* a windowed package says so by its length alone; these keys are those of recurrent ones */
    assert_false(meta->recurrent_state);
    meta_free(meta);
}

static void test_e2b(void **state)
{
    (void)state;
    char *folder = e2b_make();
    static const struct {
        int64_t context, local;
    } cases[] = {{512, 512}, {640, 640}, {8192, 640}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct opened o;
        struct arch_settings s = {
            .context_length = cases[i].context, .batch_size = 64, .n_chunks = 1, .split_lm_head = 16};
        ASSERT_OK(open_folder(&o, folder, NULL, &s, e));
        assert_string_equal(o.model->family->default_prefix, "gemma4");
        if (cases[i].context != 640)
            check_e2b(&o, cases[i].context, cases[i].local);
        check_e2b_meta(&o, cases[i].context, cases[i].local);
        /* left out: vision, audio, k and v of shared layers */
        int unused = 0;
        for (int k = 0; k < o.tensors->n_tensors; k++)
            unused += !o.model->tensor_used[k];
        assert_int_equal(unused, 2 + 20 * 3);
        opened_close(&o);
    }
    e2b_remove(folder);
}

static void test_embedding_of_e2b(void **state)
{
    (void)state;
    char *folder = e2b_make();
    struct opened o;
    struct arch_settings s = {.context_length = 512, .batch_size = 64, .n_chunks = 1, .split_lm_head = 16};
    ASSERT_OK(open_folder(&o, folder, NULL, &s, e));
    struct mil_model *m = mil_model_new(9);
    ASSERT_OK(o.model->family->build_embeddings(o.model, m, e));
    ASSERT_OK(mil_verify(m, e));
    const struct mil_value *v = const_value(m->program->functions[0], "embed_tokens_per_layer_weight");
    assert_type(v->type, "tensor<fp16, [262144, 8960]>");
    const struct mil_function *f = m->program->functions[0];
    assert_true(factor_behind(f, gathered(f, "embed_tokens_per_layer_weight")) == 1);
    assert_true(fabs(32 * factor_behind(f, gathered(f, "embed_tokens_weight")) / sqrt(1536) - 1) < 0x1p-12);
    /* the last rows lie beyond 2^31 elements */
    f16 last[4];
    memset(last, 1, sizeof last);
    ASSERT_OK(v->weight->produce(v->weight, 262144 * 8960LL - 4, 4, last, e));
    for (int i = 0; i < 4; i++)
        assert_int_equal(last[i], 0);
    mil_model_close(m);
    m = mil_model_new(9);
    ASSERT_OK(o.model->family->build_head(o.model, m, e));
    ASSERT_OK(mil_verify(m, e));
    assert_type(m->program->functions[0]->block->outputs[15]->type, "tensor<fp16, [1, 1, 16384]>");
    mil_model_close(m);
    opened_close(&o);
    e2b_remove(folder);
}

/* ---- configuration ---- */

/* per_layer_config in place of global_head_dim; layer_types that are made; the last layer is global whatever the
 * list says; defaults of rope_parameters. */
static void test_variants(void **state)
{
    (void)state;
    struct opened o;
    struct arch_settings s = full_settings;
    s.context_length = 64;
    ASSERT_OK(open_edited(&o, "gemma4-resaved", NULL, &s, e));
    struct mil_model *m = build_chunk(&o, 0);
    assert_type(mil_type_tensor(m->program->functions[0]->inputs[5]->type), "tensor<fp16, [3, 2, 64, 24]>");
    assert_type(mil_type_tensor(m->program->functions[0]->inputs[6]->type), "tensor<fp16, [1, 2, 64, 40]>");
    /* 0.25 * 40 / 2 */
    assert_type(const_value(m->program->functions[0], "rope_cos_global")->type, "tensor<fp16, [64, 5]>");
    mil_model_close(m);
    opened_close(&o);
    ASSERT_OK(open_edited(&o, "gemma4-resaved",
                          "{\"per_layer_config\": {\"2\": {\"head_dim\": 40, \"num_key_value_heads\": 1}, "
                          "\"5\": {\"head_dim\": 40}}, \"rope_parameters\": null, \"layer_types\": "
                          "[\"sliding_attention\", \"sliding_attention\", \"full_attention\", "
                          "\"sliding_attention\", \"sliding_attention\", \"sliding_attention\"]}",
                          &s, e));
    m = build_chunk(&o, 0);
    assert_type(const_value(m->program->functions[0], "rope_cos_global")->type, "tensor<fp16, [64, 5]>");
    mil_model_close(m);
    opened_close(&o);
    /* no sharing: layers have their own caches, no layer is double wide */
    ASSERT_OK(open_edited(&o, "gemma4-window",
                          "{\"rms_norm_eps\": 0, \"layer_types\": [\"sliding_attention\", "
                          "\"sliding_attention\", \"full_attention\", \"sliding_attention\", "
                          "\"sliding_attention\", \"full_attention\", \"sliding_attention\"]}",
                          &s, e));
    opened_close(&o);
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct refusal cases[] = {
        {"{\"attention_k_eq_v\": true}", ERR_UNSUPPORTED, "attention_k_eq_v"},
        {"{\"enable_moe_block\": true}", ERR_UNSUPPORTED, "enable_moe_block"},
        {"{\"use_bidirectional_attention\": \"vision\"}", ERR_UNSUPPORTED, "use_bidirectional_attention"},
        {"{\"use_bidirectional_attention\": \"all\"}", ERR_UNSUPPORTED, "use_bidirectional_attention"},
        {"{\"attention_bias\": true}", ERR_UNSUPPORTED, "attention_bias"},
        {"{\"hidden_size_per_layer_input\": 0}", ERR_UNSUPPORTED, "hidden_size_per_layer_input"},
        {"{\"hidden_size_per_layer_input\": -1}", ERR_FORMAT, "hidden_size_per_layer_input"},
        {"{\"hidden_activation\": \"silu\"}", ERR_UNSUPPORTED, "hidden_activation"},
        {"{\"model_type\": \"gemma4_vision\"}", ERR_UNSUPPORTED, "vision"},
        {"{\"model_type\": \"gemma4_audio\"}", ERR_UNSUPPORTED, "audio"},
        {"{\"model_type\": \"gemma4\"}", ERR_FORMAT, "text_config is missing"},
        {"{\"model_type\": \"gemma4_unified\"}", ERR_UNSUPPORTED, "gemma4_unified"},
        {"{\"model_type\": \"gemma4\", \"text_config\": {\"model_type\": \"gemma3_text\"}}", ERR_UNSUPPORTED,
         "gemma3_text"},
        {"{\"vocab_size_per_layer_input\": 300}", ERR_UNSUPPORTED, "vocab_size_per_layer_input"},
        {"{\"num_kv_shared_layers\": 7}", ERR_FORMAT, "num_kv_shared_layers"},
        {"{\"num_kv_shared_layers\": -1}", ERR_FORMAT, "num_kv_shared_layers"},
        {"{\"num_kv_shared_layers\": 5}", ERR_FORMAT, "layer 2 (full_attention)"},
        {"{\"num_kv_shared_layers\": 2}", ERR_FORMAT, "layers.4.self_attn.k_proj.weight is missing"},
        {"{\"layer_types\": [\"full_attention\"]}", ERR_FORMAT, "layer_types"},
        {"{\"layer_types\": \"full_attention\"}", ERR_FORMAT, "layer_types"},
        {"{\"layer_types\": [\"linear_attention\", 2, 3, 4, 5, 6, 7]}", ERR_UNSUPPORTED, "linear_attention"},
        {"{\"rope_parameters\": {\"full_attention\": {}}}", ERR_FORMAT, "rope_parameters.sliding_attention"},
        {"{\"rope_parameters\": {\"sliding_attention\": {\"rope_type\": \"yarn\"}, \"full_attention\": {}}}",
         ERR_UNSUPPORTED, "yarn"},
        {"{\"rope_parameters\": {\"sliding_attention\": {\"partial_rotary_factor\": 0.5}, "
         "\"full_attention\": "
         "{}}}",
         ERR_FORMAT, "partial_rotary_factor"},
        {"{\"rope_parameters\": {\"sliding_attention\": {}, \"full_attention\": {\"rope_type\": "
         "\"proportional\", \"partial_rotary_factor\": 0.01}}}",
         ERR_FORMAT, "partial_rotary_factor"},
        {"{\"rope_parameters\": {\"sliding_attention\": {\"rope_theta\": 0}, \"full_attention\": {}}}",
         ERR_FORMAT, "rope_theta"},
        {"{\"final_logit_softcapping\": 0}", ERR_FORMAT, "final_logit_softcapping"},
        {"{\"final_logit_softcapping\": -30}", ERR_FORMAT, "final_logit_softcapping"},
        {"{\"rms_norm_eps\": 2}", ERR_FORMAT, "rms_norm_eps"},
        {"{\"sliding_window\": 0}", ERR_FORMAT, "sliding_window"},
        {"{\"head_dim\": 31}", ERR_FORMAT, "even"},
        {"{\"head_dim\": 48}", ERR_FORMAT, "layers.0.self_attn.q_proj.weight"},
        {"{\"num_key_value_heads\": 3}", ERR_FORMAT, "multiple"},
        {"{\"per_layer_config\": {\"2\": {\"head_dim\": 64}}}", ERR_UNSUPPORTED, "layer 5"},
        {"{\"per_layer_config\": {\"2\": {\"sliding_window\": 64}}}", ERR_UNSUPPORTED, "sliding_window"},
        {"{\"per_layer_config\": {\"2\": 64}}", ERR_FORMAT, "per_layer_config"},
        {"{\"per_layer_config\": []}", ERR_FORMAT, "per_layer_config"},
        {"{\"use_double_wide_mlp\": false}", ERR_FORMAT, "layers.4.mlp.gate_proj.weight"},
        {"{\"tie_word_embeddings\": false}", ERR_FORMAT, "lm_head.weight is missing"},
        {"{\"vocab_size\": 302, \"vocab_size_per_layer_input\": 302}", ERR_FORMAT, "embed_tokens"},
        {"{\"num_hidden_layers\": 1e9}", ERR_FORMAT, "num_hidden_layers"},
    };
    assert_refusals("gemma4-window", cases, sizeof cases / sizeof cases[0], &full_settings);
}

/* Only the towers of a multimodal checkpoint. */
static void test_vision_only(void **state)
{
    (void)state;
    static const float zeros[16];
    static const int64_t shape[2] = {4, 4};
    char folder[] = "scratch-gemma4-XXXXXX";
    assert_non_null(mkdtemp(folder));
    char *config = path_join(folder, "config.json"), *file = path_join(folder, "model.safetensors");
    const char text[] = "{\"model_type\": \"gemma4\", \"text_config\": {}, \"vision_config\": {}}";
    ASSERT_OK(file_write(config, text, sizeof text - 1, e));
    struct st_writer *w = st_writer_new();
    st_writer_add(w, "model.vision_tower.encoder.layers.0.mlp.gate_proj.linear.weight", ST_F32, shape, 2,
                  zeros);
    ASSERT_OK(st_writer_write(w, file, true, e));
    st_writer_free(w);
    struct opened o;
    struct err e = {0};
    assert_false(open_folder(&o, folder, NULL, &full_settings, &e));
    assert_int_equal(e.code, ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "vision_tower"));
    opened_close(&o);
    ASSERT_OK(path_remove_tree(folder, e));
    free(config);
    free(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embeddings),  cmocka_unit_test(test_tables),
        cmocka_unit_test(test_head),        cmocka_unit_test(test_full_cache),
        cmocka_unit_test(test_block_cache), cmocka_unit_test(test_chunks_of_one),
        cmocka_unit_test(test_e2b),         cmocka_unit_test(test_embedding_of_e2b),
        cmocka_unit_test(test_variants),    cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_vision_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
