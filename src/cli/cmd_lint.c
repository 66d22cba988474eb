/* milkit lint: what is published of the Neural Engine held against a package or model. */
#include <stdlib.h>
#include <string.h>
#include "cli/cli.h"
#include "cli/lint_print.h"
#include "lint/lint.h"

#define SYNOPSIS "PACKAGE|MODEL [--chip CHIP] [--os SYSTEM] [--strict] [--json] | --explain ID"

static bool explain(const char *id, struct err *e)
{
    const struct lint_rule *r = lint_rule_find(id);
    if (!r)
        return err_set(e, ERR_USAGE, "--explain: expected the id of a rule (ANE001 and on), found '%s'", id);
    printf("%s %s (%s, confidence: %s)\n", r->id, r->title, lint_severity_name(r->severity),
           lint_confidence_name(r->confidence));
    printf("  why:       %s\n  holds for: %s\n  source:    %s\n  do:        %s\n", r->why, r->holds,
           r->source, r->advice);
    return true;
}

static bool lint(struct cli *c, const char *path, const struct lint_options *options, bool json, bool strict,
                 struct err *e)
{
    cJSON *o = cJSON_CreateObject();
    bool ok = cli_resolve(c, &path, e) && lint_path(o, path, options, e);
    char *text = ok && json ? cJSON_Print(o) : NULL;
    if (ok && json && !text)
        ok = err_set(e, ERR_NOMEM, "the report does not fit into memory");
    if (text) {
        cli_put_json(text, strlen(text));
        putchar('\n');
    } else if (ok) {
        lint_print(stdout, o);
    }
    ok = ok && cli_flush(e);
    int n_errors = ok ? lint_count(o, LINT_ERROR) : 0;
    if (strict && n_errors > 0)
        ok = err_set(e, ERR_MISMATCH, "%s: %d finding%s that do not work on the target", path, n_errors,
                     n_errors == 1 ? "" : "s");
    cJSON_free(text);
    cJSON_Delete(o);
    return ok;
}

int cmd_lint(struct cli *c, int argc, char **argv)
{
    const char *path = NULL, *chip = NULL, *system = NULL, *id = NULL;
    bool json = false, strict = false, help = false;
    int n_positional = 0;
    struct err e = {0};
    struct lint_options o = {0};
    const struct cli_option options[] = {
        {"--chip", CLI_STRING, &chip, "CHIP",
         "M4, A18 Pro, ... (M4 and later, with a word about older ones)"},
        {"--os", CLI_STRING, &system, "SYSTEM", "macOS 26, iOS 18, ... (any)"},
        {"--strict", CLI_FLAG, &strict, NULL, "status 5 where something does not work on the target"},
        {"--explain", CLI_STRING, &id, "ID", "say what a rule is about"},
        {"--json", CLI_FLAG, &json, NULL, "one JSON object"},
    };
    if (!cli_parse(c, argc, argv, options, (int)(sizeof options / sizeof *options), &path, 1, &n_positional,
                   SYNOPSIS, &help, &e))
        return cli_fail(c, &e, NULL);
    if (help)
        return 0;
    bool ok =
        (!chip || chip_find(&o.chip, chip, &e)) && (!system || device_system_read(&o.system, system, &e));
    if (ok && id)
        ok = explain(id, &e) && cli_flush(&e);
    else if (ok && n_positional != 1)
        ok = err_set(&e, ERR_USAGE, "expected a package or a model");
    else if (ok)
        ok = lint(c, path, &o, json, strict, &e);
    return ok ? 0 : cli_fail(c, &e, NULL);
}
