/* HTTP for the server: exchanges, each a request and its answer, on libmicrohttpd, which only http*.c know.
 *
 * A request is checked when its headers are there (`begin`), read under limits, and answered (`answer`): quick ones on the network's thread,
 * the others on a thread of their own, which may wait for results. A client that leaves is noticed at once, whatever its request waits for; so
 * are clients that are too slow.
 */
#ifndef MILKIT_SERVER_HTTP_H
#define MILKIT_SERVER_HTTP_H

#include "base/buf.h"
#include "base/err.h"

struct exchange;
struct http;

struct http_options {
    const char *host; /* an address, "localhost", or the path of a socket, which ends in ".sock" */
    int port;         /* 0: any */
    int n_connections;
    size_t body_bytes_max;
    double header_seconds, body_seconds, idle_seconds, stall_seconds;
    /* The headers are there. It may answer at once; else *is_quick says where `answer` comes. */
    void (*begin)(void *context, struct exchange *x, bool *is_quick);
    void (*answer)(void *context, struct exchange *x);
    /* The answer is out, or the client gone. */
    void (*completed)(void *context, struct exchange *x);
    void *context;
};

bool http_start(struct http **out, const struct http_options *o, struct err *e) MUST_CHECK;
/* No more connections are taken. */
void http_quiesce(struct http *h);
/* Requests that are being worked on. */
int http_busy(struct http *h);
/* Ends all connections; whoever works on a request must be done, or be about to see that its client is gone. Accepts NULL. */
void http_stop(struct http *h);
/* "http://127.0.0.1:8080" */
const char *http_address(const struct http *h);

/* ---- the request ---- */

const char *exchange_method(const struct exchange *x);
const char *exchange_path(const struct exchange *x); /* without the query, percent-decoded */
/* The value of a key of the query, percent-decoded; NULL when absent. Heap. */
char *exchange_query(const struct exchange *x, const char *key);
/* NULL when absent. The last one of equal names. On the network's thread (begin) only. */
const char *exchange_header(const struct exchange *x, const char *name);
struct str exchange_body(const struct exchange *x);
/* "127.0.0.1" */
const char *exchange_client(const struct exchange *x);
/* 16 hexadecimal digits, or what the client named it. */
const char *exchange_id(const struct exchange *x);
bool exchange_is_local(const struct exchange *x); /* over a socket of this machine */

/* ---- the answer ---- */

/* To go out with the answer. */
void exchange_set_header(struct exchange *x, const char *name, const char *value);
/* The whole of it. */
void exchange_answer(struct exchange *x, int status, const char *type, const char *body, size_t n);
/* Or in pieces. */
void exchange_begin_stream(struct exchange *x, int status, const char *type);
/* Waits while the client has much to read. False: nobody reads any more. */
bool exchange_write(struct exchange *x, const char *data, size_t n);
void exchange_end_stream(struct exchange *x);
bool exchange_is_gone(struct exchange *x);
/* fn is called once when the client leaves, from another thread; at once when it has left. NULL: nobody. When this returns, no call of
 * an earlier fn is running. */
void exchange_on_gone(struct exchange *x, void (*fn)(void *context), void *context);
/* What the log says of it. */
int exchange_status(const struct exchange *x);
double exchange_seconds(const struct exchange *x);
struct exchange_record {
    long long n_prompt, n_reused, n_generated;
    double wait_seconds, first_seconds;
    const char *end; /* a constant: "stop", .. ; NULL: nothing was generated */
    int endpoint;    /* a number of the router's; -1: none */
};
struct exchange_record *exchange_record(struct exchange *x);

#endif
