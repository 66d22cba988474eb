/* The answer of a model, taken apart while it comes: thinking, content, tool calls.
 *
 * Text waits in `held` until it is clear that it is not the begin of a mark. Blanks that belong to the form and not to
 * the text (newlines behind <think> and </think>, before and between calls) are dropped.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "format/json.h"
#include "chat/chat.h"

#define MAX_HELD_BYTES ((size_t)64 << 20)
#define MAX_DEPTH 100

struct marks {
    const char *think_open, *think_close, *call_open, *call_close;
};

static const struct marks marks_of_style[] = {
    [CHAT_PLAIN] = {NULL, NULL, NULL, NULL},
    [CHAT_HERMES] = {"<think>", "</think>", "<tool_call>", "</tool_call>"},
    [CHAT_XML] = {"<think>", "</think>", "<tool_call>", "</tool_call>"},
    [CHAT_GEMMA] = {"<|channel>thought\n", "<channel|>", "<|tool_call>", "<tool_call|>"},
};

struct chat_parser {
    enum chat_style style;
    const struct marks *marks;
    enum { IN_CONTENT, IN_THINKING, IN_CALL } state;
    struct buf held;
    struct buf blanks;   /* seen, and given out only when text follows */
    bool skips_newlines; /* nothing was given out since a mark */
    cJSON *tools;
};

struct chat_parser *chat_parser_new(enum chat_style style, bool starts_thinking, struct str tools)
{
    struct chat_parser *p = xcalloc(1, sizeof *p);
    p->style = style;
    p->marks = &marks_of_style[style];
    p->state = starts_thinking && style != CHAT_PLAIN ? IN_THINKING : IN_CONTENT;
    p->skips_newlines = p->state == IN_THINKING;
    buf_init(&p->held, MAX_HELD_BYTES);
    buf_init(&p->blanks, MAX_HELD_BYTES);
    if (tools.p && !json_parse(&p->tools, tools.p, tools.n, "tools", NULL))
        p->tools = NULL;
    return p;
}

void chat_parser_free(struct chat_parser *p)
{
    if (!p)
        return;
    cJSON_Delete(p->tools);
    buf_fini(&p->held);
    buf_fini(&p->blanks);
    free(p);
}

bool chat_prompt_opens_thinking(enum chat_style style, const char *prompt, size_t n)
{
    const char *open = marks_of_style[style].think_open;
    if (!open)
        return false;
    size_t n_open = strlen(open);
    while (n > 0 && isspace((unsigned char)prompt[n - 1]))
        n--;
    while (n_open > 0 && isspace((unsigned char)open[n_open - 1]))
        n_open--;
    return n >= n_open && memcmp(prompt + n - n_open, open, n_open) == 0;
}

/* --- giving out --- */

static void give(chat_event_fn fn, void *ctx, enum chat_event_kind kind, const char *text, size_t n)
{
    struct chat_event event = {.kind = kind, .text = {text, n}};
    if (n > 0)
        fn(ctx, &event);
}

static void give_text(struct chat_parser *p, const char *text, size_t n, chat_event_fn fn, void *ctx)
{
    enum chat_event_kind kind = p->state == IN_THINKING ? CHAT_REASONING : CHAT_CONTENT;
    if (p->style == CHAT_PLAIN) {
        give(fn, ctx, kind, text, n);
        return;
    }
    size_t begin = 0, end = n;
    while (p->skips_newlines && p->blanks.n == 0 && begin < n && (text[begin] == '\n' || text[begin] == '\r'))
        begin++;
    while (end > begin && isspace((unsigned char)text[end - 1]))
        end--;
    if (end > begin) {
        p->skips_newlines = false;
        give(fn, ctx, kind, p->blanks.p, p->blanks.n);
        buf_clear(&p->blanks);
        give(fn, ctx, kind, text + begin, end - begin);
    }
    buf_append(&p->blanks, text + end, n - end);
}

/* Blanks before a mark belong to the form. */
static void enter(struct chat_parser *p, int state)
{
    p->state = state;
    p->skips_newlines = true;
    buf_clear(&p->blanks);
}

/* --- calls --- */

struct cursor {
    const char *p;
    size_t n, at;
};

