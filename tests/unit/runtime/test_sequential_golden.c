// links: convert reference
/* Packages with recurrent states and windowed caches against numbers of transformers and, on checkpoints made up here,
 * against the reference: logits, residual streams, states by name, and what a delta rule or a router can meet. */
#include "edited_checkpoint.h"
#include "reference/reference.h"
#include "sequential.h"

struct subject {
    const char *folder; /* of checkpoints; NULL: tests/data */
    const char *model;
    double min_cosine; /* of logits; of the Gemma models tight enough to show a rounded table */
    int n_layers;
    int linear, full, local; /* the first layer of each kind, -1: none */
};
static const struct subject subjects[] = {
    {NULL, "qwen3_5-equal", 0.9998, 4, 0, 3, -1},    {NULL, "qwen3_5_moe-random", 0.9998, 5, 0, 3, -1},
    {NULL, "qwen3_5_moe-tiny", 0.9998, 4, 0, 3, -1}, {NULL, "gemma4-window", 0.999995, 7, -1, 2, 0},
    {NULL, "gemma4-resaved", 0.99997, 6, -1, 2, 0},
};
enum { N_SUBJECTS = sizeof subjects / sizeof *subjects };

/* Routers that hardly decide may decide otherwise. */
#define ROUTER_GAP 0.01f
#define MIN_COSINE_OTHER_EXPERTS 0.99
#define MARGIN 0.1f

/* How many positions from the start have a clear choice of experts in every layer up to there; n without experts or
 * knowledge about them. */
static size_t clear_positions(const struct safetensors *golden, const char *prompt, size_t n, bool *is_known)
{
    char key[64];
    snprintf(key, sizeof key, "%s.router_gap", prompt);
    const struct st_tensor *t = safetensors_find(golden, key);
    *is_known = t != NULL;
    if (!t)
        return n;
    float *gap = golden_floats(golden, prompt, "router_gap");
    size_t first = n;
    for (int64_t layer = 0; layer < t->shape[0]; layer++)
        for (size_t i = 0; i < first; i++)
            if (gap[(size_t)layer * n + i] <= ROUTER_GAP)
                first = i;
    free(gap);
    return first;
}

/* A flipped expert moves every later position of the layer's memory too, so all positions behind the first unclear one
 * have the wider limit. Returns how many rows were compared. */
static int compare_logits(const struct subject *x, struct model *m, const char *prompt,
                          enum session_mode mode, double min_cosine)
{
    struct session *s = NULL;
    struct safetensors *golden = golden_open_in(x->folder ? x->folder : MILKIT_TEST_DATA "/models", x->model);
    size_t n, n_positions;
    int32_t *ids = golden_ints(golden, prompt, "ids", &n),
            *positions = golden_ints(golden, prompt, "positions", &n_positions),
            *argmax = golden_ints(golden, prompt, "argmax", NULL);
    float *logits = golden_floats(golden, prompt, "logits"),
          *margin = golden_floats(golden, prompt, "margin");
    bool is_known, is_moe = m->package->meta->moe_experts > 0;
    size_t n_clear = clear_positions(golden, prompt, n, &is_known);
    int n_compared = 0;
    ASSERT_OK(session_new(&s, m, e));
    struct rows rows = rows_feed(s, m, ids, n, mode);
    for (size_t i = 0; i < n_positions; i++) {
        const float *row = rows_at(&rows, positions[i]), *want = logits + i * (size_t)m->vocab_size;
        if (!row)
            continue;
        bool clear = (size_t)positions[i] < n_clear && (is_known || !is_moe);
        double cosine = row_cosine(row, want, m->vocab_size),
               limit = clear ? min_cosine : MIN_COSINE_OTHER_EXPERTS;
        if (!(cosine >= limit))
            fail_msg("%s %s position %d: cosine %.9f", x->model, prompt, positions[i], cosine);
        if (clear && margin[positions[i]] > MARGIN && row_best(row, m->vocab_size) != argmax[positions[i]])
            fail_msg("%s %s position %d: another best token", x->model, prompt, positions[i]);
        n_compared++;
    }
    rows_free(&rows);
    free(ids);
    free(positions);
    free(argmax);
    free(logits);
    free(margin);
    session_free(s);
    safetensors_close(golden);
    return n_compared;
}

