/* A conversation with a package: messages, what of them the model sees, one answer at a time.
 *
 * Messages are kept as they are; for each answer they go through the template again, so the model sees what the
 * template makes of them, and the session computes only what differs from before. Where the rendered text goes on
 * from what an answer left, the answer keeps the tokens that the model chose.
 */
#ifndef MILKIT_CHAT_CONVERSATION_H
#define MILKIT_CHAT_CONVERSATION_H

#include "chat/chat.h"
#include "runtime/generate.h"

#define MESSAGE_BYTES_MAX ((size_t)64 << 20)

enum message_role { MESSAGE_USER, MESSAGE_ANSWER, MESSAGE_TOOL };

struct message {
    enum message_role role;
    char *content;
    size_t bytes;
    char *reasoning;      /* of answers; NULL: none */
    char *calls;          /* tool calls of answers, a JSON array; NULL: none */
    char *name, *call_id; /* of what a tool gave back; NULL: not said */
};

enum think { THINK_AUTO, THINK_ON, THINK_OFF };

struct turn_stats {
    int64_t n_prompt, n_reused, n_generated;
    double prompt_seconds, answer_seconds;
    enum generate_end end;
};

/* Text and its ids up to a place where both may be cut. */
struct known_mark {
    size_t bytes, n_ids;
    bool is_prompt; /* only for a text that ends here */
};

/* What an answer is made of, in this order. */
enum conversation_event_kind {
    CONVERSATION_DROPPED, /* the context is full: the oldest messages went, what is left is computed again */
    CONVERSATION_BEGINS,  /* the prompt has been computed */
    CONVERSATION_PIECE,   /* of content or thinking, or a tool call: as often as there are some */
    CONVERSATION_ENDS /* behind the last piece, of an answer that failed too; conversation.last has the numbers */
};

struct conversation_event {
    enum conversation_event_kind kind;
    const struct chat_event *piece; /* PIECE */
    size_t n_dropped, n_tokens;     /* DROPPED: messages that went, tokens that are left */
    /* ENDS */
    bool has_failed; /* nothing of the answer is kept */
    bool is_empty,
        has_thinking; /* no content and no calls, though some tokens were allowed; there was thinking */
};

/* False ends the answer (e filled); ENDS alone follows, when it has begun. */
typedef bool (*conversation_event_fn)(void *context, const struct conversation_event *event, struct err *e);

struct conversation {
    struct log *log;                /* progress; its cancel flag stops an answer */
    conversation_event_fn on_event; /* NULL: nobody listens */
    void *context;
    struct model *model;
    struct tokenizer *tokenizer;
    struct chat_template *template; /* NULL: none, texts are put together as they are */
    struct str template_args;       /* JSON object; p NULL: none */
    struct str tools;               /* JSON array of what answers may call; p NULL: none */
    struct session *session;
    int64_t max_tokens; /* of an answer; negative: until the context is full */
    bool ignore_eos;
    bool no_auto_stop; /* stop only at ids that configs declare, not at what ends an answer in the template */
    enum think think;
    struct sampling_options sampling;

    /* The conversation's own from here on. */
    struct sampler *sampler;
    struct sampler_options chosen; /* the sampler's */
    int32_t turn_end; /* ends an answer in the template, though no config declares it; -1: none such */
    char *system;     /* NULL: none */
    struct message *messages;
    size_t n, capacity;
    size_t n_dropped; /* of the oldest messages: not in the model's context any more */

    struct buf known_text;
    struct ids known_ids;
    struct known_mark *marks;
    size_t n_marks;

    struct turn_stats last, total;
    int64_t n_turns;
};

/* The caller fills in what the options say (log .. sampling), then: template checked, sampler made. */
bool conversation_open(struct conversation *c, struct err *e) MUST_CHECK;
void conversation_close(struct conversation *c); /* what the caller put in stays the caller's */

/* Says text and answers it, in events. After an error, or when it is stopped before the first token of an answer
 * (ERR_CANCELLED), the conversation is as it was. */
bool conversation_say(struct conversation *c, const char *text, size_t bytes, struct err *e) MUST_CHECK;
/* Answers the last message, which is not an answer. */
bool conversation_answer(struct conversation *c, struct err *e) MUST_CHECK;
/* Another answer to the last message. */
bool conversation_answer_again(struct conversation *c, struct err *e) MUST_CHECK;
/* Takes back the user's last message and what came of it. ERR_USAGE: there is none. */
bool conversation_undo(struct conversation *c, struct err *e) MUST_CHECK;
/* Takes what m points to. */
void conversation_add(struct conversation *c, const struct message *m);
void conversation_clear(struct conversation *c); /* the system message stays */
void conversation_set_system(struct conversation *c, const char *text);
/* Takes the options when they are in range. */
bool conversation_set_sampling(struct conversation *c, const struct sampling_options *o,
                               struct err *e) MUST_CHECK;
/* {"messages": [...]}, the form of OpenAI; dropped messages are part of it. replace: whether a file that is there may
 * be replaced. */
bool conversation_save(const struct conversation *c, const char *path, bool replace,
                       struct err *e) MUST_CHECK;
/* A file that can't be read changes nothing. */
bool conversation_load(struct conversation *c, const char *path, struct err *e) MUST_CHECK;
/* The same from and to memory; where: for messages. */
void conversation_put(const struct conversation *c, struct buf *out);
bool conversation_parse(struct conversation *c, struct str text, const char *where, struct err *e) MUST_CHECK;
/* "user", "assistant", "tool" */
const char *conversation_role_name(enum message_role role);
/* Appends the members behind content and reasoning_content, each with a comma before it. */
void conversation_put_more(const struct message *m, struct buf *out);
/* One message of a user, an assistant or a tool, as an object, at the end of what there is. */
bool conversation_add_json(struct conversation *c, struct str text, const char *where,
                           struct err *e) MUST_CHECK;

/* ", \"key\": \"text\"" (conversation_text.c) */
void conversation_put_member(struct buf *out, const char *key, const char *text, size_t n);

#endif
