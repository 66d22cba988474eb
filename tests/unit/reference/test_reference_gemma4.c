// links: measure
/* The reference against the numbers that the published model code gave for Gemma 4: windows that prompts cross
 * many times, shared keys and values, both layouts, per_layer_config. */
#include "support.h"
#include <math.h>
#include "format/safetensors.h"
#include "measure/compare.h"
#include "reference/reference.h"

/* Float32 programs that sum in another order differ by less than this on these checkpoints. */
#define LOGIT_ERROR 3e-4
#define CLEAR_MARGIN 1e-3
/* Unoptimised and sanitized builds take shorter prompts, which still leave the windows behind. */
#ifdef __OPTIMIZE__
#define PROMPT_MAX 300
#else
#define PROMPT_MAX 64
#endif

struct golden {
    struct reference *reference;
    struct safetensors *tensors;
    const char *name;
};

static void golden_open(struct golden *g, const char *folder, const char *name)
{
    char *path = path_join(folder, name), *file = path_join(path, "golden.safetensors");
    struct reference_options o = {.n_threads = 2};
    g->name = name;
    ASSERT_OK(reference_open(&g->reference, path, &o, e));
    assert_string_equal(g->reference->family, "gemma4");
    ASSERT_OK(safetensors_open(&g->tensors, file, e));
    free(path);
    free(file);
}

static void golden_close(struct golden *g)
{
    reference_close(g->reference);
    safetensors_close(g->tensors);
}

/* A golden tensor, copied so that it is aligned; NULL when the checkpoint has no such prompt. */
static void *golden_take(const struct golden *g, const char *prompt, const char *what, int64_t *n)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%s", prompt, what);
    const struct st_tensor *t = safetensors_find(g->tensors, name);
    if (!t)
        return NULL;
    void *copy = xmalloc(t->bytes);
    memcpy(copy, t->data, t->bytes);
    if (n)
        *n = t->n_elems;
    return copy;
}

struct compared {
    const struct golden *g;
    const char *prompt;
    const int32_t *positions, *argmax;
    const float *logits, *margin;
    int64_t n_positions, i, n_called;
    double worst;
};

static bool compare_logits(void *context, int64_t position, const float *logits, struct err *e)
{
    struct compared *c = context;
    int64_t n = c->g->reference->vocab_size;
    struct logits_difference d;
    (void)e;
    assert_int_equal(position, c->n_called++);
    logits_compare(logits, logits, n, &d);
    if (c->margin[position] > CLEAR_MARGIN)
        assert_int_equal(d.reference_top, c->argmax[position]);
    if (c->i == c->n_positions || position != c->positions[c->i])
        return true;
    logits_compare(c->logits + c->i++ * n, logits, n, &d);
    c->worst = d.max_difference > c->worst ? d.max_difference : c->worst;
    if (!(d.max_difference <= LOGIT_ERROR))
        fail_msg("%s, %s: logits at position %lld differ by %g", c->g->name, c->prompt, (long long)position,
                 d.max_difference);
    return true;
}

static void check_prompt(const struct golden *g, const char *prompt)
{
    struct reference_session *s;
    int64_t n = 0;
    struct compared c = {.g = g, .prompt = prompt};
    int32_t *ids = golden_take(g, prompt, "ids", &n);
    if (!ids || n > PROMPT_MAX) {
        assert_true(ids || strcmp(prompt, "chat") == 0);
        free(ids);
        return;
    }
    int32_t *positions = golden_take(g, prompt, "positions", &c.n_positions);
    int32_t *argmax = golden_take(g, prompt, "argmax", NULL);
    float *logits = golden_take(g, prompt, "logits", NULL), *margin = golden_take(g, prompt, "margin", NULL);
    c.positions = positions;
    c.argmax = argmax;
    c.logits = logits;
    c.margin = margin;
    ASSERT_OK(reference_session_new(&s, g->reference, n, e));
    ASSERT_OK(reference_feed(s, ids, (size_t)n, compare_logits, &c, e));
    assert_int_equal(c.n_called, n);
    assert_int_equal(c.i, c.n_positions);
    printf("%s, %s: largest difference %.2g\n", g->name, prompt, c.worst);
    reference_session_free(s);
    free(ids);
    free(positions);
    free(argmax);
    free(logits);
    free(margin);
}

static void check_checkpoint(const char *folder, const char *name)
{
    static const char *const prompts[] = {"one", "five", "batch64", "chat", "long", "longer"};
    struct golden g;
    golden_open(&g, folder, name);
    for (size_t i = 0; i < sizeof prompts / sizeof prompts[0]; i++)
        check_prompt(&g, prompts[i]);
    golden_close(&g);
}

static void test_logits(void **state)
{
    (void)state;
    check_checkpoint(MILKIT_TEST_DATA "/models", "gemma4-window");
    check_checkpoint(MILKIT_TEST_DATA "/models", "gemma4-resaved");
}

static void test_logits_shared(void **state)
{
    (void)state;
    SKIP_WITHOUT_SHARED();
    check_checkpoint(MILKIT_SHARED "/models", "gemma4-tiny");
    check_checkpoint(MILKIT_SHARED "/models", "gemma4-noshare");
    check_checkpoint(MILKIT_SHARED "/models", "gemma4-kv2");
}

