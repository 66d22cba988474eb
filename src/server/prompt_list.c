/* Prompts without a template. */
#include "server/prompt_list.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PROMPTS_MAX 64

/* An array of numbers, or of numbers and texts, is one prompt; one of texts or arrays alone is many. */
static bool is_one(const cJSON *item)
{
    if (!cJSON_IsArray(item))
        return true;
    for (const cJSON *i = item->child; i; i = i->next)
        if (cJSON_IsNumber(i))
            return true;
    return false;
}

int prompt_list_count(const struct fields *f)
{
    const cJSON *item = fields_get(f, "prompt");
    if (!item) {
        problem_bad(f->problem, "missing_required_parameter", "prompt", "expected \"prompt\"");
        return 0;
    }
    if (!cJSON_IsString(item) && !cJSON_IsArray(item)) {
        fields_fail(f, "prompt", "a string or an array", item);
        return 0;
    }
    int n = is_one(item) ? 1 : cJSON_GetArraySize(item);
    if (n < 1 || n > PROMPTS_MAX) {
        problem_value(f->problem, "prompt", "prompt: expected 1 to %d prompts, found %d", PROMPTS_MAX, n);
        return 0;
    }
    return n;
}

static void append(int32_t **ids, size_t *n, const int32_t *more, size_t n_more)
{
    *ids = xrealloc(*ids, (*n + n_more + 1) * sizeof **ids);
    if (n_more > 0)
        memcpy(*ids + *n, more, n_more * sizeof **ids);
    *n += n_more;
}

bool prompt_list_tokens(struct ask *a, const struct fields *f, const char *key, const cJSON *item,
                        uint32_t flags, int32_t **ids, size_t *n)
{
    int32_t size = mk_package_vocab_size(model_package(a->model)), *more = NULL;
    size_t n_more;
    *ids = NULL;
    *n = 0;
    if (cJSON_IsString(item))
        return ask_tokenize(a, item->valuestring, strlen(item->valuestring), flags, ids, n, f->problem);
    if (!cJSON_IsArray(item))
        return fields_fail(f, key, "a string or an array of strings and ids", item);
    bool ok = true;
    for (const cJSON *i = item->child; i && ok; i = i->next) {
        if (cJSON_IsString(i)) {
            ok = ask_tokenize(a, i->valuestring, strlen(i->valuestring), i == item->child ? flags : 0, &more,
                              &n_more, f->problem);
            append(ids, n, more, ok ? n_more : 0);
            free(more);
            more = NULL;
        } else if (cJSON_IsNumber(i) && i->valuedouble >= 0 && i->valuedouble < size &&
                   i->valuedouble == floor(i->valuedouble)) {
            int32_t id = (int32_t)i->valuedouble;
            append(ids, n, &id, 1);
        } else {
            char expected[64];
            snprintf(expected, sizeof expected, "strings and ids from 0 to %d", size - 1);
            ok = fields_fail(f, key, expected, i);
        }
    }
    if (!ok) {
        free(*ids);
        *ids = NULL;
    }
    return ok;
}

bool prompt_list_set(struct ask *a, const struct fields *f, int i)
{
    const cJSON *item = fields_get(f, "prompt");
    int32_t *ids;
    size_t n;
    if (!is_one(item))
        item = cJSON_GetArrayItem(item, i);
    return prompt_list_tokens(a, f, "prompt", item, MK_SPECIAL, &ids, &n) &&
           ask_set_prompt(a, ids, n, f->problem);
}
