/* Types, compile-time values and look-ups of the program in memory. */
#include <math.h>
#include "support.h"
#include "mil/mil.h"

static void test_dtypes(void **state)
{
    (void)state;
    for (int d = 1; d < MIL_DTYPES; d++) {
        const char *name = mil_dtype_name((enum mil_dtype)d);
        assert_int_equal(mil_dtype_find(name, strlen(name)), d);
        assert_false(mil_dtype_is_float((enum mil_dtype)d) && mil_dtype_is_integer((enum mil_dtype)d));
    }
    assert_int_equal(mil_dtype_find("fp16x", 4), MIL_FP16);
    assert_int_equal(mil_dtype_find("fp16x", 5), MIL_DTYPE_NONE);
    assert_int_equal(mil_dtype_find("fp1", 3), MIL_DTYPE_NONE);
    assert_int_equal(mil_dtype_bits(MIL_INT4), 4);
    assert_int_equal(mil_dtype_bits(MIL_UINT3), 3);
    assert_int_equal(mil_dtype_bits(MIL_BOOL), 8);
    assert_int_equal(mil_dtype_bits(MIL_STRING), 0);
    assert_int_equal(mil_dtype_bits((enum mil_dtype)99), 0);
    assert_string_equal(mil_dtype_name((enum mil_dtype) - 1), "?");
    assert_false(mil_dtype_is_integer(MIL_BOOL));
}

static void test_types(void **state)
{
    (void)state;
    struct arena *a = arena_new(0);
    char text[64];
    struct mil_type *t = mil_type_new_tensor(a, MIL_UINT3, 2, (int64_t[]){3, 3});
    assert_int_equal(mil_type_elems(t), 9);
    assert_int_equal(mil_type_bytes(t), 4);
    struct mil_type *scalar = mil_type_new_tensor(a, MIL_FP16, 0, NULL);
    assert_int_equal(mil_type_elems(scalar), 1);
    mil_type_text(text, sizeof text, scalar);
    assert_string_equal(text, "fp16");
    struct mil_type *open =
        mil_type_new_tensor(a, MIL_FP16, 3, (int64_t[]){1, MIL_DIM_UNKNOWN, MIL_DIM_VARIADIC});
    assert_int_equal(mil_type_elems(open), -1);
    assert_int_equal(mil_type_bytes(open), -1);
    mil_type_text(text, sizeof text, mil_type_new_state(a, open));
    assert_string_equal(text, "state<tensor<fp16, [1, ?, ...]>>");
    mil_type_text(text, 12, open);
    assert_string_equal(text, "tensor<fp16");
    struct mil_type list = {.kind = MIL_TYPE_LIST, .elem = scalar, .length = MIL_DIM_UNKNOWN};
    mil_type_text(text, sizeof text, &list);
    assert_string_equal(text, "list<fp16, ?>");
    const struct mil_type *items[2] = {mil_type_new_tensor(a, MIL_STRING, 0, NULL), scalar};
    struct mil_type dict = {.kind = MIL_TYPE_DICT, .n_items = 2, .items = items};
    mil_type_text(text, sizeof text, &dict);
    assert_string_equal(text, "dict<string, fp16>");
    assert_int_equal(mil_type_elems(mil_type_new_tensor(a, MIL_FP16, 3, (int64_t[]){INT64_MAX / 2, 2, 2})),
                     -1);
    assert_int_equal(mil_type_bytes(mil_type_new_tensor(a, MIL_FP64, 1, (int64_t[]){INT64_MAX / 2})), -1);
    assert_int_equal(mil_type_bytes(items[0]), -1);
    assert_int_equal(mil_type_elems(NULL), -1);

    assert_true(mil_type_equal(t, mil_type_new_tensor(a, MIL_UINT3, 2, (int64_t[]){3, 3})));
    assert_false(mil_type_equal(t, mil_type_new_tensor(a, MIL_UINT4, 2, (int64_t[]){3, 3})));
    assert_false(mil_type_equal(t, mil_type_new_tensor(a, MIL_UINT3, 2, (int64_t[]){3, 4})));
    assert_false(mil_type_equal(t, mil_type_new_state(a, t)));
    assert_true(mil_type_equal(mil_type_new_state(a, t), mil_type_new_state(a, t)));
    assert_ptr_equal(mil_type_tensor(mil_type_new_state(a, t)), t);
    assert_ptr_equal(mil_type_tensor(t), t);
    /* A type that contains itself, as damaged memory might, ends. */
    struct mil_type loop = {.kind = MIL_TYPE_LIST, .length = 1}, other = {.kind = MIL_TYPE_LIST, .length = 1};
    loop.elem = &loop;
    other.elem = &other;
    assert_false(mil_type_equal(&loop, &other));
    mil_type_text(text, sizeof text, &loop);
    arena_free(a);
}

