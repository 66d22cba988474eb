// links: convert measure
/* Residual streams that fp16 does not hold: checkpoints whose stream is made large without a change of what they compute, so that
 * the published model code's numbers for the original stay the yardstick. Unscaled their packages give no numbers in fp16, and the
 * engine says so in the default precision, too; scaled as measured they give the right ones, in fp16 as well. */
#include "packages.h"
#include "measure/residual.h"

enum rule { GAIN, CENTRED, NUMBERS };

/* Tensors whose names have this part are multiplied by the stream's factor to this power. */
struct change {
    const char *part;
    enum rule rule;
    int power;
};

struct variant {
    const char *model, *checkpoint;
    double factor;
    struct change changes[8];
};

/* Factors that leave the embeddings within fp16: a table beyond it is no package without a scale. */
static struct variant variants[] = {
    {"gemma3-linear",
     NULL,
     6000,
     {{"embed_tokens", NUMBERS, 1},
      {"post_attention_layernorm", CENTRED, 1},
      {"post_feedforward_layernorm", CENTRED, 1},
      {"model.norm.weight", CENTRED, -1}}},
    {"llama-bias",
     NULL,
     0x1p13,
     {{"embed_tokens", NUMBERS, 1}, {"o_proj", NUMBERS, 1}, {"down_proj", NUMBERS, 1}}},
    {"qwen3_moe-mixed",
     NULL,
     0x1p13,
     {{"embed_tokens", NUMBERS, 1},
      {"o_proj", NUMBERS, 1},
      {"down_proj", NUMBERS, 1},
      {"model.norm.weight", GAIN, -1}}},
    {"qwen3_5_moe-random",
     NULL,
     0x1p13,
     {{"embed_tokens", NUMBERS, 1},
      {"o_proj", NUMBERS, 1},
      {"out_proj", NUMBERS, 1},
      {"down_proj", NUMBERS, 1}}},
    {"gemma4-window",
     NULL,
     6000,
     {{"embed_tokens.", NUMBERS, 1},
      {"post_attention_layernorm", GAIN, 1},
      {"post_feedforward_layernorm", GAIN, 1},
      {"post_per_layer_input_norm", GAIN, 1},
      {"per_layer_input_gate", NUMBERS, -1},
      {"model.norm.weight", GAIN, -1}}},
};
#define N_VARIANTS (sizeof variants / sizeof *variants)
enum { N_TOKENS = 29, BATCH = 8, CONTEXT = 64 };

static void change(const struct variant *v, const char *name, float *x, int64_t n)
{
    for (const struct change *c = v->changes; c < v->changes + 8 && c->part; c++) {
        if (!strstr(name, c->part))
            continue;
        double factor = c->power > 0 ? v->factor : 1 / v->factor, one = c->rule == CENTRED;
        for (int64_t i = 0; i < n; i++)
            x[i] = (float)((x[i] + one) * factor - one);
    }
}

static const char *make_checkpoint(struct variant *v)
{
    char *from = xasprintf("%s/models/%s", MILKIT_TEST_DATA, v->model),
         *to = xasprintf("%s/large-%s", packages_scratch, v->model);
    char *config = path_join(from, "config.json"), *copy = path_join(to, "config.json"),
         *out = path_join(to, "model.safetensors"), *text = NULL;
    size_t n = 0;
    struct safetensors *s = NULL;
    struct st_writer *w = st_writer_new();
    if (v->checkpoint)
        goto done;
    ASSERT_OK(folder_make(to, e));
    ASSERT_OK(file_read(&text, &n, config, 1 << 20, e));
    ASSERT_OK(file_write(copy, text, n, e));
    ASSERT_OK(safetensors_open(&s, from, e));
    float **data = xcalloc((size_t)s->n_tensors, sizeof *data);
    for (int i = 0; i < s->n_tensors; i++) {
        const struct st_tensor *t = &s->tensors[i];
        data[i] = xmalloc(sizeof(float) * (size_t)(t->n_elems + 1));
        ASSERT_OK(st_read_f32(t, data[i], e));
        change(v, t->name, data[i], t->n_elems);
        st_writer_add(w, t->name, ST_F32, t->shape, t->rank, data[i]);
    }
    ASSERT_OK(st_writer_write(w, out, true, e));
    for (int i = 0; i < s->n_tensors; i++)
        free(data[i]);
    free(data);
    v->checkpoint = xstrdup(to);
done:
    st_writer_free(w);
    safetensors_close(s);
    free(text);
    free(from);
    free(to);
    free(config);
    free(copy);
    free(out);
    return v->checkpoint;
}

