// links: arch
/* Rotating functions, functions in two files, update masks and monolithic models, on packages that are made here: logits
 * against a computation by hand, the order of calls, going back, and what is refused when a package is opened. */
#include <unistd.h>
#include "runtime/model_int.h"
#include "runtime/session.h"
#include "peer_package.h"

enum { N = 40, WINDOW = 8, BATCH = 4, CONTEXT = 48 };
#define ROTATING .context = CONTEXT, .window = WINDOW, .batch = BATCH

static char scratch[64];
static int n_made;

static int make_scratch(void **state)
{
    (void)state;
    snprintf(scratch, sizeof scratch, "rotate.XXXXXX");
    return mkdtemp(scratch) ? 0 : -1;
}

static int remove_scratch(void **state)
{
    (void)state;
    return path_remove_tree(scratch, NULL) ? 0 : -1;
}

/* The folder of a package, heap; each is made once. */
static char *make(const struct peer *p)
{
    static struct peer made[64];
    int i = 0;
    while (i < n_made && memcmp(&made[i], p, sizeof *p) != 0)
        i++;
    char *folder = xasprintf("%s/%d", scratch, i);
    if (i == n_made) {
        assert_true(n_made < 64);
        memcpy(&made[n_made++], p, sizeof *p);
        peer_make(p, folder);
    }
    return folder;
}

/* A package, a session on it, and tokens. */
struct fixture {
    struct model *m;
    struct session *s;
    int32_t tokens[N];
};

static void setup(struct fixture *x, const struct peer *p, enum model_precision precision, int n_threads)
{
    char *folder = make(p);
    struct model_options o = {.n_threads = n_threads, .precision = precision};
    ASSERT_OK(model_open(&x->m, folder, &o, e));
    ASSERT_OK(session_new(&x->s, x->m, e));
    for (int i = 0; i < N; i++)
        x->tokens[i] = (i * 17 + i * i * 5 + 3) % PEER_VOCABULARY;
    free(folder);
}

static void teardown(struct fixture *x)
{
    session_free(x->s);
    model_close(x->m);
}

/* ---- numbers ---- */

/* relative: to the largest, which sets the size of what is rounded on the way. */
static void expect_row(const double *want, const float *got, double relative, bool best_only)
{
    double tolerance = 0;
    for (int v = 0; v < PEER_VOCABULARY; v++)
        tolerance = fmax(tolerance, fabs(want[v]) * relative);
    for (int k = 0; best_only && k < PEER_PARTS; k++) {
        int64_t best = peer_part(k);
        for (int64_t v = best; v < peer_part(k + 1); v++)
            best = want[v] > want[best] ? v : best;
        for (int64_t v = peer_part(k); v < peer_part(k + 1); v++)
            if (v == best ? fabs(got[v] - want[v]) > tolerance : got[v] != -INFINITY)
                fail_msg("part %d: token %lld: expected %g, found %g", k, (long long)v, want[v],
                         (double)got[v]);
    }
    for (int v = 0; !best_only && v < PEER_VOCABULARY; v++)
        if (!(fabs(got[v] - want[v]) <= tolerance))
            fail_msg("token %d: expected %g, found %g", v, want[v], (double)got[v]);
}

static double *reference_of(const struct peer *p, const struct fixture *x, const struct peer_call *calls,
                            int n_calls)
{
    double *want = xcalloc(N * PEER_VOCABULARY, sizeof *want);
    peer_reference(p, x->tokens, calls, n_calls, want);
    return want;
}

static const struct peer packages[] = {
    {ROTATING, .n_chunks = 1},
    {ROTATING, .n_chunks = 2},
    {ROTATING, .n_chunks = 2, .split_files = true},
    {ROTATING, .n_chunks = 2, .is_monolithic = true},
    {ROTATING, .n_chunks = 1, .is_monolithic = true, .best_only = true},
    {ROTATING, .n_chunks = 2, .takes_update_mask = true},
    {.context = CONTEXT, .batch = BATCH, .n_chunks = 2},
    {.context = CONTEXT, .batch = BATCH, .n_chunks = 2, .cache_rows = 64},
    {.context = CONTEXT, .batch = BATCH, .n_chunks = 2, .is_monolithic = true, .cache_rows = 64},
};
#define N_PACKAGES ((int)(sizeof packages / sizeof *packages))

