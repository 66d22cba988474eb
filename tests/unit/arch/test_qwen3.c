/* The programs of Qwen3: structure, shapes, shared weights, description; configurations that are refused. */
#include "opened.h"

static const struct arch_settings plain_settings = {
    .context_length = 128, .batch_size = 16, .n_chunks = 2, .split_lm_head = 16};

static void assert_feature(const struct mil_feature *f, const char *name, enum mil_dtype d, int rank,
                           const int64_t *shape)
{
    assert_string_equal(f->name, name);
    assert_int_equal(f->dtype, d);
    assert_int_equal(f->rank, rank);
    for (int i = 0; i < rank; i++)
        assert_int_equal(f->shape[i], shape[i]);
}

static void test_embeddings(void **state)
{
    (void)state;
    struct opened o;
    ASSERT_OK(open_edited(&o, "qwen3-tiny", NULL, &plain_settings, e));
    struct mil_model *m = mil_model_new(9);
    ASSERT_OK(o.model->family->build_embeddings(o.model, m, e));
    assert_int_equal(m->program->n_functions, 1);
    const struct mil_function *f = m->program->functions[0];
    assert_string_equal(f->name, "main");
    assert_string_equal(f->opset, "CoreML8");
    assert_int_equal(count_ops(f, NULL), 1);
    assert_type(f->inputs[0]->type, "tensor<int32, [1, ?]>");
    assert_string_equal(f->block->outputs[0]->name, "hidden_states");
    assert_type(f->block->outputs[0]->type, "tensor<fp16, [1, ?, 192]>");
    const struct mil_description *d = &m->description;
    assert_false(d->has_functions);
    const struct mil_feature *ids = &d->functions[0].inputs[0];
    assert_feature(ids, "input_ids", MIL_INT32, 2, (const int64_t[]){1, 1});
    assert_int_equal(ids->n_enumerated, 2);
    assert_int_equal(ids->enumerated[1][1], 16);
    ASSERT_OK(mil_verify(m, e));
    mil_model_close(m);
    opened_close(&o);
}

static void check_chunk(const struct mil_model *m, int64_t layers, bool is_last)
{
    assert_int_equal(m->program->n_functions, 2);
    const struct mil_function *infer = m->program->functions[0], *prefill = m->program->functions[1];
    assert_string_equal(infer->name, "infer");
    assert_string_equal(prefill->name, "prefill");
    assert_string_equal(m->description.default_function_name, "infer");
    /* 94 ops a layer when a state update counts as one; as written one of the two updates reads back: 95. Two
     * gathers and two expand_dims for the RoPE rows, five ops of the final norm, one slice for the last row.
     */
    int ends = 4 + (is_last ? 5 : 0);
    assert_int_equal(count_ops(infer, NULL), 95 * layers + ends);
    assert_int_equal(count_ops(prefill, NULL), 95 * layers + ends + (is_last ? 1 : 0));
    assert_int_equal(count_ops(prefill, "conv"), 7 * layers);
    assert_int_equal(count_ops(prefill, "layer_norm"), 4 * layers + (is_last ? 1 : 0));
    assert_int_equal(count_ops(prefill, "write_state"), 2 * layers);
    assert_int_equal(count_ops(prefill, "read_state"), 3 * layers);
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
    assert_int_equal(shared, 2 + 11 * layers + (is_last ? 1 : 0));
}

static void test_chunks(void **state)
{
    (void)state;
    struct opened o;
    ASSERT_OK(open_edited(&o, "qwen3-tiny", NULL, &plain_settings, e));
    for (int i = 0; i < 2; i++) {
        struct mil_model *m = mil_model_new(9);
        ASSERT_OK(o.model->family->build_chunk(o.model, i, m, e));
        check_chunk(m, i == 0 ? 3 : 2, i == 1);
        const struct mil_function *prefill = m->program->functions[1];
        static const char *const types[] = {"tensor<fp16, [1, 16, 192]>", "tensor<int32, [16]>",
                                            "tensor<fp16, [1, 1, 16, 128]>", "tensor<int32, [1]>",
                                            "tensor<fp16, [10, 2, 128, 64]>"};
        for (int k = 0; k < 5; k++)
            assert_type(mil_type_tensor(prefill->inputs[k]->type), types[k]);
        assert_type(prefill->block->outputs[0]->type,
                    i == 0 ? "tensor<fp16, [1, 16, 192]>" : "tensor<fp16, [1, 1, 192]>");
        assert_string_equal(prefill->block->outputs[0]->name, "output_hidden_states");
        const struct mil_function_description *d = mil_function_description_find(m, "prefill");
        assert_non_null(d);
        assert_feature(&d->inputs[0], "hidden_states", MIL_FP16, 3, (const int64_t[]){1, 16, 192});
        assert_feature(&d->inputs[1], "position_ids", MIL_INT32, 1, (const int64_t[]){16});
        assert_feature(&d->inputs[2], "causal_mask", MIL_FP16, 4, (const int64_t[]){1, 1, 16, 128});
        assert_feature(&d->inputs[3], "current_pos", MIL_INT32, 1, (const int64_t[]){1});
        assert_feature(&d->states[0], "model_model_kv_cache_0", MIL_FP16, 4,
                       (const int64_t[]){10, 2, 128, 64});
        assert_feature(&d->outputs[0], "output_hidden_states", MIL_FP16, 3,
                       (const int64_t[]){1, i == 0 ? 16 : 1, 192});
        bool found = false;
        for (int k = 0; k < m->description.n_user_defined; k++) {
            const struct mil_text_pair *p = &m->description.user_defined[k];
            assert_true(k == 0 || strcmp(p[-1].key, p->key) < 0);
            if (strcmp(p->key, "com.anemll.layers") == 0) {
                assert_string_equal(p->value, i == 0 ? "0-2" : "3-4");
                found = true;
            }
        }
        assert_true(found);
        ASSERT_OK(mil_verify(m, e));
        mil_model_close(m);
    }
    opened_close(&o);
}

