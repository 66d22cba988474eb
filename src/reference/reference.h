/* The yardstick: a float32 forward pass straight from a checkpoint folder (config.json and safetensors) or
 * a GGUF file.
 *
 * Slow and obviously right. It shares no code with arch, mil or engine but what reads settings and finds tensors
 * (format/), and computes what the published model code computes, so that an error of the converter or of the engine
 * can't hide in both sides of a comparison. Weights stay mapped; a few rows at a time become float32.
 */
#ifndef MILKIT_REFERENCE_REFERENCE_H
#define MILKIT_REFERENCE_REFERENCE_H

#include "base/log.h"
#include "base/mem.h"

struct reference_options {
    const char *config_overrides; /* a JSON file: keys of the config.json of a GGUF file; NULL: none */
    int n_threads;                /* 0: all processors */
    struct log *log;              /* asked for cancellation; may be NULL */
    /* Constants that a package makes of the checkpoint and holds as one fp16 number are rounded to it: gains 1 + w,
     * cos and sin, decay rates, the scale of scores. For tests, which tell this from what else a package is off by. */
    bool fp16_constants;
};

/* Immutable after opening; one session at a time may run on it. */
struct reference {
    const char *checkpoint;
    const char *family; /* "qwen3", "qwen3_5" */
    int64_t vocab_size, hidden_size, n_layers;
    int64_t max_positions; /* max_position_embeddings of config.json */
    struct reference_parts *parts;
};

/* Every tensor that the model needs is looked up and its shape and type checked here. */
bool reference_open(struct reference **out, const char *checkpoint, const struct reference_options *options,
                    struct err *e) MUST_CHECK;
void reference_close(struct reference *r); /* accepts NULL */

/* One timeline of tokens with a float32 KV cache for n_positions. */
struct reference_session;
bool reference_session_new(struct reference_session **out, struct reference *r, int64_t n_positions,
                           struct err *e) MUST_CHECK;
void reference_session_free(struct reference_session *s); /* accepts NULL */
void reference_session_reset(struct reference_session *s);
int64_t reference_session_position(const struct reference_session *s); /* tokens in the context */

/* logits [vocab_size] after the token at `position`; borrowed until the next call. false: stop (e filled). */
typedef bool (*reference_logits_fn)(void *context, int64_t position, const float *logits, struct err *e);

/* Appends n tokens; batches of them share one pass over the weights. on_logits is called for every token,
 * in order; NULL: only the logits of the last token are computed. More tokens than the session has room for:
 * ERR_LIMIT, nothing is done. After any other error the session must be reset. */
bool reference_feed(struct reference_session *s, const int32_t *tokens, size_t n,
                    reference_logits_fn on_logits, void *context, struct err *e) MUST_CHECK;
/* [vocab_size] after the last token that was fed. */
const float *reference_logits(const struct reference_session *s);

/* Rows [n, hidden_size] of the residual stream of the tokens from `position` on: layer -1 is the embeddings,
 * 0 .. n_layers - 1 what a layer leaves, n_layers the final norm. */
typedef void (*reference_watch_fn)(void *context, int64_t layer, int64_t position, int64_t n,
                                   const float *rows);
/* fn NULL: nobody watches. */
void reference_watch(struct reference_session *s, reference_watch_fn fn, void *context);

/* What a layer remembers after the tokens so far. Of keys (normed and turned) and values the first
 * reference_session_position() rows of each head count. */
enum reference_state_kind {
    REFERENCE_KEYS,   /* [n_kv_heads, positions, head_dim] */
    REFERENCE_VALUES, /* alike */
    REFERENCE_MEMORY, /* S of the delta rule, [value heads, d_k, d_v], without a factor */
    REFERENCE_WINDOW  /* rows before the convolution, oldest first, [kernel - 1, channels] */
};
struct reference_state {
    int rank;
    int64_t shape[3];
    const float *data; /* of the session, changed by the next call */
};
/* false: a layer of this type has no such state (or there is no such layer). */
bool reference_state(const struct reference_session *s, int64_t layer, enum reference_state_kind kind,
                     struct reference_state *out);

/* ---- what a weight's error does ---- */

/* Other numbers in place of some of the checkpoint's. Elements of a tensor count in its order in the file. */
struct reference_replacement {
    void *context;
    /* Are some of elements [begin, begin + n) of this tensor replaced? Then a handle >= 0, else -1. */
    int64_t (*find)(void *context, const char *tensor, int64_t begin, int64_t n);
    /* values [n]: the elements [begin, begin + n) of what the handle was given for; overwrites those that are
     * replaced. Called from several threads. */
    void (*replace)(void *context, int64_t handle, int64_t begin, int64_t n, float *values);
};

/* Goes through a text layer by layer, with all its tokens at once, and runs each layer as often as wanted:
 * first as it is, then with replaced numbers. Products that a replacement does not change are kept from the
 * first run, so memory holds what one layer's products take and give. */
