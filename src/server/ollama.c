/* Ollama's /api/chat and /api/generate: requests become chat requests, answers lines of JSON. And what its clients ask about models. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "server/chat_request.h"
#include "server/server_internal.h"

#define LINES_TYPE "application/x-ndjson"
#define SERVED_VERSION "0.13.0" /* of Ollama's interface: clients compare it */

/* ---- requests ---- */

static void move(cJSON *to, const char *name, const cJSON *from, const char *key)
{
    const cJSON *item = json_get(from, key);
    if (item && !cJSON_IsNull(item))
        cJSON_AddItemToObject(to, name, cJSON_Duplicate(item, true));
}

static void convert_options(cJSON *out, const cJSON *root)
{
    static const char *const same[] = {
        "temperature",       "top_k", "top_p", "min_p", "repeat_penalty", "repeat_last_n", "presence_penalty",
        "frequency_penalty", "seed",  "stop"};
    const cJSON *options = json_get(root, "options"), *n = json_get(options, "num_predict"),
                *format = json_get(root, "format"), *think = json_get(root, "think"),
                *stream = json_get(root, "stream");
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        move(out, same[i], options, same[i]);
    if (cJSON_IsNumber(n)) /* -2 fills the context, as -1 does */
        cJSON_AddNumberToObject(out, "max_tokens", n->valuedouble < 0 ? -1 : n->valuedouble);
    if (cJSON_IsBool(think))
        cJSON_AddBoolToObject(cJSON_AddObjectToObject(out, "chat_template_kwargs"), "enable_thinking",
                              cJSON_IsTrue(think));
    else if (cJSON_IsString(think))
        cJSON_AddStringToObject(out, "reasoning_effort", think->valuestring);
    if (cJSON_IsString(format) && strcmp(format->valuestring, "json") == 0) {
        cJSON_AddStringToObject(cJSON_AddObjectToObject(out, "response_format"), "type", "json_object");
    } else if (cJSON_IsObject(format)) {
        cJSON *wrapper = cJSON_AddObjectToObject(out, "response_format");
        cJSON_AddStringToObject(wrapper, "type", "json_schema");
        wrapper = cJSON_AddObjectToObject(wrapper, "json_schema");
        cJSON_AddFalseToObject(wrapper, "strict");
        cJSON_AddItemToObject(wrapper, "schema", cJSON_Duplicate(format, true));
    }
    if (stream)
        move(out, "stream", root, "stream");
    else
        cJSON_AddTrueToObject(out, "stream");
}

/* Arguments of calls are objects there, and texts in a chat request. */
static void convert_calls(cJSON *message)
{
    const cJSON *calls = json_get(message, "tool_calls");
    for (cJSON *call = cJSON_IsArray(calls) ? calls->child : NULL; call; call = call->next) {
        cJSON *function = (cJSON *)(uintptr_t)json_get(call, "function");
        const cJSON *arguments = json_get(function, "arguments");
        if (!cJSON_IsObject(arguments))
            continue;
        char *text = cJSON_PrintUnformatted(arguments);
        cJSON_ReplaceItemInObjectCaseSensitive(function, "arguments", cJSON_CreateString(text ? text : "{}"));
        free(text);
    }
}

static bool convert_messages(cJSON *out, const cJSON *root, struct problem *p)
{
    const cJSON *list = json_get(root, "messages");
    cJSON *messages = cJSON_AddArrayToObject(out, "messages");
    for (const cJSON *m = cJSON_IsArray(list) ? list->child : NULL; m; m = m->next) {
        const cJSON *images = json_get(m, "images");
        cJSON *one = cJSON_Duplicate(m, true);
        if (cJSON_IsArray(images) && images->child) {
            cJSON_Delete(one);
            return problem_value(p, "messages", "this model takes text only, and no images");
        }
        move(one, "reasoning_content", m, "thinking");
        move(one, "name", m, "tool_name");
        convert_calls(one);
        cJSON_AddItemToArray(messages, one);
    }
    move(out, "tools", root, "tools");
    return true;
}

static void convert_prompt(cJSON *out, const cJSON *root)
{
    cJSON *messages = cJSON_AddArrayToObject(out, "messages");
    static const char *const roles[] = {"system", "user"};
    static const char *const keys[] = {"system", "prompt"};
    for (int i = 0; i < 2; i++) {
        const cJSON *text = json_get(root, keys[i]);
        if (!cJSON_IsString(text) || (i == 0 && !text->valuestring[0]))
            continue;
        cJSON *m = cJSON_CreateObject();
        cJSON_AddStringToObject(m, "role", roles[i]);
        cJSON_AddStringToObject(m, "content", text->valuestring);
        cJSON_AddItemToArray(messages, m);
    }
}

/* ---- answers ---- */

struct lines {
    const char *model;
    bool is_stream, is_generate;
    struct counts counts;
    double begun;
    struct buf text, thinking, calls; /* of a whole answer */
    int n_calls;
    const char *reason;
};

