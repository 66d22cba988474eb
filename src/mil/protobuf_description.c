/* The model description (inputs, outputs, states, metadata) between protobuf and struct mil_description.
 *
 * What was read is kept as packed bytes too, as compiled models hold it: known fields in ascending order,
 * unknown ones behind them, metadata always there. A description built in memory is packed from the struct.
 */
#include "mil/protobuf.h"

#include <string.h>

#include "mil/protobuf_internal.h"

/* ArrayDataType numbers */
static const struct {
    enum mil_dtype dtype;
    int number;
} array_types[] = {
    {MIL_FP32, 65568}, {MIL_FP16, 65552}, {MIL_FP64, 65600}, {MIL_INT32, 131104}, {MIL_INT8, 131080},
};

/* ---- reading ---- */

static bool shape_read(struct arena *a, const int64_t **out, size_t n, const int64_t *shape, struct err *e)
{
    int64_t *copy;
    if (n > MIL_RANK_MAX)
        return err_set(e, ERR_LIMIT, "a shape of rank %zu, at most %d are supported", n, MIL_RANK_MAX);
    copy = ARENA_ARRAY(a, int64_t, n);
    for (size_t i = 0; i < n; i++) {
        if (shape[i] < 0)
            return err_set(e, ERR_FORMAT, "impossible dimension %lld", (long long)shape[i]);
        copy[i] = shape[i];
    }
    *out = copy;
    return true;
}

static bool enumerated_read(struct arena *a, struct mil_feature *f, const MilkitPb__EnumeratedShapes *p,
                            struct err *e)
{
    const int64_t **shapes = arena_try_alloc(a, p->n_shapes, sizeof *shapes, e);
    int *ranks = shapes ? arena_try_alloc(a, p->n_shapes, sizeof *ranks, e) : NULL;
    if (!ranks)
        return false;
    for (size_t i = 0; i < p->n_shapes; i++) {
        if (!shape_read(a, &shapes[i], p->shapes[i]->n_shape, p->shapes[i]->shape, e))
            return false;
        ranks[i] = (int)p->shapes[i]->n_shape;
    }
    f->n_enumerated = (int)p->n_shapes;
    f->enumerated = shapes;
    f->enumerated_ranks = ranks;
    return true;
}

static bool ranges_read(struct arena *a, struct mil_feature *f, const MilkitPb__ShapeRanges *p, struct err *e)
{
    struct mil_range *ranges;
    if (p->n_ranges > MIL_RANK_MAX)
        return err_set(e, ERR_LIMIT, "ranges of rank %zu, at most %d are supported", p->n_ranges,
                       MIL_RANK_MAX);
    if (f->rank > 0 && p->n_ranges > 0 && (size_t)f->rank != p->n_ranges)
        return err_set(e, ERR_FORMAT, "%zu ranges for a shape of rank %d", p->n_ranges, f->rank);
    ranges = ARENA_ARRAY(a, struct mil_range, p->n_ranges);
    for (size_t i = 0; i < p->n_ranges; i++) {
        uint64_t lower = p->ranges[i]->lower;
        int64_t upper = p->ranges[i]->upper;
        if (lower > INT64_MAX || (upper >= 0 && (uint64_t)upper < lower))
            return err_set(e, ERR_FORMAT, "impossible range %llu to %lld", (unsigned long long)lower,
                           (long long)upper);
        ranges[i].lower = (int64_t)lower;
        ranges[i].upper = upper < 0 ? -1 : upper;
    }
    f->n_ranges = (int)p->n_ranges;
    f->ranges = ranges;
    return true;
}

