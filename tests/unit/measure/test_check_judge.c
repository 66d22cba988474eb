/* The verdict of a check from numbers alone: which limit speaks, and what nothing is said about. */
#include <math.h>
#include "measure/check.h"
#include "support.h"

enum { N_LAYERS = 3 };

struct scene {
    struct check_layer layers[N_LAYERS + 2];
    char *types[N_LAYERS];
    struct check_state states[2];
    struct check_layers_found found;
    struct check_limits limits;
};

/* Ten rows a layer, all right. */
static void set_scene(struct scene *s)
{
    static char full[] = "full", linear[] = "linear", keys[] = "cache_a", memory[] = "memory_b";
    *s = (struct scene){.types = {linear, full, linear}, .limits = CHECK_LIMITS_NOT_GIVEN};
    for (int i = 0; i < N_LAYERS + 2; i++)
        s->layers[i] = (struct check_layer){.n = 10, .min_cosine = 0.9999, .sum_cosine = 9.9999};
    for (int i = 1; i <= N_LAYERS; i++) {
        s->layers[i].n_added = 10;
        s->layers[i].sum_added = 9.9999;
        s->layers[i].added_ab = s->layers[i].added_aa = 7;
    }
    s->states[0] = (struct check_state){keys, 1, REFERENCE_KEYS, true, 0.99995, 0.01, 1};
    s->states[1] = (struct check_state){memory, 0, REFERENCE_MEMORY, true, 0.9998, 0.01, 1};
    s->found = (struct check_layers_found){N_LAYERS, s->layers, s->types, 2, s->states};
    s->limits.min_layer_cosine = 0.999;
    s->limits.min_added_cosine = 0.999;
    s->limits.min_gain = 0.9;
    s->limits.max_gain = 1.1;
}

static void judge_is(const struct scene *s, const char *want)
{
    struct buf why;
    buf_init(&why, 1 << 16);
    check_layers_judge(&s->found, &s->limits, &why);
    assert_string_equal(why.n ? why.p : "", want);
    buf_fini(&why);
}

static void test_layers(void **state)
{
    (void)state;
    struct scene s;
    set_scene(&s);
    judge_is(&s, "");

    /* Two layers are wrong: only the first one speaks. */
    s.layers[2].added_ab = 10.5;
    s.layers[3].sum_cosine = 1;
    judge_is(
        &s,
        "layer 1 (full) is the first one outside the limits: its strength is 1.5 of the right one, outside "
        "0.9 to 1.1\n");
    s.layers[1].sum_added = 5;
    judge_is(
        &s,
        "layer 0 (linear) is the first one outside the limits: what it adds has cosine 0.5, below 0.999\n");
    s.layers[0].n_not_finite = 2;
    judge_is(&s, "embeddings is the first one that is not finite (at 2 positions)\n");

    /* No limit given: NAN is within every one. */
    set_scene(&s);
    s.layers[2].sum_cosine = 0;
    s.limits = CHECK_LIMITS_NOT_GIVEN;
    judge_is(&s, "");
}

static void test_states(void **state)
{
    (void)state;
    struct scene s;
    set_scene(&s);
    s.states[0].cosine = 0.5;
    judge_is(&s, "the keys of layer 1 in cache_a: cosine 0.5 is below 0.999\n");
    s.states[1].is_finite = false;
    judge_is(&s, "the memory of layer 0 in memory_b: not finite\n");
}

static void test_worst(void **state)
{
    (void)state;
    struct scene s;
    int64_t layer;
    const struct check_state *worst;
    set_scene(&s);
    s.layers[N_LAYERS + 1].sum_cosine = 9;
    assert_true(check_layers_worst(&s.found, &layer, &worst));
    assert_int_equal(layer, N_LAYERS);
    assert_ptr_equal(worst, &s.states[1]);
    s.states[0].is_finite = s.states[1].is_finite = false;
    for (int i = 0; i < N_LAYERS + 2; i++)
        s.layers[i].n = 0;
    assert_false(check_layers_worst(&s.found, &layer, &worst));
    assert_null(worst);
}

/* Without a reference nothing was compared, and nothing fails. */
static void test_nothing_compared(void **state)
{
    (void)state;
    struct check k = {.limits = CHECK_LIMITS_NOT_GIVEN};
    struct buf why;
    buf_init(&why, 1 << 16);
    k.limits.has_verdict = true;
    assert_int_equal(check_judge(&k, &why), CHECK_NONE);
    assert_int_equal(why.n, 0);
    buf_fini(&why);
    check_fini(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers),
        cmocka_unit_test(test_states),
        cmocka_unit_test(test_worst),
        cmocka_unit_test(test_nothing_compared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
