/* GGUF files as models and checkpoints: what is refused and how, settings, names, rows in their order, files in parts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "format/checkpoint_source.h"
#include "format/gguf_model.h"
#include "format/safetensors.h"

#define DATA MILKIT_TEST_DATA "/gguf/"
#define SHARED_GGUF MILKIT_SHARED "/gguf/"

static cJSON *read_json(const char *path)
{
    cJSON *root;
    struct err e = {0};
    if (!json_read_file(&root, path, (size_t)64 << 20, &e))
        fail_msg("%s", e.msg);
    return root;
}

static const char *text(const cJSON *o, const char *key)
{
    const char *s = cJSON_GetStringValue(json_get(o, key));
    assert_non_null(s);
    return s;
}

/* ---- damaged files ---- */

static void append_hex(struct buf *b, const char *hex)
{
    for (; hex[0] && hex[1]; hex += 2) {
        char pair[3] = {hex[0], hex[1], 0};
        buf_putc(b, (char)strtol(pair, NULL, 16));
    }
}

/* Ops of refuse.json: [offset, bytes] of ok.gguf, a text of hexadecimal digits, or [text, times]. */
static void make_damaged(struct buf *b, const cJSON *ops, const char *ok)
{
    const cJSON *op;
    buf_clear(b);
    cJSON_ArrayForEach(op, ops)
    {
        const cJSON *first = cJSON_GetArrayItem(op, 0), *second = cJSON_GetArrayItem(op, 1);
        if (cJSON_IsString(op))
            append_hex(b, op->valuestring);
        else if (cJSON_IsNumber(first))
            buf_append(b, ok + (size_t)first->valuedouble, (size_t)second->valuedouble);
        else
            for (int i = 0; i < second->valueint; i++)
                append_hex(b, first->valuestring);
    }
}

static void test_damaged_files(void **state)
{
    (void)state;
    cJSON *list = read_json(DATA "refuse.json");
    const cJSON *one;
    char *ok;
    size_t n;
    struct err e = {0};
    struct buf b;
    assert_true(file_read(&ok, &n, DATA "ok.gguf", 1 << 20, &e));
    buf_init(&b, 1 << 20);
    cJSON_ArrayForEach(one, list)
    {
        struct checkpoint_source *s;
        char path[128];
        snprintf(path, sizeof path, "damaged-%d-%s", (int)getpid(), text(one, "file"));
        make_damaged(&b, json_get(one, "ops"), ok);
        assert_true(file_write(path, b.p, b.n, &e));
        e = (struct err){0};
        bool opened = checkpoint_source_open(&s, path, NULL, &e);
        unlink(path);
        if (strcmp(text(one, "accept"), "no") != 0 && opened) {
            checkpoint_source_close(s);
            continue;
        }
        if (opened)
            fail_msg("%s: accepted: %s", path, text(one, "damage"));
        /* The file, the field, what was expected and what was found; only unknown kinds are "not supported". */
        if (strncmp(e.msg, path, strlen(path)) != 0 || !strstr(e.msg, text(one, "says")))
            fail_msg("%s: \"%s\" does not say \"%s\"", path, e.msg, text(one, "says"));
        assert_true(e.code == ERR_FORMAT || e.code == ERR_UNSUPPORTED);
    }
    print_message("%d files\n", cJSON_GetArraySize(list));
    buf_fini(&b);
    free(ok);
    cJSON_Delete(list);
}

/* ---- files in parts ---- */

