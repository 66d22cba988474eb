/* milkit check: does a package compute what its checkpoint computes?
 *
 * The reference continues a prompt greedily in float32; the package gets the same tokens (teacher forcing),
 * the prompt by the contract's call sequence, and its logits are compared at the prompt's last position and
 * at every generated one. End of text is ignored, so that as many positions are compared as were asked for.
 * What each layer leaves and the states are compared as well: a fault in one layer may hardly show in the logits. A package
 * that is there in both forms is run in both.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "cli/check.h"

#define SYNOPSIS "DIR --hf CHECKPOINT [-p PROMPT] [-n N] [OPTIONS], or DIR --bench"
/* A prompt of our own is one full batch and some tokens more, so that both functions run. */
#define TOKENS_BEHIND_BATCH 8
#define TOKENS_WITHOUT_PREFILL 24
#define DEFAULT_TOKENS 32
#define DEFAULT_BENCH_RUNS 5
#define BENCH_RUNS_MAX 1000

static const char built_in_text[] =
    "The road leaves the village beside the old mill and follows the river up into the hills. In spring the "
    "water is high and brown, and the people who live along the banks move their boats under the trees. "
    "Nobody "
    "remembers who built the stone bridge, but everyone knows the story of the night when it carried two "
    "hundred sheep, one shepherd and the mayor's piano to the other side. ";

/* ---- the prompt ---- */

/* Our own prompt: a text when there is a tokenizer, else ids spread over the vocabulary. */
static bool make_prompt(struct check *k, struct err *e)
{
    const struct model *m = k->model;
    int64_t wanted = m->has_prefill ? m->batch_size + TOKENS_BEHIND_BATCH : TOKENS_WITHOUT_PREFILL;
    int64_t room = m->context_length - (k->n >= 0 ? k->n : DEFAULT_TOKENS);
    if (wanted > room)
        wanted = room > 1 ? room : 1;
    if (!k->tokenizer) {
        for (int64_t i = 0; i < wanted; i++)
            ids_push(&k->ids, (int32_t)((i * 7919 + 13) % m->vocab_size));
        return true;
    }
    while ((int64_t)k->ids.n < wanted) {
        size_t before = k->ids.n;
        if (!package_encode(m, k->tokenizer, built_in_text, sizeof built_in_text - 1, &k->ids, e))
            return false;
        if (k->ids.n == before)
            return err_set(e, ERR_FORMAT, "%s: the tokenizer makes no tokens of a text", m->package->path);
    }
    k->ids.n = (size_t)wanted;
    return true;
}

static bool read_prompt(struct check *k, struct err *e)
{
    int n_given = prompt_count(&k->prompt);
    if (n_given > 1)
        return err_set(e, ERR_USAGE, "expected only one of -p PROMPT, -f FILE and --tokens IDS");
    if (n_given && !k->prompt.tokens && !k->tokenizer)
        return err_set(e, ERR_USAGE, "%s has no tokenizer.json: give the prompt as --tokens IDS",
                       k->model->package->path);
    bool ok = n_given ? prompt_read(&k->ids, &k->prompt, k->model, k->tokenizer, e) : make_prompt(k, e);
    k->n_prompt = k->ids.n;
    return ok;
}

/* How many tokens to generate: what was asked for, as far as the package's context goes. */
static bool fit_context(struct check *k, struct err *e)
{
    int64_t context = k->model->context_length, wanted = k->n >= 0 ? k->n : DEFAULT_TOKENS;
    if ((int64_t)k->n_prompt > context)
        return err_set(e, ERR_LIMIT, "the prompt has %zu tokens, the package's context holds %lld",
                       k->n_prompt, (long long)context);
    int64_t room = context - (int64_t)k->n_prompt;
    if (wanted > room && k->n >= 0)
        log_warn(&k->cli->log, "only %lld of %lld tokens are generated: the package's context holds %lld",
                 (long long)room, (long long)wanted, (long long)context);
    k->n = wanted < room ? wanted : room;
    return true;
}

/* ---- comparing ---- */

static bool same_size(const struct check *k, const char *what, int64_t package, int64_t checkpoint,
                      struct err *e)
{
    return package == checkpoint ||
           err_set(e, ERR_MISMATCH, "%s is not a package of this checkpoint: %s %lld, but %lld in %s",
                   k->model->package->path, what, (long long)package, (long long)checkpoint, k->checkpoint);
}

