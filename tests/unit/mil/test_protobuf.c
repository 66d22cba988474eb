/* The protobuf form: what is read of packages that other tools wrote, and that writing and reading again
 * changes nothing. */
#include "support.h"

#include "base/file.h"
#include "format/mlpackage.h"
#include "mil/protobuf.h"
#include "model_compare.h"

#define PACKAGES MILKIT_TEST_DATA "/packages/"

static struct mil_model *model_read(const void *data, size_t bytes, const char *where)
{
    struct err e = {0};
    struct mil_model *m = mil_model_new(0);
    if (!mil_protobuf_read(m, data, bytes, where, &e))
        fail_msg("%s", e.msg);
    return m;
}

static void model_write(const struct mil_model *m, struct buf *out)
{
    struct err e = {0};
    buf_init(out, (size_t)1 << 30);
    if (!mil_protobuf_write(m, out, &e))
        fail_msg("%s", e.msg);
}

static struct mil_model *model_read_file(const char *path)
{
    struct map_file *map = NULL;
    ASSERT_OK(map_open(&map, path, e));
    struct mil_model *m = model_read(map->data, map->bytes, path);
    map_close(map);
    return m;
}

static struct mil_model *package_read(const char *path)
{
    char *file = NULL, *root = NULL;
    ASSERT_OK(mlpackage_locate(path, &file, &root, e));
    struct mil_model *m = model_read_file(file);
    free(file);
    free(root);
    return m;
}

/* Read, written, read and written again: the same graph and the same bytes. */
static void round_trip(struct mil_model *m, const char *name)
{
    struct buf first, second, packed;
    model_write(m, &first);
    struct mil_model *again = model_read(first.p, first.n, name);
    if (!model_equal(m, again))
        fail_msg("%s: differs after a round trip", name);
    model_write(again, &second);
    assert_int_equal(first.n, second.n);
    assert_memory_equal(first.p, second.p, first.n);

    /* the description packed from the struct says the same as the one kept as bytes */
    again->description.bytes = NULL;
    model_write(again, &packed);
    struct mil_model *third = model_read(packed.p, packed.n, name);
    if (!model_equal(m, third))
        fail_msg("%s: differs when its description is packed anew", name);
    buf_fini(&first);
    buf_fini(&second);
    buf_fini(&packed);
    mil_model_close(again);
    mil_model_close(third);
    mil_model_close(m);
}

static void test_round_trips(void **state)
{
    static const char *const names[] = {"while_loop_fp16", "state_two_shift", "bss_int4_odd_fp16",
                                        "multi_lut4",      "spec7_lut4",      "classifier"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char *path = xasprintf(PACKAGES "%s.mlpackage", names[i]);
        round_trip(package_read(path), names[i]);
        free(path);
    }
    round_trip(model_read_file(PACKAGES "quantized-constexpr/input.mlmodel"), "quantized-constexpr");
}

static int round_trips_below(const char *folder)
{
    struct path_list l = {0};
    int n = 0;
    ASSERT_OK(path_list_read(&l, folder, e));
    for (size_t i = 0; i < l.n; i++) {
        char *path = path_join(folder, l.names[i]);
        if (has_suffix(path, ".mlpackage")) {
            round_trip(package_read(path), path);
            n++;
        } else if (has_suffix(path, "input.mlmodel")) {
            round_trip(model_read_file(path), path);
            n++;
        } else if (path_is_folder(path) && !has_suffix(path, ".mlmodelc") && !has_suffix(path, "refuse")) {
            n += round_trips_below(path);
        }
        free(path);
    }
    path_list_free(&l);
    return n;
}

static void test_round_trips_shared(void **state)
{
    (void)state;
    SKIP_WITHOUT_SHARED();
    int n = round_trips_below(MILKIT_SHARED "/peer-packages") + round_trips_below(MILKIT_SHARED "/corpus");
    printf("%d models\n", n);
    assert_true(n > 300);
}

