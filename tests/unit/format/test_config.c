/* Values of config.json, and a decoder's tensors: defaults, what is refused, which tensors a layer has. */
#include <math.h>
#include "files.h"
#include "format/config.h"
#include "format/decoder.h"

static cJSON *file;

static struct config config_from(const char *text)
{
    struct config c;
    cJSON_Delete(file);
    file = NULL;
    ASSERT_OK(json_parse(&file, text, strlen(text), "config", e));
    ASSERT_OK(config_set(&c, file, "config", e));
    return c;
}

static int clean_up(void **state)
{
    cJSON_Delete(file);
    return files_teardown(state);
}

static const struct config_sizes missing = {.vocab_size = 1,
                                            .hidden_size = 96,
                                            .n_layers = 2,
                                            .intermediate_size = 3,
                                            .n_heads = 4,
                                            .rms_norm_eps = 1e-6};

static void test_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t n_kv_heads, head_dim;
    } cases[] = {
        {"{}", 4, 24},
        {"{\"num_attention_heads\": 8}", 8, 12},
        {"{\"num_key_value_heads\": 2}", 2, 24},
        {"{\"num_key_value_heads\": null, \"head_dim\": 64}", 4, 64},
        /* the settings of a wrapper's text model, not those beside it */
        {"{\"num_attention_heads\": 3, \"text_config\": {\"hidden_size\": 48}}", 4, 12},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct config c = config_from(cases[i].text);
        struct config_sizes s = missing;
        ASSERT_OK(config_get_sizes(&c, &s, e));
        assert_int_equal(s.n_kv_heads, cases[i].n_kv_heads);
        assert_int_equal(s.head_dim, cases[i].head_dim);
    }
    static const struct {
        const char *text, *part;
    } refused[] = {
        {"{\"hidden_size\": 0}", "hidden_size"},
        {"{\"num_attention_heads\": 200}", "hidden_size 96 is not a multiple of num_attention_heads 200"},
        {"{\"num_key_value_heads\": 3}", "not a multiple of num_key_value_heads 3"},
        {"{\"rms_norm_eps\": 1}", "rms_norm_eps"},
        {"{\"attention_bias\": 1}", "attention_bias"},
        {"{\"mlp_bias\": \"yes\"}", "mlp_bias"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        struct config c = config_from(refused[i].text);
        struct config_sizes s = missing;
        struct err e = {0};
        assert_false(config_get_sizes(&c, &s, &e));
        if (e.code != ERR_FORMAT || !strstr(e.msg, refused[i].part))
            fail_msg("%s: %s", refused[i].text, e.msg);
    }
}

static void test_layer_types(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "b", "c"};
    int types[2] = {7, 7};
    bool given = true;
    struct err e = {0};
    struct config c = config_from("{\"layer_types\": null}");
    ASSERT_OK(config_get_layer_types(&c, names, 3, 2, types, &given, e));
    assert_true(!given && types[0] == 7);
    c = config_from("{\"layer_types\": [\"c\", \"a\"]}");
    ASSERT_OK(config_get_layer_types(&c, names, 3, 2, types, &given, e));
    assert_true(given && types[0] == 2 && types[1] == 0);
    c = config_from("{\"layer_types\": [\"a\", \"d\"]}");
    assert_false(config_get_layer_types(&c, names, 3, 2, types, &given, &e));
    assert_true(e.code == ERR_UNSUPPORTED && strstr(e.msg, "expected a, b or c, found d for layer 1"));
    /* Longer than the model: nothing is written behind the list. */
    c = config_from("{\"layer_types\": [\"a\", \"b\", \"c\"]}");
    assert_false(config_get_layer_types(&c, names, 3, 2, types, &given, &e));
    assert_true(e.code == ERR_FORMAT && strstr(e.msg, "expected 2 entries, found 3"));
}

static void test_activation(void **state)
{
    (void)state;
    struct err e = {0};
    struct config c = config_from("{\"hidden_act\": \"swish\"}");
    ASSERT_OK(config_check_activation(&c, "hidden_act", "silu", "swish", e));
    assert_false(config_check_activation(&c, "hidden_act", "silu", NULL, &e));
    assert_true(e.code == ERR_UNSUPPORTED && strstr(e.msg, "expected silu, found \"swish\""));
    ASSERT_OK(config_check_activation(&c, "hidden_activation", "gelu", NULL, e));
}

