// links: convert runtime
/* The door of the library: packages, text, sampling, sessions. Everything through milkit.h but the making of packages. */
#include <string.h>
#include "api.h"
#include "packages.h"
#include "runtime/generate.h"

static const struct package_shape tiny = {"qwen3-tiny", 128, 16, 1, CONVERT_MLMODELC};

static mk_library *library;
static mk_package *package;

static int setup(void **state)
{
    int status = packages_setup(state);
    char *path = package_make(&tiny);
    mk_options options = {.size = sizeof options, .threads = 2};
    mk_error *e = NULL;
    if (mk_library_open(&library, &options, &e) || mk_package_open(&package, library, path, NULL, &e))
        print_error("%s\n", mk_error_message(e));
    free(path);
    return status ? status : package ? 0 : -1;
}

static int teardown(void **state)
{
    mk_library_close(library); /* before its child: order does not matter */
    mk_package_close(package);
    return packages_teardown(state);
}

static void test_names(void **state)
{
    (void)state;
    assert_int_equal(mk_version(), MK_VERSION_MAJOR * 1000000 + MK_VERSION_MINOR * 1000 + MK_VERSION_PATCH);
    assert_string_equal(mk_status_name(MK_OK), "ok");
    assert_string_equal(mk_status_name(MK_CANCELLED), "cancelled");
    assert_string_equal(mk_status_name(99), "unknown");
    assert_string_equal(mk_status_name(-1), "unknown");
    assert_non_null(strstr(mk_build_info(), "\"levels\": [\"scalar\""));
    assert_non_null(strstr(mk_package_info(package), "\"architecture\": \"qwen3\""));
    assert_non_null(strstr(mk_package_info(package), "\"has_tokenizer\": true"));
    assert_int_equal(mk_package_context_length(package), 128);
}

static void test_wrong_structures(void **state)
{
    (void)state;
    mk_options options = {.size = 3};
    mk_library *l;
    FAILS(mk_library_open(&l, &options, e), MK_USAGE, "size");
    assert_null(l);
    options = (mk_options){.size = sizeof options, .threads = -1};
    FAILS(mk_library_open(&l, &options, e), MK_USAGE, "threads");
    /* An older caller knows less of the structure; what lies behind its size is not read. */
    options = (mk_options){.size = offsetof(mk_options, log_level), .threads = 1, .log_level = 77};
    OK(mk_library_open(&l, &options, e));
    mk_package *p;
    FAILS(mk_package_open(&p, l, "no/such/folder", NULL, e), MK_FAILED, "no/such/folder");
    assert_null(p);
    /* A hint is a word, not an option. */
    mk_error *hinted = NULL;
    assert_int_equal(mk_package_open(&p, l, MILKIT_TEST_DATA "/models/qwen3-tiny", NULL, &hinted), MK_FORMAT);
    assert_string_equal(mk_error_hint(hinted), "convert");
    assert_null(strstr(mk_error_message(hinted), "milkit convert"));
    mk_error_free(hinted);
    FAILS(mk_convert(l, MILKIT_TEST_DATA "/models/qwen3-tiny", MILKIT_TEST_DATA, NULL, NULL, NULL, e),
          MK_FAILED, "exists");
    assert_string_equal(mk_error_hint(NULL), "");
    mk_package_options wrong = {.size = sizeof wrong, .precision = 9};
    FAILS(mk_package_open(&p, l, "no/such/folder", &wrong, e), MK_USAGE, "precision");
    /* Options that are not an object, and values that are not of their kind. */
    static const char *const options_json[] = {"[1]",        "3", "[\"force\"]", "null", "{\"force\": 1}",
                                               "{\"x\": 1}", "{"};
    for (size_t i = 0; i < sizeof options_json / sizeof *options_json; i++) {
        FAILS(mk_compile(l, "no/such/folder", "out", options_json[i], e), MK_USAGE, NULL);
        FAILS(mk_convert(l, "no/such/folder", "out", options_json[i], NULL, NULL, e), MK_USAGE, NULL);
    }
    FAILS(mk_convert(l, "no/such/folder", "out", "{\"chunks\": \"few\"}", NULL, NULL, e), MK_USAGE, "auto");
    FAILS(mk_convert(l, "no/such/folder", "out", "{\"chunks\": \"auto\"}", NULL, NULL, e), MK_FAILED,
          "no/such/folder");
    FAILS(mk_convert(l, "no/such/folder", "out", "{\"report\": \"-\"}", NULL, NULL, e), MK_USAGE, "report");
    /* Nobody has to take the error. */
    assert_int_equal(mk_package_open(&p, l, "no/such/folder", NULL, NULL), MK_FAILED);
    mk_library_close(l);
}

