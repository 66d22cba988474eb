/* milkit check: does a package compute what its checkpoint computes?
 *
 * The reference continues a prompt greedily in float32; the package gets the same tokens (teacher forcing),
 * the prompt by the contract's call sequence, and its logits are compared at the prompt's last position and
 * at every generated one. End of text is ignored, so that as many positions are compared as were asked for.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "cli/check_layers.h"
#include "cli/prompt.h"
#include "format/json.h"
#include "reference/compare.h"
#include "reference/reference.h"
#include "runtime/sampler.h"

#define SYNOPSIS "DIR --hf CHECKPOINT [-p PROMPT] [-n N] [OPTIONS]"
#define REPORT_BYTES_MAX ((size_t)1 << 30)
/* A prompt of our own is one full batch and some tokens more, so that both functions run. */
#define TOKENS_BEHIND_BATCH 8
#define TOKENS_WITHOUT_PREFILL 24
#define DEFAULT_TOKENS 32

static const char built_in_text[] =
    "The road leaves the village beside the old mill and follows the river up into the hills. In spring the "
    "water is high and brown, and the people who live along the banks move their boats under the trees. "
    "Nobody "
    "remembers who built the stone bridge, but everyone knows the story of the night when it carried two "
    "hundred sheep, one shepherd and the mayor's piano to the other side. ";

/* Limits of the verdict; NAN: not given, what suits the package's weights is taken. */
struct limits {
    double min_cosine, max_mean_kl, min_top1;
    double min_layer_cosine; /* mean over the rows behind a layer, and of each state */
    double max_difference;   /* of a logit; infinite: not limited */
    const char *what;        /* the weights that they suit */
    double margin;           /* positions where the reference's best leads by less do not count for top-1 */
};

struct position {
    int64_t position;
    int32_t token; /* the input */
    struct logits_difference d;
};

struct summary {
    double min_cosine, mean_cosine, mean_kl, max_kl, max_difference;
    int64_t n_not_finite; /* positions where the package's logits are not; the means leave them out */
    int64_t n_counted, n_agreed;
};

struct rates {
    int64_t n_prefill, n_decode; /* tokens */
    double prefill_seconds, decode_seconds;
};

struct check {
    struct package_options package;
    const char *checkpoint;
    struct prompt_options prompt;
    int64_t n;
    bool json, bench, plan, with_layers;
    struct limits limits;
    /* made on the way */
    struct cli *cli;
    struct model *model;
    struct reference *reference;
    struct tokenizer *tokenizer; /* NULL: the package has none */
    struct ids ids;              /* the prompt, then what was generated */
    size_t n_prompt;
    struct position *positions; /* [n_positions] */
    int64_t n_positions;
    struct summary summary;
    struct rates rates;
    struct check_layers *layers; /* NULL: not asked for */
};

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

static bool compare_position(struct check *k, const float *reference, const float *package, struct err *e)
{
    struct position *p = &k->positions[k->n_positions++];
    p->position = (int64_t)k->ids.n - 1;
    p->token = k->ids.p[k->ids.n - 1];
    logits_compare(reference, package, k->model->vocab_size, &p->d);
    return p->d.reference_finite ||
           err_set(e, ERR_FORMAT, "%s: the reference's logits at position %lld are not finite numbers",
                   k->checkpoint, (long long)p->position);
}

/* The same tokens to both sides. */
static bool feed(struct check *k, struct reference_session *r, struct session *s, const int32_t *tokens,
                 size_t n, struct progress *progress, struct err *e)
{
    if (k->layers)
        return check_layers_feed(k->layers, r, s, tokens, n, progress, e);
    return reference_feed(r, tokens, n, NULL, NULL, e) &&
           session_feed(s, tokens, n, SESSION_CONTRACT, NULL, NULL, progress, e);
}

/* Both sides side by side, so that one row of logits each is enough. */
static bool compare(struct check *k, struct reference_session *r, struct session *s, struct err *e)
{
    struct progress progress;
    bool ok = false;
    k->positions = xcalloc((size_t)k->n + 1, sizeof *k->positions);
    progress_begin(&progress, &k->cli->log, "check", "tokens", 1, (double)k->n_prompt + (double)k->n);
    if (!feed(k, r, s, k->ids.p, k->n_prompt, &progress, e))
        goto done;
    for (;;) {
        progress_update(&progress, (double)k->ids.n, NULL);
        if (!compare_position(k, reference_logits(r), session_logits(s), e) || log_cancelled(&k->cli->log, e))
            goto done;
        if (k->n_positions == k->n + 1)
            break;
        int32_t id = k->positions[k->n_positions - 1].d.reference_top;
        ids_push(&k->ids, id);
        if (!feed(k, r, s, &id, 1, NULL, e))
            goto done;
    }
    ok = !k->layers || check_layers_states(k->layers, r, s, e);
done:
    progress_end(&progress);
    return ok;
}

