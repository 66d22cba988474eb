/* milkit check: the report. */
#include "cli/check_report.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "cli/cli.h"
#include "format/json.h"

#define REPORT_BYTES_MAX ((size_t)1 << 30)

/* ---- speed ---- */

static void put_rate(struct buf *out, const char *what, int64_t n, int64_t n_runs, const struct check_rate *r)
{
    if (n > 0)
        buf_printf(out, "%s: %lld tokens, %.1f tokens/s (median of %lld runs, %.1f to %.1f)\n", what,
                   (long long)n, r->median, (long long)n_runs, r->slowest, r->fastest);
}

static void put_bench(const struct check_bench *b, const char *beside, struct buf *out)
{
    put_rate(out, "prefill", b->n_prefill, b->n_runs, &b->prefill);
    put_rate(out, "decode", b->n_decode, b->n_runs, &b->decode);
    buf_puts(out, beside);
}

/* ---- what was compared ---- */

/* What was generated as a JSON string, with what stands around it. Only with a tokenizer. */
static bool put_generated(struct buf *b, const struct check_report *o, const char *before, const char *after,
                          struct err *e)
{
    const struct check *k = o->found.check;
    struct buf text;
    buf_init(&text, REPORT_BYTES_MAX);
    bool ok =
        tokenizer_decode(o->found.tokenizer, k->ids.p + k->n_prompt, k->ids.n - k->n_prompt, false, &text, e);
    buf_puts(b, before);
    json_put_string(b, text.p ? text.p : "", text.n);
    buf_puts(b, after);
    buf_fini(&text);
    return ok;
}

static void put_table(struct buf *b, const struct check *k)
{
    buf_puts(b, "position   token  reference  package    margin      cosine        KL  max diff\n");
    for (int64_t i = 0; i < k->n_positions; i++) {
        const struct check_position *p = &k->sides[0].positions[i];
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

static void put_limits(struct buf *b, const struct check_limits *l)
{
    const struct {
        const char *what;
        double limit;
    } rows[] = {{"cosine >=", l->min_cosine},
                {"mean KL <=", l->max_mean_kl},
                {"top-1 >=", l->min_top1},
                {"difference <=", isfinite(l->max_difference) ? l->max_difference : NAN},
                {"layers' cosine >=", l->min_layer_cosine},
                {"of what they add >=", l->min_added_cosine},
                {"gain >=", l->min_gain},
                {"gain <=", l->max_gain}};
    const char *separator = ": ";
    buf_printf(b, "limits of %s", l->what);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (isnan(rows[i].limit))
            continue;
        buf_printf(b, "%s%s %.10g", separator, rows[i].what, rows[i].limit);
        separator = ", ";
    }
    buf_putc(b, '\n');
}

static void put_report_summary(struct buf *b, const struct check *k)
{
    const struct check_summary *s = &k->sides[0].summary;
    const struct check_limits *l = &k->limits;
    const struct model *m = k->model;
    buf_printf(b, "%lld positions after a prompt of %zu tokens", (long long)k->n_positions, k->n_prompt);
    if (m->has_prefill && (int64_t)k->n_prompt < m->batch_size)
        buf_printf(b, " (prefill was not run: its batch is %lld)", (long long)m->batch_size);
    buf_printf(b, "\nform: .%s", k->sides[0].form);
    if (k->n_sides > 1 && k->n_same == k->n_positions)
        buf_printf(b, "; .%s gives the same bits", k->sides[1].form);
    else if (k->n_sides > 1)
        buf_printf(
            b,
            "; .%s differs at %lld positions: cosine lowest %.8f, mean KL %.3g, largest difference %.4f "
            "from the reference",
            k->sides[1].form, (long long)(k->n_positions - k->n_same), k->sides[1].summary.min_cosine,
            k->sides[1].summary.mean_kl, k->sides[1].summary.max_difference);
    buf_putc(b, '\n');
    if (s->n_not_finite < k->n_positions)
        buf_printf(b,
                   "cosine: lowest %.8f, mean %.8f\nKL divergence: mean %.3g, largest %.3g\n"
                   "largest difference of a logit: %.4f\n",
                   s->min_cosine, s->mean_cosine, s->mean_kl, s->max_kl, s->max_difference);
    check_report_worst(check_layers_found(k->layers), b);
    buf_printf(b, "top-1: %lld of %lld positions where the reference leads by more than %g\n",
               (long long)s->n_agreed, (long long)s->n_counted, l->margin);
    if (l->has_verdict)
        put_limits(b, l);
    else
        buf_printf(b,
                   k->model->precision == PRECISION_ANE
                       ? "no limits for %s: its errors are what is asked for\n"
                       : "no limits for %s: a right package is as far from its checkpoint as a wrong one\n",
                   l->what);
}

static bool put_report(struct buf *b, const struct check_report *o, enum check_verdict v,
                       const struct buf *why, struct err *e)
{
    const struct check *k = o->found.check;
    if (k->reference) {
        if (o->found.with_layers)
            check_report_layers(check_layers_found(k->layers), b);
        put_table(b, k);
        if (o->found.tokenizer && k->ids.n > k->n_prompt && !put_generated(b, o, "generated: ", "\n", e))
            return false;
        put_report_summary(b, k);
    }
    if (o->found.bench)
        put_bench(o->found.bench, o->beside, b);
    buf_printf(b, "verdict: %s\n",
               !k->reference                       ? "none (nothing is compared without --hf)"
               : !k->limits.has_verdict && !why->n ? "none (no verdict at this width)"
               : v == CHECK_FAIL                   ? "FAIL"
               : v == CHECK_PASS                   ? "pass"
                                                   : "none");
    return true;
}

bool check_report(const struct check_report *o, struct err *e)
{
    const struct check *k = o->found.check;
    struct buf out, why;
    buf_init(&out, REPORT_BYTES_MAX);
    buf_init(&why, REPORT_BYTES_MAX);
    enum check_verdict v = check_judge(k, &why);
    bool ok = o->is_json ? check_put_json(&out, &o->found, v, &why, e) : put_report(&out, o, v, &why, e);
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