/* scale 0: as measured */
static char *make_package(struct variant *v, double scale, int n_chunks, struct arch_residual *found)
{
    struct calibration calibration = {0};
    struct residual r = {.calibration = &calibration, .n_threads = 1};
    char *path = xasprintf("%s/%s-%g-%d", packages_scratch, v->model, scale, n_chunks);
    char *report_path = xasprintf("%s.json", path), *text = NULL;
    struct convert_options o = {.checkpoint = make_checkpoint(v),
                                .output = path,
                                .settings = {.context_length = CONTEXT,
                                             .batch_size = BATCH,
                                             .n_chunks = n_chunks,
                                             .residual_scale = scale},
                                .format = CONVERT_MLMODELC,
                                .measure_residual = residual_measure,
                                .residual_context = &r,
                                .report_path = report_path,
                                .replace = true,
                                .n_threads = 1};
    struct convert_report report;
    size_t n;
    ASSERT_OK(convert_run(&o, &report, e));
    convert_report_fini(&report);
    ASSERT_OK(file_read(&text, &n, report_path, 1 << 24, e));
    cJSON *json = cJSON_Parse(text);
    const cJSON *residual = json_get(json, "residual");
    found->scale = json_get(residual, "scale")->valuedouble;
    found->largest = scale > 0 ? 0 : json_get(residual, "largest")->valuedouble;
    assert_true(scale == 0 || !json_get(residual, "largest"));
    cJSON_Delete(json);
    free(text);
    free(report_path);
    calibration_fini(&calibration);
    return path;
}

static struct rows run(const char *path, enum model_precision precision, int n_threads,
                       enum session_mode mode, const int32_t *ids, struct backend_range *range)
{
    struct model *m = NULL;
    struct session *s = NULL;
    const struct model_options options = {
        .n_threads = n_threads, .precision = precision, .watch_layers = range != NULL};
    ASSERT_OK(model_open(&m, path, &options, e));
    ASSERT_OK(session_new(&s, m, e));
    struct rows rows = rows_feed(s, m, ids, N_TOKENS, mode);
    if (range)
        model_range(m, range);
    session_free(s);
    model_close(m);
    return rows;
}

static size_t n_finite(const struct rows *r)
{
    size_t n = 0;
    for (size_t i = 0; i < r->n * (size_t)r->vocab_size; i++)
        n += isfinite(r->logits[i]);
    return n;
}

/* Positions of the prompt "long" that the tokens reach, against the published code's logits. */
static void compare(const struct variant *v, const struct rows *r, double least)
{
    struct safetensors *golden = golden_open(v->model);
    size_t n;
    int64_t n_compared = 0;
    int32_t *positions = golden_ints(golden, "long", "positions", &n);
    float *logits = golden_floats(golden, "long", "logits");
    for (size_t i = 0; i < n; i++) {
        const float *row = rows_at(r, positions[i]);
        if (!row)
            continue;
        double cosine = row_cosine(row, logits + i * (size_t)r->vocab_size, r->vocab_size);
        if (!(cosine >= least))
            fail_msg("%s: position %d: cosine %.6f", v->model, positions[i], cosine);
        n_compared++;
    }
    assert_true(n_compared > 0);
    free(positions);
    free(logits);
    safetensors_close(golden);
}

static int32_t *read_ids(const struct variant *v)
{
    struct safetensors *golden = golden_open(v->model);
    int32_t *ids = golden_ints(golden, "long", "ids", NULL);
    safetensors_close(golden);
    return ids;
}