static bool array_read(struct arena *a, struct mil_feature *f, const MilkitPb__ArrayType *p, struct err *e)
{
    if (!p)
        return err_set(e, ERR_FORMAT, "the array type is missing");
    for (size_t i = 0; i < sizeof array_types / sizeof array_types[0]; i++)
        if (array_types[i].number == p->data_type)
            f->dtype = array_types[i].dtype;
    if (f->dtype == MIL_DTYPE_NONE)
        return err_set(e, ERR_UNSUPPORTED, "unknown array element type %d", p->data_type);
    if (!shape_read(a, &f->shape, p->n_shape, p->shape, e))
        return false;
    f->rank = (int)p->n_shape;
    f->default_value =
        p->default_value_case == MILKIT_PB__ARRAY_TYPE__DEFAULT_VALUE_INT_DEFAULT ? p->int_default
        : p->default_value_case == MILKIT_PB__ARRAY_TYPE__DEFAULT_VALUE_FLOAT_DEFAULT
            ? (double)p->float_default
        : p->default_value_case == MILKIT_PB__ARRAY_TYPE__DEFAULT_VALUE_DOUBLE_DEFAULT ? p->double_default
                                                                                       : 0;
    if (p->flexibility_case == MILKIT_PB__ARRAY_TYPE__FLEXIBILITY_ENUMERATED)
        return enumerated_read(a, f, p->enumerated, e);
    if (p->flexibility_case == MILKIT_PB__ARRAY_TYPE__FLEXIBILITY_RANGES)
        return ranges_read(a, f, p->ranges, e);
    return true;
}

/* The tensor that an image of this size is. */
static bool image_shape(struct arena *a, const int64_t **out, const struct mil_feature *f, uint64_t width,
                        uint64_t height, struct err *e)
{
    if (width > INT32_MAX || height > INT32_MAX)
        return err_set(e, ERR_FORMAT, "impossible image of %llu x %llu", (unsigned long long)width,
                       (unsigned long long)height);
    bool has_colors = f->color == MIL_COLOR_RGB || f->color == MIL_COLOR_BGR;
    const int64_t shape[4] = {1, has_colors ? 3 : 1, (int64_t)height, (int64_t)width};
    *out = arena_copy(a, shape, sizeof shape);
    return true;
}

static bool image_ranges_read(struct arena *a, struct mil_feature *f, const MilkitPb__ImageSizeRange *p,
                              struct err *e)
{
    MilkitPb__SizeRange fixed[2] = {MILKIT_PB__SIZE_RANGE__INIT, MILKIT_PB__SIZE_RANGE__INIT};
    MilkitPb__SizeRange *axes[4] = {&fixed[0], &fixed[1], p->height, p->width};
    MilkitPb__ShapeRanges ranges = MILKIT_PB__SHAPE_RANGES__INIT;
    if (!p->height || !p->width)
        return err_set(e, ERR_FORMAT, "a range of image sizes without width or height");
    for (int i = 0; i < 2; i++) {
        fixed[i].lower = (uint64_t)f->shape[i];
        fixed[i].upper = f->shape[i];
    }
    ranges.n_ranges = 4;
    ranges.ranges = axes;
    return ranges_read(a, f, &ranges, e);
}

static bool image_read(struct arena *a, struct mil_feature *f, const MilkitPb__ImageType *p, struct err *e)
{
    f->color = p->color_space == 10   ? MIL_COLOR_GRAY
               : p->color_space == 20 ? MIL_COLOR_RGB
               : p->color_space == 30 ? MIL_COLOR_BGR
               : p->color_space == 40 ? MIL_COLOR_GRAY_FP16
                                      : MIL_COLOR_NONE;
    if (f->color == MIL_COLOR_NONE)
        return err_set(e, ERR_UNSUPPORTED, "unknown colour layout %d of an image", p->color_space);
    f->rank = 4;
    if (!image_shape(a, &f->shape, f, (uint64_t)p->width, (uint64_t)p->height, e))
        return false;
    if (p->flexibility_case == MILKIT_PB__IMAGE_TYPE__FLEXIBILITY_RANGE)
        return image_ranges_read(a, f, p->range, e);
    if (p->flexibility_case != MILKIT_PB__IMAGE_TYPE__FLEXIBILITY_ENUMERATED)
        return true;
    size_t n = p->enumerated->n_sizes;
    const int64_t **shapes = arena_try_alloc(a, n, sizeof *shapes, e);
    int *ranks = shapes ? arena_try_alloc(a, n, sizeof *ranks, e) : NULL;
    bool ok = ranks != NULL;
    for (size_t i = 0; ok && i < n; i++) {
        const MilkitPb__ImageSize *size = p->enumerated->sizes[i];
        ranks[i] = 4;
        ok = image_shape(a, &shapes[i], f, size->width, size->height, e);
    }
    f->n_enumerated = ok ? (int)n : 0;
    f->enumerated = shapes;
    f->enumerated_ranks = ranks;
    return ok;
}

