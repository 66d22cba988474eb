/* The programs of Qwen3.5: structure, states, weights, the rules of the Neural Engine; what is refused. */
#include <math.h>
#include "opened.h"
#include "qwen3_5_checkpoint.h"

static const struct arch_settings plain_settings = {
    .context_length = 128, .batch_size = 64, .n_chunks = 1, .split_lm_head = 16};

/* ---- structure ---- */

static void test_chunks(void **state)
{
    (void)state;
    static const int convs[] = {8, 8, 8, 8}; /* both kinds of layers have eight projections with the MLP's */
    struct opened o;
    struct arch_settings s = plain_settings;
    s.n_chunks = 4; /* linear, linear, linear, full */
    ASSERT_OK(open_edited(&o, "qwen3_5-equal", NULL, &s, e));
    assert_string_equal(o.model->family->name, "qwen3_5");
    assert_string_equal(o.model->family->default_prefix, "qwen35");
    for (int i = 0; i < 4; i++) {
        struct mil_model *m = build_chunk(&o, i);
        const struct mil_function *infer = m->program->functions[0], *prefill = m->program->functions[1];
        bool is_last = i == 3;
        static const char *const types[] = {"tensor<fp16, [1, 64, 80]>",     "tensor<int32, [64]>",
                                            "tensor<fp16, [1, 1, 64, 128]>", "tensor<int32, [1]>",
                                            "tensor<fp16, [2, 1, 128, 48]>", "tensor<fp16, [9, 32, 48]>",
                                            "tensor<fp16, [3, 3, 336]>"};
        assert_int_equal(prefill->n_inputs, 7);
        for (int k = 0; k < 7; k++)
            assert_type(mil_type_tensor(prefill->inputs[k]->type), types[k]);
        assert_type(infer->inputs[0]->type, "tensor<fp16, [1, 1, 80]>");
        assert_type(prefill->block->outputs[0]->type,
                    is_last ? "tensor<fp16, [1, 1, 80]>" : "tensor<fp16, [1, 64, 80]>");
        assert_int_equal(count_ops(infer, "conv"), convs[i]);
        assert_int_equal(count_ops(prefill, "conv"), convs[i]);
        /* Reads of one element of the states that a chunk has no use for. */
        assert_int_equal(count_ops(infer, "write_state"), 2);
        assert_int_equal(count_ops(infer, "read_state"), is_last ? 5 : 3);
        /* infer: three products of the rule; prefill: sums, overlap, five levels of two, u, w, inside, and four
         * a chunk of tokens. */
        assert_int_equal(count_ops(infer, "matmul"), is_last ? 2 : 3);
        assert_int_equal(count_ops(prefill, "matmul"), is_last ? 2 : 19);
        const struct mil_function_description *d = mil_function_description_find(m, "prefill");
        assert_int_equal(d->n_states, 3);
        assert_string_equal(d->states[0].name, "model_model_kv_cache_0");
        assert_string_equal(d->states[1].name, "model_model_gdn_state_0");
        assert_string_equal(d->states[2].name, "model_model_conv_state_0");
        assert_int_equal(d->states[1].shape[0], 9);
        mil_model_close(m);
    }
    opened_close(&o);
}

