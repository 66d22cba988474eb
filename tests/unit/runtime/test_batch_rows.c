// links: convert
/* Logits of each token of a prompt out of full batches have the bits of one-token calls: every family, one chunk and two,
 * palettes, wherever the batches begin; states and what follows are the same, too. */
#include "packages.h"
#include "runtime/batch_rows.h"

enum { BATCH = 16, CONTEXT = 128, N = 3 * BATCH + 5 };

static void compare_rows(const char *name, const struct rows *want, const struct rows *got)
{
    assert_int_equal(got->n, want->n);
    for (size_t k = 0; k < want->n; k++) {
        assert_int_equal(got->positions[k], want->positions[k]);
        size_t at = k * (size_t)want->vocab_size, bytes = sizeof(float) * (size_t)want->vocab_size;
        if (memcmp(want->logits + at, got->logits + at, bytes) != 0)
            fail_msg("%s: logits of position %lld differ", name, (long long)want->positions[k]);
    }
}

static void check(const char *name, int n_chunks, int lut, enum convert_format format, int n_threads)
{
    const struct package_shape shape = {name, CONTEXT, BATCH, n_chunks, format};
    const struct package_extra extra = {.lut = lut};
    const struct model_options options = {.n_threads = n_threads};
    struct model *m = package_load_with(&shape, &extra, &options);
    struct session *each = NULL, *single = NULL;
    struct batch_rows *made = NULL;
    int32_t ids[2 * N];
    for (int i = 0; i < 2 * N; i++)
        ids[i] = (int32_t)((i * 7919 + i * i * 31 + 11) % m->vocab_size);
    /* the way in question is taken, the head included */
    ASSERT_OK(batch_rows_open(&made, m, e));
    assert_non_null(made);
    assert_non_null(made->head);
    batch_rows_close(made, m);
    ASSERT_OK(session_new(&each, m, e));
    ASSERT_OK(session_new(&single, m, e));
    for (int first = 0; first < 20; first += 9) { /* where the batches begin */
        session_reset(each);
        session_reset(single);
        size_t parts[3] = {(size_t)first, N, N - (size_t)first};
        const int32_t *at = ids;
        for (int i = 0; i < 3; at += parts[i], i++) {
            if (parts[i] == 0)
                continue;
            struct rows want = rows_feed(single, m, at, parts[i], SESSION_INFER_ONLY);
            struct rows got = rows_feed(each, m, at, parts[i], SESSION_EACH_TOKEN);
            compare_rows(name, &want, &got);
            assert_true(session_has_logits(each));
            assert_memory_equal(session_logits(each), session_logits(single),
                                sizeof(float) * (size_t)m->vocab_size);
            rows_free(&want);
            rows_free(&got);
        }
        const struct backend_states *states = session_states(each);
        for (int i = 0; i < states->n; i++) {
            size_t bytes = sizeof(f16) * (size_t)states->list[i].n_elems;
            f16 *a = xmalloc(bytes), *b = xmalloc(bytes);
            session_read_state(each, &states->list[i], a);
            session_read_state(single, &session_states(single)->list[i], b);
            assert_memory_equal(a, b, bytes);
            free(a);
            free(b);
        }
        /* the plain way goes on from there */
        struct rows want = rows_feed(single, m, ids, 3, SESSION_INFER_ONLY);
        struct rows got = rows_feed(each, m, ids, 3, SESSION_CONTRACT);
        compare_rows(name, &want, &got);
        rows_free(&want);
        rows_free(&got);
    }
    session_free(each);
    session_free(single);
    model_close(m);
}

static void test_families(void **state)
{
    (void)state;
    check("qwen3-tiny", 1, 0, CONVERT_MLMODELC, 1);
    check("qwen3-gqa8", 2, 0, CONVERT_MLPACKAGE, 2);
    check("qwen3_5-equal", 1, 0, CONVERT_MLMODELC, 2);
    check("qwen3_5_moe-random", 1, 0, CONVERT_MLMODELC, 1);
    check("gemma4-window", 2, 0, CONVERT_MLMODELC, 1);
}

static void test_palettes(void **state)
{
    (void)state;
    check("qwen3-tiny", 2, 4, CONVERT_MLMODELC, 2);
}

/* Other precisions make no promise about bits: there each token goes through infer. */
static void test_precisions(void **state)
{
    (void)state;
    const struct package_shape shape = {"qwen3-tiny", CONTEXT, BATCH, 1, CONVERT_MLMODELC};
    const struct package_extra extra = {0};
    const struct model_options options = {.n_threads = 1, .precision = PRECISION_FP16};
    struct model *m = package_load_with(&shape, &extra, &options);
    struct session *a = NULL, *b = NULL;
    int32_t ids[BATCH + 1] = {1, 2, 3};
    ASSERT_OK(session_new(&a, m, e));
    ASSERT_OK(session_new(&b, m, e));
    struct rows want = rows_feed(a, m, ids, BATCH + 1, SESSION_INFER_ONLY);
    struct rows got = rows_feed(b, m, ids, BATCH + 1, SESSION_EACH_TOKEN);
    compare_rows("fp16", &want, &got);
    rows_free(&want);
    rows_free(&got);
    session_free(a);
    session_free(b);
    model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_families), cmocka_unit_test(test_palettes),
                                       cmocka_unit_test(test_precisions)};
    return cmocka_run_group_tests(tests, packages_setup, packages_teardown);
}
