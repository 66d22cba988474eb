/* The prompt of a command that runs a package: a text, a file, stdin, or token ids.
 */
#ifndef MILKIT_CLI_PROMPT_H
#define MILKIT_CLI_PROMPT_H

#include "cli/cli.h"

struct prompt_options {
    const char *text;   /* "-": stdin */
    const char *file;   /* "-": stdin */
    const char *tokens; /* "1,2,3" or "@file" */
    bool keep_newline;
};
/* Rows for a command's option table; about: what help says of -p. */
#define PROMPT_OPTION_ROWS(p, about)                                                                         \
    {"-p,--prompt", CLI_TEXT, &(p).text, "TEXT", about},                                                     \
        {"-f,--file", CLI_TEXT, &(p).file, "FILE", "read the prompt from a file (- reads stdin)"},           \
        {"--tokens", CLI_TEXT, &(p).tokens, "IDS", "the prompt as ids: 1,2,3 or @FILE"},                     \
    {                                                                                                        \
        "--keep-newline", CLI_FLAG, &(p).keep_newline, NULL,                                                 \
            "keep the last line end of a prompt from a file or stdin"                                        \
    }

/* How many of text, file and tokens were given. */
int prompt_count(const struct prompt_options *o);
/* The bytes of a file or of stdin ("-"), without one line end ("\n" or "\r\n") at the end: editors and echo put it there,
 * and a model would take it for the end of a paragraph. A heap string. */
bool prompt_read_text(char **text, size_t *bytes, const char *path, bool keep_newline, size_t max_bytes,
                      struct err *e) MUST_CHECK;
/* Text to ids on the heap, with the post-processor's tokens. */
typedef bool (*prompt_encode_fn)(void *context, const char *text, size_t bytes, int32_t **ids, size_t *n,
                                 struct err *e);
/* The ids of the one that was given, on the heap. Nothing in it: ERR_USAGE, or ERR_FORMAT for a file. encode is not called
 * with tokens, which must be below vocab_size. */
bool prompt_read(int32_t **ids, size_t *n, const struct prompt_options *o, int64_t vocab_size,
                 prompt_encode_fn encode, void *context, struct err *e) MUST_CHECK;

#endif
