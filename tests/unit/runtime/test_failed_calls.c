// links: convert
// wraps: engine_execute
/* Sessions after a call that failed half way: whichever program of a package fails, before or after it has moved its
 * states, the session's position says what it holds, and what comes next has the bits of a run without the failure. */
#include "engine/engine.h"
#include "runtime/session_int.h"
#include "sequential.h"

enum { BATCH = 8, CONTEXT = 64, N = 3 * BATCH + 3 };

static struct {
    int n;       /* calls so far */
    int fail_at; /* from 1; 0: never */
    bool after;  /* fails when its work is done */
} calls;

bool __real_engine_execute(struct engine_run *r, struct engine_state *s, struct pool *p, struct err *e);
bool __wrap_engine_execute(struct engine_run *r, struct engine_state *s, struct pool *p, struct err *e);

bool __wrap_engine_execute(struct engine_run *r, struct engine_state *s, struct pool *p, struct err *e)
{
    bool fails = ++calls.n == calls.fail_at;
    if (fails && !calls.after)
        return err_set(e, ERR_FAILED, "made to fail");
    return __real_engine_execute(r, s, p, e) && (!fails || err_set(e, ERR_FAILED, "made to fail"));
}

static void arm(int fail_at, bool after)
{
    calls.n = 0;
    calls.fail_at = fail_at;
    calls.after = after;
}

/* Full-length caches may hold anything in rows that are still to be written. */
static void assert_like(struct session *s, const struct model *m, const struct moment *want, const char *what,
                        int fail_at)
{
    struct moment now = moment_take(s, m);
    assert_int_equal(now.position, want->position);
    if (memcmp(now.logits, want->logits, want->logits_bytes) != 0)
        fail_msg("%s, call %d failed: the logits differ", what, fail_at);
    for (int i = 0; i < now.n_states; i++) {
        const struct backend_state *entry = &session_states(s)->list[i];
        bool full = entry->elem_bytes == 2 && entry->rank == 4 && entry->dims[2] == CONTEXT;
        size_t row = full ? (size_t)entry->dims[3] * sizeof(f16) : now.bytes[i],
               stride = full ? CONTEXT * row : row, size = full ? (size_t)now.position * row : row;
        for (size_t at = 0; at < now.bytes[i]; at += stride)
            if (memcmp((char *)now.states[i] + at, (char *)want->states[i] + at, size) != 0)
                fail_msg("%s, call %d failed: state %s differs", what, fail_at, now.names[i]);
    }
    moment_free(&now);
}

static const struct package_shape shapes[] = {{"qwen3-gqa8", CONTEXT, BATCH, 2, CONVERT_MLMODELC},
                                              {"qwen3_5-equal", CONTEXT, BATCH, 2, CONVERT_MLMODELC},
                                              {"gemma4-window", CONTEXT, BATCH, 2, CONVERT_MLMODELC}};

/* A prompt from the start, each of its calls failing once. */
static void test_prompt(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct model *m = package_load(&shapes[i], 1);
        struct session *s = NULL;
        int32_t ids[N];
        make_ids(ids, N, m->vocab_size, 3);
        struct moment want = moment_fresh(m, ids, N, SESSION_CONTRACT);
        ASSERT_OK(session_new(&s, m, e));
        arm(0, false);
        ASSERT_OK(session_sync(s, ids, N, NULL, NULL, e));
        int n_calls = calls.n;
        assert_true(n_calls >= 3 * 3 + 1); /* three calls of embeddings and two chunks, and the head */
        for (int k = 2; k < 2 * n_calls + 2; k++) {
            struct err e = {0};
            session_reset(s);
            arm(k / 2, k % 2);
            assert_false(session_sync(s, ids, N, NULL, NULL, &e));
            assert_non_null(strstr(e.msg, "made to fail"));
            assert_non_null(strstr(e.msg, k / 2 == n_calls ? "LM head" : "position"));
            arm(0, false);
            int64_t position = session_position(s);
            assert_true(position >= 0 && position <= N);
            /* What it says it holds it holds. */
            if (k % 3 == 0 && position < N)
                feed(s, ids + position, (size_t)(N - position), SESSION_CONTRACT);
            else
                ASSERT_OK(session_sync(s, ids, N, NULL, NULL, e));
            assert_like(s, m, &want, shapes[i].model, k / 2);
        }
        moment_free(&want);
        session_free(s);
        model_close(m);
    }
}

/* Another prompt that parts from the first one fails; then the first one comes back. Its snapshots must not be trusted
 * where the failed call has overwritten rows of full-length caches. */
static void test_there_and_back(void **state)
{
    (void)state;
    enum { COMMON = 2 * BATCH + 1 };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct model *m = package_load(&shapes[i], 1);
        struct session *s = NULL;
        int32_t ids[N], other[N];
        make_ids(ids, N, m->vocab_size, 3);
        make_ids(other, N, m->vocab_size, 4);
        memcpy(other, ids, COMMON * sizeof *ids);
        struct moment want = moment_fresh(m, ids, N, SESSION_CONTRACT);
        ASSERT_OK(session_new(&s, m, e));
        for (int k = 1; k < 17; k++) {
            struct err e = {0};
            session_reset(s);
            ASSERT_OK(session_sync(s, ids, COMMON, NULL, NULL, e));
            ASSERT_OK(session_sync(s, ids, N, NULL, NULL, e));
            arm(k, k % 2);
            bool failed = !session_sync(s, other, N, NULL, NULL, &e);
            assert_int_equal(failed, calls.n >= k);
            arm(0, false);
            ASSERT_OK(session_sync(s, ids, N, NULL, NULL, e));
            assert_like(s, m, &want, shapes[i].model, k);
        }
        moment_free(&want);
        session_free(s);
        model_close(m);
    }
}

/* Without snapshots the way back is the start. */
static void test_without_snapshots(void **state)
{
    (void)state;
    for (size_t i = 1; i < sizeof shapes / sizeof *shapes; i++) {
        struct model *m = package_load(&shapes[i], 1);
        struct session *s = NULL;
        struct err e = {0};
        int32_t ids[N];
        make_ids(ids, N, m->vocab_size, 3);
        struct moment want = moment_fresh(m, ids, N, SESSION_CONTRACT);
        ASSERT_OK(session_new(&s, m, e));
        session_limit_snapshots(s, 0, 0);
        feed(s, ids, BATCH, SESSION_CONTRACT);
        arm(3, true); /* the second chunk */
        assert_false(session_feed(s, ids + BATCH, BATCH, SESSION_CONTRACT, NULL, NULL, NULL, &e));
        assert_non_null(strstr(e.msg, "chunk 2 at position 8"));
        arm(0, false);
        assert_int_equal(session_position(s), 0);
        feed(s, ids, N, SESSION_CONTRACT);
        assert_like(s, m, &want, shapes[i].model, 3);
        moment_free(&want);
        session_free(s);
        model_close(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompt),
        cmocka_unit_test(test_there_and_back),
        cmocka_unit_test(test_without_snapshots),
    };
    return cmocka_run_group_tests(tests, packages_setup, packages_teardown);
}
