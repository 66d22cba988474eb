/* Messages to the tokens that the model sees, and its answer back to a message. */
#include "chat/conversation.h"
#include <stdlib.h>
#include <string.h>
#include "format/json.h"
#include "runtime/vocabulary.h"

#define RENDER_BYTES_MAX ((size_t)256 << 20)
/* Of the context, what is left to an answer before the oldest messages go: one part of so many. */
#define ANSWER_SHARE 4

static bool tell(const struct conversation *c, const struct conversation_event *event, struct err *e)
{
    return !c->on_event || c->on_event(c->context, event, e);
}

/* --- messages --- */

static void message_fini(struct message *m)
{
    free(m->content);
    free(m->reasoning);
    free(m->calls);
    free(m->name);
    free(m->call_id);
}

void conversation_add(struct conversation *c, const struct message *m)
{
    c->messages = mem_grow(c->messages, c->n, &c->capacity, sizeof *c->messages);
    c->messages[c->n++] = *m;
}

static struct message *message_add(struct conversation *c, enum message_role role, const char *text,
                                   size_t bytes)
{
    struct message m = {.role = role, .content = xmalloc(bytes + 1), .bytes = bytes};
    if (bytes > 0)
        memcpy(m.content, text, bytes);
    m.content[bytes] = '\0';
    conversation_add(c, &m);
    return &c->messages[c->n - 1];
}

static void put_messages(const struct conversation *c, struct buf *out)
{
    buf_puts(out, "[");
    if (c->system)
        chat_put_message(out, "system", c->system, strlen(c->system), NULL);
    for (size_t i = c->n_dropped; i < c->n; i++) {
        const struct message *m = &c->messages[i];
        chat_put_message(out, conversation_role_name(m->role), m->content, m->bytes, m->reasoning);
        if (!out->failed) {
            out->n--; /* the brace that ends the message */
            conversation_put_more(m, out);
            buf_puts(out, "}");
        }
    }
    buf_puts(out, "]");
}

/* --- messages to text --- */

static void put_options(const struct conversation *c, struct buf *out)
{
    buf_puts(out, "{\"add_generation_prompt\": true");
    if (c->think != THINK_AUTO)
        buf_printf(out, ", \"enable_thinking\": %s", c->think == THINK_ON ? "true" : "false");
    struct str args = c->template_args;
    while (args.n > 0 && args.p[0] != '{')
        args = (struct str){args.p + 1, args.n - 1};
    if (args.n > 0) {
        size_t at = 1;
        while (at < args.n && strchr(" \t\r\n", args.p[at]))
            at++;
        buf_puts(out, args.p[at] == '}' ? "" : ", ");
        buf_append(out, args.p + at, args.n - at); /* the brace at its end closes the object */
    } else {
        buf_puts(out, "}");
    }
}

/* Without a template the texts follow each other, a line break between what was said and what comes next. */
static bool render_plain(const struct conversation *c, struct jinja_output *out, struct err *e)
{
    struct buf text;
    buf_init(&text, RENDER_BYTES_MAX);
    if (c->system && c->system[0])
        buf_printf(&text, "%s\n", c->system);
    for (size_t i = c->n_dropped; i < c->n; i++) {
        const struct message *m = &c->messages[i];
        if (i > c->n_dropped && c->messages[i - 1].role == MESSAGE_ANSWER)
            buf_puts(&text, "\n");
        buf_append(&text, m->content, m->bytes);
    }
    *out = (struct jinja_output){.parts = xcalloc(1, sizeof *out->parts), .n_parts = 1};
    bool ok =
        !text.failed || err_set(e, ERR_LIMIT, "a conversation of more than %zu bytes", RENDER_BYTES_MAX);
    out->text = buf_take(&text, &out->bytes);
    out->parts[0] = (struct jinja_part){0, out->bytes, true};
    return ok;
}

