/* milkit convert: options and report around a conversion. */
#include <string.h>
#include "api/conversion.h"
#include "cli/cli.h"
#include "cli/download.h"
#include "cli/lint_print.h"
#include "lint/lint.h"
#include "measure/requantized.h"

/* Up to here what a second quantization costs is measured at once. */
#define MEASURED_NUMBERS_MAX 400000000

#define SYNOPSIS "CHECKPOINT -o DIR [OPTIONS]"

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

/* What is known of the Neural Engine, in a line. A package that can't be looked at (parts alone, a folder of another form) is not. */
static void say_lint(struct cli *c, const char *output)
{
    struct lint_options options = {.skips_weights = true};
    cJSON *report = cJSON_CreateObject();
    struct err ignored = {0};
    struct buf b;
    buf_init(&b, 1 << 12);
    if (lint_path(report, output, &options, &ignored)) {
        lint_print_short(&b, report);
        log_info(&c->log, "for the Neural Engine: %s (%s lint shows them)", b.p, c->program);
    }
    buf_fini(&b);
    cJSON_Delete(report);
}

int cmd_convert(struct cli *c, int argc, char **argv)
{
    struct conversion_words w = CONVERSION_WORDS_INIT;
    struct conversion conversion = {0};
    struct convert_report report = {0};
    struct err e = {0};
    const char *positional[1];
    const char *model = NULL;
    bool yes = false, help = false;
    int n_positional = 0;
    w.before_names = "--";
    w.read_text = cli_read_text;
    w.read_ids = cli_read_ids;
    const struct cli_option options[] = {
        {"-o,--output,--out,--outfile", CLI_STRING, &w.output, "DIR", "where the package goes"},
        {"-c,--context,--context-length,--ctx,--ctx-size", CLI_INT, &w.context, "N",
         "positions of the KV cache (512)"},
        {"-b,--batch,--batch-size", CLI_INT, &w.batch, "N", "tokens of a prefill call (64)"},
        {"--chunks,--chunk", CLI_STRING, &w.chunks, "N",
         "parts that the layers are split into (1); auto: files of up to 950 MB"},
        {"--prefix", CLI_STRING, &w.prefix, "NAME", "first part of the file names (by the family: qwen)"},
        {"--split-head,--split-lm-head", CLI_INT, &w.split_head, "N",
         "parts of the LM head (by the family: 16 or 8)"},
        {"--format", CLI_STRING, &w.format, "FORM",
         "both, mlmodelc or mlpackage (both; they share one weight file); safetensors: a GGUF file as a "
         "checkpoint"},
        {"-j,-t,--threads", CLI_INT, &w.threads, "N", "threads (all)"},
        {"--force", CLI_FLAG, &w.force, NULL, "replace an existing package and report"},
        {"-m,--model,--hf-path,--hf,--checkpoint", CLI_STRING, &model, "CHECKPOINT", NULL},
        {"--gdn-chunk", CLI_INT, &w.gdn_chunk, "N", NULL},
        {"--lut-ffn,--lut2", CLI_STRING, &w.lut[1], "N[,G]",
         "palettize the layers: 1, 2, 3, 4, 6 or 8 bits, G channels a table (8; 0: all)"},
        {"--lut-head,--lut3", CLI_STRING, &w.lut[2], "N[,G]", "palettize the LM head"},
        {"--lut-embeddings,--lut1", CLI_STRING, &w.lut[0], "N[,G]",
         "palettize the embedding table (better left fp16)"},
        {"--lut-method", CLI_STRING, &w.lut_method, "METHOD",
         "kmeans, exact; by gradients on a text: fisher; by the inputs: activation, feedback (up to 4 bits: "
         "errors of related "
         "inputs "
         "undo each other), best (and tables for them; slower)"},
        {"--lut-ffn-mixed", CLI_STRING, &w.lut_ffn_mixed, "BITS",
         "with --lut-ffn: the next width for the most sensitive weights, BITS on average"},
        {"--calibration", CLI_TEXT, &w.calibration, "FILE",
         "text for these methods, and on which --lut-ffn-mixed measures widths and --residual-scale the "
         "stream; @FILE: token ids; self: the model writes it for the methods"},
        {"--calibration-tokens", CLI_INT, &w.calibration_tokens, "N",
         "tokens of it for these methods (16384)"},
        {"--quant-ffn", CLI_STRING, &w.quant[1], "KIND",
         "int8, int8,tensor or int4,B instead of a palette (not for the Neural Engine)"},
        {"--quant-head", CLI_STRING, &w.quant[2], "KIND", "the same for the LM head"},
        {"--quant-embeddings", CLI_STRING, &w.quant[0], "KIND", "the same for the embedding table"},
        {"--residual-scale", CLI_STRING, &w.residual_scale, "N",
         "of the residual stream, so that fp16 holds it: auto (measured), off, or a power of two like 0.25"},
        {"--anemll-rotate", CLI_FLAG, &w.anemll_rotate, NULL,
         "Gemma 3: caches and rotating functions as ANEMLL's runtimes want them above the window"},
        {"--exact-norms", CLI_FLAG, &w.exact_norms, NULL,
         "Qwen3.5, Gemma 3: norms multiply by two fp16 numbers whose sum is 1 + w, not by one"},
        {"--exact-topk", CLI_FLAG, &w.exact_topk, NULL,
         "experts: exactly k of them, also where fp16 makes weights of the router equal"},
        {"--only", CLI_STRING, &w.only, "PARTS", "some of embeddings, ffn, chunk:N, head, meta"},
        {"--no-verify", CLI_FLAG, &w.no_verify, NULL, "do not run a few tokens of what was written"},
        {"--resume", CLI_FLAG, &w.resume, NULL, "go on with what an interrupted run left"},
        DOWNLOAD_OPTION_ROW(yes),
        {"--config", CLI_STRING, &w.config, "FILE",
         "of a GGUF file: JSON whose keys replace those of the config.json that is made of it"},
        {"--report", CLI_STRING, &w.report, "FILE", "write what each tensor cost, as JSON"},
    };
    if (!cli_parse(c, argc, argv, options, (int)(sizeof options / sizeof options[0]), positional, 1,
                   &n_positional, SYNOPSIS, &help, &e))
        return cli_fail(c, &e, NULL);
    if (help)
        return 0;
    w.checkpoint = n_positional ? positional[0] : model;
    bool ok = conversion_read(&conversion, &w, &c->log, &e);
    if (ok && !w.checkpoint)
        ok = err_set(&e, ERR_USAGE, "expected a checkpoint folder or a GGUF file");
    if (ok && (!w.output || !w.output[0]))
        ok = err_set(&e, ERR_USAGE, "expected an output folder (-o DIR)");
    if (ok && strcmp(w.output, "-") == 0)
        ok = err_set(&e, ERR_USAGE, "-o -: a package is a folder, which stdout can't take; expected -o DIR");
    conversion.options.version = MILKIT_VERSION;
    ok = ok && cli_resolve_or_pull(c, &conversion.options.checkpoint, yes, &e) &&
         conversion_run(&conversion, &report, &e);
    if (ok) {
        print_report(c, &conversion.options, &report);
        say_quantized(c, &conversion.options, &report);
        if (!conversion.is_plain)
            say_lint(c, w.output);
    }
    convert_report_fini(&report);
    conversion_fini(&conversion);
    return ok ? 0 : cli_fail(c, &e, NULL);
}
