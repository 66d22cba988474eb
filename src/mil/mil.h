/* The MIL program in memory: Core ML's intermediate language as one object graph in one arena.
 *
 * A model is what a .mlmodel or .mlmodelc holds: a specification version, a description of inputs, outputs
 * and states (the contract with callers) and a program of functions. Everything inside is owned by the
 * model's arena and is never freed singly; weights are references: data pointers into mapped blob files (or,
 * in a program under construction, producers of bytes). Functions of one program share weights by sharing the
 * struct mil_value.
 *
 * Names: within a function every variable has one definition (function input, or output of one op) and a
 * dense id.
 */
#ifndef MILKIT_MIL_MIL_H
#define MILKIT_MIL_MIL_H

#include "base/mem.h"
#include "base/half.h"

#define MIL_RANK_MAX 8
#define MIL_DIM_UNKNOWN (-1)  /* printed "?" */
#define MIL_DIM_VARIADIC (-2) /* printed "..." */

enum mil_dtype {
    MIL_DTYPE_NONE = 0,
    MIL_BOOL,
    MIL_STRING,
    MIL_FP16,
    MIL_FP32,
    MIL_FP64,
    MIL_BF16,
    MIL_INT4,
    MIL_INT8,
    MIL_INT16,
    MIL_INT32,
    MIL_INT64,
    MIL_UINT1,
    MIL_UINT2,
    MIL_UINT3,
    MIL_UINT4,
    MIL_UINT6,
    MIL_UINT8,
    MIL_UINT16,
    MIL_UINT32,
    MIL_UINT64,
    MIL_FP8E4M3FN,
    MIL_FP8E5M2,
    MIL_DTYPES
};
const char *mil_dtype_name(enum mil_dtype d);           /* "fp16"; "?" for none */
enum mil_dtype mil_dtype_find(const char *s, size_t n); /* MIL_DTYPE_NONE when unknown */
int mil_dtype_bits(enum mil_dtype d); /* 16 for fp16, 4 for int4, 8 for bool; 0 for string and none */
bool mil_dtype_is_float(enum mil_dtype d);
bool mil_dtype_is_integer(enum mil_dtype d); /* not bool */

enum mil_type_kind { MIL_TYPE_TENSOR, MIL_TYPE_LIST, MIL_TYPE_TUPLE, MIL_TYPE_DICT, MIL_TYPE_STATE };

struct mil_type {
    enum mil_type_kind kind;
    enum mil_dtype dtype;        /* tensor */
    int rank;                    /* tensor; 0: a scalar */
    const int64_t *dims;         /* tensor: [rank], MIL_DIM_UNKNOWN allowed */
    const struct mil_type *elem; /* list, state */
    int64_t length;              /* list: or MIL_DIM_UNKNOWN */
    int n_items;                 /* tuple: n, dict: 2 (key, value) */
    const struct mil_type *const *items;
};

/* Elements of a tensor type: -1 when a dimension is unknown or the product overflows. A scalar has 1. */
int64_t mil_type_elems(const struct mil_type *t);
/* Bytes of all elements, sub-byte types packed: -1 as above and for strings. */
int64_t mil_type_bytes(const struct mil_type *t);
bool mil_type_equal(const struct mil_type *a, const struct mil_type *b);
/* The tensor inside a state, else t itself. */
const struct mil_type *mil_type_tensor(const struct mil_type *t);
struct mil_type *mil_type_new_tensor(struct arena *a, enum mil_dtype d, int rank,
                                     const int64_t *dims); /* copies dims */
struct mil_type *mil_type_new_state(struct arena *a, const struct mil_type *tensor);
/* "tensor<fp16, [1, 64]>" or "fp16" into dst, as the text form of dialect 1.3 prints it; for messages. */
void mil_type_text(char *dst, size_t n, const struct mil_type *t);

/* A weight that is not in a file yet. */
struct mil_weight {
    const char *name; /* of the checkpoint tensor(s), for reports and errors */
    /* Writes elements [begin, begin + n) in the value's dtype to dst. Thread safe. begin * bits is a multiple
     * of 8. */
    bool (*produce)(const struct mil_weight *w, int64_t begin, int64_t n, void *dst, struct err *e);
    const void *context; /* of the producer */
    int64_t arg[4];      /* of the producer: row ranges, factors */
    double factor;
    bool keep_fp16; /* the model suffers when this one is palettized or quantized (routers) */
};

