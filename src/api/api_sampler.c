/* Samplers: settings as JSON, one choice. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "api/api_int.h"

struct mk_sampler {
    mk_package *package; /* has the lists that the sampler goes on using */
    struct sampler *sampler;
    struct sampler_options options;
};

static const char *const setting_names[] = {"greedy",
                                            "temperature",
                                            "top_k",
                                            "top_p",
                                            "min_p",
                                            "repetition_penalty",
                                            "presence_penalty",
                                            "frequency_penalty",
                                            "repetition_window",
                                            "seed"};

static bool check_names(const cJSON *object, struct err *e)
{
    if (!cJSON_IsObject(object))
        return err_set(e, ERR_USAGE, "settings: expected an object, found %s", json_type_name(object));
    for (const cJSON *item = object->child; item; item = item->next) {
        size_t i = 0, n = sizeof setting_names / sizeof *setting_names;
        while (i < n && strcmp(item->string, setting_names[i]) != 0)
            i++;
        if (i == n)
            return err_set(e, ERR_USAGE, "settings: unknown key '%s'", item->string);
    }
    return true;
}

/* Doubles hold no seed above 2^53 exactly, so it may be a string. */
static bool read_seed(const cJSON *object, int64_t *seed, const char *where, struct err *e)
{
    const cJSON *item = json_get(object, "seed");
    char *end;
    if (!cJSON_IsString(item))
        return json_get_int(object, "seed", seed, where, e);
    errno = 0;
    *seed = strtoll(item->valuestring, &end, 10);
    return (item->valuestring[0] && !*end && errno == 0) ||
           err_set(e, ERR_USAGE, "%s: key seed: expected a whole number, found \"%.100s\"", where,
                   item->valuestring);
}

bool api_read_sampling(struct sampling_options *o, const cJSON *json, struct err *e)
{
    static const char where[] = "settings";
    bool ok = check_names(json, e) && json_get_bool(json, "greedy", &o->greedy, where, e) &&
              json_get_double(json, "temperature", &o->temperature, where, e) &&
              json_get_int(json, "top_k", &o->top_k, where, e) &&
              json_get_double(json, "top_p", &o->top_p, where, e) &&
              json_get_double(json, "min_p", &o->min_p, where, e) &&
              json_get_double(json, "repetition_penalty", &o->repeat_penalty, where, e) &&
              json_get_double(json, "presence_penalty", &o->presence_penalty, where, e) &&
              json_get_double(json, "frequency_penalty", &o->frequency_penalty, where, e) &&
              json_get_int(json, "repetition_window", &o->repeat_last_n, where, e) &&
              read_seed(json, &o->seed, where, e);
    if (!ok)
        e->code = ERR_USAGE; /* it is the caller's text, not a file */
    return ok;
}

mk_status api_give_sampling(const struct sampler_options *from, mk_sampling *out, mk_error **error)
{
    const mk_sampling all = {.size = out->size,
                             .greedy = from->greedy,
                             .temperature = from->temperature,
                             .top_p = from->top_p,
                             .min_p = from->min_p,
                             .repetition_penalty = from->repetition_penalty,
                             .presence_penalty = from->presence_penalty,
                             .frequency_penalty = from->frequency_penalty,
                             .top_k = from->top_k,
                             .repetition_window = from->repetition_window,
                             .seed = from->seed};
    if (!api_write_struct(out, &all, sizeof all))
        return api_usage(error, "sampling: size is not that of the structure");
    return api_result(true, NULL, error);
}

mk_status mk_sampler_settings(const mk_sampler *s, mk_sampling *out, mk_error **error)
{
    return api_give_sampling(&s->options, out, error);
}

mk_status mk_sampler_new(mk_sampler **out, const mk_package *p, const char *settings, mk_error **error)
{
    struct err e = {0};
    struct api_log log;
    struct sampling_options o = SAMPLING_OPTIONS_INIT;
    struct sampler *sampler = NULL;
    struct sampler_options chosen;
    cJSON *json = NULL;
    *out = NULL;
    if (!api_log_init(&log, p->library, NULL, NULL, error))
        return MK_USAGE;
    bool ok = !settings || json_parse(&json, settings, strlen(settings), "settings", &e);
    if (!ok)
        e.code = ERR_USAGE;
    ok = ok && (!settings || api_read_sampling(&o, json, &e)) &&
         sampling_open(&sampler, &chosen, &o, p->model, &log.log, &e);
    cJSON_Delete(json);
    if (!ok)
        return api_fail(&e, error);
    *out = xcalloc(1, sizeof **out);
    (*out)->sampler = sampler;
    (*out)->options = chosen;
    (*out)->package = package_keep((mk_package *)(uintptr_t)p); /* only its count changes */
    return api_result(true, NULL, error);
}

mk_status mk_sampler_pick(mk_sampler *s, const float *logits, size_t n, const int32_t *history,
                          size_t n_history, int32_t *id, mk_error **error)
{
    struct err e = {0};
    *id = -1;
    if (n != (size_t)s->package->model->vocab_size)
        return api_usage(error, "%zu logits, expected the vocabulary's %lld", n,
                         (long long)s->package->model->vocab_size);
    if (!sampler_can_pick(logits, (int64_t)n)) {
        err_set(&e, ERR_MISMATCH, "none of the %zu logits is a number", n);
        return api_fail(&e, error);
    }
    *id = sampler_pick(s->sampler, logits, history, n_history);
    return api_result(true, NULL, error);
}

void mk_sampler_free(mk_sampler *s)
{
    if (!s)
        return;
    sampler_free(s->sampler);
    mk_package_close(s->package);
    free(s);
}

struct sampler *api_sampler_of(mk_sampler *s, const mk_package *p)
{
    return s->package->model == p->model ? s->sampler : NULL;
}