static void test_text(void **state)
{
    (void)state;
    static const char text[] = "In the beginning God created";
    int32_t ids[64];
    size_t n, bytes;
    mk_text *back;
    FAILS(mk_tokenize(mk_package_tokenizer(package), text, strlen(text), 0, ids, 1, &n, e), MK_LIMIT,
          "do not fit");
    assert_true(n > 1 && n < 64);
    size_t needed = n;
    OK(mk_tokenize(mk_package_tokenizer(package), text, strlen(text), 0, ids, 64, &n, e));
    assert_int_equal(n, needed);
    OK(mk_detokenize(mk_package_tokenizer(package), ids, n, 0, &back, e));
    assert_string_equal(mk_text_data(back, &bytes), text);
    assert_int_equal(bytes, strlen(text));
    mk_text_free(back);

    mk_decoder *d;
    char joined[256] = "";
    const char *piece;
    OK(mk_decoder_new(&d, mk_package_tokenizer(package), 0, e));
    for (size_t i = 0; i < n; i++) {
        OK(mk_decoder_add(d, ids[i], &piece, &bytes, e));
        assert_int_equal(strlen(piece), bytes);
        strncat(joined, piece, sizeof joined - strlen(joined) - 1);
    }
    OK(mk_decoder_finish(d, &piece, &bytes, e));
    strncat(joined, piece, sizeof joined - strlen(joined) - 1);
    assert_string_equal(joined, text);
    mk_decoder_free(d);
    FAILS(mk_tokenize(mk_package_tokenizer(package), text, 2, 8, ids, 64, &n, e), MK_USAGE, "flags");
}

/* Bytes of tokens, joined, are the text, also where a character is cut into several tokens. */
static void test_token_bytes(void **state)
{
    (void)state;
    static const char text[] = "In the beginning \xe2\x82\xac\xf0\x9f\x98\x80 God";
    const mk_tokenizer *t = mk_package_tokenizer(package);
    int32_t ids[64];
    char joined[256], bytes[64];
    size_t n, n_joined = 0, n_bytes;
    bool has_part = false;
    OK(mk_tokenize(t, text, strlen(text), 0, ids, 64, &n, e));
    for (size_t i = 0; i < n; i++) {
        OK(mk_token_bytes(t, ids[i], 0, bytes, sizeof bytes, &n_bytes, e));
        assert_true(n_bytes > 0 && n_joined + n_bytes < sizeof joined);
        has_part = has_part || ((unsigned char)bytes[0] & 0xc0) == 0x80;
        memcpy(joined + n_joined, bytes, n_bytes);
        n_joined += n_bytes;
    }
    assert_true(has_part);
    assert_int_equal(n_joined, strlen(text));
    assert_memory_equal(joined, text, n_joined);
    FAILS(mk_token_bytes(t, ids[0], 0, bytes, 0, &n_bytes, e), MK_LIMIT, "do not fit");
    assert_true(n_bytes > 0);
    FAILS(mk_token_bytes(t, ids[0], 8, bytes, sizeof bytes, &n_bytes, e), MK_USAGE, "flags");
    OK(mk_token_bytes(t, INT32_MAX, 0, bytes, sizeof bytes, &n_bytes, e));
    assert_int_equal(n_bytes, 0);
    OK(mk_token_bytes(t, -1, MK_SPECIAL, bytes, sizeof bytes, &n_bytes, e));
    assert_int_equal(n_bytes, 0);
    size_t n_special = 0;
    for (int32_t id = 0; id < mk_tokenizer_size(t); id++) {
        size_t without;
        OK(mk_token_bytes(t, id, 0, bytes, sizeof bytes, &without, e));
        OK(mk_token_bytes(t, id, MK_SPECIAL, bytes, sizeof bytes, &n_bytes, e));
        n_special += n_bytes > 0 && without == 0;
    }
    assert_true(n_special > 0);
}

static void note_part(void *context, int32_t part, const char *text, size_t n, const char *name)
{
    struct buf *b = context;
    buf_printf(b, "%d:%s:%.*s;", part, name ? name : "", (int)n, text);
}

