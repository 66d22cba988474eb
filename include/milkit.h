/* milkit: language models as Core ML packages, converted, checked and run on any Linux or macOS machine.
 *
 * This is the whole interface of libmilkit. C99 or later, and C++.
 *
 * Handles are opaque. Each keeps its parent alive, so the order in which handles are closed does not matter; closing NULL does
 * nothing. A function that can fail returns an mk_status and takes an mk_error ** last: NULL, or the place for an error object
 * that the caller frees. On failure output handles are NULL and nothing has changed, unless the function says otherwise.
 *
 * Structures that the caller fills begin with `size`, which is sizeof the structure; members that an older caller does not
 * know are taken as zero, so zero always means the default. Text is UTF-8 and does not depend on the locale.
 *
 * Threads. Library, package, model and function handles can't change after they were opened: any number of threads may use
 * them at once. Sessions, samplers, decoders, parsers, states, results and snapshots belong to one thread at a time. A library
 * owns one pool of threads: a call takes what is free of it, and no result depends on how much that was. Callbacks come on the
 * calling thread and must not call into the handle whose call they interrupt. Do not fork while handles are open and go on
 * using them in the child.
 *
 * The library never prints, never ends the process and installs no signal handlers, with one exception: when the system
 * refuses a small allocation (sizes that milkit chooses, not those of files), it calls abort(). Files of packages are mapped: they must not
 * change while they are open.
 */
#ifndef MILKIT_H
#define MILKIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define MK_API __attribute__((visibility("default")))
#else
#define MK_API
#endif

/* ---- version ---- */

#define MK_VERSION_MAJOR 0
#define MK_VERSION_MINOR 1
#define MK_VERSION_PATCH 0

/* Of the library that runs: major * 1000000 + minor * 1000 + patch. */
MK_API uint32_t mk_version(void);
MK_API const char *mk_version_string(void); /* "0.1.0" */
/* What this build can do, as a JSON object: "version", "compiler", "levels" (instruction sets that this processor has), "level"
 * (the one in use). Static text, made once. */
MK_API const char *mk_build_info(void);

/* ---- errors ---- */

typedef int32_t mk_status;
enum {
    MK_OK = 0,
    MK_FAILED = 1,      /* the system refused something, or an internal error */
    MK_USAGE = 2,       /* the call is wrong: an argument out of its range, an unknown option */
    MK_UNSUPPORTED = 3, /* well-formed, but not supported */
    MK_FORMAT = 4,      /* a bad input file */
    MK_OUTSIDE = 5,     /* checked, and outside the limits; logits that are not numbers */
    MK_LIMIT = 6,       /* out of memory, over a stated limit, or more than a buffer holds */
    MK_CANCELLED = 7    /* the caller asked to stop */
};
/* "ok", "failed", ... "cancelled"; "unknown" for other numbers. */
MK_API const char *mk_status_name(mk_status status);

typedef struct mk_error mk_error;
MK_API mk_status mk_error_status(const mk_error *e);
/* One sentence: what, where, what was expected and what was found. Owned by the error. */
MK_API const char *mk_error_message(const mk_error *e);
/* What can be done about it, as a word that the caller puts in its own terms; "": nothing is known to help. "force" (the output
 * exists), "resume" (what was finished is kept), "only", "chunks", "split-head", "lut": mk_convert's option of this name;
 * "convert": this is a checkpoint, make a package of it first; "check-layers": comparing layers with the checkpoint's finds
 * where. More may come. */
MK_API const char *mk_error_hint(const mk_error *e);
MK_API void mk_error_free(mk_error *e);

/* ---- the library ---- */

enum { MK_LOG_WARNING = 1, MK_LOG_INFO = 2, MK_LOG_DEBUG = 3 };
/* text: one message without a newline. */
typedef void (*mk_log_fn)(void *context, int32_t level, const char *text);

typedef struct {
    size_t size;
    int32_t threads;   /* of the pool, the caller's with them; 0: the processors that the process may use */
    int32_t log_level; /* the least important that is reported; 0: MK_LOG_WARNING */
    mk_log_fn log;     /* NULL: silent. May come from several threads at once when several threads call. */
    void *log_context;
} mk_options;

typedef struct mk_library mk_library;
MK_API mk_status mk_library_open(mk_library **out, const mk_options *options, mk_error **e);
MK_API void mk_library_close(mk_library *library);

/* Stopping a long call from anywhere: give the same object to the call and to whoever may want it to stop. */
typedef struct mk_cancel mk_cancel;
MK_API mk_cancel *mk_cancel_new(void);
/* From any thread, and from a signal handler. */
MK_API void mk_cancel_set(mk_cancel *c);
MK_API void mk_cancel_clear(mk_cancel *c);
MK_API void mk_cancel_free(mk_cancel *c);

