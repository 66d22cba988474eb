// links: chat
/* Any bytes as a template with variables, split at the first NUL byte: text or an error, within small limits; parts cover
 * the text. And any bytes as a model's answer, taken apart in two ways that must agree. */
#include <stdlib.h>
#include <string.h>
#include "chat/chat.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void render(struct str text, struct str variables)
{
    struct err e = {0};
    struct jinja_template *t = NULL;
    struct jinja_output out = {0};
    const struct jinja_variable all = {.json = variables, .is_user = true};
    const struct jinja_options limits = {
        .now = 1, .max_steps = 200000, .max_output_bytes = 1 << 20, .max_arena_bytes = 32 << 20};
    if (!jinja_parse(&t, text.p, text.n, "fuzz", &e)) {
        if (t || !e.msg[0])
            abort();
        return;
    }
    if (jinja_render(t, &all, 1, &limits, &out, &e)) {
        size_t done = 0;
        for (size_t i = 0; i < out.n_parts; i++) {
            if (out.parts[i].begin != done || out.parts[i].end <= done)
                abort();
            done = out.parts[i].end;
        }
        if (done != out.bytes || out.bytes > limits.max_output_bytes)
            abort();
    } else if (!e.msg[0] || out.text) {
        abort();
    }
    jinja_output_free(&out);
    jinja_free(t);
}

struct answer {
    struct buf text[2];
    size_t n_calls;
};

static void take(void *ctx, const struct chat_event *event)
{
    struct answer *a = ctx;
    if (event->kind == CHAT_TOOL_CALL)
        a->n_calls++;
    else
        buf_append(&a->text[event->kind == CHAT_REASONING], event->text.p, event->text.n);
}

static void parse(const char *text, size_t n, enum chat_style style, size_t step, struct answer *a)
{
    struct chat_parser *p = chat_parser_new(style, n % 2, (struct str){0});
    for (size_t at = 0; at < n; at += step)
        chat_parser_push(p, text + at, n - at < step ? n - at : step, take, a);
    chat_parser_finish(p, take, a);
    chat_parser_free(p);
}

static bool same(const struct buf *a, const struct buf *b)
{
    return a->n == b->n && (a->n == 0 || memcmp(a->p, b->p, a->n) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *p = (const char *)data;
    const char *nul = size > 0 ? memchr(p, 0, size) : NULL;
    struct str text = {p, nul ? (size_t)(nul - p) : size}, variables = {"{}", 2};
    if (nul)
        variables = (struct str){nul + 1, size - text.n - 1};
    render(text, variables);
    for (int style = CHAT_PLAIN; style <= CHAT_GEMMA; style++) {
        struct answer a[2] = {0};
        for (int i = 0; i < 4; i++)
            buf_init(&a[i / 2].text[i % 2], size * 2 + 1);
        parse(p, size, (enum chat_style)style, 3, &a[0]);
        parse(p, size, (enum chat_style)style, size + 1, &a[1]);
        if (a[0].n_calls != a[1].n_calls || !same(&a[0].text[0], &a[1].text[0]) ||
            !same(&a[0].text[1], &a[1].text[1]))
            abort();
        for (int i = 0; i < 4; i++)
            buf_fini(&a[i / 2].text[i % 2]);
    }
    return 0;
}
