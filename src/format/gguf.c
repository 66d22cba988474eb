/* Opening and checking GGUF files. Everything a header says is checked here, so that keys and tensors handed out can be read
 * without further checks; what they mean is for others. */
#include "format/gguf.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/utf8.h"

#define NAME_BYTES_MAX 65535
#define ALIGNMENT_DEFAULT 32
#define ALIGNMENT_MAX 65536
/* The fewest bytes that a key and a tensor can take: a count that needs more than the file has is wrong. */
#define KEY_BYTES_MIN 13
#define TENSOR_BYTES_MIN 32

static const struct {
    const char *name;
    size_t bytes; /* of one; 0: strings and arrays */
} kinds[GGUF_KINDS] = {
    [GGUF_U8] = {"u8", 1},       [GGUF_I8] = {"i8", 1},     [GGUF_U16] = {"u16", 2},
    [GGUF_I16] = {"i16", 2},     [GGUF_U32] = {"u32", 4},   [GGUF_I32] = {"i32", 4},
    [GGUF_F32] = {"f32", 4},     [GGUF_BOOL] = {"bool", 1}, [GGUF_STRING] = {"string", 0},
    [GGUF_ARRAY] = {"array", 0}, [GGUF_U64] = {"u64", 8},   [GGUF_I64] = {"i64", 8},
    [GGUF_F64] = {"f64", 8},
};

const char *gguf_kind_name(enum gguf_kind k)
{
    return (unsigned)k < GGUF_KINDS ? kinds[k].name : "unknown";
}

static bool is_number(enum gguf_kind k)
{
    return k != GGUF_STRING && k != GGUF_ARRAY && k != GGUF_BOOL;
}

/* What callers see comes first; the rest is what keeps it alive. */
struct open_gguf {
    struct gguf g;
    struct arena *arena;
    struct table *keys_by_name, *tensors_by_name;
    struct map_file **maps;
    size_t capacity; /* of g.tensors */
};

/* A place in one file. `what` says what is being read, for messages. */
struct cursor {
    const char *path;
    const uint8_t *data;
    size_t bytes, at;
    char what[192];
};

/* ---- reading forward ---- */

static bool take(struct cursor *c, uint64_t n, const uint8_t **out, struct err *e)
{
    if (n > c->bytes - c->at)
        return err_set(
            e, ERR_FORMAT,
            "%s: %s: expected %llu bytes at byte %zu, found a file of %zu bytes: it is cut short, or "
            "a length in it is wrong",
            c->path, c->what, (unsigned long long)n, c->at, c->bytes);
    *out = c->data + c->at;
    c->at += (size_t)n;
    return true;
}

static bool take_number(struct cursor *c, size_t bytes, uint64_t *out, struct err *e)
{
    const uint8_t *p;
    if (!take(c, bytes, &p, e))
        return false;
    *out = load_le(p, bytes);
    return true;
}

static bool check_utf8(const struct cursor *c, const uint8_t *p, uint64_t n, struct err *e)
{
    size_t good = utf8_valid_prefix((const char *)p, (size_t)n);
    return good == n || err_set(e, ERR_FORMAT, "%s: %s: expected UTF-8, found the byte 0x%02x at byte %zu",
                                c->path, c->what, p[good], (size_t)(p - c->data) + good);
}

static bool take_string(struct cursor *c, uint64_t *n, const uint8_t **out, struct err *e)
{
    return take_number(c, 8, n, e) && take(c, *n, out, e) && check_utf8(c, *out, *n, e);
}

static bool take_name(struct cursor *c, struct arena *arena, const char **out, struct err *e)
{
    uint64_t n;
    const uint8_t *p;
    if (!take_string(c, &n, &p, e))
        return false;
    if (n == 0 || n > NAME_BYTES_MAX || memchr(p, 0, (size_t)n))
        return err_set(e, ERR_FORMAT, "%s: %s: expected a name of 1 to %d bytes without zeros, found %s",
                       c->path, c->what, NAME_BYTES_MAX,
                       n == 0               ? "none"
                       : n > NAME_BYTES_MAX ? "a longer one"
                                            : "one with a zero");
    *out = arena_strndup(arena, (const char *)p, (size_t)n);
    return true;
}

