/* Quantized weights of a program: which ones, what the ops become, and bytes that do not depend on who runs
 * which unit. */
#include "support.h"
#include "base/pool.h"
#include "mil/build.h"
#include "values.h"

struct source {
    f16 *values;
    int64_t n;
};

static bool produce(const struct mil_weight *w, int64_t begin, int64_t n, void *dst, struct err *e)
{
    const struct source *s = w->context;
    (void)e;
    assert_true(begin >= 0 && begin + n <= s->n);
    memcpy(dst, s->values + begin, (size_t)n * 2);
    return true;
}

static const struct mil_value *new_weight(struct mil_model *m, struct source *s, const char *name, int rank,
                                          const int64_t *dims)
{
    struct mil_weight w = {.name = name, .produce = produce, .context = s, .factor = 1.0};
    return mil_value_new_weight(m, MIL_FP16, rank, dims, &w);
}

static void make_source(struct source *s, int64_t n, enum values_kind kind)
{
    s->n = n;
    s->values = malloc((size_t)n * 2);
    fill_values(s->values, n, kind);
}

/* A function with a gather, a norm vector, two convolutions of one weight, a depthwise one, a kept one. */
static void build(struct mil_model *m, const char *name, const struct mil_value *const weights[5])
{
    struct mil_builder *b = mil_builder_new(m, name, "CoreML8");
    int64_t one = 1;
    struct mil_var *ids = mil_build_input(b, "ids", MIL_INT32, 1, &one);
    struct mil_var *table = mil_build_const(b, weights[0], "table_weight");
    struct mil_var *zero = mil_build_int(b, 0, NULL), *batch = mil_build_int(b, 0, NULL);
    struct mil_var *no = mil_build_bool(b, false, NULL);
    struct mil_build_arg gather[] = {{.name = "x", .var = table},
                                     {.name = "indices", .var = ids},
                                     {.name = "axis", .var = zero},
                                     {.name = "batch_dims", .var = batch},
                                     {.name = "validate_indices", .var = no}};
    struct mil_var *x = mil_build_op(b, "gather", "rows", gather, 5);
    struct mil_build_arg scaled[] = {{.name = "x", .var = x},
                                     {.name = "y", .var = mil_build_const(b, weights[1], "norm_weight")}};
    x = mil_build_op(b, "mul", "scaled", scaled, 2);
    int32_t shape[] = {1, 24, 1, 1};
    struct mil_build_arg reshape[] = {{.name = "x", .var = x}, MIL_ARG_INTS("shape", shape, 4)};
    x = mil_build_op(b, "reshape", "channels", reshape, 2);
    for (int i = 0; i < 4; i++) {
        int which = i < 2 ? 2 : i + 1;
        struct mil_build_arg conv[] = {{.name = "x", .var = x},
                                       MIL_ARG_VALUE("weight", weights[which], NULL),
                                       MIL_ARG_INT("groups", which == 3 ? 24 : 1)};
        x = mil_build_op(b, "conv", NULL, conv, 3);
    }
    ASSERT_OK(mil_builder_finish(b, &x, 1, e));
}

static const struct mil_op *op_of(const struct mil_model *m, const char *function, const char *var)
{
    const struct mil_function *f = mil_function_find(m, function);
    for (int i = 0; i < f->block->n_ops; i++) {
        const struct mil_op *op = f->block->ops[i];
        if (op->n_outputs == 1 && strcmp(op->outputs[0]->name, var) == 0)
            return op;
    }
    fail_msg("no %s", var);
    return NULL;
}

