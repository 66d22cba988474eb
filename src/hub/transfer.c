/* Transfers: several addresses at a time over libcurl, each into a file that grows until it has the listed size and digest.
 *
 * Redirects are followed by hand, so that the token goes to the hub itself alone, and only from https to https. A broken
 * connection goes on at the byte where it ended; a server in trouble is asked again after a while.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "hub/hub_internal.h"

#define ATTEMPTS_MAX 6    /* in a row that brought no byte */
#define CONNECTIONS_MAX 3 /* ... where nobody answered at all */
#define REDIRECTS_MAX 8
#define WAIT_MAX_S 600.0 /* longest wait that a server may ask for */
#define TEXT_BYTES_MAX ((size_t)64 << 20)

struct job {
    const struct hub_server *server;
    struct hub_transfer *t;
    CURL *easy; /* NULL: not under way */
    struct curl_slist *headers;
    char *url; /* of the current request: a redirect's; heap */
    int fd;
    EVP_MD_CTX *digest;
    int64_t n_done;  /* bytes that the part holds and the digest has seen */
    int64_t n_asked; /* n_done when the request began */
    int n_redirects, n_attempts, n_damaged;
    double retry_at_s; /* of clock_seconds; 0: now */
    bool is_checked;   /* the status line of this answer was looked at */
    bool is_body;      /* ... and its body is what was asked for */
    bool is_finished;
    char code[64]; /* the hub's word for what is wrong ("GatedRepo"), or "" */
    struct err write_error;
};

/* ---- addresses ---- */

/* Scheme, host and port: compares the beginnings of two addresses up to the path. */
static size_t origin_bytes(const char *url)
{
    const char *host = strstr(url, "://");
    return host ? (size_t)(host + 3 - url) + strcspn(host + 3, "/?#") : 0;
}

static bool is_same_origin(const char *a, const char *b)
{
    size_t n = origin_bytes(a);
    return n > 0 && n == origin_bytes(b) && strncasecmp(a, b, n) == 0;
}

/* The address for messages: without a query, which may hold a signature. */
static char *url_for_people(const char *url)
{
    return xasprintf("%.*s", (int)strcspn(url, "?#"), url);
}

/* ---- the part ---- */

static bool digest_begin(struct job *j, struct err *e)
{
    const struct hub_libraries *l = &j->server->libraries;
    if (!j->t->digest)
        return true;
    if (!j->digest)
        j->digest = l->EVP_MD_CTX_new();
    if (!j->digest ||
        !l->EVP_DigestInit_ex(j->digest, j->t->is_large ? l->EVP_sha256() : l->EVP_sha1(), NULL))
        return err_set(e, ERR_FAILED, "libcrypto can't make a checksum");
    if (!j->t->is_large) { /* git's digest of a blob begins with its kind and size */
        char head[64];
        int n = snprintf(head, sizeof head, "blob %lld", (long long)j->t->bytes);
        l->EVP_DigestUpdate(j->digest, head, (size_t)n + 1);
    }
    return true;
}

static void digest_add(struct job *j, const void *data, size_t n)
{
    if (j->digest)
        j->server->libraries.EVP_DigestUpdate(j->digest, data, n);
}

static bool part_restart(struct job *j, struct err *e)
{
    j->n_done = 0;
    if (j->fd < 0) {
        buf_clear(&j->t->text);
        return true;
    }
    if (ftruncate(j->fd, 0) != 0 || lseek(j->fd, 0, SEEK_SET) != 0)
        return err_set_errno(e, "%s: can't write", j->t->part);
    return digest_begin(j, e);
}

