/* Words of options to a conversion. */
#include "api/conversion.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "convert/plain.h"
#include "measure/self_text.h"
#include "runtime/vocabulary.h"

#define THREADS_MAX 1024

/* The name of an option in messages. */
struct name {
    char text[64];
};

static struct name name_of(const struct conversion_words *w, const char *key)
{
    struct name n;
    snprintf(n.text, sizeof n.text, "%s%s", w->before_names, key);
    return n;
}

/* Narrow palettes lose too much without a look at the inputs, wide ones little. */
#define NARROW_BITS 4

/* The method where none is named: of a narrow palette, or with a text, feedback. */
static enum quant_method default_method(const struct conversion_words *w, const struct quant_spec *s)
{
    bool is_mixed = w->lut_ffn_mixed && strcmp(w->lut_ffn_mixed, "none") != 0;
    bool is_guided = s->kind == QUANT_LUT && !is_mixed && (s->bits <= NARROW_BITS || w->calibration);
    return is_guided ? QUANT_FEEDBACK : QUANT_KMEANS;
}

static bool read_method(const struct conversion_words *w, enum quant_method *method, struct err *e)
{
    if (!w->lut_method || quant_method_find(w->lut_method, method))
        return true;
    char *list = quant_method_list();
    err_set(e, ERR_USAGE, "%s: expected %s, found '%s'", name_of(w, "lut-method").text, list, w->lut_method);
    free(list);
    return false;
}

/* Does a part have palettes that more than weights must be known for? */
static bool measures(const struct quant_spec *s)
{
    return s->kind == QUANT_LUT && quant_method_needs(s->method) != QUANT_NEEDS_NOTHING;
}

static bool read_widths(const struct conversion_words *w, struct convert_options *o, struct err *e)
{
    static const char *const lut_keys[] = {"lut-embeddings", "lut-ffn", "lut-head"};
    static const char *const quant_keys[] = {"quant-embeddings", "quant-ffn", "quant-head"};
    struct quant_spec *specs[] = {&o->embeddings, &o->ffn, &o->head};
    enum quant_method method = QUANT_KMEANS;
    if (!read_method(w, &method, e))
        return false;
    for (int i = 0; i < 3; i++) {
        struct name lut = name_of(w, lut_keys[i]), quant = name_of(w, quant_keys[i]);
        struct quant_spec linear = {0};
        if (w->lut[i] && !quant_parse_lut(specs[i], lut.text, w->lut[i], e))
            return false;
        if (w->quant[i] && !quant_parse_linear(&linear, quant.text, w->quant[i], e))
            return false;
        if (linear.kind != QUANT_NONE && specs[i]->kind != QUANT_NONE)
            return err_set(e, ERR_USAGE, "%s and %s: expected one of them", lut.text, quant.text);
        if (linear.kind != QUANT_NONE)
            *specs[i] = linear;
        specs[i]->method = w->lut_method ? method : default_method(w, specs[i]);
        /* A table of rows is not multiplied with anything. */
        if (specs[i] == &o->embeddings && quant_method_needs(specs[i]->method) != QUANT_NEEDS_NOTHING)
            specs[i]->method = QUANT_KMEANS;
    }
    return true;
}