static bool render(const struct conversation *c, struct jinja_output *out, struct err *e)
{
    struct buf messages, options;
    bool ok;
    if (!c->template)
        return render_plain(c, out, e);
    buf_init(&messages, RENDER_BYTES_MAX);
    buf_init(&options, RENDER_BYTES_MAX);
    put_messages(c, &messages);
    put_options(c, &options);
    if (messages.failed || options.failed) {
        *out = (struct jinja_output){0};
        ok = err_set(e, ERR_LIMIT, "a conversation of more than %zu bytes", RENDER_BYTES_MAX);
    } else {
        const struct chat_request r = {.messages = {messages.p, messages.n},
                                       .tools = c->tools,
                                       .options = {options.p, options.n},
                                       .decode_arguments = true};
        ok = chat_render(c->template, &r, out, e);
    }
    buf_fini(&messages);
    buf_fini(&options);
    return ok;
}

/* --- text to ids --- */

static void known_cut(struct conversation *c, size_t n_marks)
{
    c->n_marks = n_marks;
    struct known_mark at = n_marks ? c->marks[n_marks - 1] : (struct known_mark){0};
    c->known_ids.n = at.n_ids;
    c->known_text.n = at.bytes;
    if (c->known_text.p)
        c->known_text.p[at.bytes] = '\0';
}

static void known_mark(struct conversation *c, bool is_prompt)
{
    c->marks = xrealloc(c->marks, (c->n_marks + 1) * sizeof *c->marks);
    c->marks[c->n_marks++] = (struct known_mark){c->known_text.n, c->known_ids.n, is_prompt};
}

/* ids of the text from byte `from` on */
static bool encode_from(const struct conversation *c, const struct jinja_output *text, size_t from,
                        struct ids *ids, struct err *e)
{
    if (!c->template)
        return tokenizer_encode(c->tokenizer, text->text + from, text->bytes - from, from == 0, ids, e);
    struct jinja_output rest = {.text = text->text + from, .bytes = text->bytes - from};
    rest.parts = xcalloc(text->n_parts ? text->n_parts : 1, sizeof *rest.parts);
    for (size_t i = 0; i < text->n_parts; i++) {
        struct jinja_part p = text->parts[i];
        if (p.end <= from)
            continue;
        p.begin = p.begin > from ? p.begin - from : 0;
        p.end -= from;
        rest.parts[rest.n_parts++] = p;
    }
    bool ok = chat_encode(c->tokenizer, &rest, false, ids, e);
    free(rest.parts);
    return ok;
}

/* Makes known_text the text and known_ids its ids, keeping what is known of its begin. Behind an answer its own tokens
 * end, so there the ids part only where a special token (or, without a template, the next text) begins. */
static bool encode(struct conversation *c, const struct jinja_output *text, struct err *e)
{
    size_t same = 0, most = text->bytes < c->known_text.n ? text->bytes : c->known_text.n;
    struct ids rest = {0};
    bool ok = true;
    while (same < most && text->text[same] == c->known_text.p[same])
        same++;
    for (size_t n = c->n_marks;; n--) {
        const struct known_mark *m = n > 0 ? &c->marks[n - 1] : NULL;
        if (m && (m->bytes > same || (m->is_prompt && m->bytes != text->bytes)))
            continue;
        size_t from = m ? m->bytes : 0;
        rest.n = 0;
        if (from < text->bytes && !encode_from(c, text, from, &rest, e)) {
            ok = false;
            break;
        }
        if (m && c->template && rest.n > 0 && !tokenizer_is_special(c->tokenizer, rest.p[0]))
            continue;
        known_cut(c, n);
        buf_append(&c->known_text, text->text + from, text->bytes - from);
        for (size_t i = 0; i < rest.n; i++)
            ids_push(&c->known_ids, rest.p[i]);
        break;
    }
    ids_free(&rest);
    ok = ok && vocabulary_check_ids(c->tokenizer, c->model->package->path, c->model->vocab_size,
                                    c->known_ids.p, c->known_ids.n, e);
    return ok && (!c->known_text.failed ||
                  err_set(e, ERR_LIMIT, "a conversation of more than %zu bytes", RENDER_BYTES_MAX));
}

