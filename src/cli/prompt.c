/* Reading a prompt. */
#include "cli/prompt.h"
#include <stdlib.h>
#include <string.h>

#define PROMPT_BYTES_MAX ((size_t)64 << 20)

int prompt_count(const struct prompt_options *o)
{
    return (o->text != NULL) + (o->file != NULL) + (o->tokens != NULL);
}

bool prompt_read_text(char **text, size_t *bytes, const char *path, bool keep_newline, size_t max_bytes,
                      struct err *e)
{
    if (!cli_read_text(path, text, bytes, max_bytes, e))
        return false;
    size_t n = *bytes;
    if (!keep_newline && n > 0 && (*text)[n - 1] == '\n') {
        n -= n > 1 && (*text)[n - 2] == '\r' ? 2 : 1;
        (*text)[n] = '\0';
        *bytes = n;
    }
    return true;
}

bool prompt_read(int32_t **ids, size_t *n, const struct prompt_options *o, int64_t vocab_size,
                 prompt_encode_fn encode, void *context, struct err *e)
{
    const char *path = o->file ? o->file : o->text && strcmp(o->text, "-") == 0 ? "-" : NULL;
    char *text = NULL;
    size_t bytes = 0;
    bool ok;
    *ids = NULL;
    *n = 0;
    if (o->tokens)
        return cli_read_vocabulary_ids(o->tokens, vocab_size, ids, n, e);
    if (path)
        ok = prompt_read_text(&text, &bytes, path, o->keep_newline, PROMPT_BYTES_MAX, e) &&
             encode(context, text, bytes, ids, n, e);
    else
        ok = encode(context, o->text, strlen(o->text), ids, n, e);
    free(text);
    if (ok && *n == 0)
        ok = path ? err_set(e, ERR_FORMAT, "%s: empty, expected a prompt",
                            strcmp(path, "-") == 0 ? "stdin" : path)
                  : err_set(e, ERR_USAGE, "the prompt is empty: there is nothing to continue");
    if (!ok) {
        free(*ids);
        *ids = NULL;
    }
    return ok;
}
