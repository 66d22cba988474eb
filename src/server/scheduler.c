/* The scheduler's thread: jobs to slots, prompts in pieces, steps for all. */
#include "server/scheduler.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "server/generation.h"

struct slot {
    mk_session *session;
    struct job *job; /* NULL: free */
    int choice;
    struct generation *generation;
    bool is_prefilling, has_logits;
    int32_t next; /* the token to be fed; -1: none */
    size_t n_fed; /* of the prompt */
    size_t n_reused;
    size_t n_shared; /* tokens of the prompt that another prompt has, too: worth a copy; 0: none */
    double begun, used, wait_seconds;
    long long task;
};

struct scheduler {
    struct scheduler_options o;
    bool is_sequential;
    size_t n_context, n_batch;
    struct prefix_cache *cache; /* the thread's */
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* under lock */
    struct job *first, **last; /* those that have choices that did not begin */
    int n_waiting;
    bool is_stopping;
    double deadline; /* of the grace */
    struct scheduler_totals totals;
    struct slot_state *states; /* [n_slots] */
    struct vocabulary_bytes *vocabulary;
    bool has_vocabulary;
    struct grammar_vocabulary *sorted; /* NULL: not made yet */
    double last_step;                  /* 0: idle */
    struct slot *slots;                /* [n_slots]; the thread's, but for `job`, which changes under lock */
    /* the thread's */
    mk_session **sessions; /* [n_slots] */
    int32_t *ids;
    mk_status *statuses;
    struct slot **members;
    int turn; /* of prompts */
    long long n_tasks;
};

/* ---- jobs to slots ---- */

static size_t common_prefix(const struct slot *slot, const struct job *j, size_t *n_tokens)
{
    size_t same = 0;
    const int32_t *tokens = mk_session_tokens(slot->session, n_tokens);
    while (same < *n_tokens && same < j->o.n_prompt && tokens[same] == j->o.prompt[same])
        same++;
    return same;
}

/* The free slot that knows most of the prompt; of equals the one that was used last longest ago. */
static struct slot *choose_slot(struct scheduler *s, const struct job *j)
{
    struct slot *best = NULL;
    size_t best_same = 0, n;
    for (int i = 0; i < s->o.n_slots; i++) {
        struct slot *slot = &s->slots[i];
        if (slot->job)
            continue;
        size_t same = common_prefix(slot, j, &n);
        if (!best || same > best_same || (same == best_same && slot->used < best->used)) {
            best = slot;
            best_same = same;
        }
    }
    return best;
}

/* What the slot holds and gives up for the job is kept. */
static void keep_held(struct scheduler *s, const struct slot *slot)
{
    size_t n, same = common_prefix(slot, slot->job, &n);
    bool is_lost = s->is_sequential ? same < n : n - same >= s->n_batch;
    if (n >= s->n_batch && is_lost)
        prefix_cache_add(s->cache, slot->session);
}

/* Another slot, or the cache, may know more of the prompt than the `known` tokens that the slot has: that is copied. */
static void borrow_prefix(struct scheduler *s, struct slot *slot, size_t known)
{
    struct job *j = slot->job;
    struct slot *from = NULL;
    size_t n, cached = prefix_cache_find(s->cache, j->o.prompt, j->o.n_prompt), best = known + s->n_batch - 1;
    mk_snapshot *copy = NULL;
    slot->n_shared = 0;
    for (int i = 0; i < s->o.n_slots; i++) {
        size_t same = common_prefix(&s->slots[i], j, &n);
        if (&s->slots[i] == slot)
            continue;
        if (s->is_sequential && same > slot->n_shared)
            slot->n_shared = same;
        if (same > best && (!s->is_sequential || same == n)) {
            best = same;
            from = &s->slots[i];
        }
    }
    if (cached > best) {
        (void)prefix_cache_restore(s->cache, j->o.prompt, j->o.n_prompt, slot->session);
    } else if (from) {
        if (mk_session_snapshot(from->session, &copy, NULL) == MK_OK)
            (void)mk_session_restore(slot->session, copy, NULL);
        mk_snapshot_free(copy);
    }
}

