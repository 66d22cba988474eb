/* milkit compile: a source package to a compiled bundle, as Apple's compiler would write it. */
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "cli/cli.h"
#include "mil/compiled.h"

/* X.mlpackage -> X.mlmodelc in the current folder */
static char *default_output(const char *path)
{
    char *base = path_base(path), *dot = strrchr(base, '.');
    char *out;

    if (dot && dot != base)
        *dot = '\0';
    out = xasprintf("%s.mlmodelc", base);
    free(base);
    return out;
}

int cmd_compile(struct cli *c, int argc, char **argv)
{
    const char *path = NULL, *output = NULL;
    bool force = false, help = false;
    int n_positional = 0;
    struct err e = {0};
    const struct cli_option options[] = {
        {"-o,--output", CLI_STRING, &output, "X.mlmodelc",
         "where the bundle goes (the package's name, here)"},
        {"-f,--force", CLI_FLAG, &force, NULL, "replace a compiled model that is there"},
    };

    if (!cli_parse(c, argc, argv, options, (int)(sizeof options / sizeof options[0]), &path, 1, &n_positional,
                   "X.mlpackage [-o X.mlmodelc]", &help, &e))
        return cli_fail(c, &e, NULL);
    if (help)
        return 0;
    if (n_positional != 1) {
        err_set(&e, ERR_USAGE, "expected a .mlpackage");
        return cli_fail(c, &e, NULL);
    }
    if (output && strcmp(output, "-") == 0) {
        err_set(&e, ERR_USAGE, "-o -: a bundle is a folder, which stdout can't take; expected -o X.mlmodelc");
        return cli_fail(c, &e, NULL);
    }
    char *out = output ? xstrdup(output) : default_output(path);
    bool ok = mil_compile(path, out, force, &e);
    if (ok)
        log_info(&c->log, "wrote %s", out);
    free(out);
    return ok ? 0 : cli_fail(c, &e, NULL);
}