typedef struct {
    size_t size;
    const char *stage;  /* "prompt", "writing", ... */
    const char *item;   /* what is being worked on, or NULL */
    double done, total; /* in `unit`; total 0: not known */
    const char *unit;   /* "tokens", "MB" */
    double seconds;     /* since the stage began */
} mk_progress;
/* False: stop, the call ends with MK_CANCELLED. At most ten times a second. */
typedef bool (*mk_progress_fn)(void *context, const mk_progress *progress);

/* What every long call takes; NULL for neither. */
typedef struct {
    size_t size;
    mk_cancel *cancel;
    mk_progress_fn progress;
    void *context;
} mk_call;

/* Text that the library made. */
typedef struct mk_text mk_text;
/* The bytes, with a zero behind them; *n (unless NULL) their number. */
MK_API const char *mk_text_data(const mk_text *t, size_t *n);
/* The token ids that belong to the text, where the function says that there are some. */
MK_API const int32_t *mk_text_ids(const mk_text *t, size_t *n);
MK_API void mk_text_free(mk_text *t);

/* ---- packages of language models ---- */

enum {
    MK_PRECISION_DEFAULT =
        0,                 /* float32 inside of fused steps, fp16 in caches: the promises about bits hold */
    MK_PRECISION_FP32 = 1, /* op by op in float32, states too */
    MK_PRECISION_FP16 = 2  /* op by op, each result rounded to fp16, as the hardware does */
};

typedef struct {
    size_t size;
    int32_t precision;
} mk_package_options;

typedef struct mk_package mk_package;
/* folder: of a package in ANEMLL's layout (meta.yaml, models as .mlmodelc or .mlpackage), or its meta.yaml. */
MK_API mk_status mk_package_open(mk_package **out, mk_library *library, const char *folder,
                                 const mk_package_options *options, mk_error **e);
MK_API void mk_package_close(mk_package *p);
/* A JSON object: "name", "architecture", "context_length", "batch_size", "vocab_size", "hidden_size", "chunks", "sequential",
 * "has_tokenizer", "end_ids", "recommended_sampling" (absent where there is none). Owned by the package. */
MK_API const char *mk_package_info(const mk_package *p);
MK_API int64_t mk_package_context_length(const mk_package *p);
MK_API int32_t mk_package_vocab_size(const mk_package *p);

/* ---- text in and out ---- */

enum {
    MK_SPECIAL =
        1 /* tokenize: add what the tokenizer's post-processor adds (a begin of text); detokenize: keep special tokens */
};

/* *n is what there is; when that is more than capacity: MK_LIMIT, and nothing is written. ids may be NULL with capacity 0. */
MK_API mk_status mk_tokenize(const mk_package *p, const char *text, size_t bytes, uint32_t flags,
                             int32_t *ids, size_t capacity, size_t *n, mk_error **e);
MK_API mk_status mk_detokenize(const mk_package *p, const int32_t *ids, size_t n, uint32_t flags,
                               mk_text **out, mk_error **e);
/* An end of text or of a turn: where generation stops. */
MK_API bool mk_token_is_end(const mk_package *p, int32_t id);

/* Ids one at a time, text in whole characters: everything given out, put together, is mk_detokenize of all ids. */
typedef struct mk_decoder mk_decoder;
MK_API mk_status mk_decoder_new(mk_decoder **out, const mk_package *p, uint32_t flags, mk_error **e);
/* *text [*n bytes], a zero behind them, borrowed until the next call; *n may be 0. */
MK_API mk_status mk_decoder_add(mk_decoder *d, int32_t id, const char **text, size_t *n, mk_error **e);
MK_API mk_status mk_decoder_finish(mk_decoder *d, const char **text, size_t *n, mk_error **e);
MK_API void mk_decoder_free(mk_decoder *d);

/* Messages through the package's chat template. JSON in the form of OpenAI and Hugging Face: messages is an array; tools an array or
 * NULL; options an object of further variables (add_generation_prompt, enable_thinking, ..) or NULL. The text, and its ids: user data
 * never becomes special tokens. JSON that is not valid, and messages that the template refuses, are MK_FORMAT. */
MK_API mk_status mk_template(const mk_package *p, const char *messages_json, const char *tools_json,
                             const char *options_json, mk_text **out, mk_error **e);

