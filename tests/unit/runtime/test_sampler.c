/* Sampling: which tokens each filter leaves, against a plain computation of its own; how often each of them comes;
 * the same choices for the same seed; logits that are no numbers. */
#include <math.h>
#include "support.h"
#include "runtime/sampler.h"

enum { V = 12, DRAWS = 20000 };

static const float logits[V] = {0.5f, 2.0f, -1.0f, 2.0f, 1.25f, 0.0f, -3.0f, 1.0f, 0.75f, -0.5f, 1.5f, -2.0f};

static struct sampler_options plain(void)
{
    return (struct sampler_options){.temperature = 1, .top_p = 1, .repetition_penalty = 1, .seed = 42};
}

static struct sampler *make(const struct sampler_options *o, int64_t n)
{
    const char *why = "";
    struct sampler *s = NULL;
    ASSERT_OK(sampler_new(&s, o, n, kernel_select(&why), e));
    return s;
}

/* The distribution that the options ask for, worked out in double with no sorting: rank by counting. */
static void expected_distribution(const struct sampler_options *o, const float *l, const int32_t *history,
                                  int n_history, double p[V])
{
    double x[V], w[V], best = -INFINITY, total = 0;
    int rank[V];
    for (int i = 0; i < V; i++) {
        int seen = 0;
        int from = o->repetition_window > 0 && n_history > o->repetition_window
                       ? n_history - (int)o->repetition_window
                       : 0;
        for (int k = from; k < n_history; k++)
            seen += history[k] == i;
        x[i] = l[i];
        if (seen > 0) {
            x[i] = x[i] > 0 ? x[i] / o->repetition_penalty : x[i] * o->repetition_penalty;
            x[i] -= o->presence_penalty + seen * o->frequency_penalty;
        }
        x[i] /= o->temperature;
        best = x[i] > best ? x[i] : best;
    }
    for (int i = 0; i < V; i++) {
        rank[i] = 0;
        for (int k = 0; k < V; k++)
            rank[i] += x[k] > x[i] || (x[k] == x[i] && k < i);
        w[i] = exp(x[i] - best);
    }
    for (int i = 0; i < V; i++) /* top-k */
        if (o->top_k > 0 && rank[i] >= o->top_k)
            w[i] = 0;
    for (int i = 0; i < V; i++)
        total += w[i];
    if (o->top_p < 1) { /* kept while what comes before has not reached top_p */
        double before[V];
        for (int i = 0; i < V; i++) {
            before[i] = 0;
            for (int k = 0; k < V; k++)
                before[i] += rank[k] < rank[i] ? w[k] : 0;
        }
        for (int i = 0; i < V; i++)
            if (before[i] >= o->top_p * total)
                w[i] = 0;
    }
    for (int i = 0; i < V; i++)
        if (w[i] < o->min_p)
            w[i] = 0;
    total = 0;
    for (int i = 0; i < V; i++)
        total += w[i];
    for (int i = 0; i < V; i++)
        p[i] = w[i] / total;
}

/* Draws must have the distribution: nothing that is filtered out, each frequency within six standard deviations. */
static void check_distribution(const struct sampler_options *o, const int32_t *history, int n_history)
{
    struct sampler *s = make(o, V);
    int count[V] = {0};
    double p[V];
    expected_distribution(o, logits, history, n_history, p);
    for (int i = 0; i < DRAWS; i++) {
        int32_t id = sampler_pick(s, logits, history, (size_t)n_history);
        assert_true(id >= 0 && id < V);
        count[id]++;
    }
    for (int i = 0; i < V; i++) {
        double f = (double)count[i] / DRAWS, deviation = sqrt(p[i] * (1 - p[i]) / DRAWS);
        if ((p[i] == 0 && count[i] != 0) || fabs(f - p[i]) > 6 * deviation + 1e-9)
            fail_msg("token %d: expected a share of %.4f, found %.4f (temperature %g, top-k %lld, top-p %g, "
                     "min-p %g)",
                     i, p[i], f, o->temperature, (long long)o->top_k, o->top_p, o->min_p);
    }
    sampler_free(s);
}

static void test_temperature(void **state)
{
    (void)state;
    static const double temperatures[] = {0.3, 0.7, 1, 1.5, 5, 100};
    for (size_t i = 0; i < sizeof temperatures / sizeof *temperatures; i++) {
        struct sampler_options o = plain();
        o.temperature = temperatures[i];
        check_distribution(&o, NULL, 0);
    }
}

static void test_top_k(void **state)
{
    (void)state;
    static const int64_t ks[] = {1, 2, 3, 5, V, V + 5, 1000000};
    for (size_t i = 0; i < sizeof ks / sizeof *ks; i++) {
        struct sampler_options o = plain();
        o.top_k = ks[i];
        check_distribution(&o, NULL, 0);
    }
}