/* ---- keys ---- */

static bool take_kind(struct cursor *c, enum gguf_kind *kind, struct err *e)
{
    uint64_t v;
    if (!take_number(c, 4, &v, e))
        return false;
    if (v >= GGUF_KINDS)
        return err_set(e, ERR_FORMAT, "%s: %s: expected a value type of 0 to %d, found %llu", c->path,
                       c->what, GGUF_KINDS - 1, (unsigned long long)v);
    *kind = (enum gguf_kind)v;
    return true;
}

static bool take_array(struct cursor *c, struct gguf_key *k, struct err *e)
{
    if (!take_kind(c, &k->element, e) || !take_number(c, 8, &k->n, e))
        return false;
    size_t each = k->element == GGUF_STRING ? 8 : kinds[k->element].bytes;
    if (k->element == GGUF_ARRAY)
        return err_set(e, ERR_UNSUPPORTED, "%s: %s: expected numbers or strings in an array, found arrays",
                       c->path, c->what);
    if (k->n > (c->bytes - c->at) / each)
        return err_set(
            e, ERR_FORMAT,
            "%s: %s: an array of %llu elements of at least %zu bytes at byte %zu, found a file of %zu "
            "bytes: it is cut short, or the number is wrong",
            c->path, c->what, (unsigned long long)k->n, each, c->at, c->bytes);
    if (k->element != GGUF_STRING)
        return take(c, k->n * each, &k->data, e);
    k->data = c->data + c->at;
    size_t length = strlen(c->what);
    for (uint64_t i = 0; i < k->n; i++) {
        uint64_t n;
        const uint8_t *p;
        snprintf(c->what + length, sizeof c->what - length, ": string %llu", (unsigned long long)i);
        if (!take_string(c, &n, &p, e))
            return false;
    }
    c->what[length] = '\0';
    return true;
}

static bool take_value(struct cursor *c, struct gguf_key *k, struct err *e)
{
    if (!take_kind(c, &k->kind, e))
        return false;
    if (k->kind == GGUF_STRING)
        return take_string(c, &k->n, &k->data, e);
    if (k->kind == GGUF_ARRAY)
        return take_array(c, k, e);
    k->n = 1;
    if (!take(c, kinds[k->kind].bytes, &k->data, e))
        return false;
    return k->kind != GGUF_BOOL || k->data[0] < 2 ||
           err_set(e, ERR_FORMAT, "%s: %s: expected 0 or 1, found %d", c->path, c->what, k->data[0]);
}

static bool take_keys(struct open_gguf *o, struct cursor *c, uint64_t n, struct gguf_key **out,
                      struct table *by_name, struct err *e)
{
    if (n > (c->bytes - c->at) / KEY_BYTES_MIN || n > GGUF_KEYS_MAX)
        return err_set(e, n > GGUF_KEYS_MAX && n <= c->bytes ? ERR_LIMIT : ERR_FORMAT,
                       "%s: number of keys: expected at most %llu in a file of %zu bytes, found %llu",
                       c->path,
                       (unsigned long long)((c->bytes - c->at) / KEY_BYTES_MIN < GGUF_KEYS_MAX
                                                ? (c->bytes - c->at) / KEY_BYTES_MIN
                                                : GGUF_KEYS_MAX),
                       c->bytes, (unsigned long long)n);
    struct gguf_key *keys = arena_try_alloc(o->arena, (size_t)n + 1, sizeof *keys, e);
    if (!keys)
        return false;
    for (uint64_t i = 0; i < n; i++) {
        snprintf(c->what, sizeof c->what, "key %llu of %llu", (unsigned long long)i + 1,
                 (unsigned long long)n);
        if (!take_name(c, o->arena, &keys[i].name, e))
            return false;
        snprintf(c->what, sizeof c->what, "key %.120s", keys[i].name);
        if (!take_value(c, &keys[i], e))
            return false;
        if (!table_put(by_name, keys[i].name, &keys[i]))
            return err_set(e, ERR_FORMAT, "%s: %s: expected it once, found it twice", c->path, c->what);
    }
    *out = keys;
    return true;
}

/* ---- tensors ---- */

