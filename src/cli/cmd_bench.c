/* milkit bench: llama-bench's tests, options and formats for packages, and comparing with its results. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "cli/bench.h"
#include "cli/package_options.h"
#include "measure/speed.h"
#include "runtime/model_identity.h"

#define SYNOPSIS                                                                                             \
    "DIR... | RESULTS.json... [-p N] [-n N] [-pg N,N] [-d N] [-t N] [-r N] [-o FORMAT] [--compare FILE] "    \
    "[OPTIONS]"
#define VALUES_MAX 1000
#define TOKENS_MAX INT32_MAX
#define SNAPSHOT_BYTES_MAX ((uint64_t)4 << 30)

struct values {
    int n;
    int64_t v[VALUES_MAX];
};

struct bench {
    struct cli *cli;
    struct package_options package;
    struct values n_prompt, n_gen, n_depth, n_threads, pairs; /* pairs: prompt, gen, prompt, gen, .. */
    struct speed_options speed;
    struct bench_output outputs[2]; /* stdout, stderr */
    bool shows_progress, needs_hash, ratios_as_json;
    struct bench_results *ours, *others; /* NULL: nothing to compare with */
    double noisiest;
};

/* ---- numbers of the command line ---- */

static bool add_value(struct values *out, int64_t v, const char *option, struct err *e)
{
    if (out->n == VALUES_MAX)
        return err_set(e, ERR_USAGE, "%s: more than %d values", option, VALUES_MAX);
    out->v[out->n++] = v;
    return true;
}

static bool read_number(const char **at, int64_t *out, const char *option, const char *text, struct err *e)
{
    char *end;
    errno = 0;
    long long v = strtoll(*at, &end, 10);
    if (end == *at || errno == ERANGE || **at < '0' || **at > '9' || v > TOKENS_MAX)
        return err_set(e, ERR_USAGE, "%s: expected numbers like 512, 1,2,4, 64-512+64 or 1-16*2, found '%s'",
                       option, text);
    *out = v;
    *at = end;
    return true;
}

/* "512", "1,2,4", "first-last", "first-last+step", "first-last*factor", and lists of them. */
static bool read_values(struct values *out, const char *option, const char *text, struct err *e)
{
    const char *at = text;
    for (;;) {
        int64_t first, last, step = 1;
        char way = '+';
        if (!read_number(&at, &first, option, text, e))
            return false;
        last = first;
        if (*at == '-') {
            at++;
            if (!read_number(&at, &last, option, text, e))
                return false;
            if (*at == '+' || *at == '*') {
                way = *at++;
                if (!read_number(&at, &step, option, text, e))
                    return false;
            }
            if (last < first || step < 1 || (way == '*' && (step < 2 || first < 1)))
                return err_set(e, ERR_USAGE, "%s: '%s' is not a range that rises", option, text);
        }
        for (int64_t v = first; v <= last; v = way == '*' ? v * step : v + step)
            if (!add_value(out, v, option, e))
                return false;
        if (*at == '\0')
            return true;
        if (*at++ != ',')
            return err_set(e, ERR_USAGE,
                           "%s: expected numbers like 512, 1,2,4, 64-512+64 or 1-16*2, found '%s'", option,
                           text);
    }
}

/* What was given, or the default where nothing was. */
static bool read_option(struct values *out, const char *option, const struct cli_words *words,
                        int64_t otherwise, struct err *e)
{
    for (int i = 0; i < words->n; i++)
        if (!read_values(out, option, words->words[i], e))
            return false;
    return words->n > 0 || add_value(out, otherwise, option, e);
}

static bool read_pairs(struct values *out, const struct cli_words *words, struct err *e)
{
    for (int i = 0; i < words->n; i++) {
        struct values pair = {0};
        if (!read_values(&pair, "-pg", words->words[i], e))
            return false;
        if (pair.n != 2)
            return err_set(e, ERR_USAGE, "-pg: expected PROMPT,GENERATED, found '%s'", words->words[i]);
        if (!add_value(out, pair.v[0], "-pg", e) || !add_value(out, pair.v[1], "-pg", e))
            return false;
    }
    return true;
}

/* ---- a package ---- */

struct subject {
    struct model *model;
    struct session *session;
    struct speed_weights weights;
    char *name; /* "qwen3 0.6B LUT4,8" */
    char hash[65];
    int64_t load_ns, first_step_ns;
};

