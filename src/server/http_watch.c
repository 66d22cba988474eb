/* Watches the sockets of requests that are being worked on, since libmicrohttpd does not look at suspended connections: a client that
 * leaves is told to who works for it. And holds all connections to deadlines, since libmicrohttpd's own begin anew with each byte. */
#include <errno.h>
#include <math.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/log.h"
#include "server/http_internal.h"

#define SWEEP_SECONDS 0.5

/* The client of exchange `number` is gone. */
static void tell(struct http *h, uint64_t number)
{
    struct exchange *x;
    pthread_mutex_lock(&h->lock);
    for (x = h->exchanges; x && x->number != number; x = x->next) {
    }
    if (x) {
        pthread_mutex_lock(&x->lock);
        x->n_references++;
        pthread_mutex_unlock(&x->lock);
        if (x->is_watched)
            epoll_ctl(h->epoll_fd, EPOLL_CTL_DEL, x->fd, NULL);
        x->is_watched = false;
    }
    pthread_mutex_unlock(&h->lock);
    if (!x)
        return;
    pthread_mutex_lock(&x->lock);
    if (!x->has_ended)
        exchange_leave(x);
    pthread_mutex_unlock(&x->lock);
    exchange_release(x);
}

/* Sockets that are over a deadline are shut down: libmicrohttpd, or `tell`, sees the end of the connection. */
static void sweep(struct http *h)
{
    double now = clock_seconds();
    pthread_mutex_lock(&h->lock);
    for (struct connection *c = h->connections; c; c = c->next)
        if (now > c->deadline) {
            shutdown(c->fd, SHUT_RDWR);
            c->deadline = INFINITY;
        }
    for (struct exchange *x = h->exchanges; x; x = x->next) {
        pthread_mutex_lock(&x->lock);
        if (x->is_stream && x->out.n > x->out_at && now - x->progress > h->o.stall_seconds) {
            shutdown(x->fd, SHUT_RDWR);
            x->progress = INFINITY;
            exchange_leave(x);
        }
        pthread_mutex_unlock(&x->lock);
    }
    pthread_mutex_unlock(&h->lock);
}

static void *watch(void *context)
{
    struct http *h = context;
    struct epoll_event events[32];
    double last = clock_seconds();
    while (!atomic_load(&h->is_stopping)) {
        int n = epoll_wait(h->epoll_fd, events, 32, (int)(SWEEP_SECONDS * 1000));
        for (int i = 0; i < n; i++)
            tell(h, events[i].data.u64);
        if (clock_seconds() - last >= SWEEP_SECONDS) {
            sweep(h);
            last = clock_seconds();
        }
    }
    return NULL;
}

bool http_watch_start(struct http *h, struct err *e)
{
    h->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (h->epoll_fd < 0)
        return err_set_errno(e, "epoll");
    int failed = pthread_create(&h->watcher, NULL, watch, h);
    if (failed) {
        errno = failed;
        return err_set_errno(e, "a thread");
    }
    h->has_watcher = true;
    return true;
}

void http_watch_stop(struct http *h)
{
    atomic_store(&h->is_stopping, true);
    if (h->has_watcher)
        pthread_join(h->watcher, NULL);
    if (h->epoll_fd >= 0)
        close(h->epoll_fd);
}

void http_watch_add(struct http *h, struct exchange *x)
{
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLERR | EPOLLHUP, .data.u64 = x->number};
    pthread_mutex_lock(&h->lock);
    x->next = h->exchanges;
    h->exchanges = x;
    h->n_busy++;
    x->is_watched = epoll_ctl(h->epoll_fd, EPOLL_CTL_ADD, x->fd, &event) == 0;
    pthread_mutex_unlock(&h->lock);
}

void http_watch_remove(struct http *h, struct exchange *x)
{
    pthread_mutex_lock(&h->lock);
    struct exchange **at = &h->exchanges;
    while (*at && *at != x)
        at = &(*at)->next;
    if (*at) {
        *at = x->next;
        if (x->is_watched)
            epoll_ctl(h->epoll_fd, EPOLL_CTL_DEL, x->fd, NULL);
        x->is_watched = false;
    }
    pthread_mutex_unlock(&h->lock);
}
