/* Entry of the program: picks the command, sets up signals and the log.
 *
 * The first SIGINT or SIGTERM sets the cancel flag that long jobs look at (log_cancelled); the second one
 * ends the process at once. SIGPIPE and SIGXFSZ are ignored: a closed stdout (cli_flush) and a file over the limit are
 * failed writes.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cli/cli.h"
#include "cli/frame.h"

/* The only writable global: a signal handler can't be given anything. */
static volatile sig_atomic_t cancel_requested;

static void on_stop_signal(int signal_number)
{
    if (cancel_requested)
        _exit(err_exit_status(ERR_CANCELLED));
    cancel_requested = signal_number;
}

static void set_signals(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    sigemptyset(&action.sa_mask);
    /* No SA_RESTART: a read from the terminal must come back when the user asks to stop. */
    action.sa_handler = on_stop_signal;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, NULL);
    sigaction(SIGXFSZ, &action, NULL);
}

int main(int argc, char **argv)
{
    set_signals();
    struct cli c = {
        .program = "milkit",
        .command = NULL,
        .log = {.stream = stderr, .level = LOG_INFO, .cancel = &cancel_requested, .n_warnings = 0},
        .stop_signal = &cancel_requested};
    return cli_main(&c, argc, argv);
}
