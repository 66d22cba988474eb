/* Damaged, hostile and foreign model files: each ends in one clear error, with bounded stack and memory. */
#include "support.h"

#include "base/file.h"
#include "mil/protobuf.h"
#include "wire.h"

#define PACKAGES MILKIT_TEST_DATA "/packages/"

static bool read_bytes(const void *data, size_t bytes, struct err *e)
{
    struct mil_model *m = mil_model_new(0);
    memset(e, 0, sizeof *e);
    bool ok = mil_protobuf_read(m, data, bytes, "x.mlmodel", e);
    mil_model_close(m);
    return ok;
}

static void refused(const void *data, size_t bytes, enum err_code code, const char *says)
{
    struct err e;
    if (read_bytes(data, bytes, &e))
        fail_msg("accepted, expected: %s", says);
    if (e.code != code || !strstr(e.msg, says) || !strstr(e.msg, "x.mlmodel"))
        fail_msg("code %d \"%s\", expected %d \"%s\"", (int)e.code, e.msg, (int)code, says);
}

/* A model around a program. */
static void put_model(struct buf *b, uint64_t version)
{
    size_t n;
    char *program = buf_take(b, &n);
    put_number(b, 1, version);
    put_bytes(b, 2, "", 0);
    put_bytes(b, 502, program, n);
    free(program);
}

/* A model around the one block of function main. */
static void put_block_model(struct buf *b)
{
    wrap(b, 2); /* block entry: value */
    wrap(b, 3); /* function: block_specializations */
    put_text(b, 2, "CoreML8");
    wrap(b, 2); /* function entry: value */
    put_text(b, 1, "main");
    wrap(b, 2); /* program: functions */
    put_number(b, 1, 1);
    put_model(b, 9);
}

/* type tensor<dtype, []> as field `field` */
static void put_scalar_type(struct buf *b, uint32_t field, unsigned dtype)
{
    struct buf t;
    buf_init(&t, 1 << 20);
    put_number(&t, 1, dtype);
    wrap(&t, 1);
    put_bytes(b, field, t.p, t.n);
    buf_fini(&t);
}

static void put_var(struct buf *b, uint32_t field, const char *name)
{
    struct buf t;
    buf_init(&t, 1 << 20);
    put_text(&t, 1, name);
    put_scalar_type(&t, 2, 10);
    put_bytes(b, field, t.p, t.n);
    buf_fini(&t);
}

/* An op "relu" of variable `x` giving `out`. */
static void put_op(struct buf *b, const char *x, const char *out)
{
    struct buf t;
    buf_init(&t, 1 << 20);
    put_text(&t, 1, x);
    wrap(&t, 1); /* argument: bindings */
    wrap(&t, 2); /* entry: value */
    put_text(&t, 1, "x");
    wrap(&t, 2); /* operation: inputs */
    put_text(&t, 1, "relu");
    put_var(&t, 3, out);
    put_bytes(b, 3, t.p, t.n);
    buf_fini(&t);
}

/* A const whose value holds `tensor` (a packed TensorValue) for dtype. */
static void put_const(struct buf *b, unsigned dtype, const struct buf *tensor)
{
    struct buf t;
    buf_init(&t, 1 << 20);
    put_bytes(&t, 1, tensor->p, tensor->n);
    wrap(&t, 3);
    put_scalar_type(&t, 2, dtype);
    wrap(&t, 2);
    put_text(&t, 1, "val");
    wrap(&t, 5);
    put_text(&t, 1, "const");
    put_var(&t, 3, "c");
    put_bytes(b, 3, t.p, t.n);
    buf_fini(&t);
}

static void test_not_a_model(void **state)
{
    (void)state;
    refused("", 0, ERR_FORMAT, "empty");
    refused("program(1.0)\n", 13, ERR_FORMAT, "not a Core ML model");
    refused("\x08\x09", 2, ERR_FORMAT, "holds no model");
    refused("\x08\xff", 2, ERR_FORMAT, "damaged or cut off");
}

