/* The commands of milkit chat, "/name arguments". What they say goes to stderr: stdout carries the answers alone. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "base/json_text.h"
#include "base/terminal.h"
#include "cli/chat.h"
#include "cli/prompt.h"

#define HISTORY_ENTRIES 20

struct command {
    const char *name, *argument, *help;
    bool (*run)(struct chat *chat, const char *argument, struct err *e);
};

static bool say_done(const char *text)
{
    fprintf(stderr, "%s\n", text);
    return true;
}

static bool run_clear(struct chat *chat, const char *argument, struct err *e)
{
    (void)argument;
    (void)e;
    mk_chat_clear(chat->chat);
    return say_done("The conversation is empty.");
}

static bool run_regen(struct chat *chat, const char *argument, struct err *e)
{
    (void)argument;
    return chat_again(chat, e);
}

static bool run_system(struct chat *chat, const char *argument, struct err *e)
{
    (void)e;
    if (!argument[0]) {
        const char *system = mk_chat_system(chat->chat);
        if (!system)
            return say_done("There is no system message.");
        struct buf text;
        buf_init(&text, SIZE_MAX / 2);
        terminal_append(&text, system, strlen(system));
        say_done(text.p ? text.p : "");
        buf_fini(&text);
        return true;
    }
    mk_chat_set_system(chat->chat, strcmp(argument, "-") == 0 ? NULL : argument);
    return say_done(mk_chat_system(chat->chat) ? "The system message is set."
                                               : "There is no system message any more.");
}

static bool change(struct chat *chat, const struct buf *settings, struct err *e)
{
    mk_error *error = NULL;
    return client_take(mk_chat_set(chat->chat, settings->p, &error), &error, e);
}

static bool run_think(struct chat *chat, const char *argument, struct err *e)
{
    static const char *const names[] = {"auto", "on", "off"};
    struct buf settings;
    bool ok = true;
    int i = 0;
    while (argument[0] && i < 3 && strcmp(argument, names[i]) != 0)
        i++;
    if (i == 3)
        return err_set(e, ERR_USAGE, "/think: expected on, off or auto, found \"%.100s\"", argument);
    if (argument[0]) {
        buf_init(&settings, 100);
        buf_printf(&settings, "{\"think\": \"%s\"}", names[i]);
        ok = change(chat, &settings, e);
        buf_fini(&settings);
        chat->think = ok ? names[i] : chat->think;
    }
    if (ok)
        fprintf(stderr, "think is %s\n", chat->think);
    return ok;
}

static bool run_stats(struct chat *chat, const char *argument, struct err *e)
{
    const mk_chat_stats s = chat_stats(chat);
    const mk_chat_counts *t = &s.total;
    struct buf line;
    (void)argument;
    (void)e;
    if (s.n_answers == 0)
        return say_done("There was no answer yet.");
    buf_init(&line, 4096);
    buf_puts(&line, "last turn: ");
    chat_put_stats(chat, &s, &line);
    int64_t evaluated = t->n_prompt - t->n_reused;
    buf_printf(&line,
               "\n%lld turns: %lld prompt tokens, %lld evaluated in %.2f s; %lld answer tokens in %.2f s",
               (long long)s.n_answers, (long long)t->n_prompt, (long long)evaluated, t->prompt_seconds,
               (long long)t->n_generated, t->answer_seconds);
    if (s.n_dropped)
        buf_printf(&line, "; %zu of %zu messages are dropped", s.n_dropped, s.n_messages);
    fprintf(stderr, "%s\n", line.p);
    buf_fini(&line);
    return true;
}

/* Takes "--force" off the begin of an argument. */
static bool take_force(const char **argument)
{
    static const char force[] = "--force";
    const char *rest = *argument + strlen(force);
    if (strncmp(*argument, force, strlen(force)) != 0 || (*rest && !strchr(" \t\n", *rest)))
        return false;
    *argument = rest + strspn(rest, " \t\n");
    return true;
}

static bool run_save(struct chat *chat, const char *argument, struct err *e)
{
    bool replace = take_force(&argument);
    if (!argument[0] || strcmp(argument, "-") == 0)
        return err_set(e, ERR_USAGE, "/save: expected a file name");
    if (!replace && path_exists(argument) && !path_is_folder(argument)) {
        if (!chat->is_interactive)
            return err_set(e, ERR_USAGE, "/save: %s: exists already; /save --force FILE replaces it",
                           argument);
        terminal_put(stderr, argument);
        fputs(" exists already. ", stderr);
        if (!chat_ask(chat, "Replace it? [y/N] ", &replace, e))
            return false;
        if (!replace)
            return say_done("Nothing is saved.");
    }
    mk_error *error = NULL;
    if (!client_take(mk_chat_save(chat->chat, argument, replace, &error), &error, e))
        return false;
    fprintf(stderr, "%zu messages saved.\n", chat_stats(chat).n_messages);
    return true;
}

