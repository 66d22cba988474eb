/* Weight compression: palettes (constexpr_lut_to_dense) and linear integers (constexpr_blockwise_shift_scale).
 *
 * Three layers. The scratch clusters one group of fp16 values (collect, cluster, assign). A quant_weight is a
 * weight of a program whose codes and table are values of their own: it runs unit by unit, each unit a run of
 * groups whose codes begin and end at whole bytes, so units may be worked on by any thread in any order.
 * quant_apply turns the weights of a built program into such. Sources are fp16, rounded as a package without
 * quantization would store them. The bytes depend on the input alone: not on threads, not on the machine.
 */
#ifndef MILKIT_QUANT_QUANT_H
#define MILKIT_QUANT_QUANT_H

#include "mil/mil.h"
#include "quant/guide.h"

enum quant_kind { QUANT_NONE, QUANT_LUT, QUANT_INT8, QUANT_INT4 };

/* How tables and entries are found: rows of a table in spec.c. */
enum quant_method {
    QUANT_KMEANS,     /* within 0.1 % of the smallest squared error */
    QUANT_EXACT,      /* the smallest squared error */
    QUANT_ACTIVATION, /* k-means by the inputs' mean squares */
    QUANT_FISHER,     /* k-means by each weight's importance (quant_weight.each) */
    QUANT_FEEDBACK,   /* tables as QUANT_ACTIVATION's, entries by error feedback (guide.h) */
    QUANT_BEST,       /* then least-squares tables and coordinate descent, layer after layer (guided.c) */
    QUANT_METHODS
};
/* What a method has to know beside the weights; a weight of which that is not known gets k-means. */
enum quant_needs { QUANT_NEEDS_NOTHING, QUANT_NEEDS_INPUTS, QUANT_NEEDS_GRADIENTS };

struct quant_spec {
    enum quant_kind kind;
    int bits;      /* LUT: 1, 2, 3, 4, 6 or 8 */
    int64_t group; /* LUT: output channels that share a table; 0: all. INT8: 1 or, one scale for all, 0 */
    int64_t block; /* INT4: inputs that share a scale */
    enum quant_method method;
};

/* "4", "4,8", "4,0", "4,tensor" (group 8 when not given); "int8", "int8,tensor", "int4,32", "int4" (block
 * 32); "none" or "": not at all. name: the option, for the message. */
bool quant_parse_lut(struct quant_spec *out, const char *name, const char *text, struct err *e) MUST_CHECK;
bool quant_parse_linear(struct quant_spec *out, const char *name, const char *text, struct err *e) MUST_CHECK;
const char *quant_method_name(enum quant_method m);
enum quant_needs quant_method_needs(enum quant_method m);
bool quant_method_find(const char *name, enum quant_method *out);
/* "kmeans, exact or feedback": all of them, heap */
char *quant_method_list(void);
/* "LUT4, 8 channels a table", for people. */
void quant_describe(char dst[64], const struct quant_spec *s);
/* The largest divisor of n that is not above wish (n for wish 0): ios18 tables and scales lie on a regular
 * grid, so a ragged last group is not representable and every group is made a little smaller instead. */
int64_t quant_divisor(int64_t n, int64_t wish);

/* ---- one group ---- */

#define QUANT_ENTRIES_MAX 256

/* Memory of one thread: about 5 MB, up to 40 MB more while the exact method works on large groups. */
struct quant_scratch;
struct quant_scratch *quant_scratch_new(void);
void quant_scratch_free(struct quant_scratch *s); /* accepts NULL */

/* Counts values of a group, in any number of calls after the begin. importance [n_columns] or NULL: the
 * weight of the column of each value, positive and finite; the first of w is at column `column`. */
void quant_collect_begin(struct quant_scratch *s);
void quant_collect(struct quant_scratch *s, const f16 *w, int64_t n, const float *importance, int64_t column,
                   int64_t n_columns);
/* The same with an importance of each value, [n], positive and finite: all values of a group come with one, or none does. */
void quant_collect_each(struct quant_scratch *s, const f16 *w, int64_t n, const float *importance);
/* Squares of errors and of values, over the elements (not weighted by importance). */
struct quant_stats {
    double error, energy;
    double largest; /* error of one element */
    int64_t n;
};
void quant_stats_add(struct quant_stats *to, const struct quant_stats *s);
double quant_stats_relative(const struct quant_stats *s); /* error / energy; 0 for nothing but zeros */
/* table [1 << bits], ascending; fewer distinct values than entries: the last one fills the rest. -0 counts
 * as 0. False when a value is not finite. stats is added to. */
bool quant_cluster(struct quant_scratch *s, int bits, enum quant_method method, f16 *table,
                   struct quant_stats *stats, struct err *e) MUST_CHECK;
/* The entries that are nearest (the lower one of two) for values that were collected. */
void quant_assign(const struct quant_scratch *s, const f16 *w, int64_t n, uint8_t *codes);
/* The weighted squared error of the last cluster call before its table was rounded to fp16: what the methods
 * minimise. For tests. */
double quant_cluster_cost(const struct quant_scratch *s);

/* A matrix at once, groups along the rows, the last one ragged: codes [rows * columns] one a byte, tables
 * [ceil(rows / group)][1 << bits]. importance [columns] or NULL. */
bool quant_palettize(struct quant_scratch *s, const f16 *w, int64_t rows, int64_t columns, int64_t group,
                     int bits, enum quant_method method, const float *importance, uint8_t *codes, f16 *tables,
                     struct quant_stats *stats, struct err *e) MUST_CHECK;

/* ---- linear ---- */

