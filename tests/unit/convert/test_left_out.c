/* How a conversion names the tensors that it does not need. */
#include "support.h"
#include "convert/report.h"

/* Names of tensors; the used ones begin with '+'. */
static char *left_out(const char *const *names, int n)
{
    struct st_tensor tensors[16];
    bool used[16];
    struct safetensors s = {.n_tensors = n, .tensors = tensors};
    struct arch_model m = {.tensors = &s, .tensor_used = used};
    assert_true(n <= 16);
    memset(tensors, 0, sizeof tensors);
    for (int i = 0; i < n; i++) {
        used[i] = names[i][0] == '+';
        tensors[i].name = names[i] + (used[i] ? 1 : 0);
    }
    return convert_left_out(&m);
}

static void test_groups(void **state)
{
    (void)state;
    static const char *const names[] = {
        "+model.language_model.embed.weight",
        "model.vision_tower.layers.0.weight",
        "+model.language_model.layers.0.attn.k.weight",
        "model.language_model.layers.10.attn.k.weight",
        "model.vision_tower.layers.1.weight",
        "+model.language_model.layers.10.attn.q.weight",
        "model.language_model.layers.11.attn.k.weight",
        "+model.language_model.layers.11.attn.q.weight",
        "mtp.fc.weight",
        "model.language_model.layers.11.attn.q.bias",
        "mtp.norm.weight",
        "extra",
    };
    char *text = left_out(names, 12);
    assert_string_equal(text,
                        "model.vision_tower.* (2), model.language_model.layers.*.attn.k.* (2), mtp.* (2), "
                        "model.language_model.layers.*.attn.q.bias, extra");
    free(text);
}

static void test_nothing(void **state)
{
    (void)state;
    static const char *const names[] = {"+a.weight", "+b.weight"};
    assert_null(left_out(names, 2));
}

/* Many groups, long names and strange ones are cut, not refused. */
static void test_limits(void **state)
{
    (void)state;
    char longest[1000];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    const char *names[] = {"a", "b", "c", "d", "e", "f", longest, "..", "h", "i.j", ""};
    char *text = left_out(names, 11);
    assert_non_null(strstr(text, "a, b, c, d, e, f, xxx"));
    assert_non_null(strstr(text, " and 3 more"));
    assert_true(strlen(text) < 300);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
