/* Text in and out: ids, decoders, chat templates, answers taken apart. */
#include <stdlib.h>
#include <string.h>
#include "api/api_int.h"
#include "runtime/vocabulary.h"

#define TEXT_BYTES_MAX ((size_t)1 << 30)

static mk_status wrong_flags(uint32_t flags, mk_error **error)
{
    return api_usage(error, "flags: expected 0 or MK_SPECIAL, found %u", flags);
}

static bool encode(const mk_tokenizer *t, const char *text, size_t bytes, uint32_t flags, struct ids *out,
                   struct err *e)
{
    return api_needs_tokenizer(t, e) &&
           tokenizer_encode(t->tokenizer, text, bytes, (flags & MK_SPECIAL) != 0, out, e) &&
           (!t->has_model || vocabulary_check_ids(t->tokenizer, t->where, t->vocab_size, out->p, out->n, e));
}

mk_status mk_tokenize(const mk_tokenizer *t, const char *text, size_t bytes, uint32_t flags, int32_t *ids,
                      size_t capacity, size_t *n, mk_error **error)
{
    struct err e = {0};
    struct ids found = {0};
    *n = 0;
    if (flags & ~(uint32_t)MK_SPECIAL)
        return wrong_flags(flags, error);
    bool ok = encode(t, text, bytes, flags, &found, &e);
    if (ok) {
        *n = found.n;
        if (found.n > capacity)
            ok = err_set(&e, ERR_LIMIT, "%zu ids do not fit into a buffer of %zu", found.n, capacity);
        else if (found.n > 0)
            memcpy(ids, found.p, found.n * sizeof *ids);
    }
    ids_free(&found);
    return api_result(ok, &e, error);
}

mk_status mk_detokenize(const mk_tokenizer *t, const int32_t *ids, size_t n, uint32_t flags, mk_text **out,
                        mk_error **error)
{
    struct err e = {0};
    struct buf b;
    *out = NULL;
    if (flags & ~(uint32_t)MK_SPECIAL)
        return wrong_flags(flags, error);
    buf_init(&b, TEXT_BYTES_MAX);
    bool ok = api_needs_tokenizer(t, &e) &&
              tokenizer_decode(t->tokenizer, ids, n, (flags & MK_SPECIAL) == 0, &b, &e);
    if (ok && b.failed)
        ok = err_set(&e, ERR_LIMIT, "the text is longer than %zu bytes", TEXT_BYTES_MAX);
    if (ok) {
        size_t bytes;
        char *text = buf_take(&b, &bytes);
        *out = api_text_new(text, bytes);
    }
    buf_fini(&b);
    return api_result(ok, &e, error);
}

mk_status mk_token_bytes(const mk_tokenizer *t, int32_t id, uint32_t flags, char *bytes, size_t capacity,
                         size_t *n, mk_error **error)
{
    struct err e = {0};
    struct buf b;
    *n = 0;
    if (flags & ~(uint32_t)MK_SPECIAL)
        return wrong_flags(flags, error);
    buf_init(&b, TEXT_BYTES_MAX);
    bool ok = api_needs_tokenizer(t, &e) &&
              tokenizer_token_bytes(t->tokenizer, id, (flags & MK_SPECIAL) == 0, &b, &e);
    if (ok) {
        *n = b.n;
        if (b.n > capacity)
            ok = err_set(&e, ERR_LIMIT, "%zu bytes do not fit into a buffer of %zu", b.n, capacity);
        else if (b.n > 0)
            memcpy(bytes, b.p, b.n);
    }
    buf_fini(&b);
    return api_result(ok, &e, error);
}

/* ---- decoders ---- */

struct mk_decoder {
    mk_tokenizer *tokenizer;
    struct token_stream *stream;
    struct buf text;
};

mk_status mk_decoder_new(mk_decoder **out, const mk_tokenizer *t, uint32_t flags, mk_error **error)
{
    struct err e = {0};
    *out = NULL;
    if (flags & ~(uint32_t)MK_SPECIAL)
        return wrong_flags(flags, error);
    if (!api_needs_tokenizer(t, &e))
        return api_fail(&e, error);
    mk_decoder *d = xcalloc(1, sizeof *d);
    d->tokenizer = tokenizer_keep(t);
    d->stream = token_stream_new(t->tokenizer, (flags & MK_SPECIAL) == 0);
    buf_init(&d->text, TEXT_BYTES_MAX);
    *out = d;
    return api_result(true, NULL, error);
}

static mk_status give_text(mk_decoder *d, bool ok, const struct err *e, const char **text, size_t *n,
                           mk_error **error)
{
    *text = ok && d->text.p ? d->text.p : "";
    *n = ok ? d->text.n : 0;
    return api_result(ok, e, error);
}

mk_status mk_decoder_add(mk_decoder *d, int32_t id, const char **text, size_t *n, mk_error **error)
{
    struct err e = {0};
    buf_clear(&d->text);
    bool ok = token_stream_push(d->stream, id, &d->text, &e);
    return give_text(d, ok, &e, text, n, error);
}

