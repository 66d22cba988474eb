/* milkit eval: perplexity of a text, in windows that start with an empty context; and how near the predictions are to
 * another package's or to the checkpoint's. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/terminal.h"
#include "cli/package_options.h"
#include "format/contract.h"
#include "format/gguf.h"
#include "format/json.h"
#include "measure/perplexity.h"

#define SYNOPSIS "DIR --text FILE [--against DIR|CHECKPOINT] [OPTIONS]"
#define TEXT_BYTES_MAX ((size_t)1 << 30)

struct options {
    const char *text, *against; /* against NULL: nothing to compare with */
    int64_t window, n_max;
    bool json;
    struct ids before; /* made on the way: what the tokenizer puts in front of a text (bos) */
};

/* What the package is compared with: a package or a checkpoint. */
struct other {
    struct model *model;
    struct reference *reference;
    struct against *against; /* NULL: nothing */
};

static double share(int64_t part, int64_t n)
{
    return n > 0 ? (double)part / (double)n : NAN;
}

static void print_json(const struct perplexity *v, const struct against *against, const struct options *o,
                       double seconds, size_t n)
{
    double perplexity = exp(v->mean_nll);
    struct buf b;
    buf_init(&b, 1 << 20);
    buf_printf(&b,
               "{\"schema\": 1, \"perplexity\": %.6f, \"perplexity_standard_error\": %.6f, \"nll\": %.9f, "
               "\"predicted_tokens\": %lld, \"tokens\": %zu, \"window\": %lld, \"seconds\": %.3f",
               perplexity, perplexity * v->standard_error, v->mean_nll, (long long)v->n_predicted, n,
               (long long)o->window, seconds);
    if (against) {
        const struct agreement *a = against_result(against);
        const struct {
            const char *key;
            double value;
        } numbers[] = {
            {"perplexity", a->n ? exp(a->nll / (double)a->n) : NAN},
            {"mean_kl", a->n ? a->kl / (double)a->n : NAN},
            {"max_kl", a->n ? a->kl_max : NAN},
            {"min_cosine", a->min_cosine},
            {"top1_agreement", share(a->top1, a->n)},
            {"top3_agreement", share(a->top3, a->n)},
            {"top5_agreement", share(a->top5, a->n)},
        };
        buf_puts(&b, ", \"against\": {\"path\": ");
        json_put_string(&b, o->against, strlen(o->against));
        buf_printf(&b, ", \"compared_tokens\": %lld, \"not_finite\": %lld", (long long)a->n,
                   (long long)a->n_not_finite);
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
            buf_printf(&b, ", \"%s\": ", numbers[i].key);
            json_put_double(&b, numbers[i].value);
        }
        buf_putc(&b, '}');
    }
    buf_puts(&b, "}\n");
    cli_put_json(b.p, b.n);
    buf_fini(&b);
}

static void print_text(const struct perplexity *v, const struct against *against, const struct options *o)
{
    double perplexity = exp(v->mean_nll);
    printf("perplexity %.4f +- %.4f (%lld tokens predicted, windows of %lld, %.4f nats a token)\n",
           perplexity, perplexity * v->standard_error, (long long)v->n_predicted, (long long)o->window,
           v->mean_nll);
    if (!against)
        return;
    const struct agreement *a = against_result(against);
    double n = (double)a->n;
    if (a->n_not_finite)
        printf("%lld tokens left out, where logits are not finite\n", (long long)a->n_not_finite);
    if (a->n == 0)
        return;
    fputs("against ", stdout);
    terminal_put(stdout, o->against);
    printf(", perplexity %.4f:\nKL divergence: mean %.4g nats, largest %.4g; lowest cosine %.8f\n"
           "its best token is the best in %.2f %%, among the best 3 in %.2f %%, among the best 5 in %.2f "
           "%%\n",
           exp(a->nll / n), a->kl / n, a->kl_max, a->min_cosine, 100 * (double)a->top1 / n,
           100 * (double)a->top3 / n, 100 * (double)a->top5 / n);
}

static bool is_package(const char *path)
{
    return folder_has(path, FILE_META) || (!path_is_folder(path) && !gguf_is_file(path));
}

static bool open_other(struct other *x, struct cli *c, const struct package_options *package,
                       const struct model *m, struct options *o, struct err *e)
{
    struct package_options other = *package;
    const struct reference_options options = {.n_threads = (int)package->n_threads, .log = &c->log};
    if (!cli_resolve(c, &o->against, e))
        return false;
    if (!o->against)
        return true;
    if (!is_package(o->against))
        return (gguf_is_file(o->against) ||
                folder_check(o->against, "a package or a checkpoint folder", "config.json", e)) &&
               reference_open(&x->reference, o->against, &options, e) &&
               against_checkpoint(&x->against, x->reference, o->against, m, o->window + (int64_t)o->before.n,
                                  e);
    other.path = o->against;
    return package_options_open(c, &other, &x->model, e) && model_need_logits(x->model, "--against", e) &&
           against_package(&x->against, x->model, o->against, m, o->window + (int64_t)o->before.n, e);
}