/* Makes the slot's context a beginning of the prompt, as long as one is known. */
static bool begin_context(struct scheduler *s, struct slot *slot, mk_error **error)
{
    const struct job_options *o = &slot->job->o;
    size_t held, same = common_prefix(slot, slot->job, &held);
    keep_held(s, slot);
    if (slot->choice > 0 && slot->job->snapshot)
        (void)mk_session_restore(slot->session, slot->job->snapshot, NULL);
    if (mk_session_rewind(slot->session, o->prompt, o->n_prompt, &slot->n_fed, error) != MK_OK)
        return false;
    if (slot->n_fed < o->n_prompt) {
        borrow_prefix(s, slot, slot->n_fed);
        if (mk_session_rewind(slot->session, o->prompt, o->n_prompt, &slot->n_fed, error) != MK_OK)
            return false;
    }
    /* where prompts part: what can't be cut back has to be copied there */
    if (s->is_sequential && same > slot->n_shared)
        slot->n_shared = same;
    slot->n_shared -= slot->n_shared % s->n_batch;
    if (slot->n_shared <= slot->n_fed)
        slot->n_shared = 0;
    return true;
}

static void release_slot(struct scheduler *s, struct slot *slot)
{
    struct job *j = slot->job;
    generation_free(slot->generation);
    slot->generation = NULL;
    slot->is_prefilling = slot->has_logits = false;
    slot->used = clock_seconds();
    pthread_mutex_lock(&s->lock);
    slot->job = NULL;
    s->states[slot - s->slots].is_processing = false;
    s->totals.n_processing--;
    j->n_open--;
    pthread_mutex_unlock(&s->lock);
    job_release(j);
}

static void fail_job(struct job *j, const struct problem *p)
{
    struct event *e = xcalloc(1, sizeof *e);
    e->kind = EVENT_FAILED;
    e->problem = *p;
    job_put(j, e);
}

static void note_state(struct scheduler *s, const struct slot *slot)
{
    size_t n_tokens;
    (void)mk_session_tokens(slot->session, &n_tokens);
    const struct job *j = slot->job;
    long long n_done = slot->generation ? generation_count(slot->generation) : 0;
    pthread_mutex_lock(&s->lock);
    s->states[slot - s->slots] =
        (struct slot_state){.is_processing = true,
                            .task = slot->task,
                            .n_prompt = (long long)j->o.n_prompt,
                            .n_prompt_done = (long long)slot->n_fed,
                            .n_reused = (long long)slot->n_reused,
                            .n_generated = n_done,
                            .n_context = (long long)n_tokens,
                            .n_left = j->o.max_tokens < 0 ? -1 : j->o.max_tokens - n_done};
    if ((long long)n_tokens > s->totals.n_context_most)
        s->totals.n_context_most = (long long)n_tokens;
    pthread_mutex_unlock(&s->lock);
}

/* The session has the whole prompt, and its logits. */
static void finish_prompt(struct scheduler *s, struct slot *slot)
{
    struct job *j = slot->job;
    double seconds = clock_seconds() - slot->begun;
    slot->is_prefilling = false;
    slot->has_logits = true;
    slot->next = -1;
    /* Nothing is left to compute, but a recurrent package remembers the place. */
    if (s->is_sequential && slot->choice == 0) {
        (void)mk_session_sync(slot->session, j->o.prompt, j->o.n_prompt, NULL, NULL, NULL);
        if (j->o.n_prompt >= s->n_batch)
            prefix_cache_add(s->cache, slot->session);
    }
    if (j->o.n_choices > 1 && slot->choice == 0)
        (void)mk_session_snapshot(slot->session, &j->snapshot, NULL);
    pthread_mutex_lock(&s->lock);
    j->is_prefilled = true;
    s->totals.n_prompt += (long long)(j->o.n_prompt - slot->n_reused);
    s->totals.n_reused += (long long)slot->n_reused;
    s->totals.prompt_seconds += seconds;
    pthread_mutex_unlock(&s->lock);
    generation_begin(slot->generation, slot->n_reused, seconds, slot->wait_seconds);
}

static void begin_slot(struct scheduler *s, struct slot *slot)
{
    struct job *j = slot->job;
    mk_error *error = NULL;
    slot->begun = clock_seconds();
    slot->wait_seconds = slot->begun - j->submitted;
    slot->task = ++s->n_tasks;
    slot->is_prefilling = true;
    slot->has_logits = false;
    slot->n_fed = slot->n_reused = 0;
    slot->next = -1;
    slot->generation = generation_new(j, slot->choice, s->o.package,
                                      j->o.n_top >= 0 || j->o.grammar ? scheduler_vocabulary(s) : NULL,
                                      j->o.grammar ? scheduler_grammar_vocabulary(s) : NULL);
    if (!slot->generation) {
        release_slot(s, slot);
        return;
    }
    if (!begin_context(s, slot, &error)) {
        generation_fail(slot->generation, error);
        release_slot(s, slot);
        return;
    }
    slot->n_reused = slot->n_fed;
    note_state(s, slot);
    if (slot->n_fed == j->o.n_prompt)
        finish_prompt(s, slot);
}

