/* The thread pool.
 *
 * A run is announced by a new number in `epoch`; each worker that is done takes one from `remaining`. Both
 * sides first spin on these words and sleep on a condition variable only when nothing happened for a while. A
 * sleeper raises its flag before it looks at the word a last time, and the other side changes the word before
 * it looks at the flag (all sequentially consistent), so one of them always sees the other and no wake-up is
 * lost.
 *
 * Other programs may keep a worker from its processor for longer than a run takes. So a part belongs to whoever
 * claims it: its worker, or the caller when that has done its own. A run ends only when each part was claimed, so
 * the claims of one part count the runs, and a worker that comes late finds its part's count gone on.
 */
#include "base/pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_THREADS 1024
/* Longer than the serial work between two runs of the engine, shorter than anyone notices as load. */
#define SPIN_NANOSECONDS 200000

struct worker {
    struct pool *pool;
    int i_thread;
    pthread_t thread;
    atomic_uint claimed; /* the last run whose part was taken */
    char apart[64];      /* from what the next worker writes */
};

struct pool {
    /* Written by the caller, read by all: apart from what workers write. */
    alignas(64) atomic_uint epoch;
    atomic_int sleepers;
    pool_fn fn;
    void *ctx;
    atomic_bool stop;
    atomic_bool is_taken; /* by a pool_run */
    alignas(64) atomic_int remaining;
    alignas(64) atomic_int caller_sleeps;
    pthread_mutex_t mutex;
    pthread_cond_t work, done;
    int n_threads, n_started;
    int64_t spin_ns;
    struct worker *workers; /* [n_threads - 1] */
};

static inline void cpu_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Has the time since *start_ns (0: begins now) passed? Asked once every few dozen pauses. */
static bool spun_out(const struct pool *p, int64_t *start_ns)
{
    if (p->spin_ns == 0)
        return true;
    int64_t now = now_ns();
    if (*start_ns == 0)
        *start_ns = now;
    return now - *start_ns > p->spin_ns;
}

/* The number of the run after the one that was seen, or of a later one. */
static unsigned wait_for_work(struct pool *p, unsigned seen)
{
    int64_t start_ns = 0;
    for (;;) {
        for (int k = 0; k < 50; k++) {
            unsigned now = atomic_load_explicit(&p->epoch, memory_order_acquire);
            if (now != seen)
                return now;
            cpu_pause();
        }
        if (spun_out(p, &start_ns))
            break;
    }
    pthread_mutex_lock(&p->mutex);
    atomic_fetch_add(&p->sleepers, 1);
    unsigned now;
    while ((now = atomic_load(&p->epoch)) == seen)
        pthread_cond_wait(&p->work, &p->mutex);
    atomic_fetch_sub(&p->sleepers, 1);
    pthread_mutex_unlock(&p->mutex);
    return now;
}

static bool claim(struct worker *w, unsigned run)
{
    unsigned before = run - 1;
    return atomic_compare_exchange_strong(&w->claimed, &before, run);
}

/* What no worker has begun. */
static void run_unclaimed(struct pool *p)
{
    unsigned run = atomic_load_explicit(&p->epoch, memory_order_relaxed);
    for (int i = 0; i < p->n_started; i++) {
        struct worker *w = &p->workers[i];
        if (claim(w, run)) {
            p->fn(p->ctx, w->i_thread, p->n_threads);
            atomic_fetch_sub(&p->remaining, 1);
        }
    }
}

static void wait_for_workers(struct pool *p)
{
    int64_t start_ns = 0;
    bool is_first = true;
    for (;;) {
        for (int k = 0; k < 50; k++) {
            if (atomic_load_explicit(&p->remaining, memory_order_acquire) == 0)
                return;
            cpu_pause();
        }
        if (is_first)
            run_unclaimed(p);
        else if (spun_out(p, &start_ns))
            break;
        is_first = false;
    }
    pthread_mutex_lock(&p->mutex);
    atomic_store(&p->caller_sleeps, 1);
    while (atomic_load(&p->remaining) != 0)
        pthread_cond_wait(&p->done, &p->mutex);
    atomic_store(&p->caller_sleeps, 0);
    pthread_mutex_unlock(&p->mutex);
}

static void announce(struct pool *p)
{
    atomic_fetch_add(&p->epoch, 1);
    if (atomic_load(&p->sleepers) > 0) {
        pthread_mutex_lock(&p->mutex);
        pthread_cond_broadcast(&p->work);
        pthread_mutex_unlock(&p->mutex);
    }
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct pool *p = w->pool;
    for (unsigned seen = 0;;) {
        seen = wait_for_work(p, seen);
        if (atomic_load(&p->stop))
            return NULL;
        if (!claim(w, seen))
            continue;
        p->fn(p->ctx, w->i_thread, p->n_threads);
        if (atomic_fetch_sub(&p->remaining, 1) == 1 && atomic_load(&p->caller_sleeps)) {
            pthread_mutex_lock(&p->mutex);
            pthread_cond_signal(&p->done);
            pthread_mutex_unlock(&p->mutex);
        }
    }
}

