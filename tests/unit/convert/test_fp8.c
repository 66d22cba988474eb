/* FP8 checkpoints: the package is that of the numbers which the FP8 weights and their scales mean. */
#include "support.h"
#include "base/half.h"
#include "convert/convert.h"

enum { HIDDEN = 160, INTERMEDIATE = 200, VOCABULARY = 100, WIDTH = 64 };

static char scratch[64];

static int make_scratch(void **state)
{
    (void)state;
    snprintf(scratch, sizeof scratch, "test_fp8.XXXXXX");
    return mkdtemp(scratch) ? 0 : -1;
}

static int remove_scratch(void **state)
{
    (void)state;
    return path_remove_tree(scratch, NULL) ? 0 : -1;
}

static uint32_t next_number(void)
{
    static uint32_t state = 12345;
    state = state * 1664525u + 1013904223u;
    return state >> 8;
}

struct pair {
    struct st_writer *f8, *f32;
    struct arena *arena;
};

static void add_vector(struct pair *p, const char *name, int64_t n)
{
    float *v = ARENA_ARRAY(p->arena, float, n);
    for (int64_t i = 0; i < n; i++)
        v[i] = 1.0f + (float)(next_number() % 64) / 64.0f;
    st_writer_add(p->f8, name, ST_F32, &n, 1, v);
    st_writer_add(p->f32, name, ST_F32, &n, 1, v);
}

/* The FP8 form in one checkpoint, its numbers in the other; scales are powers of two, so that they fit in float32. */
static void add_matrix(struct pair *p, const char *name, int64_t rows, int64_t columns, bool is_f8)
{
    int64_t shape[2] = {rows, columns}, blocks[2] = {(rows + 127) / 128, (columns + 127) / 128};
    uint8_t *f8 = ARENA_ARRAY(p->arena, uint8_t, rows * columns);
    float *v = ARENA_ARRAY(p->arena, float, rows *columns),
          *scales = ARENA_ARRAY(p->arena, float, blocks[0] * blocks[1]);
    for (int64_t i = 0; i < blocks[0] * blocks[1]; i++)
        scales[i] = 1.0f / (float)(64 << next_number() % 4);
    for (int64_t i = 0; i < rows * columns; i++) {
        f8[i] = (uint8_t)(next_number() % 0x60 | (next_number() & 0x80));
        int exponent = f8[i] >> 3 & 15, mantissa = f8[i] & 7;
        float m = exponent ? (float)(8 + mantissa) : (float)mantissa;
        for (int k = exponent ? exponent : 1; k < 10; k++)
            m *= 0.5f;
        for (int k = 10; k < exponent; k++)
            m *= 2.0f;
        v[i] = (f8[i] & 0x80 ? -m : m) * scales[i / columns / 128 * blocks[1] + i % columns / 128];
    }
    st_writer_add(p->f32, name, ST_F32, shape, 2, v);
    if (is_f8) {
        st_writer_add(p->f8, name, ST_F8_E4M3, shape, 2, f8);
        st_writer_add(p->f8, arena_printf(p->arena, "%s_scale_inv", name), ST_F32, blocks, 2, scales);
    } else {
        st_writer_add(p->f8, name, ST_F32, shape, 2, v);
    }
}

static char *write_checkpoint(const char *name, struct st_writer *w, const char *quantization)
{
    char *folder = path_join(scratch, name), *path = path_join(folder, "config.json");
    char *config = xasprintf(
        "{\"model_type\": \"qwen3\", \"hidden_size\": %d, \"vocab_size\": %d, \"intermediate_size\": %d, "
        "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"num_key_value_heads\": 2, \"head_dim\": 32, "
        "\"tie_word_embeddings\": true%s}",
        HIDDEN, VOCABULARY, INTERMEDIATE, quantization);
    ASSERT_OK(folder_make(folder, e));
    ASSERT_OK(file_write(path, config, strlen(config), e));
    free(config);
    free(path);
    path = path_join(folder, "model.safetensors");
    ASSERT_OK(st_writer_write(w, path, e));
    free(path);
    return folder;
}

