/* milkit pull: a checkpoint of the hub into the cache; its folder (or GGUF file) on stdout. */
#include <stdlib.h>
#include "cli/cli.h"
#include "hub/hub.h"

#define SYNOPSIS "ORG/NAME[@REVISION][:TAG] [--file GLOB] [-j N]"

int cmd_pull(struct cli *c, int argc, char **argv)
{
    const char *name = NULL;
    struct hub_pull_options o = {.log = &c->log};
    int64_t n_transfers = 0;
    int n_positional = 0;
    bool help = false;
    char *place = NULL;
    struct err e = {0};
    const struct cli_option options[] = {
        {"--file,--include", CLI_STRING, &o.files, "GLOB",
         "these files, not what a checkpoint needs ('*.md', 'q8/*')"},
        {"-j,--transfers,--max-workers", CLI_INT, &n_transfers, "N", "files at once (4)"},
    };
    if (!cli_parse(c, argc, argv, options, (int)(sizeof options / sizeof options[0]), &name, 1, &n_positional,
                   SYNOPSIS, &help, &e))
        return cli_fail(c, &e, NULL);
    if (help)
        return 0;
    bool ok = n_positional == 1 || err_set(&e, ERR_USAGE, "expected the name of a model: org/name");
    if (ok && (n_transfers < 0 || n_transfers > 32))
        ok = err_set(&e, ERR_USAGE, "--transfers: expected 1 to 32, found %lld", (long long)n_transfers);
    o.n_transfers = (int)n_transfers;
    ok = ok && hub_pull(&place, name, &o, &e);
    if (ok) {
        printf("%s\n", place);
        ok = cli_flush(&e);
    }
    free(place);
    return ok ? 0 : cli_fail(c, &e, e.code == ERR_CANCELLED ? "the next pull goes on from here" : NULL);
}
