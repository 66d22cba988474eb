/* meta.yaml: every key, three nestings, other tools' files, and errors that name the line. */
#include "files.h"
#include <math.h>
#include "format/meta.h"

static struct meta *parse(const char *text)
{
    struct meta *m = NULL;
    ASSERT_OK(meta_parse(&m, text, strlen(text), "meta.yaml", e));
    return m;
}

static void parse_fails(const char *text, const char *line, const char *expected, const char *found)
{
    struct meta *m = NULL;
    struct err e = {0};
    if (meta_parse(&m, text, strlen(text), "meta.yaml", &e)) {
        meta_free(m);
        fail_msg("parsed, expected an error: %s", text);
    }
    assert_null(m);
    expect_message(&e, ERR_FORMAT, "meta.yaml", line, expected, found, NULL);
}

static char *write_text(const struct meta *m)
{
    struct buf b;
    buf_init(&b, 1 << 20);
    meta_write(m, &b);
    assert_false(b.failed);
    return buf_take(&b, NULL);
}

/* What we write from what another writer wrote is the same up to its comments. */
static void test_other_writers_files(void **state)
{
    (void)state;
    static const char *const names[] = {"qwen3-fp16-1c-ctx256", "qwen3-lut4-2c-ctx256",
                                        "qwen3-lut6-1c-ctx512-argmax", "qwen3-lut8t-1c-ctx256-nodedup"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[500];
        char *theirs = NULL;
        struct meta *m = NULL;
        snprintf(path, sizeof path, MILKIT_TEST_DATA "/meta/%s.yaml", names[i]);
        ASSERT_OK(meta_read(&m, path, e));
        ASSERT_OK(file_read(&theirs, NULL, path, 1 << 20, e));
        assert_string_equal(m->path, path);
        assert_int_equal(m->n_unknown_keys, 0);
        char *comment = strstr(theirs, "\n\n#");
        assert_non_null(comment);
        comment[1] = '\0';
        char *ours = write_text(m);
        assert_string_equal(ours, theirs);
        free(ours);
        free(theirs);
        meta_free(m);
    }
}

static void test_values_of_another_writer(void **state)
{
    (void)state;
    struct meta *m = NULL;
    ASSERT_OK(meta_read(&m, MILKIT_TEST_DATA "/meta/qwen3-lut4-2c-ctx256.yaml", e));
    assert_string_equal(m->name, "anemll-qwen3-a-ctx256");
    assert_string_equal(m->version, "0.3.5");
    assert_string_equal(m->architecture, "qwen3");
    assert_true(has_suffix(m->description, "Chunks: 2"));
    assert_int_equal(m->context_length, 256);
    assert_int_equal(m->batch_size, 64);
    assert_int_equal(m->lut_embeddings, META_NONE);
    assert_int_equal(m->lut_ffn, 4);
    assert_int_equal(m->lut_ffn_per_channel, 8);
    assert_int_equal(m->lut_lmhead, 6);
    assert_int_equal(m->num_chunks, 2);
    assert_string_equal(m->ffn, "qwen_FFN_PF_lut4_chunk_01of02.mlmodelc");
    assert_int_equal(m->split_lm_head, 16);
    assert_int_equal(m->n_lm_head_chunk_sizes, 16);
    assert_int_equal(m->lm_head_chunk_sizes[15], 40);
    assert_true(m->prefill_dynamic_slice && !m->prefill_last_token_output && !m->sampling.is_present);
    meta_free(m);
    ASSERT_OK(meta_read(&m, MILKIT_TEST_DATA "/meta/qwen3-monolithic-lut4-ctx256.yaml", e));
    assert_string_equal(m->model_type, "monolithic");
    assert_string_equal(m->monolithic_model, "qwen_monolithic_full_lut4.mlmodelc");
    assert_int_equal(m->lut_ffn, 4);
    assert_int_equal(m->n_unknown_keys, 0);
    assert_null(m->ffn);
    meta_free(m);
}

