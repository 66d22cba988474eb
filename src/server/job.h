/* A job: a prompt that the scheduler continues, once or several times, and the events in which the answers come.
 *
 * Who asks makes a job, submits it and reads its events; the scheduler writes them. Either may drop its reference first.
 */
#ifndef MILKIT_SERVER_JOB_H
#define MILKIT_SERVER_JOB_H

#include <pthread.h>
#include <stdatomic.h>
#include "server/grammar.h"
#include "server/problem.h"

struct token_bias {
    int32_t id;
    float value; /* added to the logit; -INFINITY: never */
};

/* What is to be generated. The job owns what it points to. */
struct job_options {
    int32_t *prompt; /* [n_prompt] */
    size_t n_prompt;
    char *sampling; /* settings of mk_sampler_new, an object without "seed" */
    uint64_t seed;  /* of choice 0; others count on */
    int n_choices;
    int64_t max_tokens; /* -1: until the context is full */
    bool ignores_end;
    bool keeps_special; /* special tokens are in the text */
    char **stops;       /* [n_stops] */
    size_t n_stops;
    struct token_bias *bias; /* [n_bias] */
    size_t n_bias;
    double presence_penalty, frequency_penalty; /* over generated tokens; 0: none */
    bool wants_tokens;                          /* ids come with the text */
    int n_top;                                  /* alternatives of each token; -1: no probabilities */
    bool is_chat;                               /* answers are taken apart */
    char *prompt_text, *tools;                  /* for that; may be NULL */
    bool takes_calls;                           /* else a call is content */
    int n_calls_max;                            /* ends behind so many; 0: any number */
    bool reports_progress;
    struct grammar *grammar;   /* what the answer follows; NULL: any text */
    const char *grammar_after; /* a constant: it holds behind this text, the end of thinking; NULL: at once */
};

enum event_kind {
    EVENT_PROGRESS, /* of the prompt */
    EVENT_BEGIN,    /* the prompt has been computed */
    EVENT_TOKEN,    /* a piece of a choice: text, or none yet */
    EVENT_CALL,     /* a tool call */
    EVENT_END,      /* of a choice */
    EVENT_FAILED    /* of the job */
};
enum event_part { PART_CONTENT, PART_REASONING };
enum end_reason { END_STOP, END_WORD, END_LENGTH, END_CONTEXT, END_CALLS };

struct token_alternative {
    int32_t id;
    float log_probability;
};
struct token_record {
    int32_t id;
    float log_probability;
    char *bytes; /* heap, [n_bytes] */
    size_t n_bytes;
    int n_top;
    struct token_alternative *top; /* heap, [n_top], best first */
};

struct event {
    struct event *next;
    enum event_kind kind;
    int choice;
    enum event_part part;
    char *text; /* [n]; of a call its arguments */
    size_t n;
    char *name;                  /* of a call */
    struct token_record *tokens; /* [n_tokens], whose text is out with this event */
    size_t n_tokens;
    enum end_reason reason;
    char *stop;                           /* the string that ended it, or NULL */
    long long n_prompt, n_reused, n_done; /* n_done: tokens of the prompt (PROGRESS), or generated */
    long long n_reasoning;
    double prompt_seconds, seconds, wait_seconds;
    struct problem problem;
};
void event_free(struct event *e);

struct job {
    struct job_options o;
    /* the scheduler's */
    struct job *next;
    int n_started, n_open; /* choices */
    bool is_prefilled;
    mk_snapshot *snapshot; /* of the prompt, for the other choices */
    double submitted;
    /* shared */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int n_references;
    atomic_bool is_cancelled;
    struct event *first, **last;
};
/* Takes what *o owns. */
struct job *job_new(const struct job_options *o);
struct job *job_keep(struct job *j);
void job_release(struct job *j);
void job_options_free(struct job_options *o);
/* Takes e. */
void job_put(struct job *j, struct event *e);
/* The next event, the caller's; NULL when none came in time, or the job was cancelled. */
struct event *job_next(struct job *j, double seconds);
/* From any thread. */
void job_cancel(struct job *j);

#endif
