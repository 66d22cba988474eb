/* milkit tokenize: text to token ids and back, for a reader or, with --jsonl, for a program at the other end.
 */
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "base/json_text.h"
#include "cli/client.h"
#include "cli/json_lines.h"

#define SYNOPSIS "DIR [TEXT] [OPTIONS]"
#define TEXT_BYTES_MAX ((size_t)1 << 30)

struct tokenize {
    const mk_tokenizer *tokenizer;
    const char *text; /* NULL: stdin */
    bool decode, jsonl, ids_only, special, skip_special;
};

static bool decode(const struct tokenize *o, const int32_t *ids, size_t n, bool skips_special, mk_text **out,
                   struct err *e)
{
    mk_error *error = NULL;
    return client_take(mk_detokenize(o->tokenizer, ids, n, skips_special ? 0 : MK_SPECIAL, out, &error),
                       &error, e);
}

/* Prints "id <tab> piece" for each id, the piece as a JSON string. */
static bool print_pieces(const struct tokenize *o, const int32_t *ids, size_t n, struct err *e)
{
    struct buf line;
    buf_init(&line, TEXT_BYTES_MAX);
    bool ok = true;
    for (size_t i = 0; i < n && ok; i++) {
        mk_text *piece = NULL;
        size_t bytes;
        buf_clear(&line);
        ok = decode(o, &ids[i], 1, false, &piece, e);
        if (ok) {
            const char *text = mk_text_data(piece, &bytes);
            json_put_string(&line, text, bytes);
            printf("%d\t", (int)ids[i]);
            cli_put_json(line.p, line.n);
            putchar('\n');
        }
        mk_text_free(piece);
    }
    buf_fini(&line);
    return ok;
}

static bool encode_once(const struct tokenize *o, struct err *e)
{
    char *text = NULL;
    size_t bytes = 0, n = 0;
    int32_t *ids = NULL;
    if (o->text) {
        text = xstrdup(o->text);
        bytes = strlen(text);
    } else if (!cli_read_text("-", &text, &bytes, TEXT_BYTES_MAX, e)) {
        return false;
    }
    bool ok = client_tokenize(o->tokenizer, text, bytes, o->special ? MK_SPECIAL : 0, &ids, &n, e);
    if (ok && !o->ids_only)
        ok = print_pieces(o, ids, n, e);
    else if (ok)
        for (size_t i = 0; i < n; i++)
            printf("%d%s", (int)ids[i], i + 1 < n ? "," : "\n");
    free(text);
    free(ids);
    return ok;
}

/* The library leaves ids out that no token has; someone who types them should hear it. */
static bool check_ids(const struct tokenize *o, const int32_t *ids, size_t n, enum err_code fault,
                      struct err *e)
{
    int32_t size = mk_tokenizer_size(o->tokenizer);
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= size)
            return err_set(e, fault, "token id %d is outside the vocabulary: expected 0 to %d", (int)ids[i],
                           (int)size - 1);
    return true;
}

static bool decode_once(const struct tokenize *o, struct err *e)
{
    int32_t *ids = NULL;
    size_t n = 0;
    mk_text *text = NULL;
    const char *list = o->text ? o->text : "@-";
    bool ok = cli_read_ids(list, &ids, &n, e) &&
              check_ids(o, ids, n, list[0] == '@' ? ERR_FORMAT : ERR_USAGE, e) &&
              decode(o, ids, n, o->skip_special, &text, e);
    if (ok) {
        const char *p = mk_text_data(text, &n);
        cli_put_text(p, n);
        putchar('\n');
    }
    free(ids);
    mk_text_free(text);
    return ok;
}

static bool line_text(const struct tokenize *o, const struct buf *text, struct buf *out, struct err *e)
{
    int32_t *ids = NULL;
    size_t n = 0;
    bool ok = client_tokenize(o->tokenizer, text->p ? text->p : "", text->n, MK_SPECIAL, &ids, &n, e);
    buf_puts(out, "{\"ids\": [");
    for (size_t i = 0; i < n; i++)
        buf_printf(out, "%s%d", i ? ", " : "", (int)ids[i]);
    buf_puts(out, "]}\n");
    free(ids);
    return ok;
}

