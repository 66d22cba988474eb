/* A part: quantizes its program, collects the weights, writes its files and reads them back. */
#include "convert/parts.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "mil/compiled.h"

#define IMMEDIATE_ELEMS_MAX 9 /* constants with more elements go to the blob file */

/* ---- collecting ---- */

struct collector {
    struct convert_part *part;
    struct table *seen; /* values by address */
    size_t capacity;
};

static bool make_immediate(struct convert_part *p, struct mil_value *v, struct err *e)
{
    void *data = arena_alloc(p->model->arena, v->bytes + 1);
    if (!v->weight->produce(v->weight, 0, v->n_elems, data, e))
        return false;
    v->kind = MIL_VALUE_TENSOR;
    v->data = data;
    v->weight = NULL;
    return true;
}

static void add_weight(struct collector *c, struct mil_value *v)
{
    struct convert_part *p = c->part;
    const struct quant_weight *quant = quant_weight_of(v);
    p->weights = mem_grow(p->weights, (size_t)p->n_weights, &c->capacity, sizeof *p->weights);
    p->weights[p->n_weights++] = v;
    p->weight_bytes += v->bytes;
    if (!quant || v == quant->codes) {
        p->work_bytes += quant ? quant->source->bytes : v->bytes;
        p->n_elems += v->n_elems;
    }
}

static bool collect_value(struct collector *c, const struct mil_value *value, struct err *e)
{
    int type;
    bool is_weight = value->kind == MIL_VALUE_WEIGHT;
    bool is_large = value->kind == MIL_VALUE_TENSOR && !value->strings &&
                    value->n_elems > IMMEDIATE_ELEMS_MAX && convert_blob_type(value->type->dtype, &type);
    if (!is_weight && !is_large)
        return true;
    char key[32];
    snprintf(key, sizeof key, "%p", (const void *)value);
    /* The model owns its values and is ours; ops only promise not to change them. */
    struct mil_value *v = (struct mil_value *)value;
    if (!table_put(c->seen, key, v))
        return true;
    if (is_weight && v->n_elems <= IMMEDIATE_ELEMS_MAX && !quant_weight_of(v))
        return make_immediate(c->part, v, e);
    if (is_weight && !convert_blob_type(v->type->dtype, &type))
        return err_set(e, ERR_BUG, "weight %s: type %s can't be in a weight file", v->weight->name,
                       mil_dtype_name(v->type->dtype));
    add_weight(c, v);
    return true;
}

static bool collect_block(struct collector *c, const struct mil_block *block, struct err *e)
{
    for (int i = 0; i < block->n_ops; i++) {
        const struct mil_op *op = block->ops[i];
        for (int a = 0; a < op->n_args; a++) {
            for (int k = 0; k < op->args[a].n; k++) {
                const struct mil_value *v = op->args[a].bindings[k].value;
                if (v && !collect_value(c, v, e))
                    return false;
            }
        }
        for (int a = 0; a < op->n_attributes; a++) {
            if (!collect_value(c, op->attributes[a].value, e))
                return false;
        }
    }
    return true;
}

/* ---- quantization ---- */

/* com.anemll.lut_bits among the sorted texts of the description. */
static void describe_bits(struct mil_model *m, const struct quant_spec *spec)
{
    static const char key[] = "com.anemll.lut_bits";
    struct mil_description *d = &m->description;
    struct mil_text_pair *list = ARENA_ARRAY(m->arena, struct mil_text_pair, d->n_user_defined + 1);
    int n = 0, i = 0;
    for (; i < d->n_user_defined && strcmp(d->user_defined[i].key, key) < 0; i++)
        list[n++] = d->user_defined[i];
    list[n].key = key;
    list[n++].value = arena_printf(m->arena, "%d", spec->bits);
    for (; i < d->n_user_defined; i++)
        list[n++] = d->user_defined[i];
    d->user_defined = list;
    d->n_user_defined = n;
}

