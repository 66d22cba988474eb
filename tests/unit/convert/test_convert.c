// links: mil
/* Conversion end to end: the same bytes for any number of threads, weights that equal the checkpoint's, every
 * failure leaves nothing. */
#include "support.h"
#include <math.h>
#include <signal.h>
#include "convert/convert.h"
#include "format/blob.h"

static char scratch[64];

static int make_scratch(void **state)
{
    (void)state;
    snprintf(scratch, sizeof scratch, "test_convert.XXXXXX");
    return mkdtemp(scratch) ? 0 : -1;
}

static int remove_scratch(void **state)
{
    (void)state;
    return path_remove_tree(scratch, NULL) ? 0 : -1;
}

static char *in_scratch(const char *name)
{
    return path_join(scratch, name);
}

static char *test_model(const char *name)
{
    return xasprintf("%s/models/%s", MILKIT_TEST_DATA, name);
}

/* Converts; the options beyond checkpoint and output are set by the caller. */
static bool convert(struct convert_options o, const char *checkpoint, const char *output, struct err *e)
{
    struct convert_report report;
    o.checkpoint = checkpoint;
    o.output = output;
    bool ok = convert_run(&o, &report, e);
    if (ok) {
        assert_true(report.bytes_written > 0 || report.n_resumed > 0);
        assert_true(report.n_tensors_used > 0);
    }
    convert_report_fini(&report);
    return ok;
}

static void assert_same_file(const char *a, const char *b)
{
    struct err e = {0};
    struct map_file *x = NULL, *y = NULL;
    if (!map_open(&x, a, &e) || !map_open(&y, b, &e))
        fail_msg("%s", e.msg);
    if (x->bytes != y->bytes || (x->bytes && memcmp(x->data, y->data, x->bytes) != 0))
        fail_msg("%s and %s differ", a, b);
    map_close(x);
    map_close(y);
}

static int assert_same_tree(const char *a, const char *b)
{
    struct path_list x, y;
    int n = 0;
    ASSERT_OK(path_list_read(&x, a, e));
    ASSERT_OK(path_list_read(&y, b, e));
    assert_int_equal(x.n, y.n);
    for (size_t i = 0; i < x.n; i++) {
        assert_string_equal(x.names[i], y.names[i]);
        char *p = path_join(a, x.names[i]), *q = path_join(b, y.names[i]);
        if (path_is_folder(p)) {
            n += assert_same_tree(p, q);
        } else {
            assert_same_file(p, q);
            n++;
        }
        free(p);
        free(q);
    }
    path_list_free(&x);
    path_list_free(&y);
    return n;
}

/* Names in scratch that begin like this, hidden temporary folders included. */
static int count_entries(const char *part)
{
    struct path_list l;
    int n = 0;
    ASSERT_OK(path_list_read(&l, scratch, e));
    for (size_t i = 0; i < l.n; i++)
        n += strstr(l.names[i], part) != NULL;
    path_list_free(&l);
    return n;
}

/* ---- a checkpoint with weights of several slices ---- */

enum { HIDDEN = 256, VOCABULARY = 20000, INTERMEDIATE = 9000 };

static void add_tensor(struct st_writer *w, struct arena *a, const char *name, int64_t rows, int64_t columns,
                       float bad)
{
    int64_t n = rows * (columns ? columns : 1), shape[2] = {rows, columns};
    bf16 *data = ARENA_ARRAY(a, bf16, n);
    uint32_t state = (uint32_t)n * 2654435761u + (uint32_t)strlen(name);
    for (int64_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        float f = (float)(int32_t)state * 0x1p-33f;
        uint32_t u;
        memcpy(&u, &f, 4);
        data[i] = (bf16)(u >> 16);
    }
    if (bad != 0.0f) {
        uint32_t u;
        memcpy(&u, &bad, 4);
        data[n - 1] = (bf16)(u >> 16);
    }
    st_writer_add(w, name, ST_BF16, shape, columns ? 2 : 1, data);
}

