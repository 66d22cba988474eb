// links: measure
/* Checkpoints that the reference takes and refuses, made in memory; stored types; comparing logits. */
#include "support.h"
#include <math.h>
#include "base/half.h"
#include "format/safetensors.h"
#include "measure/compare.h"
#include "reference/reference.h"

#define CONFIG                                                                                               \
    "{\"model_type\": \"qwen3\", \"vocab_size\": 11, \"hidden_size\": 6, \"intermediate_size\": 10, "        \
    "\"num_hidden_layers\": 1, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 4"

struct entry {
    const char *name;
    int64_t shape[2];
    int rank;
};
static const struct entry entries[] = {
    {"model.embed_tokens.weight", {11, 6}, 2},
    {"model.layers.0.input_layernorm.weight", {6}, 1},
    {"model.layers.0.self_attn.q_proj.weight", {16, 6}, 2},
    {"model.layers.0.self_attn.k_proj.weight", {8, 6}, 2},
    {"model.layers.0.self_attn.v_proj.weight", {8, 6}, 2},
    {"model.layers.0.self_attn.o_proj.weight", {6, 16}, 2},
    {"model.layers.0.self_attn.q_norm.weight", {4}, 1},
    {"model.layers.0.self_attn.k_norm.weight", {4}, 1},
    {"model.layers.0.post_attention_layernorm.weight", {6}, 1},
    {"model.layers.0.mlp.gate_proj.weight", {10, 6}, 2},
    {"model.layers.0.mlp.up_proj.weight", {10, 6}, 2},
    {"model.layers.0.mlp.down_proj.weight", {6, 10}, 2},
    {"model.norm.weight", {6}, 1},
    {"lm_head.weight", {11, 6}, 2},
};
#define N_ENTRIES ((int)(sizeof entries / sizeof entries[0]))

static char folder[128];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "reference-%d", (int)getpid());
    return mkdir(folder, 0700);
}

static int remove_folder(void **state)
{
    (void)state;
    struct err e = {0};
    return path_remove_tree(folder, &e) ? 0 : -1;
}

/* Numbers that every stored type holds exactly. */
static float number(int tensor, int64_t i)
{
    return (float)((tensor * 31 + i * 17) % 61 - 30) / 32;
}

/* Writes a checkpoint: the entry left_out is missing, that of wrong_shape has one row less. */
static void make(const char *config, enum st_dtype dtype, const char *left_out, const char *wrong_shape)
{
    char path[256];
    struct st_writer *w = st_writer_new();
    void *data[N_ENTRIES] = {0};
    for (int t = 0; t < N_ENTRIES; t++) {
        struct entry n = entries[t];
        if (left_out && strcmp(left_out, n.name) == 0)
            continue;
        if (wrong_shape && strcmp(wrong_shape, n.name) == 0)
            n.shape[0]--;
        int64_t elems = n.shape[0] * (n.rank == 2 ? n.shape[1] : 1);
        data[t] = calloc((size_t)elems, 8);
        for (int64_t i = 0; i < elems; i++) {
            float v = number(t, i);
            uint32_t bits;
            memcpy(&bits, &v, sizeof bits);
            if (dtype == ST_F32)
                ((float *)data[t])[i] = v;
            else if (dtype == ST_F64)
                ((double *)data[t])[i] = (double)v;
            else
                ((uint16_t *)data[t])[i] = dtype == ST_F16 ? f32_to_f16(v) : (uint16_t)(bits >> 16);
        }
        st_writer_add(w, n.name, dtype, n.shape, n.rank, data[t]);
    }
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    ASSERT_OK(st_writer_write(w, path, true, e));
    st_writer_free(w);
    for (int t = 0; t < N_ENTRIES; t++)
        free(data[t]);
    snprintf(path, sizeof path, "%s/config.json", folder);
    ASSERT_OK(file_write(path, config, strlen(config), e));
}

static const int32_t some_ids[] = {3, 0, 10, 7, 7};

static void run(float *logits)
{
    struct reference *r;
    struct reference_session *s;
    struct reference_options o = {.n_threads = 1};
    ASSERT_OK(reference_open(&r, folder, &o, e));
    assert_string_equal(r->family, "qwen3");
    assert_true(r->vocab_size == 11 && r->hidden_size == 6 && r->n_layers == 1);
    ASSERT_OK(reference_session_new(&s, r, 5, e));
    ASSERT_OK(reference_feed(s, some_ids, 5, NULL, NULL, e));
    memcpy(logits, reference_logits(s), 11 * sizeof *logits);
    reference_session_free(s);
    reference_close(r);
}