static bool run_load(struct chat *chat, const char *argument, struct err *e)
{
    mk_error *error = NULL;
    if (!argument[0])
        return err_set(e, ERR_USAGE, "/load: expected a file name");
    if (!client_take(mk_chat_load(chat->chat, argument, &error), &error, e))
        return false;
    fprintf(stderr, "%zu messages loaded.\n", chat_stats(chat).n_messages);
    return true;
}

static bool run_tokens(struct chat *chat, const char *argument, struct err *e)
{
    size_t n, n_text;
    const int32_t *ids = mk_chat_tokens(chat->chat, &n);
    struct buf line;
    bool ok = true;
    (void)argument;
    buf_init(&line, 8 << 20);
    for (size_t i = 0; ok && i < n; i++) {
        mk_text *piece = NULL;
        mk_error *error = NULL;
        buf_clear(&line);
        ok = client_take(
            mk_detokenize(mk_package_tokenizer(chat->package), &ids[i], 1, MK_SPECIAL, &piece, &error),
            &error, e);
        if (ok) {
            const char *text = mk_text_data(piece, &n_text);
            json_put_string(&line, text, n_text);
            fprintf(stderr, "%6d ", (int)ids[i]);
            terminal_put(stderr, line.p);
            fputc('\n', stderr);
        }
        mk_text_free(piece);
    }
    fprintf(stderr, "%zu tokens of %lld\n", n, (long long)mk_package_context_length(chat->package));
    buf_fini(&line);
    return ok;
}

static bool run_read(struct chat *chat, const char *argument, struct err *e)
{
    char *text = NULL;
    size_t bytes = 0;
    if (!argument[0])
        return err_set(e, ERR_USAGE, "/read: expected a file name");
    if (strcmp(argument, "-") == 0)
        return err_set(e, ERR_USAGE,
                       "/read: expected a file, found \"-\": stdin is where this line came from");
    if (!prompt_read_text(&text, &bytes, argument, false, MESSAGE_BYTES_MAX, e))
        return false;
    bool ok =
        !memchr(text, '\0', bytes) || err_set(e, ERR_FORMAT, "%s: no text: it has a NUL byte", argument);
    ok = ok && chat_say(chat, text, bytes, e);
    free(text);
    return ok;
}

static bool run_history(struct chat *chat, const char *argument, struct err *e)
{
    int64_t n = argument[0] ? strtoll(argument, NULL, 10) : HISTORY_ENTRIES;
    if (n < 1)
        return err_set(e, ERR_USAGE, "/history: expected a number, found \"%.100s\"", argument);
    return chat_history_show(chat, n, e);
}

/* --- /set --- */

struct setting {
    const char *key;
    double *number; /* one of the three is not NULL */
    int64_t *integer;
    bool *flag;
};

static bool set_value(const struct setting *s, const char *text, struct err *e)
{
    char *end = NULL;
    errno = 0;
    if (s->flag) {
        if (strcmp(text, "on") != 0 && strcmp(text, "off") != 0)
            return err_set(e, ERR_USAGE, "/set %s: expected on or off, found \"%.100s\"", s->key, text);
        *s->flag = strcmp(text, "on") == 0;
        return true;
    }
    if (s->number)
        *s->number = strtod(text, &end);
    else
        *s->integer = strtoll(text, &end, 10);
    if (end == text || *end || errno == ERANGE)
        return err_set(e, ERR_USAGE, "/set %s: expected a number, found \"%.100s\"", s->key, text);
    return true;
}

static void show_settings(const struct chat *chat)
{
    mk_sampling r = {.size = sizeof r};
    (void)mk_chat_sampling(chat->chat, &r, NULL); /* fails for a wrong size alone */
    fprintf(stderr, "greedy %s\ntemperature %g\ntop-k %lld\ntop-p %g\nmin-p %g\n", r.greedy ? "on" : "off",
            r.temperature, (long long)r.top_k, r.top_p, r.min_p);
    fprintf(stderr, "repeat-penalty %g\npresence-penalty %g\nfrequency-penalty %g\nrepeat-last-n %lld\n",
            r.repetition_penalty, r.presence_penalty, r.frequency_penalty, (long long)r.repetition_window);
    fprintf(stderr, "seed %lld\nmax-tokens %lld\n", (long long)chat->sampling.seed,
            (long long)chat->max_tokens);
}

/* With a new sampler also where nothing of the sampling was changed, so that a seed begins again. */
static bool apply_settings(struct chat *chat, const struct sampling *o, int64_t max_tokens, struct err *e)
{
    struct buf settings;
    buf_init(&settings, 4096);
    buf_puts(&settings, "{\"sampling\": ");
    bool ok = sampling_put(o, &settings, e);
    buf_printf(&settings, ", \"max_tokens\": %lld}", (long long)max_tokens);
    ok = ok && change(chat, &settings, e);
    buf_fini(&settings);
    if (ok) {
        chat->sampling = *o;
        chat->max_tokens = max_tokens;
    }
    return ok;
}