static const char qwen35[] =
    "name: anemll-Qwen-Qwen3.5-0.8B-ctx512\n"
    "version: 0.3.5 # ANEMLL format version\n"
    "context_length: 512\n"
    "batch_size: 64\n"
    "lut_embeddings: none\n"
    "lut_ffn: 6\n"
    "lut_ffn_per_channel: 8\n"
    "lut_lmhead: 6\n"
    "lut_lmhead_per_channel: 8\n"
    "num_chunks: 1\n"
    "model_prefix: qwen35\n"
    "embeddings: qwen35_embeddings.mlmodelc\n"
    "lm_head: qwen35_lm_head_lut6.mlmodelc\n"
    "ffn: qwen35_FFN_PF_lut6_chunk_01of01.mlmodelc # first chunk\n"
    "split_lm_head: 16\n"
    "vocab_size: 248320\n"
    "lm_head_chunk_sizes: [15520, 15520]\n"
    "prefill_dynamic_slice: true\n"
    "prefill_last_token_output: true\n"
    "hidden_size: 1024\n"
    "num_layers: 24\n"
    "recommended_sampling: {do_sample: true, temperature: 0.6, top_p: 0.95, top_k: 20}\n"
    "recurrent_state: true\n"
    "prefill_full_batches_only: true\n"
    "gdn_chunk_size: 64\n"
    "moe: {experts: 16, experts_per_token: 4, evaluation: dense}\n"
    "layer_types: [linear, linear, linear, full]\n"
    "states:\n"
    "  - name: model_model_kv_cache_0\n"
    "    shape: [12, 2, 512, 256]\n"
    "    dtype: float16\n"
    "    layers: [3, 7, 11, 15, 19, 23]\n"
    "  - name: model_model_gdn_state_0\n"
    "    shape: [288, 128, 128]\n"
    "    dtype: float16\n"
    "    layers:\n"
    "      - 0\n"
    "      - 1\n";

/* The text above behind `head`, each line indented by `indent` spaces. */
static char *nest(const char *head, int indent)
{
    struct buf b;
    buf_init(&b, 1 << 16);
    buf_puts(&b, head);
    for (const char *line = qwen35; *line;) {
        size_t n = strcspn(line, "\n") + 1;
        buf_printf(&b, "%*s", indent, "");
        buf_append(&b, line, n);
        line += n;
    }
    return buf_take(&b, NULL);
}

static void test_three_nestings(void **state)
{
    (void)state;
    static const struct {
        const char *head;
        int indent;
    } cases[] = {{"model_info:\n", 0}, {"", 0}, {"model_info:\n", 2}, {"model_info:\n  parameters:\n", 4}};
    char *first = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = nest(cases[i].head, cases[i].indent);
        struct meta *m = parse(text);
        assert_string_equal(m->name, "anemll-Qwen-Qwen3.5-0.8B-ctx512");
        assert_int_equal(m->vocab_size, 248320);
        assert_true(m->prefill_last_token_output && m->recurrent_state && m->prefill_full_batches_only);
        assert_int_equal(m->hidden_size, 1024);
        assert_int_equal(m->num_layers, 24);
        assert_true(m->sampling.is_present && m->sampling.do_sample && m->sampling.temperature == 0.6 &&
                    m->sampling.top_p == 0.95);
        assert_int_equal(m->sampling.top_k, 20);
        assert_int_equal(m->gdn_chunk_size, 64);
        assert_int_equal(m->moe_experts, 16);
        assert_int_equal(m->moe_experts_per_token, 4);
        assert_string_equal(m->moe_evaluation, "dense");
        assert_int_equal(m->n_layer_types, 4);
        assert_string_equal(m->layer_types[3], "full");
        assert_int_equal(m->n_states, 2);
        assert_string_equal(m->states[0].name, "model_model_kv_cache_0");
        assert_int_equal(m->states[0].rank, 4);
        assert_int_equal(m->states[0].shape[2], 512);
        assert_int_equal(m->states[0].n_layers, 6);
        assert_int_equal(m->states[1].layers[1], 1);
        assert_string_equal(m->states[1].dtype, "float16");
        assert_int_equal(m->n_unknown_keys, 0);
        char *written = write_text(m);
        if (first)
            assert_string_equal(written, first);
        struct meta *again = parse(written);
        char *rewritten = write_text(again);
        assert_string_equal(rewritten, written);
        free(rewritten);
        meta_free(again);
        if (first)
            free(written);
        else
            first = written;
        meta_free(m);
        free(text);
    }
    free(first);
}

