/* The command table behind main: dispatch, help, version, and the nearest name for a mistyped one. */
#ifndef MILKIT_CLI_FRAME_H
#define MILKIT_CLI_FRAME_H

#include "cli/cli.h"

/* Runs the command that argv names; an exit status. */
int cli_main(struct cli *c, int argc, char **argv);
/* Edits (insert, delete, replace, swap of neighbours) from a to b; 1000 for words of 64 characters and more.
 */
int cli_word_distance(const char *a, const char *b);

#endif
