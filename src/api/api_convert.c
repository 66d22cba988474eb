/* mk_convert: options as JSON, the conversion, its report as JSON. */
#include <stdlib.h>
#include <string.h>
#include "api/api_int.h"
#include "api/conversion.h"
#include "base/file.h"
#include "base/id_list.h"

/* One key of the options and where its value goes. */
struct option {
    const char *key;
    enum { OPTION_TEXT, OPTION_COUNT, OPTION_FLAG, OPTION_LATER } kind;
    void *value; /* const char *, int64_t, bool; LATER: NULL */
};

static bool read_option(const struct option *o, const cJSON *item, struct err *e)
{
    double d = item->valuedouble;
    switch (o->kind) {
    case OPTION_TEXT:
        if (!cJSON_IsString(item))
            break;
        *(const char **)o->value = item->valuestring;
        return true;
    case OPTION_COUNT:
        if (!cJSON_IsNumber(item) || !(d >= 1 && d <= INT32_MAX) || d != (double)(int64_t)d)
            return err_set(e, ERR_USAGE, "options: %s: expected a whole number from 1 on", o->key);
        *(int64_t *)o->value = (int64_t)d;
        return true;
    case OPTION_FLAG:
        if (!cJSON_IsBool(item))
            break;
        *(bool *)o->value = cJSON_IsTrue(item);
        return true;
    case OPTION_LATER:
        return true;
    }
    return err_set(e, ERR_USAGE, "options: %s: expected %s, found %s", o->key,
                   o->kind == OPTION_TEXT ? "a string" : "true or false", json_type_name(item));
}

static bool read_options(const cJSON *json, const struct option *options, size_t n, struct err *e)
{
    if (json && !cJSON_IsObject(json))
        return err_set(e, ERR_USAGE, "options: expected an object, found %s", json_type_name(json));
    for (const cJSON *item = json ? json->child : NULL; item; item = item->next) {
        size_t i = 0;
        while (i < n && strcmp(options[i].key, item->string) != 0)
            i++;
        if (i == n)
            return err_set(e, ERR_USAGE, "options: unknown key '%s'", item->string);
        if (!read_option(&options[i], item, e))
            return false;
    }
    return true;
}

/* A number that goes on as text. */
struct number_text {
    char text[32];
};

static const char *const number_keys[] = {"chunks", "lut-ffn-mixed", "residual-scale"};
#define N_NUMBER_KEYS ((int)(sizeof number_keys / sizeof number_keys[0]))

static bool read_texts(const cJSON *json, struct conversion_words *w, struct number_text texts[N_NUMBER_KEYS],
                       struct err *e)
{
    const char **words[] = {&w->chunks, &w->lut_ffn_mixed, &w->residual_scale};
    for (int i = 0; i < N_NUMBER_KEYS; i++) {
        const cJSON *given = json_get(json, number_keys[i]);
        if (cJSON_IsString(given)) {
            *words[i] = given->valuestring;
        } else if (cJSON_IsNumber(given)) {
            struct buf b;
            buf_init(&b, sizeof texts[i].text - 1);
            json_put_double(&b, given->valuedouble);
            snprintf(texts[i].text, sizeof texts[i].text, "%s", b.p ? b.p : "");
            buf_fini(&b);
            *words[i] = texts[i].text;
        } else if (given && !cJSON_IsNull(given)) {
            return err_set(e, ERR_USAGE, "options: %s: expected a number or a string, found %s",
                           number_keys[i], json_type_name(given));
        }
    }
    return true;
}

/* "@FILE" */
static bool read_ids(const char *from, int32_t **ids, size_t *n, struct err *e)
{
    char *text = NULL;
    size_t bytes = 0;
    bool ok = file_read(&text, &bytes, from + 1, ID_LIST_BYTES_MAX, e) &&
              id_list_read(text, from + 1, ERR_FORMAT, ids, n, e);
    free(text);
    return ok;
}

static bool read_text(const char *from, char **text, size_t *bytes, size_t max_bytes, struct err *e)
{
    return file_read(text, bytes, from, max_bytes, e);
}

