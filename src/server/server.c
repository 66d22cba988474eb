/* The server from its begin to its end. */
#include "server/server.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "format/mlmodelc.h"
#include "server/server_internal.h"

#define BODY_BYTES_MAX ((size_t)16 << 20)
#define POLL_SECONDS 0.05

static bool is_loopback(const char *host)
{
    return strcmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0;
}

static void warn_of_openness(const struct server *s)
{
    const struct server_options *o = s->o;
    size_t n = strlen(o->host);
    bool is_socket = n > 5 && strcmp(o->host + n - 5, ".sock") == 0;
    if (o->n_keys == 0 && !s->is_loopback && !is_socket)
        log_warn(o->log, "anybody who reaches %s may ask: there is no key", o->host);
    if (o->n_keys == 0 && o->origins && strcmp(o->origins, "*") == 0)
        log_warn(o->log, "any web page that is looked at on this machine may ask: all origins are allowed, "
                         "and there is no key");
}

static void wait_for_stop(const struct server_options *o)
{
    const struct timespec pause = {.tv_nsec = (long)(POLL_SECONDS * 1e9)};
    while (!atomic_load(o->stop))
        nanosleep(&pause, NULL);
}

/* The default model is there before the first request that needs it. */
static bool open_default(struct server *s, struct err *e)
{
    struct problem p = {0};
    struct model *model;
    if (!models_take(s->models, NULL, &model, &p)) {
        *e = *models_error(s->models);
        return false;
    }
    log_info(s->o->log, "%s: context %lld, %d slots", model_name(model),
             (long long)mk_package_context_length(model_package(model)), s->o->n_slots);
    models_give_back(s->models, model);
    atomic_store(&s->is_ready, true);
    return true;
}

static void finish(struct server *s)
{
    const struct timespec pause = {.tv_nsec = 10000000};
    atomic_store(&s->is_stopping, true);
    http_quiesce(s->http);
    models_stop(s->models, s->o->grace_seconds);
    /* what was said last goes out */
    double until = clock_seconds() + 2;
    while (http_busy(s->http) > 0 && clock_seconds() < until)
        nanosleep(&pause, NULL);
    nanosleep(&pause, NULL);
}

bool server_run(const struct server_options *o, struct err *e)
{
    struct server s = {.o = o, .is_loopback = is_loopback(o->host)};
    const struct http_options http = {.host = o->host,
                                      .port = o->port,
                                      .n_connections = o->n_connections,
                                      .body_bytes_max = BODY_BYTES_MAX,
                                      .header_seconds = 10,
                                      .body_seconds = 60,
                                      .idle_seconds = 75,
                                      .stall_seconds = 30,
                                      .begin = router_begin,
                                      .answer = router_answer,
                                      .completed = router_completed,
                                      .context = &s};
    s.keys = xcalloc((size_t)o->n_keys + 1, sizeof *s.keys);
    for (int i = 0; i < o->n_keys; i++)
        sha256(s.keys[i], o->keys[i], strlen(o->keys[i]));
    page_headers_init(&s.page);
    s.metrics = metrics_new();
    s.models = models_new(o);
    bool ok = http_start(&s.http, &http, e);
    if (ok) {
        warn_of_openness(&s);
        o->listening(o->context, http_address(s.http));
        ok = open_default(&s, e);
        if (ok)
            wait_for_stop(o);
        finish(&s);
    }
    http_stop(s.http);
    models_free(s.models);
    metrics_free(s.metrics);
    free(s.keys);
    return ok;
}
