/* Sampling fields of all APIs. */
#include "server/ask.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include "server/put.h"

#define STOPS_MAX 16
#define STOP_BYTES_MAX 1024
#define BIASES_MAX 65536
#define BIAS_FORCES 1e6f
#define SETTINGS_BYTES_MAX 65536

bool ask_begin(struct ask *a, struct models *m, const struct fields *f)
{
    const char *model = NULL;
    *a = (struct ask){.ping_seconds = 15};
    a->job.n_choices = 1;
    a->job.max_tokens = -1;
    a->job.n_top = -1;
    buf_init(&a->sampling, SETTINGS_BYTES_MAX);
    return fields_string(f, "model", &model) && models_take(m, model, &a->model, f->problem);
}

void ask_end(struct ask *a, struct models *m)
{
    job_options_free(&a->job);
    buf_fini(&a->sampling);
    models_give_back(m, a->model);
    a->model = NULL;
}

bool ask_read_stream(struct ask *a, const struct fields *f)
{
    const cJSON *options = NULL;
    int64_t ping = INT64_MIN;
    if (!fields_bool(f, "stream", &a->is_stream) ||
        !fields_item(f, "stream_options", cJSON_Object, &options) ||
        !fields_int(f, "sse_ping_interval", &ping, -1, 86400) ||
        !fields_bool(f, "timings_per_token", &a->wants_timings) ||
        !fields_bool(f, "return_progress", &a->job.reports_progress))
        return false;
    if (ping != INT64_MIN)
        a->ping_seconds = (double)ping;
    const struct fields sub = {options, "stream_options", f->problem};
    return !options || fields_bool(&sub, "include_usage", &a->wants_usage);
}

/* ---- limits ---- */

static bool read_max_tokens(struct ask *a, const struct fields *f, const struct ask_names *names)
{
    int64_t first = INT64_MIN;
    for (int i = 0; i < 3 && names->max_tokens[i]; i++) {
        int64_t value = INT64_MIN;
        if (!fields_int(f, names->max_tokens[i], &value, -1, INT64_MAX))
            return false;
        if (value == INT64_MIN)
            continue;
        if (first != INT64_MIN && value != first)
            return problem_value(f->problem, names->max_tokens[i], "%s and another limit of the same differ",
                                 names->max_tokens[i]);
        first = value;
    }
    if (first != INT64_MIN)
        a->job.max_tokens = first;
    return true;
}

static bool add_stop(struct ask *a, const struct fields *f, const char *key, const cJSON *item)
{
    if (!cJSON_IsString(item))
        return fields_fail(f, key, "a string, or an array of strings", item);
    size_t n = strlen(item->valuestring);
    if (n > STOP_BYTES_MAX)
        return problem_value(f->problem, key, "%s: expected strings of at most %d bytes, found %zu", key,
                             STOP_BYTES_MAX, n);
    if (n == 0)
        return true;
    if (a->job.n_stops == STOPS_MAX)
        return problem_value(f->problem, key, "%s: expected at most %d strings", key, STOPS_MAX);
    a->job.stops = xrealloc(a->job.stops, (a->job.n_stops + 1) * sizeof *a->job.stops);
    a->job.stops[a->job.n_stops++] = xstrdup(item->valuestring);
    return true;
}

static bool read_stops(struct ask *a, const struct fields *f, const char *key)
{
    const cJSON *item = fields_get(f, key);
    if (!item)
        return true;
    if (!cJSON_IsArray(item))
        return add_stop(a, f, key, item);
    for (const cJSON *s = item->child; s; s = s->next)
        if (!add_stop(a, f, key, s))
            return false;
    return true;
}

/* ---- biases ---- */

static bool add_bias(struct ask *a, const struct fields *f, int64_t id, const cJSON *value)
{
    int32_t size = mk_package_vocab_size(model_package(a->model));
    bool is_ban = cJSON_IsFalse(value);
    double v = is_ban ? -100 : value->valuedouble;
    if (!is_ban && (!cJSON_IsNumber(value) || !(v >= -100 && v <= 100)))
        return fields_fail(f, "logit_bias", "numbers from -100 to 100", value);
    if (id < 0 || id >= size)
        return problem_value(f->problem, "logit_bias", "logit_bias: expected ids below %d, found %lld", size,
                             (long long)id);
    if (a->job.n_bias == BIASES_MAX)
        return problem_value(f->problem, "logit_bias", "logit_bias: expected at most %d tokens", BIASES_MAX);
    if ((a->job.n_bias & (a->job.n_bias - 1)) == 0)
        a->job.bias = xrealloc(a->job.bias, (a->job.n_bias ? 2 * a->job.n_bias : 1) * sizeof *a->job.bias);
    a->job.bias[a->job.n_bias++] = (struct token_bias){(int32_t)id, v <= -100  ? -INFINITY
                                                                    : v >= 100 ? BIAS_FORCES
                                                                               : (float)v};
    return true;
}

