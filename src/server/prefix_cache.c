/* The prefix cache: a list of what is known, the last used first to stay. */
#include "server/prefix_cache.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "server/prefix_files.h"

#define WRITES_MAX 16 /* copies that wait to be written */

struct entry {
    struct entry *next;
    mk_snapshot *copy; /* NULL: in a file alone */
    struct prefix_file file;
    bool has_file, waits; /* waits: for its file, and is not freed before */
    const int32_t *tokens;
    size_t n;
    uint64_t bytes; /* of the copy */
};

struct prefix_cache {
    struct prefix_cache_options o;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* under lock; copies are freed by the scheduler's thread alone, which so may read them without it */
    struct entry *entries; /* the last used one first */
    uint64_t copy_bytes, file_bytes;
    int n_waiting;
    bool is_ending;
    /* the writer's */
    mk_session *session;
    pthread_t thread;
    bool has_thread;
};

/* ---- entries, with the lock held ---- */

static void entry_free(struct entry *e)
{
    mk_snapshot_free(e->copy);
    prefix_file_fini(&e->file);
    free(e);
}

static void unlink_entry(struct prefix_cache *c, struct entry *e, bool keeps_file)
{
    struct entry **at = &c->entries;
    while (*at != e)
        at = &(*at)->next;
    *at = e->next;
    c->copy_bytes -= e->copy ? e->bytes : 0;
    if (e->has_file)
        c->file_bytes -= e->file.bytes;
    if (e->has_file && !keeps_file)
        prefix_file_remove(&e->file);
    entry_free(e);
}

static void to_front(struct prefix_cache *c, struct entry *e)
{
    struct entry **at = &c->entries;
    while (*at != e)
        at = &(*at)->next;
    *at = e->next;
    e->next = c->entries;
    c->entries = e;
}

/* The last one used of those that may go; NULL: none. */
static struct entry *oldest(struct prefix_cache *c, bool of_files)
{
    struct entry *found = NULL;
    for (struct entry *e = c->entries; e; e = e->next)
        if (of_files ? e->has_file : e->copy && !e->waits)
            found = e;
    return found;
}

/* Copies beyond the limit go; their files stay. */
static void limit_copies(struct prefix_cache *c)
{
    struct entry *e;
    while (c->copy_bytes > c->o.memory_bytes && (e = oldest(c, false)) != NULL) {
        if (!e->has_file) {
            unlink_entry(c, e, false);
            continue;
        }
        c->copy_bytes -= e->bytes;
        mk_snapshot_free(e->copy);
        e->copy = NULL;
        e->tokens = e->file.tokens;
    }
}

static void limit_files(struct prefix_cache *c)
{
    struct entry *e;
    while (c->file_bytes > c->o.file_bytes && (e = oldest(c, true)) != NULL) {
        c->file_bytes -= e->file.bytes;
        prefix_file_remove(&e->file);
        e->has_file = false;
        if (!e->copy)
            unlink_entry(c, e, true);
    }
}

static bool begins_with(const int32_t *tokens, size_t n, const int32_t *begin, size_t n_begin)
{
    return n_begin <= n && memcmp(tokens, begin, n_begin * sizeof *tokens) == 0;
}

/* What serves ids best; *known: how many of them. */
static struct entry *find(const struct prefix_cache *c, const int32_t *ids, size_t n, size_t *known)
{
    struct entry *best = NULL;
    *known = 0;
    for (struct entry *e = c->entries; e; e = e->next) {
        size_t same = 0;
        while (same < n && same < e->n && e->tokens[same] == ids[same])
            same++;
        if (c->o.is_sequential && same < e->n)
            continue;
        /* a copy in memory before a file of as much */
        if (same > *known || (same == *known && best && !best->copy && e->copy && same > 0)) {
            *known = same;
            best = e;
        }
    }
    return best;
}

/* ---- the writer ---- */

static struct entry *next_to_write(struct prefix_cache *c)
{
    for (struct entry *e = c->entries; e; e = e->next)
        if (e->waits)
            return e;
    return NULL;
}

