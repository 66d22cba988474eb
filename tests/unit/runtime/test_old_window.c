// links: convert arch
// wraps: window_cache_of window_cache_values window_cache_build window_cache_write
/* Packages of the first layout of windowed caches: window + batch rows, of which a call drops as many as it adds. milkit
 * does not write them, so the parts of the graph that differ are built here. After a call that ends at position e, row
 * j holds position e + 1 - length + j. Prefill and infer find keys at other rows, so hardware may sum in other orders;
 * the engine leaves hidden keys out, whatever rows they lie in.
 */
#include "arch/window_cache.h"
#include "runtime/session_int.h"
#include "sequential.h"

enum { BATCH = 8, WINDOW = 16, LENGTH = WINDOW + BATCH, CONTEXT = 144, N = 100 };

static bool is_old; /* which layout the family builds */

/* ---- the layout ---- */

struct window_cache __real_window_cache_of(const struct arch_settings *settings, int64_t window,
                                           int64_t n_kv_heads, int64_t head_dim, bool has_slots);
struct window_cache_values __real_window_cache_values(const struct window_cache *c, struct mil_model *out);
struct window_cache_call __real_window_cache_build(const struct window_cache *c, struct mil_builder *b,
                                                   const struct window_cache_values *v, int64_t t,
                                                   bool writes, struct mil_var *position_ids,
                                                   struct mil_var *causal_mask, struct mil_var *current_pos);
struct mil_var *__real_window_cache_write(const struct window_cache *c, struct mil_builder *b,
                                          const struct window_cache_values *v,
                                          const struct window_cache_call *call, struct mil_var *state,
                                          struct mil_var *kv, int64_t slot, const char *name);
struct window_cache __wrap_window_cache_of(const struct arch_settings *settings, int64_t window,
                                           int64_t n_kv_heads, int64_t head_dim, bool has_slots);
struct window_cache_values __wrap_window_cache_values(const struct window_cache *c, struct mil_model *out);
struct window_cache_call __wrap_window_cache_build(const struct window_cache *c, struct mil_builder *b,
                                                   const struct window_cache_values *v, int64_t t,
                                                   bool writes, struct mil_var *position_ids,
                                                   struct mil_var *causal_mask, struct mil_var *current_pos);
struct mil_var *__wrap_window_cache_write(const struct window_cache *c, struct mil_builder *b,
                                          const struct window_cache_values *v,
                                          const struct window_cache_call *call, struct mil_var *state,
                                          struct mil_var *kv, int64_t slot, const char *name);

struct window_cache __wrap_window_cache_of(const struct arch_settings *settings, int64_t window,
                                           int64_t n_kv_heads, int64_t head_dim, bool has_slots)
{
    struct window_cache c = __real_window_cache_of(settings, window, n_kv_heads, head_dim, has_slots);
    c.length = is_old ? LENGTH : c.length;
    return c;
}

struct window_cache_values __wrap_window_cache_values(const struct window_cache *c, struct mil_model *out)
{
    if (!is_old)
        return __real_window_cache_values(c, out);
    struct window_cache_values v = {0};
    int64_t one[4] = {1, 1, 1, 1}, row[4] = {1, 1, 1, LENGTH};
    f16 minus_inf = f64_to_f16(-(double)INFINITY);
    int32_t *keys = ARENA_ARRAY(out->arena, int32_t, LENGTH);
    for (int i = 0; i < LENGTH; i++)
        keys[i] = i;
    v.keys = mil_value_new(out, MIL_INT32, 4, row, keys);
    v.minus_inf = mil_value_new(out, MIL_FP16, 4, one, &minus_inf);
    for (int i = 0; i < 2; i++) {
        int64_t mask[4] = {1, 1, i ? BATCH : 1, LENGTH};
        v.zeros[i] = mil_value_new(out, MIL_FP16, 4, mask, ARENA_ARRAY(out->arena, f16, mask[2] * LENGTH));
    }
    return v;
}