static void test_parts_are_one_model(void **state)
{
    (void)state;
    struct gguf *one, *parts;
    struct err e = {0};
    assert_true(gguf_open(&one, DATA "llama-small.Q8_0.gguf", &e));
    assert_true(gguf_open(&parts, DATA "llama-small.split-00001-of-00003.gguf", &e));
    assert_int_equal(parts->n_files, 3);
    assert_int_equal(parts->n_tensors, one->n_tensors);
    for (int i = 0; i < one->n_tensors; i++) {
        const struct gguf_tensor *a = &one->tensors[i], *b = gguf_find_tensor(parts, a->name);
        assert_non_null(b);
        assert_true(a->bytes == b->bytes && a->type == b->type && memcmp(a->data, b->data, a->bytes) == 0);
    }
    gguf_close(parts);
    gguf_close(one);
    assert_false(gguf_open(&parts, DATA "llama-small.split-00002-of-00003.gguf", &e));
    assert_non_null(strstr(e.msg, "key split.no: the file is part 2 of 3"));
    assert_true(file_copy(DATA "llama-small.split-00001-of-00003.gguf", "alone-00001-of-00003.gguf", NULL));
    e = (struct err){0};
    assert_false(gguf_open(&parts, "alone-00001-of-00003.gguf", &e));
    assert_non_null(strstr(e.msg, "the model is in 3 files; alone-00002-of-00003.gguf is not there"));
    unlink("alone-00001-of-00003.gguf");
}

/* ---- a checkpoint ---- */

/* Rows of q and k lie in another order in the file; the others as they are. */
static void test_rows_in_the_checkpoints_order(void **state)
{
    (void)state;
    struct safetensors *s;
    struct gguf *g;
    struct err e = {0};
    assert_true(gguf_open(&g, DATA "llama-small.Q8_0.gguf", &e));
    assert_true(safetensors_open(&s, DATA "llama-small.Q8_0.gguf", &e));
    const struct st_tensor *q = safetensors_find(s, "model.layers.1.self_attn.k_proj.weight");
    const struct gguf_tensor *stored = gguf_find_tensor(g, "blk.1.attn_k.weight");
    int64_t heads = 0, columns;
    assert_true(gguf_get_int(g, "llama.attention.head_count_kv", &heads, &e));
    assert_non_null(q);
    assert_int_equal(q->rank, 2);
    assert_int_equal(q->shape[0], stored->ne[1]);
    columns = q->shape[1];
    float *plain = malloc((size_t)q->n_elems * 4), *file = malloc((size_t)q->n_elems * 4);
    assert_true(st_read_f32(q, plain, &e));
    gguf_expand(gguf_block_type(stored->type), stored->data, 0, stored->n_elems, file);
    int64_t dim = q->shape[0] / heads;
    for (int64_t row = 0; row < q->shape[0]; row++) {
        int64_t head = row / dim, inside = row % dim, half = dim / 2;
        int64_t from = head * dim + (inside < half ? 2 * inside : 2 * (inside - half) + 1);
        assert_memory_equal(plain + row * columns, file + from * columns, (size_t)columns * 4);
    }
    free(plain);
    free(file);
    safetensors_close(s);
    gguf_close(g);
}

static void test_config_and_overrides(void **state)
{
    (void)state;
    struct checkpoint_source *s;
    struct err e = {0};
    static const char other[] = "{\"rope_theta\": 12345.5, \"sliding_window\": 77}";
    assert_true(file_write("overrides.json", other, strlen(other), &e));
    assert_true(checkpoint_source_open(&s, DATA "llama-small.Q8_0.gguf", "overrides.json", &e));
    char *path = path_join(s->folder, "config.json"), *folder = xstrdup(s->folder);
    cJSON *config = read_json(path);
    assert_string_equal(text(config, "model_type"), "llama");
    assert_true(json_get(config, "rms_norm_eps")->valuedouble == 1e-5);
    assert_true(json_get(config, "rope_theta")->valuedouble == 12345.5);
    assert_true(json_get(config, "sliding_window")->valuedouble == 77);
    assert_non_null(s->packed_types);
    cJSON_Delete(config);
    checkpoint_source_close(s);
    /* Nothing of it is left. */
    assert_false(path_exists(folder));
    free(folder);
    free(path);
    unlink("overrides.json");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_damaged_files),
        cmocka_unit_test(test_parts_are_one_model),
        cmocka_unit_test(test_rows_in_the_checkpoints_order),
        cmocka_unit_test(test_config_and_overrides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
