// links: convert
/* Packages with quantized weights: the same bits for every instruction set, any number of threads, prefill and infer, both
 * forms and any number of chunks; and the logits of float arithmetic on the weights that codes and tables stand for.
 *
 * The float side shares nothing with the fast path but fp16 packages, which other tests hold to published numbers: the
 * codes are expanded here, written as an fp16 checkpoint, converted without quantization and run op by op in float32.
 */
#include "kernel/kernel.h"
#include "sequential.h"
#include "format/safetensors.h"
#include "mil/ops.h"

enum { BATCH = 8, CONTEXT = 32, N = 2 * BATCH + 3 };

static const char model_name[] = "qwen3-gqa8";

static char *convert(const char *checkpoint, const char *name, const struct quant_spec *spec,
                     enum convert_format format, int n_chunks)
{
    char *path = path_join(packages_scratch, name);
    struct convert_options o = {
        .checkpoint = checkpoint,
        .output = path,
        .settings = {.context_length = CONTEXT, .batch_size = BATCH, .n_chunks = n_chunks},
        .ffn = *spec,
        .head = *spec,
        .format = format,
        .n_threads = 1};
    struct convert_report report;
    ASSERT_OK(convert_run(&o, &report, e));
    convert_report_fini(&report);
    return path;
}

/* ---- bits ---- */

struct run {
    struct rows rows;
    struct moment end;
};

static struct run run_package(const char *path, const char *level, int n_threads, enum session_mode mode,
                              enum model_precision precision)
{
    struct model *m = NULL;
    struct session *s = NULL;
    struct run r;
    int32_t ids[N];
    assert_int_equal(setenv("MILKIT_CPU", level, 1), 0);
    ASSERT_OK(
        model_open(&m, path, &(struct model_options){.n_threads = n_threads, .precision = precision}, e));
    unsetenv("MILKIT_CPU");
    assert_string_equal(m->device, level);
    make_ids(ids, N, m->vocab_size, 5);
    ASSERT_OK(session_new(&s, m, e));
    r.rows = rows_feed(s, m, ids, N, mode);
    r.end = moment_take(s, m);
    assert_int_equal(r.rows.n, mode == SESSION_CONTRACT ? N / BATCH + N % BATCH : N);
    session_free(s);
    model_close(m);
    return r;
}

static void run_free(struct run *r)
{
    rows_free(&r->rows);
    moment_free(&r->end);
}

static void compare_run(const struct run *truth, const char *path, const char *level, int n_threads,
                        enum session_mode mode, const char *what)
{
    struct run r = run_package(path, level, n_threads, mode, PRECISION_DEFAULT);
    size_t bytes = sizeof(float) * (size_t)r.rows.vocab_size;
    for (size_t i = 0; i < r.rows.n; i++) {
        if (memcmp(rows_at(&truth->rows, r.rows.positions[i]), r.rows.logits + i * (size_t)r.rows.vocab_size,
                   bytes) != 0)
            fail_msg("%s, %s, %d threads, %s: logits after position %lld differ", what, level, n_threads,
                     mode == SESSION_CONTRACT ? "prefill" : "infer", (long long)r.rows.positions[i]);
    }
    const char *difference = moment_difference(&r.end, &truth->end);
    if (difference)
        fail_msg("%s, %s, %d threads: %s differs", what, level, n_threads, difference);
    run_free(&r);
}

/* ---- the weights that are meant ---- */

static unsigned read_bits(const uint8_t *p, int64_t at, int bits)
{
    unsigned shift = (unsigned)(at % 8), v = p[at / 8];
    if (shift + (unsigned)bits > 8)
        v |= (unsigned)p[at / 8 + 1] << 8;
    return v >> shift & ((1u << bits) - 1);
}

/* A matrix [rows, columns] of a constexpr op; tables and scales lie on a grid that divides both. */
static f16 *expand(const struct mil_op *op, int64_t *rows, int64_t *columns)
{
    bool is_lut = mil_op_is(op, "constexpr_lut_to_dense");
    const struct mil_value *codes = mil_arg_value(op, is_lut ? "indices" : "data"),
                           *table = mil_arg_value(op, is_lut ? "lut" : "scale");
    int bits = mil_dtype_bits(codes->type->dtype);
    *rows = codes->type->dims[0];
    *columns = codes->type->dims[1];
    int64_t row_cell = *rows / table->type->dims[0], column_cells = table->type->dims[1],
            column_cell = *columns / column_cells;
    const f16 *numbers = table->data;
    f16 *out = xmalloc((size_t)(*rows * *columns) * sizeof *out);
    for (int64_t i = 0; i < *rows * *columns; i++) {
        unsigned code = read_bits(codes->data, i * bits, bits);
        int64_t cell = i / *columns / row_cell * column_cells + i % *columns / column_cell;
        if (is_lut) {
            out[i] = numbers[(cell << bits) + code];
        } else {
            int value = code >> (bits - 1) ? (int)code - (1 << bits) : (int)code;
            out[i] = f32_to_f16((float)value * f16_to_f32(numbers[cell]));
        }
    }
    return out;
}