static void test_gemma_keys(void **state)
{
    (void)state;
    struct meta *m = parse("model_info:\n"
                           "  parameters:\n"
                           "    local_attention_window: 512\n"
                           "    local_cache_length: 640\n"
                           "    final_logit_softcap: 30.0\n"
                           "    per_layer_inputs: 8960\n"
                           "    kv_shared_layers: {15: 13, 16: 14}\n"
                           "    quant_ffn: int4,32\n"
                           "    quant_lmhead: int8\n"
                           "    lut_ffn_mixed: 4.50\n"
                           "    sliding_window: 1024\n"
                           "    split_rotate: True\n"
                           "    single_cache: no\n"
                           "    update_mask_prefill: true\n");
    assert_int_equal(m->local_attention_window, 512);
    assert_int_equal(m->local_cache_length, 640);
    assert_true(m->final_logit_softcap == 30.0 && m->lut_ffn_mixed == 4.5);
    assert_int_equal(m->per_layer_inputs, 8960);
    assert_int_equal(m->n_kv_shared_layers, 2);
    assert_int_equal(m->kv_shared_layers[1].key, 16);
    assert_int_equal(m->kv_shared_layers[1].value, 14);
    assert_string_equal(m->quant_ffn, "int4,32");
    assert_int_equal(m->sliding_window, 1024);
    assert_true(m->split_rotate && !m->single_cache && m->update_mask_prefill);
    char *text = write_text(m);
    assert_non_null(strstr(text, "    final_logit_softcap: 30.0\n"));
    assert_non_null(strstr(text, "    kv_shared_layers: {15: 13, 16: 14}\n"));
    assert_non_null(strstr(text, "    quant_ffn: int4,32\n"));
    assert_non_null(strstr(text, "    lut_ffn_mixed: 4.50\n"));
    free(text);
    meta_free(m);
}

static void test_deeper_wins_and_defaults(void **state)
{
    (void)state;
    struct meta *m =
        parse("context_length: 1\nbatch_size: 16\nfoo: 1\nmodel_info:\n  context_length: 2\n  bar: [1]\n"
              "  parameters:\n    context_length: 3\n    baz: {a: b}\n");
    assert_int_equal(m->context_length, 3);
    assert_int_equal(m->batch_size, 16);
    assert_true(meta_has(m, "context_length") && meta_has(m, "batch_size"));
    assert_false(meta_has(m, "vocab_size") || meta_has(m, "foo"));
    assert_int_equal(m->n_unknown_keys, 3);
    assert_string_equal(m->unknown_keys[0], "foo");
    assert_string_equal(m->unknown_keys[1], "model_info.bar");
    assert_string_equal(m->unknown_keys[2], "model_info.parameters.baz");
    meta_free(m);

    /* a package before most keys: nothing but what its converter knew */
    m = parse("model_info:\n  name: old\n  parameters:\n    model_prefix: DeepSeek\n    lut_ffn: '6'\n    "
              "vocab_size:\n");
    assert_int_equal(m->context_length, 2048);
    assert_int_equal(m->batch_size, 32);
    assert_int_equal(m->num_chunks, 1);
    assert_int_equal(m->split_lm_head, 8);
    assert_int_equal(m->lut_ffn, 6);
    assert_int_equal(m->lut_embeddings, META_NONE);
    assert_int_equal(m->vocab_size, 0);
    assert_false(meta_has(m, "context_length") || meta_has(m, "vocab_size")); /* a default, a null */
    assert_true(!m->prefill_last_token_output && !m->prefill_dynamic_slice && !m->argmax_in_model);
    assert_true(isnan(m->sampling.temperature) && m->sampling.top_k == -1);
    assert_null(m->embeddings);
    assert_null(m->version);
    meta_free(m);

    m = parse("recommended_sampling: {temperature: 1, topP: 0.9, topK: 40}");
    assert_true(m->sampling.do_sample && m->sampling.temperature == 1.0 && m->sampling.top_p == 0.9 &&
                m->sampling.top_k == 40);
    meta_free(m);
}