static bool check_sizes(const struct check *k, struct err *e)
{
    const struct model *m = k->model;
    const struct reference *r = k->reference;
    int64_t n_layers = m->package->meta->num_layers;
    return same_size(k, "vocabulary size", m->vocab_size, r->vocab_size, e) &&
           (m->is_monolithic || same_size(k, "hidden size", m->hidden_size, r->hidden_size, e)) &&
           (n_layers == 0 || same_size(k, "number of layers", n_layers, r->n_layers, e));
}

static bool compare_position(struct check *k, struct reference_session *r, struct session *const *sessions,
                             struct err *e)
{
    bool ok = true;
    for (int i = 0; i < k->n_sides; i++) {
        struct position *p = &k->sides[i].positions[k->n_positions];
        p->position = (int64_t)k->ids.n - 1;
        p->token = k->ids.p[k->ids.n - 1];
        logits_compare(reference_logits(r), session_logits(sessions[i]), k->model->vocab_size, &p->d);
        ok = p->d.reference_finite;
    }
    k->n_same += k->n_sides == 2 && memcmp(session_logits(sessions[0]), session_logits(sessions[1]),
                                           sizeof(float) * (size_t)k->model->vocab_size) == 0;
    k->n_positions++;
    return ok || err_set(e, ERR_FORMAT, "%s: the reference's logits at position %zu are not finite numbers",
                         k->checkpoint, k->ids.n - 1);
}

/* The same tokens to all. */
static bool feed(struct check *k, struct reference_session *r, struct session *const *sessions,
                 const int32_t *tokens, size_t n, struct progress *progress, struct err *e)
{
    return check_layers_feed(k->layers, r, sessions[0], tokens, n, progress, e) &&
           (k->n_sides == 1 ||
            session_feed(sessions[1], tokens, n, SESSION_CONTRACT, NULL, NULL, progress, e));
}

/* All side by side, so that one row of logits each is enough. */
static bool compare(struct check *k, struct reference_session *r, struct session *const *sessions,
                    struct err *e)
{
    struct progress progress;
    bool ok = false;
    for (int i = 0; i < k->n_sides; i++)
        k->sides[i].positions = xcalloc((size_t)k->n + 1, sizeof *k->sides[i].positions);
    progress_begin(&progress, &k->cli->log, "check", "tokens", 1, (double)k->n_prompt + (double)k->n);
    if (!feed(k, r, sessions, k->ids.p, k->n_prompt, &progress, e))
        goto done;
    for (;;) {
        progress_update(&progress, (double)k->ids.n, NULL);
        if (!compare_position(k, r, sessions, e) || log_cancelled(&k->cli->log, e))
            goto done;
        if (k->n_positions == k->n + 1)
            break;
        int32_t id = k->sides[0].positions[k->n_positions - 1].d.reference_top;
        ids_push(&k->ids, id);
        if (!feed(k, r, sessions, &id, 1, NULL, e))
            goto done;
    }
    ok = check_layers_states(k->layers, r, sessions[0], e);
done:
    progress_end(&progress);
    return ok;
}

static void summarize(const struct check *k, struct side *side)
{
    struct summary *s = &side->summary;
    *s = (struct summary){.min_cosine = INFINITY};
    for (int64_t i = 0; i < k->n_positions; i++) {
        const struct logits_difference *d = &side->positions[i].d;
        if (d->margin > k->limits.margin) {
            s->n_counted++;
            s->n_agreed += d->other_finite && d->other_top == d->reference_top;
        }
        if (!d->other_finite) {
            s->n_not_finite++;
            continue;
        }
        s->min_cosine = fmin(s->min_cosine, d->cosine);
        s->mean_cosine += d->cosine;
        s->mean_kl += d->kl;
        s->max_kl = fmax(s->max_kl, d->kl);
        s->max_difference = fmax(s->max_difference, d->max_difference);
    }
    double n = (double)(k->n_positions - s->n_not_finite);
    s->mean_cosine /= n;
    s->mean_kl /= n;
}

/* ---- the command ---- */

