// links: convert arch
/* Copies of what a session holds: any session of the model goes on from one with the bits of a session that was never
 * elsewhere, and what it knew before does not mislead it. */
#include "runtime/session_int.h"
#include "sequential.h"
#include "peer_package.h"

enum { CONTEXT = 64, BATCH = 8, AT = 21, N = 40 };

static void assert_like(struct session *s, const struct model *m, const int32_t *ids, size_t n,
                        const char *what)
{
    struct session *fresh = NULL;
    ASSERT_OK(session_new(&fresh, (struct model *)(uintptr_t)m, e));
    ASSERT_OK(session_sync(fresh, ids, n, NULL, NULL, e));
    struct moment want = moment_take(fresh, m), now = moment_take(s, m);
    assert_int_equal(now.position, n);
    if (memcmp(now.logits, want.logits, want.logits_bytes) != 0)
        fail_msg("%s: the logits differ", what);
    /* What lies in masked rows of a rotating cache depends on where calls were cut. */
    for (int i = 0; i < now.n_states && m->rotate_from == INT64_MAX; i++) {
        const struct backend_state *state = &s->states->list[i];
        size_t n_planes = state_planes(s, state), kept = state_kept_bytes(s, state, n) / n_planes,
               plane = now.bytes[i] / n_planes;
        for (size_t k = 0; k < n_planes; k++)
            if (memcmp((char *)now.states[i] + k * plane, (char *)want.states[i] + k * plane, kept) != 0)
                fail_msg("%s: state %s differs", what, now.names[i]);
    }
    moment_free(&now);
    moment_free(&want);
    session_free(fresh);
}

static void try_model(struct model *m)
{
    struct session *s = NULL, *t = NULL;
    struct session_copy *empty = NULL, *copy = NULL;
    int32_t ids[N], other[N];
    int64_t n;
    make_ids(ids, N, m->vocab_size, 5);
    make_ids(other, N, m->vocab_size, 6);
    memcpy(other, ids, 10 * sizeof *ids);
    other[10] = (ids[10] + 1) % (int32_t)m->vocab_size;
    ASSERT_OK(session_new(&s, m, e));
    ASSERT_OK(session_new(&t, m, e));
    ASSERT_OK(session_copy_new(&empty, s, e));
    ASSERT_OK(session_sync(s, ids, AT, NULL, NULL, e));
    ASSERT_OK(session_copy_new(&copy, s, e));
    assert_memory_equal(session_copy_tokens(copy, &n), ids, AT * sizeof *ids);
    assert_int_equal(n, AT);
    assert_true(session_copy_bytes(copy) > session_copy_bytes(empty));
    /* Another session, which has been elsewhere; and the session itself, which has gone on. */
    ASSERT_OK(session_sync(t, other, N, NULL, NULL, e));
    session_copy_restore(copy, t);
    assert_like(t, m, ids, AT, "another session");
    ASSERT_OK(session_sync(s, ids, N, NULL, NULL, e));
    session_copy_restore(copy, s);
    assert_like(s, m, ids, AT, "the session itself");
    session_free(s);
    s = NULL;
    ASSERT_OK(session_sync(t, ids, N, NULL, NULL, e));
    assert_like(t, m, ids, N, "going on");
    session_copy_restore(copy, t);
    ASSERT_OK(session_sync(t, other, N, NULL, NULL, e));
    assert_like(t, m, other, N, "parting before the copy");
    session_copy_restore(copy, t);
    ASSERT_OK(session_sync(t, ids, 7, NULL, NULL, e));
    assert_like(t, m, ids, 7, "going back before the copy");
    session_copy_restore(empty, t);
    assert_int_equal(session_position(t), 0);
    assert_false(session_has_logits(t));
    ASSERT_OK(session_sync(t, other, AT, NULL, NULL, e));
    assert_like(t, m, other, AT, "from an empty copy");
    session_copy_free(copy);
    session_copy_free(empty);
    session_free(t);
}

static void test_families(void **state)
{
    (void)state;
    static const struct package_shape shapes[] = {{"qwen3-gqa8", CONTEXT, BATCH, 2, CONVERT_MLMODELC},
                                                  {"qwen3_5-equal", CONTEXT, BATCH, 2, CONVERT_MLMODELC},
                                                  {"gemma4-window", CONTEXT, BATCH, 1, CONVERT_MLMODELC}};
    for (int i = 0; i < 3; i++) {
        struct model *m = package_load(&shapes[i], 2);
        try_model(m);
        model_close(m);
    }
}

static void test_rotating_functions(void **state)
{
    (void)state;
    static const struct peer peers[] = {{.context = CONTEXT, .window = 16, .batch = 4, .n_chunks = 2},
                                        {.context = CONTEXT, .window = 30, .batch = 4, .n_chunks = 1}};
    for (int i = 0; i < 2; i++) {
        struct model *m = NULL;
        char *folder = xasprintf("%s/peer%d", packages_scratch, i);
        peer_make(&peers[i], folder);
        ASSERT_OK(model_open(&m, folder, &(struct model_options){.n_threads = 1}, e));
        try_model(m);
        model_close(m);
        free(folder);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_families),
                                       cmocka_unit_test(test_rotating_functions)};
    return cmocka_run_group_tests(tests, packages_setup, packages_teardown);
}
