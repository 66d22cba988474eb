/* milkit chat: options, opening what a chat needs, one turn or many. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/file.h"
#include "cli/chat.h"
#include "cli/package_options.h"
#include "format/json.h"

#define SYNOPSIS "DIR [OPTIONS]"
#define CONFIG_BYTES_MAX ((size_t)64 << 20)
#define TEMPLATE_HINT "--no-template chats without one, milkit run continues a text"

struct chat_options {
    struct package_options package;
    const char *prompt, *system, *template_path, *think;
    bool no_template, no_history, show_think;
};

static bool check_options(const struct chat_options *o, struct conversation *c, struct err *e)
{
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

static bool open_all(struct cli *cli, const struct chat_options *o, struct conversation *c, const char **hint,
                     struct err *e)
{
    if (!package_options_open(cli, &o->package, &c->model, e) ||
        !package_tokenizer(c->model->package, &c->tokenizer, e))
        return false;
    package_add_tokenizer_eos(c->model->package, c->tokenizer);
    const char *folder = c->model->package->path;
    if (o->template_path && !open_template_file(&c->template, o->template_path, folder, e))
        return false;
    if (!o->template_path && !o->no_template && !chat_template_open(&c->template, folder, e)) {
        *hint = TEMPLATE_HINT;
        return false;
    }
    return conversation_open(c, e);
}

static bool say_once(struct chat *chat, const char *prompt, struct err *e)
{
    char *text = NULL;
    size_t bytes = 0;
    if (strcmp(prompt, "-") != 0)
        return chat_say(chat, prompt, strlen(prompt), e);
    bool ok = cli_read_text("-", &text, &bytes, MESSAGE_BYTES_MAX, e);
    if (ok && memchr(text, '\0', bytes))
        ok = err_set(e, ERR_FORMAT, "stdin: no text: it has a NUL byte");
    ok = ok && chat_say(chat, text, bytes, e);
    free(text);
    return ok;
}

static bool talk(struct chat *chat, const struct chat_options *o, struct err *e)
{
    struct conversation *c = &chat->conversation;
    if (o->prompt)
        return say_once(chat, o->prompt, e);
    chat->is_interactive = isatty(STDIN_FILENO) == 1;
    if (chat->is_interactive && !o->no_history)
        chat->history = chat_history_path();
    if (chat->is_interactive && c->cli->log.level >= LOG_INFO)
        fprintf(stderr, "%s, a context of %lld tokens. /help lists the commands, Ctrl-D leaves.\n",
                c->model->package->meta->name ? c->model->package->meta->name : "A package",
                (long long)c->model->context_length);
    return chat_repl(chat, e);
}

int cmd_chat(struct cli *cli, int argc, char **argv)
{
    struct chat_options o = {0};
    struct chat chat = {.conversation = {.cli = cli, .sampling = SAMPLING_OPTIONS_INIT, .max_tokens = -1}};
    struct conversation *c = &chat.conversation;
    struct err e = {0};
    const char *positional[1], *hint = NULL;
    int n_positional = 0;
    bool help = false;
    const struct cli_option options[] = {
        {"-p,--prompt", CLI_STRING, &o.prompt, "TEXT", "one message, one answer (- reads stdin)"},
        {"-S,--system,--system-prompt", CLI_STRING, &o.system, "TEXT", "the system message"},
        {"-n,--max-tokens,--predict", CLI_INT, &c->max_tokens, "N",
         "tokens of an answer (until the context is full)"},
        SAMPLING_OPTION_ROWS(c->sampling),
        {"--ignore-eos", CLI_FLAG, &c->ignore_eos, NULL, "do not stop at the end-of-text token"},
        {"--think", CLI_STRING, &o.think, "on|off|auto",
         "whether the model is to think (auto: the template's choice)"},
        {"--show-think", CLI_FLAG, &o.show_think, NULL, "show thinking where stdout is no terminal, too"},
        {"--chat-template", CLI_STRING, &o.template_path, "FILE",
         "a Jinja template instead of the package's"},
        {"--template-args", CLI_STRING, &c->template_args, "JSON",
         "an object of more variables for the template"},
        {"--no-template,--raw", CLI_FLAG, &o.no_template, NULL,
         "texts as they are, for models that know no chats"},
        {"--no-history", CLI_FLAG, &o.no_history, NULL, "keep no history file"},
        {"--stats", CLI_FLAG, &chat.stats, NULL, "a line with tokens and rates on stderr after each answer"},
        PACKAGE_OPTION_ROWS(o.package),
    };
    if (!cli_parse(cli, argc, argv, options, (int)(sizeof options / sizeof *options), positional, 1,
                   &n_positional, SYNOPSIS, &help, &e))
        return cli_fail(cli, &e, NULL);
    if (help)
        return 0;
    if (n_positional)
        o.package.path = positional[0];
    answer_printer_init(&c->printer, o.show_think);
    conversation_set_system(c, o.system);
    bool ok = check_options(&o, c, &e) && open_all(cli, &o, c, &hint, &e) && talk(&chat, &o, &e);
    conversation_close(c);
    chat_template_free(c->template);
    tokenizer_free(c->tokenizer);
    model_close(c->model);
    free(chat.history);
    return ok ? 0 : cli_fail(cli, &e, hint);
}
