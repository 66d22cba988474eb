// links: runtime
/* Ranking against a sort by comparison. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "support.h"
#include "runtime/ranking.h"

enum { N_MAX = 5000 };

static uint64_t random_state = 1;

static uint32_t random_bits(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 32);
}

static int by_logit(const void *a, const void *b)
{
    const struct candidate *p = a, *q = b;
    if (p->logit != q->logit)
        return p->logit < q->logit ? 1 : -1;
    return p->id < q->id ? -1 : p->id > q->id;
}

/* Any bits that are not a NaN, numbers like logits, or few different ones. */
static float any_logit(int kind)
{
    static const float few[] = {0.0f, -0.0f, 1.0f, -1.0f, INFINITY, -INFINITY, 1e-45f, -1e-45f, 3.4e38f};
    float v;
    uint32_t bits = random_bits();
    if (kind == 0)
        return few[bits % (sizeof few / sizeof *few)];
    if (kind == 1)
        return (float)(int32_t)bits * 0x1p-27f;
    memcpy(&v, &bits, sizeof v);
    return v == v ? v : 0.0f;
}

static void check(struct candidate *list, int64_t n, int64_t k)
{
    static struct candidate want[N_MAX], scratch[N_MAX];
    memcpy(want, list, (size_t)n * sizeof *list);
    qsort(want, (size_t)n, sizeof *want, by_logit);
    int64_t n_expected = k < n ? k : n;
    assert_int_equal(ranking_sort_best(list, scratch, n, k), n_expected);
    for (int64_t i = 0; i < n_expected; i++) {
        assert_int_equal(list[i].id, want[i].id);
        assert_memory_equal(&list[i].logit, &want[i].logit, sizeof(float));
    }
}

static void test_random_lists(void **state)
{
    (void)state;
    static struct candidate list[N_MAX];
    static const int64_t sizes[] = {1, 2, 3, 63, 64, 65, 300, N_MAX};
    for (int kind = 0; kind < 3; kind++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            int64_t n = sizes[i], ks[] = {1, 2, n / 2 + 1, n - 1, n, n + 7};
            for (size_t j = 0; j < sizeof ks / sizeof *ks; j++) {
                for (int64_t id = 0; id < n; id++)
                    list[id] = (struct candidate){any_logit(kind), (int32_t)id};
                if (ks[j] > 0)
                    check(list, n, ks[j]);
            }
        }
}

static void test_nothing(void **state)
{
    (void)state;
    struct candidate one = {1, 0}, scratch;
    assert_int_equal(ranking_sort_best(&one, &scratch, 0, 1), 0);
    assert_int_equal(ranking_sort_best(&one, &scratch, 1, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_lists), cmocka_unit_test(test_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
