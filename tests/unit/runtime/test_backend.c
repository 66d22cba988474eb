// links: convert
/* Sessions on a backend of this test's own: all that model, session, snapshots and files ask of one is in the table of
 * backend.h, and what they hand it (ports, masks, positions, states) is what the contract says.
 *
 * Its numbers: the embeddings' row of a token is its id; a chunk writes the first element of a row into the cache at its
 * position p, and gives sum(cache[i] * (i + 1), i <= p) mod 97; logit j of output i is (row + 31 i + 7 j) mod 101. */
#include "kernel/kernel.h"
#include "runtime/session_int.h"
#include "packages.h"

enum { MOST = 32, MODULUS = 97 };

static int n_living; /* handles that are open */
static int fail_at;  /* runs until one fails; 0: never */

struct shared {
    struct backend_package base;
    int n_programs;
    const struct mil_model *programs[MOST];
};

struct function {
    struct backend_function base;
    const struct mil_function *mil;
    int plane; /* of the cache; -1: the program has no states */
};

struct states {
    struct backend_states base;
    f16 *data[MOST];
};

struct run {
    struct backend_run base;
    const struct stop *stop;
    void *inputs[MOST];
    const void *bound[MOST];
    float *outputs[MOST];
};

static void *born(size_t bytes)
{
    n_living++;
    return xcalloc(1, bytes);
}

static void died(void *p)
{
    n_living -= p != NULL;
    free(p);
}

static bool open_fake(struct backend_package **out, const struct backend_options *o, struct err *e)
{
    struct shared *p = born(sizeof *p);
    (void)e;
    assert_int_equal(o->precision, PRECISION_DEFAULT);
    p->base.device = "abacus";
    *out = &p->base;
    return true;
}

static void close_fake(struct backend_package *p)
{
    died(p);
}

static void add_program(struct backend_package *base, const struct mil_model *m)
{
    struct shared *p = (struct shared *)base;
    const struct mil_function *f = m->program->functions[0];
    bool has_state = false;
    for (int i = 0; i < f->n_inputs; i++)
        has_state = has_state || f->inputs[i]->type->kind == MIL_TYPE_STATE;
    assert_true(p->n_programs < MOST);
    if (has_state) /* embeddings and head are told of, too */
        p->programs[p->n_programs++] = m;
}

static bool state_is_recurrent(const struct backend_package *p, const char *state)
{
    (void)p;
    (void)state;
    return false;
}

static struct mil_port port_of(const struct mil_var *v, const struct mil_input_shape *shape)
{
    struct mil_port port = {.name = v->name,
                            .dtype = v->type->dtype,
                            .is_int = v->type->dtype == MIL_INT32,
                            .rank = v->type->rank,
                            .n_elems = 1};
    for (int i = 0; i < port.rank; i++) {
        port.dims[i] = v->type->dims[i] == MIL_DIM_UNKNOWN ? shape->dims[1] : v->type->dims[i];
        port.n_elems *= port.dims[i];
    }
    return port;
}

static bool function_open(struct backend_function **out, struct backend_package *base,
                          const struct backend_source *source, const char *name,
                          const struct mil_input_shape *shapes, int n_shapes, struct err *e)
{
    const struct shared *p = (const struct shared *)base;
    struct function *f = born(sizeof *f);
    struct mil_port *inputs = xcalloc(MOST, sizeof *inputs), *outputs = xcalloc(MOST, sizeof *outputs);
    (void)e;
    assert_true(path_exists(source->path));
    assert_true(n_shapes <= 1);
    f->mil = mil_function_find(source->mil, name);
    assert_non_null(f->mil);
    f->plane = -1;
    for (int i = 0; i < p->n_programs; i++)
        f->plane = p->programs[i] == source->mil ? i : f->plane;
    for (int i = 0; i < f->mil->n_inputs; i++)
        if (f->mil->inputs[i]->type->kind != MIL_TYPE_STATE)
            inputs[f->base.n_inputs++] = port_of(f->mil->inputs[i], shapes);
    for (int i = 0; i < f->mil->block->n_outputs; i++)
        outputs[f->base.n_outputs++] = port_of(f->mil->block->outputs[i], shapes);
    f->base.inputs = inputs;
    f->base.outputs = outputs;
    *out = &f->base;
    return true;
}

static void function_close(struct backend_function *f)
{
    if (f) {
        free((void *)(uintptr_t)f->inputs);
        free((void *)(uintptr_t)f->outputs);
    }
    died(f);
}

static struct backend_states *states_new(struct backend_package *p)
{
    (void)p;
    return born(sizeof(struct states));
}