static void test_logits(void **state)
{
    (void)state;
    for (int i = 0; i < N_SUBJECTS; i++) {
        const struct subject *x = &subjects[i];
        bool is_tiny = strcmp(x->model, "qwen3_5_moe-tiny") == 0;
        const struct package_shape shape = {x->model, 320, strcmp(x->model, "gemma4-window") == 0 ? 8 : 64, 1,
                                            CONVERT_MLMODELC};
        struct model *m = package_load(&shape, 1);
        assert_int_equal(compare_logits(x, m, "one", SESSION_CONTRACT, x->min_cosine), 1);
        assert_int_equal(compare_logits(x, m, "five", SESSION_CONTRACT, x->min_cosine),
                         m->batch_size == 8 ? 5 : 5);
        assert_int_equal(compare_logits(x, m, "long", SESSION_INFER_ONLY, x->min_cosine), is_tiny ? 21 : 203);
        assert_true(compare_logits(x, m, "longer", SESSION_CONTRACT, x->min_cosine) >= 8);
        assert_true(compare_logits(x, m, "batch64", SESSION_CONTRACT, x->min_cosine) >= 1);
        if (is_tiny)
            assert_int_equal(compare_logits(x, m, "chat", SESSION_INFER_ONLY, x->min_cosine), 29);
        model_close(m);
    }
}

/* Op by op in float32, states too: what is left is the rounding of constants and logits to fp16. Random Gemma models
 * enlarge it a thousand times (their scores have no scale), so they are compared wherever there are numbers. */
static void check_fp32(const struct subject *x)
{
    const bool is_gemma = strncmp(x->model, "gemma4", 6) == 0;
    const int64_t batch = strcmp(x->model, "gemma4-window") == 0 ? 8 : 64;
    const struct package_shape shape = {x->model, 320, batch, 1, CONVERT_MLMODELC};
    char *checkpoint = x->folder ? path_join(x->folder, x->model) : NULL;
    struct model *m = package_load_with(&shape, &(struct package_extra){.checkpoint = checkpoint},
                                        &(struct model_options){.n_threads = 1, .precision = ENGINE_FP32});
    assert_int_equal(compare_logits(x, m, "five", SESSION_INFER_ONLY, 0.999999), 5);
    assert_true(compare_logits(x, m, "batch64", SESSION_CONTRACT, 0.999999) >= 1);
    if (is_gemma) {
        bool is_tiny = strcmp(x->model, "gemma4-tiny") == 0;
        assert_int_equal(compare_logits(x, m, "long", SESSION_INFER_ONLY, 0.999999), is_tiny ? 21 : 203);
#ifdef __OPTIMIZE__
        assert_int_equal(compare_logits(x, m, "longer", SESSION_INFER_ONLY, 0.999999), is_tiny ? 27 : 300);
#endif
    }
    model_close(m);
    free(checkpoint);
}

static void test_logits_fp32(void **state)
{
    (void)state;
    for (int i = 0; i < N_SUBJECTS; i++)
        check_fp32(&subjects[i]);
}

static void test_logits_fp32_shared(void **state)
{
    (void)state;
    SKIP_WITHOUT_SHARED();
    static const char *const models[] = {"gemma4-tiny", "gemma4-noshare", "gemma4-kv2"};
    for (int i = 0; i < 3; i++)
        check_fp32(&(struct subject){.folder = MILKIT_SHARED "/models", .model = models[i]});
}

/* ---- the residual stream ---- */