static void test_apply(void **state)
{
    (void)state;
    struct source sources[5];
    struct mil_model *m = mil_model_new(9);
    int64_t table[] = {50, 24}, norm[] = {24}, conv[] = {24, 24, 1, 1}, depthwise[] = {24, 1, 1, 1};
    make_source(&sources[0], 50 * 24, VALUES_NORMAL);
    make_source(&sources[1], 24, VALUES_NORMAL);
    make_source(&sources[2], 24 * 24, VALUES_NORMAL);
    make_source(&sources[3], 24, VALUES_NORMAL);
    make_source(&sources[4], 24 * 24, VALUES_NORMAL);
    const struct mil_value *weights[5];
    weights[0] = new_weight(m, &sources[0], "table", 2, table);
    weights[1] = new_weight(m, &sources[1], "norm", 1, norm);
    weights[2] = new_weight(m, &sources[2], "proj", 4, conv);
    weights[3] = new_weight(m, &sources[3], "depthwise", 4, depthwise);
    weights[4] = new_weight(m, &sources[4], "router", 4, conv);
    ((struct mil_weight *)weights[4]->weight)->keep_fp16 = true;
    build(m, "infer", weights);
    build(m, "prefill", weights);
    struct quant_weight **list = NULL;
    int n = 0;
    struct quant_spec spec = {.kind = QUANT_LUT, .bits = 3, .group = 8};
    ASSERT_OK(quant_apply(m, &spec, NULL, QUANT_LINEAR, &list, &n, e));
    assert_int_equal(n, 1);
    assert_string_equal(list[0]->name, "proj");
    assert_ptr_equal(list[0]->source, weights[2]);
    assert_int_equal(list[0]->spec.group, 8);
    static const char *const functions[] = {"infer", "prefill"};
    for (int i = 0; i < 2; i++) {
        const struct mil_op *op = op_of(m, functions[i], "conv_0_weight_0");
        assert_string_equal(op->type, "constexpr_lut_to_dense");
        assert_int_equal(op->info->id, MIL_OP_CONSTEXPR_LUT_TO_DENSE);
        assert_int_equal(op->n_attributes, 1);
        assert_string_equal(op->attributes[0].name, "name");
        assert_ptr_equal(mil_arg_value(op, "indices"), list[0]->codes);
        assert_ptr_equal(mil_arg_value(op, "lut"), list[0]->table);
        assert_string_equal(op_of(m, functions[i], "table_weight")->type, "const");
        assert_string_equal(op_of(m, functions[i], "norm_weight")->type, "const");
    }
    assert_int_equal(list[0]->codes->type->dtype, MIL_UINT3);
    assert_int_equal(list[0]->codes->bytes, 24 * 24 * 3 / 8);
    static const int64_t lut[] = {3, 1, 1, 1, 8, 1};
    assert_int_equal(list[0]->table->type->rank, 6);
    assert_memory_equal(list[0]->table->type->dims, lut, sizeof lut);
    assert_ptr_equal(quant_weight_of(list[0]->codes), list[0]);
    assert_ptr_equal(quant_weight_of(list[0]->table), list[0]);
    assert_null(quant_weight_of(weights[2]));
    /* What is left: the table, by its own call; the rest never. */
    spec = (struct quant_spec){.kind = QUANT_INT4, .bits = 4, .block = 16};
    ASSERT_OK(quant_apply(m, &spec, NULL, QUANT_LINEAR | QUANT_TABLES, &list, &n, e));
    assert_int_equal(n, 1);
    assert_string_equal(list[0]->name, "table");
    assert_int_equal(list[0]->spec.block, 12); /* 16 does not divide 24 */
    assert_string_equal(op_of(m, "prefill", "table_weight")->type, "constexpr_blockwise_shift_scale");
    static const int64_t scale[] = {50, 2};
    assert_memory_equal(list[0]->table->type->dims, scale, sizeof scale);
    for (int i = 0; i < 2; i++) {
        struct mil_function *f = mil_function_find(m, functions[i]);
        struct arena *a = arena_new(0);
        const struct mil_type **types = ARENA_ARRAY(a, const struct mil_type *, f->n_vars);
        ASSERT_OK(mil_infer_function(f, NULL, types, NULL, a, e));
        arena_free(a);
    }
    mil_model_close(m);
    for (int i = 0; i < 5; i++)
        free(sources[i].values);
}

/* ---- bytes ---- */

struct store {
    uint8_t *codes, *table, *written; /* written [codes + table]: how often each byte was put */
    size_t n_codes, n_table;
};

static bool put(struct quant_sink *sink, enum quant_output which, uint64_t at, const void *data, size_t n,
                struct err *e)
{
    struct store *s = sink->ctx;
    (void)e;
    size_t limit = which == QUANT_CODES ? s->n_codes : s->n_table;
    assert_true(at <= limit && n <= limit - at);
    memcpy((which == QUANT_CODES ? s->codes : s->table) + at, data, n);
    uint8_t *count = s->written + (which == QUANT_CODES ? 0 : s->n_codes) + at;
    for (size_t i = 0; i < n; i++)
        assert_int_equal(count[i]++, 0);
    return true;
}