static bool states_add(struct backend_states *base, const struct backend_function *f, struct err *e)
{
    struct states *s = (struct states *)base;
    const struct mil_function *mil = ((const struct function *)f)->mil;
    (void)e;
    for (int i = 0; i < mil->n_inputs; i++) {
        const struct mil_type *t = mil->inputs[i]->type;
        if (t->kind != MIL_TYPE_STATE || backend_find_state(base, mil->inputs[i]->name) >= 0)
            continue;
        base->list = xrealloc(base->list, sizeof *base->list * (size_t)(base->n + 1));
        struct backend_state *state = &base->list[base->n];
        *state = (struct backend_state){.name = mil->inputs[i]->name,
                                        .dtype = MIL_FP16,
                                        .rank = t->elem->rank,
                                        .n_elems = mil_type_elems(t->elem),
                                        .elem_bytes = sizeof(f16)};
        memcpy(state->dims, t->elem->dims, sizeof *state->dims * (size_t)state->rank);
        s->data[base->n++] = xcalloc((size_t)state->n_elems, sizeof(f16));
    }
    return true;
}

static void states_clear(struct backend_states *base)
{
    for (int i = 0; i < base->n; i++)
        memset(((struct states *)base)->data[i], 0, backend_state_bytes(&base->list[i]));
}

static void states_free(struct backend_states *base)
{
    for (int i = 0; base && i < base->n; i++)
        free(((struct states *)base)->data[i]);
    if (base)
        free(base->list);
    died(base);
}

static void state_read(const struct backend_states *base, int i, size_t first, size_t n, void *dst)
{
    assert_true(first + n <= backend_state_bytes(&base->list[i]));
    memcpy(dst, (const char *)((const struct states *)base)->data[i] + first, n);
}

static void state_write(struct backend_states *base, int i, size_t first, size_t n, const void *src)
{
    assert_true(first + n <= backend_state_bytes(&base->list[i]));
    memcpy((char *)((struct states *)base)->data[i] + first, src, n);
}

static void state_get(const struct backend_states *base, int i, f16 *dst)
{
    state_read(base, i, 0, backend_state_bytes(&base->list[i]), dst);
}

static void state_set(struct backend_states *base, int i, const f16 *src)
{
    state_write(base, i, 0, backend_state_bytes(&base->list[i]), src);
}

static bool run_open(struct backend_run **out, const struct backend_function *f, struct pool *pool,
                     const struct stop *stop, struct err *e)
{
    struct run *r = born(sizeof *r);
    (void)e;
    assert_non_null(pool);
    r->base.function = f;
    r->stop = stop;
    for (int i = 0; i < f->n_inputs; i++)
        r->inputs[i] = xcalloc((size_t)f->inputs[i].n_elems, 4);
    for (int i = 0; i < f->n_outputs; i++)
        r->outputs[i] = xcalloc((size_t)f->outputs[i].n_elems, 4);
    *out = &r->base;
    return true;
}

static void run_close(struct backend_run *base)
{
    struct run *r = (struct run *)base;
    for (int i = 0; r && i < MOST; i++) {
        free(r->inputs[i]);
        free(r->outputs[i]);
    }
    died(r);
}

static void *run_input(struct backend_run *r, int i)
{
    return ((struct run *)r)->inputs[i];
}

static void run_bind_input(struct backend_run *r, int i, const void *data)
{
    ((struct run *)r)->bound[i] = data;
}

static const void *run_output(const struct backend_run *r, int i)
{
    return ((const struct run *)r)->outputs[i];
}

static void run_round_output(struct backend_run *r, int i)
{
    (void)r;
    (void)i;
}

static const void *input(const struct run *r, const char *name)
{
    int i = backend_find_input(r->base.function, name);
    assert_true(i >= 0);
    return r->bound[i] ? r->bound[i] : r->inputs[i];
}

/* The caller's mask and position say what they must. */
static void check_call(const struct run *r, int64_t n_tokens, int64_t mask_length)
{
    const int32_t *positions = input(r, "position_ids"), *current = input(r, "current_pos");
    const float *mask = input(r, "causal_mask");
    assert_int_equal(current[0], positions[0]);
    for (int64_t t = 0; t < n_tokens; t++) {
        assert_int_equal(positions[t], positions[0] + t);
        for (int64_t i = 0; i < mask_length; i++)
            assert_true(mask[t * mask_length + i] == (i <= positions[t] ? 0.0f : -INFINITY));
    }
}