/* The producers give the checkpoint's numbers: a projection, a head part across a row border. */
static void test_weights(void **state)
{
    (void)state;
    struct opened o;
    struct arch_settings s = plain_settings;
    s.split_lm_head = 10;
    ASSERT_OK(open_edited(&o, "qwen3-bias", NULL, &s, e));
    const struct st_tensor *head = safetensors_find(o.tensors, "lm_head.weight");
    if (!head)
        head = safetensors_find(o.tensors, "model.embed_tokens.weight");
    int64_t hidden = o.model->hidden_size, row = 0;
    struct mil_model *m = mil_model_new(9);
    ASSERT_OK(o.model->family->build_head(o.model, m, e));
    const struct mil_function *f = m->program->functions[0];
    for (int i = 0; i < 10; i++) {
        char name[64];
        snprintf(name, sizeof name, "lm_head_%d_weight", i + 1);
        const struct mil_value *v = const_value(f, name);
        assert_non_null(v);
        int64_t size = i < 3 ? 42 : 41; /* 413 = 3 * 42 + 7 * 41 */
        assert_int_equal(v->type->dims[0], size);
        assert_int_equal(f->block->outputs[i]->type->dims[2], size);
        f16 *got = xmalloc((size_t)v->n_elems * 2), *expected = xmalloc((size_t)v->n_elems * 2);
        ASSERT_OK(v->weight->produce(v->weight, 0, v->n_elems, got, e));
        ASSERT_OK(st_read_f16(head, row * hidden, v->n_elems, expected, e));
        assert_memory_equal(got, expected, (size_t)v->n_elems * 2);
        free(got);
        free(expected);
        row += size;
    }
    assert_int_equal(row, 413);
    ASSERT_OK(mil_verify(m, e));
    mil_model_close(m);
    /* Biases of all four projections. */
    m = mil_model_new(9);
    ASSERT_OK(o.model->family->build_chunk(o.model, 0, m, e));
    static const char *const names[] = {"q", "k", "v", "o"};
    for (int i = 0; i < 4; i++) {
        char name[64];
        snprintf(name, sizeof name, "layers_0_self_attn_%s_proj_bias", names[i]);
        assert_non_null(const_value(m->program->functions[0], name));
    }
    /* No grouping: nothing is repeated. */
    assert_int_equal(count_ops(m->program->functions[0], "tile"), 0);
    ASSERT_OK(mil_verify(m, e));
    mil_model_close(m);
    opened_close(&o);
}

static void test_grouping(void **state)
{
    (void)state;
    struct opened o;
    struct arch_settings s = plain_settings;
    s.n_chunks = 3;
    s.batch_size = 1;
    ASSERT_OK(open_edited(&o, "qwen3-gqa8", NULL, &s, e));
    struct mil_model *m = mil_model_new(9);
    ASSERT_OK(o.model->family->build_chunk(o.model, 2, m, e));
    assert_int_equal(count_ops(m->program->functions[0], "tile"), 2);
    assert_type(mil_type_tensor(m->program->functions[0]->inputs[4]->type), "tensor<fp16, [6, 1, 128, 128]>");
    ASSERT_OK(mil_verify(m, e));
    mil_model_close(m);
    m = mil_model_new(9);
    ASSERT_OK(o.model->family->build_embeddings(o.model, m, e));
    ASSERT_OK(mil_verify(m, e));
    mil_model_close(m);
    opened_close(&o);
}