struct seen {
    int64_t hidden, n_tokens, n_layers, n_final;
    float *rows; /* [n_layers, n_tokens, hidden] */
};

static void see(void *context, int64_t layer, int64_t position, int64_t n, const float *rows)
{
    struct seen *v = context;
    if (layer == SESSION_FINAL_NORM)
        v->n_final++;
    if (layer < 0 || layer == SESSION_FINAL_NORM)
        return;
    assert_true(layer < v->n_layers && position + n <= v->n_tokens);
    memcpy(v->rows + (layer * v->n_tokens + position) * v->hidden, rows,
           sizeof *rows * (size_t)(n * v->hidden));
}

/* Watching returns what each layer leaves and changes no bit of the logits. */
static void test_layers(void **state)
{
    (void)state;
    for (int i = 0; i < N_SUBJECTS; i++) {
        const struct subject *x = &subjects[i];
        for (int chunks = 1; chunks <= 3; chunks += 2) {
            const struct package_shape shape = {x->model, 64, chunks == 1 ? 4 : 8, chunks, CONVERT_MLPACKAGE};
            struct safetensors *golden = golden_open(x->model);
            struct model *plain = package_load(&shape, 1),
                         *m =
                             package_load_with(&shape, &(struct package_extra){0},
                                               &(struct model_options){.n_threads = 1, .watch_layers = true});
            struct session *s = NULL;
            struct seen seen = {.hidden = m->hidden_size, .n_tokens = 5, .n_layers = x->n_layers};
            size_t n, n_rows = (size_t)(seen.n_layers * seen.n_tokens * seen.hidden);
            int32_t *ids = golden_ints(golden, "five", "ids", &n);
            float *want = golden_floats(golden, "five", "layer_out");
            assert_int_equal(n, 5);
            seen.rows = xcalloc(n_rows, sizeof *seen.rows);
            ASSERT_OK(session_new(&s, plain, e));
            feed(s, ids, n, SESSION_CONTRACT);
            struct moment truth = moment_take(s, plain);
            session_free(s);
            ASSERT_OK(session_new(&s, m, e));
            session_watch(s, see, &seen);
            feed(s, ids, n, SESSION_CONTRACT);
            assert_same_moment(s, m, &truth, "a watched model");
            assert_int_equal(seen.n_final, chunks == 1 ? 2 : 5);
            for (int64_t row = 0; row < seen.n_layers * seen.n_tokens; row++) {
                double cosine =
                    row_cosine(seen.rows + row * seen.hidden, want + row * seen.hidden, seen.hidden);
                if (!(cosine >= 0.999))
                    fail_msg("%s: layer %d, position %d: cosine %.9f", x->model, (int)(row / 5),
                             (int)(row % 5), cosine);
            }
            moment_free(&truth);
            free(seen.rows);
            free(ids);
            free(want);
            session_free(s);
            model_close(m);
            model_close(plain);
            safetensors_close(golden);
        }
    }
}

/* ---- states ---- */

/* n elements of a state from `first` on, as fp16 by name, divided by a factor. */
static void compare_state(struct session *s, const char *name, int64_t first,
                          const struct safetensors *golden, const char *prompt, const char *key,
                          double factor)
{
    struct engine_state_entry *entry = engine_state_find(session_state(s), name);
    assert_non_null(entry);
    char full[64];
    snprintf(full, sizeof full, "%s.%s", prompt, key);
    const struct st_tensor *t = safetensors_find(golden, full);
    assert_non_null(t);
    f16 *halves = xmalloc(sizeof *halves * (size_t)entry->n_elems);
    float *values = xmalloc(sizeof *values * (size_t)entry->n_elems),
          *want = golden_floats(golden, prompt, key);
    engine_state_read(entry, halves);
    f16_to_f32_n(values, halves, (size_t)entry->n_elems);
    assert_true(first + t->n_elems <= entry->n_elems);
    double cosine = row_cosine(values + first, want, t->n_elems), length = 0, other = 0;
    for (int64_t i = 0; i < t->n_elems; i++) {
        length += (double)want[i] * (double)want[i];
        other += (double)values[first + i] * (double)values[first + i];
    }
    if (!(cosine >= 0.9999) || !(fabs(sqrt(other / length) / factor - 1) < 0.01))
        fail_msg("%s %s: cosine %.9f, length %g times", name, full, cosine, sqrt(other / length));
    free(halves);
    free(values);
    free(want);
}