/* Opens the part and reads what an earlier run has left of it. */
static bool part_open(struct job *j, struct err *e)
{
    char block[65536];
    ssize_t n;
    struct stat st;
    if (!j->t->part) {
        buf_init(&j->t->text, TEXT_BYTES_MAX);
        return true;
    }
    j->fd = open(j->t->part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (j->fd < 0)
        return err_set_errno(e, "%s: can't open", j->t->part);
    if (fstat(j->fd, &st) != 0 || !S_ISREG(st.st_mode))
        return err_set(e, ERR_IO, "%s: expected a file, found something else", j->t->part);
    if (!digest_begin(j, e))
        return false;
    if (j->t->bytes >= 0 && st.st_size > j->t->bytes)
        return part_restart(j, e);
    while ((n = read(j->fd, block, sizeof block)) > 0) {
        digest_add(j, block, (size_t)n);
        j->n_done += n;
    }
    return n == 0 || err_set_errno(e, "%s: can't read", j->t->part);
}

static bool part_append(struct job *j, const char *data, size_t n, struct err *e)
{
    if (j->t->bytes >= 0 && (int64_t)n > j->t->bytes - j->n_done)
        return err_set(e, ERR_MISMATCH, "%s: expected %lld bytes, the server sends more", j->t->what,
                       (long long)j->t->bytes);
    j->n_done += (int64_t)n;
    if (j->fd < 0) {
        buf_append(&j->t->text, data, n);
        return !j->t->text.failed ||
               err_set(e, ERR_LIMIT, "%s: longer than the limit of %zu bytes", j->t->what, TEXT_BYTES_MAX);
    }
    digest_add(j, data, n);
    while (n > 0) {
        ssize_t written = write(j->fd, data, n);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return err_set_errno(e, "%s: can't write", j->t->part);
        data += written;
        n -= (size_t)written;
    }
    return true;
}

/* Is the finished part what the hub lists? */
static bool part_matches(struct job *j, char found[65])
{
    const struct hub_libraries *l = &j->server->libraries;
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int n = 0;
    if (!j->digest)
        return true;
    l->EVP_DigestFinal_ex(j->digest, digest, &n);
    for (unsigned int i = 0; i < n && i < 32; i++)
        snprintf(found + 2 * i, 3, "%02x", digest[i]);
    return strcmp(found, j->t->digest) == 0;
}

/* ---- one request ---- */

static size_t on_header(char *line, size_t size, size_t n, void *context)
{
    static const char name[] = "x-error-code:";
    struct job *j = context;
    size_t bytes = size * n, skip = sizeof name - 1;
    if (bytes > skip && strncasecmp(line, name, skip) == 0) {
        while (skip < bytes && line[skip] == ' ')
            skip++;
        size_t length = 0;
        while (skip + length < bytes && length < sizeof j->code - 1 && line[skip + length] > ' ')
            length++;
        memcpy(j->code, line + skip, length);
        j->code[length] = '\0';
    }
    return bytes;
}

static long status_of(const struct job *j)
{
    long status = 0;
    j->server->libraries.curl_easy_getinfo(j->easy, CURLINFO_RESPONSE_CODE, &status);
    return status;
}

static size_t on_body(char *data, size_t size, size_t n, void *context)
{
    struct job *j = context;
    size_t bytes = size * n;
    if (!j->is_checked) {
        long status = status_of(j);
        j->is_checked = true;
        j->is_body = status == 200 || (status == 206 && j->n_asked > 0);
        /* the whole again, where the rest was asked for */
        if (status == 200 && j->n_asked > 0 && !part_restart(j, &j->write_error))
            return 0;
    }
    if (j->is_body && !part_append(j, data, bytes, &j->write_error))
        return 0;
    return bytes;
}

static bool request_begin(struct job *j, CURLM *multi, struct err *e)
{
    const struct hub_server *s = j->server;
    const struct hub_libraries *l = &s->libraries;
    CURL *easy = l->curl_easy_init();
    if (!easy)
        return err_set(e, ERR_NOMEM, "libcurl: out of memory");
    j->easy = easy;
    j->is_checked = j->is_body = false;
    j->code[0] = '\0';
    j->n_asked = j->n_done;
    j->headers = l->curl_slist_append(NULL, "User-Agent: milkit");
    if (s->token && is_same_origin(j->url, s->endpoint)) {
        char *header = xasprintf("Authorization: Bearer %s", s->token);
        j->headers = l->curl_slist_append(j->headers, header);
        explicit_bzero(header, strlen(header));
        free(header);
    }
    l->curl_easy_setopt(easy, CURLOPT_URL, j->url);
    l->curl_easy_setopt(easy, CURLOPT_HTTPHEADER, j->headers);
    l->curl_easy_setopt(easy, CURLOPT_PRIVATE, j);
    l->curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    l->curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    l->curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, s->stall_s < 15 ? s->stall_s : 15L);
    l->curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
    l->curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, s->stall_s);
    l->curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    l->curl_easy_setopt(easy, CURLOPT_HEADERDATA, j);
    l->curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    l->curl_easy_setopt(easy, CURLOPT_WRITEDATA, j);
    if (j->n_done > 0)
        l->curl_easy_setopt(easy, CURLOPT_RESUME_FROM_LARGE, (curl_off_t)j->n_done);
    return l->curl_multi_add_handle(multi, easy) == CURLM_OK ||
           err_set(e, ERR_FAILED, "libcurl refuses a transfer");
}

