// links: convert device
/* The coreml backend against the stand-in: the engine's own bits where both round at the same seams, what the system may do
 * with arrays and states, its failures, lifetimes, plans. */
#include <malloc.h>
#include "coreml/coreml.h"
#include "packages.h"
#include "standin.h"

extern const struct backend backend_engine;

/* ---- the engine, rounding what leaves a function as Core ML does ---- */

static struct backend rounding;

static bool execute_and_round(struct backend_run *r, struct backend_states *states, struct err *e)
{
    bool ok = backend_engine.run_execute(r, states, e);
    for (int i = 0; ok && i < r->function->n_outputs; i++)
        backend_engine.run_round_output(r, i);
    return ok;
}

static struct model *load(const char *name, int n_chunks, enum convert_format format, bool by_coreml)
{
    const struct package_shape shape = {name, 64, 8, n_chunks, format};
    rounding = backend_engine;
    rounding.name = "rounding";
    rounding.run_execute = execute_and_round;
    rounding.batch_open = NULL;
    rounding.reads_programs = false;
    return package_load_with(&shape, &(struct package_extra){0},
                             &(struct model_options){.n_threads = 1,
                                                     .backend = by_coreml ? NULL : &rounding,
                                                     .backend_name = by_coreml ? "coreml" : NULL});
}

static void make_ids(int32_t *ids, size_t n, const struct model *m)
{
    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)((i * 37 + 11) % (size_t)m->vocab_size);
}

static void assert_same_states(struct session *a, struct session *b)
{
    assert_int_equal(session_states(a)->n, session_states(b)->n);
    for (int i = 0; i < session_states(a)->n; i++) {
        const struct backend_state *s = &session_states(a)->list[i], *t = session_find_state(b, s->name);
        assert_non_null(t);
        f16 *x = xcalloc((size_t)s->n_elems, sizeof *x), *y = xcalloc((size_t)s->n_elems, sizeof *y);
        session_read_state(a, s, x);
        session_read_state(b, t, y);
        assert_memory_equal(x, y, sizeof *x * (size_t)s->n_elems);
        free(x);
        free(y);
    }
}

/* Prompt in batches and token by token, back to a prefix, and a session's copy in a file. */
static void compare(const char *name, int n_chunks, enum convert_format format)
{
    enum { N = 43 };
    struct model *ours = load(name, n_chunks, format, true), *theirs = load(name, n_chunks, format, false);
    struct session *a = NULL, *b = NULL;
    char *path = path_join(packages_scratch, "session");
    int32_t ids[N];
    make_ids(ids, N, ours);
    assert_string_equal(ours->device, "stand-in for Core ML");
    ASSERT_OK(session_new(&a, ours, e));
    ASSERT_OK(session_new(&b, theirs, e));
    for (int round = 0; round < 3; round++) {
        if (round == 1)
            ids[21] ^= 1;
        if (round == 2) {
            ASSERT_OK(session_save(a, path, e));
            session_reset(a);
            ASSERT_OK(session_load(a, path, e));
            ids[N - 1] ^= 1;
        }
        ASSERT_OK(session_sync(a, ids, N, NULL, NULL, e));
        ASSERT_OK(session_sync(b, ids, N, NULL, NULL, e));
        if (memcmp(session_logits(a), session_logits(b), sizeof(float) * (size_t)ours->vocab_size) != 0)
            fail_msg("%s, %d chunks, round %d: other logits than the engine's", name, n_chunks, round);
        assert_same_states(a, b);
    }
    remove(path);
    free(path);
    session_free(a);
    session_free(b);
    model_close(ours);
    model_close(theirs);
    assert_int_equal(standin_living(), 0);
}

static void test_the_engine_s_bits(void **state)
{
    (void)state;
    compare("qwen3-gqa8", 2, CONVERT_MLMODELC);
    compare("qwen3-gqa8", 1, CONVERT_MLPACKAGE);
    compare("gemma3-linear", 1, CONVERT_MLMODELC);
    compare("qwen3_5-equal", 2, CONVERT_MLMODELC);
    compare("qwen3_5_moe-tiny", 1, CONVERT_MLMODELC);
    assert_true(standin_backings_used() > 0);
    assert_true(standin_padded_outputs() > 0);
}

/* Arrays without gaps that say strides of 0; memory of ours refused. */
static void test_liberties(void **state)
{
    static const char *const words[] = {"zero-strides", "no-backings"};
    (void)state;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        standin_set(words[i]);
        compare("qwen3-gqa8", 2, CONVERT_MLMODELC);
    }
    standin_set(NULL);
}

