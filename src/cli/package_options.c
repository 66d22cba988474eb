/* Opening a package for a command. */
#include <string.h>
#include "cli/package_options.h"
#include "runtime/vocabulary.h"

bool package_precision(const char *name, enum model_precision *out, struct err *e)
{
    int number;
    bool ok = package_precision_number(name, &number, e);
    *out = (enum model_precision)number;
    return ok;
}

bool package_options_open(struct cli *c, const struct package_options *o, struct model **out, struct err *e)
{
    struct model_options options = {.n_threads = (int)o->n_threads,
                                    .watch_layers = o->watch_layers,
                                    .other_form = o->other_form,
                                    .log = o->log ? o->log : &c->log};
    const char *path;
    int precision;
    *out = NULL;
    if (!package_options_check(c, o, &path, &precision, e))
        return false;
    options.precision = (enum model_precision)precision;
    options.emulation = o->emulation;
    options.backend_name = o->backend;
    options.compute_units = o->compute_units;
    if (!model_open(out, path, &options, e))
        return false;
    const struct model *m = *out;
    log_debug(&c->log, "%s: context %lld, batch %lld, %d chunks; %s kernels, %d threads, precision %s",
              m->package->path, (long long)m->context_length, (long long)m->batch_size, m->n_chunks,
              m->device, pool_threads(m->pool), o->precision ? o->precision : "default");
    return true;
}

bool package_encode(const struct model *m, const struct tokenizer *t, const char *text, size_t bytes,
                    struct ids *out, struct err *e)
{
    return vocabulary_encode(t, m->package->path, m->vocab_size, text, bytes, out, e);
}

bool package_open_tokenizer(struct cli *c, struct model *m, struct tokenizer **out, struct err *e)
{
    if (!package_tokenizer(m->package, out, e))
        return false;
    package_add_tokenizer_eos(m->package, *out);
    vocabulary_check_tokenizer(&c->log, m->package->path, *out, m->vocab_size);
    vocabulary_check_stops(&c->log, m->package, m->vocab_size);
    return true;
}

struct encoder {
    const struct model *model;
    const struct tokenizer *tokenizer;
};

static bool encode_prompt(void *context, const char *text, size_t bytes, int32_t **ids, size_t *n,
                          struct err *e)
{
    const struct encoder *x = context;
    struct ids out = {0};
    bool ok = package_encode(x->model, x->tokenizer, text, bytes, &out, e);
    *ids = out.p;
    *n = out.n;
    return ok;
}

bool package_read_prompt(const struct model *m, const struct tokenizer *t, const struct prompt_options *o,
                         struct ids *out, struct err *e)
{
    struct encoder x = {m, t};
    if (!prompt_read(&out->p, &out->n, o, m->vocab_size, encode_prompt, &x, e))
        return false;
    out->capacity = out->n;
    return true;
}
