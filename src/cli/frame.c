/* Dispatch: which command runs, help and version, and the nearest name for a mistyped one. */
#include <stdlib.h>
#include <string.h>
#include "base/cpu.h"
#include "base/file.h"
#include "cli/frame.h"
#include "format/checkpoint_source.h"

#ifndef CLI_COMMANDS_FILE
#define CLI_COMMANDS_FILE "cli/commands.def"
#endif

struct command {
    const char *name, *summary;
    int (*run)(struct cli *c, int argc, char **argv);
};

static const struct command commands[] = {
#define CLI_COMMAND(name, summary) {#name, summary, cmd_##name},
#include CLI_COMMANDS_FILE
#undef CLI_COMMAND
};
#define N_COMMANDS ((int)(sizeof commands / sizeof commands[0]))

/* Names under which the package format's own tools are known; installed as links to this program. */
static const struct {
    const char *program, *command;
} program_names[] = {{"coreml_convert", "convert"}, {"coreml_check", "check"}};

static const struct command *command_find(const char *name)
{
    for (int i = 0; i < N_COMMANDS; i++) {
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    }
    return NULL;
}

static const char *command_nearest(const char *name)
{
    const char *best = NULL;
    int best_distance = 3;
    for (int i = 0; i < N_COMMANDS; i++) {
        int distance = cli_word_distance(name, commands[i].name);
        if (distance < best_distance) {
            best_distance = distance;
            best = commands[i].name;
        }
    }
    return best;
}

static void print_help(FILE *f)
{
    fprintf(f, "milkit turns Hugging Face language models into Core ML packages, and runs them.\n\n"
               "usage: milkit COMMAND [ARGUMENTS]\n\n");
    for (int i = 0; i < N_COMMANDS; i++)
        fprintf(f, "  %-10s %s\n", commands[i].name, commands[i].summary);
    fprintf(f, "  %-10s %s\n", "help", "how a command is called");
    fprintf(f, "\nmilkit help COMMAND (or milkit COMMAND --help) shows its options; milkit --version the "
               "version.\n");
}

static int unknown_command(const struct cli *c, const char *name)
{
    const char *nearest = command_nearest(name);
    struct err e = {0};
    if (nearest)
        err_set(&e, ERR_USAGE, "unknown command '%s'; did you mean '%s'?", name, nearest);
    else
        err_set(&e, ERR_USAGE, "unknown command '%s'", name);
    return cli_fail(c, &e, "milkit help lists the commands");
}

static int run_command(struct cli *c, const struct command *command, int argc, char **argv)
{
    struct err e = {0};
    enum cpu_level level;
    const char *why;
    c->command = command->name;
    if (!cpu_select(&level, &why)) {
        err_set(&e, ERR_USAGE, "%s", why);
        return cli_fail(c, &e, NULL);
    }
    int status = command->run(c, argc, argv);
    bool ok = cli_flush(&e);
    if (ok && map_shortened())
        ok = err_set(&e, ERR_IO, "%s: was cut short while it was read: the result can't be relied on",
                     map_shortened());
    return ok || status != 0 ? status : cli_fail(c, &e, NULL);
}

static int command_help(struct cli *c, const struct command *command)
{
    char name[64], help[] = "--help";
    snprintf(name, sizeof name, "%s", command->name);
    char *argv[] = {name, help, NULL};
    return run_command(c, command, 2, argv);
}

static int finish_output(const struct cli *c)
{
    struct err e = {0};
    return cli_flush(&e) ? 0 : cli_fail(c, &e, NULL);
}

static int run_named(struct cli *c, int argc, char **argv)
{
    const char *program = argc > 0 && argv[0] ? argv[0] : "milkit";
    const char *slash = strrchr(program, '/');
    program = slash ? slash + 1 : program;
    for (size_t i = 0; i < sizeof program_names / sizeof program_names[0]; i++) {
        const struct command *command = command_find(program_names[i].command);
        if (strcmp(program, program_names[i].program) == 0 && command)
            return run_command(c, command, argc, argv);
    }
    if (argc < 2) {
        print_help(stderr);
        return err_exit_status(ERR_USAGE);
    }
    const char *name = argv[1];
    if (strcmp(name, "--version") == 0 || strcmp(name, "version") == 0) {
        printf("milkit %s\n", MILKIT_VERSION);
        return finish_output(c);
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || (strcmp(name, "help") == 0 && argc == 2)) {
        print_help(stdout);
        return finish_output(c);
    }
    if (strcmp(name, "help") == 0 && strcmp(argv[2], "--list") == 0) {
        for (int i = 0; i < N_COMMANDS; i++)
            printf("%s\t%s\n", commands[i].name, commands[i].summary);
        return finish_output(c);
    }
    if (strcmp(name, "help") == 0) {
        const struct command *command = command_find(argv[2]);
        return command ? command_help(c, command) : unknown_command(c, argv[2]);
    }
    const struct command *command = command_find(name);
    if (!command)
        return unknown_command(c, name);
    return run_command(c, command, argc - 1, argv + 1);
}

int cli_main(struct cli *c, int argc, char **argv)
{
    int status = run_named(c, argc, argv);
    checkpoint_source_close(c->source);
    c->source = NULL;
    while (c->n_resolved > 0)
        free(c->resolved[--c->n_resolved]);
    return status;
}
