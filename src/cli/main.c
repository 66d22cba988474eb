/* Entry of the program: picks the command, sets up signals and the log.
 *
 * The first SIGINT or SIGTERM sets the cancel flag that long jobs look at (log_cancelled); the second one
 * ends the process at once. SIGPIPE and SIGXFSZ are ignored: a closed stdout (cli_flush) and a file over the limit are
 * failed writes.
 * SIGBUS means that a mapped file was cut short: nothing can be computed any more, so the handler names the file, discards
 * temporary output (finished parts of a conversion stay) and ends the process, with async-signal-safe calls alone.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/salvage.h"
#include "base/terminal.h"
#include "cli/cli.h"
#include "cli/frame.h"

/* Writable globals, since a signal handler can't be given anything. */
static atomic_int cancel_requested;
static mk_cancel *cancel;
static atomic_flag is_ending = ATOMIC_FLAG_INIT;
static bool stderr_is_terminal;

static void on_stop_signal(int signal_number)
{
    if (cancel_requested)
        _exit(err_exit_status(ERR_CANCELLED));
    cancel_requested = signal_number;
    mk_cancel_set(cancel);
}

/* Appends as much of text as there is room for. */
static size_t append(char *line, size_t room, size_t n, const char *text)
{
    while (*text && n + 1 < room)
        line[n++] = *text++;
    line[n] = '\0';
    return n;
}

static void on_bus_error(int signal_number, siginfo_t *info, void *context)
{
    static const char clear[] = "\r\033[K"; /* a progress line may stand there */
    char line[2048];
    (void)context;
    const char *path = info->si_code > 0 ? salvage_mapping_at(info->si_addr) : NULL;
    if (!path) { /* not a file of ours */
        signal(signal_number, SIG_DFL);
        raise(signal_number);
        return;
    }
    while (atomic_flag_test_and_set(&is_ending)) /* another thread is at it, and ends this one, too */
        pause();
    size_t n = append(line, sizeof line - 256, 0, "milkit: error: ");
    n = append(line, sizeof line - 256, n, path);
    n = append(line, sizeof line, n, ": the file was cut short while it was read, or its disk fails");
    if (salvage_discard_outputs())
        n = append(line, sizeof line, n, "; finished parts are kept, --resume goes on with them");
    terminal_defuse(line, true);
    n = append(line, sizeof line, strlen(line), "\n");
    if (stderr_is_terminal)
        (void)!write(STDERR_FILENO, clear, sizeof clear - 1);
    (void)!write(STDERR_FILENO, line, n);
    _exit(err_exit_status(ERR_IO));
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
    stderr_is_terminal = isatty(STDERR_FILENO) == 1;
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = on_bus_error;
    sigaction(SIGBUS, &action, NULL);
    action.sa_flags = 0;
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, NULL);
    sigaction(SIGXFSZ, &action, NULL);
}

_Noreturn void mem_exhausted(size_t bytes)
{
    fprintf(stderr, "milkit: out of memory (%zu bytes asked for)\n", bytes);
    exit(err_exit_status(ERR_NOMEM));
}

int main(int argc, char **argv)
{
    cancel = mk_cancel_new();
    set_signals();
    struct cli c = {
        .program = "milkit",
        .command = NULL,
        .log = {.stream = stderr, .level = LOG_INFO, .cancel = &cancel_requested, .hint_text = cli_hint_text},
        .stop_signal = &cancel_requested,
        .cancel = cancel};
    int status = cli_main(&c, argc, argv);
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    mk_cancel_free(cancel);
    return status;
}