static void skip_blanks(struct cursor *c)
{
    while (c->at < c->n && isspace((unsigned char)c->p[c->at]))
        c->at++;
}

static bool accept(struct cursor *c, const char *word)
{
    size_t n = strlen(word);
    if (c->n - c->at < n || memcmp(c->p + c->at, word, n) != 0)
        return false;
    c->at += n;
    return true;
}

/* Text up to `end`, which is skipped; false when it does not come. */
static bool take_until(struct cursor *c, const char *end, struct str *out)
{
    const char *hit = memmem(c->p + c->at, c->n - c->at, end, strlen(end));
    if (!hit)
        return false;
    *out = (struct str){c->p + c->at, (size_t)(hit - (c->p + c->at))};
    c->at += out->n + strlen(end);
    return true;
}

static bool parse_hermes(struct cursor *c, struct buf *name, struct buf *arguments)
{
    cJSON *root = NULL;
    if (!json_parse(&root, c->p, c->n, "call", NULL))
        return false;
    const cJSON *n = json_get(root, "name"), *a = json_get(root, "arguments");
    const char *key = a ? "arguments" : "parameters";
    a = json_get(root, key);
    bool ok = cJSON_IsString(n) && (!a || cJSON_IsObject(a) || cJSON_IsString(a));
    if (ok) {
        struct str raw = {"{}", 2};
        buf_puts(name, n->valuestring);
        if (cJSON_IsString(a))
            raw = (struct str){a->valuestring, strlen(a->valuestring)};
        else if (a)
            (void)chat_json_member((struct str){c->p, c->n}, key, &raw);
        while (raw.n > 0 && isspace((unsigned char)raw.p[0])) {
            raw.p++;
            raw.n--;
        }
        while (raw.n > 0 && isspace((unsigned char)raw.p[raw.n - 1]))
            raw.n--;
        buf_append(arguments, raw.p, raw.n);
    }
    cJSON_Delete(root);
    return ok;
}

/* The type that the tools declare for a parameter; NULL when they don't. */
static const char *parameter_type(const cJSON *tools, struct str function, struct str parameter)
{
    for (const cJSON *tool = cJSON_IsArray(tools) ? tools->child : NULL; tool; tool = tool->next) {
        const cJSON *f = json_get(tool, "function") ? json_get(tool, "function") : tool;
        const cJSON *name = json_get(f, "name");
        if (!cJSON_IsString(name) || strlen(name->valuestring) != function.n ||
            memcmp(name->valuestring, function.p, function.n) != 0)
            continue;
        const cJSON *properties = json_get(json_get(f, "parameters"), "properties");
        for (const cJSON *p = cJSON_IsObject(properties) ? properties->child : NULL; p; p = p->next) {
            const cJSON *type = json_get(p, "type");
            if (strlen(p->string) == parameter.n && memcmp(p->string, parameter.p, parameter.n) == 0)
                return cJSON_IsString(type) ? type->valuestring : NULL;
        }
    }
    return NULL;
}

static void put_parameter(struct buf *out, struct str value, const char *type)
{
    cJSON *tree = NULL;
    bool is_text = type && strcmp(type, "string") == 0;
    if (!is_text && json_parse(&tree, value.p, value.n, "value", NULL) && (type || !cJSON_IsString(tree)))
        buf_append(out, value.p, value.n);
    else if (!is_text && value.n == 4 && (memcmp(value.p, "True", 4) == 0 || memcmp(value.p, "None", 4) == 0))
        buf_puts(out, value.p[0] == 'T' ? "true" : "null"); /* templates print Python's names */
    else if (!is_text && value.n == 5 && memcmp(value.p, "False", 5) == 0)
        buf_puts(out, "false");
    else
        json_put_string(out, value.p, value.n);
    cJSON_Delete(tree);
}

