/* milkit chat: options, opening what a chat needs, one turn or many. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/file.h"
#include "cli/chat.h"
#include "cli/generate.h"
#include "cli/prompt.h"
#include "cli/prompt_cache.h"
#include "format/json.h"

#define SYNOPSIS "DIR [OPTIONS]"
#define CONFIG_BYTES_MAX ((size_t)64 << 20)
#define TEMPLATE_HINT "--no-template chats without one, milkit run continues a text"

struct chat_options {
    struct package_options package;
    const char *prompt, *file, *system, *system_file, *template_path, *think;
    bool no_template, no_history, show_think, keep_newline, single_turn, interactive;
    struct prompt_cache cache;
};

static bool check_options(const struct chat_options *o, struct conversation *c, struct err *e)
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
    c->think = (enum think)i;
    if (o->no_template && (o->template_path || c->template_args || o->think))
        return err_set(e, ERR_USAGE,
                       "--no-template leaves nothing for --chat-template, --template-args and --think");
    if (c->template_args) {
        cJSON *args = NULL;
        if (!json_parse(&args, c->template_args, strlen(c->template_args), "--template-args", e)) {
            e->code = ERR_USAGE;
            return false;
        }
        bool is_object = cJSON_IsObject(args);
        cJSON_Delete(args);
        if (!is_object)
            return err_set(e, ERR_USAGE, "--template-args: expected a JSON object, as {\"key\": 1}");
    }
    return true;
}

/* A template of the user's sees the special tokens of the package. */
static bool open_template_file(struct chat_template **out, const char *path, const char *folder,
                               struct err *e)
{
    char *config_path = path_join(folder, "tokenizer_config.json");
    char *config = NULL, *text = NULL;
    size_t n_config = 0, n_text = 0;
    bool ok =
        file_read(&text, &n_text, path, JINJA_MAX_TEMPLATE_BYTES, e) &&
        (!path_exists(config_path) || file_read(&config, &n_config, config_path, CONFIG_BYTES_MAX, e)) &&
        chat_template_parse(out, (struct str){config, n_config}, (struct str){text, n_text}, path, e);
    free(config_path);
    free(config);
    free(text);
    return ok;
}

static bool open_all(struct cli *cli, struct chat_options *o, struct conversation *c, const char **hint,
                     struct err *e)
{
    if (!package_options_open(cli, &o->package, &c->model, e) ||
        !package_open_tokenizer(cli, c->model, &c->tokenizer, e))
        return false;
    const char *folder = c->model->package->path;
    if (o->template_path && !open_template_file(&c->template, o->template_path, folder, e))
        return false;
    if (!o->template_path && !o->no_template && !chat_template_open(&c->template, folder, e)) {
        *hint = TEMPLATE_HINT;
        return false;
    }
    return conversation_open(c, e) && prompt_cache_load(&o->cache, c->session, &cli->log, e);
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

static bool read_system(struct conversation *c, const struct chat_options *o, struct err *e)
{
    char *text = NULL;
    size_t bytes = 0;
    if (o->system_file && !read_text(&text, &bytes, o->system_file, o, e))
        return false;
    conversation_set_system(c, text ? text : o->system);
    free(text);
    return true;
}

static bool talk(struct chat *chat, const struct chat_options *o, struct err *e)
{
    struct conversation *c = &chat->conversation;
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
                c->model->package->meta->name ? c->model->package->meta->name : "A package",
                (long long)c->model->context_length);
    return (!has_message || say_once(chat, o, e)) && chat_repl(chat, e);
}

int cmd_chat(struct cli *cli, int argc, char **argv)
{
    struct chat_options o = {0};
    struct chat chat = {.cli = cli,
                        .conversation = {.log = &cli->log,
                                         .on_event = chat_on_event,
                                         .sampling = SAMPLING_OPTIONS_INIT,
                                         .max_tokens = -1}};
    struct conversation *c = &chat.conversation;
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
        {"-n,--max-tokens,--predict,--n-predict", CLI_INT, &c->max_tokens, "N",
         "tokens of an answer (until the context is full)"},
        SAMPLING_OPTION_ROWS(c->sampling),
        {"--ignore-eos", CLI_FLAG, &c->ignore_eos, NULL, "do not stop at the end-of-text token"},
        {"--no-auto-stop", CLI_FLAG, &c->no_auto_stop, NULL,
         "stop only at tokens that a config declares, not at what ends an answer in the template"},
        {"--think,--reasoning,-rea", CLI_STRING, &o.think, "on|off|auto",
         "whether the model is to think (auto: the template's choice)"},
        {"--no-think", CLI_CONSTANT, &o.think, "off", NULL},
        {"--thinking-mode", CLI_CONSTANT, &o.think, "on", NULL},
        {"--show-think", CLI_FLAG, &o.show_think, NULL, "show thinking where stdout is not a terminal, too"},
        {"--chat-template,--chat-template-file", CLI_STRING, &o.template_path, "FILE",
         "a Jinja template instead of the package's"},
        {"--template-args,--chat-template-kwargs,--chat-template-config", CLI_STRING, &c->template_args,
         "JSON", "an object of more variables for the template"},
        {"--no-template,--raw,--ignore-chat-template", CLI_FLAG, &o.no_template, NULL,
         "texts as they are, for models that know no chats"},
        PROMPT_CACHE_OPTION_ROWS(o.cache),
        {"--no-history", CLI_FLAG, &o.no_history, NULL, "keep no history file"},
        {"--stats,--show-timings,--perf", CLI_FLAG, &chat.stats, NULL,
         "a line with tokens and rates on stderr after each answer"},
        PACKAGE_OPTION_ROWS(o.package),
    };
    if (!package_parse(cli, argc, argv, options, (int)(sizeof options / sizeof *options), SYNOPSIS,
                       &o.package, &status))
        return status;
    c->context = &chat;
    answer_printer_init(&chat.printer, o.show_think);
    bool ok = check_options(&o, c, &e) && read_system(c, &o, &e) && open_all(cli, &o, c, &hint, &e) &&
              talk(&chat, &o, &e);
    ok = prompt_cache_finish(&o.cache, c->session, &cli->log, ok, &e);
    conversation_close(c);
    chat_template_free(c->template);
    tokenizer_free(c->tokenizer);
    model_close(c->model);
    line_editor_close(chat.editor);
    free(chat.history);
    return ok ? 0 : cli_fail(cli, &e, hint);
}