static void store_init(struct store *s, const struct quant_weight *w)
{
    s->n_codes = w->codes->bytes;
    s->n_table = w->table->bytes;
    s->codes = malloc(s->n_codes);
    s->table = malloc(s->n_table);
    s->written = calloc(s->n_codes + s->n_table, 1);
}

static void store_check(struct store *s)
{
    for (size_t i = 0; i < s->n_codes + s->n_table; i++)
        assert_int_equal(s->written[i], 1);
}

static void store_fini(struct store *s)
{
    free(s->codes);
    free(s->table);
    free(s->written);
}

static struct quant_weight *quantize_one(struct mil_model *m, struct source *s, int64_t rows, int64_t columns,
                                         const struct quant_spec *spec)
{
    struct quant_weight **list = NULL;
    int n = 0;
    int64_t dims[] = {rows, columns, 1, 1}, in[] = {1, columns, 1, 1};
    struct mil_builder *b = mil_builder_new(m, "main", "CoreML8");
    struct mil_var *x = mil_build_input(b, "x", MIL_FP16, 4, in);
    struct mil_build_arg conv[] = {
        {.name = "x", .var = x},
        {.name = "weight", .var = mil_build_const(b, new_weight(m, s, "w", 4, dims), "w")}};
    struct mil_var *y = mil_build_op(b, "conv", "y", conv, 2);
    ASSERT_OK(mil_builder_finish(b, &y, 1, e));
    ASSERT_OK(quant_apply(m, spec, NULL, QUANT_LINEAR, &list, &n, e));
    assert_int_equal(n, 1);
    return list[0];
}

/* The value that a reader makes of codes and table, by the format's own words. */
static double expand(const struct quant_weight *w, const struct store *s, int64_t row, int64_t column)
{
    const f16 *table = (const f16 *)s->table;
    int64_t i = row * w->columns + column;
    int bits = mil_dtype_bits(w->codes->type->dtype);
    unsigned code = 0;
    for (int b = 0; b < bits; b++) {
        int64_t at = i * bits + b;
        code |= (unsigned)(s->codes[at / 8] >> (at % 8) & 1) << b;
    }
    if (w->spec.kind == QUANT_LUT) {
        int64_t group = row / (w->rows / w->table->type->dims[0]);
        return (double)f16_to_f32(table[group * (1 << bits) + code]);
    }
    int value = code & (1u << (bits - 1)) ? (int)code - (1 << bits) : (int)code;
    const int64_t *dims = w->table->type->dims;
    int64_t at = row / (w->rows / dims[0]) * dims[1] + column / (w->columns / dims[1]);
    return (double)f16_round((float)value * f16_to_f32(table[at]));
}

static void check_weight(int64_t rows, int64_t columns, struct quant_spec spec, enum values_kind kind)
{
    struct source source;
    struct mil_model *m = mil_model_new(9);
    struct store s, other;
    make_source(&source, rows * columns, kind);
    struct quant_weight *w = quantize_one(m, &source, rows, columns, &spec);
    struct quant_scratch *a = quant_scratch_new(), *b = quant_scratch_new();
    struct quant_stats stats = {0}, again = {0};
    store_init(&s, w);
    store_init(&other, w);
    struct quant_sink sink = {.put = put, .ctx = &s};
    for (int64_t unit = 0; unit < w->n_units; unit++)
        ASSERT_OK(quant_weight_run(w, unit, a, &sink, &stats, e));
    store_check(&s);
    /* Backwards, by two scratches in turn. */
    sink.ctx = &other;
    for (int64_t unit = w->n_units - 1; unit >= 0; unit--)
        ASSERT_OK(quant_weight_run(w, unit, unit % 2 ? b : a, &sink, &again, e));
    store_check(&other);
    assert_memory_equal(s.codes, other.codes, s.n_codes);
    assert_memory_equal(s.table, other.table, s.n_table);
    double error = 0, energy = 0;
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t column = 0; column < columns; column++) {
            double x = (double)f16_to_f32(source.values[row * columns + column]);
            double d = x - expand(w, &s, row, column);
            error += d * d;
            energy += x * x;
        }
    }
    assert_true(fabs(error - stats.error) <= 1e-12 + 1e-8 * error);
    assert_true(fabs(energy - stats.energy) <= 1e-12 + 1e-8 * energy);
    assert_int_equal(stats.n, rows * columns);
    /* The core gives the same. */
    if (spec.kind == QUANT_LUT) {
        uint8_t *codes = malloc((size_t)(rows * columns)), *packed = malloc(s.n_codes);
        f16 *tables = malloc(s.n_table);
        struct quant_stats core = {0};
        ASSERT_OK(quant_palettize(b, source.values, rows, columns, w->spec.group, spec.bits, spec.method,
                                  w->importance, codes, tables, &core, e));
        quant_pack(codes, rows * columns, spec.bits, packed);
        assert_memory_equal(packed, s.codes, s.n_codes);
        assert_memory_equal(tables, s.table, s.n_table);
        free(codes);
        free(packed);
        free(tables);
    }
    store_fini(&s);
    store_fini(&other);
    quant_scratch_free(a);
    quant_scratch_free(b);
    mil_model_close(m);
    free(source.values);
}

