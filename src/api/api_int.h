/* Internals of the library's door: what the handles of include/milkit.h are, for the files of this folder.
 *
 * Each handle counts who needs it: the caller's one reference and one of each child. */
#ifndef MILKIT_API_API_INT_H
#define MILKIT_API_API_INT_H

#include <stdatomic.h>
#include "base/log.h"
#include "base/pool.h"
#include "chat/chat.h"
#include "format/json.h"
#include "milkit.h"
#include "runtime/generate.h"
#include "runtime/model.h"

struct mk_error {
    mk_status status;
    enum err_hint hint;
    char *detail;   /* heap, or NULL */
    char message[]; /* with its zero */
};

struct mk_library {
    atomic_int n_references;
    struct pool *pool;
    enum log_level level;
    mk_log_fn log;
    void *log_context;
};

struct mk_text {
    char *text; /* heap, [n + 1] */
    size_t n;
    int32_t *ids; /* heap, [n_ids] */
    size_t n_ids;
};

/* What is missing is NULL, with the error that says why. */
struct mk_tokenizer {
    atomic_int n_references;
    char *where;        /* the folder or file */
    int64_t vocab_size; /* of the model beside it; 0: not known */
    bool has_model;     /* of an open package: its ids must be the model's */
    struct tokenizer *tokenizer;
    struct err no_tokenizer;
    struct chat_template *template;
    struct err no_template;
};

struct mk_package {
    atomic_int n_references;
    mk_library *library;
    struct model *model;
    mk_tokenizer *text;
    char *info;
};

struct mk_session {
    mk_package *package;
    struct session *session;
    atomic_int is_cancelled; /* set by mk_session_cancel; cleared where a call begins */
};

/* ---- api_error.c ---- */

mk_status api_status(enum err_code code);
/* Hands *from over to the caller (to may be NULL); the status of it. */
mk_status api_fail(const struct err *from, mk_error **to);
/* A wrong call. */
mk_status api_usage(mk_error **to, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* ok: MK_OK and *to NULL; else api_fail. from is the reason when ok is false. */
mk_status api_result(bool ok, const struct err *from, mk_error **to);

/* The whole members that the caller's structure has: size bytes of it, the rest of out (bytes) zero. False when size is
 * nonsense. from may be NULL: all zero. */
bool api_read_struct(void *out, size_t bytes, const void *from);

/* The other way: as much of from (bytes) as out->size, which was set by the caller, says. */
bool api_write_struct(void *out, const void *from, size_t bytes);

/* ---- api_library.c ---- */

mk_library *library_keep(mk_library *library);
/* The log of one call: messages to the library's sink, progress and cancel of `call` (which may be NULL), and a second flag
 * that stops it (may be NULL). Lives on the caller's stack. */
struct api_log {
    struct log log;
    mk_library *library;
    mk_call call;
};
bool api_log_init(struct api_log *l, mk_library *library, const mk_call *call, const atomic_int *also,
                  mk_error **e);
mk_text *api_text_new(char *heap_text, size_t n);

/* ---- api_package.c ---- */

mk_package *package_keep(mk_package *p);
bool api_precision(int32_t from, enum model_precision *out, struct err *e);

/* ---- api_tokenizer.c ---- */

/* Of a folder or file; nothing in it yet. */
mk_tokenizer *tokenizer_handle_new(const char *where);
mk_tokenizer *tokenizer_keep(const mk_tokenizer *t);
bool api_needs_tokenizer(const mk_tokenizer *t, struct err *e);
bool api_needs_template(const mk_tokenizer *t, struct err *e);

/* ---- api_sampler.c ---- */

/* A JSON object of mk_sampler_new's keys over what *o has; its problems are ERR_USAGE. */
bool api_read_sampling(struct sampling_options *o, const cJSON *object, struct err *e);
/* The sampler, when it is one of this package; else NULL. */
struct sampler *api_sampler_of(mk_sampler *s, const mk_package *p);
mk_status api_give_sampling(const struct sampler_options *from, mk_sampling *out, mk_error **e);

/* ---- api_session.c ---- */

/* Long steps of calls between the two look at the session's flag and at `flag` (may be NULL), which is the caller's. */
void session_begin_call(mk_session *s, const atomic_int *flag);
void session_end_call(mk_session *s);
int32_t api_end(enum generate_end end);

#endif