/* What the watch calls of one pass are compared with. */
struct watched {
    const float *layers, *embeddings; /* [n_layers, n, hidden_size], [n, hidden_size] */
    int64_t n_layers, hidden_size, n_seen;
    double worst;
};

static void on_rows(void *context, int64_t layer, int64_t position, int64_t n, const float *rows)
{
    struct watched *w = context;
    int64_t size = n * w->hidden_size;
    (void)position;
    w->n_seen++;
    if (layer == w->n_layers)
        return;
    const float *expected = layer < 0 ? w->embeddings : w->layers + layer * size;
    for (int64_t i = 0; i < size; i++) {
        double error = fabs((double)expected[i] - (double)rows[i]) / (1 + fabs((double)expected[i]));
        w->worst = error > w->worst ? error : w->worst;
    }
}

static void test_hidden(void **state)
{
    (void)state;
    static const char *const names[] = {"gemma4-window", "gemma4-resaved"};
    for (int i = 0; i < 2; i++) {
        struct golden g;
        struct reference_session *s;
        int64_t n = 0;
        golden_open(&g, MILKIT_TEST_DATA "/models", names[i]);
        int32_t *ids = golden_take(&g, "five", "ids", &n);
        float *layers = golden_take(&g, "five", "layer_out", NULL);
        float *embeddings = golden_take(&g, "five", "embeddings", NULL);
        struct watched w = {.layers = layers,
                            .embeddings = embeddings,
                            .n_layers = g.reference->n_layers,
                            .hidden_size = g.reference->hidden_size};
        ASSERT_OK(reference_session_new(&s, g.reference, n, e));
        reference_watch(s, on_rows, &w);
        ASSERT_OK(reference_feed(s, ids, (size_t)n, NULL, NULL, e));
        assert_int_equal(w.n_seen, w.n_layers + 2);
        assert_true(w.worst < 1e-4);
        reference_session_free(s);
        free(ids);
        free(layers);
        free(embeddings);
        golden_close(&g);
    }
}

/* Keys and values of a layer of each kind after a prompt; layers that share have none. */
static void test_states(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t layer;
        enum reference_state_kind kind;
    } cases[] = {{"layer0.keys", 0, REFERENCE_KEYS},
                 {"layer0.values", 0, REFERENCE_VALUES},
                 {"layer2.keys", 2, REFERENCE_KEYS},
                 {"layer2.values", 2, REFERENCE_VALUES}};
    struct golden g;
    struct reference_session *s;
    struct reference_state found;
    int64_t n = 0;
    golden_open(&g, MILKIT_TEST_DATA "/models", "gemma4-window");
    int32_t *ids = golden_take(&g, "long", "ids", &n);
    ASSERT_OK(reference_session_new(&s, g.reference, n + 3, e));
    ASSERT_OK(reference_feed(s, ids, (size_t)n, NULL, NULL, e));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t n_elems = 0;
        float *expected = golden_take(&g, "long", cases[i].name, &n_elems);
        assert_true(reference_state(s, cases[i].layer, cases[i].kind, &found));
        assert_int_equal(found.shape[1], n + 3);
        assert_int_equal(n_elems, n * found.shape[2]);
        for (int64_t k = 0; k < n_elems; k++)
            assert_true(fabs((double)expected[k] - (double)found.data[k]) < 1e-4);
        free(expected);
    }
    assert_false(reference_state(s, 4, REFERENCE_KEYS, &found));
    reference_session_free(s);
    free(ids);
    golden_close(&g);
}

/* Batches and threads only share the work: they change no bit, also where windows begin inside a batch. */
static void test_same_bits(void **state)
{
    (void)state;
    const char *path = MILKIT_TEST_DATA "/models/gemma4-window";
    struct reference *one, *three;
    struct reference_session *a, *b;
    int32_t ids[60];
    for (int i = 0; i < 60; i++)
        ids[i] = i * 37 % 301;
    ASSERT_OK(reference_open(&one, path, &(struct reference_options){.n_threads = 1}, e));
    ASSERT_OK(reference_open(&three, path, &(struct reference_options){.n_threads = 3}, e));
    ASSERT_OK(reference_session_new(&a, one, 60, e));
    ASSERT_OK(reference_session_new(&b, three, 60, e));
    ASSERT_OK(reference_feed(a, ids, 60, NULL, NULL, e));
    for (int i = 0; i < 60; i += 5)
        ASSERT_OK(reference_feed(b, ids + i, 5, NULL, NULL, e));
    assert_memory_equal(reference_logits(a), reference_logits(b), 301 * sizeof(float));
    reference_session_reset(a);
    ASSERT_OK(reference_feed(a, ids + 5, 3, NULL, NULL, e));
    reference_session_reset(b);
    for (int i = 5; i < 8; i++)
        ASSERT_OK(reference_feed(b, ids + i, 1, NULL, NULL, e));
    assert_memory_equal(reference_logits(a), reference_logits(b), 301 * sizeof(float));
    reference_session_free(a);
    reference_session_free(b);
    reference_close(one);
    reference_close(three);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits), cmocka_unit_test(test_logits_shared), cmocka_unit_test(test_hidden),
        cmocka_unit_test(test_states), cmocka_unit_test(test_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
