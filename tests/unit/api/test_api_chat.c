// links: convert runtime
/* Conversations through the door: events, messages, settings, stopping; and tokenizers without a model. */
#include "api.h"
#include "packages.h"

static const struct package_shape tiny = {"qwen3-tiny", 256, 16, 1, CONVERT_MLMODELC};

static mk_library *library;
static mk_package *package;
static char *path;

static int setup(void **state)
{
    int status = packages_setup(state);
    path = package_make(&tiny);
    mk_options options = {.size = sizeof options, .threads = 1};
    mk_error *e = NULL;
    if (mk_library_open(&library, &options, &e) || mk_package_open(&package, library, path, NULL, &e))
        print_error("%s\n", mk_error_message(e));
    return status ? status : package ? 0 : -1;
}

static int teardown(void **state)
{
    mk_package_close(package);
    mk_library_close(library);
    free(path);
    return packages_teardown(state);
}

/* What came of an answer. */
struct heard {
    struct buf text; /* content and reasoning */
    int n_begin, n_end, n_dropped, n_pieces;
    int refuse_at; /* of pieces; 0: never */
    mk_chat_event end;
    mk_chat *cancel; /* at the first piece */
};

static bool hear(void *context, const mk_chat_event *event)
{
    struct heard *h = context;
    assert_int_equal(event->size, sizeof *event);
    switch (event->kind) {
    case MK_CHAT_BEGIN:
        h->n_begin++;
        break;
    case MK_CHAT_END:
        h->n_end++;
        h->end = *event;
        break;
    case MK_CHAT_DROPPED:
        h->n_dropped += (int)event->n_dropped;
        break;
    default:
        buf_append(&h->text, event->text, event->n);
        if (h->cancel)
            mk_chat_cancel(h->cancel);
        return ++h->n_pieces != h->refuse_at;
    }
    return true;
}

static void hear_begin(struct heard *h)
{
    buf_fini(&h->text);
    *h = (struct heard){0};
    buf_init(&h->text, 1 << 20);
}

#define GREEDY "\"sampling\": {\"greedy\": true}, \"max_tokens\": 12"

static mk_chat *open_chat(const char *settings)
{
    mk_chat *chat;
    OK(mk_chat_new(&chat, package, settings, e));
    return chat;
}

static mk_chat_stats stats_of(const mk_chat *chat)
{
    mk_chat_stats s = {.size = sizeof s};
    OK(mk_chat_get_stats(chat, &s, e));
    return s;
}

static char *messages_of(const mk_chat *chat)
{
    mk_text *t;
    OK(mk_chat_messages(chat, &t, e));
    char *text = xstrdup(mk_text_data(t, NULL));
    mk_text_free(t);
    return text;
}

