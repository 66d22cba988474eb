/* The description: every kind of feature, what is unknown to milkit, and which block of a function is read.
 */
#include "support.h"

#include "mil/protobuf.h"
#include "model_compare.h"
#include "wire.h"

static const int64_t shape[3] = {1, 64, 0};
static const struct mil_range ranges[3] = {{1, 128}, {0, -1}, {3, 3}};
static const int64_t small_shape[1] = {5};
static const int64_t *const enumerated[2] = {shape, small_shape};
static const int enumerated_ranks[2] = {3, 1};

static struct mil_feature array(const char *name, enum mil_dtype d)
{
    return (struct mil_feature){.name = name,
                                .short_description = "",
                                .kind = MIL_FEATURE_ARRAY,
                                .dtype = d,
                                .rank = 3,
                                .shape = shape};
}

static struct mil_model *described(bool has_functions)
{
    struct mil_model *m = mil_model_new(9);
    struct mil_feature *f = ARENA_ARRAY(m->arena, struct mil_feature, 16);
    struct mil_text_pair *pairs = ARENA_ARRAY(m->arena, struct mil_text_pair, 2);
    struct mil_function_description *g = ARENA_ARRAY(m->arena, struct mil_function_description, 2);

    f[0] = array("plain", MIL_FP16);
    f[1] = array("ranged", MIL_FP32);
    f[1].n_ranges = 3;
    f[1].ranges = ranges;
    f[2] = array("enumerated", MIL_INT32);
    f[2].n_enumerated = 2;
    f[2].enumerated = enumerated;
    f[2].enumerated_ranks = enumerated_ranks;
    f[2].is_optional = true;
    f[3] = array("double", MIL_FP64);
    f[4] = array("byte", MIL_INT8);
    f[4].short_description = "what it is";
    f[5] = (struct mil_feature){.name = "label", .kind = MIL_FEATURE_STRING};
    f[6] = (struct mil_feature){.name = "count", .kind = MIL_FEATURE_INT64};
    f[7] = (struct mil_feature){.name = "share", .kind = MIL_FEATURE_DOUBLE};
    f[8] = (struct mil_feature){.name = "by text", .kind = MIL_FEATURE_DICT};
    f[9] = (struct mil_feature){.name = "by number", .kind = MIL_FEATURE_DICT, .dict_key_is_int64 = true};
    f[10] = array("cache", MIL_FP16);
    f[10].kind = MIL_FEATURE_STATE;
    g[0] = (struct mil_function_description){.name = has_functions ? "first" : NULL,
                                             .n_inputs = 5,
                                             .inputs = f,
                                             .n_outputs = 5,
                                             .outputs = f + 5,
                                             .n_states = 1,
                                             .states = f + 10,
                                             .predicted_feature_name = "label",
                                             .predicted_probabilities_name = "by text"};
    g[1] = (struct mil_function_description){.name = "second", .n_inputs = 1, .inputs = f + 1};
    pairs[0] = (struct mil_text_pair){"a", ""};
    pairs[1] = (struct mil_text_pair){"key", "\xc3\xa4 value"};
    m->description = (struct mil_description){.has_functions = has_functions,
                                              .n_functions = has_functions ? 2 : 1,
                                              .functions = g,
                                              .default_function_name = has_functions ? "second" : NULL,
                                              .short_description = "short",
                                              .version = "1",
                                              .author = "",
                                              .license = "none",
                                              .n_user_defined = 2,
                                              .user_defined = pairs};
    return m;
}

static void test_features(void **state)
{
    (void)state;
    for (int has_functions = 0; has_functions < 2; has_functions++) {
        struct mil_model *m = described(has_functions), *again = mil_model_new(9);
        struct buf b, second;
        buf_init(&b, 1 << 20);
        buf_init(&second, 1 << 20);
        ASSERT_OK(mil_description_write(m, &b, e));
        ASSERT_OK(mil_description_read(again, (const uint8_t *)b.p, b.n, "description", e));
        assert_true(description_equal(&m->description, &again->description));
        assert_int_equal(again->description.n_bytes, b.n);
        assert_memory_equal(again->description.bytes, b.p, b.n);
        ASSERT_OK(mil_description_write(again, &second, e));
        assert_memory_equal(second.p, b.p, b.n);
        buf_fini(&b);
        buf_fini(&second);
        mil_model_close(m);
        mil_model_close(again);
    }
}

/* Fields that no schema of ours has come back, behind the known ones, which are put in order; nested ones
 * too. */
static void test_unknown_fields(void **state)
{
    (void)state;
    struct buf in, expected, metadata;
    struct mil_model *m = mil_model_new(9);
    buf_init(&in, 1000);
    buf_init(&expected, 1000);
    buf_init(&metadata, 1000);
    put_text(&metadata, 77, "inside");
    put_bytes(&in, 100, metadata.p, metadata.n);
    put_number(&in, 99, 12345);
    put_text(&in, 11, "label");
    put_text(&in, 7000, "future");
    ASSERT_OK(mil_description_read(m, (const uint8_t *)in.p, in.n, "description", e));
    put_text(&expected, 11, "label");
    put_bytes(&expected, 100, metadata.p, metadata.n);
    put_number(&expected, 99, 12345);
    put_text(&expected, 7000, "future");
    assert_int_equal(m->description.n_bytes, expected.n);
    assert_memory_equal(m->description.bytes, expected.p, expected.n);
    assert_string_equal(m->description.functions[0].predicted_feature_name, "label");
    buf_fini(&in);
    buf_fini(&expected);
    buf_fini(&metadata);
    mil_model_close(m);
}