static bool parse_xml(const struct chat_parser *p, struct cursor *c, struct buf *name, struct buf *arguments)
{
    struct str function, key, value;
    skip_blanks(c);
    if (!accept(c, "<function=") || !take_until(c, ">", &function) || function.n == 0)
        return false;
    buf_append(name, function.p, function.n);
    buf_puts(arguments, "{");
    for (skip_blanks(c); accept(c, "<parameter="); skip_blanks(c)) {
        if (!take_until(c, ">", &key) || !take_until(c, "</parameter>", &value))
            return false;
        if (value.n > 0 && value.p[0] == '\n') {
            value.p++;
            value.n--;
        }
        if (value.n > 0 && value.p[value.n - 1] == '\n')
            value.n--;
        if (arguments->n > 1)
            buf_puts(arguments, ", ");
        json_put_string(arguments, key.p, key.n);
        buf_puts(arguments, ": ");
        put_parameter(arguments, value, parameter_type(p->tools, function, key));
    }
    buf_puts(arguments, "}");
    return accept(c, "</function>");
}

#define GEMMA_QUOTE "<|\"|>"

static bool gemma_value(struct cursor *c, struct buf *out, int depth);

/* Members or items up to `close`. */
static bool gemma_items(struct cursor *c, struct buf *out, char close, int depth)
{
    const char end[2] = {close, '\0'};
    buf_puts(out, close == '}' ? "{" : "[");
    skip_blanks(c);
    for (bool first = true; !accept(c, end); first = false) {
        struct str key;
        if (!first && !accept(c, ","))
            return false;
        if (!first)
            buf_puts(out, ", ");
        skip_blanks(c);
        if (close == '}') {
            if (accept(c, GEMMA_QUOTE)) {
                if (!take_until(c, GEMMA_QUOTE, &key) || !accept(c, ":"))
                    return false;
            } else if (!take_until(c, ":", &key)) {
                return false;
            }
            json_put_string(out, key.p, key.n);
            buf_puts(out, ": ");
        }
        if (!gemma_value(c, out, depth + 1))
            return false;
        skip_blanks(c);
    }
    buf_putc(out, close);
    return true;
}

static bool gemma_value(struct cursor *c, struct buf *out, int depth)
{
    struct str text;
    if (depth > MAX_DEPTH)
        return false;
    skip_blanks(c);
    if (accept(c, GEMMA_QUOTE)) {
        if (!take_until(c, GEMMA_QUOTE, &text))
            return false;
        json_put_string(out, text.p, text.n);
        return true;
    }
    if (accept(c, "{"))
        return gemma_items(c, out, '}', depth);
    if (accept(c, "["))
        return gemma_items(c, out, ']', depth);
    size_t begin = c->at;
    while (c->at < c->n && !strchr(",]}", c->p[c->at]))
        c->at++;
    text = (struct str){c->p + begin, c->at - begin};
    if (text.n == 0)
        return false;
    put_parameter(out, text, NULL);
    return true;
}

static bool parse_gemma(struct cursor *c, struct buf *name, struct buf *arguments)
{
    struct str function;
    skip_blanks(c);
    if (!accept(c, "call:") || !take_until(c, "{", &function) || function.n == 0)
        return false;
    buf_append(name, function.p, function.n);
    if (!gemma_items(c, arguments, '}', 0))
        return false;
    skip_blanks(c);
    return c->at == c->n;
}

/* body: what stands between the marks of a call. */
static bool give_call(struct chat_parser *p, struct str body, chat_event_fn fn, void *ctx)
{
    struct cursor c = {body.p, body.n, 0};
    struct buf name, arguments;
    buf_init(&name, MAX_HELD_BYTES);
    buf_init(&arguments, MAX_HELD_BYTES);
    buf_puts(&name, "");
    bool ok = p->style == CHAT_GEMMA                     ? parse_gemma(&c, &name, &arguments)
              : memmem(body.p, body.n, "<function=", 10) ? parse_xml(p, &c, &name, &arguments)
                                                         : parse_hermes(&c, &name, &arguments);
    if (ok && !name.failed && !arguments.failed) {
        struct chat_event event = {CHAT_TOOL_CALL, {arguments.p, arguments.n}, {name.p, name.n}};
        fn(ctx, &event);
    }
    buf_fini(&name);
    buf_fini(&arguments);
    return ok;
}

/* --- the stream --- */

/* Length of the longest end of text that begins `mark`. */
static size_t partial_mark(const char *text, size_t n, const char *mark)
{
    size_t length = strlen(mark);
    for (size_t k = n < length - 1 ? n : length - 1; k > 0; k--)
        if (memcmp(text + n - k, mark, k) == 0)
            return k;
    return 0;
}

