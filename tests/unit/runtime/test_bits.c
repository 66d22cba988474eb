// links: convert
// labels: threads
/* The promise about bits: prefill and infer, any number of threads, any number of chunks, either form of the package and
 * every instruction set give the same logits and the same cache, bit for bit. */
#include "format/contract.h"
#include "kernel/kernel.h"
#include "packages.h"

enum { BATCH = 16, CONTEXT = 80, LONGEST = 3 * BATCH + 5 };

static const size_t lengths[] = {1, BATCH - 1, BATCH, BATCH + 1, LONGEST};

struct setting {
    const char *level; /* of MILKIT_CPU */
    int n_threads, n_chunks;
    enum convert_format format;
    enum session_mode mode;
};

/* Logits of all positions by one-token calls, and the cache after each length. */
struct truth {
    struct rows rows;
    f16 *cache[sizeof lengths / sizeof *lengths];
    int64_t n_cache;
};

static void make_ids(int32_t *ids, int64_t vocab_size)
{
    for (int i = 0; i < LONGEST; i++)
        ids[i] = (int32_t)((i * 7919 + i * i * 31 + 11) % vocab_size);
}

static struct model *load(const char *name, const struct setting *x)
{
    const struct package_shape shape = {name, CONTEXT, BATCH, x->n_chunks, x->format};
    assert_int_equal(setenv("MILKIT_CPU", x->level, 1), 0);
    struct model *m = package_load(&shape, x->n_threads);
    unsetenv("MILKIT_CPU");
    assert_string_equal(m->device, x->level);
    assert_int_equal(pool_threads(m->pool), x->n_threads);
    assert_int_equal(m->n_chunks, x->n_chunks);
    return m;
}

/* All states behind each other, in an order of ours: the two forms of a package list them in their own. */
static f16 *copy_cache(struct session *s, int64_t *n)
{
    static const char *const names[] = {STATE_KV_CACHE, STATE_KV_CACHE_LOCAL, STATE_KV_CACHE_GLOBAL};
    f16 *copy = NULL;
    int n_found = 0;
    *n = 0;
    for (int i = 0; i < 3; i++) {
        const struct backend_state *entry = session_find_state(s, names[i]);
        if (!entry)
            continue;
        copy = xrealloc(copy, sizeof *copy * (size_t)(*n + entry->n_elems));
        session_read_state(s, entry, copy + *n);
        *n += entry->n_elems;
        n_found++;
    }
    assert_true(n_found >= 1 && n_found == session_states(s)->n);
    return copy;
}

static struct truth make_truth(const char *name)
{
    const struct setting first = {"scalar", 1, 1, CONVERT_MLMODELC, SESSION_INFER_ONLY};
    struct model *m = load(name, &first);
    struct session *s = NULL;
    struct truth t = {0};
    int32_t ids[LONGEST];
    make_ids(ids, m->vocab_size);
    ASSERT_OK(session_new(&s, m, e));
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        session_reset(s);
        rows_free(&t.rows);
        t.rows = rows_feed(s, m, ids, lengths[i], SESSION_INFER_ONLY);
        assert_int_equal(t.rows.n, lengths[i]);
        t.cache[i] = copy_cache(s, &t.n_cache);
    }
    session_free(s);
    model_close(m);
    return t;
}

static void free_truth(struct truth *t)
{
    rows_free(&t->rows);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        free(t->cache[i]);
}

static void compare(const char *name, const struct truth *t, const struct setting *x)
{
    struct model *m = load(name, x);
    struct session *s = NULL;
    int32_t ids[LONGEST];
    make_ids(ids, m->vocab_size);
    ASSERT_OK(session_new(&s, m, e));
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        size_t n = lengths[i], n_expected = x->mode == SESSION_INFER_ONLY ? n : n / BATCH + n % BATCH;
        int64_t n_cache;
        session_reset(s);
        struct rows rows = rows_feed(s, m, ids, n, x->mode);
        assert_int_equal(rows.n, n_expected);
        for (size_t k = 0; k < rows.n; k++) {
            const float *want = rows_at(&t->rows, rows.positions[k]),
                        *got = rows.logits + k * (size_t)rows.vocab_size;
            for (int64_t j = 0; j < rows.vocab_size; j++)
                if (memcmp(&want[j], &got[j], sizeof *got) != 0)
                    fail_msg("%s, %s, %d threads, %d chunks, %s: %zu tokens, position %lld, logit %lld: "
                             "expected %a, "
                             "found %a",
                             name, x->level, x->n_threads, x->n_chunks,
                             x->mode == SESSION_CONTRACT ? "prefill" : "infer", n,
                             (long long)rows.positions[k], (long long)j, (double)want[j], (double)got[j]);
        }
        f16 *cache = copy_cache(s, &n_cache);
        assert_int_equal(n_cache, t->n_cache);
        if (memcmp(cache, t->cache[i], sizeof *cache * (size_t)n_cache) != 0)
            fail_msg("%s, %s, %d threads, %d chunks: %zu tokens: the caches differ", name, x->level,
                     x->n_threads, x->n_chunks, n);
        free(cache);
        rows_free(&rows);
    }
    session_free(s);
    model_close(m);
}

