/* Each rule fires on a small program made for it and is silent on the program's fixed twin (tests/data/lint), and docs/lint.md is what
 * rules.def says (MILKIT_WRITE_DOCS=1 writes it anew). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "lint/lint.h"
#include "support.h"

#define LINT MILKIT_TEST_DATA "/lint/"

static bool is_judged(const struct lint_rule *r)
{
    return r->check_function || r->check_model || r->check_package;
}

static void test_table(void **state)
{
    (void)state;
    int n = 0;
    for (; lint_rule_at(n); n++) {
        const struct lint_rule *r = lint_rule_at(n);
        assert_int_equal(strlen(r->id), 6);
        assert_true(n == 0 || strcmp(lint_rule_at(n - 1)->id, r->id) < 0);
        assert_ptr_equal(lint_rule_find(r->id), r);
        assert_true(r->title[0] && r->holds[0] && r->source[0] && r->why[0] && r->advice[0]);
        assert_int_equal(r->why[strlen(r->why) - 1], '.');
    }
    assert_int_equal(n, 47);
    assert_non_null(lint_rule_find("ane016"));
    assert_null(lint_rule_find("ANE999"));
    assert_null(lint_rule_at(-1));
}

/* Findings of a rule; the severity of the worst in *severity. */
static int findings_of(const char *path, const char *id, const struct lint_options *options,
                       const char **severity)
{
    static const char *names[] = {"note", "warning", "error"};
    cJSON *o = cJSON_CreateObject();
    const cJSON *one;
    struct err e = {0};
    int n = 0;
    if (!lint_path(o, path, options, &e))
        fail_msg("%s", e.msg);
    *severity = "none";
    cJSON_ArrayForEach(one, json_get(o, "findings"))
    {
        if (strcmp(cJSON_GetStringValue(json_get(one, "id")), id) != 0)
            continue;
        for (int i = 0; i < 3 && n == 0; i++)
            if (strcmp(cJSON_GetStringValue(json_get(one, "severity")), names[i]) == 0)
                *severity = names[i];
        n += (int)cJSON_GetNumberValue(json_get(one, "count"));
        assert_true(cJSON_GetArraySize(json_get(one, "places")) > 0);
    }
    cJSON_Delete(o);
    return n;
}

static void options_of(struct lint_options *o, const char *json)
{
    struct err e = {0};
    if (!lint_options_read(o, json, &e))
        fail_msg("%s", e.msg);
}

static void test_each_rule_fires(void **state)
{
    (void)state;
    int n_fired = 0;
    for (int i = 0; lint_rule_at(i); i++) {
        const struct lint_rule *r = lint_rule_at(i);
        struct lint_options o;
        const char *severity;
        /* The one that is judged for phones alone. */
        options_of(&o, strcmp(r->id, "ANE045") == 0 ? "{\"os\": \"iOS 26\"}" : NULL);
        char *fires = xasprintf(LINT "%s.mil", r->id), *fixed = xasprintf(LINT "%s.fixed.mil", r->id);
        if (!is_judged(r)) {
            assert_null(fopen(fires, "rb"));
        } else {
            if (findings_of(fires, r->id, &o, &severity) == 0)
                fail_msg("%s is silent on its program", r->id);
            n_fired++;
            if (findings_of(fixed, r->id, &o, &severity) != 0)
                fail_msg("%s fires on its fixed twin", r->id);
        }
        free(fires);
        free(fixed);
    }
    assert_int_equal(n_fired, 46);
}

