// links: convert reference
/* FP8 checkpoints: the package is that of the numbers which the FP8 weights and their scales mean, and so is the
 * reference. */
#include "support.h"
#include "base/half.h"
#include "convert/convert.h"
#include "reference/reference.h"

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

/* Of E4M3, by the words of the format. */
static float f8_number(uint8_t f8)
{
    int exponent = f8 >> 3 & 15, mantissa = f8 & 7;
    float m = exponent ? (float)(8 + mantissa) : (float)mantissa;
    for (int k = exponent ? exponent : 1; k < 10; k++)
        m *= 0.5f;
    for (int k = 10; k < exponent; k++)
        m *= 2.0f;
    return f8 & 0x80 ? -m : m;
}

static uint8_t next_f8(void)
{
    uint32_t number = next_number() % 0x60;
    return (uint8_t)(number | (next_number() & 0x80));
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
        f8[i] = next_f8();
        v[i] = f8_number(f8[i]) * scales[i / columns / 128 * blocks[1] + i % columns / 128];
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
    ASSERT_OK(st_writer_write(w, path, true, e));
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

/* ---- experts in one tensor ---- */

#define EXPERTS_MODEL MILKIT_TEST_DATA "/models/qwen3_5_moe-tiny"

/* Scales [n[0], n[1], n[2]] of a tensor [matrices, rows, columns], stored with this rank. */
struct scaling {
    const char *name, *config;
    int rank;
    bool per_matrix, per_row, per_block;
};

/* A packed tensor in both forms; scales are powers of two. */
static void add_packed(struct pair *p, const struct st_tensor *t, const struct scaling *s)
{
    int64_t rows = t->shape[1], columns = t->shape[2];
    int64_t n[3] = {s->per_matrix ? t->shape[0] : 1,
                    s->per_row     ? rows
                    : s->per_block ? (rows + 127) / 128
                                   : 1,
                    s->per_block ? (columns + 127) / 128 : 1};
    int64_t block[3] = {s->per_matrix ? 1 : t->shape[0],
                        s->per_row     ? 1
                        : s->per_block ? 128
                                       : rows,
                        s->per_block ? 128 : columns};
    uint8_t *f8 = ARENA_ARRAY(p->arena, uint8_t, t->n_elems);
    float *v = ARENA_ARRAY(p->arena, float, t->n_elems),
          *scales = ARENA_ARRAY(p->arena, float, n[0] * n[1] * n[2]);
    for (int64_t i = 0; i < n[0] * n[1] * n[2]; i++)
        scales[i] = 1.0f / (float)(64 << next_number() % 4);
    for (int64_t i = 0; i < t->n_elems; i++) {
        int64_t matrix = i / columns / rows / block[0], row = i / columns % rows / block[1],
                column = i % columns / block[2];
        f8[i] = next_f8();
        v[i] = f8_number(f8[i]) * scales[(matrix * n[1] + row) * n[2] + column];
    }
    st_writer_add(p->f32, t->name, ST_F32, t->shape, 3, v);
    st_writer_add(p->f8, t->name, ST_F8_E4M3, t->shape, 3, f8);
    st_writer_add(p->f8, arena_printf(p->arena, "%s_scale_inv", t->name), ST_F32, n, s->rank, scales);
}

static char *write_experts(const char *name, struct st_writer *w, const char *quantization)
{
    char *folder = path_join(scratch, name), *path = path_join(folder, "config.json"), *text = NULL;
    size_t n;
    ASSERT_OK(folder_make(folder, e));
    ASSERT_OK(file_read(&text, &n, EXPERTS_MODEL "/config.json", 1 << 20, e));
    char *config = xasprintf("%.*s%s}", (int)(strrchr(text, '}') - text), text, quantization);
    ASSERT_OK(file_write(path, config, strlen(config), e));
    free(path);
    path = path_join(folder, "model.safetensors");
    ASSERT_OK(st_writer_write(w, path, true, e));
    free(path);
    free(text);
    free(config);
    return folder;
}

static void reference_logits_of(const char *checkpoint, float logits[4096], int64_t *n)
{
    static const int32_t ids[] = {3, 17, 90, 5, 44};
    struct reference *r = NULL;
    struct reference_session *s = NULL;
    struct reference_options o = {.n_threads = 2};
    ASSERT_OK(reference_open(&r, checkpoint, &o, e));
    ASSERT_OK(reference_session_new(&s, r, 5, e));
    ASSERT_OK(reference_feed(s, ids, 5, NULL, NULL, e));
    *n = r->vocab_size < 4096 ? r->vocab_size : 4096;
    memcpy(logits, reference_logits(s), (size_t)*n * sizeof logits[0]);
    reference_session_free(s);
    reference_close(r);
}

static void check_experts(const struct scaling *scaling)
{
    struct pair p = {.f8 = st_writer_new(), .f32 = st_writer_new(), .arena = arena_new(0)};
    struct safetensors *s = NULL;
    static float expected[4096], found[4096];
    int64_t n_expected, n_found;
    ASSERT_OK(safetensors_open(&s, EXPERTS_MODEL, e));
    for (int i = 0; i < s->n_tensors; i++) {
        const struct st_tensor *t = &s->tensors[i];
        if (strstr(t->name, "mtp.") || strstr(t->name, "visual."))
            continue;
        if (strstr(t->name, "mlp.experts.")) {
            add_packed(&p, t, scaling);
            continue;
        }
        st_writer_add(p.f8, t->name, t->dtype, t->shape, t->rank, t->data);
        st_writer_add(p.f32, t->name, t->dtype, t->shape, t->rank, t->data);
    }
    char *f8 = write_experts("f8_experts", p.f8, scaling->config),
         *f32 = write_experts("f32_experts", p.f32, "");
    char *packages[2] = {path_join(scratch, "from_f8"), path_join(scratch, "from_f32")};
    for (int i = 0; i < 2; i++)
        ASSERT_OK(path_remove_tree(packages[i], e));
    ASSERT_OK(convert(f8, "from_f8", e));
    ASSERT_OK(convert(f32, "from_f32", e));
    assert_same("qwen35_FFN_PF_lut4_chunk_01of01.mlmodelc/weights/weight.bin");
    reference_logits_of(f8, found, &n_found);
    reference_logits_of(f32, expected, &n_expected);
    assert_int_equal(n_found, n_expected);
    assert_memory_equal(found, expected, (size_t)n_found * sizeof found[0]);
    for (int i = 0; i < 2; i++)
        free(packages[i]);
    free(f8);
    free(f32);
    safetensors_close(s);
    st_writer_free(p.f8);
    st_writer_free(p.f32);
    arena_free(p.arena);
}

static void test_packed_experts(void **state)
{
    (void)state;
    static const char
        blocks[] =
            ", \"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128]}",
        none[] = ", \"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": null}";
    static const struct scaling cases[] = {
        {"a block", blocks, 3, true, false, true},        {"an expert", none, 3, true, false, false},
        {"an expert, flat", none, 1, true, false, false}, {"a row", none, 3, true, true, false},
        {"a tensor", none, 0, false, false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        print_message("a scale for %s\n", cases[i].name);
        check_experts(&cases[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fp8), cmocka_unit_test(test_packed_experts)};
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