static void test_refused(void **state)
{
    (void)state;
    parse_fails("model_info:\n  context_length: 1\n  context_length: 2\n", "line 3", "once", "line 2");
    parse_fails("a: 1\na: 1\n", "line 2", "once", "\"a\"");
    parse_fails("model_info:\n  context_length: long\n", "line 2", "an integer of at least 1", "\"long\"");
    parse_fails("context_length: 0", "line 1", "an integer of at least 1", "\"0\"");
    parse_fails("context_length: 99999999999999999999", "line 1", "an integer", "99999");
    parse_fails("context_length: \"512\"", "line 1", "an integer", "the string \"512\"");
    parse_fails("context_length: [512]", "line 1", "an integer", "a list");
    parse_fails("num_chunks: 100", "line 1", "from 1 to 99", "\"100\"");
    parse_fails("lut_ffn: four", "line 1", "none or bits", "\"four\"");
    parse_fails("recurrent_state: 1", "line 1", "true or false", "\"1\"");
    parse_fails("model_info: 7", "line 1", "a mapping", "\"7\"");
    parse_fails("model_info:\n  parameters: [1]", "line 2", "a mapping", "a list");
    parse_fails("- 1\n", "expected a mapping", "model_info", "a list");
    parse_fails("", "expected a mapping", "model_info", "no document");
    parse_fails("hello: world\n", "expected the keys", "meta.yaml", "none of them");
    parse_fails("model_info:\n  name: \"unfinished\n", "line", "not valid YAML", "quoted");
    parse_fails("name: a\n---\nname: b\n", "line 2", "one document", "second");
    parse_fails("\tname: a\n", "line 1", "not valid YAML", "");
    parse_fails("name: a\xff\n", "byte", "not valid YAML", "");
    parse_fails("name: \"a\\0b\"\n", "line 1", "NUL", "");
    parse_fails("version https://git-lfs.github.com/spec/v1\noid: 1\n", "line", "not valid YAML", "");
    parse_fails("{[a]: b}", "line 1", "a key", "a list");
}

/* A text with one bad value of a key that only informs: it parses, and one sentence says what is wrong. */
static void parse_warns(const char *text, const char *a, const char *b, const char *c)
{
    struct meta *m = parse(text);
    assert_int_equal(m->n_warnings, 1);
    if (!strstr(m->warnings[0], a) || !strstr(m->warnings[0], b) || !strstr(m->warnings[0], c) ||
        !strstr(m->warnings[0], "left out"))
        fail_msg("%s: expected %s, %s and %s in the warning: %s", text, a, b, c, m->warnings[0]);
    char *again = write_text(m); /* what is left can be written and read */
    struct meta *second = parse(again);
    assert_int_equal(second->n_warnings, 0);
    free(again);
    meta_free(second);
    meta_free(m);
}