/* Takes what a model says apart, in pieces of any size. Whatever is not a well-formed call is content: nothing is lost. */
enum { MK_PART_CONTENT = 0, MK_PART_REASONING = 1, MK_PART_TOOL_CALL = 2 };
/* text [n]: the next piece of content or reasoning, or a call's arguments (a JSON object); name: of a call, else NULL. */
typedef void (*mk_part_fn)(void *context, int32_t part, const char *text, size_t n, const char *name);
typedef struct mk_parser mk_parser;
/* prompt: the text that the model goes on from (it may have opened a thinking block), or NULL. tools_json: as in mk_template. The text
 * to push is that of a decoder with MK_SPECIAL. */
MK_API mk_status mk_parser_new(mk_parser **out, const mk_package *p, const char *prompt,
                               const char *tools_json, mk_part_fn fn, void *context, mk_error **e);
MK_API void mk_parser_push(mk_parser *parser, const char *text, size_t n);
MK_API void mk_parser_finish(mk_parser *parser);
MK_API void mk_parser_free(mk_parser *parser);

/* ---- sampling ---- */

typedef struct mk_sampler mk_sampler;
/* settings_json: an object, or NULL: "greedy" (bool), "temperature", "top_k", "top_p", "min_p", "repetition_penalty",
 * "presence_penalty", "frequency_penalty", "repetition_window", "seed". What is not given is what the package recommends (greedy where it recommends nothing); without a seed each sampler has another one.
 * An unknown key or a value out of its range is MK_USAGE. The same seed and logits give the same tokens on every machine. */
MK_API mk_status mk_sampler_new(mk_sampler **out, const mk_package *p, const char *settings_json,
                                mk_error **e);
/* Of logits [n] (n is the vocabulary's size) after the tokens history [n_history]. MK_OUTSIDE when no logit is a number. */
MK_API mk_status mk_sampler_pick(mk_sampler *s, const float *logits, size_t n, const int32_t *history,
                                 size_t n_history, int32_t *id, mk_error **e);
MK_API void mk_sampler_free(mk_sampler *s);

/* ---- sessions ---- */

/* One timeline of tokens. Callers hand over token sequences; the session alone knows the call sequence of the package, what can be
 * rewound and what must be computed again. Results have the same bits however tokens are cut into calls. */
typedef struct mk_session mk_session;
MK_API mk_status mk_session_new(mk_session **out, mk_package *p, mk_error **e);
MK_API void mk_session_free(mk_session *s);
/* Makes the context equal to ids [n], n >= 1, keeping or restoring the longest known prefix; then logits are those after the last
 * one. *reused (unless NULL): ids that were not computed again. More than the context holds: MK_LIMIT. After another failure, or
 * when it was stopped, mk_session_tokens says what the context holds. */
MK_API mk_status mk_session_sync(mk_session *s, const int32_t *ids, size_t n, const mk_call *call,
                                 size_t *reused, mk_error **e);
/* Appends one token; logits are those after it. */
MK_API mk_status mk_session_step(mk_session *s, int32_t id, mk_error **e);
/* [vocab_size] after the newest token, rounded to fp16 as the package declares; borrowed until the next call. NULL when there
 * are none (an empty context). */
MK_API const float *mk_session_logits(const mk_session *s);
/* What the context holds; borrowed until the next call. */
MK_API const int32_t *mk_session_tokens(const mk_session *s, size_t *n);
/* Stops the call that is running on the session, from any thread and from a signal handler; the call ends with MK_CANCELLED. Without
 * such a call it has no effect on later ones. */
MK_API void mk_session_cancel(mk_session *s);

enum { MK_END_LENGTH = 0, MK_END_STOP = 1, MK_END_CONTEXT = 2, MK_END_CALLER = 3 };
/* False: stop after this token. */
typedef bool (*mk_token_fn)(void *context, int32_t id);
/* Samples and feeds until an end token (not given out), `limit` tokens (negative: no limit), the end of the context, or fn's word;
 * *end (unless NULL) says which, *n how many tokens were given out, also on failure. The session must have logits. */
MK_API mk_status mk_session_generate(mk_session *s, mk_sampler *sampler, int64_t limit, mk_token_fn fn,
                                     void *context, const mk_call *call, size_t *n, int32_t *end,
                                     mk_error **e);
/* The whole state as a file, and back. The file belongs to the package's weights: another package's, or a damaged one, is
 * MK_FORMAT, and the session is unchanged. */
MK_API mk_status mk_session_save(const mk_session *s, const char *path, mk_error **e);
MK_API mk_status mk_session_load(mk_session *s, const char *path, mk_error **e);

/* ---- any Core ML model (ML Program) ---- */

enum {
    MK_F32 = 1,
    MK_F16 = 2,
    MK_F64 = 3,
    MK_I32 = 4,
    MK_I16 = 5,
    MK_I8 = 6,
    MK_U8 = 7,
    MK_BOOL = 8 /* a byte: 0 or 1 */
};
#define MK_RANK_MAX 8

