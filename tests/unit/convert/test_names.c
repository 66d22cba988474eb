// links: convert runtime reference
/* Names that wrappers give to tensors: the package and the reference are those of the plain names, byte for byte. What
 * is no language model's numbers is refused under its name. */
#include "edited_checkpoint.h"
#include "format/checkpoint.h"
#include "reference/reference.h"

/* What stands in place of "model." and "lm_head.weight"; inside: what a wrapper puts behind each layer's number. */
struct spelling {
    const char *text, *head, *inside;
};

static bool spell(void *context, const char *name, char dst[256])
{
    const struct spelling *x = context;
    const char *rest = strncmp(name, "model.", 6) == 0 ? name + 6 : NULL;
    int n_layer = 0;
    if (!rest) {
        snprintf(dst, 256, "%s", strcmp(name, "lm_head.weight") == 0 ? x->head : name);
        return true;
    }
    if (x->inside && strncmp(rest, "layers.", 7) == 0)
        n_layer = 7 + (int)strspn(rest + 7, "0123456789") + 1;
    snprintf(dst, 256, "%s%.*s%s%s", x->text, n_layer, rest, n_layer ? x->inside : "", rest + n_layer);
    return true;
}

static char *convert(const char *checkpoint, const char *name)
{
    char *output = path_join(packages_scratch, name);
    struct convert_options o = {.checkpoint = checkpoint,
                                .output = output,
                                .format = CONVERT_MLMODELC,
                                .n_threads = 1,
                                .settings = {.context_length = 32, .batch_size = 8, .split_lm_head = 2}};
    struct convert_report report;
    ASSERT_OK(path_remove_tree(output, e));
    ASSERT_OK(convert_run(&o, &report, e));
    convert_report_fini(&report);
    return output;
}

static void assert_same_file(const char *a, const char *b)
{
    struct map_file *x = NULL, *y = NULL;
    ASSERT_OK(map_open(&x, a, e));
    ASSERT_OK(map_open(&y, b, e));
    if (x->bytes != y->bytes || memcmp(x->data, y->data, x->bytes) != 0)
        fail_msg("%s and %s differ", a, b);
    map_close(x);
    map_close(y);
}

/* All files but meta.yaml, which has the checkpoint's name. */
static int assert_same_tree(const char *a, const char *b)
{
    struct path_list list;
    int n_files = 0;
    ASSERT_OK(path_list_read(&list, a, e));
    for (size_t i = 0; i < list.n; i++) {
        char *x = path_join(a, list.names[i]), *y = path_join(b, list.names[i]);
        if (path_is_folder(x)) {
            n_files += assert_same_tree(x, y);
        } else if (strcmp(list.names[i], "meta.yaml") != 0) {
            assert_same_file(x, y);
            n_files++;
        }
        free(x);
        free(y);
    }
    path_list_free(&list);
    return n_files;
}

static float *reference_values(const char *checkpoint, int64_t *n)
{
    struct reference *r = NULL;
    struct reference_session *s = NULL;
    struct reference_options o = {.n_threads = 1};
    static const int32_t ids[] = {7, 3, 11, 90, 2, 5};
    ASSERT_OK(reference_open(&r, checkpoint, &o, e));
    ASSERT_OK(reference_session_new(&s, r, 8, e));
    ASSERT_OK(reference_feed(s, ids, 6, NULL, NULL, e));
    *n = r->vocab_size;
    float *values = xmalloc((size_t)*n * sizeof *values);
    memcpy(values, reference_logits(s), (size_t)*n * sizeof *values);
    reference_session_free(s);
    reference_close(r);
    return values;
}

static void check_spellings(const char *model, const struct spelling *list, int n)
{
    struct spelling as_is = {"model.", "lm_head.weight", NULL};
    char *plain = renamed_checkpoint(model, "plain", NULL, spell, &as_is),
         *expected = convert(plain, "expected");
    int64_t n_values, n_found;
    float *values = reference_values(plain, &n_values);
    for (int i = 0; i < n; i++) {
        struct spelling x = list[i];
        char *checkpoint = renamed_checkpoint(model, "renamed", NULL, spell, &x),
             *found = convert(checkpoint, "found");
        print_message("%s: %s\n", model, x.text);
        assert_true(assert_same_tree(expected, found) > 10);
        float *other = reference_values(checkpoint, &n_found);
        assert_int_equal(n_found, n_values);
        assert_memory_equal(values, other, (size_t)n_values * sizeof *values);
        free(other);
        free(checkpoint);
        free(found);
    }
    free(values);
    free(plain);
    free(expected);
}