static void put_line_head(const struct lines *l, struct buf *out)
{
    struct timespec now;
    struct tm tm;
    char text[40];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
    buf_puts(out, "{");
    put_key_string(out, "model", l->model);
    put_key(out, "created_at");
    buf_printf(out, "\"%s.%06ldZ\"", text, now.tv_nsec / 1000);
}

/* calls: an array's inside, or "". */
static void put_said(const struct lines *l, const struct buf *text, const struct buf *thinking,
                     const struct buf *calls, struct buf *out)
{
    if (!l->is_generate) {
        put_key(out, "message");
        buf_puts(out, "{\"role\":\"assistant\"");
    }
    put_key_text(out, l->is_generate ? "response" : "content", text->p ? text->p : "", text->n);
    if (thinking->n > 0)
        put_key_text(out, "thinking", thinking->p, thinking->n);
    if (calls->n > 0) {
        put_key(out, "tool_calls");
        buf_printf(out, "[%s]", calls->p);
    }
    if (!l->is_generate)
        buf_puts(out, "}");
}

static void clear(struct lines *l)
{
    buf_clear(&l->text);
    buf_clear(&l->thinking);
    buf_clear(&l->calls);
}

static void on_event(void *context, const struct event *e, struct buf *out)
{
    struct lines *l = context;
    counts_add(&l->counts, e);
    if (e->kind == EVENT_TOKEN) {
        buf_append(e->part == PART_REASONING ? &l->thinking : &l->text, e->text, e->n);
    } else if (e->kind == EVENT_CALL) {
        if (l->calls.n > 0)
            buf_putc(&l->calls, ',');
        buf_printf(&l->calls, "{\"function\":{\"index\":%d,\"name\":", l->n_calls++);
        put_string(&l->calls, e->name);
        buf_puts(&l->calls, ",\"arguments\":");
        buf_append(&l->calls, e->text, e->n);
        buf_puts(&l->calls, "}}");
    } else if (e->kind == EVENT_END) {
        l->reason = e->reason == END_LENGTH || e->reason == END_CONTEXT ? "length" : "stop";
    }
    if (l->is_stream && l->text.n + l->thinking.n + l->calls.n > 0) {
        put_line_head(l, out);
        put_said(l, &l->text, &l->thinking, &l->calls, out);
        buf_puts(out, ",\"done\":false}\n");
        clear(l);
    }
}

static void on_end(void *context, struct buf *out)
{
    struct lines *l = context;
    put_line_head(l, out);
    put_said(l, &l->text, &l->thinking, &l->calls, out);
    put_key_raw(out, "done", "true");
    put_key_string(out, "done_reason", l->reason);
    put_key_int(out, "total_duration", (long long)((clock_seconds() - l->begun) * 1e9));
    put_key_int(out, "load_duration", 0);
    put_key_int(out, "prompt_eval_count", l->counts.n_prompt);
    put_key_int(out, "prompt_eval_duration", (long long)(l->counts.prompt_seconds * 1e9));
    put_key_int(out, "eval_count", l->counts.n_generated);
    put_key_int(out, "eval_duration", (long long)(l->counts.seconds * 1e9));
    buf_puts(out, l->is_stream ? "}\n" : "}");
}

static void on_problem(void *context, const struct problem *p, struct buf *out)
{
    (void)context;
    problem_put_ollama(out, p);
    buf_putc(out, '\n');
}

static void run(struct server *s, struct exchange *x, struct ask *a, bool is_generate)
{
    struct lines l = {.model = model_name(a->model),
                      .is_stream = a->is_stream,
                      .is_generate = is_generate,
                      .begun = clock_seconds()};
    struct buf *bufs[] = {&l.text, &l.thinking, &l.calls};
    for (int i = 0; i < 3; i++)
        buf_init(bufs[i], ANSWER_BYTES_MAX);
    const struct follower f = {.api = API_OLLAMA,
                               .is_stream = a->is_stream,
                               .type = LINES_TYPE,
                               .ping = "\n",
                               .ping_seconds = -1, /* its clients take every line for JSON */
                               .event = on_event,
                               .end = on_end,
                               .problem = on_problem,
                               .context = &l};
    follow(s, x, a, &f);
    for (int i = 0; i < 3; i++)
        buf_fini(bufs[i]);
}

/* An empty request loads the model, and says so. */
static void answer_load(struct server *s, struct exchange *x, const cJSON *root, bool is_generate)
{
    struct problem p = {0};
    struct ask a = {0};
    struct buf b;
    const struct fields f = {root, "", &p};
    if (ask_begin(&a, s->models, &f)) {
        const struct lines l = {.model = model_name(a.model)};
        buf_init(&b, ANSWER_BYTES_MAX);
        put_line_head(&l, &b);
        buf_puts(&b, is_generate ? ",\"response\":\"\""
                                 : ",\"message\":{\"role\":\"assistant\",\"content\":\"\"}");
        buf_puts(&b, ",\"done\":true,\"done_reason\":\"load\"}");
        reply_json(x, 200, &b);
        buf_fini(&b);
    } else {
        reply_problem(s, x, API_OLLAMA, &p);
    }
    ask_end(&a, s->models);
}

