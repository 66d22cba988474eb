/* Writes a checkpoint with the shapes of a published model and random weights: for measuring conversion and
 * speed without a download. The same seed gives the same bytes.
 *
 * make_checkpoint DIR [--layers N] [--seed N] [--size NAME] [--dtype bf16|f16|f32]
 *
 * Sizes in b are Qwen3 models, e2b and e4b the text parts of Gemma 4 ones (10 and 15 GB in bf16), qwen3.5-0.8b and
 * qwen3.5-27b Qwen3.5 ones. moe16 and moe64 are like no published model: they differ in their number of experts alone.
 *
 * Weights are about normal with the spread of trained ones (0.02), norms are near 1.
 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct shape {
    const char *name;
    int hidden, intermediate, layers, heads, kv_heads, head_dim, vocab;
    bool tied;
    int n_shared;         /* layers without keys of their own; 0: a Qwen model, else a Gemma 4 one */
    int k_heads, v_heads; /* of linear attention, of 128; 0: no Qwen3.5 model */
    int experts; /* 4 of them chosen; 0: a dense model. intermediate is each one's and the shared one's */
};

static const struct shape sizes[] = {
    {"0.6b", 1024, 3072, 28, 16, 8, 128, 151936, true, 0, 0, 0, 0},
    {"1.7b", 2048, 6144, 28, 16, 8, 128, 151936, true, 0, 0, 0, 0},
    {"4b", 2560, 9728, 36, 32, 8, 128, 151936, true, 0, 0, 0, 0},
    {"32b", 5120, 25600, 64, 64, 8, 128, 151936, false, 0, 0, 0, 0},
    {"e2b", 1536, 6144, 35, 8, 1, 256, 262144, true, 20, 0, 0, 0},
    {"e4b", 2560, 10240, 42, 8, 2, 256, 262144, true, 18, 0, 0, 0},
    {"qwen3.5-0.8b", 1024, 3584, 24, 8, 2, 256, 248320, true, 0, 16, 16, 0},
    {"qwen3.5-27b", 5120, 17408, 64, 24, 4, 256, 248320, false, 0, 16, 48, 0},
    {"moe16", 1024, 512, 8, 8, 2, 256, 16384, true, 0, 16, 16, 16},
    {"moe64", 1024, 512, 8, 8, 2, 256, 16384, true, 0, 16, 16, 64},
};

struct tensor {
    char name[96];
    long rows, columns; /* columns 0: a vector */
    long blocks;        /* rank 3 where not 0: [blocks, rows / blocks, columns] */
    float level, shift; /* of a vector's numbers: near level + shift, spread by a tenth of level */
};

#define TENSORS_MAX 2048
#define BLOCK 65536

static struct tensor tensors[TENSORS_MAX];
static int n_tensors;

static void add(long rows, long columns, const char *name)
{
    struct tensor *t = &tensors[n_tensors++];
    snprintf(t->name, sizeof t->name, "%s", name);
    t->rows = rows;
    t->columns = columns;
    t->level = 1;
}

static struct tensor *last(void)
{
    return &tensors[n_tensors - 1];
}

static void add_layer(int layer, long rows, long columns, const char *name)
{
    char full[96];
    snprintf(full, sizeof full, "model.layers.%d.%s", layer, name);
    add(rows, columns, full);
}

/* Gemma 4: every period-th layer attends globally, with heads twice as wide; E2B 5, E4B 6. */
static int period_of(const struct shape *s)
{
    return s->layers % 6 == 0 ? 6 : 5;
}