struct reference_probe;
bool reference_probe_new(struct reference_probe **out, struct reference *r, const int32_t *tokens, size_t n,
                         struct err *e) MUST_CHECK;
void reference_probe_free(struct reference_probe *p); /* accepts NULL */
/* On to the next layer, the first one at first: *rows [n, hidden_size] is what it leaves of the residual
 * stream, until the next call of this function. There must be one. */
bool reference_probe_next(struct reference_probe *p, const float **rows, struct err *e) MUST_CHECK;
/* The same with replaced numbers, *rows until the next call of either. */
bool reference_probe_replaced(struct reference_probe *p, const struct reference_replacement *replacement,
                              const float **rows, struct err *e) MUST_CHECK;

/* ---- inputs of weights (inputs.c) ---- */

/* Runs a checkpoint layer by layer over texts and shows what its matrices are multiplied with. */
struct reference_inputs;
/* tokens [n] are cut into texts of n_text tokens, each of which begins at position 0 and sees nothing of the others. Memory:
 * twice the residual stream of all tokens, and what a session of n_text positions remembers (one for each text where layers read
 * what others have remembered). ERR_USAGE for a token beyond the vocabulary. */
bool reference_inputs_new(struct reference_inputs **out, struct reference *r, const int32_t *tokens, size_t n,
                          size_t n_text, struct err *e) MUST_CHECK;
void reference_inputs_free(struct reference_inputs *p); /* accepts NULL */
/* A product: x [n, columns] with the transposed matrix of rows `first / columns` .. of this tensor of the checkpoint. */
struct reference_input {
    const char *tensor;
    int64_t first, rows, columns; /* first: element of the tensor */
    const float *x;
    int64_t n, text, expert; /* expert: 0, or from 1 on the one that has been given n tokens of the text */
};
/* false: nothing of this text is of interest any more; what follows in the layer is not computed. */
typedef bool (*reference_input_fn)(void *context, const struct reference_input *in);
/* The next layer, from layer 0 on, text after text, with replaced numbers (NULL: none): show is called for every product with a
 * matrix whose numbers stand together in a tensor, in their order. show NULL: nobody looks. As often as wanted; the last time
 * before reference_inputs_go_on nobody may have stopped it. Beyond the last layer: ERR_BUG. */
bool reference_inputs_run(struct reference_inputs *p, const struct reference_replacement *replacement,
                          reference_input_fn show, void *context, struct err *e) MUST_CHECK;
/* What the layer left the last time is what the next one gets. */
void reference_inputs_go_on(struct reference_inputs *p);
/* After the last layer: shows what the head is multiplied with. */
bool reference_inputs_finish(struct reference_inputs *p, reference_input_fn show, void *context,
                             struct err *e) MUST_CHECK;

/* ---- gradients (gradients.c) ---- */

/* Who wants gradients. Elements of a tensor count in its order in the file. */
struct reference_gradient_sink {
    void *context;
    /* Are the gradients of elements [begin, begin + n) of this tensor wanted? Then a handle >= 0, else -1. */
    int64_t (*find)(void *context, const char *tensor, int64_t begin, int64_t n);
    /* values [n]: a text's gradients of elements [begin, begin + n), each element once a text and step; those of a table's rows
     * that a text does not have are 0 and not told. Called from several threads, for elements apart. */
    void (*give)(void *context, int64_t handle, int64_t begin, int64_t n, const float *values);
};

/* Derivatives of a loss by the checkpoint's matrices: of each text by itself, the sum over its tokens but the first of -log p(token).
 * The same numbers for any number of threads and any instruction set. */
struct reference_gradients;
/* Runs forward. tokens [n] are cut into texts of n_text tokens, each of which begins at position 0 and sees nothing of the others.
 * Memory: a layer's values for one text; where layers read what others have remembered, a session for each text; and the
 * residual stream of all tokens in front of each layer, in a file of this folder or, folder NULL, in memory. ERR_USAGE for a
 * token beyond the vocabulary. */
bool reference_gradients_new(struct reference_gradients **out, struct reference *r, const int32_t *tokens,
                             size_t n, size_t n_text, const char *folder, struct err *e) MUST_CHECK;
void reference_gradients_free(struct reference_gradients *p); /* accepts NULL */
/* The next step, text after text: first what is behind the layers, the head with them, then layer after layer from the last to
 * the first, then what is in front of them. A matrix that is tied to another one has its gradients where it is used. sink NULL:
 * nobody wants any. Beyond the last step: ERR_BUG. */
bool reference_gradients_next(struct reference_gradients *p, const struct reference_gradient_sink *sink,
                              struct err *e) MUST_CHECK;
/* The layer of the next step: n_layers, n_layers - 1, .. 0, -1. */
int64_t reference_gradients_layer(const struct reference_gradients *p);
/* Over all texts, after the first step. */
double reference_gradients_loss(const struct reference_gradients *p);

#endif