static void test_top_p(void **state)
{
    (void)state;
    static const double ps[] = {1e-9, 0.1, 0.25, 0.5, 0.8, 0.95, 0.999, 1};
    for (size_t i = 0; i < sizeof ps / sizeof *ps; i++) {
        struct sampler_options o = plain();
        o.top_p = ps[i];
        check_distribution(&o, NULL, 0);
    }
}

static void test_min_p(void **state)
{
    (void)state;
    static const double ps[] = {0.01, 0.05, 0.2, 0.45, 0.7, 0.999};
    for (size_t i = 0; i < sizeof ps / sizeof *ps; i++) {
        struct sampler_options o = plain();
        o.min_p = ps[i];
        check_distribution(&o, NULL, 0);
    }
}

static void test_repetition_penalty(void **state)
{
    (void)state;
    const int32_t history[] = {1, 2, 6, 1, 10, 5};
    static const double penalties[] = {1, 1.1, 2, 0.5};
    for (size_t i = 0; i < sizeof penalties / sizeof *penalties; i++) {
        for (int64_t window = 0; window <= 8; window += 2) {
            struct sampler_options o = plain();
            o.repetition_penalty = penalties[i];
            o.repetition_window = window;
            check_distribution(&o, history, 6);
        }
    }
    /* ids that are no token of this vocabulary do not count */
    const int32_t odd[] = {-1, V, INT32_MAX, INT32_MIN, 3};
    struct sampler_options o = plain();
    o.repetition_penalty = 1.5;
    check_distribution(&o, odd, 5);
}

static void test_presence_and_frequency(void **state)
{
    (void)state;
    const int32_t history[] = {1, 2, 6, 1, 10, 5, 1};
    static const double values[] = {-1.5, 0, 0.25, 2};
    for (size_t i = 0; i < 4; i++)
        for (size_t k = 0; k < 4; k++)
            for (int64_t window = 0; window <= 4; window += 4) {
                struct sampler_options o = plain();
                o.presence_penalty = values[i];
                o.frequency_penalty = values[k];
                o.repetition_penalty = k == 3 ? 1.25 : 1;
                o.repetition_window = window;
                check_distribution(&o, history, 7);
            }
}

static int32_t pick_greedily(const struct sampler_options *o, const int32_t *history, size_t n)
{
    struct sampler *s = make(o, V);
    int32_t id = sampler_pick(s, logits, history, n);
    assert_int_equal(id, sampler_pick(s, logits, history, n));
    sampler_free(s);
    return id;
}

/* Greedy takes the largest logit behind the penalties: 1 and 3 lead with 2.0, then 10 (1.5), 4 (1.25). */
static void test_greedy_heeds_penalties(void **state)
{
    (void)state;
    struct sampler_options o = plain();
    o.greedy = true;
    assert_int_equal(pick_greedily(&o, (const int32_t[]){1}, 1), 1);
    o.repetition_penalty = 1.3;
    assert_int_equal(pick_greedily(&o, (const int32_t[]){1}, 1), 3);
    assert_int_equal(pick_greedily(&o, (const int32_t[]){1, 3}, 2), 1);
    o.repetition_penalty = 1.5;
    assert_int_equal(pick_greedily(&o, (const int32_t[]){1, 3}, 2), 10);
    o.repetition_penalty = 1;
    o.presence_penalty = 0.6;
    assert_int_equal(pick_greedily(&o, (const int32_t[]){1, 3}, 2), 10);
    o.presence_penalty = 0;
    o.frequency_penalty = 0.3;
    assert_int_equal(pick_greedily(&o, (const int32_t[]){1, 3, 3}, 3), 1);
    assert_int_equal(pick_greedily(&o, (const int32_t[]){1, 3, 3, 1}, 4), 10);
}

/* suppress_tokens and bad_words_ids: never these ids, never that sequence; its last id elsewhere is free. */
static void test_suppressed(void **state)
{
    (void)state;
    int32_t ids[] = {1, V, -5, INT32_MAX}, word[] = {7, 8, 3}, one[] = {10}, all[V];
    struct token_sequence words[] = {{3, word}, {1, one}};
    struct sampler_options o = plain();
    o.greedy = true;
    o.n_suppressed = 4;
    o.suppressed = ids;
    assert_int_equal(pick_greedily(&o, NULL, 0), 3);
    o.n_bad_words = 2;
    o.bad_words = words;
    assert_int_equal(pick_greedily(&o, NULL, 0), 3);
    assert_int_equal(pick_greedily(&o, (const int32_t[]){8}, 1), 3);
    assert_int_equal(pick_greedily(&o, (const int32_t[]){0, 8, 7}, 3), 3);
    assert_int_equal(pick_greedily(&o, (const int32_t[]){0, 7, 8}, 3), 4); /* 10 is a bad word of its own */
    o.greedy = false;
    o.temperature = 10;
    struct sampler *s = make(&o, V);
    for (int i = 0; i < 2000; i++) {
        int32_t id = sampler_pick(s, logits, (const int32_t[]){7, 8}, 2);
        assert_true(id != 1 && id != 3 && id != 10);
    }
    sampler_free(s);
    /* a list of everything suppresses nothing */
    for (int i = 0; i < V; i++)
        all[i] = i;
    o = plain();
    o.greedy = true;
    o.n_suppressed = V;
    o.suppressed = all;
    assert_int_equal(pick_greedily(&o, NULL, 0), 1);
}