static bool feature_read(struct arena *a, struct mil_feature *f, const MilkitPb__Feature *p, struct err *e)
{
    const MilkitPb__FeatureType *t = p->type;

    f->name = arena_strdup(a, p->name);
    f->short_description = arena_strdup(a, p->short_description);
    f->kind = MIL_FEATURE_NONE;
    if (!t)
        return true;
    f->is_optional = t->is_optional;
    switch (t->kind_case) {
    case MILKIT_PB__FEATURE_TYPE__KIND_INT64_TYPE:
        f->kind = MIL_FEATURE_INT64;
        return true;
    case MILKIT_PB__FEATURE_TYPE__KIND_DOUBLE_TYPE:
        f->kind = MIL_FEATURE_DOUBLE;
        return true;
    case MILKIT_PB__FEATURE_TYPE__KIND_STRING_TYPE:
        f->kind = MIL_FEATURE_STRING;
        return true;
    case MILKIT_PB__FEATURE_TYPE__KIND_IMAGE_TYPE:
        f->kind = MIL_FEATURE_IMAGE;
        return image_read(a, f, t->image_type, e);
    case MILKIT_PB__FEATURE_TYPE__KIND_SEQUENCE_TYPE:
        f->kind = MIL_FEATURE_SEQUENCE;
        return true;
    case MILKIT_PB__FEATURE_TYPE__KIND_ARRAY_TYPE:
        f->kind = MIL_FEATURE_ARRAY;
        return array_read(a, f, t->array_type, e);
    case MILKIT_PB__FEATURE_TYPE__KIND_STATE_TYPE:
        f->kind = MIL_FEATURE_STATE;
        return array_read(a, f, t->state_type->array_type, e);
    case MILKIT_PB__FEATURE_TYPE__KIND_DICT_TYPE:
        f->kind = MIL_FEATURE_DICT;
        f->dict_key_is_int64 = t->dict_type->key_case == MILKIT_PB__DICT_TYPE__KEY_INT64_KEY;
        return true;
    default:
        return true;
    }
}

static bool features_read(struct arena *a, struct mil_feature **out, int *n_out, size_t n,
                          MilkitPb__Feature **p, struct err *e)
{
    struct mil_feature *f = arena_try_alloc(a, n, sizeof *f, e);
    if (!f)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!feature_read(a, &f[i], p[i], e))
            return err_wrap(e, "description of \"%.200s\"", p[i]->name);
    *out = f;
    *n_out = (int)n;
    return true;
}

/* NULL for an absent name, as callers compare with NULL. */
static const char *text_or_null(struct arena *a, const char *s)
{
    return s[0] ? arena_strdup(a, s) : NULL;
}

static bool function_description_read(struct arena *a, struct mil_function_description *f,
                                      const MilkitPb__FunctionDescription *p, struct err *e)
{
    f->name = arena_strdup(a, p->name);
    f->predicted_feature_name = text_or_null(a, p->predicted_feature_name);
    f->predicted_probabilities_name = text_or_null(a, p->predicted_probabilities_name);
    if (!features_read(a, &f->inputs, &f->n_inputs, p->n_inputs, p->inputs, e) ||
        !features_read(a, &f->outputs, &f->n_outputs, p->n_outputs, p->outputs, e) ||
        !features_read(a, &f->states, &f->n_states, p->n_states, p->states, e))
        return err_wrap(e, "function %.200s", f->name);
    return true;
}