mk_status mk_decoder_finish(mk_decoder *d, const char **text, size_t *n, mk_error **error)
{
    struct err e = {0};
    buf_clear(&d->text);
    bool ok = token_stream_flush(d->stream, &d->text, &e);
    return give_text(d, ok, &e, text, n, error);
}

void mk_decoder_free(mk_decoder *d)
{
    if (!d)
        return;
    token_stream_free(d->stream);
    buf_fini(&d->text);
    mk_tokenizer_close(d->tokenizer);
    free(d);
}

/* ---- chat templates ---- */

static struct str json_of(const char *text)
{
    return (struct str){.p = text, .n = text ? strlen(text) : 0};
}

/* A list of messages alone is a request, too. */
static bool read_request(const mk_template_request *r, struct chat_request *out, struct err *e)
{
    const char *where = r->where ? r->where : "messages";
    struct str json = {r->messages, r->messages_bytes ? r->messages_bytes : strlen(r->messages)};
    size_t at = 0;
    while (at < json.n && strchr(" \t\r\n", json.p[at]))
        at++;
    if (at < json.n && json.p[at] == '[')
        *out = (struct chat_request){.messages = json};
    else if (!chat_request_parse(out, json, where, e))
        return false;
    if (r->tools)
        out->tools = json_of(r->tools);
    if (r->options)
        out->options = json_of(r->options);
    out->template_name = r->name;
    out->decode_arguments = (r->flags & MK_TEMPLATE_RAW_ARGUMENTS) == 0;
    out->now = r->now;
    return true;
}

mk_status mk_template(const mk_tokenizer *t, const mk_template_request *request, mk_text **out,
                      mk_error **error)
{
    struct err e = {0};
    struct jinja_output text = {0};
    struct ids ids = {0};
    mk_template_request r;
    struct chat_request chat;
    *out = NULL;
    if (!request || !api_read_struct(&r, sizeof r, request) || !r.messages)
        return api_usage(error, "request: expected a structure with its size and messages");
    if (r.flags & ~(uint32_t)(MK_TEMPLATE_FLAT | MK_TEMPLATE_RAW_ARGUMENTS))
        return api_usage(error, "flags: expected MK_TEMPLATE_.., found %u", r.flags);
    bool ok =
        api_needs_template(t, &e) && read_request(&r, &chat, &e) &&
        chat_render(t->template, &chat, &text, &e) &&
        (!t->tokenizer || chat_encode(t->tokenizer, &text, (r.flags & MK_TEMPLATE_FLAT) != 0, &ids, &e));
    if (ok) {
        *out = api_text_new(text.text, text.bytes);
        (*out)->ids = ids.p;
        (*out)->n_ids = ids.n;
        text.text = NULL;
        ids = (struct ids){0};
    }
    mk_status status = api_result(ok, &e, error);
    if (!ok && error && text.raised)
        (*error)->detail = xstrdup(text.raised);
    jinja_output_free(&text);
    ids_free(&ids);
    return status;
}

struct mk_parser {
    struct chat_parser *parser;
    mk_part_fn fn;
    void *context;
    struct buf name;
};

mk_status mk_parser_new(mk_parser **out, const mk_tokenizer *t, const char *prompt, const char *tools,
                        mk_part_fn fn, void *context, mk_error **error)
{
    struct err e = {0};
    *out = NULL;
    if (!api_needs_template(t, &e))
        return api_fail(&e, error);
    enum chat_style style = chat_template_style(t->template);
    bool thinks = prompt && chat_prompt_opens_thinking(style, prompt, strlen(prompt));
    mk_parser *parser = xcalloc(1, sizeof *parser);
    parser->parser = chat_parser_new(style, thinks, json_of(tools));
    parser->fn = fn;
    parser->context = context;
    buf_init(&parser->name, 1 << 20);
    *out = parser;
    return api_result(true, NULL, error);
}

static void pass_event(void *context, const struct chat_event *event)
{
    mk_parser *parser = context;
    int32_t part = event->kind == CHAT_CONTENT     ? MK_PART_CONTENT
                   : event->kind == CHAT_REASONING ? MK_PART_REASONING
                                                   : MK_PART_TOOL_CALL;
    const char *name = NULL;
    if (part == MK_PART_TOOL_CALL) {
        buf_clear(&parser->name);
        buf_append(&parser->name, event->name.p, event->name.n);
        name = parser->name.p ? parser->name.p : "";
    }
    parser->fn(parser->context, part, event->text.p, event->text.n, name);
}

void mk_parser_push(mk_parser *parser, const char *text, size_t n)
{
    chat_parser_push(parser->parser, text, n, pass_event, parser);
}

void mk_parser_finish(mk_parser *parser)
{
    chat_parser_finish(parser->parser, pass_event, parser);
}

void mk_parser_free(mk_parser *parser)
{
    if (!parser)
        return;
    chat_parser_free(parser->parser);
    buf_fini(&parser->name);
    free(parser);
}
