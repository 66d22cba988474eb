/* Counters and histograms. */
#include "server/metrics.h"
#include <pthread.h>
#include <stdlib.h>

static const double bounds[] = {0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300};
enum { N_BOUNDS = sizeof bounds / sizeof *bounds, N_STATUSES = 6 };

struct histogram {
    long long counts[N_BOUNDS + 1], n;
    double sum;
};

struct metrics {
    pthread_mutex_t lock;
    long long requests[METRICS_ENDPOINTS + 1][N_STATUSES]; /* by the first digit of the status */
    long long cancelled[3];
    struct histogram seconds, wait, first;
};

struct metrics *metrics_new(void)
{
    struct metrics *m = xcalloc(1, sizeof *m);
    pthread_mutex_init(&m->lock, NULL);
    return m;
}

void metrics_free(struct metrics *m)
{
    pthread_mutex_destroy(&m->lock);
    free(m);
}

static void observe(struct histogram *h, double value)
{
    int i = 0;
    while (i < N_BOUNDS && value > bounds[i])
        i++;
    h->counts[i]++;
    h->n++;
    h->sum += value;
}

void metrics_count_request(struct metrics *m, int endpoint, int status, double seconds)
{
    int row = endpoint >= 0 && endpoint < METRICS_ENDPOINTS ? endpoint : METRICS_ENDPOINTS;
    int digit = status / 100 > 0 && status / 100 < N_STATUSES ? status / 100 : 0;
    pthread_mutex_lock(&m->lock);
    m->requests[row][digit]++;
    observe(&m->seconds, seconds);
    pthread_mutex_unlock(&m->lock);
}

void metrics_count_cancelled(struct metrics *m, enum cancel_phase phase)
{
    pthread_mutex_lock(&m->lock);
    m->cancelled[phase]++;
    pthread_mutex_unlock(&m->lock);
}

void metrics_count_times(struct metrics *m, double wait_seconds, double first_seconds)
{
    pthread_mutex_lock(&m->lock);
    observe(&m->wait, wait_seconds);
    observe(&m->first, first_seconds);
    pthread_mutex_unlock(&m->lock);
}

static void put_histogram(struct buf *out, const char *name, const char *help, const struct histogram *h)
{
    long long n = 0;
    buf_printf(out, "# HELP milkit_%s %s\n# TYPE milkit_%s histogram\n", name, help, name);
    for (int i = 0; i < N_BOUNDS; i++) {
        n += h->counts[i];
        buf_printf(out, "milkit_%s_bucket{le=\"%g\"} %lld\n", name, bounds[i], n);
    }
    buf_printf(out, "milkit_%s_bucket{le=\"+Inf\"} %lld\nmilkit_%s_sum %.6f\nmilkit_%s_count %lld\n", name,
               h->n, name, h->sum, name, h->n);
}

void metrics_put(struct metrics *m, const char *const *paths, int n, struct buf *out)
{
    static const char *const phases[] = {"waiting", "prompt", "answer"};
    pthread_mutex_lock(&m->lock);
    buf_puts(
        out,
        "# HELP milkit_requests_total Requests that were answered.\n# TYPE milkit_requests_total counter\n");
    for (int i = 0; i <= METRICS_ENDPOINTS; i++)
        for (int k = 0; k < N_STATUSES; k++)
            if (m->requests[i][k] > 0)
                buf_printf(out, "milkit_requests_total{path=\"%s\",code=\"%dxx\"} %lld\n",
                           i < n ? paths[i] : "other", k, m->requests[i][k]);
    buf_puts(out, "# HELP milkit_requests_cancelled_total Requests whose client left.\n"
                  "# TYPE milkit_requests_cancelled_total counter\n");
    for (int i = 0; i < 3; i++)
        buf_printf(out, "milkit_requests_cancelled_total{phase=\"%s\"} %lld\n", phases[i], m->cancelled[i]);
    put_histogram(out, "request_seconds", "Time of requests.", &m->seconds);
    put_histogram(out, "queue_wait_seconds", "Time until a prompt began to be computed.", &m->wait);
    put_histogram(out, "time_to_first_token_seconds", "Time until the first token.", &m->first);
    pthread_mutex_unlock(&m->lock);
}
