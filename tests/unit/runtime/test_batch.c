// links: convert arch
// wraps: engine_batch_execute
/* Steps of several sessions at once: each has the bits of a session alone, whatever the kinds of its layers, the number of
 * members, their lengths, threads and level, and whatever becomes of the other members. */
#include "engine/engine.h"
#include "kernel/kernel.h"
#include "runtime/batch.h"
#include "runtime/session_int.h"
#include "sequential.h"
#include "peer_package.h"

enum { CONTEXT = 64, BATCH = 8, MOST = 8, STEPS = 3 };

static struct {
    int n;       /* executions so far */
    int fail_at; /* from 1; 0: never */
    int member;  /* the one that fails when its work is done */
} calls;

bool __real_engine_batch_execute(struct engine_batch *b, struct engine_member *members, int n, struct pool *p,
                                 struct err *e);
bool __wrap_engine_batch_execute(struct engine_batch *b, struct engine_member *members, int n, struct pool *p,
                                 struct err *e);

bool __wrap_engine_batch_execute(struct engine_batch *b, struct engine_member *members, int n, struct pool *p,
                                 struct err *e)
{
    bool ok = __real_engine_batch_execute(b, members, n, p, e);
    if (++calls.n == calls.fail_at) {
        members[calls.member].has_failed = true;
        err_set(&members[calls.member].error, ERR_FAILED, "made to fail");
    }
    return ok;
}

/* Tokens before the first step of member i, and all its tokens. */
static size_t length_of(int i)
{
    return 1 + (size_t)(i * 5) % 23;
}

static void ids_of(int i, int64_t vocab_size, int32_t ids[CONTEXT])
{
    make_ids(ids, CONTEXT, vocab_size, (uint32_t)i + 3);
}

/* What each session alone holds after its steps. */
static void make_truth(struct model *m, struct moment want[MOST])
{
    for (int i = 0; i < MOST; i++) {
        struct session *s = NULL;
        int32_t ids[CONTEXT];
        ids_of(i, m->vocab_size, ids);
        ASSERT_OK(session_new(&s, m, e));
        ASSERT_OK(session_sync(s, ids, length_of(i), NULL, NULL, e));
        for (size_t k = 0; k < STEPS; k++)
            feed(s, ids + length_of(i) + k, 1, SESSION_CONTRACT);
        want[i] = moment_take(s, m);
        session_free(s);
    }
}

struct sessions {
    struct model *m;
    struct batch *b;
    struct session *s[MOST];
    int32_t ids[MOST][CONTEXT];
};

static void sessions_open(struct sessions *x, struct model *m, int n, int n_most)
{
    *x = (struct sessions){.m = m};
    ASSERT_OK(batch_new(&x->b, m, n_most, e));
    for (int i = 0; i < n; i++) {
        ids_of(i, m->vocab_size, x->ids[i]);
        ASSERT_OK(session_new(&x->s[i], m, e));
        ASSERT_OK(session_sync(x->s[i], x->ids[i], length_of(i), NULL, NULL, e));
    }
}

static void sessions_close(struct sessions *x)
{
    for (int i = 0; i < MOST; i++)
        session_free(x->s[i]);
    batch_free(x->b);
}

/* The next token of the first n sessions. */
static bool step(struct sessions *x, int n, struct batch_member members[MOST])
{
    for (int i = 0; i < n; i++)
        members[i] = (struct batch_member){.session = x->s[i], .id = x->ids[i][session_position(x->s[i])]};
    return batch_step(x->b, members, n);
}

static void compare(struct model *m, const struct moment want[MOST], int n, int n_most, const char *what)
{
    struct sessions x;
    struct batch_member members[MOST];
    sessions_open(&x, m, n, n_most);
    for (int k = 0; k < STEPS; k++)
        if (!step(&x, n, members))
            fail_msg("%s: %s", what, members[0].error.msg);
    for (int i = 0; i < n; i++) {
        char name[128];
        snprintf(name, sizeof name, "%s, %d together, member %d", what, n, i);
        assert_same_moment(x.s[i], m, &want[i], name);
    }
    sessions_close(&x);
}

static void free_moments(struct moment want[MOST])
{
    for (int i = 0; i < MOST; i++)
        moment_free(&want[i]);
}

