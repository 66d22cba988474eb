/* The reference's gradients against torch's (tests/data/gradients), and the same bits for any number of threads and any level of
 * instructions. */
#include <math.h>
#include "support.h"
#include "format/safetensors.h"
#include "reference/reference.h"

#define POINTS 64
#define HEAD 4
#define TOLERANCE 1e-4

static const char *const checkpoints[] = {
    "llama-rope3",   "llama-bias",       "qwen3-gqa8",         "qwen3-bias",    "qwen3-tiny",
    "qwen2-window",  "mistral-window",   "smollm3-list",       "gemma3-linear", "qwen3_moe-mixed",
    "qwen3_5-equal", "qwen3_5_moe-tiny", "qwen3_5_moe-random", "gemma4-window", "gemma4-resaved",
};
#define N_CHECKPOINTS ((int)(sizeof checkpoints / sizeof checkpoints[0]))

/* ---- collecting ---- */

/* All gradients of a tensor: of the first text, and squares over texts. */
struct tensor {
    char *key;
    int64_t n;
    float *first, *squares;
    int64_t n_given; /* numbers, of one text */
};

struct collection {
    struct tensor list[512];
    int n;
    bool is_first, is_head;
    const struct safetensors *files; /* NULL: every tensor's size is what is asked for */
};

/* What the end of a name is in the files of gradients. */
static const char *end_of(const char *name, bool is_head)
{
    const char *layers = strstr(name, "layers.");
    if (is_head)
        return "lm_head.weight";
    if (layers)
        return layers;
    const char *dot = strrchr(name, '.');
    while (dot > name && dot[-1] != '.')
        dot--;
    return dot;
}

static int64_t find(void *context, const char *name, int64_t begin, int64_t n)
{
    struct collection *c = context;
    const char *key = end_of(name, c->is_head);
    const struct st_tensor *t = safetensors_find(c->files, name);
    assert_non_null(t);
    assert_true(begin >= 0 && begin + n <= t->n_elems);
    for (int i = 0; i < c->n; i++)
        if (strcmp(c->list[i].key, key) == 0)
            return i;
    assert_true(c->n < 512);
    c->list[c->n] = (struct tensor){.key = strdup(key),
                                    .n = t->n_elems,
                                    .first = calloc((size_t)t->n_elems, sizeof(float)),
                                    .squares = calloc((size_t)t->n_elems, sizeof(float))};
    return c->n++;
}

static void give(void *context, int64_t handle, int64_t begin, int64_t n, const float *values)
{
    struct collection *c = context;
    struct tensor *t = &c->list[handle];
    for (int64_t i = 0; i < n; i++) {
        if (c->is_first)
            t->first[begin + i] = values[i];
        t->squares[begin + i] += values[i] * values[i];
    }
}

static void collect(struct collection *c, const char *name, const int32_t *tokens, int64_t n, int64_t n_text,
                    int n_threads, bool is_first)
{
    char *path = xasprintf("%s/models/%s", MILKIT_TEST_DATA, name);
    struct reference_options options = {.n_threads = n_threads};
    struct reference *r;
    struct reference_gradients *p;
    struct safetensors *files;
    struct reference_gradient_sink sink = {c, find, give};
    c->is_first = is_first;
    ASSERT_OK(safetensors_open(&files, path, e));
    c->files = files;
    ASSERT_OK(reference_open(&r, path, &options, e));
    ASSERT_OK(
        reference_gradients_new(&p, r, tokens, (size_t)n, (size_t)n_text, n_threads % 2 ? NULL : ".", e));
    for (int64_t layer = r->n_layers; layer >= -1; layer--) {
        assert_int_equal(reference_gradients_layer(p), layer);
        c->is_head = layer == r->n_layers;
        ASSERT_OK(reference_gradients_next(p, &sink, e));
    }
    assert_true(reference_gradients_loss(p) > 0);
    struct err e = {0};
    assert_false(reference_gradients_next(p, &sink, &e));
    assert_int_equal(e.code, ERR_BUG);
    reference_gradients_free(p);
    reference_close(r);
    safetensors_close(files);
    free(path);
}

static void release(struct collection *c)
{
    for (int i = 0; i < c->n; i++) {
        free(c->list[i].key);
        free(c->list[i].first);
        free(c->list[i].squares);
    }
    c->n = 0;
}

/* ---- torch ---- */

static double norm_of(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

static double sum_of(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i];
    return sum;
}

/* The largest relative error of what is known of x: of its norm, of its sum by the norm, of the places by their norm or what it
 * would be if they were like the others: a table has places that are next to zero. */
static double compare(const float *x, int64_t n, const double *head, const double *points)
{
    double norm = head[0] > 0 ? head[0] : 1, wrong = 0, right = 0;
    double worst = fabs(norm_of(x, n) - head[0]) / norm;
    double of_sum = fabs(sum_of(x, n) - head[1]) / (norm * sqrt((double)n));
    for (uint64_t k = 0; k < POINTS; k++) {
        double found = (double)x[(k * 2654435761u + 12345u) % (uint64_t)n];
        wrong += (found - points[k]) * (found - points[k]);
        right += points[k] * points[k];
    }
    double usual = norm * norm * POINTS / (double)n;
    double of_points = sqrt(wrong / (right > usual ? right : usual));
    worst = of_sum > worst ? of_sum : worst;
    return of_points > worst ? of_points : worst;
}

