/* milkit convert: options and report around convert_run. */
#include <stdlib.h>
#include <string.h>
#include "cli/cli.h"
#include "convert/convert.h"

#define SYNOPSIS "CHECKPOINT -o DIR [OPTIONS]"

/* Options of quantization: known, so that a mistyped name and a missing ability are told apart. */
enum {
    LUT_EMBEDDINGS,
    LUT_FFN,
    LUT_HEAD,
    LUT_MIXED,
    LUT_METHOD,
    QUANT_EMBEDDINGS,
    QUANT_FFN,
    QUANT_HEAD,
    ONLY,
    N_LATER
};

static bool check_later(const char *const later[N_LATER], bool resume, struct err *e)
{
    static const char *const names[N_LATER] = {"--lut-embeddings", "--lut-ffn",    "--lut-head",
                                               "--lut-ffn-mixed",  "--lut-method", "--quant-embeddings",
                                               "--quant-ffn",      "--quant-head", "--only"};
    for (int i = 0; i < N_LATER; i++) {
        if (!later[i] || (i < ONLY && strcmp(later[i], "none") == 0))
            continue;
        return err_set(e, ERR_UNSUPPORTED, "%s %s: not supported yet: milkit convert writes fp16 only",
                       names[i], later[i]);
    }
    if (resume)
        return err_set(e, ERR_UNSUPPORTED, "--resume: not supported yet: a conversion runs as a whole");
    return true;
}

static bool check_format(const char *text, enum convert_format *format, struct err *e)
{
    static const struct {
        const char *name;
        enum convert_format format;
    } formats[] = {{"both", CONVERT_BOTH}, {"mlmodelc", CONVERT_MLMODELC}, {"mlpackage", CONVERT_MLPACKAGE}};
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        if (strcmp(text, formats[i].name) == 0) {
            *format = formats[i].format;
            return true;
        }
    }
    return err_set(e, ERR_USAGE, "--format: expected both, mlmodelc or mlpackage, found '%s'", text);
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
    if (r->n_tensors_left_out > 0)
        log_info(&c->log, "not needed, left out: %s", r->left_out);
    log_debug(&c->log, "%.1f MB read, %.1f MB saved by sharing equal weights", (double)r->bytes_read * 1e-6,
              (double)r->dedup_bytes * 1e-6);
}

int cmd_convert(struct cli *c, int argc, char **argv)
{
    struct convert_options o = {.log = &c->log};
    struct convert_report report = {0};
    struct err e = {0};
    const char *format = "both", *later[N_LATER] = {0}, *positional[1];
    const char *model = NULL;
    int64_t numbers[6];
    for (int i = 0; i < 6; i++)
        numbers[i] = INT64_MIN;
    bool force = false, resume = false, help = false, given = false;
    int n_positional = 0;
    const struct cli_option options[] = {
        {"-o,--output,--out", CLI_STRING, &o.output, "DIR", "where the package goes"},
        {"-c,--context,--context-length,--ctx", CLI_INT, &numbers[0], "N", "positions of the KV cache (512)"},
        {"-b,--batch,--batch-size", CLI_INT, &numbers[1], "N", "tokens of a prefill call (64)"},
        {"--chunks,--chunk", CLI_INT, &numbers[2], "N", "parts that the layers are split into (1)"},
        {"--prefix", CLI_STRING, &o.prefix, "NAME", "first part of the file names (by the family: qwen)"},
        {"--split-head,--split-lm-head", CLI_INT, &numbers[3], "N", "parts of the LM head (16)"},
        {"--format", CLI_STRING, &format, "FORM",
         "both, mlmodelc or mlpackage (both; they share one weight file)"},
        {"-j,--threads", CLI_INT, &numbers[4], "N", "threads (all)"},
        {"--force", CLI_FLAG, &force, NULL, "replace an existing package"},
        {"--model", CLI_STRING, &model, "CHECKPOINT", NULL},
        {"--gdn-chunk", CLI_INT, &numbers[5], "N", NULL},
        {"--lut-embeddings,--lut1", CLI_STRING, &later[LUT_EMBEDDINGS], "N", NULL},
        {"--lut-ffn,--lut2", CLI_STRING, &later[LUT_FFN], "N[,G]", NULL},
        {"--lut-head,--lut3", CLI_STRING, &later[LUT_HEAD], "N[,G]", NULL},
        {"--lut-ffn-mixed", CLI_STRING, &later[LUT_MIXED], "BITS", NULL},
        {"--lut-method", CLI_STRING, &later[LUT_METHOD], "METHOD", NULL},
        {"--quant-embeddings", CLI_STRING, &later[QUANT_EMBEDDINGS], "KIND", NULL},
        {"--quant-ffn", CLI_STRING, &later[QUANT_FFN], "KIND", NULL},
        {"--quant-head", CLI_STRING, &later[QUANT_HEAD], "KIND", NULL},
        {"--only", CLI_STRING, &later[ONLY], "PART", NULL},
        {"--resume", CLI_FLAG, &resume, NULL, NULL},
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
    bool ok = check_later(later, resume, &e) && check_format(format, &o.format, &e);
    for (int i = 0; i < 6 && ok; i++) {
        ok = check_number(number_names[i], numbers[i], &given, &e);
        numbers[i] = given ? numbers[i] : 0;
    }
    if (ok && !o.checkpoint)
        ok = err_set(&e, ERR_USAGE, "expected a checkpoint folder");
    if (ok && (!o.output || !o.output[0]))
        ok = err_set(&e, ERR_USAGE, "expected an output folder (-o DIR)");
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
    if (!convert_run(&o, &report, &e))
        ok = false;
    else
        print_report(c, &o, &report);
    convert_report_fini(&report);
    return ok ? 0 : cli_fail(c, &e, NULL);
}
