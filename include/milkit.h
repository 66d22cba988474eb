/* milkit: language models as Core ML packages, converted, checked and run on any Linux or macOS machine.
 *
 * This is the whole interface of libmilkit. C99 or later, and C++.
 *
 * Handles are opaque. Each keeps its parent alive, so the order in which handles are closed does not matter; closing NULL does
 * nothing. A function that can fail returns an mk_status and takes an mk_error ** last: NULL, or the place for an error object
 * that the caller frees. On failure output handles are NULL and nothing has changed, unless the function says otherwise.
 * Comments name the statuses that a caller can bring about; every function that can fail may also give MK_FAILED (the system
 * refused something) and MK_LIMIT (more memory than there is, or than a stated limit).
 *
 * Whose memory. Strings and arrays that a call is given are read during the call and may go afterwards; a callback and its context
 * must stay until what they were given to is closed. `const` pointers that come back belong to the handle that was asked, and live as
 * long as it, unless the function says "until"; whatever comes back through a handle ** is the caller's, and is freed with the function of
 * its name. Counts are of elements, and sizes that are of bytes say so; times are in seconds; shapes stand in brackets, the slowest dimension first.
 *
 * Structures that the caller fills begin with `size`, which is sizeof the structure; members that an older caller does not
 * know are taken as zero, so zero always means the default. Text is UTF-8 and does not depend on the locale.
 *
 * Threads. Library, package, tokenizer, model and function handles can't change after they were opened: any number of threads may use
 * them at once, and so can snapshots. Sessions, chats, samplers, decoders, parsers, states and results belong to one thread at a time; only the functions that
 * stop a call (mk_cancel_set, mk_session_cancel, mk_chat_cancel) may be called from others meanwhile. A library
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

/* Of the library that runs, from any thread at any time: major * 1000000 + minor * 1000 + patch. */
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

/* Why a call failed: the caller's, apart from all handles, for one thread at a time. */
typedef struct mk_error mk_error;
MK_API mk_status mk_error_status(const mk_error *e); /* MK_OK for NULL */
/* One sentence: what, where, what was expected and what was found; "" for NULL. Owned by the error. */
MK_API const char *mk_error_message(const mk_error *e);
/* What can be done about it, as a word of static text that the caller puts in its own terms; "": nothing is known to help. "force" (the output
 * exists), "resume" (what was finished is kept), "only", "chunks", "split-head", "lut": mk_convert's option of this name;
 * "convert": this is a checkpoint, make a package of it first; "check-layers": comparing layers with the checkpoint's finds
 * where. More may come. */
MK_API const char *mk_error_hint(const mk_error *e);
/* What a chat template itself said (raise_exception), without milkit's words around it; NULL for all other errors. Owned by the error. */
MK_API const char *mk_error_detail(const mk_error *e);
MK_API void mk_error_free(mk_error *e);

/* ---- the library ---- */

enum { MK_LOG_WARNING = 1, MK_LOG_INFO = 2, MK_LOG_DEBUG = 3 };
/* text: one message without a newline, borrowed for the time of the call; level: MK_LOG_.. */
typedef void (*mk_log_fn)(void *context, int32_t level, const char *text);

typedef struct {
    size_t size;
    int32_t threads;   /* of the pool, the caller's with them; 0: the processors that the process may use */
    int32_t log_level; /* the least important that is reported; 0: MK_LOG_WARNING */
    mk_log_fn log;     /* NULL: silent. May come from several threads at once when several threads call. */
    void *log_context;
} mk_options;

/* The pool of threads and what reports go to: the parent of all other handles. */
typedef struct mk_library mk_library;
/* options may be NULL, and are copied. MK_USAGE: a number out of its range, or an instruction set in MILKIT_CPU that this processor does not have. */
MK_API mk_status mk_library_open(mk_library **out, const mk_options *options, mk_error **e);
MK_API void mk_library_close(mk_library *library);

/* Stopping a long call from anywhere: give the same object to the call and to whoever may want it to stop. */
typedef struct mk_cancel mk_cancel;
MK_API mk_cancel *mk_cancel_new(void); /* never NULL */
/* From any thread, and from a signal handler. */
MK_API void mk_cancel_set(mk_cancel *c);
/* From now on calls with it run again: when none is running. */
MK_API void mk_cancel_clear(mk_cancel *c);
/* When no call with it is running. */
MK_API void mk_cancel_free(mk_cancel *c);

typedef struct {
    size_t size;
    const char *stage;  /* "prompt", "writing", ... */
    const char *item;   /* what is being worked on, or NULL */
    double done, total; /* in `unit`; total 0: not known */
    const char *unit;   /* "tokens", "MB" */
    double seconds;     /* since the stage began */
} mk_progress;
/* False: stop, the call ends with MK_CANCELLED. At most ten times a second, on the calling thread; progress and its texts are borrowed for
 * the time of the call. */
typedef bool (*mk_progress_fn)(void *context, const mk_progress *progress);

