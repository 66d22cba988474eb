// links: format
/* Inputs and outputs that are more than tensors, of models that coremltools wrote (tests/oracle/make_feature_models.py): images with their colour
 * layout, scale and bias, labels of a classifier, optional inputs, shapes by a list and by ranges. */
#include "api.h"
#include "base/mem.h"

static mk_library *library;

static int setup(void **state)
{
    (void)state;
    return mk_library_open(&library, NULL, NULL) ? -1 : 0;
}

static int teardown(void **state)
{
    (void)state;
    mk_library_close(library);
    return 0;
}

static mk_function *open_model(const char *name)
{
    char *path = xasprintf("%s/features/%s.mlpackage", MILKIT_TEST_DATA, name);
    mk_model *m;
    mk_function *f;
    OK(mk_model_open(&m, library, path, NULL, e));
    OK(mk_function_open(&f, m, NULL, e));
    mk_model_close(m);
    free(path);
    return f;
}

static mk_tensor tensor_of(int32_t type, const void *data, int rank, const int64_t *dims)
{
    mk_tensor t = {.size = sizeof t, .type = type, .rank = rank, .data = (void *)(uintptr_t)data};
    memcpy(t.dims, dims, sizeof *dims * (size_t)rank);
    return t;
}

static const char *const x_name[] = {"x"};

enum { HEIGHT = 2, WIDTH = 4 };

/* y = (2 x + bias) times 1, 2, 3 by the tensor's channels, whatever colour they are. */
static void test_colors(void **state)
{
    (void)state;
    static const float bias[3] = {1, 0, -3};
    for (int is_bgr = 0; is_bgr < 2; is_bgr++) {
        mk_function *f = open_model(is_bgr ? "image_bgr" : "image_rgb");
        uint8_t pixels[HEIGHT][WIDTH][4];
        float planes[3][HEIGHT][WIDTH];
        mk_port port = {.size = sizeof port};
        OK(mk_function_port(f, MK_INPUTS, 0, &port, e));
        assert_int_equal(port.color, is_bgr ? MK_BGR : MK_RGB);
        assert_int_equal(port.dims[2], HEIGHT);
        OK(mk_function_port(f, MK_OUTPUTS, 0, &port, e));
        assert_int_equal(port.color, is_bgr ? MK_BGR : MK_RGB);
        for (int i = 0; i < HEIGHT; i++)
            for (int k = 0; k < WIDTH; k++)
                for (int c = 0; c < 4; c++) {
                    pixels[i][k][c] = (uint8_t)(i * 41 + k * 9 + c * 17);
                    if (c < 3)
                        planes[is_bgr ? 2 - c : c][i][k] = pixels[i][k][c];
                }
        /* With three colours, with a fourth that does not count, from the last row up, and as planes. */
        uint8_t three[HEIGHT][WIDTH][3];
        for (int i = 0; i < HEIGHT * WIDTH * 3; i++)
            three[i / 3 / WIDTH][i / 3 % WIDTH][i % 3] = pixels[i / 3 / WIDTH][i / 3 % WIDTH][i % 3];
        mk_tensor in[4] = {tensor_of(MK_U8, three, 3, (const int64_t[]){HEIGHT, WIDTH, 3}),
                           tensor_of(MK_U8, pixels, 3, (const int64_t[]){HEIGHT, WIDTH, 4}),
                           tensor_of(MK_U8, pixels[HEIGHT - 1], 3, (const int64_t[]){HEIGHT, WIDTH, 3}),
                           tensor_of(MK_F32, planes, 4, (const int64_t[]){1, 3, HEIGHT, WIDTH})};
        in[2].strides[0] = -(int64_t)sizeof pixels[0];
        in[2].strides[1] = 4;
        in[2].strides[2] = 1;
        for (int n = 0; n < 4; n++) {
            mk_result *r;
            const char *name;
            mk_tensor y = {.size = sizeof y}, image = {.size = sizeof image};
            OK(mk_predict(f, x_name, &in[n], 1, NULL, NULL, &r, e));
            OK(mk_result_get(r, 0, &name, &y, e));
            OK(mk_result_pixels(r, 0, &image, e));
            assert_int_equal(y.rank, 4);
            assert_int_equal(image.type, MK_U8);
            assert_int_equal(image.rank, 3);
            assert_int_equal(image.dims[0], HEIGHT);
            assert_int_equal(image.dims[1], WIDTH);
            assert_int_equal(image.dims[2], 3);
            for (int i = 0; i < HEIGHT; i++)
                for (int k = 0; k < WIDTH; k++)
                    for (int c = 0; c < 3; c++) {
                        int row = n == 2 ? HEIGHT - 1 - i : i, channel = is_bgr ? 2 - c : c;
                        float want = (2.0f * pixels[row][k][c] + bias[c]) * (float)(channel + 1);
                        float got = ((const float *)y.data)[(channel * HEIGHT + i) * WIDTH + k];
                        if (is_bgr) /* coremltools' bias has the order of the tensor */
                            want = (2.0f * pixels[row][k][c] + bias[channel]) * (float)(channel + 1);
                        assert_true(got == want);
                        want = want < 0 ? 0 : want > 255 ? 255 : want;
                        assert_int_equal(((const uint8_t *)image.data)[(i * WIDTH + k) * 3 + c], (int)want);
                    }
            FAILS(mk_result_labels(r, 0, &y, e), MK_USAGE, "by label");
            FAILS(mk_result_pixels(r, 1, &y, e), MK_USAGE, "not an image");
            mk_result_free(r);
        }
        mk_tensor wrong = tensor_of(MK_U8, three, 3, (const int64_t[]){WIDTH, HEIGHT, 3});
        mk_result *r;
        FAILS(mk_predict(f, x_name, &wrong, 1, NULL, NULL, &r, e), MK_USAGE, "found the shape [1, 3, 4, 2]");
        mk_function_close(f);
    }
}

