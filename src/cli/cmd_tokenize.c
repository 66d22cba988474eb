/* milkit tokenize: text to token ids and back, for a reader or, with --jsonl, for a program at the other end.
 */
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "cli/cli.h"
#include "format/json_line.h"
#include "runtime/vocabulary.h"
#include "tokenizer/tokenizer.h"

#define SYNOPSIS "DIR [TEXT] [OPTIONS]"
#define TEXT_BYTES_MAX ((size_t)1 << 30)

struct tokenize {
    const char *text; /* NULL: stdin */
    bool decode, jsonl, ids_only, special, skip_special;
};

/* Prints "id <tab> piece" for each id, the piece as a JSON string. */
static bool print_pieces(const struct tokenizer *t, const struct ids *ids, struct err *e)
{
    struct buf piece, line;
    buf_init(&piece, TEXT_BYTES_MAX);
    buf_init(&line, TEXT_BYTES_MAX);
    bool ok = true;
    for (size_t i = 0; i < ids->n && ok; i++) {
        buf_clear(&piece);
        buf_clear(&line);
        ok = tokenizer_decode(t, &ids->p[i], 1, false, &piece, e);
        json_put_string(&line, piece.p ? piece.p : "", piece.n);
        if (ok) {
            printf("%d\t", (int)ids->p[i]);
            cli_put_json(line.p, line.n);
            putchar('\n');
        }
    }
    buf_fini(&piece);
    buf_fini(&line);
    return ok;
}

static bool encode_once(const struct tokenizer *t, const struct tokenize *o, struct err *e)
{
    char *text = NULL;
    size_t bytes = 0;
    struct ids ids = {0};
    if (o->text) {
        text = xstrdup(o->text);
        bytes = strlen(text);
    } else if (!cli_read_text("-", &text, &bytes, TEXT_BYTES_MAX, e)) {
        return false;
    }
    bool ok = tokenizer_encode(t, text, bytes, o->special, &ids, e);
    if (ok && !o->ids_only)
        ok = print_pieces(t, &ids, e);
    else if (ok)
        for (size_t i = 0; i < ids.n; i++)
            printf("%d%s", (int)ids.p[i], i + 1 < ids.n ? "," : "\n");
    free(text);
    ids_free(&ids);
    return ok;
}

/* The library leaves ids out that no token has; someone who types them should hear it. */
static bool check_ids(const struct tokenizer *t, const int32_t *ids, size_t n, enum err_code fault,
                      struct err *e)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= tokenizer_vocab_size(t))
            return err_set(e, fault, "token id %d is outside the vocabulary: expected 0 to %d", (int)ids[i],
                           (int)tokenizer_vocab_size(t) - 1);
    return true;
}

static bool decode_once(const struct tokenizer *t, const struct tokenize *o, struct err *e)
{
    int32_t *ids = NULL;
    size_t n = 0;
    struct buf text;
    buf_init(&text, TEXT_BYTES_MAX);
    const char *list = o->text ? o->text : "@-";
    bool ok = cli_read_ids(list, &ids, &n, e) &&
              check_ids(t, ids, n, list[0] == '@' ? ERR_FORMAT : ERR_USAGE, e) &&
              tokenizer_decode(t, ids, n, o->skip_special, &text, e);
    if (ok) {
        cli_put_text(text.p ? text.p : "", text.n);
        putchar('\n');
    }
    free(ids);
    buf_fini(&text);
    return ok;
}

static bool line_text(const struct tokenizer *t, const cJSON *item, struct buf *out, struct err *e)
{
    struct ids ids = {0};
    struct buf text;
    buf_init(&text, TEXT_BYTES_MAX);
    json_line_string(&text, item);
    bool ok = tokenizer_encode(t, text.p, text.n, true, &ids, e);
    buf_puts(out, "{\"ids\": [");
    for (size_t i = 0; i < ids.n; i++)
        buf_printf(out, "%s%d", i ? ", " : "", (int)ids.p[i]);
    buf_puts(out, "]}\n");
    buf_fini(&text);
    ids_free(&ids);
    return ok;
}