static void run_chunk(struct run *r, struct states *s)
{
    const struct backend_function *f = r->base.function;
    const struct mil_port *in = &f->inputs[backend_find_input(f, "hidden_states")], *out = &f->outputs[0];
    const struct backend_state *cache = &s->base.list[0];
    const int32_t *positions = input(r, "position_ids");
    const float *rows = input(r, "hidden_states");
    int64_t n_tokens = in->dims[1], hidden = in->dims[2], skipped = n_tokens - out->dims[1];
    f16 *plane =
        s->data[0] + ((const struct function *)f)->plane * cache->dims[1] * cache->dims[2] * cache->dims[3];
    check_call(r, n_tokens, f->inputs[backend_find_input(f, "causal_mask")].dims[3]);
    for (int64_t t = 0; t < n_tokens; t++) {
        int64_t sum = 0;
        plane[positions[t] * cache->dims[3]] = f32_to_f16(rows[t * hidden]);
        for (int64_t i = 0; i <= positions[t]; i++)
            sum += (int64_t)f16_to_f32(plane[i * cache->dims[3]]) * (i + 1);
        if (t >= skipped)
            r->outputs[0][(t - skipped) * hidden] = (float)(sum % MODULUS);
    }
}

static bool run_execute(struct backend_run *base, struct backend_states *states, struct err *e)
{
    struct run *r = (struct run *)base;
    const struct backend_function *f = base->function;
    if (fail_at > 0 && --fail_at == 0)
        return err_set(e, ERR_FAILED, "the abacus has lost a bead");
    if (stop_requested(r->stop))
        return stop_error(r->stop, e);
    if (states) {
        run_chunk(r, (struct states *)states);
    } else if (backend_find_input(f, "input_ids") >= 0) {
        const int32_t *ids = input(r, "input_ids");
        for (int64_t t = 0; t < f->outputs[0].dims[1]; t++)
            r->outputs[0][t * f->outputs[0].dims[2]] = (float)ids[t];
    } else {
        const float *row = input(r, "hidden_states");
        for (int i = 0; i < f->n_outputs; i++)
            for (int64_t j = 0; j < f->outputs[i].n_elems; j++)
                r->outputs[i][j] = (float)(((int64_t)row[0] + 31 * i + 7 * j) % 101);
    }
    return true;
}

static const struct backend fake = {.name = "fake",
                                    .open = open_fake,
                                    .close = close_fake,
                                    .add_program = add_program,
                                    .state_is_recurrent = state_is_recurrent,
                                    .function_open = function_open,
                                    .function_close = function_close,
                                    .states_new = states_new,
                                    .states_add = states_add,
                                    .states_clear = states_clear,
                                    .states_free = states_free,
                                    .state_read = state_read,
                                    .state_write = state_write,
                                    .state_get = state_get,
                                    .state_set = state_set,
                                    .run_open = run_open,
                                    .run_close = run_close,
                                    .run_input = run_input,
                                    .run_bind_input = run_bind_input,
                                    .run_output = run_output,
                                    .run_round_output = run_round_output,
                                    .run_execute = run_execute};

/* ---- what a session makes of it ---- */

enum { CONTEXT = 64, BATCH = 8, N = 43 };

static struct model *load(int n_chunks, bool watch_layers)
{
    const struct package_shape shape = {"qwen3-gqa8", CONTEXT, BATCH, n_chunks, CONVERT_MLMODELC};
    struct model *m = package_load_with(
        &shape, &(struct package_extra){0},
        &(struct model_options){.n_threads = 2, .backend = &fake, .watch_layers = watch_layers});
    assert_ptr_equal(m->backend, &fake);
    assert_string_equal(m->device, "abacus");
    return m;
}

/* The last chunk's number after ids [n], by hand. */
static int64_t expected(const struct model *m, const int32_t *ids, size_t n)
{
    int64_t row[CONTEXT];
    for (size_t i = 0; i < n; i++)
        row[i] = ids[i];
    for (int c = 0; c < m->n_chunks; c++)
        for (size_t t = 0, sum = 0; t < n; t++) {
            sum += (size_t)row[t] * (t + 1);
            row[t] = (int64_t)(sum % MODULUS);
        }
    return row[n - 1];
}

static void assert_logits(const struct session *s, const int32_t *ids, size_t n)
{
    const struct model *m = s->model;
    assert_int_equal(session_position(s), n);
    for (int i = 0; i < m->n_logits; i++)
        for (int64_t j = 0; j < m->part_begin[i + 1] - m->part_begin[i]; j++)
            assert_int_equal((int64_t)session_logits(s)[m->part_begin[i] + j],
                             (expected(m, ids, n) + 31 * i + 7 * j) % 101);
}

static void make_ids(int32_t *ids, size_t n, int32_t seed)
{
    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)((i * 37 + (size_t)seed) % 290);
}

