/* Opens a model from whichever form a path holds, and says what it is when it is something else. */
#include "mil/mil.h"

#include <stdlib.h>

#include "format/contract.h"
#include "format/mlmodelc.h"
#include "format/mlpackage.h"
#include "mil/infer.h"
#include "mil/protobuf.h"
#include "mil/text.h"

/* Only a file's text says what it is about; the model keeps its own copies. */
static void model_place_set(struct mil_model *m, const char *path, const char *root)
{
    m->path = arena_strdup(m->arena, path);
    m->root = arena_strdup(m->arena, root);
}

static bool protobuf_open(struct mil_model *m, const char *file, struct err *e)
{
    struct map_file *map = NULL;
    bool ok = map_open(&map, file, e) && mil_protobuf_read(m, map->data, map->bytes, file, e);
    map_close(map);
    return ok;
}

static bool package_open(struct mil_model *m, const char *path, struct err *e)
{
    char *file = NULL, *root = NULL;
    bool ok = mlpackage_locate(path, &file, &root, e);
    if (ok) {
        model_place_set(m, path, root);
        ok = protobuf_open(m, file, e);
    }
    free(file);
    free(root);
    return ok;
}

static bool compiled_open(struct mil_model *m, const char *path, struct err *e)
{
    char *data_path = path_join(path, "coremldata.bin"), *text_path = path_join(path, "model.mil");
    struct map_file *data = NULL, *text = NULL;
    struct coremldata compiled;
    bool ok = false;

    if (!path_exists(data_path)) {
        err_set(e, ERR_FORMAT, "%s: a compiled model without its coremldata.bin: an incomplete copy?", path);
        goto done;
    }
    if (!map_open(&data, data_path, e) || !coremldata_read(&compiled, data->data, data->bytes, data_path, e))
        goto done;
    if (!path_exists(text_path)) {
        err_set(e, ERR_FORMAT, "%s: a compiled model without its model.mil: an incomplete copy?", path);
        goto done;
    }
    model_place_set(m, path, path);
    m->specification_version = compiled.specification_version;
    ok = mil_description_read(m, compiled.description, compiled.n_description, data_path, e) &&
         map_open(&text, text_path, e) &&
         mil_text_read(m, (const char *)text->data, text->bytes, text_path, e);
done:
    map_close(data);
    map_close(text);
    free(data_path);
    free(text_path);
    return ok;
}

static bool not_a_model(const char *path, struct err *e)
{
    if (!path_exists(path))
        return err_set(e, ERR_IO, "%s: no such file or folder", path);
    if (folder_has(path, FILE_META))
        return err_set(e, ERR_FORMAT, "%s: a folder of several models (it has a meta.yaml); name one of them",
                       path);
    return err_set(
        e, ERR_FORMAT,
        "%s: neither a .mlpackage (no Manifest.json) nor a .mlmodelc (no coremldata.bin and model.mil)",
        path);
}

bool mil_model_open(struct mil_model **out, const char *path, unsigned flags, struct err *e)
{
    struct mil_model *m = mil_model_new(0);
    char *root = NULL;
    bool ok = false;

    *out = NULL;
    switch (model_path_kind(path)) {
    case MODEL_PATH_MLPACKAGE:
        ok = package_open(m, path, e);
        break;
    case MODEL_PATH_MLMODELC:
        ok = compiled_open(m, path, e);
        break;
    case MODEL_PATH_MLMODEL:
        root = path_folder(path);
        model_place_set(m, path, root);
        ok = protobuf_open(m, path, e);
        break;
    case MODEL_PATH_MIL:
        err_set(e, ERR_UNSUPPORTED,
                "%s: the text of a program alone; name the .mlmodelc folder that holds it", path);
        break;
    case MODEL_PATH_NONE:
        not_a_model(path, e);
        break;
    }
    ok = ok && ((flags & MIL_OPEN_NO_WEIGHTS) || mil_model_map_weights(m, e));
    if (ok && !(flags & MIL_OPEN_NO_VERIFY) && !mil_verify(m, e))
        ok = err_wrap(e, "%s", path);
    if (ok)
        *out = m;
    else
        mil_model_close(m);
    free(root);
    return ok;
}
