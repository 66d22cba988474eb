// links: format
/* Any bytes as a GGUF file: they are refused, or keys and tensors can be read to the last byte, and the model that they
 * describe has settings and a tokenizer, or is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "format/gguf_model.h"
#include "format/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_tensors(const struct gguf *g)
{
    for (int i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        const struct gguf_block_type *type = gguf_block_type(t->type);
        if (gguf_find_tensor(g, t->name) != t || t->n_elems < 1)
            abort();
        if (!type->expand || t->n_elems > 1000000)
            continue;
        float *values = malloc((size_t)t->n_elems * 4);
        gguf_expand(type, t->data, 0, t->n_elems, values);
        free(values);
    }
}

static void read_keys(const struct gguf *g)
{
    for (int i = 0; i < g->n_keys; i++) {
        const struct gguf_key *k = &g->keys[i];
        const uint8_t *at = k->data;
        if (gguf_find_key(g, k->name) != k)
            abort();
        for (uint64_t n = 0; k->kind == GGUF_ARRAY && n < k->n; n++) {
            if (k->element == GGUF_STRING)
                (void)gguf_next_string(&at);
            else
                (void)gguf_number_at(k, n);
        }
    }
}

static void make_files(struct gguf_model *m, struct err *e)
{
    cJSON *config = NULL;
    struct buf b;
    buf_init(&b, (size_t)64 << 20);
    if (gguf_config_make(&config, m, NULL, e)) {
        cJSON_Delete(config);
        config = NULL;
        if (gguf_generation_make(&config, m, e))
            cJSON_Delete(config);
        config = NULL;
        if (gguf_tokenizer_make(&b, m, e) && gguf_tokenizer_config_make(&config, m, e))
            cJSON_Delete(config);
    }
    buf_fini(&b);
}

static void read_checkpoint(const char *path, struct err *e)
{
    struct safetensors *s;
    if (!safetensors_open(&s, path, e))
        return;
    for (int i = 0; i < s->n_tensors; i++) {
        const struct st_tensor *t = &s->tensors[i];
        if (t->dtype == ST_UNKNOWN || t->n_elems > 1000000)
            continue;
        float *values = malloc((size_t)t->n_elems * 4);
        if (!st_read_f32(t, values, e))
            abort();
        free(values);
    }
    safetensors_close(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    struct err e = {0};
    struct gguf *g = NULL;
    struct gguf_model *m = NULL;
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (gguf_open(&g, path, &e)) {
        read_keys(g);
        read_tensors(g);
        if (gguf_model_open(&m, g, &e)) {
            make_files(m, &e);
            read_checkpoint(path, &e);
        }
    } else if (!e.msg[0] || g) {
        abort();
    }
    gguf_model_close(m);
    gguf_close(g);
    close(fd);
    return 0;
}
