/* GGUF, the file of llama.cpp: settings as key and value, and tensors of numbers or packed blocks. Read from a mapping.
 *
 * Versions 2 and 3, little-endian. Checked on opening, in 64-bit arithmetic with tests for overflow and before anything is
 * allocated by it: counts against the bytes that are left, lengths of strings and arrays, value types, no arrays of arrays,
 * UTF-8 (all but the bytes of numbers), 1 to 4 dimensions above 0, known tensor types, whole blocks in a row, offsets that are
 * aligned, inside the file and apart from each other, no key and no tensor twice. A model in several files
 * (NAME-00001-of-00003.gguf) is opened by its first one; the others must lie beside it.
 *
 * Limits: GGUF_KEYS_MAX keys, GGUF_TENSORS_MAX tensors, 65,535 bytes of a name, GGUF_FILES_MAX files.
 */
#ifndef MILKIT_FORMAT_GGUF_H
#define MILKIT_FORMAT_GGUF_H

#include "base/file.h"

#define GGUF_KEYS_MAX 65536
#define GGUF_TENSORS_MAX 1000000
#define GGUF_FILES_MAX 1000
#define GGUF_RANK_MAX 4

enum gguf_kind {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_KINDS
};
const char *gguf_kind_name(enum gguf_kind k); /* "u32", "string" */

/* A setting. Strings and the elements of arrays stay in the mapping. */
struct gguf_key {
    const char *name;
    enum gguf_kind kind;
    enum gguf_kind element; /* of an array */
    uint64_t n;             /* elements of an array, bytes of a string; else 1 */
    const uint8_t *data;    /* the number, the string's bytes, or the array's first element */
};

/* How numbers are packed: ids of the file. */
enum gguf_type {
    GGUF_TYPE_F32 = 0,
    GGUF_TYPE_F16 = 1,
    GGUF_TYPE_Q4_0 = 2,
    GGUF_TYPE_Q4_1 = 3,
    GGUF_TYPE_Q5_0 = 6,
    GGUF_TYPE_Q5_1 = 7,
    GGUF_TYPE_Q8_0 = 8,
    GGUF_TYPE_Q2_K = 10,
    GGUF_TYPE_Q3_K = 11,
    GGUF_TYPE_Q4_K = 12,
    GGUF_TYPE_Q5_K = 13,
    GGUF_TYPE_Q6_K = 14,
    GGUF_TYPE_IQ4_NL = 20,
    GGUF_TYPE_IQ4_XS = 23,
    GGUF_TYPE_BF16 = 30,
    GGUF_TYPE_TQ2_0 = 35,
    GGUF_TYPE_MXFP4 = 39
};

struct gguf_tensor {
    const char *name;
    const char *file; /* path of the file that holds it */
    uint32_t type;    /* one of gguf_block_types, readable or not */
    int rank;
    int64_t ne[GGUF_RANK_MAX]; /* the fastest axis first; 1 beyond rank */
    int64_t n_elems;
    const uint8_t *data; /* [bytes], in the mapping */
    size_t bytes;
};

struct gguf {
    const char *path; /* what was opened */
    uint32_t version;
    int n_keys; /* of the first file */
    const struct gguf_key *keys;
    int n_tensors; /* of all files */
    struct gguf_tensor *tensors;
    uint64_t total_bytes; /* of all tensors */
    int n_files;
};

bool gguf_open(struct gguf **out, const char *path, struct err *e) MUST_CHECK;
void gguf_close(struct gguf *g); /* accepts NULL */
/* Are all files still as long as they were (map_check)? */
bool gguf_check(const struct gguf *g, struct err *e) MUST_CHECK;
/* Does a file of this path begin with GGUF's magic, or end with .gguf? */
bool gguf_is_file(const char *path);
const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name); /* NULL when absent */

/* ---- settings: "PATH: key NAME: expected ..., found ..." ---- */

const struct gguf_key *gguf_find_key(const struct gguf *g, const char *name); /* NULL when absent */
/* Absent leaves *value as it is and succeeds; numbers of any integer type, a float where it is whole. An array (a value per
 * layer) must have the same number throughout. */
bool gguf_get_int(const struct gguf *g, const char *name, int64_t *value, struct err *e) MUST_CHECK;
bool gguf_get_double(const struct gguf *g, const char *name, double *value, struct err *e) MUST_CHECK;
bool gguf_get_bool(const struct gguf *g, const char *name, bool *value, struct err *e) MUST_CHECK;
bool gguf_get_string(const struct gguf *g, const char *name, struct str *value, struct err *e) MUST_CHECK;
/* ERR_FORMAT: the key is missing. */
bool gguf_require_int(const struct gguf *g, const char *name, int64_t min, int64_t max, int64_t *value,
                      struct err *e) MUST_CHECK;
/* An array of this kind (GGUF_I32: any integers), NULL when absent. False: it is something else. */
bool gguf_get_array(const struct gguf *g, const char *name, enum gguf_kind element,
                    const struct gguf_key **out, struct err *e) MUST_CHECK;
/* Walks an array of strings: *at begins as its data. */
struct str gguf_next_string(const uint8_t **at);
double gguf_number_at(const struct gguf_key *k,
                      uint64_t i); /* element i of an array of numbers, or a number */

/* ---- gguf_blocks.c ---- */

struct gguf_block_type {
    uint32_t id;
    const char *name; /* "Q4_K" */
    int elements, bytes;
    /* Numbers of n blocks as float32, every operation rounded once; NULL: can't be read. */
    void (*expand)(const uint8_t *blocks, int64_t n, float *dst);
};
#define GGUF_BLOCK_MAX 256 /* elements of the largest block that can be read */
/* NULL: no such type. */
const struct gguf_block_type *gguf_block_type(uint32_t id);
/* Elements [begin, begin + n) in file order; the type must be readable. */
void gguf_expand(const struct gguf_block_type *t, const uint8_t *data, int64_t begin, int64_t n, float *dst);

#endif
