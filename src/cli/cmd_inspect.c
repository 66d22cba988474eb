/* milkit inspect: what is in a file or folder of any kind that milkit reads, and what differs between two models. */
#include <stdlib.h>
#include <string.h>
#include "cli/cli.h"
#include "cli/diff_print.h"
#include "cli/inspect_print.h"
#include "inspect/inspect.h"

int cmd_inspect(struct cli *c, int argc, char **argv)
{
    const char *diff = NULL;
    bool json = false, help = false, ok;
    int n_positional = 0;
    struct err e = {0};
    const struct cli_option options[] = {
        {"--json", CLI_FLAG, &json, NULL, "one JSON object"},
        {"--diff", CLI_STRING, &diff, "A", "what differs from model A to PATH: graph, weights, metadata"},
    };
    const char *path = NULL;

    if (!cli_parse(c, argc, argv, options, 2, &path, 1, &n_positional, "PATH [--diff A] [--json]", &help, &e))
        return cli_fail(c, &e, NULL);
    if (help)
        return 0;
    if (n_positional != 1) {
        err_set(&e, ERR_USAGE, "expected a path");
        return cli_fail(c, &e, NULL);
    }
    cJSON *o = cJSON_CreateObject();
    char *text = NULL;
    ok = cli_resolve(c, &path, &e);
    if (ok && diff)
        ok = inspect_diff(o, diff, path, &e) && (!json || (text = cJSON_Print(o)) != NULL);
    else if (ok)
        ok = json ? inspect_text(&text, path, &e) : inspect_path(o, path, &e);
    if (ok && json) {
        cli_put_json(text, strlen(text));
        putchar('\n');
    } else if (ok && diff) {
        diff_print(stdout, o);
    } else if (ok) {
        inspect_print(stdout, o);
    }
    cJSON_free(text);
    cJSON_Delete(o);
    ok = ok && cli_flush(&e);
    return ok ? 0 : cli_fail(c, &e, NULL);
}