static void request_end(struct job *j, CURLM *multi)
{
    const struct hub_libraries *l = &j->server->libraries;
    if (!j->easy)
        return;
    l->curl_multi_remove_handle(multi, j->easy);
    l->curl_easy_cleanup(j->easy);
    l->curl_slist_free_all(j->headers);
    j->easy = NULL;
    j->headers = NULL;
}

/* ---- what an answer means ---- */

/* The next request goes to the transfer's own address: a redirect's may have lost its force. */
static void start_over(struct job *j)
{
    free(j->url);
    j->url = xstrdup(j->t->url);
    j->n_redirects = 0;
}

/* Another attempt in wait_s seconds; reason: for the message when there were too many. */
static bool attempt_again(struct job *j, double wait_s, const char *reason, struct err *e)
{
    char *url = url_for_people(j->url);
    int n_max = status_of(j) ? ATTEMPTS_MAX : CONNECTIONS_MAX;
    bool ok = false;
    if (j->n_done > j->n_asked)
        j->n_attempts = 0;
    if (++j->n_attempts >= n_max) {
        err_set(e, ERR_IO, "%s: %s, after %d attempts (%s)", j->t->what, reason, j->n_attempts, url);
    } else if (wait_s > WAIT_MAX_S) {
        err_set(e, ERR_IO, "%s: %s; the server asks to come back in %.0f minutes (%s)", j->t->what, reason,
                wait_s / 60, url);
    } else {
        double backoff_s = 0.25 * (double)(1 << j->n_attempts);
        j->retry_at_s = clock_seconds() + (wait_s > 0 ? wait_s : backoff_s);
        if (wait_s > 1)
            log_info(j->server->log, "%s: %s; waiting %.0f s", j->t->what, reason, wait_s);
        else
            log_debug(j->server->log, "%s: %s; once more", j->t->what, reason);
        ok = true;
    }
    start_over(j);
    free(url);
    return ok;
}