static bool take_shape(struct cursor *c, struct gguf_tensor *t, struct err *e)
{
    uint64_t rank, ne;
    size_t n_elems = 1;
    if (!take_number(c, 4, &rank, e))
        return false;
    if (rank < 1 || rank > GGUF_RANK_MAX)
        return err_set(e, ERR_FORMAT, "%s: %s: expected 1 to %d dimensions, found %llu", c->path, c->what,
                       GGUF_RANK_MAX, (unsigned long long)rank);
    t->rank = (int)rank;
    for (int i = 0; i < GGUF_RANK_MAX; i++) {
        t->ne[i] = 1;
        if (i >= t->rank)
            continue;
        if (!take_number(c, 8, &ne, e))
            return false;
        if (ne == 0 || ne > INT64_MAX)
            return err_set(e, ERR_FORMAT, "%s: %s: dimension %d: expected 1 or more, found %llu", c->path,
                           c->what, i, (unsigned long long)ne);
        t->ne[i] = (int64_t)ne;
        if (!size_mul(n_elems, (size_t)ne, &n_elems) || n_elems > INT64_MAX / 8)
            return err_set(e, ERR_FORMAT,
                           "%s: %s: has more elements than can be counted: dimension %d is %llu", c->path,
                           c->what, i, (unsigned long long)ne);
    }
    t->n_elems = (int64_t)n_elems;
    return true;
}

/* *offset counts from the start of the data, which is known when all headers are read. */
static bool take_tensor(struct cursor *c, struct gguf_tensor *t, uint64_t *offset, struct err *e)
{
    uint64_t type;
    size_t all;
    if (!take_shape(c, t, e) || !take_number(c, 4, &type, e) || !take_number(c, 8, offset, e))
        return false;
    const struct gguf_block_type *block = gguf_block_type((uint32_t)type);
    if (!block)
        return err_set(e, ERR_UNSUPPORTED,
                       "%s: %s: type: expected one that GGUF has (F32 is 0, Q4_K 12), found %llu", c->path,
                       c->what, (unsigned long long)type);
    if (t->ne[0] % block->elements != 0)
        return err_set(e, ERR_FORMAT, "%s: %s: rows of %s: expected a multiple of %d elements, found %lld",
                       c->path, c->what, block->name, block->elements, (long long)t->ne[0]);
    if (!size_mul((size_t)(t->n_elems / block->elements), (size_t)block->bytes, &all))
        return err_set(e, ERR_FORMAT, "%s: %s: has more bytes than can be counted", c->path, c->what);
    t->type = block->id;
    t->bytes = all;
    return true;
}

static struct gguf_tensor *next_slot(struct open_gguf *o)
{
    o->g.tensors = mem_grow(o->g.tensors, (size_t)o->g.n_tensors, &o->capacity, sizeof *o->g.tensors);
    struct gguf_tensor *t = &o->g.tensors[o->g.n_tensors];
    memset(t, 0, sizeof *t);
    return t;
}

/* Data of tensors of one file: inside it, aligned. */
static bool place(const struct cursor *c, struct gguf_tensor *t, uint64_t offset, size_t data_at,
                  uint64_t alignment, struct err *e)
{
    size_t data_bytes = c->bytes > data_at ? c->bytes - data_at : 0;
    if (offset % alignment != 0)
        return err_set(e, ERR_FORMAT, "%s: tensor %.200s: offset: expected a multiple of %llu, found %llu",
                       c->path, t->name, (unsigned long long)alignment, (unsigned long long)offset);
    if (offset > data_bytes || t->bytes > data_bytes - (size_t)offset)
        return err_set(
            e, ERR_FORMAT,
            "%s: tensor %.200s: expected %zu bytes from byte %llu of the data on, found %zu bytes of data: "
            "the file is cut short, or its header is wrong",
            c->path, t->name, t->bytes, (unsigned long long)offset, data_bytes);
    t->data = c->data + data_at + (size_t)offset;
    return true;
}

static int compare_place(const void *a, const void *b)
{
    const struct gguf_tensor *x = *(const struct gguf_tensor *const *)a,
                             *y = *(const struct gguf_tensor *const *)b;
    return x->data < y->data ? -1 : x->data > y->data;
}