static bool run_set(struct chat *chat, const char *argument, struct err *e)
{
    struct sampling o = chat->sampling;
    int64_t max_tokens = chat->max_tokens;
    const struct setting settings[] = {
        {"greedy", NULL, NULL, &o.greedy},
        {"temperature", &o.numbers[SAMPLING_TEMPERATURE], NULL, NULL},
        {"temp", &o.numbers[SAMPLING_TEMPERATURE], NULL, NULL},
        {"top-k", NULL, &o.top_k, NULL},
        {"top-p", &o.numbers[SAMPLING_TOP_P], NULL, NULL},
        {"min-p", &o.numbers[SAMPLING_MIN_P], NULL, NULL},
        {"repeat-penalty", &o.numbers[SAMPLING_REPEAT_PENALTY], NULL, NULL},
        {"presence-penalty", &o.numbers[SAMPLING_PRESENCE_PENALTY], NULL, NULL},
        {"frequency-penalty", &o.numbers[SAMPLING_FREQUENCY_PENALTY], NULL, NULL},
        {"repeat-last-n", NULL, &o.repeat_last_n, NULL},
        {"seed", NULL, &o.seed, NULL},
        {"max-tokens", NULL, &max_tokens, NULL},
    };
    if (!argument[0]) {
        show_settings(chat);
        return true;
    }
    size_t n_key = strcspn(argument, " \t=");
    const char *value = argument + n_key;
    value += strspn(value, " \t=");
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        if (strlen(settings[i].key) != n_key || memcmp(settings[i].key, argument, n_key) != 0)
            continue;
        if (!set_value(&settings[i], value, e) || !apply_settings(chat, &o, max_tokens, e))
            return false;
        fprintf(stderr, "%s is %s\n", settings[i].key, value);
        return true;
    }
    return err_set(e, ERR_USAGE, "/set: no setting \"%.*s\"; /set alone lists them",
                   n_key < 100 ? (int)n_key : 100, argument);
}

/* --- the table --- */

static bool run_help(struct chat *chat, const char *argument, struct err *e);

static const struct command commands[] = {
    {"help", "", "this list", run_help},
    {"exit", "", "leave (Ctrl-D too)", NULL},
    {"quit", NULL, NULL, NULL},
    {"clear", "", "begin a new conversation; the system message stays", run_clear},
    {"regen", "", "another answer to the last message", run_regen},
    {"system", "[TEXT]", "set or show the system message; - takes it away", run_system},
    {"set", "[KEY VALUE]", "set or show sampling options", run_set},
    {"think", "[on|off|auto]", "whether the model is to think", run_think},
    {"stats", "", "tokens and rates of the last answer and of all", run_stats},
    {"tokens", "", "what the model sees, token by token", run_tokens},
    {"save", "[--force] FILE", "write the conversation to a file", run_save},
    {"load", "FILE", "go on with a conversation of a file", run_load},
    {"read", "FILE", "say what is in a file", run_read},
    {"history", "[N]", "the last entries of the history file", run_history},
};

static bool run_help(struct chat *chat, const char *argument, struct err *e)
{
    (void)argument;
    (void)e;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (commands[i].help)
            fprintf(stderr, "/%-8s %-15s %s\n", commands[i].name, commands[i].argument, commands[i].help);
    fputs("\"\"\" begins and ends a message of several lines; a backslash at the end of a line goes on with "
          "the next.\n"
          "//TEXT says /TEXT. Ctrl-C stops an answer.\n",
          stderr);
    if (chat->editor)
        fputs(
            "Up and Down recall what was typed, Ctrl-R searches it; Alt-Enter begins a new line, and what is "
            "pasted is one message.\n",
            stderr);
    return true;
}

bool chat_command(struct chat *chat, const char *line, bool *leaves, struct err *e)
{
    const char *name = line + 1;
    size_t n = strcspn(name, " \t\n");
    const char *argument = name + n + strspn(name + n, " \t\n");
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        const struct command *c = &commands[i];
        if (strlen(c->name) != n || memcmp(c->name, name, n) != 0)
            continue;
        if (argument[0] && (!c->argument || !c->argument[0])) {
            chat->returns_entry = true;
            return err_set(e, ERR_USAGE, "/%s takes nothing behind it; //TEXT says /TEXT", c->name);
        }
        if (!c->run) {
            *leaves = true;
            return true;
        }
        char *text = xstrdup(argument);
        size_t end = strlen(text);
        while (end > 0 && strchr(" \t\n", text[end - 1]))
            text[--end] = '\0';
        bool ok = c->run(chat, text, e);
        free(text);
        return ok;
    }
    chat->returns_entry = true;
    return err_set(e, ERR_USAGE, "no command /%.*s; /help lists them, //TEXT says /TEXT",
                   n < 100 ? (int)n : 100, name);
}
