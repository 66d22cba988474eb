/* Architectures of GGUF, and their tensors: names, shapes, and what the writer did to the numbers. */
#include "format/gguf_model.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "format/config.h"

#define NOTES_MAX 32

static const struct gguf_architecture architectures[] = {
    {.name = "llama", .model_type = "llama", .class_name = "LlamaForCausalLM", .is_permuted = true},
    {.name = "qwen2", .model_type = "qwen2", .class_name = "Qwen2ForCausalLM"},
    {.name = "qwen3", .model_type = "qwen3", .class_name = "Qwen3ForCausalLM", .has_head_norms = true},
    {.name = "qwen3moe",
     .model_type = "qwen3_moe",
     .class_name = "Qwen3MoeForCausalLM",
     .has_head_norms = true,
     .has_experts = true},
    {.name = "gemma3",
     .model_type = "gemma3_text",
     .class_name = "Gemma3ForCausalLM",
     .has_head_norms = true,
     .has_shifted_norms = true,
     .has_post_norms = true},
    {.name = "smollm3", .model_type = "smollm3", .class_name = "SmolLM3ForCausalLM", .is_permuted = true},
};
#define N_ARCHITECTURES (sizeof architectures / sizeof architectures[0])

/* ---- tensors ---- */

/* What rows and columns are counted in. */
enum size { NONE, HIDDEN, QUERY, KV, HEAD, INNER, EXPERTS, EXPERT_INNER, N_SIZES };

enum when { ALWAYS, SOMETIMES, HEAD_NORMS, POST_NORMS, EXPERTS_ONLY, PLAIN_ONLY };

/* Of a layer, "blk.N.PART" in the file. */
static const struct part {
    const char *part, *name, *post_name; /* post_name: with four norms */
    enum size rows, columns;             /* columns NONE: a vector */
    enum when when;
    bool is_permuted, is_experts;
} parts[] = {
    {"attn_norm.weight", "input_layernorm.weight", NULL, HIDDEN, NONE, ALWAYS, false, false},
    {"attn_q.weight", "self_attn.q_proj.weight", NULL, QUERY, HIDDEN, ALWAYS, true, false},
    {"attn_k.weight", "self_attn.k_proj.weight", NULL, KV, HIDDEN, ALWAYS, true, false},
    {"attn_v.weight", "self_attn.v_proj.weight", NULL, KV, HIDDEN, ALWAYS, false, false},
    {"attn_output.weight", "self_attn.o_proj.weight", NULL, HIDDEN, QUERY, ALWAYS, false, false},
    {"attn_q.bias", "self_attn.q_proj.bias", NULL, QUERY, NONE, SOMETIMES, true, false},
    {"attn_k.bias", "self_attn.k_proj.bias", NULL, KV, NONE, SOMETIMES, true, false},
    {"attn_v.bias", "self_attn.v_proj.bias", NULL, KV, NONE, SOMETIMES, false, false},
    {"attn_output.bias", "self_attn.o_proj.bias", NULL, HIDDEN, NONE, SOMETIMES, false, false},
    {"attn_q_norm.weight", "self_attn.q_norm.weight", NULL, HEAD, NONE, HEAD_NORMS, false, false},
    {"attn_k_norm.weight", "self_attn.k_norm.weight", NULL, HEAD, NONE, HEAD_NORMS, false, false},
    {"ffn_norm.weight", "post_attention_layernorm.weight", "pre_feedforward_layernorm.weight", HIDDEN, NONE,
     ALWAYS, false, false},
    {"post_attention_norm.weight", "post_attention_layernorm.weight", NULL, HIDDEN, NONE, POST_NORMS, false,
     false},
    {"post_ffw_norm.weight", "post_feedforward_layernorm.weight", NULL, HIDDEN, NONE, POST_NORMS, false,
     false},
    {"ffn_gate.weight", "mlp.gate_proj.weight", NULL, INNER, HIDDEN, PLAIN_ONLY, false, false},
    {"ffn_up.weight", "mlp.up_proj.weight", NULL, INNER, HIDDEN, PLAIN_ONLY, false, false},
    {"ffn_down.weight", "mlp.down_proj.weight", NULL, HIDDEN, INNER, PLAIN_ONLY, false, false},
    {"ffn_gate.bias", "mlp.gate_proj.bias", NULL, INNER, NONE, SOMETIMES, false, false},
    {"ffn_up.bias", "mlp.up_proj.bias", NULL, INNER, NONE, SOMETIMES, false, false},
    {"ffn_down.bias", "mlp.down_proj.bias", NULL, HIDDEN, NONE, SOMETIMES, false, false},
    {"ffn_gate_inp.weight", "mlp.gate.weight", NULL, EXPERTS, HIDDEN, EXPERTS_ONLY, false, false},
    {"ffn_gate_exps.weight", "mlp.experts.0.gate_proj.weight", NULL, EXPERT_INNER, HIDDEN, EXPERTS_ONLY,
     false, true},
    {"ffn_up_exps.weight", "mlp.experts.0.up_proj.weight", NULL, EXPERT_INNER, HIDDEN, EXPERTS_ONLY, false,
     true},
    {"ffn_down_exps.weight", "mlp.experts.0.down_proj.weight", NULL, HIDDEN, EXPERT_INNER, EXPERTS_ONLY,
     false, true},
};
#define N_PARTS (sizeof parts / sizeof parts[0])

