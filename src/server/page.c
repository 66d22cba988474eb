/* The page, under a policy that lets exactly its own script and style run, and the view of a package that it asks for. */
#include "server/page.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "format/json.h"
#include "format/mlmodelc.h"
#include "server/server_internal.h"

/* "sha256-..." of what stands between the tags. */
static void put_hash(struct buf *out, const char *open, const char *close)
{
    uint8_t digest[32];
    const char *begin = strstr((const char *)page_text, open);
    begin = begin ? begin + strlen(open) : "";
    const char *end = strstr(begin, close);
    sha256(digest, begin, end ? (size_t)(end - begin) : 0);
    base64_encode(out, digest, sizeof digest);
}

void page_headers_init(struct page_headers *h)
{
    uint8_t digest[32];
    struct buf policy;
    buf_init(&policy, sizeof h->policy - 1);
    buf_puts(&policy, "default-src 'none'; script-src 'sha256-");
    put_hash(&policy, "<script>", "</script>");
    buf_puts(&policy, "'; style-src 'sha256-");
    put_hash(&policy, "<style>", "</style>");
    buf_puts(
        &policy,
        "'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'");
    snprintf(h->policy, sizeof h->policy, "%.*s", (int)policy.n, policy.p);
    buf_fini(&policy);
    sha256(digest, page_text, page_size);
    h->etag[0] = '"';
    for (int i = 0; i < 16; i++)
        snprintf(h->etag + 1 + 2 * i, 3, "%02x", digest[i]);
    strcat(h->etag, "\"");
}

/* Clients of Ollama look here whether anybody is there. */
static bool wants_text(const struct exchange *x)
{
    const char *accept = exchange_header(x, "Accept");
    return strcmp(exchange_method(x), "HEAD") == 0 || !accept || !strstr(accept, "text/html");
}

void get_page(struct server *s, struct exchange *x)
{
    static const char running[] = "Ollama is running";
    const char *known = exchange_header(x, "If-None-Match");
    if (!s->o->has_page) {
        struct problem p = {0};
        problem_set(&p, 404, "not_found_error", NULL, NULL, "this server has no page");
        reply_problem(s, x, API_OPENAI, &p);
        return;
    }
    exchange_set_header(x, "Vary", "Accept");
    if (wants_text(x)) {
        exchange_answer(x, 200, "text/plain; charset=utf-8", running, sizeof running - 1);
        return;
    }
    exchange_set_header(x, "ETag", s->page.etag);
    exchange_set_header(x, "Content-Security-Policy", s->page.policy);
    exchange_set_header(x, "X-Content-Type-Options", "nosniff");
    exchange_set_header(x, "Referrer-Policy", "no-referrer");
    exchange_set_header(x, "Cross-Origin-Resource-Policy", "same-origin");
    exchange_set_header(x, "Cross-Origin-Opener-Policy", "same-origin");
    if (known && strcmp(known, s->page.etag) == 0)
        exchange_answer(x, 304, NULL, "", 0);
    else
        exchange_answer(x, 200, "text/html; charset=utf-8", (const char *)page_text, page_size);
}

/* ---- the view of a package ---- */

static void copy(cJSON *to, const cJSON *from, const char *key)
{
    const cJSON *item = json_get(from, key);
    if (item)
        cJSON_AddItemToObject(to, key, cJSON_Duplicate(item, true));
}

static double add_states(cJSON *states, const cJSON *functions)
{
    double bytes = 0;
    for (const cJSON *s = cJSON_IsArray(functions) && functions->child
                              ? json_get(functions->child, "states")->child
                              : NULL;
         s; s = s->next) {
        cJSON *state = cJSON_CreateObject();
        copy(state, s, "name");
        copy(state, s, "type");
        copy(state, s, "bytes");
        cJSON_AddItemToArray(states, state);
        bytes += json_get(s, "bytes") ? json_get(s, "bytes")->valuedouble : 0;
    }
    return bytes;
}

/* What a model of the package is made of: its functions, and the widths of its weights. Returns the bytes of its states. */
static double add_model(cJSON *models, cJSON *states, const cJSON *m)
{
    cJSON *model = cJSON_CreateObject();
    const cJSON *functions = json_get(m, "functions"), *weights = json_get(m, "weights"),
                *types = json_get(weights, "dtypes");
    copy(model, m, "path");
    cJSON *names = cJSON_AddArrayToObject(model, "functions"),
          *widths = cJSON_AddArrayToObject(model, "widths");
    for (const cJSON *f = functions ? functions->child : NULL; f; f = f->next)
        if (json_get(f, "name"))
            cJSON_AddItemToArray(names, cJSON_Duplicate(json_get(f, "name"), true));
    for (const cJSON *t = types ? types->child : NULL; t; t = t->next) {
        cJSON *width = cJSON_CreateObject();
        cJSON_AddStringToObject(width, "dtype", t->string);
        copy(width, t, "bytes");
        cJSON_AddItemToArray(widths, width);
    }
    cJSON_AddItemToObject(
        model, "bytes",
        cJSON_CreateNumber(json_get(weights, "bytes") ? json_get(weights, "bytes")->valuedouble : 0));
    cJSON_AddItemToArray(models, model);
    return add_states(states, functions);
}

static char *describe(struct model *model, const char *inspected)
{
    static const char *const same[] = {"name",       "architecture", "context_length",
                                       "batch_size", "vocab_size",   "hidden_size"};
    struct err e = {0};
    cJSON *report = NULL, *info = NULL, *out = cJSON_CreateObject();
    const mk_package *p = model_package(model);
    bool ok = json_parse(&report, inspected, strlen(inspected), "report", &e) &&
              json_parse(&info, mk_package_info(p), strlen(mk_package_info(p)), "package", &e);
    cJSON_AddStringToObject(out, "id", model_name(model));
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        copy(out, info, same[i]);
    copy(out, info, "sequential");
    copy(out, json_get(report, "meta"), "num_layers");
    cJSON_AddNumberToObject(out, "slots", scheduler_slots(model_scheduler(model)));
    cJSON *models = cJSON_AddArrayToObject(out, "models"), *states = cJSON_AddArrayToObject(out, "states");
    const cJSON *list = ok ? json_get(report, "models") : NULL;
    double bytes = 0;
    for (const cJSON *m = list ? list->child : NULL; m; m = m->next)
        bytes += add_model(models, states, m);
    cJSON_AddNumberToObject(out, "state_bytes", bytes);
    char *text = cJSON_PrintUnformatted(out);
    cJSON_Delete(report);
    cJSON_Delete(info);
    cJSON_Delete(out);
    return text;
}

void get_package(struct server *s, struct exchange *x)
{
    struct problem p = {0};
    struct model *model;
    mk_text *report = NULL;
    mk_error *error = NULL;
    char *name = exchange_query(x, "model");
    bool ok = models_take(s->models, name, &model, &p);
    free(name);
    if (ok && mk_inspect(s->o->library, mk_package_path(model_package(model)), &report, &error) != MK_OK)
        ok = problem_take(&p, "model", error);
    if (ok) {
        char *text = describe(model, mk_text_data(report, NULL));
        exchange_answer(x, 200, JSON_TYPE, text, strlen(text));
        free(text);
    } else {
        reply_problem(s, x, API_OPENAI, &p);
    }
    mk_text_free(report);
    models_give_back(s->models, model);
}