/* Recurrent states as Core ML shows them: a snapshot loses what fp16 does not hold, and no more. */
static void test_half_states(void **state)
{
    enum { N = 40 };
    (void)state;
    struct model *ours = load("qwen3_5-equal", 1, CONVERT_MLMODELC, true),
                 *theirs = load("qwen3_5-equal", 1, CONVERT_MLMODELC, false);
    struct session *a = NULL, *b = NULL;
    int32_t ids[N];
    size_t reused = 0;
    make_ids(ids, N, ours);
    standin_set("half-states");
    ASSERT_OK(session_new(&a, ours, e));
    ASSERT_OK(session_new(&b, theirs, e));
    for (int i = 0; i < session_states(a)->n; i++)
        assert_int_equal(session_states(a)->list[i].elem_bytes, 2);
    ASSERT_OK(session_sync(a, ids, N - 8, NULL, NULL, e));
    ASSERT_OK(session_sync(a, ids, N, NULL, NULL, e));
    ids[N - 2] ^= 1;
    ASSERT_OK(session_sync(a, ids, N, NULL, &reused, e));
    assert_int_equal(reused, N - 8);
    ASSERT_OK(session_sync(b, ids, N, NULL, NULL, e));
    assert_true(row_cosine(session_logits(a), session_logits(b), ours->vocab_size) > 0.9999);
    session_free(a);
    session_free(b);
    model_close(ours);
    model_close(theirs);
    standin_set(NULL);
    assert_int_equal(standin_living(), 0);
}

static void assert_holds(const struct err *e, enum err_code code, const char *text)
{
    assert_int_equal(e->code, code);
    if (!strstr(e->msg, text))
        fail_msg("expected '%s' in: %s", text, e->msg);
}

static void test_failures(void **state)
{
    static const struct {
        const char *word, *text;
    } cases[] = {
        {"fail-predict", "predicting: Unable to compute the prediction"},
        {"fail-predict",
         "ANEProgramProcessRequestDirect() Failed with status=0x1d (com.apple.appleneuralengine "
         "8); the Neural Engine failed while it ran the program"},
        {"raise", "the system raised NSInternalInconsistencyException: E5RT: something is wrong"},
    };
    (void)state;
    struct model *m = load("qwen3-gqa8", 1, CONVERT_MLMODELC, true);
    struct session *s = NULL;
    int32_t ids[3] = {1, 2, 3};
    ASSERT_OK(session_new(&s, m, e));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err e = {0};
        ASSERT_OK(session_sync(s, ids, 1, NULL, NULL, e));
        session_reset(s);
        standin_set(cases[i].word);
        assert_false(session_sync(s, ids, 3, NULL, NULL, &e));
        standin_set(NULL);
        assert_holds(&e, ERR_FAILED, cases[i].text);
        assert_int_equal(session_position(s), 0);
    }
    /* what failed while a state was read is told by the next call, and a new begin heals it */
    struct err e = {0};
    f16 *halves = xcalloc((size_t)session_states(s)->list[0].n_elems, sizeof *halves);
    standin_set("raise-state");
    session_read_state(s, &session_states(s)->list[0], halves);
    standin_set(NULL);
    free(halves);
    assert_false(session_sync(s, ids, 3, NULL, NULL, &e));
    assert_holds(&e, ERR_FAILED, "the state is not there");
    session_reset(s);
    ASSERT_OK(session_sync(s, ids, 3, NULL, NULL, e));
    session_free(s);
    model_close(m);
    assert_int_equal(standin_living(), 0);
}

