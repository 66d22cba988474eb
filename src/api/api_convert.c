/* mk_convert: options as JSON, the conversion, its report as JSON. */
#include <stdlib.h>
#include <string.h>
#include "api/api_int.h"
#include "convert/convert.h"
#include "format/json.h"

/* One key of the options and where its value goes. */
struct option {
    const char *key;
    enum { OPTION_TEXT, OPTION_COUNT, OPTION_COUNT_OR_AUTO, OPTION_FLAG } kind;
    void *value; /* const char *, int64_t (0: not given; INT64_MAX: "auto"), bool */
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
    case OPTION_COUNT_OR_AUTO:
        if (cJSON_IsString(item) && strcmp(item->valuestring, "auto") == 0) {
            *(int64_t *)o->value = INT64_MAX;
            return true;
        }
        /* fall through */
    case OPTION_COUNT:
        if (!cJSON_IsNumber(item) || !(d >= 1 && d <= INT32_MAX) || d != (double)(int64_t)d)
            return err_set(e, ERR_USAGE, "options: %s: expected a whole number from 1 on%s", o->key,
                           o->kind == OPTION_COUNT ? "" : " or \"auto\"");
        *(int64_t *)o->value = (int64_t)d;
        return true;
    case OPTION_FLAG:
        if (!cJSON_IsBool(item))
            break;
        *(bool *)o->value = cJSON_IsTrue(item);
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

/* Index of text among names, the first when text is NULL. */
static bool choose(int *out, const char *key, const char *text, const char *const *names, int n,
                   struct err *e)
{
    *out = 0;
    for (int i = 0; text && i < n; i++)
        if (strcmp(text, names[i]) == 0) {
            *out = i;
            return true;
        }
    return !text || err_set(e, ERR_USAGE, "options: %s: unknown value '%s'", key, text);
}

struct texts {
    const char *lut[3], *quant[3], *method, *chunks, *format;
    int64_t n_threads, n_chunks, split_head, gdn_chunk;
};

static bool read_quantization(const struct texts *t, struct convert_options *o, struct err *e)
{
    static const char *const lut_keys[] = {"lut-embeddings", "lut-ffn", "lut-head"};
    static const char *const quant_keys[] = {"quant-embeddings", "quant-ffn", "quant-head"};
    static const char *const methods[] = {"kmeans", "exact"};
    struct quant_spec *specs[] = {&o->embeddings, &o->ffn, &o->head};
    int method;
    if (!choose(&method, "lut-method", t->method, methods, 2, e))
        return false;
    for (int i = 0; i < 3; i++) {
        struct quant_spec linear = {0};
        if ((t->lut[i] && !quant_parse_lut(specs[i], lut_keys[i], t->lut[i], e)) ||
            (t->quant[i] && !quant_parse_linear(&linear, quant_keys[i], t->quant[i], e)))
            return false;
        if (linear.kind != QUANT_NONE && specs[i]->kind != QUANT_NONE)
            return err_set(e, ERR_USAGE, "options: %s and %s: expected one of them", lut_keys[i],
                           quant_keys[i]);
        if (linear.kind != QUANT_NONE)
            *specs[i] = linear;
        specs[i]->method = method ? QUANT_EXACT : QUANT_KMEANS;
    }
    return true;
}

static bool finish_options(const struct texts *t, struct convert_options *o, struct err *e)
{
    static const char *const formats[] = {"both", "mlmodelc", "mlpackage"};
    int format;
    if (!read_quantization(t, o, e) || !choose(&format, "format", t->format, formats, 3, e))
        return false;
    o->format = format == 0 ? CONVERT_BOTH : format == 1 ? CONVERT_MLMODELC : CONVERT_MLPACKAGE;
    o->chunks_auto = t->n_chunks == INT64_MAX;
    o->settings.n_chunks = o->chunks_auto ? 0 : (int)t->n_chunks;
    o->settings.split_lm_head = (int)t->split_head;
    o->settings.gdn_chunk = (int)t->gdn_chunk;
    o->n_threads = (int)t->n_threads;
    return true;
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
    struct texts t = {0};
    cJSON *json = NULL;
    if (report)
        *report = NULL;
    if (!api_log_init(&log, library, call, NULL, error))
        return MK_USAGE;
    struct convert_options o = {
        .checkpoint = checkpoint, .output = output, .version = mk_version_string(), .log = &log.log};
    t.n_threads = pool_threads(library->pool);
    const struct option options[] = {
        {"context", OPTION_COUNT, &o.settings.context_length},
        {"batch", OPTION_COUNT, &o.settings.batch_size},
        {"chunks", OPTION_COUNT_OR_AUTO, &t.n_chunks},
        {"prefix", OPTION_TEXT, &o.prefix},
        {"split-head", OPTION_COUNT, &t.split_head},
        {"format", OPTION_TEXT, &t.format},
        {"threads", OPTION_COUNT, &t.n_threads},
        {"force", OPTION_FLAG, &o.replace},
        {"gdn-chunk", OPTION_COUNT, &t.gdn_chunk},
        {"lut-embeddings", OPTION_TEXT, &t.lut[0]},
        {"lut-ffn", OPTION_TEXT, &t.lut[1]},
        {"lut-head", OPTION_TEXT, &t.lut[2]},
        {"lut-method", OPTION_TEXT, &t.method},
        {"quant-embeddings", OPTION_TEXT, &t.quant[0]},
        {"quant-ffn", OPTION_TEXT, &t.quant[1]},
        {"quant-head", OPTION_TEXT, &t.quant[2]},
        {"anemll-rotate", OPTION_FLAG, &o.settings.anemll_rotate},
        {"exact-norms", OPTION_FLAG, &o.settings.exact_norms},
        {"exact-topk", OPTION_FLAG, &o.settings.exact_topk},
        {"only", OPTION_TEXT, &o.only},
        {"resume", OPTION_FLAG, &o.resume},
        {"report", OPTION_TEXT, &o.report_path},
    };
    bool ok = (!options_json || json_parse(&json, options_json, strlen(options_json), "options", &e)) &&
              read_options(json, options, sizeof options / sizeof *options, &e) && finish_options(&t, &o, &e);
    if (!ok)
        e.code = ERR_USAGE; /* the caller's text, not a file */
    if (ok && o.report_path && strcmp(o.report_path, "-") == 0)
        ok = err_set(&e, ERR_USAGE,
                     "options: report: expected a file, found \"-\": the library does not print");
    ok = ok && convert_run(&o, &r, &e);
    if (ok && report)
        *report = describe(&r);
    convert_report_fini(&r);
    cJSON_Delete(json);
    return api_result(ok, &e, error);
}
