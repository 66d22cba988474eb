/* Internals of the library's door: what the handles of include/milkit.h are, for the files of this folder.
 *
 * Each handle counts who needs it: the caller's one reference and one of each child. */
#ifndef MILKIT_API_API_INT_H
#define MILKIT_API_API_INT_H

#include <stdatomic.h>
#include "base/log.h"
#include "base/pool.h"
#include "milkit.h"
#include "runtime/model.h"
#include "chat/chat.h"

struct mk_error {
    mk_status status;
    enum err_hint hint;
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

struct mk_package {
    atomic_int n_references;
    mk_library *library;
    struct model *model;
    struct tokenizer *tokenizer;    /* NULL: a package without text */
    struct chat_template *template; /* NULL likewise */
    char *info;
};

/* ---- api_error.c ---- */

mk_status api_status(enum err_code code);
/* Hands *from over to the caller (to may be NULL); the status of it. */
mk_status api_fail(const struct err *from, mk_error **to);
/* A wrong call. */
mk_status api_usage(mk_error **to, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* ok: MK_OK and *to NULL; else api_fail. */
mk_status api_result(bool ok, const struct err *from, mk_error **to);

/* The whole members that the caller's structure has: size bytes of it, the rest of out (bytes) zero. False when size is
 * nonsense. from may be NULL: all zero. */
bool api_read_struct(void *out, size_t bytes, const void *from);

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
bool api_needs_text(const mk_package *p, struct err *e);

#endif
