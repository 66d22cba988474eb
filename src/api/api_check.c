/* mk_check: a package against its checkpoint. */
#include <stdlib.h>
#include <string.h>
#include "api/api_int.h"
#include "base/id_list.h"
#include "format/checkpoint.h"
#include "measure/check_json.h"
#include "runtime/vocabulary.h"

#define REPORT_BYTES_MAX ((size_t)1 << 30)

struct checking {
    struct check check;
    struct tokenizer *tokenizer; /* NULL: the package has none */
    bool with_layers;
    const char *prompt; /* NULL: ids, or one of our own */
};

/* ---- options ---- */

static bool read_ids(const cJSON *list, struct ids *out, struct err *e)
{
    if (!cJSON_IsArray(list))
        return err_set(e, ERR_USAGE, "options: tokens: expected an array, found %s", json_type_name(list));
    for (const cJSON *id = list->child; id; id = id->next) {
        if (!cJSON_IsNumber(id) || !(id->valuedouble >= 0 && id->valuedouble <= INT32_MAX) ||
            id->valuedouble != (double)(int32_t)id->valuedouble)
            return err_set(e, ERR_USAGE,
                           "options: tokens: expected token ids, found something else as number %zu",
                           out->n + 1);
        ids_push(out, (int32_t)id->valuedouble);
    }
    return out->n > 0 || err_set(e, ERR_USAGE, "options: tokens: no token id in it");
}

static bool read_limit(const cJSON *item, double *limit, double least, double most, struct err *e)
{
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= least && item->valuedouble <= most))
        return err_set(e, ERR_USAGE, "options: %s: expected a number from %g to %g", item->string, least,
                       most);
    *limit = item->valuedouble;
    return true;
}

static bool read_option(struct checking *x, const cJSON *item, struct err *e)
{
    struct check_limits *l = &x->check.limits;
    const struct {
        const char *key;
        double *limit, least, most;
    } limits[] = {{"min-cosine", &l->min_cosine, -1, 1},
                  {"max-kl", &l->max_mean_kl, 0, 1e9},
                  {"min-top1", &l->min_top1, 0, 1},
                  {"min-layer-cosine", &l->min_layer_cosine, -1, 1},
                  {"min-added-cosine", &l->min_added_cosine, -1, 1},
                  {"min-gain", &l->min_gain, -1e9, 1e9},
                  {"max-gain", &l->max_gain, -1e9, 1e9},
                  {"max-difference", &l->max_difference, 0, 1e9},
                  {"margin", &l->margin, 0, 1e9}};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        if (strcmp(item->string, limits[i].key) == 0)
            return read_limit(item, limits[i].limit, limits[i].least, limits[i].most, e);
    if (strcmp(item->string, "tokens") == 0)
        return read_ids(item, &x->check.ids, e);
    if (strcmp(item->string, "prompt") == 0) {
        x->prompt = cJSON_GetStringValue(item);
        return x->prompt ||
               err_set(e, ERR_USAGE, "options: prompt: expected a string, found %s", json_type_name(item));
    }
    if (strcmp(item->string, "layers") == 0) {
        x->with_layers = cJSON_IsTrue(item);
        return cJSON_IsBool(item) ||
               err_set(e, ERR_USAGE, "options: layers: expected true or false, found %s",
                       json_type_name(item));
    }
    if (strcmp(item->string, "max-tokens") == 0) {
        double n = item->valuedouble;
        x->check.n_more = cJSON_IsNumber(item) && n >= 0 && n <= INT32_MAX ? (int64_t)n : -1;
        return (x->check.n_more >= 0 && n == (double)x->check.n_more) ||
               err_set(e, ERR_USAGE, "options: max-tokens: expected a whole number from 0 on");
    }
    return err_set(e, ERR_USAGE, "options: unknown key '%s'", item->string);
}

static bool read_options(struct checking *x, const cJSON *json, struct err *e)
{
    const struct check_limits *l = &x->check.limits;
    if (!cJSON_IsObject(json))
        return err_set(e, ERR_USAGE, "options: expected an object, found %s", json_type_name(json));
    for (const cJSON *item = json->child; item; item = item->next)
        if (!read_option(x, item, e))
            return false;
    if (x->prompt && x->check.ids.n > 0)
        return err_set(e, ERR_USAGE, "options: prompt and tokens: expected one of them");
    return !(l->min_gain > l->max_gain) ||
           err_set(e, ERR_USAGE, "options: min-gain and max-gain: expected %g to be at least %g", l->max_gain,
                   l->min_gain);
}

/* ---- the check ---- */