static void test_turns(void **state)
{
    (void)state;
    mk_chat *chat = open_chat("{" GREEDY ", \"system\": \"Be brief.\"}");
    struct heard h = {0};
    hear_begin(&h);
    assert_string_equal(mk_chat_system(chat), "Be brief.");
    OK(mk_chat_say(chat, "But, beloved", 12, hear, &h, NULL, e));
    assert_int_equal(h.n_begin, 1);
    assert_int_equal(h.n_end, 1);
    assert_int_equal(h.end.end, MK_END_LENGTH);
    assert_int_equal(h.end.n_generated, 12);
    assert_false(h.end.has_failed);
    mk_chat_stats s = stats_of(chat);
    assert_int_equal(s.n_messages, 2);
    assert_int_equal(s.n_answers, 1);
    assert_int_equal(s.last.n_generated, 12);
    assert_int_equal(s.last_end, MK_END_LENGTH);
    char *first = xstrdup(h.text.p), *before = messages_of(chat);
    assert_non_null(strstr(before, "\"Be brief.\""));
    /* The second turn computes only what is new; the same answer comes again, and after it was taken back. */
    hear_begin(&h);
    OK(mk_chat_say(chat, "And", 3, hear, &h, NULL, e));
    assert_true(h.end.n_reused > 12 && h.end.n_reused < h.end.n_prompt);
    char *second = xstrdup(h.text.p);
    hear_begin(&h);
    OK(mk_chat_again(chat, hear, &h, NULL, e));
    assert_string_equal(h.text.p, second);
    OK(mk_chat_undo(chat, e));
    char *after = messages_of(chat);
    assert_string_equal(after, before);
    FAILS(mk_chat_answer(chat, NULL, NULL, NULL, e), MK_USAGE, "no message to answer");
    OK(mk_chat_add(chat, "{\"role\": \"user\", \"content\": \"And\"}", e));
    hear_begin(&h);
    OK(mk_chat_answer(chat, hear, &h, NULL, e));
    assert_string_equal(h.text.p, second);
    /* What the model sees begins with the prompt of the first turn, whatever is said to it. */
    size_t n;
    const int32_t *ids = mk_chat_tokens(chat, &n);
    assert_true(n > 24 && ids);
    mk_chat_clear(chat);
    assert_int_equal(stats_of(chat).n_messages, 0);
    FAILS(mk_chat_undo(chat, e), MK_USAGE, "take back");
    FAILS(mk_chat_again(chat, NULL, NULL, NULL, e), MK_USAGE, "nothing to answer");
    OK(mk_chat_say(chat, "But, beloved", 12, NULL, NULL, NULL, e));
    char *again = messages_of(chat);
    assert_string_equal(again, before);
    mk_chat_free(chat);
    free(again);
    free(after);
    free(before);
    free(first);
    free(second);
    buf_fini(&h.text);
}

static void test_stopping(void **state)
{
    (void)state;
    mk_chat *chat = open_chat("{" GREEDY "}");
    struct heard h = {0};
    hear_begin(&h);
    /* Whoever listens wants no more: nothing is kept. */
    h.refuse_at = 2;
    FAILS(mk_chat_say(chat, "But, beloved", 12, hear, &h, NULL, e), MK_CANCELLED, "caller");
    assert_int_equal(h.n_end, 1);
    assert_true(h.end.has_failed);
    assert_int_equal(stats_of(chat).n_messages, 0);
    /* Stopped before it began. */
    mk_cancel *c = mk_cancel_new();
    mk_call call = {.size = sizeof call, .cancel = c};
    mk_cancel_set(c);
    hear_begin(&h);
    FAILS(mk_chat_say(chat, "But, beloved", 12, hear, &h, &call, e), MK_CANCELLED, NULL);
    assert_int_equal(h.n_begin, 0);
    assert_int_equal(stats_of(chat).n_messages, 0);
    mk_cancel_clear(c);
    /* Stopped on the way: kept as far as it came. */
    hear_begin(&h);
    h.cancel = chat;
    OK(mk_chat_say(chat, "But, beloved", 12, hear, &h, &call, e));
    assert_int_equal(h.end.end, MK_END_CALLER);
    assert_true(h.end.n_generated < 12);
    assert_int_equal(stats_of(chat).n_messages, 2);
    mk_chat_cancel(chat); /* no call is running */
    OK(mk_chat_say(chat, "And", 3, NULL, NULL, &call, e));
    mk_cancel_free(c);
    mk_chat_free(chat);
    buf_fini(&h.text);
}

static void test_full_context(void **state)
{
    (void)state;
    mk_chat *chat = open_chat("{\"sampling\": {\"greedy\": true}, \"max_tokens\": 40}");
    struct heard h = {0};
    hear_begin(&h);
    for (int i = 0; i < 8; i++)
        OK(mk_chat_say(chat, "And it came to pass after these things", 38, hear, &h, NULL, e));
    assert_true(h.n_dropped > 0);
    assert_int_equal(stats_of(chat).n_dropped, h.n_dropped);
    char *much = xcalloc(1, 4000);
    memset(much, 'x', 3999);
    mk_chat_stats before = stats_of(chat);
    FAILS(mk_chat_say(chat, much, 3999, NULL, NULL, NULL, e), MK_LIMIT, "256");
    assert_int_equal(stats_of(chat).n_messages, before.n_messages);
    free(much);
    mk_chat_free(chat);
    buf_fini(&h.text);
}

