// links: mil quant
// labels: threads
/* Quantized conversion: what a reader expands is what the quantizer gave, both functions share it, names and
 * settings tell it; work that was interrupted is taken over when it is whole. */
#include "support.h"
#include <math.h>
#include <signal.h>
#include "convert/convert.h"
#include "mil/ops.h"

static char scratch_folder[64];

static int make_scratch(void **state)
{
    (void)state;
    snprintf(scratch_folder, sizeof scratch_folder, "test_quantized.XXXXXX");
    return mkdtemp(scratch_folder) ? 0 : -1;
}

static int remove_scratch(void **state)
{
    (void)state;
    return path_remove_tree(scratch_folder, NULL) ? 0 : -1;
}

static bool convert(struct convert_options o, const char *output, struct convert_report *report,
                    struct err *e)
{
    char *checkpoint = xasprintf("%s/models/qwen3-bias", MILKIT_TEST_DATA);
    o.checkpoint = checkpoint;
    o.output = output;
    if (!o.settings.context_length)
        o.settings.context_length = 64;
    bool ok = convert_run(&o, report, e);
    free(checkpoint);
    return ok;
}

static void convert_ok(struct convert_options o, const char *output)
{
    struct convert_report report;
    ASSERT_OK(convert(o, output, &report, e));
    convert_report_fini(&report);
}

/* ---- an expander of its own ---- */

static unsigned read_bits(const uint8_t *p, int64_t at, int bits)
{
    /* At most nine bits touch two bytes, and the last byte is read alone. */
    unsigned shift = (unsigned)(at % 8), v = p[at / 8];
    if (shift + (unsigned)bits > 8)
        v |= (unsigned)p[at / 8 + 1] << 8;
    return v >> shift & ((1u << bits) - 1);
}

/* Index into a grid of cells that divides dims evenly. */
static int64_t cell_of(const int64_t *dims, const int64_t *cells, int rank, int64_t element)
{
    int64_t index = 0, weight = 1;
    for (int axis = rank - 1; axis >= 0; axis--) {
        int64_t at = element % dims[axis];
        element /= dims[axis];
        index += at / (dims[axis] / cells[axis]) * weight;
        weight *= cells[axis];
    }
    return index;
}

static f16 expanded(const struct mil_op *op, int64_t i)
{
    const struct mil_value *codes = mil_arg_value(op, "indices"), *table = mil_arg_value(op, "lut");
    if (codes) {
        int bits = mil_dtype_bits(codes->type->dtype);
        int64_t cell = cell_of(codes->type->dims, table->type->dims, codes->type->rank, i);
        return ((const f16 *)table->data)[(cell << bits) + read_bits(codes->data, i * bits, bits)];
    }
    codes = mil_arg_value(op, "data");
    table = mil_arg_value(op, "scale");
    int bits = mil_dtype_bits(codes->type->dtype);
    unsigned code = read_bits(codes->data, i * bits, bits);
    int value = code >> (bits - 1) ? (int)code - (1 << bits) : (int)code;
    int64_t cell = cell_of(codes->type->dims, table->type->dims, codes->type->rank, i);
    return f32_to_f16((float)value * f16_to_f32(((const f16 *)table->data)[cell]));
}

/* ---- against the quantizer ---- */

static const struct mil_op *find_op(const struct mil_model *m, const char *function, const char *name)
{
    const struct mil_function *f = mil_function_find(m, function);
    assert_non_null(f);
    for (int i = 0; i < f->block->n_ops; i++) {
        if (f->block->ops[i]->n_outputs == 1 && strcmp(f->block->ops[i]->outputs[0]->name, name) == 0)
            return f->block->ops[i];
    }
    fail_msg("no %s in %s", name, function);
    return NULL;
}