static void test_multifunction(void **state)
{
    (void)state;
    struct mil_model *m = package_read(PACKAGES "multi_lut4.mlpackage");
    struct str s;

    assert_int_equal(m->specification_version, 9);
    assert_true(m->description.has_functions);
    assert_int_equal(m->description.n_functions, 2);
    assert_string_equal(mil_default_function_name(m), "infer");
    const struct mil_function_description *d = mil_function_description_find(m, "prefill");
    assert_non_null(d);
    assert_string_equal(d->inputs[0].name, "x");
    assert_int_equal(d->inputs[0].kind, MIL_FEATURE_ARRAY);
    assert_int_equal(d->inputs[0].dtype, MIL_FP16);
    assert_int_equal(d->inputs[0].rank, 2);
    assert_int_equal(d->inputs[0].shape[0], 8);
    assert_int_equal(d->inputs[0].shape[1], 40);
    assert_null(mil_function_description_find(m, "main"));

    /* sorted, whatever order the file has */
    assert_string_equal(m->program->functions[0]->name, "infer");
    assert_string_equal(m->program->functions[1]->name, "prefill");
    const struct mil_function *f = mil_function_find(m, "infer"), *g = mil_function_find(m, "prefill");
    assert_string_equal(f->opset, "CoreML8");
    const struct mil_op *op = f->block->ops[0], *other = g->block->ops[0];
    assert_true(mil_op_is(op, "constexpr_lut_to_dense"));
    assert_string_equal(op->args[0].name, "indices");
    assert_string_equal(op->args[1].name, "lut");
    const struct mil_value *lut = mil_arg_value(op, "lut");
    assert_int_equal(lut->kind, MIL_VALUE_BLOB);
    assert_int_equal(lut->offset, 1088);
    assert_string_equal(lut->file, "@model_path/weights/weight.bin");
    assert_int_equal(lut->type->dtype, MIL_FP16);
    assert_int_equal(lut->n_elems, 6 * 16);
    assert_int_equal(lut->bytes, 6 * 16 * 2);
    assert_null(lut->data);
    /* one place in the file, one value */
    assert_ptr_equal(lut, mil_arg_value(other, "lut"));
    assert_true(mil_value_string(mil_attribute(op, "name"), &s));
    mil_model_close(m);
}

static void test_states(void **state)
{
    (void)state;
    struct mil_model *m = package_read(PACKAGES "state_two_shift.mlpackage");
    const struct mil_function *f = m->program->functions[0];
    int n_states = 0, n_reads = 0, n_writes = 0;

    assert_false(m->description.has_functions);
    assert_string_equal(mil_default_function_name(m), "main");
    const struct mil_function_description *d = mil_function_description_find(m, "main");
    assert_non_null(d);
    assert_int_equal(d->n_states, 2);
    assert_int_equal(d->states[0].kind, MIL_FEATURE_STATE);
    assert_int_equal(d->states[0].dtype, MIL_FP16);
    for (int i = 0; i < f->n_inputs; i++)
        n_states += f->inputs[i]->type->kind == MIL_TYPE_STATE;
    assert_int_equal(n_states, 2);
    for (int i = 0; i < f->block->n_ops; i++) {
        const struct mil_op *op = f->block->ops[i];
        n_reads += mil_op_is(op, "read_state");
        if (mil_op_is(op, "write_state")) {
            n_writes++;
            assert_int_equal(op->n_outputs, 0);
            assert_int_equal(mil_arg_var(op, "input")->type->kind, MIL_TYPE_STATE);
        }
    }
    assert_true(n_reads >= 2);
    assert_int_equal(n_writes, 2);
    mil_model_close(m);
}