/* Of an id, or of all tokens of a text. */
static bool add_named_bias(struct ask *a, const struct fields *f, const char *name, bool is_text,
                           const cJSON *value)
{
    int32_t *ids = NULL;
    size_t n = 0;
    char *end;
    errno = 0;
    long long id = strtoll(name, &end, 10);
    if (!is_text && name[0] && !*end && errno == 0)
        return add_bias(a, f, id, value);
    bool ok = ask_tokenize(a, name, strlen(name), 0, &ids, &n, f->problem);
    for (size_t i = 0; i < n && ok; i++)
        ok = add_bias(a, f, ids[i], value);
    free(ids);
    return ok;
}

static bool read_biases(struct ask *a, const struct fields *f)
{
    const cJSON *item = fields_get(f, "logit_bias");
    if (item && !cJSON_IsObject(item) && !cJSON_IsArray(item))
        return fields_fail(f, "logit_bias", "an object, or an array of pairs", item);
    for (const cJSON *b = item ? item->child : NULL; b; b = b->next) {
        if (cJSON_IsObject(item)) {
            if (!add_named_bias(a, f, b->string, false, b))
                return false;
            continue;
        }
        const cJSON *key = cJSON_IsArray(b) ? b->child : NULL, *value = key ? key->next : NULL;
        if (!value || value->next || (!cJSON_IsNumber(key) && !cJSON_IsString(key)))
            return fields_fail(f, "logit_bias", "pairs of an id or a text and a number", b);
        if (cJSON_IsNumber(key) && key->valuedouble != floor(key->valuedouble))
            return fields_fail(f, "logit_bias", "whole numbers as ids", key);
        bool ok = cJSON_IsNumber(key)
                      ? add_bias(a, f, fabs(key->valuedouble) < 1e9 ? (int64_t)key->valuedouble : -1, value)
                      : add_named_bias(a, f, key->valuestring, true, value);
        if (!ok)
            return false;
    }
    return true;
}

/* ---- sampling ---- */

/* What is on in other servers and is not here: off is fine. */
static bool refuse_unsupported(const struct fields *f)
{
    static const struct {
        const char *key;
        double off;
    } keys[] = {{"mirostat", 0},  {"dry_multiplier", 0}, {"xtc_probability", 0}, {"dynatemp_range", 0},
                {"typical_p", 1}, {"top_n_sigma", -1},   {"adaptive_target", -1}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const cJSON *item = fields_get(f, keys[i].key);
        if (item && (!cJSON_IsNumber(item) || item->valuedouble != keys[i].off))
            return problem_bad(f->problem, "unsupported_parameter", keys[i].key,
                               "%s is not supported: expected it absent or %g", keys[i].key, keys[i].off);
    }
    return true;
}

static void put_setting(struct ask *a, const char *key, double value)
{
    if (a->sampling.n == 0)
        buf_puts(&a->sampling, "{");
    put_key_number(&a->sampling, key, value);
}

/* 0 as "only the best" has another form in the library. */
static double above(double value, double least)
{
    return value > least ? value : least;
}

static bool read_seed(struct ask *a, const struct fields *f)
{
    const cJSON *item = fields_get(f, "seed");
    uint32_t random = 1;
    if (item && (!cJSON_IsNumber(item) || item->valuedouble != floor(item->valuedouble) ||
                 fabs(item->valuedouble) > 1.9e19))
        return fields_fail(f, "seed", "a whole number", item);
    if (item && item->valuedouble >= 0) {
        a->job.seed = (uint64_t)item->valuedouble & INT64_MAX;
        return true;
    }
    if (item && item->valuedouble != -1) {
        a->job.seed = (uint64_t)(int64_t)above(item->valuedouble, -9.2e18) & INT64_MAX;
        return true;
    }
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        random = (uint32_t)(clock_seconds() * 1e6);
    a->job.seed = random;
    return true;
}