enum mil_value_kind {
    MIL_VALUE_TENSOR, /* immediate: data [bytes] little endian, sub-byte packed as in weight.bin; strings in
                         strings */
    MIL_VALUE_ITEMS,  /* immediate list, tuple (n_items) or dict (key, value alternating) */
    MIL_VALUE_BLOB,   /* in a blob file: file and offset; data set once the file is mapped
                         (mil_model_map_weights) */
    MIL_VALUE_WEIGHT  /* produced on demand by weight (a program under construction) */
};

struct mil_value {
    enum mil_value_kind kind;
    const struct mil_type *type;
    const void *data; /* TENSOR, BLOB: element bytes (bool: one byte each), NULL while unmapped */
    size_t bytes;
    int64_t n_elems;
    const struct str *strings; /* TENSOR of strings: [n_elems] */
    int n_items;               /* ITEMS: entries of items */
    const struct mil_value *const *items;
    const char *file; /* BLOB: as written, "@model_path/weights/weight.bin" */
    uint64_t offset;  /* BLOB: of the metadata record */
    const struct mil_weight *weight;
};

struct mil_op;
struct mil_var {
    const char *name;
    const struct mil_type *type;
    int id;            /* dense in its function: 0 .. n_vars - 1 */
    struct mil_op *op; /* that defines it; NULL for a function (or nested block) input */
};

struct mil_named_value {
    const char *name;
    const struct mil_value *value;
};

/* What an argument is bound to: a variable or an immediate value, exactly one is set. */
struct mil_binding {
    struct mil_var *var;
    const struct mil_value *value;
};

struct mil_arg {
    const char *name;
    int n; /* more than one: variadic (concat values); a variadic argument may have one */
    struct mil_binding *bindings;
};

struct mil_op_info;
struct mil_block;
struct mil_op {
    const char *type;
    const struct mil_op_info *info; /* NULL: not in the table; kept and printed, can't be run */
    int n_args, n_outputs, n_attributes, n_blocks;
    struct mil_arg *args;
    struct mil_var **outputs;
    struct mil_named_value *attributes; /* "name", "val" of const, parameters of old constexpr ops */
    struct mil_block **blocks; /* of cond, while_loop: kept by protobuf, refused by text and engine */
};

struct mil_block {
    int n_inputs, n_outputs, n_ops, n_attributes;
    struct mil_var **inputs; /* nested blocks only */
    struct mil_var **outputs;
    struct mil_op **ops; /* in order */
    struct mil_named_value *attributes;
};

struct mil_function {
    const char *name;
    const char *opset; /* as in protobuf: "CoreML8" (text: ios18) */
    int n_inputs, n_attributes, n_vars;
    struct mil_var **inputs; /* tensors and states */
    struct mil_named_value *attributes;
    struct mil_block *block;
};

struct mil_program {
    int64_t version; /* 1 */
    int n_functions, n_attributes;
    struct mil_function **functions;
    struct mil_named_value *attributes; /* buildInfo */
    const char *doc;
};

/* ---- description: what callers see ---- */

enum mil_feature_kind {
    MIL_FEATURE_ARRAY,
    MIL_FEATURE_STATE,
    MIL_FEATURE_INT64,
    MIL_FEATURE_DOUBLE,
    MIL_FEATURE_STRING,
    MIL_FEATURE_DICT,
    MIL_FEATURE_IMAGE,
    MIL_FEATURE_SEQUENCE,
    MIL_FEATURE_NONE
};

struct mil_range {
    int64_t lower, upper; /* upper < 0: unbounded */
};

/* How the numbers of an image's pixels stand in its tensor [1, channels, height, width]. */
enum mil_color { MIL_COLOR_NONE, MIL_COLOR_GRAY, MIL_COLOR_RGB, MIL_COLOR_BGR, MIL_COLOR_GRAY_FP16 };

struct mil_feature {
    const char *name, *short_description;
    enum mil_feature_kind kind;
    bool is_optional;
    enum mil_dtype dtype; /* array, state: MIL_FP16, MIL_FP32, MIL_FP64, MIL_INT32, MIL_INT8 */
    enum mil_color color; /* image */
    int rank;
    const int64_t *shape; /* array, state, image: [rank]; the default shape of a flexible one */
    int n_enumerated;     /* enumerated shapes, each [enumerated_ranks[i]] */
    const int64_t *const *enumerated;
    const int *enumerated_ranks;
    int n_ranges; /* one per axis */
    const struct mil_range *ranges;
    bool dict_key_is_int64; /* dict */
    double default_value;   /* of an optional array that is not given */
};

