/* Names of the package contract: files, functions, ports and states, each with what the contract says of it.
 *
 * Who writes packages (arch, convert) and who reads them (runtime, measure, inspect) takes the names from here.
 * In shapes: T = 1 for `infer`, batch_size for `prefill`; H = hidden_size; p is the position of the first token.
 */
#ifndef MILKIT_FORMAT_CONTRACT_H
#define MILKIT_FORMAT_CONTRACT_H

/* --- files ------------------------------------------------------------------------------------------------------- */

/* Description and runtime parameters. */
#define FILE_META "meta.yaml"
/* Names of models: a prefix, the part and what its weights are ("_lut6", "_int8", nothing for fp16); then the extension.
 * Embeddings: token ids to hidden states. LM head: final hidden state to logits. */
#define PART_EMBEDDINGS "embeddings"
#define PART_LM_HEAD "lm_head"
/* Decoder layers, functions `infer` and `prefill`. */
#define PART_DECODER "FFN_PF"
#define PART_NAME_FORMAT "%s_%s%s" /* prefix, part, weights */
/* One of several consecutive ranges of the layers, counted from 1: "_chunk_01of04" behind the name of the part. */
#define CHUNK_MARK "_chunk_"
#define CHUNK_SUFFIX_FORMAT CHUNK_MARK "%02dof%02d"

/* --- functions of a chunk ---------------------------------------------------------------------------------------- */

/* One token. In the last chunk the result is the final-normed hidden state of the token. */
#define FUNCTION_INFER "infer"
/* A full batch. In the last chunk the result is the final-normed hidden state of its last token alone. */
#define FUNCTION_PREFILL "prefill"

/* --- ports ------------------------------------------------------------------------------------------------------- */

/* Of the embeddings: [1, 1] or [1, batch_size] int32. */
#define PORT_INPUT_IDS "input_ids"
/* Out of the embeddings and into chunks: [1, T, H] fp16; into the first chunk what the embeddings gave, into another what the
 * chunk before it gave. Into the LM head: [1, 1, H]. */
#define PORT_HIDDEN_STATES "hidden_states"
/* Gemma 4, out of the embeddings: [1, T, per_layer_inputs] fp16, handed unchanged to every chunk, each of which reads the slices
 * of its own layers. */
#define PORT_PER_LAYER_INPUTS "per_layer_inputs"
/* [T] int32: p, p + 1, ..., for the rotary embedding. */
#define PORT_POSITION_IDS "position_ids"
/* [1, 1, T, context] fp16: rows p and following of the causal mask, 0 where column <= row, -inf elsewhere. */
#define PORT_CAUSAL_MASK "causal_mask"
/* [1] int32: p, where caches are written. */
#define PORT_CURRENT_POS "current_pos"
/* Out of a chunk: [1, T, H] fp16; of the last chunk's `prefill`: [1, 1, H]. */
#define PORT_OUTPUT_HIDDEN_STATES "output_hidden_states"
/* Out of the LM head: logits1 .. logitsN, N = split_lm_head, [1, 1, lm_head_chunk_sizes[i]] fp16. The logits of the vocabulary are
 * these in order; the first vocab_size % N parts are wider by one. */
#define PORT_LOGITS_FORMAT "logits%d"

/* --- states ------------------------------------------------------------------------------------------------------ */

/* All chunks declare the same states with the full shapes; a fresh state, all zeros, is an empty context.
 * [2 * layers, key heads, context, head_dim] fp16: keys of attention layer i at i, values at layers + i, position p at
 * [:, :, p, :]. Keys are stored after norm and rotary embedding. */
#define STATE_KV_CACHE "model_model_kv_cache_0"
/* Qwen3.5: [linear layers * value heads, d_k, d_v] fp16, the recurrent memory of every value head times sqrt(d_k). */
#define STATE_GDN "model_model_gdn_state_0"
/* Qwen3.5: [linear layers, K - 1, channels] fp16, the last K - 1 inputs of a layer's causal convolution, oldest first. */
#define STATE_CONV "model_model_conv_state_0"
/* Gemma 4: [layers, 2 * key heads, positions, head_dim] fp16, one slot for each layer that isn't shared, keys before values.
 * Layers with a sliding window; the cache may be a window that shifts by blocks (local_cache_length). */
#define STATE_KV_CACHE_LOCAL "model_model_kv_cache_local"
/* The same of the layers with full attention. */
#define STATE_KV_CACHE_GLOBAL "model_model_kv_cache_global"
/* What the names of all caches of keys and values begin with. */
#define STATE_KV_CACHE_STEM "model_model_kv_cache"

/* --- what ANEMLL's own packages have besides --------------------------------------------------------------------- */

#define PREFIX_ANEMLL "llama" /* where meta.yaml has no model_prefix */
/* The whole model in one file (model_type monolithic). */
#define PART_MONOLITHIC "monolithic_full"
/* The second file of a chunk where meta.yaml says split_rotate: its prefill functions, or its name with this behind. */
#define PART_PREFILL "PF"
#define ROTATE_SUFFIX "_rot"
/* `infer` and `prefill` once a sliding window's cache is full. */
#define FUNCTION_INFER_ROTATE "infer_rotate"
#define FUNCTION_PREFILL_ROTATE "prefill_rotate"
/* [1, 1, positions of the cache, T]: 1 where a token's row is written, 0 elsewhere. */
#define PORT_UPDATE_MASK "update_mask"
/* The only logits of an undivided head. */
#define PORT_LOGITS "logits"
#define PORT_OUTPUT_LOGITS "output_logits"
/* argmax_in_model: place of the best logit inside of each part of the vocabulary, and the logit. */
#define PORT_ARGMAX_INDEX "argmax_idx"
#define PORT_ARGMAX_VALUE "argmax_val"

#endif
