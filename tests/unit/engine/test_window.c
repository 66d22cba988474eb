// links: convert
/* The cache that shifts by blocks: the pattern becomes one step, with the contents that its ops give in every precision
 * and that a model in plain C gives; graphs that differ in one place are not taken for it; a call that does not
 * fit leaves the state alone. Packages that are written have the pattern in all of their layers. */
#include "packages.h"
#include "program.h"
#include "arch/blocks.h"

enum { SLOTS = 3, HEADS = 2, BLOCK = 4, LENGTH = 16, D = 8, SLOT = 1, ROW = HEADS * LENGTH * D };

enum variant {
    PLAIN,
    KEPT_LATER,   /* the rows that stay are not those behind the first block */
    NOT_ZEROS,    /* something else comes in */
    ZEROS_FIRST,  /* a shift the other way */
    SELECT_OTHER, /* shifts inside a block */
    SELECT_ROWS,  /* a condition for each row */
    OTHER_SLOT,   /* what is shifted comes from another slot */
    OTHER_STATE,
    ALL_OTHER,  /* everything comes from another state */
    STAY_OTHER, /* inside a block, something else stays */
    WRITTEN_BETWEEN,
    SHIFTED_USED,
    OLD_USED,
    UPDATED_USED,
    MOVED_BACK, /* the slot's write begins at a head */
    HALF_ROWS,  /* every other row is written */
    NOT_WHOLE,  /* goes into a changed copy of the state */
    OWN_ROWS,   /* the rows are those that stay */
    OWN_SLOT,   /* the rows are the slot before the call */
    VARIANTS
};

static struct mil_var *update(struct program *p, struct mil_var *x, struct mil_var *part,
                              struct mil_var *begin, struct mil_var *end, const int32_t *stride)
{
    struct mil_build_arg args[5] = {{.name = "x", .var = x},
                                    {.name = "update", .var = part},
                                    {.name = "begin", .var = begin},
                                    {.name = "end", .var = end}};
    if (stride)
        args[4] = (struct mil_build_arg)MIL_ARG_INTS("stride", stride, 4);
    return mil_build_op(p->b, "slice_update", NULL, args, stride ? 5 : 4);
}

static struct mil_var *ints4(struct program *p, int32_t a, int32_t b, int32_t c, int32_t d)
{
    return mil_build_ints(p->b, (int32_t[]){a, b, c, d}, 4, NULL);
}

static struct mil_var *filled(struct program *p, int64_t rows, float with)
{
    int64_t dims[4] = {1, HEADS, rows, D};
    f16 *x = xcalloc((size_t)(HEADS * rows * D), sizeof *x);
    for (int64_t i = 0; i < HEADS * rows * D; i++)
        x[i] = f32_to_f16(with);
    struct mil_var *v = mil_build_const(p->b, mil_value_new(p->m, MIL_FP16, 4, dims, x), NULL);
    free(x);
    return v;
}

static struct mil_var *is_zero(struct mil_builder *b, struct mil_var *x)
{
    return block_binary(b, "equal", x, mil_build_int(b, 0, NULL), NULL);
}

/* int32 [4]: one corner of the rows in a slot */
static struct mil_var *corner(struct mil_builder *b, int32_t slot, int32_t head, struct mil_var *at,
                              int32_t dim)
{
    struct mil_var *parts[3] = {mil_build_ints(b, (int32_t[]){slot, head}, 2, NULL), at};
    parts[2] = mil_build_ints(b, &dim, 1, NULL);
    return block_concat(b, parts, 3, 0, NULL);
}

/* Inputs: rows [1, HEADS, t, D], at [1]: the first row's place, inside [1]: 0 where a block is entered. With `product`
 * the state is one that a product reads, which is held as fp16. */