/* The oldest message that has not been dropped and what belongs to it up to the user's next one; never the last message. */
static bool drop_oldest(struct conversation *c)
{
    size_t next = c->n_dropped + 1;
    while (next < c->n && c->messages[next].role != MESSAGE_USER)
        next++;
    if (next >= c->n)
        return false;
    c->n_dropped = next;
    return true;
}

static bool make_prompt(struct conversation *c, bool *opens_thinking, struct err *e)
{
    int64_t context = c->model->context_length;
    int64_t room = context / ANSWER_SHARE;
    size_t n_dropped = c->n_dropped;
    if (c->max_tokens >= 0 && c->max_tokens < room)
        room = c->max_tokens;
    for (bool is_full = false;; is_full = true) {
        struct jinja_output text = {0};
        bool ok = render(c, &text, e) && encode(c, &text, e);
        *opens_thinking = ok && c->template &&
                          chat_prompt_opens_thinking(chat_template_style(c->template), text.text, text.bytes);
        jinja_output_free(&text);
        if (!ok)
            return false;
        /* What goes makes room for some turns, since all that stays is computed again. */
        int64_t n_ids = (int64_t)c->known_ids.n;
        if ((n_ids + room <= context && (!is_full || n_ids <= context / 2)) || !drop_oldest(c))
            break;
    }
    if (c->known_ids.n == 0)
        return err_set(e, ERR_USAGE, "the message is empty: there is nothing to answer");
    if ((int64_t)c->known_ids.n > context)
        return err_set(e, ERR_LIMIT,
                       "the message with what belongs to it has %zu tokens, the package's context holds %lld",
                       c->known_ids.n, (long long)context);
    const struct conversation_event dropped = {
        .kind = CONVERSATION_DROPPED, .n_dropped = c->n_dropped - n_dropped, .n_tokens = c->known_ids.n};
    return dropped.n_dropped == 0 || tell(c, &dropped, e);
}

/* --- the answer --- */

struct answer {
    struct conversation *conversation;
    struct token_stream *stream;
    struct chat_parser *parser;
    struct buf piece, raw, content, reasoning, calls;
    bool skips_special, has_hidden; /* a token that is not in the text */
    bool is_refused;                /* who listens wants no more of it */
    struct err problem;             /* why */
};

static void tell_of_answer(struct answer *a, const struct conversation_event *event)
{
    if (!a->is_refused || event->kind == CONVERSATION_ENDS)
        a->is_refused = !tell(a->conversation, event, &a->problem) || a->is_refused;
}

static void on_event(void *context, const struct chat_event *event)
{
    struct answer *a = context;
    if (event->kind == CHAT_CONTENT) {
        buf_append(&a->content, event->text.p, event->text.n);
    } else if (event->kind == CHAT_REASONING) {
        buf_append(&a->reasoning, event->text.p, event->text.n);
    } else {
        buf_puts(&a->calls, a->calls.n ? ", " : "[");
        buf_puts(&a->calls, "{\"type\": \"function\", \"function\": {\"name\": ");
        json_put_string(&a->calls, event->name.p, event->name.n);
        buf_puts(&a->calls, ", \"arguments\": ");
        buf_append(&a->calls, event->text.p, event->text.n);
        buf_puts(&a->calls, "}}");
    }
    tell_of_answer(a, &(struct conversation_event){.kind = CONVERSATION_PIECE, .piece = event});
}

static bool push_piece(struct answer *a, struct err *e)
{
    if (a->piece.n > 0) {
        buf_append(&a->raw, a->piece.p, a->piece.n);
        chat_parser_push(a->parser, a->piece.p, a->piece.n, on_event, a);
    }
    if (a->is_refused)
        *e = a->problem;
    return !a->is_refused;
}