static void test_spellings(void **state)
{
    (void)state;
    static const struct spelling all[] = {
        {"", "lm_head.weight", NULL},
        {"language_model.", "lm_head.weight", NULL},
        {"language_model.model.", "language_model.lm_head.weight", NULL},
        {"model.language_model.", "lm_head.weight", NULL},
        {"model.model.", "model.lm_head.weight", NULL},
        {"model.language_model.model.", "model.language_model.lm_head.weight", NULL},
        {"language_model.language_model.", "lm_head.weight", NULL},
        {"base_model.model.model.", "base_model.model.lm_head.weight", NULL},
        {"_orig_mod.model.", "_orig_mod.lm_head.weight", NULL},
        {"model._orig_mod.", "lm_head.weight", "_fsdp_wrapped_module._checkpoint_wrapped_module."},
        {"module.model.", "module.lm_head.weight", "_orig_mod."},
        {"thinker.model.", "thinker.lm_head.weight", NULL},
    };
    static const struct spelling some[] = {
        {"", "lm_head.weight", NULL},
        {"base_model.model.model.", "base_model.model.lm_head.weight", "_orig_mod."}};
    check_spellings("qwen3-gqa8", all, sizeof all / sizeof all[0]);
    check_spellings("qwen3_5-equal", some, 2);
    check_spellings("qwen3_5_moe-random", some, 2);
    check_spellings("gemma4-resaved", some, 2);
}

/* ---- what is refused ---- */

/* A tensor gets another ending, or is left out (to: NULL). */
struct ending {
    const char *from, *to;
};

static bool change_ending(void *context, const char *name, char dst[256])
{
    const struct ending *x = context;
    if (has_suffix(name, x->from))
        snprintf(dst, 256, "%.*s%s", (int)(strlen(name) - strlen(x->from)), name, x->to);
    else
        snprintf(dst, 256, "%s", name);
    return x->to || !has_suffix(name, x->from);
}

static void assert_refused(const char *checkpoint, enum err_code code, const char *says, const char *says_too)
{
    char *output = path_join(packages_scratch, "refused");
    struct convert_options o = {.checkpoint = checkpoint, .output = output, .n_threads = 1};
    struct reference_options options = {.n_threads = 1};
    struct convert_report report;
    struct reference *r = NULL;
    for (int k = 0; k < 2; k++) {
        struct err e = {0};
        if (k ? reference_open(&r, checkpoint, &options, &e) : convert_run(&o, &report, &e))
            fail_msg("%s by %s, expected \"%s\"", "accepted", k ? "the reference" : "convert", says);
        if (!k)
            convert_report_fini(&report);
        if (e.code != code || !strstr(e.msg, says) || !strstr(e.msg, says_too))
            fail_msg("expected %d \"%s\" \"%s\", found %d: %s", (int)code, says, says_too, (int)e.code,
                     e.msg);
    }
    assert_false(path_exists(output));
    free(output);
}

static void test_layouts(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *says;
    } cases[] = {
        {"layers.0.self_attn.q_proj.weight", "layers.0.self_attn.q_proj.lora_A.default.weight", "LoRA"},
        {"layers.0.self_attn.q_proj.weight", "layers.0.self_attn.q_proj.base_layer.weight", "PEFT"},
        {"layers.0.mlp.up_proj.weight", "layers.0.mlp.up_proj.qweight", "AWQ or GPTQ"},
        {"layers.0.mlp.up_proj.weight", "layers.0.mlp.up_proj.g_idx", "GPTQ"},
        {"layers.0.mlp.up_proj.weight", "layers.0.mlp.up_proj.biases", "MLX"},
        {"layers.0.mlp.up_proj.weight", "layers.0.mlp.switch_mlp.up_proj.weight", "MLX"},
        {"layers.0.mlp.up_proj.weight", "layers.0.mlp.up_proj.weight.absmax", "bitsandbytes (4 bits)"},
        {"layers.0.mlp.up_proj.weight", "layers.0.mlp.up_proj.weight.quant_state.bitsandbytes__nf4",
         "bitsandbytes"},
        {"layers.0.mlp.up_proj.weight", "layers.0.mlp.up_proj.SCB", "bitsandbytes (8 bits)"},
        {"layers.0.mlp.up_proj.weight", "layers.0.mlp.up_proj.weight_packed", "compressed-tensors"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ending x = {cases[i].from, cases[i].to};
        char *checkpoint = renamed_checkpoint("qwen3-gqa8", "layout", NULL, change_ending, &x);
        assert_refused(checkpoint, ERR_UNSUPPORTED, cases[i].says,
                       "layout/model.safetensors: tensor model.layers.0.");
        free(checkpoint);
    }
    /* A name twice, and a head that is gone. */
    static const struct ending doubled = {"layers.0.mlp.up_proj.weight",
                                          "layers.0.mlp._orig_mod.gate_proj.weight"};
    char *checkpoint = renamed_checkpoint("qwen3-gqa8", "layout", NULL, change_ending, (void *)&doubled);
    assert_refused(checkpoint, ERR_FORMAT, "layers.0.mlp.gate_proj.weight is missing", "_orig_mod");
    free(checkpoint);
    static const struct ending gone = {"lm_head.weight", NULL};
    checkpoint = renamed_checkpoint("qwen3-gqa8", "layout", NULL, change_ending, (void *)&gone);
    assert_refused(checkpoint, ERR_FORMAT, "lm_head.weight is missing", "tie_word_embeddings");
    free(checkpoint);
}

