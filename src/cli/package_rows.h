/* The options of commands that run a package. */
#ifndef MILKIT_CLI_PACKAGE_ROWS_H
#define MILKIT_CLI_PACKAGE_ROWS_H

#include "cli/cli.h"

struct package_options {
    const char *path; /* DIR, by position, -m or --meta */
    int64_t n_threads;
    const char *precision;     /* "default", "fp32", "fp16", "ane" */
    const char *emulation;     /* of "ane": switches of the emulation; NULL: the defaults */
    const char *backend;       /* "engine", "coreml"; NULL: the engine */
    const char *compute_units; /* of "coreml"; NULL: its default */
    bool yes;                  /* DOWNLOAD_OPTION_ROW */
    bool takes_checkpoint;     /* a checkpoint or a name of the hub, too: converted once and kept */
    /* no options of their own: of struct model_options; log NULL: the command's */
    bool watch_layers, other_form;
    struct log *log;
};
#define COMPUTING_OPTION_ROWS(p)                                                                             \
    {"--precision", CLI_STRING, &(p).precision, "MODE",                                                      \
     "default, fp32, fp16 (op by op) or ane (the Neural Engine's arithmetic, emulated)"},                    \
        {"--ane-model", CLI_STRING, &(p).emulation, "SWITCHES",                                              \
         "what is not known of it: norm=fp16, tables=exact, sums=m1, ... (docs/device.md)"},                 \
        {"--backend", CLI_STRING, &(p).backend, "NAME",                                                      \
         "what computes: engine (milkit's own) or coreml (Apple's systems: docs/mac.md)"},                   \
    {                                                                                                        \
        "--compute-units", CLI_STRING, &(p).compute_units, "UNITS",                                          \
            "of coreml: cpu-and-ane, cpu-and-gpu, cpu-only or all (cpu-and-ane)"                             \
    }
/* Rows for a command's option table. */
#define PACKAGE_OPTION_ROWS(p)                                                                               \
    {"-m,--model,--meta,-d,--d,--dir", CLI_STRING, &(p).path, "DIR", NULL},                                  \
        {"-t,--threads,-j", CLI_INT, &(p).n_threads, "N", "threads (all)"}, COMPUTING_OPTION_ROWS(p)

/* Parses the options of a command whose only positional argument is the package. False: the command has ended, with *status. */
bool package_parse(struct cli *c, int argc, char **argv, const struct cli_option *options, int n_options,
                   const char *synopsis, struct package_options *p, int *status) MUST_CHECK;
/* What the options say, checked: path given and resolved to *path, threads in range, *precision 0 (default), 1 (fp32),
 * 2 (fp16) or 3 (ane). */
bool package_options_check(struct cli *c, const struct package_options *o, const char **path, int *precision,
                           struct err *e) MUST_CHECK;
/* ERR_USAGE for a name that there is not. name NULL: the default. */
bool package_precision_number(const char *name, int *out, struct err *e) MUST_CHECK;
/* ERR_USAGE for a backend or units that there are not. */
bool package_backend_check(const char *backend, const char *compute_units, struct err *e) MUST_CHECK;
/* Says what the numbers of the emulation are, and are not. */
void package_say_emulation(struct cli *c, const struct package_options *o);

#endif
