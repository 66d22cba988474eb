/* What is published about the Neural Engine's limits, arithmetic and failures, held against a model or a package.
 *
 * Rules are rows of rules.def with a check each; docs/lint.md is made from them. A check reads programs, and for a few rules the
 * constants in them; nothing is run. What a rule says was measured or reported by others: each finding carries the source, where it
 * holds and how sure that is.
 */
#ifndef MILKIT_LINT_LINT_H
#define MILKIT_LINT_LINT_H

#include "device/chip.h"
#include "format/json.h"

enum lint_severity {
    LINT_NOTE,    /* worth knowing */
    LINT_WARNING, /* probably slow, wrong, or on another device */
    LINT_ERROR    /* does not work on the target */
};
const char *lint_severity_name(enum lint_severity s); /* "note" */

enum lint_confidence { LINT_LOW, LINT_MEDIUM, LINT_HIGH };
const char *lint_confidence_name(enum lint_confidence c); /* "low" */

struct lint_scan;
struct lint_rule {
    const char *id, *title;
    enum lint_severity severity; /* as a rule; a check may say less or more by target and place */
    enum lint_confidence confidence;
    const char *holds, *source, *why, *advice;
    /* Of a function, of a model, of all models of the package; all NULL: can't be judged from a file, for the reason in why. */
    void (*check_function)(struct lint_scan *s);
    void (*check_model)(struct lint_scan *s);
    void (*check_package)(struct lint_scan *s);
};
const struct lint_rule *lint_rule_at(int i);            /* in the order of the table; NULL behind the last */
const struct lint_rule *lint_rule_find(const char *id); /* NULL: none; any case */

struct lint_options {
    const struct chip *chip; /* NULL: M4 and later, with a word where older ones differ */
    struct device_system system;
    bool skips_weights; /* constants in weight files are not read: what needs them is not judged */
};

/* Adds the report to o, an empty object: "schema", "path", "target", "summary", "findings", "not_judged". */
bool lint_path(cJSON *o, const char *path, const struct lint_options *options, struct err *e) MUST_CHECK;
/* From the keys "chip" and "os" of a JSON object (NULL: defaults); ERR_USAGE. */
bool lint_options_read(struct lint_options *out, const char *json, struct err *e) MUST_CHECK;
/* Number of findings of a report. */
int lint_count(const cJSON *report, enum lint_severity s);

#endif
