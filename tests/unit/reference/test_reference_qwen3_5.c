// links: measure
/* Qwen3.5 in the reference: states against the published code's, routing, batches, layouts, refusals. */
#include "support.h"
#include <math.h>
#include "format/json.h"
#include "format/safetensors.h"
#include "measure/compare.h"
#include "reference/reference.h"

#define MODELS MILKIT_TEST_DATA "/models/"

struct opened {
    struct reference *reference;
    struct safetensors *golden;
};

static void open_at(struct opened *o, const char *folder, const char *name)
{
    char path[512];
    struct reference_options options = {.n_threads = 2};
    snprintf(path, sizeof path, "%s%s", folder, name);
    ASSERT_OK(reference_open(&o->reference, path, &options, e));
    assert_string_equal(o->reference->family, "qwen3_5");
    snprintf(path, sizeof path, "%s%s/golden.safetensors", folder, name);
    ASSERT_OK(safetensors_open(&o->golden, path, e));
}

static void opened_close(struct opened *o)
{
    reference_close(o->reference);
    safetensors_close(o->golden);
}

/* Copied so that it is aligned; NULL when there is no such tensor. */
static void *take(const struct opened *o, const char *name, int64_t *n)
{
    const struct st_tensor *t = safetensors_find(o->golden, name);
    if (!t)
        return NULL;
    void *copy = malloc(t->bytes);
    memcpy(copy, t->data, t->bytes);
    *n = t->n_elems;
    return copy;
}

static struct reference_session *feed(const struct opened *o, const char *prompt, int64_t *n_fed)
{
    char name[64];
    struct reference_session *s;
    snprintf(name, sizeof name, "%s.ids", prompt);
    int32_t *ids = take(o, name, n_fed);
    assert_non_null(ids);
    ASSERT_OK(reference_session_new(&s, o->reference, *n_fed + 3, e));
    ASSERT_OK(reference_feed(s, ids, (size_t)*n_fed, NULL, NULL, e));
    free(ids);
    return s;
}

static void compare_state(const struct opened *o, const struct reference_session *s, const char *prompt,
                          int64_t layer, const char *what, enum reference_state_kind kind, int64_t n_rows)
{
    char name[64];
    int64_t n = 0;
    struct reference_state state;
    snprintf(name, sizeof name, "%s.layer%lld.%s", prompt, (long long)layer, what);
    float *expected = take(o, name, &n);
    assert_non_null(expected);
    assert_true(reference_state(s, layer, kind, &state));
    /* Of a cache the rows so far; of the others everything. */
    int64_t outer = 1, inner = 1, stride = 1;
    if (n_rows > 0) {
        outer = state.shape[0];
        inner = n_rows * state.shape[2];
        stride = state.shape[1] * state.shape[2];
    } else {
        for (int i = 0; i < state.rank; i++)
            inner *= state.shape[i];
    }
    assert_int_equal(n, outer * inner);
    double worst = 0;
    for (int64_t i = 0; i < outer; i++) {
        for (int64_t k = 0; k < inner; k++) {
            double want = (double)expected[i * inner + k];
            double error = fabs((double)state.data[i * stride + k] - want) / (1 + fabs(want));
            worst = error > worst ? error : worst;
        }
    }
    if (!(worst < 2e-4))
        fail_msg("%s: differs by %g", name, worst);
    free(expected);
}

static void check_states(const char *folder, const char *name, int64_t full_layer, bool with_long)
{
    struct opened o;
    open_at(&o, folder, name);
    for (int i = 0; i < (with_long ? 2 : 1); i++) {
        const char *prompt = i ? "long" : "five";
        int64_t n;
        struct reference_session *s = feed(&o, prompt, &n);
        compare_state(&o, s, prompt, 0, "gdn_state", REFERENCE_MEMORY, 0);
        compare_state(&o, s, prompt, 0, "conv_state", REFERENCE_WINDOW, 0);
        if (i == 1) {
            compare_state(&o, s, prompt, full_layer, "keys", REFERENCE_KEYS, n);
            compare_state(&o, s, prompt, full_layer, "values", REFERENCE_VALUES, n);
        }
        struct reference_state state;
        assert_false(reference_state(s, full_layer, REFERENCE_MEMORY, &state));
        assert_false(reference_state(s, 0, REFERENCE_KEYS, &state));
        assert_false(reference_state(s, -1, REFERENCE_KEYS, &state));
        assert_false(reference_state(s, o.reference->n_layers, REFERENCE_WINDOW, &state));
        reference_session_free(s);
    }
    opened_close(&o);
}