/* Gives waiting choices to free slots. With the lock held; returns how many began. */
static int admit(struct scheduler *s, struct slot **begun)
{
    int n = 0;
    for (struct job **at = &s->first; *at;) {
        struct job *j = *at;
        bool is_gone = atomic_load(&j->is_cancelled);
        while (!is_gone && j->n_started < j->o.n_choices && (j->n_started == 0 || j->is_prefilled)) {
            struct slot *slot = choose_slot(s, j);
            if (!slot)
                break;
            slot->job = job_keep(j);
            slot->choice = j->n_started++;
            s->totals.n_processing++;
            begun[n++] = slot;
        }
        if (j->n_started == 1 && !j->is_prefilled && j->n_open < j->o.n_choices)
            is_gone = true; /* its first choice failed */
        if (is_gone || j->n_started == j->o.n_choices) {
            *at = j->next;
            if (!*at)
                s->last = at;
            s->n_waiting--;
            job_release(j);
        } else {
            at = &j->next;
        }
    }
    return n;
}

/* ---- rounds ---- */

static void fail_slot(struct scheduler *s, struct slot *slot, mk_error *error)
{
    if (mk_error_status(error) == MK_CANCELLED) /* nobody listens any more */
        mk_error_free(error);
    else
        generation_fail(slot->generation, error);
    release_slot(s, slot);
}

static void report_progress(const struct slot *slot)
{
    if (!slot->job->o.reports_progress || slot->choice > 0)
        return;
    struct event *e = xcalloc(1, sizeof *e);
    e->kind = EVENT_PROGRESS;
    e->n_prompt = (long long)slot->job->o.n_prompt;
    e->n_reused = (long long)slot->n_reused;
    e->n_done = (long long)slot->n_fed;
    e->seconds = clock_seconds() - slot->begun;
    job_put(slot->job, e);
}

/* One full batch of one prompt, the next slot's turn. */
static void prefill_one(struct scheduler *s)
{
    for (int k = 0; k < s->o.n_slots; k++) {
        struct slot *slot = &s->slots[(s->turn + k) % s->o.n_slots];
        if (!slot->job || !slot->is_prefilling)
            continue;
        const struct job_options *o = &slot->job->o;
        mk_error *error = NULL;
        if (o->n_prompt - slot->n_fed < s->n_batch)
            continue;
        s->turn = (int)(slot - s->slots) + 1;
        if (mk_session_feed(slot->session, o->prompt + slot->n_fed, s->n_batch, 0, NULL, NULL, NULL,
                            &error) != MK_OK) {
            fail_slot(s, slot, error);
            return;
        }
        slot->n_fed += s->n_batch;
        if (slot->n_fed == slot->n_shared)
            prefix_cache_add(s->cache, slot->session);
        report_progress(slot);
        note_state(s, slot);
        if (slot->n_fed == o->n_prompt)
            finish_prompt(s, slot);
        return;
    }
}

/* The token that a slot feeds in this round, if any. False: none. */
static bool next_token(struct scheduler *s, struct slot *slot, int32_t *id)
{
    const struct job_options *o = &slot->job->o;
    size_t n;
    if (slot->is_prefilling) { /* what is less than a batch goes along with the others' steps */
        if (o->n_prompt - slot->n_fed >= s->n_batch)
            return false;
        *id = o->prompt[slot->n_fed];
        return true;
    }
    if (!slot->has_logits)
        return false;
    if (!generation_step(slot->generation, mk_session_logits(slot->session), id)) {
        release_slot(s, slot);
        return false;
    }
    (void)mk_session_tokens(slot->session, &n);
    if (n >= s->n_context) {
        generation_end_context(slot->generation);
        release_slot(s, slot);
        return false;
    }
    return true;
}

static void after_step(struct scheduler *s, struct slot *slot, mk_status status)
{
    if (status != MK_OK) {
        mk_error *error = NULL;
        /* the batch's error is of its first member: asked for again alone, the step says what is wrong with this one */
        if (status != MK_CANCELLED)
            status = mk_session_step(slot->session, slot->next, &error);
        if (status != MK_OK) {
            if (status == MK_CANCELLED)
                release_slot(s, slot);
            else
                fail_slot(s, slot, error);
            return;
        }
    }
    if (slot->is_prefilling) {
        slot->n_fed++;
        report_progress(slot);
        if (slot->n_fed == slot->job->o.n_prompt)
            finish_prompt(s, slot);
    }
    note_state(s, slot);
}