static bool line_ids(const struct tokenize *o, const struct json_object *line, struct buf *out, struct err *e)
{
    int32_t *ids = NULL;
    size_t n = 0;
    mk_text *text = NULL;
    bool ok = json_object_ids(line, "ids", &ids, &n, e) && decode(o, ids, n, o->skip_special, &text, e);
    if (ok) {
        const char *p = mk_text_data(text, &n);
        buf_puts(out, "{\"text\": ");
        json_put_string(out, p, n);
        buf_puts(out, "}\n");
    }
    free(ids);
    mk_text_free(text);
    return ok;
}

static bool answer_line(void *context, const char *line, size_t n, struct buf *out, struct err *e)
{
    const struct tokenize *o = context;
    struct json_object *object = NULL;
    struct buf text;
    bool ok;
    if (!json_object_read(&object, line, n, "stdin", e))
        return false;
    buf_init(&text, TEXT_BYTES_MAX);
    if (!o->decode && json_object_text(object, "text", &text))
        ok = line_text(o, &text, out, e);
    else if (json_object_has_list(object, "ids"))
        ok = line_ids(o, object, out, e);
    else
        ok = err_set(e, ERR_FORMAT, "expected an object with %s, found another %s",
                     o->decode ? "\"ids\" (an array)" : "\"text\" (a string) or \"ids\" (an array)",
                     json_object_type(object));
    buf_fini(&text);
    json_object_free(object);
    return ok;
}

static bool open_tokenizer(struct cli *c, const char *path, mk_library **library, mk_tokenizer **t,
                           struct err *e)
{
    const mk_tokenizer_options options = {.size = sizeof options, .parts = MK_READ_TOKENIZER};
    bool is_file = has_suffix(path, ".json") && path_exists(path);
    char *folder = NULL;
    mk_error *error = NULL;
    bool ok = client_open(c, 1, library, e) &&
              (is_file || cli_tokenizer_folder(&folder, path, "tokenizer.json", e));
    ok = ok &&
         client_take(mk_tokenizer_open(t, *library, is_file ? path : folder, &options, &error), &error, e);
    free(folder);
    return ok;
}

int cmd_tokenize(struct cli *c, int argc, char **argv)
{
    struct tokenize o = {0};
    struct err e = {0};
    mk_library *library = NULL;
    mk_tokenizer *t = NULL;
    const char *positional[2];
    int n_positional = 0;
    bool help = false;
    const struct cli_option options[] = {
        {"--decode", CLI_FLAG, &o.decode, NULL, "ids (1,2,3 or @FILE) to text"},
        {"--jsonl", CLI_FLAG, &o.jsonl, NULL,
         "one JSON object a line in and out: {\"text\"} to {\"ids\"} with special tokens, {\"ids\"} to "
         "{\"text\"}"},
        {"--ids", CLI_FLAG, &o.ids_only, NULL, "print only the ids, on one line"},
        {"--special", CLI_FLAG, &o.special, NULL, "add the tokens that the post-processor adds (bos)"},
        {"--skip-special", CLI_FLAG, &o.skip_special, NULL, "leave special tokens out of decoded text"},
    };
    if (!cli_parse(c, argc, argv, options, (int)(sizeof options / sizeof *options), positional, 2,
                   &n_positional, SYNOPSIS, &help, &e))
        return cli_fail(c, &e, NULL);
    if (help)
        return 0;
    o.text = n_positional > 1 ? positional[1] : NULL;
    bool ok = n_positional > 0 ||
              err_set(&e, ERR_USAGE, "expected a package, a checkpoint or a folder with a tokenizer.json");
    ok = ok && (!o.jsonl || !o.text ||
                err_set(&e, ERR_USAGE, "--jsonl reads stdin, not the argument \"%.100s\"", o.text));
    ok = ok && cli_resolve(c, &positional[0], &e) && cli_source(c, &positional[0], &e) &&
         open_tokenizer(c, positional[0], &library, &t, &e);
    o.tokenizer = t;
    if (ok && !o.text)
        cli_say_waiting(c, o.jsonl ? "requests (JSON, one a line)" : o.decode ? "token ids" : "text");
    if (ok)
        ok = o.jsonl    ? json_lines_answer(c, answer_line, &o, &e)
             : o.decode ? decode_once(&o, &e)
                        : encode_once(&o, &e);
    ok = ok && cli_flush(&e);
    mk_tokenizer_close(t);
    mk_library_close(library);
    return ok ? 0 : cli_fail(c, &e, NULL);
}