/* Times the package alone on the same tokens: full batches of the prompt, then token by token. */
static bool measure(struct check *k, struct session *s, struct err *e)
{
    struct rates *r = &k->rates;
    size_t batch = (size_t)k->model->batch_size;
    size_t n_full = k->model->has_prefill ? k->n_prompt / batch * batch : 0;
    session_reset(s);
    double start = clock_seconds();
    if (n_full > 0 && !session_feed(s, k->ids.p, n_full, SESSION_CONTRACT, NULL, NULL, NULL, e))
        return false;
    r->n_prefill = (int64_t)n_full;
    r->prefill_seconds = clock_seconds() - start;
    start = clock_seconds();
    for (size_t i = n_full; i < k->ids.n; i++)
        if (!session_feed(s, k->ids.p + i, 1, SESSION_CONTRACT, NULL, NULL, NULL, e) ||
            log_cancelled(&k->cli->log, e))
            return false;
    r->n_decode = (int64_t)(k->ids.n - n_full);
    r->decode_seconds = clock_seconds() - start;
    return true;
}

static void summarize(struct check *k)
{
    struct summary *s = &k->summary;
    *s = (struct summary){.min_cosine = INFINITY};
    for (int64_t i = 0; i < k->n_positions; i++) {
        const struct logits_difference *d = &k->positions[i].d;
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

/* ---- the report ---- */

/* What is outside the limits, one sentence a line; empty: nothing. */
static void judge(const struct check *k, struct buf *why)
{
    const struct summary *s = &k->summary;
    const struct limits *l = &k->limits;
    double top1 = s->n_counted ? (double)s->n_agreed / (double)s->n_counted : 1;
    if (s->n_not_finite > 0)
        buf_printf(why, "the package's logits are not finite at %lld positions\n",
                   (long long)s->n_not_finite);
    if (s->n_not_finite == k->n_positions) {
        if (k->layers)
            check_layers_judge(k->layers, l->min_layer_cosine, why);
        return;
    }
    if (!(s->min_cosine >= l->min_cosine))
        buf_printf(why, "cosine %.10g is below %.10g\n", s->min_cosine, l->min_cosine);
    if (!(s->mean_kl <= l->max_mean_kl))
        buf_printf(why, "mean KL divergence %.3g is above %g\n", s->mean_kl, l->max_mean_kl);
    if (!(s->max_difference <= l->max_difference))
        buf_printf(why, "a logit differs by %.3g, more than %g\n", s->max_difference, l->max_difference);
    if (!(top1 >= l->min_top1))
        buf_printf(why, "top-1 agreement %.4f (%lld of %lld positions) is below %g\n", top1,
                   (long long)s->n_agreed, (long long)s->n_counted, l->min_top1);
    if (k->layers)
        check_layers_judge(k->layers, l->min_layer_cosine, why);
}

static bool decode_generated(const struct check *k, struct buf *text, struct err *e)
{
    return !k->tokenizer ||
           tokenizer_decode(k->tokenizer, k->ids.p + k->n_prompt, k->ids.n - k->n_prompt, false, text, e);
}

static double rate(int64_t n, double seconds)
{
    return seconds > 0 ? (double)n / seconds : 0;
}

static void put_number(struct buf *b, const char *key, double v)
{
    buf_printf(b, "\"%s\": ", key);
    json_put_double(b, v);
}

static void put_bool(struct buf *b, const char *key, bool v)
{
    buf_printf(b, "\"%s\": %s", key, v ? "true" : "false");
}

/* One key after the other with the separators of one object. */
#define PUT_NUMBER(b, key, v) (put_number(b, key, v), buf_puts(b, ", "))

static void put_json_position(struct buf *b, const struct position *p, double margin)
{
    buf_printf(b, "{\"position\": %lld, \"token\": %d, \"reference_top\": %d, \"package_top\": ",
               (long long)p->position, p->token, p->d.reference_top);
    if (p->d.other_finite)
        buf_printf(b, "%d, ", p->d.other_top);
    else
        buf_puts(b, "null, ");
    PUT_NUMBER(b, "margin", p->d.margin);
    PUT_NUMBER(b, "cosine", p->d.cosine);
    PUT_NUMBER(b, "kl", p->d.kl);
    PUT_NUMBER(b, "max_abs_difference", p->d.max_difference);
    put_bool(b, "top1_agrees", p->d.other_finite && p->d.other_top == p->d.reference_top);
    buf_puts(b, ", ");
    put_bool(b, "top1_counted", p->d.margin > margin);
    buf_putc(b, '}');
}

static void put_json_ids(struct buf *b, const char *key, const int32_t *ids, size_t n)
{
    buf_printf(b, "\"%s\": [", key);
    for (size_t i = 0; i < n; i++)
        buf_printf(b, i ? ", %d" : "%d", ids[i]);
    buf_puts(b, "], ");
}

static void put_json_summary(struct buf *b, const struct check *k)
{
    const struct summary *s = &k->summary;
    const struct limits *l = &k->limits;
    bool none = s->n_not_finite == k->n_positions;
    buf_printf(b, "\"summary\": {\"positions\": %lld, \"not_finite\": %lld, ", (long long)k->n_positions,
               (long long)s->n_not_finite);
    PUT_NUMBER(b, "min_cosine", s->min_cosine);
    PUT_NUMBER(b, "mean_cosine", s->mean_cosine);
    PUT_NUMBER(b, "mean_kl", s->mean_kl);
    PUT_NUMBER(b, "max_kl", none ? NAN : s->max_kl);
    PUT_NUMBER(b, "max_abs_difference", none ? NAN : s->max_difference);
    buf_printf(b, "\"top1_counted\": %lld, \"top1_agreed\": %lld, ", (long long)s->n_counted,
               (long long)s->n_agreed);
    put_number(b, "top1_agreement", s->n_counted ? (double)s->n_agreed / (double)s->n_counted : NAN);
    buf_puts(b, "},\n \"limits\": {\"of\": ");
    json_put_string(b, l->what, strlen(l->what));
    buf_puts(b, ", ");
    PUT_NUMBER(b, "min_cosine", l->min_cosine);
    if (k->layers)
        PUT_NUMBER(b, "min_layer_cosine", l->min_layer_cosine);
    PUT_NUMBER(b, "max_mean_kl", l->max_mean_kl);
    PUT_NUMBER(b, "max_abs_difference", l->max_difference);
    PUT_NUMBER(b, "min_top1_agreement", l->min_top1);
    put_number(b, "top1_margin", l->margin);
    buf_puts(b, "},\n ");
}

static bool put_json(struct buf *b, const struct check *k, const struct buf *why, struct err *e)
{
    const struct model *m = k->model;
    buf_puts(b, "{\"schema\": 1, \"package\": ");
    json_put_string(b, m->package->path, strlen(m->package->path));
    buf_puts(b, ", \"checkpoint\": ");
    json_put_string(b, k->checkpoint, strlen(k->checkpoint));
    buf_printf(b, ", \"prompt_tokens\": %zu, \"prefill_calls\": %lld,\n ", k->n_prompt,
               (long long)(m->has_prefill ? (int64_t)k->n_prompt / m->batch_size : 0));
    put_json_ids(b, "prompt", k->ids.p, k->n_prompt);
    put_json_ids(b, "generated", k->ids.p + k->n_prompt, k->ids.n - k->n_prompt);
    if (k->tokenizer) {
        struct buf text;
        buf_init(&text, REPORT_BYTES_MAX);
        bool ok = decode_generated(k, &text, e);
        buf_puts(b, "\"text\": ");
        json_put_string(b, text.p ? text.p : "", text.n);
        buf_puts(b, ", ");
        buf_fini(&text);
        if (!ok)
            return false;
    }
    buf_puts(b, "\n \"positions\": [\n  ");
    for (int64_t i = 0; i < k->n_positions; i++) {
        buf_puts(b, i ? ",\n  " : "");
        put_json_position(b, &k->positions[i], k->limits.margin);
    }
    buf_puts(b, "],\n ");
    put_json_summary(b, k);
    if (k->layers)
        check_layers_put_json(k->layers, b);
    if (k->bench) {
        const struct rates *r = &k->rates;
        buf_printf(b, "\"bench\": {\"prefill_tokens\": %lld, \"decode_tokens\": %lld, ",
                   (long long)r->n_prefill, (long long)r->n_decode);
        PUT_NUMBER(b, "prefill_tokens_per_second",
                   r->n_prefill ? rate(r->n_prefill, r->prefill_seconds) : NAN);
        put_number(b, "decode_tokens_per_second", r->n_decode ? rate(r->n_decode, r->decode_seconds) : NAN);
        buf_puts(b, "},\n ");
    }
    buf_puts(b, "\"failures\": [");
    const char *line = why->n ? why->p : "";
    for (bool is_first = true; *line; is_first = false) {
        size_t n = strcspn(line, "\n");
        buf_puts(b, is_first ? "" : ", ");
        json_put_string(b, line, n);
        line += n + (line[n] == '\n');
    }
    buf_printf(b, "], \"verdict\": \"%s\"}\n", why->n ? "fail" : "pass");
    return true;
}

static void put_table(struct buf *b, const struct check *k)
{
    buf_puts(b, "position   token  reference  package    margin      cosine        KL  max diff\n");
    for (int64_t i = 0; i < k->n_positions; i++) {
        const struct position *p = &k->positions[i];
        const struct logits_difference *d = &p->d;
        buf_printf(b, "%8lld %7d  %9d ", (long long)p->position, p->token, d->reference_top);
        if (!d->other_finite) {
            buf_printf(b, "%8s %9.4f  not finite\n", "-", d->margin);
            continue;
        }
        const char *note = d->other_top == d->reference_top ? ""
                           : d->margin > k->limits.margin   ? "  other token"
                                                            : "  other token, within the margin";
        buf_printf(b, "%8d %9.4f  %.8f %9.2e %9.4f%s\n", d->other_top, d->margin, d->cosine, d->kl,
                   d->max_difference, note);
    }
}

static bool put_report(struct buf *b, const struct check *k, const struct buf *why, struct err *e)
{
    const struct summary *s = &k->summary;
    const struct model *m = k->model;
    if (k->layers)
        check_layers_put_table(k->layers, b);
    put_table(b, k);
    if (k->tokenizer && k->ids.n > k->n_prompt) {
        struct buf text;
        buf_init(&text, REPORT_BYTES_MAX);
        bool ok = decode_generated(k, &text, e);
        buf_puts(b, "generated: ");
        json_put_string(b, text.p ? text.p : "", text.n);
        buf_putc(b, '\n');
        buf_fini(&text);
        if (!ok)
            return false;
    }
    buf_printf(b, "%lld positions after a prompt of %zu tokens", (long long)k->n_positions, k->n_prompt);
    if (m->has_prefill && (int64_t)k->n_prompt < m->batch_size)
        buf_printf(b, " (prefill was not run: its batch is %lld)", (long long)m->batch_size);
    buf_putc(b, '\n');
    if (s->n_not_finite < k->n_positions)
        buf_printf(b,
                   "cosine: lowest %.8f, mean %.8f\nKL divergence: mean %.3g, largest %.3g\n"
                   "largest difference of a logit: %.4f\n",
                   s->min_cosine, s->mean_cosine, s->mean_kl, s->max_kl, s->max_difference);
    buf_printf(b, "top-1: %lld of %lld positions where the reference leads by more than %g\n",
               (long long)s->n_agreed, (long long)s->n_counted, k->limits.margin);
    if (k->bench && k->rates.n_prefill)
        buf_printf(b, "prefill: %lld tokens, %.1f tokens/s\n", (long long)k->rates.n_prefill,
                   rate(k->rates.n_prefill, k->rates.prefill_seconds));
    if (k->bench && k->rates.n_decode)
        buf_printf(b, "decode: %lld tokens, %.1f tokens/s\n", (long long)k->rates.n_decode,
                   rate(k->rates.n_decode, k->rates.decode_seconds));
    buf_printf(b, "limits of %s: cosine >= %.10g, mean KL <= %g, top-1 >= %.10g", k->limits.what,
               k->limits.min_cosine, k->limits.max_mean_kl, k->limits.min_top1);
    if (isfinite(k->limits.max_difference))
        buf_printf(b, ", difference <= %g", k->limits.max_difference);
    if (k->layers)
        buf_printf(b, ", layers' cosine >= %.10g", k->limits.min_layer_cosine);
    buf_printf(b, "\nverdict: %s\n", why->n ? "FAIL" : "pass");
    return true;
}

static bool report(const struct check *k, struct err *e)
{
    struct buf out, why;
    buf_init(&out, REPORT_BYTES_MAX);
    buf_init(&why, REPORT_BYTES_MAX);
    judge(k, &why);
    bool ok = k->json ? put_json(&out, k, &why, e) : put_report(&out, k, &why, e);
    if (ok && out.failed)
        ok = err_set(e, ERR_LIMIT, "the report is larger than %zu bytes", REPORT_BYTES_MAX);
    if (ok) {
        cli_put_json(out.p, out.n);
        ok = cli_flush(e);
    }
    /* The verdict stands, also when whoever reads the report has closed it. */
    if ((ok || e->code == ERR_CLOSED) && why.n) {
        buf_clear(&out);
        for (size_t i = 0; i + 1 < why.n; i++) {
            buf_putc(&out, why.p[i] == '\n' ? ';' : why.p[i]);
            if (why.p[i] == '\n')
                buf_putc(&out, ' ');
        }
        ok = err_set(e, ERR_MISMATCH, "%s is outside the limits: %s (limits of %s)", k->model->package->path,
                     out.p, k->limits.what);
    }
    buf_fini(&out);
    buf_fini(&why);
    return ok;
}

/* ---- limits ---- */

/* Bits of the coarsest weights of a part: palettes or linear integers; 16: fp16. */
static int part_bits(int lut, const char *quant)
{
    if (lut > 0)
        return lut;
    if (quant)
        return strncmp(quant, "int4", 4) == 0 ? 4 : 8;
    return 16;
}

static int package_bits(const struct meta *m)
{
    const int bits[3] = {part_bits(m->lut_embeddings, m->quant_embeddings),
                         part_bits(m->lut_ffn, m->quant_ffn), part_bits(m->lut_lmhead, m->quant_lmhead)};
    int least = 16;
    for (int i = 0; i < 3; i++)
        least = bits[i] < least ? bits[i] : least;
    return least;
}

/* By the width of the weights, from measurements on small trained models of every family with room for three to five
 * times the worst error; docs/contract.md has them. Where routers choose, a near tie that falls the other way moves a
 * position far more than rounding does, so single positions may be further away. */
static struct limits default_limits(const struct model *m)
{
    static const struct {
        int bits;
        struct limits limits;
    } rows[] = {
        {16, {0.9999, 0.001, 1, 0.9999, INFINITY, "fp16 weights", 0.05}},
        {8, {0.9995, 0.001, 0.95, 0.9995, INFINITY, "8-bit weights", 0.05}},
        {6, {0.998, 0.005, 0.9, 0.996, INFINITY, "6-bit weights", 0.05}},
        {4, {0.96, 0.05, 0.75, 0.98, INFINITY, "4-bit weights", 0.05}},
        {3, {0.9, 0.2, 0.65, 0.94, INFINITY, "3-bit weights", 0.05}},
        {2, {0.3, 1, 0.4, 0.75, INFINITY, "2-bit weights", 0.05}},
        {1, {-1, 20, 0, 0, INFINITY, "1-bit weights", 0.05}},
    };
    int bits = package_bits(m->package->meta), i = 0;
    while (rows[i].bits > bits)
        i++;
    struct limits l = rows[i].limits;
    if (m->package->meta->moe_experts > 0) {
        l.min_cosine = fmin(l.min_cosine, 0.98);
        l.min_top1 = fmin(l.min_top1, 0.95);
        l.min_layer_cosine = fmin(l.min_layer_cosine, 0.999);
    }
    return l;
}

static void choose(double *given, double usual)
{
    if (isnan(*given))
        *given = usual;
}

static void choose_limits(struct check *k)
{
    struct limits usual = default_limits(k->model), *l = &k->limits;
    choose(&l->min_cosine, usual.min_cosine);
    choose(&l->max_mean_kl, usual.max_mean_kl);
    choose(&l->min_top1, usual.min_top1);
    choose(&l->min_layer_cosine, usual.min_layer_cosine);
    choose(&l->max_difference, usual.max_difference);
    choose(&l->margin, usual.margin);
    l->what = usual.what;
}

/* ---- the command ---- */

static bool check_options(const struct check *k, struct err *e)
{
    const struct limits *l = &k->limits;
    if (k->plan)
        return err_set(e, ERR_UNSUPPORTED,
                       "--plan: check lists no operations; milkit plan DIR shows the steps of the engine");
    if (!k->checkpoint)
        return err_set(e, ERR_USAGE, "expected the checkpoint of the package: --hf CHECKPOINT");
    if (k->n < -1)
        return err_set(e, ERR_USAGE, "-n: expected 0 or more, found %lld", (long long)k->n);
    if (l->min_cosine < -1 || l->min_cosine > 1)
        return err_set(e, ERR_USAGE, "--min-cosine: expected -1 to 1, found %g", l->min_cosine);
    if (l->min_layer_cosine < -1 || l->min_layer_cosine > 1)
        return err_set(e, ERR_USAGE, "--min-layer-cosine: expected -1 to 1, found %g", l->min_layer_cosine);
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

static bool run_check(struct check *k, struct err *e)
{
    struct reference_session *r = NULL;
    struct session *s = NULL;
    struct reference_options options = {.n_threads = (int)k->package.n_threads, .log = &k->cli->log};
    bool ok = false;
    if (!check_options(k, e) || !cli_resolve(k->cli, &k->checkpoint, e) ||
        !package_options_open(k->cli, &k->package, &k->model, e) ||
        !model_need_logits(k->model, "check", e) ||
        !reference_open(&k->reference, k->checkpoint, &options, e) || !check_sizes(k, e) ||
        !open_tokenizer(k, e) || !read_prompt(k, e) || !fit_context(k, e) ||
        !reference_session_new(&r, k->reference, (int64_t)k->n_prompt + k->n, e) ||
        !session_new(&s, k->model, e) ||
        (k->with_layers && !check_layers_new(&k->layers, k->model, k->reference, e)) ||
        !compare(k, r, s, e) || (k->bench && !measure(k, s, e)))
        goto done;
    choose_limits(k);
    summarize(k);
    ok = report(k, e);
done:
    reference_session_free(r);
    session_free(s);
    return ok;
}

int cmd_check(struct cli *c, int argc, char **argv)
{
    struct check k = {.cli = c,
                      .n = -1,
                      .limits = {.min_cosine = NAN,
                                 .max_mean_kl = NAN,
                                 .min_top1 = NAN,
                                 .min_layer_cosine = NAN,
                                 .max_difference = NAN,
                                 .margin = NAN}};
    struct err e = {0};
    const char *positional[1];
    int n_positional = 0;
    bool help = false;
    const struct cli_option options[] = {
        {"--hf,--checkpoint,-hf", CLI_STRING, &k.checkpoint, "CHECKPOINT",
         "the folder the package was made from"},
        PROMPT_OPTION_ROWS(k.prompt, "the prompt (- reads stdin; a built-in text)"),
        {"-n,--max-tokens,--predict,--n-predict", CLI_INT, &k.n, "N", "tokens to generate and compare (32)"},
        {"--layers", CLI_FLAG, &k.with_layers, NULL, "also compare what each layer leaves, and the states"},
        {"--json", CLI_FLAG, &k.json, NULL, "one JSON object"},
        {"--bench", CLI_FLAG, &k.bench, NULL, "also measure the package: tokens per second"},
        {"--min-cosine", CLI_DOUBLE, &k.limits.min_cosine, "X",
         "lowest cosine of a position (0.9999 for fp16)"},
        {"--max-kl", CLI_DOUBLE, &k.limits.max_mean_kl, "X",
         "largest mean KL divergence, nats (0.001 for fp16)"},
        {"--min-top1", CLI_DOUBLE, &k.limits.min_top1, "X", "lowest share of equal best tokens (1 for fp16)"},
        {"--min-layer-cosine", CLI_DOUBLE, &k.limits.min_layer_cosine, "X",
         "lowest mean cosine behind a layer and of a state (0.9999 for fp16)"},
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
    k.package.watch_layers = k.with_layers;
    bool ok = run_check(&k, &e);
    free(k.positions);
    ids_free(&k.ids);
    tokenizer_free(k.tokenizer);
    check_layers_free(k.layers);
    reference_close(k.reference);
    model_close(k.model);
    return ok ? 0 : cli_fail(c, &e, NULL);
}
