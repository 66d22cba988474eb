/* Programs of one or a few ops that another tool built, against expected values that the engine had no part
 * in: every result of every supported program within its tolerance in every precision; what is not supported
 * is refused at planning by a message that names the op. supported.txt lists what runs: it may only grow. */
#include <unistd.h>
#include "op_case.h"

static char compiled[] = "ops-compiled.XXXXXX";

struct names {
    char *text;
    struct table *table;
    size_t n;
};

static void read_names(struct names *l, const char *path)
{
    size_t bytes;
    ASSERT_OK(file_read(&l->text, &bytes, path, 1 << 20, e));
    l->table = table_new();
    l->n = 0;
    for (char *at = strtok(l->text, "\n"); at; at = strtok(NULL, "\n")) {
        if (*at == '#')
            continue;
        assert_true(table_put(l->table, at, at));
        l->n++;
    }
}

struct tally {
    int n, n_right, n_unsupported, n_wrong, n_unlisted, n_values;
};

/* supported NULL: all must run. into: a folder for the compiled forms, which then run. */
static void run_folder(const char *folder, const struct names *supported, const char *into,
                       enum engine_precision precision, struct tally *t)
{
    char *index_path = xasprintf("%s/index.json", folder);
    cJSON *index = NULL;
    memset(t, 0, sizeof *t);
    ASSERT_OK(json_read_file(&index, index_path, 1 << 24, e));
    const cJSON *entries = json_get(index, "entries");
    assert_non_null(entries);
    for (const cJSON *entry = entries->child; entry; entry = entry->next) {
        struct op_case c;
        struct op_report report;
        ASSERT_OK(op_case_read(entry, folder, &c, e));
        c.compiled = into;
        enum op_outcome outcome = op_case_run(&c, precision, &report);
        bool listed = !supported || table_get(supported->table, c.name) != NULL;
        t->n++;
        t->n_values += report.n_values;
        if (outcome == OP_RIGHT)
            t->n_right++;
        else if (outcome == OP_UNSUPPORTED)
            t->n_unsupported++;
        else
            t->n_wrong++;
        if (outcome == OP_UNSUPPORTED && listed) {
            print_error("%s: no longer supported: %s\n", c.name, report.refusal);
            t->n_wrong++;
        }
        if (outcome == OP_RIGHT && !listed) {
            printf("%s: runs, but is not listed in supported.txt\n", c.name);
            t->n_unlisted++;
        }
    }
    cJSON_Delete(index);
    free(index_path);
}

static void run_small(enum engine_precision precision, const char *into)
{
    struct tally t;
    run_folder(MILKIT_TEST_DATA "/ops", NULL, into, precision, &t);
    assert_int_equal(t.n_wrong, 0);
    assert_int_equal(t.n_right, t.n);
    assert_true(t.n >= 20 && t.n_values > 1000);
}

static void run_all(enum engine_precision precision)
{
    struct tally t;
    struct names supported;
    SKIP_WITHOUT_SHARED();
    read_names(&supported, MILKIT_TEST_DATA "/ops/supported.txt");
    run_folder(MILKIT_SHARED "/peer-packages/ops", &supported, NULL, precision, &t);
    printf("%d programs: %d right, %d refused, %d wrong; %d values\n", t.n, t.n_right, t.n_unsupported,
           t.n_wrong, t.n_values);
    assert_int_equal(t.n_wrong, 0);
    /* A name in the list that no program has would show here. */
    assert_int_equal(t.n_right - t.n_unlisted, supported.n);
    table_free(supported.table);
    free(supported.text);
}

static void test_small_fp32(void **state)
{
    (void)state;
    run_small(ENGINE_FP32, NULL);
}

static void test_small_default(void **state)
{
    (void)state;
    run_small(ENGINE_DEFAULT, NULL);
}

static void test_small_fp16(void **state)
{
    (void)state;
    run_small(ENGINE_FP16, NULL);
}

static void test_small_compiled(void **state)
{
    (void)state;
    run_small(ENGINE_DEFAULT, compiled);
}

static void test_all_fp32(void **state)
{
    (void)state;
    run_all(ENGINE_FP32);
}

static void test_all_default(void **state)
{
    (void)state;
    run_all(ENGINE_DEFAULT);
}

static void test_all_fp16(void **state)
{
    (void)state;
    run_all(ENGINE_FP16);
}

static int make_scratch(void **state)
{
    (void)state;
    return mkdtemp(compiled) ? 0 : -1;
}

static int remove_scratch(void **state)
{
    (void)state;
    return path_remove_tree(compiled, NULL) ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_fp32), cmocka_unit_test(test_small_default),
        cmocka_unit_test(test_small_fp16), cmocka_unit_test(test_small_compiled),
        cmocka_unit_test(test_all_fp32),   cmocka_unit_test(test_all_default),
        cmocka_unit_test(test_all_fp16),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
