/* The table of MIL operations: one row an op in ops.def, from which the verifier, shape inference, the
 * engine's dispatch, the tests and docs/mil-ops.md are made.
 *
 * A row: MIL_OP(ID, "name", OPSET, "histogram", RULE, "inputs", emitter, MEMORY, "sentence").
 * OPSET: first opset that has it (15 .. 19). histogram: the opsets in which the op changed, "16 18"; in a
 * model of opset N its name is prefixed by the largest of them that is <= N, and by nothing when there is
 * none. RULE: how result types follow from the operands, one of MIL_RULES. inputs: "x:T y:T? values:T*" (?
 * optional, * one or more; T number or bool, F float, I integer, N float or integer, B bool, S string, V state, A
 * anything). An input marked ! must be known when the program is compiled (a const or an immediate). emitter: the
 * engine's emit_ function, `none` of an op that it does not run, `one_by_one` of one that no plan can hold (runtime/interpreter.c runs it). MEMORY: VIEW of an op whose result may be the memory
 * of its operand, else OWN. A view that is not marked lets a read of a state be overtaken by the next write. The last
 * two are the engine's alone (engine/op_table.c, engine/op_memory.c).
 */
#ifndef MILKIT_MIL_OPS_H
#define MILKIT_MIL_OPS_H

#include "mil/mil.h"

/* The vocabulary of result rules: name and what the results are. Each has one function in infer_rules*.c. */
#define MIL_RULES(X)                                                                                         \
    X(DECLARED, "nothing is inferred, the declared types hold")                                              \
    X(CONST, "type of the attribute val")                                                                    \
    X(SAME, "type of x")                                                                                     \
    X(SAME_DATA, "type of data")                                                                             \
    X(BROADCAST, "x and y of one element type, shapes broadcast")                                            \
    X(COMPARE, "as BROADCAST, bool")                                                                         \
    X(LOGICAL_NOT, "shape of x, bool")                                                                       \
    X(SELECT, "cond, a and b broadcast; type of a")                                                          \
    X(CAST, "shape of x, dtype named by dtype")                                                              \
    X(QUANTIZE, "shape of input, dtype named by output_dtype")                                               \
    X(DEQUANTIZE, "shape of input, dtype of scale")                                                          \
    X(RESHAPE, "shape given by shape: -1 once, 0 copies")                                                    \
    X(RESHAPE_LIKE, "axes of x replaced by axes of ref_tensors")                                             \
    X(TRANSPOSE, "dims in the order of perm")                                                                \
    X(EXPAND_DIMS, "ones inserted at axes")                                                                  \
    X(SQUEEZE, "ones removed")                                                                               \
    X(TILE, "dims times reps")                                                                               \
    X(CONCAT, "sum along axis")                                                                              \
    X(STACK, "new axis of the number of values")                                                             \
    X(SPLIT, "several results along axis")                                                                   \
    X(SLICE_BY_INDEX, "begin, end, stride and masks")                                                        \
    X(SLICE_BY_SIZE, "begin and size")                                                                       \
    X(SLICE_UPDATE, "type of x; update fits the slice")                                                      \
    X(GATHER, "indices replace the axis")                                                                    \
    X(GATHER_ALONG, "shape of indices, dtype of x")                                                          \
    X(GATHER_ND, "tuples of indices")                                                                        \
    X(MATMUL, "batched product")                                                                             \
    X(LINEAR, "x times weight transposed")                                                                   \
    X(EINSUM, "by equation")                                                                                 \
    X(CONV, "convolution of 1 to 3 spatial axes")                                                            \
    X(CONV_TRANSPOSE, "transposed convolution")                                                              \
    X(POOL, "windows over the spatial axes")                                                                 \
    X(REDUCE, "axes removed or kept as 1")                                                                   \
    X(REDUCE_ARG, "one axis removed or kept as 1, integer")                                                  \
    X(ATTENTION, "query's shape with value's last axis")                                                     \
    X(PAD, "dims grown by pad")                                                                              \
    X(ONE_HOT, "new axis of one_hot_vector_size")                                                            \
    X(TOPK, "k along axis: values and indices")                                                              \
    X(ARGSORT, "shape of x, int32")                                                                          \
    X(RANGE_1D, "start, end, step")                                                                          \
    X(FILL, "shape given by shape, dtype of value")                                                          \
    X(FILL_LIKE, "shape of ref_tensor, dtype of value")                                                      \
    X(SHAPE, "int32 [rank of x]")                                                                            \
    X(NON_ZERO, "int32 [?, rank of x]")                                                                      \
    X(FLATTEN2D, "two axes")                                                                                 \
    X(DEPTH_TO_SPACE, "channels to spatial axes")                                                            \
    X(SPACE_TO_DEPTH, "spatial axes to channels")                                                            \
    X(PIXEL_SHUFFLE, "channels to spatial axes, by upscale_factor")                                          \
    X(PIXEL_UNSHUFFLE, "spatial axes to channels, by downscale_factor")                                      \
    X(SLIDING_WINDOWS, "windows along axis, elements on a new axis behind")                                  \
    X(READ_STATE, "the tensor in the state")                                                                 \
    X(WRITE_STATE, "no result; data has the state's type")                                                   \
    X(CONSTEXPR_AFFINE, "shape of quantized_data, dtype of scale")                                           \
    X(CONSTEXPR_LUT, "shape given by shape (ios16) or by indices; dtype of lut")                             \
    X(CONSTEXPR_SPARSE, "shape given by shape (ios16) or by mask; dtype of nonzero_data")                    \
    X(CONSTEXPR_CAST, "shape of source_val, dtype named by output_dtype")                                    \
    X(CONSTEXPR_BLOCK, "shape of data, dtype of scale")                                                      \
    X(CONSTEXPR_LUT_SPARSE, "mask, and lut's dtype for its set elements")                                    \
    X(CONSTEXPR_BLOCK_SPARSE, "mask, and scale's dtype for its set elements")                                \
    X(UPSAMPLE, "spatial axes scaled by constant factors")                                                   \
    X(CROP, "the last two axes less what is cut")                                                            \
    X(RESIZE, "the last axes of the sizes that are given")                                                   \
    X(CROP_RESIZE, "boxes, channels and a size; of roi with the images of each box")                         \
    X(AFFINE, "x with the size that is given")                                                               \
    X(RESAMPLE, "x with the size of coordinates")                                                            \
    X(SPACE_TO_BATCH, "spatial blocks to the batch")                                                         \
    X(BATCH_TO_SPACE, "the batch to spatial blocks")                                                         \
    X(SUPPRESSION, "max_boxes boxes, scores and indices of each image, and their number")                    \
    X(RANDOM, "shape given by shape, dtype of the parameters")                                               \
    X(RANDOM_CATEGORICAL, "x with size samples on its last axis")                                            \
    X(RNN, "recurrent layers: the outputs of all steps or the last, and the last states")