/* Every element of the op against the quantizer run on the tensor's rows. */
static void check_values(const struct mil_op *op, const struct safetensors *s, const char *tensor,
                         int64_t first_row, const struct quant_spec *spec)
{
    const struct st_tensor *t = safetensors_find(s, tensor);
    const int64_t *dims = op->outputs[0]->type->dims;
    int64_t rows = dims[0], columns = dims[1], n = rows * columns;
    f16 *values = xmalloc((size_t)n * 2), *expected = xmalloc((size_t)n * 2);
    uint8_t *codes = xmalloc((size_t)n);
    struct quant_scratch *scratch = quant_scratch_new();
    struct quant_stats stats = {0};
    assert_non_null(t);
    ASSERT_OK(st_read_f16(t, first_row * columns, n, values, e));
    if (spec->kind == QUANT_LUT) {
        int64_t group = quant_divisor(rows, spec->group);
        f16 *tables = xmalloc((size_t)(rows / group << spec->bits) * 2);
        ASSERT_OK(quant_palettize(scratch, values, rows, columns, group, spec->bits, spec->method, NULL,
                                  codes, tables, &stats, e));
        for (int64_t i = 0; i < n; i++)
            expected[i] = tables[(i / columns / group << spec->bits) + codes[i]];
        free(tables);
    } else {
        int64_t block = spec->kind == QUANT_INT4 ? quant_divisor(columns, spec->block) : columns;
        f16 one = spec->kind == QUANT_INT8 && spec->group == 0 ? quant_int8_scale(values, n) : 0;
        for (int64_t at = 0; at < n; at += block) {
            f16 scale = one;
            if (spec->kind == QUANT_INT4)
                scale = quant_int4(values + at, block, codes, &stats);
            else if (!one)
                scale = quant_int8_scale(values + at, block);
            if (spec->kind == QUANT_INT8)
                quant_int8(values + at, block, scale, codes, &stats);
            for (int64_t i = 0; i < block; i++) {
                int value = spec->kind == QUANT_INT8 ? (int8_t)codes[i]
                            : codes[i] > 7           ? codes[i] - 16
                                                     : codes[i];
                expected[at + i] = f32_to_f16((float)value * f16_to_f32(scale));
            }
        }
    }
    for (int64_t i = 0; i < n; i++) {
        f16 found = expanded(op, i);
        if (found != expected[i])
            fail_msg("%s: element %lld: expected %04x, found %04x", tensor, (long long)i, expected[i], found);
    }
    quant_scratch_free(scratch);
    free(values);
    free(expected);
    free(codes);
}

static struct mil_model *open_part(const char *package, const char *name)
{
    struct mil_model *m = NULL;
    char *path = xasprintf("%s/%s", package, name);
    ASSERT_OK(mil_model_open(&m, path, 0, e));
    free(path);
    return m;
}

