/* Exchanges: what a request says, and its answer on the way from the thread that makes it to the network's. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include "base/log.h"
#include "server/http_internal.h"

/* What a stream may hold that the client has not read. */
#define PENDING_BYTES_MAX ((size_t)1 << 20)
#define ANSWER_BYTES_MAX ((size_t)1 << 30)

struct exchange *exchange_new(struct http *h, const char *target)
{
    struct exchange *x = xcalloc(1, sizeof *x);
    uint64_t random = 0;
    x->http = h;
    x->n_references = 1;
    pthread_mutex_init(&x->lock, NULL);
    pthread_cond_init(&x->changed, NULL);
    x->target = xstrdup(target);
    x->begun = x->progress = clock_seconds();
    x->record.endpoint = -1;
    buf_init(&x->body, h->o.body_bytes_max);
    buf_init(&x->out, ANSWER_BYTES_MAX);
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        random = (uint64_t)(x->begun * 1e9);
    snprintf(x->id, sizeof x->id, "%016llx", (unsigned long long)random);
    return x;
}

void exchange_release(struct exchange *x)
{
    pthread_mutex_lock(&x->lock);
    bool is_last = --x->n_references == 0;
    pthread_mutex_unlock(&x->lock);
    if (!is_last)
        return;
    for (int i = 0; i < x->n_headers; i++) {
        free(x->headers[i].name);
        free(x->headers[i].value);
    }
    pthread_mutex_destroy(&x->lock);
    pthread_cond_destroy(&x->changed);
    buf_fini(&x->body);
    buf_fini(&x->out);
    free(x->target);
    free(x->path);
    free(x->method);
    free(x);
}

/* ---- the request ---- */

const char *exchange_method(const struct exchange *x)
{
    return x->method;
}

const char *exchange_path(const struct exchange *x)
{
    return x->path;
}

bool percent_decode(char *text)
{
    bool ok = true;
    char *out = text;
    for (const char *p = text; *p && ok; p++) {
        unsigned char c = (unsigned char)*p;
        if (c == '%') {
            char digits[3] = {0}, *end;
            strncpy(digits, p + 1, 2);
            c = (unsigned char)strtoul(digits, &end, 16);
            ok = strspn(digits, "0123456789abcdefABCDEF") == 2 && c != 0;
            p += ok ? 2 : 0;
        }
        ok = ok && c >= 0x20 && c != 0x7f;
        *out++ = (char)c;
    }
    *out = '\0';
    return ok;
}

char *exchange_query(const struct exchange *x, const char *key)
{
    const char *p = strchr(x->target, '?');
    size_t n = strlen(key);
    for (p = p ? p + 1 : ""; *p; p += strcspn(p, "&"), p += *p == '&')
        if (strncmp(p, key, n) == 0 && (p[n] == '=' || p[n] == '&' || !p[n])) {
            char *value = p[n] == '=' ? strndup(p + n + 1, strcspn(p + n + 1, "&")) : xstrdup("");
            (void)percent_decode(value); /* what is wrong with it ends it */
            return value;
        }
    return NULL;
}

struct find_header {
    const char *name, *value;
};

static enum MHD_Result find_header(void *context, enum MHD_ValueKind kind, const char *key, const char *value)
{
    struct find_header *f = context;
    (void)kind;
    if (strcasecmp(key, f->name) == 0)
        f->value = value ? value : "";
    return MHD_YES;
}

const char *exchange_header(const struct exchange *x, const char *name)
{
    struct find_header f = {name, NULL};
    x->http->library.MHD_get_connection_values(x->mhd, MHD_HEADER_KIND, find_header, &f);
    return f.value;
}

struct str exchange_body(const struct exchange *x)
{
    return (struct str){x->body.p ? x->body.p : "", x->body.n};
}

const char *exchange_client(const struct exchange *x)
{
    return x->client;
}

const char *exchange_id(const struct exchange *x)
{
    return x->id;
}

bool exchange_is_local(const struct exchange *x)
{
    return x->is_local;
}

struct exchange_record *exchange_record(struct exchange *x)
{
    return &x->record;
}

