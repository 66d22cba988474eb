/* A made-up Gemma 4 checkpoint with the shapes of the published E2B model: config.json as published and one sparse
 * BF16 file, whose numbers are all 0. */
#ifndef MILKIT_TESTS_GEMMA4_CHECKPOINT_H
#define MILKIT_TESTS_GEMMA4_CHECKPOINT_H

#include <fcntl.h>
#include "support.h"
#include "base/file.h"
#include "format/json.h"
#include "format/safetensors.h"

#define E2B_LAYERS 35
#define E2B_HIDDEN 1536
#define E2B_MLP 6144
#define E2B_FIRST_SHARED 15

static const char e2b_config[] =
    "{\"architectures\": [\"Gemma4ForConditionalGeneration\"], \"model_type\": \"gemma4\", "
    "\"tie_word_embeddings\": true, \"vision_config\": {\"model_type\": \"gemma4_vision\"}, "
    "\"audio_config\": {\"model_type\": \"gemma4_audio\"}, \"eos_token_id\": [1, 106], \"text_config\": {"
    "\"model_type\": \"gemma4_text\", \"hidden_size\": 1536, \"intermediate_size\": 6144, "
    "\"num_hidden_layers\": 35, \"num_attention_heads\": 8, \"num_key_value_heads\": 1, \"head_dim\": 256, "
    "\"global_head_dim\": 512, \"hidden_size_per_layer_input\": 256, \"vocab_size\": 262144, "
    "\"vocab_size_per_layer_input\": 262144, \"sliding_window\": 512, \"num_kv_shared_layers\": 20, "
    "\"use_double_wide_mlp\": true, \"final_logit_softcapping\": 30.0, \"rms_norm_eps\": 1e-06, "
    "\"hidden_activation\": \"gelu_pytorch_tanh\", \"attention_k_eq_v\": false, \"enable_moe_block\": false, "
    "\"use_bidirectional_attention\": null, \"eos_token_id\": 1, \"rope_parameters\": {"
    "\"full_attention\": {\"partial_rotary_factor\": 0.25, \"rope_theta\": 1000000.0, \"rope_type\": "
    "\"proportional\"}, \"sliding_attention\": {\"rope_theta\": 10000.0, \"rope_type\": \"default\"}}, "
    "\"layer_types\": [";

struct e2b_header {
    struct buf text;
    uint64_t bytes;
};

/* columns 0: a vector */
static void e2b_tensor(struct e2b_header *h, const char *name, int64_t rows, int64_t columns)
{
    char shape[128];
    const int64_t dims[2] = {rows, columns};
    uint64_t n = 2 * (uint64_t)rows * (columns ? (uint64_t)columns : 1);
    st_shape_text(shape, dims, columns ? 2 : 1);
    buf_printf(&h->text,
               "%s\"model.%s\": {\"dtype\": \"BF16\", \"shape\": %s, \"data_offsets\": [%llu, %llu]}",
               h->text.n > 1 ? ", " : "", name, shape, (unsigned long long)h->bytes,
               (unsigned long long)(h->bytes + n));
    h->bytes += n;
}

static void e2b_layer(struct e2b_header *h, int i)
{
    int64_t d = i % 5 == 4 ? 512 : 256, x = E2B_HIDDEN, mlp = i < E2B_FIRST_SHARED ? E2B_MLP : 2 * E2B_MLP;
    const struct {
        const char *name;
        int64_t rows, columns;
    } tensors[] = {
        {"input_layernorm.weight", x, 0},           {"post_attention_layernorm.weight", x, 0},
        {"pre_feedforward_layernorm.weight", x, 0}, {"post_feedforward_layernorm.weight", x, 0},
        {"post_per_layer_input_norm.weight", x, 0}, {"layer_scalar", 1, 0},
        {"self_attn.q_proj.weight", 8 * d, x},      {"self_attn.k_proj.weight", d, x},
        {"self_attn.v_proj.weight", d, x},          {"self_attn.o_proj.weight", x, 8 * d},
        {"self_attn.q_norm.weight", d, 0},          {"self_attn.k_norm.weight", d, 0},
        {"mlp.gate_proj.weight", mlp, x},           {"mlp.up_proj.weight", mlp, x},
        {"mlp.down_proj.weight", x, mlp},           {"per_layer_input_gate.weight", 256, x},
        {"per_layer_projection.weight", x, 256},
    };
    for (size_t k = 0; k < sizeof tensors / sizeof tensors[0]; k++) {
        char name[128];
        snprintf(name, sizeof name, "language_model.layers.%d.%s", i, tensors[k].name);
        e2b_tensor(h, name, tensors[k].rows, tensors[k].columns);
    }
}

/* A folder in the working folder; heap, for e2b_remove. */
static char *e2b_make(void)
{
    char *folder = xstrdup("scratch-gemma4-XXXXXX");
    struct e2b_header h = {.bytes = 0};
    struct buf config;
    assert_non_null(mkdtemp(folder));
    buf_init(&config, 1 << 16);
    buf_init(&h.text, 1 << 20);
    buf_puts(&config, e2b_config);
    buf_puts(&h.text, "{");
    e2b_tensor(&h, "language_model.embed_tokens.weight", 262144, E2B_HIDDEN);
    e2b_tensor(&h, "language_model.embed_tokens_per_layer.weight", 262144, E2B_LAYERS * 256);
    e2b_tensor(&h, "language_model.per_layer_model_projection.weight", E2B_LAYERS * 256, E2B_HIDDEN);
    e2b_tensor(&h, "language_model.per_layer_projection_norm.weight", 256, 0);
    e2b_tensor(&h, "language_model.norm.weight", E2B_HIDDEN, 0);
    e2b_tensor(&h, "vision_tower.patch_embedder.input_proj.weight", 768, 768);
    e2b_tensor(&h, "audio_tower.output_proj.weight", 1536, 1024);
    for (int i = 0; i < E2B_LAYERS; i++) {
        buf_printf(&config, "%s\"%s_attention\"", i ? ", " : "", i % 5 == 4 ? "full" : "sliding");
        e2b_layer(&h, i);
    }
    buf_puts(&config, "]}}");
    buf_puts(&h.text, "}");
    char *path = path_join(folder, "config.json");
    ASSERT_OK(file_write(path, config.p, config.n, e));
    free(path);
    path = path_join(folder, "model.safetensors");
    int f = open(path, O_CREAT | O_RDWR | O_TRUNC, 0600);
    uint64_t n = h.text.n;
    assert_true(f >= 0);
    assert_int_equal(pwrite(f, &n, 8, 0), 8);
    assert_int_equal(pwrite(f, h.text.p, h.text.n, 8), (ssize_t)h.text.n);
    assert_int_equal(ftruncate(f, (off_t)(8 + n + h.bytes)), 0);
    assert_int_equal(close(f), 0);
    buf_fini(&config);
    buf_fini(&h.text);
    free(path);
    return folder;
}

static void e2b_remove(char *folder)
{
    ASSERT_OK(path_remove_tree(folder, e));
    free(folder);
}

#endif