static bool check_overlap(const struct cursor *c, const struct gguf_tensor *tensors, size_t n, struct err *e)
{
    bool ok = true;
    const struct gguf_tensor **order = xmalloc(sizeof *order * (n + 1));
    for (size_t i = 0; i < n; i++)
        order[i] = &tensors[i];
    qsort(order, n, sizeof *order, compare_place);
    for (size_t i = 1; i < n && ok; i++) {
        if (order[i]->data < order[i - 1]->data + order[i - 1]->bytes)
            ok = err_set(
                e, ERR_FORMAT,
                "%s: tensors %.200s and %.200s overlap: expected data from byte %zu of the file on, found it "
                "at byte %zu",
                c->path, order[i - 1]->name, order[i]->name,
                (size_t)(order[i - 1]->data - c->data) + order[i - 1]->bytes,
                (size_t)(order[i]->data - c->data));
    }
    free(order);
    return ok;
}

static bool take_tensors(struct open_gguf *o, struct cursor *c, uint64_t n, uint64_t alignment, struct err *e)
{
    int first = o->g.n_tensors;
    if (n > (c->bytes - c->at) / TENSOR_BYTES_MIN || n > (uint64_t)(GGUF_TENSORS_MAX - first))
        return err_set(e, ERR_FORMAT,
                       "%s: number of tensors: expected at most %zu in a file of %zu bytes, found %llu",
                       c->path, (c->bytes - c->at) / TENSOR_BYTES_MIN, c->bytes, (unsigned long long)n);
    uint64_t *offsets = xcalloc((size_t)n + 1, sizeof *offsets);
    const char *file = arena_strdup(o->arena, c->path);
    bool ok = true;
    for (uint64_t i = 0; i < n && ok; i++) {
        struct gguf_tensor *t = next_slot(o);
        t->file = file;
        snprintf(c->what, sizeof c->what, "tensor %llu of %llu", (unsigned long long)i + 1,
                 (unsigned long long)n);
        ok = take_name(c, o->arena, &t->name, e);
        if (ok) {
            snprintf(c->what, sizeof c->what, "tensor %.120s", t->name);
            ok = take_tensor(c, t, &offsets[i], e) &&
                 (table_put(o->tensors_by_name, t->name, (void *)(uintptr_t)(o->g.n_tensors + 1)) ||
                  err_set(e, ERR_FORMAT, "%s: %s: expected it once, found it twice", c->path, c->what));
        }
        o->g.n_tensors += ok;
    }
    size_t data_at = ok ? (c->at + (size_t)alignment - 1) / (size_t)alignment * (size_t)alignment : 0;
    for (uint64_t i = 0; i < n && ok; i++) {
        struct gguf_tensor *t = &o->g.tensors[first + (int)i];
        ok = place(c, t, offsets[i], data_at, alignment, e);
        o->g.total_bytes += t->bytes;
    }
    free(offsets);
    return ok && check_overlap(c, o->g.tensors + first, (size_t)n, e);
}

/* ---- one file ---- */

static bool take_header(struct open_gguf *o, struct cursor *c, uint64_t *n_tensors, uint64_t *n_keys,
                        struct err *e)
{
    const uint8_t *magic;
    uint64_t version;
    snprintf(c->what, sizeof c->what, "header");
    if (c->bytes == 0)
        return err_set(e, ERR_FORMAT, "%s: expected a GGUF file, found an empty one", c->path);
    if (!take(c, 4, &magic, e))
        return false;
    if (memcmp(magic, "GGUF", 4) != 0)
        return err_set(e, ERR_FORMAT,
                       "%s: magic: expected \"GGUF\", found %02x %02x %02x %02x: not a GGUF file", c->path,
                       magic[0], magic[1], magic[2], magic[3]);
    if (!take_number(c, 4, &version, e))
        return false;
    if (version == 0x02000000 || version == 0x03000000)
        return err_set(e, ERR_UNSUPPORTED,
                       "%s: version: the file is big-endian (version %llu); milkit reads little-endian ones",
                       c->path, (unsigned long long)version >> 24);
    if (version != 2 && version != 3)
        return err_set(e, ERR_UNSUPPORTED, "%s: version: expected 2 or 3, found %llu", c->path,
                       (unsigned long long)version);
    o->g.version = (uint32_t)version;
    return take_number(c, 8, n_tensors, e) && take_number(c, 8, n_keys, e);
}