static char *write_checkpoint(const char *name, float bad)
{
    static const char config[] =
        "{\"model_type\": \"qwen3\", \"hidden_size\": 256, \"vocab_size\": 20000, \"intermediate_size\": "
        "9000, "
        "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"head_dim\": 4, "
        "\"tie_word_embeddings\": true}";
    char *folder = in_scratch(name), *path = path_join(folder, "config.json");
    struct arena *a = arena_new(0);
    struct st_writer *w = st_writer_new();
    static const char layer[] = "model.layers.0.";
    ASSERT_OK(folder_make(folder, e));
    ASSERT_OK(file_write(path, config, strlen(config), e));
    free(path);
    static const struct {
        const char *name;
        int64_t rows, columns;
    } layer_tensors[] = {
        {"input_layernorm.weight", HIDDEN, 0},
        {"post_attention_layernorm.weight", HIDDEN, 0},
        {"self_attn.q_proj.weight", 8, HIDDEN},
        {"self_attn.k_proj.weight", 4, HIDDEN},
        {"self_attn.v_proj.weight", 4, HIDDEN},
        {"self_attn.o_proj.weight", HIDDEN, 8},
        {"self_attn.q_norm.weight", 4, 0},
        {"self_attn.k_norm.weight", 4, 0},
        {"mlp.gate_proj.weight", INTERMEDIATE, HIDDEN},
        {"mlp.up_proj.weight", INTERMEDIATE, HIDDEN},
        {"mlp.down_proj.weight", HIDDEN, INTERMEDIATE},
    };
    add_tensor(w, a, "model.embed_tokens.weight", VOCABULARY, HIDDEN, 0);
    add_tensor(w, a, "model.norm.weight", HIDDEN, 0, 0);
    for (size_t i = 0; i < sizeof layer_tensors / sizeof layer_tensors[0]; i++)
        add_tensor(w, a, arena_printf(a, "%s%s", layer, layer_tensors[i].name), layer_tensors[i].rows,
                   layer_tensors[i].columns, strstr(layer_tensors[i].name, "up_proj") ? bad : 0);
    path = path_join(folder, "model.safetensors");
    ASSERT_OK(st_writer_write(w, path, true, e));
    free(path);
    st_writer_free(w);
    arena_free(a);
    return folder;
}

/* The blob behind the const op of this name. */
static const struct mil_value *weight_of(const struct mil_model *m, const char *function, const char *name)
{
    const struct mil_function *f = mil_function_find(m, function);
    assert_non_null(f);
    for (int i = 0; i < f->block->n_ops; i++) {
        const struct mil_op *op = f->block->ops[i];
        if (mil_op_is(op, "const") && strcmp(op->outputs[0]->name, name) == 0)
            return mil_attribute(op, "val");
    }
    fail_msg("no const %s", name);
    return NULL;
}

static void assert_weight(const struct mil_model *m, const char *function, const char *name,
                          const struct safetensors *s, const char *tensor, enum mil_value_kind kind)
{
    const struct mil_value *v = weight_of(m, function, name);
    const struct st_tensor *t = safetensors_find(s, tensor);
    assert_non_null(t);
    assert_int_equal(v->kind, kind);
    assert_int_equal(v->n_elems, t->n_elems);
    f16 *expected = xmalloc((size_t)t->n_elems * 2);
    ASSERT_OK(st_read_f16(t, 0, t->n_elems, expected, e));
    assert_memory_equal(v->data, expected, (size_t)t->n_elems * 2);
    free(expected);
}

