/* The reference on GGUF files: logits as transformers gives them on the numbers that the blocks mean. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/file.h"
#include "format/json.h"
#include "reference/reference.h"

/* The list names the file, a prompt and its last logits. */
static bool check_file(const char *path, const cJSON *list)
{
    struct reference *r = NULL;
    struct reference_session *s = NULL;
    struct err e = {0};
    const struct reference_options options = {.n_threads = 2};
    const cJSON *logits = json_get(list, "logits"), *ids = json_get(logits, "ids"),
                *expected = json_get(logits, "last_position"), *v;
    int32_t tokens[64];
    size_t n = 0;
    if (!reference_open(&r, path, &options, &e)) {
        /* A family that this tree does not have. */
        if (e.code != ERR_UNSUPPORTED || !strstr(e.msg, "model_type"))
            fail_msg("%s", e.msg);
        print_message("%s: skipped: %s\n", path, e.msg);
        return false;
    }
    cJSON_ArrayForEach(v, ids) tokens[n++] = (int32_t)v->valuedouble;
    assert_true(n > 0 && n <= 64);
    assert_true(reference_session_new(&s, r, (int64_t)n, &e));
    assert_true(reference_feed(s, tokens, n, NULL, NULL, &e));
    assert_int_equal(cJSON_GetArraySize(expected), r->vocab_size);
    int i = 0;
    cJSON_ArrayForEach(v, expected)
    {
        float found = reference_logits(s)[i++];
        if (fabs((double)found - v->valuedouble) > 5e-4)
            fail_msg("%s: logit %d: expected %g, found %g", path, i - 1, v->valuedouble, (double)found);
    }
    reference_session_free(s);
    reference_close(r);
    return true;
}

static int check_folder(const char *folder)
{
    struct path_list files = {0};
    struct err e = {0};
    int n = 0;
    if (!path_list_read(&files, folder, NULL)) {
        print_message("%s is not there: skipped\n", folder);
        return 0;
    }
    for (size_t i = 0; i < files.n; i++) {
        char *path = path_join(folder, files.names[i]);
        if (has_suffix(path, ".gguf.json")) {
            cJSON *list;
            assert_true(json_read_file(&list, path, (size_t)64 << 20, &e));
            path[strlen(path) - strlen(".json")] = '\0';
            n += json_get(list, "logits") ? check_file(path, list) : 0;
            cJSON_Delete(list);
        }
        free(path);
    }
    path_list_free(&files);
    return n;
}

static void test_logits_are_transformers(void **state)
{
    (void)state;
    int n = check_folder(MILKIT_TEST_DATA "/gguf");
    assert_true(n > 0);
    n += check_folder(MILKIT_SHARED "/gguf");
    print_message("%d files\n", n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_logits_are_transformers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