static bool open_tokenizer(struct checking *x, struct log *log, struct err *e)
{
    struct package *files = x->check.model->package;
    struct err missing;
    bool exists = folder_has(files->path, CHECKPOINT_TOKENIZER);
    if (!package_tokenizer(files, &x->tokenizer, exists ? e : &missing))
        return !exists;
    vocabulary_check_tokenizer(log, files->path, x->tokenizer, x->check.model->vocab_size);
    return true;
}

static bool make_prompt(struct checking *x, struct err *e)
{
    struct check *k = &x->check;
    const struct model *m = k->model;
    if (!id_list_check(k->ids.p, k->ids.n, m->vocab_size, e))
        return false;
    if (x->prompt && !x->tokenizer)
        return err_set(e, ERR_USAGE, "%s: no tokenizer.json: the prompt has to be ids", m->package->path);
    if (x->prompt)
        return vocabulary_encode(x->tokenizer, m->package->path, m->vocab_size, x->prompt, strlen(x->prompt),
                                 &k->ids, e) &&
               (k->ids.n > 0 || err_set(e, ERR_USAGE, "options: prompt: it has no tokens"));
    return k->ids.n > 0 || check_make_prompt(k, x->tokenizer, e);
}

static bool run(struct checking *x, mk_library *library, const char *folder, const char *checkpoint,
                struct log *log, struct err *e)
{
    struct check *k = &x->check;
    struct log quiet = {.cancel = log->cancel, .cancel_also = log->cancel_also}; /* the warnings were said */
    struct model_options options = {.pool = library->pool, .watch_layers = true, .log = log};
    const struct reference_options reference = {.n_threads = pool_threads(library->pool), .log = log};
    k->log = log;
    if (!model_open(&k->model, folder, &options, e) || !model_need_logits(k->model, "check", e) ||
        !reference_open(&k->reference, checkpoint, &reference, e) || !check_sizes(k, e) ||
        !open_tokenizer(x, log, e) || !make_prompt(x, e) || !check_fit(k, e))
        return false;
    options.watch_layers = false;
    options.other_form = true;
    options.log = &quiet;
    return (package_count_other_form(k->model->package) == 0 ||
            model_open(&k->other_model, folder, &options, e)) &&
           check_compare(k, e);
}

static bool judge(const struct checking *x, const char *checkpoint, mk_text **report, bool *is_outside,
                  struct err *e)
{
    const struct check_json json = {.check = &x->check,
                                    .checkpoint = checkpoint,
                                    .tokenizer = x->tokenizer,
                                    .with_layers = x->with_layers};
    struct buf out, why;
    buf_init(&out, REPORT_BYTES_MAX);
    buf_init(&why, REPORT_BYTES_MAX);
    enum check_verdict v = check_judge(&x->check, &why);
    bool ok = check_put_json(&out, &json, v, &why, e);
    if (ok && out.failed)
        ok = err_set(e, ERR_LIMIT, "the report is larger than %zu bytes", REPORT_BYTES_MAX);
    if (ok && report) {
        size_t n;
        char *text = buf_take(&out, &n);
        *report = api_text_new(text, n);
    }
    *is_outside = ok && v == CHECK_FAIL;
    if (*is_outside)
        err_set(e, ERR_MISMATCH, "%s is outside the limits of %s: %.*s", x->check.model->package->path,
                x->check.limits.what, (int)strcspn(why.p, "\n"), why.p);
    buf_fini(&out);
    buf_fini(&why);
    return ok;
}

mk_status mk_check(mk_library *library, const char *folder, const char *checkpoint, const char *options,
                   const mk_call *call, mk_text **report, mk_error **error)
{
    struct err e = {0};
    struct api_log log;
    struct checking x = {.check = {.n_more = -1, .limits = CHECK_LIMITS_NOT_GIVEN}};
    cJSON *json = NULL;
    bool is_outside = false;
    if (report)
        *report = NULL;
    if (!api_log_init(&log, library, call, NULL, error))
        return MK_USAGE;
    bool ok = !options ||
              (json_parse(&json, options, strlen(options), "options", &e) && read_options(&x, json, &e));
    if (!ok)
        e.code = ERR_USAGE; /* the caller's text, not a file */
    ok = ok && run(&x, library, folder, checkpoint, &log.log, &e) &&
         judge(&x, checkpoint, report, &is_outside, &e);
    check_fini(&x.check);
    tokenizer_free(x.tokenizer);
    reference_close(x.check.reference);
    model_close(x.check.other_model);
    model_close(x.check.model);
    cJSON_Delete(json);
    return api_result(ok && !is_outside, &e, error);
}
