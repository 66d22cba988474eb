// links: convert
/* The windowed cache of Gemma 4 by name: which position lies in which slot after every call, against a package of the
 * same checkpoint whose cache holds all positions; and what the window costs in logits. */
#include "runtime/session_int.h"
#include "sequential.h"

enum { BATCH = 8, WINDOW = 16, LENGTH = WINDOW + 2 * BATCH, N = 140 };

/* A context of window + 2 batches at most has the full-length cache: a batch of 64 allows 144. */
static const struct package_shape windowed = {"gemma4-window", 256, BATCH, 1, CONVERT_MLMODELC},
                                  full = {"gemma4-window", 144, 64, 1, CONVERT_MLMODELC};

struct pair {
    struct model *windowed, *full;
    struct session *w, *f;
    int32_t ids[N];
};

static void open_pair(struct pair *p)
{
    p->windowed = package_load(&windowed, 1);
    p->full = package_load(&full, 1);
    assert_int_equal(p->windowed->package->meta->local_cache_length, LENGTH);
    assert_int_equal(p->full->package->meta->local_cache_length, 0);
    assert_true(p->windowed->is_sequential);
    assert_false(p->full->is_sequential);
    ASSERT_OK(session_new(&p->w, p->windowed, e));
    ASSERT_OK(session_new(&p->f, p->full, e));
    make_ids(p->ids, N, p->full->vocab_size, 21);
}

static void close_pair(struct pair *p)
{
    session_free(p->w);
    session_free(p->f);
    model_close(p->windowed);
    model_close(p->full);
}

static f16 *read_state(struct session *s, const char *name, int64_t dims[4])
{
    const struct backend_state *entry = session_find_state(s, name);
    assert_non_null(entry);
    assert_int_equal(entry->rank, 4);
    memcpy(dims, entry->dims, 4 * sizeof *dims);
    f16 *copy = xmalloc(sizeof *copy * (size_t)entry->n_elems);
    session_read_state(s, entry, copy);
    return copy;
}

/* NaN in the first n_rows rows of every head. */
static void poison(struct session *s, const struct backend_state *local, int64_t n_rows)
{
    const f16 nan = 0x7e00;
    int i = (int)(local - s->states->list);
    for (int64_t head = 0; head < local->dims[0] * local->dims[1]; head++)
        for (int64_t k = 0; k < n_rows * local->dims[3]; k++)
            s->model->backend->state_write(s->states, i,
                                           sizeof nan * (size_t)(head * local->dims[2] * local->dims[3] + k),
                                           sizeof nan, &nan);
}

/* floor(a / b) for b > 0 */
static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

/* After a call that ends at position `end`: slot j holds position base + j; what is before the start or not yet written
 * is zero. Returns how many slots held a position. */
static int64_t compare_slots(const struct pair *p, int64_t end, float *worst)
{
    int64_t dw[4], df[4], n_held = 0, base = (floor_div(end, BATCH) + 1) * BATCH - LENGTH;
    f16 *w = read_state(p->w, "model_model_kv_cache_local", dw),
        *f = read_state(p->f, "model_model_kv_cache_local", df);
    assert_int_equal(dw[2], LENGTH);
    assert_int_equal(df[2], full.context);
    assert_true(dw[0] == df[0] && dw[1] == df[1] && dw[3] == df[3]);
    for (int64_t slot = 0; slot < dw[0]; slot++) {
        for (int64_t head = 0; head < dw[1]; head++) {
            for (int64_t j = 0; j < LENGTH; j++) {
                int64_t position = base + j;
                const f16 *row = w + ((slot * dw[1] + head) * LENGTH + j) * dw[3],
                          *want = f + ((slot * df[1] + head) * df[2] + position) * df[3];
                bool is_held = position >= 0 && position <= end;
                n_held += is_held;
                for (int64_t i = 0; i < dw[3]; i++) {
                    float value = f16_to_f32(row[i]), expected = is_held ? f16_to_f32(want[i]) : 0;
                    *worst = fmaxf(*worst, fabsf(value - expected));
                    /* The first layer's rows depend on their token alone; later ones on attention. */
                    if (slot == 0 || !is_held ? value != expected : fabsf(value - expected) > 4e-3f)
                        fail_msg("after position %lld: slot %lld of layer %lld, head %lld: position %lld: "
                                 "expected "
                                 "%g, found %g",
                                 (long long)end, (long long)j, (long long)slot, (long long)head,
                                 (long long)position, (double)expected, (double)value);
                }
            }
        }
    }
    free(w);
    free(f);
    return n_held / dw[0] / dw[1];
}

