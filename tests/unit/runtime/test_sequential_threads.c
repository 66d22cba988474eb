// links: convert
// labels: threads
/* Packages that can't be rewound on one, two and three threads: the same logits and states, small enough for
 * ThreadSanitizer. */
#include "sequential.h"

enum { BATCH = 8, N = 2 * BATCH + 3 };

static void run(const char *name)
{
    static const int threads[] = {1, 2, 3};
    const struct package_shape shape = {name, 48, BATCH, 1, CONVERT_MLMODELC};
    struct moment truth = {0};
    int32_t ids[N];
    for (int i = 0; i < 3; i++) {
        struct model *m = package_load(&shape, threads[i]);
        struct session *s = NULL;
        assert_true(m->is_sequential);
        make_ids(ids, N, m->vocab_size, 3);
        ASSERT_OK(session_new(&s, m, e));
        if (i == 0) {
            feed(s, ids, N, SESSION_INFER_ONLY);
            truth = moment_take(s, m);
        }
        session_reset(s);
        feed(s, ids, N, SESSION_CONTRACT);
        assert_same_moment(s, m, &truth, name);
        session_free(s);
        model_close(m);
    }
    moment_free(&truth);
}

static void test_recurrent(void **state)
{
    (void)state;
    run("qwen3_5-equal");
    run("qwen3_5_moe-random");
}

static void test_windowed(void **state)
{
    (void)state;
    run("gemma4-window");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_recurrent), cmocka_unit_test(test_windowed)};
    return cmocka_run_group_tests(tests, packages_setup, packages_teardown);
}
