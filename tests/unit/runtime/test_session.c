// links: convert
/* Sessions on packages converted here, against numbers of transformers: logits at every published position, greedy
 * continuations where their margin leaves no doubt, and the rules of a timeline (reuse, overflow, restart). */
#include "packages.h"

/* Of one logit at a standard deviation of 2 to 4: weights, cache and logits are fp16. */
#define COSINE_MIN 0.99999
#define MARGIN 0.05f

static const struct package_shape tiny = {"qwen3-tiny", 512, 64, 1, CONVERT_MLMODELC},
                                  gqa8 = {"qwen3-gqa8", 512, 64, 2, CONVERT_MLPACKAGE},
                                  bias = {"qwen3-bias", 512, 64, 3, CONVERT_MLMODELC};

/* Every row that the session yields and golden.safetensors has; returns how many there were. */
static int compare_prompt(const struct package_shape *shape, const char *prompt, enum session_mode mode)
{
    struct model *m = package_load(shape, 2);
    struct session *s = NULL;
    struct safetensors *golden = golden_open(shape->model);
    size_t n, n_positions;
    int32_t *ids = golden_ints(golden, prompt, "ids", &n),
            *positions = golden_ints(golden, prompt, "positions", &n_positions),
            *argmax = golden_ints(golden, prompt, "argmax", NULL);
    float *logits = golden_floats(golden, prompt, "logits"),
          *margin = golden_floats(golden, prompt, "margin");
    int n_compared = 0;
    ASSERT_OK(session_new(&s, m, e));
    struct rows rows = rows_feed(s, m, ids, n, mode);
    assert_int_equal(session_position(s), n);
    assert_memory_equal(session_logits(s), rows_at(&rows, (int64_t)n - 1),
                        sizeof(float) * (size_t)m->vocab_size);
    for (size_t i = 0; i < n_positions; i++) {
        const float *row = rows_at(&rows, positions[i]), *want = logits + i * (size_t)m->vocab_size;
        if (!row)
            continue;
        double cosine = row_cosine(row, want, m->vocab_size);
        if (!(cosine >= COSINE_MIN))
            fail_msg("%s %s position %d: cosine %.9f", shape->model, prompt, positions[i], cosine);
        n_compared++;
    }
    for (size_t i = 0; i < n; i++) {
        const float *row = rows_at(&rows, (int64_t)i);
        if (row && margin[i] > MARGIN && row_best(row, m->vocab_size) != argmax[i])
            fail_msg("%s %s position %zu: expected token %d, found %d (margin %g)", shape->model, prompt, i,
                     argmax[i], row_best(row, m->vocab_size), (double)margin[i]);
    }
    rows_free(&rows);
    free(ids);
    free(positions);
    free(argmax);
    free(logits);
    free(margin);
    session_free(s);
    safetensors_close(golden);
    model_close(m);
    return n_compared;
}

static void test_golden_logits_by_infer(void **state)
{
    (void)state;
    assert_int_equal(compare_prompt(&tiny, "one", SESSION_INFER_ONLY), 1);
    assert_int_equal(compare_prompt(&tiny, "five", SESSION_INFER_ONLY), 5);
    assert_int_equal(compare_prompt(&tiny, "chat", SESSION_INFER_ONLY), 29);
    assert_int_equal(compare_prompt(&tiny, "batch64", SESSION_INFER_ONLY), 12);
    assert_int_equal(compare_prompt(&gqa8, "long", SESSION_INFER_ONLY), 203);
    assert_int_equal(compare_prompt(&gqa8, "five", SESSION_INFER_ONLY), 5);
    assert_int_equal(compare_prompt(&bias, "long", SESSION_INFER_ONLY), 203);
    assert_int_equal(compare_prompt(&bias, "one", SESSION_INFER_ONLY), 1);
}

static void test_golden_logits_by_contract(void **state)
{
    (void)state;
    /* 64 tokens: one batch, whose last row is published; 203 = 3 batches and 11; 300 = 4 batches and 44 */
    assert_int_equal(compare_prompt(&tiny, "batch64", SESSION_CONTRACT), 1);
    assert_true(compare_prompt(&tiny, "longer", SESSION_CONTRACT) >= 8);
    assert_true(compare_prompt(&gqa8, "longer", SESSION_CONTRACT) >= 8);
    assert_int_equal(compare_prompt(&gqa8, "batch64", SESSION_CONTRACT), 1);
    assert_true(compare_prompt(&bias, "long", SESSION_CONTRACT) >= 8);
}

