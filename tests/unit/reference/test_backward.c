/* Each primitive's backward against differences of its forward, Richardson's of second order, whose error is of fourth. */
#include <math.h>
#include "support.h"
#include "reference/qwen3_5.h"
#include "reference/tape.h"

#define N 5 /* tokens */
#define ROOM 1024
#define TOLERANCE 2e-4

struct bench {
    struct reference *reference;
    struct reference_session *s;
    float *x, *y, *z, *out; /* [ROOM]: of the session */
    float *saved[4];
    uint32_t state;
};

/* A range of a bench's numbers. */
struct part {
    float *p;
    int64_t n;
};

struct primitive {
    const char *name;
    void (*run)(struct bench *b);
    struct part (*input)(struct bench *b, int i); /* p NULL: there are no more */
    struct part (*output)(struct bench *b);
    double step; /* 0: 1/16 */
};

static float next(struct bench *b)
{
    b->state = b->state * 1664525u + 1013904223u;
    return (float)((double)(b->state >> 8) / 0x1p23 - 1.0);
}

static void open_bench(struct bench *b, const char *name)
{
    char *path = xasprintf("%s/models/%s", MILKIT_TEST_DATA, name);
    struct reference_options options = {.n_threads = 2};
    *b = (struct bench){.state = 5};
    ASSERT_OK(reference_open(&b->reference, path, &options, e));
    ASSERT_OK(reference_session_make(&b->s, b->reference, N + 3, N + 3, e));
    float **const all[] = {&b->x, &b->y, &b->z, &b->out};
    for (int i = 0; i < 4; i++) {
        ASSERT_OK(reference_take(b->s, all[i], ROOM, 1, 1, e));
        b->saved[i] = malloc(ROOM * sizeof(float));
        for (int k = 0; k < ROOM; k++)
            b->saved[i][k] = next(b);
    }
    ASSERT_OK(reference_tape_new(b->s, e));
    free(path);
}

static void close_bench(struct bench *b)
{
    for (int i = 0; i < 4; i++)
        free(b->saved[i]);
    reference_session_free(b->s);
    reference_close(b->reference);
}

static void restore(struct bench *b)
{
    float *const all[] = {b->x, b->y, b->z, b->out};
    for (int i = 0; i < 4; i++)
        memcpy(all[i], b->saved[i], ROOM * sizeof(float));
}

/* What an output's number counts in the loss. */
static float share(int64_t i)
{
    return (float)(1 + i % 7) * (i % 3 ? 0.25f : -0.25f);
}

static double loss(struct bench *b, const struct primitive *p, float *at, float change)
{
    double sum = 0;
    restore(b);
    if (at)
        *at += change;
    p->run(b);
    struct part out = p->output(b);
    for (int64_t i = 0; i < out.n; i++)
        sum += (double)share(i) * (double)out.p[i];
    return sum;
}

static double difference(struct bench *b, const struct primitive *p, float *at, double step)
{
    double above = loss(b, p, at, (float)step), below = loss(b, p, at, (float)-step);
    return (above - below) / (2 * step);
}

static void check(struct bench *b, const struct primitive *p)
{
    double step = p->step > 0 ? p->step : 1.0 / 16;
    for (size_t i = 0; i < b->s->n_taken; i++)
        memset(b->s->taken[i].adjoint, 0, b->s->taken[i].n * sizeof(float));
    restore(b);
    reference_tape_begin(b->s, NULL);
    p->run(b);
    struct part out = p->output(b);
    float *d_out = reference_adjoint(b->s, out.p);
    for (int64_t i = 0; i < out.n; i++)
        d_out[i] = share(i);
    ASSERT_OK(reference_tape_walk(b->s, e));
    bool is_input = false;
    for (int i = 0;; i++) {
        struct part in = p->input(b, i);
        if (!in.p)
            break;
        is_input = is_input || (out.p >= in.p && out.p < in.p + in.n);
        const float *d = reference_adjoint(b->s, in.p);
        double largest = 0, worst = 0;
        for (int64_t k = 0; k < in.n; k++) {
            double fine = difference(b, p, in.p + k, step), coarse = difference(b, p, in.p + k, 2 * step);
            double expected = (4 * fine - coarse) / 3, error = fabs(expected - (double)d[k]);
            largest = fabs(expected) > largest ? fabs(expected) : largest;
            worst = error > worst ? error : worst;
        }
        printf("%s, input %d: largest %.3g, error %.2g\n", p->name, i, largest, worst);
        assert_true(largest > 0 && worst <= TOLERANCE * largest);
    }
    /* What was written over has no share in anything before. */
    for (int64_t i = 0; i < out.n && !is_input; i++)
        assert_true(d_out[i] == 0);
}

