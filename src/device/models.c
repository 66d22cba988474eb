/* Opening what is to be looked at. */
#include "device/models.h"
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "format/mlpackage.h"
#include "mil/text.h"

#define MODELS_MAX 4096

/* The text of a program alone. */
static bool open_text(struct mil_model **out, const char *path, struct err *e)
{
    struct mil_model *m = mil_model_new(0);
    struct map_file *text = NULL;
    bool ok = map_open(&text, path, e) && mil_text_read(m, (const char *)text->data, text->bytes, path, e);
    map_close(text);
    if (!ok) {
        mil_model_close(m);
        m = NULL;
    }
    *out = m;
    return ok;
}

static bool add_model(struct device_models *o, const char *path, const char *name, bool with_weights,
                      struct err *e)
{
    struct mil_model *m = NULL;
    if (o->n == MODELS_MAX)
        return err_set(e, ERR_LIMIT, "%s: more than %d models", path, MODELS_MAX);
    bool ok = model_path_kind(path) == MODEL_PATH_MIL
                  ? open_text(&m, path, e)
                  : mil_model_open(&m, path, with_weights ? 0 : MIL_OPEN_NO_WEIGHTS, e);
    if (!ok)
        return false;
    size_t n = (size_t)o->n + 1;
    o->list = xrealloc(o->list, sizeof *o->list * n);
    o->models = xrealloc(o->models, sizeof(struct mil_model *) * n);
    o->names = xrealloc(o->names, sizeof(char *) * n);
    o->names[o->n] = xstrdup(name);
    o->models[o->n] = m;
    o->list[o->n] = (struct device_model){.name = o->names[o->n], .model = m};
    o->n++;
    return true;
}

static bool is_other_form(const char *folder, const char *name)
{
    static const char source[] = ".mlpackage";
    if (!has_suffix(name, source))
        return false;
    char *compiled = xasprintf("%s/%.*s.mlmodelc", folder, (int)(strlen(name) - strlen(source)), name);
    bool yes = path_is_folder(compiled);
    free(compiled);
    return yes;
}

static bool open_folder(struct device_models *o, const char *path, bool with_weights, struct err *e)
{
    struct path_list names = {0};
    bool ok = path_list_read(&names, path, e);
    for (size_t i = 0; ok && i < names.n; i++) {
        char *below = path_join(path, names.names[i]);
        if (path_is_folder(below) && model_path_kind(below) != MODEL_PATH_NONE &&
            !is_other_form(path, names.names[i]))
            ok = add_model(o, below, names.names[i], with_weights, e);
        free(below);
    }
    path_list_free(&names);
    if (ok && o->n == 0)
        ok = err_set(e, ERR_FORMAT, "%s: expected a model or a package with models, found none", path);
    return ok;
}

bool device_models_open(struct device_models *out, const char *path, bool with_weights, struct err *e)
{
    struct device_models o = {0};
    bool ok;
    if (!path_exists(path)) {
        ok = err_set(e, ERR_IO, "%s: no such file or folder", path);
    } else if (model_path_kind(path) == MODEL_PATH_NONE && path_is_folder(path)) {
        ok = open_folder(&o, path, with_weights, e);
    } else {
        char *name = path_base(path);
        ok = add_model(&o, path, name, with_weights, e);
        free(name);
    }
    if (!ok)
        device_models_close(&o);
    *out = o;
    return ok;
}

void device_models_close(struct device_models *m)
{
    for (int i = 0; i < m->n; i++) {
        mil_model_close(m->models[i]);
        free(m->names[i]);
    }
    free(m->models);
    free(m->names);
    free(m->list);
    *m = (struct device_models){0};
}