/* A container may see all processors of a machine and yet be given the time of a few. */
static int cgroup_processors(void)
{
    int n = MAX_THREADS;
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (!f)
        return n;
    long long quota, period;
    if (fscanf(f, "%lld %lld", &quota, &period) == 2 && quota > 0 && period > 0) {
        long long whole = (quota + period - 1) / period;
        if (whole < n)
            n = (int)whole;
    }
    fclose(f);
    return n;
}

static int usable_processors(void)
{
    int n = 0;
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        n = CPU_COUNT(&set);
#endif
    if (n < 1)
        n = (int)sysconf(_SC_NPROCESSORS_ONLN);
    int quota = cgroup_processors();
    if (n > quota)
        n = quota;
    return n < 1 ? 1 : n;
}

bool pool_new(struct pool **out, int n_threads, struct err *e)
{
    *out = NULL;
    int n_processors = usable_processors();
    if (n_threads == 0)
        n_threads = n_processors;
    if (n_threads < 1 || n_threads > MAX_THREADS)
        return err_set(e, ERR_LIMIT, "%d threads: expected 1 to %d", n_threads, MAX_THREADS);
    struct pool *p = mem_try_alloc(sizeof *p, e);
    if (!p)
        return false;
    atomic_init(&p->epoch, 0);
    atomic_init(&p->sleepers, 0);
    atomic_init(&p->remaining, 0);
    atomic_init(&p->caller_sleeps, 0);
    atomic_init(&p->is_taken, false);
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->done, NULL);
    p->n_threads = n_threads;
    /* More threads than processors: one that spins keeps another from working. */
    p->spin_ns = n_threads <= n_processors ? SPIN_NANOSECONDS : 0;
    p->workers = xcalloc((size_t)n_threads, sizeof *p->workers);

    /* Signals are for the program's own threads, never for workers. */
    sigset_t all, old;
    sigfillset(&all);
    /* What a thread raises by itself must find the program's handler, or it ends the process without a word. */
    static const int own[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        sigdelset(&all, own[i]);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int failed = 0;
    for (int i = 0; i < n_threads - 1 && !failed; i++) {
        struct worker *w = &p->workers[i];
        w->pool = p;
        w->i_thread = i + 1;
        atomic_init(&w->claimed, 0);
        failed = pthread_create(&w->thread, NULL, worker_main, w);
        if (!failed)
            p->n_started++;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (failed) {
        int n_started = p->n_started;
        pool_free(p);
        return err_set(e, ERR_LIMIT, "can't start thread %d of %d: %s", n_started + 2, n_threads,
                       strerror(failed));
    }
    *out = p;
    return true;
}

void pool_free(struct pool *p)
{
    if (!p)
        return;
    if (p->n_started > 0) {
        atomic_store(&p->stop, true);
        announce(p);
        for (int i = 0; i < p->n_started; i++)
            pthread_join(p->workers[i].thread, NULL);
    }
    pthread_cond_destroy(&p->done);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->mutex);
    free(p->workers);
    mem_free(p);
}

int pool_threads(const struct pool *p)
{
    return p->n_threads;
}

void pool_run(struct pool *p, pool_fn fn, void *ctx)
{
    bool was_taken = p->n_threads > 1 && atomic_exchange_explicit(&p->is_taken, true, memory_order_acquire);
    if (p->n_threads == 1 || was_taken) {
        for (int i = 0; i < p->n_threads; i++)
            fn(ctx, i, p->n_threads);
        return;
    }
    p->fn = fn;
    p->ctx = ctx;
    atomic_store_explicit(&p->remaining, p->n_threads - 1, memory_order_relaxed);
    announce(p);
    fn(ctx, 0, p->n_threads);
    wait_for_workers(p);
    atomic_store_explicit(&p->is_taken, false, memory_order_release);
}

void pool_split(int64_t n, int64_t grain, int i, int n_threads, int64_t *begin, int64_t *end)
{
    if (grain < 1)
        grain = 1;
    int64_t n_grains = n / grain + (n % grain != 0);
    int64_t each = n_grains / n_threads, extra = n_grains % n_threads;
    int64_t first = each * i + (i < extra ? i : extra);
    int64_t last = first + each + (i < extra ? 1 : 0);
    *begin = first < n_grains ? first * grain : n;
    *end = last < n_grains ? last * grain : n;
}
