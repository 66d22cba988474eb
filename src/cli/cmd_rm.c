/* milkit rm: removes packages that chat and run have made and kept. */
#include <string.h>
#include "cli/cli.h"
#include "hub/store.h"

#define NAMES_MAX 64

/* Is the entry meant: its whole name, or what it was made from? */
static bool is_meant(const struct store_entry *x, const char *name)
{
    return strcmp(x->name, name) == 0 || strcmp(x->source, name) == 0;
}

static bool remove_named(struct cli *c, const struct store_list *l, const char *name, struct err *e)
{
    int n = 0;
    for (size_t i = 0; i < l->n; i++) {
        const struct store_entry *x = &l->entries[i];
        if (name && !is_meant(x, name))
            continue;
        if (!store_remove(x, e))
            return false;
        log_info(&c->log, "removed %s (%.1f MB)", x->name, (double)x->bytes / 1e6);
        n++;
    }
    return n > 0 || !name ||
           err_set(e, ERR_IO,
                   "%s: no kept package of this name, and none made from it (milkit list shows them)", name);
}

int cmd_rm(struct cli *c, int argc, char **argv)
{
    const char *names[NAMES_MAX];
    struct store_list l;
    bool all = false, help = false;
    int n_positional = 0;
    struct err e = {0};
    const struct cli_option options[] = {
        {"--all", CLI_FLAG, &all, NULL, "every kept package"},
    };
    if (!cli_parse(c, argc, argv, options, (int)(sizeof options / sizeof options[0]), names, NAMES_MAX,
                   &n_positional, "NAME... | --all", &help, &e))
        return cli_fail(c, &e, NULL);
    if (help)
        return 0;
    if (!n_positional == !all) {
        err_set(&e, ERR_USAGE,
                all ? "expected names or --all, found both"
                    : "expected the names of kept packages, or what they were made from");
        return cli_fail(c, &e, NULL);
    }
    bool ok = store_read(&l, &e);
    if (ok && all)
        ok = remove_named(c, &l, NULL, &e);
    for (int i = 0; ok && i < n_positional; i++)
        ok = remove_named(c, &l, names[i], &e);
    store_list_free(&l);
    return ok ? 0 : cli_fail(c, &e, NULL);
}