static void test_informing_keys_never_stop(void **state)
{
    (void)state;
    parse_warns("final_logit_softcap: .inf", "line 1", "a number", ".inf");
    parse_warns("name: [a]", "line 1", "a string", "a list");
    parse_warns("states: {a: b}", "line 1", "a list", "a mapping");
    parse_warns("states:\n- 7\n", "line 2", "mappings", "\"7\"");
    parse_warns("states:\n- name: x\n", "line 2", "name and shape", "no shape");
    parse_warns("states:\n- shape: [1]\n", "line 2", "name and shape", "no name");
    parse_warns("states:\n- {name: x, shape: [1,1,1,1,1,1,1,1,1]}", "line 2", "at most 8", "found 9");
    parse_warns("states:\n- {name: x, shape: [0]}", "line 2", "an integer", "\"0\"");
    parse_warns("kv_shared_layers: {a: 1}", "line 1", "layer numbers", "\"a\"");
    parse_warns("lm_head_chunk_sizes: [1, ...]", "line 1", "an integer", "\"...\"");
    parse_warns("moe: 3", "line 1", "a mapping", "\"3\"");
    parse_warns("recommended_sampling: {temperature: hot}", "line 1", "a number from 0 to 100", "\"hot\"");
    parse_warns("recommended_sampling: 3", "line 1", "a mapping", "\"3\"");
    /* each key that informs, with each kind of value that it can't have */
    static const char *const numbers[] = {"hidden_size",
                                          "num_layers",
                                          "vocab_size",
                                          "lut_ffn_mixed",
                                          "gdn_chunk_size",
                                          "local_attention_window",
                                          "per_layer_inputs",
                                          "final_logit_softcap",
                                          "lut_ffn_per_channel",
                                          "lm_head_chunk_sizes",
                                          "moe",
                                          "states",
                                          "layer_types",
                                          "kv_shared_layers"};
    static const char *const bad[] = {".nan", "1e400", "text", "\"\"", "[[1]]", "99999999999999999999999"};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
            char *text = xasprintf("model_info:\n  parameters:\n    %s: %s\n", numbers[i], bad[k]);
            bool is_number =
                strcmp(numbers[i], "lut_ffn_mixed") == 0 || strcmp(numbers[i], "final_logit_softcap") == 0;
            if (!(is_number && k == 5)) /* large, and a number */
                parse_warns(text, "line 3", numbers[i], "expected");
            free(text);
        }
    static const char *const texts[] = {"name",       "version",   "description",  "license",
                                        "author",     "framework", "language",     "architecture",
                                        "model_type", "quant_ffn", "quant_lmhead", "quant_embeddings"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char *text = xasprintf("model_info:\n  %s: {a: 1}\n", texts[i]);
        parse_warns(text, "line 2", texts[i], "a mapping");
        free(text);
    }
    /* and of recommended_sampling */
    static const char *const sampling[] = {"temperature: -1",
                                           "temperature: 150",
                                           "temperature: .nan",
                                           "temperature: .inf",
                                           "temperature: [1]",
                                           "top_p: 0",
                                           "top_p: 1.5",
                                           "top_p: -0.1",
                                           "topP: \"0.9\"",
                                           "min_p: 2",
                                           "top_k: -2",
                                           "top_k: 1.5",
                                           "top_k: 1e300",
                                           "do_sample: 1",
                                           "repetition_penalty: 0",
                                           "repetition_penalty: 1e9",
                                           "presence_penalty: 101",
                                           "frequency_penalty: x",
                                           "suppress_tokens: 3",
                                           "suppress_tokens: [-1]",
                                           "suppress_tokens: [1.5]",
                                           "bad_words_ids: [1]",
                                           "bad_words_ids: [[]]",
                                           "bad_words_ids: {a: b}"};
    for (size_t i = 0; i < sizeof sampling / sizeof *sampling; i++) {
        char *text = xasprintf("recommended_sampling: {%s}\n", sampling[i]);
        parse_warns(text, "line 1: recommended_sampling", "expected", "found");
        struct meta *m = parse(text);
        assert_true(m->sampling.do_sample && isnan(m->sampling.temperature) && isnan(m->sampling.top_p) &&
                    m->sampling.top_k == -1 && isnan(m->sampling.min_p));
        assert_true(isnan(m->sampling.repetition_penalty) && isnan(m->sampling.presence_penalty) &&
                    isnan(m->sampling.frequency_penalty));
        assert_true(m->sampling.n_suppressed == 0 && m->sampling.n_bad_words == 0);
        meta_free(m);
        free(text);
    }
}

/* Every key of recommended_sampling, written and read again. */
static void test_sampling_round_trip(void **state)
{
    (void)state;
    static const char line[] =
        "    recommended_sampling: {do_sample: false, temperature: 0.5, top_p: 1.0, top_k: 0, min_p: 0.25, "
        "repetition_penalty: 1.5, presence_penalty: -2.0, frequency_penalty: 0.125, suppress_tokens: [3, 1], "
        "bad_words_ids: [[7], [1, 2, 3]]}\n";
    char *text = xasprintf("model_info:\n  parameters:\n%s", line);
    struct meta *m = parse(text);
    assert_int_equal(m->n_warnings, 0);
    const struct recommended_sampling *s = &m->sampling;
    assert_true(!s->do_sample && s->min_p == 0.25 && s->repetition_penalty == 1.5 && s->top_k == 0 &&
                s->presence_penalty == -2 && s->frequency_penalty == 0.125);
    assert_true(s->n_suppressed == 2 && s->suppressed[1] == 1 && s->n_bad_words == 2 &&
                s->bad_words[1].n == 3 && s->bad_words[1].ids[2] == 3);
    char *again = write_text(m);
    assert_non_null(strstr(again, line));
    free(again);
    meta_free(m);
    free(text);
    /* the limit of a list */
    struct buf b;
    buf_init(&b, 1 << 20);
    for (int n = 8192; n <= 8193; n++) {
        buf_clear(&b);
        buf_puts(&b, "recommended_sampling: {suppress_tokens: [0");
        for (int i = 1; i < n; i++)
            buf_printf(&b, ",%d", i);
        buf_puts(&b, "]}\n");
        m = parse(b.p);
        assert_int_equal(m->n_warnings, n - 8192);
        assert_int_equal(m->sampling.n_suppressed, n == 8192 ? 8192 : 0);
        meta_free(m);
    }
    buf_fini(&b);
}