static bool read_alignment(const struct cursor *c, const struct table *keys, uint64_t *alignment,
                           struct err *e)
{
    static const char name[] = "general.alignment";
    const struct gguf_key *k = table_get(keys, name);
    *alignment = ALIGNMENT_DEFAULT;
    if (!k)
        return true;
    if (k->kind != GGUF_U32 && k->kind != GGUF_U64)
        return err_set(e, ERR_FORMAT, "%s: key %s: expected u32, found %s", c->path, name,
                       gguf_kind_name(k->kind));
    *alignment = load_le(k->data, kinds[k->kind].bytes);
    bool is_power = *alignment > 0 && (*alignment & (*alignment - 1)) == 0;
    return (is_power && *alignment <= ALIGNMENT_MAX) ||
           err_set(e, ERR_FORMAT, "%s: key %s: expected a power of two up to %d, found %llu", c->path, name,
                   ALIGNMENT_MAX, (unsigned long long)*alignment);
}

/* The first file's keys are the model's; those of others say only which part they are. */
static bool add_file(struct open_gguf *o, const char *path, struct table **keys, int *n_keys_out,
                     struct gguf_key **list, struct err *e)
{
    struct map_file *map;
    uint64_t n_tensors, n_keys, alignment;
    if (!map_open(&map, path, e))
        return false;
    o->maps = xrealloc(o->maps, sizeof *o->maps * (size_t)(o->g.n_files + 1));
    o->maps[o->g.n_files++] = map;
    struct cursor c = {.path = map->path, .data = map->data, .bytes = map->bytes};
    *keys = table_new();
    if (!take_header(o, &c, &n_tensors, &n_keys, e) || !take_keys(o, &c, n_keys, list, *keys, e) ||
        !read_alignment(&c, *keys, &alignment, e))
        return false;
    *n_keys_out = (int)n_keys;
    return take_tensors(o, &c, n_tensors, alignment, e);
}

/* ---- models in several files ---- */

/* "NAME-00001-of-00003.gguf" with another number, heap; NULL when the name is not of that form. */
static char *name_of_part(const char *path, int64_t part, int64_t n_parts)
{
    char suffix[64];
    size_t n = strlen(path), n_suffix = strlen("-00001-of-00003.gguf");
    snprintf(suffix, sizeof suffix, "-00001-of-%05d.gguf", (int)n_parts);
    return n > n_suffix && strcmp(path + n - n_suffix, suffix) == 0
               ? xasprintf("%.*s-%05d-of-%05d.gguf", (int)(n - n_suffix), path, (int)part, (int)n_parts)
               : NULL;
}

static bool add_part(struct open_gguf *o, int64_t i, int64_t n_parts, struct err *e)
{
    struct table *keys = NULL;
    struct gguf_key *list;
    int n_keys;
    char *path = name_of_part(o->g.path, i + 1, n_parts);
    const char *file = path ? arena_strdup(o->arena, path) : o->g.path;
    bool ok =
        path != NULL ||
        err_set(e, ERR_FORMAT, "%s: split.count is %lld: expected a name that ends with -00001-of-%05d.gguf",
                o->g.path, (long long)n_parts, (int)n_parts);
    if (ok && !path_exists(file))
        ok = err_set(e, ERR_FORMAT, "%s: the model is in %lld files; %s is not there", o->g.path,
                     (long long)n_parts, file);
    ok = ok && add_file(o, file, &keys, &n_keys, &list, e);
    if (ok) {
        const struct gguf_key *k = table_get(keys, "split.no");
        bool has_number = k && is_number(k->kind);
        double number = has_number ? gguf_number_at(k, 0) : -1;
        ok = number == (double)i ||
             err_set(e, ERR_FORMAT, "%s: key split.no: expected %lld, found %g", file, (long long)i, number);
    }
    table_free(keys);
    free(path);
    return ok;
}

