// links: convert reference
/* Norm weights that hold the 1 already, where gains minus one are expected, and the other way round: read rightly where the
 * file says what it is, refused where numbers and file disagree, by the conversion and by the reference alike. */
#include "packages.h"
#include "reference/reference.h"

struct variant {
    const char *model;
    const char *part;     /* of the names of the tensors that are shifted; NULL: none */
    const char *not_part; /* .. and that they must not have */
    double add;
    const char *format; /* of the metadata; NULL: none */
    bool mlx_layout;    /* of conv1d */
    bool zero;          /* the tensors become 0 first */
};

static char *make_variant(const struct variant *v, const char *name)
{
    char *from = xasprintf("%s/models/%s", MILKIT_TEST_DATA, v->model),
         *to = path_join(packages_scratch, name);
    char *config = path_join(from, "config.json"), *copy = path_join(to, "config.json"),
         *weights = path_join(from, "model.safetensors"), *out = path_join(to, "model.safetensors"),
         *text = NULL;
    size_t n = 0;
    int n_changed = 0;
    struct safetensors *s = NULL;
    struct st_writer *w = st_writer_new();
    ASSERT_OK(folder_make(to, e));
    ASSERT_OK(file_read(&text, &n, config, 1 << 20, e));
    ASSERT_OK(file_write(copy, text, n, e));
    ASSERT_OK(safetensors_open(&s, weights, e));
    float **data = xcalloc((size_t)s->n_tensors, sizeof *data);
    for (int i = 0; i < s->n_tensors; i++) {
        const struct st_tensor *t = &s->tensors[i];
        int64_t shape[SAFETENSORS_RANK_MAX];
        data[i] = xmalloc(sizeof(float) * (size_t)(t->n_elems + 1));
        ASSERT_OK(st_read_f32(t, data[i], e));
        memcpy(shape, t->shape, sizeof shape);
        bool is_norm = v->part && strstr(t->name, v->part) && !(v->not_part && strstr(t->name, v->not_part));
        n_changed += is_norm;
        for (int64_t k = 0; k < t->n_elems && is_norm; k++)
            data[i][k] = (v->zero ? 0 : data[i][k]) + (float)v->add;
        if (v->mlx_layout && strstr(t->name, "conv1d.weight")) {
            shape[1] = t->shape[2];
            shape[2] = 1;
        }
        st_writer_add(w, t->name, ST_F32, shape, t->rank, data[i]);
    }
    assert_true(!v->part || n_changed > 0);
    if (v->format)
        st_writer_metadata(w, "format", v->format);
    ASSERT_OK(st_writer_write(w, out, true, e));
    st_writer_free(w);
    for (int i = 0; i < s->n_tensors; i++)
        free(data[i]);
    free(data);
    safetensors_close(s);
    free(text);
    free(from);
    free(config);
    free(copy);
    free(weights);
    free(out);
    return to;
}

static const int32_t ids[] = {1, 7, 250, 33, 33, 8, 120, 4, 91};
enum { N_IDS = sizeof ids / sizeof *ids };

static struct rows package_rows(const char *checkpoint, const char *name, bool exact_norms)
{
    const struct package_shape shape = {name, 64, 8, 1, CONVERT_MLMODELC};
    struct session *s = NULL;
    struct model *m = package_load_with(
        &shape, &(struct package_extra){.checkpoint = checkpoint, .exact_norms = exact_norms},
        &(struct model_options){.n_threads = 1});
    ASSERT_OK(session_new(&s, m, e));
    struct rows rows = rows_feed(s, m, ids, N_IDS, SESSION_INFER_ONLY);
    session_free(s);
    model_close(m);
    return rows;
}

static struct rows reference_rows(const char *checkpoint)
{
    struct reference *r = NULL;
    struct reference_session *s = NULL;
    struct rows rows = {.capacity = N_IDS};
    ASSERT_OK(reference_open(&r, checkpoint, &(struct reference_options){.n_threads = 1}, e));
    ASSERT_OK(reference_session_new(&s, r, N_IDS, e));
    rows.vocab_size = r->vocab_size;
    rows.positions = xcalloc(N_IDS, sizeof *rows.positions);
    rows.logits = xcalloc((size_t)N_IDS * (size_t)rows.vocab_size, sizeof *rows.logits);
    ASSERT_OK(reference_feed(s, ids, N_IDS, rows_collect, &rows, e));
    reference_session_free(s);
    reference_close(r);
    return rows;
}

static void assert_same_rows(const struct rows *a, const struct rows *b, const char *what)
{
    assert_int_equal(a->n, b->n);
    if (memcmp(a->logits, b->logits, a->n * (size_t)a->vocab_size * sizeof *a->logits) != 0)
        fail_msg("%s: other logits", what);
}

/* All norms but those inside linear attention, as MLX shifts them. */
#define SHIFTED .model = "qwen3_5-equal", .part = "norm.weight", .not_part = "linear_attn"