/* Token by token, over the window's end. */
static void test_one_by_one(void **state)
{
    (void)state;
    static const struct {
        enum model_precision precision;
        double relative;
    } precisions[] = {{PRECISION_DEFAULT, 0.001}, {PRECISION_FP32, 0.001}, {PRECISION_FP16, 0.01}};
    struct peer_call calls[N];
    for (int i = 0; i < N; i++)
        calls[i] = (struct peer_call){i, 1};
    for (int k = 0; k < N_PACKAGES * 3; k++) {
        const struct peer *p = &packages[k / 3];
        struct fixture x;
        setup(&x, p, precisions[k % 3].precision, 1);
        double *want = reference_of(p, &x, calls, N);
        for (int i = 0; i < N; i++) {
            ASSERT_OK(session_feed(x.s, x.tokens + i, 1, SESSION_CONTRACT, NULL, NULL, NULL, e));
            expect_row(want + i * PEER_VOCABULARY, session_logits(x.s), precisions[k % 3].relative,
                       p->best_only);
        }
        free(want);
        teardown(&x);
    }
}

/* A prompt from `first` on: batches up to the window, none across it, then rotating ones; the last tokens one by one. */
static int calls_of(int64_t first, int64_t n, struct peer_call *calls, bool has_window)
{
    int64_t window = has_window ? WINDOW : INT64_MAX, at = first, end = first + n;
    int n_calls = 0;
    while (at < end) {
        /* behind the window nothing may be computed twice, so that the last batch goes one by one */
        bool batch = at >= window ? end - at > BATCH : end - at >= BATCH && at + BATCH <= window;
        calls[n_calls++] = (struct peer_call){at, batch ? BATCH : 1};
        at += batch ? BATCH : 1;
    }
    return n_calls;
}

static void test_prompts(void **state)
{
    (void)state;
    static const int64_t begins[] = {0, 1, 5, 8, 9, 13};
    for (int k = 0; k < N_PACKAGES; k++) {
        const struct peer *p = &packages[k];
        for (size_t j = 0; j < sizeof begins / sizeof *begins; j++)
            for (int64_t n = begins[j] + 1; n <= N; n += n < 18 ? 1 : 7) {
                struct fixture x;
                struct peer_call calls[2 * N];
                int n_calls = calls_of(0, begins[j], calls, p->window > 0);
                n_calls += calls_of(begins[j], n - begins[j], calls + n_calls, p->window > 0);
                if (n == begins[j] + 1)
                    setup(&x, p, PRECISION_DEFAULT, 2);
                else
                    setup(&x, p, PRECISION_DEFAULT, 1);
                double *want = reference_of(p, &x, calls, n_calls);
                if (begins[j] > 0)
                    ASSERT_OK(session_feed(x.s, x.tokens, (size_t)begins[j], SESSION_CONTRACT, NULL, NULL,
                                           NULL, e));
                ASSERT_OK(session_feed(x.s, x.tokens + begins[j], (size_t)(n - begins[j]), SESSION_CONTRACT,
                                       NULL, NULL, NULL, e));
                assert_int_equal(session_position(x.s), n);
                expect_row(want + (n - 1) * PEER_VOCABULARY, session_logits(x.s), 0.001, p->best_only);
                free(want);
                teardown(&x);
            }
    }
}

/* What holds bit for bit: chunks, files, threads, plain C; the contract's calls and single tokens up to the window. */
static void test_bits(void **state)
{
    (void)state;
    const struct peer one = {ROTATING, .n_chunks = 2, .is_monolithic = true}, two = {ROTATING, .n_chunks = 2},
                      split = {ROTATING, .n_chunks = 2, .split_files = true};
    const struct peer *const kinds[] = {&one, &two, &split};
    for (int n = 1; n <= N; n += 3) {
        float first[PEER_VOCABULARY], single[PEER_VOCABULARY];
        for (int k = 0; k < 9; k++) {
            struct fixture x;
            assert_int_equal(k < 6 ? unsetenv("MILKIT_CPU") : setenv("MILKIT_CPU", "scalar", 1), 0);
            setup(&x, kinds[k % 3], PRECISION_DEFAULT, 1 + k / 3);
            ASSERT_OK(session_feed(x.s, x.tokens, (size_t)n, SESSION_CONTRACT, NULL, NULL, NULL, e));
            if (k == 0)
                memcpy(first, session_logits(x.s), sizeof first);
            assert_memory_equal(session_logits(x.s), first, sizeof first);
            session_reset(x.s);
            ASSERT_OK(session_feed(x.s, x.tokens, (size_t)n, SESSION_INFER_ONLY, NULL, NULL, NULL, e));
            if (k == 0)
                memcpy(single, session_logits(x.s), sizeof single);
            assert_memory_equal(session_logits(x.s), single, sizeof single);
            if (n <= WINDOW + BATCH)
                assert_memory_equal(single, first, sizeof first);
            teardown(&x);
        }
    }
    assert_int_equal(unsetenv("MILKIT_CPU"), 0);
}

/* ---- going back ---- */

/* Whatever was there before, the tokens' logits are those of the same calls from the start: of single tokens, so that no
 * batch makes a difference. */