/* A mean of bits between the width of lut-ffn and the next. */
static bool read_mixed(const struct conversion_words *w, struct convert_options *o, struct err *e)
{
    struct name mixed = name_of(w, "lut-ffn-mixed"), lut = name_of(w, "lut-ffn");
    char *end = NULL;
    int narrow = o->ffn.bits, wide = quant_wider(narrow);
    bool is_given = w->lut_ffn_mixed && strcmp(w->lut_ffn_mixed, "none") != 0;
    bool is_guided = measures(&o->ffn) || measures(&o->head);
    if (!is_given && !is_guided && o->settings.residual_scale > 0 && w->calibration)
        return err_set(e, ERR_USAGE,
                       "%s: only %s, %s activation, fisher, feedback and best, and %s auto measure on a text",
                       name_of(w, "calibration").text, mixed.text, name_of(w, "lut-method").text,
                       name_of(w, "residual-scale").text);
    if (!is_guided && w->calibration_tokens != CONVERSION_NOT_GIVEN)
        return err_set(e, ERR_USAGE, "%s: only %s activation, fisher, feedback and best take it",
                       name_of(w, "calibration-tokens").text, name_of(w, "lut-method").text);
    if (!is_given)
        return true;
    if (o->ffn.kind != QUANT_LUT)
        return err_set(e, ERR_USAGE, "%s: needs %s N, the narrower of the two widths", mixed.text, lut.text);
    if (!wide)
        return err_set(e, ERR_USAGE, "%s: there is no width above %d bits", mixed.text, narrow);
    size_t length = strlen(w->lut_ffn_mixed);
    bool is_number = length > 0 && length < 16 && strspn(w->lut_ffn_mixed, "0123456789.") == length;
    o->ffn_mean_bits = is_number ? strtod(w->lut_ffn_mixed, &end) : 0;
    if (!is_number || *end || !(o->ffn_mean_bits >= narrow && o->ffn_mean_bits <= wide))
        return err_set(e, ERR_USAGE,
                       "%s: expected a mean of %d to %d bits, the width of %s and the next, found '%s'",
                       mixed.text, narrow, wide, lut.text, w->lut_ffn_mixed);
    return true;
}

/* 0: measured. */
static bool read_residual_scale(const struct conversion_words *w, double *scale, struct err *e)
{
    const char *text = w->residual_scale;
    char *end = NULL;
    int exponent = 0;
    *scale = 0;
    if (!text || strcmp(text, "auto") == 0)
        return true;
    bool is_number = text[0] && strspn(text, "0123456789.") == strlen(text);
    *scale = strcmp(text, "off") == 0 ? 1 : is_number ? strtod(text, &end) : 0;
    if ((end && *end) || frexp(*scale, &exponent) != 0.5 || *scale < RESIDUAL_SCALE_MIN || *scale > 1)
        return err_set(e, ERR_USAGE, "%s: expected auto, off or a power of two from %g to 1, found '%s'",
                       name_of(w, "residual-scale").text, RESIDUAL_SCALE_MIN, text);
    return true;
}

/* "auto", or a number that goes the way of the others. */
static bool read_chunks(const struct conversion_words *w, struct convert_options *o, int64_t *n,
                        struct err *e)
{
    const char *text = w->chunks;
    char *end;
    *n = CONVERSION_NOT_GIVEN;
    o->chunks_auto = text && strcmp(text, "auto") == 0;
    if (!text || o->chunks_auto)
        return true;
    if (text[0] >= '0' && text[0] <= '9' && strlen(text) < 10)
        *n = strtoll(text, &end, 10);
    if (*n == CONVERSION_NOT_GIVEN || *end)
        return err_set(e, ERR_USAGE, "%s: expected a whole number or auto, found '%s'",
                       name_of(w, "chunks").text, text);
    return true;
}

static bool read_format(const struct conversion_words *w, enum convert_format *format, bool *is_plain,
                        struct err *e)
{
    static const struct {
        const char *name;
        enum convert_format format;
    } formats[] = {{"both", CONVERT_BOTH}, {"mlmodelc", CONVERT_MLMODELC}, {"mlpackage", CONVERT_MLPACKAGE}};
    *format = CONVERT_BOTH;
    *is_plain = w->format && strcmp(w->format, "safetensors") == 0;
    if (*is_plain)
        return true;
    for (size_t i = 0; w->format && i < sizeof formats / sizeof formats[0]; i++) {
        if (strcmp(w->format, formats[i].name) == 0) {
            *format = formats[i].format;
            return true;
        }
    }
    return !w->format ||
           err_set(e, ERR_USAGE, "%s: expected both, mlmodelc, mlpackage or safetensors, found '%s'",
                   name_of(w, "format").text, w->format);
}

