/* Conversations: settings as JSON, an answer in events. */
#include <stdlib.h>
#include <string.h>
#include "api/api_int.h"
#include "base/file.h"
#include "chat/conversation.h"
#include "format/checkpoint.h"

#define CONFIG_BYTES_MAX ((size_t)64 << 20)
#define MESSAGES_BYTES_MAX ((size_t)256 << 20)

struct mk_chat {
    mk_package *package;
    mk_session *session;
    struct conversation conversation;
    struct chat_template *own_template; /* of "template_file" */
    char *tools, *template_args;        /* what the conversation borrows */
    /* of a call */
    mk_chat_fn fn;
    void *context;
    struct buf name; /* of a tool call, with its zero */
};

/* ---- settings ---- */

enum { WHEN_NEW = 1 };
static const struct {
    const char *key;
    int when; /* WHEN_NEW: not later */
} setting_keys[] = {{"system", 0},          {"tools", 0},           {"think", 0},
                    {"sampling", 0},        {"max_tokens", 0},      {"ignore_end", 0},
                    {"template_args", 0},   {"template", WHEN_NEW}, {"template_file", WHEN_NEW},
                    {"auto_stop", WHEN_NEW}};

static bool check_keys(const cJSON *json, bool is_new, struct err *e)
{
    if (!cJSON_IsObject(json))
        return err_set(e, ERR_USAGE, "settings: expected an object, found %s", json_type_name(json));
    for (const cJSON *item = json->child; item; item = item->next) {
        size_t i = 0, n = sizeof setting_keys / sizeof *setting_keys;
        while (i < n && strcmp(item->string, setting_keys[i].key) != 0)
            i++;
        if (i == n)
            return err_set(e, ERR_USAGE, "settings: unknown key '%s'", item->string);
        if (!is_new && setting_keys[i].when == WHEN_NEW)
            return err_set(e, ERR_USAGE, "settings: key %s: can't be changed any more", item->string);
    }
    return true;
}

/* The text of a member as it stands there, on the heap, since templates see numbers and the order of keys. */
static bool take_json(const cJSON *json, const char *text, const char *key, bool is_array, char **own,
                      struct str *out, struct err *e)
{
    const cJSON *item = json_get(json, key);
    struct str raw;
    if (!item)
        return true;
    bool is_right = cJSON_IsNull(item) || (is_array ? cJSON_IsArray(item) : cJSON_IsObject(item));
    if (!is_right)
        return err_set(e, ERR_USAGE, "settings: key %s: expected %s, found %s", key,
                       is_array ? "an array" : "an object", json_type_name(item));
    free(*own);
    *own = NULL;
    *out = (struct str){NULL, 0};
    if (cJSON_IsNull(item))
        return true;
    if (!chat_json_member((struct str){text, strlen(text)}, key, &raw))
        return err_set(e, ERR_USAGE, "settings: key %s: expected its plain name", key);
    *own = xasprintf("%.*s", (int)raw.n, raw.p);
    *out = (struct str){*own, raw.n};
    return true;
}

static bool read_think(const cJSON *json, enum think *think, struct err *e)
{
    static const char *const names[] = {"auto", "on", "off"};
    const char *name = NULL;
    if (!json_get_string(json, "think", &name, "settings", e))
        return false;
    for (int i = 0; name && i < 3; i++)
        if (strcmp(name, names[i]) == 0) {
            *think = (enum think)i;
            return true;
        }
    return !name ||
           err_set(e, ERR_USAGE, "settings: key think: expected on, off or auto, found \"%.100s\"", name);
}

/* What may change at any time. */
static bool read_settings(mk_chat *chat, const cJSON *json, const char *text,
                          struct sampling_options *sampling, struct err *e)
{
    struct conversation *c = &chat->conversation;
    static const char where[] = "settings";
    const char *system = NULL;
    const cJSON *given = json_get(json, "sampling");
    if (!json_get_string(json, "system", &system, where, e) ||
        !take_json(json, text, "tools", true, &chat->tools, &c->tools, e) ||
        !take_json(json, text, "template_args", false, &chat->template_args, &c->template_args, e) ||
        !read_think(json, &c->think, e) || !json_get_int(json, "max_tokens", &c->max_tokens, where, e) ||
        !json_get_bool(json, "ignore_end", &c->ignore_eos, where, e))
        return false;
    if (system)
        conversation_set_system(c, system);
    if (given)
        *sampling = (struct sampling_options)SAMPLING_OPTIONS_INIT;
    return !given || api_read_sampling(sampling, given, e);
}