static void test_bytes(void **state)
{
    (void)state;
    static const int widths[] = {1, 2, 3, 4, 6, 8};
    static const int64_t sizes[][2] = {{1, 1}, {16, 32}, {13, 37}, {24, 7}, {9, 3}, {40, 65}};
    static const int64_t groups[] = {1, 8, 0, 4};
    for (int i = 0; i < 6; i++) {
        for (int k = 0; k < 6; k++) {
            for (int g = 0; g < 4; g++)
                check_weight(sizes[k][0], sizes[k][1],
                             (struct quant_spec){.kind = QUANT_LUT,
                                                 .bits = widths[i],
                                                 .group = groups[g],
                                                 .method = g % 2 ? QUANT_EXACT : QUANT_KMEANS},
                             (enum values_kind)((i + k + g) % VALUES_KINDS));
        }
    }
    for (int k = 0; k < 6; k++) {
        int64_t rows = sizes[k][0], columns = sizes[k][1];
        check_weight(rows, columns, (struct quant_spec){.kind = QUANT_INT8, .bits = 8, .group = 1},
                     VALUES_HEAVY);
        check_weight(rows, columns, (struct quant_spec){.kind = QUANT_INT8, .bits = 8, .group = 0},
                     VALUES_NORMAL);
        check_weight(rows, columns, (struct quant_spec){.kind = QUANT_INT4, .bits = 4, .block = 32},
                     VALUES_NORMAL);
        check_weight(rows, columns, (struct quant_spec){.kind = QUANT_INT4, .bits = 4, .block = 5},
                     VALUES_HEAVY);
    }
}

/* Weights of several units, groups that fill more than the window of values, odd rows. */
static void test_large(void **state)
{
    (void)state;
    check_weight(1030, 1021, (struct quant_spec){.kind = QUANT_LUT, .bits = 3, .group = 5}, VALUES_HEAVY);
    check_weight(1100, 2049, (struct quant_spec){.kind = QUANT_LUT, .bits = 1, .group = 0}, VALUES_NORMAL);
    check_weight(1100, 2049, (struct quant_spec){.kind = QUANT_INT8, .bits = 8, .group = 0}, VALUES_NORMAL);
    check_weight(700, 1023, (struct quant_spec){.kind = QUANT_INT4, .bits = 4, .block = 33}, VALUES_NORMAL);
    check_weight(640, 1024, (struct quant_spec){.kind = QUANT_LUT, .bits = 6, .group = 8}, VALUES_NORMAL);
}

static void test_bad_values(void **state)
{
    (void)state;
    static const struct quant_spec specs[] = {{.kind = QUANT_LUT, .bits = 4, .group = 2},
                                              {.kind = QUANT_INT8, .bits = 8, .group = 1},
                                              {.kind = QUANT_INT4, .bits = 4, .block = 4}};
    for (int i = 0; i < 3; i++) {
        struct source source;
        struct mil_model *m = mil_model_new(9);
        struct store s;
        struct err e = {0};
        make_source(&source, 8 * 8, VALUES_NORMAL);
        source.values[37] = 0x7c00;
        struct quant_weight *w = quantize_one(m, &source, 8, 8, &specs[i]);
        struct quant_scratch *scratch = quant_scratch_new();
        struct quant_stats stats = {0};
        store_init(&s, w);
        struct quant_sink sink = {.put = put, .ctx = &s};
        assert_false(quant_weight_run(w, 0, scratch, &sink, &stats, &e));
        assert_int_equal(e.code, ERR_FORMAT);
        store_fini(&s);
        quant_scratch_free(scratch);
        mil_model_close(m);
        free(source.values);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_apply),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_bad_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
