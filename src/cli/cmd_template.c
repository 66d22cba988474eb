/* milkit template: messages to the text and ids that a model sees, for a reader or, with --jsonl, for a program.
 */
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "cli/cli.h"
#include "format/json.h"
#include "chat/chat.h"

#define SYNOPSIS "DIR [OPTIONS] < messages.json"
#define TEXT_BYTES_MAX ((size_t)1 << 30)

struct template_command {
    bool flat, jsonl, text_only, ids_only, prompt, decode_arguments;
    const char *name, *think;
    int64_t now;
};

/* One request: the answer's line, or an error of the line as a whole. A template's own complaint is an answer. */
static bool answer(const struct chat_template *t, const struct tokenizer *tokenizer,
                   const struct template_command *o, struct str json, struct jinja_output *text,
                   struct ids *ids, struct err *e)
{
    struct chat_request r;
    struct buf wrapped, options;
    bool ok;
    buf_init(&wrapped, TEXT_BYTES_MAX);
    buf_init(&options, TEXT_BYTES_MAX);
    size_t at = 0;
    while (at < json.n && strchr(" \t\r\n", json.p[at]))
        at++;
    if (at < json.n && json.p[at] == '[') { /* a list alone: the messages */
        buf_puts(&wrapped, "{\"messages\": ");
        buf_append(&wrapped, json.p, json.n);
        buf_puts(&wrapped, "}");
        json = (struct str){wrapped.p, wrapped.n};
    }
    ok = chat_request_parse(&r, json, "stdin", e);
    if (ok) {
        if (o->prompt || o->think) {
            bool is_on = o->think && strcmp(o->think, "on") == 0;
            buf_printf(&options, "{\"add_generation_prompt\": %s", o->prompt ? "true" : "false");
            if (o->think)
                buf_printf(&options, ", \"enable_thinking\": %s", is_on ? "true" : "false");
            buf_puts(&options, "}");
            r.options = (struct str){options.p, options.n};
        }
        r.template_name = o->name;
        r.decode_arguments = o->decode_arguments;
        r.now = o->now;
        ok = chat_render(t, &r, text, e);
    }
    ok = ok && (!tokenizer || chat_encode(tokenizer, text, o->flat, ids, e));
    buf_fini(&wrapped);
    buf_fini(&options);
    return ok;
}

static void put_answer(struct buf *out, const struct jinja_output *text, const struct ids *ids, bool with_ids)
{
    buf_puts(out, "{\"text\": ");
    json_put_string(out, text->text, text->bytes);
    if (with_ids) {
        buf_puts(out, ", \"ids\": ");
        json_put_ids(out, ids->p, ids->n);
    }
    buf_puts(out, "}\n");
}

/* One object a line in, one out, each at once: the other end may wait for it before it writes the next. */
static bool answer_lines(struct cli *c, const struct chat_template *t, const struct tokenizer *tokenizer,
                         const struct template_command *o, struct err *e)
{
    char *line = NULL;
    size_t capacity = 0;
    struct buf out;
    buf_init(&out, TEXT_BYTES_MAX);
    bool ok = true;
    ssize_t n;
    for (size_t i_line = 1; ok && (n = getline(&line, &capacity, stdin)) >= 0; i_line++) {
        struct jinja_output text = {0};
        struct ids ids = {0};
        struct err problem = {0};
        while (n > 0 && strchr(" \t\r\n", line[n - 1]))
            n--;
        if (n == 0)
            continue;
        buf_clear(&out);
        if (answer(t, tokenizer, o, (struct str){line, (size_t)n}, &text, &ids, &problem)) {
            put_answer(&out, &text, &ids, tokenizer != NULL);
        } else {
            const char *message = text.raised ? text.raised : problem.msg;
            buf_puts(&out, "{\"error\": ");
            json_put_string(&out, message, strlen(message));
            buf_puts(&out, "}\n");
        }
        if (out.failed)
            ok = err_set(e, ERR_LIMIT, "line %zu: an answer of more than %zu bytes", i_line, TEXT_BYTES_MAX);
        if (ok) {
            cli_put_json(out.p, out.n);
            ok = cli_flush(e) && !log_cancelled(&c->log, e);
        }
        jinja_output_free(&text);
        ids_free(&ids);
    }
    if (ok && ferror(stdin))
        ok = err_set_errno(e, "stdin: can't read");
    free(line);
    buf_fini(&out);
    return ok;
}

static bool answer_once(const struct chat_template *t, const struct tokenizer *tokenizer,
                        const struct template_command *o, struct err *e)
{
    char *json = NULL;
    size_t n = 0;
    struct jinja_output text = {0};
    struct ids ids = {0};
    struct buf line;
    if (!cli_read_text("-", &json, &n, TEXT_BYTES_MAX, e))
        return false;
    buf_init(&line, TEXT_BYTES_MAX);
    bool ok = answer(t, tokenizer, o, (struct str){json, n}, &text, &ids, e);
    if (ok && !o->ids_only) {
        cli_put_text(text.text, text.bytes);
        if (!o->text_only && (text.bytes == 0 || text.text[text.bytes - 1] != '\n'))
            putchar('\n');
    }
    if (ok && !o->text_only) {
        for (size_t i = 0; i < ids.n; i++)
            buf_printf(&line, i ? ",%d" : "%d", (int)ids.p[i]);
        printf("%s\n", line.p ? line.p : "");
    }
    free(json);
    buf_fini(&line);
    jinja_output_free(&text);
    ids_free(&ids);
    return ok;
}

static bool open_all(const char *path, struct template_command *o, struct chat_template **t,
                     struct tokenizer **tokenizer, struct err *e)
{
    char *folder;
    if (!cli_tokenizer_folder(&folder, path, NULL, e))
        return false;
    char *json = path_join(folder, "tokenizer.json");
    /* --jsonl without a tokenizer still has texts to give */
    bool with_ids = !o->text_only && (!o->jsonl || path_exists(json));
    bool ok = chat_template_open(t, folder, e) && (!with_ids || tokenizer_open(tokenizer, folder, e));
    free(json);
    free(folder);
    return ok;
}

int cmd_template(struct cli *c, int argc, char **argv)
{
    struct template_command o = {0};
    struct err e = {0};
    struct chat_template *t = NULL;
    struct tokenizer *tokenizer = NULL;
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
         open_all(positional[0], &o, &t, &tokenizer, &e);
    if (ok)
        cli_say_waiting(c, o.jsonl ? "requests (JSON, one a line)" : "messages (JSON)");
    ok = ok && (o.jsonl ? answer_lines(c, t, tokenizer, &o, &e) : answer_once(t, tokenizer, &o, &e));
    ok = ok && cli_flush(&e);
    chat_template_free(t);
    tokenizer_free(tokenizer);
    return ok ? 0 : cli_fail(c, &e, NULL);
}