static void check_package(const char *package, const char *suffix, const struct quant_spec *spec,
                          struct safetensors *s)
{
    static const char *const projections[] = {"self_attn_q_proj", "self_attn_o_proj", "mlp_down_proj"};
    static const char *const tensors[] = {"self_attn.q_proj", "self_attn.o_proj", "mlp.down_proj"};
    static const char *const forms[] = {"mlmodelc", "mlpackage"};
    for (int form = 0; form < 2; form++) {
        char name[96], op_name[64], tensor[96];
        snprintf(name, sizeof name, "qwen_FFN_PF%s_chunk_01of01.%s", suffix, forms[form]);
        struct mil_model *m = open_part(package, name);
        for (int i = 0; i < 3; i++) {
            snprintf(op_name, sizeof op_name, "layers_%d_%s_weight", i, projections[i]);
            snprintf(tensor, sizeof tensor, "model.layers.%d.%s.weight", i, tensors[i]);
            const struct mil_op *a = find_op(m, "infer", op_name), *b = find_op(m, "prefill", op_name);
            bool is_lut = spec->kind == QUANT_LUT;
            const char *codes = is_lut ? "indices" : "data", *table = is_lut ? "lut" : "scale";
            assert_string_equal(a->type,
                                is_lut ? "constexpr_lut_to_dense" : "constexpr_blockwise_shift_scale");
            /* One record for both functions. */
            assert_int_equal(mil_arg_value(a, codes)->offset, mil_arg_value(b, codes)->offset);
            assert_int_equal(mil_arg_value(a, table)->offset, mil_arg_value(b, table)->offset);
            if (form == 0)
                check_values(a, s, tensor, 0, spec);
        }
        /* What is no matrix stays. */
        assert_string_equal(find_op(m, "infer", "layers_0_input_layernorm_weight")->type, "const");
        mil_model_close(m);
        snprintf(name, sizeof name, "qwen_lm_head%s.%s", suffix, forms[form]);
        m = open_part(package, name);
        /* 413 rows in 16 parts, the first 13 of 26. */
        if (form == 1) {
            check_values(find_op(m, "main", "lm_head_1_weight"), s, "model.embed_tokens.weight", 0, spec);
            check_values(find_op(m, "main", "lm_head_16_weight"), s, "model.embed_tokens.weight", 413 - 25,
                         spec);
        }
        mil_model_close(m);
    }
}

static void test_values(void **state)
{
    (void)state;
    static const struct {
        struct quant_spec spec;
        const char *suffix;
    } cases[] = {
        {{.kind = QUANT_LUT, .bits = 1, .group = 0}, "_lut1"},
        {{.kind = QUANT_LUT, .bits = 2, .group = 4}, "_lut2"},
        {{.kind = QUANT_LUT, .bits = 3, .group = 8}, "_lut3"},
        {{.kind = QUANT_LUT, .bits = 4, .group = 8, .method = QUANT_EXACT}, "_lut4"},
        {{.kind = QUANT_LUT, .bits = 6, .group = 1}, "_lut6"},
        {{.kind = QUANT_LUT, .bits = 8, .group = 32}, "_lut8"},
        {{.kind = QUANT_INT8, .bits = 8, .group = 1}, "_int8"},
        {{.kind = QUANT_INT8, .bits = 8, .group = 0}, "_int8"},
        {{.kind = QUANT_INT4, .bits = 4, .block = 32}, "_int4"},
        {{.kind = QUANT_INT4, .bits = 4, .block = 100}, "_int4"},
    };
    struct safetensors *s = NULL;
    char *checkpoint = xasprintf("%s/models/qwen3-bias", MILKIT_TEST_DATA);
    ASSERT_OK(safetensors_open(&s, checkpoint, e));
    free(checkpoint);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *package = xasprintf("%s/values%d", scratch_folder, (int)i);
        convert_ok((struct convert_options){.ffn = cases[i].spec, .head = cases[i].spec}, package);
        check_package(package, cases[i].suffix, &cases[i].spec, s);
        ASSERT_OK(path_remove_tree(package, e));
        free(package);
    }
    safetensors_close(s);
}

static void test_embeddings(void **state)
{
    (void)state;
    struct safetensors *s = NULL;
    char *checkpoint = xasprintf("%s/models/qwen3-bias", MILKIT_TEST_DATA),
         *package = path_join(scratch_folder, "embeddings");
    struct quant_spec spec = {.kind = QUANT_LUT, .bits = 4, .group = 8};
    ASSERT_OK(safetensors_open(&s, checkpoint, e));
    convert_ok((struct convert_options){.embeddings = spec, .format = CONVERT_MLMODELC}, package);
    struct mil_model *m = open_part(package, "qwen_embeddings_lut4.mlmodelc");
    check_values(find_op(m, "main", "embed_tokens_weight"), s, "model.embed_tokens.weight", 0, &spec);
    mil_model_close(m);
    /* The other parts are as ever. */
    m = open_part(package, "qwen_lm_head.mlmodelc");
    assert_string_equal(find_op(m, "main", "lm_head_1_weight")->type, "const");
    mil_model_close(m);
    safetensors_close(s);
    free(checkpoint);
    free(package);
}

