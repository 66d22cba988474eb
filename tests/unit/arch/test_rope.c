/* RoPE: both spellings of the settings and their precedence, YaRN, the tables. */
#include "support.h"
#include <math.h>
#include "arch/family.h"

static bool read_rope(const char *text, int64_t head_dim, struct arena *arena, struct arch_rope *r,
                      struct err *e)
{
    cJSON *config = NULL;
    if (!json_parse(&config, text, strlen(text), "config", e))
        return false;
    struct arch_model m = {.family = &arch_qwen3, .arena = arena, .checkpoint = "x"};
    bool ok = config_set(&m.config, config, "x/config.json", e) &&
              arch_read_rope(&m, head_dim, &(struct config_rope_keys){0}, r, e);
    cJSON_Delete(config);
    return ok;
}

static void test_precedence(void **state)
{
    (void)state;
    /* The second pair of 4 dimensions has the frequency theta^-0.5. */
    static const struct {
        const char *config;
        double theta;
    } cases[] = {
        {"{}", 1e4},
        {"{\"rope_theta\": 1000000}", 1e6},
        {"{\"rope_theta\": 1000000, \"rope_scaling\": null}", 1e6},
        {"{\"rope_parameters\": {\"rope_theta\": 250000, \"rope_type\": \"default\"}}", 2.5e5},
        {"{\"rope_theta\": 100, \"rope_parameters\": {\"rope_theta\": 250000}}", 2.5e5},
        {"{\"rope_theta\": 100, \"rope_parameters\": {\"rope_type\": \"default\"}}", 100},
        {"{\"rope_scaling\": {\"rope_theta\": 400, \"type\": \"default\"}, \"rope_parameters\": "
         "{\"rope_theta\": 9, "
         "\"rope_type\": \"dynamic\"}}",
         400},
        {"{\"rope_scaling\": {}, \"rope_parameters\": {\"rope_theta\": 900}}", 900},
    };
    struct arena *arena = arena_new(0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct arch_rope r;
        ASSERT_OK(read_rope(cases[i].config, 4, arena, &r, e));
        assert_int_equal(r.n_pairs, 2);
        assert_true(r.inverse_frequency[0] == 1.0f && r.attention_factor == 1.0);
        assert_true(fabs(r.inverse_frequency[1] * sqrt(cases[i].theta) - 1.0) < 1e-6);
    }
    struct err e = {0};
    struct arch_rope r;
    /* rope_type wins over its old name */
    assert_false(
        read_rope("{\"rope_scaling\": {\"type\": \"yarn\", \"rope_type\": \"spiral\"}}", 4, arena, &r, &e));
    assert_int_equal(e.code, ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "spiral"));
    arena_free(arena);
}

/* Numbers of the reference library's own YaRN function (5.24, float32 steps). */
static void test_yarn(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        int64_t head_dim;
        double factor;
        struct {
            int i;
            float frequency;
        } pairs[7];
        f16 cos_1000[4]; /* row 1000: pairs 0, 1, half, last */
    } cases[] = {
        {"{\"rope_theta\": 1000000, \"max_position_embeddings\": 32768, \"rope_scaling\": {\"rope_type\": "
         "\"yarn\", "
         "\"factor\": 4.0, \"original_max_position_embeddings\": 32768}}",
         128,
         1.138629436111989,
         {{0, 0x1p+0f},
          {1, 0x1.9c975ap-1f},
          {16, 0x1.030dc6p-5f},
          {21, 0x1.6020a4p-7f},
          {32, 0x1.3c1d64p-11f},
          {62, 0x1.9d5ef2p-22f},
          {63, 0x1.4d1c98p-22f}},
         {0x391f, 0xa6e9, 0x3b81, 0x3c8e}},
        {"{\"rope_theta\": 10000, \"max_position_embeddings\": 8192, \"rope_scaling\": {\"type\": \"yarn\", "
         "\"factor\": 8, \"original_max_position_embeddings\": 1024, \"mscale\": 0.707, \"mscale_all_dim\": "
         "1.0, "
         "\"beta_fast\": 16, \"beta_slow\": 2}}",
         64,
         0.9495608824621653,
         {{0, 0x1p+0f},
          {1, 0x1.7ff222p-1f},
          {8, 0x1.99999ap-4f},
          {10, 0x1.67e6p-5f},
          {16, 0x1.47ae14p-10f},
          {30, 0x1.74eea6p-16f},
          {31, 0x1.17a8e4p-16f}},
         {0x3846, 0xb871, 0x34ca, 0x3b98}},
        {"{\"max_position_embeddings\": 4096, \"rope_parameters\": {\"rope_theta\": 1000000, \"rope_type\": "
         "\"yarn\", "
         "\"factor\": 2.5, \"attention_factor\": 1.25, \"truncate\": false, \"beta_fast\": 0}}",
         32,
         1.25,
         {{0, 0x1p+0f},
          {1, 0x1.afd136p-2f},
          {4, 0x1.deaa74p-6f},
          {5, 0x1.5261e8p-7f},
          {8, 0x1.a36e2ep-12f},
          {14, 0x1.2de79ap-19f},
          {15, 0x1.fd3fa6p-21f}},
         {0x39a0, 0x3b7f, 0x3c9b, 0x3d00}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct arena *arena = arena_new(0);
        struct arch_rope r;
        ASSERT_OK(read_rope(cases[i].config, cases[i].head_dim, arena, &r, e));
        assert_true(fabs(r.attention_factor - cases[i].factor) < 1e-12);
        for (int k = 0; k < 7; k++) {
            float expected = cases[i].pairs[k].frequency, got = r.inverse_frequency[cases[i].pairs[k].i];
            /* pow differs between libraries by an ulp of float32 */
            if (fabsf(got / expected - 1.0f) > 2.5e-7f)
                fail_msg("case %zu pair %d: expected %a, found %a", i, cases[i].pairs[k].i, (double)expected,
                         (double)got);
        }
        struct mil_model *m = mil_model_new(9);
        const struct mil_value *cosines = arch_rope_table(m, &r, false, 1024);
        const int64_t pairs[] = {0, 1, r.n_pairs / 2, r.n_pairs - 1};
        for (int k = 0; k < 4; k++) {
            f16 got;
            ASSERT_OK(cosines->weight->produce(cosines->weight, 1000 * r.n_pairs + pairs[k], 1, &got, e));
            assert_true(fabsf(f16_to_f32(got) - f16_to_f32(cases[i].cos_1000[k])) < 1e-3f);
        }
        mil_model_close(m);
        arena_free(arena);
    }
}

