// links: server
/* Any bytes as the body of a request: what reads bodies before a model is asked for gives an answer or a problem that says something. */
#include <stdlib.h>
#include <string.h>
#include "server/chat_messages.h"
#include "server/fields.h"
#include "server/prompt_list.h"
#include "server/responses_request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A refusal says with which status, and what is wrong. */
static bool told(bool ok, const struct problem *p)
{
    if (!ok && (p->status < 400 || p->status > 499 || !p->message[0]))
        abort();
    return ok;
}

static void read_chat(const cJSON *root, struct str body)
{
    struct problem p = {0};
    struct chat_prompt c;
    struct ask a = {0};
    bool continues = true;
    const struct fields f = {root, "", &p};
    cJSON *made = NULL;
    chat_prompt_init(&c);
    if (told(ask_read_stream(&a, &f), &p) && told(chat_prompt_read_options(&c, &f, body, &continues), &p) &&
        told(chat_prompt_read_messages(&c, &f, continues), &p)) {
        /* what a template gets is JSON */
        if (!json_parse(&made, c.messages.p, c.messages.n, "messages", NULL))
            abort();
        cJSON_Delete(made);
        (void)told(chat_prompt_read_tools(&c, &f, body, &a), &p);
    }
    chat_prompt_fini(&c);
    job_options_free(&a.job);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct problem p = {0};
    cJSON *root = NULL;
    struct str slice;
    char *text = malloc(size ? size : 1);
    memcpy(text, data, size);
    const struct str body = {text, size};
    if (told(body_parse(&root, body, &p), &p)) {
        const struct fields f = {root, "", &p};
        read_chat(root, body);
        for (const cJSON *item = root->child; item; item = item->next)
            if (item->string[0] && !strpbrk(item->string, "\\\"") && json_slice(body, item->string, &slice) &&
                (slice.p < text || slice.p + slice.n > text + size))
                abort();
        (void)told(prompt_list_count(&f) > 0, &p);
        cJSON *chat = responses_request_convert(root, &p);
        if (told(chat != NULL, &p)) {
            char *chat_text = cJSON_PrintUnformatted(chat);
            read_chat(chat, (struct str){chat_text, strlen(chat_text)});
            free(chat_text);
        }
        cJSON_Delete(chat);
    }
    cJSON_Delete(root);
    free(text);
    return 0;
}