static void test_sync(void **state)
{
    (void)state;
    static const struct {
        int keep, n; /* of the first sequence; tokens of the prompt */
    } steps[] = {{0, 5},   {5, 7}, {3, 6}, {3, 30}, {20, 33}, {20, 33},
                 {10, 12}, {6, 9}, {9, 9}, {8, 20}, {2, 4}};
    for (int k = 0; k < 3; k++) {
        struct peer p = {ROTATING, .n_chunks = 2, .no_prefill = true, .is_monolithic = k > 0,
                         .has_memory = k == 2};
        struct fixture x, fresh;
        setup(&x, &p, PRECISION_DEFAULT, 1);
        setup(&fresh, &p, PRECISION_DEFAULT, 1);
        assert_false(x.m->has_prefill);
        assert_true(x.m->is_sequential && x.m->once_from == (p.has_memory ? 0 : WINDOW));
        session_limit_snapshots(x.s, 1 << 20, 8);
        for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
            int32_t prompt[N];
            size_t reused;
            for (int j = 0; j < steps[i].n; j++)
                prompt[j] =
                    j < steps[i].keep ? x.tokens[j] : (x.tokens[j] + 1 + (int32_t)i) % PEER_VOCABULARY;
            ASSERT_OK(session_sync(x.s, prompt, (size_t)steps[i].n, NULL, &reused, e));
            session_reset(fresh.s);
            ASSERT_OK(
                session_feed(fresh.s, prompt, (size_t)steps[i].n, SESSION_CONTRACT, NULL, NULL, NULL, e));
            assert_memory_equal(session_logits(x.s), session_logits(fresh.s),
                                sizeof(float) * PEER_VOCABULARY);
            assert_int_equal(session_position(x.s), steps[i].n);
            if (i == 2 && !p.has_memory) /* before the window's end nothing but the new tokens is computed */
                assert_int_equal(reused, 3);
            memcpy(x.tokens, prompt, sizeof *prompt * (size_t)steps[i].n);
        }
        teardown(&fresh);
        teardown(&x);
    }
}

/* ---- refusals ---- */

static void expect_refusal(const struct peer *p, enum err_code code, const char *text)
{
    char *folder = make(p);
    struct model *m = NULL;
    struct err e = {0};
    if (model_open(&m, folder, &(struct model_options){.n_threads = 1}, &e) || e.code != code ||
        !strstr(e.msg, text))
        fail_msg("expected a refusal (%d) with \"%s\", found %d \"%s\"", code, text, e.code, e.msg);
    if (strstr(e.msg, "(?)") || strstr(e.msg, " ? ") || strstr(e.msg, "'?'"))
        fail_msg("a name is missing: %s", e.msg);
    model_close(m);
    free(folder);
}

static void test_refusals(void **state)
{
    (void)state;
    expect_refusal(&(struct peer){ROTATING, .n_chunks = 1, .extra = "infer_ctx1024"}, ERR_UNSUPPORTED,
                   "function infer_ctx1024 is none that this runtime calls");
    expect_refusal(&(struct peer){ROTATING, .n_chunks = 2, .is_monolithic = true, .extra = "warm_up"},
                   ERR_UNSUPPORTED, "function warm_up is none");
    expect_refusal(&(struct peer){ROTATING, .n_chunks = 2, .no_rotate = true}, ERR_FORMAT,
                   "position 47 of a context of 48 can't be computed: state model_model_kv_cache_local holds "
                   "8 positions");
    expect_refusal(
        &(struct peer){.context = CONTEXT, .batch = BATCH, .n_chunks = 2, .cache_rows = 16}, ERR_FORMAT,
        "position 47 of a context of 48 can't be computed: state model_model_kv_cache_global holds 16");
    expect_refusal(&(struct peer){ROTATING, .n_chunks = 1, .is_monolithic = true, .best_only = true,
                                  .meta = "    lm_head_chunk_sizes: [41]\n"},
                   ERR_FORMAT, "argmax_idx has 2 entries, but meta.yaml's lm_head_chunk_sizes 1");
    expect_refusal(&(struct peer){ROTATING, .n_chunks = 1, .is_monolithic = true, .best_only = true,
                                  .meta = "    lm_head_chunk_sizes: [20, 20]\n"},
                   ERR_FORMAT, "40 logits, but meta.yaml says vocab_size 41");
    expect_refusal(&(struct peer){ROTATING, .n_chunks = 1, .is_monolithic = true, .best_only = true,
                                  .meta = "    lm_head_chunk_sizes: [2147483647, 2147483647]\n"},
                   ERR_LIMIT, "expected at most 16777216 tokens in meta.yaml");
    expect_refusal(&(struct peer){ROTATING, .n_chunks = 1, .said_batch = 3}, ERR_FORMAT,
                   "batch_size 3 of meta.yaml");
    expect_refusal(&(struct peer){ROTATING, .n_chunks = 1, .is_monolithic = true, .said_batch = 3},
                   ERR_FORMAT, "function prefill takes 4 tokens, but meta.yaml says batch_size 3");
}