/* One scale for n values: symmetric, largest magnitude to 127. */
f16 quant_int8_scale(const f16 *w, int64_t n);
void quant_int8(const f16 *w, int64_t n, f16 scale, uint8_t *codes, struct quant_stats *stats);
/* One block of int4: the scale of the smallest squared error among a dozen near the largest magnitude / 7;
 * codes -8 .. 7 in the low four bits. */
f16 quant_int4(const f16 *w, int64_t n, uint8_t *codes, struct quant_stats *stats);

/* ---- packing ---- */

/* n codes of `bits` bits each, least significant first, into ceil(n * bits / 8) bytes; unused bits are 0. */
void quant_pack(const uint8_t *codes, int64_t n, int bits, uint8_t *dst);
/* Codes [begin, begin + n) back. */
void quant_unpack(const uint8_t *src, int64_t begin, int64_t n, int bits, uint8_t *codes);

/* ---- weights of a program ---- */

struct quant_weight {
    const char *name;                /* of the checkpoint tensor */
    int ordinal;                     /* among weights of this name, in the order of first use, from 0 */
    const struct mil_value *source;  /* fp16, produced on demand */
    struct mil_value *codes, *table; /* what the program refers to now; their bytes come from units */
    /* Importance of each element, [rows, columns], or NULL: a column's. Set before the first unit runs. */
    const float *each;
    struct quant_spec spec; /* as it is carried out: group and block divide their axes, 0 is gone */
    int64_t rows, columns;
    const float *importance; /* [columns] or NULL; set before the first unit runs */
    struct quant_made *made; /* what units hand on, made before the first one runs; NULL: they make it */
    int64_t rows_per_unit, n_units;
};

enum quant_output { QUANT_CODES, QUANT_TABLE };
/* Takes bytes [at, at + n) of codes or table. */
struct quant_sink {
    bool (*put)(struct quant_sink *sink, enum quant_output which, uint64_t at, const void *data, size_t n,
                struct err *e);
    void *ctx;
};
/* Runs one unit; stats is added to. */
bool quant_weight_run(const struct quant_weight *w, int64_t unit, struct quant_scratch *s,
                      struct quant_sink *sink, struct quant_stats *stats, struct err *e) MUST_CHECK;

/* Which weights: those of 1x1 convolutions and linear layers that the program multiplies with, and the tables
 * that it gathers rows from. Norms, biases, depthwise convolutions, and weights that say keep_fp16 stay. */
enum { QUANT_LINEAR = 1, QUANT_TABLES = 2 };
struct quant_choices;
/* Replaces their const ops in every function by ops that expand (codes, table); names stay, functions share
 * the values. *out [*n]: pointers, in the order of first use, in the model's arena. choices: widths of single
 * weights, spec's for those that are not in it; NULL: spec's for all. */
bool quant_apply(struct mil_model *m, const struct quant_spec *spec, const struct quant_choices *choices,
                 unsigned which, struct quant_weight ***out, int *n, struct err *e) MUST_CHECK;
/* The quant_weight that makes this value's bytes (its codes or its table), or NULL. */
const struct quant_weight *quant_weight_of(const struct mil_value *v);

/* ---- palettes by what is known of the inputs (guided.c) ---- */

/* A whole palette in memory. */
struct quant_made {
    uint8_t *codes; /* [rows, columns] */
    f16 *tables;    /* [rows / group, 1 << bits] */
};
/* Room for it: w->made. NULL: ERR_NOMEM. It may live longer than the weight. */
struct quant_made *quant_made_new(struct quant_weight *w, struct err *e) MUST_CHECK;
void quant_made_free(struct quant_made *m); /* accepts NULL */
/* Rows from `row` on, whole groups: tables by k-means with the columns' importance [columns], which may be NULL, and nearest
 * entries. */
bool quant_make_nearest(struct quant_weight *w, int64_t row, int64_t n_rows, const float *importance,
                        struct pool *pool, struct err *e) MUST_CHECK;
/* Columns of rows, whole groups, that are multiplied with one input. */
struct quant_piece {
    int64_t row, n_rows, column, n_columns;
    const struct quant_guide *guide;
};
/* After quant_make_nearest: entries by error feedback; tables and entries by least squares and descent when the guide is for
 * that and the piece has all columns. The same for any number of threads and any instruction set. */
bool quant_make_piece(struct quant_weight *w, const struct quant_piece *at, struct pool *pool,
                      struct err *e) MUST_CHECK;

/* ---- mixed widths ---- */

/* The next width above, 0 above 8. */
int quant_wider(int bits);

/* One weight and its width: the narrow one or the next. */
struct quant_choice {
    const char *name; /* of the checkpoint tensor */
    int ordinal;      /* among weights of this name, in the order of first use, from 0 */
    int64_t n_elems;
    double narrow_error, wide_error; /* measured: what the layer's output loses with either width */
    int bits;
};
struct quant_choices {
    struct quant_choice *list;
    int n, narrow, wide; /* widths in bits */
    double limit, mean;  /* bits of an element on average: allowed, chosen */
    int64_t n_tokens;    /* that the errors were measured on */
};
/* Sets every weight's bits and the mean. Bits go first to where they take most error away, for each bit, as long
 * as the mean stays within the limit; among equals the first comes first. Errors count to three digits, so that
 * the last bits of a measurement, which machines may differ in, decide nothing; they must be finite. */
void quant_choose(struct quant_choices *c);
/* NULL when there is none. */
const struct quant_choice *quant_find_choice(const struct quant_choices *c, const char *name, int ordinal);

#endif