static bool refuse(struct job *j, long status, struct err *e)
{
    const char *what = j->t->what, *code = j->code;
    bool has_token = j->server->token != NULL;
    char *url = url_for_people(j->url);
    if (status == 401 || strcmp(code, "RepoNotFound") == 0)
        err_set(e, ERR_IO,
                has_token ? "%s: the hub knows no such model, or the token (HF_TOKEN) has no access to it "
                            "(status %ld, %s)"
                          : "%s: the hub knows no such model, or it is private: then HF_TOKEN must hold a "
                            "token (status "
                            "%ld, %s)",
                what, status, url);
    else if (strcmp(code, "GatedRepo") == 0 || status == 403)
        err_set(
            e, ERR_IO,
            has_token
                ? "%s: access must be asked for on the model's page first, with the token's account (status "
                  "%ld, "
                  "%s)"
                : "%s: access must be asked for on the model's page, and HF_TOKEN must hold a token (status "
                  "%ld, %s)",
            what, status, url);
    else if (strcmp(code, "RevisionNotFound") == 0)
        err_set(e, ERR_IO, "%s: the model has no such revision (status %ld, %s)", what, status, url);
    else if (status == 404 || status == 410)
        err_set(e, ERR_IO, "%s: not found (status %ld, %s)", what, status, url);
    else
        err_set(e, ERR_IO, "%s: the server answers with status %ld (%s)", what, status, url);
    free(url);
    return false;
}

static bool follow_redirect(struct job *j, struct err *e)
{
    const char *next = NULL;
    j->server->libraries.curl_easy_getinfo(j->easy, CURLINFO_REDIRECT_URL, &next);
    char *shown = url_for_people(next ? next : j->url);
    bool ok = false;
    if (!next || ++j->n_redirects > REDIRECTS_MAX)
        err_set(e, ERR_IO, "%s: %s (%s)", j->t->what, next ? "too many redirects" : "a redirect to nowhere",
                shown);
    else if (strncasecmp(next, "https://", 8) != 0 &&
             !(strncasecmp(next, "http://", 7) == 0 && strncasecmp(j->server->endpoint, "http://", 7) == 0))
        err_set(e, ERR_IO, "%s: a redirect to an address that is not https (%s)", j->t->what, shown);
    else {
        char *copy = xstrdup(next);
        free(j->url);
        j->url = copy;
        ok = true;
    }
    free(shown);
    return ok;
}

/* All bytes are there. */
static bool job_finish(struct job *j, struct err *e)
{
    char found[65] = "";
    if (part_matches(j, found)) {
        if (j->fd >= 0 && fsync(j->fd) != 0)
            return err_set_errno(e, "%s: can't write", j->t->part);
        j->is_finished = true;
        return true;
    }
    if (!part_restart(j, e))
        return false;
    if (++j->n_damaged > 1)
        return err_set(e, ERR_MISMATCH, "%s: expected the %s %s, found %s, twice", j->t->what,
                       j->t->is_large ? "SHA-256" : "git digest", j->t->digest, found);
    log_info(j->server->log, "%s: its checksum is not what the hub lists; once more", j->t->what);
    j->retry_at_s = 0;
    start_over(j);
    return true;
}

/* A request has ended: what now? */
static bool judge(struct job *j, CURLcode result, CURLM *multi, struct err *e)
{
    const struct hub_libraries *l = &j->server->libraries;
    long status = status_of(j);
    curl_off_t wait_s = 0;
    bool ok = false;
    l->curl_easy_getinfo(j->easy, CURLINFO_RETRY_AFTER, &wait_s);
    char reason[128];
    snprintf(reason, sizeof reason, "the server answers with status %ld", status);
    if (j->write_error.code) {
        *e = j->write_error;
    } else if (result == CURLE_UNSUPPORTED_PROTOCOL || result == CURLE_URL_MALFORMAT) {
        char *url = url_for_people(j->url);
        err_set(e, ERR_USAGE, "%s: expected an address of http or https, found %s", j->t->what, url);
        free(url);
    } else if (status == 416 && j->n_asked > 0) {
        ok = part_restart(j, e) &&
             attempt_again(j, 0, reason, e); /* the part does not fit what the server has */
    } else if (result == CURLE_RANGE_ERROR) {
        ok = part_restart(j, e) && attempt_again(j, 0, "the server can't send the rest of a file", e);
    } else if (status >= 300 && status < 400 && status != 304) {
        ok = follow_redirect(j, e);
    } else if (status == 429 || status == 408 || status >= 500) {
        ok = attempt_again(j, (double)wait_s, reason, e);
    } else if (status >= 400) {
        refuse(j, status, e);
    } else if (result != CURLE_OK) {
        bool is_slow = result == CURLE_OPERATION_TIMEDOUT && status != 0;
        snprintf(reason, sizeof reason, "%s",
                 is_slow ? "no byte came for a while" : l->curl_easy_strerror(result));
        ok = attempt_again(j, 0, reason, e);
    } else if (j->t->bytes >= 0 && j->n_done < j->t->bytes) {
        ok = attempt_again(j, 0, "the connection ended too early", e);
    } else {
        ok = job_finish(j, e);
    }
    request_end(j, multi);
    return ok;
}

