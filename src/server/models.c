/* Models by name. */
#include "server/models.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct model {
    const char *name, *path;
    mk_package *package; /* NULL: not open */
    struct scheduler *scheduler;
    char fingerprint[64];
    long long opened;
    double used;
    int n_users;
    bool is_opening, is_recommended;
};

struct models {
    const struct server_options *o;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct model *list; /* [n_models] */
    struct err error;   /* why the last one that could not be opened could not */
    bool is_stopping;
};

struct models *models_new(const struct server_options *o)
{
    struct models *m = xcalloc(1, sizeof *m);
    m->o = o;
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->changed, NULL);
    m->list = xcalloc((size_t)o->n_models, sizeof *m->list);
    for (int i = 0; i < o->n_models; i++) {
        m->list[i].name = o->models[i].name;
        m->list[i].path = o->models[i].path;
    }
    return m;
}

static void close_model(struct model *model, double grace_seconds)
{
    scheduler_stop(model->scheduler, grace_seconds);
    mk_package_close(model->package);
    model->scheduler = NULL;
    model->package = NULL;
}

void models_stop(struct models *m, double grace_seconds)
{
    pthread_mutex_lock(&m->lock);
    m->is_stopping = true;
    while (m->list[0].is_opening)
        pthread_cond_wait(&m->changed, &m->lock);
    pthread_mutex_unlock(&m->lock);
    for (int i = 0; i < m->o->n_models; i++)
        scheduler_drain(m->list[i].scheduler, grace_seconds);
}

void models_free(struct models *m)
{
    for (int i = 0; i < m->o->n_models; i++)
        close_model(&m->list[i], 0);
    pthread_mutex_destroy(&m->lock);
    pthread_cond_destroy(&m->changed);
    free(m->list);
    free(m);
}

/* FNV-1a over what the package says of itself: it changes with the package. */
static uint32_t hash_text(const char *text)
{
    uint32_t hash = 2166136261u;
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 16777619u;
    return hash;
}

static enum err_code code_of(mk_status status)
{
    switch (status) {
    case MK_USAGE:
        return ERR_USAGE;
    case MK_UNSUPPORTED:
        return ERR_UNSUPPORTED;
    case MK_FORMAT:
        return ERR_FORMAT;
    case MK_OUTSIDE:
        return ERR_MISMATCH;
    case MK_LIMIT:
        return ERR_LIMIT;
    default:
        return ERR_FAILED;
    }
}

static bool open_model(struct models *m, struct model *model, struct problem *p)
{
    const mk_package_options options = {.size = sizeof options,
                                        .precision = m->o->precision,
                                        .backend = m->o->backend,
                                        .compute_units = m->o->compute_units};
    struct err e = {0};
    mk_error *error = NULL;
    if (mk_package_open(&model->package, m->o->library, model->path, &options, &error) != MK_OK) {
        err_set(&m->error, code_of(mk_error_status(error)), "%s", mk_error_message(error));
        mk_error_free(error);
        return problem_set(p, 500, "server_error", NULL, "model", "%s: %s", model->name, m->error.msg);
    }
    const char *info = mk_package_info(model->package);
    snprintf(model->fingerprint, sizeof model->fingerprint, "milkit-%s-%08x", mk_version_string(),
             hash_text(info));
    const struct scheduler_options o = {.package = model->package,
                                        .n_slots = m->o->n_slots,
                                        .n_waiting = m->o->n_waiting,
                                        .cache = {.memory_bytes = m->o->cache_memory_bytes,
                                                  .folder = m->o->cache_folder,
                                                  .file_bytes = m->o->cache_file_bytes,
                                                  .owner = model->fingerprint,
                                                  .log = m->o->log}};
    if (!scheduler_start(&model->scheduler, &o, &e)) {
        mk_package_close(model->package);
        model->package = NULL;
        m->error = e;
        return problem_set(p, 500, "server_error", NULL, "model", "%s: %s", model->name, e.msg);
    }
    model->is_recommended = strstr(info, "\"recommended_sampling\": ") != NULL;
    model->opened = (long long)time(NULL);
    return true;
}