int exchange_status(const struct exchange *x)
{
    return x->status;
}

double exchange_seconds(const struct exchange *x)
{
    return clock_seconds() - x->begun;
}

/* ---- the answer ---- */

/* Lets the network's thread look at the exchange again. With x->lock held. */
static void wake(struct exchange *x)
{
    if (x->is_suspended && x->mhd) {
        x->is_suspended = false;
        x->http->library.MHD_resume_connection(x->mhd);
    }
}

void exchange_leave(struct exchange *x)
{
    if (!x->is_gone && x->on_gone)
        x->on_gone(x->on_gone_context);
    x->is_gone = true;
    x->on_gone = NULL;
    wake(x);
    pthread_cond_broadcast(&x->changed);
}

void exchange_set_header(struct exchange *x, const char *name, const char *value)
{
    if (x->n_headers == (int)(sizeof x->headers / sizeof x->headers[0]))
        return;
    x->headers[x->n_headers].name = xstrdup(name);
    x->headers[x->n_headers++].value = xstrdup(value);
}

void exchange_answer(struct exchange *x, int status, const char *type, const char *body, size_t n)
{
    pthread_mutex_lock(&x->lock);
    x->status = status;
    x->type = type;
    buf_append(&x->out, body, n);
    x->has_answer = x->has_ended = true;
    wake(x);
    pthread_mutex_unlock(&x->lock);
}

void exchange_begin_stream(struct exchange *x, int status, const char *type)
{
    pthread_mutex_lock(&x->lock);
    x->status = status;
    x->type = type;
    x->is_stream = x->has_answer = true;
    x->progress = clock_seconds();
    wake(x);
    pthread_mutex_unlock(&x->lock);
}

bool exchange_write(struct exchange *x, const char *data, size_t n)
{
    pthread_mutex_lock(&x->lock);
    while (!x->is_gone && x->out.n - x->out_at > PENDING_BYTES_MAX)
        pthread_cond_wait(&x->changed, &x->lock);
    if (x->out_at == x->out.n) {
        x->progress = clock_seconds();
        buf_clear(&x->out);
        x->out_at = 0;
    }
    if (!x->is_gone)
        buf_append(&x->out, data, n);
    bool is_read = !x->is_gone;
    wake(x);
    pthread_mutex_unlock(&x->lock);
    return is_read;
}

void exchange_end_stream(struct exchange *x)
{
    pthread_mutex_lock(&x->lock);
    x->has_ended = true;
    wake(x);
    pthread_mutex_unlock(&x->lock);
}

bool exchange_is_gone(struct exchange *x)
{
    pthread_mutex_lock(&x->lock);
    bool is_gone = x->is_gone;
    pthread_mutex_unlock(&x->lock);
    return is_gone;
}

void exchange_on_gone(struct exchange *x, void (*fn)(void *context), void *context)
{
    pthread_mutex_lock(&x->lock);
    if (x->is_gone && fn)
        fn(context);
    x->on_gone = x->is_gone ? NULL : fn;
    x->on_gone_context = context;
    pthread_mutex_unlock(&x->lock);
}

ssize_t exchange_read(void *context, uint64_t position, char *out, size_t n)
{
    struct exchange *x = context;
    ssize_t result = 0;
    (void)position;
    pthread_mutex_lock(&x->lock);
    size_t ready = x->out.n - x->out_at;
    if (ready > 0 && !x->is_gone) {
        result = (ssize_t)(ready < n ? ready : n);
        memcpy(out, x->out.p + x->out_at, (size_t)result);
        x->out_at += (size_t)result;
        x->progress = clock_seconds();
        if (x->out_at == x->out.n || x->out_at > PENDING_BYTES_MAX) {
            memmove(x->out.p, x->out.p + x->out_at, x->out.n - x->out_at);
            x->out.n -= x->out_at;
            x->out_at = 0;
        }
        pthread_cond_broadcast(&x->changed);
    } else if (x->is_gone) {
        result = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (x->has_ended) {
        result = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        x->is_suspended = true;
        x->http->library.MHD_suspend_connection(x->mhd);
    }
    pthread_mutex_unlock(&x->lock);
    return result;
}
