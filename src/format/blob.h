/* weight.bin: MILBlob storage version 2 (reference: docs/blob.md).
 *
 * Header 64 bytes {u32 count, u32 version 2}; records start at multiples of 64: 64 bytes of metadata {u32
 * sentinel 0xDEADBEEF, u32 type, u64 bytes, u64 absolute data offset, u64 unused bits in the last byte}, then
 * data. An offset in a MIL program points at the metadata record.
 */
#ifndef MILKIT_FORMAT_BLOB_H
#define MILKIT_FORMAT_BLOB_H

#include "base/file.h"

enum blob_type {
    BLOB_FLOAT16 = 1,
    BLOB_FLOAT32,
    BLOB_UINT8,
    BLOB_INT8,
    BLOB_BFLOAT16,
    BLOB_INT16,
    BLOB_UINT16,
    BLOB_INT4,
    BLOB_UINT1,
    BLOB_UINT2,
    BLOB_UINT4,
    BLOB_UINT3,
    BLOB_UINT6,
    BLOB_INT32,
    BLOB_UINT32,
    BLOB_FLOAT8E4M3FN,
    BLOB_FLOAT8E5M2
};
const char *blob_type_name(enum blob_type t); /* NULL when unknown */
int blob_type_bits(enum blob_type t);         /* bits of an element; 0 when unknown */

struct blob_record {
    enum blob_type type;
    uint64_t offset;     /* of the metadata record */
    const uint8_t *data; /* [bytes] in the mapping, 64-byte aligned */
    uint64_t bytes;
    uint64_t padding_bits; /* below 8; 0 for types of whole bytes, whatever the file says */
};

struct blob_file {
    struct map_file *map;
    uint32_t count; /* as the header says; not trusted */
};
bool blob_open(struct blob_file **out, const char *path, struct err *e) MUST_CHECK;
void blob_close(struct blob_file *b); /* accepts NULL */
/* The record whose metadata starts at offset. All of it is checked against the file (ERR_FORMAT). */
bool blob_get(const struct blob_file *b, uint64_t offset, struct blob_record *out, struct err *e) MUST_CHECK;
/* Walks: offset 0 gives the first record, else the one behind `offset`; *found false at the end. */
bool blob_next(const struct blob_file *b, uint64_t offset, struct blob_record *out, bool *found,
               struct err *e) MUST_CHECK;

/* Writing, front to back, with content dedup: data that an earlier record of the same type holds bit for bit
 * is not written again (a 128-bit hash finds the candidate, the bytes in the file decide). Memory does not
 * grow with the data. */
struct blob_writer;
bool blob_writer_open(struct blob_writer **out, const char *path, struct err *e) MUST_CHECK;
/* data [bytes]; n_elems tells the unused bits of sub-byte types. *offset: what a MIL program refers to. */
bool blob_writer_add(struct blob_writer *w, enum blob_type type, const void *data, uint64_t bytes,
                     uint64_t n_elems, uint64_t *offset, struct err *e) MUST_CHECK;
/* A record in pieces, for data that is larger than memory should hold: reserve gives the record its place,
 * fill writes bytes [at, at + n) of its data (thread safe between reserve and the next call of another kind;
 * each byte exactly once, in any order). No dedup. A commit is refused while bytes are missing. */
bool blob_writer_reserve(struct blob_writer *w, enum blob_type type, uint64_t bytes, uint64_t n_elems,
                         uint64_t *offset, struct err *e) MUST_CHECK;
bool blob_writer_fill(struct blob_writer *w, uint64_t offset, uint64_t at, const void *data, uint64_t n,
                      struct err *e) MUST_CHECK;
uint64_t blob_writer_bytes(const struct blob_writer *w);
uint32_t blob_writer_count(const struct blob_writer *w);
uint64_t blob_writer_dedup_bytes(const struct blob_writer *w);            /* bytes that dedup saved */
bool blob_writer_commit(struct blob_writer *w, struct err *e) MUST_CHECK; /* consumes w */
void blob_writer_abort(struct blob_writer *w);                            /* accepts NULL */

#endif