/* Rows of a head: positions from `base` on lie in slots from 0 on. */
static void compare_cache(struct session *s, const char *name, int64_t head, int64_t base,
                          const struct safetensors *golden, int layer, const char *what, int64_t n_tokens)
{
    struct engine_state_entry *entry = engine_state_find(session_state(s), name);
    assert_non_null(entry);
    char key[64];
    snprintf(key, sizeof key, "layer%d.%s", layer, what);
    float *want = golden_floats(golden, "long", key);
    f16 *halves = xmalloc(sizeof *halves * (size_t)entry->n_elems);
    int64_t width = entry->dims[3], n_compared = 0;
    double sum = 0;
    engine_state_read(entry, halves);
    for (int64_t slot = 0; slot < entry->dims[2]; slot++) {
        float row[512];
        int64_t position = base + slot;
        if (position < 0 || position >= n_tokens)
            continue;
        f16_to_f32_n(row, halves + (head * entry->dims[2] + slot) * width, (size_t)width);
        double cosine = row_cosine(row, want + position * width, width);
        if (!(cosine >= 0.98)) /* another position is far away, another expert is not */
            fail_msg("%s slot %d: %s of position %d: cosine %.9f", name, (int)slot, key, (int)position,
                     cosine);
        sum += cosine;
        n_compared++;
    }
    assert_true(n_compared > 16);
    assert_true(sum / (double)n_compared >= 0.9999);
    free(halves);
    free(want);
}

static void test_states(void **state)
{
    (void)state;
    for (int i = 0; i < N_SUBJECTS; i++) {
        const struct subject *x = &subjects[i];
        const struct package_shape shape = {x->model, 320, strcmp(x->model, "gemma4-window") == 0 ? 8 : 64, 1,
                                            CONVERT_MLMODELC};
        struct model *m = package_load(&shape, 1);
        struct safetensors *golden = golden_open(x->model);
        struct session *s = NULL;
        size_t n;
        ASSERT_OK(session_new(&s, m, e));
        if (x->linear >= 0) {
            static const char *const prompts[] = {"five", "long"};
            int64_t d_k = engine_state_find(session_state(s), "model_model_gdn_state_0")->dims[1];
            for (int k = 0; k < 2; k++) {
                int32_t *ids = golden_ints(golden, prompts[k], "ids", &n);
                session_reset(s);
                feed(s, ids, n, SESSION_CONTRACT);
                compare_state(s, "model_model_gdn_state_0", 0, golden, prompts[k], "layer0.gdn_state",
                              sqrt((double)d_k));
                compare_state(s, "model_model_conv_state_0", 0, golden, prompts[k], "layer0.conv_state", 1);
                free(ids);
            }
            compare_cache(s, "model_model_kv_cache_0", 0, 0, golden, x->full, "keys", 203);
            compare_cache(s, "model_model_kv_cache_0", 1, 0, golden, x->full, "values", 203);
        } else {
            int32_t *ids = golden_ints(golden, "long", "ids", &n);
            feed(s, ids, n, SESSION_CONTRACT);
            int64_t batch = m->batch_size,
                    base = ((int64_t)n - 1) / batch * batch + batch - m->package->meta->local_cache_length;
            assert_true(base > 0);
            compare_cache(s, "model_model_kv_cache_local", 0, base, golden, x->local, "keys", 203);
            compare_cache(s, "model_model_kv_cache_local", 1, base, golden, x->local, "values", 203);
            compare_cache(s, "model_model_kv_cache_global", 0, 0, golden, x->full, "keys", 203);
            compare_cache(s, "model_model_kv_cache_global", 1, 0, golden, x->full, "values", 203);
            free(ids);
        }
        session_free(s);
        safetensors_close(golden);
        model_close(m);
    }
}

