/* metadata.json of a compiled bundle: the description and statistics of the program, in the layout of Apple's
 * compiler.
 *
 * Nobody loads a model by it; tools and Xcode show it. Its key order is a hash order in Apple's files and has
 * no meaning; the orders here are those of real files of the same kind.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "mil/compiled.h"
#include "mil/metadata_internal.h"
#include "mil/ops.h"

/* ---- JSON in Apple's layout ---- */

struct json_out {
    struct buf *out;
    int indent;
    bool first;
};

static void put_text(struct buf *out, const char *s)
{
    buf_putc(out, '"');
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\' || c == '/')
            buf_printf(out, "\\%c", c);
        else if (c == '\n')
            buf_puts(out, "\\n");
        else if (c == '\t')
            buf_puts(out, "\\t");
        else if (c < 0x20)
            buf_printf(out, "\\u%04x", c);
        else
            buf_putc(out, (char)c);
    }
    buf_putc(out, '"');
}

static void put_line(struct json_out *j)
{
    buf_puts(j->out, j->first ? "\n" : ",\n");
    for (int i = 0; i < j->indent; i++)
        buf_puts(j->out, "  ");
    j->first = false;
}

static void put_key(struct json_out *j, const char *key)
{
    put_line(j);
    put_text(j->out, key);
    buf_puts(j->out, " : ");
}

static void put_pair(struct json_out *j, const char *key, const char *value)
{
    put_key(j, key);
    put_text(j->out, value);
}

static void put_open(struct json_out *j, char bracket)
{
    buf_putc(j->out, bracket);
    j->indent++;
    j->first = true;
}

static void put_close(struct json_out *j, char bracket)
{
    j->indent--;
    buf_puts(j->out, j->first ? "\n\n" : "\n"); /* an empty line marks an empty list */
    for (int i = 0; i < j->indent; i++)
        buf_puts(j->out, "  ");
    buf_putc(j->out, bracket);
    j->first = false;
}

/* ---- types and sets of them ---- */

/* A feature's fp64 is called "Double". */
static const char *array_type_name(enum mil_dtype d)
{
    const char *name = d == MIL_FP64 ? "Double" : precision_name(d);

    return name ? name : "Float32";
}

/* "Float16", "Mixed (Float16, Int32)", "" for none */
static void put_set(struct buf *out, const struct precision_set *s)
{
    struct buf text;

    buf_init(&text, PRECISION_SET_MAX * 40);
    buf_puts(&text, s->n > 1 ? "Mixed (" : "");
    for (int i = 0; i < s->n; i++)
        buf_printf(&text, i > 0 ? ", %s" : "%s", s->names[i]);
    buf_puts(&text, s->n > 1 ? ")" : "");
    put_text(out, text.p ? text.p : "");
    buf_fini(&text);
}

/* ---- histogram ---- */

struct count {
    char key[96];
    int n;
};

struct histogram {
    struct count *counts;
    struct table *index; /* op type -> its place in counts, plus one */
    size_t n;
};

static void count_ops(const struct mil_block *b, int opset, struct histogram *h)
{
    for (int i = 0; i < b->n_ops; i++) {
        const struct mil_op *op = b->ops[i];
        for (int k = 0; k < op->n_blocks; k++)
            count_ops(op->blocks[k], opset, h);
        if (strcmp(op->type, "const") == 0)
            continue;
        uintptr_t place = (uintptr_t)table_get(h->index, op->type);
        if (place == 0) {
            h->counts = xrealloc(h->counts, sizeof *h->counts * (h->n + 1));
            memset(&h->counts[h->n], 0, sizeof h->counts[h->n]);
            mil_op_histogram_key(h->counts[h->n].key, op->type, opset);
            place = ++h->n;
            if (!table_put(h->index, op->type, (void *)place))
                continue;
        }
        h->counts[place - 1].n++;
    }
}

/* Newer opsets first, then by name. */
static int compare_counts(const void *a, const void *b)
{
    const struct count *x = a, *y = b;
    int xo = 0, yo = 0;

    if (sscanf(x->key, "Ios%3d.", &xo) != 1)
        xo = 0;
    if (sscanf(y->key, "Ios%3d.", &yo) != 1)
        yo = 0;
    return xo != yo ? yo - xo : strcmp(x->key, y->key);
}