/* ---- settings ---- */

static void test_meta(void **state)
{
    (void)state;
    struct meta *m = NULL;
    char *package = path_join(scratch_folder, "meta"), *path = path_join(package, "meta.yaml"), *text = NULL;
    size_t bytes = 0;
    convert_ok((struct convert_options){.ffn = {.kind = QUANT_LUT, .bits = 6, .group = 4},
                                        .head = {.kind = QUANT_INT4, .bits = 4, .block = 64}},
               package);
    ASSERT_OK(meta_read(&m, path, e));
    assert_int_equal(m->lut_ffn, 6);
    assert_int_equal(m->lut_ffn_per_channel, 4);
    assert_int_equal(m->lut_lmhead, META_NONE);
    assert_int_equal(m->lut_embeddings, META_NONE);
    assert_string_equal(m->quant_lmhead, "int4,64");
    assert_null(m->quant_ffn);
    assert_string_equal(m->ffn, "qwen_FFN_PF_lut6_chunk_01of01.mlmodelc");
    assert_string_equal(m->lm_head, "qwen_lm_head_int4.mlmodelc");
    assert_string_equal(m->embeddings, "qwen_embeddings.mlmodelc");
    ASSERT_OK(file_read(&text, &bytes, path, 1 << 20, e));
    assert_non_null(strstr(text, "# lut_method: kmeans"));
    free(text);
    meta_free(m);
    free(path);
    struct mil_model *model = open_part(package, "qwen_FFN_PF_lut6_chunk_01of01.mlpackage");
    const struct mil_description *d = &model->description;
    int n = 0;
    for (int i = 0; i < d->n_user_defined; i++) {
        n += strcmp(d->user_defined[i].key, "com.anemll.lut_bits") == 0 &&
             strcmp(d->user_defined[i].value, "6") == 0;
    }
    assert_int_equal(n, 1);
    mil_model_close(model);
    free(package);
}

static void test_only(void **state)
{
    (void)state;
    char *package = path_join(scratch_folder, "only");
    struct convert_options o = {.settings = {.n_chunks = 3}, .only = "chunk:2,head"};
    struct path_list list;
    convert_ok(o, package);
    ASSERT_OK(path_list_read(&list, package, e));
    assert_int_equal(list.n, 4);
    assert_string_equal(list.names[0], "qwen_FFN_PF_chunk_02of03.mlmodelc");
    assert_string_equal(list.names[2], "qwen_lm_head.mlmodelc");
    path_list_free(&list);
    static const char *const bad[] = {"",        "chunk", "chunk:0", "chunk:4",
                                      "chunk:x", "heads", "ffn,",    "chunk:1x"};
    for (int i = 0; i < 8; i++) {
        struct convert_report report;
        struct err e = {0};
        o.only = bad[i];
        char *other = path_join(scratch_folder, "bad-only");
        assert_false(convert(o, other, &report, &e));
        assert_int_equal(e.code, ERR_USAGE);
        assert_false(path_exists(other));
        convert_report_fini(&report);
        free(other);
    }
    free(package);
}

static void test_chunks_auto(void **state)
{
    (void)state;
    char *package = path_join(scratch_folder, "auto");
    convert_ok((struct convert_options){.chunks_auto = true, .only = "ffn"}, package);
    char *path = path_join(package, "qwen_FFN_PF_chunk_01of01.mlmodelc");
    assert_true(path_is_folder(path));
    free(path);
    free(package);
}

/* ---- the report ---- */