static struct program window_program(int64_t t, bool selects, bool product, enum variant variant)
{
    struct program p = program_begin();
    struct mil_builder *b = p.b;
    struct mil_var *outputs[2] = {NULL, NULL},
                   *state = mil_build_state(b, "cache", MIL_FP16, 4, SHAPE(SLOTS, HEADS, LENGTH, D)),
                   *twin = variant == OTHER_STATE || variant == ALL_OTHER
                               ? mil_build_state(b, "twin", MIL_FP16, 4, SHAPE(SLOTS, HEADS, LENGTH, D))
                               : NULL;
    struct mil_var *rows = mil_build_input(b, "rows", MIL_FP16, 4, SHAPE(1, HEADS, t, D)),
                   *at = mil_build_input(b, "at", MIL_INT32, 1, SHAPE(1)),
                   *inside = mil_build_input(b, "inside", MIL_INT32, 1, SHAPE(1));
    struct mil_var *enter = block_reshape(b, is_zero(b, inside), 4, SHAPE(1, 1, 1, 1), NULL);
    struct mil_var *whole = read_state(&p, variant == ALL_OTHER ? twin : state);
    int64_t slot = variant == OTHER_SLOT ? SLOT + 1 : SLOT, from = variant == KEPT_LATER ? BLOCK - 1 : BLOCK;
    struct mil_var *old =
        block_slice(b, variant == OTHER_STATE ? read_state(&p, twin) : whole, 0, slot, slot + 1, NULL);
    struct mil_var *parts[2] = {block_slice(b, old, 2, from, LENGTH - BLOCK + from, NULL)};
    parts[1] = filled(&p, BLOCK, variant == NOT_ZEROS ? 1 : 0);
    if (variant == ZEROS_FIRST) {
        struct mil_var *kept = parts[0];
        parts[0] = parts[1];
        parts[1] = kept;
    }
    struct mil_var *shifted = block_concat(b, parts, 2, 2, NULL), *now = shifted;
    if (variant == SELECT_ROWS)
        enter = is_zero(b, mil_build_input(b, "each", MIL_INT32, 4, SHAPE(1, 1, LENGTH, 1)));
    struct mil_var *stay = variant == STAY_OTHER ? filled(&p, LENGTH, 1) : old;
    if (selects)
        now = variant == SELECT_OTHER ? block_select(b, enter, old, shifted)
                                      : block_select(b, enter, shifted, stay);
    if (variant == OWN_ROWS || variant == OWN_SLOT) {
        rows = variant == OWN_ROWS ? parts[0] : old;
        t = variant == OWN_ROWS ? LENGTH - BLOCK : LENGTH;
    }
    int32_t step = variant == HALF_ROWS ? 2 : 1, reach = (int32_t)(t - 1) * step + 1;
    struct mil_var *behind = block_binary(b, "add", at, mil_build_ints(b, &reach, 1, NULL), NULL);
    struct mil_var *begin = corner(b, 0, 0, at, 0), *end = corner(b, 1, HEADS, behind, D);
    now = update(&p, now, rows, begin, end, step > 1 ? (int32_t[]){1, 1, step, 1} : NULL);
    struct mil_var *updated = now;
    if (variant == WRITTEN_BETWEEN)
        write_state(&p, state, block_scale(b, read_state(&p, state), 0.5, NULL));
    if (variant == NOT_WHOLE)
        whole = op2(&p, "mul", whole, mil_build_f16(b, 0.5, NULL));
    if (variant == MOVED_BACK)
        now = block_slice(b, now, 1, 0, 1, NULL);
    begin = ints4(&p, SLOT, variant == MOVED_BACK, 0, 0);
    end = ints4(&p, SLOT + 1, HEADS, LENGTH, D);
    write_state(&p, state, update(&p, whole, now, begin, end, NULL));
    struct mil_var *after = block_slice(b, read_state(&p, state), 0, SLOT, SLOT + 1, NULL);
    outputs[0] = product ? block_matmul(b, rows, after, true, NULL)
                         : block_binary(b, "mul", after, mil_build_f16(b, 2, NULL), NULL);
    outputs[1] = variant == SHIFTED_USED   ? shifted
                 : variant == OLD_USED     ? old
                 : variant == UPDATED_USED ? updated
                                           : NULL;
    program_end(&p, outputs, outputs[1] ? 2 : 1);
    return p;
}

static const f16 *state_contents(struct machine *k, f16 *to)
{
    engine_state_read(engine_state_find(k->state, "cache"), to);
    return to;
}

/* The same in plain C, for one call. */
static void shift_and_write(f16 *state, const float *rows, int64_t t, bool enter, int64_t at)
{
    for (int64_t h = 0; h < HEADS; h++) {
        f16 *slot = state + (SLOT * HEADS + h) * LENGTH * D;
        for (int64_t i = 0; enter && i < LENGTH * D; i++)
            slot[i] = i < (LENGTH - BLOCK) * D ? slot[i + BLOCK * D] : 0;
        for (int64_t i = 0; i < t * D; i++)
            slot[at * D + i] = f32_to_f16(rows[h * t * D + i]);
    }
}

/* Calls as a session makes them, position by position or block by block, in all precisions and with one and three
 * threads: the contents are those of the model in plain C, bit for bit, and no other slot changes. */
