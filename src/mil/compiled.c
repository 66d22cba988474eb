/* Models written to disk: the files of a package and of a compiled bundle, and the way from one to the other.
 */
#include <stdlib.h>
#include <string.h>
#include "format/mlmodelc.h"
#include "format/mlpackage.h"
#include "mil/compiled.h"
#include "mil/protobuf.h"
#include "mil/text.h"

#define TEXT_BYTES_MAX ((size_t)2 << 30)  /* what readers of model.mil take */
#define MODEL_BYTES_MAX ((size_t)2 << 30) /* protobuf's own limit */
#define SMALL_BYTES_MAX ((size_t)256 << 20)

static const char model_path_prefix[] = "@model_path/";

static bool write_below(const char *folder, const char *name, const struct buf *data, struct err *e)
{
    char *path = path_join(folder, name);
    bool ok = data->failed ? err_set(e, ERR_LIMIT, "%s: longer than %zu bytes", path, data->max_bytes)
                           : file_write(path, data->p ? data->p : "", data->n, e);

    free(path);
    return ok;
}

static bool make_below(const char *folder, const char *name, struct err *e)
{
    char *path = path_join(folder, name);
    bool ok = folder_make(path, e);

    free(path);
    return ok;
}

/* A classifier's last operation lives in coremldata.bin, in a form that is not written here. */
static bool refuse_classifier(const struct mil_model *m, struct err *e)
{
    for (int i = 0; i < m->program->n_functions; i++) {
        const struct mil_block *b = m->program->functions[i]->block;
        for (int k = 0; b && k < b->n_ops; k++)
            if (strcmp(b->ops[k]->type, "classify") == 0)
                return err_set(e, ERR_UNSUPPORTED,
                               "function %s is a classifier: writing compiled classifiers is not supported",
                               m->program->functions[i]->name);
    }
    return true;
}

static bool write_coremldata(const struct mil_model *m, const char *folder, struct err *e)
{
    struct buf description, out;
    bool ok;

    buf_init(&description, SMALL_BYTES_MAX);
    buf_init(&out, SMALL_BYTES_MAX);
    ok = mil_description_write(m, &description, e);
    if (ok) {
        coremldata_write(&out, m->specification_version, description.p, description.n,
                         m->description.has_functions ? m->description.n_functions : 0);
        ok = write_below(folder, "coremldata.bin", &out, e);
    }
    buf_fini(&description);
    buf_fini(&out);
    return ok;
}

/* The source's hash is how a bundle says what it was made from. */
static bool write_analytics(const char *folder, const char *model_name, const void *mlmodel, size_t bytes,
                            struct err *e)
{
    uint8_t digest[32];
    struct buf hash, out;
    bool ok;

    buf_init(&hash, 64);
    buf_init(&out, SMALL_BYTES_MAX);
    sha256(digest, mlmodel, bytes);
    base64_encode(&hash, digest, sizeof digest);
    coremldata_write_analytics(&out, hash.p, model_name);
    ok = make_below(folder, "analytics", e) && write_below(folder, "analytics/coremldata.bin", &out, e);
    buf_fini(&hash);
    buf_fini(&out);
    return ok;
}

static bool write_text(const struct mil_model *m, const char *folder, const struct mil_text_options *versions,
                       struct err *e)
{
    struct mil_text_options options = {.coremlc_component = MIL_COREMLC_COMPONENT,
                                       .coremlc_version = MIL_COREMLC_VERSION,
                                       .add_flexible_shapes = true};
    struct buf out;
    bool ok;

    if (versions) {
        options.coremlc_component = versions->coremlc_component;
        options.coremlc_version = versions->coremlc_version;
    }
    buf_init(&out, TEXT_BYTES_MAX);
    ok = mil_text_write(m, &options, &out, e) && write_below(folder, "model.mil", &out, e);
    buf_fini(&out);
    return ok;
}

static bool write_metadata(const struct mil_model *m, const char *folder, const char *class_name,
                           struct err *e)
{
    struct buf out;
    bool ok;

    buf_init(&out, SMALL_BYTES_MAX);
    ok = mil_metadata_write(m, class_name, &out, e) && write_below(folder, "metadata.json", &out, e);
    buf_fini(&out);
    return ok;
}

/* model_name: base name of the protobuf file, without extension. */
static bool write_bundle(const struct mil_model *m, const char *folder, const char *class_name,
                         const char *model_name, const void *mlmodel, size_t mlmodel_bytes,
                         const struct mil_text_options *versions, struct err *e)
{
    return refuse_classifier(m, e) && write_text(m, folder, versions, e) &&
           write_analytics(folder, model_name, mlmodel, mlmodel_bytes, e) &&
           write_metadata(m, folder, class_name, e) && write_coremldata(m, folder, e);
}

bool mil_write_mlmodelc_files(const struct mil_model *m, const char *folder, const char *class_name,
                              const void *mlmodel, size_t mlmodel_bytes, struct err *e)
{
    struct buf packed;
    bool ok = true;

    buf_init(&packed, MODEL_BYTES_MAX);
    if (!mlmodel) {
        ok = mil_protobuf_write(m, &packed, e);
        mlmodel = packed.p;
        mlmodel_bytes = packed.n;
    }
    ok = ok && write_bundle(m, folder, class_name, "model", mlmodel, mlmodel_bytes, NULL, e);
    buf_fini(&packed);
    return ok;
}