static void width_name(char dst[48], int bits, int per_channel, const char *quant)
{
    if (quant)
        snprintf(dst, 48, "%s", quant);
    else if (bits == META_NONE)
        snprintf(dst, 48, "fp16");
    else if (per_channel > 0)
        snprintf(dst, 48, "LUT%d,%d", bits, per_channel);
    else
        snprintf(dst, 48, "LUT%d", bits);
}

/* As llama-bench says "qwen3 0.6B Q4_0": the kind, the size, the width of the layers; of the head where it is another. */
static char *subject_name(const struct subject *s)
{
    const struct meta *meta = s->model->package->meta;
    char ffn[48], head[48];
    double n = (double)s->weights.n_params;
    bool big = n >= 5e7;
    width_name(ffn, meta->lut_ffn, meta->lut_ffn_per_channel, meta->quant_ffn);
    width_name(head, meta->lut_lmhead, meta->lut_lmhead_per_channel, meta->quant_lmhead);
    const char *kind = meta->model_type     ? meta->model_type
                       : meta->architecture ? meta->architecture
                                            : "model";
    bool differs = strcmp(ffn, head) != 0;
    return xasprintf("%s %.1f%s %s%s%s", kind, n / (big ? 1e9 : 1e6), big ? "B" : "M", ffn,
                     differs ? " head " : "", differs ? head : "");
}

static void subject_close(struct subject *s)
{
    session_free(s->session);
    model_close(s->model);
    free(s->name);
    memset(s, 0, sizeof *s);
}

/* One token as well: what a first call costs is told apart from the rest. */
static bool subject_open(struct subject *s, struct bench *b, const char *path, int64_t n_threads,
                         struct err *e)
{
    struct package_options package = b->package;
    struct model_identity identity;
    int32_t token = 0;
    package.path = path;
    package.n_threads = n_threads;
    double start = clock_seconds();
    if (!package_options_open(b->cli, &package, &s->model, e) || !session_new(&s->session, s->model, e))
        return false;
    double open = clock_seconds();
    if (!session_feed(s->session, &token, 1, SESSION_INFER_ONLY, NULL, NULL, NULL, e))
        return false;
    s->load_ns = llround((open - start) * 1e9);
    s->first_step_ns = llround((clock_seconds() - open) * 1e9);
    session_limit_snapshots(s->session, SNAPSHOT_BYTES_MAX, 0);
    speed_weights_of(&s->weights, s->model);
    s->name = subject_name(s);
    if (!b->needs_hash)
        return true;
    if (!model_identify(s->model, &identity, e))
        return false;
    for (int i = 0; i < 32; i++)
        snprintf(s->hash + 2 * i, 3, "%02x", i < 16 ? identity.programs[i] : identity.weights[i - 16]);
    return true;
}

/* ---- a row ---- */

static void put_processor(struct bench_row *row)
{
    char line[256], *colon;
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "model name", 10) == 0 && (colon = strchr(line, ':'))) {
            line[strcspn(line, "\n")] = '\0';
            bench_put_text(row, BENCH_cpu_info, colon + 1 + strspn(colon + 1, " "));
            break;
        }
    if (f)
        fclose(f);
}

static void put_time(struct bench_row *row)
{
    char text[32];
    time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc) && strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc) > 0)
        bench_put_text(row, BENCH_test_time, text);
}

static void put_subject(struct bench_row *row, const struct bench *b, const struct subject *s)
{
    const struct model *m = s->model;
    const struct meta *meta = m->package->meta;
    struct rusage usage = {0};
    char width[48];
    width_name(width, meta->lut_ffn, meta->lut_ffn_per_channel, meta->quant_ffn);
    bench_put_text(row, BENCH_build_commit, MILKIT_VERSION);
    bench_put_text(row, BENCH_backends,
                   strcmp(m->backend->name, "engine") == 0 ? "milkit" : m->backend->name);
    bench_put_text(row, BENCH_model_filename, m->package->path);
    bench_put_text(row, BENCH_model_type, s->name);
    bench_put_int(row, BENCH_model_size, (int64_t)s->weights.bytes);
    bench_put_int(row, BENCH_model_n_params, s->weights.n_params);
    bench_put_int(row, BENCH_n_batch, m->batch_size);
    bench_put_int(row, BENCH_n_ubatch, m->batch_size);
    bench_put_int(row, BENCH_n_threads, pool_threads(m->pool));
    bench_put_text(row, BENCH_type_k, "f16");
    bench_put_text(row, BENCH_type_v, "f16");
    bench_put_text(row, BENCH_load_mode, "mmap");
    bench_put_text(row, BENCH_compiler, __VERSION__);
    bench_put_int(row, BENCH_cores, sysconf(_SC_NPROCESSORS_ONLN));
    bench_put_text(row, BENCH_package_hash, s->hash);
    bench_put_text(row, BENCH_isa, m->device);
    bench_put_text(row, BENCH_precision, b->package.precision ? b->package.precision : "default");
    bench_put_int(row, BENCH_n_chunks, m->n_chunks);
    bench_put_int(row, BENCH_context_length, m->context_length);
    bench_put_text(row, BENCH_lut_ffn, width);
    bench_put_int(row, BENCH_seed, 2);
    bench_put_int(row, BENCH_made_up_depth, b->speed.with_made_up_depth);
    bench_put_int(row, BENCH_weight_bytes_per_token, (int64_t)s->weights.token_bytes);
    bench_put_int(row, BENCH_load_ns, s->load_ns);
    bench_put_int(row, BENCH_first_step_ns, s->first_step_ns);
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        bench_put_int(row, BENCH_peak_rss_bytes, (int64_t)usage.ru_maxrss * 1024);
}

