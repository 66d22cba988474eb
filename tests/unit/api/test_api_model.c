// links: convert runtime
/* Single models through the door: a language model by hand, part by part, and everything a caller can get wrong. */
#include <math.h>
#include "api.h"
#include "packages.h"

enum { CONTEXT = 64, BATCH = 16 };
static const struct package_shape tiny = {"qwen3-tiny", CONTEXT, BATCH, 2, CONVERT_MLPACKAGE};

static mk_library *library;
static char *folder;

static int setup(void **state)
{
    int status = packages_setup(state);
    folder = package_make(&tiny);
    return status || mk_library_open(&library, NULL, NULL) ? -1 : 0;
}

static int teardown(void **state)
{
    free(folder);
    mk_library_close(library);
    return packages_teardown(state);
}

static mk_function *open_part(const char *name, const char *function)
{
    char *path = path_join(folder, name);
    mk_model *m;
    mk_function *f;
    OK(mk_model_open(&m, library, path, NULL, e));
    OK(mk_function_open(&f, m, function, e));
    mk_model_close(m);
    free(path);
    return f;
}

static mk_tensor tensor_of(int32_t type, void *data, int rank, const int64_t *dims)
{
    mk_tensor t = {.size = sizeof t, .type = type, .rank = rank, .data = data};
    memcpy(t.dims, dims, sizeof *dims * (size_t)rank);
    return t;
}

/* The contract's calls for one token, as any Core ML program would make them. */
static void by_hand(mk_function *embeddings, mk_function *const *chunks, mk_function *head, mk_state *s,
                    int32_t id, int32_t position, float *logits, size_t *n_logits)
{
    static const char *const chunk_inputs[] = {"hidden_states", "position_ids", "causal_mask", "current_pos"};
    float mask[CONTEXT];
    mk_result *r, *next;
    const char *name, *input = "input_ids";
    mk_tensor in = tensor_of(MK_I32, &id, 2, (const int64_t[]){1, 1}), hidden = {.size = sizeof hidden};
    for (int i = 0; i < CONTEXT; i++)
        mask[i] = i <= position ? 0 : -INFINITY;
    OK(mk_predict(embeddings, &input, &in, 1, NULL, NULL, &r, e));
    for (int i = 0; i < 2; i++) {
        OK(mk_result_get(r, 0, &name, &hidden, e));
        mk_tensor at = tensor_of(MK_I32, &position, 1, (const int64_t[]){1});
        mk_tensor rows = tensor_of(MK_F32, mask, 4, (const int64_t[]){1, 1, 1, CONTEXT});
        const mk_tensor inputs[] = {hidden, at, rows, at};
        OK(mk_predict(chunks[i], chunk_inputs, inputs, 4, s, NULL, &next, e));
        mk_result_free(r);
        r = next;
    }
    OK(mk_result_get(r, 0, &name, &hidden, e));
    assert_string_equal(name, "output_hidden_states");
    OK(mk_predict(head, chunk_inputs, &hidden, 1, NULL, NULL, &next, e));
    mk_result_free(r);
    *n_logits = 0;
    for (size_t i = 0; i < mk_result_count(next); i++) {
        mk_tensor part = {.size = sizeof part};
        OK(mk_result_get(next, i, &name, &part, e));
        assert_int_equal(part.type, MK_F16);
        for (int64_t k = 0; k < part.dims[2]; k++)
            logits[(*n_logits)++] = f16_to_f32(((const f16 *)part.data)[k]);
    }
    mk_result_free(next);
}

static void test_language_model(void **state)
{
    (void)state;
    mk_function *embeddings = open_part("qwen_embeddings.mlpackage", NULL),
                *head = open_part("qwen_lm_head.mlpackage", NULL),
                *chunks[] = {open_part("qwen_FFN_PF_chunk_01of02.mlpackage", "infer"),
                             open_part("qwen_FFN_PF_chunk_02of02.mlpackage", "infer")};
    mk_state *s;
    mk_package *package;
    mk_session *session;
    OK(mk_state_new(&s, chunks[0], e));
    OK(mk_package_open(&package, library, folder, NULL, e));
    OK(mk_session_new(&session, package, e));
    size_t n, n_vocab = (size_t)mk_package_vocab_size(package);
    float *logits = xcalloc(n_vocab, sizeof *logits);
    for (int32_t position = 0; position < 6; position++) {
        int32_t id = 70 + 5 * position;
        OK(mk_session_step(session, id, e));
        by_hand(embeddings, chunks, head, s, id, position, logits, &n);
        assert_int_equal(n, n_vocab);
        const float *expected = mk_session_logits(session);
        double ab = 0, aa = 0, bb = 0;
        for (size_t i = 0; i < n; i++) {
            ab += (double)logits[i] * (double)expected[i];
            aa += (double)logits[i] * (double)logits[i];
            bb += (double)expected[i] * (double)expected[i];
        }
        /* Between the parts the residual stream was rounded to fp16 here. */
        assert_true(ab / sqrt(aa * bb) > 0.99999);
    }
    free(logits);
    mk_session_free(session);
    mk_package_close(package);
    mk_state_free(s);
    for (int i = 0; i < 2; i++)
        mk_function_close(chunks[i]);
    mk_function_close(embeddings);
    mk_function_close(head);
}