static bool on_token(void *context, int32_t id, struct err *e)
{
    struct answer *a = context;
    buf_clear(&a->piece);
    if (a->skips_special && tokenizer_is_special(a->conversation->tokenizer, id))
        a->has_hidden = true;
    return token_stream_push(a->stream, id, &a->piece, e) && push_piece(a, e);
}

static void answer_init(struct answer *a, struct conversation *c, bool opens_thinking)
{
    enum chat_style style = c->template ? chat_template_style(c->template) : CHAT_PLAIN;
    /* Gemma's marks are special tokens. */
    *a = (struct answer){.conversation = c, .skips_special = style != CHAT_GEMMA};
    a->stream = token_stream_new(c->tokenizer, a->skips_special);
    a->parser = chat_parser_new(style, opens_thinking, c->tools);
    struct buf *bufs[] = {&a->piece, &a->raw, &a->content, &a->reasoning, &a->calls};
    for (size_t i = 0; i < sizeof bufs / sizeof *bufs; i++)
        buf_init(bufs[i], MESSAGE_BYTES_MAX);
}

static void answer_fini(struct answer *a)
{
    struct buf *bufs[] = {&a->piece, &a->raw, &a->content, &a->reasoning, &a->calls};
    for (size_t i = 0; i < sizeof bufs / sizeof *bufs; i++)
        buf_fini(bufs[i]);
    token_stream_free(a->stream);
    chat_parser_free(a->parser);
}

static bool feed_prompt(struct conversation *c, struct err *e)
{
    struct progress progress;
    struct turn_stats *s = &c->last;
    size_t reused = 0;
    *s = (struct turn_stats){.n_prompt = (int64_t)c->known_ids.n};
    double start = clock_seconds();
    progress_begin(&progress, c->log, "prompt", "tokens", 1, (double)c->known_ids.n);
    bool ok = session_sync(c->session, c->known_ids.p, c->known_ids.n, &progress, &reused, e);
    progress_end(&progress);
    s->n_reused = (int64_t)reused;
    s->prompt_seconds = clock_seconds() - start;
    return ok && !log_cancelled(c->log, e);
}

static void keep_answer(struct conversation *c, struct answer *a)
{
    struct message *m = message_add(c, MESSAGE_ANSWER, a->content.p, a->content.n);
    m->reasoning = a->reasoning.n ? buf_take(&a->reasoning, NULL) : NULL;
    if (a->calls.n) {
        buf_puts(&a->calls, "]");
        m->calls = buf_take(&a->calls, NULL);
    }
    if (!a->has_hidden && !a->raw.failed) {
        buf_append(&c->known_text, a->raw.p, a->raw.n);
        known_mark(c, false);
    }
    c->total.n_prompt += c->last.n_prompt;
    c->total.n_reused += c->last.n_reused;
    c->total.n_generated += c->last.n_generated;
    c->total.prompt_seconds += c->last.prompt_seconds;
    c->total.answer_seconds += c->last.answer_seconds;
    c->n_turns++;
}

static bool is_blank(const struct buf *b)
{
    return !b->p || b->p[strspn(b->p, " \t\r\n")] == '\0';
}

static void tell_end(struct answer *a, bool ok)
{
    const struct conversation_event end = {.kind = CONVERSATION_ENDS,
                                           .has_failed = !ok || a->is_refused,
                                           .is_empty = is_blank(&a->content) && a->calls.n == 0 &&
                                                       a->conversation->max_tokens != 0,
                                           .has_thinking = !is_blank(&a->reasoning)};
    tell_of_answer(a, &end);
}