static void answer(struct server *s, struct exchange *x, bool is_generate)
{
    struct problem p = {0};
    struct ask a = {0};
    cJSON *root = NULL, *chat = cJSON_CreateObject();
    bool ok = body_parse(&root, exchange_body(x), &p);
    const cJSON *said = json_get(root, is_generate ? "prompt" : "messages"), *raw = json_get(root, "raw");
    bool is_empty = is_generate ? !cJSON_IsString(said) || !said->valuestring[0] : !said || !said->child;
    if (ok && !cJSON_IsString(json_get(root, "model"))) {
        ok = problem_bad(&p, "missing_required_parameter", "model", "model is required");
    } else if (ok && is_empty) {
        answer_load(s, x, root, is_generate);
        cJSON_Delete(root);
        cJSON_Delete(chat);
        return;
    } else if (ok && cJSON_IsTrue(raw)) {
        ok = problem_bad(&p, "unsupported_parameter", "raw",
                         "raw is not supported: /v1/completions takes prompts as they are");
    }
    if (ok) {
        move(chat, "model", root, "model");
        convert_options(chat, root);
        if (is_generate)
            convert_prompt(chat, root);
        else
            ok = convert_messages(chat, root, &p);
    }
    ok = ok && chat_request_read_made(s, chat, &a, &p);
    cJSON_Delete(root);
    cJSON_Delete(chat);
    if (ok)
        run(s, x, &a, is_generate);
    else
        reply_problem(s, x, API_OLLAMA, &p);
    ask_end(&a, s->models);
}

void post_ollama_chat(struct server *s, struct exchange *x)
{
    answer(s, x, false);
}

void post_ollama_generate(struct server *s, struct exchange *x)
{
    answer(s, x, true);
}

/* ---- models ---- */

static void put_details(struct buf *b)
{
    put_key_raw(b, "details",
                "{\"parent_model\":\"\",\"format\":\"coreml\",\"family\":\"\",\"families\":[],\"parameter_"
                "size\":\"\","
                "\"quantization_level\":\"\"}");
    put_key_raw(b, "capabilities", "[\"completion\",\"tools\"]");
}

static void put_list(struct server *s, struct exchange *x, bool is_open)
{
    struct buf b;
    int n = 0;
    buf_init(&b, ANSWER_BYTES_MAX);
    buf_puts(&b, "{\"models\":[");
    for (int i = 0; i < models_count(s->models); i++) {
        struct model *model = models_take_open(s->models, i);
        bool is_there = model != NULL;
        models_give_back(s->models, model);
        if (is_open && !is_there)
            continue;
        buf_puts(&b, n++ ? ",{" : "{");
        put_key_string(&b, "name", models_name(s->models, i));
        put_key_string(&b, "model", models_name(s->models, i));
        put_key_string(&b, is_open ? "expires_at" : "modified_at", "2000-01-01T00:00:00Z");
        put_key_int(&b, "size", 0);
        put_key_string(&b, "digest", "");
        put_details(&b);
        buf_puts(&b, "}");
    }
    buf_puts(&b, "]}");
    reply_json(x, 200, &b);
    buf_fini(&b);
}

void get_ollama_tags(struct server *s, struct exchange *x)
{
    put_list(s, x, false);
}

void get_ollama_ps(struct server *s, struct exchange *x)
{
    put_list(s, x, true);
}

void get_ollama_version(struct server *s, struct exchange *x)
{
    static const char body[] = "{\"version\":\"" SERVED_VERSION "\"}";
    (void)s;
    exchange_answer(x, 200, JSON_TYPE, body, sizeof body - 1);
}

void post_ollama_show(struct server *s, struct exchange *x)
{
    struct problem p = {0};
    struct ask a = {0};
    struct buf b;
    cJSON *root = NULL;
    bool ok = body_parse(&root, exchange_body(x), &p);
    const struct fields f = {root, "", &p};
    const char *name = NULL;
    ok = ok && fields_string(&f, "model", &name) && (name || fields_string(&f, "name", &name));
    if (ok && (!name || models_find(s->models, name) < 0))
        ok = problem_model(&p, name ? name : "");
    ok = ok && ask_begin(&a, s->models, &f);
    if (ok) {
        buf_init(&b, ANSWER_BYTES_MAX);
        buf_puts(&b, "{\"modelfile\":\"\",\"parameters\":\"\",\"template\":\"\"");
        put_details(&b);
        put_key(&b, "model_info");
        buf_printf(&b, "{\"general.architecture\":\"milkit\",\"milkit.context_length\":%lld}",
                   (long long)mk_package_context_length(model_package(a.model)));
        buf_puts(&b, "}");
        reply_json(x, 200, &b);
        buf_fini(&b);
    } else {
        reply_problem(s, x, API_OLLAMA, &p);
    }
    cJSON_Delete(root);
    ask_end(&a, s->models);
}
