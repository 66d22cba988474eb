// links: convert runtime api
// labels: threads
/* The scheduler: what a job generates is what it generates alone, whatever runs beside it, leaves or fails. */
#include "api.h"
#include "packages.h"
#include "server/scheduler.h"

enum { CONTEXT = 128, N_JOBS = 9, TOKENS = 20 };
static const struct package_shape shapes[] = {{"qwen3-tiny", CONTEXT, 8, 1, CONVERT_MLMODELC},
                                              {"qwen3_5-equal", CONTEXT, 8, 1, CONVERT_MLMODELC}};
static mk_library *library;

static struct job *make_job(int i, int n_choices)
{
    struct job_options o = {.n_choices = n_choices,
                            .max_tokens = TOKENS,
                            .n_top = -1,
                            .seed = (uint64_t)i,
                            .ignores_end = true,
                            .wants_tokens = true};
    o.n_prompt = 3 + (size_t)(i * 5) % 30;
    o.prompt = xcalloc(o.n_prompt, sizeof *o.prompt);
    for (size_t k = 0; k < o.n_prompt; k++)
        o.prompt[k] = (int32_t)((k * 7 + (k < 12 ? 0 : (size_t)i)) % 250); /* they begin alike */
    o.sampling = xstrdup("{\"temperature\": 1}");
    return job_new(&o);
}

/* The tokens of the job's choices, one behind the other; NULL when it failed. */
static int32_t *collect(struct job *j, size_t *n)
{
    int32_t *ids = xcalloc((size_t)j->o.n_choices * TOKENS, sizeof *ids);
    size_t counts[8] = {0};
    int n_open = j->o.n_choices;
    bool has_failed = false;
    while (n_open > 0 && !has_failed) {
        struct event *e = job_next(j, 60);
        assert_non_null(e);
        for (size_t i = 0; i < e->n_tokens; i++) {
            assert_true(counts[e->choice] < TOKENS);
            ids[(size_t)e->choice * TOKENS + counts[e->choice]++] = e->tokens[i].id;
        }
        n_open -= e->kind == EVENT_END;
        has_failed = e->kind == EVENT_FAILED;
        event_free(e);
    }
    *n = 0;
    for (int i = 0; i < j->o.n_choices; i++)
        *n += counts[i];
    if (has_failed) {
        free(ids);
        return NULL;
    }
    return ids;
}

static struct scheduler *start(mk_package *p, int n_slots, int n_waiting)
{
    struct scheduler *s;
    struct err e = {0};
    /* small enough that some of what slots give up is dropped again, and some of it is written */
    static struct log silent;
    const struct scheduler_options o = {.package = p,
                                        .n_slots = n_slots,
                                        .n_waiting = n_waiting,
                                        .cache = {.memory_bytes = 1 << 19,
                                                  .folder = "scheduler_cache",
                                                  .file_bytes = 1 << 18,
                                                  .owner = "test",
                                                  .log = &silent}};
    assert_true(scheduler_start(&s, &o, &e));
    return s;
}

static mk_package *open_package(int i)
{
    char *path = package_make(&shapes[i]);
    mk_package *p;
    OK(mk_package_open(&p, library, path, NULL, e));
    free(path);
    return p;
}