/* What a rope setting is when nothing says so, and that explicit nulls count as nothing. */
static void test_rope(void **state)
{
    (void)state;
    const struct config_rope_keys plain = {0};
    struct config_rope r;
    struct err e = {0};
    struct config c = config_from("{\"partial_rotary_factor\": null}");
    ASSERT_OK(config_get_rope(&c, 8, &(struct config_rope_keys){.missing_part = 0.5}, &r, e));
    assert_true(r.type == CONFIG_ROPE_DEFAULT && r.rotary_dim == 4 && r.theta == 10000);
    c = config_from(
        "{\"max_position_embeddings\": 64, \"rope_scaling\": {\"type\": \"yarn\", \"factor\": null, "
        "\"beta_fast\": null}}");
    ASSERT_OK(config_get_rope(&c, 8, &plain, &r, e));
    assert_true(r.type == CONFIG_ROPE_YARN && r.rotary_dim == 8 && isnan(r.factor));
    assert_true(isnan(r.attention_factor) && r.beta_fast == 32 && r.beta_slow == 1 && r.truncate);
    assert_true(r.max_positions == 64 && r.original_positions == 64);
    assert_false(config_get_rope(&c, 7, &plain, &r, &e)); /* seven numbers make no pairs */
    assert_true(e.code == ERR_FORMAT && strstr(e.msg, "partial_rotary_factor"));
}

/* Settings that each type needs, and what is refused. */
static void test_rope_types(void **state)
{
    (void)state;
#define OF(text) "{\"rope_scaling\": {" text "}}"
    static const struct {
        const char *text;
        enum config_rope_type type;
        int64_t limit;
    } good[] = {
        {OF("\"type\": \"linear\", \"factor\": 2"), CONFIG_ROPE_LINEAR, 0},
        {OF("\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, \"high_freq_factor\": 4, "
            "\"original_max_position_embeddings\": 128"),
         CONFIG_ROPE_LLAMA3, 0},
        {"{\"max_position_embeddings\": 64, \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}}",
         CONFIG_ROPE_DYNAMIC, 64},
        {"{\"max_position_embeddings\": 64, \"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1, "
         "2], "
         "\"long_factor\": [3, 4], \"original_max_position_embeddings\": 32}}",
         CONFIG_ROPE_LONG, 32},
    };
    static const struct {
        const char *text, *part;
        enum err_code code;
    } bad[] = {
        {OF("\"type\": \"linear\""), "factor is missing", ERR_FORMAT},
        {OF("\"type\": \"linear\", \"factor\": -2"), "RoPE key factor", ERR_FORMAT},
        {OF("\"type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, "
            "\"original_max_position_embeddings\": 128"),
         "high_freq_factor is missing", ERR_FORMAT},
        {OF("\"type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4, \"high_freq_factor\": 4, "
            "\"original_max_position_embeddings\": 128"),
         "less than high_freq_factor 4", ERR_FORMAT},
        {OF("\"type\": \"dynamic\""), "factor is missing", ERR_FORMAT},
        {OF("\"type\": \"longrope\", \"short_factor\": [1]"), "expected 2 entries, found 1", ERR_FORMAT},
        {OF("\"type\": \"longrope\", \"short_factor\": [1, 0]"), "entry 1", ERR_FORMAT},
        {OF("\"type\": \"longrope\", \"short_factor\": [1, 2]"), "long_factor", ERR_FORMAT},
        {OF("\"type\": \"spiral\""),
         "milkit knows default, linear, llama3, yarn, dynamic and longrope, found \"spiral\"",
         ERR_UNSUPPORTED},
    };
#undef OF
    const struct config_rope_keys plain = {0};
    struct config_rope r;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct config c = config_from(good[i].text);
        ASSERT_OK(config_get_rope(&c, 4, &plain, &r, e));
        assert_int_equal(r.type, good[i].type);
        assert_int_equal(r.positions_limit, good[i].limit);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct config c = config_from(bad[i].text);
        struct err e = {0};
        assert_false(config_get_rope(&c, 4, &plain, &r, &e));
        if (e.code != bad[i].code || !strstr(e.msg, bad[i].part))
            fail_msg("%s: %s", bad[i].text, e.msg);
    }
}