static void close_other(struct other *x)
{
    against_close(x->against);
    model_close(x->model);
    reference_close(x->reference);
}

/* What stands in front of a text: the tokens with the post-processor's, up to where those without begin. */
static bool find_before(const struct tokenizer *t, struct ids *before, struct err *e)
{
    static const char word[] = "word";
    struct ids plain = {0};
    bool ok = tokenizer_encode(t, word, sizeof word - 1, false, &plain, e) &&
              tokenizer_encode(t, word, sizeof word - 1, true, before, e);
    size_t at = 0;
    while (ok && at + plain.n <= before->n && memcmp(before->p + at, plain.p, plain.n * sizeof *plain.p) != 0)
        at++;
    before->n = ok && at + plain.n <= before->n ? at : 0;
    ids_free(&plain);
    return ok;
}

static bool choose_window(struct options *o, const struct model *m, struct err *e)
{
    int64_t room = m->context_length - (int64_t)o->before.n;
    if (o->window == 0)
        o->window = room < 256 ? room : 256;
    return (o->window >= 2 && o->window <= room) ||
           err_set(e, ERR_USAGE, "--window: expected 2 to %lld (the context%s), found %lld", (long long)room,
                   o->before.n > 0 ? " without what begins a text" : "", (long long)o->window);
}

static bool evaluate(struct cli *c, const struct package_options *package, struct model *m, struct options *o,
                     struct err *e)
{
    struct session *s = NULL;
    struct tokenizer *t = NULL;
    struct ids ids = {0};
    struct other other = {0};
    struct perplexity found;
    char *text = NULL;
    size_t bytes;
    bool ok = false;
    if (!package_open_tokenizer(c, m, &t, e) || !find_before(t, &o->before, e) || !choose_window(o, m, e) ||
        !cli_read_text(o->text, &text, &bytes, TEXT_BYTES_MAX, e) ||
        !package_encode(m, t, text, bytes, &ids, e) || !session_new(&s, m, e) ||
        !open_other(&other, c, package, m, o, e))
        goto done;
    /* The text's own tokens: what begins it stands in front of each window. */
    size_t n_text = ids.n - o->before.n;
    size_t n = o->n_max > 0 && (size_t)o->n_max < n_text ? (size_t)o->n_max : n_text;
    if (n < 2) {
        err_set(e, n == n_text ? ERR_FORMAT : ERR_USAGE, "%s: expected at least two tokens, found %zu",
                o->text, n);
        goto done;
    }
    const struct perplexity_text windows = {.ids = ids.p + o->before.n,
                                            .n = n,
                                            .window = o->window,
                                            .before = o->before.p,
                                            .n_before = o->before.n,
                                            .against = other.against,
                                            .log = &c->log};
    double start = clock_seconds();
    if (!perplexity_measure(&found, s, m, &windows, e))
        goto done;
    if (o->json)
        print_json(&found, other.against, o, clock_seconds() - start, n);
    else
        print_text(&found, other.against, o);
    ok = cli_flush(e);
done:
    close_other(&other);
    session_free(s);
    tokenizer_free(t);
    ids_free(&ids);
    ids_free(&o->before);
    free(text);
    return ok;
}

int cmd_eval(struct cli *c, int argc, char **argv)
{
    struct package_options package = {0};
    struct err e = {0};
    struct model *m = NULL;
    struct options o = {0};
    int status;
    const struct cli_option options[] = {
        {"--text,-f,--file", CLI_TEXT, &o.text, "FILE", "the text (- reads stdin)"},
        {"--against", CLI_STRING, &o.against, "DIR|CHECKPOINT",
         "compare predictions with those of a package or of the checkpoint (float32)"},
        {"--window,-c,--ctx-size", CLI_INT, &o.window, "N",
         "tokens of a window (256, or the context when that is smaller)"},
        {"--tokens", CLI_INT, &o.n_max, "N", "use only the first N tokens (0: all)"},
        {"--json", CLI_FLAG, &o.json, NULL, "one JSON object"},
        PACKAGE_OPTION_ROWS(package),
    };
    if (!package_parse(c, argc, argv, options, (int)(sizeof options / sizeof *options), SYNOPSIS, &package,
                       &status))
        return status;
    bool ok = o.text || err_set(&e, ERR_USAGE, "expected --text FILE");
    ok = ok && (o.n_max >= 0 ||
                err_set(&e, ERR_USAGE, "--tokens: expected 0 or more, found %lld", (long long)o.n_max));
    ok = ok && package_options_open(c, &package, &m, &e) && model_need_logits(m, "perplexity", &e) &&
         evaluate(c, &package, m, &o, &e);
    model_close(m);
    return ok ? 0 : cli_fail(c, &e, NULL);
}
