/* milkit check: does a package compute what its checkpoint computes (measure/check.h)? And how fast is it? */
#include <math.h>
#include <stdlib.h>
#include "cli/check_plan.h"
#include "cli/check_report.h"
#include "cli/download.h"
#include "cli/package_options.h"
#include "device/forecast.h"

#define SYNOPSIS "DIR --hf CHECKPOINT [-p PROMPT] [-n N] [OPTIONS], or DIR --bench"
#define DEFAULT_BENCH_RUNS 5
#define BENCH_RUNS_MAX 1000

struct options {
    struct package_options package;
    const char *checkpoint;
    const char *config_overrides; /* of a GGUF file; NULL: none */
    struct prompt_options prompt;
    const char *chip; /* of plan */
    bool json, bench, plan, with_layers, yes;
    /* made on the way */
    struct cli *cli;
    struct log quiet; /* of what is opened again */
    struct tokenizer *tokenizer;
    struct check check;
    struct check_bench measured;
};

static bool read_prompt(struct options *o, struct err *e)
{
    int n_given = prompt_count(&o->prompt);
    if (n_given > 1)
        return err_set(e, ERR_USAGE, "expected only one of -p PROMPT, -f FILE and --tokens IDS");
    if (n_given && !o->prompt.tokens && !o->tokenizer)
        return err_set(e, ERR_USAGE, "%s has no tokenizer.json: give the prompt as --tokens IDS",
                       o->check.model->package->path);
    return n_given ? package_read_prompt(o->check.model, o->tokenizer, &o->prompt, &o->check.ids, e)
                   : check_make_prompt(&o->check, o->tokenizer, e);
}

static bool check_options(const struct options *o, struct err *e)
{
    const struct check_limits *l = &o->check.limits;
    if (!o->checkpoint && !o->bench)
        return err_set(
            e, ERR_USAGE,
            "expected the checkpoint of the package: --hf CHECKPOINT (or --bench, which needs none)");
    if (o->measured.n_runs < 1 || o->measured.n_runs > BENCH_RUNS_MAX)
        return err_set(e, ERR_USAGE, "--runs: expected 1 to %d, found %lld", BENCH_RUNS_MAX,
                       (long long)o->measured.n_runs);
    if (o->check.n_more < -1)
        return err_set(e, ERR_USAGE, "-n: expected 0 or more, found %lld", (long long)o->check.n_more);
    const struct {
        const char *option;
        double value, least, most; /* most: infinite where there is none */
    } given[] = {{"--min-cosine", l->min_cosine, -1, 1},
                 {"--min-layer-cosine", l->min_layer_cosine, -1, 1},
                 {"--min-added-cosine", l->min_added_cosine, -1, 1},
                 {"--min-top1", l->min_top1, 0, 1},
                 {"--max-kl", l->max_mean_kl, 0, INFINITY},
                 {"--max-difference", l->max_difference, 0, INFINITY},
                 {"--margin", l->margin, 0, INFINITY}};
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        if (!(given[i].value < given[i].least || given[i].value > given[i].most))
            continue; /* NAN: not given */
        char to[32] = " or more";
        if (isfinite(given[i].most))
            snprintf(to, sizeof to, " to %g", given[i].most);
        return err_set(e, ERR_USAGE, "%s: expected %g%s, found %g", given[i].option, given[i].least, to,
                       given[i].value);
    }
    if (l->min_gain > l->max_gain)
        return err_set(e, ERR_USAGE, "--min-gain and --max-gain: expected %g to be at least %g", l->max_gain,
                       l->min_gain);
    return true;
}

static bool open_tokenizer(struct options *o, struct err *e)
{
    char *path = path_join(o->check.model->package->path, "tokenizer.json");
    bool ok = !path_exists(path) || package_open_tokenizer(o->cli, o->check.model, &o->tokenizer, e);
    free(path);
    return ok;
}

/* A second opening says nothing: the warnings were said. */
static bool open_again(struct options *o, bool other_form, struct model **m, struct err *e)
{
    struct package_options again = o->package;
    o->quiet = o->cli->log;
    o->quiet.stream = NULL;
    again.other_form = other_form;
    again.log = &o->quiet;
    again.watch_layers = false;
    return package_options_open(o->cli, &again, m, e);
}

static bool run_comparison(struct options *o, struct err *e)
{
    struct check *k = &o->check;
    bool ok = package_count_other_form(k->model->package) == 0 || open_again(o, true, &k->other_model, e);
    return ok && check_compare(k, e);
}

static bool run_bench(struct options *o, struct err *e)
{
    struct check *k = &o->check;
    struct model *m = NULL;
    bool ok = open_again(o, false, &m, e) &&
              check_bench_run(&o->measured, m, &o->cli->log, &k->ids, k->n_prompt, (size_t)k->n_more, e);
    model_close(m);
    return ok;
}

static bool open_all(struct options *o, struct err *e)
{
    struct check *k = &o->check;
    const struct reference_options options = {
        .config_overrides = o->config_overrides, .n_threads = (int)o->package.n_threads, .log = &o->cli->log};
    return cli_resolve_or_pull(o->cli, &o->checkpoint, o->yes, e) &&
           package_options_open(o->cli, &o->package, &k->model, e) &&
           (!o->checkpoint ||
            (model_need_logits(k->model, "check", e) &&
             reference_open(&k->reference, o->checkpoint, &options, e) && check_sizes(k, e))) &&
           open_tokenizer(o, e);
}

