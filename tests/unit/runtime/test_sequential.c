// links: convert
/* The promise about bits on packages with recurrent states and windowed caches: prefill and infer, threads, chunks, package
 * forms, instruction sets and chunk sizes of the delta rule give the same logits and the same states, bit for bit. */
#include "kernel/kernel.h"
#include "sequential.h"

enum { CONTEXT = 320, LONGEST = 300 };

struct setting {
    const char *level; /* of MILKIT_CPU; NULL: the best */
    int n_threads, n_chunks, gdn_chunk;
    enum convert_format format;
    enum session_mode mode;
};

struct subject {
    struct package_shape shape;
    struct package_extra extra;
    size_t n; /* tokens */
    struct rows rows;
    struct moment end;
};

static struct model *load(const struct subject *x, const struct setting *v)
{
    struct package_shape shape = x->shape;
    shape.n_chunks = v->n_chunks;
    shape.format = v->format;
    struct package_extra extra = x->extra;
    extra.gdn_chunk = v->gdn_chunk;
    if (v->level)
        assert_int_equal(setenv("MILKIT_CPU", v->level, 1), 0);
    struct model *m = package_load_with(&shape, &extra, &(struct model_options){.n_threads = v->n_threads});
    unsetenv("MILKIT_CPU");
    assert_true(!v->level || strcmp(m->device, v->level) == 0);
    assert_int_equal(pool_threads(m->pool), v->n_threads);
    assert_int_equal(m->n_chunks, v->n_chunks);
    assert_true(m->is_sequential || x->shape.context <= m->batch_size * 3);
    return m;
}

static void run_truth(struct subject *x)
{
    const struct setting first = {"scalar", 1, 1, 0, CONVERT_MLMODELC, SESSION_INFER_ONLY};
    struct model *m = load(x, &first);
    struct session *s = NULL;
    int32_t ids[LONGEST];
    make_ids(ids, x->n, m->vocab_size, 1);
    ASSERT_OK(session_new(&s, m, e));
    x->rows = rows_feed(s, m, ids, x->n, SESSION_INFER_ONLY);
    x->end = moment_take(s, m);
    assert_int_equal(x->rows.n, x->n);
    for (size_t i = 0; i < x->n * (size_t)m->vocab_size; i++)
        assert_true(isfinite(x->rows.logits[i]));
    session_free(s);
    model_close(m);
}

static void compare(const struct subject *x, const struct setting *v)
{
    struct model *m = load(x, v);
    struct session *s = NULL;
    char what[160];
    int32_t ids[LONGEST];
    size_t batch = (size_t)m->batch_size, bytes = sizeof(float) * (size_t)m->vocab_size;
    snprintf(what, sizeof what, "%s, batch %zu, %s, %d threads, %d chunks, gdn chunk %d, %s, %s",
             x->shape.model, batch, m->device, v->n_threads, v->n_chunks, v->gdn_chunk,
             v->format == CONVERT_MLMODELC ? "mlmodelc" : "mlpackage",
             v->mode == SESSION_CONTRACT ? "prefill" : "infer");
    make_ids(ids, x->n, m->vocab_size, 1);
    ASSERT_OK(session_new(&s, m, e));
    struct rows rows = rows_feed(s, m, ids, x->n, v->mode);
    assert_int_equal(rows.n, v->mode == SESSION_CONTRACT ? x->n / batch + x->n % batch : x->n);
    for (size_t i = 0; i < rows.n; i++)
        if (memcmp(rows_at(&x->rows, rows.positions[i]), rows.logits + i * (size_t)rows.vocab_size, bytes) !=
            0)
            fail_msg("%s: logits after position %lld differ", what, (long long)rows.positions[i]);
    assert_same_moment(s, m, &x->end, what);
    rows_free(&rows);
    session_free(s);
    model_close(m);
}

static void subject_free(struct subject *x)
{
    rows_free(&x->rows);
    moment_free(&x->end);
}