static void test_states(void **state)
{
    (void)state;
    check_states(MODELS, "qwen3_5-equal", 3, true);
    check_states(MODELS, "qwen3_5_moe-random", 3, true);
    check_states(MODELS, "qwen3_5_moe-tiny", 3, false);
}

static bool compare_last(const struct opened *o, const struct reference_session *s, const char *prompt)
{
    char name[64];
    int64_t n = 0, vocab = o->reference->vocab_size;
    struct logits_difference d;
    snprintf(name, sizeof name, "%s.logits", prompt);
    float *expected = take(o, name, &n);
    if (!expected)
        return false;
    logits_compare(expected + n - vocab, reference_logits(s), vocab, &d);
    assert_true(d.max_difference < 3e-4);
    free(expected);
    return true;
}

/* The checkpoints that are too large to lie here: several value heads on a key head, shards, a wrapper. */
static void test_more_checkpoints(void **state)
{
    (void)state;
    SKIP_WITHOUT_SHARED();
    static const char *const names[] = {"qwen3_5-repeat", "qwen3_5-tiny"};
    static const int64_t full_layers[] = {2, 3};
    for (int i = 0; i < 2; i++) {
        struct opened o;
        int64_t n;
        check_states(MILKIT_SHARED "/models/", names[i], full_layers[i], false);
        open_at(&o, MILKIT_SHARED "/models/", names[i]);
        struct reference_session *s = feed(&o, "batch64", &n);
        assert_true(compare_last(&o, s, "batch64"));
        reference_session_free(s);
        opened_close(&o);
    }
}

/* Tokens one by one, in pieces or all at once: the same bits, also in a session that was used before. */
static void test_pieces(void **state)
{
    (void)state;
    static const size_t pieces[] = {1, 7, 30};
    struct opened o;
    int64_t n;
    open_at(&o, MODELS, "qwen3_5_moe-random");
    struct reference_session *whole = feed(&o, "batch64", &n), *s;
    int32_t *ids = take(&o, "batch64.ids", &n);
    size_t bytes = (size_t)o.reference->vocab_size * sizeof(float);
    ASSERT_OK(reference_session_new(&s, o.reference, n, e));
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        for (size_t at = 0; at < (size_t)n; at += pieces[i]) {
            size_t part = (size_t)n - at < pieces[i] ? (size_t)n - at : pieces[i];
            ASSERT_OK(reference_feed(s, ids + at, part, NULL, NULL, e));
        }
        assert_memory_equal(reference_logits(s), reference_logits(whole), bytes);
        struct reference_state a, b;
        assert_true(reference_state(s, 4, REFERENCE_MEMORY, &a));
        assert_true(reference_state(whole, 4, REFERENCE_MEMORY, &b));
        assert_memory_equal(a.data, b.data, (size_t)(a.shape[0] * a.shape[1] * a.shape[2]) * sizeof(float));
        reference_session_reset(s);
        assert_true(reference_state(s, 0, REFERENCE_WINDOW, &a));
        for (int64_t k = 0; k < a.shape[0] * a.shape[1]; k++)
            assert_true(a.data[k] == 0);
    }
    free(ids);
    reference_session_free(whole);
    reference_session_free(s);
    opened_close(&o);
}