static void put_speed(struct bench_row *row, const struct speed_test *t, const struct speed *s)
{
    double median = speed_quantile(s->seconds, s->n_runs, 0.5);
    double tokens = (double)(t->n_prompt + t->n_gen);
    bench_put_int(row, BENCH_n_prompt, t->n_prompt);
    bench_put_int(row, BENCH_n_gen, t->n_gen);
    bench_put_int(row, BENCH_n_depth, t->n_depth);
    row->n_samples = s->n_runs;
    row->seconds = s->seconds;
    bench_put_rates(row);
    if (s->needed_bytes > 0) {
        double rate = s->needed_bytes * tokens / median;
        bench_put_int(row, BENCH_bytes_per_token, llround(s->needed_bytes));
        bench_put_real(row, BENCH_gb_per_s, rate * 1e-9);
        bench_put_real(row, BENCH_read_gb_per_s, s->read_bytes_per_second * 1e-9);
        bench_put_real(row, BENCH_share_of_read, rate / s->read_bytes_per_second);
    }
    if (s->products_per_second > 0) {
        bench_put_text(row, BENCH_peak_instruction, s->instruction);
        bench_put_real(row, BENCH_peak_products_per_s, s->products_per_second);
        bench_put_real(row, BENCH_share_of_peak, s->products / median / s->products_per_second);
    }
}

static void put_nothing_else(struct bench_row *row)
{
    static const enum bench_field zeros[] = {
        BENCH_build_number, BENCH_cpu_strict,    BENCH_poll,       BENCH_n_gpu_layers, BENCH_n_cpu_moe,
        BENCH_main_gpu,     BENCH_no_kv_offload, BENCH_flash_attn, BENCH_embeddings,   BENCH_no_op_offload,
        BENCH_no_host,      BENCH_fit_target,    BENCH_fit_min_ctx};
    for (size_t i = 0; i < sizeof zeros / sizeof *zeros; i++)
        bench_put_int(row, zeros[i], 0);
}

static bool run_test(struct bench *b, const struct subject *s, const struct speed_test *t, struct err *e)
{
    struct bench_row row = {0};
    struct speed speed = {0};
    char name[96];
    int64_t batch = s->model->batch_size;
    bench_test_name(name, t->n_prompt, t->n_gen, t->n_depth);
    if (b->shows_progress)
        log_info(&b->cli->log, "%s, %d threads: %s", s->name, pool_threads(s->model->pool), name);
    if (t->n_prompt % batch && s->model->has_prefill)
        log_info(&b->cli->log,
                 "%s: %lld of %lld prompt tokens are no full batch of %lld and run one by one, as the "
                 "contract says",
                 name, (long long)(t->n_prompt % batch), (long long)t->n_prompt, (long long)batch);
    put_time(&row);
    bool ok = speed_measure(&speed, s->session, s->model, &s->weights, t, &b->speed, e);
    if (ok) {
        put_processor(&row);
        put_nothing_else(&row);
        put_subject(&row, b, s);
        put_speed(&row, t, &speed);
        double noise = row.fields[BENCH_noise] ? strtod(row.fields[BENCH_noise], NULL) : 0;
        b->noisiest = fmax(b->noisiest, noise);
        for (int i = 0; i < 2; i++)
            bench_put_row(&b->outputs[i], &row);
        if (b->ours)
            bench_results_add(b->ours, &row);
        ok = cli_flush(e);
    }
    speed_free(&speed);
    bench_row_free(&row);
    return ok;
}