static struct mil_model *open_part(const char *package, const char *word)
{
    struct mil_model *m = NULL;
    struct path_list list;
    ASSERT_OK(path_list_read(&list, package, e));
    for (size_t i = 0; i < list.n && !m; i++) {
        char *path = path_join(package, list.names[i]);
        if (strstr(list.names[i], word) && has_suffix(path, ".mlmodelc"))
            ASSERT_OK(mil_model_open(&m, path, 0, e));
        free(path);
    }
    path_list_free(&list);
    assert_non_null(m);
    return m;
}

/* layers_0_mlp_up_proj_weight -> model.layers.0.mlp.up_proj.weight */
static const char *tensor_name(struct arena *a, const char *constant)
{
    static const char *const parents[] = {"self_attn", "mlp"};
    int layer;
    if (sscanf(constant, "layers_%d_", &layer) != 1)
        return NULL;
    for (int i = 0; i < 2; i++) {
        const char *at = strstr(constant, parents[i]);
        size_t n = strlen(parents[i]);
        if (at && has_suffix(at, "_weight"))
            return arena_printf(a, "model.layers.%d.%s.%.*s.weight", layer, parents[i],
                                (int)(strlen(at) - n - 1 - strlen("_weight")), at + n + 1);
    }
    return NULL;
}

static bool is_quantized(const struct mil_op *op)
{
    return strncmp(op->type, "constexpr_", 10) == 0;
}

/* The quantized matrices of the decoder under the checkpoint's names; returns how many. */
static int put_decoder(struct st_writer *w, struct table *put, struct arena *a, const struct mil_model *m)
{
    const struct mil_block *block = mil_function_find(m, "infer")->block;
    int n = 0;
    for (int i = 0; i < block->n_ops; i++) {
        const struct mil_op *op = block->ops[i];
        if (!is_quantized(op))
            continue;
        int64_t dims[2];
        const char *name = tensor_name(a, op->outputs[0]->name);
        if (!name)
            fail_msg("%s belongs to no tensor", op->outputs[0]->name);
        f16 *data = expand(op, &dims[0], &dims[1]);
        st_writer_add(w, name, ST_F16, dims, 2,
                      arena_copy(a, data, (size_t)(dims[0] * dims[1]) * sizeof *data));
        free(data);
        assert_true(table_put(put, name, w));
        n++;
    }
    return n;
}

/* The parts of the head below each other. */
static void put_head(struct st_writer *w, struct arena *a, const struct mil_model *m, int64_t vocab_size,
                     int64_t hidden)
{
    const struct mil_block *block = m->program->functions[0]->block;
    f16 *all = ARENA_ARRAY(a, f16, vocab_size * hidden);
    int64_t row = 0;
    for (int i = 0; i < block->n_ops; i++) {
        int64_t rows, columns;
        if (!is_quantized(block->ops[i]))
            continue;
        f16 *data = expand(block->ops[i], &rows, &columns);
        assert_true(columns == hidden && row + rows <= vocab_size);
        memcpy(all + row * hidden, data, (size_t)(rows * hidden) * sizeof *data);
        free(data);
        row += rows;
    }
    assert_int_equal(row, vocab_size);
    st_writer_add(w, "lm_head.weight", ST_F16, (const int64_t[]){vocab_size, hidden}, 2, all);
}

