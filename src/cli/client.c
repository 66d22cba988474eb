/* The command line as a client of the library. */
#include "cli/client.h"
#include <stdlib.h>
#include <string.h>

static void say(void *context, int32_t level, const char *text)
{
    struct log *log = context;
    if (level == MK_LOG_WARNING)
        log_warn(log, "%s", text);
    else if (level == MK_LOG_INFO)
        log_info(log, "%s", text);
    else
        log_debug(log, "%s", text);
}

bool client_open(struct cli *c, int64_t n_threads, mk_library **out, struct err *e)
{
    const mk_options options = {.size = sizeof options,
                                .threads = (int32_t)n_threads,
                                .log_level = (int32_t)c->log.level,
                                .log = c->log.level == LOG_QUIET ? NULL : say,
                                .log_context = &c->log};
    mk_error *error = NULL;
    return client_take(mk_library_open(out, &options, &error), &error, e);
}

bool client_open_package(struct cli *c, const struct package_options *o, int32_t text, mk_library **library,
                         mk_package **out, struct err *e)
{
    mk_package_options options = {.size = sizeof options, .text = text};
    mk_error *error = NULL;
    const char *path;
    int precision;
    if (!package_options_check(c, o, &path, &precision, e) || !client_open(c, o->n_threads, library, e))
        return false;
    if (o->takes_checkpoint && client_is_checkpoint(path) &&
        !client_keep_package(c, *library, o->path, &path, e))
        return false;
    options.precision = precision;
    options.emulation = o->emulation;
    options.backend = o->backend;
    options.compute_units = o->compute_units;
    return client_take(mk_package_open(out, *library, path, &options, &error), &error, e);
}

/* ---- calls ---- */

/* ---- ids ---- */

bool client_tokenize(const mk_tokenizer *t, const char *text, size_t bytes, uint32_t flags, int32_t **ids,
                     size_t *n, struct err *e)
{
    size_t capacity = bytes + 16, size; /* enough for most texts */
    mk_error *error = NULL;
    for (;;) {
        *ids = size_mul(capacity, sizeof **ids, &size) ? malloc(size) : NULL;
        if (!*ids)
            return err_set(e, ERR_NOMEM, "out of memory: %zu ids", capacity);
        mk_status status = mk_tokenize(t, text, bytes, flags, *ids, capacity, n, &error);
        bool is_small = status == MK_LIMIT && *n > capacity;
        capacity = *n;
        if (!is_small && client_take(status, &error, e))
            return true;
        free(*ids);
        *ids = NULL;
        if (!is_small)
            return false;
        mk_error_free(error);
        error = NULL;
    }
}

static bool encode_prompt(void *context, const char *text, size_t bytes, int32_t **ids, size_t *n,
                          struct err *e)
{
    return client_tokenize(mk_package_tokenizer(context), text, bytes, MK_SPECIAL, ids, n, e);
}

bool client_read_prompt(const mk_package *p, const struct prompt_options *o, int32_t **ids, size_t *n,
                        struct err *e)
{
    return prompt_read(ids, n, o, mk_package_vocab_size(p), encode_prompt, (void *)(uintptr_t)p, e);
}
