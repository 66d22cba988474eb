/* Protobuf's wire form, checked against the schema before protobuf-c sees it.
 *
 * protobuf-c recurses as deep as its input nests and says no more than "no" about a damaged file. So a walk
 * over the bytes comes first: every length must fit, messages nest at most WIRE_DEPTH_MAX deep, texts are
 * UTF-8 without NUL bytes, a single submessage comes once (merging copies would make unpacking quadratic).
 * Then unpacking takes its memory from an arena whose limit is a multiple of the input.
 */
#include "mil/protobuf_internal.h"

#include <string.h>

#define WIRE_DEPTH_MAX 100
/* Protobuf's own limit; so counts fit an int. */
#define WIRE_BYTES_MAX ((size_t)INT32_MAX)
/* Unpacked, a model takes about 8 times its wire form; the worst that the schema allows (empty messages of
 * two bytes) would take 60 times. */
#define WIRE_MEMORY_FACTOR 24
#define WIRE_MEMORY_BASE ((size_t)4 << 20)

enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_LENGTH = 2, WIRE_FIXED32 = 5 };

struct wire_field {
    uint32_t number;
    unsigned type;
    size_t begin, end; /* of the payload */
};

static bool wire_varint(const uint8_t *data, size_t bytes, size_t *offset, uint64_t *value)
{
    uint64_t v = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        if (*offset >= bytes)
            return false;
        uint8_t b = data[(*offset)++];
        if (shift < 64)
            v |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80)) {
            *value = v;
            return true;
        }
    }
    return false;
}

/* NULL, or what is wrong with the field at *offset. */
static const char *wire_field_read(struct wire_field *f, const uint8_t *data, size_t bytes, size_t *offset)
{
    uint64_t tag, length;
    if (!wire_varint(data, bytes, offset, &tag))
        return "the field number is cut off";
    if (tag >> 3 == 0 || tag >> 3 > 0x1fffffff)
        return "impossible field number";
    f->number = (uint32_t)(tag >> 3);
    f->type = (unsigned)(tag & 7);
    switch (f->type) {
    case WIRE_VARINT:
        f->begin = *offset;
        if (!wire_varint(data, bytes, offset, &length))
            return "the number is cut off";
        f->end = *offset;
        return NULL;
    case WIRE_FIXED64:
        length = 8;
        break;
    case WIRE_FIXED32:
        length = 4;
        break;
    case WIRE_LENGTH:
        if (!wire_varint(data, bytes, offset, &length))
            return "the length is cut off";
        break;
    default:
        return "unknown wire type";
    }
    if (length > bytes - *offset)
        return "the field is longer than what is left";
    f->begin = *offset;
    f->end = *offset + (size_t)length;
    *offset = f->end;
    return NULL;
}

uint32_t wire_next_field(const uint8_t *data, size_t bytes, size_t *offset)
{
    struct wire_field f;
    size_t end = *offset;
    if (end >= bytes || wire_field_read(&f, data, bytes, &end))
        return 0;
    *offset = end;
    return f.number;
}

/* NULL, or what is wrong with a text. */
static const char *text_check(const uint8_t *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint8_t c = s[i];
        size_t more = c < 0x80             ? 0
                      : (c & 0xe0) == 0xc0 ? 1
                      : (c & 0xf0) == 0xe0 ? 2
                      : (c & 0xf8) == 0xf0 ? 3
                                           : 4;
        if (c == 0)
            return "a text with a NUL byte";
        if (more == 4 || more > n - i - 1 || c == 0xc0 || c == 0xc1 || c > 0xf4)
            return "a text that is not UTF-8";
        for (size_t j = 1; j <= more; j++)
            if ((s[i + j] & 0xc0) != 0x80)
                return "a text that is not UTF-8";
        i += more + 1;
    }
    return NULL;
}

static bool packed_check(const struct wire_field *f, const ProtobufCFieldDescriptor *d, const uint8_t *data)
{
    size_t n = f->end - f->begin, offset = f->begin;
    uint64_t v;
    switch (d->type) {
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_SFIXED32:
        return n % 4 == 0;
    case PROTOBUF_C_TYPE_DOUBLE:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_SFIXED64:
        return n % 8 == 0;
    default:
        while (offset < f->end)
            if (!wire_varint(data, f->end, &offset, &v))
                return false;
        return true;
    }
}

static unsigned wire_type_of(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_SFIXED32:
        return WIRE_FIXED32;
    case PROTOBUF_C_TYPE_DOUBLE:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_SFIXED64:
        return WIRE_FIXED64;
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE:
        return WIRE_LENGTH;
    default:
        return WIRE_VARINT;
    }
}

/* Is this a short message name ("Operation") for errors. */
static const char *message_name(const ProtobufCMessageDescriptor *d)
{
    const char *dot = strrchr(d->name, '.');
    return dot ? dot + 1 : d->name;
}