static void *write_files(void *context)
{
    struct prefix_cache *c = context;
    pthread_mutex_lock(&c->lock);
    for (;;) {
        struct entry *e = next_to_write(c);
        struct prefix_file file = {0};
        struct err error = {0};
        if (!e && c->is_ending)
            break;
        if (!e) {
            pthread_cond_wait(&c->changed, &c->lock);
            continue;
        }
        pthread_mutex_unlock(&c->lock);
        bool ok = mk_session_restore(c->session, e->copy, NULL) == MK_OK &&
                  prefix_file_write(&file, c->o.folder, c->o.owner, c->session, &error);
        if (!ok)
            log_warn(c->o.log, "%s; the state is not kept", error.msg);
        pthread_mutex_lock(&c->lock);
        e->waits = false;
        c->n_waiting--;
        e->has_file = ok;
        if (ok) {
            e->file = file;
            c->file_bytes += file.bytes;
        } else {
            prefix_file_fini(&file);
        }
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

static void take_file(void *context, struct prefix_file *f)
{
    struct prefix_cache *c = context;
    struct entry *e = xcalloc(1, sizeof *e), **at = &c->entries;
    e->file = *f;
    e->has_file = true;
    e->tokens = e->file.tokens;
    e->n = e->file.n_tokens;
    c->file_bytes += f->bytes;
    while (*at && (*at)->file.used > f->used)
        at = &(*at)->next;
    e->next = *at;
    *at = e;
}

static bool start_writer(struct prefix_cache *c, struct err *e)
{
    mk_error *error = NULL;
    if (!prefix_files_open(c->o.folder, e))
        return false;
    prefix_files_list(c->o.folder, c->o.owner, c->o.log, take_file, c);
    limit_files(c);
    if (mk_session_new(&c->session, c->o.package, &error) != MK_OK) {
        (void)err_set(e, ERR_NOMEM, "the cache's session: %s", mk_error_message(error));
        mk_error_free(error);
        return false;
    }
    int failed = pthread_create(&c->thread, NULL, write_files, c);
    errno = failed;
    c->has_thread = failed == 0;
    return c->has_thread || err_set_errno(e, "a thread");
}

/* ---- the scheduler's side ---- */

bool prefix_cache_new(struct prefix_cache **out, const struct prefix_cache_options *o, struct err *e)
{
    struct prefix_cache *c = xcalloc(1, sizeof *c);
    c->o = *o;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    bool ok = !o->folder || start_writer(c, e);
    *out = ok ? c : NULL;
    if (!ok)
        prefix_cache_free(c);
    return ok;
}

void prefix_cache_free(struct prefix_cache *c)
{
    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    c->is_ending = true;
    pthread_cond_signal(&c->changed);
    pthread_mutex_unlock(&c->lock);
    if (c->has_thread)
        pthread_join(c->thread, NULL);
    limit_files(c);
    while (c->entries)
        unlink_entry(c, c->entries, true);
    mk_session_free(c->session);
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->changed);
    free(c);
}

/* What begins the new tokens is of no more use where a part of a copy serves. */
static void drop_beginnings(struct prefix_cache *c, const struct entry *of)
{
    for (struct entry *e = c->entries, *next; e; e = next) {
        next = e->next;
        if (e != of && !e->waits && begins_with(of->tokens, of->n, e->tokens, e->n))
            unlink_entry(c, e, false);
    }
}

void prefix_cache_add(struct prefix_cache *c, const mk_session *s)
{
    size_t n, known;
    const int32_t *tokens = mk_session_tokens(s, &n);
    mk_snapshot *copy = NULL;
    pthread_mutex_lock(&c->lock);
    struct entry *same = find(c, tokens, n, &known);
    if (same && known == n)
        to_front(c, same);
    bool is_wanted = n > 0 && !(same && known == n) && (c->o.memory_bytes > 0 || c->has_thread);
    pthread_mutex_unlock(&c->lock);
    if (!is_wanted || mk_session_snapshot(s, &copy, NULL) != MK_OK)
        return;
    struct entry *e = xcalloc(1, sizeof *e);
    e->copy = copy;
    e->tokens = mk_snapshot_tokens(copy, &e->n);
    e->bytes = mk_snapshot_bytes(copy);
    pthread_mutex_lock(&c->lock);
    e->waits = c->has_thread && c->n_waiting < WRITES_MAX && e->bytes <= c->o.file_bytes;
    c->n_waiting += e->waits;
    e->next = c->entries;
    c->entries = e;
    c->copy_bytes += e->bytes;
    if (!c->o.is_sequential)
        drop_beginnings(c, e);
    limit_copies(c);
    limit_files(c);
    pthread_cond_signal(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

size_t prefix_cache_find(struct prefix_cache *c, const int32_t *ids, size_t n)
{
    size_t known;
    pthread_mutex_lock(&c->lock);
    (void)find(c, ids, n, &known);
    pthread_mutex_unlock(&c->lock);
    return known;
}

bool prefix_cache_restore(struct prefix_cache *c, const int32_t *ids, size_t n, mk_session *s)
{
    size_t known;
    mk_error *error = NULL;
    pthread_mutex_lock(&c->lock);
    struct entry *e = find(c, ids, n, &known);
    if (e)
        to_front(c, e);
    if (e && e->has_file)
        prefix_file_touch(&e->file);
    pthread_mutex_unlock(&c->lock);
    if (!e)
        return false;
    if (e->copy)
        return mk_session_restore(s, e->copy, NULL) == MK_OK;
    if (mk_session_load(s, e->file.state, &error) == MK_OK)
        return true;
    log_warn(c->o.log, "%s; the cached state is dropped", mk_error_message(error));
    mk_error_free(error);
    pthread_mutex_lock(&c->lock);
    unlink_entry(c, e, false);
    pthread_mutex_unlock(&c->lock);
    return false;
}

uint64_t prefix_cache_bytes(struct prefix_cache *c)
{
    pthread_mutex_lock(&c->lock);
    uint64_t bytes = c->copy_bytes;
    pthread_mutex_unlock(&c->lock);
    return bytes;
}