static bool add_parts(struct open_gguf *o, struct err *e)
{
    int64_t n_parts = 1, number = 0, n_tensors = -1;
    if (!gguf_get_int(&o->g, "split.count", &n_parts, e) || !gguf_get_int(&o->g, "split.no", &number, e) ||
        !gguf_get_int(&o->g, "split.tensors.count", &n_tensors, e))
        return false;
    if (n_parts < 0 || n_parts > GGUF_FILES_MAX)
        return err_set(e, ERR_FORMAT, "%s: key split.count: expected 1 to %d, found %lld", o->g.path,
                       GGUF_FILES_MAX, (long long)n_parts);
    if (number != 0)
        return err_set(e, ERR_FORMAT,
                       "%s: key split.no: the file is part %lld of %lld; give the first one (-00001-of-)",
                       o->g.path, (long long)number + 1, (long long)n_parts);
    for (int64_t i = 1; i < n_parts; i++) {
        if (!add_part(o, i, n_parts, e))
            return false;
    }
    return n_tensors < 0 || n_tensors == o->g.n_tensors ||
           err_set(e, ERR_FORMAT,
                   "%s: key split.tensors.count: expected the %d tensors of %d files, found %lld", o->g.path,
                   o->g.n_tensors, o->g.n_files, (long long)n_tensors);
}

/* ---- the door ---- */

bool gguf_open(struct gguf **out, const char *path, struct err *e)
{
    struct open_gguf *o = xcalloc(1, sizeof *o);
    struct gguf_key *list = NULL;
    *out = NULL;
    o->arena = arena_new(0);
    o->tensors_by_name = table_new();
    o->g.path = arena_strdup(o->arena, path);
    bool ok = add_file(o, path, &o->keys_by_name, &o->g.n_keys, &list, e);
    o->g.keys = list;
    ok = ok && add_parts(o, e);
    if (!ok) {
        gguf_close(&o->g);
        return false;
    }
    *out = &o->g;
    return true;
}

void gguf_close(struct gguf *g)
{
    struct open_gguf *o = (struct open_gguf *)g;
    if (!o)
        return;
    for (int i = 0; i < o->g.n_files; i++)
        map_close(o->maps[i]);
    free(o->maps);
    free(o->g.tensors);
    table_free(o->keys_by_name);
    table_free(o->tensors_by_name);
    arena_free(o->arena);
    free(o);
}

bool gguf_check(const struct gguf *g, struct err *e)
{
    const struct open_gguf *o = (const struct open_gguf *)g;
    bool ok = true;
    for (int i = 0; i < o->g.n_files && ok; i++)
        ok = map_check(o->maps[i], e);
    return ok;
}

bool gguf_is_file(const char *path)
{
    char magic[4] = "";
    if (has_suffix(path, ".gguf"))
        return !path_is_folder(path);
    FILE *f = file_bytes(path) > 0 ? fopen(path, "rb") : NULL; /* a plain file: nothing else has bytes */
    if (!f)
        return false;
    bool is = fread(magic, 1, 4, f) == 4 && memcmp(magic, "GGUF", 4) == 0;
    fclose(f);
    return is;
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name)
{
    const struct open_gguf *o = (const struct open_gguf *)g;
    uintptr_t i = (uintptr_t)table_get(o->tensors_by_name, name);
    return i ? &g->tensors[i - 1] : NULL;
}

/* ---- settings ---- */

const struct gguf_key *gguf_find_key(const struct gguf *g, const char *name)
{
    return table_get(((const struct open_gguf *)g)->keys_by_name, name);
}

double gguf_number_at(const struct gguf_key *k, uint64_t i)
{
    enum gguf_kind kind = k->kind == GGUF_ARRAY ? k->element : k->kind;
    size_t bytes = kinds[kind].bytes;
    uint64_t v = load_le(k->data + i * bytes, bytes);
    uint32_t word = (uint32_t)v;
    double d;
    float f;
    switch (kind) {
    case GGUF_I8:
        return (double)(int8_t)v;
    case GGUF_I16:
        return (double)(int16_t)v;
    case GGUF_I32:
        return (double)(int32_t)v;
    case GGUF_I64:
        return (double)(int64_t)v;
    case GGUF_F32:
        memcpy(&f, &word, 4);
        return (double)f;
    case GGUF_F64:
        memcpy(&d, &v, 8);
        return d;
    default:
        return (double)v;
    }
}

