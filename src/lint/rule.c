/* The table of rules. */
#include <strings.h>
#include "lint/checks.h"

#define CALL_none(check) NULL, NULL, NULL
#define CALL_function(check) lint_check_##check, NULL, NULL
#define CALL_model(check) NULL, lint_check_##check, NULL
#define CALL_package(check) NULL, NULL, lint_check_##check

static const struct lint_rule rules[] = {
#define LINT_RULE(id, level, check, severity, confidence, title, holds, source, why, advice)                 \
    {id, title, LINT_##severity, LINT_##confidence, holds, source, why, advice, CALL_##level(check)},
#include "lint/rules.def"
#undef LINT_RULE
};
#define N_RULES ((int)(sizeof rules / sizeof rules[0]))

const struct lint_rule *lint_rule_at(int i)
{
    return i >= 0 && i < N_RULES ? &rules[i] : NULL;
}

const struct lint_rule *lint_rule_find(const char *id)
{
    for (int i = 0; i < N_RULES; i++)
        if (strcasecmp(id, rules[i].id) == 0)
            return &rules[i];
    return NULL;
}

const char *lint_severity_name(enum lint_severity s)
{
    return s == LINT_ERROR ? "error" : s == LINT_WARNING ? "warning" : "note";
}

const char *lint_confidence_name(enum lint_confidence c)
{
    return c == LINT_HIGH ? "high" : c == LINT_MEDIUM ? "medium" : "low";
}