static void step_all(struct scheduler *s)
{
    size_t n = 0;
    int n_generating = 0;
    for (int i = 0; i < s->o.n_slots; i++) {
        struct slot *slot = &s->slots[i];
        if (!slot->job || !next_token(s, slot, &slot->next))
            continue;
        n_generating += !slot->is_prefilling;
        s->members[n] = slot;
        s->sessions[n] = slot->session;
        s->ids[n++] = slot->next;
    }
    if (n == 0)
        return;
    double start = clock_seconds();
    mk_error *error = NULL;
    for (size_t i = 0; i < n; i++)
        s->statuses[i] = MK_FAILED; /* what a call that is wrong as a whole leaves */
    (void)mk_session_batch(s->sessions, s->ids, n, NULL, s->statuses, &error);
    mk_error_free(error);
    double now = clock_seconds();
    pthread_mutex_lock(&s->lock);
    s->totals.n_steps++;
    s->totals.n_step_sessions += (long long)n;
    s->totals.n_generated += n_generating;
    s->totals.generated_seconds += n_generating ? now - start : 0;
    pthread_mutex_unlock(&s->lock);
    for (size_t i = 0; i < n; i++)
        after_step(s, s->members[i], s->statuses[i]);
}

static void drop_cancelled(struct scheduler *s)
{
    for (int i = 0; i < s->o.n_slots; i++)
        if (s->slots[i].job && atomic_load(&s->slots[i].job->is_cancelled))
            release_slot(s, &s->slots[i]);
}

/* Everything that is left fails. */
static void fail_all(struct scheduler *s, bool running)
{
    struct problem p;
    struct job *waiting;
    problem_set(&p, 503, "unavailable_error", "shutting_down", NULL, "the server is shutting down");
    p.retry_after_s = 5;
    pthread_mutex_lock(&s->lock);
    waiting = s->first;
    s->first = NULL;
    s->last = &s->first;
    s->n_waiting = 0;
    pthread_mutex_unlock(&s->lock);
    for (struct job *next; waiting; waiting = next) {
        next = waiting->next;
        fail_job(waiting, &p);
        job_release(waiting);
    }
    for (int i = 0; running && i < s->o.n_slots; i++)
        if (s->slots[i].job) {
            fail_job(s->slots[i].job, &p);
            release_slot(s, &s->slots[i]);
        }
}

static void *run(void *context)
{
    struct scheduler *s = context;
    struct slot **begun = xcalloc((size_t)s->o.n_slots, sizeof *begun);
    for (bool goes_on = true; goes_on;) {
        pthread_mutex_lock(&s->lock);
        while (!s->is_stopping && !s->first && s->totals.n_processing == 0) {
            s->last_step = 0;
            pthread_cond_wait(&s->changed, &s->lock);
        }
        s->last_step = clock_seconds();
        bool is_stopping = s->is_stopping, is_over = is_stopping && clock_seconds() >= s->deadline;
        int n = is_stopping ? 0 : admit(s, begun);
        pthread_mutex_unlock(&s->lock);
        for (int i = 0; i < n; i++)
            begin_slot(s, begun[i]);
        drop_cancelled(s);
        if (is_stopping)
            fail_all(s, is_over);
        prefill_one(s);
        step_all(s);
        pthread_mutex_lock(&s->lock);
        goes_on = !(is_stopping && s->totals.n_processing == 0);
        pthread_mutex_unlock(&s->lock);
    }
    free(begun);
    return NULL;
}

/* ---- from other threads ---- */

bool scheduler_start(struct scheduler **out, const struct scheduler_options *o, struct err *e)
{
    struct scheduler *s = xcalloc(1, sizeof *s);
    mk_error *error = NULL;
    size_t n = (size_t)o->n_slots;
    bool ok = true;
    *out = NULL;
    s->o = *o;
    s->last = &s->first;
    s->n_context = (size_t)mk_package_context_length(o->package);
    s->n_batch = (size_t)mk_package_batch_size(o->package);
    s->n_batch = s->n_batch > 0 ? s->n_batch : 1;
    s->is_sequential = strstr(mk_package_info(o->package), "\"sequential\": true") != NULL;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    s->slots = xcalloc(n, sizeof *s->slots);
    s->states = xcalloc(n, sizeof *s->states);
    s->sessions = xcalloc(n, sizeof(mk_session *));
    s->members = xcalloc(n, sizeof(struct slot *));
    s->ids = xcalloc(n, sizeof *s->ids);
    s->statuses = xcalloc(n, sizeof *s->statuses);
    for (size_t i = 0; i < n && ok; i++)
        if (mk_session_new(&s->slots[i].session, o->package, &error) != MK_OK)
            ok = err_set(e, ERR_NOMEM, "session %zu of %zu: %s", i + 1, n, mk_error_message(error));
    mk_error_free(error);
    struct prefix_cache_options cache = o->cache;
    cache.package = o->package;
    cache.is_sequential = s->is_sequential;
    ok = ok && prefix_cache_new(&s->cache, &cache, e);
    if (ok) {
        int failed = pthread_create(&s->thread, NULL, run, s);
        errno = failed;
        ok = s->has_thread = failed == 0;
        if (failed)
            err_set_errno(e, "a thread");
    }
    if (ok)
        *out = s;
    else
        scheduler_stop(s, 0);
    return ok;
}

