// links: convert runtime
// labels: threads
/* Steps of several sessions and snapshots through the library's door: the same bits as alone, each member's own outcome, calls that are
 * wrong, and several threads with batches of their own. */
#include <pthread.h>
#include "api.h"
#include "packages.h"

enum { MOST = 8, N_PROMPT = 9, STEPS = 5, CONTEXT = 32 };

static const struct package_shape shapes[] = {{"qwen3-tiny", CONTEXT, 8, 1, CONVERT_MLMODELC},
                                              {"qwen3_5-equal", CONTEXT, 8, 2, CONVERT_MLMODELC}};

static mk_library *library;

static mk_package *open_package(int i)
{
    char *path = package_make(&shapes[i]);
    mk_package *p;
    OK(mk_package_open(&p, library, path, NULL, e));
    free(path);
    return p;
}

static int32_t id_of(int session, size_t position)
{
    return (int32_t)(((size_t)session * 31 + position * 17 + 5) % 250);
}

static size_t prompt_of(int session)
{
    return 1 + (size_t)session % N_PROMPT;
}

static mk_session *begin(mk_package *p, int i)
{
    int32_t ids[CONTEXT];
    mk_session *s;
    for (size_t k = 0; k < CONTEXT; k++)
        ids[k] = id_of(i, k);
    OK(mk_session_new(&s, p, e));
    OK(mk_session_sync(s, ids, prompt_of(i), NULL, NULL, e));
    return s;
}

static size_t length(const mk_session *s)
{
    size_t n;
    (void)mk_session_tokens(s, &n);
    return n;
}

/* The logits of session i after its steps, alone. Heap. */
static float *alone(mk_package *p, int i, int n_steps)
{
    size_t bytes = sizeof(float) * (size_t)mk_package_vocab_size(p);
    mk_session *s = begin(p, i);
    for (int k = 0; k < n_steps; k++)
        OK(mk_session_step(s, id_of(i, length(s)), e));
    float *logits = xmalloc(bytes);
    memcpy(logits, mk_session_logits(s), bytes);
    mk_session_free(s);
    return logits;
}

static void assert_alone(mk_package *p, const mk_session *s, int i, int n_steps)
{
    float *want = alone(p, i, n_steps);
    assert_int_equal(length(s), prompt_of(i) + (size_t)n_steps);
    assert_memory_equal(mk_session_logits(s), want, sizeof *want * (size_t)mk_package_vocab_size(p));
    free(want);
}

static void test_bits(void **state)
{
    (void)state;
    static const int counts[] = {1, 2, MOST};
    for (int i = 0; i < 2; i++) {
        mk_package *p = open_package(i);
        for (int c = 0; c < 3; c++) {
            int n = counts[c];
            mk_session *s[MOST];
            int32_t ids[MOST];
            mk_status statuses[MOST];
            for (int k = 0; k < n; k++)
                s[k] = begin(p, k);
            for (int step = 0; step < STEPS; step++) {
                for (int k = 0; k < n; k++)
                    ids[k] = id_of(k, length(s[k]));
                OK(mk_session_batch(s, ids, (size_t)n, NULL, step % 2 ? statuses : NULL, e));
                for (int k = 0; k < n && step % 2; k++)
                    assert_int_equal(statuses[k], MK_OK);
            }
            for (int k = 0; k < n; k++) {
                assert_alone(p, s[k], k, STEPS);
                mk_session_free(s[k]);
            }
        }
        mk_package_close(p);
    }
}