static const struct {
    struct package_shape shape;
    int lut;
} packages[] = {
    {{"qwen3-gqa8", CONTEXT, BATCH, 2, CONVERT_MLMODELC}, 0},
    {{"qwen3-gqa8", CONTEXT, BATCH, 1, CONVERT_MLPACKAGE}, 4},
    {{"qwen3-bias", CONTEXT, BATCH, 1, CONVERT_MLMODELC}, 6},
    {{"qwen3_5-equal", CONTEXT, BATCH, 2, CONVERT_MLMODELC}, 4},
    {{"qwen3_5_moe-tiny", CONTEXT, BATCH, 1, CONVERT_MLMODELC}, 0},
    {{"gemma4-window", CONTEXT, BATCH, 2, CONVERT_MLMODELC}, 4},
};
enum { N_PACKAGES = sizeof packages / sizeof *packages };

/* level NULL: the best one. */
static struct model *load(int i, const char *level, int n_threads)
{
    if (level)
        assert_int_equal(setenv("MILKIT_CPU", level, 1), 0);
    struct model *m = package_load_with(&packages[i].shape, &(struct package_extra){.lut = packages[i].lut},
                                        &(struct model_options){.n_threads = n_threads});
    unsetenv("MILKIT_CPU");
    assert_true(!level || strcmp(m->device, level) == 0);
    return m;
}

static void test_bits(void **state)
{
    (void)state;
    static const char *const levels[CPU_LEVELS] = {
        [CPU_SCALAR] = "scalar", [CPU_AVX2] = "avx2", [CPU_AVX512] = "avx512"};
    for (int i = 0; i < N_PACKAGES; i++) {
        struct moment want[MOST];
        struct model *m = load(i, "scalar", 1);
        make_truth(m, want);
        compare(m, want, 1, 1, packages[i].shape.model);
        compare(m, want, MOST, MOST, packages[i].shape.model);
        model_close(m);
        for (int level = 0; level < CPU_LEVELS; level++) {
            if (!levels[level] || !kernel_table((enum cpu_level)level))
                continue;
            m = load(i, levels[level], 2);
            compare(m, want, 2, 2, levels[level]);
            compare(m, want, 5, MOST, levels[level]);
            compare(m, want, MOST, MOST, levels[level]);
            model_close(m);
        }
        free_moments(want);
    }
}

/* A window that some members have passed and others not, models in one file, heads that name the best token. */
static void test_peers(void **state)
{
    (void)state;
    static const struct peer peers[] = {
        {.context = CONTEXT, .window = 16, .batch = 4, .n_chunks = 2},
        {.context = CONTEXT, .window = 16, .batch = 4, .n_chunks = 1, .is_monolithic = true},
        {.context = CONTEXT, .window = 16, .batch = 4, .n_chunks = 2, .best_only = true},
        {.context = CONTEXT, .batch = 4, .n_chunks = 1, .is_monolithic = true, .best_only = true},
        {.context = CONTEXT, .batch = 4, .n_chunks = 1, .takes_update_mask = true},
        {.context = CONTEXT, .batch = 4, .n_chunks = 1, .is_monolithic = true, .has_memory = true}};
    for (size_t i = 0; i < sizeof peers / sizeof *peers; i++) {
        char *folder = xasprintf("%s/peer%zu", packages_scratch, i);
        struct moment want[MOST];
        struct model *m = NULL;
        peer_make(&peers[i], folder);
        ASSERT_OK(model_open(&m, folder, &(struct model_options){.n_threads = 2}, e));
        make_truth(m, want);
        compare(m, want, 1, 1, folder);
        compare(m, want, MOST, MOST, folder);
        free_moments(want);
        model_close(m);
        free(folder);
    }
}