/* ---- primitives ---- */

static struct part only_x(struct bench *b, int i)
{
    return (struct part){i == 0 ? b->x : NULL, 96};
}

static struct part x_and_y(struct bench *b, int i)
{
    return (struct part){i == 0 ? b->x : i == 1 ? b->y : NULL, 96};
}

static struct part x_out(struct bench *b)
{
    return (struct part){b->x, 96};
}

static struct part whole_out(struct bench *b)
{
    return (struct part){b->out, 96};
}

static const float gains[32] = {1, 2, 0.5f, -1, 1.5f, 0.25f, 1, 1, 3, 1, 1, -2, 1, 0.5f, 1, 1,
                                1, 2, 0.5f, -1, 1.5f, 0.25f, 1, 1, 3, 1, 1, -2, 1, 0.5f, 1, 1};

static void norm(struct bench *b)
{
    reference_rms_norm(b->s, b->x, gains, 3, 32, 1e-2f, b->out);
}

static void norm_in_place(struct bench *b)
{
    reference_rms_norm(b->s, b->x, NULL, 6, 16, 1e-6f, b->x);
}

static void turn(struct bench *b)
{
    static const float cosines[3 * 4] = {1, 1, 1, 1, 0.5f, 0.7f, 0.9f, 1, -0.5f, 0.1f, 0.8f, 0.9f};
    static const float sines[3 * 4] = {0, 0, 0, 0, 0.8f, 0.7f, 0.4f, 0, 0.8f, 0.9f, 0.6f, 0.4f};
    reference_rope_turn_heads(b->s, b->x, 3, 2, 16, 4, cosines, sines);
}

static void add(struct bench *b)
{
    reference_add(b->s, b->x, b->y, 96);
}

static void scale(struct bench *b)
{
    reference_scale(b->s, b->x, 96, -1.75f);
}

/* Of x only what is not cleared counts. */
static void clear_and_add(struct bench *b)
{
    reference_scale(b->s, b->y, 96, 2.0f);
    reference_clear(b->s, b->x, 48);
    reference_add(b->s, b->x, b->y, 96);
}

static void copy(struct bench *b)
{
    reference_copy(b->s, b->x, 3, 32, 40, b->out);
}

static struct part x_with_gaps(struct bench *b, int i)
{
    return (struct part){i == 0 ? b->x : NULL, 112};
}

static void silu(struct bench *b)
{
    reference_gate(b->s, &(struct reference_gate){REFERENCE_SILU, b->x, b->y, 32, 32, 3, 32, b->x});
}

static void gelu(struct bench *b)
{
    reference_gate(b->s, &(struct reference_gate){REFERENCE_GELU, b->x, b->y, 32, 32, 3, 32, b->y});
}

static struct part y_out(struct bench *b)
{
    return (struct part){b->y, 96};
}

static void sigmoid(struct bench *b)
{
    reference_gate(b->s, &(struct reference_gate){REFERENCE_SIGMOID, b->x, b->y, 40, 48, 2, 32, b->out});
}

static struct part sigmoid_in(struct bench *b, int i)
{
    return (struct part){i == 0 ? b->x : i == 1 ? b->y : NULL, i == 0 ? 72 : 80};
}

static struct part sigmoid_out(struct bench *b)
{
    return (struct part){b->out, 64};
}

static void sigmoid_alone(struct bench *b)
{
    reference_gate(b->s, &(struct reference_gate){REFERENCE_SIGMOID, b->x, NULL, 1, 0, 96, 1, b->x});
}

static const int32_t chosen[] = {4, 0, 2};

static void pick(struct bench *b)
{
    reference_pick(b->s, b->x, chosen, 3, 32, b->out);
}

static struct part x_of_picks(struct bench *b, int i)
{
    return (struct part){i == 0 ? b->x : NULL, N * 32};
}

static void add_picked(struct bench *b)
{
    reference_add_picked(b->s, &(struct reference_picked){b->x, b->y + 1, chosen, 3, 32, 4, b->z});
}

static struct part add_picked_in(struct bench *b, int i)
{
    const struct part all[] = {{b->x, 96}, {b->y, 18}, {b->z, N * 32}, {NULL, 0}};
    return all[i];
}

static struct part add_picked_out(struct bench *b)
{
    return (struct part){b->z, N * 32};
}

/* Keys and values of the text go through a cache, as in a layer; y: keys, z: values. */
#define HEADS 4
#define KV_HEADS 2
#define HEAD_DIM 8
static float *key_cache(const struct bench *b)
{
    return b->z + 512;
}

