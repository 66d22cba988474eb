/* weight.bin, reading: records in a mapping, each checked against the file before it is handed out. */
#include "format/blob.h"

#include <stdlib.h>
#include <string.h>

#define RECORD_ALIGN 64u
#define HEADER_BYTES 64u
#define METADATA_BYTES 64u
#define SENTINEL 0xDEADBEEFu
#define VERSION 2u

static const struct {
    const char *name;
    int bits;
} types[] = {
    [BLOB_FLOAT16] = {"float16", 16},      [BLOB_FLOAT32] = {"float32", 32},
    [BLOB_UINT8] = {"uint8", 8},           [BLOB_INT8] = {"int8", 8},
    [BLOB_BFLOAT16] = {"bfloat16", 16},    [BLOB_INT16] = {"int16", 16},
    [BLOB_UINT16] = {"uint16", 16},        [BLOB_INT4] = {"int4", 4},
    [BLOB_UINT1] = {"uint1", 1},           [BLOB_UINT2] = {"uint2", 2},
    [BLOB_UINT4] = {"uint4", 4},           [BLOB_UINT3] = {"uint3", 3},
    [BLOB_UINT6] = {"uint6", 6},           [BLOB_INT32] = {"int32", 32},
    [BLOB_UINT32] = {"uint32", 32},        [BLOB_FLOAT8E4M3FN] = {"float8e4m3fn", 8},
    [BLOB_FLOAT8E5M2] = {"float8e5m2", 8},
};
#define N_TYPES (sizeof types / sizeof *types)

const char *blob_type_name(enum blob_type t)
{
    return (size_t)t < N_TYPES ? types[t].name : NULL;
}

int blob_type_bits(enum blob_type t)
{
    return (size_t)t < N_TYPES ? types[t].bits : 0;
}

bool blob_open(struct blob_file **out, const char *path, struct err *e)
{
    struct map_file *map = NULL;
    *out = NULL;
    if (!map_open(&map, path, e))
        return false;
    bool ok = true;
    if (map->bytes < HEADER_BYTES)
        ok = err_set(e, ERR_FORMAT, "%s: expected a weight file with a header of %u bytes, found %zu bytes",
                     path, HEADER_BYTES, map->bytes);
    else if (load_le(map->data + 4, 4) != VERSION)
        ok = err_set(e, ERR_FORMAT, "%s: expected weight file version %u, found %lu", path, VERSION,
                     (unsigned long)load_le(map->data + 4, 4));
    if (!ok) {
        map_close(map);
        return false;
    }
    struct blob_file *b = xcalloc(1, sizeof *b);
    b->map = map;
    b->count = (uint32_t)load_le(map->data, 4);
    *out = b;
    return true;
}

void blob_close(struct blob_file *b)
{
    if (!b)
        return;
    map_close(b->map);
    free(b);
}

bool blob_get(const struct blob_file *b, uint64_t offset, struct blob_record *out, struct err *e)
{
    const char *path = b->map->path;
    unsigned long long at = offset;
    uint64_t file_bytes_n = b->map->bytes;
    if (offset < HEADER_BYTES || offset % RECORD_ALIGN != 0)
        return err_set(e, ERR_FORMAT, "%s: record offset: expected a multiple of %u from %u on, found %llu",
                       path, RECORD_ALIGN, HEADER_BYTES, at);
    if (offset > file_bytes_n || file_bytes_n - offset < METADATA_BYTES)
        return err_set(
            e, ERR_FORMAT,
            "%s: record at %llu: expected %u bytes of metadata there, found the file's end at %llu", path, at,
            METADATA_BYTES, (unsigned long long)file_bytes_n);

    const uint8_t *p = b->map->data + offset;
    uint32_t sentinel = (uint32_t)load_le(p, 4), type = (uint32_t)load_le(p + 4, 4);
    uint64_t bytes = load_le(p + 8, 8), data_at = load_le(p + 16, 8), padding = load_le(p + 24, 8);
    if (sentinel != SENTINEL)
        return err_set(e, ERR_FORMAT, "%s: record at %llu: expected sentinel 0x%08lX, found 0x%08lX", path,
                       at, (unsigned long)SENTINEL, (unsigned long)sentinel);
    int bits = type < N_TYPES ? types[type].bits : 0;
    if (bits == 0)
        return err_set(e, ERR_FORMAT, "%s: record at %llu: expected a type from 1 to %zu, found %lu", path,
                       at, N_TYPES - 1, (unsigned long)type);
    if (data_at % RECORD_ALIGN != 0 || data_at < offset + METADATA_BYTES || data_at > file_bytes_n)
        return err_set(
            e, ERR_FORMAT,
            "%s: record at %llu: data offset: expected a multiple of %u from %llu to the file's end at "
            "%llu, found %llu",
            path, at, RECORD_ALIGN, at + METADATA_BYTES, (unsigned long long)file_bytes_n,
            (unsigned long long)data_at);
    if (bytes > file_bytes_n - data_at)
        return err_set(
            e, ERR_FORMAT,
            "%s: record at %llu: expected %llu bytes of data, found %llu up to the file's end: cut short",
            path, at, (unsigned long long)bytes, (unsigned long long)(file_bytes_n - data_at));
    /* Old writers know no sub-byte types and leave garbage behind the data offset. */
    if (bits >= 8)
        padding = 0;
    if (padding >= 8 || (bytes == 0 && padding > 0) || (bytes * 8 - padding) % (uint64_t)bits != 0)
        return err_set(
            e, ERR_FORMAT,
            "%s: record at %llu: expected whole %s elements, found %llu bytes with %llu unused bits", path,
            at, types[type].name, (unsigned long long)bytes, (unsigned long long)padding);
    out->type = (enum blob_type)type;
    out->offset = offset;
    out->data = b->map->data + data_at;
    out->bytes = bytes;
    out->padding_bits = padding;
    return true;
}

bool blob_next(const struct blob_file *b, uint64_t offset, struct blob_record *out, bool *found,
               struct err *e)
{
    uint64_t next = HEADER_BYTES;
    *found = false;
    if (offset != 0) {
        if (!blob_get(b, offset, out, e))
            return false;
        next = (uint64_t)(out->data - b->map->data) + out->bytes;
        next += (RECORD_ALIGN - next % RECORD_ALIGN) % RECORD_ALIGN;
    }
    if (next >= b->map->bytes)
        return true;
    /* Zeros behind the last record are padding that some writers leave. */
    bool is_padding = true;
    for (uint64_t i = next; i < b->map->bytes && i < next + METADATA_BYTES; i++)
        is_padding = is_padding && b->map->data[i] == 0;
    if (is_padding)
        return true;
    *found = blob_get(b, next, out, e);
    return *found;
}