/* Types of one factor, and of one for each pair: 4 dimensions, theta 10000, frequencies 1 and 0.01. */
static void test_types(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        double first, second, attention;
    } cases[] = {
        {"{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 4}}", 0.25, 0.0025, 1},
        {"{\"max_position_embeddings\": 4096, \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 4}}", 1,
         0.01, 1},
        {"{\"max_position_embeddings\": 8192, \"original_max_position_embeddings\": 2048, \"rope_scaling\": "
         "{\"type\": \"longrope\", \"short_factor\": [1, 2], \"long_factor\": [3, 4]}}",
         1, 0.005, 1.0871146},
        {"{\"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [2, 8], \"long_factor\": [3, 4], "
         "\"factor\": 1, \"original_max_position_embeddings\": 2048}}",
         0.5, 0.00125, 1},
        {"{\"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [2, 8], \"long_factor\": [3, 4], "
         "\"attention_factor\": 1.5, \"original_max_position_embeddings\": 2048}}",
         0.5, 0.00125, 1.5},
        /* waves of 6.3 and 628 positions: kept, and blended */
        {"{\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, "
         "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 1256.6370614}}",
         1, (1 - 1 / 3.0) * 0.01 / 8 + 0.01 / 3, 1},
        {"{\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, "
         "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 600}}",
         1, 0.01 / 8, 1},
    };
    struct arena *arena = arena_new(0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct arch_rope r;
        ASSERT_OK(read_rope(cases[i].config, 4, arena, &r, e));
        if (fabs((double)r.inverse_frequency[0] / cases[i].first - 1) > 1e-6 ||
            fabs((double)r.inverse_frequency[1] / cases[i].second - 1) > 1e-6 ||
            fabs(r.attention_factor - cases[i].attention) > 1e-6)
            fail_msg("%s: %.9g, %.9g, %.9g", cases[i].config, (double)r.inverse_frequency[0],
                     (double)r.inverse_frequency[1], r.attention_factor);
    }
    arena_free(arena);
}

/* Slices give what the whole gives; sin is sin. */
static void test_tables(void **state)
{
    (void)state;
    struct arena *arena = arena_new(0);
    struct arch_rope r;
    ASSERT_OK(read_rope("{\"rope_theta\": 10000}", 8, arena, &r, e));
    struct mil_model *m = mil_model_new(9);
    const struct mil_value *sines = arch_rope_table(m, &r, true, 50),
                           *cosines = arch_rope_table(m, &r, false, 50);
    f16 whole[200], part[200], cos_whole[200];
    ASSERT_OK(sines->weight->produce(sines->weight, 0, 200, whole, e));
    ASSERT_OK(cosines->weight->produce(cosines->weight, 0, 200, cos_whole, e));
    for (int i = 0; i < 200; i += 7)
        ASSERT_OK(sines->weight->produce(sines->weight, i, i + 7 < 200 ? 7 : 200 - i, part + i, e));
    assert_memory_equal(whole, part, sizeof whole);
    for (int i = 0; i < 200; i++) {
        double angle = (i / 4) * pow(10000, -2.0 * (i % 4) / 8);
        assert_true(fabs((double)f16_to_f32(whole[i]) - sin(angle)) < 6e-4);
        assert_true(fabs((double)f16_to_f32(cos_whole[i]) - cos(angle)) < 6e-4);
        /* The float32 angle, and one rounding behind it. */
        double exact = (double)((float)(i / 4) * r.inverse_frequency[i % 4]);
        assert_int_equal(whole[i], f64_to_f16(sin(exact)));
        assert_int_equal(cos_whole[i], f64_to_f16(cos(exact)));
    }
    mil_model_close(m);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_precedence),
        cmocka_unit_test(test_yarn),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