static void refused(enum err_code code, const char *text)
{
    struct reference *r;
    struct reference_options o = {.n_threads = 1};
    struct err e = {0};
    assert_false(reference_open(&r, folder, &o, &e));
    assert_null(r);
    if (e.code != code || !strstr(e.msg, text))
        fail_msg("expected %d with \"%s\", found %d: %s", code, text, e.code, e.msg);
}

/* Stored types with the same values give the same logits, whatever else config.json holds. */
static void test_types(void **state)
{
    (void)state;
    float a[11], b[11];
    make(CONFIG "}", ST_F32, NULL, NULL);
    run(a);
    for (int i = 0; i < 11; i++)
        assert_true(isfinite(a[i]));
    make(CONFIG ", \"bos_token_id\": [1, 2], \"hidden_act\": \"silu\", \"layer_types\": null}", ST_F16, NULL,
         NULL);
    run(b);
    assert_memory_equal(a, b, sizeof a);
    make(CONFIG ", \"torch_dtype\": \"float16\", \"layer_types\": [\"full_attention\"]}", ST_BF16, NULL,
         NULL);
    run(b);
    assert_memory_equal(a, b, sizeof a);
    make(CONFIG "}", ST_F64, NULL, NULL);
    run(b);
    assert_memory_equal(a, b, sizeof a);
    make(CONFIG "}", ST_I16, NULL, NULL);
    refused(ERR_UNSUPPORTED, "found I16");
}

/* A stored head is used even when the embeddings are tied; without one the table is the head. */
static void test_head(void **state)
{
    (void)state;
    float untied[11], stored[11], tied[11];
    make(CONFIG "}", ST_F32, NULL, NULL);
    run(untied);
    make(CONFIG ", \"tie_word_embeddings\": true}", ST_F32, NULL, NULL);
    run(stored);
    assert_memory_equal(untied, stored, sizeof untied);
    make(CONFIG ", \"tie_word_embeddings\": true}", ST_F32, "lm_head.weight", NULL);
    run(tied);
    assert_memory_not_equal(untied, tied, sizeof untied);
    make(CONFIG "}", ST_F32, "lm_head.weight", NULL);
    refused(ERR_FORMAT, "the embeddings are not tied");
}

static void test_tensors(void **state)
{
    (void)state;
    for (int t = 0; t < N_ENTRIES; t++) {
        make(CONFIG "}", ST_BF16, entries[t].name, NULL);
        refused(ERR_FORMAT, entries[t].name);
        refused(ERR_FORMAT, "is missing");
        make(CONFIG "}", ST_BF16, NULL, entries[t].name);
        refused(ERR_FORMAT, entries[t].name);
        refused(ERR_FORMAT, "expected shape");
    }
    make(CONFIG ", \"attention_bias\": true}", ST_BF16, NULL, NULL);
    refused(ERR_FORMAT, "self_attn.q_proj.bias is missing");
}

static void test_config(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        enum err_code code;
        const char *text;
    } cases[] = {
        {"{}", ERR_FORMAT, "model_type is missing"},
        {"[]", ERR_FORMAT, "expected an object"},
        {"{\"model_type\": 3}", ERR_FORMAT, "model_type"},
        {"{\"model_type\": \"mamba\"}", ERR_UNSUPPORTED, "found \"mamba\""},
        {"{\"model_type\": \"qwen3\"", ERR_FORMAT, "config.json"},
        {CONFIG ", \"rms_norm_eps\": -1}", ERR_FORMAT, "rms_norm_eps"},
        {CONFIG ", \"use_sliding_window\": 1}", ERR_FORMAT, "use_sliding_window"},
        {CONFIG ", \"hidden_act\": \"gelu\"}", ERR_UNSUPPORTED, "gelu"},
        {CONFIG ", \"layer_types\": [\"sliding_attention\"]}", ERR_UNSUPPORTED, "sliding_attention"},
        {CONFIG ", \"layer_types\": \"full_attention\"}", ERR_FORMAT, "layer_types"},
        {CONFIG ", \"rope_scaling\": {\"type\": \"spiral\", \"factor\": 2}}", ERR_UNSUPPORTED, "spiral"},
        {"{\"model_type\": \"qwen3\", \"vocab_size\": 0}", ERR_FORMAT, "vocab_size"},
        {"{\"model_type\": \"qwen3\", \"hidden_size\": 1e12}", ERR_FORMAT, "hidden_size"},
        {"{\"model_type\": \"qwen3\", \"head_dim\": 7}", ERR_FORMAT, "even"},
        {"{\"model_type\": \"qwen3\", \"num_attention_heads\": 6, \"num_key_value_heads\": 4}", ERR_FORMAT,
         "multiple"},
        /* far more layers than the file has: refused at the first that is missing */
        {"{\"model_type\": \"qwen3\", \"vocab_size\": 11, \"hidden_size\": 6, \"intermediate_size\": 10, "
         "\"num_hidden_layers\": 10000, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
         "\"head_dim\": "
         "4}",
         ERR_FORMAT, "model.layers.1."},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        make(cases[i].config, ST_F16, NULL, NULL);
        refused(cases[i].code, cases[i].text);
    }
    struct reference *r;
    struct err e = {0};
    assert_false(reference_open(&r, "no-such-folder", &(struct reference_options){0}, &e));
    assert_int_equal(e.code, ERR_IO);
}