static void put_histogram(struct json_out *j, const struct mil_function *f)
{
    struct histogram h = {.index = table_new()};

    if (f->block)
        count_ops(f->block, mil_opset_number(f->opset), &h);
    if (h.n > 1)
        qsort(h.counts, h.n, sizeof *h.counts, compare_counts);
    put_open(j, '{');
    for (size_t i = 0; i < h.n; i++) {
        put_key(j, h.counts[i].key);
        buf_printf(j->out, "%d", h.counts[i].n);
    }
    put_close(j, '}');
    table_free(h.index);
    free(h.counts);
}

/* ---- schemas ---- */

static void put_shape(struct buf *b, const int64_t *shape, int rank, const char *open, const char *between,
                      const char *close)
{
    buf_puts(b, open);
    for (int i = 0; i < rank; i++)
        buf_printf(b, "%s%" PRId64, i > 0 ? between : "", shape[i]);
    buf_puts(b, close);
}

enum feature_key {
    KEY_FLEXIBLE,
    KEY_OPTIONAL,
    KEY_DATA_TYPE,
    KEY_FORMATTED,
    KEY_DESCRIPTION,
    KEY_SHAPE,
    KEY_NAME,
    KEY_TYPE,
    KEY_FLEXIBILITY,
    KEY_RANGE,
    KEY_ENUMERATED,
    KEY_KEY_TYPE,
    KEY_END
};

static const enum feature_key keys_fixed[] = {KEY_FLEXIBLE,  KEY_OPTIONAL,    KEY_DATA_TYPE,
                                              KEY_FORMATTED, KEY_DESCRIPTION, KEY_SHAPE,
                                              KEY_NAME,      KEY_TYPE,        KEY_END};
static const enum feature_key keys_range[] = {KEY_DATA_TYPE, KEY_FLEXIBLE,    KEY_OPTIONAL, KEY_FLEXIBILITY,
                                              KEY_RANGE,     KEY_FORMATTED,   KEY_TYPE,     KEY_SHAPE,
                                              KEY_NAME,      KEY_DESCRIPTION, KEY_END};
static const enum feature_key keys_enumerated[] = {
    KEY_DESCRIPTION, KEY_DATA_TYPE, KEY_FLEXIBLE, KEY_OPTIONAL,   KEY_FLEXIBILITY, KEY_FORMATTED,
    KEY_TYPE,        KEY_SHAPE,     KEY_NAME,     KEY_ENUMERATED, KEY_END};
static const enum feature_key keys_plain[] = {KEY_OPTIONAL, KEY_FORMATTED,   KEY_TYPE,
                                              KEY_NAME,     KEY_DESCRIPTION, KEY_END};
static const enum feature_key keys_dict[] = {KEY_OPTIONAL, KEY_KEY_TYPE,    KEY_FORMATTED, KEY_TYPE,
                                             KEY_NAME,     KEY_DESCRIPTION, KEY_END};

static const char *feature_type_name(const struct mil_feature *f)
{
    switch (f->kind) {
    case MIL_FEATURE_ARRAY:
        return "MultiArray";
    case MIL_FEATURE_STATE:
        return "State";
    case MIL_FEATURE_INT64:
        return "Int64";
    case MIL_FEATURE_DOUBLE:
        return "Double";
    case MIL_FEATURE_STRING:
        return "String";
    case MIL_FEATURE_DICT:
        return "Dictionary";
    case MIL_FEATURE_IMAGE:
        return "Image";
    case MIL_FEATURE_SEQUENCE:
        return "Sequence";
    case MIL_FEATURE_NONE:
        break;
    }
    return "Unknown";
}

/* The default, the set of shapes or the ranges of a flexible input, as people read them. */
static void put_flexibility(struct buf *b, const struct mil_feature *f)
{
    for (int i = 0; i < f->n_enumerated; i++) {
        buf_puts(b, i > 0 ? " | " : "");
        put_shape(b, f->enumerated[i], f->enumerated_ranks[i], "", " × ", "");
    }
    for (int i = 0; i < f->n_ranges && f->n_enumerated == 0; i++) {
        const struct mil_range *r = &f->ranges[i];
        buf_puts(b, i > 0 ? " × " : "");
        if (r->lower == r->upper)
            buf_printf(b, "%" PRId64, r->lower);
        else if (r->upper < 0)
            buf_printf(b, "%" PRId64 "...", r->lower);
        else
            buf_printf(b, "%" PRId64 "...%" PRId64, r->lower, r->upper);
    }
}