/* What every long call takes; NULL for neither. Used until the call ends. A wrong size is MK_USAGE. */
typedef struct {
    size_t size;
    mk_cancel *cancel;       /* NULL: nobody stops it so; one object may stop several calls */
    mk_progress_fn progress; /* NULL: not told */
    void *context;           /* of progress */
} mk_call;

/* Text that the library made: the caller's, apart from all handles. It can't change, so any thread may read it. */
typedef struct mk_text mk_text;
/* The bytes, with a zero behind them; *n (unless NULL) their number. */
MK_API const char *mk_text_data(const mk_text *t, size_t *n);
/* [*n] token ids that belong to the text, where the function says that there are some; else NULL and 0. */
MK_API const int32_t *mk_text_ids(const mk_text *t, size_t *n);
MK_API void mk_text_free(mk_text *t);

/* ---- packages of language models ---- */

enum {
    MK_PRECISION_DEFAULT =
        0,                 /* float32 inside of fused steps, fp16 in caches: the promises about bits hold */
    MK_PRECISION_FP32 = 1, /* op by op in float32, states too */
    MK_PRECISION_FP16 = 2, /* op by op, each result rounded to fp16 */
    MK_PRECISION_ANE = 3 /* op by op, the Neural Engine's arithmetic, emulated from published measurements */
};

/* What of a package's text a caller needs. */
enum {
    MK_TEXT_DEFAULT =
        0, /* tokenizer and templates that are there are read; a tokenizer that can't be read is an error */
    MK_TEXT_NONE = 1 /* token ids alone */
};

typedef struct {
    size_t size;
    int32_t precision;     /* MK_PRECISION_.. */
    int32_t text;          /* MK_TEXT_.. */
    const char *emulation; /* switches of MK_PRECISION_ANE, "norm=fp16"; NULL: the defaults */
    const char *
        backend; /* what computes: "engine" or "coreml" (Apple's systems; elsewhere MK_UNSUPPORTED); NULL: the engine */
    const char
        *compute_units; /* of "coreml": "cpu-and-ane", "cpu-and-gpu", "cpu-only", "all"; NULL: the first */
} mk_package_options;

/* A package, mapped, with its tokenizer. */
typedef struct mk_package mk_package;
/* options may be NULL. folder: of a package in ANEMLL's layout (meta.yaml, models as .mlmodelc or .mlpackage), or its meta.yaml. Maps and plans: milliseconds
 * whatever the size, beside the tokenizer. MK_FORMAT: it is something else, or damaged. MK_UNSUPPORTED: it has what milkit does not run. MK_USAGE:
 * a precision, text, backend or units that are none of the above. */
MK_API mk_status mk_package_open(mk_package **out, mk_library *library, const char *folder,
                                 const mk_package_options *options, mk_error **e);
MK_API void mk_package_close(mk_package *p);
/* A JSON object: "path", "name", "architecture", "context_length", "batch_size", "vocab_size", "hidden_size", "chunks", "sequential",
 * "has_tokenizer", "end_ids", "recommended_sampling" (absent where there is none). Owned by the package. */
MK_API const char *mk_package_info(const mk_package *p);
/* The folder; and the name that meta.yaml gives, or NULL. Owned by the package. */
MK_API const char *mk_package_path(const mk_package *p);
MK_API const char *mk_package_name(const mk_package *p);
/* In tokens: what a session holds at most, and the calls of its prompts. */
MK_API int64_t mk_package_context_length(const mk_package *p);
MK_API int64_t mk_package_batch_size(const mk_package *p);
/* Ids of the model are below this: the length of logits. */
MK_API int32_t mk_package_vocab_size(const mk_package *p);
/* An end of text or of a turn: where generation stops. */
MK_API bool mk_package_is_end(const mk_package *p, int32_t id);

/* ---- text in and out ---- */

/* The tokenizer and the chat templates of a folder. */
typedef struct mk_tokenizer mk_tokenizer;

enum { MK_READ_TOKENIZER = 1, MK_READ_TEMPLATES = 2 };
typedef struct {
    size_t size;
    uint32_t
        parts; /* MK_READ_..: these must be there. 0: the tokenizer must, templates are read where there are some */
} mk_tokenizer_options;

/* path: a package, a checkpoint or any folder with a tokenizer.json, or that file. No model is opened. MK_FAILED: something is not
 * there; MK_FORMAT: something is damaged, or there are no templates. options may be NULL. */
MK_API mk_status mk_tokenizer_open(mk_tokenizer **out, mk_library *library, const char *path,
                                   const mk_tokenizer_options *options, mk_error **e);
MK_API void mk_tokenizer_close(mk_tokenizer *t);
/* A package's own, which the package closes; never NULL. Of a package without a tokenizer, or opened with MK_TEXT_NONE, it has nothing in it: the
 * functions below then fail with MK_FORMAT and say so. */
MK_API const mk_tokenizer *mk_package_tokenizer(const mk_package *p);
/* Ids are below this; 0: there is no tokenizer. */
MK_API int32_t mk_tokenizer_size(const mk_tokenizer *t);

enum {
    MK_SPECIAL =
        1 /* tokenize: add what the tokenizer's post-processor adds (a begin of text); detokenize: keep special tokens */
};