static void test_ports(void **state)
{
    (void)state;
    mk_function *f = open_part("qwen_FFN_PF_chunk_01of02.mlpackage", "prefill");
    mk_port port = {.size = sizeof port};
    assert_int_equal(mk_function_ports(f, MK_INPUTS), 4);
    assert_int_equal(mk_function_ports(f, MK_OUTPUTS), 1);
    assert_int_equal(mk_function_ports(f, MK_STATES), 1);
    assert_int_equal(mk_function_ports(f, 9), 0);
    OK(mk_function_port(f, MK_STATES, 0, &port, e));
    assert_string_equal(port.name, "model_model_kv_cache_0");
    assert_int_equal(port.type, MK_F16);
    assert_int_equal(port.rank, 4);
    assert_int_equal(port.dims[2], CONTEXT);
    FAILS(mk_function_port(f, MK_STATES, 1, &port, e), MK_USAGE, "port");
    FAILS(mk_function_port(f, MK_STATES, 0, &(mk_port){0}, e), MK_USAGE, "size");
    mk_function_close(f);
    f = open_part("qwen_embeddings.mlpackage", NULL);
    OK(mk_function_port(f, MK_INPUTS, 0, &port, e));
    assert_int_equal(port.dims[1], 1); /* the default of the enumerated shapes */
    mk_function_close(f);
    char *path = path_join(folder, "qwen_FFN_PF_chunk_01of02.mlpackage");
    mk_model *m;
    OK(mk_model_open(&m, library, path, NULL, e));
    assert_int_equal(mk_model_functions(m), 2);
    assert_null(mk_model_function_name(m, 2));
    FAILS(mk_function_open(&f, m, "train", e), MK_USAGE, "train");
    mk_model_close(m);
    free(path);
    assert_int_not_equal(mk_model_open(&m, library, "no.mlpackage", NULL, NULL), MK_OK);
    assert_null(m);
}

static void test_shapes(void **state)
{
    (void)state;
    mk_function *f = open_part("qwen_embeddings.mlpackage", NULL);
    int32_t ids[BATCH] = {1, 2, 3};
    const char *name = "input_ids", *both[] = {name, name}, *other = "ids";
    mk_result *r;
    mk_tensor in = tensor_of(MK_I32, ids, 2, (const int64_t[]){1, BATCH}), out = {.size = sizeof out};
    for (int round = 0; round < 3; round++) { /* each shape has its plan, made once */
        in.dims[1] = round == 1 ? 1 : BATCH;
        OK(mk_predict(f, &name, &in, 1, NULL, NULL, &r, e));
        OK(mk_result_get(r, 0, &name, &out, e));
        assert_int_equal(out.dims[1], in.dims[1]);
        FAILS(mk_result_get(r, 1, &name, &out, e), MK_USAGE, "1");
        name = "input_ids";
        mk_result_free(r);
    }
    in.dims[1] = 7;
    FAILS(mk_predict(f, &name, &in, 1, NULL, NULL, &r, e), MK_USAGE, "7");
    assert_null(r);
    in.dims[1] = BATCH;
    in.rank = 1;
    FAILS(mk_predict(f, &name, &in, 1, NULL, NULL, &r, e), MK_USAGE, "input_ids");
    in.rank = 2;
    FAILS(mk_predict(f, &other, &in, 1, NULL, NULL, &r, e), MK_USAGE, "no input ids");
    FAILS(mk_predict(f, &name, &in, 0, NULL, NULL, &r, e), MK_USAGE, "needs the input input_ids");
    FAILS(mk_predict(f, both, (const mk_tensor[]){in, in}, 2, NULL, NULL, &r, e), MK_USAGE, "twice");
    in.type = 77;
    FAILS(mk_predict(f, &name, &in, 1, NULL, NULL, &r, e), MK_USAGE, "element type");
    in.type = MK_I32;
    in.dims[0] = -1;
    FAILS(mk_predict(f, &name, &in, 1, NULL, NULL, &r, e), MK_USAGE, "axis 0");
    in.dims[0] = 1;
    in.data = NULL;
    FAILS(mk_predict(f, &name, &in, 1, NULL, NULL, &r, e), MK_USAGE, "no data");
    /* Numbers that are not whole, ids that are not in the table. */
    float half[BATCH] = {0.5f};
    in.data = half;
    in.type = MK_F32;
    FAILS(mk_predict(f, &name, &in, 1, NULL, NULL, &r, e), MK_USAGE, "element 0");
    ids[2] = 1 << 30;
    in = tensor_of(MK_I32, ids, 2, (const int64_t[]){1, BATCH});
    FAILS(mk_predict(f, &name, &in, 1, NULL, NULL, &r, e), MK_FAILED, NULL);
    mk_function_close(f);
}

