/* llama-server's helpers: /tokenize, /detokenize, /apply-template, counts of prompts; and what is not offered. */
#include <stdlib.h>
#include <string.h>
#include "base/utf8.h"
#include "server/chat_messages.h"
#include "server/prompt_list.h"
#include "server/server_internal.h"

/* A request with a body, on the way through one of the functions below. */
struct helper {
    struct server *server;
    struct fields fields;
    struct str body;
    struct ask ask;
    struct buf out;
};

static void run(struct server *s, struct exchange *x, enum api api, bool (*fn)(struct helper *h))
{
    struct problem p = {0};
    struct helper h = {.server = s, .body = exchange_body(x)};
    cJSON *root = NULL;
    bool ok = body_parse(&root, h.body, &p);
    h.fields = (struct fields){root, "", &p};
    buf_init(&h.out, ANSWER_BYTES_MAX);
    ok = ok && ask_begin(&h.ask, s->models, &h.fields) && fn(&h);
    if (ok)
        reply_json(x, 200, &h.out);
    else
        reply_problem(s, x, api, &p);
    ask_end(&h.ask, s->models);
    buf_fini(&h.out);
    cJSON_Delete(root);
}

static void put_piece(struct helper *h, int32_t id)
{
    char bytes[1024];
    size_t n = 0;
    (void)mk_token_bytes(mk_package_tokenizer(model_package(h->ask.model)), id, MK_SPECIAL, bytes,
                         sizeof bytes, &n, NULL);
    buf_puts(&h->out, "{");
    put_key_int(&h->out, "id", id);
    put_key(&h->out, "piece");
    if (utf8_valid_prefix(bytes, n) == n) {
        json_put_string(&h->out, bytes, n);
    } else {
        buf_puts(&h->out, "[");
        for (size_t i = 0; i < n; i++)
            buf_printf(&h->out, i ? ",%u" : "%u", (unsigned)(unsigned char)bytes[i]);
        buf_puts(&h->out, "]");
    }
    buf_puts(&h->out, "}");
}

static bool tokenize(struct helper *h)
{
    const cJSON *content = fields_get(&h->fields, "content");
    bool adds_special = false, parses_special = true, with_pieces = false;
    int32_t *ids = NULL;
    size_t n = 0;
    if (!fields_bool(&h->fields, "add_special", &adds_special) ||
        !fields_bool(&h->fields, "parse_special", &parses_special) ||
        !fields_bool(&h->fields, "with_pieces", &with_pieces) ||
        (content && !prompt_list_tokens(&h->ask, &h->fields, "content", content,
                                        adds_special ? (uint32_t)MK_SPECIAL : 0, &ids, &n)))
        return false;
    if (!parses_special) {
        free(ids);
        return problem_bad(h->fields.problem, "unsupported_parameter", "parse_special",
                           "names of special tokens in a text are always such tokens: expected parse_special "
                           "absent or true");
    }
    buf_puts(&h->out, "{\"tokens\":[");
    for (size_t i = 0; i < n; i++) {
        buf_puts(&h->out, i ? "," : "");
        if (with_pieces)
            put_piece(h, ids[i]);
        else
            buf_printf(&h->out, "%d", ids[i]);
    }
    buf_puts(&h->out, "]}");
    free(ids);
    return true;
}

void post_tokenize(struct server *s, struct exchange *x)
{
    run(s, x, API_OPENAI, tokenize);
}

static bool detokenize(struct helper *h)
{
    const cJSON *tokens = NULL;
    int32_t *ids = NULL;
    size_t n = 0, bytes = 0;
    mk_text *text = NULL;
    mk_error *error = NULL;
    if (!fields_item(&h->fields, "tokens", cJSON_Array, &tokens) ||
        (tokens && !prompt_list_tokens(&h->ask, &h->fields, "tokens", tokens, 0, &ids, &n)))
        return false;
    mk_status status =
        mk_detokenize(mk_package_tokenizer(model_package(h->ask.model)), ids, n, MK_SPECIAL, &text, &error);
    free(ids);
    if (status != MK_OK)
        return problem_take(h->fields.problem, "tokens", error);
    const char *data = mk_text_data(text, &bytes);
    buf_puts(&h->out, "{");
    put_key_text(&h->out, "content", data, bytes);
    buf_puts(&h->out, "}");
    mk_text_free(text);
    return true;
}

void post_detokenize(struct server *s, struct exchange *x)
{
    run(s, x, API_OPENAI, detokenize);
}

/* The prompt of a chat request; too long ones, too. */
static bool render(struct helper *h, char **text)
{
    struct chat_prompt prompt;
    bool continues = true;
    chat_prompt_init(&prompt);
    bool ok =
        chat_prompt_read_options(&prompt, &h->fields, h->body, &continues) &&
        chat_prompt_read_messages(&prompt, &h->fields, continues) &&
        chat_prompt_read_tools(&prompt, &h->fields, h->body, &h->ask) &&
        (chat_prompt_render(&prompt, &h->ask, text, h->fields.problem) || h->fields.problem->n_context > 0);
    chat_prompt_fini(&prompt);
    return ok;
}

static bool apply_template(struct helper *h)
{
    char *text = NULL;
    bool ok = render(h, &text);
    if (ok) {
        buf_puts(&h->out, "{");
        put_key_string(&h->out, "prompt", text);
        buf_puts(&h->out, "}");
    }
    free(text);
    return ok;
}

void post_apply_template(struct server *s, struct exchange *x)
{
    run(s, x, API_OPENAI, apply_template);
}

static bool count_chat(struct helper *h)
{
    if (!render(h, NULL))
        return false;
    buf_puts(&h->out, "{\"object\":\"chat.completion.input_tokens\"");
    put_key_int(&h->out, "input_tokens", (long long)h->ask.job.n_prompt);
    buf_puts(&h->out, "}");
    return true;
}

void post_chat_input_tokens(struct server *s, struct exchange *x)
{
    run(s, x, API_OPENAI, count_chat);
}

static void refuse(struct server *s, struct exchange *x, enum api api)
{
    struct problem p;
    problem_bad(&p, "unsupported_endpoint", NULL,
                "this server runs language models; it does not answer %.100s", exchange_path(x));
    reply_problem(s, x, api, &p);
}

void post_unsupported(struct server *s, struct exchange *x)
{
    refuse(s, x, API_OPENAI);
}

void post_unsupported_ollama(struct server *s, struct exchange *x)
{
    refuse(s, x, API_OLLAMA);
}
