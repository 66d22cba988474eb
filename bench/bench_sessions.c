// links: api
/* Sessions of one package, in several threads of the caller and stepped together (mk_session_batch): tokens per second in sum, against one
 * session alone.
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

enum { MOST = 8, ROUNDS = 3 };

/* Tokens per second of n sessions that step at the same time, each in a thread of its own. 0: a step failed. */
static double rate_of_threads(mk_package *package, int n, int n_tokens)
{
    struct job jobs[MOST];
    pthread_t threads[MOST];
    bool ok = true;
    double start = clock_seconds();
    for (int i = 0; i < n; i++) {
        jobs[i] = (struct job){.package = package, .n_tokens = n_tokens};
        pthread_create(&threads[i], NULL, run_job, &jobs[i]);
    }
    for (int i = 0; i < n; i++) {
        pthread_join(threads[i], NULL);
        ok = ok && !jobs[i].status;
    }
    return ok ? (double)n * n_tokens / (clock_seconds() - start) : 0;
}

/* The same of n sessions that step together. */
static double rate_together(mk_package *package, int n, int n_tokens)
{
    mk_session *sessions[MOST] = {NULL};
    mk_status status = MK_OK;
    double start = clock_seconds();
    for (int i = 0; i < n && !status; i++)
        status = mk_session_new(&sessions[i], package, NULL);
    for (int k = 0; k < n_tokens && !status; k++) {
        int32_t ids[MOST];
        for (int i = 0; i < n; i++)
            ids[i] = 100 + (k + i) % 50;
        status = mk_session_batch(sessions, ids, (size_t)n, NULL, NULL, NULL);
    }
    double rate = (double)n * n_tokens / (clock_seconds() - start);
    for (int i = 0; i < n; i++)
        mk_session_free(sessions[i]);
    return status ? 0 : rate;
}

int main(int argc, char **argv)
{
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
        double best[2] = {0, 0};
        for (int round = 0; round < ROUNDS; round++)
            for (int k = 0; k < 2; k++) { /* in turns */
                double rate = (k ? rate_together : rate_of_threads)(package, n, n_tokens);
                if (rate == 0) {
                    fprintf(stderr, "bench_sessions: a step failed\n");
                    return 1;
                }
                best[k] = rate > best[k] ? rate : best[k];
            }
        alone = n == 1 ? best[0] : alone;
        printf("%d session%s: in threads %.1f tokens/s in sum, %.2f of one alone; together %.1f, %.2f\n", n,
               n == 1 ? "" : "s", best[0], best[0] / alone, best[1], best[1] / alone);
    }
    mk_package_close(package);
    mk_library_close(library);
    return 0;
}