static void list_gemma4(const struct shape *s)
{
    add(s->vocab, s->hidden, "model.embed_tokens.weight");
    add(s->vocab, s->layers * 256L, "model.embed_tokens_per_layer.weight");
    add(s->layers * 256L, s->hidden, "model.per_layer_model_projection.weight");
    add(256, 0, "model.per_layer_projection_norm.weight");
    for (int i = 0; i < s->layers; i++) {
        bool shares = i >= s->layers - s->n_shared;
        long dim = (i + 1) % period_of(s) == 0 ? 2L * s->head_dim : s->head_dim;
        long mlp = shares && s->n_shared == 20 ? 2L * s->intermediate : s->intermediate;
        static const char *const norms[] = {
            "input_layernorm.weight", "post_attention_layernorm.weight", "pre_feedforward_layernorm.weight",
            "post_feedforward_layernorm.weight", "post_per_layer_input_norm.weight"};
        for (int k = 0; k < 5; k++)
            add_layer(i, s->hidden, 0, norms[k]);
        add_layer(i, 1, 0, "layer_scalar");
        add_layer(i, s->hidden, mlp, "mlp.down_proj.weight");
        add_layer(i, mlp, s->hidden, "mlp.gate_proj.weight");
        add_layer(i, mlp, s->hidden, "mlp.up_proj.weight");
        add_layer(i, 256, s->hidden, "per_layer_input_gate.weight");
        add_layer(i, s->hidden, 256, "per_layer_projection.weight");
        add_layer(i, s->hidden, s->heads * dim, "self_attn.o_proj.weight");
        add_layer(i, s->heads * dim, s->hidden, "self_attn.q_proj.weight");
        add_layer(i, dim, 0, "self_attn.q_norm.weight");
        /* scores have no other scale */
        last()->level = 1.0f / sqrtf((float)dim);
        add_layer(i, dim, 0, "self_attn.k_norm.weight");
        add_layer(i, s->kv_heads * dim, s->hidden, "self_attn.k_proj.weight");
        add_layer(i, s->kv_heads * dim, s->hidden, "self_attn.v_proj.weight");
    }
    add(s->hidden, 0, "model.norm.weight");
}

/* Weights of these norms are stored minus one. */
static void add_norm_less_one(int layer, long n, const char *name)
{
    if (layer < 0)
        add(n, 0, name);
    else
        add_layer(layer, n, 0, name);
    last()->shift = -1;
}

static void list_gated_mlp(int layer, long width, long hidden, const char *prefix)
{
    static const char *const names[] = {"gate", "up", "down"};
    for (int k = 0; k < 3; k++) {
        char name[64];
        snprintf(name, sizeof name, "%s.%s_proj.weight", prefix, names[k]);
        add_layer(layer, k == 2 ? hidden : width, k == 2 ? width : hidden, name);
    }
}

static void list_qwen3_5(const struct shape *s)
{
    long width = (long)s->heads * s->head_dim, kv_width = (long)s->kv_heads * s->head_dim;
    long k_width = s->k_heads * 128L, v_width = s->v_heads * 128L, channels = 2 * k_width + v_width;
    add(s->vocab, s->hidden, "model.embed_tokens.weight");
    for (int i = 0; i < s->layers; i++) {
        add_norm_less_one(i, s->hidden, "input_layernorm.weight");
        add_norm_less_one(i, s->hidden, "post_attention_layernorm.weight");
        if (i % 4 == 3) {
            add_layer(i, 2 * width, s->hidden, "self_attn.q_proj.weight");
            add_layer(i, kv_width, s->hidden, "self_attn.k_proj.weight");
            add_layer(i, kv_width, s->hidden, "self_attn.v_proj.weight");
            add_layer(i, s->hidden, width, "self_attn.o_proj.weight");
            add_norm_less_one(i, s->head_dim, "self_attn.q_norm.weight");
            add_norm_less_one(i, s->head_dim, "self_attn.k_norm.weight");
        } else {
            add_layer(i, channels, s->hidden, "linear_attn.in_proj_qkv.weight");
            add_layer(i, v_width, s->hidden, "linear_attn.in_proj_z.weight");
            add_layer(i, s->v_heads, s->hidden, "linear_attn.in_proj_a.weight");
            add_layer(i, s->v_heads, s->hidden, "linear_attn.in_proj_b.weight");
            add_layer(i, channels, 4, "linear_attn.conv1d.weight");
            last()->blocks = channels;
            add_layer(i, s->v_heads, 0, "linear_attn.A_log");
            add_layer(i, s->v_heads, 0, "linear_attn.dt_bias");
            last()->shift = -5; /* a memory of some tokens, not of one */
            add_layer(i, 128, 0, "linear_attn.norm.weight");
            add_layer(i, s->hidden, v_width, "linear_attn.out_proj.weight");
        }
        if (!s->experts) {
            list_gated_mlp(i, s->intermediate, s->hidden, "mlp");
            continue;
        }
        add_layer(i, s->experts, s->hidden, "mlp.gate.weight");
        add_layer(i, s->experts * 2L * s->intermediate, s->hidden, "mlp.experts.gate_up_proj");
        last()->blocks = s->experts;
        add_layer(i, (long)s->experts * s->hidden, s->intermediate, "mlp.experts.down_proj");
        last()->blocks = s->experts;
        list_gated_mlp(i, s->intermediate, s->hidden, "mlp.shared_expert");
        add_layer(i, 1, s->hidden, "mlp.shared_expert_gate.weight");
    }
    add_norm_less_one(-1, s->hidden, "model.norm.weight");
    if (!s->tied)
        add(s->vocab, s->hidden, "lm_head.weight");
}