static void test_alone_and_together(void **state)
{
    (void)state;
    for (int shape = 0; shape < 2; shape++) {
        mk_package *p = open_package(shape);
        int32_t *alone[N_JOBS];
        struct job *jobs[N_JOBS];
        struct problem problem = {0};
        size_t n;
        struct scheduler *s = start(p, 1, N_JOBS);
        for (int i = 0; i < N_JOBS; i++) {
            struct job *j = make_job(i, 1);
            assert_true(scheduler_submit(s, j, &problem));
            alone[i] = collect(j, &n);
            assert_non_null(alone[i]);
            assert_int_equal(n, TOKENS);
            job_release(j);
        }
        scheduler_stop(s, 0);
        for (int n_slots = 2; n_slots <= 5; n_slots++) {
            s = start(p, n_slots, N_JOBS + 4);
            struct job *leaving[3];
            for (int i = 0; i < N_JOBS; i++) {
                if (i % 3 == 0) { /* some that leave: waiting, or at once, or a little later */
                    leaving[i / 3] = make_job(20 + i, 1);
                    assert_true(scheduler_submit(s, leaving[i / 3], &problem));
                }
                jobs[i] = make_job(i, 1);
                assert_true(scheduler_submit(s, jobs[i], &problem));
            }
            for (int i = 0; i < 3; i++)
                scheduler_cancel(s, leaving[i]);
            for (int i = 0; i < N_JOBS; i++) {
                int32_t *ids = collect(jobs[i], &n);
                assert_int_equal(n, TOKENS);
                assert_memory_equal(ids, alone[i], sizeof *ids * TOKENS);
                free(ids);
                job_release(jobs[i]);
            }
            for (int i = 0; i < 3; i++)
                job_release(leaving[i]);
            scheduler_stop(s, 0);
        }
        /* choices are those of jobs with the seeds that follow */
        s = start(p, 3, 4);
        struct job *three = make_job(4, 3), *next = make_job(4, 1);
        next->o.seed = 6;
        assert_true(scheduler_submit(s, three, &problem) && scheduler_submit(s, next, &problem));
        int32_t *ids = collect(three, &n);
        assert_int_equal(n, 3 * TOKENS);
        assert_memory_equal(ids, alone[4], sizeof *ids * TOKENS);
        int32_t *last = collect(next, &n);
        assert_memory_equal(ids + 2 * TOKENS, last, sizeof *ids * TOKENS);
        free(ids);
        free(last);
        job_release(three);
        job_release(next);
        scheduler_stop(s, 0);
        for (int i = 0; i < N_JOBS; i++)
            free(alone[i]);
        mk_package_close(p);
    }
}

static void test_limits(void **state)
{
    (void)state;
    mk_package *p = open_package(0);
    struct scheduler *s = start(p, 1, 2);
    struct problem problem = {0};
    struct job *jobs[4];
    size_t n;
    int n_taken = 0;
    for (int i = 0; i < 4; i++) {
        jobs[i] = make_job(i, 1);
        jobs[i]->o.max_tokens = -1;
        if (scheduler_submit(s, jobs[i], &problem))
            n_taken++;
    }
    assert_true(n_taken >= 2 && n_taken < 4);
    assert_int_equal(problem.status, 429);
    assert_true(problem.retry_after_s > 0);
    scheduler_stop(s, 0); /* without grace: whoever is left is told */
    for (int i = 0; i < n_taken; i++) {
        struct event *e = NULL;
        do {
            event_free(e);
            e = job_next(jobs[i], 60);
            assert_non_null(e);
        } while (e->kind != EVENT_FAILED && e->kind != EVENT_END);
        if (e->kind == EVENT_FAILED)
            assert_int_equal(e->problem.status, 503);
        event_free(e);
    }
    for (int i = 0; i < 4; i++)
        job_release(jobs[i]);
    /* an answer that fills the context */
    s = start(p, 2, 2);
    struct job *j = make_job(1, 1);
    j->o.max_tokens = -1;
    assert_true(scheduler_submit(s, j, &problem));
    struct event *e = NULL;
    do {
        event_free(e);
        e = job_next(j, 60);
        assert_non_null(e);
    } while (e->kind != EVENT_END);
    assert_int_equal(e->reason, END_CONTEXT);
    assert_int_equal((size_t)e->n_done, CONTEXT - j->o.n_prompt + 1);
    event_free(e);
    struct scheduler_totals totals;
    scheduler_get_totals(s, &totals);
    assert_int_equal(totals.n_context_most, CONTEXT);
    (void)n;
    job_release(j);
    scheduler_stop(s, 1);
    mk_package_close(p);
}

static int setup(void **state)
{
    const mk_options options = {.size = sizeof options, .threads = 2};
    return mk_library_open(&library, &options, NULL) == MK_OK ? packages_setup(state) : -1;
}

static int teardown(void **state)
{
    mk_library_close(library);
    return packages_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_alone_and_together),
                                       cmocka_unit_test(test_limits)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
