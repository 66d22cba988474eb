/* No weight that isn't a finite number gets into a package: each tensor of each family is damaged in turn, and building
 * the programs or producing their weights names it. */
#include "support.h"
#include "arch/family.h"

static bool produce(const struct mil_value *v, struct err *e)
{
    if (!v || v->kind != MIL_VALUE_WEIGHT)
        return true;
    void *data = xmalloc(v->bytes + 1);
    bool ok = v->weight->produce(v->weight, 0, v->n_elems, data, e);
    free(data);
    return ok;
}

static bool produce_all(const struct mil_model *m, struct err *e)
{
    bool ok = true;
    for (int f = 0; f < m->program->n_functions; f++) {
        const struct mil_block *block = m->program->functions[f]->block;
        for (int i = 0; i < block->n_ops && ok; i++) {
            const struct mil_op *op = block->ops[i];
            for (int a = 0; a < op->n_attributes && ok; a++)
                ok = produce(op->attributes[a].value, e);
            for (int a = 0; a < op->n_args && ok; a++) {
                for (int k = 0; k < op->args[a].n && ok; k++)
                    ok = produce(op->args[a].bindings[k].value, e);
            }
        }
    }
    return ok;
}

/* Everything that a conversion asks the family for. */
static bool build_all(struct arch_model *model, struct err *e)
{
    bool ok = true;
    for (int part = 0; part < 3 && ok; part++) {
        struct mil_model *m = mil_model_new(9);
        ok = (part == 0   ? model->family->build_embeddings(model, m, e)
              : part == 1 ? model->family->build_chunk(model, 0, m, e)
                          : model->family->build_head(model, m, e)) &&
             produce_all(m, e);
        mil_model_close(m);
    }
    return ok;
}

static const struct arch_settings settings = {
    .context_length = 64, .batch_size = 16, .n_chunks = 1, .split_lm_head = 2};

/* The damage stands where the last element was. */
static uint8_t *damaged(const struct st_tensor *t)
{
    static const uint8_t single[4] = {0, 0, 0xc0, 0x7f}, brain[2] = {0xc0, 0x7f}, half[2] = {0, 0x7c};
    size_t bytes = st_dtype_bytes(t->dtype);
    const uint8_t *value = t->dtype == ST_F32 ? single : t->dtype == ST_BF16 ? brain : half;
    assert_true(t->dtype == ST_F32 || t->dtype == ST_BF16 || t->dtype == ST_F16);
    uint8_t *data = xmalloc(t->bytes);
    memcpy(data, t->data, t->bytes);
    memcpy(data + t->bytes - bytes, value, bytes);
    return data;
}

/* Of the experts every seventh: they are all read the same way. */
static void check_model(const char *name, int n_least)
{
    char *folder = xasprintf("%s/models/%s", MILKIT_TEST_DATA, name),
         *path = path_join(folder, "config.json");
    cJSON *config = NULL;
    struct safetensors *s = NULL;
    int n_checked = 0, n_experts = 0;
    ASSERT_OK(json_read_file(&config, path, 1 << 20, e));
    ASSERT_OK(safetensors_open(&s, folder, e));
    for (int i = -1; i < s->n_tensors; i++) {
        struct arch_model *model = NULL;
        struct st_tensor *t = i < 0 ? NULL : &s->tensors[i];
        struct err e = {0};
        if (t && strstr(t->name, "experts.") && n_experts++ % 7 != 0)
            continue;
        const uint8_t *data = t ? t->data : NULL;
        uint8_t *copy = t ? damaged(t) : NULL;
        if (t)
            t->data = copy;
        bool ok = arch_open(&model, folder, config, s, &settings, &e) && build_all(model, &e);
        if (!t && !ok)
            fail_msg("%s: %s", name, e.msg);
        if (t && model && model->tensor_used[i]) {
            n_checked++;
            if (ok)
                fail_msg("%s: tensor %s: a value that is not a finite number was taken", name, t->name);
            assert_int_equal(e.code, ERR_FORMAT);
            assert_non_null(strstr(e.msg, t->name));
            assert_non_null(strstr(e.msg, "65504"));
        }
        if (t)
            t->data = data;
        free(copy);
        arch_close(model);
    }
    printf("%s: %d tensors\n", name, n_checked);
    assert_true(n_checked >= n_least);
    safetensors_close(s);
    cJSON_Delete(config);
    free(path);
    free(folder);
}

static void test_qwen3(void **state)
{
    (void)state;
    check_model("qwen3-bias", 30);
}

static void test_qwen3_5(void **state)
{
    (void)state;
    check_model("qwen3_5-equal", 40);
}

static void test_qwen3_5_moe(void **state)
{
    (void)state;
    check_model("qwen3_5_moe-random", 40);
}

static void test_gemma4(void **state)
{
    (void)state;
    check_model("gemma4-window", 80);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_qwen3),
        cmocka_unit_test(test_qwen3_5),
        cmocka_unit_test(test_qwen3_5_moe),
        cmocka_unit_test(test_gemma4),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