struct window_cache_call __wrap_window_cache_build(const struct window_cache *c, struct mil_builder *b,
                                                   const struct window_cache_values *v, int64_t t,
                                                   bool writes, struct mil_var *position_ids,
                                                   struct mil_var *causal_mask, struct mil_var *current_pos)
{
    if (!is_old)
        return __real_window_cache_build(c, b, v, t, writes, position_ids, causal_mask, current_pos);
    static const int64_t one[4] = {1, 1, 1, 1};
    int64_t rows[4] = {1, 1, t, 1};
    struct window_cache_call call = {.position = current_pos};
    struct mil_var *query = block_reshape(b, position_ids, 4, rows, NULL);
    struct mil_var *outside = block_binary(b, "sub", query, mil_build_int(b, WINDOW, NULL), NULL);
    outside = block_binary(b, "maximum", outside, mil_build_int(b, -1, NULL), NULL);
    struct mil_var *base =
        block_binary(b, "add", current_pos, mil_build_int(b, (int32_t)t - LENGTH, NULL), "local_base");
    struct mil_var *keys = block_reshape(b, base, 4, one, NULL);
    keys = block_binary(b, "add", keys, mil_build_const(b, v->keys, "local_keys"), NULL);
    struct mil_var *ahead = block_binary(b, "greater", keys, query, NULL);
    struct mil_var *behind = block_binary(b, "less_equal", keys, outside, NULL);
    struct mil_var *hidden = block_binary(b, "logical_or", ahead, behind, NULL);
    struct mil_var *minus_inf = mil_build_const(b, v->minus_inf, "minus_infinity");
    call.mask = block_select(b, hidden, minus_inf, mil_build_const(b, v->zeros[t > 1], "zeros"));
    return call;
}

struct mil_var *__wrap_window_cache_write(const struct window_cache *c, struct mil_builder *b,
                                          const struct window_cache_values *v,
                                          const struct window_cache_call *call, struct mil_var *state,
                                          struct mil_var *kv, int64_t slot, const char *name)
{
    if (!is_old)
        return __real_window_cache_write(c, b, v, call, state, kv, slot, name);
    struct mil_var *whole = block_read_state(b, state);
    struct mil_var *old = block_slice(b, whole, 0, slot, slot + 1, NULL);
    struct mil_var *parts[2] = {block_slice(b, old, 2, kv->type->dims[2], LENGTH, NULL), kv};
    const int64_t begin[4] = {slot, 0, 0, 0}, end[4] = {slot + 1, 2 * c->n_kv_heads, LENGTH, c->head_dim};
    block_write_region(b, state, whole, block_concat(b, parts, 2, 2, NULL), 4, begin, end, name);
    return block_read_state(b, state);
}

/* ---- packages ---- */

/* meta.yaml without the line that begins like this. */
static void drop_line(const char *folder, const char *key)
{
    char *path = path_join(folder, "meta.yaml"), *text = NULL, *at;
    size_t n = 0;
    ASSERT_OK(file_read(&text, &n, path, 1 << 20, e));
    assert_non_null(at = strstr(text, key));
    memset(at, ' ', strcspn(at, "\n"));
    ASSERT_OK(file_write(path, text, n, e));
    free(text);
    free(path);
}

static const char model_name[] = "gemma4-window";

/* keys: what meta.yaml says about the extension, as newer writers do. */
static struct model *open_old(bool keys, int n_threads, enum convert_format format)
{
    const struct package_shape shape = {model_name, CONTEXT + (keys ? 0 : 1), BATCH, keys ? 1 : 2, format};
    struct model *m = NULL;
    is_old = true;
    char *path = package_make(&shape);
    is_old = false;
    char *marker = path_join(path, "plain");
    if (!keys && !path_exists(marker)) {
        drop_line(path, "local_cache_length");
        drop_line(path, "prefill_last_token_output");
        ASSERT_OK(file_write(marker, "", 0, e));
    }
    free(marker);
    ASSERT_OK(model_open(&m, path, &(struct model_options){.n_threads = n_threads}, e));
    free(path);
    assert_int_equal(m->package->meta->local_cache_length, keys ? LENGTH : 0);
    assert_true(m->is_sequential);
    return m;
}

/* Of the same checkpoint, whose local cache holds everything. */
static struct model *open_full(void)
{
    const struct package_shape shape = {model_name, CONTEXT, 64, 1, CONVERT_MLMODELC};
    struct model *m = package_load(&shape, 1);
    assert_false(m->is_sequential);
    return m;
}

/* ---- tests ---- */