/* text [bytes] to ids [capacity]. *n is what there is; when that is more than capacity: MK_LIMIT, and nothing is written. ids may be NULL with
 * capacity 0. MK_FORMAT: an id that is not one of the package's model. */
MK_API mk_status mk_tokenize(const mk_tokenizer *t, const char *text, size_t bytes, uint32_t flags,
                             int32_t *ids, size_t capacity, size_t *n, mk_error **e);
/* ids [n] to text, without ids of its own. Ids that no token has are left out, as the tokenizers library does. MK_USAGE: unknown flags. */
MK_API mk_status mk_detokenize(const mk_tokenizer *t, const int32_t *ids, size_t n, uint32_t flags,
                               mk_text **out, mk_error **e);

/* The bytes that a token stands for inside of a text, to bytes [capacity]; *n is what there is, none for an id without a token. They need not be whole
 * characters. Special tokens stand for nothing without MK_SPECIAL, and for their names with it. More than capacity: MK_LIMIT, and nothing is
 * written. */
MK_API mk_status mk_token_bytes(const mk_tokenizer *t, int32_t id, uint32_t flags, char *bytes,
                                size_t capacity, size_t *n, mk_error **e);
/* Ids one at a time, text in whole characters: everything given out, put together, is mk_detokenize of all ids. */
typedef struct mk_decoder mk_decoder;
/* flags: 0 or MK_SPECIAL, as in mk_detokenize (else MK_USAGE). MK_FORMAT: there is no tokenizer. */
MK_API mk_status mk_decoder_new(mk_decoder **out, const mk_tokenizer *t, uint32_t flags, mk_error **e);
/* *text [*n bytes], a zero behind them, the decoder's until the next call; *n may be 0. After a failure "" and 0. */
MK_API mk_status mk_decoder_add(mk_decoder *d, int32_t id, const char **text, size_t *n, mk_error **e);
/* What is left when no more ids come: bytes of a character that was not finished. As mk_decoder_add; the decoder can be used again. */
MK_API mk_status mk_decoder_finish(mk_decoder *d, const char **text, size_t *n, mk_error **e);
MK_API void mk_decoder_free(mk_decoder *d);

enum {
    MK_TEMPLATE_FLAT =
        1, /* special tokens in messages count as such, as in transformers; else user data never becomes special tokens */
    MK_TEMPLATE_RAW_ARGUMENTS =
        2, /* arguments of tool calls that are JSON in a string stay strings; else they become objects, as templates expect */
};
typedef struct {
    size_t size;
    /* JSON in the form of OpenAI and Hugging Face: an array of messages, or an object with "messages", "tools" and "options". */
    const char *messages;
    size_t messages_bytes; /* 0: up to the zero */
    const char *tools;     /* a JSON array; NULL: what messages says */
    const char *
        options; /* a JSON object of more variables (add_generation_prompt, enable_thinking); NULL: what messages says */
    const char *
        name; /* of one of several templates; NULL: the one for tools, if there are some, else the default one */
    int64_t now;       /* seconds since 1970 that the template's clock shows; 0: the time */
    uint32_t flags;    /* MK_TEMPLATE_.. */
    const char *where; /* how messages of errors call the JSON; NULL: "messages" */
} mk_template_request;
/* Messages through a chat template: the text, and its ids where there is a tokenizer. JSON that is not valid, and messages that the
 * template refuses, are MK_FORMAT (mk_error_detail); a template that does too much is MK_LIMIT. */
MK_API mk_status mk_template(const mk_tokenizer *t, const mk_template_request *request, mk_text **out,
                             mk_error **e);

/* Takes what a model says apart, in pieces of any size. Whatever is not a well-formed call is content: nothing is lost. */
enum { MK_PART_CONTENT = 0, MK_PART_REASONING = 1, MK_PART_TOOL_CALL = 2 };
/* text [n]: the next piece of content or reasoning, or a call's arguments (a JSON object); name: of a call, else NULL. Both are borrowed for the
 * time of the call. */
typedef void (*mk_part_fn)(void *context, int32_t part, const char *text, size_t n, const char *name);
typedef struct mk_parser mk_parser;
/* prompt: the text that the model goes on from (it may have opened a thinking block), or NULL. tools: a JSON array, for the types of arguments, or
 * NULL. fn and context are called by the two functions below until the parser is freed. MK_FORMAT: there is no template. The text to push is that of a decoder with MK_SPECIAL. */
MK_API mk_status mk_parser_new(mk_parser **out, const mk_tokenizer *t, const char *prompt, const char *tools,
                               mk_part_fn fn, void *context, mk_error **e);
/* text [n bytes]; can't fail. */
MK_API void mk_parser_push(mk_parser *parser, const char *text, size_t n);
/* The end of the stream: what was held back comes as content. */
MK_API void mk_parser_finish(mk_parser *parser);
MK_API void mk_parser_free(mk_parser *parser);

/* ---- sampling ---- */

