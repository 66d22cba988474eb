/* safetensors: opening, checking and reading files, single or sharded. Everything a header says is checked
 * here, so that a tensor handed out can be read without further checks. */
#include "format/safetensors.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/half.h"
#include "format/json.h"
#include "format/safetensors_internal.h"

#define HEADER_BYTES_MAX ((uint64_t)100 << 20)
/* Some writers align the data of tensors; a longer hole hides data that no tensor describes. */
#define HOLE_BYTES_MAX 64
/* Beyond 2^53 a number of the header would have lost digits in cJSON. */
#define NUMBER_MAX 9007199254740992.0

static const struct {
    const char *name;
    size_t bytes;
} dtypes[] = {
    [ST_UNKNOWN] = {"unknown", 0}, [ST_BOOL] = {"BOOL", 1},       [ST_U8] = {"U8", 1},
    [ST_I8] = {"I8", 1},           [ST_F8_E4M3] = {"F8_E4M3", 1}, [ST_F8_E5M2] = {"F8_E5M2", 1},
    [ST_I16] = {"I16", 2},         [ST_U16] = {"U16", 2},         [ST_F16] = {"F16", 2},
    [ST_BF16] = {"BF16", 2},       [ST_I32] = {"I32", 4},         [ST_U32] = {"U32", 4},
    [ST_F32] = {"F32", 4},         [ST_F64] = {"F64", 8},         [ST_I64] = {"I64", 8},
    [ST_U64] = {"U64", 8},
};
#define N_DTYPES (sizeof dtypes / sizeof *dtypes)

const char *st_dtype_name(enum st_dtype d)
{
    return (size_t)d < N_DTYPES ? dtypes[d].name : "unknown";
}

size_t st_dtype_bytes(enum st_dtype d)
{
    return (size_t)d < N_DTYPES ? dtypes[d].bytes : 0;
}

static enum st_dtype dtype_find(const char *name)
{
    for (size_t i = ST_BOOL; i < N_DTYPES; i++)
        if (strcmp(dtypes[i].name, name) == 0)
            return (enum st_dtype)i;
    return ST_UNKNOWN;
}

void st_shape_text(char dst[128], const int64_t *shape, int rank)
{
    size_t n = 0, size = 128;
    dst[n++] = '[';
    for (int i = 0; i < rank; i++) {
        int written = snprintf(dst + n, size - n, "%s%lld", i ? ", " : "", (long long)shape[i]);
        if (written < 0 || (size_t)written >= size - n - 5) {
            n = (size_t)snprintf(dst + n, size - n, "...") + n;
            break;
        }
        n += (size_t)written;
    }
    snprintf(dst + n, size - n, "]");
}

/* ---- one header entry ---- */

/* A whole number of the header, within what a double holds exactly. */
static bool get_number(const cJSON *item, uint64_t *value)
{
    double d = cJSON_IsNumber(item) ? item->valuedouble : -1.0;
    if (!(d >= 0.0 && d <= NUMBER_MAX) || d != floor(d))
        return false;
    *value = (uint64_t)d;
    return true;
}

static bool parse_shape(struct st_tensor *t, const cJSON *shape, struct err *e)
{
    if (!cJSON_IsArray(shape))
        return err_set(e, ERR_FORMAT, "%s: tensor %s: shape: expected an array, found %s", t->file, t->name,
                       json_type_name(shape));
    for (const cJSON *c = shape->child; c; c = c->next) {
        uint64_t n;
        if (!get_number(c, &n))
            return err_set(e, ERR_FORMAT, "%s: tensor %s: shape[%d]: expected a whole number, found %s",
                           t->file, t->name, t->rank, json_type_name(c));
        if (t->rank == SAFETENSORS_RANK_MAX)
            return err_set(e, ERR_UNSUPPORTED,
                           "%s: tensor %s: shape: expected at most %d dimensions, found %d", t->file, t->name,
                           SAFETENSORS_RANK_MAX, cJSON_GetArraySize(shape));
        t->shape[t->rank++] = (int64_t)n;
    }
    size_t n_elems = 1;
    bool fits = true;
    for (int i = 0; i < t->rank; i++)
        fits = fits && size_mul(n_elems, (size_t)t->shape[i], &n_elems) && n_elems <= INT64_MAX;
    if (!fits) {
        char text[128];
        st_shape_text(text, t->shape, t->rank);
        return err_set(e, ERR_FORMAT, "%s: tensor %s: shape %s has more elements than can be counted",
                       t->file, t->name, text);
    }
    t->n_elems = (int64_t)n_elems;
    return true;
}

