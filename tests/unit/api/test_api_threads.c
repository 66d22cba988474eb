// links: convert runtime
// labels: threads
/* One package, several threads of the caller: each session and each prediction has the bits that it has alone. */
#include <pthread.h>
#include "api.h"
#include "packages.h"

enum { N_THREADS = 3, N_PROMPT = 21, N = 10 };

struct job {
    mk_package *package;
    int32_t prompt[N_PROMPT];
    size_t n_logits;
    float *logits; /* [N + 1, n_logits] */
    mk_status status;
};

/* Logits after the prompt and after each of N greedy tokens. */
static void *run_job(void *arg)
{
    struct job *j = arg;
    mk_session *s = NULL;
    mk_sampler *sampler = NULL;
    j->status = mk_sampler_new(&sampler, j->package, "{\"greedy\": true}", NULL);
    if (!j->status)
        j->status = mk_session_new(&s, j->package, NULL);
    if (!j->status)
        j->status = mk_session_sync(s, j->prompt, N_PROMPT, NULL, NULL, NULL);
    for (size_t i = 0; !j->status && i <= N; i++) {
        int32_t id;
        memcpy(j->logits + i * j->n_logits, mk_session_logits(s), j->n_logits * sizeof *j->logits);
        j->status = mk_sampler_pick(sampler, mk_session_logits(s), j->n_logits, NULL, 0, &id, NULL);
        if (!j->status)
            j->status = mk_session_step(s, id, NULL);
    }
    mk_session_free(s);
    mk_sampler_free(sampler);
    return NULL;
}

static void test_sessions(void **state)
{
    (void)state;
    static const struct package_shape shapes[] = {{"qwen3-tiny", 64, 16, 1, CONVERT_MLMODELC},
                                                  {"qwen3_5-equal", 64, 16, 2, CONVERT_MLMODELC}};
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        char *path = package_make(&shapes[k]);
        mk_library *library;
        mk_package *package;
        mk_options options = {.size = sizeof options, .threads = 2};
        struct job jobs[2][N_THREADS];
        pthread_t threads[N_THREADS];
        OK(mk_library_open(&library, &options, e));
        OK(mk_package_open(&package, library, path, NULL, e));
        for (int together = 0; together < 2; together++) {
            for (int i = 0; i < N_THREADS; i++) {
                struct job *j = &jobs[together][i];
                *j = (struct job){.package = package, .n_logits = (size_t)mk_package_vocab_size(package)};
                j->logits = xcalloc((N + 1) * j->n_logits, sizeof *j->logits);
                for (int t = 0; t < N_PROMPT; t++)
                    j->prompt[t] = (i * 37 + t * 11) % (int)j->n_logits;
                if (together)
                    assert_int_equal(pthread_create(&threads[i], NULL, run_job, j), 0);
                else
                    run_job(j);
            }
            for (int i = 0; together && i < N_THREADS; i++)
                pthread_join(threads[i], NULL);
        }
        for (int i = 0; i < N_THREADS; i++) {
            assert_int_equal(jobs[0][i].status, MK_OK);
            assert_int_equal(jobs[1][i].status, MK_OK);
            assert_memory_equal(jobs[0][i].logits, jobs[1][i].logits,
                                (N + 1) * jobs[0][i].n_logits * sizeof(float));
            free(jobs[0][i].logits);
            free(jobs[1][i].logits);
        }
        mk_package_close(package);
        mk_library_close(library);
        free(path);
    }
}

struct prediction {
    mk_function *function;
    float hidden[256];
    int64_t n_hidden;
    float result[2][512]; /* of the first output, two runs */
    size_t n;
    mk_status status;
};

static void *predict(void *arg)
{
    struct prediction *p = arg;
    static const char *const names[] = {"hidden_states"};
    mk_tensor in = {
        .size = sizeof in, .type = MK_F32, .rank = 3, .dims = {1, 1, p->n_hidden}, .data = p->hidden};
    for (int k = 0; k < 20 && !p->status; k++) {
        mk_result *r = NULL;
        mk_tensor out = {.size = sizeof out};
        const char *name;
        p->status = mk_predict(p->function, names, &in, 1, NULL, NULL, &r, NULL);
        if (!p->status)
            p->status = mk_result_get(r, 0, &name, &out, NULL);
        if (!p->status && out.type != MK_F16)
            p->status = MK_FAILED;
        p->n = p->status ? 0 : (size_t)out.dims[out.rank - 1];
        for (size_t i = 0; i < p->n && i < 512; i++)
            p->result[k > 0][i] = f16_to_f32(((const f16 *)out.data)[i]);
        mk_result_free(r);
        if (!p->status && k > 0 && memcmp(p->result[0], p->result[1], p->n * sizeof(float)) != 0)
            p->status = MK_OUTSIDE;
    }
    return NULL;
}

static void test_predictions(void **state)
{
    (void)state;
    static const struct package_shape shape = {"qwen3-tiny", 64, 16, 1, CONVERT_MLMODELC};
    char *path = package_make(&shape), *head = path_join(path, "qwen_lm_head.mlmodelc");
    mk_library *library;
    mk_model *model;
    mk_function *function;
    struct prediction all[N_THREADS];
    pthread_t threads[N_THREADS];
    OK(mk_library_open(&library, NULL, e));
    OK(mk_model_open(&model, library, head, NULL, e));
    OK(mk_function_open(&function, model, NULL, e));
    mk_port port = {.size = sizeof port};
    OK(mk_function_port(function, MK_INPUTS, 0, &port, e));
    assert_string_equal(port.name, "hidden_states");
    assert_true(port.dims[2] <= 256);
    for (int i = 0; i < N_THREADS; i++) {
        all[i] = (struct prediction){.function = function, .n_hidden = port.dims[2]};
        for (int k = 0; k < port.dims[2]; k++)
            all[i].hidden[k] = (float)((k * 7 + i) % 13) * 0.125f - 0.5f;
        assert_int_equal(pthread_create(&threads[i], NULL, predict, &all[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(all[i].status, MK_OK);
        assert_true(all[i].n > 0);
    }
    mk_function_close(function);
    mk_model_close(model);
    mk_library_close(library);
    free(head);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sessions), cmocka_unit_test(test_predictions)};
    return cmocka_run_group_tests(tests, packages_setup, packages_teardown);
}