static void test_contents(void **state)
{
    (void)state;
    static const struct {
        enum engine_precision precision;
        int threads;
    } ways[] = {{ENGINE_DEFAULT, 1}, {ENGINE_DEFAULT, 3}, {ENGINE_FP32, 1}, {ENGINE_FP16, 1}};
    for (int form = 0; form < 4; form++) {
        bool batch = form % 2, product = form / 2;
        int64_t t = batch ? BLOCK : 1;
        struct program p = window_program(t, !batch, product, PLAIN);
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            struct machine k;
            f16 want[SLOTS * ROW], got[SLOTS * ROW];
            machine_open(&k, p.m, ways[w].precision, ways[w].threads);
            assert_int_equal(machine_steps(&k, "write window"), ways[w].precision == ENGINE_DEFAULT);
            for (int64_t i = 0; i < SLOTS * ROW; i++)
                want[i] = f32_to_f16(noise(5, (size_t)i));
            engine_state_write(engine_state_find(k.state, "cache"), want);
            for (int call = 0; call < 3 * BLOCK + 1; call++) {
                float rows[HEADS * BLOCK * D];
                /* a batch may begin anywhere in a block */
                int32_t at = LENGTH - 2 * BLOCK + call % BLOCK, inside = batch ? 1 : call % BLOCK;
                at += batch ? 0 : BLOCK;
                for (int64_t i = 0; i < HEADS * t * D; i++)
                    rows[i] = noise(9 + (uint32_t)call, (size_t)i);
                const struct program_input inputs[] = {{"rows", rows}, {"at", &at}, {"inside", &inside}};
                machine_execute(&k, inputs, 3);
                shift_and_write(want, rows, t, batch || inside == 0, at);
                assert_memory_equal(state_contents(&k, got), want, sizeof want);
                for (int64_t i = 0; !product && i < ROW; i++)
                    assert_true(fabsf(((const float *)engine_output(k.run, 0))[i] -
                                      2 * f16_to_f32(want[SLOT * ROW + i])) < 4e-3f);
            }
            machine_close(&k);
        }
        program_free(&p);
    }
}

static void test_near_misses(void **state)
{
    (void)state;
    for (int form = 0; form < 4; form++) {
        bool batch = form % 2, product = form / 2;
        int64_t t = batch ? BLOCK : 1;
        for (int variant = 0; variant < VARIANTS; variant++) {
            if ((variant == SELECT_OTHER || variant == SELECT_ROWS || variant == STAY_OTHER) && batch)
                continue;
            struct program p = window_program(t, !batch, product, (enum variant)variant);
            for (int32_t inside = 0; inside < 2; inside++) {
                int32_t at = variant == HALF_ROWS ? 3 : variant >= OWN_ROWS ? 0 : 11;
                const struct program_input inputs[] = {{"at", &at}, {"inside", &inside}};
                int n = agree(&p, inputs, 2, 1e-5, "write window");
                if (n != (variant == PLAIN))
                    fail_msg("variant %d of form %d: %d steps of a window", variant, form, n);
            }
            program_free(&p);
        }
    }
}

/* Rows that do not fit: refused, and nothing has moved. */
static void test_outside(void **state)
{
    (void)state;
    static const int32_t places[] = {LENGTH - BLOCK + 1, LENGTH, -LENGTH - 1, INT32_MAX, INT32_MIN};
    struct program p = window_program(BLOCK, false, true, PLAIN);
    struct machine k;
    f16 before[SLOTS * ROW], after[SLOTS * ROW];
    machine_open(&k, p.m, ENGINE_DEFAULT, 2);
    for (int64_t i = 0; i < SLOTS * ROW; i++)
        before[i] = f32_to_f16(noise(5, (size_t)i));
    engine_state_write(engine_state_find(k.state, "cache"), before);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const struct program_input inputs[] = {{"at", &places[i]}};
        struct err e = {0};
        machine_fill(&k, inputs, 1);
        assert_false(engine_execute(k.run, k.state, k.pool, &e));
        assert_int_equal(e.code, ERR_FAILED);
        assert_non_null(strstr(e.msg, "window"));
        assert_memory_equal(state_contents(&k, after), before, sizeof before);
    }
    machine_close(&k);
    program_free(&p);
}

/* Both functions of a package that is written: a step for each local layer that owns keys, and no other step that
 * touches a whole slot. */
static void test_package(void **state)
{
    (void)state;
    static const struct package_shape shape = {"gemma4-window", 256, 8, 1, CONVERT_MLMODELC};
    static const char *const functions[] = {"infer", "prefill"};
    char *folder = package_make(&shape), *path = path_join(folder, "gemma4_FFN_PF_chunk_01of01.mlmodelc");
    struct mil_model *m = NULL;
    ASSERT_OK(mil_model_open(&m, path, 0, e));
    for (int i = 0; i < 2; i++) {
        struct machine k = {0};
        ASSERT_OK(engine_plan_new(&k.plan, m, functions[i], NULL, 0, NULL, e));
        FILE *f = open_memstream(&k.listing, &k.n_listing);
        engine_plan_print(k.plan, NULL, f);
        fclose(f);
        k.state = engine_state_new();
        ASSERT_OK(engine_state_add(k.state, k.plan, e));
        const struct engine_state_entry *local = engine_state_find(k.state, "model_model_kv_cache_local");
        assert_non_null(local);
        assert_int_equal(machine_steps(&k, "write window"), local->dims[0]);
        assert_int_equal(machine_steps(&k, "slice update"), 0);
        assert_int_equal(machine_steps(&k, "select"), 1); /* the mask */
        engine_state_free(k.state);
        engine_plan_free(k.plan);
        free(k.listing);
    }
    mil_model_close(m);
    free(path);
    free(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contents),
        cmocka_unit_test(test_near_misses),
        cmocka_unit_test(test_outside),
        cmocka_unit_test(test_package),
    };
    return cmocka_run_group_tests(tests, packages_setup, packages_teardown);
}
