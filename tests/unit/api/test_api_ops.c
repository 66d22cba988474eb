// links: format
/* Programs of one or a few ops through the door (mk_predict), against expected values that this project had no part in: the collections of
 * tests/data, and the whole one beside the tree when it is there. What no plan can be made of, shapes that depend on values and control flow,
 * runs here as well. */
#include <math.h>
#include <unistd.h>
#include "api.h"
#include "base/half.h"
#include "format/json.h"
#include "format/safetensors.h"

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

static int32_t type_of(enum st_dtype d)
{
    switch (d) {
    case ST_F32:
        return MK_F32;
    case ST_F16:
        return MK_F16;
    case ST_I32:
        return MK_I32;
    case ST_I8:
        return MK_I8;
    case ST_U8:
        return MK_U8;
    case ST_BOOL:
        return MK_BOOL;
    default:
        return 0;
    }
}

static double element(const mk_tensor *t, int64_t i)
{
    switch (t->type) {
    case MK_F32:
        return (double)((const float *)t->data)[i];
    case MK_F16:
        return (double)f16_to_f32(((const f16 *)t->data)[i]);
    case MK_I32:
        return ((const int32_t *)t->data)[i];
    case MK_I8:
        return ((const int8_t *)t->data)[i];
    default:
        return ((const uint8_t *)t->data)[i];
    }
}

struct tally {
    int n_programs, n_calls, n_wrong;
};

static void compare(const char *name, const mk_result *r, const struct safetensors *file, const char *prefix,
                    double atol, double rtol, struct tally *tally)
{
    for (size_t i = 0; i < mk_result_count(r); i++) {
        mk_tensor t = {.size = sizeof t};
        const char *port;
        OK(mk_result_get(r, i, &port, &t, e));
        char *key = xasprintf("%sout.%s", prefix, port);
        const struct st_tensor *want = safetensors_find(file, key);
        int64_t n = 1;
        for (int k = 0; k < t.rank; k++)
            n *= t.dims[k];
        bool same = want && want->n_elems == n && want->rank == t.rank;
        for (int k = 0; same && k < t.rank; k++)
            same = want->shape[k] == t.dims[k];
        float *numbers = xcalloc((size_t)n + 1, sizeof *numbers);
        struct err e = {0};
        same = same && st_read_f32(want, numbers, &e);
        if (!same)
            print_error("%s: output %s has another shape than is expected\n", name, port);
        for (int64_t k = 0; same && k < n; k++) {
            double got = element(&t, k), w = (double)numbers[k];
            same = got == w || (got != got && w != w) || fabs(got - w) <= atol + rtol * fabs(w);
            if (!same)
                print_error("%s: %s[%lld]: expected %.9g, found %.9g\n", name, port, (long long)k, w, got);
        }
        tally->n_wrong += !same;
        free(numbers);
        free(key);
    }
}

static void run_program(const char *folder, const cJSON *entry, struct tally *tally)
{
    const char *name = NULL;
    int64_t calls = 1;
    double atol = 0, rtol = 0;
    ASSERT_OK(json_get_string(entry, "name", &name, "index.json", e));
    ASSERT_OK(json_get_int(entry, "calls", &calls, "index.json", e));
    ASSERT_OK(json_get_double(entry, "atol", &atol, "index.json", e));
    ASSERT_OK(json_get_double(entry, "rtol", &rtol, "index.json", e));
    char *path = xasprintf("%s/%s.mlpackage", folder, name),
         *values = xasprintf("%s/%s.safetensors", folder, name);
    struct safetensors *file;
    mk_model *m;
    mk_function *f;
    mk_state *s = NULL;
    ASSERT_OK(safetensors_open(&file, values, e));
    OK(mk_model_open(&m, library, path, NULL, e));
    OK(mk_function_open(&f, m, NULL, e));
    if (mk_function_ports(f, MK_STATES) > 0)
        OK(mk_state_new(&s, f, e));
    tally->n_programs++;
    for (int64_t call = 0; call < calls; call++) {
        char *prefix = calls == 1 ? xstrdup("") : xasprintf("call%lld.", (long long)call);
        const char *names[32];
        mk_tensor in[32];
        mk_result *r = NULL;
        size_t n = mk_function_ports(f, MK_INPUTS), found = 0;
        assert_true(n <= 32);
        for (size_t i = 0; i < n; i++) {
            mk_port port = {.size = sizeof port};
            OK(mk_function_port(f, MK_INPUTS, i, &port, e));
            char *key = xasprintf("%sin.%s", prefix, port.name);
            const struct st_tensor *t = safetensors_find(file, key);
            free(key);
            if (!t)
                continue;
            names[found] = port.name;
            in[found] = (mk_tensor){.size = sizeof *in,
                                    .type = type_of(t->dtype),
                                    .rank = t->rank,
                                    .data = (void *)(uintptr_t)t->data};
            memcpy(in[found++].dims, t->shape, sizeof *t->shape * (size_t)t->rank);
        }
        bool refused = false;
        const cJSON *errors = json_get(entry, "error_calls");
        for (const cJSON *c = errors ? errors->child : NULL; c; c = c->next)
            refused = refused || c->valueint == call;
        mk_error *e = NULL;
        mk_status status = mk_predict(f, names, in, found, s, NULL, &r, &e);
        if (status != MK_OK && !refused) {
            print_error("%s: %s\n", name, mk_error_message(e));
            tally->n_wrong++;
        } else if (refused && status != MK_USAGE) {
            print_error("%s: call %lld is not refused\n", name, (long long)call);
            tally->n_wrong++;
        }
        mk_error_free(e);
        tally->n_calls++;
        if (r)
            compare(name, r, file, prefix, atol, rtol, tally);
        mk_result_free(r);
        free(prefix);
    }
    mk_state_free(s);
    mk_function_close(f);
    mk_model_close(m);
    safetensors_close(file);
    free(path);
    free(values);
}

static struct tally run_folder(const char *folder)
{
    struct tally tally = {0};
    char *path = xasprintf("%s/index.json", folder);
    cJSON *index;
    ASSERT_OK(json_read_file(&index, path, 1 << 24, e));
    for (const cJSON *entry = json_get(index, "entries")->child; entry; entry = entry->next)
        run_program(folder, entry, &tally);
    printf("%s: %d programs, %d calls, %d wrong\n", folder, tally.n_programs, tally.n_calls, tally.n_wrong);
    cJSON_Delete(index);
    free(path);
    return tally;
}

static void test_own(void **state)
{
    (void)state;
    struct tally t = run_folder(MILKIT_TEST_DATA "/ops");
    assert_int_equal(t.n_wrong, 0);
    assert_true(t.n_programs >= 20);
}

/* Programs of coremltools' own tests, with what those tests expect. */
static void test_coremltools(void **state)
{
    (void)state;
    struct tally t = run_folder(MILKIT_TEST_DATA "/ops-coremltools");
    assert_int_equal(t.n_wrong, 0);
    assert_true(t.n_programs >= 300);
}

static void test_all(void **state)
{
    (void)state;
    if (!*MILKIT_SHARED) {
        print_message("skipped: the whole collection of programs lies beside the tree\n");
        skip();
    }
    struct tally t = run_folder(MILKIT_SHARED "/peer-packages/ops");
    assert_int_equal(t.n_wrong, 0);
    assert_int_equal(t.n_programs, 331);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own),
        cmocka_unit_test(test_coremltools),
        cmocka_unit_test(test_all),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
