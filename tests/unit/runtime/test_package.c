/* Finding the parts of a package: names of our packages, of ANEMLL's and of old ones with missing keys; stop ids and
 * sampling from whatever says them; a message of its own for everything that is no package. */
#include "support.h"
#include "runtime/package.h"
#include "runtime/sampler.h"

static char scratch[64];

static int make_scratch(void **state)
{
    (void)state;
    snprintf(scratch, sizeof scratch, "test_package.XXXXXX");
    return mkdtemp(scratch) ? 0 : -1;
}

static int remove_scratch(void **state)
{
    (void)state;
    return path_remove_tree(scratch, NULL) ? 0 : -1;
}

static void put(const char *name, const char *text)
{
    char *path = path_join(scratch, name), *folder = path_folder(path);
    ASSERT_OK(folder_make(folder, e));
    ASSERT_OK(file_write(path, text, strlen(text), e));
    free(folder);
    free(path);
}

/* A model as far as looking for it goes. */
static void put_model(const char *name)
{
    char *inside = xasprintf("%s/%s", name, has_suffix(name, ".mlpackage") ? "Manifest.json" : "model.mil");
    put(inside, "");
    free(inside);
}

/* An empty folder with a meta.yaml of these lines under model_info.parameters. */
static void begin(const char *parameters)
{
    struct path_list list;
    char *text = xasprintf("model_info:\n  name: test\n  parameters:\n%s", parameters);
    ASSERT_OK(path_list_read(&list, scratch, e));
    for (size_t i = 0; i < list.n; i++) {
        char *path = path_join(scratch, list.names[i]);
        assert_true(path_remove_tree(path, NULL));
        free(path);
    }
    path_list_free(&list);
    put("meta.yaml", text);
    free(text);
}

static void assert_base(const char *path, const char *expected)
{
    assert_non_null(path);
    char *base = path_base(path);
    assert_string_equal(base, expected);
    free(base);
    assert_true(path_exists(path));
}

/* Expected names of embeddings, head and chunks. */
static void expect_parts(const char *embeddings, const char *head, int n_chunks, const char *const *chunks)
{
    struct package *p = NULL;
    ASSERT_OK(package_open(&p, scratch, e));
    assert_base(p->embeddings, embeddings);
    assert_base(p->lm_head, head);
    assert_int_equal(p->n_chunks, n_chunks);
    for (int i = 0; i < n_chunks; i++)
        assert_base(p->chunks[i], chunks[i]);
    package_close(p);
}

static void expect_one_chunk(const char *embeddings, const char *head, const char *chunk)
{
    expect_parts(embeddings, head, 1, &chunk);
}

static void expect_error_at(const char *path, enum err_code code, const char *text)
{
    struct package *p = NULL;
    struct err e = {0};
    assert_false(package_open(&p, path, &e));
    assert_null(p);
    if (e.code != code || !strstr(e.msg, text))
        fail_msg("expected code %d and '%s', found %d: %s", code, text, e.code, e.msg);
}

static void expect_error(enum err_code code, const char *text)
{
    expect_error_at(scratch, code, text);
}

#define BASIC                                                                                                \
    "    context_length: 512\n    batch_size: 64\n    lut_embeddings: none\n    lut_ffn: none\n"             \
    "    lut_lmhead: none\n    num_chunks: 1\n    model_prefix: qwen\n"
#define NAMED                                                                                                \
    BASIC                                                                                                    \
    "    embeddings: qwen_embeddings.mlmodelc\n    lm_head: qwen_lm_head.mlmodelc\n"                         \
    "    ffn: qwen_FFN_PF_chunk_01of01.mlmodelc\n"

/* ---- names ---- */