static void test_chunk_layers(void **state)
{
    (void)state;
    struct arch_model m = {.n_layers = 28, .settings = {.n_chunks = 5}};
    static const int64_t borders[] = {0, 6, 12, 18, 23, 28};
    for (int i = 0; i < 5; i++) {
        int64_t begin, end;
        arch_chunk_layers(&m, i, &begin, &end);
        assert_int_equal(begin, borders[i]);
        assert_int_equal(end, borders[i + 1]);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct refusal cases[] = {
        {"{\"model_type\": \"llamas\"}", ERR_UNSUPPORTED, "llamas"},
        {"{\"model_type\": 3}", ERR_FORMAT, "model_type"},
        {"{\"use_sliding_window\": 3}", ERR_FORMAT, "use_sliding_window"},
        {"{\"layer_types\": [\"full_attention\", \"sliding_attention\", \"full_attention\", "
         "\"full_attention\", "
         "\"full_attention\"]}",
         ERR_UNSUPPORTED, "sliding_attention for layer 1"},
        {"{\"layer_types\": [\"full_attention\"]}", ERR_FORMAT, "layer_types"},
        {"{\"hidden_act\": \"gelu\"}", ERR_UNSUPPORTED, "gelu"},
        {"{\"rope_scaling\": {\"type\": \"spiral\", \"factor\": 2}}", ERR_UNSUPPORTED, "spiral"},
        {"{\"max_position_embeddings\": 100, \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}}",
         ERR_UNSUPPORTED, "expected a context of at most 100, found 128"},
        {"{\"rope_scaling\": {\"rope_type\": \"yarn\"}}", ERR_FORMAT, "factor"},
        {"{\"rope_scaling\": 3}", ERR_FORMAT, "rope_scaling"},
        {"{\"partial_rotary_factor\": 0.5}", ERR_UNSUPPORTED, "partial_rotary_factor"},
        {"{\"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": [64, 64]}}",
         ERR_UNSUPPORTED, "fp8"},
        {"{\"hidden_size\": 191}", ERR_FORMAT, "expected shape [2057, 191], found [2057, 192]"},
        {"{\"num_hidden_layers\": 6}", ERR_FORMAT, "model.layers.5.self_attn.q_proj.weight is missing"},
        {"{\"num_hidden_layers\": 0}", ERR_FORMAT, "num_hidden_layers"},
        {"{\"num_hidden_layers\": 1e300}", ERR_FORMAT, "num_hidden_layers"},
        {"{\"num_key_value_heads\": 4}", ERR_FORMAT, "multiple"},
        {"{\"num_key_value_heads\": null}", ERR_FORMAT, "k_proj"},
        {"{\"head_dim\": 63}", ERR_FORMAT, "even"},
        {"{\"head_dim\": \"64\"}", ERR_FORMAT, "head_dim"},
        {"{\"attention_bias\": true}", ERR_FORMAT, "q_proj.bias is missing"},
        {"{\"rms_norm_eps\": -1}", ERR_FORMAT, "rms_norm_eps"},
        {"{\"vocab_size\": 2058}", ERR_FORMAT, "embed_tokens"},
    };
    assert_refusals("qwen3-tiny", cases, sizeof cases / sizeof cases[0], &plain_settings);
}

static void test_settings(void **state)
{
    (void)state;
    static const struct arch_settings bad[] = {
        {.context_length = 0, .batch_size = 1, .n_chunks = 1, .split_lm_head = 16},
        {.context_length = 1 << 30, .batch_size = 1, .n_chunks = 1, .split_lm_head = 16},
        {.context_length = 64, .batch_size = 65, .n_chunks = 1, .split_lm_head = 16},
        {.context_length = 64, .batch_size = 8, .n_chunks = 6, .split_lm_head = 16},
        {.context_length = 64, .batch_size = 8, .n_chunks = 1, .split_lm_head = 2058},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct opened o;
        struct err e = {0};
        assert_false(open_edited(&o, "qwen3-tiny", NULL, &bad[i], &e));
        assert_int_equal(e.code, ERR_USAGE);
        opened_close(&o);
    }
}

/* Tied with a stored head: the head is used. A checkpoint with more layers than the model: they are left
 * over. */
static void test_used_tensors(void **state)
{
    (void)state;
    struct opened o;
    ASSERT_OK(open_edited(&o, "qwen3-tiny", NULL, &plain_settings, e));
    for (int i = 0; i < o.tensors->n_tensors; i++)
        assert_true(o.model->tensor_used[i]);
    assert_non_null(safetensors_find(o.tensors, "lm_head.weight"));
    opened_close(&o);

    ASSERT_OK(open_edited(&o, "qwen3-tiny", "{\"num_hidden_layers\": 4, \"layer_types\": null}",
                          &plain_settings, e));
    int unused = 0;
    for (int i = 0; i < o.tensors->n_tensors; i++)
        unused += !o.model->tensor_used[i];
    assert_int_equal(unused, 11);
    opened_close(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embeddings),   cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_weights),      cmocka_unit_test(test_grouping),
        cmocka_unit_test(test_refusals),     cmocka_unit_test(test_settings),
        cmocka_unit_test(test_chunk_layers), cmocka_unit_test(test_used_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
