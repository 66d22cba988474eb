/* Tokenizers and chat templates of any folder. */
#include <stdlib.h>
#include "api/api_int.h"
#include "runtime/vocabulary.h"

mk_tokenizer *tokenizer_handle_new(const char *where)
{
    mk_tokenizer *t = xcalloc(1, sizeof *t);
    atomic_init(&t->n_references, 1);
    t->where = xstrdup(where);
    return t;
}

static bool read_templates(mk_tokenizer *t, bool is_needed, struct err *e)
{
    if (chat_template_open(&t->template, t->where, &t->no_template))
        return true;
    *e = t->no_template;
    return !is_needed;
}

static bool read_tokenizer(mk_tokenizer *t, bool is_file, struct log *log, struct err *e)
{
    if (!tokenizer_open(&t->tokenizer, t->where, e))
        return false;
    t->vocab_size = is_file ? 0 : vocabulary_of_folder(t->where);
    vocabulary_check_tokenizer(log, t->where, t->tokenizer, t->vocab_size);
    return true;
}

static bool read_parts(mk_tokenizer *t, uint32_t parts, struct log *log, struct err *e)
{
    bool is_file = !path_is_folder(t->where);
    bool with_templates = !is_file && parts != MK_READ_TOKENIZER;
    err_set(&t->no_tokenizer, ERR_FORMAT, "%s: opened for its templates alone", t->where);
    err_set(&t->no_template, ERR_FORMAT, "%s: opened for its tokenizer alone", t->where);
    return (!with_templates || read_templates(t, (parts & MK_READ_TEMPLATES) != 0, e)) &&
           (parts == MK_READ_TEMPLATES || read_tokenizer(t, is_file, log, e));
}

mk_status mk_tokenizer_open(mk_tokenizer **out, mk_library *library, const char *path,
                            const mk_tokenizer_options *options, mk_error **error)
{
    mk_tokenizer_options o;
    struct err e = {0};
    struct api_log log;
    *out = NULL;
    if (!api_read_struct(&o, sizeof o, options))
        return api_usage(error, "options: size is not that of the structure");
    if (o.parts & ~(uint32_t)(MK_READ_TOKENIZER | MK_READ_TEMPLATES))
        return api_usage(error, "parts: expected MK_READ_TOKENIZER and MK_READ_TEMPLATES, found %u", o.parts);
    if (!api_log_init(&log, library, NULL, NULL, error))
        return MK_USAGE;
    mk_tokenizer *t = tokenizer_handle_new(path);
    bool ok = read_parts(t, o.parts, &log.log, &e);
    if (ok)
        *out = t;
    else
        mk_tokenizer_close(t);
    return api_result(ok, &e, error);
}

mk_tokenizer *tokenizer_keep(const mk_tokenizer *t)
{
    mk_tokenizer *own = (mk_tokenizer *)(uintptr_t)t; /* only its count changes */
    atomic_fetch_add(&own->n_references, 1);
    return own;
}

void mk_tokenizer_close(mk_tokenizer *t)
{
    if (!t || atomic_fetch_sub(&t->n_references, 1) != 1)
        return;
    chat_template_free(t->template);
    tokenizer_free(t->tokenizer);
    free(t->where);
    free(t);
}

int32_t mk_tokenizer_size(const mk_tokenizer *t)
{
    return t->tokenizer ? tokenizer_vocab_size(t->tokenizer) : 0;
}

bool api_needs_tokenizer(const mk_tokenizer *t, struct err *e)
{
    if (!t->tokenizer)
        *e = t->no_tokenizer;
    return t->tokenizer != NULL;
}

bool api_needs_template(const mk_tokenizer *t, struct err *e)
{
    if (!t->template)
        *e = t->no_template;
    return t->template != NULL;
}