static void test_names_of_meta(void **state)
{
    (void)state;
    begin(NAMED);
    put_model("qwen_embeddings.mlmodelc");
    put_model("qwen_lm_head.mlmodelc");
    put_model("qwen_FFN_PF_chunk_01of01.mlmodelc");
    put_model("qwen_embeddings.mlpackage");
    put_model("qwen_lm_head.mlpackage");
    put_model("qwen_FFN_PF_chunk_01of01.mlpackage");
    expect_one_chunk("qwen_embeddings.mlmodelc", "qwen_lm_head.mlmodelc",
                     "qwen_FFN_PF_chunk_01of01.mlmodelc");
    /* by meta.yaml itself, and with a slash at the end */
    char *meta = path_join(scratch, "meta.yaml"), *slash = xasprintf("%s/", scratch);
    struct package *p = NULL;
    ASSERT_OK(package_open(&p, meta, e));
    assert_base(p->embeddings, "qwen_embeddings.mlmodelc");
    package_close(p);
    ASSERT_OK(package_open(&p, slash, e));
    assert_base(p->embeddings, "qwen_embeddings.mlmodelc");
    package_close(p);
    free(meta);
    free(slash);
}

/* meta.yaml says .mlmodelc, the folder holds .mlpackage (ANEMLL's own state before compiling), and the reverse. */
static void test_other_extension(void **state)
{
    (void)state;
    begin(NAMED);
    put_model("qwen_embeddings.mlpackage");
    put_model("qwen_lm_head.mlpackage");
    put_model("qwen_FFN_PF_chunk_01of01.mlpackage");
    expect_one_chunk("qwen_embeddings.mlpackage", "qwen_lm_head.mlpackage",
                     "qwen_FFN_PF_chunk_01of01.mlpackage");
    begin(BASIC "    embeddings: qwen_embeddings.mlpackage\n    lm_head: qwen_lm_head.mlpackage\n"
                "    ffn: qwen_FFN_PF_chunk_01of01.mlpackage\n");
    put_model("qwen_embeddings.mlmodelc");
    put_model("qwen_lm_head.mlmodelc");
    put_model("qwen_FFN_PF_chunk_01of01.mlmodelc");
    expect_one_chunk("qwen_embeddings.mlmodelc", "qwen_lm_head.mlmodelc",
                     "qwen_FFN_PF_chunk_01of01.mlmodelc");
}

/* 0.2.0: no file keys at all, eight chunks: built from prefix, LUT and chunks. */
static void test_missing_keys(void **state)
{
    (void)state;
    static const char *const chunks[] = {
        "DeepSeek_FFN_PF_lut6_chunk_01of08.mlmodelc", "DeepSeek_FFN_PF_lut6_chunk_02of08.mlmodelc",
        "DeepSeek_FFN_PF_lut6_chunk_03of08.mlmodelc", "DeepSeek_FFN_PF_lut6_chunk_04of08.mlmodelc",
        "DeepSeek_FFN_PF_lut6_chunk_05of08.mlmodelc", "DeepSeek_FFN_PF_lut6_chunk_06of08.mlmodelc",
        "DeepSeek_FFN_PF_lut6_chunk_07of08.mlmodelc", "DeepSeek_FFN_PF_lut6_chunk_08of08.mlmodelc"};
    begin("    context_length: 1024\n    batch_size: 256\n    lut_embeddings: none\n    lut_ffn: 6\n    "
          "lut_lmhead: 8\n"
          "    num_chunks: 8\n    model_prefix: DeepSeek\n");
    put_model("DeepSeek_embeddings.mlmodelc");
    put_model("DeepSeek_lm_head_lut8.mlmodelc");
    for (int i = 0; i < 8; i++)
        put_model(chunks[i]);
    expect_parts("DeepSeek_embeddings.mlmodelc", "DeepSeek_lm_head_lut8.mlmodelc", 8, chunks);

    /* no prefix either: Swift's default */
    begin("    context_length: 512\n    batch_size: 64\n    lut_ffn: 4\n");
    put_model("llama_embeddings.mlmodelc");
    put_model("llama_lm_head.mlmodelc");
    put_model("llama_FFN_PF_lut4_chunk_01of01.mlmodelc");
    expect_one_chunk("llama_embeddings.mlmodelc", "llama_lm_head.mlmodelc",
                     "llama_FFN_PF_lut4_chunk_01of01.mlmodelc");
}

