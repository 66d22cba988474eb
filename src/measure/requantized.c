/* A package and the file that it was made of side by side, on a short text. */
#include "measure/requantized.h"
#include "measure/check.h"
#include "measure/perplexity.h"

bool requantized_measure(struct requantized *out, const char *package, const char *checkpoint,
                         const char *config_overrides, int n_threads, struct log *log, struct err *e)
{
    struct log quiet = {.cancel = log->cancel};
    const struct model_options options = {.n_threads = n_threads, .log = &quiet};
    const struct reference_options reference_options = {
        .config_overrides = config_overrides, .n_threads = n_threads, .log = &quiet};
    struct check k = {.log = &quiet};
    struct model *m = NULL;
    struct session *s = NULL;
    struct reference *r = NULL;
    struct tokenizer *t = NULL;
    struct against *against = NULL;
    struct perplexity p;
    *out = (struct requantized){0};
    bool ok = model_open(&m, package, &options, e) && tokenizer_open(&t, package, e) &&
              reference_open(&r, checkpoint, &reference_options, e);
    k.model = m;
    ok = ok && check_make_prompt(&k, t, e) && session_new(&s, m, e) &&
         against_checkpoint(&against, r, checkpoint, m, (int64_t)k.ids.n, e);
    if (ok) {
        const struct perplexity_text text = {
            .ids = k.ids.p, .n = k.ids.n, .window = (int64_t)k.ids.n, .against = against, .log = &quiet};
        ok = k.ids.n >= 2 && perplexity_measure(&p, s, m, &text, e);
    }
    if (ok) {
        const struct agreement *a = against_result(against);
        double n = a->n > 0 ? (double)a->n : 1;
        *out = (struct requantized){.n_tokens = a->n, .mean_kl = a->kl / n, .top1 = (double)a->top1 / n};
    }
    against_close(against);
    session_free(s);
    reference_close(r);
    tokenizer_free(t);
    model_close(m);
    ids_free(&k.ids);
    return ok;
}