/* ---- all of them ---- */

static int64_t bytes_done(const struct job *jobs, int n)
{
    int64_t sum = 0;
    for (int i = 0; i < n; i++)
        sum += jobs[i].n_done;
    return sum;
}

/* Begins what is due, as many as may run. *n_open: jobs that are not finished. */
static bool begin_due(struct job *jobs, int n, int n_at_once, CURLM *multi, int *n_open, struct err *e)
{
    double now_s = clock_seconds();
    int n_running = 0;
    *n_open = 0;
    for (int i = 0; i < n; i++) {
        n_running += jobs[i].easy != NULL;
        *n_open += !jobs[i].is_finished;
    }
    for (int i = 0; i < n && n_running < n_at_once; i++) {
        struct job *j = &jobs[i];
        if (j->is_finished || j->easy || j->retry_at_s > now_s)
            continue;
        if (!j->url) {
            j->url = xstrdup(j->t->url);
            if (!part_open(j, e))
                return false;
            if (j->t->bytes >= 0 && j->n_done == j->t->bytes) { /* whole, from an earlier run */
                if (!job_finish(j, e))
                    return false;
                *n_open -= j->is_finished;
                if (j->is_finished)
                    continue;
            }
        }
        if (!request_begin(j, multi, e))
            return false;
        n_running++;
    }
    return true;
}

static void job_close(struct job *j, CURLM *multi)
{
    request_end(j, multi);
    if (j->fd >= 0)
        close(j->fd);
    if (j->digest)
        j->server->libraries.EVP_MD_CTX_free(j->digest);
    free(j->url);
}

bool hub_transfer_all(const struct hub_server *s, struct hub_transfer *t, int n, int n_at_once,
                      struct progress *progress, int64_t first_bytes, struct err *e)
{
    const struct hub_libraries *l = &s->libraries;
    struct job *jobs = xcalloc((size_t)n + 1, sizeof *jobs);
    CURLM *multi = l->curl_multi_init();
    bool ok = multi != NULL || err_set(e, ERR_NOMEM, "libcurl: out of memory");
    for (int i = 0; i < n; i++)
        jobs[i] = (struct job){.server = s, .t = &t[i], .fd = -1};
    for (int n_open = n; ok;) {
        int n_running, n_left;
        ok = begin_due(jobs, n, n_at_once, multi, &n_open, e);
        if (!ok || n_open == 0)
            break;
        l->curl_multi_perform(multi, &n_running);
        for (CURLMsg *m; ok && (m = l->curl_multi_info_read(multi, &n_left));) {
            struct job *j = NULL;
            if (m->msg != CURLMSG_DONE)
                continue;
            CURLcode result = m->data.result;
            l->curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&j);
            ok = judge(j, result, multi, e);
        }
        ok = ok && !log_cancelled(s->log, e);
        if (ok && progress)
            progress_update(progress, (double)(first_bytes + bytes_done(jobs, n)), NULL);
        if (ok)
            l->curl_multi_poll(multi, NULL, 0, 50, NULL);
    }
    for (int i = 0; i < n; i++)
        job_close(&jobs[i], multi);
    if (multi)
        l->curl_multi_cleanup(multi);
    free(jobs);
    return ok;
}