static void check_torch(const char *name)
{
    struct collection *c = calloc(1, sizeof *c), *later = calloc(1, sizeof *later);
    char *path = xasprintf("%s/gradients/%s.safetensors", MILKIT_TEST_DATA, name);
    struct safetensors *golden;
    int32_t tokens[256], n_text;
    double worst = 0;
    const char *which = "";
    ASSERT_OK(safetensors_open(&golden, path, e));
    const struct st_tensor *t = safetensors_find(golden, "tokens");
    int64_t n = t->n_elems;
    assert_true(n <= 256);
    memcpy(tokens, t->data, (size_t)n * sizeof tokens[0]);
    memcpy(&n_text, safetensors_find(golden, "length")->data, sizeof n_text);
    collect(c, name, tokens, n_text, n_text, 2, true);
    collect(later, name, tokens, n, n_text, 2, false);
    assert_int_equal(c->n, later->n);
    int n_found = 0;
    for (int i = 0; i < golden->n_tensors; i++) {
        const struct st_tensor *g = &golden->tensors[i];
        double numbers[HEAD + 2 * POINTS];
        if (g->dtype != ST_F64)
            continue;
        assert_int_equal(g->n_elems, HEAD + 2 * POINTS);
        memcpy(numbers, g->data, sizeof numbers);
        int before = n_found;
        for (int k = 0; k < c->n; k++) {
            if (strcmp(c->list[k].key, g->name) != 0)
                continue;
            assert_string_equal(later->list[k].key, g->name);
            double of_first = compare(c->list[k].first, c->list[k].n, numbers, numbers + HEAD);
            double of_squares =
                compare(later->list[k].squares, c->list[k].n, numbers + 2, numbers + HEAD + POINTS);
            n_found++;
            if (of_first > TOLERANCE || of_squares > TOLERANCE)
                printf("%s %s: gradient %.2e, squares %.2e\n", name, g->name, of_first, of_squares);
            double both = of_first > of_squares ? of_first : of_squares;
            if (both > worst) {
                worst = both;
                which = g->name;
            }
        }
        if (n_found == before)
            printf("%s: not told of\n", g->name);
    }
    printf("%s: %d of %d matrices, largest error %.2e (%s)\n", name, n_found, golden->n_tensors - 2, worst,
           which);
    assert_int_equal(n_found, golden->n_tensors - 2);
    assert_true(worst <= TOLERANCE);
    release(c);
    release(later);
    free(c);
    free(later);
    safetensors_close(golden);
    free(path);
}

static void test_torch(void **unused)
{
    (void)unused;
    for (int i = 0; i < N_CHECKPOINTS; i++)
        check_torch(checkpoints[i]);
}

/* ---- the same bits ---- */

static void check_same(const char *name, const struct collection *first, int n_threads, int64_t n_text)
{
    struct collection *again = calloc(1, sizeof *again);
    int32_t tokens[75];
    for (int i = 0; i < 75; i++)
        tokens[i] = (i * i * 7 + 11 * i + 3) % 280;
    collect(again, name, tokens, 75, n_text, n_threads, false);
    assert_int_equal(again->n, first->n);
    for (int i = 0; i < again->n; i++)
        assert_memory_equal(again->list[i].squares, first->list[i].squares,
                            (size_t)first->list[i].n * sizeof(float));
    release(again);
    free(again);
}

static void test_threads_and_levels(void **unused)
{
    (void)unused;
    static const char *const names[] = {"llama-rope3", "gemma4-window", "qwen3_5_moe-random"};
    for (int i = 0; i < 3; i++) {
        struct collection *c = calloc(1, sizeof *c);
        int32_t tokens[75];
        for (int k = 0; k < 75; k++)
            tokens[k] = (k * k * 7 + 11 * k + 3) % 280;
        collect(c, names[i], tokens, 75, 31, 1, false);
        for (int n_threads = 2; n_threads <= 5; n_threads++)
            check_same(names[i], c, n_threads, 31);
        assert_int_equal(setenv("MILKIT_CPU", "scalar", 1), 0);
        check_same(names[i], c, 2, 31);
        assert_int_equal(unsetenv("MILKIT_CPU"), 0);
        release(c);
        free(c);
    }
}

static void test_refusals(void **unused)
{
    (void)unused;
    char *path = xasprintf("%s/models/qwen3-gqa8", MILKIT_TEST_DATA);
    struct reference_options options = {.n_threads = 1};
    struct reference *r;
    struct reference_gradients *p;
    struct err e = {0};
    ASSERT_OK(reference_open(&r, path, &options, e));
    int32_t tokens[] = {1, (int32_t)r->vocab_size};
    assert_false(reference_gradients_new(&p, r, tokens, 2, 2, NULL, &e));
    assert_int_equal(e.code, ERR_USAGE);
    assert_null(p);
    e = (struct err){0};
    assert_false(reference_gradients_new(&p, r, tokens, 0, 2, NULL, &e));
    assert_int_equal(e.code, ERR_USAGE);
    /* A token without one that follows has no loss, and nobody need look. */
    ASSERT_OK(reference_gradients_new(&p, r, tokens, 1, 2, NULL, e));
    for (int64_t i = r->n_layers; i >= -1; i--)
        ASSERT_OK(reference_gradients_next(p, NULL, e));
    assert_true(reference_gradients_loss(p) == 0);
    reference_gradients_free(p);
    reference_gradients_free(NULL);
    reference_close(r);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_torch),
                                       cmocka_unit_test(test_threads_and_levels),
                                       cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
