/* GGUF files. */
#include <stdlib.h>
#include <string.h>
#include "format/gguf.h"
#include "inspect/inspect_internal.h"

#define TEXT_BYTES_SHOWN 160
#define ELEMENTS_SHOWN 4

static cJSON *text_of(struct str s)
{
    struct buf b;
    buf_init(&b, 1024);
    size_t n = s.n < TEXT_BYTES_SHOWN ? s.n : TEXT_BYTES_SHOWN;
    while (n > 0 && n < s.n && ((unsigned char)s.p[n] & 0xc0) == 0x80)
        n--;
    buf_append(&b, s.p, n);
    buf_puts(&b, n < s.n ? "..." : "");
    cJSON *item = cJSON_CreateString(b.p ? b.p : "");
    buf_fini(&b);
    return item;
}

/* Numbers of a file that JSON has no form for are null. */
static cJSON *element_of(const struct gguf_key *k, enum gguf_kind kind, uint64_t i, const uint8_t **at)
{
    if (kind == GGUF_STRING)
        return text_of(gguf_next_string(at));
    double v = gguf_number_at(k, i);
    return kind == GGUF_BOOL ? cJSON_CreateBool(v != 0) : cJSON_CreateNumber(v);
}

/* Strings and arrays by their beginnings. */
static void add_key(cJSON *o, const struct gguf_key *k)
{
    const uint8_t *at = k->data;
    if (k->kind == GGUF_STRING) {
        cJSON_AddItemToObject(o, k->name, text_of((struct str){(const char *)k->data, (size_t)k->n}));
    } else if (k->kind == GGUF_ARRAY) {
        cJSON *array = cJSON_AddObjectToObject(o, k->name);
        cJSON_AddStringToObject(array, "array_of", gguf_kind_name(k->element));
        cJSON_AddNumberToObject(array, "length", (double)k->n);
        cJSON *first = cJSON_AddArrayToObject(array, "first");
        for (uint64_t i = 0; i < k->n && i < ELEMENTS_SHOWN; i++)
            cJSON_AddItemToArray(first, element_of(k, k->element, i, &at));
    } else {
        cJSON_AddItemToObject(o, k->name, element_of(k, k->kind, 0, NULL));
    }
}

static void add_tensor(cJSON *o, cJSON *list, const struct gguf_tensor *t)
{
    const char *type = gguf_block_type(t->type)->name;
    cJSON *one = cJSON_CreateObject();
    char *file = path_base(t->file);
    cJSON_AddStringToObject(one, "name", t->name);
    cJSON_AddStringToObject(one, "dtype", type);
    /* As a checkpoint lists them: rows first. */
    cJSON *shape = cJSON_AddArrayToObject(one, "shape");
    for (int i = t->rank - 1; i >= 0; i--)
        cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)t->ne[i]));
    cJSON_AddNumberToObject(one, "bytes", (double)t->bytes);
    cJSON_AddStringToObject(one, "file", file);
    cJSON_AddItemToArray(list, one);
    inspect_count(o, "dtypes", type, (int64_t)t->bytes);
    free(file);
}

bool inspect_gguf(cJSON *o, const char *path, struct err *e)
{
    struct gguf *g;
    double elements = 0;
    cJSON_AddStringToObject(o, "kind", "gguf");
    if (!gguf_open(&g, path, e))
        return false;
    cJSON_AddNumberToObject(o, "version", g->version);
    cJSON_AddNumberToObject(o, "files", g->n_files);
    cJSON *metadata = cJSON_AddObjectToObject(o, "metadata");
    for (int i = 0; i < g->n_keys; i++)
        add_key(metadata, &g->keys[i]);
    cJSON *list = cJSON_AddArrayToObject(o, "tensors");
    for (int i = 0; i < g->n_tensors; i++) {
        add_tensor(o, list, &g->tensors[i]);
        elements += (double)g->tensors[i].n_elems;
    }
    cJSON *totals = cJSON_AddObjectToObject(o, "totals");
    cJSON_AddNumberToObject(totals, "tensors", g->n_tensors);
    cJSON_AddNumberToObject(totals, "elements", elements);
    cJSON_AddNumberToObject(totals, "bytes", (double)g->total_bytes);
    gguf_close(g);
    return true;
}
