/* Messages of OpenAI's form, checked and put into the form that chat templates take. The other APIs make this form of theirs. */
#ifndef MILKIT_SERVER_CHAT_MESSAGES_H
#define MILKIT_SERVER_CHAT_MESSAGES_H

#include "server/ask.h"

struct chat_prompt {
    struct buf messages; /* the array, as JSON */
    struct buf tools;    /* the array as JSON; empty: none */
    struct buf options;  /* more variables of the template: an object without its last brace */
    bool must_call;      /* one of the tools, or */
    char *only;          /* this one; NULL: any */
    char *prefill;       /* the begin of the answer, or NULL */
};
void chat_prompt_init(struct chat_prompt *c);
void chat_prompt_fini(struct chat_prompt *c);
/* Reads "messages". A last message of the assistant is the begin of the answer, unless `continues` is false. */
bool chat_prompt_read_messages(struct chat_prompt *c, const struct fields *f, bool continues) MUST_CHECK;
/* Reads "tools", whose text is in body, "tool_choice" and "parallel_tool_calls". */
bool chat_prompt_read_tools(struct chat_prompt *c, const struct fields *f, struct str body,
                            struct ask *a) MUST_CHECK;
/* Reads "chat_template_kwargs", "reasoning_effort", "add_generation_prompt", "continue_final_message". *continues: as above. */
bool chat_prompt_read_options(struct chat_prompt *c, const struct fields *f, struct str body,
                              bool *continues) MUST_CHECK;
/* Through the template: sets the ask's prompt. *text (unless NULL): what the model sees, on the heap. */
bool chat_prompt_render(struct chat_prompt *c, struct ask *a, char **text, struct problem *p) MUST_CHECK;

#endif