static bool answer(struct conversation *c, struct err *e)
{
    struct answer a;
    bool opens_thinking = false;
    if (!make_prompt(c, &opens_thinking, e))
        return false;
    known_mark(c, true);
    if (!feed_prompt(c, e) || !tell(c, &(struct conversation_event){.kind = CONVERSATION_BEGINS}, e))
        return false;
    answer_init(&a, c, opens_thinking);
    const struct generate g = {.model = c->model,
                               .session = c->session,
                               .sampler = c->sampler,
                               .limit = c->max_tokens >= 0 ? c->max_tokens : c->model->context_length,
                               .ignore_eos = c->ignore_eos,
                               .stops = &c->turn_end,
                               .n_stops = c->turn_end >= 0 && !c->ignore_eos ? 1 : 0,
                               .log = c->log,
                               .on_token = on_token,
                               .context = &a};
    double start = clock_seconds();
    bool ok = generate_tokens(&g, &c->known_ids, &c->last.n_generated, &c->last.end, e);
    c->last.answer_seconds = clock_seconds() - start;
    buf_clear(&a.piece);
    ok = ok && token_stream_flush(a.stream, &a.piece, e) && push_piece(&a, e);
    chat_parser_finish(a.parser, on_event, &a);
    if (ok && (a.content.failed || a.reasoning.failed || a.calls.failed))
        ok = err_set(e, ERR_LIMIT, "an answer of more than %zu bytes", MESSAGE_BYTES_MAX);
    tell_end(&a, ok);
    if (ok && a.is_refused) {
        *e = a.problem;
        ok = false;
    }
    if (ok)
        keep_answer(c, &a);
    answer_fini(&a);
    return ok;
}

bool conversation_say(struct conversation *c, const char *text, size_t bytes, struct err *e)
{
    size_t n = c->n, n_dropped = c->n_dropped;
    message_add(c, MESSAGE_USER, text, bytes);
    if (answer(c, e))
        return true;
    message_fini(&c->messages[n]);
    c->n = n;
    c->n_dropped = n_dropped;
    return false;
}

bool conversation_answer(struct conversation *c, struct err *e)
{
    size_t n_dropped = c->n_dropped;
    if (c->n == 0 || c->messages[c->n - 1].role == MESSAGE_ANSWER)
        return err_set(e, ERR_USAGE, "there is no message to answer");
    if (answer(c, e))
        return true;
    c->n_dropped = n_dropped;
    return false;
}

bool conversation_undo(struct conversation *c, struct err *e)
{
    size_t n = c->n;
    while (n > 0 && c->messages[n - 1].role != MESSAGE_USER)
        n--;
    if (n == 0)
        return err_set(e, ERR_USAGE, "there is no message of yours to take back");
    while (c->n >= n)
        message_fini(&c->messages[--c->n]);
    c->n_dropped = c->n_dropped < c->n ? c->n_dropped : c->n;
    return true;
}

bool conversation_answer_again(struct conversation *c, struct err *e)
{
    size_t n_dropped = c->n_dropped, n = c->n;
    if (n == 0)
        return err_set(e, ERR_USAGE, "there is nothing to answer yet");
    /* The old answer goes when there is a new one. */
    struct message old = c->messages[n - 1];
    bool had_answer = old.role == MESSAGE_ANSWER;
    c->n -= had_answer;
    if (c->n == 0 || (had_answer && c->n_dropped >= c->n)) {
        c->n = n;
        return err_set(e, ERR_USAGE, "there is no message of yours to answer");
    }
    if (answer(c, e)) {
        if (had_answer)
            message_fini(&old);
        return true;
    }
    if (had_answer)
        c->messages[c->n++] = old;
    c->n_dropped = n_dropped;
    return false;
}

/* --- as a whole --- */

void conversation_clear(struct conversation *c)
{
    for (size_t i = 0; i < c->n; i++)
        message_fini(&c->messages[i]);
    c->n = 0;
    c->n_dropped = 0;
}

void conversation_set_system(struct conversation *c, const char *text)
{
    free(c->system);
    c->system = text && text[0] ? xstrdup(text) : NULL;
}

