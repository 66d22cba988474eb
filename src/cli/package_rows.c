/* What the options of a package say. */
#include "cli/package_rows.h"
#include <string.h>
#include "cli/download.h"

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

bool package_precision_number(const char *name, int *out, struct err *e)
{
    static const char *const names[] = {"default", "fp32", "fp16", "ane"};
    *out = 0;
    for (int i = 0; name && i < 4; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = i;
            return true;
        }
    return !name ||
           err_set(e, ERR_USAGE, "--precision: expected default, fp32, fp16 or ane, found '%s'", name);
}

bool package_backend_check(const char *backend, const char *compute_units, struct err *e)
{
    bool is_coreml = backend && strcmp(backend, "coreml") == 0;
    if (backend && !is_coreml && strcmp(backend, "engine") != 0)
        return err_set(e, ERR_USAGE, "--backend: expected engine or coreml, found '%s'", backend);
    return !compute_units || is_coreml ||
           err_set(e, ERR_USAGE, "--compute-units is of --backend coreml alone");
}

void package_say_emulation(struct cli *c, const struct package_options *o)
{
    log_info(&c->log,
             "emulated from published measurements (M4 and M6: sources in docs/device.md), switches: %s",
             o->emulation ? o->emulation : "the defaults");
}

bool package_options_check(struct cli *c, const struct package_options *o, const char **path, int *precision,
                           struct err *e)
{
    *path = o->path;
    if (!package_precision_number(o->precision, precision, e) ||
        !package_backend_check(o->backend, o->compute_units, e))
        return false;
    if (o->emulation && *precision != MK_PRECISION_ANE)
        return err_set(e, ERR_USAGE, "--ane-model is of --precision ane alone");
    if (*precision == MK_PRECISION_ANE)
        package_say_emulation(c, o);
    if (o->n_threads < 0 || o->n_threads > 1024)
        return err_set(e, ERR_USAGE, "--threads: expected 1 to 1024, found %lld", (long long)o->n_threads);
    if (!*path)
        return err_set(e, ERR_USAGE, "expected a package folder");
    return o->takes_checkpoint ? cli_resolve_or_pull(c, path, o->yes, e) : cli_resolve(c, path, e);
}
