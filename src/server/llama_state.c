/* llama-server's views of itself: /props, /slots, /metrics. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "server/server_internal.h"

static void put_sampling(struct model *model, struct buf *b)
{
    const char *settings = model_is_recommended(model)
                               ? "{}"
                               : "{\"temperature\":0.8,\"top_k\":40,\"top_p\":0.95,\"min_p\":0.05}";
    mk_sampling o = {.size = sizeof o};
    mk_sampler *sampler = NULL;
    if (mk_sampler_new(&sampler, model_package(model), settings, NULL) == MK_OK)
        (void)mk_sampler_settings(sampler, &o, NULL);
    mk_sampler_free(sampler);
    put_key(b, "params");
    buf_puts(b, "{");
    put_key_number(b, "temperature", o.greedy ? 0 : o.temperature);
    put_key_int(b, "top_k", o.top_k);
    put_key_number(b, "top_p", o.top_p);
    put_key_number(b, "min_p", o.min_p);
    put_key_number(b, "repeat_penalty", o.repetition_penalty);
    put_key_number(b, "presence_penalty", o.presence_penalty);
    put_key_number(b, "frequency_penalty", o.frequency_penalty);
    put_key_int(b, "n_predict", -1);
    buf_puts(b, "}");
}

void get_props(struct server *s, struct exchange *x)
{
    struct problem p = {0};
    struct model *model;
    struct buf b;
    char *name = exchange_query(x, "model");
    bool ok = models_take(s->models, name, &model, &p);
    free(name);
    if (!ok) {
        reply_problem(s, x, API_OPENAI, &p);
        return;
    }
    const mk_package *package = model_package(model);
    const char *path = mk_package_path(package), *slash = strrchr(path, '/');
    buf_init(&b, ANSWER_BYTES_MAX);
    buf_puts(&b, "{");
    put_key(&b, "default_generation_settings");
    buf_puts(&b, "{");
    put_key_int(&b, "n_ctx", mk_package_context_length(package));
    put_sampling(model, &b);
    buf_puts(&b, "}");
    put_key_int(&b, "total_slots", scheduler_slots(model_scheduler(model)));
    put_key_string(&b, "model_alias", model_name(model));
    put_key_string(&b, "model_path",
                   slash && slash[1] ? slash + 1 : path); /* the whole would tell of the machine */
    put_key_raw(&b, "modalities", "{\"vision\":false,\"audio\":false,\"video\":false}");
    buf_puts(&b, ",\"build_info\":");
    buf_printf(&b, "\"milkit %s\"", mk_version_string());
    put_key_raw(&b, "is_sleeping", "false");
    put_key_raw(&b, "endpoint_slots", s->o->has_slots ? "true" : "false");
    put_key_raw(&b, "endpoint_props", "false");
    put_key_raw(&b, "endpoint_metrics", s->o->has_metrics ? "true" : "false");
    buf_puts(&b, "}");
    reply_json(x, 200, &b);
    buf_fini(&b);
    models_give_back(s->models, model);
}

static void refuse(struct server *s, struct exchange *x, const char *what)
{
    struct problem p;
    problem_bad(&p, "unsupported_endpoint", NULL, "%s", what);
    reply_problem(s, x, API_OPENAI, &p);
}

void post_props(struct server *s, struct exchange *x)
{
    refuse(s, x, "the server's properties can't be changed");
}

static void put_slot(struct model *model, int i, struct buf *b, bool *is_idle)
{
    struct slot_state slot;
    scheduler_get_slot(model_scheduler(model), i, &slot);
    *is_idle = *is_idle || !slot.is_processing;
    buf_puts(b, i ? ",{" : "{");
    put_key_int(b, "id", i);
    put_key_int(b, "id_task", slot.is_processing ? slot.task : -1);
    put_key_int(b, "n_ctx", mk_package_context_length(model_package(model)));
    put_key_raw(b, "speculative", "false");
    put_key_raw(b, "is_processing", slot.is_processing ? "true" : "false");
    put_key_int(b, "n_prompt_tokens", slot.is_processing ? slot.n_prompt : 0);
    put_key_int(b, "n_prompt_tokens_processed", slot.is_processing ? slot.n_prompt_done : 0);
    put_key_int(b, "n_prompt_tokens_cache", slot.is_processing ? slot.n_reused : 0);
    put_key(b, "next_token");
    buf_printf(b, "[{\"has_next_token\":%s,\"has_new_line\":false,\"n_remain\":%lld,\"n_decoded\":%lld}]}",
               slot.is_processing ? "true" : "false", slot.is_processing ? slot.n_left : -1,
               slot.is_processing ? slot.n_generated : 0);
}