static void test_session_sizes(void **state)
{
    (void)state;
    struct reference *r;
    struct reference_session *s;
    struct err e = {0};
    make(CONFIG "}", ST_F16, NULL, NULL);
    ASSERT_OK(reference_open(&r, folder, &(struct reference_options){.n_threads = 1}, e));
    assert_false(reference_session_new(&s, r, 0, &e));
    assert_null(s);
    assert_int_equal(e.code, ERR_LIMIT);
    reference_close(r);
    /* Frequencies that change with the length are computed up to where they begin to. */
    make(CONFIG
         ", \"max_position_embeddings\": 20, \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}}",
         ST_F16, NULL, NULL);
    ASSERT_OK(reference_open(&r, folder, &(struct reference_options){.n_threads = 1}, e));
    ASSERT_OK(reference_session_new(&s, r, 20, e));
    reference_session_free(s);
    assert_false(reference_session_new(&s, r, 21, &e));
    assert_true(e.code == ERR_UNSUPPORTED && strstr(e.msg, "beyond 20 positions"));
    reference_close(r);
}

static void test_cancelled(void **state)
{
    (void)state;
    struct reference *r;
    struct reference_session *s;
    struct err e = {0};
    atomic_int cancel = 1;
    struct log l = {.cancel = &cancel};
    make(CONFIG "}", ST_F16, NULL, NULL);
    ASSERT_OK(reference_open(&r, folder, &(struct reference_options){.n_threads = 1, .log = &l}, e));
    ASSERT_OK(reference_session_new(&s, r, 5, e));
    assert_false(reference_feed(s, some_ids, 5, NULL, NULL, &e));
    assert_int_equal(e.code, ERR_CANCELLED);
    reference_session_free(s);
    reference_close(r);
}

static void test_compare(void **state)
{
    (void)state;
    struct logits_difference d;
    /* softmax of (log 3, 0) is (3/4, 1/4), of (0, 0) it is (1/2, 1/2) */
    float a[2] = {logf(3), 0}, b[2] = {0, 0};
    logits_compare(a, b, 2, &d);
    assert_true(fabs(d.kl - (0.75 * log(1.5) + 0.25 * log(0.5))) < 1e-7);
    assert_true(fabs(d.max_difference - log(3)) < 1e-6 && fabs(d.margin - log(3)) < 1e-6);
    assert_true(d.cosine == 0 && d.reference_finite && d.other_finite);
    float c[3] = {3, 4, 4}, x[3] = {-6, -8, -8}, y[3] = {1003, 1004, 1004};
    logits_compare(c, x, 3, &d);
    assert_true(fabs(d.cosine + 1) < 1e-12 && d.reference_top == 1 && d.other_top == 0 && d.margin == 0);
    /* a shift changes no probability */
    logits_compare(c, y, 3, &d);
    assert_true(fabs(d.kl) < 1e-9 && d.max_difference == 1000);
    logits_compare(c, c, 3, &d);
    assert_true(fabs(d.cosine - 1) < 1e-12 && d.kl == 0 && d.max_difference == 0);
    x[1] = NAN;
    logits_compare(c, x, 3, &d);
    assert_true(d.reference_finite && !d.other_finite && isnan(d.cosine) && isnan(d.kl));
    x[1] = INFINITY;
    logits_compare(x, c, 3, &d);
    assert_true(!d.reference_finite && d.other_finite);
    logits_compare(b, b, 2, &d);
    assert_true(d.cosine == 1);
    logits_compare(b, b, 1, &d);
    assert_true(d.margin == 0 && d.kl == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),     cmocka_unit_test(test_head),
        cmocka_unit_test(test_tensors),   cmocka_unit_test(test_config),
        cmocka_unit_test(test_cancelled), cmocka_unit_test(test_session_sizes),
        cmocka_unit_test(test_compare),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