static void check_weights(const char *package, const char *form, const char *checkpoint)
{
    struct safetensors *s = NULL;
    struct mil_model *m = NULL;
    ASSERT_OK(safetensors_open(&s, checkpoint, e));
    char *path = xasprintf("%s/qwen_FFN_PF_chunk_01of01.%s", package, form);
    ASSERT_OK(mil_model_open(&m, path, 0, e));
    static const char *const functions[] = {"infer", "prefill"};
    for (int i = 0; i < 2; i++) {
        assert_weight(m, functions[i], "layers_0_mlp_up_proj_weight", s, "model.layers.0.mlp.up_proj.weight",
                      MIL_VALUE_BLOB);
        assert_weight(m, functions[i], "layers_0_mlp_down_proj_weight", s,
                      "model.layers.0.mlp.down_proj.weight", MIL_VALUE_BLOB);
        assert_weight(m, functions[i], "norm_weight", s, "model.norm.weight", MIL_VALUE_BLOB);
        /* Four elements stay in the program. */
        assert_weight(m, functions[i], "layers_0_self_attn_q_norm_weight", s,
                      "model.layers.0.self_attn.q_norm.weight", MIL_VALUE_TENSOR);
    }
    /* Both functions refer to one record. */
    assert_int_equal(weight_of(m, "infer", "layers_0_mlp_up_proj_weight")->offset,
                     weight_of(m, "prefill", "layers_0_mlp_up_proj_weight")->offset);
    mil_model_close(m);
    free(path);
    path = xasprintf("%s/qwen_embeddings.%s", package, form);
    ASSERT_OK(mil_model_open(&m, path, 0, e));
    assert_weight(m, "main", "embed_tokens_weight", s, "model.embed_tokens.weight", MIL_VALUE_BLOB);
    mil_model_close(m);
    free(path);
    safetensors_close(s);
}

static void test_threads(void **state)
{
    (void)state;
    char *checkpoint = write_checkpoint("wide", 0), *outputs[3];
    for (int i = 0; i < 3; i++) {
        char name[32];
        snprintf(name, sizeof name, "threads%d", i + 1);
        outputs[i] = in_scratch(name);
        ASSERT_OK(convert((struct convert_options){.n_threads = i + 1}, checkpoint, outputs[i], e));
    }
    check_weights(outputs[0], "mlpackage", checkpoint);
    check_weights(outputs[0], "mlmodelc", checkpoint);
    /* 3 parts: 3 files of a package, 5 of a compiled model each; config.json, meta.yaml */
    assert_int_equal(assert_same_tree(outputs[0], outputs[1]), 26);
    assert_same_tree(outputs[0], outputs[2]);
    for (int i = 0; i < 3; i++)
        free(outputs[i]);
    free(checkpoint);
}

/* Either form alone has the bytes that it has beside the other. */
static void test_formats(void **state)
{
    (void)state;
    char *checkpoint = test_model("qwen3-tiny"), *both = in_scratch("both");
    static const char *const extensions[] = {"mlmodelc", "mlpackage"};
    static const enum convert_format formats[] = {CONVERT_MLMODELC, CONVERT_MLPACKAGE};
    ASSERT_OK(convert((struct convert_options){.settings = {.n_chunks = 2}}, checkpoint, both, e));
    for (int i = 0; i < 2; i++) {
        char *one = in_scratch(extensions[i]);
        static const char *const parts[] = {"embeddings", "FFN_PF_chunk_01of02", "FFN_PF_chunk_02of02",
                                            "lm_head"};
        ASSERT_OK(convert((struct convert_options){.settings = {.n_chunks = 2}, .format = formats[i]},
                          checkpoint, one, e));
        for (int k = 0; k < 4; k++) {
            char *a = xasprintf("%s/qwen_%s.%s", both, parts[k], extensions[i]);
            char *b = xasprintf("%s/qwen_%s.%s", one, parts[k], extensions[i]);
            char *other = xasprintf("%s/qwen_%s.%s", one, parts[k], extensions[1 - i]);
            assert_true(assert_same_tree(a, b) >= 3);
            assert_false(path_exists(other));
            free(a);
            free(b);
            free(other);
        }
        free(one);
    }
    free(both);
    free(checkpoint);
}

