/* The daemon: connections, requests read under limits and checked for forms that proxies and servers read differently, threads that answer. */
#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/file.h"
#include "base/log.h"
#include "server/http_internal.h"

#define HEADER_BYTES_MAX 32768
/* Read and thrown away of a body that is too large, so that the client sees the answer. */
#define DISCARD_BYTES_MAX ((size_t)64 << 20)
#define BODY_BYTES_PER_SECOND 262144.0
#define BACKLOG 256
/* Connections beyond the limit, which are told so. */
#define SPARE_CONNECTIONS 32

static void *start_uri(void *context, const char *uri, struct MHD_Connection *mhd)
{
    struct http *h = context;
    const union MHD_ConnectionInfo *info =
        h->library.MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct exchange *x = exchange_new(h, uri);
    x->mhd = mhd;
    x->connection = info ? info->socket_context : NULL;
    pthread_mutex_lock(&h->lock);
    x->number = ++h->n_exchanges;
    if (x->connection) {
        x->connection->phase = CONNECTION_HEADER;
        x->connection->deadline = clock_seconds() + h->o.header_seconds;
    }
    pthread_mutex_unlock(&h->lock);
    return x;
}

static void on_connection(void *context, struct MHD_Connection *mhd, void **socket_context,
                          enum MHD_ConnectionNotificationCode what)
{
    struct http *h = context;
    pthread_mutex_lock(&h->lock);
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info =
            h->library.MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
        struct connection *c = xcalloc(1, sizeof *c);
        int one = 1;
        c->fd = info->connect_fd;
        c->deadline = clock_seconds() + h->o.header_seconds;
        c->next = h->connections;
        h->connections = c;
        h->n_connections++;
        (void)setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        *socket_context = c;
    } else {
        struct connection **at = &h->connections;
        while (*at && *at != *socket_context)
            at = &(*at)->next;
        if (*at) {
            struct connection *c = *at;
            *at = c->next;
            h->n_connections--;
            free(c);
        }
        *socket_context = NULL;
    }
    pthread_mutex_unlock(&h->lock);
}

static void set_phase(struct exchange *x, int phase, double deadline)
{
    pthread_mutex_lock(&x->http->lock);
    if (x->connection) {
        x->connection->phase = phase;
        x->connection->deadline = deadline;
    }
    pthread_mutex_unlock(&x->http->lock);
}

/* ---- what a request may look like ---- */

static void refuse(struct exchange *x, int status, const char *text)
{
    char body[256];
    int n = snprintf(
        body, sizeof body,
        "{\"error\":{\"message\":\"%s\",\"type\":\"invalid_request_error\",\"param\":null,\"code\":null}}",
        text);
    exchange_set_header(x, "x-should-retry", "false");
    exchange_set_header(x, "Connection", "close");
    exchange_answer(x, status, "application/json; charset=utf-8", body, (size_t)n);
}

struct header_counts {
    int n_lengths, n_encodings, n_hosts;
    const char *length, *encoding, *content_encoding;
};

static enum MHD_Result count_header(void *context, enum MHD_ValueKind kind, const char *key,
                                    const char *value)
{
    struct header_counts *c = context;
    (void)kind;
    value = value ? value : "";
    if (strcasecmp(key, "Content-Length") == 0) {
        c->n_lengths++;
        c->length = value;
    } else if (strcasecmp(key, "Transfer-Encoding") == 0) {
        c->n_encodings++;
        c->encoding = value;
    } else if (strcasecmp(key, "Content-Encoding") == 0) {
        c->content_encoding = value;
    } else if (strcasecmp(key, "Host") == 0) {
        c->n_hosts++;
    }
    return MHD_YES;
}

/* False: not a path. */
static bool read_path(struct exchange *x)
{
    x->path = xstrdup(x->target);
    x->path[strcspn(x->path, "?")] = '\0';
    return x->path[0] == '/' && percent_decode(x->path);
}

