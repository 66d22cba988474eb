/* Names of checkpoints in the local cache. */
#include "support.h"
#include "hub/hub_internal.h"

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

/* Names as the hub has them, and what is none: the text must never become a path that leads elsewhere. */
static void test_names(void **state)
{
    static const struct {
        const char *text, *revision, *tag;
    } good[] = {{"org/name", "main", NULL},
                {"org/name@v1", "v1", NULL},
                {"org/na.me-1_2@refs/pr/1", "refs/pr/1", NULL},
                {"org/name:Q8_0", "main", "Q8_0"},
                {"org/name@v1:Q8_0", "v1", "Q8_0"}};
    static const char *const bad[] = {"name",
                                      "org/",
                                      "/name",
                                      "a/b/c",
                                      "../name",
                                      "org/..",
                                      "org/name@",
                                      "org/name@../x",
                                      "org/name@/x",
                                      "org/name:",
                                      "org/name:a/b",
                                      "org/name:..",
                                      "o rg/name",
                                      "",
                                      "/",
                                      "@",
                                      ":",
                                      "org/name@x:",
                                      "-o/x"};
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct hub_name n;
        assert_true(hub_name_parse(&n, good[i].text));
        assert_string_equal(n.revision, good[i].revision);
        assert_string_equal(n.tag ? n.tag : "", good[i].tag ? good[i].tag : "");
        assert_string_equal(n.organization, "org");
        hub_name_free(&n);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct hub_name n;
        if (hub_name_parse(&n, bad[i]))
            fail_msg("%s is taken for a name", bad[i]);
    }
}

static void test_file_names(void **state)
{
    static const char *const bad[] = {"",     ".",    "..",   "/a",       "a/",    "a//b", "a/../b",
                                      "../a", "a\\b", "a\nb", "a\x1b[2J", "a/./b", "\xff"};
    char longest[300];
    (void)state;
    assert_true(hub_is_file_name("model.safetensors"));
    assert_true(hub_is_file_name("additional_chat_templates/a.jinja"));
    assert_true(hub_is_file_name("..a/b.."));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (hub_is_file_name(bad[i]))
            fail_msg("\"%s\" is taken for a file's name", bad[i]);
    memset(longest, 'x', sizeof longest);
    longest[256] = '\0';
    assert_false(hub_is_file_name(longest));
    longest[255] = '\0';
    assert_true(hub_is_file_name(longest));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places), cmocka_unit_test(test_revisions),  cmocka_unit_test(test_paths),
        cmocka_unit_test(test_names),  cmocka_unit_test(test_file_names),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