static void test_meta(void **state)
{
    (void)state;
    char *checkpoint = test_model("qwen3-tiny"), *output = in_scratch("meta");
    struct meta *m = NULL;
    ASSERT_OK(convert(
        (struct convert_options){
            .prefix = "abc",
            .settings = {.context_length = 96, .batch_size = 8, .n_chunks = 3, .split_lm_head = 4}},
        checkpoint, output, e));
    char *path = path_join(output, "meta.yaml");
    ASSERT_OK(meta_read(&m, path, e));
    assert_string_equal(m->name, "anemll-qwen3-tiny-ctx96");
    assert_string_equal(m->version, "0.3.5");
    assert_string_equal(m->architecture, "qwen3");
    assert_int_equal(m->context_length, 96);
    assert_int_equal(m->batch_size, 8);
    assert_int_equal(m->num_chunks, 3);
    assert_string_equal(m->ffn, "abc_FFN_PF_chunk_01of03.mlmodelc");
    assert_string_equal(m->embeddings, "abc_embeddings.mlmodelc");
    assert_string_equal(m->lm_head, "abc_lm_head.mlmodelc");
    assert_int_equal(m->split_lm_head, 4);
    assert_int_equal(m->vocab_size, 2057);
    assert_int_equal(m->n_lm_head_chunk_sizes, 4);
    assert_int_equal(m->lm_head_chunk_sizes[0], 515);
    assert_int_equal(m->lm_head_chunk_sizes[3], 514);
    assert_true(m->prefill_dynamic_slice && m->prefill_last_token_output && m->sampling.is_present);
    assert_int_equal(m->sampling.top_k, 20);
    assert_int_equal(m->lut_ffn, META_NONE);
    assert_int_equal(m->num_layers, 5);
    assert_int_equal(m->hidden_size, 192);
    assert_int_equal(m->n_unknown_keys, 0);
    assert_false(m->recurrent_state);
    meta_free(m);
    free(path);
    /* config.json: the source with one key more. */
    cJSON *config = NULL, *source = NULL;
    path = path_join(output, "config.json");
    ASSERT_OK(json_read_file(&config, path, 1 << 20, e));
    free(path);
    path = path_join(checkpoint, "config.json");
    ASSERT_OK(json_read_file(&source, path, 1 << 20, e));
    free(path);
    const char *class_name = NULL;
    ASSERT_OK(json_get_string(config, "tokenizer_class", &class_name, "config", e));
    assert_non_null(class_name);
    if (!json_get(source, "tokenizer_class"))
        cJSON_DeleteItemFromObjectCaseSensitive(config, "tokenizer_class");
    assert_true(cJSON_Compare(config, source, true));
    cJSON_Delete(config);
    cJSON_Delete(source);
    static const char *const copied[] = {"tokenizer.json", "tokenizer_config.json", "generation_config.json"};
    for (int i = 0; i < 3; i++) {
        char *a = path_join(checkpoint, copied[i]), *b = path_join(output, copied[i]);
        assert_same_file(a, b);
        free(a);
        free(b);
    }
    free(output);
    free(checkpoint);
}

static void test_failures(void **state)
{
    (void)state;
    static const float bad[] = {70000.0f, -1e38f, NAN, -INFINITY};
    static const char *const found[] = {"found 69632", "found -9.9", "found nan", "found -inf"};
    for (int i = 0; i < 4; i++) {
        struct err e = {0};
        char *checkpoint = write_checkpoint("bad", bad[i]), *output = in_scratch("failed");
        assert_false(convert((struct convert_options){.n_threads = 2}, checkpoint, output, &e));
        assert_int_equal(e.code, ERR_FORMAT);
        assert_non_null(strstr(e.msg, "model.layers.0.mlp.up_proj.weight"));
        assert_non_null(strstr(e.msg, "2303999"));
        assert_non_null(strstr(e.msg, found[i]));
        assert_int_equal(count_entries("failed"), 0);
        free(output);
        free(checkpoint);
    }
    char *checkpoint = test_model("qwen3-tiny"), *output = in_scratch("failed");
    static const char *const prefixes[] = {"", "a.b", "a/b", "../x"};
    for (int i = 0; i < 4; i++) {
        struct err e = {0};
        assert_false(convert((struct convert_options){.prefix = prefixes[i]}, checkpoint, output, &e));
        assert_int_equal(e.code, ERR_USAGE);
    }
    atomic_int cancel = 1;
    struct log log = {.level = LOG_QUIET, .cancel = &cancel};
    struct err e = {0};
    assert_false(convert((struct convert_options){.log = &log}, checkpoint, output, &e));
    assert_int_equal(e.code, ERR_CANCELLED);
    assert_int_equal(count_entries("failed"), 0);
    free(output);
    free(checkpoint);
}

