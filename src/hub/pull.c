/* A download: the list of files, what of it is missing, its transfers, and the snapshot that appears when all of it is there. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>
#include "hub/hub_internal.h"

#define DEFAULT_ENDPOINT "https://huggingface.co"
#define TOKEN_BYTES_MAX 4096
#define DEFAULT_TRANSFERS 4
#define DEFAULT_STALL_S 30
/* Room that a file system must have beyond the files. */
#define SPARE_BYTES ((int64_t)16 << 20)

struct pull {
    const struct hub_pull_options *o;
    struct hub_name name;
    char *label; /* "org/name" */
    struct hub_server server;
    struct hub_listing listing;
    int *locks; /* [listing.n_files] descriptors, -1: none */
};

/* ---- the server ---- */

static bool is_token(const char *text)
{
    for (const char *p = text; *p; p++)
        if (*p <= ' ' || *p > '~')
            return false;
    return text[0] != '\0';
}

/* The token of HF_TOKEN, else of the file that a login has left, heap; NULL: none. */
static char *find_token(struct log *log)
{
    const char *v = hub_variable("HF_TOKEN"), *place = hub_variable("HF_TOKEN_PATH"),
               *home = hub_variable("HF_HOME"), *user = hub_variable("HOME");
    char *text = NULL, *path = NULL;
    size_t bytes;
    if (v)
        text = xstrdup(v);
    else if (place)
        path = xstrdup(place);
    else if (home)
        path = path_join(home, "token");
    else if (user)
        path = path_join(user, ".cache/huggingface/token");
    if (path && path_exists(path) && file_read(&text, &bytes, path, TOKEN_BYTES_MAX, NULL))
        text[strcspn(text, " \t\r\n")] = '\0';
    free(path);
    if (text && !is_token(text)) {
        if (text[0])
            log_warn(log, "the token (HF_TOKEN) holds characters that no token has; it is not used");
        free(text);
        text = NULL;
    }
    return text;
}

static bool is_loopback(const char *url)
{
    static const char *const hosts[] = {"http://127.0.0.1", "http://localhost", "http://[::1]"};
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
        size_t n = strlen(hosts[i]);
        if (strncasecmp(url, hosts[i], n) == 0 && (!url[n] || strchr(":/", url[n])))
            return true;
    }
    return false;
}

static bool server_open(struct hub_server *s, struct log *log, struct err *e)
{
    const char *endpoint = hub_variable("HF_ENDPOINT"), *stall = hub_variable("HF_HUB_DOWNLOAD_TIMEOUT");
    if (hub_is_offline())
        return err_set(e, ERR_IO, "HF_HUB_OFFLINE is set: nothing is downloaded");
    s->log = log;
    s->endpoint_text = xstrdup(endpoint ? endpoint : DEFAULT_ENDPOINT);
    for (size_t n = strlen(s->endpoint_text); n > 0 && s->endpoint_text[n - 1] == '/';)
        s->endpoint_text[--n] = '\0';
    s->endpoint = s->endpoint_text;
    bool is_safe = strncasecmp(s->endpoint, "https://", 8) == 0;
    if (!is_safe && strncasecmp(s->endpoint, "http://", 7) != 0)
        return err_set(e, ERR_USAGE, "HF_ENDPOINT: expected an address of http or https, found %.200s",
                       s->endpoint);
    s->token_text = find_token(log);
    s->token = s->token_text;
    if (s->token && !is_safe && !is_loopback(s->endpoint)) {
        log_warn(log, "the token is not sent to %.200s, an address without https", s->endpoint);
        s->token = NULL;
    }
    s->stall_s = stall ? strtol(stall, NULL, 10) : DEFAULT_STALL_S;
    if (s->stall_s < 1)
        s->stall_s = DEFAULT_STALL_S;
    return hub_libraries_load(&s->libraries, e);
}

static void server_close(struct hub_server *s)
{
    if (s->token_text)
        explicit_bzero(s->token_text, strlen(s->token_text));
    free(s->token_text);
    free(s->endpoint_text);
}

