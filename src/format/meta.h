/* meta.yaml of a package: all keys of the contract, read in three nestings (model_info.parameters,
 * model_info, top level; the deeper one wins), written in ANEMLL's (model_info.parameters).
 *
 * Unknown keys are kept apart (unknown_keys) and have no effect. A bad value is an error where the key says how a package
 * is called or where its files are; of a key that only informs it counts as absent (warnings). Missing keys take the defaults of ANEMLL's readers:
 * prefill_last_token_output false, split_lm_head 8, batch_size 32, context_length 2048, num_chunks 1.
 * All memory belongs to the struct; free with meta_free.
 */
#ifndef MILKIT_FORMAT_META_H
#define MILKIT_FORMAT_META_H

#include "base/file.h"
#include "format/sampling.h"

#define META_NONE (-1) /* of lut_*: the key says "none" or is absent */

struct meta_state {
    char *name;
    char *dtype;
    int rank;
    int64_t shape[8];
    int n_layers;
    int *layers;
};

struct meta_pair {
    int key, value;
};

struct meta {
    char *path; /* where it was read from; NULL for a new one */
    char *name, *version, *description, *license, *author, *framework, *language, *architecture, *model_type;
    int64_t context_length, batch_size;
    int lut_embeddings, lut_ffn, lut_lmhead;                                     /* bits or META_NONE */
    int lut_embeddings_per_channel, lut_ffn_per_channel, lut_lmhead_per_channel; /* 0: absent */
    char *quant_embeddings, *quant_ffn, *quant_lmhead; /* "int8", "int4,32" or NULL */
    double lut_ffn_mixed;                              /* 0: absent */
    char *lut_method;                                  /* written as a trailing comment; NULL: none */
    int num_chunks;
    char *model_prefix;
    char *embeddings, *lm_head, *ffn, *pf, *monolithic_model; /* file names, NULL when the key is absent */
    int split_lm_head;
    bool argmax_in_model;
    int64_t vocab_size; /* 0: absent */
    int n_lm_head_chunk_sizes;
    int64_t *lm_head_chunk_sizes;
    bool prefill_dynamic_slice, prefill_last_token_output, update_mask_prefill;
    int64_t hidden_size, num_layers; /* 0: absent */
    struct recommended_sampling sampling;
    bool recurrent_state, prefill_full_batches_only;
    int64_t gdn_chunk_size;                 /* 0: absent */
    int moe_experts, moe_experts_per_token; /* 0: absent */
    char *moe_evaluation;
    int n_layer_types;
    char **layer_types;
    int n_states;
    struct meta_state *states;
    int64_t local_attention_window, local_cache_length, per_layer_inputs; /* 0: absent */
    double final_logit_softcap;                                           /* 0: absent */
    double residual_scale; /* of the residual stream between the programs; 0: absent, 1 */
    int n_kv_shared_layers;
    struct meta_pair *kv_shared_layers;
    int64_t sliding_window; /* ANEMLL's own key; 0: absent */
    bool split_rotate, single_cache;
    uint64_t present[2]; /* of the keys that meta.c knows: meta_has */
    int n_unknown_keys;
    char **unknown_keys; /* "model_info.parameters.foo" */
    int n_warnings;
    char **warnings; /* a sentence each about an informational key whose value is bad and counts as absent */
};

/* A new one with the defaults of our own packages: version 0.3.5, everything else absent. */
struct meta *meta_new(void);
bool meta_parse(struct meta **out, const char *text, size_t bytes, const char *where,
                struct err *e) MUST_CHECK;
bool meta_read(struct meta **out, const char *path, struct err *e) MUST_CHECK;
void meta_free(struct meta *m); /* accepts NULL */
/* Does the file give a value (not null) for a key that is known, like "batch_size"? */
bool meta_has(const struct meta *m, const char *key);
/* Appends the file's text: keys in the order of spec/package-format.md, extension keys only when set. */
void meta_write(const struct meta *m, struct buf *out);

#endif
