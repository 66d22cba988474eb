/* Health and the list of models. */
#include <string.h>
#include "server/server_internal.h"

#define STALL_SECONDS 120

void get_health(struct server *s, struct exchange *x)
{
    static const char ok[] = "{\"status\":\"ok\"}";
    struct problem p = {0};
    double stalled = models_stalled_seconds(s->models);
    if (atomic_load(&s->is_stopping))
        problem_set(&p, 503, "unavailable_error", "shutting_down", NULL, "the server is shutting down");
    else if (!atomic_load(&s->is_ready))
        problem_set(&p, 503, "unavailable_error", "loading", NULL, "Loading model");
    else if (stalled > STALL_SECONDS)
        problem_set(&p, 503, "unavailable_error", "stalled", NULL, "no step for %.0f s, though there is work",
                    stalled);
    p.retry_after_s = 1;
    if (p.status)
        reply_problem(s, x, API_OPENAI, &p);
    else
        exchange_answer(x, 200, JSON_TYPE, ok, sizeof ok - 1);
}

static void put_model(struct server *s, int i, struct buf *b)
{
    struct model *model = models_take_open(s->models, i);
    buf_puts(b, "{");
    put_key_string(b, "id", models_name(s->models, i));
    put_key_string(b, "object", "model");
    put_key_int(b, "created", model ? model_opened(model) : 0);
    put_key_string(b, "owned_by", "milkit");
    put_key_raw(b, "aliases", "[]");
    put_key(b, "meta");
    if (model) {
        const mk_package *p = model_package(model);
        buf_puts(b, "{");
        put_key_int(b, "n_vocab", mk_package_vocab_size(p));
        put_key_int(b, "n_ctx", mk_package_context_length(p));
        put_key_int(b, "n_ctx_train", mk_package_context_length(p));
        buf_puts(b, "}");
    } else {
        buf_puts(b, "null");
    }
    buf_puts(b, "}");
    models_give_back(s->models, model);
}

void get_models(struct server *s, struct exchange *x)
{
    struct buf b;
    int n = models_count(s->models);
    buf_init(&b, ANSWER_BYTES_MAX);
    buf_puts(&b, "{");
    put_key_string(&b, "object", "list");
    put_key(&b, "data");
    for (int i = 0; i < n; i++) {
        buf_puts(&b, i ? "," : "[");
        put_model(s, i, &b);
    }
    buf_puts(&b, "]");
    put_key_raw(&b, "has_more", "false");
    put_key_string(&b, "first_id", models_name(s->models, 0));
    put_key_string(&b, "last_id", models_name(s->models, n - 1));
    buf_puts(&b, "}");
    reply_json(x, 200, &b);
    buf_fini(&b);
}

void get_model(struct server *s, struct exchange *x)
{
    struct problem p = {0};
    struct buf b;
    const char *name = exchange_path(x) + strlen("/v1/models/");
    int i = models_find(s->models, name);
    if (i < 0) {
        problem_model(&p, name);
        reply_problem(s, x, API_OPENAI, &p);
        return;
    }
    buf_init(&b, ANSWER_BYTES_MAX);
    put_model(s, i, &b);
    reply_json(x, 200, &b);
    buf_fini(&b);
}
