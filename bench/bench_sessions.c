// links: api
/* Sessions of one package in several threads of the caller: tokens per second in sum, against one session alone.
 *
 * bench_sessions PACKAGE [tokens [threads of the pool]]. All of it goes through milkit.h. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/log.h"
#include "milkit.h"

struct job {
    mk_package *package;
    int n_tokens;
    mk_status status;
};

static void *run_job(void *arg)
{
    struct job *j = arg;
    mk_session *s = NULL;
    j->status = mk_session_new(&s, j->package, NULL);
    for (int i = 0; !j->status && i < j->n_tokens; i++)
        j->status = mk_session_step(s, 100 + i % 50, NULL);
    mk_session_free(s);
    return NULL;
}

int main(int argc, char **argv)
{
    enum { MOST = 8 };
    mk_library *library;
    mk_package *package;
    mk_error *e = NULL;
    int n_tokens = argc > 2 ? atoi(argv[2]) : 64;
    mk_options options = {.size = sizeof options, .threads = argc > 3 ? atoi(argv[3]) : 0};
    if (argc < 2) {
        fprintf(stderr, "usage: bench_sessions PACKAGE [tokens [threads]]\n");
        return 2;
    }
    if (mk_library_open(&library, &options, &e) || mk_package_open(&package, library, argv[1], NULL, &e)) {
        fprintf(stderr, "bench_sessions: %s\n", mk_error_message(e));
        return (int)mk_error_status(e);
    }
    double alone = 0;
    for (int n = 1; n <= MOST; n *= 2) {
        struct job jobs[MOST];
        pthread_t threads[MOST];
        double best = 0;
        for (int round = 0; round < 3; round++) {
            double start = clock_seconds();
            for (int i = 0; i < n; i++) {
                jobs[i] = (struct job){.package = package, .n_tokens = n_tokens};
                pthread_create(&threads[i], NULL, run_job, &jobs[i]);
            }
            for (int i = 0; i < n; i++) {
                pthread_join(threads[i], NULL);
                if (jobs[i].status) {
                    fprintf(stderr, "bench_sessions: %s\n", mk_status_name(jobs[i].status));
                    return 1;
                }
            }
            double rate = (double)n * n_tokens / (clock_seconds() - start);
            best = rate > best ? rate : best;
        }
        alone = n == 1 ? best : alone;
        printf("%d session%s: %.1f tokens/s in sum, %.2f of one alone\n", n, n == 1 ? "" : "s", best,
               best / alone);
    }
    mk_package_close(package);
    mk_library_close(library);
    return 0;
}