/* "blk.N." and what follows; false for other names. */
static bool split_name(const char *name, int64_t *layer, const char **part)
{
    char *end;
    if (strncmp(name, "blk.", 4) != 0 || name[4] < '0' || name[4] > '9' || strcspn(name + 4, ".") > 5)
        return false;
    *layer = strtoll(name + 4, &end, 10);
    *part = end + 1;
    return *end == '.';
}

bool gguf_model_role(const struct gguf_model *m, const struct gguf_tensor *t, struct gguf_role *out)
{
    static const char *const around[][2] = {{"token_embd.weight", "model.embed_tokens.weight"},
                                            {"output_norm.weight", "model.norm.weight"},
                                            {"output.weight", "lm_head.weight"}};
    const struct gguf_architecture *a = m->architecture;
    const char *part;
    int64_t layer;
    *out = (struct gguf_role){.is_shifted = a->has_shifted_norms && has_suffix(t->name, "norm.weight")};
    for (int i = 0; i < 3; i++) {
        if (strcmp(t->name, around[i][0]) == 0)
            return snprintf(out->name, sizeof out->name, "%s", around[i][1]) > 0;
    }
    if (!split_name(t->name, &layer, &part) || layer >= m->n_layers)
        return false;
    for (size_t i = 0; i < N_PARTS; i++) {
        const struct part *p = &parts[i];
        if (strcmp(part, p->part) != 0)
            continue;
        snprintf(out->name, sizeof out->name, "model.layers.%lld.%s", (long long)layer,
                 a->has_post_norms && p->post_name ? p->post_name : p->name);
        out->permuted_dim = a->is_permuted && p->is_permuted ? m->head_dim : 0;
        out->is_experts = p->is_experts;
        return true;
    }
    return false;
}

void gguf_expert_name(char out[160], const char *name, int64_t expert)
{
    const char *zero = strstr(name, ".experts.0.");
    size_t before = zero ? (size_t)(zero - name) : strlen(name);
    snprintf(out, 160, "%.*s.experts.%lld.%s", (int)before, name, (long long)expert,
             zero ? zero + strlen(".experts.0.") : "");
}

/* ---- checking tensors ---- */

static bool is_expected(const struct gguf_model *m, enum when when)
{
    const struct gguf_architecture *a = m->architecture;
    return when == ALWAYS || (when == HEAD_NORMS && a->has_head_norms) ||
           (when == POST_NORMS && a->has_post_norms) || (when == EXPERTS_ONLY && a->has_experts) ||
           (when == PLAIN_ONLY && !a->has_experts);
}

/* "[576, 49152]", the fastest axis first as GGUF lists them. */
static void put_shape(char dst[96], const int64_t *ne, int rank)
{
    size_t n = 0;
    for (int i = 0; i < rank; i++)
        n += (size_t)snprintf(dst + n, 96 - n, "%s%lld", i ? ", " : "[", (long long)ne[i]);
    snprintf(dst + n, 96 - n, "]");
}

static bool check_shape(const struct gguf_model *m, const char *name, const int64_t *ne, int rank,
                        bool is_required, struct err *e)
{
    const struct gguf_tensor *t = gguf_find_tensor(m->file, name);
    char expected[96], found[96];
    put_shape(expected, ne, rank);
    if (!t)
        return !is_required || err_set(e, ERR_FORMAT, "%s: tensor %s is missing (expected %s)", m->file->path,
                                       name, expected);
    int whole = t->rank; /* trailing axes of 1 say nothing */
    while (whole > rank && t->ne[whole - 1] == 1)
        whole--;
    if (whole != rank || memcmp(t->ne, ne, sizeof ne[0] * (size_t)rank) != 0) {
        put_shape(found, t->ne, t->rank);
        return err_set(e, ERR_FORMAT, "%s: tensor %s: expected %s, found %s", t->file, name, expected, found);
    }
    const struct gguf_block_type *type = gguf_block_type(t->type);
    return type->expand || err_set(e, ERR_UNSUPPORTED,
                                   "%s: tensor %s: type %s is not read; F32, F16, BF16, Q4_0, Q4_1, Q5_0, "
                                   "Q5_1, Q8_0, Q2_K to Q6_K, "
                                   "IQ4_NL, IQ4_XS, MXFP4 and TQ2_0 are",
                                   t->file, name, type->name);
}