static void test_template(void **state)
{
    (void)state;
    mk_text *t;
    size_t n_text, n_ids;
    const mk_tokenizer *tokenizer = mk_package_tokenizer(package);
    mk_template_request r = {.size = sizeof r,
                             .messages = "[{\"role\": \"user\", \"content\": \"hi\"}]",
                             .options = "{\"add_generation_prompt\": true}"};
    OK(mk_template(tokenizer, &r, &t, e));
    const char *text = mk_text_data(t, &n_text);
    assert_non_null(strstr(text, "hi"));
    mk_text_ids(t, &n_ids);
    assert_true(n_ids > 0 && n_text > 2);
    mk_parser *parser;
    struct buf parts;
    buf_init(&parts, 4096);
    OK(mk_parser_new(&parser, mk_package_tokenizer(package), text, NULL, note_part, &parts, e));
    static const char *const pieces[] = {"a <tool_call>{\"name\": \"f\", \"argum",
                                         "ents\": {\"x\": 1}}</tool_call>"};
    for (int i = 0; i < 2; i++)
        mk_parser_push(parser, pieces[i], strlen(pieces[i]));
    mk_parser_finish(parser);
    assert_non_null(strstr(parts.p, "2:f:{\"x\": 1}"));
    mk_parser_free(parser);
    buf_fini(&parts);
    mk_text_free(t);
    r.messages = "[{";
    FAILS(mk_template(tokenizer, &r, &t, e), MK_FORMAT, NULL);
    assert_null(t);
    r.messages = "{\"no\": 1}";
    r.where = "line 7";
    FAILS(mk_template(tokenizer, &r, &t, e), MK_FORMAT, "line 7: expected \"messages\"");
    r.messages = NULL;
    FAILS(mk_template(tokenizer, &r, &t, e), MK_USAGE, "messages");
}

static void test_sampler(void **state)
{
    (void)state;
    mk_sampler *s;
    FAILS(mk_sampler_new(&s, package, "{\"temprature\": 1}", e), MK_USAGE, "temprature");
    FAILS(mk_sampler_new(&s, package, "{\"top_p\": 7}", e), MK_USAGE, NULL);
    FAILS(mk_sampler_new(&s, package, "{\"top_k\": \"x\"}", e), MK_USAGE, "top_k");
    FAILS(mk_sampler_new(&s, package, "[", e), MK_USAGE, NULL);
    OK(mk_sampler_new(&s, package, "{\"greedy\": true}", e));
    size_t n = (size_t)mk_package_vocab_size(package);
    float *logits = xcalloc(n, sizeof *logits);
    int32_t id;
    logits[7] = 1;
    OK(mk_sampler_pick(s, logits, n, NULL, 0, &id, e));
    assert_int_equal(id, 7);
    FAILS(mk_sampler_pick(s, logits, n - 1, NULL, 0, &id, e), MK_USAGE, "logits");
    for (size_t i = 0; i < n; i++)
        logits[i] = NAN;
    FAILS(mk_sampler_pick(s, logits, n, NULL, 0, &id, e), MK_OUTSIDE, "number");
    free(logits);
    mk_sampler_free(s);
}

struct taken {
    int32_t ids[64];
    size_t n, stop_after;
    mk_session *cancel;
};

static bool take(void *context, int32_t id)
{
    struct taken *t = context;
    t->ids[t->n++] = id;
    if (t->cancel && t->n == t->stop_after)
        mk_session_cancel(t->cancel);
    return t->cancel || t->n != t->stop_after;
}

/* What the layers below generate, greedily. */
static void expected_ids(const int32_t *prompt, size_t n, int32_t *out, size_t n_out)
{
    struct model *m = package_load(&tiny, 1);
    struct session *s = NULL;
    ASSERT_OK(session_new(&s, m, e));
    ASSERT_OK(session_sync(s, prompt, n, NULL, NULL, e));
    for (size_t i = 0; i < n_out; i++) {
        out[i] = sampler_argmax(session_logits(s), m->vocab_size);
        ASSERT_OK(session_feed(s, &out[i], 1, SESSION_CONTRACT, NULL, NULL, NULL, e));
    }
    session_free(s);
    model_close(m);
}

static const mk_generate *limited(mk_generate *what, int64_t limit)
{
    what->limit = limit;
    return what;
}

