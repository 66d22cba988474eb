/* What the tests of the families' programs share: checkpoints opened with another configuration, looking into programs,
 * and refusals. */
#ifndef MILKIT_TESTS_OPENED_H
#define MILKIT_TESTS_OPENED_H

#include "support.h"
#include "arch/family.h"

struct opened {
    cJSON *config;
    struct safetensors *tensors;
    struct arch_model *model;
};

/* Opens a checkpoint folder; edit (JSON) replaces or adds settings of the text model; model_type,
 * quantization_config and what begins with "top." stand at the top. */
static inline bool open_folder(struct opened *o, const char *folder, const char *edit,
                               const struct arch_settings *s, struct err *e)
{
    memset(o, 0, sizeof *o);
    char *path = path_join(folder, "config.json");
    bool ok = json_read_file(&o->config, path, 1 << 20, e) && safetensors_open(&o->tensors, folder, e);
    if (ok && edit) {
        cJSON *changes = NULL, *text = cJSON_GetObjectItemCaseSensitive(o->config, "text_config");
        ok = json_parse(&changes, edit, strlen(edit), "edit", e);
        while (ok && changes->child) {
            cJSON *item = cJSON_DetachItemViaPointer(changes, changes->child);
            bool is_top = strncmp(item->string, "top.", 4) == 0;
            char *key = xstrdup(item->string + (is_top ? 4 : 0));
            bool at_top =
                !text || is_top || strcmp(key, "model_type") == 0 || strcmp(key, "quantization_config") == 0;
            cJSON *to = at_top ? o->config : text;
            cJSON_DeleteItemFromObjectCaseSensitive(to, key);
            cJSON_AddItemToObject(to, key, item);
            free(key);
        }
        cJSON_Delete(changes);
    }
    ok = ok && arch_open(&o->model, folder, o->config, o->tensors, s, e);
    free(path);
    return ok;
}

/* A checkpoint of tests/data. */
static inline bool open_edited(struct opened *o, const char *name, const char *edit,
                               const struct arch_settings *s, struct err *e)
{
    char *folder = xasprintf("%s/models/%s", MILKIT_TEST_DATA, name);
    bool ok = open_folder(o, folder, edit, s, e);
    free(folder);
    return ok;
}

static inline void opened_close(struct opened *o)
{
    arch_close(o->model);
    safetensors_close(o->tensors);
    cJSON_Delete(o->config);
}

struct refusal {
    const char *edit;
    enum err_code code;
    const char *part; /* of the message */
};

static inline void assert_refusals(const char *model, const struct refusal *cases, size_t n,
                                   const struct arch_settings *s)
{
    for (size_t i = 0; i < n; i++) {
        struct opened o;
        struct err e = {0};
        if (open_edited(&o, model, cases[i].edit, s, &e))
            fail_msg("%s: accepted", cases[i].edit);
        if (e.code != cases[i].code || !strstr(e.msg, cases[i].part))
            fail_msg("%s: code %d, %s", cases[i].edit, (int)e.code, e.msg);
        opened_close(&o);
    }
}

static inline struct mil_model *build_chunk(struct opened *o, int i)
{
    struct mil_model *m = mil_model_new(9);
    ASSERT_OK(o->model->family->build_chunk(o->model, i, m, e));
    ASSERT_OK(mil_verify(m, e));
    return m;
}

/* Ops of a type; NULL: all but constants. */
static inline int count_ops(const struct mil_function *f, const char *type)
{
    int n = 0;
    for (int i = 0; i < f->block->n_ops; i++) {
        const char *t = f->block->ops[i]->type;
        n += type ? strcmp(t, type) == 0 : strcmp(t, "const") != 0;
    }
    return n;
}

/* NULL: no such constant. */
static inline const struct mil_value *const_value(const struct mil_function *f, const char *name)
{
    for (int i = 0; i < f->block->n_ops; i++) {
        const struct mil_op *op = f->block->ops[i];
        if (mil_op_is(op, "const") && strcmp(op->outputs[0]->name, name) == 0)
            return mil_attribute(op, "val");
    }
    return NULL;
}

static inline void assert_type(const struct mil_type *t, const char *expected)
{
    char text[160];
    mil_type_text(text, sizeof text, t);
    assert_string_equal(text, expected);
}

#endif
