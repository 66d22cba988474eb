// links: convert
/* What fixed point costs in logits: a trained checkpoint with packed weights, in the default precision against the same
 * package op by op in float32, where weights are expanded and caches are not rounded. */
#include "sequential.h"

enum { CONTEXT = 256, BATCH = 64 };

static const char *const prompts[] = {"chat", "batch64"};

static struct rows run_rows(const char *path, enum model_precision precision, const int32_t *ids, size_t n)
{
    struct model *m = NULL;
    struct session *s = NULL;
    ASSERT_OK(model_open(&m, path, &(struct model_options){.n_threads = 1, .precision = precision}, e));
    ASSERT_OK(session_new(&s, m, e));
    struct rows rows = rows_feed(s, m, ids, n, SESSION_INFER_ONLY);
    session_free(s);
    model_close(m);
    return rows;
}

/* The Kullback-Leibler divergence of the distributions of two rows of logits, in nats. */
static double divergence(const float *truth, const float *row, int64_t n)
{
    double most[2] = {truth[0], row[0]}, sum[2] = {0, 0}, result = 0;
    for (int64_t i = 1; i < n; i++) {
        most[0] = fmax(most[0], (double)truth[i]);
        most[1] = fmax(most[1], (double)row[i]);
    }
    for (int64_t i = 0; i < n; i++) {
        sum[0] += exp((double)truth[i] - most[0]);
        sum[1] += exp((double)row[i] - most[1]);
    }
    for (int64_t i = 0; i < n; i++) {
        double p = (double)truth[i] - most[0] - log(sum[0]), q = (double)row[i] - most[1] - log(sum[1]);
        result += exp(p) * (p - q);
    }
    return result;
}

static void check(const struct quant_spec *spec, const char *model)
{
    char *checkpoint = xasprintf("%s/models/%s", MILKIT_TEST_DATA, model), what[64];
    char *package = path_join(packages_scratch, "package");
    struct convert_options o = {.checkpoint = checkpoint,
                                .output = package,
                                .settings = {.context_length = CONTEXT, .batch_size = BATCH, .n_chunks = 1},
                                .ffn = *spec,
                                .head = *spec,
                                .format = CONVERT_MLMODELC,
                                .n_threads = 1};
    struct convert_report report;
    struct safetensors *golden = golden_open(model);
    double lowest = 1, sum = 0;
    size_t n_positions = 0;
    ASSERT_OK(convert_run(&o, &report, e));
    convert_report_fini(&report);
    quant_describe(what, spec);
    for (size_t i = 0; i < sizeof prompts / sizeof *prompts; i++) {
        size_t n;
        int32_t *ids = golden_ints(golden, prompts[i], "ids", &n);
        struct rows rows = run_rows(package, PRECISION_DEFAULT, ids, n);
        struct rows truth = run_rows(package, PRECISION_FP32, ids, n);
        assert_int_equal(rows.n, truth.n);
        for (size_t k = 0; k < rows.n; k++) {
            const float *a = truth.logits + k * (size_t)truth.vocab_size,
                        *b = rows.logits + k * (size_t)rows.vocab_size;
            lowest = fmin(lowest, row_cosine(a, b, rows.vocab_size));
            sum += divergence(a, b, rows.vocab_size);
        }
        n_positions += rows.n;
        rows_free(&rows);
        rows_free(&truth);
        free(ids);
    }
    printf("%s: lowest cosine %.9f, mean divergence %.3g nats over %zu positions\n", what, lowest,
           sum / (double)n_positions, n_positions);
    assert_true(lowest >= 0.99998);
    assert_true(sum / (double)n_positions <= 2e-5);
    safetensors_close(golden);
    ASSERT_OK(path_remove_tree(package, e));
    free(package);
    free(checkpoint);
}

static void test_palettes(void **state)
{
    (void)state;
    static const struct {
        int bits, group;
    } cases[] = {{2, 8}, {4, 8}, {6, 8}, {8, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check(&(struct quant_spec){.kind = QUANT_LUT, .bits = cases[i].bits, .group = cases[i].group},
              "qwen3-tiny");
}

static void test_integers(void **state)
{
    (void)state;
    check(&(struct quant_spec){.kind = QUANT_INT8, .bits = 8, .group = 1}, "qwen3-tiny");
    check(&(struct quant_spec){.kind = QUANT_INT4, .bits = 4, .block = 32}, "qwen3-tiny");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_palettes),
        cmocka_unit_test(test_integers),
    };
    return cmocka_run_group_tests(tests, packages_setup, packages_teardown);
}