/* 0.3.0 and 0.3.4: ffn names a file that is not there; the folder has it with _chunk_01of01. */
static void test_chunk_alias(void **state)
{
    (void)state;
    begin("    context_length: 512\n    batch_size: 64\n    lut_embeddings: 8\n    lut_ffn: 4\n    "
          "lut_lmhead: 8\n"
          "    num_chunks: 1\n    model_prefix: llama\n    embeddings: llama_embeddings_lut8.mlmodelc\n"
          "    lm_head: llama_lm_head_lut8.mlmodelc\n    ffn: llama_FFN_PF_lut4.mlmodelc\n");
    put_model("llama_embeddings_lut8.mlmodelc");
    put_model("llama_lm_head_lut8.mlmodelc");
    put_model("llama_FFN_PF_lut4_chunk_01of01.mlmodelc");
    expect_one_chunk("llama_embeddings_lut8.mlmodelc", "llama_lm_head_lut8.mlmodelc",
                     "llama_FFN_PF_lut4_chunk_01of01.mlmodelc");
    /* the other way round: the file without a chunk number is there */
    begin(BASIC "    ffn: qwen_FFN_PF.mlmodelc\n");
    put_model("qwen_embeddings.mlmodelc");
    put_model("qwen_lm_head.mlmodelc");
    put_model("qwen_FFN_PF.mlmodelc");
    expect_one_chunk("qwen_embeddings.mlmodelc", "qwen_lm_head.mlmodelc", "qwen_FFN_PF.mlmodelc");
}

static void test_embeddings_without_lut(void **state)
{
    (void)state;
    begin(BASIC "    embeddings: qwen_embeddings_lut8.mlmodelc\n");
    put_model("qwen_embeddings.mlpackage");
    put_model("qwen_lm_head.mlmodelc");
    put_model("qwen_FFN_PF_chunk_01of01.mlmodelc");
    expect_one_chunk("qwen_embeddings.mlpackage", "qwen_lm_head.mlmodelc",
                     "qwen_FFN_PF_chunk_01of01.mlmodelc");
}

static void test_chunks_from_the_first_name(void **state)
{
    (void)state;
    static const char *const chunks[] = {
        "q_FFN_PF_lut4_chunk_01of12.mlmodelc",  "q_FFN_PF_lut4_chunk_02of12.mlmodelc",
        "q_FFN_PF_lut4_chunk_03of12.mlpackage", "q_FFN_PF_lut4_chunk_04of12.mlmodelc",
        "q_FFN_PF_lut4_chunk_05of12.mlmodelc",  "q_FFN_PF_lut4_chunk_06of12.mlmodelc",
        "q_FFN_PF_lut4_chunk_07of12.mlmodelc",  "q_FFN_PF_lut4_chunk_08of12.mlmodelc",
        "q_FFN_PF_lut4_chunk_09of12.mlmodelc",  "q_FFN_PF_lut4_chunk_10of12.mlmodelc",
        "q_FFN_PF_lut4_chunk_11of12.mlmodelc",  "q_FFN_PF_lut4_chunk_12of12.mlmodelc"};
    begin("    context_length: 512\n    batch_size: 64\n    lut_ffn: 4\n    num_chunks: 12\n    "
          "model_prefix: q\n"
          "    ffn: q_FFN_PF_lut4_chunk_01of12.mlmodelc\n");
    put_model("q_embeddings.mlmodelc");
    put_model("q_lm_head.mlmodelc");
    for (int i = 0; i < 12; i++)
        put_model(chunks[i]);
    expect_parts("q_embeddings.mlmodelc", "q_lm_head.mlmodelc", 12, chunks);
    char *eleventh = path_join(scratch, chunks[10]);
    assert_true(path_remove_tree(eleventh, NULL));
    free(eleventh);
    expect_error(ERR_FORMAT, "chunk 11 of 12");
    expect_error(ERR_FORMAT, "q_FFN_PF_lut4_chunk_11of12");
}