/* Chooses tokens of one package's logits; with the state of its random numbers. */
typedef struct mk_sampler mk_sampler;
/* settings: a JSON object, or NULL: "greedy" (bool), "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty",
 * "frequency_penalty", "repetition_window" (tokens; 0: all), "seed" (a number, or a string of digits for one above 2^53; negative: another one each time).
 * What is not given is what the package recommends (greedy where it recommends nothing); without a seed each sampler has another one.
 * An unknown key or a value out of its range is MK_USAGE; sampling where a package gives only the best token is MK_UNSUPPORTED. The same seed
 * and logits give the same tokens on every machine. */
MK_API mk_status mk_sampler_new(mk_sampler **out, const mk_package *p, const char *settings, mk_error **e);

typedef struct {
    size_t size;
    bool greedy;
    double temperature; /* 0: greedy */
    double top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
    int64_t top_k, repetition_window; /* 0: off; 0: all tokens */
    uint64_t seed;
} mk_sampling;
/* What is in force, as far as out->size goes. MK_USAGE: that size is nonsense. */
MK_API mk_status mk_sampler_settings(const mk_sampler *s, mk_sampling *out, mk_error **e);
/* *id: one token of logits [n] after the tokens history [n_history], which may be NULL with 0. MK_USAGE: n is not the vocabulary's size;
 * MK_OUTSIDE: no logit is a number; *id is -1 then. */
MK_API mk_status mk_sampler_pick(mk_sampler *s, const float *logits, size_t n, const int32_t *history,
                                 size_t n_history, int32_t *id, mk_error **e);
MK_API void mk_sampler_free(mk_sampler *s);

/* ---- sessions ---- */

/* One timeline of tokens. Callers hand over token sequences; the session alone knows the call sequence of the package, what can be
 * rewound and what must be computed again. Results have the same bits however tokens are cut into calls. */
typedef struct mk_session mk_session;
/* MK_LIMIT: its states and buffers do not fit into memory. */
MK_API mk_status mk_session_new(mk_session **out, mk_package *p, mk_error **e);
MK_API void mk_session_free(mk_session *s);
/* Makes the context equal to ids [n], n >= 1, keeping or restoring the longest known prefix; then logits are those after the last
 * one. *reused (unless NULL): ids that were not computed again. More than the context holds: MK_LIMIT; an id that is not one of the vocabulary: MK_USAGE.
 * After another failure, or when it was stopped, mk_session_tokens says what the context holds. */
MK_API mk_status mk_session_sync(mk_session *s, const int32_t *ids, size_t n, const mk_call *call,
                                 size_t *reused, mk_error **e);
/* What mk_session_sync does first, and nothing more: the longest known prefix of ids [n], n >= 1, is kept or restored, and nothing is computed.
 * *kept: ids that the context then holds, n only with their logits. For callers that feed the rest in pieces (mk_session_feed).
 * MK_USAGE: an id that is not one of the vocabulary; MK_LIMIT: more than the context holds. */
MK_API mk_status mk_session_rewind(mk_session *s, const int32_t *ids, size_t n, size_t *kept, mk_error **e);
/* Appends one token; logits are those after it. MK_USAGE: not an id of the vocabulary; MK_LIMIT: the context is full; MK_CANCELLED: by mk_session_cancel. */
MK_API mk_status mk_session_step(mk_session *s, int32_t id, mk_error **e);

enum {
    MK_FEED_SINGLY = 1 /* every token by itself; else full batches as far as they go, as in mk_session_sync */
};
/* logits [n], those after the token at `position`, borrowed for the time of the call. False: stop, the call ends with MK_CANCELLED. */
typedef bool (*mk_logits_fn)(void *context, int64_t position, const float *logits, size_t n);
/* Appends ids [n]; fn (unless NULL) sees the logits of every position that the calls yield: the last of each full batch and each single token.
 * A package that names only the best token is MK_UNSUPPORTED with an fn. Else as mk_session_sync. */
MK_API mk_status mk_session_feed(mk_session *s, const int32_t *ids, size_t n, uint32_t flags, mk_logits_fn fn,
                                 void *context, const mk_call *call, mk_error **e);
/* [vocab_size] after the newest token, rounded to fp16 as the package declares; borrowed until the next call. NULL when there
 * are none (an empty context). */
MK_API const float *mk_session_logits(const mk_session *s);
/* What the context holds, [*n] ids; the session's until the next call. */
MK_API const int32_t *mk_session_tokens(const mk_session *s, size_t *n);
/* Stops the call that is running on the session, from any thread and from a signal handler; the call ends with MK_CANCELLED. Without
 * such a call it has no effect on later ones. */
MK_API void mk_session_cancel(mk_session *s);