static void list_tensors(const struct shape *s)
{
    if (s->n_shared || s->k_heads) {
        if (s->k_heads)
            list_qwen3_5(s);
        else
            list_gemma4(s);
        return;
    }
    long width = (long)s->heads * s->head_dim, kv_width = (long)s->kv_heads * s->head_dim;
    add(s->vocab, s->hidden, "model.embed_tokens.weight");
    for (int i = 0; i < s->layers; i++) {
        add_layer(i, s->hidden, 0, "input_layernorm.weight");
        add_layer(i, s->hidden, s->intermediate, "mlp.down_proj.weight");
        add_layer(i, s->intermediate, s->hidden, "mlp.gate_proj.weight");
        add_layer(i, s->intermediate, s->hidden, "mlp.up_proj.weight");
        add_layer(i, s->hidden, 0, "post_attention_layernorm.weight");
        add_layer(i, s->head_dim, 0, "self_attn.k_norm.weight");
        add_layer(i, kv_width, s->hidden, "self_attn.k_proj.weight");
        add_layer(i, s->hidden, width, "self_attn.o_proj.weight");
        add_layer(i, s->head_dim, 0, "self_attn.q_norm.weight");
        add_layer(i, width, s->hidden, "self_attn.q_proj.weight");
        add_layer(i, kv_width, s->hidden, "self_attn.v_proj.weight");
    }
    add(s->hidden, 0, "model.norm.weight");
    if (!s->tied)
        add(s->vocab, s->hidden, "lm_head.weight");
}

static long elems(const struct tensor *t)
{
    return t->columns ? t->rows * t->columns : t->rows;
}

static uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return *state = x;
}

/* The sum of four uniform numbers is near enough to normal here. */
static float random_weight(uint64_t *state)
{
    uint64_t r = next_random(state);
    int sum =
        (int)(r & 0xffff) + (int)(r >> 16 & 0xffff) + (int)(r >> 32 & 0xffff) + (int)(r >> 48) - 2 * 65535;
    return (float)sum * (1.0f / 37837.0f);
}

