/* Jobs and their events. */
#include "server/job.h"
#include <math.h>
#include <stdlib.h>
#include <time.h>
#include "base/log.h"

void event_free(struct event *e)
{
    if (!e)
        return;
    for (size_t i = 0; i < e->n_tokens; i++) {
        free(e->tokens[i].bytes);
        free(e->tokens[i].top);
    }
    free(e->tokens);
    free(e->text);
    free(e->name);
    free(e->stop);
    free(e);
}

void job_options_free(struct job_options *o)
{
    free(o->prompt);
    free(o->sampling);
    for (size_t i = 0; i < o->n_stops; i++)
        free(o->stops[i]);
    free(o->stops);
    free(o->bias);
    free(o->prompt_text);
    free(o->tools);
    grammar_free(o->grammar);
    *o = (struct job_options){0};
}

struct job *job_new(const struct job_options *o)
{
    struct job *j = xcalloc(1, sizeof *j);
    pthread_condattr_t attributes;
    j->o = *o;
    j->n_references = 1;
    j->last = &j->first;
    j->submitted = clock_seconds();
    pthread_mutex_init(&j->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&j->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    return j;
}

struct job *job_keep(struct job *j)
{
    pthread_mutex_lock(&j->lock);
    j->n_references++;
    pthread_mutex_unlock(&j->lock);
    return j;
}

void job_release(struct job *j)
{
    if (!j)
        return;
    pthread_mutex_lock(&j->lock);
    bool is_last = --j->n_references == 0;
    pthread_mutex_unlock(&j->lock);
    if (!is_last)
        return;
    for (struct event *e = j->first, *next; e; e = next) {
        next = e->next;
        event_free(e);
    }
    mk_snapshot_free(j->snapshot);
    job_options_free(&j->o);
    pthread_mutex_destroy(&j->lock);
    pthread_cond_destroy(&j->changed);
    free(j);
}

void job_put(struct job *j, struct event *e)
{
    pthread_mutex_lock(&j->lock);
    *j->last = e;
    j->last = &e->next;
    pthread_cond_signal(&j->changed);
    pthread_mutex_unlock(&j->lock);
}

struct event *job_next(struct job *j, double seconds)
{
    struct timespec until;
    struct event *e = NULL;
    clock_gettime(CLOCK_MONOTONIC, &until);
    double whole = floor(seconds);
    until.tv_sec += (time_t)whole;
    until.tv_nsec += (long)((seconds - whole) * 1e9);
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&j->lock);
    int failed = 0;
    while (!j->first && !atomic_load(&j->is_cancelled) && !failed)
        failed = pthread_cond_timedwait(&j->changed, &j->lock, &until);
    if (j->first && !atomic_load(&j->is_cancelled)) {
        e = j->first;
        j->first = e->next;
        if (!j->first)
            j->last = &j->first;
        e->next = NULL;
    }
    pthread_mutex_unlock(&j->lock);
    return e;
}

void job_cancel(struct job *j)
{
    pthread_mutex_lock(&j->lock);
    atomic_store(&j->is_cancelled, true);
    pthread_cond_broadcast(&j->changed);
    pthread_mutex_unlock(&j->lock);
}
