/* check --plan: the device that each op is expected on. */
#ifndef MILKIT_CLI_CHECK_PLAN_H
#define MILKIT_CLI_CHECK_PLAN_H

#include "cli/cli.h"

/* path: a package or a model; chip NULL: M4. */
bool check_plan(struct cli *c, const char *path, const char *chip, bool json, struct err *e) MUST_CHECK;

#endif
