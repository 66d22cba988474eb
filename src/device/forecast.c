/* A package's forecast, and the report of the fit. */
#include "device/forecast.h"
#include <math.h>
#include <string.h>
#include "device/cost.h"

#define RANGE 0.35       /* of a forecast: eight points for four constants */
#define USE_OF_PEAK 0.35 /* of a chip's measured TFLOPS that a prefill reached */
#define CALL_MS_PREFILL 1.42

static const struct mil_function *function_of(const struct mil_model *m, const char *name)
{
    const struct mil_function *f = mil_function_find(m, name);
    if (f)
        return f;
    f = mil_function_find(m, mil_default_function_name(m));
    return f ? f : m->program->n_functions > 0 ? m->program->functions[0] : NULL;
}

/* All that a token goes through, and a batch of a prompt. */
struct package_cost {
    struct speed_point token;
    double weight_bytes, all_functions_bytes, state_bytes, batch_multiplies, batch_tokens, batch_calls;
    int rows_per_table;
};

/* Tokens of a batch: the second axis of the hidden states. */
static double tokens_of(const struct mil_function *f)
{
    for (int i = 0; i < f->n_inputs; i++) {
        const struct mil_type *t = mil_type_tensor(f->inputs[i]->type);
        if (strcmp(f->inputs[i]->name, "hidden_states") == 0 && t && t->kind == MIL_TYPE_TENSOR &&
            t->rank == 3)
            return (double)t->dims[1];
    }
    return 1;
}

static void add_model(struct package_cost *p, const struct mil_model *m)
{
    const struct mil_function *token = function_of(m, "infer"), *batch = mil_function_find(m, "prefill");
    if (!token)
        return;
    struct device_cost c = device_function_cost(token);
    p->token.calls++;
    p->token.ops += c.n_ops;
    if (!device_looks_up_only(token))
        p->weight_bytes += c.weight_bytes;
    p->state_bytes = fmax(p->state_bytes, c.state_bytes); /* all chunks declare all states */
    if (c.rows_per_table > 0 && (p->rows_per_table == 0 || c.rows_per_table < p->rows_per_table))
        p->rows_per_table = c.rows_per_table;
    for (int i = 0; i < m->program->n_functions; i++)
        p->all_functions_bytes += device_function_cost(m->program->functions[i]).weight_bytes;
    if (batch) {
        p->batch_multiplies += device_function_cost(batch).multiplies;
        p->batch_tokens = fmax(p->batch_tokens, tokens_of(batch));
        p->batch_calls++;
    }
}

static void add_range(cJSON *o, const char *key, double value)
{
    cJSON *one = cJSON_AddObjectToObject(o, key);
    cJSON_AddNumberToObject(one, "forecast", value);
    cJSON_AddNumberToObject(one, "low", value * (1 - RANGE));
    cJSON_AddNumberToObject(one, "high", value * (1 + RANGE));
}

static void caveat(cJSON *list, const char *text)
{
    cJSON_AddItemToArray(list, cJSON_CreateString(text));
}

/* What is known to slow a package down beside the formula's terms. */
static double slowed(double speed, const struct package_cost *p, cJSON *caveats)
{
    if (p->rows_per_table == 1) {
        caveat(caveats, "a table for each row: 0.45 of the speed, as measured on an M5 Max");
        return speed * 0.45;
    }
    if (p->rows_per_table == 2) {
        caveat(caveats, "a table for two rows: 0.75 of the speed, as measured on an M5 Max");
        return speed * 0.75;
    }
    return speed;
}

static void add_decode(cJSON *o, const struct package_cost *p, const struct forecast_fit *fit,
                       const struct chip *chip, cJSON *caveats)
{
    struct forecast_fit f = *fit;
    if (chip->family <= CHIP_H14) {
        f.terms[FORECAST_CALL] *= 2;
        f.terms[FORECAST_OP] *= 2;
        caveat(caveats,
               "calls and operations of a chip of this age are taken as twice as slow: a guess from clocks");
    }
    double ms = forecast_token_ms(&f, &p->token, chip);
    cJSON *decode = cJSON_AddObjectToObject(o, "decode");
    add_range(decode, "tokens_per_second", slowed(1000 / ms, p, caveats));
    cJSON *terms = cJSON_AddObjectToObject(decode, "ms");
    cJSON_AddNumberToObject(terms, "calls", f.terms[FORECAST_CALL] * p->token.calls);
    cJSON_AddNumberToObject(terms, "operations", f.terms[FORECAST_OP] * p->token.ops);
    cJSON_AddNumberToObject(terms, "weights",
                            f.terms[FORECAST_WEIGHT] * p->token.weight_mb / chip->stream_gb_per_s);
    cJSON_AddNumberToObject(terms, "cache", f.terms[FORECAST_CACHE] * p->token.cache_mb);
    cJSON_AddNumberToObject(decode, "calls", p->token.calls);
    cJSON_AddNumberToObject(decode, "operations", p->token.ops);
    cJSON_AddNumberToObject(decode, "weight_mb", p->token.weight_mb);
    cJSON_AddNumberToObject(decode, "cache_mb", p->token.cache_mb);
    if (chip->is_phone)
        caveat(caveats, "a phone keeps about 0.67 of this after ten minutes");
    if (!forecast_has_point(chip))
        caveat(caveats, "extrapolated: no fitted measurement is of this chip");
    if (chip->family < CHIP_H17)
        caveat(caveats, "extrapolated to an older chip than those of the fit (M5 and A19)");
}