/* ---- what a delta rule can meet ---- */

static void compare_with_reference(const char *checkpoint, const char *model, const int32_t *ids, size_t n)
{
    const struct package_shape shape = {model, 256, 64, 1, CONVERT_MLMODELC};
    const struct package_extra extra = {.checkpoint = checkpoint};
    struct reference *r = NULL;
    struct reference_session *truth = NULL;
    struct session *s = NULL;
    struct model *m = package_load_with(&shape, &extra, &(struct model_options){.n_threads = 1});
    ASSERT_OK(reference_open(&r, checkpoint, &(struct reference_options){.n_threads = 1}, e));
    ASSERT_OK(reference_session_new(&truth, r, (int64_t)n, e));
    ASSERT_OK(session_new(&s, m, e));
    feed(s, ids, n, SESSION_INFER_ONLY);
    struct moment by_infer = moment_take(s, m);
    session_reset(s);
    for (size_t at = 0; at < n; at += 64) { /* the ends of all batches, and of the rest */
        size_t part = n - at < 64 ? n - at : 64;
        feed(s, ids + at, part, SESSION_CONTRACT);
        ASSERT_OK(reference_feed(truth, ids + at, part, NULL, NULL, e));
        double cosine = row_cosine(session_logits(s), reference_logits(truth), m->vocab_size);
        if (!(cosine >= 0.999))
            fail_msg("%s: after %zu tokens: cosine %.9f", checkpoint, at + part, cosine);
    }
    assert_same_moment(s, m, &by_infer, checkpoint);
    for (int i = 0; i < by_infer.n_states; i++) {
        const struct engine_state_entry *entry = engine_state_get(session_state(s), i);
        f16 *halves = xmalloc(sizeof *halves * (size_t)entry->n_elems);
        engine_state_read(entry, halves);
        for (int64_t k = 0; k < entry->n_elems; k++)
            assert_true(isfinite(f16_to_f32(halves[k])));
        free(halves);
    }
    /* The memory of the first layer, S times sqrt(d_k). */
    struct reference_state want;
    assert_true(reference_state(truth, 0, REFERENCE_MEMORY, &want));
    const struct engine_state_entry *entry = engine_state_find(session_state(s), "model_model_gdn_state_0");
    assert_non_null(entry->f32_data);
    int64_t n_memory = want.shape[0] * want.shape[1] * want.shape[2];
    double cosine = row_cosine(entry->f32_data, want.data, n_memory);
    if (!(cosine >= 0.9999))
        fail_msg("%s: memory: cosine %.9f", checkpoint, cosine);
    moment_free(&by_infer);
    session_free(s);
    reference_session_free(truth);
    reference_close(r);
    model_close(m);
}

/* Weights of the projections' inputs are as they are; A_log e^8: everything is forgotten at once; e^-20: nothing ever. */
static void test_decays(void **state)
{
    (void)state;
    static const struct edit edits[] = {
        {"model.layers.0.linear_attn.A_log", 0, 0, 8},    {"model.layers.0.linear_attn.A_log", 1, 0, -20},
        {"model.layers.1.linear_attn.A_log", 2, 0, 8},    {"model.layers.1.linear_attn.A_log", 0, 0, -20},
        {"model.layers.2.linear_attn.A_log", -1, 0, -20},
    };
    char *checkpoint = edited_checkpoint("qwen3_5-equal", "decays", edits, 5);
    int32_t ids[200];
    make_ids(ids, 200, 300, 4);
    compare_with_reference(checkpoint, "decays", ids, 200);
    /* Keys that repeat for 200 tokens, with and without forgetting. */
    for (int i = 0; i < 200; i++)
        ids[i] = 77;
    compare_with_reference(checkpoint, "decays", ids, 200);
    free(checkpoint);
    char *plain = xasprintf("%s/models/qwen3_5-equal", MILKIT_TEST_DATA);
    compare_with_reference(plain, "repeats", ids, 200);
    free(plain);
}