/* Keys of one type of layers, beside and inside of rope_parameters. */
static void test_rope_of_layers(void **state)
{
    (void)state;
    const struct config_rope_keys full = {.missing_theta = 1e6, .layer_type = "full_attention"},
                                  local = {.theta = "rope_local_base_freq",
                                           .layer_type = "sliding_attention",
                                           .is_never_scaled = true};
    static const struct {
        const char *text;
        double full_theta, full_factor, local_theta;
    } cases[] = {
        {"{}", 1e6, 0, 1e4},
        {"{\"rope_theta\": 5, \"rope_local_base_freq\": 7, \"rope_scaling\": {\"rope_type\": \"linear\", "
         "\"factor\": 8}}",
         5, 8, 7},
        {"{\"rope_parameters\": {\"full_attention\": {\"rope_type\": \"linear\", \"factor\": 8, "
         "\"rope_theta\": 9}, "
         "\"sliding_attention\": {\"rope_theta\": 11}}}",
         9, 8, 11},
        {"{\"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 4, \"rope_theta\": 9}}", 9, 4, 1e4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct config c = config_from(cases[i].text);
        struct config_rope r;
        ASSERT_OK(config_get_rope(&c, 4, &full, &r, e));
        assert_true(r.theta == cases[i].full_theta);
        assert_true(cases[i].full_factor == 0 ? r.type == CONFIG_ROPE_DEFAULT
                                              : r.factor == cases[i].full_factor);
        ASSERT_OK(config_get_rope(&c, 4, &local, &r, e));
        assert_true(r.theta == cases[i].local_theta && r.type == CONFIG_ROPE_DEFAULT);
    }
    struct config c = config_from("{\"rope_parameters\": {\"full_attention\": 3}}");
    struct config_rope r;
    struct err e = {0};
    assert_false(config_get_rope(&c, 4, &full, &r, &e));
    assert_true(e.code == ERR_FORMAT && strstr(e.msg, "rope_parameters.full_attention"));
}

/* Which of four layers slide and turn, by the keys of each rule. */
static void test_layers(void **state)
{
    (void)state;
#define TYPES(a, b)                                                                                          \
    "\"layer_types\": [\"" a "_attention\", \"" b "_attention\", \"full_attention\", \"full_attention\"]"
    static const struct {
        enum config_window rule;
        int64_t missing;
        bool has_rope_list;
        const char *text;
        int64_t window;
        const char *slides, *turns; /* 1 for a layer that does */
    } cases[] = {
        {CONFIG_WINDOW_NEVER, 0, false, "{\"sliding_window\": 7, \"use_sliding_window\": true}", 0, "0000",
         "1111"},
        {CONFIG_WINDOW_SWITCHED, 9, false, "{\"sliding_window\": 7, \"max_window_layers\": 2}", 0, "0000",
         "1111"},
        {CONFIG_WINDOW_SWITCHED, 9, false,
         "{\"sliding_window\": 7, \"max_window_layers\": 2, \"use_sliding_window\": true}", 7, "0011",
         "1111"},
        {CONFIG_WINDOW_SWITCHED, 9, false, "{\"max_window_layers\": 0, \"use_sliding_window\": true}", 9,
         "1111", "1111"},
        {CONFIG_WINDOW_SWITCHED, 9, false,
         "{\"max_window_layers\": 0, \"use_sliding_window\": true, " TYPES("full", "sliding") "}", 9, "0100",
         "1111"},
        {CONFIG_WINDOW_SWITCHED, 9, false, "{\"sliding_window\": null, \"use_sliding_window\": true}", 0,
         "0000", "1111"},
        {CONFIG_WINDOW_SWITCHED_ALL, 9, false, "{\"use_sliding_window\": true}", 9, "1111", "1111"},
        {CONFIG_WINDOW_SWITCHED_UNTURNED, 0, true, "{}", 0, "0000", "1110"},
        {CONFIG_WINDOW_SWITCHED_UNTURNED, 0, true,
         "{\"sliding_window\": 5, \"use_sliding_window\": true, \"no_rope_layer_interval\": 2}", 5, "0101",
         "1010"},
        {CONFIG_WINDOW_SWITCHED_UNTURNED, 0, true,
         "{\"no_rope_layer_interval\": 2, \"no_rope_layers\": [0, 1, 1, 0]}", 0, "0000", "0110"},
        {CONFIG_WINDOW_ALL, 9, false, "{}", 9, "1111", "1111"},
        {CONFIG_WINDOW_ALL, 9, false, "{\"sliding_window\": null}", 0, "0000", "1111"},
        {CONFIG_WINDOW_ALL, 9, false, "{\"sliding_window\": 3, " TYPES("full", "full") "}", 3, "1111",
         "1111"},
        {CONFIG_WINDOW_PATTERN, 9, false, "{\"sliding_window_pattern\": 2}", 9, "1010", "1111"},
        {CONFIG_WINDOW_PATTERN, 9, false, "{\"_sliding_window_pattern\": 3}", 9, "1101", "1111"},
        {CONFIG_WINDOW_PATTERN, 9, false, "{" TYPES("sliding", "full") "}", 9, "1000", "1111"},
    };
    struct config_layer layers[4];
    int64_t window;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct config c = config_from(cases[i].text);
        const struct config_layer_rules r = {.window = cases[i].rule,
                                             .missing_window = cases[i].missing,
                                             .has_rope_list = cases[i].has_rope_list};
        ASSERT_OK(config_get_layers(&c, &r, 4, layers, &window, e));
        assert_int_equal(window, cases[i].window);
        for (int k = 0; k < 4; k++)
            if (layers[k].slides != (cases[i].slides[k] == '1') ||
                layers[k].turns != (cases[i].turns[k] == '1'))
                fail_msg("%s: layer %d", cases[i].text, k);
    }
    static const struct {
        enum config_window rule;
        const char *text, *part;
    } bad[] = {
        {CONFIG_WINDOW_NEVER, "{" TYPES("full", "sliding") "}", "found sliding_attention for layer 1"},
        {CONFIG_WINDOW_SWITCHED, "{" TYPES("full", "sliding") "}", "found sliding_attention for layer 1"},
        {CONFIG_WINDOW_ALL, "{\"sliding_window\": 0}", "sliding_window"},
        {CONFIG_WINDOW_PATTERN, "{\"sliding_window_pattern\": 0}", "sliding_window_pattern"},
        {CONFIG_WINDOW_SWITCHED, "{\"use_sliding_window\": 1}", "use_sliding_window"},
        {CONFIG_WINDOW_ALL, "{\"no_rope_layers\": [1]}", "expected 4 entries, found 1"},
        {CONFIG_WINDOW_ALL, "{\"no_rope_layers\": [1, 2, 1, 1]}", "0 or 1 for layer 1, found another number"},
        {CONFIG_WINDOW_ALL, "{\"no_rope_layers\": \"x\"}", "expected an array"},
        {CONFIG_WINDOW_ALL, "{\"no_rope_layer_interval\": 0}", "no_rope_layer_interval"},
    };
#undef TYPES
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct config c = config_from(bad[i].text);
        const struct config_layer_rules r = {
            .window = bad[i].rule, .missing_window = 9, .has_rope_list = true};
        struct err e = {0};
        assert_false(config_get_layers(&c, &r, 4, layers, &window, &e));
        if (!strstr(e.msg, bad[i].part))
            fail_msg("%s: %s", bad[i].text, e.msg);
    }
}

