/* What OpenAI's endpoints share. */
#include "server/openai.h"
#include <string.h>
#include <time.h>

#define TOP_MAX 20

void openai_head_init(struct openai_head *h, const char *prefix, const struct model *model)
{
    random_id(h->id, prefix, 24);
    h->created = (long long)time(NULL);
    h->model = model_name(model);
    h->fingerprint = model_fingerprint(model);
}

void openai_put_head(struct buf *out, const struct openai_head *h, const char *object)
{
    buf_puts(out, "{");
    put_key_string(out, "id", h->id);
    put_key_string(out, "object", object);
    put_key_int(out, "created", h->created);
    put_key_string(out, "model", h->model);
    put_key_string(out, "system_fingerprint", h->fingerprint);
}

void openai_put_stream_problem(void *context, const struct problem *p, struct buf *out)
{
    (void)context;
    buf_puts(out, "data: ");
    problem_put_openai(out, p);
    buf_puts(out, "\n\n");
}

struct follower openai_follower(const struct ask *a, bool is_stream,
                                void (*event)(void *context, const struct event *e, struct buf *out),
                                void (*end)(void *context, struct buf *out), void *context)
{
    return (struct follower){.api = API_OPENAI,
                             .is_stream = is_stream,
                             .type = SSE_TYPE,
                             .ping = ":\n\n",
                             .ping_seconds = a->ping_seconds,
                             .event = event,
                             .end = end,
                             .problem = openai_put_stream_problem,
                             .context = context};
}

bool openai_read_logprobs(struct ask *a, const struct fields *f)
{
    bool wants = false;
    int64_t top = -1;
    if (!fields_bool(f, "logprobs", &wants) || !fields_int(f, "top_logprobs", &top, 0, TOP_MAX))
        return false;
    if (top >= 0 && !wants)
        return problem_value(f->problem, "top_logprobs", "top_logprobs needs logprobs to be true");
    if (wants)
        a->job.n_top = top > 0 ? (int)top : 0;
    return true;
}

bool openai_refuse_media(const struct fields *f)
{
    const cJSON *modalities = NULL;
    if (!fields_item(f, "modalities", cJSON_Array, &modalities))
        return false;
    for (const cJSON *m = modalities ? modalities->child : NULL; m; m = m->next)
        if (!cJSON_IsString(m) || strcmp(m->valuestring, "text") != 0)
            return problem_bad(f->problem, "unsupported_value", "modalities", "this model gives text only");
    if (fields_get(f, "audio"))
        return problem_bad(f->problem, "unsupported_parameter", "audio", "this model gives text only");
    if (fields_get(f, "web_search_options"))
        return problem_bad(f->problem, "unsupported_parameter", "web_search_options",
                           "this server does not search");
    return true;
}

bool openai_apply_defaults(const struct server *s, struct ask *a)
{
    if (a->job.max_tokens < 0)
        a->job.max_tokens = s->o->max_tokens;
    return true;
}
