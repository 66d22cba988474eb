/* From a path to a report: which rules are asked, what was found. */
#include "lint/lint.h"
#include <stdlib.h>
#include <string.h>
#include "lint/scan.h"

/* ---- rules ---- */

static void scan_function(struct lint_scan *s, const struct mil_function *f)
{
    struct arena *a = arena_new(0);
    s->function = lint_function_new(f, a);
    for (int i = 0; (s->rule = lint_rule_at(i)); i++)
        if (s->rule->check_function)
            s->rule->check_function(s);
    s->function = NULL;
    arena_free(a);
}

static void scan_all(struct lint_scan *s)
{
    for (int k = 0; k < s->n_programs; k++) {
        s->program = &s->programs[k];
        for (int i = 0; (s->rule = lint_rule_at(i)); i++)
            if (s->rule->check_model)
                s->rule->check_model(s);
        for (int i = 0; i < s->program->model->program->n_functions; i++)
            scan_function(s, s->program->model->program->functions[i]);
    }
    s->program = NULL;
    for (int i = 0; (s->rule = lint_rule_at(i)); i++)
        if (s->rule->check_package)
            s->rule->check_package(s);
}

/* ---- report ---- */

static void add_finding(cJSON *list, const struct lint_finding *f)
{
    cJSON *one = cJSON_CreateObject();
    cJSON_AddStringToObject(one, "id", f->rule->id);
    cJSON_AddStringToObject(one, "severity", lint_severity_name(f->severity));
    cJSON_AddStringToObject(one, "title", f->rule->title);
    if (f->program)
        cJSON_AddStringToObject(one, "model", f->program);
    if (f->function)
        cJSON_AddStringToObject(one, "function", f->function);
    cJSON_AddNumberToObject(one, "count", f->count);
    cJSON *places = cJSON_AddArrayToObject(one, "places");
    for (int i = 0; i < f->n_places; i++) {
        cJSON *place = cJSON_CreateObject();
        if (f->places[i].operation)
            cJSON_AddStringToObject(place, "operation", f->places[i].operation);
        cJSON_AddStringToObject(place, "found", f->places[i].text);
        cJSON_AddItemToArray(places, place);
    }
    cJSON_AddStringToObject(one, "why", f->rule->why);
    cJSON_AddStringToObject(one, "holds", f->rule->holds);
    cJSON_AddStringToObject(one, "source", f->rule->source);
    cJSON_AddStringToObject(one, "confidence", lint_confidence_name(f->rule->confidence));
    cJSON_AddStringToObject(one, "advice", f->rule->advice);
    cJSON_AddItemToArray(list, one);
}

static void add_report(cJSON *o, const struct lint_scan *s, const char *path)
{
    int counts[3] = {0}, n_rules = 0;
    cJSON_AddNumberToObject(o, "schema", 1);
    cJSON_AddStringToObject(o, "path", path);
    cJSON *target = cJSON_AddObjectToObject(o, "target");
    cJSON_AddStringToObject(target, "chip", s->options->chip ? s->options->chip->name : "M4 and later");
    cJSON_AddStringToObject(target, "os", device_system_name(s->options->system.kind));
    if (s->options->system.version)
        cJSON_AddNumberToObject(target, "os_version", s->options->system.version);
    cJSON *summary = cJSON_AddObjectToObject(o, "summary"), *findings = cJSON_AddArrayToObject(o, "findings");
    for (int severity = LINT_ERROR; severity >= LINT_NOTE; severity--)
        for (size_t i = 0; i < s->n_findings; i++)
            if (s->findings[i].severity == (enum lint_severity)severity) {
                add_finding(findings, &s->findings[i]);
                counts[severity]++;
            }
    cJSON *not_judged = cJSON_AddArrayToObject(o, "not_judged");
    for (int i = 0; lint_rule_at(i); i++) {
        const struct lint_rule *r = lint_rule_at(i);
        bool is_judged = r->check_function || r->check_model || r->check_package;
        n_rules += is_judged;
        if (is_judged)
            continue;
        cJSON *one = cJSON_CreateObject();
        cJSON_AddStringToObject(one, "id", r->id);
        cJSON_AddStringToObject(one, "title", r->title);
        cJSON_AddStringToObject(one, "why", r->why);
        cJSON_AddItemToArray(not_judged, one);
    }
    cJSON_AddNumberToObject(summary, "models", s->n_programs);
    cJSON_AddNumberToObject(summary, "rules", n_rules);
    cJSON_AddNumberToObject(summary, "errors", counts[LINT_ERROR]);
    cJSON_AddNumberToObject(summary, "warnings", counts[LINT_WARNING]);
    cJSON_AddNumberToObject(summary, "notes", counts[LINT_NOTE]);
}

int lint_count(const cJSON *report, enum lint_severity s)
{
    static const char *const keys[] = {"notes", "warnings", "errors"};
    return (int)cJSON_GetNumberValue(json_get(json_get(report, "summary"), keys[s]));
}

bool lint_path(cJSON *out, const char *path, const struct lint_options *options, struct err *e)
{
    struct device_models o = {0};
    bool ok = device_models_open(&o, path, !options->skips_weights, e);
    if (ok) {
        struct lint_scan s = {
            .arena = arena_new(0), .options = options, .programs = o.list, .n_programs = o.n};
        scan_all(&s);
        add_report(out, &s, path);
        free(s.findings);
        arena_free(s.arena);
    }
    device_models_close(&o);
    return ok;
}

bool lint_options_read(struct lint_options *out, const char *json, struct err *e)
{
    cJSON *options = NULL;
    const char *chip = NULL, *os = NULL;
    *out = (struct lint_options){0};
    bool ok = !json || json_parse(&options, json, strlen(json), "options", e);
    if (ok && options && !cJSON_IsObject(options))
        ok = err_set(e, ERR_USAGE, "options: expected an object, found %s", json_type_name(options));
    for (const cJSON *item = ok && options ? options->child : NULL; ok && item; item = item->next)
        if (strcmp(item->string, "chip") != 0 && strcmp(item->string, "os") != 0)
            ok = err_set(e, ERR_USAGE, "options: unknown key '%s'", item->string);
    ok = ok && json_get_string(options, "chip", &chip, "options", e) &&
         json_get_string(options, "os", &os, "options", e) && (!chip || chip_find(&out->chip, chip, e)) &&
         (!os || device_system_read(&out->system, os, e));
    if (!ok)
        e->code = ERR_USAGE;
    cJSON_Delete(options);
    return ok;
}