static bool functions_read(struct arena *a, struct mil_description *d, const MilkitPb__Description *p,
                           struct err *e)
{
    if (p->n_functions > 0) {
        if (p->n_inputs || p->n_outputs || p->n_states)
            return err_set(e, ERR_FORMAT,
                           "the description has both a function table and features of its own");
        d->has_functions = true;
        d->functions = arena_try_alloc(a, p->n_functions, sizeof *d->functions, e);
        if (!d->functions)
            return false;
        for (size_t i = 0; i < p->n_functions; i++)
            if (!function_description_read(a, &d->functions[i], p->functions[i], e))
                return false;
        d->n_functions = (int)p->n_functions;
        d->default_function_name = text_or_null(a, p->default_function_name);
        return true;
    }
    struct mil_function_description *f = d->functions = ARENA_NEW(a, struct mil_function_description);
    d->n_functions = 1;
    f->predicted_feature_name = text_or_null(a, p->predicted_feature_name);
    f->predicted_probabilities_name = text_or_null(a, p->predicted_probabilities_name);
    return features_read(a, &f->inputs, &f->n_inputs, p->n_inputs, p->inputs, e) &&
           features_read(a, &f->outputs, &f->n_outputs, p->n_outputs, p->outputs, e) &&
           features_read(a, &f->states, &f->n_states, p->n_states, p->states, e);
}

static bool metadata_read(struct arena *a, struct mil_description *d, const MilkitPb__Metadata *p,
                          struct err *e)
{
    size_t n = p->n_user_defined;

    d->short_description = arena_strdup(a, p->short_description);
    d->version = arena_strdup(a, p->version);
    d->author = arena_strdup(a, p->author);
    d->license = arena_strdup(a, p->license);
    d->user_defined = arena_try_alloc(a, n, sizeof *d->user_defined, e);
    if (!d->user_defined)
        return false;
    for (size_t i = 0; i < n; i++) {
        d->user_defined[i].key = arena_strdup(a, p->user_defined[i]->key);
        d->user_defined[i].value = arena_strdup(a, p->user_defined[i]->value);
    }
    d->n_user_defined = (int)n;
    return true;
}

static bool bytes_keep(struct arena *a, struct mil_description *d, const MilkitPb__Description *p,
                       struct err *e)
{
    size_t n = protobuf_c_message_get_packed_size(&p->base);
    uint8_t *bytes = arena_try_alloc(a, n, 1, e);
    if (!bytes)
        return false;
    protobuf_c_message_pack(&p->base, bytes);
    d->bytes = bytes;
    d->n_bytes = n;
    return true;
}

bool description_from_message(struct mil_model *m, MilkitPb__Description *p, const char *where, struct err *e)
{
    struct mil_description d = {.short_description = "", .version = "", .author = "", .license = ""};
    MilkitPb__Metadata metadata = MILKIT_PB__METADATA__INIT;

    if (!p->metadata)
        p->metadata = &metadata;
    bool ok = functions_read(m->arena, &d, p, e) && metadata_read(m->arena, &d, p->metadata, e) &&
              bytes_keep(m->arena, &d, p, e);
    if (p->metadata == &metadata)
        p->metadata = NULL;
    if (!ok)
        return err_wrap(e, "%s", where);
    m->description = d;
    return true;
}

bool mil_description_read(struct mil_model *m, const uint8_t *data, size_t bytes, const char *where,
                          struct err *e)
{
    ProtobufCMessage *message = NULL;
    struct arena *arena = NULL;
    bool ok = wire_unpack(&message, &arena, &milkit_pb__description__descriptor, data, bytes, where, e) &&
              description_from_message(m, (MilkitPb__Description *)message, where, e);
    arena_free(arena);
    return ok;
}

/* ---- writing ---- */

/* A new message in the arena, from its generated initial value. */
#define MESSAGE_NEW(a, type, initial) ((type *)arena_copy((a), &(const type)initial, sizeof(type)))

/* Messages are packed only, so the texts in them are never changed; protobuf-c's structs lack the const. */
static char *text(const char *s)
{
    return (char *)(s ? s : "");
}

