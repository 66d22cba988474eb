/* What a path is, by its name and contents, and who reads it. */
#include "inspect/inspect.h"
#include <stdlib.h>
#include "format/contract.h"
#include "format/gguf.h"
#include "format/mlpackage.h"
#include "inspect/inspect_internal.h"

/* A folder of a checkpoint has tensors or an index of them in it. */
static bool folder_has_tensors(const char *folder)
{
    struct path_list names;
    struct err ignored = {0};
    bool yes = false;

    if (!path_list_read(&names, folder, &ignored))
        return false;
    for (size_t i = 0; i < names.n; i++)
        yes = yes || has_suffix(names.names[i], ".safetensors") ||
              has_suffix(names.names[i], ".safetensors.index.json");
    path_list_free(&names);
    return yes;
}

static bool inspect_folder(cJSON *o, const char *path, struct err *e)
{
    if (model_path_kind(path) != MODEL_PATH_NONE)
        return inspect_model(o, path, e);
    if (folder_has(path, FILE_META))
        return inspect_package(o, path, e);
    if (folder_has_tensors(path))
        return inspect_checkpoint(o, path, e);
    if (folder_has(path, "tokenizer.json"))
        return inspect_tokenizer(o, path, e);
    return err_set(
        e, ERR_FORMAT,
        "%s: neither a model, nor a package (meta.yaml), a checkpoint (*.safetensors) or a tokenizer "
        "(tokenizer.json)",
        path);
}

/* By name, and by the first bytes where names say nothing. */
static bool inspect_file(cJSON *o, const char *path, struct err *e)
{
    if (gguf_is_file(path))
        return inspect_gguf(o, path, e);
    if (has_suffix(path, ".safetensors") || has_suffix(path, ".index.json"))
        return inspect_checkpoint(o, path, e);
    if (has_suffix(path, ".json"))
        return inspect_tokenizer(o, path, e);
    if (has_suffix(path, ".yaml") || has_suffix(path, ".yml"))
        return inspect_meta(o, path, e);
    if (has_suffix(path, ".bin"))
        return inspect_weight_file(o, path, e);
    return model_path_kind(path) == MODEL_PATH_MIL ? inspect_program_text(o, path, e)
                                                   : inspect_model(o, path, e);
}

bool inspect_path(cJSON *o, const char *path, struct err *e)
{
    if (!path_exists(path))
        return err_set(e, ERR_IO, "%s: no such file or folder", path);
    cJSON_AddNumberToObject(o, "schema", 1);
    cJSON_AddStringToObject(o, "path", path);
    return path_is_folder(path) ? inspect_folder(o, path, e) : inspect_file(o, path, e);
}

bool inspect_text(char **out, const char *path, struct err *e)
{
    cJSON *o = cJSON_CreateObject();
    bool ok = inspect_path(o, path, e);
    *out = ok ? cJSON_Print(o) : NULL;
    if (ok && !*out)
        ok = err_set(e, ERR_NOMEM, "the report does not fit into memory");
    cJSON_Delete(o);
    return ok;
}