static void test_session(void **state)
{
    (void)state;
    enum { N_PROMPT = 20, N = 12 };
    int32_t prompt[N_PROMPT], expected[N], end;
    size_t n, n_context, reused;
    mk_session *s;
    mk_sampler *sampler;
    for (int i = 0; i < N_PROMPT; i++)
        prompt[i] = 60 + i * 3;
    expected_ids(prompt, N_PROMPT, expected, N);
    OK(mk_sampler_new(&sampler, package, "{\"greedy\": true}", e));
    OK(mk_session_new(&s, package, e));
    assert_null(mk_session_logits(s));
    struct taken taken = {.n = 0};
    mk_generate what = {.size = sizeof what, .fn = take, .context = &taken};
    FAILS(mk_session_generate(s, sampler, limited(&what, 3), NULL, &n, &end, e), MK_USAGE, "no logits");
    OK(mk_session_sync(s, prompt, N_PROMPT, NULL, &reused, e));
    assert_int_equal(reused, 0);
    OK(mk_session_generate(s, sampler, limited(&what, 5), NULL, &n, &end, e));
    assert_int_equal(n, 5);
    assert_int_equal(end, MK_END_LENGTH);
    /* It goes on where it stopped, and stops where it is told to. */
    taken.stop_after = 8;
    OK(mk_session_generate(s, sampler, limited(&what, 0), NULL, &n, &end, e));
    assert_int_equal(n, 3);
    assert_int_equal(end, MK_END_CALLER);
    taken.cancel = s;
    taken.stop_after = 10;
    FAILS(mk_session_generate(s, sampler, limited(&what, 0), NULL, &n, &end, e), MK_CANCELLED, NULL);
    assert_int_equal(n, 2);
    assert_memory_equal(taken.ids, expected, taken.n * sizeof expected[0]);
    /* The same prefix is not computed again; and a cancel that came before a call does not stop it. */
    mk_session_cancel(s);
    OK(mk_session_sync(s, prompt, N_PROMPT, NULL, &reused, e));
    assert_int_equal(reused, N_PROMPT - 1);
    const int32_t *context = mk_session_tokens(s, &n_context);
    assert_int_equal(n_context, N_PROMPT);
    assert_memory_equal(context, prompt, sizeof prompt);
    /* Step by step is the same. */
    for (int i = 0; i < N; i++) {
        int32_t id;
        OK(mk_sampler_pick(sampler, mk_session_logits(s), (size_t)mk_package_vocab_size(package), context,
                           n_context, &id, e));
        assert_int_equal(id, expected[i]);
        OK(mk_session_step(s, id, e));
    }
    FAILS(mk_session_step(s, mk_package_vocab_size(package), e), MK_USAGE, "vocabulary");
    FAILS(mk_session_step(s, -1, e), MK_USAGE, "vocabulary");
    int32_t many[200] = {0};
    FAILS(mk_session_sync(s, many, 200, NULL, NULL, e), MK_LIMIT, "128");
    FAILS(mk_session_sync(s, many, 0, NULL, NULL, e), MK_USAGE, NULL);
    mk_session_free(s);
    mk_sampler_free(sampler);
}

static bool stop_at_once(void *context, const mk_progress *p)
{
    int *n = context;
    (void)p;
    ++*n;
    return false;
}

static void test_cancel(void **state)
{
    (void)state;
    mk_session *s;
    int32_t ids[100] = {0};
    size_t n;
    int n_calls = 0;
    mk_cancel *c = mk_cancel_new();
    mk_call call = {.size = sizeof call, .cancel = c};
    OK(mk_session_new(&s, package, e));
    mk_cancel_set(c);
    FAILS(mk_session_sync(s, ids, 100, &call, NULL, e), MK_CANCELLED, NULL);
    mk_session_tokens(s, &n);
    assert_int_equal(n, 0);
    mk_cancel_clear(c);
    OK(mk_session_sync(s, ids, 100, &call, NULL, e));
    mk_cancel_free(c);
    /* Without a running call mk_session_cancel has no effect on later ones. */
    mk_session_cancel(s);
    OK(mk_session_step(s, 5, e));
    mk_session_cancel(s);
    OK(mk_session_sync(s, ids, 50, NULL, NULL, e));
    call = (mk_call){.size = sizeof call, .progress = stop_at_once, .context = &n_calls};
    mk_status status = mk_session_sync(s, ids, 1, &call, NULL, NULL);
    assert_true(status == MK_OK); /* too short to be told of */
    mk_session_free(s);
}