struct str gguf_next_string(const uint8_t **at)
{
    struct str s = {(const char *)*at + 8, (size_t)load_le(*at, 8)};
    *at += 8 + s.n;
    return s;
}

static bool wrong_kind(const struct gguf *g, const struct gguf_key *k, const char *expected, struct err *e)
{
    bool is_array = k->kind == GGUF_ARRAY;
    return err_set(e, ERR_FORMAT, "%s: key %s: expected %s, found %s%s", g->path, k->name, expected,
                   is_array ? "an array of " : "", gguf_kind_name(is_array ? k->element : k->kind));
}

/* A number, or the one number that all elements of an array are. */
static bool get_number(const struct gguf *g, const char *name, const char *expected, double *value,
                       struct err *e)
{
    const struct gguf_key *k = gguf_find_key(g, name);
    if (!k)
        return true;
    if (!is_number(k->kind == GGUF_ARRAY ? k->element : k->kind) || k->n == 0)
        return wrong_kind(g, k, expected, e);
    *value = gguf_number_at(k, 0);
    for (uint64_t i = 1; i < k->n; i++) {
        if (gguf_number_at(k, i) != *value)
            return err_set(e, ERR_UNSUPPORTED,
                           "%s: key %s: expected the same number for every layer, found %g and %g", g->path,
                           name, *value, gguf_number_at(k, i));
    }
    return true;
}

bool gguf_get_double(const struct gguf *g, const char *name, double *value, struct err *e)
{
    return get_number(g, name, "a number", value, e);
}

bool gguf_get_int(const struct gguf *g, const char *name, int64_t *value, struct err *e)
{
    double d = (double)*value;
    if (!gguf_find_key(g, name))
        return true;
    if (!get_number(g, name, "a whole number", &d, e))
        return false;
    if (!(d >= -9007199254740992.0 && d <= 9007199254740992.0) || d != (double)(int64_t)d)
        return err_set(e, ERR_FORMAT, "%s: key %s: expected a whole number, found %g", g->path, name, d);
    *value = (int64_t)d;
    return true;
}

bool gguf_require_int(const struct gguf *g, const char *name, int64_t min, int64_t max, int64_t *value,
                      struct err *e)
{
    if (!gguf_find_key(g, name))
        return err_set(e, ERR_FORMAT, "%s: key %s is missing (expected a whole number)", g->path, name);
    return gguf_get_int(g, name, value, e) &&
           ((*value >= min && *value <= max) ||
            err_set(e, ERR_FORMAT, "%s: key %s: expected %lld to %lld, found %lld", g->path, name,
                    (long long)min, (long long)max, (long long)*value));
}

bool gguf_get_bool(const struct gguf *g, const char *name, bool *value, struct err *e)
{
    const struct gguf_key *k = gguf_find_key(g, name);
    if (!k)
        return true;
    if (k->kind != GGUF_BOOL)
        return wrong_kind(g, k, "bool", e);
    *value = k->data[0] != 0;
    return true;
}

bool gguf_get_string(const struct gguf *g, const char *name, struct str *value, struct err *e)
{
    const struct gguf_key *k = gguf_find_key(g, name);
    if (!k)
        return true;
    if (k->kind != GGUF_STRING)
        return wrong_kind(g, k, "a string", e);
    *value = (struct str){(const char *)k->data, (size_t)k->n};
    return true;
}

bool gguf_get_array(const struct gguf *g, const char *name, enum gguf_kind element,
                    const struct gguf_key **out, struct err *e)
{
    const struct gguf_key *k = gguf_find_key(g, name);
    *out = NULL;
    if (!k)
        return true;
    bool fits = k->kind == GGUF_ARRAY &&
                (k->element == element || (element == GGUF_I32 && is_number(k->element) &&
                                           k->element != GGUF_F32 && k->element != GGUF_F64));
    if (!fits)
        return wrong_kind(g, k, element == GGUF_STRING ? "an array of strings" : "an array of numbers", e);
    *out = k;
    return true;
}