typedef struct {
    size_t size;
    int32_t type, rank;
    int64_t dims[MK_RANK_MAX];
    int64_t strides[MK_RANK_MAX]; /* in bytes; all zeros: dense, row-major */
    void *data;                   /* element (0, 0, ..) */
} mk_tensor;

typedef struct {
    size_t size;
    const char *name;
    int32_t type, rank;        /* as declared */
    int64_t dims[MK_RANK_MAX]; /* the default shape of a flexible input; -1: known by running */
} mk_port;

typedef struct {
    size_t size;
    int32_t precision;
} mk_model_options;

typedef struct mk_model mk_model;
/* path: one .mlpackage, .mlmodelc or .mlmodel. */
MK_API mk_status mk_model_open(mk_model **out, mk_library *library, const char *path,
                               const mk_model_options *options, mk_error **e);
MK_API void mk_model_close(mk_model *m);
MK_API size_t mk_model_functions(const mk_model *m);
/* NULL behind the last. */
MK_API const char *mk_model_function_name(const mk_model *m, size_t i);

typedef struct mk_function mk_function;
/* name NULL: the default function. */
MK_API mk_status mk_function_open(mk_function **out, mk_model *m, const char *name, mk_error **e);
MK_API void mk_function_close(mk_function *f);
enum { MK_INPUTS = 0, MK_OUTPUTS = 1, MK_STATES = 2 };
MK_API size_t mk_function_ports(const mk_function *f, int32_t kind);
/* MK_USAGE behind the last. The name is the function's. */
MK_API mk_status mk_function_port(const mk_function *f, int32_t kind, size_t i, mk_port *out, mk_error **e);

/* What a model keeps between calls, zeros at first. A state may be given to any function of any model that declares the same names
 * and shapes, one call at a time: chunks of a language model share one. */
typedef struct mk_state mk_state;
MK_API mk_status mk_state_new(mk_state **out, const mk_function *f, mk_error **e);
/* Contents by name. t->data NULL: only type and shape are filled in; else they must match (MK_USAGE). */
MK_API mk_status mk_state_read(const mk_state *s, const char *name, mk_tensor *t, mk_error **e);
MK_API mk_status mk_state_write(mk_state *s, const char *name, const mk_tensor *t, mk_error **e);
MK_API void mk_state_free(mk_state *s);

typedef struct mk_result mk_result;
/* One call: names [n] and inputs [n], converted to the types that the function declares. state: needed when the function declares
 * states, else NULL; what it holds after a call that failed or was stopped is not defined. Several threads may call the same function at once, each with its own state. */
MK_API mk_status mk_predict(mk_function *f, const char *const *names, const mk_tensor *inputs, size_t n,
                            mk_state *state, const mk_call *call, mk_result **out, mk_error **e);
MK_API size_t mk_result_count(const mk_result *r);
/* Output i: its name and a dense tensor in the declared type, both the result's. MK_USAGE behind the last. */
MK_API mk_status mk_result_get(const mk_result *r, size_t i, const char **name, mk_tensor *t, mk_error **e);
MK_API void mk_result_free(mk_result *r);

/* ---- tools ---- */

/* Each takes its options as a JSON object, or NULL. An unknown key is MK_USAGE. */

/* Keys are long options of the command of this name without dashes: "context", "batch", "split-head", "gdn-chunk", "threads"
 * (numbers), "chunks" (a number or "auto"), "prefix", "format", "lut-embeddings", "lut-ffn", "lut-head", "lut-method",
 * "quant-embeddings", "quant-ffn", "quant-head", "only", "report" (a file) (strings), "force", "resume", "anemll-rotate",
 * "exact-norms", "exact-topk" (true or false). The command runs some tokens of what it has written; this function does not: mk_package_open and
 * a session do. *report (unless NULL): a JSON object. */
MK_API mk_status mk_convert(mk_library *library, const char *checkpoint, const char *output,
                            const char *options_json, const mk_call *call, mk_text **report, mk_error **e);
/* .mlpackage to .mlmodelc. "force": replace what is there. */
MK_API mk_status mk_compile(mk_library *library, const char *package, const char *output,
                            const char *options_json, mk_error **e);

/* What is in a file or folder of any kind that milkit reads (package, model, checkpoint, weight file, tokenizer), as a JSON object, the one
 * that `milkit inspect --json` prints: "schema", "path", "kind", and what there is. Nothing is run. */
MK_API mk_status mk_inspect(mk_library *library, const char *path, mk_text **out, mk_error **e);

#ifdef __cplusplus
}
#endif
#endif
