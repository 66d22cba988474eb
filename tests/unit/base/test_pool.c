// labels: threads
/* The thread pool: every index once, results visible to the caller, sleeping and spinning workers, splitting.
 */
#include "support.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include "base/pool.h"

struct job {
    int calls[64];
    int n_seen;
    int64_t sum[64];
    int64_t n;
};

static void count_call(void *ctx, int i, int n)
{
    struct job *j = ctx;
    j->calls[i]++;
    if (i == 0)
        j->n_seen = n;
    int64_t begin, end;
    pool_split(j->n, 16, i, n, &begin, &end);
    j->sum[i] = 0;
    for (int64_t k = begin; k < end; k++)
        j->sum[i] += k;
}

static void run_and_check(struct pool *p, struct job *j, int n_runs)
{
    int n = pool_threads(p);
    memset(j, 0, sizeof *j);
    for (int r = 0; r < n_runs; r++) {
        j->n = r % 500;
        pool_run(p, count_call, j);
        int64_t sum = 0;
        for (int i = 0; i < n; i++)
            sum += j->sum[i];
        assert_int_equal(sum, j->n * (j->n - 1) / 2);
    }
    assert_int_equal(j->n_seen, n);
    for (int i = 0; i < 64; i++)
        assert_int_equal(j->calls[i], i < n ? n_runs : 0);
}

static void test_many_runs(void **state)
{
    (void)state;
    static const int counts[] = {1, 2, 3, 8, 33};
    struct job *j = malloc(sizeof *j);
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        struct pool *p = NULL;
        ASSERT_OK(pool_new(&p, counts[c], e));
        assert_int_equal(pool_threads(p), counts[c]);
        run_and_check(p, j, counts[c] <= 3 ? 5000 : 300);
        pool_free(p);
    }
    free(j);
}

/* Pauses longer than workers spin: they are asleep when the next run begins. */
static void test_wakes_sleepers(void **state)
{
    (void)state;
    struct pool *p = NULL;
    struct job *j = calloc(1, sizeof *j);
    ASSERT_OK(pool_new(&p, 2, e));
    for (int r = 0; r < 60; r++) {
        struct timespec pause = {0, r % 3 == 0 ? 2000000 : 150000 + r * 2000};
        nanosleep(&pause, NULL);
        j->n = 100;
        pool_run(p, count_call, j);
        assert_int_equal(j->sum[0] + j->sum[1], 4950);
        assert_int_equal(j->calls[1], r + 1);
    }
    pool_free(p);
    free(j);
}

static void slow_worker(void *ctx, int i, int n)
{
    (void)n;
    int *done = ctx;
    if (i > 0) {
        struct timespec pause = {0, 3000000};
        nanosleep(&pause, NULL);
        done[i] = 1;
    }
}

/* Work longer than the caller spins: it sleeps and must be woken by the last worker. */
static void test_caller_sleeps(void **state)
{
    (void)state;
    struct pool *p = NULL;
    ASSERT_OK(pool_new(&p, 3, e));
    for (int r = 0; r < 10; r++) {
        int done[3] = {0};
        pool_run(p, slow_worker, done);
        assert_int_equal(done[1] + done[2], 2);
    }
    pool_free(p);
}

static void test_free_without_run(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) {
        struct pool *p = NULL;
        ASSERT_OK(pool_new(&p, 1 + i % 4, e));
        pool_free(p);
    }
    pool_free(NULL);
}

static void test_thread_counts(void **state)
{
    (void)state;
    struct pool *p = NULL;
    ASSERT_OK(pool_new(&p, 0, e));
    assert_true(pool_threads(p) >= 1);
    pool_free(p);
    struct err e = {0};
    assert_false(pool_new(&p, -1, &e));
    assert_null(p);
    assert_int_equal(e.code, ERR_LIMIT);
    assert_false(pool_new(&p, 1000000, &e));
    assert_null(p);
}

/* The caller waits, else it may do the worker's part. */
static void record_mask(void *ctx, int i, int n)
{
    (void)n;
    sigset_t now;
    while (i == 0 && atomic_load((atomic_int *)ctx + 1) < 0)
        sched_yield();
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    atomic_store((atomic_int *)ctx + i, sigismember(&now, SIGINT));
}