/* What was not given is 0 and becomes the default; a given 0 is wrong, as is what int can't hold. */
static bool read_number(const struct conversion_words *w, const char *key, int64_t v, int64_t most,
                        int64_t *out, struct err *e)
{
    *out = v == CONVERSION_NOT_GIVEN ? 0 : v;
    if (v != CONVERSION_NOT_GIVEN && (v < 1 || v > most))
        return err_set(e, ERR_USAGE, "%s: expected 1 to %lld, found %lld", name_of(w, key).text,
                       (long long)most, (long long)v);
    return true;
}

static bool read_numbers(const struct conversion_words *w, struct convert_options *o, int64_t n_chunks,
                         struct err *e)
{
    int64_t chunks, split, threads, gdn, calibration_tokens;
    if (!read_number(w, "context", w->context, INT32_MAX, &o->settings.context_length, e) ||
        !read_number(w, "batch", w->batch, INT32_MAX, &o->settings.batch_size, e) ||
        !read_number(w, "chunks", n_chunks, INT32_MAX, &chunks, e) ||
        !read_number(w, "split-head", w->split_head, INT32_MAX, &split, e) ||
        !read_number(w, "threads", w->threads, THREADS_MAX, &threads, e) ||
        !read_number(w, "gdn-chunk", w->gdn_chunk, INT32_MAX, &gdn, e) ||
        !read_number(w, "calibration-tokens", w->calibration_tokens, INT32_MAX, &calibration_tokens, e))
        return false;
    o->settings.n_chunks = (int)chunks;
    o->settings.split_lm_head = (int)split;
    o->settings.gdn_chunk = (int)gdn;
    o->n_threads = (int)threads;
    return true;
}

/* Tokens that the model writes: of a package without palettes beside the output, which goes again. */
static bool write_self(void *context, int64_t n_text, struct ids *ids, struct err *e)
{
    struct conversion *c = context;
    const struct convert_options *all = &c->options;
    double start = clock_seconds();
    struct log quiet = {.cancel = all->log->cancel};
    struct convert_report report = {0};
    char *parent = path_folder(all->output), *base = path_base(all->output);
    char *folder = xasprintf("%s/.%s.tmp-text", parent, base);
    struct convert_options o = {.checkpoint = all->checkpoint,
                                .config_overrides = all->config_overrides,
                                .output = folder,
                                .settings = {.context_length = n_text, .batch_size = 1},
                                .format = CONVERT_MLMODELC,
                                .n_threads = all->n_threads,
                                .replace = true,
                                .version = all->version,
                                .log = &quiet};
    int64_t n_tokens = c->guide.n_tokens ? c->guide.n_tokens : GUIDE_TOKENS;
    n_text = n_tokens < n_text ? n_tokens : n_text;
    log_info_hint(all->log, HINT_KMEANS, "the model writes %lld tokens, by which its palettes are made",
                  (long long)n_tokens);
    bool ok = convert_run(&o, &report, e) &&
              self_text_write(ids, folder, n_tokens, n_text, all->n_threads, all->log, e);
    struct err ignored = {0};
    bool is_gone = path_remove_tree(folder, ok ? e : &ignored);
    if (ok && is_gone)
        log_info(all->log, "written in %.1f s", clock_seconds() - start);
    convert_report_fini(&report);
    free(folder);
    free(parent);
    free(base);
    return ok && is_gone;
}

