/* A GGUF file as a checkpoint folder that stays. */
#ifndef MILKIT_CONVERT_PLAIN_H
#define MILKIT_CONVERT_PLAIN_H

#include "convert/convert.h"

/* Of the options checkpoint, output, config_overrides and log count. The output must not exist, but as an empty folder. */
bool convert_plain(const struct convert_options *o, struct convert_report *report, struct err *e) MUST_CHECK;

#endif
