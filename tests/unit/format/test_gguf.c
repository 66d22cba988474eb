/* GGUF files as they are: numbers of every block format, files that are cut, large ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "format/gguf.h"
#include "format/json.h"
#include "format/mlmodelc.h"

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

static void hash_values(char hex[65], const struct gguf_tensor *t)
{
    const struct gguf_block_type *type = gguf_block_type(t->type);
    float *values = malloc((size_t)t->n_elems * 4);
    uint8_t digest[32];
    assert_non_null(type->expand);
    /* In pieces that begin and end inside blocks. */
    for (int64_t at = 0; at < t->n_elems; at += 777)
        gguf_expand(type, t->data, at, t->n_elems - at < 777 ? t->n_elems - at : 777, values + at);
    sha256(digest, values, (size_t)t->n_elems * 4);
    for (int i = 0; i < 32; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    free(values);
}

/* ---- block formats ---- */

static void test_blocks_have_the_libraries_bits(void **state)
{
    (void)state;
    struct gguf *g;
    struct err e = {0};
    char hex[65];
    cJSON *expected = read_json(DATA "blocks.json");
    assert_true(gguf_open(&g, DATA "blocks.gguf", &e));
    assert_int_equal(g->n_tensors, cJSON_GetArraySize(expected));
    for (int i = 0; i < g->n_tensors; i++) {
        hash_values(hex, &g->tensors[i]);
        assert_string_equal(hex, text(expected, g->tensors[i].name));
    }
    gguf_close(g);
    cJSON_Delete(expected);
}

/* Every tensor of the files that stand beside a list of checksums. */
static int check_listed(const char *list_path)
{
    cJSON *list = read_json(list_path);
    const cJSON *one, *tensors = json_get(list, "tensors");
    char *path = xstrdup(list_path), hex[65];
    struct gguf *g;
    struct err e = {0};
    int n = 0;
    path[strlen(path) - strlen(".json")] = '\0';
    assert_true(gguf_open(&g, path, &e));
    cJSON_ArrayForEach(one, tensors)
    {
        const struct gguf_tensor *t = gguf_find_tensor(g, text(one, "name"));
        assert_non_null(t);
        assert_string_equal(gguf_block_type(t->type)->name, text(one, "type"));
        hash_values(hex, t);
        assert_string_equal(hex, text(one, "sha256_of_float32"));
        n++;
    }
    gguf_close(g);
    free(path);
    cJSON_Delete(list);
    return n;
}

static void test_listed_checksums(void **state)
{
    (void)state;
    struct path_list files = {0};
    int n_files = 0, n_tensors = 0;
    const char *folders[] = {DATA, SHARED_GGUF};
    for (int k = 0; k < 2; k++) {
        if (!path_list_read(&files, folders[k], NULL)) {
            print_message("%s is not there: skipped\n", folders[k]);
            continue;
        }
        for (size_t i = 0; i < files.n; i++) {
            char *path = path_join(folders[k], files.names[i]);
            if (has_suffix(path, ".gguf.json")) {
                n_tensors += check_listed(path);
                n_files++;
            }
            free(path);
        }
        path_list_free(&files);
    }
    print_message("%d tensors of %d files\n", n_tensors, n_files);
}

/* ---- damaged files ---- */

/* A file cut at any byte is refused, never read beyond. */
static void test_every_cut(void **state)
{
    (void)state;
    char *ok;
    size_t n;
    struct err e = {0};
    char path[64];
    struct gguf *g;
    assert_true(file_read(&ok, &n, DATA "ok.gguf", 1 << 20, &e));
    snprintf(path, sizeof path, "cut-%d.gguf", (int)getpid());
    for (size_t cut = 0; cut < n; cut += cut < 600 || cut > 6500 ? 101 : 997) {
        FILE *f = fopen(path, "wb");
        assert_int_equal(fwrite(ok, 1, cut, f), cut);
        fclose(f);
        e = (struct err){0};
        assert_false(gguf_open(&g, path, &e));
        assert_int_equal(e.code, ERR_FORMAT);
    }
    unlink(path);
    free(ok);
}

/* ---- large files ---- */

/* A header in front of 4 GB that are not there: opening looks at the header alone. */
static void test_sparse_file_opens(void **state)
{
    (void)state;
    struct err e = {0};
    struct gguf *g;
    char path[64];
    const uint64_t ne[2] = {1 << 15, 1 << 15};
    uint64_t word;
    uint32_t small;
    struct buf b;
    buf_init(&b, 1 << 10);
    buf_puts(&b, "GGUF");
    small = 3;
    buf_append(&b, &small, 4);
    word = 1;
    buf_append(&b, &word, 8);
    word = 0;
    buf_append(&b, &word, 8);
    word = 1;
    buf_append(&b, &word, 8);
    buf_puts(&b, "t");
    small = 2;
    buf_append(&b, &small, 4);
    buf_append(&b, ne, 16);
    small = GGUF_TYPE_F32;
    buf_append(&b, &small, 4);
    word = 0;
    buf_append(&b, &word, 8);
    snprintf(path, sizeof path, "sparse-%d.gguf", (int)getpid());
    assert_true(file_write(path, b.p, b.n, &e));
    if (truncate(path, ((off_t)4 << 30) + 96) != 0) {
        print_message("no sparse files here: skipped\n");
    } else {
        assert_true(gguf_open(&g, path, &e));
        assert_true(g->total_bytes == (uint64_t)4 << 30);
        float last[3];
        gguf_expand(gguf_block_type(GGUF_TYPE_F32), g->tensors[0].data, ((int64_t)1 << 30) - 3, 3, last);
        assert_true(last[0] == 0 && last[2] == 0);
        gguf_close(g);
    }
    unlink(path);
    buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_have_the_libraries_bits),
        cmocka_unit_test(test_listed_checksums),
        cmocka_unit_test(test_every_cut),
        cmocka_unit_test(test_sparse_file_opens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