void get_slots(struct server *s, struct exchange *x)
{
    struct problem p = {0};
    struct model *model = s->o->has_slots ? models_take_open(s->models, 0) : NULL;
    struct buf b;
    bool is_idle = false;
    char *fails = exchange_query(x, "fail_on_no_slot");
    if (!s->o->has_slots) {
        refuse(s, x, "this server does not tell of its slots");
    } else if (!model) {
        problem_set(&p, 503, "unavailable_error", "loading", NULL, "Loading model");
        p.retry_after_s = 1;
        reply_problem(s, x, API_OPENAI, &p);
    } else {
        buf_init(&b, ANSWER_BYTES_MAX);
        buf_puts(&b, "[");
        for (int i = 0; i < scheduler_slots(model_scheduler(model)); i++)
            put_slot(model, i, &b, &is_idle);
        buf_puts(&b, "]");
        if (fails && !is_idle) {
            problem_set(&p, 503, "unavailable_error", "no_slot", NULL, "no slot is free");
            p.retry_after_s = 1;
            reply_problem(s, x, API_OPENAI, &p);
        } else {
            reply_json(x, 200, &b);
        }
        buf_fini(&b);
    }
    free(fails);
    models_give_back(s->models, model);
}

static void put_metric(struct buf *b, const char *prefix, const char *name, const char *type,
                       const char *help, double value)
{
    buf_printf(b, "# HELP %s%s %s\n# TYPE %s%s %s\n%s%s ", prefix, name, help, prefix, name, type, prefix,
               name);
    json_put_double(b, value);
    buf_putc(b, '\n');
}

static void put_totals(struct buf *b, const char *prefix, const struct scheduler_totals *t)
{
    const struct {
        const char *name, *type, *help;
        double value;
    } rows[] = {
        {"prompt_tokens_total", "counter", "Tokens of prompts that were computed.", (double)t->n_prompt},
        {"prompt_tokens_cached_total", "counter", "Tokens of prompts that were known.", (double)t->n_reused},
        {"prompt_seconds_total", "counter", "Time of prompts.", t->prompt_seconds},
        {"tokens_predicted_total", "counter", "Tokens that were generated.", (double)t->n_generated},
        {"tokens_predicted_seconds_total", "counter", "Time of steps.", t->generated_seconds},
        {"n_decode_total", "counter", "Steps.", (double)t->n_steps},
        {"n_tokens_max", "counter", "Most tokens in a context so far.", (double)t->n_context_most},
        {"prompt_tokens_seconds", "gauge", "Tokens of prompts per second.",
         t->prompt_seconds > 0 ? (double)t->n_prompt / t->prompt_seconds : 0},
        {"predicted_tokens_seconds", "gauge", "Generated tokens per second.",
         t->generated_seconds > 0 ? (double)t->n_generated / t->generated_seconds : 0},
        {"reuse_snapshots_bytes", "gauge", "Memory of states that slots gave up.", (double)t->n_cache_bytes},
        {"requests_processing", "gauge", "Answers that run.", t->n_processing},
        {"requests_deferred", "gauge", "Requests that wait.", t->n_waiting},
        {"n_busy_slots_per_decode", "gauge", "Sessions a step, in the mean.",
         t->n_steps > 0 ? (double)t->n_step_sessions / (double)t->n_steps : 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        put_metric(b, prefix, rows[i].name, rows[i].type, rows[i].help, rows[i].value);
}

static double resident_bytes(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%*d %ld", &pages) != 1)
        pages = 0;
    if (f)
        fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

void get_metrics(struct server *s, struct exchange *x)
{
#define ENDPOINT(method, path, function, api, flags) path,
    static const char *const paths[] = {
#include "server/endpoints.def"
    };
#undef ENDPOINT
    struct scheduler_totals all = {0}, one;
    struct buf b;
    if (!s->o->has_metrics) {
        refuse(s, x, "this server does not tell its metrics");
        return;
    }
    for (int i = 0; i < models_count(s->models); i++) {
        struct model *model = models_take_open(s->models, i);
        if (!model)
            continue;
        scheduler_get_totals(model_scheduler(model), &one);
        models_give_back(s->models, model);
        all.n_prompt += one.n_prompt;
        all.n_reused += one.n_reused;
        all.n_generated += one.n_generated;
        all.n_steps += one.n_steps;
        all.n_step_sessions += one.n_step_sessions;
        all.prompt_seconds += one.prompt_seconds;
        all.generated_seconds += one.generated_seconds;
        all.n_cache_bytes += one.n_cache_bytes;
        all.n_processing += one.n_processing;
        all.n_waiting += one.n_waiting;
        all.n_context_most =
            one.n_context_most > all.n_context_most ? one.n_context_most : all.n_context_most;
    }
    buf_init(&b, ANSWER_BYTES_MAX);
    put_totals(&b, "milkit_", &all);
    if (s->o->has_llama_names)
        put_totals(&b, "llamacpp:", &all);
    metrics_put(s->metrics, paths, sizeof paths / sizeof *paths, &b);
    put_metric(&b, "", "process_resident_memory_bytes", "gauge", "Resident memory.", resident_bytes());
    put_metric(&b, "", "process_cpu_seconds_total", "counter", "Processor time.",
               (double)clock() / (double)CLOCKS_PER_SEC);
    buf_printf(&b,
               "# HELP milkit_build_info The program.\n# TYPE milkit_build_info gauge\n"
               "milkit_build_info{version=\"%s\"} 1\n",
               mk_version_string());
    exchange_answer(x, 200, "text/plain; version=0.0.4; charset=utf-8", b.p, b.n);
    buf_fini(&b);
}