bool mil_write_mlpackage_files(const struct mil_model *m, const char *folder, bool has_weights, struct err *e)
{
    struct buf packed, manifest;
    bool ok;

    buf_init(&packed, MODEL_BYTES_MAX);
    buf_init(&manifest, SMALL_BYTES_MAX);
    ok = mil_protobuf_write(m, &packed, e) &&
         make_below(folder, has_weights ? "Data/com.apple.CoreML/weights" : "Data/com.apple.CoreML", e) &&
         write_below(folder, "Data/com.apple.CoreML/model.mlmodel", &packed, e);
    if (ok) {
        mlpackage_manifest(&manifest, has_weights, packed.p, packed.n);
        ok = write_below(folder, "Manifest.json", &manifest, e);
    }
    buf_fini(&packed);
    buf_fini(&manifest);
    return ok;
}

/* ---- compile ---- */

/* Weight files keep their names. Opening the model has checked that they lie inside it. */
static bool copy_weights(const struct mil_model *m, const char *folder, struct err *e)
{
    bool ok = true;

    for (int i = 0; i < m->n_files && ok; i++) {
        const char *name = m->file_names[i];
        if (strncmp(name, model_path_prefix, sizeof model_path_prefix - 1) != 0)
            return err_set(e, ERR_FORMAT, "weight file \"%.200s\" is not inside the model", name);
        name += sizeof model_path_prefix - 1;
        char *from = path_join(m->root, name), *to = path_join(folder, name), *parent = path_folder(to);
        ok = folder_make(parent, e) && file_copy(from, to, e);
        free(from);
        free(to);
        free(parent);
    }
    return ok;
}

/* The last component without its extension. */
static char *stem(const char *path)
{
    char *s = path_base(path), *dot = strrchr(s, '.');

    if (dot && dot != s)
        *dot = '\0';
    return s;
}

static bool find_source(const char *path, char **model_file, struct err *e)
{
    char *root = NULL;
    bool ok = true;

    switch (model_path_kind(path)) {
    case MODEL_PATH_MLPACKAGE:
        ok = mlpackage_locate(path, model_file, &root, e);
        free(root);
        return ok;
    case MODEL_PATH_MLMODEL:
        *model_file = xstrdup(path);
        return true;
    case MODEL_PATH_MLMODELC:
        return err_set(e, ERR_USAGE, "%s is compiled already; expected a .mlpackage or .mlmodel", path);
    case MODEL_PATH_MIL:
        return err_set(e, ERR_USAGE, "%s is the text of a compiled model; expected a .mlpackage or .mlmodel",
                       path);
    case MODEL_PATH_NONE:
        break;
    }
    if (!path_exists(path))
        return err_set(e, ERR_IO, "%s: no such file or folder", path);
    return err_set(e, ERR_FORMAT, "%s: expected a .mlpackage or .mlmodel", path);
}

/* An empty folder is taken, and only another compiled model replaced: a mistyped name must not cost anyone's files. */
static bool check_output(const char *out, bool replace, struct err *e)
{
    if (!path_exists(out) || path_is_empty_folder(out))
        return true;
    if (!path_is_folder(out))
        return err_set(e, ERR_IO, "%s: exists and is not a folder", out);
    if (model_path_kind(out) != MODEL_PATH_MLMODELC)
        return err_set(e, ERR_IO, "%s: exists and is not a compiled model, so it is not replaced", out);
    if (replace)
        return true;
    err_set(e, ERR_IO, "%s: exists", out);
    return err_set_hint(e, HINT_REPLACE);
}

bool mil_compile_as(const char *path, const char *out, bool replace, const struct mil_text_options *versions,
                    struct err *e)
{
    struct mil_model *m = NULL;
    struct map_file *mlmodel = NULL;
    struct out_folder *folder = NULL;
    char *model_file = NULL, *class_name = stem(path), *model_name = NULL;
    bool ok = false;

    if (!find_source(path, &model_file, e) || !check_output(out, replace, e) ||
        !mil_model_open(&m, path, 0, e) || !map_open(&mlmodel, model_file, e))
        goto done;
    model_name = stem(model_file);
    if (!out_folder_open(&folder, out, replace, e))
        goto done;
    if (!copy_weights(m, out_folder_path(folder), e) ||
        !write_bundle(m, out_folder_path(folder), class_name, model_name, mlmodel->data, mlmodel->bytes,
                      versions, e)) {
        err_wrap(e, "%s", path);
        goto done;
    }
    ok = out_folder_commit(folder, e);
    folder = NULL;
done:
    out_folder_abort(folder);
    map_close(mlmodel);
    mil_model_close(m);
    free(model_file);
    free(model_name);
    free(class_name);
    return ok;
}

bool mil_compile(const char *path, const char *out, bool replace, struct err *e)
{
    return mil_compile_as(path, out, replace, NULL, e);
}