static void prepare(struct conversion *c, const struct conversion_words *w, struct log *log)
{
    struct convert_options *o = &c->options;
    c->mixed = (struct mixed){.log = log};
    c->verify = (struct verify_package){.log = log, .n_threads = o->n_threads};
    bool is_self = w->calibration && strcmp(w->calibration, CALIBRATION_SELF) == 0;
    c->calibration = (struct calibration){
        .from = is_self ? NULL : w->calibration, .read_text = w->read_text, .read_ids = w->read_ids};
    c->self_text = (struct calibration){.from = CALIBRATION_SELF, .write_self = write_self, .context = c};
    c->residual = (struct residual){.calibration = &c->calibration, .n_threads = o->n_threads, .log = log};
    o->measure_residual = residual_measure;
    o->residual_context = &c->residual;
    c->guide =
        (struct guide){.calibration = &c->calibration,
                       .n_tokens = w->calibration_tokens == CONVERSION_NOT_GIVEN ? 0 : w->calibration_tokens,
                       .n_threads = o->n_threads,
                       .log = log};
    if (measures(&o->ffn) || measures(&o->head)) {
        c->guide.method = measures(&o->ffn) ? o->ffn.method : o->head.method;
        if (!c->calibration.from)
            c->guide.calibration = &c->self_text;
        o->guide = guide_layer;
        o->guide_all = c->guide.method == QUANT_BEST;
        o->guide_begin = guide_begin;
        o->guide_context = &c->guide;
        o->guide_key = c->guide.key;
    }
    if (quant_method_needs(c->guide.method) == QUANT_NEEDS_GRADIENTS) {
        c->fisher = (struct fisher){.calibration = c->guide.calibration,
                                    .n_tokens = c->guide.n_tokens,
                                    .folder = o->output,
                                    .n_threads = o->n_threads,
                                    .log = log};
        o->guide = fisher_layer;
        o->guide_begin = fisher_begin;
        o->guide_context = &c->fisher;
        o->guide_key = c->fisher.key;
    }
    if (o->ffn_mean_bits > 0) {
        c->mixed.calibration = &c->calibration;
        c->mixed.spec = o->ffn;
        c->mixed.mean_bits = o->ffn_mean_bits;
        c->mixed.n_threads = o->n_threads;
        o->choose = mixed_choose;
        o->choose_context = &c->mixed;
    }
    if (!w->no_verify) {
        o->verify = verify_package;
        o->verify_context = &c->verify;
    }
}

bool conversion_read(struct conversion *c, const struct conversion_words *w, struct log *log, struct err *e)
{
    struct convert_options *o = &c->options;
    int64_t n_chunks;
    *c = (struct conversion){.options = {.checkpoint = w->checkpoint,
                                         .output = w->output,
                                         .prefix = w->prefix,
                                         .only = w->only,
                                         .report_path = w->report,
                                         .config_overrides = w->config,
                                         .replace = w->force,
                                         .resume = w->resume,
                                         .log = log}};
    o->settings.anemll_rotate = w->anemll_rotate;
    o->settings.exact_norms = w->exact_norms;
    o->settings.exact_topk = w->exact_topk;
    if (!read_widths(w, o, e) || !read_residual_scale(w, &o->settings.residual_scale, e) ||
        !read_mixed(w, o, e) || !read_format(w, &o->format, &c->is_plain, e) ||
        !read_chunks(w, o, &n_chunks, e) || !read_numbers(w, o, n_chunks, e))
        return false;
    prepare(c, w, log);
    return true;
}

bool conversion_run(struct conversion *c, struct convert_report *report, struct err *e)
{
    if (!(c->is_plain ? convert_plain(&c->options, report, e) : convert_run(&c->options, report, e)))
        return false;
    if (c->guide.n_used > 0)
        guide_say(&c->guide);
    if (c->fisher.n_used > 0)
        fisher_say(&c->fisher);
    if (report->has_tokenizer)
        vocabulary_check_written(c->options.log, c->options.output);
    return true;
}

void conversion_fini(struct conversion *c)
{
    mixed_fini(&c->mixed);
    guide_close(&c->guide);
    fisher_close(&c->fisher);
    calibration_fini(&c->calibration);
    calibration_fini(&c->self_text);
}