/* Appends text as a part of an address: letters, digits and "-._~" stay, and what `also` holds. */
static void put_escaped(struct buf *b, const char *text, const char *also)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        if (strchr(plain, *p) || strchr(also, *p))
            buf_putc(b, (char)*p);
        else
            buf_printf(b, "%%%02X", *p);
    }
}

static char *make_url(const struct pull *p, const char *prefix, const char *verb, const char *revision,
                      const char *file, const char *query)
{
    struct buf b;
    buf_init(&b, 1 << 16);
    buf_printf(&b, "%s%s/%s/%s/", p->server.endpoint, prefix, p->label, verb);
    put_escaped(&b, revision, "");
    if (file) {
        buf_putc(&b, '/');
        put_escaped(&b, file, "/");
    }
    buf_puts(&b, query);
    return buf_take(&b, NULL);
}

/* ---- files ---- */

static char *blob_path(const struct pull *p, const struct hub_file *f)
{
    return xasprintf("%s/blobs/%s", p->name.folder, f->digest);
}

static bool has_blob(const struct pull *p, const struct hub_file *f)
{
    char *path = blob_path(p, f);
    bool is_there = file_bytes(path) == f->bytes;
    free(path);
    return is_there;
}

/* A file that both this and other programs lock while they write the blob of this digest. */
static bool lock_blob(struct pull *p, int i, struct err *e)
{
    char *cache = path_folder(p->name.folder);
    char *folder = xasprintf("%s/.locks/models--%s--%s", cache, p->name.organization, p->name.model);
    char *path = xasprintf("%s/%s.lock", folder, p->listing.files[i].digest);
    bool ok = folder_make(folder, e), has_said = false;
    int fd = ok ? open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666) : -1;
    if (ok && fd < 0)
        ok = err_set_errno(e, "%s: can't open", path);
    while (ok && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR) {
            ok = err_set_errno(e, "%s: can't lock", path);
        } else if (log_cancelled(p->o->log, e)) {
            ok = false;
        } else {
            if (!has_said)
                log_info(p->o->log, "another program downloads %s; waiting for it", p->listing.files[i].path);
            has_said = true;
            nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
        }
    }
    p->locks[i] = fd;
    free(path);
    free(folder);
    free(cache);
    return ok;
}

/* Downloads the wanted files that are missing, as blobs. */
static bool fetch_wanted(struct pull *p, bool shows_progress, struct err *e)
{
    const struct hub_listing *l = &p->listing;
    struct hub_transfer *t = xcalloc((size_t)l->n_files + 1, sizeof *t);
    const struct hub_file **files = xcalloc((size_t)l->n_files + 1, sizeof *files);
    int n = 0;
    int64_t bytes_there = 0, bytes = 0;
    char *blobs = path_join(p->name.folder, "blobs");
    bool ok = folder_make(blobs, e);
    for (int i = 0; ok && i < l->n_files; i++) {
        const struct hub_file *f = &l->files[i];
        if (!f->is_wanted)
            continue;
        bytes += f->bytes;
        bool is_there = has_blob(p, f);
        if (!is_there && p->locks[i] < 0) {
            ok = lock_blob(p, i, e);
            is_there = ok && has_blob(p, f); /* by whoever held the lock */
        }
        for (int k = 0; k < n && !is_there; k++) /* two names of the same bytes */
            is_there = strcmp(files[k]->digest, f->digest) == 0;
        if (is_there)
            bytes_there += f->bytes;
        if (!ok || is_there)
            continue;
        char *url = make_url(p, "", "resolve", l->commit, f->path, ""),
             *part = xasprintf("%s/%s.incomplete", blobs, f->digest);
        files[n] = f;
        t[n++] = (struct hub_transfer){.url = url,
                                       .what = f->path,
                                       .part = part,
                                       .digest = f->digest,
                                       .bytes = f->bytes,
                                       .is_large = f->is_large};
    }
    struct progress progress;
    char label[sizeof progress.label];
    snprintf(label, sizeof label, "%s", p->label);
    if (shows_progress)
        progress_begin(&progress, p->o->log, label, "MB", 1e-6, (double)bytes);
    ok = ok &&
         hub_transfer_all(&p->server, t, n, p->o->n_transfers > 0 ? p->o->n_transfers : DEFAULT_TRANSFERS,
                          shows_progress ? &progress : NULL, bytes_there, e);
    if (shows_progress)
        progress_end(&progress);
    for (int i = 0; i < n; i++) {
        char *blob = blob_path(p, files[i]);
        if (ok && rename(t[i].part, blob) != 0)
            ok = err_set_errno(e, "%s: can't rename", blob);
        free(blob);
        free(t[i].url);
        free((char *)t[i].part);
    }
    free(files);
    free(t);
    free(blobs);
    return ok;
}

