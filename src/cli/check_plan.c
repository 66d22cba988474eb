/* check --plan: a summary of each function, and the ops that are not expected on the Neural Engine. */
#include "cli/check_plan.h"
#include <string.h>
#include "base/terminal.h"
#include "device/place.h"

#define REASONS_MAX 16

static const char *string_of(const cJSON *o, const char *key)
{
    const char *s = cJSON_GetStringValue(json_get(o, key));
    return s ? s : "";
}

static int int_of(const cJSON *o, const char *key)
{
    return (int)cJSON_GetNumberValue(json_get(o, key));
}

/* Each reason once, with its number of ops and the first one's name. */
static void print_reasons(const cJSON *part)
{
    struct {
        const char *reason, *type, *first;
        int n;
    } found[REASONS_MAX];
    int n = 0;
    const cJSON *op;
    cJSON_ArrayForEach(op, json_get(part, "operations"))
    {
        int i = 0;
        if (strcmp(string_of(op, "device"), "processor") != 0)
            continue;
        while (i < n && (strcmp(found[i].reason, string_of(op, "reason")) != 0 ||
                         strcmp(found[i].type, string_of(op, "type")) != 0))
            i++;
        if (i == REASONS_MAX)
            continue;
        if (i == n) {
            found[n].reason = string_of(op, "reason");
            found[n].type = string_of(op, "type");
            found[n].first = string_of(op, "operation");
            found[n++].n = 0;
        }
        found[i].n++;
    }
    for (int i = 0; i < n; i++) {
        printf("    %4d %-18s ", found[i].n, found[i].type);
        terminal_put(stdout, found[i].first);
        printf("%s: %s\n", found[i].n > 1 ? ", ..." : "", found[i].reason);
    }
}

static void print(const cJSON *o)
{
    const cJSON *part;
    printf("devices on %s, %s\n", string_of(o, "chip"), string_of(o, "basis"));
    cJSON_ArrayForEach(part, json_get(o, "parts"))
    {
        terminal_put(stdout, string_of(part, "model"));
        fputs(", ", stdout);
        terminal_put(stdout, string_of(part, "function"));
        printf(": %d ops on the engine, %d on the processor, %d before the engine begins; %d segment%s, "
               "about %.2f ms\n",
               int_of(part, "engine"), int_of(part, "processor"), int_of(part, "prologue"),
               int_of(part, "segments"), int_of(part, "segments") == 1 ? "" : "s",
               cJSON_GetNumberValue(json_get(part, "estimated_ms")));
        print_reasons(part);
    }
}

bool check_plan(struct cli *c, const char *path, const char *name, bool json, struct err *e)
{
    const struct chip *chip;
    cJSON *o = cJSON_CreateObject();
    if (!path) {
        cJSON_Delete(o);
        return err_set(e, ERR_USAGE, "expected a package folder or a model");
    }
    bool ok =
        chip_find(&chip, name ? name : "M4", e) && cli_resolve(c, &path, e) && place_path(o, path, chip, e);
    char *text = ok && json ? cJSON_Print(o) : NULL;
    if (text) {
        cli_put_json(text, strlen(text));
        putchar('\n');
    } else if (ok && !json) {
        print(o);
    } else if (ok) {
        ok = err_set(e, ERR_NOMEM, "the report does not fit into memory");
    }
    cJSON_free(text);
    cJSON_Delete(o);
    return ok && cli_flush(e);
}