bool conversation_set_sampling(struct conversation *c, const struct sampling_options *o, struct err *e)
{
    struct sampler *sampler = NULL;
    struct sampler_options chosen;
    if (!sampling_open(&sampler, &chosen, o, c->model, c->log, e))
        return false;
    sampler_free(c->sampler);
    c->sampler = sampler;
    c->chosen = chosen;
    c->sampling = *o;
    return true;
}

/* A template that can't be read is found now and not with the first message; what it says about messages, then. */
static bool check_template(struct conversation *c, struct err *e)
{
    struct jinja_output text = {0};
    char trial[] = "Hello";
    struct message m = {.content = trial, .bytes = strlen(trial)};
    struct message *messages = c->messages;
    c->messages = &m;
    c->n = 1;
    bool ok = render(c, &text, e) || text.raised;
    c->messages = messages;
    c->n = 0;
    jinja_output_free(&text);
    return ok;
}

/* The token that the template puts behind an answer, or -1. Only marks count: special tokens, and those that models are
 * known to end a turn with. */
static int32_t find_turn_end(struct conversation *c)
{
    static const char *const marks[] = {"<|im_end|>", "<|eot_id|>", "<end_of_turn>",   "<turn|>",
                                        "<|end|>",    "<|eot|>",    "<|end_of_turn|>", "</s>"};
    char question[] = "Hello", answer[] = "milkit-trial-answer";
    struct message trial[] = {{.content = question, .bytes = strlen(question)},
                              {.role = MESSAGE_ANSWER, .content = answer, .bytes = strlen(answer)}};
    struct message *messages = c->messages;
    struct jinja_output text = {0};
    struct ids ids = {0};
    int32_t found = -1;
    c->messages = trial;
    c->n = 2;
    bool ok = render(c, &text, NULL);
    c->messages = messages;
    c->n = 0;
    size_t at = ok ? text.bytes : 0; /* behind the last place where the answer stands */
    while (at >= strlen(answer) && memcmp(text.text + at - strlen(answer), answer, strlen(answer)) != 0)
        at--;
    ok = ok && at >= strlen(answer);
    while (ok && at < text.bytes && strchr(" \t\r\n", text.text[at]))
        at++;
    if (ok && at < text.bytes && encode_from(c, &text, at, &ids, NULL) && ids.n > 0) {
        const char *token = tokenizer_token(c->tokenizer, ids.p[0]);
        bool is_mark = tokenizer_is_special(c->tokenizer, ids.p[0]);
        for (size_t i = 0; token && i < sizeof marks / sizeof *marks; i++)
            is_mark = is_mark || strcmp(token, marks[i]) == 0;
        found = is_mark ? ids.p[0] : -1;
    }
    ids_free(&ids);
    jinja_output_free(&text);
    return found;
}

/* Fine-tunes often keep the configs of their base model, whose end of text is not the end of a turn. */
static void add_turn_end(struct conversation *c)
{
    int32_t id = c->template && !c->no_auto_stop ? find_turn_end(c) : -1;
    c->turn_end = id < 0 || package_is_eos(c->model->package, id) ? -1 : id;
    if (c->turn_end >= 0)
        log_debug(c->log, "an answer ends at %s (%d) too, as in the template; no config declares it",
                  tokenizer_token(c->tokenizer, id), id);
}

bool conversation_open(struct conversation *c, struct err *e)
{
    struct sampling_options sampling = c->sampling;
    buf_init(&c->known_text, RENDER_BYTES_MAX);
    if (!check_template(c, e))
        return false;
    add_turn_end(c);
    return conversation_set_sampling(c, &sampling, e);
}

void conversation_close(struct conversation *c)
{
    conversation_clear(c);
    free(c->messages);
    free(c->system);
    free(c->marks);
    buf_fini(&c->known_text);
    ids_free(&c->known_ids);
    sampler_free(c->sampler);
}
