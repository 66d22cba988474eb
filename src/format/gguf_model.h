/* A GGUF file as the model that it holds: architecture, sizes, the names that its tensors have in a checkpoint and what
 * its writer did to them, and the settings as config.json says them.
 *
 * What no key of a GGUF says (Gemma's attention scale, SmolLM3's layers without RoPE, whether experts' weights are
 * normed, Mistral 7B v0.1's window) is taken from the known models, with a note about it.
 */
#ifndef MILKIT_FORMAT_GGUF_MODEL_H
#define MILKIT_FORMAT_GGUF_MODEL_H

#include "format/gguf.h"
#include "format/json.h"

struct gguf_architecture {
    const char *name;                    /* general.architecture, the prefix of its keys */
    const char *model_type, *class_name; /* of config.json */
    bool
        is_permuted; /* rows of q and k are reordered in each head, for ggml's rotation of neighbouring pairs */
    bool has_shifted_norms; /* norms are stored as 1 + w */
    bool has_post_norms;    /* four norms a layer; ffn_norm is the one in front of the MLP */
    bool has_head_norms;    /* of queries and keys */
    bool has_experts;
};

struct gguf_model {
    const struct gguf *file;
    const struct gguf_architecture *architecture;
    struct arena *arena;
    int64_t n_layers, positions, hidden_size, inner_size, n_heads, n_kv_heads, head_dim, vocab_size;
    int64_t n_experts, n_experts_used, expert_size; /* 0: none */
    double epsilon;
    bool is_tied; /* there is no output.weight */
    int n_notes;  /* sentences about what was taken from known models */
    const char **notes;
};

/* ERR_UNSUPPORTED: an architecture, or a variant of one, that milkit does not know. ERR_FORMAT: keys, tensors or shapes that
 * do not fit each other. g must outlive it. */
bool gguf_model_open(struct gguf_model **out, const struct gguf *g, struct err *e) MUST_CHECK;
void gguf_model_close(struct gguf_model *m); /* accepts NULL */
void gguf_model_note(struct gguf_model *m, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* general.architecture with a key behind it, in the model's arena: "llama.block_count". */
const char *gguf_model_key(const struct gguf_model *m, const char *key);

/* What a tensor is in the checkpoint. */
struct gguf_role {
    char name[128]; /* "model.layers.3.self_attn.q_proj.weight"; of experts the first one's, with expert 0 */
    int64_t permuted_dim; /* size of the heads whose rows are reordered; 0: none are */
    bool is_shifted;      /* 1 was added */
    bool is_experts;      /* one matrix an expert, along the last axis */
};
/* False: no tensor of a checkpoint. */
bool gguf_model_role(const struct gguf_model *m, const struct gguf_tensor *t, struct gguf_role *out);
/* The name of expert i in place of expert 0's. */
void gguf_expert_name(char out[160], const char *name, int64_t expert);

/* ---- gguf_config.c ---- */

/* config.json; the caller deletes it. overrides: an object whose members replace those of the result, NULL: none. */
bool gguf_config_make(cJSON **out, struct gguf_model *m, const cJSON *overrides, struct err *e) MUST_CHECK;
/* generation_config.json: the ids around a text, and sampling where the file recommends one. */
bool gguf_generation_make(cJSON **out, const struct gguf_model *m, struct err *e) MUST_CHECK;
/* A float32 of a file as the shortest decimal that gives it. */
double gguf_shortest(double f32);

/* ---- gguf_tokenizer.c ---- */

/* Adds tokenizer.json's text to b. notes of m say what is not certain. */
bool gguf_tokenizer_make(struct buf *b, struct gguf_model *m, struct err *e) MUST_CHECK;
/* tokenizer_config.json: special tokens by name. */
bool gguf_tokenizer_config_make(cJSON **out, const struct gguf_model *m, struct err *e) MUST_CHECK;
/* Ids that end an answer: those that keys name and those that llama.cpp finds by their text. *n of at most
 * GGUF_STOP_IDS_MAX. */
#define GGUF_STOP_IDS_MAX 16
bool gguf_stop_ids(const struct gguf_model *m, int64_t ids[GGUF_STOP_IDS_MAX], int *n,
                   struct err *e) MUST_CHECK;
/* An id that a key names: -1 where there is none; ERR_FORMAT outside of the tokens. */
bool gguf_token_id(const struct gguf_model *m, const char *key, int64_t *id, struct err *e) MUST_CHECK;

#endif