static uint16_t to_bf16(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* Normal range only, which these weights never leave upwards; tiny ones become 0. */
static uint16_t to_f16(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    uint32_t a = u & 0x7fffffff, sign = u >> 16 & 0x8000;
    if (a < 0x38800000u)
        return (uint16_t)sign;
    return (uint16_t)(sign | ((a + 0xfff + (a >> 13 & 1) - (112u << 23)) >> 13));
}

static int die(const char *what)
{
    perror(what);
    return 1;
}

static void print_gemma4_config(FILE *f, const struct shape *s)
{
    fprintf(
        f,
        "{\n  \"architectures\": [\"Gemma4ForCausalLM\"],\n  \"model_type\": \"gemma4_text\",\n  "
        "\"hidden_size\": %d,\n  \"intermediate_size\": %d,\n  \"num_hidden_layers\": %d,\n  "
        "\"num_attention_heads\": %d,\n  \"num_key_value_heads\": %d,\n  \"head_dim\": %d,\n  "
        "\"global_head_dim\": %d,\n  \"vocab_size\": %d,\n  \"vocab_size_per_layer_input\": %d,\n  "
        "\"hidden_size_per_layer_input\": 256,\n  \"sliding_window\": 512,\n  "
        "\"num_kv_shared_layers\": %d,\n  \"use_double_wide_mlp\": %s,\n  "
        "\"final_logit_softcapping\": 30.0,\n  \"max_position_embeddings\": 131072,\n  \"layer_types\": [",
        s->hidden, s->intermediate, s->layers, s->heads, s->kv_heads, s->head_dim, 2 * s->head_dim, s->vocab,
        s->vocab, s->n_shared, s->n_shared == 20 ? "true" : "false");
    for (int i = 0; i < s->layers; i++)
        fprintf(f, "%s\"%s_attention\"", i ? ", " : "", (i + 1) % period_of(s) == 0 ? "full" : "sliding");
    fprintf(f, "]\n}\n");
}

static void print_qwen3_5_config(FILE *f, const struct shape *s)
{
    fprintf(f,
            "{\n  \"architectures\": [\"Qwen3_5%sForCausalLM\"],\n  \"model_type\": \"qwen3_5%s_text\",\n  "
            "\"hidden_size\": %d,\n  \"num_hidden_layers\": %d,\n  \"num_attention_heads\": %d,\n  "
            "\"num_key_value_heads\": %d,\n  \"head_dim\": %d,\n  \"vocab_size\": %d,\n  "
            "\"linear_conv_kernel_dim\": 4,\n  \"linear_key_head_dim\": 128,\n  "
            "\"linear_value_head_dim\": 128,\n  \"linear_num_key_heads\": %d,\n  "
            "\"linear_num_value_heads\": %d,\n  \"full_attention_interval\": 4,\n  "
            "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 10000000, "
            "\"partial_rotary_factor\": 0.25},\n  \"tie_word_embeddings\": %s,\n",
            s->experts ? "Moe" : "", s->experts ? "_moe" : "", s->hidden, s->layers, s->heads, s->kv_heads,
            s->head_dim, s->vocab, s->k_heads, s->v_heads, s->tied ? "true" : "false");
    if (s->experts)
        fprintf(f,
                "  \"num_experts\": %d,\n  \"num_experts_per_tok\": 4,\n  \"moe_intermediate_size\": %d,\n  "
                "\"shared_expert_intermediate_size\": %d,\n",
                s->experts, s->intermediate, s->intermediate);
    else
        fprintf(f, "  \"intermediate_size\": %d,\n", s->intermediate);
    fprintf(f, "  \"max_position_embeddings\": 262144\n}\n");
}

static bool write_config(const char *folder, const struct shape *s, const char *dtype)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/config.json", folder);
    FILE *f = fopen(path, "w");
    if (!f)
        return false;
    if (s->n_shared || s->k_heads) {
        if (s->k_heads)
            print_qwen3_5_config(f, s);
        else
            print_gemma4_config(f, s);
        return fclose(f) == 0;
    }
    fprintf(f,
            "{\n  \"architectures\": [\"Qwen3ForCausalLM\"],\n  \"model_type\": \"qwen3\",\n  "
            "\"hidden_size\": %d,\n"
            "  \"intermediate_size\": %d,\n  \"num_hidden_layers\": %d,\n  \"num_attention_heads\": %d,\n"
            "  \"num_key_value_heads\": %d,\n  \"head_dim\": %d,\n  \"vocab_size\": %d,\n  \"hidden_act\": "
            "\"silu\",\n"
            "  \"rms_norm_eps\": 1e-06,\n  \"rope_theta\": 1000000,\n  \"rope_scaling\": null,\n"
            "  \"attention_bias\": false,\n  \"tie_word_embeddings\": %s,\n  \"max_position_embeddings\": "
            "40960,\n"
            "  \"use_sliding_window\": false,\n  \"torch_dtype\": \"%s\"\n}\n",
            s->hidden, s->intermediate, s->layers, s->heads, s->kv_heads, s->head_dim, s->vocab,
            s->tied ? "true" : "false",
            strcmp(dtype, "bf16") == 0  ? "bfloat16"
            : strcmp(dtype, "f16") == 0 ? "float16"
                                        : "float32");
    return fclose(f) == 0;
}