static void test_filters_together(void **state)
{
    (void)state;
    const int32_t history[] = {3, 3, 0};
    struct sampler_options o = {
        .temperature = 0.8, .top_k = 8, .top_p = 0.9, .min_p = 0.1, .repetition_penalty = 1.3, .seed = 7};
    check_distribution(&o, history, 3);
    o.top_k = 3;
    o.min_p = 0;
    check_distribution(&o, history, 3);
    o.top_p = 0.5;
    o.temperature = 2;
    check_distribution(&o, history, 3);
}

/* ---- greedy ---- */

static void test_greedy(void **state)
{
    (void)state;
    struct sampler_options o = plain();
    o.temperature = 0;
    struct sampler *s = make(&o, V);
    for (int i = 0; i < 10; i++)
        assert_int_equal(sampler_pick(s, logits, NULL, 0), 1); /* 1 and 3 are equal: the lowest */
    sampler_free(s);
    o = plain();
    o.greedy = true;
    o.repetition_penalty = 1.5;
    s = make(&o, V);
    const int32_t history[] = {1, 3};
    assert_int_equal(sampler_pick(s, logits, history, 2), 10);
    assert_int_equal(sampler_pick(s, logits, history, 1), 3);
    sampler_free(s);
    assert_int_equal(sampler_argmax(logits, V), 1);
    assert_int_equal(sampler_argmax(logits, 1), 0);
}

/* Temperatures next to nothing are greedy, not a division by zero. */
static void test_tiny_temperature(void **state)
{
    (void)state;
    static const double temperatures[] = {1e-3, 1e-10, 1e-38, 1e-44, 1e-60, 5e-324};
    const float distinct[V] = {0, 1, 3, 2, -1, 0, 0, 1, -5, 2.5f, 0, 0};
    for (size_t i = 0; i < sizeof temperatures / sizeof *temperatures; i++) {
        for (int variant = 0; variant < 3; variant++) {
            struct sampler_options o = plain();
            o.temperature = temperatures[i];
            o.top_k = variant == 1 ? 4 : 0;
            o.top_p = variant == 2 ? 0.9 : 1;
            struct sampler *s = make(&o, V);
            for (int k = 0; k < 20; k++)
                assert_int_equal(sampler_pick(s, distinct, NULL, 0), 2);
            sampler_free(s);
        }
    }
}

/* ---- seeds ---- */

static void test_seeds(void **state)
{
    (void)state;
    struct sampler_options o = plain();
    int32_t first[64], second[64];
    int n_same = 0;
    for (int run = 0; run < 2; run++) {
        struct sampler *s = make(&o, V);
        for (int i = 0; i < 64; i++)
            (run ? second : first)[i] = sampler_pick(s, logits, NULL, 0);
        sampler_free(s);
    }
    assert_memory_equal(first, second, sizeof first);
    o.seed = 43;
    struct sampler *s = make(&o, V);
    for (int i = 0; i < 64; i++)
        n_same += sampler_pick(s, logits, NULL, 0) == first[i];
    assert_true(n_same < 48);
    sampler_free(s);
}

/* The same choices at every instruction set. */
static void test_levels(void **state)
{
    (void)state;
    struct sampler_options o = plain();
    int32_t first[256];
    float many[300];
    for (int i = 0; i < 300; i++)
        many[i] = sinf((float)i * 1.7f) * 4;
    o.top_p = 0.95;
    o.min_p = 0.01;
    for (int level = 0; level < CPU_LEVELS; level++) {
        const struct kernels *k = kernel_table((enum cpu_level)level);
        struct sampler *s = NULL;
        if (!k)
            continue;
        ASSERT_OK(sampler_new(&s, &o, 300, k, e));
        for (int i = 0; i < 256; i++) {
            int32_t id = sampler_pick(s, many, NULL, 0);
            if (level == 0)
                first[i] = id;
            assert_int_equal(id, first[i]);
        }
        sampler_free(s);
    }
}

/* ---- logits that are no numbers ---- */