static MilkitPb__ArrayType *array_write(struct arena *a, const struct mil_feature *f, struct err *e)
{
    MilkitPb__ArrayType *p = MESSAGE_NEW(a, MilkitPb__ArrayType, MILKIT_PB__ARRAY_TYPE__INIT);
    for (size_t i = 0; i < sizeof array_types / sizeof array_types[0]; i++)
        if (array_types[i].dtype == f->dtype)
            p->data_type = array_types[i].number;
    if (!p->data_type) {
        err_set(e, ERR_BUG, "feature \"%s\" of type %s, which no array can have", f->name,
                mil_dtype_name(f->dtype));
        return NULL;
    }
    p->n_shape = (size_t)f->rank;
    p->shape = (int64_t *)f->shape;
    if (f->n_enumerated) {
        p->flexibility_case = MILKIT_PB__ARRAY_TYPE__FLEXIBILITY_ENUMERATED;
        p->enumerated = MESSAGE_NEW(a, MilkitPb__EnumeratedShapes, MILKIT_PB__ENUMERATED_SHAPES__INIT);
        p->enumerated->n_shapes = (size_t)f->n_enumerated;
        p->enumerated->shapes = ARENA_ARRAY(a, MilkitPb__Shape *, f->n_enumerated);
        for (int i = 0; i < f->n_enumerated; i++) {
            MilkitPb__Shape *s = MESSAGE_NEW(a, MilkitPb__Shape, MILKIT_PB__SHAPE__INIT);
            s->n_shape = (size_t)f->enumerated_ranks[i];
            s->shape = (int64_t *)f->enumerated[i];
            p->enumerated->shapes[i] = s;
        }
    } else if (f->n_ranges) {
        p->flexibility_case = MILKIT_PB__ARRAY_TYPE__FLEXIBILITY_RANGES;
        p->ranges = MESSAGE_NEW(a, MilkitPb__ShapeRanges, MILKIT_PB__SHAPE_RANGES__INIT);
        p->ranges->n_ranges = (size_t)f->n_ranges;
        p->ranges->ranges = ARENA_ARRAY(a, MilkitPb__SizeRange *, f->n_ranges);
        for (int i = 0; i < f->n_ranges; i++) {
            MilkitPb__SizeRange *s = MESSAGE_NEW(a, MilkitPb__SizeRange, MILKIT_PB__SIZE_RANGE__INIT);
            s->lower = (uint64_t)f->ranges[i].lower;
            s->upper = f->ranges[i].upper;
            p->ranges->ranges[i] = s;
        }
    }
    return p;
}

static bool feature_type_write(struct arena *a, MilkitPb__FeatureType *t, const struct mil_feature *f,
                               struct err *e)
{
    MilkitPb__Opaque *empty = MESSAGE_NEW(a, MilkitPb__Opaque, MILKIT_PB__OPAQUE__INIT);

    t->is_optional = f->is_optional;
    switch (f->kind) {
    case MIL_FEATURE_INT64:
        t->kind_case = MILKIT_PB__FEATURE_TYPE__KIND_INT64_TYPE;
        t->int64_type = empty;
        return true;
    case MIL_FEATURE_DOUBLE:
        t->kind_case = MILKIT_PB__FEATURE_TYPE__KIND_DOUBLE_TYPE;
        t->double_type = empty;
        return true;
    case MIL_FEATURE_STRING:
        t->kind_case = MILKIT_PB__FEATURE_TYPE__KIND_STRING_TYPE;
        t->string_type = empty;
        return true;
    case MIL_FEATURE_DICT:
        t->kind_case = MILKIT_PB__FEATURE_TYPE__KIND_DICT_TYPE;
        t->dict_type = MESSAGE_NEW(a, MilkitPb__DictType, MILKIT_PB__DICT_TYPE__INIT);
        t->dict_type->key_case =
            f->dict_key_is_int64 ? MILKIT_PB__DICT_TYPE__KEY_INT64_KEY : MILKIT_PB__DICT_TYPE__KEY_STRING_KEY;
        t->dict_type->int64_key = empty;
        return true;
    case MIL_FEATURE_ARRAY:
        t->kind_case = MILKIT_PB__FEATURE_TYPE__KIND_ARRAY_TYPE;
        t->array_type = array_write(a, f, e);
        return t->array_type != NULL;
    case MIL_FEATURE_STATE:
        t->kind_case = MILKIT_PB__FEATURE_TYPE__KIND_STATE_TYPE;
        t->state_type = MESSAGE_NEW(a, MilkitPb__StateFeature, MILKIT_PB__STATE_FEATURE__INIT);
        t->state_type->array_type = array_write(a, f, e);
        return t->state_type->array_type != NULL;
    default:
        return err_set(e, ERR_UNSUPPORTED, "feature \"%s\" of a kind that can't be written", f->name);
    }
}

