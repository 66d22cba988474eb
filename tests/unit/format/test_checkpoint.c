/* What stands in front of the names of a text model, found in lists of names. */
#include "files.h"
#include "format/checkpoint.h"

#define LISTED_MAX 8

/* Names of tensors; each is a byte. */
static struct safetensors *open_names(const char *const *names)
{
    static const uint8_t byte = 0;
    struct safetensors *s = NULL;
    struct st_writer *w = st_writer_new();
    for (int i = 0; i < LISTED_MAX && names[i]; i++)
        st_writer_add(w, names[i], ST_U8, (const int64_t[]){1}, 1, &byte);
    ASSERT_OK(st_writer_write(w, files_path("names.safetensors"), true, e));
    st_writer_free(w);
    ASSERT_OK(safetensors_open(&s, files_path("names.safetensors"), e));
    return s;
}

#define TEXT(p) p "embed_tokens.weight", p "layers.0.x"

static void test_found(void **state)
{
    (void)state;
    static const struct {
        const char *names[LISTED_MAX], *layer, *head; /* names of the files, NULL: there is none */
    } cases[] = {
        {{TEXT("model."), "lm_head.weight"}, "model.layers.0.x", "lm_head.weight"},
        {{TEXT("")}, "layers.0.x", NULL},
        {{TEXT("language_model.model."), "language_model.lm_head.weight"},
         "language_model.model.layers.0.x",
         "language_model.lm_head.weight"},
        /* Multi-token prediction, towers and talkers are no text models beside one that wrappers have. */
        {{TEXT("model."), TEXT("mtp."), "mtp.lm_head.weight"}, "model.layers.0.x", NULL},
        {{TEXT("model.language_model."), TEXT("talker.model."), "model.vision_tower.layers.0.x"},
         "model.language_model.layers.0.x",
         NULL},
        {{TEXT("thinker.model."), "thinker.lm_head.weight", "thinker.visual.layers.0.x"},
         "thinker.model.layers.0.x",
         "thinker.lm_head.weight"},
        {{"_orig_mod.model.embed_tokens.weight", "_orig_mod.model.layers.0._checkpoint_wrapped_module.x"},
         "_orig_mod.model.layers.0._checkpoint_wrapped_module.x",
         NULL},
        /* The table of embeddings is lost. */
        {{"language_model.layers.0.x", "vision_tower.layers.0.x"}, "language_model.layers.0.x", NULL},
        /* A part of a name is no name. */
        {{"model.my_embed_tokens.weight", TEXT("language_model.")}, "language_model.layers.0.x", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct safetensors *s = open_names(cases[i].names);
        struct checkpoint_names *n = checkpoint_names_new(s);
        const struct st_tensor *layer = checkpoint_find(n, "model.layers.0.x"),
                               *head = checkpoint_find(n, "lm_head.weight");
        assert_non_null(layer);
        assert_string_equal(layer->name, cases[i].layer);
        assert_int_equal(head != NULL, cases[i].head != NULL);
        assert_int_equal(checkpoint_has(n, "lm_head.weight"), cases[i].head != NULL);
        if (head)
            assert_string_equal(head->name, cases[i].head);
        assert_null(checkpoint_find(n, "model.layers.1.x"));
        checkpoint_names_free(n);
        safetensors_close(s);
    }
}

static void test_missing(void **state)
{
    (void)state;
    static const struct {
        const char *names[LISTED_MAX], *name;
        enum err_code code;
        const char *says, *says_too;
    } cases[] = {
        {{TEXT("model."), TEXT("language_model.")},
         "model.norm.weight",
         ERR_FORMAT,
         "two text models",
         "language_model."},
        {{TEXT("a."), TEXT("b.")}, "model.norm.weight", ERR_FORMAT, "two text models", "b.embed_tokens"},
        {{TEXT("model."), "lm_head.weight", "model.lm_head.weight"},
         "lm_head.weight",
         ERR_FORMAT,
         "there are two",
         "model.lm_head"},
        {{"tok_embeddings.weight", "layers.0.attention.wq.weight"},
         "model.norm.weight",
         ERR_FORMAT,
         "tensor norm.weight is missing",
         "names.safetensors"},
        {{"model.vision_tower.blocks.0.x", "b"},
         "model.norm.weight",
         ERR_UNSUPPORTED,
         "no text model",
         "model.vision_tower.blocks.0.x, b"},
        {{"model.embed_tokens.weight", "model.layers.0.x", "_orig_mod.model.layers.0.x"},
         "model.layers.0.x",
         ERR_FORMAT,
         "found as model.layers.0.x and as _orig_mod.model.layers.0.x",
         "missing (expected shape [2, 3])"},
        {{TEXT("language_model.")},
         "model.norm.weight",
         ERR_FORMAT,
         "tensor language_model.norm.weight is missing",
         "[2, 3]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct safetensors *s = open_names(cases[i].names);
        struct checkpoint_names *n = checkpoint_names_new(s);
        struct err e = {0};
        assert_null(checkpoint_find(n, cases[i].name));
        assert_false(checkpoint_missing(n, cases[i].name, 2, (const int64_t[]){2, 3}, &e));
        expect_message(&e, cases[i].code, cases[i].says, cases[i].says_too, NULL);
        checkpoint_names_free(n);
        safetensors_close(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_found), cmocka_unit_test(test_missing)};
    return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
