/* Models in every form, and folders of several models. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "format/contract.h"
#include "format/mlpackage.h"
#include "inspect/inspect_internal.h"
#include "mil/mil.h"
#include "mil/ops.h"
#include "mil/text.h"

/* ---- weights ---- */

/* Blob values of a program, each (file, offset) once. */
struct weights {
    cJSON *out;
    struct table *seen, *files;
    cJSON *file_list;
    const char *root;
    double bytes;
    int n;
};

static void add_weight_file(struct weights *w, const char *file)
{
    static const char prefix[] = "@model_path/";
    cJSON *one;

    if (!table_put(w->files, file, w))
        return;
    one = cJSON_CreateObject();
    cJSON_AddStringToObject(one, "name", file);
    if (w->root && strncmp(file, prefix, sizeof prefix - 1) == 0 && !strstr(file, "..")) {
        char *path = path_join(w->root, file + sizeof prefix - 1);
        int64_t bytes = file_bytes(path);
        if (bytes >= 0)
            cJSON_AddNumberToObject(one, "bytes", (double)bytes);
        else
            cJSON_AddStringToObject(one, "problem", "not there");
        free(path);
    }
    cJSON_AddItemToArray(w->file_list, one);
}

static void add_value(struct weights *w, const struct mil_value *v)
{
    if (!v)
        return;
    for (int i = 0; v->kind == MIL_VALUE_ITEMS && i < v->n_items; i++)
        add_value(w, v->items[i]);
    if (v->kind != MIL_VALUE_BLOB || !v->file)
        return;
    add_weight_file(w, v->file);
    char *key = xasprintf("%" PRIu64 "@%s", v->offset, v->file);
    int64_t bytes = mil_type_bytes(v->type);
    if (table_put(w->seen, key, w)) {
        inspect_count(w->out, "dtypes", mil_dtype_name(v->type->dtype), bytes > 0 ? bytes : 0);
        w->bytes += bytes > 0 ? (double)bytes : 0;
        w->n++;
    }
    free(key);
}

static void add_block_values(struct weights *w, const struct mil_block *b)
{
    for (int i = 0; i < b->n_ops; i++) {
        const struct mil_op *op = b->ops[i];
        for (int k = 0; k < op->n_attributes; k++)
            add_value(w, op->attributes[k].value);
        for (int k = 0; k < op->n_args; k++)
            for (int n = 0; n < op->args[k].n; n++)
                add_value(w, op->args[k].bindings[n].value);
        for (int k = 0; k < op->n_blocks; k++)
            add_block_values(w, op->blocks[k]);
    }
}

static void add_weights(cJSON *o, const struct mil_model *m)
{
    struct weights w = {.seen = table_new(), .files = table_new(), .root = m->root};

    w.out = cJSON_AddObjectToObject(o, "weights");
    w.file_list = cJSON_AddArrayToObject(w.out, "files");
    for (int i = 0; i < m->program->n_functions; i++)
        if (m->program->functions[i]->block)
            add_block_values(&w, m->program->functions[i]->block);
    cJSON_AddNumberToObject(w.out, "values", w.n);
    cJSON_AddNumberToObject(w.out, "bytes", w.bytes);
    table_free(w.seen);
    table_free(w.files);
}

/* ---- functions ---- */

/* The description's word on one input or output, beyond its MIL type. */
static void add_flexibility(cJSON *one, const struct mil_feature *f)
{
    static const char *const colors[] = {"", "gray", "RGB", "BGR", "gray fp16"};
    if (f->n_ranges > 0) {
        cJSON *list = cJSON_AddArrayToObject(one, "ranges");
        for (int i = 0; i < f->n_ranges; i++) {
            int64_t range[2] = {f->ranges[i].lower, f->ranges[i].upper};
            cJSON_AddItemToArray(list, inspect_dims(range, 2));
        }
    }
    if (f->n_enumerated > 0) {
        cJSON *list = cJSON_AddArrayToObject(one, "enumerated_shapes");
        for (int i = 0; i < f->n_enumerated; i++)
            cJSON_AddItemToArray(list, inspect_dims(f->enumerated[i], f->enumerated_ranks[i]));
    }
    if (f->n_ranges > 0 || f->n_enumerated > 0)
        cJSON_AddItemToObject(one, "default_shape", inspect_dims(f->shape, f->rank));
    if (f->is_optional) {
        cJSON_AddBoolToObject(one, "optional", true);
        cJSON_AddNumberToObject(one, "default", f->default_value);
    }
    if (f->kind == MIL_FEATURE_IMAGE)
        cJSON_AddStringToObject(one, "image", colors[f->color]);
}