/* Layers and numbers of experts. */
static void test_experts(void **state)
{
    (void)state;
    static const struct {
        const char *text, *sparse;
    } cases[] = {{"{}", "1111"},
                 {"{\"decoder_sparse_step\": 2}", "0101"},
                 {"{\"mlp_only_layers\": [0, 3]}", "0110"},
                 {"{\"decoder_sparse_step\": 2, \"mlp_only_layers\": [1]}", "0001"}};
    const struct config_layer_rules rules = {.has_experts = true};
    struct config_layer layers[4];
    struct config_experts x = {.n = 8, .n_chosen = 2, .size = 3, .normalizes = true};
    struct err e = {0};
    int64_t window;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct config c = config_from(cases[i].text);
        ASSERT_OK(config_get_layers(&c, &rules, 4, layers, &window, e));
        for (int k = 0; k < 4; k++)
            if (layers[k].has_experts != (cases[i].sparse[k] == '1'))
                fail_msg("%s: layer %d", cases[i].text, k);
    }
    struct config c = config_from("{\"mlp_only_layers\": [4]}");
    assert_false(config_get_layers(&c, &rules, 4, layers, &window, &e));
    assert_true(e.code == ERR_FORMAT && strstr(e.msg, "numbers of layers below 4"));
    c = config_from("{\"num_local_experts\": 5, \"norm_topk_prob\": false}");
    ASSERT_OK(config_get_experts(&c, false, &x, e));
    assert_true(x.n == 5 && x.n_chosen == 2 && x.size == 3 && x.normalizes);
    ASSERT_OK(config_get_experts(&c, true, &x, e));
    assert_false(x.normalizes);
    c = config_from("{\"num_experts\": 3, \"num_local_experts\": 5, \"num_experts_per_tok\": 4}");
    assert_false(config_get_experts(&c, true, &x, &e));
    assert_true(e.code == ERR_FORMAT && strstr(e.msg, "num_experts_per_tok 4 is more than num_experts 3"));
}

