/* coremldata.bin of a compiled model: its fixed head, the model description, one record a function; and the
 * analytics file beside it.
 *
 * Fields whose meaning is unknown are constant in every file seen; they are written as seen and not checked.
 */
#include "format/mlmodelc.h"

#include <string.h>

#define HEAD_BYTES 0x53 /* everything before the description */
#define RECORD_BYTES 16 /* of a function, behind it */
#define KIND_OFFSET 0x1c
#define SPECIFICATION_OFFSET 0x2b
#define LENGTH_OFFSET 0x4b
#define KIND_ML_PROGRAM 502
#define KIND_CLASSIFIER 403

static uint64_t get_le(const uint8_t *p, int bytes)
{
    uint64_t v = 0;
    for (int i = bytes - 1; i >= 0; i--)
        v = v << 8 | p[i];
    return v;
}

static void put_le(struct buf *out, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        buf_putc(out, (char)(v >> (8 * i) & 0xff));
}

static void put_zeros(struct buf *out, int n)
{
    for (int i = 0; i < n; i++)
        buf_putc(out, 0);
}

/* Behind the description: a record {502, 12 zero bytes} a function, or a classifier's labels. */
static bool tail_read(struct coremldata *out, const uint8_t *tail, size_t n, const char *where, struct err *e)
{
    if (n < RECORD_BYTES)
        return err_set(e, ERR_FORMAT, "%s: cut off: %zu bytes behind the description, expected at least %d",
                       where, n, RECORD_BYTES);
    uint64_t kind = get_le(tail, 4);
    if (kind == KIND_CLASSIFIER) {
        out->tail = tail;
        out->n_tail = n;
        return true;
    }
    if (n % RECORD_BYTES)
        return err_set(e, ERR_FORMAT,
                       "%s: damaged: %zu bytes behind the description, expected a multiple of %d", where, n,
                       RECORD_BYTES);
    for (size_t i = 0; i < n; i += RECORD_BYTES)
        if (get_le(tail + i, 4) != KIND_ML_PROGRAM)
            return err_set(e, ERR_FORMAT, "%s: damaged: function record %zu is of kind %llu, expected %d",
                           where, i / RECORD_BYTES, (unsigned long long)get_le(tail + i, 4), KIND_ML_PROGRAM);
    return true;
}

bool coremldata_read(struct coremldata *out, const uint8_t *data, size_t bytes, const char *where,
                     struct err *e)
{
    memset(out, 0, sizeof *out);
    if (bytes < 4)
        return err_set(e, ERR_FORMAT, "%s: damaged coremldata.bin: %zu bytes", where, bytes);
    uint64_t kind = get_le(data, 4);
    if (kind != KIND_ML_PROGRAM) {
        const char *name = kind == 202 || kind == 200 || kind == 201 ? "a pipeline"
                           : kind >= 200 && kind < 4000              ? "another kind of model"
                                                                     : NULL;
        if (name)
            return err_set(e, ERR_UNSUPPORTED,
                           "%s: the model is %s (type %llu); only ML Programs are supported", where, name,
                           (unsigned long long)kind);
        return err_set(e, ERR_FORMAT, "%s: damaged coremldata.bin: model type %llu, expected %d", where,
                       (unsigned long long)kind, KIND_ML_PROGRAM);
    }
    if (bytes < HEAD_BYTES)
        return err_set(e, ERR_FORMAT, "%s: damaged coremldata.bin: %zu bytes, the head alone has %d", where,
                       bytes, HEAD_BYTES);
    if (get_le(data + KIND_OFFSET, 8) != 7 || memcmp(data + KIND_OFFSET + 8, "generic", 7) != 0)
        return err_set(e, ERR_FORMAT, "%s: damaged coremldata.bin: no \"generic\" at byte %d", where,
                       KIND_OFFSET);
    uint64_t specification = get_le(data + SPECIFICATION_OFFSET, 4);
    uint64_t n = get_le(data + LENGTH_OFFSET, 8);
    if (specification < 6 || specification > 10)
        return err_set(e, ERR_UNSUPPORTED, "%s: specification version %llu, supported are 6 to 10", where,
                       (unsigned long long)specification);
    if (n > bytes - HEAD_BYTES)
        return err_set(e, ERR_FORMAT, "%s: damaged coremldata.bin: a description of %llu bytes, %zu are left",
                       where, (unsigned long long)n, bytes - HEAD_BYTES);
    out->specification_version = (int)specification;
    out->description = data + HEAD_BYTES;
    out->n_description = (size_t)n;
    return tail_read(out, data + HEAD_BYTES + n, bytes - HEAD_BYTES - (size_t)n, where, e);
}

void coremldata_write(struct buf *out, int specification_version, const void *description,
                      size_t n_description, int n_functions)
{
    int major = specification_version <= 7 ? 5 : specification_version == 8 ? 8 : 9;

    put_le(out, KIND_ML_PROGRAM, 4);
    put_le(out, (uint64_t)major, 4);
    put_zeros(out, 20); /* minor and patch version, and what no file uses */
    put_le(out, 7, 8);
    buf_append(out, "generic", 7);
    put_le(out, (uint64_t)specification_version, 4);
    put_zeros(out, 28);
    put_le(out, n_description, 8);
    buf_append(out, description, n_description);
    for (int i = 0; i < n_functions || i < 1; i++) {
        put_le(out, KIND_ML_PROGRAM, 4);
        put_zeros(out, 12);
    }
}

static void put_text(struct buf *out, const char *s)
{
    size_t n = strlen(s);
    put_le(out, n, 8);
    buf_append(out, s, n);
}

void coremldata_write_analytics(struct buf *out, const char *hash, const char *model_name)
{
    put_text(out, "NeuralNetworkModelDetails");
    put_le(out, 2, 8);
    put_text(out, "containsCustomLayer");
    put_text(out, "0");
    put_text(out, "modelDimension");
    put_text(out, "0");
    put_text(out, "SpecificationDetails");
    put_le(out, 2, 8);
    put_text(out, "modelHash");
    put_text(out, hash);
    put_text(out, "modelName");
    put_text(out, model_name);
}
