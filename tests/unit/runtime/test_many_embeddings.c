// links: convert reference
/* Tables of more rows than 16 bits count: ids 0, 65535, 65536, the last one and others, by token and by batch, against
 * the reference, for one table (Qwen3) and two (Gemma 4, whose second one feeds every layer). */
#include "packages.h"
#include "reference/reference.h"

enum { VOCABULARY = 65536 + 700, BATCH = 8, N = BATCH };

static const int32_t ids[N] = {0, 65536, VOCABULARY - 1, 65535, 699, 1, 65537, 65536 + 77};

/* Every element its own number, so that no row can stand for another one. */
static bf16 *random_table(int64_t n, float scale, uint32_t seed)
{
    bf16 *table = xmalloc((size_t)n * sizeof *table);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        float value = (float)(int32_t)seed * 0x1p-31f * scale;
        uint32_t bits;
        memcpy(&bits, &value, 4);
        table[i] = (bf16)(bits >> 16);
    }
    return table;
}

/* The checkpoint of tests/data with long tables and the head tied to the first of them. */
static char *write_checkpoint(const char *model)
{
    char *from = xasprintf("%s/models/%s", MILKIT_TEST_DATA, model),
         *to = xasprintf("%s/%s-long", packages_scratch, model), *config = path_join(from, "config.json"),
         *copy = path_join(to, "config.json"), *weights = path_join(to, "model.safetensors");
    cJSON *root = NULL;
    struct safetensors *s = NULL;
    struct st_writer *w = st_writer_new();
    bf16 *tables[2] = {NULL, NULL};
    int n_tables = 0;
    ASSERT_OK(folder_make(to, e));
    ASSERT_OK(json_read_file(&root, config, 1 << 20, e));
    static const char *const sizes[] = {"vocab_size", "vocab_size_per_layer_input"};
    for (int i = 0; i < 2; i++) {
        if (!json_get(root, sizes[i]))
            continue;
        cJSON_DeleteItemFromObjectCaseSensitive(root, sizes[i]);
        cJSON_AddNumberToObject(root, sizes[i], VOCABULARY);
    }
    cJSON_DeleteItemFromObjectCaseSensitive(root, "tie_word_embeddings");
    cJSON_AddTrueToObject(root, "tie_word_embeddings");
    char *text = cJSON_Print(root);
    ASSERT_OK(file_write(copy, text, strlen(text), e));
    ASSERT_OK(safetensors_open(&s, from, e));
    for (int i = 0; i < s->n_tensors; i++) {
        const struct st_tensor *t = &s->tensors[i];
        if (strncmp(t->name, "model.embed_tokens", 18) == 0) {
            const int64_t shape[2] = {VOCABULARY, t->shape[1]};
            assert_true(n_tables < 2);
            tables[n_tables] = random_table(VOCABULARY * shape[1], 0.25f, 5 + (uint32_t)n_tables);
            st_writer_add(w, t->name, ST_BF16, shape, 2, tables[n_tables++]);
        } else if (strcmp(t->name, "lm_head.weight") != 0) {
            st_writer_add(w, t->name, t->dtype, t->shape, t->rank, t->data);
        }
    }
    ASSERT_OK(st_writer_write(w, weights, true, e));
    st_writer_free(w);
    safetensors_close(s);
    free(tables[0]);
    free(tables[1]);
    cJSON_free(text);
    cJSON_Delete(root);
    free(from);
    free(config);
    free(copy);
    free(weights);
    return to;
}

/* Rows of the embeddings [N, hidden] and logits [N, VOCABULARY]. */
struct seen {
    int64_t hidden;
    float *rows, *logits;
};

static void see_rows(void *context, int64_t layer, int64_t position, int64_t n, const float *rows)
{
    const struct seen *s = context;
    if (layer == -1)
        memcpy(s->rows + position * s->hidden, rows, sizeof *rows * (size_t)(n * s->hidden));
}