/* ---- tensors ---- */

enum { HIDDEN = 4, WIDTH = 6, KV = 2, HEAD = 2, INNER = 5 };
static const int64_t sizes[DECODER_SIZES] = {
    [DECODER_ONE] = 1, [DECODER_HIDDEN] = HIDDEN, [DECODER_QUERY] = WIDTH, [DECODER_HEADS] = WIDTH,
    [DECODER_KV] = KV, [DECODER_HEAD] = HEAD,     [DECODER_INNER] = INNER, [DECODER_PER_LAYER] = 3};

struct entry {
    const char *name;
    int64_t shape[2];
};

/* A checkpoint of layer 0 and what stands around it; ends with a NULL name. */
static struct safetensors *open_entries(const struct entry *list)
{
    static const float zeros[64];
    struct safetensors *s = NULL;
    struct st_writer *w = st_writer_new();
    for (; list->name; list++)
        st_writer_add(w, list->name, ST_F32, list->shape, list->shape[1] ? 2 : 1, zeros);
    ASSERT_OK(st_writer_write(w, files_path("decoder.safetensors"), true, e));
    st_writer_free(w);
    ASSERT_OK(safetensors_open(&s, files_path("decoder.safetensors"), e));
    return s;
}

#define LAYER(name) "model.layers.0." name
static const struct entry layer[] = {
    {"model.embed_tokens.weight", {7, HIDDEN}},
    {"model.norm.weight", {HIDDEN}},
    {LAYER("self_attn.q_proj.weight"), {WIDTH, HIDDEN}},
    {LAYER("self_attn.k_proj.weight"), {KV, HIDDEN}},
    {LAYER("self_attn.v_proj.weight"), {KV, HIDDEN}},
    {LAYER("self_attn.o_proj.weight"), {HIDDEN, WIDTH}},
    {LAYER("self_attn.q_proj.bias"), {WIDTH}},
    {LAYER("self_attn.k_proj.bias"), {KV}},
    {LAYER("self_attn.v_proj.bias"), {KV}},
    {LAYER("self_attn.q_norm.weight"), {HEAD}},
    {LAYER("self_attn.k_norm.weight"), {HEAD}},
    {LAYER("input_layernorm.weight"), {HIDDEN}},
    {LAYER("post_attention_layernorm.weight"), {HIDDEN}},
    {LAYER("pre_feedforward_layernorm.weight"), {HIDDEN}},
    {LAYER("post_feedforward_layernorm.weight"), {HIDDEN}},
    {LAYER("mlp.gate_proj.weight"), {INNER, HIDDEN}},
    {LAYER("mlp.up_proj.weight"), {INNER, HIDDEN}},
    {LAYER("mlp.down_proj.weight"), {HIDDEN, INNER}},
    {NULL, {0}},
};

