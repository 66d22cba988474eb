/* From a request to the function that answers it: who may ask, from where, for what. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include "format/mlmodelc.h"
#include "server/server_internal.h"

enum { QUICK = 1, PUBLIC = 2 };

struct endpoint {
    const char *method, *path;
    void (*function)(struct server *s, struct exchange *x);
    enum api api;
    int flags;
};
#define ENDPOINT(method, path, function, api, flags) {method, path, function, api, flags},
static const struct endpoint endpoints[] = {
#include "server/endpoints.def"
};
#undef ENDPOINT
enum { N_ENDPOINTS = sizeof endpoints / sizeof *endpoints };

static bool matches(const struct endpoint *e, const char *path)
{
    size_t n = strlen(e->path);
    if (n > 1 && e->path[n - 1] == '*')
        return strncmp(e->path, path, n - 1) == 0 && path[n - 1];
    return strcmp(e->path, path) == 0;
}

/* -1: no such path; -2: not with this method, *allowed says which. */
static int find_endpoint(const char *method, const char *path, char *allowed, size_t n)
{
    bool is_head = strcmp(method, "HEAD") == 0;
    int found = -1;
    allowed[0] = '\0';
    for (int i = 0; i < N_ENDPOINTS && found < 0; i++) {
        if (!matches(&endpoints[i], path))
            continue;
        if (strcmp(endpoints[i].method, is_head ? "GET" : method) == 0)
            found = i;
        else if (!strstr(allowed, endpoints[i].method))
            snprintf(allowed + strlen(allowed), n - strlen(allowed), "%s%s", allowed[0] ? ", " : "",
                     endpoints[i].method);
    }
    return found < 0 && allowed[0] ? -2 : found;
}

/* Errors of a path that is not there have the form of its neighbours. */
static enum api api_of(const char *path)
{
    return strncmp(path, "/v1/messages", 12) == 0 ? API_ANTHROPIC
           : strncmp(path, "/api/", 5) == 0       ? API_OLLAMA
                                                  : API_OPENAI;
}

/* ---- who may ask ---- */

/* All keys are looked at, whatever comes out, and digests are compared, so the time says nothing about a key. */
static bool is_key(const struct server *s, const char *key)
{
    uint8_t digest[32];
    unsigned found = 0;
    sha256(digest, key, strlen(key));
    for (int i = 0; i < s->o->n_keys; i++) {
        unsigned differs = 0;
        for (int k = 0; k < 32; k++)
            differs |= (unsigned)(digest[k] ^ s->keys[i][k]);
        found |= differs == 0;
    }
    return found != 0;
}

static bool has_key(const struct server *s, const struct exchange *x)
{
    const char *header = exchange_header(x, "Authorization"), *other = exchange_header(x, "X-Api-Key");
    if (s->o->n_keys == 0)
        return true;
    if (header && strncasecmp(header, "Bearer", 6) == 0 && (header[6] == ' ' || header[6] == '\t')) {
        char *key = xstrdup(header + 6 + strspn(header + 6, " \t"));
        for (size_t n = strlen(key); n > 0 && strchr(" \t", key[n - 1]); n--)
            key[n - 1] = '\0';
        bool ok = is_key(s, key);
        free(key);
        if (ok)
            return true;
    }
    return other && is_key(s, other);
}

/* Is text [n] one of "a,b"? */
static bool is_listed(const char *list, const char *text, size_t n)
{
    for (const char *p = list; p && *p; p += strcspn(p, ","), p += *p == ',') {
        size_t length = strcspn(p, ",");
        if (length == n && strncasecmp(p, text, n) == 0)
            return true;
    }
    return false;
}

/* A name of this machine, by which a page of somebody else's can't reach a server on loopback through a name of its own. */
static bool is_local_name(const char *host, size_t n)
{
    return is_listed("localhost,127.0.0.1,[::1]", host, n);
}

static size_t host_bytes(const char *host)
{
    const char *bracket = host[0] == '[' ? strchr(host, ']') : NULL;
    return bracket ? (size_t)(bracket + 1 - host) : strcspn(host, ":");
}

static bool is_host_allowed(const struct server *s, const struct exchange *x)
{
    const char *host = exchange_header(x, "Host");
    if (!s->is_loopback || exchange_is_local(x) || !host)
        return true;
    size_t n = host_bytes(host);
    return is_local_name(host, n) || is_listed(s->o->allowed_hosts, host, n);
}

static bool is_origin_allowed(const struct server *s, const char *origin)
{
    const char *list = s->o->origins;
    if (!list || !origin)
        return false;
    if (strcmp(list, "*") == 0)
        return true;
    const char *host = strstr(origin, "://");
    size_t n = host ? host_bytes(host + 3) : 0;
    bool is_plain = host && (host[3 + n] == '\0' || (host[3 + n] == ':' && !strpbrk(host + 4 + n, "/@")));
    if (is_listed(list, "localhost", 9) && is_plain && is_local_name(host + 3, n))
        return true;
    return is_listed(list, origin, strlen(origin));
}

static bool is_json(const char *type)
{
    size_t n = type ? strcspn(type, "; \t") : 0;
    return !type || n == 0 || (n == 16 && strncasecmp(type, "application/json", 16) == 0);
}

/* ---- */

static void set_common_headers(const struct server *s, struct exchange *x, enum api api, const char *origin)
{
    exchange_set_header(x, "Server", "milkit");
    exchange_set_header(x, "Cache-Control", api == API_PAGE ? "no-cache" : "no-store");
    if (s->o->origins)
        exchange_set_header(x, "Vary", "Origin");
    if (is_origin_allowed(s, origin)) {
        exchange_set_header(x, "Access-Control-Allow-Origin", origin);
        exchange_set_header(x, "Access-Control-Expose-Headers", "x-request-id, x-milkit-seed");
    }
}