bool ask_read_sampling(struct ask *a, const struct fields *f, const struct ask_names *names)
{
    const bool is_recommended = model_is_recommended(a->model);
    double temperature = is_recommended ? -1 : 0.8, top_p = is_recommended ? -1 : 0.95,
           min_p = is_recommended ? -1 : 0.05, repeat_penalty = -1, presence = -1000, frequency = -1000;
    int64_t top_k = is_recommended ? -1 : 40, window = -1, n = 1;
    if (!fields_number(f, "temperature", &temperature, 0, names->temperature_most) ||
        !fields_number(f, "top_p", &top_p, 0, 1) || !fields_number(f, "min_p", &min_p, 0, 1) ||
        !fields_int(f, "top_k", &top_k, -1, INT32_MAX) ||
        !fields_number(f, "repeat_penalty", &repeat_penalty, 0, 100) ||
        !fields_int(f, "repeat_last_n", &window, -1, INT32_MAX) ||
        !fields_number(f, "presence_penalty", &presence, -2, 2) ||
        !fields_number(f, "frequency_penalty", &frequency, -2, 2) ||
        !fields_int(f, "n", &n, 1, scheduler_slots(model_scheduler(a->model))) ||
        !fields_bool(f, "ignore_eos", &a->job.ignores_end) || !read_seed(a, f) || !refuse_unsupported(f) ||
        !read_max_tokens(a, f, names) || !read_stops(a, f, names->stop) || !read_biases(a, f))
        return false;
    a->job.n_choices = (int)n;
    if (temperature >= 0)
        put_setting(a, "temperature", temperature);
    if (top_p >= 0)
        put_setting(a, "top_p", above(top_p, 1e-9));
    if (min_p >= 0)
        put_setting(a, "min_p", min_p < 1 ? min_p : 0.999999);
    if (top_k >= 0 || (fields_get(f, "top_k") && top_k == -1))
        put_setting(a, "top_k", top_k > 0 ? (double)top_k : 0);
    if (repeat_penalty >= 0)
        put_setting(a, "repetition_penalty", above(repeat_penalty, 1e-3));
    if (window >= 0)
        put_setting(a, "repetition_window", (double)window);
    else if (repeat_penalty >= 0)
        put_setting(a, "repetition_window", 64);
    /* What a package recommends counts the prompt, too, as `milkit run` does; what a request asks for, the answer alone. */
    if (presence > -1000) {
        put_setting(a, "presence_penalty", 0);
        a->job.presence_penalty = presence;
    }
    if (frequency > -1000) {
        put_setting(a, "frequency_penalty", 0);
        a->job.frequency_penalty = frequency;
    }
    return true;
}

/* ---- prompts ---- */

bool ask_tokenize(const struct ask *a, const char *text, size_t bytes, uint32_t flags, int32_t **ids,
                  size_t *n, struct problem *p)
{
    const mk_tokenizer *t = mk_package_tokenizer(model_package(a->model));
    size_t capacity = bytes + 16;
    mk_error *error = NULL;
    *ids = xmalloc(capacity * sizeof **ids);
    mk_status status = mk_tokenize(t, text, bytes, flags, *ids, capacity, n, &error);
    if (status == MK_LIMIT && *n > capacity) {
        mk_error_free(error);
        *ids = xrealloc(*ids, *n * sizeof **ids);
        status = mk_tokenize(t, text, bytes, flags, *ids, *n, n, &error);
    }
    if (status == MK_OK)
        return true;
    free(*ids);
    *ids = NULL;
    *n = 0;
    return problem_take(p, NULL, error);
}

bool ask_set_prompt(struct ask *a, int32_t *ids, size_t n, struct problem *p)
{
    long long n_context = (long long)mk_package_context_length(model_package(a->model));
    free(a->job.prompt);
    a->job.prompt = ids;
    a->job.n_prompt = n;
    if (n == 0)
        return problem_value(p, "prompt",
                             "the prompt is empty, and the model has no token that begins a text");
    if ((long long)n < n_context)
        return true;
    problem_set(p, 400, "exceed_context_size_error", "context_length_exceeded", NULL,
                "the prompt has %zu tokens, the context of the model holds %lld", n, n_context);
    p->n_prompt = (long long)n;
    p->n_context = n_context;
    return false;
}

struct job *ask_submit(struct ask *a, struct problem *p)
{
    if (a->sampling.n == 0)
        buf_puts(&a->sampling, "{");
    buf_putc(&a->sampling, '}');
    a->job.sampling = buf_take(&a->sampling, NULL);
    buf_init(&a->sampling, SETTINGS_BYTES_MAX);
    if (a->job.n_top >= 0 && !scheduler_vocabulary(model_scheduler(a->model))) {
        problem_value(p, "logprobs", "the model has no tokenizer");
        return NULL;
    }
    struct job *j = job_new(&a->job);
    a->job = (struct job_options){0};
    if (!scheduler_submit(model_scheduler(a->model), j, p)) {
        job_release(j);
        return NULL;
    }
    return j;
}