static void test_other_kinds(void **state)
{
    (void)state;
    struct buf b;
    char *bytes = NULL;
    size_t n = 0;
    ASSERT_OK(file_read(&bytes, &n, PACKAGES "neuralnetwork.mlmodel", 1 << 20, e));
    refused(bytes, n, ERR_UNSUPPORTED, "a neural network; only ML Programs");
    free(bytes);
    ASSERT_OK(
        file_read(&bytes, &n, PACKAGES "pipeline.mlpackage/Data/com.apple.CoreML/model.mlmodel", 1 << 20, e));
    refused(bytes, n, ERR_UNSUPPORTED, "a pipeline; only ML Programs");
    free(bytes);
    buf_init(&b, 1 << 20);
    put_number(&b, 1, 9);
    put_bytes(&b, 777, "", 0);
    refused(b.p, b.n, ERR_UNSUPPORTED, "unknown kind 777");
    buf_clear(&b);
    put_number(&b, 1, 1);
    put_model(&b, 12);
    refused(b.p, b.n, ERR_UNSUPPORTED, "specification version 12");
    buf_fini(&b);
}

/* Cut anywhere, a model is refused: its last field is the program, which then is too long. */
static void test_cut(void **state)
{
    (void)state;
    static const char *const files[] = {PACKAGES
                                        "while_loop_fp16.mlpackage/Data/com.apple.CoreML/model.mlmodel",
                                        PACKAGES "quantized-constexpr/input.mlmodel"};
    for (size_t k = 0; k < 2; k++) {
        char *bytes = NULL;
        size_t n = 0;
        struct err e;
        ASSERT_OK(file_read(&bytes, &n, files[k], 1 << 20, e));
        assert_true(read_bytes(bytes, n, &e));
        for (size_t i = 0; i < n; i++) {
            char *cut = malloc(i + 1); /* its own block, so that reading past the end is seen */
            memcpy(cut, bytes, i);
            if (read_bytes(cut, i, &e))
                fail_msg("cut at %zu of %zu: accepted", i, n);
            free(cut);
        }
        free(bytes);
    }
}

/* Each byte changed in turn: read or refused, never worse. */
static void test_changed_bytes(void **state)
{
    (void)state;
    char *bytes = NULL;
    size_t n = 0, refusals = 0;
    struct err e;
    ASSERT_OK(file_read(&bytes, &n, PACKAGES "while_loop_fp16.mlpackage/Data/com.apple.CoreML/model.mlmodel",
                        1 << 20, e));
    for (size_t i = 0; i < n; i++) {
        char old = bytes[i];
        for (int x = 0; x < 4; x++) {
            bytes[i] = (char)(x == 0 ? old ^ 1 : x == 1 ? old ^ 0x80 : x == 2 ? 0xff : 0);
            if (!read_bytes(bytes, n, &e)) {
                refusals++;
                assert_true(e.code != ERR_NONE && e.msg[0]);
            }
        }
        bytes[i] = old;
    }
    assert_true(refusals > n);
    free(bytes);
}

static void test_nesting(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 64 << 20);
    /* blocks in ops in blocks */
    for (int i = 0; i < 2000; i++) {
        wrap(&b, 4); /* operation: blocks */
        wrap(&b, 3); /* block: operations */
    }
    put_block_model(&b);
    refused(b.p, b.n, ERR_LIMIT, "nest more than");
    buf_clear(&b);
    /* types in types: allowed on the wire, but not by the reader */
    put_scalar_type(&b, 2, 10);
    size_t n;
    char *inner = buf_take(&b, &n);
    buf_append(&b, inner + 2, n - 2);
    free(inner);
    for (int i = 0; i < 30; i++) {
        wrap(&b, 1); /* list type: elem */
        wrap(&b, 2); /* value type: list */
    }
    wrap(&b, 2); /* named type: type */
    put_text(&b, 1, "x");
    wrap(&b, 3);
    put_text(&b, 1, "relu");
    wrap(&b, 3);
    put_block_model(&b);
    refused(b.p, b.n, ERR_LIMIT, "types nest more than");
    buf_fini(&b);
}

static void test_lengths(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 64 << 20);
    put_number(&b, 1, 9);
    put_varint(&b, 502 << 3 | 2);
    put_varint(&b, UINT64_MAX);
    refused(b.p, b.n, ERR_FORMAT, "damaged");
    buf_clear(&b);
    /* a program that is a number */
    put_number(&b, 1, 9);
    put_number(&b, 502, 7);
    refused(b.p, b.n, ERR_FORMAT, "wire type");
    buf_clear(&b);
    /* two programs */
    put_number(&b, 1, 9);
    put_bytes(&b, 502, "", 0);
    put_bytes(&b, 502, "", 0);
    refused(b.p, b.n, ERR_FORMAT, "comes twice");
    buf_fini(&b);
}