static void answer_preflight(struct exchange *x)
{
    exchange_set_header(x, "Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    exchange_set_header(x, "Access-Control-Allow-Headers",
                        "authorization, content-type, x-api-key, anthropic-version");
    exchange_set_header(x, "Access-Control-Max-Age", "600");
    exchange_answer(x, 204, NULL, "", 0);
}

void router_begin(void *context, struct exchange *x, bool *is_quick)
{
    struct server *s = context;
    struct problem p = {0};
    char allowed[64];
    const char *path = exchange_path(x), *method = exchange_method(x), *origin = exchange_header(x, "Origin"),
               *site = exchange_header(x, "Sec-Fetch-Site");
    int i = find_endpoint(method, path, allowed, sizeof allowed);
    enum api api = i >= 0 ? endpoints[i].api : api_of(path);
    exchange_record(x)->endpoint = i >= 0 ? i : -1;
    set_common_headers(s, x, api, origin);
    if (!is_host_allowed(s, x)) {
        problem_set(&p, 403, "permission_error", "forbidden_host", NULL,
                    "the server does not go by this name");
    } else if (api != API_PAGE && site && strcmp(site, "cross-site") == 0 && !is_origin_allowed(s, origin)) {
        problem_set(&p, 403, "permission_error", "forbidden_origin", NULL,
                    "pages of this origin may not ask");
    } else if (strcmp(method, "OPTIONS") == 0 && i != -1) {
        answer_preflight(x);
        return;
    } else if (!(i >= 0 && (endpoints[i].flags & PUBLIC)) && !has_key(s, x)) {
        exchange_set_header(x, "WWW-Authenticate", "Bearer");
        problem_set(&p, 401, "authentication_error", "invalid_api_key", NULL, "Invalid API Key");
    } else if (i == -1) {
        problem_set(&p, 404, "not_found_error", NULL, NULL, "nothing is at %.200s", path);
    } else if (i == -2) {
        exchange_set_header(x, "Allow", allowed);
        problem_set(&p, 405, "invalid_request_error", NULL, NULL, "%.200s takes %s", path, allowed);
    } else if (strcmp(method, "POST") == 0 && !is_json(exchange_header(x, "Content-Type"))) {
        problem_set(&p, 415, "invalid_request_error", NULL, NULL, "expected Content-Type: application/json");
    } else if (!(endpoints[i].flags & QUICK) && atomic_load(&s->is_stopping)) {
        problem_set(&p, 503, "unavailable_error", "shutting_down", NULL, "the server is shutting down");
        p.retry_after_s = 5;
    } else if (!(endpoints[i].flags & QUICK) && !atomic_load(&s->is_ready)) {
        problem_set(&p, 503, "unavailable_error", "loading", NULL, "Loading model");
        p.retry_after_s = 1;
    } else {
        *is_quick = (endpoints[i].flags & QUICK) != 0;
        return;
    }
    reply_problem(s, x, api, &p);
}

void router_answer(void *context, struct exchange *x)
{
    endpoints[exchange_record(x)->endpoint].function(context, x);
}

static void log_request(const struct server *s, struct exchange *x)
{
    const struct exchange_record *r = exchange_record(x);
    struct buf line;
    char time_text[32];
    time_t now = time(NULL);
    struct tm tm;
    gmtime_r(&now, &tm);
    strftime(time_text, sizeof time_text, "%Y-%m-%dT%H:%M:%SZ", &tm);
    buf_init(&line, 65536);
    if (s->o->logs_json) {
        buf_puts(&line, "{");
        put_key_string(&line, "time", time_text);
        put_key_string(&line, "id", exchange_id(x));
        put_key_string(&line, "client", exchange_client(x));
        put_key_string(&line, "method", exchange_method(x) ? exchange_method(x) : "");
        put_key_string(&line, "path", exchange_path(x) ? exchange_path(x) : "");
        put_key_int(&line, "status", exchange_status(x));
        put_key_int(&line, "prompt_tokens", r->n_prompt);
        put_key_int(&line, "reused_tokens", r->n_reused);
        put_key_int(&line, "generated_tokens", r->n_generated);
        put_key_number(&line, "wait_ms", r->wait_seconds * 1e3);
        put_key_number(&line, "first_token_ms", r->first_seconds * 1e3);
        put_key_number(&line, "ms", exchange_seconds(x) * 1e3);
        put_key_string(&line, "end", r->end ? r->end : "");
        buf_puts(&line, "}");
    } else {
        buf_printf(&line, "%s %s %s %s %s %d", time_text, exchange_id(x), exchange_client(x),
                   exchange_method(x) ? exchange_method(x) : "-", exchange_path(x) ? exchange_path(x) : "-",
                   exchange_status(x));
        if (r->end)
            buf_printf(&line, " prompt %lld (%lld reused) generated %lld wait %.1f ms first %.1f ms %s",
                       r->n_prompt, r->n_reused, r->n_generated, r->wait_seconds * 1e3,
                       r->first_seconds * 1e3, r->end);
        buf_printf(&line, " %.1f ms", exchange_seconds(x) * 1e3);
    }
    log_info(s->o->log, "%s", line.p);
    buf_fini(&line);
}

void router_completed(void *context, struct exchange *x)
{
    struct server *s = context;
    int i = exchange_record(x)->endpoint;
    metrics_count_request(s->metrics, i, exchange_status(x), exchange_seconds(x));
    if (i >= 0 && (endpoints[i].function == get_health))
        return;
    log_request(s, x);
}
