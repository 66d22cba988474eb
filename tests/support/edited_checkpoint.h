/* Checkpoints of tests/data/models with some numbers or names changed. */
#ifndef MILKIT_TESTS_EDITED_CHECKPOINT_H
#define MILKIT_TESTS_EDITED_CHECKPOINT_H

#include "packages.h"
#include "format/safetensors.h"

/* What happens to a tensor: elements of row `row` (-1: all), x = x * factor + add. */
struct edit {
    const char *tensor;
    int64_t row;
    double factor, add;
};

/* A folder below packages_scratch with config.json and one F32 file; heap. Checkpoints of one file alone. */
static inline char *edited_checkpoint(const char *model, const char *name, const struct edit *edits,
                                      int n_edits)
{
    char *from = xasprintf("%s/models/%s", MILKIT_TEST_DATA, model), *to = path_join(packages_scratch, name);
    char *config = path_join(from, "config.json"), *copy = path_join(to, "config.json"),
         *weights = path_join(from, "model.safetensors"), *out = path_join(to, "model.safetensors"),
         *text = NULL;
    size_t n = 0;
    struct safetensors *s = NULL;
    struct st_writer *w = st_writer_new();
    assert_int_equal(mkdir(to, 0700), 0);
    ASSERT_OK(file_read(&text, &n, config, 1 << 20, e));
    ASSERT_OK(file_write(copy, text, n, e));
    ASSERT_OK(safetensors_open(&s, weights, e));
    float **data = xcalloc((size_t)s->n_tensors, sizeof *data);
    int n_found = 0;
    for (int i = 0; i < s->n_tensors; i++) {
        const struct st_tensor *t = &s->tensors[i];
        data[i] = xmalloc(sizeof(float) * (size_t)(t->n_elems + 1));
        ASSERT_OK(st_read_f32(t, data[i], e));
        for (int k = 0; k < n_edits; k++) {
            if (strcmp(t->name, edits[k].tensor) != 0)
                continue;
            int64_t row = t->n_elems / t->shape[0], begin = edits[k].row < 0 ? 0 : edits[k].row * row,
                    end = edits[k].row < 0 ? t->n_elems : begin + row;
            assert_true(end <= t->n_elems);
            for (int64_t j = begin; j < end; j++)
                data[i][j] = (float)(data[i][j] * edits[k].factor + edits[k].add);
            n_found++;
        }
        st_writer_add(w, t->name, ST_F32, t->shape, t->rank, data[i]);
    }
    assert_int_equal(n_found, n_edits);
    ASSERT_OK(st_writer_write(w, out, true, e));
    st_writer_free(w);
    for (int i = 0; i < s->n_tensors; i++)
        free(data[i]);
    free(data);
    safetensors_close(s);
    free(text);
    free(from);
    free(config);
    free(copy);
    free(weights);
    free(out);
    return to;
}

/* The new name of a tensor in dst, or false: it is left out. */
typedef bool (*rename_tensor)(void *context, const char *name, char dst[256]);

/* A folder below packages_scratch with config.json and the tensors under other names, in one file; heap. config: NULL,
 * or what stands in place of the model's. */
static inline char *renamed_checkpoint(const char *model, const char *name, const char *config,
                                       rename_tensor rename_one, void *context)
{
    char *from = xasprintf("%s/models/%s", MILKIT_TEST_DATA, model), *to = path_join(packages_scratch, name);
    char *config_path = path_join(from, "config.json"), *copy = path_join(to, "config.json"),
         *out = path_join(to, "model.safetensors"), *text = NULL;
    size_t n = 0;
    struct safetensors *s = NULL;
    struct st_writer *w = st_writer_new();
    ASSERT_OK(folder_make(to, e));
    ASSERT_OK(file_read(&text, &n, config_path, 1 << 20, e));
    ASSERT_OK(file_write(copy, config ? config : text, config ? strlen(config) : n, e));
    ASSERT_OK(safetensors_open(&s, from, e));
    for (int i = 0; i < s->n_tensors; i++) {
        const struct st_tensor *t = &s->tensors[i];
        char new_name[256];
        if (rename_one(context, t->name, new_name))
            st_writer_add(w, new_name, t->dtype, t->shape, t->rank, t->data);
    }
    ASSERT_OK(st_writer_write(w, out, true, e));
    st_writer_free(w);
    safetensors_close(s);
    free(text);
    free(from);
    free(config_path);
    free(copy);
    free(out);
    return to;
}

#endif