/* The three nestings of the run-time keys. */
static void test_nestings(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "model_info:\n  name: a\n  context_length: 77\n  batch_size: 8\n  model_prefix: qwen\n",
        "context_length: 77\nbatch_size: 8\nmodel_prefix: qwen\n",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct package *p = NULL;
        begin(BASIC);
        put("meta.yaml", "");
        char *path = path_join(scratch, "meta.yaml");
        assert_true(path_remove_tree(path, NULL));
        free(path);
        put("meta.yaml", texts[i]);
        put_model("qwen_embeddings.mlmodelc");
        put_model("qwen_lm_head.mlmodelc");
        put_model("qwen_FFN_PF_chunk_01of01.mlmodelc");
        ASSERT_OK(package_open(&p, scratch, e));
        assert_int_equal(p->meta->context_length, 77);
        package_close(p);
    }
}

/* ---- stop ids and sampling ---- */

static struct package *with_configs(const char *generation, const char *config, const char *tokenizer_config)
{
    struct package *p = NULL;
    begin(NAMED);
    put_model("qwen_embeddings.mlmodelc");
    put_model("qwen_lm_head.mlmodelc");
    put_model("qwen_FFN_PF_chunk_01of01.mlmodelc");
    if (generation)
        put("generation_config.json", generation);
    if (config)
        put("config.json", config);
    if (tokenizer_config)
        put("tokenizer_config.json", tokenizer_config);
    ASSERT_OK(package_open(&p, scratch, e));
    return p;
}

static void expect_eos(struct package *p, const int32_t *ids, int n)
{
    assert_int_equal(p->n_eos, n);
    for (int i = 0; i < n; i++)
        assert_true(package_is_eos(p, ids[i]));
    assert_false(package_is_eos(p, 987654));
    assert_false(package_is_eos(p, -1));
    package_close(p);
}

static void test_stop_ids(void **state)
{
    (void)state;
    expect_eos(with_configs(NULL, NULL, NULL), NULL, 0);
    expect_eos(with_configs("{\"eos_token_id\": 7}", NULL, NULL), (int32_t[]){7}, 1);
    expect_eos(with_configs("{\"eos_token_id\": [1e300, -1e300, 4294967303, 7]}", NULL, NULL), (int32_t[]){7},
               1);
    expect_eos(with_configs("{\"eos_token_id\": [7, 9, 7]}", NULL, NULL), (int32_t[]){7, 9}, 2);
    expect_eos(with_configs(NULL, "{\"eos_token_id\": 3}", NULL), (int32_t[]){3}, 1);
    expect_eos(with_configs("{\"eos_token_id\": [7]}", "{\"eos_token_id\": [3, 7]}", NULL), (int32_t[]){3, 7},
               2);
    expect_eos(with_configs("{\"eos_token_id\": null}", "{\"text_config\": {\"eos_token_id\": 5}}", NULL),
               (int32_t[]){5}, 1);
    /* nonsense is left alone */
    expect_eos(with_configs("{\"eos_token_id\": \"x\"}", "{\"eos_token_id\": [-1, 1e300, 4]}", NULL),
               (int32_t[]){4}, 1);
    expect_eos(with_configs("{}", "{\"text_config\": 3}", NULL), NULL, 0);
}