static void test_kinds(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum err_code code;
        const char *says;
    } cases[] = {
        {"\"architectures\": [\"Qwen3ForSequenceClassification\"]", ERR_UNSUPPORTED, "classifier"},
        {"\"architectures\": [\"Qwen3ForTokenClassification\"]", ERR_UNSUPPORTED, "classifier"},
        {"\"architectures\": [\"Qwen3Model\"], \"tie_word_embeddings\": false", ERR_FORMAT,
         "lm_head.weight is missing"},
        {"\"quantization\": {\"group_size\": 64, \"bits\": 4}", ERR_UNSUPPORTED, "MLX"},
        {"\"quantization_config\": {\"quant_method\": \"bitsandbytes\"}", ERR_UNSUPPORTED, "bitsandbytes"},
        {"\"quantization_config\": {\"quant_method\": \"compressed-tensors\"}", ERR_UNSUPPORTED,
         "compressed-tensors"},
    };
    char *path = xasprintf("%s/models/qwen3-bias/config.json", MILKIT_TEST_DATA), *text = NULL;
    struct spelling as_is = {"model.", "lm_head.weight", NULL};
    size_t n;
    ASSERT_OK(file_read(&text, &n, path, 1 << 20, e));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        /* Of a key that is there twice the last one counts. */
        char *config = xasprintf("%.*s, %s}", (int)(strrchr(text, '}') - text), text, cases[i].text);
        char *checkpoint = renamed_checkpoint("qwen3-bias", "kind", config, spell, &as_is);
        assert_refused(checkpoint, cases[i].code, cases[i].says, "kind/");
        free(config);
        free(checkpoint);
    }
    free(text);
    free(path);
}

static void test_adapter_folder(void **state)
{
    (void)state;
    char *folder = path_join(packages_scratch, "adapter"), *config = path_join(folder, "adapter_config.json");
    static const char text[] = "{\"base_model_name_or_path\": \"org/base\", \"peft_type\": \"LORA\"}";
    ASSERT_OK(folder_make(folder, e));
    ASSERT_OK(file_write(config, text, sizeof text - 1, e));
    assert_refused(folder, ERR_UNSUPPORTED, "adapter", "org/base");
    free(folder);
    free(config);
}

/* ---- shards ---- */

/* A checkpoint of shards: each tensor in the file that this function names. */
static const char *shard_of(const char *name)
{
    if (strncmp(name, "model.layers.0.", 15) == 0)
        return "model-00002-of-00004.safetensors";
    if (strncmp(name, "model.layers.1.", 15) == 0)
        return "model-00003-of-00004.safetensors";
    return "model-00001-of-00004.safetensors";
}

static char *sharded_checkpoint(const char *extra)
{
    char *from = xasprintf("%s/models/qwen3-gqa8", MILKIT_TEST_DATA),
         *to = path_join(packages_scratch, "shards"), *config = path_join(from, "config.json"),
         *copy = path_join(to, "config.json");
    struct safetensors *s = NULL;
    struct buf index;
    buf_init(&index, 1 << 20);
    ASSERT_OK(path_remove_tree(to, e));
    ASSERT_OK(folder_make(to, e));
    ASSERT_OK(file_copy(config, copy, e));
    ASSERT_OK(safetensors_open(&s, from, e));
    buf_printf(&index, "{\"weight_map\": {%s", extra);
    for (int file = 1; file <= 3; file++) {
        char name[64];
        snprintf(name, sizeof name, "model-0000%d-of-00004.safetensors", file);
        char *path = path_join(to, name);
        struct st_writer *w = st_writer_new();
        for (int i = 0; i < s->n_tensors; i++) {
            const struct st_tensor *t = &s->tensors[i];
            if (strcmp(shard_of(t->name), name) != 0)
                continue;
            st_writer_add(w, t->name, t->dtype, t->shape, t->rank, t->data);
            buf_printf(&index, ", \"%s\": \"%s\"", t->name, name);
        }
        ASSERT_OK(st_writer_write(w, path, true, e));
        st_writer_free(w);
        free(path);
    }
    buf_puts(&index, "}}");
    char *path = path_join(to, "model.safetensors.index.json");
    ASSERT_OK(file_write(path, index.p, index.n, e));
    buf_fini(&index);
    safetensors_close(s);
    free(path);
    free(from);
    free(config);
    free(copy);
    return to;
}

