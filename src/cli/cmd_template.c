/* milkit template: messages to the text and ids that a model sees, for a reader or, with --jsonl, for a program.
 */
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "base/json_text.h"
#include "cli/client.h"
#include "cli/json_lines.h"

#define SYNOPSIS "DIR [OPTIONS] < messages.json"
#define TEXT_BYTES_MAX ((size_t)1 << 30)

struct template_command {
    const mk_tokenizer *tokenizer;
    bool flat, jsonl, text_only, ids_only, prompt, decode_arguments;
    const char *name, *think;
    int64_t now;
};

/* json [n]: a list of messages, or a request. */
static mk_status render(const struct template_command *o, const char *json, size_t n, mk_text **out,
                        mk_error **error)
{
    char options[100];
    snprintf(options, sizeof options, "{\"add_generation_prompt\": %s%s}", o->prompt ? "true" : "false",
             !o->think                     ? ""
             : strcmp(o->think, "on") == 0 ? ", \"enable_thinking\": true"
                                           : ", \"enable_thinking\": false");
    const mk_template_request r = {.size = sizeof r,
                                   .messages = json,
                                   .messages_bytes = n,
                                   .options = o->prompt || o->think ? options : NULL,
                                   .name = o->name,
                                   .now = o->now,
                                   .flags = (o->flat ? (uint32_t)MK_TEMPLATE_FLAT : 0) |
                                            (o->decode_arguments ? 0 : (uint32_t)MK_TEMPLATE_RAW_ARGUMENTS),
                                   .where = "stdin"};
    return mk_template(o->tokenizer, &r, out, error);
}

static void put_string(struct buf *out, const char *key, const char *text, size_t n)
{
    json_put_key(out, key);
    json_put_string(out, text, n);
}

/* A request that is wrong is answered, too: with the template's own complaint, or what is wrong. */
static bool answer_line(void *context, const char *line, size_t n, struct buf *out, struct err *e)
{
    const struct template_command *o = context;
    mk_text *text = NULL;
    mk_error *error = NULL;
    (void)e;
    buf_putc(out, '{');
    if (render(o, line, n, &text, &error) == MK_OK) {
        const char *p = mk_text_data(text, &n);
        put_string(out, "text", p, n);
        if (mk_tokenizer_size(o->tokenizer) > 0) {
            const int32_t *ids = mk_text_ids(text, &n);
            json_put_key(out, "ids");
            json_put_ids(out, ids, n);
        }
    } else {
        const char *detail = mk_error_detail(error), *message = detail ? detail : mk_error_message(error);
        put_string(out, "error", message, strlen(message));
    }
    buf_puts(out, "}\n");
    mk_text_free(text);
    mk_error_free(error);
    return true;
}

static bool answer_once(const struct template_command *o, struct err *e)
{
    char *json = NULL;
    size_t n = 0;
    mk_text *text = NULL;
    mk_error *error = NULL;
    struct buf line;
    if (!cli_read_text("-", &json, &n, TEXT_BYTES_MAX, e))
        return false;
    buf_init(&line, TEXT_BYTES_MAX);
    bool ok = client_take(render(o, json, n, &text, &error), &error, e);
    const char *p = ok ? mk_text_data(text, &n) : "";
    if (ok && !o->ids_only) {
        cli_put_text(p, n);
        if (!o->text_only && (n == 0 || p[n - 1] != '\n'))
            putchar('\n');
    }
    if (ok && !o->text_only) {
        const int32_t *ids = mk_text_ids(text, &n);
        for (size_t i = 0; i < n; i++)
            buf_printf(&line, i ? ",%d" : "%d", (int)ids[i]);
        printf("%s\n", line.p ? line.p : "");
    }
    free(json);
    buf_fini(&line);
    mk_text_free(text);
    return ok;
}

static bool open_tokenizer(struct cli *c, const struct template_command *o, const char *path,
                           mk_library **library, mk_tokenizer **t, struct err *e)
{
    mk_tokenizer_options options = {.size = sizeof options, .parts = MK_READ_TEMPLATES};
    char *folder;
    mk_error *error = NULL;
    if (!client_open(c, 1, library, e) || !cli_tokenizer_folder(&folder, path, NULL, e))
        return false;
    char *json = path_join(folder, "tokenizer.json");
    /* --jsonl without a tokenizer still has texts to give */
    if (!o->text_only && (!o->jsonl || path_exists(json)))
        options.parts |= MK_READ_TOKENIZER;
    bool ok = client_take(mk_tokenizer_open(t, *library, folder, &options, &error), &error, e);
    free(json);
    free(folder);
    return ok;
}

int cmd_template(struct cli *c, int argc, char **argv)
{
    struct template_command o = {0};
    struct err e = {0};
    mk_library *library = NULL;
    mk_tokenizer *t = NULL;
    const char *positional[1];
    int n_positional = 0;
    bool help = false;
    const struct cli_option options[] = {
        {"--jsonl", CLI_FLAG, &o.jsonl, NULL,
         "one object a line in and out: {\"messages\", \"tools\", \"options\"} to {\"text\", \"ids\"} or "
         "{\"error\"}"},
        {"--flat", CLI_FLAG, &o.flat, NULL, "special tokens in messages are special, as in transformers"},
        {"--text", CLI_FLAG, &o.text_only, NULL, "print only the text"},
        {"--ids", CLI_FLAG, &o.ids_only, NULL, "print only the ids"},
        {"-g,--prompt,--add-generation-prompt", CLI_FLAG, &o.prompt, NULL,
         "begin the assistant's answer (instead of \"options\")"},
        {"--think", CLI_STRING, &o.think, "on|off", "enable_thinking (instead of \"options\")"},
        {"--name", CLI_STRING, &o.name, "NAME", "the template of that name"},
        {"--decode-arguments", CLI_FLAG, &o.decode_arguments, NULL,
         "tool calls' arguments that are JSON in a string become objects"},
        {"--now", CLI_INT, &o.now, "SECONDS", "the time that strftime_now sees (default: now)"},
    };
    if (!cli_parse(c, argc, argv, options, (int)(sizeof options / sizeof *options), positional, 1,
                   &n_positional, SYNOPSIS, &help, &e))
        return cli_fail(c, &e, NULL);
    if (help)
        return 0;
    bool ok = n_positional > 0 ||
              err_set(&e, ERR_USAGE, "expected a package, a checkpoint or a folder with a template");
    ok = ok && (!o.think || !strcmp(o.think, "on") || !strcmp(o.think, "off") ||
                err_set(&e, ERR_USAGE, "--think: expected on or off, found \"%.100s\"", o.think));
    ok = ok && cli_resolve(c, &positional[0], &e) && cli_source(c, &positional[0], &e) &&
         open_tokenizer(c, &o, positional[0], &library, &t, &e);
    o.tokenizer = t;
    if (ok)
        cli_say_waiting(c, o.jsonl ? "requests (JSON, one a line)" : "messages (JSON)");
    ok = ok && (o.jsonl ? json_lines_answer(c, answer_line, &o, &e) : answer_once(&o, &e));
    ok = ok && cli_flush(&e);
    mk_tokenizer_close(t);
    mk_library_close(library);
    return ok ? 0 : cli_fail(c, &e, NULL);
}