static bool check_options(const struct check *k, struct err *e)
{
    const struct check_limits *l = &k->limits;
    if (k->plan)
        return err_set(e, ERR_UNSUPPORTED,
                       "--plan: check lists no operations; milkit plan DIR shows the steps of the engine");
    if (!k->checkpoint && !k->bench)
        return err_set(
            e, ERR_USAGE,
            "expected the checkpoint of the package: --hf CHECKPOINT (or --bench, which needs none)");
    if (k->measured.n_runs < 1 || k->measured.n_runs > BENCH_RUNS_MAX)
        return err_set(e, ERR_USAGE, "--runs: expected 1 to %d, found %lld", BENCH_RUNS_MAX,
                       (long long)k->measured.n_runs);
    if (k->n < -1)
        return err_set(e, ERR_USAGE, "-n: expected 0 or more, found %lld", (long long)k->n);
    if (l->min_cosine < -1 || l->min_cosine > 1)
        return err_set(e, ERR_USAGE, "--min-cosine: expected -1 to 1, found %g", l->min_cosine);
    if (l->min_layer_cosine < -1 || l->min_layer_cosine > 1)
        return err_set(e, ERR_USAGE, "--min-layer-cosine: expected -1 to 1, found %g", l->min_layer_cosine);
    if (l->min_added_cosine < -1 || l->min_added_cosine > 1)
        return err_set(e, ERR_USAGE, "--min-added-cosine: expected -1 to 1, found %g", l->min_added_cosine);
    if (l->min_gain > l->max_gain)
        return err_set(e, ERR_USAGE, "--min-gain and --max-gain: expected %g to be at least %g", l->max_gain,
                       l->min_gain);
    if (l->min_top1 < 0 || l->min_top1 > 1)
        return err_set(e, ERR_USAGE, "--min-top1: expected 0 to 1, found %g", l->min_top1);
    if (l->max_mean_kl < 0)
        return err_set(e, ERR_USAGE, "--max-kl: expected 0 or more, found %g", l->max_mean_kl);
    if (l->max_difference < 0)
        return err_set(e, ERR_USAGE, "--max-difference: expected 0 or more, found %g", l->max_difference);
    if (l->margin < 0)
        return err_set(e, ERR_USAGE, "--margin: expected 0 or more, found %g", l->margin);
    return true;
}

static bool open_tokenizer(struct check *k, struct err *e)
{
    char *path = path_join(k->model->package->path, "tokenizer.json");
    bool ok = !path_exists(path) || package_open_tokenizer(k->cli, k->model, &k->tokenizer, e);
    free(path);
    return ok;
}

static bool open_other_form(struct check *k, struct err *e)
{
    struct package_options other = k->package;
    k->sides[k->n_sides++].form = package_form(k->model->package);
    if (package_count_other_form(k->model->package) == 0)
        return true;
    other.other_form = true;
    other.log = &k->quiet;
    other.watch_layers = false;
    if (!package_options_open(k->cli, &other, &k->other_model, e))
        return false;
    k->sides[k->n_sides++].form = package_form(k->other_model->package);
    return k->other_model->vocab_size == k->model->vocab_size ||
           err_set(e, ERR_MISMATCH, "%s: the two forms have vocabularies of %lld and %lld tokens",
                   k->model->package->path, (long long)k->model->vocab_size,
                   (long long)k->other_model->vocab_size);
}

static bool run_comparison(struct check *k, struct err *e)
{
    struct reference_session *r = NULL;
    struct session *sessions[2] = {NULL, NULL};
    bool ok = reference_session_new(&r, k->reference, (int64_t)k->n_prompt + k->n, e) &&
              open_other_form(k, e) && session_new(&sessions[0], k->model, e) &&
              (!k->other_model || session_new(&sessions[1], k->other_model, e)) &&
              check_layers_new(&k->layers, k->model, k->reference, e) && compare(k, r, sessions, e);
    for (int i = 0; ok && i < k->n_sides; i++)
        summarize(k, &k->sides[i]);
    reference_session_free(r);
    session_free(sessions[0]);
    session_free(sessions[1]);
    return ok;
}