static void add_variable(cJSON *list, const struct mil_var *v, const struct mil_feature *features, int n)
{
    cJSON *one = cJSON_CreateObject();
    const struct mil_type *t = mil_type_tensor(v->type);
    char text[160];

    mil_type_text(text, sizeof text, t);
    cJSON_AddStringToObject(one, "name", v->name);
    cJSON_AddStringToObject(one, "type", text);
    if (t && t->kind == MIL_TYPE_TENSOR) {
        int64_t bytes = mil_type_bytes(t);
        cJSON_AddStringToObject(one, "dtype", mil_dtype_name(t->dtype));
        cJSON_AddItemToObject(one, "shape", inspect_dims(t->dims, t->rank));
        if (bytes >= 0)
            cJSON_AddNumberToObject(one, "bytes", (double)bytes);
    }
    for (int i = 0; i < n; i++)
        if (features[i].name && strcmp(features[i].name, v->name) == 0)
            add_flexibility(one, &features[i]);
    cJSON_AddItemToArray(list, one);
}

static void count_block(cJSON *histogram, const struct mil_block *b, int *n, cJSON *unknown)
{
    for (int i = 0; i < b->n_ops; i++) {
        const struct mil_op *op = b->ops[i];
        cJSON *count = cJSON_GetObjectItemCaseSensitive(histogram, op->type);
        if (count) {
            cJSON_SetNumberValue(count, count->valuedouble + 1);
        } else {
            cJSON_AddNumberToObject(histogram, op->type, 1);
            if (!op->info)
                cJSON_AddItemToArray(unknown, cJSON_CreateString(op->type));
        }
        ++*n;
        for (int k = 0; k < op->n_blocks; k++)
            count_block(histogram, op->blocks[k], n, unknown);
    }
}

static void add_function(cJSON *list, const struct mil_model *m, const struct mil_function *f)
{
    const struct mil_function_description *d = mil_function_description_find(m, f->name);
    cJSON *one = cJSON_CreateObject();
    int n = 0;

    cJSON_AddStringToObject(one, "name", f->name);
    cJSON_AddStringToObject(one, "opset", f->opset ? f->opset : "");
    cJSON *inputs = cJSON_AddArrayToObject(one, "inputs"), *outputs = cJSON_AddArrayToObject(one, "outputs");
    cJSON *states = cJSON_AddArrayToObject(one, "states");
    for (int i = 0; i < f->n_inputs; i++) {
        bool is_state = f->inputs[i]->type && f->inputs[i]->type->kind == MIL_TYPE_STATE;
        add_variable(is_state ? states : inputs, f->inputs[i], d ? d->inputs : NULL, d ? d->n_inputs : 0);
    }
    for (int i = 0; f->block && i < f->block->n_outputs; i++)
        add_variable(outputs, f->block->outputs[i], d ? d->outputs : NULL, d ? d->n_outputs : 0);
    cJSON *histogram = cJSON_CreateObject(), *unknown = cJSON_CreateArray();
    if (f->block)
        count_block(histogram, f->block, &n, unknown);
    cJSON_AddNumberToObject(one, "operations", n);
    cJSON_AddItemToObject(one, "histogram", histogram);
    cJSON_AddItemToObject(one, "unknown_operations", unknown);
    cJSON_AddItemToArray(list, one);
}

static void add_metadata(cJSON *o, const struct mil_description *d)
{
    const char *const texts[][2] = {{"short_description", d->short_description},
                                    {"version", d->version},
                                    {"author", d->author},
                                    {"license", d->license}};
    cJSON *metadata = cJSON_AddObjectToObject(o, "metadata");

    for (int i = 0; i < 4; i++)
        if (texts[i][1] && texts[i][1][0])
            cJSON_AddStringToObject(metadata, texts[i][0], texts[i][1]);
    cJSON *user = cJSON_AddObjectToObject(metadata, "user_defined");
    for (int i = 0; i < d->n_user_defined; i++)
        cJSON_AddStringToObject(user, d->user_defined[i].key, d->user_defined[i].value);
}