static void compare_all(const char *name, int64_t batch, int64_t context, size_t n, bool has_gdn)
{
    static const char *const levels[CPU_LEVELS] = {"scalar", "avx2", "avx512"};
    struct subject x = {.shape = {name, context, batch, 1, CONVERT_MLMODELC}, .n = n};
    run_truth(&x);
    for (int i = 0; i < CPU_LEVELS; i++) {
        const struct setting level = {levels[i], 1, 1, 0, CONVERT_MLMODELC, SESSION_CONTRACT};
        if (kernel_table((enum cpu_level)i))
            compare(&x, &level);
    }
    const struct setting settings[] = {{NULL, 1, 1, 0, CONVERT_MLMODELC, SESSION_INFER_ONLY},
                                       {NULL, 1, 2, 0, CONVERT_MLMODELC, SESSION_INFER_ONLY},
                                       {NULL, 2, 1, 0, CONVERT_MLMODELC, SESSION_CONTRACT},
                                       {NULL, 3, 2, 0, CONVERT_MLMODELC, SESSION_CONTRACT},
                                       {NULL, 1, 3, 0, CONVERT_MLPACKAGE, SESSION_CONTRACT}};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        compare(&x, &settings[i]);
    for (int size = 16; has_gdn && size <= batch; size *= 2) {
        const struct setting chunked = {NULL, 1, 1, size, CONVERT_MLMODELC, SESSION_CONTRACT};
        compare(&x, &chunked);
    }
    subject_free(&x);
}

static void test_equal(void **state)
{
    (void)state;
    compare_all("qwen3_5-equal", 64, CONTEXT, LONGEST, true);
    compare_all("qwen3_5-equal", 8, CONTEXT, 60, false);
}

static void test_experts(void **state)
{
    (void)state;
    compare_all("qwen3_5_moe-random", 64, CONTEXT, LONGEST, true);
    compare_all("qwen3_5_moe-random", 8, CONTEXT, 60, false);
}

static void test_window(void **state)
{
    (void)state;
    compare_all("gemma4-window", 8, CONTEXT, LONGEST, false);
    compare_all("gemma4-window", 64, CONTEXT, 150, false);
    compare_all("gemma4-resaved", 64, CONTEXT, 200, false);
    compare_all("gemma4-resaved", 64, 176, 140, false); /* full length */
}

static void compare_some(const char *name, int64_t batch, struct package_extra extra)
{
    struct subject x = {.shape = {name, CONTEXT, batch, 1, CONVERT_MLMODELC}, .extra = extra, .n = 140};
    const struct setting settings[] = {{NULL, 1, 1, 0, CONVERT_MLMODELC, SESSION_CONTRACT},
                                       {NULL, 3, 2, 0, CONVERT_MLPACKAGE, SESSION_CONTRACT},
                                       {NULL, 1, 1, 0, CONVERT_MLMODELC, SESSION_INFER_ONLY}};
    run_truth(&x);
    for (size_t k = 0; k < sizeof settings / sizeof *settings; k++)
        compare(&x, &settings[k]);
    subject_free(&x);
}

/* Norms of two constants, and exactly k experts. */
static void test_exact(void **state)
{
    (void)state;
    compare_some("qwen3_5-equal", 64, (struct package_extra){.exact_norms = true});
    compare_some("qwen3_5_moe-random", 64, (struct package_extra){.exact_topk = true});
}

/* Palettes in the decoder: products by fixed point. */
static void test_palettes(void **state)
{
    (void)state;
    compare_some("qwen3_5-equal", 64, (struct package_extra){.lut = 4});
    compare_some("qwen3_5_moe-random", 64, (struct package_extra){.lut = 6});
    compare_some("gemma4-window", 8, (struct package_extra){.lut = 3});
}