enum { MK_END_LENGTH = 0, MK_END_STOP = 1, MK_END_CONTEXT = 2, MK_END_CALLER = 3 };
/* "length", "end of text", "context full", "interrupted"; "unknown" for other numbers. */
MK_API const char *mk_end_name(int32_t end);
/* False: stop after this token. */
typedef bool (*mk_token_fn)(void *context, int32_t id);
enum {
    MK_IGNORE_END = 1, /* the package's ends are tokens like others */
    MK_LEAVE_LAST =
        2 /* the last token that was given out is not fed: one step less, and no logits behind it */
};
typedef struct {
    size_t size;
    int64_t limit;        /* tokens; 0: until the context is full */
    uint32_t flags;       /* MK_IGNORE_END, MK_LEAVE_LAST */
    const int32_t *stops; /* [n_stops] more ids that end, whatever the flags */
    size_t n_stops;
    mk_token_fn fn; /* may be NULL */
    void *context;
} mk_generate;
/* Samples and feeds until an end token (not given out), the limit, the end of the context, or fn's word; *end (unless NULL) says which (MK_END_..),
 * *n how many tokens were given out, also on failure. what may be NULL: neither limit nor fn. The session must have logits, and the sampler be one of the
 * same package (else MK_USAGE). MK_OUTSIDE: no logit is a
 * number, so any token would be made up. */
MK_API mk_status mk_session_generate(mk_session *s, mk_sampler *sampler, const mk_generate *what,
                                     const mk_call *call, size_t *n, int32_t *end, mk_error **e);
/* The whole state as a file, and back. The file belongs to the package's weights: another package's, or a damaged one, is
 * MK_FORMAT, and the session is unchanged; one that can't be read or written is MK_FAILED. An existing file is replaced, as a whole. */
MK_API mk_status mk_session_save(const mk_session *s, const char *path, mk_error **e);
MK_API mk_status mk_session_load(mk_session *s, const char *path, mk_error **e);

/* What a session holds at one moment, apart from it: any session of the same package handle can be brought there, any number of
 * times. It can't change after it was made. MK_LIMIT: it does not fit into memory. */
typedef struct mk_snapshot mk_snapshot;
MK_API mk_status mk_session_snapshot(const mk_session *s, mk_snapshot **out, mk_error **e);
/* The session holds the snapshot's tokens and logits, and goes on with the same bits as the one that was copied. Another package's
 * snapshot: MK_USAGE, and the session is unchanged. */
MK_API mk_status mk_session_restore(mk_session *s, const mk_snapshot *snapshot, mk_error **e);
/* Bytes of memory: of plain caches the positions in use, recurrent states and windows as a whole, the logits. */
MK_API uint64_t mk_snapshot_bytes(const mk_snapshot *snapshot);
/* The tokens that it stands for, [*n]; the snapshot's. */
MK_API const int32_t *mk_snapshot_tokens(const mk_snapshot *snapshot, size_t *n);
MK_API void mk_snapshot_free(mk_snapshot *snapshot);

/* One mk_session_step for each of several sessions of one package handle, with the same bits, for less time than the steps take one after
 * another: weights are read once for all. sessions [n], each once, n at most 1024; ids [n], the token of each. The calling thread has all of
 * them until the call ends. What is wrong with the call as a whole is MK_USAGE or MK_LIMIT, and nothing was done (statuses are not
 * written then). A member that can't go on does not keep the others from it: its context is full (MK_LIMIT), it was stopped by
 * mk_session_cancel or by the call's cancel (MK_CANCELLED), its step failed; it is as after a mk_session_step that failed.
 * statuses [n], unless NULL, says what became of each; the status of the call, and *e, are those of the first that failed, by
 * its number. The call's progress is not used. */
MK_API mk_status mk_session_batch(mk_session *const *sessions, const int32_t *ids, size_t n,
                                  const mk_call *call, mk_status *statuses, mk_error **e);

/* ---- conversations ---- */

/* Messages over a session of its own: a chat template puts them together, an answer comes in events and becomes a message, the oldest ones leave
 * the context when it is full. What a model chose stays its own tokens, so only what is new is computed. */
typedef struct mk_chat mk_chat;
/* settings: a JSON object, or NULL:
 *   "system": the system message (a string);
 *   "tools": what answers may call, an array in the form of OpenAI;
 *   "think": "on", "off" or "auto" (the template's choice), for templates that know enable_thinking;
 *   "sampling": an object of mk_sampler_new's keys; "max_tokens": of an answer (negative: until the context is full, as without it);
 *   "ignore_end": do not stop at an end token (bool);
 *   "template_args": an object of more variables for the template;
 *   "template": false: none, texts follow each other as they are; "template_file": the path of a template instead of the package's;
 *   "auto_stop": stop also at what ends an answer in the template, where no config declares it (bool; true).
 * MK_USAGE: an unknown key, a value out of its range. MK_FORMAT: no tokenizer, no template or one that can't be read. */
MK_API mk_status mk_chat_new(mk_chat **out, mk_package *p, const char *settings, mk_error **e);
MK_API void mk_chat_free(mk_chat *chat);
/* Changes what settings has of the keys above, but for the last three. "sampling" is changed as a whole. On failure some may have changed. */
MK_API mk_status mk_chat_set(mk_chat *chat, const char *settings, mk_error **e);
/* The system message; text NULL or "": none. */
MK_API void mk_chat_set_system(mk_chat *chat, const char *text);
MK_API const char *mk_chat_system(const mk_chat *chat); /* NULL: none; borrowed until it is changed */
/* The sampling in force, as far as out->size goes. */
MK_API mk_status mk_chat_sampling(const mk_chat *chat, mk_sampling *out, mk_error **e);