/* A template of the caller's sees the special tokens of the package. */
static bool open_template_file(mk_chat *chat, const char *path, struct err *e)
{
    char *config_path = path_join(chat->package->model->package->path, CHECKPOINT_TOKENIZER_CONFIG);
    char *config = NULL, *text = NULL;
    size_t n_config = 0, n_text = 0;
    bool ok =
        file_read(&text, &n_text, path, JINJA_MAX_TEMPLATE_BYTES, e) &&
        (!path_exists(config_path) || file_read(&config, &n_config, config_path, CONFIG_BYTES_MAX, e)) &&
        chat_template_parse(&chat->own_template, (struct str){config, n_config}, (struct str){text, n_text},
                            path, e);
    free(config_path);
    free(config);
    free(text);
    return ok;
}

static bool choose_template(mk_chat *chat, const cJSON *json, struct err *e)
{
    struct conversation *c = &chat->conversation;
    bool has_template = true, auto_stop = true;
    const char *path = NULL;
    bool ok = json_get_bool(json, "template", &has_template, "settings", e) &&
              json_get_string(json, "template_file", &path, "settings", e) &&
              json_get_bool(json, "auto_stop", &auto_stop, "settings", e);
    if (!ok)
        e->code = ERR_USAGE;
    if (!ok || !api_needs_tokenizer(chat->package->text, e))
        return false;
    c->no_auto_stop = !auto_stop;
    if (path && !open_template_file(chat, path, e))
        return false;
    if (!path && has_template && !api_needs_template(chat->package->text, e))
        return false;
    c->template = path ? chat->own_template : has_template ? chat->package->text->template : NULL;
    return true;
}

static bool parse_settings(cJSON **json, const char *text, bool is_new, struct err *e)
{
    bool ok = json_parse(json, text, strlen(text), "settings", e) && check_keys(*json, is_new, e);
    if (!ok)
        e->code = ERR_USAGE;
    return ok;
}

/* ---- events ---- */

static void fill_piece(mk_chat *chat, mk_chat_event *out, const struct chat_event *piece)
{
    static const int32_t kinds[] = {[CHAT_CONTENT] = MK_CHAT_CONTENT,
                                    [CHAT_REASONING] = MK_CHAT_REASONING,
                                    [CHAT_TOOL_CALL] = MK_CHAT_TOOL_CALL};
    out->kind = kinds[piece->kind];
    out->text = piece->text.p;
    out->n = piece->text.n;
    if (piece->kind != CHAT_TOOL_CALL)
        return;
    buf_clear(&chat->name);
    buf_append(&chat->name, piece->name.p, piece->name.n);
    out->name = chat->name.p ? chat->name.p : "";
}

static void fill_end(const mk_chat *chat, mk_chat_event *out, const struct conversation_event *event)
{
    const struct turn_stats *s = &chat->conversation.last;
    out->kind = MK_CHAT_END;
    out->end = api_end(s->end);
    out->has_failed = event->has_failed;
    out->is_empty = event->is_empty;
    out->has_reasoning = event->has_thinking;
    out->n_prompt = s->n_prompt;
    out->n_reused = s->n_reused;
    out->n_generated = s->n_generated;
}

