/* Names of the hub as arguments: what is not in the cache is downloaded, after a question where that is much. */
#ifndef MILKIT_CLI_DOWNLOAD_H
#define MILKIT_CLI_DOWNLOAD_H

#include "cli/cli.h"

/* A row for a command's option table. */
#define DOWNLOAD_OPTION_ROW(yes)                                                                             \
    {                                                                                                        \
        "-y,--yes", CLI_FLAG, &(yes), NULL, "download without asking"                                        \
    }

/* As cli_resolve, for the checkpoint that the command works on: a name that the cache does not have, or not whole, is
 * downloaded, unless a folder of the name before the slash stands here. Above 100 MB the user is asked, unless yes; where nobody can be asked, that is ERR_USAGE. */
bool cli_resolve_or_pull(struct cli *c, const char **path, bool yes, struct err *e) MUST_CHECK;

#endif