static bool message_check(const ProtobufCMessageDescriptor *d, const uint8_t *data, size_t begin, size_t end,
                          int depth, struct err *e)
{
    uint64_t seen = 0; /* by index in d->fields; no message of the schema has 64 */
    const char *problem;
    struct wire_field f;

    if (depth > WIRE_DEPTH_MAX)
        return err_set(e, ERR_LIMIT, "messages nest more than %d deep at byte %zu", WIRE_DEPTH_MAX, begin);
    for (size_t offset = begin; offset < end;) {
        size_t at = offset;
        problem = wire_field_read(&f, data, end, &offset);
        if (problem)
            return err_set(e, ERR_FORMAT, "damaged at byte %zu (in a message %s): %s", at, message_name(d),
                           problem);
        const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field(d, f.number);
        if (!field)
            continue;
        bool repeated = field->label == PROTOBUF_C_LABEL_REPEATED;
        unsigned type = wire_type_of(field->type);
        if (f.type != type) {
            if (!repeated || f.type != WIRE_LENGTH || !packed_check(&f, field, data))
                return err_set(e, ERR_FORMAT,
                               "damaged at byte %zu: field %s of %s has wire type %u, expected %u", at,
                               field->name, message_name(d), f.type, type);
            continue;
        }
        if (field->type == PROTOBUF_C_TYPE_STRING) {
            problem = text_check(data + f.begin, f.end - f.begin);
            if (problem)
                return err_set(e, ERR_FORMAT, "damaged at byte %zu: field %s of %s is %s", at, field->name,
                               message_name(d), problem);
        } else if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
            uint64_t bit = (uint64_t)1 << ((field - d->fields) & 63);
            if (!repeated && (seen & bit))
                return err_set(e, ERR_FORMAT, "damaged at byte %zu: field %s of %s comes twice", at,
                               field->name, message_name(d));
            seen |= bit;
            if (!message_check(field->descriptor, data, f.begin, f.end, depth + 1, e))
                return false;
        }
    }
    return true;
}

/* What protobuf-c allocates: an arena with a limit. Nothing is given back before the arena goes. */
struct wire_memory {
    struct arena *arena;
    struct err error;
};

static void *wire_alloc(void *context, size_t bytes)
{
    struct wire_memory *w = context;
    return arena_try_alloc(w->arena, 1, bytes, &w->error);
}

static void wire_release(void *context, void *p)
{
    (void)context;
    (void)p;
}

bool wire_unpack(ProtobufCMessage **out, struct arena **arena, const ProtobufCMessageDescriptor *d,
                 const uint8_t *data, size_t bytes, const char *where, struct err *e)
{
    struct wire_memory memory = {0};
    ProtobufCAllocator allocator = {wire_alloc, wire_release, &memory};
    size_t limit;

    *out = NULL;
    *arena = NULL;
    if (bytes > WIRE_BYTES_MAX)
        return err_set(e, ERR_LIMIT, "%s: %zu bytes are too many for a model file, at most %zu", where, bytes,
                       WIRE_BYTES_MAX);
    if (!message_check(d, data, 0, bytes, 0, e))
        return err_wrap(e, "%s", where);
    limit = bytes * WIRE_MEMORY_FACTOR + WIRE_MEMORY_BASE;
    memory.arena = arena_new(limit);
    *arena = memory.arena;
    *out = protobuf_c_message_unpack(d, &allocator, bytes, data);
    if (*out)
        return true;
    if (memory.error.code)
        return err_set(e, memory.error.code, "%s: the model needs more than %zu bytes of memory to read",
                       where, limit);
    return err_set(e, ERR_FORMAT, "%s: damaged: not a message %s", where, message_name(d));
}

bool wire_pack(const ProtobufCMessage *message, struct buf *out, struct err *e)
{
    size_t bytes = protobuf_c_message_get_packed_size(message);
    uint8_t *packed = mem_try_alloc(bytes ? bytes : 1, e);
    if (!packed)
        return false;
    buf_append(out, packed, protobuf_c_message_pack(message, packed));
    mem_free(packed);
    return out->failed ? err_set(e, ERR_LIMIT, "the packed model is over %zu bytes", out->max_bytes) : true;
}

/* ---- Core ML's numbers ---- */

static const struct {
    enum mil_dtype dtype;
    int number;
} dtype_numbers[] = {
    {MIL_BOOL, 1},       {MIL_STRING, 2},   {MIL_FP16, 10},   {MIL_FP32, 11},   {MIL_FP64, 12},
    {MIL_BF16, 13},      {MIL_INT8, 21},    {MIL_INT16, 22},  {MIL_INT32, 23},  {MIL_INT64, 24},
    {MIL_INT4, 25},      {MIL_UINT8, 31},   {MIL_UINT16, 32}, {MIL_UINT32, 33}, {MIL_UINT64, 34},
    {MIL_UINT4, 35},     {MIL_UINT2, 36},   {MIL_UINT1, 37},  {MIL_UINT6, 38},  {MIL_UINT3, 39},
    {MIL_FP8E4M3FN, 40}, {MIL_FP8E5M2, 41},
};

enum mil_dtype dtype_from_protobuf(int number)
{
    for (size_t i = 0; i < sizeof dtype_numbers / sizeof dtype_numbers[0]; i++)
        if (dtype_numbers[i].number == number)
            return dtype_numbers[i].dtype;
    return MIL_DTYPE_NONE;
}

int dtype_to_protobuf(enum mil_dtype d)
{
    for (size_t i = 0; i < sizeof dtype_numbers / sizeof dtype_numbers[0]; i++)
        if (dtype_numbers[i].dtype == d)
            return dtype_numbers[i].number;
    return 0;
}

MilkitPb__TensorValue__ValueCase immediate_field(enum mil_dtype d)
{
    switch (d) {
    case MIL_BOOL:
        return MILKIT_PB__TENSOR_VALUE__VALUE_BOOLS;
    case MIL_STRING:
        return MILKIT_PB__TENSOR_VALUE__VALUE_STRINGS;
    case MIL_FP32:
        return MILKIT_PB__TENSOR_VALUE__VALUE_FLOATS;
    case MIL_FP64:
        return MILKIT_PB__TENSOR_VALUE__VALUE_DOUBLES;
    case MIL_INT64:
    case MIL_UINT64:
        return MILKIT_PB__TENSOR_VALUE__VALUE_LONG_INTS;
    case MIL_INT16:
    case MIL_UINT16:
    case MIL_INT32:
        return MILKIT_PB__TENSOR_VALUE__VALUE_INTS;
    default:
        return MILKIT_PB__TENSOR_VALUE__VALUE_BYTES;
    }
}