/* The same model in every way in which it is kept: the same package and the same reference. */
static void test_read_rightly(void **state)
{
    (void)state;
    static const struct variant variants[] = {
        {.model = "qwen3_5-equal", .format = "pt"},
        {SHIFTED, .add = 1, .format = "mlx", .mlx_layout = true},
        {SHIFTED, .add = 1, .format = "mlx"},
        {SHIFTED, .add = 1, .mlx_layout = true},
        {.model = "qwen3_5-equal", .format = "mlx"}, /* saved by MLX, but as published */
        {.model = "qwen3_5-equal"},
    };
    struct rows truth[3];
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        char *name = xasprintf("kept-%zu", i), *checkpoint = make_variant(&variants[i], name);
        struct rows rows[3] = {package_rows(checkpoint, name, false)};
        rows[1] = package_rows(checkpoint, name, true);
        rows[2] = reference_rows(checkpoint);
        for (int k = 0; k < 3; k++) {
            if (i == 0) {
                truth[k] = rows[k];
                continue;
            }
            assert_same_rows(&truth[k], &rows[k], name);
            rows_free(&rows[k]);
        }
        free(checkpoint);
        free(name);
    }
    for (int k = 0; k < 3; k++)
        rows_free(&truth[k]);
}

static void assert_refused(const struct variant *v, const char *name, const char *part, bool by_reference)
{
    char *checkpoint = make_variant(v, name), *output = path_join(packages_scratch, "refused");
    struct convert_report report;
    struct err e = {0};
    if (convert_run(&(struct convert_options){.checkpoint = checkpoint, .output = output, .n_threads = 1},
                    &report, &e))
        fail_msg("%s: converted", name);
    if (e.code != ERR_FORMAT || !strstr(e.msg, part))
        fail_msg("%s: code %d, %s", name, (int)e.code, e.msg);
    assert_false(path_exists(output));
    if (by_reference) {
        struct reference *r = NULL;
        e = (struct err){0};
        assert_false(reference_open(&r, checkpoint, &(struct reference_options){.n_threads = 1}, &e));
        assert_int_equal(e.code, ERR_FORMAT);
        assert_non_null(strstr(e.msg, "norm weights"));
    }
    free(output);
    free(checkpoint);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        struct variant variant;
        const char *part;
        bool by_reference;
    } cases[] = {
        {{SHIFTED, .add = 1}, "does not say that it is one", true},
        {{SHIFTED, .add = 1, .format = "pt"}, "around 1.0", true},
        {{SHIFTED, .add = 2, .format = "mlx"}, "added twice", true},
        {{SHIFTED, .add = 2}, "around 2.0", true},
        {{.model = "qwen3_5-equal", .mlx_layout = true}, "conv1d has MLX's layout", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *name = xasprintf("other-%zu", i);
        assert_refused(&cases[i].variant, name, cases[i].part, cases[i].by_reference);
        free(name);
    }
}

/* Families that store gains take numbers around 0, but not without a word. */
static void test_warned(void **state)
{
    (void)state;
    static const struct {
        struct variant variant;
        const char *part; /* NULL: no word */
    } cases[] = {
        {{.model = "qwen3_5-equal", .part = "linear_attn.norm", .add = -1},
         "weights of linear_attn.norm are around"},
        {{.model = "qwen3-gqa8", .part = "norm.weight", .add = -1}, "as qwen3 stores them"},
        {{.model = "gemma4-resaved", .part = "norm.weight", .add = -1}, "as gemma4 stores them"},
        {{.model = "qwen3-gqa8", .part = "norm.weight", .add = -0.5}, NULL},
        {{.model = "qwen3_5-equal"}, NULL},
        {{SHIFTED, .add = 1, .format = "mlx"}, "written for MLX"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *name = xasprintf("warned-%zu", i), *checkpoint = make_variant(&cases[i].variant, name),
             *output = path_join(packages_scratch, "warned");
        struct convert_report report;
        char *said = NULL;
        size_t n_said = 0;
        struct log log = {.level = LOG_WARN, .stream = open_memstream(&said, &n_said)};
        ASSERT_OK(convert_run(&(struct convert_options){.checkpoint = checkpoint,
                                                        .output = output,
                                                        .only = "head",
                                                        .replace = true,
                                                        .n_threads = 1,
                                                        .log = &log},
                              &report, e));
        convert_report_fini(&report);
        assert_int_equal(fclose(log.stream), 0);
        bool has_word = strstr(said, "norm weights") || strstr(said, "linear_attn.norm");
        if (cases[i].part ? !strstr(said, cases[i].part) : has_word)
            fail_msg("%s: said \"%s\"", name, said);
        free(said);
        ASSERT_OK(path_remove_tree(output, e));
        free(output);
        free(checkpoint);
        free(name);
    }
}

/* What nobody trained yet, and gains of other sizes. */
static void test_taken(void **state)
{
    (void)state;
    static const struct variant variants[] = {
        {SHIFTED, .add = 0, .zero = true},
        {SHIFTED, .add = 0.25, .format = "pt"},
        {.model = "qwen3-gqa8", .part = "norm.weight", .zero = true, .add = 0.02},
        {.model = "qwen3-gqa8", .part = "norm.weight", .add = 9},
    };
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        char *name = xasprintf("taken-%zu", i), *checkpoint = make_variant(&variants[i], name);
        struct rows got = package_rows(checkpoint, name, false), want = reference_rows(checkpoint);
        for (size_t k = 0; k < got.n; k++)
            assert_true(row_cosine(got.logits + k * (size_t)got.vocab_size, rows_at(&want, got.positions[k]),
                                   got.vocab_size) > 0.999);
        rows_free(&got);
        rows_free(&want);
        free(checkpoint);
        free(name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read_rightly),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_warned),
        cmocka_unit_test(test_taken),
    };
    return cmocka_run_group_tests(tests, packages_setup, packages_teardown);
}
