/* milkit convert: options and report around convert_run. */
#include <stdlib.h>
#include <string.h>
#include "cli/cli.h"
#include "cli/download.h"
#include "convert/convert.h"
#include "convert/plain.h"
#include "measure/mixed.h"
#include "measure/requantized.h"
#include "measure/verify_package.h"
#include "runtime/vocabulary.h"

/* Up to here what a second quantization costs is measured at once. */
#define MEASURED_NUMBERS_MAX 400000000

#define SYNOPSIS "CHECKPOINT -o DIR [OPTIONS]"

/* The texts of options that convert_options holds parsed. */
struct texts {
    const char *lut[3], *quant[3], *method, *mixed, *calibration, *chunks, *format;
};

static bool read_quantization(const struct texts *t, struct convert_options *o, struct err *e)
{
    static const char *const lut_names[] = {"--lut-embeddings", "--lut-ffn", "--lut-head"};
    static const char *const quant_names[] = {"--quant-embeddings", "--quant-ffn", "--quant-head"};
    struct quant_spec *specs[] = {&o->embeddings, &o->ffn, &o->head};
    enum quant_method method = QUANT_KMEANS;
    if (t->method && strcmp(t->method, "exact") == 0)
        method = QUANT_EXACT;
    else if (t->method && strcmp(t->method, "fisher") == 0)
        return err_set(e, ERR_UNSUPPORTED, "--lut-method fisher: not supported yet: kmeans or exact");
    else if (t->method && strcmp(t->method, "kmeans") != 0)
        return err_set(e, ERR_USAGE, "--lut-method: expected kmeans or exact, found '%s'", t->method);
    for (int i = 0; i < 3; i++) {
        struct quant_spec linear = {0};
        if (t->lut[i] && !quant_parse_lut(specs[i], lut_names[i], t->lut[i], e))
            return false;
        if (t->quant[i] && !quant_parse_linear(&linear, quant_names[i], t->quant[i], e))
            return false;
        if (linear.kind != QUANT_NONE && specs[i]->kind != QUANT_NONE)
            return err_set(e, ERR_USAGE, "%s and %s: expected one of them", lut_names[i], quant_names[i]);
        if (linear.kind != QUANT_NONE)
            *specs[i] = linear;
        specs[i]->method = method;
    }
    return true;
}

/* A mean of bits between the width of --lut-ffn and the next. */
static bool read_mixed(const struct texts *t, struct convert_options *o, struct err *e)
{
    char *end = NULL;
    int narrow = o->ffn.bits, wide = quant_wider(narrow);
    bool is_given = t->mixed && strcmp(t->mixed, "none") != 0;
    if (!is_given && t->calibration)
        return err_set(e, ERR_USAGE, "--calibration: only --lut-ffn-mixed measures on a text");
    if (!is_given)
        return true;
    if (o->ffn.kind != QUANT_LUT)
        return err_set(e, ERR_USAGE, "--lut-ffn-mixed: needs --lut-ffn N, the narrower of the two widths");
    if (!wide)
        return err_set(e, ERR_USAGE, "--lut-ffn-mixed: there is no width above %d bits", narrow);
    size_t length = strlen(t->mixed);
    bool is_number = length > 0 && length < 16 && strspn(t->mixed, "0123456789.") == length;
    o->ffn_mean_bits = is_number ? strtod(t->mixed, &end) : 0;
    if (!is_number || *end || !(o->ffn_mean_bits >= narrow && o->ffn_mean_bits <= wide))
        return err_set(e, ERR_USAGE,
                       "--lut-ffn-mixed: expected a mean of %d to %d bits, the width of --lut-ffn and the "
                       "next, found '%s'",
                       narrow, wide, t->mixed);
    return true;
}

