/* Opening a package for a command. */
#include <string.h>
#include "cli/package_options.h"
#include "runtime/vocabulary.h"

bool package_parse(struct cli *c, int argc, char **argv, const struct cli_option *options, int n_options,
                   const char *synopsis, struct package_options *p, int *status)
{
    const char *positional[1];
    int n_positional = 0;
    bool help = false;
    struct err e = {0};
    bool ok = cli_parse(c, argc, argv, options, n_options, positional, 1, &n_positional, synopsis, &help, &e);
    if (ok && n_positional)
        p->path = positional[0];
    *status = ok ? 0 : cli_fail(c, &e, NULL);
    return ok && !help;
}

bool package_precision(const char *name, enum model_precision *out, struct err *e)
{
    static const char *const names[] = {"default", "fp32", "fp16"};
    *out = PRECISION_DEFAULT;
    for (int i = 0; name && i < 3; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (enum model_precision)i;
            return true;
        }
    return !name || err_set(e, ERR_USAGE, "--precision: expected default, fp32 or fp16, found '%s'", name);
}

bool package_options_open(struct cli *c, const struct package_options *o, struct model **out, struct err *e)
{
    struct model_options options = {.n_threads = (int)o->n_threads,
                                    .watch_layers = o->watch_layers,
                                    .other_form = o->other_form,
                                    .log = o->log ? o->log : &c->log};
    const char *path = o->path;
    *out = NULL;
    if (!package_precision(o->precision, &options.precision, e))
        return false;
    if (o->n_threads < 0 || o->n_threads > 1024)
        return err_set(e, ERR_USAGE, "--threads: expected 1 to 1024, found %lld", (long long)o->n_threads);
    if (!path)
        return err_set(e, ERR_USAGE, "expected a package folder");
    if (!cli_resolve(c, &path, e) || !model_open(out, path, &options, e))
        return false;
    const struct model *m = *out;
    log_debug(&c->log, "%s: context %lld, batch %lld, %d chunks; %s kernels, %d threads, precision %s",
              m->package->path, (long long)m->context_length, (long long)m->batch_size, m->n_chunks,
              m->device, pool_threads(m->pool), o->precision ? o->precision : "default");
    return true;
}

bool package_check_ids(const struct model *m, const int32_t *ids, size_t n, struct err *e)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= m->vocab_size)
            return err_set(e, ERR_USAGE, "token %zu: expected an id below %lld (the vocabulary), found %d", i,
                           (long long)m->vocab_size, ids[i]);
    return true;
}

bool package_read_ids(const struct model *m, const char *text, struct ids *out, struct err *e)
{
    if (!cli_read_ids(text, &out->p, &out->n, e))
        return false;
    out->capacity = out->n;
    if (package_check_ids(m, out->p, out->n, e))
        return true;
    if (text[0] == '@') {
        err_wrap(e, "%s", text + 1);
        e->code = ERR_FORMAT;
    }
    return false;
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
