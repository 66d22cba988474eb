/* Made-up Qwen3.5 checkpoints of any size: config.json and one F32 file, which is sparse unless it is filled. */
#ifndef MILKIT_TESTS_QWEN3_5_CHECKPOINT_H
#define MILKIT_TESTS_QWEN3_5_CHECKPOINT_H

#include <fcntl.h>
#include "support.h"
#include "base/file.h"
#include "format/json.h"
#include "format/safetensors.h"

struct checkpoint {
    int64_t vocab, hidden, layers, interval, heads, kv_heads, head_dim, n_k, n_v, d_k, d_v, mlp;
    int64_t experts, chosen, expert_size, shared_size; /* experts 0: dense, of width mlp */
};

static const struct checkpoint checkpoint_0_8b = {.vocab = 248320,
                                                  .hidden = 1024,
                                                  .layers = 24,
                                                  .interval = 4,
                                                  .heads = 8,
                                                  .kv_heads = 2,
                                                  .head_dim = 256,
                                                  .n_k = 16,
                                                  .n_v = 16,
                                                  .d_k = 128,
                                                  .d_v = 128,
                                                  .mlp = 3584};
static const struct checkpoint checkpoint_small = {.vocab = 20,
                                                   .hidden = 4,
                                                   .layers = 2,
                                                   .interval = 2,
                                                   .heads = 2,
                                                   .kv_heads = 1,
                                                   .head_dim = 8,
                                                   .n_k = 1,
                                                   .n_v = 2,
                                                   .d_k = 4,
                                                   .d_v = 4,
                                                   .mlp = 6};
static const struct checkpoint checkpoint_wide_experts = {.vocab = 20,
                                                          .hidden = 2,
                                                          .layers = 2,
                                                          .interval = 2,
                                                          .heads = 2,
                                                          .kv_heads = 1,
                                                          .head_dim = 8,
                                                          .n_k = 1,
                                                          .n_v = 2,
                                                          .d_k = 4,
                                                          .d_v = 4,
                                                          .experts = 5,
                                                          .chosen = 2,
                                                          .expert_size = 6000,
                                                          .shared_size = 3};

struct checkpoint_header {
    struct buf text;
    uint64_t bytes;
};

static void checkpoint_tensor(struct checkpoint_header *h, const char *name, int rank, int64_t a, int64_t b,
                              int64_t c)
{
    char shape[128];
    const int64_t dims[3] = {a, b, c};
    uint64_t n = 4;
    for (int i = 0; i < rank; i++)
        n *= (uint64_t)dims[i];
    st_shape_text(shape, dims, rank);
    buf_printf(&h->text, "%s\"%s\": {\"dtype\": \"F32\", \"shape\": %s, \"data_offsets\": [%llu, %llu]}",
               h->text.n > 1 ? ", " : "", name, shape, (unsigned long long)h->bytes,
               (unsigned long long)(h->bytes + n));
    h->bytes += n;
}

static void checkpoint_layer(struct checkpoint_header *h, const struct checkpoint *c, int64_t i)
{
    int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim, value = c->n_v * c->d_v;
    int64_t channels = 2 * c->n_k * c->d_k + value, x = c->hidden;
    const struct {
        const char *name;
        int rank;
        int64_t a, b, c;
        char when; /* 'f' full, 'l' linear, 'd' dense, 'm' mixture, ' ' always */
    } tensors[] = {
        {"input_layernorm.weight", 1, x, 0, 0, ' '},
        {"post_attention_layernorm.weight", 1, x, 0, 0, ' '},
        {"self_attn.q_proj.weight", 2, 2 * q, x, 0, 'f'},
        {"self_attn.k_proj.weight", 2, kv, x, 0, 'f'},
        {"self_attn.v_proj.weight", 2, kv, x, 0, 'f'},
        {"self_attn.o_proj.weight", 2, x, q, 0, 'f'},
        {"self_attn.q_norm.weight", 1, c->head_dim, 0, 0, 'f'},
        {"self_attn.k_norm.weight", 1, c->head_dim, 0, 0, 'f'},
        {"linear_attn.in_proj_qkv.weight", 2, channels, x, 0, 'l'},
        {"linear_attn.in_proj_z.weight", 2, value, x, 0, 'l'},
        {"linear_attn.in_proj_a.weight", 2, c->n_v, x, 0, 'l'},
        {"linear_attn.in_proj_b.weight", 2, c->n_v, x, 0, 'l'},
        {"linear_attn.conv1d.weight", 3, channels, 1, 4, 'l'},
        {"linear_attn.A_log", 1, c->n_v, 0, 0, 'l'},
        {"linear_attn.dt_bias", 1, c->n_v, 0, 0, 'l'},
        {"linear_attn.norm.weight", 1, c->d_v, 0, 0, 'l'},
        {"linear_attn.out_proj.weight", 2, x, value, 0, 'l'},
        {"mlp.gate_proj.weight", 2, c->mlp, x, 0, 'd'},
        {"mlp.up_proj.weight", 2, c->mlp, x, 0, 'd'},
        {"mlp.down_proj.weight", 2, x, c->mlp, 0, 'd'},
        {"mlp.gate.weight", 2, c->experts, x, 0, 'm'},
        {"mlp.experts.gate_up_proj", 3, c->experts, 2 * c->expert_size, x, 'm'},
        {"mlp.experts.down_proj", 3, c->experts, x, c->expert_size, 'm'},
        {"mlp.shared_expert.gate_proj.weight", 2, c->shared_size, x, 0, 'm'},
        {"mlp.shared_expert.up_proj.weight", 2, c->shared_size, x, 0, 'm'},
        {"mlp.shared_expert.down_proj.weight", 2, x, c->shared_size, 0, 'm'},
        {"mlp.shared_expert_gate.weight", 2, 1, x, 0, 'm'},
    };
    char skipped[2] = {(i + 1) % c->interval == 0 ? 'l' : 'f', c->experts ? 'd' : 'm'};
    for (size_t k = 0; k < sizeof tensors / sizeof tensors[0]; k++) {
        char name[128];
        if (tensors[k].when == skipped[0] || tensors[k].when == skipped[1])
            continue;
        snprintf(name, sizeof name, "model.layers.%lld.%s", (long long)i, tensors[k].name);
        checkpoint_tensor(h, name, tensors[k].rank, tensors[k].a, tensors[k].b, tensors[k].c);
    }
}

