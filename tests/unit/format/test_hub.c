/* Names of checkpoints in the local cache. */
#include "support.h"
#include "format/hub.h"

#define COMMIT "0123456789012345678901234567890123456789"

static char scratch[64];

static int make_scratch(void **state)
{
    (void)state;
    snprintf(scratch, sizeof scratch, "test_hub.XXXXXX");
    return mkdtemp(scratch) ? 0 : -1;
}

static int remove_scratch(void **state)
{
    (void)state;
    return path_remove_tree(scratch, NULL) ? 0 : -1;
}

static void put_ref(const char *cache, const char *name, const char *text)
{
    char *path = xasprintf("%s/%s/models--org--name.x/refs/%s", scratch, cache, name),
         *folder = path_folder(path);
    ASSERT_OK(folder_make(folder, e));
    ASSERT_OK(file_write(path, text, strlen(text), e));
    free(folder);
    free(path);
}

static void make_cache(const char *cache)
{
    char *folder = xasprintf("%s/%s/models--org--name.x/snapshots/" COMMIT, scratch, cache);
    ASSERT_OK(folder_make(folder, e));
    free(folder);
    put_ref(cache, "main", COMMIT);
    put_ref(cache, "pr/1", COMMIT "\n");
    put_ref(cache, "gone", "ffffffffffffffffffffffffffffffffffffffff");
    put_ref(cache, "bad", "../../../..");
}

static void clear_variables(void)
{
    unsetenv("HF_HUB_CACHE");
    unsetenv("HF_HOME");
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", scratch, 1);
}

static void expect_found(const char *name, const char *cache)
{
    char *found = NULL, *expected = xasprintf("%s/%s/models--org--name.x/snapshots/" COMMIT, scratch, cache);
    ASSERT_OK(hub_resolve(&found, name, e));
    assert_string_equal(found, expected);
    free(found);
    free(expected);
}

static void test_places(void **state)
{
    (void)state;
    static const struct {
        const char *variable, *value, *cache;
    } places[] = {{NULL, NULL, ".cache/huggingface/hub"},
                  {"XDG_CACHE_HOME", "xdg", "xdg/huggingface/hub"},
                  {"HF_HOME", "home", "home/hub"},
                  {"HF_HUB_CACHE", "hub", "hub"}};
    clear_variables();
    /* Each one goes before those above it. */
    for (int i = 0; i < 4; i++) {
        if (places[i].variable) {
            char *value = path_join(scratch, places[i].value);
            setenv(places[i].variable, value, 1);
            free(value);
        }
        make_cache(places[i].cache);
        expect_found("org/name.x", places[i].cache);
    }
}

static void test_revisions(void **state)
{
    (void)state;
    clear_variables();
    make_cache(".cache/huggingface/hub");
    expect_found("org/name.x@main", ".cache/huggingface/hub");
    expect_found("org/name.x@pr/1", ".cache/huggingface/hub");
    expect_found("org/name.x@" COMMIT, ".cache/huggingface/hub");
    static const char *const missing[] = {"org/name.x@gone", "org/name.x@bad", "org/name.x@other",
                                          "org/other", "other/name.x"};
    for (int i = 0; i < 5; i++) {
        struct err e = {0};
        char *found = NULL;
        assert_false(hub_resolve(&found, missing[i], &e));
        assert_int_equal(e.code, ERR_IO);
        assert_non_null(strstr(e.msg, "cache"));
        assert_null(found);
    }
}

/* Paths, and what can't be a name, stay as they are. */
static void test_paths(void **state)
{
    (void)state;
    clear_variables();
    static const char *const texts[] = {"name",   "/a/b",   "./a/b",       "../a",     "a/b/c", "a/",
                                        "a/../b", "a/b@..", "a/b@../../x", "a/b@/etc", "",      "org /name",
                                        "@main",  "a@b/c",  "-a/b",        "a/-b"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char *found = NULL;
        ASSERT_OK(hub_resolve(&found, texts[i], e));
        assert_string_equal(found, texts[i]);
        free(found);
    }
    /* A folder that is there wins over a name. */
    char *folder = xasprintf("%s/inner", scratch), *found = NULL;
    ASSERT_OK(folder_make(folder, e));
    ASSERT_OK(hub_resolve(&found, folder, e));
    assert_string_equal(found, folder);
    free(found);
    free(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_revisions),
        cmocka_unit_test(test_paths),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