/* Makes path a link to the blob, whatever was there. */
static bool link_file(const char *path, const char *target, struct err *e)
{
    char old[PATH_MAX];
    ssize_t n = readlink(path, old, sizeof old);
    if (n == (ssize_t)strlen(target) && memcmp(old, target, (size_t)n) == 0)
        return true;
    char *folder = path_folder(path), *fresh = xasprintf("%s.%ld.tmp", path, (long)getpid());
    bool ok = folder_make(folder, e);
    if (ok && symlink(target, fresh) != 0)
        ok = err_set_errno(e, "%s: can't make a link", fresh);
    if (ok && rename(fresh, path) != 0) {
        ok = err_set_errno(e, "%s: can't make a link", path);
        unlink(fresh);
    }
    free(fresh);
    free(folder);
    return ok;
}

/* The snapshot and the revision's ref, of blobs that are all there. */
static bool show_snapshot(struct pull *p, char **snapshot, struct err *e)
{
    const struct hub_listing *l = &p->listing;
    char *folder = xasprintf("%s/snapshots/%s", p->name.folder, l->commit);
    bool ok = folder_make(folder, e);
    for (int i = 0; ok && i < l->n_files; i++) {
        const struct hub_file *f = &l->files[i];
        if (!f->is_wanted)
            continue;
        struct buf target;
        buf_init(&target, 8192);
        buf_puts(&target, "../..");
        for (const char *c = f->path; (c = strchr(c, '/')); c++)
            buf_puts(&target, "/..");
        buf_printf(&target, "/blobs/%s", f->digest);
        char *path = path_join(folder, f->path);
        ok = link_file(path, target.p, e);
        free(path);
        buf_fini(&target);
    }
    if (ok && strcmp(p->name.revision, l->commit) != 0) {
        char *ref = xasprintf("%s/refs/%s", p->name.folder, p->name.revision), *refs = path_folder(ref);
        ok = folder_make(refs, e) && file_write(ref, l->commit, strlen(l->commit), e);
        free(refs);
        free(ref);
    }
    *snapshot = ok ? folder : NULL;
    if (!ok)
        free(folder);
    return ok;
}

/* ---- choosing and agreeing ---- */

static bool read_listing(struct pull *p, struct err *e)
{
    struct hub_transfer t = {.what = p->label, .bytes = -1};
    t.url = make_url(p, "/api/models", "revision", p->name.revision, NULL, "?blobs=true");
    bool ok = hub_transfer_all(&p->server, &t, 1, 1, NULL, 0, e) &&
              hub_listing_read(&p->listing, t.text.p ? t.text.p : "", t.text.n, p->label, e);
    buf_fini(&t.text);
    free(t.url);
    return ok;
}

static bool choose(struct pull *p, struct err *e)
{
    struct hub_listing *l = &p->listing;
    struct hub_file *index;
    char *text = NULL;
    size_t bytes = 0;
    bool ok = true;
    if (p->o->files)
        return hub_want_glob(l, p->o->files, p->label, e);
    if (p->name.tag)
        return hub_want_tagged(l, p->name.tag, p->label, e);
    hub_want_settings(l, &index);
    if (index) {
        char *path = blob_path(p, index);
        for (int i = 0; i < l->n_files; i++)
            l->files[i].is_wanted = &l->files[i] == index;
        ok = fetch_wanted(p, false, e) && file_read(&text, &bytes, path, HUB_INDEX_BYTES_MAX, e);
        hub_want_settings(l, &index);
        free(path);
    }
    ok = ok && hub_want_weights(l, text, bytes, p->label, e);
    free(text);
    return ok;
}

