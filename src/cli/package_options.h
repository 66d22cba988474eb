/* What the commands that run a package share: its options, opening it with the tokenizer, encoding a prompt.
 */
#ifndef MILKIT_CLI_PACKAGE_OPTIONS_H
#define MILKIT_CLI_PACKAGE_OPTIONS_H

#include "cli/cli.h"
#include "runtime/session.h"

struct package_options {
    const char *path; /* DIR, by position, -m or --meta */
    int64_t n_threads;
    const char *precision; /* "default", "fp32", "fp16" */
    /* no options of their own: of struct model_options; log NULL: the command's */
    bool watch_layers, other_form;
    struct log *log;
};
/* Rows for a command's option table. */
#define PACKAGE_OPTION_ROWS(p)                                                                               \
    {"-m,--model,--meta,-d,--d,--dir", CLI_STRING, &(p).path, "DIR", NULL},                                  \
        {"-t,--threads,-j", CLI_INT, &(p).n_threads, "N", "threads (all)"},                                  \
    {                                                                                                        \
        "--precision", CLI_STRING, &(p).precision, "MODE", "default, fp32 or fp16 (op by op)"                \
    }

/* Parses the options of a command whose only positional argument is the package. False: the command has ended, with *status. */
bool package_parse(struct cli *c, int argc, char **argv, const struct cli_option *options, int n_options,
                   const char *synopsis, struct package_options *p, int *status) MUST_CHECK;
/* ERR_USAGE for a name that there is not. name NULL: the default. */
bool package_precision(const char *name, enum model_precision *out, struct err *e) MUST_CHECK;
bool package_options_open(struct cli *c, const struct package_options *o, struct model **out,
                          struct err *e) MUST_CHECK;
/* The package's tokenizer, whose own stop id the package takes. Warns of what does not fit the model. */
bool package_open_tokenizer(struct cli *c, struct model *m, struct tokenizer **out, struct err *e) MUST_CHECK;
/* Text -> ids with the post-processor's tokens; every id must be one of the model's. */
bool package_encode(const struct model *m, const struct tokenizer *t, const char *text, size_t bytes,
                    struct ids *out, struct err *e) MUST_CHECK;
/* Each id must be one of the model's (ERR_USAGE). */
bool package_check_ids(const struct model *m, const int32_t *ids, size_t n, struct err *e) MUST_CHECK;
/* Ids given by the user, "1,2,3" or "@file": at least one, each one of the model's. Something else: ERR_USAGE, or ERR_FORMAT
 * in a file. */
bool package_read_ids(const struct model *m, const char *text, struct ids *out, struct err *e) MUST_CHECK;

#endif