void scheduler_drain(struct scheduler *s, double grace_seconds)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->is_stopping = true;
    s->deadline = clock_seconds() + grace_seconds;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    if (s->has_thread)
        pthread_join(s->thread, NULL);
    for (int i = 0; s->has_thread && i < s->o.n_slots && s->o.cache.folder; i++) {
        size_t n;
        (void)mk_session_tokens(s->slots[i].session, &n);
        if (n >= s->n_batch)
            prefix_cache_add(s->cache, s->slots[i].session);
    }
    s->has_thread = false;
}

void scheduler_stop(struct scheduler *s, double grace_seconds)
{
    if (!s)
        return;
    scheduler_drain(s, grace_seconds);
    prefix_cache_free(s->cache);
    for (int i = 0; i < s->o.n_slots; i++)
        mk_session_free(s->slots[i].session);
    grammar_vocabulary_free(s->sorted);
    vocabulary_bytes_free(s->vocabulary);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    free(s->slots);
    free(s->states);
    free(s->sessions);
    free(s->members);
    free(s->ids);
    free(s->statuses);
    free(s);
}

const mk_package *scheduler_package(const struct scheduler *s)
{
    return s->o.package;
}

int scheduler_slots(const struct scheduler *s)
{
    return s->o.n_slots;
}

const struct vocabulary_bytes *scheduler_vocabulary(struct scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    if (!s->has_vocabulary)
        s->vocabulary = vocabulary_bytes_new(s->o.package);
    s->has_vocabulary = true;
    const struct vocabulary_bytes *v = s->vocabulary;
    pthread_mutex_unlock(&s->lock);
    return v;
}

const struct grammar_vocabulary *scheduler_grammar_vocabulary(struct scheduler *s)
{
    const struct vocabulary_bytes *v = scheduler_vocabulary(s);
    pthread_mutex_lock(&s->lock);
    if (!s->sorted && v)
        s->sorted = grammar_vocabulary_new(v);
    const struct grammar_vocabulary *sorted = s->sorted;
    pthread_mutex_unlock(&s->lock);
    return sorted;
}

bool scheduler_submit(struct scheduler *s, struct job *j, struct problem *p)
{
    bool ok = true;
    pthread_mutex_lock(&s->lock);
    if (s->is_stopping) {
        ok = problem_set(p, 503, "unavailable_error", "shutting_down", NULL, "the server is shutting down");
        p->retry_after_s = 5;
    } else if (s->n_waiting >= s->o.n_waiting) {
        double rate = s->totals.generated_seconds > 0 ? s->totals.generated_seconds : 1;
        ok = problem_set(p, 429, "rate_limit_error", "queue_full", NULL, "%d requests wait already",
                         s->n_waiting);
        p->retry_after_s = rate > 60 ? 60 : (int)rate + 1;
    } else {
        j->n_open = j->o.n_choices;
        *s->last = job_keep(j);
        s->last = &j->next;
        s->n_waiting++;
        pthread_cond_signal(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return ok;
}

void scheduler_cancel(struct scheduler *s, struct job *j)
{
    job_cancel(j);
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < s->o.n_slots; i++)
        if (s->slots[i].job == j)
            mk_session_cancel(s->slots[i].session);
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

double scheduler_stalled_seconds(struct scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    double seconds = s->last_step > 0 ? clock_seconds() - s->last_step : 0;
    pthread_mutex_unlock(&s->lock);
    return seconds;
}

void scheduler_get_totals(struct scheduler *s, struct scheduler_totals *out)
{
    pthread_mutex_lock(&s->lock);
    *out = s->totals;
    out->n_waiting = s->n_waiting;
    out->n_cache_bytes = prefix_cache_bytes(s->cache);
    pthread_mutex_unlock(&s->lock);
}

void scheduler_get_slot(struct scheduler *s, int i, struct slot_state *out)
{
    pthread_mutex_lock(&s->lock);
    *out = s->states[i];
    pthread_mutex_unlock(&s->lock);
}