static bool pass_event(void *context, const struct conversation_event *event, struct err *e)
{
    mk_chat *chat = context;
    mk_chat_event out = {.size = sizeof out};
    if (!chat->fn)
        return true;
    switch (event->kind) {
    case CONVERSATION_DROPPED:
        out.kind = MK_CHAT_DROPPED;
        out.n_dropped = event->n_dropped;
        out.n_tokens = event->n_tokens;
        break;
    case CONVERSATION_BEGINS:
        out.kind = MK_CHAT_BEGIN;
        break;
    case CONVERSATION_PIECE:
        fill_piece(chat, &out, event->piece);
        break;
    case CONVERSATION_ENDS:
        fill_end(chat, &out, event);
        break;
    }
    return chat->fn(chat->context, &out) || err_set(e, ERR_CANCELLED, "stopped by the caller");
}

/* ---- the handle ---- */

mk_status mk_chat_new(mk_chat **out, mk_package *p, const char *settings, mk_error **error)
{
    struct err e = {0};
    struct api_log log;
    cJSON *json = NULL;
    *out = NULL;
    if (!api_log_init(&log, p->library, NULL, NULL, error))
        return MK_USAGE;
    mk_session *session = NULL;
    mk_status status = mk_session_new(&session, p, error);
    if (status != MK_OK)
        return status;
    mk_chat *chat = xcalloc(1, sizeof *chat);
    struct conversation *c = &chat->conversation;
    chat->package = package_keep(p);
    chat->session = session;
    buf_init(&chat->name, 1 << 20);
    *c = (struct conversation){.log = &log.log,
                               .on_event = pass_event,
                               .context = chat,
                               .model = p->model,
                               .tokenizer = p->text->tokenizer,
                               .session = session->session,
                               .sampling = SAMPLING_OPTIONS_INIT,
                               .max_tokens = -1};
    const char *text = settings ? settings : "{}";
    bool ok = parse_settings(&json, text, true, &e);
    if (ok && !read_settings(chat, json, text, &c->sampling, &e)) {
        e.code = ERR_USAGE;
        ok = false;
    }
    ok = ok && choose_template(chat, json, &e) && conversation_open(c, &e);
    c->log = NULL;
    cJSON_Delete(json);
    if (ok)
        *out = chat;
    else
        mk_chat_free(chat);
    return api_result(ok, &e, error);
}

void mk_chat_free(mk_chat *chat)
{
    if (!chat)
        return;
    conversation_close(&chat->conversation);
    chat_template_free(chat->own_template);
    mk_session_free(chat->session);
    mk_package_close(chat->package);
    buf_fini(&chat->name);
    free(chat->tools);
    free(chat->template_args);
    free(chat);
}

mk_status mk_chat_set(mk_chat *chat, const char *settings, mk_error **error)
{
    struct err e = {0};
    struct api_log log;
    cJSON *json = NULL;
    struct sampling_options sampling = chat->conversation.sampling;
    if (!api_log_init(&log, chat->package->library, NULL, NULL, error))
        return MK_USAGE;
    bool ok = parse_settings(&json, settings, false, &e);
    if (ok && !read_settings(chat, json, settings, &sampling, &e)) {
        e.code = ERR_USAGE;
        ok = false;
    }
    chat->conversation.log = &log.log;
    ok = ok && (!json_get(json, "sampling") || conversation_set_sampling(&chat->conversation, &sampling, &e));
    chat->conversation.log = NULL;
    cJSON_Delete(json);
    return api_result(ok, &e, error);
}

void mk_chat_set_system(mk_chat *chat, const char *text)
{
    conversation_set_system(&chat->conversation, text);
}

const char *mk_chat_system(const mk_chat *chat)
{
    return chat->conversation.system;
}

mk_status mk_chat_sampling(const mk_chat *chat, mk_sampling *out, mk_error **error)
{
    return api_give_sampling(&chat->conversation.chosen, out, error);
}

/* ---- answers ---- */

/* text NULL: `run` needs none. */
static mk_status answer(mk_chat *chat, bool (*run)(struct conversation *c, struct err *e), const char *text,
                        size_t n, mk_chat_fn fn, void *context, const mk_call *call, mk_error **error)
{
    struct err e = {0};
    struct api_log log;
    struct conversation *c = &chat->conversation;
    if (!api_log_init(&log, chat->package->library, call, &chat->session->is_cancelled, error))
        return MK_USAGE;
    session_begin_call(chat->session, log.log.cancel);
    chat->fn = fn;
    chat->context = context;
    c->log = &log.log;
    bool ok = text ? conversation_say(c, text, n, &e) : run(c, &e);
    c->log = NULL;
    chat->fn = NULL;
    session_end_call(chat->session);
    return api_result(ok, &e, error);
}