static void put_feature_value(struct buf *b, const struct mil_feature *f, enum feature_key key)
{
    const char *dict_key = f->dict_key_is_int64 ? "Int64" : "String";

    switch (key) {
    case KEY_FORMATTED:
        if (f->kind == MIL_FEATURE_ARRAY || f->kind == MIL_FEATURE_STATE) {
            buf_printf(b, "%s (%s%s", feature_type_name(f), array_type_name(f->dtype),
                       f->rank > 0 ? " " : "");
            put_shape(b, f->shape, f->rank, "", " × ", ")");
        } else if (f->kind == MIL_FEATURE_DICT) {
            buf_printf(b, "Dictionary (%s → Double)", dict_key);
        } else {
            buf_puts(b, feature_type_name(f));
        }
        break;
    case KEY_SHAPE:
        put_shape(b, f->shape, f->rank, "[", ", ", "]");
        break;
    case KEY_FLEXIBILITY:
        put_flexibility(b, f);
        break;
    case KEY_RANGE:
        buf_putc(b, '[');
        for (int i = 0; i < f->n_ranges; i++)
            buf_printf(b, "%s[%" PRId64 ", %" PRId64 "]", i > 0 ? ", " : "", f->ranges[i].lower,
                       f->ranges[i].upper);
        buf_putc(b, ']');
        break;
    case KEY_ENUMERATED:
        buf_putc(b, '[');
        for (int i = 0; i < f->n_enumerated; i++)
            put_shape(b, f->enumerated[i], f->enumerated_ranks[i], i > 0 ? ", [" : "[", ", ", "]");
        buf_putc(b, ']');
        break;
    case KEY_FLEXIBLE:
        buf_puts(b, f->n_ranges > 0 || f->n_enumerated > 0 ? "1" : "0");
        break;
    case KEY_OPTIONAL:
        buf_puts(b, f->is_optional ? "1" : "0");
        break;
    case KEY_DATA_TYPE:
        buf_puts(b, array_type_name(f->dtype));
        break;
    case KEY_DESCRIPTION:
        buf_puts(b, f->short_description ? f->short_description : "");
        break;
    case KEY_NAME:
        buf_puts(b, f->name);
        break;
    case KEY_TYPE:
        buf_puts(b, feature_type_name(f));
        break;
    case KEY_KEY_TYPE:
        buf_puts(b, dict_key);
        break;
    case KEY_END:
        break;
    }
}

static void put_feature(struct json_out *j, const struct mil_feature *f)
{
    static const char *const names[] = {"hasShapeFlexibility",
                                        "isOptional",
                                        "dataType",
                                        "formattedType",
                                        "shortDescription",
                                        "shape",
                                        "name",
                                        "type",
                                        "shapeFlexibility",
                                        "shapeRange",
                                        "enumeratedShapes",
                                        "keyType"};
    bool is_array = f->kind == MIL_FEATURE_ARRAY || f->kind == MIL_FEATURE_STATE;
    const enum feature_key *keys = f->kind == MIL_FEATURE_DICT ? keys_dict
                                   : !is_array                 ? keys_plain
                                   : f->n_enumerated > 0       ? keys_enumerated
                                   : f->n_ranges > 0           ? keys_range
                                                               : keys_fixed;
    struct buf value;

    buf_init(&value, j->out->max_bytes);
    put_line(j);
    put_open(j, '{');
    for (; *keys != KEY_END; keys++) {
        buf_clear(&value);
        put_feature_value(&value, f, *keys);
        put_pair(j, names[*keys], value.n > 0 ? value.p : "");
    }
    put_close(j, '}');
    buf_fini(&value);
}

static void put_schema(struct json_out *j, const struct mil_feature *features, int n)
{
    put_open(j, '[');
    for (int i = 0; i < n; i++)
        put_feature(j, &features[i]);
    put_close(j, ']');
}

/* ---- the whole ---- */

struct metadata {
    const struct mil_model *m;
    const char *class_name;
    const struct mil_function *f;             /* the default function */
    const struct mil_function_description *d; /* its description */
    struct precision_set storage;
};

static void put_compute_precision(struct json_out *j, const struct mil_function *f)
{
    struct precision_set s = {.n = 0};

    if (f->block)
        precisions_computed(f->block, &s);
    put_set(j->out, &s);
}