static bool line_ids(const struct tokenizer *t, const struct tokenize *o, const cJSON *list, struct buf *out,
                     struct err *e)
{
    struct ids ids = {0};
    struct buf text;
    buf_init(&text, TEXT_BYTES_MAX);
    bool ok = true;
    for (const cJSON *id = list->child; id && ok; id = id->next) {
        ok = cJSON_IsNumber(id) && id->valuedouble >= 0 && id->valuedouble <= INT32_MAX &&
             id->valuedouble == (double)(int32_t)id->valuedouble;
        if (ok)
            ids_push(&ids, (int32_t)id->valuedouble);
        else
            err_set(e, ERR_FORMAT, "\"ids\": expected token ids, found something else as number %zu",
                    ids.n + 1);
    }
    ok = ok && tokenizer_decode(t, ids.p, ids.n, o->skip_special, &text, e);
    buf_puts(out, "{\"text\": ");
    json_put_string(out, text.p ? text.p : "", text.n);
    buf_puts(out, "}\n");
    buf_fini(&text);
    ids_free(&ids);
    return ok;
}

static bool answer_line(const struct tokenizer *t, const struct tokenize *o, const char *line, size_t n,
                        struct buf *out, struct err *e)
{
    cJSON *root = NULL;
    if (!json_line_parse(&root, line, n, "stdin", e))
        return false;
    const cJSON *text = json_get(root, "text"), *ids = json_get(root, "ids");
    bool ok;
    if (cJSON_IsString(text) && !o->decode)
        ok = line_text(t, text, out, e);
    else if (cJSON_IsArray(ids))
        ok = line_ids(t, o, ids, out, e);
    else
        ok = err_set(e, ERR_FORMAT, "expected an object with %s, found another %s",
                     o->decode ? "\"ids\" (an array)" : "\"text\" (a string) or \"ids\" (an array)",
                     json_type_name(root));
    cJSON_Delete(root);
    return ok;
}

/* One object a line in, one out, each at once: the other end may wait for it before it writes the next. */
static bool answer_lines(struct cli *c, const struct tokenizer *t, const struct tokenize *o, struct err *e)
{
    char *line = NULL;
    size_t capacity = 0;
    struct buf out;
    buf_init(&out, TEXT_BYTES_MAX);
    bool ok = true;
    ssize_t n;
    for (size_t i_line = 1; ok && (n = getline(&line, &capacity, stdin)) >= 0; i_line++) {
        while (n > 0 && strchr(" \t\r\n", line[n - 1]))
            n--;
        if (n == 0)
            continue;
        buf_clear(&out);
        ok = answer_line(t, o, line, (size_t)n, &out, e);
        if (ok && out.failed)
            ok = err_set(e, ERR_LIMIT, "an answer of more than %zu bytes", TEXT_BYTES_MAX);
        if (!ok) {
            err_wrap(e, "line %zu", i_line);
            break;
        }
        cli_put_json(out.p, out.n);
        ok = cli_flush(e) && !log_cancelled(&c->log, e);
    }
    if (ok && ferror(stdin))
        ok = err_set_errno(e, "stdin: can't read");
    free(line);
    buf_fini(&out);
    return ok;
}

static bool open_tokenizer(struct cli *c, const char *path, struct tokenizer **t, struct err *e)
{
    char *folder;
    if (has_suffix(path, ".json") && path_exists(path))
        return tokenizer_open(t, path, e);
    bool ok = cli_tokenizer_folder(&folder, path, "tokenizer.json", e) && tokenizer_open(t, folder, e);
    if (ok)
        vocabulary_check_tokenizer(&c->log, folder, *t, vocabulary_of_folder(folder));
    free(folder);
    return ok;
}

int cmd_tokenize(struct cli *c, int argc, char **argv)
{
    struct tokenize o = {0};
    struct err e = {0};
    struct tokenizer *t = NULL;
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
         open_tokenizer(c, positional[0], &t, &e);
    if (ok && !o.text)
        cli_say_waiting(c, o.jsonl ? "requests (JSON, one a line)" : o.decode ? "token ids" : "text");
    if (ok)
        ok = o.jsonl    ? answer_lines(c, t, &o, &e)
             : o.decode ? decode_once(t, &o, &e)
                        : encode_once(t, &o, &e);
    ok = ok && cli_flush(&e);
    tokenizer_free(t);
    return ok ? 0 : cli_fail(c, &e, NULL);
}