/* Greedy tokens up to the first whose margin is in doubt; returns how many were compared. */
static int compare_greedy(struct model *m, const char *name, const char *prompt)
{
    struct session *s = NULL;
    struct safetensors *golden = golden_open(name);
    size_t n, n_greedy;
    int32_t *ids = golden_ints(golden, prompt, "ids", &n),
            *greedy = golden_ints(golden, prompt, "greedy", &n_greedy);
    float *margin = golden_floats(golden, prompt, "greedy_margin");
    size_t i = 0;
    ASSERT_OK(session_new(&s, m, e));
    ASSERT_OK(session_sync(s, ids, n, NULL, NULL, e));
    for (; i < n_greedy && margin[i] > MARGIN; i++) {
        int32_t id = row_best(session_logits(s), m->vocab_size);
        if (id != greedy[i])
            fail_msg("%s %s: token %zu: expected %d, found %d (margin %g)", name, prompt, i, greedy[i], id,
                     (double)margin[i]);
        ASSERT_OK(session_feed(s, &id, 1, SESSION_CONTRACT, NULL, NULL, NULL, e));
    }
    free(ids);
    free(greedy);
    free(margin);
    session_free(s);
    safetensors_close(golden);
    return (int)i;
}

static void test_greedy_continuations(void **state)
{
    (void)state;
    static const char *const prompts[] = {"one", "five", "batch64", "long"};
    const struct package_shape *shapes[] = {&tiny, &gqa8, &bias};
    int n = 0;
    for (int i = 0; i < 3; i++) {
        struct model *m = package_load(shapes[i], 2);
        for (int k = 0; k < 4; k++)
            n += compare_greedy(m, shapes[i]->model, prompts[k]);
        model_close(m);
    }
    assert_true(n > 100); /* most of 384 */
}

/* ---- the timeline ---- */

static void assert_same_logits(const struct session *a, const struct session *b, const struct model *m)
{
    assert_memory_equal(session_logits(a), session_logits(b), sizeof(float) * (size_t)m->vocab_size);
}

/* Syncs `s` and a fresh session to the same tokens: equal bits, and the stated number of tokens not computed again. */
static void sync_like_fresh(struct session *s, struct model *m, const int32_t *ids, size_t n,
                            size_t reused_expected)
{
    struct session *fresh = NULL;
    size_t reused = 12345;
    ASSERT_OK(session_new(&fresh, m, e));
    ASSERT_OK(session_sync(fresh, ids, n, NULL, NULL, e));
    ASSERT_OK(session_sync(s, ids, n, NULL, &reused, e));
    assert_int_equal(reused, reused_expected);
    assert_int_equal(session_position(s), n);
    assert_same_logits(s, fresh, m);
    session_free(fresh);
}

static const struct package_shape small = {"qwen3-gqa8", 96, 16, 1, CONVERT_MLMODELC};

static void make_ids(int32_t *ids, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)((i * 7919 + seed * 104729 + i * i * 31) % 300);
}

static void test_sync_reuses(void **state)
{
    (void)state;
    struct model *m = package_load(&small, 2);
    struct session *s = NULL;
    int32_t ids[96], other[96];
    make_ids(ids, 96, 1);
    ASSERT_OK(session_new(&s, m, e));
    sync_like_fresh(s, m, ids, 20, 0);
    sync_like_fresh(s, m, ids, 45, 20); /* longer: only the new tokens */
    sync_like_fresh(s, m, ids, 45, 45); /* the same: nothing */
    sync_like_fresh(s, m, ids, 30, 29); /* a prefix: its last token again */
    sync_like_fresh(s, m, ids, 30, 30);
    memcpy(other, ids, sizeof other);
    other[10] = (ids[10] + 1) % 300; /* another continuation from position 10, long enough for batches */
    sync_like_fresh(s, m, other, 60, 10);
    sync_like_fresh(s, m, ids, 96, 10); /* to the end of the context */
    sync_like_fresh(s, m, other, 1, 0 + 0);
    other[0] = (ids[0] + 1) % 300;
    sync_like_fresh(s, m, other, 33, 0);
    struct err e = {0};
    assert_false(session_sync(s, other, 0, NULL, NULL, &e));
    assert_int_equal(e.code, ERR_USAGE);
    session_free(s);
    model_close(m);
}