static void fill(struct pair *p)
{
    static const struct {
        const char *name;
        int64_t rows, columns;
    } matrices[] = {{"self_attn.q_proj", WIDTH, HIDDEN},     {"self_attn.k_proj", WIDTH, HIDDEN},
                    {"self_attn.v_proj", WIDTH, HIDDEN},     {"self_attn.o_proj", HIDDEN, WIDTH},
                    {"mlp.gate_proj", INTERMEDIATE, HIDDEN}, {"mlp.up_proj", INTERMEDIATE, HIDDEN},
                    {"mlp.down_proj", HIDDEN, INTERMEDIATE}};
    p->arena = arena_new(0);
    p->f8 = st_writer_new();
    p->f32 = st_writer_new();
    add_matrix(p, "model.embed_tokens.weight", VOCABULARY, HIDDEN, false);
    add_vector(p, "model.norm.weight", HIDDEN);
    add_vector(p, "model.layers.0.input_layernorm.weight", HIDDEN);
    add_vector(p, "model.layers.0.post_attention_layernorm.weight", HIDDEN);
    add_vector(p, "model.layers.0.self_attn.q_norm.weight", 32);
    add_vector(p, "model.layers.0.self_attn.k_norm.weight", 32);
    for (size_t i = 0; i < sizeof matrices / sizeof matrices[0]; i++)
        add_matrix(p, arena_printf(p->arena, "model.layers.0.%s.weight", matrices[i].name), matrices[i].rows,
                   matrices[i].columns, true);
}

static bool convert(const char *checkpoint, const char *name, struct err *e)
{
    char *output = path_join(scratch, name);
    struct convert_options o = {.checkpoint = checkpoint,
                                .output = output,
                                .format = CONVERT_MLMODELC,
                                .ffn = {.kind = QUANT_LUT, .bits = 4, .group = 8},
                                .settings = {.context_length = 64}};
    struct convert_report report;
    bool ok = convert_run(&o, &report, e);
    if (ok)
        assert_int_equal(report.n_tensors_left_out, 0);
    convert_report_fini(&report);
    free(output);
    return ok;
}

static void assert_same(const char *part)
{
    struct map_file *a = NULL, *b = NULL;
    char *p = xasprintf("%s/from_f8/%s", scratch, part), *q = xasprintf("%s/from_f32/%s", scratch, part);
    ASSERT_OK(map_open(&a, p, e));
    ASSERT_OK(map_open(&b, q, e));
    assert_int_equal(a->bytes, b->bytes);
    assert_memory_equal(a->data, b->data, a->bytes);
    map_close(a);
    map_close(b);
    free(p);
    free(q);
}

static void test_fp8(void **state)
{
    (void)state;
    static const char fp8[] = ", \"quantization_config\": {\"quant_method\": \"fp8\", \"fmt\": \"e4m3\", "
                              "\"activation_scheme\": \"dynamic\", \"weight_block_size\": [128, 128]}";
    struct pair p;
    fill(&p);
    char *f8 = write_checkpoint("f8", p.f8, fp8), *f32 = write_checkpoint("f32", p.f32, "");
    ASSERT_OK(convert(f8, "from_f8", e));
    ASSERT_OK(convert(f32, "from_f32", e));
    assert_same("qwen_FFN_PF_lut4_chunk_01of01.mlmodelc/weights/weight.bin");
    assert_same("qwen_FFN_PF_lut4_chunk_01of01.mlmodelc/model.mil");
    assert_same("qwen_lm_head.mlmodelc/weights/weight.bin");
    free(f8);
    free(f32);
    static const char *const others[] = {
        ", \"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": [64, 128]}",
        ", \"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": [128, \"x\"]}",
        ", \"quantization_config\": {\"quant_method\": \"gptq\", \"weight_block_size\": [128, 128]}",
    };
    for (int i = 0; i < 3; i++) {
        struct err e = {0};
        f8 = write_checkpoint("other", p.f8, others[i]);
        assert_false(convert(f8, "refused", &e));
        assert_int_equal(e.code, ERR_UNSUPPORTED);
        free(f8);
    }
    st_writer_free(p.f8);
    st_writer_free(p.f32);
    arena_free(p.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fp8)};
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