static void add_build_info(cJSON *o, const struct mil_program *p)
{
    for (int i = 0; i < p->n_attributes; i++) {
        const struct mil_value *v = p->attributes[i].value;
        if (strcmp(p->attributes[i].name, "buildInfo") != 0 || v->kind != MIL_VALUE_ITEMS)
            continue;
        cJSON *info = cJSON_AddObjectToObject(o, "build_info");
        for (int k = 0; k + 1 < v->n_items; k += 2) {
            struct str key, value;
            if (!mil_value_string(v->items[k], &key) || !mil_value_string(v->items[k + 1], &value))
                continue;
            char *name = xasprintf("%.*s", (int)key.n, key.p),
                 *text = xasprintf("%.*s", (int)value.n, value.p);
            cJSON_AddStringToObject(info, name, text);
            free(name);
            free(text);
        }
    }
}

static void add_program(cJSON *o, const struct mil_model *m)
{
    cJSON *functions;

    cJSON_AddNumberToObject(o, "specification_version", m->specification_version);
    cJSON_AddStringToObject(o, "default_function", mil_default_function_name(m));
    add_metadata(o, &m->description);
    add_build_info(o, m->program);
    functions = cJSON_AddArrayToObject(o, "functions");
    for (int i = 0; i < m->program->n_functions; i++)
        add_function(functions, m, m->program->functions[i]);
    add_weights(o, m);
}

/* ---- what a path holds ---- */

bool inspect_model(cJSON *o, const char *path, struct err *e)
{
    enum model_path_kind kind = model_path_kind(path);
    struct mil_model *m = NULL;

    cJSON_AddStringToObject(o, "kind",
                            kind == MODEL_PATH_MLPACKAGE  ? "mlpackage"
                            : kind == MODEL_PATH_MLMODELC ? "mlmodelc"
                                                          : "mlmodel");
    if (!mil_model_open(&m, path, MIL_OPEN_NO_WEIGHTS | MIL_OPEN_NO_VERIFY, e))
        return false;
    add_program(o, m);
    mil_model_close(m);
    return true;
}

bool inspect_program_text(cJSON *o, const char *path, struct err *e)
{
    struct mil_model *m = mil_model_new(0);
    struct map_file *text = NULL;
    char *root = path_folder(path);
    bool ok;

    cJSON_AddStringToObject(o, "kind", "mil");
    m->root = arena_strdup(m->arena, root);
    ok = map_open(&text, path, e) && mil_text_read(m, (const char *)text->data, text->bytes, path, e);
    if (ok)
        add_program(o, m);
    map_close(text);
    mil_model_close(m);
    free(root);
    return ok;
}

bool inspect_package(cJSON *o, const char *path, struct err *e)
{
    struct path_list names = {0};
    char *meta = path_join(path, FILE_META);
    double bytes = 0;
    int n = 0;
    bool ok;

    ok = inspect_meta(cJSON_AddObjectToObject(o, "meta"), meta, e) && path_list_read(&names, path, e);
    cJSON_AddStringToObject(o, "kind", "package");
    cJSON *models = cJSON_AddArrayToObject(o, "models");
    for (size_t i = 0; i < names.n && ok; i++) {
        char *below = path_join(path, names.names[i]);
        enum model_path_kind kind = path_is_folder(below) ? model_path_kind(below) : MODEL_PATH_NONE;
        if (kind != MODEL_PATH_NONE) {
            cJSON *one = cJSON_CreateObject();
            cJSON_AddItemToArray(models, one);
            cJSON_AddStringToObject(one, "path", names.names[i]);
            ok = inspect_model(one, below, e);
            if (ok) {
                const cJSON *weights = json_get(one, "weights");
                bytes += cJSON_GetNumberValue(json_get(weights, "bytes"));
                n++;
            }
        }
        free(below);
    }
    cJSON *totals = cJSON_AddObjectToObject(o, "totals");
    cJSON_AddNumberToObject(totals, "models", n);
    cJSON_AddNumberToObject(totals, "weight_bytes", bytes);
    path_list_free(&names);
    free(meta);
    return ok;
}
