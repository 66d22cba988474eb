/* milkit lint: the report for people, and a line of it for the end of a conversion. */
#include "cli/lint_print.h"
#include <string.h>
#include "base/terminal.h"

static const char *string_of(const cJSON *o, const char *key)
{
    const char *s = cJSON_GetStringValue(json_get(o, key));
    return s ? s : "";
}

static int count_of(const cJSON *o, const char *key)
{
    return (int)cJSON_GetNumberValue(json_get(o, key));
}

static void put_pair(FILE *f, const char *label, const char *text)
{
    fprintf(f, "    %-7s ", label);
    terminal_put(f, text);
    fputc('\n', f);
}

static void put_finding(FILE *f, const cJSON *one)
{
    const cJSON *place;
    int shown = 0, n = count_of(one, "count");
    fprintf(f, "%s %s: %s", string_of(one, "id"), string_of(one, "severity"), string_of(one, "title"));
    if (json_get(one, "model")) {
        fputs(" (", f);
        terminal_put(f, string_of(one, "model"));
        if (json_get(one, "function")) {
            fputs(", ", f);
            terminal_put(f, string_of(one, "function"));
        }
        fputc(')', f);
    }
    fputc('\n', f);
    cJSON_ArrayForEach(place, json_get(one, "places"))
    {
        fputs("    found   ", f);
        if (json_get(place, "operation")) {
            terminal_put(f, string_of(place, "operation"));
            fputs(": ", f);
        }
        terminal_put(f, string_of(place, "found"));
        fputc('\n', f);
        shown++;
    }
    if (n > shown)
        fprintf(f, "            and %d more\n", n - shown);
    put_pair(f, "why", string_of(one, "why"));
    fprintf(f, "    source  %s; holds for: %s; confidence: %s\n", string_of(one, "source"),
            string_of(one, "holds"), string_of(one, "confidence"));
    put_pair(f, "do", string_of(one, "advice"));
}

static void put_counts(struct buf *b, const cJSON *report)
{
    const cJSON *summary = json_get(report, "summary");
    int errors = count_of(summary, "errors"), warnings = count_of(summary, "warnings"),
        notes = count_of(summary, "notes");
    buf_printf(b, "%d error%s, %d warning%s, %d note%s", errors, errors == 1 ? "" : "s", warnings,
               warnings == 1 ? "" : "s", notes, notes == 1 ? "" : "s");
}

void lint_print(FILE *f, const cJSON *report)
{
    const cJSON *one, *target = json_get(report, "target");
    struct buf b;
    cJSON_ArrayForEach(one, json_get(report, "findings"))
    {
        put_finding(f, one);
        fputc('\n', f);
    }
    cJSON_ArrayForEach(one, json_get(report, "not_judged")) fprintf(
        f, "%s not judged: %s. %s\n", string_of(one, "id"), string_of(one, "title"), string_of(one, "why"));
    buf_init(&b, 256);
    put_counts(&b, report);
    fprintf(f, "%s (%d rules from published reports, chip: %s, system: %s", b.p,
            count_of(json_get(report, "summary"), "rules"), string_of(target, "chip"),
            string_of(target, "os"));
    if (json_get(target, "os_version"))
        fprintf(f, " %d", count_of(target, "os_version"));
    fputs(")\n", f);
    buf_fini(&b);
}

/* The ids of a severity behind a word, each once. */
static void put_ids(struct buf *out, const cJSON *report, const char *severity, const char *word)
{
    const cJSON *one;
    const char *last = "";
    cJSON_ArrayForEach(one, json_get(report, "findings"))
    {
        if (strcmp(string_of(one, "severity"), severity) != 0 || strcmp(string_of(one, "id"), last) == 0)
            continue;
        buf_printf(out, "%s %s", last[0] ? "," : word, string_of(one, "id"));
        last = string_of(one, "id");
    }
    if (last[0])
        buf_puts(out, "; ");
}

void lint_print_short(struct buf *out, const cJSON *report)
{
    int notes = count_of(json_get(report, "summary"), "notes");
    put_ids(out, report, "error", "does not work:");
    put_ids(out, report, "warning", "doubtful:");
    buf_printf(out, "%d note%s", notes, notes == 1 ? "" : "s");
}