/* Any strides, any type: the same numbers give the same result. */
static void test_strides(void **state)
{
    (void)state;
    mk_function *f = open_part("qwen_lm_head.mlpackage", NULL);
    const char *name = "hidden_states", *out_name;
    mk_port port = {.size = sizeof port};
    OK(mk_function_port(f, MK_INPUTS, 0, &port, e));
    int64_t n = port.dims[2];
    float *dense = xcalloc((size_t)n, sizeof *dense);
    double *apart = xcalloc((size_t)n * 3, sizeof *apart);
    f16 *backwards = xcalloc((size_t)n, sizeof *backwards);
    for (int64_t i = 0; i < n; i++) {
        dense[i] = (float)(i % 9) * 0.25f - 1;
        apart[3 * i] = (double)dense[i];
        backwards[n - 1 - i] = f32_to_f16(dense[i]);
    }
    mk_tensor inputs[3];
    inputs[0] = tensor_of(MK_F32, dense, 3, port.dims);
    inputs[1] = tensor_of(MK_F64, apart, 3, port.dims);
    inputs[1].strides[2] = 3 * (int64_t)sizeof *apart;
    inputs[2] = tensor_of(MK_F16, backwards + n - 1, 3, port.dims);
    inputs[2].strides[2] = -(int64_t)sizeof *backwards;
    mk_result *results[3];
    mk_tensor first = {.size = sizeof first}, other = {.size = sizeof other};
    for (int i = 0; i < 3; i++) {
        OK(mk_predict(f, &name, &inputs[i], 1, NULL, NULL, &results[i], e));
        OK(mk_result_get(results[0], 0, &out_name, &first, e));
        OK(mk_result_get(results[i], 0, &out_name, &other, e));
        assert_memory_equal(first.data, other.data, (size_t)first.dims[2] * sizeof(f16));
    }
    for (int i = 0; i < 3; i++)
        mk_result_free(results[i]);
    free(dense);
    free(apart);
    free(backwards);
    mk_function_close(f);
}

static void test_states(void **state)
{
    (void)state;
    mk_function *f = open_part("qwen_FFN_PF_chunk_01of02.mlpackage", "infer");
    mk_state *s;
    mk_tensor t = {.size = sizeof t};
    OK(mk_state_new(&s, f, e));
    OK(mk_state_read(s, "model_model_kv_cache_0", &t, e));
    assert_int_equal(t.rank, 4);
    size_t n = 1;
    for (int i = 0; i < t.rank; i++)
        n *= (size_t)t.dims[i];
    float *numbers = xcalloc(n, sizeof *numbers), *back = xcalloc(n, sizeof *back);
    for (size_t i = 0; i < n; i++)
        numbers[i] = (float)(i % 1000) * 0.5f;
    t.type = MK_F32;
    t.data = numbers;
    OK(mk_state_write(s, "model_model_kv_cache_0", &t, e));
    t.data = back;
    OK(mk_state_read(s, "model_model_kv_cache_0", &t, e));
    assert_memory_equal(numbers, back, n * sizeof *back);
    /* Whole numbers are cut to their type, and what is not a number becomes 0. */
    int8_t *cut = xcalloc(n, 1);
    numbers[0] = NAN;
    numbers[1] = -INFINITY;
    numbers[2] = 300;
    t.data = numbers;
    OK(mk_state_write(s, "model_model_kv_cache_0", &t, e));
    t.type = MK_I8;
    t.data = cut;
    OK(mk_state_read(s, "model_model_kv_cache_0", &t, e));
    assert_int_equal(cut[0], 0);
    assert_int_equal(cut[1], -128);
    assert_int_equal(cut[2], 127);
    free(cut);
    t.type = MK_F32;
    t.data = back;
    t.dims[0]++;
    FAILS(mk_state_read(s, "model_model_kv_cache_0", &t, e), MK_USAGE, "shape");
    FAILS(mk_state_write(s, "kv", &t, e), MK_USAGE, "no state kv");
    mk_result *r;
    static const char *const names[] = {"hidden_states", "position_ids", "causal_mask", "current_pos"};
    mk_port port = {.size = sizeof port};
    OK(mk_function_port(f, MK_INPUTS, 0, &port, e));
    float *hidden = xcalloc((size_t)port.dims[2] + CONTEXT, sizeof *hidden);
    int32_t zero = 0;
    mk_tensor row = tensor_of(MK_F32, hidden, 3, port.dims);
    mk_tensor at = tensor_of(MK_I32, &zero, 1, (const int64_t[]){1});
    mk_tensor mask = tensor_of(MK_F32, hidden, 4, (const int64_t[]){1, 1, 1, CONTEXT});
    const mk_tensor inputs[] = {row, at, mask, at};
    FAILS(mk_predict(f, names, inputs, 4, NULL, NULL, &r, e), MK_USAGE, "needs a state");
    OK(mk_predict(f, names, inputs, 4, s, NULL, &r, e));
    mk_result_free(r);
    free(hidden);
    free(numbers);
    free(back);
    mk_state_free(s);
    mk_function_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_language_model), cmocka_unit_test(test_ports),  cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_strides),        cmocka_unit_test(test_states),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