static struct mil_value value_of(struct mil_type *t, enum mil_dtype d, int64_t *n, const void *data,
                                 size_t bytes)
{
    *t = (struct mil_type){.kind = MIL_TYPE_TENSOR, .dtype = d, .rank = 1, .dims = n};
    return (struct mil_value){
        .kind = MIL_VALUE_TENSOR, .type = t, .data = data, .bytes = bytes, .n_elems = *n};
}

static void test_values(void **state)
{
    (void)state;
    struct mil_type t;
    int64_t n, ints[8];
    int n_found;
    double f;
    struct mil_value v = value_of(&t, MIL_INT4, (n = 3, &n), (uint8_t[]){0xf1, 0x08}, 2);
    assert_true(mil_value_ints(&v, ints, 8, &n_found));
    assert_int_equal(n_found, 3);
    assert_int_equal(ints[0], 1);
    assert_int_equal(ints[1], -1);
    assert_int_equal(ints[2], -8);
    assert_false(mil_value_ints(&v, ints, 2, &n_found));
    /* 3-bit elements cross byte borders: 5, 3, 6 -> 101, 011, 110 from the low end up. */
    v = value_of(&t, MIL_UINT3, (n = 3, &n), (uint8_t[]){0x9d, 0x01}, 2);
    assert_true(mil_value_element(&v, 0) == 5 && mil_value_element(&v, 1) == 3 &&
                mil_value_element(&v, 2) == 6);
    assert_true(isnan(mil_value_element(&v, 3)) && isnan(mil_value_element(&v, -1)));
    v = value_of(&t, MIL_UINT1, (n = 4, &n), (uint8_t[]){0x0a}, 1);
    assert_true(mil_value_element(&v, 0) == 0 && mil_value_element(&v, 1) == 1 &&
                mil_value_element(&v, 3) == 1);
    v = value_of(&t, MIL_FP16, (n = 2, &n), (f16[]){0x3e00, 0xfc00}, 4);
    assert_true(mil_value_element(&v, 0) == 1.5 && mil_value_element(&v, 1) == -INFINITY);
    assert_false(mil_value_ints(&v, ints, 8, &n_found));
    assert_false(mil_value_float(&v, &f));
    v = value_of(&t, MIL_BF16, (n = 1, &n), (uint16_t[]){0xbf80}, 2);
    assert_true(mil_value_float(&v, &f) && f == -1);
    v = value_of(&t, MIL_FP32, (n = 1, &n), (float[]){2.75f}, 4);
    assert_true(mil_value_float(&v, &f) && f == 2.75);
    assert_true(mil_value_ints(&v, ints, 8, &n_found) && ints[0] == 2);
    v = value_of(&t, MIL_FP64, (n = 1, &n), (double[]){1e-300}, 8);
    assert_true(mil_value_float(&v, &f) && f == 1e-300);
    v = value_of(&t, MIL_FP8E4M3FN, (n = 3, &n), (uint8_t[]){0x38, 0x7e, 0x7f}, 3);
    assert_true(mil_value_element(&v, 0) == 1 && mil_value_element(&v, 1) == 448 &&
                isnan(mil_value_element(&v, 2)));
    v = value_of(&t, MIL_FP8E5M2, (n = 3, &n), (uint8_t[]){0xc0, 0x7c, 0x01}, 3);
    assert_true(mil_value_element(&v, 0) == -2 && mil_value_element(&v, 1) == INFINITY &&
                mil_value_element(&v, 2) == 0x1p-16);
    v = value_of(&t, MIL_BOOL, (n = 2, &n), (uint8_t[]){0, 7}, 2);
    assert_true(mil_value_ints(&v, ints, 8, &n_found) && ints[0] == 0 && ints[1] == 1);
    v = value_of(&t, MIL_INT64, (n = 1, &n), (int64_t[]){INT64_MIN}, 8);
    assert_true(mil_value_ints(&v, ints, 8, &n_found) && ints[0] == INT64_MIN);
    v = value_of(&t, MIL_UINT64, (n = 1, &n), (uint64_t[]){UINT64_MAX}, 8);
    assert_true(mil_value_element(&v, 0) == 0x1p64);

    /* Many at a time are what each is alone, from any address; outside there is nothing. */
    enum { MANY = 1200 };
    static uint8_t bytes[8 * MANY + 1];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * i * 7 + i / 251);
    static const enum mil_dtype kinds[] = {MIL_FP16, MIL_FP32, MIL_BF16, MIL_UINT8, MIL_INT4};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        float many[MANY + 2];
        v = value_of(&t, kinds[k], (n = MANY, &n), bytes + 1, sizeof bytes - 1);
        for (int64_t first = -1; first <= 1; first++) {
            mil_value_floats(many, &v, first, MANY);
            for (int64_t i = 0; i < MANY; i++) {
                float one = (float)mil_value_element(&v, first + i);
                assert_true(isnan(one) ? isnan(many[i]) : many[i] == one);
            }
        }
    }
    mil_value_floats((float[]){0}, &v, MANY, 0);

    /* Fewer bytes than the type announces, or none at hand: nothing is read. */
    v = value_of(&t, MIL_UINT64, (n = 1, &n), (uint64_t[]){UINT64_MAX}, 7);
    assert_false(mil_value_ints(&v, ints, 8, &n_found));
    v = value_of(&t, MIL_INT32, (n = 1, &n), NULL, 4);
    v.kind = MIL_VALUE_BLOB;
    assert_false(mil_value_ints(&v, ints, 8, &n_found));
    assert_true(isnan(mil_value_element(&v, 0)));
    assert_false(mil_value_ints(NULL, ints, 8, &n_found));
    n = MIL_DIM_UNKNOWN;
    assert_false(mil_value_ints(&v, ints, 8, &n_found));

    struct str s = {"valid", 5}, found;
    v = value_of(&t, MIL_STRING, (n = 1, &n), NULL, 0);
    assert_false(mil_value_string(&v, &found));
    v.strings = &s;
    assert_true(mil_value_string(&v, &found) && found.n == 5 && found.p == s.p);
    assert_false(mil_value_ints(&v, ints, 8, &n_found));
    assert_false(mil_value_string(NULL, &found));
}

