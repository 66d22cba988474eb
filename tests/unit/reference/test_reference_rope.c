/* The reference's rotary embedding: both spellings of the settings, YaRN, float32 angles. */
#include "support.h"
#include <math.h>
#include "reference/reference_internal.h"

static bool parse(const char *text, int64_t dim, struct arena *arena, struct reference_rope *out,
                  struct err *e)
{
    cJSON *config = NULL;
    if (!json_parse(&config, text, strlen(text), "config", e))
        return false;
    struct config c;
    bool ok = config_set(&c, config, "config", e) &&
              reference_rope_parse(&c, dim, &(struct config_rope_keys){0}, arena, out, e);
    cJSON_Delete(config);
    return ok;
}

static void test_spellings(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        double theta;
    } cases[] = {
        {"{}", 1e4},
        {"{\"rope_theta\": 5000000, \"rope_scaling\": null, \"rope_parameters\": null}", 5e6},
        {"{\"rope_parameters\": {\"rope_theta\": 1000000.0, \"rope_type\": \"default\"}}", 1e6},
        /* inside wins over beside */
        {"{\"rope_theta\": 7, \"rope_parameters\": {\"rope_theta\": 640000}}", 6.4e5},
        {"{\"rope_theta\": 640000, \"rope_parameters\": {\"partial_rotary_factor\": 1.0}}", 6.4e5},
        /* rope_scaling wins as a whole, unless it is empty */
        {"{\"rope_theta\": 900, \"rope_scaling\": {\"type\": \"default\"}, \"rope_parameters\": "
         "{\"rope_theta\": 7}}",
         900},
        {"{\"rope_scaling\": {}, \"rope_parameters\": {\"rope_theta\": 900}}", 900},
    };
    struct arena *arena = arena_new(0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct reference_rope r = {0};
        ASSERT_OK(parse(cases[i].config, 6, arena, &r, e));
        assert_int_equal(r.n_pairs, 3);
        assert_true(r.attention_factor == 1.0f && r.inverse_frequency[0] == 1.0f);
        for (int k = 1; k < 3; k++)
            assert_true(fabs((double)r.inverse_frequency[k] * pow(cases[i].theta, k / 3.0) - 1) < 1e-6);
    }
    arena_free(arena);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        enum err_code code;
        const char *text;
    } cases[] = {
        {"{\"rope_theta\": 0}", ERR_FORMAT, "rope_theta"},
        {"{\"rope_theta\": \"many\"}", ERR_FORMAT, "rope_theta"},
        {"{\"rope_scaling\": 2}", ERR_FORMAT, "rope_scaling"},
        {"{\"rope_parameters\": []}", ERR_FORMAT, "rope_parameters"},
        {"{\"partial_rotary_factor\": 0.5}", ERR_UNSUPPORTED, "partial_rotary_factor"},
        {"{\"rope_scaling\": {\"type\": \"spiral\", \"factor\": 2}}", ERR_UNSUPPORTED, "spiral"},
        {"{\"rope_scaling\": {\"type\": \"default\", \"rope_type\": \"llama3\"}}", ERR_FORMAT, "llama3"},
        {"{\"rope_scaling\": {\"type\": \"yarn\"}}", ERR_FORMAT, "factor"},
        {"{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": -1}}", ERR_FORMAT, "factor"},
        {"{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2}, \"rope_theta\": 1}", ERR_FORMAT,
         "rope_theta"},
        {"{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2, \"original_max_position_embeddings\": 0}}",
         ERR_FORMAT, "original_max_position_embeddings"},
    };
    struct arena *arena = arena_new(0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct reference_rope r;
        struct err e = {0};
        assert_false(parse(cases[i].config, 8, arena, &r, &e));
        if (e.code != cases[i].code || !strstr(e.msg, cases[i].text))
            fail_msg("%s: %s", cases[i].config, e.msg);
    }
    arena_free(arena);
}