static const char *find(const char *text, size_t n, const char *mark)
{
    return memmem(text, n, mark, strlen(mark));
}

/* Handles the first mark in held[at..]; false when there is none: *at is then where to wait for more. */
static bool step(struct chat_parser *p, size_t *at, chat_event_fn fn, void *ctx)
{
    const char *text = p->held.p + *at;
    size_t n = p->held.n - *at;
    if (p->state == IN_CALL) { /* text begins with the opening mark */
        size_t n_open = strlen(p->marks->call_open);
        const char *hit = find(text + n_open, n - n_open, p->marks->call_close);
        if (!hit)
            return false;
        struct str body = {text + n_open, (size_t)(hit - text) - n_open};
        size_t length = (size_t)(hit - text) + strlen(p->marks->call_close);
        struct buf blanks = p->blanks;
        buf_init(&p->blanks, MAX_HELD_BYTES);
        bool ok = give_call(p, body, fn, ctx);
        enter(p, IN_CONTENT);
        if (!ok) {
            p->skips_newlines = false;
            buf_append(&p->blanks, blanks.p, blanks.n);
            give_text(p, text, length, fn, ctx);
        }
        buf_fini(&blanks);
        *at += length;
        return true;
    }
    const char *first = p->state == IN_THINKING ? p->marks->think_close : p->marks->think_open;
    const char *second = p->state == IN_THINKING ? NULL : p->marks->call_open;
    const char *hit = first ? find(text, n, first) : NULL;
    const char *call = second ? find(text, n, second) : NULL;
    if (call && (!hit || call < hit)) {
        give_text(p, text, (size_t)(call - text), fn, ctx);
        p->state = IN_CALL; /* the blanks before it come back if it turns out to be none */
        *at += (size_t)(call - text);
        return true;
    }
    if (hit) {
        give_text(p, text, (size_t)(hit - text), fn, ctx);
        *at += (size_t)(hit - text) + strlen(first);
        enter(p, p->state == IN_THINKING ? IN_CONTENT : IN_THINKING);
        return true;
    }
    size_t wait = first ? partial_mark(text, n, first) : 0;
    if (second && partial_mark(text, n, second) > wait)
        wait = partial_mark(text, n, second);
    give_text(p, text, n - wait, fn, ctx);
    *at += n - wait;
    return false;
}

void chat_parser_push(struct chat_parser *p, const char *text, size_t n, chat_event_fn fn, void *ctx)
{
    size_t at = 0;
    if (n == 0)
        return;
    if (p->state == IN_CALL) {
        /* looking again at a long call for every piece would take quadratic time */
        size_t n_close = strlen(p->marks->call_close);
        size_t from = p->held.n > n_close ? p->held.n - n_close : 0;
        buf_append(&p->held, text, n);
        if (!p->held.failed && !find(p->held.p + from, p->held.n - from, p->marks->call_close))
            return;
    } else {
        buf_append(&p->held, text, n);
    }
    if (p->held.failed) { /* a call without end: it is text after all */
        p->held.failed = false;
        p->state = IN_CONTENT;
        give_text(p, p->held.p, p->held.n, fn, ctx);
        buf_clear(&p->held);
        give_text(p, text, n, fn, ctx);
        return;
    }
    while (at < p->held.n && step(p, &at, fn, ctx)) {
    }
    memmove(p->held.p, p->held.p + at, p->held.n - at);
    p->held.n -= at;
}

void chat_parser_finish(struct chat_parser *p, chat_event_fn fn, void *ctx)
{
    /* blanks at the end of thinking or behind a call belong to the form, those at the end of content don't */
    if (p->state == IN_CALL)
        p->state = IN_CONTENT;
    if (p->held.n > 0)
        give_text(p, p->held.p, p->held.n, fn, ctx);
    if (p->state == IN_CONTENT && !p->skips_newlines)
        give(fn, ctx, CHAT_CONTENT, p->blanks.p, p->blanks.n);
    buf_clear(&p->held);
    buf_clear(&p->blanks);
}
