/* One run warms up (pages of the weights, plans, clocks), the others are measured; median and spread say more than one
 * number of a busy machine.
 */
#include "measure/check_bench.h"
#include <math.h>
#include <stdlib.h>
#include "measure/speed.h"
#include "runtime/sampler.h"

struct bench {
    struct log *log;
    struct model *model;
    struct session *session;
    struct ids *ids;
    size_t n_full, n; /* tokens of full batches, of a run */
};

/* Seconds of both; ids that are not there yet are the best ones. */
static bool run_once(struct bench *b, double *prefill, double *decode, struct err *e)
{
    session_reset(b->session);
    double start = clock_seconds();
    if (b->n_full > 0 &&
        !session_feed(b->session, b->ids->p, b->n_full, SESSION_CONTRACT, NULL, NULL, NULL, e))
        return false;
    double between = clock_seconds();
    for (size_t i = b->n_full; i < b->n; i++) {
        if (i == b->ids->n)
            ids_push(b->ids, sampler_argmax(session_logits(b->session), b->model->vocab_size));
        if (!session_feed(b->session, &b->ids->p[i], 1, SESSION_CONTRACT, NULL, NULL, NULL, e) ||
            log_cancelled(b->log, e))
            return false;
    }
    *prefill = between - start;
    *decode = clock_seconds() - between;
    return !log_cancelled(b->log, e);
}

static struct check_rate rate_of(const double *seconds, int64_t n_runs, int64_t n_tokens)
{
    double rates[3], at[3] = {0.5, 1, 0}; /* the median, the slowest, the fastest run */
    for (int i = 0; i < 3; i++)
        rates[i] = (double)n_tokens / fmax(speed_quantile(seconds, n_runs, at[i]), 1e-9);
    return (struct check_rate){rates[0], rates[1], rates[2]};
}

bool check_bench_run(struct check_bench *b, struct model *m, struct log *log, struct ids *ids,
                     size_t n_prompt, size_t n_more, struct err *e)
{
    struct bench run = {.log = log, .model = m, .ids = ids, .n = n_prompt + n_more};
    double *prefill = xcalloc((size_t)b->n_runs, sizeof *prefill),
           *decode = xcalloc((size_t)b->n_runs, sizeof *decode), ignored;
    bool ok = session_new(&run.session, m, e);
    if (ok) {
        size_t batch = (size_t)m->batch_size;
        run.n_full = m->has_prefill ? n_prompt / batch * batch : 0;
        ok = run_once(&run, &ignored, &ignored, e);
    }
    for (int64_t i = 0; ok && i < b->n_runs; i++)
        ok = run_once(&run, &prefill[i], &decode[i], e);
    if (ok) {
        b->n_prefill = (int64_t)run.n_full;
        b->n_decode = (int64_t)(run.n - run.n_full);
        b->prefill = rate_of(prefill, b->n_runs, b->n_prefill);
        b->decode = rate_of(decode, b->n_runs, b->n_decode);
    }
    free(prefill);
    free(decode);
    session_free(run.session);
    return ok;
}