static void is_infinite_unscaled(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_VARIANTS; i++) {
        struct variant *v = &variants[i];
        struct arch_residual found;
        struct backend_range range = {0};
        char *path = make_package(v, 1, 1, &found);
        int32_t *ids = read_ids(v);
        assert_true(found.scale == 1);
        struct rows half = run(path, PRECISION_FP16, 1, SESSION_INFER_ONLY, ids, NULL);
        assert_true(n_finite(&half) < half.n * (size_t)half.vocab_size);
        struct rows normal = run(path, PRECISION_DEFAULT, 1, SESSION_INFER_ONLY, ids, &range);
        compare(v, &normal, 0.999);
        assert_true(range.n_beyond > 0 && range.largest > 65504);
        assert_true(strlen(range.function) > 0 && strlen(range.variable) > 0);
        rows_free(&half);
        rows_free(&normal);
        free(ids);
        free(path);
    }
}

static void is_right_scaled(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_VARIANTS; i++) {
        struct variant *v = &variants[i];
        struct arch_residual found, same;
        struct backend_range range = {0};
        char *path = make_package(v, 0, 1, &found), *chunks = make_package(v, 0, 2, &same);
        int32_t *ids = read_ids(v);
        assert_true(found.largest > 65504 && found.largest * found.scale <= RESIDUAL_LIMIT);
        assert_true(found.largest * found.scale * 2 > RESIDUAL_LIMIT && same.scale == found.scale);
        struct rows normal = run(path, PRECISION_DEFAULT, 1, SESSION_EACH_TOKEN, ids, &range);
        struct rows single = run(chunks, PRECISION_DEFAULT, 2, SESSION_INFER_ONLY, ids, NULL);
        assert_int_equal(normal.n, N_TOKENS);
        assert_int_equal(single.n, N_TOKENS);
        assert_memory_equal(normal.logits, single.logits,
                            sizeof(float) * N_TOKENS * (size_t)normal.vocab_size);
        assert_int_equal(range.n_beyond, 0);
        assert_true(range.largest > 0 && range.largest < 65504);
        compare(v, &normal, 0.999);
        struct rows half = run(path, PRECISION_FP16, 1, SESSION_INFER_ONLY, ids, NULL);
        assert_int_equal(n_finite(&half), half.n * (size_t)half.vocab_size);
        compare(v, &half, 0.99);
        rows_free(&normal);
        rows_free(&single);
        rows_free(&half);
        free(ids);
        free(path);
        free(chunks);
    }
}

/* What needs no scale has none, in the package's bytes and in meta.yaml. */
static void leaves_small_streams(void **state)
{
    (void)state;
    struct calibration calibration = {0};
    struct residual r = {.calibration = &calibration, .n_threads = 1};
    const struct package_shape shape = {"llama-bias", CONTEXT, BATCH, 1, CONVERT_MLMODELC};
    char *plain = package_make(&shape), *measured = path_join(packages_scratch, "measured");
    char *from = xasprintf("%s/models/llama-bias", MILKIT_TEST_DATA), *a = NULL, *b = NULL;
    struct convert_options o = {.checkpoint = from,
                                .output = measured,
                                .settings = {.context_length = CONTEXT, .batch_size = BATCH},
                                .format = CONVERT_MLMODELC,
                                .measure_residual = residual_measure,
                                .residual_context = &r,
                                .n_threads = 1};
    struct convert_report report;
    ASSERT_OK(convert_run(&o, &report, e));
    convert_report_fini(&report);
    static const char *const files[] = {"meta.yaml", "llama_FFN_PF_chunk_01of01.mlmodelc/model.mil",
                                        "llama_FFN_PF_chunk_01of01.mlmodelc/weights/weight.bin",
                                        "llama_embeddings.mlmodelc/weights/weight.bin"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char *left = path_join(plain, files[i]), *right = path_join(measured, files[i]);
        size_t n, m;
        ASSERT_OK(file_read(&a, &n, left, 1 << 24, e));
        ASSERT_OK(file_read(&b, &m, right, 1 << 24, e));
        assert_int_equal(n, m);
        assert_memory_equal(a, b, n);
        assert_true(i > 0 || !strstr(a, "residual_scale"));
        free(left);
        free(right);
        free(a);
        free(b);
    }
    calibration_fini(&calibration);
    free(from);
    free(plain);
    free(measured);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_infinite_unscaled),
        cmocka_unit_test(is_right_scaled),
        cmocka_unit_test(leaves_small_streams),
    };
    int failed = cmocka_run_group_tests(tests, packages_setup, packages_teardown);
    for (size_t i = 0; i < N_VARIANTS; i++)
        free((char *)(uintptr_t)variants[i].checkpoint);
    return failed;
}
