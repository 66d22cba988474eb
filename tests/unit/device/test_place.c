/* The cheapest path through devices: small programs stay on the processor, long ones go to the engine, an op that it lacks cuts them. */
#include <math.h>
#include <string.h>
#include "base/buf.h"
#include "device/place.h"
#include "mil/text.h"
#include "support.h"

/* A chain of n products of [1, 1024, 1, 64] with 1024 x 1024 weights; behind the one at `cut` a running sum. */
static struct mil_model *chain(int n, int cut)
{
    struct buf b;
    struct mil_model *m = mil_model_new(0);
    buf_init(&b, 1 << 22);
    buf_puts(
        &b,
        "program(1.3)\n{\n    func main<ios18>(tensor<fp16, [1, 1024, 64]> x0) {\n"
        "            int32 axis = const()[name = string(\"axis\"), val = int32(2)];\n"
        "            bool no = const()[name = string(\"no\"), val = bool(false)];\n"
        "            tensor<fp16, [1024, 1024]> w = const()[name = string(\"w\"), val = tensor<fp16, [1024, "
        "1024]>(BLOBFILE(path = string(\"@model_path/weights/weight.bin\"), offset = uint64(64)))];\n");
    for (int i = 0; i < n; i++) {
        if (i == cut)
            buf_printf(&b,
                       "            tensor<fp16, [1, 1024, 64]> x%d = cumsum(x = x%d, axis = axis, exclusive "
                       "= no, reverse = "
                       "no)[name = string(\"x%d\")];\n",
                       i + 1, i, i + 1);
        else
            buf_printf(&b,
                       "            tensor<fp16, [1, 1024, 64]> x%d = matmul(x = w, y = x%d, transpose_x = "
                       "no, transpose_y = "
                       "no)[name = string(\"x%d\")];\n",
                       i + 1, i, i + 1);
    }
    buf_printf(&b, "        } -> (x%d);\n}", n);
    ASSERT_OK(mil_text_read(m, b.p, b.n, "chain", e));
    buf_fini(&b);
    return m;
}

static struct placement place(struct mil_model *m)
{
    struct placement p;
    const struct chip *chip;
    ASSERT_OK(chip_find(&chip, "M4", e));
    place_function(&p, m->program->functions[0], chip);
    return p;
}

static void test_short_program(void **state)
{
    (void)state;
    struct mil_model *m = chain(1, -1);
    struct placement p = place(m);
    /* 67 M products: 0.67 ms on the processor as assumed, some 0.03 on the engine: the switch is worth it */
    assert_int_equal(p.n_engine, 1);
    assert_true(p.ms > 0.25 && p.ms < 0.35);
    placement_fini(&p);
    mil_model_close(m);
    m = chain(1, 0); /* the running sum alone */
    p = place(m);
    assert_int_equal(p.n_engine, 0);
    assert_int_equal(p.n_segments, 1);
    assert_string_equal(p.ops[0].reason, "the engine lacks the op");
    placement_fini(&p);
    mil_model_close(m);
}

static void test_cut(void **state)
{
    (void)state;
    struct mil_model *m = chain(40, 20);
    struct placement p = place(m), whole;
    assert_int_equal(p.n_ops, 40);
    assert_int_equal(p.n_engine, 39);
    assert_int_equal(p.n_segments, 3);
    assert_false(p.ops[20].on_engine);
    mil_model_close(m);
    m = chain(40, -1);
    whole = place(m);
    assert_int_equal(whole.n_segments, 1);
    assert_true(p.ms - whole.ms > 0.34); /* leaving, entering: three times 0.125 ms */
    placement_fini(&p);
    placement_fini(&whole);
    mil_model_close(m);
    m = chain(2, 1); /* one product before it: still worth the way, which ends on the processor */
    p = place(m);
    assert_int_equal(p.n_engine, 1);
    placement_fini(&p);
    mil_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_short_program), cmocka_unit_test(test_cut)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