static bool see_logits(void *context, int64_t position, const float *logits, struct err *e)
{
    (void)e;
    memcpy(((struct seen *)context)->logits + position * VOCABULARY, logits, sizeof *logits * VOCABULARY);
    return true;
}

static struct seen seen_new(int64_t hidden)
{
    struct seen s = {.hidden = hidden};
    s.rows = xcalloc((size_t)(N * hidden), sizeof *s.rows);
    s.logits = xcalloc((size_t)N * VOCABULARY, sizeof *s.logits);
    return s;
}

static void seen_free(struct seen *s)
{
    free(s->rows);
    free(s->logits);
}

static struct seen run_reference(const char *checkpoint)
{
    struct reference *r = NULL;
    struct reference_session *s = NULL;
    ASSERT_OK(reference_open(&r, checkpoint, &(struct reference_options){.n_threads = 1}, e));
    assert_int_equal(r->vocab_size, VOCABULARY);
    struct seen seen = seen_new(r->hidden_size);
    ASSERT_OK(reference_session_new(&s, r, N, e));
    reference_watch(s, see_rows, &seen);
    ASSERT_OK(reference_feed(s, ids, N, see_logits, &seen, e));
    reference_session_free(s);
    reference_close(r);
    return seen;
}

static void compare_row(const float *found, const float *want, int64_t n, const char *what, int32_t id)
{
    float largest = 0, worst = 0;
    for (int64_t i = 0; i < n; i++) {
        largest = fmaxf(largest, fabsf(want[i]));
        worst = fmaxf(worst, fabsf(found[i] - want[i]));
    }
    /* fp16 of the table, and of its product with a factor */
    if (!(worst <= largest * 0x1p-9f))
        fail_msg("%s: id %d: its row differs by %g of %g", what, (int)id, (double)worst, (double)largest);
}

static void check(const char *name)
{
    char *checkpoint = write_checkpoint(name);
    struct seen want = run_reference(checkpoint);
    const struct package_shape shape = {name, 32, BATCH, 1, CONVERT_MLMODELC};
    struct model *m = package_load_with(&shape, &(struct package_extra){.checkpoint = checkpoint},
                                        &(struct model_options){.n_threads = 2});
    assert_int_equal(m->vocab_size, VOCABULARY);
    for (int batch = 0; batch < 2; batch++) {
        struct session *s = NULL;
        struct seen found = seen_new(m->hidden_size);
        ASSERT_OK(session_new(&s, m, e));
        session_watch(s, see_rows, &found);
        ASSERT_OK(session_feed(s, ids, N, batch ? SESSION_CONTRACT : SESSION_INFER_ONLY, see_logits, &found,
                               NULL, e));
        double lowest = 1;
        for (int i = 0; i < N; i++) {
            const float *a = want.logits + (int64_t)i * VOCABULARY,
                        *b = found.logits + (int64_t)i * VOCABULARY;
            compare_row(found.rows + i * want.hidden, want.rows + i * want.hidden, want.hidden, name, ids[i]);
            if (batch && i < N - 1)
                continue; /* a batch yields the logits of its last token */
            lowest = fmin(lowest, row_cosine(a, b, VOCABULARY));
        }
        printf("%s by %s: lowest cosine %.8f\n", name, batch ? "batch" : "token", lowest);
        assert_true(lowest >= 0.9999);
        /* The next id, one past the last row, is none. */
        struct err e = {0};
        const int32_t beyond = VOCABULARY;
        assert_false(session_feed(s, &beyond, 1, SESSION_INFER_ONLY, NULL, NULL, NULL, &e));
        assert_int_equal(session_position(s), N);
        session_free(s);
        seen_free(&found);
    }
    model_close(m);
    seen_free(&want);
    free(checkpoint);
}

static void test_one_table(void **state)
{
    (void)state;
    check("qwen3-gqa8");
}

static void test_two_tables(void **state)
{
    (void)state;
    check("gemma4-window");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_table),
        cmocka_unit_test(test_two_tables),
    };
    return cmocka_run_group_tests(tests, packages_setup, packages_teardown);
}