static bool parse_entry(struct st_tensor *t, const cJSON *entry, const uint8_t *data, uint64_t data_bytes,
                        struct arena *arena, struct err *e)
{
    const cJSON *dtype = NULL, *shape = NULL, *offsets = NULL;
    if (!cJSON_IsObject(entry))
        return err_set(e, ERR_FORMAT, "%s: tensor %s: expected an object, found %s", t->file, t->name,
                       json_type_name(entry));
    for (const cJSON *c = entry->child; c; c = c->next) {
        const cJSON **slot = strcmp(c->string, "dtype") == 0          ? &dtype
                             : strcmp(c->string, "shape") == 0        ? &shape
                             : strcmp(c->string, "data_offsets") == 0 ? &offsets
                                                                      : NULL;
        if (!slot || *slot)
            return err_set(
                e, ERR_FORMAT,
                "%s: tensor %s: expected dtype, shape and data_offsets once each, found %s \"%.64s\"",
                t->file, t->name, slot ? "a second" : "the key", c->string);
        *slot = c;
    }
    if (!cJSON_IsString(dtype))
        return err_set(e, ERR_FORMAT, "%s: tensor %s: dtype: expected a string, found %s", t->file, t->name,
                       json_type_name(dtype));
    t->dtype = dtype_find(dtype->valuestring);
    t->dtype_name = arena_strdup(arena, dtype->valuestring);
    if (!parse_shape(t, shape, e))
        return false;

    uint64_t begin, end;
    if (!cJSON_IsArray(offsets) || cJSON_GetArraySize(offsets) != 2 || !get_number(offsets->child, &begin) ||
        !get_number(offsets->child->next, &end))
        return err_set(e, ERR_FORMAT, "%s: tensor %s: data_offsets: expected [begin, end], found %s", t->file,
                       t->name, cJSON_IsArray(offsets) ? "another array" : json_type_name(offsets));
    if (end < begin)
        return err_set(e, ERR_FORMAT,
                       "%s: tensor %s: data_offsets: expected begin <= end, found [%llu, %llu]", t->file,
                       t->name, (unsigned long long)begin, (unsigned long long)end);
    if (end > data_bytes)
        return err_set(
            e, ERR_FORMAT,
            "%s: tensor %s: expected data up to byte %llu, found only %llu bytes of data: the file is "
            "cut short or its header is wrong",
            t->file, t->name, (unsigned long long)end, (unsigned long long)data_bytes);
    size_t want;
    bool fits = size_mul((size_t)t->n_elems, st_dtype_bytes(t->dtype), &want);
    if (t->dtype != ST_UNKNOWN && (!fits || want != end - begin)) {
        char text[128];
        st_shape_text(text, t->shape, t->rank);
        return err_set(
            e, ERR_FORMAT, "%s: tensor %s: expected %zu bytes for %s %s, found %llu in data_offsets", t->file,
            t->name, fits ? want : SIZE_MAX, t->dtype_name, text, (unsigned long long)(end - begin));
    }
    t->data = data + begin;
    t->bytes = (size_t)(end - begin);
    return true;
}

/* ---- one file ---- */

