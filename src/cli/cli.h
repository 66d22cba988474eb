/* The command line frame: commands, options, messages, exit statuses.
 *
 * One file per command (cmd_<name>.c), listed in commands.def. A command parses its options with a table of struct
 * cli_option, does its work through the library folders and returns an exit status (err_exit_status). stdout carries
 * the product, stderr everything else.
 */
#ifndef MILKIT_CLI_CLI_H
#define MILKIT_CLI_CLI_H

#include <stdio.h>
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "milkit.h"

struct checkpoint_source;

struct cli {
    const char *program; /* "milkit" */
    const char *command; /* "convert" */
    struct log log;      /* stderr; level by -q, -v; cancel flag set by SIGINT and SIGTERM */
    /* The cancel flag itself, the number of the signal: a command that goes on after SIGINT clears it. */
    atomic_int *stop_signal;
    mk_cancel *cancel; /* the same for calls of the library */
    char *resolved[4]; /* what cli_resolve gave out; freed when the command has ended */
    int n_resolved;
    struct checkpoint_source *source; /* of cli_source; closed when the command has ended */
    bool lists_options;               /* help is for programs (--list-options) */
};

enum cli_option_kind {
    CLI_FLAG,    /* bool *      set true */
    CLI_INT,     /* int64_t *   decimal */
    CLI_DOUBLE,  /* double *    */
    CLI_STRING,  /* const char ** borrowed from argv */
    CLI_TEXT,    /* the same; "-" or "@-" reads stdin, which is said where that is a terminal */
    CLI_WORDS,   /* struct cli_words *: each use of the option adds its value */
    CLI_CONSTANT /* const char ** becomes arg; takes no value */
};

#define CLI_WORDS_MAX 64
struct cli_words {
    int n;
    const char *words[CLI_WORDS_MAX]; /* borrowed from argv */
};

struct cli_option {
    const char *names; /* "-o,--output"; aliases after the first long one are accepted silently */
    enum cli_option_kind kind;
    void *value;
    const char *arg;  /* "DIR": how help calls the value; NULL for flags */
    const char *help; /* one line; NULL: not shown */
};

/* Parses argv[1..]; positional arguments are collected into positional (at most n_max, *n_positional filled).
 * Accepts --name=value, -n5, "--" and "-" (a positional). Common options (-q, -v, -h/--help, --debug) are handled here.
 * Options that are habits of other tools (habits.def) are ignored with a note or refused with a hint; unknown ones are
 * ERR_USAGE with the nearest known name. *help is set when help was printed (return status 0 then). */
bool cli_parse(struct cli *c, int argc, char **argv, const struct cli_option *options, int n_options,
               const char **positional, int n_max, int *n_positional, const char *synopsis, bool *help,
               struct err *e) MUST_CHECK;

/* Prints "milkit: error: <message>" (and the hint, if any) and returns the exit status of the code. ERR_CLOSED says
 * nothing. */
int cli_fail(const struct cli *c, const struct err *e, const char *hint);
/* What the command line can do about an error or a warning, to stand behind its message; "" for none. */
const char *cli_hint_text(enum err_hint hint);

/* Reads "1,2,3" or "@file" (numbers separated by commas or blanks) into a heap array. Something else there: ERR_USAGE, or
 * ERR_FORMAT in a file. */
bool cli_read_ids(const char *text, int32_t **ids, size_t *n, struct err *e) MUST_CHECK;
/* The same, each one of a vocabulary. */
bool cli_read_vocabulary_ids(const char *text, int64_t vocab_size, int32_t **ids, size_t *n,
                             struct err *e) MUST_CHECK;
/* All of stdin ("-"), a file or a pipe, a heap string, at most max_bytes. */
bool cli_read_text(const char *path, char **text, size_t *bytes, size_t max_bytes, struct err *e) MUST_CHECK;
/* A checkpoint or package that the user named: an org/name (hub_resolve) of the local Hugging Face cache becomes its
 * folder, a path stays what it is, NULL stays NULL. Every argument that takes one goes through here. */
bool cli_resolve(struct cli *c, const char **path, struct err *e) MUST_CHECK;
/* Sets *path to found (heap), which lives until the command has ended. */
bool cli_keep_path(struct cli *c, const char **path, char *found, struct err *e) MUST_CHECK;
/* A GGUF file becomes a folder with its tokenizer and templates (checkpoint_source); every other path stays what it is. */
bool cli_source(struct cli *c, const char **path, struct err *e) MUST_CHECK;
/* The folder of a tokenizer's files, which the user named by itself or by one of its files (meta.yaml of a package). member: a
 * file that must be in it, or NULL. A heap string, NULL on failure: ERR_IO where nothing is there, ERR_FORMAT without the
 * member. */
bool cli_tokenizer_folder(char **out, const char *path, const char *member, struct err *e) MUST_CHECK;
/* An output file that the user named in an option: one that is there is replaced with force alone (ERR_IO). "-" is stdout
 * where is_stream, else ERR_USAGE: nobody means a file of this name. path NULL: true. */
bool cli_check_output(const char *option, const char *path, bool is_stream, bool force,
                      struct err *e) MUST_CHECK;
/* Says on stderr that the command waits for what is typed, where stdin is a terminal. */
void cli_say_waiting(struct cli *c, const char *what);
/* Flushes stdout; a failed write (disk full) is ERR_IO, and ERR_CLOSED where whoever reads stdout has closed it. */
bool cli_flush(struct err *e) MUST_CHECK;
/* The product, to stdout. Text of models and files goes out as it is, but to a terminal without what base/terminal.h holds
 * back; JSON, or lines with JSON strings in them, is printable wherever it goes. */
void cli_put_text(const char *text, size_t n);
void cli_put_json(const char *json, size_t n);

#define CLI_COMMAND(name, summary) int cmd_##name(struct cli *c, int argc, char **argv);
#include "cli/commands.def"
#undef CLI_COMMAND

#endif
