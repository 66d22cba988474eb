/* Asking for a download, and doing it. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/terminal.h"
#include "cli/download.h"
#include "hub/hub.h"

#define SMALL_BYTES 100000000

struct question {
    struct cli *cli;
    bool yes;
    struct err *e; /* why nobody was asked */
};

static bool ask(void *context, const struct hub_plan *plan)
{
    struct question *q = context;
    char answer[16];
    if (q->yes || plan->missing_bytes < SMALL_BYTES)
        return true;
    double gigabytes = (double)plan->missing_bytes / 1e9;
    if (isatty(STDIN_FILENO) != 1 || isatty(STDERR_FILENO) != 1)
        return err_set(
            q->e, ERR_USAGE,
            "%s is not in the cache: %.1f GB in %d files would be downloaded; -y (--yes) does that",
            plan->name, gigabytes, plan->n_missing);
    fprintf(stderr, "%s: %s is not in the cache. Download %.1f GB in %d files to ", q->cli->program,
            plan->name, gigabytes, plan->n_missing);
    terminal_put(stderr, plan->cache);
    fputs("? [y/N] ", stderr);
    fflush(stderr);
    ssize_t n = read(STDIN_FILENO, answer, sizeof answer - 1);
    return n > 0 && (answer[0] == 'y' || answer[0] == 'Y');
}

/* Is what stands before the slash a folder here? Then the text is a path with a slip, not a name. */
static bool is_in_folder(const char *path)
{
    char *folder = path_folder(path);
    bool is_there = path_is_folder(folder);
    free(folder);
    return is_there;
}

bool cli_resolve_or_pull(struct cli *c, const char **path, bool yes, struct err *e)
{
    struct err refused = {0};
    struct question q = {.cli = c, .yes = yes, .e = &refused};
    struct hub_pull_options o = {.only_if_incomplete = true, .confirm = ask, .context = &q, .log = &c->log};
    char *found;
    if (!*path || hub_is_offline() || !hub_is_name(*path) || is_in_folder(*path))
        return cli_resolve(c, path, e);
    if (!hub_pull(&found, *path, &o, e)) {
        if (refused.code)
            *e = refused;
        return false;
    }
    return cli_keep_path(c, path, found, e);
}
