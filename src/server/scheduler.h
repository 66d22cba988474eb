/* The scheduler of one package: a thread that owns its sessions ("slots") and runs jobs on them.
 *
 * Each round it takes one piece of one prompt, and one token of every session that generates, all in one mk_session_batch; so no
 * answer waits for another's prompt longer than one batch takes. Jobs begin in the order in which they came. A slot keeps what it computed,
 * and a job gets the slot whose tokens go on longest with its prompt; what a slot gives up goes into a cache. What a job generates does not
 * depend on the others.
 */
#ifndef MILKIT_SERVER_SCHEDULER_H
#define MILKIT_SERVER_SCHEDULER_H

#include "server/job.h"
#include "server/prefix_cache.h"
#include "server/vocabulary_bytes.h"

struct scheduler;
struct scheduler_options {
    mk_package *package;
    int n_slots, n_waiting;            /* sessions; jobs that may wait */
    struct prefix_cache_options cache; /* but for the package and what is known of it */
};
bool scheduler_start(struct scheduler **out, const struct scheduler_options *o, struct err *e) MUST_CHECK;
/* No more jobs are taken. Those that run get `grace` seconds; what is left then fails, as does what waits. Accepts NULL. */
void scheduler_drain(struct scheduler *s, double grace_seconds);
/* The same, and frees it. Accepts NULL. */
void scheduler_stop(struct scheduler *s, double grace_seconds);
const mk_package *scheduler_package(const struct scheduler *s);
/* Made when it is first asked for; NULL: the package has no tokenizer. */
const struct vocabulary_bytes *scheduler_vocabulary(struct scheduler *s);
/* The same in the order that masks of grammars take. */
const struct grammar_vocabulary *scheduler_grammar_vocabulary(struct scheduler *s);
int scheduler_slots(const struct scheduler *s);
/* Keeps a reference to the job. False: too many wait, or it is stopping. */
bool scheduler_submit(struct scheduler *s, struct job *j, struct problem *p) MUST_CHECK;
/* Cancels the job; its slot is free at once. */
void scheduler_cancel(struct scheduler *s, struct job *j);
/* Seconds since the last step while there is work; 0 when there is none. Never waits. */
double scheduler_stalled_seconds(struct scheduler *s);

/* What has been done so far. Never waits. */
struct scheduler_totals {
    long long n_prompt, n_reused, n_generated, n_steps, n_step_sessions, n_context_most;
    double prompt_seconds, generated_seconds;
    int n_processing, n_waiting;
    unsigned long long n_cache_bytes;
};
void scheduler_get_totals(struct scheduler *s, struct scheduler_totals *out);
struct slot_state {
    bool is_processing;
    long long task, n_prompt, n_prompt_done, n_reused, n_generated, n_context;
    long long n_left; /* tokens that may come; -1: no limit */
};
void scheduler_get_slot(struct scheduler *s, int i, struct slot_state *out);

#endif