static void test_files(void **state)
{
    (void)state;
    mk_session *s, *other;
    int32_t ids[] = {60, 61, 62, 63};
    size_t n;
    char *path = path_join(packages_scratch, "state");
    OK(mk_session_new(&s, package, e));
    OK(mk_session_sync(s, ids, 4, NULL, NULL, e));
    OK(mk_session_save(s, path, e));
    OK(mk_session_new(&other, package, e));
    OK(mk_session_load(other, path, e));
    mk_session_tokens(other, &n);
    assert_int_equal(n, 4);
    assert_memory_equal(mk_session_logits(other), mk_session_logits(s),
                        sizeof(float) * (size_t)mk_package_vocab_size(package));
    FAILS(mk_session_load(other, "no/such/file", e), MK_FAILED, "no/such/file");
    mk_session_free(s);
    mk_session_free(other);
    free(path);
}

static void test_inspect(void **state)
{
    (void)state;
    mk_text *t;
    char *path = package_make(&tiny);
    OK(mk_inspect(library, path, &t, e));
    assert_non_null(strstr(mk_text_data(t, NULL), "\"kind\":\t\"package\""));
    mk_text_free(t);
    FAILS(mk_inspect(library, "no/such/thing", &t, e), MK_FAILED, "no such file");
    assert_null(t);
    FAILS(mk_inspect(library, packages_scratch, &t, e), MK_FORMAT, "neither a model");
    free(path);
}

static void test_lint(void **state)
{
    (void)state;
    mk_text *t;
    char *path = package_make(&tiny);
    OK(mk_lint(library, path, NULL, &t, e));
    assert_non_null(strstr(mk_text_data(t, NULL), "\"errors\":\t0"));
    assert_non_null(strstr(mk_text_data(t, NULL), "\"id\":\t\"ANE012\""));
    mk_text_free(t);
    OK(mk_lint(library, path, "{\"chip\": \"M1\", \"os\": \"macOS 15\"}", &t, e));
    assert_non_null(strstr(mk_text_data(t, NULL), "\"chip\":\t\"M1\""));
    mk_text_free(t);
    FAILS(mk_lint(library, path, "{\"chip\": \"none\"}", &t, e), MK_USAGE, "found 'none'");
    assert_null(t);
    FAILS(mk_lint(library, path, "{\"chips\": 1}", &t, e), MK_USAGE, "unknown key 'chips'");
    FAILS(mk_lint(library, "no/such/thing", NULL, &t, e), MK_FAILED, "no such file");
    free(path);
}

static bool count_calls(void *context, const mk_progress *p)
{
    int *n = context;
    (void)p;
    ++*n;
    return true;
}