static void add_prefill(cJSON *o, const struct package_cost *p, const struct chip *chip)
{
    if (p->batch_tokens < 1 || p->batch_calls < 1)
        return;
    cJSON *prefill = cJSON_AddObjectToObject(o, "prefill");
    if (chip->fp16_tflops <= 0) {
        cJSON_AddStringToObject(prefill, "not_forecast", "nobody has published the TFLOPS of this chip");
        return;
    }
    double compute = 2 * p->batch_multiplies / (USE_OF_PEAK * chip->fp16_tflops * 1e9),
           stream = p->token.weight_mb / chip->stream_gb_per_s;
    double ms = fmax(compute, stream) + CALL_MS_PREFILL * p->batch_calls;
    cJSON_AddNumberToObject(prefill, "batch", p->batch_tokens);
    cJSON_AddNumberToObject(prefill, "tokens_per_second", 1000 * p->batch_tokens / ms);
    cJSON_AddStringToObject(prefill, "accuracy", "order of magnitude: few points");
}

bool forecast_path(cJSON *o, const char *path, const struct chip *chip, struct err *e)
{
    struct forecast_fit fit;
    struct device_models m = {0};
    struct package_cost p = {0};
    if (!forecast_fit_all(&fit, NULL, 0, e) || !device_models_open(&m, path, false, e))
        return false;
    for (int i = 0; i < m.n; i++)
        add_model(&p, m.list[i].model);
    p.token.weight_mb = p.weight_bytes / 1e6;
    p.token.cache_mb = p.state_bytes / 1e6;
    cJSON_AddNumberToObject(o, "schema", 1);
    cJSON_AddStringToObject(o, "path", path);
    cJSON_AddStringToObject(o, "chip", chip->name);
    cJSON *caveats = cJSON_CreateArray();
    add_decode(o, &p, &fit, chip, caveats);
    add_prefill(o, &p, chip);
    cJSON *memory = cJSON_AddObjectToObject(o, "memory");
    cJSON_AddNumberToObject(memory, "mb_on_engine", (p.all_functions_bytes + p.state_bytes) / 1e6);
    cJSON_AddStringToObject(memory, "of", "weights of every function, each with its own copy, and states");
    cJSON_AddStringToObject(o, "load_time", "not forecast: nobody has published points to fit");
    cJSON *basis = cJSON_AddObjectToObject(o, "basis");
    cJSON_AddNumberToObject(basis, "points", fit.n);
    cJSON_AddNumberToObject(basis, "median_error_leaving_one_out", fit.median_error_without);
    cJSON_AddNumberToObject(basis, "worst_error_leaving_one_out", fit.worst_error_without);
    cJSON_AddStringToObject(basis, "chip_numbers", chip->basis);
    cJSON_AddItemToObject(o, "caveats", caveats);
    device_models_close(&m);
    return true;
}

bool forecast_report_fit(cJSON *o, const struct speed_point *more, int n_more, struct err *e)
{
    static const char *const names[] = {"ms_per_call", "ms_per_operation", "share_of_the_stream",
                                        "ms_per_mb_of_cache"};
    struct forecast_fit fit;
    if (!forecast_fit_all(&fit, more, n_more, e))
        return false;
    cJSON_AddNumberToObject(o, "schema", 1);
    cJSON *constants = cJSON_AddObjectToObject(o, "constants"),
          *errors = cJSON_AddObjectToObject(o, "errors");
    for (int i = 0; i < FORECAST_TERMS; i++)
        cJSON_AddNumberToObject(constants, names[i], fit.terms[i]);
    cJSON_AddNumberToObject(errors, "points", fit.n);
    cJSON_AddNumberToObject(errors, "median", fit.median_error);
    cJSON_AddNumberToObject(errors, "worst", fit.worst_error);
    cJSON_AddNumberToObject(errors, "median_leaving_one_out", fit.median_error_without);
    cJSON_AddNumberToObject(errors, "worst_leaving_one_out", fit.worst_error_without);
    cJSON *list = cJSON_AddArrayToObject(o, "points");
    for (int i = -n_more; i < 0 || speed_point_at(i); i++) {
        const struct speed_point *p = i < 0 ? &more[n_more + i] : speed_point_at(i);
        const struct chip *chip;
        if (!chip_find(&chip, p->chip, e))
            return false;
        cJSON *one = cJSON_CreateObject();
        cJSON_AddStringToObject(one, "model", p->model);
        cJSON_AddStringToObject(one, "weights", p->weights);
        cJSON_AddStringToObject(one, "chip", p->chip);
        cJSON_AddNumberToObject(one, "measured", p->tokens_per_s);
        cJSON_AddNumberToObject(one, "forecast", 1000 / forecast_token_ms(&fit, p, chip));
        cJSON_AddBoolToObject(one, "fitted", p->is_fitted);
        cJSON_AddStringToObject(one, "cache", p->cache);
        cJSON_AddStringToObject(one, "source", p->source);
        cJSON_AddStringToObject(one, "remark", p->remark);
        cJSON_AddItemToArray(list, one);
    }
    return true;
}