static void test_stop_id_of_the_tokenizer(void **state)
{
    (void)state;
    static const char *const configs[] = {
        "{\"eos_token\": \"<|im_end|>\"}",
        "{\"eos_token\": {\"content\": \"<|im_end|>\", \"lstrip\": false}}"};
    struct tokenizer *t = NULL;
    ASSERT_OK(tokenizer_open(&t, MILKIT_TEST_DATA "/models/qwen3-tiny", e));
    int32_t id = tokenizer_id(t, "<|im_end|>");
    assert_int_equal(id, 1997);
    for (int i = 0; i < 2; i++) {
        struct package *p = with_configs("{\"eos_token_id\": 1995}", NULL, configs[i]);
        package_add_tokenizer_eos(p, t);
        expect_eos(p, (int32_t[]){1995, 1997}, 2);
    }
    /* older checkpoints say it in special_tokens_map.json alone */
    for (int i = 0; i < 2; i++) {
        struct package *p = with_configs("{\"eos_token_id\": 1995}", NULL, i ? "{}" : NULL);
        put("special_tokens_map.json", configs[i]);
        package_add_tokenizer_eos(p, t);
        expect_eos(p, (int32_t[]){1995, 1997}, 2);
    }
    static const char *const useless[] = {"{\"eos_token\": null}", "{\"eos_token\": \"<unknown>\"}", "{}",
                                          "damaged", "[1]"};
    for (int i = 0; i < 5; i++) {
        struct package *p = with_configs("{\"eos_token_id\": 1995}", NULL, useless[i]);
        package_add_tokenizer_eos(p, t);
        expect_eos(p, (int32_t[]){1995}, 1);
    }
    tokenizer_free(t);
}

static void test_sampling(void **state)
{
    (void)state;
    struct package *p = with_configs(NULL, NULL, NULL);
    assert_false(p->sampling.is_present || p->sampling.do_sample);
    package_close(p);
    p = with_configs("{\"do_sample\": true, \"temperature\": 0.6, \"top_k\": 20, \"top_p\": 0.95}", NULL,
                     NULL);
    assert_true(p->sampling.do_sample);
    assert_true(p->sampling.temperature == 0.6 && p->sampling.top_p == 0.95 && p->sampling.top_k == 20);
    package_close(p);
    p = with_configs("{\"do_sample\": false, \"temperature\": 0.6}", NULL, NULL);
    assert_false(p->sampling.do_sample);
    package_close(p);
    p = with_configs("{\"do_sample\": true, \"top_k\": -1}", NULL, NULL);
    assert_true(p->sampling.top_k == 0 && p->sampling.top_p != p->sampling.top_p && p->n_warnings == 0);
    package_close(p);
    /* what is wrong is left out with a warning; the package opens */
    static const char *const wrong[] = {"\"temperature\": -3",
                                        "\"temperature\": 150",
                                        "\"temperature\": NaN",
                                        "\"temperature\": [1]",
                                        "\"top_p\": 0",
                                        "\"temperature\": \"warm\"",
                                        "\"top_p\": 1.5",
                                        "\"top_p\": \"0.9\"",
                                        "\"top_k\": -Infinity",
                                        "\"top_k\": 99999999999999999999",
                                        "\"min_p\": {}",
                                        "\"repetition_penalty\": -1",
                                        "\"presence_penalty\": true",
                                        "\"suppress_tokens\": 7",
                                        "\"bad_words_ids\": [[1], 2]"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char *text = xasprintf("{\"do_sample\": false, %s}", wrong[i]);
        p = with_configs(text, NULL, NULL);
        assert_int_equal(p->n_warnings, 1);
        assert_non_null(strstr(p->warnings[0], "generation_config.json"));
        assert_non_null(strstr(p->warnings[0], "left out"));
        struct sampler_options o = sampler_recommended(&p->sampling);
        assert_true(o.temperature == 0 && o.top_p == 1 && o.top_k == 0 && o.min_p == 0 &&
                    o.repetition_penalty == 1 && o.presence_penalty == 0 && o.n_suppressed == 0 &&
                    o.n_bad_words == 0);
        package_close(p);
        free(text);
    }
    p = with_configs("[{\"temperature\": 1}]", NULL, NULL);
    assert_true(p->n_warnings == 1 && !p->sampling.is_present);
    package_close(p);
    /* penalties hold without sampling, too; a bad word that is a stop id alone is none */
    p = with_configs(
        "{\"eos_token_id\": 7, \"repetition_penalty\": 1.3, \"min_p\": 0.9, \"suppress_tokens\": "
        "[1, 2], \"bad_words_ids\": [[7], [7, 8], [9]], \"top_p\": null, \"x\": \"NaN \\\" NaN\"}",
        NULL, NULL);
    struct sampler_options o = sampler_recommended(&p->sampling);
    assert_int_equal(p->n_warnings, 0);
    assert_true(o.temperature == 0 && o.min_p == 0 && o.repetition_penalty == 1.3 && o.n_suppressed == 2);
    assert_true(o.n_bad_words == 2 && o.bad_words[0].n == 2 && o.bad_words[1].ids[0] == 9);
    package_close(p);
    /* meta.yaml's own word comes first */
    begin(NAMED "    recommended_sampling:\n      do_sample: true\n      temperature: 0.7\n      top_p: "
                "0.8\n      top_k: 40\n");
    put_model("qwen_embeddings.mlmodelc");
    put_model("qwen_lm_head.mlmodelc");
    put_model("qwen_FFN_PF_chunk_01of01.mlmodelc");
    put("generation_config.json", "{\"do_sample\": true, \"temperature\": 0.1}");
    ASSERT_OK(package_open(&p, scratch, e));
    assert_true(p->sampling.do_sample);
    assert_true(p->sampling.temperature == 0.7 && p->sampling.top_p == 0.8 && p->sampling.top_k == 40);
    package_close(p);
}

