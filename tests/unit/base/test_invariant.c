/* Invariants: a broken one ends the program with its place and text where they are checked, and is not evaluated
 * elsewhere. */
#include "support.h"
#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/invariant.h"

static int n_evaluated;

static bool holds(bool answer)
{
    n_evaluated++;
    return answer;
}

static void test_one_that_holds(void **state)
{
    (void)state;
    n_evaluated = 0;
    INVARIANT(holds(true), "true is true");
    assert_int_equal(n_evaluated, INVARIANTS_CHECKED);
}

static void test_a_broken_one_ends_the_program(void **state)
{
    (void)state;
    int pipes[2], status;
    char text[512] = "";
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        dup2(pipes[1], STDERR_FILENO);
        INVARIANT(holds(false), "false is true");
        _exit(0);
    }
    close(pipes[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    ssize_t n = read(pipes[0], text, sizeof text - 1);
    close(pipes[0]);
    if (!INVARIANTS_CHECKED) {
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0 && n == 0);
        return;
    }
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && n > 0);
    assert_non_null(strstr(text, "test_invariant.c:"));
    assert_non_null(strstr(text, ": broken invariant: false is true\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_that_holds),
        cmocka_unit_test(test_a_broken_one_ends_the_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