mk_status mk_chat_say(mk_chat *chat, const char *text, size_t n, mk_chat_fn fn, void *context,
                      const mk_call *call, mk_error **error)
{
    return answer(chat, NULL, text, n, fn, context, call, error);
}

mk_status mk_chat_answer(mk_chat *chat, mk_chat_fn fn, void *context, const mk_call *call, mk_error **error)
{
    return answer(chat, conversation_answer, NULL, 0, fn, context, call, error);
}

mk_status mk_chat_again(mk_chat *chat, mk_chat_fn fn, void *context, const mk_call *call, mk_error **error)
{
    return answer(chat, conversation_answer_again, NULL, 0, fn, context, call, error);
}

void mk_chat_cancel(mk_chat *chat)
{
    mk_session_cancel(chat->session);
}

/* ---- messages ---- */

mk_status mk_chat_add(mk_chat *chat, const char *message, mk_error **error)
{
    struct err e = {0};
    bool ok =
        conversation_add_json(&chat->conversation, (struct str){message, strlen(message)}, "message", &e);
    if (!ok && e.code == ERR_FORMAT)
        e.code = ERR_USAGE;
    return api_result(ok, &e, error);
}

mk_status mk_chat_undo(mk_chat *chat, mk_error **error)
{
    struct err e = {0};
    return api_result(conversation_undo(&chat->conversation, &e), &e, error);
}

void mk_chat_clear(mk_chat *chat)
{
    conversation_clear(&chat->conversation);
}

mk_status mk_chat_messages(const mk_chat *chat, mk_text **out, mk_error **error)
{
    struct err e = {0};
    struct buf b;
    *out = NULL;
    buf_init(&b, MESSAGES_BYTES_MAX);
    conversation_put(&chat->conversation, &b);
    if (b.failed) {
        err_set(&e, ERR_LIMIT, "a conversation of more than %zu bytes", MESSAGES_BYTES_MAX);
    } else {
        size_t n;
        char *text = buf_take(&b, &n);
        *out = api_text_new(text, n);
    }
    buf_fini(&b);
    return api_result(*out != NULL, &e, error);
}

mk_status mk_chat_save(const mk_chat *chat, const char *path, bool replace, mk_error **error)
{
    struct err e = {0};
    return api_result(conversation_save(&chat->conversation, path, replace, &e), &e, error);
}

mk_status mk_chat_load(mk_chat *chat, const char *path, mk_error **error)
{
    struct err e = {0};
    return api_result(conversation_load(&chat->conversation, path, &e), &e, error);
}

/* ---- numbers ---- */

static mk_chat_counts counts_of(const struct turn_stats *s)
{
    return (mk_chat_counts){.n_prompt = s->n_prompt,
                            .n_reused = s->n_reused,
                            .n_generated = s->n_generated,
                            .prompt_seconds = s->prompt_seconds,
                            .answer_seconds = s->answer_seconds};
}

mk_status mk_chat_get_stats(const mk_chat *chat, mk_chat_stats *out, mk_error **error)
{
    const struct conversation *c = &chat->conversation;
    const mk_chat_stats all = {.size = out->size,
                               .n_messages = c->n,
                               .n_dropped = c->n_dropped,
                               .n_answers = c->n_turns,
                               .last_end = api_end(c->last.end),
                               .last = counts_of(&c->last),
                               .total = counts_of(&c->total)};
    if (!api_write_struct(out, &all, sizeof all))
        return api_usage(error, "stats: size is not that of the structure");
    return api_result(true, NULL, error);
}

const int32_t *mk_chat_tokens(const mk_chat *chat, size_t *n)
{
    *n = chat->conversation.known_ids.n;
    return chat->conversation.known_ids.p;
}

mk_session *mk_chat_session(mk_chat *chat)
{
    return chat->session;
}