static void test_report(void **state)
{
    (void)state;
    char *package = path_join(scratch_folder, "reported"), *path = path_join(scratch_folder, "report.json");
    cJSON *report = NULL;
    convert_ok(
        (struct convert_options){.ffn = {.kind = QUANT_LUT, .bits = 4, .group = 8}, .report_path = path},
        package);
    ASSERT_OK(json_read_file(&report, path, 1 << 24, e));
    const cJSON *parts = json_get(report, "parts");
    assert_int_equal(cJSON_GetArraySize(parts), 3);
    const cJSON *chunk = cJSON_GetArrayItem(parts, 1), *tensors = json_get(chunk, "tensors");
    assert_int_equal(cJSON_GetArraySize(tensors), 28);
    for (const cJSON *t = tensors->child; t; t = t->next) {
        double error = json_get(t, "relative_error")->valuedouble;
        assert_true(error > 0.001 && error < 0.03);
        assert_true(json_get(t, "bits_per_weight")->valuedouble < 4.5);
    }
    assert_true(json_get(report, "peak_anonymous_bytes")->valuedouble > 0);
    cJSON_Delete(report);
    free(package);
    free(path);
}

/* ---- resuming ---- */

static char *work_folder(const char *output)
{
    struct path_list list;
    char *found = NULL, *prefix = xasprintf(".%s.tmp-", output);
    ASSERT_OK(path_list_read(&list, scratch_folder, e));
    for (size_t i = 0; i < list.n; i++) {
        if (strncmp(list.names[i], prefix, strlen(prefix)) == 0 && !found)
            found = path_join(scratch_folder, list.names[i]);
    }
    path_list_free(&list);
    free(prefix);
    return found;
}

/* A log whose reader stops the run once the first part is finished. */
static atomic_int cancel;

static ssize_t cancel_write(void *cookie, const char *text, size_t n)
{
    (void)cookie;
    for (size_t i = 0; i + 10 < n; i++) {
        if (memcmp(text + i, "qwen_embed", 10) == 0)
            cancel = 1;
    }
    return (ssize_t)n;
}

static void interrupt_run(struct convert_options o, const char *output)
{
    struct convert_report report;
    struct err e = {0};
    FILE *stream = fopencookie(NULL, "w", (cookie_io_functions_t){.write = cancel_write});
    setvbuf(stream, NULL, _IONBF, 0);
    struct log log = {.stream = stream, .level = LOG_DEBUG, .cancel = &cancel};
    cancel = 0;
    o.log = &log;
    assert_false(convert(o, output, &report, &e));
    assert_int_equal(e.code, ERR_CANCELLED);
    assert_int_equal(e.hint, HINT_RESUME);
    convert_report_fini(&report);
    fclose(stream);
}

static int resume_run(struct convert_options o, const char *output)
{
    struct convert_report report;
    o.resume = true;
    ASSERT_OK(convert(o, output, &report, e));
    int n = report.n_resumed;
    convert_report_fini(&report);
    return n;
}

static void assert_same_tree(const char *a, const char *b)
{
    struct path_list x, y;
    ASSERT_OK(path_list_read(&x, a, e));
    ASSERT_OK(path_list_read(&y, b, e));
    assert_int_equal(x.n, y.n);
    for (size_t i = 0; i < x.n; i++) {
        assert_string_equal(x.names[i], y.names[i]);
        char *p = path_join(a, x.names[i]), *q = path_join(b, y.names[i]);
        if (path_is_folder(p)) {
            assert_same_tree(p, q);
        } else {
            struct map_file *f = NULL, *g = NULL;
            ASSERT_OK(map_open(&f, p, e));
            ASSERT_OK(map_open(&g, q, e));
            assert_int_equal(f->bytes, g->bytes);
            assert_true(f->bytes == 0 || memcmp(f->data, g->data, f->bytes) == 0);
            map_close(f);
            map_close(g);
        }
        free(p);
        free(q);
    }
    path_list_free(&x);
    path_list_free(&y);
}