static void compare_rows(const struct rows *old, const struct rows *full, const char *what)
{
    double lowest = 1;
    float worst = 0;
    for (size_t i = 0; i < old->n; i++) {
        const float *a = old->logits + i * (size_t)old->vocab_size, *b = rows_at(full, old->positions[i]);
        lowest = fmin(lowest, row_cosine(a, b, old->vocab_size));
        for (int64_t k = 0; k < old->vocab_size; k++)
            worst = fmaxf(worst, fabsf(a[k] - b[k]));
    }
    printf("%s: lowest cosine %.9f, largest difference of a logit %g\n", what, lowest, (double)worst);
    assert_true(lowest >= 0.99999);
    assert_true(worst <= 0.005f);
}

static void test_logits(void **state)
{
    (void)state;
    struct model *full = open_full();
    struct session *s = NULL;
    int32_t ids[N];
    make_ids(ids, N, full->vocab_size, 31);
    ASSERT_OK(session_new(&s, full, e));
    struct rows want = rows_feed(s, full, ids, N, SESSION_INFER_ONLY);
    session_free(s);
    for (int keys = 0; keys < 2; keys++) {
        struct model *m = open_old(keys, 1, CONVERT_MLMODELC);
        ASSERT_OK(session_new(&s, m, e));
        for (size_t first = 0; first <= BATCH; first += 3) { /* batches that begin anywhere */
            for (int k = 0; k < 2; k++) {
                char what[64];
                enum session_mode mode = k ? SESSION_INFER_ONLY : SESSION_CONTRACT;
                session_reset(s);
                feed(s, ids, first, SESSION_INFER_ONLY);
                struct rows rows = rows_feed(s, m, ids + first, N - first, mode);
                assert_true(rows.n >= (N - first) / BATCH / (keys ? 1 : BATCH));
                snprintf(what, sizeof what, "%s, begun at %zu, %s keys", k ? "infer" : "prefill", first,
                         keys ? "with" : "without");
                compare_rows(&rows, &want, what);
                rows_free(&rows);
            }
        }
        session_free(s);
        model_close(m);
    }
    rows_free(&want);
    model_close(full);
}

static f16 *read_local(struct session *s, int64_t dims[4])
{
    const struct backend_state *entry = session_find_state(s, "model_model_kv_cache_local");
    assert_non_null(entry);
    memcpy(dims, entry->dims, 4 * sizeof *dims);
    f16 *copy = xmalloc(sizeof *copy * (size_t)entry->n_elems);
    session_read_state(s, entry, copy);
    return copy;
}

/* Of the first layer, whose keys and values depend on their token and position alone. */
static void compare_slots(struct session *old, struct session *full, int64_t end)
{
    int64_t od[4], fd[4];
    f16 *o = read_local(old, od), *f = read_local(full, fd);
    assert_int_equal(od[2], LENGTH);
    assert_true(od[0] == fd[0] && od[1] == fd[1] && od[3] == fd[3]);
    for (int64_t head = 0; head < od[1]; head++) {
        for (int64_t j = 0; j < LENGTH; j++) {
            int64_t position = end + 1 - LENGTH + j;
            for (int64_t i = 0; i < od[3]; i++) {
                f16 expected = position < 0 ? 0 : f[(head * fd[2] + position) * fd[3] + i];
                if (o[(head * LENGTH + j) * od[3] + i] != expected)
                    fail_msg("after position %lld: row %lld does not hold position %lld", (long long)end,
                             (long long)j, (long long)position);
            }
        }
    }
    free(o);
    free(f);
}

static void test_slots(void **state)
{
    (void)state;
    struct model *full = open_full(), *m = open_old(true, 1, CONVERT_MLPACKAGE);
    struct session *f = NULL, *s = NULL;
    int32_t ids[N];
    static const size_t pieces[] = {1, BATCH, 2, 1, BATCH, BATCH, 5, BATCH, 1, BATCH, 3, BATCH};
    size_t at = 0;
    make_ids(ids, N, full->vocab_size, 32);
    ASSERT_OK(session_new(&f, full, e));
    ASSERT_OK(session_new(&s, m, e));
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        feed(f, ids + at, pieces[i], SESSION_CONTRACT);
        feed(s, ids + at, pieces[i], SESSION_CONTRACT);
        at += pieces[i];
        compare_slots(s, f, (int64_t)at - 1);
    }
    session_free(f);
    session_free(s);
    model_close(full);
    model_close(m);
}