/* Forms that another reader of the same bytes might take for something else are refused. */
static bool check_form(struct exchange *x, const char *version, size_t *length)
{
    static const char *const methods[] = {"GET", "HEAD", "POST", "OPTIONS", "PUT", "DELETE", "PATCH"};
    struct header_counts c = {0};
    size_t i = 0;
    x->http->library.MHD_get_connection_values(x->mhd, MHD_HEADER_KIND, count_header, &c);
    while (i < sizeof methods / sizeof *methods && strcmp(methods[i], x->method) != 0)
        i++;
    bool is_old = strcmp(version, "HTTP/1.0") == 0;
    if (!is_old && strcmp(version, "HTTP/1.1") != 0)
        refuse(x, 505, "this server speaks HTTP/1.1");
    else if (i == sizeof methods / sizeof *methods)
        refuse(x, 400, "not a method");
    else if (!read_path(x))
        refuse(x, 400, "not a path");
    else if (c.n_hosts > 1 || (c.n_hosts == 0 && !is_old))
        refuse(x, 400, "expected one Host header");
    else if (c.n_lengths > 1 || c.n_encodings > 1 || (c.n_lengths && c.n_encodings))
        refuse(x, 400, "expected one Content-Length or one Transfer-Encoding header");
    else if (c.n_encodings && strcasecmp(c.encoding, "chunked") != 0)
        refuse(x, 400, "expected Transfer-Encoding chunked");
    else if (c.n_lengths && (!c.length[0] || c.length[strspn(c.length, "0123456789")]))
        refuse(x, 400, "Content-Length is not a number");
    else if (c.content_encoding && strcasecmp(c.content_encoding, "identity") != 0)
        refuse(x, 415, "bodies are not decompressed: expected no Content-Encoding");
    else if (c.n_lengths && strtoull(c.length, NULL, 10) > x->http->o.body_bytes_max)
        refuse(x, 413, "the body is too large");
    else
        *length = c.n_lengths ? (size_t)strtoull(c.length, NULL, 10) : 0;
    return !x->has_answer;
}

static void take_client_id(struct exchange *x)
{
    const char *id = exchange_header(x, "x-request-id");
    size_t n = id ? strlen(id) : 0;
    if (n < 1 || n > 64 ||
        strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != n)
        return;
    memcpy(x->id, id, n + 1);
}