static bool quantize(struct convert_part *p, unsigned which, struct err *e)
{
    struct quant_weight **list = NULL;
    if (p->spec.kind == QUANT_NONE)
        return true;
    if (!quant_apply(p->model, &p->spec, p->choices, which, &list, &p->n_quants, e))
        return false;
    p->quants = xcalloc((size_t)p->n_quants + 1, sizeof *p->quants);
    for (int i = 0; i < p->n_quants; i++) {
        const struct quant_weight *w = p->quants[i].weight = list[i];
        if (p->spec.kind == QUANT_LUT && p->spec.group > 0 && w->spec.group < p->spec.group &&
            w->spec.group < w->rows)
            p->n_regrouped++;
        if (p->spec.kind == QUANT_INT4 && w->spec.block < p->spec.block && w->spec.block < w->columns)
            p->n_regrouped++;
    }
    if (p->spec.kind == QUANT_LUT)
        describe_bits(p->model, &p->spec);
    return true;
}

bool convert_part_init(struct convert_part *p, struct mil_model *model, char *name,
                       const struct quant_spec *spec, const struct quant_choices *choices, unsigned which,
                       struct err *e)
{
    *p = (struct convert_part){
        .model = model, .name = name, .spec = *spec, .choices = choices, .is_wanted = true};
    if (!quantize(p, which, e))
        return false;
    struct collector c = {.part = p, .seen = table_new()};
    bool ok = true;
    for (int i = 0; i < model->program->n_functions && ok; i++)
        ok = collect_block(&c, model->program->functions[i]->block, e);
    table_free(c.seen);
    return ok;
}

void convert_part_close_model(struct convert_part *p)
{
    mil_model_close(p->model);
    p->model = NULL;
    free(p->weights);
    p->weights = NULL;
    p->n_weights = 0;
    for (int i = 0; i < p->n_quants; i++)
        free(p->quants[i].units);
    free(p->quants);
    p->quants = NULL;
    p->n_quants = 0;
}

void convert_part_fini(struct convert_part *p)
{
    convert_part_close_model(p);
    free(p->name);
    free(p->report);
    *p = (struct convert_part){0};
}

/* ---- files ---- */

static bool share_file(const char *from, const char *to, struct err *e)
{
    if (link(from, to) == 0)
        return true;
    return file_copy(from, to, e);
}

static char *weights_path(const char *folder, const char *inside)
{
    return xasprintf("%s%s/weights/weight.bin", folder, inside);
}

static bool make_parent(const char *path, struct err *e)
{
    char *folder = path_folder(path);
    bool ok = folder_make(folder, e);
    free(folder);
    return ok;
}

/* What was written must be what a reader takes: parsed, verified, every weight inside its file. */
static bool read_back(const char *path, struct err *e)
{
    struct mil_model *m = NULL;
    if (!mil_model_open(&m, path, 0, e))
        return err_wrap(e, "reading back");
    mil_model_close(m);
    return true;
}

int convert_part_folders(const struct convert_part *p, enum convert_format format, char *folders[2])
{
    int n = 0;
    if (format != CONVERT_MLMODELC)
        folders[n++] = xasprintf("%s.mlpackage", p->name);
    if (format != CONVERT_MLPACKAGE)
        folders[n++] = xasprintf("%s.mlmodelc", p->name);
    return n;
}

bool convert_part_write(struct convert_part *p, struct convert_job *job, struct err *e)
{
    double start = clock_seconds();
    bool has_package = job->format != CONVERT_MLMODELC, has_compiled = job->format != CONVERT_MLPACKAGE;
    char *package = xasprintf("%s/%s.mlpackage", job->folder, p->name);
    char *compiled = xasprintf("%s/%s.mlmodelc", job->folder, p->name);
    char *package_weights = weights_path(package, "/Data/com.apple.CoreML");
    char *compiled_weights = weights_path(compiled, "");
    const char *weights = has_package ? package_weights : compiled_weights;
    bool ok = path_remove_tree(package, e) && path_remove_tree(compiled, e) && make_parent(weights, e) &&
              convert_write_weights(p, job, weights, e);
    if (ok && has_package)
        ok = mil_write_mlpackage_files(p->model, package, true, e) && read_back(package, e);
    if (ok && has_compiled)
        ok = make_parent(compiled_weights, e) &&
             (!has_package || share_file(package_weights, compiled_weights, e)) &&
             mil_write_mlmodelc_files(p->model, compiled, p->name, NULL, 0, e) && read_back(compiled, e);
    free(package);
    free(compiled);
    free(package_weights);
    free(compiled_weights);
    p->seconds = clock_seconds() - start;
    return ok || err_wrap(e, "%s", p->name);
}