static void test_replace(void **state)
{
    (void)state;
    char *checkpoint = test_model("qwen3-tiny"), *output = in_scratch("again"), *other = in_scratch("other");
    struct convert_options o = {.settings = {.context_length = 64}};
    struct err e = {0};
    ASSERT_OK(convert(o, checkpoint, output, e));
    assert_false(convert(o, checkpoint, output, &e));
    assert_int_equal(e.code, ERR_IO);
    o.replace = true;
    o.settings.context_length = 32;
    ASSERT_OK(convert(o, checkpoint, output, e));
    char *path = path_join(output, "meta.yaml");
    struct meta *m = NULL;
    ASSERT_OK(meta_read(&m, path, e));
    assert_int_equal(m->context_length, 32);
    assert_int_equal(m->batch_size, 32); /* the default fits a short context */
    meta_free(m);
    free(path);
    /* What is no package stays. */
    ASSERT_OK(folder_make(other, e));
    path = path_join(other, "letter.txt");
    ASSERT_OK(file_write(path, "dear", 4, e));
    assert_false(convert(o, checkpoint, other, &e));
    assert_true(path_exists(path));
    free(path);
    /* Nor is a checkpoint, even one that looks like a package. */
    char *model = write_checkpoint("other/model", 0);
    path = path_join(other, "meta.yaml");
    ASSERT_OK(file_write(path, "x: 1", 4, e));
    memset(&e, 0, sizeof e);
    assert_false(convert(o, model, other, &e));
    assert_int_equal(e.code, ERR_USAGE);
    assert_false(convert(o, model, model, &e));
    free(path);
    path = path_join(model, "model.safetensors");
    assert_true(path_exists(path));
    free(path);
    free(model);
    assert_int_equal(count_entries(".tmp-"), 0);
    free(output);
    free(other);
    free(checkpoint);
}

struct look {
    int n;
    enum err_code code; /* what it answers */
    bool was_whole;
};

static bool look_at_package(void *context, const char *folder, struct err *e)
{
    static const char *const names[] = {"meta.yaml", "qwen_embeddings.mlmodelc/model.mil",
                                        "qwen_lm_head.mlmodelc/weights/weight.bin", "tokenizer.json"};
    struct look *l = context;
    l->n++;
    char *output = in_scratch("tried");
    l->was_whole = !path_exists(output); /* it has no name yet */
    free(output);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *path = path_join(folder, names[i]);
        l->was_whole = l->was_whole && path_exists(path);
        free(path);
    }
    return l->code == ERR_NONE || err_set(e, l->code, "does not run");
}

/* The package is tried when it is whole and before it has its name; what does not run is not left behind. A part alone
 * is not tried. */
static void test_verify(void **state)
{
    (void)state;
    char *checkpoint = test_model("qwen3-tiny"), *output = in_scratch("tried");
    struct look look = {.code = ERR_UNSUPPORTED};
    struct convert_options o = {
        .settings = {.context_length = 64}, .verify = look_at_package, .verify_context = &look};
    struct err e = {0};
    assert_false(convert(o, checkpoint, output, &e));
    assert_int_equal(e.code, ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "does not run"));
    assert_int_equal(look.n, 1);
    assert_true(look.was_whole);
    assert_int_equal(count_entries("tried"), 0);
    /* The user stopped it there: finished parts stay for the next run. */
    look = (struct look){.code = ERR_CANCELLED};
    memset(&e, 0, sizeof e);
    assert_false(convert(o, checkpoint, output, &e));
    assert_int_equal(e.hint, HINT_RESUME);
    look = (struct look){0};
    o.resume = true;
    ASSERT_OK(convert(o, checkpoint, output, e));
    assert_int_equal(look.n, 1);
    assert_true(look.was_whole);
    o.only = "head,meta";
    o.replace = true;
    ASSERT_OK(convert(o, checkpoint, output, e));
    assert_int_equal(look.n, 1);
    free(output);
    free(checkpoint);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),  cmocka_unit_test(test_formats), cmocka_unit_test(test_meta),
        cmocka_unit_test(test_failures), cmocka_unit_test(test_replace), cmocka_unit_test(test_verify),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