enum {
    MK_CHAT_CONTENT = 0,   /* a piece of the answer: text [n] */
    MK_CHAT_REASONING = 1, /* a piece of the thinking before it */
    MK_CHAT_TOOL_CALL = 2, /* a whole call: name, and its arguments, a JSON object: text [n] */
    MK_CHAT_DROPPED =
        3, /* the context is full: n_dropped messages went, the n_tokens that are left are computed again */
    MK_CHAT_BEGIN = 4, /* the prompt has been computed */
    MK_CHAT_END = 5    /* behind the last piece, once for each MK_CHAT_BEGIN */
};
typedef struct {
    size_t size;
    int32_t kind;     /* MK_CHAT_..; kinds may be added */
    const char *text; /* [n], borrowed for the time of the call, as name */
    size_t n;
    const char *name;
    size_t n_dropped, n_tokens;
    /* MK_CHAT_END */
    int32_t end;     /* MK_END_..: why */
    bool has_failed; /* the call will fail: nothing of the answer is kept */
    bool is_empty,
        has_reasoning; /* neither content nor calls, though some tokens were allowed; there was thinking */
    int64_t n_prompt, n_generated; /* tokens */
    int64_t n_reused;              /* of the prompt's: not computed again */
} mk_chat_event;
/* False: no more of this answer. The call ends with MK_CANCELLED and nothing of the answer is kept. */
typedef bool (*mk_chat_fn)(void *context, const mk_chat_event *event);

/* Says text [n] as the user and answers it, in events (fn may be NULL). After a failure, or when it was stopped before the first token of
 * the answer (MK_CANCELLED), messages are as they were. Stopped later, the answer is kept as far as it came: MK_OK, and its end is MK_END_CALLER.
 * MK_LIMIT: the message alone is more than the context holds. */
MK_API mk_status mk_chat_say(mk_chat *chat, const char *text, size_t n, mk_chat_fn fn, void *context,
                             const mk_call *call, mk_error **e);
/* Answers what was added, as a tool's result. MK_USAGE: the last message is an answer. */
MK_API mk_status mk_chat_answer(mk_chat *chat, mk_chat_fn fn, void *context, const mk_call *call,
                                mk_error **e);
/* Another answer to the last message; the old one stays if this fails. */
MK_API mk_status mk_chat_again(mk_chat *chat, mk_chat_fn fn, void *context, const mk_call *call,
                               mk_error **e);
/* Stops the call that is running on the chat, from any thread and from a signal handler. Without one it has no effect on later ones. */
MK_API void mk_chat_cancel(mk_chat *chat);

/* Adds a message without answering it: {"role": "user", "assistant" or "tool", "content": ..}, with "reasoning_content", "tool_calls" (an
 * assistant's), "name", "tool_call_id" (a tool's). */
MK_API mk_status mk_chat_add(mk_chat *chat, const char *message, mk_error **e);
/* Takes back the user's last message and what came of it. MK_USAGE: there is none. */
MK_API mk_status mk_chat_undo(mk_chat *chat, mk_error **e);
/* Takes back all; the system message stays. */
MK_API void mk_chat_clear(mk_chat *chat);
/* {"messages": [..]}, those that left the context with them. */
MK_API mk_status mk_chat_messages(const mk_chat *chat, mk_text **out, mk_error **e);
/* The same as a file, and back; another program's list of messages is read as well. A file that can't be read changes nothing. Without `replace` an
 * existing file is an error. */
MK_API mk_status mk_chat_save(const mk_chat *chat, const char *path, bool replace, mk_error **e);
MK_API mk_status mk_chat_load(mk_chat *chat, const char *path, mk_error **e);

/* Of one answer, or of all. */
typedef struct {
    int64_t n_prompt, n_reused, n_generated; /* tokens; n_reused: of the prompts', not computed again */
    double prompt_seconds, answer_seconds;
} mk_chat_counts;
typedef struct {
    size_t size;
    size_t n_messages, n_dropped; /* without the system message; of the oldest: not in the context any more */
    int64_t n_answers;
    int32_t last_end; /* MK_END_.. */
    int32_t reserved;
    mk_chat_counts last, total;
} mk_chat_stats;
/* As far as out->size goes. */
MK_API mk_status mk_chat_get_stats(const mk_chat *chat, mk_chat_stats *out, mk_error **e);
/* What the model sees, as of the last answer; borrowed until the next call. */
MK_API const int32_t *mk_chat_tokens(const mk_chat *chat, size_t *n);
/* The chat's session, to be saved and loaded; it is the chat's, and must not be freed or fed. */
MK_API mk_session *mk_chat_session(mk_chat *chat);

/* ---- any Core ML model (ML Program) ---- */