static void checkpoint_config(const struct checkpoint *c, const char *folder)
{
    struct buf b;
    char *path = path_join(folder, "config.json");
    buf_init(&b, 1 << 16);
    buf_printf(&b,
               "{\"model_type\": \"%s\", \"vocab_size\": %d, \"hidden_size\": %d, \"num_hidden_layers\": %d, "
               "\"full_attention_interval\": %d, \"num_attention_heads\": %d, \"num_key_value_heads\": %d, "
               "\"head_dim\": %d, \"linear_num_key_heads\": %d, \"linear_num_value_heads\": %d, "
               "\"linear_key_head_dim\": %d, \"linear_value_head_dim\": %d, \"tie_word_embeddings\": true, "
               "\"rope_parameters\": {\"rope_theta\": 1e7, \"rope_type\": \"default\"}, ",
               c->experts ? "qwen3_5_moe_text" : "qwen3_5_text", (int)c->vocab, (int)c->hidden,
               (int)c->layers, (int)c->interval, (int)c->heads, (int)c->kv_heads, (int)c->head_dim,
               (int)c->n_k, (int)c->n_v, (int)c->d_k, (int)c->d_v);
    if (c->experts)
        buf_printf(&b,
                   "\"num_experts\": %d, \"num_experts_per_tok\": %d, \"moe_intermediate_size\": %d, "
                   "\"shared_expert_intermediate_size\": %d}",
                   (int)c->experts, (int)c->chosen, (int)c->expert_size, (int)c->shared_size);
    else
        buf_printf(&b, "\"intermediate_size\": %d}", (int)c->mlp);
    ASSERT_OK(file_write(path, b.p, b.n, e));
    buf_fini(&b);
    free(path);
}

static void checkpoint_fill(int f, uint64_t at, uint64_t bytes)
{
    float block[1024];
    for (uint64_t i = 0; i < bytes / 4; i += 1024) {
        size_t n = bytes / 4 - i < 1024 ? (size_t)(bytes / 4 - i) : 1024;
        for (size_t k = 0; k < n; k++)
            block[k] = (float)((i + k) * 2654435761u % 4096) / 4096.0f - 0.5f;
        assert_int_equal(pwrite(f, block, n * 4, (off_t)(at + i * 4)), (ssize_t)(n * 4));
    }
}

/* A folder in the working folder; heap, for checkpoint_remove. */
static char *checkpoint_make(const struct checkpoint *c, bool fill)
{
    char *folder = xstrdup("scratch-qwen3_5-XXXXXX");
    struct checkpoint_header h = {.bytes = 0};
    assert_non_null(mkdtemp(folder));
    checkpoint_config(c, folder);
    buf_init(&h.text, 1 << 20);
    buf_puts(&h.text, "{");
    checkpoint_tensor(&h, "model.embed_tokens.weight", 2, c->vocab, c->hidden, 0);
    checkpoint_tensor(&h, "model.norm.weight", 1, c->hidden, 0, 0);
    for (int64_t i = 0; i < c->layers; i++)
        checkpoint_layer(&h, c, i);
    buf_puts(&h.text, "}");
    char *path = path_join(folder, "model.safetensors");
    int f = open(path, O_CREAT | O_RDWR | O_TRUNC, 0600);
    uint64_t n = h.text.n;
    assert_true(f >= 0);
    assert_int_equal(pwrite(f, &n, 8, 0), 8);
    assert_int_equal(pwrite(f, h.text.p, h.text.n, 8), (ssize_t)h.text.n);
    assert_int_equal(ftruncate(f, (off_t)(8 + n + h.bytes)), 0);
    if (fill)
        checkpoint_fill(f, 8 + n, h.bytes);
    assert_int_equal(close(f), 0);
    buf_fini(&h.text);
    free(path);
    return folder;
}

/* Changes the first number of a tensor. */
static void checkpoint_poke(const char *folder, const char *tensor, double value)
{
    struct safetensors *s;
    float v = (float)value;
    char *path = path_join(folder, "model.safetensors");
    ASSERT_OK(safetensors_open(&s, folder, e));
    const struct st_tensor *t = safetensors_find(s, tensor),
                           *first = safetensors_find(s, "model.embed_tokens.weight");
    assert_non_null(t);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    off_t at = info.st_size - (off_t)s->total_bytes + (off_t)(t->data - first->data);
    int f = open(path, O_RDWR);
    assert_true(f >= 0);
    assert_int_equal(pwrite(f, &v, 4, at), 4);
    assert_int_equal(close(f), 0);
    safetensors_close(s);
    free(path);
}

static void checkpoint_remove(char *folder)
{
    ASSERT_OK(path_remove_tree(folder, e));
    free(folder);
}

#endif