/* The checkpoints that are too large to lie here. */
static void test_more_checkpoints(void **state)
{
    (void)state;
    SKIP_WITHOUT_SHARED();
    static const char *const names[] = {"qwen3_5-repeat", "qwen3_5-tiny", "qwen3_5_moe-tiny",
                                        "gemma4-noshare", "gemma4-tiny",  "gemma4-kv2"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *checkpoint = xasprintf("%s/models/%s", MILKIT_SHARED, names[i]);
        struct subject x = {.shape = {names[i], CONTEXT, 32, 1, CONVERT_MLMODELC},
                            .extra = {.checkpoint = checkpoint},
                            .n = 75};
        const struct setting v = {NULL, 1, 2, 0, CONVERT_MLMODELC, SESSION_CONTRACT};
        run_truth(&x);
        compare(&x, &v);
        subject_free(&x);
        free(checkpoint);
    }
}

/* ---- prompts of every length ---- */

/* The prompt's end by one-token calls and by the contract's, begun `first` tokens before the first batch. */
static void compare_lengths(const struct package_shape *shape, const size_t *lengths, size_t n_lengths,
                            const size_t *firsts, size_t n_firsts)
{
    struct model *m = package_load(shape, 1);
    struct session *s = NULL;
    struct moment *truth = xcalloc(n_lengths, sizeof *truth);
    int32_t ids[LONGEST];
    char what[128];
    size_t at = 0;
    make_ids(ids, LONGEST, m->vocab_size, 2);
    ASSERT_OK(session_new(&s, m, e));
    for (size_t i = 0; i < n_lengths; i++) {
        feed(s, ids + at, lengths[i] - at, SESSION_INFER_ONLY);
        at = lengths[i];
        truth[i] = moment_take(s, m);
    }
    for (size_t k = 0; k < n_firsts; k++) {
        for (size_t i = 0; i < n_lengths; i++) {
            size_t first = firsts[k] < lengths[i] ? firsts[k] : 0;
            session_reset(s);
            feed(s, ids, first, SESSION_INFER_ONLY);
            feed(s, ids + first, lengths[i] - first, SESSION_CONTRACT);
            snprintf(what, sizeof what, "%s, batch %d, begun at %zu", shape->model, (int)shape->batch, first);
            assert_same_moment(s, m, &truth[i], what);
        }
    }
    for (size_t i = 0; i < n_lengths; i++)
        moment_free(&truth[i]);
    free(truth);
    session_free(s);
    model_close(m);
}

static void test_lengths(void **state)
{
    (void)state;
    static const char *const names[] = {"qwen3_5-equal", "qwen3_5_moe-random", "gemma4-window",
                                        "gemma4-resaved"};
    static const size_t firsts[] = {0, 5};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        for (size_t b = 8; b <= 64; b *= 8) {
            const struct package_shape shape = {names[i], CONTEXT, (int64_t)b, 1, CONVERT_MLMODELC};
            const size_t lengths[] = {1, b - 1, b, b + 1, 3 * b, 3 * b + 5};
            compare_lengths(&shape, lengths, 6, firsts, 2);
        }
    }
}

/* Window 16, batch 8: prompts that start, end and cross blocks and windows in all ways; and the same without a window,
 * in a context that is short enough. */
static void test_blocks(void **state)
{
    (void)state;
    enum { BATCH = 8 };
    static const struct package_shape windowed = {"gemma4-window", 64, BATCH, 1, CONVERT_MLMODELC},
                                      full = {"gemma4-window", 48, 16, 1, CONVERT_MLMODELC};
    static const size_t firsts[] = {0, 1, 2, 4, 7, 9, 15, 16};
    size_t lengths[5 * BATCH];
    for (size_t i = 0; i < 5 * BATCH; i++)
        lengths[i] = i + 1;
    compare_lengths(&windowed, lengths, 5 * BATCH, firsts, sizeof firsts / sizeof *firsts);
    compare_lengths(&full, lengths, 5 * BATCH, firsts, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal),    cmocka_unit_test(test_experts),
        cmocka_unit_test(test_window),   cmocka_unit_test(test_exact),
        cmocka_unit_test(test_palettes), cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_blocks),   cmocka_unit_test(test_more_checkpoints),
    };
    return cmocka_run_group_tests(tests, packages_setup, packages_teardown);
}