static void test_settings(void **state)
{
    (void)state;
    mk_chat *chat = NULL;
    static const char *const wrong[][2] = {
        {"{\"sistem\": \"x\"}", "sistem"},
        {"{\"think\": \"maybe\"}", "think"},
        {"{\"tools\": {}}", "tools"},
        {"{\"template_args\": [1]}", "template_args"},
        {"{\"max_tokens\": \"x\"}", "max_tokens"},
        {"{\"sampling\": {\"topk\": 1}}", "topk"},
        {"{\"sampling\": {\"top_p\": 7}}", "top-p"},
        {"{\"sampling\": {\"seed\": \"x\"}}", "seed"},
        {"[]", "expected an object"},
        {"{", "JSON"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        FAILS(mk_chat_new(&chat, package, wrong[i][0], e), MK_USAGE, wrong[i][1]);
        assert_null(chat);
    }
    FAILS(mk_chat_new(&chat, package, "{\"template_file\": \"no/such/file\"}", e), MK_FAILED, "no/such/file");
    chat = open_chat(NULL);
    FAILS(mk_chat_set(chat, "{\"template\": false}", e), MK_USAGE, "can't be changed");
    FAILS(mk_chat_set(chat, "{\"sampling\": {\"min_p\": 2}}", e), MK_USAGE, "min-p");
    OK(mk_chat_set(chat,
                   "{\"sampling\": {\"temperature\": 0.5, \"top_k\": 7, \"seed\": \"9223372036854775807\"}, "
                   "\"think\": \"off\"}",
                   e));
    mk_sampling s = {.size = sizeof s};
    OK(mk_chat_sampling(chat, &s, e));
    assert_true(s.temperature == 0.5 && s.top_k == 7 && s.seed == INT64_MAX);
    /* A caller that knows less of a structure gets what it knows. */
    s = (mk_sampling){.size = offsetof(mk_sampling, top_p), .top_p = -5};
    OK(mk_chat_sampling(chat, &s, e));
    assert_true(s.temperature == 0.5 && s.top_p == -5);
    s.size = 0;
    FAILS(mk_chat_sampling(chat, &s, e), MK_USAGE, "size");
    FAILS(mk_chat_get_stats(chat, &(mk_chat_stats){0}, e), MK_USAGE, "size");
    mk_chat_set_system(chat, "x");
    assert_string_equal(mk_chat_system(chat), "x");
    mk_chat_set_system(chat, NULL);
    assert_null(mk_chat_system(chat));
    FAILS(mk_chat_add(chat, "{\"role\": \"judge\"}", e), MK_USAGE, "role");
    FAILS(mk_chat_add(chat, "[", e), MK_USAGE, NULL);
    mk_chat_free(chat);
    mk_chat_free(NULL);
}

/* A template of the caller's shows what it is given: tools, variables, messages of tools. */
static void test_template(void **state)
{
    (void)state;
    static const char text[] =
        "{%- for m in messages %}<{{ m.role }}{{ ':' + m.name if m.name }}>{{ m.content }}{% endfor %}"
        "{{ tools | length if tools else 'none' }},{{ number }}{{ '<assistant>' if add_generation_prompt }}";
    char *file = path_join(packages_scratch, "shown.jinja"),
         *saved = path_join(packages_scratch, "saved.json");
    FILE *f = fopen(file, "wb");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    char *settings =
        xasprintf("{" GREEDY ", \"template_file\": \"%s\", \"template_args\": {\"number\": 1.0}, "
                  "\"tools\": [{\"type\": \"function\"}, {\"type\": \"function\"}]}",
                  file);
    mk_chat *chat = open_chat(settings);
    OK(mk_chat_add(chat, "{\"role\": \"user\", \"content\": \"q\"}", e));
    OK(mk_chat_add(chat,
                   "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"type\": \"function\", "
                   "\"function\": {\"name\": \"f\", \"arguments\": {\"x\": 1.50}}}]}",
                   e));
    OK(mk_chat_add(chat, "{\"role\": \"tool\", \"content\": \"r\", \"name\": \"f\", \"tool_call_id\": \"7\"}",
                   e));
    OK(mk_chat_answer(chat, NULL, NULL, NULL, e));
    size_t n;
    const int32_t *ids = mk_chat_tokens(chat, &n);
    mk_text *seen;
    OK(mk_detokenize(mk_package_tokenizer(package), ids, n, MK_SPECIAL, &seen, e));
    assert_non_null(strstr(mk_text_data(seen, NULL), "<user>q<assistant><tool:f>r2,1.0<assistant>"));
    mk_text_free(seen);
    /* To a file and back, every member. */
    OK(mk_chat_save(chat, saved, false, e));
    FAILS(mk_chat_save(chat, saved, false, e), MK_FAILED, "exists");
    OK(mk_chat_save(chat, saved, true, e));
    char *before = messages_of(chat);
    assert_non_null(strstr(before, "1.50"));
    assert_non_null(strstr(before, "\"tool_call_id\": \"7\""));
    mk_chat_clear(chat);
    OK(mk_chat_load(chat, saved, e));
    char *after = messages_of(chat);
    assert_string_equal(before, after);
    FAILS(mk_chat_load(chat, file, e), MK_FORMAT, NULL);
    free(before);
    before = messages_of(chat);
    assert_string_equal(before, after);
    /* All of it is one turn of the user. */
    OK(mk_chat_undo(chat, e));
    assert_int_equal(stats_of(chat).n_messages, 0);
    mk_chat_free(chat);
    free(before);
    free(after);
    free(settings);
    free(file);
    free(saved);
}

static void test_tokenizers(void **state)
{
    (void)state;
    mk_tokenizer *t;
    char *folder = xasprintf("%s/models/qwen3-tiny", MILKIT_TEST_DATA);
    char *file = path_join(folder, "tokenizer.json");
    mk_tokenizer_options o = {.size = sizeof o};
    int32_t ids[64], expected[64];
    size_t n, n_expected;
    OK(mk_tokenize(mk_package_tokenizer(package), "In the beginning", 16, MK_SPECIAL, expected, 64,
                   &n_expected, e));
    for (uint32_t parts = 0; parts <= MK_READ_TOKENIZER; parts++) {
        for (int is_file = 0; is_file < 2; is_file++) {
            o.parts = parts;
            OK(mk_tokenizer_open(&t, library, is_file ? file : folder, &o, e));
            OK(mk_tokenize(t, "In the beginning", 16, MK_SPECIAL, ids, 64, &n, e));
            assert_int_equal(n, n_expected);
            assert_memory_equal(ids, expected, n * sizeof *ids);
            assert_true(mk_tokenizer_size(t) > 0);
            mk_tokenizer_close(t);
        }
    }
    o.parts = MK_READ_TEMPLATES;
    OK(mk_tokenizer_open(&t, library, folder, &o, e));
    assert_int_equal(mk_tokenizer_size(t), 0);
    FAILS(mk_tokenize(t, "x", 1, 0, ids, 64, &n, e), MK_FORMAT, "templates alone");
    mk_tokenizer_close(t);
    o.parts = 8;
    FAILS(mk_tokenizer_open(&t, library, folder, &o, e), MK_USAGE, "parts");
    FAILS(mk_tokenizer_open(&t, library, packages_scratch, NULL, e), MK_FAILED, "tokenizer.json");
    assert_null(t);
    mk_tokenizer_close(NULL);
    /* A package for ids alone. */
    mk_package *p;
    mk_chat *chat;
    const mk_package_options options = {.size = sizeof options, .text = MK_TEXT_NONE};
    OK(mk_package_open(&p, library, path, &options, e));
    FAILS(mk_tokenize(mk_package_tokenizer(p), "x", 1, 0, ids, 64, &n, e), MK_FORMAT, "ids alone");
    FAILS(mk_chat_new(&chat, p, NULL, e), MK_FORMAT, "ids alone");
    mk_package_close(p);
    free(folder);
    free(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_turns),    cmocka_unit_test(test_stopping), cmocka_unit_test(test_full_context),
        cmocka_unit_test(test_settings), cmocka_unit_test(test_template), cmocka_unit_test(test_tokenizers),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