/* Norms and biases: a number that is not finite would reach every result. */
static bool check_finite(const struct gguf_tensor *t, struct err *e)
{
    for (int64_t i = 0; t->type == GGUF_TYPE_F32 && t->rank == 1 && i < t->n_elems; i++) {
        uint32_t bits = (uint32_t)load_le(t->data + 4 * i, 4);
        float f;
        memcpy(&f, &bits, 4);
        if (!isfinite(f))
            return err_set(e, ERR_FORMAT, "%s: tensor %s: element %lld: expected a finite number, found %g",
                           t->file, t->name, (long long)i, (double)f);
    }
    return true;
}

static bool check_layer(const struct gguf_model *m, int64_t layer, struct err *e)
{
    const int64_t sizes[N_SIZES] = {[HIDDEN] = m->hidden_size,
                                    [QUERY] = m->n_heads * m->head_dim,
                                    [KV] = m->n_kv_heads * m->head_dim,
                                    [HEAD] = m->head_dim,
                                    [INNER] = m->inner_size,
                                    [EXPERTS] = m->n_experts,
                                    [EXPERT_INNER] = m->expert_size};
    char name[128];
    for (size_t i = 0; i < N_PARTS; i++) {
        const struct part *p = &parts[i];
        int64_t ne[3] = {p->columns ? sizes[p->columns] : sizes[p->rows], sizes[p->rows], m->n_experts};
        snprintf(name, sizeof name, "blk.%lld.%s", (long long)layer, p->part);
        if (!check_shape(m, name, ne, p->is_experts ? 3 : p->columns ? 2 : 1, is_expected(m, p->when), e))
            return false;
    }
    return true;
}

static bool check_tensors(const struct gguf_model *m, struct err *e)
{
    int64_t table[2] = {m->hidden_size, m->vocab_size};
    if (!check_shape(m, "output_norm.weight", table, 1, true, e) ||
        !check_shape(m, "output.weight", table, 2, false, e))
        return false;
    for (int64_t i = 0; i < m->n_layers; i++) {
        if (!check_layer(m, i, e))
            return false;
    }
    for (int i = 0; i < m->file->n_tensors; i++) {
        if (!check_finite(&m->file->tensors[i], e))
            return false;
    }
    return true;
}

/* ---- sizes ---- */

static bool find_architecture(struct gguf_model *m, struct err *e)
{
    struct str name = {NULL, 0};
    char known[128] = "";
    size_t n = 0;
    if (!gguf_get_string(m->file, "general.architecture", &name, e))
        return false;
    if (!name.p)
        return err_set(e, ERR_FORMAT, "%s: key general.architecture is missing", m->file->path);
    for (size_t i = 0; i < N_ARCHITECTURES; i++) {
        const char *each = architectures[i].name;
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", each);
        if (strlen(each) == name.n && memcmp(each, name.p, name.n) == 0)
            m->architecture = &architectures[i];
    }
    return m->architecture ||
           err_set(e, ERR_UNSUPPORTED, "%s: key general.architecture: milkit reads %s, found \"%.*s\"",
                   m->file->path, known, (int)(name.n < 64 ? name.n : 64), name.p);
}

const char *gguf_model_key(const struct gguf_model *m, const char *key)
{
    return arena_printf(m->arena, "%s.%s", m->architecture->name, key);
}

static bool require(struct gguf_model *m, const char *key, int64_t max, int64_t *value, struct err *e)
{
    return gguf_require_int(m->file, gguf_model_key(m, key), 1, max, value, e);
}

/* Present keys only. */
static bool get(struct gguf_model *m, const char *key, int64_t max, int64_t *value, struct err *e)
{
    return !gguf_find_key(m->file, gguf_model_key(m, key)) || require(m, key, max, value, e);
}