static void test_refusals(void **state)
{
    const struct package_shape shape = {"qwen3-gqa8", 64, 8, 1, CONVERT_MLMODELC};
    char *path = package_make(&shape);
    struct model *m = NULL;
    (void)state;
    const struct {
        const char *word;
        struct model_options options;
        enum err_code code;
        const char *text;
    } cases[] = {
        {"fail-load", {0}, ERR_FAILED, "(com.apple.CoreML 0): ANECCompile() FAILED (11)"},
        {"fail-load", {0}, ERR_FAILED, "the Neural Engine's compiler refused the program"},
        {"old-system", {0}, ERR_FAILED, "the system raised NSInvalidArgumentException"},
        {NULL, {.precision = PRECISION_FP16}, ERR_USAGE, "precisions are of milkit's engine"},
        {NULL, {.compute_units = "gpu"}, ERR_USAGE, "cpu-only or all, found 'gpu'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model_options o = cases[i].options;
        struct err e = {0};
        o.n_threads = 1;
        o.backend_name = "coreml";
        standin_set(cases[i].word);
        assert_false(model_open(&m, path, &o, &e));
        standin_set(NULL);
        assert_holds(&e, cases[i].code, cases[i].text);
    }
    free(path);
    assert_int_equal(standin_living(), 0);
}

static void test_many_calls(void **state)
{
    enum { N = 48, ROUNDS = 60 };
    (void)state;
    struct model *m = load("qwen3-gqa8", 1, CONVERT_MLMODELC, true);
    struct session *s = NULL;
    int32_t ids[N];
    int living = 0;
    size_t bytes = 0;
    make_ids(ids, N, m);
    ASSERT_OK(session_new(&s, m, e));
    for (int i = 0; i < ROUNDS; i++) {
        session_reset(s);
        ASSERT_OK(session_feed(s, ids, N, SESSION_INFER_ONLY, NULL, NULL, NULL, e));
        if (i == 3) {
            living = standin_living();
            bytes = mallinfo2().uordblks;
        }
    }
    assert_int_equal(standin_living(), living);
    size_t now = mallinfo2().uordblks;
    if (now > bytes + 65536)
        fail_msg("%zu bytes after 4 rounds, %zu after %d", bytes, now, ROUNDS);
    session_free(s);
    model_close(m);
    assert_int_equal(standin_living(), 0);
}

struct plan {
    int n, n_engine, n_processor, n_unsaid;
    double cost;
};

static bool add_row(void *context, const struct coreml_plan_op *op, struct err *e)
{
    struct plan *p = context;
    (void)e;
    p->n++;
    p->n_engine += strcmp(op->preferred, "engine") == 0;
    p->n_processor += strcmp(op->preferred, "processor") == 0;
    p->n_unsaid += op->preferred[0] == 0;
    p->cost += isnan(op->cost) ? 0 : op->cost;
    assert_true(strncmp(op->type, "ios18.", 6) == 0);
    assert_true(op->preferred[0] == 0 || op->on_processor);
    return true;
}

static void test_plan(void **state)
{
    const struct package_shape shape = {"qwen3-tiny", 64, 8, 1, CONVERT_MLMODELC};
    char *path = package_make(&shape);
    struct model *m = NULL;
    struct plan p = {0};
    struct err e = {0};
    (void)state;
    ASSERT_OK(model_open(&m, path, &(struct model_options){.n_threads = 1}, e));
    ASSERT_OK(coreml_plan(m->package->chunks[0], "infer", COREML_CPU_AND_ENGINE, add_row, &p, e));
    const struct mil_function *f = mil_function_find(m->chunks[0].mil, "infer");
    assert_int_equal(p.n, f->block->n_ops);
    if (p.n_engine < 5 || p.n_processor < 1 || p.n_unsaid < 10)
        fail_msg("%d on the engine, %d on the processor, %d unsaid", p.n_engine, p.n_processor, p.n_unsaid);
    assert_true(fabs(p.cost - 1) < 1e-6);
    assert_false(coreml_plan(m->package->chunks[0], "none", COREML_CPU_AND_ENGINE, add_row, &p, &e));
    assert_holds(&e, ERR_FORMAT, "no function none");
    model_close(m);
    free(path);
    assert_int_equal(standin_living(), 0);
}

static int teardown(void **state)
{
    int n_left = standin_end();
    return packages_teardown(state) || n_left > 0;
}

static void test_short(void **state)
{
    (void)state;
    compare("qwen3_5-equal", 2, CONVERT_MLMODELC); /* rows of 80 and of 48 numbers: there are gaps */
}

/* With an argument: one package alone, for faults that are planted (check_planted.sh). */
int main(int argc, char **argv)
{
    const struct CMUnitTest few[] = {cmocka_unit_test(test_short)};

    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_engine_s_bits),
        cmocka_unit_test(test_liberties),
        cmocka_unit_test(test_half_states),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_many_calls),
        cmocka_unit_test(test_plan),
    };
    (void)argv;
    return argc > 1 ? cmocka_run_group_tests(few, packages_setup, teardown)
                    : cmocka_run_group_tests(tests, packages_setup, teardown);
}
