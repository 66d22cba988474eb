/* Problems, and their JSON in the forms of three APIs. */
#include "server/problem.h"
#include <stdio.h>
#include <string.h>
#include "server/put.h"

__attribute__((format(printf, 6, 0))) static bool fill(struct problem *p, int status, const char *type,
                                                       const char *code, const char *param,
                                                       const char *format, va_list arguments)
{
    *p = (struct problem){.status = status, .type = type, .code = code};
    snprintf(p->param, sizeof p->param, "%s", param ? param : "");
    vsnprintf(p->message, sizeof p->message, format, arguments);
    return false;
}

bool problem_set(struct problem *p, int status, const char *type, const char *code, const char *param,
                 const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fill(p, status, type, code, param, format, arguments);
    va_end(arguments);
    return false;
}

bool problem_value(struct problem *p, const char *param, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fill(p, 400, "invalid_request_error", "invalid_value", param, format, arguments);
    va_end(arguments);
    return false;
}

bool problem_bad(struct problem *p, const char *code, const char *param, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fill(p, 400, "invalid_request_error", code, param, format, arguments);
    va_end(arguments);
    return false;
}

bool problem_take(struct problem *p, const char *param, mk_error *from)
{
    mk_status status = mk_error_status(from);
    const char *detail = mk_error_detail(from);
    const char *text = detail ? detail : mk_error_message(from);
    if (status == MK_FORMAT || status == MK_USAGE || status == MK_UNSUPPORTED || status == MK_LIMIT)
        problem_bad(p, detail ? "template_error" : "invalid_value", param, "%s", text);
    else
        problem_set(p, 500, "server_error", NULL, NULL, "%s", text);
    mk_error_free(from);
    return false;
}

bool problem_model(struct problem *p, const char *model)
{
    return problem_set(p, 404, "not_found_error", "model_not_found", "model",
                       "the model '%.200s' does not exist", model);
}

static void put_nullable(struct buf *out, const char *key, const char *text)
{
    put_key(out, key);
    if (text && text[0])
        put_string(out, text);
    else
        buf_puts(out, "null");
}

void problem_put_openai(struct buf *out, const struct problem *p)
{
    buf_puts(out, "{\"error\":{");
    put_key_string(out, "message", p->message);
    put_key_string(out, "type", p->type);
    put_nullable(out, "param", p->param);
    put_nullable(out, "code", p->code);
    if (p->n_context > 0) {
        put_key_int(out, "n_prompt_tokens", p->n_prompt);
        put_key_int(out, "n_ctx", p->n_context);
    }
    buf_puts(out, "}}");
}

void problem_put_anthropic(struct buf *out, const struct problem *p, const char *request_id)
{
    const char *type = p->status == 413                                           ? "request_too_large"
                       : p->status == 429                                         ? "rate_limit_error"
                       : p->status == 503                                         ? "overloaded_error"
                       : p->status >= 500                                         ? "api_error"
                       : p->status == 401 || p->status == 403 || p->status == 404 ? p->type
                                                                                  : "invalid_request_error";
    buf_puts(out, "{\"type\":\"error\",\"error\":{");
    put_key_string(out, "type", type);
    put_key_string(out, "message", p->message);
    buf_puts(out, "}");
    put_key_string(out, "request_id", request_id);
    buf_puts(out, "}");
}

void problem_put_ollama(struct buf *out, const struct problem *p)
{
    buf_puts(out, "{");
    put_key_string(out, "error", p->message);
    buf_puts(out, "}");
}
