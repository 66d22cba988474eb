// links: arch reference
/* Any bytes as config.json, beside no tensors and beside the few tensors of a small model of each family: it is refused
 * with a message, by the converter's families and by the reference's, or programs of all parts are built.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "arch/arch.h"
#include "reference/reference.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct shape {
    const char *name;
    int64_t n[3]; /* 0: no such axis */
};

/* Sizes: hidden 8, vocabulary 16, MLP 12, 2 heads and 1 of keys, of 4 numbers (qwen3_5 and full layers of gemma4: 8). */
static const struct shape qwen3[] = {
    {"model.embed_tokens.weight", {16, 8}},
    {"model.norm.weight", {8}},
    {"model.layers.0.input_layernorm.weight", {8}},
    {"model.layers.0.post_attention_layernorm.weight", {8}},
    {"model.layers.0.self_attn.q_proj.weight", {8, 8}},
    {"model.layers.0.self_attn.k_proj.weight", {4, 8}},
    {"model.layers.0.self_attn.v_proj.weight", {4, 8}},
    {"model.layers.0.self_attn.o_proj.weight", {8, 8}},
    {"model.layers.0.self_attn.q_proj.bias", {8}},
    {"model.layers.0.self_attn.k_proj.bias", {4}},
    {"model.layers.0.self_attn.v_proj.bias", {4}},
    {"model.layers.0.self_attn.o_proj.bias", {8}},
    {"model.layers.0.self_attn.q_norm.weight", {4}},
    {"model.layers.0.self_attn.k_norm.weight", {4}},
    {"model.layers.0.mlp.gate_proj.weight", {12, 8}},
    {"model.layers.0.mlp.up_proj.weight", {12, 8}},
    {"model.layers.0.mlp.down_proj.weight", {8, 12}},
};
static const struct shape qwen3_5[] = {
    {"model.language_model.embed_tokens.weight", {16, 8}},
    {"model.language_model.norm.weight", {8}},
    {"lm_head.weight", {16, 8}},
    {"model.language_model.layers.0.input_layernorm.weight", {8}},
    {"model.language_model.layers.0.post_attention_layernorm.weight", {8}},
    {"model.language_model.layers.0.linear_attn.in_proj_qkv.weight", {16, 8}},
    {"model.language_model.layers.0.linear_attn.in_proj_z.weight", {8, 8}},
    {"model.language_model.layers.0.linear_attn.in_proj_a.weight", {2, 8}},
    {"model.language_model.layers.0.linear_attn.in_proj_b.weight", {2, 8}},
    {"model.language_model.layers.0.linear_attn.conv1d.weight", {16, 1, 4}},
    {"model.language_model.layers.0.linear_attn.A_log", {2}},
    {"model.language_model.layers.0.linear_attn.dt_bias", {2}},
    {"model.language_model.layers.0.linear_attn.norm.weight", {4}},
    {"model.language_model.layers.0.linear_attn.out_proj.weight", {8, 8}},
    {"model.language_model.layers.0.mlp.gate_proj.weight", {12, 8}},
    {"model.language_model.layers.0.mlp.up_proj.weight", {12, 8}},
    {"model.language_model.layers.0.mlp.down_proj.weight", {8, 12}},
    {"model.language_model.layers.0.mlp.gate.weight", {4, 8}},
    {"model.language_model.layers.0.mlp.experts.gate_up_proj", {4, 12, 8}},
    {"model.language_model.layers.0.mlp.experts.down_proj", {4, 8, 6}},
    {"model.language_model.layers.0.mlp.shared_expert.gate_proj.weight", {6, 8}},
    {"model.language_model.layers.0.mlp.shared_expert.up_proj.weight", {6, 8}},
    {"model.language_model.layers.0.mlp.shared_expert.down_proj.weight", {8, 6}},
    {"model.language_model.layers.0.mlp.shared_expert_gate.weight", {1, 8}},
    {"model.language_model.layers.1.input_layernorm.weight", {8}},
    {"model.language_model.layers.1.post_attention_layernorm.weight", {8}},
    {"model.language_model.layers.1.self_attn.q_proj.weight", {32, 8}},
    {"model.language_model.layers.1.self_attn.k_proj.weight", {8, 8}},
    {"model.language_model.layers.1.self_attn.v_proj.weight", {8, 8}},
    {"model.language_model.layers.1.self_attn.o_proj.weight", {8, 16}},
    {"model.language_model.layers.1.self_attn.q_norm.weight", {8}},
    {"model.language_model.layers.1.self_attn.k_norm.weight", {8}},
    {"model.language_model.layers.1.mlp.gate_proj.weight", {12, 8}},
    {"model.language_model.layers.1.mlp.up_proj.weight", {12, 8}},
    {"model.language_model.layers.1.mlp.down_proj.weight", {8, 12}},
    {"model.language_model.layers.1.mlp.gate.weight", {4, 8}},
    {"model.language_model.layers.1.mlp.experts.gate_up_proj", {4, 12, 8}},
    {"model.language_model.layers.1.mlp.experts.down_proj", {4, 8, 6}},
    {"model.language_model.layers.1.mlp.shared_expert.gate_proj.weight", {6, 8}},
    {"model.language_model.layers.1.mlp.shared_expert.up_proj.weight", {6, 8}},
    {"model.language_model.layers.1.mlp.shared_expert.down_proj.weight", {8, 6}},
    {"model.language_model.layers.1.mlp.shared_expert_gate.weight", {1, 8}},
};
#define GEMMA4_LAYER(i, d)                                                                                   \
    {"layers." i ".input_layernorm.weight", {8}}, {"layers." i ".post_attention_layernorm.weight", {8}},     \
        {"layers." i ".pre_feedforward_layernorm.weight", {8}},                                              \
        {"layers." i ".post_feedforward_layernorm.weight", {8}},                                             \
        {"layers." i ".post_per_layer_input_norm.weight", {8}},                                              \
        {"layers." i ".self_attn.q_proj.weight", {2 * (d), 8}},                                              \
        {"layers." i ".self_attn.k_proj.weight", {(d), 8}},                                                  \
        {"layers." i ".self_attn.v_proj.weight", {(d), 8}},                                                  \
        {"layers." i ".self_attn.o_proj.weight", {8, 2 * (d)}},                                              \
        {"layers." i ".self_attn.q_norm.weight", {(d)}}, {"layers." i ".self_attn.k_norm.weight", {(d)}},    \
        {"layers." i ".mlp.gate_proj.weight", {12, 8}}, {"layers." i ".mlp.up_proj.weight", {12, 8}},        \
        {"layers." i ".mlp.down_proj.weight", {8, 12}},                                                      \
        {"layers." i ".per_layer_input_gate.weight", {4, 8}},                                                \
        {"layers." i ".per_layer_projection.weight", {8, 4}},                                                \
    {                                                                                                        \
        "layers." i ".layer_scalar",                                                                         \
        {                                                                                                    \
            1                                                                                                \
        }                                                                                                    \
    }