static void test_damaged_configs(void **state)
{
    (void)state;
    static const char *const names[] = {"generation_config.json", "config.json"};
    for (int i = 0; i < 2; i++) {
        begin(NAMED);
        put_model("qwen_embeddings.mlmodelc");
        put_model("qwen_lm_head.mlmodelc");
        put_model("qwen_FFN_PF_chunk_01of01.mlmodelc");
        put(names[i], "{\"eos_token_id\": [1,");
        expect_error(ERR_FORMAT, names[i]);
    }
}

/* ---- what is no package ---- */

static void test_no_package(void **state)
{
    (void)state;
    begin(NAMED);
    put_model("qwen_embeddings.mlmodelc");
    expect_error(ERR_FORMAT, "LM head");
    begin(NAMED);
    expect_error(ERR_FORMAT, "embeddings");
    put_model("qwen_embeddings.mlmodelc");
    put_model("qwen_lm_head.mlmodelc");
    expect_error(ERR_FORMAT, "chunk 1 of 1");

    char *missing = path_join(scratch, "nowhere"), *model = path_join(scratch, "qwen_embeddings.mlmodelc"),
         *empty = path_join(scratch, "empty"), *config = path_join(scratch, "config.json");
    expect_error_at(missing, ERR_IO, "found nothing");
    expect_error_at(model, ERR_FORMAT, "single model");
    ASSERT_OK(folder_make(empty, e));
    expect_error_at(empty, ERR_FORMAT, "meta.yaml");
    put("config.json", "{}");
    expect_error_at(config, ERR_FORMAT, "package folder");
    struct package *p = NULL;
    struct err e = {0};
    assert_false(package_open(&p, config, &e));
    assert_null(strstr(e.msg, "single model")); /* some file is no model */
    expect_error_at(MILKIT_TEST_DATA "/models/qwen3-tiny", ERR_FORMAT, "checkpoint");
    assert_false(package_open(&p, MILKIT_TEST_DATA "/models/qwen3-tiny", &e));
    assert_int_equal(e.hint, HINT_CONVERT);
    expect_error_at(MILKIT_TEST_DATA "/packages/multi_lut4.mlpackage", ERR_FORMAT, "single model");
    free(missing);
    free(model);
    free(empty);
    free(config);
}