static void test_look_ups(void **state)
{
    (void)state;
    struct mil_type t;
    int64_t n = 1;
    struct mil_value v = value_of(&t, MIL_INT32, &n, (int32_t[]){7}, 4);
    struct mil_named_value val = {"val", &v};
    struct mil_op constant = {.type = "const", .n_attributes = 1, .attributes = &val}, add = {.type = "add"};
    struct mil_var c = {.name = "c", .op = &constant}, x = {.name = "x", .op = &add}, input = {.name = "i"};
    struct mil_binding first = {.var = &c}, second = {.value = &v},
                       several[2] = {{.var = &x}, {.var = &input}};
    struct mil_arg args[3] = {{"axis", 1, &first}, {"pad", 1, &second}, {"values", 2, several}};
    struct mil_op op = {.type = "concat", .n_args = 3, .args = args};
    assert_ptr_equal(mil_arg_find(&op, "values"), &args[2]);
    assert_null(mil_arg_find(&op, "value"));
    assert_ptr_equal(mil_arg_var(&op, "axis"), &c);
    assert_null(mil_arg_var(&op, "pad"));
    assert_null(mil_arg_var(&op, "values"));
    assert_ptr_equal(mil_arg_value(&op, "axis"), &v);
    assert_ptr_equal(mil_arg_value(&op, "pad"), &v);
    assert_null(mil_arg_value(&op, "values"));
    assert_null(mil_arg_value(&op, "absent"));
    assert_null(mil_binding_value(&several[0]));
    assert_null(mil_binding_value(&several[1]));
    assert_ptr_equal(mil_attribute(&constant, "val"), &v);
    assert_null(mil_attribute(&constant, "name"));
    assert_true(mil_op_is(&op, "concat"));
    assert_false(mil_op_is(NULL, "concat"));
}

static void test_functions(void **state)
{
    (void)state;
    struct mil_model *m = mil_model_new(9);
    assert_null(mil_function_find(m, "main"));
    assert_string_equal(mil_default_function_name(m), "main");
    struct mil_function infer = {.name = "infer"}, prefill = {.name = "prefill"};
    struct mil_function *functions[2] = {&infer, &prefill};
    m->program->functions = functions;
    m->program->n_functions = 1;
    struct mil_function_description d[2] = {{.name = NULL}, {.name = "prefill"}};
    m->description.functions = d;
    m->description.n_functions = 1;
    assert_string_equal(mil_default_function_name(m), "infer");
    assert_ptr_equal(mil_function_description_find(m, "infer"), &d[0]);
    assert_null(mil_function_description_find(m, "prefill"));
    m->program->n_functions = 2;
    m->description.n_functions = 2;
    d[0].name = "infer";
    m->description.default_function_name = "prefill";
    assert_string_equal(mil_default_function_name(m), "prefill");
    assert_ptr_equal(mil_function_find(m, "prefill"), &prefill);
    assert_ptr_equal(mil_function_description_find(m, "prefill"), &d[1]);
    m->program->n_functions = 0;
    mil_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dtypes),   cmocka_unit_test(test_types),     cmocka_unit_test(test_values),
        cmocka_unit_test(test_look_ups), cmocka_unit_test(test_functions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
