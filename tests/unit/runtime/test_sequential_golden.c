// links: convert reference
/* Packages with recurrent states and windowed caches against numbers of transformers and, on checkpoints made up here,
 * against the reference: logits, residual streams, states by name, and what a delta rule or a router can meet. */
#include "edited_checkpoint.h"
#include "reference/reference.h"
#include "sequential.h"

/* Trained checkpoints are near to transformers at every position. Random ones enlarge the rounding of a package's
 * constants, at single positions a thousandfold; they are judged by the median and the 99th percentile of the positions,
 * and at every position by the reference with the same fp16 constants. */
struct subject {
    const char *folder; /* of checkpoints; NULL: tests/data */
    const char *model;
    double min_cosine;         /* of logits at every position; 0: random */
    double median, percentile; /* random: of 1 - cosine */
    int n_layers;
    int linear, full, local; /* the first layer of each kind, -1: none */
};
static const struct subject subjects[] = {
    {NULL, "qwen3_5-equal", 0, 1e-5, 2e-4, 4, 0, 3, -1},
    {NULL, "qwen3_5_moe-random", 0, 1e-5, 3e-3, 5, 0, 3, -1},
    {NULL, "qwen3_5_moe-tiny", 0.9998, 0, 0, 4, 0, 3, -1},
    {NULL, "gemma4-window", 0, 1e-6, 2e-5, 7, -1, 2, 0},
    {NULL, "gemma4-resaved", 0, 1e-6, 2e-5, 6, -1, 2, 0},
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

/* 1 - cosine of the positions of a random checkpoint that were compared. */
struct losses {
    size_t n;
    double of[2048];
};

static int compare_doubles(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* A flipped expert moves every later position of the layer's memory too, so all positions behind the first unclear one
 * have the wider limit. Random checkpoints: losses are noted. Returns how many rows were compared. */
static int compare_logits(const struct subject *x, struct model *m, const char *prompt,
                          enum session_mode mode, struct losses *losses)
{
    struct session *s = NULL;
    struct safetensors *golden = golden_open_in(x->folder ? x->folder : MILKIT_TEST_DATA "/models", x->model);
    size_t n, n_positions;
    int32_t *ids = golden_ints(golden, prompt, "ids", &n),
            *positions = golden_ints(golden, prompt, "positions", &n_positions),
            *argmax = golden_ints(golden, prompt, "argmax", NULL);
    float *logits = golden_floats(golden, prompt, "logits"),
          *margin = golden_floats(golden, prompt, "margin");
    bool is_known, is_moe = m->package->meta->moe_experts > 0, is_random = x->min_cosine == 0;
    size_t n_clear = clear_positions(golden, prompt, n, &is_known);
    int n_compared = 0;
    ASSERT_OK(session_new(&s, m, e));
    struct rows rows = rows_feed(s, m, ids, n, mode);
    for (size_t i = 0; i < n_positions; i++) {
        const float *row = rows_at(&rows, positions[i]), *want = logits + i * (size_t)m->vocab_size;
        if (!row)
            continue;
        n_compared++;
        bool clear = (size_t)positions[i] < n_clear && (is_known || !is_moe);
        double cosine = row_cosine(row, want, m->vocab_size);
        if (is_random) {
            assert_true(losses->n < sizeof losses->of / sizeof losses->of[0]);
            losses->of[losses->n++] = 1 - cosine;
            continue;
        }
        if (!(cosine >= (clear ? x->min_cosine : MIN_COSINE_OTHER_EXPERTS)))
            fail_msg("%s %s position %d: cosine %.9f", x->model, prompt, positions[i], cosine);
        if (clear && margin[positions[i]] > MARGIN && row_best(row, m->vocab_size) != argmax[positions[i]])
            fail_msg("%s %s position %d: another best token", x->model, prompt, positions[i]);
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

static void judge_losses(const struct subject *x, struct losses *losses, const char *what)
{
    if (losses->n == 0)
        return;
    qsort(losses->of, losses->n, sizeof losses->of[0], compare_doubles);
    double median = losses->of[losses->n / 2], percentile = losses->of[losses->n * 99 / 100];
    printf("%s, %s: %zu positions, 1 - cosine: median %.3g, 99 %% below %.3g, largest %.3g\n", x->model, what,
           losses->n, median, percentile, losses->of[losses->n - 1]);
    if (!(median <= x->median && percentile <= x->percentile))
        fail_msg("%s, %s: median %g, expected up to %g; 99th percentile %g, expected up to %g", x->model,
                 what, median, x->median, percentile, x->percentile);
}

static int64_t batch_of(const struct subject *x)
{
    return strcmp(x->model, "gemma4-window") == 0 ? 8 : 64;
}

static void test_logits(void **state)
{
    (void)state;
    for (int i = 0; i < N_SUBJECTS; i++) {
        const struct subject *x = &subjects[i];
        bool is_tiny = strcmp(x->model, "qwen3_5_moe-tiny") == 0;
        const struct package_shape shape = {x->model, 320, batch_of(x), 1, CONVERT_MLMODELC};
        struct model *m = package_load(&shape, 1);
        struct losses losses = {0};
        assert_int_equal(compare_logits(x, m, "one", SESSION_CONTRACT, &losses), 1);
        assert_int_equal(compare_logits(x, m, "five", SESSION_CONTRACT, &losses), 5);
        assert_int_equal(compare_logits(x, m, "long", SESSION_INFER_ONLY, &losses), is_tiny ? 21 : 203);
        assert_true(compare_logits(x, m, "longer", SESSION_CONTRACT, &losses) >= 8);
        assert_true(compare_logits(x, m, "batch64", SESSION_CONTRACT, &losses) >= 1);
        if (is_tiny)
            assert_int_equal(compare_logits(x, m, "chat", SESSION_INFER_ONLY, &losses), 29);
        judge_losses(x, &losses, "as milkit runs it");
        model_close(m);
    }
}

/* Rows of the reference whose constants are those of the package. */
static struct rows reference_rows(const char *checkpoint, const int32_t *ids, size_t n)
{
    struct reference *r = NULL;
    struct reference_session *s = NULL;
    struct rows rows = {.capacity = n};
    ASSERT_OK(reference_open(&r, checkpoint,
                             &(struct reference_options){.n_threads = 1, .fp16_constants = true}, e));
    ASSERT_OK(reference_session_new(&s, r, (int64_t)n, e));
    rows.vocab_size = r->vocab_size;
    rows.positions = xcalloc(n, sizeof *rows.positions);
    rows.logits = xcalloc(n * (size_t)rows.vocab_size, sizeof *rows.logits);
    ASSERT_OK(reference_feed(s, ids, n, rows_collect, &rows, e));
    reference_session_free(s);
    reference_close(r);
    return rows;
}

/* The lowest cosine of a prompt's positions. */
static double lowest_by_reference(const struct subject *x, struct model *m, const char *checkpoint,
                                  const char *prompt)
{
    struct safetensors *golden = golden_open_in(x->folder ? x->folder : MILKIT_TEST_DATA "/models", x->model);
    struct session *s = NULL;
    size_t n;
    int32_t *ids = golden_ints(golden, prompt, "ids", &n);
    double lowest = 1;
    ASSERT_OK(session_new(&s, m, e));
    struct rows got = rows_feed(s, m, ids, n, SESSION_CONTRACT), want = reference_rows(checkpoint, ids, n);
    assert_int_equal(want.n, n);
    assert_true(got.n > 0 && got.vocab_size == want.vocab_size);
    for (size_t i = 0; i < got.n; i++) {
        const float *row = got.logits + i * (size_t)got.vocab_size;
        lowest = fmin(lowest, row_cosine(row, rows_at(&want, got.positions[i]), got.vocab_size));
    }
    rows_free(&got);
    rows_free(&want);
    free(ids);
    session_free(s);
    safetensors_close(golden);
    return lowest;
}

/* What a random checkpoint enlarges most are constants that the package and this reference share. (Gemma's caches come
 * next, which are fp16 but in float32: its scores have no scale.) */
static void check_by_reference(const struct subject *x)
{
    static const char *const prompts[] = {"five", "batch64", "long"};
    const bool is_gemma = strncmp(x->model, "gemma4", 6) == 0;
    const struct package_shape shape = {x->model, 320, batch_of(x), 1, CONVERT_MLMODELC};
    char *checkpoint = path_join(x->folder ? x->folder : MILKIT_TEST_DATA "/models", x->model);
    for (int k = 0; k < 2; k++) {
        const struct model_options options = {.n_threads = 1,
                                              .precision = k ? PRECISION_FP32 : PRECISION_DEFAULT};
        struct model *m =
            package_load_with(&shape, &(struct package_extra){.checkpoint = checkpoint}, &options);
        double lowest = 1;
        for (int i = 0; i < 3; i++)
            lowest = fmin(lowest, lowest_by_reference(x, m, checkpoint, prompts[i]));
        double limit = is_gemma && k ? 0.999999 : 0.99999;
        printf("%s by the reference with fp16 constants, %s: lowest cosine %.9f\n", x->model,
               k ? "float32" : "as milkit runs it", lowest);
        if (!(lowest >= limit))
            fail_msg("%s: lowest cosine %.9f, expected %g", x->model, lowest, limit);
        model_close(m);
    }
    free(checkpoint);
}

static void test_logits_by_reference(void **state)
{
    (void)state;
    for (int i = 0; i < N_SUBJECTS; i++)
        check_by_reference(&subjects[i]);
}

/* Op by op in float32, states too: what is left is the rounding of constants and logits to fp16. */
static void check_fp32(const struct subject *x)
{
    const struct package_shape shape = {x->model, 320, batch_of(x), 1, CONVERT_MLMODELC};
    char *checkpoint = x->folder ? path_join(x->folder, x->model) : NULL;
    struct model *m = package_load_with(&shape, &(struct package_extra){.checkpoint = checkpoint},
                                        &(struct model_options){.n_threads = 1, .precision = PRECISION_FP32});
    struct losses losses = {0};
    assert_int_equal(compare_logits(x, m, "five", SESSION_INFER_ONLY, &losses), 5);
    assert_true(compare_logits(x, m, "batch64", SESSION_CONTRACT, &losses) >= 1);
    assert_true(compare_logits(x, m, "long", SESSION_INFER_ONLY, &losses) >= 21);
    judge_losses(x, &losses, "float32");
    model_close(m);
    free(checkpoint);
}

static void test_logits_fp32(void **state)
{
    (void)state;
    for (int i = 0; i < N_SUBJECTS; i++)
        check_fp32(&subjects[i]);
}

static void test_logits_shared(void **state)
{
    (void)state;
    SKIP_WITHOUT_SHARED();
    static const struct subject more[] = {
        {.model = "gemma4-tiny", .min_cosine = 0.999999},
        {.model = "qwen3_5-tiny", .min_cosine = 0.99999},
        {.model = "gemma4-noshare", .median = 1e-6, .percentile = 2e-5},
        {.model = "gemma4-kv2", .median = 1e-6, .percentile = 2e-5},
        {.model = "qwen3_5-repeat", .median = 1e-5, .percentile = 2e-4},
    };
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++) {
        struct subject x = more[i];
        x.folder = MILKIT_SHARED "/models";
        check_fp32(&x);
        check_by_reference(&x);
    }
}

/* ---- what is not text ---- */

/* gemma4-resaved as the text part of a multimodal checkpoint. */
static char *make_wrapper(int padding_id)
{
    char *from = path_join(MILKIT_TEST_DATA "/models", "gemma4-resaved"),
         *path = path_join(from, "config.json"), *weights = path_join(from, "model.safetensors"),
         *to = xasprintf("%s/wrapper-%d", packages_scratch, padding_id),
         *config_to = path_join(to, "config.json"), *weights_to = path_join(to, "model.safetensors");
    cJSON *text = NULL, *config = cJSON_CreateObject();
    ASSERT_OK(json_read_file(&text, path, 1 << 20, e));
    cJSON_DeleteItemFromObjectCaseSensitive(text, "pad_token_id");
    cJSON_AddNumberToObject(text, "pad_token_id", padding_id);
    cJSON_AddStringToObject(config, "model_type", "gemma4");
    cJSON_AddNumberToObject(config, "image_token_id", 289);
    cJSON_AddNumberToObject(config, "audio_token_id", 3);
    cJSON_AddNumberToObject(config, "video_token_id", 144);
    cJSON_AddItemToObject(config, "text_config", text);
    char *printed = cJSON_Print(config), *absolute = realpath(weights, NULL);
    assert_int_equal(mkdir(to, 0700), 0);
    ASSERT_OK(file_write(config_to, printed, strlen(printed), e));
    assert_int_equal(symlink(absolute, weights_to), 0);
    cJSON_Delete(config);
    cJSON_free(printed);
    free(absolute);
    free(weights_to);
    free(config_to);
    free(weights);
    free(path);
    free(from);
    return to;
}

/* In a multimodal checkpoint the ids of images, audio and video are embedded as the padding id, in both tables: numbers
 * of transformers, the reference and the package; the same bits as with the padding id written there. */
static void test_placeholders(void **state)
{
    (void)state;
    char *checkpoint = make_wrapper(7);
    const struct package_shape shape = {"wrapper", 64, 8, 1, CONVERT_MLMODELC};
    const struct package_extra extra = {.checkpoint = checkpoint};
    struct model *m = package_load_with(&shape, &extra, &(struct model_options){.n_threads = 1});
    struct safetensors *golden = NULL;
    ASSERT_OK(
        safetensors_open(&golden, MILKIT_TEST_DATA "/models/gemma4-resaved/placeholders.safetensors", e));
    size_t n;
    int32_t *ids = golden_ints(golden, "placeholders", "ids", &n);
    float *want = golden_floats(golden, "placeholders", "logits");
    struct session *s = NULL;
    ASSERT_OK(session_new(&s, m, e));
    struct rows by_reference = reference_rows(checkpoint, ids, n),
                got = rows_feed(s, m, ids, n, SESSION_INFER_ONLY);
    int n_placeholders = 0;
    for (size_t i = 0; i < n; i++) {
        const float *row = want + i * (size_t)m->vocab_size;
        double reference = row_cosine(rows_at(&by_reference, (int64_t)i), row, m->vocab_size),
               package = row_cosine(rows_at(&got, (int64_t)i), row, m->vocab_size);
        if (!(reference >= 0.99999 && package >= 0.99999))
            fail_msg("position %zu: cosine of the reference %.9f, of the package %.9f", i, reference,
                     package);
        if (ids[i] == 289 || ids[i] == 3 || ids[i] == 144) {
            ids[i] = 7;
            n_placeholders++;
        }
    }
    assert_true(n_placeholders >= 4);
    session_reset(s);
    struct rows padded = rows_feed(s, m, ids, n, SESSION_INFER_ONLY);
    assert_memory_equal(padded.logits, got.logits, n * (size_t)m->vocab_size * sizeof *got.logits);
    rows_free(&padded);
    rows_free(&got);
    rows_free(&by_reference);
    free(want);
    free(ids);
    session_free(s);
    safetensors_close(golden);
    model_close(m);
    free(checkpoint);

    /* A padding id that has no row. */
    struct convert_report report;
    struct reference *r = NULL;
    struct err e = {0};
    checkpoint = make_wrapper(290);
    char *output = path_join(packages_scratch, "no-padding");
    assert_false(
        convert_run(&(struct convert_options){.checkpoint = checkpoint, .output = output}, &report, &e));
    assert_int_equal(e.code, ERR_FORMAT);
    assert_non_null(strstr(e.msg, "pad_token_id"));
    e = (struct err){0};
    assert_false(reference_open(&r, checkpoint, &(struct reference_options){.n_threads = 1}, &e));
    assert_int_equal(e.code, ERR_FORMAT);
    free(output);
    free(checkpoint);
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
    const struct backend_state *entry = session_find_state(s, name);
    assert_non_null(entry);
    char full[64];
    snprintf(full, sizeof full, "%s.%s", prompt, key);
    const struct st_tensor *t = safetensors_find(golden, full);
    assert_non_null(t);
    f16 *halves = xmalloc(sizeof *halves * (size_t)entry->n_elems);
    float *values = xmalloc(sizeof *values * (size_t)entry->n_elems),
          *want = golden_floats(golden, prompt, key);
    session_read_state(s, entry, halves);
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
    const struct backend_state *entry = session_find_state(s, name);
    assert_non_null(entry);
    char key[64];
    snprintf(key, sizeof key, "layer%d.%s", layer, what);
    float *want = golden_floats(golden, "long", key);
    f16 *halves = xmalloc(sizeof *halves * (size_t)entry->n_elems);
    int64_t width = entry->dims[3], n_compared = 0;
    double sum = 0;
    session_read_state(s, entry, halves);
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
            int64_t d_k = session_find_state(s, "model_model_gdn_state_0")->dims[1];
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
        const struct backend_state *entry = &session_states(s)->list[i];
        f16 *halves = xmalloc(sizeof *halves * (size_t)entry->n_elems);
        session_read_state(s, entry, halves);
        for (int64_t k = 0; k < entry->n_elems; k++)
            assert_true(isfinite(f16_to_f32(halves[k])));
        free(halves);
    }
    /* The memory of the first layer, S times sqrt(d_k). */
    struct reference_state want;
    assert_true(reference_state(truth, 0, REFERENCE_MEMORY, &want));
    const struct backend_state *entry = session_find_state(s, "model_model_gdn_state_0");
    assert_int_equal(entry->elem_bytes, sizeof(float));
    float *memory = xmalloc(backend_state_bytes(entry));
    m->backend->state_read(session_states(s), (int)(entry - session_states(s)->list), 0,
                           backend_state_bytes(entry), memory);
    int64_t n_memory = want.shape[0] * want.shape[1] * want.shape[2];
    double cosine = row_cosine(memory, want.data, n_memory);
    free(memory);
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

/* The residual stream behind all layers and the logits of 64 tokens. */
struct outcome {
    struct seen seen;
    struct moment end;
};

static struct outcome run_watched(const char *name, const char *checkpoint, bool exact_topk,
                                  enum model_precision precision, const int32_t *ids, size_t n,
                                  enum session_mode mode)
{
    const struct package_shape shape = {name, 128, 64, 1, CONVERT_MLMODELC};
    const struct package_extra extra = {.checkpoint = checkpoint, .exact_topk = exact_topk};
    struct session *s = NULL;
    struct model *m = package_load_with(
        &shape, &extra,
        &(struct model_options){.n_threads = 1, .precision = precision, .watch_layers = true});
    struct outcome o = {.seen = {.hidden = m->hidden_size, .n_tokens = (int64_t)n}};
    o.seen.n_layers = m->package->meta->n_layer_types;
    o.seen.rows = xcalloc((size_t)(o.seen.n_layers * o.seen.n_tokens * o.seen.hidden), sizeof(float));
    ASSERT_OK(session_new(&s, m, e));
    session_watch(s, see, &o.seen);
    feed(s, ids, n, mode);
    o.end = moment_take(s, m);
    session_free(s);
    model_close(m);
    return o;
}

static void outcome_free(struct outcome *o)
{
    free(o->seen.rows);
    moment_free(&o->end);
}

/* The fast path reads chosen experts alone; op by op every expert is evaluated and masked. Another expert would show in
 * a layer's row. */
static void compare_paths(const char *name, const char *checkpoint, bool exact_topk, const int32_t *ids,
                          size_t n)
{
    struct outcome fast =
                       run_watched(name, checkpoint, exact_topk, PRECISION_DEFAULT, ids, n, SESSION_CONTRACT),
                   all = run_watched(name, checkpoint, exact_topk, PRECISION_FP32, ids, n, SESSION_CONTRACT),
                   single = run_watched(name, checkpoint, exact_topk, PRECISION_DEFAULT, ids, n,
                                        SESSION_INFER_ONLY);
    double lowest = 1, worst = 0;
    for (int64_t row = 0; row < fast.seen.n_layers * fast.seen.n_tokens; row++)
        lowest = fmin(lowest, row_cosine(fast.seen.rows + row * fast.seen.hidden,
                                         all.seen.rows + row * fast.seen.hidden, fast.seen.hidden));
    for (size_t k = 0; k < fast.end.logits_bytes / sizeof(float); k++)
        worst = fmax(worst, fabs((double)fast.end.logits[k] - (double)all.end.logits[k]));
    printf("%s, %s: lowest cosine of a row %.9f, largest difference of a logit %g\n", name,
           exact_topk ? "exactly k" : "threshold", lowest, worst);
    assert_true(lowest >= 0.99999);
    assert_true(worst < 0.01);
    assert_memory_equal(fast.end.logits, single.end.logits, fast.end.logits_bytes);
    outcome_free(&fast);
    outcome_free(&all);
    outcome_free(&single);
}

/* Both forms of the choice, which give the same bits as long as no weights at the threshold are equal. */
static void test_experts(void **state)
{
    (void)state;
    static const char *const names[] = {"qwen3_5_moe-random", "qwen3_5_moe-tiny"};
    for (int i = 0; i < 2; i++) {
        struct safetensors *golden = golden_open(names[i]);
        size_t n;
        int32_t *ids = golden_ints(golden, "batch64", "ids", &n);
        struct outcome forms[2];
        for (int k = 0; k < 2; k++) {
            compare_paths(names[i], NULL, k == 1, ids, n);
            forms[k] = run_watched(names[i], NULL, k == 1, PRECISION_DEFAULT, ids, n, SESSION_CONTRACT);
        }
        assert_memory_equal(forms[0].end.logits, forms[1].end.logits, forms[0].end.logits_bytes);
        for (int k = 0; k < 2; k++)
            outcome_free(&forms[k]);
        free(ids);
        safetensors_close(golden);
    }
}

/* A router that finds all experts equal: the exact form takes the first k, as the reference does, the threshold takes
 * them all. */
static void test_equal_experts(void **state)
{
    (void)state;
    enum { LAYERS = 5, N = 70 };
    struct edit edits[LAYERS];
    char *names[LAYERS];
    int32_t ids[N];
    for (int i = 0; i < LAYERS; i++) {
        names[i] = xasprintf("model.layers.%d.mlp.gate.weight", i);
        edits[i] = (struct edit){names[i], -1, 0, 0};
    }
    char *checkpoint = edited_checkpoint("qwen3_5_moe-random", "equal-experts", edits, LAYERS);
    make_ids(ids, N, 300, 8);
    struct outcome forms[2];
    struct rows want = reference_rows(checkpoint, ids, N);
    for (int k = 0; k < 2; k++) {
        compare_paths("equal-experts", checkpoint, k == 1, ids, N);
        forms[k] =
            run_watched("equal-experts", checkpoint, k == 1, PRECISION_DEFAULT, ids, N, SESSION_CONTRACT);
    }
    const float *last = rows_at(&want, N - 1);
    double exact = row_cosine(forms[1].end.logits, last, want.vocab_size),
           threshold = row_cosine(forms[0].end.logits, last, want.vocab_size);
    printf("all experts equal: cosine with the reference, exactly k %.9f, threshold %.4f\n", exact,
           threshold);
    assert_true(exact >= 0.99999);
    assert_true(threshold < 0.999);
    for (int k = 0; k < 2; k++)
        outcome_free(&forms[k]);
    rows_free(&want);
    for (int i = 0; i < LAYERS; i++)
        free(names[i]);
    free(checkpoint);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits),
        cmocka_unit_test(test_logits_fp32),
        cmocka_unit_test(test_logits_by_reference),
        cmocka_unit_test(test_logits_shared),
        cmocka_unit_test(test_placeholders),
        cmocka_unit_test(test_layers),
        cmocka_unit_test(test_states),
        cmocka_unit_test(test_decays),
        cmocka_unit_test(test_zero_row),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_equal_experts),
    };
    return cmocka_run_group_tests(tests, packages_setup, packages_teardown);
}