static void test_nested_blocks(void **state)
{
    (void)state;
    struct mil_model *m = package_read(PACKAGES "while_loop_fp16.mlpackage");
    const struct mil_block *b = m->program->functions[0]->block;
    const struct mil_op *loop = NULL;
    for (int i = 0; i < b->n_ops; i++)
        if (mil_op_is(b->ops[i], "while_loop"))
            loop = b->ops[i];
    assert_non_null(loop);
    assert_int_equal(loop->n_blocks, 2);
    for (int i = 0; i < 2; i++) {
        assert_true(loop->blocks[i]->n_inputs > 0);
        assert_true(loop->blocks[i]->n_outputs > 0);
        assert_true(loop->blocks[i]->n_ops > 0);
        assert_null(loop->blocks[i]->inputs[0]->op);
    }
    mil_model_close(m);
}

static void test_classifier(void **state)
{
    (void)state;
    struct mil_model *m = package_read(PACKAGES "classifier.mlpackage");
    const struct mil_function_description *d = &m->description.functions[0];
    bool has_dict = false;
    for (int i = 0; i < d->n_outputs; i++)
        has_dict |= d->outputs[i].kind == MIL_FEATURE_DICT;
    assert_true(has_dict);
    assert_non_null(d->predicted_feature_name);
    const struct mil_block *b = m->program->functions[0]->block;
    const struct mil_op *op = b->ops[b->n_ops - 1];
    assert_true(mil_op_is(op, "classify"));
    assert_int_equal(op->outputs[1]->type->kind, MIL_TYPE_DICT);
    mil_model_close(m);
}

/* One const of every element type, made in memory: each lands in its field and comes back as it was. */
static void test_element_types(void **state)
{
    (void)state;
    struct mil_model *m = mil_model_new(10);
    struct arena *a = m->arena;
    static const int64_t dims[1] = {5};
    static const unsigned char bytes[40] = {0x12, 0xfe, 1,  0x80, 0xff, 0x7f, 7,    8, 9, 10, 11, 12, 13,
                                            0xc1, 15,   16, 0xff, 18,   19,   0x90, 1, 2, 3,  4,  5,  0xff};
    static const unsigned char bools[5] = {1, 0, 1, 1, 0};
    struct mil_function *f = ARENA_NEW(a, struct mil_function);
    struct mil_block *b = f->block = ARENA_NEW(a, struct mil_block);
    int n = MIL_DTYPES - 1;

    f->name = "main";
    f->opset = "CoreML9";
    b->ops = ARENA_ARRAY(a, struct mil_op *, n);
    b->n_ops = n;
    f->n_vars = n;
    for (int i = 0; i < n; i++) {
        enum mil_dtype d = (enum mil_dtype)(i + 1);
        struct mil_op *op = b->ops[i] = ARENA_NEW(a, struct mil_op);
        struct mil_value *v = ARENA_NEW(a, struct mil_value);
        op->type = "const";
        op->n_outputs = 1;
        op->outputs = ARENA_ARRAY(a, struct mil_var *, 1);
        op->outputs[0] = ARENA_NEW(a, struct mil_var);
        op->outputs[0]->name = arena_printf(a, "v%d", i);
        op->outputs[0]->type = v->type = mil_type_new_tensor(a, d, 1, dims);
        op->outputs[0]->id = i;
        op->outputs[0]->op = op;
        op->n_attributes = 1;
        op->attributes = ARENA_ARRAY(a, struct mil_named_value, 1);
        op->attributes[0].name = "val";
        op->attributes[0].value = v;
        v->n_elems = 5;
        if (d == MIL_STRING) {
            struct str *s = ARENA_ARRAY(a, struct str, 5);
            for (int j = 0; j < 5; j++)
                s[j] = (struct str){j == 2 ? "a\0b" : j == 4 ? "" : "\"x\"\n", j == 2 ? 3 : j == 4 ? 0 : 4};
            v->strings = s;
        } else {
            v->bytes = (size_t)mil_type_bytes(v->type);
            v->data = d == MIL_BOOL ? (const void *)bools : bytes;
        }
    }
    b->n_outputs = 1;
    b->outputs = ARENA_ARRAY(a, struct mil_var *, 1);
    b->outputs[0] = b->ops[0]->outputs[0];
    m->program->n_functions = 1;
    m->program->functions = ARENA_ARRAY(a, struct mil_function *, 1);
    m->program->functions[0] = f;
    m->description.n_functions = 1;
    m->description.functions = ARENA_NEW(a, struct mil_function_description);
    round_trip(m, "element types");
}

