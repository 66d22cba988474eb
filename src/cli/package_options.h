/* What the commands that look into a package as it runs share: opening it with the tokenizer, encoding a prompt. */
#ifndef MILKIT_CLI_PACKAGE_OPTIONS_H
#define MILKIT_CLI_PACKAGE_OPTIONS_H

#include "cli/package_rows.h"
#include "cli/prompt.h"
#include "runtime/session.h"

/* ERR_USAGE for a name that there is not. name NULL: the default. */
bool package_precision(const char *name, enum model_precision *out, struct err *e) MUST_CHECK;
bool package_options_open(struct cli *c, const struct package_options *o, struct model **out,
                          struct err *e) MUST_CHECK;
/* The package's tokenizer, whose own stop id the package takes. Warns of what does not fit the model. */
bool package_open_tokenizer(struct cli *c, struct model *m, struct tokenizer **out, struct err *e) MUST_CHECK;
/* Text -> ids with the post-processor's tokens; every id must be one of the model's. */
bool package_encode(const struct model *m, const struct tokenizer *t, const char *text, size_t bytes,
                    struct ids *out, struct err *e) MUST_CHECK;
/* The ids of the prompt that was given (prompt_read). t may be NULL with tokens. */
bool package_read_prompt(const struct model *m, const struct tokenizer *t, const struct prompt_options *o,
                         struct ids *out, struct err *e) MUST_CHECK;

#endif
