/* The table of habits.def. */
#include "cli/habits.h"
#include <string.h>

/* Commands that take a package and run it. */
#define RUNNERS "run,chat,logits,eval,check,plan,bench"

static const struct cli_habit habits[] = {
#define CLI_HABIT(commands, names, value, kind, text)                                                        \
    {commands, names, CLI_HABIT_##value, CLI_HABIT_##kind, text},
#include "cli/habits.def"
#undef CLI_HABIT
};

bool cli_names_have(const char *names, const char *s, size_t n)
{
    for (const char *p = names; *p;) {
        size_t length = strcspn(p, ",");
        if (length == n && memcmp(p, s, n) == 0)
            return true;
        p += length;
        p += *p == ',';
    }
    return false;
}

const struct cli_habit *cli_habit_find(const char *command, const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof habits / sizeof habits[0]; i++)
        if (cli_names_have(habits[i].commands, command, strlen(command)) &&
            cli_names_have(habits[i].names, name, n))
            return &habits[i];
    return NULL;
}

const char *cli_habit_word(const char *command)
{
    static const char *const words[][2] = {
        {"run", "a prompt is given with -p TEXT or -f FILE"},
        {"chat", "a message is given with -p TEXT or -f FILE"},
        {"check", "the checkpoint is given with --hf"},
        {"convert", "the package is given with -o"},
        {"eval", "the text is given with --text FILE"},
        {"logits", "token ids are given with --tokens"},
        {"predict", "inputs are given with --in FILE"},
        {"template", "messages are read from stdin"},
        {"tokenize", "a text with spaces is quoted, or read from stdin"},
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(words[i][0], command) == 0)
            return words[i][1];
    return NULL;
}

bool cli_habit_is_switch_value(const char *text)
{
    static const char values[] = "on,off,auto,true,false,always,never,0,1";
    return cli_names_have(values, text, strlen(text));
}