static void test_members_that_fail(void **state)
{
    (void)state;
    mk_package *p = open_package(0);
    mk_session *s[3];
    for (int k = 0; k < 3; k++)
        s[k] = begin(p, k);
    int32_t ids[CONTEXT];
    mk_status statuses[3];
    for (size_t k = 0; k < CONTEXT; k++)
        ids[k] = id_of(1, k);
    OK(mk_session_sync(s[1], ids, CONTEXT, NULL, NULL, e));
    for (int step = 0; step < 2; step++) {
        for (int k = 0; k < 3; k++)
            ids[k] = id_of(k, length(s[k]));
        FAILS(mk_session_batch(s, ids, 3, NULL, statuses, e), MK_LIMIT,
              "session 1: 1 tokens do not fit: the context holds 32");
        assert_int_equal(statuses[0], MK_OK);
        assert_int_equal(statuses[1], MK_LIMIT);
        assert_int_equal(statuses[2], MK_OK);
    }
    assert_alone(p, s[0], 0, 2);
    assert_alone(p, s[2], 2, 2);
    /* Stopped as a whole: nothing has moved, and all goes on. */
    mk_cancel *cancel = mk_cancel_new();
    mk_call call = {.size = sizeof call, .cancel = cancel};
    mk_session *two[2] = {s[0], s[2]};
    ids[0] = id_of(0, length(s[0]));
    ids[1] = id_of(2, length(s[2]));
    mk_cancel_set(cancel);
    FAILS(mk_session_batch(two, ids, 2, &call, statuses, e), MK_CANCELLED, "session 0");
    assert_int_equal(statuses[1], MK_CANCELLED);
    mk_cancel_clear(cancel);
    OK(mk_session_batch(two, ids, 2, &call, statuses, e));
    mk_cancel_free(cancel);
    assert_alone(p, s[0], 0, 3);
    assert_alone(p, s[2], 2, 3);
    for (int k = 0; k < 3; k++)
        mk_session_free(s[k]);
    mk_package_close(p);
}

static void test_wrong_calls(void **state)
{
    (void)state;
    mk_package *p = open_package(0), *other = open_package(1);
    mk_session *s[2];
    for (int k = 0; k < 2; k++)
        s[k] = begin(p, k);
    mk_session *mixed[2] = {s[0], begin(other, 0)}, *twice[2] = {s[0], s[0]};
    mk_status statuses[2] = {77, 77};
    int32_t ids[2] = {1, 2}, wrong[2] = {1, -1};
    mk_call call = {.size = 3};
    OK(mk_session_batch(s, ids, 0, NULL, statuses, e));
    FAILS(mk_session_batch(mixed, ids, 2, NULL, statuses, e), MK_USAGE,
          "session 1 belongs to another package");
    FAILS(mk_session_batch(twice, ids, 2, NULL, statuses, e), MK_USAGE, "sessions 0 and 1 are the same");
    FAILS(mk_session_batch(s, wrong, 2, NULL, statuses, e), MK_USAGE, "token of session 1");
    FAILS(mk_session_batch(s, ids, 2, &call, statuses, e), MK_USAGE, "size");
    FAILS(mk_session_batch(s, ids, 1025, NULL, statuses, e), MK_LIMIT, "at most 1024 sessions");
    assert_int_equal(statuses[0], 77);
    assert_alone(p, s[0], 0, 0);
    mk_session_free(s[0]);
    mk_session_free(s[1]);
    mk_session_free(mixed[1]);
    mk_package_close(p);
    mk_package_close(other);
}

static void test_snapshots(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        mk_package *p = open_package(i), *other = open_package(1 - i);
        mk_session *s = begin(p, 4), *t = begin(p, 7), *foreign = begin(other, 0);
        mk_snapshot *snapshot = NULL;
        size_t n;
        OK(mk_session_snapshot(s, &snapshot, e));
        assert_true(mk_snapshot_bytes(snapshot) > sizeof(float) * (size_t)mk_package_vocab_size(p));
        assert_int_equal(mk_snapshot_tokens(snapshot, &n)[2], id_of(4, 2));
        assert_int_equal(n, prompt_of(4));
        FAILS(mk_session_restore(foreign, snapshot, e), MK_USAGE, "another package");
        assert_int_equal(length(foreign), prompt_of(0));
        mk_session_free(foreign);
        mk_package_close(other);
        /* The snapshot outlives its session and the caller's package. */
        mk_session_free(s);
        mk_package_close(p);
        OK(mk_session_restore(t, snapshot, e));
        p = open_package(i);
        assert_alone(p, t, 4, 0);
        for (int k = 0; k < 3; k++)
            OK(mk_session_step(t, id_of(4, length(t)), e));
        assert_alone(p, t, 4, 3);
        OK(mk_session_restore(t, snapshot, e));
        assert_alone(p, t, 4, 0);
        mk_snapshot_free(snapshot);
        mk_snapshot_free(NULL);
        mk_session_free(t);
        mk_package_close(p);
    }
}