static void remove_file(const char *folder, const char *name)
{
    char *path = path_join(folder, name);
    ASSERT_OK(path_remove_tree(path, e));
    free(path);
}

/* What nothing needs may be missing, with its file or alone; what is needed is named with all files that are not there. */
static void test_partial_downloads(void **state)
{
    (void)state;
    struct spelling as_is = {"model.", "lm_head.weight", NULL};
    char *plain = renamed_checkpoint("qwen3-gqa8", "plain", NULL, spell, &as_is),
         *expected = convert(plain, "expected");
    static const char *const extras[] = {
        "\"mtp.fc.weight\": \"model-00001-of-00004.safetensors\"",
        "\"model.visual.patch_embed.proj.weight\": \"model-00004-of-00004.safetensors\"",
        "\"mtp.layers.0.mlp.up_proj.weight\": \"mtp.safetensors\"",
        ("\"model.visual.x\": \"model-00004-of-00004.safetensors\", \"mtp.norm.weight\": "
         "\"model-00002-of-00004.safetensors\""),
    };
    for (size_t i = 0; i < sizeof extras / sizeof extras[0]; i++) {
        char *checkpoint = sharded_checkpoint(extras[i]), *found = convert(checkpoint, "found");
        assert_true(assert_same_tree(expected, found) > 10);
        free(checkpoint);
        free(found);
    }
    char *checkpoint = sharded_checkpoint(extras[1]);
    remove_file(checkpoint, "model-00003-of-00004.safetensors");
    assert_refused(checkpoint, ERR_FORMAT, "tensor model.layers.1.",
                   "needs what can't be read: model-00003-of-00004.safetensors (");
    remove_file(checkpoint, "model-00001-of-00004.safetensors");
    assert_refused(checkpoint, ERR_FORMAT, "embed_tokens.weight", "model-00003-of-00004.safetensors");
    assert_refused(checkpoint, ERR_FORMAT, "model-00001-of-00004.safetensors, ", "is not there");
    remove_file(checkpoint, "model-00002-of-00004.safetensors");
    assert_refused(checkpoint, ERR_FORMAT, "none of the 4 files", "incomplete");
    free(checkpoint);
    free(plain);
    free(expected);
}

/* A head that is lost with its file is not replaced by the table of embeddings. */
static void test_lost_head(void **state)
{
    (void)state;
    char *path = xasprintf("%s/models/qwen3-bias", MILKIT_TEST_DATA),
         *to = path_join(packages_scratch, "lost");
    struct path_list list;
    ASSERT_OK(path_list_read(&list, path, e));
    ASSERT_OK(folder_make(to, e));
    for (size_t i = 0; i < list.n; i++) {
        char *from = path_join(path, list.names[i]), *copy = path_join(to, list.names[i]);
        ASSERT_OK(file_copy(from, copy, e));
        free(from);
        free(copy);
    }
    char *index = path_join(to, "model.safetensors.index.json"), *text = NULL;
    size_t n;
    ASSERT_OK(file_read(&text, &n, index, 1 << 20, e));
    assert_null(strstr(text, "lm_head"));
    char *more = xasprintf("{\"weight_map\": {\"lm_head.weight\": \"head.safetensors\", %s",
                           strchr(strstr(text, "weight_map"), '{') + 1);
    ASSERT_OK(file_write(index, more, strlen(more), e));
    assert_refused(to, ERR_FORMAT, "lm_head.weight", "head.safetensors");
    path_list_free(&list);
    free(index);
    free(text);
    free(more);
    free(path);
    free(to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spellings),
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_adapter_folder),
        cmocka_unit_test(test_partial_downloads),
        cmocka_unit_test(test_lost_head),
    };
    return cmocka_run_group_tests(tests, packages_setup, packages_teardown);
}