static void test_numbers_out_of_range(void **state)
{
    (void)state;
    static const char *const bad[] = {"    context_length: 0\n",           "    context_length: -5\n",
                                      "    context_length: 99999999999\n", "    batch_size: 0\n",
                                      "    batch_size: 10000000\n",        "    num_chunks: 0\n",
                                      "    num_chunks: 1000000000\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        begin(bad[i]);
        put_model("llama_embeddings.mlmodelc");
        put_model("llama_lm_head.mlmodelc");
        put_model("llama_FFN_PF_chunk_01of01.mlmodelc");
        expect_error(ERR_FORMAT, "meta.yaml");
    }
    begin("    context_length: many\n");
    expect_error(ERR_FORMAT, "context_length");
}

/* One model is the whole package: by its own name, by a name built from the prefix, in the other form. */
static void test_monolithic(void **state)
{
    (void)state;
    static const char *const keys[] = {
        "    model_prefix: qwen\n    lut_bits: 4\n    monolithic_model: qwen_monolithic_full_lut4.mlmodelc\n",
        "    model_prefix: qwen\n    lut_bits: 4\n    model_type: monolithic\n"};
    static const char *const files[] = {"qwen_monolithic_full_lut4.mlmodelc",
                                        "qwen_monolithic_full_lut4.mlpackage",
                                        "qwen_monolithic_full.mlmodelc"};
    for (int i = 0; i < 2; i++) {
        begin(keys[i]);
        expect_error(ERR_FORMAT, "qwen_monolithic_full");
        for (int k = 0; k < 3; k++) {
            struct package *p = NULL;
            begin(keys[i]);
            put_model(files[k]);
            ASSERT_OK(package_open(&p, scratch, e));
            assert_true(p->is_monolithic && !p->embeddings && !p->lm_head);
            assert_int_equal(p->n_chunks, 1);
            assert_base(p->chunks[0], files[k]);
            package_close(p);
        }
    }
}