/* A token whose embedding is zero: norms of nothing. Alone, first, and among others. */
static void test_zero_row(void **state)
{
    (void)state;
    static const struct edit edits[] = {{"model.embed_tokens.weight", 5, 0, 0}};
    char *checkpoint = edited_checkpoint("qwen3_5-equal", "zero-row", edits, 1);
    int32_t ids[140];
    make_ids(ids, 140, 300, 5);
    for (int i = 0; i < 140; i += 3)
        ids[i] = 5;
    compare_with_reference(checkpoint, "zero-row", ids, 140);
    for (int i = 0; i < 70; i++)
        ids[i] = 5;
    compare_with_reference(checkpoint, "zero-row", ids, 70 + 64);
    free(checkpoint);
}

/* ---- experts ---- */

/* The fast path reads chosen experts alone; op by op every expert is evaluated and masked. Another expert would show in
 * a layer's row. */
static void test_experts(void **state)
{
    (void)state;
    static const char *const names[] = {"qwen3_5_moe-random", "qwen3_5_moe-tiny"};
    for (int i = 0; i < 2; i++) {
        const struct package_shape shape = {names[i], 128, 64, 1, CONVERT_MLMODELC};
        struct safetensors *golden = golden_open(names[i]);
        size_t n;
        int32_t *ids = golden_ints(golden, "batch64", "ids", &n);
        struct seen seen[2];
        struct moment end[2];
        for (int k = 0; k < 2; k++) {
            struct session *s = NULL;
            struct model *m = package_load_with(
                &shape, &(struct package_extra){0},
                &(struct model_options){
                    .n_threads = 1, .precision = k ? ENGINE_FP32 : ENGINE_DEFAULT, .watch_layers = true});
            seen[k] = (struct seen){.hidden = m->hidden_size, .n_tokens = 64, .n_layers = i ? 4 : 5};
            seen[k].rows = xcalloc((size_t)(seen[k].n_layers * 64 * seen[k].hidden), sizeof(float));
            ASSERT_OK(session_new(&s, m, e));
            session_watch(s, see, &seen[k]);
            feed(s, ids, n, SESSION_CONTRACT);
            end[k] = moment_take(s, m);
            session_free(s);
            model_close(m);
        }
        double lowest = 1, worst = 0;
        for (int64_t row = 0; row < seen[0].n_layers * 64; row++)
            lowest = fmin(lowest, row_cosine(seen[0].rows + row * seen[0].hidden,
                                             seen[1].rows + row * seen[0].hidden, seen[0].hidden));
        for (size_t k = 0; k < end[0].logits_bytes / sizeof(float); k++)
            worst = fmax(worst, fabs((double)end[0].logits[k] - (double)end[1].logits[k]));
        printf("%s: lowest cosine of a row %.9f, largest difference of a logit %g\n", names[i], lowest,
               worst);
        assert_true(lowest >= 0.99999);
        assert_true(worst < 0.01);
        for (int k = 0; k < 2; k++) {
            free(seen[k].rows);
            moment_free(&end[k]);
        }
        free(ids);
        safetensors_close(golden);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits),
        cmocka_unit_test(test_logits_fp32),
        cmocka_unit_test(test_logits_fp32_shared),
        cmocka_unit_test(test_layers),
        cmocka_unit_test(test_states),
        cmocka_unit_test(test_decays),
        cmocka_unit_test(test_zero_row),
        cmocka_unit_test(test_experts),
    };
    return cmocka_run_group_tests(tests, packages_setup, packages_teardown);
}