/* Empty messages of two bytes each would take a hundred times their size. */
static void test_memory(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 64 << 20);
    for (int i = 0; i < 1000000; i++)
        put_bytes(&b, 3, "", 0);
    put_block_model(&b);
    refused(b.p, b.n, ERR_LIMIT, "bytes of memory to read");
    buf_fini(&b);
}

static void test_names(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 1 << 20);
    put_op(&b, "nobody", "y");
    put_block_model(&b);
    refused(b.p, b.n, ERR_FORMAT, "function main: op 0, relu \"y\": argument \"x\" is \"nobody\"");
    buf_clear(&b);
    put_op(&b, "y", "y"); /* its own result */
    put_block_model(&b);
    refused(b.p, b.n, ERR_FORMAT, "argument \"x\" is \"y\"");
    buf_clear(&b);
    put_text(&b, 2, "gone");
    put_block_model(&b);
    refused(b.p, b.n, ERR_FORMAT, "output \"gone\"");
    buf_clear(&b);
    put_bytes(&b, 2, "a\0b", 3);
    put_block_model(&b);
    refused(b.p, b.n, ERR_FORMAT, "NUL");
    buf_clear(&b);
    put_bytes(&b, 2, "a\xff", 2);
    put_block_model(&b);
    refused(b.p, b.n, ERR_FORMAT, "UTF-8");
    buf_clear(&b);
    put_number(&b, 1, 1);
    put_model(&b, 9);
    refused(b.p, b.n, ERR_FORMAT, "without functions");
    buf_fini(&b);
}

/* says: NULL when the const must be accepted. */
static void const_check(unsigned dtype, uint32_t field, const char *payload, size_t n, enum err_code code,
                        const char *says)
{
    struct buf tensor, b;
    buf_init(&tensor, 1 << 20);
    buf_init(&b, 1 << 20);
    put_bytes(&tensor, 1, payload, n); /* the packed values */
    wrap(&tensor, field);
    put_const(&b, dtype, &tensor);
    put_block_model(&b);
    if (says) {
        refused(b.p, b.n, code, says);
    } else {
        struct err e;
        if (!read_bytes(b.p, b.n, &e))
            fail_msg("%s", e.msg);
    }
    buf_fini(&tensor);
    buf_fini(&b);
}

/* Scalars: values in the wrong field, too many, too few, out of range. */
static void test_values(void **state)
{
    (void)state;
    const_check(11, 1, "\0\0\x80\x3f", 4, ERR_NONE, NULL); /* fp32 1.0 */
    const_check(11, 1, "\0\0\x80\x3f\0\0\0\0", 8, ERR_FORMAT, "expected 1 elements, found 2");
    const_check(11, 1, "\0\0\x80", 3, ERR_FORMAT, "damaged");
    const_check(11, 2, "\x01", 1, ERR_FORMAT, "fp32 elements kept as ints");
    const_check(23, 2, "\x01", 1, ERR_NONE, NULL); /* int32 */
    const_check(23, 2, "", 0, ERR_FORMAT, "expected 1 elements, found 0");
    const_check(22, 2, "\xff\xff\x03", 3, ERR_FORMAT, "element 0 is 65535, out of the range of int16");
    const_check(32, 2, "\xff\xff\x03", 3, ERR_NONE, NULL); /* uint16 */
    const_check(10, 7, "\0\x3c", 2, ERR_NONE, NULL);       /* fp16 */
    const_check(10, 7, "\0\x3c\0", 3, ERR_FORMAT, "expected 2 bytes, found 3");
    const_check(2, 7, "x", 1, ERR_FORMAT, "string elements kept as bytes");
    const_check(2, 4, "x", 1, ERR_NONE, NULL);
    const_check(1, 4, "x", 1, ERR_FORMAT, "bool elements kept as strings");
    const_check(24, 5, "\x01", 1, ERR_NONE, NULL); /* int64 */
    const_check(24, 6, "\0\0\0\0\0\0\0\0", 8, ERR_FORMAT, "int64 elements kept as fp64");
    const_check(99, 7, "x", 1, ERR_UNSUPPORTED, "unknown element type number 99");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_not_a_model), cmocka_unit_test(test_other_kinds),
        cmocka_unit_test(test_cut),         cmocka_unit_test(test_changed_bytes),
        cmocka_unit_test(test_nesting),     cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_memory),      cmocka_unit_test(test_names),
        cmocka_unit_test(test_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