static void test_metadata_always(void **state)
{
    (void)state;
    struct mil_model *m = mil_model_new(9);
    ASSERT_OK(mil_description_read(m, (const uint8_t *)"", 0, "description", e));
    assert_int_equal(m->description.n_bytes, 3);
    assert_memory_equal(m->description.bytes, "\xa2\x06\x00", 3);
    mil_model_close(m);
}

static void refused(const struct buf *b, const char *says)
{
    struct err e = {0};
    struct mil_model *m = mil_model_new(9);
    assert_false(mil_description_read(m, (const uint8_t *)b->p, b->n, "x.bin", &e));
    if (!strstr(e.msg, says) || !strstr(e.msg, "x.bin"))
        fail_msg("\"%s\", expected \"%s\"", e.msg, says);
    mil_model_close(m);
}

/* An input "in" whose type is the array message in *b. */
static void put_input(struct buf *b)
{
    wrap(b, 5);
    wrap(b, 3);
    put_text(b, 1, "in");
    wrap(b, 1);
}

static void test_impossible(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 1000);
    put_number(&b, 2, 1);
    put_input(&b);
    refused(&b, "\"in\": unknown array element type 1");
    buf_clear(&b);
    put_number(&b, 2, 65568);
    for (int i = 0; i < 9; i++)
        put_number(&b, 1, 1);
    put_input(&b);
    refused(&b, "a shape of rank 9");
    buf_clear(&b);
    put_number(&b, 2, 65568);
    put_number(&b, 1, UINT64_MAX);
    put_input(&b);
    refused(&b, "impossible dimension -1");
    buf_clear(&b);
    put_number(&b, 1, 5); /* lower, upper */
    put_number(&b, 2, 4);
    wrap(&b, 1);
    wrap(&b, 31);
    put_number(&b, 2, 65568);
    put_input(&b);
    refused(&b, "impossible range 5 to 4");
    buf_clear(&b);
    put_bytes(&b, 1, "", 0);
    put_bytes(&b, 20, "", 0);
    refused(&b, "both a function table and features");
    buf_fini(&b);
}

/* A function of two blocks, for CoreML7 (one op) and CoreML8 (two). */
static void put_two_blocks(struct buf *b, const char *opset)
{
    static const char *const opsets[2] = {"CoreML7", "CoreML8"};
    struct buf function, block;
    buf_init(&function, 1000);
    buf_init(&block, 1000);
    put_text(&function, 2, opset);
    for (int i = 0; i < 2; i++) {
        buf_clear(&block);
        for (int j = 0; j <= i; j++) {
            struct buf op;
            buf_init(&op, 100);
            put_text(&op, 1, "nothing");
            put_bytes(&block, 3, op.p, op.n);
            buf_fini(&op);
        }
        wrap(&block, 2);
        put_text(&block, 1, opsets[i]);
        put_bytes(&function, 3, block.p, block.n);
    }
    put_text(b, 1, "main");
    put_bytes(b, 2, function.p, function.n);
    wrap(b, 2);
    wrap(b, 502);
    buf_clear(&block);
    put_number(&block, 1, 9);
    put_bytes(&block, 2, "", 0);
    buf_append(&block, b->p, b->n);
    buf_clear(b);
    buf_append(b, block.p, block.n);
    buf_fini(&function);
    buf_fini(&block);
}

static void test_blocks_by_opset(void **state)
{
    (void)state;
    static const char *const opsets[2] = {"CoreML7", "CoreML8"};
    struct err e = {0};
    struct buf b;
    struct mil_model *m;
    buf_init(&b, 1000);
    for (int i = 0; i < 2; i++) {
        m = mil_model_new(9);
        buf_clear(&b);
        put_two_blocks(&b, opsets[i]);
        if (!mil_protobuf_read(m, (const uint8_t *)b.p, b.n, "x", &e))
            fail_msg("%s", e.msg);
        assert_string_equal(m->program->functions[0]->opset, opsets[i]);
        assert_int_equal(m->program->functions[0]->block->n_ops, i + 1);
        mil_model_close(m);
    }
    m = mil_model_new(9);
    buf_clear(&b);
    put_two_blocks(&b, "CoreML6");
    assert_false(mil_protobuf_read(m, (const uint8_t *)b.p, b.n, "x", &e));
    assert_non_null(strstr(e.msg, "no block for opset \"CoreML6\" among 2"));
    mil_model_close(m);
    buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_features),        cmocka_unit_test(test_unknown_fields),
        cmocka_unit_test(test_metadata_always), cmocka_unit_test(test_impossible),
        cmocka_unit_test(test_blocks_by_opset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