static bool agree(struct pull *p, struct err *e)
{
    struct hub_plan plan = {.name = p->label, .commit = p->listing.commit, .cache = p->name.folder};
    int64_t on_disk = 0;
    for (int i = 0; i < p->listing.n_files; i++) {
        const struct hub_file *f = &p->listing.files[i];
        if (!f->is_wanted)
            continue;
        plan.n_files++;
        plan.bytes += f->bytes;
        if (has_blob(p, f))
            continue;
        char *part = xasprintf("%s/blobs/%s.incomplete", p->name.folder, f->digest);
        int64_t there = file_bytes(part);
        on_disk += there > 0 ? there : 0;
        plan.n_missing++;
        plan.missing_bytes += f->bytes;
        free(part);
    }
    int64_t free_bytes = disk_free_bytes(p->name.folder), needed = plan.missing_bytes - on_disk;
    if (plan.n_missing == 0)
        return true;
    if (free_bytes >= 0 && needed > 0 && free_bytes < needed + SPARE_BYTES)
        return err_set(e, ERR_IO, "%s: %.1f GB are missing, %s has room for %.1f GB", p->label,
                       (double)needed / 1e9, p->name.folder, (double)free_bytes / 1e9);
    if (p->o->confirm && !p->o->confirm(p->o->context, &plan))
        return err_set(e, ERR_CANCELLED, "%s: not downloaded", p->label);
    log_info(p->o->log, "%s: downloading %.1f MB in %d files", p->label, (double)plan.missing_bytes / 1e6,
             plan.n_missing);
    return true;
}

static bool pull_all(struct pull *p, char **snapshot, struct err *e)
{
    if (!server_open(&p->server, p->o->log, e) || !read_listing(p, e))
        return false;
    p->locks = xcalloc((size_t)p->listing.n_files + 1, sizeof *p->locks);
    for (int i = 0; i < p->listing.n_files; i++)
        p->locks[i] = -1;
    return choose(p, e) && agree(p, e) && fetch_wanted(p, true, e) && show_snapshot(p, snapshot, e);
}

/* What no message may hold, however it came into it. */
static void hide_token(struct err *e, const char *token)
{
    char *at;
    if (e && token && strlen(token) >= 4)
        while ((at = strstr(e->msg, token)))
            memset(at, '*', strlen(token));
}

bool hub_pull(char **out, const char *name, const struct hub_pull_options *o, struct err *e)
{
    struct pull p = {.o = o};
    char *snapshot = NULL;
    *out = NULL;
    if (!hub_name_parse(&p.name, name))
        return err_set(e, ERR_USAGE,
                       "expected the name of a model, org/name or org/name@revision, found %.200s", name);
    p.label = xasprintf("%s/%s", p.name.organization, p.name.model);
    if (o->only_if_incomplete) {
        snapshot = hub_snapshot(&p.name);
        if (snapshot && !hub_is_complete(snapshot, p.name.tag)) {
            free(snapshot);
            snapshot = NULL;
        }
    }
    bool ok = snapshot != NULL || pull_all(&p, &snapshot, e);
    if (ok) {
        *out = hub_entry(snapshot, p.name.tag);
        ok = *out != NULL || err_set(e, ERR_IO, "%s: the download of %s left nothing", snapshot, name);
    } else {
        hide_token(e, p.server.token_text);
    }
    for (int i = 0; p.locks && i < p.listing.n_files; i++)
        if (p.locks[i] >= 0)
            close(p.locks[i]);
    free(p.locks);
    free(snapshot);
    hub_listing_free(&p.listing);
    server_close(&p.server);
    free(p.label);
    hub_name_free(&p.name);
    return ok;
}
