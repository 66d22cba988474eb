/* Chat requests. */
#include "server/chat_request.h"
#include <stdlib.h>
#include <string.h>
#include "server/answer_format.h"
#include "server/chat_messages.h"
#include "server/openai.h"

static bool read_all(struct server *s, const struct fields *f, struct str body, struct ask *a,
                     struct chat_prompt *prompt)
{
    static const struct ask_names names = {.max_tokens = {"max_completion_tokens", "max_tokens", "n_predict"},
                                           .stop = "stop",
                                           .temperature_most = 100};
    bool continues = true;
    return ask_read_stream(a, f) && ask_read_sampling(a, f, &names) && openai_read_logprobs(a, f) &&
           openai_refuse_media(f) && chat_prompt_read_options(prompt, f, body, &continues) &&
           chat_prompt_read_messages(prompt, f, continues) && chat_prompt_read_tools(prompt, f, body, a) &&
           format_read(a, f) && format_force_call(a, prompt, f) &&
           chat_prompt_render(prompt, a, NULL, f->problem) && format_begin(a, f->problem) &&
           openai_apply_defaults(s, a);
}

bool chat_request_read(struct server *s, const cJSON *root, struct str body, struct ask *a, struct problem *p)
{
    struct chat_prompt prompt;
    const struct fields f = {root, "", p};
    chat_prompt_init(&prompt);
    bool ok = ask_begin(a, s->models, &f) && read_all(s, &f, body, a, &prompt);
    chat_prompt_fini(&prompt);
    return ok;
}

bool chat_request_read_made(struct server *s, const cJSON *root, struct ask *a, struct problem *p)
{
    char *text = cJSON_PrintUnformatted(root);
    bool ok = text && chat_request_read(s, root, (struct str){text, strlen(text)}, a, p);
    free(text);
    return ok;
}