/* One member fails in each of the places where one can; the others do not notice, and it goes on as a session alone does. */
static void test_failing_members(void **state)
{
    (void)state;
    static const int some[] = {0, 3, 5}; /* of packages */
    for (int i = 0; i < 3; i++) {
        struct model *m = load(some[i], NULL, 2);
        struct moment want[MOST];
        int n_parts = m->n_chunks + 2;
        make_truth(m, want);
        for (int at = 1; at <= n_parts; at++) {
            struct sessions x;
            struct batch_member members[MOST];
            sessions_open(&x, m, 3, 4);
            calls.n = 0;
            calls.fail_at = n_parts + at;
            calls.member = 1;
            assert_true(step(&x, 3, members));
            assert_false(step(&x, 3, members));
            calls.fail_at = 0;
            assert_false(members[0].has_failed || members[2].has_failed);
            assert_true(members[1].has_failed);
            assert_int_equal(members[1].error.code, ERR_FAILED);
            assert_non_null(strstr(members[1].error.msg, at == 1 ? "tokens at position 7: made to fail"
                                                         : at == n_parts ? "LM head: made to fail"
                                                                         : "chunk"));
            ASSERT_OK(session_sync(x.s[1], x.ids[1], length_of(1) + 2, NULL, NULL, e));
            assert_true(step(&x, 3, members));
            for (int k = 0; k < 3; k++)
                assert_memory_equal(session_logits(x.s[k]), want[k].logits, want[k].logits_bytes);
            sessions_close(&x);
        }
        free_moments(want);
        model_close(m);
    }
}

static void test_refused_members(void **state)
{
    (void)state;
    struct model *m = load(0, NULL, 1);
    struct moment want[MOST];
    struct sessions x;
    struct batch_member members[MOST];
    atomic_int flag = 1;
    int32_t more[CONTEXT];
    make_truth(m, want);
    sessions_open(&x, m, 4, 4);
    make_ids(more, CONTEXT, m->vocab_size, 77);
    ASSERT_OK(session_sync(x.s[0], more, CONTEXT, NULL, NULL, e));
    session_set_stop(x.s[2], &flag, NULL);
    for (int k = 0; k < STEPS; k++) {
        for (int i = 0; i < 4; i++)
            members[i] =
                (struct batch_member){.session = x.s[i], .id = x.ids[i][session_position(x.s[i]) % 48]};
        if (k == 1)
            members[3].id = (int32_t)m->vocab_size; /* a row that is not there */
        assert_false(batch_step(x.b, members, 4));
        assert_int_equal(members[0].error.code, ERR_LIMIT);
        assert_string_equal(members[0].error.msg,
                            "1 tokens do not fit: the context holds 64, of which 64 are in use");
        assert_int_equal(members[2].error.code, ERR_CANCELLED);
        assert_int_equal(session_position(x.s[2]), length_of(2));
        assert_false(members[1].has_failed);
        assert_int_equal(members[3].has_failed, k == 1);
        if (k == 1)
            assert_non_null(strstr(members[3].error.msg, "tokens at position"));
    }
    assert_same_moment(x.s[1], m, &want[1], "beside members that fail");
    /* The third goes on where it was, the fourth has missed one step. */
    atomic_store(&flag, 0);
    x.s[0] = (session_free(x.s[0]), NULL);
    for (size_t k = 0; k < STEPS; k++) {
        struct batch_member two[2] = {{.session = x.s[2], .id = x.ids[2][length_of(2) + k]},
                                      {.session = x.s[3], .id = x.ids[3][length_of(3) + STEPS - 1]}};
        assert_true(batch_step(x.b, two, k == 0 ? 2 : 1));
    }
    assert_same_moment(x.s[2], m, &want[2], "after it was stopped");
    assert_same_moment(x.s[3], m, &want[3], "after a wrong token");
    sessions_close(&x);
    free_moments(want);
    model_close(m);
}

static void count_rows(void *context, int64_t layer, int64_t position, int64_t n, const float *rows)
{
    (void)layer;
    (void)position;
    (void)n;
    (void)rows;
    ++*(int *)context;
}

/* A session that is watched steps alone. */
static void test_watched_member(void **state)
{
    (void)state;
    struct model *m = load(0, NULL, 1);
    struct moment want[MOST];
    struct sessions x;
    struct batch_member members[MOST];
    int n_rows = 0;
    make_truth(m, want);
    sessions_open(&x, m, 3, 3);
    session_watch(x.s[1], count_rows, &n_rows);
    for (int k = 0; k < STEPS; k++)
        assert_true(step(&x, 3, members));
    assert_true(n_rows >= 2 * STEPS);
    for (int i = 0; i < 3; i++)
        assert_same_moment(x.s[i], m, &want[i], "beside a watched one");
    sessions_close(&x);
    free_moments(want);
    model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_peers),
        cmocka_unit_test(test_failing_members),
        cmocka_unit_test(test_refused_members),
        cmocka_unit_test(test_watched_member),
    };
    return cmocka_run_group_tests(tests, packages_setup, packages_teardown);
}