/* Test i in llama-bench's order: for each depth prompts, single tokens, both; false behind the last. */
static bool test_at(const struct bench *b, int i, struct speed_test *t)
{
    int n_pairs = b->pairs.n / 2, n = b->n_prompt.n + b->n_gen.n + n_pairs;
    if (i >= n * b->n_depth.n)
        return false;
    *t = (struct speed_test){.n_depth = b->n_depth.v[i / n]};
    i %= n;
    if (i < b->n_prompt.n)
        t->n_prompt = b->n_prompt.v[i];
    else if (i < b->n_prompt.n + b->n_gen.n)
        t->n_gen = b->n_gen.v[i - b->n_prompt.n];
    else {
        t->n_prompt = b->pairs.v[2 * (i - b->n_prompt.n - b->n_gen.n)];
        t->n_gen = b->pairs.v[2 * (i - b->n_prompt.n - b->n_gen.n) + 1];
    }
    return true;
}

static bool run_package(struct bench *b, const char *path, struct err *e)
{
    struct speed_test t;
    bool ok = true;
    for (int k = 0; ok && k < b->n_threads.n; k++) {
        struct subject s = {0};
        ok = subject_open(&s, b, path, b->n_threads.v[k], e);
        for (int i = 0; ok && test_at(b, i, &t); i++)
            ok = speed_test_fits(s.model, &t, e);
        for (int i = 0; ok && test_at(b, i, &t); i++)
            if (t.n_prompt + t.n_gen > 0)
                ok = run_test(b, &s, &t, e);
        subject_close(&s);
    }
    return ok;
}

/* ---- the command ---- */

static bool is_results(const char *path)
{
    size_t n = strlen(path);
    struct stat st;
    bool is_named_so =
        (n > 5 && strcmp(path + n - 5, ".json") == 0) || (n > 6 && strcmp(path + n - 6, ".jsonl") == 0);
    return is_named_so && !(stat(path, &st) == 0 && S_ISDIR(st.st_mode));
}

static bool bench_run(struct bench *b, const char **paths, int n, const char *against, struct err *e)
{
    int64_t n_pairs = 0;
    if (n == 0)
        return err_set(e, ERR_USAGE, "expected a package folder");
    if (against) {
        b->ours = bench_results_new();
        b->others = bench_results_new();
        if (!bench_results_read(b->others, against, e))
            return false;
    }
    for (int i = 0; i < n; i++) {
        if (is_results(paths[i]) && !against)
            return err_set(e, ERR_USAGE, "%s: results are read to --compare them", paths[i]);
        if (is_results(paths[i]) && !bench_results_read(b->ours, paths[i], e))
            return false;
    }
    bool ok = true;
    for (int i = 0; ok && i < n; i++)
        ok = is_results(paths[i]) || run_package(b, paths[i], e);
    for (int i = 0; i < 2; i++)
        bench_end(&b->outputs[i], "milkit " MILKIT_VERSION ", " __VERSION__);
    if (ok && b->noisiest > 0.1)
        log_warn(&b->cli->log,
                 "the fastest and the slowest runs of a test are %.0f %% apart: a noisy machine",
                 100 * b->noisiest);
    if (!ok || !against)
        return ok;
    bench_compare(b->ours, b->others, b->ratios_as_json, stdout, &n_pairs);
    return n_pairs > 0 ||
           err_set(e, ERR_FORMAT, "%s: no row has the test and the number of threads of one of ours",
                   against);
}

/* The options' texts as numbers and formats. */
struct words {
    struct cli_words models, n_prompt, n_gen, n_depth, n_threads, pairs;
    const char *format, *format_stderr;
    bool is_cold;
};