static bool features_write(struct arena *a, MilkitPb__Feature ***out, size_t *n_out,
                           const struct mil_feature *f, int n, struct err *e)
{
    MilkitPb__Feature **p = ARENA_ARRAY(a, MilkitPb__Feature *, n);
    for (int i = 0; i < n; i++) {
        p[i] = MESSAGE_NEW(a, MilkitPb__Feature, MILKIT_PB__FEATURE__INIT);
        p[i]->name = text(f[i].name);
        p[i]->short_description = text(f[i].short_description);
        p[i]->type = MESSAGE_NEW(a, MilkitPb__FeatureType, MILKIT_PB__FEATURE_TYPE__INIT);
        if (!feature_type_write(a, p[i]->type, &f[i], e))
            return false;
    }
    *out = p;
    *n_out = (size_t)n;
    return true;
}

static bool functions_write(struct arena *a, MilkitPb__Description *p, const struct mil_description *d,
                            struct err *e)
{
    if (!d->has_functions) {
        const struct mil_function_description *f = d->functions;
        if (d->n_functions != 1)
            return err_set(e, ERR_BUG, "%d function descriptions without a function table", d->n_functions);
        p->predicted_feature_name = text(f->predicted_feature_name);
        p->predicted_probabilities_name = text(f->predicted_probabilities_name);
        return features_write(a, &p->inputs, &p->n_inputs, f->inputs, f->n_inputs, e) &&
               features_write(a, &p->outputs, &p->n_outputs, f->outputs, f->n_outputs, e) &&
               features_write(a, &p->states, &p->n_states, f->states, f->n_states, e);
    }
    p->default_function_name = text(d->default_function_name);
    p->n_functions = (size_t)d->n_functions;
    p->functions = ARENA_ARRAY(a, MilkitPb__FunctionDescription *, d->n_functions);
    for (int i = 0; i < d->n_functions; i++) {
        const struct mil_function_description *f = &d->functions[i];
        MilkitPb__FunctionDescription *q =
            MESSAGE_NEW(a, MilkitPb__FunctionDescription, MILKIT_PB__FUNCTION_DESCRIPTION__INIT);
        p->functions[i] = q;
        q->name = text(f->name);
        q->predicted_feature_name = text(f->predicted_feature_name);
        q->predicted_probabilities_name = text(f->predicted_probabilities_name);
        if (!features_write(a, &q->inputs, &q->n_inputs, f->inputs, f->n_inputs, e) ||
            !features_write(a, &q->outputs, &q->n_outputs, f->outputs, f->n_outputs, e) ||
            !features_write(a, &q->states, &q->n_states, f->states, f->n_states, e))
            return false;
    }
    return true;
}

static MilkitPb__Metadata *metadata_write(struct arena *a, const struct mil_description *d)
{
    MilkitPb__Metadata *p = MESSAGE_NEW(a, MilkitPb__Metadata, MILKIT_PB__METADATA__INIT);
    p->short_description = text(d->short_description);
    p->version = text(d->version);
    p->author = text(d->author);
    p->license = text(d->license);
    p->n_user_defined = (size_t)d->n_user_defined;
    p->user_defined = ARENA_ARRAY(a, MilkitPb__TextEntry *, d->n_user_defined);
    for (int i = 0; i < d->n_user_defined; i++) {
        p->user_defined[i] = MESSAGE_NEW(a, MilkitPb__TextEntry, MILKIT_PB__TEXT_ENTRY__INIT);
        p->user_defined[i]->key = text(d->user_defined[i].key);
        p->user_defined[i]->value = text(d->user_defined[i].value);
    }
    return p;
}

bool mil_description_write(const struct mil_model *m, struct buf *out, struct err *e)
{
    const struct mil_description *d = &m->description;
    MilkitPb__Description p = MILKIT_PB__DESCRIPTION__INIT;
    struct arena *a;
    bool ok;

    if (d->bytes) {
        buf_append(out, d->bytes, d->n_bytes);
        return out->failed ? err_set(e, ERR_LIMIT, "the description is over %zu bytes", out->max_bytes)
                           : true;
    }
    a = arena_new(0);
    p.metadata = metadata_write(a, d);
    ok = functions_write(a, &p, d, e) && wire_pack(&p.base, out, e);
    arena_free(a);
    return ok;
}
