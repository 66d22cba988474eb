/* milkit chat: options, opening what a chat needs, one turn or many. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/json_text.h"
#include "cli/chat.h"
#include "cli/download.h"
#include "cli/json_lines.h"
#include "cli/prompt_cache.h"

#define SYNOPSIS "DIR [OPTIONS]"
#define SETTINGS_BYTES_MAX ((size_t)256 << 20)
#define TEMPLATE_HINT "--no-template chats without one, milkit run continues a text"

struct chat_options {
    struct package_options package;
    const char *prompt, *file, *system, *system_file, *template_path, *template_args, *think;
    bool no_template, no_history, show_think, keep_newline, single_turn, interactive, ignore_eos,
        no_auto_stop;
    struct prompt_cache cache;
};

static bool check_template_args(const char *args, struct err *e)
{
    struct json_object *object = NULL;
    bool ok = json_object_read(&object, args, strlen(args), "--template-args", e);
    if (!ok)
        e->code = ERR_USAGE;
    if (ok && strcmp(json_object_type(object), "object") != 0)
        ok = err_set(e, ERR_USAGE, "--template-args: expected a JSON object, as {\"key\": 1}");
    json_object_free(object);
    return ok;
}

static bool check_options(struct chat_options *o, struct err *e)
{
    if (o->prompt && o->file)
        return err_set(e, ERR_USAGE, "expected only one of -p PROMPT and -f FILE");
    if (o->system && o->system_file)
        return err_set(e, ERR_USAGE, "expected only one of --system TEXT and --system-file FILE");
    if (o->interactive && o->single_turn)
        return err_set(e, ERR_USAGE, "expected only one of --interactive and --single-turn");
    static const char *const thinks[] = {"auto", "on", "off"};
    int i = 0;
    while (o->think && i < 3 && strcmp(o->think, thinks[i]) != 0)
        i++;
    if (i == 3)
        return err_set(e, ERR_USAGE, "--think: expected on, off or auto, found \"%.100s\"", o->think);
    if (o->no_template && (o->template_path || o->template_args || o->think))
        return err_set(e, ERR_USAGE,
                       "--no-template leaves nothing for --chat-template, --template-args and --think");
    return !o->template_args || check_template_args(o->template_args, e);
}

static void put_string(struct buf *b, const char *key, const char *text)
{
    json_put_key(b, key);
    json_put_string(b, text, strlen(text));
}

static bool put_settings(const struct chat_options *o, const struct chat *chat, struct buf *b, struct err *e)
{
    buf_puts(b, "{\"sampling\": ");
    if (!sampling_put(&chat->sampling, b, e))
        return false;
    buf_printf(b, ", \"max_tokens\": %lld, \"ignore_end\": %s, \"auto_stop\": %s",
               (long long)chat->max_tokens, o->ignore_eos ? "true" : "false",
               o->no_auto_stop ? "false" : "true");
    if (o->think)
        put_string(b, "think", o->think);
    if (o->template_path)
        put_string(b, "template_file", o->template_path);
    if (o->no_template)
        buf_puts(b, ", \"template\": false");
    if (o->template_args)
        buf_printf(b, ", \"template_args\": %s", o->template_args);
    buf_puts(b, "}");
    return !b->failed || err_set(e, ERR_LIMIT, "settings of more than %zu bytes", SETTINGS_BYTES_MAX);
}

static bool open_all(struct chat *chat, struct chat_options *o, mk_library **library, mk_package **p,
                     struct err *e)
{
    struct buf settings;
    mk_error *error = NULL;
    if (!client_open_package(chat->cli, &o->package, MK_TEXT_DEFAULT, library, p, e))
        return false;
    chat->package = *p;
    buf_init(&settings, SETTINGS_BYTES_MAX);
    bool ok = put_settings(o, chat, &settings, e) &&
              client_take(mk_chat_new(&chat->chat, *p, settings.p, &error), &error, e) &&
              prompt_cache_load(&o->cache, mk_chat_session(chat->chat), &chat->cli->log, e);
    buf_fini(&settings);
    return ok;
}

/* A text of the user's from a file or stdin ("-"). */
static bool read_text(char **text, size_t *bytes, const char *path, const struct chat_options *o,
                      struct err *e)
{
    if (!prompt_read_text(text, bytes, path, o->keep_newline, MESSAGE_BYTES_MAX, e))
        return false;
    if (!memchr(*text, '\0', *bytes))
        return true;
    free(*text);
    *text = NULL;
    return err_set(e, ERR_FORMAT, "%s: not a text: it has a NUL byte",
                   strcmp(path, "-") == 0 ? "stdin" : path);
}

static bool say_once(struct chat *chat, const struct chat_options *o, struct err *e)
{
    const char *path = o->file ? o->file : !o->prompt || strcmp(o->prompt, "-") == 0 ? "-" : NULL;
    char *text = NULL;
    size_t bytes = 0;
    if (!path)
        return chat_say(chat, o->prompt, strlen(o->prompt), e);
    if (!o->file && !o->prompt) /* the others were named: cli_parse says it of them */
        cli_say_waiting(chat->cli, "the message");
    bool ok = read_text(&text, &bytes, path, o, e);
    if (ok && bytes == 0)
        ok = err_set(e, ERR_FORMAT, "%s: empty, expected a message", strcmp(path, "-") == 0 ? "stdin" : path);
    ok = ok && chat_say(chat, text, bytes, e);
    free(text);
    return ok;
}