static bool read_words(struct bench *b, const struct words *w, bool compares, struct err *e)
{
    FILE *const streams[2] = {stdout, stderr};
    enum bench_format formats[2] = {compares ? BENCH_NONE : BENCH_MD, BENCH_NONE};
    /* with --compare the ratios are what stdout carries; -o gives their form */
    enum bench_format asked = BENCH_MD;
    if ((w->format && !bench_format_find(w->format, "-o", &asked, e)) ||
        (w->format_stderr && !bench_format_find(w->format_stderr, "-oe", &formats[1], e)) ||
        !read_option(&b->n_prompt, "-p", &w->n_prompt, 512, e) ||
        !read_option(&b->n_gen, "-n", &w->n_gen, 128, e) ||
        !read_option(&b->n_depth, "-d", &w->n_depth, 0, e) ||
        !read_option(&b->n_threads, "-t", &w->n_threads, 0, e) || !read_pairs(&b->pairs, &w->pairs, e))
        return false;
    if (b->speed.n_runs < 1 || b->speed.n_runs > 100000)
        return err_set(e, ERR_USAGE, "-r: expected 1 to 100000, found %lld", (long long)b->speed.n_runs);
    if (!(b->speed.delay_seconds >= 0 && b->speed.delay_seconds <= 86400))
        return err_set(e, ERR_USAGE, "--delay: expected 0 to 86400 seconds");
    if (compares && asked != BENCH_MD && asked != BENCH_JSON && asked != BENCH_JSONL)
        return err_set(e, ERR_USAGE, "-o: ratios of --compare are written as md or json");
    if (compares)
        b->ratios_as_json = asked != BENCH_MD;
    else
        formats[0] = asked;
    for (int i = 0; i < 2; i++) {
        b->outputs[i].stream = streams[i];
        b->outputs[i].format = formats[i];
        b->needs_hash = b->needs_hash || (formats[i] != BENCH_MD && formats[i] != BENCH_NONE);
    }
    b->speed.is_warm = !w->is_cold;
    return true;
}

int cmd_bench(struct cli *c, int argc, char **argv)
{
    struct bench b = {.cli = c, .speed = {.n_runs = 5, .log = &c->log}};
    struct words w = {0};
    struct err e = {0};
    const char *paths[2 * CLI_WORDS_MAX], *against = NULL;
    int n = 0;
    bool help = false, is_plain = false;
    const struct cli_option options[] = {
        {"-m,--model,--meta,--dir", CLI_WORDS, &w.models, "DIR", NULL},
        {"-p,--n-prompt", CLI_WORDS, &w.n_prompt, "N",
         "tokens of a prompt, in batches (512; lists 1,2,4 and ranges 64-512+64, 1-16*2)"},
        {"-n,--n-gen", CLI_WORDS, &w.n_gen, "N", "tokens one by one (128)"},
        {"-pg", CLI_WORDS, &w.pairs, "P,N", "both in one test"},
        {"-d,--n-depth", CLI_WORDS, &w.n_depth, "N", "tokens that are in the context before a test (0)"},
        {"--made-up-depth", CLI_FLAG, &b.speed.with_made_up_depth, NULL,
         "do not compute these: random numbers in their place"},
        {"-t,--threads,-j", CLI_WORDS, &w.n_threads, "N", "threads (all)"},
        {"-r,--repetitions", CLI_INT, &b.speed.n_runs, "N", "runs of a test (5)"},
        {"--delay", CLI_DOUBLE, &b.speed.delay_seconds, "SECONDS", "wait before each test"},
        {"--no-warmup", CLI_FLAG, &w.is_cold, NULL, "measure the first run, too"},
        {"--sampling", CLI_FLAG, &b.speed.with_choice, NULL,
         "single tokens: look for the best next one, too"},
        {"-o,--output", CLI_STRING, &w.format, "FORMAT", "md, csv, json, jsonl, sql or none (md)"},
        {"-oe,--output-err", CLI_STRING, &w.format_stderr, "FORMAT", "the same once more on stderr (none)"},
        {"--llama", CLI_FLAG, &is_plain, NULL, "md with llama-bench's columns only"},
        {"--compare,--against", CLI_STRING, &against, "FILE",
         "print ratios to the rows of llama-bench's JSON or JSONL (or ours) instead; RESULTS.json: ours, "
         "measured before"},
        {"--progress", CLI_FLAG, &b.shows_progress, NULL, "name each test on stderr"},
        COMPUTING_OPTION_ROWS(b.package),
    };
    if (!cli_parse(c, argc, argv, options, (int)(sizeof options / sizeof *options), paths, CLI_WORDS_MAX, &n,
                   SYNOPSIS, &help, &e))
        return cli_fail(c, &e, NULL);
    if (help)
        return 0;
    for (int i = 0; i < w.models.n; i++)
        paths[n++] = w.models.words[i];
    b.outputs[0].is_plain = b.outputs[1].is_plain = is_plain;
    bool ok =
        read_words(&b, &w, against != NULL, &e) && bench_run(&b, paths, n, against, &e) && cli_flush(&e);
    bench_results_free(b.ours);
    bench_results_free(b.others);
    return ok ? 0 : cli_fail(c, &e, NULL);
}
