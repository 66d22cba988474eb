/* safetensors files, single or sharded with an index: zero-copy reading from mappings, and writing.
 *
 * Format: u64 header length N, N bytes of JSON {name: {dtype, shape, data_offsets: [begin, end]},
 * "__metadata__"}, then the data. Checked on opening: header length within the file and <= 100 MB, known
 * shape of the JSON, every range inside the file, bytes == product(shape) * element size without overflow, no
 * two ranges overlapping, no name twice, no hole of more than 64 bytes. Unknown dtypes are kept by name and
 * refused on use.
 */
#ifndef MILKIT_FORMAT_SAFETENSORS_H
#define MILKIT_FORMAT_SAFETENSORS_H

#include <stdio.h>
#include "base/file.h"

#define SAFETENSORS_RANK_MAX 8

enum st_dtype {
    ST_UNKNOWN = 0,
    ST_BOOL,
    ST_U8,
    ST_I8,
    ST_F8_E4M3,
    ST_F8_E5M2,
    ST_I16,
    ST_U16,
    ST_F16,
    ST_BF16,
    ST_I32,
    ST_U32,
    ST_F32,
    ST_F64,
    ST_I64,
    ST_U64,
    ST_PACKED /* of a GGUF file: numbers that reading makes (packed) */
};
const char *st_dtype_name(enum st_dtype d); /* "BF16" */
size_t st_dtype_bytes(enum st_dtype d);     /* of one element; 0 for ST_UNKNOWN and ST_PACKED */

struct st_packed;

struct st_tensor {
    const char *name;
    const char *file; /* path of the file that holds it */
    enum st_dtype dtype;
    const char *dtype_name; /* as the file says it, also when ST_UNKNOWN */
    int rank;
    int64_t shape[SAFETENSORS_RANK_MAX];
    int64_t n_elems;
    const uint8_t *data; /* in the mapping, [bytes]; need not be aligned */
    size_t bytes;
    /* F8_E4M3 [rows, columns] or [matrices, rows, columns]: NAME_scale_inv, factors by which reading multiplies,
     * one for each block of 128 x 128, row, matrix or for all. NULL: none, and such a tensor can't be read. */
    const struct st_tensor *scale;
    const struct st_packed *packed; /* of ST_PACKED: what reading does; else NULL */
};
#define ST_SCALE_BLOCK 128

/* A tensor that an index lists and that can't be read. */
struct st_absent {
    const char *name, *file; /* file: as the index names it */
    bool has_file;           /* the file is there and whole, but not this tensor in it */
};

struct safetensors {
    const char *path; /* what was opened */
    int n_tensors;
    struct st_tensor *tensors; /* in file order, shard after shard */
    uint64_t total_bytes;      /* of all data */
    int n_absent;
    struct st_absent *absent; /* in the order of the index */
    bool has_unread_index;    /* model.safetensors was opened though an index lies beside it */
};

/* path: a .safetensors file, a *.index.json, a GGUF file of an architecture that gguf_model.h knows (its tensors get the
 * names and the order of rows that they have in a checkpoint), or a checkpoint folder (model.safetensors, else
 * model.safetensors.index.json, else the only *.index.json or *.safetensors, else the only *.gguf in it). With an index, what of
 * weight_map is not there (no such file, a damaged one, no such tensor in it, the tensor in another file or in
 * two) is noted in `absent`; it is an error when no file can be read. */
bool safetensors_open(struct safetensors **out, const char *path, struct err *e) MUST_CHECK;
void safetensors_close(struct safetensors *s); /* accepts NULL */
/* Are all files still as long as they were (map_check)? What was read before may be wrong otherwise. */
bool safetensors_check(const struct safetensors *s, struct err *e) MUST_CHECK;
const struct st_tensor *safetensors_find(const struct safetensors *s,
                                         const char *name); /* NULL when absent */
/* Why a tensor that an index lists can't be read; NULL when it can be, or when nothing lists it. */
const char *safetensors_why_absent(const struct safetensors *s, const char *name);
/* The header's __metadata__ value for key, or NULL. */
const char *safetensors_metadata(const struct safetensors *s, const char *key);
/* "[2, 3]" into dst for messages */
void st_shape_text(char dst[128], const int64_t *shape, int rank);

/* Converts all elements (F16, BF16, F32, F64 and the integer types) to float32. dst [n_elems]. */
bool st_read_f32(const struct st_tensor *t, float *dst, struct err *e) MUST_CHECK;
/* Converts elements [begin, begin + n) to double: exact but for 64-bit integers beyond 2^53. */
bool st_read_f64(const struct st_tensor *t, int64_t begin, int64_t n, double *dst, struct err *e) MUST_CHECK;
/* Converts elements [begin, begin + n) to fp16 with one rounding. Whatever is not a finite number there (65520 and
 * more, infinities, what is not a number) fails with ERR_FORMAT naming file, tensor, element and value. */
bool st_read_f16(const struct st_tensor *t, int64_t begin, int64_t n, uint16_t *dst,
                 struct err *e) MUST_CHECK;

/* Where the numbers of some tensors lie, all taken together (safetensors_spread.c). */
struct st_spread {
    int64_t n;
    double median;
    double negative; /* the share of numbers below 0 */
};
bool st_spread(const struct st_tensor *const *tensors, int64_t n_tensors, struct st_spread *out,
               struct err *e) MUST_CHECK;

/* A writer for outputs and tests: add tensors, then write all at once. Data is borrowed until the write. */
struct st_writer;
struct st_writer *st_writer_new(void);
void st_writer_free(struct st_writer *w);
void st_writer_add(struct st_writer *w, const char *name, enum st_dtype dtype, const int64_t *shape, int rank,
                   const void *data);
void st_writer_metadata(struct st_writer *w, const char *key, const char *value);
bool st_writer_write(struct st_writer *w, const char *path, bool replace, struct err *e) MUST_CHECK;
/* The same bytes to an open stream; the caller flushes it. */
bool st_writer_print(struct st_writer *w, FILE *out, struct err *e) MUST_CHECK;

#endif