static void damage(const char *work, const char *inside)
{
    char *path = path_join(work, inside);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, 5000, SEEK_SET), 0);
    int byte = fgetc(f);
    assert_int_equal(fseek(f, 5000, SEEK_SET), 0);
    assert_int_not_equal(fputc(~byte & 0xff, f), EOF);
    assert_int_equal(fclose(f), 0);
    free(path);
}

static void test_resume(void **state)
{
    (void)state;
    struct convert_options o = {.ffn = {.kind = QUANT_LUT, .bits = 3, .group = 8},
                                .head = {.kind = QUANT_LUT, .bits = 4, .group = 8}};
    char *whole = path_join(scratch_folder, "whole"), *output = path_join(scratch_folder, "resumed"), *work;
    convert_ok(o, whole);

    interrupt_run(o, output);
    assert_false(path_exists(output));
    work = work_folder("resumed");
    assert_non_null(work);
    /* What a killed run leaves beside finished parts must not get into the package. */
    static const char *const leftovers[] = {"meta.yaml.tmp-abc123", ".finished.json.tmp-abc123",
                                            "qwen_lm_head_lut4.mlpackage/Data/weight.bin.tmp-00ffee"};
    for (int i = 0; i < 3; i++) {
        char *path = path_join(work, leftovers[i]), *folder = path_folder(path);
        ASSERT_OK(folder_make(folder, e));
        ASSERT_OK(file_write(path, "half", 4, e));
        free(folder);
        free(path);
    }
    free(work);
    assert_int_equal(resume_run(o, output), 1);
    assert_same_tree(whole, output);
    assert_null(work_folder("resumed"));
    ASSERT_OK(path_remove_tree(output, e));

    /* A finished part that is not whole any more is written again. */
    interrupt_run(o, output);
    work = work_folder("resumed");
    damage(work, "qwen_embeddings.mlmodelc/weights/weight.bin");
    free(work);
    assert_int_equal(resume_run(o, output), 0);
    assert_same_tree(whole, output);
    ASSERT_OK(path_remove_tree(output, e));

    /* A journal that can't be read is none. */
    interrupt_run(o, output);
    work = work_folder("resumed");
    char *journal = path_join(work, ".finished.json");
    ASSERT_OK(file_write(journal, "{\"parts\": [{\"name\": 3}, ", 25, e));
    assert_int_equal(resume_run(o, output), 0);
    assert_same_tree(whole, output);
    free(journal);
    free(work);
    ASSERT_OK(path_remove_tree(output, e));

    /* Other settings find nothing; without the option a run begins anew. */
    interrupt_run(o, output);
    struct convert_options others[3] = {o, o, o};
    others[0].ffn.bits = 4;
    others[1].settings.exact_norms = true;
    others[2].settings.exact_topk = true;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(resume_run(others[i], output), 0);
        ASSERT_OK(path_remove_tree(output, e));
    }
    convert_ok(o, output);
    assert_same_tree(whole, output);
    assert_null(work_folder("resumed"));
    free(whole);
    free(output);
}

static void test_threads(void **state)
{
    (void)state;
    struct convert_options o = {.ffn = {.kind = QUANT_LUT, .bits = 4, .group = 8},
                                .head = {.kind = QUANT_INT4, .bits = 4, .block = 32},
                                .embeddings = {.kind = QUANT_LUT, .bits = 6, .group = 0}};
    char *outputs[3];
    for (int i = 0; i < 3; i++) {
        outputs[i] = xasprintf("%s/quantized%d", scratch_folder, i + 1);
        o.n_threads = i + 1;
        convert_ok(o, outputs[i]);
        if (i > 0)
            assert_same_tree(outputs[0], outputs[i]);
    }
    for (int i = 0; i < 3; i++)
        free(outputs[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values), cmocka_unit_test(test_embeddings),  cmocka_unit_test(test_meta),
        cmocka_unit_test(test_only),   cmocka_unit_test(test_chunks_auto), cmocka_unit_test(test_report),
        cmocka_unit_test(test_resume), cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
