/* The check of every rule, by the name in rules.def. */
#ifndef MILKIT_LINT_CHECKS_H
#define MILKIT_LINT_CHECKS_H

#include "lint/scan.h"

#define LINT_CHECK_none(check)
#define LINT_CHECK_function(check) void lint_check_##check(struct lint_scan *s);
#define LINT_CHECK_model(check) void lint_check_##check(struct lint_scan *s);
#define LINT_CHECK_package(check) void lint_check_##check(struct lint_scan *s);
#define LINT_RULE(id, level, check, severity, confidence, title, holds, source, why, advice)                 \
    LINT_CHECK_##level(check)
#include "lint/rules.def"
#undef LINT_RULE

#endif