static void test_bombs(void **state)
{
    (void)state;
    parse_fails("a: &a [x, x]\nb: [*a, *a]\n", "line 1", "plain values", "anchor \"a\"");
    parse_fails("name: x\nb: *a\n", "line 2", "plain values", "alias \"a\"");
    parse_fails("name: !!python/object/apply:os.system [ls]\n", "line 1", "plain values", "tag");
    char *deep = malloc(200001);
    memset(deep, '[', 200000);
    deep[200000] = '\0';
    parse_fails(deep, "line 1", "deeper than 32", "");
    struct meta *m = NULL;
    struct err e = {0};
    memset(deep, ' ', 200000);
    for (size_t i = 0; i < 200000; i += 2)
        memcpy(deep + i, "-\n", 2);
    assert_false(meta_parse(&m, deep, 200000, "meta.yaml", &e));
    for (size_t i = 0; i < 199998; i++)
        deep[i] = i == 0 ? '[' : i % 2 ? '1' : ',';
    memcpy(deep + 199998, "]", 2);
    assert_false(meta_parse(&m, deep, 199999, "meta.yaml", &e));
    free(deep);
    size_t large = ((size_t)256 << 10) + 1;
    deep = malloc(large);
    memset(deep, '#', large);
    assert_false(meta_parse(&m, deep, large, "meta.yaml", &e));
    expect_message(&e, ERR_LIMIT, "meta.yaml", "262144", "262145", NULL);
    free(deep);
}

static void test_written_text(void **state)
{
    (void)state;
    struct meta *m = meta_new();
    m->name = xstrdup("anemll-a: #b-ctx512");
    m->description = xstrdup("First line\n\n  third: line\n");
    m->author = xstrdup("0x10");
    m->license = xstrdup("no");
    m->framework = xstrdup("Core ML");
    m->architecture = xstrdup("qwen3");
    m->context_length = 512;
    m->batch_size = 64;
    m->lut_ffn = 6;
    m->lut_ffn_per_channel = 8;
    m->num_chunks = 1;
    m->model_prefix = xstrdup("qwen");
    m->split_lm_head = 2;
    m->n_lm_head_chunk_sizes = 2;
    m->lm_head_chunk_sizes = xcalloc(2, sizeof *m->lm_head_chunk_sizes);
    m->lm_head_chunk_sizes[0] = 151;
    m->lm_head_chunk_sizes[1] = 150;
    m->prefill_dynamic_slice = m->prefill_last_token_output = true;
    m->hidden_size = 64;
    m->num_layers = 3;
    m->sampling.is_present = m->sampling.do_sample = true;
    m->sampling.temperature = 1.0;
    m->sampling.top_p = 1e-5;
    m->sampling.top_k = 20;
    m->lut_method = xstrdup("kmeans");
    char *text = write_text(m);
    assert_string_equal(
        text, "model_info:\n"
              "  name: \"anemll-a: #b-ctx512\"\n"
              "  version: 0.3.5\n"
              "  description: |\n"
              "    First line\n"
              "\n"
              "      third: line\n"
              "  license: \"no\"\n"
              "  author: \"0x10\"\n"
              "  framework: Core ML\n"
              "  architecture: qwen3\n"
              "  parameters:\n"
              "    context_length: 512\n"
              "    batch_size: 64\n"
              "    lut_embeddings: none\n"
              "    lut_ffn: 6\n"
              "    lut_ffn_per_channel: 8\n"
              "    lut_lmhead: none\n"
              "    num_chunks: 1\n"
              "    model_prefix: qwen\n"
              "    split_lm_head: 2\n"
              "    lm_head_chunk_sizes: [151, 150]\n"
              "    prefill_dynamic_slice: true\n"
              "    prefill_last_token_output: true\n"
              "    hidden_size: 64\n"
              "    num_layers: 3\n"
              "    recommended_sampling: {do_sample: true, temperature: 1.0, top_p: 1.0e-05, top_k: 20}\n"
              "\n# lut_method: kmeans\n");
    struct meta *again = parse(text);
    assert_string_equal(again->description, "First line\n\n  third: line");
    assert_string_equal(again->author, "0x10");
    assert_true(again->sampling.top_p == 1e-5);
    meta_free(again);
    free(text);
    meta_free(m);
}