/* Numbers of the published YaRN function, in float32 steps. */
static void test_yarn(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        int64_t dim;
        double attention_factor;
        struct {
            int pair;
            float frequency;
        } pairs[6];
    } cases[] = {
        {"{\"rope_theta\": 1000000, \"max_position_embeddings\": 32768, \"rope_scaling\": {\"rope_type\": "
         "\"yarn\", \"factor\": 4.0, \"original_max_position_embeddings\": 32768}}",
         128,
         1.138629436111989,
         {{1, 0x1.9c975ap-1f},
          {16, 0x1.030dc6p-5f},
          {21, 0x1.6020a4p-7f},
          {32, 0x1.3c1d64p-11f},
          {62, 0x1.9d5ef2p-22f},
          {63, 0x1.4d1c98p-22f}}},
        {"{\"rope_theta\": 10000, \"max_position_embeddings\": 8192, \"rope_scaling\": {\"type\": \"yarn\", "
         "\"factor\": 8, \"original_max_position_embeddings\": 1024, \"mscale\": 0.707, \"mscale_all_dim\": "
         "1.0, \"beta_fast\": 16, \"beta_slow\": 2}}",
         64,
         0.9495608824621653,
         {{1, 0x1.7ff222p-1f},
          {8, 0x1.99999ap-4f},
          {10, 0x1.67e6p-5f},
          {16, 0x1.47ae14p-10f},
          {30, 0x1.74eea6p-16f},
          {31, 0x1.17a8e4p-16f}}},
        {"{\"max_position_embeddings\": 4096, \"rope_parameters\": {\"rope_theta\": 1000000, \"rope_type\": "
         "\"yarn\", \"factor\": 2.5, \"attention_factor\": 1.25, \"truncate\": false, \"beta_fast\": 0}}",
         32,
         1.25,
         {{1, 0x1.afd136p-2f},
          {4, 0x1.deaa74p-6f},
          {5, 0x1.5261e8p-7f},
          {8, 0x1.a36e2ep-12f},
          {14, 0x1.2de79ap-19f},
          {15, 0x1.fd3fa6p-21f}}},
    };
    struct arena *arena = arena_new(0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct reference_rope r = {0};
        ASSERT_OK(parse(cases[i].config, cases[i].dim, arena, &r, e));
        assert_true(fabs((double)r.attention_factor - cases[i].attention_factor) < 1e-7);
        for (int k = 0; k < 6; k++)
            /* the power function differs between libraries in the last bit */
            assert_true(fabsf(r.inverse_frequency[cases[i].pairs[k].pair] / cases[i].pairs[k].frequency -
                              1.0f) < 2.5e-7f);
    }
    /* A null factor is the ratio of the lengths. */
    struct reference_rope a = {0}, b = {0};
    ASSERT_OK(parse("{\"max_position_embeddings\": 4096, \"original_max_position_embeddings\": 1024, "
                    "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": null}}",
                    16, arena, &a, e));
    ASSERT_OK(
        parse("{\"max_position_embeddings\": 4096, \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, "
              "\"original_max_position_embeddings\": 1024}}",
              16, arena, &b, e));
    assert_memory_equal(a.inverse_frequency, b.inverse_frequency, 8 * sizeof(float));
    assert_true(a.attention_factor == b.attention_factor && a.attention_factor > 1.0f);
    arena_free(arena);
}

/* The angle is the float32 product, not the exact one; pairs lie half a head apart. */
static void test_turn(void **state)
{
    (void)state;
    float frequencies[2] = {1.0f, 0.01f}, cosines[2], sines[2], x[4] = {1, 2, 3, 4};
    struct reference_rope r = {.n_pairs = 2, .inverse_frequency = frequencies, .attention_factor = 2.0f};
    reference_rope_row(&r, 123457, cosines, sines);
    float angle = 123457.0f * 0.01f;
    assert_true((double)angle != 123457.0 * (double)0.01f);
    assert_true(fabsf(cosines[1] - 2 * (float)cos((double)angle)) < 1e-6f);
    assert_true(fabsf(sines[1] - 2 * (float)sin((double)angle)) < 1e-6f);
    reference_rope_turn(x, 2, (float[2]){0, 1}, (float[2]){1, 0});
    assert_true(x[0] == -3 && x[2] == 1 && x[1] == 2 && x[3] == 4);
}

/* Types of one factor, and of one for each pair: 4 dimensions, theta 10000, frequencies 1 and 0.01. */
static void test_types(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        double first, second, attention;
        int64_t limit;
    } cases[] = {
        {"{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 4}}", 0.25, 0.0025, 1, 0},
        {"{\"max_position_embeddings\": 99, \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 4}}", 1,
         0.01, 1, 99},
        {"{\"max_position_embeddings\": 8192, \"original_max_position_embeddings\": 2048, \"rope_scaling\": "
         "{\"type\": \"longrope\", \"short_factor\": [1, 2], \"long_factor\": [3, 4]}}",
         1, 0.005, 1.0871146, 2048},
        {"{\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, "
         "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 1256.6370614}}",
         1, (1 - 1 / 3.0) * 0.01 / 8 + 0.01 / 3, 1, 0},
        {"{\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, "
         "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 600}}",
         1, 0.01 / 8, 1, 0},
    };
    struct arena *arena = arena_new(0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct reference_rope r = {0};
        ASSERT_OK(parse(cases[i].config, 4, arena, &r, e));
        if (fabs((double)r.inverse_frequency[0] / cases[i].first - 1) > 1e-6 ||
            fabs((double)r.inverse_frequency[1] / cases[i].second - 1) > 1e-6 ||
            fabs((double)r.attention_factor - cases[i].attention) > 1e-6 ||
            r.positions_limit != cases[i].limit)
            fail_msg("%s: %.9g, %.9g, %.9g", cases[i].config, (double)r.inverse_frequency[0],
                     (double)r.inverse_frequency[1], (double)r.attention_factor);
    }
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spellings), cmocka_unit_test(test_types), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_yarn),      cmocka_unit_test(test_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
