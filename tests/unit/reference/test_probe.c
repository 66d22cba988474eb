/* The probe of the reference: a layer as it is, with replaced numbers, and as it is again, for every family. */
#include "support.h"
#include <math.h>
#include "reference/reference.h"

#define MODELS MILKIT_TEST_DATA "/models/"
#define N_TOKENS 21

static const struct {
    const char *name;
    const char *weight; /* of layer 1, whose change the last product of the layer sees */
} checkpoints[] = {
    {"qwen3-bias", "model.layers.1.self_attn.q_proj.weight"},
    {"qwen3_5-equal", "model.layers.1.linear_attn.in_proj_qkv.weight"},
    {"qwen3_5_moe-random", "model.layers.1.linear_attn.in_proj_qkv.weight"},
    {"gemma4-window", "model.layers.1.self_attn.k_proj.weight"},
};
#define N_CHECKPOINTS 4

static struct reference *open_reference(const char *name, int n_threads)
{
    struct reference *r;
    char path[512];
    struct reference_options options = {.n_threads = n_threads};
    snprintf(path, sizeof path, MODELS "%s", name);
    ASSERT_OK(reference_open(&r, path, &options, e));
    return r;
}

static void make_tokens(int32_t *tokens, const struct reference *r)
{
    for (int i = 0; i < N_TOKENS; i++)
        tokens[i] = (int32_t)((7 + 31 * i) % r->vocab_size);
}

/* What each layer leaves in an ordinary session. */
struct watched {
    float *rows; /* [n_layers, N_TOKENS, hidden] */
    const struct reference *reference;
};

static void watch(void *context, int64_t layer, int64_t position, int64_t n, const float *rows)
{
    struct watched *w = context;
    int64_t h = w->reference->hidden_size;
    if (layer >= 0 && layer < w->reference->n_layers)
        memcpy(w->rows + (layer * N_TOKENS + position) * h, rows, (size_t)(n * h) * sizeof *rows);
}

static float *rows_of_session(struct reference *r, const int32_t *tokens)
{
    struct reference_session *s;
    struct watched w = {.reference = r};
    w.rows = calloc((size_t)(r->n_layers * N_TOKENS * r->hidden_size), sizeof *w.rows);
    ASSERT_OK(reference_session_new(&s, r, N_TOKENS, e));
    reference_watch(s, watch, &w);
    ASSERT_OK(reference_feed(s, tokens, N_TOKENS, NULL, NULL, e));
    reference_session_free(s);
    return w.rows;
}

/* Numbers that are multiplied: those of tensors with `part` in their name by factor; others stay, but are
 * said to be replaced where all is set. */
struct change {
    const char *part;
    float factor;
    bool all;
};

static int64_t find(void *context, const char *tensor, int64_t begin, int64_t n)
{
    const struct change *c = context;
    assert_true(begin >= 0 && n > 0);
    return strstr(tensor, c->part) ? 1 : c->all ? 0 : -1;
}

static void replace(void *context, int64_t handle, int64_t begin, int64_t n, float *values)
{
    const struct change *c = context;
    (void)begin;
    for (int64_t i = 0; i < n && handle == 1; i++)
        values[i] *= c->factor;
}

static float *run_changed(struct reference_probe *p, const struct reference *r, struct change change)
{
    struct reference_replacement replacement = {.context = &change, .find = find, .replace = replace};
    const float *rows = NULL;
    size_t bytes = (size_t)(N_TOKENS * r->hidden_size) * sizeof *rows;
    ASSERT_OK(reference_probe_replaced(p, &replacement, &rows, e));
    float *copy = malloc(bytes);
    memcpy(copy, rows, bytes);
    return copy;
}