static void test_parts(void **state)
{
    (void)state;
    struct safetensors *s = open_entries(layer);
    struct checkpoint_names *n = checkpoint_names_new(s);
    const struct st_tensor *t[DECODER_TENSORS];
    struct err e = {0};
    const unsigned plain = DECODER_ATTENTION | DECODER_KEYS | DECODER_MLP;
    ASSERT_OK(decoder_find_layer(n, 0, plain, sizes, t, e));
    /* The norm behind attention is the one in front of the MLP, unless there are norms behind both. */
    assert_string_equal(t[DECODER_MLP_NORM]->name, LAYER("post_attention_layernorm.weight"));
    assert_true(!t[DECODER_POST_ATTENTION_NORM] && !t[DECODER_POST_MLP_NORM] && !t[DECODER_Q_NORM]);
    assert_true(!t[DECODER_Q_BIAS] && t[DECODER_K] && t[DECODER_DOWN]);
    ASSERT_OK(decoder_find_layer(n, 0, plain | DECODER_POST_NORMS | DECODER_QKV_BIAS, sizes, t, e));
    assert_string_equal(t[DECODER_MLP_NORM]->name, LAYER("pre_feedforward_layernorm.weight"));
    assert_string_equal(t[DECODER_POST_ATTENTION_NORM]->name, LAYER("post_attention_layernorm.weight"));
    assert_string_equal(t[DECODER_POST_MLP_NORM]->name, LAYER("post_feedforward_layernorm.weight"));
    assert_true(t[DECODER_Q_BIAS] && t[DECODER_V_BIAS] && !t[DECODER_O_BIAS]);
    /* Keys of another layer: neither their projections nor their norm are wanted. */
    ASSERT_OK(decoder_find_layer(n, 0, DECODER_ATTENTION | DECODER_HEAD_NORMS | DECODER_MLP, sizes, t, e));
    assert_true(t[DECODER_Q_NORM] && !t[DECODER_K_NORM] && !t[DECODER_K] && !t[DECODER_V]);
    assert_false(decoder_find_layer(n, 0, plain | DECODER_OUTPUT_BIAS, sizes, t, &e));
    assert_true(e.code == ERR_FORMAT && strstr(e.msg, "o_proj.bias is missing"));
    assert_false(decoder_find_layer(n, 1, plain, sizes, t, &e));
    assert_non_null(strstr(e.msg, "model.layers.1.self_attn.q_proj.weight is missing"));
    checkpoint_names_free(n);
    safetensors_close(s);
}

/* The head: stored, tied, or neither. */
static void test_ends(void **state)
{
    (void)state;
    static const struct entry with_head[] = {{"model.embed_tokens.weight", {7, HIDDEN}},
                                             {"model.layers.0.x", {1}},
                                             {"model.norm.weight", {HIDDEN}},
                                             {"lm_head.weight", {7, HIDDEN}},
                                             {NULL, {0}}};
    for (int k = 0; k < 2; k++) {
        struct safetensors *s = open_entries(k ? with_head : layer);
        struct checkpoint_names *n = checkpoint_names_new(s);
        struct decoder_ends ends;
        struct err e = {0};
        ASSERT_OK(decoder_find_ends(n, 7, HIDDEN, true, &ends, e));
        assert_string_equal(ends.head->name, k ? "lm_head.weight" : "model.embed_tokens.weight");
        assert_int_equal(decoder_find_ends(n, 7, HIDDEN, false, &ends, &e), k);
        assert_true(k || (e.code == ERR_FORMAT && strstr(e.msg, "not tied") && strstr(e.msg, "lm_head")));
        assert_false(decoder_find_ends(n, 8, HIDDEN, true, &ends, &e));
        assert_non_null(strstr(e.msg, "expected shape [8, 4], found [7, 4]"));
        checkpoint_names_free(n);
        safetensors_close(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),      cmocka_unit_test(test_layer_types),
        cmocka_unit_test(test_activation), cmocka_unit_test(test_rope),
        cmocka_unit_test(test_rope_types), cmocka_unit_test(test_rope_of_layers),
        cmocka_unit_test(test_layers),     cmocka_unit_test(test_experts),
        cmocka_unit_test(test_parts),      cmocka_unit_test(test_ends),
    };
    return cmocka_run_group_tests(tests, files_setup, clean_up);
}