static bool run_check(struct check *k, struct err *e)
{
    struct reference_options options = {.n_threads = (int)k->package.n_threads, .log = &k->cli->log};
    if (!check_options(k, e) || !cli_resolve(k->cli, &k->checkpoint, e) ||
        !package_options_open(k->cli, &k->package, &k->model, e) ||
        (k->checkpoint &&
         (!model_need_logits(k->model, "check", e) ||
          !reference_open(&k->reference, k->checkpoint, &options, e) || !check_sizes(k, e))) ||
        !open_tokenizer(k, e) || !read_prompt(k, e) || !fit_context(k, e))
        return false;
    check_limits_choose(&k->limits, k->model);
    k->quiet = k->cli->log;
    k->quiet.stream = NULL;
    k->package.log = &k->quiet;
    return (!k->reference || run_comparison(k, e)) &&
           (!k->bench ||
            check_bench_run(&k->measured, k->cli, &k->package, &k->ids, k->n_prompt, (size_t)k->n, e)) &&
           check_report(k, e);
}

int cmd_check(struct cli *c, int argc, char **argv)
{
    struct check k = {
        .cli = c, .n = -1, .limits = CHECK_LIMITS_NOT_GIVEN, .measured = {.n_runs = DEFAULT_BENCH_RUNS}};
    struct err e = {0};
    const char *positional[1];
    int n_positional = 0;
    bool help = false;
    const struct cli_option options[] = {
        {"--hf,--checkpoint,-hf", CLI_STRING, &k.checkpoint, "CHECKPOINT",
         "the folder the package was made from"},
        PROMPT_OPTION_ROWS(k.prompt, "the prompt (- reads stdin; a built-in text)"),
        {"-n,--max-tokens,--predict,--n-predict", CLI_INT, &k.n, "N", "tokens to generate and compare (32)"},
        {"--layers", CLI_FLAG, &k.with_layers, NULL, "also show what each layer leaves, and the states"},
        {"--json", CLI_FLAG, &k.json, NULL, "one JSON object"},
        {"--bench", CLI_FLAG, &k.bench, NULL,
         "measure the package: tokens per second (without --hf nothing else)"},
        {"--runs,--repeat", CLI_INT, &k.measured.n_runs, "N", "runs of --bench after one to warm up (5)"},
        {"--min-cosine", CLI_DOUBLE, &k.limits.min_cosine, "X",
         "lowest cosine of a position (0.9999 for fp16)"},
        {"--max-kl", CLI_DOUBLE, &k.limits.max_mean_kl, "X",
         "largest mean KL divergence, nats (0.001 for fp16)"},
        {"--min-top1", CLI_DOUBLE, &k.limits.min_top1, "X", "lowest share of equal best tokens (1 for fp16)"},
        {"--min-layer-cosine", CLI_DOUBLE, &k.limits.min_layer_cosine, "X",
         "lowest mean cosine behind a layer and of a state (0.9999 for fp16)"},
        {"--min-added-cosine", CLI_DOUBLE, &k.limits.min_added_cosine, "X",
         "lowest mean cosine of what a layer adds (0.999 for fp16)"},
        {"--min-gain", CLI_DOUBLE, &k.limits.min_gain, "X",
         "lowest strength of what a layer adds and of a state, 1 being right (0.99 for fp16)"},
        {"--max-gain", CLI_DOUBLE, &k.limits.max_gain, "X", "highest strength (1.01 for fp16)"},
        {"--margin", CLI_DOUBLE, &k.limits.margin, "X",
         "best tokens count where the reference leads by more (0.05)"},
        {"--max-difference", CLI_DOUBLE, &k.limits.max_difference, "X",
         "largest difference of a logit (not limited)"},
        {"--plan", CLI_FLAG, &k.plan, NULL, NULL},
        PACKAGE_OPTION_ROWS(k.package),
    };
    if (!cli_parse(c, argc, argv, options, (int)(sizeof options / sizeof *options), positional, 1,
                   &n_positional, SYNOPSIS, &help, &e))
        return cli_fail(c, &e, NULL);
    if (help)
        return 0;
    if (n_positional)
        k.package.path = positional[0];
    k.package.watch_layers = k.checkpoint != NULL;
    bool ok = run_check(&k, &e);
    free(k.sides[0].positions);
    free(k.sides[1].positions);
    ids_free(&k.ids);
    tokenizer_free(k.tokenizer);
    check_layers_free(k.layers);
    reference_close(k.reference);
    model_close(k.other_model);
    model_close(k.model);
    return ok ? 0 : cli_fail(c, &e, NULL);
}