static void put_function(struct json_out *j, const struct mil_function *f,
                         const struct mil_function_description *d)
{
    put_line(j);
    put_open(j, '{');
    put_key(j, "computePrecision");
    put_compute_precision(j, f);
    put_key(j, "outputSchema");
    put_schema(j, d->outputs, d->n_outputs);
    put_key(j, "stateSchema");
    put_schema(j, d->states, d->n_states);
    put_pair(j, "name", f->name);
    put_key(j, "mlProgramOperationTypeHistogram");
    put_histogram(j, f);
    put_key(j, "inputSchema");
    put_schema(j, d->inputs, d->n_inputs);
    put_close(j, '}');
}

static void put_functions(struct json_out *j, const struct metadata *md)
{
    const struct mil_description *d = &md->m->description;

    put_open(j, '[');
    for (int i = 0; i < d->n_functions; i++)
        put_function(j, mil_function_find(md->m, d->functions[i].name), &d->functions[i]);
    put_close(j, ']');
}

static void put_availability(struct json_out *j, int specification_version)
{
    /* macOS, iOS (and tvOS, macCatalyst), watchOS, visionOS */
    static const char *const versions[][4] = {{"12.0", "15.0", "8.0", "1.0"},
                                              {"13.0", "16.0", "9.0", "1.0"},
                                              {"14.0", "17.0", "10.0", "1.0"},
                                              {"15.0", "18.0", "11.0", "2.0"},
                                              {"16.0", "19.0", "12.0", "3.0"}};
    int i = specification_version < 6 ? 0 : specification_version > 10 ? 4 : specification_version - 6;

    put_open(j, '{');
    put_pair(j, "macOS", versions[i][0]);
    put_pair(j, "tvOS", versions[i][1]);
    put_pair(j, "visionOS", versions[i][3]);
    put_pair(j, "watchOS", versions[i][2]);
    put_pair(j, "iOS", versions[i][1]);
    put_pair(j, "macCatalyst", versions[i][1]);
    put_close(j, '}');
}

static void put_optional(struct json_out *j, const char *key, const char *value)
{
    if (value && value[0])
        put_pair(j, key, value);
}

static void put_user_defined(struct json_out *j, const struct mil_description *d)
{
    put_open(j, '{');
    for (int i = 0; i < d->n_user_defined; i++)
        put_pair(j, d->user_defined[i].key, d->user_defined[i].value);
    put_close(j, '}');
}

static void put_class_name(struct buf *out, const char *name)
{
    buf_putc(out, '"');
    for (; *name; name++) {
        char c = *name;
        bool kept = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        buf_putc(out, kept ? c : '_');
    }
    buf_putc(out, '"');
}

static void put_top_key(struct json_out *j, const char *key, const struct metadata *md)
{
    const struct mil_description *d = &md->m->description;

    if (strcmp(key, "shortDescription") == 0) {
        put_optional(j, key, d->short_description);
    } else if (strcmp(key, "version") == 0) {
        put_optional(j, key, d->version);
    } else if (strcmp(key, "author") == 0) {
        put_optional(j, key, d->author);
    } else if (strcmp(key, "license") == 0) {
        put_optional(j, key, d->license);
    } else if (strcmp(key, "metadataOutputVersion") == 0) {
        put_pair(j, key, "3.0");
    } else if (strcmp(key, "storagePrecision") == 0) {
        if (md->storage.n > 0) {
            put_key(j, key);
            put_set(j->out, &md->storage);
        }
    } else if (strcmp(key, "functions") == 0) {
        if (d->has_functions) {
            put_key(j, key);
            put_functions(j, md);
        }
    } else if (strcmp(key, "defaultFunctionName") == 0) {
        if (d->has_functions)
            put_pair(j, key, mil_default_function_name(md->m));
    } else {
        put_key(j, key);
        if (strcmp(key, "outputSchema") == 0) {
            put_schema(j, md->d->outputs, md->d->n_outputs);
        } else if (strcmp(key, "inputSchema") == 0) {
            put_schema(j, md->d->inputs, md->d->n_inputs);
        } else if (strcmp(key, "stateSchema") == 0) {
            put_schema(j, md->d->states, md->d->n_states);
        } else if (strcmp(key, "modelParameters") == 0) {
            put_open(j, '[');
            put_close(j, ']');
        } else if (strcmp(key, "specificationVersion") == 0) {
            buf_printf(j->out, "%d", md->m->specification_version);
        } else if (strcmp(key, "mlProgramOperationTypeHistogram") == 0) {
            put_histogram(j, md->f);
        } else if (strcmp(key, "computePrecision") == 0) {
            put_compute_precision(j, md->f);
        } else if (strcmp(key, "isUpdatable") == 0) {
            put_text(j->out, md->m->is_updatable ? "1" : "0");
        } else if (strcmp(key, "availability") == 0) {
            put_availability(j, md->m->specification_version);
        } else if (strcmp(key, "modelType") == 0) {
            put_open(j, '{');
            put_pair(j, "name", "MLModelType_mlProgram");
            put_close(j, '}');
        } else if (strcmp(key, "userDefinedMetadata") == 0) {
            put_user_defined(j, d);
        } else if (strcmp(key, "generatedClassName") == 0) {
            put_class_name(j->out, md->class_name);
        } else {
            put_text(j->out, "predict"); /* method */
        }
    }
}