/* *text: heap, or NULL when it was given as an option. */
static bool read_system(const struct chat_options *o, char **text, struct err *e)
{
    size_t bytes = 0;
    return !o->system_file || read_text(text, &bytes, o->system_file, o, e);
}

static bool talk(struct chat *chat, const struct chat_options *o, struct err *e)
{
    const char *name = mk_package_name(chat->package);
    bool has_message = o->prompt || o->file || o->single_turn;
    if (has_message && !o->interactive)
        return say_once(chat, o, e);
    chat->is_interactive = isatty(STDIN_FILENO) == 1;
    if (chat->is_interactive && !o->no_history)
        chat->history = chat_history_path();
    if (chat->is_interactive && (chat->editor = line_editor_open(&chat->cli->log)))
        chat_history_recall(chat);
    if (chat->is_interactive && chat->cli->log.level >= LOG_INFO)
        fprintf(stderr, "%s, a context of %lld tokens. /help lists the commands, Ctrl-D leaves.\n",
                name ? name : "A package", (long long)mk_package_context_length(chat->package));
    return (!has_message || say_once(chat, o, e)) && chat_repl(chat, e);
}

int cmd_chat(struct cli *cli, int argc, char **argv)
{
    struct chat_options o = {.package.takes_checkpoint = true};
    struct chat chat = {.cli = cli, .max_tokens = -1};
    mk_library *library = NULL;
    mk_package *p = NULL;
    char *system = NULL;
    struct err e = {0};
    const char *hint = NULL;
    int status;
    const struct cli_option options[] = {
        {"-p,--prompt", CLI_TEXT, &o.prompt, "TEXT", "one message, one answer (- reads stdin)"},
        {"-f,--file", CLI_TEXT, &o.file, "FILE", "the same from a file"},
        {"--keep-newline", CLI_FLAG, &o.keep_newline, NULL,
         "keep the last line end of a text from a file or stdin"},
        {"-S,--system,-sys,--system-prompt", CLI_STRING, &o.system, "TEXT", "the system message"},
        {"--system-file,-sysf,--system-prompt-file", CLI_TEXT, &o.system_file, "FILE",
         "the system message from a file"},
        {"-st,--single-turn", CLI_FLAG, &o.single_turn, NULL,
         "one message, one answer; without -p or -f all of stdin is the message"},
        {"-i,--interactive", CLI_FLAG, &o.interactive, NULL, "go on reading messages after -p or -f"},
        {"-n,--max-tokens,--predict,--n-predict", CLI_INT, &chat.max_tokens, "N",
         "tokens of an answer (until the context is full)"},
        SAMPLING_OPTION_ROWS(chat.sampling),
        {"--ignore-eos", CLI_FLAG, &o.ignore_eos, NULL, "do not stop at the end-of-text token"},
        {"--no-auto-stop", CLI_FLAG, &o.no_auto_stop, NULL,
         "stop only at tokens that a config declares, not at what ends an answer in the template"},
        {"--think,--reasoning,-rea", CLI_STRING, &o.think, "on|off|auto",
         "whether the model is to think (auto: the template's choice)"},
        {"--no-think", CLI_CONSTANT, &o.think, "off", NULL},
        {"--thinking-mode", CLI_CONSTANT, &o.think, "on", NULL},
        {"--show-think", CLI_FLAG, &o.show_think, NULL, "show thinking where stdout is not a terminal, too"},
        {"--chat-template,--chat-template-file", CLI_STRING, &o.template_path, "FILE",
         "a Jinja template instead of the package's"},
        {"--template-args,--chat-template-kwargs,--chat-template-config", CLI_STRING, &o.template_args,
         "JSON", "an object of more variables for the template"},
        {"--no-template,--raw,--ignore-chat-template", CLI_FLAG, &o.no_template, NULL,
         "texts as they are, for models that know no chats"},
        PROMPT_CACHE_OPTION_ROWS(o.cache),
        {"--no-history", CLI_FLAG, &o.no_history, NULL, "keep no history file"},
        {"--stats,--show-timings,--perf", CLI_FLAG, &chat.stats, NULL,
         "a line with tokens and rates on stderr after each answer"},
        PACKAGE_OPTION_ROWS(o.package),
        DOWNLOAD_OPTION_ROW(o.package.yes),
    };
    sampling_clear(&chat.sampling);
    if (!package_parse(cli, argc, argv, options, (int)(sizeof options / sizeof *options), SYNOPSIS,
                       &o.package, &status))
        return status;
    chat.think = o.think ? o.think : "auto";
    answer_printer_init(&chat.printer, o.show_think);
    bool ok = check_options(&o, &e) && read_system(&o, &system, &e) && open_all(&chat, &o, &library, &p, &e);
    if (!ok && e.code == ERR_FORMAT && p && mk_tokenizer_size(mk_package_tokenizer(p)) > 0 &&
        !o.template_path)
        hint = TEMPLATE_HINT;
    if (ok)
        mk_chat_set_system(chat.chat, system ? system : o.system);
    ok = ok && talk(&chat, &o, &e);
    ok = prompt_cache_finish(&o.cache, chat.chat ? mk_chat_session(chat.chat) : NULL, &cli->log, ok, &e);
    mk_chat_free(chat.chat);
    mk_package_close(p);
    mk_library_close(library);
    line_editor_close(chat.editor);
    free(chat.history);
    free(system);
    return ok ? 0 : cli_fail(cli, &e, hint);
}