static void test_check(void **state)
{
    (void)state;
    char *path = package_make(&tiny), *checkpoint = xasprintf("%s/models/qwen3-tiny", MILKIT_TEST_DATA);
    mk_text *report = NULL;
    mk_cancel *c = mk_cancel_new();
    int n = 0;
    mk_call call = {.size = sizeof call, .cancel = c, .progress = count_calls, .context = &n};
    OK(mk_check(library, path, checkpoint, "{\"max-tokens\": 6}", &call, &report, e));
    assert_non_null(strstr(mk_text_data(report, NULL), "\"verdict\": \"pass\""));
    assert_null(strstr(mk_text_data(report, NULL), "\"layers\""));
    mk_text_free(report);
    FAILS(mk_check(library, path, checkpoint,
                   "{\"max-tokens\": 2, \"tokens\": [70, 71], \"layers\": true, \"max-difference\": 0}", NULL,
                   &report, e),
          MK_OUTSIDE, "outside the limits");
    assert_non_null(strstr(mk_text_data(report, NULL), "\"verdict\": \"fail\""));
    assert_non_null(strstr(mk_text_data(report, NULL), "\"layers\""));
    mk_text_free(report);
    static const char *const wrong[][2] = {{"{\"tokens\": [1.5]}", "number 1"},
                                           {"{\"tokens\": []}", "no token id"},
                                           {"{\"prompt\": 1}", "prompt"},
                                           {"{\"prompt\": \"a\", \"tokens\": [1]}", "one of them"},
                                           {"{\"min-cosine\": 2}", "min-cosine"},
                                           {"{\"max-tokens\": -1}", "max-tokens"},
                                           {"{\"layer\": true}", "unknown key"},
                                           {"{\"tokens\": [99999999]}", "vocabulary"},
                                           {"{\"min-gain\": 2, \"max-gain\": 1}", "at least"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        FAILS(mk_check(library, path, checkpoint, wrong[i][0], NULL, &report, e), MK_USAGE, wrong[i][1]);
        assert_null(report);
    }
    mk_cancel_set(c);
    FAILS(mk_check(library, path, checkpoint, NULL, &call, &report, e), MK_CANCELLED, NULL);
    FAILS(mk_check(library, path, "no/such/folder", NULL, NULL, &report, e), MK_FAILED, "no/such/folder");
    mk_cancel_free(c);
    free(path);
    free(checkpoint);
}

static void test_convert(void **state)
{
    (void)state;
    char *out = path_join(packages_scratch, "made"),
         *checkpoint = xasprintf("%s/models/qwen3-gqa8", MILKIT_TEST_DATA);
    char *ids = path_join(packages_scratch, "calibration.ids");
    FILE *f = fopen(ids, "wb");
    assert_non_null(f);
    fputs("1, 2, 3, 4, 5, 6, 7, 8, 9", f);
    fclose(f);
    char *mixed = xasprintf(
        "{\"context\": 64, \"batch\": 16, \"lut-ffn\": \"4,0\", \"lut-ffn-mixed\": 4.5, \"chunks\": 2, "
        "\"calibration\": \"@%s\"}",
        ids);
    mk_text *report = NULL;
    OK(mk_convert(library, checkpoint, out, mixed, NULL, &report, e));
    assert_non_null(strstr(mk_text_data(report, NULL), "\"parts\": 4"));
    mk_text_free(report);
    FAILS(mk_convert(library, checkpoint, out, mixed, NULL, NULL, e), MK_FAILED, "exists");
    static const char *const wrong[][2] = {
        {"{\"contexts\": 1}", "unknown key 'contexts'"},
        {"{\"context\": 0}", "context"},
        {"{\"chunks\": \"many\"}", "options: chunks"},
        {"{\"chunks\": 1.5}", "options: chunks"},
        {"{\"chunks\": true}", "chunks"},
        {"{\"lut-ffn\": \"5\"}", "options: lut-ffn: expected 1, 2, 3, 4, 6 or 8 bits"},
        {"{\"lut-ffn\": \"4\", \"quant-ffn\": \"int8\"}", "options: lut-ffn and options: quant-ffn"},
        {"{\"lut-ffn-mixed\": 4.5}", "needs options: lut-ffn"},
        {"{\"calibration\": \"x\", \"residual-scale\": \"off\"}", "only options: lut-ffn-mixed"},
        {"{\"residual-scale\": 0.3}", "a power of two"},
        {"{\"format\": \"zip\"}", "options: format"},
        {"{\"no-verify\": 1}", "no-verify"},
        {"{\"report\": \"-\"}", "does not print"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        FAILS(mk_convert(library, checkpoint, out, wrong[i][0], NULL, NULL, e), MK_USAGE, wrong[i][1]);
    mk_error *e = NULL;
    assert_int_equal(mk_convert(library, checkpoint, out, NULL, NULL, NULL, &e), MK_FAILED);
    assert_string_equal(mk_error_hint(e), "force");
    mk_error_free(e);
    free(mixed);
    free(ids);
    free(out);
    free(checkpoint);
}

/* Children keep their parents. */
static void test_order_of_closing(void **state)
{
    (void)state;
    mk_library *l;
    mk_package *p;
    mk_session *s;
    char *path = package_make(&tiny);
    int32_t id = 65;
    OK(mk_library_open(&l, NULL, e));
    OK(mk_package_open(&p, l, path, NULL, e));
    OK(mk_session_new(&s, p, e));
    mk_library_close(l);
    mk_package_close(p);
    OK(mk_session_step(s, id, e));
    mk_session_free(s);
    free(path);
    mk_library_close(NULL);
    mk_package_close(NULL);
    mk_session_free(NULL);
    mk_error_free(NULL);
    mk_text_free(NULL);
    mk_cancel_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),    cmocka_unit_test(test_wrong_structures),
        cmocka_unit_test(test_text),     cmocka_unit_test(test_token_bytes),
        cmocka_unit_test(test_template), cmocka_unit_test(test_sampler),
        cmocka_unit_test(test_session),  cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_files),    cmocka_unit_test(test_inspect),
        cmocka_unit_test(test_lint),     cmocka_unit_test(test_check),
        cmocka_unit_test(test_convert),  cmocka_unit_test(test_order_of_closing),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