/* The same calls give the same bits: on other threads, in the other form, and on states that were used before. */
static void test_bits(void **state)
{
    (void)state;
    enum { FED = 5 * BATCH + 3 };
    struct model *m = open_old(true, 1, CONVERT_MLMODELC), *threads = open_old(true, 3, CONVERT_MLMODELC),
                 *package = open_old(true, 2, CONVERT_MLPACKAGE);
    struct session *s = NULL;
    int32_t ids[N];
    make_ids(ids, N, m->vocab_size, 33);
    struct moment want = moment_fresh(m, ids, FED, SESSION_CONTRACT);
    struct model *const others[] = {threads, package};
    for (int i = 0; i < 2; i++) {
        ASSERT_OK(session_new(&s, others[i], e));
        feed(s, ids, FED, SESSION_CONTRACT);
        assert_same_moment(s, others[i], &want, i ? "the other form" : "threads");
        session_free(s);
    }
    ASSERT_OK(session_new(&s, m, e));
    feed(s, ids + 7, 60, SESSION_CONTRACT);
    snapshot_drop_all(s);
    s->n = 0; /* without clearing the states */
    feed(s, ids, FED, SESSION_CONTRACT);
    assert_memory_equal(session_logits(s), want.logits, want.logits_bytes);
    session_free(s);
    moment_free(&want);
    model_close(m);
    model_close(threads);
    model_close(package);
}

struct counter {
    int64_t n, first;
};

static void count_rows(void *context, int64_t layer, int64_t position, int64_t n, const float *rows)
{
    struct counter *c = context;
    (void)rows;
    if (layer != -1)
        return;
    assert_true(c->n == 0 ? true : position == c->first + c->n); /* each position once and in order */
    c->first = c->n == 0 ? position : c->first;
    c->n += n;
}

/* A last token never runs twice: prompts of every length, n - 1 or n a multiple of the batch among them, again and
 * shortened by one token. */
static void test_no_token_twice(void **state)
{
    (void)state;
    for (int keys = 0; keys < 2; keys++) {
        struct model *m = open_old(keys, 1, CONVERT_MLMODELC);
        struct session *s = NULL;
        int32_t ids[N];
        make_ids(ids, N, m->vocab_size, 34);
        ASSERT_OK(session_new(&s, m, e));
        for (size_t n = 2; n <= 4 * BATCH + 1; n += n % BATCH == 1 || n % BATCH == 0 ? 1 : 3) {
            const struct {
                size_t n, reused;
            } steps[] = {{n, 0}, {n, n}, {n - 1, 0}, {n, n - 1}};
            session_reset(s);
            session_limit_snapshots(s, 0, 0);
            for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
                struct counter fed = {0};
                size_t reused = 999;
                session_watch(s, count_rows, &fed);
                ASSERT_OK(session_sync(s, ids, steps[i].n, NULL, &reused, e));
                session_watch(s, NULL, NULL);
                assert_int_equal(reused, steps[i].reused);
                assert_int_equal(fed.n, steps[i].n - reused);
                assert_true(fed.n == 0 || fed.first == (int64_t)reused);
            }
        }
        session_free(s);
        model_close(m);
    }
}

/* With snapshots, going back costs what follows them, and changes no bit. */
static void test_snapshots(void **state)
{
    (void)state;
    struct model *m = open_old(true, 1, CONVERT_MLMODELC);
    struct session *s = NULL;
    int32_t ids[N];
    size_t reused;
    make_ids(ids, N, m->vocab_size, 35);
    ASSERT_OK(session_new(&s, m, e));
    for (size_t n = 0; n <= 60; n += 20) {
        ASSERT_OK(session_sync(s, ids, n + 10, NULL, &reused, e));
        ASSERT_OK(session_sync(s, ids, n + 30, NULL, &reused, e));
        struct moment want = moment_take(s, m);
        ASSERT_OK(session_sync(s, ids, n + 10, NULL, &reused, e));
        assert_int_equal(reused, n + 10);
        feed(s, ids + n + 10, 20, SESSION_CONTRACT);
        assert_memory_equal(session_logits(s), want.logits, want.logits_bytes);
        moment_free(&want);
    }
    session_free(s);
    model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits),         cmocka_unit_test(test_slots),     cmocka_unit_test(test_bits),
        cmocka_unit_test(test_no_token_twice), cmocka_unit_test(test_snapshots),
    };
    return cmocka_run_group_tests(tests, packages_setup, packages_teardown);
}