enum mil_rule {
#define MIL_RULE_ENUM(name, doc) MIL_RULE_##name,
    MIL_RULES(MIL_RULE_ENUM)
#undef MIL_RULE_ENUM
        MIL_RULE_COUNT
};

enum mil_op_id {
    MIL_OP_NONE = 0,
#define MIL_OP(id, name, opset, histogram, rule, inputs, emitter, memory, doc) MIL_OP_##id,
#include "mil/ops.def"
#undef MIL_OP
    MIL_OP_COUNT
};

struct mil_op_info {
    enum mil_op_id id;
    const char *name;
    int opset; /* 15 .. 19 */
    const char *histogram, *inputs, *doc;
    enum mil_rule rule;
};

/* One input of a row, parsed. */
struct mil_op_input {
    struct str name;
    char type_class; /* T F I N B S V A */
    bool is_optional, is_variadic, is_compile_time;
};

const struct mil_op_info *mil_op_info_find(const char *name); /* NULL when not in the table */
const struct mil_op_info *mil_op_info_by_id(enum mil_op_id id);
const char *mil_rule_name(enum mil_rule rule);
const char *mil_rule_doc(enum mil_rule rule);
/* Walks the inputs of a row: *at starts as info->inputs. False at the end. */
bool mil_op_input_next(const char **at, struct mil_op_input *input);
/* Key of an op in metadata.json's mlProgramOperationTypeHistogram for a model of this opset ("Ios18.matmul",
 * "Transpose"). */
void mil_op_histogram_key(char dst[96], const char *op_type, int opset);
int mil_opset_number(const char *opset); /* "CoreML8" -> 18, "ios18" -> 18; 0 when unknown */

#endif