static void compare_global(const struct pair *p, int64_t end)
{
    int64_t dw[4], df[4];
    f16 *w = read_state(p->w, "model_model_kv_cache_global", dw),
        *f = read_state(p->f, "model_model_kv_cache_global", df);
    assert_true(dw[2] == windowed.context && df[2] == full.context);
    for (int64_t head = 0; head < dw[0] * dw[1]; head++)
        for (int64_t i = 0; i <= end * dw[3]; i++)
            assert_true(fabsf(f16_to_f32(w[head * dw[2] * dw[3] + i]) -
                              f16_to_f32(f[head * df[2] * df[3] + i])) <= 4e-3f);
    free(w);
    free(f);
}

static void test_slots(void **state)
{
    (void)state;
    struct pair p;
    float worst = 0;
    open_pair(&p);
    for (int64_t i = 0; i < 70; i++) {
        feed(p.w, p.ids + i, 1, SESSION_INFER_ONLY);
        feed(p.f, p.ids + i, 1, SESSION_INFER_ONLY);
        int64_t n = compare_slots(&p, i, &worst), room = LENGTH - BATCH + i % BATCH + 1;
        assert_int_equal(n, i + 1 < room ? i + 1 : room);
    }
    compare_global(&p, 69);
    close_pair(&p);
    printf("largest difference of a key or value: %g\n", (double)worst);
}

/* Batches that begin anywhere in a block, and single tokens between them. */
static void test_slots_of_batches(void **state)
{
    (void)state;
    struct pair p;
    float worst = 0;
    open_pair(&p);
    for (size_t first = 0; first < BATCH; first++) {
        size_t at = first;
        session_reset(p.w);
        session_reset(p.f);
        feed(p.w, p.ids, first, SESSION_CONTRACT);
        feed(p.f, p.ids, first, SESSION_CONTRACT);
        for (int i = 0; i < 7; i++) {
            size_t n = i == 4 ? 3 : BATCH; /* on the way another offset */
            feed(p.w, p.ids + at, n, SESSION_CONTRACT);
            feed(p.f, p.ids + at, n, SESSION_CONTRACT);
            at += n;
            compare_slots(&p, (int64_t)at - 1, &worst);
        }
    }
    close_pair(&p);
}

/* The same logits within rounding, whatever the cache. In the default precision, which leaves out keys that the mask
 * hides, they have been the same bits. */
static void test_logits(void **state)
{
    (void)state;
    struct pair p;
    double lowest = 1;
    float worst = 0;
    open_pair(&p);
    struct rows w = rows_feed(p.w, p.windowed, p.ids, N, SESSION_INFER_ONLY),
                f = rows_feed(p.f, p.full, p.ids, N, SESSION_INFER_ONLY);
    for (int i = 0; i < N; i++) {
        const float *a = rows_at(&w, i), *b = rows_at(&f, i);
        lowest = fmin(lowest, row_cosine(a, b, w.vocab_size));
        for (int64_t k = 0; k < w.vocab_size; k++)
            worst = fmaxf(worst, fabsf(a[k] - b[k]));
    }
    printf("windowed against full length: lowest cosine %.9f, largest difference of a logit %g\n", lowest,
           (double)worst);
    assert_true(lowest >= 0.99999);
    assert_true(worst <= 0.002f);
    rows_free(&w);
    rows_free(&f);
    close_pair(&p);
}

/* Keys and values that have left the window are not read from a cache of full length, whatever lies there: a token
 * and a batch give the same bits when those rows of local layers are no numbers. */
static void test_left_the_window(void **state)
{
    (void)state;
    enum { FED = 70 };
    struct pair p;
    open_pair(&p);
    for (int batch = 0; batch < 2; batch++) {
        size_t n = batch ? 64 : 1;
        float *clean = xmalloc(sizeof *clean * (size_t)p.full->vocab_size);
        for (int poisoned = 0; poisoned < 2; poisoned++) {
            session_reset(p.f);
            feed(p.f, p.ids, FED, SESSION_INFER_ONLY);
            if (poisoned)
                poison(p.f, session_find_state(p.f, "model_model_kv_cache_local"), FED - WINDOW + 1);
            feed(p.f, p.ids + FED, n, batch ? SESSION_CONTRACT : SESSION_INFER_ONLY);
            if (poisoned)
                assert_memory_equal(session_logits(p.f), clean, sizeof *clean * (size_t)p.full->vocab_size);
            else
                memcpy(clean, session_logits(p.f), sizeof *clean * (size_t)p.full->vocab_size);
        }
        free(clean);
    }
    close_pair(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slots),
        cmocka_unit_test(test_slots_of_batches),
        cmocka_unit_test(test_logits),
        cmocka_unit_test(test_left_the_window),
    };
    return cmocka_run_group_tests(tests, packages_setup, packages_teardown);
}
