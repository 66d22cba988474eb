/* What the files of the HTTP side share. */
#ifndef MILKIT_SERVER_HTTP_INTERNAL_H
#define MILKIT_SERVER_HTTP_INTERNAL_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include "server/http.h"

/* libmicrohttpd, loaded when a server begins: it brings a TLS library, which would double the time in which every other command starts. */
struct http_library {
#define HTTP_LIBRARY(F)                                                                                      \
    F(MHD_start_daemon)                                                                                      \
    F(MHD_quiesce_daemon)                                                                                    \
    F(MHD_stop_daemon)                                                                                       \
    F(MHD_get_daemon_info)                                                                                   \
    F(MHD_get_connection_info)                                                                               \
    F(MHD_get_connection_values)                                                                             \
    F(MHD_lookup_connection_value)                                                                           \
    F(MHD_suspend_connection)                                                                                \
    F(MHD_resume_connection)                                                                                 \
    F(MHD_create_response_from_buffer)                                                                       \
    F(MHD_create_response_from_callback)                                                                     \
    F(MHD_add_response_header)                                                                               \
    F(MHD_queue_response)                                                                                    \
    F(MHD_destroy_response)
#define HTTP_POINTER(name) __typeof__(name) *name;
    HTTP_LIBRARY(HTTP_POINTER)
#undef HTTP_POINTER
};
bool http_library_load(struct http_library *l, struct err *e) MUST_CHECK;

/* A connection, as far as its deadlines go. In http's list, under its lock. */
struct connection {
    struct connection *next;
    int fd;
    enum { CONNECTION_NEW, CONNECTION_HEADER, CONNECTION_BODY, CONNECTION_BUSY, CONNECTION_IDLE } phase;
    double deadline; /* infinite while it is busy */
};

struct exchange {
    struct http *http;
    struct exchange *next; /* in http's list, under its lock */
    uint64_t number;
    int n_references; /* under lock */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* set by the network's thread before anyone else sees the exchange */
    struct connection *connection;
    struct MHD_Connection *mhd; /* NULL once the exchange is completed */
    int fd;
    char *target, *path, *method;
    char client[64], id[72];
    bool is_local, is_quick, has_begun, is_dispatched;
    bool is_too_large;
    size_t n_discarded;
    struct buf body;
    double begun;
    struct exchange_record record;
    /* under lock */
    bool is_watched, is_suspended, has_answer, is_stream, has_ended, is_gone;
    void (*on_gone)(void *context);
    void *on_gone_context;
    int status;
    const char *type;
    struct buf out; /* of a stream: out.p[out_at..out.n] waits to be read */
    size_t out_at;
    double progress; /* when something was last read, or there was nothing to read */
    struct {
        char *name, *value;
    } headers[24];
    int n_headers;
};

struct http {
    struct http_library library;
    struct http_options o;
    struct MHD_Daemon *daemon;
    char *address, *socket_path;
    int listen_fd;
    bool is_quiet; /* quiesced */
    pthread_mutex_t lock;
    struct connection *connections;
    struct exchange *exchanges; /* those that are worked on */
    int n_connections, n_busy;
    uint64_t n_exchanges;
    pthread_cond_t idle; /* n_busy became 0 */
    pthread_t watcher;
    bool has_watcher;
    int epoll_fd;
    atomic_bool is_stopping;
};

/* ---- exchange.c ---- */

struct exchange *exchange_new(struct http *h, const char *target);
void exchange_release(struct exchange *x);
/* In place. False: it has what no text of a target stands for. */
bool percent_decode(char *text);
/* Marks that the client is gone. With x->lock held. */
void exchange_leave(struct exchange *x);
/* The library's reader of a stream. */
ssize_t exchange_read(void *context, uint64_t position, char *out, size_t n);

/* ---- http_watch.c ---- */

bool http_watch_start(struct http *h, struct err *e) MUST_CHECK;
void http_watch_stop(struct http *h);
/* From now on a client that leaves is noticed; until http_watch_remove, before its socket is closed. */
void http_watch_add(struct http *h, struct exchange *x);
void http_watch_remove(struct http *h, struct exchange *x);

#endif