/* The order in which a model was built does not show in its bytes. */
static void test_map_order(void **state)
{
    (void)state;
    struct buf first, second;
    struct mil_model *m = package_read(PACKAGES "multi_lut4.mlpackage");
    model_write(m, &first);
    struct mil_function *f = m->program->functions[0];
    m->program->functions[0] = m->program->functions[1];
    m->program->functions[1] = f;
    struct mil_op *op = f->block->ops[0];
    struct mil_arg arg = op->args[0];
    op->args[0] = op->args[1];
    op->args[1] = arg;
    model_write(m, &second);
    assert_int_equal(first.n, second.n);
    assert_memory_equal(first.p, second.p, first.n);
    buf_fini(&first);
    buf_fini(&second);
    mil_model_close(m);
}

static void test_weight_without_file(void **state)
{
    (void)state;
    struct err e = {0};
    struct buf out;
    struct mil_model *m = package_read(PACKAGES "multi_lut4.mlpackage");
    struct mil_value *v = (struct mil_value *)mil_arg_value(m->program->functions[0]->block->ops[0], "lut");
    struct mil_weight w = {.name = "model.layers.0.q"};
    v->kind = MIL_VALUE_WEIGHT;
    v->weight = &w;
    buf_init(&out, (size_t)1 << 30);
    assert_false(mil_protobuf_write(m, &out, &e));
    assert_int_equal(e.code, ERR_BUG);
    assert_non_null(strstr(e.msg, "model.layers.0.q"));
    assert_non_null(strstr(e.msg, "function infer"));
    buf_fini(&out);
    mil_model_close(m);
}

/* What coremldata.bin holds is the package's description, packed again: metadata always there. */
static void test_description_bytes(void **state)
{
    (void)state;
    struct map_file *map = NULL;
    struct mil_model *m = model_read_file(PACKAGES "quantized-constexpr/input.mlmodel");
    ASSERT_OK(map_open(&map, PACKAGES "quantized-constexpr/apple.mlmodelc/coremldata.bin", e));
    assert_true(m->description.n_bytes >= 3);
    assert_memory_equal(m->description.bytes + m->description.n_bytes - 3, "\xa2\x06\x00", 3);
    assert_int_equal(map->bytes, m->description.n_bytes + 99);
    assert_memory_equal(map->data + 0x53, m->description.bytes, m->description.n_bytes);
    map_close(map);

    struct mil_model *again = mil_model_new(9);
    ASSERT_OK(mil_description_read(again, m->description.bytes, m->description.n_bytes, "again", e));
    assert_true(description_equal(&m->description, &again->description));
    mil_model_close(again);
    mil_model_close(m);
}

/* For tests/oracle/check_protobuf.py: reads a model file, writes it anew. */
static int rewrite(const char *from, const char *to)
{
    struct mil_model *m = model_read_file(from);
    struct buf out;
    model_write(m, &out);
    ASSERT_OK(file_write(to, out.p, out.n, e));
    buf_fini(&out);
    mil_model_close(m);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3)
        return rewrite(argv[1], argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trips),         cmocka_unit_test(test_round_trips_shared),
        cmocka_unit_test(test_multifunction),       cmocka_unit_test(test_states),
        cmocka_unit_test(test_nested_blocks),       cmocka_unit_test(test_classifier),
        cmocka_unit_test(test_element_types),       cmocka_unit_test(test_map_order),
        cmocka_unit_test(test_weight_without_file), cmocka_unit_test(test_description_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