enum {
    MK_F32 = 1,
    MK_F16 = 2,
    MK_F64 = 3,
    MK_I32 = 4,
    MK_I16 = 5,
    MK_I8 = 6,
    MK_U8 = 7,
    MK_BOOL = 8, /* a byte: 0 or 1 */
    /* Of classifiers' outputs alone: */
    MK_TEXT = 9,   /* const char *: a label */
    MK_I64 = 10,   /* a label that is a number */
    MK_SCORES = 11 /* of a port: numbers by label; its tensor is MK_F32 */
};
/* How pixels stand in the tensor of an image. */
enum { MK_GRAY = 1, MK_RGB = 2, MK_BGR = 3, MK_GRAY_F16 = 4 };
#define MK_RANK_MAX 8

/* An array of the caller's: read where it is an input, written where a function fills it. data may have any alignment. */
typedef struct {
    size_t size;
    int32_t type, rank;           /* MK_F32 ..; 0 to MK_RANK_MAX */
    int64_t dims[MK_RANK_MAX];    /* in elements */
    int64_t strides[MK_RANK_MAX]; /* in bytes; all zeros: dense, row-major */
    void *data;                   /* element (0, 0, ..) */
} mk_tensor;

/* An input, an output or a state, as it is declared. */
typedef struct {
    size_t size;
    const char *name;          /* the function's */
    int32_t type, rank;        /* MK_F32 ..; type 0: none of these */
    int64_t dims[MK_RANK_MAX]; /* the default shape of a flexible input; -1: known by running */
    int32_t color;    /* MK_GRAY ..: an image of dims [1, channels, height, width]; 0: not an image */
    bool is_optional; /* an input with a default */
} mk_port;

typedef struct {
    size_t size;
    int32_t precision;
    const char *emulation, *backend, *compute_units; /* as of mk_package_options */
} mk_model_options;

/* One model, mapped. */
typedef struct mk_model mk_model;
/* path: one .mlpackage, .mlmodelc or .mlmodel. options may be NULL. MK_FORMAT: it is something else, or damaged; MK_UNSUPPORTED: not an ML Program;
 * MK_USAGE: a precision that is none of the above. */
MK_API mk_status mk_model_open(mk_model **out, mk_library *library, const char *path,
                               const mk_model_options *options, mk_error **e);
MK_API void mk_model_close(mk_model *m);
MK_API size_t mk_model_functions(const mk_model *m); /* how many there are */
/* The model's; NULL behind the last. */
MK_API const char *mk_model_function_name(const mk_model *m, size_t i);

/* One function of a model, with the plans that were made of it for the shapes it met. */
typedef struct mk_function mk_function;
/* name NULL: the default function. MK_USAGE: there is no such function. Plans are made when it is called, where what can't be run is MK_UNSUPPORTED. */
MK_API mk_status mk_function_open(mk_function **out, mk_model *m, const char *name, mk_error **e);
MK_API void mk_function_close(mk_function *f);
enum { MK_INPUTS = 0, MK_OUTPUTS = 1, MK_STATES = 2 };
/* How many there are of a kind (MK_INPUTS, ..), in the order of the program. */
MK_API size_t mk_function_ports(const mk_function *f, int32_t kind);
/* Port i as far as out->size goes, which is set to what was filled. MK_USAGE behind the last. */
MK_API mk_status mk_function_port(const mk_function *f, int32_t kind, size_t i, mk_port *out, mk_error **e);

/* What a model keeps between calls, zeros at first. A state may be given to any function of any model that declares the same names
 * and shapes, one call at a time: chunks of a language model share one. */
typedef struct mk_state mk_state;
/* All states that f declares, maybe none. Keeps f. */
MK_API mk_status mk_state_new(mk_state **out, const mk_function *f, mk_error **e);
/* Contents by name, converted to and from the tensor's type; numbers are held as declared (fp16), so writing rounds. Reading with t->data NULL: only
 * type and shape are filled in; else the shape must match. MK_USAGE: it does not, or there is no such state. */
MK_API mk_status mk_state_read(const mk_state *s, const char *name, mk_tensor *t, mk_error **e);
MK_API mk_status mk_state_write(mk_state *s, const char *name, const mk_tensor *t, mk_error **e);
MK_API void mk_state_free(mk_state *s);

/* The outputs of one call, apart from the function. It can't change. */
typedef struct mk_result mk_result;
/* One call: names [n] and inputs [n], all that the function has but optional ones, converted to the types that it declares. An image may be given as
 * pixels, [height, width, 3 or 4] red first or [height, width] gray, or as the tensor that the function takes. MK_USAGE: a name, type or shape that is
 * not the function's. state: needed when the function declares
 * states, else NULL; what it holds after a call that failed or was stopped is not defined. Several threads may call the same function at once, each with its own state. */
MK_API mk_status mk_predict(mk_function *f, const char *const *names, const mk_tensor *inputs, size_t n,
                            mk_state *state, const mk_call *call, mk_result **out, mk_error **e);
MK_API size_t mk_result_count(const mk_result *r); /* of outputs, in the function's order */
/* Output i: its name and a dense tensor in the declared type, both the result's. MK_USAGE behind the last. */
MK_API mk_status mk_result_get(const mk_result *r, size_t i, const char **name, mk_tensor *t, mk_error **e);
/* The label of each number of output i of a classifier: MK_TEXT or MK_I64 [n], the result's. MK_USAGE: it has none. */
MK_API mk_status mk_result_labels(const mk_result *r, size_t i, mk_tensor *labels, mk_error **e);
/* Output i as an image: bytes [height, width, 3] (red first) or [height, width] (gray, or its MK_F16), rounded and limited to 0 .. 255, the result's.
 * MK_USAGE: it is not an image. */