static void test_gray(void **state)
{
    (void)state;
    mk_function *f = open_model("image_gray");
    uint8_t pixels[HEIGHT][WIDTH] = {{0, 1, 2, 3}, {100, 253, 254, 255}};
    static const uint8_t want[HEIGHT * WIDTH] = {0, 2, 2, 4, 100, 254, 254, 255}; /* + 0.5, ties to even */
    mk_tensor in = tensor_of(MK_U8, pixels, 2, (const int64_t[]){HEIGHT, WIDTH}),
              image = {.size = sizeof image};
    mk_result *r;
    OK(mk_predict(f, x_name, &in, 1, NULL, NULL, &r, e));
    OK(mk_result_pixels(r, 0, &image, e));
    assert_int_equal(image.rank, 2);
    assert_memory_equal(image.data, want, sizeof want);
    mk_result_free(r);
    mk_function_close(f);
}

static void test_classifier(void **state)
{
    (void)state;
    static const char *const labels[3] = {"cat", "dog", "a \"bird\""};
    mk_function *f = open_model("classifier_text");
    mk_port port = {.size = sizeof port};
    assert_int_equal(mk_function_ports(f, MK_OUTPUTS), 2);
    OK(mk_function_port(f, MK_OUTPUTS, 0, &port, e));
    assert_string_equal(port.name, "classLabel");
    assert_int_equal(port.type, MK_TEXT);
    OK(mk_function_port(f, MK_OUTPUTS, 1, &port, e));
    assert_string_equal(port.name, "classLabel_probs");
    assert_int_equal(port.type, MK_SCORES);
    assert_int_equal(port.dims[0], 3);
    for (int best = 0; best < 3; best++) {
        float x[3] = {0};
        mk_tensor in = tensor_of(MK_F32, x, 2, (const int64_t[]){1, 3}), label = {.size = sizeof label},
                  numbers = label, keys = label;
        const char *name;
        mk_result *r;
        x[best] = 1;
        OK(mk_predict(f, x_name, &in, 1, NULL, NULL, &r, e));
        assert_int_equal(mk_result_count(r), 2);
        OK(mk_result_get(r, 0, &name, &label, e));
        assert_string_equal(name, "classLabel");
        assert_int_equal(label.type, MK_TEXT);
        assert_string_equal(*(const char *const *)label.data, labels[best]);
        OK(mk_result_get(r, 1, &name, &numbers, e));
        OK(mk_result_labels(r, 1, &keys, e));
        FAILS(mk_result_labels(r, 0, &label, e), MK_USAGE, "by label");
        for (int i = 0; i < 3; i++) {
            float want = i == best ? 0.57611688f : 0.21194156f;
            assert_string_equal(((const char *const *)keys.data)[i], labels[i]);
            assert_true(((const float *)numbers.data)[i] > want - 1e-6f &&
                        ((const float *)numbers.data)[i] < want + 1e-6f);
        }
        if (best == 2)
            mk_function_close(f); /* the result keeps what it needs */
        assert_string_equal(((const char *const *)keys.data)[0], "cat");
        mk_result_free(r);
    }
}

