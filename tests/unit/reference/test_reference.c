/* The reference against the numbers that the published model code gave for checkpoints of every family. */
// links: measure tokenizer
#include "support.h"
#include <math.h>
#include "format/safetensors.h"
#include "format/json.h"
#include "measure/compare.h"
#include "reference/reference.h"
#include "tokenizer/tokenizer.h"

#define MODELS MILKIT_TEST_DATA "/models/"
/* Float32 programs that sum in another order differ by less than this on these checkpoints. */
#define LOGIT_ERROR 3e-4
#define CLEAR_MARGIN 1e-3
/* Unoptimised and sanitized builds are forty times slower: they take shorter prompts and part of the text. */
#ifdef __OPTIMIZE__
#define N_WINDOWS 8
#define N_GREEDY 32
#define PROMPT_MAX 300
#else
#define N_WINDOWS 1
#define N_GREEDY 8
#define PROMPT_MAX 64
#endif

static const char *const checkpoints[] = {
    "qwen3-tiny",       "qwen3-gqa8",    "qwen3-bias",     "qwen3_5-equal", "qwen3_5_moe-random",
    "qwen3_5_moe-tiny", "llama-rope3",   "llama-bias",     "qwen2-window",  "mistral-window",
    "smollm3-list",     "gemma3-linear", "qwen3_moe-mixed"};
static const char *const prompts[] = {"one", "five", "batch64", "chat", "long", "longer"};
#define N_CHECKPOINTS ((int)(sizeof checkpoints / sizeof checkpoints[0]))
#define N_PROMPTS 6

struct golden {
    struct reference *reference;
    struct safetensors *tensors;
    const char *name;
};

static void golden_open(struct golden *g, int i)
{
    char path[512];
    struct reference_options o = {.n_threads = 2};
    g->name = checkpoints[i];
    snprintf(path, sizeof path, MODELS "%s", g->name);
    ASSERT_OK(reference_open(&g->reference, path, &o, e));
    snprintf(path, sizeof path, MODELS "%s/golden.safetensors", g->name);
    ASSERT_OK(safetensors_open(&g->tensors, path, e));
}

static void golden_close(struct golden *g)
{
    reference_close(g->reference);
    safetensors_close(g->tensors);
}

/* A golden tensor, copied so that it is aligned; NULL when the checkpoint has no such prompt. */
static void *golden_take(const struct golden *g, const char *prompt, const char *what, enum st_dtype dtype,
                         int64_t *n)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%s", prompt, what);
    const struct st_tensor *t = safetensors_find(g->tensors, name);
    if (!t)
        return NULL;
    assert_int_equal(t->dtype, dtype);
    void *copy = malloc(t->bytes);
    memcpy(copy, t->data, t->bytes);
    if (n)
        *n = t->n_elems;
    return copy;
}

struct compared {
    const struct golden *g;
    const char *prompt;
    const int32_t *positions, *argmax;
    const float *logits, *margin, *log_sum;
    int64_t n_positions, i, n_called;
    double worst;
};