struct job {
    mk_package *package;
    const mk_snapshot *snapshot;
    mk_session *s[2];
    int first;
    mk_status status;
};

static void *run_job(void *arg)
{
    struct job *j = arg;
    j->status = mk_session_restore(j->s[0], j->snapshot, NULL);
    for (int step = 0; step < STEPS && !j->status; step++) {
        int32_t ids[2] = {id_of(3, length(j->s[0])), id_of(j->first, length(j->s[1]))};
        j->status = mk_session_batch(j->s, ids, 2, NULL, NULL, NULL);
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        mk_package *p = open_package(i);
        mk_session *s = begin(p, 3);
        mk_snapshot *snapshot;
        struct job jobs[3];
        pthread_t threads[3];
        OK(mk_session_snapshot(s, &snapshot, e));
        for (int k = 0; k < 3; k++) {
            jobs[k] = (struct job){.package = p, .snapshot = snapshot, .first = 4 + k};
            OK(mk_session_new(&jobs[k].s[0], p, e));
            jobs[k].s[1] = begin(p, jobs[k].first);
            assert_int_equal(pthread_create(&threads[k], NULL, run_job, &jobs[k]), 0);
        }
        for (int k = 0; k < 3; k++) {
            assert_int_equal(pthread_join(threads[k], NULL), 0);
            assert_int_equal(jobs[k].status, MK_OK);
            assert_alone(p, jobs[k].s[0], 3, STEPS);
            assert_alone(p, jobs[k].s[1], jobs[k].first, STEPS);
            mk_session_free(jobs[k].s[0]);
            mk_session_free(jobs[k].s[1]);
        }
        mk_snapshot_free(snapshot);
        mk_session_free(s);
        mk_package_close(p);
    }
}

/* A prefix kept by mk_session_rewind and the rest fed in pieces: the bits of one call. */
static void test_rewind(void **state)
{
    (void)state;
    for (int i = 0; i < (int)(sizeof shapes / sizeof *shapes); i++) {
        mk_package *p = open_package(i);
        size_t vocab_bytes = sizeof(float) * (size_t)mk_package_vocab_size(p), kept;
        int32_t ids[CONTEXT + 1];
        mk_session *s, *whole;
        for (int k = 0; k <= CONTEXT; k++)
            ids[k] = id_of(2, (size_t)k);
        OK(mk_session_new(&s, p, e));
        OK(mk_session_new(&whole, p, e));
        OK(mk_session_rewind(s, ids, 20, &kept, e));
        assert_int_equal(kept, 0);
        OK(mk_session_sync(s, ids, 12, NULL, NULL, e));
        OK(mk_session_rewind(s, ids, 12, &kept, e)); /* it has these logits */
        assert_int_equal(kept, 12);
        OK(mk_session_feed(s, ids + 12, 6, 0, NULL, NULL, NULL, e));
        ids[14]++;
        OK(mk_session_rewind(s, ids, 20, &kept, e));
        assert_int_equal(kept, i == 0 ? 14 : 12); /* a recurrent package goes back to a snapshot */
        assert_int_equal(length(s), kept);
        while (kept < 20) {
            OK(mk_session_feed(s, ids + kept, kept + 3 > 20 ? 20 - kept : 3, 0, NULL, NULL, NULL, e));
            kept = length(s);
        }
        OK(mk_session_sync(whole, ids, 20, NULL, NULL, e));
        assert_memory_equal(mk_session_logits(s), mk_session_logits(whole), vocab_bytes);
        FAILS(mk_session_rewind(s, ids, 0, &kept, e), MK_USAGE, NULL);
        FAILS(mk_session_rewind(s, ids, CONTEXT + 1, &kept, e), MK_LIMIT, "32");
        ids[3] = -1;
        FAILS(mk_session_rewind(s, ids, 5, &kept, e), MK_USAGE, "vocabulary");
        assert_int_equal(length(s), 20);
        mk_session_free(s);
        mk_session_free(whole);
        mk_package_close(p);
    }
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),        cmocka_unit_test(test_members_that_fail),
        cmocka_unit_test(test_wrong_calls), cmocka_unit_test(test_snapshots),
        cmocka_unit_test(test_threads),     cmocka_unit_test(test_rewind),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
