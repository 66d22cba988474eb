/* Model families: one table of functions per family; blocks.c holds the graph pieces that families share.
 *
 * A family recognises a config.json, lists the checkpoint tensors that it needs and builds the programs of a
 * package: embeddings, decoder chunks, LM head. Programs hold weights as producers over the mapped checkpoint
 * (nothing is converted here). Graphs: docs/architecture.md and the recipes' comments.
 */
#ifndef MILKIT_ARCH_ARCH_H
#define MILKIT_ARCH_ARCH_H

#include "base/log.h"
#include "format/checkpoint.h"
#include "format/config.h"
#include "format/decoder.h"
#include "format/meta.h"
#include "format/safetensors.h"
#include "mil/build.h"

struct arch_settings {
    int64_t context_length; /* positions of the KV cache */
    int64_t batch_size;     /* tokens of a prefill call */
    int n_chunks;
    int split_lm_head;  /* 0: the family's default */
    int gdn_chunk;      /* 0: the family's default */
    bool exact_norms;   /* Qwen3.5: gains 1 + w as the sum of two fp16 numbers, not one */
    bool anemll_rotate; /* Gemma 3: caches and functions as ANEMLL has them, not the contract's window */
    bool exact_topk;    /* exactly k experts, also where weights of the router are equal at the k-th place */
    double residual_scale; /* of the residual stream, a power of two, so that it stays within fp16; 0: 1 */
};

#define ARCH_SPLIT 16

/* How large the residual stream gets on a text, and what follows for settings.residual_scale. */
struct arch_residual {
    double scale;
    double largest; /* magnitude, without the scale; n_tokens 0: not measured */
    int64_t layer;  /* behind which; -1: the embeddings */
    int64_t n_tokens;
};

struct arch_family;
/* A checkpoint bound to its family. */
struct arch_model {
    const struct arch_family *family;
    struct arena *arena;
    const char *checkpoint; /* folder, for messages */
    const struct safetensors *tensors;
    struct checkpoint_names *names; /* of the tensors */
    struct config config;           /* config.json; what it holds is borrowed */
    struct arch_settings settings;
    /* common numbers, filled by the family */
    int64_t hidden_size, n_layers, vocab_size;
    int64_t n_experts, n_chosen; /* of a layer, of a token; 0: it has no experts */
    int64_t per_layer_inputs;    /* width of the chunks' fifth input; 0: they have none */
    double softcap;              /* logits are softcap * tanh(product / softcap); 0: the products */
    struct decoder_ends ends;    /* embeddings, final norm, head */
    bool *tensor_used;           /* [tensors->n_tensors]: what the programs took */
    bool knows_exact_norms, knows_exact_topk,
        knows_rotate;        /* the settings of these names change its programs */
    double embedding_factor; /* of the table's rows; 0 or 1: none */
    const void *own;         /* the family's own parsed configuration */
    const char *note;        /* what is special about how the checkpoint was read; NULL: nothing */
};

struct arch_family {
    const char *name;                    /* "qwen3": architecture in meta.yaml */
    const char *default_prefix;          /* "qwen" */
    int default_split;                   /* parts of the LM head; 0: ARCH_SPLIT */
    const char *const *model_types;      /* of config.json; ends with NULL */
    const struct decoder_traits *traits; /* of a plain decoder (decoder.h); else NULL */
    /* Parses and checks configuration and tensors (all present, right shapes, readable dtypes). */
    bool (*open)(struct arch_model *m, struct err *e);
    /* Builds programs into a fresh model of specification version 9 (functions, description, metadata). */
    bool (*build_embeddings)(struct arch_model *m, struct mil_model *out, struct err *e);
    bool (*build_chunk)(struct arch_model *m, int i_chunk, struct mil_model *out, struct err *e);
    bool (*build_head)(struct arch_model *m, struct mil_model *out, struct err *e);
    /* Family keys of meta.yaml (states, layer types, flags). */
    void (*fill_meta)(const struct arch_model *m, struct meta *meta);
};

/* Finds the family of config.json ("model_type"); ERR_UNSUPPORTED naming what was found and what is
 * supported. */
bool arch_open(struct arch_model **out, const char *checkpoint, const cJSON *config,
               const struct safetensors *tensors, const struct arch_settings *settings,
               struct err *e) MUST_CHECK;
void arch_close(struct arch_model *m); /* accepts NULL */
/* Layers [*begin, *end) of chunk i: consecutive, the first (n_layers mod n_chunks) chunks have one more. */
void arch_chunk_layers(const struct arch_model *m, int i_chunk, int64_t *begin, int64_t *end);

/* The layer that a tensor belongs to, by its name ("...layers.N...."); -1: none. */
int64_t arch_layer_of(const char *tensor);

/* Elements [begin, begin + n) of a weight are factor times the elements from `at` on of a tensor. */
struct arch_run {
    const struct st_tensor *tensor;
    int64_t begin, n, at;
    double factor;
};
/* The run that begins with this element of a weight, of at most n elements. false: the weight's numbers are not
 * a tensor's times a factor. */
bool arch_find_run(const struct mil_weight *w, int64_t begin, int64_t n, struct arch_run *out);

#endif
