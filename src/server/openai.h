/* What OpenAI's endpoints share. */
#ifndef MILKIT_SERVER_OPENAI_H
#define MILKIT_SERVER_OPENAI_H

#include "server/ask.h"
#include "server/server_internal.h"

/* The same in all pieces of an answer. */
struct openai_head {
    char id[48];
    long long created;
    const char *model, *fingerprint;
};
void openai_head_init(struct openai_head *h, const char *prefix, const struct model *model);
/* "{" with these members, open. */
void openai_put_head(struct buf *out, const struct openai_head *h, const char *object);
/* An error in a stream that has begun. */
void openai_put_stream_problem(void *context, const struct problem *p, struct buf *out);
/* How an answer goes to the client: as a stream of server-sent events, or whole. */
struct follower openai_follower(const struct ask *a, bool is_stream,
                                void (*event)(void *context, const struct event *e, struct buf *out),
                                void (*end)(void *context, struct buf *out), void *context);
/* "logprobs" and "top_logprobs" of chats. */
bool openai_read_logprobs(struct ask *a, const struct fields *f) MUST_CHECK;
/* What asks for something else than text. */
bool openai_refuse_media(const struct fields *f) MUST_CHECK;
/* Limits of the server where the request has none. */
bool openai_apply_defaults(const struct server *s, struct ask *a) MUST_CHECK;

#endif