/* "auto" or a number, which goes the way of the others. */
static bool read_chunks(const char *text, struct convert_options *o, int64_t *n, struct err *e)
{
    char *end;
    if (!text)
        return true;
    o->chunks_auto = strcmp(text, "auto") == 0;
    if (o->chunks_auto)
        return true;
    *n = text[0] >= '0' && text[0] <= '9' && strlen(text) < 10 ? strtoll(text, &end, 10) : INT64_MIN;
    if (*n == INT64_MIN || *end)
        return err_set(e, ERR_USAGE, "--chunks: expected a whole number or auto, found '%s'", text);
    return true;
}

static bool check_format(const char *text, enum convert_format *format, bool *is_plain, struct err *e)
{
    static const struct {
        const char *name;
        enum convert_format format;
    } formats[] = {{"both", CONVERT_BOTH}, {"mlmodelc", CONVERT_MLMODELC}, {"mlpackage", CONVERT_MLPACKAGE}};
    *is_plain = strcmp(text, "safetensors") == 0;
    if (*is_plain)
        return true;
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        if (strcmp(text, formats[i].name) == 0) {
            *format = formats[i].format;
            return true;
        }
    }
    return err_set(e, ERR_USAGE, "--format: expected both, mlmodelc, mlpackage or safetensors, found '%s'",
                   text);
}

/* Numbers that were not given are 0 and become the defaults; a given 0 is wrong, as is what int can't hold.
 */
static bool check_number(const char *name, int64_t v, bool *is_given, struct err *e)
{
    *is_given = v != INT64_MIN;
    if (*is_given && (v < 1 || v > INT32_MAX))
        return err_set(e, ERR_USAGE, "%s: expected 1 to %d, found %lld", name, INT32_MAX, (long long)v);
    return true;
}

static void print_report(struct cli *c, const struct convert_options *o, const struct convert_report *r)
{
    log_info(&c->log, "%s: %.1f MB of weights from %d tensors in %.1f s", o->output,
             (double)r->bytes_written * 1e-6, r->n_tensors_used, r->seconds);
    if (r->n_resumed > 0)
        log_info(&c->log, "%d of %d parts were finished before", r->n_resumed, r->n_parts);
    if (r->n_tensors_left_out > 0)
        log_info(&c->log, "not needed, left out: %s", r->left_out);
    log_debug(&c->log, "at most %.1f MB of memory beside the mapped files", (double)r->peak_anonymous * 1e-6);
    log_debug(&c->log, "%.1f MB read, %.1f MB saved by sharing equal weights", (double)r->bytes_read * 1e-6,
              (double)r->dedup_bytes * 1e-6);
}

/* What was quantized before is said, and what palettes cost on top of it; for large models how to find out. */
static void say_quantized(struct cli *c, const struct convert_options *o, const struct convert_report *r)
{
    struct requantized q;
    struct err e = {0};
    bool has_palettes =
        o->ffn.kind != QUANT_NONE || o->head.kind != QUANT_NONE || o->embeddings.kind != QUANT_NONE;
    if (!r->packed_types)
        return;
    log_info(&c->log, "%s was quantized before (%s: %.1f bits a number); the package has what that left",
             o->checkpoint, r->packed_types, r->packed_bits);
    if (!has_palettes || o->only)
        return;
    if (!r->has_tokenizer || !o->verify || r->n_numbers > MEASURED_NUMBERS_MAX)
        log_warn(&c->log, "quantized again; milkit check %s --hf %s tells what that costs", o->output,
                 o->checkpoint);
    else if (requantized_measure(&q, o->output, o->checkpoint, o->config_overrides, o->n_threads, &c->log,
                                 &e))
        log_warn(&c->log,
                 "quantized again: KL divergence from the file's own numbers %.4f nats, same best token for "
                 "%.1f %% (%lld "
                 "tokens of a built-in text)",
                 q.mean_kl, 100 * q.top1, (long long)q.n_tokens);
    else
        log_warn(&c->log, "quantized again; what that costs can't be measured: %s", e.msg);
}