static void test_timeline(void **state)
{
    (void)state;
    for (int n_chunks = 1; n_chunks <= 2; n_chunks++) {
        struct model *m = load(n_chunks, false);
        struct session *s = NULL;
        int32_t ids[N], other[N];
        size_t reused;
        make_ids(ids, N, 5);
        make_ids(other, N, 5);
        other[20]++;
        ASSERT_OK(session_new(&s, m, e));
        ASSERT_OK(session_sync(s, ids, N, NULL, NULL, e));
        assert_logits(s, ids, N);
        ASSERT_OK(session_sync(s, other, N, NULL, &reused, e));
        assert_int_equal(reused, 20);
        assert_logits(s, other, N);
        session_reset(s);
        ASSERT_OK(session_feed(s, ids, N, SESSION_INFER_ONLY, NULL, NULL, NULL, e));
        assert_logits(s, ids, N);
        session_free(s);
        model_close(m);
        assert_int_equal(n_living, 0);
    }
}

static void test_states_and_files(void **state)
{
    (void)state;
    struct model *m = load(2, false);
    struct session *s = NULL, *t = NULL;
    int32_t ids[N];
    char *path = path_join(packages_scratch, "session");
    make_ids(ids, N, 9);
    ASSERT_OK(session_new(&s, m, e));
    ASSERT_OK(session_new(&t, m, e));
    ASSERT_OK(session_sync(s, ids, N - 1, NULL, NULL, e));
    ASSERT_OK(session_save(s, path, e));
    ASSERT_OK(session_load(t, path, e));
    assert_logits(t, ids, N - 1);
    ASSERT_OK(session_feed(t, &ids[N - 1], 1, SESSION_CONTRACT, NULL, NULL, NULL, e));
    assert_logits(t, ids, N);
    const struct backend_state *cache = session_find_state(t, "model_model_kv_cache_0");
    assert_non_null(cache);
    assert_null(session_find_state(t, "nothing"));
    f16 *halves = xmalloc(sizeof *halves * (size_t)cache->n_elems);
    session_read_state(t, cache, halves);
    for (int i = 0; i < N; i++)
        assert_int_equal((int)f16_to_f32(halves[i * cache->dims[3]]), ids[i]);
    free(halves);
    free(path);
    session_free(s);
    session_free(t);
    model_close(m);
    assert_int_equal(n_living, 0);
}

static void test_failures_and_stops(void **state)
{
    (void)state;
    struct model *m = load(2, false);
    struct session *s = NULL;
    struct err e = {0};
    atomic_int flag = 0;
    int32_t ids[N];
    make_ids(ids, N, 3);
    ASSERT_OK(session_new(&s, m, e));
    fail_at = 9; /* three runs a batch: the second chunk of the third */
    assert_false(session_sync(s, ids, N, NULL, NULL, &e));
    assert_int_equal(e.code, ERR_FAILED);
    assert_string_equal(e.msg, "chunk 2 at position 16: the abacus has lost a bead");
    assert_int_equal(session_position(s), 16);
    atomic_store(&flag, 1);
    session_set_stop(s, &flag, NULL);
    e = (struct err){0};
    assert_false(session_sync(s, ids, N, NULL, NULL, &e));
    assert_int_equal(e.code, ERR_CANCELLED);
    atomic_store(&flag, 0);
    ASSERT_OK(session_sync(s, ids, N, NULL, NULL, e));
    assert_logits(s, ids, N);
    session_free(s);
    model_close(m);
    assert_int_equal(n_living, 0);
}

static void count_layer(void *context, int64_t layer, int64_t position, int64_t n, const float *rows)
{
    int *seen = context;
    (void)position;
    (void)n;
    (void)rows;
    if (layer >= -1 && layer < 8)
        seen[layer + 1]++;
}

/* A backend that reads files of its own can't be asked for more outputs: layers are seen where chunks end. */
static void test_watching_borders(void **state)
{
    (void)state;
    struct model *m = load(2, true);
    struct session *s = NULL;
    int seen[9] = {0}, n_inner = 0;
    int32_t ids[N];
    make_ids(ids, N, 3);
    ASSERT_OK(session_new(&s, m, e));
    session_watch(s, count_layer, seen);
    ASSERT_OK(session_feed(s, ids, 3, SESSION_INFER_ONLY, NULL, NULL, NULL, e));
    assert_int_equal(seen[0], 3);
    for (int i = 1; i < 9; i++)
        n_inner += seen[i] > 0;
    assert_int_equal(n_inner, 1);
    session_free(s);
    model_close(m);
    assert_int_equal(n_living, 0);
}

static void test_names(void **state)
{
    (void)state;
    const struct backend *b = NULL, *first = NULL;
    struct err e = {0};
    ASSERT_OK(backend_find(&first, NULL, e));
    ASSERT_OK(backend_find(&b, "engine", e));
    assert_ptr_equal(first, b);
    assert_false(backend_find(&b, "abacus", &e));
    assert_int_equal(e.code, ERR_USAGE);
    assert_string_equal(e.msg, "no backend abacus");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_timeline),
        cmocka_unit_test(test_states_and_files),
        cmocka_unit_test(test_failures_and_stops),
        cmocka_unit_test(test_watching_borders),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, packages_setup, packages_teardown);
}
