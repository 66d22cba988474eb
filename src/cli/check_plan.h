/* check --plan: the device that each op is expected on. */
#ifndef MILKIT_CLI_CHECK_PLAN_H
#define MILKIT_CLI_CHECK_PLAN_H

#include "cli/package_rows.h"

/* p: a package or a model, and whose plan it is. chip NULL: M4. */
bool check_plan(struct cli *c, const struct package_options *p, const char *chip, bool json,
                struct err *e) MUST_CHECK;

#endif