struct mil_function_description {
    const char *name; /* NULL in a model of one function without a function table */
    int n_inputs, n_outputs, n_states;
    struct mil_feature *inputs, *outputs, *states;
    const char *predicted_feature_name, *predicted_probabilities_name;
};

struct mil_text_pair {
    const char *key, *value;
};

struct mil_description {
    /* The model has a function table (protobuf field 20) or one unnamed function (fields 1, 10, 13). */
    bool has_functions;
    int n_functions;
    struct mil_function_description *functions;
    const char *default_function_name;                          /* NULL without a function table */
    const char *short_description, *version, *author, *license; /* "" when absent */
    int n_user_defined;
    struct mil_text_pair *user_defined; /* sorted by key when milkit made the model, else in file order */
    /* The serialized ModelDescription as read (fields re-packed in ascending order, metadata always present);
     * NULL in a model under construction. What is unknown to this struct survives in it. */
    const uint8_t *bytes;
    size_t n_bytes;
};

struct blob_file;
struct mil_model {
    struct arena *arena;
    const char *path;          /* what was opened; NULL in a model under construction */
    const char *root;          /* folder that "@model_path" means; NULL likewise */
    int specification_version; /* 6 .. 10 */
    bool is_updatable;
    struct mil_description description;
    struct mil_program *program;
    int n_files;
    struct blob_file **files; /* mapped weight files, closed by mil_model_close */
    char **file_names;
};

struct mil_model *mil_model_new(int specification_version);
void mil_model_close(struct mil_model *m); /* accepts NULL; frees everything, unmaps weights */

/* Opens X.mlpackage, X.mlmodelc, or a bare .mlmodel: reads the program, maps the weights (checking every
 * reference against its file: sentinel, type, range) and verifies it. A folder of the wrong kind, an LFS
 * pointer, a model that is no ML Program, a damaged file: errors that say so. flags: MIL_OPEN_*. */
enum { MIL_OPEN_NO_WEIGHTS = 1 /* leave weights unmapped (inspect, compile) */, MIL_OPEN_NO_VERIFY = 2 };
bool mil_model_open(struct mil_model **out, const char *path, unsigned flags, struct err *e) MUST_CHECK;
bool mil_model_map_weights(struct mil_model *m, struct err *e) MUST_CHECK;
/* map_drop_pages of all weight files. */
void mil_model_drop_pages(const struct mil_model *m);
struct mil_function *mil_function_find(const struct mil_model *m, const char *name); /* NULL when absent */
const struct mil_function_description *mil_function_description_find(const struct mil_model *m,
                                                                     const char *name);
/* The function that runs when none is named. */
const char *mil_default_function_name(const struct mil_model *m);

/* ---- looking at ops ---- */

const struct mil_arg *mil_arg_find(const struct mil_op *op, const char *name); /* NULL when absent */
/* The single variable of an argument, NULL when absent, variadic or immediate. */
struct mil_var *mil_arg_var(const struct mil_op *op, const char *name);
const struct mil_value *mil_attribute(const struct mil_op *op, const char *name);
/* The compile-time value of a binding: an immediate, or the val of the const op behind the variable; else
 * NULL. */
const struct mil_value *mil_binding_value(const struct mil_binding *b);
const struct mil_value *mil_arg_value(const struct mil_op *op, const char *name);
bool mil_op_is(const struct mil_op *op, const char *type);
/* Compile-time numbers out of a value (any integer, bool or float type). False when there is no such value.
 */
bool mil_value_ints(const struct mil_value *v, int64_t *dst, int n_max, int *n);
bool mil_value_float(const struct mil_value *v, double *dst); /* of one element */
bool mil_value_string(const struct mil_value *v, struct str *dst);
/* Element i of a mapped or immediate numeric tensor value as a double (fp16, fp32, fp64, bf16, integers incl.
 * sub-byte). */
double mil_value_element(const struct mil_value *v, int64_t i);
/* Elements [first, first + n) of such a value as floats, NaN where there is none; many at a time. */
void mil_value_floats(float *dst, const struct mil_value *v, int64_t first, int64_t n);

#endif