/* A checkpoint whose matrices are those of the package; everything else is the original's. */
static char *write_meant(const char *package, const char *checkpoint)
{
    char *folder = path_join(packages_scratch, "meant"), *config = path_join(checkpoint, "config.json"),
         *copy = path_join(folder, "config.json"), *weights = path_join(folder, "model.safetensors"), *text;
    struct safetensors *s = NULL;
    struct arena *a = arena_new(0);
    struct st_writer *w = st_writer_new();
    struct table *put = table_new();
    cJSON *root = NULL;
    ASSERT_OK(path_remove_tree(folder, e));
    ASSERT_OK(folder_make(folder, e));
    ASSERT_OK(json_read_file(&root, config, 1 << 20, e));
    cJSON_DeleteItemFromObjectCaseSensitive(root, "tie_word_embeddings");
    cJSON_AddFalseToObject(root, "tie_word_embeddings");
    text = cJSON_Print(root);
    ASSERT_OK(file_write(copy, text, strlen(text), e));
    ASSERT_OK(safetensors_open(&s, checkpoint, e));
    struct mil_model *chunk = open_part(package, "_FFN_PF_"), *head = open_part(package, "_lm_head");
    int64_t n_layers = (int64_t)json_get(root, "num_hidden_layers")->valuedouble;
    const struct st_tensor *embeddings = safetensors_find(s, "model.embed_tokens.weight");
    assert_int_equal(put_decoder(w, put, a, chunk), 7 * n_layers);
    put_head(w, a, head, embeddings->shape[0], embeddings->shape[1]);
    for (int i = 0; i < s->n_tensors; i++) {
        const struct st_tensor *t = &s->tensors[i];
        if (!table_get(put, t->name) && strcmp(t->name, "lm_head.weight") != 0)
            st_writer_add(w, t->name, t->dtype, t->shape, t->rank, t->data);
    }
    ASSERT_OK(st_writer_write(w, weights, true, e));
    mil_model_close(chunk);
    mil_model_close(head);
    st_writer_free(w);
    table_free(put);
    arena_free(a);
    safetensors_close(s);
    cJSON_free(text);
    cJSON_Delete(root);
    free(config);
    free(copy);
    free(weights);
    return folder;
}

/* The lowest cosine over all positions, of the package's logits and of float arithmetic. */
static double compare_meant(const struct run *truth, const char *package, const char *checkpoint)
{
    const struct quant_spec none = {.kind = QUANT_NONE};
    char *meant = write_meant(package, checkpoint),
         *dense = convert(meant, "dense", &none, CONVERT_MLMODELC, 1);
    struct run r = run_package(dense, "scalar", 1, SESSION_INFER_ONLY, PRECISION_FP32);
    double lowest = 1;
    for (size_t i = 0; i < r.rows.n; i++)
        lowest = fmin(lowest, row_cosine(truth->rows.logits + i * (size_t)r.rows.vocab_size,
                                         r.rows.logits + i * (size_t)r.rows.vocab_size, r.rows.vocab_size));
    run_free(&r);
    ASSERT_OK(path_remove_tree(dense, e));
    free(dense);
    free(meant);
    return lowest;
}

static void check(const struct quant_spec *spec)
{
    static const char *const levels[CPU_LEVELS] = {"scalar", "avx2", "avx512"};
    char *checkpoint = xasprintf("%s/models/%s", MILKIT_TEST_DATA, model_name), what[64];
    char *package = convert(checkpoint, "package", spec, CONVERT_MLMODELC, 1);
    const char *best = NULL;
    quant_describe(what, spec);
    struct run truth = run_package(package, "scalar", 1, SESSION_INFER_ONLY, PRECISION_DEFAULT);
    for (int i = 0; i < CPU_LEVELS; i++) {
        if (!kernel_table((enum cpu_level)i))
            continue;
        best = levels[i];
        compare_run(&truth, package, best, 2, SESSION_CONTRACT, what);
        if (i > 0)
            compare_run(&truth, package, best, 1, SESSION_INFER_ONLY, what);
    }
    compare_run(&truth, package, best, 3, SESSION_CONTRACT, what);
    if (spec->bits <= 4) { /* palettes of more entries take long to make */
        char *chunked = convert(checkpoint, "chunked", spec, CONVERT_MLPACKAGE, 2);
        compare_run(&truth, chunked, best, 3, SESSION_INFER_ONLY, what);
        ASSERT_OK(path_remove_tree(chunked, e));
        free(chunked);
    }
    double cosine = compare_meant(&truth, package, checkpoint);
    printf("%s: cosine to float arithmetic %.9f\n", what, cosine);
    assert_true(cosine >= 0.99999);
    run_free(&truth);
    ASSERT_OK(path_remove_tree(package, e));
    free(package);
    free(checkpoint);
}

static void test_palettes(void **state)
{
    (void)state;
    static const struct {
        int bits, group;
    } cases[] = {{1, 0}, {2, 1}, {3, 8}, {4, 0}, {4, 8}, {6, 1}, {8, 8}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check(&(struct quant_spec){.kind = QUANT_LUT, .bits = cases[i].bits, .group = cases[i].group});
}

static void test_integers(void **state)
{
    (void)state;
    check(&(struct quant_spec){.kind = QUANT_INT8, .bits = 8, .group = 1});
    check(&(struct quant_spec){.kind = QUANT_INT8, .bits = 8, .group = 0});
    check(&(struct quant_spec){.kind = QUANT_INT4, .bits = 4, .block = 32});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_palettes),
        cmocka_unit_test(test_integers),
    };
    return cmocka_run_group_tests(tests, packages_setup, packages_teardown);
}
