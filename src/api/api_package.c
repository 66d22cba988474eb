/* Packages: opening, and what they say of themselves. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "api/api_int.h"
#include "format/checkpoint.h"
#include "runtime/vocabulary.h"

bool api_precision(int32_t from, enum model_precision *out, struct err *e)
{
    switch (from) {
    case MK_PRECISION_DEFAULT:
        *out = PRECISION_DEFAULT;
        return true;
    case MK_PRECISION_FP32:
        *out = PRECISION_FP32;
        return true;
    case MK_PRECISION_FP16:
        *out = PRECISION_FP16;
        return true;
    case MK_PRECISION_ANE:
        *out = PRECISION_ANE;
        return true;
    default:
        return err_set(e, ERR_USAGE, "precision: expected 0, 1, 2 or 3, found %d", from);
    }
}

static void put_text(struct buf *b, const char *key, const char *text)
{
    buf_printf(b, ", \"%s\": ", key);
    if (text)
        json_put_string(b, text, strlen(text));
    else
        buf_puts(b, "null");
}

static void put_if(struct buf *b, const char *key, double d)
{
    if (isnan(d))
        return;
    buf_printf(b, ", \"%s\": ", key);
    json_put_double(b, d);
}

static void put_sampling(struct buf *b, const struct recommended_sampling *s)
{
    buf_printf(b, ", \"recommended_sampling\": {\"do_sample\": %s", s->do_sample ? "true" : "false");
    put_if(b, "temperature", s->temperature);
    put_if(b, "top_p", s->top_p);
    put_if(b, "top_k", s->top_k < 0 ? NAN : (double)s->top_k);
    put_if(b, "min_p", s->min_p);
    put_if(b, "repetition_penalty", s->repetition_penalty);
    put_if(b, "presence_penalty", s->presence_penalty);
    put_if(b, "frequency_penalty", s->frequency_penalty);
    buf_putc(b, '}');
}

static char *describe(const mk_package *p)
{
    const struct model *m = p->model;
    const struct package *files = m->package;
    struct buf b;
    buf_init(&b, 1 << 20);
    buf_puts(&b, "{\"schema\": 1");
    put_text(&b, "path", files->path);
    put_text(&b, "name", files->meta->name);
    put_text(&b, "architecture", files->meta->architecture);
    buf_printf(
        &b,
        ", \"context_length\": %lld, \"batch_size\": %lld, \"vocab_size\": %lld, \"hidden_size\": %lld, "
        "\"chunks\": %d, \"sequential\": %s, \"has_tokenizer\": %s, \"end_ids\": [",
        (long long)m->context_length, (long long)m->batch_size, (long long)m->vocab_size,
        (long long)m->hidden_size, m->n_chunks, m->is_sequential ? "true" : "false",
        p->text->tokenizer ? "true" : "false");
    for (int i = 0; i < files->n_eos; i++)
        buf_printf(&b, "%s%d", i ? ", " : "", files->eos[i]);
    buf_putc(&b, ']');
    if (files->sampling.is_present)
        put_sampling(&b, &files->sampling);
    buf_putc(&b, '}');
    return buf_take(&b, NULL);
}

static bool open_text(mk_package *p, int32_t text, struct log *log, struct err *e)
{
    struct package *files = p->model->package;
    mk_tokenizer *t = p->text;
    t->vocab_size = p->model->vocab_size;
    t->has_model = true;
    free(t->where);
    t->where = xstrdup(files->path);
    if (text == MK_TEXT_NONE) {
        err_set(&t->no_tokenizer, ERR_FORMAT, "%s: the package was opened for token ids alone", files->path);
        t->no_template = t->no_tokenizer;
        return true;
    }
    bool exists = folder_has(files->path, CHECKPOINT_TOKENIZER);
    if (!package_tokenizer(files, &t->tokenizer, &t->no_tokenizer)) {
        t->no_template = t->no_tokenizer;
        *e = t->no_tokenizer;
        return !exists;
    }
    package_add_tokenizer_eos(files, t->tokenizer);
    vocabulary_check_tokenizer(log, files->path, t->tokenizer, t->vocab_size);
    vocabulary_check_stops(log, files, t->vocab_size);
    (void)!chat_template_open(&t->template, files->path, &t->no_template);
    return true;
}

static void say_opened(struct log *log, const struct model *m)
{
    static const char *const precisions[] = {"default", "fp32", "fp16", "ane"};
    log_debug(log, "%s: context %lld, batch %lld, %d chunks; %s kernels, %d threads, precision %s",
              m->package->path, (long long)m->context_length, (long long)m->batch_size, m->n_chunks,
              m->device, pool_threads(m->pool), precisions[m->precision]);
}

mk_status mk_package_open(mk_package **out, mk_library *library, const char *folder,
                          const mk_package_options *options, mk_error **error)
{
    mk_package_options o;
    struct err e = {0};
    struct api_log log;
    mk_package *p = NULL;
    *out = NULL;
    if (!api_read_struct(&o, sizeof o, options))
        return api_usage(error, "options: size is not that of the structure");
    if (o.text < MK_TEXT_DEFAULT || o.text > MK_TEXT_NONE)
        return api_usage(error, "text: expected 0 or 1, found %d", o.text);
    if (!api_log_init(&log, library, NULL, NULL, error))
        return MK_USAGE;
    struct model_options model = {.pool = library->pool,
                                  .log = &log.log,
                                  .emulation = o.emulation,
                                  .backend_name = o.backend,
                                  .compute_units = o.compute_units};
    p = xcalloc(1, sizeof *p);
    atomic_init(&p->n_references, 1);
    p->library = library_keep(library);
    p->text = tokenizer_handle_new(folder);
    bool ok = api_precision(o.precision, &model.precision, &e) && model_open(&p->model, folder, &model, &e);
    if (ok)
        say_opened(&log.log, p->model);
    ok = ok && open_text(p, o.text, &log.log, &e);
    if (ok) {
        p->info = describe(p);
        *out = p;
        p = NULL;
    }
    mk_package_close(p);
    return api_result(ok, &e, error);
}

mk_package *package_keep(mk_package *p)
{
    atomic_fetch_add(&p->n_references, 1);
    return p;
}

void mk_package_close(mk_package *p)
{
    if (!p || atomic_fetch_sub(&p->n_references, 1) != 1)
        return;
    mk_tokenizer_close(p->text);
    model_close(p->model);
    mk_library_close(p->library);
    free(p->info);
    free(p);
}

const char *mk_package_info(const mk_package *p)
{
    return p->info;
}

const char *mk_package_path(const mk_package *p)
{
    return p->model->package->path;
}

const char *mk_package_name(const mk_package *p)
{
    return p->model->package->meta->name;
}

int64_t mk_package_context_length(const mk_package *p)
{
    return p->model->context_length;
}

int64_t mk_package_batch_size(const mk_package *p)
{
    return p->model->batch_size;
}

int32_t mk_package_vocab_size(const mk_package *p)
{
    return (int32_t)p->model->vocab_size;
}

bool mk_package_is_end(const mk_package *p, int32_t id)
{
    return package_is_eos(p->model->package, id);
}

const mk_tokenizer *mk_package_tokenizer(const mk_package *p)
{
    return p->text;
}