/* What a finding weighs follows from the target. */
static void test_targets(void **state)
{
    (void)state;
    static const struct {
        const char *file, *id, *options, *severity;
    } rows[] = {
        {"ANE002.mil", "ANE002", NULL, "warning"},
        {"ANE002.mil", "ANE002", "{\"chip\": \"M2\"}", "error"},
        {"ANE002.mil", "ANE002", "{\"chip\": \"m4 pro\"}", "none"},
        {"ANE001.mil", "ANE001", "{\"chip\": \"M6\"}", "error"},
        {"ANE040.mil", "ANE040", NULL, "error"},
        {"ANE042.mil", "ANE042", "{\"os\": \"macOS 26\"}", "note"},
        {"ANE042.mil", "ANE042", "{\"chip\": \"A18 Pro\"}", "warning"},
        {"ANE045.mil", "ANE045", "{\"os\": \"macos\"}", "none"},
        {"ANE039.mil", "ANE039", NULL, "error"},
        {"ANE033.mil", "ANE039", NULL, "warning"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct lint_options o;
        const char *severity;
        char *path = xasprintf(LINT "%s", rows[i].file);
        options_of(&o, rows[i].options);
        findings_of(path, rows[i].id, &o, &severity);
        if (strcmp(severity, rows[i].severity) != 0)
            fail_msg("%s with %s: expected %s, found %s", rows[i].file,
                     rows[i].options ? rows[i].options : "{}", rows[i].severity, severity);
        free(path);
    }
}

static void refuses(const char *options, const char *text)
{
    struct lint_options o;
    struct err e = {0};
    assert_false(lint_options_read(&o, options, &e));
    assert_int_equal(e.code, ERR_USAGE);
    if (!strstr(e.msg, text))
        fail_msg("expected '%s', found '%s'", text, e.msg);
}

static void test_bad_input(void **state)
{
    (void)state;
    struct lint_options o = {0};
    struct err e = {0};
    cJSON *report = cJSON_CreateObject();
    refuses("{\"chip\": \"M99\"}", "found 'M99'");
    refuses("{\"os\": \"Linux\"}", "found 'Linux'");
    refuses("{\"os\": \"macOS 1x\"}", "expected macOS or iOS");
    refuses("{\"chips\": 1}", "unknown key 'chips'");
    refuses("{\"chip\": 1}", "expected string");
    refuses("[]", "expected an object");
    refuses("{", "options");
    assert_false(lint_path(report, LINT "none.mil", &o, &e));
    assert_int_equal(e.code, ERR_IO);
    assert_false(lint_path(report, MILKIT_TEST_DATA "/lint", &o, &e));
    assert_int_equal(e.code, ERR_FORMAT);
    cJSON_Delete(report);
}

/* ---- docs/lint.md ---- */

static void put_rule(struct buf *b, const struct lint_rule *r)
{
    buf_printf(b, "### %s %s\n\n%s, confidence %s%s. Holds for: %s. Source: %s.\n\n%s *%s*\n\n", r->id,
               r->title, lint_severity_name(r->severity), lint_confidence_name(r->confidence),
               is_judged(r) ? "" : "; can't be judged from a file", r->holds, r->source, r->why, r->advice);
}

static void write_document(struct buf *b)
{
    static const struct {
        const char *first, *title;
    } topics[] = {{"ANE001", "Shapes"}, {"ANE010", "Operations"},      {"ANE030", "Weights"},
                  {"ANE040", "States"}, {"ANE050", "Memory and size"}, {"ANE060", "Numbers"}};
    int topic = 0, n = 0;
    while (lint_rule_at(n))
        n++;
    buf_printf(
        b,
        "# Rules of milkit lint\n\n"
        "Made from src/lint/rules.def; do not edit (`MILKIT_WRITE_DOCS=1 test_rules` writes it anew).\n\n"
        "`milkit lint PACKAGE|MODEL` holds a package against %d rules collected from what is published of "
        "the Neural "
        "Engine; `convert` ends with a line of it.\n"
        "Nothing here was measured by milkit, which runs on Linux alone: each rule names who reported it, "
        "where it "
        "holds and how sure that is (high: two\n"
        "independent sources, or recomputed from published data; medium: one careful source; low: one "
        "report). An "
        "*error* does not work on the target, a *warning*\n"
        "is probably slow, wrong or on another device, a *note* is worth knowing. What differs between chips "
        "follows "
        "`--chip` and `--os`; without them\n"
        "M4 and later is meant, with a word where older chips differ. Work that only a call's integer inputs "
        "take part "
        "in is the processor's, before the\n"
        "engine begins: rules about ops give a note for it. In *slanted* letters: what to do. `--strict` "
        "ends with "
        "status 5 where there are errors.\n\n"
        "Sources by short name: *study* 751K/Apple-Neural-Engine-Microarchitecture-Study-M6 (M6 and M4, "
        "macOS 27); "
        "*mad* maderix/ANE (M4); *cad*\n"
        "cadamcat/llms-on-apple-neural-engine (M5 Pro, macOS 27); *jr* john-rocky/CoreML-LLM (A19 Pro, M4 "
        "class); "
        "*sky* skyfallsin/apple-neural-engine-field-guide\n"
        "(M3 Max, private interface); *kas* kasper0406/stablehlo-coreml pull 110 (M4); *seed* the "
        "description of the "
        "package format (M5 Max, macOS 26); *recomputed*:\n"
        "found again on Linux from published data.\n\n",
        n);
    for (int i = 0; i < n; i++) {
        const struct lint_rule *r = lint_rule_at(i);
        if (topic < 6 && strcmp(r->id, topics[topic].first) == 0)
            buf_printf(b, "## %s\n\n", topics[topic++].title);
        put_rule(b, r);
    }
    assert_int_equal(topic, 6);
}

static void test_document_is_up_to_date(void **state)
{
    (void)state;
    const char *path = MILKIT_TEST_DATA "/../../docs/lint.md";
    struct buf expected, found;
    char chunk[4096];
    size_t n;
    buf_init(&expected, 1 << 20);
    buf_init(&found, 1 << 20);
    write_document(&expected);
    assert_false(expected.failed);
    if (getenv("MILKIT_WRITE_DOCS")) {
        FILE *out = fopen(path, "wb");
        assert_non_null(out);
        assert_int_equal(fwrite(expected.p, 1, expected.n, out), expected.n);
        assert_int_equal(fclose(out), 0);
    }
    FILE *in = fopen(path, "rb");
    if (!in)
        fail_msg("%s is missing; write it with MILKIT_WRITE_DOCS=1", path);
    while ((n = fread(chunk, 1, sizeof chunk, in)) > 0)
        buf_append(&found, chunk, n);
    fclose(in);
    bool is_equal = found.n == expected.n && memcmp(found.p, expected.p, found.n) == 0;
    buf_fini(&expected);
    buf_fini(&found);
    if (!is_equal)
        fail_msg("docs/lint.md is not what src/lint/rules.def says; write it with MILKIT_WRITE_DOCS=1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_each_rule_fires),
        cmocka_unit_test(test_targets),
        cmocka_unit_test(test_bad_input),
        cmocka_unit_test(test_document_is_up_to_date),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