static void compare_all(const char *name, int n_chunks_max)
{
    static const char *const levels[CPU_LEVELS] = {"scalar", "avx2", "avx512"};
    struct truth t = make_truth(name);
    int n_levels = 0;
    const char *best = NULL;
    for (int level = 0; level < CPU_LEVELS; level++) {
        if (!kernel_table((enum cpu_level)level))
            continue;
        best = levels[level];
        n_levels++;
        for (int mode = 0; mode < 2; mode++) {
            const struct setting x = {best, 1 + mode, 1, CONVERT_MLMODELC,
                                      mode ? SESSION_CONTRACT : SESSION_INFER_ONLY};
            compare(name, &t, &x);
        }
    }
    for (int n_threads = 1; n_threads <= 3; n_threads++) {
        for (int mode = n_threads < 3; mode < 2; mode++) {
            const struct setting x = {best, n_threads, 1, CONVERT_MLMODELC,
                                      mode ? SESSION_CONTRACT : SESSION_INFER_ONLY};
            compare(name, &t, &x);
        }
    }
    for (int n_chunks = 1; n_chunks <= n_chunks_max; n_chunks++) {
        const struct setting compiled = {best, 2, n_chunks, CONVERT_MLMODELC, SESSION_INFER_ONLY},
                             package = {best, 3, n_chunks, CONVERT_MLPACKAGE, SESSION_CONTRACT};
        compare(name, &t, &compiled);
        compare(name, &t, &package);
    }
    printf("%s: %d kernel levels\n", name, n_levels);
    assert_true(n_levels >= 1);
    free_truth(&t);
}

static void test_gqa8(void **state)
{
    (void)state;
    compare_all("qwen3-gqa8", 3);
}

static void test_bias(void **state)
{
    (void)state;
    compare_all("qwen3-bias", 3);
}

/* Windows, layers that do not turn, biases of the MLP: rows of the same decoder. */
static void test_rows(void **state)
{
    (void)state;
    compare_all("llama-bias", 3);
    compare_all("qwen2-window", 2);
    compare_all("mistral-window", 2);
    compare_all("smollm3-list", 2);
    compare_all("gemma3-linear", 3);
    compare_all("qwen3_moe-mixed", 2);
}

/* Batches that start anywhere: a prompt fed in pieces of every size. */
static void test_pieces(void **state)
{
    (void)state;
    struct truth t = make_truth("qwen3-gqa8");
    const struct package_shape shape = {"qwen3-gqa8", CONTEXT, BATCH, 2, CONVERT_MLMODELC};
    struct model *m = package_load(&shape, 2);
    struct session *s = NULL;
    int32_t ids[LONGEST];
    make_ids(ids, m->vocab_size);
    ASSERT_OK(session_new(&s, m, e));
    static const size_t pieces[] = {1, 3, BATCH - 1, BATCH, BATCH + 1, 2 * BATCH + 3};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        session_reset(s);
        for (size_t at = 0; at < LONGEST; at += pieces[i]) {
            size_t n = LONGEST - at < pieces[i] ? LONGEST - at : pieces[i];
            ASSERT_OK(session_feed(s, ids + at, n, SESSION_CONTRACT, NULL, NULL, NULL, e));
            assert_memory_equal(session_logits(s), rows_at(&t.rows, (int64_t)(at + n) - 1),
                                sizeof(float) * (size_t)m->vocab_size);
        }
    }
    session_free(s);
    model_close(m);
    free_truth(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gqa8),
        cmocka_unit_test(test_bias),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_pieces),
    };
    return cmocka_run_group_tests(tests, packages_setup, packages_teardown);
}