static bool compare_logits(void *context, int64_t position, const float *logits, struct err *e)
{
    struct compared *c = context;
    int64_t n = c->g->reference->vocab_size;
    struct logits_difference d;
    double sum = 0;
    (void)e;
    assert_int_equal(position, c->n_called++);
    logits_compare(logits, logits, n, &d);
    for (int64_t i = 0; i < n; i++)
        sum += exp((double)(logits[i] - logits[d.reference_top]));
    assert_true(fabs(log(sum) + (double)logits[d.reference_top] - (double)c->log_sum[position]) <
                LOGIT_ERROR);
    assert_true(fabs(d.margin - (double)c->margin[position]) < 2 * LOGIT_ERROR);
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

static void test_logits(void **state)
{
    (void)state;
    for (int i = 0; i < N_CHECKPOINTS; i++) {
        struct golden g;
        golden_open(&g, i);
        for (int k = 0; k < N_PROMPTS; k++) {
            struct reference_session *s;
            int64_t n = 0;
            int32_t *ids = golden_take(&g, prompts[k], "ids", ST_I32, &n);
            if (!ids)
                assert_string_equal(prompts[k], "chat");
            if (!ids || n > PROMPT_MAX) {
                free(ids);
                continue;
            }
            struct compared c = {.g = &g, .prompt = prompts[k]};
            int32_t *positions = golden_take(&g, prompts[k], "positions", ST_I32, &c.n_positions);
            int32_t *argmax = golden_take(&g, prompts[k], "argmax", ST_I32, NULL);
            float *logits = golden_take(&g, prompts[k], "logits", ST_F32, NULL);
            float *margin = golden_take(&g, prompts[k], "margin", ST_F32, NULL);
            float *log_sum = golden_take(&g, prompts[k], "logsumexp", ST_F32, NULL);
            c.positions = positions, c.argmax = argmax, c.logits = logits, c.margin = margin,
            c.log_sum = log_sum;
            ASSERT_OK(reference_session_new(&s, g.reference, n, e));
            ASSERT_OK(reference_feed(s, ids, (size_t)n, compare_logits, &c, e));
            assert_int_equal(c.n_called, n);
            assert_int_equal(c.i, c.n_positions);
            assert_int_equal(reference_session_position(s), n);
            printf("%s, %s: largest difference %.2g\n", g.name, prompts[k], c.worst);
            reference_session_free(s);
            free(ids), free(positions), free(argmax), free(logits), free(margin), free(log_sum);
        }
        golden_close(&g);
    }
}

static int32_t best_of(const float *logits, int64_t n)
{
    struct logits_difference d;
    logits_compare(logits, logits, n, &d);
    return d.reference_top;
}

static void test_greedy(void **state)
{
    (void)state;
    for (int i = 0; i < N_CHECKPOINTS; i++) {
        struct golden g;
        int n_same = 0;
        golden_open(&g, i);
        for (int k = 0; k < N_PROMPTS; k++) {
            struct reference_session *s;
            int64_t n = 0, n_greedy = 0;
            int32_t *ids = golden_take(&g, prompts[k], "ids", ST_I32, &n);
            if (!ids || n > PROMPT_MAX) {
                free(ids);
                continue;
            }
            int32_t *greedy = golden_take(&g, prompts[k], "greedy", ST_I32, &n_greedy);
            float *margin = golden_take(&g, prompts[k], "greedy_margin", ST_F32, NULL);
            assert_int_equal(n_greedy, 32);
            ASSERT_OK(reference_session_new(&s, g.reference, n + n_greedy, e));
            ASSERT_OK(reference_feed(s, ids, (size_t)n, NULL, NULL, e));
            for (int64_t j = 0; j < N_GREEDY && margin[j] > CLEAR_MARGIN; j++) {
                int32_t id = best_of(reference_logits(s), g.reference->vocab_size);
                assert_int_equal(id, greedy[j]);
                n_same++;
                ASSERT_OK(reference_feed(s, &id, 1, NULL, NULL, e));
            }
            reference_session_free(s);
            free(ids), free(greedy), free(margin);
        }
        /* not silently cut short by small margins */
        assert_true(n_same >= 3 * N_GREEDY);
        golden_close(&g);
    }
}

/* What one watch call is compared with: [n_layers][n][hidden_size], or one of them. */
struct watched {
    const float *layers, *embeddings, *final;
    int64_t n_layers, hidden_size, n_seen;
    double worst;
};

static void compare_rows(struct watched *w, const float *expected, const float *rows, int64_t n)
{
    for (int64_t i = 0; expected && i < n; i++) {
        double error = fabs((double)expected[i] - (double)rows[i]) / (1 + fabs((double)expected[i]));
        w->worst = error > w->worst ? error : w->worst;
    }
}

static void on_rows(void *context, int64_t layer, int64_t position, int64_t n, const float *rows)
{
    struct watched *w = context;
    int64_t size = n * w->hidden_size;
    w->n_seen++;
    if (layer == -1)
        compare_rows(w, w->embeddings, rows, size);
    else if (layer < w->n_layers)
        compare_rows(w, w->layers ? w->layers + layer * size : NULL, rows, size);
    else
        compare_rows(w, w->final ? w->final + position * w->hidden_size : NULL, rows, size);
}

static void test_hidden(void **state)
{
    (void)state;
    for (int i = 0; i < N_CHECKPOINTS; i++) {
        struct golden g;
        struct reference_session *s;
        int64_t n = 0;
        golden_open(&g, i);
        int32_t *ids = golden_take(&g, "five", "ids", ST_I32, &n);
        float *layers = golden_take(&g, "five", "layer_out", ST_F32, NULL);
        float *embeddings = golden_take(&g, "five", "embeddings", ST_F32, NULL);
        struct watched w = {.layers = layers,
                            .embeddings = embeddings,
                            .n_layers = g.reference->n_layers,
                            .hidden_size = g.reference->hidden_size};
        assert_non_null(layers);
        assert_non_null(embeddings);
        ASSERT_OK(reference_session_new(&s, g.reference, 300, e));
        reference_watch(s, on_rows, &w);
        ASSERT_OK(reference_feed(s, ids, (size_t)n, NULL, NULL, e));
        assert_int_equal(w.n_seen, w.n_layers + 2);
        assert_true(w.worst < 1e-4);
        free(ids), free(layers), free(embeddings);
        /* long: more than one batch */
        ids = golden_take(&g, "long", "ids", ST_I32, &n);
        float *final = golden_take(&g, "long", "hidden", ST_F32, NULL);
        assert_non_null(final);
        w = (struct watched){.final = final, .n_layers = w.n_layers, .hidden_size = w.hidden_size};
        reference_session_reset(s);
        ASSERT_OK(reference_feed(s, ids, (size_t)n, NULL, NULL, e));
        assert_true(w.n_seen > w.n_layers + 2);
        assert_true(w.worst < 1e-4);
        free(ids), free(final);
        reference_session_free(s);
        golden_close(&g);
    }
}

/* Batches and threads only share the work: they change no bit. */
static void test_same_bits(void **state)
{
    (void)state;
    char path[512];
    struct reference *one, *three;
    struct reference_session *a, *b;
    snprintf(path, sizeof path, MODELS "qwen3-bias");
    ASSERT_OK(reference_open(&one, path, &(struct reference_options){.n_threads = 1}, e));
    ASSERT_OK(reference_open(&three, path, &(struct reference_options){.n_threads = 3}, e));
    ASSERT_OK(reference_session_new(&a, one, 150, e));
    ASSERT_OK(reference_session_new(&b, three, 140, e));
    int32_t ids[140];
    for (int i = 0; i < 140; i++)
        ids[i] = i * 37 % 413;
    ASSERT_OK(reference_feed(a, ids, 140, NULL, NULL, e));
    for (int i = 0; i < 140; i += 7)
        ASSERT_OK(reference_feed(b, ids + i, 7, NULL, NULL, e));
    assert_memory_equal(reference_logits(a), reference_logits(b), 413 * sizeof(float));
    /* an old context leaves nothing behind */
    reference_session_reset(a);
    ASSERT_OK(reference_feed(a, ids + 5, 3, NULL, NULL, e));
    reference_session_reset(b);
    ASSERT_OK(reference_feed(b, ids + 5, 2, NULL, NULL, e));
    ASSERT_OK(reference_feed(b, ids + 7, 1, NULL, NULL, e));
    assert_memory_equal(reference_logits(a), reference_logits(b), 413 * sizeof(float));
    /* nothing is done when the tokens do not fit or are none */
    struct err e = {0};
    assert_false(reference_feed(b, ids, 138, NULL, NULL, &e));
    assert_int_equal(e.code, ERR_LIMIT);
    assert_int_equal(reference_session_position(b), 3);
    int32_t wrong[2] = {1, 413};
    assert_false(reference_feed(b, wrong, 2, NULL, NULL, &e));
    assert_int_equal(e.code, ERR_USAGE);
    assert_int_equal(reference_session_position(b), 3);
    reference_session_free(a);
    reference_session_free(b);
    reference_close(one);
    reference_close(three);
}

struct scored {
    const int32_t *ids;
    int64_t n, vocab_size;
    double nll;
};

static bool score(void *context, int64_t position, const float *logits, struct err *e)
{
    struct scored *w = context;
    double sum = 0, best = -INFINITY;
    (void)e;
    if (position + 1 >= w->n)
        return true;
    for (int64_t i = 0; i < w->vocab_size; i++)
        best = fmax(best, (double)logits[i]);
    for (int64_t i = 0; i < w->vocab_size; i++)
        sum += exp((double)logits[i] - best);
    w->nll += log(sum) + best - (double)logits[w->ids[position + 1]];
    return true;
}

static void test_perplexity(void **state)
{
    (void)state;
    struct golden g;
    struct reference_session *s;
    struct tokenizer *t;
    struct ids ids = {0};
    cJSON *json;
    char *text;
    size_t bytes;
    golden_open(&g, 0);
    ASSERT_OK(tokenizer_open(&t, MODELS "qwen3-tiny", e));
    ASSERT_OK(file_read(&text, &bytes, MODELS "eval.txt", 1 << 20, e));
    ASSERT_OK(tokenizer_encode(t, text, bytes, true, &ids, e));
    ASSERT_OK(json_read_file(&json, MODELS "qwen3-tiny/golden.json", 1 << 20, e));
    const cJSON *perplexity = json_get(json, "perplexity");
    const cJSON *windows = json_get(perplexity, "predictions_and_nll_of_each_window");
    int64_t n_tokens = 0, window = 0, n_predicted = 0;
    double nll = 0, expected_nll = 0;
    ASSERT_OK(json_get_int(perplexity, "tokens", &n_tokens, "golden", e));
    ASSERT_OK(json_get_int(perplexity, "window", &window, "golden", e));
    assert_int_equal(cJSON_GetArraySize(windows), 8);
    assert_true((int64_t)ids.n >= n_tokens);
    ASSERT_OK(reference_session_new(&s, g.reference, window, e));
    for (int i = 0; i < N_WINDOWS; i++) {
        int64_t at = i * window, n = n_tokens - at < window ? n_tokens - at : window;
        const cJSON *expected = cJSON_GetArrayItem(windows, i);
        struct scored w = {.ids = ids.p + at, .n = n, .vocab_size = g.reference->vocab_size};
        reference_session_reset(s);
        ASSERT_OK(reference_feed(s, w.ids, (size_t)n, score, &w, e));
        assert_int_equal(cJSON_GetArrayItem(expected, 0)->valuedouble, n - 1);
        double window_nll = cJSON_GetArrayItem(expected, 1)->valuedouble;
        assert_true(fabs(w.nll / window_nll - 1) < 1e-4);
        nll += w.nll;
        expected_nll += window_nll;
        n_predicted += n - 1;
    }
    double found = exp(nll / (double)n_predicted), wanted = exp(expected_nll / (double)n_predicted);
    if (N_WINDOWS == 8)
        ASSERT_OK(json_get_double(perplexity, "value", &wanted, "golden", e));
    printf("perplexity %.6f, expected %.6f\n", found, wanted);
    assert_true(fabs(found / wanted - 1) < 1e-4);
    reference_session_free(s);
    ids_free(&ids);
    free(text);
    cJSON_Delete(json);
    tokenizer_free(t);
    golden_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits),    cmocka_unit_test(test_greedy),     cmocka_unit_test(test_hidden),
        cmocka_unit_test(test_same_bits), cmocka_unit_test(test_perplexity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