/* A trial of the last position that is stopped says nothing of the package. */
static void test_stopped_trial(void **state)
{
    (void)state;
    const struct peer p = {ROTATING, .n_chunks = 1};
    char *folder = make(&p);
    atomic_int cancel = 0;
    struct log log = {.cancel = &cancel};
    struct model *m = NULL;
    struct err trial = {0}, stopped = {0};
    ASSERT_OK(model_open(&m, folder, &(struct model_options){.n_threads = 1, .log = &log}, e));
    m->rotate_from = INT64_MAX; /* as if no function took over where the window ends */
    assert_false(model_check_positions(m, &trial));
    assert_int_equal(trial.code, ERR_FORMAT);
    cancel = 1;
    assert_false(model_check_positions(m, &stopped));
    assert_int_equal(stopped.code, ERR_CANCELLED);
    assert_null(strstr(stopped.msg, "can't be computed"));
    model_close(m);
    free(folder);
}

/* Without the rotating batch, or without any, tokens behind the window go one by one. */
static void test_fewer_functions(void **state)
{
    (void)state;
    const struct peer kinds[] = {{ROTATING, .n_chunks = 2, .no_prefill_rotate = true},
                                 {ROTATING, .n_chunks = 2, .no_prefill = true}};
    struct peer_call calls[N];
    for (int i = 0; i < N; i++)
        calls[i] = (struct peer_call){i, 1};
    for (int k = 0; k < 2; k++) {
        struct fixture x;
        setup(&x, &kinds[k], PRECISION_DEFAULT, 1);
        double *want = reference_of(&kinds[k], &x, calls, N);
        ASSERT_OK(session_feed(x.s, x.tokens, N, SESSION_CONTRACT, NULL, NULL, NULL, e));
        expect_row(want + (N - 1) * PEER_VOCABULARY, session_logits(x.s), 0.001, false);
        free(want);
        teardown(&x);
    }
}

/* ---- meta.yaml against the models ---- */

static int warnings_of(const struct peer *p, const char *text)
{
    char *said = NULL, *folder = make(p);
    size_t bytes = 0;
    FILE *f = open_memstream(&said, &bytes);
    struct log log = {.stream = f, .level = LOG_WARN};
    struct model *m = NULL;
    ASSERT_OK(model_open(&m, folder, &(struct model_options){.n_threads = 1, .log = &log}, e));
    fclose(f);
    if (text && !strstr(said, text))
        fail_msg("expected a warning with \"%s\", found \"%s\"", text, said);
    model_close(m);
    free(said);
    free(folder);
    return log.n_warnings;
}

/* A line each, by name; the package runs. */
static void test_warnings(void **state)
{
    (void)state;
#define STATE(name, rows)                                                                                    \
    "      - {name: " name ", shape: [4, 1, " rows ", 16], dtype: float16, layers: [0, 1]}\n"
    static const struct {
        const char *meta, *text;
        bool best_only;
    } cases[] = {
        {"    states:\n" STATE("model_model_kv_cache_local", "8") STATE("model_model_kv_cache_global", "48"),
         NULL, false},
        {"    states:\n" STATE("model_model_kv_cache_local", "9") STATE("model_model_kv_cache_global", "48"),
         "states: model_model_kv_cache_local: the chunks have", false},
        {"    states:\n" STATE("model_model_kv_cache_local", "8"), "states: model_model_kv_cache_global of",
         false},
        {"    states:\n" STATE("model_model_kv_cache_local", "8") STATE("model_model_kv_cache_global", "48")
             STATE("other", "1"),
         "states: no chunk has other", false},
        {"    lm_head_chunk_sizes: [41]\n", "lm_head_chunk_sizes has 1 entries", false},
        {"    lm_head_chunk_sizes: [20, 21]\n", "lm_head_chunk_sizes: part 1 is 20", false},
        {"    argmax_in_model: true\n", "argmax_in_model true, but", false},
        {"    argmax_in_model: true\n", NULL, true},
        {"    argmax_in_model: false\n", "argmax_in_model false, but", true},
        {"    recommended_sampling: {do_sample: true, temperature: 0.7}\n", NULL, false},
        {"    recommended_sampling: {do_sample: true, temperature: 0.7}\n",
         "recommended sampling has no effect", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct peer p = {ROTATING, .n_chunks = 2, .is_monolithic = true,
                               .best_only = cases[i].best_only, .meta = cases[i].meta};
        assert_int_equal(warnings_of(&p, cases[i].text), cases[i].text != NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_by_one),
        cmocka_unit_test(test_prompts),
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_sync),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_stopped_trial),
        cmocka_unit_test(test_fewer_functions),
        cmocka_unit_test(test_warnings),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
