/* What the files of the server share. */
#ifndef MILKIT_SERVER_SERVER_INTERNAL_H
#define MILKIT_SERVER_SERVER_INTERNAL_H

#include "server/ask.h"
#include "server/http.h"
#include "server/metrics.h"
#include "server/models.h"
#include "server/page.h"
#include "server/put.h"
#include "server/server.h"

#define JSON_TYPE "application/json; charset=utf-8"
#define SSE_TYPE "text/event-stream; charset=utf-8"
#define ANSWER_BYTES_MAX ((size_t)256 << 20)

enum api { API_OPENAI, API_ANTHROPIC, API_OLLAMA, API_PAGE };

struct server {
    const struct server_options *o;
    struct http *http;
    struct models *models;
    struct metrics *metrics;
    uint8_t (*keys)[32]; /* [n_keys] digests */
    atomic_bool is_ready, is_stopping;
    bool is_loopback;
    struct page_headers page;
};

/* ---- reply.c ---- */

void reply_json(struct exchange *x, int status, const struct buf *body);
void reply_problem(struct server *s, struct exchange *x, enum api api, const struct problem *p);
/* prefix and n random letters and digits. out [n of the prefix + n + 1] */
void random_id(char *out, const char *prefix, int n);

/* Follows a job to its end. What is called appends to out, which goes to the client at once (streams) or at the end. */
struct follower {
    enum api api;
    bool is_stream;
    const char *type;    /* of the content */
    const char *ping;    /* keeps a silent stream alive */
    double ping_seconds; /* negative: never */
    void (*event)(void *context, const struct event *e, struct buf *out);
    void (*end)(void *context, struct buf *out);
    void (*problem)(void *context, const struct problem *p, struct buf *out); /* in a stream that has begun */
    void *context;
};
/* An answer that is made of several jobs. */
struct followed {
    struct buf out;
    bool has_begun, has_failed, has_left, has_seed; /* a stream; a problem was told of; the client left */
};
void followed_init(struct followed *state);
/* Submits the ask's job and follows it. False: that was all. */
bool follow_part(struct server *s, struct exchange *x, struct ask *a, const struct follower *f,
                 struct followed *state);
/* Sends what is there, and frees it. */
void follow_finish(struct exchange *x, const struct follower *f, struct followed *state);
/* All of that for one job. */
void follow(struct server *s, struct exchange *x, struct ask *a, const struct follower *f);

/* Counts of one answer, taken from events. */
struct counts {
    long long n_prompt, n_reused, n_generated, n_reasoning;
    double prompt_seconds, seconds;
};
void counts_add(struct counts *c, const struct event *e);
/* "usage" and "timings" of OpenAI's forms, with their keys. */
void put_usage(struct buf *b, const struct counts *c);
void put_timings(struct buf *b, const struct counts *c);
const char *finish_reason(enum end_reason reason);

/* ---- token_logprobs.c ---- */

/* An item of "content" of chat's logprobs for each token. */
void put_chat_logprobs(struct buf *b, const struct vocabulary_bytes *v, const struct event *e);

/* The old form of /v1/completions: lists side by side. offset: of the text so far, in characters. */
struct text_logprobs {
    struct buf tokens, token_logprobs, top_logprobs, offsets;
    long long offset;
};
void text_logprobs_init(struct text_logprobs *l);
void text_logprobs_fini(struct text_logprobs *l);
void text_logprobs_add(struct text_logprobs *l, const struct vocabulary_bytes *v, const struct event *e);
/* Puts the object, and begins anew behind it. */
void text_logprobs_put(struct text_logprobs *l, struct buf *out);

/* ---- router.c ---- */

void router_begin(void *context, struct exchange *x, bool *is_quick);
void router_answer(void *context, struct exchange *x);
void router_completed(void *context, struct exchange *x);

/* ---- endpoints ---- */

#define ENDPOINT(method, path, function, api, flags) void function(struct server *s, struct exchange *x);
#include "server/endpoints.def"
#undef ENDPOINT

#endif