/* A checkpoint folder with an edited config.json; the weights stay where they are. */
static bool open_edited(const char *name, const char *edit, const char *scratch, struct err *e)
{
    char path[512], target[1024], *real;
    cJSON *config = NULL, *changes = NULL;
    struct reference *r = NULL;
    struct reference_options options = {.n_threads = 1};
    snprintf(path, sizeof path, MODELS "%s/config.json", name);
    ASSERT_OK(json_read_file(&config, path, 1 << 20, e));
    ASSERT_OK(json_parse(&changes, edit, strlen(edit), "edit", e));
    cJSON *text = cJSON_GetObjectItemCaseSensitive(config, "text_config");
    while (changes->child) {
        cJSON *item = cJSON_DetachItemViaPointer(changes, changes->child);
        cJSON *to = text && strcmp(item->string, "model_type") != 0 ? text : config;
        cJSON_DeleteItemFromObjectCaseSensitive(to, item->string);
        cJSON_AddItemToObject(to, item->string, item);
    }
    char *text_out = cJSON_Print(config);
    snprintf(path, sizeof path, "%s/config.json", scratch);
    ASSERT_OK(file_write(path, text_out, strlen(text_out), e));
    cJSON_free(text_out);
    cJSON_Delete(config);
    cJSON_Delete(changes);
    snprintf(path, sizeof path, MODELS "%s/model.safetensors", name);
    real = realpath(path, NULL);
    assert_non_null(real);
    snprintf(target, sizeof target, "%s/model.safetensors", scratch);
    unlink(target);
    assert_int_equal(symlink(real, target), 0);
    free(real);
    bool ok = reference_open(&r, scratch, &options, e);
    reference_close(r);
    return ok;
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *name, *edit;
        enum err_code code;
        const char *part; /* of the message; NULL: accepted */
    } cases[] = {
        {"qwen3_5-equal", "{}", ERR_FORMAT, NULL},
        {"qwen3_5-equal", "{\"layer_types\": null, \"full_attention_interval\": 4}", ERR_FORMAT, NULL},
        {"qwen3_5_moe-tiny", "{}", ERR_FORMAT, NULL},
        {"qwen3_5-equal", "{\"model_type\": \"qwen3_6\"}", ERR_UNSUPPORTED, "qwen3_6"},
        {"qwen3_5-equal", "{\"hidden_act\": \"gelu\"}", ERR_UNSUPPORTED, "gelu"},
        {"qwen3_5-equal", "{\"layer_types\": [\"linear_attention\"]}", ERR_FORMAT, "4 entries"},
        {"qwen3_5-equal",
         "{\"layer_types\": [\"linear_attention\", \"sliding_attention\", \"linear_attention\", "
         "\"full_attention\"]}",
         ERR_UNSUPPORTED, "sliding_attention"},
        {"qwen3_5-equal", "{\"linear_num_value_heads\": 4}", ERR_FORMAT, "multiple of linear_num_key_heads"},
        {"qwen3_5-equal", "{\"num_key_value_heads\": 3}", ERR_FORMAT, "multiple of num_key_value_heads"},
        {"qwen3_5-equal", "{\"linear_conv_kernel_dim\": 3}", ERR_FORMAT, "conv1d.weight"},
        {"qwen3_5-equal", "{\"rope_parameters\": {\"partial_rotary_factor\": 0.01}}", ERR_FORMAT,
         "partial_rotary_factor"},
        {"qwen3_5-equal", "{\"rms_norm_eps\": -1}", ERR_FORMAT, "rms_norm_eps"},
        {"qwen3_5_moe-tiny", "{\"num_experts_per_tok\": 17}", ERR_FORMAT,
         "num_experts_per_tok 17 is more than num_experts 16"},
        {"qwen3_5_moe-tiny", "{\"num_experts\": 15}", ERR_FORMAT, "mlp.gate.weight"},
        {"qwen3_5_moe-tiny", "{\"moe_intermediate_size\": 32}", ERR_FORMAT, "gate_up_proj"},
        {"qwen3_5_moe-random", "{\"num_experts\": 9}", ERR_FORMAT, "mlp.gate.weight"},
        {"qwen3_5_moe-random", "{\"moe_intermediate_size\": 31}", ERR_FORMAT, "experts.0.gate_proj"},
    };
    char scratch[] = "scratch-reference-XXXXXX";
    assert_non_null(mkdtemp(scratch));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct err e = {0};
        bool ok = open_edited(cases[i].name, cases[i].edit, scratch, &e);
        if (!cases[i].part) {
            if (!ok)
                fail_msg("%s: %s", cases[i].edit, e.msg);
            continue;
        }
        if (ok || e.code != cases[i].code || !strstr(e.msg, cases[i].part))
            fail_msg("%s: code %d, %s", cases[i].edit, (int)e.code, ok ? "accepted" : e.msg);
    }
    ASSERT_OK(path_remove_tree(scratch, e));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_states),
        cmocka_unit_test(test_more_checkpoints),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