/* After a refused sync the session still tells the truth about what it holds. */
static void test_sync_after_a_refusal(void **state)
{
    (void)state;
    struct model *m = package_load(&small, 1);
    struct session *s = NULL;
    struct err e = {0};
    int32_t ids[200], other[200];
    make_ids(ids, 200, 2);
    memcpy(other, ids, sizeof other);
    other[5]++;
    ASSERT_OK(session_new(&s, m, e));
    sync_like_fresh(s, m, ids, 20, 0);
    assert_false(session_sync(s, other, 200, NULL, NULL, &e));
    assert_int_equal(e.code, ERR_LIMIT);
    struct session *fresh = NULL;
    ASSERT_OK(session_new(&fresh, m, e));
    for (size_t n = 5; n <= 20;
         n += 5) { /* whatever was kept, the logits are those of the tokens asked for */
        ASSERT_OK(session_sync(s, ids, n, NULL, NULL, e));
        session_reset(fresh);
        ASSERT_OK(session_sync(fresh, ids, n, NULL, NULL, e));
        assert_same_logits(s, fresh, m);
    }
    session_free(fresh);
    session_free(s);
    model_close(m);
}

static void test_context_overflow(void **state)
{
    (void)state;
    struct model *m = package_load(&small, 1);
    struct session *s = NULL, *fresh = NULL;
    struct err e = {0};
    int32_t ids[97];
    make_ids(ids, 97, 3);
    ASSERT_OK(session_new(&s, m, e));
    assert_int_equal(m->context_length, 96);
    assert_false(session_feed(s, ids, 97, SESSION_CONTRACT, NULL, NULL, NULL, &e));
    assert_int_equal(e.code, ERR_LIMIT);
    assert_true(strstr(e.msg, "97") && strstr(e.msg, "96"));
    assert_int_equal(session_position(s), 0);
    ASSERT_OK(session_feed(s, ids, 90, SESSION_CONTRACT, NULL, NULL, NULL, e));
    e = (struct err){0};
    assert_false(session_feed(s, ids + 90, 7, SESSION_CONTRACT, NULL, NULL, NULL, &e));
    assert_int_equal(e.code, ERR_LIMIT);
    assert_int_equal(session_position(s), 90);
    /* Nothing was done: the last six fit and give what they give in one go. */
    ASSERT_OK(session_feed(s, ids + 90, 6, SESSION_CONTRACT, NULL, NULL, NULL, e));
    ASSERT_OK(session_new(&fresh, m, e));
    ASSERT_OK(session_feed(fresh, ids, 96, SESSION_INFER_ONLY, NULL, NULL, NULL, e));
    assert_same_logits(s, fresh, m);
    e = (struct err){0};
    assert_false(session_feed(s, ids, 1, SESSION_INFER_ONLY, NULL, NULL, NULL, &e));
    assert_int_equal(e.code, ERR_LIMIT);
    session_free(fresh);
    session_free(s);
    model_close(m);
}

/* Ids outside of the vocabulary are refused by the graph itself, and the timeline stays good. */
static void test_ids_outside_of_the_vocabulary(void **state)
{
    (void)state;
    struct model *m = package_load(&small, 1);
    struct session *s = NULL;
    int32_t ids[40];
    make_ids(ids, 40, 4);
    ASSERT_OK(session_new(&s, m, e));
    ASSERT_OK(session_sync(s, ids, 10, NULL, NULL, e));
    static const int32_t bad[] = {300, INT32_MAX, INT32_MIN, -301};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct err e = {0};
        assert_false(session_feed(s, &bad[i], 1, SESSION_CONTRACT, NULL, NULL, NULL, &e));
        assert_int_equal(session_position(s), 10);
    }
    sync_like_fresh(s, m, ids, 40, 10);
    session_free(s);
    model_close(m);
}

