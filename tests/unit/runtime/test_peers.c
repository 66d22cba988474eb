// links: convert
/* Packages that ANEMLL's converter wrote: heads that name the best token of each part, and models that hold everything from
 * ids to logits, against numbers that another executor computed in float32 from the packages' own constants. */
#include "packages.h"

#define ANEMLL MILKIT_SHARED "/peer-packages/anemll"

static struct model *peer_open(const char *name, enum model_precision precision)
{
    struct model *m = NULL;
    char *path = path_join(ANEMLL, name);
    struct model_options o = {.n_threads = 1, .precision = precision};
    ASSERT_OK(model_open(&m, path, &o, e));
    free(path);
    return m;
}

/* A scenario of golden.json: so many tokens in full batches, the others one by one; rows of those. */
struct scenario {
    const char *name;
    size_t n_prefill, n;
};
static const struct scenario scenarios[] = {
    {"prefill64_infer36", 64, 100}, {"infer100", 0, 100}, {"prefill128_infer6", 128, 134}};

struct walk {
    struct session *s;
    const struct scenario *scenario;
    struct safetensors *golden;
    int32_t *tokens;
    size_t at;
};

static void walk_begin(struct walk *w, struct session *s, struct safetensors *golden,
                       const struct scenario *scenario)
{
    const struct st_tensor *t = safetensors_find(golden, "tokens");
    assert_non_null(t);
    *w = (struct walk){.s = s, .scenario = scenario, .golden = golden, .at = scenario->n_prefill};
    w->tokens = xmalloc(t->bytes);
    memcpy(w->tokens, t->data, t->bytes);
    session_reset(s);
    if (w->at > 0)
        ASSERT_OK(session_feed(s, w->tokens, w->at, SESSION_CONTRACT, NULL, NULL, NULL, e));
}

/* Feeds one more token; false when the scenario is at its end. */
static bool walk_next(struct walk *w)
{
    if (w->at == w->scenario->n) {
        free(w->tokens);
        return false;
    }
    ASSERT_OK(session_feed(w->s, w->tokens + w->at, 1, SESSION_CONTRACT, NULL, NULL, NULL, e));
    w->at++;
    return true;
}

static void test_logits(void **state)
{
    (void)state;
    SKIP_WITHOUT_SHARED();
    static const char *const names[] = {"qwen3-monolithic-lut4-ctx256", "qwen3-fp16-1c-ctx256"};
    static const struct {
        enum model_precision precision;
        double limit;
    } precisions[] = {{PRECISION_FP32, 0.005}, {PRECISION_DEFAULT, 0.02}, {PRECISION_FP16, 0.1}};
    for (int k = 0; k < 6; k++) {
        struct model *m = peer_open(names[k % 2], precisions[k / 2].precision);
        struct safetensors *golden = golden_open_in(ANEMLL, names[k % 2]);
        struct session *s = NULL;
        double worst = 0;
        ASSERT_OK(session_new(&s, m, e));
        for (int i = 0; i < 3; i++) {
            struct walk w;
            walk_begin(&w, s, golden, &scenarios[i]);
            float *want = golden_floats(golden, scenarios[i].name, "logits");
            for (const float *row = want; walk_next(&w); row += m->vocab_size)
                for (int64_t j = 0; j < m->vocab_size; j++)
                    worst = fmax(worst, fabs((double)session_logits(s)[j] - row[j]));
            free(want);
        }
        printf("%s, precision %d: largest difference %.3g\n", names[k % 2], (int)precisions[k / 2].precision,
               worst);
        assert_true(worst < precisions[k / 2].limit);
        session_free(s);
        safetensors_close(golden);
        model_close(m);
    }
}

/* The parts' best values stand at the parts' best tokens, nothing is known of all others, and the best of all is found. */
static void test_best_of_parts(void **state)
{
    (void)state;
    SKIP_WITHOUT_SHARED();
    struct model *m = peer_open("qwen3-lut6-1c-ctx512-argmax", PRECISION_DEFAULT);
    struct safetensors *golden = golden_open_in(ANEMLL, "qwen3-lut6-1c-ctx512-argmax");
    struct session *s = NULL;
    int n_rows = 0, n_same = 0;
    ASSERT_OK(session_new(&s, m, e));
    assert_true(m->gives_best_only);
    assert_int_equal(m->n_logits, 16);
    assert_int_equal(m->vocab_size, 640);
    for (int i = 0; i < 3; i++) {
        struct walk w;
        walk_begin(&w, s, golden, &scenarios[i]);
        float *value = golden_floats(golden, scenarios[i].name, "argmax_val"), *v = value;
        char *key = xasprintf("%s.argmax_idx", scenarios[i].name);
        const struct st_tensor *index = safetensors_find(golden, key);
        assert_true(index && index->dtype == ST_I32 && index->shape[1] == 16);
        for (size_t row = 0; walk_next(&w); row++, v += 16) {
            const float *logits = session_logits(s);
            int best = 0, n_known = 0;
            for (int64_t j = 0; j < m->vocab_size; j++)
                n_known += logits[j] > -INFINITY;
            assert_int_equal(n_known, 16);
            for (int part = 0; part < 16; part++) {
                int32_t at;
                memcpy(&at, index->data + 4 * (16 * row + (size_t)part), 4);
                best = v[part] > v[best] ? part : best;
                n_rows++;
                n_same += fabsf(logits[40 * part + at] - v[part]) < 0.02f;
            }
            int32_t at;
            memcpy(&at, index->data + 4 * (16 * row + (size_t)best), 4);
            float second = -INFINITY;
            for (int part = 0; part < 16; part++)
                second = part != best && v[part] > second ? v[part] : second;
            if (v[best] - second > 0.02f)
                assert_int_equal(row_best(logits, m->vocab_size), 40 * best + at);
        }
        free(value);
        free(key);
    }
    /* where a part's two best are nearly equal, rounding may choose the other one */
    printf("%d of %d best tokens of parts are the same\n", n_same, n_rows);
    assert_true(n_same > n_rows - n_rows / 50);
    struct err why = {0};
    assert_false(model_need_logits(m, "sampling", &why));
    assert_int_equal(why.code, ERR_UNSUPPORTED);
    assert_non_null(strstr(why.msg, "argmax_idx"));
    session_free(s);
    safetensors_close(golden);
    model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits),
        cmocka_unit_test(test_best_of_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