static void check_family(int i)
{
    struct reference *r = open_reference(checkpoints[i].name, 2);
    struct reference_probe *p;
    int32_t tokens[N_TOKENS];
    int64_t h = r->hidden_size;
    size_t bytes = (size_t)(N_TOKENS * h) * sizeof(float);
    make_tokens(tokens, r);
    float *expected = rows_of_session(r, tokens);
    ASSERT_OK(reference_probe_new(&p, r, tokens, N_TOKENS, e));
    for (int64_t layer = 0; layer < r->n_layers; layer++) {
        const float *rows = NULL;
        ASSERT_OK(reference_probe_next(p, &rows, e));
        assert_memory_equal(rows, expected + layer * N_TOKENS * h, bytes);
        if (layer != 1)
            continue;
        /* Kept products and computed ones are the same bits. */
        float *kept = run_changed(p, r, (struct change){checkpoints[i].weight, 1.5f, false});
        float *computed = run_changed(p, r, (struct change){checkpoints[i].weight, 1.5f, true});
        float *same = run_changed(p, r, (struct change){"no such tensor", 1.0f, true});
        assert_memory_equal(kept, computed, bytes);
        assert_memory_equal(same, rows, bytes);
        assert_memory_not_equal(kept, rows, bytes);
        free(kept);
        free(computed);
        free(same);
        /* Changed again before it goes on: nothing of it may reach the next layers. */
        free(run_changed(p, r, (struct change){checkpoints[i].weight, -3.0f, false}));
        assert_memory_equal(rows, expected + layer * N_TOKENS * h, bytes);
    }
    const float *rows;
    struct err e = {0};
    assert_false(reference_probe_next(p, &rows, &e));
    reference_probe_free(p);
    free(expected);
    reference_close(r);
}

static void test_families(void **unused)
{
    (void)unused;
    for (int i = 0; i < N_CHECKPOINTS; i++)
        check_family(i);
}

/* Nothing of attention and MLP gets into the stream when their last products are zero. */
static void test_zeros(void **unused)
{
    (void)unused;
    struct reference *r = open_reference("qwen3-gqa8", 1);
    struct reference_probe *p;
    int32_t tokens[N_TOKENS];
    const float *rows;
    size_t bytes = (size_t)(N_TOKENS * r->hidden_size) * sizeof *rows;
    make_tokens(tokens, r);
    ASSERT_OK(reference_probe_new(&p, r, tokens, N_TOKENS, e));
    ASSERT_OK(reference_probe_next(p, &rows, e));
    float *before = malloc(bytes);
    memcpy(before, rows, bytes);
    ASSERT_OK(reference_probe_next(p, &rows, e));
    float *without_mlp = run_changed(p, r, (struct change){"down_proj", 0.0f, false});
    float *mlp_alone = run_changed(p, r, (struct change){"o_proj", 0.0f, false});
    float *nothing = run_changed(p, r, (struct change){"proj", 0.0f, false});
    assert_memory_equal(nothing, before, bytes);
    assert_memory_not_equal(without_mlp, before, bytes);
    assert_memory_not_equal(without_mlp, mlp_alone, bytes);
    free(without_mlp);
    free(mlp_alone);
    free(nothing);
    free(before);
    reference_probe_free(p);
    reference_close(r);
}

static void test_threads(void **unused)
{
    (void)unused;
    float *found[2];
    size_t bytes = 0;
    for (int i = 0; i < 2; i++) {
        struct reference *r = open_reference("qwen3_5_moe-random", 1 + 2 * i);
        struct reference_probe *p;
        int32_t tokens[N_TOKENS];
        const float *rows;
        make_tokens(tokens, r);
        bytes = (size_t)(N_TOKENS * r->hidden_size) * sizeof *rows;
        ASSERT_OK(reference_probe_new(&p, r, tokens, N_TOKENS, e));
        ASSERT_OK(reference_probe_next(p, &rows, e));
        found[i] = run_changed(p, r, (struct change){"experts.", 1.25f, false});
        assert_memory_not_equal(found[i], rows, bytes);
        reference_probe_free(p);
        reference_close(r);
    }
    assert_memory_equal(found[0], found[1], bytes);
    free(found[0]);
    free(found[1]);
}

static void test_refusals(void **unused)
{
    (void)unused;
    struct reference *r = open_reference("qwen3-gqa8", 1);
    struct reference_probe *p;
    struct err e = {0};
    int32_t tokens[] = {1, (int32_t)r->vocab_size};
    assert_false(reference_probe_new(&p, r, tokens, 2, &e));
    assert_non_null(strstr(e.msg, "token 1: expected an id below 300"));
    e = (struct err){0};
    assert_false(reference_probe_new(&p, r, tokens, 0, &e));
    assert_int_equal(e.code, ERR_LIMIT);
    reference_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_families), cmocka_unit_test(test_zeros),
                                       cmocka_unit_test(test_threads), cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