static void take_client(struct exchange *x)
{
    const struct http_library *l = &x->http->library;
    const union MHD_ConnectionInfo *info =
        l->MHD_get_connection_info(x->mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *a = info ? info->client_addr : NULL;
    char service[8];
    x->is_local = x->http->socket_path != NULL;
    if (!a || a->sa_family == AF_UNIX ||
        getnameinfo(a, a->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in),
                    x->client, sizeof x->client, service, sizeof service,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        snprintf(x->client, sizeof x->client, "local");
    info = l->MHD_get_connection_info(x->mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    x->fd = info->connect_fd;
}

/* ---- the library's callbacks ---- */

static enum MHD_Result send_answer(struct exchange *x)
{
    const struct http_library *l = &x->http->library;
    struct MHD_Response *response =
        x->is_stream ? l->MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16384, exchange_read, x, NULL)
                     : l->MHD_create_response_from_buffer(
                           x->out.n, x->out.n ? x->out.p : (void *)(uintptr_t) "", MHD_RESPMEM_MUST_COPY);
    if (!response)
        return MHD_NO;
    if (x->type)
        l->MHD_add_response_header(response, "Content-Type", x->type);
    l->MHD_add_response_header(response, "X-Request-Id", x->id);
    for (int i = 0; i < x->n_headers; i++)
        l->MHD_add_response_header(response, x->headers[i].name, x->headers[i].value);
    enum MHD_Result result = l->MHD_queue_response(x->mhd, (unsigned)x->status, response);
    l->MHD_destroy_response(response);
    return result;
}

static void *work(void *context)
{
    struct exchange *x = context;
    struct http *h = x->http;
    h->o.answer(h->o.context, x);
    exchange_release(x);
    pthread_mutex_lock(&h->lock);
    if (--h->n_busy == 0)
        pthread_cond_broadcast(&h->idle);
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

static bool start_work(struct exchange *x)
{
    pthread_attr_t attributes;
    pthread_t thread;
    struct http *h = x->http;
    http_watch_add(h, x);
    pthread_mutex_lock(&x->lock);
    x->n_references++;
    x->is_suspended = true;
    h->library.MHD_suspend_connection(x->mhd);
    pthread_mutex_unlock(&x->lock);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    bool ok = pthread_create(&thread, &attributes, work, x) == 0;
    pthread_attr_destroy(&attributes);
    if (!ok) {
        refuse(x, 503, "no thread could be made");
        pthread_mutex_lock(&h->lock);
        h->n_busy--;
        pthread_mutex_unlock(&h->lock);
        exchange_release(x);
    }
    return ok;
}

static enum MHD_Result begin(struct exchange *x, const char *method, const char *version)
{
    struct http *h = x->http;
    size_t length = 0;
    x->has_begun = true;
    x->method = xstrdup(method);
    take_client(x);
    take_client_id(x);
    pthread_mutex_lock(&h->lock);
    bool is_full = h->n_connections > h->o.n_connections;
    pthread_mutex_unlock(&h->lock);
    if (is_full) {
        exchange_set_header(x, "Retry-After", "5");
        refuse(x, 503, "too many connections");
    } else if (check_form(x, version, &length)) {
        h->o.begin(h->o.context, x, &x->is_quick);
    }
    double now = clock_seconds();
    if (x->has_answer) {
        set_phase(x, CONNECTION_BUSY, now + h->o.body_seconds);
        return send_answer(x);
    }
    set_phase(x, CONNECTION_BODY, now + h->o.body_seconds + (double)length / BODY_BYTES_PER_SECOND);
    return MHD_YES;
}

static enum MHD_Result take_body(struct exchange *x, const char *data, size_t *n)
{
    if (!x->is_too_large)
        buf_append(&x->body, data, *n);
    if (x->body.failed || x->is_too_large) {
        x->is_too_large = true;
        x->n_discarded += *n;
    }
    *n = 0;
    return x->n_discarded > DISCARD_BYTES_MAX ? MHD_NO : MHD_YES;
}

static enum MHD_Result on_request(void *context, struct MHD_Connection *mhd, const char *url,
                                  const char *method, const char *version, const char *data, size_t *n,
                                  void **user)
{
    struct exchange *x = *user;
    struct http *h = context;
    (void)mhd;
    (void)url;
    if (!x->has_begun)
        return begin(x, method, version);
    if (*n > 0)
        return take_body(x, data, n);
    if (!x->is_dispatched) {
        x->is_dispatched = true;
        set_phase(x, CONNECTION_BUSY, INFINITY);
        if (x->is_too_large) {
            refuse(x, 413, "the body is too large");
        } else if (x->is_quick) {
            h->o.answer(h->o.context, x);
        } else {
            (void)start_work(x);
            return MHD_YES;
        }
    }
    pthread_mutex_lock(&x->lock);
    bool can_answer = x->has_answer && !x->is_gone;
    pthread_mutex_unlock(&x->lock);
    return can_answer ? send_answer(x) : MHD_NO;
}

static void on_completed(void *context, struct MHD_Connection *mhd, void **user,
                         enum MHD_RequestTerminationCode code)
{
    struct http *h = context;
    struct exchange *x = *user;
    (void)mhd;
    if (!x)
        return;
    *user = NULL;
    http_watch_remove(h, x);
    pthread_mutex_lock(&x->lock);
    if (code != MHD_REQUEST_TERMINATED_COMPLETED_OK || !x->has_ended)
        exchange_leave(x);
    x->is_suspended = false;
    x->mhd = NULL;
    pthread_mutex_unlock(&x->lock);
    set_phase(x, CONNECTION_IDLE, clock_seconds() + h->o.idle_seconds);
    if (x->has_begun)
        h->o.completed(h->o.context, x);
    exchange_release(x);
}

/* ---- the daemon ---- */

static bool listen_unix(struct http *h, struct err *e)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (strlen(h->o.host) >= sizeof a.sun_path)
        return err_set(e, ERR_USAGE, "%s: the path of a socket has at most %zu bytes", h->o.host,
                       sizeof a.sun_path - 1);
    memcpy(a.sun_path, h->o.host, strlen(h->o.host) + 1);
    h->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (h->listen_fd < 0)
        return err_set_errno(e, "%s", h->o.host);
    mode_t mask = umask(0177);
    bool ok = bind(h->listen_fd, (struct sockaddr *)&a, sizeof a) == 0;
    umask(mask);
    if (!ok || listen(h->listen_fd, BACKLOG) != 0)
        return err_set_errno(e, "%s: can't listen", h->o.host);
    h->socket_path = xstrdup(h->o.host);
    h->address = xstrdup(h->o.host);
    return true;
}

static bool listen_port(struct http *h, struct err *e)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE},
                    *found;
    char port[16];
    int one = 1;
    snprintf(port, sizeof port, "%d", h->o.port);
    int failed = getaddrinfo(h->o.host, port, &hints, &found);
    if (failed)
        return err_set(e, ERR_IO, "%s: %s", h->o.host, gai_strerror(failed));
    h->listen_fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool ok =
        h->listen_fd >= 0 && setsockopt(h->listen_fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0 &&
        bind(h->listen_fd, found->ai_addr, found->ai_addrlen) == 0 && listen(h->listen_fd, BACKLOG) == 0;
    if (!ok)
        err_set_errno(e, "can't listen on %s:%d", h->o.host, h->o.port);
    freeaddrinfo(found);
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    char name[64];
    if (ok && (getsockname(h->listen_fd, (struct sockaddr *)&a, &n) != 0 ||
               getnameinfo((struct sockaddr *)&a, n, name, sizeof name, port, sizeof port,
                           NI_NUMERICHOST | NI_NUMERICSERV) != 0))
        ok = err_set_errno(e, "%s", h->o.host);
    if (ok)
        h->address = xasprintf(strchr(name, ':') ? "http://[%s]:%s" : "http://%s:%s", name, port);
    return ok;
}

/* A socket that a service manager has opened for this process (LISTEN_FDS). */
static bool take_socket(struct http *h)
{
    const char *pid = getenv("LISTEN_PID"), *n = getenv("LISTEN_FDS");
    if (!pid || !n || strtol(pid, NULL, 10) != (long)getpid() || strtol(n, NULL, 10) < 1)
        return false;
    h->listen_fd = 3;
    h->address = xstrdup("a socket that was handed over");
    return true;
}

static void be_silent(void *context, const char *format, va_list arguments)
{
    (void)context;
    (void)format;
    (void)arguments;
}

bool http_start(struct http **out, const struct http_options *o, struct err *e)
{
    struct http *h = xcalloc(1, sizeof *h);
    *out = NULL;
    h->o = *o;
    h->listen_fd = h->epoll_fd = -1;
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->idle, NULL);
    bool ok = http_library_load(&h->library, e) &&
              (take_socket(h) || (has_suffix(o->host, ".sock") ? listen_unix(h, e) : listen_port(h, e))) &&
              http_watch_start(h, e);
    if (ok) {
        h->daemon = h->library.MHD_start_daemon(
            MHD_USE_AUTO_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_request, h,
            MHD_OPTION_EXTERNAL_LOGGER, be_silent, NULL, MHD_OPTION_LISTEN_SOCKET, h->listen_fd,
            MHD_OPTION_NOTIFY_COMPLETED, on_completed, h, MHD_OPTION_NOTIFY_CONNECTION, on_connection, h,
            MHD_OPTION_URI_LOG_CALLBACK, start_uri, h, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
            (size_t)HEADER_BYTES_MAX, MHD_OPTION_CONNECTION_LIMIT,
            (unsigned)(o->n_connections + SPARE_CONNECTIONS), MHD_OPTION_CONNECTION_TIMEOUT,
            (unsigned)(2 * o->idle_seconds + 1), MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
        if (!h->daemon)
            ok = err_set(e, ERR_FAILED, "%s: libmicrohttpd can't begin its work", h->address);
    }
    if (ok)
        *out = h;
    else
        http_stop(h);
    return ok;
}

const char *http_address(const struct http *h)
{
    return h->address;
}

void http_quiesce(struct http *h)
{
    if (!h->is_quiet)
        (void)h->library.MHD_quiesce_daemon(h->daemon);
    h->is_quiet = true;
}

int http_busy(struct http *h)
{
    pthread_mutex_lock(&h->lock);
    int n = h->n_busy;
    pthread_mutex_unlock(&h->lock);
    return n;
}

void http_stop(struct http *h)
{
    if (!h)
        return;
    if (h->daemon) {
        http_quiesce(h);
        pthread_mutex_lock(&h->lock);
        for (struct exchange *x = h->exchanges; x; x = x->next) {
            pthread_mutex_lock(&x->lock);
            if (!x->has_ended)
                exchange_leave(x);
            pthread_mutex_unlock(&x->lock);
        }
        while (h->n_busy > 0)
            pthread_cond_wait(&h->idle, &h->lock);
        pthread_mutex_unlock(&h->lock);
        h->library.MHD_stop_daemon(h->daemon);
    }
    http_watch_stop(h);
    if (h->listen_fd >= 0 && (h->is_quiet || !h->daemon))
        close(h->listen_fd);
    if (h->socket_path)
        unlink(h->socket_path);
    pthread_mutex_destroy(&h->lock);
    pthread_cond_destroy(&h->idle);
    free(h->address);
    free(h->socket_path);
    free(h);
}