static void predict_pair(mk_function *f, int n, float first, float second)
{
    static const char *const names[] = {"x", "bias"};
    static const float x[2] = {1, 2}, bias[2] = {10, 20};
    const mk_tensor in[2] = {tensor_of(MK_F32, x, 1, (const int64_t[]){2}),
                             tensor_of(MK_F32, bias, 1, (const int64_t[]){2})};
    mk_tensor y = {.size = sizeof y};
    const char *name;
    mk_result *r;
    OK(mk_predict(f, names, in, (size_t)n, NULL, NULL, &r, e));
    OK(mk_result_get(r, 0, &name, &y, e));
    assert_true(((const float *)y.data)[0] == first && ((const float *)y.data)[1] == second);
    mk_result_free(r);
}

static void test_optional(void **state)
{
    (void)state;
    mk_function *f = open_model("optional");
    mk_port port = {.size = sizeof port};
    mk_result *r;
    OK(mk_function_port(f, MK_INPUTS, 0, &port, e));
    assert_false(port.is_optional);
    OK(mk_function_port(f, MK_INPUTS, 1, &port, e));
    assert_true(port.is_optional);
    predict_pair(f, 2, 11, 22);
    predict_pair(f, 1, 2.5f, 3.5f);
    FAILS(mk_predict(f, NULL, NULL, 0, NULL, NULL, &r, e), MK_USAGE, "needs the input x");
    mk_function_close(f);
}

static void test_shapes(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        int64_t n;
        const char *error;
    } cases[] = {{"enumerated", 2, NULL},
                 {"enumerated", 5, NULL},
                 {"enumerated", 3, "expected [1, 2] or [1, 5], found the shape [1, 3]"},
                 {"ranged", 2, NULL},
                 {"ranged", 4, NULL},
                 {"ranged", 5, "expected 2 to 4 on axis 1, found the shape [1, 5]"},
                 {"ranged", 1, "expected 2 to 4 on axis 1, found the shape [1, 1]"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mk_function *f = open_model(cases[i].model);
        static const float x[5] = {1, 2, 3, 4, 5};
        mk_tensor in = tensor_of(MK_F32, x, 2, (const int64_t[]){1, cases[i].n}), y = {.size = sizeof y};
        const char *name;
        mk_result *r;
        if (cases[i].error) {
            FAILS(mk_predict(f, x_name, &in, 1, NULL, NULL, &r, e), MK_USAGE, cases[i].error);
        } else {
            OK(mk_predict(f, x_name, &in, 1, NULL, NULL, &r, e));
            OK(mk_result_get(r, 0, &name, &y, e));
            assert_int_equal(y.dims[1], cases[i].n);
            for (int64_t k = 0; k < cases[i].n; k++)
                assert_true(((const float *)y.data)[k] == 2 * x[k]);
            mk_result_free(r);
        }
        mk_function_close(f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_colors), cmocka_unit_test(test_gray),
                                       cmocka_unit_test(test_classifier), cmocka_unit_test(test_optional),
                                       cmocka_unit_test(test_shapes)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