static int compare_place(const void *a, const void *b)
{
    const struct st_tensor *x = *(const struct st_tensor *const *)a, *y = *(const struct st_tensor *const *)b;
    if (x->data != y->data)
        return x->data < y->data ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* The ranges of one file cover its data without overlap and without long holes. */
static bool check_ranges(const struct st_tensor *tensors, size_t n, const struct map_file *map,
                         size_t data_at, struct err *e)
{
    const uint8_t *data = map->data + data_at, *reached = data;
    const char *last = "the header";
    bool ok = true;
    const struct st_tensor **order = xmalloc(sizeof *order * (n ? n : 1));
    for (size_t i = 0; i < n; i++)
        order[i] = &tensors[i];
    qsort(order, n, sizeof *order, compare_place);
    for (size_t i = 0; i < n && ok; i++) {
        const struct st_tensor *t = order[i];
        if (t->bytes == 0)
            continue;
        if (t->data < reached)
            ok =
                err_set(e, ERR_FORMAT,
                        "%s: tensors %s and %s overlap: expected data from byte %zu on, found it at byte %zu",
                        map->path, last, t->name, (size_t)(reached - data), (size_t)(t->data - data));
        else if (t->data - reached > HOLE_BYTES_MAX)
            ok = err_set(e, ERR_FORMAT,
                         "%s: expected tensor %s right behind %s at byte %zu, found it at byte %zu",
                         map->path, t->name, last, (size_t)(reached - data), (size_t)(t->data - data));
        reached = t->data + t->bytes;
        last = t->name;
    }
    size_t rest = (size_t)(map->data + map->bytes - reached);
    if (ok && rest > HOLE_BYTES_MAX)
        ok = err_set(e, ERR_FORMAT, "%s: expected the data to end at byte %zu, found %zu more bytes",
                     map->path, (size_t)(reached - data), rest);
    free(order);
    return ok;
}

static bool add_metadata(struct st_open_set *set, const cJSON *object, const char *file, struct err *e)
{
    if (!cJSON_IsObject(object))
        return err_set(e, ERR_FORMAT, "%s: __metadata__: expected an object, found %s", file,
                       json_type_name(object));
    for (const cJSON *c = object->child; c; c = c->next) {
        if (!cJSON_IsString(c))
            return err_set(e, ERR_FORMAT, "%s: __metadata__: key \"%.64s\": expected a string, found %s",
                           file, c->string, json_type_name(c));
        struct st_metadata *pair = ARENA_NEW(set->arena, struct st_metadata);
        pair->key = arena_strdup(set->arena, c->string);
        pair->value = arena_strdup(set->arena, c->valuestring);
        *set->metadata_end = pair;
        set->metadata_end = &pair->next;
    }
    return true;
}

struct st_tensor *st_next_slot(struct st_open_set *set)
{
    set->s.tensors =
        mem_grow(set->s.tensors, (size_t)set->s.n_tensors, &set->capacity, sizeof *set->s.tensors);
    struct st_tensor *t = &set->s.tensors[set->s.n_tensors];
    memset(t, 0, sizeof *t);
    return t;
}

/* A file has no name twice; what two shards both have is told by st_name. */
static bool is_new_name(struct table *names, const struct st_tensor *t, struct err *e)
{
    return table_put(names, t->name, names) ||
           err_set(e, ERR_FORMAT, "%s: tensor %s: expected it once, found it twice", t->file, t->name);
}

static bool parse_entries(struct st_open_set *set, const struct map_file *map, const cJSON *root,
                          size_t data_at, struct table *names, struct err *e)
{
    const char *file = arena_strdup(set->arena, map->path);
    int first = set->s.n_tensors;
    bool has_metadata = false;
    if (!cJSON_IsObject(root))
        return err_set(e, ERR_FORMAT, "%s: header: expected an object, found %s", file, json_type_name(root));
    for (const cJSON *c = root->child; c; c = c->next) {
        if (strcmp(c->string, "__metadata__") == 0) {
            if (has_metadata)
                return err_set(e, ERR_FORMAT, "%s: header: expected __metadata__ once, found it twice", file);
            has_metadata = true;
            if (!add_metadata(set, c, file, e))
                return false;
            continue;
        }
        struct st_tensor *t = st_next_slot(set);
        t->name = arena_strdup(set->arena, c->string);
        t->file = file;
        if (!parse_entry(t, c, map->data + data_at, map->bytes - data_at, set->arena, e) ||
            !is_new_name(names, t, e))
            return false;
        set->s.n_tensors++;
    }
    return check_ranges(set->s.tensors + first, (size_t)(set->s.n_tensors - first), map, data_at, e);
}

void st_add_names(struct st_open_set *set, int first)
{
    for (int i = first; i < set->s.n_tensors; i++) {
        const struct st_tensor *t = &set->s.tensors[i];
        struct st_name *entry = ARENA_NEW(set->arena, struct st_name);
        entry->i_tensor = i;
        set->s.total_bytes += t->bytes;
        if (table_put(set->by_name, t->name, entry))
            continue;
        entry = table_get(set->by_name, t->name);
        if (entry->i_tensor >= 0)
            entry->why = arena_printf(set->arena, "expected it once, found it twice, in %s and in %s",
                                      set->s.tensors[entry->i_tensor].file, t->file);
        entry->i_tensor = -1;
    }
}

/* The tensors of one file join the set together or not at all. */
static bool parse_header(struct st_open_set *set, const struct map_file *map, const cJSON *root,
                         size_t data_at, struct err *e)
{
    int first = set->s.n_tensors;
    struct table *names = table_new();
    bool ok = parse_entries(set, map, root, data_at, names, e);
    table_free(names);
    if (!ok) {
        set->s.n_tensors = first;
        return false;
    }
    st_add_names(set, first);
    return true;
}

/* Consumes map in every case: on success the set owns it. */
static bool add_file(struct st_open_set *set, struct map_file *map, struct err *e)
{
    uint64_t header_bytes = 0;
    set->maps = xrealloc(set->maps, sizeof *set->maps * (size_t)(set->n_maps + 1));
    set->maps[set->n_maps++] = map;
    if (map->bytes < 8)
        return err_set(e, ERR_FORMAT, "%s: expected a safetensors file of at least 8 bytes, found %zu bytes",
                       map->path, map->bytes);
    for (int i = 0; i < 8; i++)
        header_bytes |= (uint64_t)map->data[i] << (8 * i);
    if (header_bytes > HEADER_BYTES_MAX)
        return err_set(
            e, ERR_FORMAT,
            "%s: header length: expected at most %llu bytes, found %llu: no safetensors file, or damaged",
            map->path, (unsigned long long)HEADER_BYTES_MAX, (unsigned long long)header_bytes);
    if (header_bytes > map->bytes - 8)
        return err_set(
            e, ERR_FORMAT,
            "%s: header length: expected %llu bytes of header, found a file of only %zu bytes: cut short",
            map->path, (unsigned long long)header_bytes, map->bytes);
    cJSON *root = NULL;
    char *where = xasprintf("%s: header", map->path);
    bool ok = json_parse(&root, (const char *)map->data + 8, (size_t)header_bytes, where, e) &&
              parse_header(set, map, root, 8 + (size_t)header_bytes, e);
    cJSON_Delete(root);
    free(where);
    return ok;
}

bool st_add_path(struct st_open_set *set, const char *path, struct err *e)
{
    struct map_file *map = NULL;
    return map_open(&map, path, e) && add_file(set, map, e);
}

const struct st_tensor *safetensors_find(const struct safetensors *s, const char *name)
{
    const struct st_open_set *set = (const struct st_open_set *)s;
    const struct st_name *entry = table_get(set->by_name, name);
    return entry && entry->i_tensor >= 0 ? &s->tensors[entry->i_tensor] : NULL;
}

const char *safetensors_why_absent(const struct safetensors *s, const char *name)
{
    const struct st_open_set *set = (const struct st_open_set *)s;
    const struct st_name *entry = table_get(set->by_name, name);
    return entry ? entry->why : NULL;
}

const char *safetensors_metadata(const struct safetensors *s, const char *key)
{
    const struct st_open_set *set = (const struct st_open_set *)s;
    for (const struct st_metadata *p = set->metadata; p; p = p->next)
        if (strcmp(p->key, key) == 0)
            return p->value;
    return NULL;
}