static bool write_weights(const char *folder, uint64_t seed, const char *dtype)
{
    static char header[1 << 19];
    static unsigned char block[BLOCK * 4];
    char path[1024];
    int bytes = strcmp(dtype, "f32") == 0 ? 4 : 2;
    const char *type_name = bytes == 4 ? "F32" : strcmp(dtype, "f16") == 0 ? "F16" : "BF16";
    size_t n = (size_t)snprintf(header, sizeof header, "{\"__metadata__\":{\"format\":\"pt\"}");
    uint64_t at = 0;
    for (int i = 0; i < n_tensors; i++) {
        const struct tensor *t = &tensors[i];
        char shape[64];
        uint64_t size = (uint64_t)elems(t) * (uint64_t)bytes;
        if (t->blocks)
            snprintf(shape, sizeof shape, "%ld,%ld,%ld", t->blocks, t->rows / t->blocks, t->columns);
        else if (t->columns)
            snprintf(shape, sizeof shape, "%ld,%ld", t->rows, t->columns);
        else
            snprintf(shape, sizeof shape, "%ld", t->rows);
        n += (size_t)snprintf(header + n, sizeof header - n,
                              ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%llu,%llu]}",
                              t->name, type_name, shape, (unsigned long long)at,
                              (unsigned long long)(at + size));
        at += size;
    }
    header[n++] = '}';
    while (n % 8)
        header[n++] = ' ';
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    FILE *f = fopen(path, "wb");
    if (!f)
        return false;
    uint64_t length = n;
    bool ok = fwrite(&length, 8, 1, f) == 1 && fwrite(header, 1, n, f) == n;
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    for (int i = 0; i < n_tensors && ok; i++) {
        bool is_norm = tensors[i].columns == 0;
        for (long left = elems(&tensors[i]); left > 0 && ok;) {
            long count = left < BLOCK ? left : BLOCK;
            for (long k = 0; k < count; k++) {
                float w = random_weight(&state);
                float v = is_norm ? tensors[i].level * (1.0f + 0.1f * w) + tensors[i].shift : 0.02f * w;
                uint16_t h = bytes == 2 && type_name[0] == 'B' ? to_bf16(v) : to_f16(v);
                if (bytes == 4)
                    memcpy(block + 4 * k, &v, 4);
                else
                    memcpy(block + 2 * k, &h, 2);
            }
            ok = fwrite(block, (size_t)bytes, (size_t)count, f) == (size_t)count;
            left -= count;
        }
    }
    return fclose(f) == 0 && ok;
}

int main(int argc, char **argv)
{
    struct shape s = sizes[0];
    const char *folder = NULL, *dtype = "bf16";
    uint64_t seed = 1;
    int layers = 0;
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] != '-' && !folder) {
            folder = argv[i];
        } else if (i + 1 < argc && strcmp(argv[i], "--layers") == 0) {
            layers = atoi(argv[++i]);
        } else if (i + 1 < argc && strcmp(argv[i], "--seed") == 0) {
            seed = strtoull(argv[++i], NULL, 10);
        } else if (i + 1 < argc && strcmp(argv[i], "--dtype") == 0) {
            dtype = argv[++i];
        } else if (i + 1 < argc && strcmp(argv[i], "--size") == 0) {
            size_t k = 0, n = sizeof sizes / sizeof sizes[0];
            i++;
            while (k < n && strcmp(sizes[k].name, argv[i]) != 0)
                k++;
            folder = k < n ? folder : NULL;
            if (k == n)
                break;
            s = sizes[k];
        } else {
            folder = NULL;
            break;
        }
    }
    if (!folder || layers < 0 || layers > 80 ||
        (strcmp(dtype, "bf16") && strcmp(dtype, "f16") && strcmp(dtype, "f32"))) {
        fprintf(stderr,
                "usage: make_checkpoint DIR [--size NAME] [--layers N] [--seed N] [--dtype bf16|f16|f32]\n"
                "sizes:");
        for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++)
            fprintf(stderr, " %s", sizes[k].name);
        fprintf(stderr, "\n");
        return 2;
    }
    if (layers)
        s.layers = layers;
    if (layers && s.n_shared) {
        fprintf(stderr, "make_checkpoint: Gemma 4 models have their own number of layers\n");
        return 2;
    }
    mkdir(folder, 0777);
    list_tensors(&s);
    if (!write_config(folder, &s, dtype) || !write_weights(folder, seed, dtype))
        return die(folder);
    return 0;
}