static void attend(struct bench *b, int64_t window)
{
    float *keys = key_cache(b), *values = keys + KV_HEADS * (N + 3) * HEAD_DIM;
    const struct reference_rows rows = {
        .q = b->x, .k = b->y, .v = b->z, .scores = b->out + 512, .output = b->out};
    const struct reference_heads heads = {
        .n = HEADS, .n_kv = KV_HEADS, .dim = HEAD_DIM, .window = window, .scale = 0.6f};
    assert_int_equal(b->s->capacity, N + 3);
    reference_store_rows(b->s, &rows, &heads, N, keys, values);
    reference_attend(b->s, &rows, &heads, N, keys, values);
}

static void attend_all(struct bench *b)
{
    attend(b, 0);
}

static void attend_window(struct bench *b)
{
    attend(b, 2);
}

static struct part attend_in(struct bench *b, int i)
{
    const struct part all[] = {{b->x, N * HEADS * HEAD_DIM},
                               {b->y, N * KV_HEADS * HEAD_DIM},
                               {b->z, N * KV_HEADS * HEAD_DIM},
                               {NULL, 0}};
    return all[i];
}

static struct part attend_out(struct bench *b)
{
    return (struct part){b->out, N * HEADS * HEAD_DIM};
}

static void test_primitives(void **unused)
{
    (void)unused;
    static const struct primitive all[] = {
        {"norm", norm, only_x, whole_out, 0},
        {"norm in place", norm_in_place, only_x, x_out, 0},
        {"turn", turn, only_x, x_out, 0},
        {"add", add, x_and_y, x_out, 0},
        {"scale", scale, only_x, x_out, 0},
        {"clear", clear_and_add, x_and_y, x_out, 0},
        {"copy", copy, x_with_gaps, whole_out, 0},
        {"silu", silu, x_and_y, x_out, 0},
        {"gelu", gelu, x_and_y, y_out, 0},
        {"sigmoid", sigmoid, sigmoid_in, sigmoid_out, 0},
        {"sigmoid alone", sigmoid_alone, only_x, x_out, 0},
        {"pick", pick, x_of_picks, whole_out, 0},
        {"add picked", add_picked, add_picked_in, add_picked_out, 0},
        {"attention", attend_all, attend_in, attend_out, 0},
        {"attention with a window", attend_window, attend_in, attend_out, 0},
    };
    struct bench b;
    open_bench(&b, "qwen3-gqa8");
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        check(&b, &all[i]);
    close_bench(&b);
}

/* ---- blocks of Qwen3.5: the delta rule with its convolution, experts ---- */

static const struct qwen3_5_layer *first_layer(const struct bench *b, int64_t *i)
{
    const struct qwen3_5 *q = b->reference->parts->own;
    for (*i = 0; q->layers[*i].is_full;)
        ++*i;
    return &q->layers[*i];
}

static void fill_h(struct bench *b)
{
    struct qwen3_5_work *w = b->s->own;
    reference_copy(b->s, b->x, N, b->reference->hidden_size, b->reference->hidden_size, w->h);
}

static void delta(struct bench *b)
{
    int64_t i;
    const struct qwen3_5_layer *l = first_layer(b, &i);
    struct qwen3_5_work *w = b->s->own;
    b->reference->parts->family->layer_reset(b->s, i);
    fill_h(b);
    reference_qwen3_5_linear(b->s, l, i, N, w->y);
}

static void mixture(struct bench *b)
{
    int64_t i;
    const struct qwen3_5_layer *l = first_layer(b, &i);
    struct qwen3_5_work *w = b->s->own;
    fill_h(b);
    reference_qwen3_5_mlp(b->s, l, N, w->y);
}

static struct part block_in(struct bench *b, int i)
{
    return (struct part){i == 0 ? b->x : NULL, N * b->reference->hidden_size};
}

static struct part block_out(struct bench *b)
{
    struct qwen3_5_work *w = b->s->own;
    return (struct part){w->y, N * b->reference->hidden_size};
}

static void test_blocks(void **unused)
{
    (void)unused;
    static const struct primitive all[] = {{"delta rule", delta, block_in, block_out, 1.0 / 64},
                                           {"experts", mixture, block_in, block_out, 1.0 / 64}};
    struct bench b;
    open_bench(&b, "qwen3_5_moe-random");
    assert_true(N * b.reference->hidden_size <= ROOM);
    for (int i = 0; i < 2; i++)
        check(&b, &all[i]);
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_primitives), cmocka_unit_test(test_blocks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
