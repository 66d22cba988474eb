/* Where the numbers of a weight lie in the checkpoint: runs put together are the weight, for every layout. */
#include "support.h"
#include "arch/family.h"
#include "base/half.h"

static const char *const checkpoints[] = {"qwen3-bias", "qwen3_5-equal", "qwen3_5_moe-random",
                                          "gemma4-window"};
#define N_CHECKPOINTS 4

/* Pieces that end anywhere must be the same numbers as the whole. */
static void check_weight(const struct mil_value *v, bool *is_scaled, bool *is_cut)
{
    f16 *whole = malloc((size_t)v->n_elems * sizeof *whole);
    ASSERT_OK(v->weight->produce(v->weight, 0, v->n_elems, whole, e));
    for (int64_t at = 0; at < v->n_elems;) {
        struct arch_run run;
        int64_t n = v->n_elems - at < 1000 ? v->n_elems - at : 1000;
        assert_true(arch_find_run(v->weight, at, n, &run));
        assert_true(run.begin == at && run.n > 0 && run.n <= n && run.at >= 0 &&
                    run.at + run.n <= run.tensor->n_elems);
        double *numbers = malloc((size_t)run.n * sizeof *numbers);
        ASSERT_OK(st_read_f64(run.tensor, run.at, run.n, numbers, e));
        for (int64_t i = 0; i < run.n; i++)
            assert_int_equal(whole[at + i], f64_to_f16(numbers[i] * run.factor));
        free(numbers);
        *is_scaled = *is_scaled || run.factor != 1.0;
        *is_cut = *is_cut || run.n < n;
        at += run.n;
    }
    free(whole);
}

static void test_runs(void **unused)
{
    (void)unused;
    struct arch_settings s = {.context_length = 64, .batch_size = 8, .n_chunks = 1, .split_lm_head = 1};
    bool is_scaled = false, is_cut = false;
    for (int k = 0; k < N_CHECKPOINTS; k++) {
        char *folder = xasprintf("%s/models/%s", MILKIT_TEST_DATA, checkpoints[k]);
        char *path = path_join(folder, "config.json");
        cJSON *config = NULL;
        struct safetensors *tensors;
        struct arch_model *model;
        int n_weights = 0;
        ASSERT_OK(json_read_file(&config, path, 1 << 20, e));
        ASSERT_OK(safetensors_open(&tensors, folder, e));
        ASSERT_OK(arch_open(&model, folder, config, tensors, &s, e));
        struct mil_model *m = mil_model_new(9);
        ASSERT_OK(model->family->build_chunk(model, 0, m, e));
        const struct mil_block *block = m->program->functions[0]->block;
        for (int i = 0; i < block->n_ops; i++) {
            const struct mil_value *v =
                mil_op_is(block->ops[i], "const") ? mil_attribute(block->ops[i], "val") : NULL;
            if (!v || v->kind != MIL_VALUE_WEIGHT || v->type->rank != 4)
                continue;
            struct arch_run run;
            if (!arch_find_run(v->weight, 0, 1, &run)) {
                /* Not a tensor's numbers: masks and the like, which stay fp16. */
                assert_null(strstr(v->weight->name, "_proj"));
                continue;
            }
            check_weight(v, &is_scaled, &is_cut);
            n_weights++;
        }
        assert_true(n_weights >= 7 * model->n_layers / 2);
        mil_model_close(m);
        arch_close(model);
        safetensors_close(tensors);
        cJSON_Delete(config);
        free(path);
        free(folder);
    }
    assert_true(is_scaled && is_cut);
}

/* Rows that hold the numbers of another one: first, last, neighbours, and the replacement itself among them. */
static void test_replaced_rows(void **unused)
{
    (void)unused;
    enum { ROWS = 413 };
    static const int64_t replaced[] = {412, 0, 7, 8};
    char *folder = xasprintf("%s/models/qwen3-bias", MILKIT_TEST_DATA);
    struct safetensors *tensors;
    ASSERT_OK(safetensors_open(&tensors, folder, e));
    const struct st_tensor *t = safetensors_find(tensors, "model.embed_tokens.weight");
    int64_t dims[2] = {t->shape[0], t->shape[1]}, rows = dims[0], columns = dims[1];
    struct arch_layout l = arch_layout_of(&t, rows, columns);
    struct mil_model *m = mil_model_new(9);
    l.replaced = replaced;
    l.n_replaced = 4;
    l.replacement = 8;
    assert_int_equal(rows, ROWS);
    const struct mil_value *v = arch_layout_weight(m, &l, 2, dims);
    f16 *whole = malloc((size_t)v->n_elems * sizeof *whole), *own = malloc((size_t)v->n_elems * sizeof *own);
    ASSERT_OK(v->weight->produce(v->weight, 0, v->n_elems, whole, e));
    ASSERT_OK(st_read_f16(t, 0, v->n_elems, own, e));
    for (int64_t row = 0; row < rows; row++) {
        bool is_replaced = row == 412 || row == 0 || row == 7 || row == 8;
        assert_memory_equal(whole + row * columns, own + (is_replaced ? 8 : row) * columns,
                            (size_t)columns * sizeof *own);
    }
    /* Pieces that begin and end anywhere. */
    f16 *part = malloc((size_t)v->n_elems * sizeof *part);
    for (int64_t at = 0, n = 1; at < v->n_elems; at += n, n = n * 5 % 997) {
        int64_t count = v->n_elems - at < n ? v->n_elems - at : n;
        ASSERT_OK(v->weight->produce(v->weight, at, count, part, e));
        assert_memory_equal(part, whole + at, (size_t)count * sizeof *part);
    }
    bool is_scaled = false, is_cut = false;
    check_weight(v, &is_scaled, &is_cut);
    free(part);
    free(own);
    free(whole);
    mil_model_close(m);
    safetensors_close(tensors);
    free(folder);
}

static void test_others(void **unused)
{
    (void)unused;
    struct mil_weight w = {.name = "made up"};
    struct arch_run run;
    assert_false(arch_find_run(&w, 0, 1, &run));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_runs), cmocka_unit_test(test_replaced_rows),
                                       cmocka_unit_test(test_others)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