/* Closes the model that nobody uses and that was used last longest ago, if too many are open. With the lock held. */
static bool make_room(struct models *m)
{
    struct model *oldest = NULL;
    int n_open = 0;
    for (int i = 0; i < m->o->n_models; i++) {
        struct model *model = &m->list[i];
        n_open += model->package || model->is_opening;
        if (model->package && model->n_users == 0 && !model->is_opening &&
            (!oldest || model->used < oldest->used))
            oldest = model;
    }
    if (n_open < m->o->n_open_max)
        return true;
    if (oldest)
        close_model(oldest, 0);
    return oldest != NULL;
}

int models_find(const struct models *m, const char *name)
{
    size_t n = strlen(name);
    if (n > 7 && strcmp(name + n - 7, ":latest") == 0)
        n -= 7;
    for (int i = 0; i < m->o->n_models; i++)
        if (strlen(m->list[i].name) == n && memcmp(m->list[i].name, name, n) == 0)
            return i;
    return -1;
}

bool models_take(struct models *m, const char *name, struct model **out, struct problem *p)
{
    int i = name ? models_find(m, name) : 0;
    bool ok = true;
    *out = NULL;
    if (i < 0 && m->o->is_strict_model)
        return problem_model(p, name);
    struct model *model = &m->list[i < 0 ? 0 : i];
    pthread_mutex_lock(&m->lock);
    while (model->is_opening)
        pthread_cond_wait(&m->changed, &m->lock);
    if (m->is_stopping) {
        ok = problem_set(p, 503, "unavailable_error", "shutting_down", NULL, "the server is shutting down");
        p->retry_after_s = 5;
    } else if (!model->package && !make_room(m)) {
        ok = problem_set(p, 503, "unavailable_error", "models_busy", "model",
                         "%d models are open and at work, which is as many as may be", m->o->n_open_max);
        p->retry_after_s = 10;
    } else if (!model->package) {
        model->is_opening = true;
        pthread_mutex_unlock(&m->lock);
        ok = open_model(m, model, p);
        pthread_mutex_lock(&m->lock);
        model->is_opening = false;
        pthread_cond_broadcast(&m->changed);
    }
    if (ok) {
        model->n_users++;
        *out = model;
    }
    pthread_mutex_unlock(&m->lock);
    return ok;
}

struct model *models_take_open(struct models *m, int i)
{
    struct model *model = &m->list[i];
    pthread_mutex_lock(&m->lock);
    bool is_open = model->package && !model->is_opening;
    model->n_users += is_open;
    pthread_mutex_unlock(&m->lock);
    return is_open ? model : NULL;
}

const struct err *models_error(const struct models *m)
{
    return &m->error;
}

void models_give_back(struct models *m, struct model *model)
{
    if (!model)
        return;
    pthread_mutex_lock(&m->lock);
    model->n_users--;
    model->used = clock_seconds();
    pthread_mutex_unlock(&m->lock);
}

int models_count(const struct models *m)
{
    return m->o->n_models;
}

const char *models_name(const struct models *m, int i)
{
    return m->list[i].name;
}

const char *models_path(const struct models *m, int i)
{
    return m->list[i].path;
}

double models_stalled_seconds(struct models *m)
{
    double longest = 0;
    for (int i = 0; i < m->o->n_models; i++) {
        struct model *model = models_take_open(m, i);
        double seconds = model ? scheduler_stalled_seconds(model->scheduler) : 0;
        longest = seconds > longest ? seconds : longest;
        models_give_back(m, model);
    }
    return longest;
}

const char *model_name(const struct model *model)
{
    return model->name;
}

struct scheduler *model_scheduler(struct model *model)
{
    return model->scheduler;
}

const mk_package *model_package(const struct model *model)
{
    return model->package;
}

const char *model_fingerprint(const struct model *model)
{
    return model->fingerprint;
}

long long model_opened(const struct model *model)
{
    return model->opened;
}

bool model_is_recommended(const struct model *model)
{
    return model->is_recommended;
}