MK_API mk_status mk_result_pixels(const mk_result *r, size_t i, mk_tensor *pixels, mk_error **e);
MK_API void mk_result_free(mk_result *r);

/* ---- tools ---- */

/* Each takes its options as a JSON object, or NULL. An unknown key is MK_USAGE; a path that is not there, and an output that is there already and not to
 * be replaced, are MK_FAILED; what is damaged is MK_FORMAT, and a model that is not an ML Program MK_UNSUPPORTED. Outputs appear when they are whole. */

/* A Hugging Face checkpoint (a folder) or a GGUF file to a package. Keys, with what the command's option of the same name takes:
 *   "context" (positions of the caches, 512), "batch" (tokens of a prefill call, 64), "split-head" (parts of the head, by the family), "gdn-chunk",
 *   "threads" (the library's): numbers; "chunks" (1): a number or "auto";
 *   "prefix" (of file names), "format" ("both", "mlmodelc", "mlpackage"; "safetensors": a GGUF file as a checkpoint), "only" (parts: "embeddings", "ffn", "chunk:N", "head", "meta");
 *   "lut-embeddings", "lut-ffn", "lut-head" ("bits" or "bits,group"), "lut-method" ("kmeans", "exact", "activation", "fisher", "feedback", "best"; by the width), "lut-ffn-mixed" (a mean of bits, a number),
 *   "residual-scale" ("auto", "off" or a power of two, a number), "calibration" (a text file for these methods and measures, "@" and a file of token ids, or "self": the model writes it for the methods),
 *   "calibration-tokens" (of it for methods, 16384);
 *   "quant-embeddings", "quant-ffn", "quant-head" ("int8", "int8,tensor", "int4,BLOCK"); "report" (a file: what each tensor cost); "config" (a JSON
 *   file, for GGUF: settings that are missing or wrong there);
 *   "force" (replace what is there), "resume" (go on with what an interrupted call left), "exact-norms", "exact-topk", "anemll-rotate", "no-verify" (do not run some
 *   tokens of what was written): true or false.
 * The output appears when it is whole; a call that fails leaves nothing but finished parts to resume with, and that when it was stopped or the
 * system refused something. *report (unless NULL): a JSON object, "seconds", "bytes_read", "bytes_written", "parts", "parts_resumed",
 * "tensors_used", "tensors_left_out", "has_tokenizer". */
MK_API mk_status mk_convert(mk_library *library, const char *checkpoint, const char *output,
                            const char *options_json, const mk_call *call, mk_text **report, mk_error **e);
/* Does a package compute what its checkpoint computes? The reference continues a prompt in float32, the package gets the same tokens, and logits,
 * what layers leave, and states are compared. Keys: "prompt" (a text) or "tokens" (an array of ids), else a prompt of our own; "max-tokens" (to
 * compare, 32); "layers" (bool: the report lists layers and states); limits instead of those of the weights' width: "min-cosine", "max-kl",
 * "min-top1", "min-layer-cosine", "min-added-cosine", "min-gain", "max-gain", "max-difference", "margin" (numbers).
 * *report (unless NULL): the JSON object of `milkit check --json`, with its "verdict": "pass", "fail", or "none" where nothing tells rounding from a
 * fault at this width. MK_OUTSIDE: the verdict is "fail", or the two are not of one model; of the former there is a report, too. */
MK_API mk_status mk_check(mk_library *library, const char *folder, const char *checkpoint,
                          const char *options, const mk_call *call, mk_text **report, mk_error **e);
/* .mlpackage to .mlmodelc. "force": replace a compiled model that is there. */
MK_API mk_status mk_compile(mk_library *library, const char *package, const char *output,
                            const char *options_json, mk_error **e);

/* What is in a file or folder of any kind that milkit reads (package, model, checkpoint, weight file, tokenizer), as a JSON object, the one
 * that `milkit inspect --json` prints: "schema", "path", "kind", and what there is. Nothing is run. MK_FAILED: there is no such path;
 * MK_FORMAT: nothing that milkit reads, or damaged. */
MK_API mk_status mk_inspect(mk_library *library, const char *path, mk_text **out, mk_error **e);

/* What is published of the Neural Engine's limits, arithmetic and failures, held against a package or model, as a JSON object, the one
 * that `milkit lint --json` prints: "findings" (id, severity, where, why, source, what to do) and "summary". options_json: NULL, or an
 * object with "chip" ("M4", "A18 Pro") and "os" ("macOS 26", "iOS 18"). Nothing is run. Findings do not make the call fail. */
MK_API mk_status mk_lint(mk_library *library, const char *path, const char *options_json, mk_text **out,
                         mk_error **e);

#ifdef __cplusplus
}
#endif
#endif