/* Functions of a chunk in two files: prefill's in those of the key pf, rotating ones in a file of their own. */
static void test_chunks_in_two_files(void **state)
{
    (void)state;
    static const struct {
        const char *keys, *second[2];
    } cases[] = {{"    pf: q_PF_chunk_01of02.mlmodelc\n",
                  {"q_PF_chunk_01of02.mlmodelc", "q_PF_chunk_02of02.mlpackage"}},
                 {"    split_rotate: true\n    pf: q_PF_chunk_01of02.mlmodelc\n",
                  {"q_PF_chunk_01of02.mlmodelc", "q_PF_chunk_02of02.mlmodelc"}},
                 {"    split_rotate: true\n",
                  {"q_FFN_PF_chunk_01of02_rot.mlmodelc", "q_FFN_PF_chunk_02of02_rot.mlmodelc"}},
                 {"    split_rotate: true\n", {"q_PF_chunk_01of02.mlmodelc", "q_PF_chunk_02of02.mlmodelc"}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct package *p = NULL;
        char *text =
            xasprintf("    num_chunks: 2\n    model_prefix: q\n    ffn: q_FFN_PF_chunk_01of02.mlmodelc\n%s",
                      cases[i].keys);
        begin(text);
        put_model("q_embeddings.mlmodelc");
        put_model("q_lm_head.mlmodelc");
        put_model("q_FFN_PF_chunk_01of02.mlmodelc");
        put_model("q_FFN_PF_chunk_02of02.mlmodelc");
        if (i > 0)
            expect_error(ERR_FORMAT, "chunk 1 of 2: meta.yaml says split_rotate");
        for (int k = 0; k < 2; k++)
            put_model(cases[i].second[k]);
        ASSERT_OK(package_open(&p, scratch, e));
        for (int k = 0; k < 2; k++)
            assert_base(p->more_chunks[k], cases[i].second[k]);
        /* The other form of second files is known, asked for and counted like that of the first ones. */
        assert_string_equal(package_form(p), i == 0 ? "mixed" : "mlmodelc");
        assert_int_equal(package_count_other_form(p), 0);
        for (int k = 0; k < 2; k++) {
            bool is_compiled = has_suffix(cases[i].second[k], ".mlmodelc");
            char *other = xasprintf("%.*s%s", (int)(strrchr(cases[i].second[k], '.') - cases[i].second[k]),
                                    cases[i].second[k], is_compiled ? ".mlpackage" : ".mlmodelc");
            put_model(other);
            assert_int_equal(package_count_other_form(p), 1);
            package_take_other_form(p);
            assert_base(p->more_chunks[k], other);
            assert_base(p->more_chunks[1 - k], cases[i].second[1 - k]);
            package_take_other_form(p); /* and back, so that the next one is judged by itself */
            assert_base(p->more_chunks[k], cases[i].second[k]);
            char *path = path_join(scratch, other);
            assert_true(path_remove_tree(path, NULL));
            free(path);
            free(other);
        }
        package_close(p);
        free(text);
    }
}

/* The name of the first chunk says of how many, too. */
static void test_number_of_chunks_against_the_name(void **state)
{
    (void)state;
    begin("    num_chunks: 2\n    model_prefix: q\n    ffn: q_FFN_PF_chunk_01of03.mlmodelc\n");
    put_model("q_embeddings.mlmodelc");
    put_model("q_lm_head.mlmodelc");
    put_model("q_FFN_PF_chunk_01of03.mlmodelc");
    put_model("q_FFN_PF_chunk_02of03.mlmodelc");
    put_model("q_FFN_PF_chunk_03of03.mlmodelc");
    expect_error(ERR_FORMAT, "num_chunks 2, but ffn is q_FFN_PF_chunk_01of03.mlmodelc, one of 3");
}

static void test_anemll_packages(void **state)
{
    (void)state;
    SKIP_WITHOUT_SHARED();
    static const char *const names[] = {"qwen3-fp16-1c-ctx256", "qwen3-lut4-2c-ctx256",
                                        "qwen3-lut6-1c-ctx512-argmax", "qwen3-lut8t-1c-ctx256-nodedup"};
    for (int i = 0; i < 4; i++) {
        char *path = xasprintf("%s/peer-packages/anemll/%s", MILKIT_SHARED, names[i]);
        struct package *p = NULL;
        struct tokenizer *t = NULL;
        ASSERT_OK(package_open(&p, path, e));
        assert_int_equal(p->n_chunks, i == 1 ? 2 : 1);
        assert_false(p->meta->prefill_last_token_output);
        ASSERT_OK(package_tokenizer(p, &t, e));
        tokenizer_free(t);
        package_close(p);
        free(path);
    }
}

static void test_no_tokenizer(void **state)
{
    (void)state;
    struct package *p = with_configs(NULL, NULL, NULL);
    struct tokenizer *t = NULL;
    struct err e = {0};
    assert_false(package_tokenizer(p, &t, &e));
    assert_null(t);
    assert_non_null(strstr(e.msg, "tokenizer"));
    package_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_of_meta),
        cmocka_unit_test(test_other_extension),
        cmocka_unit_test(test_missing_keys),
        cmocka_unit_test(test_chunk_alias),
        cmocka_unit_test(test_embeddings_without_lut),
        cmocka_unit_test(test_chunks_from_the_first_name),
        cmocka_unit_test(test_nestings),
        cmocka_unit_test(test_stop_ids),
        cmocka_unit_test(test_stop_id_of_the_tokenizer),
        cmocka_unit_test(test_sampling),
        cmocka_unit_test(test_damaged_configs),
        cmocka_unit_test(test_no_package),
        cmocka_unit_test(test_numbers_out_of_range),
        cmocka_unit_test(test_monolithic),
        cmocka_unit_test(test_chunks_in_two_files),
        cmocka_unit_test(test_number_of_chunks_against_the_name),
        cmocka_unit_test(test_anemll_packages),
        cmocka_unit_test(test_no_tokenizer),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