/* Whatever text a value is, it comes back. */
static void test_texts_round_trip(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "plain",
        "with space",
        " leading",
        "trailing ",
        "1",
        "1.5",
        "-",
        "- a",
        "a: b",
        "a #b",
        "#b",
        "{a}",
        "[a]",
        "yes",
        "Null",
        "~",
        "",
        "'",
        "\"",
        "\\",
        "a\nb",
        "\n",
        "tab\there",
        "caf\xc3\xa9",
        "\xf0\x9f\x90\xac",
        "a,b",
        "1,2",
        "0.3.5",
        "2026-11-30",
        "12:30",
        "1e5",
        "0x1F",
        ".5",
        "+1",
        "%a",
        "@a",
        "`a",
        "*a",
        "&a",
        "!a",
        "|",
        ">",
        "?",
        "\x7f",
        "\x01",
        "\xc2\x85",
        "\xe2\x80\xa8",
        "\xef\xbb\xbf!",
        "int4,32",
        "none",
        "--- a",
        "...",
        "a:",
        ": a",
        "=",
        "<<",
        "1_000",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct meta *m = meta_new();
        m->name = xstrdup(texts[i]);
        m->description = xstrdup(texts[i]);
        m->model_prefix = xstrdup(texts[i]);
        m->n_layer_types = 1;
        m->layer_types = xcalloc(1, sizeof *m->layer_types);
        m->layer_types[0] = xstrdup(texts[i]);
        char *text = write_text(m);
        struct meta *again = parse(text);
        assert_string_equal(again->name, texts[i]);
        assert_string_equal(again->model_prefix, texts[i]);
        assert_string_equal(again->layer_types[0], texts[i]);
        if (texts[i][0] != '\n' && texts[i][0])
            assert_string_equal(again->description, texts[i]);
        meta_free(again);
        meta_free(m);
        free(text);
    }
    struct meta *m = meta_new();
    m->name = xstrdup("bad \xff byte");
    char *text = write_text(m);
    struct meta *again = parse(text);
    assert_string_equal(again->name, "bad \xef\xbf\xbd byte");
    meta_free(again);
    meta_free(m);
    free(text);
}

static void test_files(void **state)
{
    (void)state;
    struct meta *m = NULL;
    struct err e = {0};
    assert_false(meta_read(&m, files_path("absent.yaml"), &e));
    expect_message(&e, ERR_IO, "absent.yaml", NULL);
    files_put(files_path("bad.yaml"), "model_info:\n  batch_size: x\n", 28);
    assert_false(meta_read(&m, files_path("bad.yaml"), &e));
    expect_message(&e, ERR_FORMAT, "bad.yaml", "line 2", "batch_size", NULL);
    meta_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_other_writers_files),
        cmocka_unit_test(test_values_of_another_writer),
        cmocka_unit_test(test_three_nestings),
        cmocka_unit_test(test_gemma_keys),
        cmocka_unit_test(test_deeper_wins_and_defaults),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_informing_keys_never_stop),
        cmocka_unit_test(test_sampling_round_trip),
        cmocka_unit_test(test_bombs),
        cmocka_unit_test(test_written_text),
        cmocka_unit_test(test_texts_round_trip),
        cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