static void test_chunk_sizes(void **state)
{
    (void)state;
    static const struct {
        int64_t batch;
        int asked, expected; /* expected 0: refused */
    } cases[] = {{64, 0, 64},  {128, 0, 64}, {48, 0, 16},     {9, 0, 1},  {1, 0, 1},
                 {64, 16, 16}, {64, 64, 64}, {128, 128, 128}, {64, 1, 1}, {64, 24, 0},
                 {64, 128, 0}, {64, -8, 0},  {48, 32, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct opened o;
        struct err e = {0};
        struct arch_settings s = plain_settings;
        s.batch_size = cases[i].batch;
        s.gdn_chunk = cases[i].asked;
        bool ok = open_edited(&o, "qwen3_5-equal", NULL, &s, &e);
        assert_int_equal(ok, cases[i].expected != 0);
        if (!ok) {
            assert_int_equal(e.code, ERR_USAGE);
            assert_non_null(strstr(e.msg, "power of two"));
        } else {
            struct meta *meta = meta_new();
            o.model->family->fill_meta(o.model, meta);
            assert_int_equal(meta->gdn_chunk_size, cases[i].expected);
            meta_free(meta);
            struct mil_model *m = build_chunk(&o, 0);
            if (cases[i].batch > 1) {
                /* Four products a chunk of tokens in every linear layer. */
                int64_t n = cases[i].batch / cases[i].expected, levels = 0;
                for (int64_t size = cases[i].expected; size > 1; size /= 2)
                    levels++;
                int64_t doubling = levels > 1 ? 2 * (levels - 1) : 0;
                assert_int_equal(count_ops(m->program->functions[1], "matmul"),
                                 3 * (5 + doubling + 4 * n) + 2);
            }
            mil_model_close(m);
        }
        opened_close(&o);
    }
}

static void test_experts(void **state)
{
    (void)state;
    static const char *const names[] = {"qwen3_5_moe-random", "qwen3_5_moe-tiny"};
    static const int layers[] = {5, 4}, chosen[] = {2, 4}, experts[] = {8, 16};
    for (int i = 0; i < 2; i++) {
        struct opened o;
        struct arch_settings s = plain_settings;
        s.exact_topk = true;
        ASSERT_OK(open_edited(&o, names[i], NULL, &s, e));
        struct mil_model *m = build_chunk(&o, 0);
        for (int k = 0; k < 2; k++) {
            const struct mil_function *f = m->program->functions[k];
            assert_int_equal(count_ops(f, "topk"), 0);
            /* Two maxima a round. */
            assert_int_equal(count_ops(f, "reduce_max"), 2 * chosen[i] * layers[i]);
            assert_int_equal(count_ops(f, "logical_or"), (chosen[i] - 1) * layers[i]);
            assert_int_equal(count_ops(f, "real_div"), layers[i]);
        }
        mil_model_close(m);
        opened_close(&o);
        /* The threshold: one maximum for each of the k largest, a mask for all but the last, no bool logic. */
        ASSERT_OK(open_edited(&o, names[i], NULL, &plain_settings, e));
        m = build_chunk(&o, 0);
        for (int k = 0; k < 2; k++) {
            const struct mil_function *f = m->program->functions[k];
            static const char *const absent[] = {"topk", "logical_or", "equal"};
            for (int t = 0; t < 3; t++)
                assert_int_equal(count_ops(f, absent[t]), 0);
            assert_int_equal(count_ops(f, "reduce_max"), chosen[i] * layers[i]);
            assert_int_equal(count_ops(f, "greater_equal"), chosen[i] * layers[i]);
            assert_int_equal(count_ops(f, "select"), chosen[i] * layers[i]);
            assert_int_equal(count_ops(f, "real_div"), layers[i]);
        }
        struct meta *meta = meta_new();
        o.model->family->fill_meta(o.model, meta);
        assert_int_equal(meta->moe_experts, experts[i]);
        assert_int_equal(meta->moe_experts_per_token, chosen[i]);
        assert_string_equal(meta->moe_evaluation, "dense");
        meta_free(meta);
        const struct mil_value *router = const_value(m->program->functions[0], "layers_0_mlp_router_weight");
        assert_true(router->weight->keep_fp16);
        const struct mil_value *gate =
            const_value(m->program->functions[0], "layers_0_mlp_experts_gate_proj_weight");
        assert_false(gate->weight->keep_fp16);
        mil_model_close(m);
        opened_close(&o);
    }
}

/* ---- the published configuration ---- */

static void test_published_shapes(void **state)
{
    (void)state;
    struct opened o;
    struct arch_settings s = {.context_length = 512, .batch_size = 64, .n_chunks = 2, .split_lm_head = 16};
    char *folder = checkpoint_make(&checkpoint_0_8b, false);
    ASSERT_OK(open_folder(&o, folder, NULL, &s, e));
    struct meta *meta = meta_new();
    o.model->family->fill_meta(o.model, meta);
    assert_true(meta->recurrent_state);
    assert_true(meta->prefill_full_batches_only);
    assert_int_equal(meta->gdn_chunk_size, 64);
    assert_int_equal(meta->moe_experts, 0);
    assert_int_equal(meta->n_layer_types, 24);
    for (int i = 0; i < 24; i++)
        assert_string_equal(meta->layer_types[i], i % 4 == 3 ? "full" : "linear");
    static const struct {
        const char *name;
        int rank, n_layers, second_layer;
        int64_t shape[4];
    } states[] = {{"model_model_kv_cache_0", 4, 6, 7, {12, 2, 512, 256}},
                  {"model_model_gdn_state_0", 3, 18, 1, {288, 128, 128}},
                  {"model_model_conv_state_0", 3, 18, 1, {18, 3, 6144}}};
    assert_int_equal(meta->n_states, 3);
    for (int i = 0; i < 3; i++) {
        const struct meta_state *m = &meta->states[i];
        assert_string_equal(m->name, states[i].name);
        assert_string_equal(m->dtype, "float16");
        assert_int_equal(m->rank, states[i].rank);
        for (int k = 0; k < m->rank; k++)
            assert_int_equal(m->shape[k], states[i].shape[k]);
        assert_int_equal(m->n_layers, states[i].n_layers);
        assert_int_equal(m->layers[1], states[i].second_layer);
    }
    meta_free(meta);
    for (int i = 0; i < 2; i++) {
        struct mil_model *m = build_chunk(&o, i);
        const struct mil_function *f = m->program->functions[1];
        assert_type(mil_type_tensor(f->inputs[4]->type), "tensor<fp16, [12, 2, 512, 256]>");
        assert_type(mil_type_tensor(f->inputs[5]->type), "tensor<fp16, [288, 128, 128]>");
        assert_type(mil_type_tensor(f->inputs[6]->type), "tensor<fp16, [18, 3, 6144]>");
        mil_model_close(m);
    }
    opened_close(&o);
    checkpoint_remove(folder);
}

/* ---- weights ---- */

static f16 *produce(const struct mil_value *v)
{
    f16 *data = xmalloc((size_t)v->n_elems * sizeof *data);
    assert_non_null(v->weight);
    ASSERT_OK(v->weight->produce(v->weight, 0, v->n_elems, data, e));
    /* Any piece is what it is in the whole. */
    int64_t begin = v->n_elems / 3, n = v->n_elems - begin - v->n_elems / 5;
    f16 *part = xmalloc((size_t)(n + 1) * sizeof *part);
    ASSERT_OK(v->weight->produce(v->weight, begin, n, part, e));
    assert_memory_equal(part, data + begin, (size_t)n * sizeof *part);
    free(part);
    return data;
}

static double *stored(const struct opened *o, const char *name)
{
    const struct st_tensor *t = safetensors_find(o->tensors, name);
    if (!t)
        fail_msg("no tensor %s", name);
    double *data = xmalloc((size_t)t->n_elems * sizeof *data);
    ASSERT_OK(st_read_f64(t, 0, t->n_elems, data, e));
    return data;
}

static void test_transformed_weights(void **state)
{
    (void)state;
    struct opened o;
    struct arch_settings exact = plain_settings;
    exact.exact_norms = true;
    /* One constant a norm, unless two are asked for. */
    ASSERT_OK(open_edited(&o, "qwen3_5-equal", NULL, &plain_settings, e));
    struct mil_model *m = build_chunk(&o, 0);
    assert_non_null(const_value(m->program->functions[0], "norm_weight"));
    assert_null(const_value(m->program->functions[0], "norm_weight_rest"));
    mil_model_close(m);
    opened_close(&o);
    ASSERT_OK(open_edited(&o, "qwen3_5-equal", NULL, &exact, e));
    m = build_chunk(&o, 0);
    const struct mil_function *f = m->program->functions[0];
    enum { HEADS = 4, DIM = 48, HIDDEN = 80, CHANNELS = 336 };

    double *from = stored(&o, "model.layers.3.self_attn.q_proj.weight");
    f16 *query = produce(const_value(f, "layers_3_self_attn_q_proj_weight"));
    f16 *gate = produce(const_value(f, "layers_3_self_attn_gate_proj_weight"));
    for (int i = 0; i < HEADS * DIM * HIDDEN; i++) {
        int head = i / (DIM * HIDDEN), rest = i % (DIM * HIDDEN);
        assert_int_equal(query[i], f64_to_f16(from[2 * head * DIM * HIDDEN + rest]));
        assert_int_equal(gate[i], f64_to_f16(from[(2 * head + 1) * DIM * HIDDEN + rest] / 2));
    }
    free(from), free(query), free(gate);

    from = stored(&o, "model.layers.3.self_attn.q_proj.bias");
    query = produce(const_value(f, "layers_3_self_attn_q_proj_bias"));
    gate = produce(const_value(f, "layers_3_self_attn_gate_proj_bias"));
    for (int i = 0; i < HEADS * DIM; i++) {
        assert_int_equal(query[i], f64_to_f16(from[i / DIM * 2 * DIM + i % DIM]));
        assert_int_equal(gate[i], f64_to_f16(from[(i / DIM * 2 + 1) * DIM + i % DIM] / 2));
    }
    free(from), free(query), free(gate);

    static const struct {
        const char *tensor, *constant;
        char how; /* '+': 1 + w, 'r': what fp16 loses of that, '/': w / 2, '=': w, 'e': -exp(w) */
    } cases[] = {
        {"layers.0.input_layernorm.weight", "layers_0_input_layernorm_weight", '+'},
        {"layers.2.post_attention_layernorm.weight", "layers_2_post_attention_layernorm_weight", '+'},
        {"layers.3.self_attn.k_norm.weight", "layers_3_self_attn_k_norm_weight", '+'},
        {"norm.weight", "norm_weight", '+'},
        {"layers.0.input_layernorm.weight", "layers_0_input_layernorm_weight_rest", 'r'},
        {"layers.3.self_attn.q_norm.weight", "layers_3_self_attn_q_norm_weight_rest", 'r'},
        {"norm.weight", "norm_weight_rest", 'r'},
        {"layers.1.linear_attn.norm.weight", "layers_1_linear_attn_norm_weight", '='},
        {"layers.1.linear_attn.dt_bias", "layers_1_linear_attn_in_proj_a_bias", '='},
        {"layers.1.linear_attn.in_proj_b.weight", "layers_1_linear_attn_in_proj_b_weight", '/'},
        {"layers.1.linear_attn.A_log", "layers_1_linear_attn_decay_rate", 'e'}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char name[128];
        snprintf(name, sizeof name, "model.%s", cases[i].tensor);
        const struct mil_value *v = const_value(f, cases[i].constant);
        double *w = stored(&o, name);
        f16 *got = produce(v);
        for (int64_t k = 0; k < v->n_elems; k++) {
            double x = cases[i].how == '+'   ? 1 + w[k]
                       : cases[i].how == 'r' ? 1 + w[k] - (double)f16_to_f32(f64_to_f16(1 + w[k]))
                       : cases[i].how == '/' ? w[k] / 2
                       : cases[i].how == 'e' ? -exp(w[k])
                                             : w[k];
            assert_int_equal(got[k], f64_to_f16(x));
        }
        free(w), free(got);
    }
    double *conv = stored(&o, "model.layers.2.linear_attn.conv1d.weight");
    for (int tap = 0; tap < 4; tap++) {
        char name[128];
        snprintf(name, sizeof name, "layers_2_linear_attn_conv1d_weight_%d", tap);
        const struct mil_value *v = const_value(f, name);
        assert_true(v->weight->keep_fp16);
        f16 *got = produce(v);
        for (int c = 0; c < CHANNELS; c++)
            assert_int_equal(got[c], f64_to_f16(conv[c * 4 + tap]));
        free(got);
    }
    free(conv);
    mil_model_close(m);
    opened_close(&o);
}

/* Experts side by side, from one tensor or from one each, in groups of what a convolution can have. */
static void check_expert_weights(struct opened *o, const char *prefix, int64_t e, int64_t size,
                                 int64_t hidden, bool packed, int64_t group)
{
    struct mil_model *m = build_chunk(o, 0);
    const struct mil_function *f = m->program->functions[0];
    for (int64_t x = 0; x < e; x++) {
        char name[160];
        int64_t at = x % group;
        char number[32] = "";
        if (group < e)
            snprintf(number, sizeof number, "_%d", (int)(x / group));
        snprintf(name, sizeof name, "layers_1_mlp_experts%s_gate_proj_weight", number);
        f16 *gate = produce(const_value(f, name));
        snprintf(name, sizeof name, "layers_1_mlp_experts%s_up_proj_weight", number);
        f16 *up = produce(const_value(f, name));
        snprintf(name, sizeof name, "layers_1_mlp_experts%s_down_proj_weight", number);
        const struct mil_value *down_value = const_value(f, name);
        f16 *down = produce(down_value);
        int64_t width = down_value->type->dims[1];
        double *stored_gate, *stored_up, *stored_down;
        if (packed) {
            snprintf(name, sizeof name, "%slayers.1.mlp.experts.gate_up_proj", prefix);
            stored_gate = stored_up = stored(o, name);
            snprintf(name, sizeof name, "%slayers.1.mlp.experts.down_proj", prefix);
            stored_down = stored(o, name);
        } else {
            snprintf(name, sizeof name, "%slayers.1.mlp.experts.%d.gate_proj.weight", prefix, (int)x);
            stored_gate = stored(o, name);
            snprintf(name, sizeof name, "%slayers.1.mlp.experts.%d.up_proj.weight", prefix, (int)x);
            stored_up = stored(o, name);
            snprintf(name, sizeof name, "%slayers.1.mlp.experts.%d.down_proj.weight", prefix, (int)x);
            stored_down = stored(o, name);
        }
        int64_t gate_at = packed ? 2 * x * size * hidden : 0, up_at = packed ? gate_at + size * hidden : 0;
        for (int64_t i = 0; i < size * hidden; i++) {
            assert_int_equal(gate[at * size * hidden + i], f64_to_f16(stored_gate[gate_at + i]));
            assert_int_equal(up[at * size * hidden + i], f64_to_f16(stored_up[up_at + i]));
            int64_t row = i / size, column = i % size;
            assert_int_equal(down[row * width + at * size + column],
                             f64_to_f16(stored_down[(packed ? x * hidden * size : 0) + i]));
        }
        free(gate), free(up), free(down), free(stored_gate), free(stored_down);
        if (!packed)
            free(stored_up);
    }
    mil_model_close(m);
}

static void test_expert_weights(void **state)
{
    (void)state;
    struct opened o;
    ASSERT_OK(open_edited(&o, "qwen3_5_moe-tiny", NULL, &plain_settings, e));
    check_expert_weights(&o, "model.language_model.", 16, 64, 128, true, 16);
    opened_close(&o);
    ASSERT_OK(open_edited(&o, "qwen3_5_moe-random", NULL, &plain_settings, e));
    check_expert_weights(&o, "model.", 8, 32, 64, false, 8);
    opened_close(&o);
    /* 5 experts of 6000: two of them fit into one convolution */
    char *folder = checkpoint_make(&checkpoint_wide_experts, true);
    ASSERT_OK(open_folder(&o, folder, NULL, &plain_settings, e));
    check_expert_weights(&o, "model.", 5, 6000, 2, true, 2);
    struct mil_model *m = build_chunk(&o, 0);
    const struct mil_function *f = m->program->functions[0];
    assert_type(const_value(f, "layers_0_mlp_experts_0_gate_proj_weight")->type,
                "tensor<fp16, [12000, 2, 1, 1]>");
    assert_type(const_value(f, "layers_0_mlp_experts_2_down_proj_weight")->type,
                "tensor<fp16, [2, 6000, 1, 1]>");
    mil_model_close(m);
    opened_close(&o);
    checkpoint_remove(folder);
}

static void test_out_of_range(void **state)
{
    (void)state;
    static const struct {
        const char *tensor, *constant, *found;
        double value;
    } cases[] = {
        {"model.layers.0.input_layernorm.weight", "layers_0_input_layernorm_weight", "65519.5", 65519.5},
        {"model.layers.0.linear_attn.A_log", "layers_0_linear_attn_decay_rate", "becomes -8863", 11.3923},
        {"model.layers.0.mlp.up_proj.weight", "layers_0_mlp_up_proj_weight", "e+30", 1e30}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct opened o;
        struct err e = {0};
        char *folder = checkpoint_make(&checkpoint_small, true);
        checkpoint_poke(folder, cases[i].tensor, cases[i].value);
        ASSERT_OK(open_folder(&o, folder, NULL, &plain_settings, e));
        struct mil_model *m = build_chunk(&o, 0);
        const struct mil_value *v = const_value(m->program->functions[0], cases[i].constant);
        f16 *data = xmalloc((size_t)v->n_elems * sizeof *data);
        assert_false(v->weight->produce(v->weight, 0, v->n_elems, data, &e));
        assert_int_equal(e.code, ERR_FORMAT);
        if (!strstr(e.msg, cases[i].tensor) || !strstr(e.msg, cases[i].found) || !strstr(e.msg, "65504"))
            fail_msg("%s", e.msg);
        free(data);
        mil_model_close(m);
        opened_close(&o);
        checkpoint_remove(folder);
    }
}

/* What the layouts leave out has names of other parts; everything else is used. */
static void test_used_tensors(void **state)
{
    (void)state;
    struct opened o;
    int n_left = 0;
    ASSERT_OK(open_edited(&o, "qwen3_5_moe-tiny", NULL, &plain_settings, e));
    for (int i = 0; i < o.tensors->n_tensors; i++) {
        const char *name = o.tensors->tensors[i].name;
        bool other = strncmp(name, "model.visual.", 13) == 0 || strncmp(name, "mtp.", 4) == 0;
        assert_int_equal(o.model->tensor_used[i], !other);
        n_left += other;
    }
    assert_true(n_left > 0);
    opened_close(&o);
    ASSERT_OK(open_edited(&o, "qwen3_5-equal", NULL, &plain_settings, e));
    for (int i = 0; i < o.tensors->n_tensors; i++)
        assert_true(o.model->tensor_used[i]);
    opened_close(&o);
}

/* ---- rules of the Neural Engine ---- */

static bool is_scalar_const(const struct mil_binding *b)
{
    const struct mil_value *v = mil_binding_value(b);
    return v && v->n_elems == 1;
}

static int count_uses(const struct mil_function *f, const struct mil_var *v)
{
    int n = 0;
    for (int i = 0; i < f->block->n_ops; i++) {
        const struct mil_op *op = f->block->ops[i];
        for (int a = 0; a < op->n_args; a++)
            for (int k = 0; k < op->args[a].n; k++)
                n += op->args[a].bindings[k].var == v;
    }
    return n;
}

static void lint_op(const struct mil_function *f, const struct mil_op *op)
{
    static const char *const banned[] = {"sigmoid", "silu", "log", "topk", "cumsum", "while_loop", "cond"};
    for (size_t i = 0; i < sizeof banned / sizeof banned[0]; i++)
        assert_string_not_equal(op->type, banned[i]);
    for (int i = 0; i < op->n_outputs; i++)
        assert_true(mil_type_tensor(op->outputs[i]->type)->rank <= 5);
    /* Other tools fold a constant scale behind a convolution into its weight. */
    for (int a = 0; a < op->n_args; a++) {
        const struct mil_var *x = op->args[a].bindings[0].var;
        if (mil_op_is(op, "mul") && x && x->op && mil_op_is(x->op, "conv") &&
            is_scalar_const(&op->args[1 - a].bindings[0]))
            assert_true(count_uses(f, x) > 1);
        if (x && !x->op && strcmp(x->name, "causal_mask") == 0)
            assert_string_equal(op->type, "add");
    }
    if (mil_op_is(op, "gather"))
        assert_int_equal(mil_arg_var(op, "indices")->type->dtype, MIL_INT32);
    /* Some readers take a select's type from its values alone. */
    if (mil_op_is(op, "select")) {
        const struct mil_var *a = mil_arg_var(op, "a"), *b = mil_arg_var(op, "b");
        assert_true(mil_type_equal(a->type, op->outputs[0]->type) ||
                    mil_type_equal(b->type, op->outputs[0]->type));
    }
}

static void lint_function(const struct mil_function *f)
{
    for (int i = 0; i < f->block->n_ops; i++)
        lint_op(f, f->block->ops[i]);
    for (int i = 0; i < f->n_inputs; i++) {
        const struct mil_var *v = f->inputs[i];
        if (v->type->kind != MIL_TYPE_STATE)
            continue;
        const struct mil_type *t = mil_type_tensor(v->type);
        assert_int_not_equal(t->dims[t->rank - 1], 3);
        int n_read = 0;
        for (int k = 0; k < f->block->n_ops; k++)
            n_read +=
                mil_op_is(f->block->ops[k], "read_state") && mil_arg_var(f->block->ops[k], "input") == v;
        assert_true(n_read > 0);
    }
    assert_string_equal(f->block->outputs[0]->name, "output_hidden_states");
    assert_false(mil_op_is(f->block->outputs[0]->op, "read_state"));
}

static void test_lint(void **state)
{
    (void)state;
    static const char *const names[] = {"qwen3_5-equal", "qwen3_5_moe-random", "qwen3_5_moe-tiny"};
    for (int i = 0; i < 3; i++) {
        for (int n_chunks = 1; n_chunks <= 4; n_chunks++) {
            struct opened o;
            struct arch_settings s = plain_settings;
            s.n_chunks = n_chunks;
            s.batch_size = 16;
            s.exact_norms = s.exact_topk = n_chunks % 2 == 0;
            ASSERT_OK(open_edited(&o, names[i], NULL, &s, e));
            for (int k = 0; k < n_chunks; k++) {
                struct mil_model *m = build_chunk(&o, k);
                lint_function(m->program->functions[0]);
                lint_function(m->program->functions[1]);
                /* Every weight of one function is the very same value in the other one. */
                const struct mil_function *infer = m->program->functions[0];
                for (int j = 0; j < infer->block->n_ops; j++) {
                    const struct mil_op *op = infer->block->ops[j];
                    const struct mil_value *v = mil_op_is(op, "const") ? mil_attribute(op, "val") : NULL;
                    if (v && v->kind == MIL_VALUE_WEIGHT)
                        assert_ptr_equal(v, const_value(m->program->functions[1], op->outputs[0]->name));
                }
                mil_model_close(m);
            }
            opened_close(&o);
        }
    }
}

/* ---- refusals ---- */

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *name, *edit;
        enum err_code code;
        const char *part; /* of the message */
    } cases[] = {
        {"qwen3_5-equal", "{\"model_type\": \"qwen3_next\"}", ERR_UNSUPPORTED, "qwen3_next"},
        {"qwen3_5-equal",
         "{\"layer_types\": [\"linear_attention\", \"mamba\", \"linear_attention\", \"full_attention\"]}",
         ERR_UNSUPPORTED, "mamba for layer 1"},
        {"qwen3_5-equal", "{\"layer_types\": [\"linear_attention\"]}", ERR_FORMAT,
         "expected 4 entries, found 1"},
        {"qwen3_5-equal", "{\"layer_types\": \"linear\"}", ERR_FORMAT, "layer_types"},
        {"qwen3_5-equal", "{\"layer_types\": null, \"full_attention_interval\": 5}", ERR_UNSUPPORTED,
         "only linear_attention"},
        {"qwen3_5-equal", "{\"layer_types\": null, \"full_attention_interval\": 1}", ERR_UNSUPPORTED,
         "only full_attention"},
        {"qwen3_5-equal", "{\"layer_types\": null, \"full_attention_interval\": 0}", ERR_FORMAT,
         "full_attention_interval"},
        {"qwen3_5-equal", "{\"layer_types\": null, \"full_attention_interval\": 2}", ERR_FORMAT,
         "model.layers.1.self_attn.q_proj.weight is missing"},
        {"qwen3_5-equal", "{\"linear_num_value_heads\": 4}", ERR_FORMAT,
         "linear_num_value_heads 4 is not a multiple of linear_num_key_heads 3"},
        {"qwen3_5-equal", "{\"linear_num_key_heads\": 1}", ERR_FORMAT, "in_proj_qkv"},
        {"qwen3_5-equal", "{\"num_key_value_heads\": 3}", ERR_FORMAT,
         "num_attention_heads 4 is not a multiple"},
        {"qwen3_5-equal", "{\"num_attention_heads\": 2}", ERR_FORMAT,
         "q_proj.weight: expected shape [192, 80], found [384, 80]"},
        {"qwen3_5-equal", "{\"linear_conv_kernel_dim\": 1}", ERR_UNSUPPORTED, "linear_conv_kernel_dim"},
        {"qwen3_5-equal", "{\"linear_conv_kernel_dim\": 5}", ERR_FORMAT, "conv1d.weight"},
        {"qwen3_5-equal", "{\"attn_output_gate\": false}", ERR_UNSUPPORTED, "attn_output_gate"},
        {"qwen3_5-equal", "{\"hidden_act\": \"gelu\"}", ERR_UNSUPPORTED, "gelu"},
        {"qwen3_5-equal", "{\"rope_parameters\": {\"rope_type\": \"spiral\"}}", ERR_UNSUPPORTED, "spiral"},
        {"qwen3_5-equal", "{\"rope_parameters\": {\"partial_rotary_factor\": 0.02}}", ERR_FORMAT,
         "partial_rotary_factor"},
        {"qwen3_5-equal", "{\"rope_parameters\": {\"partial_rotary_factor\": -1}}", ERR_FORMAT,
         "partial_rotary_factor"},
        {"qwen3_5-equal", "{\"quantization_config\": {\"quant_method\": \"awq\"}}", ERR_UNSUPPORTED, "awq"},
        {"qwen3_5-equal", "{\"tie_word_embeddings\": false}", ERR_FORMAT, "lm_head.weight is missing"},
        {"qwen3_5-equal", "{\"attention_bias\": 3}", ERR_FORMAT, "attention_bias"},
        {"qwen3_5-equal", "{\"rms_norm_eps\": 2}", ERR_FORMAT, "rms_norm_eps"},
        {"qwen3_5_moe-tiny", "{\"num_experts\": 4096}", ERR_FORMAT, "num_experts"},
        {"qwen3_5_moe-tiny", "{\"num_experts\": 8}", ERR_FORMAT, "mlp.gate.weight"},
        {"qwen3_5_moe-tiny", "{\"num_experts_per_tok\": 17}", ERR_FORMAT, "more than num_experts 16"},
        {"qwen3_5_moe-tiny", "{\"moe_intermediate_size\": 63}", ERR_FORMAT, "gate_up_proj"},
        {"qwen3_5_moe-random", "{\"moe_intermediate_size\": 33}", ERR_FORMAT, "experts.0.gate_proj.weight"},
        {"qwen3_5_moe-tiny", "{\"model_type\": \"qwen3_5\"}", ERR_FORMAT, "mlp.gate_proj.weight is missing"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct opened o;
        struct err e = {0};
        if (open_edited(&o, cases[i].name, cases[i].edit, &plain_settings, &e))
            fail_msg("%s: accepted", cases[i].edit);
        if (e.code != cases[i].code || !strstr(e.msg, cases[i].part))
            fail_msg("%s: code %d, %s", cases[i].edit, (int)e.code, e.msg);
        opened_close(&o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_chunk_sizes),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_published_shapes),
        cmocka_unit_test(test_transformed_weights),
        cmocka_unit_test(test_expert_weights),
        cmocka_unit_test(test_out_of_range),
        cmocka_unit_test(test_used_tensors),
        cmocka_unit_test(test_lint),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