/* Every function of the description is in the program. */
static bool find_functions(struct metadata *md, struct err *e)
{
    const struct mil_description *d = &md->m->description;
    const char *name = mil_default_function_name(md->m);

    for (int i = 0; d->has_functions && i < d->n_functions; i++)
        if (!d->functions[i].name || !mil_function_find(md->m, d->functions[i].name))
            return err_set(e, ERR_FORMAT,
                           "the description has a function \"%.100s\", the program has none of that name",
                           d->functions[i].name ? d->functions[i].name : "");
    md->f = mil_function_find(md->m, name);
    md->d = mil_function_description_find(md->m, name);
    if (!md->f || !md->d)
        return err_set(e, ERR_FORMAT, "the default function \"%.100s\" is not in the %s", name,
                       md->f ? "description" : "program");
    return true;
}

bool mil_metadata_write(const struct mil_model *m, const char *class_name, struct buf *out, struct err *e)
{
    static const char *const described[] = {"shortDescription",
                                            "metadataOutputVersion",
                                            "outputSchema",
                                            "version",
                                            "modelParameters",
                                            "author",
                                            "license",
                                            "specificationVersion",
                                            "storagePrecision",
                                            "functions",
                                            "mlProgramOperationTypeHistogram",
                                            "computePrecision",
                                            "stateSchema",
                                            "isUpdatable",
                                            "availability",
                                            "modelType",
                                            "inputSchema",
                                            "defaultFunctionName",
                                            "userDefinedMetadata",
                                            "generatedClassName",
                                            "method",
                                            NULL};
    static const char *const several[] = {"metadataOutputVersion",
                                          "storagePrecision",
                                          "outputSchema",
                                          "modelParameters",
                                          "specificationVersion",
                                          "functions",
                                          "mlProgramOperationTypeHistogram",
                                          "isUpdatable",
                                          "stateSchema",
                                          "availability",
                                          "computePrecision",
                                          "modelType",
                                          "inputSchema",
                                          "defaultFunctionName",
                                          "generatedClassName",
                                          "userDefinedMetadata",
                                          "method",
                                          NULL};
    static const char *const plain[] = {"metadataOutputVersion",
                                        "storagePrecision",
                                        "outputSchema",
                                        "modelParameters",
                                        "specificationVersion",
                                        "mlProgramOperationTypeHistogram",
                                        "computePrecision",
                                        "isUpdatable",
                                        "stateSchema",
                                        "availability",
                                        "modelType",
                                        "userDefinedMetadata",
                                        "inputSchema",
                                        "generatedClassName",
                                        "method",
                                        NULL};
    const struct mil_description *d = &m->description;
    struct metadata md = {.m = m, .class_name = class_name};
    struct json_out j = {.out = out, .first = true};
    const char *const *keys = plain;

    if (!find_functions(&md, e))
        return false;
    for (int i = 0; i < m->program->n_functions; i++)
        if (m->program->functions[i]->block)
            precisions_stored(m->program->functions[i]->block, &md.storage);
    if ((d->short_description && d->short_description[0]) || (d->version && d->version[0]) ||
        (d->author && d->author[0]) || (d->license && d->license[0]))
        keys = described;
    else if (d->has_functions)
        keys = several;
    put_open(&j, '[');
    put_line(&j);
    put_open(&j, '{');
    for (; *keys; keys++)
        put_top_key(&j, *keys, &md);
    put_close(&j, '}');
    put_close(&j, ']');
    if (out->failed)
        return err_set(e, ERR_LIMIT, "metadata.json is longer than %zu bytes", out->max_bytes);
    return true;
}
