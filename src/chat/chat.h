/* Conversations: messages -> template -> text -> ids, and what a model says back, taken apart.
 *
 * Messages, tools and options travel as JSON text in the form of OpenAI and Hugging Face (role, content as a string or
 * typed parts, tool_calls, reasoning_content, ...), since templates see them as they are: key order and the
 * difference of 1 and 1.0 included.
 *
 * Strings out of messages and tools are user data: in ids they never become special or other added tokens (unless flat),
 * though words still join across the border, so without such tokens in user data both ways give the same ids.
 */
#ifndef MILKIT_CHAT_CHAT_H
#define MILKIT_CHAT_CHAT_H

#include "jinja/jinja.h"
#include "tokenizer/tokenizer.h"

/* The templates of a model and the special tokens that they see as variables. Immutable after opening. */
struct chat_template;

/* folder: of a checkpoint or a package. chat_template.jinja comes before chat_template of tokenizer_config.json (a
 * string or a list of named ones) and that before chat_template.json; additional_chat_templates/NAME.jinja are named ones
 * too. A template that can't be parsed is an error when it is used. */
bool chat_template_open(struct chat_template **out, const char *folder, struct err *e) MUST_CHECK;
/* config: text of a tokenizer_config.json; p NULL for none. jinja: text of a chat_template.jinja; p NULL for none. */
bool chat_template_parse(struct chat_template **out, struct str config, struct str jinja, const char *where,
                         struct err *e) MUST_CHECK;
void chat_template_free(struct chat_template *t); /* accepts NULL */

struct chat_request {
    struct str messages; /* JSON array */
    struct str tools;    /* JSON array; p NULL: none */
    struct str
        options; /* JSON object of more variables (add_generation_prompt, enable_thinking); p NULL: none */
    const char *template_name; /* NULL: "tool_use" when there are tools and such a template, else "default" */
    bool
        decode_arguments; /* tool calls' arguments that are JSON in a string become objects, as templates expect */
    int64_t now;          /* for strftime_now; 0: the clock */
};
/* Takes {"messages", "tools", "options"} apart; the slices point into json. */
bool chat_request_parse(struct chat_request *out, struct str json, const char *where,
                        struct err *e) MUST_CHECK;

/* The text of a member of a JSON object that json_parse has accepted, as it stands there (numbers too). False when
 * there is no such member. */
bool chat_json_member(struct str object, const char *key, struct str *value);
/* The next element of such an array, as it stands there; *at begins as 0. False behind the last one. */
bool chat_json_next(struct str array, size_t *at, struct str *value);

/* The text, in parts. What the template says with raise_exception is out->raised as well as the message. */
bool chat_render(const struct chat_template *t, const struct chat_request *r, struct jinja_output *out,
                 struct err *e) MUST_CHECK;
/* flat: user data is no different from the template's text, as in transformers. Templates print bos themselves. */
bool chat_encode(const struct tokenizer *tokenizer, const struct jinja_output *text, bool flat,
                 struct ids *out, struct err *e) MUST_CHECK;

/* Appends {"role", "content"} (and "reasoning_content" unless NULL) to a JSON array under construction, which begins with
 * "[" and gets its "]" from the caller. */
void chat_put_message(struct buf *messages, const char *role, const char *content, size_t n,
                      const char *reasoning);

/* --- what the model says ------------------------------------------------------------------------------------------ */

enum chat_style {
    CHAT_PLAIN,  /* no thinking, no calls */
    CHAT_HERMES, /* <think>..</think>, <tool_call>{"name", "arguments"}</tool_call>: Qwen3 and many others */
    CHAT_XML,    /* <tool_call><function=NAME><parameter=KEY>..: Qwen3.5, Qwen3-Coder */
    CHAT_GEMMA   /* <|channel>thought..<channel|>, <|tool_call>call:NAME{..}<tool_call|>: Gemma 4 */
};
/* By what the template writes for assistant messages. */
enum chat_style chat_template_style(const struct chat_template *t);
/* Does the rendered prompt leave a thinking block open, so that the answer begins inside of it? */
bool chat_prompt_opens_thinking(enum chat_style style, const char *prompt, size_t n);

enum chat_event_kind { CHAT_CONTENT, CHAT_REASONING, CHAT_TOOL_CALL };
struct chat_event {
    enum chat_event_kind kind;
    struct str text; /* CONTENT, REASONING: the next piece; TOOL_CALL: the arguments, a JSON object */
    struct str name; /* TOOL_CALL */
};
typedef void (*chat_event_fn)(void *ctx, const struct chat_event *event);

/* Takes the decoded stream (special tokens kept, for Gemma), in pieces of any size. Pieces of text are given out as
 * soon as they can't be the begin of a mark any more; a call is given out whole. Whatever is not a well-formed
 * call is given out as content: nothing is lost. */
struct chat_parser;
/* tools: the request's, for the types of XML parameters; p NULL for none (then a value that is JSON is JSON). */
struct chat_parser *chat_parser_new(enum chat_style style, bool starts_thinking, struct str tools);
void chat_parser_free(struct chat_parser *p); /* accepts NULL */
void chat_parser_push(struct chat_parser *p, const char *text, size_t n, chat_event_fn fn, void *ctx);
void chat_parser_finish(struct chat_parser *p, chat_event_fn fn, void *ctx); /* the end of the stream */

#endif