static void test_workers_leave_signals_alone(void **state)
{
    (void)state;
    struct pool *p = NULL;
    ASSERT_OK(pool_new(&p, 2, e));
    atomic_int blocked[2] = {-1, -1};
    pool_run(p, record_mask, blocked);
    assert_int_equal(atomic_load(&blocked[0]), 0);
    assert_int_equal(atomic_load(&blocked[1]), 1);
    pool_free(p);
}

static void test_split(void **state)
{
    (void)state;
    static const int64_t grains[] = {0, 1, 3, 16, 1000};
    for (int64_t n = 0; n < 200; n++) {
        for (size_t g = 0; g < sizeof grains / sizeof grains[0]; g++) {
            for (int threads = 1; threads < 9; threads++) {
                int64_t at = 0, least = INT64_MAX, most = 0;
                int64_t grain = grains[g] ? grains[g] : 1;
                for (int i = 0; i < threads; i++) {
                    int64_t begin, end;
                    pool_split(n, grains[g], i, threads, &begin, &end);
                    assert_true(begin == at && end >= begin);
                    assert_true(begin % grain == 0 || begin == n);
                    int64_t share = (end - begin + grain - 1) / grain;
                    least = share < least ? share : least;
                    most = share > most ? share : most;
                    at = end;
                }
                assert_true(at == n);
                assert_true(most - least <= 1);
            }
        }
    }
    int64_t begin, end;
    pool_split(INT64_MAX - 5, 64, 1, 2, &begin, &end);
    assert_true(end == INT64_MAX - 5 && begin > INT64_MAX / 2 - 64 && begin % 64 == 0);
}

struct helped {
    pthread_t caller;
    int parts[64]; /* done by the caller: 1 */
};

static void note_thread(void *ctx, int i, int n)
{
    struct helped *h = ctx;
    (void)n;
    h->parts[i] = pthread_equal(pthread_self(), h->caller) ? 1 : 0;
}

/* Workers that sleep take longer to wake than such a run takes: the caller does not wait for them. */
static void test_caller_helps(void **state)
{
    (void)state;
    struct pool *p = NULL;
    struct helped h = {.caller = pthread_self()};
    int n_helped = 0;
    ASSERT_OK(pool_new(&p, 64, e));
    for (int r = 0; r < 200; r++) {
        memset(h.parts, -1, sizeof h.parts);
        pool_run(p, note_thread, &h);
        assert_int_equal(h.parts[0], 1);
        for (int i = 1; i < 64; i++) {
            assert_true(h.parts[i] >= 0);
            n_helped += h.parts[i];
        }
    }
    assert_true(n_helped > 0);
    pool_free(p);
}

struct one_caller {
    struct pool *pool;
    int64_t sum; /* of all runs */
};

static void add_part(void *ctx, int i, int n)
{
    int64_t begin, end, *parts = ctx;
    pool_split(1000, 1, i, n, &begin, &end);
    parts[i] = 0;
    for (int64_t k = begin; k < end; k++)
        parts[i] += k;
}

static void *call_often(void *arg)
{
    struct one_caller *c = arg;
    for (int r = 0; r < 2000; r++) {
        int64_t parts[3];
        pool_run(c->pool, add_part, parts);
        c->sum += parts[0] + parts[1] + parts[2];
    }
    return NULL;
}

/* Each run is whole, whoever else runs at the same time. */
static void test_several_callers(void **state)
{
    (void)state;
    enum { N = 4 };
    struct pool *p = NULL;
    struct one_caller callers[N];
    pthread_t threads[N];
    ASSERT_OK(pool_new(&p, 3, e));
    for (int i = 0; i < N; i++) {
        callers[i] = (struct one_caller){.pool = p};
        assert_int_equal(pthread_create(&threads[i], NULL, call_often, &callers[i]), 0);
    }
    for (int i = 0; i < N; i++) {
        pthread_join(threads[i], NULL);
        assert_true(callers[i].sum == (int64_t)2000 * 499500);
    }
    pool_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_runs),       cmocka_unit_test(test_wakes_sleepers),
        cmocka_unit_test(test_caller_sleeps),   cmocka_unit_test(test_free_without_run),
        cmocka_unit_test(test_thread_counts),   cmocka_unit_test(test_workers_leave_signals_alone),
        cmocka_unit_test(test_split),           cmocka_unit_test(test_caller_helps),
        cmocka_unit_test(test_several_callers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
