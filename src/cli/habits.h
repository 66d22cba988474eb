/* Options of other tools that users type by habit: known, so that each is answered with what to do instead.
 */
#ifndef MILKIT_CLI_HABITS_H
#define MILKIT_CLI_HABITS_H

#include <stdbool.h>
#include <stddef.h>

enum cli_habit_value {
    CLI_HABIT_NONE,
    CLI_HABIT_VALUE,
    CLI_HABIT_SWITCH /* perhaps on, off, auto, true, false, 0 or 1 */
};
enum cli_habit_kind { CLI_HABIT_IGNORED, CLI_HABIT_REFUSED };

struct cli_habit {
    const char *commands, *names; /* separated by commas */
    enum cli_habit_value value;
    enum cli_habit_kind kind;
    const char *text; /* the reason (IGNORED) or the hint (REFUSED) */
};

/* The habit that the n bytes at name are in this command; NULL: none. */
const struct cli_habit *cli_habit_find(const char *command, const char *name, size_t n);
/* What to write instead of a word that the command does not take; NULL: nothing is known. */
const char *cli_habit_word(const char *command);
/* Is this a word that may follow a switch? */
bool cli_habit_is_switch_value(const char *text);
/* Does one of the comma separated names equal the n bytes at s? */
bool cli_names_have(const char *names, const char *s, size_t n);

#endif