/* Running the last token again changes neither logits nor state [74]. */
static void test_last_token_again(void **state)
{
    (void)state;
    struct model *m = package_load(&small, 2);
    static const size_t lengths[] = {1, 15, 16, 17, 33, 64}; /* n - 1 at multiples of the batch, too */
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        size_t n = lengths[i];
        struct session *s = NULL;
        int32_t ids[64], longer[64];
        make_ids(ids, 64, 5);
        memcpy(longer, ids, sizeof longer);
        ASSERT_OK(session_new(&s, m, e));
        ASSERT_OK(session_sync(s, ids, n, NULL, NULL, e));
        float *before = xmalloc(sizeof(float) * (size_t)m->vocab_size);
        memcpy(before, session_logits(s), sizeof(float) * (size_t)m->vocab_size);
        if (n < 64) { /* away from the last token and back to it */
            longer[n] = (ids[n] + 1) % 300;
            ASSERT_OK(session_sync(s, longer, n + 1, NULL, NULL, e));
            ASSERT_OK(session_sync(s, ids, n, NULL, NULL, e));
            assert_memory_equal(before, session_logits(s), sizeof(float) * (size_t)m->vocab_size);
        }
        free(before);
        session_free(s);
    }
    model_close(m);
}

/* A used state restarted at 0 gives the bits of a fresh one; so does a reset. */
static void test_restart(void **state)
{
    (void)state;
    struct model *m = package_load(&small, 2);
    struct session *s = NULL;
    int32_t a[80], b[80];
    make_ids(a, 80, 6);
    make_ids(b, 80, 7);
    b[0] = (a[0] + 1) % 300;
    ASSERT_OK(session_new(&s, m, e));
    ASSERT_OK(session_sync(s, a, 80, NULL, NULL, e));
    sync_like_fresh(s, m, b, 37, 0);
    session_reset(s);
    assert_int_equal(session_position(s), 0);
    const struct backend_states *states = session_states(s);
    assert_int_equal(states->n, 1);
    sync_like_fresh(s, m, a, 50, 0);
    session_free(s);
    model_close(m);
}

static bool stop_at(void *context, int64_t position, const float *logits, struct err *e)
{
    (void)logits;
    return position < *(int64_t *)context || err_set(e, ERR_CANCELLED, "enough");
}

/* The callback can stop; the session goes on from there. */
static void test_callback_stops(void **state)
{
    (void)state;
    struct model *m = package_load(&small, 1);
    struct session *s = NULL;
    struct err e = {0};
    int32_t ids[40];
    int64_t stop = 7;
    make_ids(ids, 40, 8);
    ASSERT_OK(session_new(&s, m, e));
    assert_false(session_feed(s, ids, 40, SESSION_INFER_ONLY, stop_at, &stop, NULL, &e));
    assert_int_equal(e.code, ERR_CANCELLED);
    assert_int_equal(session_position(s), 8);
    sync_like_fresh(s, m, ids, 40, 8);
    session_free(s);
    model_close(m);
}

/* Two sessions on one model do not see each other. */
static void test_sessions_are_apart(void **state)
{
    (void)state;
    struct model *m = package_load(&small, 2);
    struct session *s = NULL, *t = NULL;
    int32_t a[48], b[48];
    make_ids(a, 48, 9);
    make_ids(b, 48, 10);
    ASSERT_OK(session_new(&s, m, e));
    ASSERT_OK(session_new(&t, m, e));
    for (size_t n = 8; n <= 48; n += 8) {
        ASSERT_OK(session_sync(s, a, n, NULL, NULL, e));
        ASSERT_OK(session_sync(t, b, n, NULL, NULL, e));
    }
    sync_like_fresh(s, m, a, 48, 48);
    sync_like_fresh(t, m, b, 48, 48);
    session_free(s);
    session_free(t);
    model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_logits_by_infer),
        cmocka_unit_test(test_golden_logits_by_contract),
        cmocka_unit_test(test_greedy_continuations),
        cmocka_unit_test(test_sync_reuses),
        cmocka_unit_test(test_sync_after_a_refusal),
        cmocka_unit_test(test_context_overflow),
        cmocka_unit_test(test_ids_outside_of_the_vocabulary),
        cmocka_unit_test(test_last_token_again),
        cmocka_unit_test(test_restart),
        cmocka_unit_test(test_callback_stops),
        cmocka_unit_test(test_sessions_are_apart),
    };
    return cmocka_run_group_tests(tests, packages_setup, packages_teardown);
}