static const struct shape gemma4[] = {
    {"embed_tokens.weight", {16, 8}},
    {"embed_tokens_per_layer.weight", {16, 8}},
    {"per_layer_model_projection.weight", {8, 8}},
    {"per_layer_projection_norm.weight", {4}},
    {"norm.weight", {8}},
    GEMMA4_LAYER("0", 4),
    GEMMA4_LAYER("1", 8),
};
#define N_SETS 4
static const struct {
    const struct shape *shapes;
    size_t n;
} sets[N_SETS] = {{qwen3, sizeof qwen3 / sizeof qwen3[0]},
                  {qwen3_5, sizeof qwen3_5 / sizeof qwen3_5[0]},
                  {gemma4, sizeof gemma4 / sizeof gemma4[0]},
                  {NULL, 0}};

static char folders[N_SETS][64];
static struct safetensors *tensors[N_SETS];

static void fail_if(bool is_wrong, const struct err *e)
{
    if (is_wrong) {
        fprintf(stderr, "%s\n", e->msg);
        abort();
    }
}

static void write_set(int i)
{
    static float values[1024];
    struct err e = {0};
    struct st_writer *w = st_writer_new();
    for (int k = 0; k < 1024; k++)
        values[k] = (float)(k % 7) * 0.125f - 0.25f;
    for (size_t k = 0; k < sets[i].n; k++) {
        const struct shape *s = &sets[i].shapes[k];
        st_writer_add(w, s->name, ST_F32, s->n, s->n[2] ? 3 : s->n[1] ? 2 : 1, values);
    }
    char *path = path_join(folders[i], "model.safetensors");
    fail_if(!st_writer_write(w, path, true, &e) || !safetensors_open(&tensors[i], path, &e), &e);
    free(path);
    st_writer_free(w);
}

static void remove_folders(void)
{
    for (int i = 0; i < N_SETS; i++) {
        safetensors_close(tensors[i]);
        path_remove_tree(folders[i], NULL);
    }
}

static void make_folders(void)
{
    const char *place = path_is_folder("/dev/shm") ? "/dev/shm" : ".";
    for (int i = 0; i < N_SETS; i++) {
        snprintf(folders[i], sizeof folders[i], "%s/fuzz_config.XXXXXX", place);
        if (!mkdtemp(folders[i]))
            abort();
        write_set(i);
    }
    atexit(remove_folders);
}

static void build(struct arch_model *m)
{
    for (int part = 0; part < m->settings.n_chunks + 2; part++) {
        struct mil_model *out = mil_model_new(9);
        struct err e = {0};
        bool ok = part == 0                      ? m->family->build_embeddings(m, out, &e)
                  : part <= m->settings.n_chunks ? m->family->build_chunk(m, part - 1, out, &e)
                                                 : m->family->build_head(m, out, &e);
        fail_if(!ok && !e.msg[0], &e);
        mil_model_close(out);
    }
    struct meta *meta = meta_new();
    m->family->fill_meta(m, meta);
    meta_free(meta);
}

static void open_by_arch(const char *text, size_t size, int i)
{
    static const struct arch_settings settings = {
        .context_length = 16, .batch_size = 4, .n_chunks = 1, .split_lm_head = 2};
    struct err e = {0};
    cJSON *config = NULL;
    struct arch_model *m = NULL;
    if (!json_parse(&config, text, size, "fuzz", &e))
        return;
    if (arch_open(&m, folders[i], config, tensors[i], &settings, &e))
        build(m);
    else
        fail_if(!e.msg[0] || e.code == ERR_BUG || m, &e);
    arch_close(m);
    cJSON_Delete(config);
}

static void open_by_reference(const char *text, size_t size, int i)
{
    struct err e = {0};
    struct reference *r = NULL;
    struct reference_options options = {.n_threads = 1};
    char *path = path_join(folders[i], "config.json");
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(text, 1, size, f) != size || fclose(f) != 0)
        abort();
    if (!reference_open(&r, folders[i], &options, &e))
        fail_if(!e.msg[0] || e.code == ERR_BUG || r, &e);
    reference_close(r);
    free(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!folders[0][0])
        make_folders();
    for (int i = 0; i < N_SETS; i++) {
        open_by_arch((const char *)data, size, i);
        open_by_reference((const char *)data, size, i);
    }
    return 0;
}