static bool read_heads(struct gguf_model *m, struct err *e)
{
    int64_t value_length, turning;
    if (!require(m, "attention.head_count", CONFIG_HEADS_MAX, &m->n_heads, e))
        return false;
    m->n_kv_heads = m->n_heads;
    m->head_dim = m->hidden_size / m->n_heads;
    if (!get(m, "attention.head_count_kv", CONFIG_HEADS_MAX, &m->n_kv_heads, e) ||
        !get(m, "attention.key_length", CONFIG_HEADS_MAX, &m->head_dim, e))
        return false;
    value_length = turning = m->head_dim;
    if (!get(m, "attention.value_length", CONFIG_HEADS_MAX, &value_length, e) ||
        !get(m, "rope.dimension_count", CONFIG_HEADS_MAX, &turning, e))
        return false;
    if (m->n_heads % m->n_kv_heads != 0)
        return err_set(e, ERR_FORMAT, "%s: key %s: expected a divisor of the %lld heads, found %lld",
                       m->file->path, gguf_model_key(m, "attention.head_count_kv"), (long long)m->n_heads,
                       (long long)m->n_kv_heads);
    if (value_length != m->head_dim)
        return err_set(e, ERR_UNSUPPORTED, "%s: key %s: expected key_length %lld, found %lld", m->file->path,
                       gguf_model_key(m, "attention.value_length"), (long long)m->head_dim,
                       (long long)value_length);
    if (turning != m->head_dim || m->head_dim < 2 || m->head_dim % 2 != 0)
        return err_set(e, ERR_UNSUPPORTED,
                       "%s: key %s: expected an even head size, all of which turns (%lld), found %lld",
                       m->file->path, gguf_model_key(m, "rope.dimension_count"), (long long)m->head_dim,
                       (long long)turning);
    return true;
}

static bool read_experts(struct gguf_model *m, struct err *e)
{
    int64_t n = 0;
    if (!m->architecture->has_experts) {
        if (!gguf_get_int(m->file, gguf_model_key(m, "expert_count"), &n, e))
            return false;
        return n == 0 ||
               err_set(e, ERR_UNSUPPORTED, "%s: key %s: experts are read in qwen3moe only, found %lld",
                       m->file->path, gguf_model_key(m, "expert_count"), (long long)n);
    }
    if (!require(m, "expert_count", 4096, &m->n_experts, e) ||
        !require(m, "expert_used_count", m->n_experts, &m->n_experts_used, e))
        return false;
    if (!gguf_find_key(m->file, gguf_model_key(m, "expert_feed_forward_length"))) {
        /* Files of the first months have no key for it. */
        const struct gguf_tensor *t = gguf_find_tensor(m->file, "blk.0.ffn_gate_exps.weight");
        m->expert_size = t ? t->ne[1] : 0;
    }
    return m->expert_size > 0 ||
           require(m, "expert_feed_forward_length", CONFIG_SIZE_MAX, &m->expert_size, e);
}

static bool read_sizes(struct gguf_model *m, struct err *e)
{
    const char *epsilon = gguf_model_key(m, "attention.layer_norm_rms_epsilon");
    const struct gguf_tensor *table = gguf_find_tensor(m->file, "token_embd.weight");
    m->epsilon = -1;
    if (!require(m, "block_count", CONFIG_LAYERS_MAX, &m->n_layers, e) ||
        !require(m, "context_length", INT32_MAX, &m->positions, e) ||
        !require(m, "embedding_length", CONFIG_SIZE_MAX, &m->hidden_size, e) ||
        !require(m, "feed_forward_length", CONFIG_SIZE_MAX, &m->inner_size, e) || !read_heads(m, e) ||
        !read_experts(m, e) || !gguf_get_double(m->file, epsilon, &m->epsilon, e))
        return false;
    if (!(m->epsilon >= 0 && m->epsilon < 1))
        return err_set(e, ERR_FORMAT, "%s: key %s: expected a small positive number, found %s", m->file->path,
                       epsilon, gguf_find_key(m->file, epsilon) ? "another" : "none");
    /* The rows of the table are the truth; the key may count differently. */
    m->vocab_size = table && table->rank == 2 ? table->ne[1] : 1;
    if (!table && !get(m, "vocab_size", CONFIG_SIZE_MAX, &m->vocab_size, e))
        return false;
    if (m->vocab_size > CONFIG_SIZE_MAX)
        return err_set(e, ERR_LIMIT, "%s: tensor token_embd.weight: expected at most %d rows, found %lld",
                       m->file->path, CONFIG_SIZE_MAX, (long long)m->vocab_size);
    int64_t ne[2] = {m->hidden_size, m->vocab_size};
    m->is_tied = !gguf_find_tensor(m->file, "output.weight");
    return check_shape(m, "token_embd.weight", ne, 2, true, e);
}

/* ---- the door ---- */

void gguf_model_note(struct gguf_model *m, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (m->n_notes < NOTES_MAX)
        m->notes[m->n_notes++] = arena_strdup(m->arena, text);
}

bool gguf_model_open(struct gguf_model **out, const struct gguf *g, struct err *e)
{
    struct arena *arena = arena_new(0);
    struct gguf_model *m = ARENA_NEW(arena, struct gguf_model);
    m->arena = arena;
    m->file = g;
    m->notes = ARENA_ARRAY(arena, const char *, NOTES_MAX);
    *out = NULL;
    if (!find_architecture(m, e) || !read_sizes(m, e) || !check_tensors(m, e)) {
        gguf_model_close(m);
        return false;
    }
    *out = m;
    return true;
}

void gguf_model_close(struct gguf_model *m)
{
    if (m)
        arena_free(m->arena);
}