static mk_text *describe(const struct convert_report *r)
{
    struct buf b;
    size_t n;
    buf_init(&b, 1 << 20);
    buf_puts(&b, "{\"schema\": 1, \"seconds\": ");
    json_put_double(&b, r->seconds);
    buf_printf(&b,
               ", \"bytes_read\": %llu, \"bytes_written\": %llu, \"parts\": %d, \"parts_resumed\": %d, "
               "\"tensors_used\": %d, \"tensors_left_out\": %d, \"has_tokenizer\": %s}",
               (unsigned long long)r->bytes_read, (unsigned long long)r->bytes_written, r->n_parts,
               r->n_resumed, r->n_tensors_used, r->n_tensors_left_out, r->has_tokenizer ? "true" : "false");
    char *text = buf_take(&b, &n);
    return api_text_new(text, n);
}

mk_status mk_convert(mk_library *library, const char *checkpoint, const char *output,
                     const char *options_json, const mk_call *call, mk_text **report, mk_error **error)
{
    struct err e = {0};
    struct api_log log;
    struct convert_report r = {0};
    struct conversion_words w = CONVERSION_WORDS_INIT;
    struct conversion c = {0};
    struct number_text texts[N_NUMBER_KEYS];
    cJSON *json = NULL;
    if (report)
        *report = NULL;
    if (!api_log_init(&log, library, call, NULL, error))
        return MK_USAGE;
    w.before_names = "options: ";
    w.checkpoint = checkpoint;
    w.output = output;
    w.threads = pool_threads(library->pool);
    w.read_text = read_text;
    w.read_ids = read_ids;
    const struct option options[] = {
        {"context", OPTION_COUNT, &w.context},
        {"batch", OPTION_COUNT, &w.batch},
        {"chunks", OPTION_LATER, NULL},
        {"residual-scale", OPTION_LATER, NULL},
        {"prefix", OPTION_TEXT, &w.prefix},
        {"split-head", OPTION_COUNT, &w.split_head},
        {"format", OPTION_TEXT, &w.format},
        {"threads", OPTION_COUNT, &w.threads},
        {"force", OPTION_FLAG, &w.force},
        {"gdn-chunk", OPTION_COUNT, &w.gdn_chunk},
        {"lut-embeddings", OPTION_TEXT, &w.lut[0]},
        {"lut-ffn", OPTION_TEXT, &w.lut[1]},
        {"lut-head", OPTION_TEXT, &w.lut[2]},
        {"lut-method", OPTION_TEXT, &w.lut_method},
        {"lut-ffn-mixed", OPTION_LATER, NULL},
        {"calibration", OPTION_TEXT, &w.calibration},
        {"calibration-tokens", OPTION_COUNT, &w.calibration_tokens},
        {"quant-embeddings", OPTION_TEXT, &w.quant[0]},
        {"quant-ffn", OPTION_TEXT, &w.quant[1]},
        {"quant-head", OPTION_TEXT, &w.quant[2]},
        {"anemll-rotate", OPTION_FLAG, &w.anemll_rotate},
        {"exact-norms", OPTION_FLAG, &w.exact_norms},
        {"exact-topk", OPTION_FLAG, &w.exact_topk},
        {"only", OPTION_TEXT, &w.only},
        {"no-verify", OPTION_FLAG, &w.no_verify},
        {"resume", OPTION_FLAG, &w.resume},
        {"report", OPTION_TEXT, &w.report},
        {"config", OPTION_TEXT, &w.config},
    };
    bool ok = (!options_json || json_parse(&json, options_json, strlen(options_json), "options", &e)) &&
              read_options(json, options, sizeof options / sizeof *options, &e) &&
              read_texts(json, &w, texts, &e);
    if (!ok)
        e.code = ERR_USAGE; /* the caller's text, not a file */
    ok = ok && conversion_read(&c, &w, &log.log, &e);
    if (ok && w.report && strcmp(w.report, "-") == 0)
        ok = err_set(&e, ERR_USAGE,
                     "options: report: expected a file, found \"-\": the library does not print");
    c.options.version = mk_version_string();
    ok = ok && conversion_run(&c, &r, &e);
    if (ok && report)
        *report = describe(&r);
    convert_report_fini(&r);
    conversion_fini(&c);
    cJSON_Delete(json);
    return api_result(ok, &e, error);
}