int cmd_convert(struct cli *c, int argc, char **argv)
{
    struct convert_options o = {.log = &c->log};
    struct convert_report report = {0};
    struct mixed mixed = {.log = &c->log};
    struct err e = {0};
    struct texts texts = {.format = "both"};
    const char *positional[1];
    const char *model = NULL;
    int64_t numbers[6];
    for (int i = 0; i < 6; i++)
        numbers[i] = INT64_MIN;
    bool force = false, no_verify = false, yes = false, help = false, given = false;
    bool is_plain = false;
    int n_positional = 0;
    const struct cli_option options[] = {
        {"-o,--output,--out,--outfile", CLI_STRING, &o.output, "DIR", "where the package goes"},
        {"-c,--context,--context-length,--ctx,--ctx-size", CLI_INT, &numbers[0], "N",
         "positions of the KV cache (512)"},
        {"-b,--batch,--batch-size", CLI_INT, &numbers[1], "N", "tokens of a prefill call (64)"},
        {"--chunks,--chunk", CLI_STRING, &texts.chunks, "N",
         "parts that the layers are split into (1); auto: files of up to 950 MB"},
        {"--prefix", CLI_STRING, &o.prefix, "NAME", "first part of the file names (by the family: qwen)"},
        {"--split-head,--split-lm-head", CLI_INT, &numbers[3], "N",
         "parts of the LM head (by the family: 16 or 8)"},
        {"--format", CLI_STRING, &texts.format, "FORM",
         "both, mlmodelc or mlpackage (both; they share one weight file); safetensors: a GGUF file as a "
         "checkpoint"},
        {"-j,-t,--threads", CLI_INT, &numbers[4], "N", "threads (all)"},
        {"--force", CLI_FLAG, &force, NULL, "replace an existing package and report"},
        {"-m,--model,--hf-path,--hf,--checkpoint", CLI_STRING, &model, "CHECKPOINT", NULL},
        {"--gdn-chunk", CLI_INT, &numbers[5], "N", NULL},
        {"--lut-ffn,--lut2", CLI_STRING, &texts.lut[1], "N[,G]",
         "palettize the layers: 1, 2, 3, 4, 6 or 8 bits, G channels a table (8; 0: all)"},
        {"--lut-head,--lut3", CLI_STRING, &texts.lut[2], "N[,G]", "palettize the LM head"},
        {"--lut-embeddings,--lut1", CLI_STRING, &texts.lut[0], "N[,G]",
         "palettize the embedding table (better left fp16)"},
        {"--lut-method", CLI_STRING, &texts.method, "METHOD",
         "kmeans (within 0.1 % of the best, fast) or exact (the best)"},
        {"--lut-ffn-mixed", CLI_STRING, &texts.mixed, "BITS",
         "with --lut-ffn: the next width for the most sensitive weights, BITS on average"},
        {"--calibration", CLI_TEXT, &texts.calibration, "FILE",
         "text (@FILE: token ids) on which --lut-ffn-mixed measures what each weight's width costs"},
        {"--quant-ffn", CLI_STRING, &texts.quant[1], "KIND",
         "int8, int8,tensor or int4,B instead of a palette (not for the Neural Engine)"},
        {"--quant-head", CLI_STRING, &texts.quant[2], "KIND", "the same for the LM head"},
        {"--quant-embeddings", CLI_STRING, &texts.quant[0], "KIND", "the same for the embedding table"},
        {"--anemll-rotate", CLI_FLAG, &o.settings.anemll_rotate, NULL,
         "Gemma 3: caches and rotating functions as ANEMLL's runtimes want them above the window"},
        {"--exact-norms", CLI_FLAG, &o.settings.exact_norms, NULL,
         "Qwen3.5, Gemma 3: norms multiply by two fp16 numbers whose sum is 1 + w, not by one"},
        {"--exact-topk", CLI_FLAG, &o.settings.exact_topk, NULL,
         "experts: exactly k of them, also where fp16 makes weights of the router equal"},
        {"--config", CLI_STRING, &o.config_overrides, "FILE",
         "of a GGUF file: JSON whose keys replace those of the config.json that is made of it"},
        {"--only", CLI_STRING, &o.only, "PARTS", "some of embeddings, ffn, chunk:N, head, meta"},
        {"--no-verify", CLI_FLAG, &no_verify, NULL, "do not run a few tokens of what was written"},
        {"--resume", CLI_FLAG, &o.resume, NULL, "go on with what an interrupted run left"},
        DOWNLOAD_OPTION_ROW(yes),
        {"--report", CLI_STRING, &o.report_path, "FILE", "write what each tensor cost, as JSON"},
    };
    if (!cli_parse(c, argc, argv, options, (int)(sizeof options / sizeof options[0]), positional, 1,
                   &n_positional, SYNOPSIS, &help, &e))
        return cli_fail(c, &e, NULL);
    if (help)
        return 0;
    o.checkpoint = n_positional ? positional[0] : model;
    o.replace = force;
    static const char *const number_names[] = {"--context",    "--batch",   "--chunks",
                                               "--split-head", "--threads", "--gdn-chunk"};
    o.version = MILKIT_VERSION;
    bool ok = read_quantization(&texts, &o, &e) && read_mixed(&texts, &o, &e) &&
              check_format(texts.format, &o.format, &is_plain, &e) &&
              read_chunks(texts.chunks, &o, &numbers[2], &e);
    for (int i = 0; i < 6 && ok; i++) {
        ok = check_number(number_names[i], numbers[i], &given, &e);
        numbers[i] = given ? numbers[i] : 0;
    }
    if (ok && !o.checkpoint)
        ok = err_set(&e, ERR_USAGE, "expected a checkpoint folder or a GGUF file");
    if (ok && (!o.output || !o.output[0]))
        ok = err_set(&e, ERR_USAGE, "expected an output folder (-o DIR)");
    if (ok && strcmp(o.output, "-") == 0)
        ok = err_set(&e, ERR_USAGE, "-o -: a package is a folder, which stdout can't take; expected -o DIR");
    if (ok && numbers[4] > 1024)
        ok = err_set(&e, ERR_USAGE, "--threads: expected 1 to 1024, found %lld", (long long)numbers[4]);
    if (!ok)
        return cli_fail(c, &e, NULL);
    o.settings.context_length = numbers[0];
    o.settings.batch_size = numbers[1];
    o.settings.n_chunks = (int)numbers[2];
    o.settings.split_lm_head = (int)numbers[3];
    o.settings.gdn_chunk = (int)numbers[5];
    o.n_threads = (int)numbers[4];
    if (!cli_resolve_or_pull(c, &o.checkpoint, yes, &e))
        return cli_fail(c, &e, NULL);
    if (o.ffn_mean_bits > 0) {
        mixed.calibration = texts.calibration;
        mixed.read_text = cli_read_text;
        mixed.read_ids = cli_read_ids;
        mixed.spec = o.ffn;
        mixed.mean_bits = o.ffn_mean_bits;
        mixed.n_threads = o.n_threads;
        o.choose = mixed_choose;
        o.choose_context = &mixed;
    }
    struct verify_package verify = {.log = &c->log, .n_threads = o.n_threads};
    if (!no_verify) {
        o.verify = verify_package;
        o.verify_context = &verify;
    }
    if (!(is_plain ? convert_plain(&o, &report, &e) : convert_run(&o, &report, &e))) {
        ok = false;
    } else {
        print_report(c, &o, &report);
        say_quantized(c, &o, &report);
        if (report.has_tokenizer)
            vocabulary_check_written(&c->log, o.output);
    }
    convert_report_fini(&report);
    mixed_fini(&mixed);
    return ok ? 0 : cli_fail(c, &e, NULL);
}