/* What published measurements let expect of the chip, beside what is measured here. */
static bool forecast_beside(const struct options *o, char *out, size_t room, struct err *e)
{
    const struct chip *chip;
    cJSON *found = cJSON_CreateObject();
    out[0] = 0;
    bool ok = !o->bench || !o->chip ||
              (chip_find(&chip, o->chip, e) && forecast_path(found, o->check.model->package->path, chip, e));
    const cJSON *speed = json_get(json_get(found, "decode"), "tokens_per_second");
    if (ok && speed)
        snprintf(out, room,
                 "decode, forecast for %s from published measurements: %.3g tokens/s (%.3g to %.3g)\n",
                 chip->name, cJSON_GetNumberValue(json_get(speed, "forecast")),
                 cJSON_GetNumberValue(json_get(speed, "low")), cJSON_GetNumberValue(json_get(speed, "high")));
    cJSON_Delete(found);
    return ok;
}

static bool run_check(struct options *o, struct err *e)
{
    char beside[256];
    const struct check_report report = {.found = {.check = &o->check,
                                                  .checkpoint = o->checkpoint,
                                                  .tokenizer = o->tokenizer,
                                                  .bench = o->bench ? &o->measured : NULL,
                                                  .with_layers = o->with_layers},
                                        .beside = beside,
                                        .is_json = o->json};
    return forecast_beside(o, beside, sizeof beside, e) && read_prompt(o, e) && check_fit(&o->check, e) &&
           (!o->check.reference || run_comparison(o, e)) && (!o->bench || run_bench(o, e)) &&
           check_report(&report, e);
}

int cmd_check(struct cli *c, int argc, char **argv)
{
    struct options o = {.cli = c,
                        .check = {.n_more = -1, .limits = CHECK_LIMITS_NOT_GIVEN, .log = &c->log},
                        .measured = {.n_runs = DEFAULT_BENCH_RUNS}};
    struct check *k = &o.check;
    struct err e = {0};
    int status;
    const struct cli_option options[] = {
        {"--hf,--checkpoint,-hf", CLI_STRING, &o.checkpoint, "CHECKPOINT",
         "the folder or GGUF file the package was made from"},
        {"--config", CLI_STRING, &o.config_overrides, "FILE",
         "keys that replace those of a GGUF file's config.json, as given to convert"},
        PROMPT_OPTION_ROWS(o.prompt, "the prompt (- reads stdin; a built-in text)"),
        {"-n,--max-tokens,--predict,--n-predict", CLI_INT, &k->n_more, "N",
         "tokens to generate and compare (32)"},
        {"--layers", CLI_FLAG, &o.with_layers, NULL, "also show what each layer leaves, and the states"},
        {"--json", CLI_FLAG, &o.json, NULL, "one JSON object"},
        {"--bench", CLI_FLAG, &o.bench, NULL,
         "measure the package: tokens per second (without --hf nothing else)"},
        {"--runs,--repeat", CLI_INT, &o.measured.n_runs, "N", "runs of --bench after one to warm up (5)"},
        {"--min-cosine", CLI_DOUBLE, &k->limits.min_cosine, "X",
         "lowest cosine of a position (0.9999 for fp16)"},
        {"--max-kl", CLI_DOUBLE, &k->limits.max_mean_kl, "X",
         "largest mean KL divergence, nats (0.001 for fp16)"},
        {"--min-top1", CLI_DOUBLE, &k->limits.min_top1, "X",
         "lowest share of equal best tokens (1 for fp16)"},
        {"--min-layer-cosine", CLI_DOUBLE, &k->limits.min_layer_cosine, "X",
         "lowest mean cosine behind a layer and of a state (0.9999 for fp16)"},
        {"--min-added-cosine", CLI_DOUBLE, &k->limits.min_added_cosine, "X",
         "lowest mean cosine of what a layer adds (0.999 for fp16)"},
        {"--min-gain", CLI_DOUBLE, &k->limits.min_gain, "X",
         "lowest strength of what a layer adds and of a state, 1 being right (0.99 for fp16)"},
        {"--max-gain", CLI_DOUBLE, &k->limits.max_gain, "X", "highest strength (1.01 for fp16)"},
        {"--margin", CLI_DOUBLE, &k->limits.margin, "X",
         "best tokens count where the reference leads by more (0.05)"},
        {"--max-difference", CLI_DOUBLE, &k->limits.max_difference, "X",
         "largest difference of a logit (not limited)"},
        {"--plan", CLI_FLAG, &o.plan, NULL,
         "the device that each op is expected on, and why (nothing is run)"},
        {"--chip", CLI_STRING, &o.chip, "CHIP",
         "of --plan, and of a forecast beside --bench: M4, A18 Pro, ... (M4)"},
        PACKAGE_OPTION_ROWS(o.package),
    };
    if (!package_parse(c, argc, argv, options, (int)(sizeof options / sizeof *options), SYNOPSIS, &o.package,
                       &status))
        return status;
    if (o.plan) {
        bool planned = check_plan(c, &o.package, o.chip, o.json, &e);
        return planned ? 0 : cli_fail(c, &e, NULL);
    }
    o.package.watch_layers = o.checkpoint != NULL;
    bool ok = check_options(&o, &e) && open_all(&o, &e) && run_check(&o, &e);
    check_fini(k);
    tokenizer_free(o.tokenizer);
    reference_close(k->reference);
    model_close(k->other_model);
    model_close(k->model);
    return ok ? 0 : cli_fail(c, &e, NULL);
}