static void test_odd_logits(void **state)
{
    (void)state;
    float odd[V];
    for (int variant = 0; variant < 6; variant++) {
        for (int i = 0; i < V; i++)
            odd[i] = variant == 0   ? (i == 4 || i == 7 ? logits[i] : NAN)
                     : variant == 1 ? (i == 5 ? INFINITY : logits[i])
                     : variant == 2 ? (i == 4 || i == 7 ? logits[i] : -INFINITY)
                     : variant == 3 ? (i == 0   ? NAN
                                       : i == 5 ? INFINITY
                                                : -INFINITY)
                     : variant == 4 ? (i == 9  ? 65504
                                       : i % 2 ? NAN
                                               : -65504)
                                    : (i == 6 ? 0 : NAN);
        for (int filters = 0; filters < 4; filters++) {
            struct sampler_options o = plain();
            o.top_k = filters == 1 ? 3 : 0;
            o.top_p = filters == 2 ? 0.9 : 1;
            o.greedy = filters == 3;
            struct sampler *s = make(&o, V);
            for (int k = 0; k < 100; k++) {
                int32_t id = sampler_pick(s, odd, NULL, 0);
                bool fits = variant == 0 || variant == 2   ? id == 4 || id == 7
                            : variant == 1 || variant == 3 ? id == 5
                            : variant == 4                 ? id == 9
                                                           : id == 6;
                if (!fits)
                    fail_msg("variant %d, filters %d: token %d", variant, filters, id);
            }
            sampler_free(s);
        }
    }
    /* Nothing to choose from: some token of the vocabulary. */
    for (int i = 0; i < V; i++)
        odd[i] = i % 2 ? NAN : -INFINITY;
    struct sampler_options o = plain();
    struct sampler *s = make(&o, V);
    int32_t id = sampler_pick(s, odd, NULL, 0);
    assert_true(id >= 0 && id < V);
    sampler_free(s);
    assert_false(sampler_can_pick(odd, V));
    odd[V - 1] = -1e38f;
    assert_true(sampler_can_pick(odd, V));
    assert_true(sampler_can_pick((const float[]){NAN, INFINITY}, 2));
    assert_false(sampler_can_pick((const float[]){-INFINITY}, 1));
    assert_true(sampler_argmax((const float[]){NAN, NAN}, 2) == 0);
    assert_true(sampler_argmax((const float[]){NAN, -INFINITY, NAN}, 3) == 1);
    assert_true(sampler_argmax((const float[]){NAN, 1, INFINITY, INFINITY}, 4) == 2);
}

/* ---- ranges ---- */

static void test_ranges(void **state)
{
    (void)state;
    static const struct sampler_options bad[] = {
        {.temperature = -0.1, .top_p = 1, .repetition_penalty = 1},
        {.temperature = NAN, .top_p = 1, .repetition_penalty = 1},
        {.temperature = INFINITY, .top_p = 1, .repetition_penalty = 1},
        {.temperature = 1, .top_p = 0, .repetition_penalty = 1},
        {.temperature = 1, .top_p = 1.01, .repetition_penalty = 1},
        {.temperature = 1, .top_p = NAN, .repetition_penalty = 1},
        {.temperature = 1, .top_p = 1, .min_p = -0.5, .repetition_penalty = 1},
        {.temperature = 1, .top_p = 1, .min_p = 1, .repetition_penalty = 1},
        {.temperature = 1, .top_p = 1, .repetition_penalty = 1, .presence_penalty = NAN},
        {.temperature = 1, .top_p = 1, .repetition_penalty = 1, .presence_penalty = 101},
        {.temperature = 1, .top_p = 1, .repetition_penalty = 1, .frequency_penalty = -101},
        {.temperature = 1, .top_p = 1, .repetition_penalty = 1, .frequency_penalty = INFINITY},
        {.temperature = 1, .top_p = 1, .repetition_penalty = 0},
        {.temperature = 1, .top_p = 1, .repetition_penalty = -1},
        {.temperature = 1, .top_p = 1, .repetition_penalty = NAN},
        {.temperature = 1, .top_p = 1, .repetition_penalty = 1, .top_k = -1},
        {.temperature = 1, .top_p = 1, .repetition_penalty = 1, .repetition_window = -1},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct sampler *s = NULL;
        struct err e = {0};
        if (sampler_new(&s, &bad[i], V, kernel_table(CPU_SCALAR), &e))
            fail_msg("bad options %zu are accepted", i);
        assert_int_equal(e.code, ERR_USAGE);
        assert_null(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_temperature),
        cmocka_unit_test(test_top_k),
        cmocka_unit_test(test_top_p),
        cmocka_unit_test(test_min_p),
        cmocka_unit_test(test_repetition_penalty),
        cmocka_unit_test(test_presence_and_frequency),
        cmocka_unit_test(test_greedy_heeds_penalties),
        cmocka_unit_test(test_suppressed),
        cmocka_unit_test(test_filters_together),
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_tiny_temperature),
        cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_odd_logits),
        cmocka_unit_test(test_ranges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
